"""What tests leave behind would be blamed on those after them."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings

import pytest
from aiohttp import web

from tests.engine.loopback import listening


@pytest.mark.parametrize("turns", range(5))
def test_a_connection_that_comes_as_the_server_stops_is_closed(turns):
    async def answer(_request):
        return web.Response()

    async def main():
        async with listening(answer) as port:
            there = socket.create_connection(("127.0.0.1", port))
            for _ in range(turns):
                await asyncio.sleep(0)
        there.close()

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        asyncio.run(main())
        gc.collect()
    assert [str(one.message) for one in said] == []
