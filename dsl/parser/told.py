"""What is said where reading stopped and no better text is known: what is there, and what could be.

Works on text and on what the grammar would have taken. Quotes and brackets without
their partner are told of here too: what they hide makes all else unsure.
"""

import re
from typing import Final

from msgspec import Struct

from dsl.diagnostics import Diagnostic, Fix
from dsl.parser.automaton import Place
from dsl.parser.statements import DECLARATIONS, is_statement
from dsl.source import QUOTED_OR_COMMENT, SourceFile, Span
from dsl.syntax import HEADS, SHORT_POINTS

_CLASSES: Final = {
    "_ARROW": "`->`", "RELOP": "a comparison", "STRING": "a quoted text", "WORD": "a word",
    "NAME": "a name", "GLOB": "a pattern", "QUANT": "a number", "PERCENT": "a percentage",
    "PARAM": "a parameter", "UNIT": "a unit",
}  # fmt: skip
#: Kinds of words that are one of a few, and of those that are not.
_CLOSED: Final = frozenset({"MODE", "TYPE", "NORM", "STATUS_CODE"})
_OPEN: Final = frozenset({"WORD", "NAME", "QUANT"})
_OPERATORS: Final = frozenset({"PLUS", "MINUS", "STAR", "SLASH"})
_MAX_SHOWN: Final = 8
_LAST_WORD: Final = re.compile(r"(->|[<>=!]=|[A-Za-z_$][\w./-]*|\d[\w.%]*|\S)\Z")
BINDS: Final = re.compile(r"\b(?:and|or|not|if)\b|->|\?\?|[*/]|(?<=[ \t])[+-](?=[ \t])")
#: Characters in front of the end, of which the last word is shown.
_LOOKED_AT: Final = 256


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


# ---- quotes and brackets


def closed(place: Place) -> Refusal | None:
    """A quote or a bracket without its partner, in front of where reading stopped."""
    if place.start == 0 and not place.alone:
        return None
    return _open_text(place) or _open_bracket(place)


def _open_text(place: Place) -> Refusal | None:
    plain = QUOTED_OR_COMMENT.sub(lambda found: " " * len(found.group()), place.text)
    odd = place.text.count('"""') % 2
    found = re.search('"""', place.text) if odd else re.search("[\"']", plain)
    if found is None or found.start() > place.start:
        return None
    help_ = f"end it with  {found.group()}"
    return Refusal("P002", "this text is never closed", *found.span(), helps=(help_,))


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
    unsure = BINDS.search(place.bare, opened[-1], place.start)
    return Refusal(
        "P002", f"this `{sign}` is never closed", opened[-1], opened[-1] + 1,
        helps=(f"close it with `{close}`",),
        fix=(at, at, close) if wanted in place.accepts and not unsure else None,
    )  # fmt: skip


# ---- what stands here, and what could


def told(place: Place) -> Refusal:
    """Says what does not fit, or that something is missing."""
    head = _head(place)
    if head is not None:
        return head
    wants = _wants(place)
    verb = "is needed" if place.at_end else "fits here"
    helps: tuple[str, ...] = (f"{wants} {verb}",) if wants else ()
    if place.keyword and not (wants or place.of_test):
        word = SHORT_POINTS.get(place.keyword, place.keyword)
        helps = (f"`berth explain {word}` shows how it is written",)
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
