"""Queueing hints that several plugins share.

Where an object came or went, so that there is nothing to compare, they say QUEUE: when in doubt, a
pod is tried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from engine.framework.events import (
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    HintFn,
    QueueingHint,
    Resource,
    Seen,
)
from engine.framework.snapshot import Snapshot
from engine.objects import Pod
from engine.pods.podinfo import PodInfo

T = TypeVar("T")


def on(
    resource: Resource,
    action: Action,
    hint: HintFn | None = None,
    finer: HintFn | None = None,
    *,
    ours: bool = False,
) -> ClusterEventWithHint:
    """A registration."""
    return ClusterEventWithHint(ClusterEvent(resource, action), hint, finer, ours)


def queue_if(helps: object) -> QueueingHint:
    """QUEUE if it helps, SKIP if not."""
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def always(pod: PodInfo, before: Seen, after: Seen, snapshot: Snapshot) -> QueueingHint:
    """QUEUE, whatever happened; kube-scheduler has such a function, too."""
    return QueueingHint.QUEUE


def gone(kind: type[T], helps: Callable[[PodInfo, T], object]) -> HintFn:
    """By the object as it was before."""

    def hint(pod: PodInfo, before: Seen, after: Seen, snapshot: Snapshot) -> QueueingHint:
        return queue_if(not isinstance(before, kind) or helps(pod, before))

    return hint


def now(kind: type[T], helps: Callable[[PodInfo, T | None, T], object]) -> HintFn:
    """By the object as it is now, and as it was if it was there."""

    def hint(pod: PodInfo, before: Seen, after: Seen, snapshot: Snapshot) -> QueueingHint:
        if not isinstance(after, kind):
            return QueueingHint.QUEUE
        return queue_if(helps(pod, before if isinstance(before, kind) else None, after))

    return hint


def changed(kind: type[T], helps: Callable[[PodInfo, T, T], object]) -> HintFn:
    """By the object before and after."""
    return now(kind, lambda pod, before, after: before is None or helps(pod, before, after))


def differs(kind: type[T], of: Callable[[T], object]) -> HintFn:
    """By what is read of the object: QUEUE if that has changed."""
    return changed(kind, lambda _, before, after: of(before) != of(after))


def placed(pod: Pod) -> bool:
    """Whether the pod is on a node or nominated to one."""
    return bool(pod.node_name or pod.status.nominated_node_name)
