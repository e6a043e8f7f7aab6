"""Gangs on a real API server, with PodGroups of the CRD that Coscheduling has."""

from __future__ import annotations

import pytest

from tests.cluster import binaries
from tests.cluster.cluster import CRDS, Cluster, defined
from tests.cluster.controlplane import ControlPlane
from tests.cluster.cutting import Door
from tests.cluster.process import wait_until
from tests.cluster.test_api_server_faults import check_bindings

pytestmark = pytest.mark.cluster

GROUP = "scheduling.x-k8s.io"
LABEL = f"{GROUP}/pod-group"
GROUPS = f"/apis/{GROUP}/v1alpha1/podgroups"


class Gangs(Cluster):
    """Pods of gangs and their PodGroups."""

    def group(self, name, minimum, **spec):
        body = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "PodGroup", "metadata": {"name": name}}
        path = self.path("podgroups", group=f"apis/{GROUP}/v1alpha1")
        self.create(path, body | {"spec": {"minMember": minimum, **spec}})

    def members(self, group, *numbers, **spec):
        for number in numbers:
            self.pod(f"{group}-{number}", labels={LABEL: group}, spec=spec, cpu="1500m")

    def nodes(self, *names):
        for name in names:
            self.node(name, cpu="2")


@pytest.fixture(scope="module")
def kind_of_groups(control_plane):
    body = defined(GROUP, "v1alpha1", "podgroups", "PodGroup")
    status, answer = control_plane.request("POST", CRDS, body)
    assert status == 201, answer
    wait_until("the kind is served", lambda: control_plane.request("GET", GROUPS)[0] == 200)
    yield
    control_plane.request("DELETE", f"{CRDS}/podgroups.{GROUP}")


@pytest.fixture
def cluster(control_plane, namespace, no_nodes, kind_of_groups, tmp_path):
    made = Gangs(control_plane, namespace, tmp_path)
    yield made
    made.stop()
    path = made.path("podgroups", group=f"apis/{GROUP}/v1alpha1")
    control_plane.request("DELETE", path)


def test_coscheduling_from_its_own_values(cluster):
    """permitWaitingTimeSeconds: 10, podGroupBackoffSeconds: 0, and minMember of PodGroups."""
    cluster.nodes("n1", "n2", "n3")
    cluster.rules(gangs="use coscheduling (permit_wait = 10s, backoff = 0s)\n")
    cluster.members("train", 0, 1)
    cluster.refused("train-0", "gang train does not say how many members it needs")
    cluster.group("train", 3)
    cluster.refused("train-0", "gang train has 2 of the 3 members that it needs")
    assert not cluster.bound()
    cluster.members("train", 2)
    wait_until("all are bound", lambda: len(cluster.bound()) == 3)
    assert len(set(cluster.where().values())) == 3
    # Another gang, with room for one of two: it takes nothing, and a pod of no gang does.
    cluster.nodes("n4")
    cluster.group("next", 2)
    cluster.members("next", 0, 1)
    cluster.refused("next-0", "gang next: 1 of the 2 members that it needs fit")
    cluster.goes("web", cpu="1500m")
    cluster.delete("train-0")
    cluster.delete("train-1")
    cluster.placed("next-0", "next-1")


def test_a_gang_waits_until_the_cluster_has_what_its_group_asks_for(cluster):
    cluster.nodes("n1", "n2")
    cluster.rules(gangs="use coscheduling (permit_wait = 10s, backoff = 0s)\n")
    cluster.group("asks", 2, minResources={"cpu": 5})
    cluster.members("asks", 0, 1)
    words = "less is free than minResources of PodGroup asks: cpu: 5 asked for, 4 free"
    cluster.refused("asks-1", f"gang asks: {words}")
    assert not cluster.bound()
    cluster.nodes("n3")
    wait_until("all are bound", lambda: len(cluster.bound()) == 2)


GANG = f"gang: by pod.label[{LABEL}] min group.min_member wait 5m"


def test_of_two_gangs_with_room_for_one_the_other_takes_nothing(cluster):
    cluster.nodes("n1", "n2", "n3")
    cluster.group("a", 2)
    cluster.group("b", 2)
    cluster.members("a", 0)
    cluster.members("b", 0, 1)
    cluster.members("a", 1)
    cluster.rules(gangs=f"{GANG}\n")
    wait_until("one is bound", lambda: len(cluster.bound()) >= 2)
    (started,) = {name[0] for name in cluster.bound()}
    other = "b" if started == "a" else "a"
    cluster.refused(f"{other}-1", f"gang {other}: 1 of the 2 members that it needs fit")
    assert len(cluster.bound()) == 2
    cluster.nodes("n4")
    wait_until("both are bound", lambda: len(cluster.bound()) == 4)


def test_waiting_members_survive_a_restart_and_a_rule_that_goes(cluster):
    cluster.nodes("n1", "n2")
    cluster.group("w", 3)
    cluster.members("w", 0, 1, 2)
    waits = f"{GANG} reject above 40% missing\n"
    cluster.rules(gangs=waits)
    cluster.refused("w-0", "gang w: 2 of 3 members have a node; w-")
    assert cluster.berth.end() == 0
    assert not cluster.bound()
    held = cluster.berth.log.read_text().count("Waiting in permit")
    cluster.berth.start()
    cluster.berth.wait_for_log("Waiting in permit", count=held + 2)
    assert not cluster.bound()
    cluster.config_map(gangs="score: 50\n")
    wait_until("those with a node are bound", lambda: len(cluster.bound()) == 2)


def test_a_gang_preempts_only_where_it_can_start(cluster):
    name = cluster.priority(1000)
    cluster.nodes("n1", "n2")
    cluster.rules(gangs=f"{GANG}\n")
    for number in range(2):
        cluster.goes(f"low-{number}", cpu="1500m")
    cluster.group("three", 3)
    cluster.members("three", 0, 1, 2, priorityClassName=name)
    cluster.refused("three-0", "gang three: 0 of the 3 members that it needs fit")
    assert len(cluster.bound()) == 2
    cluster.group("two", 2)
    cluster.members("two", 0, 1, priorityClassName=name)
    wait_until("it has their places", lambda: cluster.bound() == {"two-0", "two-1"})


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
    cluster = Cluster(plane, "default", tmp_path)
    try:
        for name in ("a1", "b1", "b2"):
            cluster.node(name, {"rack": name[0]}, cpu="2")
        group = {
            "schedulingPolicy": {"gang": {"minCount": 2}},
            "schedulingConstraints": {"topology": [{"key": "rack"}]},
        }
        path = cluster.path("podgroups", group="apis/scheduling.k8s.io/v1beta1")
        cluster.create(path, {"metadata": {"name": "own"}, "spec": group})
        cluster.rules(gangs="gang: by pod.group\n")
        own = {"schedulingGroup": {"podGroupName": "own"}}
        cluster.pod("own-0", cpu="1500m", spec=own)
        assert cluster.get("own-0")["spec"]["schedulingGroup"] == own["schedulingGroup"]
        cluster.refused("own-0", "1 of the 2 members")
        assert not cluster.bound()
        cluster.pod("own-1", cpu="1500m", spec=own)
        assert sorted(cluster.placed("own-0", "own-1")) == ["b1", "b2"]
        cluster.stop()
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
    (tmp_path / "gangs.policy").write_text(f"{GANG}\n")
    with Door(control_plane, tmp_path, bindings=3) as door:
        cluster.starts("--policies", tmp_path, kubeconfig=door.kubeconfig)
        wait_until("the server is away", door.shut.is_set)
        wait_until("some are bound", lambda: len(cluster.bound()) >= 3)
        assert len(cluster.bound()) < 6
        door.open()
        wait_until("all are bound", lambda: len(cluster.bound()) == 6)
        assert sorted(cluster.where().values()) == names
        cluster.stop()
    members = [f"train-{number}" for number in range(6)]
    check_bindings(control_plane, cluster.namespace, members)
