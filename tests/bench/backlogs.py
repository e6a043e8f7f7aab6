"""`python -m tests.bench.backlogs`: pods of all kinds end to end, Berth beside kube-scheduler.

The control plane, the sides and what is counted are those of `tests.bench.cluster`; the kinds of
pods those of `tests.bench.workloads`. A third side only makes the calls (`tests.bench.rawclient`).
Besides backlogs: pods that come at a fixed rate, from created to bound; and a cold start.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Final

import aiohttp
import click

from tests.bench import cluster
from tests.bench.cluster import NAMESPACE, PODS, Comparison, Scheduler, Side, Sizes
from tests.bench.measure import cpu_seconds, quantile, resident_mib
from tests.bench.rawclient import IN_VAIN
from tests.bench.workloads import (
    HARD,
    HOST_ANTI,
    PREFERRED,
    SOFT,
    ZONE_AFFINITY,
    Json,
    pod,
    written_out,
)
from tests.cluster import binaries
from tests.cluster.berth import PROFILE, Berth
from tests.cluster.kube_scheduler import KubeScheduler
from tests.cluster.process import Process, wait_until

SERVICES: Final = f"/api/v1/namespaces/{NAMESPACE}/services"
CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
RAW: Final = "calls alone"
NEVER: Final = pod("never", cpu="1000")


@dataclass(frozen=True)
class Backlog:
    """Templates of what waits, and of what is there: on each node, and waiting in vain."""

    templates: Sequence[Json]
    a_node: Sequence[Json] = ()
    in_vain: int = 0
    raw: bool = True
    """Whether the calls alone are the same: not where pods must be evicted first."""


def _of(priority: str) -> Json:
    return pod("plain", "1500m", "1Gi", priorityClassName=priority)


BACKLOGS: Final[Mapping[str, Backlog]] = {
    "plain": Backlog([pod("plain")]),
    "spread by service": Backlog([pod("served")]),
    "soft zone spread": Backlog([pod("web", topologySpreadConstraints=SOFT)]),
    "hard zone spread": Backlog([pod("web", topologySpreadConstraints=HARD)]),
    "host anti-affinity": Backlog([pod("alone", affinity=HOST_ANTI)]),
    "zone affinity": Backlog([pod("web", affinity=ZONE_AFFINITY)]),
    "preferred affinity": Backlog([pod("web", affinity=PREFERRED)]),
    "mixed": Backlog(
        [
            pod("plain"),
            pod("served"),
            pod("web", topologySpreadConstraints=SOFT),
            pod("web", affinity=PREFERRED),
        ]
    ),
    "preemption": Backlog([_of("high")], a_node=[_of("low")] * 5, raw=False),
    "beside pods in vain": Backlog([pod("plain")], in_vain=10_000),
}


class Cases(Comparison):
    """Runs of backlogs, rates and cold starts on one control plane."""

    def prepare(self) -> None:
        """Nodes, a service and two priorities."""
        self.start()
        service = {
            "metadata": {"name": "served"},
            "spec": {"selector": {"app": "served"}, "ports": [{"port": 80}]},
        }
        self.plane.request("POST", SERVICES, service)
        for name, value in (("low", 0), ("high", 1000)):
            self.plane.request("POST", CLASSES, {"metadata": {"name": name}, "value": value})

    def three(self) -> list[Side]:
        """Berth without policies, the original, and what only makes the calls."""

        def berth(run: int) -> Scheduler:
            return Berth(self.plane, self.folder / f"berth-{run}")

        return [
            Side("berth", PROFILE, berth),
            Side("kube-scheduler", "default-scheduler", lambda _: KubeScheduler(self.plane)),
            Side(RAW, "nobody", lambda _: _Raw(self)),
        ]

    def backlog(self, side: Side, case: Backlog) -> cluster.Run:
        """One backlog, first binding to last; where pods are evicted, first pod to last binding."""
        there = [
            one | {"spec": one["spec"] | {"nodeName": f"node-{node:05}"}}
            for node in range(self.sizes.nodes)
            for one in self._pods(f"there-{node}", case.a_node, len(case.a_node), side)
        ]
        vain = self._pods(IN_VAIN, [NEVER], case.in_vain, side)
        new = list(self._pods("new", case.templates, self.sizes.pods, side))
        for group in (there, vain, new if case.raw else ()):
            asyncio.run(cluster.create(self.plane, PODS, list(group)))
        if not case.raw:
            return self._preempting(side, new)
        return self.measured(side, events=self.sizes.pods + case.in_vain)

    def _preempting(self, side: Side, pods: Sequence[Json]) -> cluster.Run:
        """Counted from the first pod that comes: all may be searched for before one is bound."""
        with self._warm(side) as process:
            seen = (process.pid, self.plane.apiserver.pid)
            before = [cpu_seconds(one) for one in seen]
            asyncio.run(cluster.create(self.plane, PODS, list(pods)))
            self._wait_for(len(pods))
            bound = [cpu_seconds(one) for one in seen]
            self._events_rest(3 * len(pods))  # of failures, of victims, of bindings
            rested = cpu_seconds(process.pid)
            first = min(_times(self.audit.created).values())
            last = cluster.written_at(self.audit.bindings)[-1]
            end = max(last, *cluster.written_at(self.audit.events))
            count = len(pods)
            return cluster.Run(
                count / (last - first),
                count / (last - first),
                count / (end - first),
                1e3 * (bound[0] - before[0]) / count,
                1e3 * (rested - before[0]) / count,
                1e3 * (bound[1] - before[1]) / count,
                resident_mib(process.pid),
                len(self.audit.events) / count,
            )

    @contextlib.contextmanager
    def _warm(self, side: Side) -> Iterator[Process]:
        """The side's process, once it has bound a few pods."""
        first = list(self._pods("first", [pod("plain")], self.sizes.warm, side))
        self.audit.forget()
        with self.running(side) as process:
            asyncio.run(cluster.create(self.plane, PODS, first))
            self._wait_for(len(first))
            time.sleep(1.0)
            self.audit.forget()
            yield process

    def _wait_for(self, count: int) -> None:
        wait_until("all are bound", lambda: self._bound() >= count, seconds=cluster.PATIENCE)

    def _pods(self, name: str, templates: Sequence[Json], count: int, side: Side) -> Iterator[Json]:
        for number, one in enumerate(written_out(templates, count)):
            spec = {"schedulerName": side.scheduler_name, "terminationGracePeriodSeconds": 0}
            meta = {"name": f"{name}-{number}", "namespace": NAMESPACE}
            yield {"metadata": one["metadata"] | meta, "spec": one["spec"] | spec}

    def at_rate(self, side: Side, rate: int) -> tuple[list[float], float]:
        """Seconds from created to bound of pods at so many a second, and CPU ms a pod."""
        pods = list(self._pods("rate", [pod("plain")], self.sizes.pods, side))
        with self._warm(side) as process:
            cpu = cpu_seconds(process.pid)
            asyncio.run(self._offer(pods, rate))
            self._wait_for(len(pods))
            cpu = cpu_seconds(process.pid) - cpu
        made, bound = _times(self.audit.created), _times(self.audit.bindings)
        return [bound[name] - at for name, at in made.items() if name in bound], 1e3 * cpu / len(
            pods
        )

    def fill(self, side: Side, count: int) -> None:
        """So many pods that have their nodes."""
        pods = [
            one | {"spec": one["spec"] | {"nodeName": f"node-{number % self.sizes.nodes:05}"}}
            for number, one in enumerate(self._pods("old", [pod("old", "1m", "1Mi")], count, side))
        ]
        asyncio.run(cluster.create(self.plane, PODS, pods))

    def cold(self, side: Side, number: int) -> tuple[float, float]:
        """Seconds from the start of the process to its first binding, and its MiB then."""
        [one] = self._pods(f"new-{side.name}-{number}", [pod("plain")], 1, side)
        asyncio.run(cluster.create(self.plane, PODS, [one]))
        self.audit.forget()
        began = time.time()
        with self.started(side) as process:
            wait_until("it is bound", lambda: self._bound() >= 1, seconds=cluster.PATIENCE)
            taken = min(_times(self.audit.bindings).values()) - began
            return taken, resident_mib(process.pid)

    def _bound(self) -> int:
        self.audit.read()
        return len(self.audit.bindings)

    async def _offer(self, pods: Sequence[Json], rate: int) -> None:
        tls = self.plane.ssl_context()
        async with aiohttp.ClientSession(self.plane.url) as session:

            async def create(one: Json) -> None:
                async with session.post(PODS, json=one, ssl=tls) as answer:
                    if answer.status != 201:
                        raise RuntimeError(await answer.text())

            began, tasks = time.monotonic(), []
            for number, one in enumerate(pods):
                await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
                tasks.append(asyncio.create_task(create(one)))
            await asyncio.gather(*tasks)


class _Raw:
    """The calls alone, as a process."""

    def __init__(self, cases: Cases) -> None:
        flags = ("--kubeconfig", cases.plane.kubeconfig_file(), "--namespace", NAMESPACE)
        command = [sys.executable, "-m", "tests.bench.rawclient", *flags]
        self.process = Process("rawclient", command, cases.folder / "rawclient.log")


def _times(lines: Sequence[bytes]) -> dict[str, float]:
    """Name of the pod -> when the server had answered."""
    found = {}
    for entry in map(json.loads, lines):
        if entry["responseStatus"]["code"] == 201:
            at = datetime.fromisoformat(entry["stageTimestamp"]).timestamp()
            found[entry["objectRef"]["name"]] = at
    return found


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", default="", help="The backlogs whose names contain this.")
@click.option("--nodes", default=5000, help="How many nodes.")
@click.option("--pods", default=2000, help="How many pods wait.")
@click.option("--in-vain", default=10_000, help="How many wait that fit nowhere, in that row.")
@click.option("--cold", default=50_000, help="How many bound pods at a cold start; 0: none.")
@click.option("--rates", default="100,300,500", help="Pods a second, in the open loop.")
def main(*, only: str, nodes: int, pods: int, in_vain: int, cold: int, rates: str) -> None:
    """Berth, kube-scheduler and the calls alone in turn, on one API server."""
    for name in binaries.PACKAGES:
        binaries.binary(name)
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as folder:
        cases = Cases(Path(folder), Sizes(nodes=nodes, pods=pods, warm=pods // 10))
        try:
            cases.prepare()
            for line in _lines(
                cases, only, in_vain, cold, [int(one) for one in rates.split(",") if one]
            ):
                click.echo(line)
        finally:
            cases.stop()


def _lines(cases: Cases, only: str, in_vain: int, cold: int, rates: Sequence[int]) -> Iterator[str]:
    sides = cases.three()
    cases.backlog(sides[0], BACKLOGS["plain"])  # the API server's first thousands are slow
    heads = ("pods/s", "to last Event", "CPU ms", "server's", "RSS MiB", "Events/pod")
    yield f"{f'{cases.sizes.nodes:,} nodes, {cases.sizes.pods:,} pods':24}{'':16}{_row(heads)}"
    for name, case in BACKLOGS.items():
        if only not in name:
            continue
        case = replace(case, in_vain=min(case.in_vain, in_vain))
        for side in sides[: 3 if case.raw else 2]:
            run = cases.backlog(side, case)
            cells = (
                f"{run.all_pods_per_second:,.0f}",
                f"{run.with_events_per_second:,.0f}",
                f"{run.cpu_ms_a_pod_with_events:.2f}",
                f"{run.apiserver_cpu_ms_a_pod:.2f}",
                f"{run.rss_mib:.0f}",
                f"{run.events:.2f}",
            )
            yield f"{name:24}{side.name:16}{_row(cells)}"
    for rate in rates if only in "rate" else ():
        for side in sides[:2]:
            took, cpu = cases.at_rate(side, rate)
            p50, p99 = (f"{1e3 * quantile(took, share):.1f} ms" for share in (0.5, 0.99))
            yield f"{f'{rate} pods/s':24}{side.name:16}p50 {p50}, p99 {p99}, CPU {cpu:.2f} ms a pod"
    if cold and only in "cold start":
        cases.fill(sides[0], cold)
        runs = [(side, *cases.cold(side, number)) for number in range(3) for side in sides[:2]]
        for side in sides[:2]:
            seconds, mib = (
                median(run[which] for run in runs if run[0] is side) for which in (1, 2)
            )
            yield f"{f'cold start, {cold:,} pods':24}{side.name:16}{seconds:.2f} s, {mib:.0f} MiB"


def _row(cells: Sequence[str]) -> str:
    return "".join(f"{one:>15}" for one in cells)


if __name__ == "__main__":
    main()
