"""From files to plans: names, parameters, metrics, steps, and what a plan says of itself."""

import subprocess
import sys

import pytest

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


def test_a_plan_describes_itself():
    plan = plan_of(
        'policy: nice\ndescription: "what it does"\nversion: 1.2.0\nlanguage: 1\nmode: off\n'
        "order: 20\nweight: 3\n" + USER
    )
    assert plan.name == "nice"
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


def test_metrics_of_the_configuration():
    mine = {"bandwidth": MetricDefinition("my_query", by="node"), "heat": MetricDefinition("h")}
    plan = plan_of("score: 100 - bandwidth/max*100\nscore: heat\n", metrics=mine)
    assert [one.query for one in plan.metrics] == ["my_query", "h"]
    assert codes("score: heat\n") == ["P102"]
    plan = plan_of('metric bandwidth = promql "own"\nscore: bandwidth\n')
    assert plan.metrics[0].query == "own"


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


def test_importing_the_language_does_not_load_lark():
    code = (
        "import sys, dsl.plan, dsl.schema, dsl.reference, dsl.checker, dsl.lower\n"
        "assert 'lark' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=".")
