"""Samples of metrics that a test gives, in the units of the metrics that read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from dsl.plan import DOMAINS, MetricSpec
from dsl.policytest import Cluster, Sample, Thing
from dsl.quantities import parse_duration, parse_number
from dsl.schema import WELL_KNOWN_LABELS
from dsl.types import MISSING, is_missing
from engine.framework.podinfo import PodInfo
from engine.framework.snapshot import (
    CodeColumn,
    Dictionary,
    FloatColumn,
    NodeColumns,
    PodColumns,
    value_of_each,
    value_of_each_pair,
)

_PERCENT: Final = 0.01
#: Sources whose values hold until they change.
_STEADY: Final = ("object",)
Key = tuple[str, ...]


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


def newest(sample: Sample | None, spec: MetricSpec) -> float:
    """What a policy reads of a sample: missing where there is none or it is stale."""
    if sample is None:
        return MISSING
    stale = sample.age_seconds > spec.stale_seconds and spec.source not in _STEADY
    return MISSING if stale else value_of(sample, spec)


class FixtureSignals:
    """The samples that a test gives: of nodes and their domains, and of all else by key.

    Implements `framework.snapshot.Signals`.
    """

    version = 1

    def __init__(
        self,
        nodes: NodeColumns,
        cluster: Cluster,
        pods: Iterable[tuple[PodInfo, Thing]],
        specs: Mapping[str, MetricSpec],
    ) -> None:
        """Takes the samples of a cluster; `pods` are all its pods with their fixtures."""
        self._nodes = nodes
        self._samples = {thing.name: thing.metrics for thing in cluster.of("node")}
        self._specs = specs
        self._values: dict[tuple[str, Key], Sample] = {
            (one.name, one.keys): Sample(one.text) for one in cluster.settings
        }
        owners: list[tuple[Key, Thing]] = [
            *(((one.name,), one) for one in cluster.of("namespace")),
            *((("", one.name), one) for one in cluster.of("workload")),
            *(((pod.namespace, pod.name), one) for pod, one in pods),
        ]
        for key, thing in owners:
            for name, sample in thing.metrics.items():
                self._values[name, key] = sample

    def column(self, metric: str) -> FloatColumn:
        """See `Signals.column`: the default where a sample is stale or not given."""
        spec = self._specs[metric]
        column = np.full(self._nodes.size, MISSING if spec.default is None else spec.default)
        for row, sample in self._rows(spec):
            value = newest(sample, spec)
            if not is_missing(value):
                column[row] = value
        return column

    def age(self, metric: str) -> FloatColumn:
        """See `Signals.age`."""
        column = np.full(self._nodes.size, MISSING)
        for row, sample in self._rows(self._specs[metric]):
            column[row] = sample.age_seconds
        return column

    def value(self, metric: str, key: tuple[str, ...]) -> float:
        """See `Signals.value`."""
        spec = self._specs[metric]
        found = self._values.get((spec.name, key))
        if found is None and spec.of == "workload":
            found = self._values.get((spec.name, ("", *key[1:])))
        return newest(found, spec)

    def values(self, metric: str) -> Mapping[tuple[str, ...], float]:
        """See `Signals.values`."""
        keys = (key for name, key in self._values if name == self._specs[metric].name)
        return {key: self.value(metric, key) for key in keys}

    def of_pods(self, metric: str, pods: PodColumns) -> FloatColumn:
        """See `Signals.of_pods`."""
        return value_of_each(self, metric, pods)

    def pairs(
        self, metric: str, ends: tuple[CodeColumn, CodeColumn], dictionary: Dictionary
    ) -> FloatColumn:
        """See `Signals.pairs`."""
        return value_of_each_pair(self, metric, ends, dictionary)

    def _rows(self, spec: MetricSpec) -> list[tuple[int, Sample]]:
        if spec.of in DOMAINS:
            return list(self._rows_of_domains(spec))
        return [
            (self._nodes.row(name), samples[spec.name])
            for name, samples in self._samples.items()
            if spec.name in samples
        ]

    def _rows_of_domains(self, spec: MetricSpec) -> Iterator[tuple[int, Sample]]:
        """Each node with what is given for its zone, region or rack."""
        key = WELL_KNOWN_LABELS[f"node.{spec.of}"]
        for row in np.flatnonzero(self._nodes.present).tolist():
            domain = (self._nodes.node(row).metadata.labels or {}).get(key)
            found = None if domain is None else self._values.get((spec.name, (domain,)))
            if found is not None:
                yield row, found
