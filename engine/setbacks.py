"""Pods that do not get a node, or lose it: room given back, queued again, owners told.

What is forgotten gives room back, so pods that were rejected for want of it are told.
"""

from __future__ import annotations

from engine.cache import Cache
from engine.eventhandlers import POD_FREED, on_node
from engine.framework.podinfo import PodInfo
from engine.framework.status import Status
from engine.measures import Measures, Result
from engine.notices import Notices
from engine.queue import QueuedPod, SchedulingQueue


class Setbacks:
    """See the module."""

    def __init__(
        self, *, cache: Cache, queue: SchedulingQueue, notices: Notices, measures: Measures
    ) -> None:
        self._cache = cache
        self._queue = queue
        self._notices = notices
        self._measures = measures

    def reject(
        self,
        queued: QueuedPod,
        message: str,
        plugins: frozenset[str],
        nominated: str | None = None,
        *,
        alone: bool = False,
    ) -> None:
        """It waits for what these plugins wait for; `nominated` as in `SetUnschedulable`."""
        self._measures.ended(queued, Result.UNSCHEDULABLE)
        self.fail(queued, "Unschedulable", message, plugins, alone=alone, nominated=nominated)

    def error(self, queued: QueuedPod, message: str) -> None:
        """Something failed, for which it waits its backoff; nothing is promised to it any more."""
        self._measures.ended(queued, Result.ERROR)
        self.fail(queued, "SchedulerError", message, None, nominated="")

    def taken_back(self, queued: QueuedPod, status: Status, node: str) -> None:
        """A plugin refuses the chosen node, or fails: the pod is queued again."""
        words = " ".join(status.reasons)
        if status.rejected:
            self._measures.ended(queued, Result.UNSCHEDULABLE)
            message = f"node {node} was chosen and refused: {words}"
            self.fail(
                queued,
                "Unschedulable",
                message,
                frozenset({status.plugin}),
                alone=True,
                nominated="",
            )
        else:
            self.error(queued, words)
        self.forget(queued.pod, node)

    def at_once(self, queued: QueuedPod, status: Status, node: str) -> None:
        """The same in the cycle in which it was chosen.

        Nobody has seen the room taken, so nobody is told that it is free: two pods that are refused
        would wake each other for ever.
        """
        self._cache.forget(queued.pod.uid)
        self.taken_back(queued, status, node)

    def forget(self, pod: PodInfo, node: str) -> None:
        """Takes an assumption back and tells the pods that were rejected for want of the room."""
        if self._cache.forget(pod.uid):
            there = on_node(pod.pod, node)
            self._queue.move(POD_FREED, there, None, only=lambda other: other.uid != pod.uid)

    def fail(
        self,
        queued: QueuedPod,
        reason: str,
        message: str,
        rejected_by: frozenset[str] | None,
        *,
        alone: bool = False,
        nominated: str | None = None,
    ) -> None:
        """The one way of failing: requeue, tell the user, set the condition if it changes.

        `alone`: it says nothing of other pods of the class. `nominated` is the node it is promised,
        empty to take that back.
        """
        if rejected_by is None:
            kept = self._queue.requeue_error(queued)
        else:
            kept = self._queue.requeue_rejected(queued, rejected_by, alone=alone)
        if not kept:
            return  # deleted or bound meanwhile
        self._notices.report(queued.pod, reason, message, nominated)
