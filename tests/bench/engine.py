"""`python -m tests.bench.engine`: what Berth's own part of a decision takes, against a yardstick.

A decision is pop, snapshot, decide, assume and reserve: what the scheduler does for a pod between
its place in the queue and the binding. Beside each row, in the same rounds, the yardstick of bare
columns, and with ORACLE=path what the real scheduler's own code takes for pods like these.

Exit 1 if a ratio is above its bound.
"""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from engine.basis import queue_hooks
from engine.clock import ManualClock
from engine.cycle import decide
from engine.framework.profile import Profile
from engine.framework.runtime import Framework
from engine.pods.podinfo import PodInfo
from engine.queue import SchedulingQueue
from tests.bench import yardstick
from tests.builders import Cache, default_plugins, make_node, make_pod

BOUNDS = {"identical": 2.2, "100 classes": 1.8, "new class": 1.3}
FIRST = frozenset(
    (
        "SchedulingGates",
        "PrioritySort",
        "NodeName",
        "NodeUnschedulable",
        "TaintToleration",
        "NodeAffinity",
        "NodeResourcesFit",
        "NodeResourcesBalancedAllocation",
    )
)
"""Those for which the bounds are: the first ones, and what else the yardstick computes."""


@dataclass(frozen=True)
class Sizes:
    """How much is measured; `pods` are of identical, 100 classes, new class."""

    nodes: tuple[int, ...] = (5000, 50000)
    pods: tuple[int, int, int] = (4000, 3000, 300)
    rounds: int = 5


QUICK = Sizes(pods=(1000, 1000, 100), rounds=3)
TOY = Sizes(nodes=(20,), pods=(20, 120, 20), rounds=1)


class Berth:
    """A cluster in memory, its queue and its rules, as the scheduler has them."""

    def __init__(self, nodes: int, *, every: bool) -> None:
        self.clock = ManualClock()
        self.cache = Cache()
        chance = random.Random(1)
        for i in range(nodes):
            odd = i % 2
            self.cache.add_node(
                make_node(
                    f"node-{i:05}",
                    cpu=("16", "32")[odd],
                    memory=("64Gi", "128Gi")[odd],
                    labels={"topology.kubernetes.io/zone": f"zone-{i % 3}"},
                )
            )
            cpu, memory = f"{chance.randrange(4000)}m", f"{chance.randrange(8 << 10)}Mi"
            self.cache.add_pod(make_pod(f"held-{i}", cpu=cpu, memory=memory), f"node-{i:05}")
        plugins = [one for one in default_plugins() if every or one.plugin.name in FIRST]
        self.framework = Framework(Profile("berth", tuple(plugins)))
        self.queue = SchedulingQueue(
            clock=self.clock,
            hooks=queue_hooks(self.framework, self.snapshot),
            snapshot=self.snapshot,
        )

    def snapshot(self) -> Any:
        return self.cache.snapshot(self.clock.time())

    def place(self, pods: Sequence[PodInfo]) -> float:
        """Seconds a decision; the pods are gone again after it."""
        for pod in pods:
            self.queue.add(pod)
        queue, cache, framework, clock = self.queue, self.cache, self.framework, self.clock
        nodes: list[str | None] = []
        gc.collect()
        gc.freeze()
        began = time.thread_time()
        for _ in pods:
            queued = queue.pop()
            assert queued is not None
            now = clock.time()
            decision = decide(queued.pod, cache.snapshot(now), framework)
            assert decision.node is not None
            cache.assume(queued.pod, decision.node, now)
            if framework.acts(queued.pod):
                framework.reserve(queued.pod, cache.snapshot(now), decision.node)
                framework.act(queued.pod, cache.snapshot(now), decision)
            nodes.append(decision.node)
        took = time.thread_time() - began
        gc.unfreeze()
        for pod in pods:
            queue.done(pod.uid)
            cache.forget(pod.uid)
        return took / len(pods)


def pods_of(workload: str, count: int, run: int) -> tuple[list[PodInfo], list[PodInfo]]:
    """Pods that come before and are not measured, and those that are."""
    chance = random.Random(3)
    each = {
        "identical": [0] * count,
        "100 classes": [chance.randrange(100) for _ in range(count)],
        "new class": [1000 + count * run + i for i in range(count)],
    }[workload]
    warm = {"100 classes": range(100), "identical": [0], "new class": [1]}[workload]
    return [_pod(f"warm-{run}-{i}", i) for i in warm], [
        _pod(f"pod-{run}-{i}", which) for i, which in enumerate(each)
    ]


def _pod(name: str, which: int) -> PodInfo:
    return make_pod(name, cpu=f"{50 + which}m", memory=f"{64 + which}Mi")


@dataclass(frozen=True)
class Row:
    """One workload at one size; times are the least of the rounds in microseconds."""

    nodes: int
    workload: str
    every: bool
    us: float
    yardstick_us: float
    ratio: float
    oracle_us: float | None = None

    @property
    def bound(self) -> float:
        return BOUNDS[self.workload]


def measure(nodes: int, sizes: Sizes, *, every: bool, oracle: str | None = None) -> list[Row]:
    """All workloads at one size; Berth and the yardstick take turns. `every`: all plugins."""
    berth = Berth(nodes, every=every)
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in BOUNDS}
    for run in range(sizes.rounds):
        for (workload, bare), count in zip(yardstick.WORKLOADS.items(), sizes.pods, strict=True):
            warm, pods = pods_of(workload, count, run)
            berth.place(warm)
            ours, least = berth.place(pods), bare(nodes, count)
            theirs = of_oracle(oracle, workload, nodes, count) if oracle else 0.0
            found[workload].append((ours, least, theirs))
    return [
        _row(nodes, workload, runs, every=every, real=oracle is not None)
        for workload, runs in found.items()
    ]


def _row(
    nodes: int, workload: str, runs: list[tuple[float, float, float]], *, every: bool, real: bool
) -> Row:
    ours, least, theirs = (1e6 * min(each) for each in zip(*runs, strict=True))
    return Row(nodes, workload, every, ours, least, ours / least, theirs if real else None)


def of_oracle(oracle: str, workload: str, nodes: int, count: int) -> float:
    """CPU seconds a decision of the real scheduler's code, sampling as it does by default."""
    which = {"identical": "0", "100 classes": "{i%100}", "new class": "{i}"}[workload]
    cpu, memory = f"{{50+{which[1:]}m", f"{{64+{which[1:]}Mi"
    if workload == "identical":
        cpu, memory = "50m", "64Mi"
    document = {
        "name": workload,
        "generate": {"nodes": nodes, "zones": 3, "cpu": "32", "memory": "128Gi", "pods": 110},
        "templates": [
            {
                "metadata": {"name": "pod-{i}", "namespace": "default"},
                "spec": {
                    "containers": [
                        {
                            "name": "main",
                            "image": "main",
                            "resources": {"requests": {"cpu": cpu, "memory": memory}},
                        }
                    ]
                },
            }
        ],
        "count": count,
        "warmup": 100,
    }
    command = [oracle, "-bench", "-cpus", "1", "-max-seconds", "10"]
    done = subprocess.run(
        command, input=json.dumps(document), capture_output=True, text=True, check=True
    )
    said: dict[str, Any] = json.loads(done.stdout)
    return float(said["cpuSeconds"]) / float(said["pods"])


COLUMNS: dict[str, Callable[[Row], str]] = {
    "decisions/s": lambda row: f"{1e6 / row.us:,.0f}",
    "us": lambda row: f"{row.us:.1f}",
    "yardstick us": lambda row: f"{row.yardstick_us:.1f}",
    "ratio": lambda row: f"{row.ratio:.2f}",
    "at most": lambda row: f"{row.bound:g}",
    "real one us": lambda row: "" if row.oracle_us is None else f"{row.oracle_us:,.0f}",
    "times": lambda row: "" if row.oracle_us is None else f"{row.oracle_us / row.us:.0f}",
}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="Fewer pods and rounds.")
def main(*, quick: bool) -> None:
    """Berth's own part of a decision; ORACLE=path sets the real scheduler's beside it."""
    sizes = QUICK if quick else Sizes()
    oracle = os.environ.get("ORACLE") or None
    rows = [
        row
        for every in (False, True)
        for nodes in sizes.nodes
        for row in measure(nodes, sizes, every=every, oracle=oracle)
    ]
    table = Table(
        title="A decision (CPU time, least of the rounds)", box=None, title_justify="left"
    )
    table.add_column("")
    for heading in COLUMNS:
        table.add_column(heading, justify="right")
    for row in rows:
        cells = [of(row) for of in COLUMNS.values()]
        which = "all plugins" if row.every else "first plugins"
        table.add_row(f"{row.nodes:,} nodes, {row.workload}, {which}", *cells)
    Console(width=120, highlight=False).print(table)
    sys.exit(1 if any(row.ratio > row.bound for row in rows if not row.every) else 0)


if __name__ == "__main__":
    main()
