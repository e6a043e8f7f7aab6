"""Which persistent volumes a pod's claims get on each of many nodes, and what is made for them.

Chooses and changes nothing: the answer for one row alone is that for the row among others.

Source: kubernetes plugins/volumebinding/binder.go, scorer.go; k8s.io/component-helpers
storage/volume/pv_helpers.go (FindMatchingVolume).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.framework.interface import Scores, StatusGroups
from engine.framework.snapshot import BoolColumn, IntColumn, Rows, Snapshot
from engine.framework.status import Code, Status, unresolvable
from engine.objects import (
    CSIStorageCapacity,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Quantity,
    ResourceList,
    StorageClass,
)
from engine.plugins.node_selector import Selector
from engine.plugins.volumes import topology
from engine.plugins.volumes.claims import (
    SELECTED_NODE,
    VOLUMES,
    class_of_claim,
    class_of_volume,
    find_class,
    find_volume,
    is_bound_to,
)
from engine.plugins.volumes.migration import csi_affinity, migration_of
from engine.plugins.volumes.topology import Reach
from engine.quantity import parse

NODE_CONFLICT: Final = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT: Final = "node(s) didn't find available persistent volumes to bind"
NO_SPACE: Final = "node(s) did not have enough free storage"
NO_VOLUME: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
_REASONS: Final = (NODE_CONFLICT, BIND_CONFLICT, NO_SPACE, NO_VOLUME)
_STORAGE: Final = "storage"
_NO_PROVISIONER: Final = frozenset({"", "kubernetes.io/no-provisioner"})
_NONE: Final = -1
_FULL: Final = 100

Migrated = Callable[[str], BoolColumn]
"""An in-tree plugin -> (N,) the nodes on which its CSI driver has taken over."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The claims of a pod: those that are bound, and those that are bound with the pod."""

    bound: tuple[PersistentVolumeClaim, ...]
    delayed: tuple[PersistentVolumeClaim, ...]


@dataclass(frozen=True, slots=True)
class Binding:
    """A claim, the volumes that it might get, and which of them on each row; -1 for none."""

    claim: PersistentVolumeClaim
    volumes: Sequence[PersistentVolume]
    chosen: NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Provision:
    """A claim, on which rows a volume is made for it, and from which capacity; -1 for none."""

    claim: PersistentVolumeClaim
    where: BoolColumn
    capacities: Sequence[CSIStorageCapacity]
    chosen: NDArray[np.intp]


@dataclass(slots=True)
class Found:
    """What a pod's claims come to on each of the rows asked."""

    node_conflict: BoolColumn
    bind_conflict: BoolColumn
    no_space: BoolColumn
    no_volume: BoolColumn
    failed: BoolColumn
    failure: str = ""
    bindings: list[Binding] = field(default_factory=list)
    provisions: list[Provision] = field(default_factory=list)

    @property
    def passed(self) -> BoolColumn:
        """The rows on which all claims have their volume, or will."""
        rejected = self.node_conflict | self.bind_conflict | self.no_space | self.no_volume
        return ~(rejected | self.failed)

    def groups(self) -> StatusGroups:
        """Why the others are rejected."""
        flags = (self.node_conflict, self.bind_conflict, self.no_space, self.no_volume)
        kinds = np.zeros(len(self.failed), dtype=np.intp)
        for bit, column in enumerate(flags):
            kinds |= column.astype(np.intp) << bit
        kinds[self.failed] = _NONE
        found = []
        for kind in np.unique(kinds[kinds != 0]).tolist():
            reasons = [reason for bit, reason in enumerate(_REASONS) if kind >> bit & 1]
            status = unresolvable(*reasons)
            if kind == _NONE:
                status = Status(Code.ERROR, (self.failure,))
            found.append((status, np.flatnonzero(kinds == kind)))
        return found


def find(wanted: Wanted, snapshot: Snapshot, rows: Rows, migrated: Migrated) -> Found:
    """What the claims come to on each of the rows."""
    reach = Reach(snapshot, rows)
    found = _nothing(reach.size)
    _check_bound(found, wanted.bound, snapshot, reach, lambda plugin: migrated(plugin)[rows])
    if wanted.delayed:
        _find_delayed(found, wanted.delayed, snapshot, rows, reach)
    return found


def scores(found: Found, line: IntColumn) -> Scores:
    """(n,) 0..100 by `line` (utilization 0..100 -> score) of what is taken of what there is.

    Found volumes count, or else capacities that volumes are made from; each class alike.
    """
    size = len(found.failed)
    static: _Shares = {}
    any_static = np.zeros(size, dtype=np.bool_)
    for binding in found.bindings:
        any_static |= binding.chosen >= 0
        _add_static(static, binding)
    dynamic: _Shares = {}
    for provision in found.provisions:
        _add_dynamic(dynamic, provision)
    return np.where(any_static, _mean(static, line, size), _mean(dynamic, line, size))


def _nothing(size: int) -> Found:
    one, two, three, four, five = (np.zeros(size, dtype=np.bool_) for _ in range(5))
    return Found(one, two, three, four, five)


# ---- claims that have their volume ---------------------------------------------------------------


def reaches(
    volume: PersistentVolume, reach: Reach, migrated: Migrated
) -> tuple[BoolColumn, BoolColumn, str]:
    """From which rows the volume can be reached, and of which that cannot be told, and why.

    `migrated` is about the same rows.
    """
    fits = reach.mask(_selector(volume))
    unknown = np.zeros(reach.size, dtype=np.bool_)
    of = migration_of(volume.spec)
    if of is None or of.handle is None:
        return fits, unknown, ""
    moved = migrated(of.plugin)
    try:
        there = topology.of_volume(csi_affinity(of, volume))
    except ValueError as wrong:
        return fits & ~moved, moved, f"could not translate pv: {wrong}"
    return np.where(moved, reach.mask(there), fits), unknown, ""


def _check_bound(
    found: Found,
    claims: Sequence[PersistentVolumeClaim],
    snapshot: Snapshot,
    reach: Reach,
    migrated: Migrated,
) -> None:
    left = np.ones(reach.size, dtype=np.bool_)
    for claim in claims:
        volume = find_volume(snapshot, claim.spec.volume_name)
        if volume is None:
            found.no_volume = left
            return
        fits, unknown, why = reaches(volume, reach, migrated)
        found.failed |= left & unknown
        found.failure = found.failure or why
        found.node_conflict |= left & ~fits & ~unknown
        left = left & fits


# ---- claims that are bound with the pod ----------------------------------------------------------


def _find_delayed(
    found: Found,
    claims: Sequence[PersistentVolumeClaim],
    snapshot: Snapshot,
    rows: Rows,
    reach: Reach,
) -> None:
    to_match: list[PersistentVolumeClaim] = []
    to_make: list[tuple[PersistentVolumeClaim, BoolColumn]] = []
    active = ~found.failed
    numbers = np.arange(snapshot.nodes.size)[rows]
    for claim in claims:
        node = (claim.metadata.annotations or {}).get(SELECTED_NODE)
        if node is None:
            to_match.append(claim)
            continue
        there = numbers == snapshot.nodes.row(node)
        found.bind_conflict |= active & ~there
        active = active & there
        to_make.append((claim, active))
    to_match.sort(key=_requested_nano)
    taken: dict[str, BoolColumn] = {}
    for claim in to_match:
        binding = _match(claim, snapshot, reach, active, taken)
        found.bindings.append(binding)
        to_make.append((claim, active & (binding.chosen < 0)))
    _make(found, to_make, active, snapshot, reach)


def _match(
    claim: PersistentVolumeClaim,
    snapshot: Snapshot,
    reach: Reach,
    active: BoolColumn,
    taken: dict[str, BoolColumn],
) -> Binding:
    """The smallest volume that suits the claim and is left, on each row."""
    of_class, meta = class_of_claim(claim), claim.metadata
    groups = snapshot.objects_by(VOLUMES, "class and claim", _class_and_claim)
    key = f"{meta.namespace}/{meta.name}"
    meant = groups.get(f"{of_class} {key}", {}).values()
    own = [one for one in meant if is_bound_to(one, claim) and _is_enough(one, claim)]
    chosen = np.full(reach.size, _NONE, dtype=np.intp)
    free = active.copy()
    volumes = sorted(own, key=lambda one: one.metadata.name)
    for number, volume in enumerate(volumes):
        # A volume that is meant for the claim is the only one, wherever it can be reached.
        there = _left(free, taken, volume)
        chosen[there & reach.mask(_selector(volume))] = number
        free = free & ~there
    if free.any():
        others = groups.get(f"{of_class} ", {}).values()
        suitable = sorted((one for one in others if _suits(one, claim)), key=_capacity_and_name)
        for number, volume in enumerate(suitable, len(volumes)):
            if not free.any():
                break
            positions = reach.positions(_selector(volume))
            positions = positions[_left(free, taken, volume)[positions]]
            chosen[positions] = number
            free[positions] = False
        volumes += suitable
    for number in np.unique(chosen[chosen >= 0]).tolist():
        name = volumes[number].metadata.name
        taken[name] = taken.get(name, np.zeros(reach.size, dtype=np.bool_)) | (chosen == number)
    return Binding(claim, volumes, chosen)


def _left(free: BoolColumn, taken: dict[str, BoolColumn], volume: PersistentVolume) -> BoolColumn:
    """The rows that look for a volume and on which this one is not another claim's."""
    others = taken.get(volume.metadata.name)
    return free if others is None else free & ~others


def _class_and_claim(volume: PersistentVolume) -> str:
    of = volume.spec.claim_ref
    return f"{class_of_volume(volume)} {'' if of is None else f'{of.namespace}/{of.name}'}"


def _selector(volume: PersistentVolume) -> Selector | None:
    affinity = volume.spec.node_affinity
    return topology.of_volume(None if affinity is None else affinity.required)


def _is_enough(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """What holds for a volume that is meant for the claim, too."""
    of, wanted = volume.spec, claim.spec
    return (
        _nano(of.capacity) >= _requested_nano(claim)
        and (wanted.volume_mode or "Filesystem") == (of.volume_mode or "Filesystem")
        and (wanted.volume_attributes_class_name or "") == (of.volume_attributes_class_name or "")
        and volume.metadata.deletion_timestamp is None
    )


def _suits(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether a volume that is meant for nobody is good enough, wherever it is."""
    if volume.status.phase != "Available" or not _is_enough(volume, claim):
        return False
    if not set(claim.spec.access_modes or ()) <= set(volume.spec.access_modes or ()):
        return False
    if claim.spec.selector is None:
        return True
    labels = topology.of_labels(claim.spec.selector)
    return labels is None or labels.matches(Node(volume.metadata))


def _make(
    found: Found,
    to_make: Sequence[tuple[PersistentVolumeClaim, BoolColumn]],
    active: BoolColumn,
    snapshot: Snapshot,
    reach: Reach,
) -> None:
    """Which volumes can be made on which rows; the first that cannot says why."""
    for claim, where in to_make:
        needed = where & active
        if not needed.any():
            continue
        of_class = find_class(snapshot, class_of_claim(claim))
        assert of_class is not None, "a claim without class is never bound with the pod"
        if of_class.provisioner in _NO_PROVISIONER:
            allowed = np.zeros(reach.size, dtype=np.bool_)
        else:
            allowed = reach.mask(topology.of_class(of_class.allowed_topologies or ()))
        found.bind_conflict |= needed & ~allowed
        capacities = _capacities(claim, of_class, snapshot)
        made_of = np.full(reach.size, _NONE, dtype=np.intp)
        full = np.zeros(reach.size, dtype=np.bool_)
        if capacities is not None:
            full = needed & allowed
            for number, capacity in enumerate(capacities):
                positions = reach.positions(topology.of_labels(capacity.node_topology))
                positions = positions[full[positions]]
                made_of[positions] = number
                full[positions] = False
            found.no_space |= full
        active = active & ~(needed & (~allowed | full))
        found.provisions.append(Provision(claim, needed & active, capacities or (), made_of))


def _capacities(
    claim: PersistentVolumeClaim, of_class: StorageClass, snapshot: Snapshot
) -> list[CSIStorageCapacity] | None:
    """The capacities that have room for the claim; None if its driver does not say."""
    driver = snapshot.objects("CSIDriver").get(of_class.provisioner)
    if driver is None or not driver.spec.storage_capacity:
        return None
    if _STORAGE not in (_requests(claim) or {}):
        return None
    wanted = _requested(claim)
    groups = snapshot.objects_by(
        "CSIStorageCapacity", "class", lambda one: str(one.storage_class_name)
    )
    there = sorted(groups.get(of_class.metadata.name, {}).items())
    return [one for _, one in there if (limit := volume_limit(one)) is not None and limit >= wanted]


def volume_limit(capacity: CSIStorageCapacity) -> int | None:
    """The largest volume that can be made, in bytes; None if nothing is known."""
    limit = capacity.maximum_volume_size
    limit = capacity.capacity if limit is None else limit
    return None if limit is None else _whole(limit)


# ---- scores --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Share:
    """Of one class: what is requested and what there is, in bytes, and on which rows."""

    requested: IntColumn
    capacity: IntColumn
    there: BoolColumn


_Shares = dict[str, _Share]


def _add_static(shares: _Shares, binding: Binding) -> None:
    wanted = _requested(binding.claim)
    for number in np.unique(binding.chosen[binding.chosen >= 0]).tolist():
        volume, there = binding.volumes[number], binding.chosen == number
        share = _share_of(shares, volume.spec.storage_class_name, there)
        share.requested[there] += wanted
        share.capacity[there] += _bytes(volume.spec.capacity)


def _add_dynamic(shares: _Shares, provision: Provision) -> None:
    where = provision.where & (provision.chosen >= 0)
    for number in np.unique(provision.chosen[where]).tolist():
        there = where & (provision.chosen == number)
        share = _share_of(shares, class_of_claim(provision.claim), there)
        share.requested[there] += _requested(provision.claim)
        limit = provision.capacities[number].capacity
        share.capacity[there] = 0 if limit is None else _whole(limit)


def _share_of(shares: _Shares, name: str, there: BoolColumn) -> _Share:
    share = shares.get(name)
    if share is None:
        size = len(there)
        share = shares[name] = _Share(
            np.zeros(size, dtype=np.int64),
            np.zeros(size, dtype=np.int64),
            np.zeros(size, dtype=np.bool_),
        )
    share.there |= there
    return share


def _mean(shares: _Shares, line: IntColumn, size: int) -> Scores:
    """The mean over the classes that a row has, rounded; 0 without any."""
    total, count = np.zeros(size), np.zeros(size)
    for share in shares.values():
        short = (share.capacity == 0) | (share.requested > share.capacity)
        used = share.requested * _FULL // np.maximum(share.capacity, 1)
        total += np.where(share.there, line[np.where(short, _FULL, np.clip(used, 0, _FULL))], 0)
        count += share.there
    return np.floor(total / np.maximum(count, 1) + 0.5)


# ---- amounts -------------------------------------------------------------------------------------


def _requests(claim: PersistentVolumeClaim) -> ResourceList | None:
    return claim.spec.resources.requests if claim.spec.resources else None


def _requested_nano(claim: PersistentVolumeClaim) -> int:
    return _nano(_requests(claim))


def _requested(claim: PersistentVolumeClaim) -> int:
    return _bytes(_requests(claim))


def _capacity_and_name(volume: PersistentVolume) -> tuple[int, str]:
    return _nano(volume.spec.capacity), volume.metadata.name


def _nano(amounts: ResourceList | None) -> int:
    quantity = (amounts or {}).get(_STORAGE, 0)
    try:
        return parse(quantity).nano
    except ValueError:
        return 0


def _bytes(amounts: ResourceList | None) -> int:
    return _whole((amounts or {}).get(_STORAGE, 0))


def _whole(quantity: Quantity) -> int:
    try:
        return parse(quantity).units()
    except ValueError:
        return 0
