"""NodeVolumeLimits: how many volumes of a CSI driver a node can have.

A volume that several pods of a node share counts once.

Source: kubernetes plugins/nodevolumelimits/csi.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from engine.framework.events import Action, Resource
from engine.framework.interface import (
    SKIP_FILTER,
    Points,
    PreFilterResult,
    State,
    Verdicts,
)
from engine.framework.snapshot import BoolColumn, Cause, Rows, Snapshot
from engine.framework.status import Code, Status, unresolvable, unschedulable
from engine.objects import Pod
from engine.objects.storage import CSINode, VolumeAttachment
from engine.plugins.hints import changed, gone, on, placed
from engine.plugins.volumes.attached import (
    Attached,
    MissingClaimError,
    NodeVolumes,
    attached_by,
    concerns,
    has_volumes,
    is_stored,
    volumes_key,
)
from engine.plugins.volumes.claims import claim_names, is_one_of
from engine.plugins.volumes.csi_nodes import NO_LIMIT, CsiNodes, limits_of
from engine.plugins.volumes.migration import migration_of
from engine.pods.podinfo import PodInfo

TOO_MANY: Final = unschedulable("node(s) exceed max volume count")
_DRIVERS: Final = "CSIDriver"

_Reason = tuple[Status, BoolColumn]
"""Why not, and (N,) of which nodes."""


class NodeVolumeLimits:
    """Filters by the limits of CSINodes."""

    name: Final = "NodeVolumeLimits"

    def __init__(self) -> None:
        self._nodes = CsiNodes()
        self._volumes = NodeVolumes(self._nodes)

    def points(self) -> Points:
        """A limit may rise, a volume may leave a node, a claim may come."""
        had_volumes = gone(Pod, lambda _, other: placed(other) and has_volumes(other))
        ephemeral = gone(VolumeAttachment, lambda pod, _: claim_names(pod.pod))
        return Points(
            events=(
                on(Resource.CSI_NODE, Action.ADD),
                on(Resource.CSI_NODE, Action.UPDATE, changed(CSINode, _raises)),
                on(Resource.CSI_NODE, Action.UPDATE, changed(CSINode, _opens), ours=True),
                on(Resource.ASSIGNED_POD, Action.DELETE, had_volumes),
                on(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, is_one_of(claim_names)),
                on(Resource.VOLUME_ATTACHMENT, Action.DELETE, gone(VolumeAttachment, _frees)),
                on(Resource.VOLUME_ATTACHMENT, Action.DELETE, ephemeral, ours=True),
            ),
            class_key=volumes_key,
            pre_filter=self._pre_filter,
            filter=self._filter,
            concerns=concerns,
            yields=self._yields,
        )

    def _pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
        if not is_stored(pod) or not has_volumes(pod.pod):
            return SKIP_FILTER
        return PreFilterResult(causes=Cause.POD)

    def _filter(self, state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
        with_driver = self._nodes.known(snapshot)[rows]
        reasons: list[_Reason] = []
        for migrating, where in ((True, with_driver), (False, ~with_driver)):
            if not where.any():
                continue
            try:
                wanted = attached_by(pod.pod, snapshot, migrating=migrating, is_new=True)
            except MissingClaimError as missing:
                reasons.append((unresolvable(str(missing)), where))
            except ValueError as wrong:
                reasons.append((Status(Code.ERROR, (str(wrong),)), where))
            else:
                lacking = self._lacking(wanted, snapshot, rows)
                over = self._over_limits(wanted, snapshot, rows) if migrating and wanted else ()
                reasons += [(why, where & each) for why, each in (*lacking, *over)]
        return Verdicts.by_first(reasons)

    def _yields(self, state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> BoolColumn:
        """Fewer volumes are never too many, but one that its pod leaves may stay attached."""
        passed = self._filter(state, pod, snapshot, rows).passed
        found = np.zeros(snapshot.nodes.size, dtype=np.bool_)
        try:
            wanted = attached_by(pod.pod, snapshot, migrating=True, is_new=True)
        except (MissingClaimError, ValueError):
            return found[rows]  # whatever goes
        for name in wanted:
            found[self._volumes.rows_with(snapshot, name)] = True
        return found[rows] if passed is None else found[rows] | ~passed

    def _lacking(self, wanted: Attached, snapshot: Snapshot, rows: Rows) -> Iterator[_Reason]:
        """The nodes without a driver that has to be there."""
        for driver in sorted(set(wanted.values())):
            known = snapshot.objects(_DRIVERS).get(driver)
            if known is not None and known.spec.prevent_pod_scheduling_if_missing:
                why = f"{driver} CSI driver is not installed on the node"
                yield unschedulable(why), ~self._nodes.installed(snapshot, driver)[rows]

    def _over_limits(self, wanted: Attached, snapshot: Snapshot, rows: Rows) -> Iterator[_Reason]:
        """The nodes of which it cannot be told, and those that would have too many volumes."""
        limited = self._nodes.limited(snapshot)[rows]
        numbers = np.arange(snapshot.nodes.size)[rows]
        for row, why in self._volumes.errors(snapshot).items():
            yield Status(Code.ERROR, (why,)), limited & (numbers == row)
        for driver in dict.fromkeys(wanted.values()):
            names = [name for name, of in wanted.items() if of == driver]
            count = self._volumes.count(snapshot, driver)[rows]
            added = np.full(len(limited), len(names))
            for name in names:
                there = self._volumes.rows_with(snapshot, name)
                if len(there):
                    added -= np.isin(numbers, there)
            limit = self._nodes.limits(snapshot, driver)[rows]
            over = (limit != NO_LIMIT) & (added > 0) & (count + added > limit)
            yield TOO_MANY, limited & over


# ---- hints -----------------------------------------------------------------------------------


def _frees(pod: PodInfo, attachment: VolumeAttachment) -> bool:
    """Whether it may be a volume like one of the pod's."""
    return any(
        volume.persistent_volume_claim is not None
        or ((of := migration_of(volume)) is not None and of.driver == attachment.spec.attacher)
        for volume in pod.pod.spec.volumes or ()
    )


def _raises(pod: PodInfo, old: CSINode, new: CSINode) -> bool:
    before = limits_of(old)
    return any((many or 0) > (before.get(name) or 0) for name, many in limits_of(new).items())


def _opens(_: PodInfo, old: CSINode, new: CSINode) -> bool:
    """Whether a driver has no limit any more, or came without one: as if of 0 to the original."""
    before, now = limits_of(old), limits_of(new)
    return any(now[name] is None and before.get(name, 0) is not None for name in now)
