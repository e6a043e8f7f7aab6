"""Work in steps between cycles, such as warm-up (`Points.warm`), which changes no answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from engine.basis import AnyFramework
from engine.clock import Clock
from engine.framework.runtime import Framework
from engine.framework.snapshot import Snapshot


class Steps:
    """Background work of the scheduler; see `scheduler.Background`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left: Iterator[object] | None = None

    def begin(self, steps: Iterator[object]) -> None:
        """These are next; what was left of others is not done."""
        self._left = steps

    @property
    def due(self) -> float | None:
        """At once, while something is left."""
        return None if self._left is None else self._clock.monotonic()

    def step(self, deadline: float) -> bool:
        """Runs steps until the deadline, at least one; True if some are left."""
        while self._left is not None:
            if next(self._left, self) is self:
                self._left = None
            elif self._clock.monotonic() >= deadline:
                break
        return self._left is not None


def warmup(frameworks: AnyFramework, snapshot: Callable[[], Snapshot]) -> Iterator[None]:
    """The warm-up steps of these frameworks, whether they are in force or not."""
    for one in [frameworks] if isinstance(frameworks, Framework) else frameworks:
        for _ in one.warm(snapshot()):
            yield
