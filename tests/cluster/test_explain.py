"""Pods explained on a real API server: one that does not start, one that went elsewhere."""

from __future__ import annotations

import json

import pytest
import yaml
from click.testing import CliRunner

from engine.cli import main
from tests.cluster.berth import pod
from tests.cluster.cluster import Cluster
from tests.cluster.process import wait_until

pytestmark = pytest.mark.cluster

POLICY = """\
filter: pod.name contains web -> node.label test=test
prefer: pod.name contains web -> node.label disk=ssd
"""


class Explained(Cluster):
    """Two nodes of the label, of which the smaller has the disk, and one without."""

    def __init__(self, *how):
        super().__init__(*how)
        self.node("small", {"test": "test", "disk": "ssd"}, cpu="2")
        self.node("large", {"test": "test", "disk": "hdd"}, cpu="8")
        self.node("other", {"test": "no"}, cpu="8")
        self.rules(net=POLICY)

    def explain(self, *words):
        flags = ("--policy-configmap", f"{self.namespace}/policies")
        admin = ("--kubeconfig", str(self.plane.kubeconfig_file()))
        return CliRunner().invoke(main, ["explain", *words, *flags, *admin])

    def explained(self, *words):
        result = self.explain(*words)
        assert result.exit_code == 0, result.output
        return result.stdout


@pytest.fixture
def cluster(control_plane, namespace, no_nodes, tmp_path):
    made = Explained(control_plane, namespace, tmp_path)
    yield made
    made.stop()


def test_a_pod_that_does_not_start_is_told_what_comes_nearest(cluster):
    assert cluster.goes("web-full", cpu="7500m") == "large"
    cluster.pod("web-next", cpu="2100m")
    _, said = cluster.refused("web-next")
    before = cluster.get("web-next")
    text = cluster.explained("pod", f"{cluster.namespace}/web-next")
    lines = text.splitlines()
    assert lines[0] == "Decided again, by the cluster as it is now; nothing was changed."
    assert lines[1] == f"Its condition says: {said}"
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


def test_a_pod_that_went_elsewhere_is_told_who_outvoted_the_policy(cluster, kubectl):
    assert cluster.goes("web", cpu="1900m") == "small"
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
    kubectl("label", "node", "large", "disk=ssd", "--overwrite")
    told = json.loads(cluster.explained("pod", f"{cluster.namespace}/web", "--format", "json"))
    assert (told["on"], told["node"]) == ("small", "large")
    assert [one["node"] for one in told["best"]] == ["large", "small"]


def test_what_policies_read_beside_is_there_as_in_the_scheduler(cluster, tmp_path):
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod("web", "any")["spec"]}
    owner = {"replicas": 2, "selector": {"app": "web"}, "template": template}
    path = cluster.path("replicationcontrollers")
    made = cluster.create(path, {"metadata": {"name": "web"}, "spec": owner})
    told = {"metadata": {"name": "go"}, "data": {"seats": "7"}}
    cluster.create(cluster.path("configmaps"), told)
    controller = {"apiVersion": "v1", "kind": "ReplicationController", "name": "web"}
    controller |= {"uid": made["metadata"]["uid"], "controller": True}
    cluster.pod("web", scheduler="nobody", meta={"ownerReferences": [controller]})
    (tmp_path / "a.policy").write_text(
        'metric seats = object "core/configmaps" field "data.seats" by namespace\n'
        "metric used = usage cpu\n"
        "filter: workload.replicas == 2 and (seats ?? 0) == 7\nprefer: least used\n"
    )
    admin = str(cluster.plane.kubeconfig_file())
    words = ("pod", f"{cluster.namespace}/web", "--policies", str(tmp_path), "--kubeconfig", admin)
    result = CliRunner().invoke(main, ["explain", *words])
    assert "of 3 nodes that can take it, of 3" in result.stdout
    assert "used is missing: " in result.stderr
    assert "Prometheus" not in result.stderr


def test_what_is_broken_of_others_counts_as_it_does_in_the_scheduler(cluster, tmp_path):
    """The last good texts of a source, no rules of a namespace that never had good ones."""
    namespace, plane = cluster.namespace, cluster.plane
    policies = {
        "configMap": f"{namespace}/own",
        "state": f"{namespace}/kept",
        "tenants": {"configMap": "team", "namespaces": [namespace]},
    }
    document = {"apiVersion": "berth.dev/v1", "kind": "BerthConfiguration", "policies": policies}
    config = tmp_path / "berth.yaml"
    config.write_text(yaml.safe_dump(document))
    cluster.config_map("own", a="filter: node.name is small\n")
    cluster.config_map("team", a="nonsense\n")
    berth = cluster.starts("--config", config, "--scheduler-name=other")
    cluster.config_map("own", a="more nonsense\n")
    berth.wait_for_log(f"ConfigMap {namespace}/own was refused")
    kept = cluster.path("configmaps", "kept-last-good")
    wait_until("they are kept", lambda: plane.request("GET", kept)[0] == 200)
    cluster.pod("web", scheduler="other", cpu="3")
    words = ("explain", "pod", f"{namespace}/web", "--scheduler-name", "other")
    files = ("--config", config, "--kubeconfig", plane.kubeconfig_file())
    result = CliRunner().invoke(main, [*words, *map(str, files)])
    assert result.exit_code == 0, result.output
    assert "small would fit with 1 more cpu" in result.stdout
    own, team = f"note: ConfigMap {namespace}/own", f"note: ConfigMap {namespace}/team"
    [of_own] = [line for line in result.stderr.splitlines() if line.startswith(own)]
    [of_team] = [line for line in result.stderr.splitlines() if line.startswith(team)]
    assert of_own.endswith("its last good texts are in force")
    assert of_team.endswith("none of its rules is in force")


def test_where_the_texts_are_refused_it_is_said_who_knows_the_rules_in_force(cluster):
    cluster.config_map(net="filter: node.lable test=test\n")
    result = cluster.explain("pod", "a/b")
    assert result.exit_code == 1
    assert "did you mean `node.label`?" in result.output
    assert "A running scheduler keeps its older rules; to ask it: --sch" in result.output
