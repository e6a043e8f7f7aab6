"""Raw HTTP to one API server for tests: blocking calls over an event loop of their own.

The embedded cluster lives in that same loop, so it advances while a call waits.
"""

from __future__ import annotations

import asyncio
import io
import json
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode

import aiohttp

Object = dict[str, Any]
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(frozen=True)
class Answer:
    """What came back: the HTTP status and the decoded body."""

    status: int
    body: Any

    @property
    def revision(self) -> str:
        """`metadata.resourceVersion` of the object or list."""
        return str(self.body["metadata"]["resourceVersion"])

    @property
    def names(self) -> list[str]:
        """The names of a list's items."""
        return [item["metadata"]["name"] for item in self.body["items"]]


@dataclass(frozen=True)
class Finished:
    """What a program said and how it ended."""

    code: int
    out: str
    err: str


class Wire:
    """A client of one API server; `namespace` is the test's own."""

    def __init__(
        self,
        runner: asyncio.Runner,
        url: str,
        *,
        tls: ssl.SSLContext | None,
        namespace: str,
        kubeconfig: Path,
        compact: Callable[[], object],
    ) -> None:
        self.compact = compact
        self.namespace = namespace
        self.kubeconfig = kubeconfig
        self._runner = runner
        self._url = url
        self._tls: ssl.SSLContext | bool = tls or True
        self._session: aiohttp.ClientSession | None = None
        self._undo: list[str] = []

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Let the loop run until `work` is done."""
        return self._runner.run(work)

    def path(self, plural: str, name: str = "", *, group: str = "api/v1", **query: str) -> str:
        """The path of a resource in the test's namespace, or of an object of it."""
        path = f"/{group}/namespaces/{self.namespace}/{plural}" + (name and f"/{name}")
        return path + ("?" + urlencode(query, quote_via=quote) if query else "")

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Answer:
        """One request; never raises for an HTTP status."""
        return self.run(self._request(method, path, body, content_type, accept))  # type: ignore[no-any-return]  # what the coroutine gives

    def get(self, path: str, *, accept: str = "application/json") -> Answer:
        return self.request("GET", path, accept=accept)

    def post(self, path: str, body: Any) -> Answer:
        return self.request("POST", path, body)

    def put(self, path: str, body: Any) -> Answer:
        return self.request("PUT", path, body)

    def patch(self, path: str, body: Any, *, content_type: str = MERGE) -> Answer:
        return self.request("PATCH", path, body, content_type=content_type)

    def delete(self, path: str, body: Any = None) -> Answer:
        return self.request("DELETE", path, body)

    def create(self, plural: str, item: Object, *, group: str = "api/v1") -> Object:
        """Create an object in the test's namespace and return it; it must work."""
        answer = self.post(self.path(plural, group=group), item)
        assert answer.status == 201, answer
        return answer.body  # type: ignore[no-any-return]  # JSON

    def create_node(self, name: str, **labels: str) -> Object:
        """Create a node that is removed again after the test."""
        item = {"metadata": {"name": name, "labels": labels}}
        answer = self.post("/api/v1/nodes", item)
        assert answer.status == 201, answer
        self._undo.append(f"/api/v1/nodes/{name}")
        return answer.body  # type: ignore[no-any-return]  # JSON

    def bind(self, name: str, node: str, **metadata: Any) -> Answer:
        """Bind a pod of the test's namespace."""
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, **metadata},
            "target": {"kind": "Node", "name": node},
        }
        return self.post(self.path("pods", f"{name}/binding"), binding)

    def watch(self, path: str) -> Watch:
        """Open a watch (a context manager); `path` holds the query."""
        return Watch(self, path + ("&" if "?" in path else "?") + "watch=true")

    def command(self, *command: str | Path, stdin: str = "") -> Finished:
        """Run a program to its end while the loop runs."""
        return self.run(self._command(command, stdin))  # type: ignore[no-any-return]  # what the coroutine gives

    def close(self) -> None:
        """Remove what the test left in the cluster and close the connections."""
        for path in self._undo:
            self.delete(path)
        for plural in ("pods", "configmaps", "events"):
            self.delete(self.path(plural) + "?gracePeriodSeconds=0")
        self.delete(self.path("leases", group="apis/coordination.k8s.io/v1"))
        if self._session is not None:
            self.run(self._session.close())
            self.run(asyncio.sleep(0))

    async def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._tls)
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
            self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        return self._session

    def url(self, path: str) -> Any:
        return self._url + path

    async def _request(
        self, method: str, path: str, body: Any, content_type: str, accept: str
    ) -> Answer:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {"Accept": accept}
        if data is not None:
            headers["Content-Type"] = content_type
        session = await self.session()
        async with (
            asyncio.timeout(10),
            session.request(
                method, self._url + path, data=data and io.BytesIO(data), headers=headers
            ) as answer,
        ):
            text = await answer.text()
        is_json = text.startswith("{")
        return Answer(answer.status, json.loads(text) if is_json else text)

    async def _command(self, command: tuple[str | Path, ...], stdin: str) -> Finished:
        child = await asyncio.create_subprocess_exec(
            *map(str, command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(20):
                out, err = await child.communicate(stdin.encode())
        finally:
            if child.returncode is None:
                child.kill()
        return Finished(child.returncode or 0, out.decode(), err.decode())


class Watch:
    """An open watch: events one after the other, each with `type` and `object`."""

    def __init__(self, wire: Wire, path: str) -> None:
        self._wire = wire
        self._path = path
        self._response: aiohttp.ClientResponse | None = None
        self.status = 0

    def __enter__(self) -> Self:
        self._wire.run(self._open())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._response is not None:
            self._response.close()
            self._wire.run(asyncio.sleep(0))

    def take(self, count: int) -> list[Object]:
        """The next `count` events.

        Raises:
            TimeoutError: they did not come within some seconds.
        """
        events = [self._wire.run(self._next()) for _ in range(count)]
        assert None not in events, "the server ended the watch"
        return events

    def until(self, holds: Callable[[Object], bool]) -> list[Object]:
        """The next events up to and including the first for which `holds`."""
        events = self.take(1)
        while not holds(events[-1]):
            events += self.take(1)
        return events

    def rest(self) -> list[Object]:
        """All events until the server ends the watch."""
        events = []
        while (event := self._wire.run(self._next())) is not None:
            events.append(event)
        return events

    async def _open(self) -> None:
        session = await self._wire.session()
        self._response = await session.get(self._wire.url(self._path))
        self.status = self._response.status

    async def _next(self) -> Any:
        assert self._response is not None
        async with asyncio.timeout(10):
            line = await self._response.content.readline()
        return json.loads(line) if line else None
