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

These policies solve problems for which others write plugins. Copy one and change it. Each is a file
in [examples/cookbook](../examples/cookbook) with its tests beside it, which `berth test
examples/cookbook` runs. The tests of a policy say more about it than its description. The first
line names the source of the request.

[The language](language.md) explains what the lines mean. For common needs, first look at [the
bundled policies](policies.md), which you only have to `use`.

`python -m tests.examples.test_cookbook` generates this page from the files.
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
    for rule, outcomes in runner.report.coverage.values():
        seen = set(outcomes)
        assert seen - {"skipped"}, f"{rule.text}: no test sees this rule at work"
        assert seen != {"passed"}, f"{rule.text}: no test sees this rule reject"


if __name__ == "__main__":
    rewrite()
