"""One test's cluster: a real cache, metrics at their ages, the pods in question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

import numpy as np

from dsl.functions import parse_duration, parse_number, parse_time
from dsl.plan import MetricSpec
from dsl.policytest import Case, Cluster, Sample, Thing
from dsl.types import is_missing
from engine.cache import Cache
from engine.framework.podinfo import PodInfo
from engine.framework.snapshot import FloatColumn, NodeColumns, Snapshot
from engine.policy.chain import worlds_of
from engine.policy.plugin import Worlds
from engine.policy.world import DEFAULT_GPUS, QueueTimes
from engine.policytests.objects import (
    FixtureError,
    ReadText,
    is_finished,
    namespace_of,
    node_of,
    pods_of,
)

_PERCENT: Final = 0.01


def new_worlds() -> Worlds:
    """The world of a test: UTC and the usual GPUs."""
    return worlds_of(UTC, DEFAULT_GPUS)


def value_of(sample: Sample, spec: MetricSpec) -> float:
    """A sample in the metric's base unit, as if it had come from its source."""
    text = sample.text
    if text.endswith("%") and spec.scale == _PERCENT:
        return parse_number(text)
    value = parse_duration(text) if spec.unit == "seconds" else parse_number(text)
    if is_missing(value):
        value = parse_number(text)
    if is_missing(value):
        value = parse_duration(text)
    return value * spec.scale


class FixtureSignals:
    """The samples that a test gives to nodes. Implements `framework.snapshot.Signals`."""

    version = 1

    def __init__(
        self,
        nodes: NodeColumns,
        things: Sequence[Thing],
        specs: Mapping[str, MetricSpec],
    ) -> None:
        self._nodes = nodes
        self._samples = {thing.name: thing.metrics for thing in things}
        self._specs = specs

    def column(self, metric: str) -> FloatColumn:
        """See `Signals.column`: the default where a sample is stale or not given."""
        spec = self._specs[metric]
        default = np.nan if spec.default is None else spec.default
        column = np.full(self._nodes.size, default)
        for row, sample in self._rows(spec):
            if sample.age_seconds <= spec.stale_seconds:
                column[row] = value_of(sample, spec)
        return column

    def age(self, metric: str) -> FloatColumn:
        """See `Signals.age`."""
        column = np.full(self._nodes.size, np.nan)
        for row, sample in self._rows(self._specs[metric]):
            column[row] = sample.age_seconds
        return column

    def _rows(self, spec: MetricSpec) -> list[tuple[int, Sample]]:
        return [
            (self._nodes.row(name), samples[spec.name])
            for name, samples in self._samples.items()
            if spec.name in samples
        ]


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget: how many of the pods with these labels may still go."""

    namespace: str
    labels: Mapping[str, str]
    allowed: int

    def covers(self, pod: PodInfo) -> bool:
        """Whether the pod is one of its pods."""
        labels = pod.pod.metadata.labels or {}
        return pod.namespace == self.namespace and all(
            labels.get(key) == value for key, value in self.labels.items()
        )


@dataclass(frozen=True, slots=True)
class Scene:
    """The cluster of a test, and the pods it is about; the first is the pod of the cycle."""

    cache: Cache
    snapshot: Snapshot
    pods: tuple[PodInfo, ...]
    queued: Mapping[str, QueueTimes]
    chosen: str
    waited: float
    rows: Mapping[str, int]
    budgets: tuple[Budget, ...]

    @property
    def pod(self) -> PodInfo:
        """The pod of the cycle."""
        return self.pods[0]

    def without(self, gone: frozenset[int]) -> Scene:
        """The same cluster when the pods of these rows are gone; rows of nodes stay."""
        old, cache = self.snapshot, Cache()
        for name, row in self.rows.items():
            cache.add_node(old.nodes.node(row))
            assert cache.nodes.row(name) == row
        for namespace in old.namespaces.values():
            cache.set_namespace(namespace)
        for place, row in enumerate(old.pods.node.tolist()):
            if row >= 0 and place not in gone:
                cache.add_pod(old.pods.pod(place), old.nodes.name(row))
        return replace(self, cache=cache, snapshot=cache.snapshot(old.now, old.signals))


def make_scene(case: Case, specs: Mapping[str, MetricSpec], read: ReadText) -> Scene:
    """Builds the cluster of a test.

    Raises:
        FixtureError: an object cannot be made.
    """
    cluster = case.cluster
    cache = Cache()
    for thing in cluster.of("node"):
        cache.add_node(node_of(_annotated(thing, specs.values(), cluster.now), read))
    for thing in cluster.of("namespace"):
        cache.set_namespace(namespace_of(thing))
    _run(cluster, cache, read)
    pods: list[PodInfo] = []
    queued: dict[str, QueueTimes] = {}
    given = cluster.of("pod")
    for number, thing in enumerate(given, 1):
        for pod in pods_of(thing, "pod" if number == 1 else f"pod-{number}", read):
            pods.append(pod)
            queued[pod.name] = _queue_times(thing)
    if not pods:
        raise FixtureError("this test gives no pod")
    signals = FixtureSignals(cache.nodes, cluster.of("node"), specs)
    nodes = [thing.name for thing in cluster.of("node")]
    waited = given[0].plain.get("waited", 0.0)
    return Scene(
        cache,
        cache.snapshot(cluster.now, signals),
        tuple(pods),
        queued,
        given[0].text("chosen"),
        waited if isinstance(waited, float) else 0.0,
        {name: cache.nodes.row(name) for name in nodes},
        tuple(
            Budget(
                one.text("namespace") or "default",
                one.maps.get("label", {}),
                one.number("allowed", 0),
            )
            for one in cluster.of("pdb")
        ),
    )


def _annotated(thing: Thing, specs: Iterable[MetricSpec], now: float) -> Thing:
    """The node with the samples of metrics that are annotations where they are read."""
    written = dict(thing.maps.get("annotation", {}))
    for spec in specs:
        if spec.source == "annotation" and spec.name in thing.metrics:
            sample = thing.metrics[spec.name]
            at = datetime.fromtimestamp(now - sample.age_seconds, UTC).isoformat()
            written[spec.query] = f"{value_of(sample, spec) / spec.scale!r},{at}"
    return replace(thing, maps={**thing.maps, "annotation": written})


def _run(cluster: Cluster, cache: Cache, read: ReadText) -> None:
    """Binds the running pods to their nodes."""
    names: set[str] = set()
    for number, thing in enumerate(cluster.of("running"), 1):
        if is_finished(thing):
            continue
        for pod in pods_of(thing, f"running-{number}", read):
            if pod.key in names:
                raise FixtureError(f"two running pods are called {pod.key}")
            names.add(pod.key)
            if thing.flag("bound", default=True):
                cache.add_pod(pod, thing.node)
            else:
                cache.assume(pod, thing.node)


def _queue_times(thing: Thing) -> QueueTimes:
    first = parse_time(thing.text("first_attempt_at"))
    return QueueTimes(
        parse_time(thing.text("queued_at")),
        None if is_missing(first) else first,
        thing.number("attempts", 0),
    )
