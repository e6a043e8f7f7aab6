"""VolumeBinding: a pod goes where its volumes are, or can be made, and they are bound with it.

A claim that waits for its first consumer gets a volume that exists, or a node for which one is to
be made: assumed when the pod is reserved, written before it is bound, and waited for.

Source: kubernetes plugins/volumebinding/volume_binding.go, binder.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np

from engine.framework.effects import AssumeObject, Await, Patch
from engine.framework.events import Action, Resource
from engine.framework.interface import (
    SKIP_FILTER,
    PluginArgs,
    Points,
    PreFilterResult,
    PreScoreResult,
    ReserveResult,
    Scores,
    State,
    Verdicts,
)
from engine.framework.snapshot import Cause, Rows, Snapshot
from engine.framework.status import Code, Status, unresolvable
from engine.objects import object_key
from engine.objects.storage import (
    ClaimReference,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from engine.plugins.allocation import ShapePoint, broken_line
from engine.plugins.hints import changed, differs, on
from engine.plugins.volumes.attached import is_stored, migrated_plugins, volumes_key
from engine.plugins.volumes.claims import (
    BOUND_BY_CONTROLLER,
    CLAIMS,
    LOST,
    MOST_SOUGHT,
    SELECTED_NODE,
    VOLUMES,
    all_claims,
    are_too_many,
    claim_names,
    find_claim,
    find_volume,
    is_bound,
    is_bound_to,
    is_one_of,
    not_found,
    waits,
    wrong_owner,
)
from engine.plugins.volumes.matching import Storage, Wanted, scores, volume_limit
from engine.plugins.volumes.pools import Reach
from engine.pods.podinfo import PodInfo

UNBOUND: Final = unresolvable("pod has unbound immediate PersistentVolumeClaims")
MOST_CLAIMS: Final = 256
TOO_MANY: Final = unresolvable(
    f"pod has more than {MOST_CLAIMS} PersistentVolumeClaims, or more than {MOST_SOUGHT} unbound"
    " ones and requirements of their selectors"
)
_NO_VOLUMES: Final = PreScoreResult(causes=Cause(0), shared="no volumes")
_NONE: Final = Wanted((), ())


class VolumeBindingArgs(PluginArgs, frozen=True):
    """`pluginConfig` of VolumeBinding."""

    bind_timeout_seconds: int | None = None
    shape: tuple[ShapePoint, ...] | None = None


class VolumeBinding:
    """Filters by where volumes are or can be made, scores by the room that is left, and binds."""

    name: Final = "VolumeBinding"

    def __init__(self, args: VolumeBindingArgs | None = None) -> None:
        """Reads the profile's arguments.

        Raises:
            ValueError: the timeout is negative, or the shape is none.
        """
        args = args or VolumeBindingArgs()
        seconds = 600 if args.bind_timeout_seconds is None else args.bind_timeout_seconds
        if seconds < 0:
            raise ValueError(f"bindTimeoutSeconds: {seconds} is negative")
        self._timeout = float(seconds)
        self._line = broken_line(args.shape or (ShapePoint(0, 10), ShapePoint(100, 0)))
        self._storage = Storage()

    def points(self) -> Points:
        """Claims, volumes, classes, capacities, drivers and labels of nodes may change."""
        points = Points(
            events=_EVENTS,
            class_key=volumes_key,
            pre_filter=self._pre_filter,
            filter=self._filter,
            pre_score=self._pre_score,
            score=self._score,
            reserve=self._reserve,
            acts_on=is_stored,
            warm=self._storage.warm,
        )
        # Which volumes a node would use the filter finds: without it none is bound or rated.
        return replace(
            points, unfiltered=replace(points, pre_score=lambda *_: _NO_VOLUMES, reserve=None)
        )

    def _pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
        if not is_stored(pod):
            return SKIP_FILTER
        found = _wanted(pod, snapshot)
        if isinstance(found, Status):
            return PreFilterResult(found)
        if found is _NONE:
            return SKIP_FILTER
        return PreFilterResult(state=found, causes=Cause.LABELS)

    def _pre_score(self, pod: PodInfo, snapshot: Snapshot) -> PreScoreResult:
        """Never skipped: without volumes to bind all nodes get 0."""
        asked = self._pre_filter(pod, snapshot)
        return PreScoreResult(state=asked.state) if asked.status.ok else _NO_VOLUMES

    def _filter(self, state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
        found = self._storage.find(state, snapshot, rows)
        return Verdicts(found.passed, found.groups)

    def _score(self, state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        if state is None or not state.delayed:
            return np.zeros(len(snapshot.nodes.present[rows]))
        return scores(self._storage.find(state, snapshot, rows), self._line)

    # ---- acting

    def _reserve(self, pod: PodInfo, snapshot: Snapshot, row: int) -> ReserveResult:
        wanted = _wanted(pod, snapshot)
        if not isinstance(wanted, Wanted) or not wanted.delayed:
            return ReserveResult()
        found = self._storage.find(wanted, snapshot, np.array([row], dtype=np.intp))
        binding = _Binding(
            self._storage,
            snapshot.nodes.name(row),
            [(one.volumes[one.chosen[0]], one.claim) for one in found.bindings if one.where[0]],
            [provision.claim for provision in found.provisions if provision.where[0]],
        )
        if not binding.bindings and not binding.provisions:
            return ReserveResult()
        changes = binding.changes()
        assumed = [
            AssumeObject(type(new).__name__, object_key(new.metadata), new) for _, new in changes
        ]
        wait = Await(
            "volumes to be bound", binding.check, frozenset({CLAIMS, VOLUMES}), self._timeout
        )
        return ReserveResult(
            effects=tuple(assumed), pre_bind=(*[_patch(old, new) for old, new in changes], wait)
        )


def _wanted(pod: PodInfo, snapshot: Snapshot) -> Wanted | Status:
    """The pod's claims, or why it cannot be placed with them."""
    bound, delayed = [], []
    unbound = False
    for volume, name in all_claims(pod.pod):
        claim = find_claim(snapshot, pod.namespace, name)
        if claim is None:
            missing = not_found("persistentvolumeclaim", name)
            if volume.ephemeral is not None:
                controller = "waiting for ephemeral volume controller to create the"
                missing = f'{controller} persistentvolumeclaim "{name}"'
            return unresolvable(missing)
        why = _unusable(claim) or (volume.ephemeral and wrong_owner(pod.pod, claim))
        if why:
            return unresolvable(why)
        try:
            if is_bound(claim):
                bound.append(claim)
            elif waits(claim, snapshot) and not claim.spec.volume_name:
                delayed.append(claim)
            else:
                unbound = True
        except ValueError as wrong:
            return Status(Code.ERROR, (str(wrong),))
    if unbound:
        return UNBOUND
    if len(bound) > MOST_CLAIMS or are_too_many(delayed):
        return TOO_MANY
    return Wanted(tuple(bound), tuple(delayed)) if bound or delayed else _NONE


def _unusable(claim: PersistentVolumeClaim) -> str:
    name = claim.metadata.name
    if claim.status.phase == LOST:
        lost = claim.spec.volume_name
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{lost}"'
    if claim.metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{name}" is being deleted'
    return ""


# ---- what is written -------------------------------------------------------------------------


def _claimed(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    """The volume as one that is meant for the claim; said to be ours if its owner did not say."""
    replace = msgspec.structs.replace
    meta, annotations = claim.metadata, dict(volume.metadata.annotations or {})
    if not is_bound_to(volume, claim):
        annotations.setdefault(BOUND_BY_CONTROLLER, "yes")
    return replace(
        volume,
        metadata=replace(volume.metadata, annotations=annotations or None),
        spec=replace(volume.spec, claim_ref=ClaimReference(meta.namespace, meta.name, meta.uid)),
    )


def _selected(claim: PersistentVolumeClaim, node: str) -> PersistentVolumeClaim:
    """The claim as one whose volume is to be made for the node."""
    annotations = {**(claim.metadata.annotations or {}), SELECTED_NODE: node}
    replace = msgspec.structs.replace
    return replace(claim, metadata=replace(claim.metadata, annotations=annotations))


def _patch(old: Any, new: Any) -> Patch:  # noqa: ANN401 - a volume or a claim
    before, after = old.metadata.annotations or {}, new.metadata.annotations or {}
    added = {key: value for key, value in after.items() if before.get(key) != value}
    # Nobody may have changed it meanwhile.
    metadata: dict[str, Any] = {"resourceVersion": old.metadata.resource_version}
    if added:
        metadata["annotations"] = added
    body: dict[str, Any] = {"metadata": metadata}
    if isinstance(new, PersistentVolume):
        reference = {"apiVersion": "v1", "kind": CLAIMS}
        body["spec"] = {"claimRef": reference | msgspec.to_builtins(new.spec.claim_ref)}
    return Patch(type(new).__name__, new.metadata.namespace, new.metadata.name, body)


def _failed(why: str) -> Status:
    return Status(Code.ERROR, (f"binding volumes: {why}",))


@dataclass(eq=False)
class _Binding:
    """A pod's claims that are bound with it to a node, as they are before.

    `bindings` are volumes and the claims that get them, for `provisions` a volume is made. Then it
    is waited for that those that were changed have found each other: until newer versions of them
    have been seen, nothing is known.
    """

    storage: Storage
    node: str
    bindings: Sequence[tuple[PersistentVolume, PersistentVolumeClaim]]
    provisions: Sequence[PersistentVolumeClaim]

    def __post_init__(self) -> None:
        self._before = {
            (type(old), object_key(old.metadata)): old.metadata.resource_version
            for old, _ in self.changes()
        }

    def changes(self) -> list[tuple[Any, Any]]:
        """Volumes and claims that have to be changed, before and after."""
        pairs: list[tuple[Any, Any]] = [(one, _claimed(one, of)) for one, of in self.bindings]
        pairs += [(one, _selected(one, self.node)) for one in self.provisions]
        return [(old, new) for old, new in pairs if old != new]

    def check(self, snapshot: Snapshot) -> Status:
        """Success, Pending, or what went wrong so that the pod must be placed anew."""
        if snapshot.nodes.row(self.node) < 0:
            return _failed(f'failed to get node "{self.node}"')
        try:
            done = all(self._has(snapshot, *each) for each in self.bindings) and all(
                self._is_made(snapshot, claim) for claim in self.provisions
            )
        except ValueError as why:
            return _failed(str(why))
        return Status.SUCCESS if done else Status(Code.PENDING)

    def _has(self, snapshot: Snapshot, old: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
        """Whether the claim and the volume that it got are bound."""
        volume = find_volume(snapshot, old.metadata.name)
        if volume is None:
            raise ValueError(not_found("persistentvolume", old.metadata.name))
        now = self._claim(snapshot, claim)
        if self._is_old(volume):
            return False
        self._check_reach(snapshot, volume)
        if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
            raise ValueError(f'ClaimRef got reset for pv "{volume.metadata.name}"')
        return is_bound(now)

    def _is_made(self, snapshot: Snapshot, old: PersistentVolumeClaim) -> bool:
        """Whether the claim is bound to a volume that was made for it."""
        claim = self._claim(snapshot, old)
        if self._is_old(claim):
            return False
        # A provisioner that cannot make the volume takes the annotation back.
        if (claim.metadata.annotations or {}).get(SELECTED_NODE) != self.node:
            raise ValueError(f'provisioning failed for PVC "{claim.metadata.name}"')
        if claim.spec.volume_name:
            volume = find_volume(snapshot, claim.spec.volume_name)
            if volume is None:
                return False
            self._check_reach(snapshot, volume)
        return is_bound(claim)

    def _claim(self, snapshot: Snapshot, old: PersistentVolumeClaim) -> PersistentVolumeClaim:
        claim = find_claim(snapshot, old.metadata.namespace, old.metadata.name)
        if claim is None:
            raise ValueError(not_found("persistentvolumeclaim", old.metadata.name))
        return claim

    def _is_old(self, item: Any) -> bool:  # noqa: ANN401 - a volume or a claim
        before = self._before.get((type(item), object_key(item.metadata)))
        return bool(item.metadata.resource_version == before)

    def _check_reach(self, snapshot: Snapshot, volume: PersistentVolume) -> None:
        node, name = self.node, volume.metadata.name
        rows = np.array([snapshot.nodes.row(node)], dtype=np.intp)
        fits, _, why = self.storage.reaches(volume, Reach(snapshot, rows))
        if not fits[0]:
            raise ValueError(why or f'pv "{name}" node affinity doesn\'t match node "{node}"')


# ---- hints -----------------------------------------------------------------------------------


def _forgets_room(pod: PodInfo, old: CSIDriver, new: CSIDriver) -> bool:
    """Whether a driver of the pod's own volumes no longer says how much room there is."""
    freed = old.spec.storage_capacity and not new.spec.storage_capacity
    return bool(freed) and any(
        volume.csi is not None and volume.csi.driver == new.metadata.name
        for volume in pod.pod.spec.volumes or ()
    )


def _has_more_room(pod: PodInfo, old: CSIStorageCapacity, new: CSIStorageCapacity) -> bool:
    before, after = volume_limit(old), volume_limit(new)
    return after is not None and (before is None or after > before)


_COMES: Final = Action.ADD | Action.UPDATE
_EVENTS: Final = (
    on(
        Resource.STORAGE_CLASS,
        _COMES,
        differs(StorageClass, lambda one: one.allowed_topologies or []),
    ),
    on(Resource.PERSISTENT_VOLUME_CLAIM, _COMES, is_one_of(claim_names)),
    on(Resource.PERSISTENT_VOLUME, _COMES),
    on(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
    on(Resource.CSI_NODE, _COMES, differs(CSINode, migrated_plugins)),
    on(Resource.CSI_DRIVER, Action.UPDATE, changed(CSIDriver, _forgets_room)),
    on(Resource.CSI_STORAGE_CAPACITY, _COMES, changed(CSIStorageCapacity, _has_more_room)),
)
