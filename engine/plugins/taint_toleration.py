"""TaintToleration: taints keep pods off that do not tolerate them, or make their nodes second best.

Taints are few and shared by many nodes: each distinct list of taints is judged once for each list
of tolerations, and nodes look their verdict up.

Source: kubernetes plugins/tainttoleration/taint_toleration.go.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from typing import Final

import msgspec
import numpy as np
from cachetools import LRUCache

from engine.framework.events import Action, Resource
from engine.framework.interface import (
    ALL_PASS,
    Normalization,
    Points,
    PreFilterResult,
    PreScoreResult,
    Scores,
    State,
    Verdicts,
)
from engine.framework.snapshot import BoolColumn, Cause, Rows, Snapshot
from engine.framework.status import unresolvable
from engine.objects import Node, Taint, Toleration
from engine.plugins.hints import always, now, on
from engine.plugins.tolerations import all_tolerated, intolerable_preferences
from engine.pods.podinfo import PodInfo

NAME: Final = "TaintToleration"
UNTOLERATED: Final = unresolvable("node(s) had untolerated taint(s)")
_NO_TOLERATIONS: Final = ()
_REMEMBERED: Final = 256
_MANY: Final = 32


class _Judged:
    """What one list of tolerations says of each distinct list of taints, by its number."""

    __slots__ = ("passes", "penalty")

    def __init__(self) -> None:
        self.passes: BoolColumn = np.empty(0, dtype=np.bool_)
        self.penalty: Scores = np.empty(0)
        """How many of the taints the pod would rather not have."""

    def extend(
        self, tolerations: Sequence[Toleration], taint_sets: Sequence[tuple[Taint, ...]]
    ) -> None:
        """Judges the lists of taints that came since."""
        fresh = taint_sets[len(self.passes) :]
        if not fresh:
            return
        tolerations = tuple(dict.fromkeys(tolerations))
        passes = [all_tolerated(tolerations, taints) for taints in fresh]
        penalty = [float(intolerable_preferences(tolerations, taints)) for taints in fresh]
        self.passes = np.concatenate((self.passes, np.array(passes, dtype=np.bool_)))
        self.penalty = np.concatenate((self.penalty, np.array(penalty)))


class TaintToleration:
    """Filters by NoSchedule and NoExecute taints, scores by PreferNoSchedule ones."""

    def __init__(self) -> None:
        self._taint_sets: Sequence[tuple[Taint, ...]] = ()
        self._judged: LRUCache[Hashable, _Judged] = LRUCache(_REMEMBERED)

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
            filter=self._filter,
            pre_score=_pre_score,
            score=self._score,
        )

    def _filter(self, state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
        """Rejects nodes with a taint that forbids scheduling and is not tolerated."""
        passes = self._judge(pod, snapshot).passes
        if passes.all():
            return ALL_PASS
        return Verdicts.uniform(passes[snapshot.nodes.taint_set[rows]], UNTOLERATED)

    def _score(self, state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        """Number of PreferNoSchedule taints that are not tolerated."""
        return self._judge(pod, snapshot).penalty[snapshot.nodes.taint_set[rows]]

    def _judge(self, pod: PodInfo, snapshot: Snapshot) -> _Judged:
        taint_sets = snapshot.nodes.taint_sets
        if taint_sets is not self._taint_sets:
            # INVARIANT: one list object only grows; another one numbers its entries anew.
            self._taint_sets = taint_sets
            self._judged.clear()
        key = _key(pod, snapshot)
        judged = self._judged.get(key)
        if judged is None:
            judged = self._judged[key] = _Judged()
        judged.extend(pod.pod.spec.tolerations or (), taint_sets)
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
    suits = all_tolerated(tolerations, after.spec.taints or ())
    return suits and (before is None or not all_tolerated(tolerations, before.spec.taints or ()))
