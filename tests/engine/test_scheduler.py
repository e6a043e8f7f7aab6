"""The scheduler between queue, cache and a server that answers as it is told."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from datetime import UTC, datetime
from itertools import count, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cache.otherpods import QUEUE, TIMES
from engine.clock import ManualClock
from engine.framework.edge import BindOutcome, Edge
from engine.framework.events import Action, ClusterEvent, ClusterEventWithHint, Resource
from engine.framework.interface import SKIP_FILTER, PermitResult, Points, PreFilterResult, Verdicts
from engine.framework.profile import Profile, Weighted
from engine.framework.runtime import Framework
from engine.framework.status import Code, Status
from engine.objects import Condition
from engine.pods.podinfo import make_pod_info
from engine.policy.accounts import Account
from engine.queue import SubQueue
from engine.scheduler import MOST_IN_FLIGHT
from engine.simulate.lab import Lab
from engine.telemetry import ATTEMPTS, Count
from tests.builders import Cache, changed, default_plugins, make_node, make_pod, pod_object
from tests.effort import examples
from tests.engine.policy.builders import Samples, chain, policies

BOUND = (BindOutcome.BOUND, "")
TAKEN = (BindOutcome.TAKEN, "it is bound to other")
GONE = (BindOutcome.GONE, "the pod is not found")
REFUSED = (BindOutcome.REFUSED, "quota")
PUT_OFF = (BindOutcome.PUT_OFF, "quota")
UNKNOWN = (BindOutcome.UNKNOWN, "connection reset")


class FakeEdge:
    """Binder, status writer and event sink in one. Answers are taken one a call.

    An answer may be an exception to raise or a future to wait for.
    """

    def __init__(self):
        self.binds, self.resolves = [], []
        self.bind_answers, self.resolve_answers, self.evict_answers = deque(), deque(), deque()
        self.patch_answers = deque()
        self.evictions, self.patches, self.nominations = [], [], []
        self.conditions, self.events, self.pauses, self.calls = [], [], [], []
        self.told_of = []

    async def bind(self, effect):
        self.binds.append((effect.pod.name, effect.node))
        self.calls.append(("bind", effect.pod.uid))
        return await self._answer(self.bind_answers)

    async def resolve(self, effect):
        self.resolves.append(effect.pod.name)
        return await self._answer(self.resolve_answers)

    async def _answer(self, answers):
        await asyncio.sleep(0)
        answer = answers.popleft() if answers else BOUND
        if isinstance(answer, asyncio.Future):
            answer = await answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    def set_unschedulable(self, effect):
        self.told_of.append(effect.pod.pod)
        self.conditions.append((effect.pod.name, effect.reason, effect.message))
        if effect.nominated is not None:
            self.nominations.append((effect.pod.name, effect.nominated))

    async def withdraw(self, uid):
        self.calls.append(("withdraw", uid))

    def emit(self, effect):
        self.events.append((effect.name, effect.type, effect.reason, effect.note))

    async def evict(self, effect):
        self.evictions.append(effect.pod.name)
        answer = await self._answer(self.evict_answers)
        return "" if answer == BOUND else answer

    async def patch(self, effect):
        self.patches.append((effect.name, effect.body))
        self.calls.append(("patch", effect.name))
        answer = await self._answer(self.patch_answers)
        return "" if answer == BOUND else answer

    async def pause(self, seconds):
        self.pauses.append(seconds)
        await asyncio.sleep(0)


class World(Lab):
    """A lab with a server that answers as it is told."""

    def __init__(
        self,
        files=None,
        *,
        nodes=("n1",),
        framework=True,
        rules=None,
        in_tree=None,
        cache=None,
        edge=None,
        clock=None,
    ):
        cache = cache or Cache()
        self.edge = edge or FakeEdge()
        self.framework = rules or chain({} if files is None else files, in_tree=in_tree)
        self.samples = Samples(cache).serve(self.framework)
        edge = Edge(self.edge, self.edge, self.edge, self.edge, self.edge.pause)
        super().__init__(
            self.framework,
            clock=clock or ManualClock(),
            signals=self.samples,
            cache=cache,
            edge=edge,
        )
        if not framework:
            self.scheduler._basis.framework = None
        self.add(make_node(name, cpu="2") for name in nodes)

    def comes(self, name="p", **how):
        pod = pod_object(name, **how)
        self.handlers.pods.on_add(pod)
        return pod

    async def turn(self, *, after=0.0):
        """Works until nothing is to be done, once so many seconds have passed."""
        self.clock.advance(after)
        await super().turn()

    def edits(self, pod, **parts):
        """Somebody changes a pod; what it is then."""
        new = changed(pod, **parts)
        self.handlers.pods.on_update(pod, new)
        return new

    def bound(self, pod, node):
        """The watch says so."""
        self.edits(pod, spec={"node_name": node})

    def where(self, name="p"):
        queued = self.queue.get(f"uid-default-{name}")
        return None if queued is None else queued.where

    def assigned(self, name="p"):
        return self.cache.assigned().get(f"uid-default-{name}")


async def until(happened):
    """Lets the loop turn until something is so."""
    for _ in range(10_000):
        if happened():
            return
        await asyncio.sleep(0)
    pytest.fail("it never happened")


async def test_pods_that_nothing_tells_apart_are_told_of_the_new_reason_of_the_one_that_is_tried():
    made = World()
    taints = [{"key": "k", "effect": "NoSchedule"}]
    tainted, free = make_node("n1", cpu="2", taints=taints), make_node("n1", cpu="2")
    made.handlers.nodes.on_update(free, tainted)
    for name in ("a", "b", "c"):
        made.comes(name, cpu="3")
    await made.turn()
    assert ["taint" in why for _, _, why in made.edge.conditions] == [True] * 3
    made.edge.conditions.clear()
    for before, after in ((tainted, free), (free, tainted)):
        made.clock.advance(11.0)
        made.handlers.nodes.on_update(before, after)
        await made.turn()
    words = [(name, "Insufficient cpu" in why) for name, _, why in made.edge.conditions]
    assert sorted(words[:3]) == [("a", True), ("b", True), ("c", True)]
    assert words[3:] == [], "a taint beside it gives nobody room"


async def test_new_rules_that_reject_pods_are_told_to_all_of_them():
    made = World({"p.policy": "filter: node.label a\n"})
    for name in ("a", "b", "c"):
        made.comes(name)
    await made.turn()
    made.edge.conditions.clear()
    made.scheduler.use(chain({"p.policy": "filter: node.label b\n"}), None)
    await made.turn(after=11.0)
    words = {(name, "node.label b" in why) for name, _, why in made.edge.conditions}
    assert words == {("a", True), ("b", True), ("c", True)}


# ---- outcomes of a binding -----------------------------------------------------------------------


async def test_a_pod_is_bound_once_and_the_watch_confirms():
    world = World()
    ended = []
    world.scheduler.observe_bindings(lambda *one: ended.append((one[0].node, *one[1:])))
    pod = world.comes()
    await world.turn()
    assert ended == [("n1", *BOUND)]
    assert world.edge.binds == [("p", "n1")]
    assert world.assigned() == ("n1", True)
    assert world.where() is None
    assert world.edge.events == [
        ("p", "Normal", "Scheduled", "Successfully assigned default/p to n1")
    ]
    assert world.telemetry.value(ATTEMPTS, "scheduled", "berth") == 1
    world.bound(pod, "n1")
    await world.turn()
    assert world.assigned() == ("n1", False)
    assert len(world.edge.binds) == 1


async def test_the_line_of_a_bound_pod_has_a_field_for_each_value(caplog):
    """Or none of them would be a field of the JSON."""
    caplog.set_level(logging.INFO)
    world = World()
    world.comes()
    await world.turn()
    [line] = [one for one in caplog.records if str(one.msg).startswith("Successfully bound")]
    assert line.msg.count("=") == len(line.args) == 6
    assert 'pod="default/p" node="n1" evaluatedNodes=1' in line.getMessage()


@pytest.mark.parametrize("answer", [TAKEN, GONE])
async def test_a_pod_that_is_taken_or_gone_is_dropped(answer):
    world = World()
    world.comes()
    world.edge.bind_answers.append(answer)
    await world.turn()
    assert world.assigned() is None
    assert world.where() is None
    assert (world.edge.events, world.edge.conditions) == ([], [])


@pytest.mark.parametrize(("answer", "put_off"), [(REFUSED, 0), (PUT_OFF, 1)])
async def test_a_refused_binding_is_tried_again_after_backoff(answer, put_off):
    world = World()
    world.comes()
    world.edge.bind_answers.append(answer)
    await world.turn()
    assert world.assigned() is None
    assert world.where() is SubQueue.BACKOFF
    text = "binding rejected: quota"
    assert world.edge.events == [("p", "Warning", "FailedScheduling", text)]
    assert world.edge.conditions == [("p", "SchedulerError", text)]
    assert world.telemetry.value(ATTEMPTS, "error", "berth") == 1
    assert world.telemetry[Count.BINDINGS_PUT_OFF] == put_off
    await world.turn()
    assert len(world.edge.binds) == 1, "not before its backoff is over"
    await world.turn(after=2.0)
    assert world.edge.binds == [("p", "n1")] * 2
    assert world.assigned() == ("n1", True)


@pytest.mark.parametrize(
    ("answer", "follows"), [(BOUND, 0), (REFUSED, 1), (TAKEN, 1), (GONE, 1), ("deleted", 1)]
)
async def test_pods_rejected_for_want_of_room_wake_when_it_is_given_back(answer, follows):
    world = World()
    first = world.comes("first", cpu="2")
    answered = asyncio.get_running_loop().create_future()
    world.edge.bind_answers.append(answered)
    world.scheduler.work()
    world.comes("second", cpu="2")
    world.scheduler.work()
    assert world.where("second") is SubQueue.UNSCHEDULABLE
    if answer == "deleted":
        world.handlers.pods.on_delete(first)
        answered.set_result(GONE)
    else:
        answered.set_result(answer)
    await world.turn()
    assert [name for name, _ in world.edge.binds] == ["first", *["second"] * follows]
    assert world.where("second") is (None if follows else SubQueue.UNSCHEDULABLE)


async def test_a_pod_in_flight_hears_of_room_that_is_given_back_meanwhile():
    world = World(nodes=("n1", "n2"))
    world.comes("first", cpu="2")
    answered = asyncio.get_running_loop().create_future()
    world.edge.bind_answers.extend([answered, (BindOutcome.REFUSED, "not now")])
    world.scheduler.work()
    world.comes("second", cpu="2")
    await asyncio.sleep(0)
    answered.set_result(GONE)
    await world.turn()
    assert world.where("second") is SubQueue.BACKOFF
    await world.turn(after=2.0)
    assert world.assigned("second") is not None


# ---- bindings of unknown outcome -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "assigned", "where"),
    [
        (BOUND, ("n1", True), None),
        (TAKEN, None, None),
        (GONE, None, None),
        (REFUSED, None, SubQueue.BACKOFF),
    ],
)
async def test_an_unknown_outcome_is_asked_for_until_it_is_known(answer, assigned, where):
    world = World()
    world.comes()
    world.edge.bind_answers.append(UNKNOWN)
    world.edge.resolve_answers.extend([UNKNOWN, UNKNOWN, answer])
    await world.turn()
    assert world.edge.resolves == ["p"] * 3
    assert world.edge.pauses == [0.2, 0.4, 0.8]
    ended = Count.BINDINGS_WRITTEN if answer is BOUND else Count.BINDINGS_REFUSED
    assert world.telemetry[ended] == 1
    assert (world.assigned(), world.where()) == (assigned, where)
    assert len(world.edge.binds) == 1, "never bound again before it is known"


async def test_it_is_asked_at_least_every_five_seconds():
    world = World()
    world.comes()
    world.edge.bind_answers.append(UNKNOWN)
    world.edge.resolve_answers.extend([UNKNOWN] * 8)
    await world.turn()
    assert world.edge.pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0]


async def test_while_it_is_unknown_the_pod_counts_on_its_node():
    world = World()
    world.comes("first", cpu="2")
    world.edge.bind_answers.append(UNKNOWN)
    world.edge.resolve_answers.extend([UNKNOWN] * 20)
    for _ in range(10):
        world.scheduler.work()
        await asyncio.sleep(0)
    world.comes("second", cpu="2")
    world.scheduler.work()
    assert world.where("second") is SubQueue.UNSCHEDULABLE
    assert world.assigned("first") == ("n1", True)
    await world.turn()


@pytest.mark.parametrize(
    ("happens", "assigned", "events"),
    [("ours", ("n1", False), 1), ("other", ("n2", False), 0), ("deleted", None, 0)],
)
async def test_the_watch_may_know_before_the_server_can_be_asked(happens, assigned, events):
    world = World(nodes=("n1",))
    pod = world.comes()
    world.edge.bind_answers.append(UNKNOWN)
    world.edge.resolve_answers.extend([UNKNOWN] * 1000)
    world.scheduler.work()
    await until(lambda: world.edge.pauses)
    match happens:
        case "ours":
            world.bound(pod, "n1")
        case "other":
            world.bound(pod, "n2")
        case "deleted":
            world.handlers.pods.on_delete(pod)
    await world.turn()
    assert len(world.edge.resolves) < 5
    assert world.assigned() == assigned
    assert world.where() is None
    assert [event[2] for event in world.edge.events] == ["Scheduled"] * events


# ---- pods and nodes that go ----------------------------------------------------------------------


async def test_a_pod_deleted_before_its_turn_is_not_tried():
    world = World()
    world.handlers.pods.on_delete(world.comes())
    await world.turn()
    assert world.edge.binds == []


@pytest.mark.parametrize("answer", [BOUND, TAKEN, GONE, REFUSED, UNKNOWN])
async def test_a_pod_deleted_while_it_is_bound_is_gone_whatever_the_answer(answer):
    world = World()
    pod = world.comes()
    world.edge.bind_answers.append(answer)
    world.scheduler.work()
    world.handlers.pods.on_delete(pod)
    await world.turn()
    assert world.assigned() is None
    assert world.where() is None
    assert world.edge.conditions == []
    assert not sum(world.queue.counts().values())


async def test_a_pod_deleted_while_unschedulable_stays_away():
    world = World()
    pod = world.comes(cpu="99")
    await world.turn()
    assert world.where() is SubQueue.UNSCHEDULABLE
    world.handlers.pods.on_delete(pod)
    await world.turn(after=1000.0)
    assert len(world.decisions) == 1


async def test_a_pod_that_the_watch_sees_bound_before_the_answer_is_done():
    world = World()
    pod = world.comes()
    answered = asyncio.get_running_loop().create_future()
    world.edge.bind_answers.append(answered)
    world.scheduler.work()
    world.bound(pod, "n1")
    answered.set_result(REFUSED)  # as a retry of a request that did go through may say
    await world.turn()
    assert world.assigned() == ("n1", False)
    assert world.where() is None
    assert world.edge.conditions == []


async def test_nothing_is_bound_to_a_node_that_is_gone():
    world = World()
    world.comes()
    world.scheduler.work()
    world.handlers.nodes.on_delete(make_node("n1"))
    await world.turn()
    assert world.edge.binds == []
    assert world.where() is SubQueue.BACKOFF
    assert world.edge.conditions == [("p", "SchedulerError", "binding rejected: node n1 is gone")]


async def test_pods_that_are_on_a_node_or_being_deleted_are_skipped():
    world = World()
    there = make_pod("there")
    world.cache.assume(there, "n1")
    world.queue.add(there)
    leaving = pod_object("leaving")
    leaving = changed(leaving, metadata={"deletion_timestamp": "2025-03-01T10:00:00Z"})
    world.queue.add(make_pod_info(leaving))
    await world.turn()
    assert (world.decisions, world.edge.binds) == ([], [])
    assert not sum(world.queue.counts().values())


# ---- pods without a node -------------------------------------------------------------------------

TOO_BIG = (
    "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available:"
    " 1 Preemption is not helpful for scheduling."
)


async def test_a_pod_that_does_not_fit_waits_and_its_owner_is_told():
    world = World()
    world.comes(cpu="99")
    await world.turn()
    assert world.where() is SubQueue.UNSCHEDULABLE
    assert world.edge.events == [("p", "Warning", "FailedScheduling", TOO_BIG)]
    assert world.edge.conditions == [("p", "Unschedulable", TOO_BIG)]
    assert world.telemetry.value(ATTEMPTS, "unschedulable", "berth") == 1


async def test_a_condition_is_withdrawn_before_the_pod_is_bound():
    world = World()
    world.comes(cpu="3")
    await world.turn()
    world.handlers.nodes.on_add(make_node("big", cpu="8"))
    await world.turn(after=10.0)
    uid = "uid-default-p"
    assert world.edge.calls == [("withdraw", uid), ("bind", uid)]


async def test_conditions_that_are_not_written_yet_hold_no_pod_up():
    world = World()
    for number in range(MOST_IN_FLIGHT + 50):
        world.comes(f"big{number}", cpu="3")
    world.comes("small", cpu="1m")
    await world.turn()
    assert len(world.edge.conditions) == MOST_IN_FLIGHT + 50
    assert world.edge.binds == [("small", "n1")]


async def test_what_is_told_of_a_pod_is_short_and_has_no_escapes():
    world = World()
    for number in range(3):
        world.scheduler.report(make_pod("p"), "Unschedulable", f"a\n\x1b {'x' * 10**6}{number}")
    await world.turn()
    (text,) = {message for _, _, message in world.edge.conditions}
    assert text.startswith(r"a\n\x1b xxx")
    assert len(text) < 4110
    assert {event[3] for event in world.edge.events} == {text}


async def test_without_nodes_that_is_said():
    world = World(nodes=())
    world.comes()
    await world.turn()
    text = "no nodes available to schedule pods"
    assert world.edge.conditions == [("p", "Unschedulable", text)]
    world.clock.advance(10.0)
    world.handlers.nodes.on_add(make_node("n1"))
    await world.turn()
    assert world.assigned() == ("n1", True)


async def test_the_condition_is_told_of_the_newest_pod():
    world = World()
    pod = world.comes()
    world.edge.bind_answers.append(REFUSED)
    world.scheduler.work()
    said = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": "m"}
    newer = pod_object("p", status={"conditions": [said]})
    world.handlers.pods.on_update(pod, newer)
    await world.turn()
    assert world.edge.told_of[-1] is newer
    assert world.edge.conditions == [("p", "SchedulerError", "binding rejected: quota")]
    assert world.where() is SubQueue.BACKOFF


async def test_a_fault_of_a_plugin_is_an_error_of_the_pod_alone():
    class Faulty:
        name = "Faulty"

        def points(self):
            return Points(class_key=lambda pod, _: pod.name, pre_filter=self.pre_filter)

        def pre_filter(self, pod, snapshot):
            if pod.name == "bad":
                raise ZeroDivisionError("oops")
            return SKIP_FILTER

    world = World()
    faults = []
    profile = Profile("berth", (*default_plugins(), Weighted(Faulty())))
    world.scheduler.use(Framework(profile, on_fault=faults.append), None)
    world.comes("bad")
    world.comes("good")
    await world.turn()
    assert world.assigned("good") == ("n1", True)
    assert world.where("bad") is SubQueue.BACKOFF
    assert len(faults) == 1
    ((name, reason, message),) = world.edge.conditions
    assert (name, reason) == ("bad", "SchedulerError")
    assert "ZeroDivisionError: oops" in message


# ---- rules ---------------------------------------------------------------------------------------


async def test_without_rules_nothing_is_scheduled():
    world = World(framework=False)
    world.comes()
    await world.turn()
    assert world.decisions == []
    world.scheduler.use(world.framework, None)
    await world.turn()
    assert world.assigned() == ("n1", True)


ONE = "filter: pod.name contains one -> node.label one=yes\n"
TWO = "filter: pod.name contains two -> node.label two=yes\n"


async def test_new_rules_are_tried_on_the_pods_that_the_old_ones_rejected():
    world = World({"one.policy": ONE, "two.policy": TWO})
    for name in ("one", "two"):
        world.comes(name)
    world.comes("big", cpu="99")
    await world.turn()
    assert {world.where(name) for name in ("one", "two", "big")} == {SubQueue.UNSCHEDULABLE}
    easier = {"one.policy": "# nothing\n", "two.policy": TWO}
    world.scheduler.use(chain(easier), frozenset({"one"}))
    await world.turn()
    assert world.assigned("one") == ("n1", True)
    assert len(world.decisions) == 4, "the others were not tried again"
    world.scheduler.use(chain({}), frozenset({"two"}))
    await world.turn()
    assert world.assigned("two") == ("n1", True)
    world.scheduler.use(chain({}), None)
    await world.turn()
    assert world.decisions[-1].pod.name == "big"


async def test_what_a_new_quota_sums_up_is_summed_up_in_steps_before_it_is_in_force(monkeypatch):
    counted, count = [], Account.count
    monkeypatch.setattr(
        Account, "count", lambda own, pod, sign: (counted.append(pod), count(own, pod, sign))
    )
    world = World({})
    for number in range(1000):
        pod = make_pod(f"there{number}", cpu="1m", labels={"team": "a"})
        world.cache.add_pod(pod, "n1")
    rules, most, steps = chain({"p.policy": "quota: by pod.label[team] max cpu 1\n"}), 0, 0
    for _ in world.scheduler.prepare(rules, frozenset({"p"})):
        steps, most = steps + 1, max(most, len(counted))
        if steps == 1:
            world.cache.add_pod(make_pod("new", cpu="1m", labels={"team": "a"}), "n1")
        counted.clear()
    assert steps > 5
    assert 0 < most <= 130
    world.scheduler.use(rules, frozenset({"p"}))
    world.comes("p", cpu="100m", labels={"team": "a"})
    await world.turn()
    assert world.where("p") is SubQueue.UNSCHEDULABLE
    ((_, _, message),) = world.edge.conditions
    assert "1001m used" in message
    assert len(counted) < 5


async def test_a_new_leader_tells_of_gated_pods_in_slices_whatever_rules_come_meanwhile():
    made = World({"p.policy": "gate: pod.label go=yes"})
    made.scheduler.leads = False
    for number in range(300):
        made.comes(f"p{number}")
    gone = made.comes("gone")
    await made.turn()
    assert not made.edge.conditions
    time = count()
    made.clock.monotonic = lambda: next(time) * 0.0001
    made.scheduler.lead()
    assert not made.edge.conditions
    told = []
    made.handlers.pods.on_delete(gone)
    for step in range(1000):
        made.scheduler.work()
        told.append(len(made.edge.conditions))
        if step == 2:
            made.scheduler.use(made.framework, frozenset())
    assert 0 < max(after - before for before, after in pairwise([0, *told])) < 50
    assert {name for name, *_ in made.edge.conditions} == {f"p{number}" for number in range(300)}


async def test_rules_that_change_while_a_pod_is_bound_count_when_it_comes_back():
    world = World({"one.policy": ONE})
    world.comes("x")
    answered = asyncio.get_running_loop().create_future()
    world.edge.bind_answers.append(answered)
    world.scheduler.work()
    world.scheduler.use(chain({"one.policy": "filter: node.label x=y\n"}), frozenset({"one"}))
    answered.set_result(REFUSED)
    await world.turn()
    await world.turn(after=2.0)
    assert world.where("x") is SubQueue.UNSCHEDULABLE
    assert world.decisions[-1].bundle != world.decisions[0].bundle


def test_rules_with_the_same_order_do_not_sort_the_queue_again():
    in_tree = default_plugins()
    one, two = chain({}, in_tree=in_tree), chain({"one.policy": ONE}, in_tree=in_tree)
    assert one.sorter is two.sorter
    assert one.sort_key != chain({}).sort_key


# ---- the loop ------------------------------------------------------------------------------------


async def running(world):
    stop = asyncio.Event()
    task = asyncio.get_running_loop().create_task(world.scheduler.run(stop))
    await asyncio.sleep(0)
    return task, stop


async def test_run_schedules_what_comes_until_it_is_stopped():
    world = World()
    task, stop = await running(world)
    world.comes()
    await until(world.assigned)
    stop.set()
    await task
    assert world.edge.binds == [("p", "n1")]
    assert world.scheduler.in_flight == 0


async def test_stopping_waits_for_bindings_in_flight():
    world = World()
    answered = asyncio.get_running_loop().create_future()
    world.edge.bind_answers.append(answered)
    world.comes()
    task, stop = await running(world)
    stop.set()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done()
    answered.set_result(BOUND)
    await task
    assert [event[2] for event in world.edge.events] == ["Scheduled"]


async def test_stopping_does_not_wait_for_a_server_that_never_answers(caplog):
    world = World()
    world.edge.bind_answers.append(UNKNOWN)
    world.edge.resolve_answers.extend([UNKNOWN] * 10_000)
    world.comes()
    task, stop = await running(world)
    await until(lambda: world.edge.pauses)
    stop.set()
    await task
    assert world.assigned() == ("n1", True)
    assert 'Binding unknown at exit pod="default/p"' in caplog.text


async def test_a_bug_in_a_binding_ends_the_run():
    world = World()
    world.edge.bind_answers.append(RuntimeError("a bug"))
    world.comes()
    task, _ = await running(world)
    with pytest.raises(RuntimeError, match="a bug"):
        await task


async def test_a_bug_while_stopping_is_not_lost():
    world = World()
    answered = asyncio.get_running_loop().create_future()
    world.edge.bind_answers.append(answered)
    world.comes()
    task, stop = await running(world)
    stop.set()
    answered.set_result(RuntimeError("late"))
    with pytest.raises(RuntimeError, match="late"):
        await task


async def test_no_more_bindings_are_in_flight_than_the_bound():
    world = World(nodes=())
    world.handlers.nodes.on_add(make_node("huge", cpu="1000", memory="1Ti", pods="9999"))
    loop = asyncio.get_running_loop()
    answers = [loop.create_future() for _ in range(MOST_IN_FLIGHT + 30)]
    world.edge.bind_answers.extend(answers)
    for number in range(len(answers)):
        world.comes(f"p{number}")
    assert not world.scheduler.work()
    assert world.scheduler.in_flight == MOST_IN_FLIGHT
    assert world.queue.counts()[SubQueue.ACTIVE] == 30
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for answer in answers[:10]:
        answer.set_result(BOUND)
    await until(lambda: world.scheduler.in_flight == MOST_IN_FLIGHT - 10)
    world.scheduler.work()
    assert (world.scheduler.in_flight, world.queue.counts()[SubQueue.ACTIVE]) == (
        MOST_IN_FLIGHT,
        20,
    )
    for answer in answers[10:]:
        answer.set_result(BOUND)
    await world.turn()
    assert len(world.cache.assigned()) == len(answers)


async def test_work_in_the_background_is_done_before_pods_and_when_it_is_due():
    class Work:
        due = None

        def __init__(self):
            self.steps = []

        def step(self, deadline):
            self.steps.append(deadline)
            return len(self.steps) < 3

    world, work = World(), Work()
    world.scheduler.add_background(work)
    assert world.scheduler.work()
    assert world.scheduler.work()
    assert not world.scheduler.work()
    assert all(deadline > world.clock.monotonic() for deadline in work.steps)
    task, stop = await running(world)
    assert len(work.steps) == 4
    work.due = world.clock.monotonic()
    world.scheduler.wake()
    await until(lambda: len(work.steps) >= 8)
    stop.set()
    await task


async def test_the_minute_wakes_pods_that_rules_about_time_rejected():
    world = World({"night.policy": "filter: time.minute in 2..59\n"})
    world.comes()
    world.comes("big", cpu="99")
    await world.turn()
    assert world.where() is SubQueue.UNSCHEDULABLE
    await world.turn(after=59.0)
    assert len(world.decisions) == 2
    await world.turn(after=1.0)
    assert [d.pod.name for d in world.decisions[2:]] == ["p"]
    await world.turn(after=60.0)
    assert world.assigned() == ("n1", True)
    assert world.where("big") is SubQueue.UNSCHEDULABLE


async def test_a_gate_holds_its_limit_when_it_opens_for_many():
    """And pods whose bindings are on the way count as placed just now."""
    two = "count(cluster.pods where it.label j=x and now - it.scheduled_at < 1m) < 2"
    world = World({"pace.policy": f"gate: pod.label j=x -> {two}\n"})
    worlds = policies(world.framework)[0]._worlds
    worlds.source = lambda: world.cache.snapshot(world.clock.time(), world.samples)
    pods = [world.comes(f"p{n}", labels={"j": "x"}) for n in range(5)]
    await world.turn()
    assert [name for name, _ in world.edge.binds] == ["p0", "p1"]
    assert world.queue.counts()[SubQueue.GATED] == 3
    for number, pod in enumerate(pods[:2]):
        at = datetime.fromtimestamp(world.clock.time(), UTC).isoformat()
        said = Condition(type="PodScheduled", status="True", last_transition_time=at)
        world.clock.advance(number * 20.0)
        world.edits(pod, spec={"node_name": "n1"}, status={"conditions": [said]})
    for seconds, bound in ((30.0, 2), (11.0, 4), (40.0, 4), (25.0, 5)):
        await world.turn(after=seconds)
        assert len(world.edge.binds) == bound, (seconds, bound)


async def test_a_gate_does_not_count_the_pod_whose_binding_was_refused():
    """Nothing would open it again soon: the pod's own room is no news to itself."""
    text = 'gate: count(cluster.pods where it.label licence=m) < 1 message "no seat is free"\n'
    world = World({"seats.policy": text})
    world.edge.bind_answers.append(REFUSED)
    world.comes(labels={"licence": "m"})
    await world.turn()
    assert (world.assigned(), world.where()) == (None, SubQueue.BACKOFF)
    assert [reason for _, reason, _ in world.edge.conditions] == ["SchedulerError"]
    await world.turn(after=2.0)
    assert world.assigned() == ("n1", True)


def created_now(thing, clock):
    at = datetime.fromtimestamp(clock.time(), UTC).isoformat()
    return changed(thing, metadata={"creation_timestamp": at})


TURNS = {
    "filter: now - pod.created >= 90s\n": (90.0, True),
    "filter: now - node.created >= 75.5s\n": (75.5, True),
    "reserve: now - pod.created >= 42s\n": (42.0, True),
    "prefilter: now - pod.created >= 42s\n": (42.0, True),
    "gate: now - pod.created >= 42s\n": (42.0, False),
    "gate: now - pod.queued_at >= 42s\n": (42.0, False),
}


@pytest.mark.parametrize("text", TURNS)
async def test_a_comparison_with_now_wakes_its_pods_at_the_instant_it_turns(text):
    seconds, tried = TURNS[text]
    world = World({"age.policy": text})
    worlds = policies(world.framework)[0]._worlds
    worlds.source = lambda: world.cache.snapshot(world.clock.time(), world.samples)
    world.cache.attend(frozenset({QUEUE, TIMES}))
    world.queue.on_change = lambda queued: world.cache.set_queued(queued.pod, queued.times)
    world.clock.advance(3.0)
    node = make_node("n1", cpu="2")
    world.handlers.nodes.on_update(node, created_now(node, world.clock))
    world.handlers.pods.on_add(created_now(pod_object("p"), world.clock))
    await world.turn()
    assert len(world.decisions) == tried
    asked = world.clock.monotonic() + seconds
    assert world.queue.next_deadline() == pytest.approx(asked, abs=0.01)
    for _ in range(int(seconds) // 10):
        await world.turn(after=10.0)
    await world.turn(after=asked - world.clock.monotonic() - 0.01)
    assert len(world.decisions) == tried, "nobody asks before, not even at full minutes"
    await world.turn(after=0.02)
    assert world.assigned() == ("n1", True)
    assert len(world.decisions) == tried + 1


LOAD = {"load.policy": "filter: (load ?? 0) < 8\n"}


async def test_new_samples_wake_pods_that_rules_about_metrics_rejected():
    world = World(LOAD)
    world.samples.put("load", {"n1": 9.0})
    world.comes()
    world.comes("big", cpu="99")
    await world.turn()
    world.samples.put("load", {"n1": 1.0})
    await world.turn(after=2.0)
    assert len(world.decisions) == 2, "nobody said that samples came"
    world.scheduler.signals_came()
    await world.turn()
    assert [d.node for d in world.decisions] == [None, None, "n1"]


async def test_a_sample_that_turns_stale_wakes_them_within_a_minute():
    world = World(LOAD)
    world.samples.put("load", {"n1": 9.0})
    world.comes()
    await world.turn()
    world.samples.put("load", {})  # what a store shows once the sample is too old
    await world.turn(after=60.0)
    assert world.assigned() == ("n1", True)


# ---- any order of outcomes and events ------------------------------------------------------------


class FakeServer:
    """Pods and nodes as an API server has them, and a watch that may lag behind."""

    def __init__(self, fates):
        self.fates = deque(fates)
        self.pods, self.nodes, self.bound = {}, {}, Counter()
        self.unseen = {"pods": deque(), "nodes": deque()}
        self.number = 0

    def tell(self, kind, old, new):
        self.unseen[kind].append((old, new))

    def create(self, cpu):
        pod = pod_object(f"p{self.number}", cpu=cpu)
        self.number += 1
        self.pods[pod.metadata.uid] = pod
        self.tell("pods", None, pod)

    def delete(self, index):
        if self.pods:
            uid = sorted(self.pods)[index % len(self.pods)]
            self.tell("pods", self.pods.pop(uid), None)

    def node(self, name, *, there):
        if there and name not in self.nodes:
            self.nodes[name] = make_node(name, cpu="2")
            self.tell("nodes", None, self.nodes[name])
        elif not there and name in self.nodes:
            self.tell("nodes", self.nodes.pop(name), None)

    def put_on(self, uid, node):
        pod = self.pods[uid]
        self.pods[uid] = changed(pod, spec={"node_name": node})
        self.bound[uid] += 1
        self.tell("pods", pod, self.pods[uid])

    # --- the edge

    def truth(self, effect):
        pod = self.pods.get(effect.pod.uid)
        if pod is None:
            return GONE
        if not pod.spec.node_name:
            return REFUSED
        return BOUND if pod.spec.node_name == effect.node else TAKEN

    async def bind(self, effect):
        uid = effect.pod.uid
        fate = self.fates.popleft() if self.fates else "ok"
        for _ in range(fate.count(" slow")):
            await asyncio.sleep(0)
        free = uid in self.pods and not self.pods[uid].spec.node_name
        if fate == "taken" and free:
            self.put_on(uid, "elsewhere")
        if fate == "gone" and uid in self.pods:
            self.tell("pods", self.pods.pop(uid), None)
        if fate in ("refused", "unsent"):
            return REFUSED if fate == "refused" else UNKNOWN
        if uid in self.pods and not self.pods[uid].spec.node_name:
            self.put_on(uid, effect.node)
        return UNKNOWN if fate.startswith("lost") else self.truth(effect)

    async def resolve(self, effect):
        await asyncio.sleep(0)
        fate = self.fates.popleft() if self.fates else "ok"
        return UNKNOWN if fate.startswith(("lost", "unsent")) else self.truth(effect)

    def set_unschedulable(self, effect):
        pass

    async def withdraw(self, uid):
        pass

    def emit(self, effect):
        pass

    async def pause(self, seconds):
        await asyncio.sleep(0)


FATES = ("ok", "refused", "taken", "gone", "lost", "unsent", "ok slow", "lost slow slow")
steps = st.one_of(
    st.tuples(st.just("create"), st.sampled_from(["500m", "1", "2"])),
    st.tuples(st.just("create"), st.sampled_from(["500m", "1", "2"])),
    st.tuples(st.just("delete"), st.integers(0, 9)),
    st.tuples(st.just("node"), st.sampled_from(["n1", "n2"]), st.booleans()),
    st.tuples(st.just("watch"), st.sampled_from(["pods", "nodes"]), st.integers(1, 4)),
    st.tuples(st.just("work"), st.integers(0, 3)),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 1.0, 30.0, 301.0])),
    st.tuples(st.just("rules")),
)


class Life:
    """A scheduler against a fake server, step by step."""

    def __init__(self, fates):
        self.server = FakeServer(fates)
        self.world = World(nodes=(), edge=self.server)
        self.server.node("n1", there=True)

    async def step(self, what, *how):
        await getattr(self, f"_{what}")(*how)

    async def _create(self, cpu):
        self.server.create(cpu)

    async def _delete(self, index):
        self.server.delete(index)

    async def _node(self, name, there):
        self.server.node(name, there=there)

    async def _work(self, turns):
        self.world.scheduler.work()
        for _ in range(turns):
            await asyncio.sleep(0)

    async def _wait(self, seconds):
        self.world.clock.advance(seconds)

    async def _rules(self):
        self.world.scheduler.use(chain({}), None)

    async def _watch(self, kind, most):
        handler = getattr(self.world.handlers, kind)
        unseen = self.server.unseen[kind]
        for _ in range(min(most, len(unseen))):
            old, new = unseen.popleft()
            if old is None:
                handler.on_add(new)
            elif new is None:
                handler.on_delete(old)
            else:
                handler.on_update(old, new)

    async def settle(self):
        """From here on everything is seen and, after a while, works."""
        self.server.node("n1", there=True)
        for number in range(30):
            if number > 5:
                self.server.fates.clear()
            await self._watch("nodes", 99)
            await self._watch("pods", 99)
            await self.world.turn()
            self.world.clock.advance(60.0)


async def live(script, fates):
    life = Life(fates)
    for step in script:
        await life.step(*step)
    await life.settle()
    return life.world, life.server


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(steps, max_size=40), st.lists(st.sampled_from(FATES), max_size=25))
def test_no_pod_is_lost_or_bound_twice(script, fates):
    world, server = asyncio.run(live(script, fates))
    assert max(server.bound.values(), default=0) <= 1
    placed = {uid: pod.spec.node_name for uid, pod in server.pods.items() if pod.spec.node_name}
    assert world.cache.assigned() == {uid: (node, False) for uid, node in placed.items()}
    waiting = {queued.pod.uid for queued in world.queue.pending()}
    assert waiting == server.pods.keys() - placed.keys()
    assert (world.scheduler.in_flight, world.queue.counts()[SubQueue.IN_FLIGHT]) == (0, 0)
    for name in server.nodes:
        there = [pod for uid, pod in server.pods.items() if placed.get(uid) == name]
        requested = sum(make_pod_info(pod).requests["cpu"] for pod in there)
        assert world.cache.nodes.requested("cpu")[world.cache.nodes.row(name)] == requested


# ---- gates ---------------------------------------------------------------------------------------

GATE = {"g.policy": 'gate: pod.label ok=yes message "ask {pod.namespace} for ok=yes"\n'}


async def test_a_pod_that_a_gate_holds_is_told_so_once():
    world = World(GATE)
    pod = world.comes()
    await world.turn()
    assert world.where() is SubQueue.GATED
    words = "ask default for ok=yes (g.policy:1)"
    assert world.edge.events == [("p", "Normal", "SchedulingGated", words)]
    assert world.edge.conditions == [("p", "SchedulingGated", words)]
    world.edits(pod, metadata={"labels": {"ok": "no"}})
    await world.turn()
    assert world.where() is SubQueue.GATED
    assert len(world.edge.events) == len(world.edge.conditions) == 1


async def test_a_pod_held_by_its_own_gates_is_left_to_the_api_server():
    world = World(GATE)
    world.comes(spec={"schedulingGates": [{"name": "mine"}]})
    await world.turn()
    assert world.where() is SubQueue.GATED
    assert (world.edge.events, world.edge.conditions) == ([], [])


async def test_of_many_pods_that_fit_nowhere_one_is_tried_when_room_is_made():
    world = World(nodes=("n1", "n2"))
    taken = pod_object("taken", cpu="2", node="n1")
    world.handlers.pods.on_add(taken)
    for i in range(30):
        world.comes(f"big{i:02}", cpu="2", labels={"n": str(i)})
    await world.turn()
    assert len(world.edge.binds) == 1
    world.clock.advance(60)
    small = pod_object("small", cpu="1m", node="n2")
    world.handlers.pods.on_add(small)
    await world.turn()
    before = len(world.decisions)
    for _ in range(3):  # no room: one says so for all
        world.handlers.pods.on_delete(small)
        await world.turn()
        world.clock.advance(60)
        world.handlers.pods.on_add(small)
    assert len(world.decisions) - before == 3
    world.handlers.pods.on_delete(taken)
    await world.turn()
    assert len(world.edge.binds) == 2
    assert len(world.decisions) - before == 5
    assert world.queue.counts()[SubQueue.UNSCHEDULABLE] == 28


# ---- a plugin that answers Pending ---------------------------------------------------------------


class NotYet:
    """Rejects every pod at one point with one code, until it is `ready`."""

    name = "NotYet"

    def __init__(self, point, code):
        self.point, self.ready, self.no = point, False, Status(code, ("not yet",))

    def points(self):
        event = ClusterEventWithHint(ClusterEvent(Resource.NODE, Action.ADD))
        return Points(events=(event,), **{self.point: getattr(self, self.point)})

    @property
    def status(self):
        return Status.SUCCESS if self.ready else self.no

    def pre_filter(self, pod, snapshot):
        return PreFilterResult(self.status)

    def filter(self, state, pod, snapshot, rows):
        return Verdicts.uniform(np.full(snapshot.nodes.size, self.ready)[rows], self.no)

    def permit(self, pod, snapshot, row, waited):
        return PermitResult(self.status)


@pytest.mark.parametrize("point", ["pre_filter", "filter", "permit"])
@pytest.mark.parametrize(
    ("code", "then"), [(Code.PENDING, SubQueue.ACTIVE), (Code.UNSCHEDULABLE, SubQueue.BACKOFF)]
)
async def test_who_is_pending_is_tried_without_a_backoff_when_what_it_waits_for_comes(
    point, code, then
):
    plugin = NotYet(point, code)
    made = World(in_tree=(*default_plugins(), Weighted(plugin)))
    made.comes()
    await made.turn()
    assert "not yet" in made.edge.conditions[-1][2]
    assert made.where() is SubQueue.UNSCHEDULABLE
    plugin.ready = True
    made.handlers.nodes.on_add(make_node("n2", cpu="2"))
    assert made.where() is then
