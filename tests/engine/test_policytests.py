"""Policy tests run: objects, messages, coverage, reports."""

from __future__ import annotations

import json
import re
from pathlib import Path
from textwrap import dedent
from xml.etree import ElementTree as ET

import pytest
from msgspec import structs
from msgspec.structs import replace

from dsl.compiler import Compiler
from dsl.parser import Parser
from dsl.policytest.attributes import ATTRIBUTES, EXPECTATIONS
from dsl.policytest.reading import read_suite
from engine.pods.podinfo import CPU, MEMORY
from engine.pods.workloads import workload_of
from engine.policy.findings import new_compiler
from engine.policytests.policies import CannotJudgeError
from engine.policytests.running import Runner, as_json, as_junit, as_text, find_files
from engine.policytests.scene import node_of, pods_of

COMPILER = new_compiler()
READER = Parser()
HERE = Path(__file__).parent / "policytests"
NODES = """\
    use p
    node: a  cpu 4  memory 8Gi  label test=test  metric bandwidth 10
    node: b  cpu 4  metric bandwidth 40
    """
POLICY = """\
    filter: pod.name contains nginx -> node.label test=test
      message "not {node.name}" status unresolvable
    score: 100 - bandwidth/max*100
    """


def text(part):
    return dedent(part)


@pytest.fixture
def run(tmp_path):
    """Runs one test file beside some policies; gives the results."""

    def go(tests, *, head=NODES, **files):
        files = {"p": POLICY} | files
        for name, content in files.items():
            (tmp_path / f"{name}.policy").write_text(text(content))
        path = tmp_path / "t.policytest"
        path.write_text(text(head) + text(tests))
        runner = Runner(None, COMPILER, READER)
        runner.run(path)
        go.report = runner.report
        return runner.report.results

    go.folder = tmp_path
    return go


def outcome(results):
    (one,) = results
    return one.outcome, one.message


# ---- the example of the language's reference


def test_the_example_passes():
    runner = Runner(None, COMPILER, READER)
    runner.run(HERE / "nginx" / "nginx.policytest")
    assert [(one.test, one.outcome, one.message) for one in runner.report.results] == [
        ("nginx pods may only go to nodes with test=test", "passed", ""),
        ("other pods are not affected", "passed", ""),
        ("no traffic at all", "passed", ""),
        ("queue order", "passed", ""),
    ]
    assert runner.report.exit_code == 0
    seen = runner.report.coverage.values()
    rules = [(rule.text.split(":")[0], outcomes) for rule, outcomes in seen]
    assert rules == [
        ("filter", {"passed": 1, "rejected": 1, "abstained": 3}),
        ("score", {"scored": 4}),
    ]


# ---- failures say what came out


def test_a_failure_shows_the_values_of_the_rule(run):
    results = run('test: "t"\n  given pod name my-nginx\n  expect feasible [a, b]\n')
    assert outcome(results)[0] == "failed"
    said = results[0].message.replace(f"{run.folder}/", "")
    assert said == text("""\
        t.policytest:6: expect feasible [a, b]
        feasible are [a]
        b is rejected by p.policy:1: "not b"
        p.policy:1: filter: pod.name contains nginx -> node.label test=test message "not {node.name}" status unresolvable
          b
            pod.name contains nginx  true
            pod.name                 my-nginx
            node.label test=test     false
            node.label[test]         <none>""")  # noqa: E501 - as it is printed


def test_a_wrong_score_shows_how_it_comes_about(run):
    (one,) = run('test: "t"\n  given pod\n  expect score a 70\n')
    assert one.outcome == "failed"
    assert one.line == 4
    lines = [line.split() for line in one.message.splitlines()]
    assert ["the", "score", "of", "a", "is", "75"] in lines
    assert ["bandwidth/max*100", "25"] in lines
    assert ["max", "40/s"] in lines


@pytest.mark.parametrize(
    ("clause", "said"),
    [
        ('rejected [b] message "not c"', 'b is rejected by p.policy:1: "not b"'),
        ("rejected [b] status unschedulable", "b is rejected by p.policy:1 as unresolvable"),
        ("score b 0", 'no score, as b is rejected by p.policy:1: "not b"'),
        ("best b", "the best: a"),
        ("skipped 1", "rule 1 did apply"),
        ("skipped 3", "there is no rule 3; the rules that can be asked are 1 and 2"),
        ("order [nginx]", None),
        ("ungated nginx", None),
        ("gated nginx", "nothing holds nginx before the queue"),
        ('rejected [b] message "not b" status unresolvable', None),
    ],
)
def test_expectations(run, clause, said):
    got, message = outcome(run(f'test: "t"\n  given pod name nginx\n  expect {clause}\n'))
    assert got == ("passed" if said is None else "failed"), message
    assert said is None or said in message.replace(f"{run.folder}/", "")


def test_a_test_that_expects_nothing_fails(run):
    got, message = outcome(run('test: "t"\n  given pod name nginx\n'))
    assert got == "failed"
    assert "expects nothing" in message


def test_a_test_that_no_rule_has_a_part_in_is_counted_or_denied(run):
    policy = "filter: pod.name contains nginx -> node.label test=test\n"
    head = "use p\nnode: a\n"
    tests = 'test: "t"\n  given pod name redis\n  expect feasible [a]\n'
    assert outcome(run(tests, head=head, p=policy)) == ("passed", "")
    told = as_text(run.report, coverage=False)
    assert told == "1 passed (1 of them where no rule applied)"
    denying = Runner(None, COMPILER, READER, deny_skipped=True)
    denying.run(run.folder / "t.policytest")
    assert outcome(denying.report.results) == ("failed", "no rule applies to default/redis")
    assert outcome(run(tests.replace("[a]", "none"), head=head, p=policy))[0] == "failed"
    assert outcome(run(tests + "  expect skipped 1\n", head=head, p=policy)) == ("passed", "")
    assert as_text(run.report, coverage=False) == "1 passed"


def test_a_score_that_abstains_is_no_score(run):
    head = "use p\nnode: a\n"
    tests = 'test: "t"\n  given pod\n  expect score a 0\n'
    got, message = outcome(
        run(tests, head=head, p="filter: node.ready\nscore: bandwidth normalize minmax\n")
    )
    assert got == "failed"
    assert "every scoring rule abstained" in message


def test_a_metric_that_nobody_reads_is_told(run):
    tests = 'test: "t"\n  given pod\n  given node a metric bandwith 5\n  expect best a\n'
    got, message = outcome(run(tests))
    assert got == "failed"
    assert "reads the metric `bandwith`" in message
    assert "t.policytest:6: no policy" in message
    assert message.endswith("; did you mean `bandwidth`?")


def test_a_question_with_two_names_has_the_samples_of_both(run):
    policy = """\
        metric heat = promql "x"
        metric warm = promql "x"
        filter: heat is missing or heat < 90
        score: warm
        """
    head = "use p\nnode: a  metric heat 1  metric warm 1\nnode: b  metric heat 95\n"
    tests = 'test: "t"\n  given pod\n  expect feasible [a]\n  expect score a 1\n'
    assert outcome(run(tests, head=head, p=policy)) == ("passed", "")


def test_a_question_with_two_names_has_one_answer(run):
    """A cluster has one, too: neither is to win in silence."""
    policy = 'metric heat = promql "x"\nmetric warm = promql "x"\nscore: heat + warm\n'
    head = "use p\nnode: a\n  metric heat 3\n  metric warm 3 age 5s\n"
    tests = 'test: "t"\n  given pod\n  expect best a\n'
    got, message = outcome(run(tests, head=head, p=policy))
    assert (got, message.replace(f"{run.folder}/", "")) == (
        "failed",
        "t.policytest:3: `heat` asks what line 4 answers otherwise",
    )


def test_a_metric_above_the_tests_that_nobody_reads_is_told_with_its_line(run):
    head = "use p\n# metric: bandwith is of the cluster\nnode: a\nmetric: bandwith = 5\n"
    _, message = outcome(run('test: "t"\n  given pod\n  expect best a\n', head=head))
    assert re.search(r"policytest:4: no policy used here reads the metric `bandwith`", message)


def test_the_plugin_that_stops_the_best_node_is_named(run):
    head = "use p\nuse node-resources-fit\nnode: a cpu 1\nnode: b cpu 8\n"
    tests = 'test: "t"\n  given pod cpu 4\n  expect best a\n'
    tests += 'test: "u"\n  given pod cpu 100\n  expect best a\n'
    first, second = (one.message for one in run(tests, head=head))
    assert 'a is rejected by NodeResourcesFit: "Insufficient cpu"' in first
    assert "b is rejected" not in first
    for name in "ab":
        assert f'{name} is rejected by NodeResourcesFit: "Insufficient cpu"' in second


# ---- policies


def test_policies_are_found_by_header_then_file_then_bundled_then_in_tree(tmp_path):
    folder, bundled = tmp_path / "mine", tmp_path / "bundled"
    folder.mkdir()
    bundled.mkdir()
    (folder / "x.policy").write_text("policy: y\nforbid: node.name is a\n")
    (folder / "y.policy").write_text("forbid: node.name is b\n")
    (bundled / "z.policy").write_text("forbid: node.name is c\n")
    (bundled / "x.policy").write_text("forbid: node.name is d\n")
    for name, rejected in (("y", "a"), ("x", "a"), ("z", "c")):
        (folder / "t.policytest").write_text(
            f'use {name}\nnode: a\nnode: b\nnode: c\nnode: d\ntest: "t"\n'
            f"  given pod\n  expect rejected [{rejected}]\n"
        )
        runner = Runner(bundled, COMPILER, READER)
        runner.run(folder / "t.policytest")
        assert [one.outcome for one in runner.report.results] == ["passed"], name


def test_a_policy_that_is_not_there(run):
    (one,) = run('test: "t"\n  given pod\n  expect feasible [a]\n', head="use q\nnode: a\n", qq="")
    assert one.outcome == "error"
    assert "error[P704]: there is no policy `q`" in one.message
    (one,) = run('test: "t"\n  given pod\n  expect best a\n', head="use node-nme\nnode: a\n")
    assert "did you mean `node-name`?" in one.message


def test_in_tree_plugins_take_part_when_they_are_used(run):
    head = "use node-resources-fit\nuse taint-toleration\nnode: a  cpu 1\nnode: b\nnode: c cpu 9\n"
    tests = """\
        test: "t"
          given node c  taint dedicated=x
          given pod cpu 1
          expect feasible [a]
          expect rejected [b] message "Insufficient cpu" status unresolvable
          expect rejected [c] message "node(s) had untolerated taint(s)"
        test: "tolerated"
          given node c  taint dedicated=x
          given pod cpu 1 toleration dedicated=x
          expect feasible [a, c]
          expect best c
        """
    results = run(tests, head=head)
    assert [one.outcome for one in results] == ["passed", "passed"], results[0].message


def test_the_weighted_sum_of_several_policies(run):
    head = "use p weight 2\nuse p as again\nnode: a metric bandwidth 10\nnode: b\n"
    tests = 'test: "t"\n  given pod\n  given node b metric bandwidth 40\n  expect score a 225\n'
    assert outcome(run(tests, head=head)) == ("passed", "")


def test_the_default_profile_takes_part_at_once(run):
    head = """\
        use p
        use defaults
        use taint-toleration weight 7
        node: a  cpu 4  unschedulable true
        node: b  cpu 1
        node: c  cpu 4  taint k=v
        node: d  cpu 4
        """
    tests = """\
        test: "t"
          given pod name x  cpu 2
          expect feasible [d]
          expect rejected [a] message "node(s) were unschedulable"
        """
    policy = "filter: node.cpu.free > 0\n"
    assert outcome(run(tests, head=head, p=policy)) == ("passed", "")


def test_a_policy_that_uses_another(run):
    head = "use p\nnode: a\nnode: b\n"
    tests = 'test: "t"\n  given pod\n  expect rejected [b]\n'
    files = {"p": "use other\nscore: 1\n", "other": "forbid: node.name is b\n"}
    assert outcome(run(tests, head=head, **files)) == ("passed", "")


PREEMPT = """\
    preempt: victims where it.priority < pod.priority and not it.label critical=true
      order it.priority asc, it.started_at desc
    require: node.cpu.free >= pod.cpu
    """
BUSY = """\
    use p
    node: a  cpu 2
    node: b  cpu 2
    running: on a  name low   cpu 1  priority 1  started_at "2025-03-01T08:00:00Z"
    running: on a  name late  cpu 1  priority 1  started_at "2025-03-01T09:00:00Z"
    running: on b  name crit  cpu 2  priority 1  label critical=true
    """


@pytest.mark.parametrize(
    ("clauses", "outcome_", "said"),
    [
        ("given pod cpu 1 priority 5\n  expect victims [late]\n  expect nominated a", "passed", ""),
        ("given pod cpu 2 priority 5\n  expect victims [late, low]", "passed", ""),
        ("given pod cpu 1 priority 1\n  expect nominated none", "passed", ""),
        ("given pod priority 5\n  expect victims none", "passed", ""),
        ("given pod cpu 1 priority 5 preemption_policy Never\n  expect victims []", "passed", ""),
        ("given pod cpu 1 priority 5\n  expect victims [low]", "failed", "the victims are [late]"),
    ],
)  # fmt: skip
def test_victims(run, clauses, outcome_, said):
    results = run(f'test: "t"\n  {clauses}\n', head=BUSY, p=PREEMPT)
    got, message = outcome(results)
    assert got == outcome_, message
    assert said in message


POINTS = 'prefilter: pod.gpu > 0 -> cluster.gpu.free >= pod.gpu message "no {pod.gpu} GPUs"\n'


def test_a_prefilter_stops_the_pod_everywhere(run):
    head = "use p\nnode: a\nnode: b  label tier=gold  label go=yes\n"
    tests = """\
        test: "a prefilter stops the pod on every node"
          given pod gpu 2
          expect rejected [a, b] message "no 2 GPUs" status unschedulable
          expect feasible none
        """
    assert outcome(run(tests, head=head, p=POINTS)) == ("passed", "")


def test_what_is_not_said_is_an_error(run):
    tests = 'test: "t"\n  given pod\n  expect permit allow\n'
    got, message = outcome(run(tests, head="use p\nnode: a\nnode: b\n", p="filter: node.ready\n"))
    assert got == "error"
    assert "no node is chosen; say which:  given pod chosen NODE" in message
    head = "use p\nuse q\nnode: a\n"
    got, message = outcome(run(tests, head=head, p="sort: pod.name\n", q="sort: pod.uid\n"))
    assert got == "error"
    assert "exactly one plugin that sorts the queue; got p, q" in message
    heavy = "use p weight 1Ei\nnode: a\n"
    got, message = outcome(run(tests, head=heavy, p="score: 1\n"))
    assert (got, "the weights of all plugins together must stay below" in message) == (
        "error",
        True,
    )
    skipped = 'test: "t"\n  given pod\n  expect skipped 1\n'
    got, message = outcome(run(skipped, head=head, p="score: 1\n", q="score: 1\n"))
    assert got == "error"
    assert "`skipped` counts the rules of one" in message


class Later(Compiler):
    """Compiles a filter that raises."""

    def __init__(self, fault):
        super().__init__()
        self.fault = fault

    def compile(self, files, **options):
        result = super().compile(files, **options)
        (plan,) = result.plans

        def read(*_):
            raise self.fault

        filters = tuple(replace(one, prepare=read) for one in plan.filters)
        return structs.replace(result, plans=(replace(plan, filters=filters),))


def runner_of_a_filter_that_raises(fault, tmp_path):
    (tmp_path / "p.policy").write_text("filter: node.ready\n")
    path = tmp_path / "t.policytest"
    path.write_text('use p\nnode: a\ntest: "t"\n  given pod\n  expect feasible [a]\n')
    return Runner(None, Later(fault), READER), path


def test_a_bug_is_not_taken_for_something_to_skip(tmp_path):
    runner, path = runner_of_a_filter_that_raises(KeyError("a bug"), tmp_path)
    with pytest.raises(KeyError, match="a bug"):
        runner.run(path)


def test_parameters(run):
    policy = (
        "param pool: string = test\nparam limit: number = 5 from 0 to 9\n"
        "filter: node.label test=$pool\n"
    )
    tests = """\
        test: "of the file"
          given pod
          expect feasible [b]
        test: "of the test"
          given pod
          given param pool = one
          expect feasible [a]
        test: "out of range"
          given param limit = 10
          expect error P111
        test: "accepted"
          expect error P111
        test: "unknown"
          given pod
          given param pol = one
          expect feasible [a]
        """
    head = "use p (pool = two)\nnode: a label test=one\nnode: b label test=two\n"
    results = run(tests, head=head, p=policy)
    assert [one.outcome for one in results] == ["passed", "passed", "passed", "failed", "error"]
    assert "the policy is accepted" in results[3].message
    assert "there is no parameter `pol`" in results[4].message


def test_an_old_code_is_expected_and_the_new_one_said(run):
    tests = 'test: "t"\n  expect error P001\ntest: "u"\n  expect error P002\n'
    results = run(tests, head="use p\n", p="filter: pod.name startswith a\n")
    assert [one.outcome for one in results] == ["passed", "failed"]
    assert results[0].message == "P001 is P015 now"


def test_a_policy_with_errors_is_an_error_of_each_test(run):
    tests = 'test: "t"\n  given pod\n  expect best a\ntest: "u"\n  expect error P101\n'
    results = run(tests, p="filter: node.lable[x] is y\n")
    assert [one.outcome for one in results] == ["error", "passed"]
    assert "error[P101]" in results[0].message
    assert run.report.exit_code == 2


# ---- objects


def thing(line, kind="node"):
    head = "use p\nnode: on-it\n"
    made = read_suite("t", f'{head}{kind}: {line}\ntest: "t"\n  given pod\n  expect best on-it\n')
    assert made.ok, made.diagnostics
    return made.cases[0].cluster.of(kind)[-1]


DEPLOYMENT = """\
    apiVersion: v1
    kind: Service
    metadata: {name: web}
    ---
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: web, namespace: shop}
    spec:
      template:
        metadata: {labels: {app: web}}
        spec:
          containers:
            - {name: a, image: "nginx:1.25", resources: {limits: {cpu: 500m, memory: 1Gi}}}
            - {name: b, resources: {requests: {cpu: 250m}}}
    """


def test_a_manifest_gives_what_a_cluster_would_have(tmp_path):
    (tmp_path / "web.yaml").write_text(text(DEPLOYMENT))
    (pod,) = pods_of(thing('from "web.yaml"', "pending"), "pod", tmp_path)
    assert pod.key == "shop/web"
    assert pod.requests == {CPU: 750, MEMORY: 1 << 30}
    assert pod.pod.metadata.labels == {"app": "web", "pod-template-hash": "template"}
    # The Deployment makes a ReplicaSet, and that makes the pod.
    assert pod.pod.metadata.owner_references[0].kind == "ReplicaSet"
    assert workload_of(pod) == "web"
    assert pod.pod.spec.service_account_name == "default"


def test_attributes_win_over_the_manifest(tmp_path):
    (tmp_path / "w.yaml").write_text(text(DEPLOYMENT))
    more = 'from "w.yaml" name x namespace y cpu 2 image z label app=other'
    (pod,) = pods_of(thing(more, "pending"), "pod", tmp_path)
    assert pod.key == "y/x"
    assert pod.requests == {CPU: 2000, MEMORY: 1 << 30}
    assert pod.pod.spec.containers[0].image == "z"
    assert pod.pod.metadata.labels == {"app": "other", "pod-template-hash": "template"}


def test_times_of_a_manifest_are_texts(tmp_path):
    content = "kind: Node\nmetadata: {creationTimestamp: 2025-01-01T00:00:00Z}\n"
    (tmp_path / "n.yaml").write_text(content)
    node = node_of(thing('n from "n.yaml"'), tmp_path)
    assert node.metadata.creation_timestamp == "2025-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("kind: Pod\n", "holds no Node, but Pod"),
        ("", "holds no Node, but nothing"),
        ("a: [\n", "is not YAML"),
        ("kind: Node\nspec: {taints: [{key: 5}]}\n", "n.yaml: Expected `str`"),
        ("kind: Node\nstatus: {capacity: [1]}\nmetadata: nothing\n", None),
        ("kind: List\nitems: [{kind: Pod}, {kind: Node}]\n", None),
    ],
)
def test_manifests_that_are_none(content, said, tmp_path):
    (tmp_path / "n.yaml").write_text(content)
    if said is None:
        assert node_of(thing('n from "n.yaml"'), tmp_path).metadata.name == "n"
        return
    with pytest.raises(CannotJudgeError, match=said.replace("`", ".")):
        node_of(thing('n from "n.yaml"'), tmp_path)


def test_a_manifest_that_is_not_there(run):
    tests = 'test: "t"\n  given pod from "none.yaml"\n  expect best a\n'
    got, message = outcome(run(tests))
    assert got == "error"
    assert "none.yaml cannot be read: No such file or directory" in message


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("/dev/zero", "/dev/zero cannot be read: it is longer than 2 MiB"),
        (".", ". cannot be read: Is a directory"),
        ("large.yaml", "large.yaml cannot be read: it is longer than 2 MiB"),
        ("latin.yaml", "latin.yaml is not YAML: unacceptable character #x00e9"),
    ],
)
def test_a_manifest_that_is_none_of_a_cluster(run, tmp_path, name, said):
    (tmp_path / "latin.yaml").write_bytes(b"kind: Pod # \xe9\n")
    with (tmp_path / "large.yaml").open("wb") as file:
        file.truncate((2 << 20) + 1)
    got, message = outcome(run(f'test: "t"\n  given pod from "{name}"\n  expect best a\n'))
    assert got == "error"
    assert said in message


def test_a_test_file_that_never_ends(tmp_path):
    runner = Runner(None, COMPILER, READER)
    (tmp_path / "a.policytest").symlink_to("/dev/zero")
    runner.run(tmp_path / "a.policytest")
    (result,) = runner.report.results
    assert (result.outcome, "longer than 1 MiB" in result.message) == ("error", True)


# ---- what policies read


def test_samples_have_units_and_turn_stale(run):
    policy = """\
        metric load = promql "load" unit percent stale 2m
        metric room = promql "room" unit bytes default 5Gi
        metric wait = promql "wait" unit seconds
        filter: load is present and load < 60%
        score: if wait is present and room >= 2Gi then 100 else 0
        """
    head = """\
        use p
        node: a  metric load 50   metric room 1Gi  metric wait 200ms
        node: b  metric load 55%  metric wait 5m
        node: c  metric load 70   metric wait 1
        node: d  metric load 10 age 3m  metric wait 1
        node: e  metric load 10 age 2m  metric wait 1
        """
    tests = """\
        test: "t"
          given pod
          expect feasible [a, b, e]
          expect score a 0
          expect score b 100
        """
    assert outcome(run(tests, head=head, p=policy)) == ("passed", "")


def test_the_order_of_the_queue_and_gates_of_the_tree(run):
    head = "use p\nuse scheduling-gates\nnode: a\n"
    (run.folder / "gated.yaml").write_text("kind: Pod\nspec: {schedulingGates: [{name: x}]}\n")
    tests = """\
        test: "order"
          given pod name old queued_at "2025-03-01T09:00:00Z"
          given pod name new queued_at "2025-03-01T09:30:00Z"
          given pod name high priority 5 queued_at "2025-03-01T09:40:00Z"
          expect order [high, old, new]
        test: "gates"
          given pod name held from "gated.yaml"
          given pod name free
          expect gated held
          expect ungated free
        """
    results = run(tests, head=head, p="filter: node.ready\n")
    assert [(one.outcome, one.message) for one in results] == [("passed", "")] * 2


def test_a_pod_of_a_manifest_is_called_as_the_test_calls_it(run):
    head = "use p\nuse scheduling-gates\nnode: a\n"
    spec = "kind: Pod\nmetadata: {name: own}\nspec: {schedulingGates: [{name: x}]}\n"
    (run.folder / "gated.yaml").write_text(spec)
    tests = """\
        test: "gate"
          given pod from "gated.yaml"
          given pod name other from "gated.yaml"
          expect gated pod
          expect gated other
          expect order [pod, other]
        """
    results = run(tests, head=head, p="filter: node.ready\n")
    assert [(one.outcome, one.message) for one in results] == [("passed", "")]


# ---- gangs, quotas and preemption, with the plugins of the tree


GANG = """\
    gang: pod.label gang -> by pod.label[gang] min number(pod.annotation[size]) wait 30s
      reject above 25% missing within zone
    """
ZONES = """\
    use p
    use node-resources-fit
    node: a1  cpu 2  label topology.kubernetes.io/zone=a
    node: a2  cpu 1  label topology.kubernetes.io/zone=a
    node: b1  cpu 4  label topology.kubernetes.io/zone=b
    node: none  cpu 9
    """
MEMBER = "cpu 1  label gang=g  annotation size=4"


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ("given pending name m  count 3", 'feasible [a1, a2, b1]'),
        ("given pending name m  count 3  cpu 2", 'feasible none'),
        ("given pending name m  count 3\n  given running on a1 name web cpu 1", "feasible [b1]"),
        ("given pending name m  count 3\n  given running on b1 name x cpu 2", "feasible [a1, a2]"),
        ("given pending name m  count 2", 'rejected [a1, a2, b1, none] message'
         ' "gang g has 3 of the 4 members that it needs" status unresolvable'),
        ("given pending name m  count 3  cpu 3", 'rejected [a1, a2, b1, none] message'
         ' "gang g: 2 of the 4 members that it needs fit in one zone" status unschedulable'),
        ("given pending name m  count 2\n  given running on b1 name r cpu 1 label gang=g",
         "feasible [b1]"),
        ("given pending name m  count 2  namespace z", "feasible none"),
    ],
)  # fmt: skip
def test_a_gang_is_planned_whole(run, clauses, expected):
    first, _, rest = clauses.partition("\n")
    if "cpu" not in first:
        first += "  cpu 1"
    first += "  label gang=g"
    tests = f'test: "t"\n  given pod name p {MEMBER}\n  {first}\n{rest}\n  expect {expected}\n'
    assert outcome(run(tests, head=ZONES, p=GANG)) == ("passed", "")


def test_members_wait_for_each_other_and_no_longer_than_they_say(run):
    tests = f"""\
        test: "waits"
          given pod name p {MEMBER} chosen b1
          given pending name m  count 3  cpu 1  label gang=g
          expect permit wait message "gang g: 1 of 4 members have a node"
        test: "gives up"
          given pod name p {MEMBER} chosen b1 waited 30s
          given pending name m  count 3  cpu 1  label gang=g
          expect permit reject
        test: "the last one"
          given pod name p {MEMBER} chosen b1
          given running on b1 name m  count 2  cpu 1  label gang=g  bound false
          given running on b1 name n  cpu 1  label gang=g
          expect permit allow
          expect feasible [b1]
        test: "no gang"
          given pod name p cpu 1 chosen none
          expect feasible [a1, a2, b1, none]
          expect permit allow
          expect skipped 1
        """
    results = run(tests, head=ZONES, p=GANG)
    assert [(one.outcome, one.message) for one in results] == [("passed", "")] * 4
    [(_, seen)] = run.report.coverage.values()
    assert seen == {"passed": 2, "rejected": 1, "abstained": 1}


def test_victims_on_several_nodes_for_a_constraint_of_a_zone(run):
    policy = """\
        require: count(zone.pods where it.label app=web) == 0
        preempt: victims where it.label app=web order it.priority across 3 nodes limit 3
        """
    head = """\
        use p
        node: a  label topology.kubernetes.io/zone=z
        node: b  label topology.kubernetes.io/zone=z
        node: c  label topology.kubernetes.io/zone=z
        node: d  label topology.kubernetes.io/zone=y
        running: on a  name w1  label app=web
        running: on b  name w2  label app=web
        running: on c  name w3  label app=web
        running: on c  name other
        running: on d  name w4  count 4  label app=web
        """
    tests = """\
        test: "three nodes at once"
          given pod priority 1
          expect victims [w1, w2, w3]
          expect nominated a
        test: "one is enough where it is"
          given running on a name w1 label app=db
          given running on b name w2 label app=db
          given pod priority 1
          expect victims [w3]
          expect nominated c
        test: "the limit holds"
          given running on a name w5 label app=web
          given pod priority 1
          expect victims none
        """
    assert [one.message for one in run(tests, head=head, p=policy)] == ["", "", ""]


def test_a_quota_is_asked_again_without_the_victims(run):
    policy = """\
        quota: by pod.namespace max cpu 2 message "no more for {pod.namespace}"
        preempt: victims
        """
    head = """\
        use p
        node: a
        node: b
        running: on a  name mine   cpu 2  priority 1
        running: on b  name other  cpu 2  priority 0  namespace z
        """
    tests = """\
        test: "whose going does not help stays"
          given pod cpu 1 priority 5
          expect rejected [a, b] message "no more for default" status unschedulable
          expect victims [mine]
          expect nominated a
        """
    assert outcome(run(tests, head=head, p=policy)) == ("passed", "")


# ---- reports


def test_reports(run):
    tests = (
        'test: "good"\n  given pod\n  expect best a\n'
        'test: "bad \\"<&>\uffff"\n  given pod\n  expect best b\n'
        'test: "none"\n  given pod from "no.yaml"\n  expect best b\n'
    )
    run(tests)
    report = run.report
    assert report.exit_code == 2
    listed = json.loads(as_json(report, coverage=False))
    assert [list(one) for one in listed] == [["file", "test", "line", "outcome", "message"]] * 3
    assert [one["outcome"] for one in listed] == ["passed", "failed", "error"]
    covered = json.loads(as_json(report, coverage=True))
    assert covered["tests"] == listed
    assert covered["coverage"][1]["scored"] == 2
    root = ET.fromstring(as_junit(report))
    assert root.attrib == {"tests": "3", "failures": "1", "errors": "1"}
    cases = root.findall("testsuite/testcase")
    assert [case.get("name") for case in cases] == ["good", 'bad "<&>\\uffff', "none"]
    assert [[part.tag for part in case] for case in cases] == [[], ["failure"], ["error"]]
    said = as_text(report, coverage=True)
    assert said.endswith("1 passed, 1 failed, 1 could not be run")
    assert "rejected  passed  abstained  scored" in said
    assert re.search(r"p.policy:1 +- +- +2 +- +-  filter: pod.name contains nginx", said)


def test_files_are_found_below_folders(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("a/b/x.policytest", "a/y.policytest", "a/z.policy"):
        (tmp_path / name).write_text("")
    found = [str(one.relative_to(tmp_path)) for one in find_files([tmp_path])]
    assert found == ["a/b/x.policytest", "a/y.policytest"]
    with pytest.raises(FileNotFoundError):
        list(find_files([tmp_path / "none"]))


def test_the_language_page_has_the_example_and_every_name():
    page = (Path(__file__).parents[2] / "docs" / "language.md").read_text(encoding="utf-8")
    section = page.split("## Testing policies", 1)[1]
    example = (HERE / "nginx" / "nginx.policytest").read_text(encoding="utf-8")
    assert f"```policytest\n{example}```" in section
    prose = re.sub(r"```.*?```", "", section, flags=re.DOTALL)
    words = set(re.findall(r"[a-z_]+", "".join(re.findall(r"`[^`]+`", prose))))
    names = {name for attributes in ATTRIBUTES.values() for name in attributes}
    assert names | {*EXPECTATIONS} <= words


# ---- what a failure shows, point by point


EVERYTHING = """\
    sort: pod.qos [Guaranteed, Burstable, BestEffort], pod.queued_at
    gate: pod.annotation ok=yes message "wait for {pod.name}"
    prefilter: pod.gpu > 0 -> cluster.gpu.free >= pod.gpu message "no {pod.gpu} GPUs"
    first: node.label tier=gold
    reserve: pod.cpu > 0 -> node.cpu.free >= 0
    permit: pod.label slow=yes -> wait 60s until node.label go=yes message "not yet"
    prebind: annotate example.com/node = node.name, annotate example.com/cpu = node.cpu.free
    preempt: victims where it.priority < pod.priority and not it.label critical=true
    require: node.cpu.free >= pod.cpu
    quota: by pod.namespace max cpu 3
    gang: pod.label gang -> by pod.label[gang] min 2
    """
CROWDED = """\
    use p
    node: a  cpu 2
    node: b  cpu 2  label tier=gold
    running: on a  name low   cpu 1  priority 1
    running: on b  name crit  cpu 2  label critical=true
    """


@pytest.mark.parametrize(
    ("clauses", "shown"),
    [
        ("given pod name x\n  given pod name y qos Guaranteed\n  expect order [x, y]",
         ["the order is [y, x]", "x", "pod.qos        BestEffort", "pod.qos        Guaranteed"]),
        ("given pod name x\n  expect ungated x",
         ['x is held: "wait for x"', "default/x", "pod.annotation[ok]     <none>"]),
        ("given pod name x annotation ok=yes\n  expect gated x",
         ["nothing holds x before the queue", "default/x", "pod.annotation[ok]     yes"]),
        ("given pod gpu 2\n  expect feasible [a]",
         ["default/pod", "cluster.gpu.free >= pod.gpu  false"]),
        ("given pod\n  expect best a",
         ["b", "a", "node.label[tier]      <none>"]),
        ("given pod label slow=yes chosen a\n  expect permit allow",
         ['permit says wait: "not yet"', "default/pod on a", "node.label go=yes   false"]),
        ("given pod chosen a\n  expect annotation example.com/cpu 3",
         ['example.com/cpu is set to "1"', "node.cpu.free  1"]),
        ("given pod chosen a\n  expect annotation example.com/no 3",
         ["example.com/no is not set; set are [example.com/cpu, example.com/node]"]),
        ("given pod cpu 2 priority 5 namespace x\n  expect victims none",
         ["the victims are [low]", "low on a may go", "crit on b stays",
          "it.label[critical]" + " " * 28 + "true"]),
        ("given pod cpu 2 priority 5 namespace x\n  expect nominated b",
         ["nominated is a", "low on a may go", "pod.namespace  x"]),
        ("given pod cpu 1\n  expect rejected none",
         ['"quota of default: no more cpu: 3 used', "pod.namespace  default"]),
        ("given pod label gang=g namespace x\n  expect feasible [a]",
         ['"gang g has 1 of the 2 members that it needs"',
          "g: the pod, and 0 bound, 0 assumed, 0 pending; 2 are needed"]),
        ("given pod gpu 1\n  expect skipped 3",
         ["rule 3 did apply", "pod.gpu > 0" + " " * 18 + "true"]),
        ("given pod\n  expect skipped 99", ["there is no rule 99; the rules that can be asked"]),
    ],
)  # fmt: skip
def test_a_failure_shows_the_values_of_the_rules_that_it_is_about(run, clauses, shown):
    got, message = outcome(run(f'test: "t"\n  {clauses}\n', head=CROWDED, p=EVERYTHING))
    assert got == "failed", message
    lines = [line.strip() for line in message.splitlines()]
    said = "\n".join(lines)
    assert [one for one in shown if one not in said] == [], message


# ---- slips of the pen, and rules about the chosen node


def test_a_plugin_that_the_policy_uses_takes_part(run):
    tests = 'test: "t"\n  given pod cpu 4\n  expect feasible [b]\n'
    head = "use p\nnode: a cpu 2\nnode: b cpu 8\n"
    policy = "use node-resources-fit\nfilter: node.ready\n"
    assert outcome(run(tests, head=head, p=policy)) == ("passed", "")
    assert outcome(run(tests, head="use node-resources-fit\n" + head, p=policy)) == ("passed", "")
    assert outcome(run(tests, head=head, p="filter: node.ready\n"))[0] == "failed"


@pytest.mark.parametrize("point", ["prebind", "postbind"])
def test_a_rule_about_the_chosen_node_is_seen_to_abstain(point, run):
    action = "annotate a.b/c = node.name" if point == "prebind" else 'event "on {node.name}"'
    tests = """\
        test: "no node is chosen"
          given pod name other
          expect skipped 1
        test: "its pods"
          given pod name web  chosen a
          expect feasible [a, b]
        """
    head = "use p\nnode: a\nnode: b\n"
    policy = f"{point}: pod.name is web -> {action}\n"
    assert [one.outcome for one in run(tests, head=head, p=policy)] == ["passed", "passed"]
    ((_, outcomes),) = run.report.coverage.values()
    assert outcomes == {"abstained": 1, "applied": 1}


def test_events_and_annotations_that_are_not_set(run):
    policy = """\
        prebind: annotate a.b/zone = node.zone, event "on {node.name}"
        postbind: pod.name is web -> event "bound, at {pod.priority}"
        """
    tests = """\
        test: "both"
          given pod name web  priority 5  chosen a
          expect events ["on a", "bound, at 5"]
          expect unset a.b/zone
        test: "neither"
          given pod name other  chosen b
          expect events ["bound, at 0"]
          expect unset a.b/zone
        """
    head = "use p\nnode: a\nnode: b  label topology.kubernetes.io/zone=z\n"
    first, second = run(tests, head=head, p=policy)
    assert (first.outcome, second.outcome) == ("passed", "failed")
    assert 'the events are\n"on b"' in second.message
    assert 'a.b/zone is set to "z"' in second.message
    (one,) = run('test: "t"\n  given pod chosen a\n  expect events [x]\n', head=head)
    assert "there is no event" in one.message
    policy = "filter: node.ready"
    (one,) = run('test: "t"\n  given pod chosen a\n  expect events none\n', head=head, p=policy)
    assert one.outcome == "passed"


# ---- what a `use` says


BOUNDED = "param limit: number = 5 from 0 to 9\nfilter: pod.priority < $limit\n"
TWO = 'test: "t"\n  given pod\n  expect feasible [a]\ntest: "u"\n  given pod\n  expect best a\n'


@pytest.mark.parametrize(
    ("use", "code", "underlined", "help_"),
    [
        ("use p (limt = 2)", "P105", "limt", "did you mean `limit`?"),
        ("use p (other = 2)", "P105", "other", "there is limit"),
        ("use node-name (a = 2)", "P105", "a", "there is none"),
        ("use p (limit = foo)", "P111", "limit", "the policy has  param limit: number = 5"),
        ("use p (limit = 20)", "P111", "limit", "from 0 to 9"),
        ("use p.policy", "P704", "p.policy", "did you mean `p`?"),
        ("use defaults weight 2", "P702", "defaults", "takes no weight"),
        ("use p.yaml", "P704", "p.yaml", "did you mean `p`?"),
    ],
)
def test_what_is_wrong_with_a_use_is_said_once_and_there(run, use, code, underlined, help_):
    (one,) = run(TWO, head=f"{use}\nnode: a\n", p=BOUNDED)
    assert (one.outcome, one.test, one.line) == ("error", "", 1)
    assert one.message.startswith(f"error[{code}]")
    line, mark = re.search(r"1 \| (.*)\n +\| (.*)\n", one.message).groups()
    assert line[mark.index("^") : mark.rindex("^") + 1] == underlined
    assert help_ in one.message


def test_a_value_given_in_one_test_is_told_there(run):
    tests = TWO.replace("  expect best", "  given param limit = 20\n  expect best")
    first, second = run(tests, head="use p\nnode: a\n", p=BOUNDED)
    assert (first.outcome, second.outcome) == ("passed", "error")
    assert "t.policytest:8:15" in second.message.replace(f"{run.folder}/", "")


def test_an_unknown_parameter_of_a_test_has_a_near_one(run):
    tests = 'test: "t"\n  given pod\n  given param limt = 2\n  expect best a\n'
    _, message = outcome(run(tests, head="use p\nnode: a\n", p=BOUNDED))
    assert "did you mean `limit`?" in message


def test_a_gang_makes_room_for_all_its_members_or_for_none(run):
    policy = """\
        gang: by pod.label[gang] min 2
        preempt: victims where it.priority < pod.priority
        """
    head = """\
        use p
        use node-resources-fit
        node: a  cpu 2
        running: on a  name low  count 2  cpu 1
        """
    tests = """\
        test: "all"
          given pod name g-1  cpu 1  priority 5  label gang=g
          given pending name g-2  cpu 1  priority 5  label gang=g
          expect victims [low-1, low-2]
          expect nominated a
        test: "none"
          given pod name g-1  cpu 1  priority 5  label gang=g
          expect victims none
          expect nominated none
        """
    assert [one.outcome for one in run(tests, head=head, p=policy)] == ["passed"] * 2


def test_samples_are_as_old_as_they_are_said_to_be_however_long_a_pod_waited(run):
    policy = """\
        metric heat = promql "heat"
        permit: wait 5m until heat is present and heat < 3
        """
    tests = """\
        test: "new"
          given pod waited 4m
          expect permit allow
        test: "stale"
          given node a metric heat 2 age 3m
          given pod waited 4m
          expect permit wait
        test: "too long"
          given node a metric heat 3
          given pod waited 5m
          expect permit reject
        """
    results = run(tests, head="use p\nnode: a  metric heat 2\n", p=policy)
    assert [(one.outcome, one.message) for one in results] == [("passed", "")] * 3
    aged = 'metric heat = promql "heat"\npermit: wait 5m until (metric_age(heat) ?? 9m) < 1m\n'
    tests = 'test: "t"\n  given pod waited 4m\n  expect permit wait\n'
    assert outcome(run(tests, head="use p\nnode: a  metric heat 2 age 2m\n", p=aged))[0] == "passed"
