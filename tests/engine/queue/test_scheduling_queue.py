"""What the queue promises, by examples; the model test walks the moves of pods at length."""

from __future__ import annotations

import math
import weakref
from typing import Any

import pytest

from engine.clock import ManualClock
from engine.framework.events import (
    EVERYTHING,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    QueueingHint,
    Resource,
)
from engine.framework.status import Status, unresolvable
from engine.pods.podinfo import PodInfo
from engine.queue import QueuedPod, QueueHooks, SchedulingQueue, SubQueue
from engine.queue.scheduling_queue import ASKED_AHEAD
from tests.engine.queue.builders import nothing, waiting

NODE_ADD = ClusterEvent(Resource.NODE, Action.ADD)
NODE_TAINT = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)
POD_DELETE = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
FIT, TAINT = frozenset({"Fit"}), frozenset({"Taint"})
HINTS = {
    "Fit": (ClusterEventWithHint(NODE_ADD), ClusterEventWithHint(POD_DELETE)),
    "Taint": (
        ClusterEventWithHint(NODE_ADD, lambda *_: QueueingHint.SKIP),
        ClusterEventWithHint(NODE_TAINT),
    ),
    "Gates": (ClusterEventWithHint(NODE_TAINT),),
    "Deaf": (),
}


def gate(pod: PodInfo) -> Status:
    held = pod.pod.metadata.labels == {"held": "yes"}
    return unresolvable("held").by("Gates") if held else Status.SUCCESS


def by_priority(pod: PodInfo, queued_at: float) -> tuple[float, ...]:
    return (-pod.priority, queued_at)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(clock: ManualClock) -> SchedulingQueue:
    return SchedulingQueue(
        clock=clock, hooks=QueueHooks(by_priority, gate, HINTS), snapshot=nothing
    )


def pop(queue: SchedulingQueue) -> QueuedPod:
    queued = queue.pop()
    assert queued is not None
    return queued


def fail(queue: SchedulingQueue, pod: PodInfo, plugins: frozenset[str]) -> QueuedPod:
    queue.add(pod)
    queued = pop(queue)
    queue.requeue_rejected(queued, plugins)
    return queued


def test_a_failed_attempt_puts_a_pod_behind_its_equals(
    queue: SchedulingQueue, clock: ManualClock
) -> None:
    queue.add(waiting("failed"))
    queued = pop(queue)
    clock.advance(1)
    queue.add(waiting("later"))
    clock.advance(1)
    queue.requeue_error(queued)
    clock.advance(10)
    queue.flush()
    assert [pop(queue).pod.name for _ in range(2)] == ["later", "failed"]


def test_only_the_rejecting_plugins_hints_are_asked(queue: SchedulingQueue) -> None:
    fit, taint = fail(queue, waiting("fit"), FIT), fail(queue, waiting("taint"), TAINT)
    assert queue.move(NODE_ADD) == 1
    assert (fit.where, taint.where) == (SubQueue.BACKOFF, SubQueue.UNSCHEDULABLE)
    assert queue.incoming[SubQueue.BACKOFF, "NodeAdd"] == 1
    assert queue.rejected_by() == {"Taint": 1}


def test_a_pending_plugins_word_counts_more_than_another_plugins() -> None:
    both = ClusterEventWithHint(NODE_ADD)
    for order in (("Fit", "Gang"), ("Gang", "Fit")):
        queue = SchedulingQueue(
            clock=ManualClock(),
            snapshot=nothing,
            hooks=QueueHooks(by_priority, gate, dict.fromkeys(order, (both,))),
        )
        queue.add(waiting("p"))
        queued = pop(queue)
        queue.requeue_rejected(queued, FIT, pending=frozenset({"Gang"}))
        queue.move(NODE_ADD)
        assert queued.where is SubQueue.ACTIVE
        queued = pop(queue)
        queue.move(NODE_ADD)
        queue.requeue_rejected(queued, FIT, pending=frozenset({"Gang"}))
        assert queued.where is SubQueue.ACTIVE


def test_a_pod_deleted_in_flight_does_not_come_back(queue: SchedulingQueue) -> None:
    queue.add(waiting("p"))
    queued = pop(queue)
    assert queue.delete("p")
    assert not queue.delete("p")
    assert "p" not in queue
    assert "p" not in queue.uids()
    assert not queue.requeue_rejected(queued, FIT)
    assert queue.get("p") is None
    with pytest.raises(ValueError, match="not in flight"):
        queue.requeue_error(queued)


def test_a_pod_deleted_in_flight_and_seen_again_is_kept(queue: SchedulingQueue) -> None:
    queue.add(waiting("p"))
    queued = pop(queue)
    queue.delete("p")
    queue.add(waiting("p"))
    assert queue.requeue_error(queued)
    assert queued.where is SubQueue.BACKOFF


def test_a_backoff_ends_with_its_window(queue: SchedulingQueue, clock: ManualClock) -> None:
    clock.advance(0.5)
    queue.add(waiting("p"))
    queued = pop(queue)
    queue.requeue_error(queued)
    assert queue.next_deadline() == 2.0
    assert queue.pop() is None
    clock.advance(1.4)
    queue.flush()
    assert queued.where is SubQueue.BACKOFF
    clock.advance(0.1)
    queue.flush()
    assert queued.where is SubQueue.ACTIVE


def test_errors_back_off_for_longer_and_longer(queue: SchedulingQueue, clock: ManualClock) -> None:
    queue.add(waiting("p"))
    waits = []
    for _ in range(6):
        queued = pop(queue)
        queue.requeue_error(queued)
        deadline = queue.next_deadline()
        assert deadline is not None
        waits.append(deadline - clock.monotonic())
        clock.advance(waits[-1])
        queue.flush()
    assert waits == [2, 3, 5, 9, 11, 11]
    assert queued.attempts == 6


def test_nobody_waits_for_more_than_five_minutes(
    queue: SchedulingQueue, clock: ManualClock
) -> None:
    queued = fail(queue, waiting("p"), TAINT)
    assert queue.next_deadline() == 300.0
    clock.advance(300)
    queue.flush()
    assert queued.where is SubQueue.ACTIVE
    assert queue.incoming[SubQueue.ACTIVE, "UnschedulableTimeout"] == 1


def test_a_gated_pod_waits_for_its_gate(queue: SchedulingQueue) -> None:
    queue.add(waiting("p", labels={"held": "yes"}))
    counts = queue.counts()
    assert (counts[SubQueue.GATED], counts[SubQueue.ACTIVE]) == (1, 0)
    queued = queue.get("p")
    assert queued is not None
    assert (queued.gating_plugin, queued.gating_reasons) == ("Gates", ("held",))
    assert queued.first_attempt_at is None
    queue.move(NODE_TAINT)
    queue.activate(["p"])
    assert queued.where is SubQueue.GATED
    queue.update(waiting("p"))
    assert queued.where is SubQueue.ACTIVE


def test_new_rules_wake_whom_the_old_ones_rejected(queue: SchedulingQueue) -> None:
    fit, taint = fail(queue, waiting("fit"), FIT), fail(queue, waiting("taint"), TAINT)
    queue.set_hooks(QueueHooks(by_priority, gate, HINTS), frozenset({"Fit"}))
    assert (fit.where, taint.where) == (SubQueue.BACKOFF, SubQueue.UNSCHEDULABLE)
    without = {plugin: hints for plugin, hints in HINTS.items() if plugin != "Taint"}
    queue.set_hooks(QueueHooks(by_priority, gate, without), frozenset())
    assert taint.where is SubQueue.BACKOFF


def test_new_rules_reach_pods_in_flight(queue: SchedulingQueue) -> None:
    queue.add(waiting("p"))
    queued = pop(queue)
    queue.set_hooks(QueueHooks(by_priority, gate, HINTS), frozenset({"Fit"}))
    queue.requeue_rejected(queued, FIT)
    assert queued.where is SubQueue.BACKOFF
    queued = pop(queue)
    queue.requeue_rejected(queued, frozenset({"a plugin of older rules"}))
    assert queued.where is SubQueue.BACKOFF


def test_a_sort_key_is_taken_again_when_the_pod_changes(queue: SchedulingQueue) -> None:
    queue.add(waiting("a", priority=1))
    queue.add(waiting("b"))
    queue.update(waiting("b", priority=2))
    assert pop(queue).pod.name == "b"


@pytest.mark.parametrize("held", [False, True])
def test_a_pod_that_changes_is_of_another_gang(clock: ManualClock, held: bool) -> None:
    hooks = QueueHooks(by_priority, gate, HINTS, kin=lambda pod: pod.pod.metadata.labels["of"])
    queue = SchedulingQueue(clock=clock, hooks=hooks, snapshot=nothing)
    queue.add(waiting("p", labels={"of": "a"}))
    if held:
        queue.hold(pop(queue))
    queue.update(waiting("p", labels={"of": "b"}))
    assert [len(queue.kin(key)) for key in "ab"] == [0, 1]


def test_new_rules_ask_whose_gang_a_pod_is_only_if_those_of_gangs_changed(
    clock: ManualClock,
) -> None:
    asked = []

    def hooks(label: str, *by: str) -> QueueHooks:
        def kin(pod: PodInfo) -> str | None:
            asked.append(pod.name)
            return (pod.pod.metadata.labels or {}).get(label)

        return QueueHooks(by_priority, gate, HINTS, kin=kin, kin_by=frozenset(by))

    queue = SchedulingQueue(clock=clock, hooks=hooks("of", "gangs"), snapshot=nothing)
    queue.add(waiting("p", labels={"of": "a", "in": "b"}))
    asked.clear()
    queue.set_hooks(hooks("of", "gangs"), frozenset({"others"}))
    assert (asked, len(queue.kin("a"))) == ([], 1)
    queue.update(waiting("p", labels={"of": "c", "in": "b"}))
    assert [len(queue.kin(key)) for key in "abc"] == [0, 0, 1]
    queue.set_hooks(hooks("in", "gangs"), frozenset({"gangs"}))
    assert [len(queue.kin(key)) for key in "abc"] == [0, 1, 0]
    queue.set_hooks(hooks("of", "new"), frozenset({"new"}))
    assert [len(queue.kin(key)) for key in "abc"] == [0, 0, 1]
    queue.set_hooks(hooks("no"), frozenset({"new"}))
    assert not queue.kin("c")
    queue.set_hooks(hooks("in"), None)
    assert len(queue.kin("b")) == 1


def test_what_new_rules_ask_of_all_pods_is_asked_in_steps_before_they_are_in_force(
    clock: ManualClock,
) -> None:
    asked = 0

    def hooks(sign: int, label: str) -> QueueHooks:
        def order(pod: PodInfo, _queued_at: float) -> tuple[int]:
            nonlocal asked
            asked += 1
            return (sign * pod.priority,)

        def kin(pod: PodInfo) -> str | None:
            nonlocal asked
            asked += 1
            return (pod.pod.metadata.labels or {}).get(label)

        return QueueHooks(order, gate, HINTS, kin=kin, kin_by=frozenset({"gangs"}))

    queue = SchedulingQueue(clock=clock, hooks=hooks(-1, "of"), snapshot=nothing)
    labels = {"of": "a", "in": "b"}
    for number in range(3000):
        queue.add(waiting(f"p{number}", priority=number, labels=labels))
    coming, most, steps, came = hooks(1, "in"), 0, 0, 3000
    asked = 0
    for _ in queue.prepare(coming, frozenset({"gangs"})):
        steps, most, asked = steps + 1, max(most, asked), 0
        queued = pop(queue)
        assert queued.pod.priority == came - 1  # the order before
        assert len(queue.kin("a")) == came
        queue.done(queued.pod.uid)
        queue.add(waiting(f"p{came}", priority=came, labels=labels))
        queue.delete(queued.pod.uid)
        queue.update(waiting(f"q{steps}", priority=-steps, labels=labels))
        came += 1
        asked = 0
    assert steps > 100
    assert most <= 2 * ASKED_AHEAD  # for its place, and for its gang
    asked = 0
    queue.set_hooks(coming, frozenset({"gangs"}))
    assert not asked
    assert not queue.kin("a")
    assert len(queue.kin("b")) == sum(queue.counts().values())
    found = [pop(queue).pod.priority for _ in queue.kin("b")]
    assert found == sorted(found)


def test_a_pod_that_changes_while_an_order_is_prepared_has_its_place_in_that_order(
    clock: ManualClock,
) -> None:
    def by_rank(pod: PodInfo, _queued_at: float) -> tuple[int]:
        return (int((pod.pod.metadata.labels or {})["rank"]),)

    queue = SchedulingQueue(
        clock=clock, hooks=QueueHooks(by_priority, gate, HINTS), snapshot=nothing
    )
    for number in range(100):
        queue.add(waiting(f"p{number}", labels={"rank": str(number)}))
    coming = QueueHooks(by_rank, gate, HINTS)
    steps = queue.prepare(coming, None)
    for _ in range(5):  # whose gang each pod is, and the order of most
        next(steps)
    queue.update(waiting("p0", labels={"rank": "1000"}))
    for _ in steps:
        pass
    queue.set_hooks(coming, None)
    assert [pop(queue).pod.name for _ in range(100)] == [*(f"p{n}" for n in range(1, 100)), "p0"]


def test_nothing_stays_of_hooks_whose_preparing_is_given_up(clock: ManualClock) -> None:
    queue = SchedulingQueue(
        clock=clock, hooks=QueueHooks(by_priority, gate, HINTS), snapshot=nothing
    )
    for number in range(100):
        queue.add(waiting(f"p{number}"))
    coming = QueueHooks(lambda pod, _queued_at: (pod.name,), gate, HINTS)
    steps, there = queue.prepare(coming, None), weakref.ref(coming.sort_key)
    next(steps)
    del coming, steps
    assert there() is None


def test_a_pod_whose_new_key_is_the_one_it_had_in_the_order_before_has_its_new_place(
    clock: ManualClock,
) -> None:
    def by(label: str) -> QueueHooks:
        def key(pod: PodInfo, _queued_at: float) -> tuple[int]:
            return (int((pod.pod.metadata.labels or {})[label]),)

        return QueueHooks(key, gate, HINTS)

    queue = SchedulingQueue(clock=clock, hooks=by("a"), snapshot=nothing)
    for number in range(3):
        queue.add(waiting(f"p{number}", labels={"a": f"{number + 5}", "b": f"{number}"}))
    queue.set_hooks(by("b"), frozenset())
    queue.update(waiting("p0", labels={"a": "5", "b": "5"}))
    assert [pop(queue).pod.name for _ in range(3)] == ["p1", "p2", "p0"]


def test_everything_wakes_everybody(queue: SchedulingQueue) -> None:
    queued = fail(queue, waiting("p"), frozenset({"Deaf"}))
    assert queue.move(EVERYTHING) == 1
    assert queued.where is SubQueue.BACKOFF


def test_a_hint_that_raises_queues_and_is_counted() -> None:
    def faulty(*_: object) -> QueueingHint:
        raise RuntimeError("a fault")

    queue = SchedulingQueue(
        clock=ManualClock(),
        snapshot=nothing,
        hooks=QueueHooks(by_priority, gate, {"Fit": (ClusterEventWithHint(NODE_ADD, faulty),)}),
    )
    queued = fail(queue, waiting("p"), FIT)
    queue.move(NODE_ADD)
    assert queued.where is SubQueue.BACKOFF
    assert queue._registrations.faults == {"Fit": 1}


def test_a_new_order_holds_for_pods_that_back_off_from_errors_too(
    queue: SchedulingQueue, clock: ManualClock
) -> None:
    queue.add(waiting("a"))
    queue.add(waiting("b"))
    first, second = pop(queue), pop(queue)
    queue.requeue_error(first)
    queue.set_hooks(QueueHooks(lambda pod, _queued_at: (pod.name,), gate, HINTS), frozenset())
    queue.requeue_error(second)  # keys of both orders in one heap could not be compared
    clock.advance(10)
    queue.flush()
    assert [pop(queue).pod.name for _ in range(2)] == ["a", "b"]


def test_words_that_change_all_the_time_are_told_now_and_then(clock: ManualClock) -> None:
    told: list[str] = []
    words = iter(f"{n} to go" for n in range(100))
    queue = SchedulingQueue(
        clock=clock,
        snapshot=nothing,
        hooks=QueueHooks(by_priority, lambda pod: unresolvable(next(words)).by("Gates"), HINTS),
    )
    queue.on_gated = lambda queued: told.append(queued.gating_reasons[0])
    queue.add(waiting("p"))
    for _ in range(3):
        queue.update(waiting("p"))
    assert told == ["0 to go"]
    clock.advance(30.0)
    queue.update(waiting("p"))
    assert told == ["0 to go", "4 to go"]


# ---- what the clock alone turns ------------------------------------------------------------------


class Turns:
    """When the rules turn, by the name of the pod."""

    def __init__(self, queue: SchedulingQueue) -> None:
        self.at: dict[str, float] = {}
        self.asked: list[tuple[str, frozenset[str]]] = []
        queue.set_hooks(QueueHooks(by_priority, gate, HINTS, self), frozenset())

    def __call__(self, pod: PodInfo, plugins: frozenset[str]) -> float:
        self.asked.append((pod.name, plugins))
        return self.at.get(pod.name, math.inf)


def test_a_rejected_pod_wakes_when_the_clock_turns_a_rule(
    queue: SchedulingQueue, clock: ManualClock
) -> None:
    turns = Turns(queue)
    turns.at = {"soon": clock.time() + 20.5, "later": clock.time() + 40.0}
    soon, later = fail(queue, waiting("soon"), FIT), fail(queue, waiting("later"), TAINT)
    never = fail(queue, waiting("never"), FIT)
    assert turns.asked == [("soon", FIT), ("later", TAINT), ("never", FIT)]
    assert queue.next_deadline() == clock.monotonic() + 20.5
    clock.advance(20.4)
    queue.flush()
    assert soon.where is SubQueue.UNSCHEDULABLE
    clock.advance(0.1)
    queue.flush()
    assert soon.where is SubQueue.ACTIVE
    assert queue.incoming[SubQueue.ACTIVE, "TimeTurn"] == 1
    assert later.where is never.where is SubQueue.UNSCHEDULABLE
    assert queue.next_deadline() == pytest.approx(clock.monotonic() + 19.5)
    clock.advance(30.0)
    queue.flush()
    assert (later.where, never.where) == (SubQueue.ACTIVE, SubQueue.UNSCHEDULABLE)


def test_a_turn_does_not_end_the_backoff(queue: SchedulingQueue, clock: ManualClock) -> None:
    turns = Turns(queue)
    turns.at = {"p": clock.time() + 0.2}
    queued = fail(queue, waiting("p"), FIT)
    clock.advance(0.3)
    queue.flush()
    assert queued.where is SubQueue.BACKOFF
    clock.advance(2.0)
    queue.flush()
    assert queued.where is SubQueue.ACTIVE


def test_a_gated_pod_is_asked_again_when_its_gate_turns(
    queue: SchedulingQueue, clock: ManualClock
) -> None:
    turns = Turns(queue)
    turns.at = {"held": clock.time() + 5.0}
    queue.add(waiting("held", labels={"held": "yes"}))
    queued = queue.get("held")
    assert queued is not None
    assert turns.asked == [("held", frozenset({"Gates"}))]
    turns.at = {"held": clock.time() + 12.0}
    clock.advance(5.0)
    queue.flush()
    assert queued.where is SubQueue.GATED
    assert queue.incoming[SubQueue.GATED, "TimeTurn"] == 1
    assert queue.next_deadline() == clock.monotonic() + 7.0


def test_who_left_in_another_way_is_not_woken_by_the_clock(
    queue: SchedulingQueue, clock: ManualClock
) -> None:
    turns = Turns(queue)
    turns.at = {"woken": clock.time() + 30.0, "deleted": clock.time() + 30.0}
    woken, deleted = fail(queue, waiting("woken"), FIT), fail(queue, waiting("deleted"), FIT)
    assert queue.delete(deleted.pod.uid)
    clock.advance(5.0)
    queue.move(NODE_ADD)
    assert woken.where is SubQueue.ACTIVE
    turns.at = {}
    queue.requeue_rejected(pop(queue), FIT)
    assert queue.next_deadline() == clock.monotonic() + 300.0
    clock.advance(60.0)
    queue.flush()
    assert woken.where is SubQueue.UNSCHEDULABLE


def test_many_turns_that_do_not_come_leave_nothing_behind(
    queue: SchedulingQueue, clock: ManualClock
) -> None:
    turns = Turns(queue)
    turns.at = {"p": clock.time() + 1e6}
    fail(queue, waiting("p"), FIT)
    for _ in range(1_000):
        clock.advance(11.0)
        queue.move(NODE_ADD)
        queue.requeue_rejected(pop(queue), FIT)
    assert len(queue._parked._turning._entries) < 200


# ---- gates that look at more than the pod --------------------------------------------------------


@pytest.mark.parametrize("moves", [False, True])
def test_gates_that_look_at_more_than_the_pod_are_asked_again_for_each_that_is_popped(
    clock: ManualClock, moves: bool
) -> None:
    """One may start at a time: whoever is popped first takes the place of the others."""
    started: list[str] = []

    def one_at_a_time(pod: PodInfo) -> Status:
        return unresolvable("one is there").by("Gates") if started else Status.SUCCESS

    hooks = QueueHooks(by_priority, one_at_a_time, HINTS, gates_volatile=moves)
    queue = SchedulingQueue(clock=clock, hooks=hooks, snapshot=nothing)
    started.append("before")
    for name in "abc":
        queue.add(waiting(name))
    assert queue.counts()[SubQueue.GATED] == 3
    started.clear()
    queue.move(NODE_TAINT)
    assert queue.counts()[SubQueue.ACTIVE] == 3
    while (queued := queue.pop()) is not None:
        started.append(queued.pod.name)
        queue.done(queued.pod.uid)
    assert started == (["a"] if moves else ["a", "b", "c"])
    assert queue.counts()[SubQueue.GATED] == (2 if moves else 0)


@pytest.mark.parametrize(
    ("event", "label"),
    [
        (ClusterEvent(Resource.UNSCHEDULED_POD, Action.ADD), "UnscheduledPodAdd"),
        (ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT), "NodeUpdateNodeTaint"),
        (ClusterEvent(Resource.CSI_NODE, Action.ADD), "storage.k8s.io/CSINodeAdd"),
    ],
)
def test_events_are_called_as_in_metrics_of_kube_scheduler(event: ClusterEvent, label: str) -> None:
    """Source: kubernetes pkg/scheduler/framework/types.go, ClusterEvent.Label."""
    assert event.label == label


def test_whoever_leaves_is_in_no_gang_any_more(clock: ManualClock) -> None:
    hooks = QueueHooks(by_priority, gate, HINTS, kin=lambda pod: pod.namespace)
    queue = SchedulingQueue(clock=clock, hooks=hooks, snapshot=nothing)
    pods = [waiting(name) for name in ("held", "done", "gone")]
    for pod in pods:
        queue.add(pod)
    popped = {one.pod.name: one for one in (pop(queue), pop(queue))}
    queue.hold(popped["held"])
    assert len(queue.kin(pods[0].namespace)) == 3
    queue.delete(pods[0].uid)
    queue.done(pods[1].uid)
    queue.delete(pods[2].uid)
    assert not queue.kin(pods[0].namespace)


@pytest.mark.parametrize("said", [True, None, QueueingHint.QUEUE])
def test_a_hint_that_does_not_say_skip_wakes(clock: ManualClock, said: Any) -> None:
    hints = {"Fit": (ClusterEventWithHint(NODE_ADD, lambda *_: said),)}
    queue = SchedulingQueue(
        clock=clock, hooks=QueueHooks(by_priority, gate, hints), snapshot=nothing
    )
    queue.add(waiting("p"))
    queue.requeue_rejected(pop(queue), FIT)
    assert queue.move(NODE_ADD) == 1
