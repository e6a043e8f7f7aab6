"""Small clusters for plugin tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.objects import Node, Pod, from_builtins
from engine.pods.podinfo import PodInfo, make_pod_info
from tests.builders import Cache

ROOM = {"cpu": "4", "memory": "8Gi", "pods": "110"}


def make_node(
    name: str,
    allocatable: Mapping[str, Any] = ROOM,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    unschedulable: bool = False,
) -> Node:
    return from_builtins(
        Node,
        {
            "metadata": {"name": name, "labels": dict(labels or {})},
            "spec": {"taints": list(taints), "unschedulable": unschedulable},
            "status": {"allocatable": dict(allocatable)},
        },
    )


def make_pod(name: str = "p", requests: Mapping[str, Any] | None = None, **spec: Any) -> PodInfo:
    containers = spec.pop("containers", None)
    if containers is None:
        containers = [{"name": "c", "resources": {"requests": dict(requests or {})}}]
    status = spec.pop("status", {})
    value = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"containers": containers, **spec},
        "status": status,
    }
    return make_pod_info(from_builtins(Pod, value))


def make_cache(*nodes: Node) -> Cache:
    cache = Cache()
    for node in nodes:
        cache.add_node(node)
    return cache
