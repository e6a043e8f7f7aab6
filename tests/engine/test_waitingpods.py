"""Pods that wait in permit: who lets them go, who does not, and what they keep meanwhile."""

from __future__ import annotations

import asyncio
import gc
import weakref

import msgspec
import pytest

from dsl.checker import rules
from engine.framework.effects import AssumeObject
from engine.framework.events import Action, ClusterEvent, Resource
from engine.framework.interface import PermitResult, Points, ReserveResult
from engine.framework.profile import Weighted
from engine.framework.status import Code, Status, unschedulable
from engine.objects import from_builtins
from engine.objects.storage import PersistentVolume
from engine.objects.workloads import PodGroup
from engine.queue import SubQueue
from engine.telemetry import PERMIT_SECONDS, Count
from engine.waitingpods import MOST_SECONDS, MOST_WAITING, TESTS_A_SLICE
from tests.builders import changed, default_plugins, make_node, pod_object
from tests.engine.policy.builders import chain
from tests.engine.test_preemption import being_deleted
from tests.engine.test_scheduler import World, until

GO = 'permit: pod.label held -> wait 60s until pod.annotation go=yes message "nobody said go"\n'
REFUSED = "node n1 was chosen and refused: "


def world(text=GO, **how):
    return World({"p.policy": text}, **how)


async def held(made, name="p", **how):
    pod = made.comes(name, labels={"held": "yes"}, **how)
    await made.turn()
    assert made.where(name) is SubQueue.WAITING
    return pod


def told(made, reason):
    return [note for _, _, each, note in made.edge.events if each == reason]


# ---- by a policy ---------------------------------------------------------------------------------


async def test_a_pod_waits_on_its_node_until_what_it_waits_for_is_so():
    made = world()
    pod = await held(made, cpu="1500m")
    assert made.assigned() == ("n1", True), "it keeps its place"
    assert (made.scheduler.in_flight, made.queue.counts()[SubQueue.IN_FLIGHT]) == (0, 0), (
        "and no slot"
    )
    words = "waits on node n1, 60 s at most: nobody said go (p.policy:1)"
    assert told(made, "WaitingOnPermit") == [words]
    assert made.edge.conditions == [("p", "WaitingOnPermit", words)]
    assert made.edge.nominations == [("p", "n1")]
    assert made.telemetry[Count.PODS_HELD] == 1
    made.comes("other", cpu="1")
    await made.turn()
    assert made.where("other") is SubQueue.UNSCHEDULABLE, "there is no room beside it"
    made.edits(pod, metadata={"annotations": {"go": "yes"}})
    await made.turn()
    assert made.edge.binds == [("p", "n1")]
    assert (len(made.scheduler.waiting_pods), made.snapshot().waiting) == (0, {})


async def test_one_that_somebody_else_binds_elsewhere_leaves_its_room_to_others():
    made = world()
    pod = await held(made, cpu="2")
    made.comes("other", cpu="1")
    await made.turn()
    made.bound(pod, "n2")
    await made.turn(after=2.0)
    assert made.edge.binds == [("other", "n1")]


@pytest.mark.parametrize("goes", [True, False])
async def test_one_that_cannot_be_read_any_more_goes_on_as_it_was(goes):
    made = world()
    pod = await held(made, cpu="2")
    made.edits(pod, spec={"containers": pod_object("p", cpu="much").spec.containers})
    await made.turn()
    assert (made.where(), made.assigned()) == (SubQueue.WAITING, ("n1", True))
    made.comes("other", cpu="1")
    if goes:
        made.edits(pod, metadata={"annotations": {"go": "yes"}})
    await made.turn(after=61.0)
    assert made.edge.binds == [("p" if goes else "other", "n1")]


@pytest.mark.parametrize("rule", [GO, "permit: wait 1h until node.label ready=yes\n"])
async def test_what_lets_a_pod_go_wakes_a_loop_that_sleeps(rule):
    made = world(rule)
    stop = asyncio.Event()
    running = asyncio.create_task(made.scheduler.run(stop))
    pod = made.comes(labels={"held": "yes"})
    await until(lambda: made.where() is SubQueue.WAITING)
    for _ in range(10):
        await asyncio.sleep(0)  # it sleeps until the minute is over
    made.handlers.nodes.on_update(
        make_node("n1", cpu="2"), make_node("n1", cpu="2", labels={"ready": "yes"})
    )
    made.edits(pod, metadata={"annotations": {"go": "yes"}})
    await until(lambda: made.edge.binds)
    stop.set()
    await running


async def test_who_waits_is_known_to_plugins_and_can_be_listed():
    made = world()
    await held(made)
    (waiting,) = made.snapshot().waiting.values()
    assert (waiting.pod.name, waiting.node, waiting.plugins) == ("p", "n1", frozenset({"p"}))
    assert waiting.since == made.clock.time()
    (one,) = made.scheduler.waiting_pods
    assert (one.pod.name, one.node, one.why) == ("p", "n1", "nobody said go (p.policy:1)")


@pytest.mark.parametrize(("then", "binds"), [("", []), (", then allow", [("p", "n1")])])
async def test_when_the_time_is_up_the_rule_says_what_follows(then, binds):
    rule = f"permit: wait 60s until pod.annotation go=yes{then}"
    made = world(f"{rule}\n")
    await held(made)
    await made.turn(after=59.0)
    assert made.where() is SubQueue.WAITING
    assert made.scheduler.waiting_pods.due == 60.0
    await made.turn(after=1.0)
    result = "Success" if binds else "UnschedulableAndUnresolvable"
    assert made.telemetry.value(PERMIT_SECONDS, result) == 1
    assert made.edge.binds == binds
    assert told(made, "FailedScheduling") == ([] if binds else [f"{REFUSED}{rule} (p.policy:1)"])
    assert (made.assigned() is None) == (not binds)


async def test_a_rule_about_the_clock_turns_at_its_instant():
    made = world("permit: wait 1h until now - pod.created > 90s\n")
    created = "2025-03-01T09:59:00Z"  # a minute ago
    pod = changed(pod_object("p"), metadata={"creation_timestamp": created})
    made.handlers.pods.on_add(pod)
    await made.turn()
    assert 30.0 <= made.scheduler.waiting_pods.due <= 30.1
    await made.turn(after=30.1)
    assert made.edge.binds == [("p", "n1")]


async def test_another_pod_that_gets_a_node_is_what_some_wait_for():
    made = world(
        "permit: pod.label held -> wait 60s until count(cluster.pods where it.label held) >= 2\n"
    )
    await held(made, "a")
    made.comes("b", labels={"held": "yes"})
    await made.turn()
    assert sorted(made.edge.binds) == [("a", "n1"), ("b", "n1")]


async def test_members_of_a_group_wait_for_each_other_by_a_rule():
    made = world(
        "permit: group.name is present -> wait 60s until group.reserved >= group.min_member"
        ' message "{group.reserved} of {group.min_member}, {group.waiting} wait"\n'
    )
    group = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"minMember": 3}}
    made.cache.set_object(from_builtins(PodGroup, group))
    labels = {"scheduling.x-k8s.io/pod-group": "g"}
    for name in ("a", "b"):
        made.comes(name, labels=labels)
        await made.turn()
    assert made.edge.binds == []
    assert told(made, "WaitingOnPermit") == [
        f"waits on node n1, 60 s at most: {words} (p.policy:1)"
        for words in ("1 of 3, 0 wait", "2 of 3, 1 wait")
    ]
    made.comes("c", labels=labels)
    await made.turn()
    assert sorted(made.edge.binds) == [("a", "n1"), ("b", "n1"), ("c", "n1")]


@pytest.mark.parametrize(
    ("files", "binds"),
    [
        ({"p.policy": GO.replace("annotation go=yes", "label held")}, 1),
        ({"p.policy": "filter: node.ready or true\n"}, 1),
        ({}, 1),
        ({"p.policy": GO.replace("60s", "2m")}, 0),
    ],
)
async def test_new_rules_are_asked_at_once_and_rules_that_are_gone_hold_nobody(files, binds):
    made = world()
    await held(made)
    made.clock.advance(5.0)
    made.scheduler.use(chain(files), frozenset({"p"}))
    await made.turn()
    assert len(made.edge.binds) == binds
    if not binds:
        (waits,) = made.scheduler.waiting_pods
        assert waits.due == 120.0, "since it came, not since the edit"


async def test_who_waits_keeps_no_rules_that_are_gone():
    """It may wait for a day, and what is kept for rules may take 96 MiB."""
    made = World()
    rules = chain({"p.policy": GO})
    before = weakref.ref(rules)
    gc.disable()
    try:
        made.scheduler.use(rules, None)
        del rules
        await held(made)
        assert before() is not None
        made.scheduler.use(chain({"p.policy": GO.replace("60s", "2m")}), frozenset({"p"}))
        await made.turn()
        assert made.where() is SubQueue.WAITING
        assert before() is None
    finally:
        gc.enable()


async def test_a_pod_that_is_deleted_while_it_waits_gives_its_place_back():
    made = world()
    pod = await held(made, cpu="2")
    made.comes("next", cpu="2")
    await made.turn()
    made.handlers.pods.on_update(pod, being_deleted(pod))
    await made.turn(after=2.0)
    assert made.edge.binds == [("next", "n1")]
    assert (len(made.scheduler.waiting_pods), made.snapshot().waiting) == (0, {})
    await made.turn(after=100.0)
    assert told(made, "FailedScheduling") == [
        "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: "
        "1 No preemption victims found for incoming pod."
    ], "nothing is said of the one that is gone"


async def test_a_pod_that_somebody_else_binds_is_let_go_of():
    made = world()
    pod = await held(made)
    made.bound(pod, "n1")
    await made.turn()
    assert (made.edge.binds, made.assigned()) == ([], ("n1", False))
    assert (len(made.scheduler.waiting_pods), made.snapshot().waiting) == (0, {})


@pytest.mark.parametrize("again", [False, True])
async def test_a_node_that_goes_takes_the_wait_with_it(again):
    made = world()
    await held(made)
    made.handlers.nodes.on_delete(made.cache.nodes.node(0))
    if again:  # another node of its name, before anybody is asked
        made.handlers.nodes.on_add(make_node("n1", cpu="2", unschedulable=True))
    await made.turn()
    assert told(made, "FailedScheduling")[0] == f"{REFUSED}the node is gone"
    await made.turn(after=20.0)
    assert made.assigned() is None


async def test_a_more_important_pod_takes_the_place_and_nobody_is_deleted():
    made = world()
    await held(made, cpu="2")
    made.comes("high", cpu="2", priority=10)
    await made.turn()
    await made.turn(after=2.0)
    assert made.edge.binds == [("high", "n1")]
    assert made.edge.evictions == []
    assert f"{REFUSED}preempted by default/high" in told(made, "FailedScheduling")


async def test_a_storm_of_events_is_taken_in_slices():
    made = world("permit: wait 60s until node.label go=yes\n", nodes=())
    made.handlers.nodes.on_add(_node("n1"))
    many = 3 * TESTS_A_SLICE
    for number in range(many):
        made.comes(f"p{number}")
    await made.turn()
    assert len(made.scheduler.waiting_pods) == many
    asked = []
    permit = made.framework.permit
    made.framework.permit = lambda *args: asked.append(0) or permit(*args)
    for name in ("x", "y", "z"):
        made.handlers.nodes.on_update(_node("n1"), _node("n1", labels={name: "yes"}))
    made.scheduler.work()
    assert len(asked) == TESTS_A_SLICE
    await made.turn()
    assert len(asked) == many, "three events, and each is asked once"


def _node(name, **how):
    return make_node(name, cpu="32", **how)


async def test_of_too_many_that_wait_the_last_are_tried_again_later(monkeypatch):
    monkeypatch.setattr("engine.waitingpods.MOST_WAITING", 1)
    made = world()
    await held(made, "a")
    made.comes("b", labels={"held": "yes"})
    await made.turn()
    assert told(made, "FailedScheduling") == ["1 pods wait in permit already"]
    assert made.where("b") is SubQueue.BACKOFF
    assert made.assigned("b") is None
    assert MOST_WAITING == 5_000


async def test_the_time_of_who_waits_no_longer_is_not_that_of_others():
    made = world("permit: wait 20h until pod.annotation go=yes\n")
    for number in range(9):
        pod = await held(made, f"p{number}")
        made.edits(pod, metadata={"annotations": {"go": "yes"}})
        await made.turn()
    await held(made, "last")
    await made.turn(after=20 * 3600.0)
    assert made.where("last") is not SubQueue.WAITING


# ---- by a plugin ---------------------------------------------------------------------------------

POD_CAME = (ClusterEvent(Resource.ASSIGNED_POD, Action.ALL),)


class Pairs:
    """Holds each pod until another comes, and lets both go; a pod named `stop` ends all waits."""

    name = "Pairs"

    def __init__(self, timeout=60.0):
        self.timeout = timeout
        self.asked = []

    def points(self):
        return Points(permit=self.permit, reserve=self.reserve)

    def reserve(self, pod, snapshot, row):
        return ReserveResult(
            effects=(AssumeObject("PersistentVolume", pod.name, _volume(pod.name)),)
        )

    def permit(self, pod, snapshot, row, waited):
        self.asked.append((pod.name, waited))
        others = [uid for uid in snapshot.waiting if uid != pod.uid]
        if pod.name == "stop":
            no = unschedulable("it is over")
            return PermitResult(no, others=dict.fromkeys(others, no))
        if others:
            return PermitResult(others=dict.fromkeys(others, Status.SUCCESS))
        return PermitResult(Status(Code.WAIT, ("alone",)), self.timeout)


def _volume(name):
    return from_builtins(PersistentVolume, {"metadata": {"name": name, "resourceVersion": "1"}})


def pairs(**how):
    made = World(in_tree=(*default_plugins(), Weighted(Pairs(**how))))
    for name in ("a", "b", "stop"):
        volume = _volume(name)
        made.cache.set_object(msgspec.structs.replace(volume))
    return made


async def test_a_plugin_lets_others_go_with_the_one_that_it_is_asked_about():
    made = pairs()
    made.comes("a")
    await made.turn()
    assert made.where("a") is SubQueue.WAITING
    made.comes("b")
    await made.turn()
    assert sorted(made.edge.binds) == [("a", "n1"), ("b", "n1")]


async def test_a_plugin_rejects_others_with_the_one_that_it_is_asked_about():
    made = pairs()
    made.comes("a")
    await made.turn()
    made.comes("stop")
    await made.turn()
    assert told(made, "FailedScheduling") == [f"{REFUSED}it is over"] * 2
    assert made.edge.binds == []
    assert made.assigned("a") is made.assigned("stop") is None


async def test_who_says_wait_when_the_time_is_up_has_rejected_and_reservations_are_undone():
    made = pairs(timeout=7.5)
    undone = []
    restore = made.cache.restore_object
    made.cache.restore_object = lambda *args: undone.append(args[1]) or restore(*args)
    made.comes("a")
    await made.turn()
    await made.turn(after=7.5)
    assert told(made, "FailedScheduling") == [f"{REFUSED}timed out after 8 s: alone"]
    assert undone == ["a"]


async def test_a_plugin_that_raises_while_a_pod_waits_takes_it_back():
    made = world(GO)
    await held(made)
    plugin = Pairs()

    def raises(*args):
        raise ZeroDivisionError("no")

    plugin.permit = raises
    plugin.name = "p"
    made.scheduler.use(chain({}, in_tree=(*default_plugins(), Weighted(plugin))), None)
    await made.turn()
    assert made.where() is SubQueue.BACKOFF
    (said,) = told(made, "FailedScheduling")
    assert "ZeroDivisionError: no" in said


async def test_nobody_is_bound_who_waits_when_the_process_stops():
    made = world()
    await held(made)
    await made.scheduler.drain()
    assert made.edge.binds == []


def test_who_checks_a_policy_knows_how_long_a_pod_may_wait():
    assert rules.MOST_SECONDS == MOST_SECONDS
