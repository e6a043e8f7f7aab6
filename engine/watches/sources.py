"""Lists and watches that are not always there: what each of them waits for, and what it feeds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from engine.cache import Cache
from engine.clock import Clock
from engine.eventhandlers import as_far_as_legible
from engine.framework.events import Action, ClusterEvent, Resource
from engine.kube.errors import KubeError
from engine.kube.reflector import Handler, Reflector
from engine.kube.wiring import Wiring
from engine.objects import Pod
from engine.policy.podreads import finished_at
from engine.queue import SchedulingQueue

FINISHED_CAME: Final = ClusterEvent(Resource.FINISHED_POD, Action.ADD)
FINISHED_WENT: Final = ClusterEvent(Resource.FINISHED_POD, Action.DELETE)
_FORBIDDEN: Final = "403"
_AGAIN_SECONDS: Final = 1.0


class Source(ABC):
    """Something that is read from the server while it is needed."""

    @abstractmethod
    def awaited(self) -> str:
        """What is not there yet, and why if that is known; empty once all of it is."""

    @abstractmethod
    async def run(self) -> None:
        """Reads until cancelled."""

    def feed(self) -> None:  # noqa: B027 - most have no metrics
        """Metrics of it are in force: they get what is known."""

    def forget(self) -> None:  # noqa: B027 - what most have fed is dropped by who keeps it
        """Nobody reads it any more."""


@dataclass(eq=False)
class Listed(Source):
    """A list that is watched; `gone` is told when that ends."""

    reflector: Reflector[Any]
    gone: Callable[[], None] = lambda: None

    def awaited(self) -> str:
        """See `Source`: there once it was listed, and may be watched."""
        one = self.reflector
        refused = one.failures and one.last_error.startswith(_FORBIDDEN)
        if one.synced.is_set() and not refused:
            return ""
        return f"{one.name} ({one.last_error})" if one.last_error else one.name

    async def run(self) -> None:
        """See `Source`."""
        await self.reflector.run()

    def forget(self) -> None:
        """See `Source`."""
        self.gone()


@dataclass(eq=False)
class FinishedHandler(Handler[Pod]):
    """Pods that have finished: to the cache, for an hour."""

    cache: Cache
    queue: SchedulingQueue
    clock: Clock
    on_work: Callable[[], None]

    def on_add(self, pod: Pod) -> None:
        """It has finished, or has changed since."""
        info = as_far_as_legible(pod)
        at = finished_at(info)
        # One that does not say when is new, as far as anybody knows.
        self.cache.set_finished(info, self.clock.time() if at != at else at)
        self.cache.expire(self.clock.time())
        self.queue.move(FINISHED_CAME, None, pod)
        self.on_work()

    def on_delete(self, pod: Pod) -> None:
        """It is gone."""
        self.cache.remove_finished(pod.metadata.uid)
        self.queue.move(FINISHED_WENT, pod, None)
        self.on_work()

    def on_synced(self) -> None:
        """All that there were are told."""
        self.on_work()


@dataclass(eq=False)
class PodParts(Source):
    """Parts of pods on nodes that were dropped so far: all pods are listed once more for them."""

    reflector: Reflector[Pod]
    done: Callable[[], None]
    wiring: Wiring
    _awaited: str = field(default="pods once more, for fields that were not kept", init=False)

    def awaited(self) -> str:
        """See `Source`."""
        return self._awaited

    async def run(self) -> None:
        """See `Source`."""
        while self._awaited:
            try:
                await self.reflector.again()
                self._awaited = ""
            except KubeError as error:
                self._awaited = f"pods once more ({error})"
                await self.wiring.sleep(_AGAIN_SECONDS)
        self.done()
