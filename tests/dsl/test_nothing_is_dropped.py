"""Every statement of a file becomes a compiled rule, or a finding says why not."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import fields

from dsl.compiler import Compiler
from dsl.files import read_source
from dsl.parser import Parser
from dsl.plan import RuleBase
from dsl.syntax import Broken, Rule, Special
from tests.dsl.corpus import policies
from tests.effort import EVERY, examples

COMPILER = Compiler()
PARSER = Parser()
TOP = re.compile(r"(?m)^[^\s#]")


def compiled(plan):
    """All rules of a plan, by where they stand."""
    found = []
    for one in fields(plan):
        value = getattr(plan, one.name)
        if isinstance(value, tuple):
            found += [rule.span for rule in value if isinstance(rule, RuleBase)]
    return found


def check(text):
    """Fails where a statement is neither a rule nor spoken of."""
    source, problems = read_source("a.policy", text)
    result = COMPILER.compile({"a.policy": text})
    errors = [one for one in result.diagnostics if one.is_error]
    if problems:
        assert errors
        return
    statements = [one for one, _ in PARSER.statements(source) if one is not None]
    own = [one for one in result.understood if one.source.name == "a.policy" and one.used is None]
    if not errors:
        (plan,) = own
        wanted = [
            one.span for one in statements
            if isinstance(one, Rule | Special) and one.point != "prescore"
        ]  # fmt: skip
        assert sorted(map(key, compiled(plan))) == sorted(map(key, wanted)), text
        assert not any(isinstance(one, Broken) for one in statements), text
        gates = [one for one in statements if isinstance(one, Rule) and one.point == "prescore"]
        if gates and not plan.scores:
            starts = {one.span.start for one in result.diagnostics}
            assert {one.span.start for one in gates} <= starts, text
    # Whatever starts in column 1 is a statement, or there is an error about it.
    covered = {source.position(one.span.start)[0] for one in statements}
    covered |= {
        line
        for one in errors
        for line in range(source.position(one.span.start)[0], source.position(one.span.end)[0] + 1)
    }
    if '"""' not in text:
        for found in TOP.finditer(source.text):
            assert source.position(found.start())[0] in covered, (text, found)


def alone(text):
    """The statements of a text that is right, each with the declarations, one at a time."""
    source, problems = read_source("a.policy", text)
    parsed = [] if problems else [one for one, _ in PARSER.statements(source) if one is not None]
    rules = [one for one in parsed if isinstance(one, Rule | Special)]
    head = "".join(f"{source.slice(one.span)}\n" for one in parsed if one not in rules)
    return [f"{head}{source.slice(one.span)}\n" for one in rules]


def key(span):
    return span.start, span.end


@pytest.mark.parametrize("step", EVERY)
def test_no_statement_of_any_policy_is_dropped(step):
    for one in policies()[::step]:
        check(one)


@pytest.mark.parametrize("step", EVERY)
def test_no_statement_is_dropped_for_another_ones_sake(step):
    """A wrong line says so itself, not only because another line of its file is wrong."""
    for text in policies()[::step]:
        result = COMPILER.compile({"a.policy": text})
        if not any(one.is_error for one in result.diagnostics):
            continue
        for one in alone(text):
            check(one)


LINES = [
    "filter: node.ready", "forbid: bandwidth > 3", "score: 100 - bandwidth/max*100", "score: m",
    "prefer: least load", "first: node.label a", "gate: pod.gpu > 0", "sort: pod.name",
    "spread: over zone hard", "permit: allow", "permit: wait 5 until node.ready", "bind: dry run",
    "prebind: annotate a = b", "postbind: event \"x {pod.nme}\"", "preempt: victims",
    "preempt: never",
    "gang: by pod.label[g]", "quota: by pod.namespace", "quota: by pod.namespace max cpu 3",
    "reserve: node.cpu.free > 1", "prefilter: pod.cpu < 3", "let l = m + 1", "let l = l", "mode: x",
    "param p: number = a", "metric m = promql \"q\" default 0", "normalize: minmax", "use nothing",
    "prescore: pod.gpu > 0", "applies to: pod.name is a", "weight: 3", "fliter: node.ready",
    "  and node.label x", "# a remark", "", "filter node.ready", "score:", "filter: (", "\u2192",
]  # fmt: skip


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.sampled_from(LINES), max_size=8))
def test_nothing_is_dropped_from_any_mixture(lines):
    check("".join(f"{one}\n" for one in lines))


@pytest.mark.parametrize("line", ["}", ")", "];", "},", "] # end"])
def test_a_line_that_closes_nothing_is_no_statement(line):
    found = COMPILER.compile({"a.policy": f"score: 5\n{line}\n{line}\nscore: 6\n"}).diagnostics
    assert [(one.code, one.source.position(one.span.start)) for one in found if one.is_error] == [
        ("P004", (2, 1))
    ]
    # What closes a line that cannot be read is a consequence of it.
    found = COMPILER.compile({"a.policy": f"score: load {{\n{line}\n"}).diagnostics
    assert [one.source.position(one.span.start)[0] for one in found if one.is_error] == [1]
