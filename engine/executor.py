"""Carries out the effects of one pod in order, and undoes them in reverse if the pod fails.

Decides nothing. Undone are assumed objects, and patches that say how. Other writes to the server
stay; the next attempt finds them.

    reserve ─▶ carry out ─▶ all done ─▶ (bound by whoever asked)
                   │
                   └─ refused, timed out, cancelled, stopping ─▶ undo
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, assert_never

from engine.cache import Cache
from engine.clock import Clock
from engine.framework.edge import EffectWriter, EventSink
from engine.framework.effects import AssumeObject, AtOnce, Await, Effect, Emit, Patch
from engine.framework.snapshot import Snapshot
from engine.framework.status import Code, Status

MOST_SECONDS: Final = 24 * 3600.0
"""No pod waits longer, in permit neither, whatever a plugin says: its node is kept from others."""
log = logging.getLogger(__name__)


def failed(why: str, by: str = "") -> Status:
    """The status of an effect that failed; `by` is the point and the plugin that wanted it."""
    return Status(Code.ERROR, (f"running {by}: {why}" if by else why,))


class Changes:
    """Who waits for changes of objects: an event each, and the kinds."""

    def __init__(self) -> None:
        self.waiting: dict[asyncio.Event, frozenset[str]] = {}

    def changed(self, kind: str) -> None:
        """An object of the kind came, changed or went."""
        for event, kinds in self.waiting.items():
            if kind in kinds:
                event.set()


@dataclass(eq=False)
class Executor:
    """Carries out what one pod needs before it is bound."""

    cache: Cache
    writer: EffectWriter
    events: EventSink
    changes: Changes
    snapshot: Callable[[], Snapshot]
    clock: Clock

    def __post_init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._written: list[Patch] = []
        self._moved = asyncio.Event()
        self._cancelled = ""

    def reserve(self, effects: Sequence[AtOnce]) -> Status:
        """Carries out effects that need no waiting; undoes all if one fails."""
        for effect in effects:
            status = self._at_once(effect)
            if not status.ok:
                self.undo()
                return status
        return Status.SUCCESS

    async def carry_out(self, effects: Sequence[Effect]) -> Status:
        """Carries out effects one after the other; takes all back if one fails."""
        status = Status.SUCCESS
        for effect in effects:
            if not status.ok or self._cancelled:
                break
            status = await self._one(effect)
        if self._cancelled and status.ok:
            status = failed(self._cancelled)
        if not status.ok:
            await self.take_back()
        return status

    def cancel(self, why: str) -> None:
        """Ends `carry_out` at the next effect, or while it waits."""
        self._cancelled = why
        self._moved.set()

    async def take_back(self) -> None:
        """Takes back all that can be, the last first; what cannot be written then stays."""
        while self._written:
            effect = self._written.pop()
            assert effect.undo is not None
            why_not = await self.writer.patch(replace(effect, body=effect.undo, undo=None))
            if why_not:
                name = f"{effect.namespace}/{effect.name}"
                log.warning('Cannot be undone %s="%s" reason="%s"', effect.kind, name, why_not)
        self.undo()

    def undo(self) -> None:
        """Takes back assumed objects, the last first; once only."""
        while self._undo:
            self._undo.pop()()

    async def _one(self, effect: Effect) -> Status:
        match effect:
            case AssumeObject() | Emit():
                return self._at_once(effect)
            case Patch():
                why_not = await self.writer.patch(effect)
                if why_not:
                    return failed(why_not, effect.by)
                if effect.undo is not None:
                    self._written.append(effect)
                return Status.SUCCESS
            case Await():
                return await self._wait(effect)
            case _:
                assert_never(effect)

    def _at_once(self, effect: AtOnce) -> Status:
        if isinstance(effect, Emit):
            self.events.emit(effect)
            return Status.SUCCESS
        version = effect.value.metadata.resource_version
        if not self.cache.assume_object(effect.value):
            why = f"{effect.kind} {effect.key} was changed in the meantime"
            return failed(why, effect.by)
        kind, key = effect.kind, effect.key
        self._undo.append(lambda: self.cache.restore_object(kind, key, version))
        return Status.SUCCESS

    async def _wait(self, effect: Await) -> Status:
        """Asks now, and again whenever one of the kinds changes."""
        deadline = self.clock.monotonic() + min(effect.timeout_seconds, MOST_SECONDS)
        self.changes.waiting[self._moved] = effect.kinds
        try:
            while True:
                self._moved.clear()
                if self._cancelled:
                    return failed(self._cancelled)
                try:
                    status = effect.check(self.snapshot())
                    pending, said = status.code is Code.PENDING, " ".join(status.reasons)
                except Exception as fault:  # noqa: BLE001 - a plugin's: only its pod fails
                    return failed(f"waiting for {effect.what}: {fault!r}", effect.by)
                if not pending:
                    fits = status.ok or status.rejected
                    return status if fits else failed(said, effect.by)
                left = deadline - self.clock.monotonic()
                if left <= 0:
                    return failed(f"timed out waiting for {effect.what}", effect.by)
                with suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._moved.wait()
        finally:
            del self.changes.waiting[self._moved]
