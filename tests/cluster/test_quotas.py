"""Quotas and preemption by policy on a real API server, from the values of the original plugins.

CapacityScheduling's own example is two ElasticQuotas of at least 4 and at most 6 cores.
"""

from __future__ import annotations

import pytest
import yaml

from tests.cluster.berth import Berth, node, pod
from tests.cluster.process import wait_until

pytestmark = pytest.mark.cluster

GROUP = "scheduling.x-k8s.io"
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": f"elasticquotas.{GROUP}",
        "annotations": {"api-approved.kubernetes.io": "https://example.com/test"},
    },
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {
            "kind": "ElasticQuota",
            "listKind": "ElasticQuotaList",
            "plural": "elasticquotas",
            "singular": "elasticquota",
        },
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


class Cluster:
    """Two namespaces with quotas, some nodes, and a scheduler."""

    def __init__(self, control_plane, kubectl, namespaces, folder):
        self.api, self.kubectl, self.namespaces = control_plane, kubectl, namespaces
        self._folder = folder
        self.berth = None

    def starts(self, **policies):
        folder = self._folder / "policies"
        folder.mkdir()
        for name, text in policies.items():
            (folder / f"{name.replace('_', '-')}.policy").write_text(text)
        self.berth = Berth(self.api, self._folder / "berth", "--policies", folder)
        self.berth.start()

    def applies(self, kind, body, version="v1"):
        self.kubectl(
            "apply", "-f", "-", stdin=yaml.safe_dump({"apiVersion": version, "kind": kind, **body})
        )

    def quota(self, namespace, least, most):
        body = {
            "metadata": {"name": "quota", "namespace": namespace},
            "spec": {"min": {"cpu": least}, "max": {"cpu": most}},
        }
        self.applies("ElasticQuota", body, f"{GROUP}/v1alpha1")

    def creates(self, namespace, *names, cpu="1", labels=None, priority=None, **spec):
        for name in names:
            body = pod(name, namespace, cpu=cpu)
            body["metadata"]["labels"] = labels or {}
            body["spec"].update(spec)
            if priority is not None:
                body["spec"]["priorityClassName"] = priority
            self.applies("Pod", body)

    def pods(self, namespace):
        _, found = self.api.request("GET", f"/api/v1/namespaces/{namespace}/pods")
        return {one["metadata"]["name"]: one for one in found["items"]}

    def running(self, namespace):
        there = self.pods(namespace).items()
        return sorted(name for name, one in there if one["spec"].get("nodeName"))

    def notes(self, namespace, name):
        _, events = self.api.request("GET", f"/api/v1/namespaces/{namespace}/events")
        return [one["message"] for one in events["items"] if one["involvedObject"]["name"] == name]

    def deletes(self, namespace, name):
        self.kubectl("delete", "pod", name, "-n", namespace, "--grace-period=0", "--force")


@pytest.fixture
def cluster(control_plane, namespace, no_nodes, kubectl, tmp_path):
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump(CRD))
    path = f"/apis/{GROUP}/v1alpha1/elasticquotas"
    wait_until("the CRD is served", lambda: control_plane.request("GET", path)[0] == 200)
    other = f"{namespace}-b"
    made = Cluster(control_plane, kubectl, (namespace, other), tmp_path)
    made.applies("Namespace", {"metadata": {"name": other}})
    yield made
    if made.berth is not None:
        made.berth.process.stop(seconds=10)
    for one in (namespace, other):
        control_plane.request("DELETE", f"/api/v1/namespaces/{one}/pods?gracePeriodSeconds=0")
        control_plane.request("DELETE", f"/apis/{GROUP}/v1alpha1/namespaces/{one}/elasticquotas")


@pytest.fixture
def high(control_plane, namespace):
    """A priority class of the test's own."""
    name = f"{namespace}-high"
    url = "/apis/scheduling.k8s.io/v1/priorityclasses"
    control_plane.request("POST", url, {"metadata": {"name": name}, "value": 1000})
    yield name
    control_plane.request("DELETE", f"{url}/{name}")


def test_what_one_namespace_lends_it_gets_back_and_nobody_passes_a_maximum(cluster):
    a, b = cluster.namespaces
    for name in ("n1", "n2"):
        cluster.applies("Node", node(name, cpu="6"))
    for one in (a, b):
        cluster.quota(one, "4", "6")
    cluster.starts(own="use capacity-scheduling\n")
    cluster.creates(a, *(f"a{number}" for number in range(7)))
    wait_until("a borrows up to its maximum", lambda: len(cluster.running(a)) == 6)
    (left,) = set(cluster.pods(a)) - set(cluster.running(a))
    words = f"quota of {a}: no more cpu: 6 used, 1 asked for, at most 6"
    wait_until(
        "who waits is told who uses what",
        lambda: any(words in note for note in cluster.notes(a, left)),
    )
    cluster.creates(b, "b0", "b1")
    wait_until("what is free is used", lambda: len(cluster.running(b)) == 2)
    assert len(cluster.running(a)) == 6
    cluster.creates(b, "b2", "b3", "b4")
    wait_until("b has its minimum back", lambda: len(cluster.running(b)) == 4)
    wait_until("and a keeps its own", lambda: len(cluster.running(a)) == 4)
    cluster.deletes(b, "b0")
    wait_until("the next one follows", lambda: len(cluster.running(b)) == 4)
    assert len(cluster.running(a)) == 4, "who is beyond its minimum takes nothing back"


def test_a_policy_chooses_victims_and_a_pod_is_bound_as_they_go(cluster, high):
    a, _ = cluster.namespaces
    cluster.applies("Node", node("n1", cpu="2"))
    cluster.starts(
        own="preempt: pod.label calm -> never\n"
        "preempt: victims where not it.label keep=yes order it.priority, it.name desc limit 1\n"
    )
    cluster.creates(a, "kept", labels={"keep": "yes"})
    cluster.creates(a, "other")
    wait_until("both run", lambda: len(cluster.running(a)) == 2)
    cluster.creates(a, "calm", labels={"calm": "yes"}, priority=high)
    wait_until(
        "a calm one is told that it evicts nobody",
        lambda: any("this pod may evict nobody" in note for note in cluster.notes(a, "calm")),
    )
    cluster.creates(a, "large", cpu="2", priority=high)
    wait_until("nobody can make room for two cores", lambda: bool(cluster.notes(a, "large")))
    cluster.creates(a, "new", priority=high)
    wait_until("it runs", lambda: "new" in cluster.running(a))
    assert "other" not in cluster.pods(a)
    assert "kept" in cluster.running(a)
    assert "calm" not in cluster.running(a)


def test_victims_on_two_nodes_make_room_in_a_zone(cluster, high):
    a, _ = cluster.namespaces
    for name in ("n1", "n2"):
        cluster.applies("Node", node(name, {"topology.kubernetes.io/zone": "z"}, cpu="4"))
    cluster.starts(own="use cross-node-preemption\n")
    cluster.creates(
        a, "web-1", labels={"app": "web"}, nodeSelector={"kubernetes.io/hostname": "n1"}
    )
    cluster.creates(
        a, "web-2", labels={"app": "web"}, nodeSelector={"kubernetes.io/hostname": "n2"}
    )
    cluster.creates(a, "other")
    wait_until("all run", lambda: len(cluster.running(a)) == 3)
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {"app": "web"}},
                    "topologyKey": "topology.kubernetes.io/zone",
                }
            ]
        }
    }
    cluster.creates(a, "alone", priority=high, affinity=apart)
    wait_until("it runs", lambda: "alone" in cluster.running(a))
    assert sorted(cluster.pods(a)) == ["alone", "other"]
