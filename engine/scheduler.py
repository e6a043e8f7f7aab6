"""The only place with side effects on pods: decisions in, bindings, conditions and Events out.

Deciding is synchronous and happens here in slices of a few milliseconds; writing is asynchronous,
one task a pod. Between the two a pod goes through these states:

    queue.pop ─▶ decide ─┬─ a node ─▶ assume ─▶ bind ─┬─ BOUND ─────────▶ done, the watch confirms
                         │             └ wait for leave│                    (see `waiting`)
                         │                            ├─ TAKEN or GONE ─▶ forget, done
                         │                            ├─ REFUSED ───────▶ forget, requeue: backoff
                         │                            └─ UNKNOWN ───────▶ stays assumed, is asked
                         │                                                again until it is known
                         ├─ no node ─▶ requeue: waits for an event; condition, Event
                         │             and maybe: promised a node, from which others are evicted
                         └─ an error ▶ requeue: backoff; condition, Event

What is forgotten gives room back, so pods that were rejected for want of it are told.

Source: kubernetes pkg/scheduler/schedule_one.go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol, assert_never

import msgspec

from engine.cache import Cache
from engine.clock import Clock
from engine.cycle import conclude, decide
from engine.display import plain
from engine.eventhandlers import POD_ASSIGNED, POD_FREED, on_node
from engine.executor import Changes, Executor
from engine.framework.acting import Acted, Acts, Point
from engine.framework.decision import Decision, Placed, PostFilterResult
from engine.framework.edge import Binder, BindOutcome, EffectWriter, EventSink, PodStatusWriter
from engine.framework.effects import Bind, Evict, Patch, SetUnschedulable, pod_event
from engine.framework.events import Action, ClusterEvent, Resource
from engine.framework.frameworks import Frameworks
from engine.framework.interface import Permitted
from engine.framework.podinfo import PodInfo
from engine.framework.runtime import Framework, PluginError
from engine.framework.snapshot import Signals, Snapshot
from engine.framework.status import Code, Status, unschedulable
from engine.gangs import Chosen, Gangs, Refused
from engine.measures import Measures, Result
from engine.objects import Condition, Pod
from engine.plugins.default_preemption import BY_SCHEDULER, DISRUPTION_TARGET
from engine.queue import QueuedPod, Rules, SchedulingQueue, SubQueue
from engine.telemetry import Count, Telemetry
from engine.waiting import Held, Permits

log = logging.getLogger(__name__)

SLICE_SECONDS: Final = 0.002
MOST_IN_FLIGHT: Final = 200
_RESOLVE_FIRST: Final = 0.2
_RESOLVE_MOST: Final = 5.0
_HAND_OVER_SECONDS: Final = 60.0
_MINUTE: Final = 60.0
_MESSAGE: Final = 4096
"""Characters of a condition's message; the API server takes no pod of more than 1.5 MB."""
_TICK: Final = ClusterEvent(Resource.TIME, Action.UPDATE_OTHER)
_SIGNALS_CAME: Final = ClusterEvent(Resource.SIGNAL, Action.UPDATE_OTHER)


class SignalSource(Protocol):
    """Where the metric columns come from; implemented by `engine.signals`."""

    def view(self, cache: Cache, now: float) -> Signals:
        """The columns aligned with the cache's rows as of now."""
        ...


class Background(Protocol):
    """Work done in slices between cycles; the policy reloader is one."""

    @property
    def due(self) -> float | None:
        """When it has something to do by itself (monotonic); None: not by time alone."""
        ...

    def step(self, deadline: float) -> bool:
        """Works until the deadline (monotonic) at most; True if there is more to do."""
        ...


Observer = Callable[[Placed], None]
Rulers = Framework | Frameworks
"""What decides: one framework for all pods, or one for the pods of each profile."""


@dataclass(frozen=True, slots=True)
class Edge:
    """The API server, as far as the scheduler writes to it.

    `pause` waits between two questions about a binding of unknown outcome.
    """

    binder: Binder
    statuses: PodStatusWriter
    events: EventSink
    writer: EffectWriter
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep


def rules_of(framework: Rulers, newest: Callable[[], Snapshot]) -> Rules:
    """What the queue asks of the profiles, each time about the newest snapshot."""
    return Rules(
        lambda pod, queued_at: framework.sort_key(pod, queued_at, newest()),
        lambda pod: framework.pre_enqueue(pod, newest()),
        framework.hints(),
        lambda pod, plugins: framework.turns_at(pod, newest(), plugins),
        framework.gates_move,
        framework.sorter,
        lambda pod: _alike(framework, pod, newest()),
        (lambda pod: framework.kin(pod, newest())) if framework.gangs else None,
    )


def _alike(framework: Rulers, pod: PodInfo, snapshot: Snapshot) -> Hashable:
    """Pods of which one can be tried for all; None: nobody can be for this one.

    Keys that move are not those by which pods were rejected some time ago. Whom a pod may evict is
    no matter of its class.
    """
    key = None if framework.keys_move else framework.class_key(pod, snapshot)
    if framework.gangs:  # what one gang was told says nothing of another
        key = None if key is None else (key, framework.kin(pod, snapshot))
    own = framework.of(pod)
    if key is None or not own.rescues:
        return key
    rescue = own.rescue_key(pod)
    return None if rescue is None else (key, rescue)


class Scheduler:
    """Runs cycles and executes what they decide. Lives in one event loop."""

    def __init__(
        self,
        *,
        cache: Cache,
        queue: SchedulingQueue,
        framework: Rulers | None,
        edge: Edge,
        signals: SignalSource,
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        self._cache = cache
        self._queue = queue
        queue.on_gated = self._gated
        # None until the first rules are in force; nothing is scheduled before.
        self.framework = framework
        self._edge = edge
        self._signals = signals
        self._clock = clock
        self._telemetry = telemetry
        self._measures = Measures(telemetry, clock)
        self._observers: list[Observer] = []
        self._acts_observers: list[Callable[[Acted], None]] = []
        self._background: list[Background] = []
        self._tasks: set[asyncio.Task[None]] = set()
        # Beside the slots of bindings: pods that wait to be bound, victims being evicted.
        self._others: set[asyncio.Task[None]] = set()
        self._preparing: dict[str, Executor] = {}
        self.changes = Changes()
        """To be told of every change of an object that a pod may wait for."""
        self._wake = asyncio.Event()
        self.permits = Permits(cache=cache, queue=queue, clock=clock, host=self)
        """The pods that wait for leave to be bound."""
        self.gangs = Gangs(host=self, cache=cache, queue=queue, permits=self.permits, clock=clock)
        """Those that wait for each other."""
        self.permits.also = self.gangs.holds.also
        self.add_background(self.permits)
        self._minute = int(clock.time() // _MINUTE)
        self._fault: BaseException | None = None
        self._stop: asyncio.Event | None = None
        self._ended = False
        self.leads = True
        """False while another replica decides: the queue fills, and nobody is told anything."""

    # ---- wiring ------------------------------------------------------------------------------

    def observe(self, observer: Observer) -> None:
        """Adds an observer of every decision; called synchronously, so it must be quick."""
        self._observers.append(observer)

    def observe_acts(self, observer: Callable[[Acted], None]) -> None:
        """Adds an observer of what plugins say of pods on their nodes; called as the others are."""
        self._acts_observers.append(observer)

    def add_background(self, work: Background) -> None:
        """Adds work that is done between cycles."""
        self._background.append(work)

    def wake(self) -> None:
        """Something happened that may give work.

        A pod came, an event moved one, a source changed.
        """
        self._wake.set()

    def use(self, framework: Rulers, changed: frozenset[str] | None) -> None:
        """Puts new rules in force between two cycles.

        Args:
            framework: the new profiles with their bundle.
            changed: plugins whose rules changed or went; pods they rejected are tried again;
                None means all.
        """
        self.framework = framework
        self._queue.set_rules(rules_of(framework, self.snapshot), changed)
        self.permits.new_rules()
        self.gangs.new_rules()
        self.wake()

    def lead(self) -> None:
        """It is for us to decide from now on, and to tell whose pods gates hold."""
        self.leads = True
        for queued in list(self._queue.pending()):
            held = queued.where is SubQueue.GATED
            if held and not _says(queued.pod, "SchedulingGated", _why_gated(queued)):
                self._gated(queued)
        self.wake()

    def snapshot(self) -> Snapshot:
        """The cluster as of now."""
        now = self._clock.time()
        return self._cache.snapshot(now, self._signals.view(self._cache, now))

    @property
    def in_flight(self) -> int:
        """Bindings that are being written."""
        return len(self._tasks)

    # ---- the loop ----------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Schedules until `stop` is set, then waits for the bindings in flight.

        A binding whose outcome cannot be learned then is left to whoever reads the server next.

        Raises:
            Exception: whatever a task of ours raised, which only a bug does.
        """
        self._stop = stop
        stopped = asyncio.get_running_loop().create_task(stop.wait())
        try:
            while not stop.is_set() and self._fault is None:
                self._wake.clear()
                if self.work():
                    await asyncio.sleep(0)
                else:
                    await self._sleep(stopped)
        except asyncio.CancelledError:
            for task in self._tasks | self._others:
                task.cancel()  # nobody waits for a server that may never answer
            raise
        finally:
            self._ended = True
            stopped.cancel()
            await self.drain()
        if self._fault is not None:
            raise self._fault

    @property
    def _stopping(self) -> bool:
        return self._ended or (self._stop is not None and self._stop.is_set())

    async def drain(self) -> None:
        """Waits until no binding is in flight, and nobody is being evicted."""
        if self._stopping:
            for executor in self._preparing.values():
                executor.stop()
        while self._tasks or self._others:
            await asyncio.wait(self._tasks | self._others)

    def work(self) -> bool:
        """One slice: background work, timers, then cycles until the slice is used up.

        Returns:
            True if there is more to do at once.
        """
        deadline = self._clock.monotonic() + SLICE_SECONDS
        busy = False
        for background in self._background:
            busy |= background.step(deadline)
        self._tick()
        while self.leads and self.framework is not None and self.in_flight < MOST_IN_FLIGHT:
            if self.gangs.busy:
                self.gangs.step()
            else:
                queued = self._queue.pop()
                if queued is None:
                    return busy
                self.schedule_one(queued)
            if self._clock.monotonic() >= deadline:
                self.gangs.pause()
                return True
        self.gangs.pause()
        return busy

    async def _sleep(self, stopped: asyncio.Task[Literal[True]]) -> None:
        timeout = _MINUTE - self._clock.time() % _MINUTE
        now = self._clock.monotonic()
        for deadline in (self._queue.next_deadline(), *(work.due for work in self._background)):
            if deadline is not None:
                timeout = min(timeout, max(0.0, deadline - now))
        woken = asyncio.get_running_loop().create_task(self._wake.wait())
        try:
            await asyncio.wait({woken, stopped}, timeout=timeout, return_when="FIRST_COMPLETED")
        finally:
            woken.cancel()

    def _tick(self) -> None:
        self._queue.flush()
        self.gangs.holds.check()
        for uid, executor in self._preparing.items():
            if self._cache.node_of(uid) is None:
                executor.cancel("the pod is gone")
        minute = int(self._clock.time() // _MINUTE)
        if minute != self._minute:
            self._minute = minute
            self._queue.move(_TICK, None, None)

    def signals_came(self) -> None:
        """New samples are there: pods rejected by rules that read metrics are looked at again."""
        self._queue.move(_SIGNALS_CAME, None, None)
        self.wake()

    # ---- one pod -----------------------------------------------------------------------------

    def schedule_one(self, queued: QueuedPod) -> None:
        """One cycle and what follows from it."""
        pod = queued.pod
        if pod.terminating or self._cache.node_of(pod.uid) is not None:
            self._queue.done(pod.uid)
            return
        if self.framework_of(pod).gangs and self.gangs.begin(queued):
            return
        found = self._choose(queued)
        if isinstance(found, Refused):
            self.refuse(found)
        else:
            self.go(found)

    def _choose(self, queued: QueuedPod, *, as_member: bool = False) -> Chosen | Refused:
        """Decides, and gives the pod its node and what is reserved for it there."""
        pod, framework = queued.pod, self.framework_of(queued.pod)
        queued.tried_at = self._clock.monotonic()
        snapshot = self.snapshot()
        now = snapshot.now
        decision = (decide if as_member else conclude)(pod, snapshot, framework)
        seconds = self._clock.monotonic() - queued.tried_at
        placed = Placed(decision, snapshot, seconds, as_member=as_member)
        self._measures.decided(placed)
        for observer in self._observers:
            observer(placed)
        if decision.node is None:
            return Refused(queued, decision)
        self._cache.assume(pod, decision.node, now)
        if len(self.permits):
            self.permits.happened(POD_ASSIGNED)
        chosen = Chosen(queued, decision, decision.node)
        if framework.acts(pod):
            chosen.there = there = self._cache.snapshot(now, snapshot.signals)
            chosen.leave = leave = framework.reserve(pod, there, decision.node)
            self.acted(decision, Acted(Point.RESERVE, pod, decision.node, there, leave.words))
            status, chosen.pre_bind = leave.status, leave.pre_bind
            if status.ok and leave.reserved:
                chosen.executor = self._executor()
                status = chosen.executor.reserve(leave.reserved)
            if not status.ok:
                self.permits.tell(leave)
                return Refused(queued, decision, status)
        return chosen

    # ---- for gangs

    def choose(self, queued: QueuedPod) -> Chosen | Refused:
        """See `gangs.Host.choose`."""
        found = self._choose(queued, as_member=True)
        if isinstance(found, Refused):
            self._cache.forget(queued.pod.uid)
        else:
            found.there = None  # others come before it goes
        return found

    def go(self, chosen: Chosen) -> None:
        """See `gangs.Host.go`."""
        self.hold(chosen, {})

    def hold(self, chosen: Chosen, by: Mapping[str, Permitted]) -> None:
        """See `gangs.Host.hold`; nobody holds a pod that goes at once."""
        by = {**chosen.leave.held, **by}
        if by:
            held = Held(
                chosen.queued, chosen.decision, chosen.node, by, chosen.executor, chosen.pre_bind
            )
            status = self.permits.hold(held)
            if status.ok:
                self._waits(held)
            else:
                chosen.undo()
                self._at_once(chosen.queued, status, chosen.node)
        elif chosen.there is not None or self.framework_of(chosen.queued.pod).acts(
            chosen.queued.pod
        ):
            self._may_go(chosen, chosen.there or self.snapshot())
        else:
            self._place(chosen)
        self.permits.tell(chosen.leave)

    def give_back(self, chosen: Chosen, *, tell: bool) -> None:
        """See `gangs.Host.give_back`."""
        chosen.undo()
        if tell:
            self._forget(chosen.queued.pod, chosen.node)
        else:
            self._cache.forget(chosen.queued.pod.uid)

    def refuse(self, refused: Refused) -> None:
        """See `gangs.Host.refuse`."""
        decision = refused.decision
        if refused.status is None:
            self._unplaced(refused.queued, decision)
        else:
            self._at_once(refused.queued, refused.status, decision.node or "")

    def reject(
        self,
        queued: QueuedPod,
        message: str,
        plugins: frozenset[str],
        nominated: str | None = None,
    ) -> None:
        """See `gangs.Host.reject`."""
        self._measures.ended(queued, Result.UNSCHEDULABLE)
        self._fail(queued, "Unschedulable", message, plugins, nominated=nominated)

    def rescue(self, refused: Refused) -> PostFilterResult | None:
        """See `gangs.Host.rescue`."""
        pod, rejections = refused.queued.pod, refused.decision.rejections
        framework = self.framework_of(pod)
        if rejections is None or not rejections.nodes or not framework.rescues:
            return None
        try:
            return framework.post_filter(pod, self.snapshot(), rejections)
        except PluginError:
            return None  # told to `on_fault`; the gang does not fit

    def evict(self, pod: PodInfo, rescue: PostFilterResult) -> None:
        """See `gangs.Host.evict`."""
        if rescue.nominated is not None:
            self._cache.nominate(pod, rescue.nominated)
        if rescue.evictions:
            for one in rescue.clears:
                self._clear(one)
            self._begin_evicting(pod, rescue.nominated or "", rescue.evictions)

    # ---- leave to be bound

    def acted(self, decision: Decision, acted: Acted) -> None:
        """See `waiting.Host.acted`."""
        decision.said += acted.words
        for observer in self._acts_observers:
            observer(acted)

    def _waits(self, held: Held) -> None:
        """The owner is told, as of any other wait: the pod has a node and is not bound to it."""
        pod, most = held.pod, f"{held.seconds:g} s at most"
        self._telemetry.add(Count.PODS_HELD)
        why = plain(f"waits on node {held.node}, {most}: {held.why}", _MESSAGE)
        log.info('Waits in permit pod="%s" node="%s" reason="%s"', pod.key, held.node, why)
        self._edge.events.emit(pod_event(pod, "Normal", "WaitingOnPermit", "Permit", why))
        self._set_condition(pod, "WaitingOnPermit", why)

    def released(self, held: Held) -> None:
        """See `waiting.Host.released`."""
        self._measures.waited(held.since, Code.SUCCESS.value)
        chosen = Chosen(
            held.queued, held.decision, held.node, executor=held.executor, pre_bind=held.pre_bind
        )
        self._may_go(chosen, self.snapshot())

    def refused(self, held: Held, status: Status) -> None:
        """See `waiting.Host.refused`."""
        self._measures.waited(held.since, status.code.value)
        self._taken_back(held.queued, status, held.node)

    def framework_of(self, pod: PodInfo) -> Framework:
        """Who decides about the pod."""
        assert self.framework is not None
        return self.framework.of(pod)

    def _may_go(self, chosen: Chosen, snapshot: Snapshot) -> None:
        """Asks what is to be done with a pod that may be bound, and does it."""
        pod = chosen.queued.pod
        chosen.acts = acts = self.framework_of(pod).act(pod, snapshot, chosen.decision)
        chosen.pre_bind = (*chosen.pre_bind, *acts.pre_bind)
        self.acted(chosen.decision, Acted(Point.ACT, pod, chosen.node, snapshot, acts.words))
        if not acts.status.ok:
            chosen.undo()
            back = self._taken_back if chosen.there is None else self._at_once
            back(chosen.queued, acts.status, chosen.node)
            return
        for note in acts.before:
            self._edge.events.emit(note)
        if acts.how.dry_run:
            chosen.undo()
            self._dry_run(pod, chosen.node)
        else:
            self._place(chosen)

    def _place(self, chosen: Chosen) -> None:
        """Begins what is to be done before the binding, and the binding."""
        pod, acts = chosen.queued.pod, chosen.acts
        if acts.annotations or acts.labels:
            self._cache.carry(marked(pod.pod, acts.annotations, acts.labels))
        if chosen.pre_bind:
            chosen.executor = chosen.executor or self._executor()
            self._preparing[pod.uid] = chosen.executor
            self._start(self._prepare(chosen, chosen.executor), self._others)
        else:
            self._start_binding(chosen)

    def _start_binding(self, chosen: Chosen) -> None:
        """By us in one of the slots, by somebody else beside them."""
        self._start(self._bind(chosen), self._others if chosen.acts.how.by else self._tasks)

    def _start(self, work: Coroutine[Any, Any, None], among: set[asyncio.Task[None]]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        among.add(task)
        task.add_done_callback(self._bound)

    def _executor(self) -> Executor:
        return Executor(
            cache=self._cache,
            writer=self._edge.writer,
            events=self._edge.events,
            changes=self.changes,
            snapshot=self.snapshot,
            clock=self._clock,
        )

    def _bound(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._others.discard(task)
        if not task.cancelled() and task.exception() is not None and self._fault is None:
            self._fault = task.exception()  # a bug of ours: `run` ends the process with it
        self.wake()

    def _unplaced(self, queued: QueuedPod, decision: Decision) -> None:
        if decision.error is not None:
            self._measures.ended(queued, Result.ERROR)
            self._fail(queued, "SchedulerError", decision.message, None, nominated="")
            return
        self._measures.ended(queued, Result.UNSCHEDULABLE)
        fit_error, rescue = decision.fit_error, decision.rescue
        plugins = frozenset() if fit_error is None else fit_error.plugins
        nominated = None if rescue is None else rescue.nominated
        if rescue is not None:
            self.evict(queued.pod, rescue)
        self._fail(queued, "Unschedulable", decision.message, plugins, nominated=nominated)

    def _taken_back(self, queued: QueuedPod, status: Status, node: str) -> None:
        """A plugin refuses the chosen node, or fails: the pod is queued again."""
        words = " ".join(status.reasons)
        if status.rejected:
            self._measures.ended(queued, Result.UNSCHEDULABLE)
            message = f"node {node} was chosen and refused: {words}"
            self._fail(
                queued,
                "Unschedulable",
                message,
                frozenset({status.plugin}),
                alone=True,
                nominated="",
            )
        else:
            self._measures.ended(queued, Result.ERROR)
            self._fail(queued, "SchedulerError", words, None, nominated="")
        self._forget(queued.pod, node)

    def _at_once(self, queued: QueuedPod, status: Status, node: str) -> None:
        """The same in the cycle in which it was chosen.

        Nobody has seen the room taken, so nobody is told that it is free: two pods that are refused
        would wake each other for ever.
        """
        self._cache.forget(queued.pod.uid)
        self._taken_back(queued, status, node)

    def _dry_run(self, pod: PodInfo, node: str) -> None:
        """A rule says that the pod is not bound: it is told where it would go, and left alone."""
        self._queue.done(pod.uid)
        self._forget(pod, node)
        note = f"Would assign {pod.namespace}/{pod.name} to {node}; dry run, nothing was bound"
        self._edge.events.emit(pod_event(pod, "Normal", "DryRun", "Binding", note))

    def _fail(
        self,
        queued: QueuedPod,
        reason: str,
        message: str,
        rejected_by: frozenset[str] | None,
        *,
        alone: bool = False,
        nominated: str | None = None,
    ) -> None:
        """The one way of failing: requeue, tell the user, set the condition if it changes.

        `alone`: it says nothing of other pods of the class. `nominated` is the node it is promised,
        empty to take that back.
        """
        if rejected_by is None:
            kept = self._queue.requeue_error(queued)
        else:
            kept = self._queue.requeue_rejected(queued, rejected_by, alone=alone)
        if not kept:
            return  # deleted or bound meanwhile
        self.report(queued.pod, reason, message, nominated)

    def _gated(self, queued: QueuedPod) -> None:
        """A gate holds the pod: its owner is told, as of any other wait.

        The pod's own `schedulingGates` are left out: the API server has said so by itself. The
        reason is the API server's for them too, so that kubectl shows SchedulingGated and
        autoscalers add no nodes for the pod.
        """
        pod = queued.pod
        if pod.pod.spec.scheduling_gates or not self.leads:
            return
        why = _why_gated(queued)
        log.info('Gated pod="%s" plugin="%s" reason="%s"', pod.key, queued.gating_plugin, why)
        note = pod_event(pod, "Normal", "SchedulingGated", "Gating", why)
        self._edge.events.emit(note)
        self._set_condition(pod, "SchedulingGated", why)

    def report(self, pod: PodInfo, reason: str, message: str, nominated: str | None = None) -> None:
        """Tells the user why the pod waits.

        An Event, and the condition if it says something new; nothing while another replica leads.
        """
        if not self.leads:
            return
        message = plain(message, _MESSAGE)
        note = pod_event(pod, "Warning", "FailedScheduling", "Scheduling", message)
        self._edge.events.emit(note)
        self._set_condition(pod, reason, message, nominated)

    def _set_condition(
        self, pod: PodInfo, reason: str, message: str, nominated: str | None = None
    ) -> None:
        moves = nominated is not None and nominated != pod.pod.status.nominated_node_name
        if moves or not _says(pod, reason, message):
            effect = SetUnschedulable(pod, reason, message, nominated)
            self._edge.statuses.set_unschedulable(effect)

    # ---- victims -----------------------------------------------------------------------------

    def _clear(self, pod: PodInfo) -> None:
        """Takes back what a pod is promised, for a more important one."""
        self._cache.withdraw(pod.uid)
        body = {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": None}}
        self._start(
            self._patch(Patch("Pod", pod.namespace, pod.name, body, "status")), self._others
        )

    async def _patch(self, effect: Patch) -> None:
        why_not = await self._edge.writer.patch(effect)
        if why_not:
            log.warning('Not written %s="%s" reason="%s"', effect.kind, effect.name, why_not)

    def _begin_evicting(self, pod: PodInfo, node: str, victims: Sequence[Evict]) -> None:
        """The pod is held at the gate until it is done. Who goes already needs no push."""
        leaving = self._cache.nominations.leaving
        victims = [one for one in victims if not (one.pod.terminating or one.pod.uid in leaving)]
        if victims:
            nodes = {one.pod.uid: self._cache.node_of(one.pod.uid) or "" for one in victims}
            self._cache.evicts(pod.uid, nodes)
            self._measures.evicting(len(victims))
            self._start(self._evict(pod, node, victims), self._others)

    async def _evict(self, pod: PodInfo, node: str, victims: Sequence[Evict]) -> None:
        """All but the last at once, then the last: one that fails saves the rest."""
        *most, last = victims
        gone = all(await asyncio.gather(*[self._evict_one(one, node) for one in most]))
        gone = gone and await self._evict_one(last, node)
        self._cache.evicts(pod.uid, {})
        queued = self._queue.get(pod.uid)
        # Whatever would have woken it meanwhile was held; without an eviction nothing would, nor
        # others that count on the same victims.
        if queued is not None and (not gone or queued.where is SubQueue.GATED):
            waiting = [one.uid for one in self._cache.nominations.on(node)] if not gone else []
            self._queue.activate(list(dict.fromkeys([pod.uid, *waiting])))

    async def _evict_one(self, effect: Evict, node: str) -> bool:
        victim = effect.pod
        note = f"Preempted by pod {effect.preemptor.uid} on node {node}"
        preparing = self._preparing.get(victim.uid)
        why = f"preempted by {effect.preemptor.key}"
        if self.permits.reject(victim.uid, unschedulable(why)):
            note += " (in kube-scheduler memory)."
        elif preparing is not None:
            preparing.cancel(why)
            note += " (in kube-scheduler memory)."
        else:
            why_not = await self._edge.writer.evict(effect)
            if why_not:
                log.warning('Not evicted pod="%s" reason="%s"', victim.key, why_not)
                return False
            self._cache.carry(going(victim.pod, effect.message, self._clock.time()))
        log.info('Evicted pod="%s" for="%s" node="%s"', victim.key, effect.preemptor.key, node)
        self._edge.events.emit(pod_event(victim, "Normal", "Preempted", "Preempting", note))
        return True

    # ---- binding -----------------------------------------------------------------------------

    async def _prepare(self, chosen: Chosen, executor: Executor) -> None:
        """What has to be done before the binding, however long it takes."""
        pod = chosen.queued.pod
        began = self._clock.monotonic()
        try:
            status = await executor.carry_out(chosen.pre_bind)
        finally:
            del self._preparing[pod.uid]
        self._measures.point(chosen.queued, "PreBind", began, well=status.ok)
        if status.ok:
            self._start_binding(chosen)
        elif self._stopping:
            self._forget(pod, chosen.node)  # whoever reads the server next tries it again
        else:
            self._taken_back(chosen.queued, status, chosen.node)

    async def _bind(self, chosen: Chosen) -> None:
        queued, node, acts = chosen.queued, chosen.node, chosen.acts
        pod = queued.pod
        effect = Bind(pod, node, acts.annotations)
        await self._edge.statuses.withdraw(pod.uid)
        if self._cache.nodes.row(node) < 0:
            # The API server would bind to a node that does not exist.
            outcome, why = BindOutcome.REFUSED, f"node {node} is gone"
        elif acts.how.by:
            outcome, why = await self._hand_over(chosen)
        else:
            began = self._clock.monotonic()
            outcome, why = await self._edge.binder.bind(effect)
            self._measures.point(queued, "Bind", began, well=outcome is BindOutcome.BOUND)
        if outcome is BindOutcome.UNKNOWN and not acts.how.by:
            outcome, why = await self._resolve(effect, why)
        match outcome:
            case BindOutcome.BOUND:
                self._succeeded(queued, chosen.decision, node)
                self._after(acts)
            case BindOutcome.TAKEN | BindOutcome.GONE:
                await chosen.take_back()
                self._queue.done(pod.uid)
                self._forget(pod, node)
                log.info('Dropped pod="%s" reason="%s"', pod.key, why)
            case BindOutcome.REFUSED if self._stopping:
                await chosen.take_back()
                self._forget(pod, node)  # whoever reads the server next tries it again
            case BindOutcome.REFUSED:
                self._measures.ended(queued, Result.ERROR)
                await chosen.take_back()
                message = f"binding rejected: {why}"
                self._fail(queued, "SchedulerError", message, None, nominated="")
                self._forget(pod, node)
            case BindOutcome.UNKNOWN:
                log.warning('Left with its binding unknown pod="%s" reason="%s"', pod.key, why)
            case _:
                assert_never(outcome)

    async def _hand_over(self, chosen: Chosen) -> tuple[BindOutcome, str]:
        """Somebody else binds the pod: waits until the watch says so, for a minute at most."""
        uid, by = chosen.queued.pod.uid, chosen.acts.how.by
        chosen.executor = chosen.executor or self._executor()
        status = await chosen.executor.carry_out(chosen.acts.handed)
        if not status.ok:
            return BindOutcome.REFUSED, " ".join(status.reasons)
        log.info('Handed over pod="%s" node="%s" to="%s"', chosen.queued.pod.key, chosen.node, by)
        deadline = self._clock.monotonic() + _HAND_OVER_SECONDS
        while self._clock.monotonic() < deadline:
            outcome = self._as_watched(uid, chosen.node)
            if outcome is not None:
                return outcome
            if self._stopping:
                return BindOutcome.UNKNOWN, f"it is with {by}"
            await self._edge.pause(_RESOLVE_FIRST)
        return BindOutcome.REFUSED, f"{by} has not bound it within {_HAND_OVER_SECONDS:g} s"

    def _as_watched(self, uid: str, wanted: str) -> tuple[BindOutcome, str] | None:
        """What became of a pod of ours, as far as the watch has said."""
        node = self._cache.node_of(uid)
        if node is None:
            return BindOutcome.GONE, "deleted while its binding was unknown"
        if self._cache.is_assumed(uid):
            return None
        return (BindOutcome.BOUND if node == wanted else BindOutcome.TAKEN), f"bound to {node}"

    def _after(self, acts: Acts) -> None:
        """What a pod that is bound has coming."""
        for effect in acts.after:
            if isinstance(effect, Patch):
                self._start(self._patch(effect), self._others)
            else:
                self._edge.events.emit(effect)

    def _forget(self, pod: PodInfo, node: str) -> None:
        """Takes an assumption back and tells the pods that were rejected for want of the room."""
        if self._cache.forget(pod.uid):
            there = on_node(pod.pod, node)
            self._queue.move(POD_FREED, there, None, only=lambda other: other.uid != pod.uid)

    async def _resolve(self, effect: Bind, why: str) -> tuple[BindOutcome, str]:
        """Asks until somebody knows: the server by GET, or the watch through the cache.

        UNKNOWN only when stopping.
        """
        log.warning('Outcome of binding unknown pod="%s" reason="%s"', effect.pod.key, why)
        pause = _RESOLVE_FIRST
        while True:
            watched = self._as_watched(effect.pod.uid, effect.node)
            if watched is not None:
                return watched
            outcome, why = await self._edge.binder.resolve(effect)
            if outcome is not BindOutcome.UNKNOWN or self._stopping:
                return outcome, why
            await self._edge.pause(pause)
            pause = min(_RESOLVE_MOST, pause * 2)

    def _succeeded(self, queued: QueuedPod, decision: Decision, node: str) -> None:
        pod = queued.pod
        self._queue.done(pod.uid)
        self._measures.ended(queued, Result.SCHEDULED)
        note = f"Successfully assigned {pod.namespace}/{pod.name} to {node}"
        self._edge.events.emit(pod_event(pod, "Normal", "Scheduled", "Binding", note))
        log.info(
            'Successfully bound pod to node pod="%s" node="%s" evaluatedNodes=%d feasibleNodes=%d'
            ' score=%g bundle="%s"%s',
            pod.key,
            node,
            decision.evaluated,
            decision.feasible,
            decision.total,
            decision.bundle,
            f' why="{plain(decision.why)}"' if decision.why else "",
        )


def marked(pod: Pod, annotations: Mapping[str, str], labels: Mapping[str, str]) -> Pod:
    """The pod as it will be once it is bound."""
    replace, meta = msgspec.structs.replace, pod.metadata
    if annotations:
        meta = replace(meta, annotations={**(meta.annotations or {}), **annotations})
    if labels:
        meta = replace(meta, labels={**(meta.labels or {}), **labels})
    return replace(pod, metadata=meta)


def going(pod: Pod, message: str, at: float) -> Pod:
    """The pod as it is once its deletion was asked for."""
    replace = msgspec.structs.replace
    since = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    others = [one for one in pod.status.conditions or () if one.type != DISRUPTION_TARGET]
    target = Condition(DISRUPTION_TARGET, "True", BY_SCHEDULER, message, since)
    return replace(
        pod,
        metadata=replace(pod.metadata, deletion_timestamp=since),
        status=replace(pod.status, conditions=[*others, target]),
    )


def _why_gated(queued: QueuedPod) -> str:
    return plain(" ".join(queued.gating_reasons), _MESSAGE)


def _says(pod: PodInfo, reason: str, message: str) -> bool:
    """True if the pod's condition says exactly this already."""
    for condition in pod.pod.status.conditions or ():
        if condition.type == "PodScheduled":
            return (condition.status, condition.reason, condition.message) == (
                "False",
                reason,
                message,
            )
    return False
