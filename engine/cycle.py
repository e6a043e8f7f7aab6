"""One scheduling cycle: pod x snapshot x framework -> Decision. A pure function.

It reads nothing else, waits for nothing and changes nothing, so that the same inputs give the same
decision: in the scheduler, in a simulation, in a replay.

Source: kubernetes pkg/scheduler/schedule_one.go, schedulePod. Deliberately different: every node is
looked at, and ties fall by a seeded permutation of the nodes instead of by chance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import msgspec
import numpy as np

from engine.framework.classes import PodClass
from engine.framework.decision import (
    Decision,
    PluginScore,
    PostFilterResult,
    Rejection,
    Rejections,
)
from engine.framework.keycolumn import FRACTION, NOWHERE, TIE_BITS, TIE_MASK
from engine.framework.opinion import LEFT_OUT, NOT_ASKED, Opinion
from engine.framework.opinion import NAME as EXTENDER
from engine.framework.runtime import Candidates, Framework, PluginError, Unfit
from engine.framework.searchprogress import SearchProgress
from engine.framework.snapshot import Snapshot
from engine.framework.status import Code, Status, unschedulable
from engine.pods.podinfo import PodInfo


def decide(
    pod: PodInfo, snapshot: Snapshot, framework: Framework, opinion: Opinion | None = None
) -> Decision:
    """Chooses the node for the pod, or says why there is none. Never raises for a plugin's fault.

    `opinion` is what extenders said of the pod: it bounds the nodes and adds to their scores.

    Complexity: O(changed rows) and a search for the highest key for a class that is known and looks
    at rows alone; O(N) vectorised otherwise.
    """
    cycle = _Cycle(pod, snapshot, framework, opinion)
    if opinion is not None and opinion.error:
        return cycle.unplaced(error=Status(Code.ERROR, (opinion.error,), EXTENDER))
    try:
        known = framework.class_of(pod, snapshot, whole=False)
        widely = opinion is not None or framework.tiered or len(snapshot.nominations)
        if widely or (known.wide and not known.grouped) or known.only is not None:
            return cycle.choose_widely(known)
        return cycle.choose(known)
    except Unfit as unfit:
        return cycle.unplaced(framework.ended(unfit, snapshot))
    except PluginError as fault:
        return cycle.unplaced(error=fault.status)


def conclude(
    pod: PodInfo,
    snapshot: Snapshot,
    framework: Framework,
    opinion: Opinion | None = None,
    progress: SearchProgress | None = None,
) -> Decision:
    """`decide`, and PostFilter if no node fits.

    Raises:
        UnfinishedError: a slice of `progress` is used up.
    """
    decision = decide(pod, snapshot, framework, opinion)
    decision.opinion = opinion
    rejections = decision.rejections
    # Nobody is evicted while there is a node that extenders have to be asked about first.
    if (
        rejections is not None
        and rejections.nodes
        and framework.has_post_filter
        and not any(NOT_ASKED in one.status.reasons for one in rejections.each)
    ):
        progress = progress or SearchProgress()
        try:
            decision.rescue = framework.post_filter(pod, snapshot, rejections, progress)
        except PluginError as fault:
            decision.rescue = PostFilterResult(fault.status, message=str(fault))
        if opinion is not None and decision.rescue.nominated:
            decision.rescue = _agreed(decision.rescue, opinion)
        given = opinion is not None and opinion.victims is not None
        decision.rescue = progress.renew(decision.rescue, snapshot, given=given)
    return decision


def feasible(pod: PodInfo, snapshot: Snapshot, framework: Framework) -> list[str]:
    """The names of the feasible nodes, which extenders are asked about.

    Raises:
        Unfit, PluginError: where `decide` would return them.
    """
    rows = framework.candidates(framework.class_of(pod, snapshot), pod, snapshot)
    return [snapshot.nodes.name(row) for row in rows.tolist()]


def _agreed(rescue: PostFilterResult, opinion: Opinion) -> PostFilterResult:
    """The result that extenders leave of a preemption, if they were asked about the victims."""
    if opinion.victims_error:
        status = Status(Code.ERROR, (opinion.victims_error,), EXTENDER)
        return PostFilterResult(status, message=f"preemption: {opinion.victims_error}")
    if opinion.victims is None or rescue.nominated is None:
        return rescue
    if rescue.choices is not None:
        return rescue.choices.among({node: set(uids) for node, uids in opinion.victims.items()})
    agreed = opinion.victims.get(rescue.nominated)
    if agreed is not None and {*agreed} == {one.pod.uid for one in rescue.evictions}:
        return rescue
    return PostFilterResult(
        unschedulable(LEFT_OUT), nominated="", message=f"preemption: {LEFT_OUT}"
    )


class _Cycle(msgspec.Struct, eq=False):
    """One pod on one snapshot; see `decide`."""

    pod: PodInfo
    snapshot: Snapshot
    framework: Framework
    opinion: Opinion | None

    def choose(self, known: PodClass) -> Decision:
        """The choice by the keys of the class, and by the answers for groups of rows."""
        keys, choice, snapshot = known.keys, known.grouped, self.snapshot
        row, key, feasible = -1, NOWHERE, keys.feasible
        if choice is not None:
            row, key, feasible = self.framework.choose(known, snapshot)
        elif feasible:
            row = int(keys.column.argmax())
            key = keys.cells[row]
        if not feasible:
            return self.unplaced(self.framework.unfit(known, self.pod, snapshot))
        if feasible == 1:
            # With one feasible node kube-scheduler does not score either.
            return self.single(row)
        if keys.bad is not None:
            raise keys.bad
        total = (key >> TIE_BITS) / FRACTION + keys.base
        among = partial(self.framework.candidates, known, self.pod, snapshot)
        return self.placed(row, feasible, total, among)

    def choose_widely(self, known: PodClass) -> Decision:
        """The choice where a plugin or an extender looks further than a row in every cycle."""
        pod, snapshot, framework, opinion = self.pod, self.snapshot, self.framework, self.opinion
        promises, node = snapshot.nominations, snapshot.nominations.node_of(pod.uid)
        apart = opinion is not None or known.only is not None or known.filters
        own = snapshot.nodes.row(node)
        if own >= 0 and not apart and known.keys.cells[own] >= 0 and not promises.ahead(pod, node):
            return self.single(own)
        candidates = mine = framework.candidates(known, pod, snapshot)
        if opinion is not None:
            candidates = mine[opinion.passes(snapshot.nodes)[mine]]
        if not len(candidates):
            rejections = framework.unfit(known, pod, snapshot)
            if opinion is not None:
                told = opinion.reasons(snapshot.nodes, mine.tolist())
                theirs = [Rejection(EXTENDER, status, rows) for status, rows in told]
                rejections = replace(rejections, each=(*rejections.each, *theirs), memo={})
            return self.unplaced(rejections)
        if own in candidates or len(candidates) == 1:
            # Preemption, or whoever nominated, made room there: taken without scoring.
            return self.single(own if own in candidates else int(candidates[0]))
        if known.keys.bad is not None:
            raise known.keys.bad
        keys = framework.keys(known, pod, snapshot, candidates)
        steps, best = keys >> TIE_BITS, int(keys.argmax())
        if opinion is not None:
            steps += opinion.points(snapshot.nodes, candidates) * FRACTION
            steps[keys == NOWHERE] = NOWHERE
            best = int(np.lexsort((keys & TIE_MASK, steps))[-1])
        row = int(candidates[best])
        total = int(steps[best]) / FRACTION + known.keys.base
        return self.placed(row, len(candidates), total, lambda: candidates)

    def single(self, row: int) -> Decision:
        """The only candidate; scored only if a plugin reads the scores."""
        decision = self.placed(row, 1, 0.0, lambda: np.array([row], dtype=np.intp))
        decision.total = sum(one.normalized * one.weight for one in decision.scores)
        return decision

    def placed(
        self, row: int, feasible: int, total: float, among: Callable[[], Candidates]
    ) -> Decision:
        """The decision for a node, which is one of the candidates."""
        snapshot, framework = self.snapshot, self.framework
        return Decision(
            self.pod,
            snapshot.generation,
            framework.bundle,
            snapshot.nodes.count,
            snapshot.nodes.name(row),
            row,
            feasible,
            total,
            scores=self.scores(row, among()) if framework.wants_scores else (),
        )

    def scores(self, row: int, candidates: Candidates) -> tuple[PluginScore, ...]:
        """What each plugin gave one of the candidates."""
        at = int(np.searchsorted(candidates, row))
        each = self.framework.scores(self.pod, self.snapshot, candidates)
        return tuple([PluginScore(n, float(raw[at]), float(to[at]), w) for n, w, raw, to in each])

    def unplaced(
        self, rejections: Rejections | None = None, error: Status | None = None
    ) -> Decision:
        """The decision for no node."""
        snapshot = self.snapshot
        about = self.pod, snapshot.generation, self.framework.bundle, snapshot.nodes.count
        fit_error = None if rejections is None else rejections.fit_error()
        return Decision(*about, fit_error=fit_error, rejections=rejections, error=error)
