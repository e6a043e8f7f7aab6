"""All writes by one gate: by priority, in a pause together, few while the server is away."""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from random import Random

import pytest

from engine.clock import ManualClock
from engine.framework.edge import BindOutcome
from engine.framework.effects import Bind, Emit, SetUnschedulable
from engine.kube.client import Response
from engine.kube.errors import Fenced, Interrupted, Timeout, Unreachable
from engine.kube.events import KubeEventSink
from engine.kube.gate import AdaptiveLimit, Gate, Priority, within
from engine.kube.wiring import Wiring, keep_asking
from engine.kube.writer import KubeBinder, KubePodStatusWriter
from engine.pods.podinfo import PodInfo
from engine.telemetry import Telemetry
from tests.builders import make_pod
from tests.scenarios.fake_server import status

L, B, V, C, E = Priority


class Server:
    """Answers 201 at once, or as told; remembers when it was asked what."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.away = False
        self.ready = Response(200, {}, b"ok")
        self.hold: asyncio.Event | None = None
        self.answers: list[Response] = []
        self.asked: list[tuple[float, str, str]] = []

    async def request(self, method, path, **_):
        self.asked.append((self.clock.monotonic(), method, path.rpartition("/")[2]))
        await asyncio.sleep(0)
        if self.hold is not None:
            await self.hold.wait()
        if self.away:
            raise Unreachable("connection refused")
        if path == "/readyz":
            return self.ready
        return self.answers.pop(0) if self.answers else Response(201, {}, b"{}")

    def stream(
        self, path: str, *, params: Mapping[str, str] | None = None, read_timeout_seconds: float
    ) -> AsyncGenerator[bytes, None]:
        raise AssertionError(path)


class Bench:
    """A gate on a clock of its own: all who sleep are woken in the order of their time."""

    def __init__(self, at_once: int = 4) -> None:
        self.clock = ManualClock()
        self.server = Server(self.clock)
        self.asleep: list[tuple[float, asyncio.Future[None]]] = []
        self.wiring = Wiring(self.clock, Telemetry(), Random(1), self._sleep)
        limit = AdaptiveLimit(start=at_once, least=at_once, most=at_once)
        self.gate = Gate(self.server, self.wiring, limit=limit)
        self.tasks: list[asyncio.Task[None]] = []

    async def _sleep(self, seconds: float) -> None:
        woken = asyncio.get_running_loop().create_future()
        self.asleep.append((self.clock.monotonic() + seconds, woken))
        await woken

    async def settle(self) -> None:
        for _ in range(50):
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        end = self.clock.monotonic() + seconds
        await self.settle()
        while self.asleep and min(self.asleep, key=lambda one: one[0])[0] <= end:
            first = min(self.asleep, key=lambda one: one[0])
            self.asleep.remove(first)
            self.clock.advance(max(0.0, first[0] - self.clock.monotonic()))
            if not first[1].done():
                first[1].set_result(None)
            await self.settle()
        self.clock.advance(end - self.clock.monotonic())

    def start(self, work: Awaitable[None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def with_bench(test: Callable[[Bench], Awaitable[None]]) -> Callable[[], None]:
    @functools.wraps(test)
    def run() -> None:
        async def main() -> None:
            bench = Bench()
            async with asyncio.timeout(60):
                await test(bench)
            await bench.end()

        asyncio.run(main())

    del run.__wrapped__  # type: ignore[attr-defined]  # pytest would look for a fixture
    return run


def effect_of(pod: PodInfo, message: str = "m") -> SetUnschedulable:
    return SetUnschedulable(pod, "Unschedulable", message)


# ---- places --------------------------------------------------------------------------------------


@with_bench
async def test_the_most_urgent_goes_first_and_nobody_starves(bench: Bench) -> None:
    held = [await bench.gate.place(E) for _ in range(4)]
    got: list[Priority] = []

    async def want(priority: Priority) -> None:
        with await bench.gate.place(priority):
            got.append(priority)

    for priority in (E, E, C, V, *[B] * 20):
        bench.start(want(priority))
    bench.start(want(L))
    await bench.settle()
    assert got == [L], "a lease waits for nothing"
    assert bench.gate.wanted == 28
    held[0].release()
    await bench.settle()
    order = got[1:]
    assert Counter(order[:16]) == {B: 14, E: 2}, "one in eight goes to the least urgent"
    assert Counter(order[16:]) == {B: 6, C: 1, V: 1}
    assert order[-1] == V
    for place in held[1:]:
        place.release()
    assert bench.gate.wanted == 0


@with_bench
async def test_nobody_is_lost_when_a_waiter_is_cancelled(bench: Bench) -> None:
    held = [await bench.gate.place(B) for _ in range(4)]
    tasks = [asyncio.create_task(bench.gate.place(B)) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    held[0].release()
    tasks[1].cancel()
    await asyncio.gather(*tasks[:2], return_exceptions=True)
    (await tasks[2]).release()
    for place in held[1:]:
        place.release()
    assert (bench.gate.in_flight, bench.gate.wanted) == (0, 0)


def test_the_limit_grows_while_full_and_fast_and_shrinks_when_slow() -> None:
    limit = AdaptiveLimit(start=10, most=20)
    for _ in range(2000):
        for left in range(limit.limit, 0, -1):
            limit.learn(0.005, left)
    assert limit.limit == 20
    for left in range(20, 0, -1):
        limit.learn(0.5, left)
    assert limit.limit == 18, "once a round trip"
    for _ in range(200):
        limit.learn(0.5, 1)
    assert limit.limit == 14, "no further: few do no harm, and it may be ourselves that are slow"
    for _ in range(200):
        limit.learn(0.5, 1, overloaded=True)
    assert limit.limit == 4


# ---- a server that asks to slow down -------------------------------------------------------------


@with_bench
async def test_a_429_pauses_all_but_the_lease(bench: Bench) -> None:
    bench.server.answers = [Response(429, {"retry-after": "5"}, status(429, "slow down"))]
    await bench.gate.lane(E).request("POST", "/event")
    for priority in (B, C, E):
        bench.start(bench.gate.lane(priority).request("POST", f"/{priority.name}"))  # type: ignore[arg-type]  # the answer is not looked at
    await bench.advance(4.9)
    await bench.gate.lane(L).request("PUT", "/lease")
    assert [path for _, _, path in bench.server.asked] == ["event", "lease"]
    await bench.advance(0.2)
    assert [path for _, _, path in bench.server.asked[2:]] == ["BINDING", "CONDITION", "EVENT"]


# ---- a server that is away -----------------------------------------------------------------------


@with_bench
async def test_five_hundred_pods_ask_a_server_that_is_away_a_few_times_a_second(
    bench: Bench,
) -> None:
    statuses = KubePodStatusWriter(bench.gate, bench.wiring)
    sink = KubeEventSink(bench.gate, bench.wiring, controller="b", host="h")
    binder = KubeBinder(bench.gate)
    pods = [make_pod(f"p{number}") for number in range(500)]
    outcomes: list[BindOutcome] = []

    async def bind(pod: PodInfo) -> None:
        outcomes.append((await binder.bind(Bind(pod, "n1")))[0])

    bench.server.away = True
    for work in (statuses.run(), sink.run(), keep_asking(bench.server, bench.wiring)):
        bench.start(work)
    for pod in pods:
        bench.start(bind(pod))
        statuses.set_unschedulable(effect_of(pod))
        sink.emit(Emit("Pod", "default", pod.name, pod.uid, "Warning", "R", "A", "n"))
    await bench.advance(1.0)
    began = len(bench.server.asked)
    assert began < 20, "those that were under way, and few more"
    await bench.advance(20.0)
    assert 20 <= len(bench.server.asked) - began <= 100
    await bench.advance(20.0)
    assert outcomes
    assert set(outcomes) == {BindOutcome.PUT_OFF}
    bench.server.away = False
    await bench.advance(1.5)
    for _ in range(200):
        await bench.settle()
    posts = Counter(path for _, method, path in bench.server.asked if method == "PATCH")
    assert posts["status"] >= 500, "no condition is lost"


@with_bench
async def test_one_answer_lets_all_go_on(bench: Bench) -> None:
    bench.wiring.reach.lost()
    bench.server.hold = asyncio.Event()
    for number in range(4):
        bench.start(bench.gate.lane(B).request("POST", f"/{number}"))  # type: ignore[arg-type]  # the answer is not looked at
    await bench.settle()
    assert len(bench.server.asked) == 1
    bench.server.hold.set()
    await bench.advance(0.3)
    assert len(bench.server.asked) == 4


@with_bench
async def test_the_probe_finds_the_server_back_and_wakes_who_rests(bench: Bench) -> None:
    reach = bench.wiring.reach
    bench.start(keep_asking(bench.server, bench.wiring))
    bench.server.away = True
    reach.lost()
    rested = asyncio.create_task(reach.rest(bench.wiring.sleep, 30.0))
    await bench.advance(10.0)
    assert not rested.done()
    assert 8 <= len(bench.server.asked) <= 15
    bench.server.away = False
    await bench.advance(1.3)
    assert rested.done()
    assert not reach.away
    calls = len(bench.server.asked)
    await bench.advance(10.0)
    assert len(bench.server.asked) == calls, "nothing is asked while it is there"


@with_bench
async def test_a_page_of_what_stands_before_the_server_is_no_answer_of_it(bench: Bench) -> None:
    reach = bench.wiring.reach
    bench.start(keep_asking(bench.server, bench.wiring))
    for code in (200, 403):
        bench.server.ready = Response(code, {}, b"<html>sign in</html>")
        reach.lost()
        await bench.advance(5.0)
        assert reach.away
        bench.server.ready = Response(403, {}, b'{"kind": "Status", "reason": "Forbidden"}')
        await bench.advance(1.3)
        assert not reach.away


@with_bench
async def test_a_connection_that_breaks_hurries_nobody(bench: Bench) -> None:
    """Else whoever only has such connections would ask as fast as the server answers."""
    reach = bench.wiring.reach
    bench.start(keep_asking(bench.server, bench.wiring))
    rested = asyncio.create_task(reach.rest(bench.wiring.sleep, 30.0))
    reach.lost()
    asks = asyncio.create_task(reach.until_found(bench.wiring.sleep, 30.0))
    await bench.advance(1.0)
    assert not reach.away
    assert asks.result() is False
    assert not rested.done()
    bench.server.away = True
    reach.lost()
    asks = asyncio.create_task(reach.until_found(bench.wiring.sleep, 30.0))
    await bench.advance(2.0)
    assert not asks.done()
    bench.server.away = False
    await bench.advance(1.3)
    assert asks.result() is True
    assert rested.result() is True, "also who went to rest before"


# ---- conditions ----------------------------------------------------------------------------------


@with_bench
async def test_a_condition_never_arrives_after_the_binding(bench: Bench) -> None:
    """On its way it is waited for; not sent yet, it never is."""
    writer = KubePodStatusWriter(bench.gate, bench.wiring)
    bench.start(writer.run())
    pod, other = make_pod("p"), make_pod("other")
    bench.server.hold = asyncio.Event()
    writer.set_unschedulable(effect_of(pod))
    await bench.settle()
    withdrawn = asyncio.create_task(writer.withdraw(pod.uid))
    await bench.settle()
    assert not withdrawn.done(), "it may still be applied"
    bench.server.hold.set()
    await bench.settle()
    assert withdrawn.done()
    held = [await bench.gate.place(B) for _ in range(4)]
    for message in ("old", "new"):
        for one in (pod, other):
            writer.set_unschedulable(effect_of(one, message))
    await writer.withdraw(pod.uid)
    for place in held:
        place.release()
    assert await writer.flush(5.0)
    assert len(bench.server.asked) == 2, "the first, and the newest of the other pod"


@pytest.mark.parametrize("error", [Unreachable("no"), Timeout("late")])
def test_a_condition_without_an_answer_is_tried_again_unless_it_is_withdrawn(
    error: Exception,
) -> None:
    @with_bench
    async def test(bench: Bench) -> None:
        ask, failing = bench.server.request, [error]

        async def request(*args: str, **how: object) -> Response:
            answer = await ask(*args, **how)  # type: ignore[arg-type]  # as it was called
            if failing:
                raise failing[0]
            return answer

        bench.server.request = request  # type: ignore[method-assign,assignment]  # one that fails
        writer = KubePodStatusWriter(bench.gate, bench.wiring)
        bench.start(writer.run())
        writer.set_unschedulable(effect_of(make_pod("p")))
        await bench.advance(10.0)
        calls = len(bench.server.asked)
        assert 2 <= calls <= 6
        bench.server.hold = asyncio.Event()
        await bench.advance(10.0)
        assert len(bench.server.asked) == calls + 1
        withdrawn = asyncio.create_task(writer.withdraw(make_pod("p").uid))
        await bench.settle()
        bench.server.hold.set()
        await bench.advance(5.0)
        assert withdrawn.done()
        assert len(bench.server.asked) <= calls + 2

    test()


@with_bench
async def test_a_condition_whose_connection_always_breaks_rests_between_two_tries(
    bench: Bench,
) -> None:
    """The server is there for all others, whom it would slow down."""
    ask = bench.server.request

    async def request(method: str, *args: str, **how: object) -> Response:
        answer = await ask(method, *args, **how)  # type: ignore[arg-type]  # as it was called
        if method == "PATCH":
            raise Interrupted("reset")
        return answer

    bench.server.request = request  # type: ignore[method-assign,assignment]  # one that fails
    writer = KubePodStatusWriter(bench.gate, bench.wiring)
    for work in (writer.run(), keep_asking(bench.server, bench.wiring)):
        bench.start(work)
    writer.set_unschedulable(effect_of(make_pod("p")))
    await bench.advance(60.0)
    assert 4 <= sum(method == "PATCH" for _, method, _ in bench.server.asked) <= 8


@with_bench
async def test_who_ends_leaves_the_bindings_that_wait_to_a_successor(bench: Bench) -> None:
    bench.server.hold = asyncio.Event()
    binder = KubeBinder(bench.gate)
    bound = [
        asyncio.ensure_future(binder.bind(Bind(make_pod(f"p{number}"), "n1")))
        for number in range(6)
    ]
    await bench.settle()
    assert len(bench.server.asked) == 4, "as many as there are places"
    bench.gate.turn_away()
    late = await binder.bind(Bind(make_pod("late"), "n1"))
    assert late == (BindOutcome.PUT_OFF, "not sent, as the process is ending")
    bench.server.hold.set()
    outcomes = [outcome for outcome, _ in await asyncio.gather(*bound)]
    assert outcomes == [BindOutcome.BOUND] * 4 + [BindOutcome.PUT_OFF] * 2


@with_bench
async def test_who_is_deleted_while_its_binding_waits_is_not_bound(bench: Bench) -> None:
    bench.server.hold, gone = asyncio.Event(), set[str]()
    binder, pods = KubeBinder(bench.gate, is_gone=gone.__contains__), [*map(make_pod, "abcdef")]
    bound = [asyncio.ensure_future(binder.bind(Bind(pod, "n1"))) for pod in pods]
    await bench.settle()
    gone |= {pods[0].uid, pods[5].uid}
    bench.server.hold.set()
    outcomes = [outcome for outcome, _ in await asyncio.gather(*bound)]
    assert outcomes == [BindOutcome.BOUND] * 5 + [BindOutcome.GONE]
    assert len(bench.server.asked) == 5


@with_bench
async def test_once_another_leads_only_what_has_happened_is_told(bench: Bench) -> None:
    gate = Gate(bench.server, bench.wiring, may_write=lambda: False)
    gate.retire()
    for priority in (B, V, C):
        with pytest.raises(Fenced), await gate.place(priority) as place:
            await place.request("POST", "/x", body=b"{}")
    for priority in (E, L):
        with await gate.place(priority) as place:
            await place.request("POST", "/x", body=b"{}")
    assert len(bench.server.asked) == 2


@with_bench
async def test_at_the_end_what_comes_on_is_waited_for_and_what_stands_still_is_not(
    bench: Bench,
) -> None:
    assert bench
    idle, left = asyncio.Event(), 3000

    def comes_on() -> int:
        nonlocal left
        left -= 100
        if left <= 0:
            idle.set()
        return left

    assert await within(0.001, idle, comes_on, "events", most=60.0)
    asked = []

    def stands_still() -> int:
        asked.append(1)
        return 7

    assert not await within(0.001, asyncio.Event(), stands_still, "events", most=60.0)
    assert len(asked) == 3, "one look was enough"
    left = 10**9
    assert not await within(0.001, asyncio.Event(), comes_on, "events", most=0.05)
