"""Metrics from Prometheus: due questions go out, answers go into the store, a cycle never waits.

One background thread asks, one question at a time, each within a deadline; the event loop decides
what is due. A server that does not answer is left alone for up to a minute, and so is a question
that it refuses; meanwhile the store serves what it has, until that is stale.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import sleep
from types import MappingProxyType
from typing import Any, Final

import msgspec
import requests
from cachetools import TLRUCache
from prometheus_api_client import PrometheusConnect
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from engine.clock import Clock, SystemClock
from engine.signals.samples import Series
from engine.signals.spec import Question
from engine.signals.store import Match, SignalStore
from engine.telemetry import Count, Telemetry

_LOG = logging.getLogger(__name__)

_OK = 200
_TOO_MANY_REQUESTS = 429
_SERVER_ERRORS = 500
_CHUNK = 256 * 1024
_IDLE_SECONDS = 0.5
_REMEMBERED = 4096
_PAUSE_EVERY = 256
_CURES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "scalar": "write vector(...) around it, which makes it a series",
        "matrix": "leave the range out, or take one value of it, as with rate(...)",
    }
)
_SERVER = Question("", ())
"""Stands for the server itself among the failures."""


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """Where Prometheus is and how it is asked.

    `token_file` is read before each question, so that a rotated token is used at once. Proxies and
    netrc of the environment are not used.
    """

    url: str
    timeout_seconds: float = 5.0
    headers: Mapping[str, str] = field(default_factory=dict)
    token_file: Path | None = None
    ca_file: Path | None = None
    insecure: bool = False
    answer_limit_bytes: int = 128 * 1024 * 1024
    backoff_limit_seconds: float = 60.0


class _ServerAway(Exception):  # noqa: N818 - never leaves this module
    """Prometheus did not answer, or not with anything for this question."""


class _Refused(Exception):  # noqa: N818 - never leaves this module
    """Prometheus answered, but not this question."""


class _Sample(msgspec.Struct, gc=False):
    metric: dict[str, str]
    value: tuple[float, str]


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


class _Answer:
    """As much of a `requests.Response` as PrometheusConnect looks at."""

    def __init__(self, body: bytes) -> None:
        self.status_code = _OK
        self.content = body

    def json(self) -> dict[str, Any]:
        """The envelope, with the result as it came.

        Raises:
            _Refused: there is no vector in it.
        """
        try:
            envelope = _envelope.decode(self.content)
        except msgspec.DecodeError as error:
            raise _Refused(f"the answer cannot be read: {error}") from error
        if envelope.data is None:
            raise _Refused(envelope.error or f"the answer says {envelope.status!r}")
        if envelope.data.result_type != "vector":
            kind = envelope.data.result_type
            cure = _CURES.get(kind, "series are needed")
            raise _Refused(f"the query gives a {kind}; {cure}")
        return {"data": {"result": envelope.data.result}}


class _BoundedSession:
    """What PrometheusConnect uses of a `requests.Session`; its answers have an end.

    In time and in size, even if they come drop by drop.
    """

    def __init__(self, settings: PrometheusSettings, clock: Clock) -> None:
        self._session = requests.Session()
        self._session.trust_env = False
        self.verify = not settings.insecure if settings.ca_file is None else str(settings.ca_file)
        self.cert = None
        self._timeout = settings.timeout_seconds
        self._limit = settings.answer_limit_bytes
        self._clock = clock

    def mount(self, prefix: str, adapter: HTTPAdapter) -> None:
        """Uses the adapter for addresses of that prefix."""
        self._session.mount(prefix, adapter)

    def close(self) -> None:
        """Closes the connections."""
        self._session.close()

    def request(self, *args: Any, **kwargs: Any) -> _Answer:  # noqa: ANN401 - requests' own
        """One request; anything but a 200 is an exception.

        Raises:
            _ServerAway: no answer within the deadline, or a server error.
            _Refused: any other answer.
        """
        deadline = self._clock.monotonic() + self._timeout
        body = bytearray()
        try:
            with self._session.request(*args, **{**kwargs, "stream": True}) as answer:
                for chunk in answer.iter_content(_CHUNK):
                    body += chunk
                    if self._clock.monotonic() > deadline:
                        raise _ServerAway("no complete answer in time")
                    if len(body) > self._limit:
                        raise _Refused("the answer is too large")
                status = answer.status_code
        except requests.Timeout as error:
            raise _ServerAway("no answer in time") from error
        except requests.RequestException as error:
            raise _ServerAway(_cause(error)) from error
        if status == _OK:
            return _Answer(bytes(body))
        text = f"{status}: {_error_text(bytes(body))}"
        if status >= _SERVER_ERRORS or status == _TOO_MANY_REQUESTS:
            raise _ServerAway(text)
        raise _Refused(text)


def _cause(error: BaseException) -> str:
    """The innermost reason, in one line."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ConnectionRefusedError):
            return "connection refused"
        reason = getattr(seen, "reason", None)
        inner = seen.__cause__ or seen.__context__
        error, seen = seen, reason if isinstance(reason, BaseException) else inner
    return " ".join(str(error).split()) or type(error).__name__


def _error_text(body: bytes) -> str:
    try:
        return _envelope.decode(body).error
    except msgspec.DecodeError:
        return " ".join(body[:200].decode("utf-8", "replace").split())


def _give_way() -> None:
    """Lets the event loop run now and not after the interpreter's 5 ms."""
    sleep(0)


def parse_vector(result: bytes, by: Sequence[str], *, every: bool = False) -> list[Series]:
    """The series of an instant vector that have a number, with those of the labels `by` they have.

    With `every` each label has its place, and is empty where a series does not have it.

    Raises:
        msgspec.DecodeError: it is no instant vector.
    """
    parsed = []
    # One by one, as decoding keeps the event loop waiting until it returns.
    for number, raw in enumerate(_vector.decode(result)):
        if not number % _PAUSE_EVERY:
            _give_way()
        sample = _sample.decode(raw)
        if every:
            names = tuple(sample.metric.get(label, "") for label in by)
        else:
            names = tuple(sample.metric[label] for label in by if label in sample.metric)
        time, text = sample.value
        try:
            value = float(text)
        except ValueError:
            continue
        if math.isfinite(value):
            parsed.append(Series(names, value, time))
    return parsed


@dataclass(frozen=True, slots=True)
class _Failure:
    """Until when a question, or the server, is left alone (monotonic)."""

    until: float


class PrometheusRefresher:
    """Keeps a store fresh. Run `run` as a task; `came` is called after each answer."""

    def __init__(
        self,
        store: SignalStore,
        settings: PrometheusSettings,
        *,
        clock: Clock,
        telemetry: Telemetry,
        came: Callable[[], None] = lambda: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._telemetry = telemetry
        self._came = came
        self._sleep = sleep
        self._asked: dict[Question, float] = {}
        self._streaks: dict[Question, int] = {}
        self._failures: TLRUCache[Question, _Failure] = TLRUCache(
            _REMEMBERED, lambda _key, failure, _now: failure.until, timer=clock.monotonic
        )
        # The thread's deadlines are real, whatever clock the rest of us runs on.
        self._connect = PrometheusConnect(
            url=settings.url.rstrip("/"),
            headers=dict(settings.headers),
            retry=Retry(total=0),
            session=_BoundedSession(settings, SystemClock()),
            timeout=settings.timeout_seconds,
        )

    async def run(self) -> None:
        """Asks what is due until cancelled. Network causes never end it."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="prometheus")
        try:
            while True:
                wait = await self.turn(thread)
                await self._sleep(min(wait, _IDLE_SECONDS))
        finally:
            thread.shutdown(wait=False, cancel_futures=True)
            self._connect.close()

    async def turn(self, thread: ThreadPoolExecutor) -> float:
        """Asks the questions that are due now; returns the seconds until the next one is."""
        questions = self._store.questions()
        self._forget(questions)
        for question in sorted(questions, key=lambda q: self._asked.get(q, -math.inf)):
            if self._due_in(question, questions[question]) <= 0.0:
                await self._ask(question, questions[question], thread)
        return min((self._due_in(q, e) for q, e in questions.items()), default=_IDLE_SECONDS)

    def _due_in(self, question: Question, every: float) -> float:
        now = self._clock.monotonic()
        due = self._asked.get(question, -math.inf) + every
        for key in (question, _SERVER):
            failure = self._failures.get(key)
            if failure is not None:
                due = max(due, failure.until)
        return max(0.0, due - now)

    def _forget(self, questions: Mapping[Question, float]) -> None:
        for question in self._asked.keys() - questions.keys():
            del self._asked[question]
            self._streaks.pop(question, None)
            self._failures.pop(question, None)

    async def _ask(self, question: Question, every: float, thread: ThreadPoolExecutor) -> None:
        self._asked[question] = self._clock.monotonic()
        self._telemetry.add(Count.SIGNAL_QUERIES)
        loop = asyncio.get_running_loop()
        try:
            answer, matched = await loop.run_in_executor(thread, self._query, question)
        except _ServerAway as error:
            self._server_away(str(error), every)
            return
        except _Refused as error:
            self._leave_alone(question, every)
            self._telemetry.add(Count.SIGNAL_ERRORS)
            if self._store.fail(question, str(error)):
                _LOG.warning("metric %s: %s", self._store.names(question), error)
            return
        finally:
            if _SERVER in self._streaks and _SERVER not in self._failures:
                # It answered, if only with a refusal.
                del self._streaks[_SERVER]
        self._streaks.pop(question, None)
        self._store.ingest(question, answer, matched)
        self._came()

    def _server_away(self, why: str, every: float) -> None:
        self._telemetry.add(Count.SIGNAL_ERRORS)
        self._leave_alone(_SERVER, every)
        failing = [q for q in self._store.questions() if self._store.fail(q, why)]
        if failing:
            _LOG.warning(
                "Prometheus at %s cannot be asked (%s); these keep their last values until they "
                "are stale: %s",
                self._settings.url,
                why,
                ", ".join(sorted(self._store.names(q) for q in failing)),
            )

    def _leave_alone(self, key: Question, every: float) -> None:
        streak = self._streaks.get(key, 0)
        self._streaks[key] = streak + 1
        pause = min(every * 2.0**streak, self._settings.backoff_limit_seconds)
        self._failures[key] = _Failure(self._clock.monotonic() + pause)

    # --- in the thread

    def _query(self, question: Question) -> tuple[list[Series], Match]:
        """Asks and matches. Touches nothing of ours but the store's directory, which it reads.

        Raises:
            _ServerAway, _Refused: there is no answer.
        """
        self._connect.headers = self._headers()
        try:
            result = self._connect.custom_query(question.query)
            answer = parse_vector(result, question.by, every=not question.any_label)
        except msgspec.DecodeError as error:
            raise _Refused(f"the answer cannot be read: {error}") from error
        return answer, self._store.match(question, answer, _give_way)

    def _headers(self) -> dict[str, str]:
        headers = dict(self._settings.headers)
        if self._settings.token_file is not None:
            try:
                token = self._settings.token_file.read_text().strip()
            except OSError as error:
                raise _ServerAway(f"token file: {error.strerror}") from error
            headers["Authorization"] = f"Bearer {token}"
        return headers
