"""What a gang's turn is made of: pods with their nodes, those without, and whom that depends on.

Data, and what of the scheduler gangs need; nothing happens here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from engine.executor import Executor
from engine.framework.acting import GRANTED, NOTHING, Acts, Leave
from engine.framework.decision import Decision, PostFilterResult
from engine.framework.effects import Effect
from engine.framework.gang import Membership
from engine.framework.interface import Permitted
from engine.framework.podinfo import PodInfo
from engine.framework.runtime import Framework
from engine.framework.snapshot import Snapshot
from engine.framework.status import Status
from engine.queue import QueuedPod


@dataclass(slots=True)
class Chosen:
    """A pod with its node, and what is to be done about it."""

    queued: QueuedPod
    decision: Decision
    node: str
    there: Snapshot | None = None
    """The cluster with the pod on its node, where somebody asked about it just now."""
    leave: Leave = GRANTED
    acts: Acts = NOTHING
    executor: Executor | None = None
    pre_bind: Sequence[Effect] = ()

    def undo(self) -> None:
        """Takes back what was reserved."""
        if self.executor is not None:
            self.executor.undo()

    async def take_back(self) -> None:
        """Takes back what was reserved and what was written."""
        if self.executor is not None:
            await self.executor.take_back()


@dataclass(slots=True)
class Refused:
    """A pod that fits on no node, or that a plugin does not let go there with `status`."""

    queued: QueuedPod
    decision: Decision
    status: Status | None = None

    @property
    def why(self) -> str:
        """The reason, as its owner is told."""
        return self.decision.message if self.status is None else " ".join(self.status.reasons)

    @property
    def plugins(self) -> frozenset[str]:
        """Who rejected it."""
        if self.status is not None:
            return frozenset({self.status.plugin})
        fit_error = self.decision.fit_error
        return frozenset() if fit_error is None else fit_error.plugins


class Host(Protocol):
    """The scheduler, as far as gangs need it."""

    def framework_of(self, pod: PodInfo) -> Framework:
        """Who decides about the pod."""
        ...

    def snapshot(self) -> Snapshot:
        """The cluster as of now."""
        ...

    def choose(self, queued: QueuedPod) -> Chosen | Refused:
        """Decides about a pod in flight and gives it its node; nobody else hears of it."""
        ...

    def go(self, chosen: Chosen) -> None:
        """The pod is bound, or held by whoever else lets it wait."""
        ...

    def hold(self, chosen: Chosen, by: Mapping[str, Permitted]) -> None:
        """The pod waits on its node, held by these and by whoever else lets it wait."""
        ...

    def refuse(self, refused: Refused) -> None:
        """The pod is queued again, and its owner told."""
        ...

    def give_back(self, chosen: Chosen, *, tell: bool) -> None:
        """The pod loses its node; `tell` those that were rejected for want of the room."""
        ...

    def reject(
        self,
        queued: QueuedPod,
        message: str,
        plugins: frozenset[str],
        nominated: str | None = None,
    ) -> None:
        """The pod is queued again for these plugins, and its owner told; see `SetUnschedulable`."""
        ...

    def rescue(self, refused: Refused) -> PostFilterResult | None:
        """What is to be done so that the pod fits; None if nobody can say."""
        ...

    def evict(self, pod: PodInfo, rescue: PostFilterResult) -> None:
        """The pod is promised a node, and others are evicted for it."""
        ...


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

    `promised` are the nodes that members were promised before, kept where victims are still going,
    else `broken` with the attempt. `most` is how many members would have nodes at best.
    """

    plugin: str
    gang: Membership
    members: list[QueuedPod]
    rank: tuple[int, float, str]
    reserved: int
    bound: frozenset[str]
    chosen: list[Chosen] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    promised: dict[str, str] = field(default_factory=dict)
    keeps_promises: bool = False
    broken: frozenset[str] = frozenset()
    most: int = 0
    cut_short: bool = False

    @property
    def missing(self) -> float:
        """How many members are missing before the gang may start; none below zero."""
        return max(0.0, self.gang.minimum - self.reserved - len(self.chosen))

    @property
    def started(self) -> bool:
        """Whether enough of them have nodes, and one more than before."""
        return not self.missing and bool(self.chosen)

    @property
    def may_wait(self) -> bool:
        """Whether so few are missing that the others may wait for them."""
        return 0 < self.missing <= self.gang.tolerance * self.gang.minimum


def rank_of(gang: Membership, members: Sequence[PodInfo]) -> tuple[int, float, str]:
    """Of two gangs the one with the greater rank gives way: less important, or else younger."""
    stamps = (one.pod.metadata.creation_timestamp for one in members)
    known = [datetime.fromisoformat(stamp).timestamp() for stamp in stamps if stamp]
    since = [gang.since] if not math.isnan(gang.since) else []
    return -max(one.priority for one in members), min([*since, *known], default=0.0), gang.name
