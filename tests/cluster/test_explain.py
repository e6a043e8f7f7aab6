"""Pods explained on a real API server: one that does not start, one that went elsewhere."""

from __future__ import annotations

import json

import pytest
import yaml
from click.testing import CliRunner

from engine.cli import main
from tests.cluster.berth import Berth, node, pod
from tests.cluster.process import wait_until

pytestmark = pytest.mark.cluster

POLICY = """\
filter: pod.name contains web -> node.label test=test
prefer: pod.name contains web -> node.label disk=ssd
"""


@pytest.fixture
def cluster(control_plane, namespace, no_nodes, kubectl, tmp_path):
    """Two nodes of the label, of which the smaller has the disk, and one without."""
    nodes = (
        node("small", {"test": "test", "disk": "ssd"}, cpu="2"),
        node("large", {"test": "test", "disk": "hdd"}, cpu="8"),
        node("other", {"test": "no"}, cpu="8"),
    )
    for one in nodes:
        control_plane.request("POST", "/api/v1/nodes", one)
    told = {"name": "policies", "namespace": namespace}
    data = {"net.policy": POLICY}
    stored = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": told, "data": data}
    kubectl("create", "-f", "-", stdin=yaml.safe_dump(stored))
    flags = ("--policy-configmap", f"{namespace}/policies")
    berth = Berth(control_plane, tmp_path / "berth", *flags)
    berth.start()
    yield Cluster(control_plane, namespace, berth, kubectl, flags)
    berth.process.stop(seconds=5)


class Cluster:
    """What the tests do with it."""

    def __init__(self, control_plane, namespace, berth, kubectl, flags):
        self.api, self.namespace, self.berth = control_plane, namespace, berth
        self.kubectl = kubectl
        self.path = f"/api/v1/namespaces/{namespace}/pods"
        self._flags = (*flags, "--kubeconfig", str(control_plane.kubeconfig_file()))

    def creates(self, name, **requests):
        self.api.request("POST", self.path, pod(name, self.namespace, **requests))

    def get(self, name):
        return self.api.request("GET", f"{self.path}/{name}")[1]

    def node_of(self, name):
        wait_until(f"{name} is bound", lambda: self.get(name)["spec"].get("nodeName"))
        return self.get(name)["spec"]["nodeName"]

    def explained(self, *words):
        result = CliRunner().invoke(main, ["explain", *words, *self._flags])
        assert result.exit_code == 0, result.output
        return result.stdout


def test_a_pod_that_does_not_start_is_told_what_comes_nearest(cluster):
    cluster.creates("web-full", cpu="7500m")
    assert cluster.node_of("web-full") == "large"
    cluster.creates("web-next", cpu="2100m")

    def said():
        conditions = cluster.get("web-next").get("status", {}).get("conditions", [])
        return [one["message"] for one in conditions if one["type"] == "PodScheduled"]

    wait_until("it is told that it has no node", said)
    before = cluster.get("web-next")
    text = cluster.explained("pod", f"{cluster.namespace}/web-next")
    lines = text.splitlines()
    assert lines[0] == "Decided again, by the cluster as it is now; nothing was changed."
    assert lines[1] == f"Its condition says: {said()[0]}"
    nearest = [line.strip() for line in lines if line.startswith(("  small", "  large", "  other"))]
    assert nearest == [
        "large would fit with 1600m more cpu",
        "other would fit but for net.policy:1: node.label test=test is false: test is no",
        "small would fit with 100m more cpu (it has 2 in all)",
    ]
    at = next(number for number, line in enumerate(lines) if "net.policy:1  filter:" in line)
    assert lines[at + 1].index("^") == lines[at].index("node.label test=test")
    assert "node.label[test]  no" in lines[at + 2]
    assert cluster.get("web-next") == before, "nothing was written"

    told = json.loads(cluster.explained("node", "large", "--format", "json"))
    [waiting] = [one for one in told["pods"] if one["pod"] == f"{cluster.namespace}/web-next"]
    assert (waiting["verdict"], waiting["nearly"]) == ("cannot", "would fit with 1600m more cpu")


def test_a_pod_that_went_elsewhere_is_told_who_outvoted_the_policy(cluster):
    cluster.creates("web", cpu="1900m")
    assert cluster.node_of("web") == "small"
    cluster.berth.wait_for_log("Successfully bound")  # the answer comes after the node
    log = cluster.berth.log.read_text()
    [bound] = [line for line in log.splitlines() if "Successfully bound" in line]
    assert 'why="net.policy:1 filter: 2 of 3 nodes pass; net.policy:2 prefer: 100 of 100"' in bound
    told = json.loads(cluster.explained("pod", f"{cluster.namespace}/web", "--format", "json"))
    assert (told["on"], told["node"], told["feasible"]) == ("small", "small", 2)
    votes = told["votes"]["large"]
    assert votes["net.policy:2"] == -100
    assert votes["NodeResourcesFit"] > 0, "the larger node has more room, and is outvoted"
    text = cluster.explained("pod", f"{cluster.namespace}/web")
    assert "The pod is on small. If it were pending, it would be placed as follows:" in text
    assert "small is the best of 2 nodes that can take it, of 3." in text
    assert "large scores" in text
    assert "outvoted." in text

    # What was true then is not true now: the disk has moved, and the pod stays where it is.
    cluster.kubectl("label", "node", "large", "disk=ssd", "--overwrite")
    told = json.loads(cluster.explained("pod", f"{cluster.namespace}/web", "--format", "json"))
    assert (told["on"], told["node"]) == ("small", "large")
    assert [one["node"] for one in told["best"]] == ["large", "small"]


def test_what_policies_read_beside_is_there_as_in_the_scheduler(
    cluster, control_plane, namespace, tmp_path
):
    owner = {"metadata": {"name": "web"}, "spec": {"replicas": 2, "selector": {"app": "web"}}}
    template = pod("web", namespace)
    owner["spec"]["template"] = {"metadata": {"labels": {"app": "web"}}, "spec": template["spec"]}
    path = f"/api/v1/namespaces/{namespace}"
    _, made = control_plane.request("POST", f"{path}/replicationcontrollers", owner)
    told = {"metadata": {"name": "go"}, "data": {"seats": "7"}}
    control_plane.request("POST", f"{path}/configmaps", told)
    waits = pod("web", namespace)
    controller = {"apiVersion": "v1", "kind": "ReplicationController", "name": "web"}
    controller |= {"uid": made["metadata"]["uid"], "controller": True}
    waits["metadata"]["ownerReferences"] = [controller]
    waits["spec"]["schedulerName"] = "nobody"
    control_plane.request("POST", cluster.path, waits)
    (tmp_path / "a.policy").write_text(
        'metric seats = object "core/configmaps" field "data.seats" by namespace\n'
        "metric used = usage cpu\n"
        "filter: workload.replicas == 2 and (seats ?? 0) == 7\nprefer: least used\n"
    )
    admin = str(control_plane.kubeconfig_file())
    words = ("pod", f"{namespace}/web", "--policies", str(tmp_path), "--kubeconfig", admin)
    result = CliRunner().invoke(main, ["explain", *words])
    assert "of 3 nodes that can take it, of 3" in result.stdout
    assert "used is missing: " in result.stderr
    assert "Prometheus" not in result.stderr


def test_what_is_broken_of_others_counts_as_it_does_in_the_scheduler(
    cluster, control_plane, namespace, tmp_path
):
    """The last good texts of a source, no rules of a namespace that never had good ones."""

    def write(name, text):
        body = {"metadata": {"name": name}, "data": {"a.policy": text}}
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        if control_plane.request("PUT", f"{path}/{name}", body)[0] == 404:
            assert control_plane.request("POST", path, body)[0] == 201

    policies = {
        "configMap": f"{namespace}/own",
        "state": f"{namespace}/kept",
        "tenants": {"configMap": "team", "namespaces": [namespace]},
    }
    document = {"apiVersion": "berth.dev/v1", "kind": "BerthConfiguration", "policies": policies}
    config = tmp_path / "berth.yaml"
    config.write_text(yaml.safe_dump(document))
    write("own", "filter: node.name is small\n")
    write("team", "nonsense\n")
    berth = Berth(control_plane, tmp_path / "other", "--config", config, "--scheduler-name=other")
    try:
        berth.start()
        write("own", "more nonsense\n")
        berth.wait_for_log(f"ConfigMap {namespace}/own was refused")
        kept = f"/api/v1/namespaces/{namespace}/configmaps/kept-last-good"
        wait_until("they are kept", lambda: control_plane.request("GET", kept)[0] == 200)
        control_plane.request("POST", cluster.path, pod("web", namespace, "other", cpu="3"))
        words = ("explain", "pod", f"{namespace}/web", "--scheduler-name", "other")
        files = ("--config", config, "--kubeconfig", control_plane.kubeconfig_file())
        result = CliRunner().invoke(main, [*words, *map(str, files)])
    finally:
        berth.process.stop(seconds=5)
    assert result.exit_code == 0, result.output
    assert "small would fit with 1 more cpu" in result.stdout
    own, team = f"note: ConfigMap {namespace}/own", f"note: ConfigMap {namespace}/team"
    [of_own] = [line for line in result.stderr.splitlines() if line.startswith(own)]
    [of_team] = [line for line in result.stderr.splitlines() if line.startswith(team)]
    assert of_own.endswith("its last good texts are in force")
    assert of_team.endswith("none of its rules is in force")


def test_where_the_texts_are_refused_it_is_said_who_knows_the_rules_in_force(cluster):
    path = f"/api/v1/namespaces/{cluster.namespace}/configmaps/policies"
    broken = {"data": {"net.policy": "filter: node.lable test=test\n"}}
    assert cluster.api.request("PATCH", path, broken)[0] == 200
    result = CliRunner().invoke(main, ["explain", "pod", "a/b", *cluster._flags])
    assert result.exit_code == 1
    assert "did you mean `node.label`?" in result.output
    assert "A running scheduler keeps its older rules; to ask it: --sch" in result.output
