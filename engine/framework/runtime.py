"""The plugins of one profile, asked in order; their answers kept per pod class.

`Framework` is what a cycle decides with: it never changes after it is made, but for its memo. The
memo holds, for each class of pods that no plugin can tell apart, the masks and raw scores of all
nodes, and brings them up to date by asking again about the rows that changed. Asking all or asking
the changed ones is the same call, so the memo changes how long an answer takes and never the
answer.

This is the one place of the core that catches any exception: a plugin's fault becomes a Status.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Final, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.framework.acting import NOTHING, Actors, Acts
from engine.framework.decision import Decision, FitError
from engine.framework.events import ClusterEventWithHint
from engine.framework.interface import (
    FilterPlugin,
    MovingGate,
    PreEnqueuePlugin,
    PreFilterResult,
    QueueSortPlugin,
    Scope,
    ScorePlugin,
    Scores,
    State,
    TierPlugin,
    TurningPlugin,
    Verdicts,
)
from engine.framework.podinfo import PodInfo
from engine.framework.profile import Profile
from engine.framework.snapshot import BoolColumn, Rows, Snapshot
from engine.framework.status import Code, Status, unresolvable

log = logging.getLogger(__name__)

MEMO_BYTES: Final = 96 << 20
_SETS_BYTES: Final = 8 << 20
_LEAST_CLASSES: Final = 16
_MOST_CLASSES: Final = 4096
_BYTES_A_SCORE: Final = 8

_P = ParamSpec("_P")
_T = TypeVar("_T")
Candidates = NDArray[np.intp]


class PluginError(Exception):
    """A plugin raised; `status` is what the pod is told."""

    def __init__(self, plugin: str, point: str, cause: Exception) -> None:
        super().__init__(f"running {point} plugin {plugin!r}: {type(cause).__name__}: {cause}")
        self.status = Status(Code.ERROR, (str(self),), plugin)


class Unfit(Exception):  # noqa: N818 - an answer that ends the cycle, not a fault
    """No node fits, known before or after the nodes were asked."""

    def __init__(self, fit_error: FitError) -> None:
        super().__init__(fit_error.message())
        self.fit_error = fit_error


class PodClass:
    """What is known of one class of pods at one generation. Filled and used by `Framework`."""

    __slots__ = (
        "allowed",
        "allowed_by",
        "asked",
        "candidates",
        "feasible",
        "filter_versions",
        "generation",
        "key",
        "layout",
        "masks",
        "normal",
        "pre",
        "raw",
        "rejected",
        "score_pre",
        "score_versions",
        "size",
        "tie_seed",
    )

    def __init__(self, filters: int, scorers: int, key: tuple[Hashable, ...] | None = None) -> None:
        self.key = key
        self.size = -1
        self.layout = -1
        self.generation = -1
        self.pre: list[PreFilterResult] = []
        self.allowed: BoolColumn | None = None
        self.asked: Rows = slice(0, 0)
        self.allowed_by: tuple[str, ...] = ()
        self.masks: list[BoolColumn | None] = [None] * filters
        self.filter_versions: list[Hashable] = [None] * filters
        self.feasible: BoolColumn = np.empty(0, dtype=np.bool_)
        self.candidates: Candidates | None = None
        # INVARIANT: None as soon as any mask changed in any row.
        self.rejected: dict[str, int] | None = None
        self.score_pre: list[tuple[Status, State] | None] = [None] * scorers
        self.score_versions: list[Hashable] = [None] * scorers
        self.raw: list[Scores | None] = [None] * scorers
        # INVARIANT: made of `raw` of `candidates` as they are now, or None.
        self.normal: list[tuple[Scores, Scores] | None] = [None] * scorers
        self.tie_seed: np.uint64 | None = None


class Framework:
    """One profile's plugins, sorted by extension point; immutable but for the memo."""

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
            ValueError: not exactly one plugin sorts the queue.
        """
        plugins = [weighted.plugin for weighted in profile.plugins]
        self.profile = profile
        self.bundle = bundle
        self.pre_enqueuers = tuple(p for p in plugins if isinstance(p, PreEnqueuePlugin))
        self.filters = tuple(p for p in plugins if isinstance(p, FilterPlugin))
        self.gates_move = any(p.gate_moves for p in plugins if isinstance(p, MovingGate))
        """Whether PreEnqueue looks at more than the pod."""
        self._turning = tuple(p for p in plugins if isinstance(p, TurningPlugin))
        self._tiers = tuple(p for p in plugins if isinstance(p, TierPlugin))
        self._actors = Actors(plugins)
        self.scorers = tuple(
            (w.plugin, w.weight) for w in profile.plugins if isinstance(w.plugin, ScorePlugin)
        )
        sorters = [p for p in plugins if isinstance(p, QueueSortPlugin)]
        if len(sorters) != 1:
            names = ", ".join(p.name for p in sorters) or "none"
            raise ValueError(
                f"a profile needs exactly one plugin that sorts the queue; got {names}"
            )
        self.sort_key = sorters[0].sort_key
        """See `QueueSortPlugin.sort_key`; equal for frameworks that share the plugin."""
        keyed: dict[str, FilterPlugin | ScorePlugin] = {p.name: p for p in self.filters}
        keyed.update({p.name: p for p, _ in self.scorers})
        self._keyed = tuple(keyed.values())
        self._of_all_rows = tuple([plugin.scope is Scope.ALL for plugin in self.filters])
        self._on_fault = on_fault or _log_fault
        self._memo_bytes = memo_bytes
        self._classes: OrderedDict[Hashable, PodClass] = OrderedDict()
        self._most_classes = 0
        self._classes_for = -1
        self._sets: dict[bytes, Candidates] = {}
        self._sets_for = -1
        self._sets_bytes = 0

    # ---- around the queue --------------------------------------------------------------------

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """The first answer that is not Success, with its plugin; Success otherwise."""
        for plugin in self.pre_enqueuers:
            status = self._guard(plugin.name, "PreEnqueue", plugin.pre_enqueue, pod)
            if not status.ok:
                return status.by(plugin.name)
        return Status.SUCCESS

    def turns_at(self, pod: PodInfo, plugins: frozenset[str]) -> float:
        """When the clock alone may change what these plugins said of a pod they just rejected.

        Seconds since the epoch, infinite for never. A plugin that raises has no say: the pod waits
        for what else wakes it.
        """
        soonest = math.inf
        for plugin in self._turning:
            if plugin.name in plugins:
                with suppress(PluginError):  # told to `on_fault`
                    at = self._guard(plugin.name, "PreEnqueue", plugin.turns_at, pod)
                    soonest = min(soonest, at)
        return soonest

    def hints(self) -> Mapping[str, Sequence[ClusterEventWithHint]]:
        """What could wake the pods that a plugin rejected, by plugin."""
        return {w.plugin.name: tuple(w.plugin.events()) for w in self.profile.plugins}

    # ---- filters -----------------------------------------------------------------------------

    def class_key(self, pod: PodInfo, snapshot: Snapshot) -> tuple[Hashable, ...]:
        """What tells the pod's class: pods with equal keys get equal answers.

        Raises:
            PluginError: a plugin raised.
        """
        return tuple(
            [self._guard(p.name, "PreFilter", p.class_key, pod, snapshot) for p in self._keyed]
        )

    def filter(self, pod: PodInfo, snapshot: Snapshot) -> PodClass:
        """The pod's class with its masks brought up to the snapshot.

        Raises:
            Unfit: a PreFilter rejected the pod.
            PluginError: a plugin raised.
        """
        classes = self._memo(snapshot.nodes.size)
        if not self._most_classes:
            known = PodClass(len(self.filters), len(self.scorers))
            self._filter_all(known, pod, snapshot)
            return known
        key = self.class_key(pod, snapshot)
        found = classes.get(key)
        if found is None:
            found = PodClass(len(self.filters), len(self.scorers), key)
            self._filter_all(found, pod, snapshot)
            classes[key] = found
            if len(classes) > self._most_classes:
                classes.popitem(last=False)
            return found
        known = found
        classes.move_to_end(key)
        rows = None
        if known.size == snapshot.nodes.size and known.layout == snapshot.layout:
            rows = snapshot.changed_since(known.generation)
        if rows is None:
            self._filter_all(known, pod, snapshot)
        else:
            self._filter_changed(known, pod, snapshot, rows)
        return known

    def _filter_all(self, known: PodClass, pod: PodInfo, snapshot: Snapshot) -> None:
        known.size = -1  # in case a plugin raises half-way
        self._pre_filter(known, pod, snapshot)
        size = snapshot.nodes.size
        for i in range(len(self.filters)):
            self._ask_filter(known, i, pod, snapshot)
        known.feasible = _all_of(known, snapshot, slice(0, size))
        _masks_changed(known, everywhere=True)
        known.raw = [None] * len(self.scorers)
        known.layout = snapshot.layout
        known.generation = snapshot.generation
        known.size = size

    def _pre_filter(self, known: PodClass, pod: PodInfo, snapshot: Snapshot) -> None:
        known.pre = []
        known.allowed = None
        size = snapshot.nodes.size
        known.asked = slice(0, size)
        allowed_by: list[str] = []
        wanted: frozenset[str] | None = None
        for i, plugin in enumerate(self.filters):
            known.filter_versions[i] = self._version(plugin, snapshot)
            result = self._guard(plugin.name, "PreFilter", plugin.pre_filter, pod, snapshot)
            if not result.status.ok and result.status.code is not Code.SKIP:
                raise _pre_filter_end(result.status.by(plugin.name), snapshot)
            known.pre.append(result)
            if result.rows is not None:
                allowed_by.append(plugin.name)
                allowed = np.zeros(size, dtype=np.bool_)
                allowed[result.rows] = True
                known.allowed = allowed if known.allowed is None else known.allowed & allowed
                names = _named(result, snapshot)
                wanted = names if wanted is None else wanted & names
                if not wanted:
                    raise _pre_filter_end(unresolvable(_left_out(allowed_by)), snapshot, allowed_by)
        known.allowed_by = tuple(allowed_by)
        if known.allowed is not None:
            known.asked = np.flatnonzero(known.allowed)

    def _ask_filter(self, known: PodClass, i: int, pod: PodInfo, snapshot: Snapshot) -> None:
        """One plugin about all rows that are asked at all."""
        known.masks[i] = None
        if known.pre[i].status.code is Code.SKIP:
            return
        passed = self._verdicts(known, i, pod, snapshot, known.asked).passed
        if passed is not None and not isinstance(known.asked, slice):
            mask = np.zeros(snapshot.nodes.size, dtype=np.bool_)
            mask[known.asked] = passed
            passed = mask
        known.masks[i] = passed

    def _filter_changed(
        self, known: PodClass, pod: PodInfo, snapshot: Snapshot, rows: NDArray[np.intp]
    ) -> None:
        size, known.size = known.size, -1  # in case a plugin raises half-way
        if known.allowed is not None:
            rows = rows[known.allowed[rows]]
        refilled = changed = False
        for i, plugin in enumerate(self.filters):
            version = self._version(plugin, snapshot)
            moved = self._of_all_rows[i] and known.generation != snapshot.generation
            if moved or version != known.filter_versions[i]:
                self._refilter(known, i, pod, snapshot, version)
                refilled = True
            elif len(rows) and known.pre[i].status.code is not Code.SKIP:
                changed |= self._filter_rows(known, i, pod, snapshot, rows)
        if refilled:
            known.feasible = _all_of(known, snapshot, slice(0, snapshot.nodes.size))
            _masks_changed(known, everywhere=True)
        elif changed:
            feasible = _all_of(known, snapshot, rows)
            _masks_changed(known, everywhere=not np.array_equal(known.feasible[rows], feasible))
            known.feasible[rows] = feasible
        if len(rows):
            self._score_changed(known, pod, snapshot, rows)
        known.generation = snapshot.generation
        known.size = size

    def _refilter(
        self, known: PodClass, i: int, pod: PodInfo, snapshot: Snapshot, version: Hashable
    ) -> None:
        plugin = self.filters[i]
        result = self._guard(plugin.name, "PreFilter", plugin.pre_filter, pod, snapshot)
        if not result.status.ok and result.status.code is not Code.SKIP:
            known.size = -1
            raise _pre_filter_end(result.status.by(plugin.name), snapshot)
        known.pre[i] = result
        known.filter_versions[i] = version
        self._ask_filter(known, i, pod, snapshot)

    def _filter_rows(
        self, known: PodClass, i: int, pod: PodInfo, snapshot: Snapshot, rows: NDArray[np.intp]
    ) -> bool:
        """One plugin about some rows; True if its mask changed."""
        passed = self._verdicts(known, i, pod, snapshot, rows).passed
        mask = known.masks[i]
        if mask is None:
            if passed is None:
                return False
            mask = known.masks[i] = np.ones(snapshot.nodes.size, dtype=np.bool_)
        if passed is None:
            passed = np.ones(len(rows), dtype=np.bool_)
        if mask[rows].tobytes() == passed.tobytes():
            return False
        mask[rows] = passed
        return True

    def _verdicts(
        self, known: PodClass, i: int, pod: PodInfo, snapshot: Snapshot, rows: Rows
    ) -> Verdicts:
        plugin = self.filters[i]
        state = known.pre[i].state
        return self._guard(plugin.name, "Filter", plugin.filter, state, pod, snapshot, rows)

    def candidates(self, known: PodClass) -> Candidates:
        """The rows of the feasible nodes, ascending; one array for all classes with the same."""
        if known.candidates is not None:
            return known.candidates
        if not self._most_classes:
            return np.flatnonzero(known.feasible)
        if known.layout != self._sets_for or self._sets_bytes > _SETS_BYTES:
            self._sets.clear()
            self._sets_bytes = 0
            self._sets_for = known.layout
        key = known.feasible.tobytes()
        found = self._sets.get(key)
        if found is None:
            found = self._sets[key] = np.flatnonzero(known.feasible)
            found.flags.writeable = False
            self._sets_bytes += found.nbytes + len(key)
        known.candidates = found
        return found

    def first_rejections(self, known: PodClass, snapshot: Snapshot) -> dict[str, Candidates]:
        """The rows that each plugin was the first to reject, for plugins that rejected any."""
        left = snapshot.nodes.present.copy()
        if known.allowed is not None:
            left &= known.allowed
        first: dict[str, Candidates] = {}
        for plugin, mask in zip(self.filters, known.masks, strict=True):
            if mask is None:
                continue
            rows = np.flatnonzero(left & ~mask)
            if len(rows):
                first[plugin.name] = rows
                left &= mask
        return first

    def rejected(self, known: PodClass, snapshot: Snapshot) -> dict[str, int]:
        """How many nodes each plugin was the first to reject. Borrowed: read only."""
        if known.rejected is None:
            left = snapshot.nodes.present
            if known.allowed is not None:
                left = left & known.allowed
            known.rejected = {}
            for plugin, mask in zip(self.filters, known.masks, strict=True):
                if mask is None:
                    continue
                count = int(np.count_nonzero(left > mask))
                if count:
                    known.rejected[plugin.name] = count
                    left = left & mask
        return known.rejected

    def unfit(self, known: PodClass, pod: PodInfo, snapshot: Snapshot) -> FitError:
        """Why no node is left, counted by reason.

        The pod's own nominated node is asked whatever a PreFilter says, so it has its own reason.
        """
        reasons: Counter[str] = Counter()
        first = self.first_rejections(known, snapshot)
        for i, plugin in enumerate(self.filters):
            rows = first.get(plugin.name)
            if rows is not None:
                reasons.update(self._reasons(known, i, pod, snapshot, rows))
        plugins = set(first)
        present = snapshot.nodes.present
        if known.allowed is not None:
            out = int(np.count_nonzero(present & ~known.allowed))
            nominated = snapshot.nodes.row(pod.pod.status.nominated_node_name)
            if nominated >= 0 and not known.allowed[nominated]:
                out -= 1
                own = np.array([nominated], dtype=np.intp)
                asked = (self._reasons(known, i, pod, snapshot, own) for i in range(len(known.pre)))
                reasons.update(next(filter(None, asked), Counter()))
            if out:
                reasons[f"node(s) didn't satisfy plugin(s) {_go_list(known.allowed_by)}"] += out
            plugins.update(known.allowed_by)
        return FitError(int(np.count_nonzero(present)), reasons, plugins=frozenset(plugins))

    def _reasons(
        self, known: PodClass, i: int, pod: PodInfo, snapshot: Snapshot, rows: Candidates
    ) -> Counter[str]:
        """How often one plugin gives each reason for rejecting one of the rows."""
        reasons: Counter[str] = Counter()
        if known.pre[i].status.code is not Code.SKIP:
            for status, positions in self._verdicts(known, i, pod, snapshot, rows).groups():
                for reason in status.reasons:
                    reasons[reason] += len(positions)
        return reasons

    # ---- scores ------------------------------------------------------------------------------

    def scores(
        self, known: PodClass, pod: PodInfo, snapshot: Snapshot, candidates: Candidates
    ) -> list[tuple[str, float, Scores, Scores]]:
        """Per plugin with a say: name, weight, raw and normalised scores of the candidates.

        Raises:
            PluginError: a plugin raised, or a normalised score of it is outside 0..100.
        """
        everyone = len(candidates) == snapshot.nodes.size
        keep = candidates is known.candidates
        answers = []
        for i, (plugin, weight) in enumerate(self.scorers):
            raw = self._raw(known, i, pod, snapshot, candidates)
            if raw is None:
                continue
            name = plugin.name
            normal = known.normal[i]
            if normal is None or not keep:
                by_row = plugin.score_scope is Scope.ROW
                if by_row and not everyone:
                    raw = raw.take(candidates)
                pre = known.score_pre[i]
                state = None if pre is None else pre[1]
                fresh = self._guard(name, "NormalizeScore", plugin.normalize, state, raw)
                normal = raw, fresh
                if by_row and keep:
                    known.normal[i] = normal
            answers.append((name, weight, *normal))
        return answers

    def _raw(
        self, known: PodClass, i: int, pod: PodInfo, snapshot: Snapshot, candidates: Candidates
    ) -> Scores | None:
        plugin, _ = self.scorers[i]
        version = self._version(plugin, snapshot)
        pre = known.score_pre[i]
        if pre is None or version != known.score_versions[i]:
            pre = self._guard(plugin.name, "PreScore", plugin.pre_score, pod, snapshot)
            if pre[0].code is Code.ERROR:
                raise PluginError(plugin.name, "PreScore", RuntimeError(" ".join(pre[0].reasons)))
            known.score_pre[i] = pre
            known.score_versions[i] = version
            known.raw[i] = known.normal[i] = None
        status, state = pre
        if status.code is Code.SKIP:
            return None
        if plugin.score_scope is Scope.ALL:
            return self._guard(plugin.name, "Score", plugin.score, state, pod, snapshot, candidates)
        if known.raw[i] is None:
            everyone = slice(0, snapshot.nodes.size)
            known.raw[i] = self._guard(
                plugin.name, "Score", plugin.score, state, pod, snapshot, everyone
            )
        return known.raw[i]

    def _score_changed(
        self, known: PodClass, pod: PodInfo, snapshot: Snapshot, rows: NDArray[np.intp]
    ) -> None:
        for i, (plugin, _) in enumerate(self.scorers):
            raw, pre = known.raw[i], known.score_pre[i]
            if raw is None or pre is None:
                continue
            fresh = self._guard(plugin.name, "Score", plugin.score, pre[1], pod, snapshot, rows)
            if fresh is None:
                known.raw[i] = known.normal[i] = None
            elif raw[rows].tobytes() != fresh.tobytes():
                raw[rows] = fresh
                known.normal[i] = None

    def best_tier(
        self, pod: PodInfo, snapshot: Snapshot, candidates: Candidates
    ) -> BoolColumn | None:
        """Which candidates come before all others, whatever their scores; None: all are equal.

        Raises:
            PluginError: a plugin raised.
        """
        best: BoolColumn | None = None
        for plugin in self._tiers:
            for mask in self._guard(
                plugin.name, "Tier", plugin.preferred, pod, snapshot, candidates
            ):
                both = mask if best is None else best & mask
                best = both if both.any() else best
        return best

    # ---- the chosen node ---------------------------------------------------------------------

    @property
    def acts(self) -> bool:
        """Whether anybody has a say once the node is chosen."""
        return self._actors.any

    @property
    def wants_scores(self) -> bool:
        """Whether somebody reads the scores of the chosen node, even where it is the only one."""
        return self._actors.read_scores

    def act(self, pod: PodInfo, snapshot: Snapshot, decision: Decision) -> Acts:
        """What plugins want done with the pod, which the snapshot has on its node; no raising."""
        if not self.acts:
            return NOTHING
        try:
            return self._actors.act(self._guard, pod, snapshot, decision)
        except PluginError as fault:
            return Acts(fault.status)

    # ---- ties --------------------------------------------------------------------------------

    def tie_seed(self, known: PodClass, pod: PodInfo, snapshot: Snapshot) -> np.uint64:
        """The seed of the class's permutation of the nodes; stable between processes.

        INVARIANT: class keys are made of values whose repr is the same in every process.
        """
        if known.tie_seed is None:
            key = self.class_key(pod, snapshot) if known.key is None else known.key
            text = f"{self.profile.seed}\0{key!r}"
            digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
            known.tie_seed = np.uint64(int.from_bytes(digest, "little"))
        return known.tie_seed

    # ---- inside ------------------------------------------------------------------------------

    def _memo(self, nodes: int) -> OrderedDict[Hashable, PodClass]:
        """The memo, sized for the number of nodes: it holds bytes, not entries."""
        if self._classes_for != nodes:
            # Of each node: a byte a filter and the set of feasible ones; scores that a row alone
            # decides are kept of all nodes, of the candidates, and normalised.
            kept = [plugin for plugin, _ in self.scorers if plugin.score_scope is Scope.ROW]
            bytes_a_node = len(self.filters) + 1 + 3 * _BYTES_A_SCORE * len(kept)
            most = max(_LEAST_CLASSES, self._memo_bytes // (max(1, nodes) * bytes_a_node))
            self._most_classes = min(_MOST_CLASSES, most) if self._memo_bytes > 0 else 0
            self._classes = OrderedDict()
            self._classes_for = nodes
        return self._classes

    def _version(self, plugin: FilterPlugin | ScorePlugin, snapshot: Snapshot) -> Hashable:
        return self._guard(plugin.name, "PreFilter", plugin.version, snapshot)

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


def _all_of(known: PodClass, snapshot: Snapshot, rows: Rows) -> BoolColumn:
    """Which of the rows hold a node that nobody rejects."""
    feasible = snapshot.nodes.present[rows].copy()
    for mask in (known.allowed, *known.masks):
        if mask is not None:
            feasible &= mask[rows]
    return feasible


def _masks_changed(known: PodClass, *, everywhere: bool) -> None:
    """Forgets what was made of the masks; `everywhere`: of the set of feasible nodes too."""
    known.rejected = None
    if everywhere:
        known.candidates = None
        known.normal = [None] * len(known.normal)


def _log_fault(fault: PluginError) -> None:
    log.error("%s", fault, exc_info=fault.__cause__)


def _go_list(names: Sequence[str]) -> str:
    return f"[{' '.join(sorted(names))}]"


def _named(result: PreFilterResult, snapshot: Snapshot) -> frozenset[str]:
    """The nodes a PreFilter leaves; those that do not exist too, if it says them."""
    if result.names is not None:
        return result.names
    return frozenset() if result.rows is None else frozenset(map(snapshot.nodes.name, result.rows))


def _left_out(plugins: Sequence[str]) -> str:
    if len(plugins) == 1:
        return f"node(s) didn't satisfy plugin {plugins[0]}"
    return f"node(s) didn't satisfy plugin(s) {_go_list(plugins)} simultaneously"


def _pre_filter_end(status: Status, snapshot: Snapshot, plugins: Sequence[str] = ()) -> Exception:
    if status.code is Code.ERROR:
        return PluginError(status.plugin, "PreFilter", RuntimeError(" ".join(status.reasons)))
    nodes = int(np.count_nonzero(snapshot.nodes.present))
    message = ", ".join(status.reasons)
    return Unfit(FitError(nodes, {}, message, frozenset(plugins or (status.plugin,))))
