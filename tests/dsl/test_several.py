"""What `preempt:`, `gang:` and `quota:` mean on one snapshot, by columns and by the reference."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsl import several as rules
from dsl.collective import Limits, QuotaUse, pool_of
from engine.collective import quotas
from tests.dsl import oracle
from tests.dsl.bothways import plan_of
from tests.dsl.worlds import FakePod, FakeWorld

NODES = [
    {"node.name": "a", "node.zone": "z1"},
    {"node.name": "b", "node.zone": "z1"},
    {"node.name": "c", "node.zone": "z2"},
    {"node.name": "d"},
]


def pod(**fields):
    base = {"pod.name": "p", "pod.namespace": "default", "pod.uid": "u"}
    for name, value in fields.items():
        base[name if name.startswith("group.") else f"pod.{name}"] = value
    return FakePod.of(base)


def running(on, **fields):
    named = {f"it.{name}": value for name, value in fields.items()}
    return {"on": on, "it.namespace": "default", "it.bound": True, **named}


# ---- who may be evicted


def evictions(text, subject, world):
    rule = plan_of(text).preempts[0]
    by_columns = rule.evictions(subject, world)
    meant = rules.evictions(rule.core, oracle.ByReference(subject, world))
    assert (by_columns is None) == (meant is None)
    if by_columns is not None:
        assert by_columns.ordered == meant.ordered
    return by_columns


# ---- what a node costs


def outcome(broken, *victims):
    """What would be evicted: how many of it a budget protects; priority and start of each."""
    top = max(priority for priority, _ in victims)
    starts = [start for priority, start in victims if priority == top and start is not None]
    return {
        "victims.pdb_violations": float(broken),
        "victims.max_priority": float(top),
        "victims.sum_priority": float(sum(priority for priority, _ in victims)),
        "victims.count": float(len(victims)),
        "victims.latest_start": float(min(starts, default=np.nan)),
    }


ONE, LATE, YOUNG = [(5, 10)], [(5, 20), (-3, 1)], [(5, None)]
TWO = [(4, 1), (4, 2)]


def cheapest(text, choices):
    """Which of several nodes costs least, by both."""
    world, subject = FakeWorld(NODES, []), pod(priority=9.0)
    rule = plan_of(text).preempts[0]
    both = (
        rule.evictions(subject, world),
        rules.evictions(rule.core, oracle.ByReference(subject, world)),
    )
    best = [_first(one.ranks, choices) for one in both]
    assert best[0] == best[1]
    return best[0]


def _first(ranks, choices):
    rows = np.array(list(choices), np.intp)
    names = next(iter(choices.values()))
    results = {name: np.array([one[name] for one in choices.values()]) for name in names}
    places = [rank(rows, results).tolist() for rank in ranks]
    return min(zip(*places, rows.tolist(), strict=True))[-1]


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ({0: outcome(0, *ONE), 3: outcome(0, *TWO)}, 3),  # the top victim is less important
        ({0: outcome(0, *ONE), 3: outcome(1, *TWO)}, 0),  # no budget is broken
        ({0: outcome(0, *ONE), 1: outcome(0, *LATE)}, 0),  # one victim, two of a smaller sum
        ({0: outcome(0, *ONE), 1: outcome(0, LATE[0])}, 1),  # who started later loses less
        ({1: outcome(0, *LATE), 2: outcome(0, *YOUNG)}, 2),  # who has not started has nothing
    ],
)
def test_the_node_is_chosen_as_kubernetes_does(choices, expected):
    assert cheapest("preempt: victims", choices) == expected


def test_the_node_is_chosen_by_pick_then_by_name():
    choices = {0: outcome(0, *ONE), 1: outcome(0, *LATE), 3: outcome(0, *TWO)}
    assert cheapest("preempt: victims pick victims.count desc", choices) == 1
    assert cheapest("preempt: victims pick victims.sum_priority", choices) == 1
    assert cheapest("preempt: victims pick victims.max_priority, victims.count", choices) == 3
    assert cheapest("preempt: victims pick node.zone desc", choices) == 0
    assert cheapest("preempt: victims pick victims.latest_start", choices) == 3
    assert cheapest("preempt: victims pick 1", choices) == 0


def test_victims_of_equal_place_go_by_name_and_not_by_row():
    pods = [running(0, priority=1.0, name=name) for name in ("c", "a", "b")]
    found = evictions("preempt: victims", pod(priority=2.0), FakeWorld(NODES, pods))
    assert found.ordered == (1, 2, 0)


ORDERED = [
    running(0, priority=0.0, name="0", **{"label[app]": "web"}),
    running(2, priority=3.0, name="1", **{"label[app]": "db"}),
    running(2, priority=2.0, name="2"),
    running(3, priority=-1.0, name="3"),
]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("it.label[app] asc", (1, 0, 2, 3)),
        ("it.label[app] desc", (0, 1, 2, 3)),
        ("it.label[app] [web, db]", (0, 1, 2, 3)),
        ("it.label[app] [db]", (1, 0, 2, 3)),
        ("it.node.zone desc, it.priority desc", (1, 2, 0, 3)),
        ("count(cluster.pods) asc, it.priority desc", (1, 2, 0, 3)),
        ("pod.name, it.priority", (3, 0, 2, 1)),
        ("if it.priority > 2 then it.name else pod.name, it.priority", (1, 3, 0, 2)),
    ],
)
def test_orders_of_texts_lists_nodes_and_the_pod(order, expected):
    world, subject = FakeWorld(NODES, ORDERED), pod(priority=100.0)
    assert evictions(f"preempt: victims order {order}", subject, world).ordered == expected


# ---- gangs


def gang_of(text, subject, world):
    (rule,) = plan_of(text).gangs
    values = oracle.ByReference(subject, world)
    found = rule.terms(subject, world)
    assert found == rules.gang_terms(rule.core, values)
    assert rule.key(subject, world) == rules.owner_of(rule.core, values)
    if found is None:
        return None, ()
    assert rule.mates(subject, world) == values.chosen(rules.pending(rule.core))
    return found, rule.mates(subject, world)


JOB = (
    "gang: pod.label[job] is present -> by pod.label[job] min"
    " number(pod.annotation[size]) wait 2m backoff 10s"
)


def member(on, **fields):
    return running(on, **{"label[job]": "x", **fields})


def test_members_share_namespace_and_key():
    pods = [
        member(0),
        running(1, **{"label[job]": "y"}),
        member(2, bound=False),
        member(2, namespace="elsewhere"),
        member(-1),
        member(1, bound=False, uid="u"),
    ]
    subject = pod(**{"label[job]": "x", "annotation[size]": "4"})
    world = FakeWorld(NODES, pods)
    found, mates = gang_of(JOB, subject, world)
    assert (found.key, mates) == ("x", (0, 2))
    assert (found.minimum, found.wait_seconds, found.backoff_seconds) == (4.0, 120.0, 10.0)
    assert gang_of(JOB, pod(), world) == (None, ())
    unlabelled = "gang: by pod.label[job] min 2"
    assert gang_of(unlabelled, pod(), world) == (None, ())


def test_what_the_group_says():
    text = "gang: by pod.label[scheduling.x-k8s.io/pod-group] backoff 10s reject above 10% missing"
    fields = {"label[scheduling.x-k8s.io/pod-group]": "g"}
    world = FakeWorld(NODES)
    told, _ = gang_of(text, pod(**fields, **{"group.min_member": 3.0}), world)
    assert (told.minimum, told.tolerance) == (3.0, 0.1)
    assert told.wait_seconds == rules.WAIT_SECONDS
    silent, _ = gang_of(text, pod(**fields), world)
    assert silent.minimum != silent.minimum


# ---- quotas


def use_of(text, subject, world, objects=None):
    (rule,) = plan_of(text).quotas
    found = rule.use(subject, world, objects or {})
    assert found == rules.quota_use(rule.core, oracle.ByReference(subject, world), objects or {})
    return rule, found


def asks(cpu, memory=0.0):
    return {"request[cpu]": cpu, "request[memory]": memory}


def why_not(rule, subject, world, objects):
    """Why the pod does not fit into its quota, in the policy's words if it has some."""
    said = quotas.exceeded(rule.use(subject, world, objects), elastic=rule.core.elastic)
    return said if said is None else rule.message(subject, world) or said


def test_a_quota_counts_what_is_asked_for():
    text = 'quota: by pod.namespace max cpu 2, memory 1Gi message "{pod.namespace} is full"'
    pods = [
        running(0, **asks(1500.0)),
        running(0, namespace="b", **asks(9000.0)),
        running(0, uid="u", **asks(9000.0)),
    ]
    world = FakeWorld(NODES, pods)
    rule, use = use_of(text, pod(**asks(500.0)), world)
    assert use.used["default"] == {"cpu": 1500.0, "memory": 0.0}
    assert why_not(rule, pod(**asks(500.0)), world, {}) is None
    assert why_not(rule, pod(**asks(501.0)), world, {}) == "default is full"
    assert why_not(rule, pod(**asks(0.0, 2.0**30 + 1)), world, {}) == "default is full"
    (rule,) = plan_of(text.split(" message")[0]).quotas
    stop = why_not(rule, pod(**asks(501.0)), world, {})
    assert stop == "quota of default: no more cpu: 1500m used, 501m asked for, at most 2"
    assert rule.status == "Unschedulable"


ELASTIC = "quota: by pod.namespace elastic reclaim it.priority asc, it.started_at desc"
QUOTAS = {
    "a": Limits({"cpu": 4000.0}, {"cpu": 8000.0}),
    "b": Limits({"cpu": 8000.0}, {"cpu": 12000.0}),
}


def reclaim_meant(rule, subject, world, objects):
    values = oracle.ByReference(subject, world)
    use = rules.quota_use(rule.core, values, objects)
    return quotas.reclaim(use, rules.claims(rule.core, values, use))


def elastic(pods, subject, nominated=()):
    world = FakeWorld(NODES, pods, tables={"nominated": list(nominated)})
    rule, _ = use_of(ELASTIC, subject, world, QUOTAS)
    use = rule.use(subject, world, QUOTAS)
    found = quotas.reclaim(use, rule.claims(subject, world, use))
    meant = reclaim_meant(rule, subject, world, QUOTAS)
    assert found.ordered == meant.ordered
    return short(why_not(rule, subject, world, QUOTAS)), found.ordered


def short(stop):
    """A refusal without its amounts."""
    return stop and ": ".join(stop.split(": ")[:2])


def of(namespace, cpu, **fields):
    return running(0, namespace=namespace, **asks(cpu * 1000.0), **fields)


def asker(namespace, cpu, **fields):
    return pod(**{"namespace": namespace, **asks(cpu * 1000.0), **fields})


def test_pods_without_a_quota_replace_those_without():
    pods = [of("none", 1, priority=1.0), of("a", 8, priority=0.0), of("none", 1, priority=9.0)]
    assert elastic(pods, asker("other", 3, priority=5.0)) == (None, (0,))


def test_pods_on_their_way_to_a_node_count_before():
    ours = of("a", 1, priority=5.0)
    assert elastic([of("a", 6)], asker("a", 1, priority=5.0), [ours])[0] is None
    stop, _ = elastic([of("a", 6)], asker("a", 2, priority=5.0), [ours])
    assert stop == "quota of a: no more cpu"
    assert elastic([of("a", 6)], asker("a", 2, priority=6.0), [ours])[0] is None
    theirs = of("b", 6, priority=0.0)
    stop, _ = elastic([of("a", 4)], asker("a", 3), [theirs])
    assert stop == "quota of a: no cpu left to borrow"
    above = [of("b", 8.5)]
    assert elastic(above, asker("a", 3), [theirs])[0] is None


def test_quotas_of_the_policy_itself():
    text = "quota: by pod.label[team] min cpu 4 max cpu 8 elastic"
    pods = [running(0, **{"label[team]": "x"}, **asks(6000.0)), running(0, **asks(50000.0))]
    world = FakeWorld(NODES, pods, tables={"nominated": []})
    y = pod(**{"label[team]": "y"}, **asks(3000.0))
    rule, use = use_of(text, y, world)
    assert set(use.limits) == {"x", "y"}
    assert use.used == {"x": {"cpu": 6000.0}}
    words = "6 used, 3 asked for, 8 guaranteed to all (x uses 6 of 4)"
    assert why_not(rule, y, world, {}) == f"quota of y: no cpu left to borrow: {words}"
    found = quotas.reclaim(use, rule.claims(y, world, use))
    assert found.ordered == (0,)
    assert use_of(text, pod(**asks(9.0)), world)[1].key is None


def test_a_resource_counts_where_a_quota_names_it():
    limits = {"a": Limits({"cpu": 4.0}, {}), "b": Limits({"cpu": 8.0, "memory": 10.0}, {})}
    used = {"a": {"cpu": 1.0, "memory": 4.0, "gpu": 9.0}}
    use = QuotaUse(
        key="a",
        limits=limits,
        used=used,
        pool=pool_of(limits, used),
        asked={"cpu": 1.0, "memory": 7.0, "gpu": 9.0},
    )
    assert list(use.pool.minimum) == ["cpu", "memory"]
    assert quotas.over_minimum_with_pod(use) == ["memory"]
    assert quotas.over_all_minimums(use) == ["memory"]
    assert quotas.over_maximum(use) == []
    assert quotas.exceeded(use, elastic=False) is None
    nobody = QuotaUse(key=None, limits=limits, used=used, pool=use.pool, asked=use.asked)
    assert quotas.over_minimum_with_pod(nobody) == quotas.over_all_minimums(nobody) == []
    assert quotas.over_maximum(nobody) == []


PODS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "none"]), st.integers(0, 9), st.integers(0, 3)), max_size=8
)


@given(PODS, st.sampled_from(["a", "b", "none"]), st.integers(0, 9), st.integers(0, 3))
def test_taking_back_leaves_minimums_alone(pods, namespace, cpu, priority):
    """A quota that lent nothing loses nobody to another quota."""
    there = [of(one, size, priority=float(own)) for one, size, own in pods]
    subject = asker(namespace, cpu, priority=float(priority))
    _, victims = elastic(there, subject)
    use = {name: sum(1000.0 * s for one, s, _ in pods if one == name) for name in ("a", "b")}
    within = namespace in use and use[namespace] + cpu * 1000.0 <= QUOTAS[namespace].minimum["cpu"]
    for at in victims:
        other, _, own = pods[at]
        if within:
            assert other != namespace
            assert use[other] > QUOTAS[other].minimum["cpu"]
        else:
            assert (other == namespace) if namespace in use else (other not in QUOTAS)
            assert own < priority
