"""An object before and after a change -> what a pod is to us, and the events that wake pods.

Looks at the two objects alone.

Finer than kube-scheduler: the echo of our own writes (conditions and nomination of a waiting pod)
is told apart; node changes that kube-scheduler has no event for are Node/Update.

Source: kubernetes pkg/scheduler/framework/events.go.
"""

from __future__ import annotations

from collections.abc import Container
from enum import Enum
from typing import Any, Final

import msgspec

from engine.framework.events import Action, ClusterEvent, Resource, Seen
from engine.objects import Node, Pod
from engine.pods.legible import amounts, as_far_as_legible
from engine.pods.podinfo import resize_is_infeasible

POD_ASSIGNED: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)
POD_FREED: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
NOMINATION_ENDED: Final = ClusterEvent(Resource.NOMINATION, Action.DELETE)
POD_OTHERWISE: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_OTHER)

TERMINAL: Final = frozenset({"Succeeded", "Failed"})
_NODE_STATUS_WITH_EVENTS: Final = frozenset({"allocatable", "conditions", "declared_features"})
_NODE_SPEC_WITH_EVENTS: Final = frozenset({"taints"})

_METADATA: Final = frozenset({"metadata"})
_VERSIONS: Final = frozenset({"resource_version", "generation"})


class Place(Enum):
    """What a pod is to us."""

    ASSIGNED = "A"
    PENDING = "P"
    NEITHER = "-"


ASSIGNED, PENDING, NEITHER = Place  # CPython 3.11 takes 0.1 us to look up a member


def place_of(pod: Pod, scheduler_names: Container[str]) -> Place:
    """Where a pod belongs, by itself."""
    if pod.status.phase in TERMINAL:
        return NEITHER
    if pod.bound_to or pod.spec.node_name:
        return ASSIGNED
    ours = pod.spec.scheduler_name in scheduler_names
    return PENDING if ours and pod.metadata.deletion_timestamp is None else NEITHER


def event_of(resource: Resource, old: Seen, new: Seen) -> ClusterEvent:
    """The event of a kind whose updates are not told apart."""
    if old is None or new is None:
        return ClusterEvent(resource, Action.DELETE if new is None else Action.ADD)
    return ClusterEvent(resource, Action.UPDATE_OTHER)


def on_node(pod: Pod, node: str) -> Pod:
    """The pod with this node, even if it was only assumed there: hints look at that."""
    if pod.node_name:
        return pod
    return msgspec.structs.replace(pod, bound_to=node)


def pod_events(old: Pod, new: Pod) -> tuple[ClusterEvent, ...]:
    """The finer events of a change of a pod; AssignedPod/Update or TargetPod/Update without any."""
    actions: list[Action] = []
    if (old.metadata.labels or {}) != (new.metadata.labels or {}):
        actions.append(Action.UPDATE_POD_LABEL)
    if not _resources_untouched(old, new):
        before, after = as_far_as_legible(old).requests, as_far_as_legible(new).requests
        if any(amount > after.get(name, -1) for name, amount in before.items()):
            actions.append(Action.UPDATE_POD_SCALE_DOWN)
        if any(amount > before.get(name, -1) for name, amount in after.items()):
            actions.append(Action.UPDATE_POD_SCALE_UP)
    if old.spec.scheduling_gates and not new.spec.scheduling_gates:
        actions.append(Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
    if len(old.spec.tolerations or ()) != len(new.spec.tolerations or ()):
        actions.append(Action.UPDATE_POD_TOLERATION)
    resource = Resource.ASSIGNED_POD if new.node_name else Resource.TARGET_POD
    return tuple([ClusterEvent(resource, action) for action in actions or [Action.UPDATE_OTHER]])


def _resources_untouched(old: Pod, new: Pod) -> bool:
    before, after = old.status, new.status
    return (
        old.spec == new.spec
        and before.container_statuses == after.container_statuses
        and before.init_container_statuses == after.init_container_statuses
        and before.allocated_resources == after.allocated_resources
        and before.resources == after.resources
        and resize_is_infeasible(old) == resize_is_infeasible(new)
    )


def node_events(old: Node | None, new: Node | None) -> tuple[ClusterEvent, ...]:
    """Node/Add, Node/Delete, or the finer events of a change; none if nobody reads what changed.

    Uncordoning counts as a change of taints, cordoning as none. Of conditions only the status
    counts. Anything else that a policy may read is Node/Update.
    """
    if old is None or new is None:
        return (event_of(Resource.NODE, old, new),)
    actions: list[Action] = []
    uncordoned = old.spec.unschedulable and not new.spec.unschedulable
    if uncordoned or (old.spec.taints or []) != (new.spec.taints or []):
        actions.append(Action.UPDATE_NODE_TAINT)
    if amounts(old.status.allocatable) != amounts(new.status.allocatable):
        actions.append(Action.UPDATE_NODE_ALLOCATABLE)
    if (old.metadata.labels or {}) != (new.metadata.labels or {}):
        actions.append(Action.UPDATE_NODE_LABEL)
    if _condition_statuses(old) != _condition_statuses(new):
        actions.append(Action.UPDATE_NODE_CONDITION)
    if (old.metadata.annotations or {}) != (new.metadata.annotations or {}):
        actions.append(Action.UPDATE_NODE_ANNOTATION)
    if (old.status.declared_features or []) != (new.status.declared_features or []):
        actions.append(Action.UPDATE_NODE_DECLARED_FEATURE)
    if _differs(old.spec, new.spec, _NODE_SPEC_WITH_EVENTS) or _differs(
        old.status, new.status, _NODE_STATUS_WITH_EVENTS
    ):
        actions.append(Action.UPDATE_OTHER)
    return tuple([ClusterEvent(Resource.NODE, action) for action in actions])


def _differs(old: msgspec.Struct, new: msgspec.Struct, but_for: frozenset[str]) -> bool:
    if old == new:
        return False
    fields = old.__struct_fields__
    return any(getattr(old, f) != getattr(new, f) for f in fields if f not in but_for)


def _condition_statuses(node: Node) -> dict[str, str]:
    return {condition.type: condition.status for condition in node.status.conditions or ()}


def is_echo(old: Pod, new: Pod) -> bool:
    """Whether nothing changed but what schedulers write: conditions and nomination."""
    status = msgspec.structs.replace(
        old.status,
        conditions=new.status.conditions,
        nominated_node_name=new.status.nominated_node_name,
    )
    return not has_changed(msgspec.structs.replace(old, status=status), new)


def has_changed(old: Any, new: Any) -> bool:  # noqa: ANN401 - any struct with metadata, or None
    """Whether anything of an object changed that is read; a heartbeat changes nothing."""
    if old is None or new is None:
        return True
    return _differs(old.metadata, new.metadata, _VERSIONS) or _differs(old, new, _METADATA)
