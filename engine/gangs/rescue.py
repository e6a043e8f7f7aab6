"""Who would have to go so that a gang can start: nobody is evicted for members that start nothing.

Each member that fits nowhere is asked about as any pod is, with the victims of those before it
gone and those before it in their place. With `within`, members have the nodes of one domain only:
domains are emptied in thought one after the other, and that is chosen whose victims cost least by
the keys of the rule that evicts. Whatever is tried is taken back before this returns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.basis import Basis, alike
from engine.choice import Chosen, Refused
from engine.collective.packing import Steps
from engine.collective.search import cheapest
from engine.collective.victims import started_at
from engine.framework.decision import PostFilterResult, Rejections
from engine.framework.runtime import PluginError, Unfit
from engine.framework.searchprogress import SLICE_RUNS, SearchProgress, UnfinishedError
from engine.framework.snapshot import BoolColumn, Snapshot
from engine.framework.status import unschedulable
from engine.gangplan import MOST_DOMAINS, Absent
from engine.gangs.holds import Turn
from engine.placement import Placement
from engine.plugins.default_preemption import RANKS
from engine.pods.podinfo import PodInfo
from engine.queue import QueuedPod

MOST_ASKED: Final = 400
"""Members asked about before the last domain is begun; milliseconds each on large clusters."""
_MOST_REFUSED: Final = 8
"""Different members without a way, beyond those that may be missing, that are searched for in full.

A leader that they need beside them may follow, so others get one slice each.
"""
_MOST_BRIEFLY: Final = 100
"""Those others, of all domains: some ten milliseconds each."""
Domain = NDArray[np.intp] | None
"""The rows that may be emptied; None is the whole cluster."""
_NOTHING: Final = PostFilterResult(unschedulable(), nominated="")


@dataclass(frozen=True, slots=True)
class Rescue:
    """What helps: for each member that evicting makes room for, where and whom.

    `there` are members that have room without, and where.
    """

    found: Sequence[tuple[QueuedPod, PostFilterResult]] = ()
    there: Sequence[tuple[PodInfo, str]] = ()


@dataclass(eq=False)
class Rescuers:
    """One search, for members that wait, of a gang of which none has a node by its turn.

    `absent` are the victims, for whoever lets others have a turn meanwhile. `only_wait`: where
    nothing is found, there are victims that are going already.
    """

    basis: Basis
    placement: Placement
    waits: Callable[[QueuedPod], bool]
    turn: Turn
    members: Sequence[QueuedPod]

    def __post_init__(self) -> None:
        self.absent = Absent(self.basis.cache)
        self.only_wait = False
        self._asked = 0
        self._refused = 0  # since the last one that has a place
        self._why = self._stuck = ""  # of the one asked last, and of the last without a way
        self._brief = 0  # may be asked about, in a domain, beyond those searched for in full
        self._there: list[Chosen] = []
        self._found: list[tuple[QueuedPod, PostFilterResult]] = []

    def rescue(self, domains: Sequence[Domain]) -> Steps[Rescue]:
        """What would let enough members start; nothing found: there is no way, or only to wait."""
        each: list[Rescue] = []
        domains = domains[:MOST_DOMAINS]
        for rows in domains:
            if self._asked >= MOST_ASKED:
                break
            self._brief = _MOST_BRIEFLY // len(domains)
            each.append((yield from self._in(rows)))
        helps = [one for one in each if one.found]
        return _cheapest(helps, self.basis.snapshot()) if helps else Rescue()

    def _in(self, rows: Domain) -> Steps[Rescue]:
        self._there, self._found, self._refused, self._stuck = [], [], 0, ""
        # The least important first: whatever is free is theirs, as they can evict the fewest.
        asked, left = list[QueuedPod](), sorted(self.members, key=lambda one: one.pod.priority)
        try:
            # Again while that gives some a place: others may need those beside them.
            while len(left) != len(asked) and not self._enough():
                asked, left = left, (yield from self._left(left, rows))
        finally:
            for queued, _ in reversed(self._found):
                self.basis.cache.forget(queued.pod.uid)
            for chosen in reversed(self._there):
                self.placement.give_back(chosen, tell_beside=None)
            self.absent.recall()
        there = self.turn.reserved + len(self._there) + len(self._found)
        if self._found and self._stuck and not self._enough() and there > self.turn.emptied:
            self.turn.emptied, self.turn.stuck = there, self._stuck
        if not self._enough() or not self._found:
            return Rescue()
        return Rescue(self._found, [(one.queued.pod, one.node) for one in self._there])

    def _enough(self) -> bool:
        return len(self._there) + len(self._found) >= self.turn.wanted

    def _left(self, members: Sequence[QueuedPod], rows: Domain) -> Steps[list[QueuedPod]]:
        """Who has no way to a place beside those before; one of each kind is asked about."""
        turn, left, hopeless = self.turn, list[QueuedPod](), set[Hashable]()
        spare = len(self.members) - turn.wanted
        for queued in members:
            yield
            if self._enough() or not self.waits(queued):
                continue
            pod = queued.pod
            kind = pod.pod.spec.scheduler_name, self._kind_of(pod)
            fully = self._refused <= spare + _MOST_REFUSED
            if kind in hopeless or not (fully or self._brief):
                left.append(queued)
                continue
            self._brief -= not fully
            result = yield from self._asked_for(queued, rows, fully=fully)
            if result is None:
                self._refused = 0
                continue
            if result.status.ok and result.nominated:
                for one in result.evictions:
                    self.absent.send(one.pod.uid)
                self.basis.cache.assume(pod, result.nominated)
                self._found.append((queued, result))
                self._refused = 0
                continue
            turn.rescuers |= result.plugins
            self.only_wait |= result.nominated is None and pod.uid in turn.promised
            hopeless.add(kind)
            self._refused += 1
            self._stuck = f"{pod.name}: {self._why}" if self._why else pod.name
            left.append(queued)
        return left

    def _kind_of(self, pod: PodInfo) -> Hashable:
        """What it shares with members that fare alike; its UID if no other stands for it."""
        try:
            key = alike(self.basis.framework_of(pod), pod, self.basis.snapshot())
            hash(key)
        except Exception:  # noqa: BLE001 - a plugin's: the pod is asked about by itself
            key = None
        return pod.uid if key is None else key

    def _asked_for(
        self, queued: QueuedPod, rows: Domain, *, fully: bool
    ) -> Steps[PostFilterResult | None]:
        """What would make room for a member; None: it has a node, and is in `_there` now."""
        pod = queued.pod
        answer: Chosen | Refused | None
        try:
            if rows is None:
                answer = self.placement.choose_member(queued)
                rejections = answer.decision.rejections
            else:
                answer, rejections = self._within(queued, rows)
        except PluginError:
            return _NOTHING  # told to `on_fault`; the gang does not fit
        if isinstance(answer, Chosen):
            self._there.append(answer)
            return None
        self._why = "" if answer is None else answer.why.rstrip(".")
        self._asked += 1
        progress = SearchProgress(SLICE_RUNS)
        while True:
            try:
                return self._rescued(pod, rejections, progress)
            except UnfinishedError:
                if not fully:
                    return _NOTHING
                yield

    def _rescued(
        self, pod: PodInfo, rejections: Rejections | None, progress: SearchProgress
    ) -> PostFilterResult:
        """What PostFilter says so that the pod fits.

        Raises:
            UnfinishedError: a slice of `progress` is used up.
        """
        framework = self.basis.framework_of(pod)
        if rejections is None or not rejections.nodes or not framework.has_post_filter:
            return _NOTHING
        snapshot = self.basis.snapshot()
        try:
            found = framework.post_filter(pod, snapshot, rejections, progress)
        except PluginError:
            return _NOTHING  # reported to `on_fault`; the gang does not fit
        return progress.renew(found, snapshot)

    def _within(
        self, queued: QueuedPod, rows: NDArray[np.intp]
    ) -> tuple[Chosen | Refused | None, Rejections]:
        """A node among these rows, or why they do not do; all others do not come into question."""
        pod, cache, snapshot = queued.pod, self.basis.cache, self.basis.snapshot()
        framework = self.basis.framework_of(pod)
        outside = np.ones(snapshot.nodes.size, np.bool_)
        outside[rows] = False
        try:
            known = framework.class_of(pod, snapshot)
            fit = framework.candidates(known, pod, snapshot)
            fit = fit[~outside[fit]]
            rejections = framework.rejections(pod, snapshot)
        except Unfit as unfit:
            return None, _but(framework.ended(unfit, snapshot), outside)
        answer: Chosen | Refused | None = None
        if len(fit):
            node = snapshot.nodes.name(int(fit[known.keys.column[fit].argmax()]))
            cache.nominate(pod, node)
            answer = self.placement.choose_member(queued)
            cache.withdraw(pod.uid)
            if isinstance(answer, Chosen) and answer.node != node:
                self.placement.give_back(answer, tell_beside=None)
                answer = None
        return answer, _but(rejections, outside)


def _but(rejections: Rejections, outside: BoolColumn) -> Rejections:
    """The same, and these rows do not come into question."""
    if rejections.left_out is not None:
        outside[rejections.left_out] = True
    return replace(rejections, left_out=np.flatnonzero(outside), memo={})


def _cheapest(each: Sequence[Rescue], snapshot: Snapshot) -> Rescue:
    """The domain whose victims together cost least, by the keys of the rule that evicts.

    A plugin that is not Berth's own has none (`plugins.out_of_tree`): by those of preemption.
    """
    outcomes = [_outcome([result for _, result in one.found]) for one in each]
    columns = {name: np.array([one[name] for one in outcomes]) for name in outcomes[0]}
    results = [one.found[0][1] for one in each]
    rows = np.array([snapshot.nodes.row(one.nominated or "") for one in results])
    every = np.ones(len(each), np.bool_)
    return each[int(cheapest(results[0].ranks or RANKS, rows, columns, every)[0])]


def _outcome(results: Sequence[PostFilterResult]) -> dict[str, float]:
    """What evicting all of them comes to; see `search.outcomes_of`."""
    victims = {one.pod.uid: one.pod for result in results for one in result.evictions}
    top = max((one.priority for one in victims.values()), default=-math.inf)
    starts = [started_at(one) for one in victims.values() if one.priority == top]
    return {
        "victims.pdb_violations": float(sum(result.violations for result in results)),
        "victims.max_priority": float(top),
        "victims.sum_priority": float(sum(one.priority for one in victims.values())),
        "victims.count": float(len(victims)),
        "victims.latest_start": min([one for one in starts if one == one], default=math.nan),
    }
