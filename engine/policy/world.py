"""A snapshot as the language sees it: `dsl.plan.World` and `Subject` over `framework.Snapshot`.

Every field that `dsl.schema` calls available has its reader here; a test holds the two together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, tzinfo
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dsl.functions import parse_time
from dsl.schema import WEEKDAYS, WELL_KNOWN_LABELS
from dsl.types import MISSING
from engine.framework.podinfo import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, PodInfo
from engine.framework.snapshot import (
    BoolColumn,
    CodeColumn,
    Dictionary,
    FloatColumn,
    Snapshot,
    annotation_column,
    label_column,
)
from engine.objects import Container, Node, ResourceList, ResourceRequirements, Toleration
from engine.quantity import resource_amount

DEFAULT_GPUS: Final = ("nvidia.com/gpu", "amd.com/gpu")
_COMPUTE: Final = (CPU, MEMORY)
_RESOURCES: Final = MappingProxyType({CPU: CPU, MEMORY: MEMORY, "storage": EPHEMERAL_STORAGE})

PodNumber = Callable[[PodInfo], float]
PodText = Callable[[PodInfo], str | None]
PodFlag = Callable[[PodInfo], bool]


# ---- pods: the same readers serve the pod to be placed (`pod.x`) and the placed ones (`it.x`) ----


def _limit(pod: PodInfo, resource: str) -> float:
    """Sum of the containers' limits; missing if any container has none, as it is unlimited then."""
    # Limits decide nothing in the scheduler, so they are read when a policy asks, not kept.
    limits = [(c.resources and c.resources.limits) or {} for c in _containers(pod)]
    if not limits or any(resource not in each for each in limits):
        return MISSING
    return float(sum(_amount(each, resource) for each in limits))


def _amount(resources: ResourceList | None, resource: str) -> float:
    """An amount as written in a pod; missing if it cannot be read, 0 if it is not named."""
    try:
        return float(resource_amount(resource, (resources or {}).get(resource, 0)))
    except ValueError:
        return MISSING


def epoch_seconds(text: str | None) -> float:
    """Seconds since the epoch; missing if there is no text or it is no RFC 3339 time."""
    return MISSING if text is None else parse_time(text)


def _controller(pod: PodInfo) -> tuple[str, str] | None:
    for owner in pod.pod.metadata.owner_references or ():
        if owner.controller:
            return owner.kind, owner.name
    return None


def _containers(pod: PodInfo) -> Sequence[Container]:
    return pod.pod.spec.containers or ()


def _tolerates_everything(toleration: Toleration) -> bool:
    return not toleration.key and toleration.operator == "Exists" and not toleration.effect


def _or_none(text: str | None) -> str | None:
    return text or None


def qos_of(pod: PodInfo) -> str:
    """The QoS class: what the server says, else what cpu and memory of the pod make it.

    Source: kubernetes pkg/apis/core/v1/helper/qos/qos.go, ComputePodQOS.
    """
    said = pod.pod.status.qos_class
    if said:
        return said
    spec = pod.pod.spec
    of_all = [c.resources for c in (*_containers(pod), *(spec.init_containers or ()))]
    asked = [_compute(each) for each in (of_all if spec.resources is None else [spec.resources])]
    if not any(amounts for pair in asked for amounts in pair):
        return "BestEffort"
    requested, limited = (_sum(part) for part in zip(*asked, strict=True))
    everywhere = all(len(limits) == len(_COMPUTE) for _, limits in asked)
    return "Guaranteed" if everywhere and requested == limited else "Burstable"


def _compute(of: ResourceRequirements | None) -> tuple[dict[str, float], dict[str, float]]:
    """Requests and limits of cpu and memory above 0; a limit alone is the request too."""
    if of is None:
        return {}, {}
    limits = {name: a for name in _COMPUTE if (a := _amount(of.limits, name)) > 0}
    requests = {name: a for name in _COMPUTE if (a := _amount(of.requests, name)) > 0}
    return limits | requests, limits


def _sum(parts: Iterable[Mapping[str, float]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return total


POD_TEXTS: Final[Mapping[str, PodText]] = MappingProxyType(
    {
        "name": lambda p: p.name,
        "namespace": lambda p: p.namespace,
        "uid": lambda p: p.uid,
        "qos": qos_of,
        "scheduler": lambda p: _or_none(p.pod.spec.scheduler_name),
        "service_account": lambda p: _or_none(p.pod.spec.service_account_name),
        "priority_class": lambda p: _or_none(p.pod.spec.priority_class_name),
        "preemption_policy": lambda p: p.pod.spec.preemption_policy or "PreemptLowerPriority",
        "nominated_node": lambda p: _or_none(p.pod.status.nominated_node_name),
        "owner.kind": lambda p: (_controller(p) or (None, None))[0],
        "owner.name": lambda p: (_controller(p) or (None, None))[1],
        "image": lambda p: _or_none(_containers(p)[0].image) if _containers(p) else None,
        "phase": lambda p: _or_none(p.pod.status.phase),
    }
)
POD_KEYED_TEXTS: Final[Mapping[str, Callable[[PodInfo, str], str | None]]] = MappingProxyType(
    {
        "label": lambda p, key: (p.pod.metadata.labels or {}).get(key),
        "annotation": lambda p, key: (p.pod.metadata.annotations or {}).get(key),
        "node_selector": lambda p, key: (p.pod.spec.node_selector or {}).get(key),
    }
)
POD_NUMBERS: Final[Mapping[str, PodNumber]] = MappingProxyType(
    {
        "priority": lambda p: float(p.priority),
        "created": lambda p: epoch_seconds(p.pod.metadata.creation_timestamp),
        "started_at": lambda p: epoch_seconds(p.pod.status.start_time),
        "cpu": lambda p: float(p.requests.get(CPU, 0)),
        "memory": lambda p: float(p.requests.get(MEMORY, 0)),
        "storage": lambda p: float(p.requests.get(EPHEMERAL_STORAGE, 0)),
    }
)
POD_KEYED_NUMBERS: Final[Mapping[str, Callable[[PodInfo, str], float]]] = MappingProxyType(
    {
        "request": lambda p, key: float(p.requests.get(key, 0)),
        "limit": _limit,
    }
)
POD_FLAGS: Final[Mapping[str, PodFlag]] = MappingProxyType(
    {
        "terminating": lambda p: p.terminating,
        "tolerates_all": lambda p: any(
            _tolerates_everything(t) for t in p.pod.spec.tolerations or ()
        ),
    }
)


def _pod_number(pod: PodInfo, field: str, key: str | None, gpus: Sequence[str]) -> float:
    if field == "gpu":
        return float(sum(pod.requests.get(name, 0) for name in gpus))
    if key is not None:
        return POD_KEYED_NUMBERS[field](pod, key)
    return POD_NUMBERS[field](pod)


def _pod_text(pod: PodInfo, field: str, key: str | None) -> str | None:
    if key is not None:
        return POD_KEYED_TEXTS[field](pod, key)
    return POD_TEXTS[field](pod)


# ---- nodes ---------------------------------------------------------------------------------------


def _ready(node: Node) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in node.status.conditions or ())


def _condition(name: str) -> Callable[[Node], str | None]:
    def status(node: Node) -> str | None:
        for condition in node.status.conditions or ():
            if condition.type == name:
                return condition.status
        return None

    return status


def _tainted(test: str) -> Callable[[Node], bool]:
    key, with_value, value = test.partition("=")

    def tainted(node: Node) -> bool:
        return any(
            t.key == key and (not with_value or t.value == value) for t in node.spec.taints or ()
        )

    return tainted


def _kernel(node: Node) -> str | None:
    return node.status.node_info.kernel_version or None if node.status.node_info else None


class SnapshotWorld:
    """`dsl.plan.World` over one snapshot. Columns made of several are kept until it changes."""

    def __init__(
        self, snapshot: Snapshot, generation: int, gpus: Sequence[str], zone: tzinfo
    ) -> None:
        self.snapshot = snapshot
        self.generation = generation
        self._gpus = gpus
        self._zone = zone
        self._made: dict[str, FloatColumn] = {}

    @property
    def nodes(self) -> int:
        """See `World.nodes`."""
        return self.snapshot.nodes.size

    @property
    def present(self) -> BoolColumn:
        """See `World.present`."""
        return self.snapshot.nodes.present

    @property
    def now(self) -> float:
        """See `World.now`."""
        return self.snapshot.now

    @property
    def dictionary(self) -> Dictionary:
        """See `World.dictionary`."""
        return self.snapshot.dictionary

    @property
    def pod_node(self) -> NDArray[np.int32]:
        """See `World.pod_node`."""
        return self.snapshot.pods.node

    def node_number(self, field: str, key: str | None) -> FloatColumn:
        """See `World.node_number`."""
        name = field if key is None else f"{field} {key}"
        column = self._made.get(name)
        if column is None:
            column = self._made[name] = self._node_number(field, key)
        return column

    def node_text(self, field: str, key: str | None) -> CodeColumn:
        """See `World.node_text`."""
        nodes = self.snapshot.nodes
        if field == "node.name":
            return nodes.name_codes()
        if field == "node.kernel":
            return nodes.text("kernel", _kernel)
        if key is None:
            return nodes.text(*label_column(WELL_KNOWN_LABELS[field]))
        if field == "node.label":
            return nodes.text(*label_column(key))
        if field == "node.annotation":
            return nodes.text(*annotation_column(key))
        if field == "node.condition":
            return nodes.text(f"condition:{key}", _condition(key))
        raise KeyError(field)

    def node_flag(self, field: str, key: str | None) -> BoolColumn:
        """See `World.node_flag`."""
        nodes = self.snapshot.nodes
        if field == "node.unschedulable":
            return nodes.unschedulable
        if field == "node.ready":
            return nodes.flag("ready", _ready)
        if field == "node.taint" and key is not None:
            return nodes.flag(f"taint:{key}", _tainted(key))
        raise KeyError(field)

    def metric(self, name: str) -> FloatColumn:
        """See `World.metric`."""
        return self.snapshot.signals.column(name)

    def metric_age(self, name: str) -> FloatColumn:
        """See `World.metric_age`."""
        return self.snapshot.signals.age(name)

    def pod_number(self, field: str, key: str | None) -> FloatColumn:
        """See `World.pod_number`."""
        name = field.removeprefix("it.")
        gpus = self._gpus
        return self.snapshot.pods.number(
            f"{name} {key}", lambda pod: _pod_number(pod, name, key, gpus)
        )

    def pod_text(self, field: str, key: str | None) -> CodeColumn:
        """See `World.pod_text`."""
        if field == "it.node":
            return self._node_names()
        name = field.removeprefix("it.")
        return self.snapshot.pods.text(f"{name} {key}", lambda pod: _pod_text(pod, name, key))

    def pod_flag(self, field: str, key: str | None) -> BoolColumn:  # noqa: ARG002 - none is keyed
        """See `World.pod_flag`."""
        name = field.removeprefix("it.")
        return self.snapshot.pods.flag(name, POD_FLAGS[name])

    def cycle_number(self, field: str) -> float:
        """See `World.cycle_number`."""
        if field == "now":
            return self.snapshot.now
        if field == "time.hour":
            return float(self._local_time().hour)
        if field == "time.minute":
            return float(self._local_time().minute)
        if field == "cluster.nodes":
            return float(np.count_nonzero(self.present))
        if field.startswith("cluster."):
            column = self.node_number("node." + field.removeprefix("cluster."), None)
            return float(column[self.present].sum())
        raise KeyError(field)

    def cycle_text(self, field: str) -> str | None:
        """See `World.cycle_text`."""
        if field == "time.weekday":
            return WEEKDAYS[self._local_time().weekday()]
        raise KeyError(field)

    # ---- inside ----------------------------------------------------------------------------

    def _node_names(self) -> CodeColumn:
        """(P,) where each pod is; an assumed pod does not say so itself."""
        rows = self.pod_node
        names = self.snapshot.nodes.name_codes()
        return np.where(rows >= 0, names[rows], np.int32(-1)) if len(names) else rows

    def _local_time(self) -> datetime:
        return datetime.fromtimestamp(self.snapshot.now, self._zone)

    def _node_number(self, field: str, key: str | None) -> FloatColumn:
        nodes = self.snapshot.nodes
        if field == "node.created":
            return nodes.number("created", lambda n: epoch_seconds(n.metadata.creation_timestamp))
        if field == "node.pods.capacity":
            return self._amount(PODS, "allocatable")
        if field == "node.pods.free":
            return self._amount(PODS, "free")
        _, kind, part = field.split(".")
        if kind == "gpu":
            parts = [self._amount(name, part) for name in self._gpus]
            return np.sum(parts, axis=0) if parts else np.zeros(nodes.size)
        if kind == "resource" and key is not None:
            amount = self._amount(key, part)
            return np.where(nodes.has_resource(key), amount, np.nan)
        return self._amount(_RESOURCES[kind], part)

    def _amount(self, resource: str, part: str) -> FloatColumn:
        nodes = self.snapshot.nodes
        requested = nodes.pod_count if resource == PODS else nodes.requested(resource)
        if part == "free":
            return (nodes.allocatable(resource) - requested).astype(np.float64)
        if part == "requested":
            return requested.astype(np.float64)
        if part == "allocatable":
            return nodes.allocatable(resource).astype(np.float64)
        return nodes.capacity(resource).astype(np.float64)


class PodSubject:
    """`dsl.plan.Subject` over the pod to be placed and its namespace."""

    __slots__ = ("_gpus", "_pod", "_snapshot")

    def __init__(self, pod: PodInfo, snapshot: Snapshot, gpus: Sequence[str]) -> None:
        self._pod = pod
        self._snapshot = snapshot
        self._gpus = gpus

    def number(self, field: str, key: str | None) -> float:
        """See `Subject.number`."""
        return _pod_number(self._pod, field.removeprefix("pod."), key, self._gpus)

    def text(self, field: str, key: str | None) -> str | None:
        """See `Subject.text`."""
        if field.startswith("namespace."):
            return self._of_namespace(field.removeprefix("namespace."), key)
        return _pod_text(self._pod, field.removeprefix("pod."), key)

    def texts(self, field: str) -> tuple[str, ...]:
        """See `Subject.texts`."""
        if field == "pod.images":
            return tuple([c.image for c in _containers(self._pod) if c.image])
        raise KeyError(field)

    def flag(self, field: str, key: str | None) -> bool:  # noqa: ARG002 - none is keyed
        """See `Subject.flag`."""
        return POD_FLAGS[field.removeprefix("pod.")](self._pod)

    def _of_namespace(self, field: str, key: str | None) -> str | None:
        name = self._pod.namespace
        if field == "name":
            return name
        namespace = self._snapshot.namespaces.get(name)
        if namespace is None:
            # The API server puts this label on every namespace; the object may not be here yet.
            return name if (field, key) == ("label", "kubernetes.io/metadata.name") else None
        meta = namespace.metadata
        values = meta.labels if field == "label" else meta.annotations
        return (values or {}).get(key or "")


def readable_fields() -> Iterator[str]:
    """The schema names that have a reader here; for the test that compares with the table."""
    yield from ("now", "time.hour", "time.minute", "time.weekday", "cluster.nodes", "cluster.pods")
    parts = ("capacity", "allocatable", "requested", "free")
    for kind in ("cpu", "memory", "gpu"):
        yield from (f"cluster.{kind}.{part}" for part in parts[1:])
    pod = {*POD_TEXTS, *POD_KEYED_TEXTS, *POD_NUMBERS, *POD_KEYED_NUMBERS, *POD_FLAGS, "gpu"}
    yield from (f"it.{field}" for field in pod)
    yield from (f"pod.{field}" for field in pod - {"phase", "terminating", "started_at"})
    yield from ("it.node", "pod.images")
    yield from ("namespace.name", "namespace.label", "namespace.annotation")
    yield from ("node.name", "node.kernel", "node.label", "node.annotation", "node.condition")
    yield from WELL_KNOWN_LABELS
    yield from ("node.taint", "node.ready", "node.unschedulable", "node.created")
    for kind in ("cpu", "memory", "storage", "gpu", "resource"):
        yield from (f"node.{kind}.{part}" for part in parts)
    yield from ("node.pods.capacity", "node.pods.free", "node.pods", "zone.pods", "region.pods")
