"""What several classes of pods share: masks, raw scores, scores of a set of feasible nodes.

Columns are updated by the rows that changed. Calls no plugin by itself. Rows that were added, freed
or reused are among those that changed, so columns only grow when nodes join or leave.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from engine.framework.interface import Scores
from engine.framework.snapshot import Cause, Rows, Snapshot

_ANY: Final = int(Cause.ANY)
_POD: Final = int(Cause.POD)
_MOST_SCORES: Final = 256
_BYTES_OF_SCORES: Final = 32 << 20
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


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class Shared:
    """A mask or raw scores of all rows, for all classes with the plugin's `shared` key."""

    causes: int
    column: NDArray[Any] = field(default_factory=lambda: np.empty(0))
    place: LogPosition = field(default_factory=LogPosition)
    uniform: bool = True
    """All True, or all 0."""

    def at(self, snapshot: Snapshot) -> bool:
        """Whether the column is current."""
        place = self.place
        same = place.layout == snapshot.layout
        if same and not self.causes & _POD and 0 <= snapshot.nodes_generation <= place.generation:
            place.generation = snapshot.generation
        return place.at(snapshot)

    def refresh(self, snapshot: Snapshot, ask: Callable[[Rows], NDArray[Any]]) -> None:
        """Asks about the rows that changed for one of the causes."""
        changes = self.place.read(snapshot)
        try:
            if changes is None:
                moved = self._renew(snapshot, ask)
            else:
                moved = self._update(snapshot, concerned(changes, self.causes), ask)
        except BaseException:
            self.place.forget()
            raise
        if moved:
            is_mask = self.column.dtype == np.bool_
            self.uniform = bool(self.column.all()) if is_mask else not self.column.any()

    def _renew(self, snapshot: Snapshot, ask: Callable[[Rows], NDArray[Any]]) -> bool:
        size, old = snapshot.nodes.size, self.column
        self.column = np.array(ask(slice(0, size)))
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
        elif self.column[rows].tobytes() == fresh.tobytes():
            return False
        self.column[rows] = fresh
        return True


class Sharing:
    """All that classes share, by plugin and its `shared` key."""

    def __init__(self) -> None:
        # Weak: most classes with a key of their own are gone soon.
        self._shared: WeakValueDictionary[Hashable, Shared] = WeakValueDictionary()
        self.scores: dict[Hashable, tuple[Scores, float]] = {}
        """What plugins gave to a set of feasible rows, which is part of the key.

        A column of all rows, 0 outside the set, and its weight: 0 if the plugin abstains.
        """

    def of(self, name: str, point: str, key: Hashable, causes: Cause) -> Shared:
        """The column of a plugin for this key; a new one is empty."""
        found = self._shared.get((name, point, key))
        if found is None:
            found = self._shared[name, point, key] = Shared(int(causes))
        return found

    def keep(self, key: Hashable, column: Scores, weight: float) -> None:
        """Keeps the scores of a set; the oldest make room."""
        most = min(_MOST_SCORES, _BYTES_OF_SCORES // max(column.nbytes, 1))
        while len(self.scores) >= max(most, 1):
            del self.scores[next(iter(self.scores))]
        self.scores[key] = column, weight
