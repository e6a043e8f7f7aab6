"""Gates, orders, prefilters, tiers and what acts on the chosen node, in the running scheduler."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from engine.configuration.berth import BerthDocument
from engine.framework.effects import set_on_pod
from engine.framework.interface import Points
from engine.framework.profile import Profile, Weighted
from engine.policy.bundle import compile_at_once, compile_settings
from engine.policy.chain import framework_of
from engine.policy.world import Worlds
from engine.queue import SubQueue
from engine.telemetry import ATTEMPTS
from tests.builders import default_plugins, make_node
from tests.engine.policy.builders import chain, compiled, compiler
from tests.engine.test_preemption import settle
from tests.engine.test_scheduler import BOUND, REFUSED, World


def world(text, *, nodes=("n1",)):
    return World({"p.policy": text}, nodes=nodes)


def refusal(text, **berth):
    settings = compile_settings(BerthDocument.model_validate(berth))
    return compile_at_once(compiler(), {"p.policy": text}, settings)


def messages(made):
    return [note for _, _, reason, note in made.edge.events if reason == "FailedScheduling"]


async def test_a_gate_holds_a_pod_until_it_is_changed():
    made = world('gate: pod.annotation approved=yes message "{pod.name} waits"\n')
    pod = made.comes()
    await made.turn()
    assert made.where() is SubQueue.GATED
    assert made.queue.get(pod.metadata.uid).gating_reasons == ("p waits (p.policy:1)",)
    made.edits(pod, metadata={"annotations": {"approved": "yes"}})
    await made.turn()
    assert made.assigned() == ("n1", True)


async def test_a_gate_is_asked_again_when_a_metric_of_the_cluster_changes():
    made = world(
        'metric price = promql "spot" by cluster\n'
        'gate: (price ?? 9) < 5 message "costs {price}"\n'
        "prefilter: price is present\n"
    )
    made.samples.put_value("price", (), 7.0)
    pod = made.comes()
    await made.turn()
    assert made.where() is SubQueue.GATED
    assert made.queue.get(pod.metadata.uid).gating_reasons == ("costs 7 (p.policy:2)",)
    made.samples.put_value("price", (), 6.0)
    made.scheduler.signals_came()
    await made.turn()
    assert made.where() is SubQueue.GATED
    made.samples.put_value("price", (), 4.0)
    made.scheduler.signals_came()
    await made.turn()
    assert made.assigned() == ("n1", True)


async def test_a_gate_may_count_pods_of_the_cluster():
    made = world("gate: count(cluster.pods where it.label app=x) < 1\n")
    first = made.comes("a", labels={"app": "x"})
    await made.turn()
    assert made.assigned("a") == ("n1", True)
    made.bound(first, "n1")
    made.comes("b", labels={"app": "x"})
    await made.turn()
    assert made.where("b") is SubQueue.GATED


async def test_a_sort_replaces_the_order_of_the_queue():
    made = world("sort: pod.label[rank] [gold, silver], pod.name desc\n")
    for name, rank in (("a", "silver"), ("b", "gold"), ("c", None), ("d", "gold"), ("e", "tin")):
        made.comes(name, labels={} if rank is None else {"rank": rank}, priority=1)
    await made.turn()
    assert [decision.pod.name for decision in made.decisions] == ["d", "b", "a", "e", "c"]


async def test_a_prefilter_looks_at_the_newest_cluster():
    made = world(
        "prefilter: count(cluster.pods where it.label app=x) < 1\n"
        '  message "{count(cluster.pods where it.label app=x)} run already"\n'
    )
    made.comes("a", labels={"app": "x"})
    made.comes("b", labels={"app": "x"})
    await made.turn()
    assert made.assigned("a") == ("n1", True)
    assert made.where("b") is SubQueue.UNSCHEDULABLE
    (message,) = messages(made)
    assert message.startswith("0/1 nodes are available: 1 run already (p.policy:1). preemption: ")


async def test_the_first_tier_comes_before_every_score():
    text = "first: node.label tier=gold\nscore: 100 - bandwidth/max*100 weight 1000\nweight: 1000\n"
    made = world(text, nodes=())
    made.handlers.nodes.on_add(make_node("a", cpu="2"))
    made.handlers.nodes.on_add(make_node("b", cpu="2", labels={"tier": "gold"}))
    made.samples.put("bandwidth", {"a": 0.0, "b": 10.0})
    made.comes("p")
    await made.turn()
    assert made.assigned() == ("b", True)


async def test_a_reserve_sees_the_pod_on_its_node():
    made = world('reserve: count(node.pods) <= 1 message "{node.name} is taken"\n')
    made.comes("a")
    made.comes("b")
    await made.turn()
    assert (made.assigned("a"), made.assigned("b")) == (("n1", True), None)
    assert made.where("b") is SubQueue.UNSCHEDULABLE
    assert messages(made) == ["node n1 was chosen and refused: n1 is taken (p.policy:1)"]


@pytest.mark.parametrize(
    "rule", ["reserve: count(node.pods) < 1", "permit: count(node.pods) > 0 -> reject"]
)
async def test_pods_that_are_refused_do_not_wake_each_other(rule):
    made = world(f"{rule}\n")
    for name in ("a", "b", "c"):
        made.comes(name)
    await made.turn()
    assert len(made.decisions) == 3
    assert [made.where(name) for name in ("a", "b", "c")] == [SubQueue.UNSCHEDULABLE] * 3


async def test_a_permit_allows_and_rejects():
    made = world(
        "permit: pod.namespace is kube-system -> allow\n"
        'permit: node.label closed -> reject message "{node.name} is closed"\n',
        nodes=(),
    )
    made.handlers.nodes.on_add(make_node("n1", cpu="2", labels={"closed": "yes"}))
    made.comes("a", namespace="kube-system")
    made.comes("b")
    await made.turn()
    assert [name for name, _ in made.edge.binds] == ["a"]
    assert messages(made) == ["node n1 was chosen and refused: n1 is closed (p.policy:2)"]


@pytest.mark.parametrize("statement", ["prebind: annotate example.com/total = score.total",
                                       'postbind: event "{score.total}"'])  # fmt: skip
async def test_the_only_feasible_node_has_scores_where_they_are_read(statement):
    made = world(f"score: 40\n{statement}\n")
    made.comes("a")
    await made.turn()
    (decision,) = made.decisions
    assert {one.plugin: one.normalized for one in decision.scores}["p"] == 40
    assert decision.total >= 40


async def test_the_only_feasible_node_is_not_scored_for_nobody():
    made = world("score: 40\nprebind: annotate example.com/zone = node.name\n")
    made.comes("a")
    await made.turn()
    (decision,) = made.decisions
    assert (decision.total, decision.scores) == (0.0, ())


async def test_annotations_ride_on_the_binding_and_events_follow_it():
    made = world(
        "prebind: annotate example.com/zone = node.label[zone], annotate example.com/none ="
        " node.label[none]\n"
        'postbind: pod.priority >= 10 -> event "on {node.name}"\n',
        nodes=(),
    )
    made.handlers.nodes.on_add(make_node("n1", cpu="2", labels={"zone": "z1"}))
    seen = []
    bind = made.edge.bind

    async def spy(effect):
        seen.append(dict(effect.annotations))
        return await bind(effect)

    made.edge.bind = spy
    made.comes("a", priority=10)
    made.comes("b", priority=0)
    await made.turn()
    assert seen == [{"example.com/zone": "z1"}] * 2
    assert [one for one in made.edge.events if one[2] == "Policy"] == [
        ("a", "Normal", "Policy", "on n1")
    ]


LABEL = "prebind: label example.com/node = node.name, label example.com/none = node.label[none]\n"


async def test_labels_are_written_before_the_binding_and_seen_at_once():
    made = world(LABEL + "filter: count(node.pods where it.label example.com/node=n1) < 1\n")
    made.comes("a")
    made.comes("b")
    await settle(made)
    body = {"metadata": {"uid": "uid-default-a", "labels": {"example.com/node": "n1"}}}
    assert made.edge.patches == [("a", body)]
    assert made.edge.calls[0][0] == "patch", "before the binding"
    assert made.edge.binds == [("a", "n1")]
    assert made.where("b") is SubQueue.UNSCHEDULABLE, "the first one is labelled in the same cycle"


async def test_annotations_are_seen_at_once_too():
    made = world(
        "prebind: annotate example.com/node = node.name\n"
        "filter: count(node.pods where it.annotation example.com/node=n1) < 1\n"
    )
    made.comes("a")
    made.comes("b")
    await settle(made)
    assert made.edge.binds == [("a", "n1")]
    assert made.where("b") is SubQueue.UNSCHEDULABLE, "assumed pods carry what was decided"


@pytest.mark.parametrize(("before", "undone"), [({}, None), ({"example.com/node": "old"}, "old")])
async def test_labels_are_taken_back_if_the_pod_is_not_bound(before, undone):
    made = world(LABEL)
    made.edge.bind_answers.append(REFUSED)
    made.comes("a", labels=before)
    await settle(made)
    back = {"metadata": {"uid": "uid-default-a", "labels": {"example.com/node": undone}}}
    assert [body for _, body in made.edge.patches][1] == back
    assert made.where("a") is SubQueue.BACKOFF


async def test_labels_that_cannot_be_written_fail_the_pod_and_nothing_is_bound():
    made = world(LABEL)
    made.edge.patch_answers.append("pods is forbidden: cannot patch")
    made.comes("a")
    await settle(made)
    assert (made.edge.binds, len(made.edge.patches)) == ([], 1)
    assert messages(made) == ["pods is forbidden: cannot patch"]
    assert made.assigned("a") is None


async def test_what_postbind_sets_is_written_when_the_pod_is_bound_and_only_then():
    made = world('postbind: annotate example.com/at = node.name, label example.com/done = "yes"\n')
    made.edge.bind_answers.extend([REFUSED, BOUND])
    made.comes("a")
    await made.turn()
    assert made.edge.patches == []
    await made.turn(after=2.0)
    await made.scheduler.drain()
    meta = {"labels": {"example.com/done": "yes"}, "annotations": {"example.com/at": "n1"}}
    assert made.edge.patches == [("a", {"metadata": {"uid": "uid-default-a", **meta}})]


async def test_what_postbind_could_not_set_is_told_of_its_pod(caplog):
    made = world("postbind: annotate example.com/at = node.name\n")
    made.edge.patch_answers.append("403 Forbidden: cannot patch")
    made.comes("a")
    await made.turn()
    await made.scheduler.drain()
    (told,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert told.endswith('pod="default/a" reason="403 Forbidden: cannot patch"')


@pytest.mark.parametrize("together", [True, False])
async def test_a_prefilter_over_nodes_is_asked_with_the_pods_that_were_placed_before(together):
    made = world(
        "prefilter: count(nodes where node.cpu.free >= pod.cpu) >= 2\n", nodes=("n1", "n2")
    )
    for name in ("a", "b"):
        made.comes(name, cpu="2")
        if not together:
            await made.turn()
    await made.turn()
    assert [name for name, _ in made.edge.binds] == ["a"]


async def test_a_dry_run_binds_nothing_and_says_so():
    made = world("bind: pod.label sandbox -> dry run\nbind: default\n")
    made.comes("a", labels={"sandbox": "yes"})
    made.comes("b")
    await made.turn()
    assert [name for name, _ in made.edge.binds] == ["b"]
    assert made.assigned("a") is None
    note = "Would assign default/a to n1; dry run, nothing was bound"
    assert ("a", "Normal", "DryRun", note) in made.edge.events
    assert made.edge.conditions == [("a", "DryRun", note)]


@pytest.mark.parametrize("how", ["rules", "label", "time"])
async def test_a_pod_that_was_only_pretended_to_be_bound_is_when_no_rule_says_so_any_more(how):
    made = world('bind: pod.label sandbox and now < time("2025-03-01T10:01:00Z") -> dry run\n')
    pods = [made.comes(name, labels={"sandbox": "yes"}) for name in ("a", "b")]
    await made.turn()
    assert made.edge.binds == []
    dry = [name for name, _, why, _ in made.edge.events if why == "DryRun"]
    assert sorted(dry) == ["a", "b"]
    if how == "rules":
        made.scheduler.use(chain({"p.policy": "score: 50\n"}), frozenset({"p"}))
    for pod in pods if how == "label" else ():
        made.edits(pod, metadata={"labels": {}})
    await made.turn(after=61.0 if how == "time" else 11.0)
    assert sorted(made.edge.binds) == [("a", "n1"), ("b", "n1")]


async def test_a_pod_that_is_only_pretended_to_be_bound_is_promised_no_node():
    made = world("")
    low = made.comes("low", node="n1", cpu="2")
    made.comes("high", cpu="2", priority=10, labels={"sandbox": "yes"})
    await settle(made)
    assert made.edge.nominations == [("high", "n1")]
    made.scheduler.use(chain({"p.policy": "bind: pod.label sandbox -> dry run\n"}), None)
    made.handlers.pods.on_delete(low)
    await made.turn(after=11.0)
    assert made.edge.nominations == [("high", "n1"), ("high", "")]


async def test_nobody_is_evicted_for_a_pod_that_is_only_pretended_to_be_bound():
    made = world("bind: pod.label sandbox -> dry run\n")
    made.comes("low", node="n1", cpu="2")
    made.comes("dry", cpu="2", priority=10, labels={"sandbox": "yes"})
    await settle(made)
    assert (made.edge.evictions, made.edge.nominations) == ([], [])
    assert "preemption (p.policy:1): this pod may evict nobody" in made.edge.conditions[-1][2]
    made.comes("high", cpu="2", priority=10)
    await settle(made)
    assert made.edge.evictions == ["low"], "what becomes of one says nothing of the other"
    assert made.edge.nominations == [("high", "n1")]


class Remote:
    """Hands pods over by an annotation, to somebody who may bind them."""

    name = "Remote"

    def points(self):
        return Points(binder=self.hand)

    def hand(self, pod, snapshot, row):
        return (set_on_pod(pod, {}, {"remote.example.com/node": snapshot.nodes.name(row)}),)


def handing_over():
    remote = (*default_plugins(), Weighted(Remote()))
    settings = compile_settings(BerthDocument(), [Profile("berth", remote)])
    text = "bind: pod.label far -> with Remote\nprebind: annotate example.com/a = node.name\n"
    made = World({}, in_tree=remote)
    bundle = compile_at_once(compiler(), {"p.policy": text}, settings)
    profile = Profile("berth", remote)
    framework = framework_of(profile, bundle, worlds=Worlds(ZoneInfo("UTC"), ()))
    made.scheduler.use(framework, None)
    return made


async def test_a_pod_is_handed_to_who_binds_it_and_watched_until_it_is_bound():
    made = handing_over()
    pod = made.comes("a", labels={"far": "yes"})
    made.comes("b")
    await settle(made)
    assert [name for name, _ in made.edge.binds] == ["b"]
    assert made.edge.patches == [
        ("a", {"metadata": {"uid": "uid-default-a", "annotations": {key: "n1"}}})
        for key in ("example.com/a", "remote.example.com/node")
    ], "no Binding of ours carries the annotations"
    assert made.assigned("a") == ("n1", True)
    made.bound(pod, "n1")
    await settle(made)
    assert made.telemetry.value(ATTEMPTS, "scheduled", "berth") == 2
    assert made.where("a") is None


async def test_a_pod_that_nobody_binds_within_a_minute_is_taken_back():
    made = handing_over()
    made.comes("a", labels={"far": "yes"})
    await settle(made)
    await settle(made, after=60.0)
    assert messages(made) == ["binding rejected: Remote has not bound it within 60 s"]
    undo = {"remote.example.com/node": None}, {"example.com/a": None}
    assert [body["metadata"]["annotations"] for _, body in made.edge.patches[2:]] == [*undo]
    assert (made.assigned("a"), made.where("a")) == (None, SubQueue.BACKOFF)


async def test_a_binder_that_the_profile_lacks_is_named():
    made = handing_over()
    bundle = compile_at_once(
        compiler(),
        {"p.policy": "bind: with Remote\n"},
        compile_settings(BerthDocument(), [Profile("berth", (Weighted(Remote()),))]),
    )
    profile = Profile("berth", tuple(default_plugins()))
    worlds = Worlds(ZoneInfo("UTC"), ())
    made.scheduler.use(framework_of(profile, bundle, worlds=worlds), None)
    made.comes("a")
    await settle(made)
    assert messages(made) == ["no plugin of the profile binds pods as Remote"]


def test_results_and_sort_fields_are_served():
    assert compiled({"p.policy": "prebind: annotate example.com/s = score.total\n"})
    assert compiled({"p.policy": "sort: pod.queued_at\n"})
