"""The binding of a pod: PreBind effects, the binding and its outcome, PostBind effects.

The drawing is in `engine/scheduler.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, assert_never

import msgspec

from engine.basis import Basis
from engine.choice import Chosen
from engine.clusterevents import NOMINATION_ENDED
from engine.executor import Changes, Executor, failed
from engine.failures import Failures
from engine.framework.acting import Acts
from engine.framework.edge import BindOutcome, Edge
from engine.framework.effects import Bind, Patch, pod_event
from engine.inflight import InFlight
from engine.measures import Measures, Result
from engine.notices import log
from engine.objects import Pod
from engine.queue import SchedulingQueue
from engine.text.display import plain

_RESOLVE_FIRST: Final = 0.2
_RESOLVE_MOST: Final = 5.0
_HAND_OVER_SECONDS: Final = 60.0


OutcomeObserver = Callable[[Bind, BindOutcome, str], None]


@dataclass(eq=False)
class Bindings:
    """See the module. A task for each; PreBind takes no slot."""

    basis: Basis
    queue: SchedulingQueue
    edge: Edge
    measures: Measures
    in_flight: InFlight
    failures: Failures

    def __post_init__(self) -> None:
        self._cache = self.basis.cache
        self._clock = self.basis.clock
        self._preparing: dict[str, Executor] = {}
        self.observers: list[OutcomeObserver] = []
        """Told of the outcome of every binding, and why."""
        self.changes = Changes()
        """The caller reports every change of an object that a pod may wait for."""

    def executor(self) -> Executor:
        """Makes what carries out the effects of one pod."""
        basis, edge = self.basis, self.edge
        return Executor(
            basis.cache, edge.writer, edge.events, self.changes, basis.snapshot, basis.clock
        )

    def begin(self, chosen: Chosen) -> None:
        """Starts the PreBind effects, or the binding if there are none."""
        pod, acts = chosen.queued.pod, chosen.acts
        if acts.annotations or acts.labels:
            self._cache.carry(marked(pod.pod, acts.annotations, acts.labels))
        if chosen.pre_bind:
            self.failures.notices.expects(pod, chosen.node)
            chosen.executor = chosen.executor or self.executor()
            self._preparing[pod.uid] = chosen.executor
            self.in_flight.spawn(self._prepare(chosen, chosen.executor))
        else:
            self._start_binding(chosen)

    def cancel(self, uid: str, why: str) -> bool:
        """Cancels the pod's PreBind effects; False: none are under way."""
        executor = self._preparing.get(uid)
        if executor is not None:
            executor.cancel(why)
        return executor is not None

    def check(self) -> None:
        """Cancels the PreBind effects of pods that are gone, bound by somebody else, or nowhere."""
        for uid, executor in self._preparing.items():
            if not self._cache.is_assumed(uid):
                executor.cancel("the pod is gone")
            elif (node := self._cache.node_of(uid)) and self._cache.nodes.row(node) < 0:
                executor.cancel(f"node {node} is gone")

    def stop(self) -> None:
        """The process ends: cancels all PreBind effects."""
        for executor in self._preparing.values():
            executor.cancel("the scheduler is stopping")

    async def _prepare(self, chosen: Chosen, executor: Executor) -> None:
        """Carries out the PreBind effects, however long it takes, then starts the binding."""
        pod = chosen.queued.pod
        began = self._clock.monotonic()
        try:
            status = await executor.carry_out(chosen.pre_bind)
        finally:
            del self._preparing[pod.uid]
        self.measures.point(chosen.queued, "PreBind", began, well=status.ok)
        if status.ok:
            self._start_binding(chosen)
        elif (watched := self._as_watched(pod.uid, chosen.node)) is not None:
            self._tell(Bind(pod, chosen.node), *watched)
            self.queue.done(pod.uid)
            if watched[0] is not BindOutcome.BOUND:
                self.failures.forget(pod, chosen.node)
        elif self.in_flight.stopping:
            self.failures.forget(pod, chosen.node)  # whoever reads the server next tries it again
        else:
            self._tell(Bind(pod, chosen.node), BindOutcome.REFUSED, " ".join(status.reasons))
            self.failures.refused(chosen.queued, status, chosen.node, seen=True)

    def _tell(self, effect: Bind, outcome: BindOutcome, why: str) -> None:
        for observer in self.observers:
            observer(effect, outcome, why)

    def _start_binding(self, chosen: Chosen) -> None:
        """In a slot if we bind the pod, outside of them if another binder does."""
        start = self.in_flight.spawn if chosen.acts.how.by else self.in_flight.bind
        start(self._bind(chosen))

    async def _bind(self, chosen: Chosen) -> None:
        queued, node, acts = chosen.queued, chosen.node, chosen.acts
        pod = queued.pod
        effect = Bind(pod, node, acts.annotations)
        await self.edge.statuses.withdraw(pod.uid)
        if self._cache.nodes.row(node) < 0:
            # The API server would bind to a node that does not exist.
            outcome, why = BindOutcome.REFUSED, f"node {node} is gone"
        elif acts.how.by:
            outcome, why = await self._hand_over(chosen)
        else:
            began = self._clock.monotonic()
            outcome, why = await self.edge.binder.bind(effect)
            self.measures.point(queued, "Bind", began, well=outcome is BindOutcome.BOUND)
            if outcome is BindOutcome.UNKNOWN:
                outcome, why = await self._resolve(effect, why)
            self.measures.bound(outcome)
        self._tell(effect, outcome, why)
        match outcome:
            case BindOutcome.BOUND:
                self._succeeded(chosen)
                self._after(acts)
            case BindOutcome.TAKEN | BindOutcome.GONE:
                await chosen.take_back()
                self.queue.done(pod.uid)
                self.failures.forget(pod, node)
                log.info('Binding dropped pod="%s" reason="%s"', pod.key, why)
            case BindOutcome.REFUSED | BindOutcome.PUT_OFF if self.in_flight.stopping:
                await chosen.take_back()
                self.failures.forget(pod, node)  # whoever reads the server next tries it again
            case BindOutcome.REFUSED | BindOutcome.PUT_OFF:
                await chosen.take_back()
                if outcome is BindOutcome.PUT_OFF:
                    self.measures.put_off()
                # Also logged: without permission to write Events this is all there is.
                log.warning('Binding rejected pod="%s" node="%s" reason="%s"', pod.key, node, why)
                status = failed(f"binding rejected: {why}")
                self.failures.refused(queued, status, node, seen=True)
            case BindOutcome.UNKNOWN:
                log.warning('Binding unknown at exit pod="%s" reason="%s"', pod.key, why)
            case _:
                assert_never(outcome)

    async def _hand_over(self, chosen: Chosen) -> tuple[BindOutcome, str]:
        """Another binder binds the pod: waits until the watch says so, for a minute at most."""
        uid, by = chosen.queued.pod.uid, chosen.acts.how.by
        chosen.executor = chosen.executor or self.executor()
        status = await chosen.executor.carry_out(chosen.acts.handed)
        if not status.ok:
            return BindOutcome.REFUSED, " ".join(status.reasons)
        log.info('Handed over pod="%s" node="%s" to="%s"', chosen.queued.pod.key, chosen.node, by)
        deadline = self._clock.monotonic() + _HAND_OVER_SECONDS
        while self._clock.monotonic() < deadline:
            outcome = self._as_watched(uid, chosen.node)
            if outcome is not None:
                return outcome
            if self.in_flight.stopping:
                return BindOutcome.UNKNOWN, f"{by} is to bind it"
            await self.edge.pause(_RESOLVE_FIRST)
        return BindOutcome.REFUSED, f"{by} has not bound it within {_HAND_OVER_SECONDS:g} s"

    def _as_watched(self, uid: str, wanted: str) -> tuple[BindOutcome, str] | None:
        """The outcome by the watch, None if it has not said yet."""
        node = self._cache.node_of(uid)
        if node is None:
            return BindOutcome.GONE, "deleted meanwhile"
        if self._cache.is_assumed(uid):
            return None
        return (BindOutcome.BOUND if node == wanted else BindOutcome.TAKEN), f"bound to {node}"

    async def _resolve(self, effect: Bind, why: str) -> tuple[BindOutcome, str]:
        """Asks the server by GET, and the cache, until one knows; UNKNOWN only when stopping."""
        pause = _RESOLVE_FIRST
        while True:
            # The request may still be on its way.
            await self.edge.pause(pause)
            watched = self._as_watched(effect.pod.uid, effect.node)
            if watched is not None:
                return watched
            outcome, said = await self.edge.binder.resolve(effect)
            if outcome is not BindOutcome.UNKNOWN or self.in_flight.stopping:
                return outcome, f"{why}; then {said}" if said else ""
            if pause == _RESOLVE_FIRST:
                log.warning('Outcome of binding unknown pod="%s" reason="%s"', effect.pod.key, why)
            pause = min(_RESOLVE_MOST, pause * 2)

    def _succeeded(self, chosen: Chosen) -> None:
        queued, decision, node = chosen.queued, chosen.decision, chosen.node
        pod = queued.pod
        self.queue.done(pod.uid)
        if chosen.was_nominated:
            self.queue.move(NOMINATION_ENDED)
        self.measures.ended(queued, Result.SCHEDULED)
        note = f"Successfully assigned {pod.namespace}/{pod.name} to {node}"
        self.edge.events.emit(pod_event(pod, "Normal", "Scheduled", "Binding", note))
        why = (plain(decision.why),) if decision.why else ()
        log.info(
            'Successfully bound pod to node pod="%s" node="%s" evaluatedNodes=%d feasibleNodes=%d'
            ' score=%g bundle="%s"' + ' why="%s"' * len(why),
            pod.key,
            node,
            decision.evaluated,
            decision.feasible,
            decision.total,
            decision.bundle,
            *why,
        )

    def _after(self, acts: Acts) -> None:
        """Carries out the PostBind effects."""
        for effect in acts.after:
            if isinstance(effect, Patch):
                self.in_flight.spawn(self._patch(effect))
            else:
                self.edge.events.emit(effect)

    async def _patch(self, effect: Patch) -> None:
        """Writes a patch that nothing depends on; a failure is logged."""
        why_not = await self.edge.writer.patch(effect)
        if why_not:
            key = f"{effect.namespace}/{effect.name}" if effect.namespace else effect.name
            what = effect.kind.lower()
            log.warning('Patch after the binding failed %s="%s" reason="%s"', what, key, why_not)


def marked(pod: Pod, annotations: Mapping[str, str], labels: Mapping[str, str]) -> Pod:
    """The pod as it will be once it is bound."""
    replace, meta = msgspec.structs.replace, pod.metadata
    # Labels that stay must stay the same object: pods that share them are of one kind.
    if annotations:
        meta = replace(meta, annotations={**(meta.annotations or {}), **annotations})
    if labels:
        meta = replace(meta, labels={**(meta.labels or {}), **labels})
    return replace(pod, metadata=meta)
