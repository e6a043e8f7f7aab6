"""How long a pod waits after a failed attempt: pure functions of its record.

Backoffs end in whole windows of one second, so that pods of one window can be sorted by priority.

Source: kubernetes pkg/scheduler/backend/queue/backoff_queue.go.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from engine.queue.queued import QueuedPod

WINDOW_SECONDS: Final = 1.0
NO_BACKOFF: Final = -math.inf


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubling from `initial_seconds` up to `max_seconds`; a maximum of 0 turns it off."""

    initial_seconds: float = 1.0
    max_seconds: float = 10.0

    def seconds(self, failures: int) -> float:
        """How long to wait after that many failures; 0 for none."""
        if failures <= 0 or self.max_seconds <= 0 or self.initial_seconds <= 0:
            return 0.0
        doublings = failures - 1
        if doublings >= math.log2(self.max_seconds / self.initial_seconds):
            return self.max_seconds
        return math.ldexp(self.initial_seconds, doublings)

    def until(self, failures: int, since: float) -> float:
        """Start of the window in which a backoff that began at `since` ends; NO_BACKOFF if none."""
        seconds = self.seconds(failures)
        if seconds <= 0:
            return NO_BACKOFF
        return math.floor((since + seconds) / WINDOW_SECONDS) * WINDOW_SECONDS


def over_at(queued: QueuedPod) -> float:
    """The moment from which the pod no longer backs off: the end of its last window."""
    return queued.backs_off_until + WINDOW_SECONDS
