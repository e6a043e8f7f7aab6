"""Keep-alive HTTP/1.1 connections to one server, straight or through a proxy.

A third of the cost of a bound pod is the HTTP client (docs/decisions/0013); this one is the
least that the API server needs: llhttp reads the answers, the loop's transports do TLS. No
redirects, no compression, no cookies.

    idle ─▶ request written [─▶ head ─▶ pieces] ─▶ answer whole ─▶ idle | closed, if the server
                  └─ silence, end of time, broken, cancelled ─▶ closed                 says so
"""

from __future__ import annotations

import asyncio
import math
import ssl
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from socket import AI_NUMERICHOST, SOCK_STREAM, gaierror, getaddrinfo
from typing import Final, cast
from urllib.parse import unquote, urlsplit

import httptools
import msgspec
from aiohappyeyeballs import AddrInfoType, start_connection

_INTERIM: Final = 200
_MOST_HEADER_BYTES: Final = 64 << 10
_CONNECT_SECONDS: Final = 5.0
_NEXT_ADDRESS_SECONDS: Final = 0.25
"""After which the next address of a name is tried as well."""
_TOTAL_FACTOR: Final = 4.0
"""An answer may take so many times the timeout of a silence in it."""
_AHEAD_BYTES: Final = 1 << 20
"""Unread bytes of a stream at which reading pauses."""
_OK: Final = 200
_BARE: Final = frozenset({"GET", "CONNECT"})
"""Methods whose requests have no Content-Length if there is no body."""


class NotConnected(Exception):  # noqa: N818 - a state of the request
    """No connection could be made: nothing was sent."""

    def __init__(self, cause: OSError | Broken) -> None:
        super().__init__(str(cause))
        self.cause = cause
        """A TimeoutError if it took too long."""


class Broken(Exception):  # noqa: N818 - a state of the request
    """The connection ended, or sent something else than HTTP, before the answer was complete."""


class Late(Exception):  # noqa: N818 - a state of the request
    """`may_leave` said no: nothing was sent."""


class TooLarge(Broken):
    """The answer is too long."""

    def __init__(self, most_bytes: float) -> None:
        super().__init__(f"an answer of more than {most_bytes:.0f} bytes")


class Answer(msgspec.Struct, eq=False):
    """Status, headers, body; the head is kept as it came, for hardly any is ever read."""

    channel: _Channel
    status: int = 0
    head: bytes = b""
    """What came until the head was whole: interim answers before it, and maybe the body."""
    body: bytes = b""

    @property
    def headers(self) -> dict[str, str]:
        """By their names in lower case; the last of equal ones."""
        lines: list[str] = []
        rest = self.head
        while not lines or lines[0].split(" ")[1] < str(_INTERIM):
            one, _, rest = rest.lstrip(b"\r\n").partition(b"\r\n\r\n")
            lines = one.decode("latin-1").split("\r\n")
        parted = [line.partition(":") for line in lines[1:]]
        return {name.lower(): value.strip(" \t") for name, _, value in parted}

    def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body of one that streams, as it comes.

        Raises:
            Broken, TimeoutError: as in `Channels.request`.
        """
        return self.channel.pieces()

    def close(self) -> None:
        """The rest of a stream is not read."""
        self.channel.leave(self)


class _Channel(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self, owner: Channels) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._done: asyncio.Future[Answer] | None = None
        self._answer = Answer(self)
        self._lent = self._streams = False
        """Whether a streamed answer is not read to its end; whether more of it is to come."""
        self._why: Exception | None = None
        """Why the connection cannot be used any more."""
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._headed = self._stays = False
        self._heard = self._until = self._silence = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.used = False
        """Whether an answer came on it before."""

    @property
    def said(self) -> bool:
        """Whether anything of the present answer came."""
        return bool(self._answer.head)

    @property
    def open(self) -> bool:
        """Whether a request can be written."""
        return self._transport is not None and not self._transport.is_closing()

    def ask(self, request: bytes, silence: float, *, streams: bool) -> asyncio.Future[Answer]:
        """Writes the request; the answer, or its head, or why there is none is the future's."""
        assert self._transport is not None
        self._silence, self._lent, self._streams = silence, streams, streams
        self._answer, self._body = Answer(self), []
        self._body_bytes = 0
        self._headed = False
        done = self._more(silence * _TOTAL_FACTOR)
        self._transport.write(request)
        return done

    def _more(self, seconds: float) -> asyncio.Future[Answer]:
        """Awaits something, so long at most."""
        self._heard = now = self._loop.time()
        self._until = now + seconds
        done = self._done = self._loop.create_future()
        at, timer = now + self._silence, self._timer
        if timer is None or timer.when() > at:
            if timer is not None:
                timer.cancel()  # of a request before, that had more time
            self._timer = self._loop.call_at(at, self._tick)
        return done

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        while self._body or self._streams:
            if self._body:
                body, self._body = b"".join(self._body), []
                if self._body_bytes > _AHEAD_BYTES and self._transport is not None and self.open:
                    self._transport.resume_reading()
                self._body_bytes = 0
                yield body
            elif self._why is not None:
                raise self._why
            else:
                await self._more(math.inf)
        self._lent = False
        self._go_to_rest()

    def _go_to_rest(self) -> None:
        if self._stays:
            self._owner.rest(self)
        else:
            self.close()

    def leave(self, answer: Answer) -> None:
        """See `Answer.close`."""
        if answer is self._answer and self._lent:
            self.close()

    async def tunnel(self, connect: bytes, tls: ssl.SSLContext, hostname: str) -> None:
        """Has the proxy at the other end lead on to a server, and speaks TLS with that.

        Raises:
            OSError: it does not.
            Broken: what it says is no HTTP.
        """
        answer = await self.ask(connect, _CONNECT_SECONDS, streams=True)
        if answer.status != _OK:
            raise OSError(f"it answers {answer.status}")
        transport = cast("asyncio.Transport", self._transport)
        try:
            self._transport = await self._loop.start_tls(
                transport, self, tls, server_hostname=hostname
            )
        except TypeError as error:  # CPython before 3.13, of TLS within TLS that fails
            inner = error.__context__
            raise inner if isinstance(inner, OSError) else OSError(str(error)) from None
        self._parser, self.used = httptools.HttpResponseParser(self), False

    def close(self) -> None:
        """Drops the connection."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()

    def _tick(self) -> None:
        """One timer for many requests: it looks whether the time is up, and sets itself anew."""
        self._timer = None
        if self._done is None:
            return
        at = min(self._heard + self._silence, self._until)
        if self._loop.time() < at:
            self._timer = self._loop.call_at(at, self._tick)
        else:
            self._fail(TimeoutError())

    def _fail(self, why: Exception) -> None:
        done, self._done, self._why = self._done, None, why
        if done is not None and not done.done():
            done.set_exception(why)
        self.close()

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        if self._done is None and not self._streams:
            self.close()  # no request is under way
            return
        if not self._headed:
            self._answer.head += data
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(Broken(f"not HTTP: {error}"))
        if not self._headed and len(self._answer.head) > _MOST_HEADER_BYTES:
            self._fail(Broken("not HTTP: headers without end"))

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, which ends an answer that does not say how long it is."""
        self._owner.forget(self)
        if exc is None and self._headed and self._is_open_ended():
            self._streams = False
            self._deliver()
        part = "in the middle of an answer" if self._headed else ""
        self._fail(Broken(part or (str(exc) if exc else "closed by the server")))

    # ---- httptools

    def on_message_begin(self) -> None:
        """One answer a request."""
        if self._headed:
            raise ValueError("more than was asked for")

    def on_headers_complete(self) -> None:
        self._headed = True
        self._answer.status = status = self._parser.get_status_code()
        if self._streams and status >= _INTERIM:
            self._deliver()

    def _is_open_ended(self) -> bool:
        return self._answer.headers.keys().isdisjoint(("content-length", "transfer-encoding"))

    def on_body(self, body: bytes) -> None:
        self._body.append(body)
        self._body_bytes = there = self._body_bytes + len(body)
        if self._streams:
            if there > _AHEAD_BYTES >= there - len(body) and self._transport is not None:
                self._transport.pause_reading()
            if self._done is not None:
                self._deliver()
        elif there > self._owner.most_body_bytes:
            self._fail(TooLarge(self._owner.most_body_bytes))

    def on_message_complete(self) -> None:
        if self._answer.status < _INTERIM:
            self._headed = False
            return
        self._stays = self._parser.should_keep_alive()
        self._streams = False  # what is left of a stream is taken as it is
        self._deliver()
        if not self._lent:
            self._go_to_rest()

    def _deliver(self) -> None:
        """Resumes the waiter: with the whole answer, or the head or more of a stream."""
        done, self._done, self.used = self._done, None, True
        if not self._lent:
            self._answer.body, self._body = b"".join(self._body), []
        if done is not None and not done.done():
            done.set_result(self._answer)


class Channels:
    """A pool of them, as many as there are requests at a time; used inside one event loop."""

    def __init__(
        self,
        url: str,
        tls: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
        *,
        proxy: str | None = None,
        most_body_bytes: float = math.inf,
    ) -> None:
        """To the host of an address, where all paths begin with the one in it.

        `most_body_bytes`: an answer with more is as good as none, for who may lie.
        """
        target = urlsplit(url)
        via = self._via = urlsplit(proxy or url)
        self._proxied = bool(proxy)
        self._authority = target.netloc.rpartition("@")[-1]
        self._prefix = target.path
        self._tls = tls
        self._hostname = server_hostname or target.hostname or ""
        name = f"{unquote(via.username or '')}:{unquote(via.password or '')}".encode()
        word = f"Basic {b64encode(name).decode()}"
        words = header_lines({"Proxy-Authorization": word}) if via.username else ""
        self._connect_head = b""
        """What the proxy is to lead on with, where it is not to read along."""
        self._also = ""
        if proxy and target.scheme == "https":
            place = self._authority if target.port else f"{self._authority}:443"
            self._connect_head = head_of("CONNECT", place, place, words, 0)
        elif proxy:
            self._prefix, self._also = f"http://{self._authority}{target.path}", words
        self.most_body_bytes = most_body_bytes
        self._idle: list[_Channel] = []
        self._all: set[_Channel] = set()
        self._retired: set[_Channel] = set()

    async def request(  # noqa: PLR0913 - each is said below
        self,
        method: str,
        path: str,
        lines: str,
        body: bytes = b"",
        *,
        again: bool,
        silence: float,
        may_leave: Callable[[], bool] | None = None,
        streams: bool = False,
    ) -> Answer:
        """One request and its answer.

        Args:
            method: of HTTP.
            path: below that of the address, escaped, with its query.
            lines: headers, but for those that every request has; see `header_lines`.
            body: what is sent.
            again: whether it may be sent twice: where the server had closed a connection that was
                used before, the request goes out on a new one.
            silence: seconds that may pass without a byte, and four times that for it all.
            may_leave: asked when the request is about to leave, after every wait.
            streams: the answer is there once its head is; close it when its pieces were read.

        Raises:
            NotConnected, Late: surely nothing was sent.
            Broken: it may have been carried out.
            TimeoutError: likewise.
            ValueError: the path has a line break.
        """
        target = f"{self._prefix}{path}"
        head = head_of(method, target, self._authority, lines + self._also, len(body))
        while True:
            channel = self._known() or await self._connect()
            if may_leave is not None and not may_leave():
                channel.close()
                raise Late("not sent, as this replica no longer leads")
            try:
                return await channel.ask(head + body, silence, streams=streams)
            except Broken:
                if not (again and channel.used and not channel.said):
                    raise
            except BaseException:
                channel.close()  # cancelled: the answer would be taken for the next one's
                raise

    async def ask_once(
        self, method: str, path: str, headers: Mapping[str, str], seconds: float
    ) -> tuple[Answer, list[bytes]]:
        """One request with one deadline over all of it, then the end of the pool; see `request`.

        The body comes in pieces: to join a large one takes longer than others should wait.
        """
        pieces, size = [], 0
        try:
            async with asyncio.timeout(seconds):
                lines = header_lines(headers)
                answer = await self.request(
                    method, path, lines, again=True, silence=seconds, streams=True
                )
                async for piece in answer.pieces():
                    pieces.append(piece)
                    size += len(piece)
                    if size > self.most_body_bytes:
                        raise TooLarge(self.most_body_bytes)
                return answer, pieces
        finally:
            self.close()

    def renew(self, tls: ssl.SSLContext | None) -> None:
        """Later requests use new connections, and this; what is under way goes on."""
        self._tls = tls or self._tls
        for channel in self._idle:
            channel.close()
        self._idle.clear()
        self._retired |= self._all

    def close(self) -> None:
        """Closes all connections."""
        for channel in tuple(self._all):
            channel.close()
        self._idle.clear()

    def rest(self, channel: _Channel) -> None:
        """The channel is idle."""
        if channel in self._retired:
            channel.close()
        else:
            self._idle.append(channel)

    def forget(self, channel: _Channel) -> None:
        """The channel is closed."""
        self._all.discard(channel)
        self._retired.discard(channel)
        if channel in self._idle:
            self._idle.remove(channel)

    def _known(self) -> _Channel | None:
        while self._idle:
            channel = self._idle.pop()  # the one used last: the others may rest and be closed
            if channel.open:
                return channel
        return None

    async def _connect(self) -> _Channel:
        loop, via, channel = asyncio.get_running_loop(), self._via, _Channel(self)
        tls = self._tls if via.scheme == "https" else None
        name = via.hostname if self._proxied else self._hostname
        host, port = via.hostname or "", via.port or (443 if via.scheme == "https" else 80)
        there: Sequence[AddrInfoType] = ()
        self._all.add(channel)  # before it is there: a renewal meanwhile is of it, too
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                with suppress(gaierror):  # a name; what is an address already takes no thread
                    there = getaddrinfo(host, port, type=SOCK_STREAM, flags=AI_NUMERICHOST)
                there = there or await loop.getaddrinfo(host, port, type=SOCK_STREAM)
                sock = await start_connection(there, happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS)
                await loop.create_connection(
                    lambda: channel, sock=sock, ssl=tls, server_hostname=name if tls else None
                )
                if self._connect_head:
                    tls = cast("ssl.SSLContext", self._tls)
                    await channel.tunnel(self._connect_head, tls, self._hostname)
        except BaseException as error:
            channel.close()
            self.forget(channel)
            if not isinstance(error, OSError | Broken):  # a TimeoutError is an OSError
                raise
            raise NotConnected(error) from error
        return channel


def head_of(method: str, target: str, host: str, lines: str, length: int) -> bytes:
    """The head of a request; `target` is escaped, `lines` are those of its headers.

    Raises:
        ValueError: the target has a line break.
    """
    if "\n" in target or "\r" in target:
        raise ValueError("a line break in an address")
    counted = f"Content-Length: {length}\r\n\r\n" if length or method not in _BARE else "\r\n"
    return f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n{lines}{counted}".encode("latin-1")


def header_lines(headers: Mapping[str, str]) -> str:
    """Headers as they are sent.

    Raises:
        ValueError: one has a line break.
    """
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    if any(line.count("\r") + line.count("\n") > len("\r\n") for line in lines):
        raise ValueError("a line break in a header")
    return "".join(lines)
