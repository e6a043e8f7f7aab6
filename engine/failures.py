"""Pods that get no node, or lose it: forgotten by the cache, requeued, reported.

`reject` and `error` are the only ways to fail; nothing is reported of pods that were deleted or
bound meanwhile. Forgetting a pod frees room, which wakes pods that were rejected for lack of it.
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
        """The pod waits until an event may change the answer of one of these plugins.

        `nominated` is its nominated node, "" to take that back, None to leave it. `pending` are the
        plugins that answered Pending. `alone`: this does not hold for other pods of its class.
        """
        self.measures.ended(queued, Result.UNSCHEDULABLE)
        if self.queue.requeue_rejected(queued, plugins, pending, alone=alone):
            self.nominated(queued.pod, nominated)
            self.notices.report(queued.pod, "Unschedulable", message, nominated)

    def error(self, queued: QueuedPod, message: str) -> None:
        """Something failed: the pod backs off and loses its nomination."""
        self.measures.ended(queued, Result.ERROR)
        if self.queue.requeue_error(queued):
            self.nominated(queued.pod, "")
            self.notices.report(queued.pod, "SchedulerError", message, nominated="")

    def refused(self, queued: QueuedPod, status: Status, node: str, *, seen: bool) -> None:
        """A plugin refuses the chosen node, or fails: the pod is requeued.

        Without `seen` no other pod was tried while the room was taken, so none is woken: two pods
        that are refused would wake each other for ever.
        """
        pod, words = queued.pod, " ".join(status.reasons)
        room = self.cache.forget(pod.uid) and seen  # first: gates count it no longer
        if status.rejected:
            message = f"node {node} was chosen and refused: {words}"
            by = frozenset({status.plugin})
            pending = by if status.code is Code.PENDING else NO_PLUGINS
            self.reject(queued, message, by, nominated="", pending=pending, alone=True)
        else:
            self.error(queued, words)
        self._tell(pod, node, room=room)

    def dry_run(self, queued: QueuedPod, plugin: str, node: str, *, seen: bool) -> None:
        """A plugin says that the pod is not to be bound: it waits until that may change.

        For `seen` see `refused`.
        """
        pod, queued.was_dry_run = queued.pod, True
        room = self.cache.forget(pod.uid) and seen  # as above
        if self.queue.requeue_rejected(queued, frozenset({plugin}), alone=True):
            self.nominated(queued.pod, "")
            self.notices.dry_run(queued.pod, node)
        self._tell(pod, node, room=room)

    def nominated(self, pod: PodInfo, node: str | None) -> None:
        """The server will be told of this nomination, or of none (""); None: it will not."""
        if node is not None:
            self.queue.nomination_sent(pod.uid, node)
        if node == "":
            self.cache.withdraw(pod.uid)

    def forget(self, pod: PodInfo, node: str, beside: Container[str] = ()) -> None:
        """Forgets an assumed pod and wakes pods that were rejected for lack of the room.

        Not the pod itself, nor the UIDs `beside`, which were tried with it.
        """
        self._tell(pod, node, beside, room=self.cache.forget(pod.uid))

    def _tell(self, pod: PodInfo, node: str, beside: Container[str] = (), *, room: bool) -> None:
        own = pod.uid
        if room or own not in self.queue:  # a deleted pod is forgotten already
            freed(self.queue, pod.pod, node, lambda one: one.uid != own and one.uid not in beside)
