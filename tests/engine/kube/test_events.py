from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from random import Random
from typing import Any

import pytest

from engine.clock import ManualClock
from engine.framework.edge import EventSink
from engine.framework.effects import Emit, pod_event
from engine.kube import events
from engine.kube.client import Response
from engine.kube.errors import Unreachable
from engine.kube.events import KubeEventSink, cut_note
from engine.kube.gate import AdaptiveLimit, Gate, Priority
from engine.kube.wiring import Wiring
from engine.objects import ObjectMeta, Pod, PodSpec
from engine.pods.podinfo import PodInfo, make_pod_info
from engine.telemetry import Count, Telemetry
from tests.scenarios.fake_server import status


class Server:
    """Takes Events; `answers` are codes, taken one a request, 201 when there are none left."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.body = b"{}"
        self.got: list[tuple[str, str, dict[str, Any]]] = []
        self.hold: asyncio.Event | None = None

    async def request(self, method, path, *, body, timeout_seconds, content_type="", **how):
        assert "params" not in how
        assert content_type or method == "POST"
        assert timeout_seconds
        if self.hold is not None:
            await self.hold.wait()
        code = self.answers.pop(0) if self.answers else 201
        if not code:
            raise Unreachable("connection refused")
        self.got.append((method, path, json.loads(body or b"{}")))
        return Response(code, {"retry-after": "3"} if code == 429 else {}, self.body)

    def stream(
        self, path: str, *, params: Mapping[str, str] | None = None, read_timeout_seconds: float
    ) -> AsyncGenerator[bytes, None]:
        raise AssertionError((path, params, read_timeout_seconds))


def emit(name: str = "p", note: str = "no room", reason: str = "FailedScheduling") -> Emit:
    return Emit("Pod", "d", name, "u1", "Warning", reason, "Scheduling", note)


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class Bench:
    def __init__(self, at_once: int = 8) -> None:
        self.clock = ManualClock()
        self.telemetry = Telemetry()
        self.server = Server()
        self.slept: list[float] = []

        async def sleep(seconds: float) -> None:
            self.slept.append(seconds)
            self.clock.advance(seconds)
            await asyncio.sleep(0)

        wiring = Wiring(self.clock, self.telemetry, Random(1), sleep)
        limit = AdaptiveLimit(start=at_once, least=at_once, most=at_once)
        self.gate = Gate(self.server, wiring, limit=limit)
        self.sink = KubeEventSink(self.gate, wiring, controller="berth", host="h")

    async def write(self) -> None:
        task = asyncio.create_task(self.sink.run())
        for _ in range(200):
            await asyncio.sleep(0)
        if task.done():
            task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    @property
    def methods(self) -> list[str]:
        return [method for method, *_ in self.server.got]


async def test_an_event_on_the_wire():
    bench = Bench()
    sink: EventSink = bench.sink
    sink.emit(emit())
    await bench.write()
    [(method, path, body)] = bench.server.got
    assert (method, path) == ("POST", "/apis/events.k8s.io/v1/namespaces/d/events")
    name = body["metadata"].pop("name")
    assert name.startswith("p.")
    assert int(name.removeprefix("p."), 16)
    assert body == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "d"},
        "eventTime": "2025-03-01T10:00:00.000000Z",
        "reportingController": "berth",
        "reportingInstance": "berth-h",
        "action": "Scheduling",
        "reason": "FailedScheduling",
        "regarding": {
            "kind": "Pod",
            "namespace": "d",
            "name": "p",
            "uid": "u1",
            "apiVersion": "v1",
        },
        "type": "Warning",
        "note": "no room",
    }
    assert bench.telemetry[Count.EVENTS_WRITTEN] == 1


async def test_an_event_comes_from_the_profile_of_the_pod_that_is_placed():
    """Source: kubernetes pkg/scheduler/profile, NewMap: each has a recorder of its own."""

    def of(profile: str) -> PodInfo:
        return make_pod_info(Pod(ObjectMeta("p", "d", "u"), PodSpec(scheduler_name=profile)))

    bench = Bench()
    narrow, victim = of("narrow"), of("default-scheduler")
    bench.sink.emit(pod_event(narrow, "Warning", "FailedScheduling", "Scheduling", "no room"))
    bench.sink.emit(pod_event(victim, "Normal", "Preempted", "Preempting", "gone", narrow))
    bench.sink.emit(emit())
    await bench.write()
    told = [
        (body["reportingController"], body["reportingInstance"]) for _, _, body in bench.server.got
    ]
    assert told == [("narrow", "narrow-h"), ("narrow", "narrow-h"), ("berth", "berth-h")]


async def test_repeats_become_a_series_written_at_once_and_then_once_a_minute():
    bench = Bench()
    bench.sink.emit(emit())
    await bench.write()
    for _ in range(100):
        bench.clock.advance(1.0)
        bench.sink.emit(emit())
        await bench.write()
    assert bench.methods == ["POST", "PATCH", "PATCH"]
    assert [body["series"]["count"] for _, _, body in bench.server.got[1:]] == [2, 62]
    bench.clock.advance(400.0)
    bench.sink.emit(emit())
    bench.sink.emit(emit(note="another reason"))
    await bench.write()
    assert bench.methods[3:] == ["POST", "POST"]


async def test_repeats_while_it_is_being_written_are_one_event_with_a_count():
    bench = Bench()
    bench.server.hold = asyncio.Event()
    task = asyncio.create_task(bench.sink.run())
    bench.sink.emit(emit())
    await asyncio.sleep(0.01)
    bench.sink.emit(emit())
    await asyncio.sleep(0.01)
    bench.server.hold.set()
    assert await bench.sink.flush(5.0)
    task.cancel()
    assert [method for method, _, _ in bench.server.got] == ["POST", "PATCH"]
    assert bench.server.got[1][2]["series"]["count"] == 2


async def test_repeats_while_it_waits_are_one_event_with_a_count():
    bench = Bench()
    for _ in range(3):
        bench.sink.emit(emit())
    await bench.write()
    [(_, _, body)] = bench.server.got
    assert body["series"]["count"] == 3


async def test_a_full_buffer_drops_and_counts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(events, "_CAPACITY", 5)
    bench = Bench()
    for i in range(8):
        bench.sink.emit(emit(f"p{i}"))
    assert bench.telemetry[Count.EVENTS_DROPPED] == 3
    await bench.write()
    assert len(bench.server.got) == 5


async def test_what_is_told_of_one_pod_or_edit_does_not_wait_behind_thousands_that_are_not_placed():
    bench = Bench(at_once=1)
    for number in range(50):
        bench.sink.emit(emit(f"p{number}"))
    bench.sink.emit(emit("placed", reason="Scheduled"))
    bench.sink.emit(Emit("ConfigMap", "d", "policies", "u", "Normal", "PoliciesInForce", "", ""))
    await bench.write()
    told = [body["regarding"]["name"] for _, _, body in bench.server.got]
    assert sorted(map(told.index, ("p0", "p1", "placed", "policies"))) == [0, 1, 2, 3]
    assert [one for one in told if one[0] == "p" and one[1:].isdecimal()] == [
        f"p{number}" for number in range(50)
    ]


async def test_three_hundred_a_second_are_written_as_fast_as_the_server_answers(
    monkeypatch: pytest.MonkeyPatch,
):
    """While bindings are in flight all the time, and for longer than the buffer would last."""
    monkeypatch.setattr(events, "_CAPACITY", 1000)
    bench = Bench(at_once=10)
    task = asyncio.create_task(bench.sink.run())
    for number in range(6000):
        with await bench.gate.place(Priority.BINDING):
            bench.sink.emit(emit(f"p{number}", reason="Scheduled"))
            await asyncio.sleep(0)
            bench.clock.advance(1 / 300)
    assert len(bench.sink) < 20
    assert bench.telemetry[Count.EVENTS_DROPPED] == 0
    assert await bench.sink.flush(5.0)
    assert len(bench.server.got) == 6000
    await end(task)


async def test_ten_thousand_pods_told_three_times_are_two_writes_each():
    bench = Bench()
    task = asyncio.create_task(bench.sink.run())
    for _ in range(3):
        for number in range(10_000):
            bench.sink.emit(emit(f"p{number}"))
        assert await bench.sink.flush(30.0)
        bench.clock.advance(20.0)
    assert Counter(bench.methods) == {"POST": 10_000, "PATCH": 10_000}
    await end(task)


async def test_what_is_remembered_has_an_end_in_number_length_and_time(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(events, "_REMEMBERED", 10)
    monkeypatch.setattr(events, "_REMEMBERED_LETTERS", 1000)
    bench = Bench()
    for number in range(20):
        bench.sink.emit(emit(f"p{number}"))
    assert len(bench.sink._known) == 10
    bench.sink.emit(emit("long", "x" * 900))
    assert sum(len(one.emit.note) for one in bench.sink._known.values()) <= 1000
    bench.clock.advance(400.0)
    bench.sink.emit(emit("new", "y"))
    bench.sink.emit(emit("bound", reason="Scheduled"))
    assert [one.emit.name for one in bench.sink._known.values()] == ["new"], "and what is told once"
    assert bench.sink._letters == 1


async def test_troubles():
    bench = Bench(at_once=1)
    # Unreachable, 500, 429: tried again. 409 on create: it is there. 403: dropped.
    bench.server.answers = [0, 500, 429, 201, 409, 403]
    for i in range(3):
        bench.sink.emit(emit(f"p{i}"))
    while len(bench.sink):
        await bench.write()
    assert bench.telemetry[Count.EVENTS_WRITTEN] == 1
    assert bench.telemetry[Count.EVENTS_DROPPED] == 1
    assert max(bench.slept) >= 3.0, "Retry-After"


@pytest.mark.parametrize(
    ("code", "reason", "message"),
    [
        (403, "Forbidden", "unable to create new content in namespace d because it is being "
                           "terminated"),
        (404, "NotFound", 'namespaces "d" not found'),
    ],
)  # fmt: skip
async def test_a_namespace_that_goes_takes_its_events_along(
    code: int, reason: str, message: str, caplog: pytest.LogCaptureFixture
):
    """Nobody is to be alarmed by that: `BerthEventsDropped` is about others."""
    bench = Bench()
    bench.server.answers, bench.server.body = [code], status(code, message, reason)
    bench.sink.emit(emit())
    await bench.write()
    assert bench.methods == ["POST"]
    assert not len(bench.sink)
    assert bench.telemetry[Count.EVENTS_DROPPED] == 0
    assert not caplog.records


async def test_an_event_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(events, "_TRIES", 3)
    bench = Bench()
    bench.server.answers = [0] * 3
    bench.sink.emit(emit())
    while len(bench.sink):
        await bench.write()
    assert bench.telemetry[Count.EVENTS_DROPPED] == 1
    assert not bench.server.got


async def test_an_event_is_not_written_where_a_proxy_asks_to_log_in():
    bench = Bench()
    bench.server.body = b"<html>"
    bench.sink.emit(emit())
    while len(bench.sink):
        await bench.write()
    assert bench.methods == ["POST"] * 5
    assert bench.telemetry[Count.EVENTS_WRITTEN] == 0
    assert bench.telemetry[Count.EVENTS_DROPPED] == 1


async def test_a_series_whose_event_the_server_forgot_starts_anew():
    bench = Bench()
    bench.sink.emit(emit())
    await bench.write()
    bench.server.answers = [404]
    bench.sink.emit(emit())
    await bench.write()
    assert bench.methods == ["POST", "PATCH", "POST"]


async def test_flush_waits_for_what_is_left_within_its_bound():
    bench = Bench()
    task = asyncio.create_task(bench.sink.run())
    for i in range(50):
        bench.sink.emit(emit(f"p{i}"))
    assert await bench.sink.flush(1.0)
    assert len(bench.server.got) == 50
    bench.server.hold = asyncio.Event()
    bench.sink.emit(emit("last"))
    assert not await bench.sink.flush(0.01)
    await end(task)


async def test_notes_are_cut_and_made_harmless_before_they_are_remembered():
    bench = Bench()
    for end in "ab":
        bench.sink.emit(emit(note="no\nroom\x1b[2J " + "x" * 250_000 + end))
    bench.sink.emit(Emit("ConfigMap", "d", "c", "u2", "Normal", "R", "Reload", "a\nb\x1b"))
    await bench.write()
    note, ours = (body["note"] for _, _, body in bench.server.got)
    assert note.startswith(r"no\nroom\x1b[2J xxx")
    assert len(note) == 1024
    assert ours == "a\nb\\x1b"
    assert bench.server.got[0][2]["series"]["count"] == 2, "two that are cut alike are one"


async def test_a_name_that_is_cut_is_still_one():
    bench = Bench()
    bench.sink.emit(emit("a" * 234 + "--.-b" + "c" * 14))
    await bench.write()
    [(_, _, body)] = bench.server.got
    assert re.fullmatch(r"a{234}\.[0-9a-f]+", body["metadata"]["name"])


def test_notes_are_cut_between_characters():
    assert cut_note("x" * 1024) == "x" * 1024
    cut = cut_note("ä" * 1000)
    assert len(cut.encode()) <= 1024
    assert cut.endswith("ä ...")
