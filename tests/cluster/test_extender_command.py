"""`berth extender`: policies obeyed by a stock kube-scheduler that stays where it is."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml

from tests.cluster.certificates import Authority
from tests.cluster.process import Process, free_port, wait_until
from tests.cluster.test_extenders import STOCK, Extended

pytestmark = pytest.mark.cluster

PAGE = Path(__file__).parents[2] / "docs" / "stock-scheduler.md"
NGINX = "filter: pod.name contains nginx -> node.label test=test\n"


class Served(Extended):
    """With `berth extender` beside it, and the configuration that its page shows."""

    def serves(self, text, *flags):
        self.policies = self.folder / "policies"
        self.policies.mkdir()
        if "--client-ca-file" in flags:
            self.authority = Authority(self.folder / "authority")
            flags = (*flags, self.authority.certificate)
        self.says(text)
        port = free_port()
        command = [sys.executable, "-m", "engine", "extender", "--port", str(port)]
        command += [
            "--kubeconfig",
            self.plane.kubeconfig_file(),
            "--policies",
            self.policies,
            *flags,
        ]
        self.log = self.folder / "extender.log"
        self.process = Process("berth extender", command, self.log)
        self.process.start()
        self.logged("Policies in force")
        shown = re.search(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[1]
        [extender] = yaml.safe_load(shown)["extenders"]
        extender["urlPrefix"] = f"https://127.0.0.1:{port}"
        if "--plain-http" in flags:
            extender["urlPrefix"] = f"http://127.0.0.1:{port}"
            del extender["enableHTTPS"]
        if "--client-ca-file" in flags:
            pair = self.authority.client("kube-scheduler")
            extender["tlsConfig"] = {"certFile": str(pair.certificate), "keyFile": str(pair.key)}
        self._kube_scheduler(extenders=[extender])

    def says(self, text):
        (self.policies / "a.policy").write_text(text)

    def logged(self, text, count=1):
        def there():
            assert self.process.running, self.process.tail()
            return self.log.read_text().count(text) >= count

        wait_until(f"{text!r} in the log", there, seconds=60)

    def stop(self):
        assert self.process.stop() == 0

    def runs(self, *names, **spec):
        for name in names:
            self.pod(name, scheduler=STOCK, spec=spec, cpu="100m")


@pytest.fixture
def cluster(control_plane, namespace, no_nodes, tmp_path, kube_scheduler):
    made = Served(kube_scheduler, control_plane, namespace, tmp_path)
    yield made
    made.stop()


@pytest.mark.parametrize("flags", [(), ("--plain-http",), ("--client-ca-file",)])
def test_nginx_lands_where_the_policy_says_and_an_edit_is_obeyed(cluster, flags):
    for n in range(4):
        cluster.node(f"n{n}", {"test": "test"} if n == 3 else {})
    cluster.serves(NGINX + "score: if node.name is n1 then 100 else 0\nsort: pod.name\n", *flags)
    cluster.logged("a.policy:3: has no effect through an extender: kube-scheduler sorts its queue")
    nginx = [f"nginx-{n}" for n in range(5)]
    cluster.runs(*nginx, "other-0")
    assert cluster.placed(*nginx) == ["n3"] * 5
    assert cluster.placed("other-0") == ["n1"], "scores are added to kube-scheduler's own"

    cluster.says("filter: pod.name contains nginx -> node.label nowhere=here\n")
    cluster.logged("Policies in force", count=2)
    cluster.runs("nginx-late")
    reason, message = cluster.refused("nginx-late")
    assert reason == "Unschedulable"
    assert message.startswith("0/4 nodes are available: 4 ")
    assert "node.label nowhere=here" in message
    cluster.says("filter: pod.name contains nginx -> node.name is n2\n")
    cluster.logged("Policies in force", count=3)
    # Extenders have no way to wake pods; whatever happens in the cluster does.
    cluster.node("n4")
    assert cluster.placed("nginx-late") == ["n2"]


def test_who_must_not_be_evicted_is_not(cluster):
    for name in ("n1", "n2"):
        cluster.node(name, cpu="1")
    cluster.serves(
        "preempt: pod.priority > 0 -> victims where it.label spare=yes\n", "--plain-http"
    )
    for name, label in (("kept", "no"), ("spare", "yes")):
        cluster.pod(name, scheduler=STOCK, labels={"spare": label}, cpu="900m")
    _, wanted = cluster.placed("kept", "spare")
    critical = {"priorityClassName": "system-node-critical"}
    for n in range(2):
        cluster.pod(f"important-{n}", scheduler=STOCK, spec=critical, cpu="900m")
    wait_until(
        "one is bound", lambda: cluster.node_of("important-0") or cluster.node_of("important-1")
    )
    assert cluster.get("spare") is None
    bound = [cluster.node_of(f"important-{n}") for n in range(2)]
    assert sorted(bound, key=str) == sorted([wanted, None], key=str)
    assert cluster.node_of("kept")
