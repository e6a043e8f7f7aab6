"""Realistic policies that are right: the analysis, and the whole compiler, say nothing of them."""

import re

from dsl.analysis import Size
from dsl.compiler import Compiler
from dsl.diagnostics import render
from tests.effort import each
from tests.scoreboard.__main__ import right

COMPILER = Compiler()
POLICIES = list(right())


def test_there_are_many():
    assert len(POLICIES) >= 60
    assert len({name for name, _ in POLICIES}) == len(POLICIES)


@each("name, text", POLICIES)
def test_silent(name, text):
    result = COMPILER.compile({f"{name}.policy": text})
    assert result.diagnostics == (), render(result.diagnostics)


@each("name, text", POLICIES)
def test_no_rule_is_said_to_be_without_effect(name, text):
    """Each rule is needed: without it the others say nothing new, and it is not the others'."""
    lines = re.split(r"(?m)^(?=\S)", text)
    for index, line in enumerate(lines):
        if not re.match(r"[a-z]+:", line):
            continue
        rest = "".join(lines[:index] + lines[index + 1 :])
        found = COMPILER.compile({f"{name}.policy": rest}).diagnostics
        # What is left may be the only score, whose weight is then for nothing.
        found = [one for one in found if "there is no other one" not in one.message]
        assert {one.code for one in found} <= {"P316"}, render(found)


def test_silent_in_a_larger_cluster_too():
    for name, text in POLICIES:
        result = COMPILER.compile({f"{name}.policy": text}, size=Size(5_000, 50_000))
        assert {one.code for one in result.diagnostics} <= {"P320", "P321"}, name
        assert not any(one.code == "P321" for one in result.diagnostics), name
