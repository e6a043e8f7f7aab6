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
    ALL_PASS,
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
from engine.framework.podinfo import PodInfo
from engine.framework.snapshot import BoolColumn, Cause, Rows, Snapshot
from engine.framework.status import Code, Status, unresolvable
from engine.memo import Memo
from engine.objects import Affinity, Node, NodeAffinity, NodeSelectorTerm
from engine.plugins.hints import now, on
from engine.plugins.node_selector import (
    NODE_NAME_FIELD,
    ParseError,
    Preferences,
    Selector,
    Term,
    parse_labels,
    parse_preferences,
    parse_selector,
)

NAME: Final = "NodeAffinity"
NO_MATCH: Final = unresolvable("node(s) didn't match Pod's node affinity/selector")
NO_ADDED_MATCH: Final = unresolvable("node(s) didn't match scheduler-enforced node affinity")
CONFLICT: Final = PreFilterResult(unresolvable("pod affinity terms conflict"))
_NONE: Final = NodeAffinity()
_PARSED: Final = "NodeAffinity, parsed"
_BYTES: Final = 4 << 20
_BYTES_OF_A_REQUIREMENT: Final = 250
_LONG: Final = 1024


class NodeAffinityArgs(PluginArgs, frozen=True):
    """`pluginConfig` of NodeAffinity."""

    added_affinity: NodeAffinity | None = None


class _Parsed:
    """What a pod's selectors come to."""

    __slots__ = ("error", "labels", "names", "preferences", "refused", "required")

    def __init__(
        self, node_selector: Sequence[tuple[str, str]], affinity: NodeAffinity | None
    ) -> None:
        affinity = affinity or _NONE
        required = affinity.required_during_scheduling_ignored_during_execution
        preferred = affinity.preferred_during_scheduling_ignored_during_execution
        self.labels: Term | None = parse_labels(node_selector)
        self.required: Selector | None = None if required is None else parse_selector(required)
        self.refused: PreFilterResult | None = None
        if self.required is not None and self.required.error:
            self.refused = PreFilterResult(unresolvable(self.required.error))
        self.names = _names((required.node_selector_terms if required else None) or ())
        self.preferences: Preferences | None = None
        self.error = ""
        try:
            self.preferences = parse_preferences(preferred) if preferred else None
        except ParseError as error:
            self.error = str(error)

    @property
    def size(self) -> int:
        """How many requirements and values there are to it."""
        terms = [*(self.required or Selector(())).terms]
        terms += [term for _, term in (self.preferences or Preferences(())).terms]
        terms += [] if self.labels is None else [self.labels]
        return sum(term.size for term in terms)

    @property
    def filters(self) -> bool:
        """False if any node will do."""
        return self.labels is not None or self.required is not None

    def mask(self, snapshot: Snapshot, rows: Rows) -> BoolColumn:
        """Which rows match selector and required affinity; only if `filters`."""
        if self.labels is None:
            return (self.required or Selector(())).mask(snapshot, rows)
        mask = self.labels.mask(snapshot, rows)
        if self.required is not None:
            mask = mask & self.required.mask(snapshot, rows)
        return mask

    def matches(self, node: Node) -> bool:
        """Whether the node matches selector and required affinity."""
        if self.labels is not None and not self.labels.matches(node):
            return False
        return self.required is None or self.required.matches(node)

    def undecided(self, node: Node) -> bool:
        """Whether only a term that cannot be parsed could match the node."""
        if self.labels is not None and not self.labels.matches(node):
            return False
        return self.required is not None and self.required.flawed


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


_ANYWHERE: Final = _Parsed((), None)
_remembered: Final[Memo[Hashable, _Parsed]] = Memo(_BYTES)


class NodeAffinityPlugin:
    """Filters by required terms, scores by preferred ones."""

    def __init__(self, args: NodeAffinityArgs | None = None) -> None:
        """Reads the profile's `addedAffinity`.

        Raises:
            ValueError: a term of it cannot be parsed.
        """
        added = (args.added_affinity if args else None) or _NONE
        required = added.required_during_scheduling_ignored_during_execution
        preferred = added.preferred_during_scheduling_ignored_during_execution
        self._added = None if required is None else parse_selector(required)
        self._added_preferences = parse_preferences(preferred) if preferred else None
        if self._added is not None:
            self._added.check()

    name: Final = NAME

    def points(self) -> Points:
        """A matching node comes, a node begins to match."""
        node = Action.ADD | Action.UPDATE_NODE_LABEL
        return Points(
            events=(on(Resource.NODE, node, now(Node, self._begins_to_match)),),
            class_key=self._class_key,
            pre_filter=self._pre_filter,
            filter=self._filter,
            pre_score=self._pre_score,
            score=self._score,
        )

    def _class_key(self, pod: PodInfo, snapshot: Snapshot) -> Hashable:
        """Selector and node affinity as bytes, a hash of them if they are many; None without."""
        return self._key(pod)

    def _pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
        """Skip if any node will do; the nodes that are named, if every term names some."""
        parsed = self._of(pod)
        if self._added is None and not parsed.filters:
            return SKIP_FILTER
        if parsed.refused is not None:
            return parsed.refused
        names = parsed.names
        if names is None:
            return PreFilterResult(causes=Cause.LABELS, shared=(self._key(pod),))
        if not names:
            return CONFLICT
        found = [snapshot.nodes.row(name) for name in names]
        rows = np.array(sorted(row for row in found if row >= 0), dtype=np.intp)
        return PreFilterResult(rows=rows, names=names, causes=Cause.LABELS)

    def _filter(self, state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
        """Rejects nodes that the profile's or the pod's terms leave out."""
        parsed = self._of(pod)
        own = parsed.mask(snapshot, rows) if parsed.filters else None
        if self._added is None:
            return ALL_PASS if own is None else Verdicts.uniform(own, NO_MATCH)
        added = self._added.mask(snapshot, rows)
        if own is None:
            return Verdicts.uniform(added, NO_ADDED_MATCH)
        return Verdicts.by_first(((NO_ADDED_MATCH, ~added), (NO_MATCH, ~own)))

    def _pre_score(self, pod: PodInfo, snapshot: Snapshot) -> PreScoreResult:
        """Skip without preferences; an error if one cannot be parsed. The best becomes 100."""
        parsed = self._of(pod)
        if parsed.error:
            return PreScoreResult(Status(Code.ERROR, (parsed.error,), NAME))
        if parsed.preferences is None and self._added_preferences is None:
            return SKIP_SCORE
        return PreScoreResult(
            causes=Cause.LABELS, shared=(self._key(pod),), normalization=Normalization.BY_MAX
        )

    def _score(self, state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        """Sum of the weights of all preferred terms that match."""
        own, added = self._of(pod).preferences, self._added_preferences
        scores = (own or Preferences(())).scores(snapshot, rows)
        if added is not None:
            scores += added.scores(snapshot, rows)
        return scores

    def _key(self, pod: PodInfo) -> Hashable:
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

    def _of(self, pod: PodInfo) -> _Parsed:
        key = self._key(pod)
        if key is None:
            return _ANYWHERE
        own = pod.keys.get(_PARSED)
        if isinstance(own, _Parsed):
            return own
        parsed = _remembered.get(key)
        if parsed is None:
            spec = pod.pod.spec
            affinity = (spec.affinity or Affinity()).node_affinity
            parsed = _Parsed(sorted((spec.node_selector or {}).items()), affinity)
            _remembered.put(key, parsed, _LONG + _BYTES_OF_A_REQUIREMENT * parsed.size)
        pod.keys[_PARSED] = parsed
        return parsed

    def _begins_to_match(self, pod: PodInfo, before: Node | None, after: Node) -> bool:
        if self._added is not None and not self._added.matches(after):
            return False
        parsed = self._of(pod)
        if not parsed.matches(after):
            return parsed.undecided(after)
        return before is None or not parsed.matches(before)
