"""The tasks that write: bindings, of which a limited number have slots, and others without."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class InFlight:
    """The tasks of a scheduler. The first that fails, which only a bug does, is its `fault`."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """Nothing is in flight; `wake` is called whenever a task has ended."""
        self._wake = wake
        self._bindings: set[asyncio.Task[object]] = set()
        # PreBind effects, bindings by others, evictions.
        self._others: set[asyncio.Task[object]] = set()
        self.stopping = False
        """Tasks are to end, done or not."""
        self.fault: BaseException | None = None

    @property
    def bindings(self) -> int:
        """Slots in use."""
        return len(self._bindings)

    def bind(self, work: Coroutine[Any, Any, None]) -> None:
        """Begins a binding, in a slot."""
        self._start(work, self._bindings)

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Begins a task that takes no slot."""
        self._start(work, self._others)

    def cancel(self) -> None:
        """Cancels all tasks: the server may never answer."""
        for task in self._bindings | self._others:
            task.cancel()

    async def drain(self) -> None:
        """Waits until nothing is in flight."""
        while tasks := self._bindings | self._others:
            await asyncio.wait(tasks)

    def _start(self, work: Coroutine[Any, Any, object], among: set[asyncio.Task[object]]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        among.add(task)
        task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[object]) -> None:
        self._bindings.discard(task)
        self._others.discard(task)
        if not task.cancelled() and task.exception() is not None and self.fault is None:
            self.fault = task.exception()  # a bug of ours: the process ends with it
        self._wake()
