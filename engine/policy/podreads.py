"""What policies read of a pod: the same readers serve the one to be placed and the placed ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from dsl.quantities import parse_time
from dsl.schema import FIELDS
from dsl.types import MISSING, Kind
from engine.framework.snapshot import QueueTimes
from engine.objects import Container, Namespace, ResourceList, ResourceRequirements, Toleration
from engine.objects.ondemand import FinishedPod
from engine.pods.podinfo import CPU, EPHEMERAL_STORAGE, MEMORY, PodInfo
from engine.pods.workloads import controller_of, workload_of
from engine.text.quantity import resource_amount

GROUP_LABEL: Final = "scheduling.x-k8s.io/pod-group"
_COMPUTE: Final = (CPU, MEMORY)

_CAPITAL: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z][a-z])|[A-Z]+")
_Get = Callable[[PodInfo], Any]


def _limit(pod: PodInfo, resource: str) -> float:
    """Sum of the containers' limits; missing if any container has none, as it is unlimited then."""
    # Limits decide nothing in the scheduler, so they are read when a policy asks, not kept.
    limits = [(c.resources and c.resources.limits) or {} for c in containers_of(pod)]
    if not limits or any(resource not in each for each in limits):
        return MISSING
    return float(sum(amount_of(each, resource) for each in limits))


def amount_of(resources: ResourceList | None, resource: str) -> float:
    """An amount as written in a pod; missing if it cannot be read, 0 if it is not named."""
    try:
        return float(resource_amount(resource, (resources or {}).get(resource, 0)))
    except ValueError:
        return MISSING


def group_of(pod: PodInfo) -> str | None:
    """The name of the group that a pod says it is in: `spec.schedulingGroup`, or the label."""
    own = pod.pod.spec.scheduling_group
    if own is not None and own.pod_group_name:
        return own.pod_group_name
    return (pod.pod.metadata.labels or {}).get(GROUP_LABEL) or None


def epoch_seconds(text: str | None) -> float:
    """Seconds since the epoch; missing if there is no text or it is no RFC 3339 time."""
    return MISSING if text is None else parse_time(text)


def number_of(value: float | None) -> float:
    """The number, missing if there is none."""
    return MISSING if value is None else float(value)


def time_of(times: QueueTimes | None, name: str) -> float:
    """`queued_at`, `first_attempt_at` or `attempts` of what the queue knows; missing is NaN."""
    return MISSING if times is None else number_of(getattr(times, name))


def containers_of(pod: PodInfo) -> Sequence[Container]:
    """The containers without those that initialise."""
    return pod.pod.spec.containers or ()


def all_containers_of(pod: PodInfo) -> Sequence[Container]:
    """All containers that a node runs for a pod, those that initialise and sidecars last."""
    return *containers_of(pod), *(pod.pod.spec.init_containers or ())


def _toleration(pod: PodInfo, key: str) -> str | None:
    return next((one.value for one in pod.pod.spec.tolerations or () if one.key == key), None)


def _volumes(pod: PodInfo) -> float:
    volumes = pod.pod.spec.volumes or ()
    return float(sum(1 for one in volumes if one.persistent_volume_claim or one.ephemeral))


def _restarts(pod: PodInfo) -> float:
    return float(sum(one.restart_count for one in pod.pod.status.container_statuses or ()))


def _has(pod: PodInfo, condition: str) -> bool:
    conditions = pod.pod.status.conditions or ()
    return any(one.type == condition and one.status == "True" for one in conditions)


def _scheduled_at(pod: PodInfo) -> float:
    for one in pod.pod.status.conditions or ():
        if one.type == "PodScheduled" and one.status == "True":
            return epoch_seconds(one.last_transition_time)
    return pod.assumed_at


def finished_at(pod: PodInfo) -> float:
    """When the last container ended; if none is told of, when the pod was ready no more."""
    finished = pod.pod
    if not isinstance(finished, FinishedPod):
        return MISSING
    ended = [one.state.terminated for one in finished.status.container_statuses or ()]
    times = [epoch_seconds(one.finished_at) for one in ended if one is not None]
    if not times:
        conditions = finished.status.conditions or ()
        times = [epoch_seconds(c.last_transition_time) for c in conditions if c.type == "Ready"]
    return max((one for one in times if one == one), default=MISSING)


def container_number(container: Container, field: str, key: str) -> float:
    """Request (0 if none) or limit (missing if none) of a container."""
    resources = container.resources or ResourceRequirements()
    if field == "request":
        return amount_of(resources.requests, key)
    limits = resources.limits or {}
    return amount_of(limits, key) if key in limits else MISSING


def _tolerates_everything(toleration: Toleration) -> bool:
    return not toleration.key and toleration.operator == "Exists" and not toleration.effect


def qos_of(pod: PodInfo) -> str:
    """The QoS class: what the server says, else what cpu and memory of the pod make it.

    Source: kubernetes pkg/apis/core/v1/helper/qos/qos.go, ComputePodQOS.
    """
    said = pod.pod.status.qos_class
    if said:
        return said
    spec = pod.pod.spec
    of_all = [c.resources for c in all_containers_of(pod)]
    asked = [_compute(each) for each in (of_all if spec.resources is None else [spec.resources])]
    if not any(amounts for pair in asked for amounts in pair):
        return "BestEffort"
    requested, limited = (
        [sum(one.get(name, 0.0) for one in each) for name in _COMPUTE]
        for each in zip(*asked, strict=True)
    )
    everywhere = all(len(limits) == len(_COMPUTE) for _, limits in asked)
    return "Guaranteed" if everywhere and requested == limited else "Burstable"


def _compute(of: ResourceRequirements | None) -> tuple[dict[str, float], dict[str, float]]:
    """Requests and limits of cpu and memory above 0; a limit alone is the request too."""
    if of is None:
        return {}, {}
    limits = {name: a for name in _COMPUTE if (a := amount_of(of.limits, name)) > 0}
    requests = {name: a for name in _COMPUTE if (a := amount_of(of.requests, name)) > 0}
    return limits | requests, limits


def reader_of(wire: str) -> Callable[[Any], Any]:
    """What stands at a path as the API writes it, `status.nodeInfo.kernelVersion`, or None.

    A path of which our structs decode nothing is a bug, and raises AttributeError.
    """
    path = _CAPITAL.sub(lambda found: f"_{found.group().lower()}", wire).split(".")

    def read(there: Any) -> Any:  # noqa: ANN401 - an object of the cluster, and what is in it
        for part in path:
            there = None if there is None else getattr(there, part)
        return there

    return read


#: What becomes of a value that stands in the object as it is, and what is said without one.
_AS_IT_IS: Final[Mapping[tuple[Kind, bool], Callable[[_Get, str | None], Callable[..., Any]]]] = (
    MappingProxyType(
        {
            (Kind.TEXT, False): lambda get, absent: lambda p: get(p) or absent,
            (Kind.TEXT, True): lambda get, _: lambda p, key: (get(p) or {}).get(key),
            (Kind.TIME, False): lambda get, _: lambda p: epoch_seconds(get(p)),
            (Kind.NUMBER, False): lambda get, _: lambda p: number_of(get(p)),
            (Kind.BOOL, False): lambda get, _: get,
        }
    )
)
#: Fields of a pod without their owner -> what reads them; those with a key take it, too.
_FIELDS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        spec.name.removeprefix("it."): _AS_IT_IS[spec.type.kind, spec.keyed](
            reader_of(f"pod.{spec.wire}"), spec.absent or None
        )
        for spec in FIELDS.values()
        if spec.wire and spec.name.startswith("it.")
    }
    | {
        "name": lambda p: p.name,
        "namespace": lambda p: p.namespace,
        "uid": lambda p: p.uid,
        "qos": qos_of,
        "owner.kind": lambda p: (controller_of(p) or (None, None))[0],
        "owner.name": lambda p: (controller_of(p) or (None, None))[1],
        "image": lambda p: containers_of(p)[0].image or None if containers_of(p) else None,
        "workload": workload_of,
        "group": group_of,
        "toleration": _toleration,
        "priority": lambda p: float(p.priority),
        "scheduled_at": _scheduled_at,
        "finished_at": finished_at,
        "volumes.count": _volumes,
        "restarts": _restarts,
        "cpu": lambda p: float(p.requests.get(CPU, 0)),
        "memory": lambda p: float(p.requests.get(MEMORY, 0)),
        "storage": lambda p: float(p.requests.get(EPHEMERAL_STORAGE, 0)),
        "request": lambda p, key: float(p.requests.get(key, 0)),
        "limit": _limit,
        "terminating": lambda p: p.terminating,
        "ready": lambda p: _has(p, "Ready"),
        "bound": lambda p: bool(p.pod.node_name),
        "nominated": lambda p: bool(p.pod.status.nominated_node_name),
        "tolerates_all": lambda p: any(map(_tolerates_everything, p.pod.spec.tolerations or ())),
    }
)


class UnreadFieldError(KeyError):
    """A field of the language that this version has nothing to read for."""


def pod_reader(field: str, key: str | None, gpus: Sequence[str] = ()) -> Callable[[PodInfo], Any]:
    """What reads a field of a pod, named without its owner; a number that is missing is NaN.

    Raises:
        UnreadFieldError: there is none yet.
    """
    if field == "gpu":
        return lambda pod: float(sum(pod.requests.get(name, 0) for name in gpus))
    found = _FIELDS.get(field)
    if found is None:
        raise UnreadFieldError(field)
    return found if key is None else lambda pod: found(pod, key)


def namespace_text(
    namespaces: Mapping[str, Namespace], name: str, part: str, key: str | None
) -> str | None:
    """A label or an annotation of a namespace, or its name."""
    if part == "name":
        return name
    namespace = namespaces.get(name)
    if namespace is None:
        # The API server puts this label on every namespace; the object may not be here yet.
        return name if (part, key) == ("label", "kubernetes.io/metadata.name") else None
    meta = namespace.metadata
    values = meta.labels if part == "label" else meta.annotations
    return (values or {}).get(key or "")
