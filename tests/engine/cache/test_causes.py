"""Why a row changed, and that nothing is told of what nobody reads."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from engine.cache.changes import LOG_ROWS
from engine.framework.snapshot import Cause
from engine.objects import Condition, ContainerImage, Node
from engine.pods.podinfo import make_pod_info
from tests.builders import Cache, make_node, make_pod, pod_object

replace = msgspec.structs.replace


def told(cache: Cache, since: int) -> list[tuple[int, Cause]]:
    rows, causes = cache.log.since(since)
    return [(row, Cause(cause)) for row, cause in zip(rows.tolist(), causes.tolist(), strict=True)]


@pytest.fixture
def cache() -> Cache:
    cache = Cache()
    cache.add_node(make_node("a"))
    cache.add_node(make_node("b"))
    return cache


def of_status(node: Node, **fields: object) -> Node:
    return replace(node, status=replace(node.status, **fields))


def of_meta(node: Node, **fields: object) -> Node:
    return replace(node, metadata=replace(node.metadata, **fields))


@pytest.mark.parametrize(
    ("after", "causes"),
    [
        (make_node("b", labels={"x": "y"}), Cause.LABELS),
        (make_node("b", taints=[{"key": "k", "effect": "NoSchedule"}]), Cause.TAINTS),
        (make_node("b", unschedulable=True), Cause.TAINTS),
        (make_node("b", cpu="9"), Cause.ALLOCATABLE),
        (make_node("b", cpu="9", labels={"x": "y"}), Cause.ALLOCATABLE | Cause.LABELS),
        (of_status(make_node("b"), images=[ContainerImage(["i"], 5)]), Cause.IMAGES),
        (of_status(make_node("b"), conditions=[Condition("Ready", "True")]), Cause.CONDITIONS),
        (of_status(make_node("b"), declared_features=["f"]), Cause.OTHER),
        (of_meta(make_node("b"), annotations={"x": "y"}), Cause.OTHER),
        (of_meta(make_node("b"), resource_version="9", generation=4), None),
        (make_node("b"), None),
    ],
)
def test_an_update_of_a_node_is_told_with_its_causes(cache, after, causes):
    before = cache.log.generation
    cache.add_node(after)
    assert told(cache, before) == ([] if causes is None else [(1, causes)])
    assert cache.nodes.node(1) is after


def test_causes_of_a_row_add_up(cache):
    before = cache.log.generation
    cache.add_pod(make_pod("p", cpu="1"), "b")
    cache.add_node(make_node("a", cpu="9"))
    cache.add_node(make_node("b", unschedulable=True))
    assert told(cache, before) == [(0, Cause.ALLOCATABLE), (1, Cause.POD | Cause.TAINTS)]
    cache.remove_node("a")
    cache.remove_pod("uid-default-p")
    assert told(cache, cache.log.generation - 2) == [(0, Cause.ANY), (1, Cause.POD)]
    assert told(cache, cache.log.generation) == told(cache, cache.log.generation + 1) == []


def test_a_change_of_a_pod_is_told_where_somebody_reads_it(cache):
    def update(**how):
        before = cache.log.generation
        cache.add_pod(make_pod_info(pod_object("p", node="b", **how)), "b")
        return told(cache, before)

    cache.add_pod(make_pod("p", cpu="1", node="b"), "b")
    started = cache.pods.number("started", lambda pod: np.nan if pod.priority else 5.0)
    cache.pods.text("namespace", lambda pod: pod.namespace)
    assert started.tolist() == [5.0]
    assert update(cpu="1", status={"phase": "Running"}) == [], "as good as nothing"
    assert update(cpu="2") == [(1, Cause.POD)]
    assert update(cpu="2", priority=7) == [(1, Cause.OTHER)]
    assert update(cpu="2", priority=7, status={"phase": "Running"}) == [], "missing as before"
    cache.pods.text("phase", lambda pod: pod.pod.status.phase)
    assert update(cpu="1", priority=7) == [(1, Cause.POD | Cause.OTHER)]


def test_the_log_is_read_across_its_end(cache):
    while cache.log.generation % LOG_ROWS != LOG_ROWS - 2:
        cache.log.add(0, Cause.OTHER)
    before = cache.log.generation
    for name, cpu in (("a", "1"), ("b", "1"), ("a", "2"), ("b", "2"), ("b", "3")):
        cache.add_node(make_node(name, cpu=cpu))
        cache.add_pod(make_pod(f"{name}{cpu}"), "a")
    assert told(cache, before) == [(0, Cause.ALLOCATABLE | Cause.POD), (1, Cause.ALLOCATABLE)]
    assert cache.log.since(0) is None
