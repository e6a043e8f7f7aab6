"""What policies say of one test's cluster: the answers of the scheduler in its lab.

What takes more than one decision, and changes the cluster, happens in a lab of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from dsl.plan import Plan, RuleBase
from engine.clock import ManualClock
from engine.explain.gangs import Group, group_of, start_of
from engine.explain.scores import Ranking, among
from engine.framework.acting import Acts
from engine.framework.decision import Decision, Details, PluginScore
from engine.framework.effects import Emit, Patch
from engine.framework.runtime import Candidates, Unfit
from engine.framework.status import Code, Status
from engine.pods.podinfo import PodInfo
from engine.policy import findings
from engine.policy.plugin import place_of
from engine.policytests.policies import CannotJudgeError
from engine.policytests.scene import Scene

_WORDS: Final = {
    Code.UNSCHEDULABLE: "unschedulable",
    Code.PENDING: "unschedulable",
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE: "unresolvable",
}
_DIGITS: Final = 6
_WAITS: Final = "WaitingOnPermit"


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


def rules_of(plan: Plan) -> list[RuleBase]:
    """All rules of a policy, in the order of the file."""
    return sorted(findings.rules_of(plan), key=number_in_file)


def number_in_file(rule: RuleBase) -> int:
    """The number of a rule in its file, from 1."""
    return int(rule.id.rpartition("#")[2])


class Answers:
    """See the module."""

    def __init__(self, make: Callable[[], Scene]) -> None:
        """`make` gives the scene, and once more where what is asked changes the cluster."""
        self.scene = make()
        self._make = make
        self.rules = [rule for plan in self.scene.plans for rule in rules_of(plan)]
        self.seen: dict[str, set[str]] = {}
        """The outcomes of each rule by its id (`rules.looks`): who runs the test enters them."""

    # ---- nodes

    @property
    def nodes(self) -> Sequence[str]:
        """All nodes, in the order of the file."""
        return list(self.scene.rows)

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

    # ---- scores

    @property
    def scores(self) -> Mapping[str, float] | None:
        """Scores of the feasible nodes: one policy's own, of several the weighted sum.

        None when every scoring rule abstained.
        """
        ranked = {one.node: one for one in self.ranking.nodes}
        if not any(one.given for one in ranked.values()):
            return None
        plugins = self.scene.framework.profile.plugins
        alone = sum(one.plugin.points().score is not None for one in plugins) == 1
        return {
            name: round(ranked[name].given[0].score if alone else ranked[name].total, _DIGITS)
            for name in self.nodes
            if name in ranked
        }

    @cached_property
    def ranking(self) -> Ranking:
        """The nodes that are left as a scheduling cycle orders them."""
        rows, scene = self.candidates, self.scene
        return among(scene.pod, scene.snapshot, scene.framework, rows) if len(rows) else Ranking()

    @property
    def best(self) -> Sequence[str]:
        """The feasible nodes of the highest rank."""
        best = {one.node for one in self.ranking.nodes[: self.ranking.ties]}
        return [name for name in self.nodes if name in best]

    # ---- rules

    @property
    def numbered(self) -> Mapping[int, RuleBase]:
        """The rules that can be named by `skipped`.

        Raises:
            CannotJudgeError: they are not those of one policy.
        """
        if len(self.scene.plans) != 1:
            raise CannotJudgeError("`skipped` counts the rules of one policy; this file uses more")
        return {number_in_file(rule): rule for rule in self.rules}

    def applies(self, rule: RuleBase) -> bool:
        """Whether a rule has a say about the pod; a score that abstains has none."""
        return self.seen[rule.id] != {"abstained"}

    # ---- the queue

    @cached_property
    def order(self) -> Sequence[str]:
        """The given pods by a queue without gates; who says nothing came first."""
        lab, others = self.scene.lab, self.scene.snapshot.other_pods
        lab.let_in()
        lab.queue.on_fault = _raise
        for pod in self.scene.pods:
            lab.queue.add(pod)
            queued, times = lab.queue.get(pod.uid), others.times(pod.uid)
            assert queued is not None
            assert times is not None
            queued.queued_at = 0.0 if math.isnan(times.queued_at) else times.queued_at
            lab.queue.update(pod)
        return [self.scene.called[one.pod.uid] for one in iter(lab.queue.pop, None)]

    def gate(self, pod: str) -> str | None:
        """Why a given pod is held before the queue; None if it is not."""
        called = self.scene.called
        one = next(each for each in self.scene.pods if called[each.uid] == pod)
        status = self.scene.framework.pre_enqueue(one, self.scene.snapshot)
        return None if status.ok else self._read(status).message

    # ---- the chosen node

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
        scene.assume(node)
        return scene

    @cached_property
    def permission(self) -> tuple[str, str]:
        """`allow`, `reject` or `wait`, and the message; of a gang the pod alone is tried."""
        decision, scene = self.decision, self._make()
        verdict, said = scene.lab.run(_permission(scene, decision))
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
        if told.pod.uid == pod.uid and told.reason not in ("", _WAITS):
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


def _raise(_pod: PodInfo, fault: Exception) -> None:
    raise fault
