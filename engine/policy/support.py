"""What a running scheduler cannot serve yet: such policies are refused when they are loaded.

`berth check` accepts them, as they are right; here is told what this scheduler has no values for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Final

from dsl.diagnostics import Diagnostic
from dsl.plan import MetricSpec, Plan, RuleBase
from dsl.schema import FIELDS

_QUEUE_FIELDS: Final = ("pod.queued_at", "pod.first_attempt_at", "pod.attempts")
_QUEUE_RULES: Final = ("sort", "sorts")
_SOURCES: Final = ("promql", "annotation")


def unsupported(plan: Plan) -> list[Diagnostic]:
    """What the scheduler has no values for, by place; empty where it can run the policy."""
    found: dict[tuple[int, str], Diagnostic] = {}
    metrics = {spec.name: spec for spec in plan.metrics}
    for point, rule in _rules(plan):
        for read in sorted(rule.reads):
            reason = _reason(point, read, metrics)
            if reason:
                one = Diagnostic("P118", reason, rule.source, rule.span)
                found.setdefault((rule.span.start, reason), one)
    return [found[key] for key in sorted(found)]


def _rules(plan: Plan) -> Iterator[tuple[str, RuleBase]]:
    """All rules of a plan with the attribute that holds them."""
    for attribute in fields(plan):
        value = getattr(plan, attribute.name)
        rules = value if isinstance(value, tuple) else (value,)
        yield from ((attribute.name, one) for one in rules if isinstance(one, RuleBase))


def _reason(point: str, read: str, metrics: dict[str, MetricSpec]) -> str:
    kind, _, name = read.partition(":")
    if kind in ("metric", "metric_age") and name in metrics:
        spec = metrics[name]
        if spec.source not in _SOURCES:
            return f"this scheduler does not read metrics from `{spec.source}` yet"
        if spec.of != "node":
            return f"this scheduler does not read metrics by {_words(spec)} yet"
    if read in FIELDS and not FIELDS[read].served:
        return f"this scheduler does not know `{read}` yet"
    if read in _QUEUE_FIELDS and point not in _QUEUE_RULES:
        return f"`{read}` is known to `sort` only in this version"
    return ""


def _words(spec: MetricSpec) -> str:
    return ", ".join(spec.keys) if spec.of == "pair" else spec.of
