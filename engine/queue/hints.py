"""The queueing hints of plugins: which plugins registered an event, and what it does to a pod.

A hint that raises counts as QUEUE, as does any answer but SKIP, so that no pod gets stuck.

Source: kubernetes pkg/scheduler/backend/queue/scheduling_queue.go, isPodWorthRequeuing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final

from engine.framework.events import (
    ClusterEvent,
    ClusterEventWithHint,
    QueueingHint,
    Resource,
    Seen,
    never,
)
from engine.framework.snapshot import Snapshot
from engine.pods.podinfo import PodInfo

log = logging.getLogger(__name__)

_SKIP: Final = QueueingHint.SKIP  # CPython 3.11 takes 0.15 us to look up a member
_ANYTHING: Final = Resource.WILDCARD

Only = Callable[[PodInfo], bool]
"""Whether an event concerns a waiting pod at all."""


Asked = tuple[PodInfo, Seen, Seen, Snapshot]
"""The arguments of a hint."""
Verdict = tuple[frozenset[str], frozenset[str]]
"""The plugins that rejected a pod, and those of them that answered Pending."""


class Wake(IntEnum):
    """What an event does to a waiting pod; of several the greatest counts."""

    NOT = 0
    AFTER_BACKOFF = 1
    AT_ONCE = 2


class Registrations:
    """The events that the plugins of the profiles in force registered."""

    def __init__(self, hints: Mapping[str, Sequence[ClusterEventWithHint]]) -> None:
        self._hints = hints
        self._of: dict[ClusterEvent, dict[str, Sequence[ClusterEventWithHint]]] = {}
        self.faults: Counter[str] = Counter()
        """How often a plugin's hint raised."""

    def __contains__(self, plugin: str) -> bool:
        return plugin in self._hints

    def of(self, event: ClusterEvent) -> Mapping[str, Sequence[ClusterEventWithHint]]:
        """The plugins that registered the event, each with how. O(1) after the first time."""
        known = self._of.get(event)
        if known is None:
            known = self._of[event] = {}
            for plugin, each in self._hints.items():
                of = [one for one in each if one.hint is not never and one.event.matches(event)]
                if of:
                    known[plugin] = of
        return known

    def _says_queue(self, plugin: str, each: Sequence[ClusterEventWithHint], asked: Asked) -> bool:
        """True if any of the plugin's hints says QUEUE; no hint counts as QUEUE."""
        try:
            for one in each:
                says, finer = one.hint, one.finer
                if (says is None or says(*asked) is not _SKIP) and (
                    finer is None or finer(*asked) is not _SKIP
                ):
                    return True
        except Exception:
            self.faults[plugin] += 1
            if self.faults[plugin] == 1:
                log.warning("queueing hint of %s failed: queueing", plugin, exc_info=True)
            return True
        return False

    def wake(self, verdict: Verdict, event: ClusterEvent, asked: Asked) -> Wake:
        """What the event does to a pod that plugins rejected."""
        if event.resource is _ANYTHING:
            return Wake.AFTER_BACKOFF
        best = Wake.NOT
        plugins, waiting = verdict
        for plugin, registered in self.of(event).items():
            pending = plugin in waiting
            if plugin not in plugins or (best and not pending):
                continue
            if self._says_queue(plugin, registered, asked):
                if pending:
                    return Wake.AT_ONCE
                best = Wake.AFTER_BACKOFF
        return best
