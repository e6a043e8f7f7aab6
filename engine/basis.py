"""The inputs of decisions: the profiles in force, the cluster, metrics and the time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol

from engine.cache import Cache
from engine.clock import Clock
from engine.framework.frameworks import Frameworks
from engine.framework.runtime import Framework
from engine.framework.snapshot import Signals, Snapshot
from engine.pods.podinfo import PodInfo
from engine.queue import QueueHooks


class SignalSource(Protocol):
    """Where the metric columns come from; implemented by `engine.signals`."""

    def view(self, cache: Cache, now: float) -> Signals:
        """The columns aligned with the cache's rows as of now."""
        ...


AnyFramework = Framework | Frameworks
"""One framework for all pods, or one for the pods of each profile."""


@dataclass(eq=False)
class Basis:
    """See the module. The framework may be replaced between two cycles."""

    framework: AnyFramework | None
    """None until the first bundle is in force; nothing is scheduled before."""
    cache: Cache
    signals: SignalSource
    clock: Clock

    def framework_of(self, pod: PodInfo) -> Framework:
        """The framework that decides about the pod."""
        assert self.framework is not None
        return self.framework.of(pod)

    def snapshot(self) -> Snapshot:
        """The cluster as of now."""
        now = self.clock.time()
        return self.cache.snapshot(now, self.signals.view(self.cache, now))


def queue_hooks(framework: AnyFramework, newest: Callable[[], Snapshot]) -> QueueHooks:
    """What the queue asks of the profiles, always about the newest snapshot."""
    return QueueHooks(
        lambda pod, queued_at: framework.sort_key(pod, queued_at, newest()),
        lambda pod: framework.pre_enqueue(pod, newest()),
        framework.hints(),
        lambda pod, plugins: framework.recheck_at(pod, newest(), plugins),
        framework.gates_volatile,
        framework.sorter,
        lambda pod: _alike(framework, pod, newest()),
        (lambda pod: framework.kin(pod, newest())) if framework.gangs else None,
    )


def _alike(framework: AnyFramework, pod: PodInfo, snapshot: Snapshot) -> Hashable:
    """A key of pods of which one can be tried for all; None: no other stands for this one.

    Not where keys move: a pod may have been rejected under another one. A nominated pod is tried by
    itself, and which victims a pod may have is no part of its class.
    """
    if snapshot.nominations.node_of(pod.uid):
        return None
    key = None if framework.keys_volatile else framework.class_key(pod, snapshot)
    if framework.gangs:  # what one gang was told says nothing of another
        key = None if key is None else (key, framework.kin(pod, snapshot))
    own = framework.of(pod)
    if key is None or not own.has_post_filter:
        return key
    rescue = own.post_filter_key(pod)
    return None if rescue is None else (key, rescue)
