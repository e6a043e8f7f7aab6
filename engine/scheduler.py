"""The only place with side effects on pods: decisions in, bindings, conditions and Events out.

Deciding is synchronous and happens here in slices of a few milliseconds; writing is asynchronous,
one task a pod. Between the two a pod goes through these states:

    queue.pop ─▶ decide ─┬─ a node ─▶ assume ─▶ bind ─┬─ BOUND ─────────▶ done, the watch confirms
                         │                            ├─ TAKEN or GONE ─▶ forget, done
                         │                            ├─ REFUSED ───────▶ forget, requeue: backoff
                         │                            └─ UNKNOWN ───────▶ stays assumed, is asked
                         │                                                again until it is known
                         ├─ no node ─▶ requeue: waits for an event; condition, Event
                         └─ an error ▶ requeue: backoff; condition, Event

What is forgotten gives room back, so pods that were rejected for want of it are told.

Source: kubernetes pkg/scheduler/schedule_one.go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal, Protocol, assert_never

from engine.cache import Cache
from engine.clock import Clock
from engine.cycle import conclude
from engine.display import plain
from engine.eventhandlers import POD_FREED, on_node
from engine.framework.acting import NOTHING, Acts
from engine.framework.decision import Decision, Placed
from engine.framework.edge import Binder, BindOutcome, EventSink, PodStatusWriter
from engine.framework.effects import Bind, SetUnschedulable, pod_event
from engine.framework.events import Action, ClusterEvent, Resource
from engine.framework.podinfo import PodInfo
from engine.framework.runtime import Framework
from engine.framework.snapshot import Signals, Snapshot
from engine.framework.status import Status
from engine.queue import QueuedPod, Rules, SchedulingQueue
from engine.telemetry import Count, Telemetry

log = logging.getLogger(__name__)

SLICE_SECONDS: Final = 0.002
MOST_IN_FLIGHT: Final = 200
_RESOLVE_FIRST: Final = 0.2
_RESOLVE_MOST: Final = 5.0
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


@dataclass(frozen=True, slots=True)
class Edge:
    """The API server, as far as the scheduler writes to it.

    `pause` waits between two questions about a binding of unknown outcome.
    """

    binder: Binder
    statuses: PodStatusWriter
    events: EventSink
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep


def rules_of(framework: Framework, newest: Callable[[], Snapshot]) -> Rules:
    """What the queue asks of a profile, each time about the newest snapshot."""
    return Rules(
        lambda pod, queued_at: framework.sort_key(pod, queued_at, newest()),
        lambda pod: framework.pre_enqueue(pod, newest()),
        framework.hints(),
        lambda pod, plugins: framework.turns_at(pod, newest(), plugins),
        framework.gates_move,
        framework.sorter,
        # Keys that move are not those by which pods were rejected some time ago.
        lambda pod: None if framework.keys_move else framework.class_key(pod, newest()),
    )


class Scheduler:
    """Runs cycles and executes what they decide. Lives in one event loop."""

    def __init__(
        self,
        *,
        cache: Cache,
        queue: SchedulingQueue,
        framework: Framework | None,
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
        self._observers: list[Observer] = []
        self._background: list[Background] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._minute = int(clock.time() // _MINUTE)
        self._fault: BaseException | None = None
        self._stopping = False

    # ---- wiring ------------------------------------------------------------------------------

    def observe(self, observer: Observer) -> None:
        """Adds an observer of every decision; called synchronously, so it must be quick."""
        self._observers.append(observer)

    def add_background(self, work: Background) -> None:
        """Adds work that is done between cycles."""
        self._background.append(work)

    def wake(self) -> None:
        """Something happened that may give work.

        A pod came, an event moved one, a source changed.
        """
        self._wake.set()

    def use(self, framework: Framework, changed: frozenset[str] | None) -> None:
        """Puts new rules in force between two cycles.

        Args:
            framework: the new profile with its bundle.
            changed: plugins whose rules changed or went; pods they rejected are tried again;
                None means all.
        """
        self.framework = framework
        self._queue.set_rules(rules_of(framework, self.snapshot), changed)
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
        stopped = asyncio.get_running_loop().create_task(stop.wait())
        try:
            while not stop.is_set() and self._fault is None:
                self._wake.clear()
                if self.work():
                    await asyncio.sleep(0)
                else:
                    await self._sleep(stopped)
        finally:
            self._stopping = True
            stopped.cancel()
            await self.drain()
        if self._fault is not None:
            raise self._fault

    async def drain(self) -> None:
        """Waits until no binding is in flight."""
        while self._tasks:
            await asyncio.wait(self._tasks)

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
        while self.framework is not None and self.in_flight < MOST_IN_FLIGHT:
            queued = self._queue.pop()
            if queued is None:
                return busy
            self.schedule_one(queued, self.framework)
            if self._clock.monotonic() >= deadline:
                return True
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
        minute = int(self._clock.time() // _MINUTE)
        if minute != self._minute:
            self._minute = minute
            self._queue.move(_TICK, None, None)

    def signals_came(self) -> None:
        """New samples are there: pods rejected by rules that read metrics are looked at again."""
        self._queue.move(_SIGNALS_CAME, None, None)
        self.wake()

    # ---- one pod -----------------------------------------------------------------------------

    def schedule_one(self, queued: QueuedPod, framework: Framework) -> None:
        """One cycle and what follows from it."""
        pod = queued.pod
        if pod.terminating or self._cache.node_of(pod.uid) is not None:
            self._queue.done(pod.uid)
            return
        started = self._clock.monotonic()
        snapshot = self.snapshot()
        now = snapshot.now
        decision = conclude(pod, snapshot, framework)
        placed = Placed(decision, snapshot, self._clock.monotonic() - started)
        for observer in self._observers:
            observer(placed)
        if decision.node is None:
            self._unplaced(queued, decision)
            return
        self._cache.assume(pod, decision.node, now)
        acts = NOTHING
        if framework.acts:
            there = self._cache.snapshot(now, self._signals.view(self._cache, now))
            acts = framework.act(pod, there, decision)
            if not acts.status.ok:
                self._taken_back(queued, acts.status, decision.node)
                return
            for note in acts.before:
                self._edge.events.emit(note)
            if acts.dry_run:
                self._dry_run(pod, decision.node)
                return
        task = asyncio.get_running_loop().create_task(
            self._bind(queued, decision, decision.node, acts)
        )
        self._tasks.add(task)
        task.add_done_callback(self._bound)

    def _bound(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and self._fault is None:
            self._fault = task.exception()  # a bug of ours: `run` ends the process with it
        self.wake()

    def _unplaced(self, queued: QueuedPod, decision: Decision) -> None:
        if decision.error is not None:
            self._telemetry.add(Count.ATTEMPTS_ERROR)
            self._fail(queued, "SchedulerError", decision.message, None)
            return
        self._telemetry.add(Count.ATTEMPTS_UNSCHEDULABLE)
        fit_error = decision.fit_error
        plugins = frozenset() if fit_error is None else fit_error.plugins
        self._fail(queued, "Unschedulable", decision.message, plugins)

    def _taken_back(self, queued: QueuedPod, status: Status, node: str) -> None:
        """A plugin refuses the chosen node, or fails: the pod is queued again."""
        words = " ".join(status.reasons)
        if status.rejected:
            self._telemetry.add(Count.ATTEMPTS_UNSCHEDULABLE)
            message = f"node {node} was chosen and refused: {words}"
            self._fail(queued, "Unschedulable", message, frozenset({status.plugin}), alone=True)
        else:
            self._telemetry.add(Count.ATTEMPTS_ERROR)
            self._fail(queued, "SchedulerError", words, None)
        self._forget(queued.pod, node)

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
    ) -> None:
        """The one way of failing: requeue, tell the user, set the condition if it changes.

        `alone`: it says nothing of other pods of the class.
        """
        if rejected_by is None:
            kept = self._queue.requeue_error(queued)
        else:
            kept = self._queue.requeue_rejected(queued, rejected_by, alone=alone)
        if not kept:
            return  # deleted or bound meanwhile
        self.report(queued.pod, reason, message)

    def _gated(self, queued: QueuedPod) -> None:
        """A gate holds the pod: its owner is told, as of any other wait.

        The pod's own `schedulingGates` are left out: the API server has said so by itself. The
        reason is the API server's for them too, so that kubectl shows SchedulingGated and
        autoscalers add no nodes for the pod.
        """
        pod = queued.pod
        if pod.pod.spec.scheduling_gates:
            return
        why = plain(" ".join(queued.gating_reasons), _MESSAGE)
        log.info('Gated pod="%s" plugin="%s" reason="%s"', pod.key, queued.gating_plugin, why)
        note = pod_event(pod, "Normal", "SchedulingGated", "Gating", why)
        self._edge.events.emit(note)
        self._set_condition(pod, "SchedulingGated", why)

    def report(self, pod: PodInfo, reason: str, message: str) -> None:
        """Tells the user why the pod waits.

        An Event, and the condition if it says something new.
        """
        message = plain(message, _MESSAGE)
        note = pod_event(pod, "Warning", "FailedScheduling", "Scheduling", message)
        self._edge.events.emit(note)
        self._set_condition(pod, reason, message)

    def _set_condition(self, pod: PodInfo, reason: str, message: str) -> None:
        if not _says(pod, reason, message):
            self._edge.statuses.set_unschedulable(SetUnschedulable(pod, reason, message))

    # ---- binding -----------------------------------------------------------------------------

    async def _bind(self, queued: QueuedPod, decision: Decision, node: str, acts: Acts) -> None:
        pod = queued.pod
        effect = Bind(pod, node, acts.annotations)
        await self._edge.statuses.withdraw(pod.uid)
        if self._cache.nodes.row(node) < 0:
            # The API server would bind to a node that does not exist.
            outcome, why = BindOutcome.REFUSED, f"node {node} is gone"
        else:
            outcome, why = await self._edge.binder.bind(effect)
        if outcome is BindOutcome.UNKNOWN:
            outcome, why = await self._resolve(effect, why)
        match outcome:
            case BindOutcome.BOUND:
                self._succeeded(pod, decision, node)
                for note in acts.after:
                    self._edge.events.emit(note)
            case BindOutcome.TAKEN | BindOutcome.GONE:
                self._queue.done(pod.uid)
                self._forget(pod, node)
                log.info('Dropped pod="%s" reason="%s"', pod.key, why)
            case BindOutcome.REFUSED:
                self._telemetry.add(Count.ATTEMPTS_ERROR)
                self._fail(queued, "SchedulerError", f"binding rejected: {why}", None)
                self._forget(pod, node)
            case BindOutcome.UNKNOWN:
                log.warning('Left with its binding unknown pod="%s" reason="%s"', pod.key, why)
            case _:
                assert_never(outcome)

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
            uid = effect.pod.uid
            node = self._cache.node_of(uid)
            if node is None:
                return BindOutcome.GONE, "deleted while its binding was unknown"
            if not self._cache.is_assumed(uid):
                taken = node != effect.node
                return (BindOutcome.TAKEN if taken else BindOutcome.BOUND), f"bound to {node}"
            outcome, why = await self._edge.binder.resolve(effect)
            if outcome is not BindOutcome.UNKNOWN or self._stopping:
                return outcome, why
            await self._edge.pause(pause)
            pause = min(_RESOLVE_MOST, pause * 2)

    def _succeeded(self, pod: PodInfo, decision: Decision, node: str) -> None:
        self._queue.done(pod.uid)
        self._telemetry.add(Count.ATTEMPTS_SCHEDULED)
        note = f"Successfully assigned {pod.namespace}/{pod.name} to {node}"
        self._edge.events.emit(pod_event(pod, "Normal", "Scheduled", "Binding", note))
        log.info(
            'Successfully bound pod to node pod="%s" node="%s" evaluatedNodes=%d feasibleNodes=%d'
            ' score=%g bundle="%s"',
            pod.key,
            node,
            decision.evaluated,
            decision.feasible,
            decision.total,
            decision.bundle,
        )


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
