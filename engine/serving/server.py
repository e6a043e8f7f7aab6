"""The HTTPS server: paths in, the pages of others out, and what they answer to a body.

Nothing here changes anything. There are so many connections at most: whoever opens thousands has
only those of others. They are counted as they are accepted, for one that says nothing takes a
descriptor, too; without any the process can open neither a file nor a connection to the API server.

Source: kubernetes cmd/kube-scheduler/app/server.go, newEndpointsHandler; k8s.io/apiserver
pkg/server/healthz/healthz.go.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import logging
import os
import socket
import ssl
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from typing import Any, Final

import msgspec
from aiohttp import web
from cachetools import TTLCache

from engine.clock import Clock
from engine.kube.client import KubeClient
from engine.kube.errors import KubeError, StatusError
from engine.serving.certificates import CertificateFiles, Certificates, Served, SharedPair
from engine.tasks import tasks
from engine.text.display import one_line

_LOG = logging.getLogger(__name__)

_OK, _BAD, _UNAUTHORIZED, _NOT_FOUND = 200, 400, 401, 404
_BAD_METHOD, _TOO_LARGE, _FAULT = 405, 413, 500
MOST_CONNECTIONS: Final = 256
_AGAIN_SECONDS: Final = 1.0
_SHUTDOWN_SECONDS: Final = 0.5
_BACKLOG: Final = 128
_ANY: Final = ("0.0.0.0", "::", "")
_ABOUT_PORTS: Final = (errno.EADDRINUSE, errno.EACCES)

Query = Mapping[str, str]


class Page(msgspec.Struct, frozen=True):
    """A page: what it is of, and its text for a query."""

    content_type: str
    text: Callable[[Query], str]


class Call(msgspec.Struct, frozen=True):
    """What is POSTed to: JSON in, of at most so many bytes, and JSON out."""

    answer: Callable[[bytes], Awaitable[bytes]]
    most_bytes: int


class BadCallError(Exception):
    """A body is not what it should be; the message says why."""


class NoSuchPageError(Exception):
    """A page has nothing to say about what it was asked; the message says why."""


class ListenError(Exception):
    """The address cannot be listened on; the message says why."""


class ServerOptions(msgspec.Struct, frozen=True):
    """Where is listened, and with what."""

    address: str = "0.0.0.0"
    port: int = 10259
    files: CertificateFiles = msgspec.field(default_factory=CertificateFiles)
    always_allowed: tuple[str, ...] = ("/healthz", "/readyz", "/livez")
    min_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    plain: bool = False
    """HTTP without TLS, for who asks on the same machine."""
    client_ca: str = ""
    """A file with whom to trust: calls are then for those who show a certificate of theirs."""


class Check(msgspec.Struct, frozen=True):
    """Something that is well or not: `wrong` says what is, empty while all is well."""

    name: str
    wrong: Callable[[], str]


PING = Check("ping", lambda: "")


class Site(msgspec.Struct):
    """What is shown: checks by group (`livez`), pages and calls by path (`/metrics`)."""

    checks: dict[str, Sequence[Check]] = {}
    pages: dict[str, Page] = {}
    calls: dict[str, Call] = {}


class _Connections:
    """Those that there are; where one more comes, the oldest is closed."""

    def __init__(self) -> None:
        self._open: list[socket.socket] = []

    async def accept(
        self,
        listener: socket.socket,
        made: Callable[[], asyncio.BaseProtocol],
        served: Served | None,
    ) -> None:
        """Accepts until cancelled, one in a turn of the loop; `made` makes what speaks with it."""
        loop = asyncio.get_running_loop()

        async def begin(new: socket.socket) -> None:
            context = None if served is None else served.context
            with contextlib.suppress(OSError):  # TLS that fails, or does not begin in a minute
                await loop.connect_accepted_socket(made, new, ssl=context)

        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    new, _ = await loop.sock_accept(listener)
                except OSError as failed:  # others have taken all that there are
                    _LOG.warning("no connection can be accepted: %s", failed.strerror)
                    await asyncio.sleep(_AGAIN_SECONDS)
                    continue
                self._came(new)
                group.create_task(begin(new))
                await asyncio.sleep(0)  # what can be accepted at once is so without a turn

    def _came(self, new: socket.socket) -> None:
        self._open = [one for one in self._open if one.fileno() >= 0]
        if len(self._open) >= MOST_CONNECTIONS:
            with contextlib.suppress(OSError):  # the other side was first
                self._open.pop(0).shutdown(socket.SHUT_RDWR)  # its transport closes it
        self._open.append(new)


class Server:
    """One server; it serves within `running`."""

    def __init__(
        self,
        options: ServerOptions,
        site: Site,
        clock: Clock,
        *,
        host: str,
        certificates: Certificates | SharedPair | None = None,
    ) -> None:
        """Makes or loads the certificate, unless somebody holds one already.

        Raises:
            CertificateError: there is none.
        """
        self._options = options
        self._site = site
        self._certificates = certificates
        if certificates is None and not options.plain:
            self._certificates = Certificates(
                options.files,
                clock,
                host=host,
                min_version=options.min_version,
                clients=options.client_ca,
            )
        self.access = Access(clock, options.always_allowed)
        self._connections = _Connections()
        self._listeners: list[socket.socket] = []
        self._failing: dict[str, str] = {}

    async def start(self) -> None:
        """Takes the address.

        Raises:
            ListenError: it is taken, or is not ours.
        """
        options = self._options
        host = None if options.address in _ANY else options.address
        bind = asyncio.get_running_loop().create_server
        try:
            async with await bind(
                asyncio.Protocol, host, options.port, reuse_address=True, start_serving=False
            ) as bound:
                for one in bound.sockets:
                    self._listeners.append(socket.socket(fileno=os.dup(one.fileno())))
                    self._listeners[-1].listen(_BACKLOG)
        except (OSError, UnicodeError) as error:  # no name of a host is the latter
            self._close()
            another = "port" if getattr(error, "errno", None) in _ABOUT_PORTS else "--bind-address"
            raise ListenError(
                f"cannot listen on {options.address}, port {options.port}: {one_line(str(error))};"
                f" give another {another}"
            ) from error
        _LOG.info('Serving address="%s" port=%d', options.address, self.port)

    def _close(self) -> None:
        for one in self._listeners:
            one.close()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._listeners[0].getsockname()[1])

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Listens meanwhile, and looks after the certificate, if there is one.

        Raises:
            ListenError: the address is taken, or is not ours.
        """
        await self.start()
        most = max((call.most_bytes for call in self._site.calls.values()), default=0)
        app = web.Application(client_max_size=most + 1)
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
        await runner.setup()
        assert runner.server is not None
        kept = self._certificates
        served = None if kept is None else kept.served
        try:
            async with tasks() as group:
                work = [
                    self._connections.accept(one, runner.server, served) for one in self._listeners
                ]
                if kept is not None:
                    work.append(kept.run())
                doing = [group.create_task(one) for one in work]
                yield
                for one in doing:
                    one.cancel()
        finally:
            self._close()
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        path = request.path
        header = request.headers.get("Authorization", "")
        refusal = await self.access.refusal(request.method, path, header)
        if refusal is not None:
            return _text(*refusal)
        call = self._site.calls.get(path)
        if call is not None:
            if self._options.client_ca and not request.get_extra_info("peercert"):
                return _text(_UNAUTHORIZED, "a client certificate is needed")
            return await self._called(call, request)
        if request.method not in ("GET", "HEAD"):
            return _text(_BAD_METHOD, "only GET is allowed")
        group, _, name = path.strip("/").partition("/")
        checks = self._site.checks.get(group)
        if checks is not None:
            return self._checked(group, name, checks, request)
        page = self._site.pages.get(path)
        if page is None:
            return _text(_NOT_FOUND, f"not found; the paths are: {' '.join(self.paths)}")
        try:
            text = page.text(request.query)
        except NoSuchPageError as why:
            return _text(_NOT_FOUND, str(why))
        return web.Response(text=text, headers=_headers(page.content_type))

    async def _called(self, call: Call, request: web.Request) -> web.Response:
        if request.method != "POST":
            return _text(_BAD_METHOD, "only POST is allowed")
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            body = None
        if body is None or len(body) > call.most_bytes:
            return _text(_TOO_LARGE, f"the body is larger than {call.most_bytes} bytes")
        try:
            answer = await call.answer(body)
        except BadCallError as why:
            return _text(_BAD, str(why))
        return web.Response(body=answer, headers=_headers("application/json"))

    def _checked(
        self, group: str, name: str, checks: Sequence[Check], request: web.Request
    ) -> web.Response:
        if name:
            checks = [check for check in checks if check.name == name]
            if not checks:
                return _text(_NOT_FOUND, f"there is no check {name}")
        text, why = told(
            group,
            checks,
            verbose="verbose" in request.query,
            exclude=request.query.getall("exclude", []),
        )
        if why != self._failing.get(group, ""):
            if why:
                _LOG.warning("%s check failed: %s", group, why)
            self._failing[group] = why
        return _text(_FAULT if why else _OK, text)

    @property
    def paths(self) -> list[str]:
        """All that can be asked for."""
        groups = [f"/{group}" for group in self._site.checks]
        each = [f"/{g}/{check.name}" for g, checks in self._site.checks.items() for check in checks]
        return sorted([*groups, *each, *self._site.pages, *self._site.calls])


def told(
    group: str, checks: Sequence[Check], *, verbose: bool = False, exclude: Collection[str] = ()
) -> tuple[str, str]:
    """What is said of the checks of a group, such as `readyz`, but those excluded; and why.

    A check that failed is named, why is for those who may read more than an anonymous request.
    """
    lines, faults = [], []
    for check in checks:
        if check.name in exclude:
            lines.append(f"[+]{check.name} excluded: ok")
        elif why := check.wrong():
            lines.append(f"[-]{check.name} failed: reason withheld")
            faults.append(f"{check.name}: {why}")
        else:
            lines.append(f"[+]{check.name} ok")
    if unknown := sorted(set(exclude) - {check.name for check in checks}):
        names = ", ".join(f'"{name}"' for name in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
    listed = "\n".join(lines)
    if faults:
        return f"{listed}\n{group} check failed\n", "; ".join(faults)
    return f"{listed}\n{group} check passed\n" if verbose else "ok", ""


def _text(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text, headers=_headers("text/plain; charset=utf-8"))


def _headers(content_type: str) -> dict[str, str]:
    return {
        "Content-Type": content_type,
        "Cache-Control": "no-cache, private",
        "X-Content-Type-Options": "nosniff",
    }


# ---- who may read what: asked of the API server, as kube-scheduler does
#
# A token is given to a TokenReview, and the user it is of to a SubjectAccessReview about the path.
# Answers are kept for some seconds, as many as a scraper asks again in, and few questions are under
# way at a time, whoever sends how many tokens. What cannot be asked is not allowed.
# Source: k8s.io/apiserver pkg/authentication/authenticatorfactory and
# pkg/authorization/authorizerfactory (delegating).


_KEPT_SECONDS: Final = 10.0
_KEPT: Final = 2048
_AT_ONCE: Final = 8
_FORBIDDEN: Final = 403
_TIMEOUT_SECONDS: Final = 10.0
_LONGEST_TOKEN: Final = 64 * 1024
_MASTERS: Final = "system:masters"
_REVIEWS: Final = {
    "TokenReview": "authentication.k8s.io",
    "SubjectAccessReview": "authorization.k8s.io",
}


class User(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who asks, as a TokenReview says."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = {}


ANONYMOUS: Final = User("system:anonymous", groups=("system:unauthenticated",))


class _Status(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: User = User()
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status = _Status()


_review = msgspec.json.Decoder(_Review)


class Access:
    """Asks the API server and remembers."""

    def __init__(self, clock: Clock, always: tuple[str, ...]) -> None:
        """`always` are paths that everybody may read; one that ends in `*` stands for all below."""
        self._always = always
        self._client: KubeClient | None = None
        self._away: Callable[[], bool] = lambda: False
        self._kept: TTLCache[tuple[str, bytes], _Status] = TTLCache(
            _KEPT, _KEPT_SECONDS, timer=clock.monotonic
        )
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._said = ""

    def ask(self, client: KubeClient, away: Callable[[], bool] = lambda: False) -> None:
        """Whom to ask, from now on; nobody while it is away: a lost server is not hammered."""
        self._client = client
        self._away = away

    async def refusal(self, method: str, path: str, authorization: str) -> tuple[int, str] | None:
        """None if the request may be answered; else the HTTP status and a line."""
        for one in self._always:
            if path.startswith(one[:-1]) if one.endswith("*") else path == one:
                return None
        try:
            user = await self._user(authorization)
            if user is None:
                return 401, "Unauthorized"
            if _MASTERS in user.groups:
                return None
            spec = {
                "user": user.username,
                "uid": user.uid,
                "groups": user.groups,
                "extra": user.extra,
                "nonResourceAttributes": {"path": path, "verb": method.lower()},
            }
            if (await self._reviewed("SubjectAccessReview", spec)).allowed:
                return None
        except KubeError as error:
            self._tell(error)
            return 503, "the API server cannot be asked whether you may read this"
        return 403, f'Forbidden: user "{user.username}" cannot {method.lower()} {path}'

    async def _user(self, authorization: str) -> User | None:
        """Who asks; None: a token that is good for nobody."""
        if not authorization:
            return ANONYMOUS
        kind, _, token = authorization.partition(" ")
        if kind.lower() != "bearer" or not token or len(token) > _LONGEST_TOKEN:
            return None
        found = await self._reviewed("TokenReview", {"token": token})
        return found.user if found.authenticated else None

    async def _reviewed(self, kind: str, spec: dict[str, Any]) -> _Status:
        """What is kept, or else said by a review; who waited for a turn may find it by then."""
        key = kind, hashlib.sha256(msgspec.json.encode(spec)).digest()
        known = self._kept.get(key)
        if known is None:
            async with self._turn:
                known = self._kept.get(key)
                if known is None:
                    known = self._kept[key] = await self._ask(kind, spec)
        return known

    async def _ask(self, kind: str, spec: dict[str, Any]) -> _Status:
        if self._client is None:
            raise KubeError("not connected to a cluster yet")
        if self._away():
            raise KubeError("the API server does not answer")
        group = _REVIEWS[kind]
        review = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
        answer = await self._client.request(
            "POST",
            f"/apis/{group}/v1/{kind.lower()}s",
            body=msgspec.json.encode(review),
            timeout_seconds=_TIMEOUT_SECONDS,
        )
        return answer.decoded(_review.decode, kind).status

    def _tell(self, error: KubeError) -> None:
        """Once: a scraper asks every few seconds."""
        text = str(error)
        if text != self._said:
            forbidden = isinstance(error, StatusError) and error.code == _FORBIDDEN
            hint = "; Berth's role must allow it to create these reviews" if forbidden else ""
            _LOG.warning("reviews of who may read metrics fail: %s%s", text, hint)
        self._said = text
