"""NodeAffinity: `nodeSelector` and node affinity of the pod, and what the profile adds to them.

Source: kubernetes plugins/nodeaffinity/node_affinity.go.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from typing import Final

import msgspec
import numpy as np

from engine.framework.events import Action, Resource
from engine.framework.interface import (
    SKIP_FILTER,
    SKIP_SCORE,
    Normalization,
    PluginArgs,
    Points,
    PreFilterResult,
    PreScoreResult,
    Scores,
    State,
    Verdicts,
)
from engine.framework.snapshot import Cause, Rows, Snapshot
from engine.framework.status import Code, Status, unresolvable
from engine.objects import Affinity, Node, NodeAffinity, NodeSelector, NodeSelectorTerm
from engine.plugins.hints import now, on
from engine.plugins.node_selector import (
    NODE_NAME_FIELD,
    NodeTerms,
    Preferences,
    eligibility_key,
    matching,
    parse_preferences,
    required,
    required_of,
    scores,
)
from engine.pods.podinfo import PodInfo
from engine.pods.selectors import SelectorError

NAME: Final = "NodeAffinity"
NO_MATCH: Final = unresolvable("node(s) didn't match Pod's node affinity/selector")
NO_ADDED_MATCH: Final = unresolvable("node(s) didn't match scheduler-enforced node affinity")
CONFLICT: Final = PreFilterResult(unresolvable("pod affinity terms conflict"))
_NONE: Final = Affinity()
_PARSED: Final = "NodeAffinity, parsed"
_LONG: Final = 1024


class NodeAffinityArgs(PluginArgs, frozen=True):
    """`pluginConfig` of NodeAffinity."""

    added_affinity: NodeAffinity | None = None


def _names(terms: Sequence[NodeSelectorTerm]) -> frozenset[str] | None:
    """The nodes that the terms name; None if one term names none, so that any node may do."""
    names: set[str] = set()
    for term in terms:
        of_term: set[str] | None = None
        for field in term.match_fields or ():
            if field.key == NODE_NAME_FIELD and field.operator == "In":
                values = set(field.values or ())
                of_term = values if of_term is None else of_term & values
        if of_term is None:
            return None
        names |= of_term
    return frozenset(names) if terms else None


class NodeAffinityPlugin:
    """Filters by required terms, scores by preferred ones."""

    def __init__(self, args: NodeAffinityArgs | None = None) -> None:
        """Reads the profile's `addedAffinity`.

        Raises:
            ValueError: a term of it cannot be parsed.
        """
        added = args.added_affinity if args else None
        self._liked = _preferences(added)
        self._added = required_of((), _required_terms(added))
        if flaw := next((one.flaw for one in self._added if one.flaw), ""):
            raise SelectorError(flaw)

    name: Final = NAME

    def points(self) -> Points:
        """A matching node comes, a node begins to match."""
        node = Action.ADD | Action.UPDATE_NODE_LABEL
        return Points(
            events=(on(Resource.NODE, node, now(Node, self._begins_to_match)),),
            class_key=_key,
            pre_filter=self._pre_filter,
            filter=self._filter,
            pre_score=self._pre_score,
            score=_score,
        )

    def _pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
        """Skip if any node will do; the nodes that are named, if every term names some."""
        own = _required(pod)
        if not self._added and not own:
            return SKIP_FILTER
        if error := next((one.error for one in own if one.error), ""):
            return PreFilterResult(unresolvable(error))
        terms = _required_terms(_affinity(pod))
        names = _names((terms.node_selector_terms if terms else None) or ())
        if names is None:
            return PreFilterResult(causes=Cause.LABELS, shared=(_key(pod),))
        if not names:
            return CONFLICT
        found = [snapshot.nodes.row(name) for name in names]
        rows = np.array(sorted(row for row in found if row >= 0), dtype=np.intp)
        return PreFilterResult(rows=rows, names=names, causes=Cause.LABELS)

    def _filter(self, state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
        """Rejects nodes that the profile's or the pod's terms leave out."""
        own = matching(_required(pod), snapshot.nodes, rows)
        if not self._added:
            return Verdicts.uniform(own, NO_MATCH)
        added = matching(self._added, snapshot.nodes, rows)
        return Verdicts.by_first(((NO_ADDED_MATCH, ~added), (NO_MATCH, ~own)))

    def _pre_score(self, pod: PodInfo, snapshot: Snapshot) -> PreScoreResult:
        """Skip without preferences; an error if one cannot be parsed. The best becomes 100."""
        try:
            own = _preferences(_affinity(pod))
        except SelectorError as wrong:
            return PreScoreResult(Status(Code.ERROR, (str(wrong),), NAME))
        if own is None and self._liked is None:
            return SKIP_SCORE
        return PreScoreResult(
            state=(*(own or ()), *(self._liked or ())),
            causes=Cause.LABELS,
            shared=(_key(pod),),
            normalization=Normalization.BY_MAX,
        )

    def _begins_to_match(self, pod: PodInfo, before: Node | None, after: Node) -> bool:
        if not all(one.matches(after) for one in self._added):
            return False
        own = _required(pod)
        if not all(one.matches(after) for one in own):
            # Only a term that cannot be parsed could, which is not known of any node.
            return all(one.flaw or one.matches(after) for one in own)
        return before is None or not all(one.matches(before) for one in own)


def _score(state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
    """Sum of the weights of all preferred terms that match."""
    return scores(state, snapshot.nodes, rows)


def _key(pod: PodInfo, _: Snapshot | None = None) -> Hashable:
    """Selector and node affinity as bytes, a hash of them if they are many; None without."""
    spec = pod.pod.spec
    affinity = None if spec.affinity is None else spec.affinity.node_affinity
    if affinity is None and not spec.node_selector:
        return None
    key = pod.keys.get(NAME)
    if key is None:
        labels = sorted((spec.node_selector or {}).items())
        key = msgspec.msgpack.encode((labels, affinity))
        if len(key) > _LONG:
            key = hashlib.blake2b(key, digest_size=16).digest()
        pod.keys[NAME] = key
    return key


def _affinity(pod: PodInfo) -> NodeAffinity | None:
    return (pod.pod.spec.affinity or _NONE).node_affinity


def _required_terms(affinity: NodeAffinity | None) -> NodeSelector | None:
    return (
        None if affinity is None else affinity.required_during_scheduling_ignored_during_execution
    )


def _preferences(affinity: NodeAffinity | None) -> Preferences | None:
    """None without any, or a SelectorError as of `parse_preferences`."""
    asked = affinity and affinity.preferred_during_scheduling_ignored_during_execution
    return parse_preferences(asked) if asked else None


def _required(pod: PodInfo) -> tuple[NodeTerms, ...]:
    """What a node has to match, all of it; nothing: any node will do."""
    known = pod.keys.get(_PARSED)
    if known is None:
        known = pod.keys[_PARSED] = required(eligibility_key(pod))
    return known  # type: ignore[return-value]  # the memo is of any kind
