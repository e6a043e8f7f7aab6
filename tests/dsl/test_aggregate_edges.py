"""Every aggregate over every set, with and without a value and a condition, both ways."""

import numpy as np
import pytest

from dsl.plan import stop_by
from tests.dsl import oracle
from tests.dsl.bothways import (
    BUSY,
    HEADER,
    HOSTS,
    LIVES,
    POD,
    REGIONS,
    SET,
    TABLES,
    forms,
    passing,
    plan_of,
    raw,
    subject,
)
from tests.dsl.worlds import FakePod, FakeWorld

#: A number, a condition and a second condition of the members of a set.
OF_NODES = ("node.gpu.free", "node.ready", "not node.gpu.free < 2")
OF_PODS = ("it.priority", "it.ready", "it.priority > 2")
OF_CONTAINERS = ("it.limit[cpu]", "it.name is main", "it.limit[cpu] > 0.5")
SETS = {
    "nodes": OF_NODES,
    "candidates": OF_NODES,
    "node.pods": OF_PODS,
    "zone.pods": OF_PODS,
    "region.pods": OF_PODS,
    "cluster.pods": OF_PODS,
    "queue.pods": OF_PODS,
    "node.nominated": OF_PODS,
}


@pytest.mark.parametrize("over", SETS)
def test_aggregates(over):
    holes = FakeWorld(REGIONS, LIVES, tables=TABLES)
    full = FakeWorld(HOSTS, SET, tables=TABLES)
    nothing = FakeWorld([{}, {}])
    small = FakeWorld(
        [{"node.gpu.free": 1.0, "node.ready": True}], tables=dict.fromkeys(TABLES, BUSY)
    )
    for form in forms(over, *SETS[over]):
        seen = [raw(f"{HEADER}score: {form} missing 0", holes, subject())]
        seen.append(raw(f"{HEADER}score: {form} missing 0", holes, subject(), [4, 0]))
        seen.append(raw(f"{HEADER}score: {form} missing 0", full, subject()))
        seen.append(raw(f"{HEADER}score: {form} missing 0", nothing, subject()))
        seen.append(raw(f"{HEADER}score: {form} missing 0", small, subject()))
        assert len({repr(one) for row in seen for one in row}) > 1, form


@pytest.mark.parametrize("over", ["nodes", "cluster.pods", "queue.pods"])
def test_aggregates_over_nothing_before_the_nodes(over):
    for name, expected in (("any", False), ("all", True), ("0 < count", False)):
        plan = plan_of(f"prefilter: {name}({over} where {SETS[over][2]})")
        world, pod = FakeWorld([]), subject()
        assert oracle.passes(plan.prefilters[0].core, world, pod, -1) == expected
        assert (stop_by(plan.prefilters, pod, world) is None) == expected


@pytest.mark.parametrize("over", ["node", "zone", "region", "cluster", "queue", 'pods_in("k")'])
def test_a_cluster_without_nodes_has_no_values(over):
    name = over if over.startswith("pods_in") else f"{over}.pods"
    for form in (f"count({name})", f"sum(it.gpu over {name} where it.gpu > pod.gpu)"):
        rule, world = plan_of(f"score: {form}").scores[0], FakeWorld([])
        parts = rule.prepare(subject(), world)
        found = rule.column(parts, world, slice(0), slice(0))
        assert found.tolist() == []
        assert rule.finish(found) is None


CONTAINERS = [
    [],
    [{"name": "main", "limit[cpu]": 2000.0}],
    [{"name": "side", "limit[cpu]": 750.0}, {"name": "main", "limit[cpu]": 500.0}],
    [{"name": "side"}, {"name": "main", "limit[cpu]": 1000.0}, {"name": "log", "image": "x"}],
]


@pytest.mark.parametrize("form", list(forms("pod.containers", *OF_CONTAINERS)))
def test_aggregates_over_containers(form):
    test = form.removesuffix(" then 1 else 0").removeprefix("if ")
    if test == form:
        counts = form.startswith(("count", "distinct"))
        test = f"{form} > 0" if counts else f"({form} ?? cores(1)) > cores(1)"
    answers = set()
    for containers in CONTAINERS:
        pod = FakePod.of({**POD, "pod.containers": containers})
        found = passing(f"filter: {test}", FakeWorld([{}]), pod)
        plan = plan_of(f"gate: {test}")
        assert [stop_by(plan.gates, pod, FakeWorld([])) is None] == found
        answers.add(found[0])
    assert answers == {True, False}


def test_a_condition_of_the_pod_alone_is_the_same_for_all_members():
    """Such a condition is one value, and the set may have any number of members."""
    world = FakeWorld(HOSTS, SET)
    for text in (
        "count(node.pods where pod.gpu > 1)",
        "count(cluster.pods where pod.gpu > 1)",
        "count(nodes where pod.gpu > 1)",
        "sum(pod.gpu over node.pods)",
        "sum(pod.gpu over nodes where pod.gpu > 1)",
        "if all(node.pods where pod.gpu > 1) then 1 else 0",
        "if any(pod.gpu > 1 over zone.pods) then 1 else 0",
        "count(pod.gpu > 1 over node.pods where it.ready)",
        "count(node.pods where pod.gpu > 1 or it.ready)",
        "count(zone.pods where pod.gpu > 1 and it.ready)",
        "sum(pod.gpu over cluster.pods where it.ready)",
        "sum(pod.gpu over zone.pods where pod.gpu > 1)",
        "sum(it.priority over cluster.pods where pod.gpu > 1)",
        "sum(node.gpu.free over nodes where pod.gpu > 1)",
    ):
        for wanted in (0.0, 2.0):
            raw(f"score: {text}", world, subject(gpu=wanted))


#: Aggregates of 3,000 pods on four nodes and what they come to, by pod: `on`, gpu, priority.
MANY = [
    ("count(node.pods where it.gpu > 1)", lambda on, gpu, priority: gpu > 1, sum),
    ("count(node.pods where it.priority > 90)", lambda on, gpu, priority: priority > 90, sum),
    ("if any(node.pods where it.gpu > 3) then 1 else 0", lambda on, gpu, _: gpu > 3, any),
    ("if all(node.pods where it.gpu < 3) then 1 else 0", lambda on, gpu, _: gpu < 3, all),
    ("count(node.pods)", lambda on, gpu, priority: True, sum),
    ("count(it.gpu > 1 over node.pods where it.priority > 50)",
     lambda on, gpu, priority: gpu > 1 and priority > 50, sum),
]  # fmt: skip


@pytest.mark.parametrize("size", [2047, 2048, 3000])
def test_of_very_many_pods_each_is_counted_once(size):
    """They are counted in arrays that are used again, for whatever comes next."""
    texts = "".join(f"score: {text}\n" for text, *_ in MANY)
    rules = plan_of(texts).scores
    for count in (size, 2300, size):
        pods = [(at * 7 % 4, float(at % 5 if at % 4 else at % 3), at % 97) for at in range(count)]
        fields = ("on", "it.gpu", "it.priority")
        world = FakeWorld([{}] * 5, [dict(zip(fields, one, strict=True)) for one in pods])
        for rule, (text, test, reduce) in zip(rules, MANY, strict=True):
            found = rule.column((), world, slice(0, 5), slice(0, 5)).tolist()
            by_node = [reduce(test(*one) for one in pods if one[0] == row) for row in range(5)]
            assert found == [float(one) for one in by_node], text


@pytest.mark.parametrize("over", ["node.pods", "zone.pods", "cluster.pods", "queue.pods", "nodes"])
@pytest.mark.parametrize("name", ["any", "all"])
def test_any_and_all_are_true_or_false_and_no_numbers(name, over):
    """They may be negated and compared, whatever they were counted from."""
    world = FakeWorld(HOSTS, [*SET, *SET[:2]], tables=TABLES)
    one, other = ("node.ready", "node.gpu.free >= 0") if over == "nodes" else OF_PODS[1:]
    low = "node.gpu.free >= 0" if over == "nodes" else "it.priority > -9"
    for flag in (one, other, low):
        passing(f"filter: not {name}({over} where {flag})", world, subject())
        same = f"{name}({over} where {flag}) == {name}({over} where {low})"
        passing(f"filter: {same}", world, subject())


def test_pods_of_a_node_are_found_from_any_selection_of_rows():
    rule = plan_of(
        "score: sum(it.priority over node.pods where it.priority > pod.priority)"
    ).scores[0]
    world, pod = FakeWorld(HOSTS, SET), subject(priority=-9.0)
    parts, everything = rule.prepare(pod, world), np.arange(4)
    full = rule.column(parts, world, slice(0, 4), everything).tolist()
    assert full == [3.0, 7.0, 7.0, 0.0]
    for rows in ([3, 0], [2, 1, 0], [3], [], [1, 3]):
        chosen = np.array(rows, np.intp)
        assert rule.column(parts, world, chosen, everything).tolist() == [full[at] for at in rows]


def test_what_the_reference_says_of_nodes_of_a_domain_and_of_the_clock():
    zones = [("z1", 1.0), ("z1", 2.0), ("z2", 4.0), (None, 8.0)]
    nodes = [{"node.zone": zone, "node.gpu.free": free} for zone, free in zones]
    world = FakeWorld(nodes, [{"on": 2, "it.gpu": 5.0}], cycle={"time.weekday": "mon"})
    plan = plan_of(
        "filter: sum(node.gpu.free + count(node.pods where it.gpu > 4) over zone.nodes) == 3\n"
        "filter: sum(node.gpu.free + count(node.pods where it.gpu > 4) over zone.nodes) == 5\n"
        "filter: time.weekday is mon\n"
    )
    found = [[oracle.passes(one.core, world, FakePod(), row) for row in range(4)]
             for one in plan.filters]  # fmt: skip
    assert found == [[True, True, False, False], [False, False, True, False], [True] * 4]
