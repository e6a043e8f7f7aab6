"""NodeUnschedulable: cordoned nodes take only pods that tolerate the cordon's taint.

Source: kubernetes plugins/nodeunschedulable/node_unschedulable.go.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from engine.framework.events import (
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    QueueingHint,
    Resource,
    Seen,
)
from engine.framework.interface import PASS, Points, PreFilterResult, State, Verdicts
from engine.framework.podinfo import PodInfo
from engine.framework.snapshot import Cause, Rows, Snapshot
from engine.framework.status import unresolvable
from engine.objects import Node, Pod, Taint
from engine.plugins.tolerations import NO_SCHEDULE, tolerates

NAME: Final = "NodeUnschedulable"
UNSCHEDULABLE: Final = unresolvable("node(s) were unschedulable")
CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)
_CORDONS: Final = PreFilterResult(causes=Cause.TAINTS, shared=True)


class NodeUnschedulable:
    """Filters by `spec.unschedulable` of the node."""

    name: Final = NAME

    def points(self) -> Points:
        """A schedulable node comes, a node is uncordoned, the pod learns to tolerate."""
        node = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT)
        pod = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION)
        return Points(
            events=(
                ClusterEventWithHint(node, _after_node_change),
                ClusterEventWithHint(pod, _after_toleration),
            ),
            class_key=_key,
            pre_filter=_pre_filter,
            filter=_filter,
        )


def _key(pod: PodInfo, snapshot: Snapshot) -> Hashable:
    return _tolerates_cordon(pod)


def _pre_filter(pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
    return PASS if _tolerates_cordon(pod) else _CORDONS


def _filter(state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
    return Verdicts.uniform(~snapshot.nodes.unschedulable[rows], UNSCHEDULABLE)


def _tolerates_cordon(pod: PodInfo) -> bool:
    tolerations = pod.pod.spec.tolerations
    if not tolerations:
        return False
    known = pod.keys.get(NAME)
    if known is None:
        known = pod.keys[NAME] = tolerates(tolerations, CORDON)
    return known is True


def _after_node_change(pod: PodInfo, before: Seen, after: Seen, snapshot: Snapshot) -> QueueingHint:
    if not isinstance(after, Node):
        return QueueingHint.QUEUE
    was_schedulable = isinstance(before, Node) and not before.spec.unschedulable
    if after.spec.unschedulable or was_schedulable:
        return QueueingHint.SKIP
    return QueueingHint.QUEUE


def _after_toleration(pod: PodInfo, before: Seen, after: Seen, snapshot: Snapshot) -> QueueingHint:
    if isinstance(after, Pod) and not tolerates(after.spec.tolerations or (), CORDON):
        return QueueingHint.SKIP
    return QueueingHint.QUEUE
