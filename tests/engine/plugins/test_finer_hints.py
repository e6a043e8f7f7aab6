"""Whom an event wakes otherwise than in kube-scheduler: not in vain, and not five minutes late."""

from __future__ import annotations

import sys
from itertools import product

import pytest

from engine.framework.events import QueueingHint
from engine.objects import Namespace, ObjectMeta, Pod
from engine.plugins.node_resources_fit import NodeResourcesFit
from engine.queue import SubQueue
from tests.builders import Cache, make_node, make_pod, pod_object
from tests.engine.test_scheduler import World


def _finer(pod, gone, cache, plugin=None):
    events = (plugin or NodeResourcesFit()).points().events
    [registered] = [one for one in events if one.finer is not None]
    assert isinstance(gone, Pod)
    assert registered.hint(pod, gone, None, cache.snapshot(0.0)) is QueueingHint.QUEUE
    return registered.finer(pod, gone, None, cache.snapshot(0.0))


@pytest.mark.parametrize(
    ("promised", "freed", "others", "wakes"),
    [
        ("", "b", 1, True),  # it may evict who is left there
        ("a", "a", 1, True),
        ("a", "b", 0, True),
        ("a", "b", 1, False),
        ("a", "gone", 0, False),
    ],
)
def test_room_that_is_promised_to_others_wakes_nobody_who_waits_for_their_own(
    promised, freed, others, wakes
):
    cache = Cache()
    for name in ("a", "b"):
        cache.add_node(make_node(name, cpu="2"))
    waits = make_pod("waits", cpu="2", priority=5)
    cache.nominate(waits, promised)
    for number in range(others):
        cache.nominate(make_pod(f"other-{number}", cpu="2", priority=5), "b")
    gone = make_pod("gone", cpu="2", node=freed).pod
    expected = QueueingHint.QUEUE if wakes else QueueingHint.SKIP
    assert _finer(waits, gone, cache) is expected


def test_less_important_promises_leave_the_room():
    cache = Cache()
    for name in ("a", "b"):
        cache.add_node(make_node(name, cpu="2"))
    waits = make_pod("waits", cpu="2", priority=5)
    cache.nominate(waits, "a")
    cache.nominate(make_pod("other", cpu="2", priority=4), "b")
    gone = make_pod("gone", cpu="2", node="b").pod
    assert _finer(waits, gone, cache) is QueueingHint.QUEUE


def test_what_is_remembered_of_room_is_of_like_pods_and_the_cluster_as_it_is():
    cache, plugin = Cache(), NodeResourcesFit()
    for name in ("a", "b", "c"):
        cache.add_node(make_node(name, cpu="2"))
    waiting = [make_pod(f"p-{cpu}-{n}", cpu=cpu, priority=n) for cpu in "12" for n in (4, 5)]
    for pod in waiting:
        cache.nominate(pod, "a")
    gone = [make_pod("gone", cpu="2", node=node).pod for node in "bc"]
    there = make_pod("there", cpu="1")
    answers = set()
    for step in (
        lambda: cache.nominate(make_pod("other", cpu="1", priority=5), "b"),
        lambda: cache.add_pod(there, "b"),
        lambda: cache.nominate(make_pod("third", cpu="2", priority=4), "c"),
        lambda: cache.remove_pod(there.uid),
        lambda: cache.withdraw("uid-default-other"),
        lambda: cache.remove_node("c"),
    ):
        step()
        for pod, one in product(waiting, gone):
            found = _finer(pod, one, cache, plugin)
            answers.add(found)
            assert found is _finer(pod, one, cache)
    assert len(answers) == 2


def _calls_of_a_victim_that_goes(others):
    """How many functions are called for it, where so many wait for room on nodes of their own."""
    names = [f"n{number}" for number in range(others + 1)]
    world = World(nodes=())
    world.add(make_node(name, cpu="2") for name in names)
    world.add(pod_object(f"on-{name}", cpu="2", priority=5, node=name) for name in names)
    for name in names:
        world.cache.nominate(make_pod(f"waits-{name}", cpu="2", priority=5), name)
        world.comes(f"waits-{name}", cpu="2", priority=5, spec={"preemptionPolicy": "Never"})
    world.run(world.turn())
    called = []
    sys.setprofile(lambda _frame, event, _: called.append(1) if event == "call" else None)
    try:
        world.handlers.pods.on_delete(pod_object("on-n0", cpu="2", priority=5, node="n0"))
    finally:
        sys.setprofile(None)
    return len(called)


def test_a_victim_that_goes_costs_little_for_each_who_waits_elsewhere():
    assert _calls_of_a_victim_that_goes(60) - _calls_of_a_victim_that_goes(20) < 40 * 30


# ---- what wakes a pod that kube-scheduler would not try ----------------------------------------


def _affinity(kind, **term):
    wanted = {"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "a"}}, **term}
    rules = {"requiredDuringSchedulingIgnoredDuringExecution": [wanted]}
    return {"affinity": {kind: rules}}


FAR, NEAR = _affinity("podAntiAffinity"), _affinity("podAffinity")
OF_TEAM = {"namespaceSelector": {"matchLabels": {"team": "x"}}}


@pytest.mark.parametrize(
    ("there", "waits", "comes", "goes"),
    [
        ([("x", "n1", {"spec": FAR})], {}, make_node("n4", labels={"host": "n4"}), None),
        ([("x", "n1", {"spec": FAR})], {}, make_node("n2", labels={"host": "n2"}), None),
        (
            [],
            {"spec": _affinity("podAffinity", **OF_TEAM)},
            pod_object("y", node="n1", namespace="team", labels={"app": "a"}),
            None,
        ),
        (
            [("x", "n1", {"namespace": "team", "labels": {"app": "a"}})],
            {"spec": _affinity("podAntiAffinity", **OF_TEAM)},
            None,
            "x",
        ),
        ([("x", "n3", {"labels": {"app": "a"}})], {"spec": NEAR}, None, "x"),
    ],
)
async def test_affinity_of_others_and_of_namespaces_by_label_and_of_the_first(
    there, waits, comes, goes
):
    world = World(nodes=())
    world.add([Namespace(ObjectMeta(name="team", labels={"team": "x"}))])
    world.add(make_node(name, labels={"host": "n1"}) for name in ("n1", "n2"))
    if goes and waits["spec"] is NEAR:
        world.add([make_node("n3", labels={"host": "n3"}, unschedulable=True)])
    pods = {name: pod_object(name, node=node, **how) for name, node, how in there}
    world.add(pods.values())
    world.comes("waits", labels={"app": "a"}, **waits)
    await world.turn()
    assert world.where("waits") is SubQueue.UNSCHEDULABLE
    world.clock.advance(30.0)
    if goes:
        world.handlers.pods.on_delete(pods[goes])
    elif comes.metadata.name == "n2":
        world.handlers.nodes.on_update(make_node("n2", labels={"host": "n1"}), comes)
    else:
        world.add([comes])
    await world.turn()
    assert [name for name, _ in world.edge.binds] == ["waits"]
