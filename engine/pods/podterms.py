"""Affinity and anti-affinity of a pod to other pods, parsed: a pod in, its terms out.

Decides nothing. Equal affinities of one namespace share their terms.

Source: k8s.io/kube-scheduler framework/types.go (GetAffinityTerms, newAffinityTerm) and kubernetes
pkg/scheduler/framework/types.go (PodInfo.Update).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from engine.memo import Memo
from engine.objects import (
    Affinity,
    Namespace,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    WeightedPodAffinityTerm,
)
from engine.pods.selectors import Labels, Selector, SelectorError, parse_selector

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"

_PARSED: Final[Memo[tuple[str, bytes], PodTerms]] = Memo(4 << 20)
_BYTES_A_BYTE: Final = 4
_BYTES_A_POD: Final = 1024
_NONE: Final = PodAffinity()


class Spaces(NamedTuple):
    """Namespaces, whichever are there: each is named, or its labels found, in all of `each`."""

    each: tuple[tuple[frozenset[str], Selector], ...]

    def have(self, name: str, known: Mapping[str, Namespace]) -> bool:
        """Whether a namespace is one of them. The labels of one that is not known are not found."""
        one = known.get(name)
        labels = None if one is None else one.metadata.labels or {}
        return all(
            name in names or (labels is not None and selector.matches(labels))
            for names, selector in self.each
        )


class AffinityTerm(NamedTuple):
    """Pods that a selector finds in namespaces, by name or by their labels, and a domain."""

    namespaces: frozenset[str]
    namespace_selector: Selector
    selector: Selector
    topology_key: str

    def matches(self, namespace: str, namespace_labels: Labels, labels: Labels) -> bool:
        """Whether it finds pods with these labels in a namespace with those."""
        if namespace in self.namespaces or self.namespace_selector.matches(namespace_labels):
            return self.selector.matches(labels)
        return False


class Demand(Enum):
    """What a pod wants of others in its domains."""

    NEAR = "required affinity"
    FAR = "required anti-affinity"
    PREFERRED = "preferred"


class PodTerm(NamedTuple):
    """A term of an existing pod; the weight of a preferred one is negative if it is against."""

    demand: Demand
    weight: int
    term: AffinityTerm


@dataclass(frozen=True, slots=True)
class PodTerms:
    """All terms of a pod; `preferred` have the weight negative where they are against.

    A list with a term that cannot be parsed is empty, and `error` says so.
    """

    required: tuple[AffinityTerm, ...] = ()
    anti: tuple[AffinityTerm, ...] = ()
    preferred: tuple[tuple[int, AffinityTerm], ...] = ()
    error: str = ""
    demands: tuple[PodTerm, ...] = ()
    """All of them, as what a pod that is somewhere demands of others."""


NO_TERMS: Final = PodTerms()


def terms_of(pod: Pod) -> PodTerms:
    """The pod's terms. Nothing to do for pods without any."""
    affinity = pod.spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return NO_TERMS
    own = Affinity(None, affinity.pod_affinity, affinity.pod_anti_affinity)
    key = pod.metadata.namespace, msgspec.msgpack.encode(own)
    found = _PARSED.get(key)
    if found is None:
        size = len(key[1]) * _BYTES_A_BYTE + _BYTES_A_POD
        found = _PARSED.put(key, _parsed(pod.metadata.namespace, own), size)
    return found


def _parsed(namespace: str, affinity: Affinity) -> PodTerms:
    near, far = affinity.pod_affinity or _NONE, affinity.pod_anti_affinity or _NONE
    errors: list[str] = []
    required = _terms("requiredAffinityTerms", namespace, _required(near), errors)
    anti = _terms("requiredAntiAffinityTerms", namespace, _required(far), errors)
    liked = _weighted("preferredAffinityTerms", namespace, near, errors)
    disliked = _weighted("preferredAntiAffinityTerms", namespace, far, errors)
    preferred = (*liked, *((-weight, term) for weight, term in disliked))
    error = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]" if errors else ""
    demands = (
        *(PodTerm(Demand.NEAR, 1, term) for term in required),
        *(PodTerm(Demand.FAR, 1, term) for term in anti),
        *(PodTerm(Demand.PREFERRED, weight, term) for weight, term in preferred),
    )
    return PodTerms(required, anti, preferred, error, demands)


def _required(affinity: PodAffinity) -> Sequence[PodAffinityTerm]:
    return affinity.required_during_scheduling_ignored_during_execution or ()


def _weighted(
    name: str, namespace: str, affinity: PodAffinity, errors: list[str]
) -> Sequence[tuple[int, AffinityTerm]]:
    asked: Sequence[WeightedPodAffinityTerm] = (
        affinity.preferred_during_scheduling_ignored_during_execution or ()
    )
    terms = _terms(name, namespace, [one.pod_affinity_term for one in asked], errors)
    return [(one.weight, term) for one, term in zip(asked, terms, strict=False)]


def _terms(
    name: str, namespace: str, terms: Sequence[PodAffinityTerm], errors: list[str]
) -> tuple[AffinityTerm, ...]:
    try:
        return tuple([_term(namespace, term) for term in terms])
    except SelectorError as error:
        errors.append(f"{name}: {error}")
        return ()


def _term(namespace: str, term: PodAffinityTerm) -> AffinityTerm:
    own = not term.namespaces and term.namespace_selector is None
    return AffinityTerm(
        frozenset((namespace,)) if own else frozenset(term.namespaces or ()),
        parse_selector(term.namespace_selector),
        parse_selector(term.label_selector),
        term.topology_key,
    )
