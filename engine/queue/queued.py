"""A waiting pod as the queue sees it, where it waits and why, and for how long it backs off.

Data only; `SchedulingQueue` alone changes it. Backoffs end in whole windows of one second, so that
pods of one window can be sorted by priority.

Source: kubernetes pkg/scheduler/framework/types.go (QueueingParams, QueuedPodInfo) and
backend/queue/backoff_queue.go.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from engine.framework.snapshot import QueueTimes
from engine.pods.podinfo import PodInfo

NO_PLUGINS: Final[frozenset[str]] = frozenset()
SortKey = tuple[Any, ...]
WINDOW_SECONDS: Final = 1.0
NO_BACKOFF: Final = -math.inf
_MOST_DOUBLINGS: Final = 64


class SubQueue(Enum):
    """Where a pod is. The values are kube-scheduler's names, for metrics and pages."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in_flight"
    WAITING = "waiting"


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A pod between its arrival and its binding; equal only to itself.

    Times are seconds since the epoch, as policies read them, but for those said to be monotonic.
    """

    pod: PodInfo
    added_at: float
    """When the queue first saw it."""
    queued_at: float
    """When it was last put into the queue: on arrival and after each failed attempt, not when an
    event or the end of its backoff moves it. Equal priorities go by it."""
    first_attempt_at: float | None = None
    """When it first became active; until then gates held it."""
    tried_at: float = 0.0
    """When its last attempt began (monotonic)."""
    attempts: int = 0
    """How often it was popped."""
    rejections: int = 0
    """Attempts that plugins rejected."""
    errors: int = 0
    """Attempts that ended in an error, since the last one that did not."""
    unschedulable_plugins: frozenset[str] = NO_PLUGINS
    """The plugins that rejected the last attempt."""
    pending_plugins: frozenset[str] = NO_PLUGINS
    """Those of them that returned Pending; their events skip the backoff."""
    gating_plugin: str = ""
    """The plugin that holds it while it is gated."""
    gating_reasons: tuple[str, ...] = ()
    """The reasons of that plugin."""
    where: SubQueue = SubQueue.ACTIVE

    since: int = field(default=0, repr=False)
    """Where its attempt began in the log of events; see `inflight`."""
    newer: PodInfo | None = field(default=None, repr=False)
    """The newest object, if it changed during the attempt."""
    gone: bool = field(default=False, repr=False)
    """Whether it was deleted during its attempt."""
    gated_told_at: float = field(default=0.0, repr=False)
    """When it was last reported which plugin holds it (monotonic)."""
    was_dry_run: bool = field(default=False, repr=False)
    """Whether its last attempt ended with a dry run of its binding."""
    recheck_at: float = field(default=math.inf, repr=False)
    """When the clock alone may change the answer of a plugin, while it is parked."""
    parked_at: float = field(default=0.0, repr=False)
    """When it was last found unschedulable or gated (monotonic)."""
    backs_off_until: float = field(default=0.0, repr=False)
    """Start of the last window of the backoff (monotonic); below zero: none."""
    sort_key: SortKey = field(default=(), repr=False)
    told: dict[str, float] = field(default_factory=dict, repr=False)
    """Nominations written to the server, "" for none, and when (monotonic)."""
    hooks_version: int = field(default=0, repr=False)
    """The hooks under which the gates last let it pass, by number."""

    @property
    def times(self) -> QueueTimes:
        """What policies may read; the attempt under way does not count yet."""
        tried = self.attempts - (self.where is SubQueue.IN_FLIGHT)
        return QueueTimes(self.queued_at, self.first_attempt_at, tried)

    @property
    def backoff_over_at(self) -> float:
        """The moment from which it no longer backs off (monotonic): the end of its last window."""
        return self.backs_off_until + WINDOW_SECONDS


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubling from `initial_seconds` up to `max_seconds`; a maximum of 0 turns it off."""

    initial_seconds: float = 1.0
    max_seconds: float = 10.0

    def seconds(self, failures: int) -> float:
        """How long to wait after that many failures; 0 for none."""
        if failures <= 0:
            return 0.0
        doubled = math.ldexp(self.initial_seconds, min(failures - 1, _MOST_DOUBLINGS))
        return max(0.0, min(self.max_seconds, doubled))

    def until(self, failures: int, since: float) -> float:
        """Start of the window in which a backoff that began at `since` ends; NO_BACKOFF if none."""
        seconds = self.seconds(failures)
        if seconds <= 0:
            return NO_BACKOFF
        return math.floor((since + seconds) / WINDOW_SECONDS) * WINDOW_SECONDS
