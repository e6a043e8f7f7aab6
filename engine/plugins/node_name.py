"""NodeName: a pod that names its node can go nowhere else.

Source: kubernetes plugins/nodename/node_name.go.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.framework.events import Action, Resource
from engine.framework.interface import PASS, Points, PreFilterResult, State, Verdicts
from engine.framework.snapshot import Cause, Rows, Snapshot
from engine.framework.status import unresolvable
from engine.plugins.hints import on
from engine.pods.podinfo import PodInfo

WRONG_NODE: Final = unresolvable("node(s) didn't match the requested node name")


class NodeName:
    """Filters by `spec.nodeName`."""

    name: Final = "NodeName"

    def points(self) -> Points:
        """A node of that name may come."""
        return Points(
            events=(on(Resource.NODE, Action.ADD),),
            class_key=lambda pod, _: pod.pod.node_name,
            pre_filter=_pre_filter,
            filter=_filter,
        )


def _pre_filter(pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
    """Only the named node, if one is named."""
    name = pod.pod.node_name
    if not name:
        return PASS
    row = snapshot.nodes.row(name)
    rows = np.array([row] if row >= 0 else [], dtype=np.intp)
    return PreFilterResult(rows=rows, names=frozenset((name,)), causes=Cause(0))


def _filter(state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
    name = pod.pod.node_name
    passed = snapshot.nodes.name_codes()[rows] == snapshot.dictionary.find(name)
    return Verdicts.uniform(passed, WRONG_NODE)
