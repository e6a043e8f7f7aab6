"""The parts of the queue that the model's sequences are too short for."""

from __future__ import annotations

from functools import partial
from weakref import WeakSet

import pytest

from engine.framework.events import Action, ClusterEvent, Resource
from engine.queue import inflight
from engine.queue.heap import PodHeap
from engine.queue.inflight import InFlightPods, LoggedEvent
from engine.queue.queued import NO_BACKOFF, Backoff, QueuedPod
from tests.engine.queue.builders import waiting

NODE_ADD = ClusterEvent(Resource.NODE, Action.ADD)


def queued(name: str) -> QueuedPod:
    return QueuedPod(waiting(name), added_at=0.0, queued_at=0.0)


@pytest.mark.parametrize(
    ("failures", "seconds"), [(0, 0), (1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (5000, 10)]
)
def test_backoff_doubles_up_to_its_maximum(failures: int, seconds: float) -> None:
    assert Backoff().seconds(failures) == seconds


def test_backoff_ends_with_its_window() -> None:
    assert Backoff().until(1, since=0.5) == 1.0
    assert Backoff(1.0, 0.0).until(3, since=0.5) == NO_BACKOFF
    assert Backoff(20.0, 10.0).seconds(1) == 10.0


def test_a_heap_forgets_removed_pods() -> None:
    heap = PodHeap()
    pods = [queued(f"p{i}") for i in range(1000)]
    for i, pod in enumerate(pods):
        heap.push((i % 7,), pod)
    for pod in pods[100:]:
        heap.remove(pod)
    assert len(heap) == 100
    assert len(heap._entries) < 400
    assert [heap.pop() for _ in range(100)] == sorted(
        pods[:100], key=lambda p: int(p.pod.name[1:]) % 7
    )
    assert heap.pop() is None
    assert heap.peek() is None


def test_the_log_keeps_what_pods_in_flight_need() -> None:
    flights = InFlightPods()
    early, late = queued("early"), queued("late")
    flights.start(early)
    for _ in range(500):
        flights.record(LoggedEvent(NODE_ADD))
    flights.start(late)
    flights.record(LoggedEvent(NODE_ADD, uid="late"))
    flights.end(early)
    assert len(flights._log) == 1
    assert flights.meanwhile(late) == [LoggedEvent(NODE_ADD, uid="late")]
    flights.end(late)
    assert not flights._log


def test_a_pod_in_flight_for_long_keeps_few_objects() -> None:
    flights = InFlightPods()
    flights.start(queued("slow"))
    there = WeakSet[partial[bool]]()
    for _ in range(30_000):
        of_one = partial(bool)
        there.add(of_one)
        flights.record(LoggedEvent(NODE_ADD, only=of_one))
    assert len(there) <= 10_000


def test_a_pod_in_flight_for_too_long_counts_as_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflight, "MOST_HAPPENINGS", 10)
    flights = InFlightPods()
    pod = queued("p")
    flights.start(pod)
    for _ in range(11):
        flights.record(LoggedEvent(NODE_ADD))
    assert flights.meanwhile(pod) is None
