"""The acting tier: what plugins want done with a pod whose node is chosen.

They are asked on a snapshot that has the pod on its node already. All answers are data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.framework.decision import Decision
from engine.framework.effects import Effect, Emit
from engine.framework.interface import Binding, Points
from engine.framework.podinfo import PodInfo
from engine.framework.snapshot import Snapshot
from engine.framework.status import Status

#: Calls a plugin's function by (name, point, function, arguments); a fault becomes the framework's.
Guard = Callable[..., Any]
Named = tuple[str, Points]


@dataclass(frozen=True, slots=True)
class Acts:
    """What is to be done: nothing but taking the pod back if `status` is not ok.

    `reserved` are to be carried out at once, `pre_bind` before the binding, both undone in reverse
    if the pod fails. `before` are Events to emit at once, `after` tells those of a pod that was
    bound.
    """

    status: Status = Status.SUCCESS
    annotations: Mapping[str, str] = field(default_factory=dict)
    dry_run: bool = False
    reserved: tuple[Effect, ...] = ()
    pre_bind: tuple[Effect, ...] = ()
    before: tuple[Emit, ...] = ()
    after: tuple[Emit, ...] = ()


NOTHING = Acts()


class Actors:
    """The plugins of a profile that act, by point."""

    def __init__(self, plugins: Sequence[Named]) -> None:
        self._reserve = [(name, p.reserve) for name, p in plugins if p.reserve]
        self._permit = [(name, p.permit) for name, p in plugins if p.permit]
        self._pre_bind = [(name, p.pre_bind) for name, p in plugins if p.pre_bind]
        self._bind = [(name, p.bind) for name, p in plugins if p.bind]
        self._post_bind = [(name, p.post_bind) for name, p in plugins if p.post_bind]
        acting = [
            p for _, p in plugins if p.reserve or p.permit or p.pre_bind or p.bind or p.post_bind
        ]
        self._on_all = any(p.acts_on is None for p in acting)
        self._on_some = [p.acts_on for p in acting if p.acts_on is not None]
        self.read_scores = any(p.reads_scores for _, p in plugins)

    def have_a_say(self, pod: PodInfo) -> bool:
        """False: nobody is asked about the pod, and no snapshot is needed for it."""
        return self._on_all or any(acts_on(pod) for acts_on in self._on_some)

    def act(self, guard: Guard, pod: PodInfo, snapshot: Snapshot, decision: Decision) -> Acts:
        """Asks all in the order of the points; the first refusal ends it."""
        row = snapshot.nodes.row(decision.node or "")
        reserved: list[Effect] = []
        for name, reserve in self._reserve:
            answer = guard(name, "Reserve", reserve, pod, snapshot, row)
            if not answer.status.ok:
                return Acts(answer.status.by(name))
            reserved.extend(answer.effects)
        for name, permit in self._permit:
            status = guard(name, "Permit", permit, pod, snapshot, row)
            if not status.ok:
                return Acts(status.by(name))
        annotations: dict[str, str] = {}
        effects: list[Effect] = []
        before: list[Emit] = []
        for name, pre_bind in self._pre_bind:
            bound = guard(name, "PreBind", pre_bind, pod, snapshot, row, decision)
            if not bound.status.ok:
                return Acts(bound.status.by(name))
            annotations.update(bound.annotations)
            effects.extend(bound.effects)
            before.extend(bound.events)
        how = Binding.NO_SAY
        for name, bind in self._bind:
            if how is Binding.NO_SAY:
                how = guard(name, "Bind", bind, pod, snapshot)
        after: list[Emit] = []
        for name, post_bind in self._post_bind:
            after.extend(guard(name, "PostBind", post_bind, pod, snapshot, row, decision))
        return Acts(
            annotations=annotations,
            dry_run=how is Binding.DRY_RUN,
            reserved=tuple(reserved),
            pre_bind=tuple(effects),
            before=tuple(before),
            after=tuple(after),
        )
