"""Objects of one resource: watched at the API server, told to a handler in order, none lost.

Nothing here decides what an object means, and nothing waits for the handler. `step` is the whole
protocol and is pure; `Reflector` does the I/O that it asks for. ::

                   Listed                    Ended: closed
        ┌───────────────────────────────┐  ┌──────────────┐
        │                               ▼  ▼              │
     LISTING ◀───────────────────── WATCHING ─────────────┘
      │  ▲  ▲    Ended: expired        │
      │  │  │    (410, by status or    │ Ended: dropped, frozen, garbage
      │  │  │     by ERROR event)      │ Failed: refused, 429, 5xx
      │  │  │                          ▼
      │  │  └───── Waited ──────── BACKING_OFF ──── Waited ────▶ WATCHING
      │  │                             ▲
      │  │         Failed              │
      ├──┼─────────────────────────────┘
      │  │
      │  └──────── Waited ────── ABSENT ◀─┐
      └── Missing (404: no such kind) ────┘

A watch resumes from the last version seen. A list that follows one is compared with what is known,
and the difference is told as adds, updates and deletes, so a handler never sees a gap.

Source: client-go tools/cache/reflector.go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from enum import Enum
from random import Random
from typing import Any, Generic, Protocol, TypeVar, assert_never

import msgspec

from engine.clock import Clock
from engine.kube.errors import (
    Expired,
    KubeError,
    NotFound,
    StatusError,
    Timeout,
    Unreadable,
    status_error,
)
from engine.kube.session import KubeClient, segment
from engine.objects import ConfigMap, Namespace, Node, ObjectMeta, Pod
from engine.telemetry import Count, Telemetry

_LOG = logging.getLogger(__name__)

_AHEAD = "Too large resource version"
"""What a server says that has not come as far as the version asked for (504 Timeout)."""
_LINE_LIMIT = 64 * 1024 * 1024


class KubeObject(Protocol):
    """Any struct of `engine.objects` that has metadata."""

    @property
    def metadata(self) -> ObjectMeta:
        """`metadata`."""
        ...


T = TypeVar("T", bound=KubeObject)
T_contra = TypeVar("T_contra", bound=KubeObject, contravariant=True)


# --- the protocol -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Timing:
    """How long things take, in seconds; the defaults are client-go's."""

    backoff: float = 0.8
    backoff_limit: float = 30.0
    healthy: float = 120.0
    """A watch that lasted this long starts the backoff anew."""
    short: float = 1.0
    """A watch that ends sooner without a line counts as a failure."""
    absent: float = 60.0
    """How often a resource that the server lacks is asked for."""
    watch: tuple[float, float] = (300.0, 600.0)
    """The server is asked to end each watch after a random time in this range."""
    silence: float = 130.0
    """A watch without a line for so long is frozen; the server sends bookmarks every minute."""
    list_silence: float = 60.0
    slice: float = 0.002
    """Longest time for which other tasks wait while objects are told to the handler."""
    page: int = 500


class Phase(Enum):
    """What the reflector is about."""

    LISTING = "listing"
    WATCHING = "watching"
    BACKING_OFF = "backing-off"
    ABSENT = "absent"


class End(Enum):
    """How a watch ended after the server had accepted it."""

    CLOSED = "closed"
    DROPPED = "connection dropped"
    FROZEN = "no line in time"
    GARBAGE = "not a watch event"
    ERROR = "error event"
    EXPIRED = "version expired"


@dataclass(frozen=True, slots=True)
class State:
    """Where the protocol stands.

    `version` is the last one seen, "" before the first list. `ask` is the version at which the next
    list may be answered: "0" any, "" the newest. `delay` is the next backoff.
    """

    phase: Phase = Phase.LISTING
    version: str = ""
    ask: str = "0"
    paged: bool = True
    delay: float = 0.0
    missed: int = 0
    """404s on end."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The list is complete, and known as of `version`."""

    version: str


@dataclass(frozen=True, slots=True)
class ListExpired:
    """The list cannot be had at the version asked for, or its pages expired on the way."""

    while_paging: bool


@dataclass(frozen=True, slots=True)
class Missing:
    """404: the server has no such resource."""


@dataclass(frozen=True, slots=True)
class Failed:
    """No list, or no watch was opened: connection, 429, 5xx, or any other error."""

    retry_after: float = 0.0


@dataclass(frozen=True, slots=True)
class Ended:
    """A watch is over. It gave `lines`, lasted `seconds` and brought us to `version`."""

    end: End
    version: str
    lines: int
    seconds: float
    retry_after: float = 0.0


@dataclass(frozen=True, slots=True)
class Waited:
    """The wait is over."""


Outcome = Listed | ListExpired | Missing | Failed | Ended | Waited


@dataclass(frozen=True, slots=True)
class List:
    """List at `version` ("0" any, "" the newest), in pages if `paged`."""

    version: str
    paged: bool


@dataclass(frozen=True, slots=True)
class Watch:
    """Watch what comes after `version`."""

    version: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait `seconds` and up to `spread` times that more, by chance, but never less than `floor`."""

    seconds: float
    spread: float = 1.0
    floor: float = 0.0
    gone: bool = False
    """The resource is not there: whatever was known of it is deleted."""


Action = List | Watch | Wait


def step(state: State, outcome: Outcome, timing: Timing) -> tuple[State, Action]:
    """The protocol: what to do next. Pure; never raises."""
    match outcome:
        case Listed(version):
            state = replace(
                state, phase=Phase.WATCHING, version=version, ask=version, paged=True, missed=0
            )
            return state, Watch(version)
        case ListExpired(while_paging):
            if state.ask == "" and not state.paged:
                return _back_off(state, 0.0, timing)
            # INVARIANT: each turn gives up one of the two, so this ends.
            paged = state.paged and not while_paging and state.ask != ""
            state = replace(state, ask="", paged=paged)
            return state, List(state.ask, state.paged)
        case Missing():
            state = replace(state, phase=Phase.ABSENT, version="", ask="0", missed=state.missed + 1)
            return state, Wait(timing.absent, spread=0.2, gone=state.missed > 1)
        case Failed(retry_after):
            return _back_off(state, retry_after, timing)
        case Waited():
            return _resume(state)
        case Ended():
            return _ended(state, outcome, timing)
        case _:
            assert_never(outcome)


def _resume(state: State) -> tuple[State, Action]:
    if state.version and state.ask == state.version:
        return replace(state, phase=Phase.WATCHING), Watch(state.version)
    return replace(state, phase=Phase.LISTING), List(state.ask, state.paged)


def _ended(state: State, ended: Ended, timing: Timing) -> tuple[State, Action]:
    state = replace(state, version=ended.version, ask=ended.version)
    useless = ended.lines == 0 and ended.seconds < timing.short
    if ended.end is End.EXPIRED:
        # The version stays in `ask`: a list not older than what we know. It is no longer watched.
        state = replace(state, phase=Phase.LISTING, version="")
        if useless:
            return _back_off(state, ended.retry_after, timing)
        return state, List(state.ask, state.paged)
    if ended.end is End.CLOSED and not useless:
        return replace(state, phase=Phase.WATCHING), Watch(ended.version)
    if ended.lines == 0 and ended.end in (End.GARBAGE, End.ERROR):
        # The same would come again: a list is the way around it.
        state = replace(state, version="")
    if ended.seconds >= timing.healthy:
        state = replace(state, delay=0.0)
    elif ended.seconds >= 2 * state.delay:
        state = replace(state, delay=state.delay / 4)
    return _back_off(state, ended.retry_after, timing)


def _back_off(state: State, retry_after: float, timing: Timing) -> tuple[State, Action]:
    delay = min(max(2 * state.delay, timing.backoff), timing.backoff_limit)
    state = replace(state, phase=Phase.BACKING_OFF, delay=delay)
    return state, Wait(delay, floor=retry_after)


# --- what crosses -------------------------------------------------------------------------------


class Handler(Protocol[T_contra]):
    """Is told of objects, one call at a time, in the server's order.

    Calls are plain functions and must be short. What they raise ends the reflector: it is a bug.
    """

    def on_add(self, obj: T_contra) -> None:
        """It is new, or new to us."""
        ...

    def on_update(self, old: T_contra, new: T_contra) -> None:
        """It changed; `old` is what the last call gave."""
        ...

    def on_delete(self, obj: T_contra) -> None:
        """It is gone; `obj` is the last that is known of it."""
        ...

    def on_synced(self) -> None:
        """Everything the first list held has been told. Called once."""
        ...

    def on_unreadable(self, meta: ObjectMeta, reason: str) -> None:
        """An object could not be decoded. What was known of it, if anything, stays as it was."""
        ...


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """What is listed and watched; `path` is the collection's, its namespace included."""

    kind: type[T]
    path: str
    label_selector: str = ""
    field_selector: str = ""

    @property
    def name(self) -> str:
        """The plural, for logs."""
        return self.path.rsplit("/", 1)[-1]

    def params(self) -> dict[str, str]:
        """The selectors as query parameters."""
        params = {}
        if self.label_selector:
            params["labelSelector"] = self.label_selector
        if self.field_selector:
            params["fieldSelector"] = self.field_selector
        return params


def pods(field_selector: str = "status.phase!=Succeeded,status.phase!=Failed") -> Resource[Pod]:
    """All pods that are not finished, as kube-scheduler watches them."""
    return Resource(Pod, "/api/v1/pods", field_selector=field_selector)


def nodes(label_selector: str = "") -> Resource[Node]:
    """All nodes, or those of a selector."""
    return Resource(Node, "/api/v1/nodes", label_selector=label_selector)


def namespaces() -> Resource[Namespace]:
    """All namespaces."""
    return Resource(Namespace, "/api/v1/namespaces")


def config_maps(namespace: str, name: str = "", label_selector: str = "") -> Resource[ConfigMap]:
    """ConfigMaps of a namespace: one by name, or those of a selector."""
    return Resource(
        ConfigMap,
        f"/api/v1/namespaces/{segment(namespace)}/configmaps",
        label_selector=label_selector,
        field_selector=f"metadata.name={name}" if name else "",
    )


@dataclass(frozen=True, slots=True)
class Health:
    """How a reflector is. `quiet_seconds` counts from the last list, event or bookmark."""

    resource: str
    phase: Phase
    synced: bool
    quiet_seconds: float
    objects: int
    version: str
    failures: int
    """Failures on end; 0 while all is well."""
    last_error: str


# --- decoding -----------------------------------------------------------------------------------


class _EventType(Enum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"


class _Event(msgspec.Struct, Generic[T], gc=False):
    type: _EventType
    object: T


class _RawEvent(msgspec.Struct, gc=False):
    type: _EventType
    object: msgspec.Raw


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class _Items(msgspec.Struct, Generic[T]):
    metadata: _ListMeta
    items: list[T] | None = None


class _OnlyMeta(msgspec.Struct):
    metadata: ObjectMeta = ObjectMeta()


class _OnlyNames(msgspec.Struct):
    """Metadata as far as it can be read when the rest of it cannot."""

    metadata: dict[str, object] = msgspec.field(default_factory=dict)


class _Unreadable(msgspec.Struct):
    """An object that cannot be decoded."""

    meta: ObjectMeta
    reason: str


class _Decoders(Generic[T]):
    """The typed fast path, and the slow one that looks at each object alone."""

    def __init__(self, kind: type[T]) -> None:
        self._events: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Event[kind])  # type: ignore[valid-type]  # a type made at run time
        self._raw_event = msgspec.json.Decoder(_RawEvent)
        self._items: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Items[kind])  # type: ignore[valid-type]  # a type made at run time
        self._raw_items = msgspec.json.Decoder(_Items[msgspec.Raw])  # type: ignore[type-var]  # its items are looked at one by one
        self._object = msgspec.json.Decoder(kind)
        self._meta = msgspec.json.Decoder(_OnlyMeta)
        self._names = msgspec.json.Decoder(_OnlyNames)

    def events(self, lines: bytes) -> Iterator[tuple[_EventType, T | _Unreadable | msgspec.Raw]]:
        """The events of whole lines; an ERROR keeps its object raw.

        Raises:
            Unreadable: a line is no event at all.
        """
        try:
            decoded: Sequence[_Event[T]] = self._events.decode_lines(lines)
        except msgspec.DecodeError:
            decoded = ()
        for event in decoded:
            if event.type is _EventType.ERROR:
                break
            yield event.type, event.object
        else:
            if decoded:
                return
        # Something in these lines is not an object of our kind: look at each line alone.
        for number, line in enumerate(filter(bytes.strip, lines.split(b"\n"))):
            if number >= len(decoded) or decoded[number].type is _EventType.ERROR:
                yield self._event(line)

    def _event(self, line: bytes) -> tuple[_EventType, T | _Unreadable | msgspec.Raw]:
        try:
            event = self._raw_event.decode(line)
        except msgspec.DecodeError as error:
            raise Unreadable(f"not a watch event: {error}") from error
        if event.type is _EventType.ERROR:
            return event.type, event.object
        return event.type, self._one(event.object)

    def items(self, body: bytes) -> tuple[_ListMeta, Sequence[T | _Unreadable]]:
        """A page of a list.

        Raises:
            Unreadable: it is no list.
        """
        try:
            page = self._items.decode(body)
        except msgspec.DecodeError:
            return self._items_one_by_one(body)
        return page.metadata, page.items or ()

    def _items_one_by_one(self, body: bytes) -> tuple[_ListMeta, Sequence[T | _Unreadable]]:
        try:
            raw = self._raw_items.decode(body)
        except msgspec.DecodeError as error:
            raise Unreadable(f"not a list: {error}") from error
        return raw.metadata, [self._one(item) for item in raw.items or ()]

    def _one(self, raw: msgspec.Raw) -> T | _Unreadable:
        try:
            return self._object.decode(raw)
        except msgspec.DecodeError as error:
            reason = str(error)
        try:
            return _Unreadable(self._meta.decode(raw).metadata, reason)
        except msgspec.DecodeError:
            pass
        try:
            named = self._names.decode(raw).metadata
        except msgspec.DecodeError:
            return _Unreadable(ObjectMeta(), reason)
        texts = {k: v for k, v in named.items() if isinstance(v, str)}
        meta = ObjectMeta(
            name=texts.get("name", ""),
            namespace=texts.get("namespace", ""),
            uid=texts.get("uid", ""),
            resource_version=texts.get("resourceVersion", ""),
        )
        return _Unreadable(meta, reason)


def object_key(meta: ObjectMeta) -> str:
    """`namespace/name`, or the name alone where there are no namespaces."""
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


def _not_after(version: str, seen: str) -> bool:
    """`version` <= `seen`; False where they are not both numbers. Versions are compared as numbers.

    Source: KEP-5504, comparable resource versions.
    """
    if not (version.isdecimal() and seen.isdecimal()):
        return False
    return (len(version), version) <= (len(seen), seen)


# --- the loop -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Progress:
    """How far a watch has come."""

    version: str
    began: float
    lines: int = 0
    tail: bytes = b""


@dataclass(frozen=True, slots=True)
class Wiring:
    """Time, chance and counts, as arguments."""

    clock: Clock
    telemetry: Telemetry
    random: Random = field(default_factory=Random)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class Reflector(Generic[T]):
    """Keeps `objects` equal to the server's and tells the handler of every difference.

    Run `run` as a task; cancel it to stop. `synced` is set after the first list (or once it is
    clear that the server has no such resource).
    """

    def __init__(
        self,
        client: KubeClient,
        resource: Resource[T],
        handler: Handler[T],
        wiring: Wiring,
        timing: Timing | None = None,
    ) -> None:
        self._client = client
        self._resource = resource
        self._handler = handler
        self._wiring = wiring
        self._clock = wiring.clock
        self._timing = timing or Timing()
        self._decoders = _Decoders(resource.kind)
        self._objects: dict[str, T] = {}
        self._state = State()
        self._heard = self._clock.monotonic()
        self._failures = 0
        self._last_error = ""
        self.synced = asyncio.Event()

    @property
    def objects(self) -> Mapping[str, T]:
        """What is known, by `object_key`. Borrowed: read only."""
        return self._objects

    def health(self) -> Health:
        """How it is now."""
        return Health(
            resource=self._resource.name,
            phase=self._state.phase,
            synced=self.synced.is_set(),
            quiet_seconds=self._clock.monotonic() - self._heard,
            objects=len(self._objects),
            version=self._state.version,
            failures=self._failures,
            last_error=self._last_error,
        )

    async def run(self) -> None:
        """Lists and watches until cancelled. Network causes never end it; a handler's bug does."""
        action: Action = List(self._state.ask, self._state.paged)
        while True:
            outcome = await self._perform(action)
            self._state, action = step(self._state, outcome, self._timing)

    async def _perform(self, action: Action) -> Outcome:
        match action:
            case List(version, paged):
                return await self._list(version, paged=paged)
            case Watch(version):
                return await self._watch(version)
            case Wait():
                await self._wait(action)
                return Waited()
            case _:
                assert_never(action)

    async def _wait(self, wait: Wait) -> None:
        if wait.gone and self._objects:
            await self._replace({}, set())
        if self._state.phase is Phase.ABSENT:
            self._mark_synced()
        jitter = 1.0 + wait.spread * self._wiring.random.random()
        await self._wiring.sleep(max(wait.seconds * jitter, wait.floor))

    # --- list

    async def _list(self, version: str, *, paged: bool) -> Outcome:
        self._wiring.telemetry.add(Count.REFLECTOR_LISTS)
        continuing = False
        found: dict[str, T] = {}
        kept: set[str] = set()
        params = self._resource.params()
        if version:
            # Said in so many words: with a limit and no match, a server takes a version for exact.
            params |= {"resourceVersion": version, "resourceVersionMatch": "NotOlderThan"}
        if paged:
            params["limit"] = str(self._timing.page)
        try:
            while True:
                meta, items = await self._page(params)
                self._take(items, found, kept)
                if not meta.continue_:
                    break
                continuing = True
                params.pop("resourceVersion", None)
                params.pop("resourceVersionMatch", None)
                params["continue"] = meta.continue_
        except KubeError as error:
            return self._no_list(error, while_paging=continuing)
        await self._replace(found, kept)
        self._well()
        self._mark_synced()
        return Listed(meta.resource_version)

    def _no_list(self, error: KubeError, *, while_paging: bool) -> Outcome:
        if isinstance(error, NotFound):
            if not self._state.missed:
                _LOG.info("%s: the server has none (%s)", self._resource.name, error)
            self._failures = 0
            return Missing()
        self._failed(error)
        if isinstance(error, Expired):
            return ListExpired(while_paging)
        if isinstance(error, StatusError):
            if _AHEAD in error.message:
                return ListExpired(while_paging)
            return Failed(error.retry_after_seconds or 0.0)
        return Failed()

    async def _page(self, params: Mapping[str, str]) -> tuple[_ListMeta, Sequence[T | _Unreadable]]:
        answer = await self._client.request(
            "GET",
            self._resource.path,
            params=params,
            timeout_seconds=self._timing.list_silence,
        )
        meta, items = self._decoders.items(answer.checked().body)
        if not meta.resource_version:
            raise Unreadable("a list without resourceVersion")
        return meta, items

    def _take(self, items: Sequence[T | _Unreadable], found: dict[str, T], kept: set[str]) -> None:
        for item in items:
            if isinstance(item, _Unreadable):
                self._unreadable(item)
                kept.add(f"{object_key(item.meta)} {item.meta.uid}")
            else:
                found[object_key(item.metadata)] = item

    async def _replace(self, found: dict[str, T], kept: set[str]) -> None:
        """Tells the difference between what is known and a list, deletes first.

        `kept` are objects that the list holds but that cannot be read: what is known of them stays.
        """
        known = self._objects
        gone = [
            key
            for key, old in known.items()
            if key not in found and f"{key} {old.metadata.uid}" not in kept
        ]
        pause = self._clock.monotonic() + self._timing.slice
        for key in gone:
            self._handler.on_delete(known.pop(key))
            pause = await self._breathe(pause)
        for key, new in found.items():
            old = known.get(key)
            if old is None or old.metadata.resource_version != new.metadata.resource_version:
                self._put(key, old, new)
                pause = await self._breathe(pause)

    async def _breathe(self, until: float) -> float:
        """Lets other tasks run once the slice is used up; returns the end of the current slice."""
        now = self._clock.monotonic()
        if now < until:
            return until
        await asyncio.sleep(0)
        return self._clock.monotonic() + self._timing.slice

    # --- watch

    async def _watch(self, version: str) -> Outcome:
        self._wiring.telemetry.add(Count.REFLECTOR_WATCHES)
        low, high = self._timing.watch
        params = self._resource.params()
        params |= {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(round(self._wiring.random.uniform(low, high))),
        }
        progress = _Progress(version, self._clock.monotonic())
        accepted = False
        stream = self._client.stream(
            self._resource.path, params=params, read_timeout_seconds=self._timing.silence
        )
        try:
            async with aclosing(stream):
                async for chunk in stream:
                    accepted = True
                    if chunk:
                        await self._chunk(chunk, progress)
            return self._over(End.DROPPED if progress.tail else End.CLOSED, progress)
        except Expired as error:
            self._failed(error)
            return self._over(End.EXPIRED, progress)
        except NotFound as error:
            # The list knows whether the resource is really gone.
            self._failed(error)
            return self._over(End.EXPIRED, progress)
        except StatusError as error:
            self._failed(error)
            retry_after = error.retry_after_seconds or 0.0
            if not accepted:
                return Failed(retry_after)
            return self._over(End.ERROR, progress, retry_after)
        except KubeError as error:
            self._failed(error)
            return self._over(_how(error), progress) if accepted else Failed()

    def _over(self, end: End, progress: _Progress, retry_after: float = 0.0) -> Ended:
        seconds = self._clock.monotonic() - progress.began
        return Ended(end, progress.version, progress.lines, seconds, retry_after)

    async def _chunk(self, chunk: bytes, progress: _Progress) -> None:
        """Tells the whole lines of what came in, and keeps the rest for the next time."""
        if progress.tail:
            chunk = progress.tail + chunk
        cut = chunk.rfind(b"\n") + 1
        progress.tail = chunk[cut:]
        if not cut:
            if len(chunk) > _LINE_LIMIT:
                raise Unreadable("a line without end")
            return
        self._heard = now = self._clock.monotonic()
        pause = now + self._timing.slice
        for kind, item in self._decoders.events(chunk[:cut]):
            self._event(kind, item, progress)
            progress.lines += 1
            if not progress.lines & 15:
                pause = await self._breathe(pause)
        if self._failures:
            self._well()

    def _event(
        self, kind: _EventType, item: T | _Unreadable | msgspec.Raw, progress: _Progress
    ) -> None:
        """One event.

        Raises:
            StatusError: it is an ERROR.
        """
        if isinstance(item, msgspec.Raw) or kind is _EventType.ERROR:
            raise status_error(0, bytes(item) if isinstance(item, msgspec.Raw) else b"{}")
        if isinstance(item, _Unreadable):
            self._unreadable(item)
            meta = item.meta
            if kind is _EventType.DELETED:
                self._forget(meta)
        else:
            meta = item.metadata
            if kind is _EventType.DELETED:
                self._forget(meta, item)
            elif kind is not _EventType.BOOKMARK and not self._repeats(meta, progress.version):
                key = object_key(meta)
                self._put(key, self._objects.get(key), item)
        version = meta.resource_version
        if version and not _not_after(version, progress.version):
            progress.version = version

    @staticmethod
    def _repeats(meta: ObjectMeta, seen: str) -> bool:
        """A server sends each version once and in order; a second time it is old news."""
        return _not_after(meta.resource_version, seen)

    def _put(self, key: str, old: T | None, new: T) -> None:
        self._objects[key] = new
        if old is None:
            self._handler.on_add(new)
        elif old.metadata.uid == new.metadata.uid:
            self._handler.on_update(old, new)
        else:
            self._handler.on_delete(old)
            self._handler.on_add(new)

    def _forget(self, meta: ObjectMeta, last: T | None = None) -> None:
        key = object_key(meta)
        old = self._objects.get(key)
        if old is not None and old.metadata.uid == meta.uid:
            del self._objects[key]
            self._handler.on_delete(old if last is None else last)

    # --- reports

    def _mark_synced(self) -> None:
        self._heard = self._clock.monotonic()
        if not self.synced.is_set():
            self._handler.on_synced()
            self.synced.set()

    def _unreadable(self, item: _Unreadable) -> None:
        self._wiring.telemetry.add(Count.OBJECTS_UNREADABLE)
        _LOG.warning(
            "%s %s cannot be read and is passed over: %s",
            self._resource.name,
            object_key(item.meta) or "without a name",
            item.reason,
        )
        self._handler.on_unreadable(item.meta, item.reason)

    def _failed(self, error: KubeError) -> None:
        self._wiring.telemetry.add(Count.REFLECTOR_ERRORS)
        text = str(error)
        self._failures += 1
        if text != self._last_error or self._failures == 1:
            _LOG.warning("%s: %s", self._resource.name, text)
        self._last_error = text

    def _well(self) -> None:
        if self._failures > 1:
            _LOG.info("%s: well again after %d failures", self._resource.name, self._failures)
        self._failures = 0


def _how(error: KubeError) -> End:
    match error:
        case Timeout():
            return End.FROZEN
        case Unreadable():
            return End.GARBAGE
        case _:
            return End.DROPPED
