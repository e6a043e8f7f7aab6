"""Gangs within a domain: planned in slices, others between them; the cheapest domain emptied."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from engine.clock import ManualClock
from engine.explain.gangs import group_of, start_of
from engine.framework.events import Resource
from engine.framework.profile import Weighted
from engine.gangplan import MOST_DOMAINS, in_slices
from engine.objects import from_builtins
from engine.objects.storage import StorageClass
from engine.objects.workloads import PodDisruptionBudget, SchedulingPodGroup
from engine.plugins.default_preemption import DefaultPreemption
from engine.plugins.out_of_tree import Loaded, checked
from engine.pods.podinfo import make_pod_info
from engine.queue import SubQueue
from tests.builders import default_plugins, make_node, pod_object
from tests.engine.plugins.volumes import builders as volumes
from tests.engine.test_gangs import GANG, condition, deleted, evicted, gang, member
from tests.engine.test_preemption import being_deleted, settle
from tests.engine.test_scheduler import World

ZONE = "topology.kubernetes.io/zone"
WITHIN = GANG + " within zone\n"


class Ticking(ManualClock):
    """Each look at it takes a millisecond, so that a slice is a step or two."""

    def monotonic(self):
        self._monotonic += 0.001
        return self._monotonic


def node(name):
    """Its first letter is its zone; it takes one member."""
    return make_node(name, cpu="2", labels={ZONE: f"z{name[0]}"})


def world(*nodes, text=WITHIN, **how):
    made = World({"p.policy": text}, nodes=(), **how)
    for name in nodes:
        made.handlers.nodes.on_add(node(name))
    return made


def low(made, name, priority=0, **how):
    return made.comes(f"low-{name}", node=name, cpu="1500m", priority=priority, **how)


def binds(made):
    return dict(made.edge.binds)


def work(made, slices):
    """Some slices, of which none is the last."""
    for _ in range(slices):
        assert made.scheduler.work()


BESIDE = "require: pod.label with -> any(zone.pods where it.name == pod.label[with])\n"
TOGETHER = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
    {"labelSelector": {"matchLabels": {"role": "leader"}}, "topologyKey": ZONE}
]}}  # fmt: skip


@pytest.mark.parametrize("within", [" within zone\n", "\n"])
@pytest.mark.parametrize("by", ["rule", "affinity"])
@pytest.mark.parametrize("leader", [0, 2])
async def test_members_that_need_another_one_beside_them_start_with_it(leader, by, within):
    made = world("a1", "b1", "b2", "b3", text=GANG + within + BESIDE)
    for number in range(3):
        leads = number == leader
        labels = {"role": "leader"} if leads else {"with": f"g-{leader}"} if by == "rule" else {}
        spec = {} if leads or by == "rule" else {"affinity": TOGETHER}
        member(made, "g", number, size=3, labels=labels, spec=spec)
    await settle(made)
    assert {at[0] for at in binds(made).values()} == {"b"}
    assert len(made.edge.binds) == 3


@pytest.mark.parametrize("by", ["rule", "affinity"])
@pytest.mark.parametrize("full", [False, True])
async def test_members_are_asked_again_once_another_one_that_they_need_has_a_place(by, full):
    """Also where the gang may wait for some, and where others have to go for each of them."""
    made = world("a1", "a2", text=f"{GANG} wait 60s reject above 40% missing\n{BESIDE}")
    for name in ("a1", "a2", "a3") if full else ():
        made.handlers.nodes.on_add(node(name))
        low(made, name)
    for number in range(3):
        labels = {"role": "leader"} if number == 2 else {"with": "g-2"} if by == "rule" else {}
        spec = {} if number == 2 or by == "rule" else {"affinity": TOGETHER}
        member(made, "g", number, size=3, priority=10, labels=labels, spec=spec)
    await settle(made)
    assert made.edge.evictions == (["low-a1", "low-a2", "low-a3"] if full else [])
    waits = [made.where(f"g-{number}") is SubQueue.WAITING for number in range(3)]
    assert waits == ([False] * 3 if full else [True, False, True])


@pytest.mark.parametrize("by", ["rule", "affinity"])
@pytest.mark.parametrize("within", [" within zone\n", "\n"])
async def test_a_leader_is_reached_behind_however_many_members_that_need_it(by, within):
    """Of which a rule reads what none has in common with another."""
    own = "require: node.name != pod.name\nrequire: pod.label role=leader -> node.name is a0\n"
    made = world(*(f"a{number}" for number in range(30)), text=f"{GANG}{within}{BESIDE}{own}")
    for name in list(made.cache.nodes.names()):
        low(made, name)
    for number in range(30):
        leads = number == 29
        labels = {"role": "leader"} if leads else {"with": "g-29"} if by == "rule" else {}
        spec = {} if leads or by == "rule" else {"affinity": TOGETHER}
        member(made, "g", number, size=30, priority=10, labels=labels, spec=spec)
    await settle(made)
    assert len(made.edge.evictions) == 30


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("leader", [0, 29])
async def test_a_leader_gets_a_node_beside_which_its_workers_have_room(leader, full):
    """The best, the tightest and the cheapest nodes are in zones too small for all of them."""
    made = world(*(f"{zone}{at}" for zone in "abcd" for at in range(30 if zone == "c" else 20)),
                 text=GANG + "\n")  # fmt: skip
    for name in list(made.cache.nodes.names()):
        used, priority = {"a": (0, 0), "b": (0, 1), "c": (400, 2), "d": (450, 1)}[name[0]]
        made.comes(f"used-{name}", node=name, cpu=f"{used}m", priority=100)
        if full:
            low(made, name, priority)
    for number in range(30):
        leads = number == leader
        labels, spec = ({"role": "leader"}, {}) if leads else ({}, {"affinity": TOGETHER})
        member(made, "g", number, size=30, priority=10, labels=labels, spec=spec)
    members = [one.pod for one in made.queue.pending()]
    group = group_of(members[0], members[1:], made.snapshot(), made.framework)
    start = start_of(group, made.cache, made.snapshot, made.framework)
    assert {made.cache.nodes.name(row)[0] for row in start.rows} == (set() if full else {"c"})
    await settle(made)
    zones = [one[4] for one in made.edge.evictions] or [one[0] for one in binds(made).values()]
    assert zones == ["c"] * 30
    assert len(made.edge.evictions) == (30 if full else 0)


@pytest.mark.parametrize("more", ["", "require: count(zone.pods) < 9\n"])
async def test_what_members_are_promised_is_in_the_way_of_no_plan_that_is_told_of(more):
    made = world("a1", "a2", text=GANG + "\n" + more)
    made.comes("low", node="a1", cpu="100m")
    for number in range(2):
        made.cache.nominate(make_pod_info(member(made, "g", number, size=2)), "a1")
    members = [one.pod for one in made.queue.pending()]
    promised = dict(made.cache.nominations.nodes)
    assert len(promised) == 2
    group = group_of(members[0], members[1:], made.snapshot(), made.framework)
    start = start_of(group, made.cache, made.snapshot, made.framework)
    assert {made.cache.nodes.name(row) for row in start.rows} == {"a1", "a2"}
    assert made.cache.nominations.nodes == promised


async def test_hopeless_zones_use_up_no_search_of_another_one():
    """Nor where a rule reads of each member what no other has."""
    made = world(*(f"{zone}{number}" for zone in "abcdefghi" for number in range(50)),
                 text=f"{WITHIN}require: node.name != pod.name\n")  # fmt: skip
    for name in list(made.cache.nodes.names()):
        low(made, name, 0 if name[0] == "i" else 100)
    for number in range(50):
        member(made, "g", number, size=50, priority=10)
    await settle(made)
    assert {name[:5] for name in made.edge.evictions} == {"low-i"}
    assert len(made.edge.evictions) == 50


# ---- slices --------------------------------------------------------------------------------------


async def test_other_pods_are_decided_about_between_the_slices_of_a_plan():
    made = world("a1", "a2", "b1", clock=Ticking())
    for number in range(2):
        member(made, "g", number, size=2)
    other = made.comes("other", cpu="100m")
    while other.metadata.uid not in made.cache.assigned():
        work(made, 1)
    assert made.scheduler.gangs.busy
    assert set(made.cache.assigned()) == {other.metadata.uid}
    await made.turn()
    assert {name: at[0] for name, at in binds(made).items() if name != "other"} == {
        "g-0": "a",
        "g-1": "a",
    }


async def planned(made, meanwhile):
    """The zones of a gang of two, with something done after a few slices of its plan."""
    for number in range(2):
        member(made, "g", number, size=2)
    while not made.scheduler.gangs.shares:
        work(made, 1)
    work(made, 2)
    meanwhile()
    assert made.scheduler.gangs.shares
    await made.turn()
    return {binds(made)[f"g-{number}"][0] for number in range(2)}


async def test_a_plan_that_others_made_outdated_is_made_again():
    nodes = "a1", "a2", "b1", "b2"
    (liked,) = await planned(world(*nodes, clock=Ticking()), lambda: None)
    made = world(*nodes, clock=Ticking())
    there = {"nodeSelector": {ZONE: f"z{liked}"}}
    (other,) = await planned(made, lambda: made.comes("other", cpu="1500m", spec=there))
    assert binds(made)["other"][0] == liked
    assert other != liked


async def test_a_plan_is_made_anew_where_a_node_goes_while_it_is_made():
    made = world("a1", "a2", "b1", "b2", clock=Ticking())
    for number in range(2):
        member(made, "g", number, size=2)
    work(made, 2)
    assert made.scheduler.gangs.busy
    for name in ("a1", "b2"):
        made.handlers.nodes.on_delete(node(name))
    made.handlers.nodes.on_add(node("a3"))
    await made.turn()
    assert sorted(binds(made).values()) == ["a2", "a3"]


def test_what_takes_longer_than_a_slice_to_think_away_ends_all_the_same():
    """A thousand victims did: a gang sought them for ever, and nobody else was decided about."""
    clock, done = ManualClock(), []

    class Slow(nullcontext):
        def __enter__(self):
            clock.advance(1)

    def steps():
        for number in range(9):
            done.append(number)
            clock.advance(0.4)
            yield

    slices = in_slices(steps(), clock, Slow())
    assert [len(done) for _ in slices] == [3, 6, 9]  # as long again as coming here took


@pytest.mark.parametrize("gangs", ["g", "gh"])
async def test_nodes_that_a_gang_gives_back_after_slices_wake_no_gang_that_was_tried(gangs):
    """Or gangs that do not fit would be tried for ever, by themselves or in turns."""
    made = world("a1", "a2", text=f"{GANG}\n", clock=Ticking())
    tried = []
    made.scheduler.observe(lambda placed: tried.append(placed.decision.pod.name))
    for name in gangs:
        for number in range(3):
            member(made, name, number)
    for _ in range(500):
        if not made.scheduler.work():
            break
    assert condition(made, "g-0").startswith("gang g: 2 of the 3 members that it needs fit")
    assert made.queue.counts()[SubQueue.UNSCHEDULABLE] == len(gangs) * 3
    many = len(tried)
    for _ in range(20):
        made.scheduler.work()
    assert len(tried) == many


async def test_who_was_asked_while_members_had_nodes_is_told_when_they_give_them_back():
    gate = "gate: pod.name is large -> cluster.cpu.free >= 4"
    made = World({"p.policy": f"{GANG}\n{gate}\n"}, nodes=(), clock=Ticking())
    made.handlers.nodes.on_add(make_node("n", cpu="6"))
    other = made.comes("other", node="n", cpu="3")
    made.comes("large", cpu="4")
    for number in range(5):
        member(made, "g", number, size=5)
    while not {"uid-default-g-0", "uid-default-g-1"} <= set(made.cache.assigned()):
        made.scheduler.work()
    deleted(made, other)
    made.scheduler.work()
    assert made.where("large") is SubQueue.GATED
    await made.turn()
    assert binds(made) == {"large": "n"}


async def test_a_member_of_another_gang_waits_for_the_end_of_a_turn():
    made = world("a1", "a2", "b1", "b2", clock=Ticking())
    for name in ("g", "h"):
        for number in range(2):
            member(made, name, number, size=2)
    await made.turn()
    zones = {name: {at[0] for who, at in made.edge.binds if who[0] == name} for name in "gh"}
    assert sorted(map(sorted, zones.values())) == [["a"], ["b"]]
    assert made.scheduler.gangs.next() is None


async def test_new_rules_end_a_search_and_leave_nothing_behind():
    text = WITHIN + "preempt: victims where it.priority < pod.priority\n"
    made = world("a1", "a2", text=text, clock=Ticking())
    for name in ("a1", "a2"):
        low(made, name)
    before = made.cache.assigned()
    for number in range(2):
        member(made, "g", number, size=2, priority=10)
    for slices in range(1, 40):
        made.clock.advance(11.0)
        for _ in range(slices):
            made.scheduler.work()
        if made.edge.evictions or not made.scheduler.gangs.busy:
            break
        made.scheduler.use(made.framework, frozenset())
        assert made.cache.assigned() == before
    assert slices > 5
    await made.turn(after=11.0)
    assert await evicted(made) == ["low-a1", "low-a2"]


async def test_room_that_a_pod_leaves_wakes_a_gang_that_did_not_fit_within_a_domain():
    made = world("a1", "a2", "b1")
    other = low(made, "a2")
    await gang(made, "g", 2, size=2)
    assert not made.edge.binds
    deleted(made, other)
    await made.turn(after=11.0)
    assert sorted(binds(made).values()) == ["a1", "a2"]


# ---- who is evicted ------------------------------------------------------------------------------


def of_another_package():
    """The default plugins, of which a wrapper hands on the answers of preemption."""
    own = DefaultPreemption()
    theirs = Loaded(own, "Theirs", checked(own.points()))
    every = [one for one in default_plugins() if one.plugin.name != own.name]
    return [*every, Weighted(theirs)]


@pytest.mark.parametrize("plugins", [default_plugins, of_another_package])
async def test_the_domain_is_emptied_whose_victims_cost_least(plugins):
    made = world("a1", "a2", "b1", "b2", "c1", in_tree=plugins())
    each = (("a1", 1), ("a2", 5), ("b1", 4), ("b2", 4), ("c1", 0))
    pods = {name: low(made, name, priority) for name, priority in each}
    await gang(made, "g", 2, size=2, priority=10)
    assert await evicted(made) == ["low-b1", "low-b2"]
    assert condition(made, "g-0") == "gang g: preempts on b1, b2 (p.policy:1)"
    for _ in range(2):  # victims that do not go are waited for
        await made.turn(after=11.0)
    assert len(made.edge.evictions) == 2
    for name in ("b1", "b2"):
        deleted(made, pods[name])
    await made.turn(after=11.0)
    assert sorted(binds(made).values()) == ["b1", "b2"]
    assert not len(made.cache.nominations)


async def test_for_who_is_left_over_pods_go_from_the_domain_of_the_gang():
    made = world("a1", "a2", "a3", "b1")
    pods = {name: low(made, name, priority) for name, priority in (("a3", 5), ("b1", 0))}
    await gang(made, "g", 3, size=2, priority=10)
    assert sorted(binds(made).values()) == ["a1", "a2"]
    await made.turn(after=11.0)
    assert await evicted(made) == ["low-a3"]
    deleted(made, pods["a3"])
    await made.turn(after=11.0)
    assert sorted(binds(made).values()) == ["a1", "a2", "a3"]


@pytest.mark.parametrize(
    ("pick", "emptied"),
    [("pick victims.count", "b"), ("pick victims.max_priority", "a"), ("", "a")],
)
async def test_a_policy_says_what_a_domain_costs(pick, emptied):
    rule = f"preempt: victims where it.priority < pod.priority {pick}\n"
    made = world("a1", "a2", "b1", "b2", text=WITHIN + rule)
    for name, priority in (("a1", 1), ("a2", 1), ("b1", 4)):
        low(made, name, priority)
    await gang(made, "g", 2, size=2, priority=10)
    assert {name[4] for name in await evicted(made)} == {emptied}


async def test_a_budget_counts_before_priorities():
    made = world("a1", "b1")
    low(made, "a1", 1, labels={"app": "db"})
    low(made, "b1", 5)
    budget = {
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}},
        "status": {"disruptionsAllowed": 0},
    }
    made.cache.set_object(from_builtins(PodDisruptionBudget, budget))
    await gang(made, "g", 1, size=1, priority=10)
    assert await evicted(made) == ["low-b1"]


async def test_nobody_is_evicted_where_no_domain_takes_the_gang_even_empty():
    made = world("a1", "a2", "b1", "b2", "b3")
    for name in ("a1", "a2", "b1"):
        low(made, name)
    low(made, "b2", 20)
    held = made.cache.assigned()
    await gang(made, "g", 3, priority=10)
    assert await evicted(made) == []
    assert made.cache.assigned() == held
    assert condition(made, "g-0").startswith("gang g: 1 of the 3 members that it needs fit in one")


async def test_while_victims_go_in_one_domain_nobody_goes_in_another():
    made = world("a1", "a2", "b1", "b2")
    pods = {name: low(made, name, 1) for name in ("a1", "a2", "b1", "b2")}
    await gang(made, "g", 2, size=2, priority=10)
    assert await evicted(made) == ["low-a1", "low-a2"]
    # One is gone, of the other only the deletion is known.
    deleted(made, pods["a1"])
    made.handlers.pods.on_update(pods["a2"], being_deleted(pods["a2"]))
    await made.turn(after=11.0)
    assert await evicted(made) == ["low-a1", "low-a2"]
    assert not made.edge.binds
    deleted(made, pods["a2"])
    await made.turn(after=11.0)
    assert sorted(binds(made).values()) == ["a1", "a2"]


async def test_so_many_domains_are_tried_those_with_most_room_first():
    names = [f"{chr(97 + n)}{k}" for n in range(MOST_DOMAINS + 2) for k in (1, 2)]
    made = world(*names)
    last = names[-1][0]
    for name in names:
        if name != f"{last}2":
            # Only the last but one, beyond the bound, would be cheaper.
            low(made, name, 5 if name[0] != names[-3][0] else 0)
    await gang(made, "g", 2, size=2, priority=10)
    assert await evicted(made) == [f"low-{last}1"]


@pytest.mark.parametrize("enough", ["a", "b"])
async def test_where_one_domain_has_too_few_volumes_a_gang_goes_to_another(enough):
    """A plan knows of room alone."""
    made = world("a1", "a2", "b1", "b2")
    late, nobody = "WaitForFirstConsumer", "kubernetes.io/no-provisioner"
    volumes.put(made.cache, StorageClass, "late", provisioner=nobody, volumeBindingMode=late)
    for number, zone in enumerate(("a", "b", enough)):
        volumes.volume(made.cache, f"pv-{number}", on={ZONE: f"z{zone}"})
    for number in range(2):
        volumes.claim(made.cache, f"claim-{number}")
        data = {"name": "data", "persistentVolumeClaim": {"claimName": f"claim-{number}"}}
        member(made, "g", number, size=2, spec={"volumes": [data]})
    await made.turn()
    assert [node[0] for node, _ in made.cache.assigned().values()] == [enough] * 2


# ---- what may be missing -------------------------------------------------------------------------


async def test_a_gang_that_may_wait_waits_in_one_domain_and_tries_another_after_its_time():
    made = world(
        "a1", "a2", "b1", "b2", text=f"{GANG} wait 60s reject above 34% missing within zone\n"
    )
    for number in range(3):
        member(made, "g", number, size=3)
    await made.turn()
    assert binds(made) == {}
    [zone] = {node[0] for node, _ in made.cache.assigned().values()}
    assert len(made.cache.assigned()) == 2
    other = "ab".replace(zone, "")
    made.handlers.nodes.on_add(node(f"{other}3"))
    await made.turn()
    assert {node[0] for node, _ in made.cache.assigned().values()} == {zone}
    await made.turn(after=61.0)
    await made.turn()
    assert sorted(binds(made).values()) == [f"{other}{number}" for number in (1, 2, 3)]


async def test_of_zones_with_nodes_as_good_as_each_other_the_fullest_is_taken():
    """The others stay whole for a larger gang."""
    for filled in "abcd":
        made = world(*(f"{zone}{at}" for zone in "abcd" for at in range(3)))
        made.comes("there", node=f"{filled}0", cpu="1500m")
        await gang(made, "g", 2, size=2)
        assert {node[0] for node in binds(made).values()} == {filled}


@pytest.mark.parametrize(("taken", "chosen"), [("", "b"), ("a", "a")])
async def test_a_group_of_kubernetes_goes_where_its_topology_is_fullest_with_it(taken, chosen):
    made = World({"p.policy": "gang: by pod.group\n"}, nodes=())
    for name in ("a1", "a2", "a3", "b1", "b2"):
        made.handlers.nodes.on_add(make_node(name, cpu="2", labels={"rack": name[0]}))
    if taken:  # so that five fill both racks, of which the other one takes four
        made.comes("there", node="a1", cpu="1")
    spec = {
        "schedulingPolicy": {"gang": {"minCount": 3}},
        "schedulingConstraints": {"topology": [{"key": "rack"}]},
    }
    body = {"metadata": {"name": "g", "namespace": "default"}, "spec": spec}
    group = from_builtins(SchedulingPodGroup, body)
    made.handlers.of(Resource.SCHEDULING_POD_GROUP).on_add(group)
    for number in range(5 if taken else 3):
        made.comes(f"p{number}", cpu="1", spec={"schedulingGroup": {"podGroupName": "g"}})
    await made.turn()
    assert {node[0] for node in binds(made).values()} == {chosen}


async def test_members_beyond_a_quota_are_made_room_for_in_one_zone_too():
    lines = (
        "gang: by pod.label[job] min 2 within zone",
        "quota: by pod.namespace max cpu 8",
        "preempt: victims where it.priority < pod.priority pick victims.sum_priority",
    )
    made = World({"p.policy": "\n".join(lines) + "\n"}, nodes=())
    for number in (1, 2):
        labels = {ZONE: f"z{number}"}
        made.handlers.nodes.on_add(make_node(f"n{number}", cpu="4", labels=labels))
    for name, node, priority in (("a", 1, 1), ("b", 2, 2), ("c", 1, 3), ("d", 2, 4)):
        pod = pod_object(name, cpu="2", node=f"n{node}", priority=priority)
        made.handlers.pods.on_add(pod)
    for number in range(2):
        made.comes(f"p{number}", cpu="2", priority=9, labels={"job": "j"})
    await settle(made)
    assert sorted(made.edge.evictions) == ["a", "c"]
    assert sorted(made.edge.nominations) == [("p0", "n1"), ("p1", "n1")]
