"""The refresher against an HTTP server on loopback that answers, hangs, refuses and rambles."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
import subprocess
import sys
import threading
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiohttp import web

from engine.clock import ManualClock
from engine.configuration.berth import PrometheusSection
from engine.objects import Node, ObjectMeta
from engine.signals.prometheus import PrometheusRefresher
from engine.signals.store import SignalStore
from engine.telemetry import Count, Telemetry
from tests.builders import Cache, make_metric
from tests.cluster.certificates import Authority
from tests.engine.loopback import listening

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
NOW = ManualClock().time()


def vector(**values: object) -> Answer:
    result = [
        {"metric": {"instance": f"{name}:9100"}, "value": [NOW, str(value)]}
        for name, value in values.items()
    ]
    return success({"resultType": "vector", "result": result})


def success(data: object) -> Answer:
    return text(json.dumps({"status": "success", "data": data}))


def text(body: str, code: int = 200) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=code, text=body)

    return answer


def sent_on(address: str) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": address})

    return answer


def raw(body: bytes) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body)

    return answer


async def hang(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(0.5)
    return web.Response()


async def drip(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(20):
        await response.write(b" ")
        await asyncio.sleep(0.02)
    return response


@dataclass
class Bench:
    url: str
    answers: list[Answer]
    clock: ManualClock = field(default_factory=ManualClock)
    telemetry: Telemetry = field(default_factory=Telemetry)
    asked: list[web.Request] = field(default_factory=list)
    came: int = 0

    def __post_init__(self) -> None:
        self.cache, self.store = Cache(), SignalStore(self.clock)
        for name in ("a", "b"):
            one = Node(metadata=ObjectMeta(name=name))
            self.cache.add_node(one)
            self.store.nodes_changed(None, one)

    def refresher(self, **section: Any) -> PrometheusRefresher:
        def came() -> None:
            self.came += 1

        async def sleep(seconds: float) -> None:
            self.clock.advance(seconds)
            await asyncio.sleep(0)

        return PrometheusRefresher(
            self.store,
            PrometheusSection(**{"url": self.url, **section}),
            clock=self.clock,
            telemetry=self.telemetry,
            came=came,
            sleep=sleep,
        )

    def read(self, metric: str = "m") -> list[float]:
        view = self.store.view(self.cache, self.clock.time())
        return [float(x) for x in view.column(metric)[:2]]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(request)


@asynccontextmanager
async def serving(*answers: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[Bench]:
    bench = Bench("", list(answers))
    async with listening(bench.handle, tls) as port:
        bench.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{port}/"
        yield bench


SPEC = make_metric("m", 'rate(x{device="eth0"}[5m])')


async def test_one_question_for_all_nodes_when_it_is_due():
    async with serving(vector(a=1, b=2), vector(a=3, b="NaN", c="+Inf")) as bench:
        bench.store.set_specs([SPEC])
        refresher = bench.refresher()
        assert await refresher.turn() == 15.0
        assert bench.read() == [1, 2]
        request = bench.asked[0]
        assert (request.path, request.query["query"]) == ("/api/v1/query", SPEC.query)
        bench.clock.advance(14.0)
        assert await refresher.turn() == 1.0
        bench.clock.advance(1.0)
        await refresher.turn()
        assert bench.read() == [3, 2]
        assert (len(bench.asked), bench.came) == (2, 2)
        assert bench.telemetry[Count.SIGNAL_QUERIES] == 2


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (text("<html>"), "cannot be read"),
        (text("[]"), "cannot be read"),
        (
            text('{"status":"error","error":"parse error at char 3"}', 400),
            "400: parse error at char 3",
        ),
        (text('{"status":"error","error":"odd"}'), "odd"),
        (text("moved", 404), "404: moved"),
        (text("", 404), "404: http://127.0.0.1:"),
        (success({"resultType": "scalar", "result": [NOW, "1"]}), "a scalar; write vector("),
        (success({"resultType": "matrix", "result": []}), "a matrix; leave the range out"),
        (success({"resultType": "string", "result": [NOW, "x"]}), "a string; series are needed"),
        (success({"resultType": "vector", "result": [{"metric": {}}]}), "cannot be read"),
        (
            success({"resultType": "vector", "result": [{"metric": {}, "histogram": [NOW, {}]}]}),
            "it has native histograms; write histogram_quantile(...) or the like",
        ),
        (text(" " * 3000), "too large"),
        (success(f"{'[' * 900}{']' * 900}"), "cannot be read"),
        (raw(b'{"status":"success","x":%b,"data":7}' % (b"[" * 900 + b"]" * 900)), "cannot be"),
        (raw(b'{"status":"\xff"}'), "the answer cannot be read: invalid UTF-8"),
        (raw(b'{"status":"error","error":"a\\nb\\u001b"}'), "a b\\x1b"),
        (text("elsewhere", 302), "302: elsewhere"),
        (
            sent_on("https://p:9090/api"),
            "302: it redirects to https://p:9090/api; give that address",
        ),
    ],
)
async def test_a_bad_question_is_left_alone_and_the_others_go_on(
    answer: Answer, why: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "engine")
    async with serving(vector(a=1), answer) as bench:
        bench.store.set_specs([SPEC])
        refresher = bench.refresher()
        refresher._server.most_bytes = 2000
        waits = []
        for _ in range(5):
            waits.append(await refresher.turn())
            bench.clock.advance(waits[-1])
        assert waits == [15, 15, 30, 60, 60]
        assert bench.read()[0] != bench.read()[0], "stale by now"
        [status] = bench.store.status()
        assert why in status.error
        assert status.age_seconds == 180
        bench.answers[:] = [vector(a=2)]
        await refresher.turn()
        assert bench.store.status()[0].error == ""
        assert [r.levelname for r in caplog.records if r.name.startswith("engine")] == [
            "WARNING",
            "INFO",
        ]
        bench.clock.advance(15.0)
        bench.answers[:] = [answer]
        assert await refresher.turn() == 15, "the backoff started anew"


@pytest.mark.parametrize("answer", [hang, drip, text("busy", 503), text("slow down", 429)])
async def test_a_server_that_does_not_answer_is_asked_once_for_all(
    answer: Answer, caplog: pytest.LogCaptureFixture
):
    async with serving(answer) as bench:
        bench.store.set_specs(
            [SPEC, make_metric("n", "other"), make_metric("o", "third", name="third one")]
        )
        short = answer in (hang, drip)
        refresher = bench.refresher(timeout_seconds=0.04 if short else 5.0)
        assert await refresher.turn() == 15.0
        assert bench.telemetry[Count.SIGNAL_QUERIES] == 1
        assert all(status.error for status in bench.store.status())
        (told,) = [r for r in caplog.records if r.name.startswith("engine")]
        assert told.message.endswith("until they are stale: m, n, third one")
        bench.clock.advance(15.0)
        assert await refresher.turn() == 30.0
        if short:
            return
        bench.answers[:] = [vector(a=1)]
        bench.clock.advance(30.0)
        await refresher.turn()
        assert len(bench.asked) == 5
        assert not any(status.error for status in bench.store.status())


@pytest.mark.parametrize(
    ("head", "drop"),
    [
        (b"", b"\n"),
        (b"HTTP/1.1 200 OK\r\nX: ", b" "),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n", b" "),
    ],
)
async def test_one_deadline_over_headers_and_body_and_no_thread_stays(head: bytes, drop: bytes):
    """Byte by byte, each in time, for as long as the other side listens."""
    gone = asyncio.Event()

    async def dribble(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(drop)
                await writer.drain()
                await asyncio.sleep(0.005)
        writer.close()
        gone.set()

    before = threading.active_count()
    server = await asyncio.start_server(dribble, "127.0.0.1", 0)
    bench = Bench(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", [])
    bench.store.set_specs([SPEC])
    async with asyncio.timeout(20):
        await bench.refresher(timeout_seconds=0.05).turn()
        assert bench.store.status()[0].error == "no complete answer in time"
        while threading.active_count() > before:  # noqa: ASYNC110 - a few turns of the loop
            await asyncio.sleep(0.005)
        await gone.wait()
    server.close()


HANGING = """
import asyncio, socket

from engine.clock import SystemClock
from engine.configuration.berth import PrometheusSection
from engine.signals.prometheus import PrometheusRefresher
from engine.signals.store import SignalStore
from engine.telemetry import Telemetry
from tests.builders import make_metric

async def main():
    server = socket.create_server(("127.0.0.1", 0))
    clock = SystemClock()
    store = SignalStore(clock)
    store.set_specs([make_metric("m", "x")])
    url = f"http://127.0.0.1:{server.getsockname()[1]}"
    section = PrometheusSection(url=url, timeout_seconds=60.0)
    task = asyncio.create_task(
        PrometheusRefresher(store, section, clock=clock, telemetry=Telemetry()).run()
    )
    await asyncio.to_thread(server.accept)
    task.cancel()

asyncio.run(main())
print("ended")
"""


def test_a_process_ends_whatever_prometheus_does():
    ran = subprocess.run(
        [sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.stdout, ran.stderr, ran.returncode) == ("ended\n", "", 0)


async def test_a_refused_connection_keeps_the_values_until_they_are_stale(
    caplog: pytest.LogCaptureFixture,
):
    async with serving(vector(a=1)) as bench:
        bench.store.set_specs([SPEC])
        asked = bench.url.replace("//", "//me:s3cret@")
        refresher = bench.refresher(url=asked)
        await refresher.turn()
    bench.clock.advance(15.0)
    await refresher.turn()
    assert f"Prometheus at {bench.url} cannot be asked (connection refused)" in caplog.text
    assert bench.read()[0] == 1
    assert bench.store.status()[0].error == "connection refused"
    bench.clock.advance(106.0)
    assert bench.read()[0] != 1


async def test_the_cycle_does_not_wait_for_a_hung_server():
    async with serving(hang) as bench:
        bench.store.set_specs([SPEC])
        task = asyncio.create_task(bench.refresher().run())
        while not bench.asked:  # noqa: ASYNC110 - a few turns of the loop
            await asyncio.sleep(0.001)
        assert bench.read()[0] != bench.read()[0], "no value yet"
        assert (bench.store.status()[0].error, bench.came) == ("", 0), "the question is open"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_run_asks_new_metrics_soon():
    async with serving(vector(a=1)) as bench:
        task = asyncio.create_task(bench.refresher().run())
        await asyncio.sleep(0.001)
        bench.store.set_specs([SPEC])
        while not bench.came:  # noqa: ASYNC110 - a few turns of the loop
            await asyncio.sleep(0.001)
        bench.read()
        assert bench.store.status()[0].matched == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_token_is_read_each_time(tmp_path: Path):
    token = tmp_path / "token"
    async with serving(vector(a=1)) as bench:
        bench.store.set_specs([SPEC])
        refresher = bench.refresher(token_file=str(token), headers={"X-Scope-OrgID": "a|b"})
        await refresher.turn()
        assert "token file" in bench.store.status()[0].error
        for word in ("one", "two"):
            token.write_text(word + "\n")
            bench.clock.advance(15.0)
            await refresher.turn()
            headers = bench.asked[-1].headers
            assert headers["Authorization"] == f"Bearer {word}"
            assert headers["X-Scope-OrgID"] == "a|b"


async def test_a_password_is_read_each_time_and_shown_as_basic_auth(tmp_path: Path):
    password = tmp_path / "password"
    async with serving(vector(a=1)) as bench:
        bench.store.set_specs([SPEC])
        refresher = bench.refresher(username="us er", password_file=str(password))
        for text, why in (("", "it is empty"), ("a\nb", "it has several lines")):
            password.write_text(text)
            bench.clock.advance(120.0)
            await refresher.turn()
            assert bench.store.status()[0].error == f"password file {password}: {why}"
        password.write_text("ö:1\n")
        bench.clock.advance(120.0)
        await refresher.turn()
        shown = bench.asked[-1].headers["Authorization"].removeprefix("Basic ")
        assert b64decode(shown).decode() == "us er:ö:1"


async def test_tls_trusts_the_file_as_it_is_now(tmp_path: Path):
    """First no file, then another's authority, then the right one; then none is needed."""
    authority = Authority(tmp_path / "right")
    trusted = tmp_path / "ca.crt"
    async with serving(vector(a=1), tls=authority.tls()) as bench:
        bench.store.set_specs([SPEC])
        refresher = bench.refresher(ca_file=str(trusted))
        errors = []
        for file in (None, Authority(tmp_path / "wrong").certificate, authority.certificate):
            if file is not None:
                trusted.write_bytes(file.read_bytes())
            bench.clock.advance(120.0)
            await refresher.turn()
            errors.append(bench.store.status()[0].error)
        assert errors[0] == f"CA file {trusted}: No such file or directory"
        assert "CERTIFICATE_VERIFY_FAILED" in errors[1]
        assert errors[2] == ""
        bench.clock.advance(120.0)
        await bench.refresher(insecure_skip_verify=True).turn()
        assert bench.store.status()[0].error == ""


async def test_replicas_come_back_to_a_server_that_was_away_one_after_the_other():
    due = []
    for seed in range(3):
        async with serving(text("", 500)) as bench:
            bench.store.set_specs([SPEC])
            refresher = PrometheusRefresher(
                bench.store,
                PrometheusSection(url=bench.url),
                clock=bench.clock,
                telemetry=bench.telemetry,
                random=Random(seed),
            )
            due.append(await refresher.turn())
    assert len(set(due)) == 3
    assert all(15.0 <= seconds <= 18.0 for seconds in due)


async def test_a_metric_that_is_no_longer_read_is_no_longer_asked():
    async with serving(vector(a=1)) as bench:
        bench.store.set_specs([SPEC])
        refresher = bench.refresher()
        await refresher.turn()
        bench.store.set_specs([])
        bench.clock.advance(15.0)
        await refresher.turn()
        assert len(bench.asked) == 1


async def test_one_value_of_the_cluster():
    spec = make_metric("m", "sum(x)", of="cluster")
    answers = [
        success({"resultType": "vector", "result": [{"metric": {}, "value": [NOW, "4"]}]}),
        vector(a=1, b=2),
    ]
    async with serving(*answers) as bench:
        bench.store.set_specs([spec])
        refresher = bench.refresher()
        await refresher.turn()
        view = bench.store.view(bench.cache, NOW)
        assert view.values("m") == {(): 4.0}
        assert (bench.asked[0].query["query"], bench.came) == ("sum(x)", 1)
        bench.clock.advance(15.0)
        await refresher.turn()
        assert bench.store.view(bench.cache, NOW).values("m") == {}
        assert bench.came == 2, "pods are told of a value that went, too"
