"""Objects without the quantities that cannot be read: one of them may not hide all the others."""

from __future__ import annotations

import logging
from typing import Any, Final, TypeVar

import msgspec

from engine.objects import Node, Pod, Quantity, ResourceList
from engine.pods.podinfo import PodInfo, make_pod_info
from engine.text.quantity import parse

log = logging.getLogger(__name__)

_T = TypeVar("_T", bound=msgspec.Struct)

_AMOUNTS: Final = frozenset(
    {"requests", "limits", "overhead", "allocated_resources", "allocatable", "capacity"}
)
"""Names of fields with quantities by resource, anywhere in an object."""


def legible(item: _T) -> _T:
    """The object, or a part of one, without the quantities that cannot be read."""
    changed: dict[str, Any] = {}
    for name in item.__struct_fields__:
        value = getattr(item, name)
        if name in _AMOUNTS and value:
            changed[name] = {key: amount for key, amount in value.items() if _is_legible(amount)}
        elif isinstance(value, msgspec.Struct):
            changed[name] = legible(value)
        elif isinstance(value, list):
            changed[name] = [legible(x) if isinstance(x, msgspec.Struct) else x for x in value]
    return msgspec.structs.replace(item, **changed)


def _is_legible(quantity: Quantity) -> bool:
    return isinstance(_amount(quantity), int)


def as_far_as_legible(pod: Pod) -> PodInfo:
    """The pod without the quantities that cannot be read."""
    try:
        return make_pod_info(pod)
    except ValueError:
        return make_pod_info(legible(pod))


def legible_node(node: Node) -> Node:
    """The node without the quantities that cannot be read; the same one if all can."""
    for resources in (node.status.allocatable, node.status.capacity):
        if not all(map(_is_legible, (resources or {}).values())):
            log.warning("node %s has quantities that cannot be read", node.metadata.name)
            return legible(node)
    return node


def amounts(resources: ResourceList | None) -> dict[str, int | str]:
    """Equal for equal amounts, however they are written."""
    return {name: _amount(quantity) for name, quantity in (resources or {}).items()}


def _amount(quantity: Quantity) -> int | str:
    """In billionths, or the text if it cannot be read."""
    try:
        return parse(quantity).nano
    except ValueError:
        return repr(quantity)
