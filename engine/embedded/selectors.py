"""Label and field selectors as text in, predicates over objects out."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from engine.embedded.errors import Object, bad_request
from engine.pods.selectors import SelectorError, read_selector

Predicate = Callable[[Object], bool]

_EVERYWHERE = ("metadata.name", "metadata.namespace")
_REFERENCE = ("kind", "namespace", "name", "uid", "fieldPath")
FIELDS: dict[str, tuple[str, ...]] = {
    "pods": ("spec.nodeName", "spec.schedulerName", "status.phase"),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "events": (*(f"involvedObject.{name}" for name in _REFERENCE), "reason", "type"),
}
_TERM = re.compile(r"(?P<key>[^=!]*)(?P<operator>==|=|!=)(?P<value>.*)")


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
    if path[-1] == "unschedulable":
        return "true" if value else "false"
    return value if isinstance(value, str) else ""


def label_predicate(text: str) -> Predicate | None:
    """The test that a label selector (full set syntax) means; None for an empty one.

    Raises:
        ApiError: 400, it cannot be read.
    """
    try:
        selector = read_selector(text)
    except SelectorError as wrong:
        raise bad_request(str(wrong)) from wrong
    if selector.empty:
        return None
    return lambda item: selector.matches(item["metadata"].get("labels") or {})
