"""Policies of namespaces on a real API server: read with the least rights, for own pods alone."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.process import wait_until

pytestmark = pytest.mark.cluster
NAME = "berth-policies"


@pytest.fixture
def own(control_plane, namespace, no_nodes, tmp_path):
    made = Cluster(control_plane, namespace, tmp_path)
    yield made
    made.stop()


@pytest.fixture
def team(own):
    """A namespace beside the test's own."""
    made = Cluster(own.plane, f"{own.namespace}-team", own.folder)
    own.create("/api/v1/namespaces", {"metadata": {"name": made.namespace}})
    yield made
    for path in (made.path("pods"), made.path("configmaps")):
        own.plane.request("DELETE", f"{path}?gracePeriodSeconds=0")


def asked(plane, user, query):
    url = f"{plane.url}/api/v1/configmaps{query}"
    try:
        with urllib.request.urlopen(url, timeout=10, context=plane.ssl_context(user)) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        refused.close()
        return refused.code


def test_the_charts_rule_lets_config_maps_of_one_name_be_read_and_no_others(
    control_plane, namespace
):
    rbac, user = "/apis/rbac.authorization.k8s.io/v1", f"{namespace}-reader"
    rule = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [NAME],
            "verbs": ["list", "watch"]}  # fmt: skip
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user}
    binding = {"metadata": {"name": user}, "roleRef": reference,
               "subjects": [{"kind": "User", "name": user}]}  # fmt: skip
    role = {"metadata": {"name": user}, "rules": [rule]}
    assert control_plane.request("POST", f"{rbac}/clusterroles", role)[0] == 201
    assert control_plane.request("POST", f"{rbac}/clusterrolebindings", binding)[0] == 201
    own = f"?fieldSelector=metadata.name%3D{NAME}"
    wait_until("it may", lambda: asked(control_plane, user, own) == 200)
    assert asked(control_plane, user, "") == 403
    assert asked(control_plane, user, "?fieldSelector=metadata.name%3Dother") == 403


def test_each_namespace_rules_its_own_pods_and_a_broken_edit_is_told_there(own, team, tmp_path):
    for name in ("n0", "n1"):
        own.node(name, {"name": name})
    tenants = {"configMap": NAME, "namespaces": [team.namespace]}
    policies = {"configMap": f"{own.namespace}/policies", "tenants": tenants}
    document = {"apiVersion": "berth.dev/v1", "kind": "BerthConfiguration", "policies": policies}
    config = tmp_path / "berth.yaml"
    config.write_text(json.dumps(document))
    own.config_map(a="filter: pod.namespace is nobody -> node.label name=n0\n")
    team.config_map(NAME, a="filter: node.label name=n1\n")
    berth = own.starts("--config", config)
    assert {team.goes(f"p{number}", cpu="1m") for number in range(6)} == {"n1"}
    assert "n0" in {own.goes(f"p{number}", cpu="1m") for number in range(6)}
    team.config_map(NAME, a="sort: pod.priority desc\n")
    berth.wait_for_log("P121")
    assert team.goes("after", cpu="1m") == "n1"
    said = team.told(NAME, "PoliciesRefused")
    assert f"{team.namespace}/{NAME}/a.policy:1:1: P121" in said
