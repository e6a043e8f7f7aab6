"""What policies read of a test's cluster that its objects do not say.

All else is read as a scheduler reads it: fixtures become objects of a cache (`scene`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Final

import numpy as np

from dsl import ir
from dsl.collective import QuotaUse
from dsl.plan import Quotas
from dsl.policytest import Thing
from dsl.quantities import parse_time
from dsl.several import ByReference
from dsl.several.rules import QuotaParts, quota_use
from dsl.source import Span
from dsl.types import MISSING, TEXT, Level, is_missing
from engine.collective import quotas
from engine.framework.podinfo import PodInfo, make_pod_info
from engine.framework.snapshot import BoolColumn, FloatColumn, QueueTimes, Snapshot
from engine.objects import ObjectMeta, Pod
from engine.policy.plugin import Worlds
from engine.policy.world import DEFAULT_GPUS, PodSubject, SnapshotWorld

NO_TIMES: Final = QueueTimes(MISSING, None, 0)
_NOWHERE: Final = Span(0, 0)


def _text(name: str, level: Level) -> ir.Read:
    return ir.Read(span=_NOWHERE, type=TEXT, level=level, field=name)


#: The ElasticQuota of a namespace.
_BY_NAMESPACE: Final = QuotaParts(
    ir.QuotaCore(
        guard=None,
        by=_text("pod.namespace", Level.POD),
        member=_text("it.namespace", Level.IT),
        minimum=(),
        maximum=(),
        elastic=True,
        reclaim=(),
        within=(),
        message=None,
        status=None,
    )
)


class SceneWorlds(Worlds):
    """The worlds and subjects of one test."""

    def __init__(self, zone: tzinfo, gpus: Sequence[str] = DEFAULT_GPUS) -> None:
        super().__init__(zone, gpus)
        self.pods: Mapping[str, Thing] = {}
        """The fixture of each pod, by UID."""
        self.attached: Mapping[str, int] = {}
        """Volumes of a node, by its name, where a test says how many."""
        self.quotas: Quotas = {}

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

    def pod_flag(self, field: str, key: str | None) -> BoolColumn:
        """See `World.pod_flag`."""
        if field != "it.quota.over_min":
            return super().pod_flag(field, key)
        use, pods = self._quota_use(), self._set
        over = [
            node >= 0 and _is_over_minimum(use, pods.pod(row).namespace)
            for row, node in enumerate(self.pod_node.tolist())
        ]
        return np.array(over, np.bool_)

    def _quota_use(self) -> QuotaUse:
        """What all ElasticQuotas are used, by no pod in particular."""
        nobody = make_pod_info(Pod(metadata=ObjectMeta(name="", namespace="", uid="")))
        subject = self._worlds.subject(nobody, self.snapshot)
        everywhere = self._worlds.of(self.snapshot)
        return quota_use(_BY_NAMESPACE, ByReference(subject, everywhere), self._worlds.quotas)


def _is_over_minimum(use: QuotaUse, namespace: str) -> bool:
    limits = use.limits.get(namespace)
    used = use.used.get(namespace, {})
    return limits is not None and quotas.is_over_minimum(used, limits, use.pool.minimum)
