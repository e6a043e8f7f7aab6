"""An HTTP extender on loopback that answers as a test tells it, and remembers what it was sent."""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import Any

from aiohttp import web

from tests.engine.loopback import listening


class FakeExtender:
    """`answers[verb]` is a value, bytes, a status, a function of the question, or an Event."""

    def __init__(self, *, tls: ssl.SSLContext | None = None, **answers: Any) -> None:
        self.answers, self._tls = answers, tls
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.url = ""
        self.busy = self.most_busy = 0

    async def __aenter__(self) -> FakeExtender:
        self._serving = listening(self._answer, self._tls, most_bytes=1 << 30)
        scheme = "http" if self._tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{await self._serving.__aenter__()}/ext"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._serving.__aexit__(None, None, None)

    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.asked]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        verb, asked = request.path.removeprefix("/ext/"), json.loads(await request.read())
        self.asked.append((verb, asked))
        self.busy += 1
        self.most_busy = max(self.busy, self.most_busy)
        try:
            answer = self.answers[verb]
            if callable(answer):
                answer = answer(asked)
                if asyncio.iscoroutine(answer):
                    answer = await answer
        finally:
            self.busy -= 1
        if isinstance(answer, web.StreamResponse):
            return answer
        if isinstance(answer, bytes):
            return web.Response(body=answer, content_type="application/json")
        if isinstance(answer, int):
            return web.Response(status=answer)
        return web.json_response(answer)
