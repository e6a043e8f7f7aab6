"""The filters of a profile for one pod, asked about rows as they are and as they could be.

PreFilter is called once, for the cluster as it is. Pods that come to a row or leave it are in a
what-if snapshot and in the states of plugins that count them (`with_pod`). As in kube-scheduler, a
plugin that skipped the pod is not asked then either.

A node is asked with the nominated pods there that come before this one, and without.

Source: kubernetes framework/runtime/framework.go: RunFilterPluginsWithNominatedPods,
RunPreFilterExtensionAddPod and RunPreFilterExtensionRemovePod.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from engine.framework.decision import Rejection, Rejections
from engine.framework.derived import Shared
from engine.framework.interface import Points, PreFilterResult, Room, Rooms, Scope, Verdicts
from engine.framework.searchprogress import SearchProgress
from engine.framework.snapshot import BoolColumn, Cause, Rows, Snapshot
from engine.pods.podinfo import PodInfo

_POD = int(Cause.POD)
Guard = Callable[..., Any]
"""Calls a plugin by name, point, function and arguments; a fault becomes the framework's."""


class Filtering(NamedTuple):
    """One plugin's filter for a class; `shared` is its mask if classes share it."""

    name: str
    points: Points
    result: PreFilterResult
    shared: Shared | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """See the module. `filters` are in the order of plugins, `allowed` the rows PreFilter left."""

    pod: PodInfo
    snapshot: Snapshot
    filters: Sequence[Filtering]
    allowed: BoolColumn | None
    allowed_by: tuple[str, ...]
    guard: Guard
    counted: bool = False
    """A PreFilter counts pods wherever they are."""
    progress: SearchProgress = field(default_factory=SearchProgress)
    """What a search for victims has tried."""
    mates: Sequence[int] = ()
    """The rows of pods of its gang, which are not evicted for it."""

    # ---- as it is ------------------------------------------------------------------------------

    def rejections(self, but: Container[str] = ()) -> Rejections:
        """The nodes that are rejected, and why; the filters `but` are left out."""
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
        for first in self._beside([one for one in self.nominated() if left[one[0]]]):
            left[first.rows] = False
            each.append(first)
        for filtering in self.filters:
            each += self._rejected(filtering, left) if filtering.name not in but else ()
        count = int(np.count_nonzero(present))
        # It is asked first, so its rejecting plugin is named with those that left others out.
        by = [one.plugin for one in each if nominated >= 0 and nominated in one.rows]
        return Rejections(count, each, left_out, tuple({*self.allowed_by, *by}))

    def _rejected(
        self, filtering: Filtering, left: BoolColumn, over: Snapshot | None = None
    ) -> Iterator[Rejection]:
        """What the filter rejects of the rows that are left, and takes it out of them."""
        rows = np.flatnonzero(left)
        if not len(rows):
            return
        asked = _unless_all(rows, len(left))
        verdicts = self.ask(filtering, over or self.snapshot, asked)
        for status, positions in self.guard(filtering.name, "Filter", verdicts.groups):
            if len(positions):
                left[rows[positions]] = False
                yield Rejection(filtering.name, status, rows[positions])

    def _beside(self, promises: Sequence[tuple[int, Sequence[PodInfo]]]) -> Iterator[Rejection]:
        """The first rejection of each row with the pods that are nominated to it."""
        if not promises:
            return
        if any(one.result.scope is not Scope.ROW or one.points.with_pod for one in self.filters):
            firsts = (WhatIfRow(self, row, pods).first_beside() for row, pods in promises)
            yield from (one for one in firsts if one is not None)
            return
        # No row's answer depends on pods of another: one what-if snapshot serves them all.
        over = self.snapshot.overlay_each(promises)
        left = np.zeros(self.snapshot.nodes.size, dtype=np.bool_)
        left[[row for row, _ in promises]] = True
        for filtering in self.filters:
            yield from self._rejected(filtering, left, over)

    def left_to_nominated(self, passed: BoolColumn) -> list[int]:
        """The rows of `passed` that the pod must leave to pods nominated there."""
        ahead = [one for one in self.nominated() if passed[one[0]]]
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
        """Which of the rows pass these filters, nominated pods aside."""
        passed = snapshot.nodes.present[rows].copy()
        if self.allowed is not None:
            passed &= self.allowed[rows]
        for filtering in filters:
            own = self.ask(filtering, snapshot, rows).passed
            if own is not None:
                passed &= own
        return passed

    def but_for_others(self) -> BoolColumn:
        """Rows that pass all filters but those about other pods; amounts count."""
        others = self._unlike_amounts()
        rest = replace(self, filters=[one for one in self.filters if one not in others])
        passed = rest.passes(slice(0, self.snapshot.nodes.size), rest.filters, self.snapshot)
        passed[rest.left_to_nominated(passed)] = False
        return passed

    def nominated(self) -> Sequence[tuple[int, list[PodInfo]]]:
        """Rows to which pods are nominated that come before this one, with these."""
        nominations = self.snapshot.nominations
        return nominations.before(self.pod, self.snapshot.nodes) if len(nominations) else ()

    # ---- as it could be ------------------------------------------------------------------------

    def at(self, row: int) -> WhatIfRow:
        """The row as it is, to begin with."""
        ahead = [pods for promised, pods in self.nominated() if promised == row]
        return WhatIfRow(self, row, ahead[0] if ahead else ())

    def spans(self) -> bool:
        """Whether a filter's answer for a row depends on pods of other rows."""
        return any(one.result.scope is not Scope.ROW for one in self.filters)

    # ---- where amounts alone decide ------------------------------------------------------------

    def rooms(self, rows: NDArray[np.intp]) -> Rooms | None:
        """What decides about rows that pods leave, where amounts alone do; None: nowhere."""
        moving = [one for one in self.filters if _moves(one)]
        others = self._unlike_amounts()
        if any(one.points.concerns is None for one in others):
            return None
        each = self.amounts()
        asked = _unless_all(rows, self.snapshot.nodes.size)
        concerns = [(one.name, self._yielding(one, asked), self._concerned(one)) for one in others]
        apart = np.zeros(len(rows), dtype=np.bool_)
        if promises := self.nominated():
            promised, alike = _alike(promises)
            each = [_taken(room, promised, alike) for room in each]
            for *_, concerned in concerns:
                apart |= np.isin(rows, [row for row, pods in promises if any(map(concerned, pods))])
        open_ = [one for one in self.filters if one not in moving or one in others]
        passed = self.passes(asked, open_, self.snapshot)
        plugins = frozenset([one.name for one in moving if one not in others])
        return Rooms(plugins, each, passed, apart, concerns)

    def amounts(self) -> list[Room]:
        """The amounts that pods of a row use and that the filters compare."""
        each: list[Room] = []
        for one in self.filters:
            if one.points.rooms is not None and _moves(one):
                each += self.guard(one.name, "Filter", one.points.rooms, self.pod, self.snapshot)
        return each

    @property
    def more_than_amounts(self) -> bool:
        """Whether pods change more than amounts."""
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
        """Rows rejected by other plugins: whether those come before all of these, and why."""
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


class WhatIfRow:
    """A node as it would be, for one pod, with the pods `ahead` that are nominated to it."""

    __slots__ = ("_ahead", "_asked", "_over", "_row", "_states", "_trial")

    def __init__(self, trial: Trial, row: int, ahead: Sequence[PodInfo]) -> None:
        self._trial = trial
        self._row = row
        self._ahead = ahead
        self._over = trial.snapshot
        self._states = [one.result.state for one in trial.filters]
        self._asked: Iterable[int] = range(len(trial.filters))

    def move(self, pods: Sequence[PodInfo], sign: int, row: int | None = None) -> None:
        """Pods come to the row, or another one (1), or leave it (-1)."""
        trial, row = self._trial, self._row if row is None else row
        self._over = self._over.overlay(row, *((), pods) if sign > 0 else (pods, ()))
        for at, one in enumerate(trial.filters):
            tell = one.points.with_pod
            for pod in pods if tell is not None else ():
                asked = self._states[at], pod, trial.snapshot, row, sign
                self._states[at] = trial.guard(one.name, "PreFilter", tell, *asked)

    def with_pod(self, pod: PodInfo, row: int) -> WhatIfRow:
        """The same with a pod on this row, or on another one."""
        other = self._at(self._row, self._ahead)
        other.move([pod], 1, row)
        return other

    def fits(self) -> bool:
        """Whether the pod fits now."""
        return self.rejection() is None

    def passes(self, rows: NDArray[np.intp]) -> BoolColumn:
        """On which of some rows the pod fits now."""
        trial = self._trial
        passed = trial.passes(rows, self._filters(), self._over)
        for row, pods in trial.nominated():
            for at in np.flatnonzero(passed & (rows == row)).tolist():
                passed[at] = self._at(row, pods).first_beside() is None
        return passed

    def _at(self, row: int, ahead: Sequence[PodInfo]) -> WhatIfRow:
        other = WhatIfRow(self._trial, row, ahead)
        other._over, other._states, other._asked = self._over, list(self._states), self._asked
        return other

    def rejection(self) -> Rejection | None:
        """The first rejection, with nominated pods and without; None: the pod fits."""
        found = self.first_beside() or self.first()
        if found is None:  # filters that do not look at pods need not be asked again
            each = self._trial.filters
            self._asked = [at for at in self._asked if _moves(each[at])]
        return found

    def first_beside(self) -> Rejection | None:
        """The first rejection with the nominated pods; None also if there are none."""
        if not self._ahead:
            return None
        beside = self._at(self._row, ())
        beside.move(self._ahead, 1)
        return beside.first()

    def first(self) -> Rejection | None:
        """The first rejection without nominated pods; None if the pod fits."""
        rows = np.array([self._row], dtype=np.intp)
        for one in self._filters():
            verdicts = self._trial.ask(one, self._over, rows)
            if verdicts.passed is not None and not verdicts.passed[0]:
                groups = self._trial.guard(one.name, "Filter", verdicts.groups)
                status = next(status for status, positions in groups if len(positions))
                return Rejection(one.name, status, rows)
        return None

    def _filters(self) -> Iterator[Filtering]:
        """The filters with their states for the pods that moved."""
        for at in self._asked:
            one = self._trial.filters[at]
            moves = one.points.with_pod is not None
            state = self._states[at]
            yield one._replace(result=structs.replace(one.result, state=state)) if moves else one


def _unless_all(rows: NDArray[np.intp], size: int) -> Rows:
    """The rows, ascending, as a slice if they are all: that gathers nothing."""
    return rows if len(rows) < size else slice(0, size)


def _moves(filtering: Filtering) -> bool:
    """Whether pods that come to a row or leave it change the filter's answer."""
    result = filtering.result
    return result.scope is not Scope.ROW or bool(result.causes & _POD)


_Alike = Sequence[tuple[PodInfo, Sequence[int]]]


def _alike(promises: Sequence[tuple[int, Sequence[PodInfo]]]) -> tuple[NDArray[np.intp], _Alike]:
    """The rows, and one pod for all with equal requests, with the places of their rows."""
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
    """What the pods nominated to each of the rows use of a room."""
    held = np.zeros(count, dtype=np.int64)
    for pod, places in alike:
        np.add.at(held, places, room.held(pod))
    return held


def _taken(room: Room, rows: NDArray[np.intp], alike: _Alike) -> Room:
    used = room.used.copy()
    used[rows] += _held(room, alike, len(rows))
    return replace(room, used=used)
