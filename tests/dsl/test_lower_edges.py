"""Columns at their edges: each rule here is also asked of the reference, which must agree."""

import math

import numpy as np
import pytest

from dsl.plan import stop_by
from tests.dsl import oracle
from tests.dsl.bothways import HEADER, HOSTS, SET, SET_PAIRS, passing, plan_of, raw, same, subject
from tests.dsl.worlds import FakeWorld


def nodes(field, *values):
    return [{} if one is None else {field: one} for one in values]


# ---- numbers that leave the range of floats make no noise: a warning is an error here


def test_a_column_divided_by_zero_is_silent():
    world = FakeWorld([{"node.gpu.free": 1.0}, {"node.gpu.free": 0.0}])
    assert passing("filter: 1 / node.gpu.free > 0", world, subject()) == [True, False]


def test_values_that_overflow_when_they_are_added_up_are_scored_in_silence():
    world = FakeWorld([{"metrics": {"m": one}} for one in (1e308, 1.5e308, 0.0)])
    text = 'metric m = promql "a"\nscore: m normalize default'
    assert raw(text, world, subject()) == [1e308, 1.5e308, 0.0]
    assert plan_of(text).scores[0].finish(np.array([-1e308, 1e-9])).tolist() == [0.0, 100.0]


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


def test_what_the_pod_alone_decides_within_a_sum_is_a_part():
    plan = plan_of("filter: node.gpu.free + pod.gpu * 2 > 3")
    world = FakeWorld([{"node.gpu.free": 4.0}, {"node.gpu.free": -4.0}])
    assert plan.filters[0].prepare(subject(gpu=2.0), world) == (4.0,)
    assert passing("filter: node.gpu.free + pod.gpu * 2 > 3", world, subject(gpu=2.0)) == [
        True,
        False,
    ]


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
        ("sum(rtt(node.zone, it.label[app]) ?? 3 over region.pods)", [7.0, 10.0, 0.0, 0.0]),
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
        ("count(cluster.pods where it.label[(it.name)] is present and it.gpu <= pod.gpu)", 2),
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
    expected = oracle.passes(plan.reserves[0].core, world, pod, row)
    assert (stop_by(plan.reserves, pod, world, row) is None) == expected == (row == 0)


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
    "item(split(it.name, 'e'), it.gpu / 1.0000001) is missing",
    "item(split('a,b', ','), it.gpu - 1) is a",
    "item($words, it.gpu) is present",
    "item($sizes, it.gpu) > 5",
    "string(it.priority) is 3",
    "it.label[(it.name)] is present",
    "mp > 3",
    "rtt(it.name, it.node) > 1",
    "hash(it.name) > 0.5",
    "it.node is n0",
    "it.priority > count(cluster.pods) - 3",
    "max(it.priority * it over $sizes) > 20",
    "median(it.priority - it over $sizes where it > 5) > 0",
    "avg(it.gpu + it over $sizes) > 6.5",
    "max(it over $sizes where it.priority > it - 3) > 5",
    "distinct(if it.name == it then it.label[app] else it.name over $words) == 2",
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
    "it.name is (if pod.gpu > 0 then 'web' else node.zone)",
    "it.label[k] is (if pod.gpu > 1 then 'web' else node.label[k])",
    "it.priority > (if pod.gpu > 0 then 4 else node.gpu.free)",
    "it.priority > (if pod.gpu > 1 then 4 else node.gpu.free)",
    "it.ready == (if pod.gpu > 0 then true else node.ready)",
    "distinct(if it.name == it then node.zone else it.label[app] over $words) == 2",
    "min(node.pods.free * it - it.priority over $sizes) > 10",
]


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


# ---- keys that are computed


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("node.label[(pod.label[none])] is present", [False, False, False]),
        ("node.label[(pod.label[none])] is missing", [True, True, True]),
        ("node.taint[(pod.label[none])]", [False, False, False]),
        ("node.taint[(pod.label[app])]", [True, False, False]),
        ("node.taint[(node.label[k])]", [False, True, False]),
        ("node.resource[(pod.label[res])].free > 1", [True, False, False]),
        ("node.resource[(pod.label[none])].free is missing", [True, True, True]),
        ("node.resource[(node.label[res])].free > 1", [True, False, True]),
        ("pod.request[(pod.label[res])] > 1", [True, True, True]),
        ("pod.request[(pod.label[res])] > 2", [False, False, False]),
        ("pod.request[(pod.label[none])] > 0", [False, False, False]),
        ("pod.request[(pod.label[none])] is missing", [True, True, True]),
        ("pod.request[(node.label[res])] > 1", [True, True, False]),
        ("pod.request[(node.label[res])] < 2", [True, True, True]),
        ("pod.request[(node.label[res])] == 0", [False, False, True]),
        ("pod.limit[(node.label[res])] is missing", [False, False, True]),
        ("pod.limit[(node.label[res])] in 2.9..3.1", [True, True, False]),
        ("pod.label[(pod.label[none])] is missing", [True, True, True]),
        ("pod.label[(pod.label[app])] is present", [True, True, True]),
        ("(pod.label[none] ?? pod.label[other]) is missing", [True, True, True]),
        ("pod.label[(node.label[k])] is missing", [True, False, True]),
        ("count(node.pods where it.label[(pod.label[none])] is missing) > 0", [True, True, True]),
        ("count(node.pods where it.label[(pod.label[app])] is missing) > 1", [False] * 3),
        ("count(cluster.pods where it.label[(pod.label[none])] is missing) == 3", [True] * 3),
        ("any(node.pods where node.taint[(pod.label[none])])", [False] * 3),
        ("pod.name in node.images", [False, False, False]),
        ("pod.label[app] in node.images", [True, False, False]),
        ("pod.label[none] in node.images", [False, False, False]),
        ("node.label[k] in node.images", [False, False, False]),
        ("any(split(pod.label[app], '-') where any(nodes where it in node.images))", [True] * 3),
        ("count(node.pods where it.label[(node.label[k])] is present) > 0", [False, True, False]),
        ("count(node.pods where it.request[(node.label[res])] > 1) > 0", [True, False, False]),
        ("count(node.pods where node.resource[(it.name)].free > 1) > 0", [True, False, True]),
    ],
)
def test_fields_under_computed_keys(test, expected):
    world = FakeWorld(
        [
            {
                "node.taint[t]": True, "node.label[res]": "cpu", "node.resource.free[cpu]": 2000.0,
                "node.images": ("t",),
            },
            {"node.label[k]": "u", "node.taint[u]": True, "node.label[res]": "cpu"},
            {
                "node.resource.free[gpu]": 4.0, "node.label[res]": "gpu",
                "node.resource.free[cpu]": 500.0,
            },
        ],
        [
            {"on": 0, "it.request[cpu]": 1500.0, "it.name": "cpu"},
            {"on": 1, "it.label[u]": "1", "it.request[cpu]": 900.0, "it.name": "x"},
            {"on": 2, "it.request[cpu]": 1e9, "it.name": "gpu", "it.request[gpu]": 1.0},
        ],
    )  # fmt: skip
    fields = {"label[app]": "t", "label[res]": "cpu", "label[t]": "1", "label[u]": "2"}
    pod = subject(**fields, **{"request[cpu]": 1500.0, "limit[cpu]": 3000.0})
    assert passing(f"filter: {test}", world, pod) == expected
    if "node." not in test:
        plan = plan_of(f"gate: {test}")
        assert (stop_by(plan.gates, pod, world) is None) == expected[0]
