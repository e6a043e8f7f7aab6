"""Sources and the reloader: what is taken, what is refused, and what stays meanwhile."""

from __future__ import annotations

import base64
import os
from functools import partial
from os import fsdecode
from pathlib import Path

import pytest

from engine.clock import ManualClock
from engine.configuration.berth import BerthDocument
from engine.objects import ConfigMap, ObjectMeta
from engine.policy.bundle import Bundle, Refusal, compile_at_once, compile_settings
from engine.policy.reloader import Listener, Reloader
from engine.policy.sources import (
    ConfigMapSources,
    FolderSource,
    Source,
    policies_in,
    source_of,
)
from engine.signals.spec import question_of
from tests.builders import make_metric
from tests.engine.policy.builders import compiled, compiler

GOOD = {"a.policy": "filter: node.label test=test\n"}
OTHER = {"a.policy": "filter: node.label test=other\n"}
BROKEN = {"a.policy": "filter: node.lable test=test\n"}
SLOW = 0.0005
ONLY = Source("folder x")


class TickingClock(ManualClock):
    """Every look at it takes half a millisecond."""

    def monotonic(self):
        self.advance(SLOW)
        return super().monotonic()


OTHER = {"b.policy": "filter: now - node.heartbeat < 1m\n"}


class World:
    """A reloader, and what it told."""

    def __init__(self, clock=None, **berth):
        self.clock = clock or ManualClock()
        self.told = []
        self.there = 3, 10
        self.outgrown = 0
        self.lacks = ()
        self.reloader = Reloader(
            compiler(),
            compile_settings(BerthDocument.model_validate(berth)),
            Listener(
                self._refused,
                self._mended,
                self._costly,
                lambda _: self.lacks,
                lambda bundle, lacking: self.told.append(("awaiting", bundle.hash, lacking)),
                self._outgrown,
            ),
            self.clock,
            lambda: self.there,
        )
        self.reloader.expect(ONLY)

    def _outgrown(self):
        self.outgrown += 1

    def _come(self, coming):
        bundle = coming.bundle
        changed = bundle.changed_since(self.reloader.bundle)
        self.reloader.came(coming, lambda: self.told.append((bundle, changed)))

    def _refused(self, source, refusal):
        assert source == ONLY
        self.told.append(refusal)

    def _mended(self, source, bundle):
        self.told.append(("mended", bundle.hash))

    def _costly(self, bundle, found):
        self.told.append(("costly", bundle.hash, [one.code for one in found]))

    def grown(self, nodes, pods):
        self.there = nodes, pods
        return self.worked()

    def offer(self, files):
        self.reloader.offer(ONLY, files)
        return self.worked()

    def worked(self):
        while self.reloader.step(self.clock.monotonic() + 1.0):
            pass
        if coming := self.reloader.ready():
            self._come(coming)
        told, self.told = self.told, []
        return told

    @property
    def text(self):
        return None if self.reloader.bundle is None else dict(self.reloader.bundle.files)


def test_good_files_come_into_force_whole():
    world = World()
    ((bundle, changed),) = world.offer(GOOD)
    assert isinstance(bundle, Bundle)
    assert world.reloader.bundle is bundle
    assert changed is None, "the first bundle: everything is looked at"
    assert [plan.name for plan in bundle.plans] == ["a"]


def test_a_broken_file_keeps_the_last_good_bundle_of_all_files():
    world = World()
    world.offer(GOOD)
    (refusal,) = world.offer({**BROKEN, "b.policy": "score: 1\n"})
    assert isinstance(refusal, Refusal)
    assert world.text == GOOD
    assert world.reloader.refusal_of(ONLY) is refusal
    assert refusal.summary.startswith("folder x was refused: a.policy:1:9: P")
    assert "\n" not in refusal.summary
    assert " --> a.policy:1:9" in refusal.text
    assert "^" in refusal.text


def test_what_reads_more_comes_into_force_whole_once_that_is_there():
    world = World()
    world.offer(GOOD)
    old = world.reloader.bundle
    world.lacks = ("leases",)
    ((what, new, lacking),) = world.offer(OTHER)
    assert (what, lacking, world.reloader.awaited) == ("awaiting", ("leases",), ("leases",))
    assert world.worked() == [], "it is told once"
    world.lacks = ("leases (403: no)",)
    assert world.worked() == [("awaiting", new, world.lacks)]
    assert world.reloader.bundle is old
    assert world.reloader.due is not None
    world.lacks = ()
    ((bundle, changed),) = world.worked()
    assert (bundle.hash, world.text, world.reloader.due) == (new, OTHER, None)
    assert changed == {"a", "b"}


def test_an_edit_ends_the_waiting_of_the_one_before():
    world = World()
    world.offer(GOOD)
    world.lacks = ("leases",)
    world.offer(OTHER)
    assert world.offer(GOOD) == []
    world.lacks = ()
    assert world.worked() == []
    assert world.text == GOOD
    assert world.reloader.awaited == ()


def test_more_errors_are_counted_in_the_summary():
    (refusal,) = World().offer({"a.policy": "filter: node.lable x=y\nscore: nothing\n"})
    assert refusal.summary.endswith(" and 1 more")
    assert len([d for d in refusal.diagnostics if d.is_error]) == 2


def test_a_refusal_is_told_once_and_again_after_it_was_mended():
    world = World()
    assert len(world.offer(BROKEN)) == 1
    assert world.offer(BROKEN) == []
    assert len(world.offer(GOOD)) == 1
    assert world.reloader.refusal_of(ONLY) is None
    assert len(world.offer(BROKEN)) == 1
    (other,) = world.offer({"a.policy": "filter: node.labelle test=test\n"})
    assert isinstance(other, Refusal)


def test_the_same_files_again_say_nothing():
    world = World()
    world.offer(GOOD)
    bundle = world.reloader.bundle
    assert world.offer(dict(GOOD)) == []
    assert world.reloader.bundle is bundle


def test_mended_by_going_back_to_what_is_in_force_says_so_and_forgets_the_refusal():
    world = World()
    ((bundle, _),) = world.offer(GOOD)
    world.offer(BROKEN)
    assert world.offer(GOOD) == [("mended", bundle.hash)]
    assert world.reloader.refusal_of(ONLY) is None


def test_a_source_that_is_gone_or_emptied_keeps_its_rules():
    world = World()
    world.offer(GOOD)
    (gone,) = world.offer(None)
    assert gone.text == "folder x does not exist"
    (empty,) = world.offer({})
    assert empty.text == "folder x has no file whose name ends in .policy"
    assert world.text == GOOD
    assert len(world.offer(OTHER)) == 1
    assert world.text == OTHER


def test_a_file_of_comments_is_a_file():
    world = World()
    world.offer(GOOD)
    ((bundle, changed),) = world.offer({"a.policy": "# nothing yet\n"})
    assert changed == {"a"}
    assert [plan.filters for plan in bundle.plans] == [()]


def test_an_edit_while_compiling_starts_again_with_it():
    world = World()
    many = {f"p{n}.policy": "filter: node.label test=test\n" * 5 for n in range(5)}
    world.reloader.offer(ONLY, many)
    assert world.reloader.step(world.clock.monotonic()), "one step only"
    ((bundle, _),) = world.offer(GOOD)
    assert dict(bundle.files) == GOOD


def test_a_source_that_goes_while_compiling_is_not_put_in_force():
    world = World()
    world.reloader.offer(ONLY, GOOD)
    assert world.reloader.step(world.clock.monotonic())
    (gone,) = world.offer(None)
    assert isinstance(gone, Refusal)
    assert world.reloader.bundle is None


def test_slices_end_at_the_deadline_and_add_up_to_the_same_bundle():
    clock = TickingClock()
    world = World(clock)
    files = {f"p{n}.policy": "filter: node.label test=test\n" * 20 for n in range(10)}
    world.reloader.offer(ONLY, files)
    slices, longest = 0, 0.0
    while True:
        started = clock._monotonic
        more = world.reloader.step(started + 0.002)
        longest = max(longest, clock._monotonic - started)
        slices += 1
        if not more:
            break
    assert slices > 10
    assert longest <= 0.002 + SLOW
    assert world.reloader.ready().bundle.hash == compiled(files).hash


def test_nothing_to_do_is_said():
    world = World()
    assert not world.reloader.step(1.0)
    assert world.reloader.due is None


# ---- what changed --------------------------------------------------------------------------------


def test_policies_that_came_went_or_changed_are_named():
    world = World()
    world.offer({**GOOD, "b.policy": "score: 1\n", "c.policy": "score: 1\n"})
    files = {"a.policy": "filter: node.label a=b\n", "b.policy": "score: 1\n", "d.policy": "# d\n"}
    ((_, changed),) = world.offer(files)
    assert changed == {"a", "c", "d"}


@pytest.mark.parametrize("header", ["weight: 2", "order: 3", "mode: off"])
def test_headers_count_as_a_change(header):
    world = World()
    world.offer(GOOD)
    ((_, changed),) = world.offer({"a.policy": f"{header}\n{GOOD['a.policy']}"})
    assert changed == {"a"}


def test_a_policy_may_not_have_the_name_of_a_plugin():
    (refusal,) = World().offer({"NodeResourcesFit.policy": "score: 1\n"})
    assert isinstance(refusal, Refusal)
    assert "`NodeResourcesFit` is the name of a built-in plugin" in refusal.text
    assert "policy: NAME" in refusal.text


# ---- configuration -------------------------------------------------------------------------------


def test_overrides_win_over_the_text():
    text = {"a.policy": "weight: 2\norder: 5\nscore: 1\n"}
    over = {"a": {"weight": 7, "order": -1, "mode": "off"}}
    (plan,) = compiled(text, policies={"overrides": over}).plans
    assert (plan.weight, plan.order, plan.mode) == (7, -1, "off")
    (plan,) = compiled(text, policies={"overrides": {"a": {"weight": 7}}}).plans
    assert (plan.weight, plan.order, plan.mode) == (7, 5, "enforce")
    (plan,) = compiled(text, policies={"overrides": {"other": {"weight": 7}}}).plans
    assert plan.weight == 2


def test_parameters_come_from_the_configuration():
    text = {"a.policy": "param pool: string\nfilter: node.label pool=$pool\n"}
    settings = compile_settings(BerthDocument())
    refusal = compile_at_once(compiler(), text, settings)
    assert isinstance(refusal, Refusal)
    assert "P104" in refusal.text
    given = compiled(text, policies={"overrides": {"a": {"params": {"pool": "web"}}}})
    (rule,) = given.plans[0].filters
    assert rule.reads == {"node.label"}


def test_metrics_of_the_configuration_may_be_read_and_replace_the_bundled_ones():
    text = {"a.policy": "score: 100 - errors/max*100\nscore: 100 - bandwidth/max*100\n"}
    metrics = {
        "errors": {"promql": "sum by (node) (errors)", "by": "node", "every": "1m30s",
                   "stale": "5min", "default": 3, "unit": "percent"},
        "bandwidth": {"promql": "my_bandwidth", "unit": "bytes/s"},
    }  # fmt: skip
    specs = {spec.name: spec for spec in compiled(text, metrics=metrics).metrics}
    errors = specs["errors"]
    assert errors.query == "sum by (node) (errors)"
    assert (errors.by, errors.every_seconds, errors.stale_seconds) == ("node", 90.0, 300.0)
    assert (errors.default, errors.scale) == (3, 0.01)
    assert specs["bandwidth"].query == "my_bandwidth"
    assert specs["bandwidth"].unit == "bytes/s"


def test_metrics_of_the_configuration_are_of_any_level():
    levels = {"a": "zone", "b": "cluster", "c": "namespace, workload", "d": "cloud_region"}
    metrics = {name: {"promql": name, "by": by} for name, by in levels.items()}
    bundle = compiled({"a.policy": "score: a + b + c + d missing 0\n"}, metrics=metrics)
    specs = {one.name: one for one in bundle.metrics}
    assert {name: (one.of, question_of(one).by) for name, one in specs.items()} == {
        "a": ("zone", question_of(make_metric("", "", of="zone")).by),
        "b": ("cluster", ()),
        "c": ("workload", ("namespace", "workload")),
        "d": ("region", ("cloud_region",)),
    }
    assert len({one.id for one in bundle.metrics}) == 4


def test_metrics_of_the_configuration_are_stale_after_two_minutes_or_twice_their_pause():
    metrics = {"a": {"promql": "a"}, "b": {"promql": "b", "every": "5m"}}
    specs = compiled({"a.policy": "score: a + b\n"}, metrics=metrics).metrics
    assert {spec.name: spec.stale_seconds for spec in specs} == {"a": 120.0, "b": 600.0}


def test_the_hash_names_texts_and_settings():
    hashes = [
        compiled(GOOD).hash,
        compiled(OTHER).hash,
        compiled({"b.policy": GOOD["a.policy"]}).hash,
        compiled(GOOD, policies={"overrides": {"a": {"weight": 3}}}).hash,
        compiled(GOOD, policies={"overrides": {"a": {"mode": "off"}}}).hash,
        compiled(GOOD, metrics={"x": {"promql": "x"}}).hash,
    ]
    assert len(set(hashes)) == len(hashes)
    assert compiled(dict(GOOD)).hash == hashes[0]
    assert all(len(each) == 12 and int(each, 16) >= 0 for each in hashes)


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbffilter: node.label a=b\n",
        b"filter: node.label a=b\r\n",
        b"filter: node.label a=b",
        "# \u00fcber\nfilter: node.label a=b\n".encode(),
    ],
)
def test_a_bundle_can_be_made_again_from_its_files(text):
    first = compiled({"a.policy": text})
    assert compiled(dict(first.files)).hash == first.hash


# ---- a ConfigMap ---------------------------------------------------------------------------------


def config_map(data, **meta):
    meta = {"name": "rules", "namespace": "berth", "uid": "u1", **meta}
    return ConfigMap(ObjectMeta(**meta), data)


def named(offers, namespace="berth", name="rules"):
    """A source by its name, and what it offers."""
    return ConfigMapSources(
        of_its_name,
        lambda _, files, over, __: offers(files, over),
        None,
        named=source_of(namespace, name),
    )


def of_its_name(meta):
    return source_of(meta.namespace, meta.name)


class Offers(list):
    def __call__(self, files, passed_over=()):
        self.append(None if files is None else dict(files))
        self.passed_over = passed_over


def test_a_config_map_offers_the_keys_that_are_policies():
    offers = Offers()
    source = named(offers)
    first = config_map({"b.policy": "score: 1", "a.policy": "score: 2", "README": "x"})
    source.on_add(first)
    source.on_synced()
    assert offers == [{"a.policy": "score: 2", "b.policy": "score: 1"}]


def test_a_key_that_is_no_policy_by_its_name_is_told_of_once(caplog):
    offers = Offers()
    source = named(offers)
    first = config_map({"a.policy": "score: 1", "nginx.txt": "score: 2", "a.policytest": "test"})
    source.on_add(first)
    assert offers.passed_over == ("nginx.txt",)
    told = (
        "ConfigMap berth/rules: key nginx.txt is skipped: a policy's key ends in .policy; "
        "call it nginx.policy"
    )
    assert [record.getMessage() for record in caplog.records] == [told]
    source.on_update(first, config_map({"a.policy": "score: 3", "nginx.txt": "x", "b": "y"}))
    assert offers.passed_over == ("b", "nginx.txt")
    assert [record.getMessage() for record in caplog.records[1:]] == [
        told.replace("nginx.txt", "b").replace("nginx.policy", "b.policy")
    ]


def test_without_a_policy_what_is_there_instead_is_told_whenever_it_changes():
    offers = Offers()
    source = named(offers)
    first, second = config_map({"readme": "x"}), config_map({"other": "x"})
    source.on_add(first)
    source.on_update(first, second)
    assert (offers, offers.passed_over) == ([{}, {}], ("other",))
    source.on_update(second, config_map({"other": "x"}, resource_version="2"))
    assert offers == [{}, {}]


def test_only_a_change_of_its_files_counts():
    offers = Offers()
    source = named(offers)
    first = config_map({"a.policy": "score: 1"})
    source.on_add(first)
    touched = config_map({"a.policy": "score: 1", "README": "y"}, resource_version="2")
    source.on_update(first, touched)
    assert len(offers) == 1
    source.on_update(touched, config_map({"a.policy": "score: 3"}))
    assert offers[-1] == {"a.policy": "score: 3"}
    source.on_update(touched, config_map(None))
    assert offers[-1] == {}


def test_a_config_map_that_is_missing_gone_or_unreadable_is_no_source():
    offers = Offers()
    source = named(offers)
    source.on_synced()
    source.on_add(config_map({"a.policy": "score: 1"}))
    source.on_delete(config_map({"a.policy": "score: 1"}))
    source.on_unreadable(ObjectMeta(name="rules", namespace="berth"), "data: not a map")
    assert offers == [None, {"a.policy": "score: 1"}, None, None]


def test_a_selection_is_a_source_for_each_config_map_and_the_last_one_is_missed():
    offers, left = {"1": [], "2": []}, []
    selected = ConfigMapSources(
        lambda meta: None if meta.name == "named" else of_its_name(meta),
        lambda source, files, *_: offers[source.config_map[-1]].append(files),
        lambda source: left.append(source.title),
    )
    one, two, named = (config_map({"x.policy": "score: 1"}, name=n) for n in ("1", "2", "named"))
    for each in (one, two, named):
        selected.on_add(each)
    selected.on_synced()
    selected.on_update(two, config_map({"x.policy": "score: 2"}, name="2"))
    assert offers == {
        "1": [{"x.policy": "score: 1"}],
        "2": [{"x.policy": n} for n in ("score: 1", "score: 2")],
    }
    selected.on_delete(one)
    selected.on_delete(named)
    assert left == ["ConfigMap berth/1"]
    selected.on_delete(two)
    assert left == ["ConfigMap berth/1"]
    assert offers["2"][-1] is None
    selected.on_add(two)
    assert offers["2"][-1] == {"x.policy": "score: 1"}


def test_the_last_one_of_a_selection_is_missed_until_another_comes():
    left = []
    leave = lambda source: left.append(source.title)  # noqa: E731 - it is told so
    selected = ConfigMapSources(of_its_name, lambda *_: None, leave)
    one, two = (config_map({"x.policy": "score: 1"}, name=n) for n in "12")
    selected.on_add(one)
    selected.on_delete(one)
    selected.on_add(one)
    selected.on_delete(one)
    assert left == []
    selected.on_add(two)
    assert left == ["ConfigMap berth/1"]
    selected.on_add(one)
    selected.on_delete(one)
    assert left == ["ConfigMap berth/1"] * 2


# ---- a folder ------------------------------------------------------------------------------------


def folder(path):
    clock, offers = ManualClock(), Offers()
    return FolderSource(path, offers, clock), clock, offers


def look(source, clock):
    clock.advance(0.5)
    assert source.step(clock.monotonic()) is False


def test_a_folder_that_cannot_be_read_says_why(tmp_path):
    told = []
    path = tmp_path / "a.txt"
    path.write_text("no folder")
    clock = ManualClock()
    source = FolderSource(path, lambda files, why: told.append((files, why)), clock)
    source.step(clock.monotonic())
    assert told == [(None, (f"{path}: Not a directory",))]
    world = World()
    world.reloader.offer(ONLY, *told[0])
    assert world.reloader.refusal_of(ONLY).text == f"folder x cannot be read: {told[0][1][0]}"


def test_a_folder_says_once_more_why_it_cannot_be_read_when_that_is_something_else(tmp_path):
    told = []
    path, clock = tmp_path / "policies", ManualClock()
    source = FolderSource(path, lambda files, why: told.append((files, why)), clock)
    look(source, clock)
    path.symlink_to(path)
    look(source, clock)
    look(source, clock)
    path.unlink()
    path.mkdir()
    (path / "..data").symlink_to("..data")
    look(source, clock)
    loop = f"{path}: Too many levels of symbolic links"
    assert told == [(None, ()), (None, (loop,)), ({}, ())]


def test_a_file_that_vanishes_while_a_folder_is_read_does_not_make_it_unreadable(
    tmp_path, monkeypatch
):
    for name in ("a.policy", "b.policy"):
        (tmp_path / name).write_text("score: 1\n", "utf-8")
    opened = Path.open

    def open_late(path, *how):
        (tmp_path / "b.policy").unlink(missing_ok=True)
        return opened(path, *how)

    monkeypatch.setattr(Path, "open", open_late)
    monkeypatch.setattr(Path, "exists", lambda _: True)
    assert policies_in(tmp_path) == ({"a.policy": b"score: 1\n"}, ())


def test_a_folder_is_looked_at_every_so_often(tmp_path):
    (tmp_path / "a.policy").write_text("score: 1\n", "utf-8")
    (tmp_path / "notes.txt").write_text("x", "utf-8")
    (tmp_path / "sub.policy").mkdir()
    source, clock, offers = folder(tmp_path)
    assert source.due == clock.monotonic()
    source.step(clock.monotonic())
    assert offers == [{"a.policy": b"score: 1\n"}]
    assert source.due == clock.monotonic() + 0.5
    (tmp_path / "a.policy").write_text("score: 2\n", "utf-8")
    source.step(clock.monotonic())
    assert len(offers) == 1, "not yet"
    look(source, clock)
    assert offers[-1] == {"a.policy": b"score: 2\n"}
    look(source, clock)
    assert len(offers) == 2, "nothing new"


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("pipe", "it is not a regular file"),
        ("device", "it is not a regular file"),
        ("long", "it is longer than 1 MiB"),
    ],
)
def test_what_would_be_waited_for_is_not_read_and_what_is_in_force_stays(what, said, tmp_path):
    path = tmp_path / "a.policy"
    path.write_text("score: 1\n", "utf-8")
    world, clock = World(), ManualClock()
    source = FolderSource(tmp_path, partial(world.reloader.offer, ONLY), clock)
    look(source, clock)
    world.worked()
    path.unlink()
    if what == "long":
        path.write_bytes(bytes((1 << 20) + 1))
    else:
        os.mkfifo(path) if what == "pipe" else path.symlink_to("/dev/null")
    look(source, clock)
    [refusal] = world.worked()
    assert refusal.text == f"folder x cannot be read: {path}: {said}"
    assert world.text == {"a.policy": "score: 1\n"}


def test_a_folder_that_goes_empty_and_comes_back(tmp_path):
    path = tmp_path / "policies"
    source, clock, offers = folder(path)
    look(source, clock)
    assert offers == [None], "not there from the start is said, too"
    path.mkdir()
    look(source, clock)
    (path / "a.policy").write_text("", "utf-8")
    look(source, clock)
    (path / "a.policy").rename(path / "b.policy")
    look(source, clock)
    assert offers[1:] == [{}, {"a.policy": b""}, {"b.policy": b""}]


def test_files_of_two_versions_of_a_folder_are_never_mixed(tmp_path, monkeypatch):
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
        for name in ("a.policy", "b.policy"):
            (tmp_path / version / name).write_text(f"score: {version}\n", "utf-8")
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    (mounted / "..data").symlink_to(tmp_path / "1")
    for name in ("a.policy", "b.policy"):
        (mounted / name).symlink_to(Path("..data") / name)
    opened, turns = Path.open, [str(tmp_path / "2")]

    def open_and_turn(path, *how):
        found = opened(path, *how)
        if turns:
            (mounted / "..new").symlink_to(turns.pop())
            (mounted / "..new").rename(mounted / "..data")
        return found

    monkeypatch.setattr(Path, "open", open_and_turn)
    found, _ = policies_in(mounted)
    assert found == dict.fromkeys(("a.policy", "b.policy"), b"score: 2\n")


def test_bytes_that_are_no_text_are_refused_with_the_file(tmp_path):
    (tmp_path / "a.policy").write_bytes(b"\xff\xfe")
    source, clock, offers = folder(tmp_path)
    look(source, clock)
    (refusal,) = World().offer(offers[0])
    assert "a.policy" in refusal.text


DEAR = {"a.policy": "filter: any(split(node.annotation[x], ' ') where node.name contains (it))\n"}


def test_a_file_whose_name_is_no_text_is_a_policy_all_the_same(tmp_path):
    (tmp_path / fsdecode(b"\xff.policy")).write_text("score: 1\n", "utf-8")
    world = World()
    ((bundle, _),) = world.offer(policies_in(tmp_path)[0])
    assert [plan.name for plan in bundle.plans] == [r"\xff"]


def test_costs_are_bounded_anew_when_the_cluster_outgrows_them_and_nothing_is_switched_off():
    world = World()
    ((bundle, _),) = world.offer(DEAR)
    assert bundle.warnings == ()
    assert world.grown(900, 20_000) == [], "that is what they were bounded for"
    assert world.grown(1_100, 100) == [], "that is not too much yet"
    assert world.grown(2_300, 100) == [("costly", bundle.hash, ["P320"])]
    assert world.grown(4_500, 100) == [], "twice of what there was has been bounded"
    assert world.grown(9_000, 100) == [("costly", bundle.hash, ["P321"])]
    assert (world.reloader.bundle, world.outgrown) == (bundle, 3), "each time it is told of"
    assert world.grown(10, 10) == world.grown(9_000, 100) == []


def test_a_large_cluster_is_what_new_texts_are_bounded_for():
    world = World()
    world.there = 9_000, 20_000
    (refusal,) = world.offer(DEAR)
    assert [one.code for one in refusal.diagnostics] == ["P321"]
    assert world.grown(50_000, 20_000) == [], "nothing is in force"


# ---- what is no policy ---------------------------------------------------------------------------


def offered(data=None, binary=None):
    got = []
    source = named(lambda *what: got.append(what), "x", "y")
    meta = ObjectMeta(name="y", namespace="x")
    source.on_add(ConfigMap(meta, data=data, binary_data=binary))
    return got[0]


def test_binary_data_is_refused_with_its_place_and_the_old_rules_stay():
    files, _ = offered(binary={"a.policy": base64.b64encode(b"filter: \xff\xfe").decode()})
    world = World()
    world.offer(GOOD)
    (refusal,) = world.offer(files)
    assert "P003]: the file is not UTF-8 (byte 9 is 0xff)" in refusal.text
    assert world.text == GOOD


def test_binary_data_that_is_text_is_text():
    files, over = offered({"readme": "x"}, {"a.policy": base64.b64encode(b"score: 1\n").decode()})
    assert (files, over) == ({"a.policy": b"score: 1\n"}, ("readme",))


@pytest.mark.parametrize("text", ["", "\n", "# filter: node.name is a\n", "policy: a\n"])
def test_a_key_without_a_text_is_a_policy_without_a_rule_and_told(text):
    world = World()
    ((bundle, _),) = world.offer(offered({"a.policy": text})[0])
    assert [(plan.name, plan.filters, plan.scores) for plan in bundle.plans] == [("a", (), ())]
    said = "the policy `a` has no statement, and changes nothing"
    assert [one.message for one in bundle.warnings] == [said]


def test_a_key_without_a_name_is_no_policy(caplog):
    assert offered({".policy": "score: 1\n"}) == ({}, (".policy",))
    assert "key .policy is skipped: a policy's key ends in .policy; call it NAME.policy" in (
        caplog.text
    )


def test_a_parameter_out_of_range_in_the_configuration_is_refused_where_it_is_declared():
    world = World(policies={"overrides": {"a": {"params": {"ceiling": 200}}}})
    (refusal,) = world.offer(
        {"a.policy": "param ceiling: number = 5 from 0 to 100\nscore: $ceiling\n"}
    )
    assert "P111]: the value of `ceiling` is not from 0 to 100" in refusal.text
