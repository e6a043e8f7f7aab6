"""One test's cluster in a lab: its objects, metrics at their ages, the pods in question."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from msgspec.structs import replace

from dsl.plan import MetricSpec
from dsl.policytest import Case, Thing, pod_names
from dsl.quantities import parse_time
from dsl.types import is_missing
from engine.cache import Cache
from engine.cache.otherpods import FINISHED_SECONDS
from engine.clock import ManualClock
from engine.framework.snapshot import QueueTimes, Signals, Snapshot, Waiting
from engine.pods.podinfo import PodInfo
from engine.policy.needs import ATTENDABLE
from engine.policy.plugin import Worlds
from engine.policytests.objects import (
    FixtureError,
    ReadText,
    is_finished,
    node_of,
    object_of,
    objects_of,
    pods_of,
)
from engine.policytests.policies import Used
from engine.policytests.samples import samples_of, store_of, value_of
from engine.signals.store import SignalStore
from engine.simulate.lab import Lab


@dataclass(frozen=True, slots=True)
class _Standing:
    """Samples are as old as the test says, however long the pod has waited; a `SignalSource`."""

    store: SignalStore
    now: float

    def view(self, cache: Cache, _now: float) -> Signals:
        """See `SignalSource.view`."""
        return self.store.view(cache, self.now)


class Scene:
    """A lab with the cluster of a test, under what takes part in it, and the pods in question.

    `pods` are those that are given, the first is that of the cycle; `queue` waits beside them.
    `called` are the names, by UID, by which the test expects something of given ones: a manifest
    may have another.
    """

    def __init__(self, case: Case, used: Used, read: ReadText) -> None:
        """Builds the cluster; `read` gives the text of a manifest.

        Raises:
            FixtureError: an object cannot be made.
            CannotJudgeError: the policies make no profile.
        """
        cluster = case.cluster
        now, given = cluster.now, cluster.of("pod")
        if not given:
            raise FixtureError("this test gives no pod")
        things: dict[str, Thing] = {}
        self.plans = used.plans
        self.pods = list(_all(given, "pod-{}", read, things, first="pod"))
        names = [name for one in given for name in pod_names(one)]
        self.called = dict(zip([pod.uid for pod in self.pods], names, strict=True))
        self.queue = list(_all(cluster.of("pending"), "pending-{}", read, things))
        running = list(_all(cluster.of("running", "finished"), "running-{}", read, things))
        everybody = [*self.pods, *self.queue, *running]
        specs = {spec.id: spec for plan in used.plans for spec in plan.metrics}.values()
        hosts = [node_of(_annotated(one, specs, now), read) for one in cluster.of("node")]
        self.samples = list(samples_of(cluster, [(one, things[one.uid]) for one in everybody]))
        signals = _Standing(store_of(self.samples, hosts, specs, ManualClock(now)), now)
        self.worlds = Worlds(UTC)
        self.framework = used.framework(self.worlds)
        self.lab = Lab(self.framework, clock=ManualClock(now), signals=signals)
        cache = self.lab.cache
        cache.attend(ATTENDABLE)
        for host in hosts:
            cache.add_node(host)
        for thing in cluster.of("namespace"):
            cache.set_namespace(object_of(thing))
        for pod in running:
            _run(pod, things[pod.uid], now, cache)
        for one in (*self.pods, *self.queue):
            node = things[one.uid].get("previous_node", "")
            if node:
                cache.other_pods.leaves(one, node)
            cache.set_queued(one, _queue_times(things[one.uid]))
            cache.nominate(one, one.pod.status.nominated_node_name)
        for item in objects_of(cluster, everybody):
            cache.set_object(item)
        self.snapshot: Snapshot = self.lab.snapshot()
        self.rows = {one.name: cache.nodes.row(one.name) for one in cluster.of("node")}
        self.chosen, self.waited = given[0].get("chosen", ""), given[0].get("waited", 0.0)

    @property
    def pod(self) -> PodInfo:
        """The pod of the cycle."""
        return self.pods[0]


def _annotated(thing: Thing, specs: Iterable[MetricSpec], now: float) -> Thing:
    """The node with the samples of metrics that are annotations where they are read."""
    written = dict(thing.maps.get("annotation", {}))
    for spec in specs:
        if spec.source == "annotation" and spec.name in thing.metrics:
            sample = thing.metrics[spec.name]
            at = datetime.fromtimestamp(now - sample.age_seconds, UTC).isoformat()
            written[spec.query] = f"{value_of(sample, spec) / spec.scale!r},{at}"
    return replace(thing, maps={**thing.maps, "annotation": written})


def _run(pod: PodInfo, thing: Thing, now: float, cache: Cache) -> None:
    """Puts a running pod on its node, or among those that finished in the last hour."""
    if not is_finished(thing):
        if thing.get("bound", True):
            cache.add_pod(pod, thing.node)
        else:
            # What has a node and is not bound yet waits in permit.
            cache.assume(pod, thing.node, now)
            cache.wait(Waiting(pod, thing.node, now, frozenset()))
        return
    at = parse_time(thing.get("finished_at", ""))
    if not now - at > FINISHED_SECONDS:
        cache.set_finished(pod, now if is_missing(at) else at)


def _all(
    given: Sequence[Thing], default: str, read: ReadText, things: dict[str, Thing], first: str = ""
) -> Iterator[PodInfo]:
    """The pods of fixtures; each is noted by its UID."""
    for number, thing in enumerate(given, 1):
        name = first if first and number == 1 else default.format(number)
        for pod in pods_of(thing, name, read):
            if pod.uid in things:
                what = "pods are called" if thing.name else "pods have the UID of"
                raise FixtureError(f"two {what} {pod.key}")
            things[pod.uid] = thing
            yield pod


def _queue_times(thing: Thing) -> QueueTimes:
    first = parse_time(thing.get("first_attempt_at", ""))
    return QueueTimes(
        parse_time(thing.get("queued_at", "")),
        None if is_missing(first) else first,
        thing.get("attempts", 0),
    )
