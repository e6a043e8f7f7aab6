"""The search for victims: all nodes at once against node by node, a ranking against a new one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.collective.ranking import Ranking
from engine.framework.profile import Profile
from engine.framework.runtime import Framework
from engine.objects import from_builtins
from engine.objects.workloads import PodDisruptionBudget
from engine.plugins import default_preemption
from engine.plugins.default_preemption import DefaultPreemption, best_of
from engine.pods.selectors import Selector
from tests.builders import Cache, default_plugins, make_node, make_pod
from tests.effort import examples
from tests.engine.plugins.volumes.builders import attachment, claim, csi_node, csi_volume

NODES = ("n0", "n1", "n2", "n3")
PORT = {"containers": [{"name": "c", "image": "x", "ports": [{"hostPort": 80}]}]}
FAR = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {"app": "a"}},
                    "topologyKey": "kubernetes.io/hostname",
                }
            ]
        }
    }
}
EVEN = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "b"}},
        }
    ]
}
STORED = [
    {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": f"c{number}"}}]}
    for number in range(3)
]
PODS = st.builds(
    lambda cpu, priority, app, start, spec: {
        "spec": spec,
        "cpu": cpu,
        "priority": priority,
        "labels": {"app": app},
        "status": {} if start is None else {"startTime": f"2026-03-01T{start:02}:00:00Z"},
    },
    st.sampled_from([None, "300m", "1", "1500m", "3"]),
    st.sampled_from([-5, 0, 3, 10]),
    st.sampled_from(["a", "b", "c"]),
    st.none() | st.integers(0, 5),
    st.sampled_from([None, None, PORT, FAR, EVEN, *STORED]),
)
CHANGES = st.lists(
    st.tuples(st.sampled_from(["comes", "goes", "node"]), st.sampled_from(NODES), PODS), max_size=12
)
BUDGETS = st.lists(
    st.tuples(
        st.sampled_from([{"app": "a"}, {"app": "b"}, {}]),
        st.integers(0, 2),
        st.sampled_from([[], ["p1"], ["p0", "p3"]]),
    ),
    max_size=3,
)


def budget(number, labels, allowed, gone):
    return from_builtins(
        PodDisruptionBudget,
        {
            "metadata": {"name": f"b{number}", "namespace": "default"},
            "spec": {"selector": {"matchLabels": labels}},
            "status": {"disruptionsAllowed": allowed, "disruptedPods": dict.fromkeys(gone)},
        },
    )


def pdb(name, selector, namespace="default", allowed=0):
    return from_builtins(
        PodDisruptionBudget,
        {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"selector": selector},
            "status": {"disruptionsAllowed": allowed},
        },
    )


def full(cache, node, **labels):
    """A node with a pod for each of the namespaces named."""
    cache.add_node(make_node(node, cpu="3"))
    for namespace, own in labels.items():
        cache.add_pod(make_pod(node, node=node, namespace=namespace, cpu="1", labels=own), node)


def planned(cache, preemption):
    snapshot, new = cache.snapshot(0.0), make_pod("new", cpu="3", priority=9)
    trial = Framework(Profile("berth", default_plugins())).trial(new, snapshot)
    return preemption.plan(new, snapshot, np.flatnonzero(snapshot.nodes.present), trial)


def counting(monkeypatch, of, name):
    """How often something is called from now on."""
    real, calls = getattr(of, name), []

    def counted(*args):
        calls.append(args)
        return real(*args)

    monkeypatch.setattr(of, name, counted)
    return calls


def test_budgets_of_a_namespace_cost_its_own_pods_and_no_more_than_some(monkeypatch):
    cache = Cache()
    for number in range(20):
        full(cache, f"n{number}", many={"own": f"{number}", "app": "m"}, a={"app": "a", "own": "a"})
    for number in range(1_000):
        odd = [{"key": f"k{number}", "operator": "DoesNotExist"}] * 3
        said = {"matchLabels": {"app": "m"}, "matchExpressions": odd}
        cache.set_object(pdb(f"b{number}", said, "many"))
        cache.set_object(pdb(f"c{number}", {"matchLabels": {"app": "a", "own": f"{number}"}}, "a"))
    cache.set_object(pdb("last", {"matchLabels": {"app": "a", "own": "a"}}, "a"))
    preemption, asked = DefaultPreemption(), counting(monkeypatch, Selector, "matches")
    read = counting(monkeypatch, default_preemption, "what_it_selects")
    looked_at = counting(monkeypatch, type(cache.pods), "pod")
    assert planned(cache, preemption).violations.tolist() == [2] * 20
    assert len(asked) == 20 * 8 + 1, (
        "the first eight of its budgets for each kind, the one that names it"
    )
    assert len(read) == 2_001
    assert len(looked_at) < 20 * 4, "none of those that one budget selects"
    cache.set_object(pdb("b7", {"matchLabels": {"app": "other"}}, "many"))
    planned(cache, preemption)
    assert len(read) == 2_002
    never = [{"key": "app", "operator": "In", "values": ["m"]}]
    never += [{"key": "own", "operator": "NotIn", "values": [f"{one}"]} for one in range(20)]
    for number in range(1_000):
        cache.set_object(pdb(f"b{number}", {"matchExpressions": never}, "many"))
    asked.clear()
    planned(cache, preemption)
    assert len(asked) <= 20 * 12 + 1


@settings(max_examples=examples(100), deadline=None)
@given(
    pods=st.lists(
        st.tuples(st.sampled_from(NODES), st.sampled_from("ab"), st.sampled_from("xy")), max_size=9
    ),
    budgets=st.lists(
        st.tuples(
            st.sampled_from([{"a": "a"}, {"x": "x"}, {"x": "y"}, {"a": "a", "x": "x"}, {}]),
            st.integers(0, 2),
            st.sampled_from([[], ["p1"], ["p0", "p3"]]),
        ),
        max_size=5,
    ),
)
def test_whom_budgets_protect_is_as_told_one_by_one(pods, budgets):
    """Source: kubernetes framework/preemption/util.go, FilterVictimsWithPDBViolation."""
    cache = Cache()
    for name in NODES:
        cache.add_node(make_node(name, cpu="3"))
    for number, (node, a, x) in enumerate(pods):
        cache.add_pod(make_pod(f"p{number}", node=node, labels={"a": a, "x": x}), node)
    for number, one in enumerate(budgets):
        cache.set_object(budget(number, *one))
    plans = planned(cache, DefaultPreemption())
    found = {
        plans.snapshot.pods.pod(plans.table[at]).name
        for at in zip(*np.nonzero(plans.protected), strict=True)
    }
    expected = set()
    for node in NODES:
        left = [allowed for _, allowed, _ in budgets]
        for number, (place, a, x) in enumerate(pods):
            name, has = f"p{number}", {"a": a, "x": x}.items()
            for at, (labels, _, gone) in enumerate(budgets) if place == node else ():
                if labels and labels.items() <= has and name not in gone:
                    left[at] -= 1
                    if left[at] < 0:
                        expected.add(name)
                        break
    assert found == expected


def storage(cache, limits):
    """Three claims with a volume each, which stays on a node; limits of the first nodes."""
    for name, limit in zip(NODES, limits, strict=False):
        csi_node(cache, name, limit)
    for number in range(len(STORED)):
        csi_volume(cache, f"v{number}", f"h{number}", f"c{number}")
        claim(cache, f"c{number}", volume=f"v{number}")
        attachment(cache, f"a{number}", NODES[number], f"v{number}")


class NodeByNode:
    """A trial that never says that amounts alone decide."""

    def __init__(self, trial):
        self.at, self.progress, self.mates = trial.at, trial.progress, trial.mates

    def rooms(self, rows):
        return None


def told(plans):
    names = [plans.snapshot.nodes.name(int(row)) for row in plans.rows]
    found = {
        names[at]: ([v.name for v in plans.victims(at)], int(plans.violations[at]))
        for at in np.flatnonzero(plans.helps).tolist()
    }
    reasons = plans.reasons if not found else Counter()
    return found, [names[best] for best in best_of(plans)], reasons


@settings(max_examples=examples(60), deadline=None)
@given(
    first=st.lists(st.tuples(st.sampled_from(NODES), PODS), max_size=14),
    changes=CHANGES,
    budgets=BUDGETS,
    waits=st.lists(st.tuples(st.sampled_from(NODES), PODS), max_size=2),
    pod=PODS,
    limits=st.lists(st.integers(0, 2), max_size=3),
)
def test_at_once_is_as_node_by_node_and_a_ranking_follows_the_cluster(
    first, changes, budgets, waits, pod, limits
):
    cache = Cache()
    storage(cache, limits)
    for name in NODES:
        cache.add_node(make_node(name, cpu="3", pods="5", labels={"kubernetes.io/hostname": name}))
    for number, (node, how) in enumerate(first):
        cache.add_pod(make_pod(f"p{number}", node=node, **how), node)
    for number, one in enumerate(budgets):
        cache.set_object(budget(number, *one))
    for number, (node, how) in enumerate(waits):
        cache.nominate(make_pod(f"w{number}", **how), node)
    framework = Framework(Profile("berth", default_plugins()))
    preemption = DefaultPreemption()
    new = make_pod("new", **pod)
    for number, change in enumerate([None, *changes]):
        if change is not None:
            happens(cache, number, *change)
        snapshot = cache.snapshot(1e9)
        rows = np.flatnonzero(snapshot.nodes.present)
        trial = framework.trial(new, snapshot)
        assert trial.rooms(rows) is not None
        at_once = preemption.plan(new, snapshot, rows, trial)
        slowly = DefaultPreemption().plan(new, snapshot, rows, NodeByNode(trial))
        assert told(at_once) == told(slowly)


def test_who_leaves_a_node_with_room_for_volumes_is_a_matter_of_amounts():
    cache = Cache()
    storage(cache, [3, 2, 3])
    for name in NODES:
        cache.add_node(make_node(name, cpu="3"))
        cache.add_pod(make_pod(f"on-{name}", cpu="3", node=name, spec=STORED[0]), name)
    csi_volume(cache, "own", "own", "own")
    claim(cache, "own", volume="own")
    cache.nominate(make_pod("plain", cpu="3", priority=9), "n2")
    cache.nominate(make_pod("stored", cpu="3", priority=9, spec=STORED[1]), "n0")
    own = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "own"}}]}
    new = make_pod("new", cpu="1", priority=5, spec=own)
    snapshot = cache.snapshot(0.0)
    trial = Framework(Profile("berth", default_plugins())).trial(new, snapshot)
    plans = DefaultPreemption().plan(new, snapshot, np.arange(len(NODES)), trial)
    assert plans.runs == 2  # without the pod of n1, and once more with it
    assert plans.helps.tolist() == [False, True, False, True]


def test_what_has_not_started_is_the_latest_of_all():
    cache = Cache()
    for name, start in (("a", "2100-01-01T00:00:00Z"), ("b", None)):
        cache.add_node(make_node(name, cpu="1"))
        status = {} if start is None else {"startTime": start}
        cache.add_pod(make_pod(f"on-{name}", node=name, cpu="1", status=status), name)
    snapshot = cache.snapshot(1e9)
    new = make_pod("new", cpu="1", priority=5)
    trial = Framework(Profile("berth", default_plugins())).trial(new, snapshot)
    assert told(DefaultPreemption().plan(new, snapshot, np.arange(2), trial))[1] == ["b"]


def test_of_equal_pods_the_last_goes_however_many_there_are():
    for many in (3, 12, 13, 40):
        cache = Cache()
        cache.add_node(make_node("a", cpu=str(many)))
        for number in range(many):
            status = {"startTime": "2026-03-01T00:00:00Z"}
            cache.add_pod(make_pod(f"p{number}", node="a", cpu="1", status=status), "a")
        snapshot, new = cache.snapshot(0.0), make_pod("new", cpu="1", priority=5)
        trial = Framework(Profile("berth", default_plugins())).trial(new, snapshot)
        plans = DefaultPreemption().plan(new, snapshot, np.arange(1), trial)
        assert [one.name for one in plans.victims(0)] == [f"p{many - 1}"], many


def happens(cache, number, what, node, how):
    if what == "comes":
        cache.add_pod(make_pod(f"q{number}", node=node, **how), node)
    elif what == "goes":
        there = [uid for uid, (place, _) in cache.assigned().items() if place == node]
        if there:
            cache.remove_pod(there[number % len(there)])
    elif cache.nodes.row(node) >= 0:
        cache.remove_node(node)
    else:
        cache.add_node(make_node(node, cpu="3", pods="5", labels={"kubernetes.io/hostname": node}))


@settings(max_examples=examples(40), deadline=None)
@given(
    there=st.lists(st.tuples(st.sampled_from(NODES), PODS), max_size=8),
    waits=st.lists(st.tuples(st.sampled_from(NODES), PODS), min_size=1, max_size=4),
    pod=PODS,
)
def test_what_is_promised_is_the_same_by_amounts_and_by_asking_all_filters(there, waits, pod):
    cache = Cache()
    storage(cache, [1, 2])
    for name in NODES:
        cache.add_node(make_node(name, cpu="3", pods="5", labels={"kubernetes.io/hostname": name}))
    for number, (node, how) in enumerate(there):
        cache.add_pod(make_pod(f"p{number}", node=node, **how), node)
    for number, (node, how) in enumerate(waits):
        cache.nominate(make_pod(f"w{number}", **how), node)
    framework = Framework(Profile("berth", default_plugins()))
    new, snapshot = make_pod("new", **pod), cache.snapshot(1e9)
    trial = framework.trial(new, snapshot)
    asked = [
        type(one)(one.name, replace(one.points, rooms=None), one.result) for one in trial.filters
    ]
    passed = framework.verdicts(new, snapshot, np.arange(snapshot.nodes.size))
    expected = replace(trial, filters=asked).left_to_nominated(passed)
    assert sorted(trial.left_to_nominated(passed)) == sorted(expected)
    rejected = framework.rejections(new, snapshot)
    left = {int(row): one for one in rejected.each for row in one.rows}
    assert left.keys() == set(np.flatnonzero(~passed).tolist()) | set(expected)
    for row, one in left.items():  # all rows at once are as each by itself
        alone = trial.at(row).rejection()
        assert (one.plugin, one.status) == (alone.plugin, alone.status)


def test_numbers_of_pods_are_read_for_the_nodes_that_changed():
    cache = Cache()
    for name in NODES:
        cache.add_node(make_node(name))
        cache.add_pod(make_pod(f"on-{name}", node=name, cpu="1"), name)
    ranking = Ranking(lambda pods: (-pods.priority,))
    read = []

    def cpu(pods, rows):
        read.append(len(rows))
        return pods.request("cpu")[rows]

    ranking.sync(cache.snapshot(0.0))
    ranking.values("cpu", cpu, cache.pods)
    cache.add_pod(make_pod("more", node="n1", cpu="2", priority=5), "n1")
    ranking.sync(cache.snapshot(0.0))
    found = ranking.values("cpu", cpu, cache.pods)[:, cache.nodes.row("n1")]
    assert found.tolist() == [2000, 1000]
    assert read == [4, 2]


def test_a_ranking_follows_however_many_nodes_change_at_once():
    cache = Cache()
    for number in range(90):
        cache.add_node(make_node(f"n{number}"))
        for other in range(2):
            pod = make_pod(f"p{number}-{other}", priority=number % 3 + other)
            cache.add_pod(pod, f"n{number}")
    made, fresh = (Ranking(lambda pods: (-pods.priority,)) for _ in range(2))
    made.sync(cache.snapshot(0.0))
    for number in range(80):
        cache.remove_pod(f"uid-default-p{number}-0")
        cache.add_pod(make_pod(f"q{number}", priority=number % 5), f"n{number // 2}")
    for one in (made, fresh):
        one.sync(cache.snapshot(0.0))
    assert (made.table == fresh.table).all()
