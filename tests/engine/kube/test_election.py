"""Who leads: two candidates, one lease, and a clock that the test turns."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from random import Random

import pytest

from engine.clock import ManualClock
from engine.configuration.scheduler import LeaderElection
from engine.kube.client import Response
from engine.kube.election import Elector, Lease
from engine.kube.errors import LeaseLost, Timeout, Unreachable
from engine.kube.gate import Priority
from engine.kube.wiring import Wiring
from engine.objects import ObjectMeta
from engine.telemetry import Telemetry
from tests.scenarios.fake_server import status

PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


class Leases:
    """An API server that has one lease, or none."""

    def __init__(self) -> None:
        self.lease = None
        self.away = self.deaf = False
        self.forgets_to_answer = self.watches = 0
        self.asked = []

    async def request(self, method, path, *, body=None, **_):
        self.asked.append(method)
        await asyncio.sleep(0)
        if self.deaf:
            await asyncio.Event().wait()
        if self.away:
            raise Unreachable("connection refused")
        answer = self._answer(method, path, None if body is None else json.loads(body))
        if self.forgets_to_answer and method != "GET":
            self.forgets_to_answer -= 1
            raise Timeout("no answer in time")
        return answer

    async def stream(self, path, **_):
        self.watches += 1
        try:
            yield b""
            await asyncio.Event().wait()
        finally:
            self.watches -= 1

    def _answer(self, method, path, given):
        if method == "GET" and path == PATH:
            found = {"metadata": {"resourceVersion": "1"}, "items": []}
            return Response(200, {}, json.dumps(found).encode())
        if method == "POST":
            assert path == PATH
            if self.lease is not None:
                return Response(409, {}, status(409, "exists"))
            return Response(201, {}, self._put(given))
        assert path == f"{PATH}/berth"
        if self.lease is None:
            return Response(404, {}, status(404, "no"))
        if method == "PUT":
            if given["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
                return Response(409, {}, status(409, "old"))
            return Response(200, {}, self._put(given))
        return Response(200, {}, json.dumps(self.lease).encode())

    def _put(self, lease):
        before = int(self.lease["metadata"]["resourceVersion"]) if self.lease else 0
        version = {"resourceVersion": str(before + 1)}
        self.lease = {**lease, "metadata": {**lease["metadata"], **version}}
        return json.dumps(self.lease).encode()

    @property
    def spec(self):
        return self.lease["spec"]

    @property
    def holder(self):
        return self.spec.get("holderIdentity")


class Replica:
    """One candidate, on the world's clock."""

    def __init__(self, world, name, clock=None):
        self.world = world
        self.wiring = Wiring(clock or world.clock, Telemetry(), Random(1), self._sleep)
        self.elector = Elector(world.leases, LeaderElection(), name, self.wiring)
        self.gate, self.fence = self.elector.gate, self.elector.may_write
        self.frozen = False
        self.task = asyncio.get_running_loop().create_task(self.elector.run())

    async def _sleep(self, seconds):
        woken = asyncio.get_running_loop().create_future()
        self.world.asleep.append((self.world.clock.monotonic() + seconds, woken, self))
        await woken

    async def end(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class World:
    def __init__(self):
        self.clock = ManualClock()
        self.leases = Leases()
        self.asleep = []
        self.replicas = []

    def replica(self, name, clock=None):
        self.replicas.append(Replica(self, name, clock))
        return self.replicas[-1]

    async def settle(self):
        for _ in range(30):
            await asyncio.sleep(0)

    async def advance(self, seconds):
        """Wakes who sleeps in the order of their time; the frozen sleep on."""
        end = self.clock.monotonic() + seconds
        await self.settle()
        while due := [one for one in self.asleep if one[0] <= end and not one[2].frozen]:
            first = min(due, key=lambda one: one[0])
            self.asleep.remove(first)
            self.clock.advance(max(0.0, first[0] - self.clock.monotonic()))
            if not first[1].done():
                first[1].set_result(None)
            await self.settle()
        self.clock.advance(end - self.clock.monotonic())


def in_a_world(test):
    @functools.wraps(test)
    def run():
        async def main():
            world = World()
            try:
                await test(world)
            finally:
                for replica in world.replicas:
                    await replica.end()

        asyncio.run(main())

    del run.__wrapped__  # or pytest looks for a fixture `world`
    return run


def leads(replica):
    return replica.elector.leading.is_set() and replica.fence()


@in_a_world
async def test_the_first_one_leads_and_renews(world):
    one = world.replica("one")
    await world.advance(0)
    assert leads(one)
    assert world.leases.spec["leaseDurationSeconds"] == 15
    assert world.leases.spec["leaseTransitions"] == 0
    first = dict(world.leases.spec)
    await world.advance(60)
    assert leads(one)
    assert world.leases.holder == "one"
    assert world.leases.spec["acquireTime"] == first["acquireTime"]
    assert world.leases.spec["renewTime"] > first["renewTime"]
    assert world.leases.asked.count("PUT") == 30, "every two seconds"


def test_of_replicas_that_start_together_the_slower_one_has_nothing_to_warn_of(caplog):
    @in_a_world
    async def start(world):
        one, two = world.replica("one"), world.replica("two")
        await world.advance(3)
        assert world.leases.asked.count("POST") == 2
        assert [leads(one), leads(two)] == [True, False]

    start()
    assert [one.getMessage() for one in caplog.records if one.levelno > logging.INFO] == []


@in_a_world
async def test_the_other_takes_over_once_the_lease_runs_out_and_not_sooner(world):
    one = world.replica("one")
    await world.advance(0)
    two = world.replica("two")
    await world.advance(30)
    assert not two.elector.leading.is_set()
    await world.advance(1.9)  # the last renewal was just now
    one.frozen = True
    await world.advance(12)
    assert not two.elector.leading.is_set()
    await world.advance(15 + 2 * 2 - 12)
    assert leads(two)
    assert world.leases.spec["leaseTransitions"] == 1


class Wrong:
    """A clock whose hour is wrong by so much."""

    def __init__(self, clock, by):
        self._by = by
        self.monotonic = clock.monotonic
        self._right = clock.time

    def time(self):
        return self._right() + self._by


@pytest.mark.parametrize("by", [3 * 3600.0, -3 * 3600.0])
def test_clocks_that_are_hours_apart_neither_hurry_nor_hinder_a_follower(by):
    @in_a_world
    async def apart(world):
        one = world.replica("one")
        await world.advance(0)
        two = world.replica("two", Wrong(world.clock, by))
        await world.advance(31.9)
        assert leads(one)
        assert not two.elector.leading.is_set()
        one.frozen = True
        await world.advance(12)
        assert not two.elector.leading.is_set()
        await world.advance(15 + 2 * 2 - 12)
        assert leads(two)

    apart()


@in_a_world
async def test_two_never_may_write_at_a_time_and_a_frozen_one_never_again(world):
    one = world.replica("one")
    await world.advance(0)
    two = world.replica("two")
    await world.advance(3)
    one.frozen = True
    for _ in range(400):
        await world.advance(0.05)
        assert not (one.fence() and two.fence())
    assert leads(two)
    asked = len(world.leases.asked)
    one.frozen = False
    await world.advance(0)
    assert one.task.done()
    with pytest.raises(LeaseLost, match=r"kube-system/berth was not renewed for 10 s"):
        one.task.result()
    assert world.leases.holder == "two"
    assert len(world.leases.asked) == asked, "it did not even ask"


@in_a_world
async def test_a_leader_that_was_frozen_does_not_renew_even_where_nobody_took_over(world):
    one = world.replica("one")
    await world.advance(1)
    one.frozen = True
    await world.advance(11)
    one.frozen = False
    await world.advance(0)
    assert isinstance(one.task.exception(), LeaseLost)


@in_a_world
async def test_a_lease_that_was_got_too_late_is_renewed_before_anybody_leads(world):
    answered, late = world.leases.request, asyncio.Event()

    async def slow(method, path, **options):
        answer = await answered(method, path, **options)
        await late.wait()
        return answer

    world.leases.request = slow
    one = world.replica("one")
    await world.advance(11)
    late.set()
    await world.advance(0)
    assert world.leases.holder == "one"
    assert not one.elector.leading.is_set()
    await world.advance(5)
    assert leads(one)


@in_a_world
async def test_a_released_lease_is_taken_as_soon_as_the_watch_tells(world):
    one = world.replica("one")
    await world.advance(0)
    two = world.replica("two")
    await world.advance(1)
    one.task.cancel()
    await one.elector.release()
    assert not one.fence()
    assert "holderIdentity" not in world.leases.spec
    assert world.leases.spec["leaseDurationSeconds"] == 1
    two.elector.on_update(Lease(ObjectMeta()), Lease(ObjectMeta(), world.leases.spec))
    await world.advance(0)
    assert leads(two)
    assert world.leases.spec["leaseTransitions"] == 1


@in_a_world
async def test_a_release_finds_out_about_a_renewal_that_was_cut_short(world):
    one = world.replica("one")
    await world.advance(0)
    world.leases.lease["metadata"]["resourceVersion"] = "7"
    one.task.cancel()
    await one.elector.release()
    assert world.leases.holder is None


@in_a_world
async def test_events_are_written_while_the_lease_is_released(world):
    one = world.replica("one")
    await world.advance(0)
    one.task.cancel()
    world.leases.deaf = True
    releasing = asyncio.create_task(one.elector.release())
    await world.settle()
    assert not one.gate.fences(Priority.EVENT)
    assert one.gate.fences(Priority.BINDING)
    releasing.cancel()


@in_a_world
async def test_a_release_takes_nothing_from_a_successor(world):
    one = world.replica("one")
    await world.advance(0)
    taken = {**world.leases.spec, "holderIdentity": "two"}
    world.leases.lease = {"metadata": {"resourceVersion": "9"}, "spec": taken}
    one.task.cancel()
    await one.elector.release()
    assert world.leases.holder == "two"


@in_a_world
async def test_a_follower_releases_nothing(world):
    world.replica("one")
    await world.advance(0)
    two = world.replica("two")
    await world.advance(1)
    two.task.cancel()
    asked = len(world.leases.asked)
    await two.elector.release()
    assert len(world.leases.asked) == asked
    assert world.leases.holder == "one"


@in_a_world
async def test_a_server_that_is_away_for_a_while_costs_nothing(world):
    one = world.replica("one")
    await world.advance(1)
    world.leases.away = True
    await world.advance(8.5)
    assert leads(one)
    world.leases.away = False
    one.wiring.reach.lost(sure=True)  # as whoever asks for it does
    one.wiring.reach.found()
    await world.advance(8)
    assert leads(one)
    world.leases.away = True
    await world.advance(11)
    with pytest.raises(LeaseLost, match=r"was not renewed for 10 s: connection refused$"):
        one.task.result()
    assert not one.fence()


@in_a_world
async def test_a_last_try_without_time_does_not_hide_why_those_before_it_failed(world):
    one = world.replica("one")
    await world.advance(1)
    world.leases.away = True
    await world.advance(8)
    world.leases.deaf = True
    await world.advance(2)
    with pytest.raises(LeaseLost, match=r"was not renewed for 10 s: connection refused$"):
        one.task.result()


@in_a_world
async def test_the_fence_shuts_though_the_server_never_answers(world):
    one = world.replica("one")
    await world.advance(1)
    world.leases.deaf = True
    await world.advance(8.9)
    assert one.fence()
    await world.advance(0.1)
    assert not one.fence()


@in_a_world
async def test_an_answer_that_was_lost_is_found_out(world):
    world.leases.forgets_to_answer = 1
    one = world.replica("one")
    await world.advance(0)
    assert world.leases.holder == "one"
    assert not one.fence(), "nobody told us so"
    await world.advance(5)
    assert leads(one)
    world.leases.forgets_to_answer = 1
    await world.advance(6)
    assert leads(one)


@in_a_world
async def test_a_lease_that_another_took_ends_the_leader(world):
    one = world.replica("one")
    await world.advance(0)
    taken = {**world.leases.spec, "holderIdentity": "two"}
    world.leases.lease = {"metadata": {"resourceVersion": "9"}, "spec": taken}
    await world.advance(2)
    with pytest.raises(LeaseLost, match="taken by two"):
        one.task.result()


@in_a_world
async def test_a_lease_that_is_deleted_is_made_again(world):
    one = world.replica("one")
    await world.advance(0)
    world.leases.lease = None
    await world.advance(2)
    assert leads(one)
    assert world.leases.holder == "one"


@pytest.mark.parametrize(
    "spec",
    [
        None,
        {},
        {"holderIdentity": "", "leaseDurationSeconds": 15},
        {"holderIdentity": "one", "leaseDurationSeconds": 1},
        {"holderIdentity": "one"},
        {"holderIdentity": "two", "leaseDurationSeconds": 15},
    ],
)
def test_a_lease_that_is_deleted_or_edited_makes_no_second_one_that_writes(spec):
    @in_a_world
    async def edited(world):
        one = world.replica("one")
        await world.advance(0)
        two = world.replica("two")
        await world.advance(3)
        one.frozen = True
        lease = Lease(ObjectMeta(), spec or {})
        metadata = {"name": "berth", "resourceVersion": "99"}
        world.leases.lease = None if spec is None else {"metadata": metadata, "spec": spec}
        (two.elector.on_delete if spec is None else two.elector.on_add)(lease)
        for _ in range(400):
            await world.advance(0.05)
            assert not (one.fence() and two.fence())
        assert leads(two)

    edited()


@in_a_world
async def test_a_lease_that_is_emptied_is_waited_for_no_longer_than_our_own(world):
    spec = {"holderIdentity": "one", "leaseDurationSeconds": 3600}
    world.leases.lease = {"metadata": {"name": "berth", "resourceVersion": "1"}, "spec": spec}
    two = world.replica("two")
    await world.advance(1)
    spec["holderIdentity"] = ""
    await world.advance(15 + 2 * 2)
    assert leads(two)


@in_a_world
async def test_what_others_wrote_into_the_lease_stays(world):
    world.leases.lease = {
        "metadata": {"name": "berth", "resourceVersion": "1", "labels": {"team": "a"}},
        "spec": {"strategy": "x"},
    }
    one = world.replica("one")
    await world.advance(0)
    assert leads(one)
    assert world.leases.lease["metadata"]["labels"] == {"team": "a"}
    assert world.leases.spec["strategy"] == "x"


@in_a_world
async def test_a_watch_that_lags_takes_nothing_from_the_leader(world):
    one = world.replica("one")
    await world.advance(0)
    late = Lease(ObjectMeta(), {"holderIdentity": "before", "leaseDurationSeconds": 15})
    one.elector.on_update(late, late)
    await world.advance(20)
    assert leads(one)


@in_a_world
async def test_a_lease_that_is_not_json_is_no_lease(world):
    world.leases._answer = lambda *_: Response(200, {}, b"{")
    one = world.replica("one")
    await world.advance(10)
    assert not one.elector.leading.is_set()
    assert not one.task.done()


@in_a_world
async def test_who_leads_does_not_watch_the_lease(world):
    other, mine = world.replica("a"), world.replica("b")
    await world.advance(1.0)
    assert other.elector.leading.is_set()
    await mine.end()
    mine.elector.start(asyncio.get_running_loop().create_task)
    await world.advance(1.0)
    assert world.leases.watches == 1, "it waits for its release"
    await other.end()
    await other.elector.release()
    await world.advance(6.0)
    assert mine.elector.leading.is_set()
    assert world.leases.watches == 0
    await mine.elector.resign()
