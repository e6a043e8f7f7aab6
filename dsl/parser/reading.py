"""Runs the grammar over one statement: Lark's tree, or where reading stops and what is wrong."""

import re
from typing import Any

from lark import Token

from dsl.parser.automaton import END, Automaton, Stop
from dsl.parser.refusal import Refusal
from dsl.source import MAX_DEPTH, blanked


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
    tree, stop = automaton.read(text, start, words)
    if stop is None:
        return tree, []
    # What is known of other languages is loaded when something is wrong, not before.
    from dsl.parser.repair import findings  # noqa: PLC0415 - see above

    return None, findings(automaton, text, start, stop, tries=tries)


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
