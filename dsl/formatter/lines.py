"""The lines of one statement: the author's where they fit, else broken at the loosest places."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct

from dsl.formatter.pieces import CLAUSE, STEP, Piece

#: Deeper lines stop moving to the right.
_MAX_INDENT: Final = 8
_SIGNS: Final = ("*", "/")


class _Line(Struct, frozen=True):
    """Words that stand on one line.

    Attributes:
        indent: columns before the first.
        further: columns before the lines it has to be broken into.
    """

    pieces: Sequence[Piece]
    indent: int
    further: int


def statement_lines(pieces: Sequence[Piece], width: int) -> list[str]:
    """Returns the lines of a statement, none wider than `width` unless it cannot be broken."""
    shown: list[str] = []
    todo = [*reversed(_authors_lines(pieces))]
    while todo:
        line = todo.pop()
        broken = _broken(line, width) if _too_wide(line, width) else []
        if broken:
            todo.extend(reversed(broken))
        else:
            shown.extend(_shown(line))
    return shown


def _authors_lines(pieces: Sequence[Piece]) -> list[_Line]:
    """Splits where the author broke before a clause, and around comments."""
    starts = [
        at
        for at, piece in enumerate(pieces)
        if at == 0 or piece.breaks or piece.above or pieces[at - 1].comment
    ]
    return [_start(one) for one in _parts(pieces, starts)]


def _parts(pieces: Sequence[Piece], starts: Sequence[int]) -> list[Sequence[Piece]]:
    """Splits words before each of some places, the first of which is 0."""
    return [pieces[first:last] for first, last in pairwise([*starts, len(pieces)])]


def _start(pieces: Sequence[Piece]) -> _Line:
    """Returns the line of words that start one whatever the width."""
    return _Line(pieces, pieces[0].indent, pieces[0].indent + STEP)


def _broken(line: _Line, width: int) -> list[_Line]:
    """Breaks a line at the loosest places it has; returns nothing if it has none."""
    ranks = [piece.rank for piece in line.pieces[1:] if piece.rank is not None]
    if not ranks:
        return []
    rank = min(ranks)
    places = [at for at, piece in enumerate(line.pieces) if at and piece.rank == rank]
    if all(line.pieces[at].fills for at in places):
        places = _full(line, places, width)
    head, *others = _parts(line.pieces, [0, *places])
    if rank == CLAUSE:
        return [_Line(head, line.indent, line.further), *(_start(one) for one in others)]
    deeper = min(line.further + STEP, _MAX_INDENT)
    return [_Line(head, line.indent, deeper), *(_Line(one, line.further, deeper) for one in others)]


def _full(line: _Line, places: Sequence[int], width: int) -> list[int]:
    """Returns the places where a line is full when words are put on it as long as they fit."""
    chosen: list[int] = []
    start, indent = 0, line.indent
    for at, following in pairwise([*places, len(line.pieces)]):
        if _too_wide(_Line(line.pieces[start:following], indent, 0), width):
            chosen.append(at)
            start = at
            indent = line.pieces[at].indent if line.pieces[at].rank == CLAUSE else line.further
    return chosen


def _too_wide(line: _Line, width: int) -> bool:
    """Tells whether a line is too wide; the inner lines of a quoted text are as they are."""
    column = line.indent
    for at, piece in enumerate(line.pieces):
        first, *others = piece.text.split("\n")
        column += len(_gap(line, at)) + len(first)
        if column > width:
            return True
        if others:
            column = len(others[-1])
    return False


def _shown(line: _Line) -> list[str]:
    blanks = " " * line.indent
    text = "".join(_gap(line, at) + piece.text for at, piece in enumerate(line.pieces))
    comment = line.pieces[-1].comment
    above = [blanks + one if one else "" for one in line.pieces[0].above]
    return [*above, blanks + text + (f"  {comment}" if comment else "")]


def _gap(line: _Line, at: int) -> str:
    """Returns the blanks before a word; a sign that starts a line is no closer to it than `+`."""
    if at == 1 and line.pieces[0].text in _SIGNS:
        return " "
    return line.pieces[at].gap if at else ""
