"""Every name under which the engine reports: log fields and counters.

Rooms count through `Telemetry`; nobody else invents a name. Counting is a dictionary increment,
cheap enough for every decision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum


class Count(Enum):
    """What is counted. The values are the names users see."""

    ATTEMPTS_SCHEDULED = "schedule_attempts_scheduled"
    ATTEMPTS_UNSCHEDULABLE = "schedule_attempts_unschedulable"
    ATTEMPTS_ERROR = "schedule_attempts_error"
    BINDINGS_WRITTEN = "bindings_written"
    BINDINGS_REFUSED = "bindings_refused"
    BINDINGS_UNKNOWN = "bindings_unknown_outcome"
    EVENTS_WRITTEN = "events_written"
    EVENTS_DROPPED = "events_dropped"
    PODS_HELD = "pods_held_in_permit"
    PODS_EVICTED = "pods_evicted"
    STATUS_PATCHES = "pod_status_patches"
    REFLECTOR_LISTS = "reflector_lists"
    REFLECTOR_WATCHES = "reflector_watches"
    REFLECTOR_ERRORS = "reflector_errors"
    WATCH_EVENTS_OUT_OF_ORDER = "watch_events_out_of_order"
    OBJECTS_UNREADABLE = "objects_unreadable"
    POLICY_RELOADS = "policy_reloads"
    POLICY_RELOADS_REFUSED = "policy_reloads_refused"
    PLUGIN_ERRORS = "plugin_errors"
    SIGNAL_QUERIES = "signal_queries"
    SIGNAL_ERRORS = "signal_query_errors"


class Telemetry:
    """The counts of one process."""

    def __init__(self) -> None:
        self._counts: Counter[Count] = Counter()

    def add(self, what: Count, amount: int = 1) -> None:
        """Counts."""
        self._counts[what] += amount

    def __getitem__(self, what: Count) -> int:
        return self._counts[what]

    def counts(self) -> Mapping[str, int]:
        """All counts by name."""
        return {count.value: number for count, number in self._counts.items()}
