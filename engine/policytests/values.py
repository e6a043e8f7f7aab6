"""The values of all parts of a rule, for a pod and a node: what a failed test shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from dsl import ir, reference, words
from dsl.collective import QuotaUse
from dsl.plan import (
    ActionRule,
    ConditionRule,
    FilterRule,
    GangRule,
    PermitRule,
    PreemptRule,
    QuotaRule,
    RuleBase,
    ScoreRule,
    SortRule,
    TierRule,
)
from dsl.policytest import CannotJudgeError, Expected
from dsl.schema import request_unit
from dsl.several import ByReference as Meant
from dsl.several.rules import QuotaParts, quota_use
from dsl.types import NUMBER, number_of, show
from engine.collective.quotas import coming
from engine.explain.parts import asked, table
from engine.policy.acting import results_of
from engine.policytests.answers import ByColumns, place_of, rules_of
from engine.policytests.answers import number_of as place_in_file

_MOST_NODES: Final = 3
_MOST_PODS: Final = 6
_FILTERS: Final = ("filters", "prefilters", "quotas", "gangs")
_POINTS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "score": ("scores",),
        "best": ("tiers", "scores"),
        "order": ("sorts",),
        "gated": ("gates",),
        "ungated": ("gates",),
        "permit": ("reserves", "permits", "gangs"),
        "annotation": ("prebinds", "postbinds"),
        "victims": ("preempts", "quotas"),
        "nominated": ("preempts", "quotas"),
    }
)
_Lines = Iterator[str]


def values_of_rules(answers: ByColumns, nodes: tuple[str, ...], expected: Expected) -> str:
    """What the rules made of these nodes, each part with its value; empty if there is no rule.

    Those rules are shown that the expectation is about.
    """
    lines: list[str] = []
    for plan in answers.plans:
        rules: Iterable[RuleBase]
        if expected.name == "skipped":
            rules = [one for one in rules_of(plan) if place_in_file(one) == int(expected.number)]
        else:
            rules = [one for part in _POINTS.get(expected.name, _FILTERS)
                     for one in getattr(plan, part)]  # fmt: skip
        for rule in rules:
            lines.append(f"{rule.source.name}:{rule.line}: {rule.text}")
            lines.extend(_of_rule(rule, answers, nodes[:_MOST_NODES], expected))
    return "\n".join(lines)


def _of_rule(
    rule: RuleBase, answers: ByColumns, nodes: tuple[str, ...], expected: Expected
) -> _Lines:
    match rule:
        case SortRule():
            return _of_sort(rule, answers)
        case ConditionRule() if expected.name in ("gated", "ungated"):
            return _of_gate(rule, answers, expected.names)
        case ConditionRule() | PermitRule() | ActionRule() if expected.name != "skipped":
            prefilter = any(rule in plan.prefilters for plan in answers.plans)
            return _of_prefilter(rule, answers) if prefilter else _at_chosen(rule, answers)
        case PreemptRule():
            return _of_preempt(rule, answers)
        case GangRule():
            return _of_gang(rule, answers)
        case QuotaRule():
            return _of_quota(rule, answers)
        case FilterRule() | ScoreRule() | TierRule():
            return _of_nodes(rule, answers, nodes)
        case _:
            return _guard_of(rule, answers)


# ---- before any node


def _guard_of(rule: RuleBase, answers: ByColumns) -> _Lines:
    guard: ir.Expr | None = getattr(getattr(rule, "core", None), "guard", None)
    if guard is None:
        return
    view = reference.View(answers.world, answers.subject, -1)
    applies = reference.applies(guard, answers.world, answers.subject)
    yield f"  {'applies' if applies else 'does not apply'} to {answers.scene.pod.key}"
    yield from table([guard], rule, view)


def _of_sort(rule: SortRule, answers: ByColumns) -> _Lines:
    keys = [one.value for one in rule.core.keys]
    for pod in answers.scene.pods[:_MOST_PODS]:
        view = reference.View(answers.world, answers.subject_of(pod, answers.scene.snapshot), -1)
        yield f"  {pod.name}"
        yield from table(keys, rule, view)


def _of_gate(rule: ConditionRule, answers: ByColumns, names: Sequence[str]) -> _Lines:
    for pod in answers.scene.pods:
        if pod.name in names:
            subject = answers.subject_of(pod, answers.scene.snapshot)
            passes = reference.passes(rule.core, answers.world, subject, -1)
            yield f"  {pod.name} {'is let through' if passes else 'is held'}"
            yield from _of_sides(rule, reference.View(answers.world, subject, -1))


def _of_prefilter(rule: RuleBase, answers: ByColumns) -> _Lines:
    assert isinstance(rule, ConditionRule)
    passes = reference.passes(rule.core, answers.world, answers.subject, -1)
    yield f"  {answers.scene.pod.key} {'passes' if passes else 'is rejected'}"
    yield from _of_sides(rule, reference.View(answers.world, answers.subject, -1))


def _of_sides(rule: ConditionRule, view: reference.View) -> _Lines:
    core = rule.core
    yield from _longer(core, rule, view)
    roots = [one for one in (core.guard, core.left, core.right) if one is not None]
    yield from table(roots, rule, view)


def _longer(core: object, rule: RuleBase, view: reference.View) -> _Lines:
    for one in core.longer if isinstance(core, ir.FilterCore) else ():
        if reference.evaluate(one, view):
            of_list = words.beyond(one, rule.source.text, reference.asked(view))
            yield f"    {of_list}: the rule rejects"


# ---- nodes


def _of_nodes(
    rule: FilterRule | ScoreRule | TierRule, answers: ByColumns, nodes: tuple[str, ...]
) -> _Lines:
    core = rule.core
    guard = core.guard
    rows = [row for name, row in answers.scene.rows.items() if name not in answers.rejections()]
    applies = reference.applies(guard, answers.world, answers.subject)
    yield from _guard_of(rule, answers)
    for name in dict.fromkeys(nodes) if applies else ():
        row = answers.scene.rows.get(name)
        if row is None:
            continue
        view = reference.View(answers.world, answers.subject, row, tuple(rows))
        if isinstance(core, ir.FilterCore):
            view = replace(view, candidates=None)
            passes = reference.passes(core, answers.world, answers.subject, row)
            said = "passes" if passes else "is rejected"
            roots = [one for one in (core.left, core.right) if one is not None and one is not guard]
        elif isinstance(core, ir.TierCore):
            said = "comes first" if reference.evaluate(core.test, view) else "comes later"
            roots = [core.test]
        else:
            said = _scored(core, answers, tuple(rows), row)
            roots = [asked(core.value)]
        yield f"  {name} {said}"
        yield from _longer(core, rule, view)
        yield from table(roots, rule, view)


def _scored(core: ir.ScoreCore, answers: ByColumns, rows: tuple[int, ...], row: int) -> str:
    if row not in rows:
        return "is not scored: it does not pass"
    scores = reference.scores(core, answers.world, answers.subject, rows)
    if scores is None:
        return "has no value, and no other node has"
    return f"gets {show(scores[rows.index(row)], NUMBER)}"


def _at_chosen(rule: RuleBase, answers: ByColumns) -> _Lines:
    """A rule about the chosen node, with the pod on it already."""
    try:
        results = results_of(answers.decision(answers.chosen()))
        with answers.placed() as (world, subject, row):
            view = reference.View(world, subject, row, results=results)
            yield f"  {answers.scene.pod.key} on {answers.chosen()}"
            core = getattr(rule, "core", None)
            roots = [one for one in _at_node(core) if one is not None]
            yield from _longer(core, rule, view)
            yield from table(roots, rule, view)
    except CannotJudgeError as none:
        yield f"  {none}"


def _at_node(core: object) -> tuple[ir.Expr | None, ...]:
    match core:
        case ir.FilterCore():
            return core.guard, core.left, core.right
        case ir.PermitCore():
            return core.guard, core.left, core.until
        case ir.ActionCore():
            return core.guard, core.left, *(one.value for one in core.actions)
        case _:
            return ()


# ---- several pods


def _of_preempt(rule: PreemptRule, answers: ByColumns) -> _Lines:
    core = rule.core
    yield from _guard_of(rule, answers)
    if core.where is None:
        return
    pods = answers.scene.snapshot.pods
    there = [place for place, node in enumerate(pods.node.tolist()) if node >= 0]
    for place in there[:_MOST_PODS]:
        row = int(pods.node[place])
        view = reference.View(answers.world, answers.subject, row, pod=place)
        may = "may go" if reference.evaluate(core.where, view) else "stays"
        yield f"  {pods.pod(place).name} on {answers.scene.snapshot.nodes.name(row)} {may}"
        yield from table([core.where, *(key.value for key in core.order)], rule, view)
    if answers.preempted().message:
        yield f"  {answers.preempted().message}"


def _of_gang(rule: GangRule, answers: ByColumns) -> _Lines:
    yield from _guard_of(rule, answers)
    found = answers.gang(answers.scene.snapshot)
    if found is None or found.gang.place != place_of(rule):
        yield f"  {answers.scene.pod.key} is in no gang"
        return
    yield f"  {found}"


def _of_quota(rule: QuotaRule, answers: ByColumns) -> _Lines:
    yield from _guard_of(rule, answers)
    values = Meant(answers.subject, answers.world)
    use = quota_use(QuotaParts(rule.core), values, answers.scene.quotas)
    if use.key is None:
        yield f"  {answers.scene.pod.key} has no quota"
        return
    for key, limits in use.limits.items():
        for name in sorted({*limits.minimum, *limits.maximum}):
            kind = number_of(request_unit(name))
            used = show(use.used.get(key, {}).get(name, 0.0), kind)
            said = f"  {key}: {used} {name} used"
            if key == use.key:
                said += f", {show(use.asked.get(name, 0.0), kind)} asked for"
            for bound, amounts in (("min", limits.minimum), ("max", limits.maximum)):
                said += f", {bound} {show(amounts[name], kind)}" if name in amounts else ""
            yield said
    if rule.core.elastic:
        yield from _pool(use)


def _pool(use: QuotaUse) -> _Lines:
    """What all quotas guarantee together, which is what they lend each other."""
    for name, whole in use.pool.minimum.items():
        kind = number_of(request_unit(name))
        used = use.pool.used[name] + sum(one.get(name, 0.0) for one in coming(use))
        known = "1 quota is" if len(use.limits) == 1 else f"{len(use.limits)} quotas are"
        yield (
            f"  all together: {show(used, kind)} of {show(whole, kind)} {name} used; {known} known"
        )
