"""What policies read of a test's cluster beside nodes and assigned pods.

The queue, finished pods, groups, quotas, workloads and metrics of all levels are given by fixtures;
a scheduler that runs has them from watches of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dsl import ir
from dsl.collective import Limits, QuotaUse
from dsl.functions import parse_quantity, parse_time
from dsl.plan import MetricSpec, Quotas
from dsl.policytest import Thing
from dsl.schema import OF_THE_QUEUE, request_unit
from dsl.several import ByReference
from dsl.several.rules import GangParts, QuotaParts, quota_use
from dsl.source import Span
from dsl.types import MISSING, TEXT, Level, is_missing, scale_of
from engine.cache.pods import PodTable
from engine.collective import quotas
from engine.framework.podinfo import PodInfo, make_pod_info
from engine.framework.snapshot import (
    BoolColumn,
    CodeColumn,
    Dictionary,
    FloatColumn,
    NodeColumns,
    PodColumns,
    QueueTimes,
    Signals,
    Snapshot,
)
from engine.framework.topology import Topology
from engine.framework.workloads import workload_of
from engine.objects import Namespace, ObjectMeta, Pod
from engine.policy.plugin import Worlds
from engine.policy.podreads import POD_NUMBERS
from engine.policy.world import DEFAULT_GPUS, PodSubject, SnapshotWorld, time_of
from engine.policytests.samples import newest

_HOUR: Final = 3600.0
_GROUP_LABEL: Final = "scheduling.x-k8s.io/pod-group"
_NO_TIMES: Final = QueueTimes(MISSING, None, 0)
_NOWHERE: Final = Span(0, 0)
Key = tuple[str, ...]


def _text(name: str, level: Level, key: str | None = None) -> ir.Read:
    return ir.Read(span=_NOWHERE, type=TEXT, level=level, field=name, key=key)


#: Pods that name a PodGroup, whatever the policies say of gangs.
BY_LABEL: Final = GangParts(
    ir.GangCore(
        guard=None,
        by=_text("pod.label", Level.POD, _GROUP_LABEL),
        member=_text("it.label", Level.IT, _GROUP_LABEL),
        minimum=None,
        wait=None,
        backoff_seconds=0.0,
        reject_above=None,
        within=None,
    )
)
#: The ElasticQuota of a namespace.
BY_NAMESPACE: Final = QuotaParts(
    ir.QuotaCore(
        guard=None,
        by=_text("pod.namespace", Level.POD),
        member=_text("it.namespace", Level.IT),
        minimum=(),
        maximum=(),
        elastic=True,
        reclaim=(),
        within=(),
        message=None,
        status=None,
    )
)


@dataclass(frozen=True, slots=True)
class Beside:
    """What a test gives beside nodes and assigned pods. `pods` are by UID, groups by namespace."""

    nodes: Mapping[str, Thing] = field(default_factory=dict)
    pods: Mapping[str, Thing] = field(default_factory=dict)
    queue: tuple[PodInfo, ...] = ()
    finished: tuple[tuple[PodInfo, str], ...] = ()
    groups: Mapping[Key, Thing] = field(default_factory=dict)
    quotas: Quotas = field(default_factory=dict)
    namespaces: Mapping[str, Thing] = field(default_factory=dict)
    workloads: Mapping[str, Thing] = field(default_factory=dict)
    specs: Mapping[str, MetricSpec] = field(default_factory=dict)
    gangs: tuple[GangParts, ...] = ()

    def sample(self, metric: str, owner: Thing | None) -> float:
        """The newest sample that an object has of a metric."""
        spec = self.specs[metric]
        return newest(None if owner is None else owner.metrics.get(spec.name), spec)


def limits_of(thing: Thing) -> Limits:
    """An ElasticQuota's amounts in base units."""

    def amounts(of: str) -> dict[str, float]:
        given = thing.maps.get(of, {}).items()
        return {key: parse_quantity(text) * scale_of(request_unit(key)) for key, text in given}

    return Limits(amounts("min"), amounts("max"))


class SceneWorlds(Worlds):
    """Makes worlds and subjects that know what stands beside the snapshot."""

    def __init__(self, zone: tzinfo, gpus: Sequence[str] = DEFAULT_GPUS) -> None:
        super().__init__(zone, gpus)
        self.beside = Beside()

    def _world(self, snapshot: Snapshot, stamp: int) -> SceneWorld:
        return self.over(snapshot, stamp)

    def world(self, snapshot: Snapshot) -> SceneWorld:
        """The world over a snapshot, as the policies see it."""
        found = self.of(snapshot)
        assert isinstance(found, SceneWorld)
        return found

    def over(self, snapshot: Snapshot, stamp: int, table: str = "pods") -> SceneWorld:
        """The world of one table of pods."""
        return SceneWorld(self, snapshot, stamp, table, self._zone)

    def subject(
        self, pod: PodInfo, snapshot: Snapshot, queued: QueueTimes | None = None
    ) -> SceneSubject:
        """See `Worlds.subject`; what the queue knows of the pod is given by its fixture."""
        given = self.beside.pods.get(pod.uid)
        times = _NO_TIMES if given is None else queue_times(given)
        if queued is not None and is_missing(times.queued_at):
            times = queued
        return SceneSubject(self, pod, snapshot, times)


def queue_times(thing: Thing) -> QueueTimes:
    """What the queue knows of a given pod."""
    first = parse_time(thing.text("first_attempt_at"))
    return QueueTimes(
        parse_time(thing.text("queued_at")),
        None if is_missing(first) else first,
        thing.number("attempts", 0),
    )


# ---- the cluster


class SceneWorld(SnapshotWorld):
    """`dsl.plan.World` over a test's cluster; of one table of pods."""

    def __init__(
        self, worlds: SceneWorlds, snapshot: Snapshot, stamp: int, table: str, zone: tzinfo
    ) -> None:
        super().__init__(snapshot, stamp, worlds.gpus, zone)
        self._worlds = worlds
        self._table = table
        self._tables: dict[str, SceneWorld] = {}

    @property
    def _beside(self) -> Beside:
        return self._worlds.beside

    def changed_since(
        self,
        generation: int,  # noqa: ARG002 - the protocol's
        *,
        samples: bool,  # noqa: ARG002 - the protocol's
    ) -> NDArray[np.intp] | None:
        """See `World.changed_since`; a quota that is overdrawn changes pods on any node."""
        return None

    # ---- other pods

    def pod_table(self, table: str) -> SceneWorld:
        """See `World.pod_table`."""
        found = self._tables.get(table)
        if found is None:
            pods = PodTable(self.snapshot.dictionary)  # type: ignore[arg-type]  # the cache's own
            for pod, row in self._rows(table):
                pods.add(pod, row)
            other = _OtherPods(self.snapshot, pods)
            found = self._tables[table] = self._worlds.over(other, self.generation, table)
        return found

    def _rows(self, table: str) -> Iterator[tuple[PodInfo, int]]:
        """The pods of a table, and the node row of each."""
        beside, nodes = self._beside, self.snapshot.nodes
        if table == "finished":
            for pod, node in beside.finished:
                at = parse_time(beside.pods[pod.uid].text("finished_at"))
                if not self.now - at > _HOUR:
                    yield pod, nodes.row(node)
            return
        pods = self.snapshot.pods
        placed = {pods.pod(place).uid for place in np.flatnonzero(pods.node >= 0).tolist()}
        for pod in beside.queue:
            if pod.uid in placed:
                continue
            row = nodes.row(pod.pod.status.nominated_node_name) if table == "nominated" else 0
            if row >= 0:
                yield pod, row

    # ---- fields

    def _node_number(self, field: str, key: str | None) -> FloatColumn:
        if field == "node.heartbeat":
            return self._given("heartbeat")
        if field == "node.volumes.limit":
            return self._given("volumes_limit")
        if field == "node.volumes.attached":
            given = self._given("volumes_attached")
            pods = self.snapshot.pods
            there = pods.node >= 0
            of_pods = pods.number("volumes", POD_NUMBERS["volumes.count"])[there]
            sums = np.bincount(pods.node[there], of_pods, minlength=self.nodes)
            return np.where(np.isnan(given), sums, given)
        return super()._node_number(field, key)

    def _given(self, attribute: str) -> FloatColumn:
        """A number or time that fixtures of nodes give."""
        column = np.full(self.nodes, MISSING)
        for name, thing in self._beside.nodes.items():
            value = thing.plain.get(attribute)
            if value is not None:
                number = parse_time(value) if isinstance(value, str) else float(value)  # type: ignore[arg-type]  # neither is a list
                column[self.snapshot.nodes.row(name)] = number
        return column

    def pod_number(self, field: str, key: str | None) -> FloatColumn:
        """See `World.pod_number`."""
        if field == "it.finished_at":
            return self._of_pods(lambda thing: parse_time(thing.text("finished_at")))
        if field in OF_THE_QUEUE:
            if self._table not in ("queue", "nominated"):
                return np.full(len(self.pod_node), MISSING)
            name = field.removeprefix("it.")
            return self._of_pods(lambda thing: time_of(queue_times(thing), name))
        return super().pod_number(field, key)

    def pod_text(self, field: str, key: str | None) -> CodeColumn:
        """See `World.pod_text`; pods of the queue are on no node."""
        if field == "it.node" and self._table == "queue":
            return np.full(len(self.pod_node), -1, np.int32)
        return super().pod_text(field, key)

    def pod_flag(self, field: str, key: str | None) -> BoolColumn:
        """See `World.pod_flag`."""
        if field == "it.quota.over_min":
            over = [self._is_over_minimum(pod) for pod in self._pods()]
            return np.array(over, np.bool_)
        return super().pod_flag(field, key)

    def _is_over_minimum(self, pod: PodInfo | None) -> bool:
        use = self.quota_use
        limits = None if pod is None else use.limits.get(pod.namespace)
        if pod is None or limits is None:
            return False
        used = use.used.get(pod.namespace, {})
        return quotas.is_over_minimum(used, limits, use.pool.minimum)

    @cached_property
    def quota_use(self) -> QuotaUse:
        """What all ElasticQuotas are used, by no pod in particular."""
        nobody = make_pod_info(Pod(metadata=ObjectMeta(name="", namespace="", uid="")))
        subject = SceneSubject(self._worlds, nobody, self.snapshot, _NO_TIMES)
        return quota_use(BY_NAMESPACE, ByReference(subject, self), self._beside.quotas)

    # ---- metrics

    def pod_metric(self, name: str) -> FloatColumn:
        """See `World.pod_metric`."""
        return self._of_pods(lambda thing: self._beside.sample(name, thing))

    def _pods(self) -> list[PodInfo | None]:
        pods = self.snapshot.pods
        return [pods.pod(row) if node >= 0 else None for row, node in enumerate(pods.node.tolist())]

    def _of_pods(self, read: Callable[[Thing], float]) -> FloatColumn:
        given = self._beside.pods
        things = [None if pod is None else given.get(pod.uid) for pod in self._pods()]
        return np.array([MISSING if one is None else read(one) for one in things], np.float64)


class _OtherPods:
    """A snapshot with other pods. Implements `framework.snapshot.Snapshot`."""

    def __init__(self, snapshot: Snapshot, pods: PodColumns) -> None:
        self._snapshot = snapshot
        self.pods = pods
        self.now = snapshot.now
        self.generation = snapshot.generation
        self.nodes_generation = snapshot.nodes_generation
        self.layout = snapshot.layout
        self.nominations = snapshot.nominations
        self.beside = snapshot.beside
        self.waiting = snapshot.waiting
        self.objects = snapshot.objects
        self.objects_version = snapshot.objects_version
        self.objects_changed = snapshot.objects_changed
        self.objects_by = snapshot.objects_by

    @property
    def nodes(self) -> NodeColumns:
        """See `Snapshot.nodes`."""
        return self._snapshot.nodes

    @property
    def signals(self) -> Signals:
        """See `Snapshot.signals`."""
        return self._snapshot.signals

    @property
    def namespaces(self) -> Mapping[str, Namespace]:
        """See `Snapshot.namespaces`."""
        return self._snapshot.namespaces

    @property
    def dictionary(self) -> Dictionary:
        """See `Snapshot.dictionary`."""
        return self._snapshot.dictionary

    @property
    def topology(self) -> Topology:
        """See `Snapshot.topology`: that of the cluster."""
        return self._snapshot.topology

    def changed_since(self, generation: int) -> NDArray[np.intp] | None:
        """See `Snapshot.changed_since`."""
        return self._snapshot.changed_since(generation)

    def changes_since(self, generation: int) -> tuple[NDArray[np.intp], NDArray[np.int64]] | None:
        """See `Snapshot.changes_since`."""
        return self._snapshot.changes_since(generation)

    def overlay(
        self, row: int, remove: Sequence[PodInfo] = (), add: Sequence[PodInfo] = ()
    ) -> Snapshot:
        """See `Snapshot.overlay`."""
        return self._snapshot.overlay(row, remove, add)


# ---- the pod


@dataclass(frozen=True, slots=True)
class _Group:
    """The gang of a pod: its key, its object if there is one, and how many members there are."""

    key: str
    thing: Thing | None
    bound: int
    assumed: int
    pending: int
    placed: bool

    def number(self, name: str) -> float:
        """A number or time of `group.*`."""
        match name:
            case "size":
                return float(self.bound + self.assumed + self.pending + 1)
            case "assigned":
                return float(self.bound)
            case "reserved":
                return float(self.bound + self.assumed + (1 if self.placed else 0))
            case "waiting":
                return float(self.assumed)
            case "min_member":
                given = None if self.thing is None else self.thing.plain.get("min_member")
                return float(given) if isinstance(given, int) else MISSING
            case "schedule_timeout":
                given = None if self.thing is None else self.thing.plain.get(name)
                return given if isinstance(given, float) else MISSING
            case _:
                return MISSING if self.thing is None else parse_time(self.thing.text(name))


class SceneSubject(PodSubject):
    """`dsl.plan.Subject` of a test: the pod, and what fixtures say beside it."""

    __slots__ = ("_asking", "_group", "_worlds")

    def __init__(
        self, worlds: SceneWorlds, pod: PodInfo, snapshot: Snapshot, times: QueueTimes
    ) -> None:
        super().__init__(pod, snapshot, worlds.gpus, times)
        self._worlds = worlds
        self._group: _Group | bool | None = False
        self._asking = False

    @property
    def _beside(self) -> Beside:
        return self._worlds.beside

    def _workload(self) -> Thing | None:
        return self._beside.workloads.get(workload_of(self._pod) or "")

    def number(self, field: str, key: str | None) -> float:
        """See `Subject.number`."""
        owner, _, name = field.partition(".")
        if owner == "group":
            group = self._gang()
            return MISSING if group is None else group.number(name)
        if owner == "workload":
            thing = self._workload()
            given = None if thing is None else thing.plain.get("replicas")
            return float(given) if isinstance(given, int) else MISSING
        return super().number(field, key)

    def text(self, field: str, key: str | None) -> str | None:
        """See `Subject.text`."""
        owner, _, name = field.partition(".")
        if owner == "group":
            group = self._gang()
            return None if group is None else group.key
        if owner == "workload":
            thing = self._workload()
            return None if thing is None else thing.maps.get(name, {}).get(key or "")
        if field == "pod.previous_node":
            given = self._beside.pods.get(self._pod.uid)
            return (given.text("previous_node") or None) if given is not None else None
        return super().text(field, key)

    def pairs(self, field: str) -> tuple[tuple[str, str | float], ...]:
        """See `Subject.pairs`."""
        owner, _, name = field.partition(".")
        if owner == "workload":
            thing = self._workload()
            return () if thing is None else tuple(sorted(thing.maps.get(name, {}).items()))
        return super().pairs(field)

    def metric(self, name: str) -> float:
        """See `Subject.metric`."""
        beside, spec = self._beside, self._beside.specs[name]
        if spec.of == "namespace":
            return beside.sample(name, beside.namespaces.get(self._pod.namespace))
        if spec.of == "workload":
            return beside.sample(name, self._workload())
        return beside.sample(name, beside.pods.get(self._pod.uid))

    # ---- inside

    def _values(self) -> ByReference:
        return ByReference(self, self._worlds.of(self._snapshot))

    def _gang(self) -> _Group | None:
        if isinstance(self._group, bool):
            self._group = self._find_gang()
        return self._group

    def _find_gang(self) -> _Group | None:
        values = self._values()
        for parts in (*(() if self._asking else self._beside.gangs), BY_LABEL):
            # A gang may be told by what its group is; then the group is told by its label.
            self._asking, before = True, self._asking
            guard = parts.core.guard
            key = values.one(parts.core.by) if guard is None or values.one(guard) else None
            self._asking = before
            if is_missing(key):
                continue
            name = key if isinstance(key, str) else f"{key:g}"
            return _Group(
                name,
                self._beside.groups.get((self._pod.namespace, name)),
                len(values.chosen(parts.bound)),
                len(values.chosen(parts.assumed_others)),
                len(values.chosen(parts.pending, "queue")),
                bool(values.chosen(parts.itself)),
            )
        return None
