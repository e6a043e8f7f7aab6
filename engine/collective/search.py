"""Whom to evict for a pod as a rule says: the search, and the choice by the rule's keys.

Node by node first (`victims.plan`). Where that helps on no node and the rule says `across`, the
pods of two nodes at once, then of three, up to four; for a quota pods of any nodes. What is tried
and in which order follows from the snapshot alone: the same snapshot gives the same victims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from dsl.collective import Evictions
from engine.collective.across import Several
from engine.collective.ranking import Ranking
from engine.collective.victims import BEYOND, Budget, Hunt, Kinds, Plans, plan, starts
from engine.framework.decision import Rank
from engine.framework.snapshot import BoolColumn, Snapshot
from engine.framework.trials import Trial
from engine.pods.podinfo import PodInfo

#: Dry runs that one search makes at most; a node, or a set of nodes, that was begun is finished.
MOST_RUNS: Final = 1_000
#: So many that may go are found and ranked in the time of a dry run, which each slice does anew.
_PODS_A_RUN: Final = 1_000
_NOT_ALL: Final = "Not all sets of nodes were tried"
_LOWEST: Final = np.iinfo(np.int64).min


class Preemption(Struct, frozen=True):
    """What a search for victims found.

    Attributes:
        row: the node row to nominate; -1 where nothing helps.
        victims: the pods to evict.
        violations: how many of them a disruption budget protects.
        reasons: why nothing helps, by nodes, and whether not all was tried.
    """

    row: int = -1
    victims: tuple[PodInfo, ...] = ()
    violations: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)


def search(
    evictions: Evictions,
    snapshot: Snapshot,
    trial: Trial,
    *,
    rows: NDArray[np.intp],
    budgets: Sequence[Budget] = (),
    kinds: Kinds | None = None,
) -> Preemption:
    """Finds the cheapest victims.

    Args:
        evictions: who may go, and what that costs.
        snapshot: the cluster as it is.
        trial: the filters for the pod.
        rows: the nodes that evictions could help on.
        budgets: disruption budgets.
        kinds: of pods, as far as they are known.

    Raises:
        UnfinishedError: as `SearchProgress` has it.

    Complexity: that of `victims.plan`, and at most `MOST_RUNS` dry runs and those of one more node.
    """
    ordered = np.array(evictions.ordered, np.intp)
    ordered = ordered[~np.isin(ordered, trial.mates)]
    may_go = np.zeros(snapshot.pods.size, np.bool_)
    may_go[ordered] = True
    hunt = Hunt(may_go, Ranking.given(snapshot, ordered[::-1]), kinds or Kinds())
    trial.progress.spend(-len(evictions.ordered) // _PODS_A_RUN)
    plans = plan(snapshot, rows, hunt, budgets, trial, most=MOST_RUNS, limit=evictions.limit)
    one = _cheapest(evictions, [plans])
    if one is not None:
        return one
    reasons = dict(plans.reasons)
    if plans.left_out:
        reasons[f"not tried within {MOST_RUNS} dry runs"] = plans.left_out
    if not evictions.ordered or (evictions.across <= 1 and evictions.more is None):
        return Preemption(reasons=reasons)
    found = Several(plans, hunt, budgets, trial, evictions)
    if evictions.more is not None:
        found.anywhere()
    else:
        found.across(MOST_RUNS)
    if found.cut_short:
        reasons[_NOT_ALL] = len(rows)
    if found.beyond:
        reasons[BEYOND.format(evictions.limit)] = len(rows)
    return _cheapest(evictions, found.plans) or Preemption(reasons=reasons)


def _cheapest(evictions: Evictions, several: Sequence[Plans]) -> Preemption | None:
    """Of all nodes that help the first by the rule's keys."""
    if not any(plans.helps.any() for plans in several):
        return None
    outcomes = [outcomes_of(plans) for plans in several]
    together = {name: np.concatenate([one[name] for one in outcomes]) for name in outcomes[0]}
    rows = np.concatenate([plans.rows for plans in several])
    helps = np.concatenate([plans.helps for plans in several])
    best = int(cheapest(evictions.ranks, rows, together, helps)[0])
    for plans in several:
        if best < len(plans.rows):
            break
        best -= len(plans.rows)
    victims, violations = tuple(plans.victims(best)), int(plans.violations[best])
    return Preemption(int(plans.rows[best]), victims, violations)


def cheapest(
    ranks: Sequence[Rank],
    rows: NDArray[np.intp],
    outcomes: Mapping[str, NDArray[Any]],
    helps: BoolColumn,
) -> NDArray[np.intp]:
    """Of the nodes where evicting helps, with what that comes to, the first by the keys."""
    left = np.flatnonzero(helps)
    for rank in ranks:
        if len(left) <= 1:
            break
        own = rank(rows, outcomes)[left]
        left = left[own == own.min()]
    return left


def outcomes_of(plans: Plans) -> dict[str, NDArray[Any]]:
    """(C,) what would be evicted from each node, as the fields `victims.*` of the language."""
    gone = plans.gone
    priority = plans.values("priority", lambda pods, rows: pods.priority[rows])
    # Who stays is less important than anybody who goes.
    highest = np.where(gone, priority, _LOWEST).max(axis=0, initial=_LOWEST)
    # The earliest start among the most important ones: the later, the less is lost.
    started = plans.values("start", lambda pods, rows: starts(pods)[rows])
    started = np.where(gone & (priority == highest), started, np.nan)
    return {
        "victims.pdb_violations": plans.violations.astype(np.float64),
        "victims.max_priority": highest.astype(np.float64),
        "victims.sum_priority": (priority * gone).sum(axis=0).astype(np.float64),
        "victims.count": np.count_nonzero(gone, axis=0).astype(np.float64),
        "victims.latest_start": np.fmin.reduce(started, axis=0, initial=np.nan),
    }
