"""End to end on a real API server: a backlog of pods, first binding to last, Berth and the other.

Every run is the same for both: nodes and a backlog are there, the scheduler starts, and the API
server's own audit log says when each binding and each Event was written. So nobody watches, and
measuring costs the machine next to nothing. The first bindings are left out as warm-up. Sides take
turns; the pods of a run are deleted after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import random
import ssl
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import yaml

from tests.bench.decisions import LINES
from tests.bench.measure import Measurement, cpu_seconds, resident_mib
from tests.cluster import binaries
from tests.cluster.berth import PROFILE, Berth
from tests.cluster.controlplane import ControlPlane
from tests.cluster.kube_scheduler import KubeScheduler
from tests.cluster.process import Process, wait_until

NAMESPACE = "bench"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
EVENTS = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"
TEMPLATES = (
    ("nginx-web", "100m", "64Mi"),
    ("redis", "50m", "128Mi"),
    ("worker", "150m", "96Mi"),
    ("nginx-api", "80m", "64Mi"),
    ("batch", "60m", "48Mi"),
)
IN_FLIGHT = 50
PATIENCE = 600.0
BINDING = b'"subresource":"binding"'
CREATED = b'"resource":"pods"'
EVENT = b'"resource":"events"'
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "omitManagedFields": True,
    "rules": [
        {
            "level": "Metadata",
            "verbs": ["create"],
            "resources": [
                {"group": "", "resources": ["pods", "pods/binding", "events"]},
                {"group": "events.k8s.io", "resources": ["events"]},
            ],
        },
        {"level": "None"},
    ],
}
CONFIG = {
    "apiVersion": "berth.dev/v1",
    "kind": "BerthConfiguration",
    "metrics": {
        "bandwidth": {
            "promql": "sum by (instance) (rate(node_network_receive_bytes_total[1m]))",
            "every": "1s",
            "stale": "30s",
            "unit": "bytes/s",
        }
    },
}


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    nodes: int = 1000
    pods: int = 1200
    warm: int = 200
    rounds: int = 5
    uncounted: int = 3
    """Runs before: for everyone, the API server's first thousands of pods are slow."""


QUICK = Sizes(nodes=300, pods=400, warm=100, rounds=1, uncounted=1)
TOY = Sizes(nodes=10, pods=30, warm=5, rounds=1, uncounted=1)


# ---- the cluster and its pods --------------------------------------------------------------------


def node_object(number: int) -> dict[str, Any]:
    """A node as a kubelet would have registered it, every second one with the filter's label."""
    name = f"node-{number:05}"
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": f"zone-{number % 3}",
        "node.kubernetes.io/instance-type": "m5.2xlarge",
    }
    if number % 2:
        labels["test"] = "test"
    amounts = {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110"}
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "KubeletReady"},
                {"type": "MemoryPressure", "status": "False"},
                {"type": "DiskPressure", "status": "False"},
                {"type": "PIDPressure", "status": "False"},
            ],
            "images": [
                {"names": [f"registry.example/image-{i}"], "sizeBytes": 10_000_000 * (i + 1)}
                for i in range(20)
            ],
        },
    }


def pod_object(number: int, run: int, scheduler: str) -> dict[str, Any]:
    """A pod of one of the templates."""
    template, cpu, memory = TEMPLATES[number % len(TEMPLATES)]
    return {
        "metadata": {
            "name": f"{template}-{run}-{number}",
            "namespace": NAMESPACE,
            "labels": {"app": template},
        },
        "spec": {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": f"registry.example/{template}:1",
                    "resources": {"requests": {"cpu": cpu, "memory": memory}},
                }
            ],
        },
    }


async def create(plane: ControlPlane, path: str, objects: Sequence[dict[str, Any]]) -> None:
    """Creates the objects, in their order as far as many connections allow."""
    tls: ssl.SSLContext = plane.ssl_context()
    left = iter(objects)
    async with aiohttp.ClientSession(plane.url) as session:

        async def work() -> None:
            for one in left:
                async with session.post(path, json=one, ssl=tls) as answer:
                    if answer.status != 201:
                        raise RuntimeError(await answer.text())

        await asyncio.gather(*[work() for _ in range(IN_FLIGHT)])
    await asyncio.sleep(0.1)  # TLS connections take a moment to close


class Samples:
    """Answers Prometheus' query API with a new bandwidth for each node each time."""

    def __init__(self, nodes: int) -> None:
        chance = random.Random(7)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                now = time.time()
                result = [
                    {
                        "metric": {"instance": f"node-{i:05}:9100"},
                        "value": [now, str(chance.uniform(1e5, 1e8))],
                    }
                    for i in range(nodes)
                ]
                data = {"resultType": "vector", "result": result}
                body = json.dumps({"status": "success", "data": data}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.do_GET()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class AuditLog:
    """What the API server says it has written, counted as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._tail = b""
        self.bindings: list[bytes] = []
        self.events: list[bytes] = []
        self.created: list[bytes] = []

    def read(self) -> None:
        """Takes in what is new."""
        with self._path.open("rb") as log:
            log.seek(self._offset)
            new = log.read()
        self._offset += len(new)
        *lines, self._tail = (self._tail + new).split(b"\n")
        for line in lines:
            if BINDING in line:
                self.bindings.append(line)
            elif EVENT in line:
                self.events.append(line)
            elif CREATED in line:
                self.created.append(line)

    def forget(self) -> None:
        """Starts a new run."""
        self.read()
        self.bindings, self.events, self.created = [], [], []


def written_at(lines: Sequence[bytes]) -> list[float]:
    """When the server had answered each of the requests that it accepted, in order."""
    times = []
    for line in lines:
        entry = json.loads(line)
        if entry["responseStatus"]["code"] == 201:
            times.append(datetime.fromisoformat(entry["stageTimestamp"]).timestamp())
    return sorted(times)


# ---- the sides -----------------------------------------------------------------------------------


class Scheduler(Protocol):
    """A scheduler as a process."""

    process: Process


@dataclass(frozen=True)
class Side:
    """One of those compared: `make` gives it, ready to be started, for a run."""

    name: str
    scheduler_name: str
    make: Callable[[int], Scheduler]


@dataclass(frozen=True)
class Run:
    """What one run gave."""

    pods_per_second: float
    all_pods_per_second: float
    with_events_per_second: float
    cpu_ms_a_pod: float
    cpu_ms_a_pod_with_events: float
    apiserver_cpu_ms_a_pod: float
    rss_mib: float
    events: float


class Comparison:
    """A control plane with nodes, and runs on it."""

    def __init__(self, folder: Path, sizes: Sizes) -> None:
        self.sizes = sizes
        self.folder = folder
        policy = folder / "audit.yaml"
        policy.write_text(yaml.safe_dump(AUDIT_POLICY))
        whole = "--audit-log-maxsize=100000"  # MB: the log that is read goes on in no second file
        flags = (f"--audit-policy-file={policy}", "--max-requests-inflight=800", whole)
        self.plane = ControlPlane(folder / "control-plane", apiserver_flags=flags)
        self.samples = Samples(sizes.nodes)
        self.policies = folder / "policies"
        self.policies.mkdir()
        (self.policies / "demo.policy").write_text(LINES)
        self.config = folder / "config.yaml"
        self.config.write_text(yaml.safe_dump(CONFIG))
        self._runs = 0

    def start(self) -> None:
        self.plane.start()
        self.audit = AuditLog(self.plane.audit_log)
        self.plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        nodes = [node_object(i) for i in range(self.sizes.nodes)]
        asyncio.run(create(self.plane, "/api/v1/nodes", nodes))

    def stop(self) -> None:
        self.plane.stop()
        self.samples.stop()

    def sides(self) -> list[Side]:
        """The original, and Berth with and without policies."""

        def original(_: int) -> Scheduler:
            return KubeScheduler(self.plane)

        def plain(run: int) -> Scheduler:
            return Berth(self.plane, self.folder / f"berth-{run}")

        def policies(run: int) -> Scheduler:
            return Berth(
                self.plane,
                self.folder / f"berth-{run}",
                "--policies",
                self.policies,
                "--config",
                self.config,
                "--prometheus-url",
                self.samples.url,
            )

        return [
            Side("berth, two policies", PROFILE, policies),
            Side("kube-scheduler", "default-scheduler", original),
            Side("berth, no policies", PROFILE, plain),
        ]

    def run(self, side: Side) -> Run:
        """One backlog of the templates, first binding to last."""
        count = self.sizes.pods
        pods = [pod_object(i, self._runs, side.scheduler_name) for i in range(count)]
        asyncio.run(create(self.plane, PODS, pods))
        return self.measured(side)

    def measured(self, side: Side, events: int | None = None) -> Run:
        """The run of a backlog that is there, to so many Events: one for each pod that is bound."""
        time.sleep(0.5)
        self.audit.forget()
        with self.running(side) as process:
            return self._watch(process, self.sizes.pods if events is None else events)

    @contextlib.contextmanager
    def running(self, side: Side) -> Iterator[Process]:
        """The side's process, and an empty namespace after it."""
        try:
            with self.started(side) as process:
                yield process
        finally:
            for path in (PODS, EVENTS):
                self._empty(path)

    @contextlib.contextmanager
    def started(self, side: Side) -> Iterator[Process]:
        """The side's process."""
        self._runs += 1
        process = side.make(self._runs).process
        process.start()
        try:
            yield process
        finally:
            process.stop(seconds=5)

    def _watch(self, process: Process, expected: int) -> Run:
        sizes, audit = self.sizes, self.audit
        server = self.plane.apiserver.pid

        def bound(count: int) -> Callable[[], bool]:
            def there() -> bool:
                if not process.running:
                    raise RuntimeError(f"the scheduler ended:\n{process.tail()}")
                audit.read()
                return len(audit.bindings) >= count

            return there

        wait_until("warm", bound(max(1, sizes.warm)), seconds=PATIENCE)
        warm = len(audit.bindings)
        cpu, server_cpu = cpu_seconds(process.pid), cpu_seconds(server)
        wait_until("all are bound", bound(sizes.pods), seconds=PATIENCE)
        bound_cpu, bound_server_cpu = cpu_seconds(process.pid), cpu_seconds(server)
        rss = resident_mib(process.pid)
        self._events_rest(expected)
        rested_cpu = cpu_seconds(process.pid)
        times = written_at(audit.bindings)
        events = written_at(audit.events)
        first, begin, end = times[0], times[sizes.warm], times[-1]
        counted, left = len(times) - sizes.warm - 1, sizes.pods - warm
        last = max(end, events[-1]) if events else end
        earliest = min(first, events[0]) if events else first
        return Run(
            counted / (end - begin),
            (len(times) - 1) / (end - first),
            len(times) / (last - earliest),
            1e3 * (bound_cpu - cpu) / max(left, 1),
            1e3 * (rested_cpu - cpu) / max(left, 1),
            1e3 * (bound_server_cpu - server_cpu) / max(left, 1),
            rss,
            len(events) / len(times),
        )

    def _events_rest(self, expected: int) -> None:
        """Waits until every pod has its Events, or no more come."""
        audit, quiet, known = self.audit, time.monotonic(), -1
        deadline = quiet + PATIENCE
        while len(audit.events) < expected and time.monotonic() < deadline:
            audit.read()
            if len(audit.events) != known:
                known, quiet = len(audit.events), time.monotonic()
            elif time.monotonic() - quiet > 2.0:
                break
            time.sleep(0.05)

    def _empty(self, path: str) -> None:
        def gone() -> bool:
            # The server ends a request after a minute; the next one deletes what is left.
            with contextlib.suppress(TimeoutError, ConnectionError):
                self.plane.request("DELETE", f"{path}?gracePeriodSeconds=0")
            _, left = self.plane.request("GET", f"{path}?limit=1")
            return not left["items"]

        wait_until(f"{path} is empty", gone, seconds=PATIENCE)


def missing() -> str | None:
    """Why this part cannot run here, in one line."""
    return binaries.missing()


def measure(sizes: Sizes) -> Iterator[Measurement]:
    """All sides in turn, several times; a row a side and a row a ratio."""
    for name in binaries.PACKAGES:
        binaries.binary(name)
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as folder:
        comparison = Comparison(Path(folder), sizes)
        try:
            comparison.start()
            runs = _take_turns(comparison)
        finally:
            comparison.stop()
    yield from rows(runs, sizes)


def _take_turns(comparison: Comparison) -> dict[str, list[Run]]:
    sides = comparison.sides()
    runs: dict[str, list[Run]] = {side.name: [] for side in sides}
    for number in range(comparison.sizes.uncounted):
        comparison.run(sides[-1 - number % len(sides)])
    for number in range(comparison.sizes.rounds):
        # Every other round backwards, so that none is always first.
        for side in sides if number % 2 == 0 else sides[::-1]:
            runs[side.name].append(comparison.run(side))
    return runs


def rows(runs: dict[str, list[Run]], sizes: Sizes) -> Iterator[Measurement]:
    """Medians a side, and medians of the ratios round by round."""
    tags = {"nodes": sizes.nodes, "pods": sizes.pods, "rounds": sizes.rounds}
    for name, of_side in runs.items():
        names = Run.__dataclass_fields__
        values = {key: statistics.median([getattr(run, key) for run in of_side]) for key in names}
        yield Measurement("cluster", name, values, tags, [r.pods_per_second for r in of_side])
    for name, of_side in runs.items():
        if name == "kube-scheduler":
            continue
        ratios = {
            key: [
                getattr(ours, key) / max(getattr(theirs, key), 1e-9)
                for ours, theirs in zip(of_side, runs["kube-scheduler"], strict=True)
            ]
            for key in Run.__dataclass_fields__
            if key != "events"
        }
        values = {key: statistics.median(each) for key, each in ratios.items()}
        yield Measurement(
            "cluster",
            f"ratio {name} : kube-scheduler",
            values,
            {**tags, "ratio": "true"},
            ratios["pods_per_second"],
        )
