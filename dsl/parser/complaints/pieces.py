"""The text of a test file's statement as words and signs, and as the clauses they make up.

Reads any text, right or wrong; what it says is of no concern here.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from dsl.parser.refusal import Refusal
from dsl.parser.testwords import ATTRIBUTES, EXPECTATIONS, EXPECTS, GIVEN
from dsl.spelling import closest

_PIECE: Final = re.compile(
    r'(?P<text>"""[\s\S]*?"""|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\')'
    r"|(?P<comment>#[^\n]*)"
    r"|(?P<arrow>->|=>)"
    r"|(?P<word>[^\s=,:;()\[\]{}\"'#<>!]+(?::[^\s=,:;()\[\]{}\"'#<>!]+)*)"
    r"|(?P<sign>[=!<>]=?=?|[,:;()\[\]{}\"'])"
)
#: Words that start what is given elsewhere.
GIVES: Final = frozenset({"when", "where", "let", "with", "setup", "arrange", "if", "suppose"})
_FILLERS: Final = frozenset({"a", "an", "the", "be", "not", "that", "to"})


class Piece(NamedTuple):
    """A word, a quoted text or a sign; `fresh` is the first one of a line."""

    kind: str
    text: str
    start: int
    end: int
    fresh: bool

    @property
    def plain(self) -> str:
        """Returns a quoted text without its quotes."""
        if self.kind != "text":
            return self.text
        mark = 3 if self.text.startswith('"""') else 1
        return self.text[mark:-mark]


class Beside(NamedTuple):
    """What is known of the rest of the file."""

    now: float | None = None
    metrics: frozenset[str] = frozenset()
    nodes: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()


class Clause(NamedTuple):
    """One line of a statement: `given ...`, `expect ...`, or what stands above them.

    Attributes:
        word: what it starts with as it should be: `given`, `expect`, or nothing for a head.
        wrong: the finding about that word, if it is written otherwise.
        pieces: what stands behind it; of a head, all of it.
        text: the whole statement.
    """

    word: str
    wrong: Refusal | None
    pieces: tuple[Piece, ...]
    text: str


def pieces_of(text: str) -> list[Piece]:
    """Returns the words and signs of a text, without comments."""
    found: list[Piece] = []
    last = 0
    for one in _PIECE.finditer(text):
        kind = str(one.lastgroup)
        if kind == "comment":
            continue
        fresh = not found or "\n" in text[last : one.start()]
        kind = "sign" if kind == "arrow" else kind
        found.append(Piece(kind, one.group(), one.start(), one.end(), fresh))
        last = one.end()
    return found


def clauses_of(text: str) -> list[Clause]:
    """Cuts a statement where `given` or `expect` stands, or what was written for them."""
    pieces = pieces_of(text)
    starts: list[tuple[int, int, str, Refusal | None]] = []
    depth = 0
    of_test = text.startswith(("test", "given", "expect"))
    for at, one in enumerate(pieces):
        if one.kind == "sign":
            depth += (one.text in "([{") - (one.text in ")]}")
        elif of_test and (depth <= 0 or (one.fresh and one.text in ("given", "expect"))):
            start = _start(pieces, at)
            if start is not None:
                starts.append((at, *start))
    ends = [at for at, *_ in starts[1:]] + [len(pieces)]
    first = starts[0][0] if starts else len(pieces)
    found = [Clause("", None, tuple(pieces[:first]), text)] if first else []
    for (at, skip, word, wrong), end in zip(starts, ends, strict=False):
        found.append(Clause(word, wrong, tuple(pieces[at + skip : end]), text))
    return found


def _start(pieces: Sequence[Piece], at: int) -> tuple[int, str, Refusal | None] | None:
    """Returns how many pieces a clause starts with, its word, and what is wrong with them."""
    one = pieces[at]
    behind = pieces[at + 1] if at + 1 < len(pieces) else None
    if one.text in ("given", "expect"):
        last = pieces[at - 1] if at else None
        value = (behind is not None and behind.text in ("=", "==")) or (
            last is not None and not one.fresh and last.text in ("=", "==", ",")
        )
        return None if value else (1, one.text, None)
    if not at or not one.fresh or behind is None or behind.fresh:
        return None
    return _foreign(one, behind, pieces[at + 2] if at + 2 < len(pieces) else None)


def _foreign(
    one: Piece, behind: Piece, third: Piece | None
) -> tuple[int, str, Refusal | None] | None:
    """What is meant by another first word of a line."""
    low = one.text.lower()
    if behind.text in ("given", "expect") and low not in ATTRIBUTES["pod"]:
        message = f"each line of a test starts with `given` or `expect`, without `{one.text}`"
        wrong = Refusal(
            "P001", message, one.start, one.end, helps=(f"leave `{one.text}` out",),
            fix="", fix_at=(one.start, behind.start),
        )  # fmt: skip
        return 2, behind.text, wrong
    near = closest(low, ("given", "expect")) if low not in ATTRIBUTES["pod"] else None
    gives = behind.text in GIVEN or (
        behind.text in _FILLERS and third is not None and third.text in GIVEN
    )
    expects = behind.text in (*EXPECTATIONS, *_FILLERS) or (
        third is not None and third.text in EXPECTATIONS
    )
    if low in ("and", "but", "also"):
        near = "expect" if expects and not gives else "given" if gives else None
    elif low in EXPECTS:
        near = "expect" if expects or near is not None else None
    elif low in GIVES and gives:
        near = "given"
    if near is not None:
        wrong = Refusal(
            "P001", f"`{one.text}` does not fit here", one.start, one.end,
            helps=(f"did you mean `{near}`?",), fix=near,
        )  # fmt: skip
        return 1, near, wrong
    return _without_word(one, behind)


def _without_word(one: Piece, behind: Piece) -> tuple[int, str, Refusal | None] | None:
    """`pod name p`, `feasible [a]`: the word in front is missing."""
    word = ""
    if one.text in GIVEN and one.text not in ATTRIBUTES["pod"] and behind.text != "=":
        word = "given"
    elif one.text in EXPECTATIONS and one.text not in ATTRIBUTES["pod"] and behind.text != "=":
        word = "expect"
    if not word:
        return None
    better = f"{word} {one.text}"
    message = f"what is {'given' if word == 'given' else 'expected'} starts with `{word}`"
    return (
        0,
        word,
        Refusal("P001", message, one.start, one.end, helps=(f"write  {better}",), fix=better),
    )


def shown(words: Sequence[str]) -> str:
    """Returns words and signs as a line has them."""
    text = ""
    for word in words:
        glued = word in (",", "]", ")", ":") or text.endswith(("[", "(")) or not text
        text += word if glued else f" {word}"
    return text


class Change(NamedTuple):
    """The smallest stretch in which what is written differs from what should be.

    Attributes:
        start: where it starts.
        end: where it ends.
        better: what should stand there; nothing where words are only left out.
        cut: what to replace then, with the blanks beside it.
        gap: what is left in its place.
    """

    start: int
    end: int
    better: str
    cut: tuple[int, int] = (0, 0)
    gap: str = ""

    def refusal(self, code: str, message: str, text: str, *helps: str) -> Refusal:
        """Returns the finding that says so."""
        said = text[self.start : self.end]
        if not self.better:
            helps = (f"leave the `{said}` out" if said in _SIGNS else f"leave `{said}` out", *helps)
            return Refusal(
                code, message, self.start, self.end, helps=helps, fix=self.gap, fix_at=self.cut
            )
        near = re.fullmatch(r"[\w-]+", self.better + said) and closest(said, (self.better,))
        help_ = f"did you mean `{self.better}`?" if near else f"write  {self.better}"
        return Refusal(code, message, self.start, self.end, helps=(help_, *helps), fix=self.better)


_SIGNS: Final = frozenset({"=", "==", ":", ",", ";", "!", "<", ">", "(", ")", "[", "]"})
_LEFT: Final = (",", "]", ")", ":")


def better_text(pieces: Sequence[Piece], wanted: Sequence[str]) -> Change | None:
    """Returns where what is written differs from what should be, None where it does not."""
    written = [one.text for one in pieces]
    if written == list(wanted) or not pieces:
        return None
    shorter = min(len(written), len(wanted))
    head = 0
    while head < shorter and written[head] == wanted[head]:
        head += 1
    tail = 0
    while tail < shorter - head and written[-1 - tail] == wanted[-1 - tail]:
        tail += 1
    if head + tail == len(wanted):
        return _left_out(pieces, head, len(written) - tail)
    added = wanted[head : len(wanted) - tail]
    head, tail = _wider(pieces, head, tail, added)
    ends = len(written) - tail
    better = shown(wanted[head : len(wanted) - tail])
    return Change(pieces[head].start, pieces[ends - 1].end, better)


def _wider(pieces: Sequence[Piece], head: int, tail: int, added: Sequence[str]) -> tuple[int, int]:
    """Takes in what stands beside, where a stretch alone could not be replaced or read."""
    inserted = head + tail == len(pieces)
    before = pieces[head - 1] if head else None
    glued = before is not None and head < len(pieces) and before.end == pieces[head].start
    if added == ["="]:
        return max(head - 1, 0), max(tail - 1, 0)
    if before is not None and added[0] in _LEFT:
        return head - 1, tail
    if inserted:
        return (head, tail - 1) if tail else (head - 1, tail)
    bracket = added[0] in ("[", "(") and head < len(pieces) and pieces[head].text in ("[", "(")
    opened = before is not None and before.text in ("[", "(")
    return (head - 1, tail) if glued and not opened and not bracket else (head, tail)


def _left_out(pieces: Sequence[Piece], first: int, last: int) -> Change:
    """What to leave out, with the blanks behind it, or before it at the end."""
    start, end = pieces[first].start, pieces[last - 1].end
    if last < len(pieces) and not pieces[last].fresh:
        behind = pieces[last].start
        glued = behind == end and (first == 0 or pieces[first - 1].end == start)
        # What stands before the first piece is not known; a sign is mostly glued to it.
        sign = pieces[first].kind == "sign" if first == 0 else pieces[first - 1].end == start
        blank = sign and behind > end
        cut = (start, end) if blank else (start, behind)
        return Change(start, end, "", cut, " " if glued and first else "")
    before = pieces[first - 1].end if first else start
    return Change(start, end, "", (before, end))
