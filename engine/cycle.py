"""One scheduling cycle: pod x snapshot x framework -> Decision. A pure function.

It reads nothing else, waits for nothing and changes nothing, so that the same inputs give the same
decision: in the scheduler, in a simulation, in a replay.

Source: kubernetes pkg/scheduler/schedule_one.go, schedulePod. Deliberately different: every node is
looked at, and ties fall by a seeded permutation of the nodes instead of by chance.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.framework.decision import (
    Decision,
    Details,
    PluginScore,
    PostFilterResult,
    Rejections,
)
from engine.framework.podclass import FRACTION, TIE_BITS, PodClass, total_of
from engine.framework.podinfo import PodInfo
from engine.framework.runtime import (
    Candidates,
    Framework,
    PluginError,
    Unfit,
)
from engine.framework.snapshot import IntColumn, Snapshot
from engine.framework.status import Status
from engine.framework.trials import nominated_node


def decide(pod: PodInfo, snapshot: Snapshot, framework: Framework) -> Decision:
    """Chooses the node for the pod, or says why there is none. Never raises for a plugin's fault.

    Complexity: O(changed rows) and a search for the highest key for a class that is known and looks
    at rows alone; O(N) vectorised otherwise.
    """
    try:
        known = framework.known(pod, snapshot)
        if known.wide or framework.tiered or len(snapshot.nominations):
            by_groups = known.grouped and not framework.tiered and not len(snapshot.nominations)
            choose = _choose_by_groups if by_groups else _choose_widely
            return choose(pod, snapshot, framework, known)
        if not known.feasible:
            return _nowhere(pod, snapshot, framework, known)
        nominated = pod.pod.status.nominated_node_name
        if nominated:
            row = snapshot.nodes.row(nominated)
            if row >= 0 and known.cells[row] >= 0:
                # Preemption, or whoever nominated, made room there: taken without scoring.
                return _single(pod, snapshot, framework, row)
        row = int(known.column.argmax())
        if known.feasible == 1:
            # With one feasible node kube-scheduler does not score either.
            return _single(pod, snapshot, framework, row)
        if known.bad is not None:
            raise known.bad
        if known.whole:
            total = (known.cells[row] >> TIE_BITS) / FRACTION + known.base
        else:
            total = total_of(known, pod, snapshot, row)
    except Unfit as unfit:
        rejections = framework.ended(unfit, snapshot)
        return _unplaced(pod, snapshot, framework, rejections=rejections)
    except PluginError as fault:
        return _unplaced(pod, snapshot, framework, error=fault.status)
    return _decision(
        pod,
        snapshot,
        framework,
        row,
        known.feasible,
        total,
        lambda: _details(
            pod, snapshot, framework, row, np.flatnonzero(known.column >= 0), known.column
        ),
    )


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


def _choose_by_groups(
    pod: PodInfo, snapshot: Snapshot, framework: Framework, known: PodClass
) -> Decision:
    """The choice where a plugin looks further than a row, but tells few groups of rows apart."""
    keys, feasible = framework.grouped_keys(known, snapshot)
    if not feasible:
        return _nowhere(pod, snapshot, framework, known)
    nominated = snapshot.nodes.row(pod.pod.status.nominated_node_name)
    if nominated >= 0 and keys[nominated] >= 0:
        return _single(pod, snapshot, framework, nominated)
    row = int(keys.argmax())
    if feasible == 1:
        return _single(pod, snapshot, framework, row)
    if known.bad is not None:
        raise known.bad

    def work_out() -> Details:
        keys, _ = framework.grouped_keys(known, snapshot)
        candidates = np.flatnonzero(keys >= 0)
        return _details(pod, snapshot, framework, row, candidates, keys[candidates])

    total = int(keys[row] >> TIE_BITS) / FRACTION + known.base
    return _decision(pod, snapshot, framework, row, feasible, total, work_out)


def conclude(pod: PodInfo, snapshot: Snapshot, framework: Framework) -> Decision:
    """`decide`, and where no node fits, what is to be done about it. Never raises either."""
    decision = decide(pod, snapshot, framework)
    if decision.rejections is not None and decision.rejections.nodes and framework.rescues:
        try:
            decision.rescue = framework.post_filter(pod, snapshot, decision.rejections)
        except PluginError as fault:
            decision.rescue = PostFilterResult(fault.status, message=str(fault))
    return decision


def _choose_widely(
    pod: PodInfo, snapshot: Snapshot, framework: Framework, known: PodClass
) -> Decision:
    """The choice where a plugin looks further than a row in every cycle."""
    candidates = framework.candidates(known, pod, snapshot)
    if not len(candidates):
        return _nowhere(pod, snapshot, framework, known)
    nominated = snapshot.nodes.row(nominated_node(pod, snapshot))
    if nominated >= 0 and nominated in candidates:
        return _single(pod, snapshot, framework, nominated)
    if len(candidates) == 1:
        return _single(pod, snapshot, framework, int(candidates[0]))
    if known.bad is not None:
        raise known.bad
    keys = framework.keys(known, pod, snapshot, candidates)
    best = int(keys.argmax())
    row = int(candidates[best])
    return _decision(
        pod,
        snapshot,
        framework,
        row,
        len(candidates),
        int(keys[best] >> TIE_BITS) / FRACTION + known.base,
        lambda: _details(pod, snapshot, framework, row, candidates, keys),
    )


def _single(pod: PodInfo, snapshot: Snapshot, framework: Framework, row: int) -> Decision:
    """The only node there is to choose; scored only if somebody reads the scores."""
    only = np.array([row], dtype=np.intp)
    scores: tuple[PluginScore, ...] = ()
    if framework.wants_scores:
        scores = _scores_of(framework, pod, snapshot, only, 0)
    return Decision(
        pod=pod,
        generation=snapshot.generation,
        bundle=framework.bundle,
        evaluated=snapshot.nodes.count,
        node=snapshot.nodes.name(row),
        row=row,
        feasible=1,
        total=sum(one.normalized * one.weight for one in scores),
        work_out=lambda: Details(scores, 1, _rejected(framework, pod, snapshot)),
    )


def _nowhere(pod: PodInfo, snapshot: Snapshot, framework: Framework, known: PodClass) -> Decision:
    try:
        rejections = framework.unfit(known, pod, snapshot)
    except PluginError as fault:
        return _unplaced(pod, snapshot, framework, error=fault.status)
    return _unplaced(pod, snapshot, framework, rejections=rejections)


def _unplaced(
    pod: PodInfo,
    snapshot: Snapshot,
    framework: Framework,
    *,
    rejections: Rejections | None = None,
    error: Status | None = None,
) -> Decision:
    return Decision(
        pod=pod,
        generation=snapshot.generation,
        bundle=framework.bundle,
        evaluated=snapshot.nodes.count,
        fit_error=None if rejections is None else rejections.fit_error(),
        rejections=rejections,
        error=error,
    )


def _details(
    pod: PodInfo,
    snapshot: Snapshot,
    framework: Framework,
    row: int,
    candidates: Candidates,
    keys: IntColumn,
) -> Details:
    """What is worked out of a decision only when somebody asks."""
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
