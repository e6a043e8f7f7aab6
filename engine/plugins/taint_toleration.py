"""TaintToleration: taints keep pods off that do not tolerate them, or make their nodes second best.

Taints are few and shared by many nodes: each distinct list of taints is judged once, and nodes look
their verdict up. NodeUnschedulable, for which only the taint of
cordons counts, is here, too.

Source: kubernetes plugins/tainttoleration/taint_toleration.go,
plugins/nodeunschedulable/node_unschedulable.go.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Sequence
from typing import Final

import msgspec
import numpy as np

from engine.framework.events import Action, Resource
from engine.framework.interface import (
    PASS,
    Normalization,
    Points,
    PreFilterResult,
    PreScoreResult,
    Scores,
    State,
    Verdicts,
)
from engine.framework.snapshot import Cause, NodeColumns, Rows, Snapshot
from engine.framework.status import unresolvable
from engine.objects import Node, Pod, Taint, Toleration
from engine.plugins.hints import always, now, on
from engine.pods.podinfo import PodInfo

NAME: Final = "TaintToleration"
UNTOLERATED: Final = unresolvable("node(s) had untolerated taint(s)")
NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
_NO_TOLERATIONS: Final = ()
_MANY: Final = 32
UNSCHEDULABLE: Final = unresolvable("node(s) were unschedulable")
CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)
_CORDONS: Final = PreFilterResult(causes=Cause.TAINTS, shared=True)


def tolerates(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    """True if any of the tolerations covers the taint; Lt and Gt are off, as in 1.37.

    Source: k8s.io/api core/v1 toleration.go, ToleratesTaint.
    """
    return any(_covers(toleration, taint) for toleration in tolerations)


def _covers(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def all_tolerated(tolerations: Sequence[Toleration], taints: Sequence[Taint]) -> bool:
    """True if no taint keeps the pod off: all that forbid scheduling are tolerated."""
    return all(
        tolerates(tolerations, taint)
        for taint in taints
        if taint.effect in (NO_SCHEDULE, NO_EXECUTE)
    )


class TaintToleration:
    """Filters by NoSchedule and NoExecute taints, scores by PreferNoSchedule ones."""

    name: Final = NAME

    def points(self) -> Points:
        """A node without the taint comes, a node loses it, the pod learns to tolerate."""
        node = Action.ADD | Action.UPDATE_NODE_TAINT
        return Points(
            events=(
                on(Resource.NODE, node, now(Node, _begins_to_suit)),
                on(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION, always),
            ),
            class_key=_key,
            pre_filter=_pre_filter,
            filter=_filter,
            pre_score=_pre_score,
            score=_score,
        )


def _filter(state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
    """Rejects nodes with a taint that forbids scheduling and is not tolerated."""
    own = pod.pod.spec.tolerations or ()
    passed = by_taints(lambda taints: all_tolerated(own, taints), snapshot.nodes, rows) > 0
    return Verdicts.uniform(passed, UNTOLERATED)


def _score(state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
    """Number of PreferNoSchedule taints that are not tolerated."""
    own = pod.pod.spec.tolerations or ()

    def unliked(taints: Sequence[Taint]) -> int:
        return sum(t.effect == PREFER_NO_SCHEDULE and not tolerates(own, t) for t in taints)

    return by_taints(unliked, snapshot.nodes, rows)


def by_taints(judge: Callable[[Sequence[Taint]], float], nodes: NodeColumns, rows: Rows) -> Scores:
    """(n,) what it says of each row's taints; it is asked once about each distinct list."""
    codes = nodes.taint_set[rows]
    table = np.zeros(len(nodes.taint_sets))
    for number in np.flatnonzero(np.bincount(codes)).tolist():
        table[number] = judge(nodes.taint_sets[number])
    judged: Scores = table[codes]
    return judged


def _key(pod: PodInfo, snapshot: Snapshot) -> Hashable:
    """The tolerations, each once; a hash of them if they are many."""
    tolerations = pod.pod.spec.tolerations
    if not tolerations:
        return _NO_TOLERATIONS
    key = pod.keys.get(NAME)
    if key is None:
        key = tuple(dict.fromkeys((t.key, t.operator, t.value, t.effect) for t in tolerations))
        if len(key) > _MANY:  # anybody may send a lot of them; what is kept stays small
            key = hashlib.blake2b(msgspec.msgpack.encode(key), digest_size=16).digest()
        pod.keys[NAME] = key
    return key


def _pre_filter(pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
    return PreFilterResult(causes=Cause.TAINTS, shared=_key(pod, snapshot))


def _pre_score(pod: PodInfo, snapshot: Snapshot) -> PreScoreResult:
    """Never skipped; the fewer the better: 100 without any, 0 for the most."""
    return PreScoreResult(
        causes=Cause.TAINTS, shared=_key(pod, snapshot), normalization=Normalization.BY_MAX_REVERSED
    )


def _begins_to_suit(pod: PodInfo, before: Node | None, after: Node) -> bool:
    tolerations = pod.pod.spec.tolerations or ()
    now = all_tolerated(tolerations, after.spec.taints or ())
    return now and (before is None or not all_tolerated(tolerations, before.spec.taints or ()))


# ---- cordons -------------------------------------------------------------------------------------


class NodeUnschedulable:
    """Filters by `spec.unschedulable` of the node."""

    name: Final = "NodeUnschedulable"

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
            filter=_uncordoned,
        )


def _uncordoned(state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
    return Verdicts.uniform(~snapshot.nodes.unschedulable[rows], UNSCHEDULABLE)


def _tolerates_cordon(pod: PodInfo) -> bool:
    tolerations = pod.pod.spec.tolerations
    return tolerations is not None and tolerates(tolerations, CORDON)


def _opens(pod: PodInfo, before: Node | None, after: Node) -> bool:
    was_open = before is not None and not before.spec.unschedulable
    return not (after.spec.unschedulable or was_open)
