"""Keeps Python's garbage collector from scanning the whole cluster again and again.

What the collector has looked at once and found in use is set aside ("frozen"), so that a collection
takes as long as what is new is much, not as what is there: a few milliseconds, not some hundred.
Nearly all that is set aside goes by itself when its last user does. What went in circles is found
by a sweep, a look at everything: when much is set aside and nobody waits, and not often.

Blocks of more than 512 bytes are the C library's. What it has free between blocks in use it keeps,
and a leader had more of that each hour, so it is told to give it back.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Final

SWEEP_SECONDS: Final = 600.0
"""Seconds between two sweeps, at least; so often free memory is given back."""
SWEEP_GROWTH: Final = 1.25
"""How many times more must be frozen than after the last sweep."""
SWEEP_AT_LAST: Final = 2.0
"""With so many times more it sweeps though pods wait: cycles must not fill the memory."""
#: New objects until the first generation is looked at, and how often one is until the next one is:
#: the oldest after some 20,000 objects, for it holds no more than those. What bindings in flight
#: need, some thousand objects, is gone by itself before it is looked at.
_THRESHOLDS: Final = 5_000, 1, 0
_OLDEST: Final = 2
_MANY: Final = 200_000
"""New objects until one is looked at while all is being made: as many as all modules are."""


def sweep() -> None:
    """Collects everything, and freezes what is in use. Half a second for a million objects."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    # A collection comes when what is new is a quarter of what the last one left: of nothing, now.
    gc.collect()


@contextmanager
def collecting() -> Iterator[None]:
    """Freezes what is in use after each full collection, until the end."""
    gc.callbacks.append(_set_aside)
    try:
        with _thresholds(*_THRESHOLDS):
            yield
    finally:
        gc.callbacks.remove(_set_aside)


def seldom() -> AbstractContextManager[None]:
    """While nearly all that comes stays, as modules and first lists do: a fifth of their time."""
    return _thresholds(_MANY)


@contextmanager
def _thresholds(*numbers: int) -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*numbers)
    try:
        yield
    finally:
        gc.set_threshold(*before)


async def keep_sweeping(
    idle: Callable[[], bool], sleep: Callable[[float], Awaitable[None]]
) -> None:
    """Sweeps where it pays, while `idle` says that no pod waits, and gives back what is free.

    Runs until cancelled.
    """
    kept = gc.get_freeze_count()
    while True:
        await sleep(SWEEP_SECONDS)
        grown = gc.get_freeze_count() / max(1, kept)
        if grown > SWEEP_AT_LAST or (grown > SWEEP_GROWTH and idle()):
            sweep()
            kept = gc.get_freeze_count()
        give_back()


def give_back() -> None:
    """Gives free memory back to the system. Some 20 ms for each 70 MiB of it."""
    with suppress(AttributeError, TypeError):  # glibc's alone; Windows knows no None
        ctypes.CDLL(None).malloc_trim(0)


def _set_aside(phase: str, info: dict[str, Any]) -> None:
    if phase == "stop" and info["generation"] == _OLDEST:
        gc.freeze()
