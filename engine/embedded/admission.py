"""What happens to an object between the wire and the store: defaults and refusals.

Only what a scheduler or its user meets; everything else of an object passes as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from engine.embedded.errors import ApiError, Cause, bad_request, forbidden, invalid
from engine.embedded.resources import Resource

Object = dict[str, Any]

CONFIG_MAP_BYTES = 1_048_576
LABEL_LENGTH = 63
NAME_LENGTH = 253
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_LABEL_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_QUANTITY = re.compile(r"[+-]?[0-9.]+(m|u|n|[kKMGTPE]i?|[eE][-+]?[0-9]+)?")
_QUANTITY_RULE = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    r"for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_DNS_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL_NAME_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_LABEL_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.',"
    " and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
    "'12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_CONFIG_KEY_RULE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. "
    "'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_POD_UPDATE_RULE = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)


# Refusals.


def check_metadata(resource: Resource, metadata: Object) -> None:
    """Refuse names and labels that Kubernetes does not know.

    Raises:
        ApiError: 422.
    """
    name = metadata.get("name", "")
    causes: list[Cause] = []
    if not _SUBDOMAIN.fullmatch(name) or len(name) > NAME_LENGTH:
        message = f'Invalid value: "{name}": {_SUBDOMAIN_RULE}'
        causes.append(("metadata.name", "FieldValueInvalid", message))
    for key, value in (metadata.get("labels") or {}).items():
        if not _LABEL_NAME.fullmatch(key.rpartition("/")[2]):
            message = f'Invalid value: "{key}": {_LABEL_NAME_RULE}'
            causes.append(("metadata.labels", "FieldValueInvalid", message))
        if not isinstance(value, str):
            raise _cannot_decode(resource, "cannot unmarshal a label that is no string")
        if not _LABEL_VALUE.fullmatch(value):
            message = f'Invalid value: "{value}": {_LABEL_VALUE_RULE}'
            causes.append(("metadata.labels", "FieldValueInvalid", message))
        elif len(value) > LABEL_LENGTH:
            message = f'Invalid value: "{value}": must be no more than {LABEL_LENGTH} bytes'
            causes.append(("metadata.labels", "FieldValueInvalid", message))
    if causes:
        raise invalid(resource.group, resource.kind, name, causes)


def check_object(resource: Resource, item: Object) -> None:
    """Refuse what is plainly wrong in an object of this resource.

    Raises:
        ApiError: 400 or 422.
    """
    match resource.kind:
        case "Pod":
            _check_pod(resource, item)
        case "ConfigMap":
            _check_config_map(resource, item)
        case "Event" if item.get("eventTime"):
            _check_event(item)


def check_fields(resource: Resource, item: Object) -> None:
    """Refuse top-level fields that the resource does not have (`fieldValidation=Strict`).

    Raises:
        ApiError: 400.
    """
    known = {"apiVersion", "kind", "metadata", *resource.fields}
    unknown = [f'unknown field "{name}"' for name in item if name not in known]
    if unknown:
        raise _cannot_decode(resource, f"strict decoding error: {', '.join(unknown)}")


def _cannot_decode(resource: Resource, why: str) -> ApiError:
    kind, version = resource.kind, resource.version
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')


def _check_pod(resource: Resource, pod: Object) -> None:
    causes: list[Cause] = []
    seen: set[str] = set()
    containers = pod.get("spec", {}).get("containers") or []
    if not containers:
        causes.append(("spec.containers", "FieldValueRequired", "Required value"))
    for index, container in enumerate(containers):
        field = f"spec.containers[{index}]"
        name = container.get("name", "")
        causes += _name_causes(f"{field}.name", name, seen)
        if not container.get("image"):
            causes.append((f"{field}.image", "FieldValueRequired", "Required value"))
        seen.add(name)
        _check_quantities(resource, container)
    if causes:
        raise invalid("", "Pod", pod["metadata"]["name"], causes)


def _name_causes(field: str, name: str, seen: set[str]) -> list[Cause]:
    if not name:
        return [(field, "FieldValueRequired", "Required value")]
    if not _DNS_LABEL.fullmatch(name):
        return [(field, "FieldValueInvalid", f'Invalid value: "{name}": {_DNS_LABEL_RULE}')]
    if name in seen:
        return [(field, "FieldValueDuplicate", f'Duplicate value: "{name}"')]
    return []


def _check_quantities(resource: Resource, container: Object) -> None:
    for amounts in (container.get("resources") or {}).values():
        for amount in amounts.values() if isinstance(amounts, dict) else ():
            if not _QUANTITY.fullmatch(str(amount)):
                raise _cannot_decode(resource, _QUANTITY_RULE)


def _check_config_map(resource: Resource, item: Object) -> None:
    causes: list[Cause] = []
    size = 0
    for field in ("data", "binaryData"):
        for key, value in (item.get(field) or {}).items():
            if not isinstance(value, str):
                kind = {int: "number", float: "number", bool: "bool"}.get(type(value), "object")
                why = f"json: cannot unmarshal {kind} into Go struct field ConfigMap.{field}"
                raise _cannot_decode(resource, f"{why} of type string")
            if not _CONFIG_KEY.fullmatch(key):
                message = f'Invalid value: "{key}": {_CONFIG_KEY_RULE}'
                causes.append((f"{field}[{key}]", "FieldValueInvalid", message))
            size += len(value.encode())
    if size > CONFIG_MAP_BYTES:
        message = f"Too long: may not be more than {CONFIG_MAP_BYTES} bytes"
        causes.append(("", "FieldValueTooLong", message))
    if causes:
        raise invalid("", "ConfigMap", item["metadata"]["name"], causes)


def _check_event(event: Object) -> None:
    required = ("reportingController", "reportingInstance", "action", "reason")
    core_names = {"reportingController": "reportingComponent"}
    causes: list[Cause] = [
        (name, "FieldValueRequired", "Required value")
        for name in required
        if not event.get(core_names.get(name, name))
    ]
    if causes:
        raise invalid("", "Event", event["metadata"]["name"], causes)


def check_pod_update(old: Object, new: Object) -> None:
    """Refuse changes of a pod's spec that Kubernetes refuses.

    Raises:
        ApiError: 422.
    """
    before, after = old["spec"], new.get("spec") or {}
    if before == after:
        return
    name = new["metadata"]["name"]
    had = {gate["name"] for gate in before.get("schedulingGates") or ()}
    for index, gate in enumerate(after.get("schedulingGates") or ()):
        if gate["name"] not in had:
            message = (
                "Forbidden: only deletion is allowed, but found new scheduling gate "
                f"'{gate['name']}'"
            )
            field = f"spec.schedulingGates[{index}].name"
            raise invalid("", "Pod", name, [(field, "FieldValueForbidden", message)])
    kept = all(item in (after.get("tolerations") or ()) for item in before.get("tolerations") or ())
    if not kept or _fixed(before, gated=bool(had)) != _fixed(after, gated=bool(had)):
        raise invalid("", "Pod", name, [("spec", "FieldValueForbidden", _POD_UPDATE_RULE)])


def _fixed(spec: Object, *, gated: bool) -> Object:
    """The part of a spec that no update may change."""
    free = {"schedulingGates", "tolerations", "activeDeadlineSeconds"}
    if gated:
        free |= {"nodeSelector", "affinity"}
    fixed = {key: value for key, value in spec.items() if key not in free}
    for name in ("containers", "initContainers"):
        if name in fixed:
            fixed[name] = [container | {"image": ""} for container in fixed[name]]
    return fixed


# Defaults.


def default_pod(pod: Object, priorities: Mapping[str, Object]) -> Object:
    """A pod as the API server stores a new one; `priorities` are the PriorityClasses by name.

    Raises:
        ApiError: 403, its priority class does not exist or contradicts its priority.
    """
    spec = _SPEC_DEFAULTS | pod.get("spec", {})
    for name in ("containers", "initContainers"):
        if spec.get(name):
            spec[name] = [_default_container(container) for container in spec[name]]
    spec["tolerations"] = _with_default_tolerations(spec.get("tolerations") or [])
    spec |= _priority(pod["metadata"]["name"], spec, priorities)
    status: Object = {"phase": "Pending", "qosClass": _qos_class(spec)}
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
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
}


def _default_container(container: Object) -> Object:
    tag = container["image"].rpartition("/")[2].partition(":")[2]
    defaulted = {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always" if tag in {"", "latest"} else "IfNotPresent",
        **container,
    }
    resources = container.get("resources") or {}
    if limits := resources.get("limits"):
        requests = limits | (resources.get("requests") or {})
        resources = resources | {"requests": requests}
    defaulted["resources"] = resources
    if ports := container.get("ports"):
        defaulted["ports"] = [{"protocol": "TCP", **port} for port in ports]
    return defaulted


def _with_default_tolerations(tolerations: list[Object]) -> list[Object]:
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        if not any(_tolerates(toleration, key) for toleration in tolerations)
    ]
    return [*tolerations, *added]


def _tolerates(toleration: Object, key: str) -> bool:
    return toleration.get("key", "") in {"", key} and toleration.get("effect", "") in {
        "",
        "NoExecute",
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


def _qos_class(spec: Object) -> str:
    resources = [
        container.get("resources") or {}
        for container in [*spec["containers"], *(spec.get("initContainers") or ())]
    ]
    if not any(item.get("requests") or item.get("limits") for item in resources):
        return "BestEffort"
    guaranteed = all(
        {"cpu", "memory"} <= (item.get("limits") or {}).keys()
        and item.get("requests") == item["limits"]
        for item in resources
    )
    return "Guaranteed" if guaranteed else "Burstable"


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
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }
