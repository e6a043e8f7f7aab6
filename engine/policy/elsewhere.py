"""What policies read that no row of the snapshot holds: objects of other kinds, by node or pod."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from dsl.types import MISSING
from engine.framework.snapshot import FloatColumn, Snapshot
from engine.objects.storage import CSINode
from engine.ondemand import Lease, Workload, scale_kind
from engine.pods.podinfo import PodInfo
from engine.pods.workloads import top_owner
from engine.policy.podreads import epoch_seconds, number_of


def workload_object(pod: PodInfo, snapshot: Snapshot) -> Workload | None:
    """The object that the pod's top owner is, if it is known."""
    owner = top_owner(pod)
    if owner is None:
        return None
    kind, name = owner
    found: Workload | None = snapshot.objects(scale_kind(kind)).get(f"{pod.namespace}/{name}")
    return found


def workload_texts(pod: PodInfo, snapshot: Snapshot, part: str) -> Mapping[str, str]:
    """Labels or annotations of the pod's workload."""
    found = workload_object(pod, snapshot)
    if found is None:
        return {}
    meta = found.metadata
    return (meta.labels if part == "label" else meta.annotations) or {}


def workload_replicas(pod: PodInfo, snapshot: Snapshot) -> float:
    """How many pods the pod's workload asks for."""
    found = workload_object(pod, snapshot)
    return MISSING if found is None else number_of(found.replicas)


class NodeObjects:
    """A number for each node off the object of its name; read again when the object changed."""

    def __init__(self, kind: str, of: Callable[[Any], float], prefix: str = "") -> None:
        """`prefix` stands before the names of objects."""
        self._kind = kind
        self._of = of
        self._prefix = prefix
        self._seen = -1, -1
        self._column: FloatColumn = np.empty(0)

    def column(self, snapshot: Snapshot) -> FloatColumn:
        """(N,) the numbers, NaN without an object."""
        nodes = snapshot.nodes
        seen = snapshot.layout, snapshot.objects_version(self._kind)
        if seen == self._seen and len(self._column) == nodes.size:
            return self._column
        objects = snapshot.objects(self._kind)
        same = seen[0] == self._seen[0] and len(self._column) == nodes.size
        changed = snapshot.objects_changed(self._kind, self._seen[1]) if same else None
        if changed is None:
            changed = list(objects)
            self._column = np.full(nodes.size, MISSING)
        else:
            self._column = self._column.copy()
        for key in changed:
            row = nodes.row(key.removeprefix(self._prefix))
            if row >= 0:
                found = objects.get(key)
                self._column[row] = MISSING if found is None else self._of(found)
        self._column.flags.writeable = False
        self._seen = seen
        return self._column


def volume_limit(node: CSINode) -> float:
    """How many volumes the drivers of a node can attach."""
    counts = [
        one.allocatable.count
        for one in node.spec.drivers or ()
        if one.allocatable is not None and one.allocatable.count is not None
    ]
    return float(sum(counts)) if counts else MISSING


def renewed(lease: Lease) -> float:
    """When a lease was renewed."""
    return epoch_seconds(lease.spec.renew_time)


LEASES: Final = "kube-node-lease"
"""The namespace of the leases of nodes."""
