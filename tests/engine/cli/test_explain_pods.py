"""`berth explain pod` and `node`: who is in the way, who outvoted whom, what comes nearest."""

from __future__ import annotations

import asyncio
import json
import os
import re

import pytest
import yaml
from click.testing import CliRunner

from engine.app import App
from engine.cli import main
from engine.cli.up import options_of
from engine.clock import SystemClock
from engine.embedded import EmbeddedCluster
from engine.explain.pods import explain, lines_of, object_of
from engine.framework.profile import Profile
from engine.framework.runtime import Framework
from engine.framework.snapshot import QueueTimes
from engine.objects import Pod, from_builtins
from engine.pods.podinfo import make_pod_info
from tests.builders import Cache, default_plugins, make_node, make_pod
from tests.engine.policy.builders import NOW, chain, compiler
from tests.engine.test_simulate import Recording

POLICY = """\
filter: pod.name contains web -> node.label test=test and count(node.pods) < 20
score: node.cpu.free normalize minmax
score: 100 - bandwidth/max*100
"""
RULE_OF_QUEUE = "filter: count(queue.pods) < 1 and node.name is n1\n"
METRICS = ("--metric", "bandwidth@n1=50", "--metric", "bandwidth@n2=10")


def node(name, cpu="4", taint=None, **labels):
    allocatable = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
    spec = {"taints": [{"key": taint, "effect": "NoSchedule"}]} if taint else {}
    meta = {"name": name, "labels": labels}
    return {"kind": "Node", "metadata": meta, "spec": spec, "status": {"allocatable": allocatable}}


def pod(name, cpu, memory="1Gi", **spec):
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    spec = {"schedulerName": "berth", "containers": [container], **spec}
    return {"kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


OBJECTS = (
    node("n1", test="test"),
    node("n2", "8", test="test"),
    node("n3", "8", test="other"),
    node("n4", "2", taint="gpu"),
    pod("web", "1"),
    pod("web-big", "7900m"),
    pod("busy", "6", "7Gi", nodeName="n2"),
)


@pytest.fixture(autouse=True)
def _one_compiler(monkeypatch):
    """Making it takes half a second."""
    monkeypatch.setattr("engine.cli.clusters.new_compiler", compiler)
    monkeypatch.setattr("engine.cli.replay.new_compiler", compiler)


@pytest.fixture
def explained(tmp_path):
    """What `berth explain ...` prints of these objects under the policy."""
    (tmp_path / "net.policy").write_text(POLICY)
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(OBJECTS))
    files = ("-f", str(tmp_path / "all.yaml"), "--policies", str(tmp_path / "net.policy"))

    def run(*words, exit_code=0):
        result = CliRunner().invoke(main, ["explain", *words, *files])
        assert result.exit_code == exit_code, result.output
        return result.stdout if exit_code == 0 else result.output

    return run


def test_a_pod_with_a_node_is_told_who_outvoted_whom(explained):
    text = explained("pod", "default/web", *METRICS)
    assert "n1 is the best of 2 nodes that can take it, of 4." in text
    assert "    net.policy:2                      100    0  score: node.cpu.free" in text
    assert (
        "n2 scores 81 less: NodeResourcesFit -75, net.policy:2 -50;"
        " net.policy:3 +40, NodeResourcesBalancedAllocation +4 speak for it and are outvoted."
    ) in text


def test_the_total_is_what_is_shown_with_its_weights(explained):
    text = explained("pod", "default/web", *METRICS)
    shown = re.findall(r"(\S+) x(\d+) +(\d+)", text)  # also of what all have alike
    assert "TaintToleration" in {name for name, *_ in shown}
    total = re.search(r"^  total +(\d+)", text, re.M)
    assert sum(int(weight) * int(score) for _, weight, score in shown) == int(total[1])


def test_the_same_for_programs(explained):
    told = json.loads(explained("pod", "web", "--format", "json", *METRICS))
    assert (told["node"], told["feasible"], told["nodes"]) == ("n1", 2, 4)
    best, other = told["best"]
    totals = [sum(s["score"] * s["weight"] for s in one["scores"]) for one in (best, other)]
    assert totals == [best["total"], other["total"]]
    assert sum(told["votes"]["n2"].values()) == other["total"] - best["total"]
    rule = told["nearest"][0]["misses"][0]["rule"]
    assert (rule["line"], rule["values"]) == ("net.policy:1", {"node.label[test]": "other"})
    marked = rule["text"][rule["marks"].index("^") : len(rule["marks"])]
    assert marked == "node.label test=test"
    assert [one["node"] for one in told["nearest"]] == ["n3", "n4"]


def test_what_comes_nearest_is_told_first(explained):
    text = explained("pod", "web-big")
    nearest = [line.strip() for line in text.splitlines() if line.startswith("  n")]
    assert nearest == [
        "n2 would fit with 5900m more cpu",
        "n3 would fit but for net.policy:1: node.label test=test is false: test is other",
        "n1 would fit with 3900m more cpu (it has 4 in all)",
        "n4 would fit but for TaintToleration: node(s) had untolerated taint(s) "
        "(taint gpu:NoSchedule); net.policy:1: node.label test=test is false: test is <none>;"
        " 5900m more cpu (it has 2 in all) needed",
    ]
    shown = text.splitlines()
    line = next(at for at, one in enumerate(shown) if "net.policy:1  filter:" in one)
    start = shown[line].index("node.label test=test")
    assert shown[line + 1] == " " * start + "^" * len("node.label test=test")
    assert shown[line + 2].strip() == "node.label[test]  other"
    assert "and 3 more" in explained("pod", "web-big", "--most", "1")


def test_labels_that_a_pod_wants_are_told_with_those_that_a_node_has(tmp_path):
    term = {"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    manifests = [
        node("n1", disk="hdd"),
        pod("picky", "1", nodeSelector={"zone": "a"}),
        pod("affine", "1", affinity=affinity),
    ]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(manifests))

    def nearly(name):
        words = ["explain", "pod", name, "-f", str(tmp_path / "all.yaml"), "--format", "json"]
        return json.loads(CliRunner().invoke(main, words).stdout)["nearest"][0]["nearly"]

    reason = "would fit but for NodeAffinity: node(s) didn't match Pod's node affinity/selector"
    assert nearly("picky") == f"{reason} (label zone is <none>, the pod wants a)"
    assert nearly("affine") == f"{reason} (the pod wants disk In [ssd, nvme], disk is hdd)"


def test_a_member_is_told_whether_its_gang_can_start(tmp_path):
    (tmp_path / "p.policy").write_text("gang: by pod.label[job] min 3\n")

    def told(*members):
        manifests = [node("n1", "2"), *members]
        for one in members:
            one["metadata"]["labels"] = {"job": "j"}
        (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(manifests))
        files = ("-f", str(tmp_path / "all.yaml"), "--policies", str(tmp_path / "p.policy"))
        words = ["explain", "pod", "m-1", "--format", "json", *files]
        return json.loads(CliRunner().invoke(main, words).stdout)["gang"]

    head = "It is in a gang (p.policy:1). j: the pod, and 0 bound, 0 assumed,"
    alone = "gang j has 1 of the 3 members that it needs"
    assert told(pod("m-1", "1")) == f"{head} 0 pending; 3 are needed: {alone}."
    three = [pod(f"m-{number}", "1") for number in (1, 2, 3)]
    little = "gang j: 2 of the 3 members that it needs fit"
    assert told(*three) == f"{head} 2 pending; 3 are needed: {little}."
    three = [pod(f"m-{number}", "500m") for number in (1, 2, 3)]
    assert told(*three) == f"{head} 2 pending; 3 are needed: they can start together."
    (tmp_path / "p.policy").write_text(
        "gang: by pod.label[job] min 3 wait 5m reject above 40% missing\n"
    )
    assert told(*three) == f"{head} 2 pending; 3 are needed: they can start together."
    large = [pod(f"m-{number}", "1") for number in (1, 2, 3)]
    wait = f"{little}, and may wait on their nodes for the others"
    assert told(*large) == f"{head} 2 pending; 3 are needed: {wait}."
    three[2]["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
    two = "gang j has 2 of the 3 members that it needs"
    assert told(*three) == f"{head} 1 pending, 1 held by a gate; 3 are needed: {two}."
    (tmp_path / "p.policy").write_text("gang: by pod.label[job] min number(pod.label[size])\n")
    unsaid = "gang j does not say how many members it needs"
    assert told(pod("m-1", "1")) == f"{head} 0 pending: {unsaid}."


def test_a_member_is_told_where_its_gang_leaves_it_a_node(tmp_path):
    (tmp_path / "p.policy").write_text('gang: by pod.label[job] min 2 within "hall"\n')
    first, second = pod("m-1", "1"), pod("m-2", "1")
    first["spec"]["nodeName"] = "n1"
    for one in (first, second):
        one["metadata"]["labels"] = {"job": "j"}
    manifests = [node("n1", "2", hall="a"), node("n2", "2", hall="a"), node("n3", hall="b")]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all([*manifests, first, second]))
    files = ("-f", str(tmp_path / "all.yaml"), "--policies", str(tmp_path / "p.policy"))
    text = CliRunner().invoke(main, ["explain", "pod", "m-2", *files]).stdout
    assert "they can start together, the pod on one of n1, n2.\nBy itself:\n" in text


def test_pods_that_wait_in_permit_are_named_and_have_the_room_that_kubectl_does_not_show(tmp_path):
    said = {"type": "PodScheduled", "status": "False", "reason": "WaitingOnPermit"}
    held = pod("held", "4") | {"status": {"conditions": [said], "nominatedNodeName": "n1"}}
    lost = pod("lost", "1") | {"status": {"conditions": [said]}}
    manifests = [node("n1"), held, lost, pod("web", "1", priority=7)]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(manifests))
    files = ("-f", str(tmp_path / "all.yaml"), "--format", "json")

    def told(*what):
        return json.loads(CliRunner().invoke(main, ["explain", *what, *files]).stdout)

    words = "these pods were given nodes, and wait in permit: "
    others = "default/lost on a node that is not known"
    assert f"{words}default/held on n1, {others}" in told("pod", "web")["notes"]
    assert told("pod", "web")["nearest"][0]["misses"][0]["reason"] == "Insufficient cpu"
    assert f"{words}{others}" in told("pod", "held")["notes"]
    assert told("pod", "held")["node"] == "n1"
    guests = [one["pod"] for one in told("node", "n1")["pods"]]
    assert sorted(guests) == ["default/lost", "default/web"]


def test_a_metric_of_which_prometheus_has_no_series_is_named(tmp_path):
    (tmp_path / "p.policy").write_text(
        'metric disk = promql "no_such"\nprefer: least disk + load\n'
    )

    async def explained():
        async with EmbeddedCluster(nodes=1) as cluster:
            containers = [{"name": "c", "image": "i"}]
            spec = {"schedulerName": "berth", "containers": containers}
            cluster.create("pods", {"metadata": {"name": "web"}, "spec": spec}, namespace="default")
            (tmp_path / "kubeconfig").write_text(yaml.safe_dump(cluster.kubeconfig()))
            words = ["explain", "pod", "default/web", "--kubeconfig", str(tmp_path / "kubeconfig")]
            words += ["--policies", str(tmp_path / "p.policy")]
            words += ["--prometheus-url", cluster.prometheus_url, "--format", "json"]
            return await asyncio.to_thread(CliRunner().invoke, main, words)

    notes = json.loads(asyncio.run(explained()).stdout)["notes"]
    assert [one for one in notes if "missing" in one] == ["disk is missing: no sample of it"]


@pytest.mark.parametrize(
    ("there", "given", "node", "note"),
    [
        (True, (), None, "no policies given: those of ConfigMap berth-system/policies are asked"),
        (False, (), "node-01", "no policies given: name those in force"),
        (True, ("--config", "none.yaml"), "node-01", "no policies given: name those in force"),
    ],
)
def test_where_no_policies_are_given_those_of_the_usual_config_map_count(
    tmp_path, monkeypatch, there, given, node, note
):
    monkeypatch.chdir(tmp_path)
    config = {"apiVersion": "berth.dev/v1", "kind": "BerthConfiguration"}
    (tmp_path / "none.yaml").write_text(yaml.safe_dump(config))

    async def explained():
        async with EmbeddedCluster(nodes=1) as cluster:
            containers = [{"name": "c", "image": "i"}]
            spec = {"schedulerName": "berth", "containers": containers}
            cluster.create("pods", {"metadata": {"name": "web"}, "spec": spec}, namespace="default")
            cluster.create("namespaces", {"metadata": {"name": "berth-system"}})
            if there:
                data = {"p.policy": "filter: node.label here=yes\n"}
                item = {"metadata": {"name": "policies"}, "data": data}
                cluster.create("configmaps", item, namespace="berth-system")
            (tmp_path / "kubeconfig").write_text(yaml.safe_dump(cluster.kubeconfig()))
            words = ["explain", "pod", "default/web", "--kubeconfig", "kubeconfig"]
            return await asyncio.to_thread(
                CliRunner().invoke, main, [*words, *given, "--format", "json"]
            )

    done = asyncio.run(explained())
    told = json.loads(done.stdout)
    assert told["node"] == node
    assert [one for one in told["notes"] if one.startswith(note)]


@pytest.mark.parametrize(
    ("given", "metrics"), [((), 2), (("--config", "none.yaml"), 0), (("--policies", "p.policy"), 1)]
)
async def test_where_no_configuration_is_given_that_of_the_cluster_holds(
    tmp_path, monkeypatch, given, metrics
):
    monkeypatch.chdir(tmp_path)
    of = {"apiVersion": "berth.dev/v1", "kind": "BerthConfiguration"}
    (tmp_path / "none.yaml").write_text(yaml.safe_dump(of))
    (tmp_path / "p.policy").write_text("prefer: least load\n")
    async with EmbeddedCluster(nodes=2) as cluster:
        cluster.create("namespaces", {"metadata": {"name": "berth-system"}})
        policies = {"configMap": "berth-system/rules"}
        config = of | {"policies": policies, "prometheus": {"url": cluster.prometheus_url}}
        for name, data in (
            ("berth-config", {"config.yaml": yaml.safe_dump(config)}),
            ("rules", {"p.policy": "prefer: least load\nprefer: least bandwidth\n"}),
            ("policies", {"p.policy": "filter: never\n"}),
        ):
            item = {"metadata": {"name": name}, "data": data}
            cluster.create("configmaps", item, namespace="berth-system")
        spec = {"schedulerName": "berth", "containers": [{"name": "c", "image": "i"}]}
        cluster.create("pods", {"metadata": {"name": "web"}, "spec": spec}, namespace="default")
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(cluster.kubeconfig()))
        words = ["explain", "pod", "web", "--kubeconfig", "kubeconfig", *given]
        done = await asyncio.to_thread(CliRunner().invoke, main, [*words, "--format", "json"])
    told = json.loads(done.stdout)
    rules = [one for one in told["best"][0]["scores"] if "p.policy" in json.dumps(one)]
    assert sum(len(one.get("lines", ())) for one in rules) == metrics, told
    note = "no --config given: that of ConfigMap berth-system/berth-config holds"
    assert (note in told["notes"]) == ("--config" not in given)


async def test_of_the_usual_config_map_the_last_good_texts_count_as_in_the_scheduler(tmp_path):
    async with EmbeddedCluster(nodes=1) as cluster:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(cluster.kubeconfig()))
        cluster.create("namespaces", {"metadata": {"name": "berth-system"}})
        data = {"p.policy": "filter: node.label here=yes\n"}
        item = {"metadata": {"name": "policies"}, "data": data}
        cluster.create("configmaps", item, namespace="berth-system")
        stop = asyncio.Event()
        options = options_of(cluster, "berth-system/policies", "berth-system/berth")
        running = asyncio.create_task(App(options, clock=SystemClock()).run(stop))
        for _ in range(1200):
            if any("last-good" in one["metadata"]["name"] for one in cluster.list("configmaps")):
                break
            await asyncio.sleep(0.05)
        stop.set()
        await running
        broken = {"data": {"p.policy": "filter: node.lable here=yes\n"}}
        cluster.patch("configmaps", "policies", broken, namespace="berth-system")
        spec = {"schedulerName": "berth", "containers": [{"name": "c", "image": "i"}]}
        cluster.create("pods", {"metadata": {"name": "web"}, "spec": spec}, namespace="default")
        words = ["explain", "pod", "web", "--kubeconfig", str(kubeconfig), "--format", "json"]
        done = await asyncio.to_thread(CliRunner().invoke, main, words)
    told = json.loads(done.stdout)
    assert told["node"] is None
    assert any(one.endswith("its last good texts are in force") for one in told["notes"])


def test_a_pipe_among_the_policies_is_told_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.policy")
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(OBJECTS))
    files = ("-f", str(tmp_path / "all.yaml"), "--policies", str(tmp_path))
    result = CliRunner().invoke(main, ["explain", "pod", "web", *files])
    assert result.stderr == f"Error: {tmp_path}/a.policy: it is not a regular file\n"


def test_what_a_scheduler_passes_over_in_a_folder_is_passed_over(tmp_path):
    (tmp_path / "old.policy").mkdir()
    (tmp_path / ".#a.policy").symlink_to("somebody@here.1")  # an editor's
    (tmp_path / "a.policy").write_text("filter: node.label test=test\n")
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(OBJECTS))
    files = ("-f", str(tmp_path / "all.yaml"), "--policies", str(tmp_path))
    result = CliRunner().invoke(main, ["explain", "pod", "web", *files])
    assert (result.exit_code, result.stderr) == (0, "")
    assert "a.policy" in result.stdout


def missed(pod, cache, **profile):
    """What is in the way of the pod, by node."""
    framework = Framework(Profile("berth", default_plugins(), **profile))
    found = explain(pod, cache.snapshot(0.0), framework).misses
    return {
        node.name: [(one.plugin, one.reason) for one in node.misses] for node in found.nearest(9)
    }


def test_a_node_that_a_pod_does_not_name_is_told_once():
    cache, in_ = Cache(), {"key": "metadata.name", "operator": "In", "values": ["a"]}
    for name in "ab":
        cache.add_node(make_node(name, cpu="1"))
    terms = {"nodeSelectorTerms": [{"matchFields": [in_]}]}
    named = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    cpu = ("NodeResourcesFit", "Insufficient cpu")
    words = "node(s) didn't match Pod's node affinity/selector (the pod wants metadata.name In [a])"
    found = missed(make_pod("p", cpu="2", spec={"affinity": named}), cache)
    assert found == {"a": [cpu], "b": [("NodeAffinity", words), cpu]}


def test_nodes_that_a_profile_does_not_see_are_not_told():
    cache = Cache()
    for name in "ab":
        cache.add_node(make_node(name, cpu="1", labels={"pool": name}))
    found = missed(make_pod("p", cpu="2"), cache, node_selector={"pool": "b"})
    assert found == {"b": [("NodeResourcesFit", "Insufficient cpu")]}


def test_room_that_is_promised_to_others_is_told():
    cache = Cache()
    cache.add_node(make_node("a", cpu="1"))
    cache.nominate(make_pod("first", cpu="1", priority=9), "a")
    words = "the room is promised to pods that are nominated to the node"
    assert missed(make_pod("p", cpu="1"), cache) == {"a": [("nominated pods", words)]}


def test_a_node_that_is_asked_about_is_told_wherever_it_comes(explained):
    text = explained("pod", "web-big", "--most", "1", "--node", "n4")
    assert "n4 would fit but for TaintToleration" in text
    assert "no node n11; did you mean n1?" in explained("pod", "web", "--node", "n11", exit_code=1)


def test_a_pod_on_a_node_is_decided_about_as_if_it_were_not_there(explained):
    text = explained("pod", "busy")
    assert "The pod is on n2. If it were pending" in text
    assert "2 are equally good, and the tie is broken by name" in text
    other = "n2" if "default/busy: n3" in text else "n3"
    assert f"{other} has the same scores." in text


def test_a_node_is_told_by_the_pods_that_could_come(explained):
    text = explained("node", "n1", *METRICS)
    assert "n1: 1 of 2 pending pods could come here, 1 would be placed here now" in text
    assert "default/web      would be placed here" in text
    assert "default/web-big  would fit with 3900m more cpu (it has 4 in all)" in text
    told = json.loads(explained("node", "n2", "--format", "json", *METRICS))
    web, big = told["pods"]
    assert (web["verdict"], web["node"]) == ("could", "n1")
    assert (big["verdict"], big["nearly"]) == ("cannot", "would fit with 5900m more cpu")


def test_lines_that_stop_a_pod_before_the_nodes_are_shown(explained, tmp_path):
    stop = "gate: namespace.label open=yes\nprefilter: pod.cpu < 4\n"
    (tmp_path / "net.policy").write_text(stop)
    text = explained("pod", "web")
    assert "It is not tried yet: net: namespace.label open=yes is false" in text
    assert "net.policy:1  gate: namespace.label open=yes" in text
    (tmp_path / "net.policy").write_text(stop.splitlines()[1])
    text = explained("pod", "web-big")
    assert "net.policy:1  prefilter: pod.cpu < 4" in text
    assert "pod.cpu  7900m" in text


def test_what_policies_read_beside_nodes_and_pods_is_there(explained, tmp_path):
    (tmp_path / "net.policy").write_text("prefilter: count(queue.pods) < 1\n")
    assert "count(queue.pods) < 1 is false: count(queue.pods) is 1" in explained("pod", "web")
    lease = {"kind": "Lease", "spec": {"renewTime": "2025-03-01T10:00:00.000000Z"}}
    lease["metadata"] = {"name": "n1", "namespace": "kube-node-lease"}
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all([*OBJECTS, lease]))
    (tmp_path / "net.policy").write_text("filter: node.heartbeat is present\n")
    assert "n1 is the only node that can take it, of 4." in explained("pod", "web")
    made = {"kind": "Deployment", "metadata": {"name": "many"}, "spec": {"replicas": 3}}
    made["spec"]["template"] = {"spec": pod("many", "1")["spec"]}
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all([*OBJECTS, made]))
    (tmp_path / "net.policy").write_text("filter: workload.replicas == 3\n")
    assert "of 3 nodes that can take it, of 4" in explained("pod", "many")


def test_templates_of_which_a_dump_has_pods_are_none(explained, tmp_path):
    """A Deployment with its pod, its ReplicaSet and an older one, and one that has no pods yet."""

    def workload(kind, name, **owner):
        meta = {"name": name, "namespace": "default", "uid": name, **owner}
        spec = {"template": {"spec": pod(name, "1")["spec"]}}
        return {"kind": kind, "metadata": meta, "spec": spec}

    of = {"ownerReferences": [{"kind": "Deployment", "name": "app", "controller": True}]}
    sets = [workload("ReplicaSet", f"app-{number}", **of) for number in (1, 2)]
    mine = pod("app-2-x", "1")
    mine["metadata"] |= {"labels": {"pod-template-hash": "2"}}
    owner = {"kind": "ReplicaSet", "name": "app-2", "controller": True}
    mine["metadata"]["ownerReferences"] = [owner]
    new = workload("Deployment", "new")
    dump = [*OBJECTS, workload("Deployment", "app"), *sets, mine, new]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(dump))
    (tmp_path / "net.policy").write_text("score: 1\n")
    told = json.loads(explained("node", "n1", "--format", "json"))
    assert {one["pod"] for one in told["pods"]} == {
        f"default/{name}" for name in ("web", "web-big", "app-2-x", "new")
    }


def test_what_would_be_said_on_the_node_is_told(explained, tmp_path):
    rules = tmp_path / "net.policy"
    for text, said in (
        ("permit: pod.name is web -> reject\n", "refused there: permit: pod.name is web -> reject"),
        ("permit: wait 5m until pod.label go\n", "made to wait there: permit: wait 5m until"),
        ("reserve: count(node.pods) < 1\n", "refused there: count(node.pods) < 1 is false"),
    ):
        rules.write_text(text)
        (line,) = [one for one in explained("pod", "web").splitlines() if "It would be" in one]
        assert line.startswith(f"It would be {said}")
        assert line.endswith(" (net.policy:1).")
        assert json.loads(explained("pod", "web", "--format", "json"))["then"].startswith(said)
    rules.write_text("permit: pod.name is other -> reject\nreserve: count(node.pods) < 2\n")
    assert "It would be" not in explained("pod", "web")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("pod", "default/wep"), "there is no pod default/wep; did you mean default/web?"),
        (("pod",), "write one of: CODE, WORD, pod NS/NAME, node NAME"),
        (("pods", "web"), "write one of: CODE, WORD, pod NS/NAME, node NAME"),
        (("node", "n7"), "there is no node n7"),
    ],
)
def test_what_is_not_there_is_said(explained, words, said):
    exit_code = 2 if words[0] == "pods" or len(words) == 1 else 1
    assert said in explained(*words, exit_code=exit_code)


def test_metrics_that_are_not_given_are_named(explained, tmp_path):
    text = 'metric seats = object "core/configmaps" field "data.seats" by cluster\n'
    (tmp_path / "net.policy").write_text(f"{text}gate: (seats ?? 0) > 1\n")
    files = ("-f", str(tmp_path / "all.yaml"), "--policies", str(tmp_path / "net.policy"))
    for given, said in ((), 1), (("--metric", "seats=2"), 0):
        result = CliRunner().invoke(main, ["explain", "pod", "web", *files, *given])
        assert result.stderr.count("metric seats is missing: give it with --metric") == said


def test_samples_need_manifests(tmp_path):
    result = CliRunner().invoke(main, ["explain", "pod", "web", *METRICS])
    assert "--metric and --now need -f FILE" in result.output


# ---- journals ------------------------------------------------------------------------------------


def test_a_journal_tells_how_a_pod_was_decided_about_then(tmp_path):
    recording = Recording()
    recording.rules({"net.policy": POLICY})
    for name, cpu in (("n1", "4"), ("n2", "8")):
        recording.cache.add_node(make_node(name, cpu=cpu, labels={"test": "test"}))
    recording.placed(make_pod_info(from_builtins(Pod, pod("web-big", "16"))))
    recording.clock.advance(60.0)
    recording.sample({"n1": 50.0, "n2": 10.0})
    recording.placed(make_pod_info(from_builtins(Pod, pod("web", "1"))))
    recording.cache.add_node(make_node("n3", cpu="64", labels={"test": "test"}))
    path = tmp_path / "journal"
    path.write_bytes(recording.out.getvalue())

    def run(*words):
        return CliRunner().invoke(main, ["explain", *words, "--journal", str(path)])

    text = run("pod", "default/web").output
    assert "Decided once; the last time at 2025-03-01T10:01:00+00:00, line " in text
    assert "n2 is the best of 2 nodes" in text
    assert "n3" not in text, "it came later"
    # A node that came later is none of then.
    told = json.loads(run("pod", "web-big", "--node", "n3", "--format", "json").output)
    assert [one["nearly"] for one in told["nearest"]] == [
        "would fit with 8 more cpu (it has 8 in all)",
        "would fit with 12 more cpu (it has 4 in all)",
    ]
    assert "there is no pod default/weg; did you mean default/web?" in run("pod", "weg").output
    assert "a journal explains pods only" in run("node", "n1").output


def test_a_pod_of_another_scheduler_has_the_promise_that_it_says(tmp_path):
    theirs = {**pod("p", "1", schedulerName="other"), "status": {"nominatedNodeName": "n1"}}
    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump_all([node("n1"), node("n2", "64"), theirs]))
    result = CliRunner().invoke(main, ["explain", "pod", "p", "-f", str(path)])
    assert "n1 was promised to it" in result.output


def test_a_pod_that_preempts_is_told_where_and_whom(tmp_path):
    manifests = [node("n1"), pod("low", "4", nodeName="n1"), pod("high", "2", priority=9)]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(manifests))
    result = CliRunner().invoke(main, ["explain", "pod", "high", "-f", str(tmp_path / "all.yaml")])
    assert "It is promised n1, from which default/low would be evicted." in result.output
    assert "n1 would fit with 2 more cpu" in result.output


def test_a_pod_is_none_of_those_that_wait_beside_it():
    cache, waiting = Cache(), make_pod("web")
    cache.attend(frozenset({"queue"}))
    cache.add_node(make_node("n1"))
    cache.set_queued(waiting, QueueTimes(NOW, None, 0))
    told = explain(waiting, cache.snapshot(NOW), chain({"p.policy": RULE_OF_QUEUE}))
    assert told.decision.node == "n1"
    assert told.misses is not None
    assert len(told.misses) == 0


def test_policies_that_have_a_version_are_named_with_it():
    cache, pod = Cache(), make_pod("web")
    cache.add_node(make_node("n1"))
    texts = {"a.policy": "version: 1.2.0\nfilter: node.ready\n", "b.policy": "filter: node.ready\n"}
    told = explain(pod, cache.snapshot(NOW), chain(texts))
    assert next(lines_of(told, 1)).endswith(", a 1.2.0)")
    assert object_of(told, 1)["versions"] == {"a": "1.2.0"}
