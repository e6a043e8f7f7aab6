"""NodePorts: a port of a node goes to one pod only.

Source: kubernetes plugins/nodeports/node_ports.go.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.framework.events import Action, Resource
from engine.framework.interface import SKIP_FILTER, Points, PreFilterResult, State, Verdicts
from engine.framework.snapshot import Cause, Rows, Snapshot
from engine.framework.status import unschedulable
from engine.objects import Pod
from engine.plugins.hints import gone, on, placed
from engine.pods.podinfo import PodInfo, host_ports, taken

NO_FREE_PORTS: Final = unschedulable("node(s) didn't have free ports for the requested pod ports")
_BY_PORTS: Final = PreFilterResult(causes=Cause.POD)


class NodePorts:
    """Filters by the host ports of the pod's containers and sidecars."""

    name: Final = "NodePorts"

    def points(self) -> Points:
        """A pod that has the port goes; a node comes."""
        return Points(
            events=(
                on(Resource.ASSIGNED_POD, Action.DELETE, gone(Pod, _frees)),
                on(Resource.NODE, Action.ADD),
            ),
            class_key=lambda pod, _: host_ports(pod.pod),
            pre_filter=lambda pod, _: _BY_PORTS if host_ports(pod.pod) else SKIP_FILTER,
            filter=_filter,
            concerns=lambda _state, _pod, other, _: bool(host_ports(other.pod)),
        )


def _filter(state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
    """Rejects nodes where one of the ports is taken."""
    passed = np.ones(snapshot.nodes.size, dtype=np.bool_)
    for port in host_ports(pod.pod):
        taken = snapshot.nodes.ports.rows(port)
        passed[np.fromiter(taken, dtype=np.intp, count=len(taken))] = False
    return Verdicts.uniform(passed[rows], NO_FREE_PORTS)


def _frees(pod: PodInfo, other: Pod) -> bool:
    """Whether the other pod had a port that the waiting one wants."""
    theirs = host_ports(other) if placed(other) else ()
    return any(taken(one, theirs) for one in host_ports(pod.pod))
