"""The filters of a profile for one pod, asked about rows as they could be.

PreFilter is asked once, about the cluster as it is; pods that come to a row or leave it are seen in
a what-if snapshot, and told to the states that count them. A plugin that had nothing
to say about the pod has nothing to say then either, as in kube-scheduler.

Where pods of equal or higher priority are promised a node, a row is asked with them and without.

Source: kubernetes framework/runtime/framework.go: RunFilterPluginsWithNominatedPods,
RunPreFilterExtensionAddPod and RunPreFilterExtensionRemovePod.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from engine.framework.decision import Rejection, Rejections
from engine.framework.interface import Room, Rooms, Scope, Verdicts
from engine.framework.snapshot import BoolColumn, Cause, Rows, Snapshot
from engine.framework.tried import Tried
from engine.pods.podinfo import PodInfo

if TYPE_CHECKING:
    from engine.framework.asking import Filtering

_POD = int(Cause.POD)
Guard = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Trial:
    """See the module. `filters` are in the order of plugins; what PreFilter left is `allowed`."""

    pod: PodInfo
    snapshot: Snapshot
    filters: Sequence[Filtering]
    allowed: BoolColumn | None
    allowed_by: tuple[str, ...]
    guard: Guard
    counted: bool = False
    """A PreFilter counts pods wherever they are."""
    tried: Tried = field(default_factory=Tried)
    """What a search for victims has tried."""
    mates: Sequence[int] = ()
    """The rows of pods of its gang, who do not go for it."""

    # ---- as it is ------------------------------------------------------------------------------

    def rejections(self, but: Container[str] = ()) -> Rejections:
        """Why each node is rejected that is, by filters other than some."""
        present = self.snapshot.nodes.present
        left, left_out, nominated = present.copy(), None, -1
        if self.allowed is not None:
            left &= self.allowed
            # The pod's own nominated node is asked whatever a PreFilter says.
            nominated = self.snapshot.nodes.row(self.snapshot.nominations.node_of(self.pod.uid))
            if nominated >= 0:
                left[nominated] = True
            left_out = np.flatnonzero(present & ~left)
        each: list[Rejection] = []
        for first in self._beside([one for one in self.promises() if left[one[0]]]):
            left[first.rows] = False
            each.append(first)
        for filtering in self.filters:
            each += self._rejected(filtering, left) if filtering.name not in but else ()
        count = int(np.count_nonzero(present))
        # It is asked first, so who rejects it is named with those who left others out.
        by = [one.plugin for one in each if nominated >= 0 and nominated in one.rows]
        return Rejections(count, each, left_out, tuple({*self.allowed_by, *by}))

    def _rejected(
        self, filtering: Filtering, left: BoolColumn, over: Snapshot | None = None
    ) -> Iterator[Rejection]:
        """What the filter rejects of the rows that are left, which are not any longer."""
        rows = np.flatnonzero(left)
        if not len(rows):
            return
        asked = _unless_all(rows, len(left))
        for status, positions in self.ask(filtering, over or self.snapshot, asked).groups():
            if len(positions):
                left[rows[positions]] = False
                yield Rejection(filtering.name, status, rows[positions])

    def _beside(self, promises: Sequence[tuple[int, Sequence[PodInfo]]]) -> Iterator[Rejection]:
        """The first rejection of each of the rows beside the pods that it is promised to."""
        if not promises:
            return
        if any(one.result.scope is not Scope.ROW or one.points.with_pod for one in self.filters):
            firsts = (Stand(self, row, pods).first_beside() for row, pods in promises)
            yield from (one for one in firsts if one is not None)
            return
        # No row's answer depends on who comes to another: one what-if serves them all.
        over = self.snapshot.overlay_each(promises)
        left = np.zeros(self.snapshot.nodes.size, dtype=np.bool_)
        left[[row for row, _ in promises]] = True
        for filtering in self.filters:
            yield from self._rejected(filtering, left, over)

    def promised(self, passed: BoolColumn) -> list[int]:
        """Those of the rows that pass where the pod has to leave the room to others."""
        ahead = [one for one in self.promises() if passed[one[0]]]
        if not ahead:
            return []
        if self._unlike_amounts():
            return [row for one in self._beside(ahead) for row in one.rows.tolist()]
        rows, alike = _alike(ahead)
        short = np.zeros(len(rows), dtype=np.bool_)
        for room in self.amounts():
            short |= room.limit[rows] - room.used[rows] - _held(room, alike, len(rows)) < room.need
        found: list[int] = rows[short].tolist()
        return found

    def passes(self, rows: Rows, filters: Iterable[Filtering], snapshot: Snapshot) -> BoolColumn:
        """Which of the rows these filters let pass, promises apart."""
        passed = snapshot.nodes.present[rows].copy()
        if self.allowed is not None:
            passed &= self.allowed[rows]
        for filtering in filters:
            own = self.ask(filtering, snapshot, rows).passed
            if own is not None:
                passed &= own
        return passed

    def promises(self) -> Sequence[tuple[int, list[PodInfo]]]:
        """Rows that are promised to pods before this one, and those."""
        nominations = self.snapshot.nominations
        return nominations.before(self.pod, self.snapshot) if len(nominations) else ()

    # ---- as it could be ------------------------------------------------------------------------

    def at(self, row: int) -> Stand:
        """The row as it is, to begin with."""
        ahead = [pods for promised, pods in self.promises() if promised == row]
        return Stand(self, row, ahead[0] if ahead else ())

    def spans(self) -> bool:
        """Whether a filter says of a row what pods of other rows change."""
        return any(one.result.scope is not Scope.ROW for one in self.filters)

    # ---- where amounts alone decide ------------------------------------------------------------

    def rooms(self, rows: NDArray[np.intp]) -> Rooms | None:
        """What decides on the rows as pods leave them, where amounts alone do; None: nowhere."""
        moving = [one for one in self.filters if _moves(one)]
        others = self._unlike_amounts()
        if any(one.points.concerns is None for one in others):
            return None
        each = self.amounts()
        asked = _unless_all(rows, self.snapshot.nodes.size)
        concerns = [(one.name, self._yielding(one, asked), self._concerned(one)) for one in others]
        apart = np.zeros(len(rows), dtype=np.bool_)
        if promises := self.promises():
            promised, alike = _alike(promises)
            each = [_taken(room, promised, alike) for room in each]
            for *_, concerned in concerns:
                apart |= np.isin(rows, [row for row, pods in promises if any(map(concerned, pods))])
        open_ = [one for one in self.filters if one not in moving or one in others]
        passed = self.passes(asked, open_, self.snapshot)
        plugins = frozenset([one.name for one in moving if one not in others])
        return Rooms(plugins, each, passed, apart, concerns)

    def amounts(self) -> list[Room]:
        """What moves with pods and is an amount that a row must have left."""
        each: list[Room] = []
        for one in self.filters:
            if one.points.rooms is not None and _moves(one):
                each += self.guard(one.name, "Filter", one.points.rooms, self.pod, self.snapshot)
        return each

    @property
    def more_than_amounts(self) -> bool:
        """Whether more than amounts moves with pods."""
        return self.counted or bool(self._unlike_amounts())

    def _unlike_amounts(self) -> list[Filtering]:
        return [one for one in self.filters if one.points.rooms is None and _moves(one)]

    def _concerned(self, one: Filtering) -> Callable[[PodInfo], bool]:
        ask, state = one.points.concerns, one.result.state
        return lambda pod: bool(
            self.guard(one.name, "Filter", ask, state, self.pod, pod, self.snapshot)
        )

    def _yielding(self, one: Filtering, rows: Rows) -> BoolColumn:
        ask, state = one.points.yields, one.result.state
        if ask is None:
            return np.ones(len(self.snapshot.nodes.present[rows]), dtype=np.bool_)
        found: BoolColumn = self.guard(
            one.name, "Filter", ask, state, self.pod, self.snapshot, rows
        )
        return found

    def others(self, plugins: frozenset[str]) -> Mapping[int, tuple[bool, tuple[str, ...]]]:
        """Rows rejected by other filters than these: if they are asked before these, and why."""
        names = [one.name for one in self.filters]
        first = min((names.index(name) for name in plugins), default=0)
        alone = replace(self, filters=[one for one in self.filters if one.name not in plugins])
        return {
            row: (names.index(one.plugin) < first, one.status.reasons)
            for one in alone.rejections().each
            for row in one.rows.tolist()
        }

    def ask(self, filtering: Filtering, snapshot: Snapshot, rows: Rows) -> Verdicts:
        """One filter's answer."""
        ask, state = filtering.points.filter, filtering.result.state
        assert ask is not None
        found = self.guard(filtering.name, "Filter", ask, state, self.pod, snapshot, rows)
        assert isinstance(found, Verdicts)
        return found


class Stand:
    """A row as it would be, for one pod: beside those to which it is promised before that."""

    __slots__ = ("_ahead", "_asked", "_over", "_row", "_states", "_trial")

    def __init__(self, trial: Trial, row: int, ahead: Sequence[PodInfo]) -> None:
        self._trial = trial
        self._row = row
        self._ahead = ahead
        self._over = trial.snapshot
        self._states = [one.result.state for one in trial.filters]
        self._asked: Iterable[int] = range(len(trial.filters))

    def move(self, pods: Sequence[PodInfo], sign: int, row: int | None = None) -> None:
        """Pods come to it (1) or leave it (-1), or another row."""
        trial, row = self._trial, self._row if row is None else row
        self._over = self._over.overlay(row, *((), pods) if sign > 0 else (pods, ()))
        for at, one in enumerate(trial.filters):
            tell = one.points.with_pod
            for pod in pods if tell is not None else ():
                asked = self._states[at], pod, trial.snapshot, row, sign
                self._states[at] = trial.guard(one.name, "PreFilter", tell, *asked)

    def with_pod(self, pod: PodInfo, row: int) -> Stand:
        """The same with a pod on it, or on another row."""
        other = self._at(self._row, self._ahead)
        other.move([pod], 1, row)
        return other

    def fits(self) -> bool:
        """Whether it takes the pod now."""
        return self.rejection() is None

    def passes(self, rows: NDArray[np.intp]) -> BoolColumn:
        """Which of some rows take the pod now."""
        trial = self._trial
        passed = trial.passes(rows, self._filters(), self._over)
        for row, pods in trial.promises():
            for at in np.flatnonzero(passed & (rows == row)).tolist():
                passed[at] = self._at(row, pods).first_beside() is None
        return passed

    def _at(self, row: int, ahead: Sequence[PodInfo]) -> Stand:
        other = Stand(self._trial, row, ahead)
        other._over, other._states, other._asked = self._over, list(self._states), self._asked
        return other

    def rejection(self) -> Rejection | None:
        """The first rejection, promises to others included; None: the row takes the pod."""
        found = self.first_beside() or self.first()
        if found is None:  # what pods do not move passes whoever else moves
            each = self._trial.filters
            self._asked = [at for at in self._asked if _moves(each[at])]
        return found

    def first_beside(self) -> Rejection | None:
        """The first rejection beside the pods that come before; None also if there are none."""
        if not self._ahead:
            return None
        beside = self._at(self._row, ())
        beside.move(self._ahead, 1)
        return beside.first()

    def first(self) -> Rejection | None:
        """The first rejection, whoever is promised the row; None if it takes the pod."""
        rows = np.array([self._row], dtype=np.intp)
        for one in self._filters():
            verdicts = self._trial.ask(one, self._over, rows)
            if verdicts.passed is not None and not verdicts.passed[0]:
                status = next(status for status, positions in verdicts.groups() if len(positions))
                return Rejection(one.name, status, rows)
        return None

    def _filters(self) -> Iterator[Filtering]:
        """The filters with what they know of the pods that moved."""
        for at in self._asked:
            one = self._trial.filters[at]
            moves = one.points.with_pod is not None
            state = self._states[at]
            yield one._replace(result=structs.replace(one.result, state=state)) if moves else one


def _unless_all(rows: NDArray[np.intp], size: int) -> Rows:
    """The rows, ascending; of all of them nothing has to be gathered."""
    return rows if len(rows) < size else slice(0, size)


def _moves(filtering: Filtering) -> bool:
    """Whether pods that come to a row or leave it change what the filter says of it."""
    result = filtering.result
    return result.scope is not Scope.ROW or bool(result.causes & _POD)


_Alike = Sequence[tuple[PodInfo, Sequence[int]]]


def _alike(promises: Sequence[tuple[int, Sequence[PodInfo]]]) -> tuple[NDArray[np.intp], _Alike]:
    """The promised rows, and one of each pods that take the same, with the places of their rows."""
    found: dict[int, tuple[PodInfo, list[int]]] = {}
    for place, (_, pods) in enumerate(promises):
        for pod in pods:
            shape = id(pod.readings)  # equal pods share them
            known = found.get(shape)
            if known is None:
                known = found[shape] = pod, []
            known[1].append(place)
    return np.array([row for row, _ in promises], dtype=np.intp), list(found.values())


def _held(room: Room, alike: _Alike, count: int) -> NDArray[np.int64]:
    """What the pods to which each of the rows is promised take of a room."""
    held = np.zeros(count, dtype=np.int64)
    for pod, places in alike:
        np.add.at(held, places, room.held(pod))
    return held


def _taken(room: Room, rows: NDArray[np.intp], alike: _Alike) -> Room:
    used = room.used.copy()
    used[rows] += _held(room, alike, len(rows))
    return replace(room, used=used)
