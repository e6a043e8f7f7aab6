"""Preemption on a real API server: who goes, who comes, what is written on both."""

from __future__ import annotations

import time

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.process import wait_until

pytestmark = pytest.mark.cluster

TINY = ("c", "d")


@pytest.fixture
def cluster(control_plane, namespace, no_nodes, tmp_path):
    made = Cluster(control_plane, namespace, tmp_path)
    for name in ("n1", "n2"):
        made.node(name, cpu="2")
    made.classes = {"low": made.priority(100), "high": made.priority(1000)}
    made.rules(any="score: 50\n")
    yield made
    made.stop()


def creates(cluster, name, importance, cpu, *, labels=None, grace=0):
    spec = {"priorityClassName": cluster.classes[importance]}
    spec["terminationGracePeriodSeconds"] = grace
    cluster.pod(name, labels=labels, spec=spec, cpu=cpu)


def test_a_pod_of_high_priority_takes_a_place_and_a_budget_is_respected(cluster):
    budget = {
        "metadata": {"name": "keep"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
    }
    cluster.create(cluster.path("poddisruptionbudgets", group="apis/policy/v1"), budget)
    creates(cluster, "kept", "low", "2", labels={"app": "kept"})
    creates(cluster, "other", "low", "2", labels={"app": "other"})
    cluster.placed("kept", "other")
    there = cluster.node_of("other")
    creates(cluster, "important", "high", "1500m")
    cluster.placed("important")
    assert cluster.node_of("important") == there
    assert cluster.get("other") is None
    assert cluster.get("kept") is not None
    cluster.told("other", "Preempted by pod ")
    cluster.told("important", "found a potential placement for pod on node")


def test_victims_that_take_long_to_go_are_waited_for_on_the_promised_node(cluster):
    creates(cluster, "a", "low", "1500m", grace=3600)
    creates(cluster, "b", "low", "1500m", grace=3600)
    for name in TINY:
        creates(cluster, name, "low", "1m")
    cluster.placed("a", "b", *TINY)
    creates(cluster, "important", "high", "1")

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
    creates(cluster, "small", "low", "600m")
    for name in TINY:
        cluster.delete(name)  # wakes it
        time.sleep(1.5)
    message = cluster.get("important")["status"]["conditions"][0]["message"]
    assert "not eligible due to a terminating pod on the nominated node" in message
    assert cluster.node_of("important") is None
    assert cluster.node_of("small") is None
    assert len(going()) == 1
    cluster.delete(victim["metadata"]["name"])
    cluster.placed("important", "small")
    assert cluster.node_of("important") == promised
