"""Victims are looked for in slices: others go on meanwhile, and what was found has to hold."""

from __future__ import annotations

import asyncio
import io
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.clock import ManualClock
from engine.collective.victims import without
from engine.cycle import conclude
from engine.framework.decision import Evict, PostFilterResult
from engine.framework.interface import ALL_PASS, Points
from engine.framework.profile import Weighted
from engine.framework.runtime import Frameworks
from engine.framework.searchprogress import SLICE_RUNS, SearchProgress, UnfinishedError
from engine.framework.status import Code, Status
from engine.journal.recorder import Recorder
from engine.journal.replay import replay
from engine.queue import SubQueue
from tests.builders import Cache, default_plugins, make_node, make_pod, pod_object
from tests.effort import examples
from tests.engine.fake_extender import FakeExtender
from tests.engine.policy.builders import NOW, chain
from tests.engine.test_extenders import document, meta, until_io
from tests.engine.test_extenders import settle as settle_extended
from tests.engine.test_extenders import world as extended
from tests.engine.test_preemption import being_deleted, settle
from tests.engine.test_scheduler import World

MANY = 60


def apart(key):
    """Not beside pods with a=b."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"a": "b"}}}
    return {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    }


#: No amounts decide, so each node is asked about one by one.
HIGH = {"cpu": "2", "priority": 10, "spec": apart("kubernetes.io/hostname")}


class Counting:
    """Counts dry runs, which alone ask about a cluster that could be."""

    name = "Counting"

    def __init__(self):
        self.runs = 0

    def points(self):
        return Points(filter=self._filter)

    def _filter(self, state, pod, snapshot, rows):
        self.runs += snapshot.generation < 0
        return ALL_PASS


def node(name, **how):
    return make_node(name, labels={"kubernetes.io/hostname": name}, cpu="2", **how)


def low(name, at, **how):
    return pod_object(name, node=at, **{"cpu": "1", "labels": {"a": "b"}, **how})


def full(made=None, **how):
    """Nodes with two pods each, of which those of the last are the least important."""
    made = made or World(nodes=(), **how)
    for number in range(MANY):
        made.add([node(f"n{number}")])
        priority = -1 if number == MANY - 1 else 0
        made.add(low(f"{word}{number}", f"n{number}", priority=priority) for word in "xy")
    return made


def working(made, slices):
    for _ in range(slices):
        assert made.scheduler.work()
    assert made.edge.evictions == []
    assert made.where("high") is SubQueue.IN_FLIGHT


async def at_rest(made):
    for _ in range(5):
        await settle(made)


async def test_a_slice_is_bounded_and_others_get_their_nodes_between_two():
    counting = Counting()
    made = full(in_tree=(*default_plugins(), Weighted(counting)))
    made.add([node("free", taints=[{"key": "k", "effect": "NoSchedule"}])])
    made.comes("high", **HIGH)
    working(made, 1)
    tolerates = [{"key": "k", "operator": "Exists"}]
    made.comes("other", cpu="1", spec={"tolerations": tolerates})
    each = []
    while made.scheduler.work():
        each.append(counting.runs)
        counting.runs = 0
        await asyncio.sleep(0)
        assert made.assigned("other")
    assert len(each) > MANY * 3 / (SLICE_RUNS + 4)
    assert max(each[1:]) < SLICE_RUNS + 3, "a node that was begun is finished"
    await settle(made)
    assert sorted(made.edge.evictions) == [f"x{MANY - 1}", f"y{MANY - 1}"]
    assert len([one for one in made.decisions if one.pod.name == "high"]) == 1


async def test_who_is_more_important_comes_first():
    made = full()
    made.comes("later", **{**HIGH, "priority": 5})
    made.scheduler.work()
    made.comes("high", **HIGH)
    await settle(made)
    assert [one.pod.name for one in made.decisions] == ["high", "later"]
    assert len(made.edge.evictions) == 4


async def test_one_searches_for_all_of_its_class():
    counting, (first, *rest) = Counting(), default_plugins()
    made = World(nodes=(), in_tree=(first, Weighted(counting), *rest))
    for number in range(MANY):
        made.add([node(f"n{number}")])
        made.add([low(f"x{number}", f"n{number}", priority=20), low(f"y{number}", f"n{number}")])
    for number in range(20):
        made.comes(f"high{number}", **HIGH)
    await at_rest(made)
    assert counting.runs <= 20 * (SLICE_RUNS + 2) + MANY, "the first one goes on for all"
    made.clock.advance(30.0)
    counting.runs = 0
    made.handlers.pods.on_delete(low("y0", "n0"))  # which wakes the class
    await at_rest(made)
    made.clock.advance(30.0)
    await at_rest(made)
    assert {one.where for one in made.queue} == {SubQueue.UNSCHEDULABLE}
    assert 0 < counting.runs <= MANY


def goes(made):
    """A victim of the best node: the other suffices by now."""
    made.handlers.pods.on_delete(low(f"x{MANY - 1}", f"n{MANY - 1}", priority=-1))
    return [f"y{MANY - 1}"]


def room(made):
    """All of the best node's pods: the pod goes there."""
    for word in "xy":
        made.handlers.pods.on_delete(low(f"{word}{MANY - 1}", f"n{MANY - 1}", priority=-1))
    return []


def taken(made):
    """The best node has another pod by now that is to stay."""
    goes(made)
    made.add([low("stays", f"n{MANY - 1}", priority=20)])
    return ["x0", "y0"]


def cordoned(made):
    made.handlers.nodes.on_update(node(f"n{MANY - 1}"), node(f"n{MANY - 1}", unschedulable=True))
    return ["x0", "y0"]


def node_goes(made):
    room(made)
    made.handlers.nodes.on_delete(node(f"n{MANY - 1}"))
    made.add([node("new")])
    made.add([low("new", "new", cpu="2", priority=20)])
    return ["x0", "y0"]


def promised(made):
    """The best node is another pod's, and its victims are going."""
    made.comes(
        "first",
        cpu="2",
        priority=30,
        spec={"nodeSelector": {"kubernetes.io/hostname": f"n{MANY - 1}"}},
    )
    return [f"x{MANY - 1}", f"y{MANY - 1}", "x0", "y0"]


@pytest.mark.parametrize("change", [goes, room, taken, cordoned, node_goes, promised])
@pytest.mark.parametrize("slices", [1, 6])
async def test_what_was_found_holds_when_it_ends(change, slices):
    made = full()
    made.comes("high", **HIGH)
    working(made, slices)
    expected = change(made)
    await settle(made)
    assert sorted(made.edge.evictions) == sorted(expected)
    at = made.cache.nominations.node_of("uid-default-high") or made.assigned("high")[0]
    assert at == (f"n{MANY - 1}" if change in (goes, room) else "n0")


@pytest.mark.parametrize("how", ["deleted", "going", "bound"])
async def test_a_pod_that_is_gone_evicts_nobody(how):
    made = full()
    pod = made.comes("high", **HIGH)
    working(made, 2)
    if how == "deleted":
        made.handlers.pods.on_delete(pod)
    elif how == "going":
        made.handlers.pods.on_update(pod, being_deleted(pod))
    else:
        made.bound(pod, "n0")
    await settle(made)
    assert made.edge.evictions == []
    assert "uid-default-high" not in made.queue
    assert made.scheduler.idle()


async def test_who_does_not_lead_looks_for_nobody():
    made = full()
    made.comes("high", **HIGH)
    working(made, 2)
    made.scheduler.leads = False
    await settle(made)
    assert made.edge.evictions == []
    made.scheduler.lead()
    await settle(made)
    assert len(made.edge.evictions) == 2


async def test_a_scheduler_that_stops_evicts_nobody():
    made = full()
    made.comes("high", **HIGH)
    working(made, 2)
    stop = asyncio.Event()
    stop.set()
    await made.scheduler.run(stop)
    assert made.edge.evictions == []


@pytest.mark.parametrize(
    ("rule", "victims"),
    [("preempt: never\n", 0), ("preempt: victims where it.name contains '2' limit 5\n", 2)],
)
async def test_under_new_rules_it_begins_anew(rule, victims):
    made = full()
    made.comes("high", **HIGH)
    working(made, 3)
    made.scheduler.use(chain({"p.policy": rule}), None)
    await settle(made)
    assert len(made.edge.evictions) == victims
    assert all("2" in name for name in made.edge.evictions)


@pytest.mark.parametrize("lane", [False, True])
@pytest.mark.parametrize(
    "rule", ["gate: pod.label ok\n", "gang: pod.name is high -> by pod.name min 2\n"]
)
async def test_new_rules_that_hold_a_pod_back_hold_it_between_two_slices(rule, lane):
    async with FakeExtender(preempt={}) as fake:
        others = {} if lane else {"managedResources": [{"name": "not/its"}]}
        made = full(extended(document(fake.url, preemptVerb="preempt", **others), nodes=()))
        slices = []

        def told(*_):
            slices.append(rule)
            if len(slices) == 2:
                made.scheduler.use(chain({"p.policy": rule}), None)

        made.scheduler.placement.slices_observers.append(told)
        made.comes("high", **HIGH)
        await settle_extended(made, lambda: made.edge.evictions or made.edge.conditions)
    assert made.edge.evictions == []
    assert len(slices) == 2
    assert made.where("high") in (SubQueue.GATED, SubQueue.UNSCHEDULABLE, SubQueue.BACKOFF)


async def test_the_lane_of_extenders_decides_nothing_once_another_replica_leads():
    async with FakeExtender(preempt=meta(n3=["uid-default-x3", "uid-default-y3"])) as fake:
        made, slices = full(extended(document(fake.url, preemptVerb="preempt"), nodes=())), []

        def told(*_):
            slices.append(made)
            made.scheduler.leads = False

        made.scheduler.placement.slices_observers.append(told)
        made.comes("high", **HIGH)
        await until_io(lambda: (made.scheduler.work(), made.where("high") is SubQueue.ACTIVE)[1])
        assert (made.edge.evictions, len(slices)) == ([], 1)
        made.scheduler.placement.slices_observers.clear()
        made.scheduler.lead()
        await settle_extended(made, lambda: made.edge.evictions)
    assert sorted(made.edge.evictions) == ["x3", "y3"]


class Ticking(ManualClock):
    """Time goes on by itself, so that a slice has an end."""

    def monotonic(self):
        self.advance(0.001)
        return super().monotonic()


@pytest.mark.parametrize("gone", [False, True])
async def test_a_gang_looks_for_victims_in_slices_too(gone):
    counting = Counting()
    in_tree = (*default_plugins(), Weighted(counting))
    policy = {"p.policy": "gang: pod.label g -> by pod.label[g] min 2\n"}
    made = full(files=policy, in_tree=in_tree, clock=Ticking())
    pods = [made.comes(f"g{number}", **HIGH, labels={"g": "g"}) for number in range(2)]
    each = []
    while made.scheduler.work() and len(each) < 2_000:
        each.append(counting.runs)
        counting.runs = 0
        if gone and sum(each) > SLICE_RUNS and "uid-default-g1" in made.queue:
            made.handlers.pods.on_delete(pods[1])
        await asyncio.sleep(0)
    await settle(made)
    assert max(each) < 2 * SLICE_RUNS
    assert sum(each) > MANY
    assert sorted(made.edge.evictions) == ([] if gone else ["x0", "x59", "y0", "y59"])


@pytest.mark.parametrize("holds", [True, False])
async def test_extenders_are_told_of_victims_found_in_slices(holds):
    agreed = meta(n3=["uid-default-x3", "uid-default-y3"])
    async with FakeExtender(preempt=agreed) as fake:
        made = full(extended(document(fake.url, preemptVerb="preempt"), nodes=()))
        made.comes("high", **HIGH)
        slices = []

        def told(*_):
            slices.append(fake.verbs())
            if not holds and slices[-3:] == [["preempt"]] * 3 and not made.edge.evictions:
                stays = low("stays", "n3", cpu="0", priority=20)
                made.handlers.pods.on_add(stays)

        made.scheduler.placement.slices_observers.append(told)
        await settle_extended(made, lambda: made.edge.evictions or made.edge.conditions)
    [(_, asked)] = fake.asked
    assert len(asked["NodeNameToMetaVictims"]) == MANY
    assert len(slices) > 3
    assert sorted(made.edge.evictions) == (["x3", "y3"] if holds else [])


def recorded():
    out = io.BytesIO()
    recorder = Recorder(out, lambda: ())
    made = full(cache=recorder.cache)
    recorder.rules("", {}, {})
    made.scheduler.observe(recorder.placed)
    made.scheduler.placement.slices_observers.append(recorder.sliced)
    return made, out


def replayed(out, path):
    path.write_bytes(out.getvalue())
    report = replay(path, lambda *_: Frameworks([chain({})]))
    return report.decisions, report.differences


async def test_a_journal_has_every_slice(tmp_path):
    made, out = recorded()
    stays = low("stays7", "n7", priority=20, cpu="0")
    made.add([stays])
    made.comes("high", **HIGH)
    working(made, 6)
    taken(made)
    made.handlers.pods.on_delete(stays)  # n7 would do now, and is not tried twice
    made.handlers.pods.on_delete(low("x7", "n7"))
    await settle(made)
    assert sorted(made.edge.evictions) == ["x0", "y0"]
    assert b'"what":"slice"' in out.getvalue()
    assert replayed(out, tmp_path / "journal") == (1, [])


@pytest.mark.parametrize("nodes", [MANY, 4])
async def test_a_journal_takes_a_search_that_came_to_nothing_for_none(tmp_path, nodes):
    made, out = recorded()
    pod = made.comes("high", **HIGH)
    working(made, 6)
    made.handlers.pods.on_delete(pod)
    await settle(made)
    for number in range(nodes, MANY):  # so that the next one is over at once
        made.handlers.nodes.on_update(node(f"n{number}"), node(f"n{number}", unschedulable=True))
    for word in "xy":
        made.handlers.pods.on_delete(low(f"{word}3", "n3"))
    made.add([low("better", "n3", priority=-9, cpu="2")])
    made.handlers.pods.on_add(pod)
    await settle(made)
    assert made.edge.evictions == ["better"]
    assert replayed(out, tmp_path / "journal") == (1, [])


# ---- it ends -------------------------------------------------------------------------------------

#: Others' labels matter, and any number of them is all right: amounts decide where there are none.
SPREAD = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 100,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"a": "b"}},
        }
    ]
}
MUTUAL = """preempt: pod.name is m -> victims where it.name is high and it.priority < 100
preempt: victims where it.priority < pod.priority
"""
#: A team takes back what is lent, of which no node has enough; then anybody may go.
LENT = """quota: by pod.label[team] min cpu 40 max cpu 200 elastic
preempt: victims where it.priority < pod.priority
"""


@pytest.mark.parametrize(
    ("rule", "cpu", "others", "more"), [(MUTUAL, "1", 0, "1"), (LENT, "1500m", 20, "500m")]
)
def test_what_another_turn_found_of_the_node_is_no_matter(rule, cpu, others, more):
    """The first asked about it one by one; in the second amounts decide there."""
    cache, framework, team = Cache(), chain({"p.policy": rule}), {"a": "b", "team": "t"}
    for number in range(MANY):
        cache.add_node(node(f"n{number}"))
        for word, labels in (("x", team), ("y", {"a": "b"})):
            pod = make_pod(f"{word}{number}", cpu="1", priority=others, labels=labels)
            cache.add_pod(pod, f"n{number}")
    cache.add_node(node("best"))
    cache.add_pod(make_pod("m", cpu=more, priority=others or -2, labels=team), "best")
    cache.add_pod(make_pod("l", cpu=cpu, priority=-1), "best")
    high = make_pod("high", cpu=cpu, priority=10, spec=SPREAD, labels={"team": "s"})
    progress, snapshot, found = SearchProgress(SLICE_RUNS), cache.snapshot(NOW), None
    for _ in range(200):
        with suppress(UnfinishedError):
            found = conclude(high, snapshot, framework, None, progress)
            break
    assert found is not None
    assert _told(found.rescue) == _told(conclude(high, snapshot, framework).rescue)
    assert _told(found.rescue) == ("best", ["l"])


def test_where_all_changes_faster_than_one_looks_a_search_ends_in_vain():
    progress, snapshot = SearchProgress(1), Cache().snapshot(NOW)
    goes = Evict(make_pod("x"), make_pod("p"), "")
    chosen = ended = PostFilterResult(Status.SUCCESS, nominated="n", evictions=(goes,))
    for _ in range(1_000):
        progress.begin(None, None)
        with suppress(UnfinishedError):
            progress.recall((0, "n"), "n", lambda: (1, ("other",), None))
            ended = progress.renew(chosen, snapshot)
            if ended is not chosen:
                break
    assert (ended.status.code, ended.nominated, ended.evictions) == (Code.UNSCHEDULABLE, None, ())


# ---- in slices as in one piece -------------------------------------------------------------------

POLICIES = [
    {},
    {"p.policy": "preempt: victims where it.priority < pod.priority across 3 nodes\n"},
    {"p.policy": "preempt: victims where it.name contains '1' or it.label c=d limit 3\n"},
    {"p.policy": "filter: count(node.pods where it.label c=d) < 1\n"},
]
_PODS = st.lists(
    st.tuples(
        st.integers(0, 5), st.sampled_from(["400m", "1"]), st.integers(-2, 1), st.sampled_from("bd")
    ),
    max_size=14,
)


_CHANGES = st.lists(
    st.tuples(st.integers(0, 13), st.integers(0, 5), st.integers(-2, 2), st.sampled_from("bd")),
    max_size=6,
)


def _added(cache, number, at, cpu, priority, word):
    labels = {"a": "b"} if word == "b" else {"c": "d"}
    cache.add_pod(make_pod(f"p{number}", cpu=cpu, priority=priority, labels=labels), f"n{at}")


@settings(max_examples=examples(200), deadline=None)
@given(
    _PODS, st.sampled_from(POLICIES), st.integers(1, 4), st.sampled_from(["zone", "host"]), _CHANGES
)
def test_slices_find_what_one_piece_finds_and_what_holds_when_the_cluster_moves_on(
    pods, files, runs, key, changes
):
    cache = Cache()
    for number in range(6):
        labels = {"zone": f"z{number % 2}", "host": f"h{number}"}
        cache.add_node(make_node(f"n{number}", cpu="1", labels=labels))
    for number, (at, cpu, priority, word) in enumerate(pods):
        _added(cache, number, at, cpu, priority, word)
    new = make_pod("new", cpu="1", priority=1, spec=apart(key))
    framework, progress, sliced, left = chain(files), SearchProgress(runs), None, list(changes)
    for _ in range(2_000):
        snapshot = cache.snapshot(NOW)
        try:
            sliced = conclude(new, snapshot, framework, None, progress)
            break
        except UnfinishedError:
            if left:
                number, at, priority, word = left.pop()
                cache.remove_pod(f"uid-default-p{number}")
                if priority < 2:
                    _added(cache, number, at, "400m", priority, word)
    assert sliced is not None, "it comes to an end"
    at_once = conclude(new, snapshot, framework)
    assert sliced.node == at_once.node
    if left == changes:  # nothing has changed meanwhile
        assert (sliced.message, _told(sliced.rescue)) == (at_once.message, _told(at_once.rescue))
    elif sliced.rescue is not None and sliced.rescue.nominated:
        row, uids = snapshot.nodes.row(sliced.rescue.nominated), _told(sliced.rescue)[1]
        gone = [one for one in range(snapshot.pods.size) if snapshot.pods.node[one] >= 0]
        gone = [one for one in gone if snapshot.pods.pod(one).name in uids]
        trial = framework.trial(new, snapshot, what_if=True)
        assert without(trial, row, snapshot.pods, np.array(gone, np.intp)).fits()
        if at_once.rescue.choices is not None:
            there, _ = at_once.rescue.choices.victims()[sliced.rescue.nominated]
            assert [one.name for one in there] == uids


def _told(rescue):
    return (
        None if rescue is None else (rescue.nominated, [one.pod.name for one in rescue.evictions])
    )
