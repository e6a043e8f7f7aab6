"""The acting tier: calls Reserve, Permit, PreBind, Bind and PostBind for a pod on its node.

The snapshot has the pod on its node already. All answers are data; nothing is carried out here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, assert_never

from engine.framework.decision import Decision
from engine.framework.defaults import DEFAULT_BINDER
from engine.framework.effects import (
    AssumeObject,
    AtOnce,
    Await,
    Effect,
    Emit,
    Patch,
    named,
    set_on_pod,
)
from engine.framework.interface import BindResult, PermitResult, Points
from engine.framework.runner import PluginError
from engine.framework.snapshot import Snapshot
from engine.framework.status import Code, Status
from engine.framework.trials import Guard
from engine.pods.podinfo import PodInfo

Named = tuple[str, Points]


@dataclass(frozen=True, slots=True)
class Clearance:
    """The answers of Reserve and Permit: taken back if `status` is not ok, waits if `held`.

    `reserved` are to be carried out at once, `pre_bind` before the binding, both undone if the pod
    fails. `held` are the answers that let it wait, `others` those about pods that wait already.
    """

    status: Status = Status.SUCCESS
    reserved: tuple[AtOnce, ...] = ()
    pre_bind: tuple[Effect, ...] = ()
    held: Mapping[str, PermitResult] = field(default_factory=dict)
    others: tuple[tuple[str, str, Status], ...] = ()
    """(plugin, UID, answer)."""

    @property
    def words(self) -> tuple[str, ...]:
        """The answers as text, for journals and explanations."""
        if not self.status.ok:
            return (f"refused by {self.status.plugin}: {' '.join(self.status.reasons)}",)
        held = (f"held by {name}: {' '.join(x.status.reasons)}" for name, x in self.held.items())
        others = (f"{plugin} to {uid}: {said.code.value}" for plugin, uid, said in self.others)
        return (*map(_named, (*self.reserved, *self.pre_bind)), *held, *others)


GRANTED = Clearance()
_BY_US: Final = BindResult()


@dataclass(slots=True)
class Acts:
    """The answers of PreBind, Bind and PostBind; the pod is taken back if `status` is not ok.

    `pre_bind` are carried out before the binding, undone in reverse if the pod fails; the last of
    them writes `labels`. `before` are Events to emit at once, `after` is for a pod that was bound.
    """

    status: Status = Status.SUCCESS
    annotations: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    how: BindResult = _BY_US
    said_by: str = ""
    """The plugin that answered Bind."""
    handed: Sequence[Effect] = ()
    """Hands the pod to another binder."""
    pre_bind: list[Effect] = field(default_factory=list)
    before: list[Emit] = field(default_factory=list)
    after: list[Emit | Patch] = field(default_factory=list)

    @property
    def words(self) -> tuple[str, ...]:
        """The answers as text, for journals and explanations."""
        if not self.status.ok:
            return (f"refused by {self.status.plugin}: {' '.join(self.status.reasons)}",)
        sets = (f"annotate {key}={value}" for key, value in self.annotations.items())
        how = "dry run" if self.how.dry_run else f"with {self.how.by}" if self.how.by else ""
        now = map(_named, (*self.pre_bind, *self.before))
        then = map(_named, (*self.handed, *self.after))
        return (*sets, *now, *((how,) if how else ()), *(f"then {one}" for one in then))


NOTHING = Acts()


def _named(effect: Effect) -> str:
    match effect:
        case Patch():
            return f"patch {effect.kind} {effect.name}: {dict(effect.body)}"
        case AssumeObject():
            return f"assume {effect.kind} {effect.key}"
        case Emit():
            return f"event {effect.reason}: {effect.note}"
        case Await():
            return f"await {effect.what}"
        case _:
            assert_never(effect)


def _refusal(plugin: str, point: str, status: Status) -> Status:
    """The answer with the plugin's name, in its words, too, if it is no rejection.

    Source: kubernetes framework/runtime/framework.go, runReservePluginReserve and the like.
    """
    return status.by(plugin) if status.rejected else PluginError(plugin, point, status).status


class Point(Enum):
    """When plugins of the acting tier were asked."""

    RESERVE = "reserve"
    PERMIT = "permit"
    ACT = "act"


@dataclass(frozen=True, slots=True)
class Acted:
    """Answers of the acting tier, for observers; see `decision.Placed`.

    The snapshot is borrowed. A waiting pod has `waited` seconds, and only the plugins `only` were
    asked.
    """

    point: Point
    pod: PodInfo
    node: str
    snapshot: Snapshot
    words: tuple[str, ...]
    waited: float = 0.0
    only: tuple[str, ...] = ()


class Actors:
    """The plugins of a profile that act, by extension point; never raises."""

    def __init__(self, plugins: Sequence[Named], guard: Guard) -> None:
        self._guard = guard
        self._binders = {name: p.binder for name, p in plugins if p.binder}
        acting = [
            one
            for one in plugins
            if (p := one[1]).reserve or p.permit or p.pre_bind or p.bind or p.post_bind
        ]
        self._reserve = [(name, p.reserve) for name, p in acting if p.reserve]
        self._permit = [(name, p.permit) for name, p in acting if p.permit]
        self._pre_bind = [(name, p.pre_bind) for name, p in acting if p.pre_bind]
        self._bind = [(name, p.bind) for name, p in acting if p.bind]
        self._post_bind = [(name, p.post_bind) for name, p in acting if p.post_bind]
        self._on_all = any(p.acts_on is None for _, p in acting)
        self._on_some = [p.acts_on for _, p in acting if p.acts_on is not None]

    def acts(self, pod: PodInfo) -> bool:
        """Whether any plugin acts on the pod; if not, it needs no snapshot of its own."""
        if self._on_all:
            return True
        try:
            for acts_on in self._on_some:
                if acts_on(pod):
                    return True
        except Exception:  # noqa: BLE001 - its points are called then, with a guard
            return True
        return False

    def reserve(self, pod: PodInfo, snapshot: Snapshot, node: str) -> Clearance:
        """Calls Reserve, then Permit, for a pod that the snapshot has on the node.

        The first refusal ends it.
        """
        if not self.acts(pod):
            return GRANTED
        row = snapshot.nodes.row(node)
        reserved: list[AtOnce] = []
        pre_bind: list[Effect] = []
        try:
            for name, reserve in self._reserve:
                answer = self._guard(name, "Reserve", reserve, pod, snapshot, row)
                if not answer.status.ok:
                    return Clearance(_refusal(name, "Reserve", answer.status))
                reserved.extend(named(answer.effects, f"Reserve plugin {name!r}"))
                pre_bind.extend(named(answer.pre_bind, f"PreBind plugin {name!r}"))
        except PluginError as fault:
            return Clearance(fault.status)
        clearance = self.permit(pod, snapshot, node)
        return replace(clearance, reserved=tuple(reserved), pre_bind=tuple(pre_bind))

    def permit(
        self,
        pod: PodInfo,
        snapshot: Snapshot,
        node: str,
        waited: float = 0.0,
        only: Collection[str] | None = None,
    ) -> Clearance:
        """Calls Permit for a pod that has waited for so many seconds; `only` are asked, if given.

        A plugin that no longer has a say lets it go.
        """
        row = snapshot.nodes.row(node)
        held: dict[str, PermitResult] = {}
        others: list[tuple[str, str, Status]] = []
        try:
            for name, permit in self._permit:
                if only is not None and name not in only:
                    continue
                said = self._guard(name, "Permit", permit, pod, snapshot, row, waited)
                others += ((name, uid, status) for uid, status in said.others.items())
                if said.status.code is Code.WAIT:
                    held[name] = said
                elif not said.status.ok:
                    return Clearance(_refusal(name, "Permit", said.status), others=tuple(others))
        except PluginError as fault:
            return Clearance(fault.status)
        return Clearance(held=held, others=tuple(others))

    def act(self, pod: PodInfo, snapshot: Snapshot, decision: Decision) -> Acts:
        """Calls PreBind, Bind and PostBind for a pod that may be bound; a refusal ends it."""
        if not self.acts(pod):
            return NOTHING
        try:
            return self._act(pod, snapshot, decision)
        except PluginError as fault:
            return Acts(fault.status)

    def _act(self, pod: PodInfo, snapshot: Snapshot, decision: Decision) -> Acts:
        guard, row = self._guard, snapshot.nodes.row(decision.node or "")
        acts = Acts()
        for name, pre_bind in self._pre_bind:
            bound = guard(name, "PreBind", pre_bind, pod, snapshot, row, decision)
            if not bound.status.ok:
                return Acts(_refusal(name, "PreBind", bound.status))
            acts.annotations.update(bound.annotations)
            acts.labels.update(bound.labels)
            acts.pre_bind.extend(named(bound.effects, f"PreBind plugin {name!r}"))
            acts.before.extend(bound.events)
        acts.said_by, acts.how = self._how(pod, snapshot)
        how = acts.how
        if how.by:
            binder = self._binders.get(how.by)
            if binder is None:
                why = f"no plugin of the profile binds pods as {how.by}"
                return Acts(Status(Code.ERROR, (why,)))
            asked = guard(how.by, "Bind", binder, pod, snapshot, row)
            acts.handed = named(asked, f"Bind plugin {how.by!r}")
        carried = acts.annotations if how.by else None  # no Binding of ours carries them
        if acts.labels or carried:
            acts.pre_bind.append(set_on_pod(pod, acts.labels, carried))
        for name, post_bind in self._post_bind:
            acts.after.extend(guard(name, "PostBind", post_bind, pod, snapshot, row, decision))
        return acts

    def _how(self, pod: PodInfo, snapshot: Snapshot) -> tuple[str, BindResult]:
        for name, bind in self._bind:
            how: BindResult | None = self._guard(name, "Bind", bind, pod, snapshot)
            if how is not None:
                return name, _BY_US if how.by == DEFAULT_BINDER else how
        return "", _BY_US
