"""What policies read that no row of the snapshot holds: objects of other kinds, images of nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dsl.types import MISSING
from engine.framework.derived import LogPosition, concerned
from engine.framework.snapshot import Cause, CodeColumn, Dictionary, FloatColumn, Snapshot
from engine.objects.ondemand import Workload, scale_kind
from engine.objects.storage import CSINode
from engine.pods.podinfo import PodInfo
from engine.pods.workloads import top_owner

LEASES: Final = "kube-node-lease"
"""The namespace of the leases of nodes."""
_NONE: Final[CodeColumn] = np.empty(0, np.int32)
Lists = tuple[NDArray[np.intp], CodeColumn]
"""(N + 1,) where each node's names start, and the codes of the names."""


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
        nodes, objects = snapshot.nodes, snapshot.objects(self._kind)
        seen = snapshot.layout, snapshot.objects_version(self._kind)
        if seen == self._seen and len(self._column) == nodes.size:
            return self._column
        same = seen[0] == self._seen[0] and len(self._column) == nodes.size
        changed = snapshot.objects_changed(self._kind, self._seen[1]) if same else None
        full = changed is None
        self._column = np.full(nodes.size, MISSING) if full else self._column.copy()
        for key in list(objects) if changed is None else changed:
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


# ---- images


class ImageLists:
    """The names of all nodes; those of a row are read again when its images changed."""

    def __init__(self) -> None:
        self._dictionary: Dictionary | None = None
        self._place = LogPosition()
        self._codes: list[CodeColumn] = []
        self._lists: Lists = np.zeros(1, np.intp), _NONE

    def of(self, snapshot: Snapshot) -> Lists:
        """The lists as they are now."""
        if snapshot.dictionary is not self._dictionary:
            self._dictionary = snapshot.dictionary
            self._place.forget()
        if self._place.at(snapshot):
            return self._lists
        changes, size = self._place.read(snapshot), snapshot.nodes.size
        rows = np.arange(size) if changes is None else concerned(changes, int(Cause.IMAGES))
        if len(rows) or len(self._codes) != size:
            self._codes = (self._codes + [_NONE] * size)[:size]
            for row in rows.tolist():
                self._codes[row] = _read(snapshot, row)
            starts = np.cumsum([0, *map(len, self._codes)]).astype(np.intp)
            self._lists = starts, np.concatenate([_NONE, *self._codes])
        return self._lists


def _read(snapshot: Snapshot, row: int) -> CodeColumn:
    if not snapshot.nodes.present[row]:
        return _NONE
    images = snapshot.nodes.node(row).status.images or ()
    names = [name for image in images for name in image.names or ()]
    return np.array([snapshot.dictionary.code(name) for name in names], np.int32)


def missing_bytes(snapshot: Snapshot, images: Sequence[str]) -> FloatColumn:
    """(N,) bytes of those images that are not there; an image that no node has counts 0."""
    total = np.zeros(snapshot.nodes.size)
    for image in map(snapshot.nodes.images.find, images):
        if image is not None:
            total += image.size
            total[image.rows] -= image.size
    return total
