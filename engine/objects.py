"""API objects as the engine reads them: JSON bytes in, frozen structs with the fields we use out.

Nothing here decides anything. A field that no room reads is not decoded: a pod of 6 KB costs about
5 microseconds and half a kilobyte. Lists and maps may be `null` on the wire, so they are optional
here and readers write `x or ()`.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

_T = TypeVar("_T")

Quantity = str | int | float
ResourceList = dict[str, Quantity]


class Part(msgspec.Struct, frozen=True, rename="camel", gc=False, omit_defaults=True):
    """Common settings: camelCase on the wire, no cycles for the collector, defaults left out."""


class OwnerReference(Part, frozen=True):
    """One entry of `metadata.ownerReferences`."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Identity(Part, frozen=True):
    """The part of `metadata` by which an object is known."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class ObjectMeta(Identity, frozen=True):
    """`metadata`, without managedFields."""

    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: list[OwnerReference] | None = None


class Known(Part, frozen=True):
    """An object of which metadata says no more than who it is."""

    metadata: Identity = Identity()


class _Object(Part, frozen=True):
    """An object with all of its metadata that is read of any."""

    metadata: ObjectMeta = ObjectMeta()


class Taint(Part, frozen=True):
    """A node's taint."""

    key: str = ""
    value: str = ""
    effect: str = ""


class Toleration(Part, frozen=True):
    """A pod's toleration; an empty effect matches all, an empty key with Exists matches all."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class SelectorRequirement(Part, frozen=True):
    """One requirement of a label selector or a node selector term."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NodeSelectorTerm(Part, frozen=True):
    """Requirements that are AND-ed; a term without any matches nothing."""

    match_expressions: list[SelectorRequirement] | None = None
    match_fields: list[SelectorRequirement] | None = None


class NodeSelector(Part, frozen=True):
    """Terms that are OR-ed."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class PreferredSchedulingTerm(Part, frozen=True):
    """A term with a weight of 1..100."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Part, frozen=True):
    """`spec.affinity.nodeAffinity`."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredSchedulingTerm] | None = (
        None
    )


class PodAffinityTerm(Part, frozen=True):
    """Pods, by labels and namespaces, and the label of nodes that makes a domain."""

    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""


class WeightedPodAffinityTerm(Part, frozen=True):
    """A term with a weight of 1..100."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Part, frozen=True):
    """`spec.affinity.podAffinity` or `podAntiAffinity`."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] | None = None
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] | None = (
        None
    )


class Affinity(Part, frozen=True):
    """`spec.affinity`."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Part, frozen=True):
    """How evenly pods of a kind are to be spread over domains."""

    max_skew: int = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class ResourceRequirements(Part, frozen=True):
    """Requests and limits of a container or, at pod level, of the pod."""

    requests: ResourceList | None = None
    limits: ResourceList | None = None


class ContainerPort(Part, frozen=True):
    """A port of a container, read for the port of the node that it takes."""

    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = ""


class RestartRule(Part, frozen=True):
    """What follows when a container exits."""

    action: str = ""


class VolumeMount(Part, frozen=True):
    """A mount, read for what it asks of the kubelet."""

    bind_mount_options: list[str] | None = None


class Container(Part, frozen=True):
    """A container or init container."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements | None = None
    restart_policy: str | None = None
    ports: list[ContainerPort] | None = None
    restart_policy_rules: list[RestartRule] | None = None
    volume_mounts: list[VolumeMount] | None = None


class VolumeClaim(Part, frozen=True):
    """The claim that a volume of a pod names."""

    claim_name: str = ""


class EphemeralVolume(Part, frozen=True):
    """A claim made for the pod; that there is one is all that is read."""


class Disk(Part, frozen=True):
    """A source of a volume: a disk or share in the words of any driver that names one.

    One struct for all of them: each driver fills its own fields, and the field of the volume that
    holds it says which driver it is.
    """

    pd_name: str = ""
    volume_id: str = msgspec.field(default="", name="volumeID")
    disk_uri: str = msgspec.field(default="", name="diskURI")
    kind: str | None = None
    iqn: str = ""
    monitors: list[str] | None = None
    image: str = ""
    pool: str = ""
    driver: str = ""
    volume_handle: str = ""
    read_only: bool | None = None


class DiskSources(Part, frozen=True):
    """The disks that a pod's volume or a persistent volume may be; at most one is set."""

    gce_persistent_disk: Disk | None = None
    aws_elastic_block_store: Disk | None = None
    azure_disk: Disk | None = None
    azure_file: Disk | None = None
    cinder: Disk | None = None
    vsphere_volume: Disk | None = None
    portworx_volume: Disk | None = None
    iscsi: Disk | None = None
    rbd: Disk | None = None
    csi: Disk | None = None


class ImageVolume(Part, frozen=True):
    """A volume that is the content of an image."""

    reference: str = ""


class PodResourceClaim(Part, frozen=True):
    """A claim for devices that a pod names."""

    name: str = ""


class Volume(DiskSources, frozen=True):
    """A volume of a pod, read for the storage that has to be found or attached for it."""

    name: str = ""
    persistent_volume_claim: VolumeClaim | None = None
    ephemeral: EphemeralVolume | None = None
    image: ImageVolume | None = None


class SchedulingGate(Part, frozen=True):
    """A gate that keeps the pod out of the queue."""

    name: str = ""


class PodSchedulingGroup(Part, frozen=True):
    """`spec.schedulingGroup` of a pod: the PodGroup of scheduling.k8s.io that it is in."""

    pod_group_name: str | None = None


class PodSpec(Part, frozen=True):
    """`spec` of a pod."""

    node_name: str = ""
    scheduler_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: ResourceList | None = None
    resources: ResourceRequirements | None = None
    priority: int | None = None
    priority_class_name: str = ""
    runtime_class_name: str = ""
    active_deadline_seconds: int | None = None
    preemption_policy: str | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    service_account_name: str = ""
    host_network: bool = False
    host_users: bool | None = None
    volumes: list[Volume] | None = None
    resource_claims: list[PodResourceClaim] | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    scheduling_group: PodSchedulingGroup | None = None


class Condition(Part, frozen=True):
    """A condition of a pod or node."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class ContainerStatus(Part, frozen=True):
    """What the kubelet reports of a container, read for restarts and resizes in flight."""

    name: str = ""
    restart_count: int = 0
    allocated_resources: ResourceList | None = None
    resources: ResourceRequirements | None = None


class PodStatus(Part, frozen=True):
    """`status` of a pod."""

    phase: str = ""
    conditions: list[Condition] | None = None
    nominated_node_name: str = ""
    qos_class: str = ""
    start_time: str | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    allocated_resources: ResourceList | None = None
    resources: ResourceRequirements | None = None


class Pod(_Object, frozen=True):
    """A pod."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
    bound_to: str = msgspec.field(default="", name="spec.nodeName")
    """`spec.nodeName` of a pod whose `spec` is that of others on other nodes."""

    @property
    def node_name(self) -> str:
        """The node that it is on, as the server says; empty if none."""
        return self.bound_to or self.spec.node_name


class NodeSpec(Part, frozen=True):
    """`spec` of a node."""

    unschedulable: bool = False
    taints: list[Taint] | None = None
    pod_cidr: str = msgspec.field(default="", name="podCIDR")
    pod_cidrs: list[str] | None = msgspec.field(default=None, name="podCIDRs")


class NodeAddress(Part, frozen=True):
    """An address of a node."""

    type: str = ""
    address: str = ""


class NodeSystemInfo(Part, frozen=True):
    """What the kubelet says of its machine."""

    kernel_version: str = ""
    kubelet_version: str = ""
    os_image: str = ""
    container_runtime_version: str = ""


class ContainerImage(Part, frozen=True):
    """An image on a node, under all its names."""

    names: list[str] | None = None
    size_bytes: int = 0


class NodeStatus(Part, frozen=True):
    """`status` of a node."""

    capacity: ResourceList | None = None
    allocatable: ResourceList | None = None
    conditions: list[Condition] | None = None
    declared_features: list[str] | None = None
    addresses: list[NodeAddress] | None = None
    node_info: NodeSystemInfo | None = None
    images: list[ContainerImage] | None = None


class Node(_Object, frozen=True):
    """A node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(_Object, frozen=True):
    """A namespace, read for its labels and annotations."""


class LabelSelector(Part, frozen=True):
    """Labels and requirements that must all hold; without any, everything matches."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[SelectorRequirement] | None = None


class ServiceSpec(Part, frozen=True):
    """`spec` of a service."""

    selector: dict[str, str] | None = None


class Service(Known, frozen=True):
    """A service, read for the pods that it selects."""

    spec: ServiceSpec = ServiceSpec()


class ReplicationController(Known, frozen=True):
    """A replication controller, read for the pods that it selects."""

    spec: ServiceSpec = ServiceSpec()


class WorkloadSpec(Part, frozen=True):
    """`spec` of a workload, as far as it is read."""

    selector: LabelSelector | None = None


class ReplicaSet(Known, frozen=True):
    """A replica set, read for the pods that it selects."""

    spec: WorkloadSpec = WorkloadSpec()


class StatefulSet(Known, frozen=True):
    """A stateful set, read for the pods that it selects."""

    spec: WorkloadSpec = WorkloadSpec()


class PodDisruptionBudgetStatus(Part, frozen=True):
    """`status` of a budget; `disrupted_pods` are those whose eviction was allowed already."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str | None] | None = None


class PodDisruptionBudget(Known, frozen=True):
    """How many of the pods that it selects may be evicted."""

    spec: WorkloadSpec = WorkloadSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class ElasticQuotaSpec(Part, frozen=True):
    """`spec` of a quota: what the pods of its namespace are guaranteed, and may use at most."""

    min: ResourceList | None = None
    max: ResourceList | None = None


class ElasticQuota(Known, frozen=True):
    """scheduling.x-k8s.io/v1alpha1: a namespace's quota that others may borrow from."""

    spec: ElasticQuotaSpec = ElasticQuotaSpec()


class PodGroupSpec(Part, frozen=True):
    """`spec` of a PodGroup of scheduling.x-k8s.io."""

    min_member: int | None = None
    min_resources: ResourceList | None = None
    schedule_timeout_seconds: int | None = None


class PodGroup(_Object, frozen=True):
    """A group of pods, of the CRD that the scheduler-plugins project has."""

    spec: PodGroupSpec = PodGroupSpec()

    @property
    def minimum(self) -> int | None:
        """How many of its pods start together."""
        return self.spec.min_member

    @property
    def timeout_seconds(self) -> int | None:
        """How long they wait for each other."""
        return self.spec.schedule_timeout_seconds


class GroupCondition(Condition, frozen=True):
    """A condition of a PodGroup of Kubernetes itself."""

    observed_generation: int | None = None


class GangSchedulingPolicy(Part, frozen=True):
    """How many pods of a group start together."""

    min_count: int | None = None


class PodGroupSchedulingPolicy(Part, frozen=True):
    """`spec.schedulingPolicy` of a group: without `gang` its pods start one by one."""

    gang: GangSchedulingPolicy | None = None


class TopologyConstraint(Part, frozen=True):
    """A label of nodes: the pods of a group have all one value of it."""

    key: str = ""


class PodGroupSchedulingConstraints(Part, frozen=True):
    """`spec.schedulingConstraints` of a group; the API takes one of topology at most."""

    topology: list[TopologyConstraint] | None = None


class SchedulingPodGroupSpec(Part, frozen=True):
    """`spec` of a PodGroup of scheduling.k8s.io."""

    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    scheduling_constraints: PodGroupSchedulingConstraints = PodGroupSchedulingConstraints()


class SchedulingPodGroupStatus(Part, frozen=True):
    """`status` of a PodGroup of scheduling.k8s.io."""

    conditions: list[GroupCondition] | None = None


class SchedulingPodGroup(_Object, frozen=True):
    """A PodGroup of Kubernetes itself (scheduling.k8s.io), which a Workload may have made."""

    spec: SchedulingPodGroupSpec = SchedulingPodGroupSpec()
    status: SchedulingPodGroupStatus = SchedulingPodGroupStatus()

    @property
    def topology_key(self) -> str | None:
        """The label by which its pods are together; None: they need not be."""
        topology = self.spec.scheduling_constraints.topology
        return topology[0].key if topology else None

    @property
    def minimum(self) -> int | None:
        """How many of its pods start together: one, where they need not."""
        gang = self.spec.scheduling_policy.gang
        return 1 if gang is None else gang.min_count

    @property
    def timeout_seconds(self) -> int | None:
        """It has none."""
        return None


class GangFailure(Known, frozen=True):
    """Our own word, of no API: when a gang, named as it is told by, failed last (epoch seconds)."""

    at: float = 0.0


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


class PersistentVolume(_Object, frozen=True):
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


class PersistentVolumeClaim(_Object, frozen=True):
    """A claim on storage."""

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class TopologyTerm(Part, frozen=True):
    """Requirements that are AND-ed: labels with one of some values each, without an operator."""

    match_label_expressions: list[SelectorRequirement] | None = None


class StorageClass(_Object, frozen=True):
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


class CSINode(_Object, frozen=True):
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


class ConfigMap(_Object, frozen=True):
    """A ConfigMap, read as a source of policies."""

    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


def object_key(meta: Identity) -> str:
    """`namespace/name`, or the name alone where there are no namespaces."""
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


def from_builtins(kind: type[_T], value: Any) -> _T:  # noqa: ANN401 - any JSON value
    """Makes a struct of already parsed JSON or YAML.

    Raises:
        msgspec.ValidationError: a field has the wrong type; the message names its path.
    """
    return msgspec.convert(value, kind, strict=False)
