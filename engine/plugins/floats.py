"""What nodes have and what is used of it, as floats: where all are exact, they compute quickest.

Kept up to date by the rows that changed; a plugin has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.framework.derived import Place
from engine.framework.snapshot import FloatColumn, IntColumn, NodeColumns, Rows, Snapshot

EXACT: Final = 1 << 45
"""Hundred times a whole number below it is exact as a float, and so is a quotient rounded down."""
_FEW_ROWS: Final = 16
_SourceCells = tuple[memoryview, memoryview, memoryview, memoryview]

Reader = Callable[[NodeColumns, str], IntColumn]


class Floats:
    """Of each resource what is there and what is used; both 1 where that is no exact float.

    `more` is worked out of the others, by row and of all rows; it may be empty.
    """

    def __init__(self, resources: Sequence[str], used: Reader) -> None:
        self._resources = resources
        self._used_of = used
        self._place = Place()
        self._nodes: NodeColumns | None = None
        self._sources: list[_SourceCells] = []
        self.there: list[FloatColumn] = []
        self.used: list[FloatColumn] = []
        self.more: FloatColumn = np.empty(0)
        self._odd: set[int] = set()
        self._buffers: FloatColumn = np.empty((2, 0))

    def refresh(self, snapshot: Snapshot) -> bool:
        """Catches up; false if an amount is out of bounds, so that floats are not exact."""
        place, nodes = self._place, snapshot.nodes
        same = nodes is self._nodes and place.layout == snapshot.layout
        if not (same and place.at(snapshot)):
            changes = place.read(snapshot)
            if not same or changes is None or len(changes[0]) > _FEW_ROWS:
                self._renew(nodes)
            else:
                for row in changes[0].tolist():
                    self._set(row)
        return not self._odd

    def _renew(self, nodes: NodeColumns) -> None:
        self._nodes, self._sources, self.there, self.used = nodes, [], [], []
        odd = np.zeros(nodes.size, np.bool_)
        for name in self._resources:
            allocatable, amounts = nodes.allocatable(name), self._used_of(nodes, name)
            wrong = (allocatable <= 0) | (allocatable >= EXACT) | (amounts < 0) | (amounts >= EXACT)
            odd |= wrong & nodes.present
            there = np.where(wrong, 1, allocatable).astype(np.float64)
            used = np.where(wrong, 1, amounts).astype(np.float64)
            self.there.append(there)
            self.used.append(used)
            self._sources.append((allocatable.data, amounts.data, there.data, used.data))
        self._odd = set(np.flatnonzero(odd).tolist())
        if self._buffers.shape[1] != nodes.size:
            self._buffers = np.empty((2, nodes.size))
        self.more = self.all_more()

    def _set(self, row: int) -> None:
        odd = False
        for allocatable, amounts, there, used in self._sources:
            has, amount = allocatable[row], amounts[row]
            if not (0 < has < EXACT and 0 <= amount < EXACT):
                odd, has, amount = True, 1, 1
            there[row], used[row] = has, amount
        if odd:
            self._odd.add(row)
        elif self._odd:
            self._odd.discard(row)
        self.set_more(row)

    def all_more(self) -> FloatColumn:
        """`more` of all rows."""
        return np.empty(0)

    def set_more(self, row: int) -> None:
        """Writes `more` of a row."""

    def buffers(self, rows: Rows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Two arrays to compute in, of the length of the rows; used again for all rows."""
        if isinstance(rows, slice):
            return self._buffers[0], self._buffers[1]
        return np.empty(len(rows)), np.empty(len(rows))
