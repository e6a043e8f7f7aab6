"""YAML as Kubernetes' programs read and print it. Knows no kind.

Source: go.yaml.in/yaml/v2 resolve.go; sigs.k8s.io/yaml, by which all that is read becomes JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

_TAG: Final = "tag:yaml.org,2002:"
_NUMBERS: Final = {
    "int": r"[-+]?(0b[01][01_]*|0o?[0-7][0-7_]*|0x[0-9a-fA-F][0-9a-fA-F_]*|0|[1-9][0-9_]*)",
    "float": r"[-+]?(\.[0-9][0-9_]*|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
}


class Loader(yaml.SafeLoader):
    """Leaves dates and `60:30` the texts that they are in JSON; `1e3` is 1,000.

    So is `y` a text, unlike theirs, as our own files have parameters of that name.
    """

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        """Whole numbers are so however they are written."""
        found = self.construct_yaml_float(node)
        return int(found) if found.is_integer() else found


class Dumper(yaml.SafeDumper):
    """Quotes texts that a YAML reader may take for another type; several lines are a block."""


Loader.yaml_implicit_resolvers = {
    first: [one for one in tags if one[0].removeprefix(_TAG) in ("bool", "null", "merge")]
    for first, tags in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _kind, _form in _NUMBERS.items():
    for _to in (Loader, Dumper):
        _to.add_implicit_resolver(f"{_TAG}{_kind}", re.compile(f"({_form})$"), None)
Dumper.add_implicit_resolver(f"{_TAG}bool", re.compile("[yYnN]$"), None)
Dumper.add_representer(
    str, lambda to, text: to.represent_scalar(f"{_TAG}str", text, "|" if "\n" in text else None)
)
Loader.add_constructor(f"{_TAG}float", Loader.construct_number)


def objects_in(text: str | bytes) -> list[dict[str, Any]]:
    """All objects of a text, those of lists one by one; bytes are UTF-8, or UTF-16 with its mark.

    Raises:
        ValueError: it is not YAML; the message says so of the file whose name stands before it.
    """
    try:
        documents = list(yaml.load_all(text, Loader=Loader))
    except (yaml.YAMLError, ValueError, RecursionError) as failed:
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
