"""Pods that do not get a node, or lose it: room given back, queued again, owners told.

What is forgotten gives room back, so pods that were rejected for want of it are told. `reject` and
`error` are the only ways of failing; who was deleted or bound meanwhile is told nothing.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from engine.cache import Cache
from engine.eventhandlers import freed
from engine.framework.status import Code, Status
from engine.measures import Measures, Result
from engine.notices import Notices
from engine.pods.podinfo import PodInfo
from engine.queue import NO_PLUGINS, QueuedPod, SchedulingQueue


@dataclass(eq=False)
class Failures:
    """See the module."""

    cache: Cache
    queue: SchedulingQueue
    notices: Notices
    measures: Measures

    def reject(
        self,
        queued: QueuedPod,
        message: str,
        plugins: frozenset[str],
        nominated: str | None = None,
        *,
        pending: frozenset[str] = NO_PLUGINS,
        alone: bool = False,
    ) -> None:
        """It waits for what these plugins wait for.

        `nominated` is the node it is promised, empty to take that back. `pending` are those of them
        that answered Pending. `alone`: this says nothing of other pods of its class.
        """
        self.measures.ended(queued, Result.UNSCHEDULABLE)
        if self.queue.requeue_rejected(queued, plugins, pending, alone=alone):
            self.nominated(queued.pod, nominated)
            self.notices.report(queued.pod, "Unschedulable", message, nominated)

    def error(self, queued: QueuedPod, message: str) -> None:
        """Something failed, for which it waits its backoff; nothing is promised to it any more."""
        self.measures.ended(queued, Result.ERROR)
        if self.queue.requeue_error(queued):
            self.nominated(queued.pod, "")
            self.notices.report(queued.pod, "SchedulerError", message, nominated="")

    def refused(self, queued: QueuedPod, status: Status, node: str) -> None:
        """A plugin refuses the chosen node, or fails: the pod is queued again."""
        words = " ".join(status.reasons)
        if status.rejected:
            message = f"node {node} was chosen and refused: {words}"
            by = frozenset({status.plugin})
            pending = by if status.code is Code.PENDING else NO_PLUGINS
            self.reject(queued, message, by, nominated="", pending=pending, alone=True)
        else:
            self.error(queued, words)
        self.forget(queued.pod, node)

    def refused_in_cycle(self, queued: QueuedPod, status: Status, node: str) -> None:
        """The same in the cycle in which it was chosen.

        Nobody has seen the room taken, so nobody is told that it is free: two pods that are refused
        would wake each other for ever.
        """
        self.cache.forget(queued.pod.uid)
        self.refused(queued, status, node)

    def dry_run(self, queued: QueuedPod, plugin: str, node: str, *, seen: bool) -> None:
        """A plugin has it that the pod is not bound: it waits until that may be otherwise.

        Without `seen` nobody knows that it had the node; see `refused_in_cycle`.
        """
        if not seen:
            self.cache.forget(queued.pod.uid)
        queued.pretended = True
        if self.queue.requeue_rejected(queued, frozenset({plugin}), alone=True):
            self.nominated(queued.pod, "")
            self.notices.dry_run(queued.pod, node)
        self.forget(queued.pod, node)

    def nominated(self, pod: PodInfo, node: str | None) -> None:
        """The server is told that the pod is promised this node, or none; None: it is not told."""
        if node is not None:
            self.queue.tells(pod.uid, node)
        if node == "":
            self.cache.withdraw(pod.uid)

    def forget(self, pod: PodInfo, node: str, beside: Container[str] = ()) -> None:
        """Takes an assumption back and tells the pods that were rejected for want of the room.

        Not the pod itself, nor those of these UIDs: they were tried together.
        """
        own = pod.uid
        if self.cache.forget(own) or own not in self.queue:  # a pod that is gone is forgotten
            freed(self.queue, pod.pod, node, lambda one: one.uid != own and one.uid not in beside)
