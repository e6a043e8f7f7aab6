"""Which persistent volumes a pod's claims get on each of many nodes, and what is made for them.

Chooses and changes nothing: the answer for one row alone is that for the row among others.

Source: kubernetes plugins/volumebinding/binder.go, scorer.go; k8s.io/component-helpers
storage/volume/pv_helpers.go (FindMatchingVolume).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.framework.interface import Scores, StatusGroups
from engine.framework.snapshot import BoolColumn, IntColumn, Rows, Snapshot
from engine.framework.status import Code, Status, unresolvable
from engine.objects import Quantity, ResourceList
from engine.objects.storage import (
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
    StorageClass,
)
from engine.plugins.node_selector import NodeTerms
from engine.plugins.volumes.attached import CSI_NODES, CsiNodes
from engine.plugins.volumes.claims import (
    CLAIMS,
    CLASSES,
    SELECTED_NODE,
    VOLUMES,
    claim_of,
    class_of,
    find_class,
    find_volume,
    is_bound_to,
)
from engine.plugins.volumes.migration import csi_affinity, migration_of
from engine.plugins.volumes.pools import (
    NONE,
    Chosen,
    Described,
    Pools,
    Reach,
    reach_of_class,
    reach_of_labels,
    reach_of_volume,
)
from engine.pods.selectors import EVERYTHING, what_it_selects
from engine.text.quantity import Amount, parse

NODE_CONFLICT: Final = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT: Final = "node(s) didn't find available persistent volumes to bind"
NO_SPACE: Final = "node(s) did not have enough free storage"
NO_VOLUME: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
_REASONS: Final = (NODE_CONFLICT, BIND_CONFLICT, NO_SPACE, NO_VOLUME)
_DRIVERS: Final = "CSIDriver"
_ROOM: Final = "CSIStorageCapacity"
KINDS: Final = (CLAIMS, VOLUMES, CLASSES, CSI_NODES, _DRIVERS, _ROOM)
"""What it is read from that may be had, and how."""
_FAILED: Final = -1
_STORAGE: Final = "storage"
_NO_PROVISIONER: Final = frozenset({"", "kubernetes.io/no-provisioner"})
_FULL: Final = 100


@dataclass(frozen=True, slots=True)
class Wanted:
    """The claims of a pod: those that are bound, and those that are bound with the pod."""

    bound: tuple[PersistentVolumeClaim, ...]
    delayed: tuple[PersistentVolumeClaim, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """A claim, the rows where it gets storage, and which: a number for each row, -1 for none.

    `sizes` are the bytes of what the numbers name: of `volumes`, or of the capacities from which
    a volume is made. `annotated`: there may be volumes whose class is not that of their spec.
    """

    claim: PersistentVolumeClaim
    where: BoolColumn
    chosen: Chosen
    sizes: IntColumn
    volumes: Sequence[PersistentVolume] = ()
    annotated: bool = False

    def by_class(self, where: BoolColumn) -> Iterator[tuple[str, BoolColumn]]:
        """The rows by the class that counts; of a volume no annotation of it does."""
        if not self.annotated:
            yield class_of(self.claim), where
            return
        numbers = np.unique(self.chosen[where])
        names = np.array([_spec_class(self.volumes[one]) for one in numbers.tolist()])
        for name in np.unique(names).tolist():
            yield name, where & np.isin(self.chosen, numbers[names == name])


class Found:
    """What a pod's claims come to on each of the rows asked."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._why = np.zeros(size, dtype=np.intp)
        """A bit for each of `_REASONS`; all of them where it cannot be told."""
        self._failure = ""
        self.bindings: list[Choice] = []
        self.provisions: list[Choice] = []

    def reject(self, where: BoolColumn, reason: str) -> None:
        """These rows are rejected, whatever else there is against them."""
        self._why[where] |= 1 << _REASONS.index(reason)

    def fail(self, where: BoolColumn, why: str) -> None:
        """It cannot be told of these rows; the first reason is what is said."""
        self._why[where] = _FAILED
        self._failure = self._failure or why

    @property
    def told(self) -> BoolColumn:
        """The rows of which it could be told."""
        told: BoolColumn = self._why != _FAILED
        return told

    @property
    def passed(self) -> BoolColumn:
        """The rows on which all claims have their volume, or will."""
        passed: BoolColumn = self._why == 0
        return passed

    def groups(self) -> StatusGroups:
        """Why the others are rejected."""
        found = []
        for kind in np.unique(self._why[self._why != 0]).tolist():
            reasons = [reason for bit, reason in enumerate(_REASONS) if kind >> bit & 1]
            status = unresolvable(*reasons)
            if kind == _FAILED:
                status = Status(Code.ERROR, (self._failure,))
            found.append((status, np.flatnonzero(self._why == kind)))
        return found


class Storage:
    """The storage that can be had, and who says where it is; kept beside the snapshot."""

    def __init__(self) -> None:
        self.nodes = CsiNodes()
        self.volumes = Pools(VOLUMES, _open_class, _describe_volume)
        self.capacities = Pools(_ROOM, lambda one: one.storage_class_name, _describe_capacity)
        self._last: tuple[tuple[object, ...], Found] | None = None

    def warm(self, snapshot: Snapshot) -> Iterator[object]:
        """Describes the volumes and capacities that there are."""
        yield from self.volumes.warm(snapshot)
        yield from self.capacities.warm(snapshot)

    def find(self, wanted: Wanted, snapshot: Snapshot, rows: Rows) -> Found:
        """What the claims come to on each of the rows. Filter and score ask the same."""
        asked = rows if isinstance(rows, slice) else rows.tobytes()
        when = snapshot.dictionary, snapshot.generation, snapshot.objects_version(*KINDS)
        about = (*when, asked, wanted)
        if self._last is None or self._last[0] != about:
            self._last = about, self._find(wanted, snapshot, rows)
        return self._last[1]

    def _find(self, wanted: Wanted, snapshot: Snapshot, rows: Rows) -> Found:
        reach = Reach(snapshot, rows)
        found = Found(reach.size)
        for claim in wanted.bound:
            self._check_bound(found, claim, reach)
        if wanted.delayed:
            _Search(self, found, reach).run(wanted.delayed)
        return found

    def reaches(self, volume: PersistentVolume, reach: Reach) -> tuple[BoolColumn, BoolColumn, str]:
        """From which rows the volume can be reached, and of which that cannot be told, and why."""
        fits = reach.mask(_selector(volume))
        unknown = np.zeros(reach.size, dtype=np.bool_)
        of = migration_of(volume.spec)
        if of is None or of.handle is None:
            return fits, unknown, ""
        moved = self.nodes.migrated(reach.snapshot, of.plugin)[reach.rows]
        try:
            there = reach_of_volume(csi_affinity(of, volume))
        except ValueError as wrong:
            return fits & ~moved, moved, f"could not translate pv: {wrong}"
        return np.where(moved, reach.mask(there), fits), unknown, ""

    def _check_bound(self, found: Found, claim: PersistentVolumeClaim, reach: Reach) -> None:
        """Rejects the rows from which the volume cannot be reached, if nothing else does."""
        left, volume = found.passed, find_volume(reach.snapshot, claim.spec.volume_name)
        if volume is None:
            found.reject(left, NO_VOLUME)
            return
        fits, unknown, why = self.reaches(volume, reach)
        found.fail(left & unknown, why)
        found.reject(left & ~fits & ~unknown, NODE_CONFLICT)


def scores(found: Found, line: IntColumn) -> Scores:
    """(n,) 0..100 by `line` (utilization 0..100 -> score) of what is taken of what there is.

    Found volumes count, or else capacities that volumes are made from; each class alike.
    """
    is_static = np.logical_or.reduce([binding.where for binding in found.bindings])
    static, made = (_mean(each, line, found.size) for each in (found.bindings, found.provisions))
    return np.where(is_static, static, made)


def _mean(choices: Sequence[Choice], line: IntColumn, size: int) -> Scores:
    """The mean over the classes that a row has, rounded; 0 without any."""
    shares: dict[str, NDArray[np.int64]] = {}
    for one in choices:
        chosen = one.where & (one.chosen >= 0)
        for name, where in one.by_class(chosen) if chosen.any() else ():
            share = shares.setdefault(name, np.zeros((3, size), np.int64))
            requested, capacity, there = share
            there[where] = 1
            requested[where] += _request(one.claim).units()
            # Volumes are more together; a capacity is what there is for all claims of the class.
            held = capacity[where] if one.volumes else 0
            capacity[where] = held + one.sizes[one.chosen[where]]
    total, count = np.zeros(size), np.zeros(size)
    for requested, capacity, there in shares.values():
        short = (capacity == 0) | (requested > capacity)
        used = requested * _FULL // np.maximum(capacity, 1)
        total += line[np.where(short, _FULL, np.clip(used, 0, _FULL))] * there
        count += there
    return np.floor(total / np.maximum(count, 1) + 0.5)


class _Search:
    """The search for volumes of claims that are bound with their pod, on some rows at once."""

    def __init__(self, storage: Storage, found: Found, reach: Reach) -> None:
        self._storage = storage
        self._found = found
        self._reach = reach
        self._snapshot = reach.snapshot
        self._active = found.told
        self._taken: dict[str, BoolColumn] = {}
        self._chosen: dict[str, list[Chosen]] = {}

    def run(self, claims: Sequence[PersistentVolumeClaim]) -> None:
        """Matches the claims with volumes, small ones first; what is left has to be made."""
        to_match: list[PersistentVolumeClaim] = []
        to_make: list[tuple[PersistentVolumeClaim, BoolColumn]] = []
        numbers = np.arange(self._snapshot.nodes.size)[self._reach.rows]
        for claim in claims:
            node = (claim.metadata.annotations or {}).get(SELECTED_NODE)
            if node is None:
                to_match.append(claim)
                continue
            there = numbers == self._snapshot.nodes.row(node)
            self._found.reject(self._active & ~there, BIND_CONFLICT)
            self._active = self._active & there
            to_make.append((claim, there))
        to_match.sort(key=lambda claim: _request(claim).nano)
        for claim in to_match:
            binding = self._match(claim)
            self._found.bindings.append(binding)
            to_make.append((claim, ~binding.where))
        for claim, where in to_make:
            self._make(claim, where & self._active)

    def _match(self, claim: PersistentVolumeClaim) -> Choice:
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
        sizes = np.array([_storage(one.spec.capacity).units() for one in own], dtype=np.int64)
        of_class = class_of(claim)
        annotated = any(_spec_class(one) != of_class for one in own)
        if not free.any():
            return Choice(claim, chosen >= 0, chosen, sizes, own, annotated)
        pool = self._storage.volumes.of(self._snapshot, of_class)
        before = self._chosen.setdefault(of_class, [])
        found = pool.first(_request(claim).nano, _suits(claim), self._reach, before, free)
        found[~free] = NONE
        before.append(found)
        annotated |= any(spec_class != of_class for *_, spec_class in pool.traits)
        if not own:
            return Choice(claim, found >= 0, found, pool.amounts, pool.items, annotated)
        chosen = np.where(found >= 0, found + len(own), chosen)
        sizes = np.concatenate((sizes, pool.amounts))
        return Choice(claim, chosen >= 0, chosen, sizes, [*own, *pool.items], annotated)

    def _meant_for(self, claim: PersistentVolumeClaim) -> list[PersistentVolume]:
        meta = claim.metadata
        groups = self._snapshot.objects_by(VOLUMES, "claim", claim_of)
        meant = groups.get(f"{meta.namespace}/{meta.name}", {})
        return [one for _, one in sorted(meant.items()) if _is_for(one, claim)]

    def _make(self, claim: PersistentVolumeClaim, needed: BoolColumn) -> None:
        """Makes the claim's volume on the rows that need one, or says why it cannot be made."""
        if not needed.any():
            return
        of_class = find_class(self._snapshot, class_of(claim))
        assert of_class is not None, "a claim without class is never bound with the pod"
        allowed = np.zeros(self._reach.size, dtype=np.bool_)
        if of_class.provisioner not in _NO_PROVISIONER:
            allowed = self._reach.mask(reach_of_class(of_class.allowed_topologies or ()))
        self._found.reject(needed & ~allowed, BIND_CONFLICT)
        sizes = np.empty(0, dtype=np.int64)
        made_of = np.full(self._reach.size, NONE, dtype=np.intp)
        full = np.zeros(self._reach.size, dtype=np.bool_)
        if _asks_for_capacity(claim, of_class, self._snapshot):
            pool = self._storage.capacities.of(self._snapshot, of_class.metadata.name)
            wanted = _request(claim).units()
            sizes = pool.amounts.copy()
            made_of = pool.first(
                0, lambda limit: limit is not None and limit >= wanted, self._reach
            )
            full = needed & allowed & (made_of < 0)
            self._found.reject(full, NO_SPACE)
        self._active = self._active & ~(needed & (~allowed | full))
        self._found.provisions.append(Choice(claim, needed & self._active, made_of, sizes))


def _selector(volume: PersistentVolume) -> NodeTerms | None:
    affinity = volume.spec.node_affinity
    return reach_of_volume(None if affinity is None else affinity.required)


def _is_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether a volume is meant for the claim, and large enough."""
    return (
        is_bound_to(volume, claim)
        and class_of(volume) == class_of(claim)
        and volume.metadata.deletion_timestamp is None
        and _storage(volume.spec.capacity).nano >= _request(claim).nano
        and _kind_of(volume.spec) == _kind_of(claim.spec)
    )


def _kind_of(spec: PersistentVolumeSpec | PersistentVolumeClaimSpec) -> tuple[str, str]:
    return spec.volume_mode or "Filesystem", spec.volume_attributes_class_name or ""


def _spec_class(volume: PersistentVolume) -> str:
    return volume.spec.storage_class_name or ""


_Traits = tuple[frozenset[str], tuple[str, str], tuple[tuple[str, str], ...], str]
"""Access modes, kind and labels of a volume, and the class in its spec."""


def _traits(volume: PersistentVolume) -> _Traits:
    labels = tuple(sorted((volume.metadata.labels or {}).items()))
    modes = frozenset(volume.spec.access_modes or ())
    return modes, _kind_of(volume.spec), labels, _spec_class(volume)


def _suits(claim: PersistentVolumeClaim) -> Callable[[_Traits], bool]:
    """Whether a volume of these traits that is meant for nobody is good enough for the claim."""
    modes, kind = set(claim.spec.access_modes or ()), _kind_of(claim.spec)
    asked = claim.spec.selector
    selector = EVERYTHING if asked is None else what_it_selects(asked)

    def suits(traits: _Traits) -> bool:
        suit = modes <= traits[0] and kind == traits[1]
        return suit and (selector.empty or selector.matches(dict(traits[2])))

    return suits


def _open_class(volume: PersistentVolume) -> str | None:
    """The class of a volume that anybody may have."""
    is_open = volume.spec.claim_ref is None and volume.status.phase == "Available"
    is_open = is_open and volume.metadata.deletion_timestamp is None
    return class_of(volume) if is_open else None


def _asks_for_capacity(
    claim: PersistentVolumeClaim, of_class: StorageClass, snapshot: Snapshot
) -> bool:
    """Whether the driver says how much room there is."""
    driver = snapshot.objects(_DRIVERS).get(of_class.provisioner)
    asks = driver is not None and bool(driver.spec.storage_capacity)
    requests = claim.spec.resources.requests if claim.spec.resources else None
    return asks and _STORAGE in (requests or {})


def volume_limit(capacity: CSIStorageCapacity) -> int | None:
    """The largest volume that can be made, in bytes; None if nothing is known."""
    limit = capacity.maximum_volume_size
    limit = capacity.capacity if limit is None else limit
    return None if limit is None else _amount(limit).units()


# ---- amounts -------------------------------------------------------------------------------------


def _request(claim: PersistentVolumeClaim) -> Amount:
    return _storage(claim.spec.resources.requests if claim.spec.resources else None)


def _storage(amounts: ResourceList | None) -> Amount:
    return _amount((amounts or {}).get(_STORAGE, 0))


def _amount(quantity: Quantity) -> Amount:
    """Nothing, if it cannot be read."""
    try:
        return parse(quantity)
    except ValueError:
        return parse(0)


def _describe_volume(one: PersistentVolume) -> Described:
    capacity = _storage(one.spec.capacity)
    return Described(capacity.nano, _selector(one), _traits(one), capacity.units())


def _describe_capacity(one: CSIStorageCapacity) -> Described:
    amount = 0 if one.capacity is None else _amount(one.capacity).units()
    return Described(0, reach_of_labels(one.node_topology), volume_limit(one), amount)
