"""Statements of several files, and of all examples."""

import re
from pathlib import Path

from dsl.compiler import Compiler
from tests.effort import each

COMPILER = Compiler()


def test_two_sorts_of_two_files():
    files = {"a.policy": "sort: pod.name", "b.policy": "sort: pod.uid"}
    assert [one.code for one in COMPILER.compile(files).diagnostics] == ["P501"]
    assert COMPILER.compile({**files, "b.policy": "mode: off\nsort: pod.uid"}).ok


def examples():
    text = (Path(__file__).parent / "data" / "examples.txt").read_text(encoding="utf-8")
    parts = re.split(r"^=== (.*)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@each("name, text", examples().items())
def test_every_example_is_checked_without_errors(name, text):
    found = COMPILER.compile({"p.policy": text}).diagnostics
    # P107: the policies that it uses are not there.
    assert {one.code for one in found if one.is_error} <= {"P107"}
