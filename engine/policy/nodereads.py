"""What policies read of a node as it is written: each reader makes a column of the snapshot."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_network
from types import MappingProxyType
from typing import Final

import numpy as np

from dsl.quantities import parse_number, parse_time
from dsl.schema import FIELDS
from dsl.types import MISSING, Kind, Level
from engine.objects import Node
from engine.policy.podreads import reader_of


def is_ready(node: Node) -> bool:
    """Whether its condition Ready is True."""
    return condition("Ready")(node) == "True"


def condition(name: str) -> Callable[[Node], str | None]:
    """The status of a condition."""

    def status(node: Node) -> str | None:
        for one in node.status.conditions or ():
            if one.type == name:
                return one.status
        return None

    return status


def tainted(test: str) -> Callable[[Node], bool]:
    """Whether a taint has this key, or is `key=value`."""
    key, with_value, value = test.partition("=")

    def holds(node: Node) -> bool:
        return any(
            t.key == key and (not with_value or t.value == value) for t in node.spec.taints or ()
        )

    return holds


#: Texts that stand in a node as they are -> where.
PLAIN_TEXTS: Final = MappingProxyType(
    {
        spec.name: reader_of(spec.wire)
        for spec in FIELDS.values()
        if spec.level is Level.NODE and spec.wire and spec.type.kind is Kind.TEXT
    }
)


def addresses(node: Node) -> float:
    """How many addresses the node's pods can have: its pod CIDRs' size; infinite without one.

    A second family gives every pod a second address, not room for more pods.
    """
    try:
        ranges = [
            ip_network(one, strict=False) for one in node.spec.pod_cidrs or [node.spec.pod_cidr]
        ]
    except ValueError:
        return np.inf
    family = ranges[0].version
    return float(sum(one.num_addresses for one in ranges if one.version == family))


def annotated(key: str) -> Callable[[Node], float]:
    """The number of an annotation; also of `value,timestamp`, as Crane writes it."""

    def value(node: Node) -> float:
        text, comma, when = (node.metadata.annotations or {}).get(key, "").partition(",")
        return MISSING if comma and np.isnan(parse_time(when)) else parse_number(text)

    return value


def annotated_at(key: str) -> Callable[[Node], float]:
    """The time behind that number (seconds since the epoch); missing if there is none."""

    def when(node: Node) -> float:
        return parse_time((node.metadata.annotations or {}).get(key, "").partition(",")[2])

    return when
