"""Victims of a quota on any nodes: what is used too much is freed wherever it is.

A pod that its quotas hold back, and not (only) the nodes, needs use to fall, not room on one node.
First the nodes are tried as they are; then, one by one, with all their own pods that may go. What
is still too much is taken from other nodes, the first to go first; at last pods are given back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dsl.collective import Evictions
from engine.collective.across import Across
from engine.collective.victims import Budget, Hunt, Plans, Together, protect
from engine.framework.interface import Room, Stand, Trial

#: Nodes tried with their own pods gone, and pods that go for one pod, at most.
_MOST_NODES: Final = 16
_MOST_PODS: Final = 64
Rows = NDArray[np.intp]


def anywhere(
    plans: Plans, hunt: Hunt, budgets: Sequence[Budget], trial: Trial, rule: Evictions
) -> Across:
    """Tries pods of any nodes, where no node alone helped.

    Args:
        plans: what the nodes one by one came to.
        hunt: who may go.
        budgets: disruption budgets.
        trial: the filters for the pod.
        rule: who else may go once some do.
    """
    found = Across()
    rooms = trial.rooms(plans.rows[:1]) if len(plans.rows) and rule.more is not None else None
    each = [] if rooms is None else [one for one in rooms.each if one.anywhere]
    if not each:
        return found
    search = _Search(plans, hunt, budgets, trial, rule, each)
    few = np.count_nonzero(plans.there, axis=0)
    order = np.lexsort((plans.snapshot.nodes.tie_keys[plans.rows], -few))
    targets = [int(at) for at in order[:_MOST_NODES] if few[at]]
    for at in (None, *targets):
        plan = search.tried(at)
        if plan is not None:
            found.plans.append(plan)
        if found.plans and at is None:
            break
    found.runs = search.runs
    return found


class _Search:
    """One search."""

    def __init__(
        self,
        plans: Plans,
        hunt: Hunt,
        budgets: Sequence[Budget],
        trial: Trial,
        rule: Evictions,
        rooms: Sequence[Room],
    ) -> None:
        self.runs = 0
        self._plans = plans
        self._hunt = hunt
        self._budgets = budgets
        self._trial = trial
        self._rule = rule
        self._rooms = rooms

    def tried(self, at: int | None) -> Plans | None:
        """The pods that go so that the pod fits on a node whose own go; None: on any as it is."""
        plans, snapshot = self._plans, self._plans.snapshot
        own = np.empty(0, np.intp)
        if at is not None:
            own = plans.table[plans.there[:, at], at][::-1]
        rows = self._enough(own)
        if rows is None:
            return None
        row = int(plans.rows[0 if at is None else at])
        if at is None:
            stand = self._without(row, rows)
            self.runs += 1
            open_ = plans.rows[stand.passes(plans.rows)]
            if not len(open_):
                return None
            row = min(open_.tolist(), key=snapshot.nodes.name)
        # The most important first.
        plan = Together(snapshot, row, rows[::-1].copy(), self._hunt.ranking)
        protect(plan, self._budgets)
        return self._given_back(plan, row)

    def _enough(self, own: Rows) -> Rows | None:
        """These and as many others as bring use down, the first to go first; None: too few."""
        assert self._rule.more is not None
        more = self._rule.more(own.tolist())
        rows = np.concatenate((own, np.array(more[:_MOST_PODS], np.intp)))
        pods, count = self._plans.snapshot.pods, len(own)
        for room in self._rooms:
            short = int(room.used[0]) + room.need - int(room.limit[0])
            freed = np.cumsum(room.held_by(pods, rows))
            enough = int(np.searchsorted(freed, short)) + 1 if short > 0 else 0
            if enough > len(rows):
                return None
            count = max(count, enough)
        return rows[:count]

    def _without(self, row: int, rows: Rows) -> Stand:
        stand, pods = self._trial.at(row), self._plans.snapshot.pods
        for one in rows.tolist():
            stand.move([pods.pod(one)], -1, int(pods.node[one]))
        return stand

    def _given_back(self, plan: Plans, row: int) -> Plans | None:
        pods, rows = plan.snapshot.pods, plan.table[:, 0]
        stand = self._without(row, rows)
        self.runs += 1
        if not stand.fits():
            return None
        for rank in sorted(range(len(rows)), key=lambda one: (not plan.protected[one, 0], one)):
            pod, node = pods.pod(int(rows[rank])), int(pods.node[rows[rank]])
            stand.move([pod], 1, node)
            self.runs += 1
            if stand.fits():
                plan.gone[rank, 0] = False
            else:
                stand.move([pod], -1, node)
        plan.helps[0] = plan.gone.any()
        return plan if plan.helps[0] else None
