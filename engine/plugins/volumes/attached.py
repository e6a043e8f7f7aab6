"""What of storage is on each node: its CSI drivers, CSI volumes by their unique names, and claims.

Kept beside the snapshot's columns: nodes whose pods or storage objects changed are looked at again.
What a what-if snapshot has otherwise is taken back with the next question.

Source: kubernetes plugins/nodevolumelimits/csi.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.framework.interface import UNSHARED, State
from engine.framework.snapshot import BoolColumn, IntColumn, Snapshot
from engine.objects import Pod, Volume
from engine.objects.storage import CSINode, PersistentVolumeClaim, VolumeAttachment
from engine.plugins.volumes.claims import (
    CLAIMS,
    CLASSES,
    VOLUMES,
    all_claims,
    claim_name,
    class_of,
    find_claim,
    find_class,
    find_volume,
    not_found,
    wrong_owner,
)
from engine.plugins.volumes.migration import BY_PLUGIN, MIGRATED, csi_handle, migration_of
from engine.pods.podinfo import PodInfo

CSI_NODES: Final = "CSINode"
NO_LIMIT: Final = -1


_NumberOf = Callable[[CSINode | None], int]


class CsiNodes:
    """Columns of what is read of the CSINode of each row, kept up to date by changes."""

    def __init__(self) -> None:
        self._of: object = None
        self._version = -1
        self._columns: dict[str, tuple[_NumberOf, IntColumn]] = {}
        """By the code of a name, one place later; first and last is what nodes without one have."""

    def known(self, snapshot: Snapshot) -> BoolColumn:
        """(N,) the node has a CSINode."""
        return self._column(snapshot, "", lambda node: node is not None) > 0

    def limits(self, snapshot: Snapshot, driver: str) -> IntColumn:
        """(N,) how many volumes of the driver the node can have, NO_LIMIT if it does not say."""
        return self._column(snapshot, f"limit {driver}", lambda node: _limit(node, driver))

    def limited(self, snapshot: Snapshot) -> BoolColumn:
        """(N,) the node has a limit for any driver."""
        return self._column(snapshot, "limited", _is_limited) > 0

    def installed(self, snapshot: Snapshot, driver: str) -> BoolColumn:
        """(N,) the driver is on the node."""
        return self._column(snapshot, f"has {driver}", lambda node: driver in limits_of(node)) > 0

    def migrated(self, snapshot: Snapshot, plugin: str) -> BoolColumn:
        """(N,) the node says that a CSI driver has taken over from the in-tree plugin."""
        return self._column(snapshot, f"moved {plugin}", lambda node: _has_moved(node, plugin)) > 0

    def _column(self, snapshot: Snapshot, name: str, of: _NumberOf) -> IntColumn:
        self._renew(snapshot)
        if name not in self._columns:
            self._columns[name] = of, np.full(2, of(None), dtype=np.int64)
            self._write(name, snapshot, list(snapshot.objects(CSI_NODES)))
        column: IntColumn = self._columns[name][1].take(
            snapshot.nodes.name_codes() + 1, mode="clip"
        )
        return column

    def _renew(self, snapshot: Snapshot) -> None:
        words, version = snapshot.dictionary, snapshot.objects_version(CSI_NODES)
        if words is self._of and version == self._version:
            return
        keys = snapshot.objects_changed(CSI_NODES, self._version)
        if words is not self._of or keys is None:
            self._columns.clear()
        self._of, self._version = words, version
        for name in self._columns:
            self._write(name, snapshot, keys or ())

    def _write(self, name: str, snapshot: Snapshot, keys: Sequence[str]) -> None:
        of, column = self._columns[name]
        places = [snapshot.dictionary.code(key) + 1 for key in keys]
        more = max(places, default=0) + 2 - len(column)
        if more > 0:
            column = np.concatenate((column, np.full(more, of(None), dtype=np.int64)))
        objects = snapshot.objects(CSI_NODES)
        column[places] = [of(objects.get(key)) for key in keys]
        self._columns[name] = of, column


def limits_of(node: CSINode | None) -> Mapping[str, int | None]:
    """Its drivers, and how many volumes of each it can have; None where it does not say."""
    drivers = () if node is None else node.spec.drivers or ()
    return {one.name: one.allocatable.count if one.allocatable else None for one in drivers}


def _limit(node: CSINode | None, driver: str) -> int:
    count = limits_of(node).get(driver)
    return NO_LIMIT if count is None else count


def _is_limited(node: CSINode | None) -> bool:
    return any(count is not None for count in limits_of(node).values())


def migrated_plugins(node: CSINode) -> str:
    """What it says of them, in a row."""
    return (node.metadata.annotations or {}).get(MIGRATED, "")


def _has_moved(node: CSINode | None, plugin: str) -> bool:
    return node is not None and plugin in migrated_plugins(node).split(",")


ATTACHMENTS: Final = "VolumeAttachment"
KINDS: Final = (CLAIMS, VOLUMES, CLASSES, ATTACHMENTS)
"""What volumes on nodes are read from, besides pods."""
_KEY: Final = "volumes"
_ATTACHED: Final = "attached"
_USED: Final = "used"
_NO_NAME: Final = "PersistentVolumeClaim had no name"

Attached = dict[str, str]
"""Unique name of a volume -> the CSI driver that attaches it."""


class MissingClaimError(LookupError):
    """A claim of the pod does not exist."""


def has_volumes(pod: Pod) -> bool:
    """True if any volume of the pod has to be attached to its node, as far as the pod says."""
    return any(map(_has_claim_or_disk, pod.spec.volumes or ()))


def is_stored(pod: PodInfo) -> bool:
    """True if any volume of the pod is one that the plugins of storage know."""
    if not pod.pod.spec.volumes:
        return False
    known = pod.keys.get(_KEY)
    if known is None:
        known = pod.keys[_KEY] = any(map(_is_storage, pod.pod.spec.volumes))
    return known is True


def volumes_key(pod: PodInfo, snapshot: Snapshot) -> Hashable:
    """The class key of all plugins of storage, as most pods have claims of their own.

    Nothing is kept of an `UNSHARED` pod, so their answers need no version.
    """
    return UNSHARED if is_stored(pod) else None


def _is_storage(volume: Volume) -> bool:
    """False for what every node has: secrets, empty directories and the like."""
    return _has_claim_or_disk(volume) or volume.iscsi is not None or volume.rbd is not None


def _has_claim_or_disk(volume: Volume) -> bool:
    has_claim = volume.persistent_volume_claim or volume.ephemeral
    return has_claim is not None or migration_of(volume) is not None


def attached_by(pod: Pod, snapshot: Snapshot, *, migrating: bool, is_new: bool) -> Attached:
    """The CSI volumes that a pod needs on a node.

    Args:
        pod: the pod.
        snapshot: where claims, volumes and classes are looked up.
        migrating: the node has a CSINode, so volumes of drivers that left the tree count.
        is_new: the pod is to be placed; one that has its node may have lost its claims.

    Raises:
        MissingClaimError: a claim of a new pod does not exist.
        ValueError: the volumes cannot be told.
    """
    found: Attached = {}
    for volume in pod.spec.volumes or ():
        name = claim_name(pod, volume)
        if name is None:
            _add_inline(found, volume, migrating=migrating)
            continue
        if not name:
            raise ValueError(_NO_NAME)
        namespace = pod.metadata.namespace
        claim = find_claim(snapshot, namespace, name)
        if claim is None:
            if is_new:
                why = not_found("persistentvolumeclaim", name)
                raise MissingClaimError(f"looking up PVC {namespace}/{name}: {why}")
            continue
        if volume.ephemeral is not None and (why := wrong_owner(pod, claim)):
            raise ValueError(why)
        driver, handle = _driver_and_handle(claim, snapshot, migrating=migrating)
        if driver and handle:
            found[f"{driver}/{handle}"] = driver
    return found


def _add_inline(found: Attached, volume: Volume, *, migrating: bool) -> None:
    of = migration_of(volume)
    if of is None or of.handle is None or not migrating:
        return
    try:
        handle = csi_handle(of, volume, {})
    except ValueError as wrong:
        raise ValueError(f"converting volume({volume.name}) from inline to csi: {wrong}") from wrong
    found[f"{of.driver}/{handle}"] = of.driver


def _driver_and_handle(
    claim: PersistentVolumeClaim, snapshot: Snapshot, *, migrating: bool
) -> tuple[str, str]:
    """Empty texts for a volume that does not count."""
    volume = find_volume(snapshot, claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is None:
        return _by_class(claim, snapshot, migrating=migrating)
    if volume.spec.csi is not None:
        return volume.spec.csi.driver, volume.spec.csi.volume_handle
    of = migration_of(volume.spec)
    if of is None or of.handle is None or not migrating:
        return "", ""
    try:
        return of.driver, csi_handle(of, volume.spec, volume.metadata.labels or {})
    except ValueError:
        return "", ""


def _by_class(
    claim: PersistentVolumeClaim, snapshot: Snapshot, *, migrating: bool
) -> tuple[str, str]:
    """Of a claim without volume: the driver that will make it, and a name that no volume has."""
    name = class_of(claim)
    of_class = find_class(snapshot, name) if name else None
    if of_class is None:
        return "", ""
    handle = f"\0{claim.metadata.namespace}/{claim.metadata.name}"
    of = BY_PLUGIN.get(of_class.provisioner)
    if of is None:
        return of_class.provisioner, handle
    return (of.driver, handle) if of.handle is not None and migrating else ("", "")


@dataclass(slots=True)
class OnNode:
    """What is on one node: how many volumes of each driver.

    `marks` are what the node is found by: the volumes, the claims that its pods name, and the
    objects that all this was read from, each behind a word for what it is.
    """

    counts: Counter[str] = field(default_factory=Counter)
    marks: set[str] = field(default_factory=set)
    error: str = ""


def _attachments(row: int, snapshot: Snapshot, found: OnNode) -> Attached:
    """The volumes that attachments say are on the node."""
    groups = snapshot.objects_by(ATTACHMENTS, "node", _node_of)
    attached: Attached = {}
    for key, one in groups.get(snapshot.nodes.name(row), {}).items():
        name, driver = one.spec.source.persistent_volume_name, one.spec.attacher
        found.marks.update((f"{ATTACHMENTS} {key}", f"{VOLUMES} {name}"))
        volume = find_volume(snapshot, name) if driver and name is not None else None
        if volume is not None and volume.spec.csi is not None:
            attached[f"{driver}/{volume.spec.csi.volume_handle}"] = driver
    return attached


def _node_of(attachment: VolumeAttachment) -> str:
    return attachment.spec.node_name


def concerns(state: State, pod: PodInfo, other: PodInfo, snapshot: Snapshot) -> bool:
    """See `Points.concerns`."""
    return bool(other.pod.spec.volumes)


class NodeVolumes:
    """What is on the nodes, by row; see the module.

    Read as if all nodes had a CSINode, which says what of it counts: without one nothing does.
    """

    def __init__(self) -> None:
        self._of: object = None
        self._generation = -1
        """How far the cluster was followed."""
        self._at = -1, -1
        """What was seen last, and how objects were: that, or a what-if snapshot."""
        self._versions: dict[str, int] = {}
        self._thought: set[int] = set()
        """Rows that are as a what-if snapshot has them."""
        self._forget()

    def count(self, snapshot: Snapshot, driver: str) -> IntColumn:
        """(N,) how many volumes of the driver are attached, or will be for the pods there."""
        self._renew(snapshot)
        size = snapshot.nodes.size
        known = self._counts.get(driver)
        if known is None or len(known) != size:
            known = self._counts[driver] = np.zeros(size, dtype=np.int64)
            for row, there in self._on.items():
                known[row] = there.counts[driver]
        return known

    def rows_with(self, snapshot: Snapshot, volume: str) -> NDArray[np.intp]:
        """The rows whose pods have the volume of that unique name."""
        self._renew(snapshot)
        return np.array(sorted(self._rows.get(f"{_ATTACHED} {volume}", ())), dtype=np.intp)

    def errors(self, snapshot: Snapshot) -> Mapping[int, str]:
        """The rows whose pods' volumes cannot be told, and why."""
        self._renew(snapshot)
        return self._errors

    def is_used(self, snapshot: Snapshot, claim: str) -> bool:
        """True if a pod on a node names the claim (`namespace/name`)."""
        self._renew(snapshot)
        return f"{_USED} {claim}" in self._rows

    # ---- inside

    def _forget(self) -> None:
        self._on: dict[int, OnNode] = {}
        self._counts: dict[str, IntColumn] = {}
        self._errors: dict[int, str] = {}
        self._rows: dict[str, set[int]] = {}
        """By mark; one without rows is not there."""
        self._said: dict[str, object] = {}
        """What claims that pods name said when they changed last, by the mark of their use."""

    def _renew(self, snapshot: Snapshot) -> None:
        at = snapshot.generation, snapshot.objects_version(*KINDS)
        if self._of is snapshot.dictionary and self._at == at:
            return
        changed, what_if = self._changed(snapshot), snapshot.generation < 0
        thought, self._of, self._at = self._thought, snapshot.dictionary, at
        self._versions = {kind: snapshot.objects_version(kind) for kind in KINDS}
        if changed is None:
            self._forget()
            rows = _with_any(snapshot)
            if what_if:
                self._of = None  # where it differs from the cluster cannot be told
        else:
            rows = changed | thought
        self._thought = changed if what_if and changed is not None else set()
        if not what_if:
            self._generation = snapshot.generation
        pods = snapshot.pods
        flags = pods.flag(*_WITH_VOLUMES)
        for row in rows:
            there = pods.on(row)
            self._replace(snapshot, row, [pods.pod(each) for each in there[flags[there]].tolist()])

    def _changed(self, snapshot: Snapshot) -> set[int] | None:
        """The rows to look at again; None: all."""
        if self._of is not snapshot.dictionary:
            return None
        changes = snapshot.changes_since(self._generation)
        if changes is None:
            return None
        found: set[int] = set(changes[0].tolist())
        for kind in KINDS:
            keys = snapshot.objects_changed(kind, self._versions[kind])
            if keys is None:
                return None
            for key in keys:
                found |= self._rows.get(f"{kind} {key}", set())
                if kind == ATTACHMENTS and key in snapshot.objects(kind):
                    found.add(snapshot.nodes.row(_node_of(snapshot.objects(kind)[key])))
                if kind == CLAIMS and not self._is_the_same(snapshot, key):
                    found |= self._rows.get(f"{_USED} {key}", set())
        return found - {-1}

    def _is_the_same(self, snapshot: Snapshot, key: str) -> bool:
        """Whether the claim says what it said at its last change: it may be used on all nodes."""
        mark, claim = f"{_USED} {key}", snapshot.objects(CLAIMS).get(key)
        volume = claim and find_volume(snapshot, claim.spec.volume_name)
        said = claim and (claim.spec.volume_name, volume is None and class_of(claim))
        same = mark in self._said and self._said[mark] == said
        if mark in self._rows:
            self._said[mark] = said
        return same

    def _replace(self, snapshot: Snapshot, row: int, pods: Iterable[PodInfo]) -> None:
        old = self._on.pop(row, None) or OnNode()
        new = OnNode()
        if snapshot.nodes.present[row]:
            _fill(new, snapshot, row, pods)
        for mark in old.marks - new.marks:
            rows = self._rows[mark]
            rows.discard(row)
            if not rows:
                del self._rows[mark]
                self._said.pop(mark, None)
        for mark in new.marks - old.marks:
            self._rows.setdefault(mark, set()).add(row)
        for driver in {*old.counts, *new.counts} & self._counts.keys():
            if row < len(self._counts[driver]):
                self._counts[driver][row] = new.counts[driver]
        self._errors.pop(row, None)
        if new.error:
            self._errors[row] = new.error
        if new.marks:
            self._on[row] = new


def _fill(found: OnNode, snapshot: Snapshot, row: int, pods: Iterable[PodInfo]) -> None:
    """What these pods and the attachments of the node have there."""
    attached = Attached()
    for info in pods:
        found.marks.update(_marks(info.pod, snapshot))
        try:
            attached |= attached_by(info.pod, snapshot, migrating=True, is_new=False)
        except ValueError as wrong:
            found.error = str(wrong)
    found.marks.update(f"{_ATTACHED} {name}" for name in attached)
    everything = {**_attachments(row, snapshot, found), **attached}
    found.counts.update(everything.values())


def _marks(pod: Pod, snapshot: Snapshot) -> Iterator[str]:
    """What is read for the pod."""
    space = pod.metadata.namespace
    for volume, name in all_claims(pod):
        claim = find_claim(snapshot, space, name)
        # Of one that was made for it the pod reads more: whose it is.
        yield f"{_USED if volume.ephemeral is None else CLAIMS} {space}/{name}"
        if claim is not None:
            yield f"{VOLUMES} {claim.spec.volume_name}"
            if find_volume(snapshot, claim.spec.volume_name) is None:
                yield f"{CLASSES} {class_of(claim)}"


def _with_any(snapshot: Snapshot) -> set[int]:
    """The rows that may have volumes at all."""
    pods = snapshot.pods
    rows = pods.node[pods.flag(*_WITH_VOLUMES) & (pods.node >= 0)].tolist()
    nodes = snapshot.objects_by(ATTACHMENTS, "node", _node_of)
    return {*rows, *(snapshot.nodes.row(name) for name in nodes)} - {-1}


_WITH_VOLUMES: Final = "with volumes", lambda info: has_volumes(info.pod)
