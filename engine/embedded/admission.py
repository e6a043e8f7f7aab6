"""What happens to an object between the wire and the store: defaults and refusals.

Only what a scheduler or its user meets; everything else of an object passes as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from engine.embedded.errors import Object, bad_request, forbidden, invalid
from engine.embedded.resources import Resource

CONFIG_MAP_BYTES = 1_048_576
NAME_LENGTH = 253
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character"
)
_POD_MAY_CHANGE = frozenset(
    {
        *("containers", "initContainers", "tolerations", "schedulingGates"),
        *("nodeSelector", "affinity", "activeDeadlineSeconds"),
    }
)


# Refusals.


def check_name(resource: Resource, metadata: Object) -> None:
    """Refuse names that Kubernetes does not know.

    Raises:
        ApiError: 422.
    """
    name = metadata.get("name", "")
    if not _SUBDOMAIN.fullmatch(name) or len(name) > NAME_LENGTH:
        message = f'Invalid value: "{name}": {_SUBDOMAIN_RULE}'
        cause = ("metadata.name", "FieldValueInvalid", message)
        raise invalid(resource.group, resource.kind, name, [cause])


def check_object(resource: Resource, item: Object) -> None:
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
        causes = [(field, "FieldValueRequired", "Required value") for field in missing]
        raise invalid("", "Pod", pod["metadata"]["name"], causes)


def _check_config_map(item: Object) -> None:
    size = 0
    for field in ("data", "binaryData"):
        for value in (item.get(field) or {}).values():
            if not isinstance(value, str):
                kind = {int: "number", float: "number", bool: "bool"}.get(type(value), "object")
                raise bad_request(
                    'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot'
                    f" unmarshal {kind} into Go struct field ConfigMap.{field} of type string"
                )
            size += len(value.encode())
    if size > CONFIG_MAP_BYTES:
        message = f"Too long: may not be more than {CONFIG_MAP_BYTES} bytes"
        cause = ("", "FieldValueTooLong", message)
        raise invalid("", "ConfigMap", item["metadata"]["name"], [cause])


def check_pod_update(old: Object, new: Object) -> None:
    """Refuse to move a pod, or to change its priority and the like.

    Raises:
        ApiError: 422.
    """
    before, after = (
        {key: value for key, value in (of.get("spec") or {}).items() if key not in _POD_MAY_CHANGE}
        for of in (old, new)
    )
    if before != after:
        why = "Forbidden: pod updates may not change fields other than those of its containers"
        name = new["metadata"]["name"]
        raise invalid("", "Pod", name, [("spec", "FieldValueForbidden", why)])


# Defaults.


def default_pod(pod: Object, priorities: Mapping[str, Object]) -> Object:
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
            raise forbidden(name, f"no PriorityClass with name {wanted} was found")
    else:
        defaults = (item for item in priorities.values() if item.get("globalDefault"))
        found = next(defaults, _NO_CLASS)
        wanted = found["metadata"]["name"]
    value = found["value"]
    if spec.get("priority", value) != value:
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod "
            f"spec; priority admission controller computed {value} from the given PriorityClass "
            "name"
        )
        raise forbidden(name, why)
    policy = spec.get("preemptionPolicy") or found.get("preemptionPolicy", "PreemptLowerPriority")
    result: Object = {"priority": value, "preemptionPolicy": policy}
    return result | ({"priorityClassName": wanted} if wanted else {})


def default_node(node: Object) -> Object:
    """A node as the API server stores a new one: capacity stands in for allocatable."""
    status = node.get("status") or {}
    if "capacity" in status and "allocatable" not in status:
        status = status | {"allocatable": status["capacity"]}
    return node | {"spec": node.get("spec") or {}, "status": status}


def default_namespace(namespace: Object) -> Object:
    """A namespace as the API server stores a new one."""
    metadata = namespace["metadata"]
    labels = (metadata.get("labels") or {}) | {"kubernetes.io/metadata.name": metadata["name"]}
    return namespace | {
        "metadata": metadata | {"labels": labels},
        "status": {"phase": "Active"},
    }
