"""Tasks of one event loop: groups that raise the failure itself, and work that is cut short."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def first(*waits: Awaitable[object]) -> None:
    """Runs them until one is over; the others are cancelled."""
    waiting = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """What `work` gives; None, and the work is ended, if we are stopped before."""
    doing = asyncio.ensure_future(work)
    await first(doing, stop.wait())
    return None if doing.cancelled() else doing.result()


@contextlib.asynccontextmanager
async def tasks() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group whose failure is the failure itself, not a group of one."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as failures:
        first = failures.exceptions[0]
        if len(failures.exceptions) == 1:
            raise first from failures
        raise
