"""Effects as data: what a plugin or the scheduler wants done to the cluster.

Returned, never performed, by the pure rooms; `engine.scheduler` performs, records and undoes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.framework.podinfo import PodInfo


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind the pod to the node; the UID guards against a pod of the same name.

    The API server copies `annotations` of the Binding onto the pod.
    """

    pod: PodInfo
    node: str
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SetUnschedulable:
    """Set the condition PodScheduled=False.

    `reason` is Unschedulable (rejected), SchedulerError (an error of ours) or SchedulingGated (held
    before the queue): cluster autoscalers read it.
    """

    pod: PodInfo
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Emit:
    """Emit an Event about an object."""

    kind: str
    namespace: str
    name: str
    uid: str
    type: str
    reason: str
    action: str
    note: str


def pod_event(pod: PodInfo, kind: str, reason: str, action: str, note: str) -> Emit:
    """An Event about a pod; `kind` is Normal or Warning."""
    return Emit("Pod", pod.namespace, pod.name, pod.uid, kind, reason, action, note)
