"""Where alike and unlike members of a gang fit together: a search within a budget, on amounts.

It sees rows with what they have left, and what each member needs. What is more than amounts (pods
that must not meet) it asks `Others` about, one row at a time. First without a step back, in the
order of preference; then, where rows of few states are left, whatever there is:

    greedy by preference ─▶ greedy, the hardest member first ─▶ the same, the tightest row first
                                                   ─▶ every way, until the budget is used up

Changes nothing but the `Others` that it is given, which it leaves as they were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

STEPS: Final = 4_000
"""Placements of a member that are tried when there is a way back; some 100 microseconds each."""
ASKED: Final = 500
"""Questions to `Others` in all; some 300 microseconds each."""
MOST_ROWS: Final = 64
"""Rows that differ from each other among which every way is tried."""
NOWHERE: Final = -1

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Others(Protocol):
    """What decides beside amounts, with members where they were put."""

    def takes(self, member: int, row: int) -> bool:
        """Whether the row takes the member now."""
        ...

    def put(self, member: int, row: int) -> None:
        """The member is there from now on."""
        ...

    def take(self, member: int) -> None:
        """The member that was put last is there no longer."""
        ...


@dataclass(frozen=True, slots=True)
class Alike:
    """Members that nothing tells apart.

    Attributes:
        members: their numbers, in order.
        open: (N,) the rows that take one as they are.
        needs: (R,) what each needs, in the columns of what rows have left.
        keys: (N,) the greater the better.
    """

    members: Sequence[int]
    open: Bools
    needs: Ints
    keys: Ints


@dataclass(slots=True)
class Budget:
    """What is left of it; shared by the searches of one plan."""

    steps: int = STEPS
    asked: int = ASKED

    @property
    def spent(self) -> bool:
        """Whether a search ended for want of it."""
        return self.steps <= 0 or self.asked <= 0


@dataclass(frozen=True, slots=True)
class Packing:
    """Member -> row, for those that were placed; the most that any try placed."""

    rows: dict[int, int] = field(default_factory=dict)
    enough: bool = False


def pack(
    kinds: Sequence[Alike],
    left: Ints,
    wanted: int,
    budget: Budget,
    others: Others | None = None,
) -> Packing:
    """Places at least `wanted` of the members; all of them where a try without a step back can.

    Args:
        kinds: the members.
        left: (N, R) what each row has left.
        wanted: how many have to be placed.
        budget: is used up by it.
        others: what decides beside amounts; None: nothing does.
    """
    best = Packing()
    search = _Search(kinds, left, budget, others)
    hardest = sorted(search.each, key=search.hardness)
    for order, tight in ((sorted(search.each), False), (hardest, False), (hardest, True)):
        rows = search.greedy(order, tight=tight)
        if len(rows) > len(best.rows):
            best = Packing(rows)
        if len(rows) == len(order):
            return Packing(rows, enough=True)
    if len(best.rows) >= wanted:
        return Packing(best.rows, enough=True)
    found = search.every_way(hardest, len(hardest) - wanted)
    return best if found is None else Packing(found, enough=True)


class _Search:
    def __init__(
        self, kinds: Sequence[Alike], left: Ints, budget: Budget, others: Others | None
    ) -> None:
        self._kinds = kinds
        self._left = left
        self._budget = budget
        self._others = others
        self.each = [(member, kind) for kind, one in enumerate(kinds) for member in one.members]
        self._scale = 1.0 / np.maximum(left.max(axis=0, initial=1), 1)
        self._sizes = [float(one.needs @ self._scale) for one in kinds]
        self._fitting = [one.open & (left >= one.needs).all(axis=1) for one in kinds]

    def hardness(self, one: tuple[int, int]) -> tuple[float, int, int, int]:
        """Large ones first, then those with few rows; alike ones stay together."""
        member, kind = one
        return -self._sizes[kind], int(np.count_nonzero(self._fitting[kind])), kind, member

    # ---- without a step back

    def greedy(self, order: Sequence[tuple[int, int]], *, tight: bool) -> dict[int, int]:
        """Each member goes where it is best, or tightest, as things are; some may go nowhere."""
        left, fitting = self._left.copy(), [mask.copy() for mask in self._fitting]
        slack = left @ self._scale
        placed: dict[int, int] = {}
        full: set[int] = set()
        for member, number in order:
            if number in full:
                continue
            kind, mask = self._kinds[number], fitting[number]
            if placed:
                # Only these rows have less than at the start.
                touched = np.fromiter(set(placed.values()), np.intp)
                mask[touched] &= (left[touched] >= kind.needs).all(axis=1)
            row = self._first(member, mask, kind.keys, slack if tight else None)
            if row == NOWHERE:
                if self._others is None:
                    full.add(number)  # and so for all that are like it
                continue
            placed[member] = row
            left[row] -= kind.needs
            slack[row] = left[row] @ self._scale
            if self._others is not None:
                self._others.put(member, row)
        if self._others is not None:
            for member in reversed(placed):
                self._others.take(member)
        return placed

    def _first(
        self, member: int, mask: Bools, keys: Ints, slack: NDArray[np.float64] | None
    ) -> int:
        """The first row that takes the member: the tightest, or else the one it likes best.

        A row that does not is no longer in the mask: those that are like it need not ask again.
        """
        rows = np.flatnonzero(mask)
        if not len(rows):
            return NOWHERE
        if self._others is None and slack is None:
            return int(rows[keys[rows].argmax()])
        order = np.argsort(-keys[rows]) if slack is None else np.lexsort((-keys[rows], slack[rows]))
        for row in rows[order].tolist():
            if self._others is None or self._asks(member, row):
                return int(row)
            if self._budget.asked <= 0:
                break
            mask[row] = False
        return NOWHERE

    def _asks(self, member: int, row: int) -> bool:
        assert self._others is not None
        self._budget.asked -= 1
        return self._others.takes(member, row)

    # ---- every way

    def every_way(self, order: Sequence[tuple[int, int]], spare: int) -> dict[int, int] | None:
        """All ways to leave out at most `spare` members; None: there is none, or no budget."""
        rows = np.flatnonzero(np.any(self._fitting, axis=0))
        if not 0 < len(rows) <= MOST_ROWS or spare < 0:
            return None
        ways = _Ways(self._kinds, self._left[rows], rows, self._budget, self._others)
        return ways.found(order, spare)


class _Ways:
    """Depth first over the members; of rows in the same state one is tried, of states each once."""

    def __init__(
        self,
        kinds: Sequence[Alike],
        left: Ints,
        rows: NDArray[np.intp],
        budget: Budget,
        others: Others | None,
    ) -> None:
        self._budget = budget
        self._others = others
        self._rows: list[int] = rows.tolist()
        self._left: list[tuple[int, ...]] = [tuple(one) for one in left.tolist()]
        self._scale: list[float] = (1.0 / np.maximum(left.max(axis=0), 1)).tolist()
        self._needs: list[tuple[int, ...]] = [tuple(one.needs.tolist()) for one in kinds]
        self._keys = [one.keys[rows].tolist() for one in kinds]
        # Rows open to the same members are told apart by what they have left, and nothing else
        # but who is asked beside that.
        opens = zip(*[one.open[rows].tolist() for one in kinds], strict=True)
        self._open = list(opens)
        self._sign = [
            (0 if others is None else number, one) for number, one in enumerate(self._open)
        ]
        self._hopeless: set[tuple[object, ...]] = set()
        self._placed: dict[int, int] = {}
        self._order: Sequence[tuple[int, int]] = ()

    def found(self, order: Sequence[tuple[int, int]], spare: int) -> dict[int, int] | None:
        """The first way that works with the members in this order, alike ones together."""
        self._order = order
        return dict(self._placed) if self._from(0, spare) else None

    def _from(self, at: int, spare: int) -> bool:
        if at == len(self._order):
            return True
        state: tuple[object, ...] = ()
        if self._others is None:
            state = at, spare, *sorted(zip(self._sign, self._left, strict=True))
            if state in self._hopeless:
                return False
        if self._possible(at, spare) and self._further(at, spare):
            return True
        if state and not self._budget.spent:
            self._hopeless.add(state)
        return False

    def _further(self, at: int, spare: int) -> bool:
        member, kind = self._order[at]
        for place in self._places(member, kind):
            if self._budget.spent:
                return False
            if self._try(at, place, spare):
                return True
        # Left out: those that are like it would fare no better.
        after = at + 1
        while after < len(self._order) and self._order[after][1] == kind:
            after += 1
        return after - at <= spare and self._from(after, spare - (after - at))

    def _possible(self, at: int, spare: int) -> bool:
        """Whether what is left is enough for each kind alone, and without spares for all."""
        counts = Counter(kind for _, kind in self._order[at:])
        if not spare:
            needed = map(
                sum, zip(*[_of(self._needs[k], n) for k, n in counts.items()], strict=True)
            )
            had = map(sum, zip(*self._left, strict=True))
            if any(need > have for need, have in zip(needed, had, strict=True)):
                return False
        missing = 0
        for kind, count in counts.items():
            needs, room = self._needs[kind], 0
            for left, open_ in zip(self._left, self._open, strict=True):
                if open_[kind]:
                    room += _times(left, needs, count)
            missing += max(0, count - room)
        return missing <= spare

    def _places(self, member: int, kind: int) -> Iterator[int]:
        """The places that take the member, the tightest first, one of each state."""
        needs = self._needs[kind]
        seen: set[tuple[object, ...]] = set()
        fitting = []
        for place, (left, open_) in enumerate(zip(self._left, self._open, strict=True)):
            state = self._sign[place], left
            if open_[kind] and state not in seen and _covers(left, needs):
                seen.add(state)
                slack = sum(have * scale for have, scale in zip(left, self._scale, strict=True))
                fitting.append((slack, -self._keys[kind][place], place))
        for *_, place in sorted(fitting):
            if self._others is None:
                yield place
                continue
            if self._budget.asked <= 0:
                return
            self._budget.asked -= 1
            if self._others.takes(member, self._rows[place]):
                yield place

    def _try(self, at: int, place: int, spare: int) -> bool:
        member, kind = self._order[at]
        self._budget.steps -= 1
        before, row = self._left[place], self._rows[place]
        self._left[place] = tuple(
            have - need for have, need in zip(before, self._needs[kind], strict=True)
        )
        self._placed[member] = row
        if self._others is not None:
            self._others.put(member, row)
        there = self._from(at + 1, spare)
        if self._others is not None:
            self._others.take(member)
        self._left[place] = before
        if not there:
            del self._placed[member]
        return there


def _of(needs: tuple[int, ...], count: int) -> tuple[int, ...]:
    return tuple(need * count for need in needs)


def _covers(left: tuple[int, ...], needs: tuple[int, ...]) -> bool:
    return all(have >= need for have, need in zip(left, needs, strict=True))


def _times(left: tuple[int, ...], needs: tuple[int, ...], most: int) -> int:
    """How many fit, up to `most`."""
    return min(
        [have // need for have, need in zip(left, needs, strict=True) if need > 0], default=most
    )
