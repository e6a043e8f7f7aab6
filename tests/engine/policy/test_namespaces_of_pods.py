"""What rules read of the namespaces of other pods follows every change of a namespace."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cycle import decide
from engine.objects import Namespace, from_builtins
from engine.policy.plugin import PolicyPlugin
from engine.policy.world import DEFAULT_GPUS, PodSubject, SnapshotWorld, Worlds
from tests.builders import Cache, make_node, make_pod
from tests.dsl import oracle
from tests.effort import examples
from tests.engine.policy.builders import NOW, chain, policies

TENANT = "it.namespace.label[tenant] == namespace.label[tenant]"
RULES = (
    f"filter: all(node.pods where {TENANT})\n",
    f"filter: count(zone.pods where {TENANT}) < 3\n",
    "filter: not any(node.pods where it.namespace.annotation closed)\n"
    "filter: count(node.pods where it.namespace.label[(it.name)] is x) < 2\n",
    "filter: max(number(it.namespace.label[tenant]) over cluster.pods) > 1\n",
)
NAMES = ("a", "b", "c")
events = st.one_of(
    st.tuples(
        st.just("namespace"),
        st.sampled_from(NAMES),
        st.sampled_from((None, "1", "2")),
        st.sampled_from((None, "yes")),
    ),
    st.tuples(st.just("namespace gone"), st.sampled_from(NAMES)),
    st.tuples(st.just("pod"), st.sampled_from(NAMES), st.integers(0, 2)),
    st.tuples(st.just("pod gone"), st.integers(0, 20)),
    st.tuples(st.just("node"), st.integers(0, 2), st.booleans()),
)


def namespace(name, tenant, closed):
    labels = {key: value for key, value in (("tenant", tenant), ("p1", closed and "x")) if value}
    notes = {"closed": closed} if closed else None
    meta = {"name": name, "labels": labels, "annotations": notes}
    return from_builtins(Namespace, {"metadata": meta})


def apply(cache, event, number):
    match event:
        case ("namespace", name, tenant, closed):
            cache.set_namespace(namespace(name, tenant, closed))
        case ("namespace gone", name):
            cache.remove_namespace(name)
        case ("pod", name, node):
            cache.add_pod(make_pod(f"p{number}", namespace=name), f"n{node}")
        case ("pod gone", index):
            for name in NAMES:
                cache.remove_pod(f"uid-{name}-p{index}")
        case ("node", index, True):
            labels = {"topology.kubernetes.io/zone": f"z{index % 2}"}
            cache.add_node(make_node(f"n{index}", labels=labels))
        case ("node", index, False):
            cache.remove_node(f"n{index}")


def anew(happened):
    """A cache in which nobody has read anything before."""
    cache = Cache()
    for number, event in enumerate(happened):
        apply(cache, event, number)
    return cache


NODES = [("node", index, True) for index in range(3)]
PODS = [("pod", name, index) for index, name in enumerate(NAMES)]


@pytest.mark.parametrize("text", RULES)
def test_what_is_kept_is_what_a_full_pass_finds(text):
    plan = policies(chain({"p.policy": text}))[0].plan

    @settings(max_examples=examples(15), deadline=None)
    @given(st.lists(events, max_size=10))
    def follows(others):
        happened = [*NODES, *PODS, *others]
        cache = Cache()
        plugin = policies(chain({"p.policy": text}))[0]
        for number, event in enumerate(happened):
            apply(cache, event, number)
            if number < len(NODES) + len(PODS):
                continue
            fresh = anew(happened[: number + 1]).snapshot(NOW)
            for name in NAMES[:2]:
                asked = make_pod("asked", namespace=name)
                assert passing(plugin, cache, asked) == meant(plan, fresh, asked)

    follows()


def passing(plugin: PolicyPlugin, cache, pod):
    snapshot = cache.snapshot(NOW)
    state = plugin.points().pre_filter(pod, snapshot).state
    passed = plugin.points().filter(state, pod, snapshot, slice(0, snapshot.nodes.size)).passed
    rows = np.flatnonzero(snapshot.nodes.present).tolist()
    return sorted(snapshot.nodes.name(row) for row in rows if passed is None or passed[row])


def meant(plan, snapshot, pod):
    world = SnapshotWorld(snapshot, Worlds(ZoneInfo("UTC")))
    subject = PodSubject(pod, snapshot, DEFAULT_GPUS)
    return sorted(
        snapshot.nodes.name(row)
        for row in np.flatnonzero(snapshot.nodes.present).tolist()
        if all(oracle.passes(rule.core, world, subject, row) for rule in plan.filters)
    )


def test_a_decision_follows_the_label_of_another_pods_namespace():
    """The framework remembers verdicts of rows: a namespace changes those of its pods' nodes."""
    framework = chain({"p.policy": RULES[0]})
    cache = anew([*NODES[:1], ("namespace", "a", "1", None), ("namespace", "b", "1", None)])
    cache.add_pod(make_pod("there", namespace="b"), "n0")
    pod = make_pod("p", namespace="a")

    def node():
        return decide(pod, cache.snapshot(NOW), framework).node

    assert node() == "n0"
    cache.set_namespace(namespace("b", "2", None))
    assert node() is None
    cache.set_namespace(namespace("c", "2", None))
    assert node() is None
    cache.set_namespace(namespace("a", "2", None))
    assert node() == "n0"
    cache.remove_namespace("b")
    assert node() is None
