"""A waiting pod as the queue sees it, and the words for where it waits and why.

Data only; `SchedulingQueue` alone changes it.

Source: kubernetes pkg/scheduler/framework/types.go, QueueingParams and QueuedPodInfo.
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
    """Attempts that ended with plugins saying no."""
    errors: int = 0
    """Attempts that ended in an error, since the last one that did not."""
    unschedulable_plugins: frozenset[str] = NO_PLUGINS
    """Who rejected the last attempt."""
    pending_plugins: frozenset[str] = NO_PLUGINS
    """Those of them that wait for something of their own, and whose word ends the backoff too."""
    gating_plugin: str = ""
    """Who holds it while it is gated."""
    gating_reasons: tuple[str, ...] = ()
    """Why, in that plugin's words."""
    where: SubQueue = SubQueue.ACTIVE

    since: int = field(default=0, repr=False)
    """Where its attempt began in the log of what happens; see `inflight`."""
    newer: PodInfo | None = field(default=None, repr=False)
    """How the pod is by now, if it changed during its attempt."""
    gone: bool = field(default=False, repr=False)
    """Whether it was deleted during its attempt."""
    gated_told_at: float = field(default=0.0, repr=False)
    """When its owner was last told who holds it (monotonic)."""
    pretended: bool = field(default=False, repr=False)
    """Whether its last attempt ended with a dry run of its binding."""
    turns_at: float = field(default=math.inf, repr=False)
    """When the clock alone may change what held or rejected it, while it is parked."""
    parked_at: float = field(default=0.0, repr=False)
    """When it was last found unschedulable or gated (monotonic)."""
    backs_off_until: float = field(default=0.0, repr=False)
    """Start of the last window of the backoff (monotonic); below zero: none."""
    sort_key: SortKey = field(default=(), repr=False)
    told: dict[str, float] = field(default_factory=dict, repr=False)
    """Nodes that the server was told are promised to the pod, "" for none, and when (monotonic)."""
    hooks_version: int = field(default=0, repr=False)
    """The hooks under which the gates last let it pass, by number."""

    @property
    def times(self) -> QueueTimes:
        """What policies may read; the attempt under way does not count yet."""
        tried = self.attempts - (self.where is SubQueue.IN_FLIGHT)
        return QueueTimes(self.queued_at, self.first_attempt_at, tried)
