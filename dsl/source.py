"""Bytes or text of one file become a `SourceFile`; positions are code points.

Knows nothing of the language beyond which characters may not stand outside texts and comments.
"""

import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from typing import Final

from msgspec import Struct

MAX_BYTES: Final = 128 * 1024
MAX_TOKENS: Final = 20_000
MAX_TOKENS_OF_STATEMENT: Final = 2_000
MAX_STATEMENTS: Final = 1_000
MAX_DEPTH: Final = 64
MAX_ITEMS: Final = 256

_BOM: Final = "\ufeff"
# Texts and comments are skipped whole; what is left over is looked at character by character.
QUOTED_OR_COMMENT: Final = re.compile(
    r'"""[\s\S]*?(?:"""|\Z)|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*'
)
#: What is written for signs that programs put in the place of others.
_SIGNS: Final = {
    " ": "\u00a0\u2007\u202f\u3000", "": "\u200b", '"': "\u201c\u201d\u201e\u00ab\u00bb",
    "'": "\u2018\u2019\u00b4", "->": "\u2192\u21d2", "-": "\u2212\u2013\u2014", "<=": "\u2264",
    ">=": "\u2265", "!=": "\u2260", "*": "\u00d7", "/": "\u00f7", "..": "\u2026", ":": "\uff1a",
    "and": "\u2227", "or": "\u2228", "not": "\u00ac", "in": "\u2208",
}  # fmt: skip
_LIKE: Final = (
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0455\u0458\u0501\u04bb\u051b\u051d"
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0406\u0405\u0408"
    "\u03bf\u03bd\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4"
    "\u03a5\u03a7\u0131\u017f"
)
#: What is written instead, of those signs and of letters that look like those of ASCII.
_BETTER: Final = {sign: better for better, signs in _SIGNS.items() for sign in signs} | dict(
    zip(_LIKE, "aeopcyxisjdhqwABEKMHOPCTXISJovABEZHIKMNOPTYXis", strict=True)
)
#: Findings of one kind in a file: who pasted a book needs no more.
_MAX_OF_A_KIND: Final = 20
#: What nobody sees, but for line feeds and tabs.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_UTF_16_SHARE: Final = 3


class Span(Struct, frozen=True, gc=False):
    """A stretch of one file, in code points; the end is exclusive."""

    start: int
    end: int


class TextProblem(Struct, frozen=True):
    """Something wrong with the text before the grammar looks at it."""

    code: str
    message: str
    span: Span
    help: str | None = None
    fix: str | None = None


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

    def beside(self, span: Span) -> tuple[str, str]:
        """Returns the signs before and behind a stretch that are no blanks, "" at an end."""
        first, last = span.start - 1, span.end
        while first >= 0 and self.text[first].isspace():
            first -= 1
        while last < len(self.text) and self.text[last].isspace():
            last += 1
        return self.text[first : first + 1], self.text[last : last + 1]

    def line(self, number: int) -> str:
        """Returns the text of a 1-based line without its line end."""
        start = self.line_starts[number - 1]
        end = self.text.find("\n", start)
        return self.text[start:] if end < 0 else self.text[start:end]

    def slice(self, span: Span) -> str:
        """Returns the text under a span."""
        return self.text[span.start : span.end]


def make_source(name: str, text: str) -> SourceFile:
    """Makes a file from text: drops the byte-order mark, turns CRLF into LF."""
    text = text.removeprefix(_BOM).replace("\r\n", "\n")
    starts = [0, *(found.end() for found in re.finditer("\n", text))]
    return SourceFile(name, text, tuple(starts))


def read_source(name: str, data: str | bytes) -> tuple[SourceFile, tuple[TextProblem, ...]]:
    """Reads a file and reports what no grammar can: size, encoding, look-alike characters.

    Never raises. With a problem of size or encoding the returned file is empty.
    """
    if len(data) > MAX_BYTES or (isinstance(data, str) and _encoded_size(data) > MAX_BYTES):
        message = f"the file is larger than {MAX_BYTES // 1024} KiB"
        problem = TextProblem(
            "P006", message, Span(0, 0), "split it: every file is a policy of its own"
        )
        return make_source(name, ""), (problem,)
    if isinstance(data, bytes):
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            looks = _encoding_guess(data)
            message = f"the file is not UTF-8 (byte {error.start + 1} is 0x{data[error.start]:02x})"
            hint = f"it looks like {looks}: save it as UTF-8"
            return make_source(name, ""), (TextProblem("P003", message, Span(0, 0), hint),)
    else:
        text = data
    if text.count("\0") * _UTF_16_SHARE >= len(text) > 0:
        # ASCII as UTF-16 without a mark is valid UTF-8 with zeros between.
        message = "every other byte of the file is zero"
        hint = "it looks like UTF-16: save it as UTF-8"
        return make_source(name, ""), (TextProblem("P003", message, Span(0, 0), hint),)
    source = make_source(name, text)
    return source, (*_controls(source.text), *_lookalikes(source.text))


def _encoded_size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _encoding_guess(data: bytes) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in data:
        return "UTF-16"
    return "Latin-1 or Windows-1252"


def _controls(text: str) -> list[TextProblem]:
    """Finds characters that nobody sees; of each kind the first, for there may be thousands."""
    if not _CONTROL.search(text):
        return []
    # A carriage return in a comment may hide the lines after it; in a quoted text it is a text.
    bare = QUOTED_OR_COMMENT.sub(_without_text, text)
    first: dict[str, TextProblem] = {}
    for found in _CONTROL.finditer(bare):
        char, span = found.group(), Span(*found.span())
        if char == "\r":
            problem = TextProblem(
                "P003", "this is a carriage return without a line feed", span,
                "end lines with a line feed: save the file with Unix line ends", "\n",
            )  # fmt: skip
        else:
            what = "a NUL character" if char == "\0" else f"a control character (0x{ord(char):02x})"
            problem = TextProblem("P003", f"this is {what}", span, "remove it", "")
        first.setdefault(char, problem)
    return list(first.values())


def _without_text(found: re.Match[str]) -> str:
    text = found.group()
    kept = "\0\r" if text.startswith("#") else "\0"
    return "".join(char if char in kept else " " for char in text)


def _lookalikes(text: str) -> list[TextProblem]:
    """Finds characters beyond ASCII outside of texts and comments, of each kind the first ones."""
    if text.isascii():
        return []
    bare = QUOTED_OR_COMMENT.sub(lambda found: " " * len(found.group()), text)
    problems = []
    kinds: Counter[str] = Counter()
    for found in _BEYOND_ASCII.finditer(bare):
        word = found.group()
        if any(char not in _BETTER and char >= "\x80" for char in word):
            # One of its letters is of no other spelling, so the word is of another language.
            line = f"line {text.count(chr(10), 0, found.start())}"
            kinds[line] += 1
            kinds["word"] += kinds[line] == 1
            if kinds[line] == 1 and kinds["word"] <= _MAX_OF_A_KIND:
                message = f"`{word}` may only stand in quoted texts and comments"
                span = Span(*found.span())
                problems.append(TextProblem("P003", message, span, "put the text in quotes"))
            continue
        for at, char in enumerate(word, found.start()):
            kinds[char] += char in _BETTER
            if char in _BETTER and kinds[char] <= _MAX_OF_A_KIND:
                problems.append(_lookalike(text, Span(at, at + 1), _BETTER[char]))
    return problems


#: A word with such a letter, or a sign.
_BEYOND_ASCII: Final = re.compile(r"(?<!\w)[A-Za-z0-9_]*[^\W\x00-\x7f]\w*|[^\x00-\x7f]")


def _lookalike(text: str, span: Span, better: str) -> TextProblem:
    shown = {" ": "a space", "": "nothing"}.get(better, f"`{better}`")
    name = unicodedata.name(text[span.start], "sign").lower()
    fix = better
    if fix.isalpha() and len(fix) > 1:
        # A word for a sign stands alone.
        left = "" if text[span.start - 1 : span.start] in " (\n" else " "
        right = "" if text[span.end : span.end + 1].isspace() else " "
        fix = f"{left}{better}{right}"
    return TextProblem("P003", f"this is Unicode's {name}", span, f"write {shown} instead", fix)
