"""What is in force when a process starts: the last good texts, as far as they can be had."""

from __future__ import annotations

import asyncio
import json
import zlib

import pytest

from engine.clock import ManualClock
from engine.kube.errors import Unreachable, status_error
from engine.objects import ConfigMap, ObjectMeta
from engine.policy import lastgood
from engine.policy.guard import Load
from engine.policy.reloader import Kept, digest
from tests.engine.policy.builders import in_force, prepared

TITLE = "ConfigMap berth/policies"
GOOD, BROKEN = {"own.policy": "filter: node.label a\n"}, {"own.policy": "filter: node.lable a\n"}
OTHER = {"own.policy": "filter: node.label other\n"}
KEPT = lastgood.pack({TITLE: Kept(GOOD)})


class Keeper:
    """What is kept of policies, or why it cannot be had; remembers what it is told."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.not_kept = ""
        self.kept = []
        self.told = {}

    async def load(self):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def keep(self, data):
        self.kept.append(lastgood.unpack(data()))

    def tell(self, text):
        self.told = json.loads(text())


class World:
    """What is in force in a process, fed by hand; each bundle is prepared in so many steps."""

    def __init__(self, keeper=None, *, steps=0, leads=lambda: True, missing=(), **policies):
        self.clock, self.waiting, self.missing = ManualClock(), 0, missing
        self.put, self.changed, self.begun, self.slept, self.slices = [], [], [], [], [0]
        self.length = steps
        self.in_force = in_force(
            policies or {"configMap": "berth/policies"},
            clock=self.clock,
            load=lambda **_: Load(self.waiting, 0),
            prepare=prepared(self._put, self._steps),
            missing=lambda *_: self.missing,
        )
        self.in_force.connect(None, keeper, leads)
        self.sources = {"berth" in of.path: one for of, one in self.in_force.configured.watched}

    def _steps(self, bundle, _changed):
        self.begun.append(dict(bundle.files))
        for _ in range(self.length):
            self.slices[-1] += 1
            yield

    def _put(self, bundle, changed):
        self.put.append(dict(bundle.files))
        self.changed.append(changed)

    async def sleep(self, seconds):
        self.slept.append(seconds)

    def told(self, files, namespace="berth", name="policies"):
        meta = ObjectMeta(name=name, namespace=namespace, uid="u")
        self.sources[namespace == "berth"].on_add(ConfigMap(meta, data=files))

    def offer(self, files):
        self.told(files)
        self.work()

    def step(self):
        self.slices.append(0)
        return sum(one.step(self.clock.monotonic()) for one in self.in_force.background) > 0

    def work(self):
        for _ in range(3):
            while self.step():
                pass
            self.clock.advance(1.0)


def started(keeper, *edits, missing=()):
    """What is in force with what was kept, and after these edits."""
    world = World(keeper, missing=missing)
    world.offer(edits[0])
    asyncio.run(world.in_force.restore(world.sleep))
    world.work()
    for files in edits[1:]:
        world.offer(files)
    return world


@pytest.mark.parametrize(
    "before", [Unreachable("no route"), status_error(503, b""), status_error(404, b"a gateway's")]
)
def test_the_last_good_texts_are_waited_for_while_the_server_does_not_answer(before):
    keeper = Keeper(before, before, KEPT)
    world = started(keeper, BROKEN)
    assert (world.put, len(world.slept)) == ([GOOD], 2)
    assert world.in_force.stale() == {(TITLE,): 1.0}
    assert keeper.kept[-1][TITLE].files == GOOD


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (status_error(403, b""), "Kept policies cannot be read"),
        (b"no bytes of ours", "Kept policies cannot be used"),
        (zlib.compress(b'{"format": 2, "sources": {}}'), "its format is 2"),
        (KEPT[:-4], "it is truncated or too large"),
        (None, ""),
    ],
)
def test_without_them_a_good_source_is_in_force_and_a_broken_one_is_not(answer, said, caplog):
    world = started(Keeper(answer), GOOD)
    assert (world.put, world.slept) == ([GOOD], [])
    assert said in caplog.text
    world = started(Keeper(answer), BROKEN)
    assert world.put == []
    assert "no pod is scheduled: " in world.in_force.not_ready


def test_what_the_leader_is_refused_is_in_its_status_until_it_is_not():
    keeper = Keeper(None)
    made = started(keeper, GOOD).in_force
    assert keeper.told["troubles"] == []
    made.tell_troubles(["nodes: 403"])
    assert keeper.told["troubles"] == ["nodes: 403"]
    made.tell_troubles([])
    assert keeper.told["troubles"] == []


@pytest.mark.parametrize("edits", [(GOOD,), (BROKEN, GOOD)])
def test_what_is_good_and_waits_for_a_list_is_told_with_what_it_waits_for(edits):
    keeper = Keeper(None)
    world = started(keeper, *edits, missing=("deployments.apps (403)",))
    assert world.in_force.stale() == {(TITLE,): 1.0}
    [source] = keeper.told["sources"]
    assert source["state"] == "Waiting"
    assert source["why"] == "waits for deployments.apps (403)"
    assert keeper.told["awaits"] == ["deployments.apps (403)"]


def test_a_new_leader_reads_what_was_taken_back_before_it_writes_and_only_a_leader_takes_back():
    bad, leads, keeper = {"own.policy": "filter: node.label b\n"}, [], Keeper(KEPT)
    guard = {"pending": 5}
    world = World(keeper, leads=lambda: bool(leads), configMap="berth/policies", guard=guard)
    world.told(GOOD)
    asyncio.run(world.in_force.restore(world.sleep))
    world.work()
    world.offer(bad)
    world.waiting = 9
    world.work()
    assert world.put == [GOOD, bad], "pods that wait for a leader say nothing about rules"
    leads.append(True)
    world.in_force._write_down()
    assert keeper.kept == []
    keeper.answers.append(lastgood.pack({TITLE: Kept(GOOD, digest(bad))}))
    asyncio.run(world.in_force.lead(world.sleep))
    world.work()
    assert world.put[2:] == [GOOD]
    assert keeper.kept[-1] == {TITLE: Kept(GOOD, digest(bad))}
    world.offer({"own.policy": "filter: node.label c\n"})
    world.waiting = 20
    world.work()
    assert world.put[4:] == [GOOD]
    everything = "who waits for whatever is tried again"
    assert world.changed == [None, {"own"}, {"own"}, {"own"}, None], everything


def test_a_follower_keeps_no_bundles_of_before_and_nothing_to_tell_of_what_is_gone():
    world = World(leads=lambda: False, sources=[{"selector": "a=b", "namespace": "berth"}])
    [handler] = world.sources.values()
    handler.on_synced()
    for number in range(3):
        config_map = ConfigMap(ObjectMeta(name=f"m{number}", namespace="berth"), data=GOOD)
        handler.on_add(config_map)
        world.work()
        assert list(world.in_force._owners._untold) == [f"ConfigMap berth/m{number}"]
        handler.on_delete(config_map)
    assert not world.in_force.reloader._before


@pytest.mark.parametrize(
    ("text", "stays"), [("filter: node.label a\n", 1), ("score: nothing\n", 0)]
)
def test_of_the_last_that_is_selected_rules_stay_and_nothing_where_it_had_none(text, stays, caplog):
    caplog.set_level("INFO")
    world = World(sources=[{"selector": "policies=yes", "namespace": "berth"}])
    [selected] = world.sources.values()
    one, two = (
        ConfigMap(ObjectMeta(name=name, namespace="berth", uid=name), data={f"{name}.policy": of})
        for name, of in (("one", text), ("two", "filter: node.label b\n"))
    )
    for happens, to in (
        (lambda _: selected.on_synced(), one),
        (selected.on_add, one),
        (selected.on_add, two),
        (selected.on_delete, two),
        (selected.on_delete, one),
    ):
        happens(to)
        world.work()
    assert len(world.in_force.sources) == stays
    assert caplog.messages[0] == "No ConfigMap matches yet: policies=yes in berth"
    named = f'source="{"ConfigMap berth/one, " * stays}ConfigMap berth/two"'
    assert sum(named in line for line in caplog.messages) == 1


# ---- how rules come into force -------------------------------------------------------------------


def test_rules_are_prepared_in_steps_before_they_are_in_force_and_newer_ones_take_their_place():
    world, newer = World(steps=3), {"own.policy": "filter: node.label c\n"}
    world.told(GOOD)
    while not world.begun:
        assert world.step(), "there is more to do"
    assert world.step()
    world.told(newer)
    while newer not in world.begun:
        assert world.step()
    assert world.put == []
    assert sum(world.step() for _ in range(9)) < 9, "it ends"
    assert world.put == [newer]


def test_what_rules_read_and_is_gone_again_while_they_are_prepared_is_waited_for():
    world = World(steps=3)
    world.told(GOOD)
    while not world.begun:
        world.step()
    world.missing = ("a list",)
    world.work()
    assert (world.put, world.in_force.reloader.awaited) == ([], ("a list",))
    world.missing = ()
    world.work()
    assert world.put == [GOOD]


def test_what_the_guard_brings_back_is_prepared_in_steps_too_and_it_looks_again_after_that():
    guard, bad = {"pending": 5}, {"own.policy": "filter: node.label b\n"}
    world = World(configMap="berth/policies", guard=guard)
    for files in (GOOD, OTHER, bad):
        world.offer(files)
    world.length, world.slices, world.waiting = 100, [0], 9
    world.clock.advance(1.0)
    for _ in range(50):
        world.step()
        world.clock.advance(1.0)
    assert (len(world.put), world.begun[3:]) == (3, [OTHER])
    assert OTHER in [one.files for one in world.in_force.reloader.may_return], "it is kept for"
    world.missing = ("a list that it had",)
    assert world.in_force.reloader.refusal_of(world.in_force.sources[0]) is None
    world.waiting = 0
    world.work()
    assert (world.put[3:], world.changed[3:], max(world.slices)) == ([OTHER], [None], 1)
    assert "pending pods rose" in world.in_force.status()["sources"][0]["why"]


def test_an_edit_that_comes_while_the_guard_goes_back_is_in_force_instead_and_nothing_is_untold():
    guard, bad = {"pending": 5}, {"own.policy": "filter: node.label b\n"}
    told = []
    world = World(configMap="berth/policies", guard=guard)
    world.in_force._callbacks.refused.append(lambda refusal: told.append(refusal.text))
    for files in (GOOD, bad):
        world.offer(files)
    world.length, world.waiting = 100, 9
    world.clock.advance(1.0)
    while world.begun[2:] != [GOOD]:
        world.step()
    world.waiting = 0
    world.told(OTHER)
    world.work()
    assert world.put[2:] == [OTHER]
    [why] = told
    assert "pending pods rose from 0 to 9" in why
    assert world.in_force.stale() == {(TITLE,): 0.0}


def test_what_comes_back_does_not_wait_for_an_edit_that_waits_for_a_list_nor_go_with_it():
    guard, bad = {"pending": 5}, {"own.policy": "filter: node.label b\n"}
    world = World(steps=100, configMap="berth/policies", guard=guard)
    for files in (GOOD, bad):
        world.offer(files)
    world.waiting, world.missing = 9, ("a list",)
    world.clock.advance(1.0)
    while world.begun[2:] != [GOOD]:
        world.step()
    world.waiting = 0
    world.told(OTHER)
    world.told(BROKEN)
    world.told(OTHER)
    world.work()
    assert world.put[2:] == [GOOD]
    assert world.in_force.reloader.awaited == ("a list",)


def test_a_source_that_leaves_while_the_guard_goes_back_has_no_rules_in_the_end():
    selected = {"selector": "a=b", "namespace": "berth"}
    world = World(steps=100, sources=[selected], guard={"pending": 5})
    [handler] = world.sources.values()
    handler.on_synced()
    for name, text in (("one", "a"), ("two", "a"), ("one", "b")):
        world.told({f"{name}.policy": f"filter: node.label {text}\n"}, name=name)
        world.work()
    world.waiting, before = 9, len(world.begun)
    world.clock.advance(1.0)
    while len(world.begun) == before:
        world.step()
    world.waiting = 0
    for _ in range(99):
        world.step()
    handler.on_delete(ConfigMap(ObjectMeta(name="two", namespace="berth")))
    world.work()
    assert world.put[-1] == {"berth/one/one.policy": "filter: node.label a\n"}


def with_namespaces(steps):
    tenants = {"configMap": "mine", "namespaces": ["*"]}
    world = World(steps=steps, configMap="berth/policies", tenants=tenants)
    world.told(GOOD)
    for one in world.sources.values():
        one.on_synced()
    world.work()
    return world


def test_rules_of_a_namespace_that_come_while_the_owners_are_prepared_wait_and_come_next():
    world = with_namespaces(steps=100)
    for namespace in "abc":
        before = len(world.put)
        world.told({"own.policy": f"filter: node.label x{namespace}\n"})
        while len(world.begun) == before:
            world.step()
        world.told({"own.policy": "filter: node.label y\n"}, namespace, "mine")
        world.work()
        assert len(world.put) == before + 2
    own = "berth/policies/own.policy"
    assert sorted(world.put[-1]) == sorted([own, *(f"{one}/mine/own.policy" for one in "abc")])
    assert max(world.slices) <= 1, "one thing is prepared at a time"


def test_an_edit_of_the_owner_takes_the_place_of_namespaces_rules_that_are_prepared_with_them():
    world = with_namespaces(steps=100)
    world.told(GOOD, "a", "mine")
    while len(world.begun) == 1:
        world.step()
    newer = {"own.policy": "filter: node.label c\n"}
    world.told(newer)
    world.work()
    assert [len(one) for one in world.put] == [1, 2]
    assert world.put[1]["berth/policies/own.policy"] == newer["own.policy"]
    assert (len(world.begun), max(world.slices)) == (3, 1)
