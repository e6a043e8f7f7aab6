"""Objects of one resource: watched at the API server, told to a handler in order, none lost.

Nothing here decides what an object means, and nothing waits for the handler. `protocol.Course` says
what to do next; the loop here does it. A list that follows another is compared with what is known,
and the difference is told as adds, updates and deletes, so a handler never sees a gap.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from engine.kube import errors
from engine.kube.client import KubeClient
from engine.kube.listing import BadObject, Decoders, Event, EventType, pages
from engine.kube.protocol import Course, End, Phase, Wait
from engine.kube.resources import KubeObject, Resource
from engine.kube.wiring import Wiring
from engine.objects import Identity, object_key
from engine.tasks import first
from engine.telemetry import Count

_LOG = logging.getLogger(__name__)

_AHEAD = "Too large resource version"
"""What a server says that has not come as far as the version asked for (504 Timeout)."""
_UNAUTHORIZED, _FORBIDDEN = 401, 403
_NO_API_SERVER: Final = "; every API server serves them: is this the address of another server?"
_WATCH_SECONDS: Final = 8.0, 11.0
"""The server is asked to end each watch after a random time in this range.

It sends a bookmark two seconds before, so that the next one starts where nothing expires.
"""
_SILENCE_SECONDS: Final = 15.0
"""A watch without a line for so long is frozen: the server would have ended it."""
_AWAY_SECONDS: Final = 30.0
"""While the server is away nobody asks sooner: whoever finds it back ends the wait."""
_SLICE_SECONDS: Final = 0.002
"""Longest time for which other tasks wait while objects are told to the handler."""
_DELETED, _BOOKMARK = EventType.DELETED, EventType.BOOKMARK
_ENDS: Final = {errors.Timeout: End.FROZEN, errors.Unreadable: End.GARBAGE}
_LINE_LIMIT = 64 * 1024 * 1024
_PIECE = 64 * 1024
"""Decoded at once: more would be slower, for it leaves the processor's caches."""


T = TypeVar("T", bound=KubeObject)
T_contra = TypeVar("T_contra", bound=KubeObject, contravariant=True)


class Handler(Protocol[T_contra]):
    """Is told of objects, one call at a time, in the server's order; a base class does nothing.

    Calls are plain functions and must be short. What they raise ends the reflector: it is a bug.
    """

    def on_add(self, obj: T_contra, /) -> None:  # noqa: ARG002 - for others
        """It is new, or new to us."""
        return

    def on_update(self, old: T_contra, new: T_contra, /) -> None:  # noqa: ARG002 - for others
        """It changed; `old` is what the last call gave."""
        self.on_add(new)

    def on_delete(self, obj: T_contra, /) -> None:  # noqa: ARG002 - for others
        """It is gone; `obj` is the last that is known of it."""
        return

    def on_synced(self) -> None:
        """Everything the first list held has been told. Called once."""
        return

    def on_unreadable(self, meta: Identity, reason: str) -> None:  # noqa: ARG002 - for others
        """An object could not be decoded. What was known of it, if anything, stays as it was."""
        return


def _before(version: str, seen: str) -> bool:
    """`version` < `seen`; False where they are not both numbers. Versions are compared as numbers.

    Source: KEP-5504, comparable resource versions.
    """
    is_less = (len(version), version) < (len(seen), seen)
    return is_less and version.isdecimal() and seen.isdecimal()


class _Progress(msgspec.Struct):
    version: str
    began: float
    lines: int = 0
    tail: bytes = b""


class Reflector(Generic[T]):
    """Keeps `objects` equal to the server's and tells the handler of every difference.

    Run `run` as a task; cancel it to stop. `synced` is set after the first list (or once it is
    clear that the server has no such resource).
    """

    def __init__(
        self, client: KubeClient, resource: Resource[T], handler: Handler[T], wiring: Wiring
    ) -> None:
        self._client = client
        self._resource = resource
        self._handler = handler
        self._share = resource.share
        self._wiring = wiring
        self._slice = _SLICE_SECONDS
        self._decoders = Decoders(resource.kind)
        self.objects: dict[str, T] = {}
        """What is known, by `object_key`. Borrowed: read only."""
        self.name = resource.name
        self._told: dict[str, tuple[str, str]] = {}
        self._course = Course()
        self._heard = self._wiring.clock.monotonic()
        self._listed = self._refused = False
        self.listens = False
        """Whether there should be news: not of what the server does not have, or never gave.

        What it gave once is kept, and ages, if it may not be listed any more.
        """
        self.failures = 0
        """Failures on end; 0 while all is well."""
        self.last_error = ""
        self.synced = asyncio.Event()

    @property
    def phase(self) -> Phase:
        """What it is about."""
        return self._course.phase

    @property
    def quiet_seconds(self) -> float:
        """Since the last answer, event or bookmark."""
        return self._wiring.clock.monotonic() - self._heard

    async def run(self) -> None:
        """Lists and watches until cancelled. Network causes never end it; a handler's bug does."""
        self.listens, self._heard = True, self._wiring.clock.monotonic()
        while True:
            wait = await (self._watch() if self._course.version else self._list())
            self._course.go_on(back=wait is not None and await self._wait(wait))

    async def _wait(self, wait: Wait) -> bool:
        """Whether the server was away meanwhile."""
        if wait.gone and self.objects:
            await self._replace({}, set())
        if self.phase is Phase.ABSENT:
            self._mark_synced()
        jitter = 1.0 + wait.spread * self._wiring.random.random()
        seconds = max(wait.seconds * jitter, wait.floor)
        reach, sleep = self._wiring.reach, self._wiring.sleep
        if reach.away and await reach.until_found(sleep, max(seconds, _AWAY_SECONDS)):
            return True
        return await reach.rest(sleep, seconds)

    # --- list

    async def _list(self) -> Wait | None:
        course = self._course
        self._wiring.telemetry.add(Count.REFLECTOR_LISTS)
        found: dict[str, T] = {}
        kept: set[str] = set()
        known = ""
        try:
            async for meta, items in pages(
                self._client, self._resource, self._decoders, course.ask, paged=course.paged
            ):
                # Of the first page: should others be newer, the watch tells once more of theirs.
                known = known or meta.resource_version
                for item in items:
                    if isinstance(item, BadObject):
                        self._unreadable(item)
                        kept.add(f"{object_key(item.meta)} {item.meta.uid}")
                    else:
                        found[object_key(item.metadata)] = item
            if not known:
                raise errors.Unreadable("a list without resourceVersion")
        except errors.KubeError as error:
            return self._no_list(error, while_paging=bool(known))
        await self._replace(found, kept)
        self.listens = self._listed = True
        self._heard = self._wiring.clock.monotonic()
        self._well()
        self._mark_synced()
        course.listed(known)
        return None

    def _no_list(self, error: errors.KubeError, *, while_paging: bool) -> Wait | None:
        resource, missing = self._resource, isinstance(error, errors.NotFound)
        absent = missing and not resource.everywhere
        refused = missing or getattr(error, "code", 0) == _FORBIDDEN
        if absent or (refused and resource.optional):
            if absent and not self._course.missed:
                _LOG.info("%s: treated as empty (%s)", resource.path, error)
            elif not absent and self._course.missed == 1:  # a server that starts refuses once
                _LOG.warning(
                    "%s: may not be listed: what is known stays (%s)", resource.path, error
                )
            self.failures, self.last_error = 0, "" if absent else str(error)
            self._listed &= not absent
            self.listens = self._listed
            return self._course.missing(kept=not absent)
        self._failed(error, _NO_API_SERVER if missing else "")
        if isinstance(error, errors.Expired) or _AHEAD in str(error):
            return self._course.list_expired(while_paging=while_paging)
        return self._course.failed(getattr(error, "retry_after_seconds", None) or 0.0)

    async def again(self) -> None:
        """Lists once more, beside the watch, and tells of all that is known as if it had changed.

        For whoever reads more of an object than was kept of it when it came.

        Raises:
            KubeError: not all of them were told of.
        """
        pause = self._wiring.clock.monotonic() + self._slice
        async for _, items in pages(self._client, self._resource, self._decoders):
            for item in items:
                if isinstance(item, BadObject):
                    continue
                key = object_key(item.metadata)
                old = self.objects.get(key)
                # What came, went or changed meanwhile is for the watch to tell.
                if old is not None and old.metadata.uid == item.metadata.uid:
                    version = item.metadata.resource_version
                    if not _before(version, old.metadata.resource_version):
                        self._put(key, old, item)
                pause = await self._breathe(pause)

    async def _replace(self, found: dict[str, T], kept: set[str]) -> None:
        """Tells the difference between what is known and a list, deletes last.

        Others run meanwhile: a node may look fuller than it is to them, and never emptier.
        `kept` are objects that the list holds but that cannot be read: what is known of them stays.
        """
        known = self.objects
        self._told = {key: one for key, one in self._told.items() if f"{key} {one[0]}" in kept}
        gone = [
            key
            for key, old in known.items()
            if key not in found and f"{key} {old.metadata.uid}" not in kept
        ]
        pause = self._wiring.clock.monotonic() + self._slice
        for key in [*found]:
            new = found.pop(key)  # of a list like the last one nothing is kept: it goes bit by bit
            old = known.get(key)
            if old is None or old.metadata.resource_version != new.metadata.resource_version:
                self._put(key, old, new)
            pause = await self._breathe(pause)
        for key in gone:
            self._handler.on_delete(known.pop(key))
            pause = await self._breathe(pause)

    async def _breathe(self, until: float) -> float:
        """Lets other tasks run once the slice is used up; returns the end of the current slice."""
        now = self._wiring.clock.monotonic()
        if now < until:
            return until
        await asyncio.sleep(0)
        return self._wiring.clock.monotonic() + self._slice

    # --- watch

    async def _watch(self) -> Wait | None:
        version = self._course.version
        self._wiring.telemetry.add(Count.REFLECTOR_WATCHES)
        params = self._resource.params()
        params |= {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(round(self._wiring.random.uniform(*_WATCH_SECONDS))),
        }
        progress = _Progress(version, self._wiring.clock.monotonic())
        accepted = False
        stream = self._client.stream(
            self._resource.path, params=params, read_timeout_seconds=_SILENCE_SECONDS
        )
        try:
            if self._course.unsure:
                await anext(pages(self._client, self._resource, self._decoders, version))
            async with aclosing(stream):
                async for chunk in stream:
                    # That a watch begins is news: of kinds that do not change there is no other.
                    self._heard = self._wiring.clock.monotonic()
                    accepted = True
                    if self._refused:  # what was refused is allowed again
                        self._well()
                    if chunk:
                        await self._chunk(chunk, progress)
            return self._over(End.DROPPED if progress.tail else End.CLOSED, progress)
        except errors.KubeError as error:
            self._failed(error)
            # Whether the resource is really gone the list knows.
            if isinstance(error, errors.Expired | errors.NotFound) or _AHEAD in str(error):
                return self._over(End.EXPIRED, progress)
            retry_after = getattr(error, "retry_after_seconds", None) or 0.0
            said = isinstance(error, errors.StatusError)
            if not accepted:
                self._refused = said
                return self._course.failed(retry_after)
            end = End.ERROR if said else _ENDS.get(type(error), End.DROPPED)
            return self._over(end, progress, retry_after)

    def _over(self, end: End, progress: _Progress, retry_after: float = 0.0) -> Wait | None:
        seconds = self._wiring.clock.monotonic() - progress.began
        return self._course.ended(end, progress.version, progress.lines, seconds, retry_after)

    async def _chunk(self, chunk: bytes, progress: _Progress) -> None:
        """Tells the whole lines of what came in, and keeps the rest for the next time."""
        if progress.tail:
            chunk = progress.tail + chunk
        cut = chunk.rfind(b"\n") + 1
        progress.tail = chunk[cut:]
        if not cut:
            if len(chunk) > _LINE_LIMIT:
                raise errors.Unreadable("a line without end")
            return
        self._heard = now = self._wiring.clock.monotonic()
        pause = now + self._slice
        for piece in _pieces(chunk, cut):
            for event in self._decoders.events(piece):
                self._event(event, progress)
                progress.lines += 1
                pause = await self._breathe(pause)
        if self.failures:
            self._well()

    def _event(self, event: Event[T | BadObject | msgspec.Raw], progress: _Progress) -> None:
        """One event.

        Raises:
            StatusError: it is an ERROR.
        """
        kind, item = event.type, event.object
        if isinstance(item, msgspec.Raw):
            raise errors.status_error(0, bytes(item))
        meta = item.meta if isinstance(item, BadObject) else item.metadata
        # A server sends each version once and in order. One that does not, for it was restored or
        # a bookmark was absurd, is believed all the same: nothing after it would ever be.
        if _before(meta.resource_version, progress.version):
            self._wiring.telemetry.add(Count.WATCH_EVENTS_OUT_OF_ORDER)
        if isinstance(item, BadObject):
            self._unreadable(item)
            if kind is _DELETED:
                self._forget(meta)
        elif kind is _DELETED:
            self._forget(meta, item)
        elif kind is not _BOOKMARK:
            key = object_key(meta)
            old = self.objects.get(key)
            was = old and (old.metadata.resource_version, old.metadata.uid)
            if old is None or was != (meta.resource_version, meta.uid):
                self._put(key, old, item)
        if meta.resource_version:
            progress.version = meta.resource_version

    def _put(self, key: str, old: T | None, new: T) -> None:
        if self._share is not None:
            self._share(new, old)
        self.objects[key] = new
        self._told.pop(key, None)
        if old is None:
            self._handler.on_add(new)
        elif old.metadata.uid == new.metadata.uid:
            self._handler.on_update(old, new)
        else:
            self._handler.on_delete(old)
            self._handler.on_add(new)

    def _forget(self, meta: Identity, last: T | None = None) -> None:
        key = object_key(meta)
        self._told.pop(key, None)
        old = self.objects.get(key)
        if old is not None and old.metadata.uid == meta.uid:
            del self.objects[key]
            self._handler.on_delete(old if last is None else last)

    # --- reports

    def _mark_synced(self) -> None:
        if not self.synced.is_set():
            self._handler.on_synced()
            self.synced.set()

    def _unreadable(self, item: BadObject) -> None:
        """Tells of an object once for each reason: every list and many events hold it again."""
        key, told = object_key(item.meta), (item.meta.uid, item.reason)
        if self._told.get(key) == told:
            return
        self._told[key] = told
        self._wiring.telemetry.add(Count.OBJECTS_UNREADABLE)
        _LOG.warning(
            "%s %s cannot be read and is skipped: %s",
            self.name,
            key or "without a name",
            item.reason,
        )
        self._handler.on_unreadable(item.meta, item.reason)

    def _failed(self, error: errors.KubeError, hint: str = "") -> None:
        self._wiring.telemetry.add(Count.REFLECTOR_ERRORS)
        away, lost = (
            self._wiring.reach.away,
            isinstance(error, errors.Unreachable | errors.Interrupted),
        )
        if lost:
            self._wiring.reach.lost()
        text = f"{error}{hint}"
        self.failures += 1
        # One watch that hangs may hang alone; another soon after it does not.
        alone = isinstance(error, errors.Timeout) and not away
        if (lost and not alone) or getattr(error, "code", 0) == _UNAUTHORIZED:
            # It is the same for all kinds: one of them tells of it.
            if text not in self._wiring.reach.told:
                _LOG.warning("the API server: %s", text)
            self._wiring.reach.told.add(text)
        elif text != self.last_error or self.failures == 1:
            _LOG.warning("%s: %s", self.name, text)
        self.last_error = text

    def _well(self) -> None:
        if self.failures > 1:
            _LOG.info("%s: works again after %d failures", self.name, self.failures)
        self.failures, self.last_error, self._refused = 0, "", False
        self._wiring.reach.told.clear()


async def synced(reflectors: Sequence[Reflector[Any]], stop: asyncio.Event) -> bool:
    """Waits until every first list is in: deciding on half a cluster would be wrong.

    False: it was stopped before.
    """
    for reflector in reflectors:
        await first(reflector.synced.wait(), stop.wait())
    return not stop.is_set()


def _pieces(chunk: bytes, end: int) -> Iterator[bytes]:
    """Whole lines of `chunk[:end]`, about `_PIECE` bytes at a time; `end` is after a line's end."""
    start = 0
    while end - start > _PIECE:
        cut = chunk.find(b"\n", start + _PIECE, end) + 1
        yield chunk[start:cut]
        start = cut
    if start < end:
        yield chunk[start:end]
