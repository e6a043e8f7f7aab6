"""Rules asked of the columns and of the reference at once; a cluster of four nodes to ask about."""

import math
from functools import lru_cache

import numpy as np

from dsl import reference
from dsl.diagnostics import render
from dsl.plan import Effect
from dsl.reasons import filled
from dsl.types import is_missing, show
from engine.policy.findings import new_compiler
from tests.dsl import oracle
from tests.dsl.worlds import FakePod

COMPILER = new_compiler()
POD = {"pod.name": "p", "pod.namespace": "default", "pod.uid": "u"}


@lru_cache(maxsize=16)
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
    expected = [oracle.passes(rule.core, world, pod, row) for row in rows.tolist()]
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
    of_none = rule.verdict(parts, world, rows[:0])
    assert of_none.dtype == np.bool_
    assert of_none.shape == (0,)
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
    of_none = rule.column(parts, world, rows[:0], rows)
    assert of_none.dtype == np.float64
    assert of_none.shape == (0,)
    finished = rule.finish(column)
    assert (None if finished is None else finished.tolist()) == oracle.scores(
        rule.core, world, pod, list(chosen)
    )
    return expected


HEADER = """\
metric mp = promql "f" by pod
metric m = promql "a" by node
metric rtt = promql "g" by src, dst
param words: list of string = [web, db]
param sizes: list of number = [5, 6, 7]
param one: list of string = [web]
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

SET_PAIRS = {
    ("web", "n0"): 2.0, ("web", "web"): 3.0, ("b", "b"): 0.5, ("b", "web"): 4.0, ("web", "b"): 1.5,
}  # fmt: skip

WITH_PAIRS = {**SET_PAIRS, ("web", "web-b"): 3.0, ("web", "web"): 3.0}


# ---- every form of an aggregate

NUMBERS = ("sum", "avg", "min", "max", "median", "distinct")


def forms(over, value, flag, where):
    for name in NUMBERS:
        yield f"{name}({value} over {over})"
        yield f"{name}({value} over {over} where {where})"
    yield f"count({over})"
    yield f"count({over} where {where})"
    yield f"count({flag} over {over})"
    yield f"count({flag} over {over} where {where})"
    for name in ("any", "all"):
        yield f"if {name}({over} where {where}) then 1 else 0"
        yield f"if {name}({flag} over {over}) then 1 else 0"
        yield f"if {name}({flag} over {over} where {where}) then 1 else 0"


TABLES = {
    "queue": [{"on": 0, "it.priority": 9.0, "it.ready": True}, {"on": 1, "it.priority": 1.0}],
    "nominated": [{"on": 1, "it.priority": 4.0, "it.ready": True}, {"on": 1, "it.priority": 1.0}],
}
BUSY = [{"on": 0, "it.priority": 8.0}]
#: All pods are on nodes; one row of pods and one of nodes are not in use.
REGIONS = [
    {**HOSTS[0], "node.region": "r"},
    None,
    {**HOSTS[1], "node.region": "r"},
    {**HOSTS[2], "node.region": "s"},
    HOSTS[3],
]
LIVES = [{"on": -1, "it.priority": 50.0}, *({**one, "on": (0, 2, 3)[one["on"]]} for one in SET)]
LIVES.append({"on": 4, "it.priority": 6.0})


def policy_score(parts):
    """Returns the weighted mean of the rules that did not abstain."""
    there = [(weight, one) for weight, one in parts if one is not None and weight > 0]
    if not there:
        return None
    if len(there) == 1:
        return there[0][1]
    weights = 0.0
    totals = [0.0] * len(there[0][1])
    for weight, column in there:
        totals = [a + b * weight for a, b in zip(totals, column, strict=True)]
        weights += weight
    return [oracle.round_score(one / weights) for one in totals]


# ---- what only tests ask of the reference


def sort_key(core, world, subject):
    """Returns the place of a pod in the queue; then comes who waits longer, then the UID."""
    queued_at = subject.number("pod.queued_at", None)
    last = (queued_at != queued_at, 0.0 if queued_at != queued_at else queued_at)
    own = oracle.order_key(core.keys, reference.View(world, subject, -1))
    return (*own, last, subject.text("pod.uid", None) or "")


def prefers(core, world, subject, candidates):
    """Returns which candidates a `first:` prefers; None where it does not apply."""
    if not oracle.applies(core.guard, world, subject):
        return None
    rows = tuple(candidates)
    return [
        bool(reference.evaluate(core.test, reference.View(world, subject, row, rows)))
        for row in rows
    ]


def effects(core, view):
    """Returns what actions come to; what has no value is not set."""
    if not oracle.at_node(core.guard, core.left, view):
        return ()
    out = []
    for one in core.actions:
        if one.text is not None:
            out.append(Effect(one.kind, one.key, filled(one.text, reference.asked(view))))
        elif one.value is not None:
            value = reference.evaluate(one.value, view)
            if not is_missing(value):
                out.append(Effect(one.kind, one.key, show(value, one.value.type)))
    return tuple(out)
