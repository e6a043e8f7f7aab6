"""What each rule did in a test, and what it could have done: the coverage of policy tests.

A rule that says yes or no must be seen to reject and to pass, one that has a left side to abstain,
any other to be applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from dsl import ir, reference
from dsl.plan import (
    ActionRule,
    ConditionRule,
    FilterRule,
    GangRule,
    PermitRule,
    Plan,
    PreemptRule,
    QuotaRule,
    RuleBase,
    ScoreRule,
    SortRule,
)
from dsl.policytest import CannotJudgeError
from dsl.schema import FIELDS
from engine.collective import quotas
from engine.policytests.answers import ByColumns, place_of, rules_of

#: In the order in which they are shown.
OUTCOMES: Final = ("rejected", "passed", "abstained", "scored", "applied")


@dataclass(slots=True)
class RuleCoverage:
    """In how many tests a rule had each outcome, and which it can have."""

    place: str
    text: str
    possible: frozenset[str]
    outcomes: dict[str, int] = field(default_factory=dict)

    @property
    def missing(self) -> list[str]:
        """The outcomes that no test has shown."""
        return [one for one in OUTCOMES if one in self.possible and not self.outcomes.get(one)]


def rules_covered(answers: ByColumns) -> Iterator[tuple[RuleBase, frozenset[str]]]:
    """Each rule with what it did in this test."""
    for plan in answers.plans:
        for rule in rules_of(plan):
            yield rule, _outcomes(rule, plan, answers)


def coverage_of(rule: RuleBase) -> RuleCoverage:
    """A rule that no test has shown yet."""
    return RuleCoverage(place_of(rule), rule.text, _possible(rule))


# ---- what can be


def _possible(rule: RuleBase) -> frozenset[str]:
    found = set(_says(rule))
    if _can_abstain(rule):
        found.add("abstained")
    return frozenset(found)


def _says(rule: RuleBase) -> tuple[str, ...]:
    match rule:
        case FilterRule() | ConditionRule() | QuotaRule() | GangRule():
            return ("rejected", "passed")
        case PermitRule():
            only = {"allow": ("passed",), "reject": ("rejected",)}
            return only.get(rule.core.decision, ("rejected", "passed"))
        case ScoreRule():
            return ("scored",)
        case _:
            return ("applied",)


def _can_abstain(rule: RuleBase) -> bool:
    core = getattr(rule, "core", None)
    if getattr(core, "guard", None) is not None:
        return True
    if isinstance(core, ir.PermitCore | ir.ActionCore):
        return core.left is not None
    if isinstance(core, ir.GangCore | ir.QuotaCore):
        elastic = isinstance(core, ir.QuotaCore) and core.elastic
        return elastic or not isinstance(core.by, ir.Read) or FIELDS[core.by.field].optional
    return False


# ---- what was


def _outcomes(rule: RuleBase, plan: Plan, answers: ByColumns) -> frozenset[str]:
    match rule:
        case ConditionRule() if rule in plan.gates:
            return frozenset(_of_gate(rule, answers))
        case ConditionRule() if rule in plan.reserves:
            return _at_chosen(rule, answers)
        case PermitRule() | ActionRule():
            return _at_chosen(rule, answers)
        case GangRule():
            return _of_gang(rule, answers)
        case QuotaRule():
            return frozenset({_of_quota(rule, answers)})
        case SortRule():
            return frozenset({"applied"} if len(answers.scene.pods) > 1 else ())
        case PreemptRule():
            return _of_preemption(rule, plan, answers)
        case _:
            return _of_nodes(rule, answers)


def _of_nodes(rule: RuleBase, answers: ByColumns) -> frozenset[str]:
    if not answers.applies(rule):
        return frozenset({"abstained"})
    match rule:
        case ScoreRule():
            return frozenset({"scored"})
        case FilterRule():
            rows = answers.scene.rows.values()
            return frozenset(
                _verdict(reference.passes(rule.core, answers.world, answers.subject, row))
                for row in rows
            )
        case ConditionRule():
            return frozenset({_verdict(rule.holds(answers.subject, answers.world, -1))})
        case _:
            return frozenset({"applied"})


def _verdict(passes: bool) -> str:  # noqa: FBT001 - the fact itself
    return "passed" if passes else "rejected"


def _of_gate(rule: ConditionRule, answers: ByColumns) -> Iterator[str]:
    for pod in answers.scene.pods:
        subject = answers.subject_of(pod, answers.scene.snapshot)
        if rule.prepare(subject, answers.world) is None:
            yield "abstained"
        else:
            yield _verdict(rule.holds(subject, answers.world, -1))


def _at_chosen(rule: RuleBase, answers: ByColumns) -> frozenset[str]:
    """What a rule about the chosen node did; nothing where none is chosen."""
    try:
        with answers.placed() as (world, subject, row):
            if isinstance(rule, PermitRule):
                if not rule.applies(subject, world, row):
                    return frozenset({"abstained"})
                waits = rule.core.decision == "wait" and not rule.until(subject, world, row)
                return frozenset({_verdict(not (waits or rule.core.decision == "reject"))})
            if rule.prepare(subject, world) is None:
                return frozenset({"abstained"})
            if isinstance(rule, ConditionRule):
                return frozenset({_verdict(rule.holds(subject, world, row))})
            core = getattr(rule, "core", None)
            left = core.left if isinstance(core, ir.ActionCore) else None
            there = reference.at_node(None, left, reference.View(world, subject, row))
            return frozenset({"applied" if there else "abstained"})
    except CannotJudgeError:
        # Without a chosen node the pod alone may decide, as `expect skipped` has it.
        return frozenset(() if answers.applies(rule) else {"abstained"})


def _of_gang(rule: GangRule, answers: ByColumns) -> frozenset[str]:
    found = answers.gang(answers.scene.snapshot)
    if found is None or found.gang.place != place_of(rule):
        return frozenset({"abstained"})
    said = answers.rejections().values()
    if len(said) == len(answers.scene.rows) and found.gang.place in {one.place for one in said}:
        return frozenset({"rejected"})
    if not answers.scene.chosen:
        return frozenset({"passed"})
    return frozenset({_verdict(answers.permission()[0] != "reject")})


def _of_quota(rule: QuotaRule, answers: ByColumns) -> str:
    objects = answers.scene.quotas
    if rule.use(answers.subject, answers.world, objects).key is None:
        return "abstained"
    return _verdict(quotas.why_not(rule, answers.subject, answers.world, objects) is None)


def _of_preemption(rule: PreemptRule, plan: Plan, answers: ByColumns) -> frozenset[str]:
    if rule.prepare(answers.subject, answers.world) is None:
        return frozenset({"abstained"})
    asked = plan.preemption(answers.subject, answers.world) is rule
    fits = len(answers.rejections()) < len(answers.scene.rows)
    return frozenset({"applied"} if asked and not fits else ())
