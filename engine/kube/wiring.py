"""What every room of the edge is given: time, chance, counts, and whether the server answers.

That is told by whoever asks the server, and known to all who would. While nobody gets an answer one
small question is asked again and again, so that the many need not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Final

import msgspec

from engine.clock import Clock
from engine.configuration.settings import ConfigError
from engine.kube.client import KubeClient
from engine.kube.errors import KubeconfigError, KubeError, status_error
from engine.kube.session import Session
from engine.tasks import first, unless
from engine.telemetry import Telemetry

_LOG = logging.getLogger(__name__)

_FIRST_SECONDS: Final = 0.25
_MOST_SECONDS: Final = 1.0
_TIMEOUT_SECONDS: Final = 2.0
_SERVER_ERRORS: Final = 500


class Reach:
    """What is known; everybody in one event loop shares it."""

    def __init__(self) -> None:
        self.away = False
        """The last that is known is that the server did not answer."""
        self.sure = False
        """It did not answer when it was asked again, either: more than a connection is broken."""
        self.told: set[str] = set()
        """Why nothing is answered, as the log has it; empty once something was."""
        self._lost = asyncio.Event()
        self._found = asyncio.Event()
        self._back = asyncio.Event()

    def lost(self, *, sure: bool = False) -> None:
        """A request had no answer."""
        self.sure |= sure
        if not self.away:
            self.away = True
            self._found.clear()
            self._lost.set()

    def found(self) -> None:
        """A request had an answer: all who wait go on."""
        if not self.away:
            return
        self.away = False
        self._lost.clear()
        self._found.set()
        if self.sure:
            self.sure = False
            self._back.set()
            self._back = asyncio.Event()

    async def until_lost(self) -> None:
        """Waits until the server is away."""
        await self._lost.wait()

    async def until_found(self, sleep: Callable[[float], Awaitable[None]], seconds: float) -> bool:
        """Waits while the server is away, so long at most; False: no more than a connection broke.

        Whoever only has such connections would ask at once, and again, and again.
        """
        back = self._back
        await first(self._found.wait(), sleep(seconds))
        return self.away or back.is_set()

    async def rest(self, sleep: Callable[[float], Awaitable[None]], seconds: float) -> bool:
        """Sleeps; True: no longer than until the server, having been away, was back."""
        back = self._back
        await first(back.wait(), sleep(seconds))
        return back.is_set()


class Wiring(msgspec.Struct, frozen=True):
    """Time, chance, counts and reach, as arguments."""

    clock: Clock
    telemetry: Telemetry
    random: Random = msgspec.field(default_factory=Random)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    reach: Reach = msgspec.field(default_factory=Reach)


async def connect(
    kubeconfig: str | Mapping[str, object] | None,
    clock: Clock,
    stop: asyncio.Event,
    context: str | None = None,
) -> Session | None:
    """A session, whether its server answers yet or not; None if stopped before.

    Raises:
        ConfigError: nothing says how to reach a server, or as whom; as of kube-scheduler that is
            the end, and for whoever starts us to try again.
    """
    try:
        return await unless(stop, Session.connect(kubeconfig, context, clock=clock))
    except KubeconfigError as wrong:
        raise ConfigError(f"cannot reach a cluster: {wrong}") from wrong


async def keep_asking(client: KubeClient, wiring: Wiring) -> None:
    """Asks while the server is away, at most four times a second, until cancelled."""
    reach = wiring.reach
    while True:
        await reach.until_lost()
        pause = _FIRST_SECONDS
        while reach.away and not await _answers(client):
            if pause == _FIRST_SECONDS:
                _LOG.warning("the API server does not answer")
            reach.lost(sure=True)
            await wiring.sleep(pause * (1.0 + 0.2 * wiring.random.random()))
            pause = min(_MOST_SECONDS, pause * 2)
        if pause > _FIRST_SECONDS:
            _LOG.info("the API server answers")
        reach.found()


async def _answers(client: KubeClient) -> bool:
    try:
        answer = await client.request("GET", "/readyz", timeout_seconds=_TIMEOUT_SECONDS)
    except KubeError:
        return False
    # An API server says `ok`, or in a Status that one may not ask; what is in between has pages.
    is_its_own = answer.body.strip() == b"ok" or status_error(answer.status, answer.body).reason
    return answer.status < _SERVER_ERRORS and bool(is_its_own)
