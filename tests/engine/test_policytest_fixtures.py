"""What the attributes of a test's nodes and pods come to when a policy reads them."""

from __future__ import annotations

from textwrap import dedent

import pytest

from engine.policytests.running import Runner


def results(tmp_path, policy, tests):
    (tmp_path / "p.policy").write_text(policy)
    (tmp_path / "t.policytest").write_text("use p\n" + dedent(tests))
    runner = Runner(None)
    runner.run(tmp_path / "t.policytest")
    return [(one.outcome, one.message) for one in runner.report.results]


def test_addresses_of_any_number_and_those_that_are_taken(tmp_path):
    policy = "score: node.ips.free + node.ips.capacity*0.01\n"
    tests = """\
        node: a  ips 13
        node: b  ips 64
        node: c  pods 20
        running: on a  name x  count 3
        running: on a  name y  host_network true
        test: "the network of the node takes no address"
          given pod name p
          expect score a 10.13
          expect score b 64.64
          expect score c 20.2
        """
    assert results(tmp_path, policy, tests) == [("passed", "")]


def test_pods_without_names_are_told_apart(tmp_path):
    tests = """\
        node: a
        node: b
        running: on a  count 2
        running: on b
        test: "t"
          given pod name p
          expect score a 2
          expect score b 1
        """
    assert results(tmp_path, "score: count(node.pods)\n", tests) == [("passed", "")]


def test_no_address_at_all_cannot_be_said(tmp_path):
    tests = 'node: a  ips 0\ntest: "t"\n  given pod name p\n  expect best a\n'
    ((outcome, message),) = results(tmp_path, "score: node.ips.free\n", tests)
    assert outcome == "error"
    assert "`ips` is a whole number, not `0`" in message


@pytest.mark.parametrize(
    ("unit", "sample", "score"),
    [
        ("", "0.5", 0.5), ("", "0.5 age 5m", 0.5), ("", "0.5 age 7m", 0),
        ("unit percent", "80", 0.8), ("unit percent", "80%", 0.8), ("unit cores", "500m", 0.5),
    ],
)  # fmt: skip
def test_samples_of_metrics_that_are_annotations(tmp_path, unit, sample, score):
    policy = f"metric m = annotation cpu stale 6m {unit}\nscore: number(m) missing 0\n"
    tests = f"""\
        node: a  metric m {sample}
        test: "t"
          given pod name p
          expect score a {score}
        """
    assert results(tmp_path, policy, tests) == [("passed", "")]


def test_taints_and_conditions_of_a_manifest_stay_beside_those_given(tmp_path):
    (tmp_path / "n.yaml").write_text("""
kind: Node
metadata: {labels: {conditions: good, taints: none}}
spec:
  taints: [{key: a, value: x, effect: NoSchedule}, {key: a, value: y, effect: NoExecute},
           {key: b, value: x, effect: NoSchedule}]
status: {conditions: [{type: Ready, status: "True"}, {type: Hot, status: "False"}]}
""")
    policy = (
        "filter: node.label conditions=good and node.label taints=none and node.taint a\n"
        'filter: node.taint b=y and node.condition[Hot] is "True" and node.ready\n'
    )
    tests = """\
        node: n  from "n.yaml"  taint b=y  condition Hot=True
        test: "t"
          given pod name p
          expect feasible [n]
        """
    assert results(tmp_path, policy, tests) == [("passed", "")]


@pytest.mark.parametrize(
    "manifest",
    [
        "{kind: Pod, metadata: 5, spec: 5, status: 5}",
        "{kind: Pod, metadata: {labels: 5}, spec: {containers: 5}}",
        "{kind: Pod, spec: {containers: [5, {resources: 5}, {resources: {requests: 5}}]}}",
        "{kind: Deployment, metadata: {name: 5}, spec: {template: 5}}",
        "{kind: Node, metadata: 5, spec: 5, status: 5}",
        "{kind: Node, status: {allocatable: 5, capacity: [5], conditions: 5}}",
    ],
)
def test_a_manifest_whose_parts_are_something_else_is_an_error_or_left_out(tmp_path, manifest):
    (tmp_path / "m.yaml").write_text(manifest)
    node, pod = ("", ' from "m.yaml"') if "Node" not in manifest else (' from "m.yaml"', "")
    tests = f'node: a{node}\ntest: "t"\n  given pod name p workload w{pod}\n  expect best a\n'
    ((outcome, message),) = results(tmp_path, "score: 1\n", tests)
    assert outcome == "passed" or "m.yaml: Expected" in message
