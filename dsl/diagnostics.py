"""A finding about a policy as a value, and the one place that turns it into words.

Stages make `Diagnostic` values; nothing else formats them.
"""

from collections.abc import Iterable
from enum import StrEnum
from functools import partial
from typing import Final

from msgspec import Struct

from dsl.source import SourceFile, Span

#: Longer lines are shown in part.
_MAX_LINE: Final = 200
_RESET: Final = "\x1b[0m"
_BOLD: Final = "\x1b[1m"
_RED: Final = "\x1b[1;31m"
_YELLOW: Final = "\x1b[1;33m"
_BLUE: Final = "\x1b[1;34m"
_CYAN: Final = "\x1b[1;36m"


class Severity(StrEnum):
    """How bad a finding is; only errors keep a policy out."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Label(Struct, frozen=True):
    """A further place of the same finding, underlined with dashes."""

    span: Span
    text: str


class Fix(Struct, frozen=True):
    """A replacement of text that cures the finding."""

    span: Span
    text: str


class Diagnostic(Struct, frozen=True):
    """One finding: what was seen, where, and what fits there."""

    code: str
    message: str
    source: SourceFile
    span: Span
    severity: Severity = Severity.ERROR
    label: str = ""
    labels: tuple[Label, ...] = ()
    helps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    fix: Fix | None = None

    @property
    def is_error(self) -> bool:
        """Whether the policy is refused because of it."""
        return self.severity is Severity.ERROR


def sort_key(diagnostic: Diagnostic) -> tuple[str, int, int, str]:
    """Orders findings as a reader meets them: by file, then place."""
    span = diagnostic.span
    return (diagnostic.source.name, span.start, span.end, diagnostic.code)


def to_json(diagnostics: Iterable[Diagnostic]) -> str:
    """Returns the machine form; columns are 1-based code points, the end is exclusive."""
    import json  # noqa: PLC0415 - a twentieth of importing the language, for one format

    return json.dumps({"diagnostics": [as_object(one) for one in diagnostics]}, ensure_ascii=False)


def as_object(diagnostic: Diagnostic) -> dict[str, object]:
    """Returns one finding as plain values."""
    source = diagnostic.source
    fix = diagnostic.fix
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity.value,
        "file": source.name,
        **_ends(source, diagnostic.span),
        "message": diagnostic.message,
        "help": "\n".join(diagnostic.helps) or None,
        "fix": None if fix is None else {**_ends(source, fix.span), "text": fix.text},
    }


def render(diagnostics: Iterable[Diagnostic], *, color: bool = False) -> str:
    """Returns the findings as text for people, a blank line between two."""
    return "\n".join(_render(one, color=color) for one in diagnostics)


def _ends(source: SourceFile, span: Span) -> dict[str, int]:
    line, column = source.position(span.start)
    end_line, end_column = source.position(span.end)
    return {"line": line, "column": column, "end_line": end_line, "end_column": end_column}


def _paint(text: str, style: str, *, color: bool) -> str:
    return f"{style}{text}{_RESET}" if color else text


def _render(diagnostic: Diagnostic, *, color: bool) -> str:
    source, paint = diagnostic.source, partial(_paint, color=color)
    style = _RED if diagnostic.is_error else _YELLOW
    primary = Label(diagnostic.span, diagnostic.label)
    marks = sorted(
        (primary, *diagnostic.labels), key=lambda one: (one.span.start, one is not primary)
    )
    numbers = [source.position(mark.span.start)[0] for mark in marks]
    width = len(str(max(numbers)))
    line, column = source.position(diagnostic.span.start)
    head = paint(f"{diagnostic.severity.value}[{diagnostic.code}]", style)
    message = paint(f": {_printable(diagnostic.message)}", _BOLD)
    arrow = paint(" " * width + "-->", _BLUE)
    bar = paint(" " * (width + 1) + "|", _BLUE)
    out = [f"{head}{message}", f"{arrow} {source.name}:{line}:{column}", bar]
    shown = begin = 0
    for number, mark in zip(numbers, marks, strict=True):
        text = source.line(number)
        if number != shown:
            gutter = paint(f"{number:>{width}} |", _BLUE)
            shown = number
            begin = max(0, source.position(diagnostic.span.start)[1] - _MAX_LINE // 2)
            begin = begin if len(text) > _MAX_LINE else 0
            out.append(f"{gutter} {_printable(text[begin : begin + _MAX_LINE])}".rstrip())
        start = max(0, mark.span.start - source.line_starts[number - 1] - begin)
        room = min(len(text) - begin, _MAX_LINE) - start
        length = max(1, min(mark.span.end - mark.span.start, room))
        char, own = ("^", style) if mark is primary else ("-", _CYAN)
        under = paint(f"{char * length} {_printable(mark.text)}".rstrip(), own)
        out.append(f"{bar} {' ' * start}{under}")
    sign = paint(" " * (width + 1) + "=", _BLUE)
    for word, lines in (("note", diagnostic.notes), ("help", diagnostic.helps)):
        out += [f"{sign} {paint(word, _BOLD)}: {_printable(one)}" for one in lines]
    return "\n".join(out) + "\n"


def _printable(text: str) -> str:
    """Replaces what would move the caret or the terminal; one character stays one."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else " " if char == "\t" else "\ufffd" for char in text
    )
