"""The cookbook: every policy is told in docs/cookbook.md, and its tests see each of its rules.

`python -m tests.examples.test_cookbook` rewrites the page.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dsl.parser import Parser
from engine.policy.findings import new_compiler
from engine.policytests.running import Runner

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "cookbook"
PAGE = ROOT / "docs" / "cookbook.md"
POLICIES = sorted(FOLDER.glob("*.policy"))
COMPILER, READER = new_compiler(), Parser()
HEAD = """\
# Cookbook

Policies for what others write plugins for: each is a file of
[examples/cookbook](../examples/cookbook) with its tests beside it, which `berth test
examples/cookbook` runs. The first line says where somebody has asked for it. Copy one, change it;
what the lines mean is told in [the language](language.md), and [the bundled policies](policies.md)
can be taken with `use`. The test of a policy says more about it than its description.

This page is made from the files, by `python -m tests.examples.test_cookbook`.
"""


def page():
    yield HEAD
    yield "| policy | what it does |\n| --- | --- |"
    yield from (f"| [{path.stem}](#{path.stem}) | {told(path)} |" for path in POLICIES)
    for path in POLICIES:
        yield f"\n## {path.stem}\n\n```policy\n{path.read_text('utf-8').rstrip()}\n```"


def told(path):
    return re.search('^description: "(.*)"$', path.read_text("utf-8"), re.MULTILINE)[1]


def rewrite():
    PAGE.write_text("\n".join(page()) + "\n", encoding="utf-8")


def test_the_page_is_that_of_the_files():
    assert PAGE.read_text("utf-8") == "\n".join(page()) + "\n"


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_tests_pass_and_see_both_sides(path):
    text = path.read_text("utf-8")
    assert text.startswith("# After: ")
    assert f"\npolicy: {path.stem}\n" in text
    assert COMPILER.compile({path.name: text}).diagnostics == ()
    runner = Runner(None, COMPILER, READER)
    runner.run(path.with_suffix(".policytest"))
    assert [one.message for one in runner.report.results if one.outcome != "passed"] == []
    for rule in runner.report.coverage.values():
        seen = set(rule.outcomes)
        assert seen - {"skipped"}, f"{rule.place}: no test sees this rule at work"
        assert seen != {"passed"}, f"{rule.place}: no test sees this rule reject"


if __name__ == "__main__":
    rewrite()
