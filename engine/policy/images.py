"""Images on nodes: their names as lists of codes, and how much of some images is missing where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.framework.derived import Place, concerned
from engine.framework.snapshot import Cause, CodeColumn, Dictionary, FloatColumn, Snapshot

_NONE: Final[CodeColumn] = np.empty(0, np.int32)
Lists = tuple[NDArray[np.intp], CodeColumn]
"""(N + 1,) where each node's names start, and the codes of the names."""


class ImageLists:
    """The names of all nodes; those of a row are read again when its images changed."""

    def __init__(self) -> None:
        self._dictionary: Dictionary | None = None
        self._place = Place()
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
