"""The queue against a model so naive that it is plainly right: one list of pods, no indexes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from engine.clock import ManualClock
from engine.framework.events import (
    EVERYTHING,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    QueueingHint,
    Resource,
)
from engine.framework.status import Status, unresolvable
from engine.pods.podinfo import PodInfo
from engine.queue import scheduling_queue
from engine.queue.hooks import QueueHooks
from engine.queue.queued import QueuedPod, SubQueue
from engine.queue.scheduling_queue import SchedulingQueue
from tests.effort import examples
from tests.engine.queue.builders import nothing, waiting

NODE_ADD = ClusterEvent(Resource.NODE, Action.ADD)
NODE_LABEL = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
NODE_TAINT = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)
POD_DELETE = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
POD_ADD = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)
OWN_LABEL = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL)
HAPPENING = [NODE_ADD, NODE_LABEL, NODE_TAINT, POD_DELETE, POD_ADD, EVERYTHING]
FAULTY, HELPED = 5, 2


def hint(pod: PodInfo, *_: object) -> QueueingHint:
    """Raises, queues or skips, by the pod's priority."""
    if pod.priority == FAULTY:
        raise RuntimeError("a fault in a hint")
    return QueueingHint.QUEUE if pod.priority % HELPED == 0 else QueueingHint.SKIP


EITHER = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)
HINTS = {
    "A": (ClusterEventWithHint(NODE_ADD), ClusterEventWithHint(POD_DELETE, hint)),
    "B": (ClusterEventWithHint(EITHER, hint), ClusterEventWithHint(OWN_LABEL)),
    "C": (ClusterEventWithHint(POD_DELETE),),
    "G": (ClusterEventWithHint(NODE_TAINT), ClusterEventWithHint(NODE_ADD, hint)),
    "N": (),
}
PLUGINS = sorted(HINTS)
REJECTING = st.frozensets(st.sampled_from([*PLUGINS, *PLUGINS, "gone-plugin"]), max_size=3)
BROKEN = st.sampled_from([False, False, True])


@dataclass
class Model:
    """What is known of one pod."""

    pod: PodInfo
    where: str
    queued_at: float
    rejections: int = 0
    errors: int = 0
    plugins: frozenset[str] = frozenset()
    pending: frozenset[str] = frozenset()
    done_at: float = float("-inf")
    parked_at: float = 0.0
    gone: bool = False
    newer: PodInfo | None = None
    seen: list[tuple[object, bool]] = field(default_factory=list)
    rules: int = 0


@pytest.fixture(autouse=True)
def _a_pod_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling_queue, "ASKED_AHEAD", 1)


def even(pod: PodInfo) -> bool:
    return pod.priority % 2 == 0


def by_halves(pod: PodInfo) -> int | None:
    return pod.priority % 2 or None


def by_thirds(pod: PodInfo) -> int | None:
    return pod.priority % 3 or None


class QueueMachine(RuleBasedStateMachine):
    flying = Bundle("flying")

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.descending = False
        self.hints = dict(HINTS)
        self.open_gate = False
        self.rules = 0
        self.model: dict[str, Model] = {}
        self.named = 0
        self.coming: tuple[QueueHooks, Iterator[None]] | None = None
        self.hooks = self.hooks_of(descending=False)
        self.queue = SchedulingQueue(clock=self.clock, hooks=self.hooks, snapshot=nothing)

    # ---- the rules in force

    def hooks_of(self, *, descending: bool) -> QueueHooks:
        order, kin = (self.by_name, by_thirds) if descending else (self.by_priority, by_halves)
        return QueueHooks(order, self.gate, self.hints, kin=kin, kin_by=frozenset({"A"}))

    def by_priority(self, pod: PodInfo, queued_at: float) -> tuple[object, ...]:
        return (-pod.priority, queued_at, pod.uid)

    def by_name(self, pod: PodInfo, _queued_at: float) -> tuple[object, ...]:
        return (pod.uid,)

    def key(self, m: Model) -> tuple[object, ...]:
        order = self.by_name if self.descending else self.by_priority
        return order(m.pod, m.queued_at)

    def gate(self, pod: PodInfo) -> Status:
        held = (pod.pod.metadata.labels or {}).get("held") == "yes"
        return unresolvable("held").by("G") if held and not self.open_gate else Status.SUCCESS

    # ---- the model's moves

    def enter(self, m: Model, *, at_once: bool = False, retest: bool = True) -> None:
        if retest and not self.gate(m.pod).ok:
            m.where, m.parked_at = "gated", self.clock.monotonic()
            return
        m.rules = self.rules
        if not at_once and self.clock.monotonic() < m.done_at:
            m.where = "backoff"
        else:
            m.where = "active"

    def verdict(self, m: Model, event: ClusterEvent) -> int:
        """0 nothing, 1 after backoff, 2 at once."""
        if event is EVERYTHING:
            return 1
        best = 0
        rejecting = {"G"} if m.where == "gated" else m.plugins
        for plugin in rejecting:
            for registered in self.hints.get(plugin, ()):
                if not registered.event.matches(event):
                    continue
                odd = m.pod.priority % HELPED and m.pod.priority != FAULTY
                if registered.hint is None or not odd:
                    pending = m.where != "gated" and plugin in m.pending
                    best = max(best, 2 if pending else 1)
        return best

    def waiting_in(self, *where: str) -> list[Model]:
        return [m for m in self.model.values() if m.where in where]

    # ---- what may happen

    @rule(priority=st.integers(0, 6), held=st.booleans())
    def add(self, priority: int, held: bool) -> None:
        self.named += 1
        pod = waiting(f"p{self.named}", priority=priority, labels={"held": "yes"} if held else None)
        self.queue.add(pod)
        m = self.model[pod.uid] = Model(pod, "", self.clock.time())
        self.enter(m)

    @initialize(pods=st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=6))
    def begin(self, pods: list[tuple[int, bool]]) -> None:
        for priority, held in pods:
            self.add(priority, held)

    @rule(
        plugins=REJECTING,
        before=st.lists(st.sampled_from(HAPPENING), max_size=2),
        during=st.lists(st.sampled_from(HAPPENING), max_size=3),
        after=st.lists(st.sampled_from(HAPPENING), max_size=2),
        broken=BROKEN,
        pending=st.booleans(),
    )
    def attempt(  # the usual life of a pod, which single steps rarely spell
        self,
        plugins: frozenset[str],
        before: list[ClusterEvent],
        during: list[ClusterEvent],
        after: list[ClusterEvent],
        broken: bool,
        pending: bool,
    ) -> None:
        for event in before:
            self.move(event, even_only=False)
        queued = self.pop()
        for event in during:
            self.move(event, even_only=False)
        self.requeue(queued, plugins, broken, pending)
        self.same_places()
        for event in after:
            self.move(event, even_only=False)
            self.same_places()

    @precondition(lambda self: self.model)
    @rule(data=st.data(), priority=st.integers(0, 6), held=st.booleans())
    def update(self, data: st.DataObject, priority: int, held: bool) -> None:
        m = data.draw(st.sampled_from(list(self.model.values())))
        self.change(m, priority, {"held": "yes"} if held else None)

    def change(self, m: Model, priority: int, labels: dict[str, str] | None) -> None:
        pod = waiting(m.pod.name, priority=priority, labels=labels)
        self.queue.update(pod, (OWN_LABEL,))
        if m.where == "in_flight":
            m.newer, m.gone = pod, False
            m.seen.append((OWN_LABEL, False))
            return
        m.pod = pod
        if m.where == "gated":
            self.enter(m)
        elif m.where == "unschedulable" and (wake := self.verdict(m, OWN_LABEL)):
            self.enter(m, at_once=wake == 2)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        m = data.draw(st.sampled_from(list(self.model.values())))
        assert self.queue.delete(m.pod.uid) is not m.gone
        if m.where == "in_flight":
            m.gone = True
        else:
            del self.model[m.pod.uid]

    @rule(target=flying)
    def pop(self) -> QueuedPod | None:
        queued = self.queue.pop()
        while True:
            active = self.waiting_in("active")
            early = [m for m in self.waiting_in("backoff") if not m.errors]
            if active:
                first = min(active, key=self.key)
            elif early:
                first = min(early, key=lambda m: (m.done_at, *self.key(m)))
            else:
                assert queued is None
                return None
            if self.gate(first.pod).ok or first.rules == self.rules:
                break
            first.where, first.parked_at = "gated", self.clock.monotonic()
        assert queued is not None
        assert queued.pod is first.pod
        first.where, first.seen = "in_flight", []
        return queued

    @rule(queued=consumes(flying))
    def done(self, queued: QueuedPod | None) -> None:
        if queued is not None:
            self.queue.done(queued.pod.uid)
            del self.model[queued.pod.uid]

    @rule(queued=consumes(flying), plugins=REJECTING, broken=BROKEN, pending=st.booleans())
    def requeue(
        self, queued: QueuedPod | None, plugins: frozenset[str], broken: bool, pending: bool
    ) -> None:
        if queued is None:
            return
        m = self.model[queued.pod.uid]
        waits = plugins & {"A", "C"} if pending else frozenset()
        if broken:
            kept = self.queue.requeue_error(queued)
        else:
            kept = self.queue.requeue_rejected(queued, plugins, waits)
        if m.gone:
            assert not kept
            del self.model[m.pod.uid]
            return
        m.pod, m.newer = m.newer or m.pod, None
        m.queued_at = self.clock.time()
        rejected = bool(plugins) and not broken
        m.errors = 0 if rejected else m.errors + 1
        m.rejections += rejected
        m.plugins = plugins if rejected else frozenset()
        m.pending = waits if rejected else frozenset()
        wait = min(2.0 ** ((m.errors or m.rejections) - 1), 10.0)
        m.done_at = (self.clock.monotonic() + wait) // 1 + 1
        wake = 0 if rejected else 1
        for what, even_only in m.seen if rejected else ():
            if even_only and not even(m.pod):
                continue
            if isinstance(what, ClusterEvent):
                wake = max(wake, self.verdict(m, what))
            else:
                assert isinstance(what, frozenset)
                wake = max(wake, 1 if plugins & what else 0)
        if rejected and not plugins <= self.hints.keys():
            wake = 1  # a plugin that is no more decides before anything that happened
        if wake:
            self.enter(m, at_once=wake == 2)
        else:
            m.where, m.parked_at = "unschedulable", self.clock.monotonic()
        assert kept
        assert queued.where.value == m.where

    @rule(event=st.sampled_from(HAPPENING), even_only=st.booleans())
    def move(self, event: ClusterEvent, even_only: bool) -> None:
        self.queue.move(event, only=even if even_only else None)
        for m in self.waiting_in("unschedulable", "gated"):
            if even_only and not even(m.pod):
                continue
            if wake := self.verdict(m, event):
                self.enter(m, at_once=wake == 2)
        for m in self.waiting_in("in_flight"):
            m.seen.append((event, even_only))

    @rule(opened=st.booleans())
    def turn_gate(self, opened: bool) -> None:
        self.open_gate = opened

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def activate(self, data: st.DataObject) -> None:
        m = data.draw(st.sampled_from(list(self.model.values())))
        self.queue.activate([m.pod.uid])
        if m.where == "in_flight":
            m.seen.append((EVERYTHING, False))
        elif m.where != "active":
            self.enter(m, at_once=True)

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 3.7, 60.0, 301.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def flush(self) -> None:
        now = self.clock.monotonic()
        self.queue.flush()
        for m in self.waiting_in("backoff"):
            if m.done_at <= now:
                self.enter(m, retest=m.rules != self.rules)
        for m in self.waiting_in("unschedulable", "gated"):
            if m.parked_at + 300.0 <= now:
                self.enter(m)
        deadline = self.queue.next_deadline()
        assert deadline is None or deadline > now

    @rule(
        changed=st.none() | st.frozensets(st.sampled_from(PLUGINS), max_size=2),
        dropped=st.sampled_from(["", "B", "C"]),
        descending=st.booleans(),
    )
    def set_hooks(self, changed: frozenset[str] | None, dropped: str, descending: bool) -> None:
        if self.descending != descending and changed is not None:
            changed |= {"A"}
        self.hints = {name: hints for name, hints in HINTS.items() if name != dropped}
        self.put(self.hooks_of(descending=descending), changed)

    @rule(descending=st.booleans(), is_given_up=st.booleans())
    def begin_to_prepare(self, descending: bool, is_given_up: bool) -> None:
        if self.coming is not None and is_given_up:
            self.coming[1].close()
        hooks = self.hooks_of(descending=descending)
        self.coming = hooks, self.queue.prepare(hooks, None)

    @rule(pods=st.lists(st.integers(0, 6), min_size=1, max_size=3), steps=st.integers(1, 16))
    def edit(self, pods: list[int], steps: int) -> None:  # the usual life of an edit
        self.begin_to_prepare(not self.descending, is_given_up=True)
        self.prepare(steps)
        for priority in pods:
            self.pop()
            self.add(priority, held=False)
            self.change(self.waiting_in("active")[0], priority, None)
            self.prepare(1)
        self.prepare(100)
        self.pop()

    @rule(steps=st.integers(1, 8))
    def prepare(self, steps: int) -> None:
        if self.coming is None:
            return
        hooks, left = self.coming
        for _ in range(steps):
            if next(left, self) is self:
                self.coming, self.hints = None, dict(hooks.hints)
                self.put(hooks, None)
                break

    @rule()
    def put_too_early(self) -> None:
        if self.coming is not None:
            hooks, _left = self.coming
            self.hints = dict(hooks.hints)
            self.put(hooks, None)
            self.coming = None

    def put(self, hooks: QueueHooks, changed: frozenset[str] | None) -> None:
        self.queue.set_hooks(hooks, changed)
        self.hooks, self.descending = hooks, hooks.sort_key == self.by_name
        self.rules += 1
        for m in self.waiting_in("gated"):
            self.enter(m)
        for m in self.waiting_in("unschedulable"):
            if changed is None or m.plugins & changed or not m.plugins <= self.hints.keys():
                self.enter(m)
        for m in self.waiting_in("in_flight"):
            m.seen.append((EVERYTHING if changed is None else changed, False))

    # ---- what must hold

    @invariant()
    def same_places(self) -> None:
        found = {q.pod.uid: q.where.value for q in self.queue.pending()}
        expected = {u: m.where for u, m in self.model.items() if m.where != "in_flight"}
        assert found == expected
        places = [m.where for m in self.model.values()]
        assert self.queue.counts() == {where: places.count(where.value) for where in SubQueue}

    @invariant()
    def gangs_are_whole(self) -> None:
        kin = self.hooks.kin
        assert kin is not None
        for key in (1, 2):
            found = {queued.pod.uid for queued in self.queue.kin(key)}
            assert found == {uid for uid, m in self.model.items() if kin(m.pod) == key}

    @invariant()
    def indexes_are_whole(self) -> None:
        q = self.queue
        heaps = [*q._active_q, *q._backoff_q, *q._error_backoff_q]
        everywhere = [*heaps, *q._parked.pods]
        assert len(everywhere) == len(set(everywhere)) == len([*q.pending()])
        parked = q._parked.pods
        by = {
            plugin: {queued for group in groups for queued in group.parked}
            for plugin, groups in q._parked._by.items()
        }
        assert set().union(*by.values()) == set(parked)
        assert all(by.values())
        since = [queued.parked_at for queued in parked]
        assert since == sorted(since)
        assert by.keys() <= self.hints.keys()
        if not q._in_flight:
            assert not q._in_flight._log
        assert all(queued.where is not SubQueue.IN_FLIGHT for queued in everywhere)


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(
    max_examples=examples(200),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
