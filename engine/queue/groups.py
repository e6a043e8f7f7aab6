"""Parked pods by class: of pods that nothing tells apart, one is tried for all.

    asleep ── an event may help ──▶ awake: one of its pods is out, to be tried
    awake  ── that one is rejected, and nothing happened meanwhile ──▶ asleep
    awake  ── it was placed, failed by itself, has to wait or is gone ──▶ awake: the next is out

A group has the verdict of the pod that was rejected last. Keeps the books; `SchedulingQueue` moves
the pods.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import islice
from typing import Final

from engine.display import but_digits
from engine.pods.podinfo import PodInfo
from engine.queue.heap import PodHeap
from engine.queue.hints import Only
from engine.queue.queued import NO_PLUGINS, QueuedPod, SortKey

MOST_TOLD: Final = 256
"""Pods whose owners are told what one of their class was rejected for."""


class Group:
    """Pods of one class that are parked, in order, and the one of them that is out."""

    __slots__ = ("again", "key", "out", "parked", "pending", "plugins", "told")

    def __init__(self, key: Hashable, next_ticket: Callable[[], int]) -> None:
        self.key = key
        self.parked = PodHeap(next_ticket)
        self.plugins = self.pending = NO_PLUGINS
        self.told = ""
        """What owners of its pods were told last, but for digits."""
        self.out: QueuedPod | None = None
        self.again = False
        """Something happened that the one that is out will not hear of."""

    def first(self, only: Only | None = None) -> QueuedPod | None:
        """The first parked pod, or one that an event is about."""
        queued = self.parked.peek()
        if queued is None or only is None or only(queued.pod):
            return queued
        return next((one for one in self.parked if only(one.pod)), None)

    def news(self, rejected: QueuedPod, words: str) -> list[PodInfo]:
        """The pods whose owners are to be told, too, why one of the group was rejected.

        Where the words differ in digits only they are the same; `MOST_TOLD` pods at most. A pod
        that is new speaks for itself alone: of a burst each might tell all before it.
        """
        words = but_digits(words)
        if self.told == words or (self.told and rejected.rejections == 1):
            return []
        self.told = words
        return [one.pod for one in islice(self.parked, MOST_TOLD) if one is not rejected]


class Groups:
    """All groups that have parked pods."""

    def __init__(self, next_ticket: Callable[[], int]) -> None:
        self._next_ticket = next_ticket
        self._groups: dict[Hashable, Group] = {}
        self._rejected_by: dict[str, dict[Group, None]] = {}

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    def park(self, queued: QueuedPod, key: Hashable, place: SortKey) -> Group:
        """Adds a pod that was rejected; its verdict is that of its group from now on."""
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(key, self._next_ticket)
        if group.plugins != queued.unschedulable_plugins:
            self._unlist(group)
            group.plugins = queued.unschedulable_plugins
            for plugin in group.plugins:
                self._rejected_by.setdefault(plugin, {})[group] = None
        group.pending = queued.pending_plugins
        group.parked.push(place, queued)
        return group

    def take(self, queued: QueuedPod, group: Group) -> None:
        """Takes a pod out of its group; one without parked pods is none."""
        group.parked.remove(queued)
        if not len(group.parked):
            self._unlist(group)
            del self._groups[group.key]

    def rejected_by(self, plugins: Iterable[str]) -> list[Group]:
        """The groups that any of the plugins rejected, each once."""
        found: dict[Group, None] = {}
        for plugin in plugins:
            found.update(self._rejected_by.get(plugin, {}))
        return list(found)

    def plugins(self) -> dict[str, int]:
        """How many parked pods each plugin has to answer for."""
        return {
            plugin: sum(len(group.parked) for group in groups)
            for plugin, groups in self._rejected_by.items()
        }

    def _unlist(self, group: Group) -> None:
        for plugin in group.plugins:
            groups = self._rejected_by[plugin]
            del groups[group]
            if not groups:
                del self._rejected_by[plugin]
