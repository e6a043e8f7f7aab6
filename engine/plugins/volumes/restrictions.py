"""VolumeRestrictions: disks that one pod at a time may have, and claims that only one pod may use.

Source: kubernetes plugins/volumerestrictions/volume_restrictions.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.framework.events import Action, Resource
from engine.framework.interface import SKIP_FILTER, Points, PreFilterResult, State, Verdicts
from engine.framework.snapshot import BoolColumn, Cause, Rows, Snapshot
from engine.framework.status import unresolvable, unschedulable
from engine.objects import Disk, Pod
from engine.plugins.hints import gone, on
from engine.plugins.volumes.attached import NodeVolumes, concerns, is_stored, volumes_key
from engine.plugins.volumes.claims import (
    ALONE,
    find_claim,
    is_one_of,
    named_claims,
    not_found,
)
from engine.plugins.volumes.csi_nodes import CsiNodes
from engine.pods.podinfo import PodInfo

DISK_CONFLICT: Final = unschedulable("node(s) had no available disk")
CLAIM_CONFLICT: Final = unschedulable(
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already"
    " in-use by another pod"
)


@dataclass(frozen=True, slots=True)
class Alone:
    """The pod's claims that only one pod may use, and how many pods use them already."""

    claims: frozenset[str]
    users: int

    def with_pod(self, pod: PodInfo, snapshot: Snapshot, row: int, sign: int) -> Alone:
        """As it is with (1) or without (-1) a pod. As for kube-scheduler, any namespace's."""
        mine = sum(name in self.claims for name in named_claims(pod.pod))
        return Alone(self.claims, self.users + sign * mine)


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
            concerns=concerns,
            with_pod=Alone.with_pod,
        )

    def _pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
        if not is_stored(pod):
            return SKIP_FILTER
        alone = set()
        for name in named_claims(pod.pod):
            claim = find_claim(snapshot, pod.namespace, name)
            if claim is None:
                return PreFilterResult(unresolvable(not_found("persistentvolumeclaim", name)))
            if ALONE in (claim.spec.access_modes or ()):
                alone.add(name)
        users = sum(self._volumes.is_used(snapshot, f"{pod.namespace}/{name}") for name in alone)
        if not users and not _disks(pod.pod):
            return SKIP_FILTER
        return PreFilterResult(state=Alone(frozenset(alone), users), causes=Cause.POD)


def _filter(state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
    taken = _taken(pod.pod, snapshot, rows)
    in_use = np.full(len(taken), state.users > 0)
    return Verdicts.by_first(((DISK_CONFLICT, taken), (CLAIM_CONFLICT, in_use)))


def _taken(pod: Pod, snapshot: Snapshot, rows: Rows) -> BoolColumn:
    """(n,) a pod on the node has a disk that the pod cannot share."""
    taken = np.zeros(snapshot.nodes.size, dtype=np.bool_)
    disks = _disks(pod)
    if disks:
        pods = snapshot.pods
        flags = pods.flag("with disks", lambda info: bool(_disks(info.pod)))
        asked = np.isin(pods.node, np.arange(len(taken))[rows])
        for row in np.flatnonzero(flags & asked).tolist():
            if _conflicts(disks, pods.pod(row).pod):
                taken[pods.node[row]] = True
    return taken[rows]


def _same_image(one: Disk, two: Disk) -> bool:
    # The pool that the API server fills in.
    same = (one.pool or "rbd", one.image) == (two.pool or "rbd", two.image)
    return same and not set(one.monitors or ()).isdisjoint(two.monitors or ())


_AWS: Final = "aws_elastic_block_store"
_SAME: Final[Mapping[str, Callable[[Disk, Disk], bool]]] = {
    _AWS: lambda one, two: one.volume_id == two.volume_id,
    "gce_persistent_disk": lambda one, two: one.pd_name == two.pd_name,
    "iscsi": lambda one, two: one.iqn == two.iqn,
    "rbd": _same_image,
}
"""The disks that not every pod can share, and when two of a kind are the same."""


def _disks(pod: Pod) -> Sequence[tuple[str, Disk]]:
    """Those of the pod, each with its kind."""
    found = [(kind, getattr(one, kind)) for one in pod.spec.volumes or () for kind in _SAME]
    return [(kind, disk) for kind, disk in found if disk is not None]


def _conflicts(disks: Sequence[tuple[str, Disk]], other: Pod) -> bool:
    """Whether the other pod has one of them. Pods that only read share it, but for those of AWS."""
    return any(
        kind == of
        and _SAME[kind](mine, theirs)
        and (kind == _AWS or not (mine.read_only and theirs.read_only))
        for kind, mine in disks
        for of, theirs in _disks(other)
    )


def _frees(pod: PodInfo, other: Pod) -> bool:
    if other.metadata.namespace != pod.namespace:
        return False
    shared = set(named_claims(pod.pod)) & set(named_claims(other))
    return bool(shared) or _conflicts(_disks(pod.pod), other)
