"""What a scheduler shows of itself, from before it has a cluster until it ends."""

from __future__ import annotations

import asyncio
import json
import re

import aiohttp
import yaml

from engine.app import App, Hooks, RunOptions
from engine.clock import SystemClock
from engine.configuration.settings import load
from engine.endpoints import configuration
from engine.kube.election import Elector
from engine.queue import SubQueue
from engine.serving.certificates import CertificateFiles
from engine.serving.selfmade import SelfMade
from engine.serving.server import ServerOptions
from tests.cluster.process import free_port
from tests.engine.test_app import TWO, Process, elects, embedded, settings_of


class Served(Process):
    """A scheduler with its server, open to all."""

    def __init__(self, cluster, settings, kubeconfig, clock=None):
        self.cluster = cluster
        self.bundles, self.refusals, self.placed = [], [], []
        self.port = free_port()
        files = CertificateFiles(maker=SelfMade())
        serving = ServerOptions("127.0.0.1", self.port, files, always_allowed=("/*",))
        hooks = Hooks([self._placed], [self.bundles.append], [self.refusals.append])
        options = RunOptions(settings, kubeconfig, serving=serving)
        self.app = App(options, clock=clock or SystemClock(), hooks=hooks)
        self.stop = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self.app.run(self.stop))

    async def get(self, path):
        async with (
            aiohttp.ClientSession() as client,
            client.get(f"https://127.0.0.1:{self.port}{path}", ssl=False) as answer,
        ):
            return answer.status, await answer.text()

    async def until_told(self, path, wanted):
        """Until a page begins so; a server that does not listen yet is asked again."""
        for _ in range(2_000):
            try:
                code, text = await self.get(path)
            except aiohttp.ClientConnectionError:
                code, text = 0, ""
            if (code, text[: len(wanted[1])]) == wanted:
                return text
            if self.task.done():
                await self.task
            await asyncio.sleep(0.005)
        raise AssertionError(f"{path} never said {wanted}, but {code}: {text}")


async def test_it_is_alive_from_the_start_and_ready_once_it_can_schedule():
    async with embedded(files=None) as cluster:
        served = Served(cluster, elects(cluster), cluster.kubeconfig())
        await served.until_told("/livez", (200, "ok"))
        text = await served.until_told("/readyz?exclude=policies", (200, "ok"))
        code, text = await served.get("/readyz")
        assert (code, "[-]policies failed" in text) == (500, True)
        assert (await served.get("/healthz"))[0] == 200
        served.rules(TWO)
        await served.until_told("/readyz", (200, "ok"))
        assert await served.lands(served.pod("redis"))
        code, text = await served.get("/statusz?format=json")
        status = json.loads(text)
        assert status["leads"] is status["synced"] is True
        assert status["lease"]["holder"]
        assert status["policies"]["inForce"] == ["home", "network"]
        assert status["watches"]["nodes"]["objects"] == 6
        [metric] = status["metrics"].values()
        assert "node_network_receive" in metric["query"]
        assert metric["matched"] == metric["series"], "none or all, as the answer comes"
        code, text = await served.get("/statusz")
        assert "inForce: [home, network]" in text
        assert "/debug/decisions" in text
        code, text = await served.get("/debug/decisions?pod=default/redis")
        assert (code, json.loads(text)["node"]) == (200, served.node_of("redis"))
        assert len(json.loads((await served.get("/debug/decisions"))[1])) == 1
        await served.until(lambda: any(s.series for s in served.app.signals.status()))
        _, text = await served.get("/metrics")
        assert re.search(r'^berth_metric_age_seconds\{metric="bandwidth"\} ', text, re.MULTILINE)
        assert 'berth_metric_series{metric="bandwidth"} 6' in text.splitlines()
        served.rules({"home.policy": "filter: nonsense\n"})
        await served.until(lambda: len(served.refusals) == 2)
        _, text = await served.get("/metrics")
        lines = text.splitlines()
        assert 'berth_policy_source_refused{source="ConfigMap rules/policies"} 1' in lines
        assert "berth_policies 2" in lines
        assert "scheduler_pod_scheduling_attempts_count 1" in lines
        assert (await served.get("/readyz"))[0] == 200, "the old ones are in force"
        served.stop.set()
        await served.task


async def test_who_waits_in_permit_and_what_is_tried_in_shadow_are_shown():
    files = {
        "wait.policy": 'permit: pod.name is late -> wait 10m until false message "not yet"\n',
        "tried.policy": "mode: shadow\nfilter: node.label none\n",
    }
    async with embedded(files=files) as cluster:
        served = Served(cluster, settings_of(cluster), cluster.kubeconfig())
        await served.until_told("/readyz", (200, "ok"))
        assert await served.lands(served.pod("redis"))
        served.pod("late")
        await served.until(lambda: len(served.app.scheduler.waiting_pods))
        status = json.loads((await served.get("/statusz?format=json"))[1])
        assert status["pending"]["waiting"] == 1
        late = status["waitingInPermit"]["default/late"]
        assert late["for"] == "not yet (wait.policy:1)"
        assert late["node"] == served.app.cache.node_of(next(iter(served.app.cache.waiting)))
        page = json.loads((await served.get("/debug/decisions?pod=default/late"))[1])
        assert page["waits"]["for"] == "not yet (wait.policy:1)"
        assert page["waits"]["node"] == page["node"] == late["node"]
        assert status["shadow"]["tried"].startswith("of 2 pods: would have rejected the node")
        lines = (await served.get("/metrics"))[1].splitlines()
        assert 'scheduler_pending_pods{queue="waiting"} 1' in lines
        shadow = 'outcome="rejected",policy="tried.policy",line="2"'
        assert f"berth_shadow_outcomes_total{{{shadow}}} 2" in lines
        served.stop.set()
        await served.task


async def test_a_pod_that_is_gated_is_not_told_as_one_that_had_its_name():
    path = "/debug/decisions?pod=default/redis"
    async with embedded(files=TWO) as cluster:
        served = Served(cluster, settings_of(cluster), cluster.kubeconfig())
        await served.until_told("/readyz", (200, "ok"))
        await served.lands(served.pod("redis"))
        cluster.delete("pods", "redis", namespace="default")
        await served.until(lambda: not cluster.list("pods"))
        assert "node" in json.loads((await served.get(path))[1]), "of one that is gone"
        spec = {"schedulerName": "berth", "schedulingGates": [{"name": "x.dev/wait"}],
                "containers": [{"name": "c", "image": "i"}]}  # fmt: skip
        cluster.create("pods", {"metadata": {"name": "redis"}, "spec": spec}, namespace="default")
        await served.until(lambda: served.app.queue.counts()[SubQueue.GATED])
        page = json.loads((await served.get(path))[1])
        assert "node" not in page
        assert page["waits"]["by"] == "SchedulingGates"
        assert "x.dev/wait" in page["waits"]["for"]
        served.stop.set()
        await served.task


async def test_without_a_cluster_it_is_alive_and_not_ready():
    async with embedded() as cluster:
        nobody = cluster.kubeconfig()
        nobody["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:1"
        served = Served(cluster, settings_of(cluster), nobody)
        await served.until_told("/livez", (200, "ok"))
        code, text = await served.get("/readyz")
        assert (code, "[-]sched-handler-sync failed" in text) == (500, True)
        code, text = await served.get("/metrics")
        assert code == 200
        for name in ("preemption_attempts_total", "preemption_victims_count"):
            assert f"\nscheduler_{name} 0\n" in text
        served.stop.set()
        await served.task


class Ahead(SystemClock):
    """Some seconds later than it is."""

    seconds = 0.0

    def monotonic(self):
        return super().monotonic() + self.seconds


async def test_who_has_heard_nothing_for_a_minute_is_not_ready():
    reads = {"r.policy": "filter: (workload.replicas ?? 9) > 0\n"}
    async with embedded(files=TWO | reads) as cluster:
        clock = Ahead()
        served = Served(cluster, settings_of(cluster), cluster.kubeconfig(), clock)
        await served.until_told("/readyz", (200, "ok"))

        async def silent(path, told):
            while True:  # a bookmark may come between the minute and the question
                clock.seconds += 61.0
                code, text = await served.get(path)
                if told(text):
                    return code

        assert await silent("/readyz", lambda text: "[-]watches failed" in text) == 500
        assert (await served.get("/healthz"))[0] == 200, "a restart would not help"

        def all_told(text):  # what a policy reads, too
            troubles = " ".join(json.loads(text)["troubles"])
            return "nodes" in troubles and "deployments.apps" in troubles

        assert await silent("/statusz?format=json", all_told) == 200
        served.stop.set()
        await served.task


async def test_who_is_stopped_before_all_is_listed_does_not_say_that_it_was(caplog):
    caplog.set_level("INFO")
    async with embedded() as cluster:
        nobody = cluster.kubeconfig()
        nobody["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:1"
        served = Served(cluster, settings_of(cluster), nobody)
        await served.until_told("/readyz/sched-handler-sync", (500, "[-]sched-handler-sync"))
        served.stop.set()
        await served.task
    assert "Caches are synced" not in caplog.text


async def test_who_is_stopped_before_all_is_listed_does_not_stand_for_election(monkeypatch):
    """It would take the lease, and end before it knows that: nobody decides until it runs out."""
    stood = []
    monkeypatch.setattr(Elector, "start", lambda *_: stood.append(1))

    async def stopped(_reflectors, stop):
        stop.set()
        return False

    monkeypatch.setattr("engine.app.synced", stopped)
    async with embedded() as cluster:
        await Served(cluster, elects(cluster), cluster.kubeconfig()).task
    assert not stood


def test_the_configuration_that_is_shown_is_one_that_can_be_read(tmp_path):
    file, again = tmp_path / "config.yaml", tmp_path / "again.yaml"
    file.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\n"
        "kind: KubeSchedulerConfiguration\n"
        "leaderElection: {leaseDuration: 20s, resourceName: mine}\n"
        "podMaxBackoffSeconds: 30\n"
        "profiles: [{schedulerName: a, plugins: {score: {disabled: [{name: ImageLocality}]}}}]\n"
        "---\n"
        "apiVersion: berth.dev/v1\n"
        "kind: BerthConfiguration\n"
        "timeZone: Europe/Berlin\n"
    )
    settings = load(str(file))
    again.write_text(yaml.safe_dump_all(configuration(settings).values()))
    assert load(str(again)) == settings
