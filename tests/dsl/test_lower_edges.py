"""Columns at their edges: each rule here is also asked of the reference, which must agree."""

import math

import numpy as np
import pytest

from dsl import reference
from dsl.compiler import Compiler
from dsl.diagnostics import render
from tests.dsl.worlds import FakePod, FakeWorld

COMPILER = Compiler()
POD = {"pod.name": "p", "pod.namespace": "default", "pod.uid": "u"}


def plan_of(text):
    result = COMPILER.compile({"p.policy": text})
    assert result.ok, render(result.diagnostics)
    return result.plans[0]


def subject(**fields):
    return FakePod.of({**POD, **{f"pod.{name}": one for name, one in fields.items()}})


def same(left, right):
    return left == right or (math.isnan(left) and math.isnan(right))


def passing(text, world, pod):
    """Which rows pass, by columns of all nodes, of some rows, of single rows, and node by node."""
    plan = plan_of(text)
    rule, world, pod = plan.filters[0], world.knows(plan), pod.knows(plan)
    parts = rule.prepare(pod, world)
    rows = np.flatnonzero(world.present)
    expected = [reference.passes(rule.core, world, pod, row) for row in rows.tolist()]
    if parts is None:
        assert all(expected)
        return None
    full = rule.verdict(parts, world, slice(0, world.nodes))
    assert full.dtype == np.bool_
    assert full.shape == (world.nodes,)
    assert full[rows].tolist() == expected
    assert rule.verdict(parts, world, rows[::-1]).tolist() == expected[::-1]
    for row, one in zip(rows.tolist(), expected, strict=True):
        assert rule.verdict(parts, world, np.array([row])).tolist() == [one]
    return expected


def raw(text, world, pod, candidates=None):
    """The values before they become scores, likewise."""
    plan = plan_of(text)
    rule, world, pod = plan.scores[0], world.knows(plan), pod.knows(plan)
    rows = np.flatnonzero(world.present) if candidates is None else np.array(candidates, np.intp)
    parts = rule.prepare(pod, world)
    assert parts is not None
    chosen = tuple(rows.tolist())
    views = (reference.View(world, pod, row, chosen) for row in chosen)
    expected = [float(reference.evaluate(rule.core.value, view)) for view in views]
    column = rule.column(parts, world, rows, rows)
    assert column.dtype == np.float64
    assert all(map(same, column.tolist(), expected))
    whole = rule.column(parts, world, slice(0, world.nodes), rows)
    assert all(map(same, whole[rows].tolist(), expected))
    for row, one in zip(chosen, expected, strict=True):
        assert same(rule.column(parts, world, np.array([row]), rows).item(), one)
    finished = rule.finish(column)
    assert (None if finished is None else finished.tolist()) == reference.scores(
        rule.core, world, pod, list(chosen)
    )
    return expected


def nodes(field, *values):
    return [{} if one is None else {field: one} for one in values]


# ---- numbers that leave the range of floats make no noise: a warning is an error here


def test_a_column_divided_by_zero_is_silent():
    world = FakeWorld([{"node.gpu.free": 1.0}, {"node.gpu.free": 0.0}])
    assert passing("filter: 1 / node.gpu.free > 0", world, subject()) == [True, False]


def test_values_that_overflow_when_they_are_added_up_are_scored_in_silence():
    world = FakeWorld([{"metrics": {"m": one}} for one in (1e308, 1.5e308, 0.0)])
    text = 'metric m = promql "a"\nscore: m normalize minmax'
    assert raw(text, world, subject()) == [1e308, 1.5e308, 0.0]


def test_a_left_side_that_divides_by_zero_is_silent():
    pods = [
        {"on": 0, "it.priority": 4.0, "it.gpu": 0.0},
        {"on": 0, "it.priority": 4.0, "it.gpu": 2.0},
    ]
    text = "score: sum(it.priority / it.gpu over cluster.pods) > 1 -> 7"
    world = FakeWorld([{}], pods)
    assert raw(text, world, subject()) == [7.0]


# ---- weights


def test_a_statement_of_no_weight_abstains():
    plan, world, rows = plan_of("score: 5 weight 0"), FakeWorld([{}, {}]), np.arange(2)
    parts = [rule.prepare(subject(), world) for rule in plan.scores]
    assert plan.score(parts, world, rows) is None
    plan = plan_of("score: 5 weight 0\nscore: 7 weight 2\nscore: 9 weight 2")
    parts = [rule.prepare(subject(), world) for rule in plan.scores]
    assert plan.score(parts, world, rows).tolist() == [8.0, 8.0]


# ---- what belongs to the pod and what to the snapshot


def test_an_aggregate_of_candidates_that_the_pod_takes_part_in_looks_at_candidates():
    world = FakeWorld(nodes("node.gpu.free", 1.0, 5.0, 6.0, 7.0))
    text = "score: count(candidates where node.gpu.free > pod.gpu)"
    assert raw(text, world, subject(gpu=4.0), [0, 1]) == [1.0, 1.0]


def test_parts_are_the_pods_own_whatever_runs_in_the_cluster():
    plan = plan_of("filter: count(cluster.pods where it.priority < pod.priority) < 1")
    pods = [{"on": 0, "it.priority": 1.0}]
    rule, pod = plan.filters[0], subject(priority=3.0)
    empty, busy = FakeWorld([{}]), FakeWorld([{}], pods)
    assert rule.prepare(pod, empty) == rule.prepare(pod, busy) == (3.0,)
    assert rule.verdict((3.0,), empty, slice(0, 1)).tolist() == [True]
    assert rule.verdict((3.0,), busy, slice(0, 1)).tolist() == [False]


def test_what_a_let_reads_of_the_pod_is_one_part_however_often_it_is_used():
    plan = plan_of(
        "let wanted = pod.gpu * 2\nfilter: node.gpu.free >= wanted and node.pods.free >= wanted"
    )
    world = FakeWorld([{"node.gpu.free": 4.0, "node.pods.free": 4.0}])
    assert plan.filters[0].prepare(subject(gpu=2.0), world) == (4.0,)


def test_a_map_of_the_pod_is_one_part_however_often_it_is_looked_into():
    text = "filter: pod.label[(node.zone)] is web and pod.label[(node.name)] is missing"
    world = FakeWorld(
        [{"node.zone": "app", "node.name": "a"}, {"node.zone": "x", "node.name": "b"}]
    )
    pod = subject(**{"label[app]": "web"})
    assert plan_of(text).filters[0].prepare(pod, world) == ((("app", "web"),),)
    assert passing(text, world, pod) == [True, False]


# ---- pairs of a node and pods elsewhere

LATENCY = 'metric rtt = promql "g" by src, dst\n'
GIVEN = {"rtt": {("z1", "web"): 1.0, ("z2", "web"): 2.0, ("z2", "db"): 5.0, ("web", "z1"): 7.0}}
PLACED = [
    {"on": 0, "it.name": "web", "it.label[app]": "web"},
    {"on": 1, "it.name": "db", "it.label[app]": "db"},
    {"on": 2, "it.name": "lost", "it.label[app]": "web"},
    {"on": 1, "it.name": "nameless"},
]
ZONES = [
    {"node.name": "a", "node.zone": "z1", "node.region": "r"},
    {"node.name": "b", "node.zone": "z2", "node.region": "r"},
    {"node.name": "c"},
    {"node.name": "d"},
]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("sum(rtt(node.zone, it.label[app]) over zone.pods)", [1.0, 5.0, 0.0, 0.0]),
        ("sum(rtt(node.zone, it.label[app]) over region.pods)", [1.0, 7.0, 0.0, 0.0]),
        ("sum(rtt(node.zone, it.label[app]) over cluster.pods)", [2.0, 9.0, 0.0, 0.0]),
        ("sum(rtt(it.label[app], node.zone) over cluster.pods)", [14.0, 0.0, 0.0, 0.0]),
        (
            "sum(rtt(node.zone, it.label[app]) ?? 3 over region.pods)",
            [7.0, 10.0, 0.0, 0.0],
        ),
    ],
)
def test_a_metric_of_pairs_over_the_pods_of_a_domain(value, expected):
    world = FakeWorld(ZONES, PLACED, given=GIVEN)
    assert raw(f"{LATENCY}score: {value} missing 0", world, subject()) == expected


# ---- pods of the whole cluster, asked about from a few rows

PODS = [
    {"on": 0, "it.name": "a", "it.priority": 1.0, "it.label[a]": "web", "it.node": "n0"},
    {"on": 1, "it.name": "b", "it.priority": 2.0, "it.label[b]": "db", "it.node": "n1"},
    {"on": 1, "it.name": "c", "it.priority": 9.0, "it.node": "n1"},
]
BETWEEN = {"rtt": {("a", "n0"): 4.0, ("b", "n1"): 6.0, ("c", "n1"): 50.0}}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            "count(cluster.pods where it.label[(it.name)] is present and it.gpu <= pod.gpu)",
            2,
        ),
        ("sum(rtt(it.name, it.node) over cluster.pods where it.priority < pod.priority)", 10),
        ("sum(-it.priority over cluster.pods where it.priority < pod.priority)", -3),
    ],
)
def test_all_pods_are_looked_at_whichever_rows_are_asked_about(value, expected):
    world = FakeWorld([{}, {}, {}], PODS, given=BETWEEN)
    assert raw(f"{LATENCY}score: {value}", world, subject(priority=5.0)) == [expected] * 3


@pytest.mark.parametrize("row", [0, 1])
def test_what_is_asked_of_the_chosen_node_may_look_into_maps_of_the_pod(row):
    plan = plan_of("reserve: pod.label[(node.zone)] is web and node.eligible")
    world = FakeWorld(
        [{"node.zone": "app", "node.label[k]": "ok"}, {"node.zone": "x", "node.label[k]": "ok"}]
    )
    pod = subject(**{"label[app]": "web", "node_selector[k]": "ok"})
    expected = reference.passes(plan.reserves[0].core, world, pod, row)
    assert (plan.reserved(pod, world, row) is None) == expected == (row == 0)


# ---- infinities


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1 / (m * m)", [math.nan, 1.0]),
        ("5 - 1 / (m * m)", [math.nan, 4.0]),
        ("m * m / 2", [math.nan, 0.5]),
        ("m * m * 0", [math.nan, 0.0]),
    ],
)
def test_a_divisor_out_of_range_is_missing_and_not_infinite(value, expected):
    world = FakeWorld([{"metrics": {"m": one}} for one in (1e300, 1.0)])
    found = raw(f'metric m = promql "a"\nscore: {value}', world, subject())
    assert all(map(same, found, expected))
