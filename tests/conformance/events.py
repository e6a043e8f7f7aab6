"""What the scheduler's event handlers make of an API event, for `hint` cases.

Source: kubernetes pkg/scheduler/framework/events.go and eventhandlers.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from engine.clusterevents import POD_ASSIGNED, POD_FREED, event_of, node_events, pod_events
from engine.framework.events import Action, ClusterEvent, Resource, Seen
from engine.kube.resources import STRUCTS
from engine.objects import Node, from_builtins
from engine.pods.podinfo import PodInfo

CLUSTER_WIDE = {*("PersistentVolume", "StorageClass", "CSINode", "CSIDriver", "VolumeAttachment")}
Move = tuple[ClusterEvent, Seen, Seen]


def moves(
    event: Mapping[str, Any], target: PodInfo, read_pod: Callable[[Mapping[str, Any]], PodInfo]
) -> Iterator[Move]:
    old, new = event.get("old"), event.get("new")
    match event["resource"]:
        case "Pod":
            before = read_pod(old) if old else None
            after = read_pod(new) if new else None
            yield from pod_moves(_alive(before), _alive(after), target)
        case "Node":
            node = from_builtins(Node, old) if old else None
            changed = from_builtins(Node, new) if new else None
            for one in node_events(node, changed):
                if one.action is not Action.UPDATE_OTHER:  # for policies
                    yield one, node, changed
        case kind if kind in STRUCTS:
            before, after = (None if one is None else read_object(kind, one) for one in (old, new))
            yield event_of(Resource(kind), before, after), before, after


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
        for one in pod_events(before.pod, after.pod):
            yield one, before.pod, after.pod
    elif after.pod.spec.node_name:
        yield POD_ASSIGNED, None, after.pod
    else:
        if after.uid == target.uid:
            for one in pod_events(before.pod, after.pod):
                yield one, before.pod, after.pod
        nominated = before.pod.status.nominated_node_name
        if nominated and nominated != after.pod.status.nominated_node_name:
            yield from _freed(before, target)


def _came_or_gone(before: PodInfo | None, after: PodInfo | None, target: PodInfo) -> Iterator[Move]:
    if after is not None and after.pod.spec.node_name:
        yield POD_ASSIGNED, None, after.pod
    if before is not None and before.pod.spec.node_name:
        yield POD_FREED, before.pod, None
    elif before is not None and before.pod.status.nominated_node_name:
        yield from _freed(before, target)


def _freed(pod: PodInfo, target: PodInfo) -> Iterator[Move]:
    """A nomination counts as an assignment for pods of lower or equal priority."""
    if target.priority <= pod.priority:
        yield POD_FREED, pod.pod, None


def _alive(pod: PodInfo | None) -> PodInfo | None:
    return None if pod is None or pod.pod.status.phase in ("Succeeded", "Failed") else pod
