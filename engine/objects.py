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


class _Read(msgspec.Struct, frozen=True, rename="camel", gc=False, omit_defaults=True):
    """Common settings: camelCase on the wire, no cycles for the collector, defaults left out."""


class OwnerReference(_Read, frozen=True):
    """One entry of `metadata.ownerReferences`."""

    kind: str = ""
    name: str = ""
    controller: bool | None = None


class ObjectMeta(_Read, frozen=True):
    """`metadata`, without managedFields."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: list[OwnerReference] | None = None


class Taint(_Read, frozen=True):
    """A node's taint."""

    key: str = ""
    value: str = ""
    effect: str = ""


class Toleration(_Read, frozen=True):
    """A pod's toleration; an empty effect matches all, an empty key with Exists matches all."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class SelectorRequirement(_Read, frozen=True):
    """One requirement of a node selector term."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NodeSelectorTerm(_Read, frozen=True):
    """Requirements that are AND-ed; a term without any matches nothing."""

    match_expressions: list[SelectorRequirement] | None = None
    match_fields: list[SelectorRequirement] | None = None


class NodeSelector(_Read, frozen=True):
    """Terms that are OR-ed."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class PreferredSchedulingTerm(_Read, frozen=True):
    """A term with a weight of 1..100."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(_Read, frozen=True):
    """`spec.affinity.nodeAffinity`."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredSchedulingTerm] | None = (
        None
    )


class Affinity(_Read, frozen=True):
    """`spec.affinity`, as far as it is read."""

    node_affinity: NodeAffinity | None = None


class ResourceRequirements(_Read, frozen=True):
    """Requests and limits of a container or, at pod level, of the pod."""

    requests: ResourceList | None = None
    limits: ResourceList | None = None


class Container(_Read, frozen=True):
    """A container or init container."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements | None = None
    restart_policy: str | None = None


class VolumeClaim(_Read, frozen=True):
    """A volume's claim; that there is one is all that is read."""


class Volume(_Read, frozen=True):
    """A volume of a pod, read for whether storage has to be attached for it."""

    persistent_volume_claim: VolumeClaim | None = None
    ephemeral: VolumeClaim | None = None


class SchedulingGate(_Read, frozen=True):
    """A gate that keeps the pod out of the queue."""

    name: str = ""


class PodSpec(_Read, frozen=True):
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
    volumes: list[Volume] | None = None


class Condition(_Read, frozen=True):
    """A condition of a pod or node."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class ContainerStatus(_Read, frozen=True):
    """What the kubelet reports of a container, read for restarts and resizes in flight."""

    name: str = ""
    restart_count: int = 0
    allocated_resources: ResourceList | None = None
    resources: ResourceRequirements | None = None


class PodStatus(_Read, frozen=True):
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


class Pod(_Read, frozen=True):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class NodeSpec(_Read, frozen=True):
    """`spec` of a node."""

    unschedulable: bool = False
    taints: list[Taint] | None = None
    pod_cidr: str = msgspec.field(default="", name="podCIDR")
    pod_cidrs: list[str] | None = msgspec.field(default=None, name="podCIDRs")


class NodeAddress(_Read, frozen=True):
    """An address of a node."""

    type: str = ""
    address: str = ""


class NodeSystemInfo(_Read, frozen=True):
    """What the kubelet says of its machine."""

    kernel_version: str = ""
    kubelet_version: str = ""
    os_image: str = ""
    container_runtime_version: str = ""


class ContainerImage(_Read, frozen=True):
    """An image on a node, under all its names."""

    names: list[str] | None = None
    size_bytes: int = 0


class NodeStatus(_Read, frozen=True):
    """`status` of a node."""

    capacity: ResourceList | None = None
    allocatable: ResourceList | None = None
    conditions: list[Condition] | None = None
    declared_features: list[str] | None = None
    addresses: list[NodeAddress] | None = None
    node_info: NodeSystemInfo | None = None
    images: list[ContainerImage] | None = None


class Node(_Read, frozen=True):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(_Read, frozen=True):
    """A namespace, read for its labels and annotations."""

    metadata: ObjectMeta = ObjectMeta()


class ConfigMap(_Read, frozen=True):
    """A ConfigMap, read as a source of policies."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


def from_builtins(kind: type[_T], value: Any) -> _T:  # noqa: ANN401 - any JSON value
    """Makes a struct of already parsed JSON or YAML.

    Raises:
        msgspec.ValidationError: a field has the wrong type; the message names its path.
    """
    return msgspec.convert(value, kind, strict=False)
