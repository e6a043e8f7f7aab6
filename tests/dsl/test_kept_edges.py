"""What columns keep between passes and what not; other sets of pods, and rows that are empty."""

import gc
import itertools
import tracemalloc
from collections import Counter
from copy import copy

import numpy as np
import pytest

from dsl import reference
from dsl.diagnostics import render
from dsl.lower import Memo
from dsl.lower.frame import Frame
from dsl.plan import stop_by
from dsl.schema import POD_SETS
from tests.dsl import oracle
from tests.dsl.bothways import (
    COMPILER,
    HEADER,
    HOSTS,
    POD,
    SET,
    WITH_PAIRS,
    plan_of,
    raw,
    same,
    subject,
)
from tests.dsl.worlds import FakePod, FakeWorld

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

    def node_text(self, field, key):
        self.asked.append(field)
        return super().node_text(field, key)

    def pod_text(self, field, key):
        self.asked.append(field)
        return super().pod_text(field, key)

    def metric(self, name):
        self.asked.append("metric")
        return super().metric(name)

    def pod_metric(self, name):
        self.asked.append("pod metric")
        return super().pod_metric(name)


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
        "count(node.pods) + max(node.gpu.free over candidates)",
        "count(node.pods) + rank(-node.gpu.free) * 6",
        "count(node.pods) + (if node.heartbeat > node.created then 1 else 0)",
        "count(node.pods) + node.volumes.attached",
        "count(node.pods where it.quota.over_min)",
        "count(node.pods) + (ma ?? 0)",
        "count(node.pods) + (mn ?? 0)",
        "count(node.pods) + (if metric_age(m) > 60 then 1 else 0)",
        "count(node.pods) + time.hour",
        "count(node.pods) + count(pod.containers)",
        "count(node.pods) + count(pod.containers where it.name is main)",
        "count(node.pods) + count(pod.containers where it.limit[cpu] > 500m)",
        "count(node.pods) + (if node.label[(pod.name)] is x then 1 else 0)",
    ],
)
def test_what_may_change_within_a_generation_is_not_kept(value):
    pods = [
        {"on": 0, "it.name": "a", "it.gpu": 1.0, "it.created": 900.0, "it.node": "n"},
        {"on": 1, "it.name": "b", "it.gpu": 2.0, "it.created": 990.0, "it.node": "n"},
    ]
    hosts = [
        {"node.name": "n", "node.zone": "z", "node.gpu.free": 2.0, "node.label[k]": "x"},
        {"node.name": "o", "node.gpu.free": 1.0, "node.label[k]": "y", "node.created": 5.0},
    ]
    of_time = [
        {
            **one,
            "node.heartbeat": 1.0 + 9.0 * at,
            "node.volumes.attached": at,
            "metrics": {"ma": at},
        }
        | {"ages": {"m": 100.0 * at}}
        for at, one in enumerate(hosts)
    ]
    more = 'metric ma = annotation some/load stale 5m\nmetric mn = promql "g" by namespace\n'
    plan = plan_of(f"{HEADER}{more}score: {value} missing 0")
    rule = plan.scores[0]
    first = FakeWorld(hosts, pods, now=1000.0, cycle={"time.hour": 0.0}, tables={}).knows(plan)
    again = later(first, now=2000.0, _cycle={"time.hour": 1.0}, _tables=QUEUED)
    again._nodes, again._pods = of_time, [{**one, "it.quota.over_min": True} for one in pods]
    main = {"name": "main", "limit[cpu]": 1000.0}
    one = FakePod.of({**POD, "pod.gpu": 0.0, "pod.node_selector[k]": "x"})
    two = FakePod.of(
        {
            **POD, "pod.gpu": 2.0, "pod.node_selector[k]": "y", "pod.label[a]": "x",
            "pod.name": "k", "pod.containers": [main], "metrics": {"mn": 3.0},
        }
    )  # fmt: skip
    one.knows(plan), two.knows(plan)
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
    expected = oracle.passes(plan.prefilters[0].core, world, pod, -1)
    assert (stop_by(plan.prefilters, pod, world) is None) == expected


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
    looked = []

    class Looking(FakeWorld):
        def pods_on(self, row):
            looked.append(row)
            return super().pods_on(row)

    world, pod, rule = Looking([{}] * 40, pods), subject(gpu=1.0), plan.scores[0]
    parts, chosen = rule.prepare(pod, world), np.array(rows, np.intp)
    views = [reference.View(world, pod, row, tuple(rows)) for row in rows]
    expected = [float(reference.evaluate(rule.core.value, view)) for view in views]
    looked.clear()
    assert rule.column(parts, world, chosen, chosen).tolist() == expected
    # A few nodes are asked for their pods; for many, all pods are gone through once.
    assert looked == (list(rows) if len(rows) <= 16 else [])


# ---- how often it is computed, and for whom


def lines(text):
    """A policy of the lines between the semicolons."""
    return "".join(f"{one.strip()}\n" for one in text.split(";"))


def asking(*texts, most_bytes=None):
    """Policies of one compiler, and the memo they share."""
    memo = Memo() if most_bytes is None else Memo(most_bytes)
    files = {f"p{at}.policy": HEADER + lines(text) for at, text in enumerate(texts)}
    # A compiler of its own would read the tables of the grammar anew.
    compiler = copy(COMPILER)
    compiler._memo = memo
    result = compiler.compile(files)
    assert result.ok, render([one for one in result.diagnostics if one.is_error])
    return result.plans, memo


def answers(plans, world, pod=None, rows=None):
    """Asks all filters and scores, and the reference about each row."""
    pod, everything = pod or subject(gpu=1.0), tuple(range(world.nodes))
    rows = slice(0, world.nodes) if rows is None else rows
    chosen = everything if isinstance(rows, slice) else tuple(rows.tolist())
    found = []
    for plan in plans:
        world.knows(plan)
        for rule in plan.filters:
            mask = rule.verdict(rule.prepare(pod, world), world, rows).tolist()
            assert mask == [oracle.passes(rule.core, world, pod, row) for row in chosen]
            found.append(mask)
        for rule in plan.scores:
            column = rule.column(rule.prepare(pod, world), world, rows, rows).tolist()
            views = (reference.View(world, pod, row, chosen) for row in chosen)
            expected = [float(reference.evaluate(rule.core.value, view)) for view in views]
            assert all(map(same, column, expected)), rule.text
            found.append(column)
    return found


THREE = "floor(node.gpu.free / 2) > 1"
FOUR = "floor(node.gpu.free / 2) * 3 > 1"
HEAVY = "count(node.pods where it.gpu > 1)"
OTHER = "count(node.pods where it.gpu > 2)"


@pytest.mark.parametrize(
    ("policies", "computed"),
    [
        # What costs little is kept only if it stands at several places.
        (["filter: node.gpu.free > 2"], 0),
        ([f"filter: {THREE}"], 0),
        ([f"filter: {FOUR}"], 1),
        ([f"let x = {THREE}; filter: x"], 0),
        ([f"let x = {HEAVY}; score: x + pod.gpu"], 1),
        (["filter: (node.gpu.free + 1) * (node.gpu.free + 2) > 3"], 1),
        (["filter: (node.gpu.free + 1) * node.gpu.free > 3"], 0),
        (["filter: node.ready and (node.gpu.free + 1) * (node.gpu.free + 2) > 3"], 1),
        (["filter: node.gpu.free > 2", "filter: node.gpu.free > 2"], 1),
        (["filter: node.gpu.free > 2"] * 3, 1),
        (["filter: node.gpu.free > 2", "filter: node.gpu.free > 2.0"], 1),
        (["filter: node.gpu.free > 2", "filter: node.gpu.free > 3"], 0),
        ([f"filter: {THREE}", f"forbid: {THREE}"], 4),
        # Columns that are there already are no work.
        (["filter: node.ready", "filter: node.ready"], 0),
        (["let x = node.ready; filter: x"] * 2, 0),
        (["filter: string(node.memory.free) is '7'"] * 2, 2),
        (["filter: floor(node.gpu.free) > 2"] * 2, 2),
        (["let x = node.memory.free; filter: string(x) is '7'"] * 2, 2),
        (["let x = node.gpu.free > 2; filter: x", "filter: node.gpu.free > 2"], 1),
        # A part of what is kept is kept by itself only if it also stands elsewhere.
        ([f"score: {HEAVY} + {OTHER}"], 1),
        ([f"score: {HEAVY} + {OTHER} + {FOUR.partition('>')[0]}"], 1),
        ([f"score: {HEAVY} + {OTHER}", f"score: {OTHER} * 2"], 3),
        ([f"score: {HEAVY} * pod.gpu + {OTHER}"], 2),
        ([f"filter: {HEAVY} > pod.gpu or {OTHER} > pod.gpu or {FOUR}"], 3),
        # A name, of a value or of a metric, is the file's own business.
        (["metric a = promql 'q' by node; filter: (a ?? 1) > 2",
          "metric b = promql 'q' by node; filter: (b ?? 1) > 2"], 2),
        (["metric a = promql 'q' by src, dst; filter: (a(node.name, 'x') ?? 1) > 2",
          "metric b = promql 'q' by src, dst; filter: (b(node.name, 'x') ?? 1) > 2"], 3),
        # Of the whole cluster, and whatever the candidates are in a filter.
        (["score: count(cluster.pods where it.gpu > 1)"] * 2, 1),
        (["score: max(node.gpu.free over nodes)"], 0),
        (["score: max(node.gpu.free over nodes)"] * 2, 1),
        (["score: max(node.gpu.free over candidates)"] * 2, 0),
        (["filter: node.gpu.free < max(node.gpu.free over candidates) or node.ready"] * 2, 3),
        (["score: cluster.nodes * 2 - 1"] * 2, 0),
        (["score: node.gpu.free * cluster.nodes"] * 2, 1),
        (["score: count(node.pods) * cluster.nodes"], 1),
        (["score: count(node.pods) * (mc ?? 1)"], 1),
        # The pod and the clock.
        ([f"score: {HEAVY} + pod.gpu"], 1),
        (["score: count(node.pods where it.gpu > pod.gpu) * 2 + 1"], 0),
        ([f"score: if time.hour > 7 then 1 else {HEAVY}"], 1),
    ],
)  # fmt: skip
def test_how_many_columns_are_computed(policies, computed):
    header = "metric mc = promql 'c' by cluster;"
    plans, memo = asking(*(header + one for one in policies))
    world = FakeWorld(HOSTS, SET, cycle={"cluster.nodes": 4.0, "time.hour": 3.0})
    for wanted in (1.0, 3.0):
        answers(plans, world, subject(gpu=wanted))
        assert (memo.computed, memo.patched) == (computed, 0)
    answers(plans, world, rows=np.array([2, 0]))
    assert (memo.computed, memo.patched) == (computed, 0)
    answers(plans, FakeWorld(HOSTS[1:], (), cycle={"cluster.nodes": 3.0, "time.hour": 3.0}))
    assert (memo.computed, memo.patched) == (2 * computed, 0)


ALIKE = [
    ("floor(node.gpu.free / 3) + {0}", ["1", "2", "node.pods.free", "(m ?? 4)", "(m ?? 5)"]),
    ("{0}(node.gpu.free / 3 + 1) * 2 - 1", ["floor", "ceil", "round", "abs", "sqrt"]),
    ("(node.gpu.free {0} 3) * 2 + 1", ["+", "-", "*", "/"]),
    ("(node.gpu.free - 3) * 2 + {0}(node.gpu.free, 2)", ["min", "max", "pow"]),
    ("count(node.pods where it.{0} > 1)", ["gpu", "priority", "label[k] is x or it.gpu", "cpu"]),
    ("count(node.pods where it.gpu {0} 2)", [">", ">=", "==", "<", "<=", "!="]),
    ("{0}(it.priority over node.pods)", ["sum", "max", "min", "avg", "median"]),
    ("{0}(it.priority over node.pods where it.gpu > 0)", ["sum", "max", "min"]),
    ("sum(it.priority over {0}.pods)", ["node", "zone", "region", "cluster"]),
    ("count(node.pods where it.name {0} we)", ["is", "starts with", "contains", "like"]),
    ("count(node.pods where it.label[{0}] is web)", ["app", "k", "web", "(it.name)"]),
    ("count(node.pods where it.name in [{0}])", ["web", "web, db", "db", "a, b"]),
    ("count(node.pods where it.priority in {0})", ["1 .. 3", "2 .. 3", "1 .. 8"]),
    ("count(node.pods where it.ready {0} it.gpu > 1)", ["and", "or", "and not"]),
    ("count(node.pods where {0})", ["it.ready", "not it.ready", "it.gpu is missing"]),
    ("sum((it.gpu ?? {0}) over node.pods)", ["1", "2", "it.priority"]),
    ("sum((if it.ready then {0}) over node.pods)", ["1 else 2", "2 else 1", "1 else 1"]),
    ("sum(-it.{0} over node.pods) + 100", ["gpu", "priority"]),
    ("count({0}) + floor(node.gpu.free / 2) * 3", ["nodes", "nodes where node.ready", "node.pods"]),
    ("{0}(node.gpu.free over nodes) * 2 + floor(node.gpu.free / 2) * 3", ["sum", "min", "max"]),
    ("len(split(node.label[k], {0})) * 2 + 1 + floor(node.gpu.free / 2)", ["'-'", "'b'"]),
    ("count(node.pods) * (rtt(node.{0}, 'web') ?? 1)", ["zone", "name"]),
    ("count(node.pods) * (rtt(node.zone, '{0}') ?? 1)", ["web", "db"]),
    ("count(node.pods) * ({0}(node.zone, 'web') ?? 1)", ["rtt", "rtd"]),
    ("count(node.pods) * ({0} ?? 1)", ["m", "n"]),
]  # fmt: skip


def test_expressions_that_differ_in_one_word_are_not_taken_for_one_another():
    texts = [form.format(one) for form, words in ALIKE for one in words]
    more = "metric n = promql 'b' by node;metric rtd = promql 'h' by src, dst;"
    plans, memo = asking(*(f"{more}score: {one} missing 0" for one in texts))
    hosts = [{**one, "node.region": "r" if at else "s"} for at, one in enumerate(HOSTS)]
    for at, one in enumerate(hosts):
        one["metrics"] = {"m": 3.0 * at, "n": 2.0}
    given = {"rtt": {("web", "web"): 3.0, ("n0", "web"): 5.0}, "rtd": {("web", "web"): 7.0}}
    given["rtt"]["web", "db"] = 2.0
    world = FakeWorld(hosts, SET, given=given)
    first = answers(plans, world)
    assert memo.computed >= len(texts) - 5
    assert repr(answers(plans, world)) == repr(first)


# ---- what changed since, and what is borrowed


class Moving(Watched):
    """A world that knows which rows differ from the one it came from."""

    before = None

    def after(self, rows, samples=(), **changes):
        other = later(self, **changes)
        other.generation = FakeWorld([]).generation
        other.before = self.generation, list(rows), [*rows, *samples]
        return other

    def _once(self, make, rows, name):
        # The reference asks for a whole column at each row.
        key = make.__name__, id(rows), name
        if key not in self.__dict__.setdefault("_made", {}):
            self._made[key] = rows, make(rows, name)
        return self._made[key][1]

    def _numbers(self, rows, name):
        return self._once(super()._numbers, rows, name)

    def _texts(self, rows, name):
        return self._once(super()._texts, rows, name)

    def changed_since(self, generation, *, samples):
        if self.before is None or self.before[0] != generation:
            return None
        return np.array(self.before[2 if samples else 1], np.intp)


def moving(nodes=64, kind=Moving, **options):
    hosts = [{"node.gpu.free": float(at % 5), "node.zone": "ab"[at % 2]} for at in range(nodes)]
    pods = [{"on": at, "it.gpu": float(at % 3)} for at in range(nodes)]
    return kind(hosts, pods, **options)


def hosts_of(world, rows, **fields):
    fields = {f"node.{name.replace('_', '.')}": one for name, one in fields.items()}
    return [{**one, **(fields if at in rows else {})} for at, one in enumerate(world._nodes)]


def pods_of(world, rows):
    return [{**one, "it.gpu": 9.0} if at in rows else one for at, one in enumerate(world._pods)]


@pytest.mark.parametrize(
    ("text", "patched"),
    [
        (f"filter: {HEAVY} + node.gpu.free > 3", True),
        (f"filter: node.gpu.free + {HEAVY} * 2 > 3", True),
        (f"filter: 3 > (if {HEAVY} > 0 then node.gpu.free else 1)", True),
        ("score: sum((if node.zone is a then it.gpu else 1) over node.pods)", True),
        # Of no pods, it is a few operations on columns.
        (f"filter: {FOUR}", False),
        # What a row comes to is a matter of other rows, too.
        (f"filter: {HEAVY} + max(node.gpu.free over nodes) > 10", False),
        (f"filter: {HEAVY} + max(node.gpu.free over candidates) > 10", False),
        (f"filter: {HEAVY} + rank(node.gpu.free) > 1", False),
        ("filter: count(zone.pods where it.gpu > 2) < 1", False),
        ("filter: sum(node.gpu.free over zone.nodes) > 9", False),
        (f"filter: count(zone.pods where it.gpu > 2) + {HEAVY} < 2", False),
        (f"filter: {HEAVY} + cluster.nodes > 10", False),
    ],
)
def test_rows_that_changed_are_brought_up_to_date_alone(text, patched):
    plans, memo = asking(text)
    world = moving(24, cycle={"cluster.nodes": 1.0})
    answers(plans, world)
    assert (memo.computed, memo.patched) == (1, 0)
    for rows in ([3], [], [0, 7, 8], [5]):
        nodes, pods = hosts_of(world, rows, gpu_free=50.0 + len(rows)), pods_of(world, rows)
        world = world.after(rows, _nodes=nodes, _pods=pods, _cycle={"cluster.nodes": 9.0})
        answers(plans, world)
    assert (memo.computed, memo.patched) == ((1, 4) if patched else (5, 0))


@pytest.mark.parametrize(
    ("changed", "found"), [(8, (1, 1)), (9, (2, 0)), (1, (1, 1)), (0, (1, 1)), (64, (2, 0))]
)
def test_more_than_an_eighth_of_the_rows_are_a_full_pass(changed, found):
    plans, memo = asking(f"score: {HEAVY}")
    world = moving()
    answers(plans, world)
    world = world.after(range(changed), _pods=pods_of(world, range(changed)))
    answers(plans, world)
    assert (memo.computed, memo.patched) == found


def test_where_nothing_changed_nothing_is_asked():
    plans, memo = asking(f"score: {HEAVY}")
    rule, world = plans[0].scores[0], moving()
    first = rule.column((), world, slice(0, 64), slice(0, 64)).tolist()
    world.asked.clear()
    again = world.after([])
    assert rule.column((), again, slice(0, 64), slice(0, 64)).tolist() == first
    assert (again.asked, memo.patched) == ([], 1)


@pytest.mark.parametrize("value", ["(m ?? 1)", "(rtt(node.zone, 'x') ?? 1)", "floor(m ?? 1) * 2"])
def test_new_samples_count_where_a_metric_is_read(value):
    plans, memo = asking(f"score: {HEAVY} * {value} missing 0")
    world = moving(24, given={"rtt": {("a", "x"): 4.0}})
    answers(plans, world)
    nodes = hosts_of(world, [2])
    nodes[2] |= {"metrics": {"m": 7.0}, "node.zone": "b"}
    answers(plans, world.after([], [2], _nodes=nodes))
    assert (memo.computed, memo.patched) == (1, 1)


def test_where_no_metric_is_read_new_samples_do_not_count():
    plans, memo = asking(f"score: {HEAVY} * 2")
    rule, world = plans[0].scores[0], moving()
    rule.column((), world, slice(0, 64), slice(0, 64))
    world.asked.clear()
    rule.column((), world.after([], range(64)), slice(0, 64), slice(0, 64))
    assert (world.asked, memo.patched) == ([], 1)


def test_a_row_more_is_a_full_pass():
    plans, memo = asking(f"score: {HEAVY}")
    world = moving()
    answers(plans, world)
    more = {"nodes": 65, "present": np.ones(65, np.bool_), "_nodes": [*world._nodes, {}]}
    answers(plans, world.after([64], **more))
    assert (memo.computed, memo.patched) == (2, 0)


def test_a_generation_of_another_dictionary_is_another():
    plans, memo = asking("filter: len(node.images) + count(node.pods where it.name is web) > 1")
    worlds = [FakeWorld(HOSTS, SET), FakeWorld(HOSTS[::-1], SET)]
    worlds[1].generation = worlds[0].generation
    assert answers(plans, worlds[0]) != answers(plans, worlds[1])
    assert memo.computed == 2


@pytest.mark.parametrize(("test", "computed"), [(f"{HEAVY} > 0", 1), ("node.ready", 0)])
def test_what_is_kept_is_nobody_s_to_write_to(test, computed):
    """The scheduler writes into a mask when rows change; so it does where a column is borrowed."""
    (plan,), memo = asking(f"filter: {test}")
    rule, world = plan.filters[0], moving()
    first = rule.verdict((), world, slice(0, 64))
    expected = first.tolist()
    for _ in range(2):
        first[:] = ~first
        first = rule.verdict((), world, slice(0, 64))
        assert first.tolist() == expected
    assert memo.computed == computed


def test_a_full_pass_asks_for_each_column_once():
    """Of all rows, what is kept and what is not share what they read."""
    plans, _ = asking(
        f"score: abs({HEAVY} + node.gpu.free) * pod.gpu + node.gpu.free + {FOUR[:-4]}"
    )
    world = moving()
    rule, pod = plans[0].scores[0], subject(gpu=1.0)
    rule.column(rule.prepare(pod, world), world, slice(0, 64), slice(0, 64))
    assert sorted(world.asked) == ["it.gpu", "node.gpu.free"]


def test_what_stands_twice_in_a_rule_is_read_once():
    plans, _ = asking(
        "score: (if node.zone is a then pod.gpu else 2) + (if node.zone is b then pod.gpu else 4)"
        " + (m ?? pod.gpu) * (m ?? 2) + sum((mp ?? pod.gpu) * (mp ?? 2) over node.pods"
        " where it.gpu < pod.gpu + 5 and it.gpu > pod.gpu - 5 and it.name in [x, (pod.name)])"
        " + count(zone.pods where it.gpu < pod.gpu) + count(zone.pods where it.gpu > pod.gpu)"
    )
    world, pod = moving(24), subject(gpu=1.0)
    world._pods = [{**one, "it.name": "px"[at % 2]} for at, one in enumerate(world._pods)]
    answers(plans, world, pod)
    world.asked.clear()
    rule = plans[0].scores[0]
    rule.column(rule.prepare(pod, world), world, slice(0, 24), slice(0, 24))
    asked = Counter(world.asked)
    # The zone is read by the rule, and as the domain of each of two sets of pods.
    assert asked.pop("node.zone") == 3
    # Of the pods of the nodes, and of all pods, in a set each.
    assert asked.pop("it.gpu") == 2
    assert asked == {"metric": 1, "pod metric": 1, "it.name": 1}


@pytest.mark.parametrize("first", [np.arange(24)[::-1], slice(0, 20), np.arange(17), slice(0, 24)])
def test_whichever_rows_are_asked_about_first_all_are_kept(first):
    """The scheduler may ask about the candidates before it asks about all nodes."""
    plans, memo = asking(f"filter: {HEAVY} + node.gpu.free > 2")
    rule, world = plans[0].filters[0], moving(24)
    expected = [oracle.passes(rule.core, world, subject(), row) for row in range(24)]
    for rows in (first, slice(0, 24), np.arange(24)[::-1], np.array([3]), slice(0, 0)):
        chosen = np.arange(24)[rows]
        assert rule.verdict((), world, rows).tolist() == [expected[at] for at in chosen]
    assert memo.computed == 1


def test_the_pods_of_all_nodes_are_gathered_once():
    class Telling(Moving):
        @property
        def pod_node(self):
            self.__dict__.setdefault("asked", []).append("place")
            return self._places

        @pod_node.setter
        def pod_node(self, places):
            self._places = places

    counts = []
    for also in ("", " + sum(it.gpu over zone.pods where it.gpu > pod.gpu + 1)"):
        plans, _ = asking(f"score: sum(it.gpu over zone.pods where it.gpu > pod.gpu){also}")
        rule, world, pod = plans[0].scores[0], moving(24, kind=Telling), subject(gpu=1.0)
        parts = rule.prepare(pod, world)
        world.asked.clear()
        rule.column(parts, world, slice(0, 24), slice(0, 24))
        counts.append(world.asked.count("place"))
    assert counts == [1, 1]


def test_lets_of_lets_are_built_and_computed_once():
    """Twenty lets that each use the one before twice are a million reads where none is shared."""
    names = [f"x{at}" for at in range(21)]
    steps = "".join(f"let {b} = {a} + {a};" for a, b in itertools.pairwise(names))
    plans, _ = asking(f"let x0 = node.gpu.free;{steps}score: x20")
    world = Watched([{"node.gpu.free": 1.0}, {"node.gpu.free": 3.0}])
    found = plans[0].scores[0].column((), world, slice(0, 2), slice(0, 2))
    assert found.tolist() == [2.0**20, 3 * 2.0**20]
    assert world.asked == ["node.gpu.free"]


@pytest.mark.parametrize(
    ("test", "decided"),
    [("pod.gpu > 1 or node.gpu.free > 3", 2.0), ("pod.gpu > 1 and node.gpu.free > 3", 1.0)],
)
def test_where_the_pod_alone_decides_no_node_is_asked(test, decided):
    (plan,), _ = asking(f"filter: {test}")
    rule, world = plan.filters[0], Watched([{"node.gpu.free": 1.0}, {"node.gpu.free": 5.0}])
    for wanted in (1.0, 2.0):
        pod = subject(gpu=wanted)
        answers([plan], world, pod)
        world.asked.clear()
        rule.verdict(rule.prepare(pod, world), world, slice(0, 2))
        assert (world.asked == []) == (wanted == decided)


def test_sets_that_stand_twice_in_a_rule_are_looked_at_once():
    plans, _ = asking(
        "score: max(node.gpu.free over nodes) - min(node.gpu.free over nodes)"
        " + max(node.pods.free over candidates) - min(node.pods.free over candidates)"
        " + max(it.gpu over queue.pods) - min(it.gpu over queue.pods) missing 0"
    )
    world = moving(tables={"queue": [{"on": 0, "it.gpu": 2.0}]})
    rule, rows = plans[0].scores[0], np.array([3, 4, 5])
    rule.column((), world, rows, rows)
    assert sorted(world.asked) == ["it.gpu", "node.gpu.free", "node.pods.free"]
    answers(plans, world, rows=rows)


# ---- how much of it


def test_columns_that_are_kept_take_their_bytes():
    plans, memo = asking(f"score: {HEAVY}; score: {OTHER}; filter: {HEAVY} > 1; score: {HEAVY}")
    world = moving()
    answers(plans, world)
    size = 64 * (8 + 8 + 1)
    assert memo.bytes == size
    answers(plans, world)
    answers(plans, world.after([1]))
    answers(plans, moving())
    assert memo.bytes == size
    answers(plans, moving(8))
    assert memo.bytes == size // 8


@pytest.mark.parametrize(("room", "computed"), [(2 * 512, 2), (2 * 512 - 1, 6)])
def test_what_has_no_room_is_computed_again(room, computed):
    plans, memo = asking(f"score: {HEAVY}; score: {OTHER}", most_bytes=room)
    world = moving()
    for _ in range(3):
        answers(plans, world)
        assert memo.bytes <= room
    assert memo.computed == computed


def test_what_is_kept_of_a_policy_goes_with_it():
    plans, memo = asking(f"score: {HEAVY}")
    answers(plans, moving())
    assert len(memo._kept) == 1
    del plans
    gc.collect()
    assert len(memo._kept) == 0


def test_counting_very_many_pods_again_makes_no_large_array():
    """Large arrays that are made anew cost more than the counting."""
    (plan,), _ = asking("score: count(node.pods where it.gpu > pod.gpu)")
    rule, pod, many = plan.scores[0], subject(gpu=1.0), 8_000
    pods = [{"on": at % 4, "it.gpu": float(at % 3)} for at in range(many)]
    world = Moving([{}] * 4, pods)
    parts, rows = rule.prepare(pod, world), slice(0, 4)
    expected = [sum(at % 4 == row and at % 3 == 2 for at in range(many)) for row in range(4)]
    assert rule.column(parts, world, rows, rows).tolist() == expected
    tracemalloc.start()
    assert rule.column(parts, world, rows, rows).tolist() == expected
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # The condition is a byte a pod; numbers would be eight.
    assert many <= most < 3 * many
