"""Effects as data: what a plugin or the scheduler wants done to the cluster.

Plugins return effects; the scheduler and its executor carry them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import msgspec

from engine.framework.snapshot import Snapshot
from engine.framework.status import Status
from engine.objects import Condition, Described
from engine.pods.podinfo import PodInfo

POD_SCHEDULED: Final = "PodScheduled"


def condition(pod: PodInfo, kind: str) -> Condition | None:
    """The condition of that type, None if there is none yet."""
    return next((one for one in pod.pod.status.conditions or () if one.type == kind), None)


class Bind(msgspec.Struct, frozen=True):
    """Bind the pod to the node; the UID guards against a pod of the same name.

    The API server copies `annotations` of the Binding onto the pod.
    """

    pod: PodInfo
    node: str
    annotations: Mapping[str, str] = {}  # each has one of its own


@dataclass(frozen=True, slots=True)
class SetUnschedulable:
    """Set the condition PodScheduled=False.

    `reason` is Unschedulable (rejected), SchedulerError (an error of ours) or SchedulingGated (held
    before the queue): cluster autoscalers read it. `nominated` is written to
    `status.nominatedNodeName` with it; None leaves that as it is, "" takes it back. Without a
    `reason` the condition stays, and only that is written.
    """

    pod: PodInfo
    reason: str
    message: str
    nominated: str | None = None

    @property
    def is_known(self) -> bool:
        """Whether the newest pod object from the server has it already."""
        status = self.pod.pod.status
        known = condition(self.pod, POD_SCHEDULED)
        if known is None or self.nominated not in (None, status.nominated_node_name):
            return False
        return (known.status, known.reason, known.message) == ("False", self.reason, self.message)


class Emit(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Emit an Event about an object."""

    kind: str
    namespace: str
    name: str
    uid: str
    type: str
    reason: str
    action: str
    note: str
    by: str = ""
    """The schedulerName of the profile that reports it; empty: that of the process."""


@dataclass(frozen=True, slots=True)
class Evict:
    """Delete the pod, by its UID, to make room; the condition DisruptionTarget is set before.

    A victim whose own binding is still being prepared is cancelled instead.
    """

    pod: PodInfo
    preemptor: PodInfo
    message: str


@dataclass(frozen=True, slots=True)
class AssumeObject:
    """Let the store of the kind show this object until the watch brings a newer one.

    Undone by showing the server's again.
    """

    kind: str
    key: str
    value: Described
    by: str = field(default="", compare=False)
    """The point and the plugin that returned it, for messages; set by the framework."""


@dataclass(frozen=True, slots=True)
class Patch:
    """Write a merge patch of an object of any kind; its resource version guards it if given.

    `undo` is the patch that takes it back if the pod fails afterwards; None: it stays.
    """

    kind: str
    namespace: str
    name: str
    body: Mapping[str, Any]
    undo: Mapping[str, Any] | None = None
    by: str = field(default="", compare=False)
    """As of `AssumeObject`."""


@dataclass(frozen=True, slots=True)
class Await:
    """Wait until `check` returns Success; it does not count among the bindings in flight.

    Checked again whenever an object of one of `kinds` changes. The pod fails at any other code but
    Pending, and after the timeout.
    """

    what: str
    check: Callable[[Snapshot], Status]
    kinds: frozenset[str]
    timeout_seconds: float
    by: str = field(default="", compare=False)
    """As of `AssumeObject`."""


AtOnce = AssumeObject | Emit
"""The effects of `reserve` that need no waiting."""

Effect = AssumeObject | Patch | Await | Emit
"""The effects of `reserve` and `pre_bind`; evictions are those of `post_filter`."""


_AnyEffect = TypeVar("_AnyEffect", bound=Effect)


def named(effects: Iterable[_AnyEffect], by: str) -> list[_AnyEffect]:
    """The same effects, with the point and the plugin that returned them."""
    return [one if isinstance(one, Emit) else replace(one, by=by) for one in effects]


def set_on_pod(
    pod: PodInfo, labels: Mapping[str, str], annotations: Mapping[str, str] | None = None
) -> Patch:
    """Labels and annotations of a pod set by a patch, and what they were to take it back."""
    meta = pod.pod.metadata
    sets: dict[str, Any] = {"uid": pod.uid}
    undo: dict[str, Any] = {"uid": pod.uid}
    for field_, values, there in (
        ("labels", labels, meta.labels),
        ("annotations", annotations, meta.annotations),
    ):
        if values:
            sets[field_] = dict(values)
            undo[field_] = {key: (there or {}).get(key) for key in values}
    body, back = {"metadata": sets}, {"metadata": undo}
    return Patch("Pod", pod.namespace, pod.name, body, undo=back)


def pod_event(
    pod: PodInfo, kind: str, reason: str, action: str, note: str, by: PodInfo | None = None
) -> Emit:
    """An Event about a pod; `kind` is Normal or Warning.

    As kube-scheduler's it comes from the profile of the pod that is placed: `by`, or this one.
    """
    profile = (by or pod).pod.spec.scheduler_name
    return Emit("Pod", pod.namespace, pod.name, pod.uid, kind, reason, action, note, profile)
