"""Every code has a page whose first example shows it and whose second cures it."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from dsl.codes import GONE
from dsl.policytest.reading import read_suite
from engine.cli import main
from engine.policy.findings import new_compiler
from tests.dsl.test_analysis_page import ABSENT, MORE
from tests.effort import each

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "errors").glob("P*.md"))
HEADINGS = ["## What it means", "## Why it matters", "## How to fix it"]
COMPILER = new_compiler()


def codes_in_source():
    parts = [*(ROOT / "dsl").rglob("*.py"), *(ROOT / "engine").rglob("*.py")]
    text = "".join(one.read_text(encoding="utf-8") for one in parts)
    # What the scheduler only logs starts with its code: "P603: metric ...".
    return set(re.findall(r'(?m)(?:"|^)(P[0-9]{3})(?:"|: )', text))


def test_every_code_has_a_page_and_every_page_a_code():
    assert {one.stem for one in PAGES} == codes_in_source() - GONE.keys()


@pytest.mark.parametrize("code", GONE)
def test_codes_that_are_no_longer_said_are_explained(code):
    assert code not in {one.stem for one in PAGES}
    told = CliRunner().invoke(main, ["explain", code])
    assert (told.exit_code, GONE[code] in told.output) == (0, True)


@each("page", PAGES)
def test_page(page):
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# {page.stem}: ")
    assert [line for line in text.splitlines() if line.startswith("## ")] == HEADINGS
    examples = re.findall(r"```policy\n(.*?)\n```", text, re.DOTALL)
    if not examples:
        assert page.stem in {*ABSENT, *MORE} or page.stem.startswith("P7")
        return
    wrong, right = examples
    found = COMPILER.compile({"a.policy": wrong}).diagnostics
    assert {one.code for one in found} == {page.stem}
    assert COMPILER.compile({"a.policy": right}).diagnostics == ()


@pytest.mark.parametrize("code", ["P024", "P701", "P702", "P703"])
def test_pages_about_policy_tests(code):
    text = (ROOT / "docs" / "errors" / f"{code}.md").read_text(encoding="utf-8")
    wrong, right = re.findall(r"```policytest\n(.*?\n)```", text, re.DOTALL)
    assert {one.code for one in read_suite("a.policytest", wrong).diagnostics} == {code}
    assert read_suite("a.policytest", right).ok
