"""NodeResourcesFit: a node must have room for the pod; the better the room, the higher the score.

The filter asks for what the pod's spec requests, the score for what its containers request, with
defaults for those that request nothing (`PodInfo`). Scores are whole numbers as kube-scheduler's:
computed in floats where those are exact, else in 64-bit integers that wrap as Go's do.

Source: kubernetes plugins/noderesources: fit.go, resource_allocation.go, least_allocated.go,
most_allocated.go, requested_to_capacity_ratio.go.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.framework.events import Action, QueueingHint, Resource, Seen
from engine.framework.interface import (
    PluginArgs,
    Points,
    PreFilterResult,
    PreScoreResult,
    Room,
    Scores,
    State,
    StatusGroups,
    Verdicts,
)
from engine.framework.snapshot import BoolColumn, Cause, NodeColumns, Rows, Snapshot
from engine.framework.status import Status, unresolvable, unschedulable
from engine.objects import Node, Pod
from engine.plugins.allocation import Scorer, ScoringStrategy, counting, used_of
from engine.plugins.hints import always, changed, gone, now, on, placed, queue_if
from engine.plugins.shares import FitAndBalance, Role, Shares
from engine.pods.podinfo import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    PodInfo,
    is_extended_resource,
    make_pod_info,
)
from engine.pods.selectors import is_label_key
from engine.text.quantity import resource_amount

NAME: Final = "NodeResourcesFit"
TOO_MANY_PODS: Final = "Too many pods"
_ROOM: Final = PreFilterResult(causes=Cause.POD | Cause.ALLOCATABLE)
_BUILT_IN: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)
MOST_UNKNOWN: Final = 64
"""How many resources that no node has are looked at; one is enough to reject."""
_BITS_OF_A_KEY: Final = 32


class NodeResourcesFitArgs(PluginArgs, frozen=True):
    """`pluginConfig` of NodeResourcesFit."""

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: ScoringStrategy | None = None


class NodeResourcesFit:
    """Filters by free resources and pod count, scores by allocation."""

    def __init__(self, args: NodeResourcesFitArgs | None = None) -> None:
        """Reads the profile's arguments.

        Raises:
            ValueError: the scoring strategy is not valid, or a name is none of a resource or group.
        """
        args = args or NodeResourcesFitArgs()
        for group in args.ignored_resource_groups:
            if "/" in group:
                raise ValueError(f"ignoredResourceGroups: {group!r}: a group has no slash")
        for field, names in (
            ("ignoredResources", args.ignored_resources),
            ("ignoredResourceGroups", args.ignored_resource_groups),
        ):
            if wrong := [name for name in names if not is_label_key(name)]:
                raise ValueError(f"{field}: {wrong[0]!r} is not the name of a resource or group")
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        self._ignores_some = bool(self._ignored or self._ignored_groups)
        strategy = args.scoring_strategy or ScoringStrategy("LeastAllocated")
        self._scorer = Scorer(strategy)
        self._shares = Shares()
        self._there: tuple[Hashable, bool] = None, False
        """What `_room_there` was asked last, and whether there was room."""
        self._said = PreScoreResult(
            state=Role.LEAST if strategy.is_default else None, causes=Cause.POD | Cause.ALLOCATABLE
        )

    name: Final = NAME

    def points(self) -> Points:
        """Room is made: a pod goes or shrinks, a node comes or grows, the pod itself shrinks."""
        had_room, shrinks = gone(Pod, lambda _, other: placed(other)), Action.UPDATE_POD_SCALE_DOWN
        grows = Action.ADD | Action.UPDATE_NODE_ALLOCATABLE
        return Points(
            events=(
                on(Resource.ASSIGNED_POD, Action.DELETE, had_room, self._room_there),
                on(Resource.NODE, grows, now(Node, _grows)),
                on(Resource.ASSIGNED_POD, shrinks, changed(Pod, _gives_back)),
                on(Resource.TARGET_POD, shrinks, always),
            ),
            class_key=lambda pod, _: pod.requests_key,
            pre_filter=lambda *_: _ROOM,
            filter=self._filter,
            rooms=self._rooms,
            joint=self._joint,
            pre_score=lambda *_: self._said,
            score=self._score,
        )

    def _needs(self, pod: PodInfo, nodes: NodeColumns | None = None) -> list[tuple[str, int]]:
        """The resources that a node must have left, and how much."""
        each = [
            (resource, amount)
            for resource, amount in pod.filter_requests.items()
            if amount > 0 and not (self._ignores_some and self._ignores(resource))
        ]
        if nodes is not None and len(each) > MOST_UNKNOWN:
            unknown = [one for one in each if not nodes.names_resource(one[0])]
            each = [one for one in each if nodes.names_resource(one[0])] + unknown[:MOST_UNKNOWN]
        return each

    def _rooms(self, pod: PodInfo, snapshot: Snapshot) -> list[Room]:
        """See `Points.rooms`; the first is for the number of pods."""
        nodes = snapshot.nodes
        rooms = [Room("", nodes.allocatable(PODS), nodes.pod_count, 1, TOO_MANY_PODS)]
        for resource, amount in sorted(self._needs(pod, nodes), key=_built_in_first):
            limit, used = nodes.allocatable(resource), nodes.requested(resource)
            rooms.append(Room(resource, limit, used, amount, f"Insufficient {resource}"))
        return rooms

    def _filter(self, state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
        """Rejects nodes without room for one more pod, or for what it requests."""
        nodes = snapshot.nodes
        passed = nodes.pod_count[rows] < nodes.allocatable(PODS)[rows]
        for resource, need in self._needs(pod, nodes):
            passed &= nodes.allocatable(resource)[rows] - nodes.requested(resource)[rows] >= need
        return Verdicts(passed, lambda: _reasons(self._rooms(pod, snapshot), rows))

    def _joint(
        self, pod: PodInfo, scorers: Mapping[str, tuple[float, State]]
    ) -> FitAndBalance | None:
        if len(pod.filter_requests) > MOST_UNKNOWN:
            return None
        more = [one for one in self._needs(pod) if one[0] not in (CPU, MEMORY)]
        joint = FitAndBalance(self._shares, pod, scorers, more)
        return joint if joint.exact else None

    def _score(self, state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        """How well the pod fits, by the strategy."""
        nodes = snapshot.nodes
        usages = [
            (i, nodes.allocatable(resource)[rows], used_of(nodes, resource)[rows], request)
            for i, resource, request in counting(self._scorer.resources, pod.score_requests)
        ]
        return self._scorer.scores(usages) if usages else np.zeros(len(nodes.pod_count[rows]))

    def _room_there(
        self, pod: PodInfo, before: Seen, after: Seen, snapshot: Snapshot
    ) -> QueueingHint:
        """SKIP if the pod waits for room on its nominated node, and still does not fit there.

        While its own victims are being evicted, those of others do not help it.
        """
        nominations = snapshot.nominations
        promised = nominations.node_of(pod.uid)
        node = before.node_name if isinstance(before, Pod) else None
        if not node or not promised or promised == node:
            return QueueingHint.QUEUE
        # Hundreds of nominated pods may request the same, and be asked about each victim that goes.
        about = snapshot.generation, nominations.version, node, pod.priority, pod.requests_key
        if self._there[0] != about:
            row = snapshot.nodes.row(node)
            ahead = nominations.ahead(pod, node)
            left = (
                room.limit.item(row) - room.used.item(row) - sum(map(room.held, ahead)) - room.need
                for room in self._rooms(pod, snapshot)
            )
            self._there = about, row >= 0 and min(left) >= 0
        return queue_if(self._there[1])

    def _ignores(self, resource: str) -> bool:
        if not is_extended_resource(resource):
            return False
        return resource in self._ignored or resource.partition("/")[0] in self._ignored_groups


def _built_in_first(item: tuple[str, int]) -> tuple[int, str]:
    resource = item[0]
    return (_BUILT_IN.index(resource) if resource in _BUILT_IN else len(_BUILT_IN)), resource


def _reasons(rooms: Sequence[Room], rows: Rows) -> StatusGroups:
    """Rejected nodes with the same shortages together."""
    flags: list[BoolColumn] = []
    never = np.zeros(len(rooms[0].limit[rows]), np.bool_)
    for room in rooms:
        limit, used = room.limit[rows], room.used[rows]
        lacks = limit - used < room.need if room.resource else used >= limit
        if room.resource:
            never |= lacks & (limit < room.need)
        flags.append(lacks)
    flags.append(never)
    groups = [(alike, [bool(flag[alike[0]]) for flag in flags]) for alike in _alike(flags)]
    return [(_shortage(rooms, pattern), alike) for alike, pattern in groups if any(pattern)]


def _shortage(rooms: Sequence[Room], pattern: Sequence[bool]) -> Status:
    *short, never = pattern
    reasons = [room.short for room, lacks in zip(rooms, short, strict=True) if lacks]
    return unresolvable(*reasons) if never else unschedulable(*reasons)


def _alike(flags: Sequence[BoolColumn]) -> list[NDArray[np.intp]]:
    """Positions with the same flags together."""
    keys = np.zeros(len(flags[0]), np.int64)
    for number, flag in enumerate(reversed(flags), 1):
        keys *= 2
        keys += flag
        if number % _BITS_OF_A_KEY == 0:
            keys = np.unique(keys, return_inverse=True)[1]
    # Neighbours are mostly alike; to sort all keys would take longer than everything else.
    ends = keys[:-1][keys[1:] != keys[:-1]]
    found = sorted({*ends.tolist(), *keys[-1:].tolist()})
    return [np.flatnonzero(keys == key) for key in found]


# ---- hints -----------------------------------------------------------------------------------


def _gives_back(pod: PodInfo, before: Pod, after: Pod) -> bool:
    """Whether the other pod gave back something that the waiting one requests."""
    if not after.node_name:
        return False
    try:
        held, holds = make_pod_info(before).requests, make_pod_info(after).requests
    except ValueError:
        return True
    return any(
        amount != 0 and max(held.get(resource, 0), 0) > max(holds.get(resource, 0), 0)
        for resource, amount in pod.requests.items()
    )


def _grows(pod: PodInfo, before: Node | None, after: Node) -> bool:
    """Whether the pod fits the node when it is empty, and the node is new or has grown."""
    needs = {resource: amount for resource, amount in pod.filter_requests.items() if amount > 0}
    wanted = {PODS: 1, **needs}
    try:
        there = _allocatable(after)
        if any(there.get(name, 0) < amount for name, amount in wanted.items()):
            return False
        had = {} if before is None else _allocatable(before)
    except ValueError:
        return True
    return before is None or any(there.get(name, 0) > had.get(name, 0) for name in wanted)


def _allocatable(node: Node) -> Mapping[str, int]:
    status = node.status
    given = status.allocatable if status.allocatable is not None else status.capacity
    return {name: resource_amount(name, quantity) for name, quantity in (given or {}).items()}
