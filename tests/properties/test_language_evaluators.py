"""The plan and the reference agree bit for bit, on full passes and on single rows."""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dsl import reference
from dsl.compiler import Compiler
from dsl.diagnostics import render
from tests.dsl.worlds import FakePod, FakeWorld
from tests.effort import examples

COMPILER = Compiler()
HEADER = """\
metric m1 = promql "a" by node
metric m2 = promql "b" default 3
metric mb = promql "c" unit bytes
metric mc = promql "d" by cluster
metric mn = promql "e" by namespace default 2
metric mp = promql "f" by pod
metric ma = annotation some/load stale 5m
metric rtt = promql "g" by src, dst
param word: string = web
param names: list of string = [web, db]
param factor: number = 2.5
param sizes: list of number = [3, 7]
"""
WORDS = ["web", "db", "a-1", "Web", "", "x.y/z", "7", "2Gi", "30%", "n-12"]
NUMBERS = [0.0, 1.0, -1.0, 2.0, 3.0, 0.1, 0.3, 1e-9, 7.5, 100.0, 2000.0, 2.0**53, 1e300, -1e308]
LITERALS = ["0", "1", "2", "3.5", "100", "0.1", "1e3", "7"]
BYTES_LITERALS = ["0", "2Gi", "100Ki", "1Mi"]
KEYS = ["k", "app", "weird key"]


@st.composite
def plain(draw, depth, its, guard):  # noqa: C901 - one case a shape
    """A plain number."""
    leaves = [
        *LITERALS,
        "$factor",
        "node.gpu.free",
        "node.pods.free",
        "pod.priority",
        "pod.gpu",
        "cluster.nodes",
        "number(node.label[k])",
        "time.hour",
        "number(pod.label[app])",
        "ordinal(node.name)",
        "(node.cpu.free/node.cpu.allocatable)",
        "len(pod.images)",
        "len(node.zone)",
        "hash(node.name, pod.name)",
        "hash(pod.uid)",
        "number(node.cpu.free)",
        "m2",
        "len(node.images)",
        "len(pod.containers)",
        "len(split(node.label[k], '-'))",
        "number(node.label[(pod.label[app])])",
        "number(pod.label[(node.name)])",
        "number(item(split(node.name, '-'), 1))",
        "node.resource[(node.label[k])].free",
        "rank(node.gpu.free)",
        "max(number(it.limit[cpu]) over pod.containers)",
        "count(pod.containers where it.image contains web)",
        "sum(it.priority over node.nominated)",
        "count(queue.pods where it.namespace == pod.namespace)",
        "(node.missing_image_bytes/1Ki)",
        "pod.volumes.count",
        "item($sizes, pod.priority)",
        "item($sizes, node.gpu.free)",
        "mn",
        "(ma ?? 1)",
        "(mc ?? 3)",
        "(mp ?? 4)",
        "(rtt(node.name, pod.name) ?? 5)",
        "(rtt(pod.name, pod.label[app]) ?? 6)",
    ]
    leaves += ["(m1 ?? 4)"] if guard else ["m1", "(metric_age(m1)/1s)"]
    if its:
        leaves += ["it.priority", "it.gpu", "number(it.label[k])", "number(it.node.label[k])"]
        leaves += ["(rtt(node.name, it.name) ?? 7)", "(rtt(it.name, it.node) ?? 7)"]
        leaves += ["number(it.label[(node.name)])", "number(pod.label[(it.name)])"]
    if depth <= 0 or draw(st.booleans()):
        return draw(st.sampled_from(leaves))
    shape = draw(st.integers(0, 13))
    a = draw(plain(depth - 1, its, guard))
    b = draw(plain(depth - 1, its, guard))
    if shape <= 3:
        return f"({a} {'+-*/'[shape]} {b})"
    if shape == 4:
        c = draw(condition(depth - 1, its, guard))
        return f"(if {c} then {a} else {b})"
    if shape == 5:
        return f"({a} ?? {b})"
    if shape == 6:
        name = draw(st.sampled_from(["abs", "floor", "ceil", "round", "sqrt", "log2", "exp"]))
        return f"{name}({a})"
    if shape == 7:
        name = draw(st.sampled_from(["min", "max", "pow", "mod", "sum", "avg", "median"]))
        return f"{name}({a}, {b})"
    if shape == 8:
        return f"clamp({a}, {draw(st.sampled_from(LITERALS))}, {b})"
    if shape == 9:
        return f"{draw(st.integers(0, 150))}% of ({a})"
    if shape == 10:
        return f"-({a})"
    if shape == 13:
        return f"rank({draw(plain(depth - 1, False, guard))} + node.gpu.free)"
    name = draw(st.sampled_from(["min", "max", "sum", "avg", "median"]))
    where = ""
    if shape == 11:
        value = draw(plain(depth - 1, False, guard))
        if draw(st.booleans()):
            where = f" where {draw(condition(depth - 1, False, guard))}"
        if draw(st.integers(0, 3)) == 0:
            return f"count({draw(condition(depth - 1, False, guard))}{where})"
        return f"{name}({value}{draw(st.sampled_from(['', ' over nodes']))}{where})"
    pods = draw(st.sampled_from(["node.pods", "cluster.pods", "zone.pods", 'pods_in("k")']))
    level = depth - 1
    if pods == "node.pods":
        value = draw(plain(level, True, guard))
        where = f" where {draw(condition(level, True, guard))}" if draw(st.booleans()) else ""
    else:
        values = ["it.gpu", "it.priority + pod.priority", "it.priority/7"]
        values += ["(rtt(it.label[app], node.name) ?? 2)", "(rtt(it.name, node.zone) ?? 3)"]
        values += [] if guard else ["rtt(node.name, it.name)", "rtt(node.label[k], it.node)"]
        value = draw(st.sampled_from(values))
        where = draw(
            st.sampled_from(
                [
                    "",
                    " where it.name contains web",
                    " where it.namespace == pod.namespace",
                    " where it.node.label[k] is web",
                    " where it.node.name == pod.label[app]",
                    " where it.label[(pod.label[app])] is present",
                ]
            )
        )
    if draw(st.integers(0, 3)) == 0:
        return f"count({pods}{where})"
    return f"{name}({value} over {pods}{where})"


@st.composite
def text(draw, depth, its):
    leaves = [
        "node.name",
        "node.zone",
        "node.label[k]",
        "node.label['weird key']",
        "pod.name",
        "pod.label[app]",
        "pod.namespace",
        "'web'",
        "$word",
        "lower(time.weekday)",
        "node.label[(pod.label[app])]",
        "node.label[(node.zone)]",
        "pod.label[(node.zone)]",
        "pod.label[(pod.name)]",
        "item(split(pod.label[app], '-'), 0)",
        "item(split(node.name, '-'), pod.gpu)",
        "item($names, node.gpu.free)",
        "item(pod.images, 0)",
    ]
    if its:
        leaves += ["it.name", "it.label[app]", "it.node.zone", "it.label[(it.name)]"]
        leaves += ["it.label[(pod.name)]", "node.label[(it.name)]"]
    if depth <= 0 or draw(st.booleans()):
        return draw(st.sampled_from(leaves))
    a = draw(text(depth - 1, its))
    b = draw(text(depth - 1, its))
    shape = draw(st.integers(0, 6))
    if shape == 0:
        return f"({a} ?? {b})"
    if shape == 1:
        return f"(if {draw(condition(depth - 1, its, True))} then {a} else {b})"
    if shape == 2:
        return f"{draw(st.sampled_from(['lower', 'upper']))}({a})"
    if shape == 3:
        return f"{draw(st.sampled_from(['before', 'after']))}({a}, {b})"
    if shape == 4:
        return f"before({a}, '-')"
    if shape == 5:
        return f"join({a}, '-', {b})"
    return f"string({draw(plain(0, its, True))})"


@st.composite
def condition(draw, depth, its, guard):  # noqa: C901 - one case a shape
    shape = draw(st.integers(0, 16))
    word = draw(st.sampled_from(["web", "db", "'a-1'", "$word", "x"]))
    if depth <= 0:
        leaves = [
            "node.label k",
            "node.label k=web",
            "node.label k!=web",
            "node.label k in [web, db]",
            "node.label k not in $names",
            "node.label k>2",
            "node.ready",
            "node.taint t",
            "node.taint t=1",
            "pod.label app=web",
            "pod.qos is BestEffort",
            "true",
            "time.hour in 22..6",
            "pod.images contains web",
            "node.images contains web",
            "pod.name in node.images",
            "node.name not in node.images",
            "pod.name in pod.images",
            "node.zone in split('web,db', ',')",
            "pod.name in split(node.label[k], '/')",
            "node.zone in split(pod.label[app], '-')",
            "node.taint[(pod.label[app])]",
            "node.eligible",
            "any(it.limit[memory] > 1Ki over pod.containers)",
            "all(pod.containers where it.name is web)",
            "node.gpu.free in 0..3",
        ]
        if its:
            leaves += ["it.label app=web", "it.terminating", "it.qos is Guaranteed"]
            leaves += ["it.name in node.images", "it.name in split(node.label[k], '-')"]
            leaves += ["it.node.ready", "it.ready", "it.bound"]
        return draw(st.sampled_from(leaves))
    d = depth - 1
    if shape <= 2:
        sign = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]))
        return f"{draw(plain(d, its, guard))} {sign} {draw(plain(d, its, guard))}"
    if shape == 3:
        sign = draw(st.sampled_from(["==", "!="]))
        return f"{draw(text(d, its))} {sign} {draw(text(d, its))}"
    if shape == 4:
        name = draw(st.sampled_from(["contains", "starts with", "ends with", "is", "is not"]))
        return f"{draw(text(d, its))} {name} {word}"
    if shape == 5:
        name = draw(st.sampled_from(["contains", "starts with", "is"]))
        return f"{draw(text(d, its))} {name} ({draw(text(d, its))})"
    if shape == 6:
        return f"{draw(text(d, its))} {draw(st.sampled_from(['in', 'not in']))} [web, db, a-1]"
    if shape == 7:
        return f"{draw(text(d, its))} in [web, ({draw(text(d, its))})]"
    if shape == 8:
        return f"{draw(plain(d, its, guard))} in [0, 1, 2.5]"
    if shape == 9:
        value = draw(st.one_of(plain(d, its, guard), text(d, its)))
        return f"{value} is {draw(st.sampled_from(['missing', 'present']))}"
    if shape == 10:
        return f"{draw(text(d, its))} like {draw(st.sampled_from(['w*', '*', 'a-?', '*b*']))}"
    if shape == 11:
        pattern = draw(st.sampled_from(["w.*", "[a-z]+-[0-9]", ".", "(web|db)"]))
        return f"{draw(text(d, its))} matches '{pattern}'"
    if shape == 12:
        join = draw(st.sampled_from(["and", "or"]))
        return f"({draw(condition(d, its, guard))} {join} {draw(condition(d, its, guard))})"
    if shape == 13:
        return f"not ({draw(condition(d, its, guard))})"
    if shape == 14:
        name = draw(st.sampled_from(["any", "all", "0 < count"]))
        pods = "node.pods"
        return f"{name}({pods} where {draw(condition(d, True, guard))})"
    if shape == 15:
        name = draw(st.sampled_from(["any", "all"]))
        return f"{name}({draw(condition(d, False, guard))})"
    return f"({draw(condition(d, its, guard))}) == ({draw(condition(d, its, guard))})"


@st.composite
def sized(draw):
    """A comparison with units."""
    memory = draw(
        st.sampled_from(
            [
                "node.memory.free",
                "pod.memory",
                "(mb ?? 1Mi)",
                "sum(it.memory over node.pods)",
                "2 * node.memory.free",
                "node.memory.free + pod.memory",
            ]
        )
    )
    cpu = draw(
        st.sampled_from(
            [
                "node.cpu.free",
                "pod.cpu",
                "node.cpu.free - pod.cpu",
                "80% of node.cpu.allocatable",
                "node.cpu.requested + 200m",
            ]
        )
    )
    return draw(
        st.sampled_from(
            [
                f"{memory} >= {draw(st.sampled_from(BYTES_LITERALS))}",
                f"{cpu} < 500m",
                f"{cpu} <= 2",
                f"{cpu} in 1..4",
                "now - node.created < 5m",
                "now - node.created >= 1h30m",
                f"{cpu} == 1.001",
            ]
        )
    )


value = st.one_of(st.none(), st.sampled_from(NUMBERS))
whole = st.one_of(st.none(), st.integers(0, 8000).map(float))
word = st.one_of(st.none(), st.sampled_from(WORDS))


def _clean(fields):
    return {name: one for name, one in fields.items() if one is not None}


node = st.fixed_dictionaries(
    {
        "node.name": st.sampled_from(["n-1", "web-2", "db"]),
        "node.zone": word,
        "node.label[k]": word,
        "node.label[weird key]": word,
        "node.gpu.free": whole,
        "node.pods.free": whole,
        "node.cpu.free": whole,
        "node.cpu.allocatable": whole,
        "node.cpu.requested": whole,
        "node.memory.free": whole,
        "node.ready": st.booleans(),
        "node.taint[t]": st.booleans(),
        "node.taint[t=1]": st.booleans(),
        "node.taint[web]": st.booleans(),
        "node.label[web]": word,
        "node.label[7]": word,
        "node.resource.free[7]": whole,
        "node.resource.free[cpu]": whole,
        "node.images": st.lists(st.sampled_from(WORDS), max_size=3).map(tuple),
        "node.created": st.one_of(st.none(), st.sampled_from([1_740_823_100.0, 1_740_800_000.0])),
        "metrics": st.fixed_dictionaries({"m1": value, "m2": value, "mb": value, "ma": value}).map(
            _clean
        ),
        "ages": st.fixed_dictionaries({"m1": value}).map(_clean),
    }
).map(_clean)
running = st.fixed_dictionaries(
    {
        "it.name": st.sampled_from(WORDS),
        "it.namespace": st.sampled_from(["prod", "dev"]),
        "it.label[app]": word,
        "it.label[k]": word,
        "it.priority": st.sampled_from(NUMBERS),
        "it.gpu": st.sampled_from([0.0, 1.0, 2.0, 0.1]),
        "it.memory": st.sampled_from([0.0, 2048.0]),
        "it.terminating": st.booleans(),
        "it.qos": st.sampled_from(["Guaranteed", "BestEffort"]),
        "it.ready": st.booleans(),
        "it.bound": st.booleans(),
        "it.label[web]": word,
        "it.node": word,
        "metrics": st.fixed_dictionaries({"mp": value}).map(_clean),
    }
).map(_clean)
container = st.fixed_dictionaries(
    {
        "name": st.sampled_from(WORDS),
        "image": word,
        "limit[cpu]": whole,
        "limit[memory]": whole,
    }
).map(_clean)
subject = st.fixed_dictionaries(
    {
        "pod.name": st.sampled_from(WORDS),
        "pod.namespace": st.sampled_from(["prod", "dev"]),
        "pod.uid": st.sampled_from(["u1", "u2"]),
        "pod.label[app]": word,
        "pod.priority": st.sampled_from(NUMBERS),
        "pod.gpu": st.sampled_from([0.0, 1.0]),
        "pod.cpu": st.sampled_from([0.0, 100.0, 2000.0]),
        "pod.memory": st.sampled_from([0.0, 2.0**30]),
        "pod.qos": st.sampled_from(["Guaranteed", "BestEffort"]),
        "pod.images": st.lists(st.sampled_from(WORDS), max_size=2).map(tuple),
        "pod.containers": st.lists(container, max_size=3),
        "pod.volumes.count": st.sampled_from([0.0, 2.0]),
        "pod.label[web]": word,
        "pod.label[n-1]": word,
        "metrics": st.fixed_dictionaries({"mp": value, "mn": value}).map(_clean),
        "pod.node_selector[k]": word,
    }
).map(_clean)


@st.composite
def worlds(draw):
    nodes = draw(st.lists(st.one_of(node, node, node, st.none()), min_size=1, max_size=5))
    pods = draw(st.lists(running, max_size=6))
    rows = [row for row, one in enumerate(nodes) if one is not None]
    places = [-1, *rows]
    pods = [{**pod, "on": draw(st.sampled_from(places))} for pod in pods]
    cycle = {
        "cluster.nodes": float(len(rows)),
        "time.hour": draw(st.sampled_from([0.0, 6.0, 14.0, 22.0])),
        "time.weekday": "sat",
    }
    tables = {
        "queue": [{**pod, "on": 0} for pod in draw(st.lists(running, max_size=3))],
        "nominated": [
            {**pod, "on": draw(st.sampled_from(places))}
            for pod in draw(st.lists(running, max_size=3))
        ],
    }
    ends = st.sampled_from(WORDS)
    given = {
        "mc": draw(st.sampled_from(NUMBERS)),
        "rtt": draw(st.dictionaries(st.tuples(ends, ends), st.sampled_from(NUMBERS), max_size=6)),
    }
    return FakeWorld(nodes, pods, cycle=cycle, tables=tables, given=given)


def same(left, right):
    if isinstance(left, float) and math.isnan(left):
        return isinstance(right, float) and math.isnan(right)
    return left == right


def compiled(text):
    result = COMPILER.compile({"a.policy": text})
    assert result.ok, render(result.diagnostics)
    return result.plans[0]


def check_filter(plan, world, pod):
    rule = plan.filters[0]
    full = slice(0, world.nodes)
    parts = rule.prepare(pod, world)
    rows = np.flatnonzero(world.present)
    expected = [reference.passes(rule.core, world, pod, row) for row in rows.tolist()]
    if parts is None:
        assert all(expected)
        return
    hash(parts)
    column = rule.verdict(parts, world, full)
    assert column.dtype == np.bool_
    assert column.shape == (world.nodes,)
    assert column[rows].tolist() == expected
    assert rule.verdict(parts, world, rows).tolist() == expected
    for row, passed in zip(rows.tolist(), expected, strict=True):
        assert rule.verdict(parts, world, np.array([row])).tolist() == [passed]
        if not passed:
            assert rule.message(pod, world, row)


def check_score(plan, world, pod, candidates):
    rule = plan.scores[0]
    parts = rule.prepare(pod, world)
    expected = reference.scores(rule.core, world, pod, candidates.tolist())
    if parts is None:
        assert expected is None
        return
    raw = rule.column(parts, world, candidates, candidates)
    assert raw.dtype == np.float64
    for row, one in zip(candidates.tolist(), raw.tolist(), strict=True):
        view = reference.View(world, pod, row, tuple(candidates.tolist()))
        assert same(one, float(reference.evaluate(rule.core.value, view)))
        single = rule.column(parts, world, np.array([row]), candidates)
        assert same(single.tolist()[0], one)
    full = rule.column(parts, world, slice(0, world.nodes), candidates)
    assert all(same(a, b) for a, b in zip(full[candidates].tolist(), raw.tolist(), strict=True))
    finished = rule.finish(raw)
    assert (None if finished is None else finished.tolist()) == expected
    if finished is not None:
        assert ((finished >= 0) & (finished <= 100)).all()
    total = plan.score([parts], world, candidates)
    whole = reference.policy_score([(rule.weight, expected)])
    assert (None if total is None else total.tolist()) == whole


SETTINGS = settings(
    deadline=None,
    max_examples=examples(40),
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


@SETTINGS
@given(st.one_of(condition(3, False, True), sized()), worlds(), subject, st.booleans())
def test_filters_agree(test, world, pod, forbid):
    plan = compiled(HEADER + f"{'forbid' if forbid else 'filter'}: {test}\n")
    check_filter(plan, world.knows(plan), FakePod.of(pod).knows(plan))


@SETTINGS
@given(condition(2, False, True), condition(2, False, True), worlds(), subject)
def test_filters_with_a_left_side_agree(left, right, world, pod):
    plan = compiled(HEADER + f"filter: {left} and pod.priority < 50 -> {right}\n")
    check_filter(plan, world.knows(plan), FakePod.of(pod).knows(plan))


NORMS = [
    "",
    "normalize minmax",
    "normalize default",
    "normalize rank",
    "normalize reverse",
    "normalize minmax reverse",
    "normalize none reverse",
    "missing 40",
    "normalize rank reverse missing 7",
]


@SETTINGS
@given(plain(3, False, False), worlds(), subject, st.sampled_from(NORMS), st.data())
def test_scores_agree(test, world, pod, norm, data):
    plan = compiled(HEADER + f"score: {test} {norm}\n")
    rows = np.flatnonzero(world.present).tolist()
    chosen = data.draw(st.lists(st.sampled_from(rows), unique=True)) if rows else []
    check_score(plan, world.knows(plan), FakePod.of(pod).knows(plan), np.array(chosen, np.intp))


@SETTINGS
@given(plain(2, False, False), condition(2, False, False), worlds(), subject)
def test_lets_agree(number, test, world, pod):
    text = f"let a = {number}\nlet b = {test}\nlet c = if b then a + a else a\nscore: c - a * 2\n"
    plan = compiled(HEADER + text)
    rows = np.flatnonzero(world.present)
    check_score(plan, world.knows(plan), FakePod.of(pod).knows(plan), rows)


@pytest.mark.slow
@settings(SETTINGS, max_examples=3000)
@given(plain(4, False, False), worlds(), subject, st.sampled_from(NORMS))
def test_scores_agree_long(test, world, pod, norm):
    plan = compiled(HEADER + f"score: {test} {norm}\n")
    check_score(plan, world.knows(plan), FakePod.of(pod).knows(plan), np.flatnonzero(world.present))


@pytest.mark.slow
@settings(SETTINGS, max_examples=3000)
@given(st.one_of(condition(4, False, True), sized()), worlds(), subject)
def test_filters_agree_long(test, world, pod):
    plan = compiled(HEADER + f"filter: {test}\n")
    check_filter(plan, world.knows(plan), FakePod.of(pod).knows(plan))
