"""`quota:` on a running scheduler: accounts that follow pods, what is lent and taken back."""

from __future__ import annotations

import asyncio
import gc
import itertools
import weakref

import msgspec
import pytest

from dsl.collective import Limits, QuotaUse, pool_of
from engine.cache import cache as cache_module
from engine.collective.quotas import exceeded
from engine.cycle import decide
from engine.framework.events import Resource
from engine.objects import Condition, Namespace, from_builtins
from engine.objects.workloads import ElasticQuota
from engine.pods.podinfo import CPU
from engine.policy import accounts
from engine.queue import SubQueue
from tests.builders import Cache, changed, make_node, make_pod, pod_object
from tests.engine.policy.builders import chain
from tests.engine.test_preemption import being_deleted, settle
from tests.engine.test_scheduler import REFUSED, World

ELASTIC = "quota: by pod.namespace elastic reclaim it.priority, it.name\n"


class Quotas(World):
    """Nodes of many cores, so that quotas alone decide, and ElasticQuotas."""

    def __init__(self, policy, *, nodes=("n1",), cpu="100", **quotas):
        super().__init__({"p.policy": policy}, nodes=())
        for name in nodes:
            self.handlers.nodes.on_add(make_node(name, cpu=cpu))
        self.objects = self.handlers.of(Resource.ELASTIC_QUOTA)
        self.known = {}
        for namespace, (least, most) in quotas.items():
            self.quota(namespace, least, most)

    def quota(self, namespace, least, most):
        made = from_builtins(
            ElasticQuota,
            {
                "metadata": {"name": "quota", "namespace": namespace},
                "spec": {"min": {"cpu": least}, "max": {"cpu": most}},
            },
        )
        old = self.known.get(namespace)
        self.known[namespace] = made
        if old is None:
            self.objects.on_add(made)
        else:
            self.objects.on_update(old, made)

    def runs(self, name, namespace="a", cpu="1", node="n1", **how):
        pod = pod_object(name, namespace=namespace, cpu=cpu, node=node, **how)
        self.handlers.pods.on_add(pod)
        return pod

    def goes(self, pod):
        """It has been evicted by a scheduler, and is terminating."""
        old = being_deleted(pod)
        evicted = [Condition("DisruptionTarget", "True", "PreemptionByScheduler")]
        going = changed(old, status={"conditions": evicted})
        self.handlers.pods.on_update(pod, going)
        return going

    def placed(self, name, namespace="a"):
        return self.cache.node_of(f"uid-{namespace}-{name}") is not None

    def where(self, name="p"):
        return self.queue.get(f"uid-a-{name}").where

    def words(self, name):
        return [message for one, _, message in self.edge.conditions if one == name][-1]


async def test_bindings_in_flight_never_pass_a_maximum_together():
    made = Quotas("quota: by pod.namespace max cpu 2\n")
    answers = [asyncio.get_running_loop().create_future() for _ in range(2)]
    made.edge.bind_answers.extend(answers)
    for name in ("p1", "p2", "p3"):
        made.comes(name, cpu="1")
    made.comes("other", namespace="b", cpu="2")
    await settle(made)
    assert [made.placed(name, "default") for name in ("p1", "p2", "p3")] == [True, True, False]
    assert made.placed("other", "b"), "another namespace has a maximum of its own"
    words = "quota of default: no more cpu: 2 used, 1 asked for, at most 2 (p.policy:1)"
    assert made.words("p3") == f"0/1 nodes are available: {words}. preemption: 0/1 nodes are" + (
        f" available: 1 {words}."
    )
    answers[0].set_result(REFUSED)
    await settle(made)
    await settle(made, after=2.0)
    placed = [made.placed(name, "default") for name in ("p1", "p2", "p3")]
    assert sum(placed) == 2
    assert placed[1]


@pytest.mark.parametrize("least", ["-1", "-1e30", "-9Ei"])
async def test_a_negative_minimum_takes_nothing_from_the_minimums_of_others(least):
    made = Quotas(ELASTIC, a=("2", "4"), odd=(least, least))
    made.comes("p", namespace="a", cpu="2")
    made.comes("own", namespace="odd", cpu="1")
    await settle(made)
    assert made.placed("p")
    assert not made.placed("own", "odd")
    assert "quota of odd: no more cpu: 0 used, 1 asked for, at most 0" in made.words("own")
    assert "Error" not in made.words("own")


async def test_of_thousands_of_resources_that_a_quota_names_some_are_read_once(monkeypatch):
    made = Quotas(ELASTIC, a=("2", "4"), b=("2", "4"), odd=("1", "1"))
    read, real = [], accounts.parse_quantity
    monkeypatch.setattr(accounts, "parse_quantity", lambda text: read.append(text) or real(text))
    many = {f"example.com/r{number}": 1 for number in range(1_000)}
    for changes in range(1, 4):
        meta = {"name": "quota", "namespace": "odd", "annotations": {"a": str(changes)}}
        odd = from_builtins(ElasticQuota, {"metadata": meta, "spec": {"min": many, "max": many}})
        made.objects.on_update(made.known["odd"], odd)
        made.comes(f"p{changes}", namespace="a", cpu="1")
        await settle(made)
        assert made.placed(f"p{changes}")
        assert len(read) == 4 + changes * 2 * accounts.MOST_NAMED
    book, snapshot = accounts.Book("name", None), made.scheduler.snapshot()
    _, _, pool = book.standing(None, snapshot, accounts.namespace_of)
    assert pool.minimum == {CPU: 4000}, "what others name and nobody uses costs nobody"


async def test_a_gang_starts_whole_within_its_quota_or_not_at_all():
    gang = "gang: by pod.label[job] min 3\nquota: by pod.namespace max cpu {}\n"
    for most, count in (("2", 0), ("3", 3)):
        made = Quotas(gang.format(most))
        for number in range(3):
            made.comes(f"p{number}", namespace="a", cpu="1", labels={"job": "j"})
        await made.turn()
        assert sum(made.placed(f"p{number}") for number in range(3)) == count


async def test_terminating_pods_count_until_they_are_gone():
    made = Quotas("quota: by pod.namespace max cpu 2\n")
    old = made.runs("old", cpu="2")
    made.handlers.pods.on_update(old, being_deleted(old))
    made.comes("new", namespace="a", cpu="1")
    await settle(made)
    await settle(made, after=400.0)
    assert not made.placed("new")
    made.handlers.pods.on_delete(being_deleted(old))
    await settle(made, after=20.0)
    assert made.placed("new")


async def test_quota_released_by_victims_is_kept_for_their_preemptor():
    preempt = "preempt: victims where it.priority < pod.priority\n"
    made = Quotas(f"quota: by pod.namespace max cpu 4\n{preempt}")
    old = made.runs("old", cpu="4")
    made.comes("low", namespace="a", cpu="1")
    await settle(made)
    made.clock.advance(20.0)
    made.comes("high", namespace="a", cpu="4", priority=9)
    await settle(made)
    made.handlers.pods.on_delete(old)  # who tried last is backing off, the other one is not
    made.comes("new", namespace="a", cpu="1")
    await settle(made)
    words = "quota of a: no more cpu: 0 used, 4 promised, 1 asked for, at most 4"
    assert words in made.words("new")
    await settle(made, after=3.0)
    assert [made.placed(name) for name in ("low", "new", "high")] == [False, False, True]
    assert made.edge.evictions == ["old"]


async def test_a_quota_below_what_runs_rejects_and_evicts_nobody():
    made = Quotas(ELASTIC, a=("1", "2"), b=("1", "2"))
    pods = [made.runs(f"r{number}") for number in range(4)]
    made.comes("new", namespace="a", cpu="1")
    await settle(made)
    assert made.edge.evictions == []
    assert "no more cpu: 4 used, 1 asked for, at most 2" in made.words("new")
    for pod in pods[:3]:
        made.handlers.pods.on_delete(pod)
    await settle(made, after=20.0)
    assert made.placed("new")


async def test_two_pods_at_once_reclaim_what_is_lent_and_leave_minimums_alone():
    """Two preemptors in a row: the second sees whom the first evicts, though nobody is gone."""
    made = Quotas(ELASTIC, a=("4", "8"), b=("4", "8"))
    for number in range(6):
        made.runs(f"a{number}", priority=number)
    answers = [asyncio.get_running_loop().create_future() for _ in range(2)]
    made.edge.evict_answers.extend(answers)
    for number in range(6):
        made.comes(f"b{number}", namespace="b", cpu="1")
    await settle(made)
    assert sum(made.placed(f"b{number}", "b") for number in range(6)) == 2
    assert sorted(made.edge.evictions) == ["a0", "a1"], "two of six bring `a` to its minimum"
    for answer in answers:
        answer.set_result("")
    await settle(made)
    for _ in range(3):
        await settle(made, after=400.0)
    assert len(made.edge.evictions) == 2
    for name in ("a0", "a1"):
        made.handlers.pods.on_delete(made.cache.pods.pod(made.cache.pods.row(f"uid-a-{name}")).pod)
        await settle(made, after=20.0)
    assert sum(made.placed(f"b{number}", "b") for number in range(6)) == 4
    assert len(made.edge.evictions) == 2
    waiting = [n for n in range(6) if not made.placed(f"b{n}", "b")]
    assert "quota of b: no cpu left to borrow: " in made.words(f"b{waiting[0]}")


async def test_a_victim_on_one_node_is_not_counted_as_reclaimable_on_another():
    """The nodes are full, not the quotas: one of six is lent, wherever it is taken back."""
    made = Quotas(ELASTIC, nodes=("n1", "n2"), cpu="3", a=("5", "9"), b=("3", "9"), c=("9", "9"))
    for number in range(6):
        made.runs(f"a{number}", node=f"n{1 + number % 2}", priority=number)
    answer = asyncio.get_running_loop().create_future()
    made.edge.evict_answers.append(answer)
    for number in range(2):
        made.comes(f"b{number}", namespace="b", cpu="1")
    await settle(made)
    assert made.edge.evictions == ["a0"]
    answer.set_result("")
    await settle(made)
    assert made.edge.evictions == ["a0"]


async def test_quota_released_by_victims_on_other_nodes_is_not_reclaimed_twice():
    nodes = [f"n{number}" for number in range(8)]
    made = Quotas(ELASTIC, nodes=nodes, cpu="1", a=("2", "9"), b=("6", "9"))
    pods = [made.runs(f"a{number}", node=node) for number, node in enumerate(nodes)]
    for number in range(3):
        made.comes(f"b{number}", namespace="b", cpu="1")
    await settle(made)
    assert made.edge.evictions == ["a0", "a1", "a2"]
    for number in range(3):
        pods[number] = made.goes(pods[number])
    made.comes("b3", namespace="b", cpu="1")
    await settle(made)
    assert made.edge.evictions == ["a0", "a1", "a2", "a3"]
    for count, number in enumerate((3, 0, 2, 1)):  # each is for one of them, whoever is left
        made.handlers.pods.on_delete(pods[number])
        await settle(made, after=20.0)
        assert sum(made.placed(f"b{one}", "b") for one in range(4)) == count + 1
    assert len(made.edge.evictions) == 4


ON_N2 = "filter: pod.name is a1 -> node.name is n2\n"


@pytest.mark.parametrize(
    ("rule", "node"),
    [
        ("", "n1"),
        ("require: count(node.pods where it.label app=x) == 0\n", "n1"),
        (ON_N2, "n2"),
    ],
)
@pytest.mark.parametrize(("cpu", "evicted"), [("3", ["b0"]), ("4", ["b0", "b1"])])
async def test_quota_that_victims_release_beyond_a_nomination_is_given_once(
    cpu, evicted, rule, node
):
    """The first pod is promised 1 of the 4 that its victim leaves: 3 are left, for any node."""
    made = Quotas(rule + ELASTIC, nodes=sorted({"n1", node}), a=("6", "9"), b=("2", "9"))
    pods = [
        made.runs(f"b{number}", "b", cpu="4", priority=number, node=("n1", node)[number])
        for number in range(2)
    ]
    for number, asked in enumerate(("1", cpu)):
        made.comes(f"a{number}", namespace="a", cpu=asked)
        await settle(made)
    assert made.edge.evictions == evicted
    for number in range(len(evicted)):
        made.handlers.pods.on_delete(pods[number])
        await settle(made, after=20.0)
    assert made.placed("a0")
    assert made.placed("a1")
    assert made.edge.evictions == evicted


async def test_quota_released_by_a_victim_of_no_waiting_pod_counts_as_free():
    made = Quotas(ELASTIC, a=("6", "9"), b=("2", "9"))
    pods = [made.runs(f"b{number}", "b", cpu="4", priority=1 - number) for number in range(2)]
    made.goes(pods[0])
    made.comes("a0", namespace="a", cpu="1")
    await settle(made)
    assert made.edge.evictions == []


async def test_a_pod_that_waits_for_victims_of_others_is_nominated():
    """`a1` needs no victim, `a2` one more: b0 leaves 4, of which 1 and 3 are promised."""
    made = Quotas(ON_N2 + ELASTIC, nodes=("n1", "n2"), a=("6", "9"), b=("2", "9"))
    for number in range(2):
        made.runs(f"b{number}", "b", cpu="4", priority=number, node=f"n{number + 1}")
    for number, asked in enumerate(("1", "3", "1")):
        made.comes(f"a{number}", namespace="a", cpu=asked)
        await settle(made)
    words = "node n2 is promised, waiting for evicted pods to be gone"
    assert made.words("a1").endswith(words)
    assert made.edge.evictions == ["b0", "b1"]


async def test_pods_that_wait_for_victims_of_others_are_not_all_promised_one_node():
    nodes = tuple(f"n{number}" for number in range(1, 5))
    made = Quotas(ELASTIC, nodes=nodes, a=("8", "20"), b=("4", "20"))
    made.runs("b0", "b", cpu="12")
    for number in range(8):
        made.comes(f"a{number}", namespace="a", cpu="1")
        await settle(made)
    assert made.edge.evictions == ["b0"]
    promised = [node for _, node in made.edge.nominations]
    assert sorted(promised) == sorted([*nodes, *nodes])


@pytest.mark.parametrize("within", ["", " within node"])
async def test_a_gang_waits_for_what_victims_of_others_leave(within):
    gang = f"gang: by pod.label[job] min 2{within}\n"
    made = Quotas(gang + ELASTIC, nodes=("n1", "n2"), a=("6", "9"), b=("2", "9"))
    for number in range(2):
        pod = made.runs(f"b{number}", "b", cpu="4", priority=1 - number, node=f"n{number + 1}")
    made.comes("a0", namespace="a", cpu="1")
    await settle(made)
    for name in ("g0", "g1"):
        made.comes(name, namespace="a", cpu="1", labels={"job": "j"})
    await settle(made)
    made.handlers.pods.on_delete(pod)
    await settle(made, after=20.0)
    assert [made.placed(name) for name in ("a0", "g0", "g1")] == [True] * 3
    assert made.edge.evictions == ["b1"]


async def test_a_pod_is_tried_again_if_the_victims_it_waits_for_stay():
    made = Quotas(ON_N2 + ELASTIC, nodes=("n1", "n2"), a=("6", "9"), b=("2", "9"))
    answer = asyncio.get_running_loop().create_future()
    made.edge.evict_answers.append(answer)
    for number in range(2):
        made.runs(f"b{number}", "b", cpu="4", priority=number, node=f"n{number + 1}")
        made.comes(f"a{number}", namespace="a", cpu=("1", "3")[number])
    await settle(made)
    assert made.where("a1") is SubQueue.UNSCHEDULABLE
    answer.set_result("not now")
    await settle(made)
    assert made.edge.evictions == ["b0", "b1"], "it makes room by itself, which is enough for both"
    await settle(made, after=20.0)
    assert made.edge.evictions == ["b0", "b1"]


async def test_a_refused_eviction_is_no_error_of_who_waits_elsewhere():
    made = Quotas("preempt: victims where it.priority < pod.priority", nodes=("n1", "n2"), cpu="2")
    slow = made.runs("slow", "b", cpu="2", node="n2")
    made.runs("kept", "b", cpu="2", priority=1, node="n1")
    made.comes("p", namespace="a", cpu="2", priority=5)
    await settle(made)
    made.goes(slow)
    made.edge.evict_answers.append("refused by a budget")
    made.comes("q", namespace="c", cpu="2", priority=5)
    await settle(made)
    assert made.edge.evictions == ["slow", "kept"]
    waits = made.queue.get("uid-a-p")
    assert (waits.errors, waits.where) == (0, SubQueue.UNSCHEDULABLE)


async def test_minimums_of_a_quota_line_hold_beside_rules_that_read_quotas():
    line = "quota: by pod.namespace min cpu 2 max cpu 9 elastic"
    reads = "filter: pod.label odd -> quota.over_min_with_pod"
    made = Quotas(f"{line}\n{reads}", a=("1", "9"))
    for number in range(2):
        made.runs(f"b{number}", "b", cpu="2")
        made.comes(f"a{number}", namespace="a", cpu="2", labels={"odd": "x"})
    await settle(made)
    assert not [one for one in ("a0", "a1") if made.placed(one)]


async def test_a_pod_evicts_no_more_on_its_node_than_it_lacks_there():
    """b0 leaves 3 that nobody was promised; n2 lacks 2 of them."""
    made = Quotas(ON_N2 + ELASTIC, nodes=("n1", "n2"), cpu="5", a=("8", "9"), b=("1", "9"))
    for number, (cpu, node) in enumerate((("4", "n1"), ("2", "n2"), ("2", "n2"))):
        made.runs(f"b{number}", "b", cpu=cpu, node=node, priority=number)
    made.runs("a9", "a", cpu="1")
    for number, asked in enumerate(("1", "3")):
        made.comes(f"a{number}", namespace="a", cpu=asked)
        await settle(made)
    assert made.edge.evictions == ["b0", "b1"]


async def test_a_pod_preempts_below_a_maximum_while_victims_of_others_terminate():
    nodes = ("n1", "n2")
    preempt = "preempt: victims where it.priority < pod.priority"
    made = Quotas(f"quota: by pod.namespace max cpu 2\n{preempt}\n", nodes=nodes)
    pods = [made.runs(f"low{number}", node=node) for number, node in enumerate(nodes)]
    for number in range(2):
        made.comes(f"p{number}", namespace="a", cpu="1", priority=5)
        await settle(made)
    assert made.edge.evictions == ["low0", "low1"]
    for number in range(2):
        made.handlers.pods.on_delete(pods[number])
        await settle(made, after=20.0)
        assert len(made.edge.binds) == number + 1


GPU = "example.com/gpu"


def with_gpu(cpu, gpu="1"):
    return {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, GPU: gpu}}}]}


@pytest.mark.parametrize(("cpu", "evicted"), [("90", ["c0"]), ("16", ["c0", "b-cpu"])])
async def test_borrowing_one_resource_does_not_cost_the_minimum_of_another(cpu, evicted):
    """`b` has the cards that it is guaranteed, and more cores; `c` has borrowed those of `a`."""
    made = Quotas(ELASTIC, nodes=())
    made.handlers.nodes.on_add(make_node("n1", cpu=cpu, **{GPU: "8"}))
    for namespace, least in {"a": ("8", "4"), "b": ("4", "4"), "c": ("9", "0")}.items():
        amounts = dict(zip(("cpu", GPU), least, strict=True))
        meta, most = {"name": "q", "namespace": namespace}, {"cpu": "50", GPU: "8"}
        made.objects.on_add(
            from_builtins(ElasticQuota, {"metadata": meta, "spec": {"min": amounts, "max": most}})
        )
    for number in range(4):
        for namespace, cores in (("b", "2"), ("c", "1")):
            made.runs(f"{namespace}{number}", namespace, spec=with_gpu(cores) | {"nodeName": "n1"})
    made.runs("b-cpu", "b", cpu="4")
    made.comes("p", namespace="a", spec=with_gpu("3"))
    await settle(made)
    assert made.edge.evictions == evicted


def gpu_quotas(made, **amounts):
    for namespace, (least, most) in amounts.items():
        each = [dict(zip(("cpu", GPU), one, strict=True)) for one in (least, most)]
        spec = dict(zip(("min", "max"), each, strict=True))
        meta = {"name": "q", "namespace": namespace}
        made.objects.on_add(from_builtins(ElasticQuota, {"metadata": meta, "spec": spec}))


@pytest.mark.parametrize(("gpu", "evicted"), [("0", ["b-cpu"]), ("1", [])])
async def test_who_asks_for_no_card_takes_its_cores_back_though_its_quota_borrows_cards(
    gpu, evicted
):
    made = Quotas(ELASTIC, nodes=())
    made.handlers.nodes.on_add(make_node("n1", cpu="20", **{GPU: "8"}))
    gpu_quotas(made, a=(("4", "2"), ("20", "8")), b=(("4", "4"), ("20", "8")))
    for number in range(3):
        made.runs(f"a{number}", spec=with_gpu("0") | {"nodeName": "n1"})
    made.runs("b-cpu", "b", cpu="8")
    made.comes("p", namespace="a", spec=with_gpu("2", gpu))
    await settle(made)
    assert made.edge.evictions == evicted


@pytest.mark.parametrize(("gpu", "placed"), [("0", True), ("1", False)])
async def test_who_asks_for_no_card_is_not_held_by_the_cards_of_others(gpu, placed):
    """The maximum is below what its quota uses."""
    made = Quotas(ELASTIC, nodes=())
    made.handlers.nodes.on_add(make_node("n1", cpu="20", **{GPU: "8"}))
    gpu_quotas(made, a=(("4", "4"), ("20", "2")))
    for number in range(3):
        made.runs(f"a{number}", spec=with_gpu("0") | {"nodeName": "n1"})
    made.comes("p", namespace="a", spec=with_gpu("2", gpu))
    await settle(made)
    assert made.placed("p") is placed


async def test_pods_of_a_deleted_node_are_not_counted_as_reclaimable():
    made = Quotas(ELASTIC, nodes=("n1", "n2"), a=("2", "4"), b=("3", "5"))
    made.runs("a0", cpu="1")
    lost = made.runs("a1", cpu="3", node="n2")
    made.handlers.nodes.on_delete(make_node("n2", cpu="100"))
    made.handlers.pods.on_update(lost, being_deleted(lost))
    made.comes("b0", namespace="b", cpu="2")
    await settle(made)
    assert made.edge.evictions == []


async def test_beyond_its_minimum_a_namespace_replaces_its_own_less_important_pods():
    made = Quotas(ELASTIC, a=("2", "4"), b=("2", "4"))
    for number in range(3):
        made.runs(f"a{number}", priority=number)
    made.runs("b0", "b")
    made.comes("high", namespace="a", cpu="1", priority=10)
    made.comes("low", namespace="a", cpu="1", priority=-1)
    await settle(made)
    assert made.edge.evictions == ["a0"]


async def test_pods_on_several_nodes_lend_and_the_node_with_enough_of_them_is_taken():
    made = Quotas(ELASTIC, nodes=("n1", "n2"), cpu="6", a=("2", "8"), b=("6", "8"))
    for number in range(6):
        made.runs(f"a{number}", node="n1" if number < 4 else "n2", priority=number)
    made.comes("b0", namespace="b", cpu="4")
    await settle(made)
    assert sorted(made.edge.evictions) == ["a0", "a1"], made.words("b0")


async def test_a_minimum_is_given_back_though_no_node_alone_has_enough_to_give():
    nodes = tuple(f"n{number}" for number in range(4))
    made = Quotas(ELASTIC, nodes=nodes, cpu="4", a=("2", "6"), b=("4", "6"), c=("0", "2"))
    for number in range(4):
        made.runs(f"a{number}", node=f"n{number}", priority=number)
    made.runs("c0", "c", node="n0", priority=9)
    made.comes("b0", namespace="b", cpu="4")
    await settle(made)
    assert sorted(made.edge.evictions) == ["a0", "a1", "c0"], made.words("b0")
    for name, owner in (("a0", "a"), ("a1", "a"), ("c0", "c")):
        row = made.cache.pods.row(f"uid-{owner}-{name}")
        made.handlers.pods.on_delete(made.cache.pods.pod(row).pod)
        await settle(made, after=20.0)
    assert made.placed("b0", "b")
    assert len(made.edge.evictions) == 3


async def test_pods_go_elsewhere_where_the_node_has_room_by_itself():
    nodes = ("n0", "n1", "n2", "n3")
    made = Quotas(ELASTIC, nodes=nodes, cpu="4", a=("1", "6"), b=("3", "6"))
    for number in range(3):
        made.runs(f"a{number}", node=f"n{number}", priority=number)
    made.comes("b0", namespace="b", cpu="3")
    await settle(made)
    assert sorted(made.edge.evictions) == ["a0", "a1"], made.words("b0")


async def test_whoever_may_evict_borrowers_is_woken_as_others_borrow():
    policy = "filter: pod.name is c0 -> node.name is n1\npreempt: victims where it.quota.over_min\n"
    made = Quotas(policy, nodes=("n1", "n2"), cpu="1", a=("1", "9"))
    made.runs("a0")
    made.comes("c0", namespace="c", cpu="1", priority=10)
    await settle(made)
    assert made.edge.evictions == []
    made.runs("a1", node="n2")
    await settle(made, after=20.0)
    assert made.edge.evictions == ["a0"]


COMES_ANEW = [
    ELASTIC,
    "preempt: pod.namespace is b -> victims where it.namespace is a and it.priority < 11\n",
]


@pytest.mark.parametrize("policy", COMES_ANEW)
async def test_the_successor_of_a_victim_does_not_take_back_what_its_namespace_had_borrowed(policy):
    """The next pod of a ReplicaSet is as important as the one that was evicted."""
    made = Quotas(policy, cpu="2", a=("1", "4"), b=("1", "4"), c=("2", "2"))
    a0, _ = [made.runs(f"a{number}", priority=10) for number in range(2)]
    made.comes("b0", namespace="b", cpu="1")
    await settle(made)
    made.comes("a2", namespace="a", cpu="1", priority=10)
    made.handlers.pods.on_delete(a0)
    await settle(made, after=20.0)
    assert (made.placed("b0", "b"), made.edge.evictions) == (True, ["a0"])


async def test_the_successor_of_a_victim_does_not_take_back_a_quota_that_both_share():
    rule = "preempt: pod.label[boss] is present -> victims where it.label[boss] is missing"
    made = Quotas(f"quota: by pod.namespace max cpu 2\n{rule} and it.priority < 11\n")
    a0, _ = [made.runs(f"a{number}", priority=10) for number in range(2)]
    made.comes("b", namespace="a", cpu="1", labels={"boss": "y"})
    await settle(made)
    made.comes("a2", namespace="a", cpu="1", priority=10)
    made.handlers.pods.on_delete(a0)
    await settle(made, after=20.0)
    assert (made.placed("b"), made.edge.evictions) == (True, ["a0"])


@pytest.mark.parametrize(
    "policy", [ELASTIC, "quota: by pod.label[team] max cpu 100\npreempt: victims limit 1\n"]
)
async def test_a_pod_that_no_quota_refuses_is_not_woken_by_released_quota(policy):
    made = Quotas(policy)
    old = made.runs("old", cpu="1")
    made.comes("new", cpu="1", spec={"nodeSelector": {"gpu": "yes"}})
    await settle(made)
    before = len(made.decisions)
    made.handlers.pods.on_delete(old)
    await settle(made, after=11.0)
    assert len(made.decisions) == before


@pytest.mark.parametrize("ends", ["deleted", "withdrawn", "gated"])
async def test_a_nomination_that_ends_wakes_more_important_pods_of_other_quotas(ends):
    made = Quotas(f"{ELASTIC}gate: not pod.label hold=yes\n", a=("2", "9"), b=("2", "9"))
    there = {"labels": {"hold": "yes"}, "status": {"nominatedNodeName": "n1"}}
    nominated = made.comes("low", namespace="a", cpu="2", **there)
    made.comes("high", namespace="b", cpu="3", priority=10)
    await settle(made)
    assert "2 promised" in made.words("high")
    await settle(made, after=30.0)
    if ends == "deleted":
        made.handlers.pods.on_delete(nominated)
    if ends == "withdrawn":
        made.edits(nominated, status={"nominated_node_name": ""})
    await settle(made, after=31.0)
    assert made.placed("high", "b")


async def test_the_successor_of_a_victim_does_not_take_what_a_gang_waits_for():
    policy = "gang: by pod.label[job] min 2\n" + ELASTIC
    made = Quotas(policy, cpu="2", a=("0", "4"), b=("2", "4"), c=("2", "2"))
    a0, _ = [made.runs(f"a{number}", priority=10) for number in range(2)]
    for number in range(2):
        made.comes(f"b{number}", namespace="b", cpu="1", labels={"job": "b"})
    await settle(made)
    assert sorted(made.edge.evictions) == ["a0", "a1"]
    made.handlers.pods.on_delete(a0)
    await settle(made, after=20.0)
    made.comes("a2", namespace="a", cpu="1", priority=10)
    await settle(made)
    assert not made.placed("a2")


async def test_a_pod_that_gave_way_to_a_less_important_one_is_woken_when_that_goes():
    made = Quotas(ELASTIC, cpu="2", a=("1", "4"), b=("1", "4"), c=("2", "2"))
    a0, _ = [made.runs(f"a{number}", priority=10) for number in range(2)]
    made.edge.evict_answers.append(asyncio.get_running_loop().create_future())
    b0 = made.comes("b0", namespace="b", cpu="1")
    made.comes("a2", namespace="a", cpu="1", priority=10)
    await settle(made)
    made.handlers.pods.on_delete(a0)
    await settle(made)
    assert not made.placed("a2")
    made.handlers.pods.on_delete(b0)
    await settle(made, after=20.0)
    assert made.placed("a2")


async def test_a_pod_that_is_overtaken_within_its_quota_is_woken():
    """What the first pod of another one lends came between the two."""
    made = Quotas("quota: by pod.namespace min cpu 2 max cpu 5 elastic reclaim it.priority\n")
    made.runs("a0", priority=10)
    _, first, small = (
        made.comes("a1", namespace="a", cpu="2", priority=10),
        made.comes("b0", namespace="b", cpu="1", priority=5),
        made.comes("a2", namespace="a", cpu="2"),
    )
    await settle(made)
    assert (made.placed("a1"), made.placed("a2")) == (False, True)
    for pod in (first, small):
        made.bound(pod, "n1")
    await settle(made, after=20.0)
    assert made.edge.evictions == ["a2"]


# ---- beside `preempt:` lines

BESIDE = ELASTIC + "preempt: victims where it.priority < pod.priority across 2 nodes\n"


async def test_a_minimum_is_taken_back_beside_a_line_and_from_more_important_pods_too():
    made = Quotas(BESIDE, a=("4", "8"), b=("4", "8"))
    for number in range(8):
        made.runs(f"a{number}", priority=number)
    for number in range(6):
        made.comes(f"b{number}", namespace="b", cpu="1")
    await settle(made)
    assert sorted(made.edge.evictions) == ["a0", "a1", "a2", "a3"]
    assert made.edge.conditions[-1][2].count("preemption (p.policy:") == 2, "both were tried"


async def test_where_a_quota_makes_no_room_the_line_is_tried():
    policy = "require: count(cluster.pods where it.label app=web) == 0\n" + BESIDE
    made = Quotas(policy, nodes=("n1", "n2"), a=("4", "9"), b=("4", "9"))
    made.runs("a0", priority=-1)
    for node in ("n1", "n2"):
        made.runs(f"web-{node}", "b", node=node, labels={"app": "web"})
    made.comes("b0", namespace="b", cpu="1", priority=10)
    await settle(made)
    assert sorted(made.edge.evictions) == ["web-n1", "web-n2"]


async def test_no_line_takes_what_another_quota_guarantees_or_passes_a_maximum():
    made = Quotas(BESIDE, cpu="4", a=("2", "4"), b=("2", "3"), c=("9", "9"))
    for number in range(2):
        made.runs(f"a{number}")
        made.runs(f"b{number}", "b", priority=10)
    made.comes("b2", namespace="b", cpu="1", priority=10)
    await settle(made)
    assert made.edge.evictions == [], "`a` is within its minimum"
    made.quota("a", "1", "4")
    await settle(made, after=400.0)
    assert len(made.edge.evictions) == 1, "one of `a` is lent, and less important"
    made.comes("more", namespace="b", cpu="2", priority=20)
    made.comes("most", namespace="b", cpu="4", priority=20)
    await settle(made)
    assert not any(name.startswith("a") for name in made.edge.evictions[1:])
    assert "no more cpu" in made.words("most")


async def test_a_line_takes_what_others_lend_wherever_one_node_is_enough():
    policy = "filter: pod.namespace is b -> node.name is n2\n" + ELASTIC
    policy += "preempt: victims where it.priority < pod.priority\n"
    made = Quotas(policy, nodes=("n1", "n2"), cpu="1", a=("1", "9"), b=("0", "9"), c=("9", "9"))
    for number in range(2):
        made.runs(f"a{number}", node=f"n{number + 1}", priority=number)
    made.comes("b0", namespace="b", cpu="1", priority=5)
    await settle(made)
    assert made.edge.evictions == ["a1"], "though a0 is the first to go"


async def test_a_line_protects_nobody_from_a_quota_but_never_is_never():
    for line, gone in (
        ("victims where not it.label keep=yes", ["a0"]),
        ("pod.label calm -> never", []),
    ):
        made = Quotas(f"{ELASTIC}preempt: {line}\n", a=("1", "2"), b=("1", "2"))
        for number in range(2):
            made.runs(f"a{number}", priority=number, labels={"keep": "yes"})
        made.comes("b0", namespace="b", cpu="1", labels={"calm": "yes"})
        await settle(made)
        assert made.edge.evictions == gone


async def test_a_preempt_line_does_not_undo_a_reclaim():
    made = Quotas(BESIDE, cpu="2", a=("1", "2"), b=("1", "2"))
    pods = [made.runs(f"a{number}", priority=9 + number) for number in range(2)]
    made.comes("b0", namespace="b", cpu="1")
    await settle(made)
    assert made.edge.evictions == ["a0"]
    made.handlers.pods.on_delete(pods[0])
    made.comes("again", namespace="a", cpu="1", priority=9)
    await settle(made, after=20.0)
    assert made.placed("b0", "b")
    assert not made.placed("again")
    assert made.edge.evictions == ["a0"]


async def test_for_pods_without_a_quota_the_line_alone_decides():
    made = Quotas(BESIDE, cpu="2", a=("2", "2"))
    made.runs("a0")
    made.runs("c0", "c", priority=3)
    made.comes("c1", namespace="c", cpu="1", priority=5)
    await settle(made)
    assert made.edge.evictions == ["a0"]


@pytest.mark.parametrize(("first", "turns"), [("", True), ("quota.over_min_with_pod asc", False)])
async def test_quotas_take_turns_where_pods_that_borrow_come_before_those_within_a_minimum(
    first, turns
):
    """Each has a pod that asks for more than its minimum, and less important ones."""
    line = f"sort: {first}, pod.priority desc\n" if first else ""
    made = Quotas(ELASTIC + line, a=("4", "8"), b=("4", "8"))
    pods, there, going, evicted = {}, itertools.count(), [], []

    def comes(namespace, priority):
        name, cpu = f"p{next(there)}", "5" if priority else "1"
        pods[name] = made.comes(name, namespace=namespace, cpu=cpu, priority=priority)

    for namespace, priority in itertools.product("ab", (0, 0, 0, 0, 10)):
        comes(namespace, priority)
    for _ in range(40):
        await made.turn(after=11.0)
        for pod in going:  # it has terminated, and its owner makes another one
            made.handlers.pods.on_delete(pod)
            comes(pod.metadata.namespace, pod.spec.priority)
        for name, pod in pods.items():
            node = made.cache.node_of(pod.metadata.uid)
            if node and not pod.spec.node_name:
                pods[name] = made.edits(pod, spec={"node_name": node})
        going = [made.goes(pods.pop(name)) for name in made.edge.evictions]
        evicted.append(len(going))
        made.edge.evictions.clear()
    assert any(evicted[20:]) == turns


async def test_a_change_of_the_object_wakes_who_it_held():
    made = Quotas(ELASTIC, a=("1", "1"))
    made.runs("r")
    made.comes("new", namespace="a", cpu="1")
    await settle(made)
    assert made.where("new") is SubQueue.UNSCHEDULABLE
    made.quota("a", "2", "2")
    await settle(made, after=20.0)
    assert made.placed("new")


async def test_who_comes_first_of_a_team_lends_what_the_line_guarantees_to_each():
    made = Quotas("quota: by pod.namespace min cpu 4 max cpu 6 elastic\n")
    for number in range(6):
        made.comes(f"a{number}", namespace="a", cpu="1")
    await settle(made)
    assert not made.placed("a4")
    made.runs("b0", "b")
    await settle(made, after=20.0)
    assert sum(made.placed(f"a{number}") for number in range(6)) == 6


async def test_a_reload_that_removes_the_quota_lets_go_who_it_held():
    made = Quotas("quota: by pod.namespace max cpu 1\n")
    made.runs("r")
    made.comes("new", namespace="a", cpu="1")
    await settle(made)
    assert not made.placed("new")
    made.scheduler.use(chain({"q.policy": "score: 50\n"}), frozenset({"p"}))
    await settle(made, after=20.0)
    assert made.placed("new")


async def test_a_quota_by_a_label_of_the_namespace_follows_its_edits():
    made = Quotas("quota: by namespace.label[team] max cpu 2\n")
    for name in ("a", "b"):
        labels = {"team": "x"} if name == "a" else {}
        made.handlers.namespaces.on_add(namespace(name, labels))
    made.runs("r1", "a")
    made.runs("r2", "b", cpu="2")
    made.comes("one", namespace="a", cpu="1")
    await settle(made)
    assert made.placed("one")
    made.handlers.namespaces.on_update(namespace("b", {}), namespace("b", {"team": "x"}))
    made.comes("two", namespace="a", cpu="1")
    await settle(made)
    assert "quota of x: no more cpu: 4 used, 1 asked for, at most 2" in made.words("two")
    made.handlers.namespaces.on_update(namespace("b", {"team": "x"}), namespace("b", {}))
    made.handlers.pods.on_delete(pod_object("r1", namespace="a", cpu="1", node="n1"))
    await settle(made, after=20.0)
    assert made.placed("two")


@pytest.mark.parametrize("says", ["let team = pod.label[{}]", "param key = {}"])
async def test_an_edit_of_what_a_quota_is_by_counts_all_pods_anew(says):
    """The line of the quota itself stays, and with it its number and its text."""
    by = "team" if "let" in says else "pod.label[$key]"
    rules = f"{says}\nquota: by {by} max cpu 1\n"
    made = Quotas(rules.format("a"))
    for name, a in (("one", "x"), ("two", "y")):
        made.comes(name, namespace="ns", cpu="1", labels={"a": a, "b": "x"})
    await settle(made)
    assert made.placed("one", "ns")
    assert made.placed("two", "ns")
    made.scheduler.use(chain({"p.policy": rules.format("b")}), None)
    made.comes("three", namespace="ns", cpu="1", labels={"a": "z", "b": "x"})
    await settle(made)
    assert "quota of x: no more cpu: 2 used, 1 asked for" in made.words("three")


async def test_an_edit_of_another_line_of_its_file_counts_no_pods_anew():
    rules = "let team = pod.label[a]\nquota: by team max cpu 1\nscore: {}\n"
    made = Quotas(rules.format(50))
    made.comes("one", namespace="ns", cpu="1", labels={"a": "x"})
    await settle(made)
    before = set(made.cache.pods._ledgers.values())
    made.scheduler.use(chain({"p.policy": "# of last week\n" + rules.format(60)}), None)
    made.comes("two", namespace="ns", cpu="1", labels={"a": "x"})
    await settle(made)
    assert "quota of x: no more cpu: 1 used, 1 asked for" in made.words("two")
    assert before
    assert set(made.cache.pods._ledgers.values()) == before


async def test_two_instances_of_a_quota_count_by_their_own_parameters():
    made = Quotas("score: 50\n")
    text = "policy: t\nparam key = a\nquota: by pod.label[$key] max cpu 2\n"
    files = {"p.policy": text, "u.policy": "use t (key = b) as other\n"}
    made.scheduler.use(chain(files), None)
    for name, a in (("one", "x"), ("two", "y"), ("three", "z")):
        made.comes(name, namespace="ns", cpu="1", labels={"a": a, "b": "m"})
        await settle(made)
    assert made.placed("two", "ns")
    assert not made.placed("three", "ns")


async def test_namespaces_that_come_and_go_count_no_pods_but_their_own():
    made = Quotas("quota: by namespace.label[team] max cpu 20\n")
    made.handlers.namespaces.on_add(namespace("a", {"team": "x"}))
    for number in range(3):
        made.runs(f"r{number}", "a")
    made.comes("new", namespace="a", cpu="1")
    await settle(made)
    [account] = made.cache.pods._ledgers.values()
    made.handlers.namespaces.on_add(namespace("b", {}))
    made.handlers.namespaces.on_update(namespace("b", {}), namespace("b", {"team": "y"}))
    made.comes("other", namespace="b", cpu="1")
    await settle(made)
    assert [*made.cache.pods._ledgers.values()] == [account], "it is not counted anew"
    assert {key: used["cpu"] for key, used in account.used.items()} == {"x": 4000, "y": 1000}
    made.handlers.namespaces.on_update(namespace("a", {"team": "x"}), namespace("a", {"team": "y"}))
    assert {key: used["cpu"] for key, used in account.used.items()} == {"y": 5000}
    made.handlers.namespaces.on_delete(namespace("b", {"team": "y"}))
    assert {key: used["cpu"] for key, used in account.used.items()} == {"y": 4000}


@pytest.mark.parametrize("elastic", ["", " elastic"])
async def test_a_quota_by_an_annotation_follows_the_edits_of_pods_on_nodes(elastic):
    made = Quotas(f"quota: by pod.annotation[team] min cpu 1 max cpu 1{elastic}\n")

    def pod(name, team, node=""):
        plain = pod_object(name, namespace="a", cpu="1", node=node)
        return changed(plain, metadata={"annotations": {"team": team}})

    there = pod("there", "x", "n1")
    made.handlers.pods.on_add(there)
    made.handlers.pods.on_add(pod("new", "x"))
    await settle(made)
    made.handlers.pods.on_update(there, pod("there", "y", "n1"))
    await settle(made, after=20.0)
    assert made.placed("new")


def namespace(name, labels):
    return from_builtins(Namespace, {"metadata": {"name": name, "labels": labels}})


async def test_a_quota_that_reads_the_time_is_summed_up_each_cycle():
    made = Quotas("quota: time.hour >= 0 and pod.label[x] is y -> by pod.namespace max cpu 1\n")
    made.runs("r", labels={"x": "y"})
    made.runs("other")
    made.comes("held", namespace="a", cpu="1", labels={"x": "y"})
    made.comes("free", namespace="a", cpu="1")
    await settle(made)
    assert made.placed("free")
    assert "no more cpu: 1 used, 1 asked for, at most 1" in made.words("held")


@pytest.mark.parametrize("grows", [False, True])
async def test_a_pod_that_may_preempt_below_a_maximum_is_woken_by_room_on_nodes(grows):
    policy = (
        "quota: by pod.namespace max cpu 2\npreempt: victims where it.priority < pod.priority\n"
    )
    made = Quotas(policy, cpu="2")
    made.runs("a0")
    b0 = made.runs("b0", "b", priority=10)
    made.comes("p", namespace="a", cpu="2", priority=5)
    await settle(made)
    assert made.edge.evictions == []
    node = make_node("n1", cpu="2")
    nodes, pods = made.handlers.nodes, made.handlers.pods
    nodes.on_update(node, make_node("n1", cpu="3")) if grows else pods.on_delete(b0)
    await settle(made, after=20.0)
    assert made.edge.evictions == ["a0"]


async def test_use_is_known_by_fields_and_amounts_of_the_policy_lend_too():
    made = Quotas(
        "quota: by pod.label[team] min cpu 2 max cpu 3 elastic\n"
        'gate: (quota.used[cpu] ?? 0) < 9 message "{quota.used[cpu]} of {quota.min[cpu]}"\n',
        a=("2", "4"),
    )
    for number in range(3):
        made.runs(f"r{number}", labels={"team": "x"}, priority=number)
    made.comes("y", namespace="b", cpu="2", labels={"team": "y"})
    await settle(made)
    assert made.edge.evictions == ["r0"]
    made.runs("big", cpu="6")
    made.comes("gated", namespace="a", cpu="1")
    await settle(made)
    assert made.where("gated") is SubQueue.GATED
    assert made.words("gated") == "9 of 2 (p.policy:2)"


async def test_a_victim_that_does_not_go_keeps_its_use_and_the_minimum_of_nobody_falls():
    made = Quotas(ELASTIC, a=("2", "4"), b=("2", "4"))
    for number in range(4):
        made.runs(f"a{number}", priority=number)
    for number in range(3):
        made.comes(f"b{number}", namespace="b", cpu="1")
    await settle(made)
    for _ in range(5):
        await settle(made, after=400.0)
    assert sorted(made.edge.evictions) == ["a0", "a1"]
    assert not any(made.placed(f"b{number}", "b") for number in range(3))


async def test_rules_may_read_which_pods_are_of_a_quota_that_is_overdrawn():
    policy = "filter: count(node.pods where it.quota.over_min) == 0\n"
    made = Quotas(policy, nodes=("n1", "n2"), a=("1", "9"))
    made.handlers.nodes.on_update(
        made.cache.nodes.node(made.cache.nodes.row("n2")),
        make_node("n2", cpu="100", unschedulable=True),
    )
    made.runs("r1")
    made.comes("first", namespace="b", cpu="1")
    await settle(made)
    assert made.placed("first", "b")
    other = made.runs("r2", node="n2")
    made.comes("second", namespace="b", cpu="1")
    await settle(made)
    assert not made.placed("second", "b"), "a pod elsewhere has overdrawn the quota"
    made.handlers.pods.on_delete(other)
    await settle(made, after=20.0)
    assert made.placed("second", "b")


@pytest.mark.parametrize("changes", ["node goes and comes", "pod is resized"])
async def test_accounts_follow_what_becomes_of_pods(changes):
    made = Quotas("quota: by pod.namespace max cpu 2\n", nodes=("n1", "n2"))
    pod = made.runs("r", cpu="2")
    made.comes("new", namespace="a", cpu="1")
    await settle(made)
    assert not made.placed("new")
    if changes == "pod is resized":
        small = pod_object("r", namespace="a", cpu="1", node="n1")
        made.handlers.pods.on_update(pod, small)
    else:
        made.handlers.nodes.on_delete(make_node("n1", cpu="100"))
        await settle(made, after=20.0)
        assert not made.placed("new"), "the server still has the pod"
        made.handlers.nodes.on_add(make_node("n1", cpu="100"))
        made.handlers.pods.on_delete(pod)
    await settle(made, after=20.0)
    assert made.placed("new")
    assert msgspec.structs.asdict(pod)["metadata"].name == "r"


async def test_accounts_forget_resources_that_nobody_asks_for_any_more():
    made = Quotas(ELASTIC, a=("2", "4"))
    made.comes("stays", namespace="a", cpu="1")
    await settle(made)
    [account] = made.cache.pods._ledgers.values()
    before = dict(account.pool), dict(account.used["a"])
    odd = {"resources": {"requests": {"example.com/odd": "1"}}}
    pod = made.runs("odd", spec={"containers": [{"name": "c", **odd}]})
    assert account.pool["example.com/odd"] == account.used["a"]["example.com/odd"] == 1
    made.handlers.pods.on_delete(pod)
    assert (account.pool, account.used["a"]) == before


async def test_accounts_of_quotas_that_are_gone_follow_no_pods():
    made = Quotas("quota: by pod.namespace max cpu 2\n")
    for number in range(5):
        rules = f"quota: pod.label q{number} -> by pod.label[q{number}] max cpu 1\n"
        made.comes(f"p{number}", cpu="1m")
        await settle(made)
        assert 1 <= len(made.cache.pods._ledgers) <= 2
        made.scheduler.use(chain({"p.policy": rules}), None)


async def test_a_quota_is_counted_once_for_each_node_that_it_keeps_from_being_emptied():
    made = Quotas(ELASTIC, nodes=("n1", "n2"), cpu="2", a=("2", "4"), b=("2", "4"))
    for name, node, namespace in (("a1", "n1", "a"), ("a2", "n1", "a"), ("a3", "n2", "a"),
                                  ("b1", "n2", "b")):  # fmt: skip
        made.runs(name, namespace, node=node)
    made.comes("p", namespace="a", cpu="3", priority=10)
    await settle(made)
    assert made.words("p").endswith(
        "preemption (p.policy:1): 0/2 nodes are available: 2 Insufficient cpu,"
        " 2 quota of a: no more cpu: 3 used, 3 asked for, at most 4."
    )


async def test_what_is_borrowed_while_a_pod_waits_is_taken_back_for_it():
    made = Quotas(ELASTIC, cpu="4", a=("2", "4"), b=("2", "4"))
    made.runs("a0", cpu="2")
    made.runs("c", cpu="1", namespace="c")
    made.comes("b0", namespace="b", cpu="2")
    await settle(made)
    assert made.edge.evictions == [], "all is guaranteed"
    made.runs("a1", cpu="1", priority=5)
    await settle(made, after=20.0)
    assert made.edge.evictions == ["a0"]


def test_a_reason_counts_all_that_decides():
    limits = dict.fromkeys(("a", "b"), Limits({CPU: 4000.0}, {}))
    used = {"a": {CPU: 3000.0}, "b": {CPU: 2000.0}}
    ahead = {"before": {CPU: 1000.0}, "nominated": {"b": {CPU: 2000.0}}}
    pool = pool_of(limits, used)
    use = QuotaUse(key="a", limits=limits, used=used, pool=pool, asked={CPU: 1000.0}, **ahead)
    words = "no cpu left to borrow: 5 used, 3 promised, 1 asked for, 8 guaranteed to all"
    assert exceeded(use, elastic=True) == f"quota of a: {words}"


def test_an_account_keeps_no_texts_that_are_forgotten(monkeypatch):
    monkeypatch.setattr(cache_module, "MOST_TEXTS", 50)
    framework, cache = chain({"p.policy": "quota: by pod.label[team] max cpu 10\n"}), Cache()
    cache.add_node(make_node("n", cpu="100"))
    old = weakref.ref(cache.dictionary)
    for number in range(100):
        cache.pods.text("name", lambda pod: pod.name)
        pod = make_pod(f"p{number}", cpu="6", labels={"team": "a"})
        cache.assume(pod, decide(pod, cache.snapshot(0.0), framework).node)
        refused = decide(
            make_pod("more", cpu="6", labels={"team": "a"}), cache.snapshot(0.0), framework
        )
        assert refused.node is None
        cache.remove_pod(pod.uid)
    gc.collect()
    assert old() is None
