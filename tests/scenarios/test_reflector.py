"""Runs `reflector.yaml`: each request in order, each answer as written, each call as expected."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from engine.clock import ManualClock
from engine.kube.client import Response
from engine.kube.errors import Interrupted, Timeout, status_error
from engine.kube.reflector import Reflector, Wiring
from engine.kube.resources import pods
from engine.objects import ObjectMeta, Pod
from engine.telemetry import Telemetry
from tests.scenarios.fake_server import pod, status

SCENARIOS = yaml.safe_load((Path(__file__).parent / "reflector.yaml").read_text())
_POD = re.compile(r"(?P<name>\w+)(=(?P<uid>\w+))?@(?P<version>\d+)")


def _pod(text: str) -> dict[str, Any]:
    match = _POD.fullmatch(text)
    assert match, text
    return pod(match["name"], match["uid"] or f"uid-{match['name']}", int(match["version"]))


def _line(text: str) -> bytes:
    kind, _, rest = text.partition(" ")
    obj = {"metadata": {"resourceVersion": rest}} if kind == "BOOKMARK" else _pod(rest)
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


@dataclass
class Script:
    """A KubeClient that follows a scenario."""

    then: list[dict[str, dict[str, Any]]]
    finished: asyncio.Event = field(default_factory=asyncio.Event)

    def _next(self, request: str) -> dict[str, Any]:
        [(expected, answer)] = self.then.pop(0).items()
        assert request == expected
        return answer

    async def request(self, method, path, *, params, **_):
        if not self.then:
            self.finished.set()
            await asyncio.Event().wait()
        answer = self._next(f"list {(params or {}).get('resourceVersion', '-')}")
        if "code" in answer:
            return Response(answer["code"], {}, _status(answer))
        version, more = str(answer["version"]), answer.get("continue", "")
        page = {
            "metadata": {"resourceVersion": version, "continue": more},
            "items": [_pod(text) for text in answer["pods"]],
        }
        return Response(200, {}, json.dumps(page).encode())

    async def stream(
        self, path: str, *, params: Mapping[str, str] | None = None, read_timeout_seconds: float
    ) -> AsyncGenerator[bytes, None]:
        answer = self._next(f"watch {(params or {})['resourceVersion']}")
        if "code" in answer:
            raise status_error(answer["code"], _status(answer))
        yield b""
        yield b"".join(_line(text) for text in answer.get("events", ()))
        match answer["end"]:
            case "open":
                self.finished.set()
                await asyncio.Event().wait()
            case "drop":
                raise Interrupted("connection reset")
            case "freeze":
                raise Timeout("silence")
            case "expire":
                yield _error(410)
            case "error":
                yield _error(500)
            case "garbage":
                yield b"<html>\n"
            case "half":
                yield _line("MODIFIED a@99")[:-9]
            case "close":
                pass


def _status(answer: Mapping[str, Any]) -> bytes:
    return status(answer["code"], answer.get("message", "went wrong"))


def _error(code: int) -> bytes:
    return b'{"type":"ERROR","object":' + status(code, "went wrong") + b"}\n"


class Told:
    """A handler that only remembers."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.known: dict[str, Pod] = {}

    def on_add(self, obj: Pod) -> None:
        self.known[obj.metadata.name] = obj
        self.calls.append(f"add {_text(obj)}")

    def on_update(self, old: Pod, new: Pod) -> None:
        assert self.known[new.metadata.name] is old
        self.known[new.metadata.name] = new
        self.calls.append(f"update {_text(old)} {_text(new)}")

    def on_delete(self, obj: Pod) -> None:
        self.calls.append(f"delete {_text(self.known.pop(obj.metadata.name))}")

    def on_synced(self) -> None:
        self.calls.append("synced")

    def on_unreadable(self, meta: ObjectMeta, reason: str) -> None:
        raise AssertionError((meta, reason))


def _text(obj: Pod) -> str:
    return f"{obj.metadata.name}@{obj.metadata.resource_version}"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s["name"])
async def test_scenario(scenario: dict[str, Any]) -> None:
    clock, slept, told = ManualClock(), [], Told()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.advance(seconds)
        await asyncio.sleep(0)

    script = Script(list(scenario["then"]))
    wiring = Wiring(clock, Telemetry(), Random(1), sleep)
    watched = pods()
    unlike = {key: scenario[key] for key in ("path", "optional") if key in scenario}
    watched = replace(watched, **unlike)
    task = asyncio.create_task(Reflector(script, watched, told, wiring).run())
    finished = asyncio.create_task(script.finished.wait())
    await asyncio.wait({task, finished}, timeout=5, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not script.then
    assert told.calls == scenario["told"]
    assert len(slept) == scenario["slept"]
