"""Hooks that raise: one pod waits or sorts last and somebody is told; nothing else stops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.clock import ManualClock
from engine.framework.status import Status
from engine.pods.podinfo import PodInfo
from engine.queue import QueueHooks, SchedulingQueue, SubQueue
from tests.engine.queue.builders import nothing, waiting


class Told:
    def __init__(self, hooks: QueueHooks) -> None:
        self.clock = ManualClock()
        self.queue = SchedulingQueue(clock=self.clock, hooks=hooks, snapshot=nothing)

    def popped(self) -> list[str]:
        return [queued.pod.name for queued in iter(self.queue.pop, None)]


def admit(_pod: PodInfo) -> Status:
    return Status.SUCCESS


def faults(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records]


def test_a_gate_that_raises_holds_its_pod_alone(caplog: pytest.LogCaptureFixture) -> None:
    def gate(pod: PodInfo) -> Status:
        if pod.name == "odd":
            raise KeyError("boom")
        return Status.SUCCESS

    told = Told(QueueHooks(lambda pod, at: (at,), gate, {}))
    held = []
    told.queue.on_gated = lambda queued: held.append((queued.pod.name, queued.gating_reasons))
    for name in ("odd", "even"):
        told.queue.add(waiting(name))
    assert told.popped() == ["even"]
    assert told.queue.get("odd").where is SubQueue.GATED
    assert held == [("odd", ("KeyError: 'boom'",))]
    assert faults(caplog) == ["a rule of the queue failed for pod ns/odd: KeyError('boom')"]


@pytest.mark.parametrize("odd", [None, (object(),), "raises", [1]])
def test_a_sort_key_that_is_none_sorts_last(odd: Any, caplog: pytest.LogCaptureFixture) -> None:
    def key(pod: PodInfo, _at: float) -> Any:
        if pod.name.startswith("odd") and odd == "raises":
            raise ValueError(pod.name)
        return odd if pod.name.startswith("odd") else (-pod.priority,)

    told = Told(QueueHooks(key, admit, {}))
    for name, priority in (("odd1", 9), ("low", 0), ("odd2", 9), ("high", 5)):
        told.clock.advance(1)
        told.queue.add(waiting(name, priority=priority))
        told.queue.update(waiting(name, priority=priority))
    assert told.popped() == ["high", "low", "odd1", "odd2"]
    assert {line.split(": ")[0].rpartition("/")[2] for line in faults(caplog)} == {"odd1", "odd2"}


def test_keys_of_any_numbers_and_texts_compare(caplog: pytest.LogCaptureFixture) -> None:
    keys = [(1, "a"), ("x",), (0.5, 3), (np.int64(7),), ((1, 2), "b"), (), (True, (False, "z"))]
    told = Told(QueueHooks(lambda pod, _at: keys[int(pod.name)], admit, {}))
    for name in range(len(keys)):
        told.queue.add(waiting(str(name)))
    assert told.popped() == ["5", "2", "0", "6", "3", "1", "4"]
    assert not faults(caplog)


def test_a_turn_that_cannot_be_told_is_none(caplog: pytest.LogCaptureFixture) -> None:
    def turns(_pod: PodInfo, _plugins: frozenset[str]) -> float:
        raise RuntimeError("no time")

    told = Told(QueueHooks(lambda pod, at: (at,), admit, {"A": ()}, turns))
    told.queue.add(waiting("p"))
    told.queue.requeue_rejected(told.queue.pop(), frozenset({"A"}))
    assert told.queue.get("p").where is SubQueue.UNSCHEDULABLE
    assert faults(caplog) == ["a rule of the queue failed for pod ns/p: RuntimeError('no time')"]
