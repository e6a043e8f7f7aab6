"""Keep-alive HTTP/1.1 connections to one server, for requests whose answer ends.

A third of what a bound pod costs goes into the HTTP client (docs/decisions/0013); this one is the
least that the API server needs: llhttp reads the answers, the loop's transports do TLS. No proxies,
no redirects, no compression, no cookies. Streams and proxied requests are aiohttp's
(`engine.kube.session`).

    idle ─▶ request written ─▶ answer whole ─▶ idle | closed, if the server says so
                  └─ silence, end of time, broken, cancelled ─▶ closed
"""

from __future__ import annotations

import asyncio
import math
import ssl
import tempfile
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final, cast
from urllib.parse import urlsplit

import httptools

_INTERIM: Final = 200
_MOST_HEADER_BYTES: Final = 64 << 10
_CONNECT_SECONDS: Final = 5.0
TOTAL_FACTOR: Final = 4.0
"""An answer may take as many times as long as a silence in it."""


class NotConnected(Exception):  # noqa: N818 - a state of the request
    """No connection was to be had: surely nothing was sent."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause
        """A TimeoutError if it took too long."""


class Broken(Exception):  # noqa: N818 - a state of the request
    """The connection ended, or said what is no HTTP, before the answer was whole."""


class TooLarge(Broken):
    """The answer has more bytes than it may."""


class Answer:
    """Status, headers, body; the head is kept as it came, for hardly any is ever read."""

    __slots__ = ("body", "head", "status")

    def __init__(self) -> None:
        self.status = 0
        self.head = b""
        """What came until the head was whole: interim answers before it, and maybe the body."""
        self.body = b""

    @property
    def headers(self) -> dict[str, str]:
        """The last of equal ones."""
        lines: list[str] = []
        rest = self.head
        while not lines or lines[0].split(" ")[1] < str(_INTERIM):
            one, _, rest = rest.partition(b"\r\n\r\n")
            lines = one.decode("latin-1").split("\r\n")
        parted = [line.partition(":") for line in lines[1:]]
        return {name: value.strip(" \t") for name, _, value in parted}


class _Channel(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self, owner: Channels) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._done: asyncio.Future[Answer] | None = None
        self._answer = Answer()
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._headed = False
        self._heard = self._until = self._silence = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.used = False
        """Whether an answer came on it before."""
        self.said = False
        """Whether anything of the present answer came."""

    @property
    def open(self) -> bool:
        """Whether a request can be written."""
        return self._transport is not None and not self._transport.is_closing()

    def ask(self, request: bytes, silence: float) -> asyncio.Future[Answer]:
        """Writes the request; the answer, or why there is none, is the future's."""
        assert self._transport is not None
        self._heard = self._loop.time()
        self._silence, self._until = silence, self._heard + silence * TOTAL_FACTOR
        self._answer, self._body = Answer(), []
        self._body_bytes = 0
        self.said = self._headed = False
        done = self._done = self._loop.create_future()
        at = self._heard + silence
        if self._timer is not None and self._timer.when() > at:
            self._timer.cancel()  # of a request before, that had more time
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(at, self._tick)
        self._transport.write(request)
        return done

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
        done, self._done = self._done, None
        if done is not None and not done.done():
            done.set_exception(why)
        self.close()

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass

    def data_received(self, data: bytes) -> None:
        """More of an answer."""
        self._heard = self._loop.time()
        if self._done is None:
            self.close()  # nobody asked
            return
        self.said = True
        if not self._headed:
            self._answer.head += data
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(Broken(f"no HTTP: {error}"))
        if not self._headed and len(self._answer.head) > _MOST_HEADER_BYTES:
            self._fail(Broken("no HTTP: headers without end"))

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, which ends an answer that does not say how long it is."""
        self._owner.forget(self)
        if exc is None and self._headed and self._is_open_ended():
            self._deliver()
        self._fail(Broken(str(exc) if exc else "closed by the server"))

    # ---- httptools

    def on_headers_complete(self) -> None:
        """The body follows."""
        self._headed = True

    def _is_open_ended(self) -> bool:
        names = {name.lower() for name in self._answer.headers}
        return names.isdisjoint(("content-length", "transfer-encoding"))

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._body_bytes += len(body)
        if self._body_bytes <= self._owner.most_body_bytes:
            self._body.append(body)
        else:
            self._fail(TooLarge(f"an answer of more than {self._owner.most_body_bytes:.0f} bytes"))

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if self._parser.get_status_code() < _INTERIM:
            self._headed = False
            return
        stays = self._parser.should_keep_alive()
        self._deliver()
        self._parser = httptools.HttpResponseParser(self)
        if stays:
            self._owner.rest(self)
        else:
            self.close()

    def _deliver(self) -> None:
        answer, done = self._answer, self._done
        answer.status = self._parser.get_status_code()
        answer.body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._done, self.used = None, True
        if done is not None and not done.done():
            done.set_result(answer)


class Channels:
    """A pool of them, as many as there are requests at a time; used inside one event loop."""

    def __init__(
        self,
        url: str,
        tls: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
        *,
        most_body_bytes: float = math.inf,
    ) -> None:
        """To the host of an address, where all paths begin with the one in it.

        `most_body_bytes`: an answer with more is as good as none, for who may lie.
        """
        target = urlsplit(url)
        self._secure = target.scheme == "https"
        self._host = target.hostname or ""
        self._port = target.port or (443 if self._secure else 80)
        self._authority = target.netloc.rpartition("@")[-1]
        self._prefix = target.path
        self._tls = tls
        self._server_hostname = (server_hostname or self._host) if self._secure else None
        self.most_body_bytes = most_body_bytes
        self._idle: list[_Channel] = []
        self._all: set[_Channel] = set()
        self._retired: set[_Channel] = set()

    async def request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        *,
        again: bool,
        silence: float,
        fence: Callable[[], None] | None = None,
    ) -> Answer:
        """One request and its answer.

        Args:
            method: of HTTP.
            path: below that of the address, escaped, with its query.
            headers: but for those that every request has.
            body: what is sent.
            again: whether it may be sent twice: where the server had closed a connection that was
                used before, the request goes out on a new one.
            silence: seconds that may pass without a byte, and `TOTAL_FACTOR` times for it all.
            fence: called when the request is about to leave, after every wait; what it raises, this
                raises, and nothing was sent.

        Raises:
            NotConnected: surely nothing was sent.
            Broken: it may have been carried out.
            TimeoutError: likewise.
            ValueError: a header has a line break.
        """
        target = f"{self._prefix}{path}"
        head = head_of(method, target, self._authority, headers, len(body))
        while True:
            channel = self._known() or await self._connect()
            try:
                if fence is not None:
                    fence()
                return await channel.ask(head + body, silence)
            except Broken:
                if not (again and channel.used and not channel.said):
                    raise
            except BaseException:
                channel.close()  # cancelled: the answer would be taken for the next one's
                raise

    def renew(self, tls: ssl.SSLContext | None) -> None:
        """Later requests use new connections; what is under way goes on."""
        self._tls = tls
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
        """The channel has nothing to do."""
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
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                _, channel = await loop.create_connection(
                    lambda: _Channel(self),
                    self._host,
                    self._port,
                    ssl=self._tls if self._secure else None,
                    server_hostname=self._server_hostname,
                )
        except OSError as error:  # a TimeoutError is one
            raise NotConnected(error) from error
        self._all.add(channel)
        return channel


def trusting(
    authority: str | None, data: str | None = None, *, anybody: bool = False
) -> ssl.SSLContext:
    """Trusts the certificates of a file or a text, or those of the system; or whoever answers.

    Raises:
        OSError: they cannot be read.
    """
    context = ssl.create_default_context(cafile=authority, cadata=data)
    # As Go: certificates without the extensions that Python wants since 3.13 are good.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if anybody:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def certificates_in(file: Path) -> bytes:
    """The text of a file with certificates that others are to trust.

    Raises:
        OSError: it cannot be read, or there is none; who is given such a text takes it as it is.
    """
    text = file.read_bytes()  # whose errors name it
    try:
        trusting(str(file))
    except ssl.SSLError as error:
        raise OSError(f"{file}: there is no certificate in PEM") from error
    return text


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Puts a pair (PEM) into a context that has none; one that fails is of no more use.

    Raises:
        OSError: it is no pair.
    """
    # The standard library takes it from files only; this folder is ours alone.
    with tempfile.TemporaryDirectory() as folder:
        chain, secret = Path(folder, "tls.crt"), Path(folder, "tls.key")
        chain.write_bytes(certificate)
        secret.write_bytes(key)
        try:
            # Without a password OpenSSL would ask for one at the terminal.
            context.load_cert_chain(chain, secret, password=b"")
        except ssl.SSLError as error:
            raise OSError(
                "the key is not that of the certificate"
                if error.reason == "KEY_VALUES_MISMATCH"
                else "no certificate and its key, in PEM and without a password"
            ) from error


def head_of(method: str, target: str, host: str, headers: Mapping[str, str], length: int) -> bytes:
    """The head of a request; `target` is escaped, no header may have a line break.

    Raises:
        ValueError: one has.
    """
    first = f"{method} {target} HTTP/1.1"
    counted = f"Content-Length: {length}\r\n" if length or method != "GET" else ""
    head = f"{first}\r\nHost: {host}\r\n{_lines_of(*headers.items())}{counted}\r\n"
    if "\r" in first or "\n" in first:
        raise ValueError("a line break in a header")
    return head.encode("latin-1")


@lru_cache(maxsize=16)
def _lines_of(*headers: tuple[str, str]) -> str:
    """Those of a client are the same in nearly all of its requests.

    Raises:
        ValueError: one has a line break.
    """
    lines = [f"{name}: {value}\r\n" for name, value in headers]
    if any(line.count("\r") + line.count("\n") > len("\r\n") for line in lines):
        raise ValueError("a line break in a header")
    return "".join(lines)
