"""Lists that are gone through, at their limits: both evaluators agree, and nobody slips by."""

import re

import pytest

from dsl.checker.aggregates import MOST_OF_NODE, MOST_OF_POD, MOST_OVER_NODES
from tests.dsl.bothways import passing, plan_of, subject
from tests.dsl.worlds import FakeWorld

HALF = MOST_OF_NODE // 2
HOSTS = [{"node.name": "n0"}, {"node.name": "n1", "node.label[k]": ",".join("ab" * HALF)}]
LONG = [{"node.name": "n0"}, {"node.name": "n1", "node.label[k]": ",".join("ab" * HALF + "b")}]
LIST = 'split(pod.label[k], ",")'
OF_NODE = 'split(node.label[k], ",")'


def of(items):
    return subject(**{"label[k]": ",".join(items)})


@pytest.mark.parametrize(
    ("rule", "there", "not_there"),
    [
        (f"filter: any({LIST} where it is x)", True, False),
        (f"forbid: any({LIST} where it is x)", False, True),
        (f"filter: all({LIST} where it is not x)", False, True),
        (f"filter: count({LIST} where it is x) == 1", True, False),
        (f"filter: sum(len(it) over {LIST} where it is x) > 0", True, False),
        (f"filter: node.name is n1 and any({LIST} where it is x)", [False, True], False),
        (f"filter: any({LIST} where it is x and node.name is n1)", [False, True], False),
        (f"filter: all({LIST} where it is not x or node.name is n1)", [False, True], True),
        (f"filter: count({LIST} where it is x and node.name is n1) == 1", [False, True], False),
        (f"filter: max(if it is x then 1 else 0 over {LIST}) == 1", True, False),
        (f"filter: max(if it is x and node.name is n1 then 1 else 0 over {LIST}) == 1",
         [False, True], False),
        (f"filter: any({LIST} where it is x) -> node.name is n1", [False, True], None),
        (f"applies to: any({LIST} where it is x)\nfilter: node.name is n1", [False, True], None),
    ],
)  # fmt: skip
def test_an_item_is_found_wherever_it_stands_and_beyond_the_limit_the_rule_rejects(
    rule, there, not_there
):
    world = FakeWorld(HOSTS)
    of_nodes = re.search(r"x (and|or) node.name", rule) is not None
    most = MOST_OVER_NODES if of_nodes else MOST_OF_POD
    for count in (1, 2, most):
        for place in (0, count - 1):
            items = ["y"] * count
            items[place] = "x"
            assert passing(rule, world, of(items)) == _each(there), (count, place)
        assert passing(rule, world, of(["y"] * count)) == _each(not_there), count
    for item in "xy":
        assert passing(rule, world, of(["y"] * most + [item])) == [False, False]


@pytest.mark.parametrize(
    ("rule", "longer"),
    [
        (f"filter: node.name is n0 and any({LIST} where it is x) -> node.ready", [False, True]),
        (f"filter: node.name is n0 -> any({LIST} where it is x)", [False, True]),
        (f"filter: pod.priority > 5 and any({LIST} where it is x) -> node.ready", None),
        (f"filter: pod.priority > 5 -> any({LIST} where it is x)", None),
        (f"filter: pod.priority > 1 and any({LIST} where it is x) -> node.ready", [False, False]),
        (f"filter: pod.priority > 1 -> any({LIST} where it is x)", [False, False]),
        (f"filter: any({LIST} where it is x) and not any({LIST} where it is x) -> node.ready",
         [False, False]),
        (f"applies to: pod.priority > 5\nfilter: any({LIST} where it is x)", None),
        (f"applies to: any({LIST} where it is x)\nfilter: pod.priority > 5 -> node.ready", None),
        (f"applies to: any({LIST} where it is x)\nfilter: pod.priority > 1 -> node.ready",
         [False, False]),
    ],
)  # fmt: skip
def test_a_rule_that_does_not_apply_whatever_the_list_holds_rejects_nobody(rule, longer):
    pod = subject(**{"label[k]": ",".join("y" * (MOST_OF_POD + 1)), "priority": 3.0})
    assert passing(rule, FakeWorld(HOSTS), pod) == longer


@pytest.mark.parametrize(
    ("rule", "found", "longer"),
    [
        (f"permit: any({LIST} where it is x) -> reject", "reject", "reject"),
        (f"permit: not any({LIST} where it is x) -> reject", "allow", "reject"),
        (f"permit: pod.priority > 1 and any({LIST} where it is x) -> reject", "reject", "reject"),
        (f"permit: pod.priority > 5 and any({LIST} where it is x) -> reject", "allow", "allow"),
        (f"permit: node.name is n1 and any({LIST} where it is x) -> reject", "allow", "allow"),
        (f"permit: any({LIST} where it is x) -> wait 1m until pod.priority > 5", "wait", "wait"),
        (f"permit: any({LIST} where it is x) -> wait 1m until pod.priority > 1", "allow", "wait"),
        (f"permit: wait 1m until any({LIST} where it is x)", "allow", "wait"),
        (f"permit: wait 1m until not any({LIST} where it is x)", "wait", "wait"),
        # A line that allows decides nothing that nobody rejects.
        (f"permit: any({LIST} where it is x) -> allow\npermit: reject", "allow", "reject"),
    ],
)
def test_nor_does_a_pod_get_its_permit_by_the_length_of_its_list(rule, found, longer):
    plan = plan_of(rule)
    world = FakeWorld(HOSTS).knows(plan)

    def said(items):
        pod = subject(**{"label[k]": ",".join(items), "priority": 3.0}).knows(plan)
        return plan.permitted(pod, world, 0)

    assert said("yx").verdict == found
    assert said("y" * MOST_OF_POD + "x").verdict == longer
    if longer == "reject" and found != "allow":
        words = f"{LIST} has 1025 items, of which 1024 are looked at"
        assert said("y" * (MOST_OF_POD + 1)).message == words


def _each(value):
    return [value] * 2 if isinstance(value, bool) else value


@pytest.mark.parametrize(
    ("rule", "expected", "longer"),
    [
        (f"filter: count({OF_NODE} where it is b) == {HALF}", [False, True], [False, False]),
        (f"forbid: any({OF_NODE} where it is c)", [True, True], [True, False]),
        (f"filter: any({OF_NODE} where it is c) -> node.ready", [True, True], [True, False]),
        (f"filter: not any({OF_NODE} where it is c)", [True, True], [True, False]),
        (f"filter: any(nodes where any({OF_NODE} where it is a))", [True, True], [False, False]),
    ],
)
def test_of_the_list_of_a_node_fewer_are_looked_at(rule, expected, longer):
    assert passing(rule, FakeWorld(HOSTS), subject()) == expected
    assert passing(rule, FakeWorld(LONG), subject()) == longer


def test_where_each_is_looked_for_among_pods_fewer_are_looked_at():
    rule = f"filter: all({LIST} where any(node.pods where it.name == it))"
    rule = rule.replace("it.name == it)", "it.name is a)")
    world = FakeWorld([{"node.name": "n0"}], [{"on": 0, "it.name": "a"}])
    assert passing(rule, world, of("a" * MOST_OF_NODE)) == [True]
    assert passing(rule, world, of("a" * (MOST_OF_NODE + 1))) == [False]


@pytest.mark.parametrize("words", ["$words", "words"])
def test_a_list_that_is_known_is_looked_at_to_its_end(words):
    items = ", ".join(f"x{place}" for place in range(70))
    head = "param words: list of string" if words.startswith("$") else "let words"
    rule = f"{head} = [{items}]\nfilter: any({words} where it == pod.name)"
    found = [passing(rule, FakeWorld(HOSTS[:1]), subject(name=name)) for name in ("x69", "x70")]
    assert found == [[True], [False]]


@pytest.mark.parametrize(
    "asked", ["any(node.pods where it.name is a)", "max(node.gpu.free over nodes) > 1"]
)
def test_each_list_has_the_limit_of_what_is_asked_of_its_items(asked):
    """One list, of which fewer items are looked at where each is asked of pods or nodes."""
    hosts = [{"node.name": "n0", "node.gpu.free": 2.0}]
    world = FakeWorld(hosts, [{"on": 0, "it.name": "a"}])
    few, many = f"all({LIST} where {asked})", f"any({LIST} where it is x)"
    for test in (f"{few} or {many}", f"{many} or {few}"):
        assert passing(f"filter: {test}", world, of("x" * MOST_OF_NODE)) == [True]
        assert passing(f"filter: {test}", world, of("x" * (MOST_OF_NODE + 1))) == [False]
    assert passing(f"filter: {many}", world, of("x" * (MOST_OF_NODE + 1))) == [True]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (f"filter: sum(number(it) over {LIST}) == 3", [True]),
        (f"filter: sum(number(it) over {LIST} where it is not y) == 3", [True]),
        (f"filter: sum(number(it) over {LIST}) is missing", [False]),
        (f"filter: count({LIST} where number(it) > 0) == 2", [True]),
    ],
)
def test_an_item_without_a_number_adds_nothing(rule, expected):
    assert passing(rule, FakeWorld(HOSTS[:1]), of(["1", "y", "2"])) == expected


def test_a_list_that_is_too_long_is_told_as_the_reason():
    plan = plan_of(f"filter: any({LIST} where it is x)")
    world = FakeWorld(HOSTS[:1]).knows(plan)
    said = plan.filters[0].message(of("x" * (MOST_OF_POD + 1)).knows(plan), world, 0)
    assert said == f"{LIST} has 1025 items, of which 1024 are looked at"
