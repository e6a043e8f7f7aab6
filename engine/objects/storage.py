"""Objects of storage: volumes, claims, classes, drivers and what is attached where."""

from __future__ import annotations

from engine.objects import (
    Described,
    DiskSources,
    Known,
    LabelSelector,
    NodeSelector,
    Part,
    Quantity,
    ResourceList,
    ResourceRequirements,
    SelectorRequirement,
)


class ClaimReference(Part, frozen=True):
    """The claim that a persistent volume is meant for."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(Part, frozen=True):
    """The nodes from which a persistent volume can be reached."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(DiskSources, frozen=True):
    """`spec` of a persistent volume."""

    capacity: ResourceList | None = None
    access_modes: list[str] | None = None
    claim_ref: ClaimReference | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    node_affinity: VolumeNodeAffinity | None = None


class PersistentVolumeStatus(Part, frozen=True):
    """`status` of a persistent volume or claim."""

    phase: str = ""


class PersistentVolume(Described, frozen=True):
    """A persistent volume."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class PersistentVolumeClaimSpec(Part, frozen=True):
    """`spec` of a claim."""

    access_modes: list[str] | None = None
    selector: LabelSelector | None = None
    resources: ResourceRequirements | None = None
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaim(Described, frozen=True):
    """A claim on storage."""

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class TopologyTerm(Part, frozen=True):
    """Requirements that are AND-ed: labels with one of some values each, without an operator."""

    match_label_expressions: list[SelectorRequirement] | None = None


class StorageClass(Described, frozen=True):
    """How volumes of a class come to be; `allowed_topologies` are OR-ed."""

    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologyTerm] | None = None


class VolumeNodeResources(Part, frozen=True):
    """How many volumes of a driver a node can have."""

    count: int | None = None


class CSINodeDriver(Part, frozen=True):
    """A driver on a node."""

    name: str = ""
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(Part, frozen=True):
    """`spec` of a CSINode."""

    drivers: list[CSINodeDriver] | None = None


class CSINode(Described, frozen=True):
    """The storage drivers of the node of that name."""

    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(Part, frozen=True):
    """`spec` of a CSIDriver."""

    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(Known, frozen=True):
    """What a storage driver does."""

    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Known, frozen=True):
    """How much storage of a class can be made for a part of the nodes."""

    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


class VolumeAttachmentSource(Part, frozen=True):
    """What is attached: a persistent volume by name; one of a pod's own is not read."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Part, frozen=True):
    """`spec` of an attachment."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(Known, frozen=True):
    """A volume that is or will be attached to a node."""

    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
