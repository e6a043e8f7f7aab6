"""A snapshot as the language sees it: `dsl.plan.World` over `framework.Snapshot`.

So is the pod to be placed: `dsl.plan.Subject` over a pod and its snapshot. Every field that
`dsl.schema` calls available has its reader here; a test holds the two together.
"""

# ruff: noqa: D102 - what is public in its classes is told in `dsl.world`

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, tzinfo
from ipaddress import ip_network
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from dsl.quantities import parse_number, parse_time
from dsl.schema import AMOUNTS, FIELDS, OF_THE_QUEUE, WEEKDAYS, WELL_KNOWN_LABELS
from dsl.types import MISSING, Kind, Level
from dsl.world import Part
from engine.framework.interface import Plugin
from engine.framework.snapshot import (
    BoolColumn,
    CodeColumn,
    FloatColumn,
    PodColumns,
    QueueTimes,
    Snapshot,
    annotation_column,
    label_column,
)
from engine.objects import Node, ObjectMeta
from engine.plugins.node_selector import eligibility_key, eligible
from engine.pods.podinfo import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, PodInfo
from engine.pods.workloads import workload_of
from engine.policy import podreads
from engine.policy.accounts import over_minimum, quota_amounts, quota_flag, quota_name
from engine.policy.gangs import group_number
from engine.policy.objectreads import (
    LEASES,
    ImageLists,
    NodeObjects,
    missing_bytes,
    volume_limit,
    workload_object,
    workload_texts,
)
from engine.policy.podreads import (
    UnreadFieldError,
    epoch_seconds,
    namespace_text,
    pod_reader,
    reader_of,
    time_of,
)

#: Of a version of samples, behind the snapshot's own generation in that of a world.
_BITS: Final = 32
_ON_NODES: Final = "pods"
_QUEUE: Final = "queue"
_NOMINATED: Final = "nominated"
METRIC: Final = "metric"
DEFAULT_GPUS: Final = ("nvidia.com/gpu", "amd.com/gpu")
_RESOURCES: Final = MappingProxyType({CPU: CPU, MEMORY: MEMORY, "storage": EPHEMERAL_STORAGE})
#: Fields that a time has as attributes of the same name.
_CLOCK: Final = ("time.hour", "time.minute", "time.day", "time.month")


class SnapshotWorld:
    """`dsl.plan.World` over one snapshot. Columns made of several are kept until it changes.

    `table` are the pods that it has: those on nodes (`pods`), or one of `Snapshot.other_pods`.
    """

    def __init__(self, snapshot: Snapshot, worlds: Worlds, *, table: str = _ON_NODES) -> None:
        self.snapshot = snapshot
        self.nodes, self.present = snapshot.nodes.size, snapshot.nodes.present
        self.now, self.dictionary = snapshot.now, snapshot.dictionary
        # What a plan keeps between cycles depends on rows and samples both.
        self.generation = snapshot.generation << _BITS | snapshot.signals.version
        self.asker = ""
        """The UID of the pod that is asked about: it is not beside itself in the queue, nor among
        those that a node is promised to."""
        self._of_table = table
        self._set: PodColumns = (
            snapshot.pods if table == _ON_NODES else snapshot.other_pods.pods(table)
        )
        self._worlds = worlds
        self._others: dict[str, SnapshotWorld] = {}
        self._made: dict[tuple[str, str | None], FloatColumn] = {}
        self._texts: dict[tuple[str, str | None], CodeColumn] = {}

    @property
    def pod_node(self) -> NDArray[np.int32]:
        rows, own = self._set.node, self._own_row()
        if own >= 0:
            rows = rows.copy()
            rows[own] = -1
        return rows

    def pods_on(self, row: int) -> NDArray[np.intp]:
        rows, own = self._set.on(row), self._own_row()
        return rows if own < 0 else rows[rows != own]

    def _own_row(self) -> int:
        """Where the pod is that is asked about, -1: it is not in this table, or on a node."""
        if self._of_table == _ON_NODES:
            return -1
        return self.snapshot.other_pods.pods(self._of_table).row(self.asker)

    def changed_since(self, generation: int, *, samples: bool) -> NDArray[np.intp] | None:
        then, version = divmod(generation, 1 << _BITS)
        if samples and version != self.snapshot.signals.version:
            return None
        changes = self.snapshot.changes_since(then)
        return None if changes is None else changes[0]

    def node_number(self, field: str, key: str | None) -> FloatColumn:
        column = self._made.get((field, key))
        if column is None:
            column = self._made[field, key] = self._node_number(field, key)
        return column

    def node_text(self, field: str, key: str | None) -> CodeColumn:
        column = self._texts.get((field, key))
        if column is None:
            column = self._texts[field, key] = self._node_text(field, key)
        return column

    def _node_text(self, field: str, key: str | None) -> CodeColumn:
        nodes = self.snapshot.nodes
        if field == "node.label" and key is not None:
            return nodes.text(*label_column(key))
        if field == "node.name":
            return nodes.name_codes()
        if field in _PLAIN_TEXTS:
            said = _PLAIN_TEXTS[field]
            return nodes.text(field, lambda node: said(node) or None)
        if key is None and field in WELL_KNOWN_LABELS:
            return nodes.text(*label_column(WELL_KNOWN_LABELS[field]))
        if field == "node.annotation" and key is not None:
            return nodes.text(*annotation_column(key))
        if field == "node.condition" and key is not None:
            return nodes.text(f"condition:{key}", _condition(key))
        raise UnreadFieldError(field)

    def node_flag(self, field: str, key: str | None) -> BoolColumn:
        nodes = self.snapshot.nodes
        if field == "node.unschedulable":
            return nodes.unschedulable
        if field == "node.ready":
            return nodes.flag("ready", lambda node: _condition("Ready")(node) == "True")
        if field == "node.taint" and key is not None:
            return nodes.flag(f"taint:{key}", _tainted(key))
        raise UnreadFieldError(field)

    def node_texts(self, field: str) -> tuple[NDArray[np.intp], CodeColumn]:
        if field == "node.images":
            return self._worlds.images.of(self.snapshot)
        raise UnreadFieldError(field)

    def node_column(self, field: str, asked: Part) -> FloatColumn | BoolColumn:
        if field == "node.eligible" and isinstance(asked, bytes):
            return eligible(asked, self.snapshot.nodes)
        if field == "node.missing_image_bytes" and isinstance(asked, tuple):
            return missing_bytes(self.snapshot, [str(one) for one in asked])
        raise UnreadFieldError(field)

    def pod_table(self, table: str) -> SnapshotWorld:
        found = self._others.get(table)
        if found is None:
            found = self._others[table] = SnapshotWorld(self.snapshot, self._worlds, table=table)
        found.asker = self.asker
        return found

    def metric(self, name: str) -> FloatColumn:
        if not name.startswith("annotation:"):
            return self.snapshot.signals.column(name)
        _, stale, scale, key = name.split(":", 3)
        column = self.snapshot.nodes.number(f"value {key}", _annotated(key)) * float(scale)
        column[self.metric_age(name) > float(stale)] = np.nan
        return column

    def metric_age(self, name: str) -> FloatColumn:
        if not name.startswith("annotation:"):
            return self.snapshot.signals.age(name)
        key = name.split(":", 3)[3]
        return self.now - self.snapshot.nodes.number(f"time of {key}", _annotated_at(key))

    def cluster_metric(self, name: str) -> float:
        return self.snapshot.signals.value(name, ())

    def pod_metric(self, name: str) -> FloatColumn:
        return self.snapshot.signals.of_pods(name, self._set)

    def pair(self, name: str, left: str, right: str) -> float:
        return self.snapshot.signals.value(name, (left, right))

    def pair_column(self, name: str, left: CodeColumn, right: CodeColumn) -> FloatColumn:
        return self.snapshot.signals.pairs(name, (left, right), self.dictionary)

    def pod_number(self, field: str, key: str | None) -> FloatColumn:
        name = field.removeprefix("it.")
        if field in OF_THE_QUEUE:
            return self._of_queue(name)
        return self._set.number(f"{name} {key}", pod_reader(name, key, self._worlds.gpus))

    def pod_text(self, field: str, key: str | None) -> CodeColumn:
        pods = self._set
        if field == "it.node" and self._of_table == _QUEUE:
            return np.full(pods.size, -1, np.int32)
        if field == "it.node":
            return self._node_names()
        name = field.removeprefix("it.")
        if name.startswith("namespace."):
            known, part = self.snapshot.namespaces, name.removeprefix("namespace.")
            # INVARIANT: the table of pods asks again when a namespace changes in this mapping.
            return pods.namespace_text(
                f"{name} {key}", lambda pod: namespace_text(known, pod.namespace, part, key)
            )
        return pods.text(f"{name} {key}", pod_reader(name, key))

    def pod_flag(self, field: str, key: str | None) -> BoolColumn:  # noqa: ARG002 - none is keyed
        name = field.removeprefix("it.")
        if name == "nominated" and self._of_table == _NOMINATED:
            return np.ones(self._set.size, np.bool_)
        if name == "quota.over_min":
            over = [self.dictionary.code(one) for one in sorted(over_minimum(self.snapshot))]
            own = self._set.text("namespace", pod_reader("namespace", None))
            return np.isin(own, over) & (self.pod_node >= 0)
        return self._set.flag(name, pod_reader(name, None))

    def pod_column(self, field: str, key: str | None) -> NDArray[Any]:
        """What is read of each pod, by the kind of the field, or of a metric (`key` is its id)."""
        if field == METRIC:
            return self.pod_metric(key or "")
        asks = {Kind.TEXT: self.pod_text, Kind.BOOL: self.pod_flag}
        return asks.get(FIELDS[field].type.kind, self.pod_number)(field, key)

    def cycle_number(self, field: str) -> float:
        if field == "now":
            return self.snapshot.now
        if field in _CLOCK:
            return float(getattr(self._local_time(), field.removeprefix("time.")))
        if field == "cluster.nodes":
            return float(np.count_nonzero(self.present))
        if field.startswith("cluster."):
            column = self.node_number("node." + field.removeprefix("cluster."), None)
            return float(column[self.present].sum())
        raise UnreadFieldError(field)

    def cycle_text(self, field: str) -> str | None:
        if field == "time.weekday":
            return WEEKDAYS[self._local_time().weekday()]
        raise UnreadFieldError(field)

    # ---- inside ----------------------------------------------------------------------------

    def _of_queue(self, name: str) -> FloatColumn:
        """(P,) a time or number that the queue knows of its pods; other pods have none."""
        if self._of_table not in (_QUEUE, _NOMINATED):
            return np.full(self._set.size, MISSING)
        times = self.snapshot.other_pods.times
        if self._of_table == _QUEUE:
            # INVARIANT: the table reads a pod again when the queue knows something else of it.
            return self._set.number(f"queue {name}", lambda pod: time_of(times(pod.uid), name))
        uids = (self._set.pod(row).uid for row in range(self._set.size))
        return np.array([time_of(times(uid), name) for uid in uids], np.float64)

    def _node_names(self) -> CodeColumn:
        """(P,) where each pod is; an assumed pod does not say so itself."""
        rows = self.pod_node
        names = self.snapshot.nodes.name_codes()
        return np.where(rows >= 0, names[rows], np.int32(-1)) if len(names) else rows

    def _local_time(self) -> datetime:
        return datetime.fromtimestamp(self.snapshot.now, self._worlds.zone)

    def _node_number(self, field: str, key: str | None) -> FloatColumn:
        nodes = self.snapshot.nodes
        if field == "node.created":
            return nodes.number("created", lambda n: epoch_seconds(n.metadata.creation_timestamp))
        if field == "node.heartbeat":
            return self._worlds.heartbeats.column(self.snapshot)
        if field == "node.volumes.limit":
            return self._worlds.volume_limits.column(self.snapshot)
        if field == "node.volumes.attached":
            return self._attached()
        if field.startswith("node.ips."):
            return self._addresses(field.rpartition(".")[2])
        if field == "node.pods.capacity":
            return self._amount(PODS, "allocatable")
        if field == "node.pods.free":
            return self._amount(PODS, "free")
        _, kind, part = field.split(".")
        if kind == "gpu":
            parts = [self._amount(name, part) for name in self._worlds.gpus]
            return np.sum(parts, axis=0) if parts else np.zeros(nodes.size)
        if kind == "resource" and key is not None:
            amount = self._amount(key, part)
            return np.where(nodes.has_resource(key), amount, np.nan)
        return self._amount(_RESOURCES[kind], part)

    def _attached(self) -> FloatColumn:
        pods = self.snapshot.pods
        there = pods.node >= 0
        volumes = pods.number("volumes.count None", pod_reader("volumes.count", None))[there]
        size = self.snapshot.nodes.size
        return np.bincount(pods.node[there], volumes, size).astype(np.float64, copy=False)

    def _addresses(self, part: str) -> FloatColumn:
        nodes, pods = self.snapshot.nodes, self.snapshot.pods
        size = np.minimum(self._amount(PODS, "allocatable"), nodes.number("cidr", _addresses_of))
        size[~nodes.has_resource(PODS)] = np.nan
        if part == "capacity":
            return size
        hosted = pods.flag("host network", lambda pod: pod.pod.spec.host_network)
        rows = pods.node[(pods.node >= 0) & ~hosted]
        return size - np.bincount(rows, minlength=nodes.size)

    def _amount(self, resource: str, part: str) -> FloatColumn:
        nodes = self.snapshot.nodes
        requested = nodes.pod_count if resource == PODS else nodes.requested(resource)
        if part == "requested":
            return requested.astype(np.float64)
        if part == "free":
            return (nodes.allocatable(resource) - requested).astype(np.float64)
        has = nodes.allocatable if part == "allocatable" else nodes.capacity
        return has(resource).astype(np.float64)


class Worlds:
    """The world of the snapshot in use, shared by all policies, and what worlds keep."""

    def __init__(self, zone: tzinfo, gpus: Sequence[str] = DEFAULT_GPUS) -> None:
        self.zone = zone
        self.gpus = gpus
        """Resources that count as GPUs."""
        self.images = ImageLists()
        self.heartbeats = NodeObjects(
            "Lease", lambda lease: epoch_seconds(lease.spec.renew_time), f"{LEASES}/"
        )
        self.volume_limits = NodeObjects("CSINode", volume_limit)
        self._last: SnapshotWorld | None = None
        self.plugins: Mapping[str, Plugin] = {}
        """Those in force: an edit leaves most of a thousand as they are."""

    def of(self, snapshot: Snapshot, asker: str = "") -> SnapshotWorld:
        """The world over this snapshot, made once a snapshot, as this pod (a UID) sees it."""
        last = self._last
        if last is None or last.snapshot is not snapshot:
            last = self._last = SnapshotWorld(snapshot, self)
        last.asker = asker
        return last

    @property
    def last(self) -> SnapshotWorld:
        """The world that was asked for last; there has to be one."""
        assert self._last is not None
        return self._last

    def subject(
        self, pod: PodInfo, snapshot: Snapshot, queued: QueueTimes | None = None
    ) -> PodSubject:
        """The pod as policies read it, beside this snapshot."""
        return PodSubject(pod, snapshot, self.gpus, queued)

    def asked(self, pod: PodInfo, snapshot: Snapshot) -> tuple[PodSubject, SnapshotWorld]:
        """The pod, and the world as it sees it: without itself in the queue."""
        return self.subject(pod, snapshot), self.of(snapshot, pod.uid)

    def asked_as_any(self, pod: PodInfo, snapshot: Snapshot) -> tuple[PodSubject, SnapshotWorld]:
        """The pod, and the world as others see it."""
        return self.subject(pod, snapshot), self.of(snapshot)


# ---- what is read of a node as it is written: each reader makes a column of the snapshot


def _condition(name: str) -> Callable[[Node], str | None]:
    """The status of a condition."""
    return lambda node: next(
        (one.status for one in node.status.conditions or () if one.type == name), None
    )


def _tainted(test: str) -> Callable[[Node], bool]:
    """Whether a taint has this key, or is `key=value`."""
    key, with_value, value = test.partition("=")
    return lambda node: any(
        t.key == key and (not with_value or t.value == value) for t in node.spec.taints or ()
    )


#: Texts that stand in a node as they are -> where.
_PLAIN_TEXTS: Final = MappingProxyType(
    {
        spec.name: reader_of(spec.wire)
        for spec in FIELDS.values()
        if spec.level is Level.NODE and spec.wire and spec.type.kind is Kind.TEXT
    }
)


def _addresses_of(node: Node) -> float:
    """How many addresses the node's pods can have: its pod CIDRs' size; infinite without one.

    A second family gives every pod a second address, not room for more pods.
    """
    try:
        ranges = [
            ip_network(one, strict=False) for one in node.spec.pod_cidrs or [node.spec.pod_cidr]
        ]
    except ValueError:
        return np.inf
    family = ranges[0].version
    return float(sum(one.num_addresses for one in ranges if one.version == family))


def _annotated(key: str) -> Callable[[Node], float]:
    """The number of an annotation; also of `value,timestamp`, as Crane writes it."""

    def value(node: Node) -> float:
        text, comma, when = (node.metadata.annotations or {}).get(key, "").partition(",")
        return MISSING if comma and np.isnan(parse_time(when)) else parse_number(text)

    return value


def _annotated_at(key: str) -> Callable[[Node], float]:
    """The time behind that number (seconds since the epoch); missing if there is none."""
    return lambda node: parse_time((node.metadata.annotations or {}).get(key, "").partition(",")[2])


# ---- the pod to be placed


class PodSubject(Struct, frozen=True, eq=False):
    """`dsl.plan.Subject` over the pod to be placed and its namespace.

    `queued` is what the queue knows of the pod, where it is not what `Snapshot.other_pods` has.
    """

    _pod: PodInfo
    _snapshot: Snapshot
    _gpus: Sequence[str]
    _queued: QueueTimes | None = None

    def number(self, field: str, key: str | None) -> float:
        name = field.removeprefix("pod.")
        if field.startswith("quota."):
            amounts = quota_amounts(field.removeprefix("quota."), self._pod, self._snapshot)
            return dict(amounts).get(key or "", MISSING)
        if field.startswith("group."):
            return group_number(self._pod, self._snapshot, field.removeprefix("group."))
        if name in QueueTimes._fields:
            known = self._queued or self._snapshot.other_pods.times(self._pod.uid)
            return podreads.time_of(known, name)
        if field == "workload.replicas":
            found = workload_object(self._pod, self._snapshot)
            return MISSING if found is None else podreads.number_of(found.replicas)
        return float(podreads.pod_reader(name, key, self._gpus)(self._pod))

    def text(self, field: str, key: str | None) -> str | None:
        if field.startswith("namespace."):
            known, part = self._snapshot.namespaces, field.removeprefix("namespace.")
            return podreads.namespace_text(known, self._pod.namespace, part, key)
        if field.startswith("workload."):
            part = field.removeprefix("workload.")
            return workload_texts(self._pod, self._snapshot, part).get(key or "")
        if field == "pod.previous_node":
            return self._snapshot.other_pods.previous_node(self._pod)
        if field == "quota.name":
            return quota_name(self._pod, self._snapshot)
        if field == "group.name":
            return podreads.group_of(self._pod)
        text: str | None = podreads.pod_reader(field.removeprefix("pod."), key)(self._pod)
        return text

    def texts(self, field: str) -> tuple[str, ...]:
        if field == "pod.images":
            return tuple([c.image for c in podreads.all_containers_of(self._pod) if c.image])
        if field == "pod.containers":
            return tuple([c.name for c in podreads.containers_of(self._pod)])
        raise podreads.UnreadFieldError(field)

    def flag(self, field: str, key: str | None) -> bool:  # noqa: ARG002 - none is keyed
        if field.startswith("quota."):
            return quota_flag(field.removeprefix("quota."), self._pod, self._snapshot)
        return bool(podreads.pod_reader(field.removeprefix("pod."), None)(self._pod))

    def pairs(self, field: str) -> tuple[tuple[str, str | float], ...]:
        owner, _, name = field.partition(".")
        if owner == "quota":
            return quota_amounts(name, self._pod, self._snapshot)
        if field in AMOUNTS:
            return self._amounts(name)
        if owner == "workload":
            return tuple(sorted(workload_texts(self._pod, self._snapshot, name).items()))
        if owner == "namespace":
            namespace = self._snapshot.namespaces.get(self._pod.namespace)
            meta = namespace.metadata if namespace else ObjectMeta()
        else:
            meta = self._pod.pod.metadata
        spec = self._pod.pod.spec
        if name == "toleration":
            # The first of a key counts.
            values = {one.key: one.value for one in reversed(spec.tolerations or ())}
        elif name == "node_selector":
            values = spec.node_selector or {}
        else:
            values = (meta.labels if name == "label" else meta.annotations) or {}
        return tuple(sorted(values.items()))

    def _amounts(self, name: str) -> tuple[tuple[str, float], ...]:
        pod = self._pod
        limits = [(c.resources and c.resources.limits) or {} for c in podreads.containers_of(pod)]
        named = pod.requests if name == "request" else {key for one in limits for key in one}
        found = ((key, self.number(f"pod.{name}", key)) for key in sorted(named))
        return tuple((key, MISSING if one != one else one) for key, one in found)

    def asks(self, field: str) -> Part:
        return eligibility_key(self._pod) if field == "node.eligible" else self.texts("pod.images")

    def metric(self, name: str) -> float:
        """See `Subject.metric`; the second part of the name says whose it is."""
        pod = self._pod
        of = name.split(":")[1]
        signals = self._snapshot.signals
        if of == "namespace":
            return signals.value(name, (pod.namespace,))
        owner = workload_of(pod) if of == "workload" else pod.name
        return MISSING if owner is None else signals.value(name, (pod.namespace, owner))

    @property
    def containers(self) -> int:
        return len(podreads.containers_of(self._pod))

    def container_number(self, place: int, field: str, key: str | None) -> float:
        return podreads.container_number(podreads.containers_of(self._pod)[place], field, key or "")

    def container_text(self, place: int, field: str) -> str | None:
        container = podreads.containers_of(self._pod)[place]
        return (container.name if field == "name" else container.image) or None
