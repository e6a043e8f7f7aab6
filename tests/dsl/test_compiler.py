"""From files to plans: names, parameters, metrics, steps, and what a plan says of itself."""

import subprocess
import sys
import time

import numpy as np
import pytest

from dsl import reference
from dsl.compiler import Compiler
from dsl.diagnostics import render
from dsl.schema import MetricDefinition
from tests.dsl.worlds import FakePod, FakeWorld

COMPILER = Compiler()
USER = """\
filter: pod.name contains nginx -> node.label test=test
score: 100 - bandwidth/max*100
"""


def plan_of(text, **options):
    result = COMPILER.compile({"p.policy": text}, **options)
    assert result.ok, render(result.diagnostics)
    return result.plans[0]


def codes(text, **options):
    result = COMPILER.compile({"p.policy": text}, **options)
    return [one.code for one in result.diagnostics]


def nodes(*loads, labels=("test", None, "other")):
    return [
        {"node.name": name, "node.label[test]": label, "metrics": {"bandwidth": load}}
        for name, label, load in zip("abc", labels, loads, strict=True)
    ]


@pytest.mark.parametrize(
    ("loads", "scores"), [((10, 40, 0), [75.0, 0.0, 100.0]), ((0, 0, 0), [100.0, 100.0, 100.0])]
)
def test_the_two_lines_of_the_user(loads, scores):
    plan = plan_of(USER)
    world = FakeWorld(nodes(*loads)).knows(plan)
    rule = plan.filters[0]
    nginx, redis = FakePod.of({"pod.name": "nginx-1"}), FakePod.of({"pod.name": "redis"})
    assert rule.verdict(rule.prepare(nginx, world), world, slice(0, 3)).tolist() == [
        True, False, False,
    ]  # fmt: skip
    assert rule.prepare(redis, world) is None
    rows = np.arange(3)
    assert plan.score([plan.scores[0].prepare(redis, world)], world, rows).tolist() == scores
    assert rule.message(nginx, world, 1) == "node.label test=test is false: test is <none>"
    assert rule.message(nginx, world, 2) == "node.label test=test is false: test is other"


def test_a_plan_describes_itself():
    plan = plan_of(
        'policy: nice\ndescription: "what it does"\nversion: 1.2.0\nlanguage: 1\nmode: off\n'
        "order: 20\nweight: 3\n" + USER
    )
    assert (plan.name, plan.description, plan.version) == ("nice", "what it does", "1.2.0")
    assert (plan.mode, plan.order, plan.weight) == ("off", 20, 3.0)
    assert plan.reads == {"pod.name", "node.label", "metric:bandwidth"}
    rule = plan.filters[0]
    assert (rule.id, rule.line) == ("p.policy#1", 8)
    assert rule.text == "filter: pod.name contains nginx -> node.label test=test"
    assert rule.row_local
    assert not plan.scores[0].row_local
    assert plan.scores[0].reads_metrics
    assert [one.name for one in plan.metrics] == ["bandwidth"]
    assert plan.metrics[0].unit == "bytes/s"


@pytest.mark.parametrize(
    ("rule", "status"),
    [
        ("node.label a=b", "UnschedulableAndUnresolvable"),
        ("(cpu_usage ?? 0) < 0.5", "UnschedulableAndUnresolvable"),
        ("time.hour in 8..18", "UnschedulableAndUnresolvable"),
        ("node.cpu.allocatable > 4", "UnschedulableAndUnresolvable"),
        ("node.cpu.free > 4", "Unschedulable"),
        ("count(node.pods) < 4", "Unschedulable"),
        ("node.cpu.free > 4 status unresolvable", "UnschedulableAndUnresolvable"),
        ("node.label a=b status unschedulable", "Unschedulable"),
    ],
)
def test_status_follows_from_what_is_read(rule, status):
    assert plan_of(f"filter: {rule}\n").filters[0].status == status


def test_only_the_verdict_of_the_pod_goes_into_its_class():
    plan = plan_of("filter: not (pod.name contains nginx) or node.ready\n")
    world = FakeWorld([{"node.ready": True}])
    rule = plan.filters[0]
    parts = [rule.prepare(FakePod.of({"pod.name": name}), world) for name in ("a", "b", "nginx")]
    assert parts[0] == parts[1] != parts[2]
    plan = plan_of("score: pod.priority + load + number(pod.label[x])\n")
    one, two = (plan.scores[0].prepare(FakePod.of({}), world) for _ in range(2))
    assert one == two
    assert hash(one) == hash(two)


def test_parameters():
    text = (
        "param w: number = 2 from 1 to 3\nparam l: list of string = [a]\n"
        'param d: duration = 3m\nparam z: string = "x\\"y"\n'
        'metric m = promql "f{a=\\"$z\\"}[$d]$$ $w" by instance every 30s stale 5m default 0\n'
        "filter: node.label k in $l\nscore: m weight $w\n"
    )
    plan = plan_of(text)
    (spec,) = plan.metrics
    assert spec.query == 'f{a="x\\"y"}[3m]$ 2'
    assert (spec.by, spec.every_seconds, spec.stale_seconds, spec.default) == (
        "instance", 30.0, 300.0, 0.0,
    )  # fmt: skip
    assert plan.scores[0].weight == 2.0
    given = {"p": {"w": 3, "l": ["b", "c"], "d": "90s"}}
    plan = plan_of(text, params=given)
    assert plan.scores[0].weight == 3.0
    assert "[1m30s]" in plan.metrics[0].query
    world = FakeWorld([{"node.label[k]": "b"}, {"node.label[k]": "a"}])
    rule = plan.filters[0]
    assert rule.verdict(rule.prepare(FakePod(), world), world, slice(0, 2)).tolist() == [
        True,
        False,
    ]
    assert codes(text, params={"p": {"w": 4}}) == ["P111"]
    assert codes(text, params={"p": {"nothing": 4}}) == ["P105"]
    assert codes(text, params={"other": {"w": 4}}) == []


def test_metrics_of_the_configuration():
    mine = {"bandwidth": MetricDefinition("my_query", by="node"), "heat": MetricDefinition("h")}
    plan = plan_of("score: 100 - bandwidth/max*100\nscore: heat\n", metrics=mine)
    assert [one.query for one in plan.metrics] == ["my_query", "h"]
    assert codes("score: heat\n") == ["P102"]
    plan = plan_of('metric bandwidth = promql "own"\nscore: bandwidth\n')
    assert plan.metrics[0].query == "own"


def test_equal_sources_have_equal_ids():
    one = plan_of('metric a = promql "q" default 1\nscore: a\n').metrics[0]
    two = plan_of('metric b = promql "q"\nscore: b\n').metrics[0]
    other = plan_of('metric a = promql "q" every 1m\nscore: a\n').metrics[0]
    assert one.id == two.id != other.id


def test_percent_metrics_are_shares():
    (spec,) = plan_of('metric a = promql "q" unit percent\nscore: a*100\n').metrics
    assert spec.scale == 0.01


def test_result():
    result = COMPILER.compile(
        {"b.policy": "order: 5\n", "a.policy": "", "c.policy": b"# \xc3\xa9\n"}
    )
    assert [one.name for one in result.plans] == ["b", "a", "c"]
    bad = COMPILER.compile({"b.policy": "order: 5\n", "a.policy": "x"})
    assert not bad.plans
    assert not bad.ok
    assert result.hash != bad.hash
    assert (
        result.hash
        == Compiler()
        .compile({"a.policy": "", "c.policy": b"# \xc3\xa9\n", "b.policy": "order: 5\n"})
        .hash
    )
    assert COMPILER.compile({}).plans == ()


def test_broken_bytes():
    for data in (b"\xff\xfe\x00a", b"score: \xe9\n", "x" * 200_000, "\udc80"):
        result = COMPILER.compile({"p.policy": data})
        assert not result.ok
        render(result.diagnostics)


def test_steps_are_short():
    steps = COMPILER.steps({"p.policy": USER * 100})
    times = []
    start = time.perf_counter()
    for _ in steps:
        times.append(time.perf_counter() - start)
        start = time.perf_counter()
    assert sorted(times)[len(times) // 2] < 0.002
    assert len(times) > 400


def test_importing_the_language_does_not_load_lark():
    code = (
        "import sys, dsl.plan, dsl.schema, dsl.reference, dsl.checker, dsl.lower\n"
        "assert 'lark' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=".")


def test_weighted_mean_and_abstaining():
    plan = plan_of(
        "score: 10 weight 1\nscore: 40 weight 3\nscore: pod.name is x -> 100\nscore: load\n"
    )
    world = FakeWorld([{}, {}]).knows(plan)
    pod = FakePod.of({"pod.name": "y"})
    parts = [rule.prepare(pod, world) for rule in plan.scores]
    assert plan.score(parts, world, np.arange(2)).tolist() == [32.5, 32.5]
    assert plan_of("score: load\n").score([()], world, np.arange(2)) is None


def test_file_wide_normalisation_is_for_score_lines():
    plan = plan_of("score: node.memory.free\nprefer: node.ready\nnormalize: minmax\n")
    assert [rule.core.norm for rule in plan.scores] == ["minmax", "none"]


def test_applies_to_goes_before_every_rule():
    plan = plan_of("applies to: pod.namespace is prod\nfilter: node.ready\nscore: 5\n")
    world = FakeWorld([{}])
    prod, dev = (FakePod.of({"pod.namespace": one}) for one in ("prod", "dev"))
    for rule in (plan.filters[0], plan.scores[0]):
        assert rule.prepare(prod, world) == ()
        assert rule.prepare(dev, world) is None


def test_sums_do_not_depend_on_the_order_of_rows():
    plan = plan_of("score: sum(it.cpu over node.pods)/1000/cores(1)\n")
    values = [0.1] * 10 + [1e16, 1.0, -1e16]
    results = set()
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(values))
        world = FakeWorld([{}], [{"on": 0, "it.cpu": values[i]} for i in order])
        results.add(plan.scores[0].column((), world, slice(0, 1), np.arange(1)).tolist()[0])
    assert len(results) == 1


def test_a_changed_snapshot_is_seen():
    (count_rule,) = plan_of("filter: count(node.pods) < 2\n").filters
    first = FakeWorld([{}, {}], [{"on": 0}])
    second = FakeWorld([{}, {}], [{"on": 0}, {"on": 0}], dictionary=first.dictionary)
    assert count_rule.verdict((), first, slice(0, 2)).tolist() == [True, True]
    assert count_rule.verdict((), second, slice(0, 2)).tolist() == [False, True]
    assert count_rule.verdict((), second, np.array([0])).tolist() == [False]


def test_explanations_show_what_was_tried():
    plan = plan_of(
        "filter: node.cpu.requested + pod.cpu <= 80% of node.cpu.allocatable\n"
        "forbid: node.zone == 'eu-1c'\n"
        "filter: node.ready and node.label[a] == pod.label[b]\n"
        'filter: node.memory.free > 2Gi message "{node.name} has {node.memory.free}, {{sic}}"\n'
        "filter: node.taint k=v\n"
    )
    world = FakeWorld([{
        "node.name": "n", "node.cpu.requested": 3500.0, "node.cpu.allocatable": 4000.0,
        "node.zone": "eu-1c", "node.ready": True, "node.label[a]": "x",
        "node.memory.free": 1.5 * 2**30,
    }])  # fmt: skip
    pod = FakePod.of({"pod.cpu": 250.0})
    assert [rule.message(pod, world, 0) for rule in plan.filters] == [
        "node.cpu.requested + pod.cpu <= 80% of node.cpu.allocatable is false: "
        "node.cpu.requested is 3500m; pod.cpu is 250m; node.cpu.allocatable is 4",
        "node.zone == 'eu-1c' is true: node.zone is eu-1c",
        "node.label[a] == pod.label[b] is false: node.label[a] is x; pod.label[b] is <none>",
        "n has 1.5Gi, {sic}",
        "node.taint k=v is false: k=v is false",
    ]
    assert not reference.passes(plan.filters[0].core, world, pod, 0)


@pytest.mark.parametrize(
    "text",
    [
        "score: sum(node.cpu.free/cores(1) over cluster.pods)",
        "score: sum(count(node.pods) over cluster.pods)",
        "let n = count(node.pods)\nscore: sum(n over zone.pods)",
        "score: max(it.gpu)",
        "score: max(1 where it.gpu > 1)",
        "applies to: load > 5",
        "score: max(load) > 5 -> 5",
    ],
)
def test_levels(text):
    assert codes(text + "\n") == ["P202"]


def test_aggregates_inside_aggregates():
    plan = plan_of(
        "score: sum(it.gpu/max(node.gpu.free) over cluster.pods)\n"
        "score: count(cluster.pods where it.gpu >= avg(it.gpu over cluster.pods))\n"
        "score: count(node.pods where it.gpu >= count(node.pods))\n"
    )
    world = FakeWorld(
        [{"node.gpu.free": 2.0}, {"node.gpu.free": 4.0}],
        [{"on": 0, "it.gpu": 2.0}, {"on": 0, "it.gpu": 4.0}, {"on": 1}],
    )
    rows = np.arange(2)
    columns = [rule.column((), world, rows, rows).tolist() for rule in plan.scores]
    assert columns == [[1.5, 1.5], [2.0, 2.0], [2.0, 0.0]]
    for rule, column in zip(plan.scores, columns, strict=True):
        views = [reference.View(world, FakePod(), row, (0, 1)) for row in (0, 1)]
        assert [reference.evaluate(rule.core.value, one) for one in views] == column


def test_labels_compare_as_quantities():
    plan = plan_of("filter: node.label mem >= 8Gi\nfilter: pod.priority in [(1/0), 5]\n")
    world = FakeWorld([{"node.label[mem]": "16Gi"}, {"node.label[mem]": "4Gi"}, {}])
    rule = plan.filters[0]
    assert rule.verdict((), world, slice(0, 3)).tolist() == [True, False, False]
    rule = plan.filters[1]
    (part,) = rule.prepare(FakePod.of({"pod.priority": float("nan")}), world)
    assert part is False
