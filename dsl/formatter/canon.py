"""The one spelling of a word where the language has several."""

import re
from collections.abc import Sequence
from typing import Final

from dsl.schema import FIELDS, PLURALS
from dsl.syntax import SHORT_POINTS, Lexeme

_BLANKS: Final = re.compile(r"[ \t]+")


def canonical_texts(words: Sequence[Lexeme]) -> list[str]:
    """Returns the canonical spelling of each word of a statement."""
    texts = [_canonical(word) for word in words]
    if texts:
        texts[0] = SHORT_POINTS.get(texts[0], texts[0])
    return texts


def _canonical(word: Lexeme) -> str:
    if word.kind in ("DOTTED", "LABELOF"):
        return _singular(word.text)
    if word.kind in ("MODE", "TEXTOP"):
        return _BLANKS.sub(" ", word.text)
    if word.owner == "label_op" and word.text == "==":
        return "="
    return word.text


def _singular(path: str) -> str:
    """Returns a field with its plurals turned into singulars, if that is a field."""
    if path in FIELDS:
        return path
    singular = ".".join(PLURALS.get(part, part) for part in path.split("."))
    known = any(name == singular or name.startswith(f"{singular}.") for name in FIELDS)
    return singular if known else path
