"""Metrics of every level decide alike: kept from cycle to cycle, made afresh, and replayed."""

from __future__ import annotations

import math
from datetime import UTC

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cycle import decide
from engine.objects import from_builtins
from engine.pods.podinfo import make_pod_info
from engine.policy.world import DEFAULT_GPUS, PodSubject, SnapshotWorld, Worlds
from engine.signals.samples import Series
from engine.simulate.samples import Samples
from tests.builders import changed, make_node, make_pod, pod_object
from tests.effort import examples
from tests.engine.test_simulate import FRAMEWORKS_OF, Recording

ZONE = "topology.kubernetes.io/zone"
POLICY = """\
metric load = promql "load" by node
metric carbon = promql "carbon" by zone
metric price = promql "price" by cluster stale 5m
metric spent = promql "spent" by namespace
metric speed = promql "speed" by workload
metric heat = promql "heat" by pod
metric rtt = promql "rtt" by src, dst
filter: (carbon ?? 0) < 8
filter: speed is missing or count(node.pods where heat is present and heat > speed) < 2
prefilter: (spent ?? 0) < 9 or (price ?? 9) < 3 message "{spent} is spent at {price}"
score: (price ?? 1) * (carbon ?? 3) + (load ?? 5) + (speed ?? 2)
score: (rtt(node.name, pod.namespace) ?? 4) + sum(rtt(node.zone, it.name) over cluster.pods)
prefer: least sum(heat over zone.pods) + (max(heat over node.pods) ?? 0)
"""
KEYS = {
    "load": ["n0", "n1", "n2"],
    "carbon": ["z0", "z1"],
    "price": [()],
    "spent": ["s0", "s1"],
    "speed": [("s0", "w0"), ("s1", "w0"), ("", "w1")],
    "rtt": [("n0", "s0"), ("n1", "s0"), ("n2", "s1"), ("z0", "p0"), ("z1", "p0"), ("z1", "p1")],
    "heat": [("s0", "p0"), ("s0", "p2"), ("s1", "p1"), ("", "p3")],
}


def owned(name, namespace, workload):
    pod = pod_object(name, namespace=namespace, cpu="10m")
    owner = {"kind": "StatefulSet", "name": workload, "controller": True}
    references = from_builtins(
        type(pod.metadata), {"name": name, "ownerReferences": [owner]}
    ).owner_references
    return make_pod_info(changed(pod, metadata={"owner_references": references}))


class Levels(Recording):
    """Each decision is made a second time by rules that remember nothing."""

    def __init__(self):
        super().__init__()
        self.rules({"p.policy": POLICY})
        self.zones = {}
        for number in range(3):
            self.node(f"n{number}", f"z{number % 2}")

    def node(self, name, zone):
        node = make_node(name, labels={ZONE: zone})
        self.cache.add_node(node)
        self.store.nodes_changed(None, node)
        self.zones[name] = zone

    def give(self, metric, key, value):
        names = (key,) if isinstance(key, str) else key
        (question,) = [one for one in self.store.questions() if one.query == metric]
        self.store.ingest(question, [Series(names, value, self.clock.time())])

    def view(self):
        now = self.clock.time()
        return self.cache.snapshot(now, self.store.view(self.cache, now))

    def place(self, name, namespace, workload):
        [fresh] = FRAMEWORKS_OF({"p.policy": POLICY}, {"settings": "{}"})
        pod = owned(name, namespace, workload)
        again = decide(pod, self.view(), fresh)
        self.placed(pod)
        made = self.decisions[-1]
        assert (made.node, made.total, made.feasible) == (again.node, again.total, again.feasible)
        assert made.fit_error is None or made.fit_error.message() == again.fit_error.message()
        return made


def test_each_level_has_its_say(tmp_path):
    levels = Levels()
    for zone, value in (("z0", 7.0), ("z1", 9.0)):
        levels.give("carbon", zone, value)
    assert levels.place("p0", "s0", "w0").node in ("n0", "n2"), "z1 is above the limit"
    levels.give("spent", "s0", 10.0)
    refused = levels.place("p1", "s0", "w0")
    assert refused.node is None
    assert "10 is spent at <none>" in refused.fit_error.message()
    assert levels.place("p1", "s1", "w0").node, "another namespace"
    levels.give("price", (), 2.0)
    assert levels.place("p2", "s0", "w0").node, "as it is cheap"
    levels.give("carbon", "z1", 1.0)
    for name, value in (("p0", 5.0), ("p2", 6.0)):
        levels.give("heat", ("s0", name), value)
    levels.give("speed", ("s1", "w0"), 3.0)
    assert levels.place("p3", "s1", "w0").node == "n1", "the zone of the others is hot"
    report = levels.replayed(tmp_path / "journal")
    assert report.differences == []
    assert report.decisions == 5


def test_a_pod_has_the_values_of_its_own_namespace_and_workload():
    levels = Levels()
    ids = {spec.name: spec.id for spec in levels.bundle.metrics}
    for metric, key, value in (
        ("spent", "s0", 1.0),
        ("speed", ("s0", "w0"), 2.0),
        ("speed", ("", "w1"), 3.0),
        ("heat", ("s0", "p0"), 4.0),
    ):
        levels.give(metric, key, value)

    def read(pod):
        subject = PodSubject(pod, levels.view(), DEFAULT_GPUS)
        values = [subject.metric(ids[name]) for name in ("spent", "speed", "heat")]
        return [None if math.isnan(value) else value for value in values]

    assert read(owned("p0", "s0", "w0")) == [1, 2, 4]
    assert read(owned("p0", "s1", "w0")) == [None, None, None]
    assert read(owned("p1", "s0", "w1")) == [1, 3, None]
    assert read(make_pod("p1", namespace="s0")) == [1, None, None], "it has no workload"
    levels.give("rtt", ("n0", "s0"), 5.0)
    texts = levels.cache.dictionary
    a, b = texts.code("n0"), texts.code("s0")
    world = SnapshotWorld(levels.view(), Worlds(UTC))
    assert world.pod_metric(ids["heat"]).tolist() == []
    levels.cache.add_pod(owned("p0", "s0", "w0"), "n0")
    assert world.pod_metric(ids["heat"]).tolist() == [4]
    assert world.pair(ids["rtt"], "n0", "s0") == 5
    ends = np.array([[a, b, a, -1, texts.code("new")], [b, a, -1, b, b]], np.int32)
    assert world.pair_column(ids["rtt"], *ends).tolist() == pytest.approx(
        [5, math.nan, math.nan, math.nan, math.nan], nan_ok=True
    )
    bare = levels.cache.snapshot(0.0, Samples().view(levels.cache, 0.0))
    assert math.isnan(bare.signals.value(ids["spent"], ("s0",)))
    assert math.isnan(bare.signals.of_pods(ids["heat"], bare.pods)[0])


steps = st.one_of(
    st.tuples(
        st.just("place"),
        st.integers(0, 5),
        st.sampled_from(["s0", "s1"]),
        st.sampled_from(["w0", "w1"]),
    ),
    st.sampled_from(sorted(KEYS)).flatmap(
        lambda metric: st.tuples(
            st.just("give"),
            st.just(metric),
            st.sampled_from(KEYS[metric]),
            st.integers(0, 10).map(float),
        )
    ),
    st.tuples(st.just("node"), st.integers(0, 3), st.sampled_from(["z0", "z1", "z2"])),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 50.0, 121.0])),
    st.just(("forget",)),
)


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(st.lists(steps, max_size=20))
def test_any_history_is_made_afresh_and_again(tmp_path_factory, history):
    levels = Levels()
    for step in [*history, ("place", 9, "s0", "w0"), ("place", 10, "s1", "w1")]:
        match step:
            case ("place", number, namespace, workload):
                pod = owned(f"p{number}", namespace, workload)
                if levels.cache.node_of(pod.uid) is None:
                    levels.place(f"p{number}", namespace, workload)
            case ("give", metric, key, value):
                levels.give(metric, key, value)
            case ("node", number, zone):
                levels.node(f"n{number}", zone)
            case ("wait", seconds):
                levels.clock.advance(seconds)
            case ("forget",) if levels.cache.assigned():
                levels.cache.forget(min(levels.cache.assigned()))
            case _:
                pass
    report = levels.replayed(tmp_path_factory.mktemp("j") / "journal")
    assert report.differences == []
    assert report.decisions == len(levels.decisions)
