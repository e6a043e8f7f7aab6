"""Waiting pods for tests of the queue."""

from __future__ import annotations

from engine.framework.snapshot import Snapshot
from engine.objects import ObjectMeta, Pod, PodSpec
from engine.pods.podinfo import PodInfo, make_pod_info
from tests.builders import Cache


def waiting(name: str, *, priority: int = 0, labels: dict[str, str] | None = None) -> PodInfo:
    meta = ObjectMeta(name=name, namespace="ns", uid=name, labels=labels)
    return make_pod_info(Pod(metadata=meta, spec=PodSpec(priority=priority)))


def nothing() -> Snapshot:
    """A cluster without anything in it, for hints."""
    return Cache().snapshot(0.0)
