"""Pods that wait for an event, by the plugins that rejected or hold them, and by class.

Rejected pods of one class are a group, of which one is tried for all; a gated one is by itself:

    asleep ── an event may help ──▶ awake: one of its pods is out, to be tried
    awake  ── that one is rejected, and no event came meanwhile ──▶ asleep
    awake  ── it was placed, failed by itself, backs off or is gone ──▶ awake: the next is out

A group has the rejecting plugins of the pod that was rejected last.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import islice, takewhile
from typing import Final

from engine.clock import Clock
from engine.pods.podinfo import PodInfo
from engine.queue.heap import PodHeap
from engine.queue.hooks import Only, Verdict
from engine.queue.queued import NO_PLUGINS, QueuedPod, SortKey
from engine.text.display import but_digits

MOST_TOLD: Final = 256
"""Pods of a class for which the reasons of one of them are reported."""
MOST_LEFTOVER: Final = 1_000
"""Pods parked for too long that are looked at in one `flush`."""


class Group:
    """Pods of one class that are parked, in order, and the one of them that is out."""

    __slots__ = ("again", "key", "out", "parked", "pending", "plugins", "told")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.parked = PodHeap()
        self.plugins = self.pending = NO_PLUGINS
        self.told = ""
        """The reasons reported last, without digits."""
        self.out: QueuedPod | None = None
        self.again = False
        """An event came that the pod that is out will not be asked about."""

    @property
    def alone(self) -> bool:
        """Whether no other pod can join: the key is the UID of the one that is in it."""
        return isinstance(self.key, str)

    def first(self, only: Only | None = None) -> QueuedPod | None:
        """The first parked pod, or one that an event is about."""
        queued = self.parked.peek()
        if queued is None or only is None or only(queued.pod):
            return queued
        return next((one for one in self.parked if only(one.pod)), None)

    def news(self, rejected: QueuedPod, words: str) -> list[PodInfo]:
        """The pods for which the reasons of a rejected one are to be reported, too.

        Reasons that differ in digits only are equal; `MOST_TOLD` pods at most. A new pod speaks for
        itself alone: otherwise each of a burst might report for all before it.
        """
        words = but_digits(words)
        if self.told == words or (self.told and rejected.rejections == 1):
            return []
        self.told = words
        return [one.pod for one in islice(self.parked, MOST_TOLD) if one is not rejected]


class Parked:
    """An index; `SchedulingQueue` moves the pods, after `most_seconds` without any event."""

    def __init__(self, clock: Clock, most_seconds: float) -> None:
        self._clock = clock
        self._most_seconds = most_seconds
        # INVARIANT: in order of `parked_at`; no dict, whose first key is slow to find after many
        # deletions.
        self.pods: OrderedDict[QueuedPod, Group] = OrderedDict()
        # All groups that have parked pods, by key and by the plugins that rejected or hold them.
        self._groups: dict[Hashable, Group] = {}
        self._by: dict[str, dict[Group, None]] = {}
        # Pods that the clock alone may wake.
        self._turning = PodHeap()

    def park(
        self, queued: QueuedPod, by: Verdict, key: Hashable, place: SortKey, recheck_at: float
    ) -> Group:
        """Plugins rejected the pod, or one holds it; it is one of the group with this key."""
        queued.parked_at = self._clock.monotonic()
        queued.recheck_at = recheck_at
        if recheck_at < math.inf:
            self._turning.push((recheck_at,), queued)
        return self._join(queued, by, key, place)

    def part(self, queued: QueuedPod, place: SortKey) -> None:
        """A rejected pod may no longer be of its class: it is a group by itself from now on.

        It keeps the rejecting plugins of its former group.
        """
        group = self.pods[queued]
        by = queued.unschedulable_plugins, queued.pending_plugins = group.plugins, group.pending
        self._leave(queued, group)
        self._join(queued, by, queued.pod.uid, place)

    def take(self, queued: QueuedPod) -> None:
        """The pod is parked no longer."""
        if queued.recheck_at < math.inf:
            self._turning.remove(queued)
            queued.recheck_at = math.inf
        self._leave(queued, self.pods.pop(queued))

    def stay(self, queued: QueuedPod) -> None:
        """The time of the pod starts anew."""
        queued.parked_at = self._clock.monotonic()
        self.pods.move_to_end(queued)

    def _join(self, queued: QueuedPod, by: Verdict, key: Hashable, place: SortKey) -> Group:
        """The pod joins a group; its rejecting plugins are those of the group from now on."""
        plugins, pending = by
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(key)
        if group.plugins != plugins:
            self._unlist(group)
            group.plugins = plugins
            for plugin in plugins:
                self._by.setdefault(plugin, {})[group] = None
        group.pending = pending
        group.parked.push(place, queued)
        self.pods[queued] = group
        return group

    def _leave(self, queued: QueuedPod, group: Group) -> None:
        """The pod leaves its group; a group without parked pods is forgotten."""
        group.parked.remove(queued)
        if not len(group.parked):
            self._unlist(group)
            del self._groups[group.key]

    def _unlist(self, group: Group) -> None:
        for plugin in group.plugins:
            groups = self._by[plugin]
            del groups[group]
            if not groups:
                del self._by[plugin]

    # ---- reading

    @property
    def groups(self) -> list[Group]:
        """All groups."""
        return list(self._groups.values())

    def of(self, plugins: Iterable[str]) -> list[Group]:
        """Groups that one of the plugins rejected or holds."""
        groups: dict[Group, None] = {}
        for plugin in plugins:
            groups.update(self._by.get(plugin, {}))
        return [*groups]

    def turned(self) -> list[QueuedPod]:
        """Pods whose `recheck_at` is reached, each once."""
        time, found = self._clock.time(), []
        while (queued := self._turning.peek()) is not None and queued.recheck_at <= time:
            self._turning.remove(queued)
            queued.recheck_at = math.inf
            found.append(queued)
        return found

    def leftover(self) -> Sequence[QueuedPod]:
        """Some that have been parked too long; `next_deadline` has passed if any are."""
        if not self.pods:
            return ()
        now, most = self._clock.monotonic(), self._most_seconds
        over = takewhile(lambda queued: queued.parked_at + most <= now, self.pods)
        return [*islice(over, MOST_LEFTOVER)]

    def next_deadline(self) -> float:
        """When some are due without any event (monotonic)."""
        deadlines = [math.inf]
        turning = self._turning.peek()
        if turning is not None:
            left = max(0.0, turning.recheck_at - self._clock.time())
            deadlines.append(self._clock.monotonic() + left)
        if self.pods:
            deadlines.append(next(iter(self.pods)).parked_at + self._most_seconds)
        return min(deadlines)

    def by_plugin(self) -> Mapping[str, int]:
        """How many pods each plugin rejects or holds."""
        return {name: sum(len(one.parked) for one in self._by[name]) for name in self._by}
