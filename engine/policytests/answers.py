"""What policies say of one test's cluster, and whether that is what is expected.

The answers are those of the scheduler in its lab. What takes more than one decision, and changes
the cluster, happens in a lab of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from dsl.plan import RuleBase
from dsl.policytest.attributes import listed
from dsl.policytest.reading import Expected
from dsl.types import NUMBER, show
from engine.clock import ManualClock
from engine.explain.gangs import Group, group_of, start_of
from engine.explain.scores import Ranking, among
from engine.framework.acting import Acts
from engine.framework.decision import Decision, PluginScore
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
#: What is expected holds anyhow, unless a plugin has one of these points.
_NEEDED: Final = {
    "permit": ("permit", "reserve", "gang"),
    **dict.fromkeys(("victims", "nominated"), ("post_filter",)),
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
        """The outcomes of each rule by its id (`looks.looks`): who runs the test enters them."""

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
            scores=tuple([PluginScore(g.plugin, g.raw, g.score, g.weight) for g in given]),
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
    return _JUDGES.get(expected.name, _judge_whole)(expected, answers)


def holds_anyhow(expected: Expected, answers: Answers) -> Failure | None:
    """An expectation that nothing used here could break, for want of a rule of its kind."""
    needed = _NEEDED.get(expected.name)
    points = [one.plugin.points() for one in answers.scene.framework.profile.plugins]
    if needed is None or any(getattr(one, name) for one in points for name in needed):
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
    no = answers.rejections.get(name)
    return f"{name} passes" if no is None else f'{name} is rejected by {no.place}: "{no.message}"'


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


def _judge_skipped(expected: Expected, answers: Answers) -> Failure | None:
    number = int(expected.number)
    if len(answers.scene.plans) != 1:
        raise CannotJudgeError("`skipped` counts the rules of one policy; this file uses others")
    there = {number_in_file(rule): rule for rule in answers.rules}
    if number not in there:
        names = listed([str(one) for one in there]) or "none"
        return Failure(f"there is no rule {number}; the rules that can be asked are {names}")
    applies = answers.applies(there[number])
    return Failure(f"rule {number} did apply", tuple(answers.scene.rows)) if applies else None


_JUDGES: Final = {
    **dict.fromkeys(("feasible", "rejected"), _judge_nodes),
    **dict.fromkeys(("annotation", "label", "unset"), _judge_written),
    **dict.fromkeys(("gated", "ungated", "permit"), _judge_held),
    "score": _judge_score,
    "best": _judge_best,
    "skipped": _judge_skipped,
}
