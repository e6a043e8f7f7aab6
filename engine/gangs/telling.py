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
from engine.framework.edge import Edge
from engine.framework.effects import Patch
from engine.framework.gang import Membership
from engine.inflight import InFlight
from engine.notices import log
from engine.objects.workloads import GroupCondition, SchedulingPodGroup
from engine.pods.podinfo import PodInfo

KIND: Final = "SchedulingPodGroup"
SCHEDULED: Final = "PodGroupInitiallyScheduled"
_MOST: Final = 4096
_REMEMBERED: Final = 10_000
_PAUSES: Final = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0)
"""Seconds between tries: a conflict is over as soon as the watch has told of the change."""


Word = tuple[str, str, str]
"""Status, reason and message of the condition."""


@dataclass(eq=False)
class Telling:
    """See the module. What is said already is not written again, nor anything once it started."""

    basis: Basis
    in_flight: InFlight
    edge: Edge
    _newest: dict[str, Word] = field(default_factory=dict, init=False)
    """By UID, what a group is to say that is being written now; the newest word wins."""
    _written: dict[str, tuple[str, Word]] = field(default_factory=dict, init=False)
    """By UID, what was written of which version: until the watch tells of it, it is on its way."""

    def started(self, gang: Membership, member: PodInfo) -> None:
        """Enough members have nodes for the first time."""
        self._tell(gang, member, ("True", "Scheduled", ""))

    def waits(self, gang: Membership, member: PodInfo, why: str) -> None:
        """It cannot start now."""
        self._tell(gang, member, ("False", "Unschedulable", plain(why)[:_MOST]))

    def _tell(self, gang: Membership, member: PodInfo, word: Word) -> None:
        own = member.pod.spec.scheduling_group
        if own is None or own.pod_group_name != gang.name:
            return  # no object that the members name as theirs
        key = f"{gang.namespace}/{gang.name}"
        group = self._object(key)
        if group is None:
            return
        uid = group.metadata.uid
        if uid in self._newest:
            self._newest[uid] = word
        elif not self._says(group, word):
            self._newest[uid] = word
            self.in_flight.beside(self._write(key, uid))

    async def _write(self, key: str, uid: str) -> None:
        """Until the group says the newest word. A conflict may be with what we wrote just now."""
        why_not = ""
        for seconds in _PAUSES:
            group, word = self._object(key), self._newest[uid]
            if group is None or group.metadata.uid != uid or self._says(group, word):
                why_not = ""
                break
            why_not = await self.edge.writer.patch(self._patch(group, word))
            if not why_not:
                self._remember(group, word)
            elif self.in_flight.stopping:
                break
            else:
                await self.edge.pause(seconds)
        del self._newest[uid]
        if why_not:
            log.warning('Not written %s="%s" reason="%s"', KIND, key, why_not)

    def _remember(self, group: SchedulingPodGroup, word: Word) -> None:
        if len(self._written) >= _REMEMBERED:
            self._written.clear()
        self._written[group.metadata.uid] = group.metadata.resource_version, word

    def _says(self, group: SchedulingPodGroup, word: Word) -> bool:
        known, meta = _condition(group), group.metadata
        said = known.status, known.reason, known.message
        on_its_way = self._written.get(meta.uid) == (meta.resource_version, word)
        return known.status == "True" or said == word or on_its_way

    def _patch(self, group: SchedulingPodGroup, word: Word) -> Patch:
        known, meta = _condition(group), group.metadata
        since = known.last_transition_time
        if known.status != word[0] or since is None:
            since = stamp(self.basis.clock.time())
        new = GroupCondition(SCHEDULED, *word, since, meta.generation)
        others: list[Any] = [one for one in group.status.conditions or () if one.type != SCHEDULED]
        body = {
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            "status": {"conditions": msgspec.to_builtins([*others, new])},
        }
        return Patch(KIND, meta.namespace, meta.name, body, "status")

    def _object(self, key: str) -> SchedulingPodGroup | None:
        found: SchedulingPodGroup | None = self.basis.snapshot().objects(KIND).get(key)
        return found


def _condition(group: SchedulingPodGroup) -> GroupCondition:
    each = group.status.conditions or ()
    return next((one for one in each if one.type == SCHEDULED), GroupCondition())
