"""A policy as understood becomes a plan: each statement with its line, closures and words."""

from collections.abc import Callable, Generator, Hashable
from typing import Any, Final

import numpy as np

from dsl import ir, lower, plan, reasons, reference
from dsl.checker import CheckedPolicy, Draft
from dsl.lower import Memo
from dsl.several import gang_rule, preempt_rule, quota_rule
from dsl.source import SourceFile
from dsl.turns import turns
from dsl.types import Kind, Level
from dsl.world import Indices, Mask, Parts, Subject, World


def assembled(policy: CheckedPolicy, memo: Memo) -> Generator[None, None, plan.Plan]:
    """Returns the plan of a policy; stops after each rule."""
    slots: dict[str, list[Any]] = {}
    for draft in policy.rules:
        slots.setdefault(draft.slot, []).append(_rule(policy.source, draft, memo))
        yield
    reads = frozenset(one for rules in slots.values() for rule in rules for one in rule.reads)
    head: dict[str, Any] = {one: getattr(policy, one) for one in plan.Head.__struct_fields__}
    named: dict[str, Any] = {name: tuple(rules) for name, rules in slots.items()}
    return plan.Plan(reads=reads, combine=lower.combine, **head, **named)


def _turns(reads: frozenset[str], memo: Memo, *roots: ir.Expr | None) -> plan.OfPod[float] | None:
    left = turns(*roots) if "now" in reads else None
    return None if left is None else lower.lower_turns(left, memo)


def _values(memo: Memo) -> plan.OnNode[reasons.Ask]:
    """Returns what gives the values that are told of a pod on a node: of columns, but for lists."""
    of_columns = lower.lower_values(memo)

    def values(subject: Subject, world: World, row: int) -> reasons.Ask:
        value = of_columns(subject, world, row)
        of_list = reference.asked(reference.View(world, subject, row))
        return lambda node: (of_list if node.type.kind is Kind.LIST else value)(node)

    return values


def _message(core: ir.FilterCore, text: str, values: plan.OnNode[reasons.Ask]) -> plan.OnNode[str]:
    return lambda *place: reasons.message(core, text, values(*place))


_OF_POD: Final = (ir.Read, ir.KeyedRead, ir.ContainerAggregate, ir.Metric, ir.Pair)


def _filter(base: dict[str, Any], core: ir.FilterCore, status: str, memo: Memo) -> plan.FilterRule:
    prepare, verdict = lower.lower_filter(core, memo)
    values = _values(memo)
    # By what decides the words: another part of the rule may be what rejects other nodes.
    known: dict[tuple[int, ...], Callable[[Subject, World, Indices], bool]] = {}

    def alike(subject: Subject, world: World, rows: Indices) -> bool:
        if len(rows) == 1:
            return True
        parts = reasons.told_by(core, values(subject, world, int(rows[0])))
        key = tuple(map(id, parts))
        if key not in known:
            known[key] = lower.lower_alike(parts, memo)
        return known[key](subject, world, rows)

    shown = (core.right,) if core.message is None else core.message.parts
    every = ir.walk(*core.longer, *(one for one in shown if not isinstance(one, str)))
    # With these equal what is counted from them is.
    of_pod = [one for one in every if one.level is Level.POD and isinstance(one, _OF_POD)]

    def told(subject: Subject, world: World) -> Hashable:
        ask = values(subject, world, -1)
        # As texts: what is missing equals itself.
        return tuple([repr(ask(one)) for one in of_pod])

    return plan.FilterRule(
        **base,
        prepare=prepare,
        turns=_turns(base["reads"], memo, core.guard, core.test),
        core=core,
        status=status,
        verdict=verdict,
        message=_message(core, base["source"].text, values),
        alike=alike,
        told=told if of_pod else None,
    )


def _base(source: SourceFile, draft: Draft) -> dict[str, Any]:
    """Returns what all rules have, but for `prepare`."""
    reads = draft.reads
    return {
        "id": f"{source.name}#{draft.number}",
        "line": source.position(draft.written.span.start)[0],
        "text": source.words(draft.written.span),
        "span": draft.written.span,
        "source": source,
        "reads": reads.fields,
        "row_local": reads.row_local,
        "reads_metrics": reads.metrics,
        "reads_time": reads.time,
    }


def _rule(source: SourceFile, draft: Draft, memo: Memo) -> plan.RuleBase:
    core, base = draft.core, _base(source, draft)
    if isinstance(core, ir.ScoreCore):
        prepare, column = lower.lower_column(core.guard, core.value, memo)
        base |= {"prepare": prepare, "core": core, "weight": core.weight}
        return plan.ScoreRule(**base, column=column, finish=lower.finished(core))
    if isinstance(core, ir.FilterCore):
        made = _filter if draft.slot == "filters" else _condition
        return made(base, core, draft.status, memo)
    if isinstance(core, ir.TierCore):
        return _tier(base, core, memo)
    if isinstance(core, ir.SortCore):
        key = lower.lower_key(core, memo)
        return plan.SortRule(**base, prepare=_always, core=core, key=key)
    base["prepare"] = _guarded(core.guard, memo)
    match core:
        case ir.PermitCore():
            return _permit(base, core, draft.status, memo)
        case ir.ActionCore():
            return plan.ActionRule(**base, core=core, effects=lower.lower_actions(core, memo))
        case ir.BindCore():
            return plan.BindRule(**base, core=core)
        case ir.PreemptCore():
            return preempt_rule(base, core, memo)
        case ir.GangCore():
            return gang_rule(base, core, memo)
        case _:
            assert isinstance(core, ir.QuotaCore)
            return quota_rule(base, core, draft.status, memo)


def _tier(base: dict[str, Any], core: ir.TierCore, memo: Memo) -> plan.TierRule:
    prepare, column = lower.lower_column(core.guard, core.test, memo)

    def mask(parts: Parts, world: World, rows: Indices) -> Mask:
        return column(parts, world, rows, rows).astype(np.bool_, copy=False)

    return plan.TierRule(**base, prepare=prepare, core=core, mask=mask)


def _always(_subject: Subject, _world: World) -> Parts:
    return ()


def _guarded(guard: ir.Expr | None, memo: Memo) -> plan.OfPod[Parts | None]:
    if guard is None:
        return _always
    holds = lower.lower_condition((guard,), memo)
    return lambda subject, world: () if holds(subject, world, -1) else None


def _condition(
    base: dict[str, Any], core: ir.FilterCore, status: str, memo: Memo
) -> plan.ConditionRule:
    prepare = _guarded(core.guard, memo)
    test = lower.lower_condition((core.test,), memo)

    def holds(subject: Subject, world: World, row: int) -> bool:
        return prepare(subject, world) is None or test(subject, world, row)

    return plan.ConditionRule(
        **base,
        prepare=prepare,
        turns=_turns(base["reads"], memo, core.guard, core.test),
        core=core,
        status=status,
        holds=holds,
        message=_message(core, base["source"].text, _values(memo)),
    )


def _permit(base: dict[str, Any], core: ir.PermitCore, status: str, memo: Memo) -> plan.PermitRule:
    until = lower.lower_condition((core.until,), memo)
    rule, text, values = base["text"], base["source"].text, _values(memo)

    def message(subject: Subject, world: World, row: int) -> str:
        said = reasons.given(core, text, values(subject, world, row))
        return str(rule) if said is None else said

    return plan.PermitRule(
        **base,
        turns=_turns(base["reads"], memo, core.guard, core.left, core.until),
        core=core,
        status=status,
        applies=lower.lower_condition((core.guard, core.left), memo),
        until=until,
        message=message,
    )
