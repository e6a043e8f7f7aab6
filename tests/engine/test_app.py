"""The whole process against an embedded cluster, in one event loop."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import click
import pytest
import yaml
from msgspec.structs import replace

from engine.app import App, Hooks, RunOptions
from engine.cli.replay import frameworks_of
from engine.clock import SystemClock
from engine.comparer import differences
from engine.configuration.scheduler import LeaderElection
from engine.configuration.settings import ConfigError, Settings
from engine.embedded import EmbeddedCluster, Pace
from engine.journal.replay import replay
from engine.kube.client import Response
from engine.kube.errors import LeaseLost, Unreachable
from engine.kube.events import KubeEventSink
from engine.kube.session import Session
from engine.kube.wiring import Wiring
from engine.queue import SubQueue
from engine.telemetry import (
    ATTEMPTS,
    RULE_REJECTIONS,
    SHADOW_OUTCOMES,
    Count,
    Telemetry,
)
from tests.builders import make_node, make_pod

NAMESPACE = "rules"
FILTER = "filter: pod.name contains nginx -> node.label test=test\n"
SCORE = "score: 100 - bandwidth/max*100\n"
TWO = {"home.policy": FILTER, "network.policy": SCORE}
BROKEN = {"home.policy": FILTER.replace("label", "lable"), "network.policy": SCORE}
FAST = Pace(kubelet_seconds=0.01, signal_seconds=0.01, bookmark_seconds=0.5)


class Process:
    """A scheduler and its cluster, and what may be asked of them."""

    def __init__(self, cluster, settings, kubeconfig, journal=None):
        self.cluster = cluster
        self.bundles, self.refusals, self.placed = [], [], []
        hooks = Hooks([self._placed], [self.bundles.append], [self.refusals.append])
        options = RunOptions(settings, kubeconfig, journal)
        self.app = App(options, clock=SystemClock(), hooks=hooks)
        self.stop = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self.app.run(self.stop))

    def _placed(self, placed):
        self.placed.append((placed.decision.pod.name, placed.decision.node))

    async def until(self, happened, seconds=120.0):
        """Looks every few milliseconds; a process that ended with an error ends the test."""
        for _ in range(int(seconds / 0.002)):
            if happened():
                return
            if self.task.done():
                await self.task
            await asyncio.sleep(0.002)
        pytest.fail("it never happened")

    # --- the cluster

    def rules(self, files):
        """Writes the ConfigMap."""
        maps = {c["metadata"]["name"] for c in self.cluster.list("configmaps")}
        if "policies" in maps:
            # A merge patch: what is not there any more has to be said.
            old = self.cluster.get("configmaps", "policies", namespace=NAMESPACE).get("data") or {}
            data = {**dict.fromkeys(old), **files}
            self.cluster.patch("configmaps", "policies", {"data": data}, namespace=NAMESPACE)
        else:
            config_map = {"metadata": {"name": "policies"}, "data": files}
            self.cluster.create("configmaps", config_map, namespace=NAMESPACE)

    def pod(self, name, scheduler="berth", gates=None, **container):
        spec = {
            "schedulerName": scheduler,
            "schedulingGates": gates,
            "containers": [{"name": "c", "image": "i", **container}],
        }
        pod = {"metadata": {"name": name}, "spec": spec}
        self.cluster.create("pods", pod, namespace="default")
        return name

    def node_of(self, name):
        return self.cluster.get("pods", name, namespace="default")["spec"].get("nodeName")

    async def lands(self, name):
        await self.until(lambda: self.node_of(name))
        return self.node_of(name)

    def condition(self, name):
        status = self.cluster.get("pods", name, namespace="default").get("status") or {}
        found = [c for c in status.get("conditions") or () if c["type"] == "PodScheduled"]
        return (
            (found[0]["status"], found[0].get("reason"), found[0].get("message", ""))
            if found
            else None
        )

    def refused_for(self, text):
        """The Event about the ConfigMap that says so in its first line."""
        notes = (note for reason, note in self.events("ConfigMap") if reason == "PoliciesRefused")
        return next((note for note in notes if text in note.partition("\n")[0]), None)

    def events(self, kind):
        return [
            (event["reason"], event.get("note") or event.get("message"))
            for event in self.cluster.list("events")
            if (event.get("regarding") or event.get("involvedObject"))["kind"] == kind
        ]

    @property
    def test_nodes(self):
        nodes = self.cluster.list("nodes")
        return {
            n["metadata"]["name"] for n in nodes if n["metadata"]["labels"].get("test") == "test"
        }


def settings_of(cluster=None, *, config_map=True, folder=None, **berth):
    policies = {"configMap": f"{NAMESPACE}/policies"} if config_map else {}
    if folder is not None:
        policies = {"dir": str(folder)}
    prometheus = {} if cluster is None else {"url": cluster.prometheus_url}
    return Settings.model_validate(
        {"berth": {"policies": policies, "prometheus": prometheus, **berth}}
    )


@asynccontextmanager
async def process(cluster, settings=None, kubeconfig=None, journal=None):
    settings = settings_of(cluster) if settings is None else settings
    made = Process(cluster, settings, kubeconfig or cluster.kubeconfig(), journal)
    try:
        yield made
        made.stop.set()
        async with asyncio.timeout(60):
            await made.task
    finally:
        made.task.cancel()


@asynccontextmanager
async def embedded(nodes=6, files=TWO, pace=FAST):
    with pytest.MonkeyPatch.context() as patch:
        # A look at all objects would be one at those of all tests.
        patch.setattr("engine.app.sweep", lambda: None)
        async with EmbeddedCluster(nodes=nodes, clock=SystemClock(), pace=pace) as cluster:
            cluster.create("namespaces", {"metadata": {"name": NAMESPACE}})
            if files is not None:
                config_map = {"metadata": {"name": "policies"}, "data": files}
                cluster.create("configmaps", config_map, namespace=NAMESPACE)
            yield cluster


# ---- placing pods --------------------------------------------------------------------------------


async def test_two_policies_in_a_config_map_place_our_pods_and_no_others():
    async with embedded() as cluster, process(cluster) as berth:
        await berth.until(lambda: berth.bundles)
        assert [plan.name for plan in berth.bundles[0].plans] == ["home", "network"]
        theirs = berth.pod("nginx-theirs", scheduler="default-scheduler")
        nginx = [berth.pod(f"nginx-{number}") for number in range(8)]
        redis = berth.pod("redis")
        assert {await berth.lands(name) for name in nginx} <= berth.test_nodes
        assert await berth.lands(redis)
        await berth.until(lambda: len(berth.events("Pod")) >= 9)
        assert {reason for reason, _ in berth.events("Pod")} == {"Scheduled"}
        await berth.until(lambda: "PoliciesInForce" in dict(berth.events("ConfigMap")))
        assert theirs not in dict(berth.placed)
        assert (berth.node_of(theirs), berth.condition(theirs)) == (None, None)


@pytest.mark.parametrize("files", [None, TWO])
async def test_a_journal_gives_the_same_decisions_with_policies_and_without(files, tmp_path):
    path = tmp_path / "journal"
    with path.open("wb") as journal:
        async with embedded(files=files) as cluster:
            settings = settings_of(cluster, config_map=files is not None)
            async with process(cluster, settings, journal=journal) as berth:
                for name in ("nginx", "redis"):
                    await berth.lands(berth.pod(name))
    report = replay(path, frameworks_of())
    assert (report.decisions, report.equal) == (2, 2)


async def test_the_event_about_policies_in_force_has_the_first_of_their_warnings():
    rules = "filter: node.label a != null\n"
    files = {"a.policy": rules + "filter: pod.label[b] is null\n"}
    files["b.policy"] = "mode: shadow\nscore: 1\n"
    async with embedded(nodes=1, files=files) as cluster, process(cluster) as berth:
        await berth.until(lambda: "PoliciesInForce" in dict(berth.events("ConfigMap")))
        note = dict(berth.events("ConfigMap"))["PoliciesInForce"]
        (bundle,) = berth.bundles
        assert note == (
            f"in force: a, b (shadow) (bundle {bundle.hash}); 3 warnings: "
            "a.policy:1:25: P317 `null` is an ordinary word here"
        )


async def test_the_least_busy_node_wins_once_samples_are_there():
    still = replace(FAST, signal_seconds=float("inf"))
    async with embedded(pace=still) as cluster:
        nodes = [node["metadata"]["name"] for node in cluster.list("nodes")]
        for number, name in enumerate(nodes):
            cluster.nodes.signals["node_network_receive"][name] = 0.0 if number == 3 else 9e7
        async with process(cluster) as berth:
            await berth.until(lambda: berth.app.telemetry[Count.SIGNAL_QUERIES])
            await berth.until(lambda: any(s.matched for s in berth.app.signals.status()))
            assert await berth.lands(berth.pod("redis")) == nodes[3]


async def test_a_pod_that_fits_nowhere_is_told_the_rule_and_placed_once_it_does():
    files = {"home.policy": "filter: node.label home=yes\n"}
    async with embedded(nodes=3, files=files) as cluster, process(cluster) as berth:
        name = berth.pod("p")
        await berth.until(lambda: berth.condition(name))
        status, reason, message = berth.condition(name)
        assert (status, reason) == ("False", "Unschedulable")
        assert message == (
            "0/3 nodes are available: 3 node.label home=yes is false: home is <none>"
            " (home.policy:1). preemption: 0/3 nodes are available: 3 Preemption is not helpful"
            " for scheduling."
        )
        cluster.patch("nodes", "node-02", {"metadata": {"labels": {"home": "yes"}}})
        assert await berth.lands(name) == "node-02"


# ---- the source ----------------------------------------------------------------------------------


async def test_an_edit_is_obeyed_without_a_restart():
    async with embedded() as cluster, process(cluster) as berth:
        assert await berth.lands(berth.pod("nginx-1")) in berth.test_nodes
        counted, places = berth.app.telemetry, [("home.policy", "1"), ("home.policy", "2")]
        for place in (*places, ("network.policy", "1")):
            counted.count(RULE_REJECTIONS, *place)
            counted.count(SHADOW_OUTCOMES, "moved", *place)
        berth.rules({"home.policy": "\nfilter: node.name is node-02\n", "network.policy": None})
        await berth.until(lambda: len(berth.bundles) == 2)
        known = {metric: {*series} for metric, series in counted.families()}
        assert known[RULE_REJECTIONS] == {places[1]}, "of lines without a rule nothing is counted"
        assert known[SHADOW_OUTCOMES] == {("moved", *places[1])}
        assert [plan.name for plan in berth.bundles[1].plans] == ["home"]
        assert await berth.lands(berth.pod("nginx-2")) == "node-02"


async def test_a_source_that_is_no_good_keeps_the_rules_and_says_so(caplog):
    said = {
        "broken": "was refused: home.policy:1:36: P101 there is no field `node.lable`",
        "emptied": "ConfigMap rules/policies has no file whose name ends in .policy; "
        "it has home.txt",
        "deleted": "ConfigMap rules/policies does not exist",
    }
    async with embedded() as cluster, process(cluster) as berth:
        await berth.until(lambda: berth.bundles)
        stays = f"bundle {berth.bundles[0].hash} stays in force"
        for number, (change, text) in enumerate(said.items(), 1):
            match change:
                case "broken":
                    berth.rules(BROKEN)
                case "emptied":
                    berth.rules({**dict.fromkeys(TWO), "home.txt": "filter: node.ready"})
                case "deleted":
                    cluster.delete("configmaps", "policies", namespace=NAMESPACE)
            await berth.until(lambda number=number: len(berth.refusals) == number)
            assert await berth.lands(berth.pod(f"nginx-{number}")) in berth.test_nodes
            await berth.until(lambda text=text: berth.refused_for(text))
            assert stays in berth.refused_for(text)
        assert "did you mean" in berth.refused_for(said["broken"])
        assert len(berth.bundles) == 1
        assert berth.app.telemetry[Count.POLICY_RELOADS_REFUSED] == 3
        berth.rules({"home.policy": "filter: node.name is node-02\n"})
        await berth.until(lambda: len(berth.bundles) == 2)
    logged = "\n".join(record.getMessage() for record in caplog.records)
    assert all(text in logged for text in said.values())


async def test_without_its_config_map_nothing_is_scheduled_until_it_is_there():
    async with embedded(files=None) as cluster, process(cluster) as berth:
        name = berth.pod("nginx")
        await berth.until(lambda: berth.refusals)
        assert berth.refusals[0].summary == "ConfigMap rules/policies does not exist"
        await asyncio.sleep(0.02)
        assert (berth.node_of(name), berth.placed) == (None, [])
        berth.rules(TWO)
        assert await berth.lands(name) in berth.test_nodes


async def test_a_folder_is_a_source_too_and_seen_while_nothing_else_happens(tmp_path):
    (tmp_path / "home.policy").write_text("filter: node.name is node-02\n", "utf-8")
    async with embedded(files=None) as cluster:
        settings = settings_of(folder=tmp_path)
        async with process(cluster, settings) as berth:
            assert await berth.lands(berth.pod("one")) == "node-02"
            text = "filter: node.name is node-03\n"
            await asyncio.to_thread((tmp_path / "home.policy").write_text, text, "utf-8")
            await berth.until(lambda: len(berth.bundles) == 2, seconds=3.0)
            assert await berth.lands(berth.pod("two")) == "node-03"


def kept_in_the_cluster(**policies):
    return settings_of(
        policies={"configMap": f"{NAMESPACE}/policies", "state": f"{NAMESPACE}/berth", **policies}
    )


def standing(cluster):
    """What the status ConfigMap says; None before it is there."""
    found = [c for c in cluster.list("configmaps") if c["metadata"]["name"] == "berth-status"]
    return json.loads(found[0]["data"]["status.json"]) if found else None


async def test_the_last_good_rules_outlive_the_process_and_a_broken_config_map():
    async with embedded() as cluster:
        async with process(cluster, kept_in_the_cluster()) as berth:
            assert await berth.lands(berth.pod("nginx-1")) in berth.test_nodes
            await berth.until(lambda: (standing(cluster) or {}).get("bundle"))
            berth.rules(BROKEN)
            await berth.until(lambda: standing(cluster)["sources"][0]["why"])
            (source,) = standing(cluster)["sources"]
            assert source["source"] == "ConfigMap rules/policies"
            assert source["state"] == "PoliciesRefused"
            assert source["policies"] == ["home", "network"]
            assert "did you mean" in source["why"]
            before = berth.bundles[0].hash
        async with process(cluster, kept_in_the_cluster()) as berth:
            assert await berth.lands(berth.pod("nginx-2")) in berth.test_nodes
            assert [one.hash for one in berth.bundles] == [before]
            await berth.until(lambda: berth.refused_for("P101"))
            assert f"bundle {before} stays in force" in berth.refused_for("P101")
            berth.rules({"home.policy": "filter: node.name is node-02\n"})
            await berth.until(lambda: len(berth.bundles) == 2)
            assert await berth.lands(berth.pod("nginx-3")) == "node-02"


async def test_last_good_rules_that_wait_for_a_list_are_not_said_to_be_lost():
    async with embedded(files={"gangs.policy": "use coscheduling\n"}) as cluster:
        async with process(cluster, kept_in_the_cluster()) as berth:
            await berth.until(lambda: (standing(cluster) or {}).get("bundle"))
            berth.rules({"gangs.policy": "use coscheduling\nfilter: node.lable x\n"})
            await berth.until(lambda: standing(cluster)["sources"][0]["why"])
        async with process(cluster, kept_in_the_cluster()) as berth:
            await berth.until(lambda: berth.refused_for("until what its last good texts read"))
            assert await berth.lands(berth.pod("nginx-1"))


async def test_a_change_that_makes_pods_wait_is_taken_back_and_said():
    settings = kept_in_the_cluster(guard={"within": "1min", "pending": 3})
    async with embedded() as cluster, process(cluster, settings) as berth:
        await berth.lands(berth.pod("nginx-0"))
        berth.rules({"home.policy": "filter: node.name is nowhere\n", "network.policy": None})
        await berth.until(lambda: len(berth.bundles) == 2)
        names = [berth.pod(f"nginx-{number}") for number in range(1, 4)]
        assert {await berth.lands(name) for name in names} <= berth.test_nodes
        assert berth.bundles[2].hash == berth.bundles[0].hash
        assert "pending pods rose from 0 to 3" in berth.refusals[-1].text
        await berth.until(lambda: "PoliciesTakenBack" in dict(berth.events("ConfigMap")))
        await berth.until(lambda: standing(cluster)["sources"][0]["state"] == "PoliciesTakenBack")


async def test_pods_that_waited_before_an_edit_are_not_what_came_with_it():
    rules = [{"home.policy": f"filter: node.name is {name}\n"} for name in ("no", "none")]
    settings = kept_in_the_cluster(guard={"within": "1min", "pending": 3})
    async with embedded(files=rules[0]) as cluster, process(cluster, settings) as berth:
        counts = berth.app.queue.counts
        for number in range(3):
            berth.pod(f"nginx-{number}", resources={"requests": {"cpu": f"{number + 1}m"}})
        await berth.until(lambda: counts()[SubQueue.UNSCHEDULABLE] == 3)
        berth.rules(rules[1])
        await berth.until(lambda: len(berth.bundles) == 2)
        await berth.until(lambda: counts()[SubQueue.UNSCHEDULABLE] == 3)
        guard = berth.app._in_force._guard
        due = guard.due
        await berth.until(lambda: guard.due != due)
        assert not berth.refusals


async def test_what_no_policy_can_help_is_not_counted_by_their_guard():
    settings = kept_in_the_cluster(guard={"within": "1min", "errors": 1})
    async with embedded() as cluster, process(cluster, settings) as berth:
        await berth.until(lambda: berth.bundles)
        guard, telemetry = berth.app._in_force._guard, berth.app.telemetry
        for _ in range(2):
            telemetry.count(ATTEMPTS, "error", "berth")
        telemetry.add(Count.BINDINGS_PUT_OFF)
        assert guard.measure().errors == 1
        berth.pod("waits", resources={"requests": {"cpu": "1k"}})
        berth.pod("held", gates=[{"name": "of its owner"}])
        await berth.until(lambda: sum(berth.app.queue.rejected_by().values()) == 2)
        assert guard.measure().pending == 1, "nor are those that their owners hold"


async def test_rules_that_reject_every_node_disturb_no_running_pod_and_hold_the_next_until_mended():
    async with embedded() as cluster, process(cluster, kept_in_the_cluster()) as berth:
        where = await berth.lands(berth.pod("runs"))
        berth.rules({"home.policy": "filter: node.name is nowhere\n"})
        await berth.until(lambda: len(berth.bundles) == 2)
        berth.pod("waits")
        await berth.until(lambda: berth.condition("waits"))
        assert "home.policy:1" in berth.condition("waits")[2]
        await berth.until(lambda: standing(cluster))
        # Somebody edits how things stand: it is never read, and written anew with a change.
        text = {"data": {"status.json": "nonsense"}}
        cluster.patch("configmaps", "berth-status", text, namespace=NAMESPACE)
        berth.rules({"home.policy": FILTER})
        assert await berth.lands("waits")
        assert berth.node_of("runs") == where
        await berth.until(
            lambda: "nonsense" not in str(cluster.get("configmaps", "berth-status",
                                                      namespace=NAMESPACE))
        )  # fmt: skip


async def test_config_maps_of_a_selector_are_sources_and_leave_with_their_label():
    sources = [
        {"configMap": f"{NAMESPACE}/policies"},
        {"selector": "policies=yes", "namespace": NAMESPACE},
    ]
    settings = settings_of(policies={"sources": sources})
    async with embedded() as cluster, process(cluster, settings) as berth:
        await berth.until(lambda: berth.bundles)
        for name in ("one", "two"):
            labels = {"name": name, "labels": {"policies": "yes"}}
            data = {f"{name}.policy": "filter: node.name is node-02\n"}
            cluster.create("configmaps", {"metadata": labels, "data": data}, namespace=NAMESPACE)
        await berth.until(lambda: len(berth.bundles[-1].plans) == 4)
        assert await berth.lands(berth.pod("redis")) == "node-02"
        gone = {"metadata": {"labels": {"policies": None}}}
        cluster.patch("configmaps", "one", gone, namespace=NAMESPACE)
        await berth.until(lambda: len(berth.bundles[-1].plans) == 3)
        assert "rules/two/two.policy" in berth.bundles[-1].files


@pytest.mark.parametrize("kept", [{"state": f"{NAMESPACE}/berth"}, {}])
async def test_a_selector_that_finds_nothing_yet_holds_nobody(kept):
    sources = [{"selector": "policies=yes", "namespace": NAMESPACE}]
    settings = settings_of(policies={"sources": sources, **kept})
    async with embedded() as cluster, process(cluster, settings) as berth:
        assert await berth.lands(berth.pod("before"))
        meta = {"name": "one", "labels": {"policies": "yes"}}
        data = {"one.policy": "filter: node.name is node-02\n"}
        cluster.create("configmaps", {"metadata": meta, "data": data}, namespace=NAMESPACE)
        await berth.until(lambda: berth.bundles and berth.bundles[-1].plans)
        assert await berth.lands(berth.pod("after")) == "node-02"


async def test_a_namespace_rules_its_own_pods_and_a_broken_one_stops_nobody():
    tenants = {"configMap": "berth-policies", "namespaces": ["default", "team-b"]}

    def config_map(text):
        return {"metadata": {"name": "berth-policies"}, "data": {"a.policy": text}}

    settings = kept_in_the_cluster(tenants=tenants)
    async with embedded() as cluster:
        cluster.create("namespaces", {"metadata": {"name": "team-b"}})
        only = "filter: node.name is node-02\n"
        cluster.create("configmaps", config_map(only), namespace="default")
        cluster.create("configmaps", config_map(BROKEN["home.policy"]), namespace="team-b")
        async with process(cluster, settings) as berth:
            assert await berth.lands(berth.pod("redis")) == "node-02"
            assert sorted(berth.bundles[-1].tenants.items()) == [("default/a", "default")]
            await berth.until(lambda: berth.refused_for("P101"))
            assert "no rules of namespace team-b are in force" in berth.refused_for("P101")
            await berth.until(lambda: (standing(cluster) or {}).get("tenantsRefused") == 1)
            patch = {"data": {"a.policy": only.replace("02", "03")}}
            cluster.patch("configmaps", "berth-policies", patch, namespace="default")
            await berth.until(lambda: "node-03" in str(berth.bundles[-1].files))
            assert await berth.lands(berth.pod("redis-2")) == "node-03"
            patch = {"data": {"a.policy": BROKEN["home.policy"]}}
            cluster.patch("configmaps", "berth-policies", patch, namespace="default")
            await berth.until(lambda: standing(cluster)["tenantsRefused"] == 2)
        async with process(cluster, settings) as berth:
            assert await berth.lands(berth.pod("redis-3")) == "node-03", "kept, too"


async def test_only_the_pods_of_profiles_whose_source_is_no_good_wait(caplog):
    sources = [
        {"configMap": f"{NAMESPACE}/policies"},
        {"configMap": f"{NAMESPACE}/other", "profiles": ["other"]},
    ]
    given = settings_of(policies={"sources": sources}).model_dump()
    given["profiles"] = [{"scheduler_name": "berth"}, {"scheduler_name": "other"}]
    settings = Settings.model_validate(given)
    async with embedded() as cluster, process(cluster, settings) as berth:
        waits = berth.pod("waits", scheduler="other")
        assert await berth.lands(berth.pod("goes"))
        await berth.until(lambda: berth.condition(waits))
        assert "ConfigMap rules/other" in berth.condition(waits)[2]
        said = "ConfigMap rules/other does not exist; nothing is scheduled for other until "
        assert said in caplog.text
        assert berth.node_of(waits) is None
        data = {"metadata": {"name": "other"}, "data": {"a.policy": SCORE}}
        cluster.create("configmaps", data, namespace=NAMESPACE)
        assert await berth.lands(waits)


async def test_without_a_source_the_default_plugins_decide():
    plain = settings_of(config_map=False)
    async with embedded(files=None) as cluster, process(cluster, plain) as berth:
        assert await berth.lands(berth.pod("nginx"))


OF_CLASSES = """
from engine.framework.events import Action, ClusterEvent, ClusterEventWithHint, Resource
from engine.framework.interface import Points, PreFilterResult
from engine.framework.status import Status, unresolvable
from engine.objects import Described

class PriorityClass(Described, frozen=True):
    value: int = 0

class Opened:
    name = "Opened"

    def points(self):
        return Points(
            objects={"/apis/scheduling.k8s.io/v1/priorityclasses": PriorityClass},
            events=(ClusterEventWithHint(ClusterEvent(Resource.OBJECT, Action.ALL)),),
            pre_filter=self.pre_filter,
        )

    def pre_filter(self, pod, snapshot):
        there = snapshot.objects("PriorityClass").get("open")
        is_open = there is not None and there.value == 7
        status = Status.SUCCESS if is_open else unresolvable("closed")
        return PreFilterResult(status, version=lambda s: s.objects_version("PriorityClass"))

def make(args):
    return Opened()
"""


async def test_a_plugin_of_another_package_reads_a_kind_of_its_own_and_is_woken_by_it(
    tmp_path, monkeypatch
):
    info = tmp_path / "opened-1.dist-info"
    info.mkdir()
    (tmp_path / "opened.py").write_text(OF_CLASSES)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: opened\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[berth.plugins]\nOpened = opened:make\n")
    monkeypatch.syspath_prepend(tmp_path)
    plugins = {"multiPoint": {"enabled": [{"name": "Opened"}]}}
    plain = Settings.model_validate(
        {"profiles": [{"schedulerName": "berth", "plugins": plugins}], "berth": {}}
    )

    path = tmp_path / "journal"
    with path.open("wb") as journal:
        async with embedded(files=None) as cluster:
            cluster.create("priorityclasses", {"metadata": {"name": "there"}, "value": 1})
            async with process(cluster, plain, journal=journal) as berth:
                name = berth.pod("waits")
                await berth.until(lambda: berth.condition(name) is not None)
                assert "closed" in berth.condition(name)[2]
                cluster.create("priorityclasses", {"metadata": {"name": "open"}, "value": 7})
                assert await berth.lands(name)
    report = replay(path, frameworks_of())
    assert report.decisions == report.equal > 1
    assert {"there", "open"} <= report.cache.store("PriorityClass").objects.keys()
    (info / "entry_points.txt").unlink()
    with pytest.raises(click.ClickException, match="no plugin is named 'Opened'"):
        replay(path, frameworks_of())


async def test_the_example_of_a_claim_gets_a_node_a_volume_there_and_then_its_pod():
    example = Path(__file__).parents[2] / "examples" / "volume.yaml"
    plain = settings_of(config_map=False)
    async with embedded(files=None) as cluster, process(cluster, plain) as berth:
        for item in yaml.safe_load_all(example.read_text()):
            plural = "persistentvolumeclaims" if item["kind"] != "Pod" else "pods"
            cluster.create(plural, item, namespace="default")
        node = await berth.lands("with-data")
        claim = cluster.get("persistentvolumeclaims", "data", namespace="default")
        chosen = claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"]
        (volume,) = cluster.list("persistentvolumes")
        assert (chosen, claim["status"]["phase"]) == (node, "Bound")
        assert volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]


# ---- what may be away ----------------------------------------------------------------------------


@pytest.mark.slow
async def test_the_api_server_may_go_and_come_back():
    async with embedded() as cluster, process(cluster) as berth:
        assert await berth.lands(berth.pod("nginx-1")) in berth.test_nodes
        await cluster.stop()
        late = berth.pod("nginx-2")  # written past HTTP: the store is still there
        await asyncio.sleep(0.05)
        assert berth.node_of(late) is None
        await cluster.start()
        await berth.until(lambda: berth.node_of(late), seconds=20.0)
        assert berth.node_of(late) in berth.test_nodes
        assert len(berth.bundles) == 1


@pytest.mark.parametrize(
    ("kubeconfig", "said"),
    [
        ({"kind": "Config"}, "kubeconfig: "),
        ("no/such/file", "no kubeconfig: no/such/file does not exist"),
    ],
)
async def test_a_kubeconfig_that_is_wrong_ends_the_process_with_the_reason(kubeconfig, said):
    made = Process(None, Settings(), kubeconfig)
    with pytest.raises(ConfigError) as caught:
        await made.task
    message = str(caught.value)
    assert message.startswith(f"cannot reach a cluster: {said}")
    assert "\n" not in message


async def test_a_server_that_is_away_is_told_once_and_not_for_each_kind(caplog, monkeypatch):
    monkeypatch.setattr("engine.app.sweep", lambda: None)  # as in `embedded`
    config = EmbeddedCluster(nodes=0).kubeconfig()
    config["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:1"
    made = Process(None, Settings(), config)
    watched = made.app._endpoints
    await made.until(lambda: watched.reflectors and all(r.failures for r in watched.reflectors))
    made.stop.set()
    await made.task
    told = [one.getMessage() for one in caplog.records if one.name == "engine.kube.reflector"]
    assert told == ["the API server: cannot reach http://127.0.0.1:1: connection refused"]


async def test_without_prometheus_the_other_rules_decide(caplog):
    async with embedded() as cluster:
        settings = settings_of(prometheus={"url": "http://127.0.0.1:9"})
        async with process(cluster, settings) as berth:
            await berth.until(lambda: berth.app.telemetry[Count.SIGNAL_ERRORS])
            assert await berth.lands(berth.pod("nginx")) in berth.test_nodes
            assert await berth.lands(berth.pod("redis"))
    ours = (r for r in caplog.records if r.name.startswith("engine"))
    warnings = [r for r in ours if r.levelno >= logging.WARNING]
    assert any("127.0.0.1:9" in r.getMessage() or "bandwidth" in r.getMessage() for r in warnings)
    assert all(record.exc_info is None for record in warnings)


# ---- odd pods ------------------------------------------------------------------------------------


async def test_odd_pods_are_placed_or_refused_with_a_reason():
    plain = settings_of(config_map=False)
    async with embedded() as cluster, process(cluster, plain) as berth:
        requests = {"requests": {"cpu": "1", "memory": "1.2.3Gi"}}
        unreadable = berth.pod("unreadable", resources=requests)
        huge = berth.pod("huge", resources={"requests": {"cpu": "9" * 30}})
        tiny = berth.pod("tiny", resources={"requests": {"cpu": "0.0000001m"}})
        unknown = {"noSuchField": [1, {"a": None}], "image": "x"}
        spec = {
            "schedulerName": "berth",
            "containers": [{"name": f"c{n}", **unknown} for n in range(300)],
            "futureField": {"x": [1]},
            "tolerations": None,
        }
        pod = {"metadata": {"name": "wide"}, "spec": spec}
        cluster.create("pods", pod, namespace="default")
        assert await berth.lands("wide")
        assert await berth.lands(tiny)
        for name, words in ((unreadable, "1.2.3Gi"), (huge, "Insufficient cpu")):
            await berth.until(lambda name=name: berth.condition(name))
            status, _, message = berth.condition(name)
            assert status == "False"
            assert words in message
            assert berth.node_of(name) is None
        assert await berth.lands(berth.pod("after"))


# ---- ending --------------------------------------------------------------------------------------


async def test_stopping_in_the_middle_leaves_no_pod_half_bound():
    async with embedded() as cluster:
        made = Process(cluster, settings_of(config_map=False), cluster.kubeconfig())
        names = [made.pod(f"redis-{number}") for number in range(60)]
        await made.until(lambda: made.placed)
        made.stop.set()
        async with asyncio.timeout(60):
            await made.task
        assert made.app.scheduler.in_flight == 0
        decided = {name: node for name, node in made.placed if node}
        bound = {name: made.node_of(name) for name in names if made.node_of(name)}
        assert bound == decided


@pytest.mark.parametrize(
    "when", ["before it is synced", "while it cannot connect", "while it is given credentials"]
)
async def test_stopping_early(when):
    async with embedded() as cluster:
        kubeconfig = cluster.kubeconfig()
        if "connect" in when:
            kubeconfig["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:1"
        if "credentials" in when:
            run = {"apiVersion": "v1", "command": "sleep", "args": ["1000"]}
            kubeconfig["users"][0]["user"] = {"exec": run}
        made = Process(cluster, settings_of(cluster), kubeconfig)
        await asyncio.sleep(0 if "synced" in when else 0.05)
        made.stop.set()
        async with asyncio.timeout(60):
            await made.task


# ---- replicas ------------------------------------------------------------------------------------


GATE = "gate: pod.label wait = yes -> pod.label[go] is present\n"


def elects(cluster, **more):
    settings = settings_of(cluster)
    election = LeaderElection(retry_period="100ms", renew_deadline="60s", lease_duration="90s")
    return settings.model_copy(update={"election": election, **more})


async def test_who_gives_the_lease_up_leaves_to_the_next_leader_what_is_kept(monkeypatch):
    keepers = []

    async def flush(*_):
        await asyncio.sleep(0)
        keepers.append(["Keeper.run" in repr(one) for one in asyncio.all_tasks()])

    monkeypatch.setattr(KubeEventSink, "flush", flush)
    async with embedded() as cluster:
        kept = elects(cluster, berth=kept_in_the_cluster().berth)
        async with process(cluster, kept) as berth:
            await berth.until(lambda: standing(cluster))
    assert not any(keepers[0])


@pytest.mark.parametrize("delayed", [False, True], ids=["warm", "delayed"])
async def test_a_follower_tells_nobody_anything_and_the_leader_to_come_tells_it_all(delayed):
    """Policies, a gated pod and one that cannot be read: all came while another led."""
    async with embedded(files={"hold.policy": GATE}) as cluster:
        held = {"holderIdentity": "other", "leaseDurationSeconds": 3600}
        lease = {"metadata": {"name": "berth"}, "spec": held}
        cluster.create("leases", lease, namespace="kube-system")
        follows = elects(cluster, delay_cache=delayed)
        async with process(cluster, follows) as berth:
            if not delayed:
                await berth.until(lambda: berth.bundles)
            plain = berth.pod("plain")
            bad = berth.pod("bad", resources={"requests": {"memory": "1.2.3Gi"}})
            spec = {"schedulerName": "berth", "containers": [{"name": "c", "image": "i"}]}
            pod = {"metadata": {"name": "held", "labels": {"wait": "yes"}}, "spec": spec}
            cluster.create("pods", pod, namespace="default")
            if not delayed:
                await berth.until(lambda: berth.app.queue.counts()[SubQueue.GATED] == 1)
                await berth.until(lambda: berth.app.queue.counts()[SubQueue.ACTIVE] == 1)
            await asyncio.sleep(0.05)
            assert cluster.list("events") == []
            assert (berth.placed, berth.condition("held"), berth.condition(bad)) == (
                [],
                None,
                None,
            )
            released = {"spec": {"holderIdentity": None, "leaseDurationSeconds": 1}}
            cluster.patch("leases", "berth", released, namespace="kube-system")
            assert await berth.lands(plain)
            await berth.until(lambda: berth.condition("held"))
            assert berth.condition("held")[1] == "SchedulingGated"
            await berth.until(lambda: berth.condition(bad))
            assert "1.2.3Gi" in berth.condition(bad)[2]
            await berth.until(lambda: "PoliciesInForce" in dict(berth.events("ConfigMap")))
        lease = cluster.get("leases", "berth", namespace="kube-system")
        assert lease["spec"].get("holderIdentity") is None, "released at the end"


async def test_who_loses_the_lease_ends():
    async with embedded() as cluster:
        made = Process(cluster, elects(cluster), cluster.kubeconfig())
        await made.until(lambda: made.app.scheduler and made.app.scheduler.leads)
        taken = {"spec": {"holderIdentity": "other", "leaseDurationSeconds": 3600}}
        cluster.patch("leases", "berth", taken, namespace="kube-system")
        with pytest.raises(LeaseLost, match="kube-system/berth"):
            async with asyncio.timeout(60):
                await made.task
        assert cluster.get("leases", "berth", namespace="kube-system")["spec"]["holderIdentity"]


# ---- what is held against the server -------------------------------------------------------------


async def test_cache_and_queue_are_compared_with_the_server():
    """Equal; then a pod and a node are taken out of the cache behind everybody's back."""
    async with embedded(nodes=2) as cluster, process(cluster) as berth:
        await berth.until(lambda: berth.bundles)
        node = await berth.lands(berth.pod("redis"))
        berth.pod("stuck", resources={"requests": {"cpu": "900"}})
        await berth.until(lambda: berth.app.queue.counts()[SubQueue.UNSCHEDULABLE] == 1)
        await berth.until(lambda: not berth.app.cache.assumed_pods)
        session = await Session.connect(cluster.kubeconfig())

        async def sleep(_):
            await asyncio.sleep(0.05)

        wiring = Wiring(SystemClock(), Telemetry(), Random(1), sleep)
        assert await berth.app.comparer.compare(session, wiring) == []
        [uid] = berth.app.cache.assigned()
        berth.app.cache.remove_pod(uid)
        [stuck] = berth.app.queue.uids()
        berth.app.queue.delete(stuck)
        told = await berth.app.comparer.compare(session, wiring)
        assert f"pod {uid} is on {node} at the server and nowhere in the cache" in told
        assert f"pod {stuck} is waiting at the server and nowhere in the cache" in told
        assert len(told) == 2
        await session.close()


async def test_that_the_server_cannot_be_compared_with_ends_nothing(caplog):
    class Away:
        asked = 0

        async def request(self, method, path, **_):
            self.asked += 1
            raise Unreachable("cannot reach it")

    away, comparer = Away(), App(RunOptions(Settings()), clock=SystemClock()).comparer
    wiring = Wiring(SystemClock(), Telemetry(), Random(1))
    task = asyncio.create_task(comparer.run(away, wiring))
    for number in (1, 2):
        comparer.ask()
        for _ in range(5):
            await asyncio.sleep(0)
        assert away.asked == number
    task.cancel()
    assert caplog.text.count("Cache and server cannot be compared: cannot reach it") == 2


def test_what_differs_is_told_once_for_each_thing():
    def known(nodes, placed, waiting):
        holdings = {f"pod {uid}": f"on {node}" for uid, node in placed.items()}
        holdings |= dict.fromkeys((f"node {name}" for name in nodes), "known")
        return holdings | dict.fromkeys((f"pod {uid}" for uid in waiting), "waiting")

    ours = known("ab", {"1": "a", "2": "b", "3": "a", "4": "a"}, "89")
    theirs = known("bc", {"1": "a", "2": "c", "5": "b"}, "38")
    assert sorted(differences(ours, theirs)) == [
        "node a is nowhere at the server and known in the cache",
        "node c is known at the server and nowhere in the cache",
        "pod 2 is on c at the server and on b in the cache",
        "pod 4 is nowhere at the server and on a in the cache",
        "pod 5 is on b at the server and nowhere in the cache",
        "pod 9 is nowhere at the server and waiting in the cache",
    ], "3 is being bound"


async def test_many_pods_are_compared_in_pieces(monkeypatch):
    monkeypatch.setattr("engine.comparer._A_STEP", 10)
    app = App(RunOptions(Settings()), clock=SystemClock())
    app.cache.add_node(make_node("n"))
    for number in range(100):
        app.cache.add_pod(make_pod(f"p{number}"), "n")
    looked, node_of = [0], app.cache.node_of

    def counted(uid):
        looked[-1] += 1
        return node_of(uid)

    class Empty:
        async def request(self, method, path, **_):
            return Response(200, {}, b'{"metadata":{"resourceVersion":"1"},"items":[]}')

    async def sleep(_):
        """No time passes."""

    monkeypatch.setattr(app.cache, "node_of", counted)
    wiring = Wiring(SystemClock(), Telemetry(), Random(1), sleep)
    task = asyncio.create_task(app.comparer.compare(Empty(), wiring))
    while not task.done():
        looked.append(0)
        await asyncio.sleep(0)
    assert 0 < max(looked) <= 11
    assert len(task.result()) == 101
