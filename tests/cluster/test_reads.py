"""What rules read beside nodes and pods on a real API server: watched when it is read."""

from __future__ import annotations

import pytest
import yaml

from tests.cluster.berth import Berth, node, pod
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


class Cluster:
    """A scheduler that may do what a role says, and a ConfigMap of policies."""

    def __init__(self, control_plane, namespace, kubectl, folder):
        self.api, self.namespace, self.kubectl = control_plane, namespace, kubectl
        self.role = f"reads-{namespace}"
        self._folder = folder
        self.create({"kind": "Node", **node("only")})
        self.allow(*RULES)
        subject = {"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}
        reference = {"kind": "ClusterRole", "name": self.role}
        self._rbac("ClusterRoleBinding", roleRef=reference, subjects=[subject])

    def _rbac(self, kind, **fields):
        body = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind}
        body |= {"metadata": {"name": self.role}, **fields}
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(body))

    def allow(self, *rules):
        self._rbac("ClusterRole", rules=list(rules))

    def create(self, body):
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump({"apiVersion": "v1", **body}))

    def rules(self, text):
        meta = {"name": "policies", "namespace": self.namespace}
        self.create({"kind": "ConfigMap", "metadata": meta, "data": {"r.policy": text}})

    def starts(self):
        self.berth = Berth(
            self.api, self._folder / "berth",
            "--policy-configmap", f"{self.namespace}/policies",
            kubeconfig=self.api.kubeconfig_file(USER),
        )  # fmt: skip
        self.berth.start()

    def in_force(self, count):
        self.berth.wait_for_log("Policies in force", count=count)

    def pod(self, name, **meta):
        body = pod(name, self.namespace)
        body["metadata"] |= meta
        self.create({"kind": "Pod", **body})

    def node_of(self, name):
        _, found = self.api.request("GET", f"/api/v1/namespaces/{self.namespace}/pods/{name}")
        return found["spec"].get("nodeName")

    def lands(self, name):
        wait_until(f"{name} is bound", lambda: self.node_of(name))

    def waits(self, name, words):
        def told():
            text = self.kubectl("get", "events", "-n", self.namespace, "-o", "yaml").stdout
            return any(words in one["message"] for one in yaml.safe_load(text)["items"]
                       if one["involvedObject"]["name"] == name)  # fmt: skip

        wait_until(f"{name} is told {words!r}", told)

    def ends(self):
        self.berth.process.stop(seconds=5)
        self.kubectl("delete", "clusterrole,clusterrolebinding", self.role)


@pytest.fixture
def cluster(control_plane, namespace, no_nodes, kubectl, tmp_path):
    made = Cluster(control_plane, namespace, kubectl, tmp_path)
    made.rules(ANYWHERE)
    made.starts()
    yield made
    made.ends()


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
    cluster.create(deployment)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u",
             "controller": True}  # fmt: skip
    owned = {"labels": {"pod-template-hash": "1"}, "ownerReferences": [owner]}
    cluster.rules('filter: workload.label[tier] is silver message "not silver"\n')
    refused = 'cannot list resource "deployments" in API group "apps"'
    cluster.berth.wait_for_log(refused)
    cluster.waits("policies", refused)
    # Until then the old rules are in force, whole.
    cluster.pod("before", **owned)
    cluster.lands("before")

    kinds = ["deployments", "replicasets", "statefulsets", "daemonsets"]
    more = [
        {"apiGroups": ["apps"], "resources": kinds, "verbs": ["list", "watch"]},
        {"apiGroups": ["batch"], "resources": ["jobs", "cronjobs"], "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["replicationcontrollers"], "verbs": ["list", "watch"]},
    ]
    cluster.allow(*RULES, *more)
    cluster.in_force(2)
    cluster.pod("after", **owned)
    cluster.waits("after", "not silver")
    deployment["metadata"]["labels"] = {"tier": "silver"}
    cluster.create(deployment)
    cluster.lands("after")


CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "spec": {
        "versions": [
            {
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ]
    },
}


def defined(group, version, plural, kind, **meta):
    """A kind of objects of a cluster, of any shape."""
    (one,) = CRD["spec"]["versions"]
    spec = {
        "group": group,
        "scope": "Cluster",
        "names": {"plural": plural, "kind": kind, "singular": kind.lower()},
        "versions": [{**one, "name": version}],
    }
    return {**CRD, "metadata": {"name": f"{plural}.{group}", **meta}, "spec": spec}


def test_metrics_from_objects_of_any_kind(cluster):
    cluster.create(defined("berth.example", "v1alpha3", "slots", "Slot"))
    cluster.kubectl("wait", "--for=condition=Established", "crd/slots.berth.example")
    slots = {"apiVersion": "berth.example/v1alpha3", "kind": "Slot", "metadata": {"name": "only"}}
    cluster.create({**slots, "status": {"parts": [{"free": "500m"}]}})
    rule = {"apiGroups": ["berth.example"], "resources": ["slots"], "verbs": ["list", "watch"]}
    cluster.allow(*RULES, rule)
    cluster.rules(
        'metric free = object "berth.example/slots" field "status.parts.0.free" by name\n'
        'filter: (free ?? 0) >= 2 message "{free} free"\n'
    )
    cluster.in_force(2)
    cluster.pod("p")
    cluster.waits("p", "0.5 free")
    cluster.create({**slots, "status": {"parts": [{"free": "2"}]}})
    cluster.lands("p")
    cluster.kubectl("delete", "slot", "only")
    cluster.pod("late")
    cluster.waits("late", "<none> free")
    cluster.kubectl("delete", "crd", "slots.berth.example")


def test_metrics_from_usage(cluster, control_plane):
    # A server without the API has no values, and no reason to keep old rules.
    rules = 'metric used = usage cpu every 1s\nfilter: (used ?? 0) < 2 message "{used} in use"\n'
    cluster.rules(rules)
    cluster.in_force(2)
    cluster.pod("first")
    cluster.lands("first")
    approved = {"api-approved.kubernetes.io": "unapproved, for a test"}
    cluster.create(
        defined("metrics.k8s.io", "v1beta1", "nodes", "NodeMetrics", annotations=approved)
    )
    cluster.kubectl("wait", "--for=condition=Established", "crd/nodes.metrics.k8s.io")
    usage = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetrics"}
    usage |= {"metadata": {"name": "only"}, "usage": {"cpu": "3500m", "memory": "1Gi"}}
    cluster.create(usage)
    cluster.berth.wait_for_log("the usage of nodes is unknown")
    second = 0

    def turned_away():
        nonlocal second
        second += 1
        cluster.pod(f"second-{second}")
        text = cluster.kubectl("get", "pods", "-n", cluster.namespace, "-o", "yaml").stdout
        return "3500m in use" in text

    wait_until("the use of the node counts", turned_away)
    cluster.create({**usage, "usage": {"cpu": "100m"}})
    cluster.lands(f"second-{second}")
    cluster.kubectl("delete", "crd", "nodes.metrics.k8s.io")
