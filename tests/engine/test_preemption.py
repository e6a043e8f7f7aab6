"""Preemption and what is prepared for a pod, from the queue to a server that does as it is told."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.binding import marked
from engine.clock import ManualClock
from engine.executor import Changes, Executor
from engine.framework.effects import AssumeObject, Await, Emit, Patch
from engine.framework.interface import Points, PreBindResult, ReserveResult
from engine.framework.profile import Weighted
from engine.framework.status import Status, unschedulable
from engine.objects import ObjectMeta
from engine.objects.storage import PersistentVolume, PersistentVolumeSpec
from engine.queue import SubQueue
from engine.telemetry import ATTEMPTS
from tests.builders import Cache, changed, default_plugins, make_node, make_pod, pod_object
from tests.effort import examples
from tests.engine.test_scheduler import GONE, World, until

FOUND = "preemption: found a potential placement for pod on node n1, preempting {} victims"


def full(world, *names, priority=0):
    """Pods that take all of n1, bound and known."""
    share = f"{2000 // len(names)}m"
    pods = [pod_object(name, cpu=share, node="n1", priority=priority) for name in names]
    for pod in pods:
        world.handlers.pods.on_add(pod)
    return pods


def being_deleted(pod):
    return changed(pod, metadata={"deletion_timestamp": "2025-03-01T10:00:00Z"})


async def settle(world, *, after=0.0):
    """Works until nothing more happens by itself, once so many seconds have passed."""
    world.clock.advance(after)
    for _ in range(30):
        world.scheduler.work()
        await asyncio.sleep(0)


# ---- evictions -----------------------------------------------------------------------------------


async def test_a_victim_is_going_whatever_the_watch_says_that_was_so_before():
    world = World()
    low = world.comes("low", cpu="2")
    await settle(world)
    world.comes("high", cpu="2", priority=10)
    await settle(world)
    assert world.edge.evictions == ["low"]
    world.bound(low, "n1")  # told late
    assert world.assigned("low") == ("n1", False)
    world.handlers.pods.on_delete(world.comes("other", node="n1"))
    await settle(world, after=11.0)
    assert world.edge.evictions == ["low"], "once"


@pytest.mark.parametrize("when", ["evicting", "gone"])
async def test_a_pod_that_a_gate_holds_leaves_its_promised_room_to_others(when):
    gate = "gate: pod.label app=a -> count(cluster.pods where it.label stop=yes) == 0\n"
    world = World({"p.policy": gate})
    [low] = full(world, "low")
    world.comes("high", cpu="2", priority=10, labels={"app": "a"})
    if when == "evicting":
        world.scheduler.work()
    else:
        await settle(world)
    assert world.edge.nominations == [("high", "n1")]
    world.comes("small", cpu="1")
    await settle(world)
    world.comes("stop", node="n1", labels={"stop": "yes"})
    world.handlers.pods.on_delete(low)
    await settle(world)
    assert world.where("high") is SubQueue.GATED
    await settle(world, after=59.0)
    assert world.edge.binds == [], "it may open again"
    await settle(world, after=1.0)
    assert ("high", "") in world.edge.nominations
    world.clock.advance(11.0)  # its backoff
    await settle(world)
    assert world.edge.binds == [("small", "n1")]


async def test_a_pod_of_higher_priority_evicts_is_promised_the_node_and_bound_there():
    world = World()
    a, b = full(world, "a", "b")
    world.comes("high", cpu="2", priority=10)
    await settle(world)
    assert sorted(world.edge.evictions) == ["a", "b"]
    assert world.edge.nominations == [("high", "n1")]
    assert world.edge.conditions[-1][2].endswith(FOUND.format(2))
    told = [event for event in world.edge.events if event[2] == "Preempted"]
    assert told[0] == ("a", "Normal", "Preempted", "Preempted by pod uid-default-high on node n1")
    world.handlers.pods.on_delete(a)
    world.comes("low", cpu="1")
    await settle(world)
    assert world.where("low") is SubQueue.UNSCHEDULABLE, "the room is promised"
    world.handlers.pods.on_delete(b)
    await settle(world, after=2.0)
    assert world.assigned("high") == ("n1", True)
    assert not len(world.cache.nominations)
    assert len(world.edge.evictions) == 2


@pytest.mark.parametrize("first", ["the node", "the promise"])
async def test_a_pod_that_somebody_else_promises_a_node_is_tried_beside_others_of_its_class(first):
    """As an autoscaler does that adds one: the others do not fit there for the promise."""
    world = World()
    full(world, "there")
    world.comes("a", cpu="2")
    pod = world.comes("b", cpu="2")
    await settle(world)
    world.clock.advance(11.0)
    for what in ("node", "promise") if first == "the node" else ("promise", "node"):
        if what == "node":
            world.add([make_node("n2", cpu="2")])
        else:
            world.edits(pod, status={"nominated_node_name": "n2"})
    await settle(world)
    assert world.edge.binds == [("b", "n2")]


async def test_while_victims_are_going_nobody_else_is_evicted():
    world = World(nodes=("n1", "n2"))
    full(world, "a")
    world.handlers.pods.on_add(pod_object("b", cpu="2", node="n2"))
    world.comes("high", cpu="2", priority=10)
    await settle(world)
    world.clock.advance(400.0)  # leftovers are tried again
    await settle(world)
    assert len(world.edge.evictions) == 1
    assert world.edge.conditions[-1][2].endswith("a terminating pod on the nominated node.")
    assert world.where("high") is SubQueue.UNSCHEDULABLE
    assert (
        world.cache.nominations.node_of("uid-default-high") == world.decisions[0].rescue.nominated
    )


async def test_a_preemptor_is_gated_until_all_deletions_are_carried_out():
    world = World()
    a, _ = full(world, "a", "b")
    answered = asyncio.get_running_loop().create_future()
    world.edge.evict_answers.extend(["", answered])
    world.comes("high", cpu="1", priority=10)
    world.comes("higher", cpu="2", priority=20)
    await settle(world)
    world.handlers.pods.on_delete(a)
    await settle(world, after=20.0)
    assert world.where("higher") is SubQueue.GATED
    tried = len(world.decisions)
    answered.set_result("")
    await settle(world)
    assert world.where("higher") is SubQueue.UNSCHEDULABLE
    assert len(world.decisions) > tried, "what woke it meanwhile is not forgotten"


async def test_an_eviction_that_fails_leaves_the_rest_and_is_tried_again():
    world = World()
    full(world, "a", "b")
    world.edge.evict_answers.append("the server is away")
    world.comes("high", cpu="2", priority=10)
    await settle(world)
    assert len(world.decisions) == 1, "a server that refuses is not asked on end"
    await settle(world, after=2.0)
    assert len(world.decisions) == 2
    assert len(world.edge.evictions) == 3, "one refused; then both"


async def test_evictions_that_are_refused_are_tried_again_less_and_less_often():
    world = World()
    full(world, "a")
    world.edge.evict_answers.extend(["no"] * 99)
    world.comes("high", cpu="2", priority=10)
    for _ in range(60):
        await settle(world)
        world.clock.advance(1.0)
    assert 7 <= len(world.edge.evictions) <= 10


async def test_a_pod_with_a_promise_is_tried_again_when_others_are_gone_from_its_node():
    """One of its victims did not go, and what rejects it now is told of no other."""
    quota = "quota: pod.label team -> by pod.label[team] max cpu 2\n"
    world = World({"p.policy": f"{quota}preempt: victims where it.priority < pod.priority\n"})
    team = {"labels": {"team": "a"}}
    mine = pod_object("mine", cpu="1", node="n1", **team)
    other = pod_object("other", cpu="1", node="n1")
    world.handlers.pods.on_add(mine)
    world.handlers.pods.on_add(other)
    evict, refused = world.edge.evict, ["mine"]

    async def sometimes(effect):
        answer = await evict(effect)
        return refused.pop() if [effect.pod.name] == refused else answer

    world.edge.evict = sometimes
    world.comes("high", cpu="2", priority=10, **team)
    for _ in range(5):
        await settle(world)
        world.clock.advance(2.0)
    assert sorted(world.edge.evictions) == ["mine", "other"]
    assert world.cache.nominations.node_of("uid-default-high") == "n1"
    world.handlers.pods.on_delete(other)
    for _ in range(8):
        await settle(world)
        world.clock.advance(2.0)
    assert sorted(world.edge.evictions) == ["mine", "mine", "other"]
    world.handlers.pods.on_delete(mine)
    await settle(world)
    assert world.assigned("high") == ("n1", True)


async def test_a_less_important_promise_is_taken_back():
    world = World()
    full(world, "a")
    world.comes("middle", cpu="2", priority=5)
    await settle(world)
    assert world.cache.nominations.node_of("uid-default-middle") == "n1"
    world.comes("high", cpu="2", priority=10)
    await settle(world)
    assert world.cache.nominations.node_of("uid-default-high") == "n1"
    assert world.cache.nominations.node_of("uid-default-middle") == ""
    assert world.edge.nominations == [("middle", "n1"), ("middle", ""), ("high", "n1")]
    assert world.edge.evictions == ["a"], "it is going already"


async def promised_n1():
    """Both nodes are full, and the pod `middle` is promised n1, whose pod counts least."""
    world = World(nodes=("n1", "n2"))
    full(world, "a")
    world.comes("b", cpu="2", node="n2", priority=1)
    middle = world.comes("middle", cpu="2", priority=5)
    await settle(world)
    return world, middle


async def test_a_pod_whose_nomination_was_cleared_looks_elsewhere_before_the_server_confirms_it():
    world, middle = await promised_n1()
    world.edits(middle, status={"nominated_node_name": "n1"})
    world.comes("high", cpu="2", priority=10)
    await settle(world)
    assert world.edge.nominations == [("middle", "n1"), ("middle", ""), ("high", "n1")]
    world.queue.activate(["uid-default-middle"])
    await settle(world, after=11.0)
    assert world.edge.nominations[3:] == [("middle", "n2")]
    assert world.edge.evictions == ["a", "b"]


@pytest.mark.parametrize("written", [True, False])
async def test_a_late_echo_of_the_server_clears_no_nomination(written):
    world, middle = await promised_n1()
    world.comes("high", cpu="2", priority=10)
    await settle(world)

    def hears(node):
        nonlocal middle
        middle = world.edits(middle, status={"nominated_node_name": node})
        return world.cache.nominations.node_of("uid-default-middle")

    if not written:
        world.clock.advance(61.0)
        assert hears("n1") == "n1", "somebody else says so"
        return
    assert hears("n1") == "", "taken back since"
    world.queue.activate(["uid-default-middle"])
    await settle(world, after=11.0)
    assert world.edge.nominations[3:] == [("middle", "n2")]
    assert [hears(node) for node in ("", "n2")] == ["n2", "n2"]
    assert [hears(node) for node in ("n1", "")] == ["n1", ""], "somebody else says so"


async def test_those_that_are_promised_a_node_are_no_stand_ins_for_others_of_their_class():
    world = World()
    first, _ = full(world, "a", "b")
    names = [f"middle{number}" for number in range(4)]
    for name in names:
        world.comes(name, cpu="1", priority=5)
        await settle(world)
    promised = [one.name for one in world.cache.nominations]
    assert len(promised) == 2
    # The server was told of no promise, or what it said of one has not come yet.
    assert not any(queued.pod.pod.status.nominated_node_name for queued in world.queue)
    for victim in (first, *[pod_object("b", cpu="1", node="n1")]):
        world.handlers.pods.on_delete(victim)
        await settle(world, after=20.0)
    assert sorted(name for name in names if world.assigned(name)) == sorted(promised)


@pytest.mark.parametrize("left", ["no node", "nobody who preempts"])
async def test_a_promise_is_taken_back_where_nobody_looks_for_another_way(left):
    every = default_plugins()
    if left == "nobody who preempts":
        every = tuple([one for one in every if one.plugin.points().post_filter is None])
    world = World(in_tree=every, nodes=("n1", "n2"))
    full(world, "a")
    world.comes("high", cpu="4", priority=10, status={"nominatedNodeName": "n1"})
    if left == "no node":
        for name in ("n1", "n2"):
            world.handlers.nodes.on_delete(make_node(name, cpu="2"))
    await settle(world)
    assert world.edge.nominations == [("high", "")]


async def test_a_pod_being_deleted_keeps_its_promise_until_it_is_gone():
    world = World()
    waits = world.comes("waits", cpu="2", priority=5, status={"nominatedNodeName": "n1"})
    world.handlers.pods.on_update(waits, being_deleted(waits))
    world.comes("low", cpu="1")
    await settle(world)
    assert world.where("low") is SubQueue.UNSCHEDULABLE
    world.handlers.pods.on_delete(being_deleted(waits))
    await settle(world, after=2.0)
    assert world.assigned("low") == ("n1", True)


@pytest.mark.parametrize(
    ("cpu", "priority", "binds", "nominations"),
    [
        ("2", 0, [("first", "n2"), ("theirs", "n1")], []),
        ("3", 1, [("first", "n1")], [("theirs", "")]),
        ("2", -1, [("first", "n1"), ("theirs", "n2")], []),
    ],
    ids=["kept", "without room", "less important"],
)
async def test_a_node_that_somebody_else_nominated_is_kept_if_it_can_be(
    cpu, priority, binds, nominations
):
    world = World()
    dislike = [{"key": "k", "effect": "PreferNoSchedule"}]
    world.handlers.nodes.on_add(make_node("n2", cpu="2", taints=dislike))
    world.comes("first", cpu="2")
    world.comes("theirs", cpu=cpu, priority=priority, status={"nominatedNodeName": "n1"})
    await settle(world)
    assert (world.edge.binds, world.edge.nominations) == (binds, nominations)


async def test_a_nomination_does_not_keep_a_pod_from_a_node_with_fewer_victims():
    world = World(nodes=("n1", "n2"))
    full(world, "a", "b")
    world.handlers.pods.on_add(pod_object("c", cpu="1500m", node="n2"))
    world.comes("theirs", cpu="2", priority=10, status={"nominatedNodeName": "n1"})
    await settle(world)
    assert (world.edge.evictions, world.edge.nominations) == (["c"], [("theirs", "n2")])


async def test_a_pod_that_loses_its_nominated_room_to_a_more_important_one_goes_elsewhere():
    world = World()
    answer = asyncio.get_running_loop().create_future()
    world.edge.bind_answers.append(answer)
    late = world.comes("late", cpu="1")
    await settle(world)
    [bound] = full(world, "bound")
    world.comes("middle", cpu="2", priority=5)
    await settle(world)
    assert sorted(world.edge.evictions) == ["bound", "late"], "whose binding is on its way, too"
    world.handlers.pods.on_delete(bound)
    world.comes("high", cpu="1", priority=10)
    await settle(world)
    world.handlers.nodes.on_add(make_node("n2", cpu="2"))
    world.handlers.pods.on_delete(late)
    await settle(world)
    assert world.edge.binds == [("late", "n1"), ("high", "n1"), ("middle", "n2")]
    answer.set_result(GONE)
    await settle(world)
    assert world.assigned("late") is None


async def test_equal_pods_that_fit_nowhere_are_worked_out_once():
    world = World()
    asked = []
    rejections = world.framework.rejections
    world.framework.rejections = lambda *args: asked.append(0) or rejections(*args)
    for number in range(50):
        world.comes(f"p{number}", cpu="99")
    await settle(world)
    assert len({one.message for one in world.decisions}) == 1
    assert len(asked) == 1


# ---- what is prepared ----------------------------------------------------------------------------


class Prepares:
    """Pods named so need something before they are bound."""

    name = "Prepares"

    def __init__(self, *effects, annotations=None, reserved=()):
        self.effects, self.reserved, self.annotations = effects, reserved, annotations or {}
        self.seen = []

    def points(self):
        return Points(reserve=self._reserve, pre_bind=self._pre_bind)

    def _reserve(self, pod, snapshot, row):
        return ReserveResult(effects=self.reserved)

    def _pre_bind(self, pod, snapshot, row, decision):
        there = map(snapshot.pods.pod, snapshot.pods.on(row).tolist())
        self.seen.append([dict(one.pod.metadata.annotations or {}) for one in there])
        return PreBindResult(annotations=self.annotations, effects=self.effects)


def with_plugin(plugin):
    return World(in_tree=(*default_plugins(), Weighted(plugin)))


async def test_the_next_pod_sees_what_was_written_on_the_one_before():
    plugin = Prepares(annotations={"card": "0"})
    world = with_plugin(plugin)
    world.comes("a")
    world.comes("b")
    await world.turn()
    assert plugin.seen == [[{}], [{"card": "0"}, {}]]
    assert world.assigned("a") == ("n1", True)


def test_labels_that_stay_are_one_object_for_all_pods():
    pod = pod_object("p", labels={"a": "b"})
    assert marked(pod, {"card": "0"}, {}).metadata.labels is pod.metadata.labels


async def test_a_wait_is_outside_of_the_slots_and_ends_with_a_change_of_its_kind():
    ready = []
    check = Await(
        "a volume",
        lambda _: Status.SUCCESS if ready else Status(unschedulable().code.PENDING),
        frozenset({"PersistentVolume"}),
        600.0,
    )
    world = with_plugin(Prepares(check))
    world.comes("p")
    await settle(world)
    assert (world.scheduler.in_flight, world.edge.binds) == (0, [])
    assert world.edge.nominations == [("p", "n1")], "it goes there, whoever decides by then"
    ready.append(True)
    world.scheduler.changes.changed("PersistentVolume")
    await until(lambda: world.edge.binds)
    await world.turn()
    assert world.assigned("p") == ("n1", True)


async def test_a_victim_that_is_still_being_prepared_is_not_deleted():
    never = Await("ever", lambda _: Status(unschedulable().code.PENDING), frozenset(), 600.0)
    plugin = Prepares(never)
    world = with_plugin(plugin)
    world.comes("low", cpu="1")
    await settle(world)
    world.handlers.nodes.on_add(make_node("small", cpu="1"))
    plugin.effects = ()
    world.comes("high", cpu="2", priority=10)
    await settle(world)
    await settle(world, after=2.0)
    assert world.edge.evictions == []
    assert world.edge.binds == [("high", "n1"), ("low", "small")]
    assert any(event[3].endswith("(in kube-scheduler memory).") for event in world.edge.events)


@pytest.mark.parametrize(
    "ends", ["refused", "raises", "timeout", "stopping", "deleted", "bound elsewhere"]
)
async def test_whatever_ends_a_wait_takes_back_what_was_reserved(ends):
    said = [Status(unschedulable().code.PENDING)]
    check = Await("it", lambda _: said[0], frozenset({"X"}), 5.0)
    assumed = AssumeObject("PersistentVolume", "v", volume("v", "fast"))
    world = with_plugin(Prepares(check, reserved=(assumed,)))
    world.cache.set_object(volume("v", ""))
    pod = world.comes("p")
    await settle(world)
    assert of_class(world.cache, "v") == "fast"
    if ends == "deleted":
        world.handlers.pods.on_delete(pod)
    if ends == "bound elsewhere":
        world.bound(pod, "n2")
    if ends == "refused":
        said[0] = unschedulable("no")
    if ends == "raises":
        said.clear()
    if ends == "timeout":
        world.clock.advance(6.0)
    if ends == "stopping":
        world.scheduler._bindings.stop()
    if ends not in ("deleted", "bound elsewhere"):
        world.scheduler.changes.changed("X")
    await settle(world)
    assert of_class(world.cache, "v") == ""
    assert world.assigned("p") == (("n2", False) if ends == "bound elsewhere" else None)
    assert world.edge.binds == []
    telemetry = world.scheduler._bindings.measures.telemetry
    errors = telemetry.value(ATTEMPTS, "error", pod.spec.scheduler_name)
    assert errors == (ends in ("raises", "timeout", "stopping")), (
        "what others did is no error of ours"
    )


def volume(name, of_class):
    meta = ObjectMeta(name=name, resource_version="1")
    return PersistentVolume(meta, PersistentVolumeSpec(storage_class_name=of_class))


def of_class(cache, name):
    return cache.store("PersistentVolume").objects[name].spec.storage_class_name


ASSUME = st.builds(
    lambda name, kind: AssumeObject("PersistentVolume", name, volume(name, kind)),
    st.sampled_from(["a", "b", "unknown"]),
    st.sampled_from(["fast", "slow"]),
)
WRITE = st.sampled_from(["ok", "refused"]).map(
    lambda body: Patch("PersistentVolume", "", "a", {"answer": body})
)
CHECK = st.sampled_from([Status.SUCCESS, unschedulable("no")]).map(
    lambda status: Await("it", lambda _: status, frozenset({"PersistentVolume"}), 1.0)
)
TOLD = st.just(Emit("Pod", "default", "p", "u", "Normal", "R", "A", "note"))


class Server:
    async def patch(self, effect):
        await asyncio.sleep(0)
        return "" if effect.body["answer"] == "ok" else "refused"

    def emit(self, effect):
        pass


@settings(max_examples=examples(60), deadline=None)
@given(
    reserved=st.lists(ASSUME | TOLD, max_size=4),
    effects=st.lists(ASSUME | WRITE | CHECK | TOLD, max_size=6),
    cancelled=st.booleans(),
)
def test_whatever_fails_the_cache_is_as_before(reserved, effects, cancelled):
    cache = Cache()
    for name in "ab":
        cache.set_object(volume(name, ""))
    server = Server()
    executor = Executor(
        cache=cache,
        writer=server,
        events=server,
        changes=Changes(),
        snapshot=lambda: cache.snapshot(0.0),
        clock=ManualClock(),
    )

    async def attempt():
        status = executor.reserve(reserved)
        if not status.ok:
            return status
        if cancelled:
            executor.cancel("no longer wanted")
        return await executor.carry_out(effects)

    status = asyncio.run(attempt())
    if not status.ok:
        assert [of_class(cache, name) for name in "ab"] == ["", ""]
    else:
        last = {e.key: e.value for e in (*reserved, *effects) if isinstance(e, AssumeObject)}
        for name in "ab":
            expected = last[name].spec.storage_class_name if name in last else ""
            assert of_class(cache, name) == expected
        executor.undo()
        executor.undo()
        assert [of_class(cache, name) for name in "ab"] == ["", ""]


def test_what_is_done_early_is_written_on_no_other_pod():
    cache = Cache()
    pod = make_pod("p")
    cache.carry(pod.pod)  # not on a node: nothing happens
    assert cache.assigned() == {}
