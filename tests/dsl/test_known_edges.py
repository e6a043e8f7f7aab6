"""What is known of an expression before it is computed, and what is computed of it at all."""

import pytest

from dsl import ir
from dsl.lower.kept import Known
from tests.dsl.bothways import HEADER, passing, plan_of, raw, subject
from tests.dsl.worlds import FakeWorld

LIST = 'split(pod.label[k], ",")'


def score_of(value):
    return plan_of(f"{HEADER}score: {value} normalize minmax").scores[0]


# ---- what is kept, and for how long


@pytest.mark.parametrize(
    ("value", "samples", "chosen", "local"),
    [
        ("node.gpu.free", False, False, True),
        ("node.gpu.free + node.pods.free", False, False, True),
        ("load", True, False, True),
        ("load + node.gpu.free", True, False, True),
        ("node.gpu.free + load", True, False, True),
        ("rtt(pod.name, node.name)", True, False, True),
        ("node.gpu.free + rtt(pod.name, node.name)", True, False, True),
        ("max(node.gpu.free over candidates)", False, True, False),
        ("node.gpu.free - max(node.gpu.free over candidates)", False, True, False),
        ("max(load over candidates) - node.gpu.free", True, True, False),
        ("count(node.pods where it.ready)", False, False, True),
        ("count(cluster.pods where it.ready) + node.gpu.free", False, False, False),
    ],
)
def test_what_a_column_depends_on(value, samples, chosen, local):
    facts = Known().of(score_of(value).core.value)
    assert (facts.samples, facts.chosen, facts.local) == (samples, chosen, local)


NOTHING = {"row_local": True, "metrics": False, "time": False, "changes": False}


@pytest.mark.parametrize(
    ("test", "fields", "rest"),
    [
        ("node.name is n0", {"node.name"}, {}),
        ("node.label k=v", {"node.label"}, {}),
        ("node.annotation[(pod.name)] is x", {"node.annotation", "pod.name"}, {}),
        ("any(pod.containers where it.image is x)", {"pod.containers"}, {}),
        ("now > time('2026-01-01T00:00:00Z')", {"now"}, {"time": True}),
    ],
)  # fmt: skip
def test_what_a_rule_reads(test, fields, rest):
    rule = plan_of(f"filter: {test}").filters[0]
    found = {
        "row_local": rule.row_local,
        "metrics": rule.reads_metrics,
        "time": rule.reads_time,
        "changes": rule.status == "Unschedulable",
    }
    assert (fields <= rule.reads, found) == (True, NOTHING | rest)


# ---- lists that are gone through


@pytest.mark.parametrize("function", ["max", "min", "avg", "median", "distinct", "sum"])
def test_each_part_of_a_long_list_is_of_the_level_of_its_own_parts(function):
    root = score_of(f"{function}(if it is x then 1 else node.gpu.free over {LIST})").core.value
    for one in ir.walk(root):
        if isinstance(one, ir.If | ir.ItemAggregate | ir.Arith):
            assert one.level == max(part.level for part in ir.children(one)), one


@pytest.mark.parametrize(("function", "holds"), [("any", False), ("all", True)])
def test_of_an_empty_list_any_is_false_and_all_is_true(function, holds):
    world = FakeWorld([{"node.name": "n0"}])
    for asked in ("it is x", "it == node.name"):
        text = f"param none: list of string = []\nfilter: {function}($none where {asked})"
        assert passing(text, world, subject()) == [holds]


@pytest.mark.parametrize(
    ("function", "expected"), [("max", 20.0), ("min", 1.0), ("avg", 10.5), ("median", 10.5),
                               ("distinct", 20.0), ("sum", 210.0)],
)  # fmt: skip
def test_a_list_in_several_pieces_comes_to_one_value(function, expected):
    pod = subject(**{"label[k]": ",".join(str(one) for one in range(1, 21))})
    found = raw(f"score: {function}(number(it) over {LIST})", FakeWorld([{}]), pod)
    assert found == [expected]


def test_a_left_side_goes_by_the_length_of_its_list_only_where_it_rejects():
    left = f"any({LIST} where it is x)"
    filtered = plan_of(f"filter: {left} -> node.ready").filters[0].core
    preferred = plan_of(f"first: {left} -> node.ready").tiers[0].core
    assert filtered.guard.operator == "or"
    assert len(filtered.longer) == 1
    # That the list is no longer than what is looked at, and what is asked of its items.
    assert preferred.guard.operator == "and"


def test_a_line_that_allows_says_nothing_of_the_length_of_its_list():
    allows, rejects = (
        plan_of(f"permit: any({LIST} where it is x) -> {word}").permits[0].core
        for word in ("allow", "reject")
    )
    assert allows.longer == ()
    assert len(rejects.longer) == 1


def test_a_row_of_lets_declared_backwards_is_as_deep_as_it_may_be():
    """Each is a level: 64 lets, the 63 signs between them, and the load of the first."""
    lets = [f"let a{one} = {f'-a{one - 1}' if one else 'load'}" for one in range(64)]
    assert len(plan_of("\n".join(["score: a63", *reversed(lets)])).scores) == 1


# ---- choices and values


class Asked(FakeWorld):
    """A world that notes the columns it is asked for."""

    def __init__(self, *args):
        super().__init__(*args)
        self.asked = []

    def node_number(self, field, key):
        self.asked.append(field)
        return super().node_number(field, key)


@pytest.mark.parametrize(("wanted", "read"), [(1.0, "node.pods.free"), (2.0, "node.gpu.free")])
def test_what_the_pod_does_not_choose_is_not_asked(wanted, read):
    rule = plan_of(
        "score: if pod.gpu > 1 then node.gpu.free else node.pods.free normalize minmax"
    ).scores[0]
    world, pod = Asked([{"node.gpu.free": 1.0, "node.pods.free": 4.0}]), subject(gpu=wanted)
    rows = slice(0, 1)
    found = rule.column(rule.prepare(pod, world), world, rows, rows)
    assert found.tolist() == [1.0 if wanted > 1 else 4.0]
    assert world.asked == [read]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("max(number(it) over split(node.label[n], '-'))", [3.0, 5.0]),
        ("sum(it.priority over node.pods)", [6.0, 0.0]),
        ("distinct(it.name over node.pods)", [2.0, 0.0]),
        ("distinct(pod.name over node.pods)", [1.0, 0.0]),
        ("distinct(node.name over nodes)", [2.0, 2.0]),
        ("distinct(pod.name over nodes)", [1.0, 1.0]),
    ],
)
def test_values_of_items_and_of_sets(value, expected):
    hosts = [
        {"node.name": "n0", "node.label[n]": "1-3-2"},
        {"node.name": "n1", "node.label[n]": "5-4"},
    ]
    pods = [{"on": 0, "it.name": one, "it.priority": 3.0} for one in ("a", "b")]
    assert raw(f"score: {value}", FakeWorld(hosts, pods), subject()) == expected
