"""DefaultPreemption: a pod that fits nowhere takes the place of pods of lower priority.

Returns the victims and the nominated node; evicts nobody. Until its victims' deletions are
carried out the pod is gated, so that it does not search again.

Source: kubernetes plugins/defaultpreemption and framework/preemption. Deliberately different: all
nodes are tried (`minCandidateNodesPercentage` and `minCandidateNodesAbsolute` do nothing), and of
equal nodes the first in the table is taken.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.collective.ranking import Ranking
from engine.collective.search import cheapest, outcomes_of
from engine.collective.victims import Budget, Hunt, Kinds, Plans, kind_of, plan, starts
from engine.framework.decision import Choices, FitError, PostFilterResult, Rank, Rejections
from engine.framework.effects import Evict
from engine.framework.events import Action, Resource, never
from engine.framework.interface import PluginArgs, Points, WhatIf
from engine.framework.opinion import LEFT_OUT
from engine.framework.snapshot import Snapshot
from engine.framework.status import Code, Status, unresolvable, unschedulable
from engine.framework.trials import Trial
from engine.objects import Pod
from engine.objects.workloads import PodDisruptionBudget
from engine.plugins.hints import on
from engine.pods.podinfo import CPU, MEMORY, PodInfo
from engine.pods.selectors import what_it_selects

NAME: Final = "DefaultPreemption"
DISRUPTION_TARGET: Final = "DisruptionTarget"
BY_SCHEDULER: Final = "PreemptionByScheduler"
_NEVER: Final = "not eligible due to preemptionPolicy=Never."
_TERMINATING: Final = "not eligible due to a terminating pod on the nominated node."
_NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
_WAITING: Final = unresolvable("waiting for the preemption for this pod to be finished")
_ABOVE_ZERO: Final = 1 << 31
"""Added to each priority, so that sums rank few pods of negative priority above many."""
RANKS: Final[Sequence[Rank]] = (
    lambda _, of: of["victims.pdb_violations"],
    lambda _, of: of["victims.max_priority"],
    lambda _, of: of["victims.sum_priority"] + of["victims.count"] * _ABOVE_ZERO,
    lambda _, of: of["victims.count"],
    lambda _, of: -np.nan_to_num(of["victims.latest_start"], nan=np.inf),
)
"""Fewest violated budgets, lowest highest priority, lowest sum of priorities, fewest pods, latest
start of the most important ones."""


class DefaultPreemptionArgs(PluginArgs, frozen=True):
    """`pluginConfig` of DefaultPreemption; both numbers are read and do nothing."""

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100

    def __post_init__(self) -> None:
        """Checks them as kube-scheduler does.

        Raises:
            ValueError: out of range.
        """
        percentage = self.min_candidate_nodes_percentage
        absolute = self.min_candidate_nodes_absolute
        if not 0 <= percentage <= 100:  # noqa: PLR2004 - per cent
            raise ValueError("minCandidateNodesPercentage: not in valid range [0, 100]")
        if absolute < 0:
            raise ValueError("minCandidateNodesAbsolute: not in valid range [0, inf)")
        if percentage == absolute == 0:
            raise ValueError(
                "minCandidateNodesPercentage: cannot be zero at the same time as"
                " minCandidateNodesAbsolute"
            )


class DefaultPreemption:
    """See the module."""

    def __init__(self, args: DefaultPreemptionArgs | None = None) -> None:
        self.args = args or DefaultPreemptionArgs()
        # Of higher priority, then longer there; one that has not started is the youngest.
        self._ranking = Ranking(lambda pods: (-pods.priority, starts(pods)))
        self._kinds = Kinds()
        self._budgets = Budgets()

    name: Final = NAME

    def points(self) -> Points:
        """What wakes the pod are the events of the plugins that rejected it."""
        return Points(
            events=(on(Resource.ASSIGNED_POD, Action.DELETE, never),),
            pre_enqueue=gate,
            post_filter=self._post_filter,
            warm=self._warm,
        )

    def _warm(self, snapshot: Snapshot) -> Iterator[object]:
        """Warm-up: a part of a column of all pods in each step."""
        pods = snapshot.pods
        yield np.unique(np.empty(0, np.intp))  # its first call imports for some 30 ms
        yield from pods.prepare(
            lambda: (
                pods.priority,
                starts(pods),
                *map(pods.request, (CPU, MEMORY)),
                pods.derived("kind", np.int64, 0, kind_of),
            )
        )
        self._ranking.sync(snapshot)

    def plan(self, pod: PodInfo, snapshot: Snapshot, rows: NDArray[np.intp], trial: Trial) -> Plans:
        """The victims on each of the nodes: pods of lower priority, the youngest first."""
        self._ranking.sync(snapshot)
        if self._kinds.outgrow(snapshot.pods):
            self._kinds = Kinds()
            self._ranking.forget("kind")
        may_go = snapshot.pods.priority < pod.priority
        may_go[list(trial.mates)] = False
        hunt = Hunt(may_go, self._ranking, self._kinds)
        return plan(snapshot, rows, hunt, self._budgets.of(snapshot), trial)

    def _post_filter(
        self, pod: PodInfo, snapshot: Snapshot, rejections: Rejections, what_if: WhatIf
    ) -> PostFilterResult:
        why_not = ineligible(pod, snapshot, rejections)
        if why_not:
            return PostFilterResult(unschedulable(why_not), message=f"preemption: {why_not}")
        # A class that nothing helps is rejected at once while nothing has changed.
        found = rejections.memo.get((NAME, pod.priority))
        if found is None:
            found = self._search(pod, snapshot, rejections, what_if)
            if found.nominated == "" and not len(snapshot.nominations):
                rejections.memo[NAME, pod.priority] = found
        assert isinstance(found, PostFilterResult)
        return found

    def _search(
        self, pod: PodInfo, snapshot: Snapshot, rejections: Rejections, what_if: WhatIf
    ) -> PostFilterResult:
        rows = potential_rows(snapshot, rejections)
        nodes = rejections.fit_error().nodes
        if not len(rows):
            return _hopeless(nodes, 0, {})
        if rejections.ended is not None:
            # A PreFilter's answer about all nodes is not asked again without some pods.
            return _hopeless(nodes, nodes, {rejections.ended.pre_filter_message: nodes})
        plans = self.plan(pod, snapshot, rows, what_if(pod, snapshot))
        best = best_of(plans).tolist()
        if best:
            return _found(pod, snapshot, plans, best[0])
        if plans.idle.any():
            words = "preemption: expected at least one victim pod on a node"
            return PostFilterResult(Status(Code.ERROR, (words,), NAME), message=words)
        return _hopeless(nodes, len(rows), plans.reasons)


def gate(pod: PodInfo, snapshot: Snapshot) -> Status:
    """Gates a pod while its victims are being evicted."""
    return _WAITING if snapshot.nominations.is_evicting(pod.uid) else Status.SUCCESS


def ineligible(pod: PodInfo, snapshot: Snapshot, rejections: Rejections) -> str:
    """Why the pod may not evict others now; empty if it may."""
    if pod.pod.spec.preemption_policy == "Never":
        return _NEVER
    row = snapshot.nodes.row(snapshot.nominations.node_of(pod.uid))
    if row < 0 or rejections.unresolvable(snapshot.nodes.size)[row]:
        return ""
    pods = snapshot.pods
    for one in pods.on(row).tolist():
        victim = pods.pod(one)
        if victim.priority < pod.priority and is_evicted(victim.pod):
            return _TERMINATING
    return ""


def is_evicted(pod: Pod) -> bool:
    """Whether it is being deleted because a scheduler evicted it."""
    if pod.metadata.deletion_timestamp is None:
        return False
    return any(
        (one.type, one.status, one.reason) == (DISRUPTION_TARGET, "True", BY_SCHEDULER)
        for one in pod.status.conditions or ()
    )


def potential_rows(snapshot: Snapshot, rejections: Rejections) -> NDArray[np.intp]:
    """The nodes that evicting pods could help on."""
    nodes = snapshot.nodes
    return np.flatnonzero(nodes.present & ~rejections.unresolvable(nodes.size))


def best_of(plans: Plans) -> NDArray[np.intp]:
    """The cheapest of the plans, equal by all that counts; the first is chosen."""
    return cheapest(RANKS, plans.rows, outcomes_of(plans), plans.helps)


def _found(pod: PodInfo, snapshot: Snapshot, plans: Plans, at: int) -> PostFilterResult:
    node = snapshot.nodes.name(int(plans.rows[at]))
    victims = plans.victims(at)
    scheduler = pod.pod.spec.scheduler_name
    words = f"{scheduler}: preempting to accommodate a higher priority pod"
    found = f"found a potential placement for pod on node {node}, preempting {len(victims)} victims"
    return PostFilterResult(
        Status.SUCCESS,
        nominated=node,
        evictions=tuple([Evict(one, pod, words) for one in victims]),
        clears=tuple(snapshot.nominations.behind(pod, node)),
        message=f"preemption: {found}",
        violations=int(plans.violations[at]),
        ranks=RANKS,
        choices=Choices(partial(_all_victims, plans), partial(_among, pod, plans)),
    )


def _all_victims(plans: Plans) -> Mapping[str, tuple[Sequence[PodInfo], int]]:
    nodes, violations = plans.snapshot.nodes, plans.violations
    return {
        nodes.name(int(plans.rows[at])): (plans.victims(at), int(violations[at]))
        for at in np.flatnonzero(plans.helps).tolist()
    }


def _among(pod: PodInfo, plans: Plans, agreed: Mapping[str, Collection[str]]) -> PostFilterResult:
    """See `Choices.among`; pods that this one may not evict stay."""
    snapshot = plans.snapshot
    for at in np.flatnonzero(plans.helps).tolist():
        uids = agreed.get(snapshot.nodes.name(int(plans.rows[at])), ())
        for rank in np.flatnonzero(plans.there[:, at]).tolist():
            plans.gone[rank, at] = snapshot.pods.pod(int(plans.table[rank, at])).uid in uids
    plans.helps &= plans.gone.any(axis=0)
    best = best_of(plans).tolist()
    if not best:
        return _hopeless(snapshot.nodes.count, len(plans.rows), {LEFT_OUT: len(plans.rows)})
    return _found(pod, snapshot, plans, best[0])


def _hopeless(nodes: int, asked: int, reasons: Mapping[str, int]) -> PostFilterResult:
    words = f"preemption: {hopeless_words(nodes, asked, reasons)}"
    return PostFilterResult(unschedulable(words), nominated="", message=words)


def hopeless_words(nodes: int, asked: int, reasons: Mapping[str, int]) -> str:
    """Why evictions help on none of the nodes, some of which were tried."""
    every = dict(reasons)
    if asked < nodes:
        every[_NOT_HELPFUL] = nodes - asked
    return FitError(nodes, every).message()


# ---- columns and budgets -------------------------------------------------------------------------


class Budgets:
    """The disruption budgets of a cluster; each is read once while it stays the same."""

    def __init__(self) -> None:
        self._seen: tuple[object, int] = None, -1
        self._read: dict[str, tuple[object, Budget]] = {}

    def of(self, snapshot: Snapshot) -> Sequence[Budget]:
        """All there are, by namespace and name."""
        there = snapshot.objects(PodDisruptionBudget.__name__)
        version = snapshot.objects_version(PodDisruptionBudget.__name__)
        if self._seen[0] is not there or self._seen[1] != version:
            self._seen, before, self._read = (there, version), self._read, {}
            for key, one in sorted(there.items()):
                known = before.get(key)
                self._read[key] = known if known and known[0] is one else (one, _budget(one))
        return [one for _, one in self._read.values()]


def _budget(one: PodDisruptionBudget) -> Budget:
    status, selector = one.status, what_it_selects(one.spec.selector)
    gone = frozenset(status.disrupted_pods or ())
    return Budget(one.metadata.namespace, selector, status.disruptions_allowed, gone)
