"""Numbers that mean something else: scores out of 0..100, constant, tiny, best without data.

P310, P312, P225 and P314 in this order, and P222 of shares of 1 that meet 80. Said where the bounds
of a number are known, see `ranges`.
"""

import re
from collections.abc import Iterator
from typing import Final

from dsl import ir
from dsl import syntax as s
from dsl.analysis.facts import FileFacts, RuleFacts, fields_of, roots
from dsl.analysis.keys import Keys
from dsl.analysis.ranges import Range, Ranges, inner, is_percent
from dsl.diagnostics import Diagnostic, Fix
from dsl.functions import number_text
from dsl.plan import MetricSpec
from dsl.types import Kind, Level

_FULL: Final = 100.0
_SLACK: Final = 1e-6
#: Above which a share is meant to be out of 100: nodes may be overcommitted.
_OVERCOMMITTED: Final = 4.0
_WEIGHED: Final = re.compile(r"(?m)^(?:score|prefer|avoid|weight|normalize)[ \t]*:")


def odd_numbers(facts: FileFacts, keys: Keys) -> Iterator[Diagnostic]:
    """Yields what is said of the scores and of the comparisons of a file."""
    bounds, usual = Ranges(facts, keys), Ranges(facts, keys, _usual)
    filled = Ranges(facts, keys, _filled)
    for rule in facts.rules:
        for node in ir.walk(*roots(rule.core)):
            if isinstance(node, ir.Compare):
                yield from _beside(rule, usual, node.left, node.right)
                yield from _beside(rule, usual, node.right, node.left)
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
    """Yields a share compared with 80."""
    value = other.value if isinstance(other, ir.Const) else None
    if not isinstance(value, float) or not _OVERCOMMITTED < value <= _FULL:
        return
    found = usual.range(one)
    # A number that is chosen is meant as it is, and a parameter may be another one tomorrow.
    if 0 <= found.low < found.high <= 1 and not isinstance(inner(one), ir.If):
        text = rule.source.slice(other.span)
        fix = Fix(other.span, f"{text}%") if re.fullmatch(r"\d+(\.\d+)?", text) else None
        message = f"`{rule.text(one.span)}` is a share from 0 to 1, and `{text}` is far above"
        yield rule.warning("P222", message, other.span, f"did you mean {text}%?", fix=fix)


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
    if core.weight == 0 and weight is not None and not isinstance(weight.values[0], s.Param):
        message = "a rule of weight 0 has no effect"
        yield rule.warning("P312", message, weight.span, "remove the rule")
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
    if isinstance(inner(core.value), ir.If) and (weighed or found.high > 1):
        return  # Small on purpose, beside others.
    message = f"this score goes from {found.low:g} to {found.high:g} only, of 100"
    simple = found.low >= 0 and found.high <= 1
    help_ = f"write  ({rule.text(rule.right)})*100" if simple else "multiply the share by 100"
    yield rule.warning("P225", message, rule.right, help_)
