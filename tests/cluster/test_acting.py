"""What policies do on a real API server, beside choosing nodes: wait, label, hand over, watch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.process import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture
def cluster(control_plane, namespace, no_nodes, tmp_path):
    """Two nodes, and a scheduler with policies that a test may edit."""
    made = Cluster(control_plane, namespace, tmp_path)
    for name in ("n1", "n2"):
        made.node(name, cpu="2")
    yield made
    made.stop()


def creates(cluster, name, *, cpu="500m", **labels):
    cluster.pod(name, cpu=cpu, labels=labels)


def test_a_pod_waits_in_permit_on_its_node_and_kubectl_says_for_what(cluster, kubectl):
    cluster.rules(
        p="permit: pod.label held -> wait 10m until pod.annotation go=yes"
        ' message "{pod.name}: nobody said go"\n'
    )
    for name in ("a", "b"):
        creates(cluster, name, cpu="1500m", held="yes")
        cluster.told(name, "WaitingOnPermit", f"{name}: nobody said go (p.policy:1)")
    creates(cluster, "c", cpu="1")
    cluster.told("c", "FailedScheduling", "2 Insufficient cpu")
    assert cluster.refused("a")[0] == "WaitingOnPermit"
    assert "waits on node n" in kubectl("describe", "pod", "a", "-n", cluster.namespace).stdout
    assert [cluster.node_of(name) for name in "ab"] == [None, None]

    cluster.annotate("a", go="yes")
    cluster.placed("a")
    cluster.delete("b")
    cluster.placed("c")
    assert cluster.node_of("a") != cluster.node_of("c"), "b gave its place back"


def test_a_wait_ends_with_its_time_and_with_the_rule_that_holds_it(cluster):
    cluster.rules(p="permit: pod.label held -> wait 2s until pod.annotation go=yes\n")
    creates(cluster, "late", held="yes")
    cluster.told("late", "FailedScheduling", "was chosen and refused: permit: pod.label held")
    assert cluster.refused("late")[0] == "Unschedulable"

    cluster.rules(p="permit: pod.label kept -> wait 10m until pod.annotation go=yes\n")
    cluster.placed("late")
    creates(cluster, "kept", kept="yes")
    cluster.told("kept", "WaitingOnPermit", "waits on node")
    cluster.rules(p="score: 50\n")
    cluster.placed("kept")


def test_labels_are_there_before_the_pod_is_bound_and_gone_if_it_is_not(cluster):
    cluster.rules(
        p="prebind: label example.com/node = node.name, annotate example.com/cores = pod.cpu\n"
        "filter: count(node.pods where it.label example.com/node) < 1\n"
        'postbind: label example.com/done = "yes", event "labelled on {node.name}"\n'
    )
    creates(cluster, "a")
    creates(cluster, "b")
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
    cluster.rules(p='prebind: label example.com/odd = "{no}"\n')
    creates(cluster, "c")
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
        "--config",
        tmp_path / "config.yaml",
        p="bind: pod.label far -> with Remote\nbind: pod.label dry -> dry run\n"
        'postbind: event "bound on {node.name}"\n',
    )
    creates(cluster, "far", far="yes")
    creates(cluster, "dry", dry="yes")
    creates(cluster, "plain")
    cluster.placed("plain")
    cluster.told("dry", "DryRun", "nothing was bound")

    def handed():
        return (cluster.get("far")["metadata"].get("annotations") or {}).get(
            "remote.example.com/node"
        )

    wait_until("the pod is handed over", handed)
    assert [cluster.node_of("far"), cluster.node_of("dry")] == [None, None]
    assert not [one for one in cluster.notes("far") if one.startswith("Policy")], (
        "nothing is said of a binding that nobody knows of"
    )
    body = {
        "metadata": {"name": "far"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": handed()},
    }
    cluster.create(cluster.path("pods", "far/binding"), body)
    cluster.told("far", "Scheduled", "Successfully assigned")
    cluster.told("far", "Policy", "bound on n")
    assert not [one for one in cluster.notes("dry") if one.startswith("Policy")]


def test_a_policy_in_shadow_changes_nothing_and_its_config_map_is_told_of_it(cluster):
    cluster.rules(
        tried="mode: shadow\nfilter: pod.label app=web -> node.name is n2\ngate: pod.label app\n",
        ruling="first: node.name is n1\n",
    )
    for name in ("web-1", "web-2"):
        creates(cluster, name, app="web")
    creates(cluster, "other")
    assert cluster.placed("web-1", "web-2", "other") == ["n1"] * 3
    cluster.told("policies", "PolicyShadow", "shadow of tried: of 3 pods: would have rejected")
    (said,) = [one for one in cluster.notes("policies") if one.startswith("PolicyShadow")]
    assert "would have rejected the node (2 by tried.policy:2)" in said
    assert "would have held the pod (1 by tried.policy:3)" in said
    assert "2 pods elsewhere, 0 nowhere" in said
    cluster.berth.wait_for_log("shadow of tried: of 3 pods")


def test_a_canary_is_in_force_for_the_same_workloads_whenever_they_come(cluster):
    cluster.rules(
        half="mode: canary 50%\nfilter: node.name is n2\n", ruling="first: node.name is n1\n"
    )

    def round_of(number):
        for job in range(20):
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"job-{job}", "uid": str(job)}
            meta = {"ownerReferences": [{**owner, "controller": True}]}
            cluster.pod(f"job-{job}-{number}", meta=meta, cpu="10m")
        return cluster.placed(*[f"job-{job}-{number}" for job in range(20)])

    first = round_of(1)
    assert set(first) == {"n1", "n2"}
    assert round_of(2) == first
    cluster.told("policies", "PolicyShadow", "shadow of half: of ")


def test_a_restart_loses_nobody_who_waits_and_its_journal_replays(cluster, tmp_path):
    journal = tmp_path / "journal.jsonl"
    cluster.rules(
        "--record",
        journal,
        p="permit: pod.label held -> wait 10m until pod.annotation go=yes\n"
        "prebind: label example.com/node = node.name\n",
    )
    creates(cluster, "waits", held="yes")
    creates(cluster, "plain")
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
    cluster.annotate("waits", go="yes")
    [there] = cluster.placed("waits")
    assert cluster.get("waits")["metadata"]["labels"]["example.com/node"] == there
