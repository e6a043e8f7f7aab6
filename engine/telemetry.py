"""Every name under which the engine reports: log fields, counters and metrics.

Rooms count through `Telemetry`; nobody else invents a name. What happens is counted when it
happens, for a dictionary or two; what is (a length, an age) is read when somebody asks.
`engine.serving` puts it into words for Prometheus.

Source: kubernetes pkg/scheduler/metrics/metrics.go, component-base metrics/prometheus: metrics with
kube-scheduler's names have its labels and buckets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

Labels = tuple[str, ...]
"""The values of a metric's labels, in their order."""


class Count(Enum):
    """What is counted without labels. The values are the names users see, `berth_..._total`."""

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
    SHADOW_PODS = "shadow_pods"
    SHADOW_LEFT_OUT = "shadow_pods_left_out"
    PLUGIN_ERRORS = "plugin_errors"
    SIGNAL_QUERIES = "signal_queries"
    SIGNAL_ERRORS = "signal_query_errors"


class Kind(Enum):
    """What a metric is, in Prometheus' words."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """A name, what it says, and the names of its labels; buckets are upper bounds, ascending."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


def _powers(first: float, factor: float, count: int) -> tuple[float, ...]:
    return tuple(first * factor**i for i in range(count))


_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
_MILLIS: Final = _powers(0.001, 2, 15)

ATTEMPTS: Final = Metric(
    "scheduler_schedule_attempts_total",
    _C,
    "Attempts to place a pod, by how they ended: scheduled, unschedulable, error.",
    ("result", "profile"),
)
ATTEMPT_SECONDS: Final = Metric(
    "scheduler_scheduling_attempt_duration_seconds",
    _H,
    "An attempt from the start of its cycle to its end, the binding included.",
    ("result", "profile"),
    _MILLIS,
)
ALGORITHM_SECONDS: Final = Metric(
    "scheduler_scheduling_algorithm_duration_seconds",
    _H,
    "A decision: filters, scores, choice, and whom to evict.",
    (),
    _MILLIS,
)
SLI_SECONDS: Final = Metric(
    "scheduler_pod_scheduling_sli_duration_seconds",
    _H,
    "A pod from its first attempt to its binding; time behind gates does not count.",
    ("attempts",),
    _powers(0.01, 2, 20),
)
POD_ATTEMPTS: Final = Metric(
    "scheduler_pod_scheduling_attempts",
    _H,
    "Attempts that a pod took until it was bound.",
    (),
    _powers(1, 2, 5),
)
POINT_SECONDS: Final = Metric(
    "scheduler_framework_extension_point_duration_seconds",
    _H,
    "PreBind and Bind of a pod. The points before are one computation over all nodes.",
    ("extension_point", "status", "profile"),
    _powers(0.0001, 2, 12),
)
PERMIT_SECONDS: Final = Metric(
    "scheduler_permit_wait_duration_seconds",
    _H,
    "Pods that waited in permit, until they were released (Success) or rejected.",
    ("result",),
    _MILLIS,
)
PREEMPTION_ATTEMPTS: Final = Metric(
    "scheduler_preemption_attempts_total", _C, "Searches for pods to evict."
)
PREEMPTION_VICTIMS: Final = Metric(
    "scheduler_preemption_victims", _H, "Pods chosen to be evicted for one.", (), _powers(1, 2, 7)
)
PENDING_PODS: Final = Metric(
    "scheduler_pending_pods", _G, "Pods that wait, by where: see docs/operations.md.", ("queue",)
)
INCOMING_PODS: Final = Metric(
    "scheduler_queue_incoming_pods_total",
    _C,
    "Pods that came into a queue, by what brought them.",
    ("queue", "event"),
)
UNSCHEDULABLE_PODS: Final = Metric(
    "scheduler_unschedulable_pods",
    _G,
    "Pods that a plugin or policy has rejected or gated.",
    ("plugin", "profile"),
)
CACHE_SIZE: Final = Metric("scheduler_cache_size", _G, "What the cache holds.", ("type",))
BINDING: Final = Metric(
    "scheduler_goroutines", _G, "Bindings in flight, under kube-scheduler's name.", ("operation",)
)
LEADER: Final = Metric(
    "leader_election_master_status", _G, "1 while this replica holds the lease.", ("name",)
)
REQUESTS: Final = Metric(
    "rest_client_requests_total", _C, "Requests to the API server.", ("code", "method", "host")
)
REQUEST_SECONDS: Final = Metric(
    "rest_client_request_duration_seconds",
    _H,
    "Requests to the API server from their start to the last byte of the answer.",
    ("verb", "host"),
    (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0),
)
RULE_REJECTIONS: Final = Metric(
    "berth_rule_rejections_total",
    _C,
    "Attempts without a node in which a rule rejected nodes, by file and line.",
    ("policy", "line"),
)
SHADOW_OUTCOMES: Final = Metric(
    "berth_shadow_outcomes_total",
    _C,
    "Pods whose node a rule in shadow would have rejected, that it would have put on another one,"
    " or held: rejected, moved, held.",
    ("outcome", "policy", "line"),
)
BUILD: Final = Metric("berth_build_info", _G, "1; the version is a label.", ("version",))
BUNDLE: Final = Metric("berth_policy_bundle_info", _G, "1 for the bundle in force.", ("bundle",))
POLICIES_LOADED: Final = Metric("berth_policies", _G, "Policies in force.")
POLICIES_REFUSED: Final = Metric(
    "berth_policy_source_refused", _G, "1 while what the source holds is not in force.", ("source",)
)
POLICIES_AWAITED: Final = Metric(
    "berth_policy_bundle_awaits", _G, "What a bundle waits for that reads what is not listed yet."
)
METRIC_AGE: Final = Metric(
    "berth_metric_age_seconds",
    _G,
    "Age of the newest sample of a metric that policies read; none if there is no sample.",
    ("metric",),
)
METRIC_SERIES: Final = Metric(
    "berth_metric_series", _G, "Series in the last answer about a metric.", ("metric",)
)
QUIET: Final = Metric(
    "berth_reflector_quiet_seconds",
    _G,
    "Time since anything was heard about a resource.",
    ("resource",),
)
WEBHOOK_CERTIFICATE_ENDS: Final = Metric(
    "berth_webhook_certificate_expiration_timestamp_seconds",
    _G,
    "When the certificate that the webhook shares with its replicas ends; 0 until it was read.",
)
REVIEWS: Final = Metric(
    "berth_webhook_reviews_total",
    _C,
    "Changes of ConfigMaps that were reviewed: allowed, refused, or let in without being judged.",
    ("result",),
)
REVIEW_SECONDS: Final = Metric(
    "berth_webhook_review_duration_seconds",
    _H,
    "A review, from its body to its answer.",
    (),
    _MILLIS,
)
EXTENDER_REQUESTS: Final = Metric(
    "berth_extender_requests_total",
    _C,
    "Questions to HTTP extenders, by result: ok, error.",
    ("extender", "verb", "result"),
)
EXTENDER_SECONDS: Final = Metric(
    "berth_extender_request_duration_seconds",
    _H,
    "A question to an HTTP extender until there is an answer, or none.",
    ("extender", "verb"),
    _MILLIS,
)
AWAY: Final = Metric("berth_api_server_away", _G, "1 while the API server does not answer.")
WRITES: Final = Metric("berth_writes_waiting", _G, "Writes under way or waiting for a place.")


@dataclass(slots=True)
class Histogram:
    """Counts by bucket (the last one is for what is above all bounds) and the sum."""

    buckets: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.buckets) + 1)

    def observe(self, value: float) -> None:
        """Counts one value."""
        self.counts[bisect_left(self.buckets, value)] += 1
        self.total += value


Read = Callable[[], Mapping[Labels, float]]


class Telemetry:
    """The counts of one process."""

    def __init__(self) -> None:
        self._counts: Counter[Count] = Counter()
        self._labelled: dict[Metric, dict[Labels, float]] = {}
        self._histograms: dict[Metric, dict[Labels, Histogram]] = {}
        self._read: dict[Metric, Read] = {}

    def add(self, what: Count, amount: int = 1) -> None:
        """Counts."""
        self._counts[what] += amount

    def __getitem__(self, what: Count) -> int:
        return self._counts[what]

    def count(self, metric: Metric, *labels: str) -> None:
        """Counts one more with these labels."""
        known = self._labelled.get(metric)
        if known is None:
            known = self._labelled[metric] = {}
        known[labels] = known.get(labels, 0.0) + 1.0

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Enters a value into a histogram."""
        known = self._histograms.get(metric)
        if known is None:
            known = self._histograms[metric] = {}
        one = known.get(labels)
        if one is None:
            one = known[labels] = Histogram(metric.buckets)
        one.observe(value)

    def expect(self, *metrics: Metric) -> None:
        """They are told from the start, as 0: no rate misses the first event. None has labels."""
        for metric in metrics:
            if metric.kind is Kind.HISTOGRAM:
                self._histograms[metric] = {(): Histogram(metric.buckets)}
            else:
                self._labelled[metric] = {(): 0.0}

    def read(self, metric: Metric, read: Read) -> None:
        """What is asked for when somebody looks, instead of being counted; the last one holds."""
        self._read[metric] = read

    def value(self, metric: Metric, *labels: str) -> float:
        """What was counted with these labels, or how many values were entered."""
        one = self._histograms.get(metric, {}).get(labels)
        if one is not None:
            return sum(one.counts)
        return self._labelled.get(metric, {}).get(labels, 0.0)

    def families(self) -> Iterator[tuple[Metric, Mapping[Labels, float | Histogram]]]:
        """Everything that can be told now."""
        for count in Count:
            text = count.value.replace("_", " ")
            metric = Metric(f"berth_{count.value}_total", Kind.COUNTER, f"Number of {text}.")
            yield metric, {(): float(self._counts[count])}
        yield from self._labelled.items()
        yield from self._histograms.items()
        for metric, read in self._read.items():
            yield metric, read()
