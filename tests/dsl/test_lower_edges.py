"""Columns at their edges: each rule here is also asked of the reference, which must agree."""

import math
from copy import copy

import numpy as np
import pytest

from dsl import reference
from dsl.compiler import Compiler
from dsl.diagnostics import render
from dsl.lower.frame import Frame
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


# ---- every kind of expression about a pod of a set, for few rows and for all

HEADER = """\
metric mp = promql "f" by pod
metric m = promql "a" by node
metric rtt = promql "g" by src, dst
param words: list of string = [web, db]
param sizes: list of number = [5, 6, 7]
"""
SET = [
    {
        "on": 0, "it.name": "web", "it.label[app]": "db", "it.label[k]": "2", "it.priority": 3.0,
        "it.gpu": 2.0, "it.ready": True, "it.node": "n0", "metrics": {"mp": 4.0},
    },
    {"on": 1, "it.name": "db", "it.label[app]": "web", "it.priority": 8.0, "it.gpu": 1.0},
    {"on": 1, "it.name": "a", "it.label[k]": "x", "it.priority": -1.0, "metrics": {"mp": 0.5}},
    {"on": 2, "it.name": "b", "it.label[app]": "w", "it.label[k]": "7", "it.priority": 2.0},
    {
        "on": 2, "it.name": "web", "it.label[app]": "web", "it.label[web]": "1", "it.ready": True,
        "it.priority": 5.0, "metrics": {"mp": 9.0},
    },
]  # fmt: skip
HOSTS = [
    {
        "node.name": "n0", "node.zone": "web", "node.gpu.free": 3.0, "node.label[k]": "web-db",
        "node.pods.free": 3.0,
        "node.label[web]": "1", "node.images": ("web", "x"), "node.ready": True,
        "metrics": {"m": 3.0},
    },
    {"node.name": "n1", "node.gpu.free": 1.0, "node.label[k]": "a", "node.images": ("db", "a")},
    {"node.name": "n2", "node.zone": "7", "node.label[k]": "7", "metrics": {"m": 5.0},
     "node.pods.free": 5.0},
    {"node.name": "n3", "node.zone": "web", "node.ready": True},
]  # fmt: skip
OF_POD = [
    "not it.ready",
    "it.ready and it.priority > 1",
    "it.ready or it.priority > 6",
    "it.ready == (it.priority > 2)",
    "it.priority in 2..5",
    "it.priority in [2, 8, 9]",
    "it.priority + it.gpu > 3",
    "it.priority - 1 + it.gpu * 2 > 4",
    "1 / (it.priority - 2) > 0",
    "-it.priority < -2",
    "abs(it.priority) < 3",
    "mod(it.priority, 3) == 2",
    "pow(it.priority, 2) > 10",
    "max(it.priority, it.gpu, 2) > 2",
    "min(it.priority, it.gpu) > 1",
    "median(it.priority, it.gpu, 2) >= 2",
    "number(it.label[k]) > 1",
    "(number(it.label[k]) ?? it.priority) > 4",
    "it.label[k] is missing",
    "number(it.label[k]) is missing",
    "it.label[app] is present",
    "it.label[app] is (it.name)",
    "it.label[app] == it.name",
    "(it.label[app] ?? it.name) is web",
    "(if it.ready then it.name else it.label[app]) is web",
    "(if it.ready then it.priority else 9) > 4",
    "it.name is web",
    "it.name in [web, a]",
    "it.name in $words",
    "it.name in split(it.label[app], ',')",
    "it.name matches 'w.*'",
    "it.name starts with (it.label[app])",
    "join(it.name, '-', it.label[app]) is web-db",
    "upper(it.name) is WEB",
    "len(it.name) > 1",
    "len(split(it.label[app], 'e')) > 1",
    "item(split(it.name, 'e'), 1) is b",
    "item($words, it.gpu) is present",
    "item($sizes, it.gpu) > 5",
    "string(it.priority) is 3",
    "it.label[(it.name)] is present",
    "mp > 3",
    "rtt(it.name, it.node) > 1",
    "hash(it.name) > 0.5",
    "it.node is n0",
]
OF_POD_AND_NODE = [
    "not (it.ready and node.ready)",
    "it.ready or node.ready",
    "it.priority > node.gpu.free",
    "it.priority + node.gpu.free > 4",
    "it.priority * 2 - node.gpu.free / 2 > 4",
    "node.gpu.free / (it.priority - 2) > 0",
    "min(it.priority, node.gpu.free) >= 1",
    "max(node.gpu.free, it.gpu, 2) > 2",
    "(number(it.label[k]) ?? node.gpu.free) > 1",
    "(node.zone ?? it.name) is web",
    "(it.label[app] ?? node.zone) is web",
    "(if it.ready then node.zone else it.name) is web",
    "(if node.ready then it.priority else 9) > 4",
    "(if it.ready then it.priority else node.gpu.free) > 2",
    "it.name is (node.zone)",
    "it.name == node.zone",
    "it.name in [a, (node.zone)]",
    "it.name in node.images",
    "node.zone in split(it.name, ',')",
    "it.name in split(node.label[k], '-')",
    "join(it.name, node.zone) is webweb",
    "node.label[k] starts with (it.name)",
    "node.label[(it.name)] is present",
    "item($words, it.gpu - node.gpu.free) is web",
    "m > it.priority",
    "node.gpu.free in 1..2 and it.gpu < 2",
    "node.zone is missing or it.ready",
    "rtt(node.zone, it.name) > 1",
    "rtt(it.name, node.zone) > 1",
    "pod.label[(it.name)] is (node.zone)",
]
SET_PAIRS = {
    ("web", "n0"): 2.0, ("web", "web"): 3.0, ("b", "b"): 0.5, ("b", "web"): 4.0, ("web", "b"): 1.5,
}  # fmt: skip


def the_set():
    return FakeWorld(HOSTS, SET, given={"rtt": SET_PAIRS}), subject(
        gpu=1.0, **{"label[web]": "web"}
    )


@pytest.mark.parametrize("test", [*OF_POD, *OF_POD_AND_NODE])
def test_conditions_of_the_pods_of_a_node(test):
    world, pod = the_set()
    found = raw(f"{HEADER}score: count(node.pods where {test})", world, pod)
    assert 0 < sum(found) < len(SET)


@pytest.mark.parametrize("test", OF_POD)
@pytest.mark.parametrize("also", ["", " and it.gpu <= pod.gpu + 1"], ids=["alone", "with-the-pod"])
def test_conditions_of_the_pods_of_the_cluster(test, also):
    world, pod = the_set()
    found = raw(f"{HEADER}score: count(cluster.pods where ({test}){also})", world, pod)
    assert 0 < found[0] < len(SET)
    zones = raw(f"{HEADER}score: count(zone.pods where ({test}){also})", world, pod)
    assert max(zones) <= found[0]


# ---- every kind of condition of the nodes, and of the pod

OF_NODE = [
    "not node.ready",
    "node.ready and node.gpu.free > 2",
    "node.ready == (node.gpu.free > 2)",
    "node.gpu.free in 1..2",
    "node.gpu.free in 3..4",
    "node.gpu.free in 2..3",
    "node.gpu.free in [1, 2]",
    "node.pods.free in [3, 4, 9]",
    "node.gpu.free + pod.gpu > 3",
    "node.gpu.free - 1 + node.pods.free * 2 > 4",
    "1 / (node.gpu.free - 3) < 0",
    "-node.pods.free < -4",
    "abs(node.pods.free) < 4",
    "floor(node.pods.free / 2) == 1",
    "ceil(node.pods.free / 2) == 2",
    "round(node.pods.free / 2) == 3",
    "round(-node.pods.free / 2) == -2",
    "sqrt(node.pods.free) < 2",
    "sqrt(node.gpu.free - 2) is missing",
    "log2(node.gpu.free) > 1",
    "exp(node.pods.free) > 100",
    "mod(node.pods.free, 2) == 1",
    "mod(2, node.pods.free - 3) == 0",
    "pow(node.pods.free, 2) == 25",
    "pow(node.pods.free, 2.5) > 20",
    "max(node.pods.free, node.gpu.free, 2) > 2",
    "min(node.gpu.free, 2) < 2",
    "median(node.pods.free, node.gpu.free, 2) > 2",
    "median(node.pods.free, 4) > 4",
    "number(node.label[k]) > 1",
    "(number(node.label[k]) ?? node.pods.free) > 4",
    "m is missing",
    "node.zone is present",
    "node.zone == node.label[k]",
    "node.zone != node.label[k]",
    "(node.zone ?? node.name) is web",
    "(node.zone ?? pod.name ?? node.name) is web",
    "(if node.ready then pod.name else node.zone) is web",
    "(if node.ready then node.pods.free else 9) > 4",
    "node.name in [n0, a]",
    "node.zone in $words",
    "node.zone in [web, (pod.name)]",
    "node.zone in split(node.label[k], '-')",
    "node.zone in split(pod.label[app], '-')",
    "node.images contains web",
    "pod.name in node.images",
    "len(node.images) > 1",
    "len(node.images) == 0",
    "len(pod.images) > node.gpu.free",
    "len(node.zone) > 1",
    "len(split(node.label[k], '-')) > 1",
    "item(split(node.label[k], '-'), 1) is db",
    "item(split(pod.label[app], '-'), node.pods.free - 3) is web",
    "item(pod.images, node.gpu.free) is x",
    "item($words, node.gpu.free - 2) is db",
    "item($sizes, node.gpu.free) > 5",
    "node.label[k] matches 'w.*'",
    "node.label[k] starts with (node.zone)",
    "node.label[k] starts with (pod.name)",
    "before(node.label[k], '-') is web",
    "after(node.label[k], '-') is db",
    "join(node.name, '-', node.zone) is n0-web",
    "upper(node.zone) is WEB",
    "string(node.pods.free) is 3",
    "node.label[(node.zone)] is present",
    "node.label[(pod.name)] is present",
    "pod.label[(node.zone)] is web",
    "(rtt(node.zone, node.name) ?? 0) > 1",
    "(rtt(node.zone, pod.name) ?? 0) > 1",
    "(rtt(pod.name, node.zone) ?? 0) > 2",
    "ordinal(node.name) > 1",
    "quantity(node.label[k]) == 7",
    "hash(node.name, pod.name) > 0.5",
]
OF_POD_TO_PLACE = [
    "not pod.label app=web-b",
    "pod.gpu in 1..2",
    "pod.gpu in 0..0.5",
    "pod.gpu in 2..3",
    "pod.gpu in [1, 5]",
    "pod.gpu + 1 - pod.priority > 0",
    "pod.gpu * 2 / pod.priority > 0.5",
    "1 / (pod.gpu - 1) is missing",
    "-pod.gpu < 0",
    "abs(0 - pod.gpu) == 1",
    "floor(pod.gpu / 2) == 1",
    "ceil(pod.gpu / 2) == 1",
    "round(pod.gpu / 2) == 1",
    "sqrt(pod.gpu) > 1",
    "sqrt(pod.gpu - 1) is missing",
    "log2(pod.gpu) == 1",
    "exp(pod.gpu) > 5",
    "mod(pod.gpu, 2) == 1",
    "mod(1, pod.gpu) is missing",
    "pow(pod.gpu, 2) == 4",
    "min(pod.gpu, 1) == 1",
    "max(pod.gpu, 1, pod.priority) == 2",
    "median(pod.gpu, 1, 5) == 2",
    "number(pod.label[n]) > 1",
    "(number(pod.label[n]) ?? pod.gpu) > 1",
    "(number(pod.label[n]) ?? number(pod.label[none])) is missing",
    "pod.label[app] is missing",
    "(pod.label[app] ?? pod.name) is web-b",
    "(pod.label[none] ?? pod.label[app]) is missing",
    "(if pod.gpu < 2 then pod.name else pod.label[app]) is web",
    "pod.name in [web, b]",
    "pod.name in $words",
    "pod.name in pod.images",
    "pod.images contains x",
    "pod.name in split(pod.label[app], '-')",
    "len(pod.images) > 1",
    "len(pod.name) > 2",
    "len(split(pod.label[app], '-')) == 2",
    "item(split(pod.label[app], '-'), 1) is b",
    "item(pod.images, pod.gpu) is x",
    "item($sizes, pod.gpu) > 5",
    "item(pod.images, pod.gpu) is missing",
    "item($sizes, pod.gpu + 1) is missing",
    "pod.name matches 'w.*'",
    "pod.label[app] starts with (pod.name)",
    "join(pod.name, '-', pod.label[app]) is web-web-b",
    "upper(pod.name) is WEB",
    "string(pod.gpu) is 2",
    "string(number(pod.label[n])) is missing",
    "pod.label[(pod.name)] is present",
    "(rtt(pod.name, pod.label[app]) ?? 0) > 1",
    "rtt(pod.name, pod.label[app]) is missing",
    "any(it.name is main over pod.containers)",
    "count(pod.containers where it.limit[cpu] > 1) > 0",
    "count(pod.containers) == 1",
    "sum(it.limit[cpu] over pod.containers) > 1.5",
    "all(it.limit[cpu] > 1 over pod.containers where it.name is main)",
    "all(pod.containers where it.name is main)",
    "any(pod.containers where it.image is x)",
]
SUBJECTS = [
    {"pod.name": "web", "pod.gpu": 1.0, "pod.label[app]": "web-b", "pod.images": ("web", "x")},
    {"pod.name": "b", "pod.gpu": 2.0, "pod.priority": 1.0, "pod.label[n]": "7"},
    {"pod.name": "x", "pod.label[x]": "1", "pod.label[n]": "x", "pod.priority": 2.0},
]
SUBJECTS[0]["pod.containers"] = [{"name": "main", "limit[cpu]": 2000.0}]
SUBJECTS[1]["pod.containers"] = [
    {"name": "main", "limit[cpu]": 500.0, "image": "x"},
    {"name": "side", "limit[cpu]": 1000.0},
]
WITH_PAIRS = {**SET_PAIRS, ("web", "web-b"): 3.0, ("web", "web"): 3.0}


@pytest.mark.parametrize("test", OF_NODE)
def test_conditions_of_nodes(test):
    world = FakeWorld(HOSTS, SET, given={"rtt": WITH_PAIRS})
    pod = FakePod.of({**POD, **SUBJECTS[0], "pod.label[web]": "web"})
    found = passing(f"{HEADER}filter: {test}", world, pod)
    assert any(found)
    assert not all(found)


@pytest.mark.parametrize("test", OF_POD_TO_PLACE)
def test_conditions_of_the_pod(test):
    """Before the nodes, and as a filter that says the same of every node."""
    before, of_nodes = plan_of(f"{HEADER}prefilter: {test}"), f"{HEADER}filter: {test}"
    answers = []
    for fields in SUBJECTS:
        pod = FakePod.of({**POD, **fields}).knows(before)
        world = FakeWorld(HOSTS, SET, given={"rtt": WITH_PAIRS}).knows(before)
        expected = reference.passes(before.prefilters[0].core, world, pod, -1)
        assert (before.stopped(pod, world) is None) == expected
        assert passing(of_nodes, world, pod) == [expected] * len(HOSTS)
        answers.append(expected)
    assert any(answers)
    assert not all(answers)


# ---- what is kept while the snapshot stays, and what is not


class Watched(FakeWorld):
    """A world that counts how often its columns are asked for."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.asked = []

    def pod_number(self, field, key):
        self.asked.append(field)
        return super().pod_number(field, key)

    def node_number(self, field, key):
        self.asked.append(field)
        return super().node_number(field, key)


def crowd(nodes):
    """A world with a pod on every other node."""
    return Watched(
        [{} for _ in range(nodes)], [{"on": at, "it.gpu": 2.0} for at in range(0, nodes, 2)]
    )


def test_a_count_that_the_snapshot_decides_is_taken_once():
    rule = plan_of("filter: count(node.pods where it.gpu > 1) < 1").filters[0]
    world = crowd(40)
    expected = [at % 2 == 1 for at in range(40)]
    for rows in (slice(0, 40), slice(0, 40), np.arange(40), np.array([3]), np.array([4, 7])):
        found = rule.verdict((), world, rows).tolist()
        assert found == (expected if isinstance(rows, slice) else [expected[at] for at in rows])
    assert world.asked == ["it.gpu"]
    other = crowd(40)
    assert rule.verdict((), other, slice(0, 40)).tolist() == expected
    assert other.asked == ["it.gpu"]


def test_few_rows_are_counted_alone_and_many_with_all_others():
    rule = plan_of("filter: count(node.pods where it.gpu > 1) < 1").filters[0]
    world = crowd(40)
    for _ in range(2):
        assert rule.verdict((), world, np.arange(16)).tolist() == [False, True] * 8
    assert len(world.asked) == 2
    for _ in range(2):
        assert rule.verdict((), world, np.arange(17)).tolist() == [*([False, True] * 8), False]
    assert len(world.asked) == 3


def test_a_count_over_the_cluster_is_kept_whichever_row_asks_first():
    rule = plan_of("filter: count(cluster.pods where it.gpu > 1) < 20").filters[0]
    world = crowd(40)
    for _ in range(3):
        assert rule.verdict((), world, np.array([5])).tolist() == [False]
    assert world.asked == ["it.gpu"]


def test_a_let_and_an_aggregate_of_nodes_are_computed_once_a_pass():
    rule = plan_of(
        "let top = max(node.gpu.free over candidates)\n"
        "let twice = node.gpu.free * 2\n"
        "score: if twice > top then top + twice else top - twice"
    ).scores[0]
    world = Watched([{"node.gpu.free": float(at)} for at in range(4)])
    rows = np.arange(4)
    assert rule.column((), world, rows, rows).tolist() == [3.0, 1.0, 7.0, 9.0]
    assert world.asked == ["node.gpu.free"]
    world.asked.clear()
    assert rule.column((), world, np.array([1]), rows).tolist() == [1.0]
    assert len(world.asked) == 2


def later(world, **changes):
    """The same generation of nodes and pods, with something else changed."""
    other = copy(world)
    for name, value in changes.items():
        setattr(other, name, value)
    return other


QUEUED = {"queue": [{"on": 0, "it.priority": 9.0}], "nominated": [{"on": 1, "it.priority": 9.0}]}


@pytest.mark.parametrize(
    "value",
    [
        "count(node.pods where it.gpu >= pod.gpu)",
        "count(node.pods where node.eligible and it.gpu > 0)",
        "count(node.pods where pod.label[(it.name)] is present)",
        "count(node.pods where now - it.created > 60)",
        "count(node.pods where it.gpu > time.hour)",
        "count(node.pods where (m ?? 0) > it.gpu)",
        "sum(mp over node.pods)",
        "count(node.pods where (rtt(it.name, it.node) ?? 0) > 1)",
        "count(node.pods where it.gpu < max(node.gpu.free over candidates))",
        "count(node.nominated where it.priority > 5)",
        "count(queue.pods where it.priority > 5)",
        "sum(rtt(node.name, it.name) over zone.pods)",
    ],
)
def test_what_may_change_within_a_generation_is_not_kept(value):
    pods = [
        {"on": 0, "it.name": "a", "it.gpu": 1.0, "it.created": 900.0, "it.node": "n"},
        {"on": 1, "it.name": "b", "it.gpu": 2.0, "it.created": 990.0, "it.node": "n"},
    ]
    hosts = [
        {"node.name": "n", "node.zone": "z", "node.gpu.free": 2.0, "node.label[k]": "x"},
        {"node.name": "o", "node.gpu.free": 1.0, "node.label[k]": "y"},
    ]
    plan = plan_of(f"{HEADER}score: {value} missing 0")
    rule = plan.scores[0]
    first = FakeWorld(hosts, pods, now=1000.0, cycle={"time.hour": 0.0}, tables={}).knows(plan)
    again = later(
        first,
        now=2000.0,
        _cycle={"time.hour": 1.0},
        _tables=QUEUED,
        _given={"rtt": {("a", "n"): 5.0, ("n", "a"): 5.0}},
        _nodes=[{**hosts[0], "metrics": {"m": 7.0}}, hosts[1]],
        _pods=[{**pods[0], "metrics": {"mp": 4.0}}, pods[1]],
    )
    one = subject(gpu=0.0, **{"node_selector[k]": "x"})
    two = subject(gpu=2.0, **{"node_selector[k]": "y", "label[a]": "x"})
    seen = []
    for world, pod, rows in ((first, one, [0, 1]), (again, two, [1])):
        parts = rule.prepare(pod, world)
        chosen = np.array(rows, np.intp)
        column = rule.column(parts, world, slice(0, 2), chosen).tolist()
        views = [reference.View(world, pod, row, tuple(rows)) for row in (0, 1)]
        expected = [float(reference.evaluate(rule.core.value, view)) for view in views]
        assert all(map(same, column, expected))
        seen.append(column)
    assert repr(seen[0]) != repr(seen[1])


# ---- other sets, several sets, empty rows


@pytest.mark.parametrize(
    "value",
    [
        "count(node.nominated) * 10 + count(queue.pods)",
        "count(node.nominated where it.priority > pod.priority) + 10 * count(node.finished)",
        "max(node.gpu.free over nodes) * 10 - max(node.gpu.free over candidates)",
        "count(nodes where node.gpu.free > pod.gpu) * 10 + count(candidates)",
        "rank(node.gpu.free) * 6",
        "rank(node.gpu.free) * 6 + rank(node.pods.free)",
        "sum(rtt(node.zone, it.name) over node.pods)",
        "sum((rtt(node.zone, it.name) ?? 4) over zone.pods where it.priority > 4)",
        "sum((rtt(node.zone, it.name) ?? mp ?? 4) over node.pods)",
        "sum((rtt(node.zone, it.name) ?? -4) over cluster.pods where it.priority < pod.priority)",
        "sum(rtt(node.zone, it.name) over queue.pods)",
        "sum((it.gpu ?? 3) over zone.pods)",
        "count(cluster.pods where it.gpu > 0)",
        "pod.gpu / pod.priority / node.gpu.free",
        "pod.gpu / (pod.priority - 4) * node.gpu.free",
        "(pod.gpu - 1) / (pod.priority - 4) * node.gpu.free",
        "min(node.gpu.free, pod.gpu) / max(pod.gpu, pod.priority)",
        "len(split(node.label[k], '-')) + len(split(pod.name, '-'))",
        "len(split(node.label[none], '-'))",
        "number(item(split(node.label[k], '-'), node.gpu.free - 2))",
        "let_list",
    ],
)
def test_values_among_some_candidates_with_an_empty_row(value):
    text = f"score: {value}"
    if value == "let_list":
        text = "let all_of = node.images\nscore: len(all_of)"
    tables = {
        "queue": [{"on": 0, "it.priority": 9.0, "it.name": "web"}, {"on": 0}],
        "nominated": [{"on": 1, "it.priority": 9.0}, {"on": 4, "it.priority": 1.0}],
        "finished": [{"on": 1}],
    }
    hosts = [*HOSTS[:2], None, *HOSTS[2:]]
    hosts[1] = {**hosts[1], "node.pods.free": 9.0, "node.label[k]": "a-7-12"}
    pods = [{**one, "on": {0: 0, 1: 1, 2: 3}[one["on"]]} for one in SET]
    pods.insert(1, {"on": -1, "it.gpu": 99.0, "it.priority": 99.0, "it.name": "gone"})
    world = FakeWorld(hosts, pods, tables=tables, given={"rtt": WITH_PAIRS})
    pod = subject(gpu=1.0, priority=4.0)
    raw(f"{HEADER}{text}", world, pod, [4, 1])
    found = raw(f"{HEADER}{text}", world, pod)
    assert len(found) == 4


@pytest.mark.parametrize(
    "test",
    [
        "count(nodes where node.gpu.free >= pod.gpu) > 1",
        "count(queue.pods where it.priority > pod.priority) < 2",
        "count(cluster.pods where it.priority > pod.priority) < 2",
    ],
)
@pytest.mark.parametrize("wanted", [0.0, 2.0, 4.0])
def test_aggregates_before_the_nodes_know_the_pod(test, wanted):
    plan = plan_of(f"prefilter: {test}")
    tables = {"queue": [{"on": 0, "it.priority": float(one)} for one in (1, 3, 5)]}
    world = FakeWorld(HOSTS, SET, tables=tables)
    pod = subject(gpu=wanted, priority=wanted)
    expected = reference.passes(plan.prefilters[0].core, world, pod, -1)
    assert (plan.stopped(pod, world) is None) == expected


def test_a_full_pass_borrows_columns_and_takes_no_more_rows_than_asked():
    world = FakeWorld([{}, {}, {}])
    column = np.arange(3.0)
    assert Frame(world, slice(0, 3)).take(column) is column
    assert Frame(world, slice(0, 2)).take(column).tolist() == [0.0, 1.0]
    assert Frame(world, slice(0, 0)).take(column).tolist() == []
    assert Frame(world, np.array([2, 0])).take(column).tolist() == [2.0, 0.0]
