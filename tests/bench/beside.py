"""`python -m tests.bench.beside`: plain pods through a whole scheduler, and what goes on besides.

The scheduler is that of `engine.simulate.lab`: queue, handlers, cycle and executor are real, the
server answers at once. A row is the rate of plain pods beside what it names, as a share of their
rate without (CPU time of the thread, in turn, medians), and the longest time for which the loop was
not free: one slice of the scheduler, or one event told.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import click

from engine.clock import ManualClock
from engine.framework.profile import Profile
from engine.framework.runtime import Framework
from engine.garbage import collecting, sweep
from engine.objects import Node, Pod, from_builtins
from engine.signals.store import SignalStore
from engine.simulate.lab import Lab
from tests.bench.measure import quantile
from tests.bench.workloads import HOST, HOST_ANTI, OLD, SOFT, ZONE, Json, pod, written_out
from tests.builders import default_plugins, make_node

PROFILE: Final = Profile("default-scheduler", tuple(default_plugins()))
#: CPU seconds between two events of nodes.
EVERY: Final = 0.1
NEVER: Final = [pod(f"never-{i}", cpu=str(1000 + i)) for i in range(20)]
HEADINGS: Final = ("pods/s", "without", "share %", "longest ms", "p99 ms")


class _CpuClock(ManualClock):
    """Time goes on while the thread works, so that the scheduler's slices end."""

    def monotonic(self) -> float:
        return time.thread_time()

    def time(self) -> float:
        return super().time() + time.thread_time()


@dataclass(frozen=True)
class Beside:
    """What is there besides, what waits in vain, and what happens to nodes meanwhile."""

    there: tuple[Json, ...] = (OLD,)
    in_vain: int = 0
    churn: bool = False
    joins: bool = False


PLAIN: Final = Beside()
ROWS: Final[dict[str, tuple[Beside, Beside, int]]] = {
    "anti-affinity and spread there": (
        Beside((pod("alone", affinity=HOST_ANTI), pod("web", topologySpreadConstraints=SOFT))),
        PLAIN,
        90,
    ),
    "nodes joining, 10/s": (Beside(joins=True), PLAIN, 90),
    "unschedulable, node churn": (Beside(in_vain=10_000, churn=True), Beside(churn=True), 90),
}
"""What goes on, what it is compared with, and the share of the rate that is asked for, percent."""


class World:
    """A lab with nodes, a pod on each, and pods that wait in vain."""

    def __init__(self, beside: Beside, nodes: int) -> None:
        self.beside, self.nodes = beside, nodes
        clock = _CpuClock()
        self.lab = Lab(Framework(PROFILE), clock=clock, signals=SignalStore(clock))
        self.numbers = count()
        self.longest: list[float] = []
        for number in range(nodes):
            self.lab.add([self.node(number)])
        for number, one in enumerate(written_out(beside.there, nodes)):
            self.add(one, f"there-{number}", node=self.name(number))
        for number, one in enumerate(written_out(NEVER, beside.in_vain)):
            self.add(one, f"never-{number}")

    @staticmethod
    def name(number: int) -> str:
        return f"node-{number:05}"

    def node(self, number: int) -> Node:
        labels = {HOST: self.name(number), ZONE: f"zone-{number % 3}"}
        return make_node(self.name(number), labels=labels, memory="32Gi")

    def add(self, document: Json, name: str, node: str | None = None) -> None:
        document["metadata"] |= {"name": name, "uid": name, "namespace": "default"}
        document["spec"]["schedulerName"] = PROFILE.scheduler_name
        if node is not None:
            document["spec"]["nodeName"] = node
        made = from_builtins(Pod, document)
        self.tell(lambda: self.lab.handlers.pods.on_add(made))

    def tell(self, event: Callable[[], Any]) -> None:
        """Tells one event, and how long that took."""
        began = time.thread_time()
        event()
        self.longest.append(time.thread_time() - began)

    async def settle(self) -> None:
        """Works until nobody can be placed any more."""
        more = True
        while more:
            more = self.slice() or self.lab.scheduler.in_flight > 0
            await asyncio.sleep(0)

    def slice(self) -> bool:
        began = time.thread_time()
        more = self.lab.scheduler.work()
        self.longest.append(time.thread_time() - began)
        return more

    async def rate(self, pods: int) -> float:
        """Plain pods that are bound in a CPU second."""
        await self.settle()
        for number, one in enumerate(written_out([pod("plain")], pods // 10)):
            self.add(one, f"first-{number}")
        await self.settle()
        sweep()
        self.longest.clear()
        with collecting():
            taken = await self._bound(pods)
        gc.unfreeze()
        return pods / taken

    async def _bound(self, pods: int) -> float:
        """CPU seconds until so many plain pods more are bound."""
        self.lab.written.bound.clear()
        events = self._events()
        for number, one in enumerate(written_out([pod("plain")], pods)):
            self.add(one, f"plain-{number}")
        began = due = time.thread_time()
        while len(self.lab.written.bound) < pods:
            if (now := time.thread_time()) >= due:
                due = now + EVERY
                for event in next(events):
                    self.tell(event)
            self.slice()
            await asyncio.sleep(0)
        return time.thread_time() - began

    def _events(self) -> Iterator[list[Callable[[], Any]]]:
        """What happens each time."""
        on = self.lab.handlers.nodes
        for number in count():
            events: list[Callable[[], Any]] = []
            if self.beside.joins:
                new = self.node(self.nodes + number)
                events = [lambda new=new: on.on_add(new)]
            if self.beside.churn:
                one = self.node(number % self.nodes)
                events = [lambda one=one: on.on_delete(one), lambda one=one: on.on_add(one)]
            yield events


@dataclass(frozen=True)
class Row:
    """Rates in pods a CPU second; blocks in seconds."""

    rate: float
    without: float
    longest: float
    p99: float


def measure(name: str, *, nodes: int, pods: int, rounds: int, in_vain: int = 10_000) -> Row:
    """One row; see the module."""
    both: tuple[list[float], list[float]] = ([], [])
    blocks: list[float] = []
    beside, without, _ = ROWS[name]
    for _ in range(rounds):
        for rates, one in zip(both, (beside, without), strict=True):
            vain = min(one.in_vain, in_vain)
            world = World(Beside(one.there, vain, churn=one.churn, joins=one.joins), nodes)
            rates.append(asyncio.run(world.rate(pods)))
            if one is beside:
                blocks += world.longest
    return Row(*map(statistics.median, both), max(blocks), quantile(blocks, 0.99))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", default="", help="The rows whose names contain this.")
@click.option("--nodes", default=5000, help="How many nodes.")
@click.option("--pods", default=5000, help="How many plain pods.")
@click.option("--rounds", default=3, help="Rounds of which the median counts.")
def main(*, only: str, nodes: int, pods: int, rounds: int) -> None:
    """The rate of plain pods beside other things, and what it is without."""
    click.echo(f"{f'{nodes:,} nodes':32}{''.join(f'{one:>12}' for one in HEADINGS)}    asked")
    for name, (_, _, asked) in ROWS.items():
        if only in name:
            row = measure(name, nodes=nodes, pods=pods, rounds=rounds)
            share = 100 * row.rate / row.without
            numbers = f"{row.rate:,.0f}", f"{row.without:,.0f}", f"{share:.0f}"
            cells = *numbers, f"{1e3 * row.longest:.1f}", f"{1e3 * row.p99:.1f}"
            click.echo(f"{name:32}{''.join(f'{one:>12}' for one in cells)}    {asked}")


if __name__ == "__main__":
    main()
