"""Metrics from Prometheus: due questions go out, answers go into the store, a cycle never waits.

Threads that hold no process up ask, one question at a time, each within one deadline over all
of it; bytes move in the event loop, which also decides what is due. A server that does not answer
is left alone for up to a minute, and so is a question that it refuses; meanwhile the store serves
what it has, until that is stale.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Final

import msgspec

from engine.clock import Clock
from engine.configuration.berth import PrometheusSection
from engine.objects import Node
from engine.signals.prometheus import Prometheus, Refused, ServerAway, give_way, parse_vector
from engine.signals.samples import Match, Series
from engine.signals.spec import Question, SignalSpec
from engine.signals.store import SignalStore
from engine.tasks import in_thread
from engine.telemetry import Count, Telemetry
from engine.text.display import cause, without_user

_LOG = logging.getLogger(__name__)

_IDLE_SECONDS = 0.1
"""Rules wait for the first answer about a metric that is new."""
_SPREAD = 0.2
_PAUSE_EVERY = 256
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
        self._away = ""
        """Why the server does not answer, while it does not."""

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
            elif self._away:  # a new one, too, whoever waits for it
                self.store.fail(question, self._away)
        return min((self._due_in(q, e) for q, e in questions.items()), default=_IDLE_SECONDS)

    def _due_in(self, question: Question, every: float) -> float:
        own, server = self._turns[question], self._turns[_SERVER]
        due = max(own.asked + every, own.alone_until, server.alone_until)
        return max(0.0, due - self.clock.monotonic())

    async def _ask(self, question: Question, every: float) -> None:
        self._turns[question].asked = self.clock.monotonic()
        self.telemetry.add(Count.SIGNAL_QUERIES)
        try:
            loop = asyncio.get_running_loop()
            answer, matched = await in_thread(lambda: self._answer(question, loop))
        except ServerAway as error:
            self._server_away(str(error), every)
            return
        except Refused as error:
            self._turns[_SERVER].streak, self._away = 0, ""  # it answered, if with a refusal
            self._leave_alone(question, every)
            self.telemetry.add(Count.SIGNAL_ERRORS)
            if self.store.fail(question, str(error)):
                _LOG.warning("metric %s: %s", self.store.names(question), error)
            return
        self._turns[_SERVER].streak = self._turns[question].streak = 0
        self._away = ""
        self.store.ingest(question, answer, matched)
        self.came()
        while answer:
            del answer[-_PAUSE_EVERY:]
            await asyncio.sleep(0)

    def _server_away(self, why: str, every: float) -> None:
        self._away = why
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

    # --- in a thread

    def _answer(
        self, question: Question, loop: asyncio.AbstractEventLoop
    ) -> tuple[list[Series], Match]:
        """Asks, reads and matches. Touches nothing of ours but the store's directory.

        Raises:
            ServerAway: there was no answer.
            Refused: whatever was wrong with the answer.
        """
        result = self._server.query(question.query, loop)
        try:
            answer = parse_vector(result, question.by, every=not question.any_label)
            return answer, self.store.match(question, answer, give_way)
        except Exception as error:
            # A server may answer anything, and no answer may end the process.
            raise Refused(f"the answer cannot be read: {cause(error)}") from error


async def ask_once(
    section: PrometheusSection, specs: Iterable[SignalSpec], nodes: Iterable[Node], clock: Clock
) -> SignalStore:
    """A store of these metrics with what Prometheus says now, if there is one; in no scheduler."""
    store = SignalStore(clock)
    store.set_specs(specs)
    for node in nodes:
        store.nodes_changed(None, node)
    if section.url is not None:
        await PrometheusRefresher(store, section, clock=clock, telemetry=Telemetry()).turn()
    return store
