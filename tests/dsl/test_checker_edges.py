"""What parser and checker say to wrong policies of every kind: data/refusals.txt.

`python -m tests.dsl.test_checker_edges` writes the findings anew; read the difference.
"""

import re
from pathlib import Path

import pytest

from dsl.checker import FileChecker
from dsl.diagnostics import sort_key
from dsl.files import read_source
from dsl.parser import Parser
from tests.dsl.bothways import passing, plan_of
from tests.dsl.worlds import FakePod, FakeWorld
from tests.effort import each

PAGE = Path(__file__).parent / "data" / "refusals.txt"
PARSER = Parser()


def read_page():
    """Returns the lines of each section: a policy, what is found in a line behind it."""
    parts = re.split(r"^=== (.*)\n", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def policy_of(section):
    return re.sub(r"(?m)  ~~  .*", "", section)


def checked(policy, **params):
    """Returns what is found without looking at several rules at once."""
    source, _ = read_source("p.policy", policy)
    statements, found = [], []
    for statement, wrong in PARSER.statements(source):
        found.extend(wrong)
        statements.extend([] if statement is None else [statement])
    checker = FileChecker(source, statements, params=params)
    for _ in checker.steps():
        pass
    return sorted([*found, *checker.result()[1]], key=sort_key)


def findings(section):
    """Returns a section with all findings: code, place and fix; tests/spec holds what is said."""
    policy = policy_of(section)
    lines = policy.split("\n")
    for one in checked(policy):
        line, column = one.source.position(one.span.start)
        _, end = one.source.position(one.span.end)
        fix = "" if one.fix is None else f"  =>  {one.fix.text!r}"
        lines[line - 1] += f"  ~~  {one.code} {column}-{end}{fix}"
    return "\n".join(lines)


@each("title, section", read_page().items())
def test_findings(title, section):
    assert findings(section) == section


def said(policy, **params):
    return [(one.code, one.message, *one.helps) for one in checked(policy, **params)]


@pytest.mark.parametrize(
    ("sum_", "better"),
    [
        ("node.annotation[end] - now", "time(node.annotation[end])"),
        ("now - node.annotation[begin]", "time(node.annotation[begin])"),
        ("now + pod.annotation[runtime]", "duration(pod.annotation[runtime])"),
        ("node.label[cores] - 1", "number(node.label[cores])"),
    ],
)
def test_a_text_in_a_sum_is_made_what_stands_beside_it(sum_, better):
    [(code, _, *helps)] = said(f"filter: {sum_} > 2\n")
    assert (code, helps) == ("P201", [f"write  {better}"])


def test_a_number_where_a_text_is_wanted_is_told_its_quotes():
    [(code, _, *helps)] = said("filter: version(node.kernel) >= version(6.1)\n")
    assert (code, helps) == ("P209", ['write  "6.1"'])


def test_values_of_parameters_that_the_policy_has_not():
    wrong = ("P105", "the configuration sets `x`, and this policy has no such parameter")
    assert said("score: 1", x=5) == [(*wrong, "it has no parameters")]
    two = "param a = 1\nparam b = 2\nscore: $a + $b"
    assert said(two, x=5) == [(*wrong, "it has a, b")]
    assert said(two, a=5, b=7) == []


@pytest.mark.parametrize(
    ("declared", "given", "right"),
    [
        ("string", "x", True),
        ("number", 5, True),
        ("number", 2.5, True),
        ("number", "5", True),
        ("number", "x", False),
        ("number", True, False),
        ("bool", True, True),
        ("bool", False, True),
        ("bool", "true", True),
        ("bool", 1, False),
        ("duration", "5m", True),
        ("duration", 5, False),
        ("quantity", "5Gi", True),
        ("time", "2025-03-01T10:00:00Z", True),
        ("list of string", ["a", "b"], True),
        ("list of string", ("a",), True),
        ("list of string", "a", False),
        ("list of number", ["1", "2.5"], True),
        ("list of number", ["x"], False),
        ("string", ["a"], False),
    ],
)
def test_values_of_parameters_from_the_configuration(declared, given, right):
    found = said(f"param p: {declared}\nfilter: pod.label[a] is present", p=given)
    assert [code for code, *_ in found] == ([] if right else ["P111"])


def test_a_value_for_a_parameter_without_a_type_is_read_as_its_default_is():
    assert said("param a = 1\nscore: $a", a=5) == said("param a = 1\nscore: $a", a="5") == []
    assert said("param a = 10%\nscore: $a * 3", a="80%") == []
    assert said('param a = "1"\nfilter: pod.name == $a', a="5") == []
    assert said("param a = x\nfilter: pod.name == $a", a="y z") == []


def test_a_fixed_list_is_gone_through_up_to_a_limit():
    numbers = ", ".join("1" * 4000)
    text = f"param l: list of number = [{numbers}]\nfilter: any($l where it > 2)"
    assert [code for code, *_ in said(text)] == ["P006"]


def test_a_given_value_is_what_counts():
    bounded = 'param n: number = 5 from 1 to 9 "how many"\nscore: $n'
    assert said(bounded) == said(bounded, n=9) == []
    assert said(bounded, n=10) == [("P111", "the value of `n` is not from 1 to 9")]
    chosen = "param c: string = a one of [a, b]\nfilter: pod.name is $c"
    assert said(chosen, c="b") == []
    assert said(chosen, c="bb")[0][:2] == ("P111", "the value of `c` is none of its choices")


@pytest.mark.parametrize(
    ("file", "header", "name"),
    [
        ("a/b/load.policy", "", "load"),
        ("load.policy", "", "load"),
        ("a.b", "", "a.b"),
        ("a/load.policy", "policy: other\n", "other"),
    ],
)
def test_what_a_policy_is_called(file, header, name):
    source, _ = read_source(file, f"{header}score: 1\n")
    statements = [one for one, _ in PARSER.statements(source)]
    checker = FileChecker(source, statements)
    assert list(checker.steps()) == [None] * len(statements)
    policy, found = checker.result()
    assert (policy.name, found) == (name, ())
    assert source.slice(policy.name_span) == header.strip()
    assert policy.name_span.start == 0


@pytest.mark.parametrize(
    ("param", "put_in"),
    [
        ("p: bool = true", "true"),
        ("p: bool = false", "false"),
        ('p = "a"', "a"),
        ("p = 'a\\b'", r"a\\b"),
        ("p = 'say \"x\"'", r"say \"x\""),
        ('p = "it\'s"', r"it\'s"),
        ("p = 5", "5"),
        ("p = 2.5", "2.5"),
        ("p = 80%", "0.8"),
        ("p = 10k", "10000"),
        ("p: quantity = 1Ki", "1024"),
        ("p: duration = 90s", "1m30s"),
        ("p: duration = 36h", "1d12h"),
        ("p: duration = 1500ms", "1500ms"),
        ("p: list of string = [a, b.c]", r"a|b\.c"),
    ],
)
def test_parameters_in_a_query(param, put_in):
    source, _ = read_source("p.policy", f'param {param}\nmetric m = promql "x{{$p}} $$"\nscore: m')
    checker = FileChecker(source, [one for one, _ in PARSER.statements(source)])
    list(checker.steps())
    policy, found = checker.result()
    assert found == ()
    assert policy.metrics[0].query == f"x{{{put_in}}} $"


# ---- what is understood


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("node.zone in [web, (pod.name)]", [True, True, False]),
        ("node.zone not in [web, (pod.name)]", [False, False, True]),
        ("node.zone in [(pod.name), (pod.namespace)]", [False, True, False]),
        ("node.gpu.free in [1, 2, (pod.gpu)]", [True, True, True]),
        ("node.gpu.free in $sizes", [False, True, True]),
        ("node.label k in [a, (pod.name)]", [True, False, True]),
        ("node.label $present", [True, False, True]),
        ("node.label $equal", [True, False, False]),
        ("node.label $other", [False, True, True]),
        ("node.label n<=(pod.gpu)", [True, False, True]),
        ("node.taint t in [x, y]", [True, True, False]),
        ("node.gpu.free > 0 / 0", [True, True, True]),
        ("node.gpu.free < 6 / 3", [True, False, False]),
        ("node.gpu.free > 1e-300 * 1e-300 * 1e-300 * 1e-300 * 1e-300", [True, True, True]),
        ("node.gpu.free < 1e300 * 1e300 * 1e300 * 1e300 * 1e300", [False, False, False]),
        ("node.gpu.free == 1 + 1", [False, True, False]),
        ("node.gpu.free == 0.1 * 3 * 3 / 0.9", [True, False, False]),
        ("0.1 * 3 * 3 == 0.9", [True, True, True]),
        ("node.gpu.free > 1 / 0 + 1", [False, False, False]),
        ("node.gpu.free > 1 + 1 / 0", [False, False, False]),
        ("time.hour in 22..6", [True, True, True]),
        ("time.hour in 22..22", [False, False, False]),
        ("node.memory.free in $amounts", [True, False, False]),
        ("$ages contains 5m", [True, True, True]),
        ("sum(it over $ages) > 64min", [True, True, True]),
        ("all($none where it is a)", [True, True, True]),
        ("sum(number(it) over $none) == 0", [True, True, True]),
        ("count($one where it > 3) == 1", [True, True, True]),
        ("count($sizes where it > 2) == 1", [True, True, True]),
        ("count(it > 2 over $sizes) == 1", [True, True, True]),
        ("count(it > 2 over $sizes where it < 3) == 0", [True, True, True]),
        ("sum(it over $sizes) == 5", [True, True, True]),
        ("count($many where it > 0) == 17", [True, True, True]),
        ("count(long where it > 0) == 17", [True, True, True]),
        ("any(it > 2 over $sizes)", [True, True, True]),
        ("all(it > 2 over $sizes)", [False, False, False]),
        ("all(it > 2 over $sizes where it > 2)", [True, True, True]),
        ("any(words where it == node.label[k])", [True, False, True]),
        ("all(words where it == node.label[k])", [False, False, False]),
        ("count(words where it == node.label[k]) == 1", [True, False, True]),
        ("sum(node.gpu.free over words) == 4", [False, True, False]),
        ("sum(number(it) over split(node.label[n], '-')) == 9", [False, True, False]),
        ("all(split(node.label[n], '-') where it is '2')", [True, False, False]),
        ("node.memory.free in 1Ki..2Ki", [True, False, False]),
        ("avg(node.gpu.free, pod.gpu) == 2", [True, False, False]),
        ("clamp(node.gpu.free, 2, 2.5) == 2", [True, True, False]),
        ("number(node.memory.free) == 1024", [True, False, False]),
        ("number(1 / node.cpu.free) == 0.5", [True, False, False]),
        ("cores(node.gpu.free) > 1500m", [False, True, True]),
        ("string(500m + pod.cpu) is 1", [True, True, True]),
        ("join(pod.cpu, '-', node.gpu.free) is 0.5-2", [False, True, False]),
    ],
)
def test_what_a_condition_comes_to(test, expected):
    hosts = [
        {"node.zone": "web", "node.gpu.free": 1.0, "node.label[k]": "a", "node.label[n]": "2",
         "node.taint[t]": True, "node.taint[t=x]": True, "node.memory.free": 1024.0,
         "node.cpu.free": 2000.0, "node.ready": True},
        {"node.zone": "p", "node.gpu.free": 2.0, "node.label[n]": "9", "node.taint[t]": True,
         "node.taint[t=y]": True, "node.memory.free": 9999.0},
        {"node.zone": "x", "node.gpu.free": 3.0, "node.label[k]": "p", "node.label[n]": "3"},
    ]  # fmt: skip
    pod = FakePod.of(
        {"pod.name": "p", "pod.namespace": "default", "pod.gpu": 3.0, "pod.cpu": 500.0,
         "pod.annotation[l]": "a-p"}
    )  # fmt: skip
    head = (
        'param sizes: list of number = [2, 3]\nparam present = k\nparam equal = "k=a"\n'
        'param other = "k!=a"\nparam amounts: list of quantity = [1Ki, 2Ki]\n'
        "param ages: list of duration = [5m, 1h]\nparam none: list of string = []\n"
        f"param one: list of number = [5]\nparam many: list of number = [{', '.join('1' * 17)}]\n"
        "let long = $many\nlet words = split(pod.annotation[l], '-')\n"
    )
    world = FakeWorld(hosts, cycle={"time.hour": 23.0})
    assert passing(f"{head}filter: {test}", world, pod) == expected


@pytest.mark.parametrize("given", [True, False])
def test_a_flag_from_the_configuration_is_that_flag(given):
    source, _ = read_source("p.policy", "param p: bool\nfilter: $p")
    checker = FileChecker(
        source, [one for one, _ in PARSER.statements(source)], params={"p": given}
    )
    list(checker.steps())
    assert checker.result()[0].rules[0].core.test.value is given


@pytest.mark.parametrize(
    ("rule", "reads"),
    [
        ("filter: node.resource[(pod.label[a])].free > 1", {"node.resource.free", "pod.label"}),
        ("filter: count(pod.containers where it.name is a) > 0", {"pod.containers"}),
        (
            "filter: count(zone.nodes where node.ready) > 1",
            {"zone.nodes", "node.zone", "node.ready"},
        ),
        ('filter: max(node.gpu.free over nodes_in("a/b")) > 1', {"node.label", "node.gpu.free"}),
        ("filter: (load ?? 0) > 1", {"node.annotation", "now", "metric:load"}),
        ("filter: (metric_age(load) ?? 1m) > 1m", {"node.annotation", "now", "metric_age:load"}),
        ('prebind: event "{node.zone} {pod.name}"', {"node.zone", "pod.name"}),
        ("prebind: annotate a = node.zone", {"node.zone"}),
    ],
)
def test_what_a_rule_reads(rule, reads):
    plan = plan_of(f"metric load = annotation a/b\n{rule}")
    assert (*plan.filters, *plan.prebinds)[0].reads == reads


if __name__ == "__main__":
    written = (f"=== {title}\n{findings(one)}" for title, one in read_page().items())
    PAGE.write_text("".join(written), encoding="utf-8")
