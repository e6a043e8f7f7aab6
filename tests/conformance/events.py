"""What the scheduler's event handlers make of an API event, for `hint` cases.

Source: kubernetes pkg/scheduler/framework/events.go and eventhandlers.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from engine.framework.events import Action, ClusterEvent, Resource, Seen
from engine.kube.resources import STRUCTS
from engine.objects import Node, from_builtins
from engine.pods.podinfo import PodInfo
from engine.text.quantity import parse

CLUSTER_WIDE = {*("PersistentVolume", "StorageClass", "CSINode", "CSIDriver", "VolumeAttachment")}
Move = tuple[ClusterEvent, Seen, Seen]
_ACTIONS = {"Add": Action.ADD, "Update": Action.UPDATE, "Delete": Action.DELETE}


def moves(
    event: Mapping[str, Any], target: PodInfo, read_pod: Callable[[Mapping[str, Any]], PodInfo]
) -> Iterator[Move]:
    action = _ACTIONS[event["action"]]
    old, new = event.get("old"), event.get("new")
    match event["resource"]:
        case "Pod":
            before = read_pod(old) if old else None
            after = read_pod(new) if new else None
            yield from pod_moves(_alive(before), _alive(after), target)
        case "Node":
            node = from_builtins(Node, old) if old else None
            changed = from_builtins(Node, new) if new else None
            if node is not None and changed is not None:
                for one in node_changes(node, changed):
                    yield ClusterEvent(Resource.NODE, one), node, changed
            else:
                yield ClusterEvent(Resource.NODE, action), node, changed
        case kind if kind in STRUCTS:
            before, after = (None if one is None else read_object(kind, one) for one in (old, new))
            action = Action.UPDATE_OTHER if action is Action.UPDATE else action
            yield ClusterEvent(Resource(kind), action), before, after


def read_object(kind: str, value: Mapping[str, Any]) -> Any:
    """With the namespace and the UID that it has if it does not say."""
    meta = dict(value["metadata"])
    if kind not in CLUSTER_WIDE:
        meta.setdefault("namespace", "default")
    key = f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]
    meta.setdefault("uid", f"uid:{kind}:{key}")
    return from_builtins(STRUCTS[kind], {**value, "metadata": meta})


def pod_moves(before: PodInfo | None, after: PodInfo | None, target: PodInfo) -> Iterator[Move]:
    if before is None or after is None:
        yield from _came_or_gone(before, after, target)
    elif before.pod.spec.node_name:
        for action in pod_changes(before, after):
            yield ClusterEvent(Resource.ASSIGNED_POD, action), before.pod, after.pod
    elif after.pod.spec.node_name:
        yield ClusterEvent(Resource.ASSIGNED_POD, Action.ADD), None, after.pod
    else:
        if after.uid == target.uid:
            for action in pod_changes(before, after):
                yield ClusterEvent(Resource.TARGET_POD, action), before.pod, after.pod
        nominated = before.pod.status.nominated_node_name
        if nominated and nominated != after.pod.status.nominated_node_name:
            yield from _freed(before, target)


def _came_or_gone(before: PodInfo | None, after: PodInfo | None, target: PodInfo) -> Iterator[Move]:
    if after is not None and after.pod.spec.node_name:
        yield ClusterEvent(Resource.ASSIGNED_POD, Action.ADD), None, after.pod
    if before is not None and before.pod.spec.node_name:
        yield ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE), before.pod, None
    elif before is not None and before.pod.status.nominated_node_name:
        yield from _freed(before, target)


def _freed(pod: PodInfo, target: PodInfo) -> Iterator[Move]:
    """A nomination counts as an assignment for pods of lower or equal priority."""
    if target.priority <= pod.priority:
        yield ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE), pod.pod, None


def _alive(pod: PodInfo | None) -> PodInfo | None:
    return None if pod is None or pod.pod.status.phase in ("Succeeded", "Failed") else pod


def pod_changes(before: PodInfo, after: PodInfo) -> list[Action]:
    found = []
    old, new = before.pod, after.pod
    if (old.metadata.labels or {}) != (new.metadata.labels or {}):
        found.append(Action.UPDATE_POD_LABEL)
    if any(r not in after.requests or a > after.requests[r] for r, a in before.requests.items()):
        found.append(Action.UPDATE_POD_SCALE_DOWN)
    if any(r not in before.requests or a > before.requests[r] for r, a in after.requests.items()):
        found.append(Action.UPDATE_POD_SCALE_UP)
    if old.spec.scheduling_gates and not new.spec.scheduling_gates:
        found.append(Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
    if len(old.spec.tolerations or ()) != len(new.spec.tolerations or ()):
        found.append(Action.UPDATE_POD_TOLERATION)
    return found or [Action.UPDATE_OTHER]


def node_changes(old: Node, new: Node) -> list[Action]:
    found = []
    if old.spec.unschedulable and not new.spec.unschedulable:
        found.append(Action.UPDATE_NODE_TAINT)
    if _amounts(old) != _amounts(new):
        found.append(Action.UPDATE_NODE_ALLOCATABLE)
    if (old.metadata.labels or {}) != (new.metadata.labels or {}):
        found.append(Action.UPDATE_NODE_LABEL)
    if (old.spec.taints or []) != (new.spec.taints or []):
        found.append(Action.UPDATE_NODE_TAINT)
    if _conditions(old) != _conditions(new):
        found.append(Action.UPDATE_NODE_CONDITION)
    if (old.metadata.annotations or {}) != (new.metadata.annotations or {}):
        found.append(Action.UPDATE_NODE_ANNOTATION)
    if (old.status.declared_features or []) != (new.status.declared_features or []):
        found.append(Action.UPDATE_NODE_DECLARED_FEATURE)
    return found


def _amounts(node: Node) -> dict[str, int]:
    return {
        name: parse(quantity).nano for name, quantity in (node.status.allocatable or {}).items()
    }


def _conditions(node: Node) -> dict[str, str]:
    return {condition.type: condition.status for condition in node.status.conditions or ()}
