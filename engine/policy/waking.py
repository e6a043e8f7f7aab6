"""What a rule reads -> the events, and the changes of a row, that can change its verdict."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from dsl.plan import RuleBase
from dsl.reads import reads_of
from dsl.schema import FIELDS
from engine.framework.events import Action, ClusterEvent, Resource
from engine.framework.snapshot import Cause
from engine.policy import gangs


def read_and_told(rule: RuleBase) -> frozenset[str]:
    """What the rule looks at to decide, and for what it says of that."""
    core = getattr(rule, "core", None)
    texts = [getattr(core, "message", None)]
    texts += [action.text for action in getattr(core, "actions", ())]
    parts = [part for text in texts if text is not None for part in text.parts]
    said = [part for part in parts if not isinstance(part, str)]
    return rule.reads | reads_of(*said).fields if said else rule.reads


def of_pod_alone(rules: Sequence[RuleBase]) -> bool:
    """True if the rules read nothing but what a pod is."""
    reads = {read for rule in rules for read in rule.reads}
    return all(read.startswith("pod.") for read in reads) and not reads & _MOVING


def is_still(read: str, of_nodes: Container[str]) -> bool:
    """True if it is a field of the pod or of nodes: no such value goes into a key and moves."""
    if read.startswith(("metric:", "metric_age:")):
        return read.partition(":")[2] in of_nodes
    own = ("pod.", "node.", "it.", "zone.", "region.", "rack.")
    return read.startswith(own) and read not in _MOVING


#: What of a pod changes while it stays the same object.
_KEPT: Final = 1024
_MOVING: Final = frozenset(
    {"pod.queued_at", "pod.first_attempt_at", "pod.attempts", "pod.previous_node"}
)


def is_of_version(read: str) -> bool:
    """True if the value changes with the version only, or is the pod's and in the state."""
    return read.startswith(("metric:", "pod."))


def _node(action: Action) -> ClusterEvent:
    return ClusterEvent(Resource.NODE, action)


def _all_of(resource: Resource) -> tuple[ClusterEvent, ...]:
    return (ClusterEvent(resource, Action.ALL),)


_TIME: Final = ClusterEvent(Resource.TIME, Action.ALL)
_WAKING: Final[Mapping[str, tuple[tuple[ClusterEvent, ...], Cause]]] = MappingProxyType(
    {
        "labels": ((_node(Action.UPDATE_NODE_LABEL),), Cause.LABELS),
        "annotations": ((_node(Action.UPDATE_NODE_ANNOTATION),), Cause.OTHER),
        "taints": ((_node(Action.UPDATE_NODE_TAINT),), Cause.TAINTS),
        # Uncordoning is a change of taints, cordoning is not.
        "cordon": ((_node(Action.UPDATE_NODE_TAINT | Action.UPDATE_OTHER),), Cause.TAINTS),
        "conditions": ((_node(Action.UPDATE_NODE_CONDITION),), Cause.CONDITIONS),
        "others": ((_node(Action.UPDATE_OTHER),), Cause.IMAGES | Cause.OTHER),
        "allocatable": ((_node(Action.UPDATE_NODE_ALLOCATABLE),), Cause.ANY),
        "nodes": ((_node(Action.ALL),), Cause.ANY),
        "pods": ((ClusterEvent(Resource.ASSIGNED_POD, Action.ALL),), Cause.ANY),
        "pod": ((ClusterEvent(Resource.TARGET_POD, Action.UPDATE),), Cause(0)),
        "quotas": ((ClusterEvent(Resource.ELASTIC_QUOTA, Action.ALL),), Cause(0)),
        "namespaces": ((ClusterEvent(Resource.NAMESPACE, Action.ALL),), Cause.ANY),
        # A pod is tried again, or a rule turns by the clock.
        "tries": ((_TIME,), Cause(0)),
        "queue": (_all_of(Resource.UNSCHEDULED_POD), Cause.ANY),
        "nominations": (_all_of(Resource.NOMINATION), Cause.OTHER),
        "finished": (_all_of(Resource.FINISHED_POD), Cause.OTHER),
        "leases": (_all_of(Resource.LEASE), Cause.OTHER),
        "drivers": (_all_of(Resource.CSI_NODE), Cause.OTHER),
        "workloads": (_all_of(Resource.WORKLOAD), Cause(0)),
        "groups": (gangs.EVENTS, Cause(0)),
        "time": ((_TIME,), Cause.ANY),
        # Samples turn stale by themselves.
        "samples": ((ClusterEvent(Resource.SIGNAL, Action.ALL), _TIME), Cause(0)),
        "ages": ((ClusterEvent(Resource.SIGNAL, Action.ALL), _TIME), Cause.ANY),
    }
)
"""What of a cluster changes a field -> its events, and what the cache says changed of a row."""


def _wakes(read: str) -> tuple[str, ...]:
    if read.startswith("metric"):
        return ("samples",) if read.startswith("metric:") else ("ages",)
    return FIELDS[read].wakes if read in FIELDS else ()


def sorted_events(rules: Sequence[RuleBase]) -> tuple[ClusterEvent, ...]:
    """The events that can change the verdict of one of the rules, always in one order."""
    # Who knows when it turns is not asked each minute.
    reads = ((one.reads if one.turns is None else one.reads - {"now"}) for one in rules)
    alone = all(one.row_local for one in rules)
    return _sorted_events(frozenset().union(*reads), alone=alone, any_rule=bool(rules))


@lru_cache(_KEPT)
def _sorted_events(
    reads: frozenset[str], *, alone: bool, any_rule: bool
) -> tuple[ClusterEvent, ...]:
    """A rule that compares nodes or counts over several can change when one of them goes."""
    gone = set() if alone else {ClusterEvent(Resource.NODE, Action.DELETE)}
    return tuple(sorted(gone | events_of_reads(reads), key=str)) if any_rule else ()


def events_of_reads(reads: frozenset[str]) -> set[ClusterEvent]:
    """The events that can change the verdict of a filter that reads these fields."""
    found = (event for read in reads for one in _wakes(read) for event in _WAKING[one][0])
    return {_node(Action.ADD), *found}


@lru_cache(_KEPT)
def causes_of(reads: frozenset[str]) -> Cause:
    """The changes of a row that can change the verdict of filters that read these fields."""
    causes = Cause(0)
    for read in reads:
        wakes = _wakes(read)
        for one in wakes:
            causes |= _WAKING[one][1]
        causes |= Cause(0) if wakes else Cause.ANY
    return causes
