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

    def __init__(self, size: int) -> None:
        self.size = size
        self.version = 0
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

    def change(self, row: int, version: int, *, there: bool) -> None:
        """It is there from now on, or is no longer; for `ImageTable` alone."""
        (self._rows.add if there else self._rows.discard)(row)
        self._array, self.version = None, version


class Images:
    """The images of all nodes by name."""

    def __init__(self) -> None:
        self._images: dict[str, Image] = {}
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
        for images, there in ((before, False), (after, True)):
            for image in images:
                for name in image.names or ():
                    known = self._images.setdefault(name, Image(image.size_bytes))
                    known.change(row, self._version, there=there)
                    if not known.count:
                        del self._images[name]
