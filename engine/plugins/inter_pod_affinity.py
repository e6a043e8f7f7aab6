"""InterPodAffinity: affinity and anti-affinity of the pod, and of the pods that are there.

Counts come by domain from `cache.domains`; a node's answer is a look-up of its
domain.

Source: kubernetes plugins/interpodaffinity (filtering.go, scoring.go, plugin.go).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

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
from engine.framework.snapshot import CountedTerm, DomainTable, Rows, Snapshot, Tally
from engine.framework.status import Status, unresolvable, unschedulable
from engine.objects import Namespace, Node, Pod
from engine.plugins.groups import Groups, Part, no_pods
from engine.plugins.hints import always, now, on, placed, queue_if
from engine.pods.podinfo import PodInfo
from engine.pods.podterms import NO_TERMS, AffinityTerm, Demand, PodTerms, Spaces, terms_of
from engine.pods.selectors import EVERYTHING, NOTHING, Labels, Selector

NAME: Final = "InterPodAffinity"
NOT_NEAR: Final = unresolvable("node(s) didn't match pod affinity rules")
NOT_FAR: Final = unschedulable("node(s) didn't match pod anti-affinity rules")
UNWANTED: Final = unschedulable("node(s) didn't satisfy existing pods anti-affinity rules")
_STATUSES: Final = (NOT_NEAR, NOT_FAR, UNWANTED)
_NEAR: Final = _STATUSES.index(NOT_NEAR)
_MOST_WEIGHT: Final = 100
_NO_NAMESPACE: Final = Namespace()


class InterPodAffinityArgs(PluginArgs, frozen=True):
    """`pluginConfig` of InterPodAffinity."""

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


_Tally = tuple[int, Tally, str]
"""What is added up: a weight, a tally, the topology key."""
_Met = tuple[Sequence[str], Sequence[str], Sequence[str]]
"""The topology keys by which a pod is near, far and unwilling."""
_NOT_THERE: Final[_Met] = (), (), ()


class _Found(NamedTuple):
    """Pods that a term finds, in namespaces (None: all), and the label of its domains."""

    namespaces: frozenset[str] | Spaces | None
    selector: Selector
    topology_key: str

    def has(self, pod: Pod, snapshot: Snapshot) -> bool:
        """Whether the pod is one of them."""
        if not self.selector.matches(pod.metadata.labels or {}):
            return False
        spaces, name = self.namespaces, pod.metadata.namespace
        if isinstance(spaces, Spaces):
            return spaces.have(name, snapshot.namespaces)
        return spaces is None or name in spaces

    def tally(self, snapshot: Snapshot) -> Tally:
        """How many of them are where; those being deleted count."""
        return snapshot.topology.pod_set(self.namespaces, self.selector, terminating=True)


class _Wishes(NamedTuple):
    """The terms of a pod, and the terms of others that find it."""

    near: tuple[_Found, ...] = ()
    """Of the pods that meet all required terms: one entry a topology key."""
    near_itself: bool = False
    far: tuple[_Found, ...] = ()
    preferred: tuple[tuple[int, _Found], ...] = ()
    of_others: tuple[CountedTerm, ...] = ()
    terms: PodTerms = NO_TERMS

    def tallies(self, snapshot: Snapshot) -> Sequence[Sequence[_Tally]]:
        """What is counted for the filter: near, far and unwilling pods."""
        return (
            [(1, one.tally(snapshot), one.topology_key) for one in self.near],
            [(1, one.tally(snapshot), one.topology_key) for one in self.far],
            [(1, term, term.term.term.topology_key) for term in self.unwilling],
        )

    def meets(self, own: PodInfo, pod: Pod, snapshot: Snapshot) -> _Met:
        """How another pod counts for the one with these terms."""
        near = [found.topology_key for found in self.near if found.has(pod, snapshot)]
        far = [found.topology_key for found in self.far if found.has(pod, snapshot)]
        if not (anti := terms_of(pod).anti):
            return near, far, ()
        labels = snapshot.namespaces.get(own.namespace, _NO_NAMESPACE).metadata.labels or {}
        name, own_labels = own.namespace, own.pod.metadata.labels or {}
        unwilling = [one.topology_key for one in anti if one.matches(name, labels, own_labels)]
        return near, far, unwilling

    @property
    def unwilling(self) -> Sequence[CountedTerm]:
        """The terms of others by which no such pod is to be near them."""
        return [term for term in self.of_others if term.term.demand is Demand.FAR]

    @property
    def stand(self) -> bool:
        """Whether all terms of others are still there."""
        return all(term.live for term in self.of_others)

    def key(self) -> Hashable:
        """The same in values that are equal in every process."""
        if self == _NO_WISHES:
            return None
        return *self[:4], tuple([term.identity for term in self.of_others]), self.terms.error


_NO_WISHES: Final = _Wishes()


def _wishes(pod: PodInfo, snapshot: Snapshot) -> _Wishes:
    terms = terms_of(pod.pod)
    labels = pod.pod.metadata.labels or {}
    own = snapshot.namespaces.get(pod.namespace, _NO_NAMESPACE).metadata.labels or {}
    of_others = tuple(snapshot.topology.terms_on(pod.namespace, own, labels))
    if terms is NO_TERMS:
        return _Wishes(of_others=of_others) if of_others else _NO_WISHES
    near = [_found(term) for term in terms.required]
    return _Wishes(
        _all_of(near),
        bool(near) and all(found.has(pod.pod, snapshot) for found in near),
        tuple([_found(term) for term in terms.anti]),
        tuple([(weight, _found(term)) for weight, term in terms.preferred]),
        of_others,
        terms,
    )


def _found(term: AffinityTerm) -> _Found:
    """The term of an incoming pod: a selector of namespaces finds those that are known."""
    spaces: frozenset[str] | Spaces | None = term.namespaces
    if term.namespace_selector == EVERYTHING:
        spaces = None
    elif term.namespace_selector != NOTHING:
        spaces = Spaces(((term.namespaces, term.namespace_selector),))
    return _Found(spaces, term.selector, term.topology_key)


def _all_of(terms: Sequence[_Found]) -> tuple[_Found, ...]:
    """The pods that all terms find, a topology key each."""
    names: frozenset[str] | None = None
    each: list[tuple[frozenset[str], Selector]] = []
    for term in terms:
        if isinstance(term.namespaces, Spaces):
            each += term.namespaces.each
        elif term.namespaces is not None:
            names = term.namespaces if names is None else names & term.namespaces
    selector = EVERYTHING.both(*[term.selector for term in terms])
    if each and names is not None:
        each.append((names, NOTHING))
    found = Spaces(tuple(dict.fromkeys(each))) if each else names
    keys = dict.fromkeys(term.topology_key for term in terms)
    return tuple([_Found(found, selector, key) for key in keys])


_Moves = Mapping[str, Mapping[int, int]]
"""Topology key -> domain -> how many are counted besides."""


def _parts(snapshot: Snapshot, tallies: Iterable[_Tally], moves: _Moves) -> list[Part]:
    """The tallies added up by topology key, with what `moves` counts besides."""
    tables: dict[str, list[tuple[int, DomainTable]]] = {}
    for key in moves:
        tables[key] = [(1, no_pods(snapshot, key))]
    for weight, tally, key in tallies:
        tables.setdefault(key, []).append((weight, snapshot.topology.table(tally, key)))
    return [Part(found, otherwise=moves.get(key)) for key, found in tables.items()]


class RequiredTerms(Groups):
    """The filter state of a class of pods.

    `with_pod` gives another one that differs by a pod; neither is written to by the other.
    """

    def __init__(
        self, wishes: _Wishes, pod: PodInfo, moves: Sequence[_Moves] = ({}, {}, {})
    ) -> None:
        """`moves` are pods counted besides: as near, as far and as unwilling."""
        super().__init__()
        self._wishes = wishes
        self._pod = pod
        self._moves = moves
        self._tallies: Sequence[Sequence[_Tally]] = ()
        self._kinds: Sequence[int] = ()
        """Of each part, by which of `_STATUSES` it rejects."""

    def with_pod(self, pod: PodInfo, snapshot: Snapshot, row: int, sign: int) -> RequiredTerms:
        """The same with a pod more (sign 1) or less (sign -1) on a row."""
        each = self._wishes.meets(self._pod, pod.pod, snapshot)
        if not any(each):
            return self
        moves = [
            _moved(known, keys, snapshot, row, sign)
            for known, keys in zip(self._moves, each, strict=True)
        ]
        other = RequiredTerms(self._wishes, self._pod, moves)
        other._tallies = self._tallies
        return other

    def concerns(self, pod: PodInfo, other: PodInfo, snapshot: Snapshot) -> bool:
        """Whether it matters where the other pod is."""
        return any(self._wishes.meets(self._pod, other.pod, snapshot))

    def version(self, snapshot: Snapshot) -> tuple[bool, bool]:
        """Whether any pod matters, and whether all terms are still there."""
        parts = self.parts(snapshot)
        says = bool(self._wishes.near or self._wishes.far) or any(part.any for part in parts)
        return says, self._wishes.stand

    def _recount(self, snapshot: Snapshot) -> Sequence[Part]:
        """Near, far and unwilling pods."""
        tallies = [tally for some in self._tallies for _, tally, _ in some]
        if not self._tallies or not all(tally.live for tally in tallies):
            self._tallies = self._wishes.tallies(snapshot)
        each = zip(self._tallies, self._moves, strict=True)
        parts = [_parts(snapshot, some, moves) for some, moves in each]
        self._kinds = [kind for kind, some in enumerate(parts) for _ in some]
        return [part for some in parts for part in some]

    def passes(self) -> Sequence[bool]:
        """See `GroupedFilter.passes`."""
        first, passes = self._first, [True] * len(self)
        for kind, domains, counts in zip(self._kinds, *self.by_part(), strict=True):
            each = zip(passes, domains, counts, strict=True)
            if kind == _NEAR:
                passes = [so_far and d >= 0 and (first or n > 0) for so_far, d, n in each]
            else:
                passes = [so_far and (d < 0 or n <= 0) for so_far, d, n in each]
        return passes

    @property
    def _first(self) -> bool:
        """Whether the pod is the first of its kind, which may be anywhere with the labels."""
        if not self._wishes.near_itself:
            return False
        return not any(part.any for part in self._parts[: self._kinds.count(_NEAR)])

    def filter(self, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
        """See `Points.filter`."""
        parts, first = self.parts(snapshot), self._first
        against = np.zeros((len(_STATUSES), len(snapshot.nodes.present[rows])), np.bool_)
        for part, kind in zip(parts, self._kinds, strict=True):
            domains, counts = part.of(snapshot, rows)
            if kind != _NEAR:
                against[kind] |= (domains >= 0) & (counts > 0)
            elif first:
                against[kind] |= domains < 0
            else:
                against[kind] |= (domains < 0) | (counts <= 0)
        return Verdicts.by_first([*zip(_STATUSES, against, strict=True)])


def _moved(moves: _Moves, keys: Iterable[str], snapshot: Snapshot, row: int, sign: int) -> _Moves:
    after = {key: dict(counts) for key, counts in moves.items()}
    for key in keys:
        table = no_pods(snapshot, key)
        table.sync(snapshot.nodes)
        domain = int(table.domains.domain[row])
        if domain >= 0:
            counts = after.setdefault(key, {})
            counts[domain] = counts.get(domain, 0) + sign
    return after


class PreferredTerms(Groups):
    """The score state of a class of pods."""

    def __init__(self, wishes: _Wishes, hard_weight: int) -> None:
        super().__init__()
        self._wishes = wishes
        self._hard_weight = hard_weight

    def version(self, snapshot: Snapshot) -> tuple[bool, bool]:
        """Whether any term scores, and whether all terms are still there."""
        return any(part.any for part in self.parts(snapshot)), self._wishes.stand

    def _recount(self, snapshot: Snapshot) -> Sequence[Part]:
        """The weights of all terms met, by domain."""
        return _parts(snapshot, self._tallies(snapshot), {})

    def scores(self, feasible: Sequence[int]) -> Sequence[float]:
        """See `GroupedScore.scores`."""
        totals = [0] * len(self)
        for domains, counts in zip(*self.by_part(), strict=True):
            each = zip(totals, domains, counts, strict=True)
            totals = [total + n if d >= 0 else total for total, d, n in each]
        among = [total for total, n in zip(totals, feasible, strict=True) if n]
        lowest, highest = min(among, default=0), max(among, default=0)
        span = highest - lowest
        if not span:
            return [0.0] * len(totals)
        return [float(int(MAX_SCORE * ((total - lowest) / span))) for total in totals]

    def score(self, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        """See `Points.score`: the weights of all terms met in the domains of each row."""
        total = np.zeros(len(snapshot.nodes.present[rows]))
        for part in self.parts(snapshot):
            domains, counts = part.of(snapshot, rows)
            total += np.where(domains < 0, 0.0, counts)
        return total

    def normalize(self, scores: Scores) -> Scores:
        """See `Points.normalize`: the lowest becomes 0, the highest 100, truncated."""
        lowest, highest = float(scores.min(initial=np.inf)), float(scores.max(initial=-np.inf))
        if highest <= lowest:
            return np.zeros(len(scores))
        return np.trunc(MAX_SCORE * ((scores - lowest) / (highest - lowest)))

    def _tallies(self, snapshot: Snapshot) -> Iterator[_Tally]:
        for weight, found in self._wishes.preferred:
            yield weight, found.tally(snapshot), found.topology_key
        for term in self._wishes.of_others:
            demand, weight, about = term.term
            if demand is Demand.NEAR:
                weight = self._hard_weight
            if demand is Demand.PREFERRED or (demand is Demand.NEAR and weight):
                yield weight, term, about.topology_key


class InterPodAffinity:
    """Filters by required terms, scores by preferred ones; of the pod and of those there."""

    name: Final = NAME

    def __init__(self, args: InterPodAffinityArgs | None = None) -> None:
        """Reads the profile's weight of required terms.

        Raises:
            ValueError: the weight is none.
        """
        args = args or InterPodAffinityArgs()
        self._hard_weight = args.hard_pod_affinity_weight
        self._ignores_likes = args.ignore_preferred_terms_of_existing_pods
        if not 0 <= self._hard_weight <= _MOST_WEIGHT:
            raise ValueError("hardPodAffinityWeight: not in valid range [0, 100]")

    def points(self) -> Points:
        """Pods come, go or change their labels, nodes come or change theirs."""
        assigned = Action.ADD | Action.DELETE | Action.UPDATE_POD_LABEL
        node = Action.ADD | Action.UPDATE_NODE_LABEL
        return Points(
            events=(
                on(Resource.ASSIGNED_POD, assigned, self._after_assigned),
                on(Resource.TARGET_POD, Action.UPDATE_POD_LABEL, always),
                on(Resource.NODE, node, now(Node, _node_helps)),
                on(Resource.ASSIGNED_POD, assigned, self._after_pod, ours=True),
                on(Resource.NODE, node, self._after_node, ours=True),
            ),
            class_key=self._class_key,
            wide_key=True,
            key_version=lambda snapshot: snapshot.topology.version,
            pre_filter=self._pre_filter,
            filter=RequiredTerms.filter,
            with_pod=RequiredTerms.with_pod,
            concerns=RequiredTerms.concerns,
            pre_score=self._pre_score,
            score=PreferredTerms.score,
            normalize=PreferredTerms.normalize,
        )

    def _of(self, pod: PodInfo, snapshot: Snapshot) -> _Wishes:
        """The pod's wishes, remembered while terms and its own namespace stay."""
        when = snapshot.topology.terms, snapshot.namespaces.get(pod.namespace)
        known: Any = pod.keys.get(NAME)
        if known is None or known[0] != when:
            known = pod.keys[NAME] = when, _wishes(pod, snapshot)
        wishes: _Wishes = known[1]
        return wishes

    def _class_key(self, pod: PodInfo, snapshot: Snapshot) -> Hashable:
        """Its terms, and the terms of others that find it."""
        wishes = self._of(pod, snapshot)
        return None if wishes is _NO_WISHES else wishes.key()

    def _after_assigned(
        self, pod: PodInfo, before: Seen, after: Seen, snapshot: Snapshot
    ) -> QueueingHint:
        """Whether another pod that came, changed or went is near now, or no longer too near."""
        seen = [one for one in (before, after) if isinstance(one, Pod)]
        if not all(map(placed, seen)):
            return QueueingHint.SKIP
        terms = self._of(pod, snapshot).terms
        if terms.error:
            return QueueingHint.QUEUE
        if isinstance(after, Pod):
            return queue_if(_helps(terms, before, after))
        gone = seen[0]
        if _meets_any(terms.anti, gone):
            return QueueingHint.QUEUE
        of_gone = terms_of(gone)
        return queue_if(bool(of_gone.error) or _meets_any(of_gone.anti, pod.pod))

    def _after_pod(
        self, pod: PodInfo, before: Seen, after: Seen, snapshot: Snapshot
    ) -> QueueingHint:
        """What another pod means by the labels of namespaces, and the last one near that goes."""
        wishes = self._of(pod, snapshot)
        (near, *close), (nears, *closes) = [
            wishes.meets(pod, one, snapshot) if isinstance(one, Pod) and placed(one) else _NOT_THERE
            for one in (before, after)
        ]
        moved = bool(near) != bool(nears) and bool(nears or wishes.near_itself)
        left = (set(old).difference(new) for old, new in zip(close, closes, strict=True))
        return queue_if(moved or any(left))

    def _after_node(
        self, pod: PodInfo, before: Seen, after: Seen, snapshot: Snapshot
    ) -> QueueingHint:
        """The hint for nodes where terms of others keep the pod away."""
        unwilling = [term.term.term for term in self._of(pod, snapshot).unwilling]
        old = before if isinstance(before, Node) else None
        return queue_if(isinstance(after, Node) and _gives_place((), unwilling, old, after))

    def _pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
        """Skip if no pod matters."""
        wishes = self._of(pod, snapshot)
        if error := wishes.terms.error:
            return PreFilterResult(unresolvable(f"parsing pod: {error}"))
        if wishes is _NO_WISHES:
            return SKIP_FILTER
        places = RequiredTerms(wishes, pod)
        if not places.version(snapshot)[0]:
            return PreFilterResult(Status.SKIP, version=places.version)
        return PreFilterResult(
            state=places, scope=Scope.ALL, version=places.version, grouped=places
        )

    def _pre_score(self, pod: PodInfo, snapshot: Snapshot) -> PreScoreResult:
        """Skip if no term scores."""
        wishes = self._of(pod, snapshot)
        if wishes is _NO_WISHES or (self._ignores_likes and not wishes.preferred):
            return SKIP_SCORE
        liking = PreferredTerms(wishes, self._hard_weight)
        if not liking.version(snapshot)[0]:
            return PreScoreResult(Status.SKIP, version=liking.version)
        return PreScoreResult(
            state=liking,
            scope=Scope.ALL,
            version=liking.version,
            normalization=Normalization.CUSTOM,
            grouped=liking,
        )


# ---- hints -----------------------------------------------------------------------------------


def _meets_all(terms: Sequence[AffinityTerm], pod: Pod) -> bool:
    return bool(terms) and all(_meets(term, pod) for term in terms)


def _meets_any(terms: Sequence[AffinityTerm], pod: Pod) -> bool:
    return any(_meets(term, pod) for term in terms)


def _meets(term: AffinityTerm, pod: Pod) -> bool:
    """Whether the term finds the pod by the names of namespaces alone, as kube-scheduler has it."""
    return term.matches(pod.metadata.namespace, {}, pod.metadata.labels or {})


def _helps(terms: PodTerms, before: Seen, after: Pod) -> bool:
    """Whether a pod that came or changed is near now, or no longer too near."""
    if not isinstance(before, Pod):
        return _meets_all(terms.required, after)
    if not _meets_all(terms.required, before) and _meets_all(terms.required, after):
        return True
    return _meets_any(terms.anti, before) and not _meets_any(terms.anti, after)


def _node_helps(pod: PodInfo, before: Node | None, after: Node) -> bool:
    terms = terms_of(pod.pod)
    return bool(terms.error) or _gives_place(terms.required, terms.anti, before, after)


def _gives_place(
    near: Sequence[AffinityTerm], far: Sequence[AffinityTerm], before: Node | None, after: Node
) -> bool:
    """Whether a node that came or changed has a domain wanted, or left one to be avoided."""
    new = after.metadata.labels or {}
    if before is None:
        return bool(far) or any(term.topology_key in new for term in near)
    old = before.metadata.labels or {}
    came = any(_value(new, term) not in (None, _value(old, term)) for term in near)
    left = any(_value(old, term) not in (None, _value(new, term)) for term in far)
    return came or left


def _value(labels: Labels, term: AffinityTerm) -> str | None:
    return labels.get(term.topology_key)
