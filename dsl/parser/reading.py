"""Runs the grammar over one statement and gathers all that is wrong with it.

Where a finding comes with a text to write instead, reading goes on with that text. If the whole
statement can be mended so, every mistake of it is reported, otherwise the first alone: what follows
a mistake that is not understood may be its consequence. Lark's tree is handed on.
"""

import re
from typing import Any, Final

from lark import Token
from msgspec.structs import replace

from dsl.parser.automaton import END, Automaton, Stop
from dsl.parser.refusal import Refusal
from dsl.source import MAX_DEPTH, blanked

#: Findings of one statement, at most.
_MAX_FOUND: Final = 8
#: Longer statements are read once: trying replacements would cost too much.
_MAX_TRIED: Final = 4000


def read(
    automaton: Automaton,
    text: str,
    start: str,
    words: list[Token] | None = None,
    *,
    tries: bool = True,
) -> tuple[Any, list[Refusal]]:
    """Returns Lark's tree, or None and what is wrong; places are those of the text given.

    With a tree, `words` gets every word of the text; without `tries` nothing else is read.
    """
    deep = too_deep(text)
    if deep is not None:
        return None, [deep]
    found: list[Refusal] = []
    edits: list[tuple[int, int, str]] = []
    now = text
    while True:
        tree, stop = automaton.read(now, start, words)
        if stop is None:
            return (None if found else tree), found
        tries = tries and len(text) * (2 * len(found) + 1) < _MAX_TRIED
        # What is known of other languages is loaded when something is wrong, not before.
        from dsl.parser.repair import tell  # noqa: PLC0415 - see above
        from dsl.parser.told import Place  # noqa: PLC0415 - see above

        refusal = tell(Place(automaton, now, start, stop), tries=tries)
        back = _as_written(refusal, edits)
        if back is None or (found and back.start <= found[-1].start):
            break
        repair = refusal.repair
        if repair is not None and _covers(repair, edits):
            # Its text holds the replacements of earlier findings: not both can be applied.
            back = replace(back, fix=None, fix_at=None)
        found.append(back)
        if len(found) == _MAX_FOUND:
            return None, found
        if repair is None or len(text) > _MAX_TRIED:
            break
        first, last, better = repair
        now = now[:first] + better + now[last:]
        edits.append(repair)
    if edits and found[0].repair is not None:
        # What is left cannot be read: nobody knows whether it was meant so.
        return None, [replace(found[0], fix=None, fix_at=None)]
    return None, found[:1]


def _covers(repair: tuple[int, int, str], edits: list[tuple[int, int, str]]) -> bool:
    """Whether a replacement takes in the text of an earlier one; places are those of the latest."""
    return any(repair[0] < first + len(better) and first < repair[1] for first, _, better in edits)


def _as_written(refusal: Refusal, edits: list[tuple[int, int, str]]) -> Refusal | None:
    """Returns a finding with its places before the edits; None where it stands within one."""
    places: list[int] = []
    repair = refusal.repair
    spots = (refusal.start, refusal.end, *(repair[:2] if repair is not None else ()))
    for spot in spots:
        place = spot
        for first, last, better in reversed(edits):
            if place >= first + len(better):
                place += last - first - len(better)
            elif place > first:
                return None
        places.append(place)
    fix_at = (places[2], places[3]) if repair is not None else None
    return replace(refusal, start=places[0], end=places[1], fix_at=fix_at)


def reaches(automaton: Automaton, text: str, start: str) -> int:
    """Returns how far a text can be read, beyond its end if all of it."""
    if too_deep(text) is not None:
        return 0
    _, stop = automaton.read(text, start)
    return len(text) + 1 if stop is None else stopped(stop, text)[0]


def stopped(stop: Stop, text: str) -> tuple[int, int, bool]:
    """Returns where what was met starts and ends, and whether it is the end of the text."""
    if stop.kind == END:
        return len(text), len(text), True
    if stop.kind == "_NL":
        end = len(text[: stop.start].rstrip(" \t"))
        return end, end, True
    return stop.start, stop.end, False


def too_deep(text: str) -> Refusal | None:
    """Refuses brackets that are nested more than can be read."""
    depth = 0
    for found in re.finditer(r"[(\[)\]]", blanked(text)):
        depth += 1 if found.group() in "([" else -1
        if depth > MAX_DEPTH:
            return depth_refusal(found.start(), found.end())
    return None


def depth_refusal(start: int, end: int) -> Refusal:
    """Refuses what is nested too deep."""
    return Refusal(
        "P006",
        f"this is nested more than {MAX_DEPTH} levels deep",
        start,
        end,
        helps=("give parts of it a name with `let`",),
    )
