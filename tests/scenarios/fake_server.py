"""A KubeClient without a network: the pods of a small API server, and whatever may go wrong."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.clock import ManualClock
from engine.kube.client import Response
from engine.kube.errors import Interrupted, Timeout, Unreachable, status_error

Json = dict[str, Any]


def status(code: int, message: str, reason: str = "") -> bytes:
    """A Status as the server writes it."""
    return json.dumps(
        {
            "kind": "Status",
            "metadata": {},
            "status": "Failure",
            "code": code,
            "message": message,
            "reason": reason,
        }
    ).encode()


def pod(name: str, uid: str, version: int, mark: int = 0, *, readable: bool = True) -> Json:
    """A pod on the wire; an unreadable one has a number where a text must be."""
    return {
        "metadata": {
            "namespace": "d",
            "name": name,
            "uid": uid,
            "resourceVersion": str(version),
            "labels": {"mark": str(mark)},
            "creationTimestamp": None,
        },
        "spec": {"nodeName": "" if readable else 7, "containers": None},
        "status": {},
    }


@dataclass
class FakeServer:
    """Serves list and watch of pods. `faults` are taken one a request; `cut` ends open watches."""

    clock: ManualClock
    page_limit: int | None = None
    version: int = 100
    compacted: int = 0
    objects: dict[str, Json] = field(default_factory=dict)
    history: list[tuple[int, str, Json]] = field(default_factory=list)
    faults: deque[str] = field(default_factory=deque)
    requests: list[str] = field(default_factory=list)
    uids: int = 0
    split: int = 0
    repeat: int = 0
    frozen: bool = False
    _cut: str = ""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    open_watches: int = 0

    # --- the cluster

    def put(self, name: str, mark: int, *, readable: bool = True) -> None:
        old = self.objects.get(name)
        self.version += 1
        if old is None:
            self.uids += 1
        uid = old["metadata"]["uid"] if old else f"u{self.uids}"
        new = pod(name, uid, self.version, mark, readable=readable)
        self.objects[name] = new
        self._tell("MODIFIED" if old else "ADDED", new)

    def delete(self, name: str) -> None:
        old = self.objects.pop(name, None)
        if old is None:
            return
        self.version += 1
        gone = json.loads(json.dumps(old))
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._tell("DELETED", gone)

    def bookmark(self) -> None:
        self.history.append(
            (self.version, "BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}})
        )
        self._wake()

    def compact(self) -> None:
        self.compacted = self.version

    def cut(self, how: str) -> None:
        self._cut = how
        self._wake()

    def _tell(self, kind: str, obj: Json) -> None:
        self.history.append((self.version, kind, obj))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # --- KubeClient

    async def request(self, method, path, *, params, **_):
        assert method == "GET"
        params = params or {}
        self.requests.append(f"list {params.get('continue') or params.get('resourceVersion', '-')}")
        await asyncio.sleep(0)
        if self.faults:
            answer = self._fault(self.faults.popleft())
            if answer is not None:
                return answer
        asked = params.get("resourceVersion", "")
        if asked.isdecimal() and int(asked) > self.version:
            return Response(504, {}, status(504, "Too large resource version: 9", "Timeout"))
        start, version = 0, self.version
        token = params.get("continue")
        if token:
            start, version = (int(x) for x in token.split("-"))
            if version < self.compacted or version != self.version:
                return Response(410, {}, status(410, "continue expired", "Expired"))
        names = sorted(self.objects)
        limit = self.page_limit if "limit" in params else None
        chosen = names[start:] if limit is None else names[start : start + limit]
        meta: Json = {"resourceVersion": str(version)}
        if start + len(chosen) < len(names):
            meta["continue"] = f"{start + len(chosen)}-{version}"
        page = {"kind": "PodList", "metadata": meta, "items": [self.objects[n] for n in chosen]}
        return Response(200, {}, json.dumps(page).encode())

    async def stream(
        self, path: str, *, params: Mapping[str, str] | None = None, read_timeout_seconds: float
    ) -> AsyncGenerator[bytes, None]:
        params = params or {}
        seen = int(params["resourceVersion"])
        self.requests.append(f"watch {seen}")
        await asyncio.sleep(0)
        if self.faults:
            answer = self._fault(self.faults.popleft())
            if answer is not None:
                raise answer.error() if answer.status != 200 else Interrupted("not a watch")
        if seen < self.compacted:
            raise status_error(410, status(410, "too old", "Expired"))
        self.open_watches += 1
        self._cut = ""
        try:
            async for chunk in self._events(seen):
                yield chunk
        finally:
            self.open_watches -= 1

    async def _events(self, seen: int) -> AsyncGenerator[bytes, None]:
        yield b""
        position = 0
        while True:
            changed = self._changed
            if not self.frozen:
                news = [h for h in self.history[position:] if h[0] > seen]
                position = len(self.history)
                if news and self.repeat:
                    news = [*news, *news[-self.repeat :]]
                for chunk in self._chunks(news):
                    yield chunk
                # From here on all is news, whatever its version.
                seen = -1
            how, self._cut = self._cut, ""
            if not how:
                await changed.wait()
                continue
            for last in self._end(how):
                yield last
            return

    def _end(self, how: str) -> list[bytes]:
        """The last bytes of a watch that ends."""
        match how:
            case "drop":
                raise Interrupted("connection reset")
            case "freeze":
                self.clock.advance(130.0)
                raise Timeout("silence")
            case "expire":
                return [_error_event(410, "Expired")]
            case "error":
                return [_error_event(500, "InternalError")]
            case _:
                return {"close": [], "garbage": [b"<html>\n"], "half": [b'{"type":"ADD']}[how]

    def _chunks(self, news: list[tuple[int, str, Json]]) -> list[bytes]:
        data = b"".join(
            json.dumps({"type": kind, "object": obj}).encode() + b"\n" for _, kind, obj in news
        )
        if not self.split:
            return [data] if data else []
        return [data[i : i + self.split] for i in range(0, len(data), self.split)]

    def _fault(self, fault: str) -> Response | None:
        match fault:
            case "ok":
                return None
            case "refused":
                raise Unreachable("connection refused")
            case "reset":
                raise Interrupted("connection reset")
            case "silent":
                raise Timeout("no answer")
            case "garbage":
                return Response(200, {}, b"<html>")
            case "429":
                return Response(429, {"retry-after": "7"}, status(429, "slow down"))
            case code:
                return Response(int(code), {}, status(int(code), f"fault {code}"))


def _error_event(code: int, reason: str) -> bytes:
    return b'{"type":"ERROR","object":' + status(code, "went wrong", reason) + b"}\n"
