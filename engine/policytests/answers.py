"""What policies say of one test's cluster: the answers of a scheduler's framework, in a lab.

What takes more than one decision, and changes the cluster,
happens in a lab of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dsl.plan import Plan, RuleBase
from engine.basis import rules_of as rules_in_force
from engine.clock import ManualClock
from engine.explain.gangs import Group, group_of, start_of
from engine.explain.scores import Ranking, among
from engine.framework.acting import Acts
from engine.framework.decision import Decision, Details, PluginScore
from engine.framework.effects import Emit, Patch
from engine.framework.podinfo import PodInfo
from engine.framework.runtime import Candidates, Unfit
from engine.framework.snapshot import Snapshot
from engine.framework.status import Code, Status
from engine.policy.acting import place_of
from engine.policy.plugin import Worlds
from engine.policy.world import PodSubject, SnapshotWorld
from engine.policytests.judging import CannotJudgeError, Rejection
from engine.policytests.rules import number_in_file, outcomes_of, rules_of
from engine.policytests.scene import Scene
from engine.queue import SchedulingQueue

if TYPE_CHECKING:
    from engine.policytests.trial import Preempted

_WORDS: Final = {
    Code.UNSCHEDULABLE: "unschedulable",
    Code.PENDING: "unschedulable",
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE: "unresolvable",
}
_DIGITS: Final = 6


class Answers:
    """See the module."""

    def __init__(
        self,
        scene: Scene,
        plans: Sequence[Plan],
        worlds: Worlds,
        again: Callable[[], Scene],
    ) -> None:
        """The plugins of the scene's framework; `again` makes the scene anew, to be changed."""
        self.scene = scene
        self.worlds = worlds
        self.plans = plans
        self.framework = scene.framework
        self.rescued: Preempted | None = None
        """What was done so that the pod fits, once that was asked."""
        self._rejections: dict[str, Rejection] | None = None
        self._ranking: Ranking | None = None
        self._outcomes: dict[str, frozenset[str]] = {}
        self._again = again
        self._permission: tuple[str, str] | None = None

    @property
    def world(self) -> SnapshotWorld:
        """What the pod's rules read beside it."""
        return self.worlds.of(self.scene.snapshot, self.scene.pod.uid)

    @property
    def subject(self) -> PodSubject:
        """The pod as policies read it."""
        return self.subject_of(self.scene.pod, self.scene.snapshot)

    def subject_of(self, pod: PodInfo, snapshot: Snapshot) -> PodSubject:
        """A pod as policies read it."""
        return self.worlds.subject(pod, snapshot)

    # ---- nodes

    def nodes(self) -> Sequence[str]:
        """All nodes, in the order of the file."""
        return list(self.scene.rows)

    def rejections(self) -> Mapping[str, Rejection]:
        """The nodes that do not pass, and why: the first who rejects each."""
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

    def candidates(self) -> Candidates:
        """The rows of the nodes that are left."""
        rejected = self.rejections()
        rows = [row for name, row in self.scene.rows.items() if name not in rejected]
        return np.array(sorted(rows), np.intp)

    # ---- scores

    def scores(self) -> Mapping[str, float] | None:
        """Scores of the feasible nodes: one policy's own, of several the weighted sum.

        None when every scoring rule abstained.
        """
        ranked = {one.row: one for one in self.ranking().nodes}
        rows = {name: row for name, row in self.scene.rows.items() if row in ranked}
        if not any(one.given for one in ranked.values()):
            return None
        plugins = self.framework.profile.plugins
        alone = sum(one.plugin.points().score is not None for one in plugins) == 1
        return {
            name: round(ranked[row].given[0].score if alone else ranked[row].total, _DIGITS)
            for name, row in rows.items()
        }

    def ranking(self) -> Ranking:
        """The nodes that are left as a scheduling cycle orders them."""
        if self._ranking is None:
            rows = self.candidates()
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
        """The feasible nodes of the highest rank."""
        found = self.ranking()
        rows = {one.row for one in found.nodes[: found.ties]}
        return [name for name, row in self.scene.rows.items() if row in rows]

    # ---- rules

    def rule_numbers(self) -> Sequence[int]:
        """The rules that can be named by `skipped`."""
        return [number_in_file(rule) for rule in rules_of(self._one_plan())]

    def _one_plan(self) -> Plan:
        if len(self.plans) == 1:
            return self.plans[0]
        what = "no policy" if not self.plans else "several policies"
        raise CannotJudgeError(f"this file uses {what}; `skipped` counts the rules of one")

    def skipped(self, number: int) -> bool | None:
        """Whether a rule did not apply; None if there is no such rule."""
        for rule in rules_of(self._one_plan()):
            if number_in_file(rule) == number:
                return not self.applies(rule)
        return None

    def outcomes(self, rule: RuleBase) -> frozenset[str]:
        """What coverage counts of a rule."""
        if rule.id not in self._outcomes:
            self._outcomes[rule.id] = outcomes_of(rule, self)
        return self._outcomes[rule.id]

    def applies(self, rule: RuleBase) -> bool:
        """Whether a rule has a say about the pod; a score that abstains has none."""
        return self.outcomes(rule) != {"abstained"}

    # ---- the queue

    def order(self) -> Sequence[str]:
        """The given pods by a queue without gates; who says nothing came first."""
        snapshot = self.scene.snapshot
        rules = replace(rules_in_force(self.framework, lambda: snapshot), pre_enqueue=_let_in)
        clock = ManualClock(snapshot.now)
        queue = SchedulingQueue(clock=clock, rules=rules, snapshot=lambda: snapshot)
        queue.on_fault = _raise
        for pod in self.scene.pods:
            queue.add(pod)
            queued, times = queue.get(pod.uid), snapshot.beside.times(pod.uid)
            assert queued is not None
            assert times is not None
            queued.queued_at = 0.0 if math.isnan(times.queued_at) else times.queued_at
            queue.update(pod)
        return [one.pod.name for one in iter(queue.pop, None)]

    def gate(self, pod: str) -> str | None:
        """Why a given pod is held before the queue; None if it is not."""
        (one,) = [each for each in self.scene.pods if each.name == pod]
        status = self.framework.pre_enqueue(one, self.scene.snapshot)
        return None if status.ok else self._read(status).message

    # ---- the chosen node

    def permission(self) -> tuple[str, str]:
        """`allow`, `reject` or `wait`, and the message; of a gang the pod alone is tried."""
        if self._permission is None:
            # A scheduler takes longer to import than most tests to run.
            from engine.policytests import trial  # noqa: PLC0415 - see above

            decision = self.decision(self.chosen())
            verdict, said = trial.permission(self._again(), decision)
            self._permission = verdict, self._placed(said)[0]
        return self._permission

    def annotations(self) -> Mapping[str, str]:
        """What prebind and postbind would set."""
        acts = self._acts()
        patched = [one.body["metadata"] for one in acts.after if isinstance(one, Patch)]
        later = [one.get("annotations", {}) for one in patched]
        return {**acts.annotations, **{key: text for one in later for key, text in one.items()}}

    def events(self) -> Sequence[str]:
        """What the Events of prebind and postbind would say."""
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
        """The pods that would be evicted, and the node that is chosen."""
        if self.rescued is None:
            # A scheduler takes longer to import than most tests to run.
            from engine.policytests import trial  # noqa: PLC0415 - see above

            self.rescued = trial.preemption(self._again())
        return self.rescued.victims, self.rescued.nominated


def _let_in(_pod: PodInfo) -> Status:
    return Status.SUCCESS


def _raise(_pod: PodInfo, fault: Exception) -> None:
    raise fault
