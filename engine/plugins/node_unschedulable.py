"""NodeUnschedulable: cordoned nodes take only pods that tolerate the cordon's taint.

Source: kubernetes plugins/nodeunschedulable/node_unschedulable.go.
"""

from __future__ import annotations

from typing import Final

from engine.framework.events import Action, Resource
from engine.framework.interface import PASS, Points, PreFilterResult, State, Verdicts
from engine.framework.snapshot import Cause, Rows, Snapshot
from engine.framework.status import unresolvable
from engine.objects import Node, Pod, Taint
from engine.plugins.hints import now, on
from engine.plugins.taint_toleration import NO_SCHEDULE, tolerates
from engine.pods.podinfo import PodInfo

NAME: Final = "NodeUnschedulable"
UNSCHEDULABLE: Final = unresolvable("node(s) were unschedulable")
CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)
_CORDONS: Final = PreFilterResult(causes=Cause.TAINTS, shared=True)


class NodeUnschedulable:
    """Filters by `spec.unschedulable` of the node."""

    name: Final = NAME

    def points(self) -> Points:
        """A schedulable node comes, a node is uncordoned, the pod learns to tolerate."""
        node = Action.ADD | Action.UPDATE_NODE_TAINT
        gives_in = now(Pod, lambda _, __, pod: tolerates(pod.spec.tolerations or (), CORDON))
        return Points(
            events=(
                on(Resource.NODE, node, now(Node, _opens)),
                on(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION, gives_in),
            ),
            class_key=lambda pod, _: _tolerates_cordon(pod),
            pre_filter=lambda pod, _: PASS if _tolerates_cordon(pod) else _CORDONS,
            filter=_filter,
        )


def _filter(state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
    return Verdicts.uniform(~snapshot.nodes.unschedulable[rows], UNSCHEDULABLE)


def _tolerates_cordon(pod: PodInfo) -> bool:
    tolerations = pod.pod.spec.tolerations
    return tolerations is not None and tolerates(tolerations, CORDON)


def _opens(pod: PodInfo, before: Node | None, after: Node) -> bool:
    was_open = before is not None and not before.spec.unschedulable
    return not (after.spec.unschedulable or was_open)
