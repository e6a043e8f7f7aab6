"""API objects as the engine reads them: JSON bytes in, frozen structs with the fields we use out.

Nothing here decides anything. Pods, nodes and what all objects share stand here, the others by what
they are about beside it. A field that no room reads is not decoded: a pod of 6 KB costs about
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


class Described(Part, frozen=True):
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


class Named(Part, frozen=True):
    """Something of a pod that is read by its name: a claim for devices, a gate."""

    name: str = ""


class Volume(DiskSources, frozen=True):
    """A volume of a pod, read for the storage that has to be found or attached for it."""

    name: str = ""
    persistent_volume_claim: VolumeClaim | None = None
    ephemeral: EphemeralVolume | None = None
    image: ImageVolume | None = None


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
    scheduling_gates: list[Named] | None = None
    service_account_name: str = ""
    host_network: bool = False
    host_users: bool | None = None
    volumes: list[Volume] | None = None
    resource_claims: list[Named] | None = None
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


class Pod(Described, frozen=True):
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


class Node(Described, frozen=True):
    """A node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(Described, frozen=True):
    """A namespace, read for its labels and annotations."""


class LabelSelector(Part, frozen=True):
    """Labels and requirements that must all hold; without any, everything matches."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[SelectorRequirement] | None = None


class ConfigMap(Described, frozen=True):
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
