"""What a first question would take long for is worked out before it, in small steps."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from engine.clock import ManualClock
from engine.cycle import conclude
from engine.framework.interface import Points
from engine.framework.profile import Profile, Weighted
from engine.framework.runtime import Framework
from engine.plugins.volumes.matching import Storage
from engine.steps import Steps
from tests.builders import Cache, default_plugins, make_node, make_pod
from tests.engine.plugins.volumes import builders as volumes
from tests.engine.policy.builders import chain


def full_cluster() -> Cache:
    cache = Cache()
    for i in range(5):
        cache.add_node(make_node(f"n{i}", cpu="2"))
        for j in range(2):
            cache.add_pod(make_pod(f"p{i}-{j}", cpu="1"), f"n{i}")
    return cache


def test_the_first_preemption_builds_no_column_of_all_pods_after_its_steps() -> None:
    cache = full_cluster()
    framework = Framework(Profile("berth", tuple(default_plugins())))
    columns, before = cache.pods._derived, len(list(cache.pods._derived))
    for _ in framework.warm(cache.snapshot(0.0)):
        assert len(list(columns)) <= before + 1, "one at a time"
        before = len(list(columns))
    pod = make_pod("high", cpu="2", priority=1)
    rescue = conclude(pod, cache.snapshot(0.0), framework).rescue
    assert rescue is not None
    assert rescue.nominated
    assert len(list(columns)) == before


def test_a_pool_describes_each_volume_once_and_few_of_them_in_a_step() -> None:
    cache = volumes.cluster("n1")
    for i in range(250):
        volumes.volume(cache, f"v{i}", on={volumes.HOST: "n1"}, size="1Gi")
    described: list[object] = []
    pools = Storage().volumes
    describe = pools.describe
    pools.describe = lambda one: (described.append(one), describe(one))[1]
    seen = 0
    for _ in pools.warm(cache.snapshot(0.0)):
        assert len(described) - seen <= 100
        seen = len(described)
    assert len(described) == 250
    assert len(pools.of(cache.snapshot(0.0), "late").items) == 250
    volumes.volume(cache, "another", on={volumes.HOST: "n1"}, size="1Gi")
    assert len(pools.of(cache.snapshot(0.0), "late").items) == 251
    assert len(described) == 251


def test_steps_end_at_the_deadline_and_one_that_raises_stops_no_other() -> None:
    taken: list[str] = []

    def two(_):
        yield taken.append("a")
        yield taken.append("b")

    def broken(_):
        yield taken.append("c")
        raise ZeroDivisionError

    plugins = [
        Weighted(SimpleNamespace(name=name, points=lambda warm=warm: Points(warm=warm)), 1.0)
        for name, warm in (("broken", broken), ("two", two))
    ]
    sorter = [one for one in default_plugins() if one.plugin.name == "PrioritySort"]
    faults: list[Exception] = []
    framework = Framework(Profile("berth", (*sorter, *plugins)), on_fault=faults.append)
    steps = Steps(ManualClock())
    assert steps.due is None
    assert not steps.step(math.inf)
    steps.begin(framework.warm(Cache().snapshot(0.0)))
    assert steps.due is not None
    assert steps.step(-1.0)
    assert taken == ["c"]
    assert not steps.step(math.inf)
    assert taken == ["c", "a", "b"]
    assert (len(faults), steps.due) == (1, None)


@pytest.mark.parametrize(
    "text",
    [
        "forbid: any(zone.pods where it.label[app] == pod.label[app] and it.namespace is prod)",
        "score: sum(it.limit[cpu] ?? it.cpu over node.pods) normalize minmax",
        "filter: count(node.pods where not it.ready and it.namespace.label[x] is y) < 3",
        "preempt: victims where it.priority < pod.priority",
        "preempt: victims where it.label team=a order it.created desc",
        "gang: by pod.label[app] min 2",
        "quota: by pod.label[team] max cpu 100",
        "quota: by pod.label[team] max cpu 100\nfilter: count(node.pods where it.ready) < 9",
        "quota: by pod.label[team] min cpu 1 elastic",
        "filter: not quota.over_max_with_pod",
        "preempt: victims where it.quota.over_min",
        'metric m = promql "m" by pod\nprefer: least sum(m ?? 0 over node.pods)',
    ],
)
def test_what_new_rules_read_of_all_pods_is_made_in_steps_before_they_decide(text) -> None:
    cache = full_cluster()
    framework = chain({"p.policy": text})
    for _ in framework.warm(cache.snapshot(0.0)):
        pass
    made = len(list(cache.pods._derived)), len(cache.pods._ledgers)
    for cpu in ("100m", "99"):
        pod = make_pod("new", cpu=cpu, priority=9, labels={"app": "web"})
        assert framework.pre_enqueue(pod, cache.snapshot(0.0)).ok
        framework.gang(pod, cache.snapshot(0.0))
        conclude(pod, cache.snapshot(0.0), framework)
    assert (len(list(cache.pods._derived)), len(cache.pods._ledgers)) == made
