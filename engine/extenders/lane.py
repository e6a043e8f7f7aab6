"""What extenders have a say about: a lane of pods, one at a time, beside all other cycles.

    popped ─▶ lane ─▶ filters of ours ─▶ extenders asked ─▶ cycle with what they said ─▶ as any pod

kube-scheduler stands still while an extender thinks; here other pods go on meanwhile. So what was
feasible when they were asked is asked again, of the cluster as it is then, before a node is taken:
the cycle that decides is the same as for any pod, with their answer as one more input. A node that
came meanwhile is not taken; the pod that finds no other evicts nobody and comes again, as after any
such event. One pod at a time, as in kube-scheduler, for an extender may count on it. Also here is
what they need of the API server: whole objects, and bindings that one of them makes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import msgspec

from engine.basis import Basis
from engine.cycle import conclude, feasible
from engine.extenders import messages
from engine.extenders.client import ExtenderError, Extenders
from engine.extenders.messages import Victims, Whole
from engine.failures import Failures
from engine.framework.edge import Binder, BindOutcome
from engine.framework.effects import Bind
from engine.framework.opinion import Opinion
from engine.framework.runtime import Framework, PluginError, Unfit
from engine.framework.searchprogress import SLICE_RUNS, SearchProgress, UnfinishedError
from engine.framework.snapshot import Snapshot
from engine.inflight import InFlight
from engine.kube.client import Requests
from engine.kube.errors import KubeError, NotFound
from engine.kube.reflector import Handler
from engine.kube.resources import Resource
from engine.kube.writer import pod_path
from engine.objects import Identity, PodSpec
from engine.placement import Placement
from engine.pods.podinfo import PodInfo
from engine.queue import QueuedPod, SchedulingQueue
from engine.queue.heap import PodHeap

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_IN_A_GANG: Final = (
    "the pod is in a gang and managed by an extender; extenders are not asked about gangs"
)
NODES = Resource(Whole, "/api/v1/nodes")
"""Watched where an extender is sent whole nodes."""
_encode = msgspec.json.Encoder().encode
_spec = msgspec.json.Decoder(PodSpec)


class WholeObjects(Handler[Whole]):
    """Pods and nodes as the server has them; as a handler it is told of nodes."""

    def __init__(self, client: Requests) -> None:
        self._client = client
        self.nodes: dict[str, bytes] = {}
        """By name; none where no extender is sent them."""

    async def pod(self, pod: PodInfo) -> bytes | None:
        """The pod's JSON; None: it is gone, or on a node.

        Raises:
            LookupError: the server cannot be asked; the message says why.
        """
        try:
            answer = await self._client.request("GET", pod_path(pod.namespace, pod.name))
            found, body = messages.whole(answer.checked().body)
            node = _spec.decode(found.spec).node_name
        except (KubeError, msgspec.DecodeError) as error:
            if isinstance(error, NotFound) and error.of_object:
                return None
            raise LookupError(f"the pod cannot be read for extenders: {error}") from error
        return None if found.metadata.uid != pod.uid or node else body

    # ---- reflector.Handler

    def on_add(self, node: Whole) -> None:
        """See `reflector.Handler`."""
        self.nodes[node.metadata.name] = _encode(node)

    def on_delete(self, node: Whole) -> None:
        """See `reflector.Handler`."""
        self.nodes.pop(node.metadata.name, None)

    def on_unreadable(self, meta: Identity, reason: str) -> None:
        """See `reflector.Handler`."""
        log.error('Node cannot be sent to extenders node="%s" reason="%s"', meta.name, reason)


@dataclass(frozen=True, slots=True)
class ExtenderBinder:
    """A `framework.edge.Binder`: an extender's pods are bound by it, all others by ours.

    ::

        bind ─┬─ an extender's: answered well ──▶ BOUND
              │     └─ anything else ──▶ GET pod ─┬─ bound ──────▶ as the binding says
              │                                   └─ not bound ──▶ REFUSED, or ours, if ignorable
              └─ nobody's ──▶ ours

    Source: kubernetes pkg/scheduler schedule_one.go, extendersBinding.

    `may_write` is the fence of a leader, which an extender knows nothing of.
    """

    extenders: Extenders
    ours: Binder
    may_write: Callable[[], bool]

    async def bind(self, effect: Bind) -> tuple[BindOutcome, str]:
        """See `Binder.bind`."""
        one = self.extenders.binder_of(effect.pod)
        if one is None:
            return await self.ours.bind(effect)
        verb, body = one.document.bind_verb, messages.to_bind(effect.pod, effect.node)
        try:
            await one.ask(verb, body, messages.done, may_leave=self.may_write)
        except ExtenderError as error:
            # It may have bound the pod all the same.
            outcome, why = await self.ours.resolve(effect)
            if outcome is not BindOutcome.PUT_OFF:
                return outcome, f"{error}; {why}"
            if one.document.ignorable:
                log.warning("%s; it is ignorable and was skipped", error)
                return await self.ours.bind(effect)
            return outcome, str(error)
        return BindOutcome.BOUND, ""

    async def resolve(self, effect: Bind) -> tuple[BindOutcome, str]:
        """See `Binder.resolve`."""
        return await self.ours.resolve(effect)


@dataclass(eq=False)
class Lane:
    """See the module."""

    extenders: Extenders
    objects: WholeObjects
    basis: Basis
    queue: SchedulingQueue
    in_flight: InFlight
    placement: Placement
    failures: Failures

    def __post_init__(self) -> None:
        self._waiting = PodHeap()
        self._busy = False
        self._task: asyncio.Task[None] | None = None

    def take(self, queued: QueuedPod) -> bool:
        """Whether the pod that was popped is decided about here."""
        if not self.extenders.concern(queued.pod):
            return False
        framework = self.basis.framework_of(queued.pod)
        if framework.gangs and _in_a_gang(queued.pod, self.basis.snapshot(), framework):
            self.failures.error(queued, _IN_A_GANG)
            return True
        self._waiting.push(queued.sort_key, queued)
        if not self._busy:
            self._busy = True
            self.in_flight.spawn(self._work())
        return True

    def stop(self) -> None:
        """The process ends: whoever decides next asks again."""
        if self._task is not None:
            self._task.cancel()

    async def _work(self) -> None:
        self._task = asyncio.current_task()
        try:
            while (queued := self._waiting.pop()) is not None:
                await self._decide(queued)
        finally:
            self._task, self._busy = None, False

    async def _decide(self, queued: QueuedPod) -> None:
        if not self.placement.revalidate(queued):
            return
        try:
            whole = await self.objects.pod(queued.pod)
        except LookupError as error:
            opinion = Opinion(error=str(error))
        else:
            if whole is None:
                self.queue.done(queued.pod.uid)
                return
            opinion = await self._ask(queued, whole)
        await self._in_slices(queued, partial(self.placement.decide, queued, opinion=opinion))

    async def _in_slices(self, queued: QueuedPod, work: Callable[..., _T]) -> _T | None:
        """Works with its progress, in slices; None: the pod is not to be decided about by then."""
        progress = SearchProgress(SLICE_RUNS)
        while self.placement.revalidate(queued):
            try:
                return work(progress=progress)
            except UnfinishedError:
                await asyncio.sleep(0)
        return None

    async def _ask(self, queued: QueuedPod, whole: bytes) -> Opinion:
        """All that extenders say; nothing, where our own filters leave no node."""
        pod = queued.pod
        snapshot, framework = self._now(pod)
        try:
            names = feasible(pod, snapshot, framework)
        except (PluginError, Unfit):
            return Opinion()  # the cycle meets it, too, and tells
        nodes: dict[str, bytes] = {}
        if self.extenders.whole_nodes:
            known = self.objects.nodes  # which may go while they are asked
            nodes = {name: known[name] for name in names if name in known}
            names = list(nodes)
        opinion = Opinion()
        promised = snapshot.nominations.node_of(pod.uid)
        if promised in names:
            opinion = await self.extenders.ask(pod, whole, [promised], nodes)
        if names and not opinion.passed and not opinion.error:
            opinion = await self.extenders.ask(pod, whole, names, nodes)
        if opinion.passed or opinion.error or not self.extenders.preempts(pod):
            return opinion
        victims = await self._in_slices(queued, partial(self._victims, pod, opinion))
        if not victims:
            return opinion
        agreed, why = await self.extenders.agree(pod, whole, victims)
        return msgspec.structs.replace(opinion, victims=agreed, victims_error=why)

    def _victims(self, pod: PodInfo, opinion: Opinion, progress: SearchProgress) -> Victims:
        """Whom this pod might evict, if no node is left to it."""
        rescue = conclude(pod, *self._now(pod), opinion, progress).rescue
        if rescue is None or not rescue.nominated:
            return {}
        if rescue.choices is not None:
            return rescue.choices.victims()
        # The only way that a policy found.
        return {rescue.nominated: ([one.pod for one in rescue.evictions], rescue.violations)}

    def _now(self, pod: PodInfo) -> tuple[Snapshot, Framework]:
        return self.basis.snapshot(), self.basis.framework_of(pod)


def _in_a_gang(pod: PodInfo, snapshot: Snapshot, framework: Framework) -> bool:
    try:
        return framework.gang(pod, snapshot) is not None
    except PluginError:
        return False  # the cycle meets it, too, and tells
