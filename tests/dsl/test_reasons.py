"""What is said of a rejection: by columns in a scheduler, one by one in the reference, the same."""

import numpy as np
import pytest

from dsl import reasons, reference
from dsl.types import Kind
from tests.dsl.bothways import plan_of, subject
from tests.dsl.worlds import FakeWorld

HOSTS = [{"node.name": "n0", "node.cpu.free": 2.0, "node.label[k]": "v", "node.images": ("x:1",)}]
PODS = [{"on": 0, "it.cpu": 1500.0, "it.label[app]": "web"}, {"on": 0, "it.cpu": 250.0}]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("filter: count(node.pods) < 2",
         "count(node.pods) < 2 is false: count(node.pods) is 2"),
        ("prefilter: sum(it.cpu over cluster.pods) < 1",
         "sum(it.cpu over cluster.pods) < 1 is false: sum(it.cpu over cluster.pods) is 1750m"),
        ('forbid: any(node.pods where it.label app=web) message "{count(node.pods)} on it"',
         "2 on it"),
        ("let mine = count(node.pods where it.label app=web)\nfilter: node.ready or mine > 1",
         "node.ready or mine > 1 is false: node.ready is false; mine is 1"),
        ('reserve: max(node.cpu.free over nodes) > 8 message "{node.label[k]}, {pod.name}"',
         "v, p"),
        ("gate: count(cluster.pods) == 0",
         "count(cluster.pods) == 0 is false: count(cluster.pods) is 2"),
        ("filter: pod.image in node.images and node.name is x",
         "pod.image in node.images is false: pod.image is y:1; node.images is [x:1]"),
        ('permit: reject message "{count(node.pods)} there"', "2 there"),
    ],
)  # fmt: skip
def test_nobody_is_asked_one_by_one_for_the_words(rule, said, monkeypatch):
    plan = plan_of(rule)
    world = FakeWorld(HOSTS, PODS).knows(plan)
    pod = subject(name="p", image="y:1").knows(plan)
    (one,) = (
        *plan.gates, *plan.prefilters, *plan.filters, *plan.reserves, *plan.permits,
    )  # fmt: skip
    row = 0 if plan.filters or plan.reserves or plan.permits else -1
    ask = reference.asked(reference.View(world, pod, row))
    if not plan.permits:
        assert reasons.message(one.core, plan.source.text, ask) == said
    evaluate = reference.evaluate

    def of_lists(node, view):
        assert node.type.kind is Kind.LIST
        return evaluate(node, view)

    monkeypatch.setattr(reference, "evaluate", of_lists)
    assert one.message(pod, world, row) == said


def test_a_message_quotes_no_more_than_the_start_of_a_long_text():
    rule = 'filter: node.name is "{}" message "it wants {pod.annotation[x]}"'.replace("{}", "x")
    world = FakeWorld(HOSTS, PODS).knows(plan_of(rule))
    pod = subject(**{"annotation[x]": "w" * 250_000}).knows(plan_of(rule))
    (one,) = plan_of(rule).filters
    said = f"it wants {'w' * 252} ..."
    assert one.message(pod, world, 0) == said
    ask = reference.asked(reference.View(world, pod, 0))
    assert reasons.message(one.core, rule, ask) == said


#: Some as they are said to be, some without what is asked for.
NODES = [
    {"node.gpu.free": 1.0, "node.pods.free": 5.0, "node.zone": "z", "metrics": {"m": 4.0},
     "ages": {"m": 100.0}},
    {"node.gpu.free": 1.0, "node.pods.free": 5.0, "node.zone": "y", "metrics": {"m": 4.0}},
    {"node.gpu.free": 2.0, "node.pods.free": 5.0, "node.zone": "z"},
    {"node.pods.free": 5.0, "node.images": ("a", "b")},
    {"node.pods.free": 6.0, "node.images": ("a", "b")},
    {"node.ready": True, "node.gpu.free": 1.0, "node.pods.free": 5.0},
    {"node.gpu.free": 0.0, "node.label[k]": ",".join("a" * 16), "node.zone": "z"},
    {"node.gpu.free": 0.0, "node.label[k]": ",".join("a" * 17), "node.zone": "z"},
    {"node.gpu.free": 0.0, "node.label[k]": ",".join("b" * 17), "node.zone": "z"},
    {"node.gpu.free": 0.0, "node.label[k]": ",".join("b" * 18), "node.zone": "z"},
    {"node.label[k]": "a,a", "node.zone": "z"},
]  # fmt: skip


def first_of(rule):
    plan = plan_of(rule)
    pod = subject(name="p", **{"label[app]": "db"}).knows(plan)
    return plan.filters[0], pod, FakeWorld(NODES).knows(plan)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("filter: false", "false is false"),
        ("let low = node.gpu.free > 3 and node.ready\nfilter: low",
         "node.gpu.free > 3 is false: node.gpu.free is 1"),
        ("let low = node.gpu.free > 3\nfilter: node.ready != low",
         "node.ready != low is false: node.ready is false; low is false"),
        ("filter: not (node.gpu.free < 3 and node.pods.free > 1)",
         "node.gpu.free < 3 and node.pods.free > 1 is true: node.gpu.free is 1;"
         " node.pods.free is 5"),
        ("filter: not (node.gpu.free < 3 or node.ready)",
         "node.gpu.free < 3 is true: node.gpu.free is 1"),
        ("filter: not (not node.ready)", "not node.ready is true: node.ready is false"),
        ("filter: node.gpu.free * node.gpu.free > 9",
         "node.gpu.free * node.gpu.free > 9 is false: node.gpu.free is 1"),
        ("filter: pod.label app=web", "pod.label app=web is false: app is db"),
        ("filter: node.label app=web", "node.label app=web is false: app is <none>"),
        ("filter: node.taint app", "node.taint app is false: app is false"),
        ("filter: node.label[ k ] is web",
         "node.label[ k ] is web is false: node.label[ k ] is <none>"),
        ("filter: pod.request[nvidia.com/gpu] > 2",
         "pod.request[nvidia.com/gpu] > 2 is false: pod.request[nvidia.com/gpu] is 0"),
        ("filter: workload.label app=web",
         "workload.label app=web is false: workload.label[app] is <none>"),
        ('metric m = promql "a" default 0\nfilter: abs(m) > 5',
         "abs(m) > 5 is false: m is 4"),
        ('metric m = promql "a"\nfilter: (metric_age(m) ?? 0s) > 5m',
         "(metric_age(m) ?? 0s) > 5m is false: metric_age(m) is 1m40s"),
        ('metric m = promql "a" default 0\nlet two = m * 2\nfilter: two + m > 15',
         "two + m > 15 is false: two is 8; m is 4"),
    ],
)  # fmt: skip
def test_the_part_that_decides_and_its_values_are_named(rule, said):
    rule, pod, world = first_of(rule)
    assert rule.message(pod, world, 0) == said


LISTS = 'filter: any(split(node.label[k], ",") where it is x)'


@pytest.mark.parametrize(
    ("rule", "alike", "apart"),
    [
        # Numbers, texts, conditions and what is missing.
        ("filter: node.gpu.free > 3", [(0, 1), (3, 4), (0, 1, 5)], [(0, 2), (0, 3), (3, 0)]),
        ("filter: node.zone is x", [(0, 2), (3, 4)], [(0, 1), (2, 0, 1), (0, 3)]),
        ("filter: node.ready and not node.ready", [(0, 1)], [(0, 5), (5, 0)]),
        # The words of the user and what is put in.
        ('filter: node.gpu.free > 3 message "no"', [(0, 2, 3)], []),
        ('filter: node.gpu.free > 3 message "{pod.name}"', [(0, 2, 3)], []),
        ('filter: node.gpu.free > 3 message "{node.zone}, {pod.name}"', [(0, 2)], [(0, 1)]),
        ('filter: node.gpu.free > 3 message "{1 / node.gpu.free}"', [(6, 7), (0, 1)], [(0, 2)]),
        # Lists are not compared.
        ('filter: node.gpu.free > 3 message "{node.images}"', [(3,)], [(3, 4)]),
        # Another part may be what rejects the others.
        ("filter: node.ready and node.gpu.free > 3", [(0, 1), (0, 2)], [(0, 5), (5, 0)]),
        ("filter: node.ready and node.gpu.free > 1.5", [(0, 2)], []),
        ("let low = node.ready and node.gpu.free > 3\nfilter: low", [(0, 2)], [(5, 0)]),
        # A list that is too long has words of its own.
        (LISTS, [(7, 8)], [(7, 9), (6, 7), (7, 6)]),
        (f"{LISTS} message 'no {{node.zone}}'", [(6, 10), (7, 8)], [(10, 7), (7, 9), (6, 7)]),
    ],
)
def test_nodes_are_alike_if_the_same_is_said_of_them(rule, alike, apart):
    rule, pod, world = first_of(rule)
    for rows in (*alike, *apart):
        said = {rule.message(pod, world, row) for row in rows}
        assert len(said) == 1 or rows in apart, said
        assert rule.alike(pod, world, np.array(rows)) == (rows in alike), rows
