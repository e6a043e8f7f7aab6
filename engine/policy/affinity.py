"""Filters as node affinity: a rule in, the terms that say the same, or what no affinity can say.

Nothing here writes YAML or asks a cluster. A rule is about labels and the name of a node if all of
its test is; then it is brought into the form of `nodeSelectorTerms`: any of several, all of each.

Source: kubernetes component-helpers scheduling/corev1/nodeaffinity; apimachinery
labels/selector.go.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dsl import ir
from dsl.diagnostics import Diagnostic, Severity
from dsl.plan import FilterRule, Plan, RuleBase
from dsl.schema import WELL_KNOWN_LABELS
from dsl.source import Span

MOST_TERMS: Final = 32
MOST_REQUIREMENTS: Final = 64
NAME_FIELD: Final = "metadata.name"
_VALUE: Final = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_KEY: Final = re.compile(
    r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?",
    re.ASCII,
)
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_BEYOND: Final = (
    "affinity compares only labels and names of nodes, as a whole, with constants:"
    " in, not in, exists, greater and less"
)
_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}


@dataclass(frozen=True, slots=True)
class Requirement:
    """One of `matchExpressions`, or of `matchFields` where the key is `metadata.name`."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


Term = tuple[Requirement, ...]
Terms = tuple[Term, ...]
EVERYWHERE: Final[Terms] = ((),)
NOWHERE: Final[Terms] = ()


class CannotSay(Exception):  # noqa: N818 - an answer about a rule, and no fault
    """A part of a rule that no node affinity can say, and why."""

    def __init__(self, span: Span, why: str) -> None:
        super().__init__(why)
        self.span = span


@dataclass(frozen=True, slots=True)
class Said:
    """A rule as terms, for the pods of its guard (None: all); `whole` names labels of numbers."""

    rule: FilterRule
    guard: str | None
    terms: Terms
    whole: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unsaid:
    """A line that cannot be said as affinity, why, and which part of it."""

    rule: RuleBase
    span: Span
    why: str


def said(rule: FilterRule) -> Said | Unsaid:
    """The rule as node affinity, if it is one."""
    core = rule.core
    if core.longer:
        return Unsaid(rule, rule.span, "it looks into a list of unknown length")
    try:
        terms = _terms(core.test, holds=True)
    except CannotSay as why:
        return Unsaid(rule, why.span, str(why))
    if terms == NOWHERE:
        return Unsaid(rule, core.test.span, "it allows no node, which affinity cannot express")
    guard = None if core.guard is None else text_of(rule, core.guard.span)
    numbers = (one for one in ir.walk(core.test) if isinstance(one, ir.Func))
    return Said(rule, guard, terms, tuple(sorted({_label(one.args[0]) for one in numbers})))


def unseen(plan: Plan) -> Iterator[Diagnostic]:
    """A note for each filter that decides where pods go and that autoscalers know nothing of."""
    for rule in plan.filters if plan.mode == "enforce" else ():
        found = said(rule)
        if isinstance(found, Said):
            help_ = "say the same in the pods: `berth export-affinity` prints what to write there"
        else:
            part = text_of(rule, found.span)
            help_ = f"`{part}`: {found.why}; what that means is in docs/autoscalers.md"
        yield Diagnostic(
            "P405",
            "cluster-autoscaler and Karpenter do not see this filter",
            rule.source,
            rule.span,
            Severity.NOTE,
            helps=(help_,),
        )


def text_of(rule: RuleBase, span: Span) -> str:
    """The text of a part of a rule, on one line."""
    return " ".join(rule.source.text[span.start : span.end].split())


def both(one: Terms, other: Terms) -> Terms | None:
    """The terms that hold where both do; None if they are more than a pod may have."""
    made = dict.fromkeys(tuple(dict.fromkeys((*a, *b))) for a in one for b in other)
    short = _without_supersets(made)
    if len(short) > MOST_TERMS or any(len(term) > MOST_REQUIREMENTS for term in short):
        return None
    return short


def _without_supersets(terms: dict[Term, None]) -> Terms:
    """A term that asks for more than another adds nothing."""
    sets = {term: frozenset(term) for term in terms}
    return tuple(
        term for term in terms if not any(sets[two] < sets[term] for two in terms if two != term)
    )


def _terms(node: ir.Expr, *, holds: bool) -> Terms:
    """Where a test holds, or where it does not.

    Raises:
        CannotSay: no affinity says that.
    """
    node = _bare(node)
    match node:
        case ir.Const() if isinstance(node.value, bool):
            return EVERYWHERE if node.value is holds else NOWHERE
        case ir.Not():
            return _terms(node.operand, holds=not holds)
        case ir.Logical():
            return _logical(node, holds=holds)
        case ir.Missing():
            key = _label(node.operand)
            if key == NAME_FIELD:
                return NOWHERE if holds else EVERYWHERE
            return ((Requirement(key, "DoesNotExist" if holds else "Exists"),),)
        case ir.Compare():
            return _compare(node, holds=holds)
        case ir.Member(items=ir.Const(value=tuple() as items)):
            return _in(_label(node.item), items, holds=holds)
        case _:
            raise CannotSay(node.span, _BEYOND)


def _logical(node: ir.Logical, *, holds: bool) -> Terms:
    each = [_terms(one, holds=holds) for one in node.operands]
    if (node.operator == "and") is not holds:
        made = _without_supersets(dict.fromkeys(term for terms in each for term in terms))
        if len(made) > MOST_TERMS:
            raise CannotSay(node.span, f"that is more than {MOST_TERMS} alternatives")
        return made
    found: Terms = EVERYWHERE
    for terms in each:
        joined = both(found, terms)
        if joined is None:
            raise CannotSay(node.span, f"written out that is more than {MOST_TERMS} terms")
        found = joined
    return found


def _compare(node: ir.Compare, *, holds: bool) -> Terms:
    operator, left, right = node.operator, _bare(node.left), _bare(node.right)
    if isinstance(left, ir.Const):
        operator, left, right = _TURNED[operator], right, left
    match left, right:
        case _, ir.Const(value=str() as text):
            return _in(_label(left), (text,), holds=holds)
        case ir.Func(name="number", args=(read,)), ir.Const(value=float() as number):
            low, high = _bounds(operator, number)
            return _range(node, _label(read), low, high, holds=holds)
        case _:
            raise CannotSay(node.span, _BEYOND)


def _range(node: ir.Expr, key: str, low: int | None, high: int | None, *, holds: bool) -> Terms:
    """The whole numbers between two, ends excluded; a label that is no number is outside."""
    if any(one is not None and not _LEAST <= one <= _MOST for one in (low, high)):
        raise CannotSay(node.span, "the number is too large for a label's")
    if key == NAME_FIELD:
        raise CannotSay(node.span, "affinity compares no names as numbers")
    # A label's number has no sign: above -1 are all, below 0 is none.
    low = None if low is None or low < 0 else low
    if holds:
        above = () if low is None else (Requirement(key, "Gt", (str(low),)),)
        below = () if high is None else (Requirement(key, "Lt", (str(high),)),)
        none = high is not None and high <= 0
        return NOWHERE if none else ((*above, *below) or (Requirement(key, "Exists"),),)
    outside: list[Term] = [(Requirement(key, "DoesNotExist"),)]
    if high is not None and high <= 0:
        return EVERYWHERE
    if low is not None:
        outside.append((Requirement(key, "Lt", (str(low + 1),)),))
    if high is not None:
        outside.append((Requirement(key, "Gt", (str(high - 1),)),))
    return tuple(outside)


def _bounds(operator: str, value: float) -> tuple[int | None, int | None]:
    """The whole numbers that compare so with a number, as those between two, ends excluded."""
    match operator:
        case ">":
            return math.floor(value), None
        case ">=":
            return math.ceil(value) - 1, None
        case "<":
            return None, math.ceil(value)
        case "<=":
            return None, math.floor(value) + 1
        case _:
            return math.ceil(value) - 1, math.floor(value) + 1


def _in(key: str, items: Sequence[object], *, holds: bool) -> Terms:
    values = tuple(dict.fromkeys(one for one in items if isinstance(one, str)))
    if key == NAME_FIELD:
        # A field takes one value.
        if holds:
            return tuple((Requirement(key, "In", (value,)),) for value in values)
        return (tuple(Requirement(key, "NotIn", (value,)) for value in values),)
    # What no label can be is never equal, and affinity refuses to be asked.
    values = tuple(value for value in values if _VALUE.fullmatch(value))
    if not values:
        return NOWHERE if holds else EVERYWHERE
    return ((Requirement(key, "In" if holds else "NotIn", values),),)


def _bare(node: ir.Expr) -> ir.Expr:
    """What stands behind a name."""
    while isinstance(node, ir.Named):
        node = node.body
    return node


def _label(node: ir.Expr) -> str:
    """The key of the label that is read; that of the field of names.

    Raises:
        CannotSay: it is something else.
    """
    node = _bare(node)
    match node:
        case ir.Read(field="node.label", key=str() as key):
            if not _KEY.fullmatch(key):
                raise CannotSay(node.span, f"{key!r} is not a valid label key")
            return key
        case ir.Read(field="node.name"):
            return NAME_FIELD
        case ir.Read() if node.field in WELL_KNOWN_LABELS:
            return WELL_KNOWN_LABELS[node.field]
    raise CannotSay(node.span, _BEYOND)
