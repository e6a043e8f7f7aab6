"""Work in steps between cycles: one thing at a time, and the newest takes the place of others."""

from __future__ import annotations

from collections.abc import Iterator

from engine.clock import Clock


class Steps:
    """Background work of the scheduler; see `scheduler.Background`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left: Iterator[object] | None = None

    def begin(self, steps: Iterator[object] | None) -> None:
        """These are next, or none; what was left of others is not done."""
        self._left = steps

    @property
    def due(self) -> float | None:
        """At once, while something is left."""
        return None if self._left is None else self._clock.monotonic()

    def step(self, deadline: float) -> bool:
        """Runs steps until the deadline, at least one; True if some are left."""
        while (steps := self._left) is not None:
            if next(steps, self) is self:
                # Who is told by the last one may have begun others.
                self._left = None if self._left is steps else self._left
            elif self._clock.monotonic() >= deadline:
                break
        return self._left is not None
