"""Objects of the API in YAML, as kubectl reads and prints them. Knows no kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """Leaves times the texts that they are in JSON."""


_Loader.yaml_implicit_resolvers = {
    first: [one for one in tags if not one[0].endswith(":timestamp")]
    for first, tags in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def objects_in(text: str) -> list[dict[str, Any]]:
    """All objects of a text, those of lists one by one.

    Raises:
        ValueError: it is not YAML; the message says so of the file whose name stands before it.
    """
    try:
        documents = list(yaml.load_all(text, Loader=_Loader))
    except (yaml.YAMLError, ValueError) as failed:
        raise ValueError(f"is not YAML: {' '.join(str(failed).split())}") from failed
    return [one for document in documents for one in _each(document)]


def _each(document: object) -> Iterator[dict[str, Any]]:
    if not isinstance(document, dict):
        return
    items = document.get("items")
    if str(document.get("kind", "")).endswith("List") and isinstance(items, list):
        for one in items:
            yield from _each(one)
    else:
        yield document
