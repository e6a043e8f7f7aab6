"""The event loop that commands run in, and how one that runs until told to end learns of it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

try:
    import uvloop
except ImportError:  # it is not made for every platform
    _new_loop = None
else:
    _new_loop = uvloop.new_event_loop

_T = TypeVar("_T")
# A terminal that closes ends it like the others, unless whoever started it asked for the contrary
# (nohup).
_HANGUP = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else set()
_SIGNALS = (signal.SIGTERM, signal.SIGINT, *_HANGUP)


def run_in_loop(main: Coroutine[Any, Any, _T]) -> _T:
    """Runs to the end, on libuv where it is installed: a third of the CPU time of a request."""
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.get_loop().set_exception_handler(_told)
        return runner.run(main)


def _told(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What nobody waits for is logged, but for a TLS handshake that was given up on purpose.

    libuv's loop still reads what has come for it and then finds it closed, as after a SIGTERM.
    """
    failed = context.get("exception")
    if not (isinstance(failed, RuntimeError) and str(failed).endswith("the handler is closed")):
        loop.default_exception_handler(context)


def run_until_told(main: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Runs in the loop what ends soon after its event is set; see `until_told`."""

    async def run() -> None:
        with until_told() as stop:
            await main(stop)

    run_in_loop(run())


@contextlib.contextmanager
def until_told() -> Iterator[asyncio.Event]:
    """An event that SIGTERM, SIGINT and SIGHUP set.

    From its end on they are ignored, as the process ends.

    To be entered in the main thread, inside the running loop. It stands apart from
    `loop.add_signal_handler`, which cannot be left in peace: a closing loop closes the descriptor
    a signal is written to first and gives the handlers back after that, so whoever asks twice gets
    a traceback or ends the process before it has ended by itself.
    """
    told = asyncio.Event()
    with on_signal(told.set, *_SIGNALS):
        yield told


@contextlib.contextmanager
def on_signal(do: Callable[[], None], *numbers: signal.Signals) -> Iterator[None]:
    """Signals do something in the running loop; see `until_told` for where to enter it."""
    loop = asyncio.get_running_loop()
    for number in numbers:
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(do))
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
