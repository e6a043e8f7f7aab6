"""The real programs as fixtures. What is missing is said in one line, and fails only in CI."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.embedded import EmbeddedCluster, Pace
from tests.cluster import binaries
from tests.cluster import prometheus as prometheus_program
from tests.cluster.controlplane import ControlPlane
from tests.cluster.kube_scheduler import KubeScheduler
from tests.cluster.prometheus import Exporter, Prometheus
from tests.cluster.wire import Wire

Kubectl = Callable[..., subprocess.CompletedProcess[str]]

_numbers = itertools.count(1)


class Missing(pytest.Item):
    """Stands for all the tests that a machine cannot run, so that they are one line."""

    count: int
    reason: str

    def runtest(self) -> None:
        text = f"{self.count} not run: {self.reason}"
        if os.environ.get("CI") == "true":
            pytest.fail(text, pytrace=False)
        pytest.skip(text)

    def reportinfo(self) -> tuple[Path, None, str]:
        return Path(__file__), None, self.name


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Put one skipped item in the place of the tests whose programs are missing."""
    for name, reason, fixtures in (
        ("go", binaries.missing(), {"control_plane", "fresh_control_plane", "needs_programs"}),
        ("prometheus", prometheus_program.missing(), {"prometheus_server"}),
    ):
        lost = [item for item in _own(items) if _needs(item, fixtures)] if reason else []
        if reason and lost:
            items[:] = [item for item in items if item not in lost]
            stand_in = Missing.from_parent(session, name=f"cluster tests without {name}")
            stand_in.count, stand_in.reason = len(lost), reason
            items.append(stand_in)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the programs before the first test: a cold build outlasts any test's time limit."""
    wanted = any(item.get_closest_marker("cluster") for item in _own(session.items))
    if wanted and not session.config.option.collectonly and binaries.missing() is None:
        for name in binaries.PACKAGES:
            binaries.binary(name)


def _own(items: list[pytest.Item]) -> list[pytest.Item]:
    here = Path(__file__).parent
    return [item for item in items if here in item.path.parents]


def _needs(item: pytest.Item, fixtures: set[str]) -> bool:
    names = set(getattr(item, "fixturenames", ()))
    real_api = "api" in names and item.get_closest_marker("cluster") is not None
    return bool(names & fixtures) or (real_api and "control_plane" in fixtures)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One etcd and kube-apiserver for the whole run; tests keep to their own namespaces."""
    plane = ControlPlane(tmp_path_factory.mktemp("control-plane"))
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()


@pytest.fixture
def fresh_control_plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane of the test's own, for tests that break it."""
    plane = ControlPlane(tmp_path / "control-plane")
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace of the test's own on the shared control plane, emptied afterwards."""
    name = _new_namespace()
    status, answer = control_plane.request(
        "POST", "/api/v1/namespaces", {"metadata": {"name": name}}
    )
    assert status == 201, answer
    yield name
    for path in ("api/v1", "apis/coordination.k8s.io/v1", "apis/policy/v1"):
        for plural in _PLURALS[path]:
            url = f"/{path}/namespaces/{name}/{plural}?gracePeriodSeconds=0"
            control_plane.request("DELETE", url)


@pytest.fixture
def no_nodes(control_plane: ControlPlane) -> Iterator[None]:
    """The shared control plane has no nodes when the test begins, and none after it."""
    control_plane.request("DELETE", "/api/v1/nodes")
    yield
    control_plane.request("DELETE", "/api/v1/nodes")


@pytest.fixture(scope="session")
def kubectl(control_plane: ControlPlane) -> Kubectl:
    """`kubectl("get", "pods")` as admin; `stdin`, `check` and `kubeconfig` are optional."""
    program = binaries.binary("kubectl")
    admin = control_plane.kubeconfig_file()

    def run(
        *arguments: str, stdin: str | None = None, check: bool = True, kubeconfig: Path = admin
    ) -> subprocess.CompletedProcess[str]:
        command = [str(program), f"--kubeconfig={kubeconfig}", *arguments]
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=False, timeout=60
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    return run


@pytest.fixture(scope="session")
def needs_programs() -> None:
    """For tests that use a Go program without the control plane (see `_needs`)."""


@pytest.fixture
def kube_scheduler(control_plane: ControlPlane) -> Iterator[Callable[..., KubeScheduler]]:
    """Starts kube-schedulers on the shared control plane and ends them after the test."""
    started: list[KubeScheduler] = []

    def start(**options: Any) -> KubeScheduler:
        scheduler = KubeScheduler(control_plane, **options)
        started.append(scheduler)
        scheduler.start()
        return scheduler

    yield start
    for scheduler in started:
        scheduler.stop()


@pytest.fixture(scope="session")
def prometheus_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """One Prometheus for the whole run."""
    server = Prometheus(tmp_path_factory.mktemp("prometheus"), Exporter())
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def prometheus(prometheus_server: Prometheus) -> Iterator[Prometheus]:
    """Prometheus; the series a test sets are forgotten after it."""
    yield prometheus_server
    prometheus_server.exporter.clear()


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.cluster)])
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Wire]:
    """One client, first of the embedded cluster, then of the real API server."""
    with asyncio.Runner() as runner:
        if request.param == "real":
            yield from _real_api(request.getfixturevalue("control_plane"), runner)
        else:
            yield from _embedded_api(runner, tmp_path)


def _real_api(plane: ControlPlane, runner: asyncio.Runner) -> Iterator[Wire]:
    name = _new_namespace()
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    wire = Wire(
        runner,
        plane.url,
        tls=plane.ssl_context(),
        namespace=name,
        kubeconfig=plane.kubeconfig_file(),
        compact=plane.compact,
    )
    yield wire
    wire.close()


def _embedded_api(runner: asyncio.Runner, folder: Path) -> Iterator[Wire]:
    never = float("inf")
    pace = Pace(kubelet_seconds=never, signal_seconds=never, bookmark_seconds=0.2)
    cluster = EmbeddedCluster(nodes=0, pace=pace)
    runner.run(cluster.start())
    name = _new_namespace()
    cluster.create("namespaces", {"metadata": {"name": name}})
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(json.dumps(cluster.kubeconfig()))
    wire = Wire(
        runner,
        cluster.url,
        tls=None,
        namespace=name,
        kubeconfig=kubeconfig,
        compact=cluster.api.store.compact,
    )
    try:
        yield wire
        wire.close()
    finally:
        runner.run(cluster.stop())


_PLURALS = {
    "api/v1": ("pods", "configmaps", "events"),
    "apis/coordination.k8s.io/v1": ("leases",),
    "apis/policy/v1": ("poddisruptionbudgets",),
}


def _new_namespace() -> str:
    return f"test-{next(_numbers)}-{time.time_ns() % 1_000_000}"
