"""Patches: an object and a patch in, a new object out. Never changes what it is given."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

MERGE_KEYS = {
    "conditions": "type",
    "addresses": "type",
    "containers": "name",
    "initContainers": "name",
    "schedulingGates": "name",
    "ownerReferences": "uid",
}
"""Lists that a strategic merge patch merges by a key; every other list is replaced whole."""


def merge(target: Any, patch: Any, *, strategic: bool) -> Any:  # noqa: ANN401 - JSON values
    """Apply a JSON merge patch (RFC 7386), or the part of strategic merge that is used here."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    if strategic and patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    for key, value in patch.items():
        if strategic and key.startswith("$"):
            continue
        if value is None:
            merged.pop(key, None)
        elif strategic and isinstance(value, list) and key in MERGE_KEYS:
            merged[key] = _merge_list(merged.get(key) or [], value, MERGE_KEYS[key])
        else:
            merged[key] = merge(merged.get(key), value, strategic=strategic)
    return merged


def _merge_list(target: list[Any], patch: list[Any], merge_key: str) -> list[Any]:
    merged = {item.get(merge_key): item for item in target}
    for item in patch:
        directive = item.get("$patch")
        if directive == "replace":
            return [entry for entry in patch if "$patch" not in entry]
        if directive == "delete":
            merged.pop(item.get(merge_key), None)
        else:
            name = item.get(merge_key)
            merged[name] = merge(merged.get(name), item, strategic=True)
    return list(merged.values())
