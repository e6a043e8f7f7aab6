"""The result of a cycle for a pod: a node and what is to be done there, or a refusal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from engine.executor import Executor
from engine.framework.acting import GRANTED, NOTHING, Acts, Clearance
from engine.framework.decision import Decision
from engine.framework.effects import Effect
from engine.framework.snapshot import Snapshot
from engine.framework.status import Status
from engine.queue import QueuedPod


class Chosen(msgspec.Struct):
    """A pod with its node, and what is to be done about it."""

    queued: QueuedPod
    decision: Decision
    node: str
    there: Snapshot | None = None
    """The cluster with the pod on its node, if plugins were asked about that in this cycle."""
    was_nominated: bool = False
    """The pod was nominated to this node."""
    clearance: Clearance = GRANTED
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
    """A pod that fits on no node, or that a plugin refuses on the chosen one with `status`."""

    queued: QueuedPod
    decision: Decision
    status: Status | None = None

    @property
    def why(self) -> str:
        """The reason, as reported."""
        return self.decision.message if self.status is None else " ".join(self.status.reasons)

    @property
    def plugins(self) -> frozenset[str]:
        """The plugins that rejected it."""
        if self.status is not None:
            return frozenset({self.status.plugin})
        fit_error = self.decision.fit_error
        return frozenset() if fit_error is None else fit_error.plugins
