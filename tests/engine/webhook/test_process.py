"""What the process of the webhook knows of the scheduler: what that keeps, read for each review."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json

from engine.clock import ManualClock
from engine.configuration.berth import BerthDocument
from engine.configuration.settings import Settings
from engine.kube.client import Response
from engine.kube.keeper import Keeper
from engine.kube.wiring import Wiring
from engine.objects import ConfigMap, ObjectMeta
from engine.policy import lastgood
from engine.policy.reloader import Kept
from engine.telemetry import Telemetry
from engine.webhook.process import Place, Webhook, WebhookOptions

TITLE = "ConfigMap a/b"


class Server:
    """The ConfigMaps of `policies.state`, by name."""

    def __init__(self):
        self.there = {}

    async def request(self, method, path, **_):
        found = self.there.get(path.rpartition("/")[2])
        if found is None:
            return Response(404, {}, b'{"kind": "Status", "reason": "NotFound", "code": 404}')
        return Response(200, {}, json.dumps({"metadata": {}, **found}).encode())

    def keep(self, data):
        self.there["berth-last-good-a-0"] = {
            "binaryData": {"policies": base64.b64encode(data).decode()}
        }
        digest = hashlib.sha256(data).hexdigest()
        self.there["berth-last-good"] = {"data": {"slot": "a", "chunks": "1", "digest": digest}}

    def tell(self, text):
        self.there["berth-status"] = {"data": {"status.json": text}}


def asked(server, state="a/berth"):
    """What a process remembers, asked as often as wanted."""
    policies = {"configMap": "a/b", "state": state}
    settings = Settings(berth=BerthDocument.model_validate({"policies": policies}))
    process = Webhook(WebhookOptions(settings, None, Place("a", "hook")), ManualClock())
    wiring = Wiring(ManualClock(), Telemetry())
    keeper = state and Keeper(server, wiring, state)
    return process, lambda: asyncio.run(process._remembered(keeper))


def test_texts_that_were_taken_back_and_the_size_of_the_cluster_are_read_each_time():
    server = Server()
    process, remembered = asked(server)
    assert remembered() == {}, "nothing is kept yet"
    server.keep(lastgood.pack({TITLE: Kept({"x.policy": "score: 1\n"}, "bad")}))
    server.tell('{"bundle": "b", "cluster": {"nodes": 5000, "pods": 90000}, "sources": []}')
    assert remembered()[TITLE] == Kept({"x.policy": "score: 1\n"}, "bad")
    assert process._cluster.pods == 90_000
    assert process.in_force.reloader.there() == (5_000, 90_000)
    server.keep(lastgood.pack({TITLE: Kept({"x.policy": "score: 1\n"}, "worse")}))
    assert remembered()[TITLE].barred == "worse"


def test_what_is_spoilt_is_told_once_and_counts_as_nothing(caplog):
    server = Server()
    _, remembered = asked(server)
    for spoilt in ("no json", '{"cluster": 7}'):
        server.tell(spoilt)
        caplog.clear()
        assert remembered() == remembered() == {}
        told = [one for one in caplog.records if "keeps cannot be read" in one.getMessage()]
        assert len(told) == 1
    server.tell("{}")
    server.keep(b"no zlib")
    assert remembered() == {}


def test_a_source_that_is_broken_from_the_start_is_not_said_to_stop_a_scheduler(caplog):
    process, _ = asked(Server())
    [(_, source)] = process.in_force.configured.watched
    source.on_add(ConfigMap(ObjectMeta("b", "a"), {"x.policy": "filter: node.lable a\n"}))
    for work in process.in_force.background:
        while work.step(1e9):
            pass
    [told] = [one.getMessage() for one in caplog.records if "was refused" in one.getMessage()]
    assert "; changes are checked without it until it is corrected\n" in told


def test_without_a_state_nothing_is_asked():
    assert asked(None, state=None)[1]() == {}
