"""Replicas that elect a leader on a real API server: killed, ended, frozen, under load.

Every pod is bound once, whoever leads; who wrote what is read from the audit log of the API server,
where each replica is a user of its own.
"""

from __future__ import annotations

import base64
import json
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
from tests.cluster import freezing
from tests.cluster.berth import Berth, node, pod
from tests.cluster.process import wait_until
from tests.effort import examples

pytestmark = pytest.mark.cluster

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

    def start(self, name, *flags, **how):
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
            **how,
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
        wide = node(f"{namespace}-{i}", cpu="64", memory="64Gi", pods="5000")
        assert control_plane.request("POST", "/api/v1/nodes", wide)[0] == 201
    made = Replicas(control_plane, tmp_path, namespace)
    yield made
    made.stop()


def first_leader(replicas, *names, flags=(), **how):
    for name in names:
        replicas.start(name, *flags, **how)
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


def test_a_leader_that_was_frozen_writes_nothing_when_it_continues(replicas, tmp_path, monkeypatch):
    once = tmp_path / "once"
    once.touch()
    monkeypatch.setenv(freezing.ONCE, str(once))
    leader = first_leader(replicas, "a", "b", program=("tests.cluster.freezing",))
    # It freezes with a binding in its hands that it has just decided on.
    replicas.create(freezing.POD)
    wait_until("it froze", lambda: not once.exists())
    frozen = time.time()
    gap = replicas.wait_for_another(leader, frozen)
    print(f"SIGSTOP to the next binding: {gap:.2f} s, lease {LEASE} s, retry {RETRY} s")
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

        restarts = []

        def binds():
            # A server that has just begun may be too slow for so short a lease; it is kept running.
            if not replicas.all[other].process.running:
                assert "was not renewed" in replicas.all[other].log.read_text()
                restarts.append(other)
                replicas.all[other].process.start()
            assert len(restarts) <= 3
            return replicas.bound_by(other)

        wait_until("the other binds", binds, seconds=60)
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
SORT = "sort: pod.priority desc\n"
IN_FORCE = re.compile(r'Policies in force .* bundle="(\w+)" policies="([\w,-]*)"')
BOUND = re.compile(r'Successfully bound .* pod="[^/]*/(\S+)" node="(\S+)" .* bundle="(\w+)"')
EDITS = max(60, examples(50))
"""1,000 with EFFORT=20; the leader is killed after each third."""
PAUSE = 0.1


class Editor:
    """Edits two ConfigMaps as people do: well, badly, against each other, and by mistake."""

    def __init__(self, replicas):
        self._plane = replicas.plane
        self._maps = f"/api/v1/namespaces/{replicas.namespace}/configmaps"
        self._chance = random.Random(1)
        self.kinds = Counter()

    def edit(self, kind=None):
        kinds = [self.zone] * 6 + [self.broken, self.conflict, self.deleted, self.binary,
                                   self.empty, self.blank]  # fmt: skip
        kind = kind or self._chance.choice(kinds)
        self.kinds[kind.__name__] += 1
        kind()

    def _write(self, name="policies", **content):
        """As `kubectl apply` has it: what is not said is no more."""
        body = {"metadata": {"name": name}, **content}
        if self._plane.request("PUT", f"{self._maps}/{name}", body)[0] == 404:
            assert self._plane.request("POST", self._maps, body)[0] == 201

    def zone(self):
        """One of the two zones; at times with an order of the queue, too."""
        name = self._chance.choice(list(ZONES))
        files = {f"{name}.policy": f"filter: node.label zone = {ZONES[name]}\n"}
        if self._chance.random() < 0.3:
            files["queue.policy"] = SORT
        self._write(data=files)

    def broken(self):
        self._write(data={"broken.policy": BROKEN})

    def conflict(self):
        """The other source sorts the queue, too, or lets it be."""
        text = self._chance.choice((SORT, "# nothing\n"))
        self._write("others", data={"order.policy": text})

    def deleted(self):
        self._plane.request("DELETE", f"{self._maps}/policies")

    def binary(self):
        self._write(binaryData={"to-a.policy": base64.b64encode(b"filter: \xff\xfe").decode()})

    def empty(self):
        self._write(data={})

    def blank(self):
        """A policy without a rule: pods may go to both zones."""
        self._write(data={"blank.policy": ""})


def test_edits_go_on_while_the_leader_is_killed(replicas, tmp_path):
    """Every placement is what the bundle that it names says; no pod is lost or bound twice."""
    plane, namespace = replicas.plane, replicas.namespace
    for i in range(NODES):
        labels = {"metadata": {"labels": {"zone": "ab"[i % 2]}}}
        plane.request("PATCH", f"/api/v1/nodes/{namespace}-{i}", labels)
    names = [f"{namespace}/policies", f"{namespace}/others"]
    policies = {"sources": [{"configMap": one} for one in names], "state": f"{namespace}/berth"}
    document = {"apiVersion": "berth.dev/v1", "kind": "BerthConfiguration", "policies": policies}
    config = tmp_path / "berth.yaml"
    config.write_text(json.dumps(document))
    editor = Editor(replicas)
    editor.edit(editor.zone)
    editor.edit(editor.conflict)
    leader = first_leader(replicas, "a", "b", flags=("--config", config))
    spare, gaps = iter("cd"), []
    for number in range(1, EDITS + 1):
        editor.edit()
        time.sleep(PAUSE)
        if number % (EDITS // 3) == 0 and len(gaps) < 2:
            replicas.all[leader].process.kill()
            killed = time.time()
            replicas.start(next(spare), "--config", config)
            gaps.append(replicas.wait_for_another(leader, killed))
            wait_until("somebody leads", replicas.leader, seconds=30)
            leader = replicas.leader()
    # Whatever the edits left behind: with a good one all pods find a place.
    editor.edit(editor.zone)
    replicas.finish()

    seen, bundles = Counter(), set()
    for one in replicas.all.values():
        log = one.log.read_text()
        in_force = {bundle: set(names.split(",")) & ZONES.keys() for bundle, names in
                    IN_FORCE.findall(log)}  # fmt: skip
        bundles |= in_force.keys()
        for _, where, bundle in BOUND.findall(log):
            zone = "ab"[int(where.rpartition("-")[2]) % 2]
            assert not in_force[bundle] or [ZONES[one] for one in in_force[bundle]] == [zone]
            seen[zone] += 1
        assert "Traceback" not in log
    # Of those that the killed ones bound last the line may be missing.
    assert sum(seen.values()) >= len(replicas.created) - 2 * MOST_IN_FLIGHT
    assert min(seen["a"], seen["b"]) > 10
    print(
        f"{EDITS} edits {dict(editor.kinds)}, {len(bundles)} bundles in force,"
        f" {len(replicas.created)} pods, each bound once by the bundle it names;"
        f" SIGKILL to the next binding: {', '.join(f'{gap:.2f} s' for gap in gaps)}"
    )
