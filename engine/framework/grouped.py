"""The choice among nodes whose keys lack what is answered by groups: a table added on the way.

Whoever has a say by groups says it about the groups that hold feasible nodes; then one look-up a
node gives every key. How many feasible nodes a group has is counted by the rows that changed.

Asks `interface.Grouped` and knows no plugin.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.framework.interface import MAX_SCORE, Grouped, GroupedFilter, GroupedScore, Moved
from engine.framework.log import Log
from engine.framework.podclass import FRACTION, NOWHERE, TIE_BITS, KeyColumn
from engine.framework.snapshot import IntColumn, Snapshot

_MOST_GROUPS: Final = 1 << 14
_MOST_BUFFERS: Final = 64


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


class Buffers:
    """An array for each of the last who asked for one."""

    def __init__(self) -> None:
        self._each: OrderedDict[object, IntColumn] = OrderedDict()

    def of(self, whose: object, size: int) -> tuple[IntColumn, bool]:
        """(size,) an array, and whether it is as it was left."""
        found = self._each.get(whose)
        kept = found is not None and len(found) == size
        if not kept:
            if len(self._each) >= _MOST_BUFFERS:
                self._each.popitem(last=False)
            found = self._each[whose] = np.empty(size, np.int64)
        self._each.move_to_end(whose)
        assert found is not None
        return found, kept


class GroupedChoice:
    """Chooses among the rows of one class; see the module."""

    __slots__ = (
        "_buffers",
        "_column",
        "_filters",
        "_live",
        "_scorers",
        "_seen",
        "_steps",
        "_together",
    )

    def __init__(
        self,
        filters: Sequence[GroupedFilter],
        scorers: Sequence[tuple[float, GroupedScore]],
        buffers: Buffers,
    ) -> None:
        self._filters = filters
        self._scorers = scorers
        self._together = _Together([*filters, *(scorer for _, scorer in scorers)])
        self._buffers = buffers
        self._column: IntColumn | None = None
        self._seen = 0
        self._live: list[int] = []
        self._steps: list[int] = []
        # INVARIANT: its buffer is made of `_steps` and the column, but for rows that changed since.

    def keys(self, keys: KeyColumn, snapshot: Snapshot) -> tuple[IntColumn, int]:
        """(N,) the class's keys with what is answered by groups, and how many are feasible.

        The array is borrowed until the next call.

        Raises:
            ValueError: a score of a feasible node is outside 0..100.
        """
        moved = self._together.sync(snapshot)
        column, log = keys.column, keys.log
        if log is None:
            log = keys.log = Log()
        touched = log.since(self._seen) if column is self._column else None
        self._column, self._seen = None, log.end  # for when a plugin raises
        if moved is None or touched is None:
            moved = touched = None
            self._recount(column, keys.feasible)
        else:
            self._count(column, moved, touched)
        live, several = self._live, self._together.keys
        for i, one in enumerate(self._filters):
            passes = one.passes()
            if several:
                passes = [passes[key[i]] for key in several]
            live = [n if passed else 0 for n, passed in zip(live, passes, strict=True)]
        totals = [0.0] * len(live)
        for i, (weight, scorer) in enumerate(self._scorers, len(self._filters)):
            if several:
                scores = scorer.scores(self._by_member(live, scorer, i))
                scores = [scores[key[i]] for key in several]
            else:
                scores = scorer.scores(live)
            for group, n in enumerate(live):
                if n:
                    score = scores[group]
                    if not 0 <= score <= MAX_SCORE:
                        raise ValueError("a score is outside 0..100")
                    totals[group] += weight * score
        steps = [
            int(total * FRACTION) << TIE_BITS if n else NOWHERE
            for n, total in zip(live, totals, strict=True)
        ]
        self._column = column
        return self._added(steps, column, moved, touched), sum(live)

    def _added(
        self, steps: list[int], column: IntColumn, moved: Moved, touched: Sequence[int] | None
    ) -> IntColumn:
        """Adds the steps: to the rows that changed, if those of all others stand."""
        buffer, kept = self._buffers.of(self, len(column))
        groups, before, self._steps = self._together.column, self._steps, steps
        if not kept or moved is None or touched is None or steps[: len(before)] != before:
            np.array(steps, np.int64).take(groups, out=buffer, mode="clip")
            buffer += column
            return buffer
        for row in (*[row if row >= 0 else ~row for row in touched], *[row for row, _ in moved]):
            buffer[row] = steps[groups[row]] + int(column[row])
        return buffer

    def _by_member(self, live: list[int], member: Grouped, at: int) -> list[int]:
        """How many feasible nodes the groups of one of several members have."""
        found = [0] * len(member)
        for key, n in zip(self._together.keys, live, strict=True):
            found[key[at]] += n
        return found

    def _recount(self, column: IntColumn, feasible: int) -> None:
        """Counts `_live`, the feasible nodes of each group."""
        groups = self._together.column
        if feasible < len(column):
            groups = groups[column >= 0]
        self._live = np.bincount(groups, minlength=len(self._together)).tolist()

    def _count(
        self, column: IntColumn, moved: Sequence[tuple[int, int]], touched: Sequence[int]
    ) -> None:
        """Brings `_live` up to the column."""
        groups, live = self._together.column, self._live
        live += [0] * (len(self._together) - len(live))
        odd: set[int] = set()
        for row in touched:
            if row < 0:
                odd ^= {~row}
        for row, before in moved:
            feasible = bool(column[row] >= 0)
            live[before] -= feasible is not (row in odd)
            live[groups[row]] += feasible
            odd.discard(row)
        for row in odd:
            live[groups[row]] += 1 if column[row] >= 0 else -1
