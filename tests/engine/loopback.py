"""An HTTP server on loopback that leaves nothing open of what it accepted."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

_TURNS = 3
"""Of the loop, until what asyncio has accepted is a connection that the server knows and closes."""


@asynccontextmanager
async def listening(
    handle: Callable[[web.Request], Awaitable[web.StreamResponse]],
    tls: ssl.SSLContext | None = None,
    *,
    most_bytes: int = 1 << 20,
) -> AsyncIterator[int]:
    """Has all paths handled; the port."""
    app = web.Application(client_max_size=most_bytes)
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, listener, ssl_context=tls).start()
    try:
        yield listener.getsockname()[1]
    finally:
        # What was accepted is made a connection in a task, which fails once the server is closed.
        asyncio.get_running_loop().remove_reader(listener)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        await runner.cleanup()
