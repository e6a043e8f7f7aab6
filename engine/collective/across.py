"""Victims on several nodes: for a pod whose constraints span nodes, or that exceeds a quota.

For constraints (`across`) the most promising nodes whose pods may go are looked at: those with pods
that such a constraint is about first, then those with few pods. All their pods are thought away;
where the pod does not fit even then, nothing is searched. Then one node is tried, two, three, as
many as the rule allows; of what suffices pods are given back as in `victims`.

For a quota (`anywhere`) use has to fall, wherever that is. First the nodes are tried as they are;
then, one by one, with all their own pods that may go. What is still too much is taken from other
nodes, the first to go first; at last pods are given back.

Source: kubernetes-sigs/scheduler-plugins pkg/crossnodepreemption at 903da7df, which tries all sets
of pods; what differs: sets of nodes, few before many, and a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dsl.collective import Evictions
from engine.collective.victims import Budget, Hunt, Plans, Together, one_by_one, protect, without
from engine.framework.interface import Room
from engine.framework.searchprogress import Found
from engine.framework.snapshot import BoolColumn
from engine.framework.trials import Trial

#: Nodes from which pods may leave at once are looked for among so many.
MOST_NODES: Final = 64
#: Nodes tried with their own pods gone, and pods that go for one pod of a quota, at most.
_MOST_TARGETS: Final = 16
_MOST_PODS: Final = 64
#: Nodes asked about at once take as long as a dry run.
_ROWS_A_RUN: Final = 512
Rows = NDArray[np.intp]


@dataclass(eq=False)
class Several:
    """A search for pods of several nodes: of its `plans`, one node to go to each, one is chosen.

    `of` is what the nodes one by one came to, none of which helps; `hunt` says who may go, `rule`
    on how many nodes, and how many. `runs` are the dry runs that it took; `cut_short` says that
    their bound ended it, or that of the nodes looked at, `beyond` that more had to go than may.
    """

    of: Plans
    hunt: Hunt
    budgets: Sequence[Budget]
    trial: Trial
    rule: Evictions
    plans: list[Plans] = field(default_factory=list)
    runs: int = 0
    cut_short: bool = False
    beyond: bool = False

    def across(self, most_runs: int) -> None:
        """Tries the pods of several nodes at once, few nodes before many.

        `most_runs` bounds the dry runs, those of the nodes one by one included.

        Raises:
            UnfinishedError: as `SearchProgress` has it; so does `anywhere`.
        """
        spans = self.trial.spans() and len(self.of.rows)
        prospects = self._prospects() if spans else []
        self.cut_short = len(prospects) > MOST_NODES
        prospects = prospects[:MOST_NODES]
        if not prospects:
            return
        name = self.of.snapshot.nodes.name
        targets = np.array(self._open(self.of.rows, partial(self._on, prospects)), np.intp)
        for count in range(1, min(self.rule.across, len(prospects)) + 1 if len(targets) else 1):
            for nodes in combinations(prospects, count):
                if self.of.runs + self.runs >= most_runs:
                    self.cut_short = True
                    return
                # A node that victims leave is as good as any.
                open_ = self._open(targets, partial(self._on, nodes), *nodes)
                for row in sorted(open_, key=lambda row: (row not in nodes, name(row)))[:count]:
                    self._keep(row, self._on(nodes), *nodes)
            if self.plans:
                return

    def anywhere(self) -> None:
        """Tries pods of any nodes, for a quota: `rule` says who else may go once some do."""
        plans = self.of
        rooms = self.trial.rooms(plans.rows[:1]) if len(plans.rows) else None
        each = [] if rooms is None else [one for one in rooms.each if one.quota]
        if not each:
            return
        few = np.count_nonzero(plans.there, axis=0)
        order = np.lexsort((plans.snapshot.nodes.tie_keys[plans.rows], -few))
        targets = [int(at) for at in order[:_MOST_TARGETS] if few[at]]
        for at in (None, *targets):
            own = np.empty(0, np.intp) if at is None else plans.table[plans.there[:, at], at][::-1]
            gone = self._enough(own, each)
            if gone is None:
                continue
            rows = plans.rows if at is None else plans.rows[at : at + 1]
            key = len(rows), -1 if at is None else at, int(rows[0])
            open_ = self._open(rows, gone.view, *key)
            if open_:
                # The most important first.
                self._keep(min(open_, key=plans.snapshot.nodes.name), gone[::-1].copy(), *key)
            if self.plans and at is None:
                break

    def _open(self, rows: Rows, gone: Callable[[], Rows], *key: int) -> Sequence[int]:
        """Those of some nodes that take the pod once these are gone; `key` says who they are."""

        def ask() -> Found:
            emptied = without(self.trial, int(rows[0]), snapshot.pods, gone())
            return 1 + len(rows) // _ROWS_A_RUN, rows[emptied.passes(rows)].tolist(), None

        snapshot, progress = self.of.snapshot, self.trial.progress
        _, found, _ = progress.recall((progress.turn, snapshot.layout, *key), "", ask)
        self.runs += 1
        return found

    def _keep(self, row: int, gone: Rows, *key: int) -> None:
        """Of pods that are enough, the most important first, gives back who need not go."""
        plan = Together(self.of, row, gone)
        protect(plan, self.budgets)
        one_by_one(plan, self.trial, plan.helps, 1, *key)
        self.runs += plan.runs
        victims, limit = int(np.count_nonzero(plan.gone)), self.rule.limit
        helps = bool(plan.helps[0]) and victims > 0
        many = limit is not None and victims > limit
        self.beyond |= helps and many
        if helps and not many:
            self.plans.append(plan)

    def _on(self, nodes: Sequence[int]) -> Rows:
        """The pods that may go from these nodes, the most important first."""
        table = self.hunt.ranking.table[:, list(nodes)]
        rows = table[table >= 0]
        keys = self.hunt.ranking.keys(self.of.snapshot.pods, rows)
        return rows[np.lexsort(tuple(reversed(keys)))]

    def _prospects(self) -> list[int]:
        """The nodes with pods that may go, the most promising first."""
        snapshot, ranking, kinds = self.of.snapshot, self.hunt.ranking, self.hunt.kinds
        there, progress = ranking.table >= 0, self.trial.progress
        rooms = self.trial.rooms(self.of.rows[:1])
        about: BoolColumn = np.zeros(there.shape[1], np.bool_)
        if rooms is not None:
            for name, _, concerns in rooms.concerns:
                numbers = ranking.values("kind", kinds.numbers, snapshot.pods)
                key = progress.turn, name
                concerned = kinds.concerned(numbers[there], concerns, progress, key)
                about |= np.any(there & concerned[numbers], axis=0)
            if not about.any():
                return []
        rows = np.flatnonzero(there.any(axis=0))
        few = np.count_nonzero(there, axis=0)[rows]
        order = np.lexsort((snapshot.nodes.tie_keys[rows], few, ~about[rows]))
        return [int(row) for row in rows[order]]

    def _enough(self, own: Rows, rooms: Sequence[Room]) -> Rows | None:
        """These and as many others as bring use down, the first to go first; None: too few."""
        assert self.rule.more is not None
        more = np.array(self.rule.more(own.tolist()), np.intp)
        rows = np.concatenate((own, more[~np.isin(more, self.trial.mates)][:_MOST_PODS]))
        pods, count = self.of.snapshot.pods, len(own)
        for room in rooms:
            short = int(room.used[0]) + room.need - int(room.limit[0])
            freed = np.cumsum(room.held_by(pods, rows))
            enough = int(np.searchsorted(freed, short)) + 1 if short > 0 else 0
            if enough > len(rows):
                return None
            count = max(count, enough)
        return rows[:count]
