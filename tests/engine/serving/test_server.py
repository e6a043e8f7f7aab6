"""The server on loopback: certificates that change, and who may read what."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
import time
from datetime import UTC, datetime

import aiohttp
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from engine.cli.loop import run_in_loop
from engine.clock import ManualClock
from engine.kube.client import Response
from engine.kube.errors import Unreachable
from engine.serving.certificates import CertificateError, CertificateFiles, Certificates
from engine.serving.selfmade import SelfMade
from engine.serving.server import (
    MOST_CONNECTIONS,
    PING,
    Access,
    BadCallError,
    Call,
    Check,
    ListenError,
    NoSuchPageError,
    Page,
    Server,
    ServerOptions,
    Site,
)
from tests.cluster.certificates import Authority
from tests.scenarios.fake_server import status

DAY = 86_400.0


class Reviews:
    """An API server that knows two tokens, and who may read what."""

    def __init__(self):
        self.asked, self.away = [], False

    async def request(self, method, path, *, body, **_):
        if self.away:
            raise Unreachable("connection refused")
        review = json.loads(body)
        self.asked.append(review["kind"])
        spec = review["spec"]
        if review["kind"] == "TokenReview":
            name = {"good": "anna", "root": "root", "scoped": "anna"}.get(spec["token"])
            groups = ["system:masters"] if name == "root" else []
            extra = {"scopes": ["user:info"]} if spec["token"] == "scoped" else {}
            found = {
                "authenticated": bool(name),
                "user": {"username": name or "", "groups": groups, "extra": extra},
            }
        else:
            verb = spec["nonResourceAttributes"]["verb"]
            found = {"allowed": spec["user"] == "anna" and verb == "get" and not spec["extra"]}
        return Response(201, {}, json.dumps({"status": found}).encode())


def refused(access, *requests):
    async def ask():
        return [await access.refusal(*one) for one in requests]

    return [None if one is None else one[0] for one in asyncio.run(ask())]


@pytest.fixture
def reviewed():
    clock, reviews = ManualClock(), Reviews()
    access = Access(clock, ("/livez", "/open/*"))
    access.ask(reviews)
    return access, reviews, clock


class TestAccess:
    def test_what_is_open_is_for_everybody(self, reviewed):
        access, reviews, _ = reviewed
        assert refused(access, ("GET", "/livez", ""), ("GET", "/open/x", "")) == [None, None]
        assert reviews.asked == []
        assert refused(access, ("GET", "/livez/ping", "")) == [403], "that path and no other"

    @pytest.mark.parametrize(
        ("method", "authorization", "code"),
        [
            ("GET", "Bearer good", None),
            ("GET", "bearer good", None),
            ("GET", "Bearer root", None),
            ("GET", "", 403),
            ("GET", "Bearer bad", 401),
            ("GET", "Bearer ", 401),
            ("GET", "Basic good", 401),
            ("GET", f"Bearer {'x' * 100_000}", 401),
            ("POST", "Bearer good", 403),
        ],
    )
    def test_a_path_that_is_not_open(self, reviewed, method, authorization, code):
        assert refused(reviewed[0], (method, "/metrics", authorization)) == [code]

    def test_answers_are_kept_for_ten_seconds(self, reviewed):
        access, reviews, clock = reviewed
        request = ("GET", "/metrics", "Bearer good")
        assert refused(access, request, request, request) == [None] * 3
        assert reviews.asked == ["TokenReview", "SubjectAccessReview"]
        clock.advance(11)
        assert refused(access, request) == [None]
        assert len(reviews.asked) == 4

    def test_few_are_asked_about_at_a_time_and_none_again_and_again(self, reviewed):
        access, reviews, _ = reviewed
        answer, asking, most = reviews.request, 0, 0

        async def slowly(*given, **more):
            nonlocal asking, most
            asking += 1
            most = max(most, asking)
            await asyncio.sleep(0)
            asking -= 1
            return await answer(*given, **more)

        async def storm():
            tokens = ["good"] * 100 + [f"bad{number}" for number in range(100)]
            requests = (access.refusal("GET", "/metrics", f"Bearer {one}") for one in tokens)
            return await asyncio.gather(*requests)

        reviews.request = slowly
        answers = asyncio.run(storm())
        assert [one and one[0] for one in answers] == [None] * 100 + [401] * 100
        assert (reviews.asked.count("TokenReview"), most) == (8 + 100, 8)

    def test_a_token_that_may_less_than_its_user_has_an_answer_of_its_own(self, reviewed):
        good, scoped = (("GET", "/metrics", f"Bearer {token}") for token in ("good", "scoped"))
        assert refused(reviewed[0], good, scoped, good) == [None, 403, None]

    def test_what_cannot_be_asked_is_refused_and_told_once(self, reviewed, caplog):
        access, reviews, _ = reviewed
        reviews.away = True
        request = ("GET", "/metrics", "Bearer good")
        with caplog.at_level(logging.WARNING):
            assert refused(access, request, request) == [503, 503]
        assert len(caplog.records) == 1
        assert refused(Access(ManualClock(), ()), request) == [503], "not connected yet"

    def test_a_server_that_is_known_to_be_away_is_not_asked(self, reviewed):
        access, reviews, _ = reviewed
        access.ask(reviews, lambda: True)
        assert refused(access, ("GET", "/metrics", "")) == [503]
        assert reviews.asked == []

    @pytest.mark.parametrize(("code", "hint"), [(403, True), (401, False)])
    def test_a_review_that_may_not_be_made_names_itself(self, reviewed, code, hint, caplog):
        access, reviews, _ = reviewed

        async def refusing(*_, **__):
            return Response(
                code, {}, status(code, 'cannot create resource "tokenreviews"', "Forbidden")
            )

        reviews.request = refusing
        assert refused(access, ("GET", "/metrics", "Bearer good")) == [503]
        assert 'cannot create resource "tokenreviews"' in caplog.text
        assert ("Berth's role must allow it" in caplog.text) == hint


# ---- certificates --------------------------------------------------------------------------------


class Rotating:
    """Certificates whose rests are turned by hand."""

    def __init__(self, files, clock):
        self.rested = asyncio.Event()
        self.certificates = Certificates(files, clock, host="here", sleep=self._sleep)

    async def _sleep(self, seconds):
        await self.rested.wait()
        self.rested.clear()

    async def look(self):
        self.rested.set()
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (CertificateFiles(), "there is no certificate, and none can be made"),
        (CertificateFiles(certificate="a"), "--tls-cert-file and --tls-private-key-file belong"),
        (CertificateFiles("no.crt", "no.key"), r"cannot be used: no.crt: No such file"),
    ],
)
def test_a_certificate_that_cannot_be_used_is_refused(given, said):
    with pytest.raises(CertificateError, match=said):
        Certificates(given, ManualClock(), host="here")


def test_a_pair_that_does_not_match_is_refused(tmp_path):
    one, other = Authority(tmp_path / "a").server("x"), Authority(tmp_path / "b").server("x")
    with pytest.raises(CertificateError, match="key: the key is not that of the certif"):
        Certificates(
            CertificateFiles(str(one.certificate), str(other.key)), ManualClock(), host="h"
        )


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(tmp_path):
    pair = Authority(tmp_path).server("x")
    key = load_pem_private_key(pair.key.read_bytes(), None)
    locked = BestAvailableEncryption(b"secret")
    pair.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))
    with pytest.raises(CertificateError, match="in PEM and without a password"):
        Certificates(
            CertificateFiles(str(pair.certificate), str(pair.key)), ManualClock(), host="h"
        )


def test_files_that_change_are_served_and_broken_or_ended_ones_are_not(tmp_path, caplog):
    clock = ManualClock(time.time())

    async def main():
        pair = Authority(tmp_path / "a").server("tls")
        new = Authority(tmp_path / "b").server("tls", rsa.generate_private_key(65537, 2048))
        files = CertificateFiles(str(pair.certificate), str(pair.key), maker=SelfMade())
        rotating = Rotating(files, clock)
        task = asyncio.get_running_loop().create_task(rotating.certificates.run())
        served = []

        async def serve(reader, writer):
            writer.close()

        async def look():
            await rotating.look()
            context = rotating.certificates.served.context
            async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
                at = server.sockets[0].getsockname()
                served.append(await asyncio.to_thread(ssl.get_server_certificate, at))

        await look()
        pair.certificate.write_text("broken")
        await look()
        await look()
        ended = SelfMade().make("here", datetime.fromtimestamp(clock.time() - 400 * DAY, UTC))
        pair.certificate.write_bytes(ended[0])
        pair.key.write_bytes(ended[1])
        await look()
        # A key of another kind: a context has room for one of each.
        pair.key.write_bytes(new.key.read_bytes())
        pair.certificate.write_bytes(new.certificate.read_bytes())
        await look()
        clock.advance(2 * DAY)
        await look()
        await look()
        task.cancel()
        assert len({*served[:4]}) == 1
        assert {*served[4:]} == {new.certificate.read_text()}

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    told = [
        r.getMessage().partition("the certificate was not renewed: ")[2] for r in caplog.records
    ]
    tls = tmp_path / "a/tls"
    assert told[0].startswith(f"{tls}.crt, {tls}.key: not a certificate and its key")
    assert [one.partition("tls.crt: ")[2][:17] for one in told[1:]] == [
        "it expired on " + "202"
    ] * 2


async def test_our_own_is_kept_in_a_folder_and_renewed_in_time(tmp_path):
    clock = ManualClock()
    files = CertificateFiles(folder=str(tmp_path / "certs"), maker=SelfMade())
    rotating = Rotating(files, clock)
    task = asyncio.get_running_loop().create_task(rotating.certificates.run())
    pem, key = tmp_path / "certs" / "berth.crt", tmp_path / "certs" / "berth.key"
    first = pem.read_bytes()
    assert key.stat().st_mode & 0o777 == 0o600
    Certificates(files, clock, host="here")
    assert pem.read_bytes() == first, "a restart takes the one that is there"
    spoilt = CertificateFiles(folder=str(tmp_path / "spoilt"), maker=SelfMade())
    Certificates(spoilt, clock, host="here")
    key.replace(tmp_path / "spoilt" / "berth.key")
    Certificates(spoilt, clock, host="here")
    Certificates(files, clock, host="here")
    assert pem.read_bytes() != first, "a key that is lost, or another's, is made anew"
    first = pem.read_bytes()
    clock.advance(200 * DAY)
    await rotating.look()
    assert pem.read_bytes() == first
    clock.advance(60 * DAY)
    await rotating.look()
    assert pem.read_bytes() != first
    task.cancel()


def test_a_certificate_of_our_own_is_for_its_host_whatever_that_is():
    for host in ("scheduler-7", "ümlaut", "x" * 300):
        certificate, key, until = SelfMade().make(host, datetime(2026, 1, 1, tzinfo=UTC))
        assert certificate.startswith(b"-----BEGIN CERTIFICATE")
        assert key.startswith(b"-----BEGIN PRIVATE KEY")
        assert until.year == 2027


# ---- the whole -----------------------------------------------------------------------------------


async def test_pages_and_checks_over_https():
    def page(query):
        if "nobody" in query:
            raise NoSuchPageError("nobody is here")
        return "{}"

    wrong = [""]
    site = Site(
        {"livez": (PING,), "readyz": (PING, Check("rules", lambda: wrong[0]))},
        {"/page": Page("application/json", page)},
    )
    clock = ManualClock()
    options = ServerOptions(
        "127.0.0.1", 0, CertificateFiles(maker=SelfMade()), always_allowed=("/*",)
    )
    server = Server(options, site, clock, host="here")
    no_name = ServerOptions("no..name", 0, options.files)
    with pytest.raises(ListenError, match=r"cannot listen on no\.\.name, .*another --bind-a"):
        await Server(no_name, site, clock, host="here").start()
    async with server.running(), aiohttp.ClientSession() as client:
        again = ServerOptions("127.0.0.1", server.port, options.files)
        with pytest.raises(ListenError, match="address already in use; give another port"):
            await Server(again, site, clock, host="here").start()

        async def ask(path, method="GET"):
            url = f"https://127.0.0.1:{server.port}{path}"
            async with client.request(method, url, ssl=False) as answer:
                return answer.status, await answer.text()

        assert await ask("/livez") == (200, "ok")
        assert await ask("/readyz/rules") == (200, "ok")
        wrong[0] = "none in force"
        code, text = await ask("/readyz?verbose")
        assert (code, "[-]rules failed: reason withheld" in text) == (500, True)
        assert "none in force" not in text
        assert (await ask("/readyz?exclude=rules"))[0] == 200
        assert (await ask("/readyz/none"))[0] == 404
        assert await ask("/page") == (200, "{}")
        assert await ask("/page?nobody") == (404, "nobody is here")
        assert (await ask("/nowhere"))[0] == 404
        assert (await ask("/page", "POST"))[0] == 405


async def test_a_call_answers_a_body_of_bounded_size():
    async def answer(body):
        if body == b"bad":
            raise BadCallError("no review")
        return b"[" + body + b"]"

    site = Site(calls={"/small": Call(answer, 4), "/large": Call(answer, 900_000)})
    options = ServerOptions(
        "127.0.0.1", 0, CertificateFiles(maker=SelfMade()), always_allowed=("/*",)
    )
    server = Server(options, site, ManualClock(), host="here")
    async with server.running(), aiohttp.ClientSession() as client:

        async def ask(path, body, method="POST"):
            url = f"https://127.0.0.1:{server.port}{path}"
            async with client.request(method, url, data=body, ssl=False) as got:
                return got.status, await got.read()

        assert await ask("/small", b"1234") == (200, b"[1234]")
        assert await ask("/small", b"12345") == (413, b"the body is larger than 4 bytes")
        assert await ask("/large", b"1" * 900_000) == (200, b"[" + b"1" * 900_000 + b"]")
        assert (await ask("/large", b"1" * 900_001))[0] == 413
        assert await ask("/small", b"bad") == (400, b"no review")
        assert await ask("/small", b"", "GET") == (405, b"only POST is allowed")


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "before they are secure"])
@pytest.mark.parametrize("run", [asyncio.run, run_in_loop], ids=["asyncio", "libuv"])
def test_of_too_many_connections_the_oldest_gives_way(run, plain):
    async def main():
        options = ServerOptions("127.0.0.1", 0, CertificateFiles(maker=SelfMade()), plain=plain)
        server = Server(options, Site({"livez": (PING,)}), ManualClock(), host="here")
        async with server.running():
            there = [
                await asyncio.open_connection("127.0.0.1", server.port)
                for _ in range(MOST_CONNECTIONS + 1)
            ]
            assert await there[0][0].read() == b""
            for reader, writer in (there[1], there[-1]) if plain else ():
                writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
                assert b"200 OK" in await reader.readline()
            for _, writer in there:
                writer.close()

    run(main())


async def test_calls_are_for_those_who_show_a_certificate_where_that_is_asked(tmp_path):
    authority, other = Authority(tmp_path / "one"), Authority(tmp_path / "other")

    def shows(pair):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        return context

    pair = authority.client("kube-scheduler")
    shown = {version: shows(pair) for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)}

    def resumed(port, version, session=None):
        """Whether what was verified once is taken for verified again, and as what."""
        context = shown[version]
        context.maximum_version = version
        with context.wrap_socket(
            socket.create_connection(("127.0.0.1", port)), session=session
        ) as client:
            client.sendall(b"GET /livez HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            assert client.recv(9) == b"HTTP/1.1 "
            told = client.session_reused, client.session
            while client.recv(1000):
                pass
            client.unwrap()  # what is cut off is not taken up again
            return told

    async def answer(body):
        return body

    site = Site({"livez": (PING,)}, calls={"/call": Call(answer, 4)})
    options = ServerOptions(
        "127.0.0.1",
        0,
        CertificateFiles(maker=SelfMade()),
        always_allowed=("/*",),
        client_ca=str(authority.certificate),
    )
    server = Server(options, site, ManualClock(), host="here")
    async with server.running(), aiohttp.ClientSession() as client:
        url = f"https://127.0.0.1:{server.port}"

        async def called(pair):
            async with client.post(f"{url}/call", data=b"1", ssl=shows(pair)) as got:
                return got.status

        assert await called(pair) == 200
        assert await called(None) == 401
        for version in shown:
            _, session = await asyncio.to_thread(resumed, server.port, version)
            again = await asyncio.to_thread(resumed, server.port, version, session)
            assert again[0] is (version is ssl.TLSVersion.TLSv1_2)
        _, session = await asyncio.to_thread(resumed, server.port, ssl.TLSVersion.TLSv1_2)
        with pytest.raises(aiohttp.ClientError):
            await called(other.client("kube-scheduler"))
        other.certificate.replace(authority.certificate)
        server._certificates._renew()
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(resumed, server.port, ssl.TLSVersion.TLSv1_2, session)
        assert await called(other.client("kube-scheduler")) == 200
        with pytest.raises(aiohttp.ClientError):
            await called(pair)
        async with client.get(f"{url}/livez", ssl=shows(None)) as got:
            assert got.status == 200
    files = CertificateFiles(maker=SelfMade())
    wrong = ServerOptions("127.0.0.1", 0, files, client_ca=str(tmp_path / "none"))
    with pytest.raises(CertificateError, match=r"--client-ca-file: .*none: No such file"):
        Server(wrong, Site(), ManualClock(), host="here")
