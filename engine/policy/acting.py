"""What a policy says of a pod on its node: `reserve`, `permit`, `prebind`, `bind`, `postbind`.

Answers are data; the scheduler does what they say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dsl.plan import Effect, Plan, RuleBase, Stop, effects_of, stop_by
from dsl.world import Subject, World
from engine.framework.decision import Decision
from engine.framework.effects import Emit, Patch, pod_event, set_on_pod
from engine.framework.interface import Binding, Permitted, PreBound, Reserved
from engine.framework.snapshot import Snapshot
from engine.framework.status import Code, Status
from engine.pods.podinfo import PodInfo
from engine.policy.waking import sorted_events

Asked = Callable[[PodInfo, Snapshot], tuple[Subject, World]]


class ActingRules:
    """The rules of a policy about the chosen node."""

    def __init__(self, plan: Plan, asked: Asked) -> None:
        self._plan = plan
        self._asked = asked
        # Of two lines the first may come to apply while a pod waits by the second.
        self._wakes = sorted_events(plan.permits)

    def reserve(self, pod: PodInfo, snapshot: Snapshot, row: int) -> Reserved:
        """See `Points.reserve`."""
        stop = stop_by(self._plan.reserves, *self._asked(pod, snapshot), row)
        return Reserved() if stop is None else Reserved(status_of(stop))

    def permit(self, pod: PodInfo, snapshot: Snapshot, row: int, waited: float) -> Permitted:
        """See `Points.permit`."""
        subject, world = self._asked(pod, snapshot)
        said = self._plan.permitted(subject, world, row, waited)
        if said.rule is None or said.verdict == "allow":
            return Permitted()
        status = status_of(Stop(said.rule, said.status, said.message))
        if said.verdict == "reject":
            return Permitted(status)
        return Permitted(Status(Code.WAIT, status.reasons), said.seconds, self._wakes)

    def pre_bind(self, pod: PodInfo, snapshot: Snapshot, row: int, decision: Decision) -> PreBound:
        """See `Points.pre_bind`."""
        subject, world = self._asked(pod, snapshot)
        done = effects_of(self._plan.prebinds, subject, world, row, results_of(decision))
        return PreBound(
            annotations=_set(done, "annotate"),
            labels=_set(done, "label"),
            events=tuple(_told(self._plan, pod, done)),
        )

    def bind(self, pod: PodInfo, snapshot: Snapshot) -> Binding | None:
        """See `Points.bind`."""
        rule = self._plan.binder(*self._asked(pod, snapshot))
        if rule is None:
            return None
        return Binding(dry_run=rule.core.kind == "dry", by=rule.core.name)

    def post_bind(
        self, pod: PodInfo, snapshot: Snapshot, row: int, decision: Decision
    ) -> Sequence[Emit | Patch]:
        """See `Points.post_bind`."""
        subject, world = self._asked(pod, snapshot)
        done = effects_of(self._plan.postbinds, subject, world, row, results_of(decision))
        labels, annotations = _set(done, "label"), _set(done, "annotate")
        told = _told(self._plan, pod, done)
        return [*told, set_on_pod(pod, labels, annotations)] if labels or annotations else told


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


def _told(plan: Plan, pod: PodInfo, done: Sequence[Effect]) -> list[Emit]:
    return [
        pod_event(pod, "Normal", "Policy", plan.name, one.text)
        for one in done
        if one.kind == "event"
    ]
