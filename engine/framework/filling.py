"""Filling a class of pods and replaying to it the rows that changed.

The full pass and the replay of many rows are the same calls; few rows are asked one by one. What
is asked when changes how long it takes and never the keys.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.framework.asking import Asking, Filtering, PluginError, Scoring, by_top, count_of
from engine.framework.derived import concerned
from engine.framework.grouped import GroupedChoice
from engine.framework.interface import MAX_SCORE, Normalization, Scope, Scores
from engine.framework.podclass import (
    FRACTION,
    NOWHERE,
    TIE_BITS,
    TIE_MASK,
    UNIT,
    Lookup,
    OutOfRange,
    PodClass,
    row_of,
    steps_of,
)
from engine.framework.podinfo import PodInfo
from engine.framework.sharing import Shared, Sharing
from engine.framework.snapshot import BoolColumn, Cause, IntColumn, Rows, Snapshot
from engine.framework.ties import Ties

_FEW_ROWS: Final = 16
_ANY: Final = int(Cause.ANY)
_TO_HIGHEST: Final = (1 << 63) - 1
_ONE_ZERO: Final = np.zeros(1)


class Filling:
    """See the module."""

    def __init__(self, asking: Asking, sharing: Sharing) -> None:
        self._asking = asking
        self._sharing = sharing
        self._ties = Ties()
        # Used again: the operating system takes large arrays back each time.
        self._floats: Scores = np.empty(0)
        self._ints: IntColumn = np.empty(0, dtype=np.int64)

    def bring_up(self, known: PodClass, pod: PodInfo, snapshot: Snapshot) -> None:
        """Brings the class up to the snapshot.

        Raises:
            Unfit: a PreFilter rejected the pod.
            PluginError: a plugin raised.
        """
        place = known.place
        if place.layout != snapshot.layout and not self._relaid(known, snapshot):
            self._fill(known, pod, snapshot)
            return
        if known.terms.versions and not self._current(known, snapshot):
            self._fill(known, pod, snapshot)
            return
        if place.generation != snapshot.generation:
            before, row, causes = snapshot.last
            try:
                if before == place.generation:
                    place.generation = snapshot.generation
                    if self._replayed(known, pod, snapshot, (row,), causes):
                        return
                elif self._caught_up(known, pod, snapshot):
                    return
            except BaseException:
                place.forget()
                raise
            self._fill(known, pod, snapshot)

    def _current(self, known: PodClass, snapshot: Snapshot) -> bool:
        """Whether what the class depends on besides rows is as it was."""
        for name, version, value in known.terms.versions:
            try:
                if version(snapshot) != value:
                    return False
            except Exception as cause:
                known.place.forget()
                raise self._asking.fault(name, "PreFilter", cause) from cause
        return True

    # ---- rows that changed -------------------------------------------------------------------

    def _caught_up(self, known: PodClass, pod: PodInfo, snapshot: Snapshot) -> bool:
        changes = known.place.read(snapshot)
        if changes is None:
            return False
        rows, causes = changes
        union = int(np.bitwise_or.reduce(causes))
        if union & ~known.causes:
            rows = concerned(changes, known.causes)
        return self._replayed(known, pod, snapshot, rows, union)

    def _replayed(
        self,
        known: PodClass,
        pod: PodInfo,
        snapshot: Snapshot,
        rows: NDArray[np.intp] | tuple[int, ...],
        union: int,
    ) -> bool:
        """Asks again about rows that changed for these causes; false if all have to be asked."""
        if union & known.touched:
            return False
        of_shared = union & known.shared_causes or union == _ANY
        if of_shared and self._shared_moved(known, pod, snapshot):
            return False
        if not union & known.causes and union != _ANY:
            return True
        if known.bad is not None:
            return False
        known.unfit = None
        try:
            if isinstance(rows, tuple):
                return self._update_row(known, pod, snapshot, rows[0])
            if len(rows) <= _FEW_ROWS:
                each = [self._update_row(known, pod, snapshot, r) for r in rows.tolist()]
                return all(each)
            return self._update_rows(known, pod, snapshot, rows)
        except Exception:  # noqa: BLE001 - the full pass says whose fault it is, or copes
            return False

    def _update_row(self, known: PodClass, pod: PodInfo, snapshot: Snapshot, r: int) -> bool:
        row = known.row
        if row is None:
            row = known.row = row_of(known, pod, snapshot, self._ties.of(snapshot))
        cells = known.cells
        old, new = cells[r], row(r)
        if old != new:
            cells[r] = new
            if known.grouped is not None:
                known.grouped.touched.append(r)
            if (old < 0) is not (new < 0):
                known.feasible += 1 if old < 0 else -1
                if known.grouped is not None:
                    known.grouped.flipped.append(r)
                return _stands(known, (r,) if old < 0 else (), () if old < 0 else (r,))
        return True

    def _update_rows(
        self, known: PodClass, pod: PodInfo, snapshot: Snapshot, rows: NDArray[np.intp]
    ) -> bool:
        before = known.column[rows]
        passed, at_once = self._passed(known, pod, snapshot, rows)
        totals = self._totals(known, pod, snapshot, rows, passed, at_once)
        places = self._ties.of(snapshot)[rows]
        after = np.empty(len(rows), np.int64)
        _keys(known, totals, places, places, out=after)
        np.putmask(after, np.logical_not(passed, out=passed), NOWHERE)
        known.column[rows] = after
        if known.grouped is not None:
            known.grouped.touched += rows.tolist()
        moved = (before ^ after) < 0
        if not np.logical_or.reduce(moved):
            return True
        if known.grouped is not None:
            known.grouped.flipped += rows[moved].tolist()
        came, went = rows[moved & (before < 0)], rows[moved & (after < 0)]
        known.feasible += len(came) - len(went)
        return _stands(known, came.tolist(), went.tolist())

    def _shared_moved(self, known: PodClass, pod: PodInfo, snapshot: Snapshot) -> bool:
        """Refreshes what is shared; true if the keys have to be made anew for it.

        INVARIANT: whichever class refreshes what is shared, all others notice by the stamp.
        """
        known.row = None
        for filtering in known.terms.by_row:
            if filtering.shared is not None:
                self._refresh_mask(filtering.shared, filtering, pod, snapshot)
        for scoring in known.baked():
            if scoring.shared is not None:
                self._refresh_raw(scoring.shared, scoring, pod, snapshot)
        return known.stamp() != known.shared_stamp

    def _relaid(self, known: PodClass, snapshot: Snapshot) -> bool:
        """Nodes came or went: the keys stay, for the rows that stay; false if all must be asked.

        INVARIANT: rows that came, went or were used again are among the changes since.
        """
        new = snapshot.nodes.size - len(known.column)
        if known.place.layout < 0 or known.allowed is not None or known.lookups or known.bad:
            return False
        ties = self._ties.of(snapshot)
        column = known.column
        if new < 0 or snapshot.changes_since(known.place.generation) is None:
            return False
        if known.ties != self._ties.version:
            turned = (column & ~TIE_MASK) | (ties[: len(column)] ^ known.offset)
            np.copyto(column, turned, where=column >= 0)
            known.ties = self._ties.version
        if new:
            column = np.concatenate((column, np.full(new, NOWHERE, dtype=np.int64)))
            known.column, known.cells = column, column.data
        if known.grouped is not None:
            known.grouped.forget()
        known.row = known.unfit = None
        known.place.layout = snapshot.layout
        return True

    # ---- all rows ----------------------------------------------------------------------------

    def _fill(self, known: PodClass, pod: PodInfo, snapshot: Snapshot) -> None:
        """Asks every plugin about every row."""
        known.place.forget()
        known.row = known.bad = known.unfit = None
        known.scorers, known.wide_scorers, known.lookups, known.uniform = [], [], [], []
        known.joint, known.joint_filters, known.joint_scorers = None, [], []
        self._ask_filters(known, pod, snapshot)
        scorings = self._ask_scorers(known, pod, snapshot)
        size = snapshot.nodes.size
        # Only rows that a PreFilter leaves are asked about.
        rows: Rows = slice(0, size) if known.allowed is None else known.allowed
        scorings = self._join(known, pod, scorings)
        passed, at_once = self._passed(known, pod, snapshot, rows)
        known.feasible = int(np.count_nonzero(passed))
        self._place_scorers(known, scorings, pod, snapshot, rows, passed)
        try:
            totals = self._totals(known, pod, snapshot, rows, passed, at_once)
        except OutOfRange as fault:
            known.bad = self._asking.out_of_range(str(fault))
            totals = np.zeros(len(passed))
        self._write(known, snapshot, rows, passed, totals)
        known.grouped, known.shared_stamp = _grouped(known), known.stamp()
        known.shared_causes = 0
        for shared in known.shared():
            known.shared_causes |= shared.causes
        known.causes = _causes(known)
        known.wide = bool(known.terms.wide or known.wide_scorers)
        known.place.layout, known.place.generation = snapshot.layout, snapshot.generation

    def _write(
        self,
        known: PodClass,
        snapshot: Snapshot,
        rows: Rows,
        passed: BoolColumn,
        totals: Scores,
    ) -> None:
        """The keys of all rows."""
        size, count = snapshot.nodes.size, len(passed)
        if len(known.column) != size:
            known.column = np.empty(size, dtype=np.int64)
            known.cells = known.column.data
        ties, known.ties = self._ties.of(snapshot), self._ties.version
        buffer = self._int_buffer(count)
        if isinstance(rows, slice):
            keys = known.column
            _keys(known, totals, ties, buffer, out=keys)
        else:
            keys = np.empty(count, np.int64)
            _keys(known, totals, ties[rows], buffer, out=keys)
        if known.feasible < count:
            # Without a branch a row: NOWHERE is the least of all, what passes is below the limit.
            np.multiply(passed, _TO_HIGHEST, out=buffer)
            buffer += NOWHERE
            np.minimum(keys, buffer, out=keys)
            np.maximum(keys, NOWHERE, out=keys)  # what was no number is the least there is
        if not isinstance(rows, slice):
            known.column[:] = NOWHERE
            known.column[rows] = keys

    def _ask_filters(self, known: PodClass, pod: PodInfo, snapshot: Snapshot) -> None:
        terms = known.terms = self._asking.terms(pod, snapshot)
        known.allowed = None if terms.allowed is None else np.flatnonzero(terms.allowed)
        terms.allowed = None  # a row each; the list above is short
        for number, filtering in enumerate(terms.by_row):
            result = filtering.result
            if result.shared is not None:
                shared = self._sharing.of(filtering.name, "filter", result.shared, result.causes)
                self._refresh_mask(shared, filtering, pod, snapshot)
                terms.by_row[number] = Filtering(filtering.name, filtering.points, result, shared)

    def _ask_scorers(self, known: PodClass, pod: PodInfo, snapshot: Snapshot) -> list[Scoring]:
        """Those with a say, in order; an error is kept until it comes to scoring."""
        try:
            found = self._asking.scorings(pod, snapshot, known.terms.versions)
        except PluginError as error:
            known.bad = error
            return []
        for number, scoring in enumerate(found):
            result = scoring.result
            by_row = result.scope is Scope.ROW and result.normalization is not Normalization.CUSTOM
            if by_row and result.shared is not None:
                shared = self._sharing.of(scoring.name, "score", result.shared, result.causes)
                self._refresh_raw(shared, scoring, pod, snapshot)
                found[number] = Scoring(
                    scoring.name, scoring.points, scoring.weight, result, shared
                )
        return found

    def _join(self, known: PodClass, pod: PodInfo, scorings: list[Scoring]) -> list[Scoring]:
        """Finds what stands for some of them; returns the others."""
        known.filters = by_row = known.terms.by_row
        for filtering in by_row:
            join = filtering.points.joint
            if join is None or filtering.shared is not None:
                continue
            scorers = {
                one.name: (one.weight, one.result.state)
                for one in scorings
                if one.shared is None and _is_plain(one)
            }
            joint = self._asking.guard(filtering.name, "Filter", join, pod, scorers)
            if joint is not None:
                known.joint, mine = joint, joint.scorers
                known.joint_filters = [filtering]
                known.filters = [one for one in by_row if one is not filtering]
                known.joint_scorers = [one for one in scorings if one.name in mine]
                return [one for one in scorings if one.name not in mine]
        return scorings

    def _refresh_mask(
        self, shared: Shared, of: Filtering, pod: PodInfo, snapshot: Snapshot
    ) -> bool:
        def ask(rows: Rows) -> NDArray[Any]:
            passed = self._asking.mask(of, pod, snapshot, rows)
            return np.ones(count_of(rows), dtype=np.bool_) if passed is None else passed

        return shared.refresh(snapshot, ask)

    def _refresh_raw(self, shared: Shared, of: Scoring, pod: PodInfo, snapshot: Snapshot) -> bool:
        def ask(rows: Rows) -> NDArray[Any]:
            raw = self._asking.raw(of, pod, snapshot, rows)
            return np.zeros(count_of(rows)) if raw is None else raw

        return shared.refresh(snapshot, ask)

    # ---- which scores are baked in -----------------------------------------------------------

    def _place_scorers(
        self,
        known: PodClass,
        scorings: list[Scoring],
        pod: PodInfo,
        snapshot: Snapshot,
        rows: Rows,
        passed: BoolColumn,
    ) -> None:
        """Which scores are baked into the keys, and how; the others are asked in every cycle.

        Where a wide filter decides in every cycle which nodes are feasible, all that depends on the
        feasible ones is asked then, too.
        """
        known.base, known.touched, known.whole = 0.0, 0, True
        feasible = passed
        for scoring in scorings:
            result = scoring.result
            by_row = result.scope is Scope.ROW
            if _is_plain(scoring):
                known.scorers.append(scoring)
                continue
            if scoring.shared is not None and scoring.shared.uniform:
                how = result.normalization
                known.base += scoring.weight * float(by_top(how, _ONE_ZERO, 0.0)[0])
                known.uniform.append(scoring)
                continue
            if known.terms.wide or result.scope is Scope.ALL:
                known.wide_scorers.append(scoring)
                continue
            if feasible is passed and not isinstance(rows, slice):
                feasible = np.zeros(snapshot.nodes.size, dtype=np.bool_)
                feasible[rows] = passed
            if by_row and result.normalization is not Normalization.CUSTOM:
                self._normalize(known, scoring, pod, snapshot, feasible)
            else:
                self._of_feasible(known, scoring, pod, snapshot, feasible)

    def _normalize(
        self,
        known: PodClass,
        scoring: Scoring,
        pod: PodInfo,
        snapshot: Snapshot,
        feasible: BoolColumn,
    ) -> None:
        """Bakes in raw scores of rows, normalised by the highest of the feasible ones."""
        shared, how = scoring.shared, scoring.result.normalization
        if shared is None:
            known.touched |= int(scoring.result.causes)
            raw = self._asking.raw(scoring, pod, snapshot, slice(0, snapshot.nodes.size))
            if raw is None:
                return
            raw = raw.copy()
        else:
            raw = shared.column
        among = raw[feasible]
        top = float(among.max(initial=0.0))
        fresh = None if shared is None else shared.normal.get(top)
        if among.min(initial=0.0) < 0:
            known.bad = self._asking.out_of_range(scoring.name)
        if fresh is None:
            # Rows that are not feasible may be above the top. One that becomes feasible needs a key
            # that says so, or nobody would notice that the top is another one now.
            fresh = np.clip(by_top(how, raw, top), 0.0, MAX_SCORE)
            if shared is not None:
                shared.normal[top] = fresh
        many = int(np.count_nonzero(among == top))
        known.lookups.append(Lookup(scoring, fresh, scoring.weight, raw, top, many))

    def _of_feasible(
        self,
        known: PodClass,
        scoring: Scoring,
        pod: PodInfo,
        snapshot: Snapshot,
        feasible: BoolColumn,
    ) -> None:
        """Bakes in scores that are made of the feasible nodes."""
        result = scoring.result
        known.touched |= int(result.causes)
        known.whole = False
        rows_set = self._sharing.feasible(feasible)
        kept_as = None
        if result.shared is not None and not result.causes:
            versions = [value for name, _, value in known.terms.versions if name == scoring.name]
            kept_as = scoring.name, result.shared, snapshot.layout, *versions
        found = None if kept_as is None else rows_set.scores.get(kept_as)
        if found is None:
            try:
                raw = self._asking.raw(scoring, pod, snapshot, rows_set.rows)
                scores = None if raw is None else self._asking.normalized(scoring, raw)
            except PluginError as error:
                known.bad = error
                return
            column = np.zeros(snapshot.nodes.size)
            if scores is not None:
                column[rows_set.rows] = scores
            found = column, 0.0 if scores is None else scoring.weight
            if kept_as is not None:
                rows_set.keep(kept_as, *found)
        known.lookups.append(Lookup(scoring, *found))

    # ---- masks and totals --------------------------------------------------------------------

    def _passed(
        self, known: PodClass, pod: PodInfo, snapshot: Snapshot, rows: Rows
    ) -> tuple[BoolColumn, Scores | None]:
        """Which of the rows hold a node that no filter by row rejects, and the joint's totals.

        Both are borrowed. Without totals all have to be asked alone.
        """
        present = snapshot.nodes.present[rows]
        joint, filters = known.joint, known.filters
        at_once = None
        if joint is not None:
            name = known.joint_filters[0].name
            at_once = self._asking.guard(name, "Filter", joint.totals, snapshot, rows)
        if at_once is None:
            passed, totals, filters = present.copy(), None, known.terms.by_row
        else:
            passed, totals = at_once
            passed &= present
        for filtering in filters:
            shared = filtering.shared
            if shared is None:
                own = self._asking.mask(filtering, pod, snapshot, rows)
                if own is not None:
                    passed &= own
            elif not shared.uniform:
                passed &= shared.column[rows]
        return passed, totals

    def _totals(
        self,
        known: PodClass,
        pod: PodInfo,
        snapshot: Snapshot,
        rows: Rows,
        passed: BoolColumn,
        at_once: Scores | None,
    ) -> Scores:
        """What the baked scores of the rows add up to, in the order of `row_of`. Borrowed.

        `at_once` is what the joint's part of them does.

        Raises:
            OutOfRange: a score of a row that passes is not in 0..100.
        """
        totals, scorers = at_once, known.scorers
        first = totals is None
        if totals is None:
            count = len(passed)
            if len(self._floats) < count:
                self._floats = np.empty(count)
            totals = self._floats[:count]
            scorers = [*known.joint_scorers, *known.scorers]
        parts = [(one.weight, one.column[rows]) for one in known.lookups]
        for scoring in scorers:
            raw = self._baked(scoring, pod, snapshot, rows, passed)
            if raw is None:
                continue
            if first:
                np.multiply(raw, scoring.weight, out=totals)
                first = False
            else:
                totals += raw if scoring.weight == 1 else raw * scoring.weight
        if first:
            totals[:] = 0.0
        for weight, part in parts:
            totals += part if weight == 1 else part * weight
        return totals

    def _baked(
        self,
        scoring: Scoring,
        pod: PodInfo,
        snapshot: Snapshot,
        rows: Rows,
        passed: BoolColumn,
    ) -> Scores | None:
        raw: Scores | None
        shared = scoring.shared
        if shared is None:
            raw = self._asking.raw(scoring, pod, snapshot, rows)
        else:
            raw = None if shared.uniform else shared.column[rows]
        if raw is None or not len(raw):
            return None
        if np.minimum.reduce(raw) < 0 or np.maximum.reduce(raw) > MAX_SCORE:
            inside = raw[passed]
            if inside.min(initial=0.0) < 0 or inside.max(initial=0.0) > MAX_SCORE:
                raise OutOfRange(scoring.name)
            raw = np.clip(raw, 0.0, MAX_SCORE)
        return raw

    def keys_of(
        self, known: PodClass, snapshot: Snapshot, totals: Scores, rows: NDArray[np.intp]
    ) -> IntColumn:
        """Keys of rows with these total scores."""
        return steps_of(totals) | (self._ties.of(snapshot)[rows] ^ known.offset)

    def grouped(self, known: PodClass) -> GroupedChoice | None:
        """How to choose among groups, anew."""
        return _grouped(known)

    def _int_buffer(self, count: int) -> IntColumn:
        if len(self._ints) < count:
            self._ints = np.empty(count, dtype=np.int64)
        return self._ints[:count]


def _keys(
    known: PodClass, totals: Scores, places: IntColumn, buffer: IntColumn, *, out: IntColumn
) -> None:
    """The keys of totals; `places` are those of the same rows, `buffer` may be the same array."""
    unit = UNIT if known.whole else FRACTION
    if known.scorers or known.lookups:  # rows without a node may have scores that are no numbers
        with np.errstate(invalid="ignore"):
            np.multiply(totals, unit, out=out, casting="unsafe")
    else:
        np.multiply(totals, unit, out=out, casting="unsafe")
    if not known.whole:
        np.left_shift(out, TIE_BITS, out=out)
    np.bitwise_xor(places, known.offset, out=buffer)
    np.bitwise_or(out, buffer, out=out)


def _stands(known: PodClass, came: Any, went: Any) -> bool:  # noqa: ANN401 - rows
    """Whether what the feasible nodes decide is as it was."""
    return all(lookup.stands(came, went) for lookup in known.lookups)


def _grouped(known: PodClass) -> GroupedChoice | None:
    filters = [one.result.grouped for one in known.terms.wide]
    scorers = [(one.weight, one.result.grouped) for one in known.wide_scorers]
    all_filters = [one for one in filters if one is not None]
    all_scorers = [(weight, one) for weight, one in scorers if one is not None]
    wide = len(filters) + len(scorers)
    if not wide or len(all_filters) + len(all_scorers) < wide:
        return None
    return GroupedChoice(all_filters, all_scorers)


def _is_plain(scoring: Scoring) -> bool:
    """Whether it scores rows, whichever are feasible."""
    result = scoring.result
    return result.scope is Scope.ROW and result.normalization is Normalization.NONE


def _causes(known: PodClass) -> int:
    """Which changes of a row can change its key; a node that came or went always can."""
    causes = 0
    for filtering in known.terms.by_row:
        causes |= int(filtering.result.causes)
    for scoring in known.baked():
        causes |= int(scoring.result.causes)
    return causes
