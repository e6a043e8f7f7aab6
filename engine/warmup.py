"""Runs the warm-up steps of plugins (`Points.warm`) between cycles; none changes an answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from engine.basis import AnyFramework
from engine.clock import Clock
from engine.framework.runtime import Framework
from engine.framework.snapshot import Snapshot


class Warmup:
    """Background work of the scheduler; see `scheduler.Background`."""

    def __init__(self, snapshot: Callable[[], Snapshot], clock: Clock) -> None:
        self._snapshot = snapshot
        self._clock = clock
        self._left: deque[Iterator[object]] = deque()

    def begin(self, frameworks: AnyFramework) -> None:
        """Starts over: these frameworks are in force, or this replica leads from now on."""
        self._left = deque([self.steps(frameworks, self._snapshot)])

    @staticmethod
    def steps(frameworks: AnyFramework, snapshot: Callable[[], Snapshot]) -> Iterator[None]:
        """The steps of these frameworks, whether they are in force or not."""
        for one in [frameworks] if isinstance(frameworks, Framework) else frameworks:
            for _ in one.warm(snapshot()):
                yield

    @property
    def due(self) -> float | None:
        """At once, while something is left."""
        return self._clock.monotonic() if self._left else None

    def step(self, deadline: float) -> bool:
        """Runs steps until the deadline, at least one; True if some are left."""
        while self._left:
            if next(self._left[0], self) is self:
                self._left.popleft()
            elif self._clock.monotonic() >= deadline:
                break
        return bool(self._left)
