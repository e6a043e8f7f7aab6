"""Every name under which the engine reports: log fields, counters and metrics.

Rooms count through `Telemetry`; nobody else invents a name. What happens is counted when it
happens, for a dictionary or two; what is (a length, an age) is read when somebody asks.
`engine.serving` puts it into words for Prometheus.

Source: kubernetes pkg/scheduler/metrics/metrics.go, component-base metrics/prometheus: metrics with
kube-scheduler's names have its labels and buckets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Mapping
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
    BINDINGS_PUT_OFF = "bindings_put_off"
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

    __hash__ = object.__hash__  # members are one each; Enum's own is a call of Python


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


_MILLIS: Final = _powers(0.001, 2, 15)


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, Kind.COUNTER, text, labels)


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, Kind.GAUGE, text, labels)


def _histogram(name: str, text: str, *labels: str, buckets: tuple[float, ...] = _MILLIS) -> Metric:
    return Metric(name, Kind.HISTOGRAM, text, labels, buckets)


# What each one says in full stands in docs/operations.md, under Metrics.

ATTEMPTS: Final = _counter(
    "scheduler_schedule_attempts_total", "Attempts to place a pod.", "result", "profile"
)
ATTEMPT_SECONDS: Final = _histogram(
    "scheduler_scheduling_attempt_duration_seconds", "Time of attempts.", "result", "profile"
)
ALGORITHM_SECONDS: Final = _histogram(
    "scheduler_scheduling_algorithm_duration_seconds", "Time of decisions."
)
SLI_SECONDS: Final = _histogram(
    "scheduler_pod_scheduling_sli_duration_seconds",
    "Time from a pod's first attempt to its binding.",
    "attempts",
    buckets=_powers(0.01, 2, 20),
)
POD_ATTEMPTS: Final = _histogram(
    "scheduler_pod_scheduling_attempts", "Attempts until a binding.", buckets=_powers(1, 2, 5)
)
POINT_SECONDS: Final = _histogram(
    "scheduler_framework_extension_point_duration_seconds",
    "Time in PreBind and Bind.",
    *("extension_point", "status", "profile"),
    buckets=_powers(0.0001, 2, 12),
)
PERMIT_SECONDS: Final = _histogram(
    "scheduler_permit_wait_duration_seconds", "Time in permit.", "result"
)
PREEMPTION_ATTEMPTS: Final = _counter(
    "scheduler_preemption_attempts_total", "Searches for pods to evict."
)
PREEMPTION_VICTIMS: Final = _histogram(
    "scheduler_preemption_victims", "Victims of a preemption.", buckets=_powers(1, 2, 7)
)
PENDING_PODS: Final = _gauge("scheduler_pending_pods", "Pending pods.", "queue")
INCOMING_PODS: Final = _counter(
    "scheduler_queue_incoming_pods_total", "Pods that entered a queue.", "queue", "event"
)
UNSCHEDULABLE_PODS: Final = _gauge(
    "scheduler_unschedulable_pods", "Pods that were rejected or gated.", "plugin", "profile"
)
CACHE_SIZE: Final = _gauge("scheduler_cache_size", "Objects in the cache.", "type")
BINDING: Final = _gauge("scheduler_goroutines", "Bindings in flight.", "operation")
LEADER: Final = _gauge("leader_election_master_status", "1 while this replica leads.", "name")
REQUESTS: Final = _counter(
    "rest_client_requests_total", "Requests to the API server.", "code", "method", "host"
)
REQUEST_SECONDS: Final = _histogram(
    "rest_client_request_duration_seconds",
    "Time of requests to the API server.",
    *("verb", "host"),
    buckets=(0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0),
)
FORBIDDEN: Final = _counter(
    "berth_requests_forbidden_total",
    "Requests that the API server did not allow Berth's account.",
    *("verb", "resource"),
)
RULE_REJECTIONS: Final = _counter(
    "berth_rule_rejections_total", "Failed attempts where a rule rejected nodes.", "policy", "line"
)
SHADOW_OUTCOMES: Final = _counter(
    "berth_shadow_outcomes_total", "What rules in shadow would do.", "outcome", "policy", "line"
)
BUILD: Final = _gauge("berth_build_info", "Always 1.", "version")
BUNDLE: Final = _gauge("berth_policy_bundle_info", "1 for the bundle in force.", "bundle")
POLICIES_LOADED: Final = _gauge("berth_policies", "Policies in force.")
POLICIES_REFUSED: Final = _gauge(
    "berth_policy_source_refused", "1 while the source's text is not in force.", "source"
)
POLICIES_AWAITED: Final = _gauge("berth_policy_bundle_awaits", "Lists the next bundle awaits.")
METRIC_AGE: Final = _gauge("berth_metric_age_seconds", "Age of the newest sample.", "metric")
METRIC_MISSING: Final = _gauge(
    "berth_metric_missing", "1 while the metric has no sample that is not too old.", "metric"
)
METRIC_SERIES: Final = _gauge("berth_metric_series", "Series in the last answer.", "metric")
QUIET: Final = _gauge("berth_reflector_quiet_seconds", "Silence of the watch.", "resource")
WEBHOOK_CERTIFICATE_ENDS: Final = _gauge(
    "berth_webhook_certificate_expiration_timestamp_seconds", "When the shared certificate expires."
)
AWAY: Final = _gauge("berth_api_server_away", "1 while the API server does not answer.")
WRITES: Final = _gauge("berth_writes_waiting", "Writes under way or waiting.")


@dataclass(slots=True)
class Histogram:
    """Counts by bucket (the last one is for what is above all bounds) and the sum."""

    buckets: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.buckets) + 1)


Read = Callable[[], Mapping[Labels, float]]


class Telemetry:
    """The counts of one process."""

    def __init__(self) -> None:
        self._counts: Counter[Count] = Counter()
        self._labelled: dict[Metric, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        self._histograms: dict[Metric, dict[Labels, Histogram]] = {}
        self._read: dict[Metric, Read] = {}

    def add(self, what: Count, amount: int = 1) -> None:
        """Counts."""
        self._counts[what] += amount

    def __getitem__(self, what: Count) -> int:
        return self._counts[what]

    def count(self, metric: Metric, *labels: str) -> None:
        """Counts one more with these labels."""
        self._labelled[metric][labels] += 1.0

    def keep_rules(self, there: Container[Labels]) -> None:
        """Forgets what was counted of other rules than these, by policy and line: texts change."""
        for metric in (RULE_REJECTIONS, SHADOW_OUTCOMES):
            known = self._labelled.get(metric, {})
            for labels in [one for one in known if one[-2:] not in there]:
                del known[labels]

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Enters a value into a histogram."""
        try:
            one = self._histograms[metric][labels]
        except KeyError:
            of_metric = self._histograms.setdefault(metric, {})
            one = of_metric[labels] = Histogram(metric.buckets)
        one.counts[bisect_left(one.buckets, value)] += 1
        one.total += value

    def expect(self, *metrics: Metric) -> None:
        """Exposed as 0 from the start, so that no rate misses the first event; without labels."""
        for metric in metrics:
            if metric.kind is Kind.HISTOGRAM:
                self._histograms[metric] = {(): Histogram(metric.buckets)}
            else:
                self._labelled[metric][()] = 0.0

    def read(self, metric: Metric, read: Read) -> None:
        """Registers what reads a metric when it is scraped; the last one of a name counts."""
        self._read[metric] = read

    def value(self, metric: Metric, *labels: str) -> float:
        """What was counted with these labels, or how many values were entered."""
        one = self._histograms.get(metric, {}).get(labels)
        if one is not None:
            return sum(one.counts)
        return self._labelled.get(metric, {}).get(labels, 0.0)

    def families(self) -> Iterator[tuple[Metric, Mapping[Labels, float | Histogram]]]:
        """All metrics as of now."""
        for count in Count:
            text = count.value.replace("_", " ")
            metric = Metric(f"berth_{count.value}_total", Kind.COUNTER, f"Number of {text}.")
            yield metric, {(): float(self._counts[count])}
        yield from self._labelled.items()
        yield from self._histograms.items()
        for metric, read in self._read.items():
            yield metric, read()
