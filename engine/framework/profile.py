"""A profile: a scheduler name, the plugins that decide for its pods, and the nodes that they see.

Pods on other nodes still count where a plugin looks at a zone or at the whole cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

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
from engine.framework.interface import Plugin, Points, PreFilterResult, State, Verdicts
from engine.framework.snapshot import BoolColumn, Cause, Rows, Snapshot, label_column
from engine.framework.status import unresolvable
from engine.objects import Node
from engine.pods.podinfo import PodInfo


@dataclass(frozen=True, slots=True)
class Weighted:
    """A plugin and the weight of its scores."""

    plugin: Plugin
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Changed:
    """A plugin with other points than it has by itself."""

    plugin: Plugin
    change: Callable[[Points], Points]

    @property
    def name(self) -> str:
        """See `Plugin.name`."""
        return self.plugin.name

    def points(self) -> Points:
        """See `Plugin.points`."""
        return self.change(self.plugin.points())


def without(off: frozenset[str], points: Points) -> Points:
    """The points but for some, which the profile disables."""
    nothing: dict[str, Any] = dict.fromkeys(off)
    if "filter" in off and points.unfiltered is not None:
        points = points.unfiltered
    return replace(points, **nothing)


@dataclass(frozen=True, slots=True)
class Profile:
    """Plugins in the order in which they are asked, at every extension point they implement.

    `order` has the names at the points where the order is another; those it does not name follow.
    `node_selector` is the labels of the nodes that it sees; to its pods there are no others.
    """

    scheduler_name: str
    plugins: tuple[Weighted, ...]
    seed: int = 0
    order: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)


VIEW: Final = "nodeSelector of the profile"
_NODE_COMES: Final = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)
_OUTSIDE: Final = unresolvable()


class View:
    """A profile's nodeSelector: a filter before all plugins; messages leave other nodes out."""

    name: Final = VIEW

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = dict(labels)

    def points(self) -> Points:
        """Wakes pods when a node comes or gets the labels."""
        return Points(
            events=(ClusterEventWithHint(_NODE_COMES, self._hint),),
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
        each = [one for one in found.each if one.plugin != VIEW]
        if len(outside):
            each.insert(0, Rejection(VIEW, _OUTSIDE, outside))
        left_out = found.left_out
        if left_out is not None:
            left_out = left_out[seen[left_out]]
        nodes, ended = int(np.count_nonzero(seen)), found.ended
        if ended is not None:
            ended = replace(ended, nodes=nodes, plugins=ended.plugins | {VIEW})
        return replace(found, nodes=nodes, each=each, left_out=left_out, ended=ended)

    def _filter(self, _state: State, _pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
        return Verdicts.uniform(np.asarray(self.mask(snapshot)[rows]), _OUTSIDE)

    def _hint(self, _pod: PodInfo, before: Seen, after: Seen, _: Snapshot) -> QueueingHint:
        came = self._sees(after) and not self._sees(before)
        return QueueingHint.QUEUE if came else QueueingHint.SKIP

    def _sees(self, node: Seen) -> bool:
        labels = self._labels.items()
        return isinstance(node, Node) and labels <= (node.metadata.labels or {}).items()
