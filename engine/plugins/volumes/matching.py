"""Which persistent volumes a pod's claims get on each of many nodes, and what is made for them.

Chooses and changes nothing: the answer for one row alone is that for the row among others.

Source: kubernetes plugins/volumebinding/binder.go, scorer.go; k8s.io/component-helpers
storage/volume/pv_helpers.go (FindMatchingVolume).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from engine.framework.interface import Scores, StatusGroups
from engine.framework.snapshot import BoolColumn, IntColumn, Rows, Snapshot
from engine.framework.status import Code, Status, unresolvable
from engine.objects import (
    CSIStorageCapacity,
    Node,
    ObjectMeta,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
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
from engine.plugins.volumes.csi_nodes import CsiNodes
from engine.plugins.volumes.migration import csi_affinity, migration_of
from engine.plugins.volumes.pools import NONE, Chosen, Kind, Pools
from engine.plugins.volumes.topology import Reach
from engine.quantity import parse

NODE_CONFLICT: Final = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT: Final = "node(s) didn't find available persistent volumes to bind"
NO_SPACE: Final = "node(s) did not have enough free storage"
NO_VOLUME: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
_REASONS: Final = (NODE_CONFLICT, BIND_CONFLICT, NO_SPACE, NO_VOLUME)
_STORAGE: Final = "storage"
_NO_PROVISIONER: Final = frozenset({"", "kubernetes.io/no-provisioner"})
_FULL: Final = 100


@dataclass(frozen=True, slots=True)
class Wanted:
    """The claims of a pod: those that are bound, and those that are bound with the pod."""

    bound: tuple[PersistentVolumeClaim, ...]
    delayed: tuple[PersistentVolumeClaim, ...]


@dataclass(frozen=True, slots=True)
class Binding:
    """A claim, the volumes that it might get, and which of them on each row; -1 for none.

    `sizes` are the bytes of the volumes.
    """

    claim: PersistentVolumeClaim
    volumes: Sequence[PersistentVolume]
    sizes: IntColumn
    chosen: Chosen


@dataclass(frozen=True, slots=True)
class Provision:
    """A claim, on which rows a volume is made for it, and from which capacity; -1 for none.

    `sizes` are the bytes of the capacities.
    """

    claim: PersistentVolumeClaim
    where: BoolColumn
    sizes: IntColumn
    chosen: Chosen


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
        kinds[self.failed] = NONE
        found = []
        for kind in np.unique(kinds[kinds != 0]).tolist():
            reasons = [reason for bit, reason in enumerate(_REASONS) if kind >> bit & 1]
            status = unresolvable(*reasons)
            if kind == NONE:
                status = Status(Code.ERROR, (self.failure,))
            found.append((status, np.flatnonzero(kinds == kind)))
        return found


class Storage:
    """The storage that can be had, and who says where it is; kept beside the snapshot."""

    def __init__(self) -> None:
        self.nodes = CsiNodes()
        self.volumes = Pools(_OPEN_VOLUMES)
        self.capacities = Pools(_CAPACITIES)

    def warm(self, snapshot: Snapshot) -> Iterator[object]:
        """Describes the volumes and capacities that there are."""
        yield from self.volumes.warm(snapshot)
        yield from self.capacities.warm(snapshot)

    def find(self, wanted: Wanted, snapshot: Snapshot, rows: Rows) -> Found:
        """What the claims come to on each of the rows."""
        reach = Reach(snapshot, rows)
        found = _nothing(reach.size)
        left = np.ones(reach.size, dtype=np.bool_)
        for claim in wanted.bound:
            left = self._check_bound(found, claim, snapshot, rows, left)
        if wanted.delayed:
            _Search(self, found, snapshot, rows).run(wanted.delayed)
        return found

    def reaches(
        self, volume: PersistentVolume, snapshot: Snapshot, rows: Rows
    ) -> tuple[BoolColumn, BoolColumn, str]:
        """From which rows the volume can be reached, and of which that cannot be told, and why."""
        reach = Reach(snapshot, rows)
        fits = reach.mask(_selector(volume))
        unknown = np.zeros(reach.size, dtype=np.bool_)
        of = migration_of(volume.spec)
        if of is None or of.handle is None:
            return fits, unknown, ""
        moved = self.nodes.migrated(snapshot, of.plugin)[rows]
        try:
            there = topology.of_volume(csi_affinity(of, volume))
        except ValueError as wrong:
            return fits & ~moved, moved, f"could not translate pv: {wrong}"
        return np.where(moved, reach.mask(there), fits), unknown, ""

    def _check_bound(
        self,
        found: Found,
        claim: PersistentVolumeClaim,
        snapshot: Snapshot,
        rows: Rows,
        left: BoolColumn,
    ) -> BoolColumn:
        """The rows that are left after a bound claim."""
        volume = find_volume(snapshot, claim.spec.volume_name)
        if volume is None:
            found.no_volume |= left
            return np.zeros(len(left), dtype=np.bool_)
        fits, unknown, why = self.reaches(volume, snapshot, rows)
        found.failed |= left & unknown
        found.failure = found.failure or why
        found.node_conflict |= left & ~fits & ~unknown
        return left & fits


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


class _Search:
    """The search for volumes of claims that are bound with their pod, on some rows at once."""

    def __init__(self, storage: Storage, found: Found, snapshot: Snapshot, rows: Rows) -> None:
        self._storage = storage
        self._found = found
        self._snapshot = snapshot
        self._rows = rows
        self._reach = Reach(snapshot, rows)
        self._active = ~found.failed
        self._taken: dict[str, BoolColumn] = {}
        self._chosen: dict[str, list[Chosen]] = {}

    def run(self, claims: Sequence[PersistentVolumeClaim]) -> None:
        """Matches the claims with volumes, small ones first; what is left has to be made."""
        to_match: list[PersistentVolumeClaim] = []
        to_make: list[tuple[PersistentVolumeClaim, BoolColumn]] = []
        numbers = np.arange(self._snapshot.nodes.size)[self._rows]
        for claim in claims:
            node = (claim.metadata.annotations or {}).get(SELECTED_NODE)
            if node is None:
                to_match.append(claim)
                continue
            there = numbers == self._snapshot.nodes.row(node)
            self._found.bind_conflict |= self._active & ~there
            self._active = self._active & there
            to_make.append((claim, there))
        to_match.sort(key=_requested_nano)
        for claim in to_match:
            binding = self._match(claim)
            self._found.bindings.append(binding)
            to_make.append((claim, binding.chosen < 0))
        for claim, where in to_make:
            self._make(claim, where & self._active)

    def _match(self, claim: PersistentVolumeClaim) -> Binding:
        """On each row the volume that is meant for the claim, or else the smallest that suits."""
        chosen = np.full(self._reach.size, NONE, dtype=np.intp)
        free = self._active.copy()
        own = self._meant_for(claim)
        for number, volume in enumerate(own):
            name = volume.metadata.name
            others = self._taken.setdefault(name, np.zeros(self._reach.size, dtype=np.bool_))
            # Where it is not another's, it is the only one, wherever it can be reached from.
            there = free & ~others
            mine = there & self._reach.mask(_selector(volume))
            chosen[mine] = number
            self._taken[name] = others | mine
            free = free & ~there
        sizes = np.array([_bytes(one.spec.capacity) for one in own], dtype=np.int64)
        if not free.any():
            return Binding(claim, own, sizes, chosen)
        of_class = class_of_claim(claim)
        pool = self._storage.volumes.of(self._snapshot, of_class)
        before = self._chosen.setdefault(of_class, [])
        suits = _suits(claim)
        found = pool.first(_requested_nano(claim), suits, self._reach, before)
        found[~free] = NONE
        before.append(found)
        chosen = np.where(found >= 0, found + len(own), chosen)
        sizes = np.concatenate((sizes, pool.amounts))
        return Binding(claim, [*own, *pool.items], sizes, chosen)

    def _meant_for(self, claim: PersistentVolumeClaim) -> list[PersistentVolume]:
        meta = claim.metadata
        groups = self._snapshot.objects_by(VOLUMES, "claim", _claim_of)
        meant = groups.get(f"{meta.namespace}/{meta.name}", {})
        return [one for _, one in sorted(meant.items()) if _is_for(one, claim)]

    def _make(self, claim: PersistentVolumeClaim, needed: BoolColumn) -> None:
        """Makes the claim's volume on the rows that need one, or says why it cannot be made."""
        if not needed.any():
            return
        of_class = find_class(self._snapshot, class_of_claim(claim))
        assert of_class is not None, "a claim without class is never bound with the pod"
        allowed = np.zeros(self._reach.size, dtype=np.bool_)
        if of_class.provisioner not in _NO_PROVISIONER:
            allowed = self._reach.mask(topology.of_class(of_class.allowed_topologies or ()))
        self._found.bind_conflict |= needed & ~allowed
        sizes = np.empty(0, dtype=np.int64)
        made_of = np.full(self._reach.size, NONE, dtype=np.intp)
        full = np.zeros(self._reach.size, dtype=np.bool_)
        if _asks_for_capacity(claim, of_class, self._snapshot):
            pool = self._storage.capacities.of(self._snapshot, of_class.metadata.name)
            wanted = _requested(claim)
            sizes = pool.amounts.copy()
            made_of = pool.first(
                0, lambda limit: limit is not None and limit >= wanted, self._reach
            )
            full = needed & allowed & (made_of < 0)
            self._found.no_space |= full
        self._active = self._active & ~(needed & (~allowed | full))
        self._found.provisions.append(Provision(claim, needed & self._active, sizes, made_of))


def _claim_of(volume: PersistentVolume) -> str:
    of = volume.spec.claim_ref
    return "" if of is None else f"{of.namespace}/{of.name}"


def _selector(volume: PersistentVolume) -> Selector | None:
    affinity = volume.spec.node_affinity
    return topology.of_volume(None if affinity is None else affinity.required)


def _is_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether a volume is meant for the claim, and large enough."""
    return (
        is_bound_to(volume, claim)
        and class_of_volume(volume) == class_of_claim(claim)
        and volume.metadata.deletion_timestamp is None
        and _nano(volume.spec.capacity) >= _requested_nano(claim)
        and _kind_of(volume.spec) == _kind_of(claim.spec)
    )


def _kind_of(spec: PersistentVolumeSpec | PersistentVolumeClaimSpec) -> tuple[str, str]:
    return spec.volume_mode or "Filesystem", spec.volume_attributes_class_name or ""


_Traits = tuple[frozenset[str], tuple[str, str], tuple[tuple[str, str], ...]]
"""Access modes, kind and labels of a volume."""


def _traits(volume: PersistentVolume) -> _Traits:
    labels = tuple(sorted((volume.metadata.labels or {}).items()))
    return frozenset(volume.spec.access_modes or ()), _kind_of(volume.spec), labels


def _suits(claim: PersistentVolumeClaim) -> Callable[[_Traits], bool]:
    """Whether a volume of these traits that is meant for nobody is good enough for the claim."""
    modes, kind = set(claim.spec.access_modes or ()), _kind_of(claim.spec)
    selector = None if claim.spec.selector is None else topology.of_labels(claim.spec.selector)

    def suits(traits: _Traits) -> bool:
        if not modes <= traits[0] or kind != traits[1]:
            return False
        return selector is None or selector.matches(Node(ObjectMeta(labels=dict(traits[2]))))

    return suits


def _open_class(volume: PersistentVolume) -> str | None:
    """The class of a volume that anybody may have."""
    is_open = volume.spec.claim_ref is None and volume.status.phase == "Available"
    is_open = is_open and volume.metadata.deletion_timestamp is None
    return class_of_volume(volume) if is_open else None


def _asks_for_capacity(
    claim: PersistentVolumeClaim, of_class: StorageClass, snapshot: Snapshot
) -> bool:
    """Whether the driver says how much room there is."""
    driver = snapshot.objects("CSIDriver").get(of_class.provisioner)
    asks = driver is not None and bool(driver.spec.storage_capacity)
    return asks and _STORAGE in (_requests(claim) or {})


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
    where = binding.chosen >= 0
    if where.any():
        share = _share_of(shares, class_of_claim(binding.claim), where)
        share.requested[where] += _requested(binding.claim)
        share.capacity[where] += binding.sizes[binding.chosen[where]]


def _add_dynamic(shares: _Shares, provision: Provision) -> None:
    where = provision.where & (provision.chosen >= 0)
    if where.any():
        share = _share_of(shares, class_of_claim(provision.claim), where)
        share.requested[where] += _requested(provision.claim)
        share.capacity[where] = provision.sizes[provision.chosen[where]]


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


_OPEN_VOLUMES: Final[Kind[PersistentVolume]] = Kind(
    VOLUMES,
    group=_open_class,
    order=lambda one: _nano(one.spec.capacity),
    source=lambda one: one.spec.node_affinity,
    reach=_selector,
    traits=_traits,
    amount=lambda one: _bytes(one.spec.capacity),
)
_CAPACITIES: Final[Kind[CSIStorageCapacity]] = Kind(
    "CSIStorageCapacity",
    group=lambda one: one.storage_class_name,
    order=lambda _: 0,
    source=lambda one: one.node_topology,
    reach=lambda one: topology.of_labels(one.node_topology),
    traits=volume_limit,
    amount=lambda one: 0 if one.capacity is None else _whole(one.capacity),
)
