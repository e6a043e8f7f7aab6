"""The gang of a pod: whether it may start, and where its members fit together.

Planned as a scheduler plans it, on a cluster that changes meanwhile and is as it was afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from engine import gangplan
from engine.cache import Cache
from engine.collective.packing import at_once
from engine.framework.gang import Membership
from engine.framework.runtime import Framework
from engine.framework.snapshot import Snapshot
from engine.pods.podinfo import PodInfo


@dataclass(frozen=True, slots=True)
class Group:
    """A gang: how many other members have a node, and those that do not, the pod first.

    `gated` is how many others are held by a gate, and count no more than if they were not there.
    """

    gang: Membership
    bound: int
    assumed: int
    pods: tuple[PodInfo, ...]
    gated: int = 0

    @property
    def reserved(self) -> int:
        """Members that have a node, but for the pod."""
        return self.bound + self.assumed

    @property
    def wanted(self) -> int:
        """So many have to get a node now for the gang to start, or to wait for the others."""
        needed = self.gang.minimum * (1.0 - self.gang.tolerance)
        return max(1, math.ceil(needed - self.reserved))

    def __str__(self) -> str:
        counts = f"{self.bound} bound, {self.assumed} assumed, {len(self.pods) - 1} pending"
        gated = f", {self.gated} held by a gate" if self.gated else ""
        needed = "" if math.isnan(self.gang.minimum) else f"; {self.gang.minimum:g} are needed"
        return f"{self.gang.name}: the pod, and {counts}{gated}{needed}"


@dataclass(frozen=True, slots=True)
class Start:
    """Where the pod may be when its gang starts, by rows, and why it is nowhere else.

    `never` says that it is not even tried, `waits` that on those rows it waits for members that
    fit nowhere.
    """

    rows: frozenset[int]
    reason: str
    never: bool = False
    waits: bool = False


def group_of(
    pod: PodInfo, waiting: Sequence[PodInfo], snapshot: Snapshot, framework: Framework
) -> Group | None:
    """The gang of the pod, `waiting` being the other pods without a node; None: it is in none.

    Raises:
        PluginError: a plugin raised.
    """
    found = framework.gang(pod, snapshot)
    if found is None:
        return None
    key = framework.kin(pod, snapshot)
    others = [one for one in waiting if framework.kin(one, snapshot) == key]
    pending = [one for one in others if framework.pre_enqueue(one, snapshot).ok]
    mates = [snapshot.pods.pod(row) for row in found[1].mates()]
    bound = sum(bool(one.pod.node_name) for one in mates)
    gated = len(others) - len(pending)
    return Group(found[1], bound, len(mates) - bound, (pod, *pending), gated)


def start_of(
    group: Group, cache: Cache, newest: Callable[[], Snapshot], framework: Framework
) -> Start:
    """Whether and where the gang can start now.

    Raises:
        PluginError: a plugin raised.
    """
    gang, size, snapshot = group.gang, group.reserved + len(group.pods), newest()
    reason = gang.why_stopped(size, resting=snapshot.now < gang.rests_until)
    if reason is not None:
        return Start(frozenset(), reason, never=True)
    homes: Sequence[int] | None = snapshot.pods.node[list(gang.mates())].tolist()
    most, column = group.reserved, gang.domain

    def fits(domains: gangplan.Together) -> bool:
        nonlocal most
        rehearsal = gangplan.Rehearsal(group.pods, cache, newest, lambda _: framework)
        with gangplan.Unpromised(cache, group.pods):
            found = at_once(
                gangplan.plan(
                    group.pods, group.wanted, newest, rehearsal, lambda _: framework, domains
                )
            )
        most = max(most, group.reserved + len(found.rows))
        return found.enough and 0 in found.rows

    rows: set[int] = set()
    if column is None and fits(None):
        rows |= set(np.flatnonzero(snapshot.nodes.present).tolist())
    elif column is None:
        column, homes = gangplan.domain_of_affinity(group.pods, snapshot), None
        if column is not None and not fits((column, homes)):
            column = None  # in none of them, then: there may be one a node
    codes = np.empty(0, np.int32) if column is None else column
    each = np.unique(codes[codes >= 0])
    for code in (each[: gangplan.MOST_DOMAINS] if gang.domain is None else each).tolist():
        inside = codes == code
        if fits((np.where(inside, codes, -1).astype(np.int32), homes)):
            rows |= set(np.flatnonzero(inside).tolist())
    return Start(frozenset(rows), gang.why_unfit(most), waits=most < gang.minimum)
