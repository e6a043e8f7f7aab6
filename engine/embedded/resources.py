"""What the embedded API serves: one row a resource, Event's two faces, and the pages of discovery.

Data only; `api` gives it meaning and `server` gives it a path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

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
    def title(self) -> str:
        """As messages spell it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def base_path(self) -> str:
        """The path of its group and version, without a slash in front."""
        return f"apis/{self.group}/{self.version}" if self.group else f"api/{self.version}"


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
_UNSET: Object = {"firstTimestamp": None, "lastTimestamp": None, "source": {}}
"""Of Events, as a real server writes what is not there: clients sort by it."""


def _controlled(group: str, version: str, plural: str, kind: str, *short_names: str) -> Resource:
    """What somebody looks after: with a spec, a status of its own, and generations."""
    return Resource(group, version, plural, kind, short_names, _STATUS, has_generation=True)


RESOURCES = (
    Resource("", "v1", "pods", "Pod", ("po",), ("status", "binding"), has_generation=True),
    Resource("", "v1", "nodes", "Node", ("no",), _STATUS, namespaced=False),
    Resource("", "v1", "namespaces", "Namespace", ("ns",), _STATUS, namespaced=False),
    Resource("", "v1", "configmaps", "ConfigMap", ("cm",)),
    Resource("", "v1", "events", "Event", ("ev",), defaults=_UNSET),
    Resource(
        "events.k8s.io", "v1", "events", "Event", ("ev",), defaults=_UNSET,
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


# ---- the pages by which clients find out what is served: enough of them for kubectl


VERSION: Object = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.1+berth.embedded",
    # Clients with typed models insist on the others.
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "",
}

OPENAPI_V2: Final = "openapi/v2"
OPENAPI_V2_PROTOBUF: Final = b"\x0a\x032.0"
"""A document of field 1 alone, `swagger: "2.0"`. kubectl asks for it when it meets a kind that is
not served, and must be able to read it to say so."""


def documents() -> dict[str, Object]:
    """Path (without slash in front) -> the document served there."""
    groups = [_group(group, version) for group, version in GROUP_VERSIONS if group]
    pages: dict[str, Object] = {
        "version": VERSION,
        "api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
        "apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
    }
    pages |= {f"apis/{group['name']}": {"apiVersion": "v1"} | group for group in groups}
    for group, version in GROUP_VERSIONS:
        served = [item for item in RESOURCES if (item.group, item.version) == (group, version)]
        base = served[0].base_path
        pages[base] = {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": served[0].api_version,
            "resources": [entry for item in served for entry in _entries(item)],
        }
        pages[f"openapi/v3/{base}"] = _openapi_v3(served)
    bases = [path.removeprefix("openapi/v3/") for path in pages if path.startswith("openapi/v3/")]
    links = {base: {"serverRelativeURL": f"/openapi/v3/{base}"} for base in bases}
    pages["openapi/v3"] = {"paths": links}
    return pages


def _group(group: str, version: str) -> Object:
    entry = {"groupVersion": f"{group}/{version}", "version": version}
    return {"kind": "APIGroup", "name": group, "versions": [entry], "preferredVersion": entry}


def _entries(item: Resource) -> list[Object]:
    singular = item.kind.lower()
    entry: Object = {
        "name": item.plural,
        "singularName": singular,
        "namespaced": item.namespaced,
        "kind": item.kind,
        "verbs": list(VERBS),
    }
    if item.short_names:
        entry["shortNames"] = list(item.short_names)
    entries = [entry]
    for subresource in item.subresources:
        binding = subresource == "binding"
        entries.append(
            {
                "name": f"{item.plural}/{subresource}",
                "singularName": "",
                "namespaced": item.namespaced,
                "kind": "Binding" if binding else item.kind,
                "verbs": ["create"] if binding else ["get", "patch", "update"],
            }
        )
    return entries


def _openapi_v3(served: list[Resource]) -> Object:
    """Just enough for kubectl to apply without a check of its own: `fieldValidation` is ignored."""
    parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    paths = {}
    for item in served:
        middle = "namespaces/{namespace}/" if item.namespaced else ""
        kind = {"group": item.group, "version": item.version, "kind": item.kind}
        operation = {
            "parameters": [parameter],
            "x-kubernetes-group-version-kind": kind,
            "responses": {"200": {"description": "OK"}},
        }
        paths[f"/{item.base_path}/{middle}{item.plural}/{{name}}"] = {"patch": operation}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Berth, embedded cluster", "version": VERSION["gitVersion"]},
        "paths": paths,
        "components": {"schemas": {}},
    }
