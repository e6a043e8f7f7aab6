"""What is in force when a process starts: the last good texts, as far as they can be had."""

from __future__ import annotations

import asyncio
import json
import zlib

import pytest

from engine.clock import ManualClock
from engine.configuration.berth import BerthDocument
from engine.configuration.settings import Settings
from engine.inforce import Callbacks, InForce
from engine.kube.errors import Unreachable, status_error
from engine.objects import ConfigMap, ObjectMeta
from engine.plugins.profiles import make_profiles
from engine.policy import lastgood
from engine.policy.guard import Load
from engine.policy.reloader import Kept, digest
from engine.telemetry import Telemetry

TITLE = "ConfigMap berth/policies"
GOOD, BROKEN = {"own.policy": "filter: node.label a\n"}, {"own.policy": "filter: node.lable a\n"}
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


def started(keeper, *edits, missing=()):
    """The names of the policies in force, and how often somebody waited for the server."""
    bundles, slept, clock = [], [], ManualClock()
    in_force = InForce(
        Settings(berth=BerthDocument.model_validate({"policies": {"configMap": "berth/policies"}})),
        Callbacks(lambda bundle, _: bundles.append(bundle), lambda *_: missing, lambda: None),
        make_profiles(Settings()),
        clock=clock,
        telemetry=Telemetry(),
        there=lambda: (3, 10),
        load=lambda **_: Load(0, 0),
    )
    in_force.connect(None, keeper, lambda: True)

    async def sleep(seconds):
        slept.append(seconds)

    def work():
        for _ in range(3):
            while sum(one.step(1e9) for one in in_force.background):
                pass
            clock.advance(1.0)

    [(_, source)] = in_force.configured.watched
    meta = ObjectMeta(name="policies", namespace="berth", uid="u")
    source.on_add(ConfigMap(meta, data=edits[0]))
    work()
    asyncio.run(in_force.restore(sleep))
    work()
    for files in edits[1:]:
        source.on_add(ConfigMap(meta, data=files))
        work()
    return [plan.name for bundle in bundles for plan in bundle.plans], len(slept), in_force


@pytest.mark.parametrize(
    "before", [Unreachable("no route"), status_error(503, b""), status_error(404, b"a gateway's")]
)
def test_the_last_good_texts_are_waited_for_while_the_server_does_not_answer(before):
    keeper = Keeper(before, before, KEPT)
    names, slept, in_force = started(keeper, BROKEN)
    assert (names, slept) == (["own"], 2)
    assert in_force.stale() == {(TITLE,): 1.0}
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
    names, slept, _ = started(Keeper(answer), GOOD)
    assert (names, slept) == (["own"], 0)
    assert said in caplog.text
    names, _, in_force = started(Keeper(answer), BROKEN)
    assert names == []
    assert "no pod is scheduled: " in in_force.not_ready


def test_what_the_leader_is_refused_is_in_its_status_until_it_is_not():
    keeper = Keeper(None)
    _, _, in_force = started(keeper, GOOD)
    assert keeper.told["troubles"] == []
    in_force.tell_troubles(["nodes: 403"])
    assert keeper.told["troubles"] == ["nodes: 403"]
    in_force.tell_troubles([])
    assert keeper.told["troubles"] == []


@pytest.mark.parametrize("edits", [(GOOD,), (BROKEN, GOOD)])
def test_what_is_good_and_waits_for_a_list_is_told_with_what_it_waits_for(edits):
    keeper = Keeper(None)
    _, _, in_force = started(keeper, *edits, missing=("deployments.apps (403)",))
    assert in_force.stale() == {(TITLE,): 1.0}
    [source] = keeper.told["sources"]
    assert source["state"] == "Waiting"
    assert source["why"] == "waits for deployments.apps (403)"
    assert keeper.told["awaits"] == ["deployments.apps (403)"]


def test_a_new_leader_reads_what_was_taken_back_before_it_writes_and_only_a_leader_takes_back():
    bad, leads, waiting = {"own.policy": "filter: node.label b\n"}, [], [0]
    keeper, clock, put = Keeper(KEPT), ManualClock(), []
    policies = {"configMap": "berth/policies", "guard": {"pending": 5}}
    in_force = InForce(
        Settings(berth=BerthDocument.model_validate({"policies": policies})),
        Callbacks(lambda _, changed: put.append(changed), lambda *_: (), lambda: None),
        make_profiles(Settings()),
        clock=clock,
        telemetry=Telemetry(),
        there=lambda: (3, 10),
        load=lambda **_: Load(waiting[0], 0),
    )
    in_force.connect(None, keeper, lambda: bool(leads))

    def work():
        for _ in range(2):
            while sum(one.step(1e9) for one in in_force.background):
                pass
            clock.advance(1.0)

    def config_map(files):
        return ConfigMap(ObjectMeta(name="policies", namespace="berth", uid="u"), data=files)

    [(_, source)] = in_force.configured.watched
    source.on_add(config_map(GOOD))
    asyncio.run(in_force.restore(asyncio.sleep))
    work()
    source.on_update(config_map(GOOD), config_map(bad))
    work()
    waiting[0] = 9
    work()
    assert in_force.bundle.files == bad, "pods that wait for a leader say nothing about rules"
    leads.append(True)
    in_force._write_down()
    assert keeper.kept == []
    keeper.answers.append(lastgood.pack({TITLE: Kept(GOOD, digest(bad))}))
    asyncio.run(in_force.lead(asyncio.sleep))
    work()
    assert in_force.bundle.files == GOOD
    assert keeper.kept[-1] == {TITLE: Kept(GOOD, digest(bad))}
    source.on_update(config_map(bad), config_map({"own.policy": "filter: node.label c\n"}))
    work()
    waiting[0] = 20
    work()
    assert in_force.bundle.files == GOOD
    assert put == [None, {"own"}, {"own"}, {"own"}, None], "who waits for whatever is tried again"


def test_a_follower_keeps_no_bundles_of_before_and_nothing_to_tell_of_what_is_gone():
    source = {"selector": "a=b", "namespace": "berth"}
    in_force = InForce(
        Settings(berth=BerthDocument.model_validate({"policies": {"sources": [source]}})),
        Callbacks(),
        make_profiles(Settings()),
        clock=ManualClock(),
        telemetry=Telemetry(),
        there=lambda: (3, 10),
    )
    in_force.connect(None, None, lambda: False)
    [(_, handler)] = in_force.configured.watched
    handler.on_synced()
    for number in range(3):
        config_map = ConfigMap(ObjectMeta(name=f"m{number}", namespace="berth"), data=GOOD)
        handler.on_add(config_map)
        while any(one.step(1e9) for one in in_force.background):
            pass
        assert list(in_force._owners._untold) == [f"ConfigMap berth/m{number}"]
        handler.on_delete(config_map)
    assert not in_force.reloader._before


@pytest.mark.parametrize(
    ("text", "stays"), [("filter: node.label a\n", 1), ("score: nothing\n", 0)]
)
def test_of_the_last_that_is_selected_rules_stay_and_nothing_where_it_had_none(text, stays, caplog):
    caplog.set_level("INFO")
    sources = [{"selector": "policies=yes", "namespace": "berth"}]
    document = BerthDocument.model_validate({"policies": {"sources": sources}})
    in_force = InForce(
        Settings(berth=document),
        Callbacks(),
        make_profiles(Settings()),
        clock=ManualClock(),
        telemetry=Telemetry(),
        there=lambda: (3, 10),
    )
    in_force.connect(None, None, lambda: True)
    [(_, selected)] = in_force.configured.watched
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
        while sum(each.step(1e9) for each in in_force.background):
            pass
    assert len(in_force.sources) == stays
    assert caplog.messages[0] == "No ConfigMap matches yet: policies=yes in berth"
    named = f'source="{"ConfigMap berth/one, " * stays}ConfigMap berth/two"'
    assert sum(named in line for line in caplog.messages) == 1


def test_rules_are_prepared_in_steps_before_they_are_in_force_and_newer_ones_take_their_place():
    put, begun, clock = [], [], ManualClock()

    def prepare(bundle, changed):
        if bundle.files not in begun:
            begun.append(bundle.files)
            for _ in range(3):
                yield

    in_force = InForce(
        Settings(berth=BerthDocument.model_validate({"policies": {"configMap": "berth/policies"}})),
        Callbacks(lambda bundle, _: put.append(bundle.files), prepare=prepare),
        make_profiles(Settings()),
        clock=clock,
        telemetry=Telemetry(),
        there=lambda: (3, 10),
    )
    in_force.connect(None, None, lambda: True)
    [(_, source)] = in_force.configured.watched
    meta = ObjectMeta(name="policies", namespace="berth", uid="u")

    def step():
        return any(one.step(clock.monotonic()) for one in in_force.background)

    source.on_add(ConfigMap(meta, data=GOOD))
    while not begun:
        assert step(), "there is more to do"
    assert step()
    newer = {"own.policy": "filter: node.label c\n"}
    source.on_add(ConfigMap(meta, data=newer))
    while newer not in begun:
        assert step()
    assert put == []
    assert sum(step() for _ in range(9)) < 9, "it ends"
    assert put == [newer]


def test_what_rules_read_and_is_gone_again_while_they_are_prepared_is_waited_for():
    put, missing, clock = [], [()], ManualClock()

    def prepare(_bundle, _changed):
        for _ in range(3):
            missing[0] = ("a list",) if len(asked) == 2 else ()
            yield

    asked = []
    in_force = InForce(
        Settings(berth=BerthDocument.model_validate({"policies": {"configMap": "berth/policies"}})),
        Callbacks(
            lambda bundle, _: put.append(bundle.files),
            lambda *_: asked.append(missing[0]) or missing[0],
            prepare=prepare,
        ),
        make_profiles(Settings()),
        clock=clock,
        telemetry=Telemetry(),
        there=lambda: (3, 10),
    )
    in_force.connect(None, None, lambda: True)
    [(_, source)] = in_force.configured.watched
    meta = ObjectMeta(name="policies", namespace="berth", uid="u")
    source.on_add(ConfigMap(meta, data=GOOD))
    while in_force.reloader.step(1e9):
        pass
    assert (put, in_force.reloader.awaited) == ([], ("a list",))
    missing[0] = ()
    while in_force.reloader.step(1e9):
        pass
    assert put == [GOOD]


class Prepared:
    """Rules of an owner and of namespaces, each prepared in a hundred steps before they are put."""

    def __init__(self):
        self.put, self.steps, self.last = [], [0], ""
        self.clock = ManualClock()
        tenants = {"configMap": "mine", "namespaces": ["*"]}
        policies = {"configMap": "berth/policies", "tenants": tenants}
        self.in_force = InForce(
            Settings(berth=BerthDocument.model_validate({"policies": policies})),
            Callbacks(
                lambda bundle, _: self.put.append(sorted(bundle.files)), prepare=self.prepare
            ),
            make_profiles(Settings()),
            clock=self.clock,
            telemetry=Telemetry(),
            there=lambda: (3, 10),
        )
        self.in_force.connect(None, None, lambda: True)
        self.sources = {"berth" in of.path: one for of, one in self.in_force.configured.watched}

    def prepare(self, bundle, _):
        if bundle.hash != self.last:  # what was prepared last is ready
            for _ in range(100):
                self.steps[-1] += 1
                yield
            self.last = bundle.hash

    def told(self, namespace, name, text):
        meta = ObjectMeta(name=name, namespace=namespace, uid=namespace)
        self.sources[name == "policies"].on_add(ConfigMap(meta, data={"own.policy": text}))

    def work(self, most=500):
        self.clock.advance(5.0)
        for _ in range(most):
            self.steps.append(0)
            for one in self.in_force.background:
                one.step(self.clock.monotonic())


def test_rules_of_a_namespace_that_come_while_the_owners_are_prepared_wait_and_come_next():
    made = Prepared()
    made.told("berth", "policies", "filter: node.label a\n")
    for one in made.sources.values():
        one.on_synced()
    made.work()
    assert made.put == [["berth/policies/own.policy"]]
    for namespace in "abc":
        before = len(made.put)
        made.told("berth", "policies", f"filter: node.label x{namespace}\n")
        for _ in range(100):
            if not made.in_force.reloader._preparing:
                made.work(1)
        made.told(namespace, "mine", "filter: node.label y\n")
        made.work()
        made.work()
        assert len(made.put) == before + 2
    assert made.put[-1] == [
        "a/mine/own.policy",
        "b/mine/own.policy",
        *made.put[0],
        "c/mine/own.policy",
    ]
    assert max(made.steps) <= 2
