"""What policies say of one test's cluster, twice: by their columns and by the reference.

`ByColumns` asks the plugins as a scheduling cycle does; `ByReference` asks what each rule means,
one node at a time. Both implement `dsl.policytest.Answers`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from dsl import reference
from dsl.collective import Budget as Covered
from dsl.engines.preemption import search
from dsl.plan import FilterRule, Plan, RuleBase, ScoreRule
from dsl.policytest import CannotJudgeError, Rejection
from engine.cycle import decide
from engine.framework.interface import (
    FilterPlugin,
    PreFilterResult,
    QueueSortPlugin,
    ScorePlugin,
)
from engine.framework.podinfo import PodInfo
from engine.framework.profile import Profile, Weighted
from engine.framework.runtime import Candidates, Framework, Unfit
from engine.framework.snapshot import Snapshot
from engine.framework.status import Code, Status
from engine.plugins.priority_sort import PrioritySort
from engine.policy.plugin import Worlds
from engine.policy.world import PodSubject, SnapshotWorld
from engine.policytests.policies import Used
from engine.policytests.scene import Scene

_WORDS: Final = {
    Code.UNSCHEDULABLE: "unschedulable",
    Code.PENDING: "unschedulable",
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE: "unresolvable",
}
_DIGITS: Final = 6


def rules_of(plan: Plan) -> list[RuleBase]:
    """All rules of a policy, in the order of the file."""
    groups = (getattr(plan, name) for name in plan.__dataclass_fields__)
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


def _place(rule: RuleBase) -> str:
    return f"{rule.source.name}:{rule.line}"


def _word(status: str) -> str:
    """A status as tests write it."""
    return "unschedulable" if status in ("Unschedulable", "unschedulable") else "unresolvable"


class ByColumns:
    """The plugins' own answers."""

    def __init__(self, scene: Scene, used: Sequence[Used], worlds: Worlds) -> None:
        self.scene = scene
        self.used = used
        self.worlds = worlds
        self.plans = [one.plan for one in used if one.plan is not None]
        if any(plan.gangs for plan in self.plans):
            raise CannotJudgeError("this version cannot judge gangs yet")
        if any(rule.core.elastic for plan in self.plans for rule in plan.quotas):
            raise CannotJudgeError("this version cannot judge elastic quotas yet")
        self.world = worlds.of(scene.snapshot)
        self.subject = self.subject_of(scene.pod, scene.snapshot)
        weighted = [Weighted(one.plugin, one.weight) for one in used]
        sorts = [isinstance(one.plugin, QueueSortPlugin) for one in used]
        if sum(sorts) > 1:
            raise CannotJudgeError("two of the policies sort the queue; a profile has one order")
        if not any(sorts):
            weighted.append(Weighted(PrioritySort()))
        self.framework = Framework(Profile("berth", tuple(weighted)))
        self.stopped_early = False
        self._rejections: dict[str, Rejection] | None = None
        self._scores: Mapping[str, float] | None = None
        self._scored = False

    def subject_of(self, pod: PodInfo, snapshot: Snapshot) -> PodSubject:
        """A pod as policies read it."""
        return PodSubject(pod, snapshot, self.worlds.gpus)

    # ---- nodes

    def nodes(self) -> Sequence[str]:
        """See `Answers.nodes`."""
        return list(self.scene.rows)

    def rejections(self) -> Mapping[str, Rejection]:
        """See `Answers.rejections`."""
        if self._rejections is None:
            left = dict(self.scene.rows)
            said: dict[str, Rejection] = {}
            for used in self.used:
                if left and isinstance(used.plugin, FilterPlugin):
                    said |= self._rejected_by(used, used.plugin, left)
                    left = {name: row for name, row in left.items() if name not in said}
            self._rejections = {name: said[name] for name in self.scene.rows if name in said}
        return self._rejections

    def _rejected_by(
        self, used: Used, plugin: FilterPlugin, left: Mapping[str, int]
    ) -> dict[str, Rejection]:
        """Which of the nodes that are left this plugin rejects."""
        scene = self.scene
        pre: PreFilterResult = plugin.pre_filter(scene.pod, scene.snapshot)
        if not pre.status.ok and pre.status.code is not Code.SKIP:
            return dict.fromkeys(left, self._read(used, pre.status))
        stopped = self._stopped(used)
        if stopped is not None:
            # The plan says so where the plugin did not: there is no cycle to compare with.
            self.stopped_early = True
            return dict.fromkeys(left, stopped)
        if pre.status.code is Code.SKIP:
            return {}
        said = {}
        everyone = plugin.filter(
            pre.state, scene.pod, scene.snapshot, slice(0, scene.snapshot.nodes.size)
        )
        asked = None if pre.rows is None else set(pre.rows.tolist())
        for name, row in left.items():
            if asked is not None and row not in asked:
                text = f"node(s) didn't satisfy plugin {plugin.name}"
                said[name] = Rejection(text, "unresolvable", plugin.name)
                continue
            alone = plugin.filter(pre.state, scene.pod, scene.snapshot, np.array([row], np.intp))
            passes = alone.passed is None or bool(alone.passed[0])
            if passes != (everyone.passed is None or bool(everyone.passed[row])):
                raise CannotJudgeError(
                    f"{plugin.name} says of {name} alone what it says not of all"
                )
            if not passes:
                said[name] = self._read(used, alone.groups()[0][0])
        return said

    def _stopped(self, used: Used) -> Rejection | None:
        """What a prefilter or quota of a policy says."""
        if used.plan is None:
            return None
        for ask in (used.plan.stopped, used.plan.over_quota):
            stop = ask(self.subject, self.world)
            if stop is not None:
                return Rejection(stop.message, _word(stop.status), _place(stop.rule))
        return None

    def _read(self, used: Used, status: Status) -> Rejection:
        """A plugin's reason; policies put their place behind it."""
        text = ", ".join(status.reasons)
        word = _WORDS.get(status.code, "error")
        for rule in rules_of(used.plan) if used.plan is not None else ():
            suffix = f" ({_place(rule)})"
            if text.endswith(suffix):
                return Rejection(text.removesuffix(suffix), word, _place(rule))
        return Rejection(text, word, used.plugin.name)

    def cycle_agrees(self) -> bool:
        """Whether a scheduling cycle would leave the same nodes."""
        try:
            known = self.framework.filter(self.scene.pod, self.scene.snapshot)
            rows = {int(row) for row in self.framework.candidates(known)}
        except Unfit:
            rows = set()
        return rows == set(self._candidates().tolist())

    def cycle_chooses(self) -> str | None:
        """The node that a scheduling cycle takes; of equal ones any."""
        return decide(self.scene.pod, self.scene.snapshot, self.framework).node

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

    def _total(self, node: str) -> float:
        """What a scheduling cycle adds up for a node."""
        rows = self._candidates()
        at = rows.tolist().index(self.scene.rows[node]) if self.scene.rows[node] in rows else None
        if at is None:
            return 0.0
        columns = self._columns(rows)
        return float(sum(weight * column[at] for weight, column in columns if column is not None))

    def _columns(self, rows: Candidates) -> Iterator[tuple[float, list[float] | None]]:
        """Weight and scores of everyone who may score."""
        try:
            known = self.framework.filter(self.scene.pod, self.scene.snapshot)
            answers = self.framework.scores(known, self.scene.pod, self.scene.snapshot, rows)
        except Unfit:
            return
        by_name = {name: scores.tolist() for name, _, _, scores in answers}
        for used in self.used:
            scores = used.plan.scores if used.plan is not None else True
            if scores and isinstance(used.plugin, ScorePlugin):
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
        parts = rule.prepare(self.subject, self.world)
        if parts is None or not isinstance(rule, ScoreRule):
            return parts is not None
        rows = self._candidates()
        if not len(rows):
            return False
        return rule.finish(rule.column(parts, self.world, rows, rows)) is not None

    def outcomes(self, rule: RuleBase) -> frozenset[str]:
        """What a rule did in this test, for the coverage."""
        if not self.applies(rule):
            return frozenset({"skipped"})
        if isinstance(rule, ScoreRule):
            return frozenset({"scored"})
        if isinstance(rule, FilterRule):
            rows = list(self.scene.rows.values())
            passes = {reference.passes(rule.core, self.world, self.subject, row) for row in rows}
            return frozenset("passed" if one else "rejected" for one in passes)
        return frozenset({"applied"})

    # ---- the queue

    def order(self) -> Sequence[str]:
        """See `Answers.order`: by the policy's keys, else as the profile sorts."""
        keys: dict[str, tuple[Any, ...]] = {}
        for pod in self.scene.pods:
            queued = self.scene.queued[pod.name].queued_at
            queued = 0.0 if math.isnan(queued) else queued
            own = self._sort_key(pod)
            key = own if own is not None else self.framework.sort_key(pod, queued)
            keys[pod.name] = (key, queued, pod.uid)
        return sorted(keys, key=lambda name: keys[name])

    def _sort_key(self, pod: PodInfo) -> tuple[Any, ...] | None:
        queued = self.scene.queued[pod.name]
        subject = PodSubject(pod, self.scene.snapshot, self.worlds.gpus, queued)
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
        status = self.framework.pre_enqueue(one)
        return None if status.ok else ", ".join(status.reasons)

    def _held(self, plan: Plan, subject: PodSubject) -> str | None:
        stop = plan.gated(subject, self.world)
        return None if stop is None else stop.message

    # ---- the chosen node

    def permission(self) -> tuple[str, str]:
        """See `Answers.permission`: one that rejects decides, then one that waits."""
        said: dict[str, str] = {}
        with self._placed() as (world, subject, row):
            for plan in self.plans:
                permission = plan.permitted(subject, world, row, self.scene.waited)
                said.setdefault(permission.verdict, permission.message)
        verdict = next((one for one in ("reject", "wait") if one in said), "allow")
        return verdict, said.get(verdict, "")

    def annotations(self) -> Mapping[str, str]:
        """See `Answers.annotations`."""
        done: dict[str, str] = {}
        total = self._total(self._chosen())
        with self._placed() as (world, subject, row):
            for plan in self.plans:
                done |= plan.annotations(subject, world, row, {"score.total": total})
        return done

    def _chosen(self) -> str:
        if self.scene.chosen:
            return self.scene.chosen
        best = self.best()
        if len(best) != 1:
            raise CannotJudgeError("no node is chosen; say which:  given pod chosen NODE")
        return best[0]

    @contextmanager
    def _placed(self) -> Iterator[tuple[SnapshotWorld, PodSubject, int]]:
        """The world in which the pod is assumed on its node, as it is from reserve on."""
        node, scene = self._chosen(), self.scene
        scene.cache.assume(scene.pod, node)
        try:
            snapshot = scene.cache.snapshot(scene.snapshot.now, scene.snapshot.signals)
            subject = self.subject_of(scene.pod, snapshot)
            yield self.worlds.of(snapshot), subject, scene.rows[node]
        finally:
            scene.cache.forget(scene.pod.uid)

    # ---- preemption

    def preemption(self) -> tuple[Sequence[str], str | None]:
        """See `Answers.preemption`: the first `preempt:` that applies, node by node."""
        if len(self._candidates()) or self.scene.pod.pod.spec.preemption_policy == "Never":
            return (), None
        rules = (plan.preemption(self.subject, self.world) for plan in self.plans)
        rule = next((one for one in rules if one is not None), None)
        if rule is None or rule.core.never:
            return (), None
        evictions = rule.evictions(self.subject, self.world)
        if evictions is None:
            return (), None
        rejections, rows = self.rejections(), self.scene.rows
        open_ = [row for name, row in rows.items() if rejections[name].status != "unresolvable"]
        found = search(
            evictions, self.world, _Dry(self), rows=open_, budgets=self._budgets(), spans=True
        )
        if found.row < 0:
            return (), None
        pods = self.scene.snapshot.pods
        (node,) = [name for name, row in rows.items() if row == found.row]
        return [pods.pod(place).name for place in found.victims], node

    def _budgets(self) -> list[Covered]:
        pods = self.scene.snapshot.pods
        there = [place for place, node in enumerate(pods.node.tolist()) if node >= 0]
        return [
            Covered(
                frozenset(place for place in there if budget.covers(pods.pod(place))),
                budget.allowed,
            )
            for budget in self.scene.budgets
        ]


class _Dry:
    """Implements `DryRun`."""

    def __init__(self, answers: ByColumns) -> None:
        self._answers = answers

    def fits(self, row: int, gone: frozenset[int]) -> bool:
        """See `DryRun.fits`."""
        return row in self.nodes(gone)

    def nodes(self, gone: frozenset[int]) -> Sequence[int]:
        """See `DryRun.nodes`."""
        answers = self._answers
        after = ByColumns(answers.scene.without(gone), answers.used, answers.worlds)
        rejected = after.rejections()
        return [row for name, row in answers.scene.rows.items() if name not in rejected]


class ByReference(ByColumns):
    """The meaning of each rule, one node at a time; plugins of the tree have their columns only."""

    def _rejected_by(
        self, used: Used, plugin: FilterPlugin, left: Mapping[str, int]
    ) -> dict[str, Rejection]:
        plan = used.plan
        if plan is None:
            return super()._rejected_by(used, plugin, left)
        stopped = self._stopped(used)
        if stopped is not None:
            return dict.fromkeys(left, stopped)
        said = {}
        for name, row in left.items():
            for rule in plan.filters:
                if not reference.passes(rule.core, self.world, self.subject, row):
                    view = reference.View(self.world, self.subject, row)
                    text = reference.message(rule.core, rule.source.text, view)
                    said[name] = Rejection(text, _word(rule.status), _place(rule))
                    break
        return said

    def _stopped(self, used: Used) -> Rejection | None:
        for rule in used.plan.prefilters if used.plan is not None else ():
            if not reference.passes(rule.core, self.world, self.subject, -1):
                view = reference.View(self.world, self.subject, -1)
                text = reference.message(rule.core, rule.source.text, view)
                return Rejection(text, _word(rule.status), _place(rule))
        return super()._stopped(used)

    def _columns(self, rows: Candidates) -> Iterator[tuple[float, list[float] | None]]:
        by_columns = list(super()._columns(rows))
        scoring = [
            one
            for one in self.used
            if isinstance(one.plugin, ScorePlugin) and (one.plan is None or one.plan.scores)
        ]
        for used, (weight, column) in zip(scoring, by_columns, strict=True):
            if used.plan is None:
                yield weight, column
                continue
            parts = [
                (rule.weight, reference.scores(rule.core, self.world, self.subject, rows.tolist()))
                for rule in used.plan.scores
            ]
            yield weight, reference.policy_score(parts)

    def _preferred(self, plan: Plan, rows: Candidates) -> Sequence[bool] | None:
        best: list[bool] | None = None
        for rule in plan.tiers:
            mask = reference.prefers(rule.core, self.world, self.subject, rows.tolist())
            if mask is None:
                continue
            both = mask if best is None else [a and b for a, b in zip(best, mask, strict=True)]
            best = both if any(both) else best
        return best

    def _held(self, plan: Plan, subject: PodSubject) -> str | None:
        for rule in plan.gates:
            if not reference.passes(rule.core, self.world, subject, -1):
                view = reference.View(self.world, subject, -1)
                return reference.message(rule.core, rule.source.text, view)
        return None

    def applies(self, rule: RuleBase) -> bool:
        """See `ByColumns.applies`."""
        if isinstance(rule, ScoreRule):
            rows = self._candidates().tolist()
            return reference.scores(rule.core, self.world, self.subject, rows) is not None
        core: Any = getattr(rule, "core", None)
        guard = getattr(core, "guard", None)
        return reference.applies(guard, self.world, self.subject)


def differences(columns: ByColumns, meaning: ByReference) -> list[str]:
    """What the two evaluators, and a scheduling cycle, do not agree on; empty: nothing."""
    found = []
    if dict(columns.rejections()) != dict(meaning.rejections()):
        found.append(
            f"rejections: by columns {_told(columns.rejections())};"
            f" by reference {_told(meaning.rejections())}"
        )
    elif not columns.stopped_early and not columns.cycle_agrees():
        found.append(f"a scheduling cycle leaves other nodes than {_told(columns.rejections())}")
    else:
        found.extend(_choice(columns))
    left, right = columns.scores(), meaning.scores()
    if left != right:
        found.append(f"scores: by columns {left}; by reference {right}")
    if list(columns.best()) != list(meaning.best()):
        found.append(f"best: by columns {columns.best()}; by reference {meaning.best()}")
    for pod in columns.scene.pods:
        held = columns.gate(pod.name), meaning.gate(pod.name)
        if held[0] != held[1]:
            found.append(f"the gate of {pod.name}: by columns {held[0]}; by reference {held[1]}")
    for plan in columns.plans:
        found.extend(
            f"whether {_place(rule)} applies"
            for rule in rules_of(plan)
            if columns.applies(rule) != meaning.applies(rule)
        )
    return found


def _choice(columns: ByColumns) -> Iterator[str]:
    """A scheduling cycle takes one of the best nodes, but for a nominated one."""
    if columns.stopped_early or columns.scene.pod.pod.status.nominated_node_name:
        return
    chosen, best = columns.cycle_chooses(), list(columns.best())
    if (chosen is None) == bool(best) or (chosen is not None and chosen not in best):
        yield f"a scheduling cycle takes {chosen}, not one of {best}"


def _told(rejections: Mapping[str, Rejection]) -> str:
    said = [f'{name} "{one.message}" {one.status}' for name, one in rejections.items()]
    return ", ".join(said) or "nothing rejected"
