"""What policies say of one test's cluster, by their columns, as a scheduling cycle asks them.

`meaning` has the same by the reference, one node at a time. Both implement
`dsl.policytest.Answers`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self

import numpy as np

from dsl.collective import Evictions, Gang, GangPlan
from dsl.plan import (
    Effect,
    GangRule,
    PermitRule,
    Plan,
    QuotaRule,
    RuleBase,
    ScoreRule,
)
from dsl.policytest import CannotJudgeError, Rejection
from engine.collective import gangs
from engine.collective.search import Preemption
from engine.cycle import decide
from engine.framework.interface import Points, PreFilterResult
from engine.framework.podinfo import PodInfo
from engine.framework.profile import Profile, Weighted
from engine.framework.runtime import Candidates, Framework, Unfit
from engine.framework.snapshot import Snapshot
from engine.framework.status import Code, Status
from engine.plugins.priority_sort import PrioritySort
from engine.policy.preempting import PolicyPreemption
from engine.policytests.dryruns import Members
from engine.policytests.policies import Used
from engine.policytests.scene import Scene
from engine.policytests.world import SceneSubject, SceneWorld, SceneWorlds

_WORDS: Final = {
    Code.UNSCHEDULABLE: "unschedulable",
    Code.PENDING: "unschedulable",
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE: "unresolvable",
}
_DIGITS: Final = 6
#: In a dry run nobody asks why.
UNTOLD: Final = Rejection("", "unschedulable", "")
#: Of these the worst decides.
_VERDICTS: Final = ("reject", "wait", "allow")


def rules_of(plan: Plan) -> list[RuleBase]:
    """All rules of a policy, in the order of the file."""
    groups = (getattr(plan, name) for name in plan.__struct_fields__)
    rules = [
        one
        for group in groups
        if isinstance(group, tuple)
        for one in group
        if isinstance(one, RuleBase)
    ]
    return sorted(rules, key=number_of)


def number_of(rule: RuleBase) -> int:
    """The number of a rule in its file, from 1."""
    return int(rule.id.rpartition("#")[2])


def place_of(rule: RuleBase) -> str:
    """File and line of a rule."""
    return f"{rule.source.name}:{rule.line}"


def word_of(status: str) -> str:
    """A status as tests write it."""
    return "unschedulable" if status in ("Unschedulable", "unschedulable") else "unresolvable"


def _may_score(used: Used) -> bool:
    """Whether it is a plugin of the tree that scores, or a policy with scores."""
    scores = used.plan.scores if used.plan is not None else True
    return bool(scores) and used.plugin.points().score is not None


class ByColumns:
    """The plugins' own answers."""

    def __init__(
        self,
        scene: Scene,
        used: Sequence[Used],
        worlds: SceneWorlds,
        *,
        with_gangs: bool = True,
        only: frozenset[int] | None = None,
    ) -> None:
        """Sorts the plugins into a profile.

        Args:
            scene: the cluster, and the pods in question.
            used: the plugins, in the order in which a profile asks them.
            worlds: makes what policies read; the plugins have the same.
            with_gangs: whether gangs have a say, and whether somebody asks why; not in dry runs.
            only: the node rows that count; None: all.
        """
        self.scene = scene
        self.used = used
        self.worlds = worlds
        self.plans = [one.plan for one in used if one.plan is not None]
        self.world: SceneWorld = worlds.world(scene.snapshot)
        self.subject = self.subject_of(scene.pod, scene.snapshot)
        self.rehearsed = not with_gangs
        self._only = only
        weighted = [Weighted(one.plugin, one.weight) for one in used]
        sorts = [one.plugin.points().sort_key is not None for one in used]
        if sum(sorts) > 1:
            raise CannotJudgeError("two of the policies sort the queue; a profile has one order")
        if not any(sorts):
            weighted.append(Weighted(PrioritySort()))
        self.framework = Framework(Profile("berth", tuple(weighted)))
        self.stopped_early = False
        self._rejections: dict[str, Rejection] | None = None
        self._scores: Mapping[str, float] | None = None
        self._scored = False
        self._preempted: Preemption | None = None
        self._preemption = PolicyPreemption(self.plans, worlds)

    def again(self, scene: Scene, only: frozenset[int] | None = None) -> Self:
        """The same policies about another scene, gangs left out."""
        return type(self)(scene, self.used, self.worlds, with_gangs=False, only=only)

    def subject_of(self, pod: PodInfo, snapshot: Snapshot) -> SceneSubject:
        """A pod as policies read it."""
        return self.worlds.subject(pod, snapshot)

    # ---- nodes

    def nodes(self) -> Sequence[str]:
        """See `Answers.nodes`."""
        return list(self.scene.rows)

    def rejections(self) -> Mapping[str, Rejection]:
        """See `Answers.rejections`."""
        if self._rejections is None:
            left = {name: row for name, row in self.scene.rows.items() if self._counts(row)}
            said: dict[str, Rejection] = {}
            for used in self.used:
                points = used.plugin.points()
                if left and (points.filter is not None or points.pre_filter is not None):
                    said |= self._rejected_by(used, points, left)
                    left = {name: row for name, row in left.items() if name not in said}
            if left and not self.rehearsed:
                said |= self._gang_rejects(left)
            self._rejections = {name: said[name] for name in self.scene.rows if name in said}
        return self._rejections

    def _rejected_by(
        self, used: Used, points: Points, left: Mapping[str, int]
    ) -> dict[str, Rejection]:
        """Which of the nodes that are left this plugin rejects."""
        scene, plugin = self.scene, used.plugin
        pre = PreFilterResult()
        if points.pre_filter is not None:
            pre = points.pre_filter(scene.pod, scene.snapshot)
        if not pre.status.ok and pre.status.code is not Code.SKIP:
            return dict.fromkeys(left, self._read(used, pre.status))
        stopped = self._stopped(used)
        if stopped is not None:
            # The plan says so where the plugin did not: there is no cycle to compare with.
            self.stopped_early = True
            return dict.fromkeys(left, stopped)
        ask = points.filter
        if pre.status.code is Code.SKIP or ask is None or not pre.rejects:
            return {}
        said = {}
        everyone = ask(pre.state, scene.pod, scene.snapshot, slice(0, scene.snapshot.nodes.size))
        asked = None if pre.rows is None else set(pre.rows.tolist())
        if self.rehearsed:
            passed = everyone.passed
            return {
                name: UNTOLD
                for name, row in left.items()
                if (passed is not None and not passed[row])
                or (asked is not None and row not in asked)
            }
        for name, row in left.items():
            if asked is not None and row not in asked:
                text = f"node(s) didn't satisfy plugin {plugin.name}"
                said[name] = Rejection(text, "unresolvable", plugin.name)
                continue
            alone = ask(pre.state, scene.pod, scene.snapshot, np.array([row], np.intp))
            passes = alone.passed is None or bool(alone.passed[0])
            if passes != (everyone.passed is None or bool(everyone.passed[row])):
                raise CannotJudgeError(
                    f"{plugin.name} says of {name} alone what it says not of all"
                )
            if not passes:
                said[name] = self._read(used, alone.groups()[0][0])
        return said

    def _stopped(self, used: Used) -> Rejection | None:
        """What a prefilter of a policy says."""
        stop = None if used.plan is None else used.plan.stopped(self.subject, self.world)
        if stop is None:
            return None
        return Rejection(stop.message, word_of(stop.status), place_of(stop.rule))

    def _gang_rejects(self, left: Mapping[str, int]) -> dict[str, Rejection]:
        """Which of the nodes that are left the pod's gang does not start on."""
        found = self.gang()
        if found is None:
            return {}
        rule, gang = found
        self.stopped_early = True
        place = place_of(rule)
        reason = gangs.stop(gang, self.world.now)
        if reason is not None:
            return dict.fromkeys(left, Rejection(reason, "unresolvable", place))
        planned = self.planned(gang)
        text = gangs.why_not(gang, planned)
        return {
            name: Rejection(text, "unschedulable", place)
            for name, row in left.items()
            if not planned.fits or not (planned.allowed is None or row in planned.allowed)
        }

    def gang(self) -> tuple[GangRule, Gang] | None:
        """The gang of the pod, and the rule that says so."""
        return self._gang_in(self.subject, self.world)

    def _gang_in(self, subject: SceneSubject, world: SceneWorld) -> tuple[GangRule, Gang] | None:
        for plan in self.plans:
            for rule in plan.gangs:
                gang = rule.gang(subject, world)
                if gang is not None:
                    return rule, gang
        return None

    def planned(self, gang: Gang) -> GangPlan:
        """Where the members of the gang fit together."""
        members = Members(self, self.scene)
        return gangs.plan(gang, self.world, members, members.larger_first(gang))

    def _read(self, used: Used, status: Status) -> Rejection:
        """A plugin's reason; policies put their place behind it."""
        text = ", ".join(status.reasons)
        word = _WORDS.get(status.code, "error")
        for rule in rules_of(used.plan) if used.plan is not None else ():
            suffix = f" ({place_of(rule)})"
            if text.endswith(suffix):
                return Rejection(text.removesuffix(suffix), word, place_of(rule))
        return Rejection(text, word, used.plugin.name)

    def cycle_agrees(self) -> bool:
        """Whether a scheduling cycle would leave the same nodes."""
        try:
            pod, snapshot = self.scene.pod, self.scene.snapshot
            known = self.framework.known(pod, snapshot)
            rows = {int(row) for row in self.framework.candidates(known, pod, snapshot)}
        except Unfit:
            rows = set()
        return rows == set(self._candidates().tolist())

    def cycle_chooses(self) -> str | None:
        """The node that a scheduling cycle takes; of equal ones any."""
        return decide(self.scene.pod, self.scene.snapshot, self.framework).node

    def _candidates(self) -> Candidates:
        rejected = self.rejections()
        rows = [row for name, row in self.scene.rows.items() if name not in rejected]
        return np.array(sorted(one for one in rows if self._counts(one)), np.intp)

    def _counts(self, row: int) -> bool:
        return self._only is None or row in self._only

    # ---- scores

    def scores(self) -> Mapping[str, float] | None:
        """See `Answers.scores`: one policy's own score, of several the weighted sum."""
        if not self._scored:
            self._scores = self._sum()
            self._scored = True
        return self._scores

    def _sum(self) -> Mapping[str, float] | None:
        rows = self._candidates()
        columns = list(self._columns(rows)) if len(rows) else []
        there = [(weight, column) for weight, column in columns if column is not None]
        if not there:
            return None
        names = {row: name for name, row in self.scene.rows.items()}
        if len(columns) == 1:
            totals = there[0][1]
        else:
            totals = [sum(w * c[i] for w, c in there) for i in range(len(rows))]
        by_row = dict(zip(rows.tolist(), totals, strict=True))
        return {
            name: round(by_row[row], _DIGITS)
            for row, name in sorted(names.items(), key=lambda one: list(self.nodes()).index(one[1]))
            if row in by_row
        }

    def outcome(self, node: str) -> dict[str, float]:
        """What a scheduling cycle adds up for a node, and what everyone gave it."""
        rows = self._candidates()
        if self.scene.rows[node] not in rows:
            return {"score.total": 0.0}
        at = rows.tolist().index(self.scene.rows[node])
        names = [used.plugin.name for used in self.used if _may_score(used)]
        given = [
            (name, weight, column[at])
            for name, (weight, column) in zip(names, self._columns(rows), strict=False)
            if column is not None
        ]
        total = float(sum(weight * score for _, weight, score in given))
        return {"score.total": total} | {f"score[{name}]": score for name, _, score in given}

    def _columns(self, rows: Candidates) -> Iterator[tuple[float, list[float] | None]]:
        """Weight and scores of everyone who may score."""
        answers = self.framework.scores(self.scene.pod, self.scene.snapshot, rows)
        by_name = {name: scores.tolist() for name, _, _, scores in answers}
        for used in filter(_may_score, self.used):
            yield used.weight, by_name.get(used.plugin.name)

    def best(self) -> Sequence[str]:
        """See `Answers.best`."""
        rows = self._candidates()
        for plan in self.plans:
            mask = self._preferred(plan, rows)
            if mask is not None and any(mask):
                rows = rows[np.array(mask, np.bool_)]
        scores = self.scores() or {}
        left = [name for name in self.nodes() if self.scene.rows[name] in rows]
        top = max((scores.get(name, 0.0) for name in left), default=0.0)
        return [name for name in left if scores.get(name, 0.0) == top]

    def _preferred(self, plan: Plan, rows: Candidates) -> Sequence[bool] | None:
        mask = plan.preferred(self.subject, self.world, rows) if len(rows) else None
        return None if mask is None else list(mask.tolist())

    # ---- rules

    def rule_numbers(self) -> Sequence[int]:
        """See `Answers.rule_numbers`."""
        return [number_of(rule) for rule in rules_of(self._one_plan())]

    def _one_plan(self) -> Plan:
        if len(self.plans) == 1:
            return self.plans[0]
        what = "no policy" if not self.plans else "several policies"
        raise CannotJudgeError(f"this file uses {what}; `skipped` counts the rules of one")

    def skipped(self, number: int) -> bool | None:
        """See `Answers.skipped`."""
        for rule in rules_of(self._one_plan()):
            if number_of(rule) == number:
                return not self.applies(rule)
        return None

    def applies(self, rule: RuleBase) -> bool:
        """Whether a rule has a say about the pod; a score that abstains has none."""
        match rule:
            case GangRule():
                return rule.gang(self.subject, self.world) is not None
            case QuotaRule():
                use = rule.use(self.subject, self.world, self.scene.beside.quotas)
                return use.key is not None
            case PermitRule() if rule.core.left is not None:
                return self._applies_at_node(rule)
            case _:
                parts = rule.prepare(self.subject, self.world)
        if parts is None or not isinstance(rule, ScoreRule):
            return parts is not None
        rows = self._candidates()
        if not len(rows):
            return False
        return rule.finish(rule.column(parts, self.world, rows, rows)) is not None

    def _applies_at_node(self, rule: PermitRule) -> bool:
        """Whether the left side of a permit holds, which may look at the chosen node."""
        try:
            with self.placed() as (world, subject, row):
                return rule.applies(subject, world, row)
        except CannotJudgeError:
            return rule.prepare(self.subject, self.world) is not None

    # ---- the queue

    def order(self) -> Sequence[str]:
        """See `Answers.order`: by the policy's keys, else as the profile sorts."""
        keys: dict[str, tuple[Any, ...]] = {}
        snapshot = self.scene.snapshot
        for pod in self.scene.pods:
            subject = self.subject_of(pod, snapshot)
            queued = subject.number("pod.queued_at", None)
            queued = 0.0 if math.isnan(queued) else queued
            own = self._sort_key(subject)
            key = own if own is not None else self.framework.sort_key(pod, queued, snapshot)
            keys[pod.name] = (key, queued, pod.uid)
        return sorted(keys, key=lambda name: keys[name])

    def _sort_key(self, subject: SceneSubject) -> tuple[Any, ...] | None:
        keys = (plan.sort_key(subject, self.world) for plan in self.plans)
        return next((key for key in keys if key is not None), None)

    def gate(self, pod: str) -> str | None:
        """See `Answers.gate`."""
        (one,) = [each for each in self.scene.pods if each.name == pod]
        subject = self.subject_of(one, self.scene.snapshot)
        for plan in self.plans:
            held = self._held(plan, subject)
            if held is not None:
                return held
        status = self.framework.pre_enqueue(one, self.scene.snapshot)
        return None if status.ok else ", ".join(status.reasons)

    def _held(self, plan: Plan, subject: SceneSubject) -> str | None:
        stop = plan.gated(subject, self.world)
        return None if stop is None else stop.message

    # ---- the chosen node

    def permission(self) -> tuple[str, str]:
        """See `Answers.permission`: one that rejects decides, then one that waits.

        A pod that its node does not take any more at `reserve` never comes to be permitted.
        """
        said: dict[str, str] = {}
        with self.placed() as (world, subject, row):
            for plan in self.plans:
                refused = self._reserved(plan, subject, world, row)
                if refused is not None:
                    return "reject", refused
            for plan in self.plans:
                verdict, message = self._permitted(plan, subject, world, row)
                said.setdefault(verdict, message)
            found = self._gang_in(subject, world)
            if found is not None:
                permission = gangs.permission(found[1], self.scene.waited)
                said.setdefault(permission.verdict, permission.message)
        verdict = next((one for one in _VERDICTS if one in said), "allow")
        return verdict, said.get(verdict, "")

    def _reserved(
        self, plan: Plan, subject: SceneSubject, world: SceneWorld, row: int
    ) -> str | None:
        stop = plan.reserved(subject, world, row)
        return None if stop is None else stop.message

    def _permitted(
        self, plan: Plan, subject: SceneSubject, world: SceneWorld, row: int
    ) -> tuple[str, str]:
        permission = plan.permitted(subject, world, row, self.scene.waited)
        return permission.verdict, permission.message

    def annotations(self) -> Mapping[str, str]:
        """See `Answers.annotations`."""
        return {one.key: one.text for one in self.effects() if one.kind == "annotate"}

    def events(self) -> Sequence[str]:
        """See `Answers.events`."""
        return [one.text for one in self.effects() if one.kind == "event"]

    def effects(self) -> tuple[Effect, ...]:
        """All that prebind and then postbind would do."""
        done: list[Effect] = []
        results = self.outcome(self.chosen())
        with self.placed() as (world, subject, row):
            for plan in self.plans:
                done.extend(self._done(plan, subject, world, row, results))
        return tuple(done)

    def _done(
        self,
        plan: Plan,
        subject: SceneSubject,
        world: SceneWorld,
        row: int,
        results: Mapping[str, float],
    ) -> Sequence[Effect]:
        return (
            *plan.prebind(subject, world, row, results),
            *plan.postbind(subject, world, row, results),
        )

    def chosen(self) -> str:
        """The node that is chosen for the pod.

        Raises:
            CannotJudgeError: none is, or several might be.
        """
        if self.scene.chosen:
            return self.scene.chosen
        best = self.best()
        if len(best) != 1:
            raise CannotJudgeError("no node is chosen; say which:  given pod chosen NODE")
        return best[0]

    @contextmanager
    def placed(self) -> Iterator[tuple[SceneWorld, SceneSubject, int]]:
        """The world in which the pod is assumed on its node, as it is from reserve on."""
        node, scene = self.chosen(), self.scene
        scene.cache.assume(scene.pod, node, scene.snapshot.now)
        try:
            snapshot = scene.cache.snapshot(scene.snapshot.now, scene.snapshot.signals)
            subject = self.subject_of(scene.pod, snapshot)
            yield self.worlds.world(snapshot), subject, scene.rows[node]
        finally:
            scene.cache.forget(scene.pod.uid)

    # ---- preemption

    def preemption(self) -> tuple[Sequence[str], str | None]:
        """See `Answers.preemption`."""
        found = self.preempted()
        if found.row < 0:
            return (), None
        (node,) = [name for name, row in self.scene.rows.items() if row == found.row]
        return [one.name for one in found.victims], node

    def preempted(self) -> Preemption:
        """What the first `preempt:` that applies finds, or else a quota that takes back."""
        if self._preempted is None:
            self._preempted = self._preempt()
        return self._preempted

    def _preempt(self) -> Preemption:
        pod, snapshot = self.scene.pod, self.scene.snapshot
        if len(self._candidates()) or pod.pod.spec.preemption_policy == "Never":
            return Preemption()
        evictions = self.evictions()
        if evictions is None:
            return Preemption()
        rejections, rows = self.rejections(), self.scene.rows
        open_ = [row for name, row in rows.items() if rejections[name].status != "unresolvable"]
        try:
            trial = self.framework.what_if(pod, snapshot)
        except Unfit:
            return Preemption()
        targets = np.array(sorted(open_), np.intp)
        return self._preemption.search(evictions, pod, snapshot, trial, targets)

    def evictions(self) -> Evictions | None:
        """Who may be evicted for the pod; None: nobody, by `never` or for want of a rule."""
        said = self._preemption.decides(self.scene.pod, self.scene.snapshot)
        return None if said is None else said.evictions
