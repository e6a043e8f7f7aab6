"""Gangs in a running scheduler: enough members start together, or none keeps a node."""

from __future__ import annotations

import asyncio
import gc
import io
import itertools
import weakref
from dataclasses import replace

import pytest

from engine.cli.replay import frameworks_of
from engine.configuration.settings import Settings
from engine.framework.events import Resource
from engine.framework.runtime import Framework
from engine.framework.snapshot import NodeColumns
from engine.framework.trials import Trial
from engine.gangs.rescue import Rescuers
from engine.journal.recorder import Recorder
from engine.journal.replay import replay
from engine.objects import from_builtins
from engine.objects.storage import StorageClass
from engine.objects.workloads import PodGroup
from engine.pods.podinfo import make_pod_info
from engine.policy import gangs
from engine.policy.accounts import MOST_NAMED
from engine.queue import SubQueue
from tests.builders import make_node, pod_object
from tests.engine.plugins.volumes import builders as volumes
from tests.engine.policy.builders import chain, policies
from tests.engine.test_preemption import being_deleted, settle
from tests.engine.test_scheduler import BOUND, GONE, REFUSED, UNKNOWN, World, until

GANG = "gang: by pod.label[gang] min number(pod.label[size])"


def world(text=GANG, nodes=("n1", "n2", "n3"), **how):
    return World({"p.policy": f"{text}\n"}, nodes=nodes, **how)


def member(made, gang, number, size=3, *, cpu="1500m", **how):
    """A pod of a gang; a node takes one of 1500m."""
    labels = {"gang": gang, "size": str(size), **how.pop("labels", {})}
    return made.comes(f"{gang}-{number}", cpu=cpu, labels=labels, **how)


async def gang(made, name, count, **how):
    pods = [member(made, name, number, **how) for number in range(count)]
    await made.turn()
    return pods


def told(made, name, reason="FailedScheduling"):
    return [note for pod, _, why, note in made.edge.events if (pod, why) == (name, reason)]


def condition(made, name):
    """The last that the pod was told."""
    return next(text for pod, _, text in reversed(made.edge.conditions) if pod == name)


def deleted(made, pod):
    made.handlers.pods.on_delete(pod)


ALL_KINDS = f"""\
{GANG}
filter: pod.name contains a -> node.name is not n9
filter: pod.label capped -> count(zone.pods where it.label capped) < 9
score: 100 - node.cpu.requested/node.cpu.allocatable*100
quota: by pod.namespace max cpu 100
gate: pod.label later -> pod.annotation go=yes
permit: pod.label hold -> wait 9s until pod.annotation go=yes
preempt: victims where it.priority < pod.priority order it.priority asc
prebind: pod.label note -> annotate example.com/zone = node.zone
"""


async def test_rules_that_are_replaced_go_at_once_with_all_that_was_kept_for_them():
    """Not when the collector looks at everything, minutes later: the classes may take 96 MiB."""
    made = world()
    rules = chain({"p.policy": ALL_KINDS})
    before = weakref.ref(rules)
    gc.disable()
    try:
        made.scheduler.use(rules, None)
        del rules
        await gang(made, "a", 3)
        member(made, "b", 0)
        made.comes("late", labels={"later": "yes"})
        await made.turn()
        assert before() is not None
        made.scheduler.use(chain({}), None)
        await made.turn()
        assert before() is None
    finally:
        gc.enable()


# ---- all or none ---------------------------------------------------------------------------------


async def test_members_start_together_when_the_last_one_comes():
    made = world()
    await gang(made, "a", 2)
    assert made.edge.binds == []
    assert condition(made, "a-0") == "gang a has 2 of the 3 members that it needs (p.policy:1)"
    member(made, "a", 2)
    await made.turn()
    assert sorted(name for name, _ in made.edge.binds) == ["a-0", "a-1", "a-2"]
    assert len({node for _, node in made.edge.binds}) == 3
    assert not [*made.queue.pending()]


async def test_a_gang_that_does_not_fit_takes_no_room():
    made = world(nodes=("n1", "n2"))
    await gang(made, "a", 3)
    assert made.edge.binds == []
    assert made.cache.assigned() == {}
    words = "gang a: 2 of the 3 members that it needs fit; no room for a-2 (p.policy:1)"
    assert condition(made, "a-0") == words
    assert condition(made, "a-2") == (f"{words}. 0/2 nodes are available: 2 Insufficient cpu.")
    made.comes("other", cpu="1500m")
    await made.turn()
    assert [name for name, _ in made.edge.binds] == ["other"]
    made.handlers.nodes.on_add(make_node("n3", cpu="2"))
    made.handlers.nodes.on_add(make_node("n4", cpu="2"))
    await made.turn(after=11.0)
    assert sorted(name for name, _ in made.edge.binds) == ["a-0", "a-1", "a-2", "other"]


async def test_room_that_another_pod_leaves_wakes_a_gang_that_did_not_fit():
    made = world()
    other = made.comes("other", node="n3", cpu="1500m")
    await gang(made, "a", 3)
    assert made.edge.binds == []
    deleted(made, other)
    await made.turn(after=11.0)
    assert len(made.edge.binds) == 3


async def test_of_two_gangs_that_do_not_both_fit_one_starts_whole():
    made = world(nodes=("n1", "n2", "n3"))
    for number in range(2):
        member(made, "a", number, size=2)
        member(made, "b", number, size=2)
    await made.turn()
    assert sorted(name for name, _ in made.edge.binds) == ["a-0", "a-1"]
    assert made.where("b-0") is SubQueue.UNSCHEDULABLE
    assert set(made.cache.assigned()) == {"uid-default-a-0", "uid-default-a-1"}


async def test_more_members_than_it_needs_come_as_there_is_room():
    made = world(nodes=("n1", "n2"))
    await gang(made, "a", 3, size=2)
    assert len(made.edge.binds) == 2
    words = "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available:"
    assert condition(made, "a-2") == f"{words} 2 No preemption victims found for incoming pod."
    made.handlers.nodes.on_add(make_node("n3", cpu="2"))
    await made.turn(after=11.0)
    assert made.edge.binds[-1] == ("a-2", "n3")


@pytest.mark.parametrize(("rule", "bound"), [("true", []), ("pod.name is a-0", ["a-1"])])
async def test_members_in_a_dry_run_do_not_have_turns_by_each_other_for_ever(rule, bound):
    made = world(f"{GANG}\nbind: {rule} -> dry run", nodes=("n1",))
    tries = itertools.count()
    made.scheduler.observe(lambda _: next(tries) < 100 or pytest.fail("for ever"))
    await gang(made, "a", 3, size=1)
    await made.turn()
    assert [name for name, _ in made.edge.binds] == bound


async def test_a_member_whose_binding_failed_backs_off_whoever_is_left_over():
    made = world(nodes=("n1",))
    made.edge.bind_answers.extend([REFUSED] * 100)
    await gang(made, "a", 2, size=1)
    for _ in range(50):
        await made.turn()
    assert [name for name, _ in made.edge.binds] == ["a-0", "a-1"]
    made.edge.bind_answers.clear()
    await made.turn(after=11.0)
    assert len(made.edge.binds) == 3


async def test_a_gang_waits_for_members_that_wait_after_an_error():
    made = world(nodes=("n1", "n2"))
    made.edge.bind_answers.extend([REFUSED, REFUSED])
    await gang(made, "a", 3, size=2)
    await made.turn()
    words = "gang a has 1 of the 2 members that it needs; a-0, a-1 waiting after an error"
    assert condition(made, "a-2") == f"{words} (p.policy:1)"
    await made.turn(after=11.0)
    assert len(made.edge.binds) == 4


@pytest.mark.parametrize("rule", ["permit: pod.label bad -> reject", "reserve: not pod.label bad"])
async def test_members_are_told_who_was_refused_where_all_of_them_fit(rule):
    made = world(f'{GANG}\n{rule} message "bad"')
    member(made, "a", 0)
    member(made, "a", 1, labels={"bad": "yes"})
    member(made, "a", 2)
    await made.turn()
    assert made.edge.binds == []
    words = "gang a: 3 of the 3 members that it needs fit; a-1 refused (p.policy:1)"
    assert condition(made, "a-0") == words
    assert condition(made, "a-1") == f"{words}. bad (p.policy:2)"


async def test_members_without_a_volume_of_their_own_do_not_fit():
    """A plan does not know which volumes are reserved for members that have a node."""
    made = world(nodes=(), cache=volumes.cluster("n1", "n2"))
    late, nobody = "WaitForFirstConsumer", "kubernetes.io/no-provisioner"
    volumes.put(made.cache, StorageClass, "late", provisioner=nobody, volumeBindingMode=late)
    for name in ("n1", "n2"):
        volumes.volume(made.cache, f"pv-{name}", on={volumes.HOST: name})
    for number in range(3):
        name = f"claim-{number}"
        volumes.claim(made.cache, name)
        data = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
        member(made, "a", number, cpu="100m", spec={"volumes": [data]})
    await made.turn()
    assert made.edge.binds == []
    words = "gang a: 2 of the 3 members that it needs fit; no room for a-2 (p.policy:1)"
    assert condition(made, "a-0") == words


@pytest.mark.parametrize("how", ["bound by hand", "bound by another scheduler", "labelled"])
async def test_a_member_that_others_put_on_a_node_is_the_one_that_was_missing(how):
    made = world()
    await gang(made, "a", 2)
    labels = {"gang": "a", "size": "3"}
    if how == "bound by hand":
        made.comes("b", node="n1", labels=labels)
    elif how == "bound by another scheduler":
        made.bound(made.comes("b", scheduler="other", labels=labels), "n1")
    else:
        old = made.comes("b", node="n1")
        made.edits(old, metadata={"labels": labels})
    made.comes("stranger", node="n1", labels={"gang": "other", "size": "3"})
    await made.turn(after=11.0)
    assert sorted(name for name, _ in made.edge.binds) == ["a-0", "a-1"]


async def test_pods_of_no_gang_and_of_another_namespace_are_not_its_members():
    made = world()
    await gang(made, "a", 2)
    made.comes("plain", cpu="1")
    member(made, "a", 2, namespace="elsewhere")
    await made.turn()
    assert [name for name, _ in made.edge.binds] == ["plain"]


async def test_members_that_a_gate_holds_are_missing():
    made = world()
    await gang(made, "a", 2)
    gated = member(made, "a", 2, spec={"schedulingGates": [{"name": "later"}]})
    await made.turn()
    member(made, "b", 0)
    await made.turn(after=400.0)
    assert "; a-2 held by a gate" in condition(made, "a-0")
    made.edits(gated, spec={"scheduling_gates": None})
    await made.turn()
    assert len(made.edge.binds) == 3


async def test_members_that_must_not_meet_get_nodes_of_their_own():
    apart = {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "labelSelector": {"matchLabels": {"gang": "a"}},
                        "topologyKey": "kubernetes.io/hostname",
                    }
                ]
            }
        }
    }
    made = World({"p.policy": GANG + "\n"}, nodes=())
    for name in ("n1", "n2", "n3"):
        labels = {"kubernetes.io/hostname": name}
        made.handlers.nodes.on_add(make_node(name, cpu="2", labels=labels))
    await gang(made, "a", 4, size=4, cpu="100m", spec=apart)
    assert made.edge.binds == []
    await gang(made, "a", 3, size=3, cpu="100m", spec=apart)


# ---- a plan --------------------------------------------------------------------------------------


async def test_small_members_do_not_take_the_only_room_of_a_large_one():
    made = World({"p.policy": GANG + "\n"}, nodes=())
    made.handlers.nodes.on_add(make_node("big", cpu="4"))
    made.handlers.nodes.on_add(make_node("small", cpu="2"))
    member(made, "a", 0, size=3, cpu="1")
    member(made, "a", 1, size=3, cpu="1")
    member(made, "a", 2, size=3, cpu="4")
    await made.turn()
    assert sorted(made.edge.binds) == [("a-0", "small"), ("a-1", "small"), ("a-2", "big")]
    assert len(made.cache.nominations) == 0


async def test_all_members_are_within_one_zone_or_none_starts():
    made = World({"p.policy": GANG + " within zone\n"}, nodes=())
    for name, zone in (("a1", "za"), ("a2", "za"), ("b1", "zb"), ("b2", "zb"), ("b3", "zb")):
        labels = {"topology.kubernetes.io/zone": zone}
        made.handlers.nodes.on_add(make_node(name, cpu="2", labels=labels))
    await gang(made, "a", 3)
    assert {node for _, node in made.edge.binds} == {"b1", "b2", "b3"}
    await gang(made, "c", 3)
    assert len(made.edge.binds) == 3
    assert condition(made, "c-0").startswith(
        "gang c: 2 of the 3 members that it needs fit in one zone"
    )
    # One more of a gang that runs stays in its zone, which is full.
    member(made, "a", 3)
    await made.turn()
    assert len(made.edge.binds) == 3
    assert condition(made, "a-3").startswith("gang a: no room for more members in its zone")


# ---- making room ---------------------------------------------------------------------------------


async def filled(made, *nodes):
    """A pod of little importance on each of the nodes."""
    pods = [made.comes(f"low-{node}", node=node, cpu="1500m", uid=f"low-{node}") for node in nodes]
    await made.turn()
    return pods


async def evicted(made):
    await made.scheduler.drain()
    return sorted(made.edge.evictions)


async def test_a_gang_takes_the_place_of_less_important_pods_and_starts_as_they_go():
    made = world()
    low = await filled(made, "n1", "n2", "n3")
    deleted(made, low[2])
    await gang(made, "a", 3, priority=10)
    assert await evicted(made) == ["low-n1", "low-n2"]
    assert made.edge.binds == []
    assert condition(made, "a-0") == "gang a: preempts on n1, n2 (p.policy:1)"
    for pod in low[:2]:
        deleted(made, pod)
    await made.turn(after=11.0)
    assert len(made.edge.binds) == 3
    assert len(made.cache.nominations) == 0
    assert await evicted(made) == ["low-n1", "low-n2"]


async def test_members_left_over_when_a_gang_starts_preempt_too():
    made = world()
    await filled(made, "n3")
    await gang(made, "a", 3, size=2, priority=10)
    assert len(made.edge.binds) == 2
    await made.turn(after=11.0)
    assert await evicted(made) == ["low-n3"]
    assert made.edge.nominations[-1][1] == "n3"


async def test_a_gang_takes_the_place_of_a_pod_that_is_being_bound():
    made = world(nodes=("n1", "n2"))
    answer = asyncio.get_running_loop().create_future()
    made.edge.bind_answers.append(answer)
    less = made.comes("less", cpu="1500m")
    made.scheduler.work()
    for number in range(2):
        member(made, "a", number, size=2, priority=10)
    await until(lambda: not made.scheduler.work() and made.edge.evictions)
    assert made.edge.evictions == ["less"]
    assert "gang a: preempts on" in condition(made, "a-1")
    answer.set_result(GONE)
    deleted(made, less)
    await made.turn(after=11.0)
    assert sorted(made.edge.binds)[:2] == [("a-0", "n1"), ("a-1", "n2")]


@pytest.mark.parametrize("running", [[], [0]])
async def test_no_member_is_evicted_for_another_one(running):
    """With a queue that is not sorted by priority the less important one has its node first."""
    made = world(f"{GANG}\nsort: pod.name", nodes=("n1", "n2")[: 1 + len(running)])
    for number in running:
        member(made, "a", number, node="n1")
    for number in (1, 2):
        member(made, "a", number, size=2 + len(running), priority=number * 5 + 5 * len(running))
    await settle(made)
    assert made.edge.evictions == []
    assert len(made.cache.assigned()) == len(running)
    assert all(made.queue.get(f"uid-default-a-{number}") for number in (1, 2))
    assert len(made.cache.nominations) == 0


@pytest.mark.parametrize("policy", ["", "\npreempt: victims where it.priority < pod.priority"])
async def test_nobody_is_evicted_for_one_more_member_of_its_gang(policy):
    made = world(f"{GANG}{policy}", nodes=("n1",))
    member(made, "a", 0, node="n1", size=1)
    member(made, "a", 1, size=1, priority=5)
    await settle(made)
    assert made.edge.evictions == []
    member(made, "b", 1, size=1, priority=5)
    await settle(made)
    assert made.edge.evictions == ["a-0"]
    assert [*made.cache.nominations.nodes] == ["uid-default-b-1"]


@pytest.mark.parametrize("policy", ["", "\npreempt: victims where it.priority < pod.priority"])
async def test_others_are_evicted_where_a_member_would_be_the_cheapest_victim(policy):
    made = world(f"{GANG}{policy}\nsort: pod.name", nodes=("n1", "n2", "n3"))
    member(made, "a", 0, node="n1", size=3, priority=0)
    for node in ("n2", "n3"):
        made.comes(f"low-{node}", cpu="1500m", node=node, priority=1)
    for number in (1, 2):
        member(made, "a", number, size=3, priority=5)
    await settle(made)
    assert sorted(made.edge.evictions) == ["low-n2", "low-n3"]


async def test_where_members_alone_could_go_on_several_nodes_the_search_ends():
    across = "preempt: victims where it.priority < pod.priority across 3 nodes"
    made = world(f"{GANG}\n{across}\nfilter: count(cluster.pods where it.priority < 5) < 1")
    for number in (0, 1):
        member(made, "a", number, node=f"n{number + 1}", size=4, priority=0)
    for number in (2, 3):
        member(made, "a", number, size=4, priority=5)
    await settle(made)
    assert made.edge.evictions == []


@pytest.mark.parametrize("policy", ["", "\npreempt: victims where it.priority < pod.priority"])
async def test_what_is_free_is_for_the_member_that_can_evict_the_fewest(policy):
    made = world(f"{GANG}{policy}\nsort: pod.name", nodes=("n1", "n2"))
    made.comes("mid", cpu="1500m", node="n2", priority=5)
    for number, priority in ((1, 0), (2, 9)):
        member(made, "a", number, size=2, priority=priority)
    await settle(made)
    assert made.edge.evictions == ["mid"]


async def test_while_its_victims_go_nobody_takes_the_room_that_a_gang_has_already():
    made = world()
    low = await filled(made, "n1", "n2")
    await gang(made, "a", 3, priority=10)
    assert await evicted(made) == ["low-n1", "low-n2"]
    made.comes("new", cpu="1500m")
    await made.turn()
    assert made.edge.binds == []
    for pod in low:
        deleted(made, pod)
    await made.turn(after=11.0)
    assert sorted(name for name, _ in made.edge.binds) == ["a-0", "a-1", "a-2"]
    assert len(made.cache.nominations) == 0


async def test_a_member_whose_victims_go_is_not_said_to_be_held_by_a_gate():
    made = world()
    await filled(made, "n1")
    slow = asyncio.get_running_loop().create_future()
    made.edge.evict_answers.append(slow)
    await gang(made, "a", 3, priority=10)
    await until(lambda: not made.edge.evict_answers)
    made.handlers.nodes.on_add(make_node("n4", cpu="100m"))
    await made.turn(after=11.0)
    assert condition(made, "a-0").startswith(
        "gang a has 2 of the 3 members that it needs; a-2 waiting for its victims to be gone"
    )
    slow.set_result(BOUND)
    await evicted(made)


async def test_while_a_gate_holds_a_member_for_long_the_others_claim_nothing():
    made = world(f"{GANG}\ngate: pod.label[hold] is missing", nodes=("n1", "n2"))
    for node in ("n1", "n2"):
        made.comes(f"low-{node}", cpu="1500m", node=node)
    pod = [member(made, "a", number, size=2, priority=5) for number in range(2)][-1]
    await settle(made)
    labels = {**pod.metadata.labels, "hold": "yes"}
    made.edits(pod, metadata={"labels": labels})
    for seconds, claims in ((50.0, 2), (20.0, 0)):
        await settle(made, after=seconds)
        assert len(made.cache.nominations) == claims


async def test_nobody_is_evicted_for_a_gang_that_could_not_start_even_then():
    made = world(nodes=("n1", "n2"))
    before = made.cache.assigned
    await filled(made, "n1", "n2")
    held = before()
    await gang(made, "a", 3, priority=10)
    assert await evicted(made) == []
    assert before() == held
    told = condition(made, "a-0")
    assert told.startswith("gang a: 0 of the 3 members that it needs fit")
    assert "If others were evicted, 2 would fit, but not a-2: 0/2 nodes are available: 2 " in told


async def test_of_a_member_that_goes_while_victims_are_looked_for_nothing_is_said(monkeypatch):
    made, looks = world(nodes=("n1", "n2")), Rescuers.rescue
    await filled(made, "n1", "n2")
    pods = [member(made, "a", number, priority=10) for number in range(3)]

    def goes(self, domains):
        deleted(made, pods[2])
        return looks(self, domains)

    monkeypatch.setattr(Rescuers, "rescue", goes)
    await made.turn()
    assert "If others were evicted" not in condition(made, "a-0")


async def test_while_its_victims_go_a_gang_looks_for_no_others():
    made = world(nodes=("n1", "n2", "n3", "n4"))
    low = await filled(made, "n1", "n2", "n3", "n4")
    await gang(made, "a", 2, size=2, priority=10)
    assert len(await evicted(made)) == 2
    for _ in range(3):
        await made.turn(after=11.0)
    assert len(await evicted(made)) == 2
    made.handlers.nodes.on_add(make_node("n5", cpu="2"))
    await made.turn(after=11.0)
    assert "; evicted pods have to be gone from n" in condition(made, "a-0")
    for pod in low:
        if pod.metadata.name in made.edge.evictions:
            deleted(made, pod)
    await made.turn(after=11.0)
    assert len(made.edge.binds) == 2


# ---- waiting -------------------------------------------------------------------------------------

WAITS = GANG + " wait 60s reject above 34% missing"


async def test_a_gang_that_may_wait_keeps_its_nodes_until_the_last_member_has_one():
    made = world(WAITS, nodes=("n1", "n2"))
    await gang(made, "a", 3)
    assert made.edge.binds == []
    assert [made.where(f"a-{n}") for n in range(3)] == [
        SubQueue.WAITING,
        SubQueue.WAITING,
        SubQueue.UNSCHEDULABLE,
    ]
    words = "gang a: 2 of 3 members have a node; a-2 missing"
    assert f"60 s at most: {words} (p.policy:1)" in told(made, "a-0", "WaitingOnPermit")[0]
    assert condition(made, "a-2").startswith(f"{words}. 0/2 nodes are available")
    made.handlers.nodes.on_add(make_node("n3", cpu="2"))
    await made.turn(after=11.0)
    assert sorted(name for name, _ in made.edge.binds) == ["a-0", "a-1", "a-2"]
    assert len(made.scheduler.waiting_pods) == 0


async def test_when_the_time_is_up_all_give_their_nodes_back():
    made = world(WAITS, nodes=("n1", "n2"))
    await gang(made, "a", 3)
    await made.turn(after=60.0)
    assert made.edge.binds == []
    for name in ("a-0", "a-1"):
        assert "timed out after 60 s: gang a: 2 of 3 members have a node" in told(made, name)[0]
    assert set(made.snapshot().objects("GangFailure")) == {"default/a"}


async def test_of_gangs_that_failed_the_last_ten_thousand_are_remembered():
    made = world()
    pod = make_pod_info(member(made, "a", 0))
    _, found = made.scheduler.framework.of(pod).gang(pod, made.snapshot())
    for name in ("a", "b", "a", *map(str, range(9_999))):
        made.scheduler.gangs.holds.failed(replace(found, name=name))
    known = made.snapshot().objects("GangFailure")
    assert (len(known), "default/a" in known, "default/b" in known) == (10_000, True, False)


async def test_a_gang_that_waits_no_time_keeps_no_node():
    made = world(WAITS.replace("60s", "0s"), nodes=("n1", "n2"))
    await gang(made, "a", 3)
    assert (len(made.scheduler.waiting_pods), len(made.edge.conditions)) == (0, 3)


@pytest.mark.parametrize(
    ("minimum", "words"),
    [(2, "Insufficient cpu"), (9, "has 3 of the 9"), (None, "does not say how many")],
)
async def test_members_that_wait_follow_what_their_group_asks_for(minimum, words):
    made = world(f"{COSCHEDULING} wait 60s reject above 34% missing", nodes=("n1", "n2"))
    before = pod_group("train", 3)
    made.handlers.of(Resource.POD_GROUP).on_add(before)
    for number in range(3):
        labelled(made, number, cpu="1500m")
    await made.turn()
    made.handlers.of(Resource.POD_GROUP).on_update(before, pod_group("train", minimum))
    await made.turn(after=11.0)
    assert len(made.edge.binds) == (2 if minimum == 2 else 0)
    assert (len(made.scheduler.waiting_pods), words in condition(made, "t-2")) == (0, True)


async def test_a_group_with_a_timeout_of_zero_waits_as_long_as_the_policy_says():
    made = world(f"{COSCHEDULING} wait 60s reject above 34% missing", nodes=("n1", "n2"))
    group = pod_group("train", 3, scheduleTimeoutSeconds=0)
    made.handlers.of(Resource.POD_GROUP).on_add(group)
    for number in range(3):
        labelled(made, number, cpu="1500m")
    await made.turn()
    assert "60 s at most: gang train: 2 of 3 members have a node" in condition(made, "t-0")


@pytest.mark.parametrize("sort", ["", "sort: group.last_failure ?? pod.first_attempt_at\n"])
async def test_a_pod_that_waited_longer_comes_before_a_gang_that_timed_out(sort):
    made = world(f"{sort}{WAITS}", nodes=("n1", "n2"))
    made.queue.on_change = lambda queued: made.cache.set_queued(queued.pod, queued.times)
    made.cache.attend(frozenset({"queue"}))
    await gang(made, "a", 3, labels={"scheduling.x-k8s.io/pod-group": "a"})
    made.clock.advance(1.0)
    made.comes("other", cpu="1500m")
    await made.turn()
    assert made.edge.binds == []
    await made.turn(after=60.0)
    assert [name for name, _ in made.edge.binds] == ["other"]


@pytest.mark.parametrize("who", ["a-0", "a-2"])
async def test_when_a_member_goes_the_others_give_their_nodes_back(who):
    made = world(WAITS, nodes=("n1", "n2"))
    pods = {pod.metadata.name: pod for pod in await gang(made, "a", 3)}
    deleted(made, pods[who])
    await made.turn()
    assert made.edge.binds == []
    assert made.cache.assigned() == {}
    assert len(made.scheduler.waiting_pods) == 0
    assert len([*made.queue.pending()]) == 2
    assert made.where("a-1") is not None


async def test_an_older_gang_gets_the_nodes_that_a_younger_one_holds():
    made = world(WAITS, nodes=("n1", "n2"))
    await gang(made, "young", 3)
    assert len(made.scheduler.waiting_pods) == 2
    member(made, "old", 0, size=2, priority=5)
    member(made, "old", 1, size=2, priority=5)
    await made.turn()
    assert sorted(name for name, _ in made.edge.binds) == ["old-0", "old-1"]
    assert any("gang young gives way to gang old" in one for one in told(made, "young-0"))
    assert len(made.scheduler.waiting_pods) == 0


async def test_what_the_older_gang_leaves_of_it_others_get():
    made = world(WAITS, nodes=("n1", "n2", "n3"))
    await gang(made, "young", 4, size=4)
    assert len(made.scheduler.waiting_pods) == 3
    made.comes("plain", cpu="1500m")
    await made.turn()
    assert made.where("plain") is SubQueue.UNSCHEDULABLE
    member(made, "old", 0, size=2, priority=5)
    member(made, "old", 1, size=2, priority=5)
    await made.turn()
    await made.turn(after=11.0)
    assert sorted(name for name, _ in made.edge.binds) == ["old-0", "old-1", "plain"]


async def test_a_younger_gang_takes_nothing_from_an_older_one():
    made = world(WAITS, nodes=("n1", "n2"))
    await gang(made, "old", 3, priority=5)
    await gang(made, "young", 2, size=2)
    assert made.edge.binds == []
    assert len(made.scheduler.waiting_pods) == 2
    assert made.where("old-0") is SubQueue.WAITING


async def test_what_a_younger_gang_holds_is_left_to_it_where_that_does_not_help():
    made = world(WAITS, nodes=("n1", "n2"))
    await gang(made, "young", 3)
    before = made.cache.assigned()
    await gang(made, "old", 4, size=4, priority=5)
    assert made.cache.assigned() == before
    assert len(made.snapshot().waiting) == 2
    made.handlers.nodes.on_add(make_node("n3", cpu="2"))
    await made.turn(after=11.0)
    assert sorted(name for name, _ in made.edge.binds) == ["young-0", "young-1", "young-2"]


async def test_a_gang_that_failed_rests():
    made = world(GANG + " backoff 2m", nodes=("n1", "n2"))
    await gang(made, "a", 3)
    made.handlers.nodes.on_add(make_node("n3", cpu="2"))
    await made.turn(after=11.0)
    assert made.edge.binds == []
    assert "gang a failed a moment ago and rests" in condition(made, "a-0")
    await made.turn(after=110.0)
    assert len(made.edge.binds) == 3


async def test_a_clock_that_is_set_back_keeps_no_gang_at_rest():
    made = world(GANG + " backoff 2m", nodes=("n1", "n2"))
    await gang(made, "a", 3)
    made.clock._time -= 3600.0
    made.handlers.nodes.on_add(make_node("n3", cpu="2"))
    await made.turn(after=130.0)
    assert len(made.edge.binds) == 3


# ---- rules, restarts, faults ---------------------------------------------------------------------


async def test_new_rules_without_the_statement_let_the_waiting_go():
    made = world(WAITS, nodes=("n1", "n2"))
    await gang(made, "a", 3)
    made.scheduler.use(chain({}), frozenset({"p"}))
    made.scheduler.gangs.holds.check()
    await made.turn(after=11.0)
    assert sorted(name for name, _ in made.edge.binds) == ["a-0", "a-1"]
    assert condition(made, "a-2").startswith("0/2 nodes are available: 2 Insufficient cpu.")


async def test_new_rules_find_a_gang_whose_turn_it_is():
    made = world()
    for number in range(3):
        member(made, "a", number)
    made.scheduler.schedule_one(made.queue.pop())
    made.scheduler.gangs.step()
    made.scheduler.gangs.step()
    assert made.scheduler.gangs.busy
    assert made.cache.assigned()
    made.scheduler.use(chain({"p.policy": GANG + "\n"}), frozenset({"p"}))
    assert made.cache.assigned() == {}
    await made.turn(after=11.0)
    assert len(made.edge.binds) == 3


async def test_members_that_fail_after_others_are_bound_come_later():
    made = world()
    for number in range(3):
        member(made, "a", number)
    made.edge.bind_answers.extend([BOUND, BOUND, REFUSED])
    await made.turn()
    assert len(made.edge.binds) == 3
    await made.turn(after=11.0)
    assert len(made.edge.binds) == 4
    assert len(made.cache.assigned()) == 3


async def test_an_unknown_outcome_is_asked_about_and_nobody_is_bound_twice():
    made = world()
    for number in range(3):
        member(made, "a", number)
    made.edge.bind_answers.append(UNKNOWN)
    await made.turn()
    await until(lambda: made.edge.resolves)
    await made.turn()
    assert len(made.edge.binds) == 3
    assert len(made.cache.assigned()) == 3


async def test_the_server_goes_away_between_the_third_and_the_fourth_binding():
    made = world(nodes=("n1", "n2", "n3", "n4", "n5"))
    made.edge.bind_answers.extend([BOUND, BOUND, BOUND, UNKNOWN, REFUSED])
    made.edge.resolve_answers.extend([UNKNOWN, UNKNOWN, UNKNOWN])
    await gang(made, "a", 5, size=5)
    await until(lambda: len(made.edge.resolves) == 4)
    await made.turn()
    assert len(made.edge.binds) == 5
    await made.turn(after=11.0)
    names = [name for name, _ in made.edge.binds]
    assert len(names) == 6, "the one that was refused, once more"
    assert sorted(set(names)) == ["a-0", "a-1", "a-2", "a-3", "a-4"]
    assert len(made.cache.assigned()) == 5


async def test_a_plugin_that_raises_fails_the_pod_and_no_gang_hangs():
    made = world("gang: by pod.label[gang] min number(pod.label[size])")

    def broken(pod, snapshot):
        raise RuntimeError("oh no")

    (plugin,) = policies(made.framework)
    plugin._points = replace(plugin.points(), gang=broken)
    rules = Framework(made.framework.profile, bundle="x")
    made.scheduler.use(rules, None)
    await gang(made, "a", 3)
    assert made.edge.binds == []
    assert "oh no" in condition(made, "a-0")
    assert made.cache.assigned() == {}


async def test_a_member_deleted_while_its_gang_is_being_tried():
    made = world()
    pods = [member(made, "a", number) for number in range(3)]
    made.scheduler.schedule_one(made.queue.pop())
    for _ in range(3):
        made.scheduler.gangs.step()
    deleted(made, pods[0])
    await made.turn()
    assert made.edge.binds == []
    assert made.cache.assigned() == {}
    assert len([*made.queue.pending()]) == 2


async def test_a_member_deleted_while_another_gang_is_being_tried():
    made = world()
    for name in ("a", "b"):
        pods = [member(made, name, number) for number in range(3)]
    made.scheduler.schedule_one(made.queue.pop())
    other = made.queue.pop()
    assert other.pod.name.startswith("b-")
    made.scheduler.schedule_one(other)
    deleted(made, next(pod for pod in pods if pod.metadata.name == other.pod.name))
    await made.turn()
    assert other.pod.uid not in made.queue.uids()


async def test_a_node_that_goes_while_a_gang_is_being_tried_takes_no_member_of_a_whole_gang():
    made = world(nodes=("n1", "n2", "n3", "n4"))
    for number in range(3):
        member(made, "a", number)
    made.scheduler.schedule_one(made.queue.pop())
    for _ in range(3):
        made.scheduler.gangs.step()
    node = next(iter(made.cache.assigned().values()))[0]
    made.handlers.nodes.on_delete(make_node(node))
    await made.turn()
    assert len(made.edge.binds) in (0, 3)
    await made.turn(after=11.0)
    assert len(made.edge.binds) == 3


async def test_members_that_go_while_the_others_are_being_tried_count_no_more():
    made = world(WAITS, nodes=("n1", "n2"))
    pods = await gang(made, "a", 3)
    held = sorted(made.cache.assigned())
    assert len(held) == 2
    made.clock.advance(11.0)
    made.handlers.nodes.on_add(make_node("n4"))
    made.scheduler.schedule_one(made.queue.pop())
    made.scheduler.gangs.step()
    deleted(made, next(pod for pod in pods if pod.metadata.uid in held))
    await made.turn()
    assert made.edge.binds == []


async def test_all_members_deleted_while_their_gang_is_being_tried():
    made = world(nodes=("n1", "n2"))
    pods = [member(made, "a", number) for number in range(3)]
    made.scheduler.schedule_one(made.queue.pop())
    made.scheduler.gangs.step()
    for pod in pods:
        deleted(made, pod)
    await made.turn()
    assert (made.edge.binds, made.cache.assigned(), [*made.queue.pending()]) == ([], {}, [])


async def test_after_a_restart_members_on_nodes_count():
    made = world()
    for number in range(2):
        made.handlers.pods.on_add(
            made.comes(f"x-{number}", node=f"n{number + 1}", labels={"gang": "a", "size": "3"},
                       cpu="1500m")
        )  # fmt: skip
    member(made, "a", 2)
    await made.turn()
    assert made.edge.binds == [("a-2", "n3")]


async def test_a_terminating_member_counts_no_more():
    made = world()
    pods = [made.comes(f"x-{n}", node=f"n{n + 1}", labels={"gang": "a", "size": "3"})
            for n in range(2)]  # fmt: skip
    made.handlers.pods.on_update(pods[0], being_deleted(pods[0]))
    member(made, "a", 2)
    await made.turn()
    assert made.edge.binds == []
    assert "has 2 of the 3 members" in condition(made, "a-2")


async def test_a_journal_with_gangs_is_replayed(tmp_path):
    out = io.BytesIO()
    recorder = Recorder(out, lambda: ())
    text = f"{GANG} backoff 1m\n"
    framework = chain({"p.policy": text})
    made = World(nodes=(), rules=framework, cache=recorder.cache)
    settings = {"settings": Settings().model_dump_json()}
    recorder.rules(framework.bundle, {"p.policy": text}, settings)
    made.scheduler.observe(recorder.placed)
    for name in ("n1", "n2", "n3"):
        made.handlers.nodes.on_add(make_node(name, cpu="2"))
    await gang(made, "a", 2, size=2)
    await gang(made, "b", 2, size=2)
    made.comes("plain", cpu="1")
    await made.turn()
    assert len(made.edge.binds) == 3
    assert any(decision.fit_error is not None for decision in made.decisions)
    path = tmp_path / "journal.jsonl"
    path.write_bytes(out.getvalue())
    report = replay(path, frameworks_of())
    assert report.differences == []
    assert report.decisions == len(made.decisions)


# ---- objects of groups ---------------------------------------------------------------------------

COSCHEDULING = "gang: by pod.label[scheduling.x-k8s.io/pod-group]"


def pod_group(name, minimum, **spec):
    return from_builtins(
        PodGroup,
        {"metadata": {"name": name, "namespace": "default"},
         "spec": {"minMember": minimum, **spec}},
    )  # fmt: skip


async def test_a_group_that_comes_after_its_pods_wakes_them():
    made = world(COSCHEDULING, nodes=("n1", "n2"))
    label = {"scheduling.x-k8s.io/pod-group": "train"}
    for number in range(2):
        made.comes(f"t-{number}", cpu="1500m", labels=label)
    await made.turn()
    assert made.edge.binds == []
    unsaid = "gang train does not say how many members it needs: there is no PodGroup train"
    assert unsaid in condition(made, "t-0")
    made.handlers.of(Resource.POD_GROUP).on_add(pod_group("train", 2))
    await made.turn(after=11.0)
    assert len(made.edge.binds) == 2


async def test_a_group_that_comes_and_wants_more_is_told_to_all_members():
    made = world(COSCHEDULING)
    for number in range(3):
        made.comes(f"t-{number}", labels={"scheduling.x-k8s.io/pod-group": "train"})
    await made.turn()
    made.handlers.of(Resource.POD_GROUP).on_add(pod_group("train", 4))
    await made.turn(after=11.0)
    words = {condition(made, f"t-{number}") for number in range(3)}
    assert words == {"gang train has 3 of the 4 members that it needs (p.policy:1)"}


@pytest.mark.parametrize("members", [3, 20])
async def test_members_that_wait_are_told_what_stops_their_gang_now(members):
    made = world(nodes=("n1",))
    pods = await gang(made, "a", members, size=members)
    assert f"gang a: 1 of the {members} members that it needs fit" in condition(made, "a-0")
    deleted(made, pods[-1])
    deleted(made, pods[-2])
    member(made, "a", members, size=members)
    await made.turn()
    words = f"gang a has {members - 1} of the {members} members that it needs (p.policy:1)"
    told = {condition(made, f"a-{number}") for number in (*range(members - 2), members)}
    assert told == {words}


async def test_an_empty_label_names_no_group():
    made = world("gang: by pod.group", nodes=("n1",))
    made.comes("p", labels={"scheduling.x-k8s.io/pod-group": ""})
    await made.turn()
    assert made.edge.binds == [("p", "n1")]


def labelled(made, number, **how):
    return made.comes(f"t-{number}", labels={"scheduling.x-k8s.io/pod-group": "train"}, **how)


def asks_for(made, minimum=2, **resources):
    group = pod_group("train", minimum, minResources=resources)
    made.handlers.of(Resource.POD_GROUP).on_add(group)


async def test_a_gang_waits_until_the_cluster_has_what_its_group_asks_for():
    made = world(COSCHEDULING)
    other = made.comes("other", node="n3", cpu="1500m")
    # What is no member's, or is more than a node has, is of other nodes no less.
    made.comes("too-much", node="n2", cpu="5")
    asks_for(made, cpu=3, memory="1Ti", **{"example.com/gpu": 0})
    for number in range(2):
        labelled(made, number, cpu="500m")
    await made.turn()
    assert made.edge.binds == []
    words = (
        "gang train: less is free than minResources of PodGroup train:"
        " cpu: 3 asked for, 2500m free; memory: 1Ti asked for, 24Gi free (p.policy:1)"
    )
    assert {condition(made, f"t-{number}") for number in range(2)} == {words}
    made.handlers.nodes.on_add(make_node("large", cpu="100m", memory="1Ti"))
    deleted(made, other)
    await made.turn(after=11.0)
    assert len(made.edge.binds) == 2


async def test_only_room_for_all_that_its_group_asks_for_wakes_a_gang():
    made = world(COSCHEDULING, nodes=("n1",))
    before = make_node("n2", cpu="100m")
    made.handlers.nodes.on_add(before)
    asks_for(made, cpu="2400m")
    for number in range(2):
        labelled(made, number, cpu="500m")
    await made.turn()
    tried = len(made.edge.conditions)
    made.clock.advance(11.0)
    after = make_node("n2", cpu="300m")
    made.handlers.nodes.on_update(before, after)
    await made.turn()
    assert (len(made.edge.conditions), made.edge.binds) == (tried, [])
    # It has no room for a member, and they need none there.
    made.handlers.nodes.on_update(after, make_node("n2", cpu="400m"))
    await made.turn()
    assert sorted(made.edge.binds) == [("t-0", "n1"), ("t-1", "n1")]


async def test_of_gangs_that_wait_those_are_asked_again_whose_group_changed(monkeypatch):
    made = world("gang: by pod.group min group.min_member wait 9m reject above 90% missing")
    handler, asked, real = made.handlers.of(Resource.POD_GROUP), [], gangs._membership
    for name in ("a", "b", "c"):
        handler.on_add(pod_group(name, 2))
        made.comes(name, labels={"scheduling.x-k8s.io/pod-group": name}, cpu="100m")
        made.comes(f"{name}-large", labels={"scheduling.x-k8s.io/pod-group": name}, cpu="99")
    await made.turn()
    assert len(made.scheduler.waiting_pods) == 3
    made.scheduler.gangs.holds.check()
    monkeypatch.setattr(
        gangs, "_membership", lambda *about: asked.append(about[2].name) or real(*about)
    )
    handler.on_add(pod_group("b", 1))
    handler.on_add(pod_group("other", 1))
    made.scheduler.gangs.holds.check()
    assert asked == ["b"]


async def test_of_thousands_of_resources_that_a_group_asks_for_some_are_looked_at(monkeypatch):
    made = world(COSCHEDULING)
    asks_for(made, **{f"example.com/r{number}": 1 for number in range(1_000)})
    asked = []
    real = NodeColumns.allocatable
    monkeypatch.setattr(
        NodeColumns, "allocatable", lambda nodes, name: asked.append(name) or real(nodes, name)
    )
    for number in range(2):
        labelled(made, number, cpu="500m")
    await made.turn()
    assert "example.com/r0: 1 asked for, 0 free" in condition(made, "t-0")
    assert len(set(asked)) <= MOST_NAMED + 1


async def test_members_that_no_node_takes_cost_a_plan_no_columns(monkeypatch):
    made = world()
    made_of = []
    real = Trial.amounts
    monkeypatch.setattr(Trial, "amounts", lambda trial: made_of.append(trial) or real(trial))
    for number in range(3):
        names = {f"example.com/r{number}-{one}": "1" for one in range(9)}
        spec = {"containers": [{"name": "c", "resources": {"requests": names}}]}
        member(made, "odd", number, spec=spec)
    await made.turn()
    assert condition(made, "odd-0").startswith("gang odd: 0 of the 3 members that it needs fit")
    assert made_of == []


async def test_what_members_have_counts_as_free_for_what_their_group_asks_for():
    made = world(COSCHEDULING, nodes=("n1", "n2"))
    asks_for(made, minimum=1, cpu=4)
    labelled(made, 0, cpu="1500m", node="n1", deleted="2025-03-01T10:00:00Z")
    labelled(made, 1, cpu="1500m", node="n2")
    made.comes("other", cpu="100m", namespace="elsewhere", node="n1",
               labels={"scheduling.x-k8s.io/pod-group": "train"})  # fmt: skip
    labelled(made, 2, cpu="500m")
    await made.turn()
    assert "cpu: 4 asked for, 3900m free (p" in condition(made, "t-2")
    asks_for(made, minimum=1, cpu="3900m")
    await made.turn(after=11.0)
    assert made.edge.binds == [("t-2", "n2")]


async def test_a_group_that_names_what_it_needs_has_room_for_so_many_pods_too():
    made = world(COSCHEDULING, nodes=())
    made.handlers.nodes.on_add(make_node("n1", pods="1"))
    made.handlers.of(Resource.POD_GROUP).on_add(pod_group("train", 2))
    for number in range(2):
        labelled(made, number)
    await made.turn()
    assert condition(made, "t-0").startswith("gang train: 1 of the 2")
    asks_for(made, cpu="1m")
    await made.turn(after=11.0)
    words = (
        "gang train: less is free than minResources of PodGroup train: pods: 2 asked for, 1 free"
    )
    assert condition(made, "t-0") == f"{words} (p.policy:1)"


async def test_rules_may_count_the_members_of_a_group():
    text = "permit: group.name is present -> wait 60s until group.reserved >= group.min_member"
    made = world(text, nodes=("n1", "n2"))
    label = {"scheduling.x-k8s.io/pod-group": "train"}
    made.handlers.of(Resource.POD_GROUP).on_add(pod_group("train", 2))
    made.comes("t-0", cpu="1500m", labels=label)
    made.comes("alone", cpu="100m")
    await made.turn()
    assert [name for name, _ in made.edge.binds] == ["alone"]
    made.comes("t-1", cpu="1500m", labels=label)
    await made.turn()
    assert sorted(name for name, _ in made.edge.binds) == ["alone", "t-0", "t-1"]


async def test_each_number_of_a_group_is_what_it_says():
    counts = " ".join(f"{{group.{one}}}" for one in ("size", "assigned", "reserved", "waiting"))
    made = world(f'filter: group.size >= 9 message "{counts}"')
    made.cache.attend(frozenset({"queue"}))
    made.queue.on_change = lambda queued: made.cache.set_queued(queued.pod, queued.times)
    label = {"scheduling.x-k8s.io/pod-group": "train"}
    made.comes("on", node="n1", labels=label)
    made.comes("elsewhere", node="n1", labels=label, namespace="other")
    made.comes("p", labels=label)
    made.comes("q", labels=label)
    await made.turn()
    assert "3 1 1 0" in condition(made, "q")


async def test_a_member_that_is_left_over_claims_no_node_where_it_cannot_be():
    made = World({"p.policy": "gang: by pod.label[job] min 2\n"}, nodes=())
    nodes = made.handlers.nodes
    nodes.on_add(make_node("n1", cpu="4"))
    low = [pod_object(name, cpu="2", node="n1") for name in ("x", "y")]
    for pod in low:
        made.handlers.pods.on_add(pod)
    for name in ("a", "b"):
        made.comes(name, cpu="2", priority=5, labels={"job": "j"})
    await settle(made)
    assert sorted(made.edge.evictions) == ["x", "y"]
    made.comes("c", cpu="2", priority=9, labels={"job": "j"})
    nodes.on_update(make_node("n1", cpu="4"), make_node("n1", cpu="2"))
    nodes.on_add(make_node("n2", cpu="2"))
    for pod in low:
        made.handlers.pods.on_delete(pod)
    for _ in range(4):
        await settle(made)
        made.clock.advance(3.0)
    [left] = [name for name in ("a", "b", "c") if made.assigned(name) is None]
    assert left in ("a", "b")
    assert made.cache.nominations.node_of(f"uid-default-{left}") == ""


async def test_a_gang_that_lost_a_member_for_good_claims_no_node_any_longer():
    made = World({"p.policy": "gang: by pod.label[job] min 3\n"}, nodes=())
    made.handlers.nodes.on_add(make_node("n1", cpu="6"))
    low = pod_object("low", cpu="6", node="n1")
    made.handlers.pods.on_add(low)
    how = {"cpu": "2", "priority": 5, "labels": {"job": "j"}}
    members = [made.comes(name, **how) for name in ("a", "b", "c")]
    await settle(made)
    assert made.edge.evictions == ["low"]
    assert len(made.cache.nominations) == 3
    made.clock.advance(20.0)
    made.handlers.pods.on_delete(members[2])
    made.handlers.pods.on_delete(low)
    await settle(made)
    assert len(made.cache.nominations) == 0
    assert made.edge.nominations[-2:] == [("b", ""), ("a", "")]
    made.comes("other", cpu="4")
    await settle(made)
    assert made.assigned("other") == ("n1", True)


async def test_a_gang_that_waits_claims_no_node_for_who_is_missing():
    made = world(f"{GANG} wait 60s reject above 40% missing")
    low = made.comes("low", cpu="1500m", node="n3")
    await gang(made, "a", 3, priority=5)
    await settle(made)
    assert made.edge.evictions == ["low"]
    made.comes("other", cpu="1500m", node="n3", priority=9)
    deleted(made, low)
    await made.turn(after=11.0)
    assert len(made.cache.assigned()) == 3, "the other one, and two that wait"
    assert len(made.cache.nominations) == 0


async def test_a_member_that_may_evict_nobody_keeps_no_promise_of_another():
    made = world(nodes=("n1",))
    member(made, "a", 0, size=2, status={"nominatedNodeName": "n1"})
    member(made, "a", 1, size=2, spec={"preemptionPolicy": "Never"})
    await settle(made)
    assert "1 of the 2 members that it needs fit" in condition(made, "a-0")
    assert len(made.cache.nominations) == 0
