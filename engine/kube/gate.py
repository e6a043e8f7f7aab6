"""The one way of all writes to the API server: by priority, as many at a time as it bears.

Knows nothing of what is written. Who wants to write waits for a place; the most urgent has the next
that comes free. A 429 pauses all; while the server is away a few calls a second go out, whoever
wants how many. Where replicas elect a leader nothing leaves without a lease that still holds, and a
lease's renewal waits for nothing: without it nobody may write at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Final, Unpack

import msgspec

from engine.kube.client import KubeClient, MayLeave, RequestOptions, Response
from engine.kube.errors import Fenced, KubeError, Unreachable
from engine.kube.wiring import Wiring

_LOG = logging.getLogger(__name__)

_TOO_MANY_REQUESTS: Final = 429
_NO_SERVER_BEHIND: Final = frozenset({502, 503})
_TIMEOUT_SECONDS: Final = 10.0
_AWAY_SECONDS: Final = 0.25
"""Between two calls while the server is away."""
_PATIENCE_SECONDS: Final = 30.0
"""After so long without a place, bindings and evictions hear that the server is away."""
SLOW_DOWN_LEAST_SECONDS: Final = 0.2
"""The pause after a 429 that does not say how long."""
_SHARE: Final = 8
"""One in so many places goes to the least urgent, so that nobody starves."""
_ENDING: Final = "not sent, as the process is ending"
_SLOW_FACTOR: Final = 4.0
_SLOW_FLOOR_SECONDS: Final = 0.04
"""Answers faster than this are never slow."""
_FEW: Final = 16
"""As many may be in flight however slow answers are: that may be the network, or ourselves."""
_WINDOW: Final = 2000
"""After so many answers the fastest is looked for anew."""


class Priority(IntEnum):
    """Who goes first."""

    LEASE = 0
    BINDING = 1
    EVICTION = 2
    CONDITION = 3
    EVENT = 4


_LEASE: Final = Priority.LEASE  # CPython 3.11 looks a member up by a call of Python's


class AdaptiveLimit:
    """How many requests may be in flight now; `learn` is told of every answer.

    Grows by one a round trip and shrinks by a factor when answers get slow: when they take several
    times as long as the fastest one seen lately, for more in flight than the server can work on
    only makes them wait there.
    """

    def __init__(self, start: int = 50, least: int = 4, most: int = 200) -> None:
        self._limit = float(start)
        self.limit = start
        """How many may be in flight now."""
        self._least = float(least)
        self._most = float(most)
        self._fastest = float("inf")
        self._fastest_next = float("inf")
        self._answers = 0
        self._hold = 0

    def learn(self, seconds: float, in_flight: int, *, overloaded: bool = False) -> None:
        """Learns from how long an answer took while so many, itself among them, were in flight."""
        self._answers += 1
        self._hold -= 1
        if not overloaded:
            self._fastest = min(self._fastest, seconds)
            self._fastest_next = min(self._fastest_next, seconds)
        if self._answers >= _WINDOW:
            self._answers = 0
            self._fastest, self._fastest_next = self._fastest_next, float("inf")
        slow = seconds > _SLOW_FLOOR_SECONDS and seconds > _SLOW_FACTOR * self._fastest
        if overloaded or (slow and self._limit > _FEW):
            # Once a round trip: answers on the way say nothing of the new limit.
            if self._hold <= 0:
                factor = 0.5 if overloaded else 0.9
                self._limit = max(self._least, self._limit * factor)
                self._hold = in_flight
        elif in_flight >= self.limit:
            self._limit = min(self._most, self._limit + 1.0 / self._limit)
        else:
            return
        self.limit = int(self._limit)


class _Waiter(msgspec.Struct, frozen=True):
    place: asyncio.Future[None]
    since: float


class Place(msgspec.Struct, frozen=True, eq=False):
    """Permission to write now; given back at the end of the `with` block, or by `release`."""

    _gate: Gate
    _priority: Priority

    async def request(self, method: str, path: str, **options: Unpack[RequestOptions]) -> Response:
        """See `KubeClient.request`; what comes of it is known to all.

        Raises:
            Fenced: we do not lead (any longer), and nothing was sent.
        """
        gate = self._gate
        monotonic = gate.clock.monotonic
        if method != "GET" and gate.fences(self._priority):
            if not gate.may_write():
                raise Fenced("not sent, as this replica does not lead")
            options["may_leave"] = partial(gate.may_leave, self._priority)
        options.setdefault("timeout_seconds", _TIMEOUT_SECONDS)
        began = monotonic()
        try:
            answer = await gate.client.request(method, path, **options)
        except Fenced:
            raise
        except KubeError:
            gate.lost(monotonic() - began)
            raise
        gate.answered(answer, monotonic() - began)
        return answer

    def again(self) -> bool:
        """Whether it may be used for another request; if not, it is still to be given back."""
        return self._gate.go_on(self._priority)

    def release(self, *_: object) -> None:
        """Gives it back."""
        self._gate.give_back(self._priority)

    def __enter__(self) -> Place:
        return self

    __exit__ = release


class Gate:
    """Hands out places, first to the most urgent, then in the order in which they were asked for.

    Single owner: the event loop.
    """

    def __init__(
        self,
        client: KubeClient,
        wiring: Wiring,
        *,
        limit: AdaptiveLimit | None = None,
        may_write: MayLeave = lambda: True,
    ) -> None:
        """`may_write` is asked before each write but a lease's: the fence of a leader."""
        self.may_write = may_write
        self.client = client
        self.clock = wiring.clock
        self._wiring = wiring
        self.limit = limit or AdaptiveLimit()
        self.in_flight = 0
        self._waiting: dict[Priority, deque[_Waiter]] = {one: deque() for one in Priority}
        self._paused_until = 0.0
        self._next_call = 0.0
        self._given = 0
        self._waker: asyncio.Task[None] | None = None
        self._retired = False
        self._ending = False

    @property
    def wanted(self) -> int:
        """How many have a place or wait for one."""
        return self.in_flight + sum(len(queue) for queue in self._waiting.values())

    @property
    def away(self) -> bool:
        """Whether the API server does not answer, as far as is known."""
        return self._wiring.reach.away

    def lane(self, priority: Priority) -> Lane:
        """A client each of whose requests waits for a place."""
        return Lane(self, priority)

    async def place(self, priority: Priority) -> Place:
        """Waits for a place.

        Raises:
            Unreachable: the server is away, and has been for as long as anyone waits.
            Fenced: a binding was turned away.
        """
        place = Place(self, priority)
        if priority is _LEASE:
            return place
        if (
            self.in_flight < self.limit.limit
            and self._closed_for() <= 0.0
            and not any(self._waiting.values())
        ):
            self._give()
            return place
        if self._ending and priority is Priority.BINDING:
            raise Fenced(_ENDING)
        future = asyncio.get_running_loop().create_future()
        self._waiting[priority].append(_Waiter(future, self.clock.monotonic()))
        self._hand_over()
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                # The place was handed over while we were being cancelled.
                place.release()
            raise
        return place

    def fences(self, priority: Priority) -> bool:
        """Whether such a write needs the lease."""
        if self._retired and priority is Priority.EVENT:
            return False
        return priority is not _LEASE

    def may_leave(self, priority: Priority) -> bool:
        """Whether such a write may be sent now: it was begun while it might."""
        return self.may_write() or not self.fences(priority)

    def retire(self) -> None:
        """Another replica leads from now on: what has happened is told, nothing else is written."""
        self._retired = True

    def turn_away(self) -> None:
        """From now on no binding waits for a place: another replica can do it as well."""
        self._ending = True
        queue = self._waiting[Priority.BINDING]
        while queue:
            waiter = queue.popleft()
            if not waiter.place.done():
                waiter.place.set_exception(Fenced(_ENDING))

    def give_back(self, priority: Priority) -> None:
        """A place is free again."""
        if priority is not _LEASE:
            self.in_flight -= 1
            self._hand_over()

    def go_on(self, priority: Priority) -> bool:
        """Whether who has a place may use it again before others of the same priority."""
        others = sum(map(len, self._waiting.values())) - len(self._waiting[priority])
        if others or self.in_flight > self.limit.limit or self._closed_for() > 0.0:
            return False
        self.in_flight -= 1
        self._give()
        return True

    def answered(self, answer: Response, seconds: float) -> None:
        """Learns from an answer, and how long it took."""
        if answer.status in _NO_SERVER_BEHIND:
            self.lost(seconds)
            return
        overloaded = answer.status == _TOO_MANY_REQUESTS
        if overloaded:
            asked = answer.error().retry_after_seconds or 0.0
            pause = max(asked, SLOW_DOWN_LEAST_SECONDS)
            self._paused_until = max(self._paused_until, self.clock.monotonic() + pause)
        if self._wiring.reach.away:
            self._wiring.reach.found()
        self.limit.learn(seconds, self.in_flight, overloaded=overloaded)

    def lost(self, seconds: float) -> None:
        """Learns that there was no answer of the server itself."""
        self._wiring.reach.lost()
        self.limit.learn(seconds, self.in_flight, overloaded=True)

    # --- inside

    def _hand_over(self) -> None:
        while self.in_flight < self.limit.limit and any(self._waiting.values()):
            queue = self._next()
            if queue is None:
                return
            closed = self._closed_for()
            if closed > 0.0:
                if self._waker is None:
                    self._waker = asyncio.get_running_loop().create_task(self._wake(closed))
                return
            self._give()
            queue.popleft().place.set_result(None)

    def _give(self) -> None:
        self.in_flight += 1
        self._given += 1
        if self._wiring.reach.away:
            self._next_call = self.clock.monotonic() + _AWAY_SECONDS

    def _next(self) -> deque[_Waiter] | None:
        """Whose turn it is; those who gave up are passed over."""
        least_urgent = self._given % _SHARE == _SHARE - 1
        queues = self._waiting.values()
        for queue in reversed(queues) if least_urgent else queues:
            while queue:
                if not queue[0].place.done():
                    return queue
                queue.popleft()
        return None

    def _closed_for(self) -> float:
        until = self._paused_until
        if self._wiring.reach.away:
            until = max(until, self._next_call)
        return until and until - self.clock.monotonic()

    async def _wake(self, seconds: float) -> None:
        await self._wiring.sleep(seconds)
        self._waker = None
        if self._wiring.reach.away:
            self._lose_patience()
        self._hand_over()

    def _lose_patience(self) -> None:
        long_ago = self.clock.monotonic() - _PATIENCE_SECONDS
        for priority in (Priority.BINDING, Priority.EVICTION):
            queue = self._waiting[priority]
            while queue and (queue[0].since <= long_ago or queue[0].place.done()):
                waiter = queue.popleft()
                if not waiter.place.done():
                    waiter.place.set_exception(Unreachable("the API server does not answer"))


async def within(
    seconds: float, idle: asyncio.Event, left: Callable[[], int], what: str, most: float = 0.0
) -> bool:
    """Waits until a writer has written all; False, and it is said, if that takes too long.

    While it comes on it may take `most` seconds, as long as it never stands still for `seconds`.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + max(seconds, most)
    while True:
        before = left()
        try:
            async with asyncio.timeout(min(seconds, max(0.0, end - loop.time()))):
                await idle.wait()
        except TimeoutError:
            if left() < before and loop.time() < end:
                continue
            _LOG.warning("%d %s were not written before the process ended", left(), what)
            return False
        return True


class Lane:
    """`Requests` all of which go through the gate, each with a place of its own."""

    def __init__(self, gate: Gate, priority: Priority) -> None:
        self._gate = gate
        self._priority = priority

    async def request(self, method: str, path: str, **options: Unpack[RequestOptions]) -> Response:
        """See `KubeClient.request`."""
        with await self._gate.place(self._priority) as place:
            return await place.request(method, path, **options)
