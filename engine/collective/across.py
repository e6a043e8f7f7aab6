"""Victims on several nodes at once, for a pod whose constraints span nodes.

Of the nodes whose pods may go the most promising ones are looked at: those with pods that such a
constraint is about first, then those with few pods. All their pods are thought away; where the pod
does not fit even then, nothing is searched. Then one node is tried, two, three, as many as the rule
allows; of what suffices pods are given back as in `victims`.

Source: kubernetes-sigs/scheduler-plugins pkg/crossnodepreemption at 903da7df, which tries all sets
of pods; what differs: sets of nodes, few before many, and a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from dsl.collective import Evictions
from engine.collective.victims import Budget, Hunt, Plans, Together, concerned_kinds, protect
from engine.framework.interface import Stand, Trial
from engine.framework.snapshot import BoolColumn

#: Nodes from which pods may leave at once are looked for among so many.
MOST_NODES: Final = 64
_PLACE: Final = "kind"


class Across(Struct):
    """What sets of nodes come to: the cheapest is chosen among `plans`, of one node to go to each.

    `runs` are the dry runs that it took; `cut_short` says that their bound ended it, or that of
    the nodes looked at.
    """

    plans: list[Plans] = field(default_factory=list)
    runs: int = 0
    cut_short: bool = False


def across(
    plans: Plans,
    hunt: Hunt,
    budgets: Sequence[Budget],
    trial: Trial,
    rule: Evictions,
    most_runs: int,
) -> Across:
    """Tries the pods of several nodes at once, few nodes before many.

    Args:
        plans: what the nodes one by one came to, none of which helps.
        hunt: who may go.
        budgets: disruption budgets.
        trial: the filters for the pod.
        rule: on how many nodes there may be victims, and how many.
        most_runs: bound of dry runs, those of `plans` included.
    """
    found = Across()
    if not trial.spans() or not len(plans.rows):
        return found
    prospects = _prospects(plans, hunt, trial)
    search = _Search(found, plans, hunt, budgets, trial, rule.limit)
    found.cut_short = len(prospects) > MOST_NODES
    prospects = prospects[:MOST_NODES]
    targets = search.targets(prospects)
    for count in range(1, min(rule.across, len(prospects)) + 1 if len(targets) else 1):
        for nodes in combinations(prospects, count):
            if plans.runs + found.runs >= most_runs:
                found.cut_short = True
                return found
            search.together(nodes, targets)
        if found.plans:
            break
    return found


def _prospects(plans: Plans, hunt: Hunt, trial: Trial) -> list[int]:
    """The nodes with pods that may go, the most promising first."""
    snapshot, table = plans.snapshot, hunt.ranking.table
    there = table >= 0
    rooms = trial.rooms(plans.rows[:1])
    about: BoolColumn = np.zeros(table.shape[1], np.bool_)
    if rooms is not None:
        if rooms.concerns is None:
            return []
        kinds = hunt.ranking.values(_PLACE, hunt.kinds.numbers, snapshot.pods)
        concerned = concerned_kinds(hunt, kinds, there, rooms.concerns)[kinds]
        about = np.any(there & concerned, axis=0)
        if not about.any():
            return []
    rows = np.flatnonzero(there.any(axis=0))
    order = np.lexsort(
        (snapshot.nodes.tie_keys[rows], np.count_nonzero(there, axis=0)[rows], ~about[rows])
    )
    return [int(row) for row in rows[order]]


class _Search:
    """One search."""

    def __init__(
        self,
        found: Across,
        plans: Plans,
        hunt: Hunt,
        budgets: Sequence[Budget],
        trial: Trial,
        limit: int | None,
    ) -> None:
        self._found = found
        self._plans = plans
        self._hunt = hunt
        self._budgets = budgets
        self._trial = trial
        self._limit = limit

    def targets(self, prospects: Sequence[int]) -> NDArray[np.intp]:
        """The nodes that take the pod once all pods that may go are gone from the prospects."""
        if not prospects:
            return np.empty(0, np.intp)
        return self._plans.rows[self._open(prospects, self._plans.rows)]

    def _open(self, nodes: Sequence[int], rows: NDArray[np.intp]) -> BoolColumn:
        stand = self._trial.at(int(rows[0]))
        self._leave(stand, nodes)
        self._found.runs += 1
        return stand.passes(rows)

    def _leave(self, stand: Stand, nodes: Sequence[int]) -> None:
        pods, table = self._plans.snapshot.pods, self._hunt.ranking.table
        for node in nodes:
            stand.move([pods.pod(int(one)) for one in table[:, node] if one >= 0], -1, node)

    def together(self, nodes: Sequence[int], targets: NDArray[np.intp]) -> None:
        """Tries the pods of some nodes. A node that victims leave is as good as any."""
        names = self._plans.snapshot.nodes
        open_ = targets[self._open(nodes, targets)].tolist()
        open_.sort(key=lambda row: (row not in nodes, names.name(row)))
        for row in open_[: len(nodes)]:
            self._keep(row, nodes)

    def _keep(self, row: int, nodes: Sequence[int]) -> None:
        """Gives back who need not go, and notes what is left."""
        ranking, pods = self._hunt.ranking, self._plans.snapshot.pods
        table = ranking.table[:, list(nodes)]
        rows = table[table >= 0]
        rows = rows[np.lexsort(tuple(reversed(ranking.keys(pods, rows))))]
        plan = Together(self._plans.snapshot, row, rows, ranking)
        protect(plan, self._budgets)
        stand = self._trial.at(row)
        self._leave(stand, nodes)
        order = sorted(range(len(rows)), key=lambda rank: (not plan.protected[rank, 0], rank))
        for rank in order:
            pod, node = pods.pod(int(rows[rank])), int(pods.node[rows[rank]])
            stand.move([pod], 1, node)
            self._found.runs += 1
            if stand.fits():
                plan.gone[rank, 0] = False
            else:
                stand.move([pod], -1, node)
        victims = int(np.count_nonzero(plan.gone))
        if victims and (self._limit is None or victims <= self._limit):
            plan.helps[0] = True
            self._found.plans.append(plan)
