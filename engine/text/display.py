"""Text of others, fit for logs, Events, conditions and terminals: any text in, a tame one out.

Changes no meaning: what a terminal obeys, or a reader is fooled by, is written as an escape.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final, TextIO

_USER: Final = re.compile(r"(?<=:)//[^/?#]*@")
LINE: Final = 1024
"""Characters of one text that are shown where nothing else limits it."""
CUT: Final = " ..."
_FEW: Final = 5
"""Pods or nodes that are named before they are counted."""
_NO_DIGITS: Final = dict.fromkeys(map(ord, "0123456789"))
# Control characters, separators of lines, and what turns the direction of text; surrogates cannot
# be written at all, and U+FFFE and U+FFFF not in XML.
_WILD: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def plain(text: str, most: int = LINE, *, keep: str = "") -> str:
    r"""The text with escapes such as `\n` or `\u202e`, cut to `most` characters before that.

    The characters of `keep` stay as they are.
    """
    if len(text) > most:
        text = text[: most - len(CUT)] + CUT
    if text.isprintable():  # as nothing wild is
        return text
    return _WILD.sub(lambda wild: wild[0] if wild[0] in keep else _escape(wild[0]), text)


def but_digits(text: str) -> str:
    """The text without digits: by it texts are compared whose numbers change all the time."""
    return text.translate(_NO_DIGITS)


def few(names: Sequence[str]) -> str:
    """The first of many names, and how many more there are."""
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return ", ".join(names[:_FEW]) + more


def one_line(text: str, most: int = LINE) -> str:
    """The same, with every run of white space as one blank."""
    return plain(" ".join(text[: 4 * most].split()), most)


def cause(error: BaseException, most: int = LINE) -> str:
    """What an error says, in one line; its kind, if it says nothing."""
    text = str(error)
    if isinstance(error, OSError) and error.errno and "Connect call failed" in text:
        return os.strerror(error.errno).lower()  # the text has only the call and a number
    return one_line(text, most) or type(error).__name__


def without_user(url: str) -> str:
    """An address as it may be shown: without who asks, and the password."""
    return _USER.sub("//", url)


def takes_color(stream: TextIO) -> bool:
    """Whether a terminal reads it, whose user has not said that it shows no colours."""
    said = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not said


def _escape(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean ...?` with the known names like this one, empty if there are none."""
    of = {one.casefold(): one for one in known}
    like = [of[one] for one in get_close_matches(name.casefold(), of, cutoff=0.71)]
    return f"; did you mean {' or '.join(like)}?" if like else ""
