from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Mapping
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import force_setattr, replace

from engine.clock import ManualClock
from engine.kube.protocol import Course, End, Phase, Wait
from engine.kube.reflector import Reflector, _Progress
from engine.kube.resources import pods
from engine.kube.wiring import Wiring
from engine.objects import Pod
from engine.telemetry import Count, Telemetry
from tests.effort import examples
from tests.engine.kube.recording import Recorder
from tests.scenarios.fake_server import FakeServer


class List(NamedTuple):
    version: str
    paged: bool


class Watch(NamedTuple):
    version: str
    unsure: bool = False


Action = List | Watch | Wait
Outcome = tuple[str, dict[str, Any]]
"""A method of `Course`, and what it is told."""


def listed(version: str) -> Outcome:
    return "listed", {"version": version}


def list_expired(while_paging: bool) -> Outcome:
    return "list_expired", {"while_paging": while_paging}


def missing(kept: bool = False) -> Outcome:
    return "missing", {"kept": kept}


def failed(retry_after: float = 0.0) -> Outcome:
    return "failed", {"retry_after": retry_after}


def ended(end: End, version: str, lines: int, seconds: float) -> Outcome:
    return "ended", {"end": end, "version": version, "lines": lines, "seconds": seconds}


def waited(back: bool = False) -> Outcome:
    return "go_on", {"back": back}


def step(course: Course, outcome: Outcome) -> Action:
    method, told = outcome
    wait = getattr(course, method)(**told)
    if wait is not None:
        return wait
    if course.version:
        return Watch(course.version, course.unsure)
    return List(course.ask, course.paged)


def walk(*outcomes: Outcome, course: Course | None = None) -> tuple[Course, list[Action]]:
    course = course or Course()
    return course, [step(course, outcome) for outcome in outcomes]


class TestStep:
    def test_a_list_is_watched_from_its_version(self) -> None:
        course, actions = walk(listed("7"), waited())
        assert actions == [Watch("7")] * 2
        assert course.phase is Phase.WATCHING

    def test_a_watch_that_closes_at_once_is_not_hammered(self) -> None:
        _, actions = walk(listed("7"), ended(End.CLOSED, "7", 0, 0.1), waited())
        assert isinstance(actions[1], Wait)
        assert actions[2] == Watch("7")

    def test_expired_lists_not_older_then_newest_then_in_one_piece(self) -> None:
        _, actions = walk(
            listed("7"),
            ended(End.EXPIRED, "9", 3, 400.0),
            list_expired(while_paging=False),
            list_expired(while_paging=True),
            list_expired(while_paging=False),
        )
        assert actions[1:4] == [List("9", True), List("", True), List("", False)]
        assert isinstance(actions[4], Wait)

    def test_failures_double_up_to_the_limit(self) -> None:
        _, actions = walk(*[failed()] * 8)
        seconds = [a.seconds for a in actions if isinstance(a, Wait)]
        assert seconds == [0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0, 10.0]

    def test_a_server_that_is_back_is_not_blamed_for_what_was_before(self) -> None:
        _, actions = walk(*[failed()] * 6, waited(back=True), failed())
        assert actions[-1] == Wait(0.8)

    def test_a_server_that_was_away_is_asked_whether_it_is_as_far_before_it_is_watched(
        self,
    ) -> None:
        _, actions = walk(
            listed("7"),
            ended(End.DROPPED, "9", 3, 60.0),
            waited(back=True),
            ended(End.EXPIRED, "9", 0, 3.0),
            list_expired(while_paging=False),
            listed("5"),
            ended(End.CLOSED, "6", 1, 9.0),
        )
        assert actions[2:] == [
            Watch("9", unsure=True), List("9", True), List("", True), Watch("5"), Watch("6"),
        ]  # fmt: skip

    def test_a_server_that_was_away_is_unsure_until_it_answered_a_watch(self) -> None:
        away = listed("7"), ended(End.DROPPED, "9", 3, 60.0), waited(back=True)
        _, actions = walk(*away, failed(), waited(), ended(End.CLOSED, "9", 1, 9.0))
        assert [one for one in actions[2:] if isinstance(one, Watch)] == [
            Watch("9", unsure=True), Watch("9", unsure=True), Watch("9"),
        ]  # fmt: skip

    def test_retry_after_is_the_least(self) -> None:
        _, actions = walk(failed(retry_after=12.0))
        assert actions == [Wait(0.8, floor=12.0)]

    @pytest.mark.parametrize("end", [End.DROPPED, End.FROZEN])
    def test_a_good_watch_that_breaks_off_is_opened_again_at_once(self, end: End) -> None:
        course, _ = walk(listed("7"), *[failed()] * 6)
        _, actions = walk(ended(end, "9", 0, 0.6), waited(), failed(), course=course)
        assert actions == [Wait(0.05), Watch("9"), Wait(0.8)], "and what was before is forgiven"

    def test_a_line_forgives_but_a_short_watch_is_not_opened_at_once(self) -> None:
        course, _ = walk(listed("7"), *[failed()] * 6)
        _, actions = walk(*[ended(End.DROPPED, "9", 1, 0.1)] * 3, course=course)
        assert actions == [Wait(0.8)] * 3

    def test_watches_that_always_expire_lead_to_lists_now_and_then(self) -> None:
        course, waits = Course(), []
        for _ in range(6):
            course, (_, wait, again) = walk(
                listed("7"), ended(End.EXPIRED, "7", 0, 0.1), waited(), course=course
            )
            waits.append(wait.seconds)
            assert again == List("7", True)
        assert waits == [0.05, 0.8, 1.6, 2.0, 2.0, 2.0]

    def test_a_refused_watch_is_tried_again_and_not_listed(self) -> None:
        _, actions = walk(listed("7"), failed(), waited())
        assert actions[-1] == Watch("7")

    def test_garbage_first_thing_is_got_around_by_a_list(self) -> None:
        _, actions = walk(listed("7"), ended(End.GARBAGE, "7", 0, 0.1), waited())
        assert actions[-1] == List("7", True)

    def test_what_is_known_stays_where_it_may_not_be_listed_any_more(self) -> None:
        _, actions = walk(listed("7"), *[missing(kept=True), waited()] * 3)
        assert not any(a.gone for a in actions if isinstance(a, Wait))

    def test_what_may_not_be_listed_is_asked_for_again_soon_and_done_without_the_second_time(
        self,
    ) -> None:
        course, actions = walk(missing(kept=True))
        assert (course.phase, actions) == (Phase.BACKING_OFF, [Wait(0.8)])
        course, actions = walk(*[waited(), missing(kept=True)] * 5, course=course)
        assert (course.phase, actions[1], actions[-1]) == (Phase.ABSENT, Wait(1.6), Wait(10.0))

    def test_absent_is_polled_and_believed_the_second_time(self) -> None:
        course, actions = walk(listed("7"), missing(), waited(), missing())
        assert course.phase is Phase.ABSENT
        first, again, second = actions[1:]
        assert isinstance(first, Wait)
        assert isinstance(second, Wait)
        assert (first.seconds, first.gone, second.gone) == (60.0, False, True)
        assert again == List("0", True)

    @given(
        st.lists(
            st.one_of(
                st.builds(listed, st.sampled_from("123")),
                st.builds(list_expired, st.booleans()),
                st.builds(missing),
                st.builds(failed, st.sampled_from([0.0, 5.0])),
                st.builds(
                    ended,
                    st.sampled_from(End),
                    st.sampled_from("123"),
                    st.integers(0, 2),
                    st.sampled_from([0.0, 5.0, 200.0]),
                ),
            ),
            max_size=30,
        )
    )
    def test_whatever_happens_failures_do_not_run_hot(self, outcomes: list[Outcome]) -> None:
        """No three failures in a row without a wait, and the loop asks only for what it may."""
        course, hot = Course(), 0
        action: Action = List("0", True)
        for outcome in outcomes:
            if isinstance(action, Wait):
                action = step(course, waited())
                assert not isinstance(action, Wait)
            method, told = outcome
            if isinstance(action, Watch) != (method in ("ended", "failed")):
                continue
            action = step(course, outcome)
            good = method == "listed" or (
                method == "ended" and (told["lines"] > 0 or told["seconds"] > 1.0)
            )
            hot = 0 if good or isinstance(action, Wait) else hot + 1
            assert hot < 3


class Bench:
    """A reflector on a fake server; `sleep` moves the clock and waits for nothing."""

    def __init__(self, runner: asyncio.Runner, **server: int) -> None:
        self.runner = runner
        self.clock = ManualClock()
        self.slept: list[float] = []
        self.telemetry = Telemetry()
        self.recorder = Recorder()

        async def make() -> FakeServer:
            return FakeServer(self.clock, **server)  # type: ignore[arg-type]  # the server's own keywords

        async def sleep(seconds: float) -> None:
            self.slept.append(seconds)
            self.clock.advance(seconds)
            await asyncio.sleep(0)

        self.server = runner.run(make())
        wiring = Wiring(self.clock, self.telemetry, Random(1), sleep)
        self.reflector: Reflector[Pod] = Reflector(self.server, pods(), self.recorder, wiring)
        self.task: asyncio.Task[None] | None = None

    def spin(self, turns: int = 12) -> None:
        async def spin() -> None:
            if self.task is None:
                self.task = asyncio.create_task(self.reflector.run())
            for _ in range(turns):
                await asyncio.sleep(0)
            if self.task.done():
                self.task.result()

        self.runner.run(spin())

    def settle(self) -> None:
        for _ in range(200):
            self.spin()
            if self.server.open_watches and self.agrees():
                return
        raise AssertionError(f"does not settle: {self.server.requests[-10:]}")

    def agrees(self) -> bool:
        theirs = {
            f"d/{n}": o["metadata"]["resourceVersion"]
            for n, o in self.server.objects.items()
            if o["spec"]["nodeName"] != 7
        }
        ours = {
            k: p.metadata.resource_version
            for k, p in self.reflector.objects.items()
            if k.removeprefix("d/") not in self.hidden()
        }
        return theirs == ours and self.reflector.objects == self.recorder.known

    def hidden(self) -> set[str]:
        return {n for n, o in self.server.objects.items() if o["spec"]["nodeName"] == 7}

    def close(self) -> None:
        async def close() -> None:
            if self.task is not None:
                self.task.cancel()
                await asyncio.gather(self.task, return_exceptions=True)

        self.runner.run(close())


@pytest.fixture
def bench():
    with asyncio.Runner() as runner:
        bench = Bench(runner)
        yield bench
        bench.close()


NAMES = st.sampled_from(["a", "b", "c"])


class ReflectorMachine(RuleBasedStateMachine):
    """Any changes with any troubles at any moment: in the end both sides agree."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.bench = Bench(self.runner)
        self.server = self.bench.server

    def teardown(self) -> None:
        self.server.faults.clear()
        self.server.frozen = False
        if self.server.open_watches:
            self.runner.run(self._cut("drop"))
        self.bench.settle()
        assert self.bench.recorder.synced == 1
        self.bench.close()
        self.runner.close()

    async def _cut(self, how: str) -> None:
        self.server.cut(how)

    @rule(name=NAMES, mark=st.integers(0, 9), readable=st.integers(0, 9))
    def put(self, name: str, mark: int, readable: int) -> None:
        async def put() -> None:
            self.server.put(name, mark, readable=readable > 0)

        self.runner.run(put())

    @rule(name=NAMES, again=st.booleans())
    def delete(self, name: str, again: bool) -> None:
        async def delete() -> None:
            self.server.delete(name)
            if again:
                self.server.put(name, 0)

        self.runner.run(delete())

    @rule(turns=st.integers(1, 12))
    def spin(self, turns: int) -> None:
        self.bench.spin(turns)

    @rule(
        fault=st.sampled_from(
            ["refused", "reset", "silent", "garbage", "429", "500", "503", "410", "401"]
        )
    )
    def next_request_fails(self, fault: str) -> None:
        self.server.faults.append(fault)

    @rule(skip=st.integers(0, 2))
    def later_request_fails(self, skip: int) -> None:
        self.server.faults.extend(["ok"] * skip + ["410"])

    @precondition(lambda self: self.server.open_watches)
    @rule(how=st.sampled_from(["close", "drop", "freeze", "expire", "error", "garbage", "half"]))
    def cut(self, how: str) -> None:
        self.runner.run(self._cut(how))

    @rule()
    def compact(self) -> None:
        self.server.compact()

    @rule()
    def bookmark(self) -> None:
        async def bookmark() -> None:
            self.server.bookmark()

        self.runner.run(bookmark())

    @rule(
        split=st.sampled_from([0, 1, 7, 100]),
        repeat=st.integers(0, 1),
        page=st.sampled_from([None, 1, 2]),
    )
    def change_manners(self, split: int, repeat: int, page: int | None) -> None:
        self.server.split, self.server.repeat, self.server.page_limit = split, repeat, page

    @rule(frozen=st.booleans())
    def freeze(self, frozen: bool) -> None:
        self.server.frozen = frozen

    @invariant()
    def the_store_is_what_was_told(self) -> None:
        assert self.bench.reflector.objects == self.bench.recorder.known


TestReflectorMachine = ReflectorMachine.TestCase
TestReflectorMachine.settings = settings(
    max_examples=examples(120), stateful_step_count=30, deadline=None
)


def test_an_object_that_cannot_be_read_is_passed_over_and_kept(bench: Bench) -> None:
    async def change(name: str, readable: bool) -> None:
        bench.server.put(name, 1, readable=readable)

    bench.runner.run(change("a", True))
    bench.runner.run(change("b", False))
    bench.settle()
    assert bench.recorder.calls == ["unreadable b", "add a@101", "synced"]
    bench.runner.run(change("a", False))
    bench.spin()
    assert bench.recorder.calls[-1] == "unreadable a"
    assert bench.reflector.objects["d/a"].metadata.resource_version == "101"
    # A new list holds it as well: it is still there.
    bench.server.put("c", 1)
    bench.server.cut("expire")
    bench.settle()
    assert bench.telemetry[Count.REFLECTOR_LISTS] == 2
    assert "d/a" in bench.reflector.objects
    assert bench.recorder.calls[-1] != "delete a@101"
    assert bench.recorder.calls.count("unreadable b") == 1, "told once, whatever list it is in"
    bench.runner.run(change("b", True))
    bench.runner.run(change("b", False))
    bench.spin()
    assert bench.recorder.calls.count("unreadable b") == 2


def test_a_list_that_follows_another_never_shows_less_than_there_is(bench: Bench) -> None:
    """A full node must not look empty to whoever decides while the difference is told."""
    for number in range(40):
        bench.server.put(f"old{number}", 1)
    bench.settle()
    seen = []

    async def look() -> None:
        bench.server.frozen = True
        for number in range(40):
            bench.server.delete(f"old{number}")
            bench.server.put(f"new{number}", 1)
        bench.server.compact()
        bench.server.cut("expire")
        while "d/new39" not in bench.reflector.objects or len(bench.reflector.objects) > 40:
            seen.append(len(bench.recorder.known))
            await asyncio.sleep(0)

    bench.reflector._slice = -1.0
    bench.runner.run(look())
    assert min(seen) == 40
    assert max(seen) == 80


def test_a_list_like_the_last_one_is_compared_and_let_go_bit_by_bit(bench: Bench) -> None:
    for number in range(40):
        bench.server.put(f"pod{number}", 1)
    bench.settle()
    lists: list[dict[str, Pod]] = []
    replace_by = bench.reflector._replace

    def remembered(found: dict[str, Pod], kept: set[str]) -> Awaitable[None]:
        lists.append(found)
        return replace_by(found, kept)

    async def look() -> list[int]:
        bench.server.cut("expire")
        left: list[int] = []
        for _ in range(100):
            left += map(len, lists)
            await asyncio.sleep(0)
        return left

    bench.reflector._slice = -1.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.reflector, "_replace", remembered)
        left = bench.runner.run(look())
    assert left[0] > 30
    assert left[: left[0] + 1] == [*range(left[0], -1, -1)]


def test_others_run_between_two_events_of_one_chunk_that_take_long(bench: Bench) -> None:
    lines = b"".join(
        b'{"type":"ADDED","object":{"metadata":{"name":"p%d","uid":"u%d","resourceVersion":"%d"}}}\n'
        % (number, number, number)
        for number in range(1, 41)
    )

    async def look() -> list[int]:
        told = asyncio.create_task(bench.reflector._chunk(lines, _Progress("0", 0.0)))
        seen = [0]
        while not told.done():
            await asyncio.sleep(0)
            seen.append(len(bench.recorder.known))
        return seen

    bench.reflector._slice = -1.0
    seen = bench.runner.run(look())
    assert seen[-1] == 40
    assert max(after - before for before, after in pairwise(seen)) == 1


def test_another_uid_under_a_name_is_another_object(bench: Bench) -> None:
    """Where its end was not seen, handlers hear of it before the other one."""

    async def replaced() -> None:
        bench.server.delete("a")
        bench.server.put("a", 1)
        bench.server.compact()
        bench.server.cut("expire")

    bench.server.put("a", 1)
    bench.settle()
    bench.runner.run(replaced())
    bench.settle()
    assert bench.recorder.calls == ["add a@101", "synced", "delete a@101", "add a@103"]


def test_events_are_believed_whatever_their_version(bench: Bench) -> None:
    """A bookmark of 10^25, or a server that was restored from a backup."""

    async def change(version: int, name: str, bookmark: bool = False) -> None:
        bench.server.version = version
        if bookmark:
            bench.server.bookmark()
        else:
            bench.server.put(name, 1)

    bench.settle()
    bench.runner.run(change(10**25, "", bookmark=True))
    bench.spin()
    for number, name in enumerate("abc"):
        bench.runner.run(change(50 + number, name))
        bench.spin()
    assert bench.recorder.calls == ["synced", "add a@51", "add b@52", "add c@53"]
    assert bench.telemetry[Count.WATCH_EVENTS_OUT_OF_ORDER] == 1
    assert bench.telemetry[Count.REFLECTOR_LISTS] == 1


def test_a_down_server_is_not_hammered(bench: Bench) -> None:
    bench.settle()
    bench.server.faults.extend(["refused"] * 50)
    bench.server.cut("drop")
    for _ in range(60):
        bench.spin(4)
    down = bench.slept[:10]
    assert all(0.8 <= s <= 60.0 for s in down[1:])
    assert sum(bench.slept) / len(bench.slept) > 20
    assert bench.reflector.phase is Phase.WATCHING or bench.reflector.failures > 0


@pytest.mark.parametrize("fault", ["refused", "reset", "silent"])
def test_a_server_that_is_found_back_ends_the_waits_of_all(bench: Bench, fault: str) -> None:
    """Whatever takes its place meanwhile: a load balancer accepts connections, and ends them."""
    bench.settle()
    bench.server.faults.extend([fault] * 8)
    bench.server.cut("drop")
    forever = asyncio.Event()

    async def sleep(seconds: float) -> None:
        bench.slept.append(seconds)
        if seconds > 5.0:
            await forever.wait()

    force_setattr(bench.reflector._wiring, "sleep", sleep)
    for _ in range(20):
        bench.spin(4)
    assert not bench.server.open_watches
    bench.server.faults.clear()
    reach = bench.reflector._wiring.reach
    reach.lost(sure=True)  # as whoever asks for it does
    reach.found()
    bench.settle()
    assert bench.telemetry[Count.REFLECTOR_LISTS] == 1


def test_a_server_that_hangs_is_told_of_once_and_not_for_each_kind(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """One that hangs alone is told by its name: the others may be well."""
    bench.settle()
    bench.server.cut("freeze")
    bench.spin()
    hangs = [one.getMessage() for one in caplog.records]
    assert hangs == ["pods: silence"]
    bench.server.faults.extend(["silent"] * 20)
    others: list[Reflector[Pod]] = [
        Reflector(bench.server, pods(), Recorder(), bench.reflector._wiring) for _ in range(6)
    ]

    async def run() -> None:
        tasks = [asyncio.create_task(one.run()) for one in others]
        for _ in range(20):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    bench.runner.run(run())
    assert all(one.failures for one in others)
    told = [one.getMessage() for one in caplog.records][1:]
    assert len(told) <= 2, told


def test_silence_is_noticed_within_fifteen_seconds(bench: Bench) -> None:
    asked: list[tuple[float, float]] = []
    stream = bench.server.stream

    def remember(
        path: str, *, params: Mapping[str, str], read_timeout_seconds: float
    ) -> AsyncGenerator[bytes, None]:
        asked.append((float(params["timeoutSeconds"]), read_timeout_seconds))
        return stream(path, params=params, read_timeout_seconds=read_timeout_seconds)

    bench.server.stream = remember  # type: ignore[method-assign,assignment]  # one that remembers
    bench.settle()
    ((ends, silent),) = asked
    assert ends + 2 < silent <= 15


def test_health_tells_state_and_silence(bench: Bench) -> None:
    bench.settle()
    bench.clock.advance(40.0)
    assert (bench.reflector.phase, bench.reflector.quiet_seconds) == (Phase.WATCHING, 40.0)
    assert bench.reflector.synced.is_set()

    async def bookmark() -> None:
        bench.server.bookmark()

    bench.runner.run(bookmark())
    bench.spin()
    assert bench.reflector.quiet_seconds == 0.0


def test_a_resource_that_the_server_lacks_is_synced_and_polled_slowly(bench: Bench) -> None:
    resource = bench.reflector._resource
    bench.reflector._resource = replace(resource, path=f"/apis/example.org{resource.path[4:]}")
    bench.server.faults.extend(["404"] * 3)
    bench.spin(30)
    assert bench.recorder.synced == 1
    assert [round(s) >= 60 for s in bench.slept[:3]] == [True] * 3
    bench.settle()
    assert bench.telemetry[Count.REFLECTOR_ERRORS] == 0


@pytest.mark.parametrize("given", [True, False])
def test_what_was_given_and_is_no_more_grows_old_and_what_never_was_does_not(
    bench: Bench, given: bool
) -> None:
    bench.reflector._resource = replace(bench.reflector._resource, optional=True)
    assert not bench.reflector.listens, "it does not run yet"
    if given:
        bench.settle()
        bench.server.faults.append("410")
    bench.server.faults.extend(["403"] * 400)
    if given:

        async def cut() -> None:
            bench.server.cut("drop")

        bench.runner.run(cut())
    began = bench.clock.monotonic()
    bench.spin(100)
    passed = bench.clock.monotonic() - began
    assert bench.reflector.listens is given
    assert passed > 60
    if given:
        assert bench.reflector.quiet_seconds >= passed
        assert "403" in bench.reflector.last_error
    bench.server.faults.clear()
    bench.settle()
    assert bench.reflector.listens
    assert bench.reflector.quiet_seconds < 60


@pytest.mark.parametrize("optional", [True, False])
def test_what_may_not_be_listed_is_told_once_and_waited_for_only_if_it_is_needed(
    bench: Bench, optional: bool, caplog: pytest.LogCaptureFixture
) -> None:
    bench.reflector._resource = replace(bench.reflector._resource, optional=optional)
    bench.server.faults.extend(["403"] * 400)
    bench.spin(40)
    assert bench.recorder.synced == optional
    assert len(caplog.records) == 1
    bench.server.faults.clear()
    bench.settle()
    assert bench.recorder.synced == 1


def test_a_watch_that_was_refused_is_well_once_it_is_open_and_not_with_its_first_line(
    bench: Bench,
) -> None:
    bench.settle()
    bench.server.faults.extend(["403", "403"])

    async def cut() -> None:
        bench.server.cut("close")

    bench.runner.run(cut())
    while bench.server.faults:
        bench.spin(1)
    assert "403" in bench.reflector.last_error
    bench.settle()
    assert (bench.reflector.failures, bench.reflector.last_error) == (0, "")


def test_a_handlers_bug_ends_it(bench: Bench) -> None:
    def broken(obj: Pod) -> None:
        raise ZeroDivisionError(obj)

    bench.recorder.on_add = broken  # type: ignore[method-assign]  # one that fails
    bench.server.put("a", 1)
    with pytest.raises(ZeroDivisionError):
        bench.spin(20)
    bench.task = None


def test_a_burst_comes_in_pieces_and_equal_parts_are_shared(bench: Bench) -> None:
    for number in range(2000):
        bench.server.put(f"p{number}", number % 2)
    bench.settle()
    for number in range(2000):
        bench.server.put(f"p{number}", 2 + number % 2)
    for _ in range(30):
        bench.spin()
    assert bench.agrees()
    pods_now = list(bench.reflector.objects.values())
    assert len({id(p.metadata.labels) for p in pods_now}) == 2
    assert {(p.metadata.labels or {})["mark"] for p in pods_now} == {"2", "3"}
