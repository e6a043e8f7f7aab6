"""What may fail between a scheduler and a real API server, and how soon pods are bound again.

One test a row of the table in docs/operations.md; each prints what it measured.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections import Counter
from urllib.parse import urlsplit

import pytest
import yaml

from tests.cluster.berth import Berth, node, pod
from tests.cluster.certificates import Authority
from tests.cluster.controlplane import ControlPlane
from tests.cluster.process import wait_until
from tests.cluster.proxy import Proxy

pytestmark = pytest.mark.cluster
FEW_CALLS = 5
MASTERS = "system:masters"


class World:
    """A scheduler behind a proxy, and pods that it is to place."""

    def __init__(self, plane, namespace, folder, *flags, nodes=4):
        self.plane, self.namespace, self.folder = plane, namespace, folder
        self.pods_path = f"/api/v1/namespaces/{namespace}/pods"
        self.proxy = Proxy(urlsplit(plane.url).port)
        self.flags = (f"--scheduler-name={namespace}", *flags)
        for number in range(nodes):
            self.node(f"{namespace}-{number}")
        self.berths = []
        self.berth = self.scheduler("berth", MASTERS)

    def node(self, name):
        wide = node(name, cpu="64", memory="64Gi", pods="2000")
        assert self.plane.request("POST", "/api/v1/nodes", wide)[0] == 201

    def scheduler(self, name, *groups, authority=None):
        """One more, of the same name, elected by nobody."""
        user = f"{self.namespace}-{name}"
        config = self.plane.kubeconfig(user, *groups)
        if authority is not None:
            config["clusters"][0]["cluster"]["certificate-authority"] = str(authority)
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self.proxy.port}"
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        flags = *self.flags, "--record", self.folder / name / "journal.jsonl"
        made = Berth(self.plane, self.folder / name, *flags, kubeconfig=path)
        made.user = user
        self.berths.append(made)
        made.process.start()
        return made

    def create(self, *names, **amounts):
        for name in names:
            item = pod(name, self.namespace, self.namespace, **(amounts or {"cpu": "1m"}))
            assert self.plane.request("POST", self.pods_path, item)[0] == 201

    def node_of(self, name):
        _, found = self.plane.request("GET", f"{self.pods_path}/{name}")
        return found.get("spec", {}).get("nodeName")

    def lands(self, *names, seconds=60):
        """How long it takes until they are bound."""
        began = time.monotonic()
        for name in names:
            wait_until(f"{name} is bound", lambda name=name: self.node_of(name), seconds=seconds)
        return time.monotonic() - began

    def binding(self, name, to):
        body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": to}}
        return self.plane.request("POST", f"{self.pods_path}/{name}/binding", body)[0]

    def answers(self, name=None):
        """Codes of the bindings of a pod, or of all, by user."""
        wanted = {"name": name} if name else {}
        found = self.plane.audit(
            verb="create", subresource="binding", namespace=self.namespace, **wanted
        )
        return [
            (one["user"]["username"], one["responseStatus"]["code"])
            for one in found
            if one["stage"] == "ResponseComplete"
        ]

    def close(self):
        for one in self.berths:
            one.process.stop(seconds=5)
        self.proxy.close()
        for one in self.berths:
            assert "Traceback" not in one.log.read_text()


@pytest.fixture
def world(control_plane, namespace, no_nodes, tmp_path):
    made = World(control_plane, namespace, tmp_path)
    made.create("first")
    made.lands("first", seconds=90)
    yield made
    made.close()


def test_all_connections_are_cut(world):
    world.proxy.cut()
    world.create("next")
    print(f"cut to bound: {world.lands('next'):.2f} s")


def test_connections_stay_open_and_fall_silent(world):
    world.proxy.silence()
    world.create("next")
    print(f"silent to bound: {world.lands('next'):.2f} s")
    world.create("more")
    world.lands("more", seconds=10)


def test_the_server_is_away_and_is_not_hammered(world):
    world.proxy.refuse = True
    world.proxy.cut()
    world.create("next")
    time.sleep(5)
    world.proxy.refuse = False
    print(f"back to bound: {world.lands('next'):.2f} s")


def test_connections_are_cut_and_refused_again_and_again(world):
    for _ in range(12):
        world.proxy.refuse = True
        world.proxy.cut()
        time.sleep(0.3)
        world.proxy.refuse = False
        time.sleep(0.3)
    world.create("next")
    print(f"last cut to bound: {world.lands('next'):.2f} s")


def test_what_a_watch_missed_was_forgotten_meanwhile(fresh_control_plane, tmp_path):
    """410: deletes are told by what is no longer there."""
    plane, namespace = fresh_control_plane, "gone"
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    world = World(plane, namespace, tmp_path, nodes=1)
    try:
        world.create("fills", cpu="60")
        world.lands("fills", seconds=90)
        world.proxy.refuse = True
        world.proxy.cut()
        plane.request("DELETE", f"{world.pods_path}/fills?gracePeriodSeconds=0")
        for number in range(20):
            plane.request("PATCH", f"/api/v1/nodes/{namespace}-0",
                          {"metadata": {"labels": {"turn": str(number)}}})  # fmt: skip
        plane.compact()
        plane.kill()
        plane.restart()
        world.create("takes-its-room", cpu="60")
        world.proxy.refuse = False
        print(f"410 to bound: {world.lands('takes-its-room'):.2f} s")
    finally:
        world.close()


def test_an_etcd_that_was_restored_from_a_backup_is_older(fresh_control_plane, tmp_path):
    """Versions go back, and no watch from a later one would ever tell."""
    plane, namespace = fresh_control_plane, "restored"
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    world = World(plane, namespace, tmp_path, nodes=1)
    try:
        world.create("deleted", cpu="60")
        world.lands("deleted", seconds=90)
        plane.stop()
        shutil.copytree(plane.folder / "etcd", tmp_path / "backup")
        plane.start()
        plane.request("DELETE", f"{world.pods_path}/deleted?gracePeriodSeconds=0")
        world.create("undone", cpu="60")
        world.lands("undone")
        for number in range(200):
            plane.request("PATCH", f"/api/v1/nodes/{namespace}-0",
                          {"metadata": {"labels": {"turn": str(number)}}})  # fmt: skip
        plane.stop()
        shutil.rmtree(plane.folder / "etcd")
        shutil.move(tmp_path / "backup", plane.folder / "etcd")
        plane.start()
        world.create("next")
        print(f"restored to bound: {world.lands('next'):.2f} s")
        world.create("full", cpu="60")
        os.kill(world.berth.process.pid, signal.SIGUSR2)
        world.berth.wait_for_log("waiting=1 differences=0")
    finally:
        world.close()


def held(world, name):
    """A binding of the pod was decided on, and is on its way for as long as we like."""
    world.proxy.to_server.clear()
    world.create(name)

    def decided():
        """What follows leaves in the next turn of the loop, whatever is heard then."""
        lines = world.berth.journal.read_text().splitlines()
        return any('"what":"decision"' in one and f'"name":"{name}"' in one for one in lines)

    wait_until("it is decided on", decided)
    assert world.node_of(name) is None


def test_another_bound_the_pod_first(world):
    held(world, "raced")
    assert world.binding("raced", f"{world.namespace}-3") == 201
    world.proxy.to_server.set()
    wait_until("it was told", lambda: (world.berth.user, 409) in world.answers("raced"))
    world.create("next")
    print(f"409 to the next bound: {world.lands('next'):.2f} s")
    assert Counter(code for _, code in world.answers("raced")) == {201: 1, 409: 1}


def test_the_pod_is_deleted_while_it_is_bound(world):
    held(world, "fleeting")
    world.plane.request("DELETE", f"{world.pods_path}/fleeting?gracePeriodSeconds=0")
    world.proxy.to_server.set()
    wait_until("it was told", lambda: (world.berth.user, 404) in world.answers("fleeting"))
    world.create("next")
    print(f"404 to the next bound: {world.lands('next'):.2f} s")
    assert len(world.answers("fleeting")) == 1


def test_the_node_is_deleted_while_a_pod_is_bound_to_it(world):
    held(world, "orphan")
    for number in range(4):
        world.plane.request("DELETE", f"/api/v1/nodes/{world.namespace}-{number}")
    world.proxy.to_server.set()
    # The server does not look; somebody collects such pods later.
    world.lands("orphan")
    world.create("next")
    time.sleep(1)
    assert world.node_of("next") is None
    world.node("fresh")
    print(f"a node comes to bound: {world.lands('next'):.2f} s")
    assert world.node_of("next") == "fresh"


def test_the_answer_of_a_binding_is_lost(world):
    """It is asked for, and not written again."""
    world.proxy.to_client.clear()
    world.create("unheard")
    # The watch is silent, too: open it just long enough to hear of the pod.
    world.proxy.to_client.set()
    wait_until("it is bound", lambda: world.node_of("unheard"))
    world.proxy.cut()
    world.create("next")
    print(f"lost to the next bound: {world.lands('next'):.2f} s")
    assert [code for _, code in world.answers("unheard")] == [201]


def test_the_server_says_that_it_is_too_much(tmp_path):
    """429 with Retry-After: all pods are bound, and the server is not asked in a loop."""
    plane = ControlPlane(
        tmp_path / "plane",
        apiserver_flags=(
            "--enable-priority-and-fairness=false",
            "--max-mutating-requests-inflight=1",
        ),
    )
    try:
        plane.start()
        namespace = "busy"
        plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        world = World(plane, namespace, tmp_path)
        try:
            names = [f"p{number}" for number in range(40)]
            world.create(*names)
            print(
                f"40 pods at a server that takes one write at a time: {world.lands(*names):.2f} s"
            )
            codes = Counter(code for _, code in world.answers())
            assert codes[201] == 41 - 1
            assert codes[429] <= 40 * FEW_CALLS
        finally:
            world.close()
    finally:
        plane.stop()


def test_two_schedulers_of_one_name_and_no_election(world):
    twin = world.scheduler("twin", MASTERS)
    world.create(*[f"p{number}" for number in range(60)])
    world.lands(*[f"p{number}" for number in range(60)])
    for number in range(60):
        assert Counter(code for _, code in world.answers(f"p{number}"))[201] == 1
    assert twin.process.running
    assert world.berth.process.running


def test_a_server_that_is_frozen_and_continues(fresh_control_plane, tmp_path):
    plane, namespace = fresh_control_plane, "frozen"
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    world = World(plane, namespace, tmp_path)
    try:
        world.create("first")
        world.lands("first", seconds=90)
        plane.apiserver.signal(signal.SIGSTOP)
        time.sleep(20)
        plane.apiserver.signal(signal.SIGCONT)
        world.create("next")
        print(f"continued to bound: {world.lands('next'):.2f} s")
    finally:
        world.close()


def test_a_pod_that_cannot_be_read_stops_nobody(world):
    """Fields nested deeper than anybody needs, in what any user may write."""
    deep = {"f:a": {}}
    for _ in range(1100):
        deep = {"f:a": deep}
    item = pod("poison", world.namespace, world.namespace, cpu="1m")
    now = "2026-01-01T00:00:00Z"
    item["metadata"]["managedFields"] = [
        {"manager": "m", "operation": "Update", "apiVersion": "v1", "time": now,
         "fieldsType": "FieldsV1", "fieldsV1": deep}
    ]  # fmt: skip
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(10_000)  # what the test itself writes and reads
        assert world.plane.request("POST", world.pods_path, item)[0] == 201
        world.create("next")
        print(f"beside it to bound: {world.lands('next'):.2f} s")
        assert world.berth.process.running
        world.plane.request("DELETE", f"{world.pods_path}/poison?gracePeriodSeconds=0")
    finally:
        sys.setrecursionlimit(limit)


def test_a_server_of_another_authority_is_not_trusted_and_that_is_said(world, tmp_path):
    other = Authority(tmp_path / "others").certificate
    wary = world.scheduler("wary", MASTERS, authority=other)
    wary.wait_for_log("its certificate cannot be trusted")
    assert wary.process.running


def test_a_verb_that_is_missing_is_named(world):
    """First it may do nothing; then read, and not bind."""
    world.berth.process.stop(seconds=5)
    poor = world.scheduler("poor")
    poor.wait_for_log('cannot list resource "nodes"')
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    role = {"metadata": {"name": poor.user},
            "rules": [{"apiGroups": ["*"], "resources": ["*"],
                       "verbs": ["get", "list", "watch"]}]}  # fmt: skip
    bound = {
        "metadata": {"name": poor.user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                    "name": poor.user},
        "subjects": [{"kind": "User", "name": poor.user}],
    }  # fmt: skip
    assert world.plane.request("POST", f"{rbac}/clusterroles", role)[0] == 201
    assert world.plane.request("POST", f"{rbac}/clusterrolebindings", bound)[0] == 201
    world.create("p")
    poor.wait_for_log('cannot create resource "pods/binding"')
    role["rules"].append({"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]})
    assert world.plane.request("PUT", f"{rbac}/clusterroles/{poor.user}", role)[0] == 200
    print(f"allowed to bound: {world.lands('p'):.2f} s")
