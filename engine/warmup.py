"""What a first question would take long for, worked out before somebody asks: steps between cycles.

A plugin names its steps (`Points.warm`); none of them changes an answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from engine.basis import AnyFramework
from engine.clock import Clock
from engine.framework.runtime import Framework
from engine.framework.snapshot import Snapshot


class Warmup:
    """Background work of the scheduler."""

    def __init__(self, snapshot: Callable[[], Snapshot], clock: Clock) -> None:
        self._snapshot = snapshot
        self._clock = clock
        self._left: deque[Iterator[object]] = deque()

    def begin(self, frameworks: AnyFramework) -> None:
        """These rules are in force, or we lead from now on."""
        each = [frameworks] if isinstance(frameworks, Framework) else frameworks
        self._left = deque(one.warm(self._snapshot()) for one in each)

    @property
    def due(self) -> float | None:
        """At once, while something is left."""
        return self._clock.monotonic() if self._left else None

    def step(self, deadline: float) -> bool:
        """Takes steps until the deadline, one at the least; True if some are left."""
        while self._left:
            if next(self._left[0], self) is self:
                self._left.popleft()
            elif self._clock.monotonic() >= deadline:
                break
        return bool(self._left)
