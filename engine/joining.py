"""Joining a cluster: a session, however long its configuration takes, and what is listed first."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from engine.clock import Clock
from engine.eventhandlers import NodeHandler
from engine.kube.errors import ConfigError
from engine.kube.reflector import Reflector
from engine.kube.session import Session
from engine.objects import Node
from engine.signals.store import SignalStore
from engine.tasks import first, unless

_LOG = logging.getLogger("engine.app")

_RETRY_FIRST: Final = 1.0
_RETRY_MOST: Final = 30.0


async def connect(
    kubeconfig: str | Mapping[str, object] | None, clock: Clock, stop: asyncio.Event
) -> Session | None:
    """A session; None if stopped before."""
    pause = _RETRY_FIRST
    while not stop.is_set():
        try:
            return await unless(stop, Session.connect(kubeconfig, clock=clock))
        except ConfigError as wrong:
            _LOG.warning("Cannot reach a cluster: %s; trying again in %.0f s", wrong, pause)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause)
        pause = min(_RETRY_MOST, pause * 2)
    return None


async def synced(reflectors: Sequence[Reflector[Any]], stop: asyncio.Event) -> None:
    """Waits until every first list is in: deciding on half a cluster would be wrong."""
    for reflector in reflectors:
        await first(reflector.synced.wait(), stop.wait())


class Nodes:
    """Nodes are told to two rooms: the cache and queue, and the metrics' directory."""

    def __init__(self, handler: NodeHandler, signals: SignalStore) -> None:
        self._handler = handler
        self._signals = signals
        self.on_synced = handler.on_synced
        self.on_unreadable = handler.on_unreadable

    def on_add(self, node: Node) -> None:
        """See `reflector.Handler`."""
        self._signals.nodes_changed(None, node)
        self._handler.on_add(node)

    def on_update(self, old: Node, new: Node) -> None:
        """See `reflector.Handler`."""
        self._signals.nodes_changed(old, new)
        self._handler.on_update(old, new)

    def on_delete(self, node: Node) -> None:
        """See `reflector.Handler`."""
        self._signals.nodes_changed(node, None)
        self._handler.on_delete(node)
