"""The main job on the real thing: two lines in a ConfigMap place real pods, and can be replayed."""

from __future__ import annotations

import json
import random
import time
from datetime import datetime

import pytest
import yaml
from click.testing import CliRunner

from engine.cli import main
from tests.cluster.cluster import Cluster
from tests.cluster.process import wait_until

pytestmark = pytest.mark.cluster

LINES = """\
filter: pod.name contains nginx -> node.label test=test
score: 100 - bandwidth/max*100
"""
NO_HELP = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
PODS = 200
NODES = 12


@pytest.fixture
def cluster(control_plane, namespace, no_nodes, tmp_path):
    made = Cluster(control_plane, namespace, tmp_path)
    yield made
    made.stop()


def wait_bound(cluster, count):
    wait_until(f"{count} pods are bound", lambda: len(cluster.bound()) >= count, seconds=60)


def probe_until_chosen(cluster, node_name, made):
    """Creates pods, one at a time, until one is placed on the node; how many there are now."""

    def lands_there():
        nonlocal made
        made += 1
        return cluster.goes(f"probe-{made}", cpu="1m", memory="1Mi") == node_name

    wait_until(f"{node_name} is chosen for being quiet", lands_there)
    return made


def test_two_lines_place_200_pods_and_every_decision_can_be_replayed(
    cluster, kubectl, prometheus, tmp_path
):
    chance = random.Random(7)
    names = [f"n{i:02}" for i in range(NODES)]
    test = set(names[::3])
    for index, name in enumerate(names):
        labels = {"topology.kubernetes.io/zone": f"z{index % 3}"}
        if name in test:
            labels["test"] = "test"
        cluster.node(name, labels)
        prometheus.exporter.set_bandwidth(name, chance.uniform(1e5, 1e7))
    config = tmp_path / "config.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "berth.dev/v1",
                "kind": "BerthConfiguration",
                "metrics": {
                    "bandwidth": {
                        "promql": "sum by (instance) (rate(node_network_receive_bytes_total[5s]))",
                        "every": "1s",
                        "stale": "30s",
                        "unit": "bytes/s",
                    }
                },
            }
        )
    )
    prometheus.wait_for("rate(node_network_receive_bytes_total[5s])", set(names))
    journal = tmp_path / "journal.jsonl"
    asks = ("--config", config, "--prometheus-url", prometheus.url, "--record", journal)
    cluster.rules(*asks, demo=LINES)
    probes = 0
    for start in range(0, PODS, 50):
        for i in range(start, start + 50):
            name = f"{'nginx' if i % 2 else 'redis'}-{i}"
            cluster.pod(name, cpu="50m", memory="32Mi")
        wait_bound(cluster, start + 50 + probes)
        # Another node falls quiet: sooner or later a pod lands there, and nothing else draws it.
        quiet = names[start // 50 + 1]
        for name in names:
            prometheus.exporter.set_bandwidth(
                name, 1e3 if name == quiet else chance.uniform(5e6, 1e7)
            )
        probes = probe_until_chosen(cluster, quiet, probes)
    for i in range(3):
        cluster.pod(f"other-{i}", scheduler="someone-else")

    # An edit is obeyed by the pods that come after it, without a restart.
    cluster.rules(demo=LINES.replace("test=test", "topology.kubernetes.io/zone=z1"))
    assert cluster.goes("nginx-after-edit") in names[1::3]

    # A broken edit changes nothing, and is said where its author looks.
    cluster.config_map(demo="filter: pod.name contains nginx -> node.label test==\n")
    cluster.berth.wait_for_log("stays in force")
    assert cluster.goes("nginx-after-break") in names[1::3]
    cluster.told("policies", "PoliciesRefused")

    where = cluster.where()
    assert all(where[f"other-{i}"] is None for i in range(3)), "another scheduler's pods"
    assert {where[f"nginx-{i}"] for i in range(1, PODS, 2)} <= test
    cluster.stop()

    entries = [json.loads(line) for line in journal.read_text().splitlines()]
    decided = [e for e in entries if e["what"] == "decision" and e.get("chosen")]
    made = PODS + probes + 2
    assert len(decided) == made
    columns = [e["signals"] for e in entries if e["what"] == "signals"]
    assert len({json.dumps(c, sort_keys=True) for c in columns}) > 3, "bandwidths changed meanwhile"
    result = CliRunner().invoke(main, ["replay", str(journal)])
    assert result.exit_code == 0, result.output
    assert f"{made} decisions replayed, {made} the same" in result.output
    assert {e["pod"]["metadata"]["name"]: e["chosen"] for e in decided} == {
        name: chosen for name, chosen in where.items() if not name.startswith("other")
    }


def test_a_pod_that_fits_nowhere_is_told_why_and_wakes_when_it_fits(cluster, kubectl):
    cluster.node("only", cpu="1")
    cluster.rules(demo=LINES)
    cluster.pod("nginx-1", cpu="100m")
    cluster.pod("big", cpu="3")
    said = "node.label test=test is false: test is <none> (demo.policy:1)"
    assert cluster.refused("nginx-1")[1] == f"0/1 nodes are available: 1 {said}. {NO_HELP}"
    assert cluster.refused("big")[1] == f"0/1 nodes are available: 1 Insufficient cpu. {NO_HELP}"
    assert "FailedScheduling" in kubectl("get", "events", "-n", cluster.namespace).stdout

    kubectl("label", "node", "only", "test=test")
    cluster.placed("nginx-1")
    assert cluster.where() == {"nginx-1": "only", "big": None}
    cluster.node("bigger", cpu="4")
    assert cluster.placed("big") == ["bigger"]
    # As kube-scheduler tells it.
    cluster.told("big", f"Successfully assigned {cluster.namespace}/big to bigger")


def test_a_pod_that_a_gate_holds_shows_it_and_goes_on_when_the_gate_opens(cluster, kubectl):
    cluster.node("only", cpu="2")
    cluster.rules(
        approval='gate: pod.annotation approved=yes message "wants the annotation approved=yes"\n'
    )
    cluster.pod("p")
    words = "wants the annotation approved=yes (approval.policy:1)"
    wait_until(
        "kubectl shows that it is gated",
        lambda: "SchedulingGated" in kubectl("get", "pod", "p", "-n", cluster.namespace).stdout,
    )
    wait_until(
        "kubectl describe says why",
        lambda: kubectl("describe", "pod", "p", "-n", cluster.namespace).stdout.count(words) == 1,
    )
    assert cluster.where() == {"p": None}
    cluster.annotate("p", approved="yes")
    cluster.placed("p")


def test_a_rule_about_age_lets_its_pods_go_at_the_instant_it_turns(cluster):
    cluster.node("only", cpu="2")
    # Who asked at full minutes only would ask too early, or 25 seconds late.
    wait_until("no full minute is near", lambda: 5 < time.time() % 60 < 30, seconds=60)
    cluster.rules(
        age="gate: pod.label by=gate -> now - pod.created >= 4s\n"
        "filter: pod.label by=filter -> now - pod.created >= 6s\n"
    )
    for by in ("gate", "filter"):
        cluster.pod(by, labels={"by": by})
    cluster.placed("gate", "filter")
    _, pods = cluster.plane.request("GET", cluster.path("pods"))
    for one in pods["items"]:
        said = one["status"]["conditions"]
        (bound,) = [c["lastTransitionTime"] for c in said if c["status"] == "True"]
        created = one["metadata"]["creationTimestamp"]
        waited = (datetime.fromisoformat(bound) - datetime.fromisoformat(created)).total_seconds()
        least = {"gate": 4, "filter": 6}[one["metadata"]["name"]]
        assert least <= waited <= least + 10, (one["metadata"]["name"], waited)


def test_a_gate_that_opens_for_many_lets_in_no_more_than_it_says(cluster, kubectl):
    cluster.node("only", cpu="8")
    for number in range(6):
        cluster.pod(f"p{number}")
    cluster.rules(two="gate: count(cluster.pods where it.namespace == pod.namespace) < 2\n")

    def settled():
        """When two are bound, never more, and all others are known to be held."""
        shown = kubectl("get", "pods", "-n", cluster.namespace, "--no-headers").stdout
        placed, there = len(cluster.bound()), len(cluster.where())
        assert placed <= 2
        return (placed, shown.count("SchedulingGated")) == (2, there - 2)

    wait_until("two are bound and four are held", settled)
    cluster.delete(min(cluster.bound()))
    wait_until("another took its place, and only one", settled)
    assert len(cluster.where()) == 5
