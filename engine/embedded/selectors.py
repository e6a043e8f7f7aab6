"""Label and field selectors as text in, predicates over objects out."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from engine.embedded.errors import bad_request

Object = dict[str, Any]
Predicate = Callable[[Object], bool]

_EVERYWHERE = ("metadata.name", "metadata.namespace")
_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
FIELDS: dict[str, tuple[str, ...]] = {
    "pods": (
        *("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"),
        *("spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName"),
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "events": (
        *(f"involvedObject.{name}" for name in _REFERENCE),
        *("reason", "reportingComponent", "source", "type"),
    ),
}
_TERM = re.compile(r"(?P<key>[^=!]*)(?P<operator>==|=|!=)(?P<value>.*)")
_TOKEN = re.compile(r"\s*(?:(?P<symbol>==|!=|[=!(),<>])|(?P<word>[^\s=!(),<>]+))")


def field_predicate(text: str, plural: str) -> Predicate | None:
    """The test that a field selector means for objects of a resource; None for an empty one.

    Raises:
        ApiError: 400, it cannot be read, or the field cannot be selected.
    """
    tests = [_field_test(term, plural, text) for term in text.split(",") if term]
    if not tests:
        return None
    return lambda item: all(test(item) for test in tests)


def _field_test(term: str, plural: str, text: str) -> Predicate:
    found = _TERM.fullmatch(term)
    if found is None:
        raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
    key, value, negated = found["key"], found["value"], found["operator"] == "!="
    if key not in _EVERYWHERE and key not in FIELDS.get(plural, ()):
        raise bad_request(f"field label not supported: {key}")
    path = tuple(key.split("."))
    return lambda item: (field_text(item, path) == value) is not negated


def field_text(item: Object, path: tuple[str, ...]) -> str:
    """A field as selectors compare it; absent ones are the empty string (false for booleans)."""
    value: Any = item
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    if path[-1] in {"unschedulable", "hostNetwork"}:
        return "true" if value else "false"
    if path == ("source",):
        value = (value or {}).get("component") if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def label_predicate(text: str) -> Predicate | None:
    """The test that a label selector (full set syntax) means; None for an empty one.

    Raises:
        ApiError: 400, it cannot be read.
    """
    tokens = _tokens(text)
    tests: list[Predicate] = []
    while tokens:
        tests.append(_requirement(tokens))
        if tokens:
            _expect(tokens, ",")
    if not tests:
        return None
    return lambda item: all(test(item) for test in tests)


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
        raise bad_request(f"unable to parse requirement: found '{found}' expected: {names}")
    return found


def _word(tokens: list[str]) -> str:
    found = tokens.pop() if tokens else ""
    if not found or not found[0].isalnum():
        raise bad_request(f"unable to parse requirement: found '{found}', expected: identifier")
    return found


def _requirement(tokens: list[str]) -> Predicate:
    if tokens[-1] == "!":
        tokens.pop()
        key = _word(tokens)
        return lambda item: key not in _labels(item)
    key = _word(tokens)
    if not tokens or tokens[-1] == ",":
        return lambda item: key in _labels(item)
    operator = _expect(tokens, "=", "==", "!=", "in", "notin", "<", ">")
    if operator in {"<", ">"}:
        return _comparison(key, operator, _word(tokens))
    values = _values(tokens) if operator in {"in", "notin"} else _single_value(tokens)
    wanted = operator in {"=", "==", "in"}
    # As in Kubernetes, `!=` and `notin` also hold where the label is absent.
    return lambda item: (_labels(item).get(key) in values) is wanted


def _single_value(tokens: list[str]) -> frozenset[str]:
    if not tokens or tokens[-1] == ",":
        return frozenset({""})
    return frozenset({_word(tokens)})


def _values(tokens: list[str]) -> frozenset[str]:
    _expect(tokens, "(")
    values = {_word(tokens)} if tokens and tokens[-1] not in {",", ")"} else {""}
    while _expect(tokens, ",", ")") == ",":
        values.add(_word(tokens) if tokens and tokens[-1] not in {",", ")"} else "")
    return frozenset(values)


def _comparison(key: str, operator: str, bound: str) -> Predicate:
    try:
        limit = int(bound)
    except ValueError:
        raise bad_request(
            f"values[0][{key}]: Invalid value: \"{bound}\": for 'Gt', 'Lt' operators, "
            "the value must be an integer"
        ) from None

    def holds(item: Object) -> bool:
        try:
            value = int(_labels(item).get(key, ""))
        except ValueError:
            return False
        return value > limit if operator == ">" else value < limit

    return holds


def _labels(item: Object) -> dict[str, str]:
    return item["metadata"].get("labels") or {}
