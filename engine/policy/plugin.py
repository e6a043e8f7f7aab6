"""A compiled policy as a plugin: one file, one plugin, at every extension point it uses.

The policy's text decides nothing here; this room only asks the plan about the snapshot's columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple
from numpy.typing import NDArray

from dsl import ir
from dsl.plan import (
    OF_NODES,
    Effect,
    FilterRule,
    Plan,
    RuleBase,
    ScoreRule,
    Stop,
    effects_of,
    stop_by,
)
from dsl.reference import View
from dsl.world import Parts
from engine.framework.decision import Decision
from engine.framework.effects import Emit, Patch, pod_event, set_on_pod
from engine.framework.events import ClusterEventWithHint
from engine.framework.interface import (
    ALL_PASS,
    SILENT,
    SKIP_FILTER,
    SKIP_SCORE,
    BindResult,
    PermitResult,
    Points,
    PreBindResult,
    PreFilterResult,
    PreScoreResult,
    ReserveResult,
    Scope,
    Scores,
    State,
    StatusGroups,
    Verdicts,
)
from engine.framework.snapshot import BoolColumn, Cause, QueueTimes, Rows, Snapshot
from engine.framework.status import Code, Status
from engine.pods.podinfo import PodInfo
from engine.policy import accounts, gangs
from engine.policy.events import (
    Deciding,
    causes_of,
    hinted_events,
    is_of_version,
    is_still,
    of_pod_alone,
    read_and_told,
    sorted_events,
)
from engine.policy.findings import rules_of
from engine.policy.world import METRIC, SnapshotWorld, Worlds

_R = TypeVar("_R", bound=RuleBase)
_NOMINATED: Final = "node.nominated"
_MINUTE: Final = 60.0
#: A moment after a comparison turns; what is computed of it may be off in the last digit.
_PAST: Final = 0.001
_POD: Final = "pod"
#: What preemption, gangs and elastic quotas read of pods whatever the statement says.
_ReadOfPods = tuple[str, str | None]
_OF_VICTIMS: Final[tuple[_ReadOfPods, ...]] = (
    ("it.priority", None), ("it.started_at", None), ("it.namespace", None), ("it.name", None),
)  # fmt: skip
_OF_MEMBERS: Final = ("it.namespace", None), ("it.uid", None), ("it.terminating", None)
_OF_LOANS: Final = ("it.request", "cpu"), ("it.request", "memory")
#: Between two tries of a pod that a rule rejects by how often it was tried, in seconds.
_LONGEST_PAUSE: Final = 10.0
#: As the state of a filter: what the pod is to the rules is asked at each snapshot.
_ANEW: Final = object()


@dataclass(frozen=True, slots=True)
class Asked:
    """A pod in a snapshot, and what each rule reads of it: None where its left side is false."""

    pod: PodInfo
    snapshot: Snapshot
    filters: tuple[Parts | None, ...]
    scores: tuple[Parts | None, ...]
    stop: Stop | None = None


def applying(rules: Sequence[_R], parts: Sequence[Parts | None]) -> list[tuple[_R, Parts]]:
    """The rules that apply to a pod, each with what it reads of it."""
    return [(rule, own) for rule, own in zip(rules, parts, strict=True) if own is not None]


def place_of(rule: RuleBase) -> str:
    """File and line of a rule."""
    return f"{rule.source.name}:{rule.line}"


def status_of(stop: Stop) -> Status:
    """A rule's refusal as a status, with its place."""
    return Status(Code(stop.status), (f"{stop.message} ({place_of(stop.rule)})",))


def results_of(decision: Decision) -> dict[str, float]:
    """The scores of the chosen node as `prebind:` and `postbind:` read them."""
    scores = {f"score[{one.plugin}]": one.normalized for one in decision.scores}
    return {"score.total": decision.total} | scores


def _set(done: Sequence[Effect], kind: str) -> dict[str, str]:
    return {one.key: one.text for one in done if one.kind == kind}


def _read_of_pods(rule: RuleBase) -> set[_ReadOfPods]:
    """The fields and metrics of pods on nodes that a rule reads, with their keys."""
    found = set[_ReadOfPods]()
    seen, left = set[int](), list[object]([rule])
    while left:
        one = left.pop()
        if isinstance(one, ir.Read) and one.field.startswith("it."):
            found.add((one.field, one.key))
        elif isinstance(one, ir.Metric) and one.of == _POD:
            found.add((METRIC, one.id))
        if isinstance(one, tuple):
            left += one
        elif isinstance(one, Struct) and id(one) not in seen:
            seen.add(id(one))
            left += astuple(one)
    return found


def _reads(rules: Sequence[RuleBase]) -> frozenset[str]:
    return frozenset().union(*(rule.reads for rule in rules))


def promises(snapshot: Snapshot) -> int:
    """Changes as `own_promise` does, of any pod."""
    return snapshot.nominations.version


def own_promise(pod: PodInfo, snapshot: Snapshot) -> str:
    """What tells a pod that is promised a node from others of its class; empty for all others."""
    return pod.uid if snapshot.nominations.node_of(pod.uid) else ""


class PolicyPlugin:
    """One policy, at every extension point that it has rules for."""

    def __init__(self, plan: Plan, worlds: Worlds) -> None:
        self.plan = plan
        self.name = plan.name
        self._worlds = worlds
        self._asked: Asked | None = None
        self._points: Points | None = None
        self._gangs = gangs.GangRules(plan.gangs, worlds.asked_as_any)
        rules: tuple[RuleBase, ...] = (*plan.filters, *plan.scores)
        self._reads_metrics = any(rule.reads_metrics for rule in rules)
        self._reads_now = any(
            "now" in rule.reads or any("metric_age" in read for read in rule.reads)
            for rule in rules
        )
        self._reads_minutes = any(rule.reads_time for rule in rules)
        self._turning = [rule.turns for rule in self._deciding() if rule.turns is not None]
        tried = (rule for rule in self._deciding() if rule not in plan.gates)
        self._counts_tries = any("pod.attempts" in rule.reads for rule in tried)
        # A column over other nodes' pods (a zone's) changes with rows that are not asked about.
        self._scope = Scope.ROW if all(rule.row_local for rule in plan.filters) else Scope.ALL
        self._causes = causes_of(_reads(plan.filters))
        more = [read for rule in plan.filters for read in read_and_told(rule) - rule.reads]
        self._tells_more = not all(read.startswith("pod.") for read in more)
        self._of_pods: Sequence[_ReadOfPods] | None = None
        # Of two lines the first may come to apply while a pod waits by the second.
        self._wakes = sorted_events(plan.permits)
        # To such rules a pod that is promised a node is unlike others: it does not see itself.
        self._sees_promises = any(_NOMINATED in rule.reads for rule in (*rules, *plan.prefilters))
        self._scores_by_version = all(
            is_of_version(read) for rule in plan.scores for read in rule.reads
        )

    def points(self) -> Points:
        """What the policy has rules for; the same whenever it is asked."""
        if self._points is None:
            self._points = self._all_points()
        return self._points

    def _warm(self, snapshot: Snapshot) -> Iterator[None]:
        """What the rules read of pods on nodes: else the first pod asked about would wait."""
        if self._of_pods is None:
            lends = any(rule.core.elastic for rule in self.plan.quotas)
            implied = (
                *(_OF_VICTIMS if lends or self.plan.preempts else ()),
                *(_OF_MEMBERS if lends or self.plan.gangs else ()),
                *(_OF_LOANS if lends else ()),
            )
            found = set[_ReadOfPods](implied)
            for rule in rules_of(self.plan):
                found |= _read_of_pods(rule)
                yield
            self._of_pods = sorted(found, key=str)
        if any("quota." in read for read in _reads([*rules_of(self.plan)])):
            yield from accounts.prepare(snapshot)
        asked, world = self._of_pods, self._worlds.of(snapshot)
        yield from snapshot.pods.prepare(lambda: [world.pod_column(*one) for one in asked])

    def _all_points(self) -> Points:
        plan = self.plan
        decides = bool(plan.filters or plan.prefilters)
        acts = bool(plan.prebinds or plan.postbinds)
        return Points(
            events=self._events(),
            pre_enqueue=self._gate if plan.gates else None,
            warm=self._warm,
            # What pods have before this one may be what it waits for.
            gate_volatile=bool(plan.gates) and not of_pod_alone(_reads(plan.gates)),
            recheck_at=self._recheck_at
            if self._turning or self._counts_tries or self._gangs.turn
            else None,
            sort_key=self._sort_key if plan.sorts else None,
            kin=self._gangs.kin if plan.gangs else None,
            gang=self._gangs.gang if plan.gangs else None,
            class_key=self._class_key,
            key_version=promises if self._sees_promises else None,
            key_volatile=self._key_volatile(),
            reason_key=self._reason_key
            if self._tells_more or any(rule.told for rule in plan.filters)
            else None,
            pre_filter=self._pre_filter if decides else None,
            filter=self._filter if decides else None,
            what_if=self._what_if if plan.prefilters else None,
            pre_score=self._pre_score if plan.scores else None,
            score=self._score if plan.scores else None,
            tiers=self._preferred if plan.tiers else None,
            reserve=self._reserve if plan.reserves else None,
            permit=self._permit if plan.permits else None,
            pre_bind=self._pre_bind if plan.prebinds else None,
            bind=self._bind if plan.binds else None,
            post_bind=self._post_bind if plan.postbinds else None,
            reads_scores=acts
            and any(
                read.startswith("score")
                for rule in (*plan.prebinds, *plan.postbinds)
                for read in rule.reads
            ),
        )

    def _events(self) -> Sequence[ClusterEventWithHint]:
        """What the filters read decides what can wake a pod that they rejected."""
        if not self.plan.gangs:
            return hinted_events(self._deciding(), self._worlds.gpus)
        found = sorted_events((*self._deciding(), *self.plan.gangs))
        events = dict.fromkeys((*found, *gangs.EVENTS))
        joins = ClusterEventWithHint(gangs.JOINED, self._gangs.joins)
        frees = (ClusterEventWithHint(event, gangs.frees) for event in gangs.FREED)
        return (*(ClusterEventWithHint(event) for event in events), joins, *frees)

    def _recheck_at(self, pod: PodInfo, snapshot: Snapshot) -> float:
        subject, world = self._worlds.asked(pod, snapshot)
        if self._counts_tries and stop_by(self.plan.gates, subject, world) is None:
            # The next try counts one more; the backoff alone would not hold a pod that is alone.
            times = snapshot.other_pods.times(pod.uid)
            tries = 0 if times is None else times.attempts
            return snapshot.now + min(_LONGEST_PAUSE, 2.0 ** min(tries - 1, 4))
        soonest = min((turns(subject, world) for turns in self._turning), default=math.inf)
        return min(snapshot.now + soonest, self._gangs.recheck_at(pod, snapshot)) + _PAST

    def _deciding(self) -> tuple[Deciding, ...]:
        """The rules that can turn a pod away, or only pretend, wherever they are asked."""
        plan = self.plan
        conditions = (*plan.gates, *plan.prefilters, *plan.reserves)
        return (*conditions, *plan.filters, *plan.permits, *plan.binds)

    # ---- before the queue

    def _gate(self, pod: PodInfo, snapshot: Snapshot) -> Status:
        stop = stop_by(self.plan.gates, *self._worlds.asked(pod, snapshot))
        if stop is None:
            return Status.SUCCESS
        return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, status_of(stop).reasons)

    def _sort_key(self, pod: PodInfo, queued_at: float, snapshot: Snapshot) -> tuple[Any, ...]:
        times = snapshot.other_pods.times(pod.uid) or QueueTimes(queued_at, None, 0)
        subject = self._worlds.subject(pod, snapshot, times._replace(queued_at=queued_at))
        key = self.plan.sort_key(subject, self._worlds.of(snapshot, pod.uid))
        return key if key is not None else ()

    # ---- nodes

    def _version(self, snapshot: Snapshot) -> Hashable:
        """What the rules read that is in no row."""
        metrics = snapshot.signals.version if self._reads_metrics else 0
        if self._reads_now:
            return metrics, snapshot.now
        return metrics, int(snapshot.now // _MINUTE) if self._reads_minutes else 0

    @property
    def _versioned(self) -> Callable[[Snapshot], Hashable] | None:
        reads = self._reads_metrics or self._reads_now or self._reads_minutes
        return self._version if reads else None

    def _key_volatile(self) -> bool:
        """Whether what the rules read of the pod depends on more than the pod."""
        plan = self.plan
        own = {spec.name for spec in plan.metrics if spec.of in OF_NODES}
        rules = (*plan.filters, *plan.scores)
        still = all(is_still(read, own) for rule in rules for read in rule.reads)
        # What a prefilter reads of nodes decides about the pod, and is in the key as its verdict.
        return not (still and of_pod_alone(_reads(plan.prefilters)))

    def _class_key(self, pod: PodInfo, snapshot: Snapshot) -> Hashable:
        """What the rules read of the pod, as their verdicts."""
        asked = self.ask(pod, snapshot)
        if asked.stop is None and all(one is None for one in (*asked.filters, *asked.scores)):
            return SILENT
        own = self._own_promise(pod, snapshot)
        if not self.plan.prefilters:
            return asked.filters, asked.scores, own
        return asked.filters, asked.scores, own, "" if asked.stop is None else asked.stop.rule.id

    def _own_promise(self, pod: PodInfo, snapshot: Snapshot) -> str:
        return own_promise(pod, snapshot) if self._sees_promises else ""

    def _reason_key(self, pod: PodInfo, snapshot: Snapshot) -> Hashable:
        subject, world = self._worlds.asked(pod, snapshot)
        filters = zip(self.plan.filters, self.ask(pod, snapshot).filters, strict=True)
        said = [one.told(subject, world) for one, own in filters if own is not None and one.told]
        # What only the words read may have changed with anything.
        moment = (world.generation, snapshot.now) if self._tells_more else None
        return (*said, moment)

    def _pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
        """Skips when no filter applies to the pod."""
        asked = self.ask(pod, snapshot)
        if asked.stop is not None:
            return PreFilterResult(status_of(asked.stop))
        if all(parts is None for parts in asked.filters):
            return SKIP_FILTER
        by_row = self._scope is Scope.ROW
        moves = not by_row or self._causes & Cause.POD or self._versioned is not None
        return PreFilterResult(
            state=asked.filters,
            scope=self._scope,
            causes=self._causes,
            version=self._versioned if by_row else None,
            shared=None if moves else (asked.filters, self._own_promise(pod, snapshot)),
        )

    def _what_if(self, pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
        """What a prefilter says of all nodes is asked anew where some pods are gone."""
        if self.ask(pod, snapshot).stop is None:
            return PolicyPlugin._pre_filter(self, pod, snapshot)
        return PreFilterResult(state=_ANEW, scope=Scope.ALL)

    def _filter(self, state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
        """Rules are AND-ed."""
        if state is _ANEW:
            asked = self.ask(pod, snapshot)
            if asked.stop is not None:
                none = np.zeros(len(np.arange(snapshot.nodes.size)[rows]), np.bool_)
                return Verdicts.uniform(none, status_of(asked.stop))
            state = asked.filters
        parts: tuple[Parts | None, ...] = state
        world = self._worlds.of(snapshot, pod.uid)
        masks = []
        passed: BoolColumn | None = None
        for rule, own in zip(self.plan.filters, parts, strict=True):
            if own is not None:
                mask = rule.verdict(own, world, rows)
                masks.append((rule, mask))
                passed = mask if passed is None else passed & mask
        # A search for a zero takes a tenth of the time of `all`.
        if passed is None or b"\0" not in passed.tobytes():
            return ALL_PASS
        return Verdicts(passed, lambda: self._groups(masks, pod, snapshot, rows))

    def _groups(
        self,
        masks: Sequence[tuple[FilterRule, BoolColumn]],
        pod: PodInfo,
        snapshot: Snapshot,
        rows: Rows,
    ) -> StatusGroups:
        """Each rejected row under the first rule that rejects it, told with one sample node."""
        groups = []
        subject, world = self._worlds.asked(pod, snapshot)
        numbers = np.arange(snapshot.nodes.size)[rows]
        left = snapshot.nodes.present[rows].copy()
        for rule, mask in masks:
            positions = np.flatnonzero(left & ~mask)
            if not len(positions):
                continue
            left &= mask
            first = int(numbers[positions[0]])
            text = rule.message(subject, world, first)
            if not rule.alike(subject, world, numbers[positions]):
                # What is true of one node only is said of it, and counted for all.
                text = f"such as {snapshot.nodes.name(first)}: {text}"
            status = Status(Code(rule.status), (f"{text} ({place_of(rule)})",))
            groups.append((status, positions))
        return groups

    def _pre_score(self, pod: PodInfo, snapshot: Snapshot) -> PreScoreResult:
        """Skips when no score applies to the pod. Rules are normalised one by one."""
        asked = self.ask(pod, snapshot)
        if all(parts is None for parts in asked.scores):
            return SKIP_SCORE
        if self._scores_by_version:
            return PreScoreResult(
                state=asked.scores,
                scope=Scope.FEASIBLE,
                causes=Cause(0),
                version=self._versioned,
                shared=asked.scores,
            )
        return PreScoreResult(state=asked.scores, scope=Scope.ALL)

    def _score(self, state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores | None:
        """The weighted mean of the rules that do not abstain, 0..100."""
        if not isinstance(rows, slice) and len(rows) == snapshot.nodes.size:
            # Rows ascend, so these are all: their columns need no copy.
            rows = slice(0, len(rows))
        return self.plan.score(state, self._worlds.of(snapshot, pod.uid), rows)

    def _preferred(
        self, pod: PodInfo, snapshot: Snapshot, rows: NDArray[np.intp]
    ) -> Sequence[BoolColumn]:
        subject, world = self._worlds.asked(pod, snapshot)
        prepared = [(rule, rule.prepare(subject, world)) for rule in self.plan.tiers]
        return [rule.mask(own, world, rows) for rule, own in prepared if own is not None]

    # ---- on the chosen node: answers are data, the scheduler does what they say

    def _reserve(self, pod: PodInfo, snapshot: Snapshot, row: int) -> ReserveResult:
        stop = stop_by(self.plan.reserves, *self._worlds.asked(pod, snapshot), row)
        return ReserveResult() if stop is None else ReserveResult(status_of(stop))

    def _permit(self, pod: PodInfo, snapshot: Snapshot, row: int, waited: float) -> PermitResult:
        said = self.plan.permitted(*self._worlds.asked(pod, snapshot), row, waited)
        if said.rule is None or said.verdict == "allow":
            return PermitResult()
        status = status_of(Stop(said.rule, said.status, said.message))
        if said.verdict == "reject":
            return PermitResult(status)
        return PermitResult(Status(Code.WAIT, status.reasons), said.seconds, self._wakes)

    def _pre_bind(
        self, pod: PodInfo, snapshot: Snapshot, row: int, decision: Decision
    ) -> PreBindResult:
        asked = self._worlds.asked(pod, snapshot)
        done = effects_of(self.plan.prebinds, *asked, row, results_of(decision))
        return PreBindResult(
            annotations=_set(done, "annotate"),
            labels=_set(done, "label"),
            events=tuple(self._emitted(pod, done)),
        )

    def _bind(self, pod: PodInfo, snapshot: Snapshot) -> BindResult | None:
        rule = self.plan.binder(*self._worlds.asked(pod, snapshot))
        if rule is None:
            return None
        return BindResult(dry_run=rule.core.kind == "dry", by=rule.core.name)

    def _post_bind(
        self, pod: PodInfo, snapshot: Snapshot, row: int, decision: Decision
    ) -> Sequence[Emit | Patch]:
        asked = self._worlds.asked(pod, snapshot)
        done = effects_of(self.plan.postbinds, *asked, row, results_of(decision))
        labels, annotations = _set(done, "label"), _set(done, "annotate")
        told = self._emitted(pod, done)
        return [*told, set_on_pod(pod, labels, annotations)] if labels or annotations else told

    def _emitted(self, pod: PodInfo, done: Sequence[Effect]) -> list[Emit]:
        texts = [one.text for one in done if one.kind == "event"]
        return [pod_event(pod, "Normal", "Policy", self.name, text) for text in texts]

    # ---- told

    def traces(
        self, pod: PodInfo, snapshot: Snapshot, row: int, candidates: NDArray[np.intp]
    ) -> list[str]:
        """What each rule that applies to the pod said of this node, one of the candidates."""
        world = self._worlds.of(snapshot, pod.uid)
        everyone = np.flatnonzero(snapshot.nodes.present)
        said: list[tuple[RuleBase, str]] = []
        for rule, passed in self.masks(pod, snapshot):
            kept = int(np.count_nonzero(passed[everyone]))
            said.append((rule, f"{kept} of {len(everyone)} nodes pass"))
        at = np.flatnonzero(candidates == row)
        for score_rule, column in self.line_scores(pod, snapshot, candidates) if len(at) else ():
            said.append((score_rule, f"{column[at[0]]:g} of 100"))
        return [self._told(one, words, world, row) for one, words in said]

    def _told(self, rule: RuleBase, words: str, world: SnapshotWorld, row: int) -> str:
        """A rule's part in a decision, and how old the samples are that it read of the node."""
        said = [words]
        for spec in self.plan.metrics:
            if f"metric:{spec.name}" in rule.reads and spec.of in OF_NODES:
                age = float(world.metric_age(spec.id)[row])
                said.append(
                    f"no {spec.name}" if math.isnan(age) else f"{spec.name} {age:.0f} s old"
                )
        return f"{place_of(rule)} {rule.text.partition(':')[0]}: {', '.join(said)}"

    def masks(self, pod: PodInfo, snapshot: Snapshot) -> list[tuple[FilterRule, BoolColumn]]:
        """What each filter that applies to the pod says of all rows."""
        world, everyone = self._worlds.of(snapshot, pod.uid), slice(0, snapshot.nodes.size)
        own = applying(self.plan.filters, self.ask(pod, snapshot).filters)
        return [(rule, rule.verdict(parts, world, everyone)) for rule, parts in own]

    def stop(self, pod: PodInfo, snapshot: Snapshot) -> Stop | None:
        """Why the pod waits before the queue, or fits nowhere whatever the nodes are."""
        subject, world = self._worlds.asked(pod, snapshot)
        return stop_by((*self.plan.gates, *self.plan.prefilters), subject, world)

    def looks(self, pod: PodInfo, snapshot: Snapshot, row: int) -> View:
        """Where the rules' expressions are looked at: the pod on a node, -1 for none."""
        subject, world = self._worlds.asked(pod, snapshot)
        return View(world, subject, row)

    def line_scores(
        self, pod: PodInfo, snapshot: Snapshot, candidates: NDArray[np.intp]
    ) -> list[tuple[ScoreRule, Scores]]:
        """What each line that has a say gives the candidates, 0..100."""
        world = self._worlds.of(snapshot, pod.uid)
        found = []
        for rule, own in applying(self.plan.scores, self.ask(pod, snapshot).scores):
            column = rule.finish(rule.column(own, world, candidates, candidates))
            if column is not None:
                found.append((rule, column))
        return found

    def ask(self, pod: PodInfo, snapshot: Snapshot) -> Asked:
        """What the rules read of a pod; kept until another pod is asked about, or the cluster."""
        asked = self._asked
        if asked is None or asked.pod is not pod or asked.snapshot is not snapshot:
            subject, world = self._worlds.asked(pod, snapshot)
            asked = self._asked = Asked(
                pod,
                snapshot,
                tuple([rule.prepare(subject, world) for rule in self.plan.filters]),
                tuple([rule.prepare(subject, world) for rule in self.plan.scores]),
                stop_by(self.plan.prefilters, subject, world),
            )
        return asked
