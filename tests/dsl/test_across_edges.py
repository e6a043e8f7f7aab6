"""Aggregates over pods of other nodes of what a pair of a node and a pod has, both ways."""

import numpy as np
import pytest

from dsl import reference
from dsl.plan import stop_by
from tests.dsl import oracle
from tests.dsl.bothways import (
    HEADER,
    HOSTS,
    LIVES,
    REGIONS,
    SET,
    TABLES,
    forms,
    plan_of,
    raw,
    subject,
)
from tests.dsl.worlds import FakeWorld

PAIRS = {
    ("web", "web"): 3.0,
    ("web", "db"): 0.5,
    ("7", "web"): 2.0,
    ("7", "b"): 6.0,
    ("n0", "db"): 4.0,
    ("n3", "w"): 1.0,
    ("n1", "web"): 5.0,
}
OF_PAIRS = (
    "rtt(node.zone, it.name)",
    "(rtt(node.zone, it.name) ?? 0) > 1",
    "(rtt(node.name, it.label[app]) ?? 2) < it.priority",
)


@pytest.mark.parametrize("over", ["zone.pods", "region.pods", "cluster.pods", "queue.pods"])
def test_aggregates_of_pairs(over):
    queued = [{**one, "it.name": "web", "it.label[app]": "db"} for one in TABLES["queue"]]
    holes = FakeWorld(REGIONS, LIVES, tables={"queue": queued}, given={"rtt": PAIRS})
    full = FakeWorld(HOSTS, SET, tables={"queue": queued[:1]}, given={"rtt": PAIRS})
    nothing = FakeWorld([HOSTS[0], HOSTS[1]], given={"rtt": PAIRS})
    unlike = FakeWorld(HOSTS, SET, given={"rtt": {("web", "web"): 0.1, ("n2", "web"): 99.0}})
    for form in forms(over, *OF_PAIRS):
        seen = [
            raw(f"{HEADER}score: {form} missing 0", world, subject())
            for world in (holes, full, nothing, unlike)
        ]
        seen.append(raw(f"{HEADER}score: {form} missing 0", holes, subject(), [4, 0]))
        if over != "queue.pods" and "count(" + over + ")" != form:
            assert len({repr(one) for row in seen for one in row}) > 1, form


@pytest.mark.parametrize(
    "value",
    [
        "sum((rtt(node.zone, it.name) ?? 0) + it.priority * 10 + it.gpu over cluster.pods)",
        "sum(if it.ready then rtt(node.zone, it.name) else it.priority over region.pods)",
        "count(region.pods where (rtt(it.name, node.zone) ?? 5) > it.priority and it.ready)",
        "count(cluster.pods where (rtt(node.zone, it.name) ?? 1) > (rtt(it.name, node.name) ?? 2))",
        "sum(rtt(node.zone, it.name) * pod.gpu over cluster.pods where it.gpu <= pod.gpu)",
        "max((rtt(node.zone, it.name) ?? 1) * time.hour over cluster.pods)",
        "sum(rtt(node.zone, upper(it.name)) over cluster.pods)",
        "sum(rtt(lower(node.zone), it.label[(it.name)]) over cluster.pods)",
        "count(cluster.pods where it.label[(string(rtt(node.zone, it.name)))] is x)",
        "sum(it.request[(string(rtt(node.zone, it.name)))] over region.pods)",
        "sum(rtt(node.zone, it.label[(string(rtt(node.zone, it.name)))]) over queue.pods)",
        "count(cluster.pods where pod.label[(string(rtt(node.zone, it.name)))] is x)",
        "sum(pod.gpu over region.pods where rtt(node.zone, it.name) is present)",
        "sum(rtt(node.zone, it.name) * min(node.gpu.free over candidates) over cluster.pods)",
        "if all(region.pods where it.gpu < 1 and (rtt(node.zone, it.name) ?? 9) > 8) then 1 else 2",
        "rtt(pod.name, pod.label[100])",
        "item($sizes, pod.gpu * 9) + 1",
    ],
)
def test_groups_of_pods_that_are_alike_stay_apart_from_others(value):
    """Pods are grouped by all that is asked of them; a sum shows where two groups were mixed up."""
    hosts = [
        {"node.name": "a", "node.zone": "z", "node.region": "r", "node.gpu.free": 2.0},
        {"node.name": "b", "node.zone": "y", "node.region": "r"},
        {"node.name": "c", "node.region": "s"},
    ]
    kinds = [(3, 0), (1, 1), (2, 0), (1, 0), (3, 1), (3, 0), (2, 1)]
    pods = [
        {
            "on": at % 3, "it.name": "web", "it.priority": float(priority), "it.gpu": float(gpu),
            "it.ready": at % 2 == 0, "it.label[web]": "x", "it.request[100]": float(at),
        }
        for at, (priority, gpu) in enumerate(kinds)
    ]  # fmt: skip
    pods[4]["it.name"] = "db"
    pods[5]["it.label[100]"] = "x"
    pods.insert(2, {**pods[0], "on": -1})
    given = {
        ("z", "web"): 100.0, ("y", "web"): 200.0, ("z", "db"): 400.0, ("web", "z"): 2.0,
        ("web", "a"): 0.5, ("z", "p"): 7.0, ("z", "WEB"): 3.0, ("z", "x"): 9.0, ("p", "x"): 5.0,
    }  # fmt: skip
    tables = {"queue": [{**one, "on": 0} for one in pods[3:]]}
    world = FakeWorld(hosts, pods, cycle={"time.hour": 2.0}, given={"rtt": given}, tables=tables)
    seen = set()
    for wanted in (0.0, 1.0):
        pod = subject(gpu=wanted, **{"label[100]": "x"} if wanted else {})
        seen.update(raw(f"{HEADER}score: {value} missing 0", world, pod))
    assert len(seen) > 1


def test_each_pair_is_looked_up_once():
    """Ten pods of two names on five nodes of two zones are four pairs."""
    asked = []

    class Asking(FakeWorld):
        def pair(self, name, left, right):
            asked.append((left, right))
            return super().pair(name, left, right)

    hosts = [{"node.zone": "za" if at % 2 else "zb"} for at in range(5)]
    pods = [{"on": at % 5, "it.name": "x" if at % 3 else "y"} for at in range(10)]
    plan = plan_of(f"{HEADER}score: sum(rtt(node.zone, it.name) over cluster.pods)")
    world = Asking(hosts, pods).knows(plan)
    rule = plan.scores[0]
    rule.column((), world, slice(0, 5), None)
    assert sorted(asked) == [("za", "x"), ("za", "y"), ("zb", "x"), ("zb", "y")]


@pytest.mark.parametrize(
    ("names", "where", "sizes"),
    [
        (500, "", [524 * 500, 76 * 500]),  # as many pairs as two to the eighteenth hold
        (1, "", [524, 76]),  # each node has one group, and all 500 pods in it
        (500, " where it.label[app] is web", [600 * 5]),  # what asks the pods alone comes first
    ],
)
def test_pairs_are_asked_a_block_at_a_time(names, where, sizes):
    asked = []

    class Asking(FakeWorld):
        def pair_column(self, name, left, right):
            asked.append(len(left))
            return (left * 7 + right * 3) % 5.0

    hosts = [{"node.name": f"n{at}"} for at in range(600)]
    pods = [
        {"on": 0, "it.name": f"p{at % names}", "it.label[app]": "b" if at % 100 else "web"}
        for at in range(500)
    ]
    plan = plan_of(f"{HEADER}score: sum(rtt(node.name, it.name) over cluster.pods{where})")
    world = Asking(hosts, pods).knows(plan)
    column = plan.scores[0].column((), world, slice(0, 600), None)
    assert asked == sizes
    left = world.node_text("node.name", None)[:, np.newaxis]
    right = world.pod_text("it.name", None)[:: 100 if where else 1]
    assert column.tolist() == ((left * 7 + right * 3) % 5.0).sum(1).tolist()


def test_groups_stay_apart_however_much_is_asked_of_a_pod():
    """Eight labels of 1,024 values are more groups than a number can count."""
    keys, many = "abcdefgh", 1024
    pods = [{f"it.label[{key}]": str(at) for key in keys} | {"on": 0} for at in range(many)]
    # They differ from the first pod in one label.
    pods += [{**pods[0], f"it.label[{key}]": "5"} for key in keys]
    given = {("z", "0"): 1.0, ("z", "5"): 3.0}
    every = " + ".join(f"rtt(node.zone, it.label[{key}])" for key in keys)
    plan = plan_of(f"{HEADER}score: sum({every} over cluster.pods)")
    world = FakeWorld([{"node.zone": "z"}], pods, given={"rtt": given}).knows(plan)
    found = plan.scores[0].column((), world, slice(0, 1), slice(0, 1))
    assert found.tolist() == [8 * 1 + 8 * 3 + 8 * (7 * 1 + 3)]


@pytest.mark.parametrize("over", ["zone.pods", "queue.pods"])
@pytest.mark.parametrize("form", ["any", "all"])
def test_a_condition_on_pairs_may_be_negated_and_asked_of_no_node(form, over):
    test = f"not {form}({over} where (rtt(node.zone, it.name) ?? 0) > 2.5)"
    plan = plan_of(f"{HEADER}filter: {test}")
    queued = [{"on": 0, "it.name": "web"}, {"on": 0, "it.name": "web"}]
    world = FakeWorld(HOSTS, SET, tables={"queue": queued}, given={"rtt": PAIRS}).knows(plan)
    rule = plan.filters[0]
    expected = [oracle.passes(rule.core, world, subject(), row) for row in range(4)]
    assert rule.verdict((), world, slice(0, 4)).tolist() == expected
    assert len(set(expected)) > 1
    assert rule.verdict((), world, np.array([], np.intp)).tolist() == []


def test_a_message_tells_what_pairs_with_the_pod_in_them_come_to():
    plan = plan_of(
        f"{HEADER}reserve: sum((rtt(node.zone, it.name) ?? 0) * pod.gpu over cluster.pods) < 5"
        ' message "{sum(rtt(node.zone, it.name) * pod.gpu over cluster.pods)}"'
    )
    world = FakeWorld(HOSTS, SET, given={"rtt": PAIRS}).knows(plan)
    stops = [stop_by(plan.reserves, subject(gpu=wanted), world, 0) for wanted in (0.5, 1.0)]
    assert [one and one.message for one in stops] == [None, "6.5"]


@pytest.mark.parametrize(
    "value",
    [
        "rtt(node.zone, it.label[(it.name)])",
        "(rtt(node.zone, it.name) ?? 0) + (number(it.label[(it.name)]) ?? 1) * 2 + it.gpu",
        "(rtt(node.zone, it.name) ?? 0) * ((number(it.label[(it.name)]) ?? 1) - 2)",
    ],
)
def test_what_the_pods_alone_decide_is_computed_once_and_not_at_each_node(value):
    asked = []

    class Asking(FakeWorld):
        def pod_text(self, field, key):
            asked.append((field, key))
            return super().pod_text(field, key)

    hosts = [{"node.zone": f"z{at}"} for at in range(6)]
    pods = [{"on": at % 6, "it.name": "xy"[at % 2], "it.label[x]": "7"} for at in range(10)]
    plan = plan_of(f"{HEADER}score: sum({value} over cluster.pods)")
    given = {("z1", "7"): 2.0, ("z2", "x"): 3.0, ("z2", "y"): 1.0}
    world, rule = Asking(hosts, pods, given={"rtt": given}).knows(plan), plan.scores[0]
    found = rule.column((), world, slice(0, 6), None).tolist()
    assert sorted(set(asked)) == sorted(asked)
    assert {("it.label", "x"), ("it.label", "y"), ("it.name", None)} == set(asked)
    views = [reference.View(world, subject(), row) for row in range(6)]
    assert found == [reference.evaluate(rule.core.value, view) for view in views]
