"""What the operating system says of the process, under the names that all clients use.

Source: prometheus.io/docs/instrumenting/writing_clientlibs, process metrics; proc(5).
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Final

from engine.telemetry import Kind, Metric, Telemetry

_PROC: Final = Path("/proc/self")
_TICKS: Final = float(os.sysconf("SC_CLK_TCK")) if hasattr(os, "sysconf") else 100.0
_PAGE: Final = resource.getpagesize()
_START_FIELD: Final = 19
"""Of `stat`, counted behind the name in brackets."""


def measure(telemetry: Telemetry) -> None:
    """Has them read when somebody asks; where there is no /proc, only what is there without."""

    def have(name: str, kind: Kind, text: str, read: Callable[[], float]) -> None:
        telemetry.read(Metric(name, kind, text), lambda: {(): float(read())})

    have("process_cpu_seconds_total", Kind.COUNTER, "CPU time, user and system.", _cpu_seconds)
    if not _PROC.exists():
        return
    began, files = _started(), _PROC / "fd"
    have("process_resident_memory_bytes", Kind.GAUGE, "Memory in use.", lambda: _statm(1))
    have("process_virtual_memory_bytes", Kind.GAUGE, "Address space.", lambda: _statm(0))
    have("process_open_fds", Kind.GAUGE, "Open files.", lambda: sum(1 for _ in files.iterdir()))
    have("process_max_fds", Kind.GAUGE, "Files that may be open.", _most_files)
    have("process_start_time_seconds", Kind.GAUGE, "Start, in seconds of Unix time.", lambda: began)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _statm(field: int) -> int:
    return int((_PROC / "statm").read_text().split()[field]) * _PAGE


def _most_files() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _started() -> float:
    ticks = float((_PROC / "stat").read_text().rpartition(")")[2].split()[_START_FIELD])
    boot = next(
        float(line.split()[1])
        for line in Path("/proc/stat").read_text().splitlines()
        if line.startswith("btime ")
    )
    return boot + ticks / _TICKS
