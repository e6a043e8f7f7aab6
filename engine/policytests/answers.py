"""What policies say of one test's cluster, and whether that is what is expected.

The answers are those of the scheduler in its lab. What takes more than one decision, and changes
the cluster, happens in a lab of its own. The verdict of a rule is that of the plan, as a scheduling
cycle has it; the values of its parts are looked up one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from dsl import ir, reference
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
from dsl.policytest.attributes import listed
from dsl.policytest.reading import Expected
from dsl.reference import View
from dsl.types import NUMBER, show
from engine.clock import ManualClock
from engine.explain.gangs import Group, group_of, start_of
from engine.explain.parts import asked, table
from engine.explain.scores import Ranking, among, policies_of
from engine.framework.acting import Acts
from engine.framework.decision import Decision, Details, PluginScore
from engine.framework.effects import Emit, Patch
from engine.framework.runtime import Candidates, Unfit
from engine.framework.status import Code, Status
from engine.pods.podinfo import PodInfo
from engine.policy import findings
from engine.policy.plugin import place_of, results_of
from engine.policy.quotas import QuotaPlugin
from engine.policytests.policies import CannotJudgeError
from engine.policytests.scene import Scene

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
    "gated": ("gates",),
    "ungated": ("gates",),
    "permit": ("reserves", "permits", "gangs"),
    **dict.fromkeys(("annotation", "label", "unset"), ("prebinds", "postbinds")),
    "victims": ("preempts", "quotas"),
    "nominated": ("preempts", "quotas"),
}
_WORDS: Final = {
    Code.UNSCHEDULABLE: "unschedulable",
    Code.PENDING: "unschedulable",
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE: "unresolvable",
}
#: What is expected holds anyhow, unless a plugin has one of these points.
_NEEDED: Final = {
    "permit": ("permit", "reserve", "gang"),
    "victims": ("post_filter",),
    "nominated": ("post_filter",),
}
_TOLERANCE: Final = 2e-6
#: Where no node is feasible, of so many is told why.
_MOST_FATES: Final = 8


class Rejection(NamedTuple):
    """Why a node is not feasible; `place` is file and line of the rule, or a plugin's name."""

    message: str
    status: str
    place: str


class Preempted(NamedTuple):
    """The pods that are evicted for a pod, the node it is promised, and what is said of that."""

    victims: tuple[str, ...]
    nominated: str | None
    message: str = ""


def number_in_file(rule: RuleBase) -> int:
    """The number of a rule in its file, from 1."""
    return int(rule.id.rpartition("#")[2])


class Answers:
    """See the module."""

    def __init__(self, make: Callable[[], Scene]) -> None:
        """`make` gives the scene, and once more where what is asked changes the cluster."""
        self.scene = make()
        self._make = make
        each = [sorted(findings.rules_of(one), key=number_in_file) for one in self.scene.plans]
        self.rules: list[RuleBase] = [rule for rules in each for rule in rules]
        self.seen: dict[str, set[str]] = {}
        """The outcomes of each rule by its id (`rules.looks`): who runs the test enters them."""

    @cached_property
    def rejections(self) -> Mapping[str, Rejection]:
        """The nodes that do not pass, in the order of the file: the first who rejects each."""
        scene, rows = self.scene, self.scene.rows
        said: dict[int, Rejection] = {}
        try:
            trial = scene.framework.trial(scene.pod, scene.snapshot)
        except Unfit as unfit:
            error = unfit.fit_error
            code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE if error.unresolvable else Code.UNSCHEDULABLE
            status = Status(code, (error.pre_filter_message,), " ".join(sorted(error.plugins)))
            return dict.fromkeys(rows, self._read(status))
        for row in rows.values():
            first = trial.at(row).rejection()
            if trial.allowed is not None and not trial.allowed[row]:
                by = " ".join(sorted(trial.allowed_by))
                said[row] = Rejection(f"node(s) didn't satisfy plugin {by}", "unresolvable", by)
            elif first is not None:
                said[row] = self._read(first.status.by(first.plugin))
        if len(said) < len(rows) and self.gang is not None:
            start = start_of(self.gang, scene.lab.cache, scene.lab.snapshot, scene.framework)
            word = "unresolvable" if start.never else "unschedulable"
            no = Rejection(start.reason, word, self.gang.gang.place)
            said = dict.fromkeys({*rows.values()} - start.rows, no) | said
        return {name: said[row] for name, row in rows.items() if row in said}

    @cached_property
    def gang(self) -> Group | None:
        """The gang of the pod; None: it is in none."""
        scene = self.scene
        return group_of(scene.pod, scene.queue, scene.snapshot, scene.framework)

    def _read(self, status: Status) -> Rejection:
        message, place = self._placed(", ".join(status.reasons))
        return Rejection(message, _WORDS.get(status.code, "error"), place or status.plugin)

    def _placed(self, text: str) -> tuple[str, str]:
        """A reason and the place that policies put behind theirs."""
        for place in map(place_of, self.rules):
            if text.endswith(f" ({place})"):
                return text.removesuffix(f" ({place})"), place
        return text, ""

    @property
    def candidates(self) -> Candidates:
        """The rows of the nodes that are left."""
        rows = [row for name, row in self.scene.rows.items() if name not in self.rejections]
        return np.array(sorted(rows), np.intp)

    @property
    def scores(self) -> Mapping[str, float] | None:
        """Scores of the feasible nodes: one policy's own, of several the weighted sum.

        None when every scoring rule abstained.
        """
        nodes, plugins = self.ranking.nodes, self.scene.framework.profile.plugins
        if not any(one.given for one in nodes):
            return None
        alone = sum(one.plugin.points().score is not None for one in plugins) == 1
        return {one.node: one.given[0].score if alone else one.total for one in nodes}

    @cached_property
    def ranking(self) -> Ranking:
        """The nodes that are left as a scheduling cycle orders them."""
        rows, scene = self.candidates, self.scene
        return among(scene.pod, scene.snapshot, scene.framework, rows) if len(rows) else Ranking()

    @property
    def best(self) -> Sequence[str]:
        """The feasible nodes of the highest rank."""
        best = {one.node for one in self.ranking.nodes[: self.ranking.ties]}
        return [name for name in self.scene.rows if name in best]

    def applies(self, rule: RuleBase) -> bool:
        """Whether a rule has a say about the pod; a score that abstains has none."""
        return self.seen[rule.id] != {"abstained"}

    @property
    def order(self) -> Sequence[str]:
        """The given pods in the order of the queue; who says nothing came first."""
        scene, framework = self.scene, self.scene.framework

        def key(pod: PodInfo) -> tuple[Any, ...]:
            times = scene.snapshot.other_pods.times(pod.uid)
            came = 0.0 if times is None or math.isnan(times.queued_at) else times.queued_at
            return framework.sort_key(pod, came, scene.snapshot)

        return [scene.called[one.uid] for one in sorted(scene.pods, key=key)]

    def gate(self, pod: str) -> str | None:
        """Why a given pod is held before the queue; None if it is not."""
        called = self.scene.called
        one = next(each for each in self.scene.pods if called[each.uid] == pod)
        status = self.scene.framework.pre_enqueue(one, self.scene.snapshot)
        return None if status.ok else self._read(status).message

    @cached_property
    def decision(self) -> Decision:
        """The decision that takes the chosen node, or the best one, with what everyone gave it.

        Raises:
            CannotJudgeError: none is chosen, and several might be.
        """
        scene = self.scene
        if not scene.chosen and len(self.best) != 1:
            raise CannotJudgeError("no node is chosen; say which:  given pod chosen NODE")
        node = scene.chosen or self.best[0]
        taken = next((one for one in self.ranking.nodes if one.node == node), None)
        given = () if taken is None else taken.given
        return Decision(
            scene.pod,
            scene.snapshot.generation,
            "",
            len(scene.rows),
            node,
            scene.rows[node],
            total=0.0 if taken is None else taken.total,
            known=Details(tuple([PluginScore(g.plugin, g.raw, g.score, g.weight) for g in given])),
        )

    @cached_property
    def placed(self) -> Scene:
        """The scene in which the pod is on its node.

        Raises:
            CannotJudgeError: no node is chosen.
        """
        node, scene = str(self.decision.node), self._make()
        scene.lab.cache.assume(scene.pod, node, scene.snapshot.now)
        scene.snapshot = scene.lab.snapshot()
        return scene

    @cached_property
    def permission(self) -> tuple[str, str]:
        """`allow`, `reject` or `wait`, and the message; of a gang the pod alone is tried."""
        scene = self._make()
        verdict, said = scene.lab.run(_permission(scene, self.decision))
        return verdict, self._placed(said)[0]

    @cached_property
    def preemption(self) -> Preempted:
        """What the scheduler does so that the pod fits, of whose gang all members wait."""
        scene = self._make()
        return scene.lab.run(_preemption(scene))

    @cached_property
    def _acts(self) -> Acts:
        """All that is done around the binding."""
        placed = self.placed
        return placed.framework.act(placed.pod, placed.snapshot, self.decision)

    @property
    def written(self) -> Mapping[str, Mapping[str, str]]:
        """The annotations and the labels that prebind and postbind would set."""
        out = {"annotation": {**self._acts.annotations}, "label": {**self._acts.labels}}
        later = [one.body["metadata"] for one in self._acts.after if isinstance(one, Patch)]
        for kind, there in out.items():
            for meta in later:
                there.update(meta.get(f"{kind}s", {}))
        return out

    @property
    def events(self) -> Sequence[str]:
        """What the Events of prebind and postbind would say."""
        done = (*self._acts.before, *self._acts.after)
        return [one.note for one in done if isinstance(one, Emit)]


# ---- what changes the cluster, in a lab of its own


async def _permission(scene: Scene, decision: Decision) -> tuple[str, str]:
    """What becomes of the pod on the node of its decision, and why, after it has waited."""
    lab, pod = scene.lab, decision.pod
    lab.clock = ManualClock(scene.snapshot.now - scene.waited)
    lab.let_in()
    lab.queue.add(pod)
    lab.place(decision)
    lab.clock.advance(scene.waited)
    lab.scheduler.waiting_pods.step(math.inf)
    held = lab.scheduler.waiting_pods.get(pod.uid)
    if held is not None:
        return "wait", next(word for one in held.by.values() for word in one.status.reasons)
    for told in lab.written.conditions:
        if told.pod.uid == pod.uid and told.reason not in ("", "WaitingOnPermit"):
            start = f"node {decision.node} was chosen and refused: "
            return "reject", told.message.removeprefix(start)
    return "allow", ""


async def _preemption(scene: Scene) -> Preempted:
    lab = scene.lab
    group = group_of(scene.pod, scene.queue, scene.snapshot, scene.framework)
    pods = (scene.pod,) if group is None else group.pods
    lab.let_in()
    for pod in pods:
        lab.queue.add(pod)
    while lab.scheduler.work():
        pass
    evicting = lab.cache.nominations.is_evicting
    await lab.until(lambda: not any(evicting(one.uid) for one in pods))
    told = [one.rescue.message for one in lab.decisions if one.rescue is not None]
    victims = tuple(one.pod.name for one in lab.written.evicted)
    node = lab.cache.nominations.node_of(scene.pod.uid) or None
    return Preempted(victims, node, "".join(told[-1:]))


# ---- whether an expectation holds


class Failure(NamedTuple):
    """What came out instead; `nodes` are those worth a closer look."""

    message: str
    nodes: tuple[str, ...] = ()


def judge(expected: Expected, answers: Answers) -> Failure | None:
    """Compares one expectation with the answers; None: it holds.

    Raises:
        CannotJudgeError: this version has no answer.
    """
    match expected.name:
        case "feasible" | "rejected":
            return _judge_nodes(expected, answers)
        case "score":
            return _judge_score(expected, answers)
        case "best":
            return _judge_best(expected, answers)
        case "skipped":
            return _judge_skipped(int(expected.number), answers)
        case "annotation" | "label" | "unset":
            return _judge_written(expected, answers)
        case "gated" | "ungated" | "permit":
            return _judge_held(expected, answers)
        case _:
            return _judge_whole(expected, answers)


def holds_anyhow(expected: Expected, answers: Answers) -> Failure | None:
    """An expectation that nothing used here could break, for want of a rule of its kind."""
    needed = _NEEDED.get(expected.name, ())
    points = [one.plugin.points() for one in answers.scene.framework.profile.plugins]
    if not needed or any(getattr(one, name) for one in points for name in needed):
        return None
    return Failure("no policy used here has a rule for that: this holds whatever they say")


def _judge_held(expected: Expected, answers: Answers) -> Failure | None:
    """What becomes of a pod before the queue, and on its node."""
    name, said = expected.names[0], ""
    if expected.name == "permit":
        verdict, said = answers.permission
        text, holds = f"permit says {verdict}" + (f': "{said}"' if said else ""), verdict == name
    else:
        held = answers.gate(name)
        said, holds = held or "", (held is None) == (expected.name == "ungated")
        text = f"nothing holds {name} before the queue"
        text = text if held is None else f'{name} is held: "{held}"'
    return None if holds and expected.message in (None, said) else Failure(text)


def _judge_written(expected: Expected, answers: Answers) -> Failure | None:
    """What is set, or not set, whether as an annotation or as a label."""
    name, kinds = expected.names[0], answers.written
    if expected.name == "unset":
        values = [there[name] for there in kinds.values() if name in there]
        return Failure(f'{name} is set to "{values[0]}"') if values else None
    there = kinds[expected.name]
    if name not in there:
        return Failure(f"{name} is not set; set are {_list(sorted(there))}")
    return _unlike(f'{name} is set to "{there[name]}"', [there[name]], [expected.value])


def _judge_whole(expected: Expected, answers: Answers) -> Failure | None:
    """What has to be all of it: an order, victims and their node, Events."""
    if expected.name == "order":
        return _unlike(f"the order is {_list(answers.order)}", answers.order, expected.names)
    if expected.name == "events":
        said = "\n".join(("the events are", *(f'"{one}"' for one in answers.events)))
        said = said if answers.events else "there is no event"
        return _unlike(said, answers.events, expected.names)
    victims, node, why = answers.preemption
    if expected.name == "victims":
        said, got = f"the victims are {_list(sorted(victims))}", sorted(victims)
    else:
        said, got = f"nominated is {node or 'none'}", [node] if node else []
    return _unlike(f"{said}\n{why}".rstrip(), got, sorted(expected.names))


def _unlike(message: str, got: Sequence[str], wanted: Sequence[str]) -> Failure | None:
    return None if [*got] == [*wanted] else Failure(message)


def _list(names: Sequence[str]) -> str:
    return f"[{', '.join(names)}]"


def _judge_nodes(expected: Expected, answers: Answers) -> Failure | None:
    nodes, rejections = answers.scene.rows, answers.rejections
    there = [one for one in nodes if (one in rejections) == (expected.name == "rejected")]
    what = expected.name
    if expected.message is not None:
        # A message may name its node, so it picks the nodes that are meant.
        there = [one for one in there if rejections[one].message == expected.message]
        what = f"{what} with this message"
    wrong = tuple(one for one in nodes if (one in there) != (one in expected.names))
    if wrong:
        said = f"{what} are {_list(there)}" if there else f"no node is {what}"
        return Failure("\n".join((said, *(_fate(name, answers) for name in wrong))), wrong)
    for name in there if expected.status is not None else ():
        given = rejections[name]
        if given.status != expected.status:
            return Failure(f"{name} is rejected by {given.place} as {given.status}", (name,))
    return None


def _fate(name: str, answers: Answers) -> str:
    there = answers.rejections.get(name)
    if there is None:
        return f"{name} passes"
    return f'{name} is rejected by {there.place}: "{there.message}"'


def _judge_score(expected: Expected, answers: Answers) -> Failure | None:
    (name,) = expected.names
    if name in answers.rejections:
        return Failure(f"no score, as {_fate(name, answers)}", (name,))
    scores = answers.scores
    if scores is None:
        return Failure(f"{name} has no score: every scoring rule abstained")
    if abs(scores[name] - expected.number) > _TOLERANCE:
        return Failure(f"the score of {name} is {show(scores[name], NUMBER)}", (name,))
    return None


def _judge_best(expected: Expected, answers: Answers) -> Failure | None:
    best = tuple(answers.best)
    if best == expected.names:
        return None
    scores = answers.scores or {}
    shown = ", ".join(f"{name} {show(value, NUMBER)}" for name, value in scores.items())
    lines = [f"the best: {', '.join(best)}" if best else "no node is feasible"]
    lines += [f"scores: {shown}"] if shown else []
    stopped = expected.names if best else [*answers.scene.rows][:_MOST_FATES]
    lines.extend(_fate(name, answers) for name in stopped if name in answers.rejections)
    return Failure("\n".join(lines), (*best, *expected.names))


def _judge_skipped(number: int, answers: Answers) -> Failure | None:
    if len(answers.scene.plans) != 1:
        raise CannotJudgeError("`skipped` counts the rules of one policy; this file uses others")
    there = {number_in_file(rule): rule for rule in answers.rules}
    if number not in there:
        names = listed([str(one) for one in there]) or "none"
        return Failure(f"there is no rule {number}; the rules that can be asked are {names}")
    applies = answers.applies(there[number])
    return Failure(f"rule {number} did apply", tuple(answers.scene.rows)) if applies else None


# ---- where a rule is asked


class Look(NamedTuple):
    """A place where a rule is asked: of which node or given pod, what it did there, and its view.

    `of` is empty where the rule is asked once; `outcome` where it was not asked at all.
    """

    of: str
    said: str
    outcome: str
    view: View


def looks(rule: RuleBase, answers: Answers) -> list[Look]:
    """All places where the rule was asked in this test."""
    scene, key = answers.scene, answers.scene.pod.key
    pods = _before_nodes(rule, answers)
    if isinstance(rule, SortRule):
        outcome = "applied" if len(pods) > 1 else ""
        return [Look(scene.called[one.uid], one.key, outcome, scene.view(pod=one)) for one in pods]
    if isinstance(rule, ConditionRule) and pods:
        views = [(one, scene.view(pod=one)) for one in pods]
        return [Look(scene.called[one.uid], one.key, _held(rule, it), it) for one, it in views]
    if isinstance(rule, ConditionRule | PermitRule | ActionRule):
        return [_at_chosen(rule, answers)]
    view = scene.view()
    own = rule.prepare(view.subject, view.world)
    if own is None:
        return [Look("", f"does not apply to {key}", "abstained", view)]
    match rule:
        case FilterRule():
            rows = np.array(list(scene.rows.values()), np.intp)
            passed = rule.verdict(own, view.world, rows).tolist()
            each = zip(scene.rows.items(), passed, strict=True)
            return [Look(name, name, _verdict(ok), scene.view(row)) for (name, row), ok in each]
        case TierRule() | ScoreRule():
            return _ranked(rule, answers)
        case PreemptRule():
            return _victims(rule, answers)
        case GangRule() | QuotaRule():
            return [_of_many(rule, answers, view)]
        case _:
            return [Look("", key, "applied", view)]


def _verdict(passes: bool) -> str:  # noqa: FBT001 - the fact itself
    return "passed" if passes else "rejected"


def _before_nodes(rule: RuleBase, answers: Answers) -> Sequence[PodInfo]:
    """The pods that a rule is asked of before any node; none of another rule."""
    scene = answers.scene
    if isinstance(rule, SortRule) or any(rule in plan.gates for plan in scene.plans):
        return scene.pods
    return [scene.pod] if any(rule in plan.prefilters for plan in scene.plans) else []


def _held(rule: ConditionRule, view: View) -> str:
    if rule.prepare(view.subject, view.world) is None:
        return "abstained"
    return _verdict(rule.holds(view.subject, view.world, view.row))


def _ranked(rule: RuleBase, answers: Answers) -> list[Look]:
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
    outcome = "applied"
    if isinstance(rule, ScoreRule):
        outcome = "scored" if points else "abstained"
    out = []
    for name, row in scene.rows.items():
        gets = show(points[name], NUMBER) if name in points else "nothing"
        said = f"{name} gets {gets}" if isinstance(rule, ScoreRule) else name
        out.append(Look(name, said, outcome, replace(scene.view(row), candidates=candidates)))
    return out


def _at_chosen(rule: ConditionRule | PermitRule | ActionRule, answers: Answers) -> Look:
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
    if isinstance(rule, PermitRule):
        waits = rule.core.decision == "wait" and not rule.until(*at)
        outcome = _verdict(not (waits or rule.core.decision == "reject"))
        outcome = outcome if rule.applies(*at) else "abstained"
    elif isinstance(rule, ActionRule):
        outcome = "applied" if rule.effects(*at, view.results) else "abstained"
    else:
        outcome = _held(rule, view)
    return Look("", f"{key} on {decision.node}", outcome, view)


def _victims(rule: PreemptRule, answers: Answers) -> list[Look]:
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


def _of_many(rule: GangRule | QuotaRule, answers: Answers, view: View) -> Look:
    """What a gang or a quota says of the pod: it stops it everywhere, or not."""
    scene, said = answers.scene, None
    if isinstance(rule, GangRule):
        said, applies = answers.gang, rule.key(view.subject, view.world) is not None
    else:
        policies = [one for one in policies_of(scene.framework) if isinstance(one, QuotaPlugin)]
        quota = next(one for policy in policies for one in policy.quotas if one.rule is rule)
        applies = quota.use(scene.pod, scene.snapshot).key is not None
    stopped = place_of(rule) in {one.place for one in answers.rejections.values()}
    outcome = _verdict(not stopped) if applies else "abstained"
    return Look("", str(said or scene.pod.key), outcome, view)


# ---- what a failed test shows


def values_of_rules(answers: Answers, nodes: tuple[str, ...], expected: Expected) -> Iterator[str]:
    """What the rules that an expectation is about made of these nodes, each part with its value."""
    of = ("", *(expected.names if expected.name in ("gated", "ungated") else nodes))
    if expected.name == "skipped":
        rules = [one for one in answers.rules if number_in_file(one) == int(expected.number)]
    else:
        points, plans = _POINTS.get(expected.name, _FILTERS), answers.scene.plans
        rules = [one for plan in plans for part in points for one in getattr(plan, part)]
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
            yield from table([asked(one) for one in roots], rule, look.view)
