"""What the operating system says of the process, under the names that all clients use.

Source: prometheus.io/docs/instrumenting/writing_clientlibs, process metrics; proc(5).
"""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Final

from engine.telemetry import Kind, Metric, Read, Telemetry

_PROC: Final = Path("/proc/self")
_TICKS: Final = float(os.sysconf("SC_CLK_TCK")) if hasattr(os, "sysconf") else 100.0
_PAGE: Final = resource.getpagesize()
_START_FIELD: Final = 19
"""Of `stat`, counted behind the name in brackets."""


def measure(telemetry: Telemetry) -> None:
    """Has them read when somebody asks; where there is no /proc, only what is there without."""
    usage = Metric("process_cpu_seconds_total", Kind.COUNTER, "CPU time, user and system.")
    telemetry.read(usage, lambda: {(): _cpu_seconds()})
    if not _PROC.exists():
        return
    gauges: list[tuple[str, str, Read]] = [
        ("process_resident_memory_bytes", "Memory in use.", lambda: {(): _statm(1)}),
        ("process_virtual_memory_bytes", "Address space.", lambda: {(): _statm(0)}),
        ("process_open_fds", "Open files.", lambda: {(): _open_files()}),
        ("process_max_fds", "Files that may be open.", lambda: {(): _most_files()}),
    ]
    for name, text, read in gauges:
        telemetry.read(Metric(name, Kind.GAUGE, text), read)
    began = _started()
    start = Metric("process_start_time_seconds", Kind.GAUGE, "Start, in seconds of Unix time.")
    telemetry.read(start, lambda: {(): began})


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _statm(field: int) -> float:
    return float((_PROC / "statm").read_text().split()[field]) * _PAGE


def _open_files() -> float:
    return float(sum(1 for _ in (_PROC / "fd").iterdir()))


def _most_files() -> float:
    return float(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _started() -> float:
    ticks = float((_PROC / "stat").read_text().rpartition(")")[2].split()[_START_FIELD])
    boot = next(
        float(line.split()[1])
        for line in Path("/proc/stat").read_text().splitlines()
        if line.startswith("btime ")
    )
    return boot + ticks / _TICKS
