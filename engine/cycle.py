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

import numpy as np

from engine.framework.classes import PodClass
from engine.framework.decision import (
    Decision,
    Details,
    PluginScore,
    PostFilterResult,
    Rejection,
    Rejections,
)
from engine.framework.groupedchoice import GroupedChoice
from engine.framework.keycolumn import FRACTION, NOWHERE
from engine.framework.opinion import LEFT_OUT, SCALE, Opinion
from engine.framework.opinion import NAME as EXTENDER
from engine.framework.runtime import Candidates, Framework, PluginError, Unfit
from engine.framework.searchprogress import SearchProgress
from engine.framework.snapshot import IntColumn, Snapshot
from engine.framework.status import Code, Status, unschedulable
from engine.framework.ties import TIE_BITS, TIE_MASK
from engine.pods.podinfo import PodInfo


def decide(
    pod: PodInfo, snapshot: Snapshot, framework: Framework, opinion: Opinion | None = None
) -> Decision:
    """Chooses the node for the pod, or says why there is none. Never raises for a plugin's fault.

    `opinion` is what extenders said of the pod: it bounds the nodes and adds to their scores.

    Complexity: O(changed rows) and a search for the highest key for a class that is known and looks
    at rows alone; O(N) vectorised otherwise.
    """
    if opinion is not None and opinion.error:
        status = Status(Code.ERROR, (opinion.error,), EXTENDER)
        return _unplaced(pod, snapshot, framework, error=status)
    try:
        known = framework.class_of(pod, snapshot)
        widely = opinion is not None or framework.tiered or len(snapshot.nominations)
        if widely or (known.wide and not known.grouped):
            return _choose_widely(pod, snapshot, framework, known, opinion)
        return _choose(pod, snapshot, framework, known)
    except Unfit as unfit:
        rejections = framework.ended(unfit, snapshot)
        return _unplaced(pod, snapshot, framework, rejections=rejections)
    except PluginError as fault:
        return _unplaced(pod, snapshot, framework, error=fault.status)


def _choose(pod: PodInfo, snapshot: Snapshot, framework: Framework, known: PodClass) -> Decision:
    """The choice by the keys of the class, and by the answers for groups of rows."""
    keys, choice = known.keys, known.grouped
    row, key, feasible = -1, NOWHERE, keys.feasible
    if choice is not None:
        row, key, feasible = framework.choose(known, snapshot)
    elif feasible:
        row = int(keys.column.argmax())
        key = keys.cells[row]
    if not feasible:
        rejections = framework.unfit(known, pod, snapshot)
        return _unplaced(pod, snapshot, framework, rejections=rejections)
    if feasible == 1:
        # With one feasible node kube-scheduler does not score either.
        return _single(pod, snapshot, framework, row)
    if keys.bad is not None:
        raise keys.bad
    total = (key >> TIE_BITS) / FRACTION + keys.base
    work_out = partial(_details, pod, snapshot, framework, row, keys.column, choice)
    return _decision(pod, snapshot, framework, row, feasible, total, work_out)


def _decision(
    pod: PodInfo,
    snapshot: Snapshot,
    framework: Framework,
    row: int,
    feasible: int,
    total: float,
    work_out: Callable[[], Details],
) -> Decision:
    decision = Decision(
        pod,
        snapshot.generation,
        framework.bundle,
        snapshot.nodes.count,
        snapshot.nodes.name(row),
        row,
        feasible,
        total,
        work_out=work_out,
    )
    if framework.wants_scores:
        _ = decision.details
    return decision


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
    if decision.rejections is not None and decision.rejections.nodes and framework.has_post_filter:
        progress = progress or SearchProgress()
        try:
            decision.rescue = framework.post_filter(pod, snapshot, decision.rejections, progress)
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


def _given(opinion: Opinion, snapshot: Snapshot, row: int) -> list[PluginScore]:
    """The extenders' scores of the node."""
    name = snapshot.nodes.name(row)
    return [
        PluginScore(one.extender, score, score * SCALE, one.weight)
        for one in opinion.scores
        if (score := one.scores.get(name)) is not None
    ]


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


def _choose_widely(
    pod: PodInfo,
    snapshot: Snapshot,
    framework: Framework,
    known: PodClass,
    opinion: Opinion | None,
) -> Decision:
    """The choice where a plugin or an extender looks further than a row in every cycle."""
    promises, node = snapshot.nominations, snapshot.nominations.node_of(pod.uid)
    own, apart = snapshot.nodes.row(node), opinion is not None or known.filters
    if own >= 0 and not apart and known.keys.cells[own] >= 0 and not promises.ahead(pod, node):
        return _single(pod, snapshot, framework, own)
    candidates = mine = framework.candidates(known, pod, snapshot)
    if opinion is not None:
        candidates = mine[opinion.passes(snapshot.nodes)[mine]]
    if not len(candidates):
        rejections = framework.unfit(known, pod, snapshot)
        if opinion is not None:
            told = opinion.reasons(snapshot.nodes, mine.tolist())
            theirs = [Rejection(EXTENDER, status, rows) for status, rows in told]
            rejections = replace(rejections, each=(*rejections.each, *theirs), memo={})
        return _unplaced(pod, snapshot, framework, rejections=rejections)
    if own in candidates or len(candidates) == 1:
        # Preemption, or whoever nominated, made room there: taken without scoring.
        row = own if own in candidates else int(candidates[0])
        return _single(pod, snapshot, framework, row)
    if known.keys.bad is not None:
        raise known.keys.bad
    keys = framework.keys(known, pod, snapshot, candidates)
    steps, best = keys >> TIE_BITS, int(keys.argmax())
    if opinion is not None:
        steps += opinion.points(snapshot.nodes, candidates) * FRACTION
        steps[keys == NOWHERE] = NOWHERE
        best = int(np.lexsort((keys & TIE_MASK, steps))[-1])
    row = int(candidates[best])

    def work_out() -> Details:
        found = _details(pod, snapshot, framework, row, keys, candidates=candidates)
        if opinion is None:
            return found
        ties = int(np.count_nonzero(steps == steps[best]))
        return replace(found, ties=ties, scores=(*found.scores, *_given(opinion, snapshot, row)))

    total = int(steps[best]) / FRACTION + known.keys.base
    return _decision(pod, snapshot, framework, row, len(candidates), total, work_out)


def _single(pod: PodInfo, snapshot: Snapshot, framework: Framework, row: int) -> Decision:
    """The only candidate; scored only if a plugin reads the scores."""
    only = np.array([row], dtype=np.intp)
    scores: tuple[PluginScore, ...] = ()
    if framework.wants_scores:
        scores = _scores_of(framework, pod, snapshot, only, 0)
    total = sum(one.normalized * one.weight for one in scores)

    def work_out() -> Details:
        return Details(scores, 1, _rejected(framework, pod, snapshot))

    return _decision(pod, snapshot, framework, row, 1, total, work_out)


def _unplaced(
    pod: PodInfo,
    snapshot: Snapshot,
    framework: Framework,
    *,
    rejections: Rejections | None = None,
    error: Status | None = None,
) -> Decision:
    about = pod, snapshot.generation, framework.bundle, snapshot.nodes.count
    fit_error = None if rejections is None else rejections.fit_error()
    return Decision(*about, fit_error=fit_error, rejections=rejections, error=error)


def _details(
    pod: PodInfo,
    snapshot: Snapshot,
    framework: Framework,
    row: int,
    keys: IntColumn,
    choice: GroupedChoice | None = None,
    candidates: Candidates | None = None,
) -> Details:
    """The details of a decision; `keys` are those of all rows, or of the candidates."""
    if choice is not None:
        keys = choice.every(keys)
    if candidates is None:
        candidates = np.flatnonzero(keys >= 0)
    scores = _scores_of(framework, pod, snapshot, candidates, int(np.searchsorted(candidates, row)))
    best = int(keys.max()) >> TIE_BITS
    ties = int(np.count_nonzero(keys >> TIE_BITS == best))
    rejected = (
        {} if len(candidates) == snapshot.nodes.count else _rejected(framework, pod, snapshot)
    )
    return Details(scores, ties, rejected)


def _scores_of(
    framework: Framework, pod: PodInfo, snapshot: Snapshot, candidates: Candidates, at: int
) -> tuple[PluginScore, ...]:
    return tuple(
        [
            PluginScore(name, float(raw[at]), float(normal[at]), weight)
            for name, weight, raw, normal in framework.scores(pod, snapshot, candidates)
        ]
    )


def _rejected(framework: Framework, pod: PodInfo, snapshot: Snapshot) -> dict[str, int]:
    found = framework.rejections(pod, snapshot).by_plugin()
    return {plugin: len(rows) for plugin, rows in found.items()}
