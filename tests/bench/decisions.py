"""The engine alone: decisions in process without any I/O, with the first plugins and two policies.

A decision is what the scheduler does for a pod between the queue and the binding: a snapshot with
the metric columns, `decide`, and `assume` on the node found. Samples of the metric change while
pods are placed; taking them in is not part of a decision, but what it makes stale is.
"""

from __future__ import annotations

import gc
import multiprocessing
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from dsl.compiler import Compiler
from engine.clock import ManualClock
from engine.configuration.berth import BerthDocument
from engine.cycle import decide
from engine.framework.profile import Profile
from engine.framework.runtime import Framework
from engine.objects import Node
from engine.pods.podinfo import PodInfo
from engine.policy.bundle import Bundle, compile_at_once, compile_settings
from engine.policy.chain import framework_of
from engine.policy.world import Worlds
from engine.signals.samples import Series
from engine.signals.spec import Question
from engine.signals.store import SignalStore
from tests.bench.measure import Measurement, quantile, resident_mib
from tests.builders import Cache, default_plugins, make_node, make_pod

FILTER_LINE = "filter: pod.name contains nginx -> node.label test=test"
SCORE_LINE = "score: 100 - bandwidth/max*100"
LINES = f"{FILTER_LINE}\n{SCORE_LINE}\n"
NODES_EACH_ZONE = 3
SAMPLES_EVERY = 500
"""So many decisions after each other see the same samples of the metric."""


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    nodes: tuple[int, ...] = (100, 1000, 5000)
    pods: int = 3000
    passes: int = 5


QUICK = Sizes(nodes=(1000, 5000), pods=1000, passes=3)
TOY = Sizes(nodes=(20,), pods=60, passes=2)


# ---- the cluster and its pods --------------------------------------------------------------------


def cluster_nodes(count: int) -> list[Node]:
    """Nodes of two sizes in three zones; every second one has the label of the filter line."""
    return [
        make_node(
            f"node-{i:05}",
            cpu=("16", "32")[i % 2],
            memory=("64Gi", "128Gi")[i % 2],
            labels={
                "kubernetes.io/hostname": f"node-{i:05}",
                "topology.kubernetes.io/zone": f"zone-{i % NODES_EACH_ZONE}",
                **({"test": "test"} if i // 2 % 2 else {}),
            },
        )
        for i in range(count)
    ]


def new_classes(count: int) -> list[PodInfo]:
    """Every pod requests something else; half of them are nginx."""
    return [
        make_pod(
            f"{('nginx', 'redis')[i % 2]}-{i}", cpu=f"{50 + i % 100}m", memory=f"{64 + i // 100}Mi"
        )
        for i in range(count)
    ]


def hundred_classes(count: int) -> list[PodInfo]:
    """A hundred templates, interleaved; half of them are nginx."""
    return [
        make_pod(
            f"{('nginx', 'redis')[i % 2]}-{i}", cpu=f"{50 + i % 100}m", memory=f"{64 + i % 100}Mi"
        )
        for i in range(count)
    ]


def identical(count: int) -> list[PodInfo]:
    """Replicas of one nginx."""
    return [make_pod(f"nginx-{i}", cpu="50m", memory="64Mi") for i in range(count)]


WORKLOADS: dict[str, Callable[[int], list[PodInfo]]] = {
    "new class each": new_classes,
    "100 classes": hundred_classes,
    "identical": identical,
}


class Metric:
    """A signals store with a bandwidth for each node that changes."""

    def __init__(self, nodes: Sequence[Node], bundle: Bundle, clock: ManualClock) -> None:
        self._clock = clock
        self._chance = random.Random(7)
        self._names = [node.metadata.name for node in nodes]
        self.store = SignalStore(clock)
        self.store.set_specs(bundle.metrics)
        for node in nodes:
            self.store.nodes_changed(None, node)
        self._questions: list[Question] = list(self.store.questions())

    def change(self) -> None:
        """New samples of all nodes."""
        now = self._clock.time()
        for question in self._questions:
            answer = [Series((name,), self._chance.uniform(1e5, 1e8), now) for name in self._names]
            self.store.ingest(question, answer)


def bundle_of_lines(text: str = LINES) -> Bundle:
    """The lines, compiled by the real compiler."""
    bundle = compile_at_once(Compiler(), {"demo.policy": text}, compile_settings(BerthDocument()))
    assert isinstance(bundle, Bundle), bundle
    return bundle


def framework_with(bundle: Bundle | None) -> Framework:
    """The first plugins, and the policies of a bundle if there is one."""
    if bundle is None:
        return Framework(Profile("berth", default_plugins()))
    worlds = Worlds(ZoneInfo("UTC"), BerthDocument().gpu_resources)
    return framework_of(Profile("berth", default_plugins()), bundle, worlds=worlds)


# ---- one pass ------------------------------------------------------------------------------------


@dataclass
class Bench:
    """One cluster in memory, the rules and the metric; `run` places pods and times each."""

    nodes: list[Node]
    bundle: Bundle
    with_policies: bool = True

    def run(self, pods: Sequence[PodInfo]) -> list[float]:
        """Seconds of each decision, on a fresh cache with a fresh memo."""
        clock = ManualClock()
        cache = Cache()
        for node in self.nodes:
            cache.add_node(node)
        metric = Metric(self.nodes, self.bundle, clock)
        metric.change()
        framework = framework_with(self.bundle if self.with_policies else None)
        self._first(framework, cache, metric, clock)
        taken: list[float] = []
        gc.collect()
        for number, pod in enumerate(pods):
            if number and number % SAMPLES_EVERY == 0:
                metric.change()
            began = time.thread_time()
            now = clock.time()
            snapshot = cache.snapshot(now, metric.store.view(cache, now))
            decision = decide(pod, snapshot, framework)
            if decision.node is not None:
                cache.assume(pod, decision.node)
            taken.append(time.thread_time() - began)
            if decision.node is None:
                raise RuntimeError(f"{pod.key} found no node: {decision.fit_error}")
        return taken

    @staticmethod
    def _first(framework: Framework, cache: Cache, metric: Metric, clock: ManualClock) -> None:
        """A first decision builds columns and buffers; a running scheduler has them."""
        snapshot = cache.snapshot(clock.time(), metric.store.view(cache, clock.time()))
        decide(make_pod("nginx-warm", cpu="1m", memory="1Mi"), snapshot, framework)


def measure_size(nodes: int, sizes: Sizes) -> list[Measurement]:
    """All workloads on a cluster of one size; passes of the workloads take turns."""
    bundle = bundle_of_lines()
    objects = cluster_nodes(nodes)
    cases = [
        (name, "two policies", Bench(objects, bundle), make) for name, make in WORKLOADS.items()
    ]
    cases.append(
        ("new class each", "no policies", Bench(objects, bundle, with_policies=False), new_classes)
    )
    cases.append(
        ("identical", "no policies", Bench(objects, bundle, with_policies=False), identical)
    )
    found: dict[tuple[str, str], list[list[float]]] = {}
    memory: dict[tuple[str, str], float] = {}
    for _ in range(sizes.passes):
        for name, rules, bench, make in cases:
            pods = make(sizes.pods)
            found.setdefault((name, rules), []).append(bench.run(pods))
            memory[name, rules] = resident_mib()
    return [
        _row(nodes, name, rules, passes, memory[name, rules])
        for (name, rules), passes in found.items()
    ]


def _row(
    nodes: int, name: str, rules: str, passes: list[list[float]], memory: float
) -> Measurement:
    rates = [len(taken) / sum(taken) for taken in passes]
    return Measurement(
        "engine",
        f"{nodes} nodes, {name}, {rules}",
        {
            "decisions_per_second": quantile(rates, 0.5),
            "best_decisions_per_second": max(rates),
            "p50_us": 1e6 * quantile([quantile(t, 0.5) for t in passes], 0.5),
            "p99_us": 1e6 * quantile([quantile(t, 0.99) for t in passes], 0.5),
            "rss_mib": memory,
        },
        {"nodes": nodes, "workload": name, "rules": rules},
        rates,
    )


def measure(sizes: Sizes) -> Iterator[Measurement]:
    """Each size in a process of its own, so that memory is that size's alone."""
    context = multiprocessing.get_context("spawn")
    for nodes in sizes.nodes:
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            yield from pool.submit(measure_size, nodes, sizes).result()
