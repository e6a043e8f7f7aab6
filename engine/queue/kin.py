"""The queue's pods by the key of their gang: an index, nothing else."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable

from engine.pods.podinfo import PodInfo
from engine.queue.queued import QueuedPod

KinOf = Callable[[PodInfo], Hashable]


class Kin:
    """Pods by key, in order of arrival."""

    def __init__(self, kin_of: KinOf | None) -> None:
        """`kin_of` gives the key of a pod, None if it has none; None: no pod has any."""
        self._kin_of = kin_of
        self._pods: dict[Hashable, dict[QueuedPod, None]] = {}
        self._keys: dict[QueuedPod, Hashable] = {}

    def put(self, queued: QueuedPod) -> None:
        """The pod came or changed."""
        key = None if self._kin_of is None else self._kin_of(queued.pod)
        if key != self._keys.get(queued):
            self.drop(queued)
            if key is not None:
                self._keys[queued] = key
                self._pods.setdefault(key, {})[queued] = None

    def drop(self, queued: QueuedPod) -> None:
        """The pod went."""
        key = self._keys.pop(queued, None)
        if key is not None:
            pods = self._pods[key]
            del pods[queued]
            if not pods:
                del self._pods[key]

    def of(self, key: Hashable) -> Collection[QueuedPod]:
        """The pods with this key."""
        return self._pods.get(key, {}).keys()
