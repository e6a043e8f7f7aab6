"""Regular expressions: whether a whole text fits one, in time linear in the text.

A pattern becomes an automaton that is in many places at once and never goes back, whatever it
repeats. `re` says only what one sign of it takes. No look-around, no references to groups.
"""

import re
from functools import lru_cache
from typing import Any, Final

MAX_LENGTH: Final = 200
MAX_SIGNS: Final = 512
_MAX_NODES: Final = 8 * MAX_SIGNS
_MAX_KEPT: Final = 1024
_TOO_LARGE: Final = f"has more than {MAX_SIGNS} signs when its repeats are written out"
_NO_GROUPS: Final = "uses `(?`, which is not allowed here except `(?:`"
_REFUSED: Final = {"back": "refers back to a group, which is not allowed here", "look": _NO_GROUPS}
_ENTRY, _START, _END, _INNER = 1, 1, 2, 4
_TOKEN: Final = re.compile(
    r"(?P<sign>\[\^?\]?(?:\\.|[^\]\\])*\]|\\(?:x[\da-fA-F]{2}|u[\da-fA-F]{4}|U[\da-fA-F]{8}|N\{[^}]*\})"
    r"|\\[^bBAZ\d])"
    r"|(?P<back>\\\d)"
    r"|(?P<place>\\[bBAZ]|[\^$])"
    r"|(?P<look>\(\?(?!:))"
    r"|(?P<open>\((?:\?:)?)"
    r"|(?P<close>\))"
    r"|(?P<repeat>[*+?]|\{(?P<low>\d*),(?P<high>\d*)\}|\{(?P<count>\d+)\})(?P<mood>[?+]?)"
    r"|(?P<bar>\|)"
    r"|(?P<other>.)",
    re.DOTALL,
)
_WORD: Final = re.compile(r"\w").fullmatch


class RefusedError(ValueError):
    """Why a pattern is none, as the end of a sentence."""


class _Nodes:
    """An automaton being built: arrows that take a sign, and arrows that take nothing."""

    def __init__(self) -> None:
        self.signs: list[tuple[str, int]] = [("", 0)]
        self.free: list[list[tuple[int, str]]] = []

    def node(self) -> int:
        """Adds a node without arrows."""
        self.free.append([])
        if len(self.free) > _MAX_NODES:
            raise RefusedError(_TOO_LARGE)
        return len(self.free) - 1

    def sign(self, what: str, start: int) -> int:
        """Adds a sign that is taken at a node, and returns the node behind it."""
        end = self.node()
        self.free[start].append((-len(self.signs), ""))
        self.signs.append((what, end))
        if len(self.signs) > MAX_SIGNS:
            raise RefusedError(_TOO_LARGE)
        return end


class _Part:
    """A piece of a pattern; `grow` writes it into an automaton, from a node to the returned one."""

    def __init__(self, text: str = "", *, place: bool = False) -> None:
        self.text, self.place = text, place
        self.choices: list[list[tuple[_Part, int, int | None]]] = [[]]

    def grow(self, nodes: _Nodes, start: int) -> int:
        """Writes the piece."""
        if self.place:
            end = nodes.node()
            nodes.free[start].append((end, self.text))
            return end
        if self.text:
            return nodes.sign(self.text, start)
        last = nodes.node()
        for choice in self.choices:
            at = nodes.node()
            nodes.free[start].append((at, ""))
            for part, low, high in choice:
                at = part.repeated(nodes, at, low, high)
            nodes.free[at].append((last, ""))
        return last

    def repeated(self, nodes: _Nodes, start: int, low: int, high: int | None) -> int:
        """Writes the piece `low` to `high` times."""
        for _ in range(low):
            start = self.grow(nodes, start)
        last = nodes.node()
        nodes.free[start].append((last, ""))
        if high is None:
            nodes.free[self.grow(nodes, last)].append((last, ""))
        for _ in range(low, high or 0):
            start = self.grow(nodes, start)
            nodes.free[start].append((last, ""))
        return last


def _tokens(pattern: str) -> list[re.Match[str]]:
    if len(pattern) > MAX_LENGTH:
        raise RefusedError(f"is longer than {MAX_LENGTH} characters")
    tokens = list(_TOKEN.finditer(pattern))
    for found in tokens:
        if found.lastgroup in _REFUSED:
            raise RefusedError(_REFUSED[found.lastgroup])
    try:
        re.compile(pattern)
    except re.error as error:
        raise RefusedError(f"is not valid: {error.msg}") from None
    except (OverflowError, RecursionError):
        raise RefusedError("is not valid: a repeat is too large") from None
    return tokens


def _read(pattern: str) -> _Part:
    open_: list[_Part] = [_Part()]
    for found in _tokens(pattern):
        kind = "repeat" if found["repeat"] else found.lastgroup
        if kind == "close":
            open_.pop()
        elif kind == "bar":
            open_[-1].choices.append([])
        elif kind == "repeat":
            choice = open_[-1].choices[-1]
            choice[-1] = (choice[-1][0], *_times(found))
        else:
            part = _Part() if kind == "open" else _Part(found.group(), place=kind == "place")
            open_[-1].choices[-1].append((part, 1, 1))
            if kind == "open":
                open_.append(part)
    return open_[0]


def _times(found: re.Match[str]) -> tuple[int, int | None]:
    if found["mood"] == "+":
        raise RefusedError("is not valid: multiple repeat")
    sign, count, high = found["repeat"][0], found["count"], found["high"]
    if sign != "{":
        return int(sign == "+"), 1 if sign == "?" else None
    if max(len(count or ""), len(high or ""), len(found["low"] or "")) > len(str(MAX_SIGNS)):
        raise RefusedError("is not valid: a repeat is too large")
    return (
        (int(count), int(count)) if count else (int(found["low"] or 0), int(high) if high else None)
    )


class Pattern:
    """A pattern made ready: bit n of a number stands for sign n having been taken.

    What follows is found when it is first needed and kept for as long as it is small.
    """

    def __init__(self, pattern: str) -> None:
        whole = _read(pattern)
        self._nodes = _Nodes()
        first = self._nodes.node()
        self._last = whole.grow(self._nodes, first)
        signs = self._nodes.signs
        signs[0] = ("", first)
        self._tests = {what: re.compile(what).fullmatch for what, _ in signs[1:]}
        self._accept = 1 << len(signs)
        self._looks = any(what for arrows in self._nodes.free for _, what in arrows)
        self._behind: dict[tuple[int, int, int], int] = {}
        self._takes: dict[str, int] = {}
        self._steps: dict[tuple[int, int, str], int] = {}

    def fits(self, text: str) -> bool:
        """Whether a whole text fits."""
        state, place, before = _ENTRY, _START, ""
        for char in text:
            if self._looks:
                place = self._place(before, char)
                before = char
            key = (state, place, char)
            then = self._steps.get(key)
            state = self._step(key) if then is None else then
            if not state:
                return False
        place = self._place(before, "") if self._looks else place
        return self._after(state, place) & self._accept != 0

    def _place(self, before: str, char: str) -> int:
        inner = (_WORD(before) is None) != (_WORD(char) is None)
        return (_START if not before else 0) | (_END if not char else 0) | (_INNER if inner else 0)

    def _step(self, key: tuple[int, int, str]) -> int:
        state, place, char = key
        takes = self._takes.get(char)
        if takes is None:
            _bound(self._takes)
            fit = {what for what, test in self._tests.items() if test(char)}
            signs = enumerate(self._nodes.signs)
            takes = self._takes[char] = sum(1 << one for one, (what, _) in signs if what in fit)
        _bound(self._steps)
        then = self._steps[key] = self._after(state, place) & takes
        return then

    def _after(self, state: int, place: int) -> int:
        """Returns the signs that may come next, eight taken ones at a time."""
        found = 0
        for at, byte in enumerate(state.to_bytes(state.bit_length() + 7 >> 3, "little")):
            if byte:
                behind = self._behind.get((place, at, byte))
                found |= self._closure(place, at, byte) if behind is None else behind
        return found

    def _closure(self, place: int, at: int, byte: int) -> int:
        signs, free = self._nodes.signs, self._nodes.free
        todo = [signs[at * 8 + bit][1] for bit in range(8) if byte >> bit & 1]
        seen = set(todo)
        found = 0
        while todo:
            node = todo.pop()
            found |= self._accept if node == self._last else 0
            for target, what in free[node]:
                if target < 0:
                    found |= 1 << -target
                elif target not in seen and _holds(what, place):
                    seen.add(target)
                    todo.append(target)
        _bound(self._behind)
        self._behind[place, at, byte] = found
        return found


def _holds(what: str, place: int) -> bool:
    if what in ("^", r"\A"):
        return place & _START != 0
    if what in ("$", r"\Z"):
        return place & _END != 0
    return not what or (place & _INNER != 0) == (what == r"\b")


def _bound(kept: dict[Any, int]) -> None:
    if len(kept) >= _MAX_KEPT:
        kept.clear()


@lru_cache(maxsize=512)
def compiled(pattern: str) -> Pattern:
    """Returns a pattern made ready.

    Raises:
        RefusedError: it is none, or not one of those that are allowed.
    """
    return Pattern(pattern)


def why_refused(pattern: str) -> str | None:
    """Returns why a pattern is refused, as the end of a sentence; None if it is fine."""
    try:
        compiled(pattern)
    except RefusedError as refused:
        return str(refused)
    return None
