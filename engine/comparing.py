"""What the cache and the queue hold against what the API server has, when somebody asks (SIGUSR2).

The server moves on while it is asked, so only what differs twice, some seconds apart, is told.

Source: kubernetes pkg/scheduler/backend/cache/debugger (comparer.go).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Iterator
from typing import Any, Final, TypeVar

import msgspec

from engine.cache import Cache
from engine.eventhandlers import Place, place_of
from engine.kube.reflector import Handler, Reflector
from engine.kube.resources import KubeObject, Resource, nodes, pods
from engine.kube.session import KubeClient
from engine.kube.sharing import PodSharing
from engine.kube.wiring import Wiring
from engine.queue import SchedulingQueue
from engine.tasks import first

_LOG = logging.getLogger(__name__)

_BETWEEN_SECONDS: Final = 3.0
_MOST_TOLD: Final = 50

T = TypeVar("T", bound=KubeObject)


class Holdings(msgspec.Struct, frozen=True):
    """What somebody knows: nodes, pods on nodes (UID to node), pods that wait for us."""

    nodes: frozenset[str]
    placed: dict[str, str]
    waiting: frozenset[str]


class _Silent(Handler[Any]):
    """Is told of objects and says nothing."""


class Comparer:
    """Compares when it is asked to; run `run` as a task."""

    def __init__(
        self, cache: Cache, queue: SchedulingQueue, scheduler_names: Container[str]
    ) -> None:
        self._cache = cache
        self._queue = queue
        self._names = scheduler_names
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Compares now."""
        self._asked.set()

    async def run(self, client: KubeClient, wiring: Wiring) -> None:
        """Waits to be asked, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            await self.compare(client, wiring)

    async def compare(self, client: KubeClient, wiring: Wiring) -> list[str]:
        """Tells what differs, and returns it."""
        ours = self._ours()
        first = set(differences(ours, await self._theirs(client, wiring)))
        if first:
            await wiring.sleep(_BETWEEN_SECONDS)
            ours = self._ours()
            first &= set(differences(ours, await self._theirs(client, wiring)))
        found = sorted(first)
        for line in found[:_MOST_TOLD]:
            _LOG.warning("Cache mismatch: %s", line)
        _LOG.info(
            "Compared cache and server nodes=%d podsOnNodes=%d waiting=%d differences=%d",
            len(ours.nodes),
            len(ours.placed),
            len(ours.waiting),
            len(found),
        )
        return found

    def _ours(self) -> Holdings:
        assigned = self._cache.assigned()
        return Holdings(
            frozenset(self._cache.nodes.names()),
            {uid: node for uid, (node, _) in assigned.items()},
            self._queue.uids(),
        )

    async def _theirs(self, client: KubeClient, wiring: Wiring) -> Holdings:
        there = await _listed(client, nodes(), wiring)
        names = frozenset(node.metadata.name for node in there)
        placed: dict[str, str] = {}
        waiting = set()
        for pod in await _listed(client, pods(sharing=PodSharing(frozenset())), wiring):
            match place_of(pod, self._names):
                case Place.ASSIGNED:
                    placed[pod.metadata.uid] = pod.node_name
                case Place.PENDING:
                    waiting.add(pod.metadata.uid)
                case Place.NEITHER:
                    pass
        return Holdings(names, placed, frozenset(waiting))


async def _listed(client: KubeClient, resource: Resource[T], wiring: Wiring) -> list[T]:
    """All objects of a resource as the server has them now, however long that takes."""
    reflector = Reflector(client, resource, _Silent(), wiring)
    await first(reflector.run(), reflector.synced.wait())
    return list(reflector.objects.values())


def differences(ours: Holdings, theirs: Holdings) -> Iterator[str]:
    """A line for each thing that one of both does not have, or has otherwise.

    A pod that we have on a node and that waits at the server is being bound.
    """
    for name in ours.nodes - theirs.nodes:
        yield f"node {name} is in the cache and not at the server"
    for name in theirs.nodes - ours.nodes:
        yield f"node {name} is at the server and not in the cache"
    for uid, node in theirs.placed.items():
        known = ours.placed.get(uid)
        if known != node:
            where = "nowhere" if known is None else f"on {known}"
            yield f"pod {uid} is on {node} at the server and {where} in the cache"
    for uid in ours.placed.keys() - theirs.placed.keys() - theirs.waiting:
        yield f"pod {uid} is on {ours.placed[uid]} in the cache and nowhere at the server"
    for uid in ours.waiting - theirs.waiting - theirs.placed.keys():
        yield f"pod {uid} is in the queue and does not wait at the server"
    for uid in theirs.waiting - ours.waiting - ours.placed.keys():
        yield f"pod {uid} waits at the server and is not in the queue"
