"""Quotas and preemption by policy on a real API server, from the values of the original plugins.

CapacityScheduling's own example is two ElasticQuotas of at least 4 and at most 6 cores.
"""

from __future__ import annotations

import pytest

from tests.cluster.cluster import CRDS, Cluster, defined
from tests.cluster.process import wait_until

pytestmark = pytest.mark.cluster

GROUP = "scheduling.x-k8s.io"
QUOTAS = f"/apis/{GROUP}/v1alpha1/elasticquotas"


class Tenant(Cluster):
    """A namespace with a quota."""

    def quota(self, least, most):
        spec = {"min": {"cpu": least}, "max": {"cpu": most}}
        body = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "ElasticQuota", "spec": spec}
        path = self.path("elasticquotas", group=f"apis/{GROUP}/v1alpha1")
        self.create(path, {"metadata": {"name": "quota"}, **body})

    def creates(self, *names, cpu="1", labels=None, **spec):
        for name in names:
            self.pod(name, labels=labels, spec=spec, cpu=cpu)


@pytest.fixture
def tenants(control_plane, namespace, no_nodes, tmp_path):
    """Two namespaces; the scheduler is the first one's."""
    names = (namespace, f"{namespace}-b")
    a, b = (Tenant(control_plane, name, tmp_path / name) for name in names)
    if control_plane.request("GET", QUOTAS)[0] == 404:
        a.create(CRDS, defined(GROUP, "v1alpha1", "elasticquotas", "ElasticQuota"))
        wait_until("the CRD is served", lambda: control_plane.request("GET", QUOTAS)[0] == 200)
    a.create("/api/v1/namespaces", {"metadata": {"name": b.namespace}})
    yield a, b
    a.stop()
    for one in (a, b):
        for path in (one.path("pods"), one.path("elasticquotas", group=f"apis/{GROUP}/v1alpha1")):
            control_plane.request("DELETE", f"{path}?gracePeriodSeconds=0")


def test_what_one_namespace_lends_it_gets_back_and_nobody_passes_a_maximum(tenants):
    a, b = tenants
    for name in ("n1", "n2"):
        a.node(name, cpu="6")
    for one in tenants:
        one.quota("4", "6")
    a.rules(own="use capacity-scheduling\n")
    a.creates(*(f"a{number}" for number in range(7)))
    wait_until("a borrows up to its maximum", lambda: len(a.bound()) == 6)
    (left,) = a.where().keys() - a.bound()
    a.told(left, f"quota of {a.namespace}: no more cpu: 6 used, 1 asked for, at most 6")
    b.creates("b0", "b1")
    wait_until("what is free is used", lambda: len(b.bound()) == 2)
    assert len(a.bound()) == 6
    b.creates("b2", "b3", "b4")
    wait_until("b has its minimum back", lambda: len(b.bound()) == 4)
    wait_until("and a keeps its own", lambda: len(a.bound()) == 4)
    b.delete("b0")
    wait_until("the next one follows", lambda: len(b.bound()) == 4)
    assert len(a.bound()) == 4, "who is beyond its minimum takes nothing back"


def test_a_policy_chooses_victims_and_a_pod_is_bound_as_they_go(tenants):
    a, _ = tenants
    high = a.priority(1000)
    a.node("n1", cpu="2")
    a.rules(
        own="preempt: pod.label calm -> never\n"
        "preempt: victims where not it.label keep=yes order it.priority, it.name desc limit 1\n"
    )
    a.creates("kept", labels={"keep": "yes"})
    a.creates("other")
    a.placed("kept", "other")
    a.creates("calm", labels={"calm": "yes"}, priorityClassName=high)
    a.told("calm", "this pod may evict nobody")
    a.creates("large", cpu="2", priorityClassName=high)
    wait_until("nobody can make room for two cores", lambda: bool(a.notes("large")))
    a.creates("new", priorityClassName=high)
    a.placed("new")
    assert a.bound() == {"kept", "new"}
    assert "other" not in a.where()


def test_victims_on_two_nodes_make_room_in_a_zone(tenants):
    a, _ = tenants
    zone = "topology.kubernetes.io/zone"
    for name in ("n1", "n2"):
        a.node(name, {zone: "z"}, cpu="4")
    a.rules(own="use cross-node-preemption\n")
    for number in (1, 2):
        there = {"kubernetes.io/hostname": f"n{number}"}
        a.creates(f"web-{number}", labels={"app": "web"}, nodeSelector=there)
    a.creates("other")
    a.placed("web-1", "web-2", "other")
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": zone}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    a.creates("alone", priorityClassName=a.priority(1000), affinity=apart)
    a.placed("alone")
    assert sorted(a.where()) == ["alone", "other"]


def test_a_gang_takes_back_what_its_namespace_lent_or_evicts_nobody(tenants):
    a, b = tenants
    a.node("n1", cpu="6")
    a.quota("3", "2")
    b.quota("3", "6")
    a.rules(own="use capacity-scheduling\ngang: by pod.label[job] min 3\n")
    b.creates(*(f"b{number}" for number in range(6)))
    b.placed(*(f"b{number}" for number in range(6)))
    a.creates("g0", "g1", "g2", labels={"job": "g"})
    said = a.refused("g0", "If others were evicted, 2 would fit, but not g2: ")[1]
    assert f"quota of {a.namespace}: no more cpu: 2 used, 1 asked for, at most 2" in said
    assert len(b.bound()) == 6
    path = a.path("elasticquotas", "quota", group=f"apis/{GROUP}/v1alpha1")
    assert a.plane.request("PATCH", path, {"spec": {"max": {"cpu": "6"}}})[0] == 200
    a.placed("g0", "g1", "g2")
    assert len(b.bound()) == 3
