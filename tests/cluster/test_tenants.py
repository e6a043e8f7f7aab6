"""Policies of namespaces on a real API server: read with the least rights, for own pods alone."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from tests.cluster.berth import Berth, node, pod
from tests.cluster.process import wait_until

pytestmark = pytest.mark.cluster
NAME = "berth-policies"


@pytest.fixture
def team(control_plane, namespace):
    """A namespace beside the test's own."""
    name = f"{namespace}-team"
    assert (
        control_plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})[0] == 201
    )
    yield name
    control_plane.request("DELETE", f"/api/v1/namespaces/{name}/pods?gracePeriodSeconds=0")
    control_plane.request("DELETE", f"/api/v1/namespaces/{name}/configmaps/{NAME}")


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


def test_each_namespace_rules_its_own_pods_and_a_broken_edit_is_told_there(
    control_plane, namespace, team, no_nodes, tmp_path
):
    for name in ("n0", "n1"):
        full = node(f"{namespace}-{name}", {"name": name})
        assert control_plane.request("POST", "/api/v1/nodes", full)[0] == 201

    def write(where, name, text):
        path = f"/api/v1/namespaces/{where}/configmaps"
        body = {"metadata": {"name": name}, "data": {"a.policy": text}}
        if control_plane.request("PUT", f"{path}/{name}", body)[0] == 404:
            assert control_plane.request("POST", path, body)[0] == 201

    def lands(where, name):
        path = f"/api/v1/namespaces/{where}/pods"
        assert control_plane.request("POST", path, pod(name, where, namespace, cpu="1m"))[0] == 201

        def found():
            return control_plane.request("GET", f"{path}/{name}")[1]["spec"].get("nodeName")

        wait_until("it is bound", found)
        return found().rpartition("-")[2]

    tenants = {"configMap": NAME, "namespaces": [team]}
    policies = {"configMap": f"{namespace}/policies", "tenants": tenants}
    document = {"apiVersion": "berth.dev/v1", "kind": "BerthConfiguration", "policies": policies}
    config = tmp_path / "berth.yaml"
    config.write_text(json.dumps(document))
    write(namespace, "policies", "filter: pod.namespace is nobody -> node.label name=n0\n")
    write(team, NAME, "filter: node.label name=n1\n")
    berth = Berth(control_plane, tmp_path / "berth", "--config", config,
                  f"--scheduler-name={namespace}")  # fmt: skip
    try:
        berth.start()
        assert {lands(team, f"p{number}") for number in range(6)} == {"n1"}
        assert "n0" in {lands(namespace, f"p{number}") for number in range(6)}
        write(team, NAME, "sort: pod.priority desc\n")
        berth.wait_for_log("P121")
        assert lands(team, "after") == "n1"
        events = f"/apis/events.k8s.io/v1/namespaces/{team}/events"

        def refused():
            items = control_plane.request("GET", events)[1]["items"]
            return [one["note"] for one in items if one["reason"] == "PoliciesRefused"]

        wait_until("its author is told", refused)
        assert f"{team}/{NAME}/a.policy:1:1: P121" in refused()[0]
    finally:
        berth.process.stop(seconds=5)
