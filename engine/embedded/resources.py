"""What the embedded API serves: one row a resource, and Event's two faces.

Data only; `api` gives it meaning and `server` gives it a path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from engine.embedded.errors import Object

VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")


def unchanged(value: Object) -> Object:
    """The conversion of every resource that has one face only."""
    return value


class Resource(msgspec.Struct, frozen=True):
    """One served resource."""

    group: str
    version: str
    plural: str
    kind: str
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    namespaced: bool = True
    has_generation: bool = False
    defaults: Mapping[str, Any] = {}
    """What a new object has where it says nothing."""
    to_stored: Callable[[Object], Object] = unchanged
    from_stored: Callable[[Object], Object] = unchanged

    @property
    def api_version(self) -> str:
        """As objects spell it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def base_path(self) -> str:
        """The path of its group and version, without a slash in front."""
        return f"apis/{self.group}/{self.version}" if self.group else f"api/{self.version}"

    @property
    def has_status(self) -> bool:
        """Whether spec and status are written through different doors."""
        return "status" in self.subresources


_EVENT_NAMES = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
)
_TO_NEW = dict(_EVENT_NAMES)
_TO_CORE = {new: core for core, new in _EVENT_NAMES}


def event_to_core(event: Object) -> Object:
    """An events.k8s.io/v1 Event as the core/v1 Event it is stored as."""
    core = {_TO_CORE.get(key, key): value for key, value in event.items()}
    return core | {"apiVersion": "v1", "kind": "Event"}


def event_from_core(event: Object) -> Object:
    """A stored Event as events.k8s.io/v1 shows it."""
    new = {_TO_NEW.get(key, key): value for key, value in event.items()}
    return new | {"apiVersion": "events.k8s.io/v1", "kind": "Event"}


_STATUS = ("status",)
_OF_VOLUMES = {"volumeMode": "Filesystem"}
_PENDING = {"phase": "Pending"}


def _controlled(group: str, version: str, plural: str, kind: str, *short_names: str) -> Resource:
    """What somebody looks after: with a spec, a status of its own, and generations."""
    return Resource(group, version, plural, kind, short_names, _STATUS, has_generation=True)


RESOURCES = (
    Resource("", "v1", "pods", "Pod", ("po",), ("status", "binding"), has_generation=True),
    Resource("", "v1", "nodes", "Node", ("no",), _STATUS, namespaced=False),
    Resource("", "v1", "namespaces", "Namespace", ("ns",), _STATUS, namespaced=False),
    Resource("", "v1", "configmaps", "ConfigMap", ("cm",)),
    Resource("", "v1", "events", "Event", ("ev",)),
    Resource(
        "events.k8s.io", "v1", "events", "Event", ("ev",),
        to_stored=event_to_core, from_stored=event_from_core,
    ),
    Resource("coordination.k8s.io", "v1", "leases", "Lease"),
    Resource(
        "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", ("pc",),
        namespaced=False, has_generation=True,
        defaults={"preemptionPolicy": "PreemptLowerPriority"},
    ),
    _controlled("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", "pdb"),
    Resource("", "v1", "services", "Service", ("svc",), _STATUS),
    _controlled("", "v1", "replicationcontrollers", "ReplicationController", "rc"),
    _controlled("apps", "v1", "replicasets", "ReplicaSet", "rs"),
    _controlled("apps", "v1", "statefulsets", "StatefulSet", "sts"),
    _controlled("apps", "v1", "deployments", "Deployment", "deploy"),
    _controlled("apps", "v1", "daemonsets", "DaemonSet", "ds"),
    _controlled("batch", "v1", "jobs", "Job"),
    _controlled("batch", "v1", "cronjobs", "CronJob", "cj"),
    Resource(
        "", "v1", "persistentvolumes", "PersistentVolume", ("pv",), _STATUS, namespaced=False,
        defaults={
            "spec": {"persistentVolumeReclaimPolicy": "Retain", **_OF_VOLUMES}, "status": _PENDING,
        },
    ),
    Resource(
        "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", ("pvc",), _STATUS,
        defaults={"spec": _OF_VOLUMES, "status": _PENDING},
    ),
    Resource(
        "storage.k8s.io", "v1", "storageclasses", "StorageClass", ("sc",), namespaced=False,
        defaults={"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
    ),
    Resource("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False),
    Resource(
        "storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False, has_generation=True
    ),
    Resource("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity"),
    Resource(
        "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment",
        subresources=_STATUS, namespaced=False,
    ),
    _controlled("scheduling.x-k8s.io", "v1alpha1", "elasticquotas", "ElasticQuota", "eq", "eqs"),
    _controlled("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup", "pg", "pgs"),
)  # fmt: skip

BY_PATH = {(resource.base_path, resource.plural): resource for resource in RESOURCES}
BY_PLURAL = {resource.plural: resource for resource in reversed(RESOURCES)}
"""By plural name; of Event's two faces the stored one."""
GROUP_VERSIONS = tuple(dict.fromkeys((item.group, item.version) for item in RESOURCES))
