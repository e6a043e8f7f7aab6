"""Several sources: each whole or not at all, beside what was kept and what was taken back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC

import pytest

from engine.clock import ManualClock
from engine.configuration.berth import BerthDocument, GuardSection
from engine.configuration.settings import Settings
from engine.framework.status import Code, Status
from engine.kube.errors import StatusError
from engine.objects import ConfigMap, ObjectMeta
from engine.plugins.profiles import make_profiles
from engine.policy import lastgood
from engine.policy.bundle import Bundle, Refusal, compile_at_once, compile_settings
from engine.policy.chain import frameworks_of
from engine.policy.guard import Guard, Load
from engine.policy.reloader import Kept, Listener, Reloader, digest
from engine.policy.sources import Source
from engine.policy.world import Worlds
from tests.builders import Cache, make_node, make_pod
from tests.engine.policy.builders import compiler, in_force, prepared

A, B = Source("ConfigMap x/a", "x/a/"), Source("ConfigMap x/b", "x/b/")
TEST = {"t.policy": "filter: node.label test=test\n"}
OTHER = {"t.policy": "filter: node.label test=other\n"}
BANNED = {"t.policy": "filter: node.label test!=test\n"}
SORTS = {"s.policy": "sort: pod.priority desc\n"}
ALSO_SORTS = {"z.policy": "sort: pod.queued_at\n"}
BROKEN = {"t.policy": "filter: node.lable test=test\n"}


class World:
    def __init__(self, *expected, kept=None):
        self.told = []
        self.reloader = Reloader(
            compiler(),
            compile_settings(BerthDocument()),
            Listener(self._refused, self._mended, self._costly),
            ManualClock(),
            lambda: (3, 10),
        )
        self.reloader.expect(*expected)
        if kept is not None:
            self.reloader.await_kept()

    def _refused(self, source, refusal):
        self.told.append((source, refusal.reason))

    def _mended(self, source, bundle):
        self.told.append((source, "mended"))

    def _costly(self, bundle, found):
        raise AssertionError(found)

    def worked(self):
        while self.reloader.step(1e9):
            pass
        if coming := self.reloader.ready():
            self.reloader.came(coming, lambda: self.told.append(coming.bundle))
        told, self.told = self.told, []
        return told

    def offer(self, source, files):
        self.reloader.offer(source, files)
        return self.worked()

    @property
    def files(self):
        return sorted(self.reloader.bundle.files)


def test_nothing_is_in_force_before_all_that_are_expected_have_spoken():
    world = World(A, B)
    assert world.offer(A, TEST) == []
    (bundle,) = world.offer(B, SORTS)
    assert sorted(bundle.files) == ["x/a/t.policy", "x/b/s.policy"]


def test_a_source_that_is_broken_at_the_start_keeps_all_from_being_scheduled():
    world = World(A, B)
    world.offer(A, BROKEN)
    assert world.offer(B, SORTS) == [(A, "PoliciesRefused")]
    assert world.reloader.bundle is None
    (bundle,) = world.offer(A, TEST)
    assert sorted(bundle.files) == ["x/a/t.policy", "x/b/s.policy"]
    assert world.reloader.refusal_of(A) is None


def test_what_is_mended_says_what_it_waits_for_and_not_what_was_wrong():
    world = World(A, B)
    world.offer(A, BROKEN)
    world.offer(B, BROKEN)
    assert world.reloader.awaited_by(A) == ()
    assert world.offer(A, TEST) == []
    assert world.reloader.refusal_of(A) is None
    assert world.reloader.awaited_by(A) == (B.title,)
    world.offer(B, SORTS)
    assert world.reloader.awaited_by(A) == ()


def test_a_broken_edit_of_one_leaves_edits_of_the_other_free():
    world = World(A, B)
    world.offer(A, TEST)
    world.offer(B, SORTS)
    assert world.offer(A, BROKEN) == [(A, "PoliciesRefused")]
    (bundle,) = world.offer(B, {"b.policy": "score: 1\n"})
    assert sorted(bundle.files) == ["x/a/t.policy", "x/b/b.policy"]
    assert world.offer(A, TEST) == [(A, "mended")]


def test_what_conflicts_with_another_source_is_refused_and_tried_again_with_the_other():
    world = World(A, B)
    world.offer(A, SORTS)
    world.offer(B, TEST)
    assert world.offer(B, ALSO_SORTS) == [(B, "PoliciesRefused")]
    assert world.files == ["x/a/s.policy", "x/b/t.policy"]
    (bundle,) = world.offer(A, TEST | {"u.policy": "policy: u\nscore: 1\n"})[:1]
    assert isinstance(bundle, Bundle)
    assert world.files == ["x/a/t.policy", "x/a/u.policy", "x/b/z.policy"]
    assert world.reloader.refusal_of(B) is None


def test_a_policy_moves_to_another_source_while_a_third_is_broken():
    world = World(B, A)
    world.offer(A, SORTS)
    world.offer(B, TEST)
    third = Source("ConfigMap x/c", "x/c/")
    assert world.offer(third, BROKEN) == [(third, "PoliciesRefused")]
    assert world.offer(B, ALSO_SORTS) == [(B, "PoliciesRefused")]
    (bundle,) = world.offer(A, {"a.policy": "filter: node.ready\n"})
    assert sorted(bundle.files) == ["x/a/a.policy", "x/b/z.policy"]
    assert world.reloader.refusal_of(B) is None


def test_two_edits_at_once_of_which_one_is_broken():
    world = World(A, B)
    world.offer(A, TEST)
    world.offer(B, SORTS)
    world.reloader.offer(A, OTHER)
    bundle, refused = world.offer(B, BROKEN)
    assert bundle.files["x/a/t.policy"] == OTHER["t.policy"]
    assert refused == (B, "PoliciesRefused")


def test_a_source_that_was_selected_comes_and_goes():
    world = World(A)
    world.offer(A, TEST)
    assert len(world.offer(B, SORTS)) == 1
    world.reloader.leave(B)
    (bundle,) = world.worked()
    assert sorted(bundle.files) == ["x/a/t.policy"]
    assert world.offer(B, BROKEN) == [(B, "PoliciesRefused")], "it may be broken from the start"
    assert world.reloader.bundle is bundle


ONLY_ONE = Source("ConfigMap x/c", "x/c/", frozenset({"one"}))


@pytest.mark.parametrize("first", [BROKEN, {}, None])
def test_only_the_profiles_of_a_source_wait_while_it_was_never_good(first):
    world = World(A, ONLY_ONE)
    world.reloader.offer(A, TEST)
    told = world.offer(ONLY_ONE, first)
    [bundle] = [one for one in told if isinstance(one, Bundle)]
    assert (sorted(bundle.files), bundle.waits) == (["x/a/t.policy"], {"one": ONLY_ONE.title})
    assert (ONLY_ONE, "PoliciesRefused") in told
    [bundle] = [one for one in world.offer(A, OTHER) if isinstance(one, Bundle)]
    assert bundle.waits, "an edit elsewhere does not help it"
    [bundle] = world.offer(ONLY_ONE, {"b.policy": "score: 1\n"})
    assert (world.files, bundle.waits) == (["x/a/t.policy", "x/c/b.policy"], {})


def test_the_pods_of_a_profile_that_waits_are_gated_and_the_others_are_scheduled():
    cache = Cache()
    cache.add_node(make_node("n"))
    bundle = compile_at_once(compiler(), TEST, compile_settings(BerthDocument()))
    profiles = make_profiles(settings("one", "two"))
    waits = replace(bundle, waits={"one": ONLY_ONE.title})
    found = frameworks_of(profiles, waits, worlds=Worlds(UTC, ()))
    snapshot = cache.snapshot(0.0)
    pod, other = make_pod("p", scheduler="one"), make_pod("p", scheduler="two")
    status = found.of(pod).pre_enqueue(pod, snapshot)
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert status.reasons == (
        "the policies of ConfigMap x/c, which are for this profile, are not usable",
    )
    assert found.of(other).pre_enqueue(other, snapshot) is Status.SUCCESS
    mended = frameworks_of(profiles, bundle, worlds=Worlds(UTC, ()))
    assert mended.of(pod).pre_enqueue(pod, snapshot) is Status.SUCCESS


# ---- kept beyond the process ---------------------------------------------------------------------


@pytest.mark.parametrize("now", [BROKEN, {}, None])
def test_what_was_kept_serves_while_the_source_is_no_good(now):
    world = World(A, kept={})
    assert world.offer(A, now) == ([] if now == BROKEN else [(A, "PoliciesRefused")])
    world.reloader.restore({A.title: Kept(TEST)})
    told = world.worked()
    assert isinstance(told[0], Bundle)
    assert told[1:] == ([(A, "PoliciesRefused")] if now == BROKEN else [])
    assert world.reloader.bundle.files == {"x/a/t.policy": TEST["t.policy"]}
    (bundle,) = world.offer(A, OTHER)
    assert bundle.files["x/a/t.policy"] == OTHER["t.policy"]


def test_a_source_that_is_good_needs_nothing_of_before():
    world = World(A, kept={})
    world.reloader.restore({A.title: Kept(TEST)})
    (bundle,) = world.offer(A, OTHER)
    assert bundle.files["x/a/t.policy"] == OTHER["t.policy"]
    assert world.reloader.kept() == {A.title: Kept(OTHER)}


def test_what_was_kept_and_this_version_refuses_is_told_once():
    world = World(A, kept={})
    world.reloader.restore({A.title: Kept({"t.policy": "score: gone_by_now\n"})})
    assert [what for _, what in world.offer(A, BROKEN)] == ["PoliciesRefused"] * 2
    assert world.reloader.bundle is None
    assert world.offer(A, BROKEN) == [(A, "PoliciesRefused")], "of its own texts, from now on"
    assert world.offer(A, BROKEN) == []
    assert len(world.offer(A, TEST)) == 1


def test_a_conflict_that_was_refused_is_refused_after_a_restart_too():
    world = World(A, B)
    world.offer(A, TEST)
    world.offer(B, SORTS)
    assert world.offer(A, ALSO_SORTS) == [(A, "PoliciesRefused")]
    again = World(A, B, kept={})
    again.reloader.restore(world.reloader.kept())
    again.offer(A, ALSO_SORTS)
    bundle, refused = again.offer(B, SORTS)
    assert sorted(bundle.files) == ["x/a/t.policy", "x/b/s.policy"]
    assert refused == (A, "PoliciesRefused")


@pytest.mark.parametrize("listed_first", [True, False])
def test_what_was_kept_serves_a_selected_source_too(listed_first):
    world = World(kept={})
    if listed_first:
        world.reloader.offer(B, BROKEN)
    world.reloader.restore({B.title: Kept(TEST, digest(OTHER))})
    told = world.offer(B, BROKEN)
    assert world.files == ["x/b/t.policy"]
    assert told[1:] == [(B, "PoliciesRefused")]
    assert world.offer(B, OTHER) == [(B, "PoliciesTakenBack")]
    world.reloader.leave(B)
    world.worked()
    assert world.offer(B, BROKEN) == [(B, "PoliciesRefused")]
    assert world.files == [], "one that comes later is another one"


def test_kept_texts_are_packed_and_unpacked():
    world = World(A)
    world.offer(A, {"t.policy": "score: 2  # ä\n", "b.policy": b"score: 1\n"})
    kept = world.reloader.kept()
    assert kept == {A.title: Kept({"b.policy": "score: 1\n", "t.policy": "score: 2  # ä\n"})}
    assert lastgood.unpack(lastgood.pack(kept)) == kept
    turned = {A.title: Kept(dict(reversed(kept[A.title].files.items())))}
    assert lastgood.pack(turned) == lastgood.pack(kept)


@pytest.mark.parametrize("change", [lambda d: d[:-3], lambda d: b"no" + d, lambda d: b""])
def test_kept_texts_that_somebody_changed_are_of_no_use(change):
    with pytest.raises(lastgood.UnreadableError):
        lastgood.unpack(change(lastgood.pack({A.title: Kept(TEST)})))


# ---- taken back ----------------------------------------------------------------------------------


def test_a_change_is_taken_back_and_not_tried_again_before_it_changes():
    world = World(A, B)
    world.offer(A, TEST)
    (first,) = world.offer(B, {"b.policy": "score: 1\n"})
    world.offer(A, OTHER)
    assert world.reloader.go_back("pending pods rose")
    assert world.worked() == [first, (A, "PoliciesTakenBack")]
    assert "pending pods rose; it is not tried again" in world.reloader.refusal_of(A).text
    (bundle,) = world.offer(B, {"b.policy": "score: 2\n"})
    assert bundle.files["x/a/t.policy"] == TEST["t.policy"], "an edit elsewhere does not bring it"
    assert not [one for one in world.offer(A, OTHER) if isinstance(one, Bundle)]
    (bundle,) = world.offer(A, {"t.policy": OTHER["t.policy"] + "# mended\n"})
    assert "mended" in bundle.files["x/a/t.policy"]
    assert world.offer(A, OTHER) == [(A, "PoliciesTakenBack")], "and whoever tries is told"


def test_the_first_rules_cannot_be_taken_back():
    world = World(A)
    world.offer(A, TEST)
    assert not world.reloader.go_back("pending pods rose")
    assert world.worked() == []


def test_what_was_taken_back_is_not_tried_again_after_a_restart():
    world = World(A)
    world.offer(A, TEST)
    world.offer(A, OTHER)
    world.reloader.go_back("errors rose")
    kept = lastgood.unpack(lastgood.pack(world.reloader.kept()))
    again = World(A, kept={})
    again.reloader.restore(kept)
    bundle, refused = again.offer(A, OTHER)
    assert bundle.files["x/a/t.policy"] == TEST["t.policy"]
    assert refused == (A, "PoliciesTakenBack")


def test_several_changes_are_taken_back_at_a_stroke():
    world = World(A, B)
    world.offer(A, TEST)
    (first,) = world.offer(B, {"b.policy": "score: 1\n"})
    world.offer(A, OTHER)
    world.offer(B, {"b.policy": "score: 2\n"})
    assert world.reloader.go_back("pending pods rose", 2)
    told = world.worked()
    assert told == [first, (A, "PoliciesTakenBack"), (B, "PoliciesTakenBack")]
    assert not world.reloader.go_back("pending pods rose"), "what was before went well once"


def test_of_two_changes_the_last_goes_first_and_stays_away_when_the_other_goes_too():
    world = World(A, B)
    world.offer(A, TEST)
    (first,) = world.offer(B, SORTS)
    (second,) = world.offer(A, OTHER)
    world.offer(A, BANNED)
    assert world.reloader.go_back("pending pods rose")
    assert world.worked() == [second, (A, "PoliciesTakenBack")]
    assert world.reloader.go_back("pending pods rose")
    assert world.worked()[0] == first
    (bundle,) = world.offer(B, ALSO_SORTS)
    assert bundle.files["x/a/t.policy"] == TEST["t.policy"]


def test_an_edit_that_is_being_compiled_is_not_lost_when_what_was_before_is_taken_back():
    world = World(A)
    world.offer(A, TEST)
    world.offer(A, OTHER)
    world.reloader.offer(A, BANNED)
    assert world.reloader.go_back("pending pods rose")
    bundle, *told = world.worked()
    assert bundle.files["x/a/t.policy"] == BANNED["t.policy"]
    assert told == [(A, "PoliciesTakenBack"), (A, "mended")]
    assert world.reloader.refusal_of(A) is None


def test_what_was_put_right_by_hand_is_not_taken_back():
    world = World(A)
    world.offer(A, TEST)
    world.offer(A, OTHER)
    world.offer(A, TEST)
    assert not world.reloader.go_back("pending pods rose", 2)
    assert world.reloader.refusal_of(A) is None


def test_what_was_put_right_by_hand_does_not_come_back_with_a_change_before_it():
    world = World(A)
    for files in (TEST, OTHER, BANNED, OTHER):
        world.offer(A, files)
    assert not world.reloader.go_back("pending pods rose", 2)
    world.reloader.keep_before(1)
    assert world.reloader.go_back("pending pods rose")
    assert world.reloader.bundle.files["x/a/t.policy"] == TEST["t.policy"]


def test_the_rules_of_a_source_that_has_left_do_not_come_back():
    world = World(A)
    world.offer(A, TEST)
    world.offer(B, SORTS)
    world.reloader.leave(B)
    world.worked()
    assert not world.reloader.go_back("pending pods rose")
    assert world.files == ["x/a/t.policy"]


def test_what_was_taken_back_of_a_source_without_any_other_texts_is_kept_too():
    world = World(A)
    world.offer(A, TEST)
    world.offer(B, SORTS)
    world.reloader.go_back("errors rose")
    again = World(A, kept={})
    again.reloader.restore(lastgood.unpack(lastgood.pack(world.reloader.kept())))
    again.reloader.offer(A, TEST)
    bundle, refused = again.offer(B, SORTS)
    assert sorted(bundle.files) == ["x/a/t.policy"]
    assert refused == (B, "PoliciesTakenBack")


def test_what_the_leader_before_took_back_does_not_rule_under_the_next():
    leader, follower = World(A, B), World(A, B)
    for world in (leader, follower):
        world.offer(A, TEST)
        world.offer(B, SORTS)
        world.offer(A, OTHER)
    leader.reloader.go_back("pending pods rose")
    follower.reloader.heed(leader.reloader.kept())
    bundle, refused = follower.worked()
    assert bundle.files["x/a/t.policy"] == TEST["t.policy"]
    assert refused == (A, "PoliciesTakenBack")
    assert not follower.reloader.go_back("pending pods rose"), "that would bring it back"
    assert follower.reloader.kept() == leader.reloader.kept()


def test_nothing_is_kept_of_changes_that_are_not_gone_back_on_any_more():
    world = World(A)
    for files in (TEST, OTHER, TEST):
        world.offer(A, files)
    world.reloader.keep_before(1)
    assert world.reloader.go_back("pending pods rose", 2)
    assert list(world.worked()[0].files.values()) == list(OTHER.values())
    world.offer(A, SORTS)
    world.reloader.keep_before(0)
    assert not world.reloader.go_back("pending pods rose")


class Watched:
    """A guard, and how the scheduler does."""

    def __init__(self, **settings):
        self.clock = ManualClock()
        self.load = Load(3, 1)
        self.back, self.watched = [], []
        section = GuardSection(within="60s", **settings)
        told = self._go_back, self.watched.append
        self.guard = Guard(section, self.clock, lambda: self.load, *told)

    def _go_back(self, why, changes):
        self.back.append(why if changes == 1 else (why, changes))

    def after(self, seconds, load):
        self.load = load
        self.clock.advance(seconds)
        self.guard.step(self.clock.monotonic())
        self.guard.returned()
        return self.back


def test_a_guard_takes_back_what_makes_pods_wait_and_only_once():
    watched = Watched(pending=50)
    assert watched.guard.due is None
    watched.guard.changed(watched.load)
    assert watched.after(0.5, Load(500, 900)) == [], "it looks once a second"
    assert watched.after(0.5, Load(52, 900)) == []
    assert watched.after(1.0, Load(53, 900)) == [
        "pending pods rose from 3 to 53 in 2 s; the limit is +50"
    ]
    assert watched.guard.due is None
    assert len(watched.after(1.0, Load(99, 900))) == 1


def test_a_guard_looks_at_errors_and_no_longer_than_it_is_told():
    watched = Watched(errors=10)
    watched.guard.changed(watched.load)
    assert watched.after(60.0, Load(900, 10)) == []
    assert watched.guard.due is None
    assert watched.after(1.0, Load(900, 900)) == []
    watched.guard.changed(watched.load)
    assert watched.after(1.0, Load(900, 910)) == [
        "errors rose from 900 to 910 in 1 s; the limit is +10"
    ]


def test_a_change_that_follows_another_does_not_hide_what_that_one_did():
    watched = Watched(pending=50)
    watched.guard.changed(watched.load)
    watched.after(30.0, Load(40, 1))
    watched.guard.changed(watched.load)
    assert watched.after(20.0, Load(53, 1)) == [
        ("pending pods rose from 3 to 53 in 50 s; the limit is +50", 2)
    ]
    assert watched.guard.due is None


def test_the_last_change_since_which_too_much_came_is_taken_back_first():
    watched = Watched(pending=50, errors=10)
    for _ in range(2):
        watched.guard.changed(watched.load)
        watched.after(10.0, Load(3, 1))
    watched.after(10.0, Load(60, 9))
    assert watched.back == ["pending pods rose from 3 to 60 in 20 s; the limit is +50"]
    assert watched.watched[-1] == 1
    watched.after(1.0, Load(10, 18))
    assert len(watched.back) == 1, "what came with the other is none of its own"
    watched.after(1.0, Load(60, 18))
    assert watched.back[1:] == ["pending pods rose from 3 to 60 in 32 s; the limit is +50"]
    assert watched.guard.due is None


def test_a_change_whose_time_is_up_when_a_later_one_is_taken_back_is_looked_at_once_more():
    watched = Watched(pending=50)
    watched.guard.changed(watched.load)
    watched.after(59.5, Load(3, 1))
    watched.guard.changed(watched.load)
    assert len(watched.after(1.0, Load(60, 1))) == 1
    assert watched.after(10.0, Load(60, 1))[1:] == [
        "pending pods rose from 3 to 60 in 70 s; the limit is +50"
    ]
    watched.guard.changed(watched.load)
    watched.after(59.5, Load(60, 1))
    watched.guard.changed(watched.load)
    assert len(watched.after(1.0, Load(110, 1))) == 3
    assert watched.after(10.0, Load(80, 1))[3:] == []
    assert watched.guard.due is not None
    assert watched.after(5.0, Load(80, 1))[3:] == []
    assert watched.guard.due is None


def test_a_change_that_went_well_is_not_taken_back_for_a_later_one():
    watched = Watched(pending=50)
    watched.guard.changed(watched.load)
    watched.after(30.0, Load(40, 1))
    watched.guard.changed(watched.load)
    assert watched.after(30.0, Load(52, 1)) == []
    assert watched.watched == [1, 1], "the first may not be gone back on any more"
    assert watched.after(10.0, Load(89, 1)) == []
    assert watched.after(10.0, Load(90, 1)) == [
        "pending pods rose from 40 to 90 in 50 s; the limit is +50"
    ]


# ---- profiles ------------------------------------------------------------------------------------


def settings(*names):
    return Settings.model_validate({"profiles": [{"schedulerName": name} for name in names]})


def settings_of_two():
    sources = [{"configMap": "x/a", "profiles": ["one"]}, {"configMap": "x/b"}]
    return BerthDocument.model_validate({"policies": {"sources": sources}})


def test_policies_of_a_source_may_be_of_some_profiles_only():
    files = {"x/a/t.policy": TEST["t.policy"], "x/b/b.policy": "score: 1\n"}
    bundle = compile_at_once(compiler(), files, compile_settings(settings_of_two()))
    profiles = make_profiles(settings("one", "two"))
    found = frameworks_of(profiles, bundle, worlds=Worlds(UTC, ()))
    names = {
        one.profile.scheduler_name: [w.plugin.name for w in one.profile.plugins[-2:]]
        for one in found
    }
    assert names["one"] == ["b", "t"]
    assert names["two"][-1] == "b"
    assert "t" not in names["two"]


def test_a_config_map_by_its_name_is_not_of_the_profiles_of_a_selector_beside_it():
    selected = {"selector": "a=b", "namespace": "x", "profiles": ["one"]}
    document = BerthDocument(policies={"sources": [{"configMap": "x/a"}, selected]})
    files = {"x/a/t.policy": "score: 1\n", "x/b/u.policy": "score: 1\n"}
    bundle = compile_at_once(compiler(), files, compile_settings(document))
    assert bundle.profiles == {"u": frozenset({"one"})}


def test_the_order_of_the_queue_is_of_all_profiles():
    files = {"x/a/s.policy": SORTS["s.policy"]}
    made = compile_at_once(compiler(), files, compile_settings(settings_of_two()))
    assert isinstance(made, Refusal)
    assert "P501" in made.text
    assert "are for one only" in made.text


@pytest.mark.parametrize(
    ("profiles", "codes"),
    [
        ((["one"], ["two"]), []),
        ((["one"], ["one", "two"]), ["P302"]),
        ((["one"], []), ["P302"]),
        (([], []), ["P302"]),
    ],
)
def test_rules_of_sources_for_other_profiles_do_not_contradict_each_other(profiles, codes):
    sources = [
        {"configMap": f"x/{name}", "profiles": own}
        for name, own in zip("ab", profiles, strict=True)
    ]
    both = {
        "x/a/t.policy": "filter: node.label test=test\nbind: dry run\n",
        "x/b/u.policy": "filter: node.label test=other\nbind: default\n",
    }
    settings = compile_settings(BerthDocument(policies={"sources": sources}))
    made = compile_at_once(compiler(), both, settings)
    found = made.warnings if isinstance(made, Bundle) else made.diagnostics
    assert [one.code for one in found if one.code in ("P302", "P304")] == codes
    assert isinstance(made, Refusal) == bool(codes), "P504: another binds all of the pods, too"


@pytest.mark.parametrize(
    ("code", "restored"), [(429, True), (401, True), (503, True), (403, False)]
)
def test_what_was_kept_is_asked_for_until_the_server_gives_it_or_will_not(code, restored):
    data = lastgood.pack({"ConfigMap x/a": Kept(TEST)})
    answers = [StatusError(code, "", "no"), data]
    put, slept = [], []

    class Asked:
        async def load(self):
            answer = answers.pop(0)
            if isinstance(answer, StatusError):
                raise answer
            return answer

    async def sleep(seconds):
        slept.append(seconds)

    made = in_force(
        {"configMap": "x/a", "state": "x/state"}, prepare=prepared(lambda *what: put.append(what))
    )
    made.connect(None, Asked(), lambda: False)
    [(_, source)] = made.configured.watched
    source.on_add(ConfigMap(ObjectMeta(name="a", namespace="x", uid="u"), data=BROKEN))
    asyncio.run(made.restore(sleep))
    while any(one.step(1e9) for one in made.background):
        pass
    assert bool(put) == bool(slept) == restored
