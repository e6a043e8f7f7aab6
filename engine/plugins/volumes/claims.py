"""The claims of a pod: their names, and what is known of each.

Decides nothing about nodes.

Source: k8s.io/component-helpers storage/ephemeral and storage/volume (pv_helpers.go, helpers.go).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from engine.framework.events import HintFn
from engine.framework.snapshot import Snapshot
from engine.objects import Pod, Volume
from engine.objects.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from engine.plugins.hints import now
from engine.pods.podinfo import PodInfo

CLAIMS: Final = "PersistentVolumeClaim"
VOLUMES: Final = "PersistentVolume"
CLASSES: Final = "StorageClass"

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
FIRST_CONSUMER: Final = "WaitForFirstConsumer"
ALONE: Final = "ReadWriteOncePod"
LOST: Final = "Lost"
MOST_SOUGHT: Final = 128
"""Claims of a pod for which volumes are looked for, and what their selectors ask of volumes."""


def claim_name(pod: Pod, volume: Volume) -> str | None:
    """The name of the volume's claim, None if it has none."""
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    return f"{pod.metadata.name}-{volume.name}" if volume.ephemeral is not None else None


def named_claims(pod: Pod) -> list[str]:
    """The claims that the pod names itself, in order; not those made for it."""
    return [name for volume, name in all_claims(pod) if volume.persistent_volume_claim is not None]


def claim_names(pod: Pod) -> list[str]:
    """The claims of the pod, those made for it among them."""
    return [name for _, name in all_claims(pod)]


def all_claims(pod: Pod) -> Iterator[tuple[Volume, str]]:
    """The pod's volumes that have a claim, and its name."""
    for volume in pod.spec.volumes or ():
        name = claim_name(pod, volume)
        if name is not None:
            yield volume, name


def is_one_of(names: Callable[[Pod], list[str]]) -> HintFn:
    """A hint: whether a claim that came or changed is one of these of the pod."""

    def ours(pod: PodInfo, _: object, claim: PersistentVolumeClaim) -> bool:
        meta = claim.metadata
        return meta.namespace == pod.namespace and meta.name in names(pod.pod)

    return now(PersistentVolumeClaim, ours)


def find_claim(snapshot: Snapshot, namespace: str, name: str) -> PersistentVolumeClaim | None:
    """The claim as it is, or as it was assumed to become."""
    found: PersistentVolumeClaim | None = snapshot.objects(CLAIMS).get(f"{namespace}/{name}")
    return found


def find_volume(snapshot: Snapshot, name: str) -> PersistentVolume | None:
    """The persistent volume as it is, or as it was assumed to become."""
    found: PersistentVolume | None = snapshot.objects(VOLUMES).get(name)
    return found


def find_class(snapshot: Snapshot, name: str) -> StorageClass | None:
    """The storage class."""
    found: StorageClass | None = snapshot.objects(CLASSES).get(name)
    return found


def not_found(kind: str, name: str) -> str:
    """What the API server says of an object that is not there; `kind` in lower case."""
    return f'{kind} "{name}" not found'


def wrong_owner(pod: Pod, claim: PersistentVolumeClaim) -> str:
    """Why the claim of a volume made for the pod is another's; empty if it is the pod's own."""
    meta = claim.metadata
    owner = next((one for one in meta.owner_references or () if one.controller), None)
    if owner is not None and owner.uid == pod.metadata.uid:
        return ""
    ours = f"{pod.metadata.namespace}/{pod.metadata.name}"
    return f"PVC {meta.namespace}/{meta.name} was not created for pod {ours} (pod is not owner)"


def class_of(one: PersistentVolumeClaim | PersistentVolume) -> str:
    """The name of its storage class; empty without one."""
    annotated = (one.metadata.annotations or {}).get(_BETA_CLASS)
    return (one.spec.storage_class_name or "") if annotated is None else annotated


def claim_of(volume: PersistentVolume) -> str:
    """The claim that the volume is meant for, as `namespace/name`; empty if it is for nobody."""
    of = volume.spec.claim_ref
    return "" if of is None else f"{of.namespace}/{of.name}"


def are_too_many(claims: Sequence[PersistentVolumeClaim]) -> bool:
    """Whether these of a pod, for which volumes are looked for, ask for more than MOST_SOUGHT."""
    asked = len(claims)
    for selector in [one.spec.selector for one in claims if one.spec.selector is not None]:
        each = selector.match_expressions or ()
        asked += len(selector.match_labels or ()) + sum(1 + len(one.values or ()) for one in each)
    return asked > MOST_SOUGHT


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """True if the claim has its volume, and the volume has it."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED in (claim.metadata.annotations or {})


def waits(claim: PersistentVolumeClaim, snapshot: Snapshot) -> bool:
    """True if the claim is bound only once a pod that uses it has a node.

    Raises:
        ValueError: its class does not say.
    """
    name = class_of(claim)
    found = find_class(snapshot, name) if name else None
    if found is None:
        return False
    if found.volume_binding_mode is None:
        raise ValueError(f'VolumeBindingMode not set for StorageClass "{name}"')
    return found.volume_binding_mode == FIRST_CONSUMER


def is_bound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """True if the persistent volume is meant for this claim."""
    of, meta = volume.spec.claim_ref, claim.metadata
    if of is None or (of.namespace, of.name) != (meta.namespace, meta.name):
        return False
    return not of.uid or of.uid == meta.uid
