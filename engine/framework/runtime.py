"""The plugins of one profile, asked in order; their answers kept per pod class.

`Framework` is what a cycle decides with: it never changes after it is made, but for its memo of
classes (`podclass.py`). Asking about all rows or about the changed ones is the same call, so the
memo changes how long an answer takes and never the answer.

This is the one place of the core that catches any exception: a plugin's fault becomes a Status.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.framework.acting import NOTHING, Actors, Acts
from engine.framework.decision import (
    Decision,
    FitError,
    PostFilterResult,
    Rejections,
)
from engine.framework.events import ClusterEventWithHint
from engine.framework.grouped import GroupedChoice
from engine.framework.interface import (
    MAX_SCORE,
    UNSHARED,
    Normalization,
    Points,
    PreFilterResult,
    PreScoreResult,
    Scope,
    Scores,
    Verdicts,
    Version,
)
from engine.framework.podclass import (
    NOWHERE,
    TIE_MASK,
    UNIT,
    Filtering,
    Lookup,
    OutOfRange,
    PodClass,
    Scoring,
    Shared,
    bind_rows,
    keys_of,
    normalized,
)
from engine.framework.podinfo import PodInfo
from engine.framework.profile import Profile
from engine.framework.snapshot import BoolColumn, Cause, IntColumn, Rows, Snapshot
from engine.framework.status import Code, Status, unresolvable, unschedulable
from engine.framework.trials import Trials

log = logging.getLogger(__name__)

MEMO_BYTES: Final = 96 << 20
_LEAST_CLASSES: Final = 16
_MOST_CLASSES: Final = 4096
_BYTES_A_KEY: Final = 8
_FEW_ROWS: Final = 12
_CLASS: Final = "class"
_POD: Final = int(Cause.POD)

_P = ParamSpec("_P")
_T = TypeVar("_T")
Candidates = NDArray[np.intp]


class PluginError(Exception):
    """A plugin raised; `status` is what the pod is told."""

    def __init__(self, plugin: str, point: str, cause: Exception) -> None:
        super().__init__(f"running {point} plugin {plugin!r}: {type(cause).__name__}: {cause}")
        self.status = Status(Code.ERROR, (str(self),), plugin)


class Unfit(Exception):  # noqa: N818 - an answer that ends the cycle, not a fault
    """No node fits, known before the nodes were asked."""

    def __init__(self, fit_error: FitError) -> None:
        super().__init__(fit_error.message())
        self.fit_error = fit_error


class _Kept(NamedTuple):
    """The class of a pod, and what its key depended on besides."""

    known: PodClass
    stamp: list[Hashable]


class Framework:
    """One profile's plugins, sorted by extension point; immutable but for the memo.

    The memo is of one cluster: all snapshots must be of the same cache.
    """

    def __init__(
        self,
        profile: Profile,
        *,
        bundle: str = "",
        on_fault: Callable[[PluginError], None] | None = None,
        memo_bytes: int = MEMO_BYTES,
    ) -> None:
        """Sorts the plugins of the profile.

        Args:
            profile: the plugins in order, with weights.
            bundle: hash of the policies in force, put into every decision.
            on_fault: told of every exception of a plugin, to count it.
            memo_bytes: bound of the memo; least recently used classes leave first. 0 turns it off.

        Raises:
            ValueError: not exactly one plugin sorts the queue, or the weights are too large.
        """
        self.profile = profile
        self.bundle = bundle
        self.plugins = tuple([(w.plugin.name, w.plugin.points()) for w in profile.plugins])
        weight_of = {w.plugin.name: w.weight for w in profile.plugins}
        plugins = self.plugins
        at = self._at
        self._pre_enqueuers = [(n, p.pre_enqueue) for n, p in at("preEnqueue") if p.pre_enqueue]
        self.gates_move = any(p.gate_moves for _, p in plugins)
        """Whether PreEnqueue looks at more than the pod."""
        self._turning = [(name, p.turns_at) for name, p in plugins if p.turns_at]
        self._tiers = [(name, p.tiers) for name, p in plugins if p.tiers]
        self._post_filters = [(n, p.post_filter) for n, p in at("postFilter") if p.post_filter]
        self._actors = Actors(plugins)
        self.filters = tuple([one for one in at("filter") if one[1].filter or one[1].pre_filter])
        self.scorers = tuple([(*one, weight_of[one[0]]) for one in at("score") if one[1].score])
        if sum(weight for *_, weight in self.scorers) * MAX_SCORE * UNIT >= 1 << 63:
            raise ValueError("the weights of all plugins together must stay below 1,342,177")
        sorters = [one for one in plugins if one[1].sort_key]
        if len(sorters) != 1:
            names = ", ".join(name for name, _ in sorters) or "none"
            raise ValueError(
                f"a profile needs exactly one plugin that sorts the queue; got {names}"
            )
        self.sorter = next(w.plugin for w in profile.plugins if w.plugin.name == sorters[0][0])
        """The plugin that sorts the queue; keys of one plugin compare with each other."""
        self._sort_key = sorters[0][1].sort_key
        self._order = {name: number for number, (name, _) in enumerate(self.filters)}
        keyed = {name: p for name, p in plugins if p.filter or p.pre_filter or p.score}
        self._keyed = [(name, p.class_key) for name, p in keyed.items()]
        self._key_versions = [(name, p.key_version) for name, p in keyed.items() if p.key_version]
        self.keys_move = any(p.key_moves for p in keyed.values())
        """Whether `class_key` looks at more than the pod."""
        self._on_fault = on_fault or _log_fault
        self._memo_bytes = memo_bytes
        self._classes: dict[Hashable, PodClass] = {}
        self._uses = 0
        self._shared: dict[tuple[str, str, Hashable], Shared] = {}
        self._ties: IntColumn = np.empty(0, dtype=np.int64)
        self._ties_for: tuple[int, int] = (-1, -1)

    def _at(self, point: str) -> Sequence[tuple[str, Points]]:
        """The plugins in their order at a point."""
        names = self.profile.order.get(point)
        if names is None:
            return self.plugins
        rank = {name: number for number, name in enumerate(names)}
        return sorted(self.plugins, key=lambda one: rank.get(one[0], len(rank)))

    # ---- around the queue --------------------------------------------------------------------

    def pre_enqueue(self, pod: PodInfo, snapshot: Snapshot) -> Status:
        """The first answer that is not Success, with its plugin; Success otherwise.

        Raises:
            PluginError: a plugin raised.
        """
        for name, ask in self._pre_enqueuers:
            status = self._guard(name, "PreEnqueue", ask, pod, snapshot)
            if not status.ok:
                return status.by(name)
        return Status.SUCCESS

    def sort_key(self, pod: PodInfo, queued_at: float, snapshot: Snapshot) -> tuple[Any, ...]:
        """The pod's place in the queue; smaller comes first.

        Raises:
            PluginError: the plugin raised.
        """
        assert self._sort_key is not None
        return self._guard(self.sorter.name, "QueueSort", self._sort_key, pod, queued_at, snapshot)

    def turns_at(self, pod: PodInfo, snapshot: Snapshot, plugins: frozenset[str]) -> float:
        """When the clock alone may change what these plugins said of a pod they just rejected.

        Seconds since the epoch, infinite for never. A plugin that raises has no say: the pod waits
        for what else wakes it.
        """
        soonest = math.inf
        for name, ask in self._turning:
            if name in plugins:
                with suppress(PluginError):  # told to `on_fault`
                    soonest = min(soonest, self._guard(name, "PreEnqueue", ask, pod, snapshot))
        return soonest

    def hints(self) -> Mapping[str, Sequence[ClusterEventWithHint]]:
        """What could wake the pods that a plugin rejected, by plugin."""
        return {name: tuple(points.events) for name, points in self.plugins}

    # ---- classes -----------------------------------------------------------------------------

    def class_key(self, pod: PodInfo, snapshot: Snapshot) -> tuple[Hashable, ...] | None:
        """What tells the pod's class: pods with equal keys get equal answers. None: unlike any.

        Raises:
            PluginError: a plugin raised.
        """
        guard = self._guard
        key = tuple([guard(name, "PreFilter", ask, pod, snapshot) for name, ask in self._keyed])
        return None if UNSHARED in key else key

    def known(self, pod: PodInfo, snapshot: Snapshot) -> PodClass:
        """The pod's class, brought up to the snapshot.

        Raises:
            Unfit: a PreFilter rejected the pod.
            PluginError: a plugin raised.
        """
        found = self._class_of(pod, snapshot)
        try:
            self._bring_up(found, pod, snapshot)
        except (PluginError, Unfit):
            found.layout = -1  # half-way: everything is asked again
            raise
        return found

    def _class_of(self, pod: PodInfo, snapshot: Snapshot) -> PodClass:
        if not self._memo_bytes:
            return PodClass(None, None, self._offset(self.class_key(pod, snapshot)))
        guard = self._guard
        stamp = [
            guard(name, "PreFilter", version, snapshot) for name, version in self._key_versions
        ]
        if not self.keys_move:
            kept = pod.keys.get(_CLASS)
            if type(kept) is _Kept and kept.known.owner is self and kept.stamp == stamp:
                self._uses += 1
                kept.known.used = self._uses
                return kept.known
        key = self.class_key(pod, snapshot)
        found = None if key is None else self._classes.get(key)
        if found is None:
            found = PodClass(key, self, self._offset(key))
            if key is not None:
                self._make_room(snapshot.nodes.size)
                self._classes[key] = found
        self._uses += 1
        found.used = self._uses
        pod.keys[_CLASS] = _Kept(found, stamp)
        return found

    def _make_room(self, size: int) -> None:
        """Forgets the classes used longest ago once they are too many for their bytes."""
        most = self._memo_bytes // (max(1, size) * _BYTES_A_KEY)
        most = min(_MOST_CLASSES, max(_LEAST_CLASSES, most))
        if len(self._classes) < most:
            return
        by_use = sorted(self._classes.values(), key=lambda one: one.used)
        for old in by_use[: len(by_use) - most + 1 + most // 8]:
            old.owner = None
            del self._classes[old.key]
        in_use = {id(s) for one in self._classes.values() for s in one.shared()}
        self._shared = {k: s for k, s in self._shared.items() if id(s) in in_use}

    def _offset(self, key: tuple[Hashable, ...] | None) -> int:
        """Where the class begins in the order of ties; equal in every process."""
        text = f"{self.profile.seed}\0{_stable(key)}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest()) & TIE_MASK

    def _places(self, snapshot: Snapshot) -> IntColumn:
        """(N,) the order of ties: nodes by a hash of their names, spread over all places."""
        stamp = snapshot.layout, snapshot.nodes.size
        if self._ties_for != stamp:
            keys = snapshot.nodes.tie_keys
            places = np.empty(len(keys), dtype=np.int64)
            places[np.argsort(keys, kind="stable")] = np.arange(len(keys))
            places *= max(1, (TIE_MASK + 1) // max(1, len(keys)))
            self._ties, self._ties_for = places, stamp
        return self._ties

    # ---- bringing a class up to the snapshot -------------------------------------------------

    def _bring_up(self, known: PodClass, pod: PodInfo, snapshot: Snapshot) -> None:
        moved = known.layout != snapshot.layout
        if moved and (known.layout < 0 or not self._relaid(known, pod, snapshot)):
            self._fill(known, pod, snapshot)
            return
        if known.versions and not self._current(known, snapshot):
            self._fill(known, pod, snapshot)
            return
        if known.generation == snapshot.generation:
            return
        changes = snapshot.changes_since(known.generation)
        if changes is None:
            self._fill(known, pod, snapshot)
            return
        self._replay(known, pod, snapshot, *changes)

    def _replay(
        self,
        known: PodClass,
        pod: PodInfo,
        snapshot: Snapshot,
        rows: NDArray[np.intp],
        causes: NDArray[np.int64],
    ) -> None:
        """Asks again about the rows that changed."""
        if len(rows) == 1:
            union = causes.item(0)
        else:
            union = int(np.bitwise_or.reduce(causes))
            if union & ~known.causes:
                rows = rows[(causes & known.causes) != 0]
        known.generation = snapshot.generation
        if union & known.touched or (union & ~_POD and self._shared_moved(known, pod, snapshot)):
            self._fill(known, pod, snapshot)
            return
        if not union & known.causes:
            return
        known.unfit = None
        try:
            moved = self._update(known, pod, snapshot, rows)
        except Exception:  # noqa: BLE001 - the full pass says whose fault it is, or copes
            self._fill(known, pod, snapshot)
            return
        # Which nodes are feasible decides what the scores are normalised by.
        if moved and (known.lookups or known.bad) and not self._settled(known):
            self._fill(known, pod, snapshot)

    def _update(
        self, known: PodClass, pod: PodInfo, snapshot: Snapshot, rows: NDArray[np.intp]
    ) -> bool:
        """New keys for some rows; true if the set of feasible nodes changed."""
        if len(rows) <= _FEW_ROWS:
            cells, row = known.cells, known.row
            moved = False
            for r in rows.tolist():
                old, new = cells[r], row(r)
                if old != new:
                    cells[r] = new
                    if known.grouped is not None:
                        known.grouped.touched.append(r)
                    if (old < 0) is not (new < 0):
                        known.feasible += 1 if old < 0 else -1
                        moved = True
                        if known.grouped is not None:
                            known.grouped.flipped.append(r)
            return moved
        before = known.column[rows]
        after = self._keys(known, pod, snapshot, rows)
        known.column[rows] = after
        changed = (before < 0) != (after < 0)
        if known.grouped is not None:
            known.grouped.flipped += rows[changed].tolist()
            known.grouped.touched += rows.tolist()
        known.feasible += int(np.count_nonzero(after >= 0)) - int(np.count_nonzero(before >= 0))
        return bool(changed.any())

    def _shared_moved(self, known: PodClass, pod: PodInfo, snapshot: Snapshot) -> bool:
        """Refreshes what is shared; true if the keys have to be made anew for it.

        INVARIANT: whichever class refreshes what is shared, all others notice by the stamp.
        """
        for filtering in known.filters:
            if filtering.shared is not None:
                self._refresh_filter(filtering, pod, snapshot)
        for scoring in known.baked():
            if scoring.shared is not None:
                self._refresh_score(scoring, pod, snapshot)
        return known.stamp() != known.shared_stamp

    def _relaid(self, known: PodClass, pod: PodInfo, snapshot: Snapshot) -> bool:
        """Nodes came or went: the keys stay, for the rows that stay; false if all must be asked.

        INVARIANT: rows that came, went or were reused are among the changes since.
        """
        size, old = snapshot.nodes.size, len(known.column)
        if known.allowed is not None or known.lookups or known.bad or size < old:
            return False
        if snapshot.changes_since(known.generation) is None:
            return False
        self._shared_moved(known, pod, snapshot)
        if not all(one.shared is not None and one.shared.uniform for one in known.uniform):
            return False
        known.unfit = None
        ties = self._places(snapshot)
        column = np.full(size, NOWHERE, dtype=np.int64)
        kept = known.column
        column[:old] = np.where(
            kept < 0, kept, (kept & ~TIE_MASK) + ((ties[:old] + known.offset) & TIE_MASK)
        )
        known.column, known.cells = column, column.data
        known.layout, known.shared_stamp = snapshot.layout, known.stamp()
        bind_rows(known, pod, snapshot, ties)
        return True

    # ---- filling a class ---------------------------------------------------------------------

    def _fill(self, known: PodClass, pod: PodInfo, snapshot: Snapshot) -> None:
        """Asks every plugin about every row."""
        known.layout = -1
        known.unfit = None
        self._ask_filters(known, pod, snapshot)
        known.bad = None
        known.scorers, known.wide_scorers, known.lookups = [], [], []
        scorings = self._ask_scorers(known, pod, snapshot)
        # Only rows that a PreFilter leaves are asked about.
        rows: Rows = slice(0, snapshot.nodes.size)
        if known.allowed is not None:
            rows = np.flatnonzero(known.allowed)
        passed = self._passed(known, pod, snapshot, rows)
        known.feasible = int(np.count_nonzero(passed))
        feasible = passed
        if known.allowed is not None:
            feasible = np.zeros(snapshot.nodes.size, dtype=np.bool_)
            feasible[rows] = passed
        self._place_scorers(known, scorings, pod, snapshot, feasible)
        try:
            totals = self._totals(known, pod, snapshot, rows, passed)
        except OutOfRange as fault:
            known.bad = self._out_of_range(str(fault))
            totals = np.zeros(len(passed))
        ties = self._places(snapshot)
        keys = keys_of(totals, ties[rows], known.offset, whole=known.whole)
        keys[~passed] = NOWHERE
        if known.allowed is not None:
            asked, keys = keys, np.full(snapshot.nodes.size, NOWHERE, dtype=np.int64)
            keys[rows] = asked
        known.column, known.cells = keys, keys.data
        known.grouped, known.shared_stamp = _grouped(known), known.stamp()
        known.causes = int(_causes(known))
        known.layout, known.generation = snapshot.layout, snapshot.generation
        bind_rows(known, pod, snapshot, ties)

    def _ask_filters(
        self, known: PodClass, pod: PodInfo, snapshot: Snapshot, *, share: bool = True
    ) -> None:
        known.filters, known.wide_filters, known.versions = [], [], []
        known.allowed, known.allowed_by = None, ()
        size = snapshot.nodes.size
        wanted: frozenset[str] | None = None
        for name, points in self.filters:
            result = self._pre_filter(name, points.pre_filter, pod, snapshot)
            self._keep_version(known, name, result.version, snapshot)
            if result.status.code is Code.SKIP:
                continue
            if result.rows is not None:
                known.allowed_by = (*known.allowed_by, name)
                allowed = np.zeros(size, dtype=np.bool_)
                allowed[result.rows] = True
                known.allowed = allowed if known.allowed is None else known.allowed & allowed
                names = _named(result, snapshot)
                wanted = names if wanted is None else wanted & names
                if not wanted:
                    left_out = unresolvable(_left_out(known.allowed_by))
                    raise _pre_filter_end(left_out, snapshot, known.allowed_by)
            if points.filter is None or not result.rejects:
                continue
            if result.scope is not Scope.ROW:
                known.wide_filters.append(Filtering(name, points, result))
                continue
            shared = None
            if share and result.shared is not None:
                shared = self._share(name, "filter", result.shared, result.causes)
            filtering = Filtering(name, points, result, shared)
            if shared is not None:
                self._refresh_filter(filtering, pod, snapshot)
            known.filters.append(filtering)

    def _keep_version(
        self, known: PodClass, name: str, version: Version | None, snapshot: Snapshot
    ) -> None:
        if version is not None:
            value = self._guard(name, "PreFilter", version, snapshot)
            known.versions.append((name, version, value))

    def _current(self, known: PodClass, snapshot: Snapshot) -> bool:
        """Whether what the class depends on besides rows is as it was."""
        return all(
            self._guard(name, "PreFilter", version, snapshot) == value
            for name, version, value in known.versions
        )

    def _pre_filter(
        self,
        name: str,
        ask: Callable[[PodInfo, Snapshot], PreFilterResult] | None,
        pod: PodInfo,
        snapshot: Snapshot,
    ) -> PreFilterResult:
        if ask is None:
            return PreFilterResult()
        result = self._guard(name, "PreFilter", ask, pod, snapshot)
        if not result.status.ok and result.status.code is not Code.SKIP:
            raise _pre_filter_end(result.status.by(name), snapshot)
        return result

    def _ask_scorers(
        self, known: PodClass, pod: PodInfo, snapshot: Snapshot, *, share: bool = True
    ) -> list[Scoring]:
        """Those with a say, in order; an error is kept until it comes to scoring."""
        found: list[Scoring] = []
        for name, points, weight in self.scorers:
            try:
                result = self._pre_score(name, points.pre_score, pod, snapshot)
                self._keep_version(known, name, result.version, snapshot)
            except PluginError as error:
                known.bad = error
                return []
            if result.status.code is Code.SKIP:
                continue
            shared = None
            if share and result.scope is Scope.ROW and result.shared is not None:
                shared = self._share(name, "score", result.shared, result.causes)
            found.append(Scoring(name, points, weight, result, shared))
        return found

    def _pre_score(
        self,
        name: str,
        ask: Callable[[PodInfo, Snapshot], PreScoreResult] | None,
        pod: PodInfo,
        snapshot: Snapshot,
    ) -> PreScoreResult:
        if ask is None:
            return PreScoreResult()
        result = self._guard(name, "PreScore", ask, pod, snapshot)
        if not result.status.ok and result.status.code is not Code.SKIP:
            raise PluginError(name, "PreScore", RuntimeError(" ".join(result.status.reasons)))
        return result

    def _place_scorers(
        self,
        known: PodClass,
        scorings: Sequence[Scoring],
        pod: PodInfo,
        snapshot: Snapshot,
        passed: BoolColumn,
    ) -> None:
        """Which scores are baked into the keys, and how; the others are asked in every cycle.

        Where a wide filter decides in every cycle which nodes are feasible, all that depends on the
        feasible ones is asked then, too.
        """
        known.base, known.touched, known.whole, known.uniform = 0.0, 0, True, []
        for scoring in scorings:
            result = scoring.result
            by_row = result.scope is Scope.ROW
            if by_row and result.normalization is Normalization.NONE:
                if scoring.shared is not None:
                    self._refresh_score(scoring, pod, snapshot)
                known.scorers.append(scoring)
            elif self._uniform(known, scoring, pod, snapshot):
                pass
            elif known.wide_filters or result.scope is Scope.ALL:
                known.wide_scorers.append(scoring)
            elif by_row and result.normalization is not Normalization.CUSTOM:
                self._normalize(known, scoring, pod, snapshot, passed)
            else:
                self._of_feasible(known, scoring, pod, snapshot, passed)

    def _uniform(self, known: PodClass, scoring: Scoring, pod: PodInfo, snapshot: Snapshot) -> bool:
        """Bakes in raw scores that are 0 for all nodes, whichever are feasible."""
        how, shared = scoring.result.normalization, scoring.shared
        if shared is None or how is Normalization.CUSTOM:
            return False
        self._refresh_score(scoring, pod, snapshot)
        if shared.uniform:
            known.base += scoring.weight * float(normalized(how, _ONE_ZERO, 0.0)[0])
            known.uniform.append(scoring)
        return shared.uniform

    def _normalize(
        self,
        known: PodClass,
        scoring: Scoring,
        pod: PodInfo,
        snapshot: Snapshot,
        passed: BoolColumn,
    ) -> None:
        """Bakes in raw scores of rows, normalised by the highest of the feasible ones."""
        shared = scoring.shared
        if shared is None:
            raw = self._raw(scoring, pod, snapshot, slice(0, snapshot.nodes.size))
            known.touched |= int(scoring.result.causes)
        else:
            self._refresh_score(scoring, pod, snapshot)
            raw = shared.column
        how = scoring.result.normalization
        top = float(raw[passed].max(initial=0.0))
        fresh = None if shared is None else shared.normal.get(top)
        if fresh is None:
            fresh = normalized(how, raw, top)
            if shared is not None:
                shared.normal[top] = fresh
        known.lookups.append(Lookup(scoring, fresh, raw, top))

    def _of_feasible(
        self,
        known: PodClass,
        scoring: Scoring,
        pod: PodInfo,
        snapshot: Snapshot,
        passed: BoolColumn,
    ) -> None:
        """Bakes in scores that are made of the feasible nodes."""
        rows = np.flatnonzero(passed)
        known.touched |= int(scoring.result.causes)
        try:
            scores = self._normal(scoring, pod, snapshot, rows)
        except PluginError as error:
            known.bad = error
            return
        if scores is None:
            scores, weight = np.zeros(len(rows)), 0.0
        else:
            weight = scoring.weight
        column = np.zeros(snapshot.nodes.size)
        column[rows] = scores
        known.whole = False
        known.lookups.append(Lookup(scoring, column, None, 0.0, weight))

    def _settled(self, known: PodClass) -> bool:
        """Whether what the feasible nodes decide is as it was."""
        if known.bad is not None:
            return False
        for lookup in known.lookups:
            if lookup.raw is None:
                return False
            if float(lookup.raw[known.column >= 0].max(initial=0.0)) != lookup.top:
                return False
        return True

    def _passed(self, known: PodClass, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> BoolColumn:
        """Which of the rows hold a node that no filter by row rejects."""
        passed = snapshot.nodes.present[rows].copy()
        if known.allowed is not None:
            passed &= known.allowed[rows]
        for filtering in known.filters:
            if filtering.shared is not None:
                if not filtering.shared.uniform:
                    passed &= filtering.shared.column[rows]
                continue
            own = self._verdicts(filtering, pod, snapshot, rows).passed
            if own is not None:
                passed &= own
        return passed

    def _totals(
        self, known: PodClass, pod: PodInfo, snapshot: Snapshot, rows: Rows, passed: BoolColumn
    ) -> Scores:
        """What the baked scores of the rows add up to, in the order of `bind_rows`.

        Raises:
            OutOfRange: a score of a row that passes is not in 0..100.
        """
        totals = np.full(len(passed), known.base)
        for scoring in known.scorers:
            if scoring.shared is not None and scoring.shared.uniform:
                continue
            raw = self._raw(scoring, pod, snapshot, rows)
            if raw.min(initial=0.0) < 0 or raw.max(initial=0.0) > MAX_SCORE:
                inside = raw[passed]
                if inside.min(initial=0.0) < 0 or inside.max(initial=0.0) > MAX_SCORE:
                    raise OutOfRange(scoring.name)
                raw = np.clip(raw, 0.0, MAX_SCORE)
            totals += raw if scoring.weight == 1 else raw * scoring.weight
        for lookup in known.lookups:
            part = lookup.column[rows]
            totals += part if lookup.weight == 1 else part * lookup.weight
        return totals

    def _keys(
        self, known: PodClass, pod: PodInfo, snapshot: Snapshot, rows: NDArray[np.intp]
    ) -> IntColumn:
        passed = self._passed(known, pod, snapshot, rows)
        totals = self._totals(known, pod, snapshot, rows, passed)
        keys = keys_of(totals, self._places(snapshot)[rows], known.offset, whole=known.whole)
        keys[~passed] = NOWHERE
        return keys

    # ---- asking plugins ----------------------------------------------------------------------

    def _share(self, name: str, point: str, key: Hashable, causes: Cause) -> Shared:
        found = self._shared.get((name, point, key))
        if found is None:
            found = self._shared[name, point, key] = Shared(causes)
        return found

    def _refresh_filter(self, filtering: Filtering, pod: PodInfo, snapshot: Snapshot) -> None:
        def ask(rows: Rows) -> NDArray[Any]:
            passed = self._verdicts(filtering, pod, snapshot, rows).passed
            return np.ones(_count(rows), dtype=np.bool_) if passed is None else passed

        assert filtering.shared is not None
        filtering.shared.refresh(snapshot, ask)

    def _refresh_score(self, scoring: Scoring, pod: PodInfo, snapshot: Snapshot) -> None:
        def ask(rows: Rows) -> NDArray[Any]:
            return self._asked(scoring, pod, snapshot, rows)

        assert scoring.shared is not None
        scoring.shared.refresh(snapshot, ask)

    def _verdicts(
        self, filtering: Filtering, pod: PodInfo, snapshot: Snapshot, rows: Rows
    ) -> Verdicts:
        ask = filtering.points.filter
        assert ask is not None
        state = filtering.result.state
        return self._guard(filtering.name, "Filter", ask, state, pod, snapshot, rows)

    def _raw(self, scoring: Scoring, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        """Raw scores of rows, zeros of a plugin that abstains."""
        if scoring.shared is not None:
            return scoring.shared.column[rows]
        return self._asked(scoring, pod, snapshot, rows)

    def _asked(self, scoring: Scoring, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        raw = self._score(scoring, pod, snapshot, rows)
        return np.zeros(_count(rows)) if raw is None else raw

    def _score(
        self, scoring: Scoring, pod: PodInfo, snapshot: Snapshot, rows: Rows
    ) -> Scores | None:
        ask = scoring.points.score
        assert ask is not None
        state = scoring.result.state
        return self._guard(scoring.name, "Score", ask, state, pod, snapshot, rows)

    def _normal(
        self, scoring: Scoring, pod: PodInfo, snapshot: Snapshot, candidates: Candidates
    ) -> Scores | None:
        """Normalised scores of the candidates; None: the plugin abstains.

        Raises:
            PluginError: a plugin raised, or a score is outside 0..100.
        """
        raw = self._score(scoring, pod, snapshot, candidates)
        return None if raw is None else self._normalized(scoring, raw)

    def _normalized(self, scoring: Scoring, raw: Scores) -> Scores:
        how = scoring.result.normalization
        normal = raw
        if how is Normalization.CUSTOM:
            ask = scoring.points.normalize
            assert ask is not None
            normal = self._guard(scoring.name, "NormalizeScore", ask, scoring.result.state, raw)
        elif how is not Normalization.NONE:
            normal = normalized(how, raw, float(raw.max(initial=0.0)))
        if normal.min(initial=0.0) < 0 or normal.max(initial=0.0) > MAX_SCORE:
            raise self._out_of_range(scoring.name)
        return normal

    def _out_of_range(self, name: str) -> PluginError:
        cause = ValueError("a score is outside 0..100: amounts too large to be scored in 64 bits?")
        return PluginError(name, "NormalizeScore", cause)

    # ---- choosing ----------------------------------------------------------------------------

    def grouped_keys(self, known: PodClass, snapshot: Snapshot) -> tuple[IntColumn, int]:
        """See `GroupedChoice.keys`, for a class that has one.

        Raises:
            PluginError: a plugin raised, or a score is outside 0..100.
        """
        assert known.grouped is not None
        names = [one.name for one in known.wide_filters]
        names += [one.name for one in known.wide_scorers]
        name, ask = " ".join(dict.fromkeys(names)), known.grouped.keys
        try:
            return self._guard(name, "Score", ask, known.column, snapshot)
        except PluginError:
            known.layout = -1  # half-way: everything is asked again
            raise

    @property
    def tiered(self) -> bool:
        """Whether a plugin says that some candidates come before others whatever the scores are."""
        return bool(self._tiers)

    def candidates(self, known: PodClass, pod: PodInfo, snapshot: Snapshot) -> Candidates:
        """The rows of the feasible nodes, ascending.

        Raises:
            PluginError: a plugin raised.
        """
        passed = known.column >= 0
        for filtering in known.wide_filters:
            own = self._verdicts(filtering, pod, snapshot, slice(0, len(passed))).passed
            if own is not None:
                passed &= own
        if len(snapshot.nominations):
            passed[self.trial(pod, snapshot).promised(passed)] = False
            if known.grouped is not None:
                known.grouped = _grouped(known)  # so that what flips meanwhile is not gathered
        return np.flatnonzero(passed)

    def keys(
        self, known: PodClass, pod: PodInfo, snapshot: Snapshot, candidates: Candidates
    ) -> IntColumn:
        """(n,) sort keys of the candidates, wide scores and tiers included.

        Raises:
            PluginError: a plugin raised, or a score is outside 0..100.
        """
        if not _still_normal(known, candidates):
            keys = self._fresh_keys(known, pod, snapshot, candidates)
        else:
            keys = known.column[candidates]
            if known.wide_scorers:
                keys += self._wide_keys(known, pod, snapshot, candidates)
        tier = self.best_tier(pod, snapshot, candidates)
        if tier is not None:
            keys[~tier] = NOWHERE
        return keys

    def _wide_keys(
        self, known: PodClass, pod: PodInfo, snapshot: Snapshot, candidates: Candidates
    ) -> IntColumn:
        totals = np.zeros(len(candidates))
        for scoring in known.wide_scorers:
            normal = self._normal(scoring, pod, snapshot, candidates)
            if normal is not None:
                totals += normal * scoring.weight
        return keys_of(totals, np.zeros(len(candidates), dtype=np.int64), 0, whole=False)

    def _fresh_keys(
        self, known: PodClass, pod: PodInfo, snapshot: Snapshot, candidates: Candidates
    ) -> IntColumn:
        """Keys where fewer nodes are left than those that the class has its scores for."""
        totals = np.zeros(len(candidates))
        for _, weight, _, normal in self.scores(pod, snapshot, candidates):
            totals += normal * weight
        return keys_of(totals, self._places(snapshot)[candidates], known.offset, whole=False)

    def best_tier(
        self, pod: PodInfo, snapshot: Snapshot, candidates: Candidates
    ) -> BoolColumn | None:
        """Which candidates come before all others, whatever their scores; None: all are equal.

        Raises:
            PluginError: a plugin raised.
        """
        best: BoolColumn | None = None
        for name, ask in self._tiers:
            for mask in self._guard(name, "Tier", ask, pod, snapshot, candidates):
                both = mask if best is None else best & mask
                best = both if both.any() else best
        return best

    # ---- without the memo --------------------------------------------------------------------

    def verdicts(self, pod: PodInfo, snapshot: Snapshot, rows: NDArray[np.intp]) -> BoolColumn:
        """Which of the rows can take the pod, promises apart; nothing is kept.

        Raises:
            PluginError: a plugin raised.
        """
        known = PodClass(None, None, 0)
        try:
            self._ask_filters(known, pod, snapshot, share=False)
        except Unfit:
            return np.zeros(len(rows), dtype=np.bool_)
        passed = self._passed(known, pod, snapshot, rows)
        for filtering in known.wide_filters:
            own = self._verdicts(filtering, pod, snapshot, rows).passed
            if own is not None:
                passed &= own
        return passed

    def trial(self, pod: PodInfo, snapshot: Snapshot) -> Trials:
        """Asks what-if questions about rows; nothing is kept.

        Raises:
            Unfit: a PreFilter rejected the pod.
            PluginError: a plugin raised.
        """
        known = PodClass(None, None, 0)
        self._ask_filters(known, pod, snapshot, share=False)
        filters = sorted(
            (*known.filters, *known.wide_filters), key=lambda one: self._order[one.name]
        )
        return Trials(pod, snapshot, filters, known.allowed, known.allowed_by, self._guard)

    def unfit(self, known: PodClass, pod: PodInfo, snapshot: Snapshot) -> Rejections:
        """`rejections`, worked out once a class while nothing has changed that it depends on.

        Raises:
            PluginError: a plugin raised.
        """
        promised = len(snapshot.nominations) or pod.pod.status.nominated_node_name
        if known.wide_filters or promised:
            return self.rejections(pod, snapshot)
        if known.unfit is None:
            known.unfit = self.rejections(pod, snapshot)
        return known.unfit

    def rejections(self, pod: PodInfo, snapshot: Snapshot) -> Rejections:
        """Why each node is rejected that is; nothing is kept.

        Raises:
            PluginError: a plugin raised.
        """
        try:
            return self.trial(pod, snapshot).rejections()
        except Unfit as unfit:
            return Rejections(unfit.fit_error.nodes, ended=unfit.fit_error)

    def scores(
        self, pod: PodInfo, snapshot: Snapshot, candidates: Candidates
    ) -> list[tuple[str, float, Scores, Scores]]:
        """Per plugin with a say: name, weight, raw and normalised scores of the candidates.

        Nothing is kept.

        Raises:
            PluginError: a plugin raised, or a normalised score of it is outside 0..100.
        """
        answers = []
        known = PodClass(None, None, 0)
        for scoring in self._ask_scorers(known, pod, snapshot, share=False):
            raw = self._score(scoring, pod, snapshot, candidates)
            if raw is not None:
                normal = self._normalized(scoring, raw)
                answers.append((scoring.name, scoring.weight, raw, normal))
        if known.bad is not None:
            raise known.bad
        return answers

    @property
    def rescues(self) -> bool:
        """Whether anybody may find a way for a pod that fits nowhere."""
        return bool(self._post_filters)

    def post_filter(
        self, pod: PodInfo, snapshot: Snapshot, rejections: Rejections
    ) -> PostFilterResult:
        """What is to be done so that a pod fits that fits nowhere; the first success wins.

        Raises:
            PluginError: a plugin raised.
        """
        found = NO_POST_FILTER
        messages: list[str] = []
        for name, ask in self._post_filters:
            said = self._guard(name, "PostFilter", ask, pod, snapshot, rejections, self.trial)
            if said.status.code is not Code.UNSCHEDULABLE:
                return said
            messages += filter(None, (said.message,))
            if said.nominated is not None:
                found = said
        return replace(found, message=", ".join(messages))

    # ---- the chosen node ---------------------------------------------------------------------

    def acts(self, pod: PodInfo) -> bool:
        """Whether anybody has a say in what becomes of the pod once its node is chosen."""
        try:
            return self._actors.have_a_say(pod)
        except Exception:  # noqa: BLE001 - who cannot say is asked in full, and guarded then
            return True

    @property
    def wants_scores(self) -> bool:
        """Whether somebody reads the scores of the chosen node, even where it is the only one."""
        return self._actors.read_scores

    def act(self, pod: PodInfo, snapshot: Snapshot, decision: Decision) -> Acts:
        """What plugins want done with the pod, which the snapshot has on its node; no raising."""
        if not self.acts(pod):
            return NOTHING
        try:
            return self._actors.act(self._guard, pod, snapshot, decision)
        except PluginError as fault:
            return Acts(fault.status)

    # ---- inside ------------------------------------------------------------------------------

    def _guard(
        self, plugin: str, point: str, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        try:
            return call(*args, **kwargs)
        except PluginError:
            raise
        except Exception as cause:
            fault = PluginError(plugin, point, cause)
            fault.__cause__ = cause
            self._on_fault(fault)
            raise fault from cause


NO_POST_FILTER: Final = PostFilterResult(unschedulable())
_ONE_ZERO: Final = np.zeros(1)


def _still_normal(known: PodClass, candidates: Candidates) -> bool:
    """Whether these nodes give the scores that the class has baked into its keys."""
    if not known.lookups or len(candidates) == known.feasible:
        return True
    return all(
        one.raw is not None and float(one.raw[candidates].max(initial=0.0)) == one.top
        for one in known.lookups
    )


def _count(rows: Rows) -> int:
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def _grouped(known: PodClass) -> GroupedChoice | None:
    filters = [one.result.grouped for one in known.wide_filters]
    scorers = [(one.weight, one.result.grouped) for one in known.wide_scorers]
    all_filters = [one for one in filters if one is not None]
    all_scorers = [(weight, one) for weight, one in scorers if one is not None]
    wide = len(filters) + len(scorers)
    if not wide or len(all_filters) + len(all_scorers) < wide:
        return None
    return GroupedChoice(all_filters, all_scorers)


def _causes(known: PodClass) -> Cause:
    """Which changes of a row can change its key; a node that came or went always can."""
    causes = Cause(0)
    for filtering in known.filters:
        causes |= filtering.result.causes
    for scoring in known.baked():
        causes |= scoring.result.causes
    return causes


def _stable(key: Hashable) -> str:
    """The key as text, the same in every process: sets have no order of their own."""
    if isinstance(key, tuple):
        return f"({','.join(map(_stable, key))})"
    if isinstance(key, frozenset):
        return f"{{{','.join(sorted(map(_stable, key)))}}}"
    return repr(key)


def _log_fault(fault: PluginError) -> None:
    log.error("%s", fault, exc_info=fault.__cause__)


def _named(result: PreFilterResult, snapshot: Snapshot) -> frozenset[str]:
    """The nodes a PreFilter leaves; those that do not exist too, if it says them."""
    if result.names is not None:
        return result.names
    return frozenset() if result.rows is None else frozenset(map(snapshot.nodes.name, result.rows))


def _left_out(plugins: Sequence[str]) -> str:
    if len(plugins) == 1:
        return f"node(s) didn't satisfy plugin {plugins[0]}"
    return f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(plugins))}] simultaneously"


def _pre_filter_end(status: Status, snapshot: Snapshot, plugins: Sequence[str] = ()) -> Exception:
    if status.code is Code.ERROR:
        return PluginError(status.plugin, "PreFilter", RuntimeError(" ".join(status.reasons)))
    nodes = int(np.count_nonzero(snapshot.nodes.present))
    message = ", ".join(status.reasons)
    never = status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    by = frozenset(plugins or (status.plugin,))
    return Unfit(FitError(nodes, {}, message, by, unresolvable=never))
