"""`preempt:` on a running scheduler: whom it evicts, whom it leaves alone, what it says."""

from __future__ import annotations

import asyncio
from itertools import combinations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsl.collective import Evictions
from engine.cache.otherpods import NOMINATED
from engine.collective import search as searching
from engine.collective.search import search
from engine.framework.interface import Points, PreFilterResult, Scope, Verdicts
from engine.framework.profile import Profile, Weighted
from engine.framework.runtime import Framework
from engine.framework.status import unschedulable
from engine.objects import Namespace, from_builtins
from engine.plugins.no_nodes import PrioritySort
from tests.builders import Cache, make_node, make_pod, pod_object
from tests.effort import examples
from tests.engine.policy.builders import compiled
from tests.engine.test_preemption import settle
from tests.engine.test_scheduler import World

replaced = msgspec.structs.replace


def world(policy, *nodes, **pods):
    """Nodes of two cores, and pods on them: `a="n1"` of one core, or (node, how)."""
    made = World({"p.policy": policy}, nodes=nodes or ("n1",))
    for name, where in pods.items():
        node, how = where if isinstance(where, tuple) else (where, {})
        made.handlers.pods.on_add(pod_object(name, **{"cpu": "1", "node": node, **how}))
    return made


def last_words(made):
    return made.edge.conditions[-1][2]


async def test_the_rule_says_who_goes_first_and_who_stays():
    made = world(
        "preempt: victims where not it.label keep=yes order it.name desc\n",
        a="n1",
        b=("n1", {"labels": {"keep": "yes"}}),
    )
    made.comes("high", cpu="1", priority=10)
    await settle(made)
    assert made.edge.evictions == ["a"]
    assert made.edge.nominations == [("high", "n1")]
    assert last_words(made).endswith(
        "preemption (p.policy:1): node n1 is promised, evicting 1 victim"
    )
    made.handlers.pods.on_delete(pod_object("a", cpu="1", node="n1"))
    await settle(made, after=2.0)
    assert made.assigned("high") == ("n1", True)


async def test_the_first_line_that_applies_decides_and_without_one_the_profile_does():
    made = world(
        "preempt: pod.label calm -> never\npreempt: pod.label poor -> victims where it.name is x\n",
        a="n1",
        b="n1",
    )
    promised = {"nominatedNodeName": "n1"}
    made.comes("calm", cpu="1", priority=10, labels={"calm": "yes"}, status=promised)
    made.comes("poor", cpu="1", priority=10, labels={"poor": "yes"})
    await settle(made)
    told = {name: message for name, _, message in made.edge.conditions}
    assert told["calm"].endswith("preemption (p.policy:1): this pod may evict nobody")
    assert made.cache.nominations.node_of("uid-default-calm") == "", "nobody makes room there"
    assert (
        "preemption (p.policy:2): 0/1 nodes are available: 1 No preemption victims"
        in (told["poor"])
    )
    assert made.edge.evictions == []
    made.comes("other", cpu="1", priority=10)
    await settle(made)
    assert len(made.edge.evictions) == 1


def edited(made, **parts):
    """A pod on a node is changed: `metadata`, `status`."""
    old = made.cache.pods.pod(made.cache.pods.row("uid-default-a")).pod
    new = {name: replaced(getattr(old, name), **how) for name, how in parts.items()}
    made.handlers.pods.on_update(old, replaced(old, **new))


def namespace(made, **labels):
    meta = {"name": "default", "labels": labels}
    old = made.cache.namespaces.get("default")
    new = from_builtins(Namespace, {"metadata": meta})
    handler = made.handlers.namespaces
    handler.on_add(new) if old is None else handler.on_update(old, new)


EDITS = {
    "label": lambda made: edited(made, metadata={"labels": {"idle": "yes"}}),
    "annotation": lambda made: edited(made, metadata={"annotations": {"idle": "yes"}}),
    "phase": lambda made: edited(made, status={"phase": "Running"}),
    "namespace": lambda made: namespace(made, idle="yes"),
    "time": lambda made: None,
}


async def woken_by(made, edit):
    """Whatever else happens, the pod `high` is not tried again."""
    for other in (one for one in EDITS if one != edit):
        await settle(made)
        EDITS[other](made)
        await settle(made, after=5.0)
        assert made.queue.get("uid-default-high").attempts == 1
    namespace(made, other="yes")
    assert made.edge.evictions == []
    EDITS[edit](made)
    await settle(made, after=61.0 if edit == "time" else 5.0)


@pytest.mark.parametrize(
    ("rule", "edit"),
    [
        ("time.minute in 1..59 -> victims\npreempt: never", "time"),
        ("pod.name is high and time.minute in 1..59 -> victims where it.priority > 10", "time"),
        ("namespace.label[idle] is missing -> never", "namespace"),
        ("victims where it.label idle=yes", "label"),
        ("victims where it.label[pod.name] is missing and it.label idle=yes", "label"),
        ("victims where it.annotation idle=yes", "annotation"),
        ("victims where it.phase is Running", "phase"),
        ("victims where it.namespace.label idle=yes", "namespace"),
        (
            "pod.name is high -> victims\nbind: namespace.label[idle] is missing -> dry run",
            "namespace",
        ),
    ],
)
@pytest.mark.parametrize("gang", [False, True])
async def test_a_pod_without_victims_is_tried_again_when_the_rule_may_name_some(rule, edit, gang):
    gangs = "gang: by pod.label[job] min 1\n" if gang else ""
    there = "n1", {"priority": 20 if "it.priority" in rule else 0}
    made = world(f"preempt: {rule}\n{gangs}", a=there, b=there)
    made.comes("high", cpu="1", priority=10, labels={"job": "j"})
    await woken_by(made, edit)
    assert len(made.edge.evictions) == 1


@pytest.mark.parametrize(
    ("read", "edit"),
    [
        ("it.label idle=yes", "label"),
        ("it.annotation[(pod.label[job])] is missing and it.annotation idle=yes", "annotation"),
        ("it.phase is Running", "phase"),
        ("it.namespace.label idle=yes", "namespace"),
    ],
)
async def test_a_filter_is_asked_again_where_it_reads_another_value_of_pods_on_nodes(read, edit):
    made = world(f"filter: any(node.pods where {read})\n", a="n1")
    made.comes("high", cpu="1", priority=10, labels={"job": "j"})
    await woken_by(made, edit)
    assert made.assigned("high") == ("n1", True)


async def test_a_limit_and_the_choice_of_a_node():
    policy = "preempt: victims pick victims.count desc limit {}\n"
    made = world(policy.format(2), "n1", "n2", a="n1", b="n1", c=("n2", {"cpu": "2"}))
    made.comes("high", cpu="2", priority=10)
    await settle(made)
    assert sorted(made.edge.evictions) == ["a", "b"]
    made = world(policy.format(1), "n1", a="n1", b="n1")
    made.comes("high", cpu="2", priority=10)
    await settle(made)
    assert made.edge.evictions == []
    words = "0/1 nodes are available: 1 More victims would be needed than the limit of 1."
    assert made.edge.conditions[-1][2].endswith(f"preemption (p.policy:1): {words}")


async def test_where_a_limit_stops_it_the_message_counts_the_other_nodes_as_well():
    made = world(
        "preempt: victims where it.priority < 5 limit 1\n"
        "filter: node.name is not n4 and not any(node.pods where it.name is f)\n",
        *("n1", "n2", "n3", "n4", "n5"),
        a="n1",
        b="n1",
        c=("n2", {"priority": 20}),
        d="n2",
        e=("n3", {"cpu": "2", "priority": 20}),
        f=("n5", {"priority": 20}),
        g="n4",
        h="n5",
    )
    made.comes("high", cpu="2", priority=10)
    await settle(made)
    assert made.edge.evictions == []
    words = last_words(made).partition("preemption (p.policy:1): 0/5 nodes are available: ")[2]
    assert "1 More victims would be needed than the limit of 1" in words
    assert sum(int(one.split()[0]) for one in words.split(", ")) == 5


async def test_what_a_prefilter_counts_may_be_made_room_for():
    made = world(
        "prefilter: count(cluster.pods where it.label team=ml) < 2\n"
        "preempt: victims where it.label team=ml and it.priority < pod.priority\n",
        "n1",
        "n2",
        a=("n1", {"labels": {"team": "ml"}, "priority": 3}),
        b=("n2", {"labels": {"team": "ml"}}),
    )
    made.comes("high", cpu="1", priority=10)
    await settle(made)
    assert made.edge.evictions == ["b"]


async def test_two_pods_that_could_evict_each_other_leave_each_other_alone():
    policy = (
        "preempt: pod.label team=a -> victims where it.label team=b and it.priority < 100\n"
        "preempt: pod.label team=b -> victims where it.label team=a and it.priority < 100\n"
    )
    made = world(policy, b=("n1", {"cpu": "2", "labels": {"team": "b"}}))
    made.comes("a", cpu="2", labels={"team": "a"})
    await settle(made)
    assert made.edge.evictions == []
    told = last_words(made)
    assert "could evict it in turn (with it.priority < pod.priority they could not)" in told
    made.comes("a2", cpu="2", labels={"team": "a"}, priority=200)
    await settle(made)
    assert made.edge.evictions == ["b"], "who is out of its reach may"


async def test_a_victim_that_does_not_go_is_waited_for_and_not_evicted_again():
    made = world("preempt: victims across 2 nodes\n", "n1", "n2", a="n1", b="n1", c="n2", d="n2")
    high = made.comes("high", cpu="2", priority=10)
    await settle(made)
    assert len(made.edge.evictions) == 2
    promised = made.cache.nominations.node_of("uid-default-high")
    for _ in range(3):
        await settle(made, after=400.0)
    assert len(made.edge.evictions) == 2
    assert last_words(made).endswith("terminating pod on the nominated node.")
    assert made.cache.nominations.node_of(high.metadata.uid) == promised


async def test_who_is_being_evicted_already_is_not_evicted_twice():
    made = world("preempt: victims\n", a=("n1", {"cpu": "2"}))
    answered = asyncio.get_running_loop().create_future()
    made.edge.evict_answers.append(answered)
    made.comes("high", cpu="1", priority=10)
    made.comes("other", cpu="1", priority=10)
    await settle(made)
    assert made.edge.evictions == ["a"]
    assert made.cache.nominations.leaving == {"uid-default-a": "n1"}
    answered.set_result("the server is away")
    await settle(made)
    await settle(made, after=2.0)
    assert made.edge.evictions == ["a", "a"], "it did not go: it is tried again"
    assert made.cache.nominations.leaving == {}


def test_a_line_that_changes_whom_pods_evict_has_all_pods_tried_again():
    never, score = compiled({"p.policy": "preempt: never\n"}), {"q.policy": "score: 50\n"}
    both = compiled({"p.policy": "preempt: never\n", **score})
    assert both.changed_since(never) == {"q"}
    assert never.changed_since(both) == {"q"}
    assert compiled(score).changed_since(both) is None
    lent = compiled({"p.policy": "quota: by pod.namespace elastic\n", **score})
    assert lent.changed_since(compiled(score)) is None


# ---- several nodes


ZONE = {"topology.kubernetes.io/zone": "z"}


def zone(policy, **pods):
    made = World({"p.policy": policy}, nodes=())
    for name in ("n1", "n2", "n3"):
        made.handlers.nodes.on_add(make_node(name, cpu="2", labels=ZONE))
    for name, (node, how) in pods.items():
        made.handlers.pods.on_add(pod_object(name, **{"cpu": "1", "node": node, **how}))
    return made


WEB = {"labels": {"app": "web"}}
ALONE = "require: count(zone.pods where it.label app=web) == 0\n"


async def test_victims_on_two_nodes_go_for_one_pod_and_it_is_bound_when_both_are_gone():
    made = zone(
        f"{ALONE}preempt: victims where it.priority < pod.priority across 2 nodes\n",
        w1=("n1", WEB),
        w2=("n2", WEB),
        other=("n1", {}),
    )
    made.comes("high", cpu="1", priority=10)
    await settle(made)
    assert sorted(made.edge.evictions) == ["w1", "w2"]
    made.handlers.pods.on_delete(pod_object("w1", cpu="1", node="n1", **WEB))
    await settle(made, after=20.0)
    assert last_words(made).endswith(("waiting for its victims to be gone", "nominated node."))
    assert len(made.edge.evictions) == 2
    made.handlers.pods.on_delete(pod_object("w2", cpu="1", node="n2", **WEB))
    await settle(made, after=20.0)
    assert made.assigned("high")[0] in ("n1", "n2", "n3")


async def test_three_nodes_are_too_many_for_two_and_a_row_alone_needs_no_second_node():
    three = {f"w{number}": (f"n{number}", WEB) for number in (1, 2, 3)}
    made = zone(f"{ALONE}preempt: victims across 2 nodes\n", **three)
    made.comes("high", cpu="1", priority=10)
    await settle(made)
    assert made.edge.evictions == []
    full = {f"p{number}": (f"n{number}", {}) for number in (1, 2, 3)}
    made = zone("preempt: victims across 4 nodes\n", **full)
    made.comes("high", cpu="3", priority=10)
    await settle(made)
    assert made.edge.evictions == []


class Total:
    """A filter that spans nodes: so many milli-cores at most may be used, wherever."""

    name = "Total"

    def __init__(self, most):
        self._most = most
        self.asked = 0

    def points(self):
        return Points(pre_filter=lambda *_: PreFilterResult(scope=Scope.ALL), filter=self._filter)

    def _filter(self, state, pod, snapshot, rows):
        self.asked += 1
        used = int(snapshot.nodes.requested("cpu")[snapshot.nodes.present].sum())
        passed = np.full(len(np.arange(snapshot.nodes.size)[rows]), used <= self._most)
        return Verdicts.uniform(passed, unschedulable("too much is used"))


def cluster(nodes, sizes, most):
    """Pods of some sizes, each on its node; the first in the list goes first."""
    cache = Cache()
    for row in range(max(nodes) + 1):
        cache.add_node(make_node(f"n{row}", cpu="100"))
    for at, (on, size) in enumerate(zip(nodes, sizes, strict=True)):
        cache.add_pod(make_pod(f"p{at}", cpu=f"{size}m", node=f"n{on}"), f"n{on}")
    framework = Framework(Profile("berth", (Weighted(PrioritySort()), Weighted(Total(most)))))
    return cache.snapshot(0.0), framework


def hunt(nodes, sizes, most, **options):
    found = searched(*cluster(nodes, sizes, most), ordered=tuple(range(len(sizes))), **options)
    return found, sorted(int(one.name[1:]) for one in found.victims)


def searched(snapshot, framework, **options):
    pod = make_pod("high", priority=10)
    ranks = (lambda _, results: results["victims.count"], lambda rows, _: rows)
    rows, trial = np.arange(snapshot.nodes.size), framework.trial(pod, snapshot, what_if=True)
    return search(Evictions(ranks=ranks, **options), snapshot, trial, rows=rows)


def test_few_nodes_before_many_and_any_node_to_go_to():
    assert hunt([0, 1, 2], [1, 1, 1], 1, across=2)[1] in ([0, 1], [0, 2], [1, 2])
    assert hunt([0, 1, 1], [1, 1, 1], 1, across=2)[1] == [1, 2], "one node is enough"
    found, victims = hunt([0, 1, 2], [1, 1, 1], 0, across=2)
    assert (found.row, victims) == (-1, [])
    assert searching._NOT_ALL not in found.reasons
    found, victims = hunt([0, 1, 2], [1, 1, 1], 0, across=3, limit=2)
    assert victims == []
    assert found.reasons["More victims would be needed than the limit of 2"] == 3


def test_the_search_ends_at_its_bound_and_says_so():
    count = 60
    snapshot, framework = cluster(list(range(count)), [1] * count, 0)
    asked = framework.profile.plugins[1].plugin
    found = searched(snapshot, framework, ordered=tuple(range(count)), across=4)
    assert (found.row, found.reasons[searching._NOT_ALL]) == (-1, count)
    assert asked.asked <= searching.MOST_RUNS + 4 * count


PODS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=6)


@settings(max_examples=examples(60), deadline=None)
@given(PODS, st.integers(0, 8), st.integers(1, 4), st.none() | st.integers(1, 4))
def test_the_search_against_all_sets_of_victims(pods, most, across, limit):
    """Compares with trying every set of nodes and every set of their pods."""
    nodes, sizes = [on for on, _ in pods], [size for _, size in pods]
    if sum(sizes) <= most:
        return
    found, victims = hunt(nodes, sizes, most, across=across, limit=limit)
    over = sum(sizes) - most
    enough = [
        list(chosen)
        for count in range(1, len(pods) + 1)
        for chosen in combinations(range(len(pods)), count)
        if sum(sizes[one] for one in chosen) >= over
        and len({nodes[one] for one in chosen}) <= across
    ]
    if found.row < 0:
        # Pods are given back last first, so that a smaller set may be overlooked; none at all
        # is found only where each set needs too many.
        assert limit is not None or not enough
        return
    assert victims in enough
    assert limit is None or len(victims) <= limit
    for one in victims:
        rest = sum(sizes[other] for other in victims if other != one)
        assert rest < over, "nobody goes in vain"
    fewest = min(len({nodes[one] for one in chosen}) for chosen in enough)
    assert limit is not None or len({nodes[one] for one in victims}) == fewest


async def test_a_pod_is_not_kept_from_the_node_that_it_is_promised_itself():
    made = world("filter: count(node.nominated) == 0\n", "n1", "n2", a="n1", b="n2")
    made.cache.attend(frozenset({NOMINATED}))
    for name in ("high", "like"):
        made.comes(name, cpu="2", priority=10, labels={"app": name})
    await settle(made)
    assert sorted(made.edge.evictions) == ["a", "b"]
    promised = made.cache.nominations.nodes
    assert sorted(promised.values()) == ["n1", "n2"], "one each"
    before, snapshot = dict(promised), made.snapshot()
    for name in ("high", "like"):
        pod = made.queue.get(f"uid-default-{name}").pod
        told = made.framework.rejections(pod, snapshot)
        by = {snapshot.nodes.name(row): one.plugin for one in told.each for row in one.rows}
        own = before[pod.uid]
        other = "n2" if own == "n1" else "n1"
        assert by == {own: "NodeResourcesFit", other: "NodeResourcesFit"}
    for name, node in (("a", "n1"), ("b", "n2")):
        made.handlers.pods.on_delete(pod_object(name, cpu="1", node=node))
    snapshot = made.snapshot()
    for name in ("high", "like"):  # of one class but for that
        pod = made.queue.get(f"uid-default-{name}").pod
        rows = made.framework.candidates(made.framework.class_of(pod, snapshot), pod, snapshot)
        assert [snapshot.nodes.name(row) for row in rows] == [before[pod.uid]]
    await settle(made, after=2.0)
    assert {uid: made.cache.node_of(uid) for uid in before} == before
    assert sorted(made.edge.evictions) == ["a", "b"]


async def test_who_may_evict_a_pod_once_it_has_what_it_was_promised_is_woken_then():
    policy = "preempt: victims where it.label app=a and it.priority <= pod.priority\n"
    made = world(policy, a=("n1", {"labels": {"app": "a"}}), b="n1")
    like = {"cpu": "1", "priority": 5}
    promised = made.comes("p", labels={"app": "a"}, status={"nominatedNodeName": "n1"}, **like)
    await settle(made)
    made.handlers.pods.on_delete(pod_object("a", cpu="1", node="n1"))
    made.comes("q", **like)
    await settle(made)
    await settle(made, after=2.0)
    assert made.assigned("p") == ("n1", True)
    made.bound(promised, "n1")
    await settle(made, after=2.0)
    assert made.edge.evictions == ["a", "p"]
