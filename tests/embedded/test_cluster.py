"""What only the embedded cluster does: nodes that live, Prometheus, and ending cleanly.

What it shares with a real API server is in `tests/cluster/test_api_contract.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import aiohttp
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kubernetes.aio import client
from prometheus_api_client import PrometheusConnect

from dsl.schema import CATALOGUE
from engine.clock import ManualClock
from engine.embedded import EmbeddedCluster, Pace
from engine.embedded.api import Api
from engine.embedded.errors import ApiError
from engine.embedded.kubectl import decode, human_age, table
from engine.embedded.nodes import SimulatedNodes
from engine.embedded.resources import BY_PLURAL

FAST = Pace(kubelet_seconds=0.001, signal_seconds=0.001, bookmark_seconds=0.05)
PODS = BY_PLURAL["pods"]


def pod(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def with_cluster(
    test: Callable[[EmbeddedCluster, aiohttp.ClientSession], Awaitable[None]], **options: Any
) -> None:
    """Run a test against a started cluster, in a loop of its own, within some seconds."""

    async def main() -> None:
        async with asyncio.timeout(20):
            cluster = EmbeddedCluster(clock=ManualClock(), pace=FAST, **options)
            async with cluster, aiohttp.ClientSession(cluster.url) as session:
                await test(cluster, session)

    asyncio.run(main())


def bind(api: Api, name: str, node: str) -> None:
    api.bind("default", name, {"target": {"kind": "Node", "name": node}})


def simulated(count: int = 6, seed: int = 1) -> tuple[Api, SimulatedNodes]:
    clock, random = ManualClock(), Random(seed)
    api = Api(clock=clock, random=random)
    return api, SimulatedNodes(api, count=count, random=random)


def step(api: Api, nodes: SimulatedNodes) -> None:
    for key in list(api.collection(PODS).items):
        nodes.attend(key)


@pytest.mark.parametrize(
    "body",
    [b'{"metadata":{"name":"p","x":' + b"[" * n + b"]" * n + b"}}" for n in (150, 900, 100_000)]
    + [b'{"metadata":{"name":"\xff"}}'],
)
def test_a_body_that_nobody_can_read_is_a_bad_request(body: bytes) -> None:
    async def test(_cluster: EmbeddedCluster, session: aiohttp.ClientSession) -> None:
        path = "/api/v1/namespaces/default/pods"
        for method, where in (("POST", path), ("PUT", f"{path}/p"), ("DELETE", f"{path}/p")):
            async with session.request(method, where, data=body) as answer:
                assert answer.status == 400
                assert (await answer.json())["reason"] == "BadRequest"

    with_cluster(test)


@given(st.binary(max_size=40))
@example(b"\x12\xff\xff\xff\xff\x07")
@example(b"\x10\xff\xff\xff\xff\xff\x07")
@example(b"\x08\x07")
def test_any_protobuf_is_read_or_refused(body: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        decode(b"k8s\0" + body)
    assert refused.value.code in (400, 415)


def test_nodes_are_ready_labelled_and_in_three_zones() -> None:
    cluster = EmbeddedCluster(nodes=12, clock=ManualClock())
    nodes = cluster.list("nodes")
    labels = [node["metadata"]["labels"] for node in nodes]
    assert len(nodes) == 12
    assert {each["topology.kubernetes.io/zone"] for each in labels} == {
        "zone-a",
        "zone-b",
        "zone-c",
    }
    assert sum(each.get("test") == "test" for each in labels) == 6
    assert all(node["status"]["conditions"][0]["type"] == "Ready" for node in nodes)
    assert all(node["status"]["allocatable"]["pods"] == "110" for node in nodes)


def test_the_same_seed_makes_the_same_cluster() -> None:
    one, same, other = (EmbeddedCluster(seed=seed, clock=ManualClock()) for seed in (1, 1, 2))
    assert one.list("nodes") == same.list("nodes")
    assert one.list("nodes") != other.list("nodes")
    for cluster in (one, same):
        for _ in range(10):
            cluster.nodes.step_signals()
    assert one.nodes.signals == same.nodes.signals


def test_bandwidth_wanders_within_its_range() -> None:
    _, nodes = simulated()
    nodes.signals["node_network_receive"]["node-01"] = 1_000.0
    seen = set()
    for _ in range(200):
        nodes.step_signals()
        seen.add(nodes.bandwidth("node-01"))
    assert len(seen) > 50
    assert all(0 <= value <= 125_000_000 for value in seen)


def test_bound_pods_run_and_deleted_pods_end() -> None:
    api, nodes = simulated()
    for name in ("bound", "waiting"):
        api.create(PODS, "default", pod(name))
    bind(api, "bound", "node-01")
    step(api, nodes)
    running = api.get(PODS, "default", "bound")["status"]
    assert running["phase"] == "Running"
    assert {each["type"] for each in running["conditions"]} >= {"PodScheduled", "Ready"}
    assert api.get(PODS, "default", "waiting")["status"]["phase"] == "Pending"
    api.delete(PODS, ("default", "bound"), {})
    assert "deletionTimestamp" in api.get(PODS, "default", "bound")["metadata"]
    step(api, nodes)
    assert ("default", "bound") not in api.collection(PODS).items


def test_a_namespace_takes_its_objects_with_it() -> None:
    api, _ = simulated()
    namespaces = BY_PLURAL["namespaces"]
    api.create(namespaces, "", {"metadata": {"name": "n"}})
    api.create(PODS, "n", pod("p"))
    api.delete(namespaces, ("", "n"), {})
    assert ("n", "p") not in api.collection(PODS).items


def test_old_events_are_forgotten() -> None:
    api = Api(clock=ManualClock(), random=Random(1), events_kept=3)
    for number in range(5):
        api.create(BY_PLURAL["events"], "default", {"metadata": {"name": f"e{number}"}})
    kept = [key[1] for key in api.collection(BY_PLURAL["events"]).items]
    assert kept == ["e2", "e3", "e4"]


def test_the_whole_thing_over_http() -> None:
    async def test(cluster: EmbeddedCluster, session: aiohttp.ClientSession) -> None:
        pods = "/api/v1/namespaces/default/pods"
        async with session.get(f"{pods}?watch=1&allowWatchBookmarks=true") as watch:
            async with session.post(pods, json=pod("p")) as made:
                assert made.status == 201
            binding = {"target": {"name": "node-02"}}
            async with session.post(f"{pods}/p/binding", json=binding) as bound:
                assert bound.status == 201
            phases, last = [], ""
            # A bookmark comes by the clock, in between too where this takes long.
            while len(phases) < 3 or last != "BOOKMARK":
                event = json.loads(await watch.content.readline())
                last = event["type"]
                if last != "BOOKMARK":
                    phases.append(event["object"]["status"].get("phase"))
        assert phases == ["Pending", "Pending", "Running"]
        assert cluster.get("pods", "p", namespace="default")["spec"]["nodeName"] == "node-02"

    with_cluster(test)


async def test_the_official_client_reads_what_is_there() -> None:
    async with (
        EmbeddedCluster(nodes=1) as cluster,
        client.ApiClient(client.Configuration(host=cluster.url)) as official,
    ):
        [node] = (await client.CoreV1Api(official).list_node()).items
        version = await client.VersionApi(official).get_code()
    assert node.status.node_info.os_image == "simulated"
    assert (version.major, version.minor) == ("1", "37")


async def test_it_stops_while_clients_watch() -> None:
    cluster = EmbeddedCluster(clock=ManualClock())
    await cluster.start()
    async with aiohttp.ClientSession(cluster.url) as session:
        watch = await session.get("/api/v1/pods?watch=1&resourceVersion=0")
        async with asyncio.timeout(5):
            await cluster.stop()
            assert await watch.content.read() == b""
        watch.close()
        with pytest.raises(aiohttp.ClientError):
            await session.get("/version")


def test_a_client_that_leaves_as_its_watch_expires_is_no_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(cluster: EmbeddedCluster, session: aiohttp.ClientSession) -> None:
        runner = cluster._server._runner
        assert runner is not None
        assert runner.server is not None
        async with session.get("/api/v1/pods?watch=1&resourceVersion=1"):
            cluster.create("pods", pod("p"), namespace="default")
            cluster.api.store.compact()
            for one in runner.server.connections:
                assert one.transport is not None
                one.transport.abort()

    with_cluster(test)
    assert not caplog.records


async def test_it_starts_again_on_the_same_port() -> None:
    cluster = EmbeddedCluster(clock=ManualClock())
    await cluster.start()
    url = cluster.url
    await cluster.stop()
    await cluster.start()
    async with aiohttp.ClientSession(url) as session, session.get("/healthz") as answer:
        assert await answer.text() == "ok"
    await cluster.stop()


def test_a_watch_that_is_left_behind_is_told() -> None:
    async def test(cluster: EmbeddedCluster, session: aiohttp.ClientSession) -> None:
        path = f"/api/v1/pods?watch=1&resourceVersion={cluster.api.store.revision + 100}"
        async with session.get(path) as watch:
            event = json.loads(await watch.content.readline())
        assert event["type"] == "ERROR"
        assert event["object"]["reason"] == "Timeout"

    with_cluster(test)


def test_initial_events_are_refused_so_that_clients_list() -> None:
    async def test(_: EmbeddedCluster, session: aiohttp.ClientSession) -> None:
        asked = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        async with session.get(f"/api/v1/pods?{asked}") as answer:
            assert answer.status == 422
            assert (await answer.json())["reason"] == "Invalid"

    with_cluster(test)


def test_web_pages_are_refused() -> None:
    async def test(_: EmbeddedCluster, session: aiohttp.ClientSession) -> None:
        async with session.get("/api/v1/pods", headers={"Origin": "https://example.com"}) as answer:
            assert answer.status == 403
        async with session.get("/version", headers={"Host": "rebound.example:80"}) as answer:
            assert answer.status == 403

    with_cluster(test)


def test_dry_runs_are_refused_rather_than_done() -> None:
    async def test(cluster: EmbeddedCluster, session: aiohttp.ClientSession) -> None:
        path = "/api/v1/namespaces/default/pods?dryRun=All"
        async with session.post(path, json=pod("p")) as answer:
            assert answer.status == 400
        assert cluster.list("pods") == []

    with_cluster(test)


def test_prometheus_answers_the_official_client() -> None:
    async def test(cluster: EmbeddedCluster, _: aiohttp.ClientSession) -> None:
        def ask(method: str) -> tuple[bool, list[Any], list[Any]]:
            client = PrometheusConnect(url=cluster.prometheus_url, method=method)
            try:
                rate = "sum by (instance) (rate(node_network_receive_bytes_total[1m]))"
                vector = client.custom_query(rate, timeout=5)
                nothing = client.custom_query("no_such_series", timeout=5)
                return client.check_prometheus_connection(), vector, nothing
            finally:
                client.close()

        for method in ("GET", "POST"):
            connected, vector, nothing = await asyncio.to_thread(ask, method)
            assert connected
            assert nothing == []
            assert {each["metric"]["node"] for each in vector} == set(cluster.nodes.names)
            assert vector[0]["metric"]["instance"] == "node-01:9100"
            assert float(vector[0]["value"][1]) >= 0

    with_cluster(test)


@pytest.mark.parametrize("name", ["cpu_usage", "memory_usage"])
def test_a_share_is_one(name: str) -> None:
    async def test(cluster: EmbeddedCluster, session: aiohttp.ClientSession) -> None:
        query = {"query": CATALOGUE[name].query}
        async with session.get(f"{cluster.prometheus_url}/api/v1/query", params=query) as answer:
            vector = (await answer.json())["data"]["result"]
        assert len(vector) == len(cluster.nodes.names)
        assert all(0 <= float(one["value"][1]) <= 1 for one in vector)

    with_cluster(test)


def test_an_empty_query_is_refused() -> None:
    async def test(cluster: EmbeddedCluster, session: aiohttp.ClientSession) -> None:
        async with session.get(f"{cluster.prometheus_url}/api/v1/query") as answer:
            assert answer.status == 400
            assert (await answer.json())["errorType"] == "bad_data"

    with_cluster(test)


def test_protobuf_of_a_config_map() -> None:
    entry = b"\x0a\x01a\x12\x01b"
    raw = b"\x0a\x05\x0a\x03cfg" + b"\x12" + bytes([len(entry)]) + entry
    kind = b"\x0a\x02v1\x12\x09ConfigMap"
    body = b"k8s\x00\x0a" + bytes([len(kind)]) + kind + b"\x12" + bytes([len(raw)]) + raw
    assert decode(body) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "cfg"},
        "data": {"a": "b"},
    }


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((5, "5s"), (119, "119s"), (120, "2m"), (125, "2m5s"), (599, "9m59s"), (601, "10m")),
        *((7_300, "121m"), (10_800, "3h"), (10_900, "3h1m"), (28_800, "8h"), (172_799, "47h")),
        *((172_800, "2d"), (200_000, "2d7h"), (8 * 86_400 + 7_200, "8d"), (729 * 86_400, "729d")),
        *((731 * 86_400, "2y1d"), (730 * 86_400, "2y"), (9 * 365 * 86_400 + 86_400, "9y")),
    ],
)
def test_ages_read_as_kubectl_writes_them(seconds: float, text: str) -> None:
    assert human_age(seconds) == text


@pytest.mark.parametrize("stamp", ["yesterday", 5, "2026-13-01T00:00:00Z"])
def test_what_is_no_time_has_an_unknown_age(stamp: object) -> None:
    event = {"metadata": {"name": "e"}, "lastTimestamp": stamp}
    [row] = table("events", [event], 0.0, 1)["rows"]
    assert row["cells"][0] == "<unknown>"
