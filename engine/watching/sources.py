"""Lists and watches that are not always there: what each of them waits for, and what it feeds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from engine.cache import Cache
from engine.clock import Clock
from engine.eventhandlers import ObjectHandler, as_far_as_legible
from engine.framework.events import Action, ClusterEvent, Resource
from engine.kube.errors import KubeError
from engine.kube.reflector import Reflector
from engine.objects import ObjectMeta, Pod
from engine.policy.podreads import finished_at
from engine.queue import SchedulingQueue

FINISHED_CAME: Final = ClusterEvent(Resource.FINISHED_POD, Action.ADD)
FINISHED_WENT: Final = ClusterEvent(Resource.FINISHED_POD, Action.DELETE)
_FORBIDDEN: Final = "403"
_AGAIN_SECONDS: Final = 1.0


class Source(Protocol):
    """Something that is read from the server while it is needed."""

    def awaited(self) -> str:
        """What is not there yet, and why if that is known; empty once all of it is."""
        ...

    async def run(self) -> None:
        """Reads until cancelled."""
        ...

    def feed(self) -> None:
        """Metrics of it are in force: they get what is known."""
        ...

    def forget(self) -> None:
        """Nobody reads it any more."""
        ...


class Listed:
    """A list that is watched; `forget` drops what it fed."""

    def __init__(self, reflector: Reflector[Any], forget: Callable[[], None]) -> None:
        self._reflector = reflector
        self.forget = forget

    def awaited(self) -> str:
        """See `Source`: there once it was listed, and may be watched."""
        health = self._reflector.health()
        refused = health.failures and health.last_error.startswith(_FORBIDDEN)
        if health.synced and not refused:
            return ""
        return f"{health.resource} ({health.last_error})" if health.last_error else health.resource

    async def run(self) -> None:
        """See `Source`."""
        await self._reflector.run()

    def feed(self) -> None:
        """See `Source`: its handler tells what it knows by itself."""


class FinishedHandler:
    """Pods that have finished: to the cache, for an hour."""

    def __init__(
        self, cache: Cache, queue: SchedulingQueue, clock: Clock, on_work: Callable[[], None]
    ) -> None:
        self._cache = cache
        self._queue = queue
        self._clock = clock
        self._on_work = on_work

    def on_add(self, pod: Pod) -> None:
        """It has finished."""
        info = as_far_as_legible(pod)
        at = finished_at(info)
        # One that does not say when is new, as far as anybody knows.
        self._cache.set_finished(info, self._clock.time() if at != at else at)
        self._cache.expire(self._clock.time())
        self._queue.move(FINISHED_CAME, None, pod)
        self._on_work()

    def on_update(self, old: Pod, new: Pod) -> None:  # noqa: ARG002 - the protocol's
        """It is finished all the same."""
        self.on_add(new)

    def on_delete(self, pod: Pod) -> None:
        """It is gone."""
        self._cache.remove_finished(pod.metadata.uid)
        self._queue.move(FINISHED_WENT, pod, None)
        self._on_work()

    def on_synced(self) -> None:
        """All that there were are told."""
        self._on_work()

    def on_unreadable(self, meta: ObjectMeta, reason: str) -> None:
        """What was known of it stays."""


class WaitedFor(ObjectHandler):
    """Objects of a kind that policies wait for."""

    def on_synced(self) -> None:
        """All that there were are told."""
        super().on_synced()
        self.on_work()


class PodParts:
    """Parts of pods on nodes that were dropped so far: all pods are listed once more for them."""

    def __init__(
        self,
        reflector: Reflector[Pod],
        done: Callable[[], None],
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._reflector = reflector
        self._done = done
        self._sleep = sleep
        self._awaited = "pods once more, for what was not kept of them"

    def awaited(self) -> str:
        """See `Source`."""
        return self._awaited

    async def run(self) -> None:
        """See `Source`."""
        while True:
            try:
                await self._reflector.again()
            except KubeError as error:
                self._awaited = f"pods once more ({error})"
                await self._sleep(_AGAIN_SECONDS)
            else:
                break
        self._awaited = ""
        self._done()

    def feed(self) -> None:
        """See `Source`: pods are told as if they had changed."""

    def forget(self) -> None:
        """See `Source`: pods that change are kept without from now on."""
