"""Expressions in, the bounds of their numbers out.

Bounds count as known only where they are reached: a value that occurs twice makes them unknown.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite, isnan
from typing import Final

from dsl import ir
from dsl.analysis.facts import FileFacts
from dsl.analysis.keys import Keys, natural_bounds
from dsl.plan import MetricSpec
from dsl.schema import CATALOGUE
from dsl.types import PLAIN, Level

_SHARES: Final = frozenset(CATALOGUE[one].query for one in ("cpu_usage", "memory_usage"))
#: None of these is ever below 0.
_BUNDLED: Final = frozenset(one.query for one in CATALOGUE.values())
_RELATIVE: Final = ("max", "sum")
_KEEPING: Final = ("max", "min", "avg", "median")
OfMetric = Callable[[MetricSpec, float, float], tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Range:
    """What a number can be, what it depends on, and whether both ends are really reached."""

    low: float
    high: float
    leaves: frozenset[int] = frozenset()
    exact: bool = True

    @property
    def known(self) -> bool:
        """Whether both ends are known and reached."""
        return self.exact and isfinite(self.low) and isfinite(self.high)


_UNKNOWN: Final = Range(-inf, inf, exact=False)


class Ranges:
    """Bounds of the numbers of one file."""

    def __init__(
        self, facts: FileFacts, keys: Keys | None = None, known: OfMetric | None = None
    ) -> None:
        """`known` says what else is known of a metric, from its specification and its bounds.

        With it a quotient of what a node has is a share of it, whatever was promised.
        """
        self._known = known
        self._keys = keys or Keys()
        self._metrics = facts.metrics
        self._found: dict[int, Range] = {}

    def range(self, root: ir.Expr) -> Range:
        """Returns the bounds of a number."""
        self._keys.key(root)
        for node in ir.parts_first(root, self._found):
            self._found[id(node)] = self._bounds(node)
        return self._of(root)

    def _of(self, node: ir.Expr) -> Range:
        return self._found[id(node)]

    def _bounds(self, node: ir.Expr) -> Range:  # noqa: C901 - one case a kind
        if not node.type.is_number:
            return _UNKNOWN
        match node:
            case ir.Named():
                return self._of(node.body)
            case ir.Const(value=float() as value):
                return _UNKNOWN if isnan(value) else Range(value, value)
            case ir.Read():
                low, high = natural_bounds(node)
                return Range(low, high, frozenset({self._keys.key(node)}))
            case ir.Metric():
                low, high = self._metric_bounds(node)
                return Range(low, high, frozenset({self._keys.key(node)}))
            case ir.Rank() | ir.Func(name="hash"):
                return Range(0.0, 1.0, self.leaves_of([node]))
            case ir.Negate():
                one = self._of(node.operand)
                return Range(-one.high, -one.low, one.leaves, one.exact)
            case ir.Arith() if node.operators[0] in "+-":
                return self._sum(node)
            case ir.Arith():
                return self._product(node)
            case ir.If():
                return self._choice(node)
            case ir.Coalesce():
                return _union([self._of(one) for one in node.operands])
            case ir.Func():
                return self._call(node)
            case ir.NodeAggregate() | ir.PodAggregate() | ir.ItemAggregate():
                return self._aggregate(node)
            case _:
                return _UNKNOWN

    def _metric_bounds(self, node: ir.Metric) -> tuple[float, float]:
        if node.age:
            return 0.0, inf
        spec = self._metrics.get(node.name)
        if spec is None:
            return -inf, inf
        unit = node.type.unit or PLAIN
        counted = not unit.is_plain or is_percent(spec) or spec.query in _BUNDLED
        low, high = (0.0 if counted else -inf), inf
        if spec.query in _SHARES:
            low, high = 0.0, 1.0
        if spec.default is not None:
            low, high = min(low, spec.default), max(high, spec.default)
        return (low, high) if self._known is None else self._known(spec, low, high)

    def _sum(self, node: ir.Arith) -> Range:
        total = self._of(node.operands[0])
        for operator, operand in zip(node.operators, node.operands[1:], strict=True):
            one = self._of(operand)
            if operator == "-":
                one = Range(-one.high, -one.low, one.leaves, one.exact)
            total = Range(total.low + one.low, total.high + one.high, *_joined(total, one))
        return total

    def _product(self, node: ir.Arith) -> Range:
        first = node.operands[0]
        above = [first.operand if isinstance(first, ir.Negate) else first]
        below: list[ir.Expr] = []
        for operator, operand in zip(node.operators, node.operands[1:], strict=True):
            (above if operator == "*" else below).append(operand)
        parts: list[Range] = [Range(-1.0, -1.0)] if isinstance(first, ir.Negate) else []
        for divisor in below:
            share = self._share(above, divisor)
            if share is not None:
                parts.append(share)
                continue
            one = self._of(divisor)
            if one.low <= 0 <= one.high:
                return _UNKNOWN
            ends = sorted((1 / one.low, 1 / one.high))
            parts.append(Range(ends[0], ends[1], one.leaves, one.exact))
        total = Range(1.0, 1.0)
        for one in (*(self._of(operand) for operand in above), *parts):
            ends = [
                0.0 if 0.0 in (a, b) else a * b
                for a in (total.low, total.high)
                for b in (one.low, one.high)
            ]
            total = Range(min(ends), max(ends), *_joined(total, one))
        return total

    def _share(self, above: list[ir.Expr], divisor: ir.Expr) -> Range | None:
        """`x / max(x)` of a value that is not negative is 0..1; takes `x` out of `above`."""
        for index, one in enumerate(above if self._known is not None else ()):
            if _is_share(one, divisor):
                del above[index]
                return Range(0.0, 1.0, self.leaves_of([one]))
        whole = ir.unnamed(divisor) if self._known is None else inner(divisor)
        if not isinstance(whole, ir.NodeAggregate) or whole.function not in _RELATIVE:
            return None
        if whole.value is None or whole.where is not None:
            return None
        wanted = self._keys.key(whole.value)
        for index, one in enumerate(above):
            if self._keys.key(one) == wanted and self._of(one).low >= 0:
                del above[index]
                return Range(0.0, 1.0 if self._of(one).high > 0 else 0.0, self.leaves_of([one]))
        return None

    def _choice(self, node: ir.If) -> Range:
        both = _union([self._of(node.then), self._of(node.other)])
        asked = self.leaves_of([node.condition])
        free = not asked & both.leaves and node.condition.level is not Level.CONST
        return Range(both.low, both.high, both.leaves | asked, both.exact and free)

    def _call(self, node: ir.Func) -> Range:
        args = [self._of(one) for one in node.args]
        leaves, exact = _all_joined(args)
        match node.name:
            case "plain":
                return args[0]
            case "min":
                return Range(min(a.low for a in args), min(a.high for a in args), leaves, exact)
            case "max":
                return Range(max(a.low for a in args), max(a.high for a in args), leaves, exact)
            case _:
                low_end, high_end = natural_bounds(node)
                of_it = self.leaves_of([node]) | {self._keys.key(node)}
                return Range(low_end, high_end, of_it, exact=low_end > -inf)

    def _aggregate(self, node: ir.NodeAggregate | ir.PodAggregate | ir.ItemAggregate) -> Range:
        leaves = self.leaves_of([node]) | {self._keys.key(node)}
        if node.function in ("count", "distinct"):
            return Range(0.0, inf, leaves)
        if node.value is None:
            return _UNKNOWN
        one = self._of(node.value)
        if node.function in _KEEPING:
            return Range(one.low, one.high, leaves, one.exact and node.where is None)
        return Range(0.0 if one.low >= 0 else -inf, inf, leaves, exact=False)

    def leaves_of(self, roots: Iterable[ir.Expr]) -> frozenset[int]:
        """Returns what of the world expressions read."""
        return frozenset(
            self._keys.key(one) for one in ir.walk(*roots) if isinstance(one, ir.Read | ir.Metric)
        )


def _joined(a: Range, b: Range) -> tuple[frozenset[int], bool]:
    return a.leaves | b.leaves, a.exact and b.exact and not a.leaves & b.leaves


def _all_joined(parts: Sequence[Range]) -> tuple[frozenset[int], bool]:
    total = Range(0.0, 0.0)
    for one in parts:
        total = Range(0.0, 0.0, *_joined(total, one))
    return total.leaves, total.exact


def _union(parts: Sequence[Range]) -> Range:
    leaves = frozenset(one for part in parts for one in part.leaves)
    low, high = min(one.low for one in parts), max(one.high for one in parts)
    return Range(low, high, leaves, all(one.exact for one in parts))


def is_percent(spec: MetricSpec) -> bool:
    """Whether its samples are shares of a whole: 0..1 once they are scaled."""
    return spec.scale < 1 and not spec.unit


def inner(node: ir.Expr) -> ir.Expr:
    """Returns what is meant where there is data: behind lets and before `??`."""
    while isinstance(node, ir.Named | ir.Coalesce):
        node = node.body if isinstance(node, ir.Named) else node.operands[0]
    return node


def _is_share(part: ir.Expr, whole: ir.Expr) -> bool:
    """Whether a quotient is a share of what a node has: `node.cpu.free / node.cpu.allocatable`."""
    whole = inner(whole)
    if not isinstance(whole, ir.Read):
        return False
    of, _, which = whole.field.rpartition(".")
    return which in ("allocatable", "capacity") and _is_amount(part, of, whole.key)


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
