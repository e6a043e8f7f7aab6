"""The choice among nodes whose keys lack what is answered by groups: a table added on the way.

Whoever has a say by groups says it about the groups that hold feasible nodes; then one look-up a
node gives every key. How many feasible nodes a group has is counted by the rows that changed.

Asks `interface.Grouped` and knows no plugin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.framework.interface import MAX_SCORE, Grouped, GroupedFilter, GroupedScore, Moved
from engine.framework.podclass import FRACTION, NOWHERE, TIE_BITS
from engine.framework.snapshot import IntColumn, Snapshot

_MOST_GROUPS: Final = 1 << 14
_MANY_ROWS: Final = 64

_T = TypeVar("_T")


class _Together:
    """The groups of several members as one: rows that no member tells apart."""

    __slots__ = ("_members", "_numbers", "column", "keys")

    def __init__(self, members: Sequence[Grouped]) -> None:
        self._members = members
        self._numbers: dict[tuple[int, ...], int] = {}
        self.column: NDArray[Any] = np.empty(0, np.int32)
        self.keys: list[tuple[int, ...]] = []
        """For each group, that of each member; none with one member, whose groups it has."""

    def __len__(self) -> int:
        return len(self.keys) if len(self._members) > 1 else len(self._members[0])

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
        found = []
        for row in rows:
            found.append((row, int(self.column[row])))
            self.column[row] = self._number(tuple([int(one.column[row]) for one in members]))
        return found

    def _number(self, key: tuple[int, ...]) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.keys)
            self.keys.append(key)
        return number

    def _rebuild(self) -> None:
        number = np.zeros(len(self._members[0].column), np.int64)
        first = number[:1]
        for member in self._members:
            _, first, number = np.unique(
                number * len(member) + member.column, return_index=True, return_inverse=True
            )
        self.column = number.astype(np.int32)
        columns = [member.column[first].tolist() for member in self._members]
        self.keys = list(zip(*columns, strict=True))
        self._numbers = {key: i for i, key in enumerate(self.keys)}


class GroupedChoice:
    """Chooses among the rows of one class; see the module."""

    __slots__ = (
        "_buffer",
        "_column",
        "_filters",
        "_live",
        "_scorers",
        "_steps",
        "_together",
        "flipped",
        "touched",
    )

    def __init__(
        self, filters: Sequence[GroupedFilter], scorers: Sequence[tuple[float, GroupedScore]]
    ) -> None:
        self._filters = filters
        self._scorers = scorers
        self._together = _Together([*filters, *(scorer for _, scorer in scorers)])
        self._column: IntColumn | None = None
        self._live: list[int] = []
        self._buffer: IntColumn = np.empty(0, np.int64)
        self._steps: list[int] = []
        # INVARIANT: `_buffer` is made of `_steps` and the column, but for rows that changed since.
        self.touched: list[int] = []
        """Rows of the class's column that changed."""
        self.flipped: list[int] = []
        """Rows of the class's column that became feasible or ceased to be, each time they did."""

    def keys(self, column: IntColumn, snapshot: Snapshot) -> tuple[IntColumn, int]:
        """(N,) the class's keys with what is answered by groups, and how many are feasible.

        The array is borrowed until the next call.

        Raises:
            ValueError: a score of a feasible node is outside 0..100.
        """
        moved = self._together.sync(snapshot)
        if column is not self._column:
            moved = None
        self._count(column, moved)
        live = self._live
        for i, one in enumerate(self._filters):
            passes = self._each(one.passes(), i)
            live = [n if passed else 0 for n, passed in zip(live, passes, strict=True)]
        totals = [0.0] * len(live)
        for i, (weight, scorer) in enumerate(self._scorers, len(self._filters)):
            scores = self._each(scorer.scores(self._by_member(live, scorer, i)), i)
            for group, score in enumerate(scores):
                if live[group]:
                    if not 0 <= score <= MAX_SCORE:
                        raise ValueError("a score is outside 0..100")
                    totals[group] += weight * score
        steps = [
            int(total * FRACTION) << TIE_BITS if n else NOWHERE
            for n, total in zip(live, totals, strict=True)
        ]
        self._add(steps, column, moved)
        return self._buffer, sum(live)

    def forget(self) -> None:
        """The column was written to without a word about which rows."""
        self._column = None

    def _add(self, steps: list[int], column: IntColumn, moved: Moved) -> None:
        """Makes `_buffer`: of the rows that changed, if the steps of all others stand."""
        buffer, groups, before = self._buffer, self._together.column, self._steps
        touched, self.touched, self._steps = self.touched, [], steps
        if moved is None or steps[: len(before)] != before or len(touched) > _MANY_ROWS:
            np.array(steps, np.int64).take(groups, out=buffer, mode="clip")
            buffer += column
            return
        for row in (*touched, *[row for row, _ in moved]):
            buffer[row] = steps[groups[row]] + int(column[row])

    def _each(self, answers: Sequence[_T], member: int) -> Sequence[_T]:
        """What a member says of its groups, for each group of all."""
        keys = self._together.keys
        return [answers[key[member]] for key in keys] if keys else answers

    def _by_member(self, live: list[int], member: Grouped, at: int) -> list[int]:
        """How many feasible nodes the groups of a member have."""
        keys = self._together.keys
        if not keys:
            return live
        found = [0] * len(member)
        for key, n in zip(keys, live, strict=True):
            found[key[at]] += n
        return found

    def _count(self, column: IntColumn, moved: Moved) -> None:
        """Brings `_live`, the feasible nodes of each group, up to the column."""
        groups = self._together.column
        flipped, self.flipped = self.flipped, []
        if moved is None:
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
