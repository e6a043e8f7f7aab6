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
_QUEUE_RULES: Final = ("sorts",)
_ACTIONS: Final = ("prebinds", "postbinds")
_SOURCES: Final = ("promql", "annotation")


def unsupported(plan: Plan) -> list[Diagnostic]:
    """What the scheduler has no values for, by place; empty where it can run the policy."""
    found: dict[tuple[int, str], Diagnostic] = {}
    for rule, reason in _beyond(plan):
        found[rule.span.start, reason] = Diagnostic("P118", reason, rule.source, rule.span)
    if plan.mode not in ("enforce", "off"):
        reason = _later(f"mode: {plan.mode}")
        found[-1, reason] = Diagnostic("P118", reason, plan.source, plan.name_span)
    metrics = {spec.name: spec for spec in plan.metrics}
    for point, rule in _rules(plan):
        for read in sorted(rule.reads):
            reason = _reason(point, read, metrics)
            if reason:
                one = Diagnostic("P118", reason, rule.source, rule.span)
                found.setdefault((rule.span.start, reason), one)
    return [found[key] for key in sorted(found)]


def _later(what: str) -> str:
    return f"`{what}` is understood, but this scheduler cannot run it yet"


def _beyond(plan: Plan) -> Iterator[tuple[RuleBase, str]]:
    """Statements that need what this scheduler does not have."""
    for rule in (*plan.preempts, *plan.gangs, *plan.quotas):
        yield rule, _later(f"{rule.text.partition(':')[0]}:")
    for permit in plan.permits:
        if permit.core.decision == "wait":
            yield permit, _later("permit: ... wait")
    for action in (*plan.prebinds, *plan.postbinds):
        point = action.text.partition(":")[0]
        allowed = ("annotate", "event") if action in plan.prebinds else ("event",)
        for one in action.core.actions:
            if one.kind not in allowed:
                yield action, _later(f"{point}: {one.kind}")
    for bind in plan.binds:
        if bind.core.kind == "with":
            yield bind, _later(f"bind: with {bind.core.name}")


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
    known = point in _ACTIONS and read == "score.total"
    if read in FIELDS and not FIELDS[read].served and not known:
        return f"this scheduler does not know `{read}` yet"
    if read in _QUEUE_FIELDS and (point not in _QUEUE_RULES or read != "pod.queued_at"):
        return f"this scheduler knows `pod.queued_at` in `sort` only, and not `{read}` here"
    return ""


def _words(spec: MetricSpec) -> str:
    return ", ".join(spec.keys) if spec.of == "pair" else spec.of
