"""One test's cluster: its objects in a cache, metrics at their ages, the pods in question."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from dsl.plan import MetricSpec
from dsl.policytest import Case, Thing
from dsl.quantities import parse_time
from dsl.types import is_missing
from engine.cache import Cache
from engine.cache.beside import (
    FINISHED,
    FINISHED_SECONDS,
    HEARTBEATS,
    NOMINATED,
    PREVIOUS,
    QUEUE,
    TIMES,
    VOLUMES,
)
from engine.clock import ManualClock
from engine.framework.podinfo import PodInfo
from engine.framework.runtime import Framework
from engine.framework.snapshot import QueueTimes, Snapshot, Waiting
from engine.policytests.objects import (
    FixtureError,
    ReadText,
    is_finished,
    namespace_of,
    node_of,
    objects_of,
    pods_of,
)
from engine.policytests.samples import store_of, value_of

#: All that may be kept beside nodes and the pods on them.
_ATTENDS: Final = frozenset({QUEUE, TIMES, NOMINATED, FINISHED, PREVIOUS, HEARTBEATS, VOLUMES})


@dataclass(frozen=True, slots=True)
class Scene:
    """The cluster of a test, and the pods it is about; the first is the pod of the cycle.

    `queue` are those that wait beside them.
    """

    cache: Cache
    framework: Framework
    snapshot: Snapshot
    pods: tuple[PodInfo, ...]
    queue: tuple[PodInfo, ...]
    chosen: str
    waited: float
    rows: Mapping[str, int]

    @property
    def pod(self) -> PodInfo:
        """The pod of the cycle."""
        return self.pods[0]


def make_scene(
    case: Case, specs: Mapping[str, MetricSpec], read: ReadText, framework: Framework
) -> Scene:
    """Builds the cluster of a test.

    Args:
        case: the test.
        specs: the metrics that its policies read, by id.
        read: gives the text of a manifest.
        framework: decides there.

    Raises:
        FixtureError: an object cannot be made.
    """
    cluster = case.cluster
    cache = Cache()
    cache.attend(_ATTENDS)
    hosts = [
        node_of(_annotated(one, specs.values(), cluster.now), read) for one in cluster.of("node")
    ]
    for host in hosts:
        cache.add_node(host)
    for thing in cluster.of("namespace"):
        cache.set_namespace(namespace_of(thing))
    things: dict[str, Thing] = {}
    given, pending = cluster.of("pod"), cluster.of("pending")
    running = list(_all(cluster.of("running", "finished"), "running-{}", read, things))
    pods = list(_all(given, "pod-{}", read, things, first="pod"))
    queue = list(_all(pending, "pending-{}", read, things))
    if not pods:
        raise FixtureError("this test gives no pod")
    for pod in running:
        _run(pod, things[pod.uid], cluster.now, cache)
    for one in (*pods, *queue):
        node = things[one.uid].text("previous_node")
        if node:
            cache.beside.leaves(one, node)
        cache.set_queued(one, _queue_times(things[one.uid]))
    for one in queue:
        cache.nominate(one, one.pod.status.nominated_node_name)
    everybody = [*pods, *queue, *running]
    for item in objects_of(cluster, everybody):
        cache.set_object(item)
    waited = given[0].plain.get("waited", 0.0)
    known = [(one, things[one.uid]) for one in everybody]
    signals = store_of(cluster, hosts, known, specs.values(), ManualClock(cluster.now))
    waited = waited if isinstance(waited, float) else 0.0
    return Scene(
        cache,
        framework,
        cache.snapshot(cluster.now, signals.view(cache, cluster.now)),
        tuple(pods),
        tuple(queue),
        given[0].text("chosen"),
        waited,
        {one.name: cache.nodes.row(one.name) for one in cluster.of("node")},
    )


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
        if thing.flag("bound", default=True):
            cache.add_pod(pod, thing.node)
        else:
            # What has a node and is not bound yet waits in permit.
            cache.assume(pod, thing.node, now)
            cache.wait(Waiting(pod, thing.node, now, frozenset()))
        return
    at = parse_time(thing.text("finished_at"))
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
    """What the queue knows of a pod."""
    first = parse_time(thing.text("first_attempt_at"))
    return QueueTimes(
        parse_time(thing.text("queued_at")),
        None if is_missing(first) else first,
        thing.number("attempts", 0),
    )
