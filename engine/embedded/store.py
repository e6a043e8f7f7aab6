"""Versioned objects in memory: one revision counter, and per collection the history watches read.

Knows nothing of HTTP, kinds or rules. Objects are plain dicts that nobody changes once they are
stored; each version is made into JSON once, and lists and watches share those bytes.
"""

from __future__ import annotations

import asyncio
import math
import uuid
from bisect import bisect_right
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Literal

import msgspec

from engine.clock import Clock, stamp
from engine.embedded.errors import ApiError, Object

Key = tuple[str, str]
"""(namespace, name); the namespace of a cluster-scoped object is empty."""

_encoder = msgspec.json.Encoder()


class Version(msgspec.Struct, frozen=True):
    """One version of one object and its JSON."""

    object: Object
    revision: int
    json: bytes

    @property
    def metadata(self) -> Object:
        """The object's metadata."""
        metadata: Object = self.object["metadata"]
        return metadata


class Change(msgspec.Struct, frozen=True):
    """One step of history; `before` is what the object was, `now` carries the new revision."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    now: Version
    before: Version | None


class Collection:
    """All objects of one kind, the recent changes to them, and who wants to hear of new ones."""

    def __init__(self, history: int) -> None:
        self.items: dict[Key, Version] = {}
        self.floor = 0
        """Changes up to this revision are forgotten."""
        self._limit = history
        self._changes: list[Change] = []
        self._listeners: set[Callable[[], None]] = set()

    def since(self, revision: int) -> list[Change]:
        """The changes after `revision`, oldest first.

        Raises:
            ApiError: 410, history does not reach back that far.
        """
        if revision < self.floor:
            raise ApiError(410, f"too old resource version: {revision} ({self.floor})")
        start = bisect_right(self._changes, revision, key=lambda change: change.now.revision)
        return self._changes[start:]

    @contextmanager
    def listening(self, wake: Callable[[], None]) -> Iterator[None]:
        """While entered, `wake()` is called after each change."""
        self._listeners.add(wake)
        try:
            yield
        finally:
            self._listeners.discard(wake)

    def forget(self, revision: int) -> None:
        """Drop the history up to and including `revision`."""
        self._changes = [change for change in self._changes if change.now.revision > revision]
        self.floor = max(self.floor, revision)

    def record(self, change: Change) -> None:
        """Append a change and wake the listeners."""
        self._changes.append(change)
        if len(self._changes) > 2 * self._limit:
            self.floor = self._changes[-self._limit - 1].now.revision
            del self._changes[: -self._limit]
        for wake in self._listeners:
            wake()


class Store:
    """Every collection, and the counter that orders all their changes."""

    def __init__(self, *, clock: Clock, random: Random, history: int = 10_000) -> None:
        self.revision = 1
        self._clock = clock
        self._random = random
        self._collections = defaultdict[str, Collection](lambda: Collection(history))

    def collection(self, name: str) -> Collection:
        """The collection of that name, empty if it is new."""
        return self._collections[name]

    def now(self, *, after_seconds: int = 0) -> str:
        """The time as Kubernetes writes it, in whole seconds."""
        return stamp(int(self._clock.time()) + after_seconds)

    def add(self, name: str, key: Key, value: Object) -> Version:
        """Store a new object under a free key; uid and creation time are given here."""
        metadata = value["metadata"] | {
            "uid": str(uuid.UUID(int=self._random.getrandbits(128), version=4)),
            "creationTimestamp": self.now(),
        }
        version = self._next(value, metadata)
        collection = self.collection(name)
        collection.items[key] = version
        collection.record(Change("ADDED", version, None))
        return version

    def put(self, name: str, key: Key, value: Object) -> Version:
        """Store a new version of an object; an unchanged one makes no version and no event."""
        collection = self.collection(name)
        before = collection.items[key]
        metadata = value["metadata"] | {"resourceVersion": str(before.revision)}
        if before.object == value | {"metadata": metadata}:
            return before
        version = self._next(value, metadata)
        collection.items[key] = version
        collection.record(Change("MODIFIED", version, before))
        return version

    def remove(self, name: str, key: Key) -> Version:
        """Delete an object and return its last state, with the revision of the deletion."""
        collection = self.collection(name)
        before = collection.items.pop(key)
        version = self._next(before.object, before.metadata)
        collection.record(Change("DELETED", version, before))
        return version

    async def changing(self, seconds: float, *names: str) -> AsyncIterator[None]:
        """Goes on this long after one of the collections changed, for ever; at infinity never."""
        wake = asyncio.Event()
        with ExitStack() as listening:
            for name in names:
                listening.enter_context(self.collection(name).listening(wake.set))
            while math.isfinite(seconds):
                await wake.wait()
                await asyncio.sleep(seconds)
                wake.clear()
                yield

    def compact(self) -> None:
        """Forget all history, as etcd's compaction does; older watches are answered 410."""
        for collection in self._collections.values():
            collection.forget(self.revision)

    def _next(self, value: Object, metadata: Object) -> Version:
        self.revision += 1
        metadata = metadata | {"resourceVersion": str(self.revision)}
        stored = value | {"metadata": metadata}
        return Version(stored, self.revision, _encoder.encode(stored))
