"""What policies read of a test's cluster that its objects do not say.

All else is read as a scheduler reads it: fixtures become objects of a cache (`scene`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Final

from dsl.policytest import Thing
from dsl.quantities import parse_time
from dsl.types import MISSING, is_missing
from engine.framework.podinfo import PodInfo
from engine.framework.snapshot import FloatColumn, QueueTimes, Snapshot
from engine.policy.plugin import Worlds
from engine.policy.world import DEFAULT_GPUS, PodSubject, SnapshotWorld

NO_TIMES: Final = QueueTimes(MISSING, None, 0)


class SceneWorlds(Worlds):
    """The worlds and subjects of one test."""

    def __init__(self, zone: tzinfo, gpus: Sequence[str] = DEFAULT_GPUS) -> None:
        super().__init__(zone, gpus)
        self.pods: Mapping[str, Thing] = {}
        """The fixture of each pod, by UID."""
        self.attached: Mapping[str, int] = {}
        """Volumes of a node, by its name, where a test says how many."""

    def _world(self, snapshot: Snapshot, stamp: int) -> SnapshotWorld:
        return SceneWorld(self, snapshot, stamp, self._zone)

    def subject(
        self, pod: PodInfo, snapshot: Snapshot, queued: QueueTimes | None = None
    ) -> PodSubject:
        """See `Worlds.subject`; what the queue knows of the pod is given by its fixture."""
        given = self.pods.get(pod.uid)
        times = NO_TIMES if given is None else queue_times(given)
        known = queued if queued is not None and is_missing(times.queued_at) else times
        return PodSubject(pod, snapshot, self.gpus, known)


def queue_times(thing: Thing) -> QueueTimes:
    """What the queue knows of a given pod."""
    first = parse_time(thing.text("first_attempt_at"))
    return QueueTimes(
        parse_time(thing.text("queued_at")),
        None if is_missing(first) else first,
        thing.number("attempts", 0),
    )


class SceneWorld(SnapshotWorld):
    """`dsl.plan.World` over a test's cluster; see `SnapshotWorld` for `table`."""

    def __init__(
        self,
        worlds: SceneWorlds,
        snapshot: Snapshot,
        stamp: int,
        zone: tzinfo,
        table: str = "pods",
    ) -> None:
        super().__init__(snapshot, stamp, worlds.gpus, zone, table=table)
        self._worlds = worlds

    def pod_table(self, table: str) -> SnapshotWorld:
        """See `World.pod_table`."""
        if table not in self._others:
            self._others[table] = SceneWorld(
                self._worlds, self.snapshot, self.generation, self._zone, table
            )
        return super().pod_table(table)

    def _node_number(self, field: str, key: str | None) -> FloatColumn:
        column = super()._node_number(field, key)
        if field == "node.volumes.attached":
            column = column.copy()
            for name, count in self._worlds.attached.items():
                column[self.snapshot.nodes.row(name)] = count
        return column
