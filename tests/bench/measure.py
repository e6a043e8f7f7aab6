"""What a measurement is, and how one is taken: medians, CPU and memory of a process.

Absolute numbers drift with the machine; every part measures both sides of a ratio in one run.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Measurement:
    """One row: `part` and `name` say of what, `values` are numbers by name with unit.

    `runs` are the single results behind the row's first value.
    """

    part: str
    name: str
    values: Mapping[str, float]
    tags: Mapping[str, str | int | float] = field(default_factory=dict)
    runs: Sequence[float] = ()

    def as_json(self) -> dict[str, object]:
        return {
            "part": self.part,
            "name": self.name,
            **self.tags,
            **{name: float(f"{value:.5g}") for name, value in self.values.items()},
            "runs": [float(f"{run:.5g}") for run in self.runs],
        }


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of them lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def seconds_each(calls: Mapping[str, Callable[[], object]], *, rounds: int, repeat: int) -> dict:
    """Median seconds of each call, all taken in turn, so that a slow moment hits all alike.

    A round times `repeat` calls in a row; each call is made a few times before.
    """
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(3):
            call()
    for _ in range(rounds):
        for name, call in calls.items():
            began = time.perf_counter()
            for _ in range(repeat):
                call()
            taken[name].append((time.perf_counter() - began) / repeat)
    return {name: statistics.median(times) for name, times in taken.items()}


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_mib(pid: int | None = None) -> float:
    """Resident memory of a process, this one by default."""
    fields = Path(f"/proc/{pid or os.getpid()}/statm").read_text().split()
    return int(fields[1]) * _PAGE / 2**20
