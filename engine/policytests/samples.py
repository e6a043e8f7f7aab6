"""Samples of metrics that a test gives, as if the source of each metric had just answered."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

from dsl.plan import DOMAINS, MetricSpec
from dsl.policytest import Cluster, Sample, Thing
from dsl.quantities import parse_duration, parse_number
from dsl.types import is_missing
from engine.clock import Clock
from engine.framework.podinfo import PodInfo
from engine.objects import Node
from engine.signals.spec import CLUSTER, PAIR, SignalSpec
from engine.signals.store import Series, SignalStore

_PERCENT: Final = 0.01
#: Sources whose values hold until they change.
_STEADY: Final = ("object",)


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


def store_of(
    cluster: Cluster,
    nodes: Iterable[Node],
    pods: Iterable[tuple[PodInfo, Thing]],
    specs: Iterable[MetricSpec],
    clock: Clock,
) -> SignalStore:
    """What a scheduler knows of these metrics; `pods` are all there are, with their fixtures."""
    store = SignalStore(clock)
    for node in nodes:
        store.nodes_changed(None, node)
    asked = [(spec, _signal_spec(spec)) for spec in specs]
    store.set_specs(signal for _, signal in asked)
    pods = list(pods)
    for spec, signal in asked:
        series = [
            Series(names, value_of(sample, spec), cluster.now - sample.age_seconds)
            for names, sample in _samples(spec, cluster, pods)
        ]
        store.ingest(signal.question, series)
    return store


def _signal_spec(spec: MetricSpec) -> SignalSpec:
    """Samples are given by the name of a metric, in its base unit; no two share an answer."""
    return SignalSpec(
        id=spec.id,
        query=spec.id,
        of=spec.of,
        by=spec.labels,
        stale_seconds=math.inf if spec.source in _STEADY else spec.stale_seconds,
        default=spec.default,
        name=spec.name,
    )


def _samples(
    spec: MetricSpec, cluster: Cluster, pods: Iterable[tuple[PodInfo, Thing]]
) -> Iterator[tuple[tuple[str, ...], Sample]]:
    """The samples of a metric, with the labels that name what each is of."""
    if spec.of in (CLUSTER, PAIR, *DOMAINS):
        keys = {CLUSTER: 0, PAIR: 2}.get(spec.of, 1)
        for one in cluster.settings:
            if one.name == spec.name and len(one.keys) == keys:
                yield one.keys, one.sample
        return
    owners: Iterable[tuple[tuple[str, ...], Thing]]
    if spec.of == "pod":
        owners = (((pod.namespace, pod.name), thing) for pod, thing in pods)
    else:
        # A workload is given without its namespace.
        start = ("",) if spec.of == "workload" else ()
        owners = (((*start, one.name), one) for one in cluster.of(spec.of))
    for names, thing in owners:
        if spec.name in thing.metrics:
            yield names, thing.metrics[spec.name]
