"""The queue's pods by the key of their gang: an index, nothing else."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable

from engine.pods.podinfo import PodInfo
from engine.queue.queued import QueuedPod

KinOf = Callable[[PodInfo], Collection[Hashable]]
_NOBODY: dict[QueuedPod, None] = {}


class Kin:
    """Pods by key, in order of arrival."""

    def __init__(self, kin_of: KinOf | None) -> None:
        """`kin_of` gives the keys of a pod; None: no pod belongs to any other."""
        self._kin_of = kin_of
        self._pods: dict[Hashable, dict[QueuedPod, None]] = {}
        self._keys: dict[QueuedPod, Collection[Hashable]] = {}

    def put(self, queued: QueuedPod) -> None:
        """The pod came or changed."""
        if self._kin_of is None:
            return
        keys = self._kin_of(queued.pod)
        if keys == self._keys.get(queued, ()):
            return
        self.drop(queued)
        if keys:
            self._keys[queued] = keys
            for key in keys:
                self._pods.setdefault(key, {})[queued] = None

    def drop(self, queued: QueuedPod) -> None:
        """The pod went."""
        for key in self._keys.pop(queued, ()):
            pods = self._pods[key]
            del pods[queued]
            if not pods:
                del self._pods[key]

    def of(self, key: Hashable) -> Collection[QueuedPod]:
        """The pods with this key."""
        return self._pods.get(key, _NOBODY).keys()
