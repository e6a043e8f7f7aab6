"""When the clock alone changes what a rule says."""

import math

import pytest

from tests.dsl.bothways import plan_of
from tests.dsl.worlds import FakePod, FakeWorld

NOW = 1_740_823_200.0
NODES = [
    {
        "node.name": "a", "node.created": NOW - 100.0, "node.gpu.free": 1.0,
        "node.label[until]": "2025-03-01T10:02:00Z",
    },
    None,
    {"node.name": "b", "node.created": NOW - 40.0, "node.gpu.free": 0.0},
]  # fmt: skip
PODS = [
    {"on": 0, "it.scheduled_at": NOW - 10.0, "it.cpu": 1.0},
    {"on": 2, "it.scheduled_at": NOW - 50.0, "it.cpu": 2.0},
]
POD = {"pod.name": "p", "pod.created": NOW - 20.0, "pod.priority": 3.0, "pod.label[x]": "1"}


def rule_of(text):
    plan = plan_of(text)
    rules = (*plan.gates, *plan.prefilters, *plan.filters, *plan.reserves, *plan.permits)
    assert len(rules) == 1
    return plan, rules[0]


def turns(text):
    plan, rule = rule_of(text)
    world = FakeWorld(NODES, PODS, now=NOW)
    world.knows(plan)
    assert rule.turns is not None
    return rule.turns(FakePod.of(POD), world)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("gate: now - pod.created >= 90s", 70.0),
        ("gate: now - pod.created < 90s", 70.0),
        ("gate: 90s > now - pod.created", 70.0),
        ("gate: pod.created + 90s <= now", 70.0),
        ("gate: pod.created - now < -90s", 70.0),
        ("gate: -(now - pod.created) < -90s", 70.0),
        ("gate: (now - pod.created)*2 > 90s", 25.0),
        ("gate: (now - pod.created)/2 > 90s", 160.0),
        ("gate: now > time('2025-03-01T10:00:30Z')", 30.0),
        ("gate: now - (pod.queued_at ?? pod.created) > 30s", 10.0),
        ("gate: 30s + now > time('2025-03-01T10:00:45Z')", 15.0),
        ("gate: 90s - (now - pod.created) < 30s", 40.0),
        ("gate: ((now - pod.queued_at) ?? (now - pod.created)) > 30s", 10.0),
        ("gate: (if pod.priority > 2 then now - pod.created else now - pod.queued_at) > 30s", 10.0),
        ("gate: now - pod.created in 30..60", 10.0),
        ("gate: now - pod.created in 5..60", 40.0),
        ("gate: now - pod.created > 20s", 0.0),
        ("let age = now - pod.created\ngate: age > 30s and not age > 25s", 5.0),
        ("gate: now - pod.created > 30s -> pod.priority > 5", 10.0),
        ("gate: if now - pod.created > 30s then pod.priority > 2 else pod.priority > 5", 10.0),
        ("gate: now - (if pod.priority > 2 then pod.created else pod.queued_at) > 25s", 5.0),
        # What has turned already, or has no value, will not turn.
        ("gate: now - pod.created > 5s", math.inf),
        ("gate: now - pod.queued_at > 5s", math.inf),
        # The clock is on both sides, or is only asked whether it is there.
        ("gate: now - pod.created > (now - pod.queued_at)", math.inf),
        ("gate: now - pod.queued_at is missing", math.inf),
        ("prefilter: count(nodes where now - node.created > 60s) > 1", 20.0),
        ("prefilter: any(cluster.pods where now - it.scheduled_at > 30s)", 20.0),
        ("prefilter: any(cluster.pods where now - it.scheduled_at > 90s)", 40.0),
        ("prefilter: any(cluster.pods where now - it.scheduled_at > 10.5s)", 0.5),
        ("filter: now - node.created > 60s", 20.0),
        ("filter: now - node.created > 60s -> node.name is a", 20.0),
        # On the other node there is no end: that is no noise, which would be an error here.
        ("filter: now - node.created > 120s / node.gpu.free", 20.0),
        ("forbid: pod.label x=1 -> now < time(node.label[until])", 120.0),
        ("filter: now > time(node.label[until]) - 30s or now - node.created > 300s", 90.0),
        ("filter: count(node.pods where now - it.scheduled_at < 60s) < 3", 10.0),
        ("filter: sum(it.cpu over node.pods where now - it.scheduled_at > 60s) < 3", 10.0),
        ("filter: sum(if now - it.scheduled_at > 60s then it.cpu else 1 over node.pods) < 3", 10.0),
        ("filter: now - max(it.scheduled_at over node.pods) > 25s", 15.0),
        ("reserve: now - node.created > 45s", 5.0),
        ("permit: now - node.created < 110s -> allow", 10.0),
        ("permit: pod.priority > 1 -> wait 10m until now - pod.created > 21s", 1.0),
    ],
)
def test_the_seconds_until_a_comparison_turns(text, seconds):
    assert turns(text) == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        "filter: round((now - node.created)/60s) > 5",
        "filter: max(now - node.created) > 60s",
        "filter: abs(now - node.created - 90s) < 5s",
        "filter: (now - node.created)*number(node.label[f]) > 60s",
        "filter: (if node.ready then now - node.created else 60s) > 90s",
        "filter: number(node.label[f])*(now - node.created) > 60s",
        "filter: sum(now - it.scheduled_at over node.pods) > 60s",
        "gate: now == time('2025-03-01T10:00:30Z')",
        "gate: ((now - pod.queued_at) ?? 10s) > 30s",
        "gate: string((now - pod.created)/60s) starts with '2'",
        # No clock, or one of whole minutes.
        "filter: node.cpu.free > 3",
        "filter: time.hour > 3",
    ],
)
def test_it_cannot_be_told_of_what_moves_in_another_way(text):
    assert rule_of(text)[1].turns is None


def test_what_many_lets_share_is_looked_at_once():
    lines = ["let x0 = now - pod.created > 30s"]
    lines += [f"let x{at + 1} = x{at} and x{at}" for at in range(60)]
    assert turns("\n".join([*lines, "gate: x60"])) == pytest.approx(10.0)
