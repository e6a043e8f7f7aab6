"""The API server dies twice with 500 pods pending: nothing is lost, nothing is bound twice."""

from __future__ import annotations

import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest

from engine.cli.replay import frameworks_of
from engine.journal.replay import replay
from engine.text.quantity import resource_amount
from tests.cluster.berth import Berth, node, pod
from tests.cluster.process import wait_until

pytestmark = pytest.mark.cluster

PODS = 500
NODES = 20
LINES = """\
filter: pod.name contains nginx -> node.label test=test
score: 100 - bandwidth/max*100
"""


def create_all(plane, path, objects):
    def create(item):
        status, answer = plane.request("POST", path, item)
        assert status == 201, answer

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(create, objects))


def bound_pods(plane, namespace):
    _, pods = plane.request("GET", f"/api/v1/namespaces/{namespace}/pods")
    return [p for p in pods["items"] if p["spec"].get("nodeName")]


def binding_successes(plane):
    entries = plane.audit(verb="create", resource="pods", subresource="binding")
    return sum(
        e["stage"] == "ResponseComplete" and e["responseStatus"]["code"] == 201 for e in entries
    )


def test_nothing_is_lost_or_bound_twice_when_the_api_server_dies_twice(
    fresh_control_plane, tmp_path
):
    plane = fresh_control_plane
    namespace = "faults"
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    labels = [{"test": "test"} if i % 2 else {} for i in range(NODES)]
    create_all(plane, "/api/v1/nodes", [node(f"n{i:02}", labels[i], cpu="5") for i in range(NODES)])
    pods_path = f"/api/v1/namespaces/{namespace}/pods"
    names = [f"{'nginx' if i % 3 == 0 else 'redis'}-{i}" for i in range(PODS)]
    # 500 x 150m = 75 cores of 100, the nginx third only on half of them.
    create_all(plane, pods_path, [pod(n, namespace, cpu="150m", memory="16Mi") for n in names])

    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "demo.policy").write_text(LINES)
    journal = tmp_path / "journal.jsonl"
    berth = Berth(plane, tmp_path / "berth", "--policies", policies, "--record", journal)
    try:
        berth.start()
        for share in (4, 2):
            wait_until(
                f"1/{share} of the pods are bound",
                lambda share=share: binding_successes(plane) >= PODS // share,
                seconds=60,
            )
            plane.kill()
            time.sleep(1.0)
            plane.restart()
        wait_until(
            "all pods are bound", lambda: len(bound_pods(plane, namespace)) == PODS, seconds=120
        )
        # When Berth has seen this one, it has seen everything before it: last by name as well, as
        # a list that follows the restart comes in that order.
        marker = pod("zz-marker", namespace, scheduler="nobody")
        marker["spec"]["nodeName"] = "n00"
        assert plane.request("POST", pods_path, marker)[0] == 201
        wait_until(
            "the watch has caught up", lambda: b'"zz-marker"' in journal.read_bytes(), seconds=60
        )
        bound = bound_pods(plane, namespace)
        assert berth.end() == 0, berth.process.tail()
    finally:
        berth.process.stop(seconds=5)

    check_bindings(plane, namespace, names)
    check_capacity(plane, bound)
    report = replay(journal, frameworks_of())
    assert report.differences == []
    server = {p["metadata"]["uid"]: (p["spec"]["nodeName"], False) for p in bound}
    assert report.cache.assigned() == server, "the cache is the server's state"
    log = berth.log.read_text()
    assert "Traceback" not in log


def check_bindings(plane, namespace, names):
    """At most one success a pod, none missing but for answers that died with the server."""
    posts = defaultdict(list)
    for entry in plane.audit(
        verb="create", resource="pods", subresource="binding", namespace=namespace
    ):
        posts[entry["objectRef"]["name"]].append(entry)
    assert set(posts) == set(names)
    for name, entries in posts.items():
        answers = [e for e in entries if e["stage"] == "ResponseComplete"]
        codes = [e["responseStatus"]["code"] for e in answers]
        successes = [i for i, code in enumerate(codes) if code == 201]
        if not successes:
            # The server died between writing and answering; its success must be the last request.
            last = max(entries, key=lambda e: e["requestReceivedTimestamp"])
            assert [e["stage"] for e in entries if e["auditID"] == last["auditID"]] == [
                "RequestReceived"
            ], (name, codes)
            continue
        assert len(successes) == 1, (name, codes)
        done = answers[successes[0]]
        later = [
            e["auditID"]
            for e in entries
            if e["stage"] == "RequestReceived"
            and e["requestReceivedTimestamp"] > done["stageTimestamp"]
        ]
        assert later == [], (name, "was posted again after its success")


def check_capacity(plane, bound):
    _, nodes = plane.request("GET", "/api/v1/nodes")
    free = {
        n["metadata"]["name"]: (
            resource_amount("cpu", n["status"]["allocatable"]["cpu"]),
            resource_amount("memory", n["status"]["allocatable"]["memory"]),
        )
        for n in nodes["items"]
    }
    for placed in bound:
        if placed["metadata"]["name"] == "zz-marker":
            continue
        requests = placed["spec"]["containers"][0]["resources"]["requests"]
        cpu, memory = free[placed["spec"]["nodeName"]]
        free[placed["spec"]["nodeName"]] = (
            cpu - resource_amount("cpu", requests["cpu"]),
            memory - resource_amount("memory", requests["memory"]),
        )
    assert all(cpu >= 0 and memory >= 0 for cpu, memory in free.values()), free
