"""Metrics of every level from a real Prometheus decide in a running scheduler."""

from __future__ import annotations

from collections import Counter

import pytest

from engine.clock import SystemClock
from tests.engine.test_app import embedded, process, settings_of

pytestmark = pytest.mark.slow


def settings(prometheus):
    return settings_of(prometheus={"url": prometheus.url})


def column(berth):
    """The newest samples of the only metric."""
    app = berth.app
    view = app.signals.view(app.cache, SystemClock().time())
    (spec,) = berth.bundles[-1].metrics
    return view.column(spec.id)


async def test_a_price_of_the_cluster_opens_a_gate(prometheus, caplog):
    exporter = prometheus.exporter
    policy = (
        'metric price = promql "last_over_time(spot_price[1h])" by cluster every 200ms stale 1m\n'
        'gate: pod.name starts with batch -> (price ?? 9) < 5 message "waits, costs {price}"\n'
    )
    async with embedded(nodes=2, files={"spot.policy": policy}) as cluster:
        exporter.set_series("spot_price", 7, market="a")
        async with process(cluster, settings(prometheus)) as berth:
            assert await berth.lands(berth.pod("web"))
            batch = berth.pod("batch")
            await berth.until(lambda: berth.condition(batch))
            assert berth.condition(batch)[1] == "SchedulingGated"
            exporter.set_series("spot_price", 4, market="a")
            assert await berth.lands(batch)
            # Two markets have no one price: the query has to say which it is.
            exporter.set_series("spot_price", 3, market="b")
            await berth.until(lambda: any("P603" in each.message for each in caplog.records))
            late = berth.pod("batch-late")
            await berth.until(lambda: berth.condition(late))
            assert berth.condition(late)[2].startswith("waits, costs <none>")
    (said,) = [each.message for each in caplog.records if "P603" in each.message]
    assert said.startswith("P603: metric price: the answer has 2 series, and the cluster one value")


async def test_namespaces_workloads_and_pods_have_values(prometheus):
    exporter = prometheus.exporter
    policy = (
        'metric spent = promql "spent" by namespace every 200ms stale 1m\n'
        'metric speed = promql "speed" by workload every 200ms stale 1m\n'
        'metric watts = promql "pod_watts" by namespace, pod every 200ms stale 1m\n'
        'gate: (spent ?? 0) < 100 message "{spent} of 100 is spent"\n'
        "filter: speed is missing or speed < 5 or node.label test=test\n"
        "filter: sum(watts ?? 0 over node.pods) < 50\n"
    )
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "quick", "uid": "u",
             "controller": True}  # fmt: skip
    async with embedded(nodes=3, files={"p.policy": policy}) as cluster:
        exporter.set_series("spent", 120, namespace="default")
        exporter.set_series("speed", 9, namespace="default", workload="quick")
        async with process(cluster, settings(prometheus)) as berth:
            await berth.until(lambda: all_have_series(berth, {"spent", "speed"}))
            poor = berth.pod("poor")
            await berth.until(lambda: berth.condition(poor))
            assert berth.condition(poor)[2].startswith("120 of 100 is spent")
            exporter.set_series("spent", 20, namespace="default")
            first = await berth.lands(poor)
            exporter.set_series("pod_watts", 60, namespace="default", pod="poor")
            exporter.set_series("pod_watts", 60, namespace="elsewhere", pod="poor-2")
            await berth.until(lambda: all_have_series(berth, {"watts"}))
            others = [await berth.lands(berth.pod(f"poor-{n}")) for n in range(6)]
            assert set(others) == {node for node in zones(cluster) if node != first}
            quick = berth.test_nodes - {first}
            spec = {"schedulerName": "berth", "containers": [{"name": "c", "image": "i"}]}
            for number in range(3):
                meta = {"name": f"quick-{number}", "ownerReferences": [owner]}
                cluster.create("pods", {"metadata": meta, "spec": spec}, namespace="default")
                await berth.until(lambda number=number: decided(berth, f"quick-{number}"))
                assert berth.node_of(f"quick-{number}") in (quick or {None})


async def test_pods_go_near_those_that_they_talk_to(prometheus):
    exporter = prometheus.exporter
    policy = (
        'metric rtt = promql "rtt_seconds" by src, dst every 200ms stale 1m unit seconds\n'
        "filter: pod.name starts with web ->"
        " all(cluster.pods where it.name is not db or (rtt(node.name, it.node) ?? 9s) < 2s)\n"
        'filter: pod.name is far -> (rtt(node.zone, "local") ?? 0s) > 0.5s\n'
    )
    async with (
        embedded(nodes=4, files={"near.policy": policy}) as cluster,
        process(cluster, settings(prometheus)) as berth,
    ):
        base = await berth.lands(berth.pod("db"))
        waits = berth.pod("web")
        await berth.until(lambda: berth.condition(waits))
        of = zones(cluster)
        near = sorted(of.keys() - {base})[1]
        for node in of:
            seconds = 1 if node == near else 3
            exporter.set_series("rtt_seconds", seconds, src=node, dst=base)
        far = of[near]
        for zone in set(of.values()):
            exporter.set_series("rtt_seconds", float(zone == far), src=zone, dst="local")
        assert await berth.lands(waits) == near
        assert {await berth.lands(berth.pod(f"web-{n}")) for n in range(4)} == {near}
        assert of[await berth.lands(berth.pod("far"))] == far


def all_have_series(berth, names):
    status = {one.id: one.matched for one in berth.app.signals.status()}
    return berth.bundles and all(
        status[one.id] for one in berth.bundles[-1].metrics if one.name in names
    )


def decided(berth, name):
    return berth.node_of(name) or berth.condition(name)


def zones(cluster):
    """The zone of each node."""
    return {
        node["metadata"]["name"]: node["metadata"]["labels"]["topology.kubernetes.io/zone"]
        for node in cluster.list("nodes")
    }


async def test_pods_go_where_power_is_clean(prometheus):
    exporter = prometheus.exporter
    policy = (
        'metric carbon = promql "last_over_time(grid_carbon[1h])" by zone every 200ms stale 1m\n'
        "filter: carbon is present and carbon < 300\n"
        "prefer: least carbon\n"
    )
    async with embedded(nodes=9, files={"green.policy": policy}) as cluster:
        of = zones(cluster)
        dirty, grey, green = sorted(set(of.values()))
        async with process(cluster, settings(prometheus)) as berth:
            early = berth.pod("early")
            await berth.until(lambda: berth.condition(early))
            _, _, why = berth.condition(early)
            assert "9 carbon is present is false: carbon is <none> (green.policy:2)" in why
            for zone, value in ((dirty, 800), (grey, 250), (green, 100)):
                exporter.set_series("grid_carbon", value, zone=zone)
            # The samples wake the pod that waited for them.
            assert of[await berth.lands(early)] == green
            found = Counter([of[await berth.lands(berth.pod(f"p{n}"))] for n in range(6)])
            assert found == {green: 6}
            exporter.set_series("grid_carbon", 900, zone=green)
            await berth.until(lambda: 900.0 in column(berth))
            found = Counter([of[await berth.lands(berth.pod(f"q{n}"))] for n in range(6)])
            assert found == {grey: 6}
