"""A scheduler with everything real around it but the server and the time.

Cache, queue, handlers, cycle and executor are those of a running scheduler. Writes go to an edge
that remembers them and says that they are done; time stands still until somebody turns the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from engine.basis import SignalSource, queue_hooks
from engine.cache import Cache
from engine.clock import ManualClock
from engine.framework.decision import Decision
from engine.framework.edge import BindOutcome, Edge
from engine.framework.effects import Bind, Emit, Evict, Patch, SetUnschedulable
from engine.framework.events import Resource
from engine.framework.runtime import Framework, Frameworks
from engine.framework.snapshot import Snapshot
from engine.framework.status import Status
from engine.queue import SchedulingQueue
from engine.telemetry import Telemetry

if TYPE_CHECKING:
    from engine.eventhandlers import EventHandlers
    from engine.scheduler import Scheduler

_T = TypeVar("_T")

# Who only asks about a cluster does without the scheduler, which takes longer to import than most
# policy tests to run: what needs it imports it.
# ruff: noqa: PLC0415


@dataclass(slots=True)
class _Written:
    """What the scheduler wrote that is asked for, in order; all of it succeeds."""

    bound: list[Bind] = field(default_factory=list)
    evicted: list[Evict] = field(default_factory=list)
    conditions: list[SetUnschedulable] = field(default_factory=list)

    async def bind(self, effect: Bind) -> tuple[BindOutcome, str]:
        self.bound.append(effect)
        return BindOutcome.BOUND, ""

    async def resolve(self, effect: Bind) -> tuple[BindOutcome, str]:  # noqa: ARG002 - the protocol's
        return BindOutcome.BOUND, ""  # nothing is ever unknown here

    def set_unschedulable(self, effect: SetUnschedulable) -> None:
        self.conditions.append(effect)

    async def withdraw(self, uid: str) -> None:
        """See `PodStatusWriter.withdraw`: nothing is ever on its way here."""

    async def patch(self, effect: Patch) -> str:  # noqa: ARG002 - the protocol's
        return ""

    async def evict(self, effect: Evict) -> str:
        self.evicted.append(effect)
        return ""

    def emit(self, effect: Emit) -> None:
        """See `EventSink.emit`: nobody reads Events here."""


class Lab:
    """See the module."""

    def __init__(
        self,
        frameworks: Frameworks | Framework,
        *,
        clock: ManualClock,
        signals: SignalSource,
        cache: Cache | None = None,
        edge: Edge | None = None,
    ) -> None:
        """An empty cluster, or the one of `cache`, under these rules.

        `edge` is what is written to instead of `written`: a server that answers otherwise.
        """
        self.clock = clock
        self.cache = Cache() if cache is None else cache
        self.frameworks = frameworks
        self.written = _Written()
        self.decisions: list[Decision] = []
        self._signals = signals
        self._edge = edge
        self.telemetry = Telemetry()

    # ---- what is there; queue and scheduler are made when somebody asks for them ----------------

    @cached_property
    def queue(self) -> SchedulingQueue:
        """The pods that wait for a node."""
        hooks = queue_hooks(self.frameworks, self.snapshot)
        return SchedulingQueue(clock=self.clock, hooks=hooks, snapshot=self.snapshot)

    @cached_property
    def scheduler(self) -> Scheduler:
        """What decides about them, and writes to the edge."""
        import asyncio

        from engine.scheduler import Scheduler

        every = self.written
        scheduler = Scheduler(
            cache=self.cache,
            queue=self.queue,
            framework=self.frameworks,
            edge=self._edge or Edge(every, every, every, every, asyncio.sleep),
            signals=self._signals,
            clock=self.clock,
            telemetry=self.telemetry,
        )
        scheduler.observe(lambda placed: self.decisions.append(placed.decision))
        return scheduler

    @cached_property
    def handlers(self) -> EventHandlers:
        """What tells both of objects that come and go."""
        from engine.eventhandlers import EventHandlers

        rules = self.frameworks
        each = [rules] if isinstance(rules, Framework) else rules
        return EventHandlers(
            self.cache,
            self.queue,
            scheduler_names={one.profile.scheduler_name for one in each},
            on_refused=lambda *_: None,
            on_work=self.scheduler.wake,
        )

    def snapshot(self) -> Snapshot:
        """The cluster as of now."""
        now = self.clock.time()
        return self.cache.snapshot(now, self._signals.view(self.cache, now))

    def add(self, objects: Iterable[Any]) -> None:
        """Structs of `engine.objects` come, in their order, as the watch would tell of them."""
        for one in objects:
            self._handler(type(one).__name__).on_add(one)

    @cached_property
    def _by_kind(self) -> dict[str, Any]:
        own = self.handlers
        return {"Node": own.nodes, "Namespace": own.namespaces, "Pod": own.pods}

    def _handler(self, kind: str) -> Any:  # noqa: ANN401 - a handler of any kind
        if kind not in self._by_kind:
            # Brings the configuration, too.
            from engine.kube.resources import KINDS, LEASES, WORKLOAD_KINDS

            each = (*KINDS, *WORKLOAD_KINDS, LEASES)
            wakes = next((one.wakes for one in each if one.name == kind), Resource.OBJECT)
            self._by_kind[kind] = self.handlers.of(wakes, self.scheduler.changes.changed)
        return self._by_kind[kind]

    def let_in(self) -> None:
        """Gates hold nobody from now on: who asks what comes later is not asked about them."""
        hooks = queue_hooks(self.frameworks, self.snapshot)
        self.queue.set_hooks(replace(hooks, pre_enqueue=lambda _: Status.SUCCESS), None)

    def place(self, decision: Decision) -> None:
        """A pod of the queue gets the node of a decision, and goes on from there.

        Of a gang it is tried alone: it waits for the others while not enough of them have nodes.
        """
        from engine.choice import Refused
        from engine.gangs import waits_alone

        queued, before = self.queue.take(decision.pod.uid), self.snapshot()
        placement = self.scheduler.placement
        if queued is None:
            return  # it is terminating
        found = placement.place(queued, decision, before)
        if isinstance(found, Refused):
            placement.refuse(found)
        else:
            gang = self.frameworks.of(queued.pod).gang(queued.pod, before)
            placement.go(found, None if gang is None else waits_alone(*gang))

    async def turn(self) -> None:
        """Works until nothing is to be done and nothing is in flight."""
        await self.until(lambda: not (self.scheduler.work() or self.scheduler.in_flight))

    async def until(self, done: Callable[[], bool]) -> None:
        """Lets what is being written go on, once at least."""
        import asyncio

        over = False
        while not over:
            over = done()
            await asyncio.sleep(0)

    def run(self, work: Coroutine[None, None, _T]) -> _T:
        """Runs what needs a loop to write to nobody in."""
        import asyncio

        return asyncio.run(work)
