"""The pods being tried, and what happened meanwhile: so that no event falls between two chairs.

A pod that is rejected at the end of its attempt was not in the queue when an event came that would
have woken it. Events are kept, once for all, while any pod is in flight; each pod knows where in
that log its flight began.

Source: kubernetes pkg/scheduler/backend/queue/active_queue.go, inFlightPods and inFlightEvents.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from engine.framework.events import ClusterEvent, Seen
from engine.framework.podinfo import PodInfo
from engine.queue.hints import Only
from engine.queue.queued import QueuedPod

MOST_HAPPENINGS: Final = 100_000
_FEW: Final = 64


class Happening(NamedTuple):
    """An event, and which pods in flight it concerns: those of `only`, that of `uid`, or all.

    With `changed` it is new rules for these plugins, and concerns the pods that they rejected.
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


class Flight(msgspec.Struct, eq=False):
    """One pod's attempt: since when, and what the API server said of the pod meanwhile."""

    queued: QueuedPod
    since: int
    newer: PodInfo | None = None
    gone: bool = False


class InFlight:
    """Flights by pod UID, in the order of their start, and the log of what happened since."""

    def __init__(self) -> None:
        self._flights: OrderedDict[str, Flight] = OrderedDict()
        self._log: list[Happening] = []
        self._log_start = 0

    def __len__(self) -> int:
        return len(self._flights)

    def get(self, uid: str) -> Flight | None:
        """The pod's flight, if it is in flight."""
        return self._flights.get(uid)

    def start(self, queued: QueuedPod) -> None:
        """The pod was popped."""
        # INVARIANT: flights are in order of `since`, the first one's is the smallest.
        self._flights[queued.pod.pod.metadata.uid] = Flight(
            queued, self._log_start + len(self._log)
        )

    def record(self, happening: Happening) -> None:
        """Keeps it for the pods in flight, if there are any."""
        if not self._flights:
            return
        if len(self._log) >= MOST_HAPPENINGS:
            half = MOST_HAPPENINGS // 2
            del self._log[:half]
            self._log_start += half
        self._log.append(happening)

    def meanwhile(self, flight: Flight) -> Sequence[Happening] | None:
        """What happened during the flight; None if more than is kept."""
        offset = flight.since - self._log_start
        return self._log[offset:] if offset >= 0 else None

    def end(self, uid: str) -> None:
        """The flight is over, however; forgets what no other flight needs."""
        del self._flights[uid]
        if not self._flights:
            self._log_start += len(self._log)
            self._log.clear()
            return
        unneeded = next(iter(self._flights.values())).since - self._log_start
        if unneeded > _FEW and 2 * unneeded > len(self._log):
            del self._log[:unneeded]
            self._log_start += unneeded
