"""Pods of one class: one is tried for all, and none is left sleeping."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, precondition, rule

from engine.clock import ManualClock
from engine.framework.events import (
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    QueueingHint,
    Resource,
)
from engine.framework.status import Status, unresolvable
from engine.pods.podinfo import PodInfo
from engine.queue import QueuedPod, QueueHooks, SchedulingQueue, SubQueue, scheduling_queue
from engine.queue.parked import Group
from tests.effort import examples
from tests.engine.queue.builders import nothing, waiting

ROOM = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
OTHER = ClusterEvent(Resource.NODE, Action.ADD)
FIT, TAINT = frozenset({"Fit"}), frozenset({"Taint"})


def label_of(pod: PodInfo) -> str:
    return (pod.pod.metadata.labels or {}).get("class", "")


class Bench:
    """A queue whose pods' class is a label; hints are counted, and say Queue about their class."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.asked: Counter[str] = Counter()
        self.held: set[str] = set()
        hints = {
            "Fit": (ClusterEventWithHint(ROOM, self.hint),),
            "Taint": (ClusterEventWithHint(OTHER),),
        }
        self.hooks = QueueHooks(self.order, self.gate, hints, class_key=self.class_key)
        self.queue = SchedulingQueue(clock=self.clock, hooks=self.hooks, snapshot=nothing)

    def order(self, pod: PodInfo, queued_at: float) -> tuple[float, ...]:
        return (-pod.priority, queued_at)

    def gate(self, pod: PodInfo) -> Status:
        return unresolvable("held").by("Taint") if pod.name in self.held else Status.SUCCESS

    def class_key(self, pod: PodInfo) -> Hashable:
        return label_of(pod) or None

    def hint(self, pod: PodInfo, _old: Any, new: Any, *_more: Any) -> QueueingHint:
        self.asked[label_of(pod)] += 1
        return QueueingHint.QUEUE if new in (None, label_of(pod)) else QueueingHint.SKIP

    def parked(self, count: int, of: str = "x", rejected_by: frozenset[str] = FIT) -> None:
        """That many pods, each rejected once; their backoffs are over."""
        for i in range(count):
            self.queue.add(waiting(f"{of}{i}", labels={"class": of}))
        for queued in iter(self.queue.pop, None):
            self.queue.requeue_rejected(queued, rejected_by)
        self.clock.advance(30)
        assert self.queue.counts()[SubQueue.UNSCHEDULABLE] == count

    def pop(self) -> QueuedPod | None:
        return self.queue.pop()


def test_of_ten_thousand_pods_one_is_asked_about_and_one_is_tried() -> None:
    bench = Bench()
    bench.parked(10_000)
    for _ in range(5):
        assert bench.queue.move(ROOM) == 1
        assert bench.queue.tried_again() == 1
        queued = bench.pop()
        assert bench.queue.tried_again() == 0
        bench.queue.requeue_rejected(queued, FIT)
        assert bench.pop() is None
        bench.clock.advance(30)
    assert bench.asked["x"] == 5
    assert bench.queue.counts()[SubQueue.UNSCHEDULABLE] == 10_000
    assert bench.queue.rejected_by() == {"Fit": 10_000}


def test_where_one_finds_a_node_the_next_follows() -> None:
    bench = Bench()
    bench.parked(10)
    bench.queue.move(ROOM)
    placed = [bench.pop() for _ in range(4)]
    assert [one.pod.name for one in placed] == ["x0", "x1", "x2", "x3"]
    bench.queue.requeue_rejected(placed.pop(), FIT)
    assert bench.pop() is None
    for one in placed:
        bench.queue.done(one.pod.uid)
    assert bench.pop() is None
    assert bench.queue.counts()[SubQueue.UNSCHEDULABLE] == 7


def test_of_those_that_sleep_the_first_by_new_rules_is_tried() -> None:
    bench = Bench()
    bench.parked(3)
    by_name = replace(bench.hooks, sort_key=lambda pod, _: (-ord(pod.name[-1]),))
    bench.queue.set_hooks(by_name, frozenset())
    bench.queue.move(ROOM)
    assert bench.pop().pod.name == "x2"


@pytest.mark.parametrize("end", ["error", "deleted", "deleted in flight", "held", "alone", "other"])
def test_one_that_ends_otherwise_says_nothing_of_the_others(end: str) -> None:
    bench = Bench()
    bench.parked(3)
    bench.queue.move(ROOM)
    if end == "deleted":
        bench.queue.delete("x0")
    elif end == "held":
        bench.held = {"x0", "x1"}
        bench.queue.set_hooks(bench.hooks, frozenset())
    else:
        first = bench.pop()
        if end == "error":
            bench.queue.requeue_error(first)
        elif end == "alone":
            bench.queue.requeue_rejected(first, TAINT, alone=True)
        elif end == "other":
            bench.queue.update(waiting("x0", labels={"class": "y"}))
            bench.queue.requeue_rejected(first, TAINT)
        else:
            bench.queue.delete("x0")
            bench.queue.requeue_rejected(first, FIT)
    assert bench.pop().pod.name == ("x2" if end == "held" else "x1")


def test_an_event_while_one_is_tried_sends_another() -> None:
    bench = Bench()
    bench.parked(3)
    bench.queue.move(ROOM)
    first = bench.pop()
    bench.queue.move(ROOM)
    bench.queue.requeue_rejected(first, FIT)
    assert first.where is SubQueue.BACKOFF
    second = bench.pop()
    assert second.pod.name == "x1"
    bench.queue.move(ROOM, only=lambda pod: pod.name != "x1")  # it will not hear of that
    bench.queue.requeue_rejected(second, FIT)
    assert bench.pop().pod.name == "x2"


def test_what_is_said_of_one_holds_for_its_class() -> None:
    bench = Bench()
    bench.parked(3)
    bench.queue.move(ROOM)
    bench.queue.requeue_rejected(bench.pop(), TAINT)
    assert bench.queue.rejected_by() == {"Taint": 3}
    bench.clock.advance(30)
    assert bench.queue.move(ROOM) == 0
    assert bench.queue.move(OTHER) == 1


def test_a_pod_that_changes_is_a_class_of_its_own() -> None:
    bench = Bench()
    bench.parked(3)
    bench.queue.update(waiting("x1", labels={"class": "y"}), (OTHER,))
    bench.queue.move(ROOM, new="y")
    assert bench.pop().pod.name == "x1"
    assert bench.pop() is None


def test_a_pod_that_changes_waits_for_what_its_class_waited_for() -> None:
    bench = Bench()
    bench.parked(3)
    bench.queue.move(ROOM)
    bench.queue.requeue_rejected(bench.pop(), TAINT)
    bench.clock.advance(30)
    grown = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_SCALE_UP)
    bench.queue.update(waiting("x1", labels={"class": "y"}), (grown,))
    assert bench.queue.rejected_by() == {"Taint": 3}
    assert bench.queue.move(OTHER) == 2


def test_a_pod_that_changes_while_another_is_tried_for_it_is_tried_itself() -> None:
    bench = Bench()
    bench.parked(3)
    bench.queue.move(ROOM)
    bench.queue.update(waiting("x1", labels={"class": "y"}), (OTHER,))
    bench.queue.requeue_rejected(bench.pop(), FIT)
    assert bench.pop().pod.name == "x1"
    assert bench.pop() is None, "what holds for x0 holds for x2"


def test_a_gated_pod_has_no_class_to_part_from() -> None:
    bench = Bench()
    bench.held = {"x0"}
    bench.queue.add(waiting("x0", labels={"class": "x"}))
    bench.queue.part(waiting("x0").uid)
    gated = bench.queue.get(waiting("x0").uid)
    assert (gated.where, gated.unschedulable_plugins) == (SubQueue.GATED, frozenset())
    bench.held = set()
    assert bench.queue.move(OTHER) == 1
    assert bench.pop() is gated


def test_the_highest_priority_goes_first_and_classes_differ_by_it() -> None:
    bench = Bench()
    for name, priority in (("low1", 0), ("high", 5), ("low2", 0)):
        bench.queue.add(waiting(name, priority=priority, labels={"class": "x"}))
    for queued in iter(bench.pop, None):
        bench.queue.requeue_rejected(queued, FIT)
    bench.clock.advance(30)
    assert bench.queue.move(ROOM) == 2
    assert [bench.pop().pod.name for _ in range(3)] == ["high", "low1", "low2"]


def test_pods_parked_for_too_long_send_one_of_each_class() -> None:
    bench = Bench()
    bench.parked(5)
    bench.clock.advance(301)
    bench.queue.flush()
    bench.queue.requeue_rejected(bench.pop(), FIT)
    bench.queue.flush()
    assert bench.pop() is None
    assert bench.queue.next_deadline() > bench.clock.monotonic() + 200


class Slow(ManualClock):
    """Each look at it takes half a millisecond."""

    def monotonic(self) -> float:
        self.advance(0.0005)
        return super().monotonic()


def test_hints_are_asked_in_slices() -> None:
    bench = Bench(Slow())
    for i in range(100):
        bench.queue.add(waiting(f"p{i}", labels={"class": f"c{i}"}))
    for queued in iter(bench.pop, None):
        bench.queue.requeue_rejected(queued, FIT)
    bench.clock.advance(30)
    assert bench.queue.move(ROOM) < 10
    assert bench.queue.move(ROOM, new="c7") == 0, "it waits behind the first"
    assert bench.queue.ready
    slices = 0
    while bench.queue.next_deadline() is not None and bench.queue._asking:
        asked = sum(bench.asked.values())
        bench.queue.flush()
        assert sum(bench.asked.values()) - asked < 10
        slices += 1
    assert slices > 10
    assert len(list(iter(bench.pop, None))) == 100
    assert bench.asked.keys() == {f"c{i}" for i in range(100)}


def test_a_gated_pod_that_is_deleted_before_its_turn_is_not_asked_about() -> None:
    bench = Bench(Slow())
    bench.held = {f"p{i}" for i in range(100)}
    for i in range(100):
        bench.queue.add(waiting(f"p{i}"))
    bench.queue.move(OTHER)
    assert bench.queue._asking
    for i in range(100):
        bench.queue.delete(waiting(f"p{i}").uid)
    while bench.queue._asking:
        bench.queue.flush()
    assert not list(bench.queue)


def test_where_too_much_is_to_be_asked_all_wake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling_queue, "MOST_ASKING", 3)
    bench = Bench(Slow())
    for i in range(60):
        bench.queue.add(waiting(f"p{i}", labels={"class": f"c{i}"}))
    bench.queue.add(waiting("other"))
    for queued in iter(bench.pop, None):
        bench.queue.requeue_rejected(queued, TAINT if queued.pod.name == "other" else FIT)
    bench.clock.advance(30)
    for _ in range(10):
        bench.queue.move(ROOM, new="nobody")
    assert len(bench.queue._asking) <= 3
    while bench.queue._asking:
        bench.queue.flush()
    woken = {queued.pod.name for queued in iter(bench.pop, None)}
    assert len(woken) > 40
    assert "other" not in woken


def test_that_too_much_is_to_be_asked_is_found_without_a_look_at_all_that_is_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, hashed = Bench(Slow()), [0]

    def counted(own: object) -> int:
        hashed[-1] += 1
        return object.__hash__(own)

    monkeypatch.setattr(scheduling_queue, "MOST_ASKING", 50)
    monkeypatch.setattr(Group, "__hash__", counted)
    for i in range(40):
        bench.queue.add(waiting(f"p{i}", labels={"class": f"c{i}"}))
    for queued in iter(bench.pop, None):
        bench.queue.requeue_rejected(queued, FIT)
    for _ in range(60):
        hashed.append(0)
        bench.queue.move(ROOM, new="nobody")
    assert max(hashed[1:]) <= 5 * 40


class Sleepers(RuleBasedStateMachine):
    """As long as a class has room and pods, one of them gets it, whatever happened in between.

    Only pods without a class of their own ("") are like no other.
    """

    flying = Bundle("flying")
    classes = st.sampled_from(["a", "b", ""])

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.free: Counter[str] = Counter()
        self.alive: set[str] = set()
        self.named = 0

    @rule(of=classes, priority=st.integers(0, 1), count=st.integers(1, 4))
    def come(self, of: str, priority: int, count: int) -> None:
        for _ in range(count):
            self.named += 1
            pod = waiting(f"p{self.named}", priority=priority, labels={"class": of})
            self.alive.add(pod.uid)
            self.bench.queue.add(pod)

    @rule(of=classes, count=st.integers(0, 3), some=st.sampled_from([None, 0, 1]))
    def room(self, of: str, count: int, some: int | None) -> None:
        self.free[of] += count
        self.bench.queue.move(ROOM, new=of)
        if some is not None:
            self.bench.queue.move(OTHER, only=lambda pod: int(pod.name[1:]) % 2 == some)

    @rule(target=flying)
    def pop(self) -> tuple[QueuedPod, bool] | None:
        """The pod, and whether it has a node: that is decided at once."""
        queued = self.bench.pop()
        if queued is None:
            return None
        of = label_of(queued.pod)
        fits = self.free[of] > 0
        self.free[of] -= fits
        return queued, fits

    @rule(one=consumes(flying), how=st.sampled_from(["", "", "error", "refused"]))
    def end(self, one: tuple[QueuedPod, bool] | None, how: str) -> None:
        if one is None:
            return
        queued, fits = one
        if fits and not how:
            self.alive.discard(queued.pod.uid)
            self.bench.queue.done(queued.pod.uid)
            return
        if how == "error":
            self.bench.queue.requeue_error(queued)
        else:
            self.bench.queue.requeue_rejected(queued, TAINT if how else FIT, alone=bool(how))
        if fits:
            self.room(label_of(queued.pod), 1, None)
        if how == "refused":
            self.bench.queue.move(OTHER)

    @rule()
    def rejected(self) -> None:
        """The usual attempt: nothing happens before it ends."""
        self.end(self.pop(), "")

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.alive)))
        self.bench.queue.delete(uid)
        self.alive.discard(uid)

    @rule(seconds=st.sampled_from([0.2, 1.0, 4.0]))
    def wait(self, seconds: float) -> None:
        self.bench.clock.advance(seconds)
        self.bench.queue.flush()

    @rule(changed=st.sampled_from([None, FIT, TAINT]))
    def new_rules(self, changed: frozenset[str] | None) -> None:
        self.bench.queue.set_hooks(self.bench.hooks, changed)

    def teardown(self) -> None:
        queue = self.bench.queue
        for uid in [queued.pod.uid for queued in queue._in_flight._flights]:
            queue.delete(uid)
            queue.done(uid)
            self.alive.discard(uid)
        for _ in range(60):  # backoffs pass, and nobody has been parked for five minutes
            self.wait(1.0)
            while (one := self.pop()) is not None:
                self.end(one, "")
        assert {queued.pod.uid for queued in queue.pending()} == self.alive
        for of in ("a", "b", ""):
            there = [q for q in queue.pending() if label_of(q.pod) == of]
            assert not (there and self.free[of] > 0), of
        assert not queue._out
        assert queue.counts()[SubQueue.UNSCHEDULABLE] == len(self.alive)


TestSleepers = Sleepers.TestCase
TestSleepers.settings = settings(max_examples=examples(200), stateful_step_count=30, deadline=None)
