"""The choice among nodes whose keys lack what is answered by groups: a table added on the way.

Whoever has a say by groups says it about the groups that hold feasible nodes; then one look-up a
node gives every key. How many feasible nodes a group has is counted by the rows that changed.

Asks `interface.Grouped` and knows no plugin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.framework.interface import MAX_SCORE, Grouped, GroupedFilter, GroupedScore, Moved
from engine.framework.podclass import NOWHERE, keys_of
from engine.framework.snapshot import IntColumn, Snapshot

_MOST_GROUPS: Final = 1 << 14
_NO_TIES: Final = np.zeros(1, np.int64)


class _Together:
    """The groups of several members as one: rows that no member tells apart."""

    __slots__ = ("_keys", "_members", "column", "parts")

    def __init__(self, members: Sequence[Grouped]) -> None:
        self._members = members
        self._keys: dict[tuple[int, ...], int] = {}
        self.column: NDArray[Any] = np.empty(0, np.int32)
        self.parts: list[NDArray[np.intp] | slice] = [slice(None)] * len(members)
        """For each member, its group for each group of these."""

    def __len__(self) -> int:
        return len(self._keys) if len(self._members) > 1 else len(self._members[0])

    def sync(self, snapshot: Snapshot) -> Moved:
        """See `Grouped.sync`."""
        members = self._members
        if len(members) == 1:
            moved = members[0].sync(snapshot)
            self.column = members[0].column
            return moved
        every = [member.sync(snapshot) for member in members]
        rows: set[int] = set()
        for some in every:
            if some is None or len(self) > _MOST_GROUPS:
                self._rebuild()
                return None
            rows.update([row for row, _ in some])
        found, known = [], len(self._keys)
        for row in rows:
            found.append((row, int(self.column[row])))
            key = tuple([int(member.column[row]) for member in members])
            self.column[row] = self._keys.setdefault(key, len(self._keys))
        if len(self._keys) > known:
            self._lay_out()
        return found

    def _rebuild(self) -> None:
        number = np.zeros(len(self._members[0].column), np.int64)
        first = number[:1]
        for member in self._members:
            _, first, number = np.unique(
                number * len(member) + member.column, return_index=True, return_inverse=True
            )
        self.column = number.astype(np.int32)
        keys = zip(*[member.column[first].tolist() for member in self._members], strict=True)
        self._keys = {key: i for i, key in enumerate(keys)}
        self._lay_out()

    def _lay_out(self) -> None:
        self.parts = list(np.array(list(self._keys), np.intp).reshape(-1, len(self._members)).T)


class GroupedChoice:
    """Chooses among the rows of one class; see the module."""

    __slots__ = ("_buffer", "_column", "_filters", "_live", "_scorers", "_together", "flipped")

    def __init__(
        self, filters: Sequence[GroupedFilter], scorers: Sequence[tuple[float, GroupedScore]]
    ) -> None:
        self._filters = filters
        self._scorers = scorers
        self._together = _Together([*filters, *(scorer for _, scorer in scorers)])
        self._column: IntColumn | None = None
        self._live: list[int] = []
        self._buffer: IntColumn = np.empty(0, np.int64)
        self.flipped: list[int] = []
        """Rows of the class's column that became feasible or ceased to be, each time they did."""

    def keys(self, column: IntColumn, snapshot: Snapshot) -> tuple[IntColumn, int]:
        """(N,) the class's keys with what is answered by groups, and how many are feasible.

        The array is borrowed until the next call.

        Raises:
            ValueError: a score of a feasible node is outside 0..100.
        """
        self._count(column, self._together.sync(snapshot))
        parts = iter(self._together.parts)
        live = np.array(self._live, np.int64)
        for one, part in zip(self._filters, parts, strict=False):
            live *= one.passes()[part]
        totals = np.zeros(len(live))
        for (weight, scorer), part in zip(self._scorers, parts, strict=True):
            totals += weight * _scores(scorer, part, live)
        steps = keys_of(totals, _NO_TIES, 0, whole=False)
        steps[live == 0] = NOWHERE
        np.take(steps, self._together.column, out=self._buffer, mode="clip")
        self._buffer += column
        return self._buffer, int(live.sum())

    def _count(self, column: IntColumn, moved: Moved) -> None:
        """Brings `_live`, the feasible nodes of each group, up to the column."""
        groups = self._together.column
        flipped, self.flipped = self.flipped, []
        if moved is None or column is not self._column:
            counts = np.bincount(groups[column >= 0], minlength=len(self._together))
            self._live = counts.tolist()
            self._column = column
            self._buffer = np.empty(len(column), np.int64)
            return
        live = self._live
        live += [0] * (len(self._together) - len(live))
        odd: set[int] = set()
        for row in flipped:
            odd ^= {row}
        for row, before in moved:
            feasible = bool(column[row] >= 0)
            live[before] -= feasible is not (row in odd)
            live[groups[row]] += feasible
            odd.discard(row)
        for row in odd:
            live[groups[row]] += 1 if column[row] >= 0 else -1


def _scores(
    scorer: GroupedScore, part: NDArray[np.intp] | slice, live: NDArray[np.int64]
) -> NDArray[np.float64]:
    feasible = live
    if not isinstance(part, slice):
        feasible = np.zeros(len(scorer), np.int64)
        np.add.at(feasible, part, live)
    scores = scorer.scores(feasible)
    inside = scores[feasible > 0]
    if inside.min(initial=0.0) < 0 or inside.max(initial=0.0) > MAX_SCORE:
        raise ValueError("a score is outside 0..100")
    found: NDArray[np.float64] = scores[part]
    return found
