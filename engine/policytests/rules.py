"""What each rule did in a test: what coverage counts, and what a failed test shows of it.

A verdict is that of the plan, as a scheduling cycle has it; the values of its parts are looked up
one by one. Of a rule that says yes or no both must be seen, of one with a left side that it
abstains, of any other that it is applied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np

from dsl import ir, reasons, reference
from dsl.analysis import facts
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
from dsl.policytest import Expected
from dsl.reference import View
from dsl.schema import FIELDS
from dsl.types import NUMBER, show
from dsl.world import Parts
from engine.explain.parts import asked, table
from engine.explain.scores import policies_of
from engine.pods.podinfo import PodInfo
from engine.policy.plugin import place_of, results_of
from engine.policy.quotas import QuotaPlugin
from engine.policytests.answers import Answers, number_in_file, rules_of
from engine.policytests.policies import CannotJudgeError

#: In the order in which they are shown.
OUTCOMES: Final = ("rejected", "passed", "abstained", "scored", "applied")
_MOST_NODES: Final = 3
_MOST_PODS: Final = 6
#: Of which points the rules are shown that an expectation is about.
_FILTERS: Final = ("filters", "prefilters", "quotas", "gangs")
_POINTS: Final = {
    "score": ("scores",),
    "best": ("tiers", "scores"),
    "order": ("sorts",),
    "gated": ("gates",),
    "ungated": ("gates",),
    "permit": ("reserves", "permits", "gangs"),
    **dict.fromkeys(("annotation", "label", "unset"), ("prebinds", "postbinds")),
    "victims": ("preempts", "quotas"),
    "nominated": ("preempts", "quotas"),
}


@dataclass(slots=True)
class RuleCoverage:
    """In how many tests a rule had each outcome, and which it can have."""

    place: str
    text: str
    possible: frozenset[str]
    outcomes: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, rule: RuleBase) -> RuleCoverage:
        """A rule that no test has shown yet."""
        return cls(place_of(rule), rule.text, _possible(rule))

    @property
    def missing(self) -> list[str]:
        """The outcomes that no test has shown."""
        return [one for one in OUTCOMES if one in self.possible and not self.outcomes[one]]


def _possible(rule: RuleBase) -> frozenset[str]:
    match rule:
        case FilterRule() | ConditionRule() | QuotaRule() | GangRule():
            found = {"rejected", "passed"}
        case PermitRule():
            only = {"allow": {"passed"}, "reject": {"rejected"}}
            found = only.get(rule.core.decision, {"rejected", "passed"})
        case ScoreRule():
            found = {"scored"}
        case _:
            found = {"applied"}
    return frozenset(found | {"abstained"} if _can_abstain(rule) else found)


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


# ---- what coverage counts


def outcomes(rule: RuleBase, answers: Answers) -> set[str]:
    """What the rule did in this test with the pod, or with each node or pod; empty: nothing."""
    pods = _before_nodes(rule, answers)
    if isinstance(rule, SortRule):
        return {"applied"} if len(pods) > 1 else set()
    if isinstance(rule, ConditionRule) and pods:
        return {_of_pod(rule, answers.view(pod)) for pod in pods}
    if isinstance(rule, ConditionRule | PermitRule | ActionRule):
        return _at_chosen(rule, answers)
    own = rule.prepare(answers.subject, answers.world)
    return {"abstained"} if own is None else _of_nodes(rule, own, answers)


def _of_nodes(rule: RuleBase, own: Parts, answers: Answers) -> set[str]:
    rows = np.array(list(answers.scene.rows.values()), np.intp)
    match rule:
        case FilterRule():
            return {_verdict(one) for one in rule.verdict(own, answers.world, rows).tolist()}
        case TierRule() | ScoreRule() if not len(rows):
            return set()
        case ScoreRule():
            return {"scored" if _points(rule, answers) else "abstained"}
        case PreemptRule():
            plans, fits = answers.scene.plans, len(answers.rejections) < len(rows)
            is_asked = any(one.preemption(answers.subject, answers.world) is rule for one in plans)
            return {"applied"} if is_asked and not fits else set()
        case GangRule():
            return {_of_gang(rule, answers)}
        case QuotaRule():
            return {_of_quota(rule, answers)}
        case _:
            return {"applied"}


def _verdict(passes: bool) -> str:  # noqa: FBT001 - the fact itself
    return "passed" if passes else "rejected"


def _before_nodes(rule: RuleBase, answers: Answers) -> Sequence[PodInfo]:
    """The pods that a rule is asked of before any node; none of another rule."""
    scene = answers.scene
    if isinstance(rule, SortRule) or any(rule in plan.gates for plan in scene.plans):
        return scene.pods
    return [scene.pod] if any(rule in plan.prefilters for plan in scene.plans) else []


def _of_pod(rule: ConditionRule, view: View) -> str:
    if rule.prepare(view.subject, view.world) is None:
        return "abstained"
    return _verdict(rule.holds(view.subject, view.world, -1))


def _points(rule: ScoreRule, answers: Answers) -> dict[str, float]:
    """What the rule gives the nodes that pass; empty: it abstains."""
    place = place_of(rule)
    return {
        one.node: line.score
        for one in answers.ranking.nodes
        for given in one.given
        for line in given.lines
        if line.place == place
    }


def _at_chosen(rule: ConditionRule | PermitRule | ActionRule, answers: Answers) -> set[str]:
    """A rule about the chosen node; without one the pod alone may decide, for `skipped`."""
    try:
        results = results_of(answers.decision())
        with answers.placed() as (world, subject, row):
            if isinstance(rule, PermitRule):
                applies = rule.applies(subject, world, row)
                waits = rule.core.decision == "wait" and not rule.until(subject, world, row)
                outcome = _verdict(not (waits or rule.core.decision == "reject"))
            elif isinstance(rule, ActionRule):
                applies = bool(rule.effects(subject, world, row, results))
                outcome = "applied"
            else:
                applies = rule.prepare(subject, world) is not None
                outcome = _verdict(rule.holds(subject, world, row))
            return {outcome if applies else "abstained"}
    except CannotJudgeError:
        applies = rule.prepare(answers.subject, answers.world) is not None
        return set() if applies else {"abstained"}


def _of_gang(rule: GangRule, answers: Answers) -> str:
    found = answers.gang
    if found is None or found.gang.place != place_of(rule):
        return "abstained"
    said = answers.rejections.values()
    stopped = len(said) == len(answers.scene.rows)
    if stopped and found.gang.place in {one.place for one in said}:
        return "rejected"
    return _verdict(not answers.scene.chosen or answers.permission[0] != "reject")


def _of_quota(rule: QuotaRule, answers: Answers) -> str:
    policies = [one for one in policies_of(answers.scene.framework) if isinstance(one, QuotaPlugin)]
    quota = next(one for policy in policies for one in policy.quotas if one.rule is rule)
    use = quota.use(answers.scene.pod, answers.scene.snapshot)
    return "abstained" if use.key is None else _verdict(quota.says(use) is None)


# ---- what a failed test shows


def values_of_rules(answers: Answers, nodes: tuple[str, ...], expected: Expected) -> str:
    """What the rules made of these nodes, each part with its value; empty if there is no rule.

    Those rules are shown that the expectation is about.
    """
    lines: list[str] = []
    held = expected.name in ("gated", "ungated")
    of = expected.names if held else nodes[:_MOST_NODES]
    for plan in answers.scene.plans:
        rules: Iterable[RuleBase]
        if expected.name == "skipped":
            rules = [one for one in rules_of(plan) if number_in_file(one) == int(expected.number)]
        else:
            rules = [one for part in _POINTS.get(expected.name, _FILTERS)
                     for one in getattr(plan, part)]  # fmt: skip
        for rule in rules:
            lines.append(f"{place_of(rule)}: {rule.text}")
            for said, view in _views(rule, answers, of):
                lines.append(f"  {said}")
                lines.extend(_parts(rule, view))
            if isinstance(rule, GangRule) and answers.gang is not None:
                lines.append(f"  {answers.gang}")
        if plan.preempts and expected.name in ("victims", "nominated"):
            lines.append(f"  {answers.preemption.message}".rstrip())
    return "\n".join(lines)


def _views(rule: RuleBase, answers: Answers, of: Sequence[str]) -> Iterator[tuple[str, View]]:
    """Where a rule is looked at, and what that is called; of nodes and held pods those of `of`."""
    scene, key = answers.scene, answers.scene.pod.key
    pods = _before_nodes(rule, answers)
    if pods:
        for pod in ([one for one in pods if scene.called[one.uid] in of] or pods)[:_MOST_PODS]:
            yield pod.key, answers.view(pod)
    elif isinstance(rule, ConditionRule | PermitRule | ActionRule):
        try:
            results = results_of(answers.decision())
            with answers.placed() as (world, subject, row):
                yield f"{key} on {answers.chosen()}", View(world, subject, row, results=results)
        except CannotJudgeError as none:
            yield f"{key}: {none}", answers.view()
    elif rule.prepare(answers.subject, answers.world) is None:
        yield f"does not apply to {key}", answers.view()
    elif isinstance(rule, PreemptRule):
        there = scene.snapshot.pods
        for place in [at for at, row in enumerate(there.node.tolist()) if row >= 0][:_MOST_PODS]:
            row = int(there.node[place])
            view = View(answers.world, answers.subject, row, pod=place)
            where = rule.core.where
            word = "may go" if where is None or reference.evaluate(where, view) else "stays"
            yield f"{there.pod(place).name} on {scene.snapshot.nodes.name(row)} {word}", view
    elif isinstance(rule, GangRule | QuotaRule):
        yield key, answers.view()
    else:
        yield from _at_nodes(rule, answers, of)


def _at_nodes(rule: RuleBase, answers: Answers, of: Sequence[str]) -> Iterator[tuple[str, View]]:
    points = _points(rule, answers) if isinstance(rule, ScoreRule) else None
    candidates = None if isinstance(rule, FilterRule) else tuple(answers.candidates.tolist())
    for name, row in answers.scene.rows.items():
        if name in of:
            said = name
            if points is not None:
                gets = show(points[name], NUMBER) if name in points else "nothing"
                said = f"{name} gets {gets}"
            yield said, View(answers.world, answers.subject, row, candidates)


def _parts(rule: RuleBase, view: View) -> Iterator[str]:
    core = getattr(rule, "core", None)
    for one in core.longer if isinstance(core, ir.FilterCore) else ():
        if view.row >= 0 and reference.evaluate(one, view):
            of_list = reasons.beyond(one, rule.source.text, reference.asked(view))
            yield f"    {of_list}: the rule rejects"
    if isinstance(core, ir.PreemptCore):
        core = msgspec.structs.replace(core, pick=())  # no pod's: it is of all victims of a node
    roots = [] if core is None else facts.roots(core)
    yield from table([asked(one) for one in roots], rule, view)
