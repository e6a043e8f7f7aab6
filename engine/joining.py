"""Joining a cluster: a session, and what is listed first."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from engine.clock import Clock
from engine.config import ConfigError
from engine.kube import errors
from engine.kube.reflector import Reflector
from engine.kube.session import Session
from engine.tasks import first, unless


async def connect(
    kubeconfig: str | Mapping[str, object] | None, clock: Clock, stop: asyncio.Event
) -> Session | None:
    """A session, whether its server answers yet or not; None if stopped before.

    Raises:
        ConfigError: nothing says how to reach a server, or as whom; as of kube-scheduler that is
            the end, and for whoever starts us to try again.
    """
    try:
        return await unless(stop, Session.connect(kubeconfig, clock=clock))
    except errors.ConfigError as wrong:
        raise ConfigError(f"cannot reach a cluster: {wrong}") from wrong


async def synced(reflectors: Sequence[Reflector[Any]], stop: asyncio.Event) -> bool:
    """Waits until every first list is in: deciding on half a cluster would be wrong.

    False: it was stopped before.
    """
    for reflector in reflectors:
        await first(reflector.synced.wait(), stop.wait())
    return not stop.is_set()
