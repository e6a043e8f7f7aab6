"""A pod with what every cycle asks of it worked out once: its effective requests and its identity.

Three readings of the same containers, because kube-scheduler has three:

    requests         what the pod holds on its node: the most of spec, allocated and actual
    filter_requests  what a node must have free for it: the spec, pod-level requests included
    score_requests   what NodeResourcesFit scores with: container level only, nothing asked for
                     counted as 100m and 200 MiB

They are one for most pods, and equal containers share them, so none of them may be written to.

Source: kubernetes pkg/scheduler/framework/types.go (PodInfo, CalculateResource, SetMaxResource),
plugins/noderesources (computePodResourceRequest, calculatePodResourceRequest) and
k8s.io/component-helpers/resource/helpers.go (PodRequests), at the default feature gates of 1.37.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from engine.objects import (
    Container,
    ContainerStatus,
    Pod,
    Quantity,
    ResourceList,
    ResourceRequirements,
)
from engine.quantity import NANO, milli_units, nano, resource_amount, units

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"

DEFAULT_CPU_MILLI: Final = 100
DEFAULT_MEMORY_BYTES: Final = 200 << 20
_DEFAULTS: Final = {
    CPU: DEFAULT_CPU_MILLI * (NANO // 1000),
    MEMORY: DEFAULT_MEMORY_BYTES * NANO,
}
_BUILT_IN: Final = frozenset((CPU, MEMORY, EPHEMERAL_STORAGE))
_HUGE_PAGES: Final = "hugepages-"
_NATIVE: Final = "kubernetes.io/"
_CACHED: Final = 1 << 14
_LONGEST_PREFIX: Final = 253
_LONGEST_NAME: Final = 63
_PREFIX: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")

Amounts = Mapping[str, int]
"""Resource -> amount: milli-cores for cpu, bytes or counts otherwise. Never written to."""

_Nano = dict[str, int]
_ListOf = Callable[[Container, "ContainerStatus | None"], "ResourceList | None"]
_RequestItems = tuple[tuple[str, Quantity], ...]


class UnreadablePod(ValueError):  # noqa: N818 - what it is, not that it is an error
    """A quantity of the pod cannot be read. The API server lets no such pod in; files may."""

    def __init__(self, pod: Pod, path: str, reason: str) -> None:
        super().__init__(f"pod {pod.metadata.namespace}/{pod.metadata.name}: {path}: {reason}")
        self.path = path


@dataclass(frozen=True, slots=True, eq=False)
class PodInfo:
    """A pod and what was worked out of it; equal only to itself, so it can be a key.

    `make_pod_info` makes it. `nonzero_cpu` (milli-cores) and `nonzero_memory` (bytes) are what it
    adds to its node's sums for scoring: `requests`, with defaults for containers that ask for none.
    """

    pod: Pod
    key: str
    uid: str
    requests: Amounts
    nonzero_cpu: int
    nonzero_memory: int
    priority: int
    filter_requests: Amounts
    score_requests: Amounts
    requests_key: Hashable
    """Equal for pods whose filter and score requests are equal."""
    keys: dict[str, object] = field(default_factory=dict)
    """What plugins worked out of this pod, by plugin name; a memo, not state."""

    @property
    def name(self) -> str:
        """metadata.name."""
        return self.pod.metadata.name

    @property
    def namespace(self) -> str:
        """metadata.namespace."""
        return self.pod.metadata.namespace

    @property
    def terminating(self) -> bool:
        """True once deletion was asked for."""
        return self.pod.metadata.deletion_timestamp is not None


def make_pod_info(pod: Pod) -> PodInfo:
    """Works out the pod's effective requests. About 3 microseconds if they were seen before.

    Raises:
        UnreadablePod: a quantity is none; the message names its field.
    """
    meta, spec = pod.metadata, pod.spec
    try:
        if _is_plain(pod):
            readings = _of_containers(
                tuple([_items(container) for container in spec.containers or ()])
            )
        else:
            readings = _work_out(pod)
    except UnreadablePod:
        raise
    except ValueError as cause:
        raise _located(pod, cause) from cause
    return PodInfo(
        pod,
        f"{meta.namespace}/{meta.name}",
        meta.uid,
        readings[0],
        readings[1],
        readings[2],
        spec.priority or 0,
        readings[3],
        readings[4],
        readings[5],
    )


@lru_cache(maxsize=_CACHED)
def is_scalar_resource(name: str) -> bool:
    """True for what is counted besides cpu, memory and ephemeral-storage.

    Extended resources, huge pages, attachable volumes and anything of kubernetes.io.
    """
    return (
        _NATIVE in name
        or name.startswith((_HUGE_PAGES, "attachable-volumes-"))
        or is_extended_resource(name)
    )


@lru_cache(maxsize=_CACHED)
def is_extended_resource(name: str) -> bool:
    """True for a qualified name outside of kubernetes.io, such as `example.com/gpu`."""
    if "/" not in name or _NATIVE in name or name.startswith("requests."):
        return False
    prefix, _, rest = f"requests.{name}".partition("/")
    return (
        len(prefix) <= _LONGEST_PREFIX
        and len(rest) <= _LONGEST_NAME
        and _PREFIX.fullmatch(prefix) is not None
        and _NAME.fullmatch(rest) is not None
    )


def is_counted(name: str) -> bool:
    """True for a resource that nodes are filtered and scored by; others are not looked at."""
    return name in _BUILT_IN or is_scalar_resource(name)


# ---- plain pods ------------------------------------------------------------------------------

_Readings = tuple[Amounts, int, int, Amounts, Amounts, Hashable]
"""requests, nonzero cpu, nonzero memory, filter requests, score requests, requests key."""


def _is_plain(pod: Pod) -> bool:
    """True if the requests of the containers say everything."""
    spec, status = pod.spec, pod.status
    if spec.init_containers or spec.overhead or spec.resources is not None:
        return False
    if status.conditions and _resize_is_infeasible(pod):
        return False
    if status.allocated_resources or status.resources is not None or status.init_container_statuses:
        return False
    if not status.container_statuses:
        return True
    return _statuses_agree(spec.containers or (), status.container_statuses)


def _statuses_agree(containers: Sequence[Container], statuses: Sequence[ContainerStatus]) -> bool:
    """True if every container was given exactly what it asks for: no resize in flight."""
    asked_of: dict[str, ResourceList] = {
        c.name: (None if c.resources is None else c.resources.requests) or {} for c in containers
    }
    for status in statuses:
        asked = asked_of.get(status.name)
        if asked is None:
            continue
        if status.allocated_resources is not None and status.allocated_resources != asked:
            return False
        given = status.resources
        if given is not None and given.requests is not None and given.requests != asked:
            return False
    return True


def _items(container: Container) -> _RequestItems:
    resources = container.resources
    if resources is None or not resources.requests:
        return ()
    return tuple(resources.requests.items())


@lru_cache(maxsize=_CACHED)
def _of_containers(containers: tuple[_RequestItems, ...]) -> _Readings:
    """All readings of a pod whose containers, run together, are all there is."""
    if len(containers) == 1:
        requests = {
            name: resource_amount(name, quantity)
            for name, quantity in containers[0]
            if is_counted(name)
        }
        scores = {CPU: DEFAULT_CPU_MILLI, MEMORY: DEFAULT_MEMORY_BYTES, **requests}
    else:
        exact: _Nano = {}
        nonzero: _Nano = {}
        for items in containers:
            amounts = {name: nano(quantity) for name, quantity in items}
            _add(exact, amounts)
            _add(nonzero, {**_DEFAULTS, **amounts})
        requests, scores = _rounded(exact), _rounded(nonzero)
    return _readings(requests, scores, requests, scores)


def _readings(requests: Amounts, nonzero: Amounts, filtered: Amounts, scored: Amounts) -> _Readings:
    if min(filtered.values(), default=0) < 0:
        filtered = {name: max(amount, 0) for name, amount in filtered.items()}
    key = tuple(sorted(filtered.items())), tuple(sorted(scored.items()))
    return requests, nonzero.get(CPU, 0), nonzero.get(MEMORY, 0), filtered, scored, key


# ---- all pods --------------------------------------------------------------------------------


def _work_out(pod: Pod) -> _Readings:
    overhead = _read(pod.spec.overhead)
    pod_level = _pod_level_requests(pod)
    filtered = _sum(pod, _asked, {})
    filtered.update(pod_level)
    _add(filtered, overhead)
    held = _held(pod, {}, pod_level, overhead)
    missing = _DEFAULTS
    if pod_level:
        missing = {name: amount for name, amount in _DEFAULTS.items() if name not in held}
    nonzero = _rounded(_held(pod, missing, pod_level, overhead))
    scored = _sum(pod, _asked, _DEFAULTS)
    _add(scored, overhead)
    return _readings(_rounded(held), nonzero, _rounded(filtered), _rounded(scored))


def _held(pod: Pod, missing: _Nano, pod_level: _Nano, overhead: _Nano) -> _Nano:
    """The most of what the pod asks for, was allocated and has; see `requests`."""
    status = pod.status
    infeasible = _resize_is_infeasible(pod)
    held: _Nano = {} if infeasible else _sum(pod, _asked, missing)
    actual = None if status.resources is None else status.resources.requests
    if status.allocated_resources is not None and actual is not None:
        _raise_to(held, _read(status.allocated_resources))
        _raise_to(held, _read(actual))
    elif infeasible or status.container_statuses or status.init_container_statuses:
        asked = _nothing if infeasible else _asked
        _raise_to(held, _sum(pod, _allocated_or(asked), missing))
        _raise_to(held, _sum(pod, _actual_or(asked), missing))
    if pod_level:
        effective = {} if infeasible and status.resources is not None else dict(pod_level)
        if status.resources is not None:
            _raise_to(effective, _read(status.resources.requests))
            _raise_to(effective, _read(status.allocated_resources))
        held.update({name: a for name, a in effective.items() if _has_pod_level(name)})
    _add(held, overhead)
    return held


def _sum(pod: Pod, list_of: _ListOf, missing: _Nano) -> _Nano:
    """What the containers need at their peak: all that run together, or while one initialises.

    `missing` is taken for what a container's list does not name.
    """
    statuses = _statuses(pod)

    def amounts(container: Container) -> _Nano:
        read = _read(list_of(container, statuses.get(container.name)))
        return {**missing, **read} if missing else read

    total: _Nano = {}
    for container in pod.spec.containers or ():
        _add(total, amounts(container))
    sidecars: _Nano = {}
    peak: _Nano = {}
    for container in pod.spec.init_containers or ():
        needed = amounts(container)
        if container.restart_policy == "Always":
            _add(total, needed)
            _add(sidecars, needed)
            needed = sidecars
        else:
            _add(needed, sidecars)
        _raise_to(peak, needed)
    _raise_to(total, peak)
    return total


def _statuses(pod: Pod) -> dict[str, ContainerStatus]:
    """By container name; the first of a name counts, regular containers before others."""
    found: dict[str, ContainerStatus] = {}
    for statuses in (pod.status.container_statuses, pod.status.init_container_statuses):
        for status in statuses or ():
            found.setdefault(status.name, status)
    return found


def _asked(container: Container, status: ContainerStatus | None) -> ResourceList | None:  # noqa: ARG001 - one signature for three
    return _requests(container.resources)


def _nothing(container: Container, status: ContainerStatus | None) -> None:  # noqa: ARG001 - one signature for three
    return None


def _allocated_or(otherwise: _ListOf) -> _ListOf:
    def allocated(container: Container, status: ContainerStatus | None) -> ResourceList | None:
        if status is not None and status.allocated_resources is not None:
            return status.allocated_resources
        return otherwise(container, status)

    return allocated


def _actual_or(otherwise: _ListOf) -> _ListOf:
    allocated = _allocated_or(otherwise)

    def actual(container: Container, status: ContainerStatus | None) -> ResourceList | None:
        if status is not None and status.resources is not None:
            requests = status.resources.requests
            if requests is not None:
                return requests
        return allocated(container, status)

    return actual


def _pod_level_requests(pod: Pod) -> _Nano:
    """`spec.resources.requests`, as far as there are pod-level requests of the resource."""
    resources = pod.spec.resources
    if resources is None or not resources.requests:
        return {}
    return {n: nano(q) for n, q in resources.requests.items() if _has_pod_level(n)}


def _has_pod_level(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith(_HUGE_PAGES)


def _resize_is_infeasible(pod: Pod) -> bool:
    for condition in pod.status.conditions or ():
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


# ---- amounts ---------------------------------------------------------------------------------


def _requests(resources: ResourceRequirements | None) -> ResourceList | None:
    return None if resources is None else resources.requests


def _read(resources: ResourceList | None) -> _Nano:
    return {name: nano(quantity) for name, quantity in (resources or {}).items()}


def _add(total: _Nano, more: _Nano) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(most: _Nano, other: _Nano) -> None:
    for name, amount in other.items():
        if name not in most or amount > most[name]:
            most[name] = amount


def _rounded(amounts: _Nano) -> dict[str, int]:
    return {
        name: milli_units(amount) if name == CPU else units(amount)
        for name, amount in amounts.items()
        if is_counted(name)
    }


def _located(pod: Pod, cause: ValueError) -> UnreadablePod:
    """Finds the first field that is no quantity."""
    for path, resources in _resource_lists(pod):
        for name, quantity in (resources or {}).items():
            try:
                nano(quantity)
            except ValueError as reason:
                return UnreadablePod(pod, f"{path}.{name}", str(reason))
    return UnreadablePod(pod, "resources", str(cause))


def _resource_lists(pod: Pod) -> Iterator[tuple[str, ResourceList | None]]:
    spec, status = pod.spec, pod.status
    for kind, containers in (
        ("containers", spec.containers),
        ("initContainers", spec.init_containers),
    ):
        for i, container in enumerate(containers or ()):
            yield f"spec.{kind}[{i}].resources.requests", _asked(container, None)
    yield "spec.overhead", spec.overhead
    yield "spec.resources.requests", _requests(spec.resources)
    for kind, statuses in (
        ("containerStatuses", status.container_statuses),
        ("initContainerStatuses", status.init_container_statuses),
    ):
        for i, of in enumerate(statuses or ()):
            yield f"status.{kind}[{i}].allocatedResources", of.allocated_resources
            yield f"status.{kind}[{i}].resources.requests", _requests(of.resources)
    yield "status.allocatedResources", status.allocated_resources
    yield "status.resources.requests", _requests(status.resources)
