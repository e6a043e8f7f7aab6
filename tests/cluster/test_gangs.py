"""Gangs on a real API server, with PodGroups of the CRD that Coscheduling has."""

from __future__ import annotations

import pytest
import yaml

from tests.cluster.berth import Berth, node, pod
from tests.cluster.process import wait_until

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

    def members(self, group, *numbers, cpu="1500m"):
        self.applies(
            *[
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    **(one := pod(f"{group}-{number}", self.namespace, cpu=cpu)),
                    "metadata": {**one["metadata"], "labels": {LABEL: group}},
                }
                for number in numbers
            ]
        )

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


GANG = f"gang: by pod.label[{LABEL}] min group.min_member wait 60s\n"


def test_two_of_three_wait_and_the_third_starts_all(cluster, berth):
    cluster.nodes("n1", "n2", "n3")
    scheduler = berth(GANG)
    cluster.members("train", 0, 1)
    cluster.told("train-0", "gang train does not say how many members it needs")
    cluster.group("train", 3)
    cluster.told("train-0", "gang train has 2 of the 3 members that it needs")
    assert not cluster.bound()
    cluster.members("train", 2)
    wait_until("all are bound", lambda: len(cluster.bound()) == 3)
    assert len(set(cluster.where().values())) == 3
    assert scheduler.end() == 0


def test_of_two_gangs_with_room_for_one_the_other_takes_nothing(cluster, berth):
    cluster.nodes("n1", "n2", "n3")
    cluster.group("a", 2)
    cluster.group("b", 2)
    cluster.members("a", 0, 1)
    cluster.members("b", 0, 1)
    berth(GANG)
    wait_until("one is bound", lambda: len(cluster.bound()) >= 2)
    (started,) = {name[0] for name in cluster.bound()}
    other = "b" if started == "a" else "a"
    cluster.told(f"{other}-1", f"gang {other}: 1 of the 2 members that it needs fit")
    assert len(cluster.bound()) == 2
    cluster.nodes("n4")
    wait_until("both are bound", lambda: len(cluster.bound()) == 4)
