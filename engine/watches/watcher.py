"""Starts and stops what policies need beside nodes and pods; see `engine.policy.bundle`.

want(bundle about to be in force) ─▶ sources start ─▶ awaited() empty ─▶ keep(bundle in force)
                                                                          └▶ the others stop
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_
from typing import Any, Final

from engine.cache import Cache
from engine.cache.otherpods import FINISHED, HEARTBEATS, NOMINATED, QUEUE
from engine.eventhandlers import ObjectHandler
from engine.framework.events import Action, ClusterEvent, Resource
from engine.kube.client import KubeClient
from engine.kube.reflector import Reflector
from engine.kube.resources import LEASES, WORKLOAD_KINDS, Kind, pods_finished
from engine.kube.sharing import PodSharing
from engine.kube.wiring import Wiring
from engine.objects import Pod
from engine.policy.bundle import Needs
from engine.queue import QueuedPod, SchedulingQueue
from engine.signals.store import SignalStore
from engine.watches.sources import (
    SECRETS,
    FinishedHandler,
    Listed,
    ObjectSource,
    PodParts,
    Source,
    UsageSource,
)

_QUEUE_CHANGED: Final = ClusterEvent(Resource.UNSCHEDULED_POD, Action.UPDATE_OTHER)
_PROMISED: Final = ClusterEvent(Resource.NOMINATION, Action.UPDATE_OTHER)
_MINUTE: Final = 60.0
_QUEUE_PAUSE: Final = 1.0
"""Between two events of the queue: pods whose rules look at it would keep each other awake."""

WAITS: Final = 5.0
"""Who has not asked again for so long waits no longer."""

Start = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


def attend(cache: Cache, queue: SchedulingQueue, to: frozenset[str]) -> None:
    """What of `cache.otherpods` is kept from now on, and told by the queue."""
    before = cache.other_pods.attends
    if to == before:
        return
    cache.attend(to)

    def waits(queued: QueuedPod) -> None:
        cache.set_queued(queued.pod, queued.times)

    listens = QUEUE in to
    queue.on_change = waits if listens else None
    queue.on_gone = cache.remove_queued if listens else None
    for queued in queue if listens and QUEUE not in before else ():
        waits(queued)


@dataclass(eq=False)
class Watcher:
    """What is watched now; `scheduler.Background`, too, for what changes without an event.

    `came` is called when samples came, `work` when there may be something to do; `start` runs what
    a source does. `pods` are the watched pods, of which `sharing` drops what nobody reads.
    """

    client: KubeClient
    wiring: Wiring
    cache: Cache
    queue: SchedulingQueue
    signals: SignalStore
    came: Callable[[], None]
    work: Callable[[], None]
    start: Start
    pods: Reflector[Pod]
    sharing: PodSharing

    def __post_init__(self) -> None:
        self._running: dict[Hashable, tuple[Source, asyncio.Task[None]]] = {}
        self._kept: Sequence[Needs] = ()
        self._wanted: dict[str, tuple[Needs, float]] = {}
        self._promises = 0
        self._minute = 0.0
        self._told_at = -math.inf
        self._given = self.client, self.signals, self.wiring, self.came
        self._least = self._complete = self.sharing.kept
        """What of pods on nodes is kept whatever policies read, and what is known of all."""
        self.cache.other_pods.on_news = self.work

    # ---- what is needed ----------------------------------------------------------------------

    def want(self, needs: Needs, asker: str = "") -> tuple[str, ...]:
        """Begins to watch what is not watched yet; returns what is not there yet.

        What several askers want is watched for all of them, until others are in force. Who still
        waits asks again. What the rules in force read already nobody waits for, as it is with it,
        but for a metric that is new.
        """
        self._wanted[asker] = needs, self.wiring.clock.monotonic()
        return self._begin(needs)

    def _begin(self, needs: Needs) -> tuple[str, ...]:
        both = reduce(or_, (*self._kept, *(one for one, _ in self._wanted.values())))
        attend(self.cache, self.queue, both.attended)
        self.sharing.keep(self._least | both.of_pods)
        wanted = dict(self._sources(needs))
        for key, make in wanted.items():
            if key not in self._running:
                source = make()
                self._running[key] = source, self.start(source.run())
        kept = self._keys(self._kept)
        each = ((key in kept, self._running[key][0]) for key in wanted)
        awaited = (source.awaited() for known, source in each if source.lacks or not known)
        return tuple([text for text in awaited if text])

    def feed(self) -> None:
        """Other metrics are asked for: they get what is known."""
        for source, _ in self._running.values():
            source.feed()

    def keep(self, needs: Needs, also: Sequence[Needs] = ()) -> None:
        """This is what the policies in force need: everything else ends but what `also` needs.

        Policies that come back without having been asked for begin what they need here.
        """
        self._kept = needs, *also
        since = self.wiring.clock.monotonic() - WAITS
        self._wanted = {
            asker: (one, at)
            for asker, (one, at) in self._wanted.items()
            if at > since and all(one | kept != kept for kept in self._kept)
        }
        self._begin(needs)
        self._complete &= self.sharing.kept
        wanted = self._keys((*self._kept, *(one for one, _ in self._wanted.values())))
        for key in self._running.keys() - wanted:
            source, task = self._running.pop(key)
            task.cancel()
            source.forget()

    def end(self) -> None:
        """Nothing is watched any more, whoever waits for it."""
        self._wanted.clear()
        self.keep(Needs())

    def _keys(self, each: Sequence[Needs]) -> set[Hashable]:
        """Their sources; apart, as of fields of a kind together another source would be one."""
        return {key for one in each for key, _ in self._sources(one)}

    def _sources(self, needs: Needs) -> Iterator[tuple[Hashable, Callable[[], Source]]]:
        for kind in WORKLOAD_KINDS if needs.workloads else ():
            yield kind.name, partial(self._listed, kind)
        if HEARTBEATS in needs.attended:
            yield LEASES.name, partial(self._listed, LEASES)
        for phase in ("Succeeded", "Failed") if FINISHED in needs.attended else ():
            yield phase, partial(self._finished, phase)
        for of in sorted(needs.usage):
            yield ("usage", of), partial(UsageSource, *self._given, of)
        for name in sorted({field.kind for field in needs.fields} - SECRETS):
            paths = frozenset(field.path for field in needs.fields if field.kind == name)
            yield (name, paths), partial(ObjectSource, *self._given, name, paths)
        lacking = needs.of_pods - self._complete
        if lacking:
            yield ("pods", lacking), partial(self._parts, lacking)

    def _parts(self, lacking: frozenset[str]) -> Source:
        def done() -> None:
            self._complete |= lacking
            self.work()

        return PodParts(self.pods, done, self.wiring)

    def _listed(self, kind: Kind) -> Source:
        handler = ObjectHandler(self.cache, self.queue, self.work, kind.wakes)
        reflector = Reflector(self.client, kind.resource(optional=False), handler, self.wiring)

        def forget() -> None:
            for key in list(self.cache.store(kind.name).objects):
                self.cache.remove_object(kind.name, key)

        return Listed(reflector, forget)

    def _finished(self, phase: str) -> Source:
        handler = FinishedHandler(self.cache, self.queue, self.wiring.clock, self.work)
        reflector = Reflector(self.client, pods_finished(phase), handler, self.wiring)
        return Listed(reflector)  # the cache forgets what nobody attends to

    @property
    def reflectors(self) -> list[Reflector[Any]]:
        """Of what has been there; what is not yet is told by who waits for it."""
        watching = (
            one for one, _ in self._running.values() if isinstance(one, Listed | ObjectSource)
        )
        return [one.reflector for one in watching if one.reflector.synced.is_set()]

    # ---- what changes without an event -------------------------------------------------------

    @property
    def due(self) -> float | None:
        """See `scheduler.Background`."""
        if self._promised:
            return 0.0
        if self.cache.other_pods.touched:
            return self._told_at + _QUEUE_PAUSE
        return None

    def step(self, deadline: float) -> bool:  # noqa: ARG002 - it takes no time
        """See `scheduler.Background`: tells the queue of itself, and of promises."""
        others = self.cache.other_pods
        now = self.wiring.clock.monotonic()
        if others.touched and now >= self._told_at + _QUEUE_PAUSE:
            self._told_at = now
            touched = others.take_touched()
            self.queue.move(_QUEUE_CHANGED, only=lambda pod: touched != {pod.uid})
        if self._promised:
            self._promises = self.cache.nominations.version
            self.queue.move(_PROMISED)
        minute = self.wiring.clock.time() // _MINUTE
        if FINISHED in others.attends and minute != self._minute:
            self._minute = minute
            self.cache.expire(self.wiring.clock.time())
        return False

    @property
    def _promised(self) -> bool:
        cache = self.cache
        return NOMINATED in cache.other_pods.attends and cache.nominations.version != self._promises
