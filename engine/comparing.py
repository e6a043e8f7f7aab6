"""What the cache and the queue hold against what the API server has, when somebody asks (SIGUSR2).

The server moves on while it is asked, so only what differs twice, some seconds apart, is told.

Source: kubernetes pkg/scheduler/backend/cache/debugger (comparer.go).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Iterator
from typing import Final

import msgspec

from engine.cache import Cache
from engine.eventhandlers import Place, place_of
from engine.kube.errors import KubeError
from engine.kube.listing import each
from engine.kube.resources import nodes, pods
from engine.kube.session import KubeClient
from engine.kube.wiring import Wiring
from engine.queue import SchedulingQueue

_LOG = logging.getLogger(__name__)

_BETWEEN_SECONDS: Final = 3.0
_MOST_TOLD: Final = 50


class Holdings(msgspec.Struct, frozen=True):
    """What somebody knows: nodes, pods on nodes (UID to node), pods that wait for us."""

    nodes: frozenset[str]
    placed: dict[str, str]
    waiting: frozenset[str]


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
            try:
                await self.compare(client, wiring)
            except KubeError as error:
                _LOG.warning("Cache and server cannot be compared: %s", error)

    async def compare(self, client: KubeClient, wiring: Wiring) -> list[str]:
        """Tells what differs, and returns it.

        Raises:
            KubeError: the server cannot be asked.
        """
        ours = self._ours()
        first = set(differences(ours, await self._theirs(client)))
        if first:
            await wiring.sleep(_BETWEEN_SECONDS)
            ours = self._ours()
            first &= set(differences(ours, await self._theirs(client)))
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

    async def _theirs(self, client: KubeClient) -> Holdings:
        names = frozenset([node.metadata.name async for node in each(client, nodes())])
        placed: dict[str, str] = {}
        waiting = set()
        async for pod in each(client, pods()):
            match place_of(pod, self._names):
                case Place.ASSIGNED:
                    placed[pod.metadata.uid] = pod.node_name
                case Place.PENDING:
                    waiting.add(pod.metadata.uid)
                case Place.NEITHER:
                    pass
        return Holdings(names, placed, frozenset(waiting))


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
