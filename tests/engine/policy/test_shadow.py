"""Policies that are tried without an effect, or for a share of the pods: counted and told."""

from __future__ import annotations

import asyncio
import gc
import weakref
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.clock import ManualClock
from engine.objects import OwnerReference
from engine.pods.podinfo import make_pod_info
from engine.policy.bundle import Refusal
from engine.policy.shadow import MOST_SAVED, SHARE, Shadow, in_force, in_shadow
from engine.policy.world import Worlds
from engine.queue import SubQueue
from engine.telemetry import SHADOW_OUTCOMES, Count
from tests.builders import changed, make_node, pod_object
from tests.effort import examples
from tests.engine.policy.builders import compiled
from tests.engine.policy.test_statements import refusal
from tests.engine.test_scheduler import World


class Tried:
    """A scheduler with policies, of which some are in shadow."""

    def __init__(self, *texts, nodes=("n1", "n2", "n3"), clock=None):
        self.files = {f"p{number}.policy": text for number, text in enumerate(texts, 1)}
        self.world = World(self.files, nodes=())
        for name in nodes:
            labels = {"zone": name.replace("n", "z")}
            self.world.handlers.nodes.on_add(make_node(name, cpu="4", labels=labels))
        self.told = []
        self.clock = clock or self.world.clock
        self.shadow = Shadow(
            worlds=Worlds(ZoneInfo("UTC"), ()),
            frameworks=lambda: self.world.scheduler.framework,
            clock=self.clock,
            telemetry=self.world.telemetry,
            tell=self.told.append,
        )
        self.shadow.use(compiled(self.files).plans)
        self.world.scheduler.observe(self.shadow.placed)
        self.world.scheduler.observe_bindings(self.shadow.ended)
        self.world.scheduler.add_background(self.shadow)

    async def places(self, *names, **how):
        for name in names:
            self.world.comes(name, **how)
        await self.world.turn()
        return [node for _, node in self.world.edge.binds]

    def tally(self, name="p1"):
        return self.shadow.tallies()[name]


def nodes_of(*texts, pods):
    """Where the pods go under these policies, in a world of their own."""

    async def run():
        return await Tried(*texts).places(*pods)

    return asyncio.run(run())


async def test_a_filter_in_shadow_rejects_nothing_and_counts_what_it_would_have():
    made = Tried(
        "mode: shadow\nfilter: pod.name contains web -> node.label zone=z3\nfilter: node.ready\n",
        "first: node.label zone=z1\n",
    )
    assert await made.places("web-1", "db-1") == ["n1", "n1"]
    tally = made.tally()
    assert (tally.pods, dict(tally.rules["rejected"])) == (2, {"p1.policy:2": 1, "p1.policy:3": 2})
    counted = made.world.telemetry.value(SHADOW_OUTCOMES, "rejected", "p1.policy", "3")
    assert (counted, made.world.telemetry[Count.SHADOW_PODS]) == (2, 2)


async def test_a_score_in_shadow_says_how_often_another_node_would_have_won():
    made = Tried(
        "mode: shadow\nweight: 50\nprefer: pod.name contains web -> node.label zone=z2\n",
        "weight: 5\nprefer: node.label zone=z3\n",
    )
    assert await made.places("web-1", "db-1") == ["n3", "n3"]
    tally = made.tally()
    assert (tally.pods, tally.elsewhere, tally.nowhere) == (2, 1, 0)
    assert dict(tally.rules["moved"]) == {"p1.policy:3": 1}
    assert tally.sample == ", such as default/web-1 on n2 instead of n3"


async def test_what_would_be_is_what_would_have_been_in_force():
    text = "weight: 50\nfilter: node.label zone!=z1\nprefer: node.label zone=z2\n"
    made = Tried(f"mode: shadow\n{text}", "weight: 5\nprefer: node.label zone=z1\n")
    assert await made.places("a") == ["n1"]
    assert made.tally().sample == ", such as default/a on n2 instead of n1"
    other = Tried(text, "weight: 5\nprefer: node.label zone=z1\n")
    assert await other.places("a") == ["n2"]


@pytest.mark.parametrize(("order", "would"), [(200, 0), (400, 1)])
async def test_whom_it_would_want_first_comes_before_and_after_whom_others_want(order, would):
    ruling = f"order: {order}\nfirst: node.label zone=z1\n"
    made = Tried("mode: shadow\norder: 300\nfirst: node.label zone=z3\n", ruling)
    assert await made.places("a") == ["n1"]
    tally = made.tally()
    assert (tally.elsewhere, dict(tally.rules["moved"])) == (
        would,
        {"p1.policy:3": 1} if would else {},
    )


async def test_a_pod_that_would_fit_nowhere_and_a_prefilter_are_told():
    made = Tried("mode: shadow\nprefilter: count(cluster.pods) < 0\nfilter: node.label none\n")
    await made.places("a")
    tally = made.tally()
    assert (tally.nowhere, tally.elsewhere) == (1, 0)
    assert dict(tally.rules["rejected"]) == {"p1.policy:2": 1, "p1.policy:3": 1}


async def test_members_of_a_gang_are_counted_when_they_are_bound_and_once():
    made = Tried("mode: shadow\nfilter: node.label zone=z3\n", "gang: by pod.label[gang] min 4\n")
    pods = ("g-1", "g-2", "g-3", "g-4")
    assert await made.places(*pods, labels={"gang": "g"}, cpu="3") == []
    assert made.tally().pods == 0
    plugin = weakref.ref(made.shadow._tried["p1"].plugin)
    made.shadow.use(compiled(made.files).plans)
    gc.collect()
    assert plugin() is None, "who is not bound yet keeps neither rules that are gone nor a cluster"
    made.world.handlers.nodes.on_add(make_node("n4", cpu="4", labels={"zone": "z4"}))
    made.world.clock.advance(20.0)
    assert len(await made.places()) == 4
    tally = made.tally()
    assert (tally.pods, dict(tally.rules["rejected"])) == (4, {"p1.policy:2": 3})


async def test_gates_permits_reserves_and_dry_runs_only_count():
    made = Tried(
        "mode: shadow\n"
        "gate: pod.annotation go=yes\n"
        "permit: wait 60s until pod.annotation go=yes\n"
        "reserve: count(node.pods) < 1\n"
        "bind: dry run\n"
        'prebind: label a.b/c = "d"\n'
    )
    await made.places("a")
    tally = made.tally()
    assert dict(tally.rules["held"]) == {"p1.policy:2": 1, "p1.policy:3": 1, "p1.policy:5": 1}
    assert dict(tally.rules["rejected"]) == {"p1.policy:4": 1}, "it sees the pod on its node"
    assert (len(made.world.edge.binds), made.world.edge.patches) == (1, [])
    assert [reason for _, _, reason, _ in made.world.edge.events] == ["Scheduled"]


async def test_what_is_known_is_told_soon_and_then_each_minute_if_it_has_changed():
    made = Tried("mode: shadow\nfilter: node.label zone=z1\n", "first: node.label zone=z3\n")
    await made.places("a")
    assert (made.told, made.shadow.due) == ([], 5.0)
    made.world.clock.advance(5.0)
    await made.world.turn()
    (said,) = made.told
    assert said.startswith(
        "shadow of p1: of 1 pods: would have rejected the node (1 by p1.policy:2); "
    )
    assert said.endswith("; 1 pods elsewhere, 0 nowhere, such as default/a on n1 instead of n3")
    await made.places("b")
    assert made.shadow.due == 65.0
    made.world.clock.advance(60.0)
    await made.world.turn()
    assert len(made.told) == 2
    assert made.shadow.due is None, "nothing comes, nothing is told"


class Working(ManualClock):
    """Each look at it takes some time."""

    def monotonic(self):
        self._monotonic += 0.01
        return self._monotonic


async def test_its_share_of_the_time_is_bounded_and_what_is_left_out_is_told():
    clock = Working()
    made = Tried("mode: shadow\nfilter: node.ready\n", clock=clock)
    before = clock._monotonic
    names = [f"p{number}" for number in range(12)]
    await made.places(*names)
    tally = made.tally()
    assert tally.pods + tally.left_out == 12
    assert tally.left_out > 0
    passed = clock._monotonic - before
    assert tally.pods * 0.01 <= MOST_SAVED + SHARE * passed + 0.01
    assert made.world.telemetry[Count.SHADOW_LEFT_OUT] == tally.left_out
    clock.advance(10.0)
    await made.world.turn()
    assert f"{tally.left_out} pods not tried: its share of the time was used up" in made.told[0]
    await made.places("late")
    assert made.tally().pods == tally.pods


async def test_a_policy_that_fails_in_shadow_abstains_and_stops_nobody(caplog):
    made = Tried("mode: shadow\nfilter: node.ready\n", "mode: shadow\nfilter: node.label none\n")

    def fails(*args):
        raise ZeroDivisionError

    plugin = made.shadow._tried["p1"].plugin
    broken = msgspec.structs.replace(plugin.plan.filters[0], prepare=fails)
    plugin.plan = msgspec.structs.replace(plugin.plan, filters=(broken,))
    assert len(await made.places("a", "b")) == 2
    assert made.tally("p2").pods == 2
    assert made.world.telemetry[Count.PLUGIN_ERRORS] == 2
    assert [one.message for one in caplog.records if "shadow" in one.message] == [
        "shadow of p1 fails, and abstains for that pod"
    ]


def test_a_tally_goes_on_while_its_policy_is_as_it_was():
    made = Tried("mode: shadow\nfilter: node.ready\n")
    made.tally().pods = 7
    made.shadow.use(compiled({**made.files, "q.policy": "score: 50\n"}).plans)
    assert made.tally().pods == 7
    made.shadow.use(compiled({"p1.policy": "mode: shadow\nfilter: not node.ready\n"}).plans)
    assert made.tally().pods == 0
    made.shadow.use(())
    assert made.shadow.tallies() == {}


RULES = st.sampled_from([
    "filter: node.label zone!=z1", "filter: count(node.pods) < 2", "prefer: most node.cpu.free",
    "prefer: node.label zone=z2", "first: node.label zone=z3", "spread: over zone",
    "forbid: pod.name contains 1 and node.label zone=z2", "prefilter: count(cluster.pods) < 5",
])  # fmt: skip


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(RULES, min_size=1, max_size=3), st.lists(RULES, max_size=2))
def test_shadow_changes_nothing(tried, enforced):
    pods = [f"p{number}" for number in range(6)]
    plain = [f"{rule}\n" for rule in enforced]
    beside = ["mode: shadow\nweight: 9\n" + f"{rule}\n" for rule in tried]
    assert nodes_of(*plain, *beside, pods=pods) == nodes_of(*plain, pods=pods)


# ---- a share of the pods


async def test_a_canary_is_in_force_for_its_share_and_in_shadow_for_the_others():
    text = "mode: canary 50%\nfilter: node.label none\n"
    made = Tried(text, nodes=("n1",))
    names = [f"p{number}" for number in range(40)]
    for name in names:
        made.world.comes(name, uid=name, cpu="1m")
    await made.world.turn()
    bound = {name for name, _ in made.world.edge.binds}
    assert 10 < len(bound) < 30
    assert all(
        made.world.queue.get(name).where is SubQueue.UNSCHEDULABLE for name in set(names) - bound
    )
    tally = made.tally()
    assert (tally.pods, tally.nowhere) == (len(bound), len(bound)), "those who went were tried"


@pytest.mark.parametrize("clock", [None, Working()])
async def test_pods_for_which_a_canary_is_in_force_are_none_of_those_it_is_tried_on(clock):
    """Nor of those that it was not tried on for want of time."""
    texts = "mode: canary 50%\nfilter: node.name is n2\n", "first: node.name is n1\n"
    made = Tried(*texts, clock=clock)
    for number in range(40):
        made.world.comes(f"p{number}", uid=f"p{number}", cpu="1m")
    await made.world.turn()
    where = [node for _, node in made.world.edge.binds]
    others = where.count("n1")
    assert others + where.count("n2") == 40
    assert 10 < others < 30
    tally = made.tally()
    assert tally.pods + tally.left_out == others
    assert tally.elsewhere == tally.pods
    assert bool(tally.left_out) == bool(clock)
    assert made.world.telemetry[Count.SHADOW_PODS] == tally.pods


def test_a_share_is_of_workloads_and_a_greater_one_holds_the_smaller():
    def members(share):
        files = {"p.policy": f"mode: canary {share}%\nfilter: node.ready\n"}
        plan = in_force(compiled(files).plans[0])
        made = World({}, nodes=())
        worlds = Worlds(ZoneInfo("UTC"), ())
        found = set()
        for number in range(200):
            pod = owned(f"p{number}", f"job-{number // 2}")
            snapshot = made.snapshot()
            subject, world = worlds.subject(pod, snapshot), worlds.of(snapshot)
            if plan.filters[0].prepare(subject, world) is not None:
                found.add(number)
        return found

    few, many = members(10), members("60.5")
    assert few < many
    assert 90 < len(many) < 150
    assert all({one ^ 1, one} <= many for one in many), "pods of a job go together"


def owned(name, job):
    pod = pod_object(name)
    owner = OwnerReference(api_version="batch/v1", kind="Job", name=job, uid=job, controller=True)
    return make_pod_info(changed(pod, metadata={"owner_references": [owner]}))


async def test_all_statements_of_a_canary_are_for_its_share_alone():
    text = (
        "mode: canary 50%\n"
        "gate: pod.annotation go=yes\npermit: reject\nreserve: count(node.pods) < 0\n"
        'bind: dry run\nprebind: label a.b/c = "d"\npostbind: event "x"\n'
        "first: node.label zone=z9\nscore: 50\nprefilter: false or count(cluster.pods) < 0\n"
    )
    (plan,) = compiled({"p.policy": text}).plans
    made = Tried(text, nodes=("n1",))
    for number in range(20):
        made.world.comes(f"p{number}", uid=f"p{number}", cpu="1m")
    await made.world.turn()
    gated = [one for one in made.world.queue.pending() if one.where is SubQueue.GATED]
    assert len(gated) + len(made.world.edge.binds) == 20
    assert 0 < len(gated) < 20
    assert made.world.edge.patches == []
    assert {reason for _, _, reason, _ in made.world.edge.events} == {
        "SchedulingGated",
        "Scheduled",
    }
    assert in_shadow(plan) is not None


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("sort: pod.name", "sort:"),
        ("preempt: never", "preempt:"),
        ("gang: by pod.label[job] min 2", "gang:"),
        ("quota: by pod.namespace max cpu 2", "quota:"),
    ],
)
def test_what_is_about_all_pods_is_no_canary_and_not_tried_in_shadow(statement, name):
    refused = refusal(f"mode: canary 10%\n{statement}\n")
    assert isinstance(refused, Refusal)
    assert f"P120]: `{name}` is about all pods, and `mode: canary 10%` about some" in refused.text
    taken = refusal(f"mode: shadow\n{statement}\nfilter: node.ready\n")
    assert [(one.code, one.message) for one in taken.warnings] == [
        ("P120", f"`{name}` is not tried in shadow")
    ]


@pytest.mark.parametrize("mode", ["shadow", "canary 25%", "off", "enforce"])
def test_a_configuration_may_say_the_mode(mode):
    files = {"p.policy": "filter: node.ready\n"}
    (plan,) = compiled(files, policies={"overrides": {"p": {"mode": mode}}}).plans
    assert plan.mode == mode


@pytest.mark.parametrize("mode", ["shadowy", "canary", "canary 0%", "canary 101%", 3])
def test_a_mode_that_is_none_is_refused(mode):
    with pytest.raises(ValueError, match="must be enforce, shadow, off, or canary and a share"):
        compiled({"p.policy": "score: 50\n"}, policies={"overrides": {"p": {"mode": mode}}})


def test_an_order_in_shadow_is_no_second_order():
    files = {"a.policy": "sort: pod.name\n", "b.policy": "mode: shadow\nsort: pod.uid\n"}
    assert compiled(files).plans


APART = "score: number(node.label[n])\n"
ONE_POD = st.sampled_from([
    "filter: node.label zone!=z1", "forbid: node.label zone=z2", "filter: node.label zone=z9",
    "score: number(node.label[m])", "prefer: node.label zone=z2", "avoid: node.label zone=z3",
    "first: node.label zone=z3", "first: node.label zone=z9", "prefilter: pod.name contains p",
    "filter: pod.name contains q -> node.label none", "prescore: pod.name contains q",
])  # fmt: skip


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(ONE_POD, min_size=1, max_size=4), st.lists(ONE_POD, max_size=2))
def test_what_a_policy_would_do_is_what_it_does_in_force(tried, ruling):
    plain = "".join(f"{rule}\n" for rule in ruling)
    text = "weight: 7\n" + "".join(f"{rule}\n" for rule in tried)

    async def run(mode):
        made = Tried(f"mode: {mode}\n{text}", APART, plain, nodes=())
        for number, name in enumerate(("n1", "n2", "n3"), 1):
            labels = {"zone": f"z{number}", "n": f"{number * 9}", "m": f"{60 - number * 17}"}
            made.world.handlers.nodes.on_add(make_node(name, labels=labels))
        nodes = await made.places("p")
        return nodes[0] if nodes else None, made

    got, made = asyncio.run(run("shadow"))
    would, _ = asyncio.run(run("enforce"))
    if got is None:
        assert made.tally().pods == 0
        return
    tally = made.tally()
    assert (tally.elsewhere, tally.nowhere) == (int(would not in (None, got)), int(would is None))
    if tally.elsewhere:
        assert tally.sample == f", such as default/p on {would} instead of {got}"
        assert any(tally.rules[outcome] for outcome in ("rejected", "moved"))
