"""A profile's nodeSelector: a filter before all plugins; messages leave other nodes out.

Pods on the other nodes still count where a plugin looks at a zone or at the whole cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from engine.framework.decision import Rejection, Rejections
from engine.framework.events import (
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    QueueingHint,
    Resource,
    Seen,
)
from engine.framework.interface import Points, PreFilterResult, State, Verdicts
from engine.framework.snapshot import BoolColumn, Cause, Rows, Snapshot, label_column
from engine.framework.status import unresolvable
from engine.objects import Node
from engine.pods.podinfo import PodInfo

NAME: Final = "nodeSelector of the profile"
_NODES: Final = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)
_OUTSIDE: Final = unresolvable()


class View:
    """The nodes with certain labels."""

    name: Final = NAME

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = dict(labels)

    def points(self) -> Points:
        """Wakes pods when a node comes or gets the labels."""
        return Points(
            events=(ClusterEventWithHint(_NODES, self._hint),),
            pre_filter=lambda *_: PreFilterResult(causes=Cause.LABELS, shared=True),
            filter=self._filter,
        )

    def mask(self, snapshot: Snapshot) -> BoolColumn:
        """(N,) the nodes that are seen."""
        mask = snapshot.nodes.present.copy()
        for key, value in self._labels.items():
            codes = snapshot.nodes.text(*label_column(key))  # first: it brings the texts
            code = snapshot.dictionary.find(value)
            mask &= (codes == code) & (code >= 0)
        return mask

    def told(self, found: Rejections, snapshot: Snapshot) -> Rejections:
        """The rejections without nodes that are not seen."""
        seen = self.mask(snapshot)
        outside = np.flatnonzero(snapshot.nodes.present & ~seen)
        each = [one for one in found.each if one.plugin != NAME]
        if len(outside):
            each.insert(0, Rejection(NAME, _OUTSIDE, outside))
        left_out = found.left_out
        if left_out is not None:
            left_out = left_out[seen[left_out]]
        nodes, ended = int(np.count_nonzero(seen)), found.ended
        if ended is not None:
            ended = replace(ended, nodes=nodes, plugins=ended.plugins | {NAME})
        return replace(found, nodes=nodes, each=each, left_out=left_out, ended=ended)

    def _filter(self, _state: State, _pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
        return Verdicts.uniform(np.asarray(self.mask(snapshot)[rows]), _OUTSIDE)

    def _hint(self, _pod: PodInfo, before: Seen, after: Seen, _: Snapshot) -> QueueingHint:
        came = self._sees(after) and not self._sees(before)
        return QueueingHint.QUEUE if came else QueueingHint.SKIP

    def _sees(self, node: Seen) -> bool:
        labels = self._labels.items()
        return isinstance(node, Node) and labels <= (node.metadata.labels or {}).items()
