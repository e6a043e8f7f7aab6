"""RackScore: keeps pods out of a rack that they name, and prefers racks with a high number.

A pod says `example.com/not-in-rack: "3"` as an annotation; a node has the label `example.com/rack`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.framework.events import Action, ClusterEvent, ClusterEventWithHint, Resource
from engine.framework.interface import (
    SKIP_FILTER,
    Normalization,
    Points,
    PreFilterResult,
    PreScoreResult,
    Scores,
    Verdicts,
)
from engine.framework.snapshot import Cause, Rows, Snapshot, label_column
from engine.framework.status import unresolvable
from engine.objects import Node
from engine.pods.podinfo import PodInfo

NODES = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)
NAMED = unresolvable("node(s) were in the rack that the pod named")
SCORES = PreScoreResult(causes=Cause.LABELS, shared=True, normalization=Normalization.BY_MAX)


class RackScore:
    """What a profile has of it; `label` is the argument that it takes."""

    name = "RackScore"

    def __init__(self, label: str) -> None:
        self._label = label

    def points(self) -> Points:
        """A filter that some pods do without, and a score that is the same for all pods."""
        return Points(
            events=(ClusterEventWithHint(NODES),),
            class_key=lambda pod, _: _named(pod),
            pre_filter=self._pre_filter,
            filter=self._filter,
            pre_score=lambda *_: SCORES,
            score=self._score,
        )

    def _pre_filter(self, pod: PodInfo, _: Snapshot) -> PreFilterResult:
        rack = _named(pod)
        return PreFilterResult(state=rack, causes=Cause.LABELS) if rack else SKIP_FILTER

    def _filter(self, rack: str, _: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
        codes = snapshot.nodes.text(*label_column(self._label))[rows]  # -1: no such label
        code = snapshot.dictionary.find(rack)  # -1: no node has it
        return Verdicts.uniform((codes != code) | (codes < 0), NAMED)

    def _score(self, _state: object, _: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        numbers = snapshot.nodes.number(f"{self.name}:{self._label}", self._number)
        return np.nan_to_num(numbers[rows])

    def _number(self, node: Node) -> float:
        text = (node.metadata.labels or {}).get(self._label, "")
        return float(text) if text.isdecimal() else np.nan


def _named(pod: PodInfo) -> str:
    return (pod.pod.metadata.annotations or {}).get("example.com/not-in-rack", "")


def make(args: Mapping[str, Any]) -> RackScore:
    """The entry point: `args` is what `pluginConfig` says, empty if it says nothing."""
    unknown = args.keys() - {"label"}
    if unknown:
        raise ValueError(f"unknown arguments: {', '.join(sorted(unknown))}")
    return RackScore(str(args.get("label", "example.com/rack")))
