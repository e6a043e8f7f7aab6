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
from tests.cluster.berth import Berth, node, pod
from tests.cluster.process import wait_until

pytestmark = pytest.mark.cluster

LINES = """\
filter: pod.name contains nginx -> node.label test=test
score: 100 - bandwidth/max*100
"""
NO_HELP = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
PODS = 200
NODES = 12


def apply(kubectl, *objects):
    kubectl("create", "-f", "-", stdin="\n---\n".join(yaml.safe_dump(o) for o in objects))


def config_map(namespace, text, name="policies"):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": {"demo.policy": text},
    }


def placements(control_plane, namespace):
    _, pods = control_plane.request("GET", f"/api/v1/namespaces/{namespace}/pods")
    return {p["metadata"]["name"]: p["spec"].get("nodeName") for p in pods["items"]}


def wait_bound(control_plane, namespace, count, seconds=60):
    wait_until(
        f"{count} pods are bound",
        lambda: sum(map(bool, placements(control_plane, namespace).values())) >= count,
        seconds=seconds,
    )


def probe_until_chosen(control_plane, namespace, kubectl, node_name, made):
    """Creates pods, one at a time, until one is placed on the node; how many there are now."""

    def lands_there():
        nonlocal made
        probe = pod(f"probe-{made}", namespace, cpu="1m", memory="1Mi")
        apply(kubectl, {"apiVersion": "v1", "kind": "Pod", **probe})
        made += 1
        name = probe["metadata"]["name"]
        wait_until(
            f"{name} is bound", lambda: placements(control_plane, namespace)[name] is not None
        )
        return placements(control_plane, namespace)[name] == node_name

    wait_until(f"{node_name} is chosen for being quiet", lands_there)
    return made


@pytest.fixture
def berth(control_plane, namespace, tmp_path):
    started = []

    def make(*flags):
        scheduler = Berth(control_plane, tmp_path / f"berth-{len(started)}", *flags)
        started.append(scheduler)
        return scheduler

    yield make
    for scheduler in started:
        scheduler.process.stop(seconds=5)


def test_two_lines_place_200_pods_and_every_decision_can_be_replayed(
    control_plane, namespace, no_nodes, kubectl, prometheus, berth, tmp_path
):
    chance = random.Random(7)
    names = [f"n{i:02}" for i in range(NODES)]
    test = set(names[::3])
    for index, name in enumerate(names):
        labels = {"topology.kubernetes.io/zone": f"z{index % 3}"}
        if name in test:
            labels["test"] = "test"
        apply(kubectl, {"apiVersion": "v1", "kind": "Node", **node(name, labels)})
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
    apply(kubectl, config_map(namespace, LINES))
    journal = tmp_path / "journal.jsonl"
    scheduler = berth(
        "--config", config,
        "--policy-configmap", f"{namespace}/policies",
        "--prometheus-url", prometheus.url,
        "--record", journal,
    )  # fmt: skip
    scheduler.start()

    pods = [
        pod(f"{'nginx' if i % 2 else 'redis'}-{i}", namespace, cpu="50m", memory="32Mi")
        for i in range(PODS)
    ]
    others = [pod(f"other-{i}", namespace, scheduler="someone-else") for i in range(3)]
    probes = 0
    for start in range(0, PODS, 50):
        batch = [{"apiVersion": "v1", "kind": "Pod", **p} for p in pods[start : start + 50]]
        apply(kubectl, *batch)
        wait_bound(control_plane, namespace, start + 50 + probes)
        # Another node falls quiet: sooner or later a pod lands there, and nothing else draws it.
        quiet = names[start // 50 + 1]
        for name in names:
            prometheus.exporter.set_bandwidth(
                name, 1e3 if name == quiet else chance.uniform(5e6, 1e7)
            )
        probes = probe_until_chosen(control_plane, namespace, kubectl, quiet, probes)
    apply(kubectl, *[{"apiVersion": "v1", "kind": "Pod", **p} for p in others])

    # An edit is obeyed by the pods that come after it, without a restart.
    edited = config_map(namespace, LINES.replace("test=test", "topology.kubernetes.io/zone=z1"))
    kubectl("replace", "-f", "-", stdin=yaml.safe_dump(edited))
    scheduler.wait_for_log("Policies in force", count=2)
    apply(kubectl, {"apiVersion": "v1", "kind": "Pod", **pod("nginx-after-edit", namespace)})
    wait_bound(control_plane, namespace, PODS + probes + 1)

    # A broken edit changes nothing, and is said where its author looks.
    broken = config_map(namespace, "filter: pod.name contains nginx -> node.label test==\n")
    kubectl("replace", "-f", "-", stdin=yaml.safe_dump(broken))
    scheduler.wait_for_log("stays in force")
    apply(kubectl, {"apiVersion": "v1", "kind": "Pod", **pod("nginx-after-break", namespace)})
    wait_bound(control_plane, namespace, PODS + probes + 2)
    wait_until(
        "an Event on the ConfigMap says why",
        lambda: "PoliciesRefused" in kubectl("get", "events", "-n", namespace, "-o", "yaml").stdout,
    )

    where = placements(control_plane, namespace)
    assert all(where[f"other-{i}"] is None for i in range(3)), "another scheduler's pods"
    assert {where[f"nginx-{i}"] for i in range(1, PODS, 2)} <= test
    zone = set(names[1::3])
    assert where["nginx-after-edit"] in zone
    assert where["nginx-after-break"] in zone
    assert scheduler.end() == 0, scheduler.log.read_text()[-2000:]

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


def test_a_pod_that_fits_nowhere_is_told_why_and_wakes_when_it_fits(
    control_plane, namespace, no_nodes, kubectl, berth, tmp_path
):
    control_plane.request("POST", "/api/v1/nodes", node("only", cpu="1"))
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "demo.policy").write_text(LINES)
    berth("--policies", policies).start()
    path = f"/api/v1/namespaces/{namespace}/pods"
    control_plane.request("POST", path, pod("nginx-1", namespace, cpu="100m"))
    control_plane.request("POST", path, pod("big", namespace, cpu="3"))

    def message(name):
        _, answer = control_plane.request("GET", f"{path}/{name}")
        conditions = answer["status"].get("conditions", [])
        said = [c for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"]
        return said[0]["message"] if said else ""

    wait_until("both are told why", lambda: message("nginx-1") and message("big"))
    assert message("nginx-1") == (
        "0/1 nodes are available: 1 node.label test=test is false: test is <none> (demo.policy:1)."
        f" {NO_HELP}"
    )
    assert message("big") == f"0/1 nodes are available: 1 Insufficient cpu. {NO_HELP}"
    events = kubectl("get", "events", "-n", namespace).stdout
    assert "FailedScheduling" in events

    kubectl("label", "node", "only", "test=test")
    wait_bound(control_plane, namespace, 1)
    assert placements(control_plane, namespace) == {"nginx-1": "only", "big": None}
    control_plane.request("POST", "/api/v1/nodes", node("bigger", cpu="4"))
    wait_bound(control_plane, namespace, 2)
    assert placements(control_plane, namespace)["big"] == "bigger"
    wait_until(
        "the binding is told as kube-scheduler tells it",
        lambda: (
            f"Successfully assigned {namespace}/big to bigger"
            in kubectl("get", "events", "-n", namespace).stdout
        ),
    )


def test_a_pod_that_a_gate_holds_shows_it_and_goes_on_when_the_gate_opens(
    control_plane, namespace, no_nodes, kubectl, berth, tmp_path
):
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "approval.policy").write_text(
        'gate: pod.annotation approved=yes message "wants the annotation approved=yes"\n'
    )
    control_plane.request("POST", "/api/v1/nodes", node("only", cpu="2"))
    berth("--policies", policies).start()
    path = f"/api/v1/namespaces/{namespace}/pods"
    control_plane.request("POST", path, pod("p", namespace))
    words = "wants the annotation approved=yes (approval.policy:1)"
    wait_until(
        "kubectl shows that it is gated",
        lambda: "SchedulingGated" in kubectl("get", "pod", "p", "-n", namespace).stdout,
    )
    wait_until(
        "kubectl describe says why",
        lambda: kubectl("describe", "pod", "p", "-n", namespace).stdout.count(words) == 1,
    )
    assert placements(control_plane, namespace) == {"p": None}
    kubectl("annotate", "pod", "p", "-n", namespace, "approved=yes")
    wait_bound(control_plane, namespace, 1)


def test_a_rule_about_age_lets_its_pods_go_at_the_instant_it_turns(
    control_plane, namespace, no_nodes, berth, tmp_path
):
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "age.policy").write_text(
        "gate: pod.label by=gate -> now - pod.created >= 4s\n"
        "filter: pod.label by=filter -> now - pod.created >= 6s\n"
    )
    control_plane.request("POST", "/api/v1/nodes", node("only", cpu="2"))
    # Who asked at full minutes only would ask too early, or 25 seconds late.
    wait_until("no full minute is near", lambda: 5 < time.time() % 60 < 30, seconds=60)
    berth("--policies", policies).start()
    path = f"/api/v1/namespaces/{namespace}/pods"
    for by in ("gate", "filter"):
        held = pod(by, namespace)
        held["metadata"]["labels"] = {"by": by}
        control_plane.request("POST", path, held)
    wait_bound(control_plane, namespace, 2)
    _, pods = control_plane.request("GET", path)
    for one in pods["items"]:
        said = one["status"]["conditions"]
        (bound,) = [c["lastTransitionTime"] for c in said if c["status"] == "True"]
        created = one["metadata"]["creationTimestamp"]
        waited = (datetime.fromisoformat(bound) - datetime.fromisoformat(created)).total_seconds()
        least = {"gate": 4, "filter": 6}[one["metadata"]["name"]]
        assert least <= waited <= least + 10, (one["metadata"]["name"], waited)


def test_a_gate_that_opens_for_many_lets_in_no_more_than_it_says(
    control_plane, namespace, no_nodes, kubectl, berth, tmp_path
):
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "two.policy").write_text(
        "gate: count(cluster.pods where it.namespace == pod.namespace) < 2\n"
    )
    control_plane.request("POST", "/api/v1/nodes", node("only", cpu="8"))
    path = f"/api/v1/namespaces/{namespace}/pods"
    for number in range(6):
        control_plane.request("POST", path, pod(f"p{number}", namespace))
    scheduler = berth("--policies", policies)
    scheduler.start()

    def settled(bound):
        """When all others are known to be held."""
        shown = kubectl("get", "pods", "-n", namespace, "--no-headers").stdout
        held = shown.count("SchedulingGated")
        placed = sum(map(bool, placements(control_plane, namespace).values()))
        assert placed <= bound
        return (placed, held) == (bound, len(placements(control_plane, namespace)) - bound)

    wait_until("two are bound and four are held", lambda: settled(2))
    one = next(name for name, at in placements(control_plane, namespace).items() if at)
    kubectl("delete", "pod", one, "-n", namespace, "--force", "--grace-period=0")
    wait_until("another took its place, and only one", lambda: settled(2))
    assert len(placements(control_plane, namespace)) == 5
