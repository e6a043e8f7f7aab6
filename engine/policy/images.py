"""Images on nodes: names as codes, a list a node, kept from snapshot to snapshot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.framework.snapshot import BoolColumn, CodeColumn, Dictionary, FloatColumn, Snapshot
from engine.objects import ContainerImage

_NONE: CodeColumn = np.empty(0, np.int32)


class ImageIndex:
    """The images of all nodes; a row is read again only when its node says something else."""

    def __init__(self) -> None:
        self._dictionary: Dictionary | None = None
        self._generation = -1
        self._layout = -1
        self._said: list[Sequence[ContainerImage] | None] = []
        self._codes: list[CodeColumn] = []
        self._sizes: dict[int, int] = {}
        self._lists: tuple[NDArray[np.intp], CodeColumn] = (np.zeros(1, np.intp), _NONE)

    def lists(self, snapshot: Snapshot) -> tuple[NDArray[np.intp], CodeColumn]:
        """(N + 1,) where each node's names start, and the codes of the names."""
        self._refresh(snapshot)
        return self._lists

    def on_nodes(self, snapshot: Snapshot, name: str) -> BoolColumn:
        """(N,) nodes that have the image."""
        starts, codes = self.lists(snapshot)
        before = np.concatenate(([0], np.cumsum(codes == snapshot.dictionary.find(name))))
        found: BoolColumn = before[starts[1:]] > before[starts[:-1]]
        return found

    def missing_bytes(self, snapshot: Snapshot, images: Sequence[str]) -> FloatColumn:
        """(N,) bytes of those images that are not there; images of unknown size count 0."""
        total = np.zeros(snapshot.nodes.size)
        for name in images:
            there = self.on_nodes(snapshot, name)
            size = self._sizes.get(snapshot.dictionary.find(name), 0)
            total[~there] += size
        return total

    def _refresh(self, snapshot: Snapshot) -> None:
        if snapshot.dictionary is not self._dictionary or snapshot.layout != self._layout:
            self._dictionary, self._layout, self._generation = (
                snapshot.dictionary,
                snapshot.layout,
                -1,
            )
        if snapshot.generation == self._generation:
            return
        nodes = snapshot.nodes
        changes = snapshot.changes_since(self._generation) if self._generation >= 0 else None
        rows = None if changes is None else changes[0]
        if rows is None or len(self._said) != nodes.size:
            self._said, self._codes = [None] * nodes.size, [_NONE] * nodes.size
            rows = np.arange(nodes.size)
        changed = [self._read(snapshot, row) for row in rows.tolist()]
        self._generation = snapshot.generation
        if any(changed) or len(self._lists[0]) != nodes.size + 1:
            starts = np.cumsum([0, *map(len, self._codes)]).astype(np.intp)
            self._lists = starts, np.concatenate([_NONE, *self._codes])

    def _read(self, snapshot: Snapshot, row: int) -> bool:
        """Reads a row; False if it says what it said."""
        there = snapshot.nodes.present[row]
        images = (snapshot.nodes.node(row).status.images or ()) if there else ()
        if images is self._said[row]:
            return False
        self._said[row] = images
        codes = []
        for image in images:
            for name in image.names or ():
                code = snapshot.dictionary.code(name)
                codes.append(code)
                self._sizes[code] = image.size_bytes
        self._codes[row] = np.array(codes, np.int32)
        return True
