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
        go_back: Callable[[str, int], object],
        watched: Callable[[int], object],
    ) -> None:
        """`go_back` takes why, and how many changes; `watched` how many may be gone back on yet."""
        self._section = section
        self._clock = clock
        self._measure = measure
        self._go_back = go_back
        self._watched = watched
        self._changes: list[tuple[float, Load]] = []
        self.due: float | None = None
        """When it looks again: every second while a change is watched."""

    def changed(self) -> None:
        """Other rules are in force from now on."""
        now = self._clock.monotonic()
        self._changes.append((now, self._measure()))
        self.due = now + _EVERY_SECONDS

    def step(self, deadline: float) -> bool:  # noqa: ARG002 - a few numbers are one step
        """Looks if it is time."""
        now = self._clock.monotonic()
        if self.due is None or now < self.due:
            return False
        changes, load, within = self._changes, self._measure(), seconds(self._section.within)
        wrong = [self._wrong(before, load, now - since) for since, before in changes]
        # With the first change that is to blame go those after it: what was before it was good.
        first = next((at for at, why in enumerate(wrong) if why), None)
        self._changes = [one for one in changes if first is None and now - one[0] < within]
        self.due = now + _EVERY_SECONDS if self._changes else None
        if first is not None:
            self._go_back(wrong[first], len(changes) - first)
        self._watched(len(self._changes))
        return False

    def _wrong(self, before: Load, now: Load, after: float) -> str:
        for what, was, is_now, most in (
            ("pending pods", before.pending, now.pending, self._section.pending),
            ("errors", before.errors, now.errors, self._section.errors),
        ):
            if most is not None and is_now - was >= most:
                return f"{what} rose from {was} to {is_now} in {after:.0f} s, and {most} is allowed"
        return ""
