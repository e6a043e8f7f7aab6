"""Samples of metrics that a test gives, as if the source of each metric had just answered."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from dsl.nearest import closest
from dsl.plan import DOMAINS, MetricSpec, Plan
from dsl.policytest import Cluster, Sample, Suite, Thing
from dsl.quantities import parse_duration, parse_number
from dsl.source import Span
from dsl.types import is_missing
from engine.clock import Clock
from engine.objects import Node
from engine.pods.podinfo import PodInfo
from engine.signals.samples import Series
from engine.signals.spec import CLUSTER, PAIR, SignalSpec
from engine.signals.store import SignalStore

_PERCENT: Final = 0.01
#: Sources whose values hold until they change.
_STEADY: Final = ("object",)
_DOMAIN: Final = "domain"
#: Whose value a metric with none, one and two keys is.
_OF_KEYS: Final = (CLUSTER, _DOMAIN, PAIR)


class Given(NamedTuple):
    """A sample: of which kind of owner and which metric, its labels, and where it stands."""

    of: str
    name: str
    labels: tuple[str, ...]
    sample: Sample
    span: Span


def value_of(sample: Sample, spec: MetricSpec) -> float:
    """A sample in the metric's base unit, as if it had come from its source."""
    text = sample.text
    if text.endswith("%") and spec.scale == _PERCENT:
        return parse_number(text)
    read = (parse_number(text), parse_duration(text))
    first, second = reversed(read) if spec.unit == "seconds" else read
    return (second if is_missing(first) else first) * spec.scale


def samples_of(cluster: Cluster, pods: Iterable[tuple[PodInfo, Thing]]) -> Iterator[Given]:
    """All samples that a test gives; `pods` are all there are, with their fixtures."""
    owners: list[tuple[str, tuple[str, ...], Thing]]
    owners = [(one.kind, (one.name,), one) for one in cluster.of("node", "namespace")]
    # A workload is given without its namespace.
    owners += [(one.kind, ("", one.name), one) for one in cluster.of("workload")]
    owners += [("pod", (pod.namespace, pod.name), thing) for pod, thing in pods]
    for of, labels, thing in owners:
        for name, sample in thing.metrics.items():
            yield Given(of, name, labels, sample, thing.span)
    for one in cluster.settings.values():
        of = _OF_KEYS[len(one.keys)] if len(one.keys) < len(_OF_KEYS) else ""
        yield Given(of, one.name, one.keys, one.sample, one.span)


def store_of(
    given: Sequence[Given], nodes: Iterable[Node], specs: Iterable[MetricSpec], clock: Clock
) -> SignalStore:
    """What a scheduler knows of these metrics."""
    store = SignalStore(clock)
    for node in nodes:
        store.nodes_changed(None, node)
    asked = [(spec, _signal_spec(spec)) for spec in specs]
    store.set_specs(signal for _, signal in asked)
    for spec, signal in asked:
        series = [
            Series(one.labels, value_of(one.sample, spec), clock.time() - one.sample.age_seconds)
            for one in given
            if one.name == spec.name and one.of == (_DOMAIN if spec.of in DOMAINS else spec.of)
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


def unread_metrics(suite: Suite, given: Sequence[Given], plans: Sequence[Plan]) -> Iterator[str]:
    """A metric that no policy reads, or not of that, is a slip of the pen."""
    read: dict[str, set[str]] = {}
    for spec in [one for plan in plans for one in plan.metrics]:
        read.setdefault(spec.name, set()).add(spec.of)
    for one in {(one.name, one.of): one for one in reversed(given)}.values():
        where, name = f"{suite.source.name}:{suite.source.position(one.span.start)[0]}: ", one.name
        if name not in read:
            near = closest(name, sorted(read))
            listed = f"; they read {', '.join(sorted(read))}" if read else ""
            listed = f"; did you mean `{near}`?" if near is not None else listed
            yield f"{where}no policy used here reads the metric `{name}` that is given{listed}"
        elif one.of not in read[name] and not (one.of == _DOMAIN and read[name] & {*DOMAINS}):
            wanted = min(read[name])
            yield f"{where}the metric `{name}` is by {wanted}, so nobody reads what is given here"
