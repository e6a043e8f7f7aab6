"""Policies of namespaces: for their own pods alone, whatever they are, and each by itself."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import sys
from datetime import UTC

import pytest

from engine import inforce
from engine.clock import ManualClock
from engine.configuration.berth import BerthDocument
from engine.configuration.settings import Settings
from engine.framework.runtime import Frameworks
from engine.objects import ConfigMap, ObjectMeta
from engine.plugins.profiles import make_profiles
from engine.policy import lastgood
from engine.policy.bundle import Bundle, Needs, Refusal, compile_at_once, compile_settings
from engine.policy.chain import frameworks_of
from engine.policy.reloader import Kept
from engine.policy.world import Worlds
from tests.engine.policy.builders import compiler, in_force, prepared

OWN = "score: node.cpu.free / node.cpu.allocatable * 100\n"
LABEL = "filter: node.label test=test\n"
BROKEN = "filter: node.lable test=test\n"
TENANTS = {"configMap": "berth-policies", "namespaces": ["team-*", "alone"], "policies": 2}
A, B = "ConfigMap team-a/berth-policies", "ConfigMap team-b/berth-policies"


def policies_of(**changed):
    return {"configMap": "berth-system/policies", "tenants": {**TENANTS, **changed}}


def document(**changed):
    return BerthDocument.model_validate({"policies": policies_of(**changed)})


def config_map(namespace, files, name="berth-policies"):
    return ConfigMap(ObjectMeta(name=name, namespace=namespace, uid=f"u-{namespace}"), data=files)


class World:
    """What is in force in a process, fed by hand."""

    def __init__(self, keeper=None, **changed):
        self.clock = ManualClock()
        self.put, self.lacks, self.events = [], {}, []
        self.steps = lambda *_: ()
        self.in_force = in_force(
            policies_of(**changed),
            clock=self.clock,
            prepare=prepared(self._put, lambda *what: self.steps(*what)),
            missing=lambda _, asker: self.lacks.get(asker, ()),
        )
        self.in_force.connect(self, keeper, lambda: True)
        if keeper is not None:
            asyncio.run(self.in_force.restore(asyncio.sleep))
        (_, self.own), (self.resource, self.tenants) = self.in_force.configured.watched
        self.seen = {}

    def _put(self, bundle, changed):
        self.put.append((sorted(plan.name for plan in bundle.plans), changed))

    def emit(self, event):
        self.events.append((event.namespace, event.reason, event.note))

    def own_is(self, files):
        self.own.on_add(config_map("berth-system", files, "policies"))
        return self.worked()

    def edit(self, namespace, files):
        new = config_map(namespace, files)
        old, self.seen[namespace] = self.seen.get(namespace), new
        if files is None:
            self.tenants.on_delete(new)
        elif old is None:
            self.tenants.on_add(new)
        else:
            self.tenants.on_update(old, new)
        return self.worked()

    def step(self, seconds=0.0):
        for work in self.in_force.background:
            work.step(self.clock.monotonic() + seconds)

    def worked(self):
        for _ in range(3):
            while sum(work.step(1e9) for work in self.in_force.background):
                pass
            self.clock.advance(1.0)
        put, self.put = self.put, []
        return put

    def told(self):
        told, self.events = self.events, []
        return [(namespace, reason) for namespace, reason, _ in told]


def started(tenants=(), **changed):
    world = World(**changed)
    world.own_is({"own.policy": OWN})
    for namespace, files in dict(tenants).items():
        world.seen[namespace] = config_map(namespace, files)
        world.tenants.on_add(world.seen[namespace])
    assert world.put == []
    world.tenants.on_synced()
    world.first = world.worked()
    return world


# ---- each by itself ------------------------------------------------------------------------------


def test_nothing_is_in_force_before_the_rules_of_namespaces_are_known():
    world = started({"team-a": {"a.policy": LABEL}, "team-b": {"b.policy": BROKEN}})
    assert [names for names, _ in world.first] == [["own", "team-a/a"]]
    assert set(world.told()) == {
        ("berth-system", "PoliciesInForce"),
        ("team-a", "PoliciesInForce"),
        ("team-b", "PoliciesRefused"),
    }


def test_a_broken_edit_of_one_namespace_stays_with_it():
    world = started({"team-a": {"a.policy": LABEL}, "team-b": {"b.policy": LABEL}})
    world.told()
    assert world.edit("team-a", {"a.policy": BROKEN}) == []
    [(namespace, reason, note)] = world.events
    assert (namespace, reason) == ("team-a", "PoliciesRefused")
    assert "team-a/berth-policies/a.policy:1:9" in note
    assert "the rules of namespace team-a stay as they were" in note
    assert world.in_force.not_ready == ""
    assert world.in_force.stale()[A,] == 1.0
    changed = ["own", "team-a/a", "team-b/b"], frozenset({"team-b/b"})
    assert world.edit("team-b", {"b.policy": LABEL + "# more\n"}) == [changed]


def test_a_change_of_the_owner_keeps_the_rules_of_namespaces():
    world = started({"team-a": {"a.policy": LABEL}})
    own = config_map("berth-system", {"other.policy": OWN}, "policies")
    world.own.on_add(own)
    assert world.worked() == [(["other", "team-a/a"], frozenset({"own", "other"}))]


def test_the_rules_of_a_namespace_go_with_its_config_map_and_stay_when_it_is_emptied():
    world = started({"team-a": {"a.policy": LABEL}})
    assert world.edit("team-a", {}) == []
    assert world.edit("team-a", None) == [(["own"], frozenset({"team-a/a"}))]
    assert world.in_force.sources == world.in_force.reloader.sources


class Keeper:
    """What was kept before the start."""

    def __init__(self, kept):
        self.data = lastgood.pack(kept)

    async def load(self):
        return self.data

    def keep(self, data):
        self.data = data()

    def tell(self, status):
        pass


def test_a_namespace_made_anew_has_nothing_of_the_one_before():
    keeper = Keeper({A: Kept({"a.policy": LABEL})})
    world = started({"team-a": {"a.policy": BROKEN}}, keeper=keeper)
    assert [names for names, _ in world.first] == [["own", "team-a/a"]], "as before the start"
    assert [names for names, _ in world.edit("team-a", None)] == [["own"]]
    world.seen.clear()
    assert world.edit("team-a", {"a.policy": BROKEN}) == []


def test_the_log_of_an_edit_does_not_name_the_policies_of_every_namespace(caplog):
    """There may be thousands of them, and an edit every half second."""
    caplog.set_level(logging.INFO)
    world = started({f"team-{n}": {"x.policy": LABEL} for n in range(3)})
    caplog.clear()
    world.edit("team-1", {"y.policy": LABEL})
    (told,) = [one for one in caplog.messages if one.startswith("Policies in force")]
    assert 'source="ConfigMap team-1/berth-policies"' in told
    assert told.endswith('policies="own,team-1/y"')


def calls_of_an_edit(namespaces):
    """How many functions are called until an edit of one of so many is in force."""
    world = started({f"team-{n}": {"x.policy": LABEL} for n in range(namespaces)})
    worlds, profiles, called = Worlds(UTC, ()), make_profiles(Settings()), []
    frameworks_of(profiles, world.in_force.bundle, worlds=worlds)
    before = worlds.plugins
    sys.setprofile(lambda _frame, event, _: called.append(1) if event == "call" else None)
    try:
        world.edit("team-0", {"x.policy": OWN})
        assert world.in_force.bundle.needs == Needs()
        frameworks_of(profiles, world.in_force.bundle, worlds=worlds)
    finally:
        sys.setprofile(None)
    assert [k for k, v in worlds.plugins.items() if v is not before[k]] == ["team-0/x"]
    return len(called)


def test_an_edit_of_one_namespace_costs_little_for_each_of_the_others():
    assert calls_of_an_edit(60) - calls_of_an_edit(20) < 40 * 100, "a hundred calls each"


def test_putting_together_putting_in_force_and_telling_are_a_step_each(monkeypatch):
    did = []
    for of, name in ((inforce.swap, "together"), (World, "_put"), (World, "emit")):
        ask = getattr(of, name)
        told = lambda *what, ask=ask, name=name: (did.append(name), ask(*what))[1]  # noqa: E731
        monkeypatch.setattr(of, name, told)
    world = started({"team-a": {"a.policy": LABEL}})
    world.tenants.on_update(world.seen["team-a"], config_map("team-a", {"a.policy": OWN}))
    steps = []
    for _ in range(200):
        did.clear()
        world.step()
        steps.append(did[:])
    assert [one for one in steps if one] == [["together"], ["_put"], ["emit"]]


def test_what_is_prepared_for_a_namespace_is_given_up_when_the_owners_rules_came_with_it():
    world, given_up = started({"team-a": {"a.policy": LABEL}}), []

    def prepare(bundle, _changed):
        try:
            for _ in range(9):
                yield
        except GeneratorExit:
            given_up.append(bundle.hash)
            raise

    world.steps = prepare
    world.tenants.on_update(world.seen["team-a"], config_map("team-a", {"a.policy": OWN}))
    for _ in range(9):
        world.step()
    own = config_map("berth-system", {"other.policy": OWN}, "policies")
    world.own.on_add(own)
    world.worked()
    assert len(given_up) == 1


def test_what_is_prepared_for_a_namespace_takes_a_slice_whole():
    world = started({"team-a": {"a.policy": LABEL}})
    world.steps = lambda *_: iter([None] * 999)
    world.tenants.on_update(world.seen["team-a"], config_map("team-a", {"b.policy": LABEL}))
    slices = 0
    while not world.put:
        world.step(1.0)
        slices += 1
    assert slices < 9


def test_the_owners_rules_take_with_them_what_is_put_together_meanwhile():
    world, begun = started({"team-a": {"a.policy": LABEL}}), []
    world.tenants.on_update(world.seen["team-a"], config_map("team-a", {"b.policy": LABEL}))
    world.steps = lambda *_: begun.append(0) or [None] * 9
    while not begun:
        world.step()
    assert world.put == []
    world.own.on_add(config_map("berth-system", {"other.policy": OWN}, "policies"))
    all_at_once = frozenset({"own", "other", "team-a/a", "team-a/b"})
    assert world.worked() == [(["other", "team-a/b"], all_at_once)]


def test_who_hears_what_is_in_force_hears_the_newest_last_and_no_namespace_is_forgotten():
    world, heard = started({"team-a": {"a.policy": LABEL}}), []
    world.in_force._callbacks.accepted.append(heard.append)
    world.told()
    world.tenants.on_update(world.seen["team-a"], config_map("team-a", {"b.policy": LABEL}))
    while not world.put:
        world.step()
    world.own.on_add(config_map("berth-system", {"other.policy": OWN}, "policies"))
    world.worked()
    assert heard == [world.in_force.bundle]
    assert world.told() == [("berth-system", "PoliciesInForce"), ("team-a", "PoliciesInForce")]


def test_what_a_namespace_has_to_wait_for_nobody_else_waits_for():
    world = started()
    world.told()
    world.lacks["team-a"] = ("leases (403: no)",)
    assert world.edit("team-a", {"a.policy": "filter: now - node.heartbeat < 1m\n"}) == []
    assert world.told() == [("team-a", "PoliciesAwaiting")]
    assert [names for names, _ in world.edit("team-b", {"b.policy": LABEL})] == [
        ["own", "team-b/b"]
    ]
    del world.lacks["team-a"]
    assert [names for names, _ in world.worked()] == [["own", "team-a/a", "team-b/b"]]


def test_nothing_is_held_of_what_a_namespace_had_before():
    def held():
        gc.collect()
        found = [one for one in gc.get_objects() if isinstance(one, Bundle)]
        return sum(any(name.startswith("team-held/") for name in one.files) for one in found)

    world = started({"team-held": {"x.policy": LABEL}})
    first = held()
    for _ in range(2):
        world.edit("team-held", {"x.policy": LABEL, "y.policy": LABEL})
        world.edit("team-held", {"x.policy": LABEL})
    assert held() == first


def test_who_is_not_configured_and_who_is_a_source_already_has_no_tenants_rules():
    world = started({"other": {"a.policy": LABEL}, "alone": {"a.policy": LABEL}})
    assert [names for names, _ in world.first] == [["alone/a", "own"]]
    assert world.resource.path == "/api/v1/configmaps"
    assert world.resource.field_selector == "metadata.name=berth-policies"


def test_edits_at_a_stroke_change_what_is_in_force_once():
    world = started()
    for namespace in ("team-a", "team-b", "team-c"):
        world.tenants.on_add(config_map(namespace, {"x.policy": LABEL}))
    assert [names for names, _ in world.worked()] == [["own", "team-a/x", "team-b/x", "team-c/x"]]


def test_a_namespace_takes_no_name_and_no_parameter_of_others():
    world = started({"team-a": {"own.policy": LABEL}, "team-b": {"own.policy": LABEL}})
    assert [names for names, _ in world.first] == [["own", "team-a/own", "team-b/own"]]


@pytest.mark.parametrize("edited", [{"a.policy": OWN}, {"a.policy": BROKEN}])
def test_an_edit_looks_at_no_other_namespace_one_by_one(monkeypatch, edited):
    looked = []
    world = started({f"team-{n}": {"a.policy": LABEL} for n in range(50)})
    of = world.in_force._standing
    monkeypatch.setattr(world.in_force, "_standing", lambda *each: looked.append(0) or of(*each))
    called, seen = inforce.sources.file_of, []
    monkeypatch.setattr(inforce.sources, "file_of", lambda plan: seen.append(0) or called(plan))
    world.edit("team-1", edited)
    world.in_force.status()
    assert len(looked) <= 2
    assert len(seen) <= 3 * 51, "the plans are gone through once for each that is told or shown"


def test_the_status_has_those_namespaces_whose_texts_are_refused():
    world = started({"team-a": {"a.policy": LABEL}, "team-b": {"b.policy": BROKEN * 200}})
    status = world.in_force.status()
    assert status["cluster"] == {"nodes": 3, "pods": 10}
    assert [one["source"] for one in status["sources"]] == ["ConfigMap berth-system/policies", B]
    assert (status["tenants"], status["tenantsRefused"], status["inForce"]) == (2, 1, ["own"])
    assert len(json.dumps(status)) < 3000


# ---- what they may not ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("sort: pod.priority desc\n", "P121"),
        ("preempt: never\n", "P121"),
        ("quota: by pod.namespace min cpu 10\n", "P121"),
        ("bind: default\n", "P121"),
        ('metric m = promql "up"\nscore: m\n', "P121"),
        ('metric m = object "core/configmaps" field "data.a" by namespace\nscore: m\n', "P121"),
        ("order: 99\nfilter: node.label a=b\n", "P121"),
        ("use network-traffic\n", "P121"),
        ("filter: count(cluster.pods where it.name contains red) < 9\n", "P322"),
    ],
)
def test_what_reaches_further_is_refused_at_its_line(line, code):
    settings = compile_settings(document(cost=100_000))
    made = compile_at_once(compiler(), {"team-a/berth-policies/a.policy": line}, settings)
    assert isinstance(made, Refusal)
    [found] = [one for one in made.diagnostics if one.is_error]
    assert found.code == code
    assert "^" in made.text
    assert " --> team-a/berth-policies/a.policy:1:1" in made.text
    files = {"berth-system/policies/a.policy": line}
    own = compile_at_once(compiler(), files, settings)
    assert not isinstance(own, Refusal), "its owner may"


def test_more_policies_than_a_namespace_may_have_are_refused():
    files = {f"team-a/berth-policies/{name}.policy": LABEL for name in "abc"}
    made = compile_at_once(compiler(), files, compile_settings(document()))
    assert isinstance(made, Refusal)
    assert "P122]: a namespace may have 2 policies, and these are 3" in made.text


def test_tenants_that_only_try_rules_in_shadow_take_no_share():
    files = {"team-a/berth-policies/x.policy": f"mode: shadow\n{OWN}"}
    bundle = compile_at_once(compiler(), files, compile_settings(document()))
    [framework] = frameworks_of(make_profiles(Settings()), bundle, worlds=Worlds(UTC, ()))
    assert not any("/" in one.plugin.name for one in framework.profile.plugins)


def test_scores_of_a_namespace_weigh_no_more_than_their_share():
    files = {
        "berth-system/policies/own.policy": f"weight: 7\n{OWN}",
        "team-a/berth-policies/x.policy": f"weight: 1000\n{OWN}",
        "team-a/berth-policies/y.policy": f"weight: 3000\n{OWN}",
        "team-b/berth-policies/z.policy": OWN,
    }
    settings = compile_settings(document(scoreShare=25))
    bundle = compile_at_once(compiler(), files, settings)
    assert not isinstance(bundle, Refusal), bundle.text
    [framework] = frameworks_of(make_profiles(Settings()), bundle, worlds=Worlds(UTC, ()))
    assert isinstance(Frameworks([framework]), Frameworks)
    weights = {
        one.plugin.name: one.weight
        for one in framework.profile.plugins
        if one.plugin.points().score is not None
    }
    theirs = weights["team-a/x"] + weights["team-a/y"]
    others = sum(w for name, w in weights.items() if "/" not in name)
    assert theirs == pytest.approx((theirs + others) / 4)
    assert weights["team-a/y"] == pytest.approx(3 * weights["team-a/x"])
    assert weights["team-b/z"] == 1.0
    assert bundle.tenants == {"team-a/x": "team-a", "team-a/y": "team-a", "team-b/z": "team-b"}
