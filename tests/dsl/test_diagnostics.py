"""What findings look like: golden renderings, JSON, fixes."""

import json

from dsl.compiler import Compiler
from dsl.diagnostics import render, to_json

COMPILER = Compiler()


def found(text, name="a.policy"):
    return COMPILER.compile({name: text}).diagnostics


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


def test_one_cause_one_finding():
    assert [one.code for one in found("let a = bandwith\nscore: a + 1\nscore: a\n")] == ["P102"]
    assert [one.code for one in found("let a = (\nscore: a\n")] == ["P002"]
    assert [one.code for one in found('metric m = promql "$x"\nscore: m\n')] == ["P105"]
