"""Lists and watch events as typed objects: bytes in, structs out, with a slow path for odd ones.

One object that cannot be decoded never stops the others; it comes out as a `BadObject`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, Final, Generic, TypeVar

import msgspec

from engine.kube.client import KubeClient
from engine.kube.errors import Unreadable
from engine.kube.resources import KubeObject, Resource
from engine.objects import Identity, Known
from engine.text import wire

T = TypeVar("T")
K = TypeVar("K", bound=KubeObject)
_PAGE: Final = "500"
_SILENCE_SECONDS: Final = 60.0


class EventType(Enum):
    """The types of watch events."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"


class Event(msgspec.Struct, Generic[T], gc=False):
    """One line of a watch."""

    type: EventType
    object: T


class _RawEvent(msgspec.Struct, gc=False):
    type: EventType
    object: msgspec.Raw


class ListMeta(msgspec.Struct, rename="camel"):
    """`metadata` of a list."""

    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class _Items(msgspec.Struct, Generic[T]):
    metadata: ListMeta
    items: list[T] | None = None


class BadObject(msgspec.Struct):
    """An object that cannot be decoded."""

    meta: Identity
    reason: str


class Decoders(Generic[T]):
    """The typed fast path, and the slow one that looks at each object alone."""

    def __init__(self, kind: type[T]) -> None:
        self._events: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Event[kind])  # type: ignore[valid-type]  # a type made at run time
        self._raw_event = msgspec.json.Decoder(_RawEvent)
        self._items: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Items[kind])  # type: ignore[valid-type]  # a type made at run time
        self._raw_items = msgspec.json.Decoder(_Items[msgspec.Raw])
        self._object = msgspec.json.Decoder(kind)
        self._names = msgspec.json.Decoder(Known)

    def events(self, lines: bytes) -> Iterable[Event[T | BadObject | msgspec.Raw]]:
        """The events of whole lines; an ERROR keeps its object raw.

        Raises:
            Unreadable: a line is no event at all; what came before it has been given.
        """
        try:
            decoded: Sequence[Event[Any]] = wire.decode(self._events.decode_lines, lines)
        except msgspec.DecodeError:
            return self._one_by_one(lines)
        for event in decoded:
            if event.type is EventType.ERROR:
                return self._one_by_one(lines)
        return decoded

    def _one_by_one(self, lines: bytes) -> Iterator[Event[T | BadObject | msgspec.Raw]]:
        for line in filter(bytes.strip, lines.split(b"\n")):
            try:
                event = wire.decode(self._raw_event.decode, line)
            except msgspec.DecodeError as error:
                raise Unreadable(f"not a watch event: {error}") from error
            if event.type is EventType.ERROR:
                yield Event(event.type, msgspec.Raw(bytes(event.object)))
            else:
                yield Event(event.type, self._one(event.object))

    def items(self, body: bytes) -> tuple[ListMeta, Sequence[T | BadObject]]:
        """A page of a list.

        Raises:
            Unreadable: it is no list.
        """
        with suppress(msgspec.DecodeError):
            page = wire.decode(self._items.decode, body)
            return page.metadata, page.items or ()
        try:
            raw = wire.decode(self._raw_items.decode, body)
        except msgspec.DecodeError as error:
            raise Unreadable(f"not a list: {error}") from error
        return raw.metadata, [self._one(item) for item in raw.items or ()]

    def _one(self, raw: msgspec.Raw) -> T | BadObject:
        try:
            return wire.decode(self._object.decode, raw)
        except msgspec.DecodeError as error:
            reason = str(error)
        try:
            return BadObject(wire.decode(self._names.decode, raw).metadata, reason)
        except msgspec.DecodeError:
            return BadObject(Identity(), reason)


async def pages(
    client: KubeClient,
    resource: Resource[K],
    decoders: Decoders[K],
    version: str = "",
    *,
    paged: bool = True,
) -> AsyncIterator[tuple[ListMeta, Sequence[K | BadObject]]]:
    """The pages of a list, or all of it as one, not older than `version`; "": the newest.

    Raises:
        KubeError: the server cannot be asked, or refuses; pages may have come before.
    """
    asked = resource.params() | ({"limit": _PAGE} if paged else {})
    # Said in so many words: with a limit and no match, a server takes a version for exact.
    older = {"resourceVersion": version, "resourceVersionMatch": "NotOlderThan"} if version else {}
    params = asked | older
    while True:
        answer = await client.request(
            "GET", resource.path, params=params, timeout_seconds=_SILENCE_SECONDS
        )
        meta, items = decoders.items(answer.checked().body)
        yield meta, items
        if not meta.continue_:
            return
        # What follows is of the version of the first page.
        params = {**asked, "continue": meta.continue_}


async def each(client: KubeClient, resource: Resource[K]) -> AsyncIterator[K]:
    """The objects as they come; those that cannot be read are left out.

    Raises:
        KubeError: the server cannot be asked, or refuses.
    """
    async for _, items in pages(client, resource, Decoders(resource.kind)):
        for one in items:
            if not isinstance(one, BadObject):
                yield one


async def list_all(client: KubeClient, resource: Resource[K]) -> list[K]:
    """All of them by namespace and name.

    Raises:
        KubeError: the server cannot be asked, or refuses.
    """
    found = [one async for one in each(client, resource)]
    return sorted(found, key=lambda one: (one.metadata.namespace, one.metadata.name))
