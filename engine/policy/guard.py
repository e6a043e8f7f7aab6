"""Watches what comes after a change of policies, and takes it back when it goes wrong. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from engine.clock import Clock
from engine.configuration.berth import GuardSection
from engine.configuration.forms import seconds

_EVERY_SECONDS: Final = 1.0
_AGAIN_SECONDS: Final = 15.0
"""So long after going back it is looked for what a change before may be to blame for: pods that
wait are tried again after their backoff."""


@dataclass(frozen=True, slots=True)
class Load:
    """How the scheduler does: pods that fit nowhere or are held, and errors since the start."""

    pending: int
    errors: int


Measure = Callable[..., Load]
"""`tried_again=True` counts pods that were rejected and are tried again: linear in those."""


@dataclass(eq=False)
class Guard:
    """Compares with how things were when rules changed; implements `scheduler.Background`.

    `go_back` takes why, and how many changes; `watched` how many may be gone back on yet. Until
    what it goes back to is in force (`returned`, or a change) it does not look.
    """

    section: GuardSection
    clock: Clock
    measure: Measure
    go_back: Callable[[str, int], object]
    watched: Callable[[int], object]
    due: float | None = field(default=None, init=False)
    """When it looks again: every second while a change is watched."""

    def __post_init__(self) -> None:
        # When, until when it is watched, and how things were.
        self._changes: list[tuple[float, float, Load]] = []
        self._bad: Load | None = None  # how they were before a change that is gone back on

    def changed(self, before: Load) -> None:
        """Other rules are in force from now on; how things were before they woke anybody."""
        now = self.clock.monotonic()
        self._changes.append((now, now + seconds(self.section.within), before))
        self.due = now + _EVERY_SECONDS

    def returned(self) -> None:
        """What it went back to is in force, or what came since: errors until now are of the bad."""
        bad, self._bad = self._bad, None
        if bad is None:
            return
        now, late = self.clock.monotonic(), self.measure().errors - bad.errors
        self._changes = [
            (at, max(until, now + _AGAIN_SECONDS), Load(before.pending, before.errors + late))
            for at, until, before in self._changes
        ]
        self.due = now + _EVERY_SECONDS if self._changes else None

    def step(self, deadline: float) -> bool:  # noqa: ARG002 - a few numbers are one step
        """Looks if it is time."""
        now = self.clock.monotonic()
        if self.due is None or now < self.due:
            return False
        changes, load = self._changes, self.measure()
        wrong = [self._wrong(before, load, now - since) for since, _, before in changes]
        # The last change since which so much came goes, with those after it. If one before it is to
        # blame, pods are soon rejected again.
        bad = max((at for at, why in enumerate(wrong) if why), default=None)
        if bad is None:
            self._changes = [one for one in changes if now < one[1]]
            self.due = now + _EVERY_SECONDS if self._changes else None
        else:
            self._bad, self._changes, self.due = changes[bad][2], changes[:bad], None
            self.go_back(wrong[bad], len(changes) - bad)
        self.watched(len(self._changes))
        return False

    def _wrong(self, before: Load, now: Load, after: float) -> str:
        for what, was, is_now, most in (
            ("pending pods", before.pending, now.pending, self.section.pending),
            ("errors", before.errors, now.errors, self.section.errors),
        ):
            if most is not None and is_now - was >= most:
                return f"{what} rose from {was} to {is_now} in {after:.0f} s; the limit is +{most}"
        return ""
