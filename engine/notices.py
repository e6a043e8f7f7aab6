"""What is reported about waiting pods: Events, and the condition PodScheduled."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from engine.framework.edge import EventSink, PodStatusWriter
from engine.framework.effects import POD_SCHEDULED, Emit, SetUnschedulable, condition, pod_event
from engine.pods.podinfo import PodInfo
from engine.queue import QueuedPod
from engine.text.display import plain

log = logging.getLogger("engine.scheduler")
"""All lines about single pods have this name, so that they can be turned off."""

_MESSAGE: Final = 4096
"""Characters of a condition's message; the API server takes no pod of more than 1.5 MB."""


@dataclass(eq=False)
class Notices:
    """Always emits an Event and sets the condition; the writer skips what is unchanged."""

    statuses: PodStatusWriter
    events: EventSink
    leads: Callable[[], bool]
    """False while another replica decides and reports."""

    def report(self, pod: PodInfo, reason: str, message: str, nominated: str | None = None) -> None:
        """Reports why the pod waits; nothing while another replica leads."""
        if self.leads():
            message = plain(message, _MESSAGE)
            note = pod_event(pod, "Warning", "FailedScheduling", "Scheduling", message)
            self._tell(note, SetUnschedulable(pod, reason, message, nominated))

    def gated(self, queued: QueuedPod) -> None:
        """Reports that a gate holds the pod.

        Not its own `schedulingGates`, as the API server does so. The reason is the same as for
        them, so that kubectl shows SchedulingGated and autoscalers add no nodes for the pod.
        """
        pod = queued.pod
        if pod.pod.spec.scheduling_gates or not self.leads():
            return
        said = _gated(queued)
        why = said.message
        log.info('Gated pod="%s" plugin="%s" reason="%s"', pod.key, queued.gating_plugin, why)
        self._tell(pod_event(pod, "Normal", said.reason, "Gating", why), said)

    def still_gated(self, queued: QueuedPod) -> None:
        """The same when this replica begins to lead; nothing if the condition says so already."""
        if not _gated(queued).is_known:
            self.gated(queued)

    def waits(self, pod: PodInfo, node: str, why: str) -> None:
        """Reports that the pod waits in permit."""
        why = plain(why, _MESSAGE)
        log.info('Waiting in permit pod="%s" node="%s" reason="%s"', pod.key, node, why)
        note = pod_event(pod, "Normal", "WaitingOnPermit", "Permit", why)
        self._tell(note, SetUnschedulable(pod, "WaitingOnPermit", why, nominated=node))

    def expects(self, pod: PodInfo, node: str) -> None:
        """Nominates a pod that will be bound to the node later.

        So autoscalers, and the next scheduler, know that its place is taken.
        """
        if pod.pod.status.nominated_node_name != node:
            self.statuses.set_unschedulable(SetUnschedulable(pod, "", "", nominated=node))

    def dry_run(self, pod: PodInfo, node: str) -> None:
        """Reports that the pod would have been bound, but a rule says dry run."""
        words = f"Would assign {pod.namespace}/{pod.name} to {node}; dry run, nothing was bound"
        note = pod_event(pod, "Normal", "DryRun", "Binding", words)
        self._tell(note, SetUnschedulable(pod, "DryRun", words, nominated=""))

    def _tell(self, note: Emit, condition: SetUnschedulable) -> None:
        self.events.emit(note)
        self.statuses.set_unschedulable(condition)


def _gated(queued: QueuedPod) -> SetUnschedulable:
    why = plain(" ".join(queued.gating_reasons), _MESSAGE)
    return SetUnschedulable(queued.pod, "SchedulingGated", why)


def said(pod: PodInfo) -> str:
    """What the pod's condition says, as far as we have heard."""
    known = condition(pod, POD_SCHEDULED)
    return "" if known is None else known.message
