"""Where alike and unlike members of a gang fit together: a search within a budget, on amounts.

It sees rows with what they have left, and what each member needs. What is more than amounts (pods
that must not meet) it asks `Others` about, one row at a time. First without a step back, in the
order of preference; then, where rows of few states are left, whatever there is:

    greedy by preference ─▶ greedy, the hardest member first ─▶ the same, the tightest row first
                                                   ─▶ every way, until the budget is used up

Changes nothing but the `Others` that it is given, which it leaves as they were. All of it is done
in steps of some hundred microseconds: who asks lets others have their turn between them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import ge, itemgetter
from typing import Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

TRIES: Final = 10_000
"""Members, alike ones at once, that are placed without a way back; some 50 microseconds each."""
STEPS: Final = 4_000
"""Placements of a member that are tried when there is a way back; some 200 microseconds each."""
ASKED: Final = 500
"""Questions to `Others` in all; some 300 microseconds each."""
MOST_ROWS: Final = 64
"""Rows that differ from each other among which every way is tried."""
NOWHERE: Final = -1

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Found = TypeVar("Found")
Steps = Generator[None, None, Found]
"""What is worked out step by step."""


def at_once(steps: Steps[Found]) -> Found:
    """Returns what the steps come to."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Found = end.value
            return found


class Others(Protocol):
    """What decides beside amounts, with members where they were put."""

    def takes(self, member: int, rows: NDArray[np.intp]) -> Bools:
        """Which of the rows, ascending, take the member now."""
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
        open: (N,) the rows that take one as they are, or may with others there.
        needs: (R,) what each needs, in the columns of what rows have left.
        keys: (N,) the greater the better.
        follows: whether one fits nowhere before others are there.
    """

    members: Sequence[int]
    open: Bools
    needs: Ints
    keys: Ints
    follows: bool = False


@dataclass(slots=True)
class SearchBudget:
    """What is left of it; shared by the searches of one plan."""

    tries: int = TRIES
    steps: int = STEPS
    asked: int = ASKED

    @property
    def spent(self) -> bool:
        """Whether a search ended for want of it."""
        return min(self.tries, self.steps, self.asked) <= 0


@dataclass(frozen=True, slots=True)
class Packing:
    """Member -> row, for those that were placed; the most that any try placed.

    `enough` are placed, or `cut_short` says whether the budget ended the search.
    """

    rows: dict[int, int] = field(default_factory=dict)
    enough: bool = False
    cut_short: bool = False


def pack(searches: Iterable[Search], wanted: int, budget: SearchBudget) -> Steps[Packing]:
    """Places at least `wanted` of the members; all of them where a try without a step back can.

    Args:
        searches: of the same members, one on each set of rows where they may be together.
        wanted: how many have to be placed.
        budget: that of the searches.
    """
    best = Packing()
    begun: list[Search] = []
    for search in searches:
        yield
        begun.append(search)
        found = yield from search.straight(wanted)
        if len(found.rows) > len(best.rows):
            best = found
        if found.enough or budget.spent:
            break
    for search in () if best.enough else begun:
        way = yield from search.every_way(wanted)
        if way is not None:
            return way
    return replace(best, cut_short=budget.spent and not best.enough)


@dataclass(eq=False)
class Search:
    """One on some rows: `straight` has to end before `every_way` begins."""

    kinds: Sequence[Alike]
    left: Ints
    rows: NDArray[np.intp]
    """What `kinds` and `left` are about, by the numbers that others are asked by."""
    budget: SearchBudget
    others: Others | None

    def __post_init__(self) -> None:
        each = enumerate(self.kinds)
        self._each = [(member, kind) for kind, one in each for member in one.members]
        self._scale = 1.0 / np.maximum(self.left.max(axis=0, initial=1), 1)
        self._sizes = [float(one.needs @ self._scale) for one in self.kinds]
        self._fitting: list[Bools] = []
        self._hardest: Sequence[tuple[int, int]] = ()

    def _hardness(self, one: tuple[int, int]) -> tuple[bool, float, int, int, int]:
        """Large ones first, then those with few rows; alike ones stay together."""
        member, kind = one
        follows, fitting = self.kinds[kind].follows, int(np.count_nonzero(self._fitting[kind]))
        return follows, -self._sizes[kind], fitting, kind, member

    # ---- without a step back

    def straight(self, wanted: int) -> Steps[Packing]:
        """The most that any order of members and rows places, each where it is best or tightest."""
        for one in self.kinds:
            self._fitting.append(one.open & (self.left >= one.needs).all(axis=1))
            yield
        self._hardest = hardest = sorted(self._each, key=self._hardness)
        best: dict[int, int] = {}
        liked = sorted(self._each, key=lambda one: (self.kinds[one[1]].follows, one))
        for order, tight in ((liked, False), (hardest, False), (hardest, True)):
            placed = yield from self._greedy(order, tight=tight)
            if len(placed) > len(best):
                best = placed
            if len(best) == len(order):
                break
        rows = {member: int(self.rows[place]) for member, place in best.items()}
        return Packing(rows, len(best) >= wanted)

    def _greedy(self, order: Sequence[tuple[int, int]], *, tight: bool) -> Steps[dict[int, int]]:
        left, fitting = self.left.copy(), [mask.copy() for mask in self._fitting]
        slack = left @ self._scale
        placed: dict[int, int] = {}
        full: set[int] = set()
        for number, run in groupby(order, key=itemgetter(1)):
            members = [member for member, _ in run]
            if self.others is not None and self.kinds[number].follows:
                if not placed or self.budget.asked <= 0:
                    continue
                self.budget.asked -= 1
                yield
                (rows,) = np.nonzero(fitting[number])
                fitting[number][rows] = self.others.takes(members[0], self.rows[rows])
            while members and number not in full and self.budget.tries > 0:
                self.budget.tries -= 1
                kind, fits = self.kinds[number], fitting[number]
                fits &= (left >= kind.needs).all(axis=1)
                places = self._places(members, number, fits, left, slack if tight else None)
                if self.others is None and len(places) < len(members):
                    full.add(number)  # and so for all that are like it
                for member, place in zip(members, places, strict=False):
                    placed[member] = place
                    if self.others is not None:
                        self.others.put(member, int(self.rows[place]))
                taken = np.bincount(np.array(places, np.intp), minlength=len(left))
                (some,) = np.nonzero(taken)
                left[some] -= taken[some, None] * kind.needs
                slack[some] = left[some] @ self._scale
                members = members[1:] if self.others is not None else []
                yield
        if self.others is not None:
            for member in reversed(placed):
                self.others.take(member)
        return placed

    def _places(
        self,
        members: Sequence[int],
        number: int,
        fits: Bools,
        left: Ints,
        slack: NDArray[np.float64] | None,
    ) -> list[int]:
        """Where the first members go that nothing tells apart; one at a time if others are asked.

        A row that others refuse is no longer in the mask: those like it need not ask again.
        """
        kind = self.kinds[number]
        (rows,) = np.nonzero(fits)
        if not len(rows):
            return []
        one = len(members) == 1 or not kind.needs.any()
        if self.others is None and slack is None and one:
            return [int(rows[kind.keys[rows].argmax()])] * len(members)
        keys = -kind.keys[rows]
        order = keys.argsort(kind="stable") if slack is None else np.lexsort((keys, slack[rows]))
        rows = rows[order]
        if self.others is None:
            asks = kind.needs > 0
            times = (left[rows][:, asks] // kind.needs[asks]).min(axis=1, initial=len(members))
            ends = times.cumsum()
            count = min(len(members), int(ends[-1]))
            places: list[int] = rows[ends.searchsorted(np.arange(count), side="right")].tolist()
            return places
        for place in rows.tolist():
            if self.budget.asked <= 0:
                break
            self.budget.asked -= 1
            if self.others.takes(members[0], self.rows[[place]])[0]:
                return [place]
            fits[place] = False
        return []

    # ---- every way

    def every_way(self, wanted: int) -> Steps[Packing | None]:
        """All ways to leave out those that can be spared; None: there is none, or no budget."""
        spare = len(self._hardest) - wanted
        rows = np.flatnonzero(np.any(self._fitting, axis=0))
        if not 0 < len(rows) <= MOST_ROWS or spare < 0 or self.budget.spent:
            return None
        ways = _Ways(self, self._hardest, rows)
        there = yield from ways.found(0, spare)
        return Packing(ways.placed, enough=True) if there else None


class _Ways:
    """Depth first over the members; of rows in the same state one is tried, of states each once.

    The members are in an order with alike ones together; `placed` is the first way that works.
    """

    def __init__(
        self, search: Search, order: Sequence[tuple[int, int]], rows: NDArray[np.intp]
    ) -> None:
        kinds = search.kinds
        self._budget = search.budget
        self._others = search.others
        self._rows: list[int] = search.rows[rows].tolist()
        self._had = search.left[rows]
        self._left: list[tuple[int, ...]] = [tuple(one) for one in self._had.tolist()]
        self._scale: list[float] = (1.0 / np.maximum(self._had.max(axis=0), 1)).tolist()
        self._needed = np.stack([one.needs for one in kinds])
        self._needs: list[tuple[int, ...]] = [tuple(one) for one in self._needed.tolist()]
        self._keys = [one.keys[rows].tolist() for one in kinds]
        # Rows open to the same members are told apart by what they have left, and nothing else
        # but who is asked beside that.
        self._opened = np.stack([one.open[rows] for one in kinds])
        self._open = [tuple(one) for one in self._opened.T.tolist()]
        self._sign = [
            (0 if search.others is None else number, one) for number, one in enumerate(self._open)
        ]
        self._hopeless: set[tuple[object, ...]] = set()
        self.placed: dict[int, int] = {}
        self._order = order

    def found(self, at: int, spare: int) -> Steps[bool]:
        """Whether the members from there on have places, with so many left out at most."""
        if at == len(self._order):
            return True
        state: tuple[object, ...] = ()
        if self._others is None:
            each = sorted(zip(self._sign, self._left, strict=True))
            state = at, spare, *each
            if state in self._hopeless:
                return False
        if self._possible(at, spare) and (yield from self._further(at, spare)):
            return True
        if state and not self._budget.spent:
            self._hopeless.add(state)
        return False

    def _further(self, at: int, spare: int) -> Steps[bool]:
        member, kind = self._order[at]
        for place in self._places(member, kind):
            if self._budget.spent:
                return False
            if (yield from self._try(at, place, spare)):
                return True
        # Left out: those that are like it would fare no better.
        after = at + 1
        while after < len(self._order) and self._order[after][1] == kind:
            after += 1
        if after - at > spare:
            return False
        return (yield from self.found(after, spare - (after - at)))

    def _possible(self, at: int, spare: int) -> bool:
        """Whether what is left is enough for each kind alone, and without spares for all."""
        kinds, counts = np.unique([kind for _, kind in self._order[at:]], return_counts=True)
        needs = self._needed[kinds]
        if not spare and (counts @ needs > self._had.sum(axis=0)).any():
            return False
        times = self._opened[kinds] * counts[:, None]
        for need, had in zip(needs.T, self._had.T, strict=True):
            asks = need > 0
            times[asks] = np.minimum(times[asks], had // need[asks, None])
        missing = np.maximum(counts - times.sum(axis=1), 0).sum()
        return bool(missing <= spare)

    def _places(self, member: int, kind: int) -> Iterator[int]:
        """The places that take the member, the tightest first, one of each state."""
        needs = self._needs[kind]
        seen: set[tuple[object, ...]] = set()
        fitting = []
        for place, (left, open_) in enumerate(zip(self._left, self._open, strict=True)):
            state = self._sign[place], left
            if open_[kind] and state not in seen and all(map(ge, left, needs)):
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
            if self._others.takes(member, np.array([self._rows[place]]))[0]:
                yield place

    def _try(self, at: int, place: int, spare: int) -> Steps[bool]:
        member, kind = self._order[at]
        self._budget.steps -= 1
        before, row = self._left[place], self._rows[place]
        self._left[place] = tuple(
            have - need for have, need in zip(before, self._needs[kind], strict=True)
        )
        self._had[place] = self._left[place]
        self.placed[member] = row
        if self._others is not None:
            self._others.put(member, row)
        yield
        there = yield from self.found(at + 1, spare)
        if self._others is not None:
            self._others.take(member)
        self._left[place] = self._had[place] = before
        if not there:
            del self.placed[member]
        return there
