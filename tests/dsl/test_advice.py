"""What helps propose, pasted: it compiles, and the finding is gone."""

import re

import pytest

from dsl.compiler import Compiler

COMPILER = Compiler(plugins=("node-name", "node-resources-fit"))
HEAD = 'metric heat = promql "q" by node\nmetric m = promql "q" by node\nlet hot = heat > 80\n'
HEAD += 'metric each = promql "q" by pod\nmetric rtt = promql "q" by src, dst\n'
HEAD += "let total = sum(each over node.pods)\n"


def found(text):
    return COMPILER.compile({"a.policy": text}).diagnostics


@pytest.mark.parametrize(
    "rule",
    [
        "filter: metric_age(heat) < 5m",
        "filter: heat <= 80",
        "filter: 80 > heat",
        "filter: node.memory.free > 1Gi and m < 3",
        "filter: m > 3 or node.ready",
        "filter: if node.ready then m > 3 else false",
        "filter: not hot",
        "forbid: heat > 80",
        "forbid: hot or node.unschedulable",
        "require: pod.gpu > 0 -> heat < 80",
        "reserve: heat < 80",
        "reserve: m > 3 or node.ready",
        "filter: (m > 3 or node.ready)",
        "filter: m/max < 0.5",
        "filter: m > 3 -> node.label a=b",
        "forbid: pod.gpu > 0 and m > 3 -> node.label a=b",
        "filter: count(node.pods where each > 3) < 5",
        "filter: all(node.pods where it.ready or each > 3)",
        "forbid: pod.gpu > 0 -> sum(each over node.pods) > 5",
        "filter: max(each*2 over zone.pods where it.ready or it.bound) < 5",
        "filter: avg(rtt(node.name, it.node) over cluster.pods) < 5",
        "prefilter: avg(m over nodes) < 5",
        "prefilter: any(nodes where m > 3) -> pod.gpu > 0",
        "permit: wait 10m until m < 3, then allow",
        "permit: m > 3 and node.ready -> reject message 'no'",
    ],
)
def test_what_is_proposed_for_a_metric_without_data(rule):
    (one,) = (each for each in found(HEAD + rule + "\n") if each.is_error)
    assert one.code == "P231"
    proposed = [re.sub(r"^[a-z0 ]+: +(?=\w+: )", "", text) for text in one.helps]
    assert len(proposed) == 2
    for text in proposed:
        assert text.partition(":")[0] == rule.partition(":")[0]
        assert text.partition("->")[1] == rule.partition("->")[1], "the other side stays"
        told = found(f"{HEAD}{text}\n")
        assert [each.code for each in told if each.is_error] == [], text


@pytest.mark.parametrize(
    ("rule", "label"),
    [
        ("filter: m < 5", "without data this is false: the node would be rejected"),
        ("filter: not hot", "without data this holds: the node would be kept"),
        ("filter: m != 5", "without data this holds: the node would be kept"),
        ("filter: not (m in 1..5)", "without data this holds: the node would be kept"),
        ("filter: m < 5 and node.ready", "without data this is false: the node would be rejected"),
        ("filter: node.ready or m != 5", "without data this holds: the node would be kept"),
        ("filter: m < 5 or node.ready", "without data it is left to the rest of the condition"),
        ("filter: max(m over nodes) - 1 < 5", "nodes without data are left out here"),
        ("filter: rank(-m) < 0.5", "without data this is false: the node would be rejected"),
        ("forbid: m > 5", "without data this is false: the node would be kept"),
        ("forbid: not hot", "without data this holds: the node would be rejected"),
        ("filter: m > 5 -> node.ready", "without data this is false: the rule would not apply"),
        ("filter: m != 5 -> node.ready", "without data this holds: the rule would apply"),
        ("reserve: m < 5", "without data this is false"),
        ("filter: any(node.pods where each > 3)", "without data this is false of a pod"),
        ("filter: sum(each over node.pods) < 3", "pods without data are left out here"),
        ("filter: total < 3", "pods without data are left out here"),
    ],
)
def test_what_a_metric_without_data_does(rule, label):
    (one,) = (each for each in found(HEAD + rule + "\n") if each.is_error)
    assert (one.code, one.label) == ("P231", label)


@pytest.mark.parametrize(
    ("test", "help_"),
    [
        ("is presnt", "is present"),
        ("is prezent", "is present"),
        ("is not presnet", "is missing"),
        ("is mising", "is missing"),
        ("is not misssing", "is present"),
        ("is Missng", "is missing"),
        ("is nul", "is missing"),
        ("is null", "is missing"),
        ("is None", "is missing"),
        ("is not undefind", "is present"),
    ],
)
def test_words_that_look_like_missing_and_present(test, help_):
    (one,) = found(f"filter: pod.label[x] {test}\n")
    assert (one.code, one.helps) == ("P317", (f"write  pod.label[x] {help_}",))
    assert one.source.slice(one.span) == test.split()[-1]
    assert found(f"filter: pod.label[x] {help_}\n") == ()


@pytest.mark.parametrize(
    "test",
    ["is mission", "is percent", "is prevent", "is preset", "is pending", "is node", "is full",
     "is nginx", "is president", 'is "presnt"', "is not 'nul'", "in [presnt, nul]",
     "is lissing", "is misc", "is pre-sent-1"],
)  # fmt: skip
def test_words_that_are_words(test):
    assert found(f"filter: pod.label[x] {test}\n") == ()


def test_a_policy_that_nobody_has():
    (one,) = found("use zzzz\n")
    assert (one.code, "`berth policies`" in one.helps[0]) == ("P107", True)
    (one,) = found("use node-resource-fit\n")
    assert one.helps == ("did you mean `node-resources-fit`?",)
