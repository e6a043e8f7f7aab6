"""What policies say of one test's cluster, by their columns, as a scheduling cycle asks them.

Implements `dsl.policytest.Answers`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dsl.plan import (
    GangRule,
    PermitRule,
    Plan,
    QuotaRule,
    RuleBase,
    ScoreRule,
)
from dsl.policytest import CannotJudgeError, Rejection
from engine.basis import rules_of as rules_in_force
from engine.clock import ManualClock
from engine.explain.gangs import Group, group_of, start_of
from engine.explain.scores import Ranking, among
from engine.framework.acting import Acts
from engine.framework.decision import Decision, Details, PluginScore
from engine.framework.effects import Emit, Patch
from engine.framework.podinfo import PodInfo
from engine.framework.profile import Profile, Weighted
from engine.framework.runtime import Candidates, Framework, Unfit
from engine.framework.snapshot import Snapshot
from engine.framework.status import Code, Status
from engine.plugins.priority_sort import PrioritySort
from engine.policy import support
from engine.policy.plugin import Worlds
from engine.policy.preempting import PolicyPreemption, preempts
from engine.policy.world import PodSubject, SnapshotWorld
from engine.policytests.policies import Used
from engine.policytests.scene import Scene
from engine.queue import SchedulingQueue

if TYPE_CHECKING:
    from engine.policytests.trial import Preempted, Trial

_WORDS: Final = {
    Code.UNSCHEDULABLE: "unschedulable",
    Code.PENDING: "unschedulable",
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE: "unresolvable",
}
_DIGITS: Final = 6


def rules_of(plan: Plan) -> list[RuleBase]:
    """All rules of a policy, in the order of the file."""
    return sorted(support.rules_of(plan), key=number_of)


def number_of(rule: RuleBase) -> int:
    """The number of a rule in its file, from 1."""
    return int(rule.id.rpartition("#")[2])


def place_of(rule: RuleBase) -> str:
    """File and line of a rule."""
    return f"{rule.source.name}:{rule.line}"


def _let_in(_pod: PodInfo) -> Status:
    return Status.SUCCESS


def _raise(_pod: PodInfo, fault: Exception) -> None:
    raise fault


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
        worlds: Worlds,
        again: Callable[[], ByColumns],
    ) -> None:
        """Sorts the plugins into a profile.

        Args:
            scene: the cluster, and the pods in question.
            used: the plugins, in the order in which a profile asks them.
            worlds: makes what policies read; the plugins have the same.
            again: makes all of this anew, for who changes it.
        """
        self.scene = scene
        self.used = used
        self.worlds = worlds
        self.plans = [one.plan for one in used if one.plan is not None]
        self.world = worlds.of(scene.snapshot)
        self.subject = self.subject_of(scene.pod, scene.snapshot)
        weighted = [Weighted(one.plugin, one.weight) for one in used]
        if any(map(preempts, self.plans)):
            # Before plugins of the tree, as in a scheduler.
            weighted.insert(0, Weighted(PolicyPreemption(self.plans, worlds)))
        sorts = [one.plugin.points().sort_key is not None for one in used]
        if sum(sorts) > 1:
            raise CannotJudgeError("two of the policies sort the queue; a profile has one order")
        if not any(sorts):
            weighted.append(Weighted(PrioritySort()))
        self.framework = Framework(Profile("berth", tuple(weighted)))
        self._rejections: dict[str, Rejection] | None = None
        self._scores: Mapping[str, float] | None = None
        self._scored = False
        self._ranking: Ranking | None = None
        self._again = again
        self._permission: tuple[str, str] | None = None
        self._preempted: Preempted | None = None

    def subject_of(self, pod: PodInfo, snapshot: Snapshot) -> PodSubject:
        """A pod as policies read it."""
        return self.worlds.subject(pod, snapshot)

    # ---- nodes

    def nodes(self) -> Sequence[str]:
        """See `Answers.nodes`."""
        return list(self.scene.rows)

    def rejections(self) -> Mapping[str, Rejection]:
        """See `Answers.rejections`."""
        if self._rejections is None:
            rows = self.scene.rows
            said = self._rejected(rows)
            if len(said) < len(rows):
                said = self._not_started() | said
            self._rejections = {name: said[name] for name in rows if name in said}
        return self._rejections

    def _rejected(self, rows: Mapping[str, int]) -> dict[str, Rejection]:
        """Why each node is rejected that is, by the first who does."""
        pod, snapshot = self.scene.pod, self.scene.snapshot
        try:
            trial = self.framework.trial(pod, snapshot)
        except Unfit as unfit:
            error = unfit.fit_error
            code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE if error.unresolvable else Code.UNSCHEDULABLE
            status = Status(code, (error.pre_filter_message,), " ".join(sorted(error.plugins)))
            return dict.fromkeys(rows, self._read(status))
        said = {}
        for name, row in rows.items():
            first = trial.at(row).rejection()
            if trial.allowed is not None and not trial.allowed[row]:
                by = " ".join(sorted(trial.allowed_by))
                said[name] = Rejection(f"node(s) didn't satisfy plugin {by}", "unresolvable", by)
            elif first is not None:
                said[name] = self._read(first.status.by(first.plugin))
        return said

    def gang(self, snapshot: Snapshot) -> Group | None:
        """The gang of the pod; None: it is in none."""
        return group_of(self.scene.pod, self.scene.queue, snapshot, self.framework)

    def _not_started(self) -> dict[str, Rejection]:
        """The nodes on which the pod's gang does not start."""
        scene = self.scene
        group = self.gang(scene.snapshot)
        if group is None:
            return {}

        def newest() -> Snapshot:
            return scene.cache.snapshot(scene.snapshot.now, scene.snapshot.signals)

        start = start_of(group, scene.cache, newest, self.framework)
        word = "unresolvable" if start.never else "unschedulable"
        no = Rejection(start.reason, word, group.gang.place)
        return {name: no for name, row in scene.rows.items() if row not in start.rows}

    def _read(self, status: Status) -> Rejection:
        """A plugin's reason."""
        message, place = self._placed(", ".join(status.reasons))
        return Rejection(message, _WORDS.get(status.code, "error"), place or status.plugin)

    def _placed(self, text: str) -> tuple[str, str]:
        """A reason and the place that policies put behind theirs."""
        for rule in [one for plan in self.plans for one in rules_of(plan)]:
            suffix = f" ({place_of(rule)})"
            if text.endswith(suffix):
                return text.removesuffix(suffix), place_of(rule)
        return text, ""

    def _candidates(self) -> Candidates:
        rejected = self.rejections()
        rows = [row for name, row in self.scene.rows.items() if name not in rejected]
        return np.array(sorted(rows), np.intp)

    # ---- scores

    def scores(self) -> Mapping[str, float] | None:
        """See `Answers.scores`: one policy's own score, of several the weighted sum."""
        if not self._scored:
            self._scores = self._sum()
            self._scored = True
        return self._scores

    def _sum(self) -> Mapping[str, float] | None:
        ranked = {one.row: one for one in self.ranking().nodes}
        rows = {name: row for name, row in self.scene.rows.items() if row in ranked}
        if not any(one.given for one in ranked.values()):
            return None
        alone = sum(map(_may_score, self.used)) == 1
        return {
            name: round(ranked[row].given[0].score if alone else ranked[row].total, _DIGITS)
            for name, row in rows.items()
        }

    def ranking(self) -> Ranking:
        """The nodes that are left as a scheduling cycle orders them."""
        if self._ranking is None:
            rows = self._candidates()
            pod, snapshot = self.scene.pod, self.scene.snapshot
            self._ranking = among(pod, snapshot, self.framework, rows) if len(rows) else Ranking()
        return self._ranking

    def decision(self, node: str) -> Decision:
        """The decision that takes a node, with what everyone gave it."""
        row = self.scene.rows[node]
        taken = next((one for one in self.ranking().nodes if one.row == row), None)
        given = () if taken is None else taken.given
        return Decision(
            self.scene.pod,
            self.scene.snapshot.generation,
            "",
            len(self.scene.rows),
            node,
            row,
            total=0.0 if taken is None else taken.total,
            known=Details(tuple([PluginScore(g.plugin, g.raw, g.score, g.weight) for g in given])),
        )

    def best(self) -> Sequence[str]:
        """See `Answers.best`."""
        found = self.ranking()
        rows = {one.row for one in found.nodes[: found.ties]}
        return [name for name, row in self.scene.rows.items() if row in rows]

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
                return rule.key(self.subject, self.world) is not None
            case QuotaRule():
                use = rule.use(self.subject, self.world, self.scene.quotas)
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
        """See `Answers.order`: by a queue without gates; who says nothing came first."""
        snapshot = self.scene.snapshot
        rules = replace(rules_in_force(self.framework, lambda: snapshot), pre_enqueue=_let_in)
        queue = SchedulingQueue(
            clock=ManualClock(snapshot.now), rules=rules, snapshot=lambda: snapshot
        )
        queue.on_fault = _raise
        for pod in self.scene.pods:
            queue.add(pod)
            queued = queue.get(pod.uid)
            assert queued is not None
            at = self.subject_of(pod, snapshot).number("pod.queued_at", None)
            queued.queued_at = 0.0 if math.isnan(at) else at
            queue.update(pod)
        return [one.pod.name for one in iter(queue.pop, None)]

    def _trial(self, *, began: float = 0.0) -> Trial:
        """The same test again, in a scheduler that may do with it what it does."""
        # A scheduler brings its edge, which takes longer to import than most tests to run.
        from engine.policytests.trial import Trial  # noqa: PLC0415 - see above

        other = self._again()
        return Trial(other.scene, other.framework, began=began)

    def gate(self, pod: str) -> str | None:
        """See `Answers.gate`."""
        (one,) = [each for each in self.scene.pods if each.name == pod]
        status = self.framework.pre_enqueue(one, self.scene.snapshot)
        return None if status.ok else self._read(status).message

    # ---- the chosen node

    def permission(self) -> tuple[str, str]:
        """See `Answers.permission`; of a gang the pod is the only one that is tried."""
        if self._permission is None:
            trial = self._trial(began=self.scene.waited)
            verdict, said = trial.permission(self.decision(self.chosen()))
            self._permission = verdict, self._placed(said)[0]
        return self._permission

    def annotations(self) -> Mapping[str, str]:
        """See `Answers.annotations`."""
        acts = self._acts()
        patched = [one.body["metadata"] for one in acts.after if isinstance(one, Patch)]
        later = [one.get("annotations", {}) for one in patched]
        return {**acts.annotations, **{key: text for one in later for key, text in one.items()}}

    def events(self) -> Sequence[str]:
        """See `Answers.events`."""
        acts = self._acts()
        return [one.note for one in (*acts.before, *acts.after) if isinstance(one, Emit)]

    def _acts(self) -> Acts:
        """All that is done around the binding."""
        decision = self.decision(self.chosen())
        with self.placed() as (world, _, _):
            return self.framework.act(self.scene.pod, world.snapshot, decision)

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
    def placed(self) -> Iterator[tuple[SnapshotWorld, PodSubject, int]]:
        """The world in which the pod is assumed on its node, as it is from reserve on."""
        node, scene = self.chosen(), self.scene
        scene.cache.assume(scene.pod, node, scene.snapshot.now)
        try:
            snapshot = scene.cache.snapshot(scene.snapshot.now, scene.snapshot.signals)
            subject = self.subject_of(scene.pod, snapshot)
            yield self.worlds.of(snapshot), subject, scene.rows[node]
        finally:
            scene.cache.forget(scene.pod.uid)

    # ---- preemption

    def preemption(self) -> tuple[Sequence[str], str | None]:
        """See `Answers.preemption`."""
        return self.preempted().victims, self.preempted().nominated

    def preempted(self) -> Preempted:
        """What is done so that the pod fits."""
        if self._preempted is None:
            self._preempted = self._trial().preemption()
        return self._preempted
