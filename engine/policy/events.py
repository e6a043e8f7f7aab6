"""What a rule reads -> the events, and the changes of a row, that can change its verdict."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from dsl import ir
from dsl.analysis.facts import roots
from dsl.plan import BindRule, ConditionRule, FilterRule, PermitRule, RuleBase
from dsl.reads import reads_of
from dsl.schema import FIELDS
from dsl.types import Level
from engine.framework.events import (
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    HintFn,
    QueueingHint,
    Resource,
    Seen,
)
from engine.framework.snapshot import Cause, Snapshot
from engine.objects import Namespace, ObjectMeta, Pod
from engine.plugins.hints import queue_if
from engine.pods.podinfo import PodInfo, make_pod_info
from engine.policy import gangs
from engine.policy.podreads import UnreadFieldError, all_containers_of, pod_reader


def read_and_told(rule: RuleBase) -> frozenset[str]:
    """What the rule looks at to decide, and for what it says of that."""
    core = getattr(rule, "core", None)
    texts = [getattr(core, "message", None)]
    texts += [action.text for action in getattr(core, "actions", ())]
    parts = [part for text in texts if text is not None for part in text.parts]
    said = [part for part in parts if not isinstance(part, str)]
    return rule.reads | reads_of(*said).fields if said else rule.reads


def of_pod_alone(reads: Iterable[str]) -> bool:
    """True if these are nothing but what a pod is."""
    return all(read.startswith("pod.") and read not in _MOVING for read in reads)


def is_still(read: str, of_nodes: Container[str]) -> bool:
    """True if it is a field of the pod or of nodes: no such value goes into a key and moves."""
    if read.startswith(("metric:", "metric_age:")):
        return read.partition(":")[2] in of_nodes
    own = ("pod.", "node.", "it.", "zone.", "region.", "rack.")
    return read.startswith(own) and read not in _MOVING


_KEPT: Final = 1024
#: What of a pod changes while it stays the same object.
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

_COMES_AND_GOES: Final = ClusterEvent(
    Resource.ASSIGNED_POD,
    Action.ADD | Action.DELETE | Action.UPDATE_POD_SCALE_DOWN | Action.UPDATE_POD_SCALE_UP,
)
_LENT: Final = "it.quota.over_min"


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


def follows_others(reads: Iterable[str]) -> bool:
    """Whether one is what a pod's group or quota has: that follows what is not read of others."""
    specs = [FIELDS[read] for read in reads if read in FIELDS]
    return any(
        "pods" in one.wakes and (one.level is Level.POD or one.name == _LENT) for one in specs
    )


Deciding = FilterRule | ConditionRule | PermitRule | BindRule


def hinted_events(
    rules: Sequence[Deciding], gpus: Sequence[str]
) -> tuple[ClusterEventWithHint, ...]:
    """The same; of changes of pods on nodes those of what the rules read of them, by its key."""
    found = sorted_events(rules)
    if follows_others(read for rule in rules for read in rule.reads):
        return tuple(ClusterEventWithHint(event) for event in found)
    tests = [one.core.test for one in rules if isinstance(one, FilterRule | ConditionRule)]
    looks = tests + [root for one in rules for root in roots(one.core)]
    told = (_COMES_AND_GOES if event in _WAKING["pods"][0] else event for event in found)
    return (*(ClusterEventWithHint(event) for event in told), *Edits(*looks, gpus=gpus).events())


def events_of_reads(reads: frozenset[str]) -> set[ClusterEvent]:
    """The events that can change the verdict of a filter that reads these fields."""
    found = (event for read in reads for one in _wakes(read) for event in _WAKING[one][0])
    return {_node(Action.ADD), *found}


class Edits:
    """Of pods on nodes and their namespaces: those of what expressions read of `it`, by its key."""

    def __init__(self, *roots: ir.Expr | None, gpus: Sequence[str]) -> None:
        self._own: list[Callable[[PodInfo], object]] = []
        self._namespace: list[tuple[str, str | None]] = []
        # Of one event many pods are asked, one after the other.
        self._last: tuple[Seen, Seen, QueueingHint] = (None, None, QueueingHint.QUEUE)
        for one in ir.walk(*roots):
            if not isinstance(one, ir.Read | ir.KeyedRead) or not one.field.startswith("it."):
                continue
            field = one.field.removeprefix("it.")
            key = one.key if isinstance(one, ir.Read) else None  # else it is computed
            if field.startswith("namespace."):
                self._namespace.append((field.removeprefix("namespace."), key))
            elif isinstance(one, ir.KeyedRead):
                self._own.append(_WHOLE.get(field, _amounts))
            else:
                with suppress(UnreadFieldError):  # not the pod's own: it has events of its own
                    self._own.append(pod_reader(field, key, gpus))

    def events(self, finer: HintFn | None = None) -> list[ClusterEventWithHint]:
        """The event of such edits; there is none where nothing is read of them."""
        event = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE)
        known = self._own or self._namespace
        return [ClusterEventWithHint(event, self._hint, finer)] if known else []

    def _hint(self, _pod: PodInfo, before: Seen, after: Seen, _: Snapshot) -> QueueingHint:
        if self._last[0] is not before or self._last[1] is not after:
            self._last = before, after, queue_if(self._differ(before, after))
        return self._last[2]

    def _differ(self, before: Seen, after: Seen) -> bool:
        if isinstance(before, Namespace) or isinstance(after, Namespace):
            return any(_in(before, *one) != _in(after, *one) for one in self._namespace)
        if not isinstance(before, Pod) or not isinstance(after, Pod):
            return True
        try:
            old, new = make_pod_info(before), make_pod_info(after)
        except ValueError:  # what cannot be read counts as far as it can
            return True
        return any(str(read(old)) != str(read(new)) for read in self._own)


def _amounts(pod: PodInfo) -> object:
    return [one.resources for one in all_containers_of(pod)], pod.pod.spec.tolerations


_WHOLE: Final[Mapping[str, Callable[[PodInfo], object]]] = MappingProxyType(
    {
        "label": lambda pod: pod.pod.metadata.labels,
        "annotation": lambda pod: pod.pod.metadata.annotations,
    }
)
"""What is read of a pod where the key is computed."""


def _in(namespace: Seen, part: str, key: str | None) -> object:
    meta = namespace.metadata if isinstance(namespace, Namespace) else ObjectMeta()
    values = meta.labels if part == "label" else meta.annotations
    return values if key is None else (values or {}).get(key)


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
