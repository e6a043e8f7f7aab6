"""What each verb means: checked requests in, versions of objects out.

Synchronous, without a wait or a socket; each call is one step that others see whole or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random
from typing import Any

from engine.clock import Clock
from engine.embedded.errors import ApiError, Object, conflict, invalid, not_found
from engine.embedded.resources import BY_PLURAL, Resource
from engine.embedded.store import Collection, Key, Store

NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
EVENTS_KEPT = 5_000
TOPOLOGY_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
SYSTEM_PRIORITIES = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
FIRST_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
MERGE_KEYS = {
    "conditions": "type",
    "addresses": "type",
    "containers": "name",
    "initContainers": "name",
    "schedulingGates": "name",
    "ownerReferences": "uid",
}
"""Lists that a strategic merge patch merges by a key; every other list is replaced whole."""


class Api:
    """The verbs over one store."""

    def __init__(self, *, clock: Clock, random: Random, events_kept: int = EVENTS_KEPT) -> None:
        self._events_kept = events_kept
        self.store = Store(clock=clock, random=random)
        self._random = random
        for name in FIRST_NAMESPACES:
            self.create(BY_PLURAL["namespaces"], "", {"metadata": {"name": name}})
        for name, value in SYSTEM_PRIORITIES.items():
            item = {"metadata": {"name": name}, "value": value}
            self.create(BY_PLURAL["priorityclasses"], "", item)

    def collection(self, resource: Resource) -> Collection:
        """Where objects of a resource are kept."""
        return self.store.collection(resource.plural)

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """The newest version of an object.

        Raises:
            ApiError: 404.
        """
        found = self.collection(resource).items.get((namespace, name))
        if found is None:
            raise not_found(resource.title, name)
        return found

    def create(self, resource: Resource, namespace: str, item: Object) -> Object:
        """Store a new object, checked and defaulted as kube-apiserver does.

        Raises:
            ApiError: 400, 403, 404 (namespace), 409 or 422.
        """
        item = resource.to_stored(_typed(resource, item))
        metadata = self._new_metadata(resource, namespace, item.get("metadata") or {})
        item["metadata"] = metadata
        name = metadata["name"]
        if namespace and ("", namespace) not in self.store.collection("namespaces").items:
            raise not_found("namespaces", namespace)
        _check_name(resource, metadata)
        _check_object(resource, item)
        if (namespace, name) in self.collection(resource).items:
            raise ApiError(409, f'{resource.title} "{name}" already exists', "AlreadyExists")
        item = self._default(resource, item)
        stored = self.store.add(resource.plural, (namespace, name), item)
        if resource.plural == "events":
            self._forget_old_events()
        return stored

    def replace(self, resource: Resource, key: Key, item: Object, subresource: str = "") -> Object:
        """Store `item` in place of the object.

        Raises:
            ApiError: 400, 404, 409 or 422.
        """
        name = key[1]
        item = resource.to_stored(_typed(resource, item))
        metadata = item.get("metadata") or {}
        if metadata.get("name", name) != name:
            raise ApiError(400, "the name of the object does not match the name on the URL")
        old = self.get(resource, *key)
        _check_uid(resource, old, metadata)
        return self._update(resource, key, old, item, subresource)

    def patch(
        self, resource: Resource, key: Key, patch: Object, *, strategic: bool, subresource: str = ""
    ) -> Object:
        """Merge a patch into the object.

        Raises:
            ApiError: 400, 404, 409 or 422.
        """
        old = self.get(resource, *key)
        if not isinstance(patch, dict):
            raise ApiError(400, "a patch must be a JSON object")
        patched = merge(resource.from_stored(old), patch, strategic=strategic)
        item = resource.to_stored(_typed(resource, patched))
        for field in ("uid", "name"):
            if item["metadata"].get(field) != old["metadata"][field]:
                raise invalid(resource.kind, key[1], f"metadata.{field}: field is immutable")
        return self._update(resource, key, old, item, subresource)

    def delete(self, resource: Resource, key: Key, options: Object) -> Object:
        """Delete an object; returns its last state.

        A pod that runs on a node is only marked, unless the grace period is 0: the (simulated)
        kubelet of its node ends it.

        Raises:
            ApiError: 404 or 409.
        """
        old = self.get(resource, *key)
        _check_uid(resource, old, options.get("preconditions") or {})
        grace = self._grace(resource, old, options.get("gracePeriodSeconds"))
        if grace:
            if "deletionTimestamp" in old["metadata"]:
                return old
            metadata = old["metadata"] | {
                "deletionTimestamp": self.store.now(after_seconds=grace),
                "deletionGracePeriodSeconds": grace,
                "generation": old["metadata"].get("generation", 1) + 1,
            }
            return self.store.put("pods", key, old | {"metadata": metadata})
        if resource.plural == "namespaces":
            self._empty_namespace(key[1])
        return self.store.remove(resource.plural, key)

    def bind(self, namespace: str, name: str, binding: Object) -> None:
        """Assign a pod to a node, once; the node need not exist, as in Kubernetes.

        Raises:
            ApiError: 400, 404, 409 or 500.
        """
        metadata, target = binding.get("metadata") or {}, binding.get("target") or {}
        _check_binding(name, metadata, target)
        pod = self.get(BY_PLURAL["pods"], namespace, name)
        _check_uid(BY_PLURAL["pods"], pod, metadata)
        if why := _cannot_be_bound(name, pod["metadata"], pod["spec"]):
            raise conflict("pods/binding", name, why)
        node = self.store.collection("nodes").items.get(("", target["name"]))
        labels = (metadata.get("labels") or {}) | _topology(node)
        given = {"labels": labels, "annotations": metadata.get("annotations")}
        scheduled = {
            "type": "PodScheduled",
            "status": "True",
            "lastTransitionTime": self.store.now(),
            "reason": None,  # takes away what was said before
            "message": None,
        }
        patch = {
            "metadata": {name: of for name, of in given.items() if of},
            "spec": {"nodeName": target["name"]},
            "status": {"conditions": [scheduled]},
        }
        self.store.put("pods", (namespace, name), merge(pod, patch, strategic=True))

    # Inside.

    def _new_metadata(self, resource: Resource, namespace: str, given: Object) -> Object:
        metadata = {key: value for key, value in given.items() if key not in _SERVER_SET}
        if metadata.get("namespace", namespace) != namespace:
            raise ApiError(400, "the namespace of the object does not match that of the request")
        if not metadata.get("name") and metadata.get("generateName"):
            letters = "".join(self._random.choices(NAME_LETTERS, k=5))
            metadata["name"] = metadata["generateName"] + letters
        if not metadata.get("name"):
            raise invalid(resource.kind, "", "metadata.name: name or generateName is required")
        if resource.namespaced:
            metadata["namespace"] = namespace
        if resource.has_generation:
            metadata["generation"] = 1
        return metadata

    def _default(self, resource: Resource, item: Object) -> Object:
        match resource.plural:
            case "pods":
                classes = self.store.collection("priorityclasses").items.items()
                priorities = {key[1]: one for key, one in classes}
                return _default_pod(item, priorities)
            case "nodes":
                return _default_node(item)
            case "namespaces":
                return _default_namespace(item)
            case _:
                defaulted: Object = merge(resource.defaults, item, strategic=False)
                return defaulted

    def _update(
        self, resource: Resource, key: Key, old: Object, item: Object, subresource: str
    ) -> Object:
        metadata = item.get("metadata") or {}
        revision = metadata.get("resourceVersion") or old["metadata"]["resourceVersion"]
        if revision != old["metadata"]["resourceVersion"]:
            why = "the object has been modified; apply your changes to the latest version"
            raise conflict(resource.title, key[1], why)
        if "status" in resource.subresources:  # spec and status have doors of their own
            shut = "spec" if subresource else "status"
            item = {key: value for key, value in item.items() if key != shut}
            item |= {shut: old[shut]} if shut in old else {}
        kept = {name: old["metadata"][name] for name in _SERVER_SET if name in old["metadata"]}
        metadata = metadata | kept
        if resource.namespaced:
            metadata["namespace"] = key[0]
        item = item | {"metadata": metadata | {"name": key[1]}}
        _check_name(resource, item["metadata"])
        _check_object(resource, item)
        if resource.plural == "pods":
            _check_pod_update(old, item)
        if resource.has_generation and item.get("spec") != old.get("spec"):
            item["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
        return self.store.put(resource.plural, key, item)

    def _grace(self, resource: Resource, old: Object, asked: int | None) -> int:
        if resource.plural != "pods" or not old["spec"].get("nodeName"):
            return 0
        if old["status"].get("phase") in {"Succeeded", "Failed"}:
            return 0
        default = old["spec"].get("terminationGracePeriodSeconds", 30)
        return int(default if asked is None else asked)

    def _empty_namespace(self, namespace: str) -> None:
        for plural, resource in BY_PLURAL.items():
            if resource.namespaced:
                keys = [key for key in self.collection(resource).items if key[0] == namespace]
                for key in keys:
                    self.store.remove(plural, key)

    def _forget_old_events(self) -> None:
        items = self.store.collection("events").items
        if len(items) > self._events_kept:
            self.store.remove("events", next(iter(items)))


_SERVER_SET = (
    *("uid", "creationTimestamp", "resourceVersion", "deletionTimestamp"),
    *("deletionGracePeriodSeconds", "generation", "managedFields", "selfLink"),
)


def _typed(resource: Resource, item: Object) -> Object:
    """The item with its type spelt out (the API server fills both in)."""
    if not isinstance(item, dict):
        raise ApiError(400, f"the object provided is no {resource.kind}")
    kind = item.get("kind") or resource.kind
    version = item.get("apiVersion") or resource.api_version
    if (kind, version) != (resource.kind, resource.api_version):
        raise ApiError(400, f"{kind} of {version} is not {resource.kind} of {resource.api_version}")
    typed: Object = {"kind": kind, "apiVersion": version, "metadata": {}}
    return typed | {key: value for key, value in item.items() if value is not None}


def _check_uid(resource: Resource, old: Object, given: Object) -> None:
    """The write is meant for this object, if it says for which."""
    wanted, found = given.get("uid"), old["metadata"]["uid"]
    if wanted and wanted != found:
        why = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
        raise conflict(resource.title, old["metadata"]["name"], why)


def _check_binding(name: str, metadata: Object, target: Object) -> None:
    if metadata.get("name", name) != name:
        raise ApiError(400, "name in URL does not match name in Binding object")
    if target.get("kind") not in {None, "", "Node"} or not target.get("name"):
        raise ApiError(500, "target.name: Required value")  # without a reason, as the real one


def _cannot_be_bound(name: str, metadata: Object, spec: Object) -> str:
    if "deletionTimestamp" in metadata:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def _topology(node: Object | None) -> Object:
    labels = (node["metadata"].get("labels") or {}) if node is not None else {}
    return {key: labels[key] for key in TOPOLOGY_LABELS if key in labels}


# ---- patches: an object and a patch in, a new object out


def merge(target: Any, patch: Any, *, strategic: bool) -> Any:  # noqa: ANN401 - JSON values
    """Apply a JSON merge patch (RFC 7386), or the part of strategic merge that is used here."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    if strategic and patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    for key, value in patch.items():
        if strategic and key.startswith("$"):
            continue
        if value is None:
            merged.pop(key, None)
        elif strategic and isinstance(value, list) and key in MERGE_KEYS:
            merged[key] = _merge_list(merged.get(key) or [], value, MERGE_KEYS[key])
        else:
            merged[key] = merge(merged.get(key), value, strategic=strategic)
    return merged


def _merge_list(target: list[Any], patch: list[Any], merge_key: str) -> list[Any]:
    merged = {item.get(merge_key): item for item in target}
    for item in patch:
        directive = item.get("$patch")
        if directive == "replace":
            return [entry for entry in patch if "$patch" not in entry]
        if directive == "delete":
            merged.pop(item.get(merge_key), None)
        else:
            name = item.get(merge_key)
            merged[name] = merge(merged.get(name), item, strategic=True)
    return list(merged.values())


# ---- what happens to an object between the wire and the store: defaults and refusals
#
# Only what a scheduler or its user meets; everything else of an object passes as it is.

CONFIG_MAP_BYTES = 1_048_576
NAME_LENGTH = 253
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_POD_MAY_CHANGE = frozenset(
    {
        *("containers", "initContainers", "tolerations", "schedulingGates"),
        *("nodeSelector", "affinity", "activeDeadlineSeconds"),
    }
)


# Refusals.


def _check_name(resource: Resource, metadata: Object) -> None:
    """Refuse names that Kubernetes does not know.

    Raises:
        ApiError: 422.
    """
    name = metadata.get("name", "")
    if not _SUBDOMAIN.fullmatch(name) or len(name) > NAME_LENGTH:
        why = "it must be a lowercase RFC 1123 subdomain: letters, digits, '-' and '.'"
        raise invalid(resource.kind, name, f"metadata.name: {why}")


def _check_object(resource: Resource, item: Object) -> None:
    """Refuse what is plainly wrong in an object of this resource.

    Raises:
        ApiError: 400 or 422.
    """
    if resource.kind == "Pod":
        _check_pod(item)
    elif resource.kind == "ConfigMap":
        _check_config_map(item)


def _check_pod(pod: Object) -> None:
    containers = pod.get("spec", {}).get("containers") or []
    missing = [] if containers else ["spec.containers"]
    for index, container in enumerate(containers):
        fields = (name for name in ("name", "image") if not container.get(name))
        missing += [f"spec.containers[{index}].{name}" for name in fields]
    if missing:
        why = ", ".join(f"{field}: Required value" for field in missing)
        raise invalid("Pod", pod["metadata"]["name"], why)


def _check_config_map(item: Object) -> None:
    size = 0
    for field in ("data", "binaryData"):
        for value in (item.get(field) or {}).values():
            if not isinstance(value, str):
                raise ApiError(400, f"cannot handle ConfigMap.{field}: a value is no string")
            size += len(value.encode())
    if size > CONFIG_MAP_BYTES:
        why = f"Too long: may not be more than {CONFIG_MAP_BYTES} bytes"
        raise invalid("ConfigMap", item["metadata"]["name"], why)


def _check_pod_update(old: Object, new: Object) -> None:
    """Refuse to move a pod, or to change its priority and the like.

    Raises:
        ApiError: 422.
    """
    before, after = (
        {key: value for key, value in (of.get("spec") or {}).items() if key not in _POD_MAY_CHANGE}
        for of in (old, new)
    )
    if before != after:
        why = "spec: pod updates may not change fields other than those of its containers"
        raise invalid("Pod", new["metadata"]["name"], why)


# Defaults.


def _default_pod(pod: Object, priorities: Mapping[str, Object]) -> Object:
    """A pod as the API server stores a new one; `priorities` are the PriorityClasses by name.

    Raises:
        ApiError: 403, its priority class does not exist or contradicts its priority.
    """
    spec = _SPEC_DEFAULTS | pod.get("spec", {})
    for name in ("containers", "initContainers"):
        if spec.get(name):
            spec[name] = [_with_requests(container) for container in spec[name]]
    spec |= _priority(pod["metadata"]["name"], spec, priorities)
    status: Object = {"phase": "Pending"}
    if spec.get("schedulingGates"):
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }
        status["conditions"] = [condition]
    return pod | {"spec": spec, "status": status}


_NO_CLASS: Object = {"metadata": {"name": ""}, "value": 0}
_SPEC_DEFAULTS: Object = {
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
}


def _with_requests(container: Object) -> Object:
    """What is limited and not requested is requested."""
    resources = container.get("resources") or {}
    limits = resources.get("limits")
    if not limits:
        return container
    return container | {
        "resources": resources | {"requests": limits | (resources.get("requests") or {})}
    }


def _priority(name: str, spec: Object, priorities: Mapping[str, Object]) -> Object:
    wanted = spec.get("priorityClassName")
    if wanted:
        found = priorities.get(wanted)
        if found is None:
            raise ApiError(403, f"pod {name}: no PriorityClass with name {wanted} was found")
    else:
        defaults = (item for item in priorities.values() if item.get("globalDefault"))
        found = next(defaults, _NO_CLASS)
        wanted = found["metadata"]["name"]
    value = found["value"]
    if spec.get("priority", value) != value:
        raise ApiError(403, f"pod {name}: its PriorityClass gives the priority {value}")
    policy = spec.get("preemptionPolicy") or found.get("preemptionPolicy", "PreemptLowerPriority")
    result: Object = {"priority": value, "preemptionPolicy": policy}
    return result | ({"priorityClassName": wanted} if wanted else {})


def _default_node(node: Object) -> Object:
    """A node as the API server stores a new one: capacity stands in for allocatable."""
    status = node.get("status") or {}
    if "capacity" in status and "allocatable" not in status:
        status = status | {"allocatable": status["capacity"]}
    return node | {"spec": node.get("spec") or {}, "status": status}


def _default_namespace(namespace: Object) -> Object:
    """A namespace as the API server stores a new one."""
    metadata = namespace["metadata"]
    labels = (metadata.get("labels") or {}) | {"kubernetes.io/metadata.name": metadata["name"]}
    return namespace | {
        "metadata": metadata | {"labels": labels},
        "status": {"phase": "Active"},
    }
