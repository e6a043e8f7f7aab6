"""The roles of examples/rbac.yaml are enough for the two lines on a real API server."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cluster import binaries
from tests.cluster.berth import Berth, node, pod
from tests.cluster.controlplane import ControlPlane
from tests.cluster.process import wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"
ACCOUNT = "system:serviceaccount:berth-system:berth"

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(binaries.missing() is not None, reason=str(binaries.missing())),
]


def test_the_roles_are_enough(tmp_path):
    plane = ControlPlane(tmp_path / "control-plane")
    berth = None
    try:
        plane.start()
        for name in ("two-lines/configmap.yaml", "rbac.yaml"):
            kubectl(plane, "create", "-f", str(EXAMPLES / name))
        for name, labels in (("a", {}), ("b", {"test": "test"})):
            assert plane.request("POST", "/api/v1/nodes", node(name, labels))[0] == 201
        path = "/api/v1/namespaces/default/pods"
        # A role takes effect within a moment; a refusal until then would be retried and logged.
        for may in (("list", "nodes"), ("list", "configmaps/policies", "-n", "berth-system")):
            wait_until(
                f"the roles allow {' '.join(may)}",
                lambda may=may: (
                    "yes" in kubectl(plane, "auth", "can-i", *may, f"--as={ACCOUNT}", check=False)
                ),
            )
        berth = Berth(
            plane,
            tmp_path / "berth",
            "--policy-configmap",
            "berth-system/policies",
            "--leader-elect",
            "--leader-elect-resource-namespace=berth-system",
            kubeconfig=plane.kubeconfig_file(ACCOUNT),
        )
        berth.start()
        assert plane.request("POST", path, pod("nginx-1", "default", cpu="100m"))[0] == 201
        assert plane.request("POST", path, pod("big", "default", cpu="100"))[0] == 201

        def placed() -> bool:
            _, answer = plane.request("GET", f"{path}/nginx-1")
            return bool(answer["spec"].get("nodeName") == "b")

        def condition() -> bool:
            _, answer = plane.request("GET", f"{path}/big")
            return any(
                c["reason"] == "Unschedulable" for c in answer["status"].get("conditions", [])
            )

        wait_until("the pod is on the node labelled test=test", placed)
        wait_until("the other pod's condition says why", condition)
        wait_until(
            "Events were written",
            lambda: "FailedScheduling" in kubectl(plane, "get", "events", "-A"),
        )
        log = berth.log.read_text()
        assert "forbidden" not in log, log
        assert berth.end() == 0, log
    finally:
        if berth is not None:
            berth.process.stop(seconds=5)
        plane.stop()


def kubectl(plane: ControlPlane, *arguments: str, check: bool = True) -> str:
    command = [
        str(binaries.binary("kubectl")),
        f"--kubeconfig={plane.kubeconfig_file()}",
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout
