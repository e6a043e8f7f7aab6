"""Requests over kept connections against a scripted server of bytes."""

from __future__ import annotations

import asyncio
import itertools
import socket
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.channels import Answer, Broken, Channels, NotConnected, header_lines
from engine.tls import trusting

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Id: 7\r\n\r\nhi"
CHUNKED = (
    b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
)
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

END = b""
"""In place of a piece: the server closes the connection there."""
Reply = Sequence[bytes] | None
"""What the server writes, piece by piece; None: it closes the connection instead."""


class Server:
    """Answers each request with the next reply; counts connections and requests."""

    def __init__(self, replies: Iterator[Reply]) -> None:
        self.replies = replies
        self.connections = 0
        self.requests: list[bytes] = []
        self.asked = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (int(x[15:]) for x in head.split(b"\r\n") if x.startswith(b"Content-Length:")),
                    0,
                )
                self.requests.append(head + await reader.readexactly(length))
                self.asked.set()
                reply = next(self.replies)
                if reply is None:
                    return
                for piece in reply:
                    if piece is END:
                        return
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def answering(*replies: Reply) -> AsyncIterator[tuple[Channels, Server]]:
    """Channels to a server that gives these replies."""
    server = Server(iter(replies))
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    channels = Channels(f"http://127.0.0.1:{port}")
    try:
        yield channels, server
    finally:
        channels.close()
        listener.close()


def get(channels: Channels, *, method: str = "GET", silence: float = 20.0) -> Awaitable[Answer]:
    return channels.request(method, "/x", "", again=method == "GET", silence=silence)


def pieces(answer: bytes, cuts: set[int]) -> list[bytes]:
    at = [0, *sorted(cut for cut in cuts if cut < len(answer)), len(answer)]
    return [answer[a:b] for a, b in itertools.pairwise(at)]


@given(st.sampled_from([OK, b"\r\n" + OK, CHUNKED, INTERIM + OK]), st.sets(st.integers(1, 90)))
def test_an_answer_is_the_same_however_its_bytes_are_cut(answer: bytes, cuts: set[int]):
    async def main() -> None:
        async with answering(pieces(answer, cuts), [OK]) as (channels, server):
            first, second = await get(channels), await get(channels)
        assert (first.status, first.body) == (
            (201, b"abcde") if answer == CHUNKED else (200, b"hi")
        )
        assert first.headers.get("x-id") == (None if answer == CHUNKED else "7")
        assert second.headers["x-id"] == "7"
        assert server.connections == 1

    asyncio.run(main())


def streamed(channels: Channels) -> Awaitable[Answer]:
    return channels.request("GET", "/x", "", again=True, silence=20.0, streams=True)


@given(st.sampled_from([CHUNKED, INTERIM + OK, LAST]), st.sets(st.integers(1, 90)))
def test_a_stream_gives_all_that_comes_however_its_bytes_are_cut(answer: bytes, cuts: set[int]):
    """Its connection is used again once it was read to its end, and not before."""

    async def main() -> None:
        async with answering(pieces(answer, cuts), [OK], [OK]) as (channels, server):
            first = await streamed(channels)
            await get(channels)
            assert server.connections == 2
            body = b"".join([piece async for piece in first.pieces()])
            first.close()
            assert body == {CHUNKED: b"abcde", LAST: b""}.get(answer, b"hi")
            assert (await get(channels)).body == b"hi"
        assert server.connections == 2

    asyncio.run(main())


async def test_of_a_stream_that_nobody_reads_no_more_is_taken_than_is_soon_needed():
    lines = [b"x" * 65536] * 400
    length = f"Content-Length: {sum(map(len, lines))}\r\n\r\n".encode()
    async with answering([b"HTTP/1.1 200 OK\r\n" + length, *lines]) as (channels, _):
        answer = await streamed(channels)
        for _ in range(4000):
            await asyncio.sleep(0)
        pieces = [len(piece) async for piece in answer.pieces()]
        assert pieces[0] < 4 << 20
        assert sum(pieces) == 400 * 65536


async def test_a_stream_that_is_cut_or_left():
    async with answering([CHUNKED[:-5], END], [CHUNKED], [OK]) as (channels, server):
        cut = await streamed(channels)
        with pytest.raises(Broken, match="in the middle"):
            _ = [piece async for piece in cut.pieces()]
        (await streamed(channels)).close()
        assert (await get(channels)).body == b"hi"
    assert server.connections == 3


async def test_of_two_answers_to_a_request_the_first_counts_and_the_connection_goes():
    switched = b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
    async with answering([OK + OK], [CHUNKED + LAST], [switched]) as (channels, server):
        assert (await get(channels)).body == b"hi"
        stream = await streamed(channels)
        assert b"".join([piece async for piece in stream.pieces()]) == b"abcde"
        with pytest.raises(Broken, match="not HTTP"):
            await get(channels, method="POST")
    assert server.connections == 3


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ([b"HTTP/1.1 407 Who?\r\nContent-Length: 2\r\n\r\nno"], "it answers 407"),
        (None, "closed by the server"),
        ([b"SSH-2.0-x\r\n\r\n"], "not HTTP"),
        ([b"HTTP/1.1 200 OK\r\n\r\n", END], ""),
    ],
)
async def test_a_proxy_that_leads_nowhere_was_sent_nothing_of_ours(answer: Reply, why: str):
    async with answering(answer) as (channels, server):
        through = f"http://me:p%40w@127.0.0.1:{channels._via.port}"
        tunnelled = Channels("https://h.invalid", trusting(None), proxy=through)
        with pytest.raises(NotConnected, match=why or None):
            await get(tunnelled)
        word = b"Proxy-Authorization: Basic " + b64encode(b"me:p@w")
        assert server.requests[0].startswith(b"CONNECT h.invalid:443 HTTP/1.1\r\n")
        assert word in server.requests[0]
    assert len(server.requests) == 1


async def test_a_header_costs_no_call():
    more = OK.replace(b"X-Id", b"X-Ids: 7\r\nX-Id")
    found = []
    async with answering([OK], [more], [OK]) as (channels, _):
        await get(channels)
        for _ in range(2):
            names: list[str] = []
            sys.setprofile(lambda frame, *_, to=names: to.append(frame.f_code.co_qualname))
            try:
                await get(channels)
            finally:
                sys.setprofile(None)
            found.append([name for name in names if name.startswith("_Channel.")])
    with_more, without = found
    assert with_more == without
    assert "_Channel.data_received" in without


async def test_headers_without_end_end_the_request():
    endless = [b"HTTP/1.1 200 OK\r\n", *[b"X-Id: 7\r\n" * 1000] * 20]
    async with answering(endless) as (channels, _):
        with pytest.raises(Broken, match="headers without end"):
            await get(channels)


async def test_the_server_may_want_a_new_connection():
    async with answering([LAST], [OK]) as (channels, server):
        await get(channels)
        await get(channels)
    assert server.connections == 2


async def test_as_many_connections_as_requests_at_a_time():
    async with answering(*[[OK]] * 10) as (channels, server):
        await asyncio.gather(*[get(channels) for _ in range(5)])
        await asyncio.gather(*[get(channels) for _ in range(5)])
    assert server.connections == 5


async def test_a_connection_found_closed_matters_only_where_the_request_may_not_be_sent_twice() -> (
    None
):
    async with answering([OK], None, [OK], None) as (channels, server):
        await get(channels)
        await get(channels)
        with pytest.raises(Broken):
            await get(channels, method="POST")
    assert len(server.requests) == 4


async def test_a_server_that_closes_at_once_is_not_asked_for_ever():
    async with answering(None) as (channels, _):
        with pytest.raises(Broken):
            await get(channels)


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-x\r\n\r\n", OK[:-1], b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20000]
)
async def test_what_is_no_whole_answer(answer: bytes):
    async with answering([answer], [OK]) as (channels, _):
        with pytest.raises((Broken, TimeoutError)):
            await get(channels, silence=0.05)
        assert (await get(channels)).body == b"hi"


async def test_an_answer_without_a_length_ends_with_the_connection():
    old = b"HTTP/1.0 200 OK\r\nX-Id: 7\r\n\r\n"
    async with answering([old, b"so", b" long", END], [OK]) as (channels, server):
        found = [await get(channels), await get(channels)]
    assert [(one.status, one.body) for one in found] == [(200, b"so long"), (200, b"hi")]
    assert server.connections == 2
    for short in ([OK[:-1], END], [CHUNKED[:-5], END], [old[:-2], END]):
        async with answering(short) as (channels, _):
            with pytest.raises(Broken):
                await get(channels, method="POST")


async def test_who_gives_up_leaves_no_answer_behind_for_others():
    async with answering((), [OK]) as (channels, server):
        task = asyncio.ensure_future(get(channels))
        await server.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await get(channels)).body == b"hi"
    assert server.connections == 2


async def test_less_time_counts_after_a_request_that_had_more():
    """The timer of the one before must not be the one's of the next."""
    async with answering([OK], ()) as (channels, _):
        await get(channels, silence=3600.0)
        with pytest.raises(TimeoutError):
            await get(channels, silence=0.05)


async def test_after_renewal_open_connections_are_not_used():
    async with answering(*[[OK]] * 2) as (channels, server):
        await get(channels)
        channels.renew(None)
        await get(channels)
    assert server.connections == 2


async def test_nobody_listens():
    listener = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    listener.close()
    await listener.wait_closed()
    with pytest.raises(NotConnected) as refused:
        await get(Channels(f"http://127.0.0.1:{port}"))
    assert isinstance(refused.value.cause, ConnectionRefusedError)


def test_of_several_addresses_a_silent_one_hides_no_other() -> None:
    """Where more wait to be accepted than there is room for, nobody hears of a new connection."""

    class Loop(asyncio.SelectorEventLoop):
        async def getaddrinfo(self, *_: Any, **__: Any) -> Any:
            first = (socket.AF_INET, socket.SOCK_STREAM, 6, "", full.getsockname())
            return [first, (*first[:4], ("127.0.0.1", first[4][1]))]

    async def main() -> None:
        listener = await asyncio.start_server(Server(iter([[OK]])).serve, sock=good)
        channels = Channels(f"http://several.example:{full.getsockname()[1]}")
        assert (await get(channels)).body == b"hi"
        channels.close()
        listener.close()

    with ExitStack() as stack:
        full, good, *waiting = (stack.enter_context(socket.socket()) for _ in range(5))
        full.bind(("127.0.0.2", 0))
        full.listen(0)
        good.bind(("127.0.0.1", full.getsockname()[1]))
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        with asyncio.Runner(loop_factory=Loop) as runner:
            runner.run(main())


def test_headers_have_no_line_breaks():
    with pytest.raises(ValueError, match="line break"):
        header_lines({"Authorization": "Bearer a\r\nX: y"})
