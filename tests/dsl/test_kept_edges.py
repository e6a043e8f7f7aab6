"""What columns keep between passes and what not; other sets of pods, and rows that are empty."""

from copy import copy

import numpy as np
import pytest

from dsl import reference
from dsl.lower.frame import Frame
from dsl.schema import POD_SETS
from tests.dsl.bothways import (
    HEADER,
    HOSTS,
    SET,
    WITH_PAIRS,
    plan_of,
    raw,
    same,
    subject,
)
from tests.dsl.worlds import FakeWorld

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
        "count(cluster.pods where it.gpu >= pod.gpu)",
        "count(nodes where node.gpu.free > pod.gpu)",
        "max(node.gpu.free over candidates)",
        "count(node.pods where node.eligible and it.gpu > 0)",
        "count(node.pods where pod.label[(it.name)] is present)",
        "count(node.pods where now - it.created > 60)",
        "count(node.pods where it.gpu > time.hour)",
        "count(node.pods where it.gpu < max(node.gpu.free over candidates))",
        "count(node.nominated where it.priority > 5)",
        "count(queue.pods where it.priority > 5)",
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


@pytest.mark.parametrize("name", sorted(POD_SETS))
def test_a_rule_says_which_set_of_pods_it_reads(name):
    rule = plan_of(f"filter: count({name} where it.priority > 0) < 3").filters[0]
    same_place = {one for one, place in POD_SETS.items() if place == POD_SETS[name]}
    assert rule.reads & set(POD_SETS) == same_place
    assert rule.reads_pods
    assert rule.row_local == (POD_SETS[name][0] == "node")


def test_a_rule_over_the_pods_of_a_label_reads_all_pods_and_that_label():
    rule = plan_of('filter: count(pods_in("rack") where it.priority > 0) < 3').filters[0]
    assert {"cluster.pods", "node.label", "it.priority"} == rule.reads
    assert not rule.row_local


@pytest.mark.parametrize("rows", [range(0, 40, 2), range(39, -1, -1), range(20), [7], []], ids=len)
def test_pods_of_many_and_of_few_rows(rows):
    """What the pod to place takes part in is not kept, so the rows' own pods are looked for."""
    plan = plan_of("score: sum(it.gpu over node.pods where it.gpu > pod.gpu)")
    pods = [{"on": at % 40 if at % 7 else -1, "it.gpu": float(at % 5)} for at in range(200)]
    world, pod, rule = FakeWorld([{}] * 40, pods), subject(gpu=1.0), plan.scores[0]
    parts, chosen = rule.prepare(pod, world), np.array(rows, np.intp)
    views = [reference.View(world, pod, row, tuple(rows)) for row in rows]
    expected = [float(reference.evaluate(rule.core.value, view)) for view in views]
    assert rule.column(parts, world, chosen, chosen).tolist() == expected
