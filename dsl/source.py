"""The text of one file, and places in it as code points."""

import re
from bisect import bisect_right
from typing import Final

from msgspec import Struct

MAX_BYTES: Final = 128 * 1024
MAX_TOKENS: Final = 20_000
MAX_TOKENS_OF_STATEMENT: Final = 2_000
MAX_STATEMENTS: Final = 1_000
MAX_DEPTH: Final = 64
MAX_ITEMS: Final = 256

_BOM: Final = "\ufeff"
QUOTED: Final = r'"""[\s\S]*?"""|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\''
# Texts and comments are skipped whole; what is left over is looked at character by character.
QUOTED_OR_COMMENT: Final = re.compile(
    r'"""[\s\S]*?(?:"""|\Z)|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*'
)


class Span(Struct, frozen=True, gc=False):
    """A stretch of one file, in code points; the end is exclusive."""

    start: int
    end: int

    @property
    def nobody(self) -> "Span":
        """The place in front, of what nobody wrote: no text stands for it where values are told."""
        return Span(self.start, self.start)


def blanked(text: str) -> str:
    """Returns a text of equal length without comments, each quoted text as a word in quotes."""
    return QUOTED_OR_COMMENT.sub(_blank, text)


def _blank(found: re.Match[str]) -> str:
    text = found.group()
    return " " * len(text) if text.startswith("#") else f'"{"_" * (len(text) - 2)}"'


class SourceFile(Struct, frozen=True, eq=False):
    """The text of one file, with LF line ends and without a byte-order mark."""

    name: str
    text: str
    line_starts: tuple[int, ...] = ()

    def position(self, offset: int) -> tuple[int, int]:
        """Returns the 1-based line and column of an offset."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """Returns the text of a 1-based line without its line end."""
        start = self.line_starts[number - 1]
        end = self.text.find("\n", start)
        return self.text[start:] if end < 0 else self.text[start:end]

    def slice(self, span: Span) -> str:
        """Returns the text under a span."""
        return self.text[span.start : span.end]

    def words(self, span: Span) -> str:
        """Returns the same on one line."""
        return " ".join(self.slice(span).split())


def make_source(name: str, text: str) -> SourceFile:
    """Makes a file from text: drops the byte-order mark, turns CRLF into LF."""
    text = text.removeprefix(_BOM).replace("\r\n", "\n")
    starts = [0, *(found.end() for found in re.finditer("\n", text))]
    return SourceFile(name, text, tuple(starts))
