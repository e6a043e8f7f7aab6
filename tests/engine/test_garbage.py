"""What the garbage collector looks at: what is new, and now and then everything."""

import asyncio
import gc
import platform
import weakref
from itertools import count

import pytest

from engine.garbage import (
    SWEEP_AT_LAST,
    SWEEP_GROWTH,
    SWEEP_SECONDS,
    collecting,
    keep_sweeping,
    seldom,
    sweep,
)
from tests.bench.measure import resident_mib


class _Circle:
    def __init__(self):
        self.me = self


@pytest.fixture(autouse=True)
def _nothing_set_aside():
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_what_was_looked_at_is_looked_at_no_more():
    with collecting():
        kept = [[] for _ in range(10_000)]
        gc.collect()
        assert gc.get_freeze_count() >= len(kept)
        assert not gc.get_objects(generation=2)
        lost = weakref.ref(_Circle())
        gc.collect()
        assert lost() is None, "what is new and goes in circles is found"
    later = []
    gc.collect()
    assert any(one is later for one in gc.get_objects()), "nothing is set aside after the end"


def test_a_sweep_finds_circles_among_what_was_set_aside():
    with collecting():
        circle = _Circle()
        gc.collect()
        lost = weakref.ref(circle)
        del circle
        gc.collect()
        assert lost() is not None
        sweep()
        assert lost() is None
        assert gc.get_freeze_count()


@pytest.mark.parametrize(
    ("now", "idle", "sweeps"),
    [
        (1000 * SWEEP_GROWTH + 1, True, 1),
        (1000 * SWEEP_GROWTH, True, 0),
        (1000 * SWEEP_AT_LAST, False, 0),
        (1000 * SWEEP_AT_LAST + 1, False, 1),
    ],
)
def test_it_sweeps_when_much_is_set_aside_and_nobody_waits(monkeypatch, now, idle, sweeps):
    counts = iter([1000, now, 1000])
    monkeypatch.setattr(gc, "get_freeze_count", lambda: next(counts))
    swept = []
    monkeypatch.setattr("engine.garbage.sweep", lambda: swept.append(True))
    slept = []

    async def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 2:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(keep_sweeping(lambda: idle, sleep))
    assert len(swept) == sweeps
    assert slept == [SWEEP_SECONDS] * 2


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="others give back what is free")
def test_what_is_free_between_blocks_in_use_is_given_back():
    blocks = [bytearray(b"x" * 8_000) for _ in range(16_000)]
    kept = blocks[::32]
    del blocks
    full = resident_mib()

    async def sleep(_seconds):
        if full - resident_mib() > 64 or next(turns) == 2:
            raise asyncio.CancelledError

    turns = count()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(keep_sweeping(lambda: False, sleep))
    assert full - resident_mib() > 64
    assert len(kept) == 500


def test_what_stays_is_seldom_looked_at_while_it_is_made():
    looks = []
    before = gc.get_threshold()
    gc.callbacks.append(lambda phase, _: looks.append(phase))
    try:
        with seldom():
            kept = [[] for _ in range(50_000)]
            assert not looks
    finally:
        gc.callbacks.pop()
    assert kept
    assert gc.get_threshold() == before
