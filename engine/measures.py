"""Counts the scheduler's work: attempts, decisions, bindings, evictions.

Decides nothing.

Source: kubernetes pkg/scheduler/metrics/profile_metrics.go, schedule_one.go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from engine import telemetry as names
from engine.clock import Clock
from engine.framework.decision import Placed
from engine.framework.edge import BindOutcome
from engine.queue import QueuedPod

_RULE: Final = re.compile(r"\(([^()\s]+\.policy):(\d+)\)$")
"""File and line at the end of a rule's reason; see `policy.plugin`. Extenders may name theirs."""
_MOST_ATTEMPTS: Final = 14
_BINDINGS: Final = dict.fromkeys(BindOutcome, names.Count.BINDINGS_REFUSED) | {
    BindOutcome.BOUND: names.Count.BINDINGS_WRITTEN,
    BindOutcome.UNKNOWN: names.Count.BINDINGS_UNKNOWN,
}


class Result(StrEnum):
    """How an attempt ended."""

    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"


@dataclass(eq=False)
class Measures:
    """Turns what happens to pods into metrics."""

    telemetry: names.Telemetry
    clock: Clock

    def decided(self, placed: Placed) -> None:
        """A decision was made."""
        self.telemetry.observe(names.ALGORITHM_SECONDS, placed.seconds)
        decision = placed.decision
        if decision.rescue is not None:
            self.telemetry.count(names.PREEMPTION_ATTEMPTS)
        if decision.fit_error is not None:
            rules = {_RULE.search(reason) for reason in decision.fit_error.reasons}
            for policy, line in {(rule[1], rule[2]) for rule in rules if rule}:
                self.telemetry.count(names.RULE_REJECTIONS, policy, line)

    def ended(self, queued: QueuedPod, result: Result) -> None:
        """An attempt that began at `queued.tried_at` ended."""
        profile = queued.pod.pod.spec.scheduler_name
        seconds = self.clock.monotonic() - queued.tried_at
        self.telemetry.count(names.ATTEMPTS, result, profile)
        self.telemetry.observe(names.ATTEMPT_SECONDS, seconds, result, profile)
        if result is Result.SCHEDULED:
            attempts = queued.attempts
            word = str(attempts) if attempts <= _MOST_ATTEMPTS else f"{_MOST_ATTEMPTS + 1}+"
            since = queued.added_at if queued.first_attempt_at is None else queued.first_attempt_at
            waited = max(0.0, self.clock.time() - since)
            self.telemetry.observe(names.SLI_SECONDS, waited, word)
            self.telemetry.observe(names.POD_ATTEMPTS, attempts)

    def bound(self, outcome: BindOutcome) -> None:
        """A binding ended."""
        self.telemetry.add(_BINDINGS[outcome])

    def put_off(self) -> None:
        """A binding was put off; its attempt counts as an error."""
        self.telemetry.add(names.Count.BINDINGS_PUT_OFF)

    def held(self) -> None:
        """A pod begins to wait in permit."""
        self.telemetry.add(names.Count.PODS_HELD)

    def waited(self, since: float, result: str) -> None:
        """A pod that had waited in permit since a monotonic time was released or rejected."""
        self.telemetry.observe(names.PERMIT_SECONDS, self.clock.monotonic() - since, result)

    def point(self, queued: QueuedPod, point: str, began: float, *, well: bool) -> None:
        """An extension point that began at a monotonic time has ended."""
        seconds = self.clock.monotonic() - began
        status = "Success" if well else "Error"
        profile = queued.pod.pod.spec.scheduler_name
        self.telemetry.observe(names.POINT_SECONDS, seconds, point, status, profile)

    def evicting(self, victims: int) -> None:
        """So many pods were chosen to be evicted for one."""
        self.telemetry.observe(names.PREEMPTION_VICTIMS, victims)
