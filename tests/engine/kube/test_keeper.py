"""What is kept in ConfigMaps is whole, whenever the process ends."""

from __future__ import annotations

import asyncio
import base64
import json
from functools import partial

import pytest

from engine.clock import ManualClock
from engine.kube.client import Response
from engine.kube.errors import KubeError, StatusError, Timeout, Unreachable
from engine.kube.keeper import CHUNK, MOST_BYTES, MOST_CHUNKS, Keeper
from engine.kube.wiring import Wiring
from engine.telemetry import Telemetry

COLLECTION = "/api/v1/namespaces/berth-system/configmaps"
NOT_THERE = b'{"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}'


class Server:
    """ConfigMaps by name; the first `fail` writes are refused."""

    def __init__(self):
        self.there = {}
        self.writes = 0
        self.ends_after = None
        self.instead = None

    async def request(self, method, path, *, body=None, content_type="", **_):
        if self.instead is not None:
            return self.instead
        name = path.removeprefix(COLLECTION).removeprefix("/")
        if method == "GET":
            found = self.there.get(name)
            if found is None:
                return Response(404, {}, NOT_THERE)
            return Response(200, {}, json.dumps(found).encode())
        if self.ends_after is not None and self.writes >= self.ends_after:
            raise asyncio.CancelledError
        if method == "PATCH" and name not in self.there:
            return Response(404, {}, b"{}")
        self.writes += 1
        item = json.loads(body)
        name = name or item["metadata"]["name"]
        self.there[name] = {**self.there.get(name, {}), **item}
        return Response(200, {}, b"{}")


def keeper(server):
    async def sleep(_seconds):
        await asyncio.sleep(0)

    wiring = Wiring(ManualClock(), Telemetry(), sleep=sleep)
    return Keeper(server, wiring, "berth-system/berth")


async def kept(server, *values):
    one = keeper(server)
    for value in values:
        one.keep(partial(bytes, value))
        await one.flush()


async def loaded(server):
    return await keeper(server).load()


@pytest.mark.parametrize("answer", [(404, b"no such page"), (200, b"<html>")])
async def test_whoever_answers_in_the_place_of_the_server_keeps_nothing_and_does_not_say_so(answer):
    status, page = answer
    server = Server()
    server.instead = Response(status, {}, page)
    with pytest.raises(KubeError) as refused:
        await loaded(server)
    assert not isinstance(refused.value, StatusError) or refused.value.may_pass, "asked again"
    one = keeper(server)
    one.keep(lambda: b"rules")
    assert not await one.flush()


LARGE = bytes(range(256)) * (2 * CHUNK // 256) + b"end"


@pytest.mark.parametrize("data", [b"", b"small", LARGE])
async def test_what_is_kept_is_loaded(data):
    server = Server()
    assert await loaded(server) is None
    await kept(server, b"older", data)
    assert await loaded(server) == data
    chunks = {f"berth-last-good-{slot}-{n}" for slot in "ab" for n in range(MOST_CHUNKS)}
    assert set(server.there) <= {"berth-last-good", *chunks}, "what roles allow"
    sizes = [
        len(base64.b64decode(one.get("binaryData", {}).get("policies", "")))
        for one in server.there.values()
    ]
    assert max(sizes) <= CHUNK


@pytest.mark.parametrize("writes", range(5))
async def test_a_process_that_ends_while_it_writes_leaves_the_older_or_the_newer(writes):
    server = Server()
    await kept(server, b"older", b"old")
    server.ends_after = server.writes + writes
    with pytest.raises(asyncio.CancelledError):
        await kept(server, LARGE, b"not written any more")
    assert await loaded(server) == (LARGE if writes == 4 else b"old")


@pytest.mark.parametrize("written", [False, True])
async def test_after_a_write_that_failed_the_place_that_is_named_is_not_written_over(written):
    """The index has a write whose answer is lost; then newer bytes come, and the process ends."""
    server = Server()
    await kept(server, b"older")
    right, lost = server.request, [True]

    async def losing(method, path, **more):
        if method == "PATCH" and path.endswith("-last-good") and lost:
            lost.clear()
            if written:
                await right(method, path, **more)
            raise Timeout("no answer")
        return await right(method, path, **more)

    server.request = losing
    one = keeper(server)
    await one.load()
    one.keep(lambda: b"old")
    assert not await one.flush()
    one.keep(lambda: b"newer")
    server.ends_after = server.writes + 1
    with pytest.raises(asyncio.CancelledError):
        await one.flush()
    assert await loaded(server) == (b"old" if written else b"older")


async def test_policies_are_kept_before_it_is_told_how_they_stand():
    """Whoever reads that they are in force may end the process: the next one has them."""
    server = Server()
    one = keeper(server)
    one.tell(lambda: b"{}")
    one.keep(lambda: b"rules")
    assert await one.flush()
    assert list(server.there) == ["berth-last-good-b-0", "berth-last-good", "berth-status"]


async def test_what_comes_into_force_while_policies_are_kept_is_not_told_before_it_is_kept():
    server, rules = Server(), [b"old"]
    right = server.request

    async def edited(method, path, **more):
        rules[0] = b"new"
        return await right(method, path, **more)

    server.request = edited
    one = keeper(server)
    one.tell(lambda: rules[0])
    one.keep(lambda: rules[0])
    assert await one.flush()
    assert server.there["berth-status"]["data"] == {"status.json": "old"}
    assert await loaded(server) == b"old"


async def test_what_somebody_changed_is_not_used(caplog):
    server = Server()
    await kept(server, b"rules")
    for value in ("bm90", "%%%"):
        server.there["berth-last-good-b-0"]["binaryData"] = {"policies": value}
        assert await loaded(server) is None
    assert "last-good are incomplete, and not used" in caplog.text


@pytest.mark.parametrize("name", ["last-good", "last-good-b-0", "status"])
async def test_what_somebody_deletes_or_changes_is_written_again(name):
    server = Server()
    one = keeper(server)
    one.keep(lambda: b"rules")
    one.tell(lambda: b"{}")
    task = asyncio.create_task(one.run())
    for there in ({}, {"data": {"slot": "c", "status.json": "no"}}, None):
        for _ in range(100):
            await asyncio.sleep(0)
        assert (await one.load(), await one.told()) == (b"rules", b"{}")
        server.there[f"berth-{name}"] = there
    task.cancel()


async def test_who_has_nothing_to_write_asks_for_nothing():
    """A follower: what the leader keeps is none of its business."""
    server = Server()

    async def asked(*_, **__):
        raise AssertionError

    server.request = asked
    task = asyncio.create_task(keeper(server).run())
    for _ in range(100):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()


async def test_a_write_that_fails_is_told_once_and_tried_again(caplog):
    server = Server()
    one = keeper(server)
    right, written, left = server.request, asyncio.Event(), [None] * 3

    async def failing(method, path, **more):
        if left:
            left.pop()
            raise Unreachable("connection refused")
        answer = await right(method, path, **more)
        if "berth-status" in server.there:
            written.set()
        return answer

    server.request = failing
    one.tell(lambda: b'{"bundle": "1"}')
    task = asyncio.create_task(one.run())
    await written.wait()
    task.cancel()
    assert server.there["berth-status"]["data"] == {"status.json": '{"bundle": "1"}'}
    (told,) = caplog.messages
    assert "connection refused" in told


async def test_what_a_role_does_not_allow_is_told_once_for_both(caplog):
    server = Server()

    async def refusing(method, path, **more):
        if method == "GET":
            return Response(404, {}, b"{}")
        name = path.rpartition("/")[2]
        raise StatusError(403, "Forbidden", f'configmaps "{name}" is forbidden')

    server.request = refusing
    one = keeper(server)
    one.keep(lambda: b"rules")
    one.tell(lambda: b"{}")
    for _ in range(4):
        assert not await one.flush()
    assert [one.getMessage().count("cannot be written") for one in caplog.records] == [1, 1]


async def test_texts_that_are_too_large_are_told_once_and_in_the_status(caplog):
    server, rules = Server(), [bytes(MOST_BYTES + 1)]
    told = []
    one = keeper(server)
    one.keep(lambda: rules[0])
    one.tell(lambda: json.dumps(one.not_kept).encode())
    task = asyncio.create_task(one.run())
    for size in (MOST_BYTES + 1, 5):
        rules[0] = bytes(size)
        for _ in range(200):
            await asyncio.sleep(0)
        told.append(json.loads(server.there["berth-status"]["data"]["status.json"]))
    task.cancel()
    assert await one.load() == bytes(5)
    assert told == [f"they are too large: {MOST_BYTES + 1} bytes, and at most {MOST_BYTES} fit", ""]
    assert [one.levelname for one in caplog.records] == ["ERROR"]


@pytest.mark.parametrize("bad", [b"refused", bytes(MOST_BYTES + 1)])
async def test_who_goes_back_to_what_is_kept_says_no_longer_why_it_was_not(bad):
    server, rules = Server(), [b"good"]

    async def refusing(method, *_, **__):
        if method != "GET":
            raise Timeout("no answer")
        return Response(404, {}, NOT_THERE)

    one, well = keeper(server), server.request
    one.keep(lambda: rules[0])
    await one.flush()
    rules[0], server.request = bad, refusing
    await one.flush()
    assert one.not_kept
    rules[0], server.request = b"good", well
    await one.flush()
    assert not one.not_kept


async def test_who_finds_that_what_it_knows_of_is_gone_writes_it():
    """A follower that leads looks once more."""
    server = Server()
    await kept(server, b"rules")
    one = keeper(server)
    assert await one.load() == b"rules"
    server.there.clear()
    assert await one.load() is None
    one.keep(lambda: b"rules")
    await one.flush()
    assert await loaded(server) == b"rules"
