"""Bounds of numbers: scores out of 0..100, divisors that can be 0, constant scores (P310-P314).

Bounds count as known only where they are reached: a value that occurs twice makes them unknown.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite, isnan
from typing import Final

from dsl import functions, ir
from dsl import syntax as s
from dsl.analysis.facts import FileFacts, RuleFacts, conditions, guard_of, values, warning
from dsl.analysis.keys import Keys, bare, natural_bounds
from dsl.diagnostics import Diagnostic, Label
from dsl.plan import MetricSpec
from dsl.schema import CATALOGUE, FIELDS
from dsl.types import DURATION, PLAIN, Kind, Level, show

_FULL: Final = 100.0
_SLACK: Final = 1e-6
_SHARES: Final = frozenset(CATALOGUE[one].query for one in ("cpu_usage", "memory_usage"))
#: None of these is ever below 0.
_BUNDLED: Final = frozenset(one.query for one in CATALOGUE.values())
_BEST: Final = "a node without data gets the best score of this rule"
_RELATIVE: Final = ("max", "sum")
_KEEPING: Final = ("max", "min", "avg", "median")
_MONOTONE: Final = ("floor", "ceil", "round", "sqrt", "log2", "exp", "plain", "number")


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

    def __init__(self, facts: FileFacts, keys: Keys | None = None) -> None:
        self._facts = facts
        self._keys = keys or Keys()
        self._metrics = facts.metrics
        self._found: dict[int, Range] = {}

    def file(self) -> Iterator[Diagnostic]:
        """Yields findings about the numbers of the file's rules."""
        for rule in self._facts.rules:
            if isinstance(rule.core, ir.ScoreCore):
                yield from self._constant(rule, rule.core)
                yield from self._outside(rule, rule.core)
                yield from self._attracting(rule, rule.core)
            yield from self._divisions(rule)

    # ---- P312, P310

    def _constant(self, rule: RuleFacts, core: ir.ScoreCore) -> Iterator[Diagnostic]:
        weight = next((one for one in rule.clauses if one.name == "weight"), None)
        if core.weight == 0 and weight is not None and not isinstance(weight.values[0], s.Param):
            message = "a rule of weight 0 has no effect"
            yield warning("P312", message, rule.source, weight.span, "remove the rule")
        elif core.value.level < Level.NODE and core.value.type.kind is not Kind.BOOL:
            message = "this score is the same for all nodes, so it chooses none of them"
            help_ = "use something of the node, for example  node.cpu.free/node.cpu.allocatable*100"
            yield warning("P312", message, rule.source, rule.right, help_)

    def _outside(self, rule: RuleFacts, core: ir.ScoreCore) -> Iterator[Diagnostic]:
        if core.norm != "none":
            return
        found = self.range(core.value)
        text = " ".join(rule.source.slice(rule.right).split())
        help_ = f"what is outside is cut off; scale it, or write  {text} normalize minmax"
        ends = (found.low, found.high) if found.known else ()
        low, high = [functions.number_text(round(one, 6) + 0.0) for one in ends] or ("", "")
        asked = found.leaves & self._leaves_of(_roots(core.guard))
        # A let of that sign may be meant for other rules.
        negative = found.high <= 0 and found.low < 0 and not isinstance(core.value, ir.Named)
        inside = found.low >= -_SLACK and found.high <= _FULL + _SLACK
        if negative and found.low != found.high:
            message = "this score is never above 0, and a score is from 0 to 100"
        elif found.known and not inside and found.low == found.high:
            message = f"this score is always {low}, and a score is from 0 to 100"
        elif found.known and not inside and not asked:
            message = f"this score can be from {low} to {high}, and a score is from 0 to 100"
        else:
            return
        yield warning("P310", message, rule.source, rule.right, help_)

    def range(self, root: ir.Expr) -> Range:
        """Returns the bounds of a number."""
        for node in reversed(ir.walk(root)):
            self._range(node, 0)
        return self._range(root, 0)

    def _range(self, node: ir.Expr, depth: int) -> Range:
        found = self._found.get(id(node))
        if found is None:
            self._keys.key(node)
            found = self._bounds(node, depth + 1)
            self._found[id(node)] = found
        return found

    def _bounds(self, node: ir.Expr, depth: int) -> Range:  # noqa: C901 - one case a kind
        def of(one: ir.Expr) -> Range:
            return self._range(one, depth)

        if not node.type.is_number:
            return _UNKNOWN
        match node:
            case ir.Named():
                return of(node.body)
            case ir.Const(value=float() as value):
                return _UNKNOWN if isnan(value) else Range(value, value)
            case ir.Read():
                low, high = natural_bounds(node)
                return Range(low, high, frozenset({self._keys.key(node)}))
            case ir.Metric():
                low, high = self._metric_bounds(node)
                return Range(low, high, frozenset({self._keys.key(node)}))
            case ir.Negate():
                one = of(node.operand)
                return Range(-one.high, -one.low, one.leaves, one.exact)
            case ir.Arith() if node.operators[0] in "+-":
                return self._sum(node, of)
            case ir.Arith():
                return self._product(node, of)
            case ir.If():
                return self._choice(node, of)
            case ir.Coalesce():
                return _union([of(one) for one in node.operands])
            case ir.Func():
                return self._call(node, of)
            case ir.NodeAggregate() | ir.PodAggregate():
                return self._aggregate(node, of)
            case ir.ItemAggregate() if node.function in _KEEPING:
                ends = [of(one) for one in node.values]
                low, high = min(one.low for one in ends), max(one.high for one in ends)
                return Range(low, high, self._leaves_of([node]), exact=False)
            case ir.ItemAggregate():
                most = float(len(node.values))
                return Range(0.0, most, self._leaves_of([node]), exact=False)
            case _:
                return _UNKNOWN

    def _metric_bounds(self, node: ir.Metric) -> tuple[float, float]:
        if node.age:
            return 0.0, inf
        spec = self._metrics.get(node.name)
        if spec is None:
            return -inf, inf
        unit = node.type.unit or PLAIN
        counted = not unit.is_plain or _is_percent(spec) or spec.query in _BUNDLED
        low, high = (0.0 if counted else -inf), inf
        if spec.query in _SHARES:
            low, high = 0.0, 1.0
        if spec.default is not None:
            low, high = min(low, spec.default), max(high, spec.default)
        return low, high

    def _sum(self, node: ir.Arith, of: Callable[[ir.Expr], Range]) -> Range:
        total = of(node.operands[0])
        for operator, operand in zip(node.operators, node.operands[1:], strict=True):
            one = of(operand)
            if operator == "-":
                one = Range(-one.high, -one.low, one.leaves, one.exact)
            total = Range(total.low + one.low, total.high + one.high, *_joined(total, one))
        return total

    def _product(self, node: ir.Arith, of: Callable[[ir.Expr], Range]) -> Range:
        first = node.operands[0]
        above = [first.operand if isinstance(first, ir.Negate) else first]
        below: list[ir.Expr] = []
        for operator, operand in zip(node.operators, node.operands[1:], strict=True):
            (above if operator == "*" else below).append(operand)
        parts: list[Range] = [Range(-1.0, -1.0)] if isinstance(first, ir.Negate) else []
        for divisor in below:
            share = self._share(above, divisor, of)
            if share is not None:
                parts.append(share)
                continue
            one = of(divisor)
            if one.low <= 0 <= one.high:
                return _UNKNOWN
            ends = sorted((1 / one.low, 1 / one.high))
            parts.append(Range(ends[0], ends[1], one.leaves, one.exact))
        total = Range(1.0, 1.0)
        for one in (*(of(operand) for operand in above), *parts):
            ends = [
                0.0 if 0.0 in (a, b) else a * b
                for a in (total.low, total.high)
                for b in (one.low, one.high)
            ]
            total = Range(min(ends), max(ends), *_joined(total, one))
        return total

    def _share(
        self, above: list[ir.Expr], divisor: ir.Expr, of: Callable[[ir.Expr], Range]
    ) -> Range | None:
        """`x / max(x)` of a value that is not negative is 0..1; takes `x` out of `above`."""
        whole = bare(divisor)
        if not isinstance(whole, ir.NodeAggregate) or whole.function not in _RELATIVE:
            return None
        if whole.value is None or whole.where is not None:
            return None
        wanted = self._keys.key(whole.value)
        for index, one in enumerate(above):
            if self._keys.key(one) == wanted and of(one).low >= 0:
                del above[index]
                return Range(0.0, 1.0, self._leaves_of([one]))
        return None

    def _choice(self, node: ir.If, of: Callable[[ir.Expr], Range]) -> Range:
        both = _union([of(node.then), of(node.other)])
        asked = self._leaves_of([node.condition])
        free = not asked & both.leaves and node.condition.level is not Level.CONST
        return Range(both.low, both.high, both.leaves | asked, both.exact and free)

    def _call(self, node: ir.Func, of: Callable[[ir.Expr], Range]) -> Range:
        args = [of(one) for one in node.args]
        leaves, exact = _all_joined(args)
        match node.name:
            case "plain" | "bytes" | "seconds":
                return args[0]
            case "min":
                return Range(min(a.low for a in args), min(a.high for a in args), leaves, exact)
            case "max":
                return Range(max(a.low for a in args), max(a.high for a in args), leaves, exact)
            case "clamp":
                x, low, high = args
                if (low.low, high.low) != (low.high, high.high) or low.low > high.low:
                    return Range(-inf, inf, leaves, exact=False)
                ends = [min(max(one, low.low), high.low) for one in (x.low, x.high)]
                return Range(ends[0], ends[1], leaves, exact)
            case "abs":
                one = args[0]
                ends = sorted((abs(one.low), abs(one.high)))
                low_end = 0.0 if one.low <= 0 <= one.high else ends[0]
                return Range(low_end, ends[1], leaves, exact)
            case "hash":
                return Range(0.0, 1.0, frozenset({self._keys.key(node)}))
            case "len":
                return Range(0.0, inf, self._leaves_of([node]))
            case _:
                return Range(-inf, inf, self._leaves_of([node]), exact=False)

    def _aggregate(
        self, node: ir.NodeAggregate | ir.PodAggregate, of: Callable[[ir.Expr], Range]
    ) -> Range:
        leaves = self._leaves_of([node]) | {self._keys.key(node)}
        if node.function in ("count", "distinct"):
            return Range(0.0, inf, leaves)
        if node.value is None:
            return _UNKNOWN
        one = of(node.value)
        if node.function in _KEEPING:
            return Range(one.low, one.high, leaves, one.exact and node.where is None)
        return Range(0.0 if one.low >= 0 else -inf, inf, leaves, exact=False)

    def _leaves_of(self, roots: Iterable[ir.Expr]) -> frozenset[int]:
        return frozenset(
            self._keys.key(one) for one in ir.walk(*roots) if isinstance(one, ir.Read | ir.Metric)
        )

    # ---- P311

    def _divisions(self, rule: RuleFacts) -> Iterator[Diagnostic]:
        core = rule.core
        if isinstance(core, ir.ScoreCore) and core.missing is not None:
            return
        nodes = ir.walk(*_roots(guard_of(core), *conditions(core), *values(core)))
        if not any(isinstance(one, ir.Arith) and "/" in one.operators for one in nodes):
            return
        asked, caught = self._asked(nodes)
        for node in nodes:
            if isinstance(node, ir.Arith) and id(node) not in caught:
                for divisor in self._zeros(node):
                    if not self._leaves_of([divisor]) & asked:
                        yield self._division(rule, node, divisor)

    def _asked(self, nodes: Sequence[ir.Expr]) -> tuple[frozenset[int], set[int]]:
        """Returns what conditions without a division ask for, and divisions someone catches."""
        asked: set[int] = set()
        caught: set[int] = set()
        for node in nodes:
            if isinstance(node, ir.Coalesce | ir.Missing):
                caught |= {id(one) for one in ir.walk(node)}
            elif node.type.kind is Kind.BOOL and not isinstance(node, ir.Logical):
                below = ir.walk(node)
                if not any(isinstance(one, ir.Arith) and "/" in one.operators for one in below):
                    asked |= self._leaves_of([node])
        return frozenset(asked), caught

    def _zeros(self, node: ir.Arith) -> Iterator[ir.Expr]:
        """Yields divisors that can be 0 while what they divide is not."""
        above = [node.operands[0]]
        for operator, operand in zip(node.operators, node.operands[1:], strict=True):
            if operator == "*":
                above.append(operand)
            elif operator == "/" and self._can_be_zero(operand):
                mine = _resources([operand])
                if not mine & _resources(above) and not (
                    self._leaves_of([operand]) & self._leaves_of(above)
                ):
                    yield operand

    def _can_be_zero(self, divisor: ir.Expr) -> bool:
        one = bare(divisor)
        if isinstance(one, ir.Func) and one.name in ("plain", "number") and len(one.args) == 1:
            return self._can_be_zero(one.args[0])
        if isinstance(one, ir.PodAggregate):
            return one.function == "count"
        return isinstance(one, ir.Read) and FIELDS[one.field].often_zero

    def _division(self, rule: RuleFacts, node: ir.Arith, divisor: ir.Expr) -> Diagnostic:
        text = " ".join(rule.source.slice(divisor.span).split())
        whole = " ".join(rule.source.slice(node.span).split())
        message = f"`{text}` can be 0, and a number divided by 0 is missing"
        help_ = f"say what holds then:  ({whole}) ?? 0"
        return warning("P311", message, rule.source, divisor.span, help_)

    # ---- P314

    def _attracting(self, rule: RuleFacts, core: ir.ScoreCore) -> Iterator[Diagnostic]:
        metrics = {one.name: one for one in ir.walk(core.value) if isinstance(one, ir.Metric)}
        specs = {name: self._metrics.get(name) for name in metrics}
        # Without data for one without default the score is missing: the worst, not the best.
        certain = all(one is not None and one.default is not None for one in specs.values())
        for name, read in metrics.items() if certain and core.missing != _FULL else ():
            spec = specs[name]
            default = None if spec is None else spec.default
            if read.age or spec is None or default is None:
                continue
            slope = self._slope(core.value, name)
            if slope is None or slope == 0:
                continue
            if core.reverse:
                slope = -slope
            most = 1.0 if spec.query in _SHARES or _is_percent(spec) else inf
            if (slope < 0 and default <= 0) or (slope > 0 and default >= most):
                yield self._best(rule, read, spec, slope)
        if core.missing == _FULL and metrics:
            clause = next(one for one in rule.clauses if one.name == "missing_score")
            yield warning("P314", _BEST, rule.source, clause.span, "write  missing 0")

    def _best(self, rule: RuleFacts, read: ir.Metric, spec: MetricSpec, slope: int) -> Diagnostic:
        way = "lower" if slope < 0 else "higher"
        shown = functions.number_text(spec.default or 0.0)
        declared = [one for one in self._facts.statements if isinstance(one, s.MetricDecl)]
        age = f"older than {show(spec.stale_seconds, DURATION)}"
        labels = tuple(
            Label(clause.span, f"used when there is no sample or it is {age}")
            for one in declared
            if one.name == read.name
            for clause in one.clauses
            if clause.name == "metric_default"
        )
        return warning(
            "P314",
            _BEST,
            rule.source,
            read.span,
            f"drop `default {shown}` and end the score with  missing 0",
            label=f"{way} is better, so {shown} is the best",
            labels=labels,
        )

    def _slope(self, root: ir.Expr, name: str) -> int | None:  # noqa: C901 - one case a kind
        """Whether a number grows (1), falls (-1) or stays (0) with a metric; None: not known."""
        node = bare(root)
        reads = any(isinstance(one, ir.Metric) and one.name == name for one in ir.walk(node))
        if not reads or isinstance(node, ir.NodeAggregate):
            return 0
        match node:
            case ir.Metric():
                return None if node.age else 1
            case ir.Coalesce() if _with_default(node) is not None:
                return 1
            case ir.Negate():
                one = self._slope(node.operand, name)
                return None if one is None else -one
            case ir.Arith() if node.operators[0] in "+-":
                signs = ["+", *node.operators]
                slopes = [self._slope(one, name) for one in node.operands]
                return _agree(
                    None if slope is None else (-slope if sign == "-" else slope)
                    for sign, slope in zip(signs, slopes, strict=True)
                )
            case ir.Arith():
                return self._product_slope(node, name)
            case ir.Func() if node.name in (*_MONOTONE, "min", "max", "sum", "avg", "median"):
                return _agree(self._slope(one, name) for one in node.args)
            case ir.Func(name="clamp"):
                return self._slope(node.args[0], name)
            case ir.If():
                if self._slope_inside(node.condition, name):
                    return None
                return _agree(self._slope(one, name) for one in (node.then, node.other))
            case _:
                return None

    def _slope_inside(self, node: ir.Expr, name: str) -> bool:
        return any(isinstance(one, ir.Metric) and one.name == name for one in ir.walk(node))

    def _product_slope(self, node: ir.Arith, name: str) -> int | None:
        slopes = []
        for sign, one in zip(["*", *node.operators], node.operands, strict=True):
            slope = self._slope(one, name)
            if slope:
                slopes.append(-slope if sign == "/" else slope)
            elif slope is None:
                return None
            else:
                side = self._sign(one)
                if side is None:
                    return None
                slopes.append(0 if side > 0 else 2)
        moving = [one for one in slopes if one in (-1, 1)]
        if len(moving) != 1:
            return None
        return moving[0] * (-1 if slopes.count(2) % 2 else 1)

    def _sign(self, node: ir.Expr) -> int | None:
        one = bare(node)
        if isinstance(one, ir.NodeAggregate) and _with_default(bare(one.value or one)) is not None:
            # Metrics are taken as not negative here: a best default is one for them.
            return 1
        found = self.range(node)
        if found.low >= 0:
            return 1
        return -1 if found.high <= 0 else None


def _with_default(node: ir.Expr) -> ir.Metric | None:
    """Returns the metric that a node reads, its `default` filled in."""
    if isinstance(node, ir.Coalesce) and all(one.span == node.span for one in node.operands):
        node = node.operands[0]
    return node if isinstance(node, ir.Metric) else None


def _agree(slopes: Iterable[int | None]) -> int | None:
    found = set(slopes) - {0}
    if not found:
        return 0
    return found.pop() if len(found) == 1 else None


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


def _roots(*parts: ir.Expr | None) -> list[ir.Expr]:
    return [one for one in parts if one is not None]


def _is_percent(spec: MetricSpec) -> bool:
    return spec.scale < 1 and not spec.unit


def _resources(roots: Sequence[ir.Expr]) -> frozenset[str]:
    """Returns the resources that expressions speak of: `gpu`, `cpu`, `resource[x]`."""
    found: set[str] = set()
    for one in ir.walk(*roots):
        if isinstance(one, ir.Read):
            words = one.field.split(".")
            found |= {word for word in words if word in ("cpu", "memory", "storage", "gpu")}
            if one.key is not None and words[1] in ("resource", "request", "limit"):
                found.add("gpu" if one.key.endswith("/gpu") else one.key)
    return frozenset(found)
