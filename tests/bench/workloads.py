"""`python -m tests.bench.workloads`: decisions for the kinds of pods that clusters have.

All default plugins, all nodes scored. A workload is a document that the real scheduler's own code
reads, too (ORACLE=path): its nodes, pods that are there, and templates of those that come.
Times are CPU time of the thread; a decision is that of `tests.bench.engine`.
"""

from __future__ import annotations

import gc
import json
import os
import re
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from engine.basis import queue_hooks
from engine.clock import ManualClock
from engine.cycle import conclude, decide
from engine.framework.profile import Profile
from engine.framework.runtime import Framework
from engine.garbage import collecting, sweep
from engine.kube.sharing import PodSharing
from engine.objects import Pod, from_builtins
from engine.objects.workloads import PodDisruptionBudget, Service
from engine.pods.podinfo import PodInfo, make_pod_info
from engine.queue import SchedulingQueue
from tests.bench.measure import quantile
from tests.builders import Cache, default_plugins, make_node

Json = dict[str, Any]
_NUMBER: Final = re.compile(r"\{(?:(\d+)\+)?i(?:/(\d+))?(?:%(\d+))?\}")
ZONE: Final = "topology.kubernetes.io/zone"
HOST: Final = "kubernetes.io/hostname"


def pod(app: str, cpu: str = "100m", memory: str = "200Mi", **spec: object) -> Json:
    """A template."""
    requests = {"requests": {"cpu": cpu, "memory": memory}}
    containers = [{"name": "c", "image": "i", "resources": requests}]
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": containers, **spec}}


def near(topology: str, app: str) -> Json:
    """A term of affinity."""
    return {"topologyKey": topology, "labelSelector": {"matchLabels": {"app": app}}}


def spread(when: str) -> list[Json]:
    """A constraint over zones."""
    return [{"maxSkew": 1, "whenUnsatisfiable": when, **near(ZONE, "web")}]


def affinity(kind: str, when: str, terms: list[Json]) -> Json:
    """`spec.affinity`."""
    return {kind: {f"{when}DuringSchedulingIgnoredDuringExecution": terms}}


OLD: Final = pod("old-{i%50}", "{100+i%37}m", "{200+i%41}Mi")
WEIGHED: Final = [{"weight": 1, "podAffinityTerm": near(HOST, "web")}]
SERVICES: Final = [
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}},
    }
    for name in ("web", *(f"svc-{i}" for i in range(5000)))
]


KINDS: Final = {"Service": Service, "PodDisruptionBudget": PodDisruptionBudget}
#: A hundred budgets that allow nothing, each for one in a hundred nodes' pods.
BUDGETS: Final = [
    {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": f"budget-{i}"},
        "spec": {"selector": {"matchLabels": {"app": f"low-{i}"}}},
        "status": {"disruptionsAllowed": 0},
    }
    for i in range(100)
]


def workload(comes: Json, *, there: Json | None = None, **more: object) -> Json:
    """A document; without `there`, pods like those that come are there."""
    bound = {"boundPodsPerNode": 1, "boundTemplates": [there or comes]}
    size = {"nodes": 5000, "zones": 3, "cpu": "4", "memory": "32Gi", "pods": 110}
    known = {"templates": [comes], "count": 2000, "warmup": 200, "maxSeconds": 8, **more}
    return {"generate": {**size, **bound}, **known}


def filled(each: int, **more: object) -> Json:
    """A full cluster of pods of low priority, and one of high priority that comes."""
    cpu = {4: "1", 30: "100m"}[each]
    low = pod("low-{i%100}", cpu, "1Gi", priority=0)
    document = workload(pod("high", cpu, "1Gi", priority=1000), there=low, preempt=True, **more)
    size = {"cpu": {4: "4", 30: "3"}[each], "boundPodsPerNode": each}
    return document | {"generate": document["generate"] | size, "count": 300, "warmup": 20}


ZONE_AFFINITY: Final = affinity("podAffinity", "required", [near(ZONE, "web")])
HOST_ANTI: Final = affinity("podAntiAffinity", "required", [near(HOST, "alone")])
PREFERRED: Final = affinity("podAffinity", "preferred", WEIGHED)
ITS_NODE: Final = {"key": "metadata.name", "operator": "In", "values": ["node-00{1000+i%4000}"]}
TERMS: Final = {"nodeSelectorTerms": [{"matchFields": [ITS_NODE]}]}
ONE_NODE: Final = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": TERMS}}
SOFT, HARD = spread("ScheduleAnyway"), spread("DoNotSchedule")
NEW: Final = pod("new-{i}", "{100+i%400}m", "{100+i}Mi")
HUNDRED: Final = pod("c-{i%100}", "{100+i%100}m", "{200+i%100}Mi")

WORKLOADS: Final[Mapping[str, tuple[Json, float, float]]] = {
    "new class": (workload(NEW, there=OLD), 6_000, 8),
    "100 classes": (workload(HUNDRED, there=OLD), 15_000, 18),
    "identical": (workload(pod("same"), there=OLD), 100_000, 100),
    "default spread": (workload(pod("web"), objects=SERVICES[:1]), 25_000, 60),
    "soft zone spread": (workload(pod("web", topologySpreadConstraints=SOFT)), 15_000, 50),
    "hard zone spread": (workload(pod("web", topologySpreadConstraints=HARD)), 15_000, 70),
    "required zone affinity": (workload(pod("web", affinity=ZONE_AFFINITY)), 5_000, 40),
    "host anti-affinity": (workload(pod("alone", affinity=HOST_ANTI), there=OLD), 5_000, 25),
    "preferred affinity": (workload(pod("web", affinity=PREFERRED)), 5_000, 50),
    "5,000 services": (workload(pod("svc-{i%5000}"), there=OLD, objects=SERVICES[1:]), 6_000, 5),
    "StatefulSet pods": (workload(pod("web-{i}"), there=OLD), 6_000, 5),
    "DaemonSet pods": (workload(pod("each", affinity=ONE_NODE), there=OLD), 6_000, 1),
    "preemption, 4 pods a node": (filled(4), 400, 5),
    "preemption, 30 pods a node": (filled(30), 83, 5),
    "4 pods a node, budgets": (filled(4, objects=BUDGETS), 200, 5),
    "30 pods a node, budgets": (filled(30, objects=BUDGETS), 42, 5),
    "100 classes, 0.5 % new": (
        workload(OLD, there=OLD, templates=[HUNDRED] * 199 + [NEW], count=4000),
        15_000,
        18,
    ),
}
"""Document, decisions/s that are asked for at 5,000 nodes, times the real one with its sampling."""


HEADINGS: Final = (
    "decisions/s",
    "asked",
    "p50 us",
    "p99 us",
    "sampling,times",
    "asked",
    "all nodes,times",
)


class Run:
    """A workload in a cluster in memory."""

    def __init__(self, document: Json) -> None:
        self.cache, self.clock, self.sharing = Cache(), ManualClock(), PodSharing()
        made = document["generate"]
        names = [f"node-{i:06}" for i in range(made["nodes"])]  # as the oracle's
        for i, name in enumerate(names):
            labels = {HOST: name, ZONE: f"zone-{i % made['zones']}"}
            sizes = {"cpu": made["cpu"], "memory": made["memory"], "pods": str(made["pods"])}
            self.cache.add_node(make_node(name, labels=labels, **sizes))
        for one in document.get("objects", ()):
            meta = {"namespace": "default", **one["metadata"]}
            self.cache.set_object(from_builtins(KINDS[one["kind"]], one | {"metadata": meta}))
        count = len(names) * made["boundPodsPerNode"]
        for i, bound in enumerate(_pods("there", made["boundTemplates"], count, self.sharing)):
            self.cache.add_pod(bound, names[i % len(names)])
        self.framework = Framework(Profile("default-scheduler", tuple(default_plugins())))
        self.queue = SchedulingQueue(
            clock=self.clock,
            hooks=queue_hooks(self.framework, self.snapshot),
            snapshot=self.snapshot,
        )
        self._preempt = document.get("preempt", False)
        self._document = document
        self.placed = 0

    def snapshot(self) -> Any:
        return self.cache.snapshot(self.clock.time())

    def times(self) -> list[float]:
        """Seconds of each decision that is measured."""
        warm, count = self._document["warmup"], self._document["count"]
        for one in _pods("new", self._document["templates"], warm + count, self.sharing):
            self.queue.add(one)
        for _ in self.framework.warm(self.snapshot()):
            pass
        sweep()
        found = []
        with collecting():
            for _ in range(warm + count):
                began = time.thread_time()
                self._one()
                found.append(time.thread_time() - began)
        gc.unfreeze()
        return found[warm:]

    def _one(self) -> None:
        queued = self.queue.pop()
        assert queued is not None
        one, now = queued.pod, self.clock.time()
        decision = conclude(one, self.cache.snapshot(now), self.framework)
        rescue = decision.rescue
        if self._preempt and rescue is not None and rescue.nominated:
            for victim in rescue.evictions:
                self.cache.remove_pod(victim.pod.uid)
            self.cache.nominate(one, rescue.nominated)
            decision = decide(one, self.cache.snapshot(now), self.framework)
        if decision.node is not None:
            self.placed += 1
            self.cache.assume(one, decision.node, now)
            if self.framework.acts(one):
                self.framework.reserve(one, self.cache.snapshot(now), decision.node)


def _pods(name: str, templates: list[Json], count: int, sharing: PodSharing) -> Iterator[PodInfo]:
    """Pods as the watch hands them on: equal parts of them are one object."""
    for i, made in enumerate(written_out(templates, count)):
        made["metadata"] |= {"name": f"{name}-{i}", "uid": f"{name}-{i}", "namespace": "default"}
        one = from_builtins(Pod, made)
        sharing(one)
        yield make_pod_info(one)


def written_out(templates: Sequence[Json], count: int) -> Iterator[Json]:
    """Pods of the templates in turn, their numbers filled in."""
    texts = [json.dumps(one) for one in templates]
    for i in range(count if texts else 0):
        text = texts[i % len(texts)]
        yield json.loads(_NUMBER.sub(lambda found, i=i: _number(found, i), text))


def _number(found: re.Match[str], i: int) -> str:
    add, divide, modulo = (None if part is None else int(part) for part in found.groups())
    i //= divide or 1
    return str((add or 0) + (i if modulo is None else i % modulo))


def of_oracle(oracle: str, document: Json, *flags: str) -> float:
    """CPU seconds a decision of the real scheduler's code."""
    command = [oracle, "-bench", "-cpus", "1", *flags]
    done = subprocess.run(
        command, input=json.dumps(document), capture_output=True, text=True, check=True
    )
    said = json.loads(done.stdout)
    return float(said["cpuSeconds"]) / float(said["pods"])


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", default="", help="The workloads whose names contain this.")
@click.option("--nodes", default=5000, help="How many nodes.")
@click.option("--count", default=0, help="How many pods are measured.")
@click.option("--rounds", default=1, help="Rounds of which the median counts.")
def main(*, only: str, nodes: int, count: int, rounds: int) -> None:
    """Decisions of all kinds; ORACLE=path sets the real scheduler's beside them."""
    oracle = os.environ.get("ORACLE") or None
    click.echo(f"{f'{nodes:,} nodes':28}{''.join(f'{one:>16}' for one in HEADINGS)}")
    for name, (document, goal, times) in WORKLOADS.items():
        if only not in name:
            continue
        document["generate"]["nodes"] = nodes
        document["count"] = count or document["count"]
        runs = [sorted(Run(document).times()) for _ in range(rounds)]
        mean = statistics.median(statistics.mean(run) for run in runs)
        ratios = ["", ""]
        if oracle:
            ways = (), ("-percentage", "100")
            ratios = [f"{of_oracle(oracle, document, *way) / mean:.0f}" for way in ways]
        p50, p99 = (1e6 * statistics.median(quantile(run, q) for run in runs) for q in (0.5, 0.99))
        speed = f"{1 / mean:,.0f}", f"{goal:,}", f"{p50:.0f}", f"{p99:.0f}"
        cells = *speed, ratios[0], f"{times:g}", ratios[1]
        click.echo(f"{name:28}{''.join(f'{one:>16}' for one in cells)}")


if __name__ == "__main__":
    main()
