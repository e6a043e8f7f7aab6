"""The cache against a naive model: whatever happens in whatever order, sums over pods are exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.framework.snapshot import Cause
from engine.pods.podinfo import NONZERO_CPU
from tests.builders import Cache, make_node, make_pod

NODES = [f"n{i}" for i in range(4)]
PODS = [f"p{i}" for i in range(6)]


class CacheMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache()
        self.nodes: dict[str, int] = {}
        self.pods: dict[str, tuple[str, int, bool]] = {}  # name -> node, milli-cores, assumed
        self.seen = 0
        self.copies: dict[str, np.ndarray] = {}

    @rule(name=st.sampled_from(NODES), cpu=st.integers(1, 9), cordoned=st.booleans())
    def node_comes(self, name, cpu, cordoned):
        self.cache.add_node(make_node(name, cpu=str(cpu), unschedulable=cordoned))
        self.nodes[name] = cpu * 1000

    @rule(name=st.sampled_from(NODES))
    def node_goes(self, name):
        self.cache.remove_node(name)
        self.nodes.pop(name, None)

    @rule(name=st.sampled_from(PODS), node=st.sampled_from(NODES), cpu=st.integers(0, 3))
    def pod_is_bound(self, name, node, cpu):
        self.cache.add_pod(make_pod(name, cpu=f"{cpu * 100}m", node=node), node)
        self.pods[name] = (node, cpu * 100, False)

    @rule(name=st.sampled_from(PODS), node=st.sampled_from(NODES), cpu=st.integers(0, 3))
    def pod_is_assumed(self, name, node, cpu):
        pod = make_pod(name, cpu=f"{cpu * 100}m")
        if name in self.pods:
            try:
                self.cache.assume(pod, node)
            except ValueError:
                return
            raise AssertionError("assumed twice")
        self.cache.assume(pod, node)
        self.pods[name] = (node, cpu * 100, True)

    @rule(name=st.sampled_from(PODS))
    def pod_is_forgotten(self, name):
        was_assumed = self.pods.get(name, ("", 0, False))[2]
        assert self.cache.forget(f"uid-default-{name}") is was_assumed
        if was_assumed:
            del self.pods[name]

    @rule(name=st.sampled_from(PODS))
    def pod_goes(self, name):
        self.cache.remove_pod(f"uid-default-{name}")
        self.pods.pop(name, None)

    @invariant()
    def sums_are_exact(self):
        nodes = self.cache.nodes
        assert {n for n in NODES if nodes.row(n) >= 0} == set(self.nodes)
        assert int(nodes.present.sum()) == len(self.nodes)
        for name, milli in self.nodes.items():
            row = nodes.row(name)
            here = [pod for pod in self.pods.values() if pod[0] == name]
            assert nodes.name(row) == name
            assert nodes.allocatable("cpu")[row] == milli
            assert nodes.requested("cpu")[row] == sum(pod[1] for pod in here)
            assert nodes.requested(NONZERO_CPU)[row] >= nodes.requested("cpu")[row]
            assert nodes.pod_count[row] == len(here)
        gone = ~nodes.present
        assert not nodes.requested("cpu")[gone].any()
        assert not nodes.pod_count[gone].any()

    @invariant()
    def pods_are_in_one_place(self):
        assert self.cache.assigned() == {
            f"uid-default-{name}": (node, assumed) for name, (node, _, assumed) in self.pods.items()
        }
        pods = self.cache.pods
        used = [row for row in range(pods.size) if pods.node[row] >= 0]
        on_known = [node for node, _, _ in self.pods.values() if node in self.nodes]
        assert sorted(pods.node[used]) == sorted(self.cache.nodes.row(n) for n in on_known)
        for row in range(self.cache.nodes.size):
            assert pods.on(row).tolist() == np.flatnonzero(pods.node == row).tolist()

    @invariant()
    def the_log_names_every_changed_row_and_why(self):
        nodes = self.cache.nodes
        columns = {
            "present": (nodes.present, Cause.ANY),
            "pod_count": (nodes.pod_count, Cause.POD),
            "nonzero_cpu": (nodes.requested(NONZERO_CPU), Cause.POD),
            "requested": (nodes.requested("cpu"), Cause.POD),
            "allocatable": (nodes.allocatable("cpu"), Cause.ALLOCATABLE),
            "unschedulable": (nodes.unschedulable, Cause.TAINTS),
        }
        now = {name: column.copy() for name, (column, _) in columns.items()}
        found = self.cache.log.since(self.seen)
        if self.copies and found is not None:
            why = np.zeros(nodes.size, int)
            why[found[0]] = found[1]
            for name, column in now.items():
                before = self.copies[name]
                there = np.flatnonzero(column[: len(before)] != before)
                assert (why[there] & columns[name][1]).all(), name
        self.copies, self.seen = now, self.cache.log.generation


TestCache = CacheMachine.TestCase


def test_columns_built_on_demand_follow_every_change():
    cache = Cache()
    read = ("zone", lambda node: (node.metadata.labels or {}).get("zone"))
    cache.add_node(make_node("a", labels={"zone": "z1"}))
    assert [cache.dictionary.texts[c] for c in cache.nodes.text(*read)] == ["z1"]
    cache.add_node(make_node("b"))
    assert cache.nodes.text(*read).tolist()[1] == -1
    cache.add_node(make_node("b", labels={"zone": "z2"}))
    cache.remove_node("a")
    cache.add_node(make_node("c", labels={"zone": "z3"}))
    row = cache.nodes.row("c")
    assert row == 0, "the freed row is used again"
    assert cache.dictionary.texts[cache.nodes.text(*read)[row]] == "z3"


def test_borrowed_columns_cannot_be_written():
    cache = Cache()
    cache.add_node(make_node("a"))
    column = cache.nodes.requested("cpu")
    with pytest.raises(ValueError, match="read-only"):
        column[0] = 1


def test_the_log_gives_up_when_it_does_not_reach_back():
    cache = Cache()
    for i in range(200):
        cache.add_node(make_node(f"n{i}"))
    start = cache.log.generation
    for i in range(101):
        cache.add_node(make_node("n0", unschedulable=i % 2 == 0))
    assert cache.log.since(start) is None
    assert cache.log.since(cache.log.generation - 2)[0].tolist() == [0]


def test_sums_that_overflow_wrap_and_come_back():
    cache = Cache()
    cache.add_node(make_node("a"))
    huge = make_pod("huge", memory="9223372036854775807")
    other = make_pod("other", memory="9223372036854775807")
    cache.add_pod(huge, "a")
    cache.add_pod(other, "a")
    cache.remove_pod(huge.uid)
    cache.remove_pod(other.uid)
    assert cache.nodes.requested("memory").tolist() == [0]
