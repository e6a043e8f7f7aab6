"""Where the members of a gang fit together, by all filters of their profiles, on one snapshot.

Decides nothing: what it finds is promised to the members, and their own cycles decide. Of the cache
it changes nothing that it does not take back before it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.cache import Cache
from engine.collective.packing import Alike, Budget, Packing, pack
from engine.framework.interface import Room
from engine.framework.podinfo import PodInfo
from engine.framework.runtime import Framework, Unfit
from engine.framework.snapshot import CodeColumn, Snapshot

FrameworkOf = Callable[[PodInfo], Framework]


@dataclass(frozen=True, slots=True)
class Plan:
    """Member -> row; the most that fit in any domain, and whether the budget ended the search."""

    rows: dict[int, int]
    enough: bool
    most: int
    cut_short: bool = False


class Rehearsal:
    """Members are put on nodes, and all filters asked about the next: `packing.Others`."""

    def __init__(
        self,
        pods: Sequence[PodInfo],
        cache: Cache,
        snapshot: Callable[[], Snapshot],
        framework_of: FrameworkOf,
    ) -> None:
        self._pods = pods
        self._cache = cache
        self._snapshot = snapshot
        self._framework_of = framework_of

    def takes(self, member: int, row: int) -> bool:
        """See `Others.takes`."""
        pod = self._pods[member]
        rows = np.array([row], np.intp)
        return bool(self._framework_of(pod).verdicts(pod, self._snapshot(), rows)[0])

    def put(self, member: int, row: int) -> None:
        """See `Others.put`."""
        self._cache.assume(self._pods[member], self._cache.nodes.name(row))

    def take(self, member: int) -> None:
        """See `Others.take`."""
        self._cache.forget(self._pods[member].uid)


def plan(
    pods: Sequence[PodInfo],
    wanted: int,
    snapshot: Snapshot,
    rehearsal: Rehearsal,
    framework_of: FrameworkOf,
    domains: tuple[CodeColumn, Sequence[int]] | None = None,
) -> Plan:
    """Places at least `wanted` of the pods, which are on no node.

    Args:
        pods: the members, in order.
        wanted: how many have to be placed.
        snapshot: the cluster as it is.
        rehearsal: of the same pods, for what is more than amounts.
        framework_of: whose filters are asked about a pod.
        domains: (N,) the domain of each node, -1 without one, and the rows of the nodes that have
            members already; None: the members may be anywhere.

    Raises:
        PluginError: a plugin raised.
    """
    asked = _Asked(pods, snapshot, framework_of)
    budget = Budget()
    others = rehearsal if asked.more else None
    if domains is None:
        found = pack(asked.kinds, asked.left, wanted, budget, others)
        return Plan(found.rows, found.enough, len(found.rows), budget.spent)
    best = Packing()
    masks, most = _masks(asked, wanted, *domains, snapshot.dictionary.texts)
    for mask in masks:
        found = pack(asked.within(mask), asked.left, wanted, budget, others)
        if len(found.rows) > len(best.rows):
            best = found
        if found.enough or budget.spent:
            break
    return Plan(best.rows, best.enough, max(most, len(best.rows)), budget.spent)


def _masks(
    asked: _Asked, wanted: int, column: CodeColumn, homes: Sequence[int], texts: Sequence[str]
) -> tuple[list[NDArray[np.bool_]], int]:
    """The rows of each domain that may take enough, and the most that any other may.

    First the domain with the node that a member likes best, of equal ones by name. Members that
    have nodes leave theirs alone.
    """
    at_home = {int(column[row]) for row in homes}
    if at_home:
        # Members in several domains, or in none: nothing is within one any longer.
        codes = at_home if len(at_home) == 1 and -1 not in at_home else set()
        return [column == code for code in codes], 0
    usable = np.zeros(len(column), np.int64)
    for kind in asked.kinds:
        usable += np.minimum(kind.open * asked.times(kind), len(kind.members))
    there = column >= 0
    sums = np.bincount(column[there], weights=usable[there]).astype(np.int64)
    codes = set(np.flatnonzero(sums >= max(wanted, 1)).tolist())
    most = int(sums[sums < max(wanted, 1)].max(initial=0))
    liked = np.zeros(len(sums), np.int64)
    for kind in asked.kinds:
        np.maximum.at(liked, column[kind.open & there], kind.keys[kind.open & there])
    ordered = sorted(codes, key=lambda code: (-int(liked[code]), texts[code]))
    return [column == code for code in ordered], most


class _Asked:
    """What the filters say of the members, by class, and what nodes have left."""

    def __init__(
        self, pods: Sequence[PodInfo], snapshot: Snapshot, framework_of: FrameworkOf
    ) -> None:
        classes: dict[object, list[int]] = {}
        for member, pod in enumerate(pods):
            framework = framework_of(pod)
            key = framework.class_key(pod, snapshot)
            key = member if key is None else (framework.profile.scheduler_name, key)
            classes.setdefault(key, []).append(member)
        size = snapshot.nodes.size
        columns: dict[str, NDArray[np.int64]] = {}
        needs: list[dict[str, int]] = []
        kinds: list[tuple[list[int], NDArray[np.bool_], NDArray[np.int64]]] = []
        self.more = False
        for members in classes.values():
            pod = pods[members[0]]
            framework = framework_of(pod)
            mask, keys = np.zeros(size, np.bool_), np.zeros(size, np.int64)
            rooms: list[Room] = []
            with suppress(Unfit):
                trial = framework.trial(pod, snapshot)
                rooms = trial.amounts()
                self.more |= trial.more_than_amounts
                known = framework.known(pod, snapshot)
                mask[framework.candidates(known, pod, snapshot)] = True
                keys = np.where(mask, known.column, 0)
            for room in rooms:
                # Who needs nothing of it does not mind that there is less than nothing.
                left = np.maximum(room.limit - room.used, 0)
                before = columns.get(room.title)
                columns[room.title] = left if before is None else np.minimum(before, left)
            needs.append({room.title: room.need for room in rooms})
            kinds.append((members, mask, keys))
        names = list(columns)
        self.left = (
            np.stack([columns[name] for name in names], axis=1)
            if names
            else np.zeros((size, 1), np.int64)
        )
        self.kinds = [
            Alike(
                members,
                mask,
                np.array([own.get(name, 0) for name in names] or [0], np.int64),
                keys,
            )
            for own, (members, mask, keys) in zip(needs, kinds, strict=True)
        ]

    def within(self, mask: NDArray[np.bool_]) -> list[Alike]:
        """The members, if only some rows count."""
        return [Alike(one.members, one.open & mask, one.needs, one.keys) for one in self.kinds]

    def times(self, kind: Alike) -> NDArray[np.int64]:
        """(N,) how many members of a kind each row takes, if nobody else comes."""
        asks = kind.needs > 0
        if not asks.any():
            return np.full(len(self.left), len(kind.members), np.int64)
        times: NDArray[np.int64] = (self.left[:, asks] // kind.needs[asks]).min(axis=1)
        return times
