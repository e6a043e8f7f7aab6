"""Which nodes have which images: lists of nodes' status in, sizes and rows by name out.

`cache.nodes` is its only writer. The size seen first stands for all, as kube-scheduler has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from engine.objects import ContainerImage


class Image:
    """One name: its size, where it is, and a number that changes with either."""

    __slots__ = ("_array", "_rows", "size", "version")

    def __init__(self, size: int, version: int) -> None:
        self.size = size
        self.version = version
        self._rows: set[int] = set()
        self._array: NDArray[np.intp] | None = None

    @property
    def count(self) -> int:
        """How many nodes have it."""
        return len(self._rows)

    @property
    def rows(self) -> NDArray[np.intp]:
        """The rows of the nodes that have it, ascending."""
        if self._array is None:
            self._array = np.array(sorted(self._rows), dtype=np.intp)
        return self._array


class _Listed(Image):
    """The same with what writes."""

    __slots__ = ()

    def put(self, row: int, version: int) -> None:
        """It is there from now on."""
        self._rows.add(row)
        self._array, self.version = None, version

    def drop(self, row: int, version: int) -> bool:
        """It is no longer there; False if it is nowhere."""
        self._rows.discard(row)
        self._array, self.version = None, version
        return bool(self._rows)


class Images:
    """The images of all nodes by name."""

    def __init__(self) -> None:
        self._images: dict[str, _Listed] = {}
        self._version = 0
        self.find: Callable[[str], Image | None] = self._images.get
        """The image of a full name; None if no node has it."""


class ImageTable(Images):
    """`Images` for `cache.nodes`, which alone writes."""

    def replace(
        self, row: int, before: Sequence[ContainerImage], after: Sequence[ContainerImage]
    ) -> None:
        """The node of the row has these images instead of those."""
        if before == after:
            return
        self._version += 1
        for image in before:
            for name in image.names or ():
                known = self._images.get(name)
                if known is not None and not known.drop(row, self._version):
                    del self._images[name]
        for image in after:
            for name in image.names or ():
                known = self._images.get(name)
                if known is None:
                    known = self._images[name] = _Listed(image.size_bytes, self._version)
                known.put(row, self._version)
