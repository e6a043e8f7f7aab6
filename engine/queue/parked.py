"""Pods that wait for something to happen: rejected ones by class, gated ones by who holds them."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import islice, takewhile
from typing import Final

from engine.clock import Clock
from engine.queue.groups import Group, Groups
from engine.queue.heap import PodHeap
from engine.queue.queued import QueuedPod, SortKey

MOST_LEFTOVER: Final = 1_000
"""Pods parked for too long that are looked at in one go."""

Pods = OrderedDict[QueuedPod, None]
"""Pods in the order in which they were parked; ordered, for a dict's first key is slow to find
after many were deleted. Of rejected ones the group, too."""


class Parked:
    """Keeps the books; `SchedulingQueue` moves the pods, after `most_seconds` whatever happens."""

    def __init__(self, clock: Clock, next_ticket: Callable[[], int], most_seconds: float) -> None:
        self._clock = clock
        self._most_seconds = most_seconds
        # INVARIANT: both are in order of `parked_at`; no plugin holds an empty set of pods.
        self.rejected: OrderedDict[QueuedPod, Group] = OrderedDict()
        self.gated: Pods = OrderedDict()
        self._gated_by: dict[str, Pods] = {}
        self.groups = Groups(next_ticket)
        # Those that the clock alone may wake.
        self._turning = PodHeap(next_ticket)

    def reject(self, queued: QueuedPod, key: Hashable, place: SortKey, turns_at: float) -> Group:
        """Plugins rejected the pod; it is one of the group with this key."""
        self._park(queued, turns_at)
        group = self.rejected[queued] = self.groups.park(queued, key, place)
        return group

    def part(self, queued: QueuedPod, place: SortKey) -> None:
        """A rejected pod may be like others no more: it is a group by itself from now on.

        What was said of its group last was said of it.
        """
        group = self.rejected[queued]
        queued.unschedulable_plugins, queued.pending_plugins = group.plugins, group.pending
        self.groups.take(queued, group)
        self.rejected[queued] = self.groups.park(queued, queued.pod.uid, place)

    def gate(self, queued: QueuedPod, turns_at: float) -> None:
        """`gating_plugin` holds the pod."""
        self._park(queued, turns_at)
        self.gated[queued] = None
        self._gated_by.setdefault(queued.gating_plugin, OrderedDict())[queued] = None

    def _park(self, queued: QueuedPod, turns_at: float) -> None:
        queued.parked_at = self._clock.monotonic()
        queued.turns_at = turns_at
        if turns_at < math.inf:
            self._turning.push((turns_at,), queued)

    def take(self, queued: QueuedPod) -> None:
        """The pod is parked no longer."""
        if queued.turns_at < math.inf:
            self._turning.remove(queued)
            queued.turns_at = math.inf
        if queued in self.rejected:
            self.groups.take(queued, self.rejected.pop(queued))
            return
        del self.gated[queued]
        pods = self._gated_by[queued.gating_plugin]
        del pods[queued]
        if not pods:
            del self._gated_by[queued.gating_plugin]

    def stay(self, queued: QueuedPod) -> None:
        """A rejected pod begins to wait anew."""
        queued.parked_at = self._clock.monotonic()
        self.rejected.move_to_end(queued)

    # ---- who is to be looked at

    def all(self) -> list[Group | QueuedPod]:
        """All groups and gated pods."""
        return [*self.groups, *self.gated]

    def of(self, plugins: Iterable[str]) -> list[Group | QueuedPod]:
        """Groups that any of the plugins rejected, and pods that one holds."""
        if not (self.rejected or self._gated_by):
            return []
        found: list[Group | QueuedPod] = [*self.groups.rejected_by(plugins)]
        for plugin in plugins:
            found += self._gated_by.get(plugin, ())
        return found

    def turned(self) -> list[QueuedPod]:
        """Pods that the clock may wake by now, once."""
        time, found = self._clock.time(), []
        while (queued := self._turning.peek()) is not None and queued.turns_at <= time:
            self._turning.remove(queued)
            queued.turns_at = math.inf
            found.append(queued)
        return found

    def leftover(self, pods: Mapping[QueuedPod, object]) -> Sequence[QueuedPod]:
        """Some of these that have been parked too long; `next_deadline` has passed if any are."""
        if not pods:
            return ()
        now, most = self._clock.monotonic(), self._most_seconds
        over = takewhile(lambda queued: queued.parked_at + most <= now, pods)
        return [*islice(over, MOST_LEFTOVER)]

    def next_deadline(self) -> float:
        """When some are to be looked at, whatever happens (monotonic)."""
        deadlines = [math.inf]
        turning = self._turning.peek()
        if turning is not None:
            left = max(0.0, turning.turns_at - self._clock.time())
            deadlines.append(self._clock.monotonic() + left)
        for pods in (self.rejected, self.gated):
            if pods:
                deadlines.append(next(iter(pods)).parked_at + self._most_seconds)
        return min(deadlines)

    def by_plugin(self) -> Mapping[str, int]:
        """How many pods each plugin has to answer for."""
        counts = Counter(self.groups.plugins())
        counts.update({plugin: len(pods) for plugin, pods in self._gated_by.items()})
        return counts
