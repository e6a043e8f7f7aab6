"""Pods that wait for an event: rejected ones by class, gated ones by the plugin that holds them.

Rejected pods of one class are a group, of which one is tried for all:

    asleep ── an event may help ──▶ awake: one of its pods is out, to be tried
    awake  ── that one is rejected, and no event came meanwhile ──▶ asleep
    awake  ── it was placed, failed by itself, backs off or is gone ──▶ awake: the next is out

A group has the rejecting plugins of the pod that was rejected last.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import islice, takewhile
from typing import Final

from engine.clock import Clock
from engine.pods.podinfo import PodInfo
from engine.queue.heap import PodHeap
from engine.queue.hooks import Only
from engine.queue.queued import NO_PLUGINS, QueuedPod, SortKey
from engine.text.display import but_digits

MOST_TOLD: Final = 256
"""Pods of a class for which the reasons of one of them are reported."""
MOST_LEFTOVER: Final = 1_000
"""Pods parked for too long that are looked at in one `flush`."""

Pods = OrderedDict[QueuedPod, None]
"""Pods in the order in which they were parked; no dict, whose first key is slow to find after many
deletions."""


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
        # INVARIANT: both are in order of `parked_at`; no plugin holds an empty set of pods.
        self.rejected: OrderedDict[QueuedPod, Group] = OrderedDict()
        self.gated: Pods = OrderedDict()
        self._gated_by: dict[str, Pods] = {}
        # All groups that have parked pods, by key and by the plugins that rejected them.
        self._groups: dict[Hashable, Group] = {}
        self._rejected_by: dict[str, dict[Group, None]] = {}
        # Pods that the clock alone may wake.
        self._turning = PodHeap()

    def reject(self, queued: QueuedPod, key: Hashable, place: SortKey, recheck_at: float) -> Group:
        """Plugins rejected the pod; it is one of the group with this key."""
        self._park(queued, recheck_at)
        return self._join(queued, key, place)

    def part(self, queued: QueuedPod, place: SortKey) -> None:
        """A rejected pod may no longer be of its class: it is a group by itself from now on.

        It keeps the rejecting plugins of its former group.
        """
        group = self.rejected[queued]
        queued.unschedulable_plugins, queued.pending_plugins = group.plugins, group.pending
        self._leave(queued, group)
        self._join(queued, queued.pod.uid, place)

    def gate(self, queued: QueuedPod, recheck_at: float) -> None:
        """`gating_plugin` holds the pod."""
        self._park(queued, recheck_at)
        self.gated[queued] = None
        self._gated_by.setdefault(queued.gating_plugin, OrderedDict())[queued] = None

    def _park(self, queued: QueuedPod, recheck_at: float) -> None:
        queued.parked_at = self._clock.monotonic()
        queued.recheck_at = recheck_at
        if recheck_at < math.inf:
            self._turning.push((recheck_at,), queued)

    def take(self, queued: QueuedPod) -> None:
        """The pod is parked no longer."""
        if queued.recheck_at < math.inf:
            self._turning.remove(queued)
            queued.recheck_at = math.inf
        if queued in self.rejected:
            self._leave(queued, self.rejected.pop(queued))
            return
        del self.gated[queued]
        pods = self._gated_by[queued.gating_plugin]
        del pods[queued]
        if not pods:
            del self._gated_by[queued.gating_plugin]

    def stay(self, queued: QueuedPod) -> None:
        """The time of a rejected pod starts anew."""
        queued.parked_at = self._clock.monotonic()
        self.rejected.move_to_end(queued)

    def _join(self, queued: QueuedPod, key: Hashable, place: SortKey) -> Group:
        """The pod joins a group; its rejecting plugins are those of the group from now on."""
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(key)
        if group.plugins != queued.unschedulable_plugins:
            self._unlist(group)
            group.plugins = queued.unschedulable_plugins
            for plugin in group.plugins:
                self._rejected_by.setdefault(plugin, {})[group] = None
        group.pending = queued.pending_plugins
        group.parked.push(place, queued)
        self.rejected[queued] = group
        return group

    def _leave(self, queued: QueuedPod, group: Group) -> None:
        """The pod leaves its group; a group without parked pods is forgotten."""
        group.parked.remove(queued)
        if not len(group.parked):
            self._unlist(group)
            del self._groups[group.key]

    def _unlist(self, group: Group) -> None:
        for plugin in group.plugins:
            groups = self._rejected_by[plugin]
            del groups[group]
            if not groups:
                del self._rejected_by[plugin]

    # ---- reading

    @property
    def groups(self) -> list[Group]:
        """All groups."""
        return list(self._groups.values())

    def all(self) -> list[Group | QueuedPod]:
        """All groups and gated pods."""
        return [*self.groups, *self.gated]

    def of(self, plugins: Iterable[str]) -> list[Group | QueuedPod]:
        """Groups that one of the plugins rejected, and pods that one holds."""
        if not (self.rejected or self._gated_by):
            return []
        groups: dict[Group, None] = {}
        for plugin in plugins:
            groups.update(self._rejected_by.get(plugin, {}))
        found: list[Group | QueuedPod] = [*groups]
        for plugin in plugins:
            found += self._gated_by.get(plugin, ())
        return found

    def turned(self) -> list[QueuedPod]:
        """Pods whose `recheck_at` is reached, each once."""
        time, found = self._clock.time(), []
        while (queued := self._turning.peek()) is not None and queued.recheck_at <= time:
            self._turning.remove(queued)
            queued.recheck_at = math.inf
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
        """When some are due without any event (monotonic)."""
        deadlines = [math.inf]
        turning = self._turning.peek()
        if turning is not None:
            left = max(0.0, turning.recheck_at - self._clock.time())
            deadlines.append(self._clock.monotonic() + left)
        for pods in (self.rejected, self.gated):
            if pods:
                deadlines.append(next(iter(pods)).parked_at + self._most_seconds)
        return min(deadlines)

    def by_plugin(self) -> Mapping[str, int]:
        """How many pods each plugin rejects or holds."""
        each = self._rejected_by.items()
        counts = Counter({name: sum(len(one.parked) for one in groups) for name, groups in each})
        counts.update({name: len(pods) for name, pods in self._gated_by.items()})
        return counts
