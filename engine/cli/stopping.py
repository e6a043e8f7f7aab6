"""How a command that runs until it is told to end learns of it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def until_told() -> Iterator[asyncio.Event]:
    """An event that SIGTERM and SIGINT set; from its end on they are ignored, as the process ends.

    To be entered in the main thread, inside the running loop. It stands apart from
    `loop.add_signal_handler`, which cannot be left in peace: a closing loop closes the descriptor
    a signal is written to first and gives the handlers back after that, so whoever asks twice gets
    a traceback or ends the process before it has ended by itself.
    """
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(told.set))
    try:
        yield told
    finally:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def on_signal(number: signal.Signals, do: Callable[[], None]) -> Iterator[None]:
    """A signal does something in the running loop; see `until_told` for where to enter it."""
    loop = asyncio.get_running_loop()
    signal.signal(number, lambda *_: loop.call_soon_threadsafe(do))
    try:
        yield
    finally:
        signal.signal(number, signal.SIG_IGN)
