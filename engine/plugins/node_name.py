"""NodeName: a pod that names its node can go nowhere else.

Source: kubernetes plugins/nodename/node_name.go.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

import numpy as np

from engine.framework.events import Action, ClusterEvent, ClusterEventWithHint, Resource
from engine.framework.interface import ALL_PASS, PreFilterResult, Scope, State, Verdicts
from engine.framework.podinfo import PodInfo
from engine.framework.snapshot import Rows, Snapshot
from engine.framework.status import unresolvable

WRONG_NODE: Final = unresolvable("node(s) didn't match the requested node name")
_ANY_NODE: Final = PreFilterResult()


class NodeName:
    """Filters by `spec.nodeName`."""

    @property
    def name(self) -> str:
        """See `Plugin.name`."""
        return "NodeName"

    @property
    def scope(self) -> Scope:
        """One row at a time."""
        return Scope.ROW

    def events(self) -> Sequence[ClusterEventWithHint]:
        """The node may come."""
        return (ClusterEventWithHint(ClusterEvent(Resource.NODE, Action.ADD)),)

    def class_key(self, pod: PodInfo, snapshot: Snapshot) -> Hashable:
        """The node's name."""
        return pod.pod.spec.node_name

    def version(self, snapshot: Snapshot) -> Hashable:
        """Nothing but rows is read."""
        return None

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
        """Only the named node, if one is named."""
        name = pod.pod.spec.node_name
        if not name:
            return _ANY_NODE
        row = snapshot.nodes.row(name)
        rows = np.array([row] if row >= 0 else [], dtype=np.intp)
        return PreFilterResult(rows=rows, names=frozenset((name,)))

    def filter(self, state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
        """Passes the named node."""
        name = pod.pod.spec.node_name
        if not name:
            return ALL_PASS
        passed = snapshot.nodes.name_codes()[rows] == snapshot.dictionary.find(name)
        return Verdicts.uniform(passed, WRONG_NODE)
