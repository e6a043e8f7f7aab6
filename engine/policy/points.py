"""The extension points beside filter and score: each a mixin for policies that use it.

A policy is a plugin at a point only if it has a rule there, so that a chain without such rules
asks nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from dsl.plan import Effect, Plan, RuleBase, Stop
from engine.framework.decision import Decision
from engine.framework.effects import Emit, pod_event
from engine.framework.interface import Binding
from engine.framework.podinfo import PodInfo
from engine.framework.snapshot import BoolColumn, Snapshot
from engine.framework.status import Code, Status
from engine.policy.plugin import PolicyPlugin, Worlds, place_of
from engine.policy.world import QueueTimes


def status_of(stop: Stop) -> Status:
    """A rule's refusal as a status, with its place."""
    return Status(Code(stop.status), (f"{stop.message} ({place_of(stop.rule)})",))


def _of_pod_alone(rules: Sequence[RuleBase]) -> bool:
    return all(read.startswith("pod.") for rule in rules for read in rule.reads)


def _snapshot_for(rules: Sequence[RuleBase], worlds: Worlds) -> Snapshot:
    """The newest snapshot for rules that read more than the pod; it is made anew each time."""
    return worlds.at_hand() if _of_pod_alone(rules) else worlds.newest()


class Gating(PolicyPlugin):
    """Implements `PreEnqueuePlugin`."""

    @property
    def gate_moves(self) -> bool:
        """See `MovingGate`: what pods have before this one may be what it waits for."""
        return not _of_pod_alone(self.plan.gates)

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """See `PreEnqueuePlugin.pre_enqueue`."""
        snapshot = _snapshot_for(self.plan.gates, self._worlds)
        stop = self.plan.gated(self._subject(pod, snapshot), self._worlds.of(snapshot))
        if stop is None:
            return Status.SUCCESS
        return Status(
            Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (f"{stop.message} ({place_of(stop.rule)})",)
        )


class Sorting(PolicyPlugin):
    """Implements `QueueSortPlugin`; it replaces the in-tree one."""

    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[Any, ...]:
        """See `QueueSortPlugin.sort_key`."""
        snapshot = _snapshot_for(self.plan.sorts, self._worlds)
        times = QueueTimes(queued_at, None, 0)
        key = self.plan.sort_key(self._subject(pod, snapshot, times), self._worlds.of(snapshot))
        return key if key is not None else ()


class Tiering(PolicyPlugin):
    """Implements `TierPlugin`."""

    def preferred(
        self, pod: PodInfo, snapshot: Snapshot, rows: NDArray[np.intp]
    ) -> Sequence[BoolColumn]:
        """See `TierPlugin.preferred`."""
        subject, world = self._subject(pod, snapshot), self._worlds.of(snapshot)
        prepared = [(rule, rule.prepare(subject, world)) for rule in self.plan.tiers]
        return [rule.mask(own, world, rows) for rule, own in prepared if own is not None]


class Reserving(PolicyPlugin):
    """Implements `ReservePlugin`."""

    def reserve(self, pod: PodInfo, snapshot: Snapshot, row: int) -> Status:
        """See `ReservePlugin.reserve`."""
        stop = self.plan.reserved(self._subject(pod, snapshot), self._worlds.of(snapshot), row)
        return Status.SUCCESS if stop is None else status_of(stop)


class Permitting(PolicyPlugin):
    """Implements `PermitPlugin`; rules that wait are refused when they are loaded."""

    def permit(self, pod: PodInfo, snapshot: Snapshot, row: int) -> Status:
        """See `PermitPlugin.permit`."""
        said = self.plan.permitted(self._subject(pod, snapshot), self._worlds.of(snapshot), row)
        if said.verdict == "allow" or said.rule is None:
            return Status.SUCCESS
        return status_of(Stop(said.rule, said.status, said.message))


class PreBinding(PolicyPlugin):
    """Implements `PreBindPlugin`."""

    @property
    def reads_scores(self) -> bool:
        """See `ReadsScores`."""
        rules = (*self.plan.prebinds, *self.plan.postbinds)
        return any(read.startswith("score") for rule in rules for read in rule.reads)

    def pre_bind(
        self, pod: PodInfo, snapshot: Snapshot, row: int, decision: Decision
    ) -> tuple[Mapping[str, str], Sequence[Emit]]:
        """See `PreBindPlugin.pre_bind`."""
        done = self.plan.prebind(
            self._subject(pod, snapshot), self._worlds.of(snapshot), row, _results(decision)
        )
        annotations = {one.key: one.text for one in done if one.kind == "annotate"}
        return annotations, _events(self.plan, pod, done)


class Binding_(PolicyPlugin):  # noqa: N801 - the framework has the plain name
    """Implements `BindPlugin`."""

    def bind(self, pod: PodInfo, snapshot: Snapshot) -> Binding:
        """See `BindPlugin.bind`."""
        rule = self.plan.binder(self._subject(pod, snapshot), self._worlds.of(snapshot))
        if rule is None:
            return Binding.NO_SAY
        return Binding.DRY_RUN if rule.core.kind == "dry" else Binding.DEFAULT


class PostBinding(PolicyPlugin):
    """Implements `PostBindPlugin`."""

    reads_scores = PreBinding.reads_scores

    def post_bind(
        self, pod: PodInfo, snapshot: Snapshot, row: int, decision: Decision
    ) -> Sequence[Emit]:
        """See `PostBindPlugin.post_bind`."""
        done = self.plan.postbind(
            self._subject(pod, snapshot), self._worlds.of(snapshot), row, _results(decision)
        )
        return _events(self.plan, pod, done)


def _results(decision: Decision) -> dict[str, float]:
    scores = {f"score[{one.plugin}]": one.normalized for one in decision.scores}
    return {"score.total": decision.total} | scores


def _events(plan: Plan, pod: PodInfo, effects: Sequence[Effect]) -> list[Emit]:
    return [
        pod_event(pod, "Normal", "Policy", plan.name, one.text)
        for one in effects
        if one.kind == "event"
    ]


_MIXINS: Final[tuple[tuple[str, type[PolicyPlugin]], ...]] = (
    ("gates", Gating),
    ("sorts", Sorting),
    ("tiers", Tiering),
    ("reserves", Reserving),
    ("permits", Permitting),
    ("prebinds", PreBinding),
    ("binds", Binding_),
    ("postbinds", PostBinding),
)


def plugin_of(plan: Plan, worlds: Worlds) -> PolicyPlugin:
    """The policy as a plugin at the points that it has rules for."""
    bases = tuple([mixin for rules, mixin in _MIXINS if getattr(plan, rules)])
    if not bases:
        return PolicyPlugin(plan, worlds)
    made = cast("type[PolicyPlugin]", type("PolicyPlugin", bases, {}))
    return made(plan, worlds)
