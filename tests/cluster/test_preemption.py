"""Preemption on a real API server: who goes, who comes, what is written on both."""

from __future__ import annotations

import time

import pytest
import yaml

from tests.cluster.berth import Berth, node, pod
from tests.cluster.process import wait_until

pytestmark = pytest.mark.cluster

TINY = ("c", "d")
CLASSES = {"low": 100, "high": 1000}


@pytest.fixture
def classes(control_plane, namespace):
    """Priority classes of the test's own: they belong to no namespace."""
    names = {}
    for word, value in CLASSES.items():
        names[word] = f"{namespace}-{word}"
        body = {"metadata": {"name": names[word]}, "value": value}
        status, answer = control_plane.request(
            "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body
        )
        assert status == 201, answer
    yield names
    for name in names.values():
        control_plane.request("DELETE", f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}")


class Cluster:
    def __init__(self, control_plane, namespace, kubectl, classes):
        self._api, self._namespace, self._kubectl = control_plane, namespace, kubectl
        self._classes = classes

    def creates(self, name, importance, cpu, *, labels=None, grace=0):
        body = pod(name, self._namespace, cpu=cpu)
        body["spec"]["priorityClassName"] = self._classes[importance]
        body["spec"]["terminationGracePeriodSeconds"] = grace
        body["metadata"]["labels"] = labels or {}
        self._kubectl(
            "create", "-f", "-", stdin=yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", **body})
        )

    def deletes(self, name):
        path = f"/api/v1/namespaces/{self._namespace}/pods/{name}?gracePeriodSeconds=0"
        assert self._api.request("DELETE", path)[0] == 200

    def get(self, name):
        status, found = self._api.request(
            "GET", f"/api/v1/namespaces/{self._namespace}/pods/{name}"
        )
        return found if status == 200 else None

    def node_of(self, name):
        found = self.get(name)
        return None if found is None else found["spec"].get("nodeName")

    def placed(self, *names):
        wait_until(f"{names} are bound", lambda: all(map(self.node_of, names)))

    def notes(self, name):
        _, events = self._api.request("GET", f"/api/v1/namespaces/{self._namespace}/events")
        return [one["message"] for one in events["items"] if one["involvedObject"]["name"] == name]


@pytest.fixture
def cluster(control_plane, namespace, no_nodes, kubectl, classes, tmp_path):
    for name in ("n1", "n2"):
        kubectl(
            "create",
            "-f",
            "-",
            stdin=yaml.safe_dump({"apiVersion": "v1", "kind": "Node", **node(name, cpu="2")}),
        )
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "any.policy").write_text("score: 50\n")
    scheduler = Berth(control_plane, tmp_path / "berth", "--policies", policies)
    scheduler.start()
    yield Cluster(control_plane, namespace, kubectl, classes)
    scheduler.process.stop(seconds=10)


def test_a_pod_of_high_priority_takes_a_place_and_a_budget_is_respected(
    cluster, control_plane, namespace
):
    budget = {
        "metadata": {"name": "keep"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
    }
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    status, answer = control_plane.request("POST", path, budget)
    assert status == 201, answer
    cluster.creates("kept", "low", "2", labels={"app": "kept"})
    cluster.creates("other", "low", "2", labels={"app": "other"})
    cluster.placed("kept", "other")
    there = cluster.node_of("other")
    cluster.creates("important", "high", "1500m")
    cluster.placed("important")
    assert cluster.node_of("important") == there
    assert cluster.get("other") is None
    assert cluster.get("kept") is not None
    wait_until(
        "the owner of the victim is told",
        lambda: any(one.startswith("Preempted by pod ") for one in cluster.notes("other")),
    )
    found = "found a potential placement for pod on node"
    wait_until(
        "the owner of the pod is told",
        lambda: any(found in one for one in cluster.notes("important")),
    )


def test_victims_that_take_long_to_go_are_waited_for_on_the_promised_node(cluster):
    cluster.creates("a", "low", "1500m", grace=3600)
    cluster.creates("b", "low", "1500m", grace=3600)
    for name in TINY:
        cluster.creates(name, "low", "1m")
    cluster.placed("a", "b", *TINY)
    cluster.creates("important", "high", "1")

    def going():
        found = [one for one in map(cluster.get, "ab") if "deletionTimestamp" in one["metadata"]]
        return found if cluster.get("important")["status"].get("nominatedNodeName") else None

    wait_until("one is going, and its node promised", going)
    (victim,) = going()
    target = [c for c in victim["status"]["conditions"] if c["type"] == "DisruptionTarget"]
    assert [(c["status"], c["reason"]) for c in target] == [("True", "PreemptionByScheduler")]
    promised = cluster.get("important")["status"]["nominatedNodeName"]
    assert promised == victim["spec"]["nodeName"]
    # Nobody takes the room meanwhile, and nobody else has to go.
    cluster.creates("small", "low", "600m")
    for name in TINY:
        cluster.deletes(name)  # wakes it
        time.sleep(1.5)
    message = cluster.get("important")["status"]["conditions"][0]["message"]
    assert "not eligible due to a terminating pod on the nominated node" in message
    assert cluster.node_of("important") is None
    assert cluster.node_of("small") is None
    assert len(going()) == 1
    cluster.deletes(victim["metadata"]["name"])
    cluster.placed("important", "small")
    assert cluster.node_of("important") == promised
