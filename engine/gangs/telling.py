"""What becomes of a gang, as a condition of its object: PodGroups of Kubernetes itself have one.

Those of scheduler-plugins are written by the controller that comes with them.

Source: kubernetes pkg/scheduler/schedule_one_podgroup.go, updatePodGroupCondition.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from engine.basis import Basis
from engine.clock import stamp
from engine.display import plain
from engine.framework.edge import EffectWriter
from engine.framework.effects import Patch
from engine.framework.gang import Membership
from engine.inflight import InFlight, patch
from engine.objects.workloads import GroupCondition, SchedulingPodGroup
from engine.pods.podinfo import PodInfo

KIND: Final = "SchedulingPodGroup"
SCHEDULED: Final = "PodGroupInitiallyScheduled"
_MOST: Final = 4096
_REMEMBERED: Final = 10_000


@dataclass(eq=False)
class Telling:
    """See the module. What is said already is not written again, nor anything once it started."""

    basis: Basis
    in_flight: InFlight
    writer: EffectWriter
    # What was written of which version: until the watch tells of it, it is on its way.
    _written: dict[str, tuple[str, str, str, str]] = field(default_factory=dict, init=False)

    def started(self, gang: Membership, member: PodInfo) -> None:
        """Enough members have nodes for the first time."""
        self._tell(gang, member, "True", "Scheduled", "")

    def waits(self, gang: Membership, member: PodInfo, why: str) -> None:
        """It cannot start now."""
        self._tell(gang, member, "False", "Unschedulable", plain(why)[:_MOST])

    def _tell(
        self, gang: Membership, member: PodInfo, status: str, reason: str, message: str
    ) -> None:
        group = self._group_of(gang, member)
        if group is None:
            return
        each = group.status.conditions or []
        known = next((one for one in each if one.type == SCHEDULED), GroupCondition())
        said = known.status, known.reason, known.message
        meta, since = group.metadata, known.last_transition_time
        now_said = meta.resource_version, status, reason, message
        if (
            known.status == "True"
            or now_said[1:] == said
            or self._written.get(meta.uid) == now_said
        ):
            return
        if len(self._written) >= _REMEMBERED:
            self._written.clear()
        self._written[meta.uid] = now_said
        if known.status != status or since is None:
            since = stamp(self.basis.clock.time())
        new = GroupCondition(SCHEDULED, status, reason, message, since, meta.generation)
        conditions: list[Any] = [one for one in each if one.type != SCHEDULED]
        body = {
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            "status": {"conditions": msgspec.to_builtins([*conditions, new])},
        }
        effect = Patch(KIND, meta.namespace, meta.name, body, "status")
        self.in_flight.beside(self._write(effect, meta.uid))

    async def _write(self, effect: Patch, uid: str) -> None:
        if not await patch(effect, self.writer):
            self._written.pop(uid, None)

    def _group_of(self, gang: Membership, member: PodInfo) -> SchedulingPodGroup | None:
        """The object that the members name as theirs."""
        own = member.pod.spec.scheduling_group
        if own is None or own.pod_group_name != gang.name:
            return None
        objects = self.basis.snapshot().objects(KIND)
        found: SchedulingPodGroup | None = objects.get(f"{gang.namespace}/{gang.name}")
        return found
