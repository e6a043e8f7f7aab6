"""`berth eval` and `berth repl`: what they print, and what they survive."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from dsl.parser import Parser
from engine.cli import main
from engine.cli.repl import Session
from tests.effort import examples

PARSER = Parser()
CHEAP = "cost   nearly nothing, with 1,000 nodes and 20,000 pods"

NODES = """\
kind: Node
metadata: {name: a, labels: {zone: z1}}
status: {capacity: {cpu: "4", memory: 8Gi}, allocatable: {cpu: "4", memory: 8Gi}}
---
apiVersion: v1
kind: List
items:
  - kind: Node
    metadata: {name: long-name}
    status: {capacity: {cpu: "4"}, allocatable: {cpu: "2"}}
  - kind: Pod
    metadata: {name: there}
    spec: {nodeName: long-name, containers: [{name: c, resources: {requests: {cpu: 500m}}}]}
  - kind: Namespace
    metadata: {name: default, labels: {team: ml}}
"""
POD = """\
kind: Deployment
metadata: {name: web}
spec:
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, resources: {requests: {cpu: 500m}}}]}
"""


@pytest.fixture
def nodes(tmp_path):
    path = tmp_path / "nodes.yaml"
    path.write_text(NODES, encoding="utf-8")
    return path


@pytest.fixture
def pod(tmp_path):
    path = tmp_path / "pod.yaml"
    path.write_text(POD, encoding="utf-8")
    return path


def evaluate(*args):
    return CliRunner().invoke(main, ["eval", *map(str, args)])


def session():
    return Session(PARSER)


# ---- eval


@pytest.mark.parametrize(
    ("expression", "lines"),
    [
        ("1 + 2", ["type   a number", "unit   none", "level  a constant",
                   "reads  nothing", CHEAP, "value  3"]),
        ("2Gi", ["type   a number", "unit   bytes", "level  a constant",
                 "reads  nothing", CHEAP, "value  2Gi"]),
        ('"a" is a', ["type   yes or no", "level  a constant",
                      "reads  nothing", CHEAP, "value  true"]),
        ("cluster.nodes", ["type   a number", "unit   none", "level  the cycle",
                           "reads  cluster.nodes", CHEAP, "value  0"]),
    ],
)  # fmt: skip
def test_what_an_expression_is(expression, lines):
    result = evaluate(expression)
    assert (result.exit_code, result.stdout.splitlines()) == (0, lines)


def test_values_on_each_node(nodes, pod):
    result = evaluate("node.cpu.free - pod.cpu", "--node", nodes, "--pod", pod)
    assert result.stdout.splitlines() == [
        "type   a number",
        "unit   cores",
        "level  the node",
        "reads  node.cpu.free, pod.cpu",
        CHEAP,
        "value  a          3500m",
        "       long-name  1",
    ]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("pod.name", "web"),
        ("pod.workload", "web"),
        ("pod.owner.kind", "ReplicaSet"),
        ("pod.owner.name", "web-template"),
        ("pod.label app=web", "true"),
        ("namespace.label[team]", "ml"),
        ("count(cluster.pods)", "1"),
        ("max(node.cpu.allocatable)", "4"),
        ("now - time(\"2025-03-01T09:00:00Z\")", "1h"),
    ],
)  # fmt: skip
def test_values_of_the_pod_and_the_cycle(nodes, pod, expression, value):
    options = ("--node", nodes, "--pod", pod, "--now", "2025-03-01T10:00:00Z")
    result = evaluate(expression, *options)
    assert result.stdout.splitlines()[-1] == f"value  {value}"


def test_a_time_without_quotes_is_the_text_that_it_is(tmp_path):
    file = tmp_path / "node.yaml"
    meta = "{name: a, creationTimestamp: 2025-03-01T10:00:00Z}"
    file.write_text(f"kind: Node\nmetadata: {meta}\n", encoding="utf-8")
    result = evaluate("node.created", "--node", file)
    assert result.stdout.splitlines()[-1] == "value  a  2025-03-01T10:00:00Z"


@pytest.mark.parametrize(
    ("expression", "option"), [("pod.cpu", "--pod"), ("node.cpu.free", "--node")]
)
def test_what_is_needed_for_a_value(expression, option):
    result = evaluate(expression)
    assert result.exit_code == 0
    assert option in result.stdout.splitlines()[-1]


def test_metrics(nodes):
    given_ones = ("--metric", "bandwidth=10k", "--metric", "bandwidth@a=40k")
    result = evaluate("100 - bandwidth/max*100", "--node", nodes, *given_ones)
    assert [line.split()[-1] for line in result.stdout.splitlines()[-2:]] == ["0", "75"]
    result = evaluate("bandwidth", "--node", nodes)
    assert result.stdout.splitlines()[-1].endswith("<none>")


def test_a_sample_of_a_metric_that_is_not_there(nodes):
    result = evaluate("bandwidth", "--node", nodes, "--metric", "bandwith=5")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "bandwith: there is no such metric; did you mean bandwidth?" in result.stderr
    result = evaluate("1", "--metric", "bandwidth=5")
    assert result.exit_code == 0


def test_a_workload_of_ones_own_is_placed_though_pods_of_it_run(nodes, pod, tmp_path):
    """The one that the cluster has is not: it has its pods."""
    running = tmp_path / "cluster.yaml"
    dumped = POD.replace("{name: web}", "{name: web, namespace: default, uid: u1}")
    owner = "{kind: ReplicaSet, name: web-5d5d5d5d5d, controller: true}"
    labels = "labels: {app: web, pod-template-hash: 5d5d5d5d5d}"
    running.write_text(
        f"{dumped}---\nkind: Pod\nmetadata: {{name: web-5d5d5d5d5d-abcde, namespace: default,"
        f" {labels}, ownerReferences: [{owner}]}}\n"
        "spec: {nodeName: a, containers: [{name: c}]}\n",
        encoding="utf-8",
    )
    given = ("pod.workload", "--node", nodes, "--node", running)
    assert "needs a pod" in evaluate(*given).stdout
    result = evaluate(*given, "--pod", pod)
    assert result.stdout.splitlines()[-1] == "value  web"


@pytest.mark.parametrize(
    ("expression", "code", "carets"),
    [
        ("node.cpu.fre", "P101", "^^^^^^^^^^^^"),
        ("node.cpu.free > pod.memory", "P203", "^^^^^^^^^^^^^"),
        (")", "P002", "^"),
        ("cluster..nodes", "P015", "^^^^^^^"),
        ("5m", "P206", "^^"),
        ("node.pods", "P201", "^^^^^^^^^"),
    ],
)
def test_errors_have_carets(expression, code, carets):
    result = evaluate(expression)
    assert result.exit_code == 1
    assert f"error[{code}]" in result.stdout
    assert " --> expression:1:1\n" in result.stdout
    assert f"| {carets}" in result.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--node", "none.yaml"), "cannot be read"),
        (("--metric", "load"), "NAME=NUMBER"),
        (("--metric", "load@n=3"), "no --node file holds a node called n"),
        (("--now", "noon"), "is not a time"),
    ],
)
def test_options_that_are_wrong(options, said):
    result = evaluate("1", *options)
    assert result.exit_code == 1
    assert said in result.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: Ingress", "holds no Node"),
        ("a: [", "is not YAML"),
        ("kind: Node\nmetadata: {name: [1]}", "metadata.name"),
        ("kind: Pod\nspec: {containers: [{name: c, resources: {requests: {cpu: much}}}]}", "much"),
    ],
)
def test_manifests_that_are_wrong(tmp_path, text, said):
    path = tmp_path / "it.yaml"
    path.write_text(text, encoding="utf-8")
    result = evaluate("1", "--node", path)
    assert result.exit_code == 1
    assert said in result.stderr


def test_the_first_pod_without_a_node_is_to_be_placed(tmp_path, nodes):
    path = tmp_path / "pods.yaml"
    one = "kind: Pod\nmetadata: {{name: {}, namespace: {}}}\nspec: {{priority: {}}}\n"
    texts = [one.format("one", "default", 1), one.format("number-two", "prod", 2)]
    path.write_text("---\n".join(texts), encoding="utf-8")
    assert evaluate("pod.priority", "--pod", path).stdout.splitlines()[-1] == "value  1"
    refused = evaluate("node.cpu.free + pod.priority*0", "--pod", path, "--node", nodes)
    assert refused.exit_code == 1
    shown = evaluate("number(node.cpu.free) + pod.priority", "--pod", path, "--node", nodes)
    assert shown.stdout.splitlines()[-2:] == ["value  a          5", "       long-name  2.5"]


# ---- repl


def test_a_session(nodes, pod):
    there = session()
    dialogue = [
        ("", ""),
        ("# nothing", ""),
        ("1 + 2", "3"),
        ("node.cpu.free", "<none>  needs nodes: :node FILE"),
        (f":node {nodes}", "2 nodes; to place: no pod"),
        ("node.cpu.free", "a          4\nlong-name  1500m"),
        (f":pod {pod}", "2 nodes; to place: default/web"),
        ("pod.cpu", "500m"),
        (":metric bandwidth@a=40", ""),
        ("bandwidth", "a          40/s\nlong-name  <none>"),
        (":type 2Gi", "type   a number\nunit   bytes\nlevel  a constant\nreads  nothing\n" + CHEAP),
    ]
    assert [(line, there.answer(line)) for line, _ in dialogue] == dialogue
    assert not there.over
    assert there.answer(":quit") == ""
    assert there.over


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("node.cpu.fre", "P101"),
        ("metric > 3", "P102"),
        ("filter: node.ready", "statements belong in a file"),
        ("let x = 3", "statements belong in a file"),
        (":nothing", "there is no command :nothing"),
        (":node", "see :help"),
        (":node none.yaml", "cannot be read"),
        (":metric load", "NAME=NUMBER"),
        ("“x”", "double quotation mark"),
    ],
)
def test_a_bad_line_says_why_and_changes_nothing(line, said):
    there = session()
    assert said in there.answer(line)
    assert there.answer("1") == "1"


def test_help_names_the_commands():
    assert ":type" in session().answer(":help")


STARTS = ("let ", "metric ", ":metric ", ":type ", "not ", "((((((((((")
LINES = st.one_of(
    st.text(),
    st.text(":()[]$\"'#{}letparmnodcu. 0123456789+-*/<>=?\n", max_size=40),
    st.builds("".join, st.tuples(st.sampled_from(STARTS), st.text(max_size=20))),
)


@settings(max_examples=examples(150), deadline=None)
@given(LINES.filter(lambda line: not line.strip().startswith((":node", ":pod"))))
def test_no_line_ends_it(line):
    assert isinstance(session().answer(line), str)


def test_the_command_reads_to_the_end():
    result = CliRunner().invoke(main, ["repl"], input="1\nnod.x\n2\n")
    assert result.exit_code == 0
    assert result.stdout.startswith("1\nerror[P101]")
    assert result.stdout.endswith("\n2\n")
    assert CliRunner().invoke(main, ["repl"], input=":quit\n1\n").stdout == ""


def test_the_pod_of_a_cron_job_is_in_the_template_of_its_jobs(tmp_path):
    path = tmp_path / "cron.yaml"
    path.write_text("""\
kind: CronJob
metadata: {name: nightly, namespace: ops}
spec:
  jobTemplate:
    spec:
      template:
        metadata: {labels: {app: night}}
        spec: {containers: [{name: c}]}
""")
    wanted = {"pod.namespace": "ops", "pod.workload": "nightly", "pod.owner.kind": "Job"}
    wanted["pod.label[app]"] = "night"
    for field, value in wanted.items():
        assert evaluate(field, "--pod", path).output.splitlines()[-1] == f"value  {value}"
