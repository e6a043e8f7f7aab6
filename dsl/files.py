"""Bytes or text of one file become a `SourceFile`, or findings about the bare text.

Knows nothing of the language beyond which characters may not stand outside texts and comments.
"""

import re
import unicodedata
from collections import Counter
from typing import Final

from dsl.diagnostics import Diagnostic, Fix
from dsl.source import MAX_BYTES, QUOTED_OR_COMMENT, SourceFile, Span, make_source

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


#: A word with such a letter, or a sign.
_BEYOND_ASCII: Final = re.compile(r"(?<!\w)[A-Za-z0-9_]*[^\W\x00-\x7f]\w*|[^\x00-\x7f]")


def read_source(name: str, data: str | bytes) -> tuple[SourceFile, tuple[Diagnostic, ...]]:
    """Reads a file and reports what no grammar can: size, encoding, look-alike characters.

    Never raises. With a problem of size or encoding the returned file is empty.
    """
    code, message, help_ = "P003", "", ""
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"the file is not UTF-8 (byte {error.start + 1} is 0x{raw[error.start]:02x})"
        marked = raw.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in raw
        looks = "UTF-16" if marked else "Latin-1 or Windows-1252"
        text, help_ = "", f"it looks like {looks}: save it as UTF-8"
    if len(raw) > MAX_BYTES:
        code, message = "P006", f"the file is larger than {MAX_BYTES // 1024} KiB"
        text, help_ = "", "split it: every file is a policy of its own"
    elif text.count("\0") * _UTF_16_SHARE >= len(text) > 0:
        # ASCII as UTF-16 without a mark is valid UTF-8 with zeros between.
        message = "every other byte of the file is zero"
        text, help_ = "", "it looks like UTF-16: save it as UTF-8"
    source = make_source(name, text)
    if message:
        return source, (Diagnostic(code, message, source, Span(0, 0), helps=(help_,)),)
    return source, (*_controls(source), *_lookalikes(source))


def _wrong(source: SourceFile, message: str, span: Span, help_: str, fix: str) -> Diagnostic:
    return Diagnostic("P003", message, source, span, helps=(help_,), fix=Fix(span, fix))


def _controls(source: SourceFile) -> list[Diagnostic]:
    """Finds characters that nobody sees; of each kind the first, for there may be thousands."""
    if not _CONTROL.search(source.text):
        return []
    # A carriage return in a comment may hide the lines after it; in a quoted text it is a text.
    bare = QUOTED_OR_COMMENT.sub(_without_text, source.text)
    first: dict[str, Diagnostic] = {}
    for found in _CONTROL.finditer(bare):
        char, span = found.group(), Span(*found.span())
        what = "a NUL character" if char == "\0" else f"a control character (0x{ord(char):02x})"
        help_, fix = "remove it", ""
        if char == "\r":
            what = "a carriage return without a line feed"
            help_, fix = "end lines with a line feed: save the file with Unix line ends", "\n"
        first.setdefault(char, _wrong(source, f"this is {what}", span, help_, fix))
    return list(first.values())


def _without_text(found: re.Match[str]) -> str:
    text = found.group()
    kept = "\0\r" if text.startswith("#") else "\0"
    return "".join(char if char in kept else " " for char in text)


def _lookalikes(source: SourceFile) -> list[Diagnostic]:
    """Finds characters beyond ASCII outside of texts and comments, of each kind the first ones."""
    text = source.text
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
                span, helps = Span(*found.span()), ("put the text in quotes",)
                problems.append(Diagnostic("P003", message, source, span, helps=helps))
            continue
        for at, char in enumerate(word, found.start()):
            kinds[char] += char in _BETTER
            if char in _BETTER and kinds[char] <= _MAX_OF_A_KIND:
                problems.append(_lookalike(source, Span(at, at + 1), _BETTER[char]))
    return problems


def _lookalike(source: SourceFile, span: Span, better: str) -> Diagnostic:
    text, fix = source.text, better
    shown = {" ": "a space", "": "nothing"}.get(better, f"`{better}`")
    name = unicodedata.name(text[span.start], "sign").lower()
    if better.isalpha() and len(better) > 1:
        # A word for a sign stands alone.
        left = "" if text[span.start - 1 : span.start] in " (\n" else " "
        right = "" if text[span.end : span.end + 1].isspace() else " "
        fix = f"{left}{better}{right}"
    return _wrong(source, f"this is Unicode's {name}", span, f"write {shown} instead", fix)
