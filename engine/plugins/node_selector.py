"""Node selectors over label columns: an API selector in, masks out; the same for one node.

A term that cannot be parsed matches nothing, in required selectors silently. Gt and Lt compare
whole numbers of 64 bits, exactly.

Source: k8s.io/component-helpers scheduling/corev1/nodeaffinity, k8s.io/apimachinery pkg/labels
(NewRequirement, Matches) and pkg/fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
_LOW_BITS: Final = 32
_LOW: Final = (1 << _LOW_BITS) - 1
_FEW: Final = 8
MOST_REQUIREMENTS: Final = 500
"""Of one selector, equal ones and those that come to one counted once: each costs a look at all
nodes."""
_BYTES: Final = 2 << 20
BYTES_PER_BYTE: Final = 5
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
    """Requirements that must all hold; without any, nothing matches. `error`: nothing either."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[_Field, ...] = ()
    error: str = ""

    @property
    def count(self) -> int:
        """How many requirements there are."""
        return len(self.labels) + len(self.fields)

    @property
    def only(self) -> Requirement | None:
        """The requirement, if it is one on a label."""
        return self.labels[0] if self.labels and self.count == 1 else None

    def mask(self, nodes: NodeColumns, rows: Rows) -> BoolColumn:
        """Which rows match."""
        mask = np.full(len(nodes.present[rows]), self.count > 0 and not self.error)
        for label in self.labels:
            mask &= _meets(label, nodes, rows)
        for field in self.fields:
            mask &= field.mask(nodes, rows)
        return mask

    def matches(self, node: Node) -> bool:
        """Whether the node matches."""
        if self.error or not self.count:
            return False
        labels = node.metadata.labels or {}
        met = all(one.matches(labels) for one in self.labels)
        return met and all(one.matches(node) for one in self.fields)


@dataclass(frozen=True, slots=True)
class NodeTerms:
    """Terms of which one must match; without any, nothing matches. `error`: nothing either."""

    terms: tuple[Term, ...]
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
        return found if len(found) == term.count and not term.error else {}

    @property
    def flaw(self) -> str:
        """What is wrong with the first term that cannot be parsed; empty if all can."""
        return next((term.error for term in self.terms if term.error), "")


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


def parse_required(
    labels: Iterable[tuple[str, str]], required: NodeSelector | None
) -> tuple[NodeTerms, ...]:
    """What a node has to match, all of it, for `spec.nodeSelector` and required node affinity.

    The labels are not validated.
    """
    equal = tuple([Requirement(key, "In", (value,)) for key, value in sorted(labels)])
    own = (NodeTerms((Term(equal),)),) if equal else ()
    return own if required is None else (*own, parse_terms(required))


def parse_terms(selector: NodeSelector) -> NodeTerms:
    """A required selector; a term that cannot be parsed carries its error, the first is kept.

    With more than MOST_REQUIREMENTS it matches nothing.
    """
    terms = _alternatives(
        _parse_term(term, f"nodeSelectorTerms[{i}]")
        for i, term in enumerate(selector.node_selector_terms or ())
        if term.match_expressions or term.match_fields
    )
    if sum(term.count for term in terms) > MOST_REQUIREMENTS:
        return NodeTerms((), TOO_MANY)
    return NodeTerms(terms)


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
        if found.error:
            raise SelectorError(found.error)
        parsed[found] = parsed.get(found, 0) + term.weight
    if sum(term.count for term in parsed) > MOST_REQUIREMENTS:
        raise SelectorError(TOO_MANY)
    return tuple([(weight, term) for term, weight in parsed.items()])


def _alternatives(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Equal terms once; those of one requirement on a label as few as say the same."""
    flawed: list[Term] = []
    others: dict[Term, None] = {}
    united: dict[tuple[str, str], list[Requirement]] = {}
    for term in terms:
        if term.error:
            flawed = flawed or [term]
        elif term.only is not None and term.only.operator in ("In", "Gt", "Lt"):
            united.setdefault(term.only[:2], []).append(term.only)
        else:
            others[term] = None
    return *flawed, *others, *(Term((_any_of_them(labels),)) for labels in united.values())


def _any_of_them(labels: Sequence[Requirement]) -> Requirement:
    """One requirement for several on one label with one operator, of which one has to hold."""
    first = labels[0]
    if first.operator == "In":
        values = dict.fromkeys(value for label in labels for value in label.values)
        return Requirement(first.key, "In", tuple(values))
    bounds = [int(label.values[0]) for label in labels]
    bound = min(bounds) if first.operator == "Gt" else max(bounds)
    return Requirement(first.key, first.operator, (str(bound),))


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
        return Term(error=f"{path}.{where}: {error}")
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
    # A float column holds 32 bits exactly, so a number takes two. NaN compares as False.
    high = nodes.number(*_number_column(label.key, _high))[rows]
    low = nodes.number(*_number_column(label.key, _low))[rows]
    bound = int(label.values[0])
    high_bound, low_bound = _high(bound), _low(bound)
    same = high == high_bound
    mask: BoolColumn
    if label.operator == "Gt":
        mask = (high > high_bound) | (same & (low > low_bound))
    else:
        mask = (high < high_bound) | (same & (low < low_bound))
    return mask


def _number_column(key: str, part: Callable[[int], float]) -> tuple[str, Callable[[Node], float]]:
    def read(node: Node) -> float:
        value = (node.metadata.labels or {}).get(key)
        number = None if value is None else parse_int64(value)
        return float("nan") if number is None else part(number)

    return f"label{part.__name__}:{key}", read


def _high(number: int) -> float:
    return float(number >> _LOW_BITS)


def _low(number: int) -> float:
    return float(number & _LOW)


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
    parsed = parse_required(*msgspec.msgpack.decode(key, type=_Key))
    return _known.put(key, parsed, len(key) * BYTES_PER_BYTE)
