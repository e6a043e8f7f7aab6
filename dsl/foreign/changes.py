"""What a captured text may be turned into where a row puts it down.

Knows no rows and no place.
"""

import re
from collections.abc import Callable
from typing import Final


def reckoned(text: str, by: str) -> str:
    """Returns a number with another added, taken off or multiplied: `+12`, `-1`, `*7`."""
    number = int(text) if text.isdigit() else 0
    sign, other = by[0], int(by[1:])
    return str(number * other if sign == "*" else number + other if sign == "+" else number - other)


def bare(text: str) -> str:
    """Returns a text without its quotes."""
    return text[1:-1] if text[:1] in ("'", '"') else text


def in_quotes(text: str) -> str:
    """Returns a text in quotes, those that it does not hold itself."""
    if text[:1] in ("'", '"') and text[-1:] == text[:1] and len(text) > 1:
        return text
    return f"'{text}'" if '"' in text else f'"{text}"'


def _searched(text: str, _: str) -> str:
    """A pattern that may be found anywhere, as one of the whole text."""
    inner = bare(text)
    head = "" if inner.startswith(("^", ".*")) else ".*"
    tail = "" if inner.endswith(("$", ".*")) else ".*"
    return f"{text[0]}{head}{inner}{tail}{text[0]}"


CHANGES: Final[dict[str, Callable[[str, str], str]]] = {
    "bare": lambda text, _: bare(text),
    "quote": lambda text, _: in_quotes(text),
    "glob": lambda text, _: in_quotes(bare(text).replace("%", "*")),
    "low": lambda text, _: text.lower(),
    "tail": lambda text, _: text.rpartition(".")[2],
    "one": lambda text, _: text.removesuffix("s"),
    "name": lambda text, _: re.sub(r"\W", "_", text.lstrip("$")),
    "kebab": lambda text, _: re.sub(r"[^\w.-]+", "-", bare(text)).strip("-"),
    "search": _searched,
    "it": lambda text, name: re.sub(rf"\b{re.escape(name)}\.", "it.", text),
}
