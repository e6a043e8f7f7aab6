"""Words of a file and its comments become its text in the one style.

Knows no parser: the caller hands in a reader, and what was written is read again and compared, so
a text that would mean something else is never returned. Never raises on any text.
"""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from dsl.diagnostics import Diagnostic
from dsl.files import read_source
from dsl.formatter.lines import statement_lines
from dsl.formatter.pieces import canonical_texts, make_pieces, remarks
from dsl.source import SourceFile
from dsl.syntax import Lexeme

__all__ = ["WIDTH", "Formatted", "Reader", "format_source"]

Statements = Sequence[Sequence[Lexeme]]
#: Returns the words of each statement; or what is wrong with the file, and no words.
Reader = Callable[[SourceFile], tuple[Statements, Sequence[Diagnostic]]]

WIDTH: Final = 100

_HEADER: Final = frozenset(
    {"policy", "description", "version", "language", "mode", "applies_to", "order", "policy_weight"}
)


class Formatted(Struct, frozen=True):
    """What formatting gives.

    Attributes:
        text: the text in the one style; None if the file is to be left as it is.
        diagnostics: why it is left as it is.
    """

    text: str | None
    diagnostics: tuple[Diagnostic, ...] = ()


def format_source(source: SourceFile, read: Reader, width: int = WIDTH) -> Formatted:
    """Formats a file; with errors, or where the meaning would not survive, there is no text."""
    if "\r\n" in source.text or source.text.lstrip().startswith("\ufeff"):
        # What is written would be read as another text.
        return Formatted(None)
    statements, found = read(source)
    if found:
        return Formatted(None, tuple(found))
    text = _text(source.text, statements, width)
    if text == source.text:
        return Formatted(text)
    written, problems = read_source(source.name, text)
    again, found = read(written)
    if problems or found or _meaning(source.text, statements) != _meaning(text, again):
        return Formatted(None)
    return Formatted(text)


def _text(text: str, statements: Statements, width: int) -> str:
    lines: list[str] = []
    end, header = 0, False
    for words in statements:
        is_header = not _HEADER.isdisjoint(words[0].opens[:1])
        _between(lines, text[end : words[0].span.start], together=header and is_header)
        lines.extend(statement_lines(make_pieces(text, words), width))
        end, header = words[-1].span.end, is_header
    # The end of the file stands for a further line, so that its last comment is a whole one.
    _between(lines, text[end:] + "\n", together=False)
    while lines and not lines[-1]:
        lines.pop()
    return "\n".join(lines) + "\n" if lines else ""


def _between(lines: list[str], gap: str, *, together: bool) -> None:
    """Adds what stands between two statements: comments, and at most one blank line at a time."""
    trailing, between = remarks(gap, first=not lines)
    if trailing:
        lines[-1] += f"  {trailing}"
    # A comment that is indented right below a statement belongs to it.
    attached = bool(lines)
    together = together and not any(remark for remark, _ in between)
    for remark, indented in between:
        attached = attached and indented and bool(remark)
        if remark:
            lines.append(("  " if attached else "") + remark)
        elif lines and lines[-1] and not together:
            lines.append("")


def _meaning(text: str, statements: Statements) -> list[object]:
    """Returns the tree and the comments, without their places."""
    found: list[object] = []
    end = 0
    for words in statements:
        for word, shown in zip(words, canonical_texts(words), strict=True):
            found.append((shown, word.owner, word.opens, word.depth))
            found.extend(_comments(text[end : word.span.start]))
            end = word.span.end
    return [*found, *_comments(text[end:])]


def _comments(gap: str) -> list[str]:
    return [line.strip() for line in gap.split("\n") if line.strip()]
