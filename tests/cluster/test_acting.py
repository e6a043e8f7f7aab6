"""What policies do on a real API server, beside choosing nodes: wait, label, hand over, watch."""

from __future__ import annotations

import subprocess
import sys

import pytest
import yaml

from tests.cluster.berth import Berth, node, pod
from tests.cluster.process import wait_until

pytestmark = pytest.mark.cluster


class Cluster:
    """Two nodes, and a scheduler with one policy that a test may edit."""

    def __init__(self, control_plane, namespace, kubectl, folder):
        self.api, self.namespace, self.kubectl = control_plane, namespace, kubectl
        self.folder = folder / "policies"
        self.folder.mkdir()
        for name in ("n1", "n2"):
            self._create({"kind": "Node", **node(name, cpu="2")})
        self._flags = (control_plane, folder / "berth", "--policies", self.folder)
        self.berth = None

    def rules(self, text, *flags):
        """These are in force from here on."""
        times = 0 if self.berth is None else self._in_force()
        (self.folder / "p.policy").write_text(text)
        if self.berth is None:
            self.berth = Berth(*self._flags, *flags)
            self.berth.start()
        self.berth.wait_for_log("Policies in force", count=times + 1)

    def _in_force(self):
        return self.berth.log.read_text().count("Policies in force")

    def _create(self, body):
        self.kubectl("create", "-f", "-", stdin=yaml.safe_dump({"apiVersion": "v1", **body}))

    def creates(self, name, *, cpu="500m", **labels):
        body = pod(name, self.namespace, cpu=cpu)
        body["metadata"]["labels"] = labels
        self._create({"kind": "Pod", **body})

    def get(self, name):
        status, found = self.api.request("GET", f"/api/v1/namespaces/{self.namespace}/pods/{name}")
        return found if status == 200 else None

    def node_of(self, name):
        return self.get(name)["spec"].get("nodeName")

    def placed(self, *names):
        wait_until(f"{names} are bound", lambda: all(map(self.node_of, names)))

    def notes(self, name, reason):
        _, events = self.api.request("GET", f"/api/v1/namespaces/{self.namespace}/events")
        return [
            one["message"]
            for one in events["items"]
            if (one["involvedObject"]["name"], one["reason"]) == (name, reason)
        ]

    def told(self, name, reason, words):
        wait_until(
            f"{name} is told {words!r}",
            lambda: any(words in one for one in self.notes(name, reason)),
        )

    def condition(self, name):
        conditions = self.get(name)["status"].get("conditions", ())
        (found,) = [one for one in conditions if one["type"] == "PodScheduled"]
        return found["status"], found.get("reason")

    def describe(self, name):
        return self.kubectl("describe", "pod", name, "-n", self.namespace).stdout


@pytest.fixture
def cluster(control_plane, namespace, no_nodes, kubectl, tmp_path):
    made = Cluster(control_plane, namespace, kubectl, tmp_path)
    yield made
    if made.berth is not None:
        made.berth.process.stop(seconds=10)


def test_a_pod_waits_in_permit_on_its_node_and_kubectl_says_for_what(cluster):
    cluster.rules(
        "permit: pod.label held -> wait 10m until pod.annotation go=yes"
        ' message "{pod.name}: nobody said go"\n'
    )
    for name in ("a", "b"):
        cluster.creates(name, cpu="1500m", held="yes")
        cluster.told(name, "WaitingOnPermit", f"{name}: nobody said go (p.policy:1)")
    cluster.creates("c", cpu="1")
    cluster.told("c", "FailedScheduling", "2 Insufficient cpu")
    assert cluster.condition("a") == ("False", "WaitingOnPermit")
    assert "waits on node n" in cluster.describe("a")
    assert [cluster.node_of(name) for name in "ab"] == [None, None]

    cluster.kubectl("annotate", "pod", "a", "go=yes", "-n", cluster.namespace)
    cluster.placed("a")
    cluster.kubectl("delete", "pod", "b", "-n", cluster.namespace)
    cluster.placed("c")
    assert cluster.node_of("a") != cluster.node_of("c"), "b gave its place back"


def test_a_wait_ends_with_its_time_and_with_the_rule_that_holds_it(cluster):
    cluster.rules("permit: pod.label held -> wait 2s until pod.annotation go=yes\n")
    cluster.creates("late", held="yes")
    cluster.told("late", "FailedScheduling", "was chosen and refused: permit: pod.label held")
    assert cluster.condition("late") == ("False", "Unschedulable")

    cluster.rules("permit: pod.label kept -> wait 10m until pod.annotation go=yes\n")
    cluster.placed("late")
    cluster.creates("kept", kept="yes")
    cluster.told("kept", "WaitingOnPermit", "waits on node")
    cluster.rules("score: 50\n")
    cluster.placed("kept")


def test_labels_are_there_before_the_pod_is_bound_and_gone_if_it_is_not(cluster):
    cluster.rules(
        "prebind: label example.com/node = node.name, annotate example.com/cores = pod.cpu\n"
        "filter: count(node.pods where it.label example.com/node) < 1\n"
        'postbind: label example.com/done = "yes", event "labelled on {node.name}"\n'
    )
    cluster.creates("a")
    cluster.creates("b")
    cluster.placed("a", "b")
    for name in ("a", "b"):
        wait_until(
            f"{name} has the label of after",
            lambda name=name: "example.com/done" in cluster.get(name)["metadata"]["labels"],
        )
        there = cluster.node_of(name)
        meta = cluster.get(name)["metadata"]
        assert meta["labels"] == {"example.com/node": there, "example.com/done": "yes"}
        assert meta["annotations"] == {"example.com/cores": "500m"}
        cluster.told(name, "Policy", f"labelled on {there}")
    assert cluster.node_of("a") != cluster.node_of("b")

    # A value that no label may have is refused by the server, and the pod stays what it was.
    cluster.rules('prebind: label example.com/odd = "{no}"\n')
    cluster.creates("c")
    cluster.told("c", "FailedScheduling", "metadata.labels: Invalid value")
    assert cluster.node_of("c") is None
    assert "labels" not in cluster.get("c")["metadata"]


HANDS_OVER = """
from engine.framework.effects import set_on_pod
from engine.framework.interface import Points

class Remote:
    name = "Remote"

    def points(self):
        return Points(binder=self.hand)

    def hand(self, pod, snapshot, row):
        return (set_on_pod(pod, {}, {"remote.example.com/node": snapshot.nodes.name(row)}),)

def make(args):
    return Remote()
"""
WITH_REMOTE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
profiles:
  - schedulerName: berth
    plugins:
      multiPoint:
        enabled: [{name: Remote}]
"""


def test_a_pod_is_handed_to_another_binder_and_dry_runs_bind_nothing(
    cluster, tmp_path, monkeypatch
):
    info = tmp_path / "remote-1.dist-info"
    info.mkdir()
    (tmp_path / "remote_binder.py").write_text(HANDS_OVER)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: remote\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[berth.plugins]\nRemote = remote_binder:make\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "config.yaml").write_text(WITH_REMOTE)
    cluster.rules(
        "bind: pod.label far -> with Remote\nbind: pod.label dry -> dry run\n"
        'postbind: event "bound on {node.name}"\n',
        "--config",
        tmp_path / "config.yaml",
    )
    cluster.creates("far", far="yes")
    cluster.creates("dry", dry="yes")
    cluster.creates("plain")
    cluster.placed("plain")
    cluster.told("dry", "DryRun", "nothing was bound")

    def handed():
        return (cluster.get("far")["metadata"].get("annotations") or {}).get(
            "remote.example.com/node"
        )

    wait_until("the pod is handed over", handed)
    assert [cluster.node_of("far"), cluster.node_of("dry")] == [None, None]
    assert cluster.notes("far", "Policy") == [], "nothing is said of a binding that nobody knows of"
    body = {
        "metadata": {"name": "far"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": handed()},
    }
    url = f"/api/v1/namespaces/{cluster.namespace}/pods/far/binding"
    status, answer = cluster.api.request("POST", url, body)
    assert status == 201, answer
    cluster.told("far", "Scheduled", "Successfully assigned")
    cluster.told("far", "Policy", "bound on n")
    assert cluster.notes("dry", "Policy") == []


class Watched:
    """A cluster whose policies are a ConfigMap."""

    def __init__(self, cluster, folder):
        self.cluster, self.name = cluster, f"{cluster.namespace}/policies"
        self._folder = folder

    def put(self, **files):
        body = {
            "metadata": {"name": "policies"},
            "data": {f"{k}.policy": v for k, v in files.items()},
        }
        url = f"/api/v1/namespaces/{self.cluster.namespace}/configmaps"
        status, answer = self.cluster.api.request("POST", url, body)
        assert status == 201, answer
        self.cluster.berth = Berth(self.cluster.api, self._folder, "--policy-configmap", self.name)
        self.cluster.berth.start()


def test_a_policy_in_shadow_changes_nothing_and_its_config_map_is_told_of_it(cluster, tmp_path):
    Watched(cluster, tmp_path / "berth").put(
        tried="mode: shadow\nfilter: pod.label app=web -> node.name is n2\ngate: pod.label app\n",
        ruling="first: node.name is n1\n",
    )
    for name in ("web-1", "web-2"):
        cluster.creates(name, app="web")
    cluster.creates("other")
    cluster.placed("web-1", "web-2", "other")
    assert {cluster.node_of(name) for name in ("web-1", "web-2", "other")} == {"n1"}
    cluster.told("policies", "PolicyShadow", "shadow of tried: of 3 pods: would have rejected")
    (said,) = cluster.notes("policies", "PolicyShadow")
    assert "would have rejected the node (tried.policy:2 2)" in said
    assert "would have held the pod (tried.policy:3 1)" in said
    assert "2 pods elsewhere, 0 nowhere" in said
    cluster.berth.wait_for_log("shadow of tried: of 3 pods")


def test_a_canary_is_in_force_for_the_same_workloads_whenever_they_come(cluster, tmp_path):
    Watched(cluster, tmp_path / "berth").put(
        half="mode: canary 50%\nfilter: node.name is n2\n", ruling="first: node.name is n1\n"
    )

    def round_of(number):
        for job in range(20):
            body = pod(f"job-{job}-{number}", cluster.namespace, cpu="10m")
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"job-{job}", "uid": str(job)}
            body["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
            cluster._create({"kind": "Pod", **body})
        names = [f"job-{job}-{number}" for job in range(20)]
        cluster.placed(*names)
        return [cluster.node_of(name) for name in names]

    first = round_of(1)
    assert set(first) == {"n1", "n2"}
    assert round_of(2) == first
    cluster.told("policies", "PolicyShadow", "shadow of half: of ")


def test_a_restart_loses_nobody_who_waits_and_its_journal_replays(cluster, tmp_path):
    journal = tmp_path / "journal.jsonl"
    cluster.rules(
        "permit: pod.label held -> wait 10m until pod.annotation go=yes\n"
        "prebind: label example.com/node = node.name\n",
        "--record",
        journal,
    )
    cluster.creates("waits", held="yes")
    cluster.creates("plain")
    cluster.placed("plain")
    cluster.told("waits", "WaitingOnPermit", "waits on node")
    cluster.berth.end()
    replayed = subprocess.run(
        [sys.executable, "-m", "engine", "replay", journal],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (replayed.returncode, replayed.stdout) == (0, "2 decisions replayed, 2 the same\n")
    assert cluster.node_of("waits") is None

    cluster.berth.start()
    cluster.kubectl("annotate", "pod", "waits", "go=yes", "-n", cluster.namespace)
    cluster.placed("waits")
    assert cluster.get("waits")["metadata"]["labels"]["example.com/node"] == cluster.node_of(
        "waits"
    )
