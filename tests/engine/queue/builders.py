"""Waiting pods for tests of the queue."""

from __future__ import annotations

from engine.framework.podinfo import PodInfo, make_pod_info
from engine.objects import ObjectMeta, Pod, PodSpec


def waiting(name: str, *, priority: int = 0, labels: dict[str, str] | None = None) -> PodInfo:
    meta = ObjectMeta(name=name, namespace="ns", uid=name, labels=labels)
    return make_pod_info(Pod(metadata=meta, spec=PodSpec(priority=priority)))
