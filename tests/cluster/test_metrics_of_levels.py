"""Metrics of every level from a real Prometheus decide in a running scheduler."""

from __future__ import annotations

from collections import Counter

import pytest

from engine.clock import SystemClock
from tests.engine.test_app import embedded, process, run, settings_of

pytestmark = pytest.mark.slow


def settings(prometheus):
    return settings_of(prometheus={"url": prometheus.url})


def column(berth):
    """The newest samples of the only metric."""
    app = berth.app
    view = app.signals.view(app.cache, SystemClock().time())
    (spec,) = berth.bundles[-1].metrics
    return view.column(spec.id)


def zones(cluster):
    """The zone of each node."""
    return {
        node["metadata"]["name"]: node["metadata"]["labels"]["topology.kubernetes.io/zone"]
        for node in cluster.list("nodes")
    }


def test_pods_go_where_power_is_clean(prometheus):
    exporter = prometheus.exporter
    policy = (
        'metric carbon = promql "last_over_time(grid_carbon[1h])" by zone every 200ms stale 1m\n'
        "filter: carbon is present and carbon < 300\n"
        "prefer: least carbon\n"
    )

    async def main():
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

    run(main)
