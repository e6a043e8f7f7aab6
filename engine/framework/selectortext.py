"""Label selectors as queries write them: text in, `Selector` out. Knows no labels of anybody.

Source: k8s.io/apimachinery pkg/labels, selector.go (Parse).
"""

from __future__ import annotations

import re
from typing import Final

from engine.pods.selectors import Requirement, Selector, SelectorError

_TOKEN: Final = re.compile(r"\s*(?:(?P<symbol>==|!=|[=!(),<>])|(?P<word>[^\s=!(),<>]+))")
_OPERATORS: Final = {
    "=": "In", "==": "In", "in": "In", "!=": "NotIn", "notin": "NotIn", "<": "Lt", ">": "Gt",
}  # fmt: skip


def read_selector(text: str) -> Selector:
    """What `app=x,team in (a,b),!old` selects; an empty text everything.

    Raises:
        SelectorError: it cannot be read.
    """
    tokens = _tokens(text)
    found: list[Requirement] = []
    while tokens:
        found.append(_requirement(tokens))
        if tokens:
            _expect(tokens, ",")
    return Selector(tuple(sorted(set(found))))


def _tokens(text: str) -> list[str]:
    """The selector's tokens, last first (so that `pop` takes the next one)."""
    tokens: list[str] = []
    position = 0
    while position < len(text) and (found := _TOKEN.match(text, position)):
        tokens.append(found["symbol"] or found["word"])
        position = found.end()
    return tokens[::-1]


def _expect(tokens: list[str], *wanted: str) -> str:
    found = tokens.pop() if tokens else ""
    if found not in wanted:
        names = " or ".join(f"'{name}'" for name in wanted)
        raise SelectorError(f"unable to parse requirement: found '{found}' expected: {names}")
    return found


def _word(tokens: list[str]) -> str:
    found = tokens.pop() if tokens else ""
    if not found or not found[0].isalnum():
        raise SelectorError(f"unable to parse requirement: found '{found}', expected: identifier")
    return found


def _requirement(tokens: list[str]) -> Requirement:
    if tokens[-1] == "!":
        tokens.pop()
        return Requirement(_word(tokens), "DoesNotExist")
    key = _word(tokens)
    if not tokens or tokens[-1] == ",":
        return Requirement(key, "Exists")
    operator = _expect(tokens, *_OPERATORS)
    if operator in ("<", ">"):
        return Requirement(key, _OPERATORS[operator], (_bound(key, _word(tokens)),))
    values = _values(tokens) if operator in ("in", "notin") else {_value(tokens)}
    return Requirement(key, _OPERATORS[operator], tuple(sorted(values)))


def _bound(key: str, text: str) -> str:
    try:
        return str(int(text))
    except ValueError:
        raise SelectorError(
            f"values[0][{key}]: Invalid value: \"{text}\": for 'Gt', 'Lt' operators, "
            "the value must be an integer"
        ) from None


def _value(tokens: list[str]) -> str:
    return "" if not tokens or tokens[-1] in (",", ")") else _word(tokens)


def _values(tokens: list[str]) -> set[str]:
    _expect(tokens, "(")
    values = {_value(tokens)}
    while _expect(tokens, ",", ")") == ",":
        values.add(_value(tokens))
    return values
