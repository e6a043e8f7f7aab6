"""Plugins that look at no node: queue order, gates, and names that profiles list.

Source: kubernetes plugins/queuesort, schedulinggates and defaultbinder; for extenders
pkg/scheduler/schedule_one.go, findNodesThatFitPod (issue 122019).
"""

from __future__ import annotations

from typing import Final

from engine.framework.events import EVERYTHING, Action, ClusterEventWithHint, Resource
from engine.framework.interface import Points
from engine.framework.opinion import NAME as EXTENDER
from engine.framework.snapshot import Snapshot
from engine.framework.status import Status, unresolvable
from engine.plugins.hints import always, on
from engine.pods.podinfo import PodInfo


class PrioritySort:
    """The order of the active queue: higher priority first, then who was queued first."""

    name: Final = "PrioritySort"

    def points(self) -> Points:
        """Smaller comes first."""
        return Points(sort_key=lambda pod, queued_at, _: (-pod.priority, queued_at))


class SchedulingGates:
    """Keeps a pod with gates out of the active queue until its owner removes them."""

    name: Final = "SchedulingGates"

    def points(self) -> Points:
        """Only the removal of the last gate helps."""
        gone = on(Resource.TARGET_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED, always)
        return Points(events=(gone,), pre_enqueue=_pre_enqueue)


def _pre_enqueue(pod: PodInfo, snapshot: Snapshot) -> Status:
    gates = pod.pod.spec.scheduling_gates
    if not gates:
        return Status.SUCCESS
    names = " ".join(gate.name for gate in gates)
    return unresolvable(f"waiting for scheduling gates: [{names}]")


class DefaultBinder:
    """The scheduler's own Binding, which is the default."""

    name: Final = "DefaultBinder"

    def points(self) -> Points:
        """None: what it would do is the default."""
        return Points()


class Extenders:
    """The name by which extenders reject pods; `engine.extenders` asks them.

    What they look at is unknown, so any event has them asked again.
    """

    name: Final = EXTENDER

    def points(self) -> Points:
        """Any event."""
        return Points(events=(ClusterEventWithHint(EVERYTHING),))
