"""How many requests may be in flight: grows by one a round trip, shrinks when answers get slow.

Knows nothing of what the requests are. Additive increase, multiplicative decrease: slow is what
takes several times as long as the fastest answer seen lately, for more in flight than the server
can work on only makes them wait there.
"""

from __future__ import annotations

from typing import Final

_SLOW_FACTOR: Final = 4.0
_SLOW_FLOOR_SECONDS: Final = 0.04
"""Answers faster than this are never slow."""
_FEW: Final = 16
"""As many may be in flight however slow answers are: that may be the network, or ourselves."""
_WINDOW: Final = 2000
"""After so many answers the fastest is looked for anew."""


class AdaptiveLimit:
    """How many may be in flight now; `learn` is told of every answer."""

    def __init__(self, start: int = 50, least: int = 4, most: int = 200) -> None:
        self._limit = float(start)
        self.limit = start
        """How many may be in flight now."""
        self._least = float(least)
        self._most = float(most)
        self._fastest = float("inf")
        self._fastest_next = float("inf")
        self._answers = 0
        self._hold = 0

    def learn(self, seconds: float, in_flight: int, *, overloaded: bool = False) -> None:
        """Learns from how long an answer took while so many, itself among them, were in flight."""
        self._answers += 1
        self._hold -= 1
        if not overloaded:
            self._fastest = min(self._fastest, seconds)
            self._fastest_next = min(self._fastest_next, seconds)
        if self._answers >= _WINDOW:
            self._answers = 0
            self._fastest, self._fastest_next = self._fastest_next, float("inf")
        slow = seconds > _SLOW_FLOOR_SECONDS and seconds > _SLOW_FACTOR * self._fastest
        if overloaded or (slow and self._limit > _FEW):
            # Once a round trip: answers on the way say nothing of the new limit.
            if self._hold <= 0:
                factor = 0.5 if overloaded else 0.9
                self._limit = max(self._least, self._limit * factor)
                self._hold = in_flight
        elif in_flight >= self.limit:
            self._limit = min(self._most, self._limit + 1.0 / self._limit)
        else:
            return
        self.limit = int(self._limit)
