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

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar, cast

import msgspec

from engine.memo import Memo
from engine.objects import (
    Container,
    ContainerPort,
    ContainerStatus,
    Pod,
    Quantity,
    ResourceList,
    ResourceRequirements,
)
from engine.pods.selectors import is_label_key
from engine.text.quantity import Amount, parse, resource_amount

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"

DEFAULT_CPU_MILLI: Final = 100
DEFAULT_MEMORY_BYTES: Final = 200 << 20
_DEFAULTS: Final = {CPU: parse("100m"), MEMORY: parse(DEFAULT_MEMORY_BYTES)}
BUILT_IN: Final = frozenset((CPU, MEMORY, EPHEMERAL_STORAGE))
_HUGE_PAGES: Final = "hugepages-"
_NATIVE: Final = "kubernetes.io/"
_NAMES_REMEMBERED: Final = 1 << 10
_READINGS_BYTES: Final = 8 << 20
_BYTES_OF_ONE: Final = 512
_BYTES_A_CHARACTER: Final = 10
"""Of the `repr` of a spec: it and its readings take some 300 bytes for each short resource."""

PODS_THERE: Final = " pods"
NONZERO_CPU: Final = " nonzero cpu"
NONZERO_MEMORY: Final = " nonzero memory"
"""Sums of a node beside those of resources, in whose names there is no space.

The last two are for scoring: requests, with defaults for containers that ask for none.
"""
Amounts = Mapping[str, int]
"""Resource -> amount: milli-cores for cpu, bytes or counts otherwise. Never written to."""

_Exact = dict[str, Amount]
_ListOf = Callable[[Container, "ContainerStatus | None"], "ResourceList | None"]
_Items = tuple[tuple[str, Quantity], ...]


class UnreadablePod(ValueError):  # noqa: N818 - what it is, not that it is an error
    """A quantity of the pod cannot be read. The API server lets no such pod in; files may."""


class Readings:
    """What a pod asks for, worked out; one for all pods that ask for the same."""

    __slots__ = ("filter_requests", "requests", "requests_key", "score_requests", "sums")

    def __init__(
        self, requests: Amounts, nonzero: Amounts, filtered: Amounts, scored: Amounts
    ) -> None:
        if min(filtered.values(), default=0) < 0:
            filtered = {name: max(amount, 0) for name, amount in filtered.items()}
        self.requests = requests
        self.filter_requests = filtered
        self.score_requests = scored
        self.requests_key = tuple(sorted(filtered.items())), tuple(sorted(scored.items()))
        cpu, memory = nonzero.get(CPU, 0), nonzero.get(MEMORY, 0)
        self.sums = {PODS_THERE: 1, NONZERO_CPU: cpu, NONZERO_MEMORY: memory, **requests}
        """What it adds to each sum of its node."""


_T = TypeVar("_T")


def _chain(read: Callable[[PodInfo], _T]) -> Callable[[PodInfo], _T]:
    """What is a chain of attributes and no more, without a call of Python."""
    return cast("Callable[[PodInfo], _T]", attrgetter(".".join(read.__code__.co_names)))


class PodInfo(msgspec.Struct, eq=False, gc=False):
    """A pod and what was worked out of it; equal only to itself, so it can be a key.

    `make_pod_info` makes it. Of a pod on a node this is all there is, so it is small.
    """

    pod: Pod
    readings: Readings
    assumed_at: float = math.nan
    """When it got its node, in seconds since the epoch, while the server does not know yet."""
    memo: dict[str, object] | None = None
    """See `keys`."""

    def __repr__(self) -> str:
        return f"PodInfo({self.key})"

    @property
    def keys(self) -> dict[str, object]:
        """What plugins worked out of this pod, by plugin name; a memo, not state."""
        if self.memo is None:
            self.memo = {}
        return self.memo

    @property
    @_chain
    def name(self) -> str:
        """metadata.name."""
        return self.pod.metadata.name

    @property
    @_chain
    def namespace(self) -> str:
        """metadata.namespace."""
        return self.pod.metadata.namespace

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"

    @property
    @_chain
    def uid(self) -> str:
        """metadata.uid."""
        return self.pod.metadata.uid

    @property
    def priority(self) -> int:
        """spec.priority."""
        return self.pod.spec.priority or 0

    @property
    @_chain
    def requests(self) -> Amounts:
        """What the pod holds on its node."""
        return self.readings.requests

    @property
    @_chain
    def filter_requests(self) -> Amounts:
        """What a node must have free for it."""
        return self.readings.filter_requests

    @property
    @_chain
    def score_requests(self) -> Amounts:
        """What NodeResourcesFit scores with."""
        return self.readings.score_requests

    @property
    @_chain
    def requests_key(self) -> Hashable:
        """Equal for pods whose filter and score requests are equal."""
        return self.readings.requests_key

    @property
    def terminating(self) -> bool:
        """True once deletion was asked for."""
        return self.pod.metadata.deletion_timestamp is not None


def make_pod_info(pod: Pod) -> PodInfo:
    """Works out the pod's effective requests. About 3 microseconds if they were seen before.

    Raises:
        UnreadablePod: a quantity is none; the message names its field.
    """
    try:
        return PodInfo(pod, _settled(_spec_of(pod)) if is_settled(pod) else _resizing(pod))
    except ValueError as cause:
        raise _located(pod, cause) from cause


@lru_cache(maxsize=_NAMES_REMEMBERED)
def is_scalar_resource(name: str) -> bool:
    """True for what is counted besides cpu, memory and ephemeral-storage.

    Extended resources, huge pages, attachable volumes and anything of kubernetes.io.
    """
    return (
        _NATIVE in name
        or name.startswith((_HUGE_PAGES, "attachable-volumes-"))
        or is_extended_resource(name)
    )


def is_extended_resource(name: str) -> bool:
    """True for a qualified name outside of kubernetes.io, such as `example.com/gpu`."""
    if "/" not in name or _NATIVE in name or name.startswith("requests."):
        return False
    return is_label_key(f"requests.{name}")


ANY_ADDRESS: Final = "0.0.0.0"
HostPort = tuple[str, str, int]
"""Address, protocol and number of a port of a node."""


def host_ports(pod: Pod) -> frozenset[HostPort]:
    """The ports of its node that the pod takes: its containers' and sidecars'.

    Source: kubernetes pkg/scheduler/util/utils.go, GetHostPorts.
    """
    spec = pod.spec
    found: set[HostPort] = set()
    for container in spec.containers or ():
        if container.ports:
            found.update(map(_host_port, container.ports))
    for container in spec.init_containers or ():
        if container.ports and container.restart_policy == "Always":
            found.update(map(_host_port, container.ports))
    return frozenset(port for port in found if port[2] > 0) if found else _NO_PORTS


_NO_PORTS: Final[frozenset[HostPort]] = frozenset()


def _host_port(port: ContainerPort) -> HostPort:
    return port.host_ip or ANY_ADDRESS, port.protocol or "TCP", port.host_port


def taken(wanted: HostPort, used: Iterable[HostPort]) -> bool:
    """Whether one of the ports in use is in the way of the one wanted."""
    address, *port = wanted
    return any(
        port == theirs and (address == there or ANY_ADDRESS in (address, there))
        for there, *theirs in used
    )


def is_counted(name: str) -> bool:
    """True for a resource that nodes are filtered and scored by; others are not looked at."""
    return name in BUILT_IN or is_scalar_resource(name)


# ---- what a pod comes to ---------------------------------------------------------------------


class _Spec(NamedTuple):
    """All that counts of a spec (or of a status, read like one), hashable."""

    containers: tuple[_Items, ...]
    init_containers: tuple[tuple[bool, _Items], ...] = ()
    """Whether it is a sidecar, and its requests."""
    overhead: _Items = ()
    pod_level: _Items = ()


_worked_out: Final[Memo[_Spec, Readings]] = Memo(_READINGS_BYTES)


def _settled(spec: _Spec) -> Readings:
    """All readings of a pod without a resize in flight; equal specs share them."""
    known = _worked_out.get(spec)
    if known is None:
        known = _work_out(spec)
        _worked_out.put(spec, known, _BYTES_OF_ONE + _BYTES_A_CHARACTER * len(repr(spec)))
    return known


def _work_out(spec: _Spec) -> Readings:
    if len(spec.containers) == 1 and spec[1:] == ((), (), ()):
        requests = {
            name: resource_amount(name, quantity)
            for name, quantity in spec.containers[0]
            if is_counted(name)
        }
        scored = {CPU: DEFAULT_CPU_MILLI, MEMORY: DEFAULT_MEMORY_BYTES, **requests}
        return Readings(requests, scored, requests, scored)
    held = _whole(spec, {})
    requests = _rounded(held)
    nonzero = _rounded(_whole(spec, _missing(_pod_level(spec), held)))
    return Readings(requests, nonzero, requests, _scored(spec))


def _whole(spec: _Spec, missing: Mapping[str, Amount]) -> _Exact:
    """What the spec comes to, with what stands at the pod instead of its containers."""
    total = _sum(spec, missing)
    total.update(_pod_level(spec))
    _add(total, _read(spec.overhead))
    return total


def _resizing(pod: Pod) -> Readings:
    """All readings of a pod that may hold something else than its spec asks for."""
    spec = _spec_of(pod)
    held = _held(pod, spec, {})
    nonzero = _held(pod, spec, _missing(_pod_level(spec), held))
    filtered = _rounded(_whole(spec, {}))
    return Readings(_rounded(held), _rounded(nonzero), filtered, _scored(spec))


def _held(pod: Pod, spec: _Spec, missing: Mapping[str, Amount]) -> _Exact:
    """The most of what the pod asks for, was allocated and has; see `requests`."""
    status, infeasible = pod.status, resize_is_infeasible(pod)
    actual = _requests(status.resources)
    held: _Exact = {} if infeasible else _sum(spec, missing)
    if status.allocated_resources is not None and actual is not None:
        _raise_to(held, _read(_items(status.allocated_resources)))
        _raise_to(held, _read(_items(actual)))
    else:
        for read in (_allocated, _actual):
            _raise_to(held, _sum(_spec_of(pod, partial(read, infeasible=infeasible)), missing))
    effective = _pod_level(spec)
    if effective and status.resources is not None:
        effective = {} if infeasible else effective
        _raise_to(effective, _read(_items(actual)))
        _raise_to(effective, _read(_items(status.allocated_resources)))
    held.update({name: amount for name, amount in effective.items() if _has_pod_level(name)})
    _add(held, _read(spec.overhead))
    return held


def _missing(pod_level: _Exact, held: _Exact) -> Mapping[str, Amount]:
    """What a container that does not name it counts with on its node, for scoring."""
    if not pod_level:
        return _DEFAULTS
    return {name: amount for name, amount in _DEFAULTS.items() if name not in held}


def _scored(spec: _Spec) -> dict[str, int]:
    scored = _sum(spec, _DEFAULTS)
    _add(scored, _read(spec.overhead))
    return _rounded(scored)


def _sum(spec: _Spec, missing: Mapping[str, Amount]) -> _Exact:
    """What the containers need at their peak: all that run together, or while one initialises.

    `missing` is taken for what a container does not name.
    """
    total: _Exact = {}
    for items in spec.containers:
        _add(total, {**missing, **_read(items)})
    sidecars: _Exact = {}
    peak: _Exact = {}
    for is_sidecar, items in spec.init_containers:
        needed = {**missing, **_read(items)}
        if is_sidecar:
            _add(total, needed)
            _add(sidecars, needed)
            needed = {name: sidecars[name] for name in needed}
        else:
            _add(needed, {name: sidecars[name] for name in needed if name in sidecars})
        # What a container does not name is at its peak since the last sidecar that did.
        _raise_to(peak, needed)
    _raise_to(total, peak)
    return total


# ---- what to read ----------------------------------------------------------------------------


def is_settled(pod: Pod) -> bool:
    """True if the pod holds what its spec asks for: no resize in flight."""
    status = pod.status
    if status.conditions and resize_is_infeasible(pod):
        return False
    if status.allocated_resources or status.resources is not None:
        return False
    if not (status.container_statuses or status.init_container_statuses):
        return True
    containers = (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
    asked_of: dict[str, ResourceList] = {c.name: _requests(c.resources) or {} for c in containers}
    for name, of in _statuses(pod).items():
        asked = asked_of.get(name)
        if asked is None:
            continue
        if of.allocated_resources is not None and of.allocated_resources != asked:
            return False
        given = _requests(of.resources)
        if given is not None and given != asked:
            return False
    return True


def _spec_of(pod: Pod, list_of: _ListOf | None = None) -> _Spec:
    """The requests of the spec, or those that `list_of` finds for each container."""
    spec = pod.spec
    statuses: dict[str, ContainerStatus] = {} if list_of is None else _statuses(pod)
    read = list_of or _asked
    containers = tuple([_items(read(c, statuses.get(c.name))) for c in spec.containers or ()])
    if not spec.init_containers and not spec.overhead and spec.resources is None:
        return _Spec(containers)
    return _Spec(
        containers,
        tuple(
            [
                (c.restart_policy == "Always", _items(read(c, statuses.get(c.name))))
                for c in spec.init_containers or ()
            ]
        ),
        _items(spec.overhead),
        _items(_requests(spec.resources)),
    )


def _statuses(pod: Pod) -> dict[str, ContainerStatus]:
    """By container name; the first of a name counts, regular containers before others."""
    found: dict[str, ContainerStatus] = {}
    for statuses in (pod.status.container_statuses, pod.status.init_container_statuses):
        for status in statuses or ():
            found.setdefault(status.name, status)
    return found


def _asked(container: Container, status: ContainerStatus | None) -> ResourceList | None:  # noqa: ARG001 - one signature for three
    return _requests(container.resources)


def _allocated(
    container: Container, status: ContainerStatus | None, *, infeasible: bool
) -> ResourceList | None:
    if status is not None and status.allocated_resources is not None:
        return status.allocated_resources
    return None if infeasible else _requests(container.resources)


def _actual(
    container: Container, status: ContainerStatus | None, *, infeasible: bool
) -> ResourceList | None:
    requests = None if status is None else _requests(status.resources)
    return _allocated(container, status, infeasible=infeasible) if requests is None else requests


def _pod_level(spec: _Spec) -> _Exact:
    """Requests of the whole pod, of the resources that can have them."""
    return {n: amount for n, amount in _read(spec.pod_level).items() if _has_pod_level(n)}


def _has_pod_level(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith(_HUGE_PAGES)


def resize_is_infeasible(pod: Pod) -> bool:
    """Whether its node cannot give what the spec asks for now: only what its status says counts."""
    for condition in pod.status.conditions or ():
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


# ---- amounts ---------------------------------------------------------------------------------


def _requests(resources: ResourceRequirements | None) -> ResourceList | None:
    return None if resources is None else resources.requests


def _items(resources: ResourceList | None) -> _Items:
    return tuple(resources.items()) if resources else ()


def _read(items: _Items) -> _Exact:
    return {name: parse(quantity) for name, quantity in items}


def _fold(
    how: Callable[[Amount, Amount], Amount], into: _Exact, more: Mapping[str, Amount]
) -> None:
    for name, amount in more.items():
        known = into.get(name)
        into[name] = amount if known is None else how(known, amount)


_add = partial(_fold, Amount.plus)
_raise_to = partial(_fold, Amount.most)


def _rounded(amounts: _Exact) -> dict[str, int]:
    return {
        name: amount.milli_units() if name == CPU else amount.units()
        for name, amount in amounts.items()
        if is_counted(name)
    }


def _located(pod: Pod, cause: ValueError) -> UnreadablePod:
    """Finds the first field that is no quantity."""
    own = f"pod {pod.metadata.namespace}/{pod.metadata.name}"
    for path, resources in _resource_lists(msgspec.to_builtins(pod)):
        for name, quantity in resources.items():
            try:
                parse(quantity)
            except ValueError as reason:
                return UnreadablePod(f"{own}: {path}.{name}: {reason}")
    return UnreadablePod(f"{own}: resources: {cause}")


def _resource_lists(tree: Any, path: str = "") -> Iterator[tuple[str, ResourceList]]:  # noqa: ANN401 - any JSON
    """All lists of quantities that are read of a pod, with their paths."""
    each = tree.items() if isinstance(tree, dict) else ()
    steps = [(f"{path}.{key}" if path else key, key, value) for key, value in each]
    if isinstance(tree, list):
        steps = [(f"{path}[{i}]", "", value) for i, value in enumerate(tree)]
    for where, key, value in steps:
        if key in ("requests", "overhead", "allocatedResources") and isinstance(value, dict):
            yield where, value
        else:
            yield from _resource_lists(value, where)
