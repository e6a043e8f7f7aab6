"""Joining a cluster: a session, however long its configuration takes, and what is listed first."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from engine.clock import Clock
from engine.kube.errors import ConfigError
from engine.kube.reflector import Reflector
from engine.kube.session import Session
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


async def synced(reflectors: Sequence[Reflector[Any]], stop: asyncio.Event) -> bool:
    """Waits until every first list is in: deciding on half a cluster would be wrong.

    False: it was stopped before.
    """
    for reflector in reflectors:
        await first(reflector.synced.wait(), stop.wait())
    return not stop.is_set()
