"""The acting tier: what plugins want done with a pod whose node is chosen.

They are asked on a snapshot that has the pod on its node already. All answers are data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.framework.decision import Decision
from engine.framework.effects import Emit
from engine.framework.interface import (
    Binding,
    BindPlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PreBindPlugin,
    ReadsScores,
    ReservePlugin,
)
from engine.framework.podinfo import PodInfo
from engine.framework.snapshot import Snapshot
from engine.framework.status import Status

#: Calls a plugin's method by (name, point, method, arguments); a fault becomes the framework's own.
Guard = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Acts:
    """What is to be done: nothing but taking the pod back if `status` is not ok.

    `before` are Events to emit at once, `after` those for a pod that was bound.
    """

    status: Status = Status.SUCCESS
    annotations: Mapping[str, str] = field(default_factory=dict)
    dry_run: bool = False
    before: tuple[Emit, ...] = ()
    after: tuple[Emit, ...] = ()


NOTHING = Acts()


class Actors:
    """The plugins of a profile that act, by point."""

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self._reserve = tuple(p for p in plugins if isinstance(p, ReservePlugin))
        self._permit = tuple(p for p in plugins if isinstance(p, PermitPlugin))
        self._pre_bind = tuple(p for p in plugins if isinstance(p, PreBindPlugin))
        self._bind = tuple(p for p in plugins if isinstance(p, BindPlugin))
        self._post_bind = tuple(p for p in plugins if isinstance(p, PostBindPlugin))
        every = (self._reserve, self._permit, self._pre_bind, self._bind, self._post_bind)
        self.any = any(every)
        """False: nobody is asked, and no snapshot is needed for it."""
        self.read_scores = any(
            isinstance(one, ReadsScores) and one.reads_scores
            for one in (*self._pre_bind, *self._post_bind)
        )

    def act(self, guard: Guard, pod: PodInfo, snapshot: Snapshot, decision: Decision) -> Acts:
        """Asks all in the order of the points; the first refusal ends it."""
        row = snapshot.nodes.row(decision.node or "")
        for reserver in self._reserve:
            status = guard(reserver.name, "Reserve", reserver.reserve, pod, snapshot, row)
            if not status.ok:
                return Acts(status.by(reserver.name))
        for permitter in self._permit:
            status = guard(permitter.name, "Permit", permitter.permit, pod, snapshot, row)
            if not status.ok:
                return Acts(status.by(permitter.name))
        annotations: dict[str, str] = {}
        before: list[Emit] = []
        after: list[Emit] = []
        for actor in self._pre_bind:
            own, events = guard(actor.name, "PreBind", actor.pre_bind, pod, snapshot, row, decision)
            annotations.update(own)
            before.extend(events)
        how = Binding.NO_SAY
        for binder in self._bind:
            if how is Binding.NO_SAY:
                how = guard(binder.name, "Bind", binder.bind, pod, snapshot)
        for poster in self._post_bind:
            after.extend(
                guard(poster.name, "PostBind", poster.post_bind, pod, snapshot, row, decision)
            )
        return Acts(
            annotations=annotations,
            dry_run=how is Binding.DRY_RUN,
            before=tuple(before),
            after=tuple(after),
        )
