"""One test's cluster: a real cache, metrics at their ages, the pods in question."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from dsl.functions import parse_time
from dsl.plan import MetricSpec
from dsl.policytest import Case, Cluster, Thing
from dsl.several.rules import GangParts
from dsl.types import is_missing
from engine.cache import Cache
from engine.framework.podinfo import PodInfo
from engine.framework.snapshot import Snapshot
from engine.objects import GangFailure, Identity
from engine.policy.world import DEFAULT_GPUS
from engine.policytests.objects import (
    FixtureError,
    ReadText,
    budget_of,
    is_finished,
    namespace_of,
    node_of,
    pods_of,
    quota_of,
)
from engine.policytests.samples import FixtureSignals, value_of
from engine.policytests.world import Beside, SceneWorlds, limits_of


def new_worlds() -> SceneWorlds:
    """The world of a test: UTC and the usual GPUs."""
    return SceneWorlds(UTC, DEFAULT_GPUS)


@dataclass(frozen=True, slots=True)
class Scene:
    """The cluster of a test, and the pods it is about; the first is the pod of the cycle."""

    cache: Cache
    snapshot: Snapshot
    pods: tuple[PodInfo, ...]
    chosen: str
    waited: float
    rows: Mapping[str, int]
    beside: Beside

    @property
    def pod(self) -> PodInfo:
        """The pod of the cycle."""
        return self.pods[0]


def make_scene(
    case: Case,
    specs: Mapping[str, MetricSpec],
    read: ReadText,
    gangs: Sequence[GangParts] = (),
) -> Scene:
    """Builds the cluster of a test.

    Args:
        case: the test.
        specs: the metrics that its policies read, by id.
        read: gives the text of a manifest.
        gangs: who is in a gang, as its policies say.

    Raises:
        FixtureError: an object cannot be made.
    """
    cluster = case.cluster
    cache = Cache()
    for thing in cluster.of("node"):
        cache.add_node(node_of(_annotated(thing, specs.values(), cluster.now), read))
    for thing in cluster.of("namespace"):
        cache.set_namespace(namespace_of(thing))
    things: dict[str, Thing] = {}
    finished = _run(cluster, cache, read, things)
    pods: list[PodInfo] = []
    given = cluster.of("pod")
    for number, thing in enumerate(given, 1):
        pods.extend(_pods(thing, "pod" if number == 1 else f"pod-{number}", read, things))
    if not pods:
        raise FixtureError("this test gives no pod")
    queue = [
        pod
        for number, thing in enumerate(cluster.of("pending"), 1)
        for pod in _pods(thing, f"pending-{number}", read, things)
    ]
    for thing in cluster.of("group"):
        failed = parse_time(thing.text("last_failure"))
        if not is_missing(failed):
            owner = Identity(name=thing.name, namespace=thing.text("namespace") or "default")
            cache.set_object(GangFailure(owner, failed))
    for one in (*map(budget_of, cluster.of("pdb")), *map(quota_of, cluster.of("quota"))):
        cache.set_object(one)
    # Quotas count whom nodes are promised to; where a test has none, promises are read only.
    for pod in queue if cluster.of("quota") else ():
        cache.nominate(pod, pod.pod.status.nominated_node_name)
    waited = given[0].plain.get("waited", 0.0)
    settings = {(one.name, one.keys): one.text for one in cluster.settings}
    nodes = {thing.name: thing for thing in cluster.of("node")}
    return Scene(
        cache,
        cache.snapshot(
            cluster.now, FixtureSignals(cache.nodes, cluster.of("node"), specs, settings)
        ),
        tuple(pods),
        given[0].text("chosen"),
        waited if isinstance(waited, float) else 0.0,
        {name: cache.nodes.row(name) for name in nodes},
        Beside(
            nodes=nodes,
            pods=things,
            queue=tuple(queue),
            finished=tuple(finished),
            groups={(one.text("namespace") or "default", one.name): one
                    for one in cluster.of("group")},
            quotas={one.name: limits_of(one) for one in cluster.of("quota")},
            namespaces={one.name: one for one in cluster.of("namespace")},
            workloads={one.name: one for one in cluster.of("workload")},
            specs=specs,
            gangs=tuple(gangs),
        ),
    )  # fmt: skip


def _annotated(thing: Thing, specs: Iterable[MetricSpec], now: float) -> Thing:
    """The node with the samples of metrics that are annotations where they are read."""
    written = dict(thing.maps.get("annotation", {}))
    for spec in specs:
        if spec.source == "annotation" and spec.name in thing.metrics:
            sample = thing.metrics[spec.name]
            at = datetime.fromtimestamp(now - sample.age_seconds, UTC).isoformat()
            written[spec.query] = f"{value_of(sample, spec) / spec.scale!r},{at}"
    return replace(thing, maps={**thing.maps, "annotation": written})


def _run(
    cluster: Cluster, cache: Cache, read: ReadText, things: dict[str, Thing]
) -> list[tuple[PodInfo, str]]:
    """Binds the running pods to their nodes; returns those that finished, and where."""
    done: list[tuple[PodInfo, str]] = []
    for number, thing in enumerate(cluster.of("running", "finished"), 1):
        for pod in _pods(thing, f"{thing.kind}-{number}", read, things):
            if is_finished(thing):
                done.append((pod, thing.node))
            elif thing.flag("bound", default=True):
                cache.add_pod(pod, thing.node)
            else:
                cache.assume(pod, thing.node, cluster.now)
    return done


def _pods(
    thing: Thing, default: str, read: ReadText, things: dict[str, Thing]
) -> Iterator[PodInfo]:
    """The pods of a fixture; each is noted by its UID."""
    for pod in pods_of(thing, default, read):
        if pod.uid in things:
            what = "pods are called" if thing.name else "pods have the UID of"
            raise FixtureError(f"two {what} {pod.key}")
        things[pod.uid] = thing
        yield pod
