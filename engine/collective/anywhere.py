"""Victims of a quota on any nodes: what is used too much is freed wherever it is.

A pod that its quotas hold back, and not (only) the nodes, needs use to fall, not room on one node.
First the nodes are tried as they are; then, one by one, with all their own pods that may go. What
is still too much is taken from other nodes, the first to go first; at last pods are given back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from dsl.collective import Evictions
from engine.collective.across import Rows, Several
from engine.collective.victims import Budget, Plans
from engine.framework.interface import Room, Trial

#: Nodes tried with their own pods gone, and pods that go for one pod, at most.
_MOST_NODES: Final = 16
_MOST_PODS: Final = 64


def anywhere(plans: Plans, budgets: Sequence[Budget], trial: Trial, rule: Evictions) -> Several:
    """Tries pods of any nodes, where no node alone helped.

    Args:
        plans: what the nodes one by one came to.
        budgets: disruption budgets.
        trial: the filters for the pod.
        rule: who else may go once some do.
    """
    search = Several(plans, budgets, trial)
    rooms = trial.rooms(plans.rows[:1]) if len(plans.rows) and rule.more is not None else None
    each = [] if rooms is None else [one for one in rooms.each if one.anywhere]
    if not each:
        return search
    few = np.count_nonzero(plans.there, axis=0)
    order = np.lexsort((plans.snapshot.nodes.tie_keys[plans.rows], -few))
    targets = [int(at) for at in order[:_MOST_NODES] if few[at]]
    for at in (None, *targets):
        own = np.empty(0, np.intp) if at is None else plans.table[plans.there[:, at], at][::-1]
        gone = _enough(own, plans, rule, each)
        if gone is None:
            continue
        open_ = search.open(plans.rows if at is None else plans.rows[at : at + 1], gone).tolist()
        if open_:
            # The most important first.
            search.keep(min(open_, key=plans.snapshot.nodes.name), gone[::-1].copy())
        if search.plans and at is None:
            break
    return search


def _enough(own: Rows, plans: Plans, rule: Evictions, rooms: Sequence[Room]) -> Rows | None:
    """These and as many others as bring use down, the first to go first; None: too few."""
    assert rule.more is not None
    more = rule.more(own.tolist())
    rows = np.concatenate((own, np.array(more[:_MOST_PODS], np.intp)))
    pods, count = plans.snapshot.pods, len(own)
    for room in rooms:
        short = int(room.used[0]) + room.need - int(room.limit[0])
        freed = np.cumsum(room.held_by(pods, rows))
        enough = int(np.searchsorted(freed, short)) + 1 if short > 0 else 0
        if enough > len(rows):
            return None
        count = max(count, enough)
    return rows[:count]
