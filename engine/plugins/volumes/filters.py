"""The filters of storage but for VolumeBinding: VolumeRestrictions, VolumeZone, NodeVolumeLimits.

Disks that one pod at a time may have, and claims that only one pod may use; a pod whose volumes say
their zone or region goes where they are; how many volumes of a CSI driver a node can have (one that
several pods of a node share counts once).

Source: kubernetes plugins/volumerestrictions/volume_restrictions.go, volumezone/volume_zone.go,
nodevolumelimits/csi.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.framework.events import Action, Resource
from engine.framework.interface import SKIP_FILTER, Points, PreFilterResult, State, Verdicts
from engine.framework.snapshot import BoolColumn, Cause, Rows, Snapshot, label_column
from engine.framework.status import Code, Status, unresolvable, unschedulable
from engine.objects import Disk, Pod
from engine.objects.storage import CSINode, PersistentVolume, StorageClass, VolumeAttachment
from engine.plugins.hints import changed, differs, gone, now, on, placed
from engine.plugins.volumes.attached import (
    NO_LIMIT,
    Attached,
    CsiNodes,
    MissingClaimError,
    NodeVolumes,
    attached_by,
    concerns,
    has_volumes,
    is_stored,
    limits_of,
    volumes_key,
)
from engine.plugins.volumes.claims import (
    ALONE,
    FIRST_CONSUMER,
    claim_names,
    class_of,
    find_claim,
    find_class,
    find_volume,
    is_one_of,
    named_claims,
    not_found,
    waits,
)
from engine.plugins.volumes.migration import (
    BETA_REGION,
    BETA_ZONE,
    REGION,
    ZONE,
    ZONES_APART,
    migration_of,
)
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
        self._volumes = NodeVolumes()

    def points(self) -> Points:
        """A pod that has the disk or the claim may go, the claim may come."""
        return Points(
            events=(
                on(Resource.ASSIGNED_POD, Action.DELETE, gone(Pod, _shares)),
                on(Resource.NODE, Action.ADD),
                on(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, is_one_of(named_claims)),
            ),
            class_key=volumes_key,
            pre_filter=self._pre_filter,
            filter=_apart,
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


def _apart(state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
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


def _shares(pod: PodInfo, other: Pod) -> bool:
    if other.metadata.namespace != pod.namespace:
        return False
    shared = set(named_claims(pod.pod)) & set(named_claims(other))
    return bool(shared) or _conflicts(_disks(pod.pod), other)


# ---- VolumeZone ------------------------------------------------------------------------------


ZONE_CONFLICT: Final = unresolvable("node(s) had no available volume zone")
_STABLE: Final = {BETA_ZONE: ZONE, BETA_REGION: REGION, ZONE: ZONE, REGION: REGION}

Topology = tuple[str, frozenset[str]]
"""A label, and the values of which a node must have one."""


class VolumeZone:
    """Filters by the labels of persistent volumes."""

    name: Final = "VolumeZone"

    def points(self) -> Points:
        """A claim, its volume, its class or a node with another label may come."""
        comes = Action.ADD | Action.UPDATE
        waits = now(StorageClass, lambda _, __, one: one.volume_binding_mode == FIRST_CONSUMER)
        return Points(
            events=(
                on(Resource.STORAGE_CLASS, Action.ADD, waits),
                on(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
                on(Resource.PERSISTENT_VOLUME_CLAIM, comes, is_one_of(named_claims)),
                on(Resource.PERSISTENT_VOLUME, comes, differs(PersistentVolume, _topologies)),
            ),
            class_key=volumes_key,
            pre_filter=_zone_pre_filter,
            filter=_in_zone,
        )


def _zone_pre_filter(pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
    if not is_stored(pod):
        return SKIP_FILTER
    try:
        claims = named_claims(pod.pod)
        topologies = [one for name in claims for one in _topologies_of(pod, name, snapshot)]
    except ValueError as unknown:
        return PreFilterResult(unresolvable(str(unknown)))
    if not topologies:
        return SKIP_FILTER
    return PreFilterResult(state=topologies, causes=Cause.LABELS)


def _topologies_of(pod: PodInfo, name: str, snapshot: Snapshot) -> list[Topology]:
    """What the volume of a claim says.

    Raises:
        ValueError: nothing can be said; the message is what the pod is told.
    """
    if not name:
        raise ValueError("PersistentVolumeClaim had no name")
    claim = find_claim(snapshot, pod.namespace, name)
    if claim is None:
        raise ValueError(not_found("persistentvolumeclaim", name))
    if claim.spec.volume_name:
        volume = find_volume(snapshot, claim.spec.volume_name)
        if volume is None:
            raise ValueError(not_found("persistentvolume", claim.spec.volume_name))
        return _topologies(volume)
    of_class = class_of(claim)
    if not of_class:
        raise ValueError("PersistentVolumeClaim had no pv name and storageClass name")
    if find_class(snapshot, of_class) is None:
        raise ValueError(not_found("storageclass.storage.k8s.io", of_class))
    if not waits(claim, snapshot):
        raise ValueError("PersistentVolume had no name")
    return []


def _topologies(volume: PersistentVolume) -> list[Topology]:
    found = []
    labels = volume.metadata.labels or {}
    for key in _STABLE:
        if key in labels:
            values = frozenset(each.strip() for each in labels[key].split(ZONES_APART))
            if "" not in values:  # a label that cannot be read says nothing
                found.append((key, values))
    return found


def _in_zone(state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
    columns = {key: snapshot.nodes.text(*label_column(key))[rows] for key in _STABLE}
    nowhere = np.logical_and.reduce([codes < 0 for codes in columns.values()])
    fits = np.ones(len(nowhere), dtype=np.bool_)
    for key, values in state:
        codes = columns[key]
        if _STABLE[key] != key:
            codes = np.where(codes < 0, columns[_STABLE[key]], codes)
        wanted = [snapshot.dictionary.find(value) for value in values]
        fits &= (codes >= 0) & np.isin(codes, wanted)
    return Verdicts.uniform(fits | nowhere, ZONE_CONFLICT)


# ---- NodeVolumeLimits ------------------------------------------------------------------------


TOO_MANY_VOLUMES: Final = unschedulable("node(s) exceed max volume count")
_DRIVERS: Final = "CSIDriver"

_Reason = tuple[Status, BoolColumn]
"""Why not, and (N,) of which nodes."""


class NodeVolumeLimits:
    """Filters by the limits of CSINodes."""

    name: Final = "NodeVolumeLimits"

    def __init__(self) -> None:
        self._nodes = CsiNodes()
        self._volumes = NodeVolumes()

    def points(self) -> Points:
        """A limit may rise, a volume may leave a node, a claim may come."""
        had_volumes = gone(Pod, lambda _, other: placed(other) and has_volumes(other))
        return Points(
            events=(
                on(Resource.CSI_NODE, Action.ADD),
                on(Resource.CSI_NODE, Action.UPDATE, changed(CSINode, _raises)),
                on(Resource.ASSIGNED_POD, Action.DELETE, had_volumes),
                on(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, is_one_of(claim_names)),
                on(Resource.VOLUME_ATTACHMENT, Action.DELETE, gone(VolumeAttachment, _detaches)),
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
            yield TOO_MANY_VOLUMES, limited & over


def _detaches(pod: PodInfo, attachment: VolumeAttachment) -> bool:
    """Whether it may be a volume like one of the pod's."""
    return any(
        volume.persistent_volume_claim is not None
        or ((of := migration_of(volume)) is not None and of.driver == attachment.spec.attacher)
        for volume in pod.pod.spec.volumes or ()
    )


def _raises(pod: PodInfo, old: CSINode, new: CSINode) -> bool:
    before = limits_of(old)
    return any((many or 0) > (before.get(name) or 0) for name, many in limits_of(new).items())
