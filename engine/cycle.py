"""One scheduling cycle: pod x snapshot x framework -> Decision. A pure function.

It reads nothing else, waits for nothing and changes nothing, so that the same inputs give the same
decision: in the scheduler, in a simulation, in a replay.

Source: kubernetes pkg/scheduler/schedule_one.go, schedulePod. Deliberately different: every node is
looked at, and ties fall by a seeded permutation of the nodes instead of by chance.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.framework.decision import Decision, FitError, PluginScore
from engine.framework.interface import Scores
from engine.framework.podinfo import PodInfo
from engine.framework.runtime import Candidates, Framework, PluginError, PodClass, Unfit
from engine.framework.snapshot import Snapshot

NO_NODES: Final = "no nodes available to schedule pods"
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_SHIFT: Final = np.uint64(29)


def decide(pod: PodInfo, snapshot: Snapshot, framework: Framework) -> Decision:
    """Chooses the node for the pod, or says why there is none. Never raises for a plugin's fault.

    Complexity: O(changed rows) for the filters of a class that is known, O(N) vectorised otherwise
    and for the choice.
    """
    evaluated = int(np.count_nonzero(snapshot.nodes.present))
    try:
        known = framework.filter(pod, snapshot)
        candidates = framework.candidates(known)
        if not len(candidates):
            fit_error = framework.unfit(known, pod, snapshot)
            return _nowhere(pod, snapshot, framework, evaluated, fit_error)
        nominated = snapshot.nodes.row(pod.pod.status.nominated_node_name)
        if nominated >= 0 and known.feasible[nominated]:
            # Preemption, or whoever nominated, made room there: taken without scoring.
            candidates = np.array([nominated], dtype=np.intp)
        return _choose(pod, snapshot, framework, known, candidates, evaluated)
    except Unfit as unfit:
        return _nowhere(pod, snapshot, framework, evaluated, unfit.fit_error)
    except PluginError as fault:
        return Decision(
            pod, None, -1, snapshot.generation, framework.bundle, evaluated, 0, error=fault.status
        )


def _nowhere(
    pod: PodInfo, snapshot: Snapshot, framework: Framework, evaluated: int, fit_error: FitError
) -> Decision:
    return Decision(
        pod,
        None,
        -1,
        snapshot.generation,
        framework.bundle,
        evaluated,
        0,
        fit_error=fit_error,
    )


def _choose(
    pod: PodInfo,
    snapshot: Snapshot,
    framework: Framework,
    known: PodClass,
    candidates: Candidates,
    evaluated: int,
) -> Decision:
    total, ties, best = 0.0, 1, 0
    scores: tuple[PluginScore, ...] = ()
    # With one feasible node kube-scheduler does not score either.
    if len(candidates) > 1 or framework.wants_scores:
        answers = framework.scores(known, pod, snapshot, candidates)
        totals = _sum(answers, len(candidates))
        tier = framework.best_tier(pod, snapshot, candidates)
        if tier is not None:
            totals = np.where(tier, totals, -np.inf)
        best = int(totals.argmax())
        total = float(totals[best])
        is_best = totals == total
        ties = int(np.count_nonzero(is_best))
        if ties > 1:
            tied = np.flatnonzero(is_best)
            best = int(tied[_first(known, pod, snapshot, framework, candidates[tied])])
        scores = tuple(
            [
                PluginScore(name, float(raw[best]), float(normalized[best]), weight)
                for name, weight, raw, normalized in answers
            ]
        )
    rejected = framework.rejected(known, snapshot) if len(candidates) < evaluated else {}
    row = int(candidates[best])
    return Decision(
        pod,
        snapshot.nodes.name(row),
        row,
        snapshot.generation,
        framework.bundle,
        evaluated,
        len(candidates),
        total,
        ties,
        scores,
        rejected,
    )


def _sum(answers: list[tuple[str, float, Scores, Scores]], count: int) -> Scores:
    """The totals of the candidates, added in the order of the plugins."""
    if not answers:
        return np.zeros(count)
    _, weight, _, normalized = answers[0]
    totals = normalized * weight
    for _, weight, _, normalized in answers[1:]:
        totals += normalized if weight == 1 else normalized * weight
    return totals


def _first(
    known: PodClass, pod: PodInfo, snapshot: Snapshot, framework: Framework, rows: Candidates
) -> int:
    """Which of the tied rows comes first in the class's permutation of the nodes."""
    keys = snapshot.nodes.tie_keys[rows] ^ framework.tie_seed(known, pod, snapshot)
    keys = keys * _MIX
    return int((keys ^ (keys >> _SHIFT)).argmin())
