"""Metrics from Prometheus: due questions go out, answers go into the store, a cycle never waits.

Threads that hold no process up ask, one question at a time, each within one deadline over all of
it; bytes move in the event loop, which also decides what is due. Credentials and certificates are
read from their files each time, so that what is rotated is used at once. A server that does not
answer is left alone for up to a minute, and so is a question that it refuses; meanwhile the store
serves what it has, until that is stale.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import ssl
from base64 import b64encode
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Final
from urllib.parse import unquote, urlencode, urlsplit

import msgspec
from certifi import where
from prometheus_api_client import PrometheusConnect
from requests.adapters import HTTPAdapter

from dsl.plan import MetricSpec
from engine.channels import Answer as HttpAnswer
from engine.channels import Broken, Channels, NotConnected, TooLarge
from engine.clock import Clock
from engine.configuration.berth import PrometheusSection
from engine.objects import Node
from engine.signals.samples import Series
from engine.signals.spec import Question
from engine.signals.store import SignalStore
from engine.tasks import in_thread
from engine.telemetry import Count, Telemetry
from engine.text import wire
from engine.text.display import cause, one_line, without_user
from engine.tls import trusting

_OK = 200
_TOO_MANY_REQUESTS = 429
_SERVER_ERRORS = 500
_MOST_BYTES: Final = 128 << 20
"""Of an answer."""


class ServerAway(Exception):  # noqa: N818 - a state of the server
    """Prometheus did not answer, or not with anything for this question."""


class Prometheus:
    """The server of a section; proxies and netrc of the environment are not used.

    It is what PrometheusConnect uses of a `requests.Session`: requests leave by the loop, each
    over a connection of its own. No redirects; an answer ends in time and in size.
    """

    def __init__(self, section: PrometheusSection) -> None:
        self._section = section
        self.most_bytes = _MOST_BYTES
        self._authority = Path(section.ca_file or where())
        self._stamp = -1
        self._tls: ssl.SSLContext | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.verify = not section.insecure_skip_verify
        self.cert = None
        url, timeout = (section.url or "").rstrip("/"), section.timeout_seconds
        self._connect = PrometheusConnect(url=url, session=self, timeout=timeout)

    def query(self, text: str, loop: asyncio.AbstractEventLoop) -> Iterable[bytes]:
        """What it says now, in lists of JSON (see `parse_vector`); from another thread.

        Raises:
            ServerAway: no answer, or not with anything for this question.
            Refused: any other answer without a vector.
        """
        self._loop = loop
        self._connect.headers = self._headers()
        answer: Iterable[bytes] = self._connect.custom_query(text)
        return answer

    def _headers(self) -> dict[str, str]:
        section, headers = self._section, dict(self._section.headers)
        if section.token_file is not None:
            headers["Authorization"] = f"Bearer {_secret('token', section.token_file)}"
        if section.password_file is not None:
            headers |= _basic(section.username or "", _secret("password", section.password_file))
        return headers

    def mount(self, prefix: str, adapter: HTTPAdapter) -> None:
        """Adapters are how `requests` retries; nothing is retried here."""

    def request(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        timeout: float,
        **_others: object,
    ) -> SimpleNamespace:
        """One request, from another thread; anything but a 200 is an exception.

        The answer is as much of a `requests.Response` as PrometheusConnect looks at.

        Raises:
            ServerAway: no answer, or a server error.
            Refused: any other answer.
        """
        assert self._loop is not None
        parts = urlsplit(url)
        if parts.username is not None:
            headers = {**_basic(unquote(parts.username), unquote(parts.password or "")), **headers}
        tls = self._trusted() if parts.scheme == "https" else None
        channels = Channels(url, tls, most_body_bytes=self.most_bytes)
        asking = channels.ask_once(method, f"?{urlencode(params)}", headers, timeout)
        try:
            answer, pieces = asyncio.run_coroutine_threadsafe(asking, self._loop).result()
        except TooLarge as error:
            raise Refused("the answer is too large") from error
        except (NotConnected, Broken, OSError, ValueError) as error:
            raise ServerAway(_why(error)) from error
        body = b"".join(pieces)
        if answer.status == _OK:
            result = vector_in(body)
            return SimpleNamespace(status_code=_OK, json=lambda: {"data": {"result": result}})
        said = _elsewhere(answer) or error_text(body) or without_user(url)
        text = f"{answer.status}: {said}"
        if answer.status >= _SERVER_ERRORS or answer.status == _TOO_MANY_REQUESTS:
            raise ServerAway(text)
        raise Refused(text)

    def _trusted(self) -> ssl.SSLContext:
        """What the file holds now.

        Raises:
            ServerAway: it holds no certificates.
        """
        try:
            stamp = self._authority.stat().st_mtime_ns
            if self._tls is None or stamp != self._stamp:
                self._tls = trusting(str(self._authority), anybody=not self.verify)
                self._stamp = stamp
        except OSError as error:
            why = error.strerror or one_line(str(error))
            raise ServerAway(f"CA file {self._authority}: {why}") from error
        return self._tls


def _basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"}


def _why(error: BaseException) -> str:
    if isinstance(error, NotConnected):
        error = error.cause
    if isinstance(error, TimeoutError):
        return "no complete answer in time"
    return cause(error)


def _elsewhere(answer: HttpAnswer) -> str:
    """Where we are sent, which we do not follow: credentials are for whom they were given."""
    place = answer.headers.get("location")
    return f"it redirects to {one_line(place)}; give that address as its url" if place else ""


def _secret(what: str, file: str) -> str:
    """What a file holds now.

    Raises:
        ServerAway: it cannot be read, or is no text of one line.
    """
    try:
        text = Path(file).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ServerAway(f"{what} file {file}: {why}") from error
    if not text or "\n" in text or "\r" in text:
        raise ServerAway(f"{what} file {file}: it {'has several lines' if text else 'is empty'}")
    return text


# ---- answers: bytes in, series with a number out, in steps that let others run


_PIECE: Final = 64 << 10
"""Bytes decoded at once: the event loop waits until decoding returns."""
_BETWEEN: Final = re.compile(rb'\}\s*,\s*\{\s*"metric"\s*:')
_COMMA: Final = b" \t\r\n,"
_CURES: Final = {
    "scalar": "write vector(...) around it, which makes it a series",
    "matrix": "leave the range out, or take one value of it, as with rate(...)",
}


class Refused(Exception):  # noqa: N818 - a state of the question
    """Prometheus answered, but not this question."""


class _Sample(msgspec.Struct, gc=False):
    metric: dict[str, str]
    value: tuple[float, str] | None = None


class _Data(msgspec.Struct):
    result: msgspec.Raw
    result_type: str = msgspec.field(name="resultType", default="vector")


class _Envelope(msgspec.Struct):
    status: str
    data: _Data | None = None
    error: str = ""


_envelope = msgspec.json.Decoder(_Envelope)
_vector = msgspec.json.Decoder(list[msgspec.Raw])
_sample = msgspec.json.Decoder(_Sample)


def vector_in(body: bytes) -> Iterable[bytes]:
    """The series of an answer, as they came, in lists of some 64 KiB.

    They are cut apart where one ends and the next begins, which stands in no text: there quotes are
    escaped. Of whoever writes in another order all is one list.

    Raises:
        Refused: there is no vector in it.
    """
    cuts: list[int] = []
    while (found := _BETWEEN.search(body, cuts[-1] + _PIECE if cuts else 0)) is not None:
        cuts.append(found.start() + 1)
    middle, rest = pairwise(cuts), body if not cuts else body[: cuts[0]] + body[cuts[-1] :]
    try:
        envelope = wire.decode(_envelope.decode, rest)
    except msgspec.DecodeError as error:
        raise Refused(f"the answer cannot be read: {error}") from error
    if envelope.data is None:
        raise Refused(one_line(envelope.error) or f"the answer says {envelope.status!r}")
    if envelope.data.result_type != "vector":
        kind = envelope.data.result_type
        raise Refused(f"the query gives a {kind}; {_CURES.get(kind, 'series are needed')}")
    lists = (b"[%b]" % body[start:end].lstrip(_COMMA) for start, end in middle)
    return chain([bytes(envelope.data.result)], lists)


def error_text(body: bytes) -> str:
    """What a server says that is wrong, in one line."""
    try:
        return one_line(wire.decode(_envelope.decode, body).error)
    except msgspec.DecodeError:
        return one_line(body[:200].decode("utf-8", "replace"))


def parse_vector(
    result: Iterable[bytes], by: Sequence[str], *, every: bool = False
) -> Iterator[Series]:
    """The series of an instant vector that have a number, with those of the labels `by` they have.

    The vector comes in lists of JSON.

    With `every` each label has its place, and is empty where a series does not have it.

    Raises:
        msgspec.DecodeError: it is no instant vector.
        Refused: it has samples that are no numbers.
    """
    for raw in (raw for one in result for raw in wire.decode(_vector.decode, one)):
        sample = wire.decode(_sample.decode, raw)
        if every:
            names = tuple(sample.metric.get(label, "") for label in by)
        else:
            names = tuple(sample.metric[label] for label in by if label in sample.metric)
        if sample.value is None:
            raise Refused("it has native histograms; write histogram_quantile(...) or the like")
        time, text = sample.value
        try:
            value = float(text)
        except ValueError:
            continue
        if math.isfinite(value):
            yield Series(names, value, time)


# ---- what is due

_LOG = logging.getLogger(__name__)

_IDLE_SECONDS = 0.5
_SPREAD = 0.2
_MOST_SECONDS: Final = 60.0
"""That a question, or the server, is left alone."""
_SERVER = Question("", ())
"""Stands for the server itself among the failures."""


class _Turn(msgspec.Struct):
    """When a question, or the server, was asked, how often it failed on end (times: monotonic)."""

    asked: float = -math.inf
    streak: int = 0
    alone_until: float = -math.inf


@dataclass(eq=False)
class PrometheusRefresher:
    """Keeps a store fresh. Run `run` as a task; `came` is called after each answer.

    `random` spreads what replicas ask after a failure; without it nothing is spread.
    """

    store: SignalStore
    section: PrometheusSection
    clock: Clock
    telemetry: Telemetry
    came: Callable[[], None] = lambda: None
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Random | None = None

    def __post_init__(self) -> None:
        self._url = self.section.url or ""
        self._turns: defaultdict[Question, _Turn] = defaultdict(_Turn)
        self._server = Prometheus(self.section)

    async def run(self) -> None:
        """Asks what is due until cancelled. Network causes never end it."""
        while True:
            wait = await self.turn()
            await self.sleep(min(wait, _IDLE_SECONDS))

    async def turn(self) -> float:
        """Asks the questions that are due now; returns the seconds until the next one is."""
        questions = self.store.questions()
        for gone in self._turns.keys() - questions.keys() - {_SERVER}:
            del self._turns[gone]
        for question in sorted(questions, key=lambda q: self._turns[q].asked):
            if self._due_in(question, questions[question]) <= 0.0:
                await self._ask(question, questions[question])
        return min((self._due_in(q, e) for q, e in questions.items()), default=_IDLE_SECONDS)

    def _due_in(self, question: Question, every: float) -> float:
        own, server = self._turns[question], self._turns[_SERVER]
        due = max(own.asked + every, own.alone_until, server.alone_until)
        return max(0.0, due - self.clock.monotonic())

    async def _ask(self, question: Question, every: float) -> None:
        self._turns[question].asked = self.clock.monotonic()
        self.telemetry.add(Count.SIGNAL_QUERIES)
        loop = asyncio.get_running_loop()
        try:
            result = await in_thread(lambda: [*self._server.query(question.query, loop)])
            await self.store.read_in(question, partial(_read, result, question))
        except ServerAway as error:
            self._server_away(str(error), every)
            return
        except Refused as error:
            self._turns[_SERVER].streak = 0  # it answered, if only with a refusal
            self._leave_alone(question, every)
            self.telemetry.add(Count.SIGNAL_ERRORS)
            if self.store.fail(question, str(error)):
                _LOG.warning("metric %s: %s", self.store.names(question), error)
            return
        self._turns[_SERVER].streak = self._turns[question].streak = 0
        self.came()

    def _server_away(self, why: str, every: float) -> None:
        self.telemetry.add(Count.SIGNAL_ERRORS)
        self._leave_alone(_SERVER, every)
        failing = [q for q in self.store.questions() if self.store.fail(q, why)]
        if failing:
            _LOG.warning(
                "Prometheus at %s cannot be asked (%s); these keep their last values until they "
                "are stale: %s",
                without_user(self._url),
                why,
                ", ".join(sorted(self.store.names(q) for q in failing)),
            )

    def _leave_alone(self, key: Question, every: float) -> None:
        turn = self._turns[key]
        pause = min(every * 2.0**turn.streak, _MOST_SECONDS)
        turn.streak += 1
        if self.random is not None:
            pause *= 1.0 + _SPREAD * self.random.random()
        turn.alone_until = self.clock.monotonic() + pause


def _read(result: Iterable[bytes], question: Question) -> Iterator[Series]:
    """The series of an answer.

    Raises:
        Refused: whatever was wrong with it.
    """
    try:
        yield from parse_vector(result, question.by, every=not question.any_label)
    except Exception as error:
        # A server may answer anything, and no answer may end the process.
        raise Refused(f"the answer cannot be read: {cause(error)}") from error


async def ask_once(
    section: PrometheusSection, specs: Iterable[MetricSpec], nodes: Iterable[Node], clock: Clock
) -> SignalStore:
    """A store of these metrics with what Prometheus says now, if there is one; in no scheduler."""
    store = SignalStore(clock)
    store.set_specs(specs)
    for node in nodes:
        store.nodes_changed(None, node)
    if section.url is not None:
        await PrometheusRefresher(store, section, clock=clock, telemetry=Telemetry()).turn()
    return store
