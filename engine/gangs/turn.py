"""What a gang's turn is made of: pods with their nodes, those without, and whom that depends on.

Data; nothing happens here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from engine.choice import Chosen, Refused
from engine.framework.gang import Membership
from engine.pods.podinfo import PodInfo
from engine.queue import QueuedPod


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
