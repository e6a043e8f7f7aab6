"""Small objects for tests: `make_node("n", cpu="4")`, `make_pod("p", cpu="1")`."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import structs

from dsl.plan import MetricSpec
from engine.cache import cache
from engine.configuration.scheduler import ProfileDocument
from engine.framework.decision import Decision
from engine.framework.keycolumn import TIE_BITS
from engine.framework.profile import Weighted
from engine.framework.runtime import Framework
from engine.framework.snapshot import Signals, Snapshot
from engine.objects import Node, Pod, from_builtins
from engine.plugins.profiles import make_profile
from engine.pods.podinfo import PodInfo, make_pod_info
from engine.simulate.samples import Samples

Given = dict[str, tuple[float, float, float]]
"""By plugin: the raw score of a node, the normalised one, and the weight."""


class Cache(cache.Cache):
    """A cache whose snapshots have no metrics, unless somebody gives them."""

    def snapshot(self, now: float, signals: Signals | None = None) -> cache.Snapshot:
        return super().snapshot(now, signals or Samples().view(self, now))


def default_plugins() -> tuple[Weighted, ...]:
    """The default profile's plugins, new ones."""
    return tuple(make_profile(ProfileDocument()).plugins)


def make_node(
    name: str,
    *,
    cpu: str = "4",
    memory: str = "8Gi",
    pods: str = "110",
    labels: dict[str, str] | None = None,
    taints: list[dict[str, str]] | None = None,
    unschedulable: bool = False,
    **resources: str,
) -> Node:
    amounts = {"cpu": cpu, "memory": memory, "pods": pods, **resources}
    return from_builtins(
        Node,
        {
            "metadata": {"name": name, "uid": f"node-{name}", "labels": labels or {}},
            "spec": {"taints": taints or [], "unschedulable": unschedulable},
            "status": {"allocatable": amounts, "capacity": amounts},
        },
    )


def pod_object(
    name: str,
    *,
    namespace: str = "default",
    cpu: str | None = None,
    memory: str | None = None,
    node: str = "",
    scheduler: str = "berth",
    priority: int = 0,
    labels: dict[str, str] | None = None,
    uid: str = "",
    deleted: str | None = None,
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
) -> Pod:
    requests = {k: v for k, v in (("cpu", cpu), ("memory", memory)) if v is not None}
    return from_builtins(
        Pod,
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": uid or f"uid-{namespace}-{name}",
                "labels": labels or {},
                "deletionTimestamp": deleted,
            },
            "spec": {
                "nodeName": node,
                "schedulerName": scheduler,
                "priority": priority,
                "containers": [{"name": "main", "resources": {"requests": requests}}],
                **(spec or {}),
            },
            "status": status or {},
        },
    )


def changed(thing: Any, **parts: dict[str, Any]) -> Any:
    """An object as it is with other values: `changed(pod, metadata={"labels": {}})`."""
    new = {name: structs.replace(getattr(thing, name), **part) for name, part in parts.items()}
    return structs.replace(thing, **new)


def make_metric(id: str, query: str, by: tuple[str, ...] = (), **how: Any) -> MetricSpec:
    """A metric whose values are found `by` these labels, or by those that are usual."""
    usual = {"name": "", "every_seconds": 15.0, "stale_seconds": 120.0, "default": None, "unit": ""}
    return MetricSpec(id=id, query=query, by=None, keys=by, **{**usual, **how})


def make_pod(name: str, **how: Any) -> PodInfo:
    return make_pod_info(pod_object(name, **how))


def scored(decision: Decision, snapshot: Snapshot, framework: Framework) -> tuple[int, Given]:
    """How many nodes have the best total, and what the chosen one got, if nodes were scored."""
    if decision.feasible <= 1:
        return 0, {}
    pod = decision.pod
    known = framework.class_of(pod, snapshot)
    rows = framework.candidates(known, pod, snapshot)
    steps = framework.keys(known, pod, snapshot, rows) >> TIE_BITS
    at = int(np.searchsorted(rows, decision.row))
    each = framework.scores(pod, snapshot, rows)
    given = {name: (float(raw[at]), float(to[at]), weight) for name, weight, raw, to in each}
    return int(np.count_nonzero(steps == steps.max())), given
