"""Which pods to evict for one that fits nowhere. Asks a dry run; evicts nobody.

Node by node first: of each node all pods that may go are thought away; if the pod fits then, they
are given back one by one, the last in order first, those that a disruption budget protects before
others, as long as it still fits. Where that helps on no node and the rule says `across`, the same
is done with the pods of two nodes at once, then of three, up to four. The nodes are tried in an
order that follows from the snapshot alone, so that the same snapshot gives the same victims.

Source: kubernetes pkg/scheduler/framework/preemption and default_preemption.go; what differs: every
node is tried within the bound, and nothing is drawn by lot.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final

import numpy as np
from msgspec import Struct, field

from dsl.collective import Budget, DryRun, Evictions, Preemption
from dsl.plan import World

#: Dry runs that one search makes at most; a node that was begun is finished.
MOST_RUNS: Final = 1_000


def search(
    evictions: Evictions,
    world: World,
    dry_run: DryRun,
    *,
    rows: Iterable[int],
    budgets: Sequence[Budget] = (),
    spans: bool = False,
) -> Preemption:
    """Finds the cheapest victims.

    Args:
        evictions: who may go, and what that costs.
        world: the snapshot.
        dry_run: asks whether the pod fits.
        rows: the node rows that evictions could help on, in the order in which to try them.
        budgets: disruption budgets of the pods.
        spans: whether a constraint of the pod spans nodes; only then more than one is tried.

    Complexity: linear in the pods that may go, and at most `MOST_RUNS` dry runs and those of one
    more node.
    """
    targets = list(rows)
    hunt = _Hunt(evictions, world, dry_run, budgets, _by_node(evictions, world))
    hunt.single(targets)
    if not hunt.found and spans and evictions.across > 1:
        hunt.across(frozenset(targets))
    if not hunt.found:
        return Preemption(runs=hunt.runs, cut_short=hunt.spent)
    row, victims, violations = min(hunt.found, key=lambda one: evictions.cost(*one))
    return Preemption(row, victims, violations, hunt.runs, hunt.spent)


def _by_node(evictions: Evictions, world: World) -> dict[int, tuple[int, ...]]:
    """Returns who may go from each node, in order; nodes that nobody may leave are left out."""
    if not evictions.ordered:
        return {}
    ordered = np.array(evictions.ordered, np.intp)
    nodes = world.pod_node[ordered]
    sort = np.argsort(nodes, kind="stable")
    rows, starts = np.unique(nodes[sort], return_index=True)
    parts = np.split(ordered[sort], starts[1:])
    return {
        row: tuple(part.tolist())
        for row, part in zip(rows.tolist(), parts, strict=True)
        if row >= 0
    }


class _Hunt(Struct):
    """One search: what was tried, what was found."""

    evictions: Evictions
    world: World
    dry_run: DryRun
    budgets: Sequence[Budget]
    there: Mapping[int, tuple[int, ...]]
    runs: int = 0
    spent: bool = False
    found: list[tuple[int, tuple[int, ...], int]] = field(default_factory=list)

    def single(self, targets: Sequence[int]) -> None:
        """Tries the pods of each node for that node."""
        for row in targets:
            gone = self.evictions.taken(self.there.get(row, ()))
            if not gone:
                continue
            if self._out_of_runs():
                return
            if self._fits(row, frozenset(gone)):
                self._keep(row, gone)

    def across(self, targets: frozenset[int]) -> None:
        """Tries the pods of several nodes at once, few nodes before many."""
        for count in range(1, self.evictions.across + 1):
            for rows in combinations(self._prospects(), count):
                if self._out_of_runs():
                    return
                self._together(rows, targets)
            if self.found:
                return

    def _prospects(self) -> list[int]:
        """Returns the nodes, those with few pods that may go first, else by name."""
        return sorted(self.there, key=lambda row: (len(self.there[row]), self._name(row)))

    def _name(self, row: int) -> str:
        code = int(self.world.node_text("node.name", None)[row])
        return self.world.dictionary.texts[code] if code >= 0 else ""

    def _together(self, rows: Sequence[int], targets: frozenset[int]) -> None:
        wanted = {pod for row in rows for pod in self.there[row]}
        gone = self.evictions.taken([one for one in self.evictions.ordered if one in wanted])
        if not gone:
            return
        self.runs += 1
        open_ = [row for row in self.dry_run.nodes(frozenset(gone)) if row in targets]
        # A node that victims leave is as good as any; else the first by name.
        open_.sort(key=lambda row: (row not in rows, self._name(row)))
        for row in open_[: len(rows)]:
            self._keep(row, gone)

    def _keep(self, row: int, gone: tuple[int, ...]) -> None:
        """Gives back who need not go, and notes what is left."""
        last_first = gone[::-1]
        protected = guarded(self.budgets, last_first)
        left = set(gone)
        for pod in sorted(last_first, key=lambda one: one not in protected):
            if self._fits(row, frozenset(left - {pod})):
                left.remove(pod)
        limit = self.evictions.limit
        victims = tuple(one for one in gone if one in left)
        if victims and (limit is None or len(victims) <= limit):
            self.found.append((row, victims, len(left & protected)))

    def _fits(self, row: int, gone: frozenset[int]) -> bool:
        self.runs += 1
        return self.dry_run.fits(row, gone)

    def _out_of_runs(self) -> bool:
        self.spent = self.spent or self.runs >= MOST_RUNS
        return self.spent


def guarded(budgets: Sequence[Budget], pods: Iterable[int]) -> frozenset[int]:
    """Returns the pods whose eviction would break a budget, if all of them went in this order.

    Source: kubernetes default_preemption.go, filterPodsWithPDBViolation; the most important first.
    """
    left = [one.allowed for one in budgets]
    return frozenset(_breaking(budgets, pods, left))


def _breaking(budgets: Sequence[Budget], pods: Iterable[int], left: list[int]) -> Iterator[int]:
    for pod in pods:
        broken = False
        for at, one in enumerate(budgets):
            if pod in one.pods:
                left[at] -= 1
                broken = broken or left[at] < 0
        if broken:
            yield pod
