"""Where reading stopped: what stands there, and what could; told where nothing better is known.

Works on text and on what the grammar would have taken. Quotes and brackets without
their partner are told of here too: what they hide makes all else unsure.
"""

import re
from typing import Final

from msgspec import Struct

from dsl.diagnostics import Diagnostic, Fix
from dsl.parser.automaton import END, Automaton, Stop
from dsl.parser.layout import deepest
from dsl.parser.statements import DECLARATIONS, HEADS, SHAPES, is_statement
from dsl.source import QUOTED_OR_COMMENT, SourceFile, Span, blanked

_CLASSES: Final = {
    "_ARROW": "`->`", "RELOP": "a comparison", "STRING": "a quoted text", "WORD": "a word",
    "NAME": "a name", "GLOB": "a pattern", "QUANT": "a number", "PERCENT": "a percentage",
    "PARAM": "a parameter", "UNIT": "a unit",
}  # fmt: skip
#: Kinds of words that are one of a few, and of those that are not.
_CLOSED: Final = frozenset({"MODE", "TYPE", "NORM", "STATUS_CODE"})
_OPEN: Final = frozenset({"WORD", "NAME", "QUANT"})
_OPERATORS: Final = frozenset({"PLUS", "MINUS", "STAR", "SLASH"})
_MAX_SHOWN: Final = 6
_LAST_WORD: Final = re.compile(r"(->|[<>=!]=|[A-Za-z_$][\w./-]*|\d[\w.%]*|\S)\Z")
#: Characters in front of the end, of which the last word is shown.
_LOOKED_AT: Final = 256
_WORD: Final = re.compile(r"[A-Za-z_$][\w.]*|\d[\w.%]*|[&|=<>!~?*^+%-]+")


class Refusal(Struct, frozen=True):
    """A finding whose places count from the start of the statement's text.

    Attributes:
        fix: where to write what instead, if that is known.
        continues: the word of the statement that an indented line continues.
    """

    code: str
    message: str
    start: int
    end: int
    label: str = ""
    helps: tuple[str, ...] = ()
    fix: tuple[int, int, str] | None = None
    continues: str = ""

    def diagnostic(self, source: SourceFile, base: int) -> Diagnostic:
        """Returns the finding with its place in the file."""
        message, size = self.message, len(source.text)
        if self.continues:
            line = source.position(base)[0]
            message += f" `{self.continues}` of line {line}"
        span = Span(min(base + self.start, size), min(base + self.end, size))
        fix = None
        if self.fix is not None:
            start, end, text = self.fix
            fix = Fix(Span(min(base + start, size), min(base + end, size)), text)
        return Diagnostic(
            self.code, message, source, span, label=self.label, helps=self.helps, fix=fix
        )


def stopped(stop: Stop, text: str) -> tuple[int, int, bool]:
    """Returns where what was met starts and ends, and whether it is the end of the text."""
    if stop.kind == END:
        return len(text), len(text), True
    if stop.kind == "_NL":
        end = len(text[: stop.start].rstrip(" \t"))
        return end, end, True
    return stop.start, stop.end, False


class Place:
    """Where reading stopped, and what stands there.

    Attributes:
        text: the statement, or an expression alone.
        bare: the same, comments and the insides of texts blanked out.
        start: where reading stopped, at the start of a word.
        end: where what was met there ends.
        met: a word, a sign, or nothing at the end.
        at_end: whether the text ends there.
        accepts: what the grammar would have taken.
        spelt: the words and signs that the grammar's names stand for.
        alone: whether the text is an expression, not a statement.
        of_test: whether it is a statement of a test file.
    """

    def __init__(self, automaton: Automaton, text: str, symbol: str, stop: Stop) -> None:
        self.text, self.bare, self.met = text, blanked(text), ""
        self.start, self.end, self.at_end = stopped(stop, text)
        self.accepts, self.spelt = stop.accepts(), automaton.spelt
        self.alone, self.of_test = symbol == "expr", symbol == "testfile"
        self._automaton, self._symbol = automaton, symbol
        bare = self.bare
        if self.at_end:
            self.start = self.end = len(bare[: self.start].rstrip())
            return
        # Where a keyword is the beginning of a word, the grammar stops within: `desc|ending`.
        while self.start > 0 and re.match(r"\w\w", bare[self.start - 1 : self.start + 1]):
            self.start -= 1
        found = _WORD.match(text, self.start)
        whole = text[self.start : max(self.end, self.start + 1)]
        self.met = whole if found is None else found.group().rstrip(".")
        self.end = max(self.start + len(self.met), self.start + 1)

    def read(self, text: str) -> int:
        """Returns how far a text in the place of this one can be read, beyond its end if all."""
        if deepest(text) is not None:
            return 0
        _, stop = self._automaton.read(text, self._symbol)
        return len(text) + 1 if stop is None else stopped(stop, text)[0]

    def fits(self, at: int) -> frozenset[str]:
        """Returns what the grammar would have taken at an earlier place."""
        _, stop = self._automaton.read(self.text[:at], self._symbol)
        return stop.accepts() if stop is not None and stop.kind == END else frozenset()

    @property
    def before(self) -> str:
        """What stands before, blanked out."""
        return self.bare[: self.start].rstrip()

    @property
    def keyword(self) -> str:
        """The word the statement starts with."""
        found = None if self.alone else re.match(r"[A-Za-z]+", self.text)
        return found.group() if found is not None else ""

    @property
    def where(self) -> frozenset[str]:
        """What rows of the table may name: the statement's word, and the kind of the file."""
        return frozenset((self.keyword, "any", *(("test",) if self.of_test else ())))

    @property
    def keywords(self) -> frozenset[str]:
        """All words that mean something to the grammar."""
        return frozenset(one for words in self.spelt.values() for one in words)

    def fitting(self) -> list[str]:
        """Returns the words that could stand here."""
        return self.named(self.accepts)

    def named(self, accepts: frozenset[str]) -> list[str]:
        """Returns the words among what the grammar would take."""
        words = (one for name in sorted(accepts) for one in self.spelt.get(name, ()))
        return [one for one in words if one[:1].isalpha()]


# ---- quotes and brackets


def closed(place: Place) -> Refusal | None:
    """A quote or a bracket without its partner, in front of where reading stopped."""
    if place.start == 0 and not place.alone:
        return None
    return _open_text(place) or _open_bracket(place)


def _open_text(place: Place) -> Refusal | None:
    plain = QUOTED_OR_COMMENT.sub(lambda found: " " * len(found.group()), place.text)
    found = re.search(r'"""|"|\'', plain)
    raw = place.text.find('"""') if place.text.count('"""') % 2 else -1
    if 0 <= raw <= place.start:
        return Refusal(
            "P002", "this text is never closed", raw, raw + 3, helps=('end it with  """',)
        )
    if found is None or found.start() > place.start:
        return None
    at, sign = found.start(), found.group()
    help_ = f"end it with  {sign}"
    return Refusal("P002", "this text is never closed", at, at + len(sign), helps=(help_,))


def _open_bracket(place: Place) -> Refusal | None:
    opened: list[int] = []
    for at, sign in enumerate(place.bare[: place.start]):
        if sign in "([":
            opened.append(at)
        elif sign in ")]" and opened:
            opened.pop()
    if not opened:
        return None
    if not place.at_end and place.met != "->":
        return None
    sign = place.bare[opened[-1]]
    close, at = (")" if sign == "(" else "]"), len(place.before)
    wanted = "RPAR" if sign == "(" else "RSQB"
    return Refusal(
        "P002", f"this `{sign}` is never closed", opened[-1], opened[-1] + 1,
        helps=(f"close it with `{close}`",),
        fix=(at, at, close) if wanted in place.accepts else None,
    )  # fmt: skip


# ---- what stands here, and what could


def told(place: Place) -> Refusal:
    """Says what does not fit, or that something is missing."""
    head = _head(place)
    if head is not None:
        return head
    wants, shape = _wants(place), SHAPES.get(place.keyword)
    verb = "is needed" if place.at_end else "fits here"
    helps: tuple[str, ...] = (f"{wants} {verb}",) if wants else ()
    if shape and not wants:
        helps = (f"write for example  {shape}",)
    if place.at_end:
        last = _LAST_WORD.search(place.before[-_LOOKED_AT:])
        word = last.group() if last else ""
        message = f"nothing follows `{word}`" if word else "the statement ends too early"
        start = place.start - len(word)
        return Refusal("P009", message, start, max(place.start, start + 1), helps=helps)
    met = f"`{place.met}`" if place.met.isprintable() and "`" not in place.met else "this"
    code = "P022" if place.accepts & _CLOSED and not place.accepts & _OPEN else "P001"
    return Refusal(code, f"{met} does not fit here", place.start, place.end, helps=helps)


def _head(place: Place) -> Refusal | None:
    """Tells of the word that a statement starts with, where that is what does not fit."""
    head = re.match(r"[A-Za-z_][\w-]*", place.text)
    if place.alone or place.start > (head.end() + 1 if head is not None else 0):
        return None
    word, end = (head.group(), head.end()) if head is not None else (place.met, place.end)
    if place.of_test:
        message, help_ = f"a test file has no line `{word}`", f"it has {', '.join(HEADS)}"
        return None if word in HEADS else Refusal("P004", message, 0, end, helps=(help_,))
    if not is_statement(word):
        help_ = "a statement starts with its word in column 1:  filter: CONDITION"
        return Refusal("P004", f"there is no statement `{word}`", 0, end, helps=(help_,))
    if word in DECLARATIONS or re.match(r"[ \t]*:", place.text[end:]):
        return None
    return Refusal("P005", f"`{word}` needs a colon", 0, end, helps=(f"write  {word}: ...",))


def _wants(place: Place) -> str:
    """Names what the grammar would have taken, shortly."""
    accepts = place.accepts
    if {"QUANT", "DOTTED"} <= accepts:
        return "an expression"
    if {"WORD", "STRING"} <= accepts:
        return "a word or a quoted text"
    names = [_CLASSES[one] for one in sorted(accepts) if one in _CLASSES]
    known = (one for one in sorted(accepts) if one not in _CLASSES and one not in _OPERATORS)
    names += [f"`{word}`" for one in known for word in place.spelt.get(one, ()) if word != "??"]
    if accepts & _OPERATORS:
        names.append("an operator")
    if not names or len(names) > _MAX_SHOWN:
        return ""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
