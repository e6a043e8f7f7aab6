"""Event handlers: what changes are called, and what they do to the cache and the queue."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import to_builtins

from engine.clock import ManualClock
from engine.clusterevents import POD_OTHERWISE, Place, place_of
from engine.eventhandlers import EventHandlers
from engine.framework.events import (
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    QueueingHint,
    Resource,
)
from engine.framework.snapshot import Snapshot
from engine.framework.status import Status
from engine.objects import Namespace, Node, ObjectMeta, Pod, from_builtins
from engine.objects.storage import PersistentVolume
from engine.objects.workloads import Service, ServiceSpec
from engine.pods.podinfo import PodInfo, make_pod_info
from engine.queue import QueuedPod, QueueHooks, SchedulingQueue, SubQueue
from engine.telemetry import Count, Telemetry
from tests.builders import Cache, changed
from tests.effort import examples
from tests.engine.queue.builders import nothing

HINTS = Path(__file__).parents[1] / "conformance" / "data" / "hint.jsonl.gz"
OURS = frozenset({"berth", "default-scheduler"})
FREED = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
TARGET = ClusterEvent(Resource.TARGET_POD, Action.UPDATE)
REGISTERED = {
    "Fit": (ClusterEventWithHint(FREED),),
    "Policy": (
        ClusterEventWithHint(TARGET),
        ClusterEventWithHint(ClusterEvent(Resource.NAMESPACE, Action.ALL)),
    ),
    "Tenants": (ClusterEventWithHint(ClusterEvent(Resource.ASSIGNED_POD, Action.ALL)),),
}


class RecordingQueue(SchedulingQueue):
    """Remembers what it was told happened."""

    def __init__(self, snapshot: Callable[[], Snapshot] = nothing) -> None:
        super().__init__(
            clock=ManualClock(),
            hooks=QueueHooks(
                lambda pod, queued_at: (-pod.priority, queued_at),
                lambda _pod: Status.SUCCESS,
                REGISTERED,
            ),
            snapshot=snapshot,
        )
        self.told: list[tuple[ClusterEvent, Callable[[PodInfo], bool] | None]] = []

    def move(self, event, old=None, new=None, *, only=None, uids=None):
        self.told.append((event, only))
        return super().move(event, old, new, only=only, uids=uids)

    def update(self, pod, events=()):
        self.told.extend((event, None) for event in events)
        super().update(pod, events)


class World:
    """A cache, a queue and their handlers."""

    def __init__(self) -> None:
        self.cache = Cache()
        self.queue = RecordingQueue(lambda: self.cache.snapshot(0.0))
        self.refused: list[tuple[str, str]] = []
        self.telemetry = Telemetry()
        self.handlers = EventHandlers(
            self.cache,
            self.queue,
            scheduler_names=OURS,
            on_refused=lambda pod, reason: self.refused.append((pod.metadata.name, reason)),
            telemetry=self.telemetry,
        )
        self.pods, self.nodes = self.handlers.pods, self.handlers.nodes
        self.nodes.on_add(node())
        self.queue.told.clear()

    def told(self) -> list[str]:
        told = [str(event) for event, _ in self.queue.told]
        self.queue.told.clear()
        return told

    def reject_next(self, *plugins: str) -> str:
        queued = self.queue.pop()
        assert queued is not None
        self.queue.requeue_rejected(queued, frozenset(plugins))
        return queued.pod.uid

    def where(self, uid: str) -> SubQueue | None:
        queued = self.queue.get(uid)
        return None if queued is None else queued.where


def node(name: str = "n1", **status: Any) -> Node:
    body = {
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": "4", "pods": 10}} | status,
    }
    return from_builtins(Node, body)


def pod(  # the fields that decide what a pod is to us
    name: str = "p",
    *,
    on: str = "",
    phase: str = "Pending",
    scheduler: str = "berth",
    uid: str = "",
    cpu: str = "1",
    deleted: bool = False,
    priority: int = 0,
    nominated: str = "",
    version: str = "1",
    labels: dict[str, str] | None = None,
    conditions: list[dict[str, str]] | None = None,
) -> Pod:
    meta: dict[str, Any] = {"name": name, "namespace": "ns", "uid": uid or name, "labels": labels}
    meta |= {"resourceVersion": version}
    if deleted:
        meta["deletionTimestamp"] = "2026-03-01T00:00:00Z"
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    spec = {"nodeName": on, "schedulerName": scheduler, "containers": [container]}
    status = {"phase": phase, "nominatedNodeName": nominated, "conditions": conditions}
    body = {"metadata": meta, "spec": spec | {"priority": priority}, "status": status}
    return from_builtins(Pod, body)


@pytest.fixture
def world() -> World:
    return World()


# ---- names of changes ----------------------------------------------------------------------------


def recorded() -> Iterator[tuple[str, Any, Any, Pod, set[str]]]:
    with gzip.open(HINTS, "rt") as lines:
        for line in lines:
            vector = json.loads(line)
            case = vector["case"]
            event, kind = case["event"], case["event"]["resource"]
            if kind in ("Pod", "Node"):
                of = Pod if kind == "Pod" else Node
                old, new = (
                    None if event.get(side) is None else from_builtins(of, event[side])
                    for side in ("old", "new")
                )
                waiting = from_builtins(Pod, case["pod"])
                yield kind, old, new, waiting, set(vector["expect"]["events"])


def test_the_handlers_tell_the_queue_just_that() -> None:
    cases = list(recorded())
    assert len(cases) > 300
    for kind, old, new, waiting, expected in cases:
        world = World()
        handler = world.pods if kind == "Pod" else world.nodes
        if old is not None:
            handler.on_add(old)
        world.told()
        match (old, new):
            case (None, _):
                handler.on_add(new)
            case (_, None):
                handler.on_delete(old)
            case _:
                handler.on_update(old, new)
        me = make_pod_info(waiting)
        told = {
            str(event)
            for event, only in world.queue.told
            if (only is None or only(me))
            and not (event.resource is Resource.TARGET_POD and new.metadata.uid != me.uid)
        }
        ours_to_say = {
            "Node/Update",
            "TargetPod/Update",
            "Nomination/Delete",
        }  # extra, and left out for an echo
        assert told - ours_to_say == expected - ours_to_say


def test_a_node_change_without_a_name_of_its_own_is_for_policies(world: World) -> None:
    world.nodes.on_update(node(), node(addresses=[{"type": "InternalIP", "address": "10.0.0.1"}]))
    assert world.told() == ["Node/Update"]
    cordoned = changed(node(), spec={"unschedulable": True})
    world.nodes.on_update(node(), cordoned)
    assert world.told() == ["Node/Update"]
    world.nodes.on_update(cordoned, node())
    assert world.told() == ["Node/UpdateNodeTaint", "Node/Update"]
    world.nodes.on_update(node(), node(declaredFeatures=["A"]))
    assert world.told() == ["Node/UpdateNodeDeclaredFeature"]


def test_a_heartbeat_is_no_change(world: World) -> None:
    world.nodes.on_update(node(), node())
    assert world.told() == []


def test_equal_amounts_are_equal_however_written(world: World) -> None:
    world.nodes.on_update(node(), node(allocatable={"cpu": "4000m", "pods": "10"}))
    assert "Node/UpdateNodeAllocatable" not in world.told()


def test_a_resize_that_its_node_refuses_gives_back_what_it_asked_for(world: World) -> None:
    why = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    allocated = {"containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "1"}}]}
    grows, refused = (
        from_builtins(Pod, to_builtins(pod(on="n1", cpu="3")) | {"status": allocated | more})
        for more in ({}, {"conditions": [why]})
    )
    world.pods.on_add(grows)
    world.told()
    world.pods.on_update(grows, refused)
    assert world.told() == ["AssignedPod/UpdatePodScaleDown"]
    assert world.cache.snapshot(0.0).nodes.requested("cpu")[0] == 1000
    world.pods.on_update(refused, grows)
    assert world.told() == ["AssignedPod/UpdatePodScaleUp"]


# ---- the life of a pod ---------------------------------------------------------------------------


def test_from_the_queue_to_a_node_to_the_end(world: World) -> None:
    world.pods.on_add(pod())
    assert world.where("p") is SubQueue.ACTIVE
    queued = world.queue.pop()
    assert queued is not None
    world.cache.assume(queued.pod, "n1")
    world.pods.on_update(pod(), pod(on="n1"))
    assert not world.cache.is_assumed("p")
    assert world.cache.node_of("p") == "n1"
    assert "p" not in world.queue
    world.queue.done("p")
    assert world.told() == ["AssignedPod/Add"]
    world.pods.on_update(pod(on="n1"), pod(on="n1", phase="Succeeded"))
    assert world.cache.node_of("p") is None
    assert world.told() == ["AssignedPod/Delete"]
    world.pods.on_delete(pod(on="n1", phase="Succeeded"))
    assert world.told() == []


def test_a_pod_of_another_scheduler_is_counted_and_never_queued(world: World) -> None:
    theirs = pod(scheduler="other")
    world.pods.on_add(theirs)
    assert "p" not in world.queue
    world.pods.on_update(theirs, pod(scheduler="other", on="n1"))
    assert world.cache.node_of("p") == "n1"


def test_a_pod_that_somebody_else_binds_elsewhere_frees_the_node_that_we_chose(
    world: World,
) -> None:
    world.nodes.on_add(node("n2"))
    world.pods.on_add(pod())
    queued = world.queue.pop()
    assert queued is not None
    world.cache.assume(queued.pod, "n1")
    world.told()
    world.pods.on_update(pod(), pod(on="n2"))
    assert world.cache.node_of("p") == "n2"
    assert world.told() == ["AssignedPod/Delete", "AssignedPod/Add"]


@pytest.mark.parametrize("end", [pod(deleted=True), pod(phase="Failed"), None])
def test_a_waiting_pod_that_ends_leaves_the_queue(world: World, end: Pod | None) -> None:
    world.pods.on_add(pod())
    if end is None:
        world.pods.on_delete(pod(deleted=True))
    else:
        world.pods.on_update(pod(), end)
    assert not [*world.queue.pending()]
    assert world.told() == []


@pytest.mark.parametrize("gone", [True, False])
def test_an_assumed_pod_that_ends_frees_its_node(world: World, gone: bool) -> None:
    world.pods.on_add(pod("rejected", cpu="4"))
    assert world.reject_next("Fit") == "rejected"
    world.pods.on_add(pod())
    queued = world.queue.pop()
    assert queued is not None
    world.cache.assume(queued.pod, "n1")
    if gone:
        world.pods.on_delete(pod())
    else:
        world.pods.on_update(pod(), pod(deleted=True))
    assert world.cache.node_of("p") is None
    assert world.where("rejected") is SubQueue.BACKOFF
    assert not world.queue.requeue_error(queued)


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("cpu", ["250m", "3"])
def test_an_assumed_pod_whose_requests_change_before_its_binding_is_seen(
    world: World, cpu: str, done: bool
) -> None:
    """It counts with what it was assumed with until the watch confirms it, then with what it has.

    Source: kubernetes pkg/scheduler/backend/cache/cache.go, AddPod of an assumed pod.
    """

    def held() -> int:
        return int(world.cache.nodes.requested("cpu")[0])

    world.pods.on_add(pod())
    queued = world.queue.pop()
    assert queued is not None
    world.cache.assume(queued.pod, "n1")
    if done:  # the server has answered before the watch
        world.queue.done("p")
    world.pods.on_update(pod(), pod(cpu=cpu))
    assert (held(), world.cache.is_assumed("p")) == (1000, True)
    world.pods.on_update(pod(cpu=cpu), pod(cpu=cpu, on="n1"))
    assert (held(), world.cache.is_assumed("p")) == ({"250m": 250, "3": 3000}[cpu], False)
    world.pods.on_delete(pod(cpu=cpu, on="n1"))
    assert held() == 0
    assert "p" not in world.queue


def test_an_update_of_a_pod_that_we_just_bound_does_not_queue_it_again(world: World) -> None:
    world.pods.on_add(pod())
    queued = world.queue.pop()
    assert queued is not None
    world.cache.assume(queued.pod, "n1")
    world.queue.done("p")
    world.pods.on_update(pod(), pod(labels={"a": "b"}))
    assert "p" not in world.queue


def test_a_failed_binding_requeues_the_newest_pod(world: World) -> None:
    world.pods.on_add(pod())
    queued = world.queue.pop()
    assert queued is not None
    world.cache.assume(queued.pod, "n1")
    world.pods.on_update(pod(), pod(labels={"a": "b"}))
    world.cache.forget("p")
    assert world.queue.requeue_error(queued)
    assert queued.pod.pod.metadata.labels == {"a": "b"}


def test_the_echo_of_our_own_status_wakes_nobody(world: World) -> None:
    world.pods.on_add(pod())
    world.reject_next("Policy")
    said = pod(conditions=[{"type": "PodScheduled", "status": "False"}], nominated="n1")
    world.pods.on_update(pod(), said)
    assert world.where("p") is SubQueue.UNSCHEDULABLE
    world.pods.on_update(said, pod(labels={"a": "b"}))
    assert world.where("p") is SubQueue.BACKOFF


@pytest.mark.parametrize(("priority", "woken"), [(5, True), (6, False)])
def test_a_lost_nomination_frees_its_node_for_lesser_pods(
    world: World, priority: int, woken: bool
) -> None:
    world.pods.on_add(pod("waits", priority=priority))
    world.reject_next("Fit")
    world.pods.on_add(pod(priority=5, nominated="n1"))
    world.pods.on_delete(pod(priority=5, nominated="n1", deleted=True))
    assert (world.where("waits") is SubQueue.BACKOFF) is woken


@pytest.mark.parametrize(("node", "woken"), [("n1", False), ("n2", True)])
def test_a_pod_that_was_promised_another_node_than_it_has_frees_that_one(
    world: World, node: str, woken: bool
) -> None:
    world.pods.on_add(pod("waits"))
    world.reject_next("Fit")
    world.pods.on_add(pod(priority=5, nominated="n1"))
    world.pods.on_update(pod(priority=5, nominated="n1"), pod(priority=5, nominated="n1", on=node))
    assert (world.where("waits") is SubQueue.BACKOFF) is woken


def test_a_namespace_wakes_its_own_pods(world: World) -> None:
    world.pods.on_add(pod())
    world.reject_next("Policy")
    for name, where in (("other", SubQueue.UNSCHEDULABLE), ("ns", SubQueue.BACKOFF)):
        old, new = (
            from_builtins(Namespace, {"metadata": {"name": name, "labels": {"a": value}}})
            for value in ("b", "c")
        )
        world.handlers.namespaces.on_update(old, new)
        assert world.where("p") is where


def test_a_namespace_wakes_others_where_it_is_read_of_pods_on_nodes(world: World) -> None:
    """Only if a rule reads it, and only if that is something else now."""

    def tenant(value: str) -> Namespace:
        return from_builtins(Namespace, {"metadata": {"name": "ns", "labels": {"tenant": value}}})

    def of_namespace(pod: PodInfo) -> str | None:
        namespace = world.cache.namespaces.get(pod.namespace)
        return None if namespace is None else (namespace.metadata.labels or {}).get("tenant")

    def wakes(change: Callable[[], None]) -> bool:
        told = len(world.queue.told)
        change()
        return POD_OTHERWISE in [event for event, _ in world.queue.told[told:]]

    namespaces = world.handlers.namespaces
    world.nodes.on_add(node("n1"))
    world.pods.on_add(pod("there", on="n1"))
    assert not wakes(lambda: namespaces.on_add(tenant("a")))
    world.cache.pods.namespace_text("tenant", of_namespace)
    before = world.cache.log.generation
    assert wakes(lambda: namespaces.on_update(tenant("a"), tenant("b")))
    assert world.cache.log.since(before)[0].tolist() == [world.cache.nodes.row("n1")]
    before = world.cache.log.generation
    assert not wakes(lambda: world.handlers.namespaces.on_update(tenant("x"), tenant("b")))
    assert world.cache.log.generation == before
    assert wakes(lambda: namespaces.on_delete(tenant("b")))
    assert world.cache.pods.namespace_text("tenant", of_namespace).tolist() == [-1]


# ---- what cannot be read -------------------------------------------------------------------------


def test_a_waiting_pod_that_cannot_be_read_is_refused_once(world: World) -> None:
    bad = pod(cpu="much", nominated="n1")
    world.pods.on_add(bad)
    world.pods.on_update(bad, pod(cpu="much", nominated="n1", version="2"))
    assert [name for name, _ in world.refused] == ["p"]
    assert "cpu" in world.refused[0][1]
    assert "p" not in world.queue
    assert world.telemetry[Count.OBJECTS_UNREADABLE] == 1
    world.pods.on_update(bad, pod(nominated="n1", version="3"))
    assert world.where("p") is SubQueue.ACTIVE
    assert world.cache.nominations.node_of("p") == "n1"


def test_a_bound_pod_that_cannot_be_read_still_counts(world: World) -> None:
    world.pods.on_add(pod(cpu="much", on="n1"))
    assert world.cache.node_of("p") == "n1"
    assert world.refused == []
    assert world.telemetry[Count.OBJECTS_UNREADABLE] == 1


def test_a_node_with_an_amount_that_cannot_be_read_has_none_of_it(world: World) -> None:
    world.nodes.on_add(node("n2", allocatable={"cpu": "some", "pods": "10"}))
    assert world.cache.nodes.row("n2") >= 0
    world.nodes.on_update(node("n2"), node("n2", allocatable={"cpu": "2", "pods": "ten"}))
    assert world.cache.nodes.row("n2") >= 0


def test_hints_are_asked_with_any_object_and_the_cluster_after_the_event(world: World) -> None:
    asked = []

    def hint(pod: PodInfo, old: object, new: object, snapshot: Snapshot) -> QueueingHint:
        asked.append((pod.name, old, new, dict(snapshot.objects("PersistentVolume"))))
        return QueueingHint.SKIP

    event = ClusterEvent(Resource.PERSISTENT_VOLUME, Action.ALL)
    hooks = QueueHooks(
        lambda *_: (), lambda _: Status.SUCCESS, {"V": (ClusterEventWithHint(event, hint),)}
    )
    world.queue.set_hooks(hooks, None)
    world.pods.on_add(pod())
    world.reject_next("V")
    handler = world.handlers.of(Resource.PERSISTENT_VOLUME)
    one, same, other = (
        PersistentVolume(ObjectMeta("pv", resource_version=version, labels=labels))
        for version, labels in (("1", None), ("2", None), ("3", {"a": "b"}))
    )
    handler.on_add(one)
    handler.on_update(one, same)  # nothing that is read changed
    handler.on_update(same, other)
    handler.on_delete(other)
    assert asked == [
        ("p", None, one, {"pv": one}),
        ("p", same, other, {"pv": other}),
        ("p", other, None, {}),
    ]
    assert [str(event) for event, _ in world.queue.told[-3:]] == [
        f"PersistentVolume/{action}" for action in ("Add", "Update", "Delete")
    ]


def test_kinds_that_wake_nobody_are_kept_all_the_same(world: World) -> None:
    services = world.handlers.of(None)
    service = Service(ObjectMeta("web", "ns"), ServiceSpec({"app": "web"}))
    services.on_add(service)
    assert not world.queue.told
    snapshot = world.cache.snapshot(0.0)
    assert snapshot.objects("Service") == {"ns/web": service}
    services.on_delete(service)
    assert (snapshot.objects("Service"), snapshot.objects_version("Service")) == ({}, 2)


def test_work_is_announced() -> None:
    calls: list[None] = []
    handlers = EventHandlers(
        Cache(),
        RecordingQueue(),
        scheduler_names=OURS,
        on_refused=lambda _pod, _reason: None,
        on_work=lambda: calls.append(None),
    )
    handlers.nodes.on_add(node())
    handlers.of(Resource.PERSISTENT_VOLUME).on_add(PersistentVolume(ObjectMeta("pv")))
    assert not calls
    handlers.pods.on_add(pod())
    assert calls
    handlers.pods.cache.assume(make_pod_info(pod()), "n1")
    handlers.pods.queue.delete("p")
    for handler, one in ((handlers.pods, pod()), (handlers.nodes, node())):
        calls.clear()
        handler.on_delete(one)  # the scheduler may have to take something back
        assert calls


# ---- any history ---------------------------------------------------------------------------------

STATES = st.builds(
    pod,
    name=st.sampled_from(["a", "b", "c"]),
    on=st.sampled_from(["", "", "n1", "n9"]),
    phase=st.sampled_from(["Pending", "Pending", "Running", "Failed"]),
    scheduler=st.sampled_from(["berth", "berth", "other"]),
    uid=st.just(""),
    cpu=st.sampled_from(["1", "2"]),
    deleted=st.booleans(),
    nominated=st.sampled_from(["", "n1"]),
    labels=st.sampled_from([None, {"a": "b"}]),
)
WORK = st.sampled_from(["pop", "reject", "fail", "bind"])


class History(World):
    """A server's pods, and a scheduler that tries some of them."""

    def __init__(self) -> None:
        super().__init__()
        self.server: dict[str, Pod] = {}
        self.flying: list[QueuedPod] = []

    def write(self, new: Pod) -> None:
        before = self.server.get(new.metadata.name)
        self.server[new.metadata.name] = new
        if before is None:
            self.pods.on_add(new)
        else:
            self.pods.on_update(before, new)

    def remove(self, name: str) -> None:
        if (last := self.server.pop(name, None)) is not None:
            self.pods.on_delete(last)

    def try_one(self) -> None:
        if (queued := self.queue.pop()) is not None:
            self.cache.assume(queued.pod, "n1")
            self.flying.append(queued)

    def land(self, how: str) -> None:
        if not self.flying:
            return
        queued = self.flying.pop(0)
        if how == "bind":
            self.queue.done(queued.pod.uid)
            return
        if self.cache.is_assumed(queued.pod.uid):
            self.cache.forget(queued.pod.uid)
        if how == "fail":
            self.queue.requeue_error(queued)
        else:
            self.queue.requeue_rejected(queued, frozenset({"Fit"}))

    def check(self) -> None:
        places = {uid: place_of(of, OURS) for uid, of in self.server.items()}
        known = self.cache.assigned()
        assumed = {uid for uid, (_, assumed) in known.items() if assumed}
        queued = {uid for uid in ("a", "b", "c") if uid in self.queue}
        assert known.keys() - assumed == {u for u, p in places.items() if p is Place.ASSIGNED}
        assert queued | assumed == {u for u, p in places.items() if p is Place.PENDING}


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(STATES | WORK | st.sampled_from(["-a", "-b", "-c"]), max_size=40))
def test_whatever_happens_every_pod_is_where_it_belongs(history: list[Pod | str]) -> None:
    world = History()
    for step in history:
        match step:
            case Pod():
                world.write(step)
            case "-a" | "-b" | "-c":
                world.remove(step[1:])
            case "pop":
                world.try_one()
            case _:
                world.land(step)
        world.check()
