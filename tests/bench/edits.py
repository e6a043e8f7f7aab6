"""`python -m tests.bench.edits`: how soon an edit is in force, and what it holds up meanwhile.

In process, without a server: the slices of the reloader, the swap of rules with pods waiting, and
the first decision by the new rules, beside one by the old.
"""

from __future__ import annotations

import gc
import logging
import statistics
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from datetime import UTC

import click

from engine.basis import queue_hooks
from engine.clock import SystemClock
from engine.configuration.settings import Settings
from engine.cycle import decide
from engine.framework.runtime import Frameworks
from engine.garbage import collecting
from engine.inforce import Callbacks, InForce
from engine.objects import ConfigMap, ObjectMeta
from engine.plugins.profiles import make_profiles
from engine.pods.podinfo import PodInfo
from engine.policy.bundle import Bundle
from engine.policy.chain import frameworks_of
from engine.policy.guard import Load
from engine.policy.world import Worlds
from engine.queue import QueueHooks, SchedulingQueue
from engine.scheduler import SLICE_SECONDS
from engine.telemetry import Telemetry
from tests.builders import Cache, make_node, make_pod

CLASSES = 20
LINES = """\
filter: pod.name contains nginx-# -> node.label test=test-#
require: pod.label app=web-# -> node.cpu.requested + pod.cpu <= 80% of node.cpu.allocatable
score: if node.label zone=z# then 100 else node.cpu.free / node.cpu.allocatable * 100
filter: pod.label batch=night-# -> time.hour in 0..6
"""


@dataclass(frozen=True)
class Edit:
    """One edit; times in milliseconds of this thread, whatever else the machine does."""

    in_force: float
    longest_slice: float
    swap: float
    first: float
    usual: float


class Bench:
    """A scheduler's rooms with that many nodes, pods on them and pods that wait."""

    def __init__(self, nodes: int, pods: int, waiting: int) -> None:
        self.cache = Cache()
        for number in range(nodes):
            labels = {"topology.kubernetes.io/zone": f"z{number % 3}", "app": f"a{number % 50}"}
            self.cache.add_node(make_node(f"n{number}", cpu="64", memory="256Gi", labels=labels))
        for number in range(pods):
            self.cache.add_pod(make_pod(f"p{number}", cpu="100m"), f"n{number % nodes}")
        self._profiles = make_profiles(Settings())
        self._worlds = Worlds(UTC, ())
        self.frameworks: Frameworks | None = None
        self.swap = 0.0
        settings = Settings.model_validate({"berth": {"policies": {"configMap": "x/y"}}})
        self.in_force = InForce(
            settings,
            Callbacks(self._prepare),
            self._profiles,
            clock=SystemClock(),
            telemetry=Telemetry(),
            there=lambda: (nodes, pods),
            load=lambda **_: Load(0, 0),
        )
        [(_, self._source)] = self.in_force.configured.watched
        plain = frameworks_of(self._profiles, Bundle("", (), {}), worlds=self._worlds)
        self._queue = SchedulingQueue(
            clock=SystemClock(), hooks=queue_hooks(plain, self._snapshot), snapshot=self._snapshot
        )
        for number in range(waiting):
            self._queue.add(make_pod(f"w{number}", cpu=f"{number % CLASSES + 1}m"))
        self.pods = [make_pod(f"q{n}", cpu=f"{n + 1}m") for n in range(CLASSES)]
        gc.collect()
        gc.freeze()

    def _snapshot(self):  # type: ignore[no-untyped-def]  # the cache's own
        return self.cache.snapshot(time.time())

    def _prepare(
        self, bundle: Bundle, changed: frozenset[str] | None
    ) -> Generator[None, None, Callable[[], None]]:
        frameworks = frameworks_of(self._profiles, bundle, worlds=self._worlds)
        hooks = queue_hooks(frameworks, self._snapshot)
        yield from self._queue.prepare(hooks, changed)
        return lambda: self._put(frameworks, hooks, changed)

    def _put(
        self, frameworks: Frameworks, hooks: QueueHooks, changed: frozenset[str] | None
    ) -> None:
        began = time.thread_time()
        self.frameworks = frameworks
        self._queue.set_hooks(hooks, changed)
        self.swap = time.thread_time() - began

    def decided(self, pod: PodInfo) -> float:
        """Seconds of a decision."""
        assert self.frameworks is not None
        began = time.thread_time()
        decide(pod, self._snapshot(), self.frameworks.of(pod))
        return time.thread_time() - began

    def edit(self, files: dict[str, str]) -> Edit:
        """The files are these now; decisions go on between slices."""
        old = self.frameworks
        usual = [self.decided(pod) for pod in self.pods for _ in range(2)] if old else [0.0]
        found = ConfigMap(ObjectMeta(name="y", namespace="x"), data=dict(files))
        slices: list[float] = []
        self._source.on_add(found)
        busy = True
        while busy:
            start = time.thread_time()
            deadline = time.monotonic() + SLICE_SECONDS
            busy = any(work.step(deadline) for work in self.in_force.background)
            slices.append(time.thread_time() - start)
            if self.frameworks is old and old is not None:
                self.decided(self.pods[len(slices) % CLASSES])
        assert self.frameworks is not old, "the edit was refused"
        first = self.decided(self.pods[0])
        whole = sum(slices)
        slices[-1] -= self.swap
        times = (whole, max(slices), self.swap, first, statistics.median(usual))
        return Edit(*(1000 * one for one in times))


def edits(bench: Bench, statements: int, rounds: int) -> Iterator[Edit]:
    """Edits of one line among so many."""
    files = {
        f"p{number:03}.policy": LINES.replace("#", str(number)) for number in range(statements // 4)
    }
    bench.in_force.connect(_NoEvents(), None, lambda: True)
    bench.edit(files)
    # As the process does with its first rules.
    gc.collect()
    gc.freeze()
    name = min(files)
    for number in range(rounds):
        yield bench.edit({**files, name: f"{files[name]}filter: node.label edit{number} != x\n"})


class _NoEvents:
    def emit(self, event: object) -> None:
        """Nobody hears it."""


@click.command()
@click.option("--nodes", default=5_000)
@click.option("--pods", default=30_000)
@click.option("--waiting", default=5_000)
@click.option("--rounds", default=15)
@click.option("--statements", multiple=True, type=int, default=(4, 40, 400))
def main(nodes: int, pods: int, waiting: int, rounds: int, statements: tuple[int, ...]) -> None:
    """Prints a line for each size of the policies: medians, and the worst of the rounds."""
    logging.disable(logging.CRITICAL)
    print(f"{nodes} nodes, {pods} pods on them, {waiting} waiting; ms: median (worst)")
    print("statements | in force | longest slice | swap | first decision | usual decision")
    bench = Bench(nodes, pods, waiting)
    for size in statements:
        with collecting():  # as in a process
            taken = list(edits(bench, size, rounds))
        cells = [
            f"{statistics.median(column):.1f} ({max(column):.1f})"
            for column in (
                [getattr(one, name) for one in taken] for name in Edit.__dataclass_fields__
            )
        ]
        print(" | ".join((str(size), *cells)))


if __name__ == "__main__":
    main()
