"""Bundled policies: each compiles, is tested, is told in docs/policies.md, and can be used.

`python -m tests.test_policies` rewrites the page.
"""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import policies
from dsl import ir
from dsl.parser import Parser
from dsl.plan import ConditionRule, FilterRule, GangRule, PermitRule, QuotaRule, ScoreRule
from dsl.schema import FIELDS
from dsl.source import make_source
from dsl.syntax import Header, MetricDecl, ParamDecl
from engine.cli import main
from engine.policy.findings import new_compiler
from engine.policytests.running import Runner

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "policies"
PAGE = ROOT / "docs" / "policies.md"
NAMES = policies.names()
#: Parameters that have no default, for want of one that would mean anything.
GIVEN = {"label-filter": {"node_label": "test=test", "workload_name": "nginx"}}
EXPECTED = [
    "capacity-scheduling",
    "coscheduling",
    "cross-node-preemption",
    "deadline",
    "dedicated-nodes",
    "fifo",
    "gentle-start",
    "gpu-guard",
    "label-filter",
    "limit-aware",
    "load-aware",
    "max-per-domain",
    "namespace-order",
    "network-bandwidth",
    "network-traffic",
    "node-resources-allocatable",
    "node-score-by-label",
    "pack-with-headroom",
    "pod-state",
    "preempt-kindly",
    "qos-sort",
    "spot-mix",
    "throttle",
    "time-window",
]
COMPILER = new_compiler()
PARSER = Parser()


def statements(name):
    source = make_source(f"{name}.policy", policies.text(name))
    return source, [one for one, _ in PARSER.statements(source)]


def lesson(name):
    lines = policies.text(name).split("\npolicy:")[0].splitlines()
    return [line.removeprefix("#").strip() for line in lines]


# ---- what they are


def test_these_policies_are_bundled():
    assert list(NAMES) == EXPECTED


def test_what_is_not_bundled():
    with pytest.raises(KeyError):
        policies.text("../README")
    with pytest.raises(KeyError):
        policies.tests("nothing")


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_says_what_it_is(name):
    source, there = statements(name)
    headers = {one.name: source.slice(one.value.span) for one in there if isinstance(one, Header)}
    assert headers["policy"] == name
    assert headers["description"].strip('"')
    assert lesson(name)[1] == ""
    assert len(lesson(name)) > 3, "a worked example"
    for one in there:
        if isinstance(one, ParamDecl):
            assert one.doc, one.name
            assert one.default is not None or one.name in GIVEN.get(name, {})
            assert one.kind != "number" or one.bounds, one.name


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_compiles(name):
    files = {f"{name}.policy": policies.text(name)}
    found = COMPILER.compile(files, params={name: GIVEN.get(name, {})}).diagnostics
    assert [(one.code, one.message) for one in found if one.is_error] == []


def test_the_files_are_in_style():
    result = CliRunner().invoke(main, ["fmt", "--check", str(FOLDER)])
    assert result.exit_code == 0, result.output


# ---- what they do


def possible(rule):
    """What a rule can do: all of it is to be shown by the tests of its policy."""
    core = getattr(rule, "core", None)
    match rule:
        case FilterRule() | ConditionRule() | QuotaRule() | GangRule():
            found = {"rejected", "passed"}
        case PermitRule():
            only = {"allow": {"passed"}, "reject": {"rejected"}}
            found = only.get(core.decision, {"rejected", "passed"})
        case ScoreRule():
            found = {"scored"}
        case _:
            found = {"applied"}
    by = getattr(core, "by", None)
    optional = by is not None and (not isinstance(by, ir.Read) or FIELDS[by.field].optional)
    asked = isinstance(core, ir.PermitCore | ir.ActionCore) and core.left is not None
    guarded = getattr(core, "guard", None) is not None or getattr(core, "elastic", False)
    return found | {"abstained"} if optional or asked or guarded else found


@pytest.mark.parametrize("name", NAMES)
def test_the_tests_pass_and_show_all_that_the_rules_can_do(name):
    runner = Runner(FOLDER)
    runner.run(FOLDER / f"{name}.policytest")
    results = runner.report.results
    assert results
    assert {one.test: one.message for one in results if one.outcome != "passed"} == {}
    each = runner.report.coverage.values()
    own = [one for one in each if one[0].source.name.endswith(f"/{name}.policy")]
    assert own
    assert [(rule.text, possible(rule) - seen.keys()) for rule, seen in own] == [
        (rule.text, set()) for rule, _ in own
    ]


def test_berth_test_is_green_and_sees_every_policy():
    done = CliRunner().invoke(main, ["test", str(FOLDER), "--coverage", "--format", "json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.output)
    assert {one["outcome"] for one in said["tests"]} == {"passed"}
    rules = {one["place"].rpartition("/")[2].partition(".")[0] for one in said["coverage"]}
    assert rules == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_can_be_used(name):
    args = ", ".join(f'{key} = "{value}"' for key, value in GIVEN.get(name, {}).items())
    text = f"use {name}{f' ({args})' if args else ''} as mine\n"
    result = COMPILER.compile(
        {"own.policy": text}, bundled={one: policies.text(one) for one in NAMES}
    )
    assert [one.message for one in result.diagnostics if one.is_error] == []


# ---- how they are shown


def test_berth_policies_lists_them():
    result = CliRunner().invoke(main, ["policies"])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    names = [line.split()[0] for line in lines]
    assert names == list(NAMES)
    assert all(len(line) <= 100 for line in result.stdout.splitlines())


@pytest.mark.parametrize("name", ["fifo", "fifo.policy"])
def test_berth_policies_shows_one(name):
    result = CliRunner().invoke(main, ["policies", name])
    assert (result.exit_code, result.stdout) == (0, policies.text("fifo"))


def test_berth_policies_shows_its_tests():
    result = CliRunner().invoke(main, ["policies", "fifo", "--tests"])
    assert (result.exit_code, result.stdout) == (0, policies.tests("fifo"))


def test_berth_policies_without_such_a_policy():
    result = CliRunner().invoke(main, ["policies", "fiffo"])
    assert result.exit_code == 1
    assert "did you mean fifo?" in result.stderr
    assert CliRunner().invoke(main, ["policies", "--tests"]).exit_code == 2


# ---- the page


HEAD = """\
# Bundled policies

These policies come with Berth. Add one to your own policy file with `use NAME`. You can set its
parameters, its weight, and another name:

```policy
use network-bandwidth (range = 5m)
use max-per-domain (domain = zone, limit = 2) as two_a_zone weight 2
```

`berth policies` lists them, and `berth policies NAME` prints one: a few lines that you can also
copy and change. Each has tests (`berth policies NAME --tests`), which `berth test policies` runs.
[The language](language.md) explains what the lines mean.

`python -m tests.test_policies` generates this page from the files in [policies](../policies).
"""


def page():
    yield HEAD
    yield "| policy | what it does |\n| --- | --- |"
    for name in NAMES:
        yield f"| [{name}](#{name}) | {about(name)} |"
    for name in NAMES:
        yield f"\n## {name}\n"
        yield "\n".join(lesson(name)).strip()
        source, there = statements(name)
        params = [one for one in there if isinstance(one, ParamDecl)]
        if params:
            yield "\n| parameter | type | default | meaning |\n| --- | --- | --- | --- |"
            yield from (row(source, one) for one in params)
        metrics = [f"`{one.name}`" for one in there if isinstance(one, MetricDecl)]
        if metrics:
            yield f"\nIts own metrics: {', '.join(metrics)}."


def about(name):
    found = re.search(r'^description: "(.*)"$', policies.text(name), re.MULTILINE)
    return found[1]


def row(source, one):
    kind = f"list of {one.kind}" if one.is_list else one.kind
    if one.bounds:
        kind += ", {} to {}".format(*(source.slice(each.span) for each in one.bounds))
    if one.choices:
        kind += f", one of {source.slice(one.choices.span)}"
    default = f"`{source.slice(one.default.span)}`" if one.default else "must be given"
    cells = (f"`{one.name}`", kind, default, one.doc)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def test_the_page_is_made_from_the_policies():
    assert PAGE.read_text(encoding="utf-8") == "\n".join(page()) + "\n"


def test_the_example_of_the_page_compiles():
    example = HEAD.split("```policy\n")[1].split("```")[0]
    bundled = {one: policies.text(one) for one in NAMES}
    assert COMPILER.compile({"own.policy": example}, bundled=bundled).diagnostics == ()


if __name__ == "__main__":
    PAGE.write_text("\n".join(page()) + "\n", encoding="utf-8")
