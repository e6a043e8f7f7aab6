"""`use`: which policy is meant, with which parameters, and what is refused."""

import pytest

import policies
from dsl.compiler import Compiler

COMPILER = Compiler(plugins=("node-name", "node-resources-fit"))
LIMIT = """\
policy: limit
param top: number = 3 from 1 to 10
param pool: string
require: count(node.pods) < $top and node.label pool=$pool
"""


def compiled(files, **more):
    return COMPILER.compile(files, **more)


def codes(result):
    return [one.code for one in result.diagnostics if one.is_error]


def test_an_instance_has_its_own_name_weight_and_parameters():
    result = compiled(
        {"a.policy": "use limit (pool = gold, top = 5) as gold weight 2\nuse limit (pool = x)\n"},
        bundled={"limit": LIMIT},
    )
    # No node is in both pools.
    assert [one.code for one in result.diagnostics] == ["P302"]
    plans = {one.name: one for one in result.plans}
    assert sorted(plans) == ["a", "gold", "limit"]
    assert plans["gold"].weight == 2
    assert plans["limit"].weight == 1
    assert plans["gold"].variant != plans["limit"].variant


def test_the_same_folder_comes_before_the_bundled_ones():
    mine = "policy: limit\nparam pool: string = here\nfilter: node.label pool=$pool\n"
    other = "policy: other\nuse limit (pool = there) as second\n"
    files = {"x/b.policy": mine, "x/a.policy": other, "y/limit.policy": "policy: no\n"}
    result = compiled(files, bundled={"limit": LIMIT})
    assert [one.code for one in result.diagnostics] == ["P302"]
    assert {one.name: one.source.name for one in result.plans}["second"] == "x/b.policy"


def test_else_the_file_of_that_name():
    files = {"limit.policy": "policy: other\nfilter: node.ready\n", "a.policy": "use limit as b\n"}
    result = compiled(files)
    assert sorted(one.name for one in result.plans) == ["a", "b", "other"]


def test_configuration_wins_over_arguments():
    files = {"a.policy": "use limit (pool = x)\n"}
    params = {"limit": {"top": "11"}}
    assert codes(compiled(files, bundled={"limit": LIMIT}, params=params)) == ["P111"]


def test_a_parameter_of_the_user_may_be_handed_on():
    text = "param p: string = gold\nparam n: number = 4\nuse limit (pool = $p, top = $n)\n"
    result = compiled({"a.policy": text}, bundled={"limit": LIMIT})
    assert codes(result) == []
    assert "'gold'" in {one.name: one.variant for one in result.plans}["limit"]


def test_uses_of_used_policies():
    bundled = {"one": "use two as inner\n", "two": "policy: two\nscore: node.pods.free\n"}
    result = compiled({"a.policy": "use one\n"}, bundled=bundled)
    assert sorted(one.name for one in result.plans) == ["a", "inner", "one"]


@pytest.mark.parametrize(
    ("line", "code", "part"),
    [
        ("use limits (pool = x)", "P107", "did you mean `limit`?"),
        ("use limit (pol = x)", "P108", "did you mean `pool`?"),
        ("use limit (pool = x, top = many)", "P108", "not a number"),
        ("use limit (pool = x, top = 11)", "P108", "from 1 to 10"),
        ("use limit (pool = x, pool = y)", "P108", "twice"),
        ("use limit", "P104", "needs a value for `pool`"),
        ("use limit (pool = x) weight -1", "P111", "weight"),
        ("use limit (pool = $nothing)", "P105", "no parameter"),
        ("use node-name (x = 1)", "P108", "plugin of the scheduler"),
    ],
)
def test_what_is_refused(line, code, part):
    result = compiled({"a.policy": f"{line}\n"}, bundled={"limit": LIMIT})
    (one,) = [one for one in result.diagnostics if one.is_error]
    assert one.code == code
    assert part in " ".join((one.message, *one.helps))
    assert result.plans == ()


def test_circles_and_long_rows_end():
    circle = {"a.policy": "use b as x\n", "b.policy": "use a as y\n"}
    assert set(codes(compiled(circle))) == {"P503"}
    row = {f"p{i}": f"use p{i + 1}\n" for i in range(12)}
    assert codes(compiled({"a.policy": "use p0\n"}, bundled=row)) == ["P503"]


def test_every_bundled_policy_can_be_used():
    bundled = {name: policies.text(name) for name in policies.names()}
    for name in bundled:
        result = compiled({"a.policy": f"use {name}\n"}, bundled=bundled)
        assert set(codes(result)) <= {"P104"}, name


def test_a_policy_that_nobody_has():
    (one,) = compiled({"a.policy": "use zzzz\n"}).diagnostics
    assert (one.code, "`berth policies`" in one.helps[0]) == ("P107", True)
    (one,) = compiled({"a.policy": "use node-resource-fit\n"}).diagnostics
    assert one.helps == ("did you mean `node-resources-fit`?",)
