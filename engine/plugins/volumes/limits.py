"""NodeVolumeLimits: how many volumes of a CSI driver a node can have.

A volume that several pods of a node share counts once.

Source: kubernetes plugins/nodevolumelimits/csi.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.framework.events import Action, Resource
from engine.framework.interface import (
    SKIP_FILTER,
    Points,
    PreFilterResult,
    State,
    StatusGroups,
    Verdicts,
)
from engine.framework.podinfo import PodInfo
from engine.framework.snapshot import BoolColumn, Cause, IntColumn, Rows, Snapshot
from engine.framework.status import Code, Status, unresolvable, unschedulable
from engine.objects import CSINode, Pod, VolumeAttachment
from engine.plugins.hints import changed, gone, on, placed
from engine.plugins.volumes.attached import (
    KINDS,
    STAYING,
    Attached,
    MissingClaimError,
    Moved,
    NodeVolumes,
    attached_by,
    has_volumes,
    is_stored,
    volumes_key,
)
from engine.plugins.volumes.claims import claim_names, is_one_of
from engine.plugins.volumes.csi_nodes import NO_LIMIT, CsiNodes
from engine.plugins.volumes.migration import migration_of

TOO_MANY: Final = unschedulable("node(s) exceed max volume count")
_DRIVERS: Final = "CSIDriver"


class NodeVolumeLimits:
    """Filters by the limits of CSINodes."""

    name: Final = "NodeVolumeLimits"

    def __init__(self) -> None:
        self._nodes = CsiNodes()
        self._volumes = NodeVolumes(self._nodes)

    def points(self) -> Points:
        """A limit may rise, a volume may leave a node, a claim may come."""
        return Points(
            events=(
                on(Resource.CSI_NODE, Action.ADD),
                on(Resource.CSI_NODE, Action.UPDATE, changed(CSINode, _raises)),
                on(Resource.ASSIGNED_POD, Action.DELETE, gone(Pod, _had_volumes)),
                on(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, is_one_of(claim_names)),
                on(Resource.VOLUME_ATTACHMENT, Action.DELETE, gone(VolumeAttachment, _frees)),
            ),
            class_key=volumes_key,
            pre_filter=_pre_filter,
            filter=self._filter,
            concerns=_concerns,
            with_pod=_with_pod,
        )

    def _filter(self, state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
        with_driver = self._nodes.known(snapshot)[rows]
        answers = _Answers(len(with_driver))
        for migrating, where in ((True, with_driver), (False, ~with_driver)):
            if not where.any():
                continue
            try:
                wanted = attached_by(pod.pod, snapshot, migrating=migrating, is_new=True)
            except MissingClaimError as missing:
                answers.reject(where, unresolvable(str(missing)))
            except ValueError as wrong:
                answers.reject(where, Status(Code.ERROR, (str(wrong),)))
            else:
                self._without_driver(wanted, answers, where, snapshot, rows)
                if migrating and wanted:
                    there = self._there(wanted, snapshot, state)
                    self._over_limits(there, answers, where, snapshot, rows)
        return answers.verdicts()

    def _without_driver(
        self,
        wanted: Attached,
        answers: _Answers,
        where: BoolColumn,
        snapshot: Snapshot,
        rows: Rows,
    ) -> None:
        for driver in sorted(set(wanted.values())):
            known = snapshot.objects(_DRIVERS).get(driver)
            if known is not None and known.spec.prevent_pod_scheduling_if_missing:
                lacking = where & ~self._nodes.installed(snapshot, driver)[rows]
                why = f"{driver} CSI driver is not installed on the node"
                answers.reject(lacking, unschedulable(why))

    def _there(self, wanted: Attached, snapshot: Snapshot, moved: Moved) -> _There:
        """What is on the nodes already, and what the pod adds, of each driver."""
        counts, added = {}, {}
        errors = dict(self._volumes.errors(snapshot))
        for driver, many in Counter(wanted.values()).items():
            counts[driver] = self._volumes.count(snapshot, driver)
            added[driver] = np.full(snapshot.nodes.size, many)
        for volume, driver in wanted.items():
            added[driver][self._volumes.rows_with(snapshot, volume)] -= 1
        for row, there in self._volumes.what_if(snapshot, moved).items():
            errors.pop(row, None)
            if there.error:
                errors[row] = there.error
            for driver, more in added.items():
                counts[driver] = counts[driver].copy()
                counts[driver][row] = there.counts[driver]
                more[row] = sum(
                    of == driver and name not in there.attached for name, of in wanted.items()
                )
        return _There(counts, added, errors)

    def _over_limits(
        self,
        there: _There,
        answers: _Answers,
        where: BoolColumn,
        snapshot: Snapshot,
        rows: Rows,
    ) -> None:
        limited = where & self._nodes.limited(snapshot)[rows]
        numbers = np.arange(snapshot.nodes.size)[rows]
        for row, why in there.errors.items():
            answers.reject(limited & (numbers == row), Status(Code.ERROR, (why,)))
        for driver, added in there.added.items():
            more, count = added[rows], there.counts[driver][rows]
            limit = self._nodes.limits(snapshot, driver)[rows]
            over = (limit != NO_LIMIT) & (more > 0) & (count + more > limit)
            answers.reject(limited & over, TOO_MANY)


@dataclass(frozen=True, slots=True)
class _There:
    """(N,) by driver: volumes on the nodes, and those that a pod adds; and errors by row."""

    counts: Mapping[str, IntColumn]
    added: Mapping[str, IntColumn]
    errors: Mapping[int, str]


def _with_pod(state: State, pod: PodInfo, snapshot: Snapshot, row: int, sign: int) -> State:
    return state.with_pod(pod, row, sign)


class _Answers:
    """The first reason against each row."""

    def __init__(self, size: int) -> None:
        self._passed = np.ones(size, dtype=np.bool_)
        self._groups: list[tuple[Status, BoolColumn]] = []

    def reject(self, where: BoolColumn, status: Status) -> None:
        """These rows are rejected, as far as they are not already."""
        fresh = where & self._passed
        if fresh.any():
            self._passed &= ~fresh
            self._groups.append((status, fresh))

    def verdicts(self) -> Verdicts:
        groups = self._groups

        def told() -> StatusGroups:
            return [(status, np.flatnonzero(where)) for status, where in groups]

        return Verdicts(self._passed if groups else None, told)


def _pre_filter(pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
    if not is_stored(pod) or not has_volumes(pod.pod):
        return SKIP_FILTER
    return PreFilterResult(state=STAYING, causes=Cause.POD, version=_version)


def _concerns(state: State, pod: PodInfo, other: PodInfo, snapshot: Snapshot) -> bool:
    return bool(other.pod.spec.volumes)


def _version(snapshot: Snapshot) -> int:
    return snapshot.objects_version(*KINDS, _DRIVERS)


# ---- hints -----------------------------------------------------------------------------------


def _had_volumes(pod: PodInfo, other: Pod) -> bool:
    return placed(other) and has_volumes(other)


def _frees(pod: PodInfo, attachment: VolumeAttachment) -> bool:
    """Whether it may be a volume like one of the pod's."""
    for volume in pod.pod.spec.volumes or ():
        of = migration_of(volume)
        if volume.persistent_volume_claim is not None:
            return True
        if of is not None and of.driver == attachment.spec.attacher:
            return True
    return False


def _raises(pod: PodInfo, old: CSINode, new: CSINode) -> bool:
    before = _limits(old)
    return any(limit > before.get(driver, 0) for driver, limit in _limits(new).items())


def _limits(node: CSINode) -> Mapping[str, int]:
    return {
        one.name: (one.allocatable.count or 0) if one.allocatable else 0
        for one in node.spec.drivers or ()
    }
