"""What rules read beside nodes and pods on a real API server: watched when it is read."""

from __future__ import annotations

import pytest
import yaml

from tests.cluster.cluster import Cluster, defined
from tests.cluster.process import wait_until

pytestmark = pytest.mark.cluster

USER = "system:serviceaccount:berth:reads"
#: What berth may do before policies read more.
RULES = [
    {"apiGroups": ["*"], "resources": ["nodes", "namespaces", "configmaps"],
     "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["pods", "pods/binding", "pods/status"], "verbs": ["*"]},
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
]  # fmt: skip
ANYWHERE = "prefer: node.ready\n"


class Allowed(Cluster):
    """A scheduler that may do what a role says."""

    def __init__(self, kubectl, *how):
        super().__init__(*how)
        self.kubectl, self.role = kubectl, f"reads-{self.namespace}"
        self.node("only")
        self.allow(*RULES)
        subject = {"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}
        reference = {"kind": "ClusterRole", "name": self.role}
        self._rbac("ClusterRoleBinding", roleRef=reference, subjects=[subject])
        self.config_map(r=ANYWHERE)
        flags = ("--policy-configmap", f"{self.namespace}/policies")
        self.starts(*flags, kubeconfig=self.plane.kubeconfig_file(USER))

    def _rbac(self, kind, **fields):
        body = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind}
        self.apply(body | {"metadata": {"name": self.role}, **fields})

    def allow(self, *rules):
        self._rbac("ClusterRole", rules=list(rules))

    def apply(self, body):
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(body))

    def stop(self):
        super().stop()
        self.kubectl("delete", "clusterrole,clusterrolebinding", self.role)


@pytest.fixture
def cluster(control_plane, namespace, no_nodes, kubectl, tmp_path):
    made = Allowed(kubectl, control_plane, namespace, tmp_path)
    yield made
    made.stop()


def test_rules_that_read_what_may_not_be_listed_wait_and_say_which_verb(cluster, control_plane):
    asked = control_plane.audit(verb="list", resource="deployments")
    assert USER not in {one["user"]["username"] for one in asked}, "nobody reads them yet"
    deployment = {
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": cluster.namespace, "labels": {"tier": "gold"}},
        "spec": {
            "replicas": 0, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}},
                         "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    }  # fmt: skip
    cluster.apply(deployment)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u",
             "controller": True}  # fmt: skip
    owned = {"labels": {"pod-template-hash": "1"}, "ownerReferences": [owner]}
    cluster.config_map(r='filter: workload.label[tier] is silver message "not silver"\n')
    refused = 'cannot list resource "deployments" in API group "apps"'
    cluster.berth.wait_for_log(refused)
    cluster.told("policies", refused)
    # Until then the old rules are in force, whole.
    cluster.pod("before", meta=owned)
    cluster.placed("before")

    kinds = ["deployments", "replicasets", "statefulsets", "daemonsets"]
    more = [
        {"apiGroups": ["apps"], "resources": kinds, "verbs": ["list", "watch"]},
        {"apiGroups": ["batch"], "resources": ["jobs", "cronjobs"], "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["replicationcontrollers"], "verbs": ["list", "watch"]},
    ]
    cluster.allow(*RULES, *more)
    cluster.berth.wait_for_log("Policies in force", count=2)
    cluster.pod("after", meta=owned)
    cluster.told("after", "not silver")
    deployment["metadata"]["labels"] = {"tier": "silver"}
    cluster.apply(deployment)
    cluster.placed("after")


def told_one_of_many(cluster, words):
    """The last of pods that come until one is told it.

    What rules read has a watch of its own, which may be behind that of pods.
    """
    names = []

    def told():
        names.append(f"one-{len(names)}")
        cluster.pod(names[-1])
        return words in str(cluster.plane.request("GET", cluster.path("pods")))

    wait_until(f"a pod is told {words!r}", told)
    return names[-1]


def test_metrics_from_objects_of_any_kind(cluster):
    cluster.apply(defined("berth.example", "v1alpha3", "slots", "Slot", "Cluster"))
    cluster.kubectl("wait", "--for=condition=Established", "crd/slots.berth.example")
    slots = {"apiVersion": "berth.example/v1alpha3", "kind": "Slot", "metadata": {"name": "only"}}
    cluster.apply({**slots, "status": {"parts": [{"free": "500m"}]}})
    rule = {"apiGroups": ["berth.example"], "resources": ["slots"], "verbs": ["list", "watch"]}
    cluster.allow(*RULES, rule)
    cluster.rules(
        r='metric free = object "berth.example/slots" field "status.parts.0.free" by name\n'
        'filter: (free ?? 0) >= 2 message "{free} free"\n'
    )
    cluster.pod("p")
    cluster.told("p", "0.5 free")
    cluster.apply({**slots, "status": {"parts": [{"free": "2"}]}})
    cluster.placed("p")
    cluster.kubectl("delete", "slot", "only")
    told_one_of_many(cluster, "<none> free")
    cluster.kubectl("delete", "crd", "slots.berth.example")


def test_metrics_from_usage(cluster):
    # A server without the API has no values, and no reason to keep old rules.
    rules = 'metric used = usage cpu every 1s\nfilter: (used ?? 0) < 2 message "{used} in use"\n'
    cluster.rules(r=rules)
    cluster.pod("first")
    cluster.placed("first")
    cluster.apply(defined("metrics.k8s.io", "v1beta1", "nodes", "NodeMetrics", "Cluster"))
    cluster.kubectl("wait", "--for=condition=Established", "crd/nodes.metrics.k8s.io")
    usage = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetrics"}
    usage |= {"metadata": {"name": "only"}, "usage": {"cpu": "3500m", "memory": "1Gi"}}
    cluster.apply(usage)
    cluster.berth.wait_for_log("the usage of nodes is unknown")
    second = told_one_of_many(cluster, "3500m in use")
    cluster.apply({**usage, "usage": {"cpu": "100m"}})
    cluster.placed(second)
    cluster.kubectl("delete", "crd", "nodes.metrics.k8s.io")
