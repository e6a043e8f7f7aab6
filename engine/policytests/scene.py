"""One test's cluster in a lab: its objects, metrics at their ages, the pods in question."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from dsl.plan import MetricSpec
from dsl.policytest.reading import Case, Cluster, Sample, Thing, pod_names
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
from engine.policytests.policies import Used, meant
from engine.signals.spec import CLUSTER, DOMAIN_LABELS, NODE, PAIR
from engine.simulate.lab import Lab
from engine.simulate.samples import Columns, Samples, Values

_PERCENT: Final = 0.01
#: Sources whose values hold until they change.
_STEADY: Final = ("object",)
Given = dict[tuple[str, ...], Sample]
"""Names of whose it is -> a sample of one metric."""
Owned = tuple[PodInfo, Thing]
"""A pod and its fixture."""


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
        now = cluster.now
        given = list(_pods(cluster.of("pod"), folder))
        queue = list(_pods(cluster.of("pending"), folder))
        running = list(_pods(cluster.of("running", "finished"), folder))
        if not given:
            raise FixtureError("this test gives no pod")
        uids = Counter(one.uid for one, _ in (*given, *queue, *running))
        for one, _ in (*given, *queue, *running):
            if uids[one.uid] > 1:
                raise FixtureError(f"two pods are called {one.key}")
        self.plans = used.plans
        self.pods, self.queue = [one for one, _ in given], [one for one, _ in queue]
        names = [name for thing in cluster.of("pod") for name in pod_names(thing)]
        self.called = dict(zip([pod.uid for pod in self.pods], names, strict=True))
        specs = list({spec.id: spec for plan in used.plans for spec in plan.metrics}.values())
        hosts = [node_of(_annotated(one, specs, now), folder) for one in cluster.of("node")]
        samples = {one.id: _given(cluster, (*given, *queue, *running), one) for one in specs}
        self.worlds = Worlds(UTC)
        self.framework = used.framework(self.worlds)
        signals = _signals(specs, samples, hosts, now)
        self.lab = Lab(self.framework, clock=ManualClock(now), signals=signals)
        cache = self.lab.cache
        cache.attend(ATTENDABLE)
        for host in hosts:
            cache.add_node(host)
        for thing in cluster.of("namespace"):
            cache.set_namespace(object_of(thing))
        for pod, thing in running:
            _run(pod, thing, now, cache)
        for pod, thing in (*given, *queue):
            if node := thing.get("previous_node", ""):
                cache.other_pods.leaves(pod, node)
            first = parse_time(thing.get("first_attempt_at", ""))
            since = None if is_missing(first) else first
            queued_at, attempts = parse_time(thing.get("queued_at", "")), thing.get("attempts", 0)
            cache.set_queued(pod, QueueTimes(queued_at, since, attempts))
            cache.nominate(pod, pod.pod.status.nominated_node_name)
        for item in objects_of(cluster, [pod for pod, _ in (*given, *queue, *running)]):
            cache.set_object(item)
        self.unread = list(_unread(cluster, specs, samples))
        self.snapshot = self.lab.snapshot()
        self.rows = {one.name: cache.nodes.row(one.name) for one in cluster.of("node")}
        thing = given[0][1]
        self.chosen, self.waited = thing.get("chosen", ""), thing.get("waited", 0.0)

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


def _pods(given: Iterable[Thing], folder: Path) -> Iterator[Owned]:
    """The pods of fixtures."""
    for number, thing in enumerate(given, 1):
        alone = thing.kind == "pod" and number == 1
        name = thing.kind if alone else f"{thing.kind}-{number}"
        yield from ((pod, thing) for pod in pods_of(thing, name, folder))


# ---- metrics, as if the source of each had just answered -----------------------------------------


def _given(cluster: Cluster, pods: Iterable[Owned], spec: MetricSpec) -> Given:
    """The samples of a metric that a test gives; `pods` are all there are."""
    owners: list[tuple[tuple[str, ...], Thing]]
    if spec.of == "pod":
        owners = [((pod.namespace, pod.name), thing) for pod, thing in pods]
    else:
        # A workload is given without its namespace.
        space = ("",) if spec.of == "workload" else ()
        owners = [((*space, one.name), one) for one in cluster.of(spec.of)]
    found = {names: one.metrics[spec.name] for names, one in owners if spec.name in one.metrics}
    keys = {CLUSTER: 0, PAIR: 2}.get(spec.of, 1 if spec.of in DOMAIN_LABELS else -1)
    for (name, *names), sample in cluster.metrics.items():
        if (name, len(names)) == (spec.name, keys):
            found[tuple(names)] = sample
    return found


def _signals(
    specs: Iterable[MetricSpec], given: Mapping[str, Given], hosts: Iterable[Node], now: float
) -> Samples:
    """What a scheduler knows of these metrics, each as old as it is said to be."""
    columns: Columns = {}
    taken: Columns = {}
    others: Values = {}
    for spec in specs:
        owners = {one.metadata.name: (_owner(one, spec.of),) for one in hosts}
        nodes = {name: given[spec.id].get(key) for name, key in owners.items()}
        taken[spec.id] = {name: now - one.age_seconds for name, one in nodes.items() if one}
        stale = math.inf if spec.source in _STEADY else spec.stale_seconds
        values = {
            key: _value_of(one, spec)
            for key, one in given[spec.id].items()
            if one.age_seconds <= stale
        }
        others[spec.id] = [([*key], value) for key, value in values.items()]
        columns[spec.id] = {} if spec.default is None else dict.fromkeys(owners, spec.default)
        columns[spec.id] |= {name: values[key] for name, key in owners.items() if key in values}
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


def _unread(
    cluster: Cluster, specs: Iterable[MetricSpec], given: Mapping[str, Given]
) -> Iterator[tuple[int, str]]:
    """Line and words of samples that no policy reads, or not of that: slips of the pen."""
    read = {id(sample) for each in given.values() for sample in each.values()}
    known = {spec.name: spec.of for spec in specs}
    there = [item for thing in cluster.things.values() for item in thing.metrics.items()]
    there += [(key[0], sample) for key, sample in cluster.metrics.items()]
    for name, sample in there:
        if id(sample) not in read:
            hint = f"it is by {known[name]}" if name in known else meant(name, known, "they read")
            yield sample.line, f"no policy used here reads the metric `{name}` given here; {hint}"
