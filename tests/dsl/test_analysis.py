"""What the analysis finds, and above all where it is silent."""

import re
from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import CliRunner

from dsl.analysis import Size, read_inventory
from dsl.compiler import Compiler
from dsl.diagnostics import render
from engine.cli import main
from tests.effort import each

EXAMPLES = (Path(__file__).parent / "data" / "examples.txt").read_text(encoding="utf-8")
COMPILER = Compiler()
DEFAULT = 'metric m = promql "q" default 0\n'
STOCK = read_inventory(
    {
        "inventory": 1,
        "nodes": [
            {"name": "a", "labels": {"test": "test", "topology.kubernetes.io/zone": "eu-1a"}},
            {"name": "b", "labels": {"disk": "ssd"}},
        ],
        "namespaces": [{"name": "prod", "labels": {"team": "ml"}}],
        "images": ["registry/app:1"],
        "pods": 3,
    }
)


def found(text, **options):
    return COMPILER.compile({"a.policy": text}, **options).diagnostics


def codes(text, **options):
    return [one.code for one in found(text, **options)]


@each(
    "text, expected",
    [
        ("filter: pod.priority > 5 and pod.priority < 3", ["P301"]),
        ("applies to: pod.namespace is b\nfilter: pod.namespace is a -> node.ready", ["P301"]),
        ("applies to: pod.namespace is b\nscore: pod.namespace is a -> node.gpu.free", ["P301"]),
        ("filter: node.label k=1 and not node.label k", ["P301"]),
        ("filter: pod.name is missing", ["P301"]),
        ("filter: time.hour > 23", ["P301"]),
        ("filter: node.cpu.capacity < 0", ["P301"]),
        ("filter: any(node.pods where it.qos is BestEffort and it.qos is Burstable)", ["P301"]),
        ("let a = node.label k=1\nlet b = node.label k=2\nfilter: a and b", ["P301"]),
        ("filter: node.label k!=1 or node.label k!=2", ["P303"]),
        ("filter: node.label k or not node.label k", ["P303"]),
        ("prefer: node.cpu.capacity >= 0", ["P303"]),
        ("filter: node.ready\nfilter: pod.gpu > 0 -> node.ready", ["P304"]),
        ("forbid: not node.ready\nfilter: node.ready", ["P304"]),
        ("let t = pod.label[t]\nfilter: t is present -> node.label[t] is t", ["P317"]),
        ("filter: node.label k=1\nfilter: node.label k=2", ["P302"]),
        ("forbid: node.label k\nfilter: pod.label a=1 -> node.label k=1", ["P302"]),
        ("applies to: pod.gpu > 3\nfilter: node.label k=1\nforbid: node.label k", ["P302"]),
        ("score: 100 - cpu_usage*200", ["P310"]),
        ("score: if node.ready then 150 else 0", ["P310"]),
        ("score: pod.priority", ["P312"]),
        ("score: node.gpu.free weight 0", ["P312"]),
        (DEFAULT + "score: 100 - m/max*100", ["P314"]),
        (DEFAULT + "score: 100 - 2*m", ["P314"]),
        (DEFAULT + "prefer: least m", ["P314"]),
        ("score: 100 - cpu_usage*100 missing 100", ["P314"]),
        ("filter: pod.name is 'a$b' and pod.name is c", ["P301", "P317"]),
        ("let a = 5\nfilter: node.ready", ["P316"]),
        ("let a = b\nlet b = 5\nfilter: node.ready", ["P316", "P316"]),
        ("filter: node.cpu.free > 2 status unresolvable", ["P318"]),
        ("filter: node.label k=1 status unschedulable", ["P318"]),
        ("filter: pod.name is 'web*' or node.zone like '%a%'", ["P317"] * 2),
        ('filter: pod.namespace is "a|b" or pod.name contains "^web$"', ["P317"] * 2),
        ("filter: pod.namespace in [Prod, dev]", ["P317"]),
        ("filter: node.os is Linux or pod.owner.kind is cronjobs", ["P317"] * 2),
        ("filter: node.os is ubuntu or node.kernel is '5.10' or pod.name is my_pod", ["P317"] * 3),
        ("filter: node.kubelet_version starts with 1.31 or node.zone is 'a b'", ["P317"] * 2),
        ("filter: node.os_image contains ubuntu or node.name like 'gpu_*'", ["P317"] * 2),
        ('param x = a\nfilter: node.label k="$x" or node.taint NoSchedule', ["P317"] * 2),
        ("filter: pod.name contains web and node.label a=b", ["P227"]),
        ("preempt: victims where it.priority < 5 order pod.queued_at", ["P223"]),
        ("quota: by pod.namespace min cpu 1 elastic reclaim pod.priority, it.name", ["P223"]),
        ("filter: node.cpu.requested / node.cpu.allocatable < 80", ["P222"]),
        ("filter: (load/max(load) ?? 0) < 80", ["P222"]),
        ("filter: rank(node.cpu.free) < 30", ["P222"]),
        ("filter: count(node.pods) < 80%", ["P222"]),
        ("filter: (cpu_usage ?? 0)*100 < 80% or node.pods.free > 5%", ["P222", "P222"]),
        ("score: load/min*100", ["P310"]),
        ("reserve: node.cpu.free - pod.cpu >= 0", ["P317"]),
        ('gate: pod.name matches "a-*" or any(queue.pods where it.phase is Failed)', ["P317"] * 2),
        ("score: 1 - load/max", ["P225"]),
        ("score: (node.cpu.requested + pod.cpu) / node.cpu.allocatable", ["P225"]),
        ("score: 10 * (load/max) / 100", ["P225"]),
        ("score: min(load/max, 0.5)", ["P225"]),
        ("score: if node.ready then 1 else 0", ["P225"]),
    ],
)  # fmt: skip
def test_found(text, expected):
    assert codes(text + "\n") == expected, render(found(text + "\n"))


@each(
    "text",
    [
        "filter: pod.priority > 3 and pod.priority < 5",
        "filter: pod.name like 'web*'",
        "filter: pod.annotation[a] is 'a|b'",
        "filter: pod.name matches '^web.*'",
        "filter: pod.owner.kind is CronTab",
        "param p = Web\nfilter: pod.name is $p",
        "filter: pod.gpu > 0 and node.gpu.free > 0",
        "filter: pod.label[a] is present and node.label[a] == pod.label[a]",
        "filter: pod.label a -> node.label[a] == pod.label[a]",
        "filter: pod.label[a] is missing or node.label[a] == pod.label[a]",
        "filter: node.name == pod.annotation[on]",
        'filter: (pod.label[a] ?? "x") == node.label[a]',
        "forbid: node.label[a] == pod.label[a]",
        "filter: node.cpu.requested / node.cpu.allocatable < 2",
        "filter: (if node.ready then 1 else 0) < 50 and node.gpu.free > 0",
        "param share: number = 0.5\nfilter: $share < 50 -> node.ready",
        "score: 100 - load/max*100",
        "score: if node.ready then 1 else 0 weight 5\nprefer: node.label a",
        "filter: pod.name contains a and not pod.name contains ab",
        "filter: pod.name starts with we and pod.name starts with web",
        "filter: pod.name matches 'a.*' and pod.name matches 'b.*'",
        "filter: node.label k!=1 and node.label k!=2",
        "filter: pod.cpu <= node.cpu.free or (pod.cpu > node.cpu.free and node.label k)",
        "filter: not (node.label k > 3) and not (node.label k <= 3)",
        "param mode: string = a\nfilter: $mode is b -> node.ready",
        "param mode: string = a\nscore: if $mode is a then node.gpu.free else -node.gpu.free",
        "param on: bool = true\nfilter: $on -> node.ready\nfilter: not $on -> node.label k",
        "param a: string = x\nparam b: string = x\nfilter: $a is x and not $b is x -> node.ready",
        "param closed: list of string = []\nfilter: time.weekday not in $closed and node.ready",
        "param n: number = 0\nfilter: node.gpu.capacity >= $n",
        "param n: number = 5\nlet low = $n\nlet twice = low * 2\n"
        "filter: node.gpu.free > twice and node.gpu.free < 3",
        "param n: number = 0\nlet enough = node.gpu.capacity >= $n\nfilter: enough and node.ready",
        "param a: number = 1\nparam b: number = 1\nfilter: load is present and load < $a\n"
        "filter: load is present and load < $b",
        "filter: pod.label a=1 -> node.label k=1\nfilter: pod.label a=2 -> node.label k=2",
        "filter: pod.priority < 10\nfilter: pod.priority > 5 -> node.ready",
        'filter: pod.images contains "a:1" -> node.label k=1\n'
        "filter: pod.image is b -> node.label k=2",
        "filter: pod.qos is Guaranteed -> node.label k=1\nfilter: pod.cpu == 0 -> node.label k=2",
        "filter: pod.gpu > 0 -> node.ready\nfilter: pod.gpu > 1 -> node.label k=1",
        "score: 100 - bandwidth/max*100",
        "score: bandwidth*100/max(bandwidth)",
        "score: if cpu_usage > 0.5 then cpu_usage*200 - 100 else 0",
        "score: cpu_usage*100 - cpu_usage*50",
        "score: load",
        DEFAULT + "score: m/max*100",
        DEFAULT + "score: 100 - cpu_usage*50 - m*10 missing 0",
        DEFAULT + "prefer: most m",
        DEFAULT + "score: if m > 3 then m else 100 - m",
        "score: 100 - cpu_usage*100 missing 0",
        "score: cpu_usage*200 normalize minmax",
        "score: time.hour < 10 -> time.hour*10 + node.gpu.free*0",
        "score: (node.gpu.requested + pod.gpu)/node.gpu.allocatable*100",
        "filter: pod.label a=1 -> node.label k=1\nforbid: pod.gpu > 3 -> node.label k",
        "metric m = promql 'q[$span]'\nparam span: duration = 3m\nprefer: least m",
        'let a = node.gpu.free\nfilter: a > 0 message "only {a}"',
        'let a = node.gpu.free\nfilter: node.ready message "only {a}"',
        "filter: node.label k=1 status unresolvable",
        "let gpu = pod.gpu > 0\nfilter: gpu -> node.label pool=gpu",
    ],
)
def test_silent(text):
    assert codes(text + "\n") == [], render(found(text + "\n"))


def test_off_and_other_files():
    first, second = "filter: node.label k=1\n", "filter: node.label k=2\n"
    result = COMPILER.compile({"a.policy": first, "b.policy": second})
    assert [one.code for one in result.diagnostics] == ["P302"]
    assert result.ok
    for mode in ("off", "shadow"):
        result = COMPILER.compile({"a.policy": f"mode: {mode}\n{first}", "b.policy": second})
        assert result.diagnostics == ()
    result = COMPILER.compile({"a.policy": f"mode: shadow\n{first}{second}"})
    assert [one.code for one in result.diagnostics] == ["P302"]


def test_many_rules_end_soon():
    text = "".join(f"filter: pod.priority > {i} -> node.label k{i}=1\n" for i in range(900))
    assert codes(text) == []


def test_wide_conditions_are_not_followed():
    text = " and ".join(f"(node.label a{i} or node.label b{i})" for i in range(40))
    assert codes(f"filter: {text} and pod.priority > 5 and pod.priority < 3\n") == []


def test_cost_depends_on_the_size():
    tests = " or ".join(f"it.name contains a{i}" for i in range(6))
    text = f"filter: count(cluster.pods where {tests}) < 9\n"
    assert codes(text) == ["P320"]
    assert codes(text, size=Size(1_000, 2_000)) == []
    result = COMPILER.compile({"a.policy": text}, size=Size(1_000, 200_000))
    assert [one.code for one in result.diagnostics] == ["P321"]
    assert not result.ok


def test_equal_parts_count_once():
    part = " or ".join(f"it.name contains a{i}" for i in range(3))
    rule = f"filter: count(cluster.pods where {part}) < "
    assert codes("".join(f"{rule}{i}\n" for i in (7, 3))) in (["P304"], [])


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("filter: node.label test=tset", "no node has the label test=tset"),
        ("filter: node.label tets", "no node has the label tets"),
        ("filter: node.zone is eu-1b", "no node has the label topology.kubernetes.io/zone=eu-1b"),
        ("filter: pod.namespace is prd -> node.ready", "there is no namespace prd"),
        ("filter: namespace.label team=m1 -> node.ready", "no namespace has the label team=m1"),
        ("prefer: node.label disk=sdd", "no node has the label disk=sdd"),
        ("filter: node.label test/test", "no node has the label test/test"),
    ],
)
def test_not_in_stock(rule, message):
    (one,) = found(rule + "\n", stock=STOCK)
    assert one.code == "P401"
    assert one.message.startswith(message)


def test_not_in_stock_with_the_values_of_a_use_line():
    bundled = {"home": "param label: string\nfilter: pod.cpu > 1 -> node.label $label\n"}
    text = 'use home (label = "test/test")\nuse home (label = "test=test") as other\n'
    (one,) = COMPILER.compile({"a.policy": text}, bundled=bundled, stock=STOCK).diagnostics
    assert one.message == "`use home`: no node has the label test/test"
    assert one.helps == ("did you mean `test=test`?",)
    assert one.source.position(one.span.start) == (1, 1)


@pytest.mark.parametrize(
    "rule",
    [
        "filter: node.label test=test",
        "filter: node.label disk in [nvme, ssd]",
        "forbid: node.label drain",
        "filter: not node.label drain",
        "filter: node.label test!=other",
        "avoid: node.label spot=true",
        "filter: pod.namespace in [prod, staging] -> node.ready",
        "filter: pod.label any=thing -> node.ready",
    ],
)
def test_in_stock(rule):
    assert codes(rule + "\n", stock=STOCK) == []


def test_golden():
    text = "\nfilter: node.label k=1\n\n\nfilter: node.ready and node.label k=2\n"
    expected = """\
    warning[P302]: together with the rule of a.policy:2 this rule rejects every node for every pod
     --> a.policy:5:9
      |
    2 | filter: node.label k=1
      |         -------------- the other rule
    5 | filter: node.ready and node.label k=2
      |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    """
    assert render(found(text)) == dedent(expected)


#: Warnings of the examples that are right.
EXPECTED = {
    "08-params-typed": {"P316"}, "63-neg-numbers": {"P316"}, "09-metric-full": {"P314"},
    "72-no-final-newline": {"P312"}, "22-label-ops": {"P317"}, "57-parenthesised": {"P317"},
    "11-crane-annotation": {"P312"}, "64-images": {"P312"},
}  # fmt: skip


def examples():
    return [part.partition("\n")[::2] for part in re.split(r"(?m)^=== ", EXAMPLES)[1:]]


@each("name, text", examples())
def test_examples_give_no_false_alarm(name, text):
    assert {one for one in codes(text) if one[:2] in ("P3", "P4")} <= EXPECTED.get(name, set())


# ---- the command line


def check(tmp_path, *args, **files):
    for name, text in files.items():
        (tmp_path / f"{name}.policy").write_text(text, encoding="utf-8")
    paths = [str(tmp_path / f"{name}.policy") for name in files]
    return CliRunner().invoke(main, ["check", *paths, *args])


def test_chain_and_warnings(tmp_path):
    files = {"a": "filter: node.label k=1\n", "b": "filter: node.label k=2\n"}
    assert check(tmp_path, **files).stderr.endswith("2 files checked: all good\n")
    result = check(tmp_path, "--chain", **files)
    assert (result.exit_code, "P302" in result.stdout) == (0, True)
    assert check(tmp_path, "--chain", "--deny-warnings", **files).exit_code == 1


def test_size_and_inventory(tmp_path):
    text = "filter: count(cluster.pods where it.name contains a) < 9\n"
    assert check(tmp_path, a=text).exit_code == 0
    result = check(tmp_path, "--pods", "1000000", a=text)
    assert result.exit_code == 1
    assert "P321" in result.stdout
    stock = tmp_path / "cluster.json"
    stock.write_text('{"inventory": 1, "nodes": [], "pods": 600000}', encoding="utf-8")
    assert "P321" in check(tmp_path, "--inventory", str(stock), a=text).stdout
    stock.write_text("[]", encoding="utf-8")
    result = check(tmp_path, "--inventory", str(stock), a=text)
    assert result.exit_code == 1
    assert "not an inventory" in result.stderr


def test_a_missing_parameter_is_a_note(tmp_path):
    result = check(tmp_path, "--deny-warnings", a="param p: string\nfilter: node.label k=$p\n")
    assert result.exit_code == 0
    assert "note[P104]" in result.stdout


def test_a_share_is_proposed_for_what_a_parameter_is():
    (one,) = found("param top = 80\nfilter: rank(node.cpu.free) < $top\n")
    assert (one.code, one.fix, one.helps) == ("P222", None, ("did you mean 80%?",))
