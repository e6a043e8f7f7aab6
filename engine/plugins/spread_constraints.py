"""Spread constraints of a pod: its own, or the profile's with the selectors of what owns the pod.

Reads services and controllers; counts nothing.

Source: kubernetes plugins/podtopologyspread/common.go and plugins/helper/spread.go
(DefaultSelector).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from engine.framework.snapshot import BoolColumn, NodeColumns, Rows, Snapshot, label_column
from engine.objects import OwnerReference, Toleration, TopologySpreadConstraint
from engine.plugins.node_selector import MOST_REQUIREMENTS, eligibility_key, matching, required
from engine.plugins.taint_toleration import all_tolerated, by_taints
from engine.pods.podinfo import PodInfo
from engine.pods.selectors import EVERYTHING, Selector, SelectorError, parse_selector, select_labels

HARD: Final = "DoNotSchedule"
SOFT: Final = "ScheduleAnyway"
KINDS: Final = ("Service", "ReplicationController", "ReplicaSet", "StatefulSet")
_OWNERS: Final = {
    ("v1", "ReplicationController"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
}
_HONOR: Final = "Honor"

Tolerance = tuple[tuple[str, str, str, str], ...]
"""Tolerations: key, operator, value and effect of each."""


class Constraint(NamedTuple):
    """One constraint, parsed."""

    max_skew: int
    topology_key: str
    selector: Selector
    min_domains: int
    honors_affinity: bool
    honors_taints: bool


class Eligible(NamedTuple):
    """The nodes that make up the domains of a constraint; see `framework.snapshot.Eligibility`."""

    keys: tuple[str, ...]
    affinity: bytes
    tolerance: Tolerance | None

    def mask(self, nodes: NodeColumns, rows: Rows) -> BoolColumn:
        """Nodes with all labels that match the pod's affinity and whose taints it tolerates."""
        mask = matching(required(self.affinity), nodes, rows)
        for key in self.keys:
            mask &= nodes.text(*label_column(key))[rows] >= 0
        if self.tolerance is not None:
            tolerations = [Toleration(*one) for one in self.tolerance]
            mask &= by_taints(lambda taints: all_tolerated(tolerations, taints), nodes, rows) > 0
        return mask


class Spread(NamedTuple):
    """All constraints of a pod, and which nodes count by its affinity and tolerations.

    Of constraints that cannot be parsed there is only the error.
    """

    hard: tuple[Constraint, ...] = ()
    soft: tuple[Constraint, ...] = ()
    every_key: bool = True
    """Nodes without a label of a soft constraint get no score."""
    affinity: bytes = b""
    tolerance: Tolerance = ()
    hard_error: str = ""
    soft_error: str = ""

    def eligible(self, constraint: Constraint, keys: tuple[str, ...]) -> Eligible:
        """The nodes that count for a constraint, if they have these labels."""
        return Eligible(
            keys,
            self.affinity if constraint.honors_affinity else b"",
            self.tolerance if constraint.honors_taints else None,
        )


_NO_SPREAD: Final = Spread()


def spread_of(
    pod: PodInfo,
    snapshot: Snapshot,
    defaults: Sequence[TopologySpreadConstraint],
    *,
    of_system: bool,
) -> Spread:
    """All constraints of a pod, the profile's where it has none. A few microseconds without any."""
    own = pod.pod.spec.topology_spread_constraints
    selector = None
    if not own:
        selector = default_selector(pod, snapshot) if defaults else EVERYTHING
        if selector.empty:
            return _NO_SPREAD
    hard, hard_error = _all_parsed(own or defaults, HARD, pod, selector)
    soft, soft_error = _all_parsed(own or defaults, SOFT, pod, selector)
    tolerations = pod.pod.spec.tolerations or ()
    tolerance = tuple([(t.key, t.operator, t.value, t.effect) for t in tolerations])
    every_key = bool(own) or not of_system
    affinity = eligibility_key(pod)
    return Spread(hard, soft, every_key, affinity, tolerance, hard_error, soft_error)


def _all_parsed(
    asked: Sequence[TopologySpreadConstraint], what: str, pod: PodInfo, given: Selector | None
) -> tuple[tuple[Constraint, ...], str]:
    """The constraints with that `whenUnsatisfiable`, or why there are none."""
    try:
        return tuple([_parsed(c, pod, given) for c in asked if c.when_unsatisfiable == what]), ""
    except SelectorError as error:
        return (), str(error)


def _parsed(
    constraint: TopologySpreadConstraint, pod: PodInfo, given: Selector | None
) -> Constraint:
    selector = given
    if selector is None:
        selector = parse_selector(constraint.label_selector)
        labels = pod.pod.metadata.labels or {}
        own = {key: labels[key] for key in constraint.match_label_keys or () if key in labels}
        if own:
            selector = selector.both(select_labels(own))
    return Constraint(
        constraint.max_skew,
        constraint.topology_key,
        selector,
        1 if constraint.min_domains is None else constraint.min_domains,
        (constraint.node_affinity_policy or _HONOR) == _HONOR,
        constraint.node_taints_policy == _HONOR,
    )


def default_selector(pod: PodInfo, snapshot: Snapshot) -> Selector:
    """What the services that select the pod and its controller select, together."""
    labels: dict[str, str] = {}
    for service in _services(pod, snapshot):
        labels.update(service.spec.selector)
    owner = next((one for one in pod.pod.metadata.owner_references or () if one.controller), None)
    controller = None if owner is None else _controller(pod, owner, snapshot)
    if controller is None:
        return select_labels(labels)
    selector = controller.spec.selector
    if selector is None or isinstance(selector, Mapping):
        return select_labels({**labels, **(selector or {})})
    each = selector.match_expressions or ()
    if sum(1 + len(one.values or ()) for one in each) > MOST_REQUIREMENTS:
        return select_labels(labels)  # read anew for each pod that it has
    try:
        return select_labels(labels).both(parse_selector(selector))
    except SelectorError:
        return select_labels(labels)


def services_key(service: Any) -> str:  # noqa: ANN401 - any object with namespace and selector
    """The index key of a service: its namespace, and the first label that it selects by."""
    selector = service.spec.selector
    if selector is None:
        return ""
    return f"{service.metadata.namespace}/{'='.join(min(selector.items(), default=()))}"


def _services(pod: PodInfo, snapshot: Snapshot) -> Iterator[Any]:
    """The services that select the pod."""
    groups = snapshot.objects_by("Service", "namespace and first label", services_key)
    if not groups:
        return
    labels = pod.pod.metadata.labels or {}
    for pair in ((), *labels.items()):
        for service in groups.get(f"{pod.namespace}/{'='.join(pair)}", {}).values():
            if all(labels.get(key) == value for key, value in service.spec.selector.items()):
                yield service


def _controller(pod: PodInfo, owner: OwnerReference, snapshot: Snapshot) -> Any:  # noqa: ANN401 - one of three kinds
    if (owner.api_version, owner.kind) not in _OWNERS:
        return None
    return snapshot.objects(owner.kind).get(f"{pod.namespace}/{owner.name}")


def stamp(snapshot: Snapshot) -> int:
    """Changes with any service or controller."""
    return snapshot.objects_version(*KINDS)


def self_matches(constraints: Sequence[Constraint], pod: PodInfo) -> tuple[bool, ...]:
    """Which constraints count the pod itself."""
    labels = pod.pod.metadata.labels or {}
    return tuple([constraint.selector.matches(labels) for constraint in constraints])
