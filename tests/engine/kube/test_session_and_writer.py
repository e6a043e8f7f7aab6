"""The session and the writers against a scripted HTTP server on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from aiohttp import web
from kubernetes.aio.config import incluster_config

from engine.clock import ManualClock
from engine.framework.edge import Binder, BindOutcome, EffectWriter, PodStatusWriter
from engine.framework.effects import Bind, Evict, Patch, SetUnschedulable
from engine.kube import credentials
from engine.kube.errors import (
    Expired,
    Fenced,
    Interrupted,
    KubeconfigError,
    StatusError,
    Timeout,
    Unreachable,
)
from engine.kube.gate import Gate, Priority
from engine.kube.session import Session
from engine.kube.wiring import Wiring
from engine.kube.writer import KubeBinder, KubeEffectWriter, KubePodStatusWriter
from engine.objects import Condition, ObjectMeta, Pod, PodStatus
from engine.pods.podinfo import PodInfo, make_pod_info
from engine.telemetry import FORBIDDEN, Count, Telemetry
from tests.cluster.certificates import Authority
from tests.engine.loopback import listening
from tests.scenarios.fake_server import status

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def reply(code: int, body: bytes = b"{}", headers: Mapping[str, str] | None = None) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=code, body=body, headers=headers)

    return answer


LOGIN = reply(200, b"<html>")
"""What a proxy says in the server's place to whoever has not logged in."""


ANOTHER_UID = 'Pod "p" is invalid: metadata.uid: Invalid value: "u1": field is immutable'
"""What the API server says of a patch if another pod has the name by then."""


def refusal(code: int, message: str, headers: Mapping[str, str] | None = None) -> Answer:
    return reply(code, status(code, message, "Conflict"), headers)


def pod_json(uid: str = "u1", node: str = "", **meta: str) -> Answer:
    pod = {
        "metadata": {"name": "p", "namespace": "d", "uid": uid, **meta},
        "spec": {"nodeName": node},
    }
    return reply(200, json.dumps(pod).encode())


async def hang_up(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


async def be_silent(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(3.0)
    return web.Response()


@dataclass
class Script:
    """Answers in order; the last one stays. Remembers what was asked."""

    answers: list[Answer] = field(default_factory=list)
    asked: list[tuple[str, str, bytes, Mapping[str, str]]] = field(default_factory=list)
    port: int = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.asked.append((request.method, request.path_qs, body, request.headers.copy()))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(request)

    @property
    def calls(self) -> str:
        return " ".join(f"{method}" for method, *_ in self.asked)


@asynccontextmanager
async def serving(*answers: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[Script]:
    script = Script(list(answers))
    async with listening(script.handle, tls) as script.port:
        yield script


@dataclass
class Proxy:
    """Hands everything on to one port, whatever server it is asked for; remembers the heads."""

    port: int = 0
    heads: list[str] = field(default_factory=list)


@asynccontextmanager
async def proxying(to: int, connected: bytes = b"HTTP/1.1 200 OK\r\n\r\n") -> AsyncIterator[Proxy]:
    proxy = Proxy()

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        proxy.heads.append(head.decode())
        from_server, to_server = await asyncio.open_connection("127.0.0.1", to)
        if head.startswith(b"CONNECT "):
            writer.write(connected)
        else:
            to_server.write(head)
        await asyncio.gather(pipe(reader, to_server), pipe(from_server, writer))

    async with await asyncio.start_server(met, "127.0.0.1", 0) as server:
        proxy.port = server.sockets[0].getsockname()[1]
        yield proxy


def kubeconfig(server: str, **user: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
    }


def through(proxy: str) -> dict[str, Any]:
    config = kubeconfig("https://h.invalid")
    config["clusters"][0]["cluster"]["proxy-url"] = proxy
    return config


@asynccontextmanager
async def session_by(config: dict[str, Any]) -> AsyncIterator[Session]:
    session = await Session.connect(config)
    try:
        yield session
    finally:
        await session.close()


def session_to(script: Script, **user: Any) -> AbstractAsyncContextManager[Session]:
    return session_by(kubeconfig(f"http://127.0.0.1:{script.port}", **user))


def wiring() -> Wiring:
    clock = ManualClock()

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)
        await asyncio.sleep(0)

    return Wiring(clock, Telemetry(), Random(1), sleep)


def pod_info(*conditions: Condition) -> PodInfo:
    pod = Pod(
        metadata=ObjectMeta(name="p", namespace="d", uid="u1", generation=3),
        status=PodStatus(conditions=list(conditions)),
    )
    return make_pod_info(pod)


BIND = Bind(pod_info(), "n1", {"a": "b"})


async def bound_by(*answers: Answer) -> tuple[BindOutcome, str, Script]:
    async with serving(*answers) as script, session_to(script) as session:
        binder: Binder = KubeBinder(Gate(session, wiring()))
        with pytest.MonkeyPatch.context() as patched:
            if be_silent in answers:
                patched.setattr("engine.kube.gate._TIMEOUT_SECONDS", 1.0)
            outcome, text = await binder.bind(BIND)
            if outcome is BindOutcome.UNKNOWN:
                outcome, text = await binder.resolve(BIND)
        return outcome, text, script


ASSIGNED = (
    'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "{}"'
)
B = BindOutcome
OF_STORAGE = 'Operation cannot be fulfilled on pods/binding "p": etcdserver: '
FULL, LATE = f"{OF_STORAGE}mvcc: database space exceeded", f"{OF_STORAGE}request timed out"
OUTCOMES: Mapping[str, tuple[list[Answer], BindOutcome, str, str]] = {
    "created": ([reply(201)], B.BOUND, "POST", ""),
    "answer that is no JSON": ([reply(201, b"<>")], B.BOUND, "POST", ""),
    "ours already": ([refusal(409, ASSIGNED.format("n1"))], B.BOUND, "POST", ""),
    "another's": ([refusal(409, ASSIGNED.format("n2"))], B.TAKEN, "POST", "n2"),
    "assigned, not said where": (
        [refusal(409, "pod p is already assigned"), pod_json(node="n1")],
        B.BOUND,
        "POST GET",
        "",
    ),
    "other uid": (
        [refusal(409, "Precondition failed: UID in precondition: u1, UID in object meta: u2")],
        B.GONE,
        "POST",
        "UID",
    ),
    "being deleted": (
        [refusal(409, "pod p is being deleted, cannot be assigned to a host")],
        B.GONE,
        "POST",
        "being deleted",
    ),
    "gates": (
        [refusal(409, "pod p has non-empty .spec.schedulingGates")],
        B.REFUSED,
        "POST",
        "schedulingGates",
    ),
    "storage that is full": ([refusal(409, FULL), pod_json()], B.PUT_OFF, "POST GET", "not bound"),
    "storage that was late": ([refusal(409, LATE), pod_json(node="n1")], B.BOUND, "POST GET", ""),
    "not found": ([refusal(404, 'pods "p" not found')], B.GONE, "POST", "not found"),
    "no namespace": (
        [refusal(404, 'namespaces "d" not found')],
        B.REFUSED,
        "POST",
        "namespaces",
    ),
    "404 of a webhook": (
        [refusal(404, 'admission webhook "w" denied the request: pods "p" not found')],
        B.REFUSED,
        "POST",
        "webhook",
    ),
    "404 of another": (
        [reply(404, b"404 page not found")],
        B.REFUSED,
        "POST",
        "404 page not found",
    ),
    "504, and 404 of another": (
        [refusal(504, "late"), reply(404, b"default backend")],
        B.UNKNOWN,
        "POST GET",
        "backend",
    ),
    "forbidden": ([refusal(403, "no")], B.REFUSED, "POST", "no"),
    "unauthorized": ([refusal(401, "who?")], B.PUT_OFF, "POST POST", "who?"),
    "forbidden to us": (
        [refusal(403, 'User "b" cannot create resource "pods/binding"')],
        B.PUT_OFF,
        "POST",
        "cannot create",
    ),
    "invalid": ([refusal(422, "no")], B.REFUSED, "POST", "no"),
    "slow down, then created": (
        [refusal(429, "slow", {"Retry-After": "2"}), reply(201)],
        B.BOUND,
        "POST POST",
        "",
    ),
    "slow down for good": (
        [refusal(429, "slow", {"Retry-After": "2"})],
        B.PUT_OFF,
        "POST POST POST",
        "slow",
    ),
    "slow down too long": (
        [refusal(429, "slow", {"Retry-After": "60"})],
        B.PUT_OFF,
        "POST",
        "slow",
    ),
    "500 and bound": ([refusal(500, "etcd"), pod_json(node="n1")], B.BOUND, "POST GET", ""),
    "503 and not bound": ([refusal(503, "etcd"), pod_json()], B.PUT_OFF, "POST GET", "not bound"),
    "504 and another's": ([refusal(504, "late"), pod_json(node="n2")], B.TAKEN, "POST GET", "n2"),
    "504 and another pod": ([refusal(504, "late"), pod_json("u2")], B.GONE, "POST GET", "another"),
    "504 and gone": ([refusal(504, "late"), refusal(404, "no")], B.GONE, "POST GET", "not found"),
    "504 and being deleted": (
        [refusal(504, "late"), pod_json(deletionTimestamp="2026-01-01T00:00:00Z")],
        B.GONE,
        "POST GET",
        "deleted",
    ),
    "504 and no word": ([refusal(504, "late")], B.UNKNOWN, "POST GET", "late"),
    "504 and no pod": ([refusal(504, "late"), reply(200, b"[]")], B.UNKNOWN, "POST GET", "pod d/p"),
    "hung up and bound": ([hang_up, pod_json(node="n1")], B.BOUND, "POST GET", ""),
    "hung up and not bound": ([hang_up, pod_json()], B.PUT_OFF, "POST GET", "not bound"),
    "silent and bound": ([be_silent, pod_json(node="n1")], B.BOUND, "POST GET", ""),
    "login page of a proxy": (
        [LOGIN, pod_json()],
        B.PUT_OFF,
        "POST GET",
        "not bound",
    ),
    "redirect": (
        [reply(307, headers={"Location": "/elsewhere"}), pod_json()],
        B.PUT_OFF,
        "POST GET",
        "not bound",
    ),
}


@pytest.mark.parametrize("name", OUTCOMES)
async def test_outcomes_of_a_binding(name: str):
    answers, outcome, calls, text = OUTCOMES[name]
    got, why, script = await bound_by(*answers)
    assert (got, script.calls) == (outcome, calls)
    assert text in why
    assert (why == "") == (got is B.BOUND)
    assert "\n" not in why


async def test_a_connection_at_rest_holds_no_answer():
    """One list may be a hundred megabytes."""
    async with serving(reply(200, b"{}" + b" " * 10_000)) as script, session_to(script) as session:
        answer = await session.request("GET", "/api/v1/pods")
        count, own, argument = sys.getrefcount(answer.body), 1, 1
    assert count == own + argument


async def test_a_binding_on_the_wire():
    _, _, script = await bound_by(reply(201))
    method, path, body, headers = script.asked[0]
    assert (method, path) == ("POST", "/api/v1/namespaces/d/pods/p/binding")
    assert headers["Content-Type"] == "application/json"
    assert headers["User-Agent"].startswith("berth/")
    assert json.loads(body) == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "namespace": "d", "uid": "u1", "annotations": {"a": "b"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }


async def test_a_refused_connection_is_surely_not_bound_and_cannot_be_asked():
    async with serving(reply(201)) as script:
        session = await Session.connect(kubeconfig(f"http://127.0.0.1:{script.port}"))
    wires = wiring()
    binder = KubeBinder(Gate(session, wires))
    outcome, text = await binder.bind(BIND)
    assert outcome is B.PUT_OFF
    assert text == f"cannot reach http://127.0.0.1:{script.port}: connection refused"
    outcome, _ = await binder.resolve(BIND)
    assert outcome is B.UNKNOWN
    await session.close()


class TestFence:
    """What may not be written is not, wherever on its way the right to write ends."""

    @staticmethod
    async def refused(*says: bool) -> tuple[str, str, int]:
        """Asked so often, the fence says so; the answers, and what the server has heard."""
        left = list(says)
        async with serving(reply(201)) as script, session_to(script) as session:
            wires = wiring()
            gate = Gate(session, wires, may_write=lambda: left.pop(0))
            outcome, why = await KubeBinder(gate).bind(BIND)
            assert outcome is B.PUT_OFF
            assert gate.wanted == 0
            assert not wires.reach.away, "that says nothing of the server"
            return why, script.calls, len(left)

    async def test_a_follower_does_not_even_ask_for_a_connection(self):
        assert await self.refused(False) == ("not sent, as this replica does not lead", "", 0)

    async def test_the_right_ends_while_a_connection_is_made(self):
        why, heard, left = await self.refused(True, False)
        assert (why, heard, left) == ("not sent, as this replica no longer leads", "", 0)

    async def test_it_ends_while_new_credentials_are_read(self):
        left = [True, True, False]
        answers = refusal(401, "who?"), reply(201)
        async with serving(*answers) as script, session_to(script, token="t") as session:
            gate = Gate(session, wiring(), may_write=lambda: left.pop(0))
            outcome, _ = await KubeBinder(gate).bind(BIND)
            assert outcome is B.PUT_OFF
            assert script.calls == "POST"

    async def test_an_event_that_is_on_its_way_when_another_is_to_lead_is_told(self):
        left = [True, False]
        async with serving(reply(201)) as script, session_to(script) as session:

            def may_write() -> bool:
                if len(left) == 1:
                    gate.retire()
                return left.pop(0)

            gate = Gate(session, wiring(), may_write=may_write)
            with await gate.place(Priority.EVENT) as place:
                await place.request("POST", "/x", body=b"{}")
            assert script.calls == "POST"

    async def test_reading_and_the_lease_pass(self):
        async with serving(pod_json(), reply(200)) as script, session_to(script) as session:
            gate = Gate(session, wiring(), may_write=lambda: False)
            assert await KubeBinder(gate).resolve(BIND) == (B.PUT_OFF, "it is not bound")
            await gate.lane(Priority.LEASE).request("PUT", "/lease", body=b"{}")
            assert script.calls == "GET PUT"


class TestEffectWriter:
    @staticmethod
    async def written(effect: Evict | Patch, *answers: Answer) -> tuple[str, Script, Wiring]:
        async with serving(*answers) as script, session_to(script) as session:
            wires = wiring()
            writer: EffectWriter = KubeEffectWriter(Gate(session, wires), wires)
            if isinstance(effect, Evict):
                return await writer.evict(effect), script, wires
            return await writer.patch(effect), script, wires

    async def test_a_victim_is_told_before_it_is_deleted_by_its_uid(self):
        victim = pod_info(Condition("Ready", "True"))
        why, script, wires = await self.written(
            Evict(victim, pod_info(), "to make room"), reply(200)
        )
        told, deleted = script.asked
        assert (why, wires.telemetry[Count.PODS_EVICTED]) == ("", 1)
        assert told[:2] == ("PATCH", "/api/v1/namespaces/d/pods/p/status")
        (condition,) = json.loads(told[2])["status"]["conditions"]
        wanted = ("DisruptionTarget", "True", "PreemptionByScheduler", "to make room")
        assert tuple(condition[k] for k in ("type", "status", "reason", "message")) == wanted
        assert deleted[:2] == ("DELETE", "/api/v1/namespaces/d/pods/p")
        assert json.loads(deleted[2])["preconditions"] == {"uid": "u1"}

    @pytest.mark.parametrize(
        ("answers", "calls", "done"),
        [
            ([reply(404, status(404, "no such pod", "NotFound"))], "PATCH", True),
            ([reply(404, b"no backend")], "PATCH", False),
            ([reply(422, status(422, ANOTHER_UID, "Invalid"))], "PATCH", True),
            ([reply(422, status(422, "spec is wrong", "Invalid"))], "PATCH", False),
            ([reply(200), refusal(409, "Precondition failed: UID")], "PATCH DELETE", True),
            ([refusal(409, "the object has been modified")], "PATCH", False),
            ([refusal(403, "may not")], "PATCH", False),
            ([reply(200), refusal(500, "broken")], "PATCH DELETE", False),
            ([LOGIN], "PATCH", False),
            ([reply(200), LOGIN], "PATCH DELETE", False),
        ],
    )
    async def test_who_is_gone_is_evicted_and_who_is_not_is_said(
        self, answers: list[Answer], calls: str, *, done: bool
    ):
        why, script, _ = await self.written(Evict(pod_info(), pod_info(), "x"), *answers)
        assert script.calls.startswith(calls)
        assert (why == "") is done

    @pytest.mark.parametrize(
        "effect",
        [
            Patch("Rack", "", "r", {}),
            Patch("Node", "", "n", {"a": object()}),
            Patch("Node", "", "n", {"a": "\ud800"}),
            Patch("Node", "", "\ud800", {}),
        ],
    )
    async def test_what_no_server_could_take_is_said(self, effect: Patch):
        why, script, _ = await self.written(effect)
        assert why.startswith(f"a plugin's patch of {effect.kind} cannot be written: ")
        assert script.asked == []

    async def test_patches_of_any_kind(self):
        effect = Patch("PersistentVolumeClaim", "d", "data", {"a": 1})
        why, script, _ = await self.written(effect, reply(200))
        method, path, body, headers = script.asked[0]
        assert (why, method) == ("", "PATCH")
        assert path == "/api/v1/namespaces/d/persistentvolumeclaims/data"
        assert headers["Content-Type"] == "application/merge-patch+json"
        assert json.loads(body) == {"a": 1}
        why, script, _ = await self.written(
            Patch("PersistentVolume", "", "pv", {}), refusal(409, "has changed")
        )
        assert script.asked[0][1] == "/api/v1/persistentvolumes/pv"
        assert "has changed" in why
        why, _, _ = await self.written(effect, LOGIN)
        assert why == "200, but no object in JSON: <html>"


class TestPodStatusWriter:
    @staticmethod
    async def written(
        effect: SetUnschedulable,
        *answers: Answer,
        before: Sequence[SetUnschedulable] = (),
        until: asyncio.Event | None = None,
    ) -> tuple[Script, Wiring]:
        async with serving(*answers) as script, session_to(script) as session:
            wires = wiring()
            writer = KubePodStatusWriter(Gate(session, wires), wires)
            task = asyncio.create_task(writer.run())
            sink: PodStatusWriter = writer
            for one in (*before, effect):
                sink.set_unschedulable(one)
            if until is not None:
                await until.wait()
            await asyncio.sleep(0.05)
            await sink.withdraw(effect.pod.uid)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return script, wires

    async def test_a_pod_whose_name_another_has_needs_no_condition(
        self, caplog: pytest.LogCaptureFixture
    ):
        script, wires = await self.written(
            SetUnschedulable(pod_info(), "Unschedulable", "0/1 nodes"),
            reply(422, status(422, ANOTHER_UID, "Invalid")),
        )
        assert script.calls == "PATCH"
        assert (wires.telemetry[Count.STATUS_PATCHES], caplog.records) == (0, [])

    async def test_the_patch(self):
        script, wires = await self.written(
            SetUnschedulable(pod_info(), "Unschedulable", "0/1 nodes"), reply(200)
        )
        method, path, body, headers = script.asked[0]
        assert (method, path) == ("PATCH", "/api/v1/namespaces/d/pods/p/status")
        assert headers["Content-Type"] == "application/strategic-merge-patch+json"
        assert json.loads(body) == {
            "metadata": {"uid": "u1"},
            "status": {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/1 nodes",
                        "observedGeneration": 3,
                        "lastTransitionTime": "2025-03-01T10:00:00Z",
                    }
                ]
            },
        }
        assert wires.telemetry[Count.STATUS_PATCHES] == 1

    async def test_a_new_message_is_no_transition_and_the_same_is_not_written(self):
        known = Condition("PodScheduled", "False", "Unschedulable", "0/1 nodes")
        same = SetUnschedulable(pod_info(known), "Unschedulable", "0/1 nodes")
        assert not (await self.written(same, reply(200)))[0].asked
        for reason, message in (("Unschedulable", "0/2 nodes"), ("SchedulerError", "0/1 nodes")):
            other = SetUnschedulable(pod_info(known), reason, message)
            script, _ = await self.written(other, reply(200))
            assert "lastTransitionTime" not in script.asked[0][2].decode()

    @pytest.mark.parametrize(
        ("effects", "message", "nominated"),
        [
            ([("waits", "n1"), ("waits on", None)], "waits on", "n1"),
            ([("waits", "n1"), (None, "")], "waits", None),
            ([(None, ""), ("waits", "n2")], "waits", "n2"),
            ([(None, "")], None, None),
        ],
    )
    async def test_two_in_one_patch_lose_neither_words_nor_promise(
        self, effects: list[tuple[str | None, str | None]], message: str, nominated: str
    ):
        *before, last = [
            SetUnschedulable(pod_info(), "Unschedulable" if words else "", words or "", node)
            for words, node in effects
        ]
        script, _ = await self.written(last, reply(200), before=before)
        (asked,) = script.asked
        status = json.loads(asked[2])["status"]
        assert status["nominatedNodeName"] == nominated
        assert [one["message"] for one in status["conditions"]] == [message] * bool(message)

    async def test_what_is_refused_for_hours_ends_nothing(self):
        refused, slept, enough = refusal(403, "never"), list[float](), asyncio.Event()

        async def sleep(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == 1100:
                enough.set()
                await asyncio.Event().wait()

        async with serving(refused) as script, session_to(script) as session:
            wires = Wiring(ManualClock(), Telemetry(), Random(1), sleep)
            writer = KubePodStatusWriter(Gate(session, wires), wires)
            task = asyncio.create_task(writer.run())
            writer.set_unschedulable(SetUnschedulable(pod_info(), "SchedulingGated", "m"))
            ended, _ = await asyncio.wait(
                (task, asyncio.create_task(enough.wait())), return_when=asyncio.FIRST_COMPLETED
            )
            assert task not in ended
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert slept[0] < 2.0
        assert 200.0 < slept[-1] < 600.0

    @pytest.mark.parametrize(
        "answer",
        [
            refusal(403, "early"),
            refusal(429, "slow"),
            refusal(500, "x"),
            reply(404, b"404 page not found"),
            LOGIN,
            hang_up,
        ],
    )
    async def test_what_may_pass_is_written_again(self, answer: Answer):
        """A pod that a gate holds is told why once: no later attempt would say it."""
        effect = SetUnschedulable(pod_info(), "SchedulingGated", "m")
        well = asyncio.Event()

        async def works(request: web.Request) -> web.StreamResponse:
            well.set()
            return await reply(200)(request)

        script, wires = await self.written(effect, answer, answer, works, until=well)
        said = [json.loads(body)["status"]["conditions"] for _, _, body, _ in script.asked]
        assert [one["message"] for [one] in said] == ["m"] * 3
        assert wires.telemetry[Count.STATUS_PATCHES] == 1

    async def test_what_is_withdrawn_or_said_anew_is_not_written_again(self):
        first, then = (SetUnschedulable(pod_info(), "Unschedulable", one) for one in "ab")
        rests: asyncio.Queue[asyncio.Event] = asyncio.Queue()

        async def sleep(_: float) -> None:
            await rests.put(over := asyncio.Event())
            await over.wait()

        async with serving(refusal(500, "x"), reply(200)) as script, session_to(script) as session:
            wires = Wiring(ManualClock(), Telemetry(), Random(1), sleep)
            writer = KubePodStatusWriter(Gate(session, wires), wires)
            task = asyncio.create_task(writer.run())
            writer.set_unschedulable(first)
            over = await rests.get()
            writer.set_unschedulable(then)
            assert await writer.flush(1.0)
            script.answers.insert(0, refusal(500, "x"))
            writer.set_unschedulable(first)
            rest = await rests.get()
            await writer.withdraw(first.pod.uid)
            for one in (over, rest):
                one.set()
            assert await writer.flush(1.0)
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        said = [json.loads(body)["status"]["conditions"] for _, _, body, _ in script.asked]
        assert [one["message"] for [one] in said] == ["a", "b", "a"]

    @pytest.mark.parametrize("answer", [refusal(500, "x"), hang_up])
    async def test_what_is_said_anew_while_a_write_fails_is_written_with_its_promise(
        self, answer: Answer
    ):
        async def fails(request: web.Request) -> web.StreamResponse:
            writer.set_unschedulable(SetUnschedulable(pod_info(), "Unschedulable", "b"))
            return await answer(request)

        async with serving(fails, reply(200)) as script, session_to(script) as session:
            wires = wiring()
            writer = KubePodStatusWriter(Gate(session, wires), wires)
            task = asyncio.create_task(writer.run())
            writer.set_unschedulable(SetUnschedulable(pod_info(), "Unschedulable", "a", "n1"))
            assert await writer.flush(5.0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        _, (_, _, body, _) = script.asked
        said = json.loads(body)["status"]
        assert (said["conditions"][0]["message"], said["nominatedNodeName"]) == ("b", "n1")

    @pytest.mark.parametrize("answer", [refusal(404, "gone"), refusal(500, "x"), hang_up])
    async def test_failures_are_not_raised(self, answer: Answer):
        _, wires = await self.written(SetUnschedulable(pod_info(), "Unschedulable", "m"), answer)
        assert wires.telemetry[Count.STATUS_PATCHES] == 0


class TestStream:
    async def test_chunks_come_as_they_are_sent_and_silence_is_a_timeout(self):
        async def dribble(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b'{"a":')
            await asyncio.sleep(0)
            await response.write(b"1}\n")
            await asyncio.sleep(600)
            return response

        async def run(limit: float) -> bytes:
            got = b""
            async with serving(dribble) as script, session_to(script) as session:
                stream = session.stream("/x", params={"watch": "true"}, read_timeout_seconds=limit)
                with pytest.raises(Timeout):  # noqa: PT012 - a loop is what is tested
                    async with aclosing(stream):
                        async for chunk in stream:
                            got += chunk
                assert not got or script.asked[0][1] == "/x?watch=true"
            return got

        for limit in (0.05, 1.0, 60.0):  # a busy machine may say nothing in a short time
            if await run(limit) == b'{"a":1}\n':
                return
        pytest.fail("nothing came")

    async def test_a_refusal_is_an_error_with_its_status(self):
        async with serving(refusal(410, "too old")) as script, session_to(script) as session:
            with pytest.raises(Expired, match="too old"):
                await anext(session.stream("/x", read_timeout_seconds=1.0))

    async def test_a_broken_connection(self):
        async def break_off(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"{}\n")
            assert request.transport is not None
            request.transport.abort()
            return response

        async with serving(break_off) as script, session_to(script) as session:
            with pytest.raises(Interrupted, match=r"in the middle of an answer$"):
                async for _ in session.stream("/x", read_timeout_seconds=1.0):
                    pass


async def test_after_a_silence_no_connection_that_was_open_is_used():
    """Both were there before the network swallowed them: one costs a timeout, the other nothing."""
    dead: set[object] = set()

    async def swallow(request: web.Request) -> web.StreamResponse:
        if request.transport in dead:
            await asyncio.sleep(60)
        await asyncio.sleep(0.02)
        dead.add(request.transport)
        return web.Response()

    async with serving(swallow) as script, session_to(script) as session:
        await asyncio.gather(*[session.request("GET", "/x") for _ in range(2)])
        assert len(dead) == 2
        with pytest.raises(Timeout):
            await session.request("GET", "/x", timeout_seconds=0.1)
        assert (await session.request("GET", "/x", timeout_seconds=5.0)).ok


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


class TestConfiguration:
    async def test_a_token_file_is_read_again_after_a_401_for_all_that_get_one(
        self, tmp_path: Path
    ):
        token = tmp_path / "token"
        token.write_text("old")

        async def check(request: web.Request) -> web.StreamResponse:
            good = request.headers["Authorization"] == "Bearer new"
            if not good:
                assert request.headers["Authorization"] == "Bearer old"
                token.write_text("new")
            return web.Response(status=200 if good else 401)

        async with serving(check) as script:
            users = {"tokenFile": str(token), "token": "not while there is a file"}
            config = kubeconfig(f"http://127.0.0.1:{script.port}", **users)
            path = tmp_path / "config"
            path.write_text(yaml.safe_dump(config))
            session = await Session.connect(path)
            requests = [session.request("GET", "/x") for _ in range(2)]
            watch = session.stream("/y", read_timeout_seconds=5)
            good = await asyncio.gather(*requests, anext(watch))
            assert [one if one == b"" else one.status for one in good] == [200, 200, b""]
            assert len(script.asked) == 6
            await watch.aclose()
            await session.close()
            (tmp_path / "empty").touch()
            for without in ("gone", str(tmp_path / "empty")):
                config["users"][0]["user"] |= {"tokenFile": without, "token": "new"}
                async with await Session.connect(config) as session:
                    assert (await session.request("GET", "/x")).status == 200

    @pytest.mark.parametrize(
        ("text", "header"),
        [("t1\n", "Bearer t1"), ("t1\r\nX: y\n", "Bearer t1 X: y"), ("t\x00\u20ac", "Bearer t")],
    )
    async def test_what_a_header_cannot_hold_is_no_part_of_a_token(
        self, tmp_path: Path, text: str, header: str
    ):
        token = tmp_path / "token"
        token.write_bytes(text.encode())
        async with (
            serving(reply(200)) as script,
            session_to(script, tokenFile=str(token)) as session,
        ):
            await session.request("GET", "/x")
            async with aclosing(session.stream("/y", read_timeout_seconds=5)) as stream:
                assert await anext(stream) == b""
            assert [one[3]["Authorization"] for one in script.asked] == [header] * 2

    async def test_certificates_that_others_renew_are_read_again(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ):
        """Ours after a 401, whom we trust after a certificate that we do not; files may be gone."""
        authority = Authority(tmp_path / "right")
        shown, key, trusted = (tmp_path / name for name in ("c.crt", "c.key", "ca.crt"))

        def renewed(user: str) -> None:
            pair = authority.client(user)
            shown.write_bytes(pair.certificate.read_bytes())
            key.write_bytes(pair.key.read_bytes())

        async def check(request: web.Request) -> web.StreamResponse:
            subject = dict(one[0] for one in request.get_extra_info("peercert")["subject"])
            return web.Response(status=200 if subject["commonName"] == "new" else 401)

        clock = ManualClock()
        tls = authority.tls()
        tls.verify_mode = ssl.CERT_REQUIRED
        trusted.write_bytes(Authority(tmp_path / "wrong").certificate.read_bytes())
        renewed("old")
        async with serving(check, tls=tls) as script:
            user = {"client-certificate": str(shown), "client-key": str(key)}
            config = kubeconfig(f"https://127.0.0.1:{script.port}", **user)
            config["clusters"][0]["cluster"]["certificate-authority"] = str(trusted)
            session = await Session.connect(config, clock=clock)
            with pytest.raises(Unreachable, match="cannot be trusted"):
                await session.request("GET", "/x")
            clock.advance(5.0)
            trusted.unlink()
            with pytest.raises(Unreachable, match="cannot be trusted"):
                await session.request("GET", "/x")
            clock.advance(5.0)
            trusted.write_bytes(authority.certificate.read_bytes())
            with pytest.raises(Unreachable, match="cannot be trusted"):
                await session.request("GET", "/x")
            assert (await session.request("GET", "/x")).status == 401
            clock.advance(5.0)
            renewed("new")
            answers = await asyncio.gather(*[session.request("GET", "/x") for _ in range(3)])
            assert [answer.status for answer in answers] == [200] * 3
            async with aclosing(session.stream("/y", read_timeout_seconds=5)) as stream:
                assert await anext(stream) == b""
            await session.close()
        [told] = [one.getMessage() for one in caplog.records if "be reloaded" in one.getMessage()]
        assert told.endswith(f"No such file or directory ({trusted}, {shown}, {key})")

    async def test_where_certificates_are_gone_new_connections_take_those_of_before(
        self, tmp_path: Path
    ):
        authority = Authority(tmp_path)
        trusted = tmp_path / "trusted.crt"
        trusted.write_bytes(authority.certificate.read_bytes())
        used: list[object] = []

        async def answer(request: web.Request) -> web.StreamResponse:
            used.append(request.transport)
            await asyncio.sleep(60 if request.path == "/silent" else 0.02)
            return web.Response()

        async with serving(answer, tls=authority.tls()) as script:
            config = kubeconfig(f"https://127.0.0.1:{script.port}")
            config["clusters"][0]["cluster"]["certificate-authority"] = str(trusted)
            session = await Session.connect(config)
            await asyncio.gather(*[session.request("GET", "/x") for _ in range(2)])
            trusted.unlink()
            with pytest.raises(Timeout):
                await session.request("GET", "/silent", timeout_seconds=0.1)
            before = set(used)
            assert (await session.request("GET", "/x")).ok
            assert used[-1] not in before, "it was open before the silence, and may be dead"
            await session.close()

    @pytest.mark.parametrize(
        ("script", "said"),
        [
            ("sleep 60 & echo $! > $PIDS; wait", "it did not exit within 0.5 s"),
            ("yes", "its output is longer than 1048576 bytes"),
            ("yes >&2", "its output is longer than 1048576 bytes"),
            ("echo oops", "JSON is malformed"),
            ("printf '\\377'", "malformed"),
            ("echo {}", "missing required field"),
            (
                """echo '{"apiVersion":"v2","status":{"token":"t"}}'""",
                "its output is of v2, not v1",
            ),
            ("""echo '{"apiVersion":"v1","status":{"token":""}}'""", "neither a token nor"),
            ("printf 'no\\nway\\033' >&2; exit 3", r"it exited with 3: no way\x1b"),
        ],
    )
    async def test_a_program_that_gives_no_credentials_is_an_error_and_ends(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str
    ):
        if "sleep" in script:
            monkeypatch.setattr(credentials, "_PROGRAM_SECONDS", 0.5)
        pids = tmp_path / "pids"
        env = [{"name": "PIDS", "value": str(pids)}]
        run = {"apiVersion": "v1", "command": "sh", "args": ["-c", script], "env": env}
        with pytest.raises(KubeconfigError) as caught:
            await Session.connect(kubeconfig("http://h", exec=run))
        assert str(caught.value).startswith("kubeconfig: exec sh: ")
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)
        while pids.exists() and _runs(int(pids.read_text())):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)

    async def test_a_program_is_asked_again_after_a_401(self, tmp_path: Path):
        script = f"""
            echo x >> {tmp_path}/runs
            echo '{{"apiVersion":"v1","status":{{"token":"t'$(wc -l < {tmp_path}/runs)'"}}}}'
        """
        run = {"apiVersion": "v1", "command": "sh", "args": ["-c", script]}

        async def check(request: web.Request) -> web.StreamResponse:
            good = request.headers["Authorization"] == "Bearer t2"
            return web.Response(status=200 if good else 401)

        async with serving(check) as server, session_to(server, exec=run) as session:
            assert (await session.request("GET", "/x")).status == 200

    async def test_a_kubeconfig_that_turns_to_another_cluster_keeps_this_one(self, tmp_path: Path):
        async def check(request: web.Request) -> web.StreamResponse:
            told.append(request.headers["Authorization"])
            return web.Response(status=200 if len(told) == 2 else 401)

        file, told = tmp_path / "config", []
        async with serving(check) as server:
            for token in ("of-this", "of-another"):
                config = kubeconfig(f"http://127.0.0.1:{server.port}", token=token)
                file.write_text(yaml.safe_dump(config))
                if token == "of-this":
                    session = await Session.connect(file)
            await session.request("GET", "/x")
            await session.close()
        assert set(told) == {"Bearer of-this"}

    @pytest.mark.parametrize("command", ["./token", "bin/../token", "{}/token"])
    async def test_a_program_is_found_from_the_folder_of_its_kubeconfig(
        self, tmp_path: Path, command: str
    ):
        program, config = tmp_path / "token", tmp_path / "config"
        (tmp_path / "bin").mkdir()
        program.write_text("""#!/bin/sh\necho '{"apiVersion":"v1","status":{"token":"t"}}'\n""")
        program.chmod(0o700)
        run = {"apiVersion": "v1", "command": command.format(tmp_path)}
        config.write_text(yaml.safe_dump(kubeconfig("http://h", exec=run)))
        await (await Session.connect(str(config))).close()

    async def test_a_program_that_asks_is_told_of_the_cluster(self, tmp_path: Path):
        script = """
            printf %s "$KUBERNETES_EXEC_INFO" > "$TOLD"
            echo '{"apiVersion":"v1","status":{"token":"t"}}'
        """
        told, authority = tmp_path / "told", tmp_path / "ca.crt"
        authority.write_text("who signs")
        run = {"apiVersion": "v1", "command": "sh", "args": ["-c", script]}
        run |= {"env": [{"name": "TOLD", "value": str(told)}]}

        async def spec(**more: object) -> object:
            config = kubeconfig("http://h:1", exec={**run, **more})
            config["clusters"][0]["cluster"] |= {
                "certificate-authority": str(authority),
                "tls-server-name": "k",
                "extensions": [
                    {"name": "of another", "extension": 1},
                    {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}},
                ],
            }
            await (await Session.connect(config)).close()
            return json.loads(told.read_text())["spec"]

        assert await spec() == {"interactive": False}
        assert await spec(provideClusterInfo=True) == {
            "interactive": False,
            "cluster": {
                "server": "http://h:1",
                "tls-server-name": "k",
                "certificate-authority-data": b64encode(b"who signs").decode(),
                "config": {"audience": "a"},
            },
        }

    @pytest.mark.parametrize(
        ("secure", "connected"),
        [
            (False, b""),
            (True, b"HTTP/1.1 200 OK\r\n\r\n"),
            (True, b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"),
            (True, b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"),
        ],
    )
    async def test_requests_and_streams_go_through_a_proxy(
        self, tmp_path: Path, secure: bool, connected: bytes
    ):
        """It is asked for the server by name; TLS is between us and the server."""
        authority = Authority(tmp_path)
        async with (
            serving(reply(200), tls=authority.tls() if secure else None) as script,
            proxying(script.port, connected) as proxy,
        ):
            scheme = "https" if secure else "http"
            config = kubeconfig(f"{scheme}://api.invalid:6443", token="t")
            config["clusters"][0]["cluster"] |= {
                "certificate-authority": str(authority.certificate),
                "proxy-url": f"http://me:pw@127.0.0.1:{proxy.port}",
                "tls-server-name": "localhost",
            }
            async with session_by(config) as session:
                assert (await session.request("POST", "/x", body=b"{}")).status == 200
                async with aclosing(session.stream("/y", read_timeout_seconds=5)) as stream:
                    assert await anext(stream) == b""
            told = [(one[0], one[1], one[3]["Authorization"]) for one in script.asked]
            assert told == [("POST", "/x", "Bearer t"), ("GET", "/y", "Bearer t")]
            first, *_ = proxy.heads
            line = "CONNECT api.invalid:6443" if secure else "POST http://api.invalid:6443/x"
            assert first.startswith(line)
            assert f"Proxy-Authorization: Basic {b64encode(b'me:pw').decode()}" in first

    @pytest.mark.parametrize(
        ("server", "proxy", "but", "taken"),
        [
            ("https://api.h.invalid:6443", "http://p:1", "x, *.H.invalid", None),
            ("https://notapi", "http://p:1", "*.api", "http://p:1"),
            ("https://api:6443", "http://p:3128", "", "http://p:3128"),
            ("https://api:6443", "p:3128", "", "http://p:3128"),
            ("https://api:6443", "me:pw@p:3128", "", "http://me:pw@p:3128"),
            ("https://api:6443", "http://p:3128", "api:6443", None),
            ("https://me@api:6443", "http://p:3128", "api:6443", None),
            ("https://api.svc", "http://p:3128", ".svc", None),
            ("https://10.96.0.1", "http://p:3128", "x, 10.0.0.0/8", None),
            ("https://[fd00::1]:6443", "http://p:3128", "fd00::/8", None),
            ("https://11.0.0.1", "http://p:3128", "10.0.0.0/8", "http://p:3128"),
            ("https://api", "http://p:99999", "", KubeconfigError),
            ("https://api", "socks5://me:pw@p:1080", "", KubeconfigError),
            ("https://api", "//me:pw@p:1080", "", "http://me:pw@p:1080"),
        ],
    )
    async def test_the_proxy_of_the_environment(
        self,
        server: str,
        proxy: str,
        but: str,
        taken: str | type[KubeconfigError] | None,
        monkeypatch: pytest.MonkeyPatch,
    ):
        monkeypatch.setenv("https_proxy", proxy)
        monkeypatch.setenv("no_proxy", but)
        if isinstance(taken, type):
            with pytest.raises(taken, match=r"https_proxy: .* is not an http or") as told:
                await Session.connect(kubeconfig(server))
            assert "pw" not in str(told.value)
        else:
            async with session_by(kubeconfig(server)) as session:
                assert session._proxy == taken

    async def test_a_password_in_the_server_is_not_told(self):
        async with session_by(kubeconfig("http://me:pw@127.0.0.1:9")) as session:
            with pytest.raises(Unreachable, match=r"cannot reach http://127\.0\.0\.1:9: "):
                await session.request("GET", "/x")
            assert session._host == "127.0.0.1:9"

    async def test_a_watch_that_ends_while_its_token_is_read_again_leaves_no_connection(
        self,
    ):
        begun = asyncio.Event()

        async def reload() -> None:
            begun.set()
            await asyncio.Event().wait()

        async with serving(reply(401)) as script, session_to(script) as session:
            session._reload = reload
            watch = session.stream("/x", read_timeout_seconds=5)
            task = asyncio.ensure_future(anext(watch))
            await begun.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert [one for one in session._channels._all if one.open] == []

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
    async def test_loopback_is_never_proxied(self, host: str, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        async with serving(reply(200)) as script:
            async with session_by(kubeconfig(f"http://{host}:{script.port}", token="t")) as session:
                assert (await session.request("GET", "/x")).status == 200
            async with session_by(kubeconfig("http://elsewhere.invalid", token="t")) as session:
                with pytest.raises(Unreachable, match="connection refused"):
                    await session.request("GET", "/x")

    async def test_a_prefix_in_the_servers_address_is_kept(self):
        async with serving(reply(200)) as script:
            url = f"http://127.0.0.1:{script.port}/k8s/clusters/c1/"
            async with session_by(kubeconfig(url, token="t")) as session:
                await session.request("GET", "/api", params={"labelSelector": "a in (b,c)"})
            assert script.asked[0][1] == "/k8s/clusters/c1/api?labelSelector=a+in+%28b%2Cc%29"
            assert script.asked[0][3]["Authorization"] == "Bearer t"

    @pytest.mark.parametrize(
        ("content", "text"),
        [
            (None, "does not exist"),
            ("", ""),
            ("[", "expected"),
            ("a: 1", ""),
            (yaml.safe_dump({**kubeconfig("x"), "current-context": "z"}), "z"),
            (yaml.safe_dump(kubeconfig("unix:///tmp/x")), "not an http"),
            (yaml.safe_dump(kubeconfig("https://h", **{"client-certificate-data": "!"})), ""),
            (
                yaml.safe_dump(kubeconfig("https://h", **{"client-certificate": "/no/such"})),
                "exist",
            ),
            (
                yaml.safe_dump(kubeconfig("https://h", **{"client-certificate-data": "YQ=="})),
                "a client certificate and its key belong together",
            ),
            (
                yaml.safe_dump({**kubeconfig("https://h"), "users": [{"name": "x", "user": {}}]}),
                "the context names user 'u', which does not exist",
            ),
            (yaml.safe_dump(through("socks5://h:1")), "proxy-url 'socks5://h:1' is not an http"),
            (
                yaml.safe_dump(through("http://a:s3cret@h:99999")),
                "proxy-url 'http://h:99999' is no",
            ),
            (yaml.safe_dump(kubeconfig("https://h:99999")), "server 'https://h:99999' is not an"),
            (yaml.safe_dump(kubeconfig("https://[::1:6443")), "server 'https://[::1:6443' is not"),
            ("", "it is not a kubeconfig with clusters, users and contexts"),
            ("- a", "it is not a kubeconfig"),
            ("a", "it is not a kubeconfig"),
            (
                yaml.safe_dump(kubeconfig("https://h", token="t", **{"as": "a", "as-groups": []})),
                "its user has as, as-groups, but Berth does not impersonate",
            ),
            (
                yaml.safe_dump(kubeconfig("https://h", **{"auth-provider": {"name": "azure"}})),
                "its user has auth-provider, which gives no credentials: write token",
            ),
            (
                yaml.safe_dump(kubeconfig("https://h", exec={"command": "sh"})),
                "exec sh: its apiVersion is missing",
            ),
            (
                yaml.safe_dump(
                    kubeconfig(
                        "https://h",
                        exec={"apiVersion": "v1", "command": "/no/such", "installHint": "get\nit"},
                    )
                ),
                "No such file or directory: '/no/such'; get it",
            ),
        ],
    )
    async def test_a_wrong_kubeconfig_is_one_line(
        self, tmp_path: Path, content: str | None, text: str
    ):
        path = tmp_path / "config"
        if content is not None:
            path.write_text(content)
        with pytest.raises(KubeconfigError) as caught:
            await Session.connect(path)
        assert "\n" not in str(caught.value)
        assert str(path) in str(caught.value)
        assert text in str(caught.value)

    async def test_a_context_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        config = kubeconfig("http://127.0.0.1:1")
        other = kubeconfig("http://127.0.0.1:2")
        config["clusters"] += [{**other["clusters"][0], "name": "k2"}]
        config["contexts"] += [{"name": "c2", "context": {"cluster": "k2", "user": "u"}}]
        (tmp_path / "config").write_text(yaml.safe_dump(config))
        for said, server in (
            (None, "http://127.0.0.1:1"),
            ("", "http://127.0.0.1:1"),
            ("c2", "http://127.0.0.1:2"),
        ):
            async with await Session.connect(tmp_path / "config", said) as session:
                assert session.server == server
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        async with await Session.connect("", context="c2") as session:
            assert session.server == "http://127.0.0.1:2", "not the service account of the pod"
        with pytest.raises(KubeconfigError, match="context 'c3' does not exist"):
            await Session.connect(context="c3")

    async def test_a_pipe_is_read(self):
        """As a shell writes `--kubeconfig <(...)`."""
        end, begin = os.pipe()
        with os.fdopen(begin, "w") as pipe:
            yaml.safe_dump(kubeconfig("http://127.0.0.1:1"), pipe)
        async with await Session.connect(f"/dev/fd/{end}") as session:
            assert session.server == "http://127.0.0.1:1"
        os.close(end)

    async def test_who_has_no_home_is_told_so(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("os.path.expanduser", str)
        with pytest.raises(KubeconfigError, match="kubeconfig: Could not determine home directory"):
            await Session.connect()

    async def test_no_service_account(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        with pytest.raises(KubeconfigError, match="service account"):
            await Session.connect()

    @pytest.fixture
    def account(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """The folder of the service account of this pod."""
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        for name, file in (("TOKEN", "token"), ("CERT", "ca.crt")):
            constant = f"{incluster_config.__name__}.SERVICE_{name}_FILENAME"
            monkeypatch.setattr(constant, str(tmp_path / file))
        (tmp_path / "token").write_text("old")
        (tmp_path / "ca.crt").write_bytes(Authority(tmp_path).certificate.read_bytes())
        return tmp_path

    async def test_the_token_of_a_service_account_is_read_again_after_a_401(
        self, account: Path, monkeypatch: pytest.MonkeyPatch
    ):
        async def check(request: web.Request) -> web.StreamResponse:
            good = request.headers["Authorization"].endswith(" new")
            (account / "token").write_text("new")
            return web.Response(status=200 if good else 401)

        async with serving(check, tls=Authority(account).tls()) as script:
            monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(script.port))
            session = await Session.connect()
            assert (await session.request("GET", "/x")).status == 200
            await session.close()

    @pytest.mark.parametrize("port", ["99999", "https"])
    async def test_a_port_of_the_environment_that_is_none_is_told(
        self, account: Path, port: str, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
        with pytest.raises(
            KubeconfigError, match=f"_PORT: 'https://127.0.0.1:{port}' is not an http"
        ):
            await Session.connect()

    @pytest.mark.parametrize(
        ("config", "said"),
        [
            (kubeconfig("https://127.0.0.1:1"), "https://127.0.0.1:1: "),
            (
                through("http://me:s3cret@127.0.0.1:1"),
                "https://h.invalid through the proxy http://127.0.0.1:1: connection",
            ),
        ],
    )
    async def test_who_cannot_be_reached_is_named_with_the_proxy_and_without_its_password(
        self, config: dict[str, Any], said: str
    ):
        async with session_by(config) as session:
            with pytest.raises(Unreachable, match=f"cannot reach {re.escape(said)}"):
                await session.request("GET", "/version")

    async def test_all_goes_through_a_proxy_and_nothing_that_may_not_leave(self):
        async with serving(*[reply(200, b"{}")] * 3) as script:
            config = kubeconfig("http://h.invalid")
            config["clusters"][0]["cluster"]["proxy-url"] = f"http://127.0.0.1:{script.port}"
            async with session_by(config) as session:
                assert (await session.request("GET", "/a", params={"b": "c"})).body == b"{}"
                async with aclosing(session.stream("/s", read_timeout_seconds=9.0)) as stream:
                    assert [chunk async for chunk in stream] == [b"", b"{}"]
                put = await session.request("PUT", "/x", body=b"[]", may_leave=lambda: True)
                assert put.status == 200
                with pytest.raises(Fenced):
                    await session.request("PUT", "/y", body=b"[]", may_leave=lambda: False)
        asked = [(method, path, body) for method, path, body, _ in script.asked]
        assert asked == [("GET", "/a?b=c", b""), ("GET", "/s", b""), ("PUT", "/x", b"[]")]
        assert {headers["Host"] for *_, headers in script.asked} == {"h.invalid"}

    async def test_a_context_without_a_user_is_nobodys(self):
        config = kubeconfig("https://127.0.0.1:1")
        del config["contexts"][0]["context"]["user"]
        await (await Session.connect(config)).close()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "http_proxy",
        "https_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "KUBECONFIG",
        "KUBERNETES_SERVICE_HOST",
    ):
        monkeypatch.delenv(name, raising=False)


async def test_what_the_account_may_not_do_is_counted_and_told_if_it_lasts():
    clock = ManualClock()

    def refused(verb: str, resource: str, group: str = "") -> Answer:
        user = "system:serviceaccount:berth-system:berth"
        said = f'x "p" is forbidden: User "{user}" cannot {verb} resource "{resource}"'
        return refusal(403, f'{said} in API group "{group}" in the namespace "d"')

    listed = refused("list", "services")
    leases = refused("update", "leases", "coordination.k8s.io")
    terminating = refusal(403, 'pods "p" is forbidden: namespace d is being terminated')
    async with serving(terminating) as script:
        config = kubeconfig(f"http://127.0.0.1:{script.port}")
        async with await Session.connect(config, clock=clock) as session:

            async def asked(answer: Answer) -> list[str]:
                script.answers = [answer]
                await session.request("POST", "/x")
                with suppress(StatusError):
                    await anext(session.stream("/y", read_timeout_seconds=1.0))
                return session.forbidden

            for _ in range(2):
                assert await asked(terminating) == [], "that is admission's"
                assert await asked(listed) == [], "it may do without"
                clock.advance(31.0)
            assert await asked(refused("create", "pods/binding")) == []
            clock.advance(29.0)
            assert await asked(leases) == []
            clock.advance(1.0)
            assert await asked(refused("create", "pods/binding")) == [
                'User "system:serviceaccount:berth-system:berth" cannot create'
                ' resource "pods/binding" in API group ""'
            ]
            clock.advance(121.0)
            assert await asked(reply(200)) == [], "it was not asked for again"
            assert await asked(leases) == [], "it may have been allowed meanwhile"
            count = session.telemetry.value
            assert count(FORBIDDEN, "create", "pods/binding") == 4
            assert count(FORBIDDEN, "update", "leases.coordination.k8s.io") == 4
