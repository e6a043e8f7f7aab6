"""`gang:` of a policy as plugins have it, and the objects of groups: who starts together, and how.

Reads pods, nodes and objects of groups; who is tried when is the scheduler's business.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from dsl.collective import GangTerms
from dsl.plan import GangRule
from dsl.schema import request_unit
from dsl.types import MISSING, NUMBER, TEXT, quoted, show
from dsl.types import number_of as kind_of_number
from dsl.world import Subject, World
from engine.framework.events import Action, ClusterEvent, QueueingHint, Resource, Seen
from engine.framework.gang import Membership
from engine.framework.snapshot import CodeColumn, PodColumns, Snapshot
from engine.objects import Pod
from engine.objects.workloads import GangFailure, PodGroup
from engine.plugins.hints import queue_if
from engine.pods.podinfo import PODS, PodInfo, make_pod_info
from engine.policy.accounts import amounts_of
from engine.policy.podreads import epoch_seconds, group_of, number_of

#: What can change the terms of a gang that could not start. That a member comes to the queue is no
#: event: it is tried together with all others.
EVENTS: Final = (
    ClusterEvent(Resource.POD_GROUP, Action.ALL),
    ClusterEvent(Resource.SCHEDULING_POD_GROUP, Action.ALL),
    ClusterEvent(Resource.TARGET_POD, Action.UPDATE),
)
#: A pod that somebody else bound, or labelled on its node, may be the member that is missing.
JOINED: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD | Action.UPDATE_POD_LABEL)
#: The cluster has more of what a group asks for. A node that comes wakes whom a rule rejected.
FREED: Final = (
    ClusterEvent(Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE),
    ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN),
)
_LABEL: Final = "label:"
Asked = Callable[[PodInfo, Snapshot], tuple[Subject, World]]


class GangRules:
    """The `gang:` lines of a policy; the first that applies to a pod is its gang."""

    def __init__(self, rules: Sequence[GangRule], asked: Asked) -> None:
        self._rules = rules
        self._asked = asked
        self.turn = any(rule.core.backoff_seconds for rule in rules)
        """Whether the clock alone may let a gang be tried again."""

    def kin(self, pod: PodInfo, snapshot: Snapshot) -> Hashable:
        """See `Points.kin`."""
        subject, world = self._asked(pod, snapshot)
        for rule in self._rules:
            key = rule.key(subject, world)
            if key is not None:
                return rule.id, pod.namespace, key
        return None

    def joins(self, pod: PodInfo, _before: Seen, after: Seen, snapshot: Snapshot) -> QueueingHint:
        """Whether a pod on a node is of the gang of one that waits."""
        if not isinstance(after, Pod) or after.metadata.namespace != pod.namespace:
            return QueueingHint.SKIP
        try:
            other = make_pod_info(after)
        except ValueError:
            return QueueingHint.QUEUE
        return queue_if(self.kin(other, snapshot) == self.kin(pod, snapshot))

    def gang(self, pod: PodInfo, snapshot: Snapshot) -> Membership | None:
        """See `Points.gang`."""
        subject, world = self._asked(pod, snapshot)
        for rule in self._rules:
            terms = rule.terms(subject, world)
            if terms is not None:
                return _membership(rule, terms, pod, snapshot, (subject, world))
        return None

    def recheck_at(self, pod: PodInfo, snapshot: Snapshot) -> float:
        """When the pod's gang has rested; infinite if it does not rest."""
        found = self.gang(pod, snapshot) if self.turn else None
        rests = found is not None and snapshot.now < found.rests_until
        return found.rests_until if found is not None and rests else math.inf


def _membership(
    rule: GangRule, terms: GangTerms, pod: PodInfo, snapshot: Snapshot, asked: tuple[Subject, World]
) -> Membership:
    subject, world = asked
    key = terms.key
    name, kind = (key, TEXT) if isinstance(key, str) else (f"{key:g}", NUMBER)
    created = subject.number("group.created", None)
    failed = _failed_at(snapshot, f"{pod.namespace}/{name}")
    # Not where it failed in what is to come: somebody has set the clock back.
    rests = terms.backoff_seconds and failed <= snapshot.now
    within = terms.within or _topology(pod, snapshot, name)
    own = epoch_seconds(pod.pod.metadata.creation_timestamp)
    # What of a group that the pods name would say how many they are.
    lacks = np.isnan(terms.minimum) and group_of(pod) == name
    unknown = lacks and _object_of(name, pod, snapshot) is None
    return Membership(
        key=(rule.id, pod.namespace, key),
        namespace=pod.namespace,
        name=name,
        title=f"gang {quoted(key, kind)}",
        minimum=terms.minimum,
        lacks=f"there is no PodGroup {name}" if unknown else "",
        shortage=lambda: _shortage(pod, snapshot) if group_of(pod) == name else "",
        wait_seconds=terms.wait_seconds,
        rests_until=failed + terms.backoff_seconds if rests else MISSING,
        tolerance=terms.tolerance,
        since=own if np.isnan(created) else created,
        place=f"{rule.source.name}:{rule.line}",
        domain=None if within is None else _domains(within, world),
        within=(within or "").removeprefix(_LABEL),
        fullest=terms.within is None,
        mates=lambda: rule.mates(subject, world),
    )


def _topology(pod: PodInfo, snapshot: Snapshot, name: str) -> str | None:
    """Where the object of the pod's own group has its pods; what a rule says of it wins."""
    if pod.pod.spec.scheduling_group is None or group_of(pod) != name:
        return None
    found = snapshot.objects("SchedulingPodGroup").get(f"{pod.namespace}/{name}")
    key = None if found is None else found.topology_key
    return None if key is None else f"{_LABEL}{key}"


def _domains(within: str, world: World) -> CodeColumn:
    """(N,) the domain of each node as a code of the dictionary, -1 without one."""
    field, _, key = within.partition(":")
    field = "name" if field == "node" else field
    found = np.where(world.present, world.node_text(f"node.{field}", key or None), -1)
    return found.astype(np.int32, copy=False)


# ---- what a group asks the cluster for


def frees(pod: PodInfo, _before: Seen, _after: Seen, snapshot: Snapshot) -> QueueingHint:
    """Whether there is as much as the pod's group asks for, now that something was freed."""
    return queue_if(_asking(pod, snapshot) is not None and not _shortage(pod, snapshot))


def _asking(pod: PodInfo, snapshot: Snapshot) -> PodGroup | None:
    """The object of the pod's group, if it says how much the cluster must have for it."""
    if pod.pod.spec.scheduling_group is not None:
        return None
    found: PodGroup | None = _object_of(group_of(pod) or "", pod, snapshot)
    return None if found is None or found.spec.min_resources is None else found


def _shortage(pod: PodInfo, snapshot: Snapshot) -> str:
    """Of what the pod's group asks for the nodes together have less; empty: they have it all.

    Any node counts, and what the group's pods have is free for it. A node that has given out more
    than it has takes nothing from others.

    Source: scheduler-plugins pkg/coscheduling/core/core.go, CheckClusterResource.
    """
    group = _asking(pod, snapshot)
    if group is None:
        return ""
    nodes, pods = snapshot.nodes, snapshot.pods
    own = _rows(pods, group.metadata.name, pod, snapshot)
    short = []
    for name, asked in {**amounts_of(group.spec.min_resources), PODS: group.minimum or 0}.items():
        used = (nodes.pod_count if name == PODS else nodes.requested(name)).copy()
        np.subtract.at(used, pods.node[own], 1 if name == PODS else pods.request(name)[own])
        left = np.maximum(nodes.allocatable(name) - used, 0)
        free = float(left[nodes.present].sum(dtype=np.float64))
        if free < asked:
            unit = kind_of_number(request_unit(name))
            short.append(f"{name}: {show(asked, unit)} asked for, {show(free, unit)} free")
    what = f"less is free than minResources of PodGroup {group.metadata.name}: "
    return what + "; ".join(short) if short else ""


# ---- objects of groups ---------------------------------------------------------------------------


def group_number(pod: PodInfo, snapshot: Snapshot, name: str) -> float:
    """A number or time of `group.*`, as its object has it; missing without one.

    Raises:
        KeyError: there is no such field.
    """
    group = group_of(pod)
    if group is None:
        return MISSING
    key = f"{pod.namespace}/{group}"
    if name in COUNTS:
        return float(_count(name, group, pod, snapshot))
    if name == "last_failure":
        return _failed_at(snapshot, key)
    found = _object_of(group, pod, snapshot)
    return MISSING if found is None else _OF_OBJECTS[name](found)


def _object_of(group: str, pod: PodInfo, snapshot: Snapshot) -> Any:  # noqa: ANN401 - of two kinds
    """The object of the pod's group, of Kubernetes itself or of scheduler-plugins."""
    own = pod.pod.spec.scheduling_group is not None
    objects = snapshot.objects("SchedulingPodGroup" if own else "PodGroup")
    return objects.get(f"{pod.namespace}/{group}")


def _count(name: str, group: str, pod: PodInfo, snapshot: Snapshot) -> int:
    """Members of the group: all there are, bound, with a node, or waiting in permit on theirs."""
    there = _members(snapshot.pods, group, pod, snapshot)
    match name:
        case "assigned":
            return sum(bool(one.pod.node_name) for one in there)
        case "reserved":
            return len(there)
        case "waiting":
            return sum(one.uid in snapshot.waiting for one in there)
        case _:
            pending = _members(snapshot.other_pods.pods("queue"), group, pod, snapshot)
            return len({one.uid for one in (*there, *pending, pod)})


def _members(pods: PodColumns, group: str, pod: PodInfo, snapshot: Snapshot) -> list[PodInfo]:
    found = map(pods.pod, _rows(pods, group, pod, snapshot))
    return [one for one in found if not one.terminating]


def _rows(pods: PodColumns, group: str, pod: PodInfo, snapshot: Snapshot) -> list[int]:
    """Of the pods of a group in the pod's namespace."""
    groups = pods.text("group", group_of)
    code = snapshot.dictionary.find(group)  # after the column, whose first use names them
    rows = np.flatnonzero((groups == code) & (pods.node >= 0))
    found = rows.tolist() if code >= 0 else []
    return [row for row in found if pods.pod(row).namespace == pod.namespace]


def _failed_at(snapshot: Snapshot, key: str) -> float:
    failure: GangFailure | None = snapshot.objects("GangFailure").get(key)
    return MISSING if failure is None else failure.at


#: `group.*` -> what of an object it is.
_OF_OBJECTS: Final[Mapping[str, Callable[[Any], float]]] = MappingProxyType(
    {
        "min_member": lambda group: number_of(group.minimum),
        "schedule_timeout": lambda group: number_of(group.timeout_seconds),
        "created": lambda group: epoch_seconds(group.metadata.creation_timestamp),
    }
)
#: What is counted of a group's members.
COUNTS: Final = ("size", "assigned", "reserved", "waiting")
