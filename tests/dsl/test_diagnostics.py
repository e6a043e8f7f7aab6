"""What findings look like: golden renderings, JSON, fixes."""

import json
from textwrap import dedent

import pytest

from dsl.compiler import Compiler
from dsl.diagnostics import render, to_json

COMPILER = Compiler()


def found(text, name="a.policy"):
    return COMPILER.compile({name: text}).diagnostics


GOLDEN = {
    "traffic.policy": (
        "# a\n\nscore: 100 - bandwith/max*100\n",
        """\
        error[P102]: no metric, let or field is called `bandwith`
         --> traffic.policy:3:14
          |
        3 | score: 100 - bandwith/max*100
          |              ^^^^^^^^
          = help: did you mean `bandwidth`? (bundled metric: receive bytes/s per node)
        """,
    ),
    "misspelt.policy": (
        "filter: pod.name contains nginx -> node.lable test=test\n",
        """\
        error[P101]: there is no field `node.lable`
         --> misspelt.policy:1:36
          |
        1 | filter: pod.name contains nginx -> node.lable test=test
          |                                    ^^^^^^^^^^
          = help: did you mean `node.label`?
        """,
    ),
    "word.policy": (
        "filter: pod.namespace prod -> node.label a=b\n",
        """\
        error[P023]: no `is` stands in front of `prod`
         --> word.policy:1:23
          |
        1 | filter: pod.namespace prod -> node.label a=b
          |                       ^^^^
          = help: did you mean  is prod
        """,
    ),
    "ns.policy": (
        "require: pod.namespace == kube-system\n",
        """\
        error[P011]: `==` is followed by an expression, and `kube-system` is a bare word
         --> ns.policy:1:27
          |
        1 | require: pod.namespace == kube-system
          |                           ^^^^^^^^^^^
          = help: write  pod.namespace is kube-system   or   pod.namespace == "kube-system"
        """,
    ),
    "mix.policy": (
        "\n\n\nscore: 5\n  filter: node.label test=test\n",
        """\
        error[P012]: this line is indented, so it continues the `score` of line 4
         --> mix.policy:5:3
          |
        5 |   filter: node.label test=test
          |   ^^^^^^ a new statement starts in column 1
          = help: remove the leading spaces
        """,
    ),
    "fit.policy": (
        "require: node.memory.free >= 500m\n",
        """\
        error[P203]: cannot compare bytes with cores
         --> fit.policy:1:10
          |
        1 | require: node.memory.free >= 500m
          |          ^^^^^^^^^^^^^^^^ bytes
          |                              ---- `m` is milli-cores here
          = help: did you mean 500Mi?
        """,
    ),
    "hot.policy": (
        '\nmetric cpu5 = promql "cpu" stale 6m\n\nfilter: cpu5 <= 65%\n',
        """\
        error[P231]: `cpu5` may have no fresh sample, and this filter does not say what happens then
         --> hot.policy:4:9
          |
        2 | metric cpu5 = promql "cpu" stale 6m
          |                            -------- after 6m without a new value it is missing
        4 | filter: cpu5 <= 65%
          |         ^^^^ without data this is false: the node would be rejected
          = help: reject such nodes:  filter: cpu5 is present and cpu5 <= 65%
          = help: keep such nodes:  filter: cpu5 is missing or cpu5 <= 65%
        """,
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name):
    text, expected = GOLDEN[name]
    assert render(found(text, name)) == dedent(expected)


def test_colour_only_when_asked():
    findings = found("fliter: x\n")
    assert "\x1b[" not in render(findings)
    assert "\x1b[1;31merror[P004]" in render(findings, color=True)


def test_text_of_the_user_cannot_move_the_terminal():
    assert "\x1b" not in render(found("filter: pod.name is \x1b[31mred\n"))
    assert "\x1b" not in render(found('filter: node.label["\x1b"] > 5\n'))


def test_tabs_keep_the_caret_in_place():
    text = render(found("filter:\tpod.nam is a\n"))
    assert "1 | filter: pod.nam is a" in text
    assert "  |         ^^^^^^^\n" in text


def test_long_lines_are_shown_in_part():
    text = render(found("filter: " + "node.ready or " * 100 + "node.redy\n"))
    assert max(map(len, text.splitlines())) < 230
    assert "node.redy" in text


def test_json():
    (one,) = json.loads(to_json(found("score: 100 - bandwith/max*100\n")))["diagnostics"]
    assert one == {
        "code": "P102",
        "severity": "error",
        "file": "a.policy",
        "line": 1,
        "column": 14,
        "end_line": 1,
        "end_column": 22,
        "message": "no metric, let or field is called `bandwith`",
        "help": "did you mean `bandwidth`? (bundled metric: receive bytes/s per node)",
        "fix": {"line": 1, "column": 14, "end_line": 1, "end_column": 22, "text": "bandwidth"},
    }


BROKEN = [
    "score: 100 - bandwith/max*100",
    "require: pod.namespace == kube-system",
    "filter: pod.nam is x",
    "filter: pod.name is x && node.ready",
    "filter: pod.name = x",
    "filter: pod.qos is besteffort",
    "score: 5 wieght 3",
    "mode: enforcd",
    'metric m = promql "x" every 15\nscore: m',
    "score: clmp(load, 0, 1)",
    "param abc = 1\nscore: $abd",
    "filter: node.ready)",
    "filter: node.label a=b\u2019c",
    "filter: pod.name is a\u00a0and node.ready",
    "filter: pod.name is a \u2192 node.ready",
]


@pytest.mark.parametrize("text", BROKEN)
def test_a_fix_cures(text):
    first = found(text)[0]
    if first.fix is None:
        pytest.fail("no fix")
    span = first.fix.span
    mended = text[: span.start] + first.fix.text + text[span.end :]
    assert first.code not in [one.code for one in found(mended)] or "\u2019" in text


def test_one_cause_one_finding():
    assert [one.code for one in found("let a = bandwith\nscore: a + 1\nscore: a\n")] == ["P102"]
    assert [one.code for one in found("let a = (\nscore: a\n")] == ["P002"]
    assert [one.code for one in found('metric m = promql "$x"\nscore: m\n')] == ["P105"]


def test_independent_errors_are_all_reported():
    text = (
        "filter: pod.nam is x and nod.ready -> node.redy\nscore: loda\nfilter: node.cpu.fre > 1\n"
    )
    assert [one.code for one in found(text)] == ["P101", "P101", "P101", "P102", "P101"]
