"""Journals: decisions made again from what was written down come out the same."""

from __future__ import annotations

import asyncio
import errno
import io
import json
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cli import main
from engine.cli.check_journal import Changes, Outcome
from engine.cli.replay import frameworks_of
from engine.clock import ManualClock
from engine.configuration.settings import Settings
from engine.cycle import conclude
from engine.evictions import going
from engine.framework.decision import Placed
from engine.framework.opinion import Opinion, Scored
from engine.journal.recorder import Recorder, RecordingCache
from engine.journal.replay import replay
from engine.objects import Namespace, from_builtins
from engine.objects.storage import PersistentVolume, StorageClass
from engine.objects.workloads import ElasticQuota
from engine.policy.bundle import Bundle, compile_at_once, compile_settings
from engine.signals.samples import Series
from engine.signals.store import SignalStore
from engine.simulate.lab import Lab
from tests.builders import changed, make_node, make_pod, pod_object
from tests.effort import examples
from tests.engine.policy.builders import NOW, compiler

FILES = {
    "network.policy": (
        "filter: pod.name contains web -> node.label test=test\n"
        "score: 100 - bandwidth/max*100\n"
        "filter: (metric_age(bandwidth) ?? 0s) < 100s\n"
    ),
    "room.policy": "filter: pod.cpu > 0.5 -> count(node.pods) < 2\nprefer: time.minute in 0..30\n",
    "home.policy": "filter: namespace.label closed=yes -> node.name is n1\n",
}
FRAMEWORKS_OF = frameworks_of()
OTHER = {"network.policy": b"\xef\xbb\xbfscore: node.cpu.free normalize minmax\r\n"}


class Recording:
    """A recorder around a real cache, real metrics and the real cycle."""

    def __init__(self, **berth):
        self.out = io.BytesIO()
        self.settings = Settings.model_validate({"berth": berth})
        self.clock = ManualClock(NOW)
        self.store = SignalStore(clock=self.clock)
        self.bundle = None
        self.recorder = Recorder(self.out, self._ids)
        self.cache = self.recorder.cache
        self.names = count()
        self.decisions = []

    def _ids(self):
        return tuple(spec.id for spec in self.bundle.metrics)

    def rules(self, files):
        made = compile_at_once(compiler(), files, compile_settings(self.settings.berth))
        assert isinstance(made, Bundle), made.text
        self.bundle = made
        self.store.set_specs(made.metrics)
        recorded = {"settings": self.settings.model_dump_json()}
        self.recorder.rules(made.hash, made.files, recorded)
        [self.framework] = FRAMEWORKS_OF(made.files, recorded)
        assert self.framework.bundle == made.hash

    def node(self, node):
        self.cache.add_node(node)
        self.store.nodes_changed(None, node)

    def sample(self, values, age=0.0):
        time = self.clock.time() - age
        self.series(*(Series((name,), value, time) for name, value in values.items()))

    def series(self, *answer):
        for question in self.store.questions():
            self.store.ingest(question, answer)

    def pod(self, name="web", cpu="100m", **how):
        return self.placed(make_pod(f"{name}-{next(self.names)}", cpu=cpu, **how))

    def placed(self, pod, opinion=None):
        now = self.clock.time()
        snapshot = self.cache.snapshot(now, self.store.view(self.cache, now))
        decision = conclude(pod, snapshot, self.framework, opinion)
        self.recorder.placed(Placed(decision, snapshot, 0.0))
        self.decisions.append(decision)
        if decision.node is not None:
            self.cache.assume(pod, decision.node)
        return pod

    def replayed(self, path):
        path.write_bytes(self.out.getvalue())
        return replay(path, FRAMEWORKS_OF)


def recorded():
    """A bit of everything."""
    recording = Recording(timeZone="Europe/Berlin", seed=3)
    for name, test in (("n1", "test"), ("n2", "test"), ("n3", "other")):
        recording.node(make_node(name, cpu="4", labels={"test": test}))
    recording.rules(FILES)
    first = recording.pod()
    recording.sample({"n1": 5.0, "n2": 50.0, "n3": 0.0})
    for cpu in ("100m", "1", "2", "99"):
        recording.pod(cpu=cpu)
        recording.pod("redis", cpu=cpu)
    recording.clock.advance(45.0)
    recording.sample({"n1": 50.0, "n2": 5.0}, age=7.25)
    recording.pod()
    recording.cache.forget(first.uid)
    closed = {"metadata": {"name": "default", "labels": {"closed": "yes"}}}
    recording.cache.set_namespace(from_builtins(Namespace, closed))
    recording.pod("redis")
    recording.cache.remove_namespace("default")
    recording.cache.remove_node("n2")
    recording.pod()
    recording.clock.advance(200.0)  # the samples are stale now
    recording.pod("redis")
    recording.rules(OTHER)
    recording.node(make_node("n3", cpu="64"))
    recording.cache.add_pod(make_pod("theirs", cpu="3", node="n3"), "n3")
    recording.pod("redis")
    recording.cache.remove_pod("uid-default-theirs")
    recording.pod("redis")
    return recording


def test_a_node_that_changes_is_written_once():
    lines = []
    cache = RecordingCache(lines.append)
    for cpu in "123":
        cache.add_node(make_node("n1", cpu=cpu))
    assert len(lines) == 3


def test_decisions_come_out_the_same(tmp_path):
    recording = recorded()
    report = recording.replayed(tmp_path / "journal")
    assert report.differences == []
    assert report.decisions == report.equal == len(recording.decisions) == 15
    assert {d.node for d in recording.decisions} > {None, "n1", "n2", "n3"} - {"n2"}
    assert report.cache.assigned() == recording.cache.assigned()


def test_what_extenders_said_is_part_of_a_journal(tmp_path):
    recording = Recording()
    for name in ("n1", "n2", "n3"):
        recording.node(make_node(name, cpu="1"))
    recording.cache.add_pod(make_pod("low", cpu="1", node="n2", priority=-1), "n2")
    recording.rules(OTHER)
    both = ["n1", "n3"]
    best = [Scored("http://x", 9, {"n3": 10})]
    recording.placed(make_pod("a"), Opinion(asked=both, passed=both, scores=best))
    recording.placed(make_pod("b"), Opinion(asked=both, failed={"n1": "no"}))
    recording.placed(make_pod("c"), Opinion(error="extender http://x/filter: it answers HTTP 500"))
    for victims in ({"n2": ["uid-default-low"]}, {}):
        recording.placed(make_pod("d", cpu="1"), Opinion(asked=both, victims=victims))
    said = [(one.node, one.message.partition(":")[0]) for one in recording.decisions]
    none = "0/3 nodes are available"
    assert said == [("n3", ""), (None, none), (None, "extender http"), (None, none), (None, none)]
    evicted = [len(one.rescue.evictions) if one.rescue else 0 for one in recording.decisions]
    assert evicted == [0, 0, 0, 1, 0]
    report = recording.replayed(tmp_path / "journal")
    assert (report.differences, report.equal) == ([], 5)


def test_who_is_being_evicted_is_part_of_a_journal(tmp_path):
    recording = Recording()
    recording.rules({"q.policy": "quota: by pod.namespace elastic\n"})
    recording.node(make_node("n1", cpu="8"))
    for namespace in ("a", "b"):
        meta, spec = {"name": "q", "namespace": namespace}, {"min": {"cpu": 1}, "max": {"cpu": 2}}
        own = from_builtins(ElasticQuota, {"metadata": meta, "spec": spec})
        recording.cache.set_object(own)
    for name in ("a1", "a2"):
        running = make_pod(name, namespace="a", cpu="1", node="n1")
        recording.cache.add_pod(running, "n1")
    waits = recording.pod("b", namespace="b", cpu="1")
    for leaving in ({}, {"uid-a-a2": "n1"}, {}):
        recording.cache.evicts(waits.uid, leaving)
        recording.pod("a", namespace="a", cpu="1")
    none, some, again = [one.message for one in recording.decisions[1:]]
    assert none == again != some
    report = recording.replayed(tmp_path / "journal")
    assert (report.differences, report.equal) == ([], 4)


def test_objects_and_what_is_assumed_of_them_come_out_the_same(tmp_path):
    recording, said = Recording(), {"metadata": {"name": "pv", "resourceVersion": "1"}}
    cache = recording.cache
    claimed = {**said, "spec": {"claimRef": {"namespace": "ns", "name": "data"}}}
    for step in (
        lambda: cache.set_object(from_builtins(PersistentVolume, said)),
        lambda: cache.assume_object(from_builtins(PersistentVolume, claimed)),
        lambda: cache.restore_object("PersistentVolume", "pv", "1"),
        lambda: cache.set_object(from_builtins(StorageClass, {"metadata": {"name": "fast"}})),
        lambda: cache.remove_object("PersistentVolume", "pv"),
    ):
        step()
        again = recording.replayed(tmp_path / "journal").cache
        for kind in ("PersistentVolume", "StorageClass"):
            assert again.store(kind).objects == cache.store(kind).objects
            assert again.store(kind).said("pv") == cache.store(kind).said("pv")


def test_the_journal_reads_as_lines_of_json():
    lines = [json.loads(line) for line in recorded().out.getvalue().splitlines()]
    assert lines[0] == {"what": "journal", "format": 7}
    kinds = {line["what"] for line in lines}
    assert kinds == {
        "journal",
        "rules",
        "signals",
        "decision",
        "add_node",
        "remove_node",
        "set_namespace",
        "remove_namespace",
        "assume",
        "forget",
        "add_pod",
        "remove_pod",
    }
    signals = [line for line in lines if line["what"] == "signals"]
    assert len(signals) < 10, "written when they change, not with every decision"


ZONE = "topology.kubernetes.io/zone"


def in_zone(name, zone):
    return make_node(name, cpu="4", labels={ZONE: zone})


def test_decisions_by_metrics_of_zones_come_out_the_same(tmp_path):
    recording = Recording()
    for name, zone in (("n1", "z1"), ("n2", "z1"), ("n3", "z2")):
        recording.node(in_zone(name, zone))
    recording.rules(
        {
            "green.policy": 'metric carbon = promql "q" by zone stale 5m\n'
            "filter: carbon < 300 or carbon is missing\nprefer: least carbon\n"
        }
    )
    recording.pod()
    for values in ({"z1": 100.0, "z2": 200.0}, {"z1": 900.0}, {"z1": 50.0, "z2": 400.0}):
        recording.sample(values)
        recording.pod()
        recording.clock.advance(20.0)
    for zone in ("z2", "z9"):
        recording.node(in_zone("n1", zone))
        recording.pod()
    chosen = [one.node for one in recording.decisions]
    assert chosen[2] == "n3"
    assert {chosen[1], chosen[3]} <= {"n1", "n2"}
    assert chosen[4] == "n2"
    report = recording.replayed(tmp_path / "journal")
    assert report.differences == []
    assert report.decisions == 6


def test_promises_and_victims_come_out_the_same(tmp_path):
    recording = Recording()
    recording.node(make_node("n1", cpu="2"))
    recording.rules({"any.policy": "score: 50\n"})
    low = make_pod("low", cpu="2", node="n1")
    recording.cache.add_pod(low, "n1")
    high = recording.pod("high", cpu="2", priority=10)
    assert recording.decisions[-1].rescue.nominated == "n1"
    recording.cache.nominate(high, "n1")
    recording.cache.carry(going(low.pod, "to make room", 0.0))
    recording.cache.remove_pod(low.uid)
    recording.pod("small", cpu="1")
    assert recording.decisions[-1].node is None, "the room is promised"
    recording.cache.withdraw(high.uid)
    recording.pod("small", cpu="1")
    assert recording.decisions[-1].node == "n1"
    report = recording.replayed(tmp_path / "journal")
    assert (report.decisions, report.differences) == (3, [])


def test_decisions_by_metrics_of_the_cluster_come_out_the_same(tmp_path):
    recording = Recording()
    for name in ("n1", "n2"):
        recording.node(make_node(name, labels={"kind": name}))
    recording.rules(
        {
            "spot.policy": 'metric price = promql "q" by cluster unit percent stale 1m\n'
            'prefilter: pod.label app != x or price is missing or price < 0.5 message "{price}"\n'
            "prefer: (price ?? 1) < 0.2 and node.label kind=n2 or node.label kind=n1\n"
        }
    )
    recording.pod(labels={"app": "x"})
    for price, wait in ((70.0, 10.0), (30.0, 0.0), (10.0, 61.0)):
        recording.series(Series((), price, recording.clock.time()))
        recording.pod(labels={"app": "x"})
        recording.pod()
        recording.clock.advance(wait)
    recording.pod(labels={"app": "x"})
    chosen = [one.node for one in recording.decisions]
    assert chosen[0] == chosen[-1] == "n1"
    assert chosen[1] is None
    assert recording.decisions[1].fit_error.message().endswith("0.7 (spot.policy:2).")
    report = recording.replayed(tmp_path / "journal")
    assert report.differences == []
    assert report.decisions == 8


def test_a_pod_that_is_forgotten_after_it_was_confirmed_stays(tmp_path):
    recording = Recording()
    recording.node(make_node("n1", cpu="2"))
    recording.rules({"any.policy": "score: 50\n"})
    first = recording.pod(cpu="2")
    recording.cache.add_pod(make_pod("web-0", cpu="2", node="n1"), "n1")
    assert not recording.cache.forget(first.uid)
    recording.pod(cpu="2")
    assert recording.decisions[-1].node is None
    assert recording.replayed(tmp_path / "journal").differences == []


# ---- any history ---------------------------------------------------------------------------------

steps = st.one_of(
    st.tuples(
        st.just("pod"), st.sampled_from(["web", "redis"]), st.sampled_from(["100m", "1", "3"])
    ),
    st.tuples(st.just("pod"), st.sampled_from(["web", "redis"]), st.just("100m")),
    st.tuples(st.just("node"), st.integers(1, 4), st.sampled_from(["test", "other"])),
    st.tuples(st.just("gone"), st.integers(1, 4)),
    st.tuples(
        st.just("sample"),
        st.dictionaries(
            st.sampled_from(["n1", "n2", "n3"]), st.floats(0, 1e9, allow_subnormal=False)
        ),
        st.sampled_from([0.0, 0.1, 33.3, 99.999]),
    ),
    st.tuples(st.just("wait"), st.floats(0.0, 100.0)),
    st.tuples(st.just("rules"), st.sampled_from([FILES, OTHER, {"empty.policy": "# none\n"}])),
)


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(steps, max_size=20))
def test_any_history_is_made_again(tmp_path_factory, history):
    recording = Recording()
    recording.rules(FILES)
    for step in history:
        match step:
            case ("pod", name, cpu):
                recording.pod(name, cpu)
            case ("node", number, test):
                recording.node(make_node(f"n{number}", labels={"test": test}))
            case ("gone", number):
                recording.cache.remove_node(f"n{number}")
            case ("sample", values, age):
                recording.sample(values, age)
            case ("wait", seconds):
                recording.clock.advance(seconds)
            case ("rules", files):
                recording.rules(files)
    report = recording.replayed(tmp_path_factory.mktemp("j") / "journal")
    assert report.differences == []
    assert report.decisions == len(recording.decisions)


# ---- journals that are not right -----------------------------------------------------------------


@pytest.fixture
def journal(tmp_path):
    """A recorded journal that can be changed by line."""
    path = tmp_path / "journal"
    path.write_bytes(recorded().out.getvalue())

    def change(kind, **to):
        lines = path.read_text("utf-8").splitlines()
        for number, line in enumerate(lines):
            entry = json.loads(line)
            if entry["what"] == kind:
                lines[number] = json.dumps({**entry, **to})
                path.write_text("\n".join(lines) + "\n", "utf-8")
                return number + 1
        raise AssertionError(kind)

    change.path = path
    return change


@pytest.mark.parametrize(
    "to", [{"chosen": "n3"}, {"total": 1.5}, {"feasible": 99}, {"bundle": "x"}, {"message": "no"}]
)
def test_a_decision_that_was_changed_is_noticed_with_its_line(to, journal):
    line = journal("decision", **to)
    report = replay(journal.path, FRAMEWORKS_OF)
    assert report.equal == report.decisions - 1
    (difference,) = report.differences
    assert difference.startswith(f"line {line}: default/web-0: was ")


def test_a_sample_that_was_changed_is_noticed(journal):
    lines = journal.path.read_text("utf-8").splitlines()
    for number, line in enumerate(lines):
        if '"signals"' in line and '"n1":5.0' in line:
            lines[number] = line.replace('"n1":5.0', '"n1":500.0')
    journal.path.write_text("\n".join(lines), "utf-8")
    assert replay(journal.path, FRAMEWORKS_OF).differences


@pytest.mark.parametrize(
    ("what", "to", "said"),
    [
        ("journal", {"format": 6}, "this version reads format 7, not 6"),
        ("journal", {"what": "rules"}, "a journal has its format in the first line"),
        ("add_node", {"what": "journal"}, "a journal has its format in the first line"),
        ("add_node", {"what": "knode"}, "nothing is called 'knode'"),
        ("add_node", {"args": None}, "add_node has 0 arguments, not 1"),
        ("add_node", {"args": [None]}, "Expected `object`, got `null`"),
        ("add_node", {"args": [{"metadata": {"name": 7}}]}, "Expected `str`, got `int`"),
        ("assume", {"args": [None, "n1"]}, "Expected `object`, got `null`"),
        ("decision", {"pod": None}, "the pod is missing"),
        ("rules", {"settings": {}}, "1 validation error for Settings"),
        ("rules", {"what": "remove_namespace", "args": ["x"]}, "a decision before any rules"),
    ],
)
def test_a_line_that_does_not_follow_is_named(what, to, said, journal):
    line = journal(what, **to)
    with pytest.raises(ValueError, match=said) as error:
        replay(journal.path, FRAMEWORKS_OF)
    message = str(error.value)
    assert "\n" not in message
    if said != "a decision before any rules":
        assert message.startswith(f"{journal.path}:{line}: ")


def test_a_pod_assumed_twice_is_named(journal):
    lines = journal.path.read_text("utf-8").splitlines()
    twice = next(number for number, line in enumerate(lines) if '"assume"' in line)
    journal.path.write_text("\n".join([*lines[: twice + 1], lines[twice], ""]), "utf-8")
    with pytest.raises(ValueError, match=f":{twice + 2}: .* is already on "):
        replay(journal.path, FRAMEWORKS_OF)


# ---- the command ---------------------------------------------------------------------------------


def run(*args):
    return CliRunner().invoke(main, ["replay", *(str(each) for each in args)])


def test_replay_says_that_all_are_the_same(journal):
    result = run(journal.path)
    assert (result.exit_code, result.stdout) == (0, "15 decisions replayed, 15 the same\n")


def test_replay_leaves_out_a_last_line_that_was_cut_off(journal):
    whole = journal.path.read_bytes()
    last = whole.rindex(b'{"what":"decision"')
    journal.path.write_bytes(whole[: last + 20])
    result = run(journal.path)
    assert (result.exit_code, result.stdout) == (0, "14 decisions replayed, 14 the same\n")
    assert "the last line is cut off" in result.stderr


@pytest.mark.parametrize("whole", [True, False], ids=["refused", "cut short"])
def test_a_disk_that_is_full_ends_the_journal_and_nothing_else(whole, caplog):
    class Disk(io.BytesIO):
        def write(self, line):
            if self.tell() > 100 and whole:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(line if self.tell() <= 100 else line[:7])

    recorder = Recorder(disk := Disk(), lambda: ())
    for number in range(9):
        recorder.cache.add_node(make_node(f"n{number}"))
    assert [record.message for record in caplog.records] == [
        "The journal ends here: it cannot be written: No space left on device"
    ]
    assert all(json.loads(line) for line in disk.getvalue().split(b"\n")[:-1])


def test_replay_exits_1_and_shows_what_differs(journal):
    line = journal("decision", chosen="n3")
    result = run(journal.path)
    assert result.exit_code == 1
    difference, summary = result.stdout.splitlines()
    assert difference.startswith(f"line {line}: ")
    assert summary == "15 decisions replayed, 14 the same"


@pytest.mark.parametrize("text", ["", "hello\n", '{"what":"rules"}\n', "[]\n", "\x00"])
def test_replay_of_something_else_is_one_line(text, tmp_path):
    path = tmp_path / "other"
    path.write_text(text, "utf-8")
    result = run(path)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {path}")
    assert result.stderr.count("\n") == 1


def test_replay_of_rules_that_this_version_refuses_shows_why(journal):
    journal("rules", files={"a.policy": "filter: node.lable x=y\n"})
    result = run(journal.path)
    assert result.exit_code == 1
    assert "--> a.policy:1:9" in result.stderr


def test_replay_of_a_file_that_is_not_there(tmp_path):
    assert run(tmp_path / "none").exit_code == 2


# ---- what is done about pods on their nodes

ACTING = (
    "permit: pod.label held -> wait 60s until pod.annotation go=yes\n"
    'prebind: annotate a.b/c = score.total, label a.b/d = node.name, event "on {node.name}"\n'
    "bind: pod.label dry -> dry run\n"
    'postbind: label a.b/e = "f"\n'
    "reserve: count(node.pods) < 5\n"
    "score: 40\n"
)


def acted(tmp_path):
    """The journal of a scheduler whose policies act, and its decisions."""
    recording = Recording()
    recording.rules({"p.policy": ACTING.encode()})

    async def run():
        lab = Lab(
            recording.framework,
            clock=recording.clock,
            signals=recording.store,
            cache=recording.cache,
        )
        lab.scheduler.observe(recording.recorder.placed)
        lab.scheduler.observe_acts(recording.recorder.acted)
        lab.add([make_node("n1", cpu="4")])
        held = pod_object("held", labels={"held": "yes"})
        lab.add([held, pod_object("dry", labels={"dry": "yes"}), pod_object("plain")])
        await lab.turn()
        lab.handlers.pods.on_update(held, changed(held, metadata={"annotations": {"go": "yes"}}))
        lab.add([pod_object(name) for name in ("two", "three", "four")])
        for _ in range(9):
            await lab.turn()
        return lab

    lab = asyncio.run(run())
    assert {one.pod.name for one in lab.written.bound} == {"held", "plain", "two", "three"}
    return recording, {one.pod.name: one for one in lab.decisions}


def test_what_plugins_had_done_is_in_the_decision_and_comes_out_the_same(tmp_path):
    recording, decisions = acted(tmp_path)
    report = recording.replayed(tmp_path / "journal")
    assert report.differences == []
    assert report.decisions == len(decisions)
    waits, *rest = decisions["held"].said
    assert waits.startswith("held by p: permit: pod.label held -> wait 60s")
    assert len(rest) == len(decisions["plain"].said)
    assert [one.partition(":")[0] for one in decisions["plain"].said] == [
        "annotate a.b/c=435",
        "patch Pod plain",
        "event Policy",
        "then patch Pod plain",
    ]
    assert "dry run" in decisions["dry"].said
    assert decisions["four"].said[0].startswith("refused by p: ")


def test_what_would_be_done_otherwise_is_a_difference(tmp_path):
    recording, _ = acted(tmp_path)
    recording.out = io.BytesIO(recording.out.getvalue().replace(b"event Policy: on n1", b"event"))
    assert recording.replayed(tmp_path / "journal").differences


# ---- what others would have done -----------------------------------------------------------------


def weighed(journal, tmp_path, **texts):
    folder = tmp_path / "policies"
    folder.mkdir()
    for name, text in texts.items():
        (folder / f"{name}.policy").write_text(text)
    done = CliRunner().invoke(main, ["check", "--journal", str(journal.path), str(folder)])
    return done.exit_code, done.stdout, done.stderr.replace(str(tmp_path), "")


def test_check_says_which_pods_of_a_journal_would_have_gone_elsewhere(journal, tmp_path):
    texts = {name.removesuffix(".policy"): text for name, text in FILES.items()}
    code, _, said = weighed(journal, tmp_path, **texts)
    assert code == 0
    same = "of the newest 15 decisions of /journal: 0 nowhere now, 0 nowhere before, 0 elsewhere\n"
    assert said.startswith(same), "the same policies do the same"
    (tmp_path / "policies").rename(tmp_path / "old")
    code, printed, said = weighed(
        journal, tmp_path, only="filter: pod.name contains redis -> node.name is n9\n"
    )
    assert code == 0, "a warning is none of its errors"
    assert ", now nowhere\n" in said
    assert "warning[P404]: " in printed
    assert "filter: pod.name contains redis -> node.name is n9" in printed
    assert "such as default/redis-" in printed
    assert "1 warning" in said
    asked = ["check", "--journal", str(journal.path), str(tmp_path / "policies"), "--format=json"]
    told = json.loads(CliRunner().invoke(main, asked).stdout)
    assert ([one["code"] for one in told["diagnostics"]], told["decisions"]) == (["P404"], 15)
    moved = [(one["pod"], one["was"], one["now"] or "nowhere") for one in told["moved"]]
    lines = ["{}: was {}, now {}".format(*one) for one in moved]
    assert lines == [line for line in said.splitlines() if ": was " in line]


def test_check_by_a_journal_lists_every_pod_that_would_have_gone_elsewhere():
    changes = Changes(Path("journal"))
    changes.each.extend(Outcome(f"default/p{number}", "a", "b") for number in range(30))
    *moved, counted = changes.told(())
    assert moved == [f"default/p{number}: was a, now b" for number in range(30)]
    assert counted.endswith("0 nowhere now, 0 nowhere before, 30 elsewhere")


def test_check_by_a_journal_says_what_it_does_not_know(journal, tmp_path):
    more = "avoid: workload.replicas > count(node.finished where it.annotation a=b)\n"
    _, printed, said = weighed(journal, tmp_path, new=f"score: 100 - latency/max*100\n{more}")
    assert "the journal has no values of latency, which count as missing here" in said
    missing = "finished, annotations of pods on nodes, workloads"
    assert f"when the journal was made, so they are missing here: {missing}\n" in said
    assert "P404" not in printed


def test_check_by_a_journal_of_what_is_broken_or_no_journal(journal, tmp_path):
    code, printed, said = weighed(journal, tmp_path, a="filter: node.lable x=y\n")
    assert (code, "error[P101]" in printed, "decisions" in said) == (1, True, False)
    journal.path.write_text("{}\n")
    (tmp_path / "policies").rename(tmp_path / "old")
    code, _, said = weighed(journal, tmp_path, a="score: 1\n")
    assert (code, "not a line of a journal" in said) == (1, True)
