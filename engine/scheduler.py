"""The loop of cycles: decisions in, bindings, conditions and Events out.

Deciding is synchronous and happens here in slices of a few milliseconds; writing is asynchronous,
one task a pod. Between the two a pod goes through these states:

    queue.pop ─▶ decide ─┬─ a node ─▶ assume ─▶ bind ─┬─ BOUND ─────────▶ done, the watch confirms
                         │             └ wait for leave│                    (`waitingpods`)
                         │                            ├─ TAKEN or GONE ─▶ forget, done
                         │                            ├─ REFUSED ───────▶ forget, requeue: backoff
                         │                            └─ UNKNOWN ───────▶ stays assumed, is asked
                         │                                                again until it is known
                         ├─ no node ─▶ requeue: waits for an event; condition, Event
                         │             and maybe: nominated to a node, where pods are evicted
                         └─ an error ▶ requeue: backoff; condition, Event

Deciding and assuming are in `placement`, its inputs in `basis`; the binding and its outcomes in
`binding`; nominations and victims in `evictions`; requeuing in `failures`; conditions and Events of
waiting pods in `notices`; tasks in `inflight`; gangs in `gangs`.

Source: kubernetes pkg/scheduler/schedule_one.go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from engine.basis import AnyFramework, Basis, SignalSource, queue_hooks
from engine.binding import Bindings
from engine.cache import Cache
from engine.clock import Clock
from engine.evictions import Evictions
from engine.failures import Failures
from engine.framework.edge import Edge
from engine.framework.events import Action, ClusterEvent, Resource
from engine.framework.runtime import Framework
from engine.framework.searchprogress import SLICE_RUNS, SearchProgress, UnfinishedError
from engine.gangs import Gangs
from engine.inflight import InFlight
from engine.measures import Measures
from engine.notices import Notices
from engine.placement import Placement
from engine.queue import QueuedPod, QueueHooks, SchedulingQueue, SubQueue
from engine.steps import Steps
from engine.telemetry import Telemetry

if TYPE_CHECKING:
    from engine.extenders.client import Extenders
    from engine.extenders.lane import Lane, WholeObjects

SLICE_SECONDS: Final = 0.002
MOST_IN_FLIGHT: Final = 200
_MINUTE: Final = 60.0
_TICK: Final = ClusterEvent(Resource.TIME, Action.UPDATE_OTHER)
_SIGNALS_CAME: Final = ClusterEvent(Resource.SIGNAL, Action.UPDATE_OTHER)


class Background(Protocol):
    """Work done in slices between cycles; the policy reloader is one."""

    @property
    def due(self) -> float | None:
        """When it has something to do by itself (monotonic); None: not by time alone."""
        ...

    def step(self, deadline: float) -> bool:
        """Works until the deadline (monotonic) at most; True if there is more to do."""
        ...


class Scheduler:
    """Runs cycles and carries out what they decide. Lives in one event loop."""

    def __init__(
        self,
        *,
        cache: Cache,
        queue: SchedulingQueue,
        framework: AnyFramework | None,
        edge: Edge,
        signals: SignalSource,
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        self._cache = cache
        self._queue = queue
        self._clock = clock
        self.leads = True
        """False while another replica decides: the queue fills, and nothing is written."""
        self._background: list[Background] = []
        self._wake = asyncio.Event()
        self._minute = int(clock.time() // _MINUTE)
        self._basis = Basis(framework, cache, signals, clock)
        self.snapshot = self._basis.snapshot
        """The cluster as of now."""
        self._in_flight = InFlight(self.wake)
        self._notices = Notices(edge.statuses, edge.events, lambda: self.leads)
        queue.on_gated = self._gated
        measures = Measures(telemetry, clock)
        self._failures = failures = Failures(cache, queue, self._notices, measures)
        parts = self._basis, queue, edge, measures, self._in_flight
        self._evictions = Evictions(*parts, lambda uid, why: self.placement.stop(uid, why))
        self._bindings = Bindings(*parts, failures)
        self.changes = self._bindings.changes
        """The caller reports every change of an object that a pod may wait for."""
        self.placement = Placement(
            self._basis, queue, measures, self._notices, failures, self._evictions, self._bindings
        )
        self.observe = self.placement.observers.append
        """Adds an observer of every decision; called synchronously, so it must be quick."""
        self.observe_acts = self.placement.acts_observers.append
        """Adds an observer of what the acting tier answers; called like the others."""
        self.observe_bindings = self._bindings.observers.append
        """Adds an observer of the outcome of bindings; called like the others."""
        self.add_background = self._background.append
        """Adds work that is done between cycles."""
        self.report = self._notices.report
        """Tells the user why the pod waits; nothing while another replica leads."""
        self._searches: dict[QueuedPod, SearchProgress] = {}
        self._lane: Lane | None = None
        self.waiting_pods = self.placement.waiting_pods
        """The pods that wait in permit."""
        self.gangs = Gangs(self._basis, self.placement, failures, self._evictions, queue)
        """The pods that wait for each other."""
        self.waiting_pods.also = self.gangs.holds.also
        self.waiting_pods.on_work = self.wake
        self.add_background(self.waiting_pods)
        self._begins_to_lead = Steps(clock)
        self.add_background(self._begins_to_lead)

    # ---- wiring ------------------------------------------------------------------------------

    @property
    def framework(self) -> AnyFramework | None:
        """The rules in force; None before there are any, and nothing is scheduled."""
        return self._basis.framework

    def extend(self, extenders: Extenders, objects: WholeObjects) -> None:
        """Has extenders asked about the pods that they are interested in."""
        # Imports HTTP and the configuration, which a lab does without.
        from engine.extenders.lane import Lane  # noqa: PLC0415 - see above

        self._lane = Lane(
            extenders,
            objects,
            basis=self._basis,
            queue=self._queue,
            in_flight=self._in_flight,
            placement=self.placement,
            failures=self._failures,
        )

    def wake(self) -> None:
        """There may be work: a pod came, an event moved one, a source changed."""
        self._wake.set()

    def prepare(
        self, framework: AnyFramework, changed: frozenset[str] | None
    ) -> Generator[None, None, Callable[[], None]]:
        """Does in steps what `use` would need long for; returns what does the rest of it."""
        hooks = queue_hooks(framework, self.snapshot)
        yield from self._warm(framework)
        yield from self._queue.prepare(hooks, changed)
        return partial(self._use, framework, hooks, changed)

    def use(self, framework: AnyFramework, changed: frozenset[str] | None) -> None:
        """Puts new rules in force between two cycles, without having prepared them.

        Args:
            framework: the new profiles with their bundle.
            changed: plugins whose rules changed or went; pods they rejected are tried again;
                None means all.
        """
        self._use(framework, queue_hooks(framework, self.snapshot), changed)

    def _use(
        self, framework: AnyFramework, hooks: QueueHooks, changed: frozenset[str] | None
    ) -> None:
        self._basis.framework = framework
        self._cache.pods.forget_ledgers()
        self._queue.set_hooks(hooks, changed)
        self.waiting_pods.new_rules()
        self.gangs.new_rules()
        self.wake()

    def lead(self) -> None:
        """This replica decides from now on, and reports the pods that gates hold."""
        self.leads = True
        self._begins_to_lead.begin(self._begin_to_lead())
        self.wake()

    def _begin_to_lead(self) -> Iterator[None]:
        yield from self._tell_gated()
        if self._basis.framework is not None:
            yield from self._warm(self._basis.framework)

    def _warm(self, framework: AnyFramework) -> Iterator[None]:
        """Makes in steps what the first questions would take long for; see `Points.warm`."""
        for one in [framework] if isinstance(framework, Framework) else framework:
            for _ in one.warm(self.snapshot()):
                yield

    def _tell_gated(self) -> Iterator[None]:
        for queued in list(self._queue.pending()):
            if queued.where is SubQueue.GATED and self._queue.get(queued.pod.uid) is queued:
                self._notices.still_gated(queued)
                yield

    @property
    def in_flight(self) -> int:
        """Bindings that are being written."""
        return self._in_flight.bindings

    def idle(self) -> bool:
        """No pod can be tried now, and none is being bound."""
        return not (self._queue.ready or self.in_flight or self._searches)

    # ---- the loop ----------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Schedules until `stop` is set, then waits for the bindings in flight.

        A binding whose outcome stays unknown then is left to the next process that lists the pods.

        Raises:
            Exception: a task of ours raised it, which is a bug.
        """
        stopped = asyncio.get_running_loop().create_task(stop.wait())
        stopped.add_done_callback(lambda _: self.wake())
        try:
            while not stop.is_set() and self._in_flight.fault is None:
                self._wake.clear()
                if self.work():
                    await asyncio.sleep(0)
                else:
                    await self._sleep()
        except asyncio.CancelledError:
            self._in_flight.cancel()
            raise
        finally:
            self._in_flight.stopping = True
            stopped.cancel()
            await self.drain()
        if self._in_flight.fault is not None:
            raise self._in_flight.fault

    async def drain(self) -> None:
        """Waits until no binding is in flight, and no pod is being evicted."""
        if self._in_flight.stopping:
            self._bindings.stop()
            if self._lane is not None:
                self._lane.stop()
        await self._in_flight.drain()

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
        basis, flights = self._basis, self._in_flight
        while self.leads and basis.framework is not None and flights.bindings < MOST_IN_FLIGHT:
            if not self._cycle():
                return self._search() or busy
            if self._clock.monotonic() >= deadline:
                self._search()
                return True
        return busy

    def _search(self) -> bool:
        """A slice for the first pod that searches for victims: last of all, as it takes long."""
        if not self._searches or (self.gangs.busy and not self.gangs.shares):
            return False
        queued = min(self._searches, key=lambda one: one.sort_key)
        if self.placement.revalidate(queued):
            self._try(queued, self._searches[queued])
        else:
            del self._searches[queued]
        return True

    def _cycle(self) -> bool:
        """A step of the gang whose turn it is, one pod, or both; False if there is neither."""
        trying = self.gangs.busy
        if trying:
            self.gangs.step()
            if not self.gangs.shares:
                return True
        queued = self.gangs.next() or self._queue.pop()
        if queued is not None:
            self.schedule_one(queued)
        return trying or queued is not None

    async def _sleep(self) -> None:
        timeout = _MINUTE - self._clock.time() % _MINUTE
        now = self._clock.monotonic()
        for deadline in (self._queue.next_deadline(), *(work.due for work in self._background)):
            if deadline is not None:
                timeout = min(timeout, max(0.0, deadline - now))
        timer = asyncio.get_running_loop().call_later(timeout, self.wake)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    def _gated(self, queued: QueuedPod) -> None:
        self._notices.gated(queued)
        self._evictions.gated(queued.pod.uid)

    def _tick(self) -> None:
        self._queue.flush()
        self.gangs.holds.check()
        self._bindings.check()
        if self.leads:
            self._evictions.check()
        minute = int(self._clock.time() // _MINUTE)
        if minute != self._minute:
            self._minute = minute
            self._queue.move(_TICK, None, None)

    def signals_came(self) -> None:
        """There are new samples: pods rejected by rules that read metrics are tried again."""
        self._queue.move(_SIGNALS_CAME, None, None)
        self.wake()

    def schedule_one(self, queued: QueuedPod) -> None:
        """One cycle and what follows from it."""
        pod = queued.pod
        if pod.terminating or self._cache.node_of(pod.uid) is not None:
            self._queue.done(pod.uid)
            return
        if self._lane is not None and self._lane.take(queued):
            return
        if self._basis.framework_of(pod).gangs and self.gangs.begin(queued):
            return
        self._try(queued, SearchProgress(SLICE_RUNS))

    def _try(self, queued: QueuedPod, progress: SearchProgress) -> None:
        """A cycle and what follows from it, unless its search for victims needs another slice.

        Then the pod stays in flight while others are decided. Each slice is a cycle on a snapshot
        of its own, with the progress as one more input; the last one decides.
        """
        try:
            self.placement.decide(queued, progress=progress)
        except UnfinishedError:
            self._searches[queued] = progress  # keeps its place: of equals the first one goes on
            self._queue.searches(queued)
        else:
            self._searches.pop(queued, None)
