"""The pods in flight, and the events that came meanwhile, so that none is missed.

A pod that is rejected at the end of its attempt was not parked when an event came that would have
woken it. So events are logged while any pod is in flight; each pod knows where in the log its
attempt began.

Source: kubernetes pkg/scheduler/backend/queue/active_queue.go, inFlightPods and inFlightEvents.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from engine.framework.events import ClusterEvent, Seen
from engine.pods.podinfo import PodInfo
from engine.queue.hooks import Only
from engine.queue.queued import QueuedPod

MOST_HAPPENINGS: Final = 10_000
"""Each keeps objects as they were, some KiB; a pod may be in flight for minutes, as in PreBind."""
_FEW: Final = 64


class LoggedEvent(NamedTuple):
    """An event, and the pods that it concerns: those of `only`, that of `uid`, or all.

    With `changed`: these plugins have new hooks, which concerns the pods that they rejected.
    """

    event: ClusterEvent
    old: Seen = None
    new: Seen = None
    only: Only | None = None
    uid: str | None = None
    changed: frozenset[str] | None = None

    def concerns(self, pod: PodInfo) -> bool:
        """True if the event is for this pod as far as can be said without hints."""
        if self.uid is not None and self.uid != pod.uid:
            return False
        return self.only is None or self.only(pod)


class InFlightPods:
    """The pods in flight, in the order in which they were popped, and the log of events."""

    def __init__(self) -> None:
        self._flights: OrderedDict[QueuedPod, None] = OrderedDict()
        self._log: list[LoggedEvent] = []
        self._log_start = 0

    def __len__(self) -> int:
        return len(self._flights)

    def __contains__(self, queued: QueuedPod) -> bool:
        return queued in self._flights

    def start(self, queued: QueuedPod) -> None:
        """The pod was popped."""
        # INVARIANT: pods are in order of `since`, the first one's is the smallest.
        queued.since = self._log_start + len(self._log)
        self._flights[queued] = None

    def record(self, happening: LoggedEvent) -> None:
        """Keeps it for the pods in flight, if there are any."""
        if not self._flights:
            return
        if len(self._log) >= MOST_HAPPENINGS:
            half = MOST_HAPPENINGS // 2
            del self._log[:half]
            self._log_start += half
        self._log.append(happening)

    def meanwhile(self, queued: QueuedPod) -> Sequence[LoggedEvent] | None:
        """What happened while the pod was tried; None if more than is kept."""
        offset = queued.since - self._log_start
        return self._log[offset:] if offset >= 0 else None

    def end(self, queued: QueuedPod) -> None:
        """The attempt is over, however; forgets what no other one needs."""
        del self._flights[queued]
        if not self._flights:
            self._log_start += len(self._log)
            self._log.clear()
            return
        unneeded = next(iter(self._flights)).since - self._log_start
        if unneeded > _FEW and 2 * unneeded > len(self._log):
            del self._log[:unneeded]
            self._log_start += unneeded
