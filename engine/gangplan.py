"""Plans where the members of a gang fit together, by all filters of their profiles, in slices.

Decides nothing: members are nominated to what it finds, and their own cycles decide. Between two
slices the cluster is as it is: it may change, watches are followed, and nobody sees what is only
thought. What was read is not read again. Only `Rehearsal`, `Unpromised` and `Absent` change the
cache, within contexts that are entered before the steps of a slice and left after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.cache import Cache
from engine.clock import Clock
from engine.collective.packing import Alike, Found, Packing, Search, SearchBudget, Steps, pack
from engine.framework.interface import Room
from engine.framework.keycolumn import TIE_BITS
from engine.framework.runtime import Framework, Unfit
from engine.framework.snapshot import CodeColumn, NodeColumns, Snapshot, label_column
from engine.pods.podinfo import CPU, MEMORY, NONZERO_CPU, NONZERO_MEMORY, PodInfo
from engine.pods.podterms import terms_of

SLICE_SECONDS: Final = 0.002


class OutdatedError(Exception):
    """What the work began with is no longer so."""


def in_slices(
    steps: Steps[Found],
    clock: Clock,
    *thought: AbstractContextManager[None],
    holds: Callable[[], bool] = lambda: True,
) -> Steps[Found]:
    """Does the steps within contexts, which it leaves after each slice.

    A slice is two milliseconds, or as long as entering took where that is more: to think a
    thousand pods away takes longer, and what does no step in a slice never ends.

    Raises:
        OutdatedError: `holds` says so after a pause.
    """
    while True:
        began = clock.monotonic()
        with ExitStack() as stack:
            for one in thought:
                stack.enter_context(one)
            entered = clock.monotonic()
            until = entered + max(SLICE_SECONDS, entered - began)
            try:
                while clock.monotonic() < until:
                    next(steps)
            except StopIteration as end:
                found: Found = end.value
                return found
        yield
        if not holds():
            raise OutdatedError


class Absent:
    """Pods on nodes that are thought away, within its context only."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._uids: dict[str, None] = {}
        self._back: list[Callable[[], object]] = []

    def __enter__(self) -> None:
        """They leave, those that are there still."""
        for uid in self._uids:
            self._leave(uid)

    def __exit__(self, *_: object) -> None:
        """They are where they were."""
        while self._back:
            self._back.pop()()

    def send(self, uid: str) -> None:
        """This one, too, from now on."""
        self._uids[uid] = None
        self._leave(uid)

    def recall(self) -> None:
        """Nobody any longer."""
        self.__exit__()
        self._uids.clear()

    def _leave(self, uid: str) -> None:
        cache, back, row = self._cache, self._back, self._cache.pods.row(uid)
        if row < 0:
            return
        pod, node, waiting = cache.pods.pod(row), cache.node_of(uid) or "", cache.waiting.get(uid)
        if waiting is not None:
            back.append(partial(cache.wait, waiting))
        if cache.is_assumed(uid):
            back.append(partial(cache.assume, pod, node, pod.assumed_at))
            cache.forget(uid)
        else:
            back.append(partial(cache.add_pod, pod, node))
            cache.remove_pod(uid)


_MOST_TERMS: Final = 16
"""Terms of required affinity that are looked at, of pods that share none."""
FrameworkOf = Callable[[PodInfo], Framework]
Together = tuple[CodeColumn, Sequence[int] | None] | None
"""(N,) the domain of each node, -1 without one, and the rows of nodes that have members already.

None instead of rows: some may do without, so domains that cannot take enough are left alone. None
at all: the members may be anywhere.
"""
MOST_DOMAINS: Final = 16
"""Domains that are emptied in thought, those that lack the least room first."""


@dataclass(eq=False)
class Rehearsal:
    """Assumes members on nodes and asks all filters about the next one: `packing.Others`.

    They are there within its context only.
    """

    pods: Sequence[PodInfo]
    cache: Cache
    snapshot: Callable[[], Snapshot]
    framework_of: FrameworkOf
    _there: list[tuple[PodInfo, str]] = field(default_factory=list, init=False)

    def __enter__(self) -> None:
        """Assumes the placed members again."""
        for pod, node in self._there:
            if self.cache.node_of(pod.uid) is None:  # else somebody has bound it meanwhile
                self.cache.assume(pod, node)

    def __exit__(self, *_: object) -> None:
        """Forgets them."""
        for pod, _node in reversed(self._there):
            self.cache.forget(pod.uid)

    def takes(self, member: int, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """See `Others.takes`."""
        pod = self.pods[member]
        return self.framework_of(pod).verdicts(pod, self.snapshot(), rows)

    def put(self, member: int, row: int) -> None:
        """See `Others.put`."""
        self._there.append((self.pods[member], self.cache.nodes.name(row)))
        self.cache.assume(*self._there[-1])

    def take(self, member: int) -> None:
        """See `Others.take`."""
        pod, _ = self._there.pop()
        assert pod is self.pods[member]
        self.cache.forget(pod.uid)


@dataclass(eq=False)
class Unpromised:
    """Pods that are promised no node, within its context only: it is in the others' way."""

    cache: Cache
    pods: Sequence[PodInfo]
    _promised: list[tuple[PodInfo, str, int]] = field(default_factory=list, init=False)

    def __enter__(self) -> None:
        """Withdraws what is promised to them now."""
        promises = self.cache.nominations
        for uid in [pod.uid for pod in self.pods]:
            node = promises.node_of(uid)
            for pod in [one for one in promises.on(node) if one.uid == uid]:
                self._promised.append((pod, node, promises.ranks[uid]))
                self.cache.withdraw(uid)

    def __exit__(self, *_: object) -> None:
        """Promises it again."""
        while self._promised:
            self.cache.nominate(*self._promised.pop())


def plan(
    pods: Sequence[PodInfo],
    wanted: int,
    snapshot: Callable[[], Snapshot],
    rehearsal: Rehearsal,
    framework_of: FrameworkOf,
    domains: Together = None,
    *,
    fullest: bool = False,
) -> Steps[Packing]:
    """Places at least `wanted` of the pods, which are on no node: by their numbers, on rows.

    Of domains those that may take enough are tried; if none may, those that take most.

    Args:
        pods: the members, in order.
        wanted: how many have to be placed.
        snapshot: the cluster as it is; no row may get another node between two steps.
        rehearsal: of the same pods, for what is more than amounts.
        framework_of: whose filters are asked about a pod.
        domains: where members have to be together.
        fullest: see `Membership`.

    Raises:
        PluginError: a plugin raised.
    """
    asked = _Asked(pods, snapshot(), framework_of)
    yield from asked.ask(snapshot)
    budget = SearchBudget()
    others = rehearsal if asked.more else None
    places: Sequence[NDArray[np.intp]] = [np.arange(asked.size)]
    if domains is not None:
        column, homes = domains
        each = yield from _bounds(asked, column, homes or ())
        most, now = each.most.max(initial=0), snapshot()
        if homes is None and most < wanted:
            return Packing()
        full = each.fullness(pods, now.nodes)
        # Of domains that are liked as well the fullest, so that others stay whole for large gangs.
        by = [full] if fullest else [each.liked >> TIE_BITS, full, each.liked]
        (enough,) = np.nonzero(each.most >= min(wanted, most))
        by = by if most >= wanted else [each.most]
        places = each.ordered(enough, now.dictionary.texts, *by)
    searches = (Search(asked.at(rows), asked.left[rows], rows, budget, others) for rows in places)
    return (yield from pack(searches, wanted, budget))


def emptiest(
    pods: Sequence[PodInfo],
    snapshot: Callable[[], Snapshot],
    framework_of: FrameworkOf,
    column: CodeColumn,
    homes: Sequence[int],
) -> Steps[list[NDArray[np.intp]]]:
    """The rows of all domains where members may be, the domain that lacks least room first.

    Raises:
        PluginError: a plugin raised.
    """
    asked = _Asked(pods, snapshot(), framework_of)
    yield from asked.ask(snapshot)
    each = yield from _bounds(asked, column, homes)
    return each.ordered(np.arange(len(each.codes)), snapshot().dictionary.texts, each.most)


def domain_of_affinity(pods: Sequence[PodInfo], snapshot: Snapshot) -> CodeColumn | None:
    """(N,) the domain of each node in which members have to be beside another one, -1 without one.

    None: no required affinity of a member finds one of them.
    """
    terms = dict.fromkeys(term for pod in pods for term in terms_of(pod.pod).required)
    for term in islice(terms, _MOST_TERMS):
        if any(term.matches(one.namespace, {}, one.pod.metadata.labels or {}) for one in pods):
            nodes = snapshot.nodes
            found = nodes.text(*label_column(term.topology_key))
            return np.where(nodes.present, found, -1).astype(np.int32, copy=False)
    return None


@dataclass(frozen=True, slots=True)
class _Domains:
    """(D,) their codes, a bound on the members each takes, and how well one likes its best node.

    `rows` are of one domain after the other, each beginning at its one of `starts`.
    """

    rows: NDArray[np.intp]
    starts: NDArray[np.intp]
    codes: NDArray[np.int32]
    most: NDArray[np.int64]
    liked: NDArray[np.int64]

    def ordered(
        self, some: NDArray[np.intp], texts: Sequence[str], *by: NDArray[np.int64]
    ) -> list[NDArray[np.intp]]:
        """The rows of some domains, the one with the most first, equal ones by the next or name."""
        names = [texts[code] for code in self.codes[some].tolist()]
        some = some[sorted(range(len(names)), key=names.__getitem__)]
        for one in reversed(by):
            some = some[np.argsort(-one[some], kind="stable")]
        ends = np.append(self.starts[1:], len(self.rows))
        bounds = zip(self.starts[some].tolist(), ends[some].tolist(), strict=True)
        return [self.rows[start:end] for start, end in bounds]

    def fullness(self, pods: Sequence[PodInfo], nodes: NodeColumns) -> NDArray[np.int64]:
        """(D,) the share of the pods that each takes and the shares then in use, percent.

        Source: kubernetes plugins/podgrouppodscount and plugins/noderesources, ScorePlacement.
        """
        shares, counted = np.zeros_like(self.most), np.zeros_like(self.most)
        if not len(self.starts):
            return shares
        for resource, requested in ((CPU, NONZERO_CPU), (MEMORY, NONZERO_MEMORY)):
            each = sum(pod.readings.sums[requested] for pod in pods) // len(pods)
            has = np.add.reduceat(nodes.allocatable(resource)[self.rows], self.starts)
            used = np.add.reduceat(nodes.requested(requested)[self.rows], self.starts)
            used = np.minimum(used + self.most * each, has)
            shares += used * 100 // np.maximum(has, 1)
            counted += has > 0
        shares //= np.maximum(counted, 1)
        return shares + self.most * 100 // max(1, int(self.most.max()))


def _bounds(asked: _Asked, column: CodeColumn, homes: Sequence[int]) -> Steps[_Domains]:
    """The domains where members may be; only one, if members have nodes in it."""
    at_home = {int(column[row]) for row in homes}
    # Members in several domains, or in none: nothing is within one any longer.
    somewhere = len(at_home) <= 1 and -1 not in at_home
    may = np.isin(column, list(at_home)) if at_home else column >= 0
    (rows,) = np.nonzero(may & somewhere)
    rows = rows[column[rows].argsort(kind="stable")]
    (starts,) = np.nonzero(np.diff(column[rows], prepend=-1))
    most, liked = np.zeros(len(starts), np.int64), np.zeros(len(starts), np.int64)
    left = np.asfortranarray(asked.left[rows])
    for kind in asked.kinds if len(starts) else ():
        yield
        count = len(kind.members)
        takes = np.where(kind.open[rows], _times(kind.needs, left, count), 0)
        most += np.minimum(np.add.reduceat(takes, starts), count)
        np.maximum(liked, np.maximum.reduceat(kind.keys[rows], starts), out=liked)
    if len(starts):
        most = np.minimum(most, asked.most_by_amounts(left, starts))
    return _Domains(rows, starts, column[rows[starts]], most, liked)


def _times(needs: NDArray[np.int64], left: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """(n,) how many of these needs each row covers with what it has left, up to `most`."""
    times = np.full(len(left), most)
    for column, need in zip(left.T, needs.tolist(), strict=True):
        if need > 0:  # one divisor at a time: dividing by a row of them takes three times as long
            np.minimum(times, column // need, out=times)
    return times


class _Asked:
    """The filters' answers for the members, by class, and what nodes have left."""

    def __init__(
        self, pods: Sequence[PodInfo], snapshot: Snapshot, framework_of: FrameworkOf
    ) -> None:
        self._pods = pods
        self._framework_of = framework_of
        self.size = snapshot.nodes.size
        self.more = False
        self.kinds: list[Alike] = []
        self.left = np.zeros((self.size, 0), np.int64)

    def ask(self, snapshot: Callable[[], Snapshot]) -> Steps[None]:
        """Asks about one member of each class in a step."""
        classes: dict[object, list[int]] = {}
        for member, pod in enumerate(self._pods):
            framework = self._framework_of(pod)
            key = framework.class_key(pod, snapshot())
            key = member if key is None else (framework.profile.scheduler_name, key)
            classes.setdefault(key, []).append(member)
        yield
        columns: dict[str, NDArray[np.int64]] = {}
        kinds: list[tuple[dict[str, int], Alike]] = []
        for members in classes.values():
            rooms, kind = self._of(members, snapshot())
            for room in rooms:
                # A member that needs nothing of it fits even if less than nothing is left.
                left = np.maximum(room.limit[: self.size] - room.used[: self.size], 0)
                before = columns.get(room.title)
                columns[room.title] = left if before is None else np.minimum(before, left)
            kinds.append(({room.title: room.need for room in rooms}, kind))
            yield
        for own, kind in kinds:
            needs = np.array([own.get(name, 0) for name in columns], np.int64)
            self.kinds.append(replace(kind, needs=needs))
        # Anything beyond what all of them need is equal.
        self._needs = np.stack([one.needs for one in self.kinds for _ in one.members])
        if columns:
            self.left = np.minimum(np.stack([*columns.values()], axis=1), self._needs.sum(axis=0))

    def _of(self, members: Sequence[int], snapshot: Snapshot) -> tuple[list[Room], Alike]:
        """The amounts that each of them needs, the rows where it may go, and its preference.

        A member that may go nowhere may need another member beside it, so it is planned later.
        """
        pod, rooms, follows = self._pods[members[0]], list[Room](), False
        framework = self._framework_of(pod)
        mask, keys = np.zeros(snapshot.nodes.size, np.bool_), np.zeros(self.size, np.int64)
        with suppress(Unfit):
            trial = framework.trial(pod, snapshot)
            known = framework.class_of(pod, snapshot)
            mask[framework.candidates(known, pod, snapshot)] = True
            follows = not mask.any() and trial.more_than_amounts
            if follows:
                mask = trial.but_for_others()
            if mask.any():  # else the pod may name thousands of resources, each a column
                rooms, keys = trial.amounts(), np.where(mask, known.keys.column, 0)[: self.size]
                self.more |= trial.more_than_amounts
        return rooms, Alike(members, mask[: self.size], keys[:0], keys, follows)

    def at(self, rows: NDArray[np.intp]) -> list[Alike]:
        """The members, with these rows only."""
        return [replace(one, open=one.open[rows], keys=one.keys[rows]) for one in self.kinds]

    def most_by_amounts(
        self, left: NDArray[np.int64], starts: NDArray[np.intp]
    ) -> NDArray[np.int64]:
        """(D,) a bound on how many members each domain takes, its rows beginning at `starts`.

        No more than there are of the least needs of any, nor than the smallest of each amount add
        up to what all of its rows have left.
        """
        least = _times(self._needs.min(axis=0), left, len(self._needs))
        most = np.add.reduceat(least, starts)
        totals = np.add.reduceat(left, starts, axis=0)
        for total, needs in zip(totals.T, np.sort(self._needs, axis=0).T, strict=True):
            most = np.minimum(most, needs.cumsum().searchsorted(total, side="right"))
        return most
