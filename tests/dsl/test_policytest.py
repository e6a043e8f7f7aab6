"""Test files: what is read, what is refused and how, what merges, what holds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsl.diagnostics import render
from dsl.parser import Parser
from dsl.policytest.attributes import ATTRIBUTES, EXPECTATIONS
from dsl.policytest.reading import read_suite
from dsl.quantities import parse_time
from dsl.source import make_source
from dsl.syntax import HEADS, KEYED
from tests.effort import each, examples

READER = Parser()
NODES = "use p\nnode: a  cpu 4\nnode: b\n"


def suite(text):
    return read_suite("t.policytest", text, READER)


def only_case(body, head=NODES):
    made = suite(f'{head}test: "t"\n{body}')
    assert made.ok, render(made.diagnostics)
    return made.cases[-1]


# ---- wrong in every habit: text, code, what is underlined, what the help says

WRONG = [
    ("nodes: a\n", "P004", "nodes", "did you mean `node`?"),
    ("Node: a\n", "P004", "Node", "did you mean `node`?"),
    ("cluster: a\n", "P004", "cluster", "use, now, node"),
    ("node a cpu 4\n", "P005", "node", "node:"),
    ("node: a cpus 4\n", "P701", "cpus", "did you mean `cpu`?"),
    ("node: a cpu four\n", "P702", "four", "500m, 4 or 8Gi"),
    ("node: a cpu -1\n", "P702", "-1", "500m, 4 or 8Gi"),
    ("node: a cpu [1, 2]\n", "P702", "[1, 2]", "500m"),
    ("node: a pods many\n", "P702", "many", "3"),
    ("node: a pods 1.5\n", "P702", "1.5", "3"),
    ("node: a ready yes\n", "P702", "yes", ""),
    ('node: a created "yesterday"\n', "P702", '"yesterday"', "2025-03-01T10:00:00Z"),
    ("node: a metric load high\n", "P702", "high", ""),
    ("node: a metric load 1 age soon\n", "P702", "soon", "30s"),
    ("node: a\nnode: a cpu 4\n", "P703", "node: a cpu 4", "given node a"),
    ('now: "noon"\n', "P702", '"noon"', "2025-03-01T10:00:00Z"),
    ("running: on z name web\n", "P701", "z", "nodes are a and b"),
    ("running: on a qos Best\n", "P702", "Best", "Guaranteed, Burstable or BestEffort"),
    ("running: on a count 0\n", "P702", "0", "3"),
    (
        "running: on a name web\nrunning: on b name web\n",
        "P703",
        "running: on b name web",
        "given running",
    ),
    ('time: "2025-01-01T00:00:00Z"\n', "P004", "time", "now"),
    ("metric: load = high\n", "P702", "high", ""),
    ("expect feasible [a]\n", "P012", "expect", "write above it"),
    ("given pod name p\n", "P012", "given", "write above it"),
    ("use\n", "P009", "use", ""),
    ("use p weight -1\n", "P702", "-1", ""),
    ('use "p\n', "P002", '"', ""),
    ("node: a label x=“y\n", "P003", "“", '"'),
]
WRONG_IN_TEST = [
    ("  given pod name $x\n", "P001", "$x", "the value itself"),
    ("  given pod label a=(b)\n", "P001", "b", "the value itself"),
    ('  given pod name "p\n', "P002", '"', ""),
    ("  expect feasible [a\n", "P002", "[", ""),
    ("  expect feasable [a]\n", "P701", "feasable", "did you mean `feasible`?"),
    ("  expect fits [a]\n", "P701", "fits", "did you mean `feasible`?"),
    ("  expect pending\n", "P024", "pending", "feasible none"),
    ("  given pod q\n  expect best a\n", "P702", "q", "name q"),
    ("  expect feasible [c]\n", "P701", "c", "the nodes are a and b"),
    ("  expect best z\n", "P701", "z", "the nodes are a and b"),
    ("  expect score a\n", "P702", "a", "a 75"),
    ("  expect score a high\n", "P702", "high", "75"),
    ("  expect score a 75%\n", "P702", "75%", "75"),
    ("  expect order [p, q]\n", "P701", "q", "given are p"),
    ("  expect error P101\n  expect feasible [a]\n", "P703", "expect error P101", ""),
    (
        "  given pod name p namespace other\n  expect gated p\n",
        "P703",
        "given pod name p namespace other",
        "a `name` of its own",
    ),
    (
        "  given pod name x count 2\n  given pod name x-2\n  expect feasible [a]\n",
        "P703",
        "given pod name x-2",
        "a `name` of its own",
    ),
]


@each("text, code, underlined, help_", WRONG)
def test_wrong_statements(text, code, underlined, help_):
    _check(NODES.replace("node: a  cpu 4\nnode: b\n", "") + text, code, underlined, help_, text)


@pytest.mark.parametrize(("text", "code", "underlined", "help_"), WRONG_IN_TEST)
def test_wrong_tests(text, code, underlined, help_):
    whole = f'{NODES}test: "t"\n  given pod name p\n{text}'
    _check(whole, code, underlined, help_, text)


def _check(whole, code, underlined, help_, text):
    if "running: on" in text or "running: a" in text:
        whole = whole.replace("use p\n", NODES)
    if "test:" not in whole:
        whole += 'test: "t"\n  given pod name p\n  expect feasible []\n'
    found = suite(whole).diagnostics
    assert [one.code for one in found] == [code], render(found)
    (one,) = found
    assert one.source.slice(one.span).strip() == underlined, render(found)
    assert help_ in "\n".join(one.helps), render(found)
    assert one.message == one.message.strip()
    assert not one.message.endswith(".")


def test_each_broken_statement_is_told_and_the_others_are_read():
    made = suite(
        'use p\nnoed: a\nnode: b cpus 1\nnode: c\ntest: "t"\n  given pod\n  expect best d\n'
    )
    assert [one.code for one in made.diagnostics] == ["P004", "P701", "P701"]
    assert [thing.name for thing in made.cases[0].cluster.of("node")] == ["b", "c"]


def test_a_file_needs_a_policy_and_a_test():
    assert [one.message for one in suite("node: a\n").diagnostics] == [
        "the file says of no policy that it tests it",
        "the file has no test",
    ]


def test_a_test_needs_a_pod_and_fixtures_stand_first():
    made = suite('use p\nnode: a\ntest: "t"\n  expect feasible [a]\nnode: b\n')
    assert [one.message for one in made.diagnostics] == [
        "this test gives no pod",
        "this stands behind a test, so no test would see it",
    ]


SIGNS = ["=", ":", "[", "]", "(", ")", '"x"', '"', "\n", "\n  ", "#", "$p", ",", "->", "é", "\\"]
WORDS = ["given", "expect", "on", "from", "a", "5", "8Gi", "age", "test: ", "pods"]
GIVEN = ("pod", "node", "running", "finished", "pending", "metric", "param", "now")
PIECES = st.sampled_from([*HEADS, *GIVEN, *KEYED, *SIGNS, *WORDS])


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(PIECES, max_size=40).map(" ".join) | st.text(max_size=60))
def test_no_text_makes_it_raise(text):
    made = suite(text)
    render(made.diagnostics)
    READER.tests(make_source("t", text))


def test_limits():
    assert suite("# x\n" * 40_000).diagnostics[0].code == "P006"
    deep = "(" * 100
    assert suite(f"use p ({deep}\n").diagnostics[0].code == "P006"
    long = ", ".join(["a"] * 300)
    assert suite(f'use p\ntest: "t"\n  expect feasible [{long}]\n').diagnostics[0].code == "P006"
    assert suite(b"\xff\xfeu\x00").diagnostics[0].code == "P003"


# ---- what is given


def test_given_changes_an_object_for_one_test_only():
    text = (
        f'{NODES}running: on a  name web  cpu 1  label app=web\ntest: "one"\n  given pod\n'
        "  given node a  memory 1Gi\n  given node c\n  given running on b name web priority 7\n"
        '  expect feasible []\ntest: "two"\n  given pod\n  expect feasible []\n'
    )
    made = suite(text)
    assert made.ok, render(made.diagnostics)
    first, second = (one.cluster for one in made.cases)
    assert [one.name for one in first.of("node")] == ["a", "b", "c"]
    assert dict(first.of("node")[0].plain) == {"cpu": "4", "memory": "1Gi"}
    (web,) = first.of("running")
    assert web.node == "b"
    assert web.plain == {"name": "web", "cpu": "1", "priority": 7}
    assert web.maps == {"label": {"app": "web"}}
    assert [one.name for one in second.of("node")] == ["a", "b"]
    assert second.of("running")[0].node == "a"


def test_later_attributes_win_and_maps_merge():
    case = only_case(
        "  given pod cpu 1 cpu 2 label a=1 label b=2 label a=3\n"
        "  given node a label x=1\n  given node a label y=2\n  expect feasible []\n"
    )
    (pod,) = case.cluster.of("pod")
    assert pod.plain == {"cpu": "2"}
    assert pod.maps == {"label": {"a": "3", "b": "2"}}
    assert case.cluster.of("node")[0].maps == {"label": {"x": "1", "y": "2"}}


def test_several_given_pods_stay_several():
    case = only_case("  given pod name p\n  given pod name q\n  expect order [p, q]\n")
    assert [one.name for one in case.cluster.of("pod")] == ["p", "q"]


def test_the_time_and_its_default():
    assert only_case("  given pod\n  expect feasible []\n").cluster.now == parse_time(
        "2025-03-01T10:00:00Z"
    )
    case = only_case('  given pod\n  given now "2025-03-02T11:00:00Z"\n  expect feasible []\n')
    assert case.cluster.now == parse_time("2025-03-02T11:00:00Z")


def test_samples_uses_and_params():
    made = suite(
        "use p (a = 1, list = [x, y]) as q weight 2\nuse node-name\n"
        "node: n metric load 5 age 5m\nmetric: rtt [n, m] = 7\nmetric: rtt [n, m] = 8\n"
        'test: "t"\n  given pod waited 90s\n  given param a = 2\n  expect feasible none\n'
    )
    assert made.ok, render(made.diagnostics)
    first, second = made.uses
    assert (first.name, first.alias, first.weight) == ("p", "q", 2.0)
    assert [(name, value) for name, (value, _) in first.params.items()] == [
        ("a", "1"), ("list", ("x", "y")),
    ]  # fmt: skip
    assert (second.name, second.weight) == ("node-name", None)
    case = made.cases[0]
    sample = case.cluster.of("node")[0].metrics["load"]
    assert (sample.text, sample.age_seconds) == ("5", 300.0)
    metrics = {key: one.text for key, one in case.cluster.metrics.items()}
    assert metrics == {("rtt", "n", "m"): "8"}
    assert case.params["a"][0] == "2"
    assert case.cluster.of("pod")[0].plain["waited"] == 90.0


def test_every_attribute_can_be_written():
    examples = {
        "a text": "x", "a name": "x", "an amount": "5", "a whole number": "3",
        "true or false": "true", "a time": '"2025-03-01T10:00:00Z"', "a duration": "30s",
        "a list": "[x]", "a number in the unit of the metric": "5",
    }  # fmt: skip
    fitting = {"qos": "Burstable", "phase": "Running", "preemption_policy": "Never", "from": '"f"'}
    for kind, attributes in ATTRIBUTES.items():
        parts = []
        for name, of in attributes.items():
            value = fitting.get(name) or examples.get(of.what, "")
            keyed = name in KEYED
            parts.append(
                f"{name} k={value}"
                if keyed
                else f"metric m {value}"
                if name == "metric"
                else f"{name} {value}"
            )
        head = {"pod": "", "pending": "", "running": "on a ", "finished": "on a "}.get(kind, "x ")
        text = " ".join(parts).replace("chosen x", "chosen a")
        if kind in ("quota", "pdb"):
            above, inside = f"{kind}: {head}{text}\n", ""
        else:
            above, inside = "", f"  given {kind} {head}{text}\n"
        made = suite(f'{NODES}{above}test: "t"\n  given pod\n{inside}  expect feasible []\n')
        assert made.ok, render(made.diagnostics)
        (*_, thing) = [one for one in made.cases[0].cluster.of(kind) if one.plain or one.maps]
        assert {*thing.plain, *thing.maps, *(["metric"] if thing.metrics else [])} == {*attributes}


def test_each_expectation_is_read_as_helps_show_it():
    for shape in EXPECTATIONS.values():
        text = f'use p\nnode: a\nnode: b\ntest: "t"\n  expect {shape.example}\n'
        found = READER.tests(make_source("t", text))[1]
        assert not found, render(found)


def test_two_tests_of_one_name():
    text = "use p\nnode: a\n" + 'test: "t"\n  given pod\n  expect best a\n' * 2
    (one,) = read_suite("a.policytest", text).diagnostics
    assert (one.code, one.message) == ("P703", "another test is called `t`")
    assert one.source.position(one.span.start)[0] == 6


def test_words_of_other_tools_may_be_names():
    head = "use p\nnode: check\nnode: then\n"
    test = 'test: "t"\n  given pod name p\n  expect feasible [\n    check,\n    then]\n'
    test += "  expect best\n    check\n"
    assert suite(head + test).ok
