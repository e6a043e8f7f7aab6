"""PodTopologySpread: pods of a kind evenly over the values of node labels.

The constraints are the pod's own, or the profile's with the selectors of what owns the pod. Counts
come by domain from `cache.domains`; a node's answer is a look-up of its domain.

Source: kubernetes plugins/podtopologyspread (common.go, filtering.go, scoring.go, plugin.go) and
plugins/helper/spread.go (DefaultSelector).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import compress
from math import floor, log
from operator import add
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.framework.events import Action, QueueingHint, Resource, Seen
from engine.framework.interface import (
    MAX_SCORE,
    SKIP_FILTER,
    SKIP_SCORE,
    Normalization,
    PluginArgs,
    Points,
    PreFilterResult,
    PreScoreResult,
    Scope,
    Scores,
    Verdicts,
)
from engine.framework.snapshot import BoolColumn, NodeColumns, Rows, Snapshot, Tally, label_column
from engine.framework.status import Code, Status, unresolvable, unschedulable
from engine.objects import Node, OwnerReference, Pod, Toleration, TopologySpreadConstraint
from engine.plugins.groups import Groups, Part, no_pods
from engine.plugins.hints import on, placed, queue_if
from engine.plugins.node_selector import MOST_REQUIREMENTS, eligibility_key, matching, required
from engine.plugins.taint_toleration import all_tolerated, by_taints
from engine.pods.podinfo import PodInfo
from engine.pods.podterms import HOSTNAME, ZONE
from engine.pods.selectors import (
    EVERYTHING,
    NOTHING,
    Selector,
    SelectorError,
    is_label_key,
    parse_selector,
    select_labels,
)

NAME: Final = "PodTopologySpread"
HARD: Final = "DoNotSchedule"
SOFT: Final = "ScheduleAnyway"
KINDS: Final = ("Service", "ReplicationController", "ReplicaSet", "StatefulSet")
_OWNERS: Final = {
    ("v1", "ReplicationController"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
}
_HONOR: Final = "Honor"
SKEWED: Final = unschedulable("node(s) didn't match pod topology spread constraints")
NO_LABEL: Final = unresolvable(f"{SKEWED.reasons[0]} (missing required label)")
SYSTEM: Final = (
    TopologySpreadConstraint(3, HOSTNAME, SOFT),
    TopologySpreadConstraint(5, ZONE, SOFT),
)
_HALF: Final = 0.5
"""Scores are rounded half away from zero; none is a half, as counts are times a logarithm."""
_NO_DOMAIN: Final = (1 << 31) - 1

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


class PodTopologySpreadArgs(PluginArgs, frozen=True):
    """`pluginConfig` of PodTopologySpread."""

    default_constraints: list[TopologySpreadConstraint] | None = None
    defaulting_type: str = ""

    def check(self) -> None:
        """Checks it.

        Raises:
            ValueError: a field has no value that it may have; the message names it.
        """
        if self.defaulting_type not in ("", "System", "List"):
            raise ValueError(f"defaultingType: {self.defaulting_type!r} is not System or List")
        if self.default_constraints and self.defaulting_type != "List":
            raise ValueError("defaultConstraints: only with defaultingType List")
        seen = set()
        for i, one in enumerate(self.default_constraints or ()):
            path = f"defaultConstraints[{i}]"
            if one.max_skew <= 0:
                raise ValueError(f"{path}.maxSkew: must be above 0")
            if not is_label_key(one.topology_key):
                raise ValueError(f"{path}.topologyKey: {one.topology_key!r} is not a label key")
            if one.when_unsatisfiable not in (HARD, SOFT):
                raise ValueError(f"{path}.whenUnsatisfiable: must be {HARD} or {SOFT}")
            if one.label_selector is not None:
                raise ValueError(f"{path}.labelSelector: is worked out for each pod")
            if (one.topology_key, one.when_unsatisfiable) in seen:
                raise ValueError(f"{path}: repeats another one's topologyKey")
            seen.add((one.topology_key, one.when_unsatisfiable))


class HardConstraints(Groups):
    """How a class of pods may be spread: its hard constraints, each with counts by domain.

    `with_pod` gives another one that differs by a pod; neither is written to by the other.
    """

    def __init__(
        self, spread: Spread, pod: PodInfo, otherwise: Sequence[dict[int, int]] | None = None
    ) -> None:
        """`otherwise` are pods counted besides, by domain, for each constraint."""
        super().__init__()
        self._spread = spread
        self._pod = pod
        self._keys = tuple(sorted({c.topology_key for c in spread.hard}))
        self._own = self_matches(spread.hard, pod)
        self._otherwise = otherwise or [{} for _ in spread.hard]

    def with_pod(self, pod: PodInfo, snapshot: Snapshot, row: int, sign: int) -> HardConstraints:
        """The same with a pod more (sign 1) or less (sign -1) on a row.

        As in kube-scheduler, a pod that is being deleted, or one that an empty selector finds, was
        not counted but is taken off.
        """
        parts = self.parts(snapshot)
        if pod.namespace != self._pod.namespace or any(p.domains.domain[row] < 0 for p in parts):
            return self
        labels = pod.pod.metadata.labels or {}
        otherwise = [dict(one) for one in self._otherwise]
        for constraint, part, counts in zip(self._spread.hard, parts, otherwise, strict=True):
            domain = int(part.domains.group[row])
            if domain >= 0 and constraint.selector.matches(labels):
                counts[domain] = counts.get(domain, 0) + sign
        return HardConstraints(self._spread, self._pod, otherwise)

    def concerns(self, pod: PodInfo, other: PodInfo, snapshot: Snapshot) -> bool:
        """Whether it matters where the other pod is."""
        labels = other.pod.metadata.labels or {}
        return other.namespace == self._pod.namespace and any(
            constraint.selector.matches(labels) for constraint in self._spread.hard
        )

    def _recount(self, snapshot: Snapshot) -> Sequence[Part]:
        """One for each constraint."""
        each = zip(self._spread.hard, self._otherwise, strict=True)
        return [self._part(c, snapshot, counts) for c, counts in each]

    def passes(self) -> Sequence[bool]:
        """See `GroupedFilter.passes`."""
        passes = [True] * len(self)
        for top, domains, counts in zip(self._most(), *self.by_part(), strict=True):
            each = zip(passes, domains, counts, strict=True)
            passes = [so_far and domain >= 0 and n <= top for so_far, domain, n in each]
        return passes

    def _most(self) -> list[int]:
        """For each constraint, the most that may be in a domain before the pod comes."""
        found = []
        for constraint, part, own in zip(self._spread.hard, self._parts, self._own, strict=True):
            least = 0
            if len(part.domains.sizes) >= constraint.min_domains:
                fewest = part.minimum()
                least = _NO_DOMAIN if fewest is None else fewest
            found.append(constraint.max_skew + least - own)
        return found

    def filter(self, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
        """See `Points.filter`; by the first constraint that says no."""
        against: list[tuple[Status, BoolColumn]] = []
        for part, most in zip(self.parts(snapshot), self._most(), strict=True):
            domains, counts = part.of(snapshot, rows)
            against += (NO_LABEL, domains < 0), (SKEWED, counts > most)
        return Verdicts.by_first(against)

    def _part(self, constraint: Constraint, snapshot: Snapshot, otherwise: dict[int, int]) -> Part:
        eligible = self._spread.eligible(constraint, self._keys)
        tally = pods_of(constraint, self._pod.namespace, snapshot)
        table = snapshot.topology.table(tally, constraint.topology_key, eligible)
        return Part(((1, table),), otherwise=otherwise)


def pods_of(constraint: Constraint, namespace: str, snapshot: Snapshot) -> Tally:
    """The pods that a constraint counts; an empty selector counts none."""
    selector = NOTHING if constraint.selector.empty else constraint.selector
    return snapshot.topology.pod_set(frozenset((namespace,)), selector, terminating=False)


class SoftConstraints(Groups):
    """How a class of pods is best spread: its soft constraints, each with counts."""

    def __init__(self, spread: Spread, pod: PodInfo) -> None:
        super().__init__()
        self._spread = spread
        self._namespace = pod.namespace
        keys = {c.topology_key for c in spread.soft} if spread.every_key else ()
        self._keys = tuple(sorted(keys))
        self._measures = [(one.topology_key == HOSTNAME, one.max_skew - 1) for one in spread.soft]
        """Whether each node is a domain of its own, and what each domain gets besides its pods."""
        self._ignored: NDArray[np.bool_] = np.empty(0, np.bool_)

    def _recount(self, snapshot: Snapshot) -> Sequence[Part]:
        """One for each constraint."""
        return [self._part(c, snapshot) for c in self._spread.soft]

    def scores(self, feasible: Sequence[int]) -> Sequence[float]:
        """See `GroupedScore.scores`."""
        every_domain, every_count = self.by_part()
        counted = feasible
        for domains in every_domain if self._spread.every_key else ():
            counted = [n if domain >= 0 else 0 for n, domain in zip(counted, domains, strict=True)]
        every, totals = all(counted), None
        for number, (by_host, skew) in enumerate(self._measures):
            domains = every_domain[number]
            if by_host:
                size = sum(counted)
            else:  # a node without the label is in the domain of the empty value
                there = set(domains if every else compress(domains, counted))
                size = len(there) - (-1 in there and 0 in there)
            weight = log(size + 2)
            shares = [n * weight + skew for n in every_count[number]]
            if -1 in domains:
                shares = [s if d >= 0 else 0.0 for s, d in zip(shares, domains, strict=True)]
            totals = shares if totals is None else [*map(add, totals, shares)]
        raw = [floor(total + _HALF) for total in totals or ()]
        among = raw if every else [*compress(raw, counted)] or [0]
        highest = max(among)
        if not highest:
            return [MAX_SCORE if n else 0 for n in counted]
        most = MAX_SCORE * (highest + min(among))
        scores = [(most - MAX_SCORE * one) // highest for one in raw]
        return scores if every else [s if n else 0 for s, n in zip(scores, counted, strict=True)]

    def score(self, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        """See `Points.score`; the rows are the feasible ones.

        How many pods of the kind are near, each label in its own measure: less is better.
        """
        each = [part.of(snapshot, rows) for part in self.parts(snapshot)]
        lacking: BoolColumn = np.logical_or.reduce([domains < 0 for domains, _ in each])
        self._ignored = ignored = lacking & self._spread.every_key
        counted, total = ~ignored, np.zeros(len(each[0][0]))
        for (domains, counts), (by_host, skew) in zip(each, self._measures, strict=True):
            if by_host:
                size = int(np.count_nonzero(counted))
            else:
                # A node without the label is in the domain of the empty value, but not scored.
                size = len(set(np.maximum(domains[counted], 0).tolist()))
            total += np.where(domains >= 0, counts * log(size + 2) + skew, 0.0)
        total[ignored] = 0.0
        return np.floor(total + _HALF)

    def normalize(self, scores: Scores) -> Scores:
        """See `Points.normalize`: the fewest near becomes about 100, nodes without a label 0."""
        kept = scores[~self._ignored]
        highest = float(kept.max(initial=0.0))
        if highest == 0.0:
            return np.where(self._ignored, 0.0, float(MAX_SCORE))
        share = np.floor(MAX_SCORE * (highest + float(kept.min()) - scores) / highest)
        return np.where(self._ignored, 0.0, share)

    def _part(self, constraint: Constraint, snapshot: Snapshot) -> Part:
        key, tally = constraint.topology_key, pods_of(constraint, self._namespace, snapshot)
        if key == HOSTNAME:
            return Part(((1, no_pods(snapshot, key)),), by_row=tally)
        eligible, fold = self._spread.eligible(constraint, self._keys), not self._spread.every_key
        table = snapshot.topology.table(tally, key, eligible, fold=fold)
        return Part(((1, table),), apart=True)  # their number is a part of the score


class PodTopologySpread:
    """Filters by hard constraints, scores by soft ones."""

    name: Final = NAME

    def __init__(self, args: PodTopologySpreadArgs | None = None) -> None:
        """Reads the profile's default constraints.

        Raises:
            ValueError: one of them is not valid.
        """
        args = args or PodTopologySpreadArgs()
        args.check()
        self._of_system = args.defaulting_type != "List"
        self._defaults = SYSTEM if self._of_system else tuple(args.default_constraints or ())

    def points(self) -> Points:
        """Pods of the kind come, go or change, and so do nodes and the pod itself."""
        assigned = Action.ADD | Action.DELETE | Action.UPDATE_POD_LABEL
        target = Action.UPDATE_POD_LABEL | Action.UPDATE_POD_TOLERATION
        node = Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
        return Points(
            events=(
                on(Resource.ASSIGNED_POD, assigned, self._after_assigned),
                on(Resource.TARGET_POD, target, self._after_target),
                on(Resource.NODE, node, self._after_node),
            ),
            class_key=self._class_key,
            wide_key=True,
            key_version=stamp if self._defaults else None,
            pre_filter=self._pre_filter,
            filter=HardConstraints.filter,
            with_pod=HardConstraints.with_pod,
            concerns=HardConstraints.concerns,
            pre_score=self._pre_score,
            score=SoftConstraints.score,
            normalize=SoftConstraints.normalize,
        )

    def _of(self, pod: PodInfo, snapshot: Snapshot) -> Spread:
        """The pod's constraints, remembered while services and controllers stay."""
        moves = stamp(snapshot) if self._defaults else 0
        known: Any = pod.keys.get(NAME)
        if known is None or known[0] != moves:
            found = spread_of(pod, snapshot, self._defaults, of_system=self._of_system)
            known = pod.keys[NAME] = moves, found
        spread: Spread = known[1]
        return spread

    def _class_key(self, pod: PodInfo, snapshot: Snapshot) -> Hashable:
        """Constraints, which of them count the pod itself, and what says which nodes count."""
        spread = self._of(pod, snapshot)
        if not (spread.hard or spread.soft or spread.hard_error or spread.soft_error):
            return None
        return spread, pod.namespace, self_matches(spread.hard, pod)

    def _pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
        """Skip without hard constraints."""
        spread = self._of(pod, snapshot)
        if spread.hard_error:
            return PreFilterResult(Status(Code.ERROR, (spread.hard_error,)))
        if not spread.hard:
            return SKIP_FILTER
        skews = HardConstraints(spread, pod)
        return PreFilterResult(state=skews, scope=Scope.ALL, grouped=skews)

    def _pre_score(self, pod: PodInfo, snapshot: Snapshot) -> PreScoreResult:
        """Skip without soft constraints."""
        spread = self._of(pod, snapshot)
        if spread.soft_error:
            return PreScoreResult(Status(Code.ERROR, (spread.soft_error,)))
        if not spread.soft:
            return SKIP_SCORE
        evenness = SoftConstraints(spread, pod)
        return PreScoreResult(
            state=evenness, scope=Scope.ALL, normalization=Normalization.CUSTOM, grouped=evenness
        )

    # ---- hints -------------------------------------------------------------------------------

    def _after_assigned(
        self, pod: PodInfo, before: Seen, after: Seen, snapshot: Snapshot
    ) -> QueueingHint:
        seen = [one for one in (before, after) if isinstance(one, Pod)]
        if not all(placed(one) and one.metadata.namespace == pod.namespace for one in seen):
            return QueueingHint.SKIP
        spread = self._of(pod, snapshot)
        if spread.hard_error or not seen:
            return QueueingHint.QUEUE
        return queue_if(_counted(spread, before) != _counted(spread, after))

    def _after_target(
        self, pod: PodInfo, before: Seen, after: Seen, snapshot: Snapshot
    ) -> QueueingHint:
        spread = self._of(pod, snapshot)
        if spread.hard_error or not (isinstance(before, Pod) and isinstance(after, Pod)):
            return QueueingHint.QUEUE
        tolerates_otherwise = (before.spec.tolerations or []) != (after.spec.tolerations or [])
        if tolerates_otherwise and any(c.honors_taints for c in spread.hard):
            return QueueingHint.QUEUE
        return queue_if(_counted(spread, before) != _counted(spread, after))

    def _after_node(
        self, pod: PodInfo, before: Seen, after: Seen, snapshot: Snapshot
    ) -> QueueingHint:
        spread = self._of(pod, snapshot)
        if spread.hard_error:
            return QueueingHint.QUEUE
        keys = sorted({c.topology_key for c in spread.hard})
        return queue_if(_place(before, keys) != _place(after, keys))


def _counted(spread: Spread, one: Seen) -> list[bool]:
    """Which hard constraints count the pod; where there is none, none does."""
    labels = (one.metadata.labels or {}) if isinstance(one, Pod) else None
    return [labels is not None and c.selector.matches(labels) for c in spread.hard]


def _place(one: Seen, keys: Sequence[str]) -> Hashable:
    """The node's domains and taints; None without one of the labels, or without a node."""
    labels = (one.metadata.labels or {}) if isinstance(one, Node) else {}
    if not isinstance(one, Node) or any(key not in labels for key in keys):
        return None
    return tuple([labels[key] for key in keys]), tuple(one.spec.taints or ())
