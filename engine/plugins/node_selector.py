"""Node selectors over label columns: an API selector in, masks out; the same for one node.

A term that cannot be parsed matches nothing, in required selectors silently. Gt and Lt compare
whole numbers of 64 bits, exactly.

Source: k8s.io/component-helpers scheduling/corev1/nodeaffinity, k8s.io/apimachinery pkg/labels
(NewRequirement, Matches) and pkg/fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from engine.framework.interface import Scores
from engine.framework.snapshot import BoolColumn, CodeColumn, NodeColumns, Rows, label_column
from engine.memo import Memo
from engine.objects import (
    Affinity,
    Node,
    NodeSelector,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
    SelectorRequirement,
)
from engine.pods.podinfo import PodInfo
from engine.pods.selectors import Requirement, SelectorError, parse_int64, requirement

NODE_NAME_FIELD: Final = "metadata.name"
_NO_NUMBER: Final = -(1 << 63)
"""Of a label that is not there or no number; the one number that is taken for none."""
_FEW: Final = 8
MOST_REQUIREMENTS: Final = 500
"""Of one selector, those of equal terms counted once: each costs a look at all nodes."""
_BYTES: Final = 2 << 20
_BYTES_PER_BYTE: Final = 5
"""What is parsed takes so many times the bytes of what is written."""
_Key = tuple[list[tuple[str, str]], NodeSelector | None]
TOO_MANY: Final = f"more than {MOST_REQUIREMENTS} different requirements of node affinity"


@dataclass(frozen=True, slots=True)
class _Field:
    """One requirement on a field; nodes have only their name."""

    key: str
    value: str
    negated: bool

    def mask(self, nodes: NodeColumns, rows: Rows) -> BoolColumn:
        names = nodes.name_codes()[rows]
        if self.key != NODE_NAME_FIELD:
            return np.full(len(names), (self.value == "") != self.negated)
        equal: BoolColumn = names == nodes.dictionary.find(self.value)
        return ~equal if self.negated else equal

    def matches(self, node: Node) -> bool:
        value = node.metadata.name if self.key == NODE_NAME_FIELD else ""
        return (value == self.value) != self.negated


@dataclass(frozen=True, slots=True)
class Term:
    """Requirements that must all hold; without any, nothing matches."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[_Field, ...] = ()

    @property
    def count(self) -> int:
        """How many requirements there are."""
        return len(self.labels) + len(self.fields)

    def mask(self, nodes: NodeColumns, rows: Rows) -> BoolColumn:
        """Which rows match."""
        mask = np.full(len(nodes.present[rows]), self.count > 0)
        for label in self.labels:
            mask &= _meets(label, nodes, rows)
        for field in self.fields:
            mask &= field.mask(nodes, rows)
        return mask

    def matches(self, node: Node) -> bool:
        """Whether the node matches."""
        labels = node.metadata.labels or {}
        met = self.count > 0 and all(one.matches(labels) for one in self.labels)
        return met and all(one.matches(node) for one in self.fields)


@dataclass(frozen=True, slots=True)
class NodeTerms:
    """Terms of which one must match; without any, nothing matches.

    `flaw` is what is wrong with the first that cannot be parsed, which is left out as all such are;
    `error` why there are none.
    """

    terms: tuple[Term, ...]
    flaw: str = ""
    error: str = ""

    def mask(self, nodes: NodeColumns, rows: Rows) -> BoolColumn:
        """Which rows match."""
        mask = np.zeros(len(nodes.present[rows]), dtype=np.bool_)
        for term in self.terms:
            mask |= term.mask(nodes, rows)
        return mask

    def matches(self, node: Node) -> bool:
        """Whether the node matches."""
        return any(term.matches(node) for term in self.terms)

    @property
    def only_values(self) -> dict[str, str]:
        """By label its one value, sorted, if that is all that is asked for; otherwise empty."""
        [term] = self.terms if len(self.terms) == 1 else (Term(),)
        ins = [one for one in term.labels if one.operator == "In" and len(one.values) == 1]
        found = {one.key: one.values[0] for one in sorted(ins)}
        return found if len(found) == term.count else {}


Preferences = tuple[tuple[int, Term], ...]
"""Terms with weights, of which all that match add up."""


def scores(preferences: Preferences, nodes: NodeColumns, rows: Rows) -> Scores:
    """Sum of the weights of the matching terms, a row."""
    total = np.zeros(len(nodes.present[rows]))
    for weight, term in preferences:
        total += term.mask(nodes, rows) * float(weight)
    return total


def matching(selectors: Sequence[NodeTerms], nodes: NodeColumns, rows: Rows) -> BoolColumn:
    """Which rows match all of these."""
    mask = np.ones(len(nodes.present[rows]), dtype=np.bool_)
    for selector in selectors:
        mask &= selector.mask(nodes, rows)
    return mask


def required_of(
    labels: Iterable[tuple[str, str]], required: NodeSelector | None
) -> tuple[NodeTerms, ...]:
    """What a node has to match, all of it, for `spec.nodeSelector` and required node affinity.

    The labels are not validated.
    """
    equal = tuple([Requirement(key, "In", (value,)) for key, value in sorted(labels)])
    own = (NodeTerms((Term(equal),)),) if equal else ()
    return own if required is None else (*own, parse_terms(required))


def parse_terms(selector: NodeSelector) -> NodeTerms:
    """A required selector, each term once. With more than MOST_REQUIREMENTS it matches nothing."""
    terms, flaw = dict[Term, None](), ""
    for i, term in enumerate(selector.node_selector_terms or ()):
        if term.match_expressions or term.match_fields:
            try:
                terms[_parse_term(term, f"nodeSelectorTerms[{i}]")] = None
            except SelectorError as error:
                flaw = flaw or str(error)
    if sum(term.count for term in terms) > MOST_REQUIREMENTS:
        return NodeTerms((), flaw, TOO_MANY)
    return NodeTerms(tuple(terms), flaw)


def parse_preferences(terms: Sequence[PreferredSchedulingTerm]) -> Preferences:
    """Preferred terms; empty ones and those of weight 0 are not even parsed.

    Raises:
        SelectorError: a term cannot be parsed, or there are more than MOST_REQUIREMENTS.
    """
    parsed: dict[Term, int] = {}
    for i, term in enumerate(terms):
        preference = term.preference
        if not term.weight or not (preference.match_expressions or preference.match_fields):
            continue
        found = _parse_term(preference, f"[{i}]")
        parsed[found] = parsed.get(found, 0) + term.weight
    if sum(term.count for term in parsed) > MOST_REQUIREMENTS:
        raise SelectorError(TOO_MANY)
    return tuple([(weight, term) for term, weight in parsed.items()])


def _parse_term(term: NodeSelectorTerm, path: str) -> Term:
    labels: dict[Requirement, None] = {}
    fields: dict[_Field, None] = {}
    where = ""
    try:
        for i, one in enumerate(term.match_expressions or ()):
            where = f"matchExpressions[{i}]"
            labels[requirement(one.key, one.operator, one.values, of_nodes=True)] = None
        for i, one in enumerate(term.match_fields or ()):
            where = f"matchFields[{i}]"
            fields[_parse_field(one)] = None
    except SelectorError as error:
        raise SelectorError(f"{path}.{where}: {error}") from error
    return Term(tuple(labels), tuple(fields))


def _parse_field(expression: SelectorRequirement) -> _Field:
    values = expression.values or ()
    if expression.operator not in ("In", "NotIn"):
        raise SelectorError(f"{expression.operator!r} is not a valid field selector operator")
    if len(values) != 1:
        raise SelectorError(f"{expression.operator} needs one value")
    return _Field(expression.key, values[0], expression.operator == "NotIn")


# ---- one requirement on a label ----------------------------------------------------------------


def _meets(label: Requirement, nodes: NodeColumns, rows: Rows) -> BoolColumn:
    if label.operator in ("Gt", "Lt"):
        return _compares(label, nodes, rows)
    codes = nodes.text(*label_column(label.key))[rows]
    match label.operator:
        case "In":
            return _any_of(codes, label.values, nodes)
        case "NotIn":
            return ~_any_of(codes, label.values, nodes)
        case "Exists":
            return codes >= 0
        case _:
            return codes < 0


def _any_of(codes: CodeColumn, values: Sequence[str], nodes: NodeColumns) -> BoolColumn:
    found = [nodes.dictionary.find(value) for value in values]
    wanted = [code for code in found if code >= 0]
    if len(wanted) > _FEW:
        return np.isin(codes, np.array(wanted, dtype=codes.dtype))
    mask: BoolColumn = np.zeros(len(codes), dtype=np.bool_) if not wanted else codes == wanted[0]
    for code in wanted[1:]:
        mask |= codes == code
    return mask


def _compares(label: Requirement, nodes: NodeColumns, rows: Rows) -> BoolColumn:
    def read(node: Node) -> int:
        number = parse_int64((node.metadata.labels or {}).get(label.key, ""))
        return _NO_NUMBER if number is None else number

    numbers = nodes.derived(f"int64 label:{label.key}", np.int64, _NO_NUMBER, read)[rows]
    bound = int(label.values[0])
    mask: BoolColumn = numbers > bound
    return mask if label.operator == "Gt" else (numbers < bound) & (numbers != _NO_NUMBER)


# ---- as one key --------------------------------------------------------------------------------


def eligibility_key(pod: PodInfo) -> bytes:
    """The pod's selector and required node affinity, empty without any."""
    spec = pod.pod.spec
    affinity = (spec.affinity or Affinity()).node_affinity
    required = affinity and affinity.required_during_scheduling_ignored_during_execution
    if not spec.node_selector and required is None:
        return b""
    return msgspec.msgpack.encode((sorted((spec.node_selector or {}).items()), required))


def eligible(key: bytes, nodes: NodeColumns) -> BoolColumn:
    """(N,) nodes that match and are not cordoned."""
    mask = nodes.present & ~nodes.unschedulable
    return mask & matching(required(key), nodes, slice(0, nodes.size)) if key else mask


_known: Final[Memo[bytes, tuple[NodeTerms, ...]]] = Memo(_BYTES)


def required(key: bytes) -> tuple[NodeTerms, ...]:
    """What a node has to match, all of it, cordoned or not."""
    if not key:
        return ()
    known = _known.get(key)
    if known is not None:
        return known
    parsed = required_of(*msgspec.msgpack.decode(key, type=_Key))
    return _known.put(key, parsed, len(key) * _BYTES_PER_BYTE)
