"""Time as an argument: the only module that reads a real clock.

Everything else takes a `Clock`, so that a test can move time and a decision can be replayed.
"""

from __future__ import annotations

import time as _time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol


class Clock(Protocol):
    """What the engine may know of time."""

    def monotonic(self) -> float:
        """Seconds that never go back; for durations and deadlines."""
        ...

    def time(self) -> float:
        """Seconds since the epoch, UTC; for timestamps that leave the process."""
        ...


def stamp(time: float, *, micro: bool = False) -> str:
    """Seconds since the epoch as Kubernetes writes a `Time`, or a `MicroTime`."""
    second, fraction = divmod(round(time * 1e6), 1_000_000) if micro else (time // 1, 0)
    return f"{_second(second)}.{fraction:06}Z" if micro else f"{_second(second)}Z"


@lru_cache(maxsize=2)
def _second(second: float) -> str:
    """Formatted once for hundreds of Events: each would take three times as long."""
    return datetime.fromtimestamp(second, UTC).isoformat()[:19]


class SystemClock:
    """The machine's own clock, without a call of ours around it: it is asked 40 times a pod."""

    monotonic = staticmethod(_time.monotonic)
    time = staticmethod(_time.time)


class ManualClock:
    """A clock that stands still until it is told to move; for tests and replays."""

    def __init__(self, start: float = 1_740_823_200.0) -> None:
        self._time = start
        self._monotonic = 0.0

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return self._monotonic

    def time(self) -> float:
        """See `Clock.time`."""
        return self._time

    def advance(self, seconds: float) -> None:
        """Moves both readings forward."""
        self._time += seconds
        self._monotonic += seconds
