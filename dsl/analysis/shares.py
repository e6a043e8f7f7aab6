"""Shares of 1 and numbers out of 100 that meet: `cpu_usage < 80`, `1 - load/max` (P222, P225).

A share is a metric of that kind, `x/max(x)`, or an amount over what a node has of it.
"""

import re
from collections.abc import Iterator
from typing import Final

from dsl import ir
from dsl.analysis.facts import RuleFacts, roots, warning
from dsl.diagnostics import Diagnostic, Fix
from dsl.plan import MetricSpec

_HUNDRED: Final = 100.0
_ONE: Final = 1.0
#: Above which a share of what a node has is meant to be out of 100: nodes may be overcommitted.
_OVERCOMMITTED: Final = 4.0
_WEIGHED: Final = re.compile(r"(?m)^(?:score|prefer|avoid|weight|normalize)[ \t]*:")

Ends = tuple[float, float]


class Shares:
    """Looks for shares in the rules of one file."""

    def __init__(self, metrics: dict[str, MetricSpec]) -> None:
        self._metrics = metrics

    def compared(self, rule: RuleFacts) -> Iterator[Diagnostic]:
        """Yields a share compared with 80, and a count with 80%."""
        for node in ir.walk(*roots(rule.core)):
            if isinstance(node, ir.Compare):
                for one, other in ((node.left, node.right), (node.right, node.left)):
                    if isinstance(other, ir.Const) and isinstance(other.value, float):
                        yield from self._beside(rule, one, other, other.value)

    def _beside(
        self, rule: RuleFacts, one: ir.Expr, other: ir.Const, value: float
    ) -> Iterator[Diagnostic]:
        limit, text = self._limit(one), rule.source.slice(other.span)
        named = " ".join(rule.source.slice(one.span).split())
        if text.endswith("%") and value != int(value) and _is_counted(one):
            message = f"`{named}` is a whole number, and `{text}` is {value:g}"
            help_ = f"write  {text} of X   for a share of something"
            yield warning("P222", message, rule.source, other.span, help_)
        elif limit and limit < value <= _HUNDRED:
            fix = Fix(other.span, f"{text}%") if re.fullmatch(r"\d+(\.\d+)?", text) else None
            message = f"`{named}` is a share from 0 to 1, and `{text}` is far above"
            yield warning(
                "P222", message, rule.source, other.span, f"did you mean {text}%?", fix=fix
            )

    def _limit(self, node: ir.Expr) -> float:
        """Returns above which value a share cannot be; 0 for what is no share."""
        node = _inner(node)
        if isinstance(node, ir.Rank) or (isinstance(node, ir.Func) and node.name == "hash"):
            return _ONE
        if isinstance(node, ir.Metric) and not node.age:
            if node.name in ("cpu_usage", "memory_usage"):
                return _ONE
            spec = self._metrics.get(node.name)
            return _OVERCOMMITTED if spec is not None and spec.scale < 1 and not spec.unit else 0.0
        if isinstance(node, ir.Arith) and node.operators == ("/",):
            return _ratio(*node.operands)
        return 0.0

    # ---- scores

    def scored(self, rule: RuleFacts) -> Iterator[Diagnostic]:
        """Yields a score made of a share that nobody multiplied by 100."""
        core = rule.core
        if not isinstance(core, ir.ScoreCore) or core.norm != "none":
            return
        ends = self._ends(core.value, {})
        if ends is None or not 0 < ends[1] - ends[0] <= _ONE:
            return
        weighed = len(_WEIGHED.findall(rule.source.text)) > 1 or core.weight != 1
        if isinstance(_inner(core.value), ir.If) and (weighed or ends[1] > _ONE):
            return  # Small on purpose, beside others.
        text = " ".join(rule.source.slice(rule.right).split())
        message = f"this score goes from {ends[0]:g} to {ends[1]:g} only, of 100"
        simple = ends[0] >= 0 and ends[1] <= _ONE
        helps = (f"write  ({text})*100",) if simple else ("multiply the share by 100",)
        yield warning("P225", message, rule.source, rule.right, *helps)

    def _ends(self, node: ir.Expr, known: dict[int, Ends | None]) -> Ends | None:
        """Returns between what a sum of shares and constants lies, None for anything else.

        A ratio to what a node has counts as at most 1, whatever was promised beyond. `known` are
        the nodes that were asked: a let may stand in a sum twice, and in its let again.
        """
        node = _inner(node)
        if id(node) not in known:
            known[id(node)] = self._ends_of(node, known)
        return known[id(node)]

    def _ends_of(self, node: ir.Expr, known: dict[int, Ends | None]) -> Ends | None:
        if isinstance(node, ir.Const):
            return (node.value, node.value) if isinstance(node.value, float) else None
        if self._limit(node):
            return 0.0, 1.0
        if isinstance(node, ir.If):
            return _around([self._ends(one, known) for one in (node.then, node.other)])
        if isinstance(node, ir.Func) and node.name in ("min", "max", "median"):
            return _around([self._ends(one, known) for one in node.args])
        if not isinstance(node, ir.Arith):
            return None
        first, second = node.operands[:2]
        ratio = node.operators[0] == "/" and _ratio(first, second) > 0
        ends, at = ((0.0, 1.0), 1) if ratio else (self._ends(first, known), 0)
        if node.operators[:2] == ("*", "/") and _ratio(*node.operands[1:3]):
            # `100*x/y` reads from the left, and means the same.
            ends, at = _joined("*", ends, (0.0, 1.0)), 2
        for operator, one in zip(node.operators[at:], node.operands[at + 1 :], strict=True):
            ends = _joined(operator, ends, self._ends(one, known))
        return ends


def _around(parts: list[Ends | None]) -> Ends | None:
    ends = [one for one in parts if one is not None]
    if len(ends) < len(parts):
        return None
    return min(one[0] for one in ends), max(one[1] for one in ends)


def _joined(operator: str, left: Ends | None, right: Ends | None) -> Ends | None:
    if left is None or right is None:
        return None
    if operator == "+":
        return left[0] + right[0], left[1] + right[1]
    if operator == "-":
        return left[0] - right[1], left[1] - right[0]
    for (factor, same), other in ((left, right), (right, left)):
        if operator == "*" and factor == same and factor >= 0:
            return factor * other[0], factor * other[1]
    divisor, same = right
    if operator == "/" and divisor == same and divisor > 0:
        return left[0] / divisor, left[1] / divisor
    return None


def _is_counted(node: ir.Expr) -> bool:
    """Whether this is a whole number of things."""
    if isinstance(node, ir.If):
        # What `peers` makes of a node that is in no domain is missing.
        node = node.other
    if isinstance(node, ir.Read):
        return not node.field.startswith("score")
    aggregates = ir.PodAggregate | ir.NodeAggregate | ir.ItemAggregate
    return isinstance(node, aggregates) and node.function in ("count", "distinct")


def _inner(node: ir.Expr) -> ir.Expr:
    """Returns what is meant where there is data: behind lets and before `??`."""
    while isinstance(node, ir.Named | ir.Coalesce):
        node = node.body if isinstance(node, ir.Named) else node.operands[0]
    return node


def _ratio(part: ir.Expr, whole: ir.Expr) -> float:
    """Returns above which value a ratio of the same resource, or to the highest, cannot be."""
    part, whole = _inner(part), _inner(whole)
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
    node = _inner(node)
    if isinstance(node, ir.Arith):
        parts = node.operands
        return set(node.operators) <= {"+", "-"} and all(_is_amount(one, of, key) for one in parts)
    if not isinstance(node, ir.Read):
        return False
    own = node.field == f"pod.{of.rpartition('.')[2]}"
    return own or (node.field.rpartition(".")[0] == of and node.key == key)
