"""Replicas that elect a leader on a real API server: killed, ended, frozen, under load.

Every pod is bound once, whoever leads; who wrote what is read from the audit log of the API server,
where each replica is a user of its own.
"""

from __future__ import annotations

import random
import re
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest

from engine.scheduler import MOST_IN_FLIGHT
from tests.cluster.berth import Berth, node, pod
from tests.cluster.process import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(200)]

LEASE, RENEW, RETRY = 6, 4, 1
NODES = 12
READS = {"get", "list", "watch"}


class Replicas:
    """Schedulers of one name and one lease, pods that keep coming, and what became of them."""

    def __init__(self, plane, folder, namespace):
        self.plane, self.folder, self.namespace = plane, folder, namespace
        self.path = f"/api/v1/namespaces/{namespace}/pods"
        self.lease = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{namespace}"
        self.all = {}
        self.created = []
        self._enough = threading.Event()
        self._feeding = threading.Thread(target=self._feed, daemon=True)

    def start(self, name, *flags):
        user = f"{self.namespace}-{name}"
        self.all[user] = Berth(
            self.plane,
            self.folder / name,
            "--leader-elect",
            f"--leader-elect-resource-name={self.namespace}",
            f"--leader-elect-resource-namespace={self.namespace}",
            f"--leader-elect-lease-duration={LEASE}s",
            f"--leader-elect-renew-deadline={RENEW}s",
            f"--leader-elect-retry-period={RETRY}s",
            f"--scheduler-name={self.namespace}",
            *flags,
            kubeconfig=self.plane.kubeconfig_file(user, "system:masters"),
        )
        self.all[user].start("Attempting to acquire leader lease")
        return user

    def feed(self):
        self._feeding.start()

    def _feed(self):
        while not self._enough.is_set():
            self.create(f"p{len(self.created):04}")
            self._enough.wait(0.05)

    def create(self, name):
        item = pod(name, self.namespace, self.namespace, cpu="1m", memory="1Mi")
        assert self.plane.request("POST", self.path, item)[0] == 201
        self.created.append(name)

    def burst(self, pods):
        """As many as fast as they can be made, while the test goes on."""
        pool = ThreadPoolExecutor(4)
        for number in range(pods):
            pool.submit(self.create, f"burst-{number:04}")
        pool.shutdown(wait=False)

    def leader(self):
        """Who leads, as its own log says."""
        status, lease = self.plane.request("GET", self.lease)
        holder = lease.get("spec", {}).get("holderIdentity", "") if status == 200 else ""
        said = f'Successfully acquired lease lease="{self.namespace}/{self.namespace}"'
        for user, one in self.all.items():
            if holder and f'{said} identity="{holder}"' in one.log.read_text():
                return user
        return ""

    def writes(self, user):
        """When each write of a replica arrived, its lease's and reviews left aside."""
        return [
            (received(entry), entry["objectRef"])
            for entry in self.plane.audit()
            if entry["user"]["username"] == user
            and entry["verb"] not in READS
            and entry["stage"] in ("RequestReceived", "ResponseComplete")
            and entry.get("objectRef", {}).get("resource") != "leases"
        ]

    def bindings(self):
        """(when, who, pod, code) of every binding in the test's namespace."""
        return [
            (
                received(entry),
                entry["user"]["username"],
                entry["objectRef"]["name"],
                entry["responseStatus"]["code"],
            )
            for entry in self.plane.audit(
                verb="create", resource="pods", subresource="binding", namespace=self.namespace
            )
            if entry["stage"] == "ResponseComplete"
        ]

    def bound_by(self, user):
        return [one for one in self.bindings() if one[1] == user and one[3] == 201]

    def wait_for_another(self, before, since):
        """Until another than `before` has bound a pod; for how long nobody did."""

        def found():
            return [
                when
                for when, who, _, code in self.bindings()
                if who != before and code == 201 and when > since
            ]

        wait_until(f"another than {before} binds a pod", found, seconds=60)
        return min(found()) - since

    def finish(self):
        """No more pods: all that were made are bound, each once."""
        self._enough.set()
        self._feeding.join()

        def open_pods():
            _, pods = self.plane.request("GET", self.path)
            return [p for p in pods["items"] if not p["spec"].get("nodeName")]

        wait_until("every pod is bound", lambda: not open_pods(), seconds=60)
        times = Counter(name for _, _, name, code in self.bindings() if code == 201)
        assert times == dict.fromkeys(self.created, 1)

    def stop(self):
        self._enough.set()
        for one in self.all.values():
            one.process.stop(seconds=5)


def received(entry):
    return datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp()


@pytest.fixture
def replicas(control_plane, namespace, no_nodes, tmp_path):
    for i in range(NODES):
        assert control_plane.request("POST", "/api/v1/nodes", node(f"{namespace}-{i}"))[0] == 201
    made = Replicas(control_plane, tmp_path, namespace)
    yield made
    made.stop()


def first_leader(replicas, *names, flags=()):
    for name in names:
        replicas.start(name, *flags)
    replicas.feed()
    wait_until("somebody leads", replicas.leader, seconds=30)
    leader = replicas.leader()
    wait_until("it binds pods", lambda: len(replicas.bound_by(leader)) > 20)
    others = [user for user in replicas.all if user != leader]
    assert not any(replicas.bound_by(user) for user in others)
    return leader


def test_a_leader_that_is_killed_is_replaced_when_its_lease_runs_out(replicas):
    leader = first_leader(replicas, "a", "b", "c")
    killed = time.time()
    replicas.all[leader].process.kill()
    gap = replicas.wait_for_another(leader, killed)
    print(f"SIGKILL to the next binding: {gap:.2f} s, lease {LEASE} s, retry {RETRY} s")
    assert gap <= LEASE + 2 * RETRY
    replicas.finish()


def test_a_leader_that_is_told_to_end_gives_the_lease_up(replicas):
    leader = first_leader(replicas, "a", "b")
    told = time.time()
    assert replicas.all[leader].end() == 0
    gap = replicas.wait_for_another(leader, told)
    print(f"SIGTERM to the next binding: {gap:.2f} s")
    assert gap < LEASE - RETRY, "nobody waited for the lease to run out"
    assert "Released lease" in replicas.all[leader].log.read_text()
    replicas.finish()
    _, lease = replicas.plane.request("GET", replicas.lease)
    assert lease["spec"]["leaseTransitions"] == 1


def test_a_leader_that_was_frozen_writes_nothing_when_it_continues(replicas):
    leader = first_leader(replicas, "a", "b")
    # With work in its hands: pods to decide about, and bindings to write.
    bound = len(replicas.bound_by(leader))
    replicas.burst(200)
    wait_until("it is busy", lambda: len(replicas.bound_by(leader)) > bound + 20)
    frozen = time.time()
    replicas.all[leader].process.signal(signal.SIGSTOP)
    replicas.wait_for_another(leader, frozen)
    taken = time.time()
    replicas.all[leader].process.signal(signal.SIGCONT)
    wait_until("it ends by itself", lambda: not replicas.all[leader].process.running)
    assert replicas.all[leader].process.stop() == 1
    log = replicas.all[leader].log.read_text()
    assert "Leader election lost" in log
    assert "Traceback" not in log
    replicas.finish()
    late = [what for when, what in replicas.writes(leader) if when > taken]
    assert late == []


def test_a_leader_without_an_api_server_ends_and_a_follower_waits_for_it(
    fresh_control_plane, tmp_path
):
    plane, namespace = fresh_control_plane, "away"
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    plane.request("POST", "/api/v1/nodes", node("n"))
    replicas = Replicas(plane, tmp_path, namespace)
    try:
        for name in ("a", "b"):
            replicas.start(name)
        wait_until("somebody leads", replicas.leader, seconds=30)
        leader = replicas.leader()
        [other] = [user for user in replicas.all if user != leader]
        plane.kill()
        wait_until("it ends", lambda: not replicas.all[leader].process.running, seconds=30)
        assert replicas.all[leader].process.stop() == 1
        assert "was not renewed for 4 s" in replicas.all[leader].log.read_text()
        assert replicas.all[other].process.running
        plane.start()
        replicas.create("p")
        wait_until("the other binds", lambda: replicas.bound_by(other), seconds=60)
        assert not any("Traceback" in one.log.read_text() for one in replicas.all.values())
    finally:
        replicas.stop()


def test_a_follower_is_told_of_pods_that_wait_and_writes_nothing(replicas):
    leader = first_leader(replicas, "a", "b")
    [other] = [user for user in replicas.all if user != leader]
    replicas.finish()
    assert replicas.writes(leader)
    assert replicas.writes(other) == []


ZONES = {"to-a": "a", "to-b": "b"}
BROKEN = "filter: node.lable zone = a\n"
IN_FORCE = re.compile(r'Policies in force .* bundle="(\w+)" policies="([\w,-]*)"')
BOUND = re.compile(r'Successfully bound .* pod="[^/]*/(\S+)" node="(\S+)" .* bundle="(\w+)"')


def test_edits_go_on_while_the_leader_is_killed(replicas):
    """Every placement is what the bundle that it names says; broken edits never place a pod."""
    plane, namespace = replicas.plane, replicas.namespace
    for i in range(NODES):
        labels = {"metadata": {"labels": {"zone": "ab"[i % 2]}}}
        plane.request("PATCH", f"/api/v1/nodes/{namespace}-{i}", labels)
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    chance = random.Random(1)

    def edit():
        """One of the two zones, or what cannot be read."""
        name = chance.choice([*ZONES, *ZONES, None])
        lines = BROKEN if name is None else f"filter: node.label zone = {ZONES[name]}\n"
        data = {f"{one}.policy": None for one in (*ZONES, "broken")}
        data[f"{name or 'broken'}.policy"] = lines
        plane.request("PATCH", f"{maps}/policies", {"data": data})

    first = {"to-a.policy": "filter: node.label zone = a\n"}
    plane.request("POST", maps, {"metadata": {"name": "policies"}, "data": first})
    leader = first_leader(replicas, "a", "b", flags=("--policy-configmap", f"{namespace}/policies"))
    for number in range(60):
        edit()
        time.sleep(0.1)
        if number == 20:
            replicas.all[leader].process.kill()
            killed = time.time()
    replicas.wait_for_another(leader, killed)
    for _ in range(20):
        edit()
        time.sleep(0.1)
    replicas.finish()

    seen = Counter()
    for one in replicas.all.values():
        log = one.log.read_text()
        zone_of = {bundle: ZONES[name] for bundle, name in IN_FORCE.findall(log)}
        for _, where, bundle in BOUND.findall(log):
            zone = "ab"[int(where.rpartition("-")[2]) % 2]
            assert zone == zone_of[bundle]
            seen[zone] += 1
        assert "broken.policy:1" in log, "broken edits came, too"
    # Of those that the killed one bound last the line may be missing.
    assert sum(seen.values()) >= len(replicas.created) - MOST_IN_FLIGHT
    assert min(seen["a"], seen["b"]) > 10
