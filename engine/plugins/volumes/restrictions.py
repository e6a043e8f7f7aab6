"""VolumeRestrictions: disks that one pod at a time may have, and claims that only one pod may use.

Source: kubernetes plugins/volumerestrictions/volume_restrictions.go.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from engine.framework.snapshot import BoolColumn, Cause, Rows, Snapshot
from engine.framework.status import Status, unresolvable, unschedulable
from engine.objects import Disk, Pod, Volume
from engine.plugins.hints import gone, on
from engine.plugins.volumes.attached import STAYING, Moved, NodeVolumes, is_stored, volumes_key
from engine.plugins.volumes.claims import CLAIMS, find_claim, is_one_of, named_claims, not_found
from engine.plugins.volumes.csi_nodes import CsiNodes

DISK_CONFLICT: Final = unschedulable("node(s) had no available disk")
CLAIM_CONFLICT: Final = unschedulable(
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already"
    " in-use by another pod"
)
_ALONE: Final = "ReadWriteOncePod"


@dataclass(frozen=True, slots=True)
class Alone:
    """The pod's claims that only one pod may use, and how many pods use them already."""

    claims: frozenset[str]
    users: int
    moved: Moved = STAYING

    def with_pod(self, pod: PodInfo, row: int, sign: int) -> Alone:
        """As it is with (1) or without (-1) a pod. As for kube-scheduler, any namespace's."""
        mine = sum(name in self.claims for name in named_claims(pod.pod))
        return Alone(self.claims, self.users + sign * mine, self.moved.with_pod(pod, row, sign))


def _with_pod(state: State, pod: PodInfo, snapshot: Snapshot, row: int, sign: int) -> State:
    return state.with_pod(pod, row, sign)


class VolumeRestrictions:
    """Filters by disks that are on a node already, and by claims in use anywhere."""

    name: Final = "VolumeRestrictions"

    def __init__(self) -> None:
        self._volumes = NodeVolumes(CsiNodes())

    def points(self) -> Points:
        """A pod that has the disk or the claim may go, the claim may come."""
        return Points(
            events=(
                on(Resource.ASSIGNED_POD, Action.DELETE, gone(Pod, _frees)),
                on(Resource.NODE, Action.ADD),
                on(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, is_one_of(named_claims)),
            ),
            class_key=volumes_key,
            pre_filter=self._pre_filter,
            filter=_filter,
            concerns=_concerns,
            with_pod=_with_pod,
        )

    def _pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
        if not is_stored(pod):
            return SKIP_FILTER
        alone = set()
        for name in named_claims(pod.pod):
            claim = find_claim(snapshot, pod.namespace, name)
            if claim is None:
                missing = unresolvable(not_found("persistentvolumeclaim", name))
                return PreFilterResult(missing, version=_version)
            if _ALONE in (claim.spec.access_modes or ()):
                alone.add(name)
        users = sum(self._volumes.is_used(snapshot, f"{pod.namespace}/{name}") for name in alone)
        if not users and not _disks(pod.pod):
            return PreFilterResult(Status.SKIP, version=_version)
        return PreFilterResult(
            state=Alone(frozenset(alone), users), causes=Cause.POD, version=_version
        )


def _concerns(state: State, pod: PodInfo, other: PodInfo, snapshot: Snapshot) -> bool:
    return bool(other.pod.spec.volumes)


def _version(snapshot: Snapshot) -> tuple[int, int]:
    """Who uses a claim is said by the pods of all nodes."""
    return snapshot.generation, snapshot.objects_version(CLAIMS)


def _filter(state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
    taken = _taken(pod.pod, snapshot, state.moved)[rows]
    if state.users <= 0:
        return Verdicts.uniform(~taken, DISK_CONFLICT)

    def groups() -> StatusGroups:
        by_disk, by_claim = np.flatnonzero(taken), np.flatnonzero(~taken)
        return ((DISK_CONFLICT, by_disk), (CLAIM_CONFLICT, by_claim))

    return Verdicts(np.zeros(len(taken), dtype=np.bool_), groups)


def _taken(pod: Pod, snapshot: Snapshot, moved: Moved) -> BoolColumn:
    """(N,) a pod on the node has a disk that the pod cannot share."""
    taken = np.zeros(snapshot.nodes.size, dtype=np.bool_)
    disks = _disks(pod)
    if disks:
        pods = snapshot.pods
        flags = pods.flag("with disks", lambda info: bool(_disks(info.pod)))
        for row in np.flatnonzero(flags & (pods.node >= 0)).tolist():
            if _conflicts(disks, pods.pod(row).pod):
                taken[pods.node[row]] = True
        for row in moved.rows:
            taken[row] = any(_conflicts(disks, other.pod) for other in moved.on(row, snapshot))
    return taken


def _disks(pod: Pod) -> Sequence[Volume]:
    """The volumes that not every pod can share."""
    return [
        one
        for one in pod.spec.volumes or ()
        if one.gce_persistent_disk or one.aws_elastic_block_store or one.iscsi or one.rbd
    ]


def _conflicts(disks: Sequence[Volume], other: Pod) -> bool:
    return any(_conflict(mine, theirs) for mine in disks for theirs in _disks(other))


def _conflict(mine: Volume, theirs: Volume) -> bool:
    """Disks can be shared by pods that only read, but those of AWS never."""
    ebs, other = mine.aws_elastic_block_store, theirs.aws_elastic_block_store
    if ebs is not None and other is not None and ebs.volume_id == other.volume_id:
        return True
    pairs = (
        (mine.gce_persistent_disk, theirs.gce_persistent_disk, _same_gce),
        (mine.iscsi, theirs.iscsi, _same_iscsi),
        (mine.rbd, theirs.rbd, _same_rbd),
    )
    return any(
        one is not None and two is not None and same(one, two) and not _only_read(one, two)
        for one, two, same in pairs
    )


def _only_read(one: Disk, two: Disk) -> bool:
    return bool(one.read_only and two.read_only)


def _same_gce(one: Disk, two: Disk) -> bool:
    return one.pd_name == two.pd_name


def _same_iscsi(one: Disk, two: Disk) -> bool:
    return one.iqn == two.iqn


def _same_rbd(one: Disk, two: Disk) -> bool:
    together = set(one.monitors or ()) & set(two.monitors or ())
    return bool(together) and _pool_and_image(one) == _pool_and_image(two)


def _pool_and_image(disk: Disk) -> tuple[str, str]:
    # What the API server fills in.
    return disk.pool or "rbd", disk.image


def _frees(pod: PodInfo, other: Pod) -> bool:
    if other.metadata.namespace != pod.namespace:
        return False
    shared = set(named_claims(pod.pod)) & set(named_claims(other))
    return bool(shared) or _conflicts(_disks(pod.pod), other)
