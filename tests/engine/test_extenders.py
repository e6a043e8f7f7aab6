"""HTTP extenders: the scheduler between its queue, a fake server and extenders on loopback."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import ssl
from contextlib import nullcontext, suppress
from datetime import UTC, datetime

import msgspec
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.configuration.scheduler import SchedulerDocument
from engine.configuration.settings import ConfigError, Settings, parse
from engine.cycle import conclude, decide, feasible
from engine.extenders import messages
from engine.extenders.client import ExtenderError, Extenders
from engine.extenders.lane import ExtenderBinder, WholeObjects
from engine.framework.edge import BindOutcome
from engine.framework.effects import Bind
from engine.framework.opinion import LEFT_OUT, NOT_ASKED, Opinion, Scored
from engine.framework.runtime import Framework
from engine.kube.client import Response
from engine.objects import Node, Pod, from_builtins
from engine.plugins.profiles import make_profiles
from engine.pods.podinfo import make_pod_info
from engine.policy.chain import frameworks_of
from engine.policy.world import Worlds
from engine.queue import SubQueue
from engine.serving.selfmade import SelfMade
from engine.tls import load_pair
from tests.builders import Cache, make_node, make_pod, pod_object
from tests.effort import examples
from tests.engine.fake_extender import FakeExtender
from tests.engine.policy.builders import compiled
from tests.engine.test_scheduler import World
from tests.scenarios.fake_server import status

GPU = "example.com/gpu"


def document(url="http://127.0.0.1:1/ext", **fields):
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "extenders": [{"urlPrefix": url, "nodeCacheCapable": True, **fields}],
    }
    return parse("f", SchedulerDocument, config).extenders


class Server:
    """Whole objects as the API server has them: those of the cache, with what Berth reads not."""

    def __init__(self, world):
        self.world = world
        self.gone = set()
        self.fault = ""

    @property
    def nodes(self):
        names = self.world.cache.nodes.names()
        return {name: json.dumps(_whole_node(name)).encode() for name in names}

    async def pod(self, pod):
        if self.fault:
            raise LookupError(self.fault)
        if pod.name in self.gone:
            return None
        whole = {"metadata": {"name": pod.name}, "spec": {"hostname": "kept"}}
        return json.dumps(whole).encode()


def _whole_node(name):
    return {"metadata": {"name": name}, "spec": {"providerID": f"id-{name}"}}


def world(*extenders, nodes=("n1", "n2", "n3"), policy=""):
    documents = tuple(one for each in extenders for one in each)
    profiles = make_profiles(Settings(extenders=documents))
    files = {"p.policy": policy} if policy else {}
    [framework] = frameworks_of(profiles, compiled(files), worlds=Worlds(UTC, ()))
    made = World(rules=framework, nodes=nodes)
    made.server = Server(made)
    made.extenders = Extenders(documents)
    made.scheduler.extend(made.extenders, made.server)
    return made


async def settle(made, happened):
    """Works until something is so."""

    def more():
        made.scheduler.work()
        return happened()

    await until_io(more)
    made.extenders.close()


async def until_io(happened):
    """As `until`, with a real server behind it."""
    async with asyncio.timeout(20):
        while not happened():  # noqa: ASYNC110 - the server beside us is real
            await asyncio.sleep(0.001)


def only(*names):
    return {"NodeNames": list(names)}


# ---- filters


async def test_a_filter_leaves_nodes_and_the_pod_goes_there():
    async with FakeExtender(filter=only("n2")) as fake:
        made = world(document(fake.url, filterVerb="filter"))
        made.comes()
        await settle(made, lambda: made.edge.binds)
    assert made.edge.binds == [("p", "n2")]
    [(verb, asked)] = fake.asked
    assert verb == "filter"
    assert sorted(asked) == ["NodeNames", "Nodes", "Pod"]
    assert sorted(asked["NodeNames"]) == ["n1", "n2", "n3"]
    assert asked["Nodes"] is None
    assert asked["Pod"]["spec"] == {"hostname": "kept"}


async def test_whole_nodes_are_sent_and_may_come_back_whole():
    def answer(asked):
        assert asked["NodeNames"] is None
        items = asked["Nodes"]["items"]
        assert {one["spec"]["providerID"] for one in items} == {"id-n1", "id-n2", "id-n3"}
        return {"nodes": {"items": [one for one in items if one["metadata"]["name"] == "n3"]}}

    async with FakeExtender(filter=answer) as fake:
        made = world(document(fake.url, filterVerb="filter", nodeCacheCapable=False))
        made.comes()
        await settle(made, lambda: made.edge.binds)
    assert made.edge.binds == [("p", "n3")]


async def test_the_second_is_asked_about_what_the_first_left_and_ignorable_ones_come_last():
    async with FakeExtender(filter=only("n1", "n2")) as one, FakeExtender(filter=500) as lax:
        made = world(
            parse_all(
                {"urlPrefix": lax.url, "filterVerb": "filter", "ignorable": True},
                {"urlPrefix": one.url, "filterVerb": "filter"},
            )
        )
        lax.answers["filter"] = lambda asked: only("n2") if len(asked["NodeNames"]) == 2 else 500
        made.comes()
        await settle(made, lambda: made.edge.binds)
    assert made.edge.binds == [("p", "n2")]


def parse_all(*extenders):
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "extenders": [{"nodeCacheCapable": True, **one} for one in extenders],
    }
    return parse("f", SchedulerDocument, config).extenders


async def test_reasons_are_told_and_whatever_happens_wakes_the_pod():
    answer = {
        "nodenames": [],
        "FailedNodes": {"n1": "no GPU is free", "n2": "no\nGPU is free", "n3": "both"},
        "failedAndUnresolvableNodes": {"n3": "never"},
    }
    async with FakeExtender(filter=answer) as fake:
        made = world(document(fake.url, filterVerb="filter"))
        made.comes()
        await settle(made, lambda: made.edge.conditions)
        assert made.edge.conditions == [
            (
                "p",
                "Unschedulable",
                "0/3 nodes are available: 1 never, 2 no GPU is free."
                " preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling,"
                " 2 No preemption victims found for incoming pod.",
            )
        ]
        assert made.where() is SubQueue.UNSCHEDULABLE
        fake.answers["filter"] = only("n1")
        made.comes("other")  # an event of another pod's is enough
        made.clock.advance(60)
        made.add([make_node("n4")])
        await settle(made, lambda: len(made.edge.binds) == 2)
    assert dict(made.edge.binds)["p"] == "n1"


async def test_who_is_left_out_without_a_word_is_told_so():
    async with FakeExtender(filter=only()) as fake:
        made = world(document(fake.url, filterVerb="filter"))
        made.comes()
        await settle(made, lambda: made.edge.conditions)
    assert f"3 {LEFT_OUT}." in made.edge.conditions[0][2]


# ---- interest


def wants(**resources):
    return {"containers": [{"name": "c", "resources": resources}]}


@pytest.mark.parametrize(
    ("spec", "asked"),
    [
        ({}, False),
        (wants(requests={"cpu": "1"}), False),
        (wants(requests={GPU: "1"}), True),
        (wants(limits={GPU: "1"}), True),
        ({"initContainers": wants(limits={GPU: "1"})["containers"]}, True),
    ],
)
def test_with_managed_resources_only_pods_that_name_one_are_of_interest(spec, asked):
    documents = document(filterVerb="f", managedResources=[{"name": GPU}])
    extenders = Extenders(documents)
    assert extenders.concern(make_pod("p", spec=spec)) is asked
    assert Extenders(document(filterVerb="f")).concern(make_pod("p", spec=spec))
    assert not Extenders(document(bindVerb="b")).concern(make_pod("p", spec=spec))


async def test_who_is_of_no_interest_does_not_wait_for_who_is():
    hang = asyncio.Event()

    async def answer(asked):
        await hang.wait()
        return only("n1")

    async with FakeExtender(filter=answer) as fake:
        managed = [{"name": GPU, "ignoredByScheduler": True}]
        made = world(document(fake.url, filterVerb="filter", managedResources=managed))
        made.comes("slow", spec=wants(requests={GPU: "1"}))
        for number in range(20):
            made.comes(f"p{number}")
        await until_io(lambda: (made.scheduler.work(), fake.asked)[1])
        await made.turn()
        assert len(made.edge.binds) == 20
        assert fake.verbs() == ["filter"]
        hang.set()
        await settle(made, lambda: len(made.edge.binds) == 21)
    # NodeResourcesFit does not look at the resource, which no node has.
    assert made.edge.binds[-1] == ("slow", "n1")


async def test_one_pod_at_a_time_the_more_important_first():
    async with FakeExtender(filter=only("n1")) as fake:
        made = world(document(fake.url, filterVerb="filter"))
        for number in range(5):
            made.comes(f"p{number}", priority=number)
        await settle(made, lambda: len(made.edge.binds) == 5)
    assert [asked["Pod"]["metadata"]["name"] for _, asked in fake.asked] == [
        "p4",
        "p3",
        "p2",
        "p1",
        "p0",
    ]
    assert fake.most_busy == 1


# ---- the cluster moves on


async def test_a_node_that_was_taken_meanwhile_is_not_taken_twice():
    made = None

    def answer(asked):
        if len(asked["NodeNames"]) == 3:
            # While it thinks, somebody else takes the room that it leaves.
            made.add([pod_object("other", node="n2", cpu="2")])
        return only("n2") if "n2" in asked["NodeNames"] else only("n3")

    async with FakeExtender(filter=answer) as fake:
        made = world(document(fake.url, filterVerb="filter"))
        made.comes(cpu="1")
        await settle(made, lambda: made.edge.conditions or made.edge.binds)
    assert made.edge.binds == []
    assert "1 Insufficient cpu" in made.edge.conditions[0][2]


async def test_nobody_is_evicted_for_a_pod_that_fits_on_a_node_that_came_meanwhile():
    made = None

    def answer(asked):
        if "n4" in asked["NodeNames"]:
            return only("n4")
        made.add([pod_object("other", node="n1", cpu="2"), make_node("n4", cpu="2")])
        return only("n1")

    async with FakeExtender(filter=answer) as fake:
        made = world(document(fake.url, filterVerb="filter"), nodes=("n1",))
        made.comes(cpu="1", priority=10)
        await settle(made, lambda: made.edge.conditions)
        assert made.edge.evictions == []
        made.clock.advance(1.0)
        await settle(made, lambda: made.edge.binds)
    assert made.edge.binds == [("p", "n4")]


async def test_a_node_that_came_meanwhile_is_asked_about_the_next_time_before_it_is_taken():
    made = None

    def answer(asked):
        if "n4" not in asked["NodeNames"]:
            made.handlers.nodes.on_delete(make_node("n1", cpu="2"))
            made.add([make_node("n4")])
            return only("n1")
        return only("n4")

    async with FakeExtender(filter=answer) as fake:
        made = world(document(fake.url, filterVerb="filter"), nodes=("n1",))
        made.comes()

        def told():
            made.scheduler.work()
            return made.edge.conditions

        await until_io(told)
        assert NOT_ASKED in made.edge.conditions[0][2]
        made.clock.advance(1.0)
        await settle(made, lambda: made.edge.binds)
    assert made.edge.binds == [("p", "n4")]
    assert [asked["NodeNames"] for _, asked in fake.asked] == [["n1"], ["n4"]]


async def test_a_pod_that_is_gone_meanwhile_is_left_alone():
    made = None

    def answer(asked):
        made.handlers.pods.on_delete(pod)
        return only("n1")

    async with FakeExtender(filter=answer) as fake:
        made = world(document(fake.url, filterVerb="filter"))
        pod = made.comes()
        await settle(made, lambda: made.where() is None)
    assert (made.edge.binds, made.edge.conditions) == ([], [])


async def test_a_pod_that_the_server_does_not_give_is_no_longer_decided_about():
    async with FakeExtender(filter=only("n1")) as fake:
        made = world(document(fake.url, filterVerb="filter"))
        made.server.gone.add("p")
        made.comes()
        await settle(made, lambda: made.where() is None)
        made.server.fault = "the server is away"
        made.comes("q")
        await settle(made, lambda: made.edge.conditions)
    assert made.edge.conditions == [("q", "SchedulerError", "the server is away")]
    assert fake.asked == []


async def test_the_end_of_the_process_does_not_wait_for_an_extender():
    hang = asyncio.Event()

    async def answer(asked):
        await hang.wait()
        return only("n1")

    async with FakeExtender(filter=answer) as fake:
        made = world(document(fake.url, filterVerb="filter", httpTimeout="10m"))
        made.comes()
        stop = asyncio.Event()
        running = asyncio.create_task(made.scheduler.run(stop))
        await until_io(lambda: fake.asked)
        stop.set()
        await running
        hang.set()
        made.extenders.close()
    assert made.edge.binds == []


async def test_nodes_that_go_while_they_are_asked_about_are_no_fault():
    made = None

    def answer(asked):
        if made.cache.nodes.count == 3:
            made.handlers.nodes.on_delete(make_node("n1", cpu="2"))
        return {"nodes": asked["Nodes"]}

    async with FakeExtender(filter=answer) as one, FakeExtender(filter=answer) as two:
        whole = {"filterVerb": "filter", "nodeCacheCapable": False}
        made = world(parse_all({"urlPrefix": one.url, **whole}, {"urlPrefix": two.url, **whole}))
        made.comes()
        await settle(made, lambda: made.edge.binds)
    [(_, asked)] = two.asked
    assert len(asked["Nodes"]["items"]) == 3
    assert made.edge.binds[0][1] in ("n2", "n3")


# ---- scores


async def test_scores_are_scaled_weighed_and_added():
    scores = [{"host": "n3", "score": 10}, {"Host": "n1", "Score": 9}, {"Host": "x", "Score": 99}]
    async with FakeExtender(score=scores) as fake:
        made = world(document(fake.url, prioritizeVerb="score", weight=3))
        made.comes()
        await settle(made, lambda: made.edge.binds)
        [decision] = made.decisions
        before = decide(decision.pod, made.snapshot(), made.framework)
    assert made.edge.binds == [("p", "n3")]
    assert decision.total == pytest.approx(before.total + 300, abs=10)
    last = decision.opinion.scores[0]
    assert (last.extender, last.weight, last.scores) == (fake.url, 3, {"n3": 10, "n1": 9})


@pytest.mark.parametrize(
    "answer",
    [
        500,
        b"{",
        b'[{"Host":"n2","Score":NaN}]',
        b'[{"Host":"n2","Score":1e400}]',
        [{"Host": "n2", "Score": 1.5}],
        [{"Host": "n2", "Score": True}],
        [{"Host": "n2", "Score": 1 << 62}],
        [{"Host": "n2", "Score": "10"}],
        [{"Host": 2, "Score": 10}],
        [["n2", 10]],
        {"n2": 10},
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
async def test_scores_that_are_none_are_left_out_and_told(answer, caplog):
    async with FakeExtender(score=answer) as fake:
        made = world(document(fake.url, prioritizeVerb="score", weight=1))
        made.comes()
        await settle(made, lambda: made.edge.binds)
    assert len(made.edge.binds) == 1
    assert f"extender {fake.url}/score: " in caplog.text
    assert "its scores are left out" in caplog.text


async def test_with_one_node_left_nobody_is_asked_for_scores():
    async with FakeExtender(filter=only("n2"), score=[]) as fake:
        extender = document(fake.url, filterVerb="filter", prioritizeVerb="score", weight=1)
        made = world(extender)
        made.comes()
        await settle(made, lambda: made.edge.binds)
    assert fake.verbs() == ["filter"]


# ---- lies and faults


FAULTS = [
    (500, "it answers HTTP 500"),
    (307, "it answers HTTP 307"),
    (b"", "its answer cannot be read: "),
    (b"{]", "its answer cannot be read: "),
    (b"[]", "its answer cannot be read: "),
    (b'{"NodeNames": 3}', "its answer cannot be read: "),
    (b'{"NodeNames": ["n1\xff"]}', "its answer cannot be read: "),
    (b'{"Error": "out\\nof order"}', "it says: out of order"),
    (b'{"NodeNames": ["n9"]}', "it leaves node 'n9', which it was not asked about"),
    (b'{"NodeNames": ["n1"], "Error": 3}', "its answer cannot be read: "),
]


@pytest.mark.parametrize(("answer", "said"), FAULTS)
async def test_an_extender_that_fails_fails_the_cycle_unless_it_may(answer, said, caplog):
    async with FakeExtender(filter=answer) as fake:
        made = world(document(fake.url, filterVerb="filter"))
        made.comes()
        await settle(made, lambda: made.edge.conditions)
        [(name, reason, message)] = made.edge.conditions
        assert (name, reason) == ("p", "SchedulerError")
        assert message.startswith(f"extender {fake.url}/filter: {said}")
        assert made.where() is SubQueue.BACKOFF
        lax = world(document(fake.url, filterVerb="filter", ignorable=True))
        lax.comes()
        await settle(lax, lambda: lax.edge.binds)
    assert f"extender {fake.url}/filter: {said}" in caplog.text


async def test_an_extender_that_is_away_or_hangs_or_never_ends_fails_in_time():
    async def hang(asked):
        await asyncio.Event().wait()

    class Endless(web.StreamResponse):
        async def prepare(self, request):
            writer = await super().prepare(request)
            while True:
                await self.write(b" " * (1 << 20))
                await asyncio.sleep(0)
            return writer

    async with FakeExtender(hang=hang, endless=lambda _: Endless()) as fake:
        url = fake.url
        [one] = Extenders(document(url, httpTimeout="50ms"))._all
        with pytest.raises(ExtenderError, match=r"ext/hang: no answer within 0\.05 s"):
            await one.ask("hang", b"{}", bytes)
        [one] = Extenders(document(url, httpTimeout="10s"))._all
        with pytest.raises(ExtenderError, match=r"ext/endless: an answer of more than 67108"):
            await one.ask("endless", b"{}", bytes)
    with pytest.raises(ExtenderError, match=r"ext/hang: "):
        await one.ask("hang", b"{}", bytes)


_NAMES = ["NodeNames", "nodes", "items", "Error", "Host", "score", "Pods", "n1"]
_NAMES += ["NodeNameToMetaVictims", "failedNodes", "metadata", "name", "uid"]
_JSON = st.recursive(
    st.none() | st.text() | st.integers() | st.floats(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(_NAMES), inner),
)


@given(body=st.binary() | _JSON.map(lambda value: json.dumps(value).encode()))
@settings(max_examples=examples(200))
def test_whatever_an_extender_says_it_is_an_answer_or_a_bad_one(body):
    pod = make_pod("v")
    for read in (
        lambda: messages.filtered(body, ["n1"], by_name=True),
        lambda: messages.filtered(body, ["n1"], by_name=False),
        lambda: messages.scored(body, ["n1"], 1),
        lambda: messages.agreed(body, {"n1": ([pod], 0)}),
        lambda: messages.done(body),
    ):
        with suppress(messages.BadAnswer):
            assert read() is None or isinstance(read(), dict | messages.Filtered)


async def test_whom_to_trust_is_said_by_the_configuration():
    certificate, key, _ = SelfMade().make("127.0.0.1", datetime.now(UTC))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_pair(context, certificate, key)
    ours = {"caData": base64.b64encode(certificate).decode()}
    async with FakeExtender(tls=context, filter={}) as fake:

        async def ask(**fields):
            [one] = Extenders(document(fake.url, **fields))._all
            try:
                return await one.ask("filter", b"{}", bytes)
            finally:
                one.channels.close()

        assert await ask(tlsConfig=ours) == b"{}"
        assert await ask(tlsConfig={**ours, "serverName": "localhost"}) == b"{}"
        assert await ask(tlsConfig={"insecure": True}) == b"{}"
        assert await ask(enableHTTPS=True) == b"{}", "without a CA whoever answers is good"
        pair = {"certData": ours["caData"], "keyData": base64.b64encode(key).decode()}
        assert await ask(tlsConfig={**ours, **pair}) == b"{}"
        for fields in ({}, {"tlsConfig": {**ours, "serverName": "other"}, "enableHTTPS": True}):
            with pytest.raises(ExtenderError, match=r"/filter: .*certificate"):
                await ask(**fields)


# ---- preemption


def full(made, *victims):
    for name, node, priority in victims:
        made.add([pod_object(name, node=node, cpu="2", priority=priority)])


def meta(**nodes):
    each = {node: {"Pods": [{"UID": uid} for uid in uids]} for node, uids in nodes.items()}
    return {"NodeNameToMetaVictims": each}


async def test_an_extender_says_whom_to_evict_among_those_found():
    async with FakeExtender(preempt=meta(n2=["uid-default-v2"])) as fake:
        made = world(document(fake.url, preemptVerb="preempt"), nodes=("n1", "n2"))
        full(made, ("v1", "n1", 0), ("v2", "n2", 5))
        made.comes(cpu="2", priority=10)
        await settle(made, lambda: made.edge.evictions)
    [(_, asked)] = fake.asked
    assert asked["NodeNameToVictims"] is None
    assert asked["NodeNameToMetaVictims"] == {
        "n1": {"Pods": [{"UID": "uid-default-v1"}], "NumPDBViolations": 0},
        "n2": {"Pods": [{"UID": "uid-default-v2"}], "NumPDBViolations": 0},
    }
    assert made.edge.evictions == ["v2"]
    assert made.edge.nominations == [("p", "n2")]


async def test_without_a_node_cache_victims_are_sent_as_pods():
    async with FakeExtender(preempt=meta(n1=["uid-default-v1"])) as fake:
        extender = document(fake.url, preemptVerb="preempt", nodeCacheCapable=False)
        made = world(extender, nodes=("n1",))
        full(made, ("v1", "n1", 0))
        made.comes(cpu="2", priority=10)
        await settle(made, lambda: made.edge.evictions)
    [(_, asked)] = fake.asked
    [pod] = asked["NodeNameToVictims"]["n1"]["Pods"]
    assert pod["metadata"]["name"] == "v1"
    assert asked["NodeNameToMetaVictims"] is None


@pytest.mark.parametrize(
    ("answer", "reason", "said"),
    [
        (meta(), "Unschedulable", LEFT_OUT),
        (500, "Unschedulable", "/preempt: it answers HTTP 500"),
        (meta(n9=["x"]), "Unschedulable", "names node 'n9', which it was not asked about"),
        (meta(n1=[]), "Unschedulable", "it names no victims on node n1"),
        (meta(n1=["uid-of-nobody"]), "Unschedulable", LEFT_OUT),
    ],
)
async def test_an_extender_that_agrees_to_nothing_lets_nobody_be_evicted(answer, reason, said):
    async with FakeExtender(preempt=answer) as fake:
        made = world(document(fake.url, preemptVerb="preempt"), nodes=("n1",))
        full(made, ("v1", "n1", 0))
        made.comes(cpu="2", priority=10)
        await settle(made, lambda: made.edge.conditions)
    assert made.edge.evictions == []
    assert made.edge.conditions[0][1] == reason
    assert said in made.edge.conditions[0][2]


@pytest.mark.parametrize(
    ("answer", "evicted"), [(meta(n1=["uid-default-v1"]), ["v1"]), (meta(), [])]
)
async def test_a_policy_finds_one_way_to_make_room_which_extenders_take_or_leave(answer, evicted):
    async with FakeExtender(preempt=answer) as fake:
        policy = "preempt: victims where it.priority < pod.priority\n"
        made = world(document(fake.url, preemptVerb="preempt"), nodes=("n1",), policy=policy)
        full(made, ("v1", "n1", 0))
        made.comes(cpu="2", priority=10)
        await settle(made, lambda: made.edge.conditions)
    [(_, asked)] = fake.asked
    assert list(asked["NodeNameToMetaVictims"]) == ["n1"]
    assert made.edge.evictions == evicted
    assert (LEFT_OUT in made.edge.conditions[0][2]) is not bool(evicted)


async def test_a_pod_of_a_gang_that_extenders_have_a_say_about_is_told_that_this_does_not_go():
    async with FakeExtender(filter=only("n1")) as fake:
        policy = "gang: by pod.label[gang] min 1\n"
        made = world(document(fake.url, filterVerb="filter"), policy=policy)
        made.comes(labels={"gang": "g"})
        made.comes("alone")
        await settle(made, lambda: made.edge.conditions and made.edge.binds)
    assert made.edge.binds == [("alone", "n1")]
    [(_, reason, message)] = [one[:3] for one in made.edge.conditions]
    assert reason == "SchedulerError"
    assert "extenders are not asked about gangs" in message


# ---- binding


async def test_an_extender_binds_in_our_place_and_what_became_of_it_is_asked():
    refused = (BindOutcome.PUT_OFF, "it is not bound")

    async def bind(fake, **fields):
        extenders = Extenders(document(fake.url, bindVerb="bind", **fields))
        binder = ExtenderBinder(extenders, made.edge, lambda: leads)
        return await binder.bind(Bind(make_pod("p"), "n1", {}))

    made, leads = World(), True
    async with FakeExtender(bind={}) as fake:
        assert await bind(fake) == (BindOutcome.BOUND, "")
        assert fake.asked == [
            (
                "bind",
                {
                    "PodName": "p",
                    "PodNamespace": "default",
                    "PodUID": "uid-default-p",
                    "Node": "n1",
                },
            )
        ]
        assert (made.edge.binds, made.edge.resolves) == ([], [])
        fake.answers["bind"] = {"error": "no room"}
        made.edge.resolve_answers.append(refused)
        outcome, why = await bind(fake)
        assert outcome is BindOutcome.PUT_OFF
        assert why == f"extender {fake.url}/bind: it says: no room"
        made.edge.resolve_answers.append((BindOutcome.BOUND, ""))
        outcome, _ = await bind(fake)
        assert outcome is BindOutcome.BOUND  # it had done so before it failed
        made.edge.resolve_answers.append(refused)
        assert await bind(fake, ignorable=True) == (BindOutcome.BOUND, "")
        assert made.edge.binds == [("p", "n1")]
        await bind(fake, managedResources=[{"name": GPU}])
        assert len(made.edge.binds) == 2  # it is not interested: ours
        asked, leads = len(fake.asked), False
        made.edge.resolve_answers.append(refused)
        outcome, why = await bind(fake)
        assert (outcome, len(fake.asked)) == (BindOutcome.PUT_OFF, asked)
        assert why.endswith("/bind: not sent, as this replica no longer leads")


# ---- gangs, and the cycle itself


def test_an_opinion_is_one_more_input_of_the_same_cycle():
    made = World(nodes=("a", "b", "c"))
    pod, snapshot, framework = make_pod("p", cpu="1"), made.snapshot(), made.framework
    names = feasible(pod, snapshot, framework)
    free = decide(pod, snapshot, framework)
    same = conclude(pod, snapshot, framework, Opinion(asked=names, passed=names))
    assert (same.node, same.total, same.feasible) == (free.node, free.total, free.feasible)
    other = next(name for name in names if name != free.node)
    scores = [Scored("http://x", 2, {other: 5})]
    moved = conclude(pod, snapshot, framework, Opinion(asked=names, passed=names, scores=scores))
    assert (moved.node, moved.total) == (other, free.total + 2 * 50)
    late = conclude(pod, snapshot, framework, Opinion(asked=["a"], failed={"a": "no"}))
    assert late.fit_error.reasons == {"no": 1, NOT_ASKED: 2}


def test_scores_are_normalised_over_the_nodes_that_extenders_leave():
    disliked = [{"key": "k", "effect": "PreferNoSchedule"}]
    nodes = {
        name: make_node(name, cpu=cpu, labels={"w": name}, taints=disliked if name < "c" else [])
        for name, cpu in zip("abcd", "2468", strict=True)
    }
    weights = {"a": 100, "b": 60, "c": 30}
    liked = [
        {
            "weight": weight,
            "preference": {"matchExpressions": [{"key": "w", "operator": "In", "values": [name]}]},
        }
        for name, weight in weights.items()
    ]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": liked}}
    pod = make_pod("p", cpu="1", spec={"affinity": affinity})

    def world(names):
        cache = Cache()
        for name in names:
            cache.add_node(nodes[name])
        return cache.snapshot(0.0), Framework(*make_profiles(Settings()))

    snapshot, framework = world("abcd")
    for size in range(2, 5):
        for left in itertools.combinations("abcd", size):
            alone = decide(pod, *world(left))
            said = Opinion(asked=list("abcd"), passed=left)
            found = conclude(pod, snapshot, framework, said)
            assert (found.node, found.total, found.feasible) == (alone.node, alone.total, size)


def test_a_journal_line_holds_an_opinion_and_gives_it_back():
    said = Opinion(asked=["a"], passed=["a"], scores=[Scored("u", 1, {"a": 3})], victims={"a": []})
    assert msgspec.json.decode(msgspec.json.encode(said), type=Opinion) == said


# ---- configuration


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"urlPrefix": "127.0.0.1"}, "extenders.0.urlPrefix: '127.0.0.1' is not a URL"),
        (
            {"urlPrefix": "http://h:99999"},
            "extenders.0.urlPrefix: 'http://h:99999' is not a URL",
        ),
        ({"filterVerb": "a b"}, "extenders.0.filterVerb: 'a b' is not a path"),
        ({"prioritizeVerb": "p"}, "extenders.0: weight must be greater than 0"),
        (
            {"managedResources": [{"name": "cpu"}]},
            "managedResources.0.name: 'cpu' is not an extended",
        ),
        ({"managedResources": [{"name": GPU}] * 2}, "managedResources: example.com/gpu is listed"),
        ({"tlsConfig": {"insecure": True, "caFile": "x"}}, "insecure and a CA exclude each other"),
        ({"tlsConfig": {"certFile": "x"}}, "a certificate and its key belong together"),
        ({"tlsConfig": {"caData": "?"}}, "extenders.0.tlsConfig.caData: is not base64"),
        ({"enableHttps": True}, "extenders.0.enableHttps: this field is unknown"),
        ({"httpTimeout": "-1s"}, "extenders.0.httpTimeout: '-1s' is not a duration"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(fields, said):
    with pytest.raises(ConfigError) as refused:
        document(**{"url": "http://h", **fields} if "urlPrefix" not in fields else fields)
    assert said in str(refused.value)


def test_two_that_bind_are_refused_and_certificates_are_read_at_the_start(tmp_path):
    with pytest.raises(ConfigError, match=r"only one may have a bindVerb, and http://a and http"):
        parse_all(
            {"urlPrefix": "http://a", "bindVerb": "b"}, {"urlPrefix": "http://b", "bindVerb": "b"}
        )
    missing = str(tmp_path / "ca.crt")
    documents = document("https://h", tlsConfig={"caFile": missing})
    with pytest.raises(
        ConfigError, match=r"https://h: certificates cannot be used \(.*/ca.crt\): No "
    ):
        Extenders(documents)


def test_the_keys_of_an_extender_are_in_no_dump():
    pair = {"certData": "Y2VydA==", "keyData": "c2VjcmV0"}
    settings = Settings(extenders=tuple(document("https://h", tlsConfig=pair)))
    assert "c2VjcmV0" not in settings.model_dump_json() + repr(settings)
    assert (
        Settings.model_validate_json(settings.model_dump_json()).extenders[0].enable_https is False
    )


def test_whole_objects_keep_what_is_not_read_and_lose_managed_fields():
    raw = {
        "kind": "Pod",
        "metadata": {"name": "p", "uid": "u", "managedFields": [{}], "finalizers": ["f"]},
        "spec": {"hostname": "h", "nodeName": ""},
    }
    found, body = messages.whole(json.dumps(raw).encode())
    assert found.metadata.uid == "u"
    kept = json.loads(body)
    assert kept["metadata"] == {"name": "p", "uid": "u", "finalizers": ["f"]}
    assert kept["spec"] == raw["spec"]
    assert from_builtins(Pod, kept).metadata.name == "p"
    assert make_pod_info(from_builtins(Pod, kept)).uid == "u"
    assert isinstance(from_builtins(Node, kept), Node)


@pytest.mark.parametrize(
    ("body", "is_gone"), [(status(404, "no such pod", "NotFound"), True), (b"no backend", False)]
)
def test_anothers_404_does_not_say_that_the_pod_is_gone(body, is_gone):
    class Client:
        async def request(self, *_, **__):
            return Response(404, {}, body)

    asked = WholeObjects(Client()).pod(make_pod("p"))
    with nullcontext() if is_gone else pytest.raises(LookupError, match="no backend"):
        assert asyncio.run(asked) is None
