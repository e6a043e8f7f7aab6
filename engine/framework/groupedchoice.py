"""Chooses a node where some filters and scores answer by groups of rows, which no key contains.

The best node has the highest key of its group, in the group where that key plus the score of the
group is highest. A class that is asked often keeps the best rows of each group (`_Leaders`) by the
rows that changed; for other classes the group's score is added to every key. The number of feasible
nodes of each group is kept by the rows that changed, too.

Asks `interface.Grouped` and knows no plugin.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable, Sequence
from operator import add
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.changelog import ChangeLog
from engine.framework.interface import MAX_SCORE, Grouped, GroupedFilter, GroupedScore, Moved
from engine.framework.keycolumn import FRACTION, NOWHERE, TIE_BITS, KeyColumn
from engine.framework.snapshot import IntColumn, Snapshot

_MOST_GROUPS: Final = 1 << 14
LEADERS: Final = 128
"""How many of a group's rows are looked up at once."""
_MOST_CHANGES: Final = 32
"""More changed rows take longer one by one than all keys at once."""
_FEW_GROUPS: Final = 48
MOST_CHOICES: Final = _MOST_CHANGES  # after more other pods, more rows than that have changed


class _Together:
    """The groups of several plugins (members) crossed: rows that none of them tells apart."""

    def __init__(self, members: Sequence[Grouped]) -> None:
        self._members = members
        self._numbers: dict[tuple[int, ...], int] = {}
        self.column: NDArray[np.int32] = np.empty(0, np.int32)
        self.keys: list[tuple[int, ...]] = []
        """For each group, the group of each member."""

    def __len__(self) -> int:
        return len(self.keys)

    def sync(self, snapshot: Snapshot) -> Moved:
        """See `Grouped.sync`."""
        members, column = self._members, self.column
        found: dict[int, int] = {}
        for some in [member.sync(snapshot) for member in members]:
            if some is None or len(self) > _MOST_GROUPS:
                self._rebuild()
                return None
            found.update(some)
        for row in found:
            found[row] = column.item(row)
            column[row] = self._number(tuple([int(one.column[row]) for one in members]))
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
        self.keys[:] = zip(*columns, strict=True)
        self._numbers = {key: i for i, key in enumerate(self.keys)}


class _Leaders:
    """The best rows of each group; see the module.

    INVARIANT: a list has every row of its group whose key is at least the floor, ascending by key.
    Outdated entries stay in it until they come last.
    """

    def __init__(self, column: IntColumn, groups: Grouped) -> None:
        size, highest = len(groups), int(column.max(initial=NOWHERE))
        self._column, self._cells = column, column.data
        self._groups, self._group_of = groups.column, groups.column.data
        self._lists: list[list[tuple[int, int]]] = [[] for _ in range(size)]
        self.floors = [highest + 1] * size
        self._tops = [highest] * size
        """The highest key of each group, or an upper bound if its list is empty."""

    def grow(self, more: int) -> None:
        """There are more groups, without rows so far."""
        self._lists += [[] for _ in range(more)]
        self.floors += [0] * more
        self._tops += [-1] * more

    def put(self, key: int, row: int, group: int) -> None:
        """A row of the group has this key now, which is not below the floor."""
        known = self._lists[group]
        insort(known, (key, row))
        if len(known) > 2 * LEADERS:
            del known[:LEADERS]
            self.floors[group] = known[0][0]

    def settle(self, changed: Iterable[int]) -> None:
        """Drops outdated entries at the end of the lists of groups whose rows changed."""
        lists, cells, groups = self._lists, self._cells, self._group_of
        for group in changed:
            known = lists[group]
            while known:
                key, row = known[-1]
                if cells[row] == key and groups[row] == group:
                    self._tops[group] = key
                    break
                del known[-1]
            else:
                self._tops[group] = self.floors[group] - 1

    def best(self, steps: Sequence[int]) -> tuple[int, int]:
        """The row with the highest sum of its key and its group's `steps`, and that sum."""
        lists, tops = self._lists, self._tops
        while True:
            sums = [*map(add, steps, tops)]
            highest = max(sums)
            group = sums.index(highest)
            if lists[group]:
                return lists[group][-1][1], highest
            self._look(group)

    def _look(self, group: int) -> None:
        """Fills the list of a group that has feasible rows."""
        column = self._column
        rows = np.flatnonzero((self._groups == group) & (column >= 0))
        keys, floor = column[rows], 0
        if len(rows) > LEADERS:
            few = keys.argpartition(-LEADERS)[-LEADERS:]
            rows, keys, floor = rows[few], keys[few], int(keys[few[0]])
        self._lists[group] = sorted(zip(keys.tolist(), rows.tolist(), strict=True))
        self.floors[group], self._tops[group] = floor, self._lists[group][-1][0]


class GroupedChoice:
    """Chooses among the rows of one class; see the module."""

    def __init__(
        self,
        filters: Sequence[GroupedFilter],
        scorers: Sequence[tuple[float, GroupedScore]],
        recent: deque[GroupedChoice],
    ) -> None:
        """`recent` are the choices that may keep the best rows of their groups."""
        self._filters = filters
        self._scorers = [
            (number, weight * FRACTION, scorer)
            for number, (weight, scorer) in enumerate(scorers, len(filters))
        ]
        members = [*filters, *(scorer for _, scorer in scorers)]
        together = _Together(members) if len(members) > 1 else None
        self._several: Sequence[tuple[int, ...]] = () if together is None else together.keys
        """For each group, the group of each member, if there are several."""
        self._groups: Grouped = members[0] if together is None else together
        self._group_of: memoryview[Any] = self._groups.column.data
        self._recent = recent
        self._seen = -1
        """The end of the log of keys, -1 before the first choice and if a plugin raised."""
        self._live: list[int] = []
        self._steps: list[int] = []
        self._leaders: _Leaders | None = None

    def choose(self, keys: KeyColumn, snapshot: Snapshot) -> tuple[int, int, int]:
        """The best row and its key, -1 if none is feasible; and how many are feasible.

        Raises:
            ValueError: a score of a feasible node is outside 0..100.
        """
        moved = self._groups.sync(snapshot)
        column, log = keys.column, keys.log
        if log is None:
            log = keys.log = ChangeLog()
        touched, self._seen = log.since(self._seen), -1
        if moved is None or touched is None:
            self._leaders = None
            self._recount(column, keys.feasible)
        else:
            self._count(keys, moved, touched)
        live = self._passing() if self._filters else self._live
        feasible = sum(live)
        self._steps = steps = self._steps_of(live) if feasible else []
        self._seen = log.end
        if not feasible:
            return -1, NOWHERE, 0
        if self._leaders is None:
            every = self.every(column)
            row = int(every.argmax())
            return row, every.item(row), feasible
        return *self._leaders.best(steps), feasible

    def forget(self) -> None:
        """Keeps the best rows no longer."""
        self._leaders = None

    def every(self, column: IntColumn) -> IntColumn:
        """(N,) the keys of all rows, with the last answers by groups added."""
        keys = np.array(self._steps, np.int64).take(self._groups.column, mode="clip")
        keys += column
        return keys

    def _passing(self) -> list[int]:
        """How many feasible nodes each group has after all filters."""
        live, several = self._live, self._several
        for i, one in enumerate(self._filters):
            passes = one.passes()
            if several:
                passes = [passes[key[i]] for key in several]
            live = [n if passed else 0 for n, passed in zip(live, passes, strict=True)]
        return live

    def _steps_of(self, live: list[int]) -> list[int]:
        """What each group adds to the keys of its rows; NOWHERE if it has no feasible one."""
        several = self._several
        full, totals = all(live), None
        for i, unit, scorer in self._scorers:
            if several:
                scores = scorer.scores(self._by_member(live, scorer, i))
                scores = [scores[key[i]] for key in several]
            else:
                scores = scorer.scores(live)
            if not full:
                scores = [score if n else 0 for score, n in zip(scores, live, strict=True)]
            if min(scores) < 0 or max(scores) > MAX_SCORE:
                raise ValueError("a score is outside 0..100")
            weighed = [unit * score for score in scores]
            totals = weighed if totals is None else [*map(add, totals, weighed)]
        steps = [int(total) << TIE_BITS for total in totals or [0] * len(live)]
        if full:
            return steps
        return [step if n else NOWHERE for step, n in zip(steps, live, strict=True)]

    def _by_member(self, live: list[int], member: Grouped, at: int) -> list[int]:
        """The number of feasible nodes in the groups of one of several members."""
        found = [0] * len(member)
        for key, n in zip(self._several, live, strict=True):
            found[key[at]] += n
        return found

    def _recount(self, column: IntColumn, feasible: int) -> None:
        """Counts `_live`, the number of feasible nodes of each group, from all rows."""
        groups = self._groups.column
        self._group_of = groups.data
        if feasible < len(column):
            groups = groups[column >= 0]
        self._live = np.bincount(groups, minlength=len(self._groups)).tolist()

    def _count(self, keys: KeyColumn, before: dict[int, int], touched: Sequence[int]) -> None:
        """Brings `_live` and the leaders up to the column; `before` are rows that changed group."""
        groups, cells, live = self._group_of, keys.cells, self._live
        leaders, more = self._leaders, len(self._groups) - len(live)
        if more:
            live += [0] * more
            if leaders is not None:
                leaders.grow(more)
        flipped: set[int] = set()
        for row in touched:
            if row < 0:
                row = ~row
                flipped ^= {row}
            if row not in before:
                before[row] = groups[row]
        changed = {*before.values()}
        for row, was in before.items():
            key, group = cells[row], groups[row]
            live[was] -= (key >= 0) is not (row in flipped)
            live[group] += key >= 0
            changed.add(group)
            if leaders is not None and key >= leaders.floors[group]:
                leaders.put(key, row, group)
        if len(before) > _MOST_CHANGES or len(live) > _FEW_GROUPS:
            self._leaders = None
        elif leaders is not None:
            leaders.settle(changed)
        else:
            self._lead(keys.column)

    def _lead(self, column: IntColumn) -> None:
        """Keeps the best rows from now on; the least recent choice of too many stops doing so."""
        self._leaders = _Leaders(column, self._groups)
        self._recent.append(self)
        if len(self._recent) > MOST_CHOICES:
            self._recent.popleft().forget()
