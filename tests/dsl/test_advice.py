"""What helps propose, pasted: it compiles, and the finding is gone."""

import re

import pytest

from dsl.compiler import Compiler

COMPILER = Compiler()
HEAD = 'metric heat = promql "q" by node\nmetric m = promql "q" by node\nlet hot = heat > 80\n'


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
    ],
)
def test_what_is_proposed_for_a_metric_without_data(rule):
    (one,) = found(HEAD + rule + "\n")
    assert one.code == "P231"
    left = rule.partition(": ")[2].partition("-> ")[0] if "->" in rule else ""
    proposed = re.findall(r"such nodes: +\w+: (.*)", "\n".join(one.helps))
    if not proposed:
        proposed = one.helps[0].removeprefix("write  ").split("   or   ")
    assert len(proposed) == 2
    for text in proposed:
        arrow = f"{left}-> " if left else ""
        keyword = rule.partition(":")[0]
        told = found(f"{HEAD}{keyword}: {arrow}{text}\n")
        assert [each.code for each in told if each.is_error] == [], text


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
