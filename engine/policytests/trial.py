"""The pod of a test in the scheduler of a lab, and what becomes of it there.

What is asked here takes more than one decision, and changes the cluster of the test.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Final, TypeVar

from engine.cache import Cache
from engine.clock import ManualClock
from engine.explain.gangs import group_of
from engine.framework.decision import Decision
from engine.framework.snapshot import Signals
from engine.policytests.scene import Scene
from engine.simulate.lab import Lab

_T = TypeVar("_T")
_WAITS: Final = "WaitingOnPermit"


@dataclass(frozen=True, slots=True)
class Preempted:
    """The pods that are evicted for a pod, the node it is promised, and what is said of that."""

    victims: tuple[str, ...]
    nominated: str | None
    message: str


def permission(scene: Scene, decision: Decision) -> tuple[str, str]:
    """What becomes of the pod on the node of its decision, and why, after it has waited."""
    return _within_loop(_permission(scene, decision))


def preemption(scene: Scene) -> Preempted:
    """What the scheduler does about the pod, of whose gang all members wait."""
    return _within_loop(_preemption(scene))


def _within_loop(work: Coroutine[None, None, _T]) -> _T:
    """What needs a loop to write to nobody in."""
    with asyncio.Runner() as runner:
        return runner.run(work)


@dataclass(frozen=True, slots=True)
class _Standing:
    """Samples are as old as the test says, however long the pod has waited; a `SignalSource`."""

    signals: Signals

    def view(self, _cache: Cache, _now: float) -> Signals:
        """See `SignalSource.view`."""
        return self.signals


def _lab(scene: Scene, began: float = 0.0) -> Lab:
    """The scene's, so many seconds ago; gates hold nobody, as `gated` is asked for itself."""
    clock, signals = ManualClock(scene.snapshot.now - began), _Standing(scene.snapshot.signals)
    lab = Lab(scene.framework, clock=clock, signals=signals, cache=scene.cache)
    lab.let_in()
    return lab


async def _permission(scene: Scene, decision: Decision) -> tuple[str, str]:
    lab, pod = _lab(scene, scene.waited), decision.pod
    lab.queue.add(pod)
    lab.place(decision)
    lab.clock.advance(scene.waited)
    lab.scheduler.permits.step(math.inf)
    held = lab.scheduler.permits.get(pod.uid)
    if held is not None:
        return "wait", next(word for one in held.by.values() for word in one.status.reasons)
    for told in lab.written.conditions:
        if told.pod.uid == pod.uid and told.reason != _WAITS:
            start = f"node {decision.node} was chosen and refused: "
            return "reject", told.message.removeprefix(start)
    return "allow", ""


async def _preemption(scene: Scene) -> Preempted:
    lab = _lab(scene)
    group = group_of(scene.pod, scene.queue, scene.snapshot, scene.framework)
    pods = (scene.pod,) if group is None else group.pods
    for pod in pods:
        lab.queue.add(pod)
    lab.scheduler.work()
    evicting = True
    while evicting:
        await asyncio.sleep(0)
        evicting = any(lab.cache.nominations.is_evicting(one.uid) for one in pods)
    told = [one.rescue.message for one in lab.decisions if one.rescue is not None]
    victims = tuple(one.pod.name for one in lab.written.evicted)
    return Preempted(victims, lab.cache.promised(scene.pod.uid) or None, "".join(told[-1:]))
