"""Which objects are listed and watched: kind, path, selectors, whom they wake. Data only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from engine.configuration.settings import ConfigError
from engine.framework.events import Resource as Wakes
from engine.framework.profile import Profile
from engine.kube.client import segment
from engine.kube.sharing import PodSharing
from engine.objects import ConfigMap, Identity, Namespace, Node, Pod, workloads
from engine.objects.ondemand import WORKLOADS, FinishedPod, Lease
from engine.objects.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)


class KubeObject(Protocol):
    """Any struct of `engine.objects` that has metadata."""

    @property
    def metadata(self) -> Identity:
        """`metadata`."""
        ...


T = TypeVar("T", bound=KubeObject)
_NAMED: Final = "metadata.name="


class Resource(msgspec.Struct, Generic[T], frozen=True):
    """What is listed and watched; `path` is the collection's, its namespace included."""

    kind: type[T]
    path: str
    label_selector: str = ""
    field_selector: str = ""
    share: Callable[[T, T | None], None] | None = None
    """Makes equal parts of objects that are kept one, to save memory."""
    optional: bool = False
    """The scheduler can do without: one that it may not list (403) is as good as absent."""

    @property
    def name(self) -> str:
        """For logs and metrics, as kubectl calls it, with what it is narrowed to.

        `nodes`, `podgroups.scheduling.k8s.io`, `configmaps berth-system/policies`.
        """
        root, *between, plural = self.path.strip("/").split("/")
        group = f".{between[0]}" if root == "apis" else ""
        namespace = between[-1] if "namespaces" in between else ""
        _, _, named = self.field_selector.partition(_NAMED)
        narrowed = "/".join(filter(None, (namespace, named or self.label_selector)))
        return f"{plural}{group} {narrowed}".rstrip()

    @property
    def everywhere(self) -> bool:
        """Whether every API server has it, so that a 404 is no API server's answer."""
        return self.name.partition(" ")[0] in _EVERYWHERE

    def params(self) -> dict[str, str]:
        """The selectors as query parameters."""
        params = {}
        if self.label_selector:
            params["labelSelector"] = self.label_selector
        if self.field_selector:
            params["fieldSelector"] = self.field_selector
        return params


def pods(
    field_selector: str = "status.phase!=Succeeded,status.phase!=Failed",
    sharing: PodSharing | None = None,
) -> Resource[Pod]:
    """All pods that are not finished, as kube-scheduler watches them."""
    share = sharing or PodSharing()
    return Resource(Pod, "/api/v1/pods", field_selector=field_selector, share=share)


NODES: Final = Resource(Node, "/api/v1/nodes")
NAMESPACES: Final = Resource(Namespace, "/api/v1/namespaces")


def config_maps(namespace: str, name: str = "", label_selector: str = "") -> Resource[ConfigMap]:
    """ConfigMaps of a namespace: one by name, or those of a selector; "": of all namespaces."""
    where = f"namespaces/{segment(namespace)}/" if namespace else ""
    return Resource(
        ConfigMap,
        f"/api/v1/{where}configmaps",
        label_selector=label_selector,
        field_selector=f"{_NAMED}{name}" if name else "",
    )


class Kind(msgspec.Struct, frozen=True):
    """A kind of objects that plugins look up; what is kept of one are the fields of its struct."""

    struct: type[Any]
    path: str
    wakes: Wakes | None = None
    """The events that its changes are, None if they wake nobody."""

    @property
    def name(self) -> str:
        """As `Snapshot.objects` has it."""
        return self.struct.__name__

    def resource(self, *, optional: bool = True) -> Resource[Any]:
        """All of them."""
        return Resource(self.struct, self.path, optional=optional)


KINDS: Final = (
    Kind(workloads.Service, "/api/v1/services"),
    Kind(workloads.ReplicationController, "/api/v1/replicationcontrollers"),
    Kind(workloads.ReplicaSet, "/apis/apps/v1/replicasets"),
    Kind(workloads.StatefulSet, "/apis/apps/v1/statefulsets"),
    Kind(workloads.PodDisruptionBudget, "/apis/policy/v1/poddisruptionbudgets"),
    Kind(PersistentVolume, "/api/v1/persistentvolumes", Wakes.PERSISTENT_VOLUME),
    Kind(PersistentVolumeClaim, "/api/v1/persistentvolumeclaims", Wakes.PERSISTENT_VOLUME_CLAIM),
    Kind(StorageClass, "/apis/storage.k8s.io/v1/storageclasses", Wakes.STORAGE_CLASS),
    Kind(CSINode, "/apis/storage.k8s.io/v1/csinodes", Wakes.CSI_NODE),
    Kind(CSIDriver, "/apis/storage.k8s.io/v1/csidrivers", Wakes.CSI_DRIVER),
    Kind(
        CSIStorageCapacity,
        "/apis/storage.k8s.io/v1/csistoragecapacities",
        Wakes.CSI_STORAGE_CAPACITY,
    ),
    Kind(VolumeAttachment, "/apis/storage.k8s.io/v1/volumeattachments", Wakes.VOLUME_ATTACHMENT),
    Kind(
        workloads.ElasticQuota,
        "/apis/scheduling.x-k8s.io/v1alpha1/elasticquotas",
        Wakes.ELASTIC_QUOTA,
    ),
    Kind(workloads.PodGroup, "/apis/scheduling.x-k8s.io/v1alpha1/podgroups", Wakes.POD_GROUP),
    Kind(
        workloads.SchedulingPodGroup,
        "/apis/scheduling.k8s.io/v1beta1/podgroups",
        Wakes.SCHEDULING_POD_GROUP,
    ),
)
"""Nodes, pods and namespaces have handlers of their own; see `pods`."""


def kinds_of(profiles: Iterable[Profile]) -> Sequence[Kind]:
    """`KINDS`, and those that plugins of the profiles name in `Points.objects`.

    Raises:
        ConfigError: a kind would have the name of another one that the cache keeps.
    """
    plugins = [one.plugin for profile in profiles for one in profile.plugins]
    named = {pair for plugin in plugins for pair in plugin.points().objects.items()}
    taken = {*STRUCTS, "Pod", "Node", "Namespace"}
    found = []
    for path, struct in sorted(named, key=lambda pair: pair[0]):
        one = Kind(struct, path, Wakes.OBJECT)
        if one.name in taken:
            raise ConfigError(f"plugins: {path}: another kind is named {one.name}, too")
        taken.add(one.name)
        found.append(one)
    return [*KINDS, *found]


_BATCH: Final = "/apis/batch/v1"
_APIS: Final = {"ReplicationController": "/api/v1", "Job": _BATCH, "CronJob": _BATCH}
WORKLOAD_KINDS: Final = tuple(
    [
        Kind(struct, f"{_APIS.get(kind, '/apis/apps/v1')}/{kind.lower()}s", Wakes.WORKLOAD)
        for kind, struct in WORKLOADS.items()
    ]
)
LEASES: Final = Kind(
    Lease, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", Wakes.LEASE
)
"""Watched only where a policy reads them, as is `pods_finished`."""

_OWN_HANDLERS: Final[tuple[Resource[Any], ...]] = pods(), NODES, NAMESPACES, config_maps("")
_STABLE: Final = [
    kind.resource() for kind in (*KINDS, *WORKLOAD_KINDS, LEASES) if "/v1/" in kind.path
]
_EVERYWHERE: Final = {one.name.partition(" ")[0] for one in (*_OWN_HANDLERS, *_STABLE)}
"""What every API server has: the kinds whose version is v1."""


def pods_finished(phase: str) -> Resource[FinishedPod]:
    """The pods that have finished, `Succeeded` or `Failed`."""
    selector = f"status.phase={phase},spec.nodeName!="
    return Resource(FinishedPod, "/api/v1/pods", field_selector=selector, share=PodSharing())


STRUCTS: Final = {kind.name: kind.struct for kind in (*KINDS, *WORKLOAD_KINDS, LEASES)} | {
    "GangFailure": workloads.GangFailure
}
"""Everything that the cache keeps by kind."""
