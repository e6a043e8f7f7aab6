"""A door to a real API server that a test can shut: plain HTTP on loopback, in its own thread."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
import yaml
from aiohttp import web

from tests.cluster.controlplane import ControlPlane

_HOP = {"host", "connection", "content-length", "transfer-encoding"}


class Door:
    """Passes requests on, and shuts after so many bindings: the answer of the next one is lost.

    Until `open` is called again no connection gets an answer.
    """

    def __init__(self, plane: ControlPlane, folder: Path, *, bindings: int) -> None:
        self.kubeconfig = folder / "door.kubeconfig"
        self.shut = threading.Event()
        self._plane = plane
        self._left = bindings
        self._loop = asyncio.new_event_loop()
        self._live: set[asyncio.Transport] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        port = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        config = self._plane.kubeconfig()
        config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{port}"}
        config["users"][0]["user"] = {}
        self.kubeconfig.write_text(yaml.safe_dump(config))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def open(self) -> None:
        """The server is back."""
        self._left = 1 << 30
        self.shut.clear()

    async def _start(self) -> int:
        connector = aiohttp.TCPConnector(ssl=self._plane.ssl_context(), limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False
        )
        self._server = await self._loop.create_server(web.Server(self._passed_on), "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _stop(self) -> None:
        self._server.close()
        for one in [*self._live]:
            one.abort()
        await self._session.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _passed_on(self, request: web.BaseRequest) -> web.StreamResponse:
        transport = request.transport
        assert isinstance(transport, asyncio.Transport)
        self._live.add(transport)
        try:
            return await self._answered(request, transport)
        finally:
            self._live.discard(transport)

    async def _answered(
        self, request: web.BaseRequest, transport: asyncio.Transport
    ) -> web.StreamResponse:
        if self.shut.is_set():
            transport.abort()
            return web.Response(status=500)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP}
        body = await request.read()
        if request.method == "POST" and request.path.endswith("/binding"):
            self._left -= 1
            if self._left < 0:
                self.shut.set()
        async with self._session.request(
            request.method, self._plane.url + request.raw_path, data=body or None, headers=headers
        ) as answer:
            if self.shut.is_set():
                for one in [*self._live]:
                    one.abort()
                return web.Response(status=500)
            kept = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP}
            found = web.StreamResponse(status=answer.status, headers=kept)
            found.enable_chunked_encoding()
            await found.prepare(request)
            async for chunk in answer.content.iter_any():
                await found.write(chunk)
            return found
