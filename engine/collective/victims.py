"""Which pods to evict from one node, so that a pod fits there that fits nowhere; over all nodes.

Evicts nobody. From each node all that may go are thought away; if the pod fits then, they are given
back one by one, those that a disruption budget protects before others, the most important first, as
long as it still fits. Who may go and in which order is said by whoever asks (`Hunt`), and so is the
choice among the nodes. Nodes where amounts alone decide (`Trial.rooms`) are worked
out all at once; others one by one, by what-if snapshots.

Source: kubernetes pkg/scheduler/framework/preemption and plugins/defaultpreemption. What differs:
every node is tried, and nothing is drawn by lot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial
from heapq import merge
from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.collective.ranking import Ranking, Reads
from engine.framework.interface import Rooms
from engine.framework.searchprogress import SLICE_RUNS, Found, SearchProgress, UnfinishedError
from engine.framework.snapshot import BoolColumn, IntColumn, PodColumns, Snapshot
from engine.framework.trials import Trial, WhatIfRow
from engine.pods.podinfo import PodInfo, host_ports
from engine.pods.selectors import Selector

Numbers = NDArray[Any]
BEYOND: Final = "More victims would be needed than the limit of {}"
_MOST_OF_A_POD: Final = 8
"""Budgets that count for a pod; the eviction API evicts none that has more than one."""
_MOST_ASKED: Final = 256
"""Requirements that are looked at to find those of a kind, of budgets that it may have."""
_FEWER: Final = 8
"""Values of a requirement that are compared in the time of another requirement."""
_SPARE_KINDS: Final = 1024
_MOST_LATER: Final = 256
_SEVERAL: Final = -2
_NO_LABEL: Final = "", ""
_Label = tuple[str, str, str]
"""Namespace, key and value."""
#: Of a dry run, what it costs to ask whether a kind matters.
_A_KIND: Final = 1 / 64
NO_VICTIMS = "No preemption victims found for incoming pod"


@dataclass(frozen=True, slots=True)
class Hunt:
    """Who may go, and who rather than whom: (P,) `may_go`, and a ranking up to the snapshot.

    `kinds` goes with the ranking.
    """

    may_go: BoolColumn
    ranking: Ranking
    kinds: Kinds


class Kinds:
    """Pods by what other pods can demand of them: namespace, labels, terms, ports, volumes."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        self.each: list[PodInfo] = []
        """One pod of each kind."""
        self._selected_by: list[tuple[str, Selector]] = []
        self._by_label: dict[_Label, list[tuple[int, int]]] = {}
        self._spaces: frozenset[str] = frozenset()
        self._budgets: list[list[int]] = []
        self.covering = np.empty(0, np.int64)
        """The budget of each kind, as `budgets` found last: -1: none; _SEVERAL: more than one."""

    def numbers(self, pods: PodColumns, rows: NDArray[np.intp]) -> NDArray[np.int64]:
        """The kind of each of some pods."""
        known, hashes = self._known, pods.derived("kind", np.int64, 0, kind_of)[rows].tolist()
        for one, row in dict(zip(hashes, rows.tolist(), strict=True)).items():
            if one not in known:
                known[one] = len(self.each)
                self.each.append(pods.pod(row))
        return np.fromiter(map(known.__getitem__, hashes), np.int64, len(hashes))

    def outgrow(self, pods: PodColumns) -> bool:
        """Whether most of them are of pods that are gone."""
        return len(self.each) > 2 * pods.size + _SPARE_KINDS

    def concerned(
        self,
        some: Numbers,
        concerns: Callable[[PodInfo], bool],
        progress: SearchProgress,
        key: Hashable,
    ) -> BoolColumn:
        """Which of some kinds are such that more than amounts may decide; no other is.

        Raises:
            UnfinishedError: others are asked about in a later slice.
        """
        said = progress.kinds((self, key), len(self.each))
        new = np.zeros(len(said), dtype=np.bool_)
        new[some] = said[some] == 0
        for kind in np.flatnonzero(new).tolist():
            progress.spend(_A_KIND)
            said[kind] = 1 if concerns(self.each[kind]) else -1
        return said > 0

    def budgets(self, budgets: Sequence[Budget]) -> Sequence[Sequence[int]]:
        """Those that select the pods of each kind, by number."""
        selected_by = [(one.namespace, one.selector) for one in budgets]
        if self._selected_by != selected_by:
            self._selected_by, self._budgets, self._by_label = selected_by, [], {}
            self.covering = np.empty(0, np.int64)
            self._spaces = frozenset([one.namespace for one in budgets])
            # By the label that the fewest others demand, too: most have one of an application.
            equal = [[*_equal(one)] for one in budgets]
            common = Counter(chain.from_iterable(equal))
            for number, (one, labels) in enumerate(zip(budgets, equal, strict=True)):
                asked, nothing = one.selector.requirements or (), (one.namespace, *_NO_LABEL)
                size = sum(1 + len(of) // _FEWER for _, _, of in asked)
                if asked:  # without any it selects nobody
                    label = min(labels, key=common.__getitem__, default=nothing)
                    self._by_label.setdefault(label, []).append((number, size))
        if new := self.each[len(self._budgets) :]:
            spaces = self._spaces
            found = [self._of(pod, budgets) if pod.namespace in spaces else [] for pod in new]
            self._budgets += found
            first = [of[0] if len(of) == 1 else _SEVERAL if of else -1 for of in found]
            self.covering = np.append(self.covering, np.array(first, np.int64))
        return self._budgets

    def _of(self, pod: PodInfo, budgets: Sequence[Budget]) -> list[int]:
        """The budgets that select a pod, as far as its namespace may ask of us."""
        labels, left = pod.pod.metadata.labels or {}, _MOST_ASKED
        found: list[int] = []
        keys = [(pod.namespace, *pair) for pair in (_NO_LABEL, *labels.items()) if labels]
        for number, size in merge(*filter(None, map(self._by_label.get, keys))):
            left -= size
            if left < 0 or len(found) == _MOST_OF_A_POD:
                break
            if budgets[number].selector.matches(labels):
                found.append(number)
        return found


def kind_of(pod: PodInfo) -> int:
    """Equal for pods of one kind, and for no others but by a chance in 2^64."""
    spec = pod.pod.spec
    of = pod.namespace, pod.pod.metadata.labels or {}, spec.affinity, spec.volumes or ()
    ports = sorted(host_ports(pod.pod))
    return hash(msgspec.msgpack.encode((*of, pod.terminating, ports)))


@dataclass(frozen=True, slots=True)
class Budget:
    """How many of the pods that it selects may go; those in `gone` are counted already."""

    namespace: str
    selector: Selector
    allowed: int
    gone: frozenset[str] = frozenset()


def _equal(budget: Budget) -> Iterator[_Label]:
    """The labels that all of its pods have."""
    for key, operator, values in budget.selector.requirements or ():
        if operator == "In" and len(values) == 1:
            yield budget.namespace, key, values[0]


class Plans:
    """For each node tried: whether it helps, and who would go.

    `table` is (K, C): the pods of each node, the most important first; `there` marks those that may
    go, `gone` those of them that have to, `protected` those that a budget protects.
    """

    def __init__(self, snapshot: Snapshot, rows: NDArray[np.intp], hunt: Hunt) -> None:
        self.snapshot = snapshot
        self.rows = rows
        self.ranking = hunt.ranking
        self.kinds = hunt.kinds
        every = len(rows) == snapshot.nodes.size
        self._columns: slice | NDArray[np.intp] = slice(None) if every else rows
        self.table = hunt.ranking.table[:, self._columns]
        self.there: BoolColumn = self.table >= 0
        if len(hunt.may_go):
            self.there &= hunt.may_go[self.table]
        self._begin()

    def _begin(self) -> None:
        self.protected: BoolColumn = np.zeros_like(self.there)
        self.gone = self.there.copy()
        self.helps: BoolColumn = np.any(self.there, axis=0)
        """(C,) the pod fits once the victims are gone."""
        self.idle: BoolColumn = np.zeros(len(self.rows), dtype=np.bool_)
        """(C,) the pod would fit without any eviction, which should not be asked about."""
        self.reasons: Counter[str] = Counter()
        """Why other nodes do not help; complete only if none helps."""
        self.unfit: list[str] = []
        """Why those do not that were tried one by one."""
        self.runs = 0
        """Dry runs that it took, node by node."""
        self.left_out = 0
        """Nodes that were not tried, as the bound on dry runs was reached."""

    def values(self, name: str, of: Reads) -> Numbers:
        """(K, C) a number of each pod; see `Ranking.values`."""
        return self.ranking.values(name, of, self.snapshot.pods)[:, self._columns]

    def kind_numbers(self) -> Numbers:
        """(K, C) the kind of each pod, as `kinds` numbers them."""
        return self.values("kind", self.kinds.numbers)

    def victims(self, at: int) -> list[PodInfo]:
        """The pods to evict from a node, the most important first; of equals, protected ones."""
        gone = self.gone[:, at]
        rows, protected = self.table[gone, at], self.protected[gone, at]
        pods = self.snapshot.pods
        if protected.any():
            keys = self.ranking.keys(pods, rows)
            rows = rows[np.lexsort((~protected, *reversed(keys)))]
        return [pods.pod(row) for row in rows.tolist()]

    @property
    def violations(self) -> IntColumn:
        """(C,) victims that a budget protects."""
        found: IntColumn = np.sum(self.gone & self.protected, axis=0, dtype=np.int64)
        return found


class Together(Plans):
    """One node that the pod would go to, and pods of any nodes, the most important first."""

    def __init__(self, of: Plans, row: int, pods: NDArray[np.intp]) -> None:
        self.snapshot = of.snapshot
        self.rows = np.array([row], np.intp)
        self.ranking = of.ranking
        self.kinds = of.kinds
        self.table = pods[:, None]
        self.there = np.ones_like(self.table, dtype=np.bool_)
        self._begin()

    def values(self, name: str, of: Reads) -> Numbers:  # noqa: ARG002 - nothing is kept of it
        """See `Plans.values`."""
        return of(self.snapshot.pods, self.table[:, 0])[:, None]


def plan(
    snapshot: Snapshot,
    rows: NDArray[np.intp],
    hunt: Hunt,
    budgets: Sequence[Budget],
    trial: Trial,
    *,
    most: int | None = None,
    limit: int | None = None,
) -> Plans:
    """Works out for each of the rows who would have to go; more than `limit` are no help.

    Complexity: vector steps over the rows, as many as the most pods that may go from one node, if
    amounts alone decide; otherwise a question to all filters for each such pod of each row. No
    row is begun after `most` such questions.

    Raises:
        UnfinishedError: as `SearchProgress` has it.
    """
    progress = trial.progress
    progress.turn += 1
    few, progress.later = progress.later[:SLICE_RUNS], progress.later[SLICE_RUNS:]
    if few:
        rows = np.array([row for one in few if (row := snapshot.nodes.row(one)) >= 0], np.intp)
    plans = Plans(snapshot, rows, hunt)
    protect(plans, budgets)
    rooms = trial.rooms(rows)
    slow = np.ones(len(rows), dtype=np.bool_) if rooms is None else _apart(plans, rooms, progress)
    left = plans.helps & ~slow
    spare = [] if rooms is None else _at_once(plans, rooms, left)
    short = slow & (False if rooms is None else _short(plans, rooms))
    one_by_one(plans, trial, plans.helps & slow & ~short, most)
    if limit is not None:
        many = plans.helps & ~short & (np.count_nonzero(plans.gone, axis=0) > limit)
        if many.any():
            plans.reasons[BEYOND.format(limit)] = int(np.count_nonzero(many))
            plans.helps &= ~many
            left &= ~many
    if not (plans.helps & ~short).any():  # only then it counts what each of them says
        one_by_one(plans, trial, plans.helps & short, most)
    if few:
        raise UnfinishedError
    plans.helps &= ~short
    if not plans.helps.any():
        plans.reasons.update(plans.unfit)
        if rooms is not None:
            _tell_rooms(plans, trial, rooms, spare, np.flatnonzero(left))
    nobody = len(rows) - int(np.count_nonzero(plans.there.any(axis=0)))
    if nobody:
        plans.reasons[NO_VICTIMS] += nobody
    plans.gone &= plans.helps
    plans.idle = plans.helps & ~plans.gone.any(axis=0)
    plans.helps &= ~plans.idle
    return plans


# ---- budgets -------------------------------------------------------------------------------------


def protect(plans: Plans, budgets: Sequence[Budget]) -> None:
    """Marks whose eviction would break a budget if all of a node went, the most important first.

    Source: kubernetes framework/preemption/util.go, FilterVictimsWithPDBViolation.
    """
    protected = plans.protected
    if not budgets or not plans.there.any():
        return
    numbers = plans.kind_numbers()
    each = plans.kinds.budgets(budgets)
    # A pod that several cover takes one of each, up to the first that is broken. Pods of these
    # budgets are told one by one, as of those that some were evicted for already.
    covers = np.where(plans.there, plans.kinds.covering[numbers], -1)
    gone = np.array([*(bool(one.gone) for one in budgets), True, False])  # of several, of none
    several = np.zeros(len(gone), np.bool_)
    beside = covers == _SEVERAL
    for kind in np.unique(numbers[beside]).tolist():
        several[each[kind]] = True
    covered = covers != -1
    # Where nobody is whom several cover, each is by itself.
    quick = covered & ~(gone[covers] | (several[covers] & beside.any(axis=0)))
    ranks, columns = np.nonzero(quick)
    budget = covers[ranks, columns]
    group = columns * len(budgets) + budget
    sort = np.argsort(group, kind="stable")
    group = group[sort]
    places = np.arange(len(sort))
    begins = np.where(np.diff(group, prepend=-1), places, 0)
    turn = places - np.maximum.accumulate(begins)
    allowed = np.array([one.allowed for one in budgets])[budget[sort]]
    broken = sort[turn >= allowed]
    protected[ranks[broken], columns[broken]] = True
    taken: Counter[tuple[int, int]] = Counter()
    for column, rank in np.argwhere((covered & ~quick).T).tolist():
        name = plans.snapshot.pods.pod(int(plans.table[rank, column])).name
        for number in each[numbers[rank, column]]:
            if name not in budgets[number].gone:
                taken[number, column] += 1
                if taken[number, column] > budgets[number].allowed:
                    protected[rank, column] = True
                    break


# ---- all nodes at once ---------------------------------------------------------------------------


def _apart(plans: Plans, rooms: Rooms, progress: SearchProgress) -> BoolColumn:
    """(C,) nodes where more than amounts may decide."""
    apart = rooms.apart
    for name, where, concerns in rooms.concerns:
        there = plans.there & where
        if there.any():
            numbers, key = plans.kind_numbers(), (progress.turn, name)
            concerned = plans.kinds.concerned(numbers[there], concerns, progress, key)
            apart = apart | (there & concerned[numbers]).any(axis=0)
    return apart


def _short(plans: Plans, rooms: Rooms) -> BoolColumn:
    """(C,) nodes where too little is left even without all pods that may go."""
    short = np.zeros(len(plans.rows), dtype=np.bool_)
    for one in rooms.each:
        amounts = plans.values(one.title, one.held_by) * plans.there
        left = one.limit[plans.rows] - one.used[plans.rows] + amounts.sum(axis=0)
        short |= left < one.need
    return short


def _at_once(plans: Plans, rooms: Rooms, quick: BoolColumn) -> list[IntColumn]:
    """Works out the nodes where amounts alone decide; what was spare there without any pods."""
    rows, table, there = plans.rows, plans.table, plans.there & quick
    held = [plans.values(one.title, one.held_by) * there for one in rooms.each]
    spare = [
        one.limit[rows] - one.used[rows] - one.need + amounts.sum(axis=0)
        for one, amounts in zip(rooms.each, held, strict=True)
    ]
    enough = rooms.open.copy()
    for one in spare:
        enough &= one >= 0
    plans.helps &= enough | ~quick
    before = [one.copy() for one in spare]
    helps = plans.helps & quick
    if not helps.any():
        return before
    for wanted in (True, False):
        for rank in range(len(table)):
            back = there[rank] & (plans.protected[rank] == wanted) & helps
            if not back.any():
                continue
            for left, amounts in zip(spare, held, strict=True):
                back &= left >= amounts[rank]
            for left, amounts in zip(spare, held, strict=True):
                left -= np.where(back, amounts[rank], 0)
            plans.gone[rank] &= ~back
    return before


def _tell_rooms(
    plans: Plans, trial: Trial, rooms: Rooms, spare: Sequence[IntColumn], some: NDArray[np.intp]
) -> None:
    """Why nothing helps: by the first filter that rejects the node without its pods."""
    others: Mapping[int, tuple[bool, tuple[str, ...]]] = {}
    if not rooms.open[some].all():
        others = trial.others(rooms.plugins)
    for at in some.tolist():
        first, words = others.get(int(plans.rows[at]), (False, ()))
        short = [one.short for one, left in zip(rooms.each, spare, strict=True) if left[at] < 0]
        # Several amounts may be short for one reason.
        plans.reasons.update(set(words if first or not short else short))


# ---- node by node --------------------------------------------------------------------------------


def one_by_one(
    plans: Plans, trial: Trial, which: BoolColumn, most: int | None, *key: Hashable
) -> None:
    """Asks all filters about some of the nodes, or puts down what an earlier slice found.

    `key` tells that from other questions about the nodes in the same search.

    Raises:
        UnfinishedError: the others' turn comes in a later slice.
    """
    each, nodes, progress = np.flatnonzero(which), plans.snapshot.nodes, trial.progress
    if most is not None and len(each) * 2 > most:
        # Which are tried must not depend on rows.
        few = np.count_nonzero(plans.there, axis=0)[each]
        each = each[np.lexsort((nodes.tie_keys[plans.rows[each]], few))]
    left: list[str] = []
    going: list[int] = []
    emptied: list[int] = []
    for done, at in enumerate(each.tolist()):
        if most is not None and plans.runs >= most:
            plans.helps[each[done:]] = False
            plans.left_out += len(each) - done
            break
        node = nodes.name(int(plans.rows[at]))
        ask = partial(_dry_runs, plans, at, trial)
        try:
            runs, gone, why = progress.recall((progress.turn, node, *key), node, ask)
        except UnfinishedError:
            left.append(node)
            continue
        plans.runs += runs
        going += map(plans.snapshot.pods.row, gone)
        if gone:
            emptied.append(at)
        elif why is not None:
            plans.helps[at] = False
            plans.unfit += why
    if left:
        progress.later = (left + progress.later)[:_MOST_LATER] if most is None else []
        raise UnfinishedError
    goes = np.isin(plans.table[:, each], np.array(going, np.intp), kind="table")
    plans.gone[:, each] = plans.there[:, each] & goes
    # Where all of them went meanwhile, and it does not fit, others have the room.
    plans.helps[emptied] &= plans.gone[:, emptied].any(axis=0)


def _dry_runs(plans: Plans, at: int, trial: Trial) -> Found:
    """Asks all filters about a node: whose going helps, or why nobody's does."""
    pods, there = plans.snapshot.pods, plans.there[:, at]
    emptied = without(trial, int(plans.rows[at]), pods, plans.table[there, at])
    unfit = emptied.rejection()
    if unfit is not None:
        return 1, (), unfit.status.reasons
    ranks, going = np.flatnonzero(there).tolist(), []
    for rank in sorted(ranks, key=lambda rank: (not plans.protected[rank, at], rank)):
        row = int(plans.table[rank, at])
        back = emptied.with_pod(pods.pod(row), int(pods.node[row]))
        if back.fits():
            emptied = back
        else:
            going.append(pods.pod(row).uid)
    return 1 + len(ranks), going, None


def without(trial: Trial, row: int, pods: PodColumns, rows: NDArray[np.intp]) -> WhatIfRow:
    """A node as it is once some pods, by their rows, have left theirs."""
    emptied, nodes = trial.at(row), pods.node[rows]
    for node in dict.fromkeys(nodes.tolist()):
        emptied.move([pods.pod(one) for one in rows[nodes == node].tolist()], -1, node)
    return emptied


# ---- what pods are chosen by ---------------------------------------------------------------------


def starts(pods: PodColumns) -> NDArray[np.float64]:
    """(P,) when each pod started, in seconds since the epoch; NaN: not yet."""
    return pods.number("start", started_at)


def started_at(pod: PodInfo) -> float:
    """When it started, in seconds since the epoch; NaN: not yet."""
    text = pod.pod.status.start_time
    return np.nan if text is None else _seconds(text)


@lru_cache(maxsize=4096)
def _seconds(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return np.nan
