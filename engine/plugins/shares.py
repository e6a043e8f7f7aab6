"""NodeResourcesFit and NodeResourcesBalancedAllocation in one pass, over shares of cpu and memory.

Both read the same amounts of a row. Here those are floats, kept up to date by the rows
that changed, and one pass over them gives the exact answers of both. Only for
LeastAllocated with equal weights of cpu and memory, while amounts are exact as floats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.framework.derived import LogPosition
from engine.framework.interface import MAX_SCORE, Scores, State
from engine.framework.snapshot import BoolColumn, FloatColumn, NodeColumns, Rows, Snapshot
from engine.pods.podinfo import CPU, MEMORY, NONZERO_CPU, NONZERO_MEMORY, PODS, PodInfo

EXACT: Final = 1 << 45
"""200 times a whole number below it is exact as a float, and so is a quotient rounded down."""
HALF: Final = MAX_SCORE // 2
_TWICE: Final = 2 * MAX_SCORE
COUNTED: Final = {CPU: NONZERO_CPU, MEMORY: NONZERO_MEMORY}
"""What is summed up of each for scores."""
_FEW_ROWS: Final = 8
_ALL: Final = slice(None)
# Lines, in the order of `Shares._write`, and those of what is computed of the moved ones.
_THERE, _MOVED, _ROOM, _MORE, _LINES = slice(0, 4), slice(4, 8), slice(8, 10), 10, 11
_LEFT, _BOTH, _HELD = slice(0, 2), slice(1, 3), slice(2, 4)
_ANY_ROOM: Final = -float(1 << 62)
_FULL: Final = -np.inf


class Role(Enum):
    """What a score is in the joint; it is the state of its PreScore."""

    LEAST = "how much of both stays free"
    EVEN = "how evenly both are used"


class Shares:
    """The lines of all rows: see `_write`."""

    def __init__(self) -> None:
        self._place = LogPosition()
        self._nodes: NodeColumns | None = None
        self._lines = np.empty((_LINES, 0))
        self._cells: list[Any] = []
        self._odd: set[int] = set()
        self._floats = np.empty((4, 0))
        self._flags = np.empty((2, 0), np.bool_)

    def refresh(self, snapshot: Snapshot) -> bool:
        """Catches up; False if an amount is too large for exact floats."""
        place, nodes = self._place, snapshot.nodes
        same = nodes is self._nodes and place.layout == snapshot.layout
        before, row, _ = snapshot.last
        if same and before == place.generation:
            place.generation = snapshot.generation
            self._set(row)
        elif not (same and place.generation == snapshot.generation):
            changes = place.read(snapshot)
            if not same or changes is None:
                self._renew(nodes)
            elif len(changes[0]) > _FEW_ROWS:
                self._write(changes[0])
            else:
                for row in changes[0].tolist():
                    self._set(row)
        return not self._odd

    def lines(self, rows: Rows) -> tuple[FloatColumn, FloatColumn, NDArray[np.bool_]]:
        """The lines of these rows, and what to compute in; used again for all rows."""
        if isinstance(rows, slice):
            return self._lines, self._floats, self._flags
        count = len(rows)
        return self._lines.take(rows, 1), np.empty((4, count)), np.empty((2, count), np.bool_)

    def _renew(self, nodes: NodeColumns) -> None:
        size = nodes.size
        self._nodes = nodes
        if self._lines.shape[1] != size:
            self._lines = np.empty((_LINES, size))
            self._floats, self._flags = np.empty((4, size)), np.empty((2, size), np.bool_)
        self._cells = [line.data for line in self._lines]
        self._amounts = [
            (nodes.allocatable(name).data, nodes.requested(name).data, nodes.requested(more).data)
            for name, more in COUNTED.items()
        ]
        self._pods = nodes.pod_count.data, nodes.allocatable(PODS).data
        self._present = nodes.present.data
        self._odd.clear()
        self._write(_ALL)

    def _write(self, rows: slice | NDArray[np.intp]) -> None:
        """Of each resource twice what is there, 200 times free as scores count it, held, and free.

        What is there stands above both that it divides. Free is minus infinity where no pod more
        may come, as on rows without a node. The last line is 150 less the balance of what is held.
        Amounts that are no exact floats are 1.
        """
        assert self._nodes is not None
        nodes = self._nodes
        count = len(nodes.present[rows])
        lines, odd = np.empty((_LINES, count)), np.zeros(count, np.bool_)
        for i, (name, counted) in enumerate(COUNTED.items()):
            there, held = nodes.allocatable(name)[rows], nodes.requested(name)[rows]
            used = nodes.requested(counted)[rows]
            wrong = (there <= 0) | (there >= EXACT)
            for amount in (held, used):
                wrong |= (amount < 0) | (amount >= EXACT)
            odd |= wrong
            there, held, used = (np.where(wrong, 1, amount) for amount in (there, held, used))
            lines[i] = lines[2 + i] = 2 * there
            lines[4 + i], lines[6 + i] = (there - used) * _TWICE, held
            lines[8 + i] = there - held
        full = nodes.pod_count[rows] >= nodes.allocatable(PODS)[rows]
        lines[8][full] = _FULL
        halves = lines[_MOVED][_HELD] / lines[_HELD]
        np.subtract(HALF + MAX_SCORE, _balance(halves), out=lines[_MORE])
        self._lines[:, rows] = lines
        odd &= nodes.present[rows]
        if isinstance(rows, slice):
            self._odd.update(np.flatnonzero(odd).tolist())
        else:
            self._odd.difference_update(rows.tolist())
            self._odd.update(rows[odd].tolist())

    def _set(self, row: int) -> None:
        cells, odd = self._cells, False
        shares = []
        for i, (allocatable, requested, counted) in enumerate(self._amounts):
            there, held, used = allocatable[row], requested[row], counted[row]
            if not (0 < there < EXACT and 0 <= held < EXACT and 0 <= used < EXACT):
                there = held = used = 1
                odd = True
            cells[i][row] = cells[2 + i][row] = 2 * there
            cells[4 + i][row], cells[6 + i][row] = (there - used) * _TWICE, held
            cells[8 + i][row] = there - held
            shares.append(min(held / there, 1.0))
        counts, limits = self._pods
        if counts[row] >= limits[row]:
            cells[8][row] = _FULL
        balance = int((1 - abs(shares[0] - shares[1]) / 2) * MAX_SCORE)
        cells[_MORE][row] = HALF + MAX_SCORE - balance
        if odd and self._present[row]:
            self._odd.add(row)
        elif self._odd:
            self._odd.discard(row)


class FitAndBalance:
    """The answers of both plugins for one class of pods; see `framework.interface.Joint`."""

    def __init__(
        self,
        shares: Shares,
        pod: PodInfo,
        scorers: Mapping[str, tuple[float, State]],
        more: Sequence[tuple[str, int]],
    ) -> None:
        """`more` are the other resources of which a row must have enough."""
        self._shares = shares
        self._least = self._even = 0.0
        self.scorers: list[str] = []
        for name, (weight, state) in scorers.items():
            if state is Role.LEAST:
                self._least = weight
            elif state is Role.EVEN:
                self._even = weight
            else:
                continue
            self.scorers.append(name)
        self._more = more
        readings = pod.readings
        self._needs, self._adds, self._counts = (
            (amounts.get(CPU, 0), amounts.get(MEMORY, 0))
            for amounts in (readings.filter_requests, readings.requests, readings.score_requests)
        )
        amounts = (*self._needs, *self._adds, *self._counts)
        self.exact = min(amounts) >= 0 and max(amounts) < EXACT
        needs = [need or _ANY_ROOM for need in self._needs]
        moves = [*(-n * _TWICE for n in self._counts), *self._adds]
        # They stand upright, beside the lines.
        self._upright = np.array([*moves, *needs], np.float64).reshape(6, 1)
        weights = self._least, self._even
        self._weights = None if weights == (1.0, 1.0) else np.array(weights).reshape(2, 1)

    def totals(self, snapshot: Snapshot, rows: Rows) -> tuple[BoolColumn, Scores] | None:
        """See `Joint.totals`."""
        shares = self._shares
        if not shares.refresh(snapshot):
            return None
        lines, floats, flags = shares.lines(rows)
        passed = np.greater_equal(lines[_ROOM], self._upright[4:], out=flags)[0]
        passed &= flags[1]
        for name, need in self._more:
            nodes = snapshot.nodes
            passed &= nodes.allocatable(name)[rows] - nodes.requested(name)[rows] >= need
        # Few calls: for a known class each takes longer than its rows.
        np.add(lines[_MOVED], self._upright[:4], out=floats)
        floats /= lines[_THERE]
        left = floats[_LEFT]
        np.floor(left, out=left)
        np.maximum(left, 0.0, out=left)
        least = left[1]
        least += left[0]
        even = _balance(floats[_HELD])
        even += lines[_MORE]
        scores = floats[_BOTH]
        scores *= 0.5
        np.floor(scores, out=scores)
        if self._weights is not None:
            scores *= self._weights
        return passed, np.add(scores[0], scores[1], out=scores[0])

    def row(self, snapshot: Snapshot) -> Callable[[int], float | None]:
        """See `Joint.row`."""
        nodes = snapshot.nodes
        pods, limits = nodes.pod_count.data, nodes.allocatable(PODS).data
        there, there_too = (nodes.allocatable(name).data for name in COUNTED)
        held, held_too = (nodes.requested(name).data for name in COUNTED)
        used, used_too = (nodes.requested(counted).data for counted in COUNTED.values())
        (add, add_too), (counts, counts_too) = self._adds, self._counts
        most, most_too = map(max, self._adds, self._needs)
        need, need_too = (need or _ANY_ROOM for need in self._needs)
        least, even = (int(w) if w == int(w) else w for w in (self._least, self._even))
        more = [
            (nodes.allocatable(name).data, nodes.requested(name).data, need)
            for name, need in self._more
        ]

        def total(row: int) -> float | None:
            a, b, x, y = there[row], there_too[row], held[row], held_too[row]
            u, v = used[row], used_too[row]
            # One test for all: or-ed together, none is negative and none has too many bits.
            exact = 0 <= a | b | x | y | u | v < EXACT
            if not (exact and x <= a - most and y <= b - most_too and a and b):
                return -1 if exact and (a - x < need or b - y < need_too) else None
            if pods[row] >= limits[row]:
                return -1
            for allocatable, requested, amount in more:
                free = allocatable[row] - requested[row]
                if not amount <= free < EXACT:
                    return -1 if -EXACT < free < amount else None
            u, v = a - u - counts, b - v - counts_too
            free = (
                (u * MAX_SCORE // a if u > 0 else 0) + (v * MAX_SCORE // b if v > 0 else 0)
            ) // 2
            before, after = (x / a - y / b) / 2, ((x + add) / a - (y + add_too) / b) / 2
            moved = int((1 - abs(after)) * MAX_SCORE) - int((1 - abs(before)) * MAX_SCORE)
            return least * free + even * (HALF + int((HALF + moved) / 2))

        return total


def _balance(halves: FloatColumn) -> FloatColumn:
    """100 less the difference of two halves of shares in hundredths, truncated, in the first."""
    np.minimum(halves, 0.5, out=halves)
    score: FloatColumn = halves[0]
    score -= halves[1]
    np.abs(score, out=score)
    np.subtract(1.0, score, out=score)
    score *= MAX_SCORE
    return np.trunc(score, out=score)
