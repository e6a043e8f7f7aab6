"""What plans answer at every extension point, on columns and on the reference."""

import re
from pathlib import Path

import numpy as np
import pytest

from dsl import reference
from dsl.compiler import Compiler
from dsl.diagnostics import render
from tests.dsl.bothways import policy_score
from tests.dsl.worlds import FakePod, FakeWorld

COMPILER = Compiler()
NODES = [
    {"node.name": "a", "node.zone": "z1", "node.label[tier]": "gold", "node.eligible": True},
    {"node.name": "b", "node.zone": "z1", "node.eligible": True},
    {"node.name": "c", "node.zone": "z2", "node.eligible": True},
    {"node.name": "d", "node.eligible": True},
]


def plan_of(text):
    result = COMPILER.compile({"p.policy": text})
    assert result.ok, render(result.diagnostics)
    return result.plans[0]


def codes(text):
    found = COMPILER.compile({"p.policy": text}).diagnostics
    return [one.code for one in found if one.is_error]


def pod(**fields):
    base = {"pod.name": "p", "pod.namespace": "default", "pod.uid": "u"}
    return FakePod.of({**base, **{f"pod.{name}": value for name, value in fields.items()}})


def running(on, **fields):
    named = {f"it.{name}": value for name, value in fields.items()}
    return {"on": on, "it.namespace": "default", **named}


def scores(plan, world, subject):
    rows = np.arange(world.nodes)
    parts = [rule.prepare(subject, world) for rule in plan.scores]
    column = plan.score(parts, world, rows)
    naive = [
        (rule.weight, reference.scores(rule.core, world, subject, rows.tolist()))
        for rule in plan.scores
    ]
    expected = policy_score(naive)
    got = None if column is None else column.tolist()
    assert got == expected
    return got


def passing(plan, world, subject):
    rows = np.arange(world.nodes)
    passed = np.ones(world.nodes, np.bool_)
    for rule in plan.filters:
        parts = rule.prepare(subject, world)
        if parts is not None:
            passed &= rule.verdict(parts, world, rows)
        naive = [reference.passes(rule.core, world, subject, row) for row in rows.tolist()]
        assert parts is None or rule.verdict(parts, world, rows).tolist() == naive
    return [NODES[row]["node.name"] for row in np.flatnonzero(passed)]


# ---- scores


PEERS = [
    running(0, workload="web", name="w1"),
    running(0, workload="web", name="w2"),
    running(1, workload="web", name="w3", terminating=True),
    running(2, workload="web", name="w4"),
    running(2, workload="other", name="x"),
    running(1, workload="web", name="far", namespace="elsewhere"),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("spread: over node", [0, 100, 50, 100]),
        ("spread: over zone", [0, 0, 50, 0]),
        ("spread: over zone skew 2", [0, 0, 100, 0]),
        ("score: peers(zone) normalize default reverse", [0, 0, 50, 0]),
        ('spread: over "tier"', [0, 0, 0, 0]),
        ("spread: over node peers by pod.namespace", [0, 100, 0, 100]),
    ],
)
def test_spread(text, expected):
    world = FakeWorld(NODES, PEERS)
    assert scores(plan_of(text), world, pod(workload="web")) == expected


def test_peers_of_a_pod_without_workload_are_none():
    plan = plan_of("require: peers(node) < 1")
    assert passing(plan, FakeWorld(NODES, PEERS), pod()) == ["a", "b", "c", "d"]
    assert passing(plan, FakeWorld(NODES, PEERS), pod(workload="web")) == ["b", "d"]


def test_a_hard_spread_is_a_filter():
    plan = plan_of("spread: over zone hard")
    world = FakeWorld(NODES, PEERS)
    assert passing(plan, world, pod(workload="web")) == ["c"]
    assert passing(plan_of("spread: over zone skew 2 hard"), world, pod(workload="web")) == [
        "a",
        "b",
        "c",
    ]


def test_prescore_holds_for_all_scores_of_the_file():
    plan = plan_of("prescore: pod.label a=b\nprescore: pod.label c=d\nscore: 5\nspread: over node")
    world = FakeWorld(NODES, PEERS)
    assert scores(plan, world, pod(**{"label[a]": "b"})) is None
    assert scores(plan, world, pod(**{"label[a]": "b", "label[c]": "d"})) is not None


def test_tiers_are_lexicographic():
    plan = plan_of(
        "first: node.zone is z1\nfirst: pod.label p=q -> node.name is c\nfirst: node.label tier"
    )
    world, rows = FakeWorld(NODES), np.arange(4)
    assert plan.preferred(pod(), world, rows).tolist() == [True, False, False, False]
    rest = np.array([1, 2, 3])
    assert plan.preferred(pod(), world, rest).tolist() == [True, False, False]
    for rule in plan.tiers:
        parts = rule.prepare(pod(), world)
        naive = reference.prefers(rule.core, world, pod(), rows.tolist())
        assert (parts is None) == (naive is None)
        assert parts is None or rule.mask(parts, world, rows).tolist() == naive


# ---- before the nodes


def test_gate():
    plan = plan_of('applies to: pod.namespace is default\ngate: pod.label a -> pod.label b=c'
                   ' message "{pod.name} waits"')  # fmt: skip
    world = FakeWorld([])
    assert plan.gated(pod(), world) is None
    assert plan.gated(pod(**{"label[a]": "x"}), world).message == "p waits"
    assert plan.gated(pod(**{"label[a]": "x", "label[b]": "c"}), world) is None
    assert plan.gated(pod(namespace="other", **{"label[a]": "x"}), world) is None


def test_prefilter_aggregates_over_nodes_and_pods():
    plan = plan_of(
        "prefilter: sum(it.gpu over cluster.pods where it.label team=ml) + pod.gpu <= 3\n"
        'prefilter: max(node.cpu.free over nodes) >= pod.cpu message "{pod.cpu}"\n'
    )
    nodes = [{**one, "node.cpu.free": 1000.0 * row} for row, one in enumerate(NODES)]
    world = FakeWorld(nodes, [running(0, gpu=2.0, **{"label[team]": "ml"}), running(1, gpu=9.0)])
    for gpu, cpu, stopped in ((1, 3000, None), (2, 0, "p.policy#1"), (0, 4000, "p.policy#2")):
        subject = pod(gpu=float(gpu), cpu=float(cpu))
        stop = plan.stopped(subject, world)
        assert (None if stop is None else stop.rule.id) == stopped
        naive = [reference.passes(rule.core, world, subject, -1) for rule in plan.prefilters]
        assert all(naive) == (stop is None)
    assert plan.stopped(pod(cpu=4000.0), world).message == "4"


def test_sort_puts_missing_values_last_and_breaks_ties():
    plan = plan_of("sort: pod.priority desc, pod.label[t] [b, a], pod.annotation[x] desc")
    pods = {
        "first": pod(uid="1", priority=9.0),
        "listed-b": pod(uid="2", **{"label[t]": "b"}),
        "listed-a-long": pod(uid="3", **{"label[t]": "a", "annotation[x]": "mm"}),
        "listed-a-short": pod(uid="4", **{"label[t]": "a", "annotation[x]": "m"}),
        "unlisted": pod(uid="5", **{"label[t]": "zz"}),
        "early": pod(uid="7", queued_at=1.0),
        "late": pod(uid="6", queued_at=2.0),
        "by-uid": pod(uid="8", queued_at=2.0),
        "none": pod(uid="0"),
    }
    world = FakeWorld([])
    keys = {name: plan.sort_key(one, world) for name, one in pods.items()}
    assert sorted(pods, key=keys.__getitem__) == list(pods)
    for name, one in pods.items():
        assert keys[name] == reference.sort_key(plan.sorts[0].core, world, one)


# ---- on the chosen node


def test_reserve_looks_at_one_node():
    plan = plan_of('reserve: pod.gpu > 0 -> node.gpu.free >= 0 message "{node.name} is full"')
    world = FakeWorld([{**NODES[0], "node.gpu.free": -1.0}, {**NODES[1], "node.gpu.free": 0.0}])
    assert plan.reserved(pod(gpu=1.0), world, 0).message == "a is full"
    assert plan.reserved(pod(gpu=1.0), world, 1) is None
    assert plan.reserved(pod(gpu=0.0), world, 0) is None


def test_permit_is_decided_by_the_first_that_applies():
    plan = plan_of(
        "permit: pod.namespace is kube-system -> allow\n"
        'permit: node.label tier -> reject message "not {node.name}"\n'
        'permit: node.zone is z1 -> wait 1m until node.cpu.free > 1 message "busy"\n'
        "permit: wait 5s until node.cpu.free > 1, then allow\n"
    )
    free = [{**one, "node.cpu.free": 0.0} for one in NODES]
    world = FakeWorld(free)
    verdict = plan.permitted
    assert verdict(pod(namespace="kube-system"), world, 0).verdict == "allow"
    assert (verdict(pod(), world, 0).verdict, verdict(pod(), world, 0).message) == (
        "reject",
        "not a",
    )
    assert [verdict(pod(), world, 1, waited).verdict for waited in (0.0, 59.9, 60.0)] == [
        "wait",
        "wait",
        "reject",
    ]
    assert [verdict(pod(), world, 2, waited).verdict for waited in (0.0, 5.0)] == ["wait", "allow"]
    room = FakeWorld([{**one, "node.cpu.free": 2000.0} for one in NODES])
    assert verdict(pod(), room, 1).verdict == "allow"


def test_actions():
    plan = plan_of(
        "prebind: node.zone is present -> annotate example.com/score = score.total,"
        " annotate example.com/zone = node.zone, annotate example.com/no = node.label[none]\n"
        'postbind: event "{pod.name} on {node.name}: {score.total}"\n'
        "postbind: annotate example.com/zone = pod.name\n"
    )
    world, results = FakeWorld(NODES), {"score.total": 93.5}
    effects = plan.prebind(pod(), world, 0, results)
    assert [(one.key, one.text) for one in effects] == [
        ("example.com/score", "93.5"),
        ("example.com/zone", "z1"),
    ]
    assert plan.prebind(pod(), world, 3, results) == ()
    assert plan.postbind(pod(), world, 3, results)[0].text == "p on d: 93.5"
    assert plan.annotations(pod(), world, 0, results)["example.com/zone"] == "p"


def test_the_first_binder_that_applies():
    plan = plan_of("bind: pod.label virtual=yes -> with other\nbind: dry run")
    assert plan.binder(pod(**{"label[virtual]": "yes"}), FakeWorld([])).core.name == "other"
    assert plan.binder(pod(), FakeWorld([])).core.kind == "dry"
    assert plan_of("score: 1").binder(pod(), FakeWorld([])) is None


# ---- refused


def test_two_sorts_of_two_files():
    files = {"a.policy": "sort: pod.name", "b.policy": "sort: pod.uid"}
    assert [one.code for one in COMPILER.compile(files).diagnostics] == ["P501"]
    assert COMPILER.compile({**files, "b.policy": "mode: off\nsort: pod.uid"}).ok


def examples():
    text = (Path(__file__).parent / "data" / "examples.txt").read_text(encoding="utf-8")
    parts = re.split(r"^=== (.*)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("name", examples())
def test_every_example_is_checked_without_errors(name):
    # P107: the policies that it uses are not there.
    assert set(codes(examples()[name])) <= {"P107"}
