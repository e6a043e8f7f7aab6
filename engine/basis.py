"""The inputs of decisions: the profiles in force, the cluster, metrics and the time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol

from engine.cache import Cache
from engine.clock import Clock
from engine.framework.runtime import Framework, Frameworks
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
        sort_key=lambda pod, queued_at: framework.sort_key(pod, queued_at, newest()),
        pre_enqueue=lambda pod: framework.of(pod).pre_enqueue(pod, newest()),
        hints=framework.hints(),
        recheck_at=lambda pod, plugins: framework.of(pod).recheck_at(pod, newest(), plugins),
        gates_volatile=framework.gates_volatile,
        order=framework.sorter,
        class_key=lambda pod: alike(framework, pod, newest()),
        kin=(lambda pod: framework.of(pod).kin(pod, newest())) if framework.gangs else None,
        kin_by=framework.gangs,
    )


def alike(framework: AnyFramework, pod: PodInfo, snapshot: Snapshot) -> Hashable:
    """A key of pods of which one can be tried for all; None: no other stands for this one.

    Not where keys move: a pod may have been rejected under another one. A nominated pod is tried by
    itself, and which victims a pod may have is no part of its class.
    """
    if snapshot.nominations.node_of(pod.uid):
        return None
    own = framework.of(pod)
    key = None if framework.keys_volatile else own.class_key(pod, snapshot)
    if key is None:
        return None
    # What one gang was told says nothing of another, nor one profile of another.
    key = own.profile.scheduler_name, key, own.kin(pod, snapshot)
    if not own.has_post_filter:
        return key
    rescue = own.post_filter_key(pod)
    return None if rescue is None else (key, rescue)
