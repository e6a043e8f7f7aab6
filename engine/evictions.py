"""Preemption carried out: nominated pods, and the evictions of their victims."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from engine.basis import Basis
from engine.clock import stamp
from engine.eventhandlers import withdrawn
from engine.framework.decision import PostFilterResult
from engine.framework.edge import Edge
from engine.framework.effects import Evict, SetUnschedulable, pod_event
from engine.framework.events import EVERYTHING
from engine.inflight import InFlight
from engine.measures import Measures
from engine.notices import log
from engine.objects import Condition, Pod
from engine.plugins.default_preemption import BY_SCHEDULER, DISRUPTION_TARGET
from engine.pods.podinfo import PodInfo
from engine.queue import SchedulingQueue, SubQueue

_IDLE_SECONDS: Final = 60.0
"""How long a gated pod keeps its nomination: the gate may open again."""


@dataclass(eq=False)
class Evictions:
    """See the module."""

    basis: Basis
    queue: SchedulingQueue
    edge: Edge
    measures: Measures
    in_flight: InFlight
    stop: Callable[[str, str], bool]
    """(UID, why) takes back a pod that is not bound yet; False: it is not on its way to a node."""

    def __post_init__(self) -> None:
        self._cache = self.basis.cache
        self._gated: dict[str, float] = {}

    def gated(self, uid: str) -> None:
        """A gate holds the pod: see `check`."""
        self._gated.pop(uid, None)
        if self._cache.nominations.node_of(uid):
            self._gated[uid] = self.basis.clock.monotonic() + _IDLE_SECONDS

    def check(self) -> None:
        """Takes back nominations of pods that a gate has held for a while: their room is idle.

        Not while their victims are being evicted, which gates them, too. Not at once: pods that
        came there would have to be evicted when the gate opens.
        """
        now, withdrawn_some = self.basis.clock.monotonic(), False
        while self._gated and next(iter(self._gated.values())) <= now:
            uid = next(iter(self._gated))
            del self._gated[uid]
            queued = self.queue.get(uid)
            evicting = self._cache.nominations.is_evicting(uid)
            if queued is None or queued.where is not SubQueue.GATED or evicting:
                continue
            if withdrawn(self._cache, self.queue, queued.pod.pod):
                self._tell_withdrawn(queued.pod)
                withdrawn_some = True
        if withdrawn_some:  # members of their gangs may be nominated without need now
            self.queue.move(EVERYTHING, uids=set(self._cache.nominations.nodes))

    def _tell_withdrawn(self, pod: PodInfo) -> None:
        self.queue.nomination_sent(pod.uid, "")
        self.edge.statuses.set_unschedulable(SetUnschedulable(pod, "", "", nominated=""))

    def evict(self, pod: PodInfo, rescue: PostFilterResult) -> None:
        """Nominates the pod and evicts its victims."""
        if rescue.nominated is not None:
            left_by = max([one.pod.priority for one in rescue.evictions], default=pod.priority)
            self._cache.nominate(pod, rescue.nominated, left_by)
        if rescue.evictions:
            for one in rescue.clears:  # nominations of less important pods
                self._cache.withdraw(one.uid)
                self._tell_withdrawn(one)
            self._begin(pod, rescue.nominated or "", rescue.evictions)

    def _begin(self, pod: PodInfo, node: str, victims: Sequence[Evict]) -> None:
        """The pod is gated until the evictions are written; terminating victims need none."""
        leaving = self._cache.nominations.leaving
        victims = [one for one in victims if not (one.pod.terminating or one.pod.uid in leaving)]
        if victims:
            nodes = {one.pod.uid: self._cache.node_of(one.pod.uid) or "" for one in victims}
            self._cache.evicts(pod.uid, nodes)
            self.measures.evicting(len(victims))
            self.in_flight.spawn(self._evict(pod, node, victims))

    async def _evict(self, pod: PodInfo, node: str, victims: Sequence[Evict]) -> None:
        """All but the last at once, then the last: one that fails saves the rest."""
        *most, last = victims
        gone = all(await asyncio.gather(*[self._evict_one(one, node) for one in most]))
        gone = gone and await self._evict_one(last, node)
        self._cache.evicts(pod.uid, {})
        queued = self.queue.get(pod.uid)
        # Whatever would have woken it meanwhile was held; without an eviction nothing would, nor
        # others that count on the same victims. A server that refuses is not asked on end.
        if queued is not None and (not gone or queued.where is SubQueue.GATED):
            promised = self._cache.nominations
            waiting = [one.uid for one in promised.on(node)] if not gone else []
            self.queue.activate(list(dict.fromkeys([pod.uid, *waiting])), failed=not gone)
            self.gated(pod.uid)  # by another gate now, or not at all
            if not gone:  # by a quota they may count on them from other nodes
                idle = {one.uid for one in promised if not promised.is_evicting(one.uid)}
                self.queue.move(EVERYTHING, uids=idle)

    async def _evict_one(self, effect: Evict, node: str) -> bool:
        victim = effect.pod
        note = f"Preempted by pod {effect.preemptor.uid} on node {node}"
        why = f"preempted by {effect.preemptor.key}"
        if self.stop(victim.uid, why):
            note += " (in kube-scheduler memory)."
        else:
            why_not = await self.edge.writer.evict(effect)
            if why_not:
                log.warning('Eviction failed pod="%s" reason="%s"', victim.key, why_not)
                return False
            self._cache.carry(going(victim.pod, effect.message, self.basis.clock.time()))
        log.info('Evicted pod="%s" for="%s" node="%s"', victim.key, effect.preemptor.key, node)
        told = pod_event(victim, "Normal", "Preempted", "Preempting", note, effect.preemptor)
        self.edge.events.emit(told)
        return True


def going(pod: Pod, message: str, at: float) -> Pod:
    """The pod as it is once its deletion has been requested."""
    replace = msgspec.structs.replace
    since = stamp(at)
    others = [one for one in pod.status.conditions or () if one.type != DISRUPTION_TARGET]
    target = Condition(DISRUPTION_TARGET, "True", BY_SCHEDULER, message, since)
    return replace(
        pod,
        metadata=replace(pod.metadata, deletion_timestamp=since),
        status=replace(pod.status, conditions=[*others, target]),
    )
