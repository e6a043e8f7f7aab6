"""The words that statements start with; what is no such word is `complaints`' business."""

import re
from typing import Final

STATEMENTS: Final = (
    "policy", "description", "version", "language", "mode", "order", "weight", "gate", "preEnqueue",
    "sort", "queueSort", "prefilter", "preFilter", "filter", "require", "forbid", "preempt",
    "postFilter", "prescore", "preScore", "score", "first", "prefer", "avoid", "spread",
    "normalize", "reserve", "permit", "prebind", "preBind", "bind", "postbind", "postBind", "gang",
    "quota",
)  # fmt: skip
DECLARATIONS: Final = ("let", "param", "metric", "use")


def is_statement(text: str) -> bool:
    """Whether a text starts with the word of a statement, exactly as it is written."""
    found = re.match(r"[A-Za-z_-]+", text)
    return found is not None and found.group() in (*STATEMENTS, *DECLARATIONS, "applies")
