"""A node without data that gets the best score, through `default` or `missing 100` (P314).

When an exporter dies its node would look idle and attract all new pods. Told where the score with
all defaults filled in is one number, and no other values of the metrics give a better one.
"""

from collections.abc import Iterator
from typing import Final

from dsl import functions, ir
from dsl.analysis.facts import FileFacts, RuleFacts, warning
from dsl.analysis.keys import Keys
from dsl.analysis.ranges import Ranges, is_percent
from dsl.diagnostics import Diagnostic
from dsl.plan import MetricSpec

_FULL: Final = 100.0
_MESSAGE: Final = "a node without data gets the best score of this rule"


def attracting(facts: FileFacts, keys: Keys) -> Iterator[Diagnostic]:
    """Yields what is said of the scores of a file."""
    filled, measured = Ranges(facts, keys, _filled), Ranges(facts, keys, _measured)
    for rule in facts.rules:
        core = rule.core
        if not isinstance(core, ir.ScoreCore):
            continue
        read = [one for one in ir.walk(core.value) if isinstance(one, ir.Metric) and not one.age]
        if core.missing == _FULL and read:
            clause = next(one for one in rule.clauses if one.name == "missing_score")
            yield warning("P314", _MESSAGE, rule.source, clause.span, "write  missing 0")
            continue
        specs = {one.name: facts.metrics.get(one.name) for one in read}
        first = next((one for one in read if _default(specs[one.name]) is not None), None)
        if first is None or core.missing == _FULL:
            continue
        without, found = filled.range(core.value), measured.range(core.value)
        best = found.low >= without.low if core.reverse else found.high <= without.high
        if best and without.low == without.high and found.low < found.high:
            yield _told(facts, rule, first)


def _default(spec: MetricSpec | None) -> float | None:
    return None if spec is None else spec.default


def _filled(spec: MetricSpec, low: float, high: float) -> tuple[float, float]:
    return (low, high) if spec.default is None else (spec.default, spec.default)


def _measured(spec: MetricSpec, low: float, high: float) -> tuple[float, float]:
    """Metrics are taken as not negative here: few are, and a default of 0 is the best for them."""
    return max(low, min(0.0, spec.default or 0.0)), 1.0 if is_percent(spec) else high


def _told(facts: FileFacts, rule: RuleFacts, read: ir.Metric) -> Diagnostic:
    spec = facts.metrics[read.name]
    shown = functions.number_text(spec.default or 0.0)
    help_ = f"drop `default {shown}` and end the score with  missing 0"
    return warning("P314", _MESSAGE, rule.source, read.span, help_)
