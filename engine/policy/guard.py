"""Watches what comes after a change of policies, and takes it back when it goes wrong. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
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


Measure = Callable[..., Load]
"""`tried_again=True` counts pods that were rejected and are tried again: linear in those."""


@dataclass(eq=False)
class Guard:
    """Compares with how things were when rules changed; implements `scheduler.Background`.

    `go_back` takes why, and how many changes; `watched` how many may be gone back on yet.
    """

    section: GuardSection
    clock: Clock
    measure: Measure
    go_back: Callable[[str, int], object]
    watched: Callable[[int], object]
    due: float | None = field(default=None, init=False)
    """When it looks again: every second while a change is watched."""

    def __post_init__(self) -> None:
        self._changes: list[tuple[float, Load]] = []

    def changed(self, before: Load) -> None:
        """Other rules are in force from now on; how things were before they woke anybody."""
        now = self.clock.monotonic()
        self._changes.append((now, before))
        self.due = now + _EVERY_SECONDS

    def step(self, deadline: float) -> bool:  # noqa: ARG002 - a few numbers are one step
        """Looks if it is time."""
        now = self.clock.monotonic()
        if self.due is None or now < self.due:
            return False
        changes, load, within = self._changes, self.measure(), seconds(self.section.within)
        wrong = [self._wrong(before, load, now - since) for since, before in changes]
        # The last change since which so much came goes, with those after it. If one before it is to
        # blame, pods are soon rejected again; the errors until now are none of its own.
        bad = max((at for at, why in enumerate(wrong) if why), default=None)
        since = load.errors if bad is None else changes[bad][1].errors
        if bad is not None:
            self.go_back(wrong[bad], len(changes) - bad)
        self._changes = [
            (at, Load(before.pending, before.errors + load.errors - since))
            for at, before in changes[:bad]
            if now - at < within
        ]
        self.due = now + _EVERY_SECONDS if self._changes else None
        self.watched(len(self._changes))
        return False

    def _wrong(self, before: Load, now: Load, after: float) -> str:
        for what, was, is_now, most in (
            ("pending pods", before.pending, now.pending, self.section.pending),
            ("errors", before.errors, now.errors, self.section.errors),
        ):
            if most is not None and is_now - was >= most:
                return f"{what} rose from {was} to {is_now} in {after:.0f} s, and {most} is allowed"
        return ""
