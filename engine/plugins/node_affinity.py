"""NodeAffinity: `nodeSelector` and node affinity of the pod, and what the profile adds to them.

Source: kubernetes plugins/nodeaffinity/node_affinity.go.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Sequence
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
from engine.memo import Memo
from engine.objects import Affinity, Node, NodeAffinity, NodeSelectorTerm
from engine.plugins.hints import now, on
from engine.plugins.node_selector import (
    BYTES_PER_BYTE,
    NODE_NAME_FIELD,
    Preferences,
    matching,
    parse_preferences,
    parse_required,
    scores,
)
from engine.pods.podinfo import PodInfo
from engine.pods.selectors import SelectorError

NAME: Final = "NodeAffinity"
NO_MATCH: Final = unresolvable("node(s) didn't match Pod's node affinity/selector")
NO_ADDED_MATCH: Final = unresolvable("node(s) didn't match scheduler-enforced node affinity")
CONFLICT: Final = PreFilterResult(unresolvable("pod affinity terms conflict"))
_NONE: Final = NodeAffinity()
_PARSED: Final = "NodeAffinity, parsed"
_BYTES: Final = 4 << 20
_LONG: Final = 1024


class NodeAffinityArgs(PluginArgs, frozen=True):
    """`pluginConfig` of NodeAffinity."""

    added_affinity: NodeAffinity | None = None


class _Parsed:
    """The parsed selectors of a pod, or of a profile."""

    __slots__ = ("error", "names", "preferences", "refused", "required")

    def __init__(
        self, node_selector: Iterable[tuple[str, str]], affinity: NodeAffinity | None
    ) -> None:
        affinity = affinity or _NONE
        required = affinity.required_during_scheduling_ignored_during_execution
        preferred = affinity.preferred_during_scheduling_ignored_during_execution
        self.required = parse_required(node_selector, required)
        """What a node has to match, all of it; nothing: any node will do."""
        error = next((one.error for one in self.required if one.error), "")
        self.refused = PreFilterResult(unresolvable(error)) if error else None
        self.names = _names((required.node_selector_terms if required else None) or ())
        self.preferences: Preferences | None = None
        self.error = ""
        try:
            self.preferences = parse_preferences(preferred) if preferred else None
        except SelectorError as wrong:
            self.error = str(wrong)

    def matches(self, node: Node) -> bool:
        """Whether the node matches selector and required affinity."""
        return all(one.matches(node) for one in self.required)

    def undecided(self, node: Node) -> bool:
        """Of a node that does not match, whether only a term that cannot be parsed could."""
        return all(one.flaw or one.matches(node) for one in self.required)


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
        self._added = added = _Parsed((), args.added_affinity if args else None)
        flaws = (added.error, *(one.flaw for one in added.required))
        if any(flaws):
            raise SelectorError(next(filter(None, flaws)))

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
            score=self._score,
        )

    def _pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
        """Skip if any node will do; the nodes that are named, if every term names some."""
        parsed = _of(pod)
        if not self._added.required and not parsed.required:
            return SKIP_FILTER
        if parsed.refused is not None:
            return parsed.refused
        names = parsed.names
        if names is None:
            return PreFilterResult(causes=Cause.LABELS, shared=(_key(pod),))
        if not names:
            return CONFLICT
        found = [snapshot.nodes.row(name) for name in names]
        rows = np.array(sorted(row for row in found if row >= 0), dtype=np.intp)
        return PreFilterResult(rows=rows, names=names, causes=Cause.LABELS)

    def _filter(self, state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
        """Rejects nodes that the profile's or the pod's terms leave out."""
        parsed = _of(pod)
        own = matching(parsed.required, snapshot.nodes, rows)
        if not self._added.required:
            return Verdicts.uniform(own, NO_MATCH)
        added = matching(self._added.required, snapshot.nodes, rows)
        return Verdicts.by_first(((NO_ADDED_MATCH, ~added), (NO_MATCH, ~own)))

    def _pre_score(self, pod: PodInfo, snapshot: Snapshot) -> PreScoreResult:
        """Skip without preferences; an error if one cannot be parsed. The best becomes 100."""
        parsed = _of(pod)
        if parsed.error:
            return PreScoreResult(Status(Code.ERROR, (parsed.error,), NAME))
        if parsed.preferences is None and self._added.preferences is None:
            return SKIP_SCORE
        return PreScoreResult(
            causes=Cause.LABELS, shared=(_key(pod),), normalization=Normalization.BY_MAX
        )

    def _score(self, state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        """Sum of the weights of all preferred terms that match."""
        own, added = _of(pod).preferences, self._added.preferences
        return scores((*(own or ()), *(added or ())), snapshot.nodes, rows)

    def _begins_to_match(self, pod: PodInfo, before: Node | None, after: Node) -> bool:
        if not self._added.matches(after):
            return False
        parsed = _of(pod)
        if not parsed.matches(after):
            return parsed.undecided(after)
        return before is None or not parsed.matches(before)


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


def _of(pod: PodInfo) -> _Parsed:
    key = _key(pod)
    if key is None:
        return _ANYWHERE
    own = pod.keys.get(_PARSED)
    if isinstance(own, _Parsed):
        return own
    parsed = _remembered.get(key)
    if parsed is None:
        spec = pod.pod.spec
        affinity = (spec.affinity or Affinity()).node_affinity
        parsed = _Parsed((spec.node_selector or {}).items(), affinity)
        size = len(msgspec.msgpack.encode((spec.node_selector, affinity)))
        _remembered.put(key, parsed, _LONG + size * BYTES_PER_BYTE)
    pod.keys[_PARSED] = parsed
    return parsed
