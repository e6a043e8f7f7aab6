"""Starts and stops what policies need beside nodes and pods; see `engine.policy.needs`.

want(bundle about to be in force) ─▶ sources start ─▶ awaited() empty ─▶ keep(bundle in force)
                                                                          └▶ the others stop
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Hashable, Iterator
from functools import partial, reduce
from operator import or_
from typing import Any, Final

import msgspec

from engine.cache import Cache
from engine.cache.beside import FINISHED, HEARTBEATS, NOMINATED, QUEUE
from engine.clock import Clock
from engine.framework.events import Action, ClusterEvent, Resource
from engine.kube.reflector import Reflector
from engine.kube.resources import LEASES, WORKLOAD_KINDS, Kind, pods_finished
from engine.kube.session import KubeClient
from engine.kube.sharing import PodSharing
from engine.kube.wiring import Wiring
from engine.objects import Pod
from engine.policy.needs import Needs
from engine.queue import QueuedPod, SchedulingQueue
from engine.signals.store import SignalStore
from engine.watching.objects import ObjectSource
from engine.watching.sources import FinishedHandler, Listed, PodParts, Source, WaitedFor
from engine.watching.usage import UsageSource

_QUEUE_CHANGED: Final = ClusterEvent(Resource.UNSCHEDULED_POD, Action.UPDATE_OTHER)
_PROMISED: Final = ClusterEvent(Resource.NOMINATION, Action.UPDATE_OTHER)
_MINUTE: Final = 60.0
_PAUSE: Final = 0.05
"""Between two answers from objects: many may change at once."""
_QUEUE_PAUSE: Final = 1.0
"""Between two events of the queue: pods whose rules look at it would keep each other awake."""

Start = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class Sinks(msgspec.Struct, frozen=True):
    """What is fed, and who is told.

    `came` is called when samples came, `work` when there may be something to do; `start` runs what
    a source does. `pods` are the watched pods, of which `sharing` drops what nobody reads.
    """

    cache: Cache
    queue: SchedulingQueue
    signals: SignalStore
    clock: Clock
    came: Callable[[], None]
    work: Callable[[], None]
    start: Start
    pods: Reflector[Pod]
    sharing: PodSharing


class Watching:
    """What is watched now; `scheduler.Background`, too, for what changes without an event."""

    def __init__(self, sinks: Sinks, client: KubeClient, wiring: Wiring) -> None:
        self._sinks = sinks
        self._client = client
        self._wiring = wiring
        self._running: dict[Hashable, tuple[Source, asyncio.Task[None]]] = {}
        self._kept = Needs()
        self._wanted: dict[str, Needs] = {}
        self._promises = 0
        self._minute = 0
        self._fed_at = self._told_at = -math.inf
        self._least = self._complete = sinks.sharing.kept
        """What of pods on nodes is kept whatever policies read, and what is known of all."""
        sinks.cache.beside.on_news = sinks.work

    # ---- what is needed ----------------------------------------------------------------------

    def want(self, needs: Needs, asker: str = "") -> tuple[str, ...]:
        """Begins to watch what is not watched yet; returns what is not there yet.

        What several askers want is watched for all of them, until others are in force.
        """
        self._wanted[asker] = needs
        both = reduce(or_, self._wanted.values(), self._kept)
        self._attend(both)
        self._sinks.sharing.keep(self._least | both.of_pods)
        wanted = dict(self._sources(needs))
        for key, make in wanted.items():
            if key not in self._running:
                source = make()
                self._running[key] = source, self._sinks.start(source.run())
        return tuple([text for key in wanted if (text := self._running[key][0].awaited())])

    def keep(self, needs: Needs) -> None:
        """This is what the policies in force need: everything else ends."""
        self._kept = needs
        self._wanted.clear()
        wanted = {key for key, _ in self._sources(needs)}
        for key in self._running.keys() - wanted:
            source, task = self._running.pop(key)
            task.cancel()
            source.forget()
        self._attend(needs)
        self._sinks.sharing.keep(self._least | needs.of_pods)
        self._complete &= self._sinks.sharing.kept
        for source, _ in self._running.values():
            source.feed()

    def _sources(self, needs: Needs) -> Iterator[tuple[Hashable, Callable[[], Source]]]:
        for kind in WORKLOAD_KINDS if needs.workloads else ():
            yield kind.name, partial(self._listed, kind)
        if HEARTBEATS in needs.attended:
            yield LEASES.name, partial(self._listed, LEASES)
        for phase in ("Succeeded", "Failed") if FINISHED in needs.attended else ():
            yield phase, partial(self._finished, phase)
        for of in sorted(needs.usage):
            yield ("usage", of), partial(self._usage, of)
        for name in sorted({field.kind for field in needs.fields}):
            paths = frozenset(field.path for field in needs.fields if field.kind == name)
            yield (name, paths), partial(self._objects, name, paths)

        lacking = needs.of_pods - self._complete
        if lacking:
            yield ("pods", lacking), partial(self._parts, lacking)

    def _parts(self, lacking: frozenset[str]) -> Source:
        def done() -> None:
            self._complete |= lacking
            self._sinks.work()

        return PodParts(self._sinks.pods, done)

    def _listed(self, kind: Kind) -> Source:
        sinks = self._sinks
        handler = WaitedFor(sinks.cache, sinks.queue, sinks.work, kind.wakes)
        reflector = Reflector(self._client, kind.resource(optional=False), handler, self._wiring)

        def forget() -> None:
            for key in list(sinks.cache.store(kind.name).objects):
                sinks.cache.remove_object(kind.name, key)

        return Listed(reflector, forget)

    def _finished(self, phase: str) -> Source:
        sinks = self._sinks
        handler = FinishedHandler(sinks.cache, sinks.queue, sinks.clock, sinks.work)
        reflector = Reflector(self._client, pods_finished(phase), handler, self._wiring)
        return Listed(reflector, lambda: None)  # the cache forgets what nobody attends to

    def _usage(self, of: str) -> Source:
        sinks = self._sinks
        return UsageSource(of, self._client, sinks.signals, sinks.clock, came=sinks.came)

    def _objects(self, kind: str, paths: frozenset[str]) -> Source:
        sinks = self._sinks
        return ObjectSource(kind, paths, self._client, sinks.signals, self._wiring, came=sinks.work)

    def _attend(self, needs: Needs) -> None:
        sinks, before = self._sinks, self._sinks.cache.beside.attends
        if needs.attended == before:
            return
        sinks.cache.attend(needs.attended)
        listens = QUEUE in needs.attended
        sinks.queue.on_change = self._waits if listens else None
        sinks.queue.on_gone = sinks.cache.remove_queued if listens else None
        for queued in sinks.queue if listens and QUEUE not in before else ():
            self._waits(queued)

    def _waits(self, queued: QueuedPod) -> None:
        self._sinks.cache.set_queued(queued.pod, queued.times)

    # ---- what changes without an event -------------------------------------------------------

    @property
    def due(self) -> float | None:
        """See `scheduler.Background`."""
        cache = self._sinks.cache
        promises = NOMINATED in cache.beside.attends and cache.nominations.version != self._promises
        if promises:
            return 0.0
        if cache.beside.touched:
            return self._told_at + _QUEUE_PAUSE
        return self._fed_at + _PAUSE if any(True for _ in self._news()) else None

    def step(self, deadline: float) -> bool:  # noqa: ARG002 - it takes no time
        """See `scheduler.Background`: tells the queue of itself, and of promises."""
        sinks = self._sinks
        beside = sinks.cache.beside
        now = sinks.clock.monotonic()
        if beside.touched and now >= self._told_at + _QUEUE_PAUSE:
            self._told_at = now
            touched = beside.take_touched()
            sinks.queue.move(_QUEUE_CHANGED, only=lambda pod: touched != {pod.uid})
        if NOMINATED in beside.attends and sinks.cache.nominations.version != self._promises:
            self._promises = sinks.cache.nominations.version
            sinks.queue.move(_PROMISED)
        if FINISHED in beside.attends:
            self._expire()
        if now >= self._fed_at + _PAUSE:
            self._feed()
        return False

    def _expire(self) -> None:
        now = self._sinks.clock.time()
        if int(now // _MINUTE) != self._minute:
            self._minute = int(now // _MINUTE)
            self._sinks.cache.expire(now)

    def _news(self) -> Iterator[ObjectSource]:
        sources = (source for source, _ in self._running.values())
        return (one for one in sources if isinstance(one, ObjectSource) and one.news)

    def _feed(self) -> None:
        for source in self._news():
            self._fed_at = self._sinks.clock.monotonic()
            source.feed()
            self._sinks.came()
