"""Gangs of which members have nodes and wait in permit for the others, and when gangs failed last.

`Turn` is what is known of a gang that is being tried.

hold ─┬─ enough have nodes ─▶ released, together
├─ the time of one is up, one is gone, too few are left ─▶ all give their nodes back
├─ an older gang can start with their nodes ─▶ the same
├─ its group asks for fewer or more now ─▶ the one or the other
└─ new rules know the gang no longer ─▶ let go, each for itself
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from engine.basis import Basis
from engine.choice import Chosen, Refused
from engine.framework.gang import Membership
from engine.framework.interface import PermitResult
from engine.framework.runtime import PluginError
from engine.framework.status import Code, Status, unschedulable
from engine.objects import Identity
from engine.objects.workloads import GangFailure
from engine.placement import Placement
from engine.pods.podinfo import PodInfo
from engine.policy.podreads import group_of
from engine.queue import QueuedPod, SchedulingQueue
from engine.waitingpods import WaitingPod


@dataclass(slots=True)
class Hold:
    """A gang of which members are held: who they are, and who else there was."""

    plugin: str
    gang: Membership
    rank: tuple[int, float, str]
    uids: set[str]
    bound: frozenset[str]


@dataclass(slots=True)
class Turn:
    """A gang that is being tried.

    `mates` are the members that had nodes when it began, `reserved` how many of them have them yet.
    `promised` are the nodes that members were promised before, with ranks, kept where victims are
    still going, else `broken` with the attempt. `most` is how many members would have nodes at
    best, `emptied` so many with others evicted, `stuck` what then stands in the way of the next.
    `refused` are members by UID. `rescuers` found nobody to evict for one, and may later.
    """

    plugin: str
    gang: Membership
    members: list[QueuedPod]
    rank: tuple[int, float, str]
    mates: frozenset[str]
    reserved: int
    bound: frozenset[str]
    chosen: list[Chosen] = field(default_factory=list)
    refused: dict[str, Refused] = field(default_factory=dict)
    promised: dict[str, tuple[str, int]] = field(default_factory=dict)
    keeps_promises: bool = False
    broken: frozenset[str] = frozenset()
    most: int = 0
    emptied: int = 0
    stuck: str = ""
    rescuers: frozenset[str] = frozenset()
    cut_short: bool = False

    @property
    def missing(self) -> float:
        """How many members are missing before the gang may start; none below zero."""
        return max(0.0, self.gang.minimum - self.reserved - len(self.chosen))

    @property
    def wanted(self) -> int:
        """How many more are to get nodes at once: one at least, for a gang that has started."""
        return max(1, math.ceil(self.gang.minimum) - self.reserved)

    @property
    def placed(self) -> set[str]:
        """The UIDs of those that have nodes by it."""
        return {one.queued.pod.uid for one in self.chosen}

    @property
    def started(self) -> bool:
        """Whether enough of them have nodes, and one more than before."""
        return not self.missing and bool(self.chosen)

    @property
    def may_wait(self) -> bool:
        """Whether so few are missing that the others may wait for them, and they wait at all."""
        few = 0 < self.missing <= self.gang.tolerance * self.gang.minimum
        return few and self.gang.wait_seconds > 0


def rank_of(gang: Membership, members: Sequence[PodInfo]) -> tuple[int, float, str]:
    """Of two gangs the one with the greater rank gives way: less important, or else younger."""
    stamps = (one.pod.metadata.creation_timestamp for one in members)
    known = [datetime.fromisoformat(stamp).timestamp() for stamp in stamps if stamp]
    since = [gang.since] if not math.isnan(gang.since) else []
    return -max(one.priority for one in members), min([*since, *known], default=0.0), gang.name


HOLDER: Final = "gang of "
"""In front of a plugin's name: who holds a pod whose gang is not whole yet."""
_REMEMBERED: Final = 10_000
_FAILURE: Final = GangFailure.__name__


@dataclass(eq=False)
class Holds:
    """See the module. Members are held by `WaitingPods`, one by one; here is what they wait for."""

    basis: Basis
    placement: Placement
    queue: SchedulingQueue

    def __post_init__(self) -> None:
        self._cache = self.basis.cache
        self._waiting_pods = self.placement.waiting_pods
        self._holds: dict[Hashable, Hold] = {}
        self._versions = dict.fromkeys(("PodGroup", "SchedulingPodGroup"), 0)
        """Of the objects of groups, as they were looked at last."""

    def __contains__(self, key: Hashable) -> bool:
        return key in self._holds

    def hold(self, turn: Turn, words: str) -> None:
        """The members that have nodes wait; `words` are what for."""
        gang, plugin = turn.gang, turn.plugin
        by = _waits(plugin, gang, words)
        hold = self._holds.get(gang.key)
        if hold is None:
            hold = self._holds[gang.key] = Hold(plugin, gang, turn.rank, set(), turn.bound)
        hold.uids |= turn.placed
        for one in turn.chosen:
            self.placement.go(one, by)

    def started(self, gang: Membership) -> None:
        """Enough members have nodes: those that waited go."""
        self._forget(gang)
        hold = self._holds.pop(gang.key, None)
        if hold is not None:
            for uid in hold.uids:
                self._waiting_pods.answer(uid, HOLDER + hold.plugin, Status.SUCCESS)

    def end(self, hold: Hold, words: str) -> None:
        """The gang waits no longer: all its members give their nodes back."""
        del self._holds[hold.gang.key]
        self.failed(hold.gang)
        for uid in hold.uids:
            self._waiting_pods.reject(uid, unschedulable(words).by(hold.plugin))
        # Who had no node heard of the room first, and would have the gang take all of it again.
        self.queue.go_behind(hold.gang.key)

    def younger(self, turn: Turn) -> list[Hold]:
        """Gangs that wait and are younger than this one, the youngest first."""
        found = [one for one in self._holds.values() if one.rank > turn.rank]
        return sorted(found, key=lambda one: one.rank, reverse=True)

    def new_rules(self) -> None:
        """Some may be gangs no longer: that is found when their members are asked about."""
        before, self._holds = self._holds, {}
        for hold in before.values():
            found = self._still(hold)
            if found is not None:
                hold.gang = found
                self._holds[found.key] = hold

    def failed(self, gang: Membership) -> None:
        """The gang failed now, which rules may read until it has started."""
        self._forget(gang)  # the newest is to be the last
        identity = Identity(name=gang.name, namespace=gang.namespace)
        self._cache.set_object(GangFailure(identity, self.basis.clock.time()))
        # Nobody tells that a gang is gone for good.
        known = self._cache.store(_FAILURE).objects
        if len(known) > _REMEMBERED:
            self._cache.remove_object(_FAILURE, next(iter(known)))

    def _forget(self, gang: Membership) -> None:
        key = f"{gang.namespace}/{gang.name}"
        if key in self._cache.store(_FAILURE).objects:
            self._cache.remove_object(_FAILURE, key)

    def also(self, held: WaitingPod) -> Mapping[str, PermitResult]:
        """Whether a waiting pod's gang still holds it; `WaitingPods` asks."""
        by = {name: said for name, said in held.by.items() if name.startswith(HOLDER)}
        try:
            found = self._of(held) if by else None
        except PluginError:
            return by
        return by if found is not None and len(found.mates()) + 1 < found.minimum else {}

    def check(self) -> None:
        """Gangs that lost a member while others wait, or ask for more: all give nodes back."""
        if self._holds:
            self._follow_groups()
        for key, hold in list(self._holds.items()):
            lost = self._lost(key, hold)
            if lost is not None:
                self.end(hold, lost)
            elif not hold.uids:
                del self._holds[key]

    def _follow_groups(self) -> None:
        """Those that have enough by what their groups ask for by now start."""
        snapshot, changed, every = self.basis.snapshot(), set[str](), False
        for kind, version in self._versions.items():
            keys = snapshot.objects_changed(kind, version)
            changed.update(keys or ())
            every |= keys is None
            self._versions[kind] = snapshot.objects_version(kind)
        for hold in list(self._holds.values()) if changed or every else ():
            held = [
                one.pod for uid in hold.uids if (one := self._waiting_pods.get(uid)) is not None
            ]
            groups = {f"{one.namespace}/{group_of(one)}" for one in held}
            if not every and changed.isdisjoint(groups):
                continue
            hold.gang = self._still(hold) or hold.gang
            if len(hold.gang.mates()) + 1 >= hold.gang.minimum:
                self.started(hold.gang)

    def _lost(self, key: Hashable, hold: Hold) -> str | None:
        """Why a gang cannot wait any longer; None: it can."""
        for uid in [one for one in hold.uids if self._waiting_pods.get(one) is None]:
            hold.uids.discard(uid)
            if self._cache.node_of(uid) is None:
                return f"{hold.gang.title}: a member that waited was deleted or lost its node"
        there = {one.pod.uid for one in self.queue.kin(key)}
        bound = [uid for uid in hold.bound if self._cache.node_of(uid) is not None]
        size = len(there.union(bound))
        minimum = hold.gang.minimum
        if hold.uids and (size < minimum or minimum != minimum):  # or nothing says it any longer
            return hold.gang.why_stopped(size, resting=False)
        return None

    def _still(self, hold: Hold) -> Membership | None:
        """The gang of members that are held, as it is now; None if it is none any longer."""
        for uid in hold.uids:
            held = self._waiting_pods.get(uid)
            if held is not None:
                with suppress(PluginError):  # told to `on_fault`
                    return self._of(held)
        return None

    def _of(self, held: WaitingPod) -> Membership | None:
        found = self.basis.framework_of(held.pod).gang(held.pod, self.basis.snapshot())
        return None if found is None else found[1]


def waits_alone(plugin: str, gang: Membership) -> Mapping[str, PermitResult]:
    """Who holds one more member, which has its node, while no others are tried."""
    there = len(gang.mates()) + 1
    if there >= gang.minimum:
        return {}
    return _waits(plugin, gang, f"{gang.why_waiting(there)} ({gang.place})")


def _waits(plugin: str, gang: Membership, words: str) -> dict[str, PermitResult]:
    return {HOLDER + plugin: PermitResult(Status(Code.WAIT, (words,), plugin), gang.wait_seconds)}
