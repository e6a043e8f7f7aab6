"""What is worked out of the rows of nodes, brought up to date by those that changed.

Says nothing of what is worked out. Node rows that came, went or were used again are among those
that changed, so nothing is lost when nodes join or leave: a column grows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.framework.snapshot import Cause, Rows, Snapshot

_ANY: Final = int(Cause.ANY)
Changes = tuple[NDArray[np.intp], NDArray[np.integer]]
"""Rows, each once, and why each changed."""


class Place:
    """How far somebody has read in the log of changes."""

    __slots__ = ("generation", "layout")

    def __init__(self) -> None:
        self.generation = self.layout = -1

    def at(self, snapshot: Snapshot) -> bool:
        """Whether nothing changed since."""
        return self.generation == snapshot.generation and self.layout == snapshot.layout

    def read(self, snapshot: Snapshot) -> Changes | None:
        """What changed since the last time; None: anything."""
        since, layout = self.generation, self.layout
        self.generation, self.layout = snapshot.generation, snapshot.layout
        return None if layout < 0 else snapshot.changes_since(since)

    def forget(self) -> None:
        """Next time anything may have changed."""
        self.layout = -1


def concerned(changes: Changes, causes: int) -> NDArray[np.intp]:
    """The rows with one of these causes, and those of nodes that came or went."""
    rows, why = changes
    found: NDArray[np.intp] = rows[((why & causes) != 0) | (why == _ANY)]
    return found


class Derived:
    """A column of all rows; `cells` are good for one row as long as the layout stays."""

    __slots__ = ("causes", "cells", "column", "place", "still")

    def __init__(self, causes: Cause) -> None:
        self.causes = int(causes)
        self.still = not causes & Cause.POD
        """Whether pods that come and go change nothing."""
        self.column: NDArray[Any] = np.empty(0)
        self.cells: memoryview[Any] = memoryview(b"")
        self.place = Place()

    def at(self, snapshot: Snapshot) -> bool:
        """Whether there is nobody to ask."""
        place = self.place
        same = place.layout == snapshot.layout
        if same and self.still and 0 <= snapshot.nodes_generation <= place.generation:
            place.generation = snapshot.generation
        return place.at(snapshot)

    def refresh(self, snapshot: Snapshot, ask: Callable[[Rows], NDArray[Any]]) -> bool:
        """Asks about the rows that changed for one of the causes; True if any says another."""
        changes = self.place.read(snapshot)
        try:
            if changes is None:
                return self._renew(snapshot, ask)
            return self._update(snapshot, concerned(changes, self.causes), ask)
        except BaseException:
            self.place.forget()
            raise

    def _renew(self, snapshot: Snapshot, ask: Callable[[Rows], NDArray[Any]]) -> bool:
        size, old = snapshot.nodes.size, self.column
        self.column = np.array(ask(slice(0, size)))
        self.cells = self.column.data
        return len(old) != size or old.tobytes() != self.column.tobytes()

    def _update(
        self, snapshot: Snapshot, rows: NDArray[np.intp], ask: Callable[[Rows], NDArray[Any]]
    ) -> bool:
        if not len(rows):
            return False
        fresh = ask(rows)
        new = snapshot.nodes.size - len(self.column)
        if new > 0:
            self.column = np.concatenate((self.column, np.zeros(new, self.column.dtype)))
            self.cells = self.column.data
        elif self.column[rows].tobytes() == fresh.tobytes():
            return False
        self.column[rows] = fresh
        return True
