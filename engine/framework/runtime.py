"""The plugins of one profile, by extension point: what the cycle and the queue call.

Immutable but for its memo of classes (`classes.py`), which changes how long an answer takes and
never the answer.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import numpy as np

from engine.framework.acting import Actors
from engine.framework.classes import Classes, PodClass
from engine.framework.classupdater import ClassUpdater
from engine.framework.decision import PostFilterResult, Rejections
from engine.framework.events import ClusterEventWithHint, HintFn, QueueingHint, Seen, never
from engine.framework.gang import Membership
from engine.framework.interface import MAX_SCORE, UNSHARED, Points, Scores
from engine.framework.keycolumn import NOWHERE, UNIT, KeyColumn, steps_of
from engine.framework.profile import VIEW, Profile, View
from engine.framework.runner import Candidates, PluginError, PluginRunner, Unfit
from engine.framework.searchprogress import SearchProgress
from engine.framework.snapshot import BoolColumn, IntColumn, Snapshot
from engine.framework.status import Code, Status, unschedulable
from engine.framework.trials import Trial
from engine.pods.podinfo import PodInfo

__all__ = ["MEMO_BYTES", "Candidates", "Framework", "Frameworks", "PluginError", "Unfit"]

log = logging.getLogger(__name__)

MEMO_BYTES: Final = 96 << 20


def best_tier(masks: Iterable[BoolColumn]) -> BoolColumn | None:
    """The candidates that come before all others; None: all are equal."""
    best: BoolColumn | None = None
    for mask in masks:
        both = mask if best is None else best & mask
        best = both if both.any() else best
    return best


class Framework:
    """See the module. The memo is of one cluster: all snapshots must be of the same cache."""

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
        named = [(w.plugin.name, w.plugin.points()) for w in profile.plugins]
        each = zip(profile.plugins, named, strict=True)
        sorters = [(w.plugin, p.sort_key) for w, (_, p) in each if p.sort_key]
        if len(sorters) != 1:
            names = ", ".join(sorter.name for sorter, _ in sorters) or "none"
            raise ValueError(
                f"a profile needs exactly one plugin that sorts the queue; got {names}"
            )
        ((self.sorter, self._sort_key),) = sorters
        """The plugin that sorts the queue, by keys that compare with each other."""
        self._view = View(profile.node_selector) if profile.node_selector else None
        if self._view is not None:
            named.insert(0, (self._view.name, self._view.points()))
        self.plugins = tuple(named)
        weight_of = {w.plugin.name: w.weight for w in profile.plugins}
        plugins, at = self.plugins, self._at
        self._pre_enqueuers = [(n, p.pre_enqueue) for n, p in at("preEnqueue") if p.pre_enqueue]
        self.gates_volatile = any(p.gate_volatile for _, p in plugins)
        """Whether PreEnqueue looks at more than the pod."""
        self._turning = [(name, p.recheck_at) for name, p in plugins if p.recheck_at]
        self.tiered = any(p.tiers for _, p in plugins)
        """Whether a plugin puts some candidates before others whatever their scores."""
        self._tiers = [(name, p.tiers) for name, p in plugins if p.tiers]
        self._gangs = [(name, p.gang, p.kin) for name, p in plugins if p.gang and p.kin]
        self.gangs = frozenset([name for name, *_ in self._gangs])
        """The plugins that know gangs."""
        self._post_filters = [(n, p.post_filter) for n, p in at("postFilter") if p.post_filter]
        self.has_post_filter = bool(self._post_filters)
        """Whether there is a PostFilter."""
        self._post_filter_keys = [p.post_filter_key for _, p in plugins if p.post_filter_key]
        self.filters, self.pre_filters = (
            tuple([one for one in at(point) if one[1].filter or one[1].pre_filter])
            for point in ("filter", "preFilter")
        )
        self._told = [(name, p.reason_key) for name, p in self.filters if p.reason_key]
        asked = [
            (*one, weight_of[one[0]]) for one in at("score") if one[1].score or one[1].pre_score
        ]
        self.scorers = tuple([one for one in asked if one[1].score])
        # An error of PreScore counts even if only the plugin's Score is disabled.
        ranked = asked if self.scorers else ()
        keyed = [(n, p) for n, p in plugins if p.filter or p.pre_filter or p.score]
        self._runner = PluginRunner(
            self.filters, self.pre_filters, ranked, keyed, on_fault or _log_fault
        )
        self._guard = self._runner.guard
        self.trial = self._runner.trial
        """See `PluginRunner.trial`."""
        actors = Actors(plugins, self._guard)
        self.acts, self.reserve = actors.acts, actors.reserve
        self.permit, self.act = actors.permit, actors.act
        self.wants_scores = any(p.reads_scores for _, p in plugins)
        """Whether a plugin reads the scores of the chosen node, even of an only candidate."""
        if sum(weight for *_, weight in self.scorers) * MAX_SCORE * UNIT >= -NOWHERE:
            raise ValueError("the weights of all plugins together must stay below 671,088")
        self._classes = Classes(keyed, self._runner, seed=profile.seed, most_bytes=memo_bytes)
        self._updater = ClassUpdater(self._runner, self._classes)
        self.class_key: Callable[[PodInfo, Snapshot], Hashable] = self._classes.name
        """Equal for pods that get equal answers; see `Classes.name`."""
        self.keys_volatile = self._classes.keys_volatile
        """Whether class keys depend on more than the pod."""

    def _at(self, point: str) -> Sequence[tuple[str, Points]]:
        names = self.profile.order.get(point)
        if names is None:
            return self.plugins
        rank = {name: number for number, name in enumerate(names)} | {VIEW: -1}
        return sorted(self.plugins, key=lambda one: rank.get(one[0], len(rank)))

    def of(self, pod: PodInfo) -> Framework:  # noqa: ARG002 - the only one decides for all
        """See `Frameworks.of`."""
        return self

    # ---- around the queue --------------------------------------------------------------------

    def pre_enqueue(self, pod: PodInfo, snapshot: Snapshot) -> Status:
        """The first answer that is not Success, with its plugin; Success otherwise.

        A pod that passes gets the name of its class already.

        Raises:
            PluginError: a plugin raised.
        """
        for name, ask in self._pre_enqueuers:
            status = self._guard(name, "PreEnqueue", ask, pod, snapshot)
            if not status.ok:
                return status.by(name)
        with suppress(PluginError):  # the cycle will meet it, too, and report it
            self._classes.name(pod, snapshot)
        return Status.SUCCESS

    def sort_key(self, pod: PodInfo, queued_at: float, snapshot: Snapshot) -> tuple[Any, ...]:
        """The pod's place in the queue; smaller comes first.

        Raises:
            PluginError: the plugin raised.
        """
        return self._guard(self.sorter.name, "QueueSort", self._sort_key, pod, queued_at, snapshot)

    def recheck_at(self, pod: PodInfo, snapshot: Snapshot, plugins: frozenset[str]) -> float:
        """When the clock alone may change the answers of the plugins that rejected the pod.

        Seconds since the epoch, infinite for never. A plugin that raises has no say.
        """
        soonest = math.inf
        for name, ask in self._turning:
            if name in plugins:
                with suppress(PluginError):  # told to `on_fault`
                    soonest = min(soonest, self._guard(name, "PreEnqueue", ask, pod, snapshot))
        return soonest

    def hints(self) -> Mapping[str, Sequence[ClusterEventWithHint]]:
        """By plugin, the events that may wake pods which it rejected."""
        return {name: tuple(points.events) for name, points in self.plugins}

    def warm(self, snapshot: Snapshot) -> Iterator[object]:
        """The warm-up steps of all plugins; those of one that raises end."""
        for name, points in self.plugins:
            if points.warm is not None:
                with suppress(PluginError):  # told to `on_fault`
                    steps = self._guard(name, "Warm", points.warm, snapshot)
                    while self._guard(name, "Warm", next, steps, self) is not self:
                        yield name

    # ---- gangs -------------------------------------------------------------------------------

    def kin(self, pod: PodInfo, snapshot: Snapshot) -> Hashable:
        """The key of the pod's gang; None if it is in none.

        Raises:
            PluginError: a plugin raised.
        """
        for name, _, ask in self._gangs:
            key = self._guard(name, "Gang", ask, pod, snapshot)
            if key is not None:
                return key
        return None

    def gang(self, pod: PodInfo, snapshot: Snapshot) -> tuple[str, Membership] | None:
        """The pod's gang and the first plugin that says so.

        Raises:
            PluginError: a plugin raised.
        """
        for name, ask, _ in self._gangs:
            found = self._guard(name, "Gang", ask, pod, snapshot)
            if found is not None:
                return name, found
        return None

    # ---- classes -----------------------------------------------------------------------------

    def class_of(self, pod: PodInfo, snapshot: Snapshot, *, whole: bool = True) -> PodClass:
        """The pod's class, brought up to the snapshot.

        Unless `whole`, it has no keys where PreFilter leaves one row.

        Raises:
            Unfit: a PreFilter rejected the pod.
            PluginError: a plugin raised.
        """
        found = self._classes.of(pod, snapshot)
        self._updater.update(found, pod, snapshot, whole=whole)
        return found

    # ---- choosing ----------------------------------------------------------------------------

    def choose(self, known: PodClass, snapshot: Snapshot) -> tuple[int, int, int]:
        """See `GroupedChoice.choose`, for a class that has one.

        Raises:
            PluginError: a plugin raised, or a score is outside 0..100.
        """
        assert known.grouped is not None
        try:
            return known.grouped.choose(known.keys, snapshot)
        except Exception as cause:
            known.forget()  # half-way
            names = [*[one.name for one in known.filters], *[one.name for one in known.scorers]]
            name = " ".join(dict.fromkeys(names))
            raise self._runner.fault(name, "Score", cause) from cause

    def candidates(self, known: PodClass, pod: PodInfo, snapshot: Snapshot) -> Candidates:
        """The rows of the feasible nodes, ascending.

        Raises:
            PluginError: a plugin raised.
        """
        only = known.only
        passed = known.keys.column >= 0 if only is None else np.ones(1, dtype=np.bool_)
        for filtering in known.filters:
            rows = slice(0, len(passed)) if only is None else only
            own = self._runner.mask(filtering, pod, snapshot, rows)
            if own is not None:
                passed &= own
        if only is not None:
            left, passed = only[passed], np.zeros(snapshot.nodes.size, dtype=np.bool_)
            passed[left] = True
        if len(snapshot.nominations) and passed.any():
            passed[self.trial(pod, snapshot).left_to_nominated(passed)] = False
        return np.flatnonzero(passed)

    def keys(
        self, known: PodClass, pod: PodInfo, snapshot: Snapshot, candidates: Candidates
    ) -> IntColumn:
        """(n,) sort keys of the candidates, wide scores and tiers included.

        Raises:
            PluginError: a plugin raised, or a score is outside 0..100.
        """
        keys = self.untiered(known, pod, snapshot, candidates)
        tier = best_tier([mask for _, mask in self.tiers(pod, snapshot, candidates)])
        if tier is not None:
            keys[~tier] = NOWHERE
        return keys

    def untiered(
        self, known: PodClass, pod: PodInfo, snapshot: Snapshot, candidates: Candidates
    ) -> IntColumn:
        """(n,) sort keys of the candidates by their scores alone.

        Raises:
            PluginError: a plugin raised, or a score is outside 0..100.
        """
        if known.keys.lookups and len(candidates) < known.keys.feasible:
            return self._fresh_keys(known, pod, snapshot, candidates)
        keys = known.keys.column[candidates]
        totals = np.zeros(len(candidates))
        for scoring in known.scorers:
            raw = self._runner.raw(scoring, pod, snapshot, candidates)
            if raw is not None:
                totals += self._runner.normalized(scoring, raw) * scoring.weight
        if known.scorers:
            keys += steps_of(totals)
        return keys

    def _fresh_keys(
        self, known: PodClass, pod: PodInfo, snapshot: Snapshot, candidates: Candidates
    ) -> IntColumn:
        """Keys for fewer nodes than the feasible ones of the class."""
        totals = np.full(len(candidates), -known.keys.base)
        for _, weight, _, normal in self.scores(pod, snapshot, candidates):
            totals += normal * weight
        return self._updater.keys_of(known.keys, snapshot, totals, candidates)

    def tiers(
        self, pod: PodInfo, snapshot: Snapshot, candidates: Candidates
    ) -> list[tuple[str, BoolColumn]]:
        """By plugin, the candidates that it puts before others whatever their scores."""
        return [
            (name, mask)
            for name, ask in self._tiers
            for mask in self._guard(name, "Tier", ask, pod, snapshot, candidates)
        ]

    # ---- without the memo --------------------------------------------------------------------

    def verdicts(self, pod: PodInfo, snapshot: Snapshot, rows: Candidates) -> BoolColumn:
        """Which of the rows can take the pod, nominated pods aside.

        Raises:
            PluginError: a plugin raised.
        """
        try:
            trial = self.trial(pod, snapshot)
        except Unfit:
            return np.zeros(len(rows), dtype=np.bool_)
        return trial.passes(rows, trial.filters, snapshot)

    def rejections(self, pod: PodInfo, snapshot: Snapshot) -> Rejections:
        """The nodes that are rejected, and why.

        Raises:
            PluginError: a plugin raised.
        """
        try:
            found = self.trial(pod, snapshot).rejections()
        except Unfit as unfit:
            return self.ended(unfit, snapshot)
        return found if self._view is None else self._view.told(found, snapshot)

    def ended(self, unfit: Unfit, snapshot: Snapshot) -> Rejections:
        """The rejections by a PreFilter that ended the cycle."""
        found = Rejections(unfit.fit_error.nodes, ended=unfit.fit_error)
        return found if self._view is None else self._view.told(found, snapshot)

    def unfit(self, known: PodClass, pod: PodInfo, snapshot: Snapshot) -> Rejections:
        """`rejections`, kept for the class until something changes that they depend on.

        Raises:
            PluginError: a plugin raised.
        """
        promises = snapshot.nominations
        alone = known.only is not None or (known.filters and known.grouped is None)
        if alone or promises.node_of(pod.uid):
            return self.rejections(pod, snapshot)
        told = [self._guard(name, "Filter", ask, pod, snapshot) for name, ask in self._told]
        kept: KeyColumn | PodClass = known.keys
        if known.filters or len(promises):  # answers by groups change with any row
            kept = known
            moves = snapshot.generation, snapshot.topology.version, promises.version
            told = [moves, pod.priority, *told]
        if kept.unfit is None or kept.told != told:
            kept.unfit, kept.told = self.rejections(pod, snapshot), told
        return kept.unfit

    def scores(
        self, pod: PodInfo, snapshot: Snapshot, candidates: Candidates
    ) -> list[tuple[str, float, Scores, Scores]]:
        """Of each plugin that scores: name, weight, raw and normalised scores of the candidates.

        Raises:
            PluginError: a plugin raised, or a normalised score of it is outside 0..100.
        """
        answers, runner = [], self._runner
        for scoring in runner.pre_score(pod, snapshot, []):
            raw = runner.raw(scoring, pod, snapshot, candidates)
            if raw is not None:
                raw = raw.copy()
                normal = runner.normalized(scoring, raw)
                answers.append((scoring.name, scoring.weight, raw, normal))
        return answers

    def post_filter_key(self, pod: PodInfo) -> Hashable:
        """Equal for pods of a class with the same PostFilter result; None: none is alike."""
        own = tuple([ask(pod) for ask in self._post_filter_keys])
        return None if UNSHARED in own else (pod.priority, pod.pod.spec.preemption_policy, own)

    def post_filter(
        self,
        pod: PodInfo,
        snapshot: Snapshot,
        rejections: Rejections,
        progress: SearchProgress,
    ) -> PostFilterResult:
        """Calls PostFilter in order: the first answer that is not Unschedulable, or all messages.

        Raises:
            PluginError: a plugin raised.
            UnfinishedError: a slice of `progress` is used up.
        """
        gang = self.gang(pod, snapshot)
        if progress.begin(self, rejections.memo):  # estimates are no answer for others
            rejections = replace(rejections, memo={})
        elif gang is not None:  # its mates do not go
            own = rejections.memo.setdefault(gang[1].key, {})
            rejections = replace(rejections, memo=own)
        mates = () if gang is None else gang[1].mates()

        def what_if(pod: PodInfo, snapshot: Snapshot) -> Trial:
            trial = self.trial(pod, snapshot, what_if=True)
            return replace(trial, progress=progress, mates=mates)

        found = NO_POST_FILTER
        messages: list[str] = []
        plugins = frozenset[str]()
        for name, ask in self._post_filters:
            said = self._guard(name, "PostFilter", ask, pod, snapshot, rejections, what_if)
            if said.status.code is not Code.UNSCHEDULABLE:
                return said
            messages += filter(None, (said.message,))
            plugins |= said.plugins
            if said.nominated is not None:
                found = said
        return replace(found, message=", ".join(messages), plugins=plugins)


NO_POST_FILTER: Final = PostFilterResult(unschedulable())


def _log_fault(fault: PluginError) -> None:
    log.error("%s", fault, exc_info=fault.__cause__)


class Frameworks:
    """The frameworks of a process, one a profile: which of them is asked about a pod.

    They share the queue, and with it the plugin that sorts it.
    """

    def __init__(self, frameworks: Sequence[Framework]) -> None:
        """At least one, each of another scheduler name, all with the same bundle."""
        self._first = frameworks[0]
        self._by_name = {one.profile.scheduler_name: one for one in frameworks}
        self.sorter, self.sort_key = self._first.sorter, self._first.sort_key
        """The plugin that sorts the queue, and the keys by which it does."""
        self.gates_volatile = any(one.gates_volatile for one in frameworks)
        """Whether PreEnqueue looks at more than the pod."""
        self.keys_volatile = any(one.keys_volatile for one in frameworks)
        """Whether `class_key` looks at more than the pod."""
        self.gangs = frozenset[str]().union(*[one.gangs for one in frameworks])
        """The plugins that know gangs."""

    def __iter__(self) -> Iterator[Framework]:
        """In the order of the profiles."""
        return iter(self._by_name.values())

    def of(self, pod: PodInfo) -> Framework:
        """The one that decides for the pod: by name, the first for a pod that names none."""
        return self._by_name.get(pod.pod.spec.scheduler_name, self._first)

    def hints(self) -> Mapping[str, Sequence[ClusterEventWithHint]]:
        """See `Framework.hints`; each speaks for the pods of its profile alone."""
        if len(self._by_name) == 1:
            return self._first.hints()
        found: dict[str, list[ClusterEventWithHint]] = {}
        for framework in self:
            for plugin, registered in framework.hints().items():
                found.setdefault(plugin, []).extend(
                    replace(one, hint=self._only(framework, one.hint)) for one in registered
                )
        return found

    def _only(self, framework: Framework, hint: HintFn | None) -> HintFn:
        if hint is never:
            return never

        def ask(pod: PodInfo, before: Seen, after: Seen, snapshot: Snapshot) -> QueueingHint:
            if self.of(pod) is not framework:
                return QueueingHint.SKIP
            return QueueingHint.QUEUE if hint is None else hint(pod, before, after, snapshot)

        return ask
