"""Shares of 1 that meet numbers out of 100: `cpu_usage < 80` (P222).

A share is a metric of that kind, `x/max(x)`, or an amount over what a node has of it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from dsl import ir
from dsl.analysis.facts import RuleFacts, roots, warning
from dsl.analysis.ranges import is_percent
from dsl.diagnostics import Diagnostic, Fix
from dsl.plan import MetricSpec

_HUNDRED: Final = 100.0
_ONE: Final = 1.0
#: Above which a share of what a node has is meant to be out of 100: nodes may be overcommitted.
_OVERCOMMITTED: Final = 4.0


Metrics = Mapping[str, MetricSpec]


def compared(rule: RuleFacts, metrics: Metrics) -> Iterator[Diagnostic]:
    """Yields a share compared with 80, and a count with 80%."""
    for node in ir.walk(*roots(rule.core)):
        if isinstance(node, ir.Compare):
            for one, other in ((node.left, node.right), (node.right, node.left)):
                if isinstance(other, ir.Const) and isinstance(other.value, float):
                    yield from _beside(rule, one, other, _limit(one, metrics))


def _beside(rule: RuleFacts, one: ir.Expr, other: ir.Const, limit: float) -> Iterator[Diagnostic]:
    value, text = other.value, rule.source.slice(other.span)
    assert isinstance(value, float)
    named = rule.text(one.span)
    if text.endswith("%") and value != int(value) and _is_counted(one):
        message = f"`{named}` is a whole number, and `{text}` is {value:g}"
        help_ = f"write  {text} of X   for a share of something"
        yield warning("P222", message, rule.source, other.span, help_)
    elif limit and limit < value <= _HUNDRED:
        fix = Fix(other.span, f"{text}%") if re.fullmatch(r"\d+(\.\d+)?", text) else None
        message = f"`{named}` is a share from 0 to 1, and `{text}` is far above"
        yield warning("P222", message, rule.source, other.span, f"did you mean {text}%?", fix=fix)


def _limit(node: ir.Expr, metrics: Metrics) -> float:
    """Returns above which value a share cannot be; 0 for what is no share."""
    node = inner(node)
    if isinstance(node, ir.Rank) or (isinstance(node, ir.Func) and node.name == "hash"):
        return _ONE
    if isinstance(node, ir.Metric) and not node.age:
        if node.name in ("cpu_usage", "memory_usage"):
            return _ONE
        spec = metrics.get(node.name)
        return _OVERCOMMITTED if spec is not None and is_percent(spec) else 0.0
    if isinstance(node, ir.Arith) and node.operators == ("/",):
        return ratio(*node.operands)
    return 0.0


def _is_counted(node: ir.Expr) -> bool:
    """Whether this is a whole number of things."""
    if isinstance(node, ir.If):
        # What `peers` makes of a node that is in no domain is missing.
        node = node.other
    if isinstance(node, ir.Read):
        return not node.field.startswith("score")
    aggregates = ir.PodAggregate | ir.NodeAggregate | ir.ItemAggregate
    return isinstance(node, aggregates) and node.function in ("count", "distinct")


def inner(node: ir.Expr) -> ir.Expr:
    """Returns what is meant where there is data: behind lets and before `??`."""
    while isinstance(node, ir.Named | ir.Coalesce):
        node = node.body if isinstance(node, ir.Named) else node.operands[0]
    return node


def ratio(part: ir.Expr, whole: ir.Expr) -> float:
    """Returns above which value a ratio of the same resource, or to the highest, cannot be."""
    part, whole = inner(part), inner(whole)
    if isinstance(whole, ir.NodeAggregate) and isinstance(whole.value, ir.Metric):
        if whole.function != "max" or not isinstance(part, ir.Metric) or part.age:
            return 0.0
        return _ONE if part.name == whole.value.name else 0.0
    if not isinstance(whole, ir.Read):
        return 0.0
    of, _, which = whole.field.rpartition(".")
    if which not in ("allocatable", "capacity") or not _is_amount(part, of, whole.key):
        return 0.0
    free = isinstance(part, ir.Read) and part.field.endswith(".free")
    return _ONE if free else _OVERCOMMITTED


def _is_amount(node: ir.Expr, of: str, key: str | None) -> bool:
    """Whether this is an amount of what `of` counts, or a sum of such: `requested + pod.cpu`."""
    node = inner(node)
    if isinstance(node, ir.Arith):
        parts = node.operands
        return set(node.operators) <= {"+", "-"} and all(_is_amount(one, of, key) for one in parts)
    if not isinstance(node, ir.Read):
        return False
    own = node.field == f"pod.{of.rpartition('.')[2]}"
    return own or (node.field.rpartition(".")[0] == of and node.key == key)
