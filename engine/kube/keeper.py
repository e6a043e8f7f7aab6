"""Bytes and a text kept in ConfigMaps of ours: the last good policies, and how they stand.

The bytes lie in chunks, in one of two places by turns, and the index that names place and digest is
written last: whenever the process ends, the index names bytes that are whole.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from engine.kube.client import MERGE_PATCH, Requests, segment
from engine.kube.errors import Fenced, KubeError, NotFound
from engine.kube.wiring import Wiring
from engine.tasks import first
from engine.text import wire

_LOG = logging.getLogger(__name__)

CHUNK: Final = 900 * 1024
"""Bytes; the API server takes 1 MiB in a ConfigMap."""
MOST_CHUNKS: Final = 4
MOST_BYTES: Final = CHUNK * MOST_CHUNKS
_SLOTS: Final = ("a", "b")
_BYTES: Final = "policies"
_STATUS: Final = "status.json"
_AGAIN_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 60.0
_NOT_FOUND: Final = 404
_encode = msgspec.json.Encoder().encode


class _ConfigMap(msgspec.Struct, rename="camel"):
    data: dict[str, str] | None = None
    binary_data: dict[str, bytes] | None = None


_decode = msgspec.json.Decoder(_ConfigMap).decode


class Keeper:
    """Writes the newest of both in the background, over and over until it is written.

    Run `run` as a task. Only a leader's writes leave, by the fence of its client.
    """

    def __init__(self, client: Requests, wiring: Wiring, state: str) -> None:
        """Keeps in ConfigMaps NAME-status, NAME-last-good and NAME-last-good-{a,b}-{0..3}.

        `state` is NAMESPACE/NAME.
        """
        self._client = client
        self._sleep = wiring.sleep
        self._namespace, _, self._name = state.partition("/")
        self._wanted: dict[str, Callable[[], bytes]] = {}
        self._written: dict[str, bytes | None] = {}
        self._slot: int | None = None
        """Which place the index names; None: it has to be asked."""
        self._news = asyncio.Event()
        self._turn = asyncio.Lock()
        self._told: dict[str, tuple[type[KubeError], int]] = {}
        self.not_kept = ""
        """Why the policies in force are not kept."""

    def keep(self, data: Callable[[], bytes]) -> None:
        """There are newer bytes: asked for when they are written, which is not in a cycle's way."""
        self._want("last-good", data)

    def tell(self, status: Callable[[], bytes]) -> None:
        """What says how things stand, as JSON, says something else."""
        self._want("status", status)

    def _want(self, what: str, made: Callable[[], bytes]) -> None:
        self._wanted[what] = made
        self._news.set()

    async def load(self) -> bytes | None:
        """What was kept last; None: nothing was, or it is no longer whole.

        Raises:
            KubeError: the server could not be asked, or refuses.
        """
        self._written.pop("last-good", None)
        data = (await self._read("last-good")).data or {}
        if not data:
            return None
        slot, found = data.get("slot"), b""
        for number in range(MOST_CHUNKS if slot in _SLOTS else 0):
            if str(number) == data.get("chunks"):
                break
            one = await self._read(f"last-good-{slot}-{number}")
            found += (one.binary_data or {}).get(_BYTES, b"")
        if hashlib.sha256(found).hexdigest() != data.get("digest"):
            named = self._full("last-good")
            _LOG.warning("The policies kept in ConfigMap %s are incomplete, and not used", named)
            return None
        self._written["last-good"] = found
        return found

    async def told(self) -> bytes | None:
        """How things stood last, as JSON; None: nobody has told.

        Raises:
            KubeError: the server could not be asked, or refuses.
        """
        text = ((await self._read("status")).data or {}).get(_STATUS)
        return None if text is None else text.encode()

    async def run(self) -> None:
        """Writes what is new, and each minute what somebody took away; never returns."""
        while True:
            await first(self._news.wait(), self._sleep(_LOOK_SECONDS))
            # Who has nothing to write, as one that follows, need not know what others write.
            if not self._news.is_set() and not (self._wanted and await self._is_changed()):
                continue
            self._news.clear()
            if not await self.flush():
                await self._sleep(_AGAIN_SECONDS)
                self._news.set()

    async def _is_changed(self) -> bool:
        """Whether somebody deleted or changed what was written."""
        async with self._turn:
            before = {**self._written}
            try:
                self._written = {"last-good": await self.load(), "status": await self.told()}
            except KubeError:
                return False  # looked at again in a minute
            return self._written != before

    async def flush(self) -> bool:
        """Tries to write what is not written, first the policies; False: not all of it is."""
        well = True
        async with self._turn:
            # Both as of now: what is told to be in force is kept by then.
            for what, data in [(what, made()) for what, made in sorted(self._wanted.items())]:
                if self._written.get(what) != data:
                    well &= await self._try(what, data)
                elif what != "status" and len(data) <= MOST_BYTES:
                    self._is_news("")  # it is kept, whatever others were not
        return well

    async def _try(self, what: str, data: bytes) -> bool:
        try:
            if what == "status":
                await self._write("status", {"data": {_STATUS: data.decode()}})
            elif len(data) > MOST_BYTES:
                why = f"they are too large: {len(data)} bytes, and at most {MOST_BYTES} fit"
                if self._is_news(why):
                    _LOG.error("The policies in force are not kept for the next start: %s", why)
            else:
                await self._keep(data)
                self._is_news("")
        except Fenced:
            return False
        except KubeError as failed:
            if what != "status":
                self._is_news(str(failed))
            # Once for each reason, whichever of the ConfigMaps it names.
            reason = type(failed), getattr(failed, "code", 0)
            if reason != self._told.get(what):
                self._told[what] = reason
                _LOG.warning("ConfigMaps of %s cannot be written: %s", self._full("*"), failed)
            return False
        self._written[what] = data
        return True

    def _is_news(self, why: str) -> bool:
        """Whether `why` they are not kept is another than before, of which the status speaks."""
        before, self.not_kept = self.not_kept, why
        if why != before:
            self._news.set()
        return why != before

    async def _keep(self, data: bytes) -> None:
        chunks = [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]
        if self._slot is None:
            named = (await self._read("last-good")).data or {}
            self._slot = int(named.get("slot") == _SLOTS[1])
        # INVARIANT: nothing is written where the index points; a write of it may have any outcome.
        other, self._slot = 1 - self._slot, None
        slot = _SLOTS[other]
        for number, chunk in enumerate(chunks):
            body = {"binaryData": {_BYTES: chunk}}
            await self._write(f"last-good-{slot}-{number}", body)
        index = {
            "slot": slot,
            "chunks": str(len(chunks)),
            "digest": hashlib.sha256(data).hexdigest(),
        }
        await self._write("last-good", {"data": index})
        self._slot = other

    async def _read(self, what: str) -> _ConfigMap:
        """Empty if it is not there, or nobody could have written it so."""
        answer = await self._client.request("GET", self._path(what))
        try:
            return wire.decode(_decode, answer.checked().body)
        except NotFound as missing:
            if missing.may_pass:
                raise
        except msgspec.DecodeError:
            pass
        return _ConfigMap()

    async def _write(self, what: str, content: dict[str, Any]) -> None:
        answer = await self._client.request(
            "PATCH", self._path(what), body=_encode(content), content_type=MERGE_PATCH
        )
        if answer.status == _NOT_FOUND:
            body = {"metadata": {"name": f"{self._name}-{what}"}, **content}
            answer = await self._client.request("POST", self._path(), body=_encode(body))
        answer.checked()

    def _full(self, what: str) -> str:
        return f"{self._namespace}/{self._name}-{what}"

    def _path(self, what: str = "") -> str:
        collection = f"/api/v1/namespaces/{segment(self._namespace)}/configmaps"
        return f"{collection}/{segment(f'{self._name}-{what}')}" if what else collection
