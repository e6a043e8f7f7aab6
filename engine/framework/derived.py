"""Columns derived from rows of nodes, updated by the rows that changed.

Among them what several classes of pods share: masks, raw scores, scores of a set of feasible nodes.
Calls no plugin by itself. Rows that were added, freed or reused are among those that changed, so
columns only grow when nodes join or leave.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from engine.framework.interface import Scores
from engine.framework.snapshot import BoolColumn, Cause, Rows, Snapshot

_ANY: Final = int(Cause.ANY)
_MOST_SETS: Final = 64
_MOST_OF_A_SET: Final = 16
_BYTES_OF_SETS: Final = 32 << 20
Changes = tuple[NDArray[np.intp], NDArray[np.integer]]
"""Rows, each once, and why each changed."""


class LogPosition:
    """A reader's position in the change log."""

    __slots__ = ("generation", "layout")

    def __init__(self) -> None:
        self.generation = self.layout = -1

    def at(self, snapshot: Snapshot) -> bool:
        """Whether nothing has changed since."""
        return self.generation == snapshot.generation and self.layout == snapshot.layout

    def read(self, snapshot: Snapshot) -> Changes | None:
        """What changed since the last time; None: anything may have."""
        since, layout = self.generation, self.layout
        self.generation, self.layout = snapshot.generation, snapshot.layout
        return None if layout < 0 else snapshot.changes_since(since)

    def forget(self) -> None:
        """`read` next says that anything may have changed."""
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
        """Whether pods that come and go change nothing in it."""
        self.column: NDArray[Any] = np.empty(0)
        self.cells: memoryview[Any] = memoryview(b"")
        self.place = LogPosition()

    def at(self, snapshot: Snapshot) -> bool:
        """Whether the column is current."""
        place = self.place
        same = place.layout == snapshot.layout
        if same and self.still and 0 <= snapshot.nodes_generation <= place.generation:
            place.generation = snapshot.generation
        return place.at(snapshot)

    def refresh(self, snapshot: Snapshot, ask: Callable[[Rows], NDArray[Any]]) -> bool:
        """Asks about the rows that changed for one of the causes; True if any answer changed."""
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


class Shared(Derived):
    """A mask or raw scores of all rows, for all classes with the plugin's `shared` key."""

    __slots__ = ("__weakref__", "answers", "normal", "uniform")

    def __init__(self, causes: Cause) -> None:
        super().__init__(causes)
        self.uniform = True
        """All True, or all 0."""
        self.answers = 0
        """Counts changes."""
        self.normal: dict[float, Scores] = {}
        """Normalised scores by the extremum; see `keep`."""

    def refresh(self, snapshot: Snapshot, ask: Callable[[Rows], NDArray[Any]]) -> bool:
        """See `Derived.refresh`."""
        moved = super().refresh(snapshot, ask)
        if moved:
            self.answers += 1
            self.normal.clear()
            is_mask = self.column.dtype == np.bool_
            self.uniform = bool(self.column.all()) if is_mask else not self.column.any()
        return moved

    def keep(self, extremum: float, column: Scores) -> None:
        """Keeps scores normalised by an extremum, a few: each class may have its own extremum."""
        if len(self.normal) >= _MOST_OF_A_SET:
            self.normal.clear()
        self.normal[extremum] = column


class FeasibleSet:
    """A set of feasible rows, and the scores that plugins gave to exactly these."""

    __slots__ = ("rows", "scores")

    def __init__(self, passed: BoolColumn) -> None:
        self.rows = np.flatnonzero(passed)
        self.scores: dict[Hashable, tuple[Scores, float]] = {}
        """A column of all rows, 0 outside the set, and its weight: 0 if the plugin abstains."""

    def keep(self, key: Hashable, column: Scores, weight: float) -> None:
        """Keeps the scores of the set."""
        if len(self.scores) >= _MOST_OF_A_SET:
            self.scores.clear()
        self.scores[key] = column, weight


class Sharing:
    """All that classes share, by plugin and its `shared` key."""

    def __init__(self) -> None:
        # Weak: most classes with a key of their own are gone soon.
        self._shared: WeakValueDictionary[Hashable, Shared] = WeakValueDictionary()
        self._sets: dict[bytes, FeasibleSet] = {}

    def of(self, name: str, point: str, key: Hashable, causes: Cause) -> Shared:
        """The column of a plugin for this key; a new one is empty."""
        found = self._shared.get((name, point, key))
        if found is None:
            found = self._shared[name, point, key] = Shared(causes)
        return found

    def feasible(self, passed: BoolColumn) -> FeasibleSet:
        """The set of these rows: the same for classes that can go to the same nodes."""
        key = passed.tobytes()
        found = self._sets.pop(key, None)
        if found is None:
            full = _MOST_OF_A_SET * np.float64().nbytes * max(len(passed), 1)
            while len(self._sets) >= min(_MOST_SETS, max(_BYTES_OF_SETS // full, 1)):
                del self._sets[next(iter(self._sets))]
            found = FeasibleSet(passed)
        self._sets[key] = found
        return found
