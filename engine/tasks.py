"""Tasks of one event loop: groups that raise the failure itself, and work that is cut short.

Work that is long and touches nothing of ours goes to a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from threading import Thread
from time import sleep
from typing import Any, Final, TypeVar

T = TypeVar("T")

give_way: Final = partial(sleep, 0)
"""In a thread: lets the event loop run now and not after the interpreter's 5 ms."""


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


async def in_thread(work: Callable[[], T]) -> T:
    """The result of `work`, done in a thread of its own that holds no process up."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # who waits may give up, and the thread cannot

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as caught:  # noqa: BLE001 - raised again where it is waited for
            future.set_exception(caught)

    Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(future)


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
