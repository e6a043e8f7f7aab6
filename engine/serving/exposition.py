"""Numbers as Prometheus reads them: the text format, version 0.0.4.

Source: prometheus.io/docs/instrumenting/exposition_formats.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Final

from engine.telemetry import Histogram, Labels, Metric

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Families = Iterable[tuple[Metric, Mapping[Labels, float | Histogram]]]


def exposition(families: Families) -> str:
    """All families, by name."""
    found = sorted(families, key=lambda family: family[0].name)
    return "".join(line for metric, values in found for line in _family(metric, values))


def _family(metric: Metric, values: Mapping[Labels, float | Histogram]) -> Iterator[str]:
    if not values:
        return
    yield f"# HELP {metric.name} {_escaped(metric.help)}\n"
    yield f"# TYPE {metric.name} {metric.kind.value}\n"
    for labels, value in values.items():
        if isinstance(value, Histogram):
            yield from _histogram(metric, labels, value)
        else:
            yield f"{metric.name}{_labels(metric.labels, labels)} {_number(value)}\n"


def _histogram(metric: Metric, labels: Labels, histogram: Histogram) -> Iterator[str]:
    own = _labels(metric.labels, labels)
    start = f"{metric.name}_bucket{own[:-1]}," if own else f"{metric.name}_bucket{{"
    below = 0
    for bound, count in zip(_bounds(histogram.buckets), histogram.counts, strict=True):
        below += count
        yield f'{start}le="{bound}"}} {below}\n'
    yield f"{metric.name}_sum{own} {_number(histogram.total)}\n"
    yield f"{metric.name}_count{own} {below}\n"


@cache
def _bounds(buckets: tuple[float, ...]) -> tuple[str, ...]:
    return tuple(map(_number, (*buckets, math.inf)))


def _labels(names: tuple[str, ...], values: Labels) -> str:
    pairs = [
        f'{name}="{_escaped(value, quoted=True)}"'
        for name, value in zip(names, values, strict=True)
    ]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _escaped(text: str, *, quoted: bool = False) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quoted else text


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if value == int(value) else repr(float(value))
