"""The tasks that write: bindings, of which a limited number have slots, and others without."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

MOST_IN_FLIGHT: Final = 200
_TOGETHER: Final = 16


class InFlight:
    """The tasks of a scheduler. The first that fails, which only a bug does, is its `fault`."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """Nothing is in flight; `wake` is called when a task ends, unless slots stay `full`."""
        self._wake = wake
        self._bindings: set[asyncio.Task[object]] = set()
        # PreBind effects, bindings by others, evictions.
        self._others: set[asyncio.Task[object]] = set()
        self.full = False
        """All slots are in use, or were, and few are free again.

        So a few pods are decided in a row, not one for each binding that ends: each time costs a
        slice, and finds what it reads in no cache of the processor. Those that have slots wait for
        their turn to be written meanwhile.
        """
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
        self.full |= len(self._bindings) >= MOST_IN_FLIGHT

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
        waits = self.full and task in self._bindings  # for others that end
        self._bindings.discard(task)
        self._others.discard(task)
        self.full &= len(self._bindings) > MOST_IN_FLIGHT - _TOGETHER
        if not task.cancelled() and task.exception() is not None and self.fault is None:
            self.fault = task.exception()  # a bug of ours: the process ends with it
        if not (waits and self.full) or self.fault is not None:
            self._wake()
