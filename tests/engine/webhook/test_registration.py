"""Whom the API server asks about, and whom it trusts: the sources alone, and never nobody."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from datetime import UTC, datetime

import pytest

from engine.clock import ManualClock, SystemClock
from engine.configuration.berth import PoliciesSection
from engine.kube.client import Response
from engine.kube.errors import NotFound, StatusError, Unreachable
from engine.pods.selectors import SelectorError
from engine.serving.certificates import SharedPair, repeated
from engine.serving.selfmade import SelfMade
from engine.webhook.process import Place, Registration, webhooks
from tests.scenarios.fake_server import status

PLACE = Place("berth-system", "berth-webhook")
DAY = 86_400.0
OTHER_KEY = SelfMade().make("x", datetime(2026, 1, 1, tzinfo=UTC))[1]


def of(**policies):
    return webhooks(PoliciesSection.model_validate(policies), PLACE.client)


def test_one_named_config_map_is_asked_about_and_no_other():
    (only,) = of(configMap="berth-system/policies")
    assert only["matchConditions"] == [
        {
            "name": "named",
            "expression": "(request.namespace + '/' + request.name) in ['berth-system/policies']",
        }
    ]
    [among] = only["namespaceSelector"]["matchExpressions"]
    assert (among["key"], among["values"]) == ("kubernetes.io/metadata.name", ["berth-system"])
    assert (only["failurePolicy"], only["sideEffects"]) == ("Ignore", "None")
    assert only["clientConfig"]["service"]["name"] == "berth-webhook"


def test_a_selector_is_the_api_servers_and_does_not_ask_twice_about_a_named_one():
    sources = [
        {"configMap": "a/b"},
        {"dir": "/policies"},
        {"selector": "x=1,!old,team in (r, g),stage!=dev,y", "namespace": "teams"},
    ]
    named, selected = of(sources=sources)
    assert named["name"] == "policies.berth.dev"
    assert selected["name"] == "selected-0.policies.berth.dev"
    assert selected["objectSelector"]["matchExpressions"] == [
        {"key": "old", "operator": "DoesNotExist"},
        {"key": "stage", "operator": "NotIn", "values": ["dev"]},
        {"key": "team", "operator": "In", "values": ["g", "r"]},
        {"key": "x", "operator": "In", "values": ["1"]},
        {"key": "y", "operator": "Exists"},
    ]
    assert selected["matchConditions"][0]["expression"].startswith("!((request.namespace")
    assert of(dir="/policies") == []
    with pytest.raises(SelectorError, match="x: a webhook selects by"):
        of(sources=[{"selector": "x>3", "namespace": "teams"}])


def test_namespaces_are_asked_about_where_they_may_have_policies():
    tenants = {"configMap": "berth-policies", "namespaces": ["team-a", "dev-*", "x[!12]?"]}
    [named, own] = of(configMap="a/b", tenants=tenants)
    assert (named["name"], own["name"]) == ("policies.berth.dev", "tenants.policies.berth.dev")
    conditions = [one["expression"] for one in own["matchConditions"]]
    assert conditions == [
        "request.name == 'berth-policies'",
        r"request.namespace.matches(r'^(team\-a|dev\-.*|x[^12].)$')",
        "!((request.namespace + '/' + request.name) in ['a/b'])",
    ]


class Server:
    """One Secret and one configuration."""

    def __init__(self, data=None):
        self.data, self.version = data, 1
        self.trusted, self.away, self.before_write = [], False, None

    def data_of(self, name):
        return base64.b64decode(self.data[name])

    async def request(self, method, path, *, params=None, body=None, **_):
        if self.away:
            raise Unreachable("connection refused")
        if "validatingwebhookconfigurations" in path:
            assert params == {"fieldManager": "berth-webhook", "force": "true"}
            client = json.loads(body)["webhooks"][0]["clientConfig"]
            self.trusted.append(base64.b64decode(client.get("caBundle", "")))
        elif method == "PATCH":
            await asyncio.sleep(0)  # another replica reads meanwhile
            given = json.loads(body)
            if given["metadata"]["resourceVersion"] != str(self.version):
                return Response(409, {}, status(409, "changed", "Conflict"))
            self.data, self.version = given["data"], self.version + 1
        found = {"metadata": {"resourceVersion": str(self.version)}, "data": self.data}
        return Response(200, {}, json.dumps(found).encode())


def replica(server, clock):
    policies = PoliciesSection.model_validate({"configMap": "a/b"})
    registration = Registration(server, PLACE, policies)
    return SharedPair(
        server, ("berth-system", "berth-webhook"), SelfMade(), registration.apply, clock,
        host=PLACE.host,
    )  # fmt: skip


def looks(*pairs):
    async def main():
        await asyncio.gather(*(pair.look() for pair in pairs))

    asyncio.run(main())


def test_replicas_that_start_together_serve_one_certificate():
    server, clock = Server(), ManualClock()
    first, second = replica(server, clock), replica(server, clock)
    looks(first, second)
    assert first._serving == second._serving
    assert server.data_of("tls.crt") == first._serving
    assert {*server.trusted} == {first._serving}
    third = replica(server, clock)
    looks(third)
    assert third._serving == first._serving, "one that comes later takes the one that is there"


def test_a_certificate_that_ends_soon_is_made_anew_once_for_all_replicas():
    server, clock = Server(), ManualClock()
    one, other = replica(server, clock), replica(server, clock)
    looks(one)
    looks(other)
    first, until = one._serving, one.until
    assert clock.time() < until == other.until
    clock.advance(250 * DAY)
    looks(one)
    assert first != one._serving
    assert server.trusted[-1] == one._serving + first, "which the other still serves"
    assert one.until > until == other.until
    assert other._serving == first, "until its next look"
    looks(other)
    looks(one)
    assert one._serving == other._serving == server.trusted[-1] == server.data_of("tls.crt")
    assert one.until == other.until


def test_replicas_that_renew_together_agree_at_the_next_look():
    server, clock = Server(), ManualClock()
    both = replica(server, clock), replica(server, clock)
    looks(*both)
    clock.advance(250 * DAY)
    looks(*both)
    made = server.version
    looks(*both)
    looks(*both)
    assert server.version == made == 3, "one wrote, and nobody afterwards"
    assert {one._serving for one in both} == {server.trusted[-1]} == {server.data_of("tls.crt")}


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {},
        {"tls.crt": "!", "tls.key": "?"},
        {"tls.crt": base64.b64encode(b"x").decode()},
        {"host": base64.b64encode(b"other.host.svc").decode()},
        {"tls.key": base64.b64encode(OTHER_KEY).decode()},
    ],
)
def test_a_secret_that_somebody_spoilt_is_made_anew_at_once(wrong):
    server, clock = Server(), ManualClock()
    pair = replica(server, clock)
    looks(pair)
    first = pair._serving
    server.data = {**server.data, **wrong} if wrong else wrong
    looks(pair)
    now = server.data_of("tls.crt")
    assert now != first
    assert pair._serving == now
    looks(pair)
    assert server.trusted[-2:] == [now + first, now]


async def test_the_api_server_finds_the_service_in_the_certificate_that_it_trusts():
    server = Server()
    pair = replica(server, SystemClock())
    await pair.look()
    listening = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=pair.served.context
    )
    port = listening.sockets[0].getsockname()[1]
    trusting = ssl.create_default_context(cadata=server.data_of("tls.crt").decode())
    _, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=trusting, server_hostname="berth-webhook.berth-system.svc"
    )
    writer.close()
    listening.close()


def test_what_fails_is_told_once_and_tried_again_soon(caplog):
    server = Server()
    server.away = True
    slept = []

    async def sleep(seconds):
        slept.append(seconds)
        server.away = len(slept) < 3
        if len(slept) == 5:
            raise asyncio.CancelledError

    pair = replica(server, ManualClock())

    async def main():
        await repeated("the certificate cannot be renewed or trusted", pair.look, sleep)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert slept == [2.0, 2.0, 2.0, 30.0, 30.0]
    told = [one for one in caplog.records if "cannot be renewed or trusted" in one.getMessage()]
    assert len(told) == 1


@pytest.mark.parametrize(("code", "kind"), [(403, StatusError), (404, NotFound)])
def test_a_configuration_that_may_not_be_written_is_missing(code, kind):
    class Refusing:
        async def request(self, *_, **__):
            return Response(code, {}, status(code, "no", "Forbidden"))

    registration = Registration(Refusing(), PLACE, PoliciesSection(configMap="a/b"))
    with pytest.raises(kind) as refused:
        asyncio.run(registration.apply(b"x"))
    assert registration.missing == (
        "ValidatingWebhookConfiguration berth-webhook is not written yet"
    )
    notes = getattr(refused.value, "__notes__", [])
    assert (code == 403) == any("is created by the manifests" in one for one in notes)


def test_whom_others_sign_by_is_trusted_until_what_they_signed_before_is_served_no_more():
    server = Server()
    registration = Registration(server, PLACE, PoliciesSection(configMap="a/b"))
    for authority in (b"old", b"new", b"new"):
        asyncio.run(registration.apply(authority))
    assert server.trusted == [b"old", b"new\nold", b"new"]


def test_whom_to_trust_is_left_alone_where_others_write_it():
    server = Server()
    registration = Registration(server, PLACE, PoliciesSection(configMap="a/b"))
    asyncio.run(registration.apply(None))
    assert server.trusted == [b""]
    assert registration.missing == ""
