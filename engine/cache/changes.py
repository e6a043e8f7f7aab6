"""The change log of a cache: which rows of nodes changed last, and why.

The cache alone writes; readers come by `Snapshot.changes_since`.
"""

from __future__ import annotations

from enum import IntFlag, auto
from itertools import count
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.cache.nodes import NodeColumns

LOG_ROWS: Final = 1 << 16
_FEW_ROWS: Final = 64
NOWHERE: Final = -1
Changes = tuple[NDArray[np.intp], NDArray[np.int64]]
NO_CHANGES: Final[Changes] = np.empty(0, np.intp), np.empty(0, np.int64)


class Cause(IntFlag):
    """What of a row changed."""

    POD = auto()
    """Pods were added to the node or removed, or their requests changed."""
    LABELS = auto()
    TAINTS = auto()
    """Taints or `spec.unschedulable`."""
    ALLOCATABLE = auto()
    IMAGES = auto()
    CONDITIONS = auto()
    OTHER = auto()
    """Anything else of the API object, or of its pods if only derived columns read it."""
    ANY = POD | LABELS | TAINTS | ALLOCATABLE | IMAGES | CONDITIONS | OTHER
    """Also a node that was added or deleted."""


# A plain number: one of `Cause` costs more to combine than the change it is about.
_POD: Final = int(Cause.POD)


class NodeChanges:
    """The last changes, each by the generation that it made."""

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self.generation = 0
        """See `Snapshot.generation`; so for `last` and `nodes_generation`."""
        self.last = -1, NOWHERE, 0
        self.nodes_generation = 0
        self.what_ifs = count(-(1 << 62))
        """Generations of overlays, far below all that the log reaches back to."""
        self._rows = np.zeros(LOG_ROWS, dtype=np.intp)
        self._causes = np.zeros(LOG_ROWS, dtype=np.int64)
        self._row_cells, self._cause_cells = self._rows.data, self._causes.data

    def add(self, row: int, causes: int) -> None:
        """A row changed, for these causes (`Cause`)."""
        generation = self.generation
        place = generation % LOG_ROWS
        self._row_cells[place] = row
        self._cause_cells[place] = causes
        self.last = generation, row, causes
        self.generation = generation + 1
        if causes != _POD:
            self.nodes_generation = self.generation

    def since(self, generation: int) -> Changes | None:
        """See `Snapshot.changes_since`; None also where a full pass is cheaper."""
        behind = self.generation - generation
        if behind > _FEW_ROWS and behind > min(LOG_ROWS, self._nodes.size >> 1):
            return None
        if behind <= 0:
            return NO_CHANGES
        start = generation % LOG_ROWS
        end = start + behind
        if end > LOG_ROWS:
            places = np.arange(start, end) % LOG_ROWS
            return each_once(self._rows[places], self._causes[places])
        rows, causes = self._rows[start:end], self._causes[start:end]
        if behind == 1:
            return rows, causes
        if self.nodes_generation <= generation:  # pods alone, for which there is one cause
            rows = rows.copy()
            rows.sort()
            rows = rows[_firsts(rows)]
            return rows, causes[: len(rows)]
        return each_once(rows, causes)


def each_once(rows: NDArray[np.intp], causes: NDArray[np.int64]) -> Changes:
    """Each of the rows once, ascending, with all its causes."""
    order = rows.argsort(kind="stable")
    rows = rows[order]
    first = np.flatnonzero(_firsts(rows))
    return rows[first], np.bitwise_or.reduceat(causes[order], first)


def _firsts(rows: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Where another row begins among some in order."""
    begins = np.empty(len(rows), np.bool_)
    begins[:1] = True
    np.not_equal(rows[1:], rows[:-1], out=begins[1:])
    return begins
