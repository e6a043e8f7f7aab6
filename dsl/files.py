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
_BETTER: Final = {
    sign: better
    for better, signs in {
        " ": "\u00a0\u2007\u202f\u3000", "": "\u200b", '"': "\u201c\u201d\u201e\u00ab\u00bb",
        "'": "\u2018\u2019\u00b4", "->": "\u2192\u21d2", "-": "\u2212\u2013\u2014", "<=": "\u2264",
        ">=": "\u2265", "!=": "\u2260", "*": "\u00d7", "/": "\u00f7", "..": "\u2026", ":": "\uff1a",
    }.items()
    for sign in signs
}  # fmt: skip
#: Findings of one kind in a file: who pasted a book needs no more.
_MAX_OF_A_KIND: Final = 20
#: What nobody sees, but for line feeds and tabs.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_UTF_16_SHARE: Final = 3
#: A word with such a letter, or a sign.
_BEYOND_ASCII: Final = re.compile(
    r"[A-Za-z]\w*(?:\u2019\w+|\u2026)|(?<!\w)[A-Za-z0-9_]*[^\W\x00-\x7f]\w*|[^\x00-\x7f]"
)


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


def _wrong(
    source: SourceFile, message: str, span: Span, help_: str, better: str | None
) -> Diagnostic:
    fix = None if better is None else Fix(span, better)
    return Diagnostic("P003", message, source, span, helps=(help_,), fix=fix)


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
    line = -1
    for found in _BEYOND_ASCII.finditer(bare):
        word, span = found.group(), Span(*found.span())
        better = _BETTER.get(word)
        if better is None and source.position(span.start)[0] == line:
            continue
        line = line if better is not None else source.position(span.start)[0]
        kind = "a word" if better is None else word
        kinds[kind] += 1
        if kinds[kind] > _MAX_OF_A_KIND:
            continue
        if better is None:
            message = f"`{word}` may only stand in quoted texts and comments"
            help_ = "put the text in quotes"
        else:
            shown = {" ": "a space", "": "nothing"}.get(better, f"`{better}`")
            message = f"this is Unicode's {unicodedata.name(word, 'sign').lower()}"
            help_ = f"write {shown} instead"
        problems.append(_wrong(source, message, span, help_, better))
    return problems
