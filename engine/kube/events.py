"""Events for users: `Emit`s go in at once, events.k8s.io/v1 objects go out as the gate lets them.

Nothing here holds anything up: two bounded lines take what has to wait, and what does not fit is
counted. What pods are told while they wait, which may be thousands at once, takes turns with all
else. The same Event again becomes a series: first at once, then once a minute.

Source: client-go tools/events/event_broadcaster.go.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque

import msgspec
from msgspec.structs import replace

from engine.clock import stamp
from engine.framework.effects import Emit
from engine.kube.client import MERGE_PATCH, segment
from engine.kube.errors import Conflict, KubeError, NotFound, StatusError
from engine.kube.gate import Gate, Place, Priority, within
from engine.kube.wiring import Wiring
from engine.telemetry import Count
from engine.text.display import CUT, plain

_LOG = logging.getLogger(__name__)

_NOTE_LIMIT = 1024
_NAME_LIMIT = 253
_LOG_DROPS_EVERY = 1000
_CAPACITY = 20_000
_SERIES_SECONDS = 60.0
"""How often the count of a series is written."""
_SERIES_END_SECONDS = 360.0
"""A repeat after so long is a new Event."""
_REMEMBERED = 65_536
"""Events whose repeats are known for what they are; all unschedulable pods should fit."""
_REMEMBERED_LETTERS = 16 * 1024 * 1024
"""... as long as their notes are not longer than this all together."""
_ONCE = "Scheduled"
"""A pod is told this once: it need not be remembered, and hundreds a second would fill the room."""
_TRIES = 5
_BACKOFF_SECONDS = 0.8
_BACKOFF_LIMIT_SECONDS = 30.0

_encoder = msgspec.json.Encoder()
_API_VERSIONS = {
    "Pod": "v1",
    "Node": "v1",
    "ConfigMap": "v1",
    "Namespace": "v1",
    "Lease": "coordination.k8s.io/v1",
}


class _Record(msgspec.Struct):
    """An Event and how far it is written."""

    emit: Emit
    name: str
    first: float
    last: float
    count: int = 1
    written: int = 0
    """`count` as the server has it; 0 = not created."""
    written_at: float = 0.0
    queued: bool = True
    """Whether it waits or is being written: only one worker has it at a time."""
    tries: int = 0


class KubeEventSink:
    """Writes Events in the background; a `framework.edge.EventSink`.

    Run `run` as a task; `flush` before it is cancelled.
    """

    def __init__(
        self,
        gate: Gate,
        wiring: Wiring,
        *,
        controller: str,
        host: str,
    ) -> None:
        self._gate = gate
        self._wiring = wiring
        self._controller = controller
        self._host = host
        self._lines: tuple[deque[_Record], deque[_Record]] = deque(), deque()
        self._turn = 0
        self._known: OrderedDict[Emit, _Record] = OrderedDict()
        """By what makes two Events the same; other than client-go's that is the note, too."""
        self._letters = 0
        self._stamp = 0
        self._writing = 0
        self._dropped = 0
        self._failures = 0
        self._there = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        """Events that wait or are being written."""
        return self._waiting + self._writing

    @property
    def _waiting(self) -> int:
        return sum(map(len, self._lines))

    def emit(self, effect: Emit) -> None:
        """See `framework.edge.EventSink.emit`."""
        now = self._wiring.clock.time()
        # Notes of Pods quote what users write; others are ours, and may have lines.
        keep = "" if effect.kind == "Pod" else "\n"
        note = cut_note(plain(effect.note, _NOTE_LIMIT, keep=keep))
        if note != effect.note:
            effect = replace(effect, note=note)
        record = None if effect.reason == _ONCE else self._known.get(effect)
        if record is not None and now - record.last < _SERIES_END_SECONDS:
            self._known.move_to_end(effect)
            record.count += 1
            record.last = now
            if not record.queued and self._due(record, now):
                self._enqueue(record)
            return
        if len(self._line_of(effect)) >= _CAPACITY:
            self._drop("the buffer is full")
            return
        record = _Record(effect, self._name(effect, now), now, now)
        if effect.reason != _ONCE:
            self._remember(record)
        self._enqueue(record)

    def _remember(self, record: _Record) -> None:
        """Forgets those that were not repeated for longest, and those that a repeat begins anew."""
        if self._known.pop(record.emit, None) is None:
            self._letters += len(record.emit.note)
        self._known[record.emit] = record
        ended = record.last - _SERIES_END_SECONDS
        while (
            len(self._known) > _REMEMBERED
            or self._letters > _REMEMBERED_LETTERS
            or next(iter(self._known.values())).last <= ended
        ):
            _, oldest = self._known.popitem(last=False)
            self._letters -= len(oldest.emit.note)

    async def run(self) -> None:
        """Writes until cancelled. Never ends for network causes."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._there.wait()
                place = await self._gate.place(Priority.EVENT)
                if not self._waiting:
                    place.release()
                    self._there.clear()
                    continue
                self._writing += 1
                group.create_task(self._work(place, self._next()))

    async def flush(self, seconds: float, most: float = 0.0) -> bool:
        """Writes what is left; False if it stood still for `seconds`, or took more than `most`."""
        return await within(seconds, self._idle, lambda: len(self), "events", most)

    def _due(self, record: _Record, now: float) -> bool:
        """The first repeat makes the series; later ones only bring its count up to date."""
        return record.written <= 1 or now - record.written_at >= _SERIES_SECONDS

    def _line_of(self, effect: Emit) -> deque[_Record]:
        return self._lines[effect.kind == "Pod" and effect.reason != _ONCE]

    def _next(self) -> _Record:
        self._turn = 1 - self._turn
        return (self._lines[self._turn] or self._lines[1 - self._turn]).popleft()

    def _enqueue(self, record: _Record) -> None:
        record.queued = True
        self._line_of(record.emit).append(record)
        self._there.set()
        self._idle.clear()

    def _drop(self, why: str) -> None:
        self._wiring.telemetry.add(Count.EVENTS_DROPPED)
        if self._dropped % _LOG_DROPS_EVERY == 0:
            _LOG.warning("events are dropped: %s (%d so far)", why, self._dropped + 1)
        self._dropped += 1

    def _name(self, effect: Emit, now: float) -> str:
        """`NAME.<hex>`: nanoseconds, and never the same twice."""
        self._stamp = max(self._stamp + 1, int(now * 1e9))
        suffix = f".{self._stamp:x}"
        # No part of such a name ends in these.
        return effect.name[: _NAME_LIMIT - len(suffix)].rstrip("-.") + suffix

    async def _work(self, place: Place, record: _Record) -> None:
        """Writes it, and others for as long as nobody more urgent waits for the place."""
        try:
            with place:
                await self._send(place, record)
                while self._waiting and place.again():
                    record = self._next()
                    await self._send(place, record)
        except KubeError as error:
            record.queued = False
            await self._failed(record, error)
        self._writing -= 1
        if not len(self):
            self._idle.set()

    def _written(self, record: _Record, count: int) -> None:
        record.queued = False
        record.written = count
        record.written_at = self._wiring.clock.time()
        record.tries = 0
        self._failures = 0
        self._wiring.telemetry.add(Count.EVENTS_WRITTEN)
        # What was repeated while it was being written.
        if record.count > count and count == 1:
            self._enqueue(record)

    async def _send(self, place: Place, record: _Record) -> None:
        namespace, count = record.emit.namespace or "default", record.count
        path = f"/apis/events.k8s.io/v1/namespaces/{segment(namespace)}/events"
        if record.written:
            series = {"count": count, "lastObservedTime": stamp(record.last, micro=True)}
            answer = await place.request(
                "PATCH",
                f"{path}/{segment(record.name)}",
                body=_encoder.encode({"series": series}),
                content_type=MERGE_PATCH,
            )
        else:
            event = self._event(record, namespace, count)
            answer = await place.request("POST", path, body=_encoder.encode(event))
        answer.checked()
        self._written(record, count)

    async def _failed(self, record: _Record, error: KubeError) -> None:
        """Puts it back after a rest, at most `tries` times; the others go on meanwhile."""
        if isinstance(error, Conflict) and not record.written:
            # It was created by a request whose answer we did not get.
            record.written, record.written_at = 1, self._wiring.clock.time()
            return
        if isinstance(error, NotFound) and record.written and record.tries < _TRIES:
            # The server forgets Events after an hour: the series starts anew.
            record.written = 0
            record.tries += 1
            self._enqueue(record)
            return
        if isinstance(error, StatusError) and not (
            error.server_fault or error.code in _WORTH_ANOTHER_TRY
        ):
            is_gone = isinstance(error, NotFound) and error.of_object  # its namespace
            if not is_gone and _GOING not in error.message:
                self._drop(str(error))
            return
        record.tries += 1
        self._failures += 1
        if self._failures == 1:
            _LOG.warning("events cannot be written: %s", error)
        if record.tries >= _TRIES:
            self._drop(str(error))
            return
        record.queued = True
        delay = _BACKOFF_SECONDS * 2.0 ** (record.tries - 1)
        delay = min(delay, _BACKOFF_LIMIT_SECONDS) * (1.0 + self._wiring.random.random())
        await self._wiring.reach.rest(self._wiring.sleep, delay)
        self._line_of(record.emit).appendleft(record)
        self._there.set()

    def _event(self, record: _Record, namespace: str, count: int) -> dict[str, object]:
        emit = record.emit
        by = emit.by or self._controller
        regarding = {"kind": emit.kind, "name": emit.name, "uid": emit.uid}
        if emit.namespace:
            regarding["namespace"] = emit.namespace
        if emit.kind in _API_VERSIONS:
            regarding["apiVersion"] = _API_VERSIONS[emit.kind]
        event: dict[str, object] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": record.name, "namespace": namespace},
            "eventTime": stamp(record.first, micro=True),
            "reportingController": by,
            "reportingInstance": f"{by}-{self._host}",
            "action": emit.action,
            "reason": emit.reason,
            "regarding": regarding,
            "type": emit.type,
            "note": emit.note,
        }
        if count > 1:
            event["series"] = {"count": count, "lastObservedTime": stamp(record.last, micro=True)}
        return event


_WORTH_ANOTHER_TRY = (401, 408, 429)
_GOING = "because it is being terminated"
"""Source: apiserver pkg/admission/plugin/namespace/lifecycle."""


def cut_note(note: str) -> str:
    """The note within the server's 1,024 bytes, cut between characters and marked with ` ...`."""
    raw = note.encode()
    if len(raw) <= _NOTE_LIMIT:
        return note
    return raw[: _NOTE_LIMIT - len(CUT)].decode("utf-8", "ignore") + CUT
