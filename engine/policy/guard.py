"""Watches what comes after a change of policies, and takes it back when it goes wrong. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from engine.clock import Clock
from engine.policysections import GuardSection
from engine.sections import seconds

_EVERY_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Load:
    """How the scheduler does: pods that fit nowhere or are held, and errors since the start."""

    pending: int
    errors: int


class Guard:
    """Compares with how things were when rules changed; implements `scheduler.Background`."""

    def __init__(
        self,
        section: GuardSection,
        clock: Clock,
        measure: Callable[[], Load],
        go_back: Callable[[str], object],
    ) -> None:
        self._section = section
        self._clock = clock
        self._measure = measure
        self._go_back = go_back
        self._before = Load(0, 0)
        self._since = 0.0
        self.due: float | None = None
        """When it looks again: every second while a change is watched."""

    def changed(self) -> None:
        """Other rules are in force from now on."""
        self._before = self._measure()
        self._since = self._clock.monotonic()
        self.due = self._since + _EVERY_SECONDS

    def step(self, deadline: float) -> bool:  # noqa: ARG002 - two numbers are one step
        """Looks if it is time."""
        now = self._clock.monotonic()
        if self.due is None or now < self.due:
            return False
        over = now - self._since >= seconds(self._section.within)
        self.due = None if over else now + _EVERY_SECONDS
        why = self._wrong(now - self._since)
        if why:
            self.due = None
            self._go_back(why)
        return False

    def _wrong(self, after: float) -> str:
        now, before = self._measure(), self._before
        for what, was, is_now, most in (
            ("pending pods", before.pending, now.pending, self._section.pending),
            ("errors", before.errors, now.errors, self._section.errors),
        ):
            if most is not None and is_now - was >= most:
                return f"{what} rose from {was} to {is_now} in {after:.0f} s, and {most} is allowed"
        return ""
