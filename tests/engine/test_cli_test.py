"""`berth test` as it is called."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from engine.cli import main

EXAMPLE = Path(__file__).parent / "policytests" / "nginx"


def berth(*args):
    return CliRunner().invoke(main, ["test", *map(str, args)])


def test_all_pass():
    done = berth(EXAMPLE)
    assert (done.exit_code, done.output) == (0, "4 passed\n")


def test_coverage_and_junit(tmp_path):
    done = berth(EXAMPLE / "nginx.policytest", "--coverage", "--junit", tmp_path / "j.xml")
    assert done.exit_code == 0
    assert done.output.splitlines()[0].split() == [
        "rule",
        "rejected",
        "passed",
        "abstained",
        "scored",
        "applied",
    ]
    assert ET.parse(tmp_path / "j.xml").getroot().get("tests") == "4"


def test_json():
    listed = json.loads(berth(EXAMPLE, "--format", "json").output)
    assert {one["outcome"] for one in listed} == {"passed"}


def test_json_is_json_whatever_a_test_is_called(tmp_path):
    name = "\x7f \x85 \u202e \x1b ü"
    text = f'use node-name\nnode: n\ntest: "{name}"\n  given pod\n  expect feasible [n]\n'
    (tmp_path / "a.policytest").write_text(text, "utf-8")
    [one] = json.loads(berth(tmp_path, "--format", "json").output)
    assert (one["test"], one["outcome"]) == (name, "passed")


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        ("use node-name\nnode: a\ntest: \"t\"\n  given pod\n  expect feasible []\n", 1, "1 failed"),
        ("use node-name\nnode: a\ntest: \"t\"\n  given pod\n  expect feasible [b]\n", 2, "P701"),
        ("use nothing-like-it\nnode: a\ntest: \"t\"\n  given pod\n  expect best a\n", 2, "P704"),
        ("noed: a\n", 2, "did you mean `node`?"),
    ],
)  # fmt: skip
def test_what_fails(tmp_path, content, code, said):
    (tmp_path / "t.policytest").write_text(content)
    done = berth(tmp_path)
    assert done.exit_code == code, done.output
    assert said in done.output


@pytest.mark.parametrize("given", ["", "a.policy"])
def test_nothing_to_run(given, tmp_path):
    (tmp_path / "a.policy").write_text("filter: node.ready\n")
    done = berth(tmp_path / given)
    assert done.exit_code == 2
    assert "there is no .policytest file" in done.output
    assert berth(tmp_path / "none").exit_code == 2
    bad = berth(EXAMPLE, "--junit", tmp_path / "no" / "j.xml")
    assert bad.exit_code == 2
    assert "cannot be written" in bad.output
