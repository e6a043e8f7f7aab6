"""One test's cluster in a lab: its objects, metrics at their ages, the pods in question."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from dsl.nearest import closest
from dsl.plan import DOMAINS, MetricSpec
from dsl.policytest.reading import Case, Cluster, Sample, Suite, Thing, pod_names
from dsl.quantities import parse_duration, parse_number, parse_time
from dsl.reference import View
from dsl.types import is_missing
from engine.cache import Cache
from engine.cache.otherpods import FINISHED_SECONDS
from engine.clock import ManualClock
from engine.framework.snapshot import QueueTimes, Waiting
from engine.objects import Node
from engine.pods.podinfo import PodInfo
from engine.policy.needs import ATTENDABLE
from engine.policy.plugin import Worlds
from engine.policytests.objects import (
    FixtureError,
    is_finished,
    node_of,
    object_of,
    objects_of,
    pods_of,
)
from engine.policytests.policies import Used
from engine.signals.spec import CLUSTER, DOMAIN_LABELS, NODE, PAIR
from engine.simulate.lab import Lab
from engine.simulate.samples import Columns, Samples, Values

_PERCENT: Final = 0.01
#: Sources whose values hold until they change.
_STEADY: Final = ("object",)
_DOMAIN: Final = "domain"
#: Whose value a metric with none, one and two keys is.
_OF_KEYS: Final = (CLUSTER, _DOMAIN, PAIR)

Given = dict[tuple[str, str], dict[tuple[str, ...], Sample]]
"""Name of a metric and of which kind of owner it is -> names of the owner -> its sample."""


class Scene:
    """A lab with the cluster of a test, under what takes part in it, and the pods in question.

    `pods` are those that are given, the first is that of the cycle; `queue` waits beside them.
    `called` are the names, by UID, by which the test expects something of given ones: a manifest
    may have another. `rows` are those of the nodes, in the order of the file.
    """

    def __init__(self, case: Case, used: Used, folder: Path) -> None:
        """Builds the cluster; paths of manifests start at `folder`.

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
        self.pods = list(_all(given, "pod", folder, things))
        names = [name for one in given for name in pod_names(one)]
        self.called = dict(zip([pod.uid for pod in self.pods], names, strict=True))
        self.queue = list(_all(cluster.of("pending"), "pending", folder, things))
        running = list(_all(cluster.of("running", "finished"), "running", folder, things))
        everybody = [*self.pods, *self.queue, *running]
        specs = list({spec.id: spec for plan in used.plans for spec in plan.metrics}.values())
        hosts = [node_of(_annotated(one, specs, now), folder) for one in cluster.of("node")]
        self.given = _given(cluster, [(one, things[one.uid]) for one in everybody])
        samples = _samples(self.given, hosts, specs, now)
        self.worlds = Worlds(UTC)
        self.framework = used.framework(self.worlds)
        self.lab = Lab(self.framework, clock=ManualClock(now), signals=samples)
        cache = self.lab.cache
        cache.attend(ATTENDABLE)
        for host in hosts:
            cache.add_node(host)
        for thing in cluster.of("namespace"):
            cache.set_namespace(object_of(thing))
        for pod in running:
            _run(pod, things[pod.uid], now, cache)
        for one in (*self.pods, *self.queue):
            thing = things[one.uid]
            if node := thing.get("previous_node", ""):
                cache.other_pods.leaves(one, node)
            first = parse_time(thing.get("first_attempt_at", ""))
            since = None if is_missing(first) else first
            queued_at, attempts = parse_time(thing.get("queued_at", "")), thing.get("attempts", 0)
            cache.set_queued(one, QueueTimes(queued_at, since, attempts))
            cache.nominate(one, one.pod.status.nominated_node_name)
        for item in objects_of(cluster, everybody):
            cache.set_object(item)
        self.snapshot = self.lab.snapshot()
        self.rows = {one.name: cache.nodes.row(one.name) for one in cluster.of("node")}
        self.chosen, self.waited = given[0].get("chosen", ""), given[0].get("waited", 0.0)

    @property
    def pod(self) -> PodInfo:
        """The pod of the cycle."""
        return self.pods[0]

    def view(self, row: int = -1, pod: PodInfo | None = None) -> View:
        """Where rules look: at a row or before any node, for the pod or another given one."""
        world = self.worlds.of(self.snapshot, self.pod.uid)
        return View(world, self.worlds.subject(pod or self.pod, self.snapshot), row)

    def assume(self, node: str) -> None:
        """The pod comes to a node, as it is from reserve on."""
        self.lab.cache.assume(self.pod, node, self.snapshot.now)
        self.snapshot = self.lab.snapshot()


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
    given: Iterable[Thing], default: str, folder: Path, things: dict[str, Thing]
) -> Iterator[PodInfo]:
    """The pods of fixtures; each is noted by its UID."""
    for number, thing in enumerate(given, 1):
        name = default if default == "pod" and number == 1 else f"{default}-{number}"
        for pod in pods_of(thing, name, folder):
            if pod.uid in things:
                what = "pods are called" if thing.name else "pods have the UID of"
                raise FixtureError(f"two {what} {pod.key}")
            things[pod.uid] = thing
            yield pod


# ---- metrics, as if the source of each had just answered -----------------------------------------


def _given(cluster: Cluster, pods: Iterable[tuple[PodInfo, Thing]]) -> Given:
    """All samples that a test gives; `pods` are all there are, with their fixtures."""
    owners: list[tuple[tuple[str, ...], Thing]]
    owners = [((one.name,), one) for one in cluster.of("node", "namespace")]
    # A workload is given without its namespace.
    owners += [(("", one.name), one) for one in cluster.of("workload")]
    owners += [((pod.namespace, pod.name), thing) for pod, thing in pods]
    found: Given = {}
    for labels, thing in owners:
        of = thing.kind if thing.kind in ("node", "namespace", "workload") else "pod"
        for name, sample in thing.metrics.items():
            found.setdefault((name, of), {})[labels] = sample
    for (name, *keys), sample in cluster.metrics.items():
        of = _OF_KEYS[len(keys)] if len(keys) < len(_OF_KEYS) else ""
        found.setdefault((name, of), {})[tuple(keys)] = sample
    return found


def _samples(
    given: Given, hosts: Iterable[Node], specs: Iterable[MetricSpec], now: float
) -> Samples:
    """What a scheduler knows of these metrics, each as old as it is said to be."""
    columns: Columns = {}
    taken: Columns = {}
    others: Values = {}
    for spec in specs:
        each = given.get((spec.name, _DOMAIN if spec.of in DOMAINS else spec.of), {})
        owners = {one.metadata.name: (_owner(one, spec.of),) for one in hosts}
        nodes = {name: each[key] for name, key in owners.items() if key in each}
        taken[spec.id] = {name: now - one.age_seconds for name, one in nodes.items()}
        stale = math.inf if spec.source in _STEADY else spec.stale_seconds
        fresh = {key: one for key, one in each.items() if one.age_seconds <= stale}
        others[spec.id] = [([*key], _value_of(one, spec)) for key, one in fresh.items()]
        columns[spec.id] = {} if spec.default is None else dict.fromkeys(owners, spec.default)
        columns[spec.id] |= {
            name: _value_of(one, spec) for name, one in nodes.items() if one.age_seconds <= stale
        }
    samples = Samples()
    samples.replace(columns, taken, others)
    return samples


def _owner(host: Node, of: str) -> str:
    """Whose values a node has: its own or those of its domain."""
    if of == NODE:
        return host.metadata.name
    return (host.metadata.labels or {}).get(DOMAIN_LABELS.get(of, ""), "")


def _value_of(sample: Sample, spec: MetricSpec) -> float:
    """A sample in the metric's base unit, as if it had come from its source."""
    text = sample.text
    if text.endswith("%") and spec.scale == _PERCENT:
        return parse_number(text)
    read = (parse_number(text), parse_duration(text))
    first, second = reversed(read) if spec.unit == "seconds" else read
    return (second if is_missing(first) else first) * spec.scale


def _annotated(thing: Thing, specs: Iterable[MetricSpec], now: float) -> Thing:
    """The node with the samples of metrics that are annotations where they are read."""
    written = dict(thing.maps.get("annotation", {}))
    for spec in specs:
        if spec.source == "annotation" and spec.name in thing.metrics:
            sample = thing.metrics[spec.name]
            at = datetime.fromtimestamp(now - sample.age_seconds, UTC).isoformat()
            written[spec.query] = f"{_value_of(sample, spec) / spec.scale!r},{at}"
    return replace(thing, maps={**thing.maps, "annotation": written})


def unread_metrics(suite: Suite, scene: Scene) -> Iterator[str]:
    """A metric that no policy reads, or not of that, is a slip of the pen."""
    read: dict[str, dict[str, str]] = {}
    for spec in [one for plan in scene.plans for one in plan.metrics]:
        kind = _DOMAIN if spec.of in DOMAINS else spec.of
        read.setdefault(spec.name, {})[kind] = spec.of
    for (name, of), each in scene.given.items():
        line, by = next(iter(each.values())).line, read.get(name, {})
        if name not in read:
            near = closest(name, sorted(read))
            known = f"they read {', '.join(sorted(read)) or 'none'}"
            hint = known if near is None else f"did you mean `{near}`?"
            what = f"no policy used here reads the metric `{name}` that is given; {hint}"
        elif of not in by:
            what = (
                f"the metric `{name}` is by {min(by.values())}, so nobody reads what is given here"
            )
        else:
            continue
        yield f"{suite.source.name}:{line}: {what}"
