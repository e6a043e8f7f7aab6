"""Plain reads and writes of single objects, for whatever has no writer of its own."""

from __future__ import annotations

import msgspec

from engine.kube.session import KubeClient, Response

_encoder = msgspec.json.Encoder()


class ObjectWriter:
    """Paths and objects in, JSON out; the caller handles the errors."""

    def __init__(self, client: KubeClient, *, timeout_seconds: float = 10.0) -> None:
        self._client = client
        self._timeout = timeout_seconds

    async def get(self, path: str) -> bytes:
        """The object's JSON.

        Raises:
            KubeError: there is none, or the server could not be asked.
        """
        return (await self._do("GET", path, None)).body

    async def create(self, collection: str, obj: object) -> bytes:
        """Creates `obj` (anything msgspec encodes) and returns it as the server has it.

        Raises:
            Conflict: it exists.
            KubeError: it was not created, or that is not known.
        """
        return (await self._do("POST", collection, _encoder.encode(obj))).body

    async def replace(self, path: str, obj: object) -> bytes:
        """Replaces the object, and returns it as the server has it.

        Raises:
            Conflict: its resourceVersion is not the newest.
            KubeError: it was not replaced, or that is not known.
        """
        return (await self._do("PUT", path, _encoder.encode(obj))).body

    async def _do(self, method: str, path: str, body: bytes | None) -> Response:
        answer = await self._client.request(method, path, body=body, timeout_seconds=self._timeout)
        return answer.checked()
