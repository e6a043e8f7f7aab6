"""HTTP to the API server: paths and bytes in, status and bytes out; KubeError for everything else.

Configuration, authentication and TLS are the official client's, connections `engine.channels`;
bodies stay raw. Nothing here retries, but for one 401 after new credentials were read (the server
refuses such a request before it looks at it) and for connections found closed by requests that may
be sent twice.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import urlencode

import yaml
from cachetools import TTLCache
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException, load_incluster_config
from kubernetes.aio.config.incluster_config import SERVICE_TOKEN_FILENAME

from engine import __version__
from engine.channels import Broken, Channels, Late, NotConnected, header_lines
from engine.clock import Clock, SystemClock
from engine.kube.client import JSON, OK, MayLeave, Response
from engine.kube.credentials import Loader, check_url, host_of, proxy_to
from engine.kube.errors import (
    Fenced,
    Interrupted,
    KubeconfigError,
    KubeError,
    StatusError,
    Timeout,
    Unreachable,
    status_error,
)
from engine.telemetry import FORBIDDEN, REQUEST_SECONDS, REQUESTS, Telemetry
from engine.text.display import cause, without_user

_LOG = logging.getLogger(__name__)

_REPEATABLE = frozenset({"GET", "PUT", "DELETE"})
_FAULTS = (NotConnected, Broken, OSError)
_UNAUTHORIZED = 401
_FORBIDDEN = 403
_MAY_NOT = re.compile(r'User ".*" cannot (\S+) resource "([^"]+)" in API group "([^"]*)"')
"""As the API server words what its authorizers refuse; 403s of admission say something else.

Source: k8s.io/apiserver pkg/endpoints/handlers/responsewriters/errors.go, forbiddenMessage.
"""
_READS = ("list", "watch")
_LASTING_SECONDS: Final = 30.0
"""A server that starts refuses everybody until it has loaded its roles."""
_FORGOTTEN_SECONDS: Final = 120.0
_MOST_FORBIDDEN: Final = 64
_DEFAULT_TIMEOUT_SECONDS = 30.0
_CREDENTIAL_HOOK_SECONDS = 30.0
_NEW_CREDENTIALS_SECONDS = 5.0
_RENEW_SECONDS = 5.0
_USER_AGENT: Final = f"berth/{__version__}"
_UNREAD: Final[Mapping[str, str]] = MappingProxyType({})
_INVISIBLE = re.compile(r"[^!-~]+")
_BAD_CONFIG = (
    ConfigException,
    yaml.YAMLError,
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RuntimeError,  # nobody knows where the home of this user is
)


def _trust(configuration: Configuration) -> ssl.SSLContext:
    """The official client's TLS, with the certificates as they are now.

    Raises:
        OSError: they cannot be used.
    """
    try:
        context: ssl.SSLContext = RESTClientObject(configuration).ssl_context
    except (OSError, ValueError) as error:
        files = configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file
        raise OSError(f"{cause(error)} ({', '.join(filter(None, files))})") from error
    return context


class Session:
    """The API server as one pool of keep-alive connections; close it, or leave its context.

    Made by `connect` inside a running event loop.
    """

    def __init__(
        self,
        configuration: Configuration,
        reload: Callable[[], Awaitable[None]],
        clock: Clock | None = None,
    ) -> None:
        # As kube-scheduler: from 3.13 on Python refuses certificates of clusters that Go takes.
        configuration.disable_strict_ssl_verification = True
        try:
            tls = _trust(configuration)
        except OSError as error:
            raise KubeconfigError(f"certificates cannot be used: {cause(error)}") from error
        self._renewed_at = float("-inf")
        self._configuration = configuration
        self._clock: Clock = clock or SystemClock()
        self._reload = reload
        self._reloaded_at = float("-inf")
        self._reloads = 0
        self._reloading = asyncio.Lock()
        self._hook_at = float("-inf")
        self._forbidden: TTLCache[str, tuple[float, float]] = TTLCache(
            _MOST_FORBIDDEN, _FORGOTTEN_SECONDS, timer=self._clock.monotonic
        )
        """What is refused -> when it was first, and last."""
        server = str(configuration.host).rstrip("/")
        self.server: str = without_user(server)
        self._proxy = proxy_to(server, configuration.proxy)
        self.telemetry = Telemetry()
        """Where requests are counted."""
        self._host = host_of(server)
        named = configuration.tls_server_name or None
        self._channels = Channels(server, tls, named, proxy=self._proxy)

    @classmethod
    async def connect(
        cls,
        kubeconfig: str | Path | Mapping[str, object] | None = None,
        context: str | None = None,
        *,
        clock: Clock | None = None,
    ) -> Session:
        """The usual order: what is given, else the pod's service account, else $KUBECONFIG.

        A kubeconfig is given by its path (or several, as in $KUBECONFIG) or its content, `context`
        by its name in it, if not its current one. Service accounts have no contexts: who names one
        means a kubeconfig. As to kubectl, an empty text is none.

        Raises:
            KubeconfigError: none of them can be used; the text says why.
        """
        name, configuration = "kubeconfig", Configuration()
        load: Callable[[Configuration], Awaitable[None]]
        try:
            if not kubeconfig and not context and os.environ.get("KUBERNETES_SERVICE_HOST"):
                name = f"service account of this pod, {Path(SERVICE_TOKEN_FILENAME).parent}"
                load = _load_in_cluster
            else:
                given = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
                if not isinstance(given, Mapping):
                    name = given = _existing(str(given))
                # What has been read counts, as for client-go: files change hands.
                load = Loader(given, context).load_and_set
            await load(configuration)
        except _BAD_CONFIG as error:
            raise KubeconfigError(f"{name}: {cause(error)}") from error
        check_url(configuration.host, f"{name}: server")
        if configuration.proxy:
            check_url(configuration.proxy, f"{name}: proxy-url")
        try:
            return cls(configuration, partial(load, configuration), clock)
        except KubeconfigError as error:
            raise KubeconfigError(f"{name}: {error}") from error

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections."""
        self._channels.close()

    def _renew(self) -> None:
        """Later requests use new connections, and certificates as they are now, if they are good.

        Where one was silent, the open ones may be dead; others renew certificates and whom to
        trust. What is under way goes on.
        """
        now = self._clock.monotonic()
        if now - self._renewed_at < _RENEW_SECONDS:
            return
        self._renewed_at = now
        tls = None
        try:
            tls = _trust(self._configuration)
        except OSError as error:
            _LOG.warning("certificates cannot be reloaded: %s", cause(error))
        self._channels.renew(tls)

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        timeout_seconds: float = _DEFAULT_TIMEOUT_SECONDS,
        may_leave: MayLeave | None = None,
    ) -> Response:
        """See `KubeClient.request`."""
        path = _with(path, params)
        is_last, began = False, self._clock.monotonic()
        try:
            while True:
                lines = self._lines(None if body is None else content_type)
                sent = self._credentials
                answer = await self._channels.request(
                    method,
                    path,
                    lines,
                    body or b"",
                    again=method in _REPEATABLE,
                    silence=timeout_seconds,
                    may_leave=may_leave,
                )
                refused = answer.status == _UNAUTHORIZED and not is_last
                if not (refused and await self._new_credentials(sent)):
                    break
                is_last = True
        except Late as error:
            raise Fenced(str(error)) from error
        except _FAULTS as error:
            self._count(method, "<error>", began)
            raise self._failed(error) from error
        self._count(method, str(answer.status), began)
        if answer.status == _FORBIDDEN:
            self._refused(status_error(answer.status, answer.body))
        is_unread = answer.status in OK and method != "GET"
        headers = _UNREAD if is_unread else answer.headers
        body, answer.body = answer.body, b""  # the channel has its last answer until the next one
        return Response(answer.status, headers, body)

    async def stream(
        self, path: str, *, params: Mapping[str, str] | None = None, read_timeout_seconds: float
    ) -> AsyncGenerator[bytes, None]:
        """See `KubeClient.stream`."""
        path = _with(path, params)
        send = partial(
            self._channels.request,
            "GET",
            path,
            again=True,
            silence=read_timeout_seconds,
            streams=True,
        )
        try:
            lines, sent = self._lines(None), self._credentials
            answer = await send(lines=lines)
            try:
                if answer.status == _UNAUTHORIZED and await self._new_credentials(sent):
                    answer.close()
                    answer = await send(lines=self._lines(None))
                self.telemetry.count(REQUESTS, str(answer.status), "GET", self._host)
                if answer.status not in OK:
                    body = b"".join([piece async for piece in answer.pieces()])
                    error = status_error(answer.status, body, answer.headers)
                    self._refused(error)
                    raise error
                yield b""
                async with aclosing(answer.pieces()) as pieces:
                    async for piece in pieces:
                        yield piece
            finally:
                answer.close()
        except _FAULTS as error:
            raise self._failed(error) from error

    @property
    def forbidden(self) -> list[str]:
        """What the API server has not allowed for a while, in its words, but for lists and watches.

        Berth can do without some of these; the others are silent.
        """
        known = self._forbidden.items()
        return [text for text, (first, last) in known if last - first >= _LASTING_SECONDS]

    def _refused(self, error: StatusError) -> None:
        found = _MAY_NOT.search(error.message) if error.code == _FORBIDDEN else None
        if found is None:
            return
        verb, resource, group = found.groups()
        self.telemetry.count(FORBIDDEN, verb, f"{resource}.{group}" if group else resource)
        if verb not in _READS:
            now = self._clock.monotonic()
            first, _ = self._forbidden.get(found[0], (now, now))
            self._forbidden[found[0]] = first, now

    def _count(self, method: str, code: str, began: float) -> None:
        self.telemetry.count(REQUESTS, code, method, self._host)
        seconds = self._clock.monotonic() - began
        self.telemetry.observe(REQUEST_SECONDS, seconds, method, self._host)

    def _lines(self, kind: str | None) -> str:
        """The headers for a body of that kind, or none, with the token as it is now."""
        hook = self._configuration.refresh_api_key_hook
        if hook is not None and self._clock.monotonic() - self._hook_at >= _CREDENTIAL_HOOK_SECONDS:
            self._hook_at = self._clock.monotonic()
            try:
                hook(self._configuration)
            except _BAD_CONFIG as error:
                _LOG.warning("token cannot be reloaded: %s", cause(error))
        return _headers(self._credentials[0], kind)

    @property
    def _credentials(self) -> tuple[str | None, int]:
        """Those that requests are sent with now: others are not equal to them."""
        return self._configuration.api_key.get("BearerToken"), self._reloads

    async def _new_credentials(self, sent: tuple[str | None, int]) -> bool:
        """After a 401 of a request with `sent`: are there others, read again if need be?

        False also where those that are refused were read just now.
        """
        async with self._reloading:
            if self._credentials != sent:
                return True
            if self._clock.monotonic() - self._reloaded_at < _NEW_CREDENTIALS_SECONDS:
                return False
            self._reloaded_at = self._clock.monotonic()
            try:
                await self._reload()
            except _BAD_CONFIG as error:
                _LOG.warning("credentials cannot be reloaded: %s", cause(error))
                return False
            self._reloads += 1
            self._renew()
            return True

    def _failed(self, error: Exception) -> KubeError:
        """Learns from it, and says whether something was sent, and why it failed in one line."""
        inner = getattr(error, "cause", None)
        if isinstance(error, TimeoutError) or isinstance(inner, ssl.SSLCertVerificationError):
            self._renew()
        through = f" through the proxy {without_user(self._proxy)}" if self._proxy else ""
        unreachable = f"cannot reach {self.server}{through}"
        match error:
            case NotConnected(cause=TimeoutError()):
                return Unreachable(f"{unreachable}: no connection in time")
            case NotConnected():
                return Unreachable(f"{unreachable}: {_why(error.cause)}")
            case TimeoutError():
                return Timeout(f"{self.server} did not answer in time")
            case _:
                return Interrupted(f"connection to {self.server} broke: {cause(error)}")


@lru_cache(maxsize=8)
def _headers(token: str | None, kind: str | None) -> str:
    # As kube-scheduler: no compression, it costs both sides more than the network saves.
    told = {"Accept": JSON, "Accept-Encoding": "identity", "User-Agent": _USER_AGENT}
    if token is not None:
        # Files end in line breaks. What else no header can hold makes it nobody's.
        told["Authorization"] = _INVISIBLE.sub(" ", token).strip()
    if kind is not None:
        told["Content-Type"] = kind
    return header_lines(told)


def _with(path: str, params: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(params)}" if params else path


async def _load_in_cluster(configuration: Configuration) -> None:
    load_incluster_config(client_configuration=configuration)
    check_url(configuration.host, "KUBERNETES_SERVICE_HOST and _PORT:")


def _existing(paths: str) -> str:
    """The files among `paths`, which are separated as in $KUBECONFIG."""
    found = [p for p in paths.split(os.pathsep) if p and Path(p).expanduser().exists()]
    if not found:
        raise KubeconfigError(f"no kubeconfig: {paths} does not exist")
    return os.pathsep.join(found)


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate cannot be trusted ({error.verify_message})"
    return cause(error)
