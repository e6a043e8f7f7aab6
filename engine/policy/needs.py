"""What the policies of a bundle read beside nodes and pods, so that nobody watches what none reads.

queue, nominated, finished, previous, volumes    kept by the cache, see `engine.cache.otherpods`
heartbeats, workloads, kinds, usage              lists and watches of their own
of_pods                                          of pods on nodes, which parts are kept
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import or_
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec.structs import astuple

from dsl.plan import Plan
from engine.cache.otherpods import FINISHED, HEARTBEATS, NOMINATED, PREVIOUS, QUEUE, TIMES, VOLUMES
from engine.policy.events import read_and_told
from engine.policy.findings import rules_of

#: Fields by their first words -> what has to be kept for them.
_ATTENDED: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "queue.pods": frozenset({QUEUE}),
        "group.size": frozenset({QUEUE}),
        "pod.queued_at": frozenset({QUEUE}),
        "pod.first_attempt_at": frozenset({QUEUE}),
        "pod.attempts": frozenset({QUEUE}),
        "it.queued_at": frozenset({QUEUE, TIMES}),
        "it.first_attempt_at": frozenset({QUEUE, TIMES}),
        "it.attempts": frozenset({QUEUE, TIMES}),
        "node.nominated": frozenset({NOMINATED}),
        "node.finished": frozenset({FINISHED}),
        "pod.previous_node": frozenset({PREVIOUS}),
        "node.heartbeat": frozenset({HEARTBEATS}),
        "node.volumes.limit": frozenset({VOLUMES}),
    }
)
ATTENDABLE: Final = frozenset[str]().union(*_ATTENDED.values())
"""All that may be kept beside nodes and the pods on them."""
#: Fields of pods on nodes -> the part of `engine.kube.sharing` that has to be kept for them.
_PARTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "it.annotation": "annotations",
        "it.created": "created",
        "it.workload": "owners",
        "it.owner.kind": "owners",
        "it.owner.name": "owners",
        "pod.previous_node": "owners",
        "it.ready": "statuses",
        "it.restarts": "statuses",
        "it.scheduled_at": "statuses",
    }
)
_WORKLOAD: Final = "workload."
_USAGE: Final = "usage"
_OBJECT: Final = "object"


class Field(msgspec.Struct, frozen=True, order=True):
    """A field of the objects of a kind (`apps/deployments`), as a path (`spec.replicas`)."""

    kind: str
    path: str


class Needs(msgspec.Struct, frozen=True):
    """What has to be watched or kept.

    Attributes:
        attended: what the cache keeps.
        workloads: whether the objects that pods are made from are read.
        fields: fields of objects of any kind.
        usage: of whom the use of cores and memory is read, `node` or `pod`.
        of_pods: what of pods on nodes is kept.
    """

    attended: frozenset[str] = frozenset()
    workloads: bool = False
    fields: frozenset[Field] = frozenset()
    usage: frozenset[str] = frozenset()
    of_pods: frozenset[str] = frozenset()

    def __or__(self, other: Needs) -> Needs:
        return Needs(*map(or_, astuple(self), astuple(other)))


def needs_of(plans: Iterable[Plan]) -> Needs:
    """What these policies need; those that are off need nothing."""
    in_use = [plan for plan in plans if plan.mode != "off"]
    reads = {read for plan in in_use for rule in rules_of(plan) for read in read_and_told(rule)}
    specs = [spec for plan in in_use for spec in plan.metrics]
    return Needs(
        attended=frozenset().union(*(_ATTENDED[read] for read in reads & _ATTENDED.keys())),
        workloads=any(read.startswith(_WORKLOAD) for read in reads),
        fields=frozenset(
            Field(*one.query.partition("#")[::2]) for one in specs if one.source == _OBJECT
        ),
        usage=frozenset(spec.of for spec in specs if spec.source == _USAGE),
        of_pods=frozenset(_PARTS.values())
        if any(plan.gangs or plan.quotas for plan in in_use)  # what they ask of members is not told
        else frozenset(_PARTS[read] for read in reads & _PARTS.keys()),
    )
