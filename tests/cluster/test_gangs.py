"""Gangs on a real API server, with PodGroups of the CRD that Coscheduling has."""

from __future__ import annotations

import pytest
import yaml

from tests.cluster import binaries
from tests.cluster.berth import Berth, node, pod
from tests.cluster.controlplane import ControlPlane
from tests.cluster.cutting import Door
from tests.cluster.process import wait_until
from tests.cluster.test_api_server_faults import check_bindings

pytestmark = pytest.mark.cluster

GROUP = "scheduling.x-k8s.io"
LABEL = f"{GROUP}/pod-group"
#: Source: scheduler-plugins manifests/crds, what of it decides.
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": f"podgroups.{GROUP}",
        "annotations": {
            "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"
        },
    },
    "spec": {
        "group": GROUP,
        "names": {
            "kind": "PodGroup",
            "listKind": "PodGroupList",
            "plural": "podgroups",
            "singular": "podgroup",
            "shortNames": ["pg", "pgs"],
        },
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "minMember": {"type": "integer", "format": "int32"},
                                    "minResources": {
                                        "type": "object",
                                        "additionalProperties": {
                                            "anyOf": [{"type": "integer"}, {"type": "string"}],
                                            "x-kubernetes-int-or-string": True,
                                        },
                                    },
                                    "scheduleTimeoutSeconds": {
                                        "type": "integer",
                                        "format": "int32",
                                    },
                                },
                            },
                            "status": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": True,
                            },
                        },
                    }
                },
            }
        ],
    },
}


class Cluster:
    def __init__(self, control_plane, namespace, kubectl):
        self._api, self.namespace, self.kubectl = control_plane, namespace, kubectl

    def applies(self, *objects):
        self.kubectl("apply", "-f", "-", stdin="\n---\n".join(map(yaml.safe_dump, objects)))

    def group(self, name, minimum, **spec):
        self.applies(
            {
                "apiVersion": f"{GROUP}/v1alpha1",
                "kind": "PodGroup",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {"minMember": minimum, **spec},
            }
        )

    def members(self, group, *numbers, cpu="1500m", **spec):
        pods = []
        for number in numbers:
            one = pod(f"{group}-{number}", self.namespace, cpu=cpu)
            one["metadata"]["labels"] = {LABEL: group}
            one["spec"] |= spec
            pods.append({"apiVersion": "v1", "kind": "Pod", **one})
        self.applies(*pods)

    def delete(self, name):
        self.kubectl("-n", self.namespace, "delete", "pod", name, "--wait=false")

    def nodes(self, *names):
        for name in names:
            self.applies({"apiVersion": "v1", "kind": "Node", **node(name, cpu="2")})

    def where(self):
        _, found = self._api.request("GET", f"/api/v1/namespaces/{self.namespace}/pods")
        return {one["metadata"]["name"]: one["spec"].get("nodeName") for one in found["items"]}

    def bound(self):
        return {name for name, there in self.where().items() if there}

    def told(self, name, words):
        """Waits until `kubectl describe` says so."""
        wait_until(f"describe {name}: {words}", lambda: words in self.described(name))

    def described(self, name):
        return self.kubectl("-n", self.namespace, "describe", "pod", name).stdout


@pytest.fixture(scope="module")
def kind_of_groups(control_plane):
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    status, answer = control_plane.request("POST", path, CRD)
    assert status == 201, answer
    wait_until(
        "the kind is served",
        lambda: control_plane.request("GET", f"/apis/{GROUP}/v1alpha1/podgroups")[0] == 200,
    )
    yield
    control_plane.request("DELETE", f"{path}/podgroups.{GROUP}")


@pytest.fixture
def cluster(control_plane, namespace, no_nodes, kubectl, kind_of_groups):
    made = Cluster(control_plane, namespace, kubectl)
    yield made
    path = f"/apis/{GROUP}/v1alpha1/namespaces/{namespace}/podgroups"
    control_plane.request("DELETE", path)


@pytest.fixture
def berth(control_plane, tmp_path):
    started = []

    def start(text):
        policies = tmp_path / "policies"
        policies.mkdir(exist_ok=True)
        (policies / "gangs.policy").write_text(text)
        scheduler = Berth(control_plane, tmp_path / f"berth-{len(started)}", "--policies", policies)
        started.append(scheduler)
        scheduler.start()
        return scheduler

    yield start
    for scheduler in started:
        scheduler.process.stop(seconds=5)


def test_coscheduling_from_its_own_values(cluster, berth):
    """permitWaitingTimeSeconds: 10, podGroupBackoffSeconds: 0, and minMember of PodGroups."""
    cluster.nodes("n1", "n2", "n3")
    scheduler = berth("use coscheduling (permit_wait = 10s, backoff = 0s)\n")
    cluster.members("train", 0, 1)
    cluster.told("train-0", "gang train does not say how many members it needs")
    cluster.group("train", 3)
    cluster.told("train-0", "gang train has 2 of the 3 members that it needs")
    assert not cluster.bound()
    cluster.members("train", 2)
    wait_until("all are bound", lambda: len(cluster.bound()) == 3)
    assert len(set(cluster.where().values())) == 3
    # Another gang, with room for one of two: it takes nothing, and a pod of no gang does.
    cluster.nodes("n4")
    cluster.group("next", 2)
    cluster.members("next", 0, 1)
    cluster.told("next-0", "gang next: 1 of the 2 members that it needs fit")
    cluster.applies(
        {"apiVersion": "v1", "kind": "Pod", **pod("web", cluster.namespace, cpu="1500m")}
    )
    wait_until("the other is bound", lambda: "web" in cluster.bound())
    cluster.delete("train-0")
    cluster.delete("train-1")
    wait_until("the next is bound", lambda: {"next-0", "next-1"} <= cluster.bound())
    assert scheduler.end() == 0


def test_a_gang_waits_until_the_cluster_has_what_its_group_asks_for(cluster, berth):
    cluster.nodes("n1", "n2")
    berth("use coscheduling (permit_wait = 10s, backoff = 0s)\n")
    cluster.group("asks", 2, minResources={"cpu": 5})
    cluster.members("asks", 0, 1)
    words = "less is free than minResources of PodGroup asks: cpu: 5 asked for, 4 free"
    cluster.told("asks-1", f"gang asks: {words}")
    assert not cluster.bound()
    cluster.nodes("n3")
    wait_until("all are bound", lambda: len(cluster.bound()) == 2)


GANG = f"gang: by pod.label[{LABEL}] min group.min_member wait 5m"


def test_of_two_gangs_with_room_for_one_the_other_takes_nothing(cluster, berth):
    cluster.nodes("n1", "n2", "n3")
    cluster.group("a", 2)
    cluster.group("b", 2)
    cluster.members("a", 0)
    cluster.members("b", 0, 1)
    cluster.members("a", 1)
    berth(f"{GANG}\n")
    wait_until("one is bound", lambda: len(cluster.bound()) >= 2)
    (started,) = {name[0] for name in cluster.bound()}
    other = "b" if started == "a" else "a"
    cluster.told(f"{other}-1", f"gang {other}: 1 of the 2 members that it needs fit")
    assert len(cluster.bound()) == 2
    cluster.nodes("n4")
    wait_until("both are bound", lambda: len(cluster.bound()) == 4)


def test_waiting_members_survive_a_restart_and_a_rule_that_goes(cluster, berth, tmp_path):
    cluster.nodes("n1", "n2")
    cluster.group("w", 3)
    cluster.members("w", 0, 1, 2)
    waits = f"{GANG} reject above 40% missing\n"
    first = berth(waits)
    cluster.told("w-0", "gang w: 2 of 3 members have a node; w-")
    assert first.end() == 0
    assert not cluster.bound()
    berth(waits)
    cluster.told("w-1", "gang w: 2 of 3 members have a node; w-")
    assert not cluster.bound()
    (tmp_path / "policies" / "gangs.policy").write_text("score: 50\n")
    wait_until("those with a node are bound", lambda: len(cluster.bound()) == 2)


def test_a_gang_preempts_only_where_it_can_start(cluster, berth, control_plane):
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    name = f"{cluster.namespace}-high"
    control_plane.request("POST", path, {"metadata": {"name": name}, "value": 1000})
    cluster.nodes("n1", "n2")
    berth(f"{GANG}\n")
    for number in range(2):
        cluster.applies(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                **pod(f"low-{number}", cluster.namespace, cpu="1500m"),
            }
        )
    wait_until("the nodes are full", lambda: len(cluster.bound()) == 2)
    cluster.group("three", 3)
    cluster.members("three", 0, 1, 2, priorityClassName=name)
    cluster.told("three-0", "gang three: 0 of the 3 members that it needs fit")
    assert len(cluster.bound()) == 2
    cluster.group("two", 2)
    cluster.members("two", 0, 1, priorityClassName=name)
    wait_until("it has their places", lambda: cluster.bound() == {"two-0", "two-1"})
    control_plane.request("DELETE", f"{path}/{name}")


@pytest.mark.skipif(
    binaries.KUBERNETES.startswith(("1.35.", "1.36.")), reason="its groups came with 1.37"
)
def test_the_groups_of_kubernetes_itself(tmp_path):
    """spec.schedulingGroup and PodGroups of scheduling.k8s.io, which 1.37 has behind a gate."""
    plane = ControlPlane(
        tmp_path / "control-plane",
        apiserver_flags=(
            "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true",
            "--runtime-config=scheduling.k8s.io/v1beta1=true",
        ),
    )
    plane.start()
    try:
        policies = tmp_path / "policies"
        policies.mkdir()
        (policies / "gangs.policy").write_text("gang: by pod.group\n")
        for name in ("a1", "b1", "b2"):
            item = node(name, {"rack": name[0]}, cpu="2")
            status, answer = plane.request("POST", "/api/v1/nodes", item)
            assert status == 201, answer
        group = {
            "schedulingPolicy": {"gang": {"minCount": 2}},
            "schedulingConstraints": {"topology": [{"key": "rack"}]},
        }
        path = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
        status, answer = plane.request("POST", path, {"metadata": {"name": "own"}, "spec": group})
        assert status == 201, answer
        scheduler = Berth(plane, tmp_path / "berth", "--policies", policies)
        scheduler.start()

        def bound():
            _, found = plane.request("GET", "/api/v1/namespaces/default/pods")
            return {
                one["metadata"]["name"]: one["spec"]["nodeName"]
                for one in found["items"]
                if one["spec"].get("nodeName")
            }

        def comes(name):
            body = pod(name, "default", cpu="1500m")
            body["spec"]["schedulingGroup"] = {"podGroupName": "own"}
            status, answer = plane.request("POST", "/api/v1/namespaces/default/pods", body)
            assert status == 201, answer
            assert answer["spec"]["schedulingGroup"] == {"podGroupName": "own"}

        def said():
            _, found = plane.request("GET", "/api/v1/namespaces/default/pods/own-0")
            return " ".join(one["message"] for one in found["status"].get("conditions", ()))

        comes("own-0")
        wait_until("it waits", lambda: "1 of the 2 members" in said())
        assert not bound()
        comes("own-1")
        wait_until("both are bound", lambda: len(bound()) == 2)
        assert sorted(bound().values()) == ["b1", "b2"]
        assert scheduler.end() == 0
    finally:
        plane.stop()


def test_the_server_goes_away_between_the_third_and_the_fourth_binding(
    cluster, control_plane, tmp_path
):
    """The fourth arrives and its answer does not; those after it find nobody."""
    names = [f"n{number}" for number in range(6)]
    cluster.nodes(*names)
    cluster.group("train", 6)
    cluster.members("train", *range(6))
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "gangs.policy").write_text(f"{GANG}\n")
    with Door(control_plane, tmp_path, bindings=3) as door:
        scheduler = Berth(
            control_plane, tmp_path / "b", "--policies", policies, kubeconfig=door.kubeconfig
        )
        try:
            scheduler.start()
            wait_until("the server is away", door.shut.is_set)
            wait_until("some are bound", lambda: len(cluster.bound()) >= 3)
            assert len(cluster.bound()) < 6
            door.open()
            wait_until("all are bound", lambda: len(cluster.bound()) == 6)
            assert sorted(cluster.where().values()) == names
            assert scheduler.end() == 0
        finally:
            scheduler.process.stop(seconds=5)
    members = [f"train-{number}" for number in range(6)]
    check_bindings(control_plane, cluster.namespace, members)
