"""The harness keeps its promises: what the other cluster tests stand on."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from engine.cli.run import command as run
from engine.configuration.scheduler import SCHEDULER_API
from engine.configuration.settings import load
from engine.plugins.profiles import make_profiles
from tests.cluster import binaries
from tests.cluster.controlplane import ControlPlane
from tests.cluster.kube_scheduler import KubeScheduler
from tests.cluster.process import wait_until
from tests.cluster.prometheus import Prometheus

pytestmark = pytest.mark.cluster

POD = """
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {schedulerName: %s, containers: [{name: main, image: "registry.example/app:1"}]}
"""


@pytest.mark.usefixtures("needs_programs")
def test_every_flag_of_kube_scheduler_is_taken_or_refused_by_name() -> None:
    command = [str(binaries.binary("kube-scheduler")), "--help"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    theirs = set(re.findall(r"^ +(?:-\w, )?(--[\w-]+)", said, re.MULTILINE))
    assert {"--config", "--vmodule"} <= theirs
    assert theirs - {one for option in run.params for one in option.opts} == {"--help"}


@pytest.mark.parametrize("name", ["kubectl", "kube-apiserver", "kube-scheduler"])
@pytest.mark.usefixtures("needs_programs")
def test_programs_know_their_version(name: str) -> None:
    command = [str(binaries.binary(name)), "--version"]
    if name == "kubectl":
        command[1:] = ["version", "--client"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"v{binaries.version_of(name)}" in done.stdout


@pytest.mark.usefixtures("no_nodes")
def test_the_real_scheduler_schedules(
    control_plane: ControlPlane,
    namespace: str,
    kubectl: Callable[..., subprocess.CompletedProcess[str]],
    kube_scheduler: Callable[..., KubeScheduler],
) -> None:
    kube_scheduler(scheduler_name="real-one")
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    node = {"metadata": {"name": "n"}, "status": {"allocatable": amounts, "capacity": amounts}}
    assert control_plane.request("POST", "/api/v1/nodes", node)[0] == 201
    kubectl("create", f"--namespace={namespace}", "-f", "-", stdin=POD % "real-one")

    def bound() -> bool:
        path = f"/api/v1/namespaces/{namespace}/pods/p"
        return control_plane.request("GET", path)[1]["spec"].get("nodeName") == "n"

    wait_until("the pod is bound", bound)
    wanted = {"verb": "create", "resource": "pods", "subresource": "binding"}
    entries = control_plane.audit(**wanted, namespace=namespace, name="p")
    assert [entry["stage"] for entry in entries] == ["RequestReceived", "ResponseComplete"]
    entry = entries[-1]
    assert entry["responseStatus"]["code"] == 201
    assert entry["requestObject"]["target"]["name"] == "n"
    assert entry["user"]["username"] == "admin"


def test_the_configuration_that_the_real_scheduler_writes_is_understood(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    """With --write-config-to, all its defaults in it: who has no file of his own begins with it."""
    given, whole, ours = (tmp_path / name for name in ("given", "whole", "ours"))
    client = {"kubeconfig": str(control_plane.kubeconfig_file())}
    document = {"apiVersion": SCHEDULER_API, "kind": "KubeSchedulerConfiguration"}
    given.write_text(yaml.safe_dump({**document, "clientConnection": client}))
    written = [f"--config={given}", "--secure-port=0", f"--write-config-to={whole}"]
    subprocess.run([binaries.binary("kube-scheduler"), *written], check=True, capture_output=True)
    command = [sys.executable, "-m", "engine", "run", "--config", whole, "--write-config-to", ours]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert make_profiles(load(str(ours)))[0].scheduler_name == "default-scheduler"


def test_a_control_plane_survives_what_tests_do_to_it(fresh_control_plane: ControlPlane) -> None:
    plane = fresh_control_plane
    item = {"metadata": {"name": "kept"}}
    assert plane.request("POST", "/api/v1/namespaces/default/configmaps", item)[0] == 201
    path = "/api/v1/namespaces/default/configmaps/kept"
    plane.kill()
    with pytest.raises(urllib.error.URLError):
        plane.request("GET", path)
    plane.start()
    assert plane.request("GET", path)[0] == 200
    plane.freeze()
    with pytest.raises(OSError, match="timed out"):
        urllib.request.urlopen(plane.url, timeout=0.3, context=plane.ssl_context())
    plane.thaw()
    plane.wait_ready()
    assert plane.request("GET", path)[0] == 200


def test_users_may_only_what_they_were_granted(
    control_plane: ControlPlane, kubectl: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    nobody: Path = control_plane.kubeconfig_file("system:serviceaccount:berth:berth")
    refusal = kubectl("get", "nodes", check=False, kubeconfig=nobody)
    assert 'User "system:serviceaccount:berth:berth" cannot list' in refusal.stderr


def test_prometheus_tells_what_the_exporter_says(prometheus: Prometheus) -> None:
    exporter = prometheus.exporter
    exporter.set_bandwidth("a", 1_000_000)
    exporter.set_bandwidth("b", 5_000)
    exporter.set_gauge("node_load1", "a", 0.5)
    rate = "rate(node_network_receive_bytes_total[5s])"
    prometheus.wait_for(rate, {"a", "b"})
    wanted = {"a": 1_000_000.0, "b": 5_000.0}
    wait_until("the rates", lambda: prometheus.query(rate) == pytest.approx(wanted, rel=0.1))
    assert prometheus.query("node_load1") == {"a": 0.5}
