"""Versioned objects in memory: one revision counter, and per collection the history watches read.

Knows nothing of HTTP, kinds or rules. Objects are plain dicts that nobody changes once they are
stored: a new version is a new dict.
"""

from __future__ import annotations

import asyncio
import math
import uuid
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import takewhile
from random import Random
from typing import Literal

import msgspec

from engine.clock import Clock, stamp
from engine.embedded.errors import ApiError, Object

Key = tuple[str, str]
"""(namespace, name); the namespace of a cluster-scoped object is empty."""


def revision_of(item: Object) -> int:
    """At which revision an object was stored as it is."""
    return int(item["metadata"]["resourceVersion"])


class Change(msgspec.Struct, frozen=True):
    """One step of history; `before` is what the object was, `now` carries the new revision."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    now: Object
    before: Object | None


class Collection:
    """All objects of one kind, the recent changes to them, and who wants to hear of new ones."""

    def __init__(self, history: int) -> None:
        self.items: dict[Key, Object] = {}
        self.floor = 0
        """Changes up to this revision are forgotten."""
        self._history = history
        self._changes: deque[Change] = deque()
        self._listeners: set[Callable[[], None]] = set()

    def since(self, revision: int) -> list[Change]:
        """The changes after `revision`, oldest first.

        Raises:
            ApiError: 410, history does not reach back that far.
        """
        if revision < self.floor:
            raise ApiError(410, f"too old resource version: {revision} ({self.floor})")
        newest = reversed(self._changes)
        return [*takewhile(lambda change: revision_of(change.now) > revision, newest)][::-1]

    @contextmanager
    def listening(self, wake: Callable[[], None]) -> Iterator[None]:
        """While entered, `wake()` is called after each change."""
        self._listeners.add(wake)
        try:
            yield
        finally:
            self._listeners.discard(wake)

    def forget(self, revision: int) -> None:
        """Drops the history, which goes up to `revision`."""
        self._changes.clear()
        self.floor = revision

    def record(self, change: Change) -> None:
        """Appends a change and wakes the listeners."""
        self._changes.append(change)
        if len(self._changes) > self._history:
            self.floor = revision_of(self._changes.popleft().now)
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

    def add(self, name: str, key: Key, value: Object) -> Object:
        """Store a new object under a free key; uid and creation time are given here."""
        metadata = value["metadata"] | {
            "uid": str(uuid.UUID(int=self._random.getrandbits(128), version=4)),
            "creationTimestamp": self.now(),
        }
        item = self._next(value, metadata)
        collection = self.collection(name)
        collection.items[key] = item
        collection.record(Change("ADDED", item, None))
        return item

    def put(self, name: str, key: Key, value: Object) -> Object:
        """Store a new version of an object; an unchanged one makes no version and no event."""
        collection = self.collection(name)
        before = collection.items[key]
        revision = before["metadata"]["resourceVersion"]
        if before == value | {"metadata": value["metadata"] | {"resourceVersion": revision}}:
            return before
        item = collection.items[key] = self._next(value, value["metadata"])
        collection.record(Change("MODIFIED", item, before))
        return item

    def remove(self, name: str, key: Key) -> Object:
        """Delete an object and return its last state, with the revision of the deletion."""
        collection = self.collection(name)
        before = collection.items.pop(key)
        item = self._next(before, before["metadata"])
        collection.record(Change("DELETED", item, before))
        return item

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

    def _next(self, value: Object, metadata: Object) -> Object:
        self.revision += 1
        return value | {"metadata": metadata | {"resourceVersion": str(self.revision)}}
