"""The bounds of numbers, and what they tell: numbers that mean something else than is written.

Scores out of 0..100, constant, tiny, best without data (P310, P312, P225, P314), and shares of 1
that meet 80 (P222).
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import inf, isfinite
from typing import Final, NamedTuple

from dsl import ir
from dsl import syntax as s
from dsl.analysis.cubes import Keys, natural_bounds
from dsl.analysis.facts import FileFacts, RuleFacts, fields_of
from dsl.diagnostics import Diagnostic, Fix
from dsl.plan import MetricSpec
from dsl.schema import CATALOGUE
from dsl.types import NUMBER, PLAIN, Kind, Level, number_text

_SHARES: Final = frozenset(CATALOGUE[one].query for one in ("cpu_usage", "memory_usage"))
#: None of these is ever below 0.
_BUNDLED: Final = frozenset(one.query for one in CATALOGUE.values())
_RELATIVE: Final = ("max", "sum", "min")
_KEEPING: Final = ("max", "min", "avg", "median")
OfMetric = Callable[[MetricSpec, float, float], tuple[float, float]]


class Range(NamedTuple):
    """What a number can be."""

    low: float
    high: float

    def times(self, other: "Range") -> "Range":
        """Returns what a product can be."""
        ends = [0.0 if 0.0 in (a, b) else a * b for a in self for b in other]
        return Range(min(ends), max(ends))


_UNKNOWN: Final = Range(-inf, inf)
_SHARE: Final = Range(0.0, 1.0)


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
        self._found: dict[ir.Expr, Range] = {}

    def range(self, root: ir.Expr) -> Range:
        """Returns the bounds of a number."""
        self._keys.key(root)
        for node in ir.parts_first(root, self._found):
            self._found[node] = self._bounds(node) if node.type.is_number else _UNKNOWN
        return self._of(root)

    def reached(self, root: ir.Expr) -> bool:
        """Whether both bounds of a number are known and surely met: no value occurs twice in it."""
        nodes = [one for one in ir.walk(root) if not isinstance(one, ir.Aggregate)]
        fixed = any(isinstance(one, ir.If) and one.condition.level is Level.CONST for one in nodes)
        parts = (part for one in nodes for part in ir.children(one))
        met = Counter(self._keys.key(one) for one in parts if one.level is not Level.CONST)
        return not fixed and all(map(isfinite, self.range(root))) and set(met.values()) <= {1}

    def _of(self, node: ir.Expr) -> Range:
        return self._found[node]

    def _bounds(self, node: ir.Expr) -> Range:  # noqa: C901 - one case a kind
        match node:
            case ir.Named():
                return self._of(node.body)
            case ir.Metric():
                return self._metric_bounds(node)
            case ir.Rank():
                return _SHARE
            case ir.Arith() if node.operators[0] in "+-":
                return self._sum(node)
            case ir.Arith():
                return self._product(node)
            case ir.If():
                return _each(min, max, [self._of(node.then), self._of(node.other)])
            case ir.Coalesce():
                return _each(min, max, [self._of(one) for one in node.operands])
            case ir.Func(name="plain"):
                return self._of(node.args[0])
            case ir.Func(name="min" | "max" as name):
                pick = min if name == "min" else max
                return _each(pick, pick, [self._of(one) for one in node.args])
            case ir.NodeAggregate() | ir.PodAggregate() | ir.ItemAggregate() if node.value:
                one = self._of(node.value)
                if node.function in _KEEPING:
                    return one
                return Range(0.0 if one.low >= 0 or node.function == "distinct" else -inf, inf)
            case _:
                return Range(*natural_bounds(node))

    def _metric_bounds(self, node: ir.Metric) -> Range:
        if node.age:
            return Range(0.0, inf)
        spec = self._metrics.get(node.name)
        if spec is None:
            return _UNKNOWN
        unit = node.type.unit or PLAIN
        counted = not unit.is_plain or is_percent(spec) or spec.query in _BUNDLED
        low, high = (0.0 if counted else -inf), inf
        if spec.query in _SHARES:
            low, high = _SHARE
        if spec.default is not None:
            low, high = min(low, spec.default), max(high, spec.default)
        return Range(*((low, high) if self._known is None else self._known(spec, low, high)))

    def _sum(self, node: ir.Arith) -> Range:
        total = self._of(node.operands[0])
        for operator, operand in zip(node.operators, node.operands[1:], strict=True):
            one = self._of(operand)
            one = one.times(Range(-1.0, -1.0)) if operator == "-" else one
            total = Range(total.low + one.low, total.high + one.high)
        return total

    def _product(self, node: ir.Arith) -> Range:
        first, total = node.operands[0], Range(1.0, 1.0)
        negative = isinstance(first, ir.Arith) and set(first.operators) == {"*"}
        above, below = [*(ir.children(first) if negative else (first,))], list[ir.Expr]()
        for operator, operand in zip(node.operators, node.operands[1:], strict=True):
            (above if operator == "*" else below).append(operand)
        for divisor in below:
            one, share = self._of(divisor), self._share(above, divisor)
            if share is None and one.low <= 0 <= one.high:
                return _UNKNOWN
            total = total.times(share or Range(1 / one.high, 1 / one.low))
        for operand in above:
            total = total.times(self._of(operand))
        return total

    def _share(self, above: list[ir.Expr], divisor: ir.Expr) -> Range | None:
        """Of what is not negative `x / max(x)` is 0..1, `x / min(x)` above; takes out `x`."""
        of_node = [one for one in above if self._known is not None and _is_share(one, divisor)]
        if of_node:
            above.remove(of_node[0])
            return _SHARE
        whole = ir.unnamed(divisor) if self._known is None else ir.with_data(divisor)
        if not isinstance(whole, ir.NodeAggregate) or whole.function not in _RELATIVE:
            return None
        if whole.value is None or whole.where is not None:
            return None
        wanted = self._keys.key(whole.value)
        for one in above:
            if self._keys.key(one) == wanted and self._of(one).low >= 0:
                above.remove(one)
                if whole.function == "min":
                    return Range(1.0, inf)
                return Range(0.0, 1.0 if self._of(one).high > 0 else 0.0)
        return None


def _each(low: Callable[..., float], high: Callable[..., float], parts: Sequence[Range]) -> Range:
    return Range(low(one.low for one in parts), high(one.high for one in parts))


def is_percent(spec: MetricSpec) -> bool:
    """Whether its samples are shares of a whole: 0..1 once they are scaled."""
    return spec.scale < 1 and not spec.unit


def _is_share(part: ir.Expr, whole: ir.Expr) -> bool:
    """Whether a quotient is a share of what a node has: `node.cpu.free / node.cpu.allocatable`."""
    whole = ir.with_data(whole)
    if not isinstance(whole, ir.Read):
        return False
    of, _, which = whole.field.rpartition(".")
    return which in ("allocatable", "capacity") and _is_amount(part, of, whole.key)


def _is_amount(node: ir.Expr, of: str, key: str | None) -> bool:
    """Whether this is an amount of what `of` counts, or a sum of such: `requested + pod.cpu`."""
    node = ir.with_data(node)
    if isinstance(node, ir.Arith):
        parts = node.operands
        return set(node.operators) <= {"+", "-"} and all(_is_amount(one, of, key) for one in parts)
    if not isinstance(node, ir.Read):
        # What is measured in the same unit.
        return isinstance(node, ir.Metric) and node.type != NUMBER
    own = node.field == f"pod.{of.rpartition('.')[2]}"
    return own or (node.field.rpartition(".")[0] == of and node.key == key)


_FULL: Final = 100.0
_SLACK: Final = 1e-6
#: Above which a share is meant to be out of 100: nodes may be overcommitted.
_OVERCOMMITTED: Final = 4.0
_WEIGHED: Final = re.compile(r"(?m)^(?:score|prefer|avoid|spread|weight|normalize)[ \t]*:")


def odd_numbers(facts: FileFacts, keys: Keys) -> Iterator[Diagnostic]:
    """Yields what is said of the scores and of the comparisons of a file."""
    bounds, usual = Ranges(facts, keys), Ranges(facts, keys, _usual)
    filled = Ranges(facts, keys, _filled)
    for rule in facts.rules:
        for node in ir.walk(*rule.roots):
            if isinstance(node, ir.Compare):
                yield from _beside(rule, usual, node.left, node.right)
                yield from _beside(rule, usual, node.right, node.left)
            elif isinstance(node, ir.Coalesce) and node.span != node.operands[-1].span:
                # The default of a metric is told where it is declared.
                yield from _beside(rule, usual, node.operands[0], node.operands[-1])
        core = rule.core
        if not isinstance(core, ir.ScoreCore):
            continue
        if core.norm == "none":
            yield from _small(rule, core, usual.range(core.value))
            yield from _outside(rule, core, bounds)
        yield from _constant(rule, core)
        yield from _attracting(facts, rule, core, (filled, usual))


def _attracting(
    facts: FileFacts, rule: RuleFacts, core: ir.ScoreCore, ranges: tuple[Ranges, Ranges]
) -> Iterator[Diagnostic]:
    """Yields a score that is one number where all defaults are filled in, and none is better."""
    read = [one for one in ir.walk(core.value) if isinstance(one, ir.Metric) and not one.age]
    clause = rule.clause("missing_score")
    if core.missing == _FULL and read and clause is not None:
        yield rule.warning("P314", _BEST, clause.span, "write  missing 0")
        return
    without, found = (one.range(core.value) for one in ranges)
    best = found.low >= without.low if core.reverse else found.high <= without.high
    if not best or without.low != without.high or found.low >= found.high:
        return
    for one in read:
        spec = facts.metrics.get(one.name)
        if spec is not None and spec.default is not None:
            help_ = f"drop `default {number_text(spec.default)}` and end the score with  missing 0"
            yield rule.warning("P314", _BEST, one.span, help_)
            return


def _beside(rule: RuleFacts, usual: Ranges, one: ir.Expr, other: ir.Expr) -> Iterator[Diagnostic]:
    """Yields a share that is compared with 80, or is 80 where it is missing."""
    value, text = getattr(other, "value", None), rule.source.slice(other.span)
    if not isinstance(value, float):
        return
    found, of = usual.range(one), ir.with_data(one)
    counted = isinstance(of, ir.Read) or (isinstance(of, ir.Aggregate) and of.value is None)
    no_share = (counted and of.type == NUMBER) or _OVERCOMMITTED < usual.range(of).high < inf
    if no_share and text.endswith("%"):
        message = f"`{rule.text(one.span)}` is no share, and `{text}` is {number_text(value)}"
        yield rule.warning(
            "P222", message, other.span, f"did you mean {text[:-1]}, or {text} of ...?"
        )
    if not _OVERCOMMITTED < value <= _FULL:
        return
    # A number that is chosen is meant as it is, and a parameter may be another one tomorrow.
    if 0 <= found.low < found.high <= 1 and not isinstance(ir.with_data(one), ir.If):
        near = rule.source.text[other.span.start - 2 : other.span.end + 2]
        alone = re.fullmatch(r"\d+(\.\d+)?", text) and ".." not in near
        fix = Fix(other.span, f"{text}%") if alone else None
        help_ = f"did you mean {text if fix is not None else number_text(value)}%?"
        message = f"`{rule.text(one.span)}` is a share from 0 to 1, and `{text}` is far above"
        yield rule.warning("P222", message, other.span, help_, fix=fix)


#: When an exporter dies its node would look idle and attract all new pods.
_BEST: Final = "a node without data gets the best score of this rule"


def _usual(spec: MetricSpec, low: float, high: float) -> tuple[float, float]:
    """Returns what a metric is when all is well: not negative, few are; a share is at most 1."""
    return max(low, min(0.0, spec.default or 0.0)), 1.0 if is_percent(spec) else high


def _filled(spec: MetricSpec, low: float, high: float) -> tuple[float, float]:
    """Returns what a metric is without data."""
    return (low, high) if spec.default is None else (spec.default, spec.default)


def _constant(rule: RuleFacts, core: ir.ScoreCore) -> Iterator[Diagnostic]:
    weight = rule.clause("weight")
    if weight is not None and isinstance(weight.values[0], s.Param):
        weight = None
    if core.weight == 0 and weight is not None:
        message = "a rule of weight 0 has no effect"
        yield rule.warning("P312", message, weight.span, "remove the rule")
    elif weight is not None and len(_WEIGHED.findall(rule.source.text)) == 1:
        message = "this weighs among the scores of the file, and there is no other one"
        yield rule.warning("P312", message, weight.span, "to weigh the policy write  weight: W")
    elif core.value.level < Level.NODE and core.value.type.kind is not Kind.BOOL:
        message = "this score is the same for all nodes, so it chooses none of them"
        help_ = "use something of the node, for example  node.cpu.free/node.cpu.allocatable*100"
        yield rule.warning("P312", message, rule.right, help_)


def _outside(rule: RuleFacts, core: ir.ScoreCore, bounds: Ranges) -> Iterator[Diagnostic]:
    found = bounds.range(core.value)
    one, negative = found.low == found.high, found.high <= 0 and found.low < 0
    inside = found.low >= -_SLACK and found.high <= _FULL + _SLACK
    # A let of that sign may be meant for other rules.
    if negative and not one and not isinstance(core.value, ir.Named):
        is_ = "is never above 0"
    # What the left side asks of a value is not known of its bounds.
    elif found.low >= _FULL and not one:
        is_ = f"is never below {_FULL:g}"
    elif inside or not bounds.reached(core.value) or fields_of(core.value) & fields_of(core.guard):
        return
    else:
        low, high = (number_text(round(end, 6) + 0.0) for end in found)
        is_ = f"is always {low}" if one else f"can be from {low} to {high}"
    message = f"this score {is_}, and a score is from 0 to 100"
    help_ = "what is outside is cut off; scale it, or write  {} normalize minmax"
    yield rule.warning("P310", message, rule.right, help_.format(rule.text(rule.right)))


def _small(rule: RuleFacts, core: ir.ScoreCore, found: Range) -> Iterator[Diagnostic]:
    """Yields a score made of a share that nobody multiplied by 100."""
    if core.value.level < Level.NODE or not 0 < found.high - found.low <= 1:
        return
    if found.low >= 1 and not any(isinstance(one, ir.Metric) for one in ir.walk(core.value)):
        return  # Who bounds it so knows between what it is.
    weighed = len(_WEIGHED.findall(rule.source.text)) > 1 or core.weight != 1
    if isinstance(ir.with_data(core.value), ir.If) and (weighed or found.high > 1):
        return  # Small on purpose, beside others.
    message = f"this score goes from {found.low:g} to {found.high:g} only, of 100"
    simple = found.low >= 0 and found.high <= 1
    help_ = f"write  ({rule.text(rule.right)})*100" if simple else "multiply the share by 100"
    yield rule.warning("P225", message, rule.right, help_)
