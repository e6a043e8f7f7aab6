"""Numbers as Prometheus reads them: the text format, version 0.0.4; and those of the process.

The latter are what the operating system says, under the names that all clients use.

Source: prometheus.io/docs/instrumenting/exposition_formats, and writing_clientlibs; proc(5).
"""

from __future__ import annotations

import math
import resource
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from engine.clock import Clock
from engine.telemetry import Histogram, Kind, Labels, Metric, Telemetry

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PROC: Final = Path("/proc/self")
_PAGE: Final = resource.getpagesize()

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
    for bound, count in zip((*histogram.buckets, math.inf), histogram.counts, strict=True):
        below += count
        yield f'{start}le="{_number(bound)}"}} {below}\n'
    yield f"{metric.name}_sum{own} {_number(histogram.total)}\n"
    yield f"{metric.name}_count{own} {below}\n"


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


def measure_process(telemetry: Telemetry, clock: Clock) -> None:
    """Has them read when somebody asks; where there is no /proc, only what is there without.

    The process starts when this is called, or moments before.
    """
    began = clock.time()

    def have(name: str, kind: Kind, text: str, read: Callable[[], float]) -> None:
        telemetry.read(Metric(name, kind, text), lambda: {(): float(read())})

    have("process_cpu_seconds_total", Kind.COUNTER, "CPU time, user and system.", _cpu_seconds)
    have("process_start_time_seconds", Kind.GAUGE, "Start, in seconds of Unix time.", lambda: began)
    if not _PROC.exists():
        return
    files = _PROC / "fd"
    have("process_resident_memory_bytes", Kind.GAUGE, "Memory in use.", lambda: _statm(1))
    have("process_virtual_memory_bytes", Kind.GAUGE, "Address space.", lambda: _statm(0))
    have("process_open_fds", Kind.GAUGE, "Open files.", lambda: sum(1 for _ in files.iterdir()))
    have(
        "process_max_fds",
        Kind.GAUGE,
        "Files that may be open.",
        lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _statm(field: int) -> int:
    return int((_PROC / "statm").read_text().split()[field]) * _PAGE
