"""What policies need beside nodes and pods, and how it is had: usage, objects, tables, journals."""

from __future__ import annotations

import asyncio
import io
import math
from threading import current_thread, main_thread
from types import SimpleNamespace

import msgspec
import pytest
from click.testing import CliRunner

from engine.cache.otherpods import FINISHED, HEARTBEATS, NOMINATED, PREVIOUS, QUEUE, TIMES
from engine.cli import main as berth_main
from engine.clock import ManualClock, SystemClock
from engine.framework.snapshot import QueueTimes
from engine.kube.client import Response
from engine.kube.errors import NotFound, StatusError
from engine.kube.protocol import Phase
from engine.kube.resources import WORKLOAD_KINDS
from engine.kube.sharing import PodSharing
from engine.kube.wiring import Wiring
from engine.objects import Identity, Pod, from_builtins
from engine.objects.ondemand import FinishedPod
from engine.pods.podinfo import make_pod_info
from engine.policy.bundle import Field, Needs, needs_of
from engine.policy.findings import new_compiler
from engine.policy.podreads import finished_at
from engine.signals.samples import Samples
from engine.signals.spec import Question, question_of
from engine.signals.store import SignalStore
from engine.telemetry import Telemetry
from engine.watches import sources
from engine.watches.sources import ObjectSource, Usage, UsageSource, struct_of
from engine.watches.watcher import Watcher
from tests.builders import Cache, make_metric, make_node, make_pod
from tests.engine.policy.builders import compiled
from tests.engine.test_app import (
    Process,
    embedded,
    kept_in_the_cluster,
    process,
    settings_of,
)
from tests.engine.test_reads import OWNED, OWNER, furnish, named

# ---- what a bundle needs -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("filter: node.cpu.free > 1\n", Needs()),
        ("mode: off\nfilter: count(node.finished) > 1\n", Needs()),
        ("sort: pod.queued_at\n", Needs(frozenset({QUEUE}))),
        ("gate: count(queue.pods where it.attempts > 3) < 2\n", Needs(frozenset({QUEUE, TIMES}))),
        ("score: count(node.nominated)\n", Needs(frozenset({NOMINATED}))),
        ("filter: now - node.heartbeat < 1m\n", Needs(frozenset({HEARTBEATS}))),
        ("avoid: node.name == pod.previous_node\n",
         Needs(frozenset({PREVIOUS}), of_pods=frozenset({"owners"}))),
        ("filter: not any(node.pods where it.annotation a=b and it.ready)\n",
         Needs(of_pods=frozenset({"annotations", "statuses"}))),
        ("prebind: annotate a/b = workload.label[x]\n", Needs(workloads=True)),
        ('filter: node.ready message "{workload.replicas} wanted"\n', Needs(workloads=True)),
        ("metric m = usage cpu by pod\nfilter: sum(m ?? 0 over node.pods) < 5\n",
         Needs(usage=frozenset({"pod"}))),
        ('metric m = object "a.b/cs" field "d.e"\nscore: m missing 0\n',
         Needs(fields=frozenset({Field("a.b/cs", "d.e")}))),
    ],
)  # fmt: skip
def test_what_policies_need(text, needs):
    result = new_compiler().compile({"a.policy": text})
    assert result.ok, result.diagnostics
    assert needs_of(result.plans) == needs


# ---- usage and objects ---------------------------------------------------------------------------


class Server:
    """Answers as a metrics API does, or refuses."""

    def __init__(self, *items, error=None):
        self.items, self.error = list(items), error

    async def request(self, *_, **__):
        if self.error is not None:
            raise self.error
        return Response(200, {}, msgspec.json.encode({"metadata": {}, "items": self.items}))


def stored(*specs):
    store, cache = SignalStore(SystemClock()), Cache()
    for name in ("n1", "n2"):
        cache.add_node(make_node(name))
        store.nodes_changed(None, make_node(name))
    store.set_specs(specs)
    return store, cache


def column(store, cache, metric):
    return store.view(cache, SystemClock().time()).column(metric).tolist()


def polled(server, of, store):
    came = asyncio.Event()
    wiring = Wiring(SystemClock(), Telemetry())
    source = UsageSource(server, store, wiring, came.set, of)

    async def once():
        task = asyncio.create_task(source.run())
        await came.wait()
        task.cancel()

    asyncio.run(once())
    return source


def test_usage_of_nodes_and_of_pods():
    store, cache = stored(
        make_metric("cores", "cpu", source="usage", scale=1000.0),
        make_metric("bytes", "memory", source="usage", of="pod"),
    )
    polled(
        Server(
            {"metadata": {"name": "n1"}, "usage": {"cpu": "1500m", "memory": "1Gi"}},
            {"metadata": {"name": "n2"}, "usage": {"cpu": "odd"}},
        ),
        "node",
        store,
    )
    assert column(store, cache, "cores") == pytest.approx([1500.0, math.nan], nan_ok=True)
    used = [{"usage": {"memory": "1Ki"}}, {"usage": {"memory": "2Ki"}}]
    meta = {"name": "p", "namespace": "d"}
    polled(Server({"metadata": meta, "containers": used}), "pod", store)
    view = store.view(cache, SystemClock().time())
    assert view.value("bytes", ("d", "p")) == 3072.0


def test_usage_of_many_pods_is_read_beside_the_event_loop_and_once_for_each_metric(monkeypatch):
    matched, match = [], Samples.match

    def counted(own, answer, pause):
        matched.append((own._question.query, current_thread() is main_thread()))
        return match(own, answer, pause)

    monkeypatch.setattr(Samples, "match", counted)
    specs = [make_metric(one, one, source="usage", of="pod") for one in ("cpu", "memory")]
    store, cache = stored(specs[0])
    used = [{"usage": {"cpu": "2", "memory": "3"}}]
    pods = [{"metadata": {"name": f"p{i}", "namespace": "d"}, "containers": used} for i in range(9)]

    async def run():
        came = asyncio.Queue()
        wiring = Wiring(SystemClock(), Telemetry())
        source = UsageSource(Server(*pods), store, wiring, lambda: came.put_nowait(0), "pod")
        task = asyncio.create_task(source.run())
        await came.get()
        source.feed()  # as with each edit of any policy
        await asyncio.sleep(0)
        assert matched == [("cpu", False)]
        store.set_specs(specs)
        source.feed()
        await came.get()
        assert matched == [("cpu", False), ("memory", False)]
        task.cancel()

    asyncio.run(run())
    view = store.view(cache, SystemClock().time())
    assert [view.value(one, ("d", "p8")) for one in ("cpu", "memory")] == [2.0, 3.0]


@pytest.mark.parametrize(
    ("code", "awaited"), [(404, ""), (503, ""), (403, "the usage of nodes (metrics.k8s.io): 403")]
)
def test_usage_that_may_not_be_listed_is_waited_for(code, awaited):
    store, _ = stored(make_metric("cores", "cpu", source="usage"))
    error = (NotFound if code == 404 else StatusError)(code, "", "said no")
    source = polled(Server(error=error), "node", store)
    assert source.awaited().startswith(awaited)
    assert bool(source.awaited()) == bool(awaited)


def told(kind, paths, store, *objects):
    """A source that was told these objects."""
    wiring = Wiring(SystemClock(), Telemetry())
    source = ObjectSource(None, store, wiring, lambda: None, kind, paths)
    struct = struct_of(paths)
    for one in objects:
        source.on_add(from_builtins(struct, one))
    asyncio.run(source._tell())
    return source, struct


def test_an_object_is_the_node_of_its_name_until_it_is_gone():
    store, cache = stored(
        make_metric("m", "g/ps#spec.slots", source="object", stale_seconds=math.inf, by=("name",))
    )
    source, struct = told(
        "g/ps", {"spec.slots"}, store,
        {"metadata": {"name": "n1"}, "spec": {"slots": "2Ki", "other": [1]}},
        {"metadata": {"name": "n2"}, "spec": {"slots": {}}},
    )  # fmt: skip
    assert column(store, cache, "m") == pytest.approx([2048.0, math.nan], nan_ok=True)
    source.on_delete(from_builtins(struct, {"metadata": {"name": "n1"}}))
    assert source._news.is_set()
    asyncio.run(source._tell())
    assert all(map(math.isnan, column(store, cache, "m")))
    for slots, value in ("true", 1.0), (False, 0.0):  # a ConfigMap holds texts alone
        source.on_add(from_builtins(struct, {"metadata": {"name": "n2"}, "spec": {"slots": slots}}))
        asyncio.run(source._tell())
        assert column(store, cache, "m")[1] == value


@pytest.mark.parametrize(
    ("by", "read", "key"),
    [
        ("namespace", "m", ("d",)),
        ("workload", "m", ("d", "web")),
        ("pod", "sum(m over node.pods)", ("d", "web")),
        ("cluster", "m", ()),
        ("src, dst", "m(node.name, pod.name)", ("a", "b")),
    ],
)
def test_whose_value_an_object_is(by, read, key):
    text = f'metric m = object "g/ps" field "status.on" by {by}\nscore: {read} missing 0\n'
    result = new_compiler().compile({"p.policy": text})
    assert result.ok, result.diagnostics
    [spec] = [one for plan in result.plans for one in plan.metrics]
    store, cache = stored(spec)
    meta = {"name": "web", "namespace": "d", "labels": {"src": "a", "dst": "b"}}
    told("g/ps", {"status.on"}, store, {"metadata": meta, "status": {"on": True}})
    assert store.view(cache, SystemClock().time()).value(spec.id, key) == 1.0


def test_a_label_of_an_object_may_name_the_node():
    text = 'metric m = object "g/ps" field "at" by host\nscore: m missing 0\n'
    [plan] = new_compiler().compile({"p.policy": text}).plans
    spec = plan.metrics[0]
    store, cache = stored(spec)
    meta = {"name": "n1", "labels": {"host": "n2"}}
    told("g/ps", {"at"}, store, {"metadata": meta, "at": "1970-01-01T00:01:00Z"})
    assert column(store, cache, spec.id) == pytest.approx([math.nan, 60.0], nan_ok=True)
    assert question_of(spec) == Question("g/ps#at", ("host",), "node", "object")


def test_while_an_edit_waits_for_another_field_those_in_force_stay_as_they_are(monkeypatch):
    store, cache = stored(make_metric("m", "g/ps#a", source="object", by=("name",)))
    one = {"metadata": {"name": "n1"}, "a": 1, "b": 2}
    told("g/ps", {"a"}, store, one)
    told("g/ps", {"b"}, store, one)
    assert column(store, cache, "m")[0] == 1.0

    made = []

    class Made(ObjectSource):
        def __post_init__(self):
            super().__post_init__()
            made.append(self)

    monkeypatch.setattr("engine.watches.watcher.ObjectSource", Made)
    wiring, nothing = Wiring(SystemClock(), Telemetry()), lambda: None
    around = cache, None, store, nothing, nothing, lambda work: work.close()
    watcher = Watcher(None, wiring, *around, pods=None, sharing=PodSharing())
    fields = frozenset({Field("g/ps", "a"), Field("g/ps", "b")})
    assert watcher.want(Needs(fields=fields)) == ("g/ps",)
    made[0].on_add(from_builtins(struct_of({"a", "b"}), one | {"a": 7}))
    made[0].feed()
    assert column(store, cache, "m")[0] == 1.0, "half a list is not all that there is"


def test_what_one_still_waits_for_is_watched_on_when_rules_of_another_are_in_force():
    ended, clock, nothing = [], ManualClock(), lambda: None

    class Task:
        def __init__(self, work):
            work.close()

        def cancel(self):
            ended.append(self)

    store, cache = stored()
    wiring = Wiring(clock, Telemetry())
    watcher = Watcher(None, wiring, cache, None, store, nothing, nothing, Task, None, PodSharing())
    one, other = Needs(fields=frozenset({Field("g/ps", "a")})), Needs(usage=frozenset({"pod"}))
    assert watcher.want(one, "a namespace") == ("g/ps",)
    watcher.want(other)
    watcher.keep(other)
    assert (ended, len(watcher._running)) == ([], 2)
    watcher.keep(one)
    assert len(ended) == 1, "the owner's rules are others now"
    watcher.want(other)
    clock.advance(60.0)
    watcher.keep(one)
    assert len(ended) == 2, "nobody has asked for it since"
    assert len(watcher._running) == 1
    watcher.want(other)
    watcher.end()
    assert len(ended) == 4, "a process ends while rules wait"


def test_what_is_kept_of_pods_for_one_who_waits_is_not_forgotten_when_others_are_in_force():
    class Task:
        def __init__(self, work):
            work.close()

    store, cache = stored()
    wiring, nothing = Wiring(ManualClock(), Telemetry()), lambda: None
    queue = SimpleNamespace(on_change=None, on_gone=None)
    watcher = Watcher(None, wiring, cache, queue, store, nothing, nothing, Task, None, PodSharing())
    watcher.want(Needs(attended=frozenset({FINISHED}), usage=frozenset({"pod"})), "a namespace")
    cache.set_finished(make_pod("p", node="n"), 0.0)
    watcher.keep(Needs())
    assert cache.other_pods.pods(FINISHED).size == 1


def test_what_rules_in_force_read_already_makes_no_other_rules_wait():
    wiring, nothing = Wiring(ManualClock(), Telemetry()), lambda: None
    store, cache = stored()
    around = cache, None, store, nothing, nothing, lambda work: work.close()
    watcher = Watcher(None, wiring, *around, pods=None, sharing=PodSharing())
    own = Needs(workloads=True)
    assert len(watcher.want(own)) == len(WORKLOAD_KINDS)
    for source, _ in watcher._running.values():
        source.reflector.synced.set()
    assert watcher.want(own) == ()

    for source, _ in watcher._running.values():
        source.reflector.failures, source.reflector.last_error = 1, "403: no access"
    assert len(watcher.want(own)) == len(WORKLOAD_KINDS), "the rules are not in force yet"
    watcher.keep(own)
    assert watcher.want(own) == ()
    assert watcher.want(own | Needs(usage=frozenset({"pod"}))) == (
        "the usage of pods (metrics.k8s.io)",
    )


def watching(store, cache):
    class Task:
        def __init__(self, work):
            work.close()

        def cancel(self):
            pass

    wiring, nothing = Wiring(SystemClock(), Telemetry()), lambda: None
    return Watcher(None, wiring, cache, None, store, nothing, nothing, Task, None, PodSharing())


def of_fields(*paths):
    return Needs(fields=frozenset(Field("g/ps", path) for path in paths))


ONE = {"metadata": {"name": "n1"}, "a": 1, "b": 2}


def listed(watcher, *paths):
    source, _ = watcher._running["g/ps", frozenset(paths)]
    source.on_add(from_builtins(struct_of(source.paths), ONE))
    source.reflector._course.phase = Phase.WATCHING
    source.reflector.synced.set()
    asyncio.run(source._tell())


def tell(watcher):
    for source, _ in watcher._running.values():
        if isinstance(source, ObjectSource) and source._whole:
            asyncio.run(source._tell())


def test_rules_that_come_into_force_while_others_wait_leave_metrics_what_they_have():
    store, cache = stored(make_metric("m", "g/ps#a", source="object", by=("name",)))
    watcher = watching(store, cache)
    watcher.want(of_fields("a"))
    listed(watcher, "a")
    watcher.keep(of_fields("a"))
    assert column(store, cache, "m")[0] == 1.0

    watcher.want(of_fields("a", "b"))  # an edit, of which nothing is listed yet
    watcher.keep(of_fields("a") | Needs(workloads=True))
    tell(watcher)
    assert column(store, cache, "m")[0] == 1.0


def test_a_metric_that_was_not_asked_for_meanwhile_is_given_again_what_is_known():
    spec = make_metric("m", "g/ps#a", source="object", by=("name",))
    store, cache = stored(spec)
    watcher = watching(store, cache)
    watcher.want(of_fields("a"))
    listed(watcher, "a")
    watcher.keep(of_fields("a"))
    for specs in [], [spec]:
        store.set_specs(specs)
        watcher.feed()
    assert watcher.want(of_fields("a")) == ("g/ps",), "it has nothing"
    [[source, _]] = watcher._running.values()
    assert source._news.is_set()
    tell(watcher)
    assert not watcher.want(of_fields("a"))
    assert column(store, cache, "m")[0] == 1.0


def test_what_a_namespace_waited_for_is_known_when_its_rules_and_the_owners_are_one_bundle():
    store, cache = stored(make_metric("m", "g/ps#b", source="object", by=("name",)))
    watcher = watching(store, cache)
    watcher.keep(of_fields("a"))
    assert watcher.want(of_fields("b"), "a namespace")
    listed(watcher, "b")
    assert not watcher.want(of_fields("b"), "a namespace")
    watcher.keep(of_fields("a", "b"))
    assert column(store, cache, "m")[0] == 2.0


def test_fields_that_rules_in_force_and_those_before_them_read_are_not_known_together():
    store, cache = stored()
    watcher = watching(store, cache)
    watcher.keep(of_fields("b"), [of_fields("a")])
    listed(watcher, "b")
    assert watcher.want(of_fields("a", "b")) == ("g/ps",)
    watcher.keep(of_fields("b"), [of_fields("a")])
    assert ("g/ps", frozenset("ab")) in watcher._running, "it is waited for"


async def test_objects_that_change_all_the_time_are_read_beside_the_loop_a_tenth_of_the_time(
    monkeypatch,
):
    spec = make_metric("m", "g/ps#a", source="object", by=("name",), stale_seconds=math.inf)
    store, cache = stored(spec)
    clock, slept, read = ManualClock(), [], []

    async def sleep(seconds):
        slept.append(seconds)
        source.on_add(from_builtins(struct_of({"a"}), {"metadata": {"name": "n1"}, "a": len(read)}))
        if len(slept) > 3:
            raise EndedError
        await asyncio.sleep(0)

    class Slow(ObjectSource):
        def _series(self, question):
            read.append(current_thread() is main_thread())
            clock.advance(3.0)
            return super()._series(question)

        @property
        def _whole(self):
            return len(slept) > 1  # until then it is half a list

    wiring = Wiring(clock, Telemetry(), sleep=sleep)
    source = Slow(None, store, wiring, lambda: None, "g/ps", {"a"})
    source.on_synced()
    with pytest.raises(EndedError):
        await source._tell_news()
    assert slept == pytest.approx([0.05, 0.05, 30.05, 30.05])
    assert read == [False, False]
    assert column(store, cache, "m")[0] == 1.0


@pytest.mark.parametrize(
    "path",
    ["my-key", "1x", ".x", "", "a b", "__dict__", "__init__.x", f"list.{'9' * 5000}", "list.-1"],
)
def test_a_path_that_no_object_can_have_leads_nowhere(path):
    store, _ = stored(make_metric("m", f"core/ps#{path}", source="object", by=("name",)))
    source, _ = told("core/ps", {path}, store, {"metadata": {"name": "n"}, "list": [1]})
    assert source._known["n"].numbers == {path: None}


def test_a_number_too_long_for_any_is_none():
    store, _ = stored(make_metric("m", "g/ps#a", source="object", by=("name",)))
    source, _ = told("g/ps", {"a", "b"}, store, {"metadata": {"name": "n"}, "a": 10**400, "b": 7})
    assert source._known["n"].numbers == {"a": None, "b": 7.0}


@pytest.mark.parametrize("group", ["", "core", "v1"])
def test_secrets_are_not_read(group):
    wiring, nothing = Wiring(SystemClock(), Telemetry()), lambda: None
    store, cache = stored()
    around = cache, None, store, nothing, nothing, pytest.fail
    watcher = Watcher(None, wiring, *around, pods=None, sharing=PodSharing())
    assert not watcher.want(Needs(fields=frozenset({Field(f"{group}/secrets", "data.a")})))


class EndedError(Exception):
    """The test has seen enough."""


def test_a_kind_is_looked_for_where_the_server_has_it_before_each_list():
    """The bundle waits while that cannot be told, and not for a kind that is not there."""
    v3 = b'{"versions": [{"version": "v3"}]}'
    both = v3.replace(b"]", b', {"version": "v2"}]')
    others, own = b'{"resources": [{"name": "es"}]}', b'{"resources": [{"name": "cs"}]}'
    one = b'{"metadata": {"name": "n", "resourceVersion": "%d"}, "d": %d}'
    items = b'{"metadata": {"resourceVersion": "5"}, "items": [' + one + b"]}"
    answers = [
        ("/apis/a.b", 403, b'{"message": "no access"}'),
        ("/apis/a.b", 404, b'{"message": "no such group"}'),
        ("/apis/a.b", 200, v3), ("/apis/a.b/v3", 200, others),
        # Another kind of the group is in a newer version.
        ("/apis/a.b", 200, both), ("/apis/a.b/v3", 200, others), ("/apis/a.b/v2", 200, own),
        ("/apis/a.b/v2/cs", 200, items % (1, 1)),
        # Later the kind is, too, and no longer in the older one.
        ("/apis/a.b", 200, v3), ("/apis/a.b/v3", 200, own),
        ("/apis/a.b/v3/cs", 200, items % (2, 2)),
    ]  # fmt: skip
    awaited, watched = [], []

    class Client:
        async def request(self, method, path, **options):
            awaited.append(source.awaited())
            there, code, body = answers.pop(0)
            assert path == there
            return Response(code, {}, body)

        async def stream(self, path, **options):
            watched.append((path, source._known["n"].numbers["d"]))
            if not answers:
                raise EndedError
            raise NotFound(404, "", "gone")
            yield b""

    async def sleep(seconds):
        await asyncio.sleep(0)

    came = []
    wiring = Wiring(SystemClock(), Telemetry(), sleep=sleep)
    source = ObjectSource(Client(), stored()[0], wiring, lambda: came.append(1), "a.b/cs", {"d"})
    with pytest.raises(EndedError):
        asyncio.run(source.run())
    assert awaited[:3] == ["a.b/cs", "a.b/cs (403: no access)", ""]
    assert not any(awaited[3:])
    assert watched == [("/apis/a.b/v2/cs", 1.0), ("/apis/a.b/v3/cs", 2.0)]
    assert came


@pytest.mark.parametrize("kind", ["core/things", "v1/things"])
def test_a_kind_of_the_core_is_where_it_always_was(kind):
    class Client:
        async def request(self, method, path, **options):
            assert path == "/api/v1/things"
            raise EndedError

    wiring = Wiring(SystemClock(), Telemetry())
    source = ObjectSource(Client(), None, wiring, lambda: None, kind, {"d"})
    with pytest.raises(EndedError):
        asyncio.run(source.run())


# ---- tables beside nodes -------------------------------------------------------------------------


def finished(name, at=None, phase="Succeeded", **status):
    ended = [] if at is None else [{"state": {"terminated": {"finishedAt": at}}}]
    meta = {"name": name, "namespace": "d", "uid": name}
    body = {"metadata": meta, "spec": {"nodeName": "n1"},
            "status": {"phase": phase, "containerStatuses": ended, **status}}  # fmt: skip
    return make_pod_info(from_builtins(FinishedPod, body))


def test_when_a_pod_finished():
    assert finished_at(finished("a", "1970-01-01T00:00:05Z")) == 5.0
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": "1970-01-01T00:00:07Z"}
    assert finished_at(finished("a", conditions=[ready])) == 7.0
    assert math.isnan(finished_at(finished("a")))
    assert math.isnan(finished_at(make_pod("runs")))


def test_pods_that_finished_are_on_their_node_for_an_hour():
    cache = Cache()
    cache.attend(frozenset({FINISHED}))
    cache.set_finished(finished("early"), 100.0)
    cache.add_node(make_node("n1"))
    cache.set_finished(finished("late"), 3000.0)
    pods = cache.other_pods.pods("finished")
    assert pods.node.tolist() == [0, 0]
    generation = cache.log.generation
    cache.expire(3701.0)
    assert [cache.other_pods.pods("finished").pod(0).name] == ["late"]
    assert cache.log.since(generation)[0].tolist() == [0]
    cache.remove_node("n1")
    assert cache.other_pods.pods("finished").node.tolist() == [-1]
    cache.attend(frozenset())
    assert cache.other_pods.pods("finished").size == 0


def test_a_pod_of_the_queue_that_has_its_node_is_in_no_queue():
    cache = Cache()
    cache.add_node(make_node("n1"))
    cache.attend(frozenset({QUEUE}))
    for name in ("a", "b"):
        cache.set_queued(make_pod(name), QueueTimes(1.0, None, 0))
    cache.other_pods.take_touched()
    pod = make_pod("a")
    cache.assume(pod, "n1")
    assert sorted(cache.other_pods.pods("queue").node.tolist()) == [-1, 0]
    assert cache.other_pods.take_touched() == {pod.uid}
    cache.forget(pod.uid)
    assert cache.other_pods.pods("queue").node.tolist() == [0, 0]
    cache.set_queued(make_pod("a"), QueueTimes(2.0, 1.0, 3))
    assert cache.other_pods.times(pod.uid).attempts == 3
    cache.remove_queued(pod.uid)
    assert cache.other_pods.pods(QUEUE).row(pod.uid) == -1
    assert cache.other_pods.pods("queue").size == 1


def test_a_predecessor_is_the_pod_of_the_name_or_the_last_of_the_workload():
    cache = Cache()
    for name in ("n1", "n2", "n3"):
        cache.add_node(make_node(name))
    owned = {"ownerReferences": [{"kind": "StatefulSet", "name": "db", "controller": True}]}

    def member(name, uid):
        meta = {"name": name, "namespace": "d", "uid": uid, **owned}
        return make_pod_info(from_builtins(Pod, {"metadata": meta}))

    cache.add_pod(member("db-0", "u0"), "n1")
    cache.remove_pod("u0")
    assert cache.other_pods.previous_node(member("db-0", "new")) is None, "nobody asked for it yet"
    cache.attend(frozenset({PREVIOUS}))
    cache.add_pod(member("db-0", "u1"), "n1")
    cache.add_pod(member("db-1", "u2"), "n2")
    cache.assume(member("db-2", "u3"), "n3")
    for uid in ("u1", "u2"):
        cache.remove_pod(uid)
    cache.forget("u3")
    assert cache.other_pods.previous_node(member("db-0", "new")) == "n1"
    assert cache.other_pods.previous_node(member("db-7", "new")) == "n2"


# ---- in a running scheduler ----------------------------------------------------------------------


async def test_what_nobody_reads_any_more_is_not_watched():
    reads = "filter: count(node.finished) >= 0 and (workload.replicas ?? 9) > 0\n"
    async with embedded(nodes=0, files={"r.policy": reads}) as cluster:
        furnish(cluster)
        async with process(cluster, kept_in_the_cluster()) as berth:
            await berth.until(lambda: berth.bundles)
            cache = berth.app.cache
            assert cache.store("DeploymentScale").objects
            assert cache.other_pods.pods("finished").size == 1
            [done] = [one.pod.metadata for one in [cache.other_pods.pods("finished").pod(0)]]
            cluster.delete("pods", done.name, namespace=done.namespace)
            await berth.until(lambda: cache.other_pods.pods("finished").size == 0)
            berth.rules({"r.policy": "score: 100*node.cpu.free/node.cpu.allocatable\n"})
            await berth.until(lambda: len(berth.bundles) == 2)
            assert not cache.store("DeploymentScale").objects
            assert not cache.other_pods.attends
            assert cache.other_pods.pods("finished").size == 0


async def test_what_the_guard_may_bring_back_is_known_when_it_does_and_is_let_go_after_its_time():
    reads = (
        'metric r = object "apps/deployments" field "spec.replicas" by workload\n'
        'metric heat = promql "heat" by node\n'
        "filter: r is missing or (r > 0 and (workload.replicas ?? 9) > 0)\n"
        "filter: (heat ?? 0) < 90\n"
    )

    def series():
        return any(one.series for one in signals.status())

    async with embedded(nodes=0, files={"r.policy": reads}) as cluster:
        furnish(cluster)
        guard = {"pending": 9, "within": "60m"}
        async with process(cluster, kept_in_the_cluster(guard=guard)) as berth:
            cache, signals = berth.app.cache, berth.app.signals
            await berth.until(lambda: berth.bundles and series())
            berth.rules({"r.policy": "score: 100*node.cpu.free/node.cpu.allocatable\n"})
            await berth.until(lambda: len(berth.bundles) == 2)
            assert not signals.status(), "no rule in force reads one"
            assert [one.query for one in signals.questions()] == ["heat"], "but one may again"
            assert berth.app._in_force.reloader.go_back("as the guard does")
            await berth.until(lambda: len(berth.bundles) == 3)
            assert cache.store("DeploymentScale").objects
            assert series()
            berth.rules({"r.policy": "score: 50*node.cpu.free/node.cpu.allocatable\n"})
            await berth.until(lambda: len(berth.bundles) == 4)
            assert cache.store("DeploymentScale").objects
            berth.app._in_force._keep_before(0)  # as the guard says when its time is over
            await berth.until(lambda: not cache.store("DeploymentScale").objects)
            assert not signals.questions()


@pytest.mark.parametrize(
    "before",
    ["prefer: most node.cpu.free\n", "metric n = usage memory by node\nfilter: (n ?? 9) < 9\n"],
    ids=["the first to read usage", "the first to read this of it"],
)
async def test_rules_have_the_usage_that_they_read_from_the_first_decision_on(monkeypatch, before):
    async def answer(*_):
        yield Usage(Identity(name="node-01"), usage={"cpu": "2", "memory": "3"})

    monkeypatch.setattr(sources, "each", answer)
    was = {"r.policy": before}
    async with embedded(nodes=1, files=was) as cluster, process(cluster, settings_of()) as berth:
        await berth.until(lambda: berth.bundles)
        assert nodes_of(cluster) == ["node-01"]
        store, seen, use = berth.app.signals, [], berth.app.scheduler._use

        def looked(*what):
            seen.extend(one.matched for one in store.status())
            use(*what)

        monkeypatch.setattr(berth.app.scheduler, "_use", looked)
        berth.rules({"r.policy": "metric m = usage cpu by node\nfilter: (m ?? 9) < 1\n"})
        await berth.until(lambda: len(berth.bundles) == 2)
        assert seen == [1]


async def test_what_waits_is_asked_for_on_when_others_come_into_force_meanwhile():
    bundle = compiled(
        {"a.policy": "metric m = usage cpu by pod\nfilter: sum(m ?? 0 over node.pods) < 9\n"}
    )
    calm = {"r.policy": "prefer: most node.cpu.free\n"}
    async with embedded(nodes=1, files=calm) as cluster, process(cluster, settings_of()) as berth:
        await berth.until(lambda: berth.bundles)
        assert berth.app._missing(bundle, "a namespace")
        berth.app._keep()  # as when others are put in force
        assert berth.app.signals.questions("usage"), "its samples would be gone"


async def test_an_edit_that_reads_what_was_not_kept_of_pods_has_them_listed_once_more():
    held = "filter: not any(node.pods where it.annotation lonely=yes)\n"
    async with embedded(nodes=2, files={"r.policy": "prefer: most node.cpu.free\n"}) as cluster:
        cluster.create("namespaces", {"metadata": {"name": "d"}})
        first, second = nodes_of(cluster)
        spec = {"nodeName": first, "containers": [{"name": "c", "image": "i"}]}
        meta = {"name": "runs", "annotations": {"lonely": "yes"}, "labels": {"a": "b"}}
        cluster.create("pods", {"metadata": meta, "spec": spec}, namespace="d")
        async with process(cluster, settings_of()) as berth:
            await berth.until(lambda: berth.bundles)
            cache = berth.app.cache
            (place,) = cache.pods.on(cache.nodes.row(first)).tolist()
            kept = cache.pods.pod(place)
            assert (kept.pod.metadata.annotations, kept.pod.metadata.labels) == (
                None,
                {"a": "b"},
            )
            berth.rules({"r.policy": held})
            await berth.until(lambda: len(berth.bundles) == 2)
            (place,) = cache.pods.on(cache.nodes.row(first)).tolist()
            kept = cache.pods.pod(place)
            assert kept.pod.metadata.annotations == {"lonely": "yes"}
            assert await berth.lands(berth.pod("p")) == second
            notes = [note for reason, note in berth.events("ConfigMap")
                     if reason == "PoliciesAwaiting"]  # fmt: skip
            assert notes[0].endswith("pods once more, for fields that were not kept")


def nodes_of(cluster):
    return sorted(one["metadata"]["name"] for one in cluster.list("nodes"))


async def test_a_journal_holds_what_such_rules_read(tmp_path):
    policy = (
        "filter: pod.attempts >= 1 or count(queue.pods) > 9\n"
        "filter: count(node.finished where it.finished_at is present) == 1\n"
        "filter: workload.replicas == 3 and node.volumes.limit > 3 and now - node.heartbeat < 1h\n"
        "prefer: count(node.nominated) == 1\n"
        "avoid: pod.previous_node is node.name\n"
    ).replace("is node.name", "== node.name")
    out = io.BytesIO()
    async with embedded(nodes=0, files={"r.policy": policy}) as cluster:
        pods = furnish(cluster)
        berth = Process(cluster, settings_of(), cluster.kubeconfig(), out)
        try:
            await berth.until(lambda: berth.bundles)
            pods.make("web-0", None, {"labels": OWNED, "ownerReferences": [OWNER]})
            await berth.until(lambda: named(cluster, "web-0")["spec"].get("nodeName"))
            berth.stop.set()
            await berth.task
        finally:
            berth.task.cancel()
    journal = tmp_path / "journal.jsonl"
    journal.write_bytes(out.getvalue())
    result = CliRunner().invoke(berth_main, ["replay", str(journal)])
    assert result.exit_code == 0, result.output
    assert "decisions replayed" in result.output
