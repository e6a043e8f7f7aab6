"""SchedulingGates: a pod with gates stays out of the queue until its owner removes them.

Source: kubernetes plugins/schedulinggates/scheduling_gates.go.
"""

from __future__ import annotations

from typing import Final

from engine.framework.events import Action, Resource
from engine.framework.interface import Points
from engine.framework.snapshot import Snapshot
from engine.framework.status import Status, unresolvable
from engine.plugins.hints import always, on
from engine.pods.podinfo import PodInfo


class SchedulingGates:
    """Keeps gated pods out of the active queue."""

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
