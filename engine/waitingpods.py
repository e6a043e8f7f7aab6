"""Pods that are assumed on a node and wait in permit to be bound.

They take no binding slot and no task. The plugins that hold them are asked again after the events
that they name, at the timeout, at `recheck_at` and under new rules: a few pods in each slice, so
that no storm of events delays cycles.

    permit says wait ─▶ held ─┬─ nobody holds it any longer ───────▶ go: it is bound
                              ├─ a plugin rejects it, its time is
                              │  up, its node is gone, preempted ──▶ back: it is queued again
                              └─ deleted, bound by somebody else ──▶ out, its reservations undone

Source: kubernetes pkg/scheduler/framework/runtime/waiting_pods_map.go.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from engine.basis import Basis
from engine.choice import Chosen
from engine.executor import MOST_SECONDS
from engine.framework.acting import Acted, Clearance, Point
from engine.framework.decision import Decision
from engine.framework.events import Action, ClusterEvent, Resource
from engine.framework.interface import PermitResult
from engine.framework.snapshot import Waiting
from engine.framework.status import Code, Status, unschedulable
from engine.pods.podinfo import PodInfo
from engine.queue import QueuedPod, SchedulingQueue

MOST_WAITING: Final = 5_000
TESTS_A_SLICE: Final = 16
_NODE_GONE: Final = ClusterEvent(Resource.NODE, Action.DELETE)
_NO_NODE: Final = unschedulable("the node is gone")

Wakes = frozenset[ClusterEvent]


@dataclass(slots=True, eq=False)
class WaitingPod:
    """A pod that waits, and the answers of the plugins that hold it.

    `since` and `due`, when they are asked at the latest, are monotonic.
    """

    chosen: Chosen
    by: Mapping[str, PermitResult]
    since: float = 0.0
    since_time: float = 0.0
    due: float = math.inf
    wakes: Wakes = field(default=frozenset())
    lost: bool = False
    """Its node is gone, even if there is a new one of that name."""

    @property
    def pod(self) -> PodInfo:
        """The pod as it is now."""
        return self.chosen.queued.pod

    @property
    def node(self) -> str:
        """Where it waits."""
        return self.chosen.node

    @property
    def why(self) -> str:
        """What it waits for, in the words of the plugins."""
        return " ".join(word for one in self.by.values() for word in one.status.reasons)

    @property
    def seconds(self) -> float:
        """How long it may wait in all."""
        return min(MOST_SECONDS, *(one.timeout_seconds for one in self.by.values()))


@dataclass(eq=False)
class WaitingPods:
    """The pods that wait, by UID; iterated in the order in which they came."""

    basis: Basis
    queue: SchedulingQueue
    acted: Callable[[Decision, Acted], None]
    """Told that plugins were asked again about the pod of a decision."""
    released: Callable[[WaitingPod], None]
    """Takes a pod, in flight again, that may be bound."""
    refused: Callable[[WaitingPod, Status], None]
    """Takes one that may not, and why."""

    def __post_init__(self) -> None:
        self._cache = self.basis.cache
        self._clock = self.basis.clock
        self.also: Callable[[WaitingPod], Mapping[str, PermitResult]] = lambda _: {}
        """What holds a pod that is no plugin, such as its gang; called whenever plugins are."""
        self.on_work: Callable[[], None] = lambda: None
        """Called when there is work: the loop may sleep."""
        self._held: dict[str, WaitingPod] = {}
        self.get: Callable[[str], WaitingPod | None] = self._held.get
        """The pod of a UID, if it waits."""
        # Many pods wait for the same events: each is compared once for all of them.
        self._by_wakes: dict[Wakes, dict[str, None]] = {}
        self._stirred: dict[Wakes, None] = {}
        self._again: OrderedDict[str, None] = OrderedDict()
        self._soonest = math.inf
        """No later than the first `due` of those that are not in `_again`."""
        self.queue.on_event = self.happened
        self.queue.on_waiting = self._changed

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[WaitingPod]:
        return iter(self._held.values())

    # ---- who waits

    def hold(self, held: WaitingPod) -> Status:
        """The pod, in flight, waits from now on; not Success: too many pods wait already."""
        if len(self._held) >= MOST_WAITING:
            # An error, so that it is tried again after its backoff, not after an event.
            return Status(Code.ERROR, (f"{MOST_WAITING} pods wait in permit already",))
        if not self.queue.hold(held.chosen.queued):
            held.chosen.undo()
            return Status.SUCCESS
        held.since, held.since_time = self._clock.monotonic(), self._clock.time()
        self._held[held.pod.uid] = held
        self._keep(held)
        return Status.SUCCESS

    def happened(self, event: ClusterEvent) -> None:
        """Pods that wait for such an event are asked about in the next slices."""
        if self._held and event == _NODE_GONE:
            for held in self._held.values():
                held.lost |= self._cache.nodes.row(held.node) < 0
        for wakes in self._by_wakes:
            if wakes not in self._stirred and any(one.matches(event) for one in wakes):
                self._stirred[wakes] = None
                self.on_work()

    def new_rules(self) -> None:
        """All are asked about again."""
        self._stirred.update(dict.fromkeys(self._by_wakes))

    def answer(self, uid: str, plugin: str, status: Status) -> None:
        """The plugin allows or rejects a pod that it holds; ignored if it does not hold it."""
        held = self._held.get(uid)
        if held is None or plugin not in held.by:
            return
        if not status.ok:
            self._reject(held, status.by(plugin))
            return
        held.by = {name: said for name, said in held.by.items() if name != plugin}
        if held.by:
            self._keep(held)
        else:
            self._release(held)

    def reject(self, uid: str, status: Status) -> bool:
        """The pod loses its node, whichever plugin holds it; False if it does not wait."""
        held = self._held.get(uid)
        if held is None:
            return False
        self._reject(held, status)
        return True

    # ---- work between cycles: see `scheduler.Background`

    @property
    def due(self) -> float | None:
        """When a pod is to be asked about (monotonic); None: not by time alone."""
        if self._again or self._stirred:
            return self._clock.monotonic()
        return None if self._soonest == math.inf else self._soonest

    def step(self, deadline: float) -> bool:  # noqa: ARG002 - bounded by number, so that it repeats
        """Asks about a few of the pods that are due; True if more are left."""
        now = self._clock.monotonic()
        if self._soonest <= now:
            due = {uid: held.due for uid, held in self._held.items()}
            self._again.update(dict.fromkeys(uid for uid in due if due[uid] <= now))
            self._soonest = min((at for at in due.values() if at > now), default=math.inf)
        for _ in range(TESTS_A_SLICE):
            held = self._next()
            if held is None:
                return False
            self._ask(held)
        return bool(self._again or self._stirred)

    def _next(self) -> WaitingPod | None:
        while self._again or self._stirred:
            if not self._again:
                wakes, _ = self._stirred.popitem()
                self._again.update(self._by_wakes.get(wakes, {}))
                continue
            uid, _ = self._again.popitem(last=False)
            if uid in self._held:
                return self._held[uid]
        return None

    # ---- inside

    def _ask(self, held: WaitingPod) -> None:
        if held.lost or self._cache.nodes.row(held.node) < 0:
            self._reject(held, _NO_NODE)
            return
        waited = self._waited(held)
        framework, snapshot = self.basis.framework_of(held.pod), self.basis.snapshot()
        by = tuple(held.by)
        clearance = framework.permit(held.pod, snapshot, held.node, waited, by)
        acted = Acted(Point.PERMIT, held.pod, held.node, snapshot, clearance.words, waited, by)
        self.acted(held.chosen.decision, acted)
        clearance = replace(clearance, held={**clearance.held, **self.also(held)})
        self._settle(held, clearance, waited)
        self.tell(clearance)

    def tell(self, clearance: Clearance) -> None:
        """Passes on what plugins answered about other pods that they hold."""
        for plugin, uid, status in clearance.others:
            self.answer(uid, plugin, status)

    def _settle(self, held: WaitingPod, clearance: Clearance, waited: float) -> None:
        if not clearance.status.ok:
            self._reject(held, clearance.status)
            return
        if not clearance.held:
            self._release(held)
            return
        held.by = clearance.held
        for plugin, said in clearance.held.items():
            if waited >= min(said.timeout_seconds, MOST_SECONDS):
                over = f"timed out after {waited:.0f} s", " ".join(said.status.reasons)
                words = ": ".join(filter(None, over))
                self._reject(held, Status(Code.UNSCHEDULABLE, (words,), plugin))
                return
        self._keep(held)

    def _waited(self, held: WaitingPod) -> float:
        """Seconds; at least the timeouts that are over, however sums are rounded."""
        now = self._clock.monotonic()
        limits = (min(one.timeout_seconds, MOST_SECONDS) for one in held.by.values())
        over = (limit for limit in limits if held.since + limit <= now)
        return max(now - held.since, *over, 0.0)

    def _keep(self, held: WaitingPod) -> None:
        """It goes on waiting: registers its events, its timer, and it with the cache."""
        uid = held.pod.uid
        self._unlink(held)
        held.wakes = frozenset({_NODE_GONE}.union(*(one.wakes for one in held.by.values())))
        self._by_wakes.setdefault(held.wakes, {})[uid] = None
        snapshot = self.basis.snapshot()
        turn = self.basis.framework_of(held.pod).recheck_at(held.pod, snapshot, frozenset(held.by))
        now = self._clock.monotonic()
        held.due = min(held.since + held.seconds, now + max(0.0, turn - self._clock.time()))
        self._soonest = min(self._soonest, held.due)
        self._cache.wait(Waiting(held.pod, held.node, held.since_time, frozenset(held.by)))

    def _changed(self, queued: QueuedPod, events: Sequence[ClusterEvent]) -> None:
        held = self._held.get(queued.pod.uid)
        if held is None:
            return
        if not events:
            self._drop(held)
            held.chosen.undo()
            return
        self._cache.carry(held.pod.pod)
        self._again[held.pod.uid] = None
        self.on_work()

    def _release(self, held: WaitingPod) -> None:
        if held.lost or self._cache.nodes.row(held.node) < 0:
            self._reject(held, _NO_NODE)
            return
        self._end(held)
        self.released(held)

    def _reject(self, held: WaitingPod, status: Status) -> None:
        self._end(held)
        held.chosen.undo()
        self.refused(held, status)

    def _end(self, held: WaitingPod) -> None:
        self._drop(held)
        self.queue.resume(held.chosen.queued)

    def _drop(self, held: WaitingPod) -> None:
        self._unlink(held)
        del self._held[held.pod.uid]
        self._cache.wait_no_more(held.pod.uid)

    def _unlink(self, held: WaitingPod) -> None:
        waiting = self._by_wakes.get(held.wakes, {})
        waiting.pop(held.pod.uid, None)
        if not waiting:
            self._by_wakes.pop(held.wakes, None)
