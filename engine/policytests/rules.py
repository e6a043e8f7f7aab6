"""What each rule did in a test: what coverage counts, and what a failed test shows of it.

A verdict is that of the plan, as a scheduling cycle has it; the values of its parts are looked up
one by one. Of a rule that says yes or no both must be seen, of one with a left side that it
abstains, of any other that it is applied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from dsl import ir, reasons, reference
from dsl.analysis import facts
from dsl.collective import QuotaUse
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
    TierRule,
)
from dsl.policytest import Expected
from dsl.reference import View
from dsl.schema import FIELDS, request_unit
from dsl.types import NUMBER, number_of, show
from engine.collective.quotas import coming
from engine.explain.parts import asked, table
from engine.explain.rules import policies_of
from engine.pods.podinfo import PodInfo
from engine.policy import findings
from engine.policy.acting import place_of, results_of
from engine.policy.quotas import QuotaPlugin
from engine.policytests.judging import CannotJudgeError

if TYPE_CHECKING:
    from engine.policytests.answers import Answers

#: In the order in which they are shown.
OUTCOMES: Final = ("rejected", "passed", "abstained", "scored", "applied")
_MOST_NODES: Final = 3
_MOST_PODS: Final = 6
#: Of which points the rules are shown that an expectation is about.
_FILTERS: Final = ("filters", "prefilters", "quotas", "gangs")
_POINTS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
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
)


def rules_of(plan: Plan) -> list[RuleBase]:
    """All rules of a policy, in the order of the file."""
    return sorted(findings.rules_of(plan), key=number_in_file)


def number_in_file(rule: RuleBase) -> int:
    """The number of a rule in its file, from 1."""
    return int(rule.id.rpartition("#")[2])


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


@dataclass(frozen=True, slots=True)
class Look:
    """What a rule did with a pod or a node, in a word for coverage (or none) and in words.

    `of` is the name of a node, or of one of the given pods, where there may be several; `roots` are
    the parts whose values make the difference, in `view`.
    """

    outcome: str
    said: str
    of: str = ""
    view: View | None = None
    roots: Sequence[ir.Expr] = ()


_Looks = Iterator[Look]


def values_of_rules(answers: Answers, nodes: tuple[str, ...], expected: Expected) -> str:
    """What the rules made of these nodes, each part with its value; empty if there is no rule.

    Those rules are shown that the expectation is about.
    """
    lines: list[str] = []
    held = expected.name in ("gated", "ungated")
    of = ("", *(expected.names if held else nodes[:_MOST_NODES]))
    for plan in answers.scene.plans:
        rules: Iterable[RuleBase]
        if expected.name == "skipped":
            rules = [one for one in rules_of(plan) if number_in_file(one) == int(expected.number)]
        else:
            rules = [one for part in _POINTS.get(expected.name, _FILTERS)
                     for one in getattr(plan, part)]  # fmt: skip
        for rule in rules:
            lines.append(f"{place_of(rule)}: {rule.text}")
            for look in looks(rule, answers):
                if look.of in of:
                    lines.extend(_shown(rule, look))
        if plan.preempts and expected.name in ("victims", "nominated"):
            lines.append(f"  {answers.preemption.message}".rstrip())
    return "\n".join(lines)


def _shown(rule: RuleBase, look: Look) -> Iterator[str]:
    if look.said:
        yield f"  {look.said}"
    view, core = look.view, getattr(rule, "core", None)
    if view is None:
        return
    for one in core.longer if isinstance(core, ir.FilterCore) else ():
        if reference.evaluate(one, view):
            of_list = reasons.beyond(one, rule.source.text, reference.asked(view))
            yield f"    {of_list}: the rule rejects"
    yield from table(look.roots, rule, view)


def looks(rule: RuleBase, answers: Answers) -> _Looks:
    """What the rule did in this test."""
    match rule:
        case SortRule():
            return _of_sort(rule, answers)
        case ConditionRule() if any(rule in plan.gates for plan in answers.scene.plans):
            each = {pod.name: pod for pod in answers.scene.pods}
            return _before_nodes(rule, answers, each, ("is held", "is let through"))
        case ConditionRule() if any(rule in plan.prefilters for plan in answers.scene.plans):
            only = {"": answers.scene.pod}
            return _before_nodes(rule, answers, only, ("is rejected", "passes"))
        case ConditionRule() | PermitRule() | ActionRule():
            return _at_chosen(rule, answers)
        case PreemptRule():
            return _of_preempt(rule, answers)
        case GangRule():
            return _of_gang(rule, answers)
        case QuotaRule():
            return _of_quota(rule, answers)
        case _:
            return _of_nodes(rule, answers)


# ---- before any node


def _guard(rule: RuleBase, answers: Answers, otherwise: str = "") -> Look:
    """Whether the rule is for the pod at all; if so it comes to what is said `otherwise`."""
    core = getattr(rule, "core", None)
    guard = getattr(core, "guard", None)
    applies = rule.prepare(answers.subject, answers.world) is not None
    said = f"{'applies' if applies else 'does not apply'} to {answers.scene.pod.key}"
    said = "" if applies and guard is None else said
    return Look(
        otherwise if applies else "abstained",
        said,
        view=answers.view(),
        roots=[] if guard is None else [guard],
    )


def _of_sort(rule: SortRule, answers: Answers) -> _Looks:
    keys = [one.value for one in rule.core.keys]
    several = len(answers.scene.pods) > 1
    for pod in answers.scene.pods[:_MOST_PODS]:
        view = answers.view(pod)
        yield Look("applied" if several else "", pod.name, view=view, roots=keys)


def _before_nodes(
    rule: ConditionRule, answers: Answers, pods: Mapping[str, PodInfo], said: tuple[str, str]
) -> _Looks:
    for name, pod in pods.items():
        view = answers.view(pod)
        passes = rule.holds(view.subject, view.world, -1)
        applies = rule.prepare(view.subject, view.world) is not None
        outcome = _verdict(passes) if applies else "abstained"
        yield Look(outcome, f"{pod.key} {said[passes]}", name, view, _roots(rule))


def _verdict(passes: bool) -> str:  # noqa: FBT001 - the fact itself
    return "passed" if passes else "rejected"


def _roots(rule: ConditionRule | PermitRule | ActionRule) -> list[ir.Expr]:
    return list(dict.fromkeys(facts.roots(rule.core)))


# ---- nodes


def _of_nodes(rule: RuleBase, answers: Answers) -> _Looks:
    core = getattr(rule, "core", None)
    yield _guard(rule, answers)
    own = rule.prepare(answers.subject, answers.world)
    if own is None:
        return
    rows = np.array(list(answers.scene.rows.values()), np.intp)
    if isinstance(rule, FilterRule):
        passes = rule.verdict(own, answers.world, rows).tolist()
        said = [(_verdict(one), "passes" if one else "is rejected") for one in passes]
    elif isinstance(rule, TierRule):
        first = rule.mask(own, answers.world, rows).tolist()
        said = [("applied", "comes first" if one else "comes later") for one in first]
    elif isinstance(rule, ScoreRule):
        said = list(_scored(rule, answers))
    else:
        yield Look("applied", "")
        return
    candidates = None if isinstance(rule, FilterRule) else tuple(answers.candidates.tolist())
    guard = getattr(core, "guard", None)
    roots = [asked(one) for one in facts.parts(rule.core) if one is not guard]
    for (name, row), (outcome, word) in zip(answers.scene.rows.items(), said, strict=True):
        view = View(answers.world, answers.subject, row, candidates)
        yield Look(outcome, f"{name} {word}", name, view, roots)


def _scored(rule: ScoreRule, answers: Answers) -> Iterator[tuple[str, str]]:
    place = place_of(rule)
    points = {
        one.node: line.score
        for one in answers.ranking.nodes
        for given in one.given
        for line in given.lines
        if line.place == place
    }
    for name in answers.nodes:
        if name in points:
            yield "scored", f"gets {show(points[name], NUMBER)}"
        elif name in answers.rejections:
            yield "" if points else "abstained", "is not scored: it does not pass"
        else:
            yield "abstained", "has no value, and no other node has"


def _at_chosen(rule: ConditionRule | PermitRule | ActionRule, answers: Answers) -> _Looks:
    """A rule about the chosen node, with the pod on it already."""
    try:
        results = results_of(answers.decision())
        with answers.placed() as (world, subject, row):
            view = View(world, subject, row, results=results)
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
            said = f"{answers.scene.pod.key} on {answers.chosen()}"
            yield Look(outcome if applies else "abstained", said, "", view, _roots(rule))
    except CannotJudgeError as none:
        # Without a chosen node the pod alone may decide, as `expect skipped` has it.
        yield replace(_guard(rule, answers), said=str(none), view=None)


# ---- several pods


def _of_preempt(rule: PreemptRule, answers: Answers) -> _Looks:
    core, world = rule.core, answers.world
    fits = len(answers.rejections) < len(answers.scene.rows)
    asked_ = any(one.preemption(answers.subject, world) is rule for one in answers.scene.plans)
    yield _guard(rule, answers, "applied" if asked_ and not fits else "")
    if core.where is None:
        return
    pods = answers.scene.snapshot.pods
    there = [place for place, node in enumerate(pods.node.tolist()) if node >= 0]
    for place in there[:_MOST_PODS]:
        row = int(pods.node[place])
        view = View(world, answers.subject, row, pod=place)
        may = "may go" if reference.evaluate(core.where, view) else "stays"
        said = f"{pods.pod(place).name} on {answers.scene.snapshot.nodes.name(row)} {may}"
        yield Look("", said, "", view, [core.where, *(key.value for key in core.order)])


def _of_gang(rule: GangRule, answers: Answers) -> _Looks:
    found = answers.gang
    if found is None or found.gang.place != place_of(rule):
        yield replace(_guard(rule, answers), outcome="abstained")
        yield Look("", f"{answers.scene.pod.key} is in no gang")
        return
    said = answers.rejections.values()
    stopped = len(said) == len(answers.scene.rows)
    if stopped and found.gang.place in {one.place for one in said}:
        outcome = "rejected"
    elif not answers.scene.chosen:
        outcome = "passed"
    else:
        outcome = _verdict(answers.permission[0] != "reject")
    yield _guard(rule, answers, outcome)
    yield Look("", str(found))


def _of_quota(rule: QuotaRule, answers: Answers) -> _Looks:
    policies = [one for one in policies_of(answers.scene.framework) if isinstance(one, QuotaPlugin)]
    quota = next(one for policy in policies for one in policy.quotas if one.rule is rule)
    use = quota.use(answers.scene.pod, answers.scene.snapshot)
    if use.key is None:
        yield replace(_guard(rule, answers), outcome="abstained")
        yield Look("", f"{answers.scene.pod.key} has no quota")
        return
    yield _guard(rule, answers, _verdict(quota.says(use) is None))
    for key, limits in use.limits.items():
        for name in sorted({*limits.minimum, *limits.maximum}):
            kind = number_of(request_unit(name))
            used = show(use.used.get(key, {}).get(name, 0.0), kind)
            said = f"{key}: {used} {name} used"
            if key == use.key:
                said += f", {show(use.asked.get(name, 0.0), kind)} asked for"
            for bound, amounts in (("min", limits.minimum), ("max", limits.maximum)):
                said += f", {bound} {show(amounts[name], kind)}" if name in amounts else ""
            yield Look("", said)
    if rule.core.elastic:
        yield from _pool(use)


def _pool(use: QuotaUse) -> _Looks:
    """What all quotas guarantee together, which is what they lend each other."""
    for name, whole in use.pool.minimum.items():
        kind = number_of(request_unit(name))
        used = use.pool.used.get(name, 0.0) + sum(one.get(name, 0.0) for one in coming(use))
        known = "1 quota is" if len(use.limits) == 1 else f"{len(use.limits)} quotas are"
        said = f"all together: {show(used, kind)} of {show(whole, kind)} {name} used; {known} known"
        yield Look("", said)
