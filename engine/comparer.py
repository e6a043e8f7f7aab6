"""Compares the cache and the queue with the API server, on SIGUSR2.

The server changes while it is asked, so only what differs twice, some seconds apart, is logged.

Source: kubernetes pkg/scheduler/backend/cache/debugger (comparer.go).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from engine.cache import Cache
from engine.clusterevents import Place, place_of
from engine.kube.client import KubeClient
from engine.kube.errors import KubeError
from engine.kube.listing import each
from engine.kube.resources import NODES, pods
from engine.kube.wiring import Wiring
from engine.queue import SchedulingQueue
from engine.tasks import in_thread

_LOG = logging.getLogger(__name__)

_BETWEEN_SECONDS: Final = 3.0
_MOST_TOLD: Final = 50
_A_STEP: Final = 1024
_THERE, _WAITING, _NOWHERE = "known", "waiting", "nowhere"
Holdings = Mapping[str, str]
"""What one side knows: its nodes, and where each of our pods is."""


@dataclass(eq=False)
class Comparer:
    """Compares on request; run `run` as a task."""

    cache: Cache
    queue: SchedulingQueue
    scheduler_names: Container[str]
    _asked: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def ask(self) -> None:
        """Compares now."""
        self._asked.set()

    async def run(self, client: KubeClient, wiring: Wiring) -> None:
        """Waits for requests, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                await self.compare(client, wiring)
            except KubeError as error:
                _LOG.warning("Cache and server cannot be compared: %s", error)

    async def compare(self, client: KubeClient, wiring: Wiring) -> list[str]:
        """Logs what differs, and returns it.

        Raises:
            KubeError: the server cannot be asked.
        """
        twice = await self._differing(client)
        if twice:
            await wiring.sleep(_BETWEEN_SECONDS)
            twice &= await self._differing(client)
        found = sorted(twice)
        for line in found[:_MOST_TOLD]:
            _LOG.warning("Cache mismatch: %s", line)
        _LOG.info(
            "Compared cache and server nodes=%d podsOnNodes=%d waiting=%d differences=%d",
            self.cache.nodes.count,
            self.cache.pods.size,
            len(self.queue.uids()),
            len(found),
        )
        return found

    async def _differing(self, client: KubeClient) -> set[str]:
        """In pieces and in a thread: there are tens of thousands on both sides."""
        ours, theirs = await self._ours(), await self._theirs(client)
        return await in_thread(lambda: set(differences(ours, theirs)))

    async def _ours(self) -> Holdings:
        found = {f"node {name}": _THERE for name in self.cache.nodes.names()}
        found |= {f"pod {uid}": _WAITING for uid in self.queue.uids()}
        for number, uid in enumerate([*self.cache.pods.row_of]):
            node = self.cache.node_of(uid)
            if node is not None:  # it is there yet
                found[f"pod {uid}"] = f"on {node}"
            if not number % _A_STEP:
                await asyncio.sleep(0)
        return found

    async def _theirs(self, client: KubeClient) -> Holdings:
        found = {f"node {node.metadata.name}": _THERE async for node in each(client, NODES)}
        async for pod in each(client, pods()):
            place = place_of(pod, self.scheduler_names)
            if place is not Place.NEITHER:
                waits = place is Place.PENDING
                found[f"pod {pod.metadata.uid}"] = _WAITING if waits else f"on {pod.node_name}"
        return found


def differences(ours: Holdings, theirs: Holdings) -> Iterator[str]:
    """A line for each thing that one side lacks, or has otherwise.

    A pod that we have on a node and that waits at the server is being bound.
    """
    for what in ours.keys() | theirs.keys():
        here, there = ours.get(what, _NOWHERE), theirs.get(what, _NOWHERE)
        if here != there and not (here.startswith("on ") and there == _WAITING):
            yield f"{what} is {there} at the server and {here} in the cache"
