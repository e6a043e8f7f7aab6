"""Calls the plugins of a profile in order, for one pod and any rows of nodes.

Keeps their answers only per part of a class key, where they depend on that alone. This is the one
place of the core that catches any exception: what a plugin raises becomes a Status.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress
from operator import ne
from typing import Any, Final, Generic, NamedTuple, ParamSpec, TypeVar

import numpy as np
from msgspec.structs import astuple, replace
from numpy.typing import NDArray

from engine.framework.decision import FitError
from engine.framework.derived import Shared
from engine.framework.interface import (
    MAX_SCORE,
    Normalization,
    Points,
    PreFilterResult,
    PreResult,
    PreScoreResult,
    Scope,
    Scores,
    Version,
)
from engine.framework.searchprogress import UnfinishedError
from engine.framework.snapshot import BoolColumn, Rows, Snapshot
from engine.framework.status import Code, Status, unresolvable
from engine.framework.trials import Filtering, Trial
from engine.pods.podinfo import PodInfo

_MOST_PARTS: Final = 4096
_ROW: Final = Scope.ROW  # CPython 3.11 takes 0.15 us to look up a member
_SKIP: Final = Code.SKIP
_P = ParamSpec("_P")
_T = TypeVar("_T")
Candidates = NDArray[np.intp]
Key = tuple[Hashable, ...]
"""The key of a class of pods, with a part for each plugin."""
PreFilter = Callable[[PodInfo, Snapshot], PreFilterResult]


def exception_text(cause: BaseException) -> str:
    """The name of an exception and what it says, also if that raises."""
    try:
        return f"{type(cause).__name__}: {cause}"
    except Exception:  # noqa: BLE001 - of a plugin's own `__str__`
        return f"{type(cause).__name__}, whose text cannot be told"


class PluginError(Exception):
    """A plugin raised, or returned an error; `status` is the pod's."""

    def __init__(self, plugin: str, point: str, cause: Exception | Status) -> None:
        said = " ".join(cause.reasons) if isinstance(cause, Status) else exception_text(cause)
        super().__init__(f"running {point} plugin {plugin!r}: {said}")
        self.status = Status(Code.ERROR, (str(self),), plugin)


class Unfit(Exception):  # noqa: N818 - an answer that ends the cycle, not a fault
    """No node fits, as PreFilter says."""

    def __init__(self, fit_error: FitError) -> None:
        super().__init__(fit_error.message())
        self.fit_error = fit_error


class Scoring(NamedTuple):
    """One plugin's score for a class; `shared` are its raw scores if classes share them."""

    name: str
    points: Points
    weight: float
    result: PreScoreResult
    shared: Shared | None = None


class Dependency(NamedTuple):
    """What a plugin's answer depends on besides rows, and the value of that at the time."""

    name: str
    version: Version
    value: Hashable


@dataclass(slots=True, eq=False)
class PreFiltered:
    """What PreFilter said: the filters of scope ROW and the wide ones, and the candidate rows."""

    by_row: list[Filtering] = field(default_factory=list)
    wide: list[Filtering] = field(default_factory=list)
    allowed: BoolColumn | None = None
    allowed_by: tuple[str, ...] = ()
    versions: list[Dependency] = field(default_factory=list)


class Said(NamedTuple):
    """What plugins said of a class of pods, at a layout and `nodes_generation`; see `alike`."""

    key: Key
    pre: PreFiltered
    scorings: list[Scoring]
    results: Mapping[tuple[str, type], PreResult]
    at: tuple[int, int]


class _PartMemo(Generic[_T]):
    """One plugin's filters or scores by its part of a class key, whatever the cluster is like."""

    def __init__(self, place: int) -> None:
        self.place = place
        """The index of its part in a key, -1: it has none, and there are no `parts`."""
        self.parts: dict[Hashable, _T | None] = {}
        """None: it has no say."""

    def keep(self, key: Key | None, asked: PreResult, found: _T | None) -> None:
        """Keeps the filter or score found for a key if it depends on the pod alone."""
        if key is not None and self.place >= 0 and asked.version is None and asked.scope is _ROW:
            if len(self.parts) >= _MOST_PARTS:
                self.parts.clear()
            self.parts[key[self.place]] = found


class PluginRunner:
    """See the module. `on_fault` is told of every exception of a plugin."""

    def __init__(
        self,
        filters: Sequence[tuple[str, Points]],
        pre_filters: Sequence[tuple[str, Points]],
        scorers: Sequence[tuple[str, Points, float]],
        keyed: Sequence[tuple[str, Points]],
        on_fault: Callable[[PluginError], None],
    ) -> None:
        """`keyed` are the plugins that have parts in class keys, in their order."""
        self._on_fault = on_fault
        self.scorers = scorers
        self._order = {name: number for number, (name, _) in enumerate(filters)}
        self._counted = any(points.counts_pods for _, points in filters)
        asked = [*filters, *[(name, points) for name, points, _ in scorers]]
        self.wide_keys = frozenset([name for name, points in asked if points.wide_key])
        """The plugins whose `class_key` concerns no answer of scope ROW."""
        # Calling _PartMemo[...]() takes three times as long as _PartMemo().
        self._filters: list[tuple[str, Points, _PartMemo[Filtering]]]
        places = {name: number for number, (name, _) in enumerate(keyed)}
        self._filters = [(*one, _PartMemo(places.get(one[0], -1))) for one in pre_filters]
        self._scorers: list[tuple[str, Points, float, _PartMemo[Scoring]]]
        self._scorers = [(*one, _PartMemo(places.get(one[0], -1))) for one in scorers]
        each = [(name, (points.pre_filter, points.pre_score)) for name, points in keyed]
        self._asks = [[(name, ask) for ask in asks if ask] for name, asks in each]

    def guard(
        self, plugin: str, point: str, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Calls a plugin.

        Raises:
            PluginError: it raised.
        """
        try:
            return call(*args, **kwargs)
        except UnfinishedError:
            raise
        except Exception as cause:
            raise self.fault(plugin, point, cause) from cause

    def fault(self, plugin: str, point: str, cause: Exception) -> PluginError:
        """The error to raise for an exception of a plugin, which is reported to `on_fault`."""
        if isinstance(cause, PluginError):
            return cause
        fault = PluginError(plugin, point, cause)
        fault.__cause__ = cause
        self._on_fault(fault)
        return fault

    # ---- once a class ------------------------------------------------------------------------

    def pre_filter(
        self, pod: PodInfo, snapshot: Snapshot, key: Key | None = None, *, what_if: bool = False
    ) -> PreFiltered:
        """Calls PreFilter; with `what_if` for what-if questions.

        With the `key` of the pod's class, plugins are not called again whose answer is known for
        their part of it.

        Raises:
            Unfit: a PreFilter rejected the pod.
            PluginError: a plugin raised.
        """
        pre = PreFiltered()
        wanted: frozenset[str] | None = None
        for name, points, memo in self._filters:
            if key is not None and (part := key[memo.place]) in memo.parts:
                known = memo.parts[part]
                if known is not None:
                    pre.by_row.append(known)
                continue
            asks = points.what_if if what_if and points.what_if else points.pre_filter
            result = self._pre_filter(name, asks, pod, snapshot)
            if result.version is not None:
                value = self.guard(name, "PreFilter", result.version, snapshot)
                pre.versions.append(Dependency(name, result.version, value))
            found = None
            if result.status.ok and points.filter is not None and result.rejects:
                found = Filtering(name, points, result)
                (pre.by_row if result.scope is _ROW else pre.wide).append(found)
            if result.rows is None:
                memo.keep(key, result, found)
            elif result.status.ok:
                names = self.guard(name, "PreFilter", self._allow, pre, name, result, snapshot)
                wanted = names if wanted is None else wanted & names
                if not wanted:
                    left_out = unresolvable(_left_out(pre.allowed_by))
                    raise self._end(left_out, snapshot, pre.allowed_by)
        return pre

    def _pre_filter(
        self, name: str, asks: PreFilter | None, pod: PodInfo, snapshot: Snapshot
    ) -> PreFilterResult:
        if asks is None:
            return _ROWS
        result = self.guard(name, "PreFilter", asks, pod, snapshot)
        if not result.status.ok and result.status.code is not _SKIP:
            raise self._end(result.status.by(name), snapshot)
        return result

    def _end(self, status: Status, snapshot: Snapshot, plugins: Sequence[str] = ()) -> Exception:
        if status.code is Code.ERROR:
            return PluginError(status.plugin, "PreFilter", status)
        message = ", ".join(status.reasons)
        never = status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        by = frozenset(plugins or (status.plugin,))
        names = [name for name, *_ in self._filters]
        unasked = frozenset(names[1 + max(map(names.index, by)) :])
        pending = by if status.code is Code.PENDING else frozenset()
        return Unfit(FitError(snapshot.nodes.count, {}, message, by, pending, never, unasked))

    def _allow(
        self, pre: PreFiltered, name: str, result: PreFilterResult, snapshot: Snapshot
    ) -> frozenset[str]:
        pre.allowed_by = (*pre.allowed_by, name)
        allowed = np.zeros(snapshot.nodes.size, dtype=np.bool_)
        allowed[result.rows] = True
        pre.allowed = allowed if pre.allowed is None else pre.allowed & allowed
        if result.names is not None:
            return result.names
        assert result.rows is not None
        return frozenset(map(snapshot.nodes.name, result.rows))

    def pre_score(
        self, pod: PodInfo, snapshot: Snapshot, versions: list[Dependency], key: Key | None = None
    ) -> list[Scoring]:
        """Calls PreScore: the plugins that score, in order. Adds to `versions`.

        For `key` see `pre_filter`.

        Raises:
            PluginError: a plugin raised, or says that it cannot score the pod.
        """
        found: list[Scoring] = []
        for name, points, weight, memo in self._scorers:
            if key is not None and (part := key[memo.place]) in memo.parts:
                known = memo.parts[part]
                if known is not None:
                    found.append(known)
                continue
            result = _ANY_ROWS
            if points.pre_score is not None:
                result = self.guard(name, "PreScore", points.pre_score, pod, snapshot)
            if result.version is not None:
                value = self.guard(name, "PreFilter", result.version, snapshot)
                versions.append(Dependency(name, result.version, value))
            if not result.status.ok and result.status.code is not _SKIP:
                raise PluginError(name, "PreScore", result.status)
            scoring = None
            if result.status.ok and points.score is not None:  # else only its score is off
                scoring = Scoring(name, points, weight, result)
                found.append(scoring)
            memo.keep(key, result, scoring)
        return found

    def alike(
        self, pod: PodInfo, snapshot: Snapshot, key: Key | None, said: Said | None
    ) -> tuple[PreFiltered, list[Scoring]] | None:
        """What plugins say of a pod, if that is what they `said` and of the same nodes; else None.

        Only plugins whose part of the key is another are called.
        """
        if said is None or key is None or said.at != (snapshot.layout, snapshot.nodes_generation):
            return None
        versions = said.pre.versions
        try:
            if [one.version(snapshot) for one in versions] != [one.value for one in versions]:
                return None
            changed = compress(self._asks, map(ne, key, said.key))
            for name, ask in chain.from_iterable(changed):
                now = ask(pod, snapshot)
                before = said.results.get((name, type(now)))
                if now is not before:
                    if before is None or now.shared is None or _meant(now) != _meant(before):
                        return None
                    old = name, before.version
                    versions = [one for one in versions if (one.name, one.version) != old]
                    if now.version is not None:
                        versions.append(Dependency(name, now.version, now.version(snapshot)))
        except Exception:  # noqa: BLE001 - asking all plugins names the one that raised
            return None
        return PreFiltered(said.pre.by_row, versions=versions), said.scorings

    # ---- about rows --------------------------------------------------------------------------

    def mask(
        self, filtering: Filtering, pod: PodInfo, snapshot: Snapshot, rows: Rows
    ) -> BoolColumn | None:
        """Which of the rows a plugin lets pass; None: all."""
        ask, state = filtering.points.filter, filtering.result.state
        assert ask is not None
        return self.guard(filtering.name, "Filter", ask, state, pod, snapshot, rows).passed

    def raw(self, scoring: Scoring, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores | None:
        """A plugin's raw scores of the rows; None: it abstains."""
        ask, state = scoring.points.score, scoring.result.state
        assert ask is not None
        return self.guard(scoring.name, "Score", ask, state, pod, snapshot, rows)

    def normalized(self, scoring: Scoring, raw: Scores) -> Scores:
        """Raw scores of all feasible nodes as 0..100.

        Raises:
            PluginError: the plugin raised, or a score is outside 0..100.
        """
        how = scoring.result.normalization
        normal = raw
        if how is Normalization.CUSTOM:
            ask = scoring.points.normalize
            assert ask is not None
            normal = self.guard(scoring.name, "NormalizeScore", ask, scoring.result.state, raw)
        elif how is not Normalization.NONE:
            normal = by_top(how, raw, float(raw.max(initial=0.0)))
        if normal.min(initial=0.0) < 0 or normal.max(initial=0.0) > MAX_SCORE:
            raise self.out_of_range(scoring.name)
        return normal

    @staticmethod
    def out_of_range(name: str) -> PluginError:
        """The error for normalised scores outside 0..100."""
        cause = ValueError("a score is outside 0..100: amounts too large to be scored in 64 bits?")
        return PluginError(name, "NormalizeScore", cause)

    # ---- whole questions ---------------------------------------------------------------------

    def trial(self, pod: PodInfo, snapshot: Snapshot, *, what_if: bool = False) -> Trial:
        """A trial of rows as they are; with `what_if` also as they would be without some pods.

        Raises:
            Unfit: a PreFilter rejected the pod, with `what_if` whichever pods leave.
            PluginError: a plugin raised.
        """
        pre = self.pre_filter(pod, snapshot, what_if=what_if)
        filters = sorted((*pre.by_row, *pre.wide), key=lambda one: self._order[one.name])
        allowed, by = pre.allowed, pre.allowed_by
        return Trial(pod, snapshot, filters, allowed, by, self.guard, self._counted)


_ROWS: Final = PreFilterResult()
_ANY_ROWS: Final = PreScoreResult()


def _meant(result: PreResult) -> tuple[Any, ...]:
    """All of a result with `shared` that counts."""
    return astuple(replace(result, state=None, version=None))


def by_top(how: Normalization, raw: Scores, top: float) -> Scores:
    """Raw scores -> 0..100, by the highest of the feasible nodes; see `Normalization`.

    Source: kubernetes plugins/helper/normalize_score.go.
    """
    if top == 0.0:
        return raw if how is Normalization.BY_MAX else np.full(len(raw), float(MAX_SCORE))
    share: Scores = np.trunc(raw * MAX_SCORE / top)
    return share if how is Normalization.BY_MAX else MAX_SCORE - share


def _left_out(plugins: Sequence[str]) -> str:
    if len(plugins) == 1:
        return f"node(s) didn't satisfy plugin {plugins[0]}"
    return f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(plugins))}] simultaneously"


def count_of(rows: Rows) -> int:
    """How many rows are asked about."""
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)
