"""What-if snapshots against a cache that is built anew with the pods where they would be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.framework.snapshot import Cause, Snapshot
from engine.pods.podinfo import NONZERO_CPU, NONZERO_MEMORY
from tests.builders import Cache, make_node, make_pod
from tests.effort import examples

NODES = ("a", "b", "gone", "c")
GPU = "example.com/gpu"
COLUMNS = {
    "text": ("label", lambda pod: (pod.pod.metadata.labels or {}).get("x")),
    "number": ("odd", lambda pod: float("nan") if pod.priority % 2 else 1.0),
    "flag": ("high", lambda pod: pod.priority > 1),
}


def any_pod(name: str, cpu: int, gpus: int, priority: int):
    requests = {"cpu": f"{cpu}m", **({GPU: str(gpus)} if gpus else {})}
    spec = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
    return make_pod(name, priority=priority, labels={"x": name[:2]}, spec=spec)


def empty(cache: Cache) -> Cache:
    for name in NODES:
        cache.add_node(make_node(name))
    cache.remove_node("gone")
    return cache


pods = st.builds(any_pod, st.just("p"), st.integers(0, 9), st.integers(0, 2), st.integers(0, 3))
placed = st.lists(st.tuples(pods, st.sampled_from(["a", "b", "c"])), max_size=8)


def seen(snapshot: Snapshot) -> object:
    """All that a reader may see, but for the order of pods."""
    nodes, pods = snapshot.nodes, snapshot.pods
    nonzero = [nodes.requested(NONZERO_CPU), nodes.requested(NONZERO_MEMORY)]
    sums = [nodes.pod_count, *nonzero, nodes.requested("cpu")]
    sums += [nodes.requested(GPU), nodes.requested("none"), nodes.allocatable("cpu")]
    texts = snapshot.dictionary.texts
    columns = [getattr(pods, kind)(*column).tolist() for kind, column in COLUMNS.items()]
    columns += [pods.request(GPU).tolist(), pods.priority.tolist()]
    columns[0] = [None if code < 0 else texts[code] for code in columns[0]]
    rows = [row for row in range(pods.size) if pods.node[row] >= 0]
    there = sorted(
        (int(pods.node[r]), pods.pod(r).name, *(repr(c[r]) for c in columns)) for r in rows
    )
    on = [sorted(pods.pod(r).name for r in pods.on(row).tolist()) for row in range(nodes.size)]
    return [column.tolist() for column in sums], there, on


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_an_overlay_is_the_cluster_built_anew(data):
    cache = empty(Cache())
    where = {}
    for i, (pod, node) in enumerate(data.draw(placed)):
        pod = any_pod(
            f"p{i}", pod.readings.sums[NONZERO_CPU], pod.requests.get(GPU, 0), pod.priority
        )
        where[pod] = node
        cache.add_pod(pod, node)
    before = seen(cache.snapshot(0.0))
    snapshot, free, touched, generation = cache.snapshot(0.0), [], set(), cache.log.generation
    for step in range(data.draw(st.integers(1, 4))):
        node = data.draw(st.sampled_from(["a", "b", "c"]))
        here = [pod for pod, there in where.items() if there == node]
        remove = data.draw(st.lists(st.sampled_from(here), unique=True)) if here else []
        come_back = data.draw(st.lists(st.sampled_from(free), unique=True)) if free else []
        add = [*come_back, any_pod(f"new{step}", step, 1, step)]
        for pod in remove:
            free.append(pod)
            del where[pod]
        for pod in add:
            where[pod] = node
        free = [pod for pod in free if pod not in where]
        row = cache.nodes.row(node)
        snapshot = snapshot.overlay(row, remove) if remove else snapshot
        snapshot = snapshot.overlay_each([(row, add[:1]), (row, add[1:])])
        touched.add(row)
        anew = empty(Cache())
        for pod, there in where.items():
            anew.add_pod(pod, there)
        assert seen(snapshot) == seen(anew.snapshot(0.0))
        rows, causes = snapshot.changes_since(generation)
        assert rows.tolist() == sorted(touched)
        assert (causes & Cause.POD).all()
        assert (snapshot.now, snapshot.layout) == (0.0, cache.nodes.layout)
    assert seen(cache.snapshot(0.0)) == before
    assert cache.log.generation == generation


def test_an_overlay_shares_what_does_not_differ():
    cache = empty(Cache())
    pods = [any_pod(f"p{i}", 5, 0, 0) for i in range(3)]
    for pod in pods:
        cache.add_pod(pod, "a")
    base = cache.snapshot(0.0)
    one = base.overlay(0, remove=pods[:1])
    assert one.nodes.requested("memory") is base.nodes.requested("memory")
    assert one.nodes.allocatable("cpu") is base.nodes.allocatable("cpu")
    assert one.pods.priority is base.pods.priority
    back = one.overlay(0, add=pods[:1])
    assert {back.pods.pod(row).name for row in back.pods.on(0)} == {"p0", "p1", "p2"}
    assert len({base.generation, one.generation, back.generation}) == 3
    assert base.changes_since(one.generation) is one.changes_since(back.generation) is None
    assert back.changes_since(one.generation)[0].tolist() == [0]
    assert back.changes_since(back.generation)[0].tolist() == []
    for pod, row in ((pods[0], 0), (pods[1], 1), (any_pod("none", 1, 0, 0), 0)):
        with pytest.raises(LookupError, match="is not on the node"):
            one.overlay(row, remove=[pod])
    assert not one.pods._copies, "moves copy no column of all pods"
    with pytest.raises(ValueError, match="read-only"):
        one.nodes.requested("cpu")[0] = 1


def test_a_pod_that_went_from_node_to_node_is_where_it_went_last():
    cache = empty(Cache())
    pod = any_pod("p", 5, 0, 0)
    over = cache.snapshot(0.0).overlay(1, add=[pod]).overlay(1, remove=[pod]).overlay(0, add=[pod])
    assert [over.pods.node[row] for row in over.pods.on(0)] == [0]
    assert over.overlay(0, remove=[pod]).pods.on(0).tolist() == []


def test_namespaces_are_followed_where_an_overlay_was_the_first_to_read_them():
    cache = empty(Cache())
    cache.add_pod(any_pod("p", 5, 0, 0), "a")
    asked = []

    def label(pod):
        asked.append(pod.name)
        return "x" if len(asked) == 1 else "y"

    over = cache.snapshot(0.0).overlay(0, add=[any_pod("q", 1, 0, 0)])
    over.pods.namespace_text("namespace label", label)
    codes = cache.pods.namespace_text("namespace label", label)
    assert asked == ["p", "q"]
    assert cache.pods.namespace_changed("default").tolist() == [0]
    assert [cache.dictionary.texts[code] for code in codes] == ["y"]
    assert np.array_equal(codes, cache.pods.namespace_text("namespace label", label))
