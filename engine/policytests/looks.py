"""Where each rule is asked in a test, what it did there, and the values of its parts.

Verdicts are those of the plan, as a cycle has them; the values of parts are looked up one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from dsl import ir, plan, reference
from dsl.analysis import facts
from dsl.policytest.reading import Expected
from dsl.reference import View
from dsl.types import NUMBER, show
from engine.explain.misses import condition_of, table
from engine.pods.podinfo import PodInfo
from engine.policy.plugin import place_of, results_of
from engine.policy.quotas import Quota
from engine.policytests.answers import Answers, number_in_file
from engine.policytests.policies import CannotJudgeError

#: In the order in which they are shown.
OUTCOMES: Final = ("rejected", "passed", "abstained", "scored", "applied")
#: Of so many nodes and pods a failed test shows the values.
_MOST: Final = 6
#: Of which points the rules are shown that an expectation is about.
_FILTERS: Final = ("filters", "prefilters", "quotas", "gangs")
_POINTS: Final = {
    "score": ("scores",),
    "best": ("tiers", "scores"),
    "order": ("sorts",),
    **dict.fromkeys(("gated", "ungated"), ("gates",)),
    "permit": ("reserves", "permits", "gangs"),
    **dict.fromkeys(("annotation", "label", "unset"), ("prebinds", "postbinds")),
    **dict.fromkeys(("victims", "nominated"), ("preempts", "quotas")),
}


class Look(NamedTuple):
    """A place where a rule is asked: of which node or given pod, what it did there, and its view.

    `of` is empty where the rule is asked once; `outcome` where it was not asked at all.
    """

    of: str
    said: str
    outcome: str
    view: View


def looks(rule: plan.RuleBase, answers: Answers) -> list[Look]:
    """All places where the rule was asked in this test."""
    scene, key = answers.scene, answers.scene.pod.key
    pods = _before_nodes(rule, answers)
    if isinstance(rule, plan.SortRule):
        outcome = "applied" if len(pods) > 1 else ""
        return [Look(scene.called[one.uid], one.key, outcome, scene.view(pod=one)) for one in pods]
    if isinstance(rule, plan.ConditionRule) and pods:
        views = [(one, scene.view(pod=one)) for one in pods]
        return [Look(scene.called[one.uid], one.key, _held(rule, it), it) for one, it in views]
    if isinstance(rule, plan.ConditionRule | plan.PermitRule | plan.ActionRule):
        return [_at_chosen(rule, answers)]
    view = scene.view()
    own = rule.prepare(view.subject, view.world)
    if own is None:
        return [Look("", f"does not apply to {key}", "abstained", view)]
    match rule:
        case plan.FilterRule():
            rows = np.array(list(scene.rows.values()), np.intp)
            passed = rule.verdict(own, view.world, rows).tolist()
            each = zip(scene.rows.items(), passed, strict=True)
            return [Look(name, name, _verdict(ok), scene.view(row)) for (name, row), ok in each]
        case plan.TierRule() | plan.ScoreRule():
            return _ranked(rule, answers)
        case plan.PreemptRule():
            return _victims(rule, answers)
        case plan.GangRule() | plan.QuotaRule():
            return [_of_many(rule, answers)]
        case _:
            return [Look("", key, "applied", view)]


def _verdict(passes: bool) -> str:  # noqa: FBT001 - the fact itself
    return "passed" if passes else "rejected"


def _before_nodes(rule: plan.RuleBase, answers: Answers) -> Sequence[PodInfo]:
    """The pods that a rule is asked of before any node; none of another rule."""
    scene = answers.scene
    if isinstance(rule, plan.SortRule) or any(rule in one.gates for one in scene.plans):
        return scene.pods
    return [scene.pod] if any(rule in one.prefilters for one in scene.plans) else []


def _held(rule: plan.ConditionRule, view: View) -> str:
    if rule.prepare(view.subject, view.world) is None:
        return "abstained"
    return _verdict(rule.holds(view.subject, view.world, view.row))


def _ranked(rule: plan.RuleBase, answers: Answers) -> list[Look]:
    """What a rule of the order of nodes made of each; a score that gives none anything abstains."""
    scene, place = answers.scene, place_of(rule)
    candidates = tuple(answers.candidates.tolist())
    points = {
        one.node: line.score
        for one in answers.ranking.nodes
        for given in one.given
        for line in given.lines
        if line.place == place
    }
    scored = "scored" if points else "abstained"
    outcome = scored if isinstance(rule, plan.ScoreRule) else "applied"
    out = []
    for name, row in scene.rows.items():
        gets = show(points[name], NUMBER) if name in points else "nothing"
        said = f"{name} gets {gets}" if isinstance(rule, plan.ScoreRule) else name
        out.append(Look(name, said, outcome, replace(scene.view(row), candidates=candidates)))
    return out


def _at_chosen(
    rule: plan.ConditionRule | plan.PermitRule | plan.ActionRule, answers: Answers
) -> Look:
    """A rule about the chosen node; without one the pod alone may decide, for `skipped`."""
    key = answers.scene.pod.key
    try:
        decision, placed = answers.decision, answers.placed
    except CannotJudgeError as none:
        view = answers.scene.view()
        applies = rule.prepare(view.subject, view.world) is not None
        return Look("", f"{key}: {none}", "" if applies else "abstained", view)
    view = replace(placed.view(decision.row), results=results_of(decision))
    at = view.subject, view.world, view.row
    if isinstance(rule, plan.PermitRule):
        waits = rule.core.decision == "wait" and not rule.until(*at)
        outcome = _verdict(not (waits or rule.core.decision == "reject"))
        outcome = outcome if rule.applies(*at) else "abstained"
    elif isinstance(rule, plan.ActionRule):
        outcome = "applied" if rule.effects(*at, view.results) else "abstained"
    else:
        outcome = _held(rule, view)
    return Look("", f"{key} on {decision.node}", outcome, view)


def _victims(rule: plan.PreemptRule, answers: Answers) -> list[Look]:
    """The pod for which others would go, and some of those others."""
    scene, view = answers.scene, answers.scene.view()
    is_asked = any(one.preemption(view.subject, view.world) is rule for one in scene.plans)
    outcome = "applied" if is_asked and len(answers.rejections) == len(scene.rows) > 0 else ""
    out, there = [Look("", scene.pod.key, outcome, view)], scene.snapshot.pods
    for place in [at for at, row in enumerate(there.node.tolist()) if row >= 0][:_MOST]:
        row = int(there.node[place])
        view = replace(scene.view(row), pod=place)
        where = rule.core.where
        word = "may go" if where is None or reference.evaluate(where, view) else "stays"
        said = f"{there.pod(place).name} on {scene.snapshot.nodes.name(row)} {word}"
        out.append(Look("", said, outcome, view))
    return out


def _of_many(rule: plan.GangRule | plan.QuotaRule, answers: Answers) -> Look:
    """What a gang or a quota says of the pod: it stops it everywhere, on its node, or not."""
    scene, gang, no = answers.scene, answers.gang, answers.rejections.values()
    stopped = place_of(rule) in {one.place for one in no} and not len(answers.candidates)
    said = scene.pod.key
    if isinstance(rule, plan.QuotaRule):
        applies = Quota(rule, scene.worlds).use(scene.pod, scene.snapshot).key is not None
    elif applies := gang is not None and gang.gang.place == place_of(rule):
        said, waits = str(gang), gang.reserved + 1 < gang.gang.minimum
        stopped |= bool(scene.chosen) and waits and answers.permission[0] == "reject"
    return Look("", said, _verdict(not stopped) if applies else "abstained", scene.view())


def values_of_rules(answers: Answers, nodes: tuple[str, ...], expected: Expected) -> Iterator[str]:
    """What the rules that an expectation is about made of these nodes, each part with its value."""
    of = ("", *(expected.names if expected.name in ("gated", "ungated") else nodes))
    if expected.name == "skipped":
        rules = [one for one in answers.rules if number_in_file(one) == int(expected.number)]
    else:
        points, plans = _POINTS.get(expected.name, _FILTERS), answers.scene.plans
        rules = [one for of_all in plans for part in points for one in getattr(of_all, part)]
    for rule in rules:
        yield f"{place_of(rule)}: {rule.text}"
        each = looks(rule, answers)
        for look in ([one for one in each if one.of in of] or each)[:_MOST]:
            yield f"  {look.said}"
            core = getattr(rule, "core", None)
            if isinstance(core, ir.PreemptCore):
                # What is picked by is no pod's: it is of all victims of a node.
                core = replace(core, pick=())
            roots = [] if core is None else facts.roots(core)
            yield from table([condition_of(one) for one in roots], rule, look.view)
