"""Fills the keys of a class of pods, and brings them up to a snapshot by the rows that changed.

The full pass and the update of many rows make the same calls; few rows are asked one by one. Which
way is taken changes how long it takes, never the keys.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.framework.classes import Classes, PodClass
from engine.framework.derived import Shared, Sharing, concerned
from engine.framework.groupedchoice import GroupedChoice
from engine.framework.interface import MAX_SCORE, Joint, Normalization, Scope, Scores
from engine.framework.keycolumn import (
    NOWHERE,
    TIE_MASK,
    KeyColumn,
    Lookup,
    OutOfRange,
    Ties,
    row_of,
    steps_of,
)
from engine.framework.runner import (
    Dependency,
    PluginError,
    PluginRunner,
    PreFiltered,
    Said,
    Scoring,
    count_of,
)
from engine.framework.snapshot import BoolColumn, Cause, IntColumn, Rows, Snapshot
from engine.framework.trials import Filtering
from engine.pods.podinfo import PodInfo

_FEW_ROWS: Final = 16
_ANY: Final = int(Cause.ANY)
_POD: Final = int(Cause.POD)
# CPython 3.11 takes 0.15 us to look up a member of an enum.
_ROW: Final = Scope.ROW
_ALL: Final = Scope.ALL
_NONE: Final = Normalization.NONE
_CUSTOM: Final = Normalization.CUSTOM
_REVERSED: Final = Normalization.BY_MAX_REVERSED
_NO, _YES = 0, 1  # a mask is searched quicker as bytes, and those for a number
_Asked = TypeVar("_Asked", Filtering, Scoring)


class ClassUpdater:
    """See the module."""

    def __init__(self, runner: PluginRunner, classes: Classes) -> None:
        self.runner = runner
        self.sharing = Sharing()
        self._classes = classes
        self._recent: deque[GroupedChoice] = deque()
        self.ties = Ties()
        # What was said of the last class that rows alone decide about, and its keys.
        self._last: tuple[Said | None, KeyColumn | None] = None, None

    def update(
        self, known: PodClass, pod: PodInfo, snapshot: Snapshot, *, whole: bool = True
    ) -> None:
        """Brings the class up to the snapshot, without keys if one row is left; not so if `whole`.

        Raises:
            Unfit: a PreFilter rejected the pod.
            PluginError: a plugin raised.
        """
        keys = known.keys
        if (
            known.fills != keys.fills
            or (known.versions and not self._current(known.versions, snapshot))
            or not self._caught_up(keys, pod, snapshot)
        ):
            self._ask(known, pod, snapshot, whole=whole)

    def _current(self, versions: Sequence[Dependency], snapshot: Snapshot) -> bool:
        """Whether all that answers depend on besides rows is unchanged."""
        for name, version, value in versions:
            try:
                if version(snapshot) != value:
                    return False
            except Exception as cause:
                raise self.runner.fault(name, "PreFilter", cause) from cause
        return True

    def _ask(self, known: PodClass, pod: PodInfo, snapshot: Snapshot, *, whole: bool) -> None:
        """Asks all plugins about the class, and about all rows unless its column is current."""
        known.fills, known.unfit, known.only = -1, None, None
        key = None if known.name is None else known.name.key
        said, like = self._last
        alike, bad = self.runner.alike(pod, snapshot, key, said), None
        if alike is not None:
            pre, scorings = alike
        else:
            like, pre = None, self.runner.pre_filter(pod, snapshot, key)
            if not whole and pre.allowed is not None and np.count_nonzero(pre.allowed) == 1:
                known.only, known.filters = np.flatnonzero(pre.allowed), [*pre.by_row, *pre.wide]
                return
            try:
                scorings = self.runner.pre_score(pod, snapshot, pre.versions, key)
            except PluginError as error:  # raised once scores are needed
                scorings, bad = [], error
        keys = self._classes.column(known, wide=bool(pre.wide), alone=bad is not None)
        if not self._caught_up(keys, pod, snapshot):
            if like is None and self._last[1] is keys:
                self._last = None, None
            _Asking(self, keys, pod, snapshot).fill(pre, scorings, like)
            keys.bad = keys.bad if bad is None else bad
        late = keys.late
        known.keys, known.filters = keys, pre.wide
        known.scorers = [one for one in scorings if one.result.scope is _ALL or one.name in late]
        known.wide = bool(known.filters or known.scorers)
        own = self.runner.wide_keys
        known.versions = [one for one in pre.versions if one.name in own]
        known.grouped = self._grouped(known) if known.wide else None
        known.fills = keys.fills
        if like or key is None or known.wide or keys.joint is None or keys.lookups or keys.bad:
            return
        by_rows_alone = keys.allowed is None and not keys.touched and not keys.shared_causes & _POD
        if by_rows_alone and self._classes.keeps:
            asked: list[Filtering | Scoring] = [*pre.by_row, *scorings]
            results = {(one.name, type(one.result)): one.result for one in asked}
            at = snapshot.layout, snapshot.nodes_generation
            self._last = Said(key, pre, scorings, results, at), keys

    def _grouped(self, known: PodClass) -> GroupedChoice | None:
        filters = [one.result.grouped for one in known.filters]
        scorers = [(one.weight, one.result.grouped) for one in known.scorers]
        all_filters = [one for one in filters if one is not None]
        all_scorers = [(weight, one) for weight, one in scorers if one is not None]
        if len(all_filters) + len(all_scorers) < len(filters) + len(scorers):
            return None
        return GroupedChoice(all_filters, all_scorers, self._recent)

    def _caught_up(self, keys: KeyColumn, pod: PodInfo, snapshot: Snapshot) -> bool:
        """Brings the keys up to the snapshot; False if plugins have to be asked about all rows."""
        place = keys.place
        if keys.bad is not None:  # a plugin that raised may have an answer now
            place.forget()
            return False
        try:
            if place.layout != snapshot.layout and not self._relaid(keys, snapshot):
                place.forget()
                return False
            if keys.versions and not self._current(keys.versions, snapshot):
                place.forget()
                return False
            if place.generation == snapshot.generation:
                return True
            asking = _Asking(self, keys, pod, snapshot)
            before, row, causes = snapshot.last
            if before == place.generation:
                place.generation = snapshot.generation
                done = asking.again((row,), causes)
            else:
                done = asking.read()
        except BaseException:
            place.forget()
            raise
        if not done:
            place.forget()
        return done

    def _relaid(self, keys: KeyColumn, snapshot: Snapshot) -> bool:
        """Nodes came or went: keys of the other rows stay; False if all rows must be asked.

        So no class is asked anew where nodes join one after the other, as from an autoscaler.
        INVARIANT: rows that were added, freed or reused are among the changes since.
        """
        place, column = keys.place, keys.column
        new = snapshot.nodes.size - len(column)
        if place.layout < 0 or new < 0 or keys.allowed is not None or keys.lookups:
            return False
        if snapshot.changes_since(place.generation) is None:
            return False
        ties = self.ties.of(snapshot)
        if keys.ties != self.ties.version:
            turned = (column & ~TIE_MASK) | (ties[: len(column)] ^ keys.offset)
            np.copyto(column, turned, where=column >= 0)
            keys.ties = self.ties.version
        keys.put(np.concatenate((column, np.full(new, NOWHERE))) if new else column)
        keys.row = keys.unfit = None
        place.layout = snapshot.layout
        return True

    def keys_of(self, keys: KeyColumn, snapshot: Snapshot, totals: Scores, rows: Rows) -> IntColumn:
        """Keys of rows with these total scores, which it overwrites."""
        found = steps_of(totals)
        found |= self.ties.of(snapshot)[rows]
        found ^= keys.offset
        return found


class _Asking(msgspec.Struct, eq=False):
    """Asks plugins about rows of one column, for one pod on one snapshot."""

    by: ClassUpdater
    keys: KeyColumn
    pod: PodInfo
    snapshot: Snapshot
    rows: Rows = slice(0)
    """Those that are asked about at once."""

    # ---- rows that changed -------------------------------------------------------------------

    def read(self) -> bool:
        """Asks again about the rows that the log names; False if all have to be asked."""
        keys, snapshot = self.keys, self.snapshot
        pods_alone = 0 <= snapshot.nodes_generation <= keys.place.generation
        changes = keys.place.read(snapshot)
        if changes is None:
            return False
        rows, causes = changes
        union = _POD if pods_alone else int(np.bitwise_or.reduce(causes))
        if union & ~keys.causes:
            rows = concerned(changes, keys.causes)
        return self.again(rows, union)

    def again(self, rows: NDArray[np.intp] | tuple[int, ...], union: int) -> bool:
        """Asks again about rows that changed for these causes; False if all have to be asked."""
        keys = self.keys
        if union & keys.touched:
            return False
        if (union & keys.shared_causes or union == _ANY) and self._shared_moved():
            return False
        if not union & keys.causes and union != _ANY:
            return True
        keys.unfit = None
        try:
            joint = keys.joint
            if joint is None or len(rows) > _FEW_ROWS:
                return self._update_rows(np.asarray(rows))
            if isinstance(rows, tuple):
                return self._update_row(joint, rows[0])
            each = [self._update_row(joint, r) for r in rows.tolist()]
            return all(each)
        except Exception:  # noqa: BLE001 - the full pass names the plugin, or succeeds
            return False

    def _update_row(self, joint: Joint, r: int) -> bool:
        keys = self.keys
        row = keys.row
        if row is None:
            ties = self.by.ties.of(self.snapshot)
            row = keys.row = row_of(keys, joint, self.snapshot, ties)
        cells = keys.cells
        old, new = cells[r], row(r, self._of_row)
        if new is None:
            return self._update_rows(np.array([r]))
        if old != new:
            cells[r] = new
            flips = (old < 0) is not (new < 0)
            if keys.log is not None:
                keys.log.append(~r if flips else r)
            if flips:
                keys.feasible += 1 if old < 0 else -1
                return not keys.lookups
        return True

    def _of_row(self, of: Filtering | Scoring, r: int) -> float:
        rows, runner = np.array([r], dtype=np.intp), self.by.runner
        if isinstance(of, Filtering):
            passed = runner.mask(of, self.pod, self.snapshot, rows)
            return passed is None or bool(passed[0])
        raw = runner.raw(of, self.pod, self.snapshot, rows)
        return 0.0 if raw is None else float(raw[0])

    def _update_rows(self, rows: NDArray[np.intp]) -> bool:
        keys = self.keys
        if keys.allowed is not None:
            rows = rows[np.isin(rows, keys.allowed)]
        self.rows, before = rows, keys.column[rows]
        passed, at_once = self._passed()
        after = self._keys(self._totals(passed, at_once), passed)
        keys.column[rows] = after
        moved = (before ^ after) < 0
        if keys.log is not None:
            for row in np.where(moved, ~rows, rows).tolist():
                keys.log.append(row)
        if _YES not in moved.tobytes():
            return True
        keys.feasible += int(np.count_nonzero(after >= 0)) - int(np.count_nonzero(before >= 0))
        return not keys.lookups

    def _shared_moved(self) -> bool:
        """Refreshes what is shared; True if scores are equal on all nodes no longer."""
        self.keys.row = None
        for one in self.keys.asked():
            if one.shared is not None:
                self._refresh(one.shared, one)
        return any(one.shared and not one.shared.uniform for one in self.keys.uniform)

    # ---- all rows ----------------------------------------------------------------------------

    def fill(self, pre: PreFiltered, scorings: list[Scoring], like: KeyColumn | None) -> None:
        """Asks all plugins of scope ROW about all rows, in the places that they have in `like`."""
        keys, snapshot, runner = self.keys, self.snapshot, self.by.runner
        keys.place.forget()
        keys.fills += 1
        keys.row = keys.bad = keys.unfit = None
        keys.versions = [one for one in pre.versions if one.name not in runner.wide_keys]
        keys.allowed = None if pre.allowed is None else np.flatnonzero(pre.allowed)
        if like is not None:
            keys.arrange_as(like)
            if self._join(like.joint_scorers):
                like = None
        if like is None:
            keys.by_row = [self._with_shared(one, "filter") for one in pre.by_row]
            scorings = [
                self._with_shared(one, "score") if _of_rows(one) else one for one in scorings
            ]
            scorings = self._join(scorings)
        size = snapshot.nodes.size
        self.rows = rows = slice(0, size) if keys.allowed is None else keys.allowed
        passed, at_once = self._passed()
        keys.feasible = int(np.count_nonzero(passed))
        if like is None:
            self._place_scorers(scorings, passed, wide=bool(pre.wide))
        try:
            totals = self._totals(passed, at_once)
        except OutOfRange as fault:
            keys.bad = runner.out_of_range(str(fault))
            totals = np.zeros(len(passed))
        fresh = self._keys(totals, passed)
        if keys.allowed is None:
            keys.put(fresh)
        else:
            keys.put(np.full(size, NOWHERE))
            keys.column[rows] = fresh
        keys.ties = self.by.ties.version
        if like is None:
            keys.causes = keys.shared_causes = 0
            for one in keys.asked():
                causes = int(one.result.causes)
                keys.causes |= causes
                keys.shared_causes |= causes if one.shared is not None else 0
        keys.place.layout, keys.place.generation = snapshot.layout, snapshot.generation

    def _with_shared(self, of: _Asked, point: str) -> _Asked:
        """The same with its mask or raw scores, if classes share them."""
        result = of.result
        if result.shared is None:
            return of
        shared = self.by.sharing.of(of.name, point, result.shared, result.causes)
        self._refresh(shared, of)
        return of._replace(shared=shared)

    def _join(self, scorings: list[Scoring]) -> list[Scoring]:
        """Finds a joint of one of the filters and some of the scores; returns the other scores."""
        keys = self.keys
        keys.filters = by_row = keys.by_row
        keys.joint, keys.joint_scorers = None, []
        for filtering in by_row:
            join = filtering.points.joint
            if join is None or filtering.shared is not None:
                continue
            scorers = {
                one.name: (one.weight, one.result.state)
                for one in scorings
                if one.shared is None and _is_plain(one)
            }
            joint = self.by.runner.guard(filtering.name, "Filter", join, self.pod, scorers)
            if joint is not None:
                keys.joint, keys.joint_name, mine = joint, filtering.name, joint.scorers
                keys.filters = [one for one in by_row if one is not filtering]
                keys.joint_scorers = [one for one in scorings if one.name in mine]
                return [one for one in scorings if one.name not in mine]
        return scorings

    def _refresh(self, shared: Shared, of: Filtering | Scoring) -> None:
        if shared.at(self.snapshot):
            return

        def ask(rows: Rows) -> NDArray[Any]:
            if isinstance(of, Filtering):
                passed = self.by.runner.mask(of, self.pod, self.snapshot, rows)
                return np.ones(count_of(rows), dtype=np.bool_) if passed is None else passed
            raw = self.by.runner.raw(of, self.pod, self.snapshot, rows)
            return np.zeros(count_of(rows)) if raw is None else raw

        shared.refresh(self.snapshot, ask)

    # ---- which scores are in the keys --------------------------------------------------------

    def _place_scorers(self, scorings: list[Scoring], passed: BoolColumn, *, wide: bool) -> None:
        """Which scores go into the keys, and how; the others are asked in every cycle.

        So are all that depend on the set of feasible nodes, if a wide filter decides about that.
        """
        keys, feasible = self.keys, passed
        keys.scorers, keys.lookups, keys.uniform = [], [], []
        keys.base, keys.touched, keys.late = 0.0, 0, frozenset()
        if keys.allowed is not None:
            feasible = np.zeros(self.snapshot.nodes.size, dtype=np.bool_)
            feasible[keys.allowed] = passed
        for scoring in scorings:
            result = scoring.result
            if scoring.shared is not None and scoring.shared.uniform:
                if result.normalization is _REVERSED:
                    keys.base += scoring.weight * MAX_SCORE
                keys.uniform.append(scoring)
            elif _is_plain(scoring):
                keys.scorers.append(scoring)
            elif result.scope is _ALL:
                continue
            elif wide:
                keys.late |= {scoring.name}
            else:
                self._of_feasible(scoring, feasible)

    def _of_feasible(self, scoring: Scoring, feasible: BoolColumn) -> None:
        """Adds scores of the feasible nodes, which are normalised over these or seen together."""
        keys, snapshot, result = self.keys, self.snapshot, scoring.result
        runner, sharing = self.by.runner, self.by.sharing
        keys.touched |= int(result.causes)
        rows, kept_as = np.flatnonzero(feasible), None
        if result.shared is not None and not result.causes:
            versions = [value for name, _, value in keys.versions if name == scoring.name]
            kept_as = scoring.name, result.shared, snapshot.layout, feasible.tobytes(), *versions
        found = sharing.scores.get(kept_as)
        if found is None:
            try:
                raw = self._raw(scoring, rows)
                scores = None if raw is None else runner.normalized(scoring, raw)
            except PluginError as error:
                keys.bad = error
                return
            column = np.zeros(snapshot.nodes.size)
            if scores is not None:
                column[rows] = scores
            found = column, 0.0 if scores is None else scoring.weight
            if kept_as is not None:
                sharing.keep(kept_as, *found)
        keys.lookups.append(Lookup(scoring, *found))

    # ---- masks and totals --------------------------------------------------------------------

    def _passed(self) -> tuple[BoolColumn, Scores | None]:
        """The rows that pass all filters of scope ROW, and the joint's totals, if it gives any.

        Both are borrowed.
        """
        keys, snapshot, rows, runner = self.keys, self.snapshot, self.rows, self.by.runner
        joint, filters, at_once = keys.joint, keys.filters, None
        if joint is not None:
            at_once = runner.guard(keys.joint_name, "Filter", joint.totals, snapshot, rows)
        if at_once is None:
            passed, totals, filters = snapshot.nodes.present[rows].copy(), None, keys.by_row
        else:
            passed, totals = at_once
        for filtering in filters:
            shared = filtering.shared
            if shared is None:
                own = runner.mask(filtering, self.pod, snapshot, rows)
                if own is not None:
                    passed &= own
            elif not shared.uniform:
                passed &= shared.column[rows]
        return passed, totals

    def _totals(self, passed: BoolColumn, at_once: Scores | None) -> Scores:
        """The weighted sums of the scores in the keys, added in the order of `row_of`. Borrowed.

        `at_once` are the sums of the joint.

        Raises:
            OutOfRange: a score of a row that passes is not in 0..100.
        """
        totals, scorers = at_once, self.keys.scorers
        if totals is None:
            totals = np.zeros(len(passed))
            scorers = [*self.keys.joint_scorers, *scorers]
        for scoring in scorers:
            raw = self._baked(scoring, passed)
            if raw is not None:
                totals += raw if scoring.weight == 1 else raw * scoring.weight
        for lookup in self.keys.lookups:
            part = lookup.column[self.rows]
            totals += part if lookup.weight == 1 else part * lookup.weight
        return totals

    def _raw(self, scoring: Scoring, rows: Rows) -> Scores | None:
        if scoring.shared is None:
            return self.by.runner.raw(scoring, self.pod, self.snapshot, rows)
        raw: Scores = scoring.shared.column[rows]
        return raw

    def _baked(self, scoring: Scoring, passed: BoolColumn) -> Scores | None:
        raw = self._raw(scoring, self.rows)
        if raw is None or not len(raw):
            return None
        if np.minimum.reduce(raw) < 0 or np.maximum.reduce(raw) > MAX_SCORE:
            inside = raw[passed]
            if inside.min(initial=0.0) < 0 or inside.max(initial=0.0) > MAX_SCORE:
                raise OutOfRange(scoring.name)
            raw = np.clip(raw, 0.0, MAX_SCORE)
        return raw

    def _keys(self, totals: Scores, passed: BoolColumn) -> IntColumn:
        """Keys of the rows, those that did not pass included; overwrites both."""
        failed = None
        if _NO in passed.tobytes():
            failed = np.logical_not(passed, out=passed)
            np.putmask(totals, failed, 0.0)  # without a node scores may be no numbers
        found = self.by.keys_of(self.keys, self.snapshot, totals, self.rows)
        if failed is not None:
            np.putmask(found, failed, NOWHERE)
        return found


def _is_plain(scoring: Scoring) -> bool:
    """Whether its scores are the same whichever nodes are feasible."""
    return scoring.result.scope is _ROW and scoring.result.normalization is _NONE


def _of_rows(scoring: Scoring) -> bool:
    """Whether its raw scores depend on the row alone."""
    return scoring.result.scope is _ROW and scoring.result.normalization is not _CUSTOM
