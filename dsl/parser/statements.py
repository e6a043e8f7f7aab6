"""The words that statements start with, what they look like, and which word is meant by another."""

import re
from typing import Final

from dsl.nearest import closest
from dsl.syntax import SHORT_POINTS

STATEMENTS: Final = (
    "policy", "description", "version", "language", "mode", "order", "weight", "gate", "sort",
    "prefilter", "filter", "require", "forbid", "preempt", "prescore", "score", "first", "prefer",
    "avoid", "spread", "normalize", "reserve", "permit", "prebind", "bind", "postbind", "gang",
    "quota", *SHORT_POINTS,
)  # fmt: skip
DECLARATIONS: Final = ("let", "param", "metric", "use")
#: What needs no name in a test file.
UNNAMED: Final = ("pod", "pending")
#: Words close to those of statements that mean something else.
_OTHER: Final = frozenset(
    {"kind", "spec", "name", "node", "nodes", "pod", "time", "not", "set", "status", "it", "any",
     "metrics", "rate", "report"}
)  # fmt: skip


def is_statement(text: str) -> bool:
    """Whether a text starts with the word of a statement, exactly as it is written."""
    found = re.match(r"[A-Za-z_-]+", text)
    return found is not None and found.group() in (*STATEMENTS, *DECLARATIONS, "applies")


def known_word(word: str) -> str | None:
    """Returns the statement that a word is but for its spelling."""
    plain = re.sub(r"[-_]", "", word).lower()
    if plain in ("applies", "appliesto", "applyto", "appliesfor"):
        return "applies to"
    words = (*STATEMENTS, *DECLARATIONS)
    same = next((one for one in words if one.lower() == plain), None)
    if same is not None:
        return SHORT_POINTS.get(same, same)
    if plain in _OTHER:
        return None
    return closest(plain, [one for one in words if one not in SHORT_POINTS])
