"""Pods that wait to be placed, in order, and what wakes them.

A pod is in exactly one place, named by `QueuedPod.where`:

                  pre_enqueue says no
        add ──┬──────────────────────────▶ gated ◀──┐
              │                              │      │ pre_enqueue says no
              │       its plugin's event, update,   │ (asked on every way
              │   activate, new rules, 5 min, turn  │  into active, backoff)
              ▼                              ▼      │
     ┌───▶ active ◀──────────────────────────┴──────┴────────┐
     │        │ ▲                                            │
     │    pop │ └── window over ── backoff ◀──┐ still         │ backoff over,
     │        ▼                   │           │ backing off   │ or never had one
     │    in flight ◀── pop, when ┘           │               │
     │     │  │  │      active is empty       │               │
     │     │  │  └─ requeue ── error ─────────┤               │
     │     │  └──── requeue ── woken already ─┤               │
     │     │                                  │               │
     │     └─────── requeue ── rejected ──▶ unschedulable ────┤
     │                                        an event whose hint says QUEUE,
     └── activate (from anywhere)             update, new rules, 5 minutes,
                                              the instant a rule turns by the clock

    in flight ── done ──▶ (out)        anywhere ── delete ──▶ (out)
    in flight ── hold ──▶ waiting ── resume ──▶ in flight

Of parked pods of one class one is tried for all of them, see `parked`.

A waiting pod is assumed on a node and held in permit: nothing here wakes it, `on_event` is told of
every event instead. A pod that is deleted in flight leaves when its attempt ends. Pods in backoff
after an error are never popped before it is over; others are, when nothing else waits.

One owner, no locks, no waiting: the owner asks `next_deadline` when to `flush`.

Source: kubernetes pkg/scheduler/backend/queue/scheduling_queue.go.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, assert_never

from engine.clock import Clock
from engine.framework.events import EVERYTHING, Action, ClusterEvent, Resource, Seen
from engine.framework.snapshot import Snapshot
from engine.pods.podinfo import PodInfo
from engine.queue.heap import PodHeap
from engine.queue.hooks import (
    ComingHooks,
    GuardedHooks,
    Kin,
    Only,
    QueueHooks,
    Registrations,
    Verdict,
    Wake,
)
from engine.queue.inflight import InFlightPods, LoggedEvent
from engine.queue.parked import Group, Parked
from engine.queue.queued import NO_BACKOFF, NO_PLUGINS, Backoff, QueuedPod, SortKey, SubQueue

NEW_RULES: Final = ClusterEvent(Resource.POLICY, Action.UPDATE_OTHER)

_IN_FLIGHT: Final = SubQueue.IN_FLIGHT  # CPython 3.11 takes 0.15 us to look up a member
_ADDED: Final = ClusterEvent(Resource.UNSCHEDULED_POD, Action.ADD).label
_UPDATED: Final = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_OTHER).label
_FAILED: Final = "ScheduleAttemptFailure"
_BACKOFF_OVER: Final = "BackoffComplete"
_POPPED_EARLY: Final = "PopFromBackoffQ"
_ACTIVATED: Final = "ForceActivate"
_TIMED_OUT: Final = "UnschedulableTimeout"
_TURNED: Final = "TimeTurn"
_ASKED_AGAIN: Final = "Pop"
_HELD: Final = "WaitOnPermit"
_CLASS_MOVES: Final = "ClassMoves"

ASKING_SECONDS: Final = 0.002
"""How long hints are asked at a stretch; what is left is asked in the next `flush`."""
ASKED_AHEAD: Final = 16
"""Pods that are asked about at a stretch while hooks are prepared."""
MOST_ASKING: Final = 256
"""Events for which hints may still have to be asked."""

_TELL_GATED_AGAIN: Final = 30.0
_REPEATED_WITHIN: Final = 60.0


_Asking = tuple[LoggedEvent, list[Group]]
"""An event, and the groups whose hints are still to be asked, the last one first."""


class SchedulingQueue:
    """See the module. Pods go by UID."""

    def __init__(
        self,
        *,
        clock: Clock,
        hooks: QueueHooks,
        snapshot: Callable[[], Snapshot],
        initial_backoff: float = 1.0,
        max_backoff: float = 10.0,
        max_in_unschedulable: float = 300.0,
    ) -> None:
        """An empty queue; `snapshot` gives the cluster as hints see it when they are asked."""
        self._clock = clock
        self._hooks = GuardedHooks(hooks)
        self._snapshot = snapshot
        self._registrations = Registrations(hooks.hints)
        self._version = 1
        self._backoff = Backoff(initial_backoff, max_backoff)

        self._pods: dict[str, QueuedPod] = {}
        self._active_q = PodHeap()
        self._backoff_q = PodHeap(_backs_off_until)
        self._error_backoff_q = PodHeap(_backs_off_until)
        self._parked = Parked(clock, max_in_unschedulable)
        self._kin = Kin(self._hooks.kin)
        self._coming: ComingHooks | None = None
        # The pods that are tried for a group, and the pod that was popped last.
        self._out: dict[QueuedPod, Group] = {}
        self._tried: QueuedPod | None = None
        self._asking: deque[_Asking] = deque()
        self._listed: dict[Group, None] = {}
        """All of whom any was to be asked since none was."""
        self._in_flight = InFlightPods()
        self.on_gated: Callable[[QueuedPod], None] | None = None
        """Told of a pod that a gate holds, unless it does so for the same reason as before."""
        self.on_change: Callable[[QueuedPod], None] | None = None
        """Told of a pod that came, changed, moved or is tried: its times may have changed."""
        self.on_gone: Callable[[str], None] | None = None
        """Told the UID of a pod that has left."""
        self.on_event: Callable[[ClusterEvent], None] | None = None
        """Told of every event."""
        self.on_waiting: Callable[[QueuedPod, Sequence[ClusterEvent]], None] | None = None
        """Told of a waiting pod that changed, and how; without events: it is gone."""
        self.incoming: Counter[tuple[SubQueue, str]] = Counter()
        """How often pods came into a sub-queue, by what brought them."""
        self.answers = 0
        """Counts rejections and hints: each was about the cluster at that time."""

    # ---- pods come, change and go ----------------------------------------------------------

    def add(self, pod: PodInfo) -> None:
        """A pod waits; a known one is updated."""
        known = self._pods.get(pod.uid)
        if known is not None:
            self.update(pod)
            return
        now = self._clock.time()
        queued = QueuedPod(pod, added_at=now, queued_at=now, backs_off_until=NO_BACKOFF)
        self._pods[pod.uid] = queued
        self._is_now(queued, pod)
        if self.on_change is not None:
            self.on_change(queued)  # a gate may ask how long it has waited
        self._enter(queued, Wake.AT_ONCE, _ADDED)

    def update(self, pod: PodInfo, events: Sequence[ClusterEvent] = ()) -> None:
        """The pod changed; `events` say how (TargetPod/...). An unknown pod is added.

        An unschedulable pod wakes if the hint of a plugin that rejected it says so; a gated one is
        tested again.
        """
        queued = self._pods.get(pod.uid)
        if queued is None:
            self.add(pod)
            return
        old = queued.pod.pod
        match queued.where:
            case SubQueue.IN_FLIGHT:
                old = old if queued.newer is None else queued.newer.pod
                queued.newer, queued.gone = pod, False
                for event in events:
                    self._in_flight.record(LoggedEvent(event, old, pod.pod, uid=pod.uid))
            case SubQueue.ACTIVE | SubQueue.BACKOFF:
                self._is_now(queued, pod)
                self._reorder(queued)
            case SubQueue.UNSCHEDULABLE:
                self._is_now(queued, pod)
                self._wake_by_own(queued, events, old)
            case SubQueue.GATED:
                self._is_now(queued, pod)
                self._move(queued, Wake.AFTER_BACKOFF, events[0].label if events else _UPDATED)
            case SubQueue.WAITING:
                self._is_now(queued, pod)
                if events and self.on_waiting is not None:
                    self.on_waiting(queued, events)
            case _:
                assert_never(queued.where)
        if self.on_change is not None and queued.where is not SubQueue.IN_FLIGHT:
            self.on_change(queued)

    def part(self, uid: str, why: str = _UPDATED) -> None:
        """Until an unschedulable pod is tried itself, no other one is tried for it."""
        queued = self._pods.get(uid)
        if queued is not None and queued.where is SubQueue.UNSCHEDULABLE:
            # What woke its class, or is still to be asked, may help it, and it would not hear.
            if self._parked.pods[queued].out is not None or self._asking:
                self._move(queued, Wake.AFTER_BACKOFF, why)
            else:
                self._parked.part(queued, self._active_key(queued))

    def nomination_sent(self, uid: str, node: str) -> None:
        """The server will be told that the pod is nominated to this node, or to none ("")."""
        queued = self._pods.get(uid)
        if queued is not None:
            queued.told[node] = self._clock.monotonic()

    def is_nomination_news(self, uid: str, node: str, promised: str) -> bool:
        """Whether this nomination from the server is news, not an older write of ours.

        Ours is `promised` by now.
        """
        queued = self._pods.get(uid)
        if queued is None:
            return True
        told_at = queued.told.get(node, -math.inf)
        # Of two writes the later one alone may have reached the server, or none.
        if node != promised and self._clock.monotonic() - told_at < _REPEATED_WITHIN:
            return False
        queued.told.clear()
        return True

    def delete(self, uid: str) -> bool:
        """The pod no longer waits: deleted, bound, finished. False if it was not here."""
        queued = self._pods.get(uid)
        if queued is None:
            return False
        if queued.where is _IN_FLIGHT:
            was_here, queued.gone = not queued.gone, True
            if self.on_gone is not None:
                self.on_gone(uid)
            return was_here
        if queued.where is SubQueue.WAITING:
            self._forget(uid)
            if self.on_waiting is not None:
                self.on_waiting(queued, ())
            return True
        self._leave(queued)
        self._forget(uid)
        self._next_of(queued)
        return True

    # ---- attempts --------------------------------------------------------------------------

    def pop(self) -> QueuedPod | None:
        """The next pod to try, in flight until `done`, `requeue_rejected` or `requeue_error`.

        None if there is none. O(log n).
        """
        tried, self._tried = self._tried, None
        if self._out and tried is not None and tried.where is _IN_FLIGHT:
            self._next_of(tried)  # it got a node: there may be room for the next of its group
        while True:
            queued = self._active_q.pop()
            if queued is None:
                queued = self._backoff_q.pop()
                if queued is None:
                    return None
                self.incoming[SubQueue.ACTIVE, _POPPED_EARLY] += 1
            outdated = queued.hooks_version != self._version
            why = NEW_RULES.label if outdated else _ASKED_AGAIN
            if (outdated or self._hooks.own.gates_volatile) and not self._admitted(queued, why):
                continue
            self._tried = self._fly(queued)
            return queued

    def take(self, uid: str) -> QueuedPod | None:
        """Pops this pod, wherever it waits, unless a gate holds it or it is in flight: None."""
        queued = self._pods.get(uid)
        if queued is None or queued.where in (SubQueue.IN_FLIGHT, SubQueue.GATED):
            return None
        self._leave(queued)
        self._active_key(queued)
        return self._fly(queued) if self._admitted(queued, _ASKED_AGAIN) else None

    def done(self, uid: str) -> None:
        """The pod is placed, or will not be tried again; ignored if it is not in flight."""
        queued = self._pods.get(uid)
        if queued is not None and queued in self._in_flight:
            self._in_flight.end(queued)
            self._forget(uid)
            self._next_of(queued)

    def revalidate(self, queued: QueuedPod) -> bool:
        """Whether a pod that has been in flight for long stays so, with its newest object.

        It does not if it was deleted, or if hooks have changed: then it enters anew (`restart`).
        """
        if queued not in self._in_flight or queued.gone:
            return False
        self._catch_up(queued)
        if queued.hooks_version != self._version:
            self.restart(queued)
        return queued.where is SubQueue.IN_FLIGHT

    def restart(self, queued: QueuedPod) -> None:
        """The attempt ends without a result; the pod enters the queue through its gates."""
        self._in_flight.end(queued)
        self._enter(queued, Wake.AT_ONCE, NEW_RULES.label)

    def searches(self, queued: QueuedPod) -> None:
        """The popped pod will have no node by the next `pop`: it still stands for its group."""
        if self._tried is queued:
            self._tried = None

    def hold(self, queued: QueuedPod) -> bool:
        """The pod is assumed and waits in permit until `resume`.

        False: it was deleted meanwhile and is out.

        Raises:
            ValueError: the pod is not in flight.
        """
        if not self._land(queued):
            return False
        self._in_flight.end(queued)
        self._arrive(queued, SubQueue.WAITING, _HELD)
        self._next_of(queued)
        return True

    def resume(self, queued: QueuedPod) -> None:
        """A waiting pod is in flight again.

        Raises:
            ValueError: the pod does not wait.
        """
        if queued.where is not SubQueue.WAITING:
            raise ValueError(f"pod {queued.pod.key} does not wait")
        queued.where = SubQueue.IN_FLIGHT
        self._in_flight.start(queued)

    def requeue_rejected(
        self,
        queued: QueuedPod,
        plugins: frozenset[str],
        pending: frozenset[str] = NO_PLUGINS,
        *,
        alone: bool = False,
    ) -> bool:
        """Plugins rejected the pod: it waits until an event may change that.

        If one came while the pod was in flight, it only backs off. Without any plugin it counts as
        an error. False: the pod was deleted meanwhile and is out.

        Args:
            queued: the pod, in flight.
            plugins: those that rejected it.
            pending: those that answered Pending; they count as rejecting, named or not.
            alone: this does not hold for other pods of its class, such as a refusal of the node
                that was chosen for it.

        Raises:
            ValueError: the pod is not in flight.
        """
        rejecting = plugins | pending
        if not rejecting:
            return self.requeue_error(queued)
        if not self._land(queued):
            return False
        queued.rejections += 1
        self.answers += 1
        queued.errors = 0
        queued.unschedulable_plugins, queued.pending_plugins = rejecting, pending
        self._wait_again(queued, queued.rejections)
        wake = self._woken_meanwhile(queued)
        self._in_flight.end(queued)
        tried_for = self._out.get(queued)
        if wake is not Wake.NOT:
            self._enter(queued, wake, _FAILED)
            if queued.where is not SubQueue.ACTIVE:
                self._next_of(queued)
            return True
        self._arrive(queued, SubQueue.UNSCHEDULABLE, _FAILED)
        recheck_at = self._hooks.recheck_at(queued.pod, queued.unschedulable_plugins)
        key = queued.pod.uid if alone else self._hooks.class_key(queued.pod)
        by, place = (rejecting, pending), self._active_key(queued)
        group = self._parked.park(queued, by, key, place, recheck_at)
        if tried_for is group and not group.again:
            del self._out[queued]  # the rejection holds for all: the group sleeps
            group.out = None
        else:
            self._next_of(queued)
        return True

    def alike(self, queued: QueuedPod, words: str) -> list[PodInfo]:
        """Pods of a rejected pod's class for which other reasons were reported."""
        group = self._parked.pods.get(queued)
        return [] if group is None else group.news(queued, words)

    def requeue_error(self, queued: QueuedPod) -> bool:
        """Something failed: the pod backs off and is tried again without any event.

        False: the pod was deleted meanwhile and is out.

        Raises:
            ValueError: the pod is not in flight.
        """
        if not self._land(queued):
            return False
        queued.errors += 1
        queued.unschedulable_plugins = queued.pending_plugins = NO_PLUGINS
        self._wait_again(queued, queued.errors)
        self._in_flight.end(queued)
        self._enter(queued, Wake.AFTER_BACKOFF, _FAILED)
        self._next_of(queued)
        return True

    # ---- what wakes pods -------------------------------------------------------------------

    def move(
        self,
        event: ClusterEvent,
        old: Seen = None,
        new: Seen = None,
        *,
        only: Only | None = None,
        uids: Collection[str] | None = None,
    ) -> int:
        """An event: wakes the pods for which the hint of a rejecting plugin says QUEUE.

        Hints are asked once a group, only for pods that `only` accepts, or only for `uids`, which
        costs nothing for other pods. The list of groups is made now; if asking takes long, `flush`
        goes on with it. Returns how many pods have woken by now.
        """
        if self.on_event is not None:
            self.on_event(event)
        registered = self._registrations.of(event)
        if uids is not None:
            only, known = (lambda pod: pod.uid in uids), map(self._pods.get, uids)
            each = [self._parked.pods.get(one) for one in known if one is not None]
            waiting = [*dict.fromkeys(filter(None, each))]
        elif event.resource is Resource.WILDCARD:
            waiting = self._parked.groups
        elif registered:
            waiting = self._parked.of(registered)
        else:
            return 0
        happening = LoggedEvent(event, old, new, only)
        self._in_flight.record(happening)
        return self._ask_about(happening, waiting) if waiting else 0

    def activate(self, uids: Iterable[str], *, failed: bool = False) -> None:
        """Makes these pods active now, backoff or not; those in flight return after their backoff.

        With `failed` all back off first, as after an error.
        """
        for uid in uids:
            queued = self._pods.get(uid)
            if queued is None or queued.where in (SubQueue.ACTIVE, SubQueue.WAITING):
                continue
            if queued.where is SubQueue.IN_FLIGHT:
                self._in_flight.record(LoggedEvent(EVERYTHING, uid=uid))
            else:
                self._leave(queued)
                queued.errors += failed
                wake = Wake.AFTER_BACKOFF if failed else Wake.AT_ONCE
                self._enter(queued, wake, _ACTIVATED)

    def go_behind(self, key: Hashable) -> None:
        """All pods with a key (`QueueHooks.kin`) queue anew, behind others of their priority."""
        for queued in self.kin(key):
            if queued.where in (SubQueue.ACTIVE, SubQueue.BACKOFF):
                queued.queued_at = self._clock.time()
                self._reorder(queued)

    def flush(self) -> None:
        """Moves the pods that are due: backoff over, `recheck_at` reached, parked for too long."""
        if self._asking:
            self._ask()
        now = self._clock.monotonic()
        for heap in (self._backoff_q, self._error_backoff_q):
            while (queued := heap.peek()) is not None and queued.backoff_over_at <= now:
                heap.pop()
                tested = queued.hooks_version == self._version
                self._enter(queued, Wake.AT_ONCE, _BACKOFF_OVER, tested=tested)
        for queued in self._parked.turned():
            self._move(queued, Wake.AFTER_BACKOFF, _TURNED)
        for queued in self._parked.leftover():
            group = self._parked.pods.get(queued)  # unless it went out for another one
            if group is not None:
                self._parked.stay(queued)
                self._wake_group(group, Wake.AFTER_BACKOFF, _TIMED_OUT)

    def next_deadline(self) -> float | None:
        """When `flush` will next have something to do (monotonic); None: not by time alone."""
        if self._asking:
            return self._clock.monotonic()
        deadline = self._parked.next_deadline()
        for queued in (self._backoff_q.peek(), self._error_backoff_q.peek()):
            if queued is not None:
                deadline = min(deadline, queued.backoff_over_at)
        return None if deadline == math.inf else deadline

    # ---- hooks -----------------------------------------------------------------------------

    def prepare(self, hooks: QueueHooks, changed: frozenset[str] | None) -> Iterator[None]:
        """Asks in steps what `set_hooks` needs to know of all pods; call that next.

        That is their sort keys, if these make another order, and whose gang each is, if other
        plugins know gangs. Until then all stays by the hooks in force.
        """
        coming = self._coming = self._compared(hooks, changed)
        try:
            while self._coming is coming and coming.ask(ASKED_AHEAD):
                yield
        except GeneratorExit:  # given up: what was asked would stay until other hooks come
            self._coming = None if self._coming is coming else self._coming
            raise

    def _compared(self, hooks: QueueHooks, changed: frozenset[str] | None) -> ComingHooks:
        """What is to be asked of hooks that come."""
        before = self._hooks.own
        reorders = hooks.ordered_by != before.ordered_by
        regroups = changed is None or bool(changed & (before.kin_by | hooks.kin_by))
        return ComingHooks(GuardedHooks(hooks), self, reorders=reorders, regroups=regroups)

    def set_hooks(self, hooks: QueueHooks, changed: frozenset[str] | None) -> None:
        """Replaces the hooks; `changed` are the plugins that are not as before, None: all.

        Gated pods are tested again; pods that a changed or vanished plugin rejected are queued, as
        will be those in flight. Active pods and those in backoff pass the new gates when they are
        popped. What was not prepared is asked at once.
        """
        coming, self._coming = self._coming, None
        if coming is None or coming.hooks.own is not hooks:
            coming = self._compared(hooks, changed)
        while coming.ask(ASKED_AHEAD):
            pass
        before, self._hooks = self._hooks.own, coming.hooks
        if coming.keys is not None:
            groups = [group.parked for group in self._parked.groups if not group.alone]
            for heap in (self._active_q, self._backoff_q, self._error_backoff_q, *groups):
                heap.reorder(coming.keys)
        self._kin = coming.kin or self._kin
        self._kin.kin_of = self._hooks.kin
        self._registrations = Registrations(hooks.hints)
        self._version += 1
        if changed is None:
            changed = frozenset({*before.hints, *hooks.hints})
        happening = LoggedEvent(NEW_RULES, changed=changed)
        self._in_flight.record(happening)
        self._ask_about(happening, self._parked.groups)

    # ---- reading ---------------------------------------------------------------------------

    def __contains__(self, uid: str) -> bool:
        """True unless the pod is unknown, or was deleted while in flight."""
        queued = self._pods.get(uid)
        return queued is not None and not queued.gone

    def counts(self) -> dict[SubQueue, int]:
        """How many pods are where. Linear in all pods."""
        found = Counter([queued.where for queued in self])
        return {where: found[where] for where in SubQueue}

    @property
    def ready(self) -> bool:
        """True if `pop` or `flush` has something to do at once."""
        return bool(len(self._active_q) or len(self._backoff_q) or self._asking)

    def __iter__(self) -> Iterator[QueuedPod]:
        """All pods, those in flight too."""
        return iter(self._pods.values())

    def get(self, uid: str) -> QueuedPod | None:
        """The pod's record, in flight or not. Read only."""
        return self._pods.get(uid)

    def kin(self, key: Hashable) -> Collection[QueuedPod]:
        """The records of pods with a key (`QueueHooks.kin`), in flight or not. Read only."""
        return self._kin.of(key)

    def uids(self) -> frozenset[str]:
        """The UIDs of all pods, in flight or not, but for those deleted meanwhile."""
        return frozenset(uid for uid in self._pods if uid in self)

    def pending(self) -> Iterator[QueuedPod]:
        """The records of all pods that are not in flight, in order of arrival. Read only."""
        return (q for q in self._pods.values() if q.where is not SubQueue.IN_FLIGHT)

    def tried_again(self) -> int:
        """How many pods that were rejected are active, or soon will be."""
        again = (SubQueue.ACTIVE, SubQueue.BACKOFF)
        return sum(bool(q.unschedulable_plugins) and q.where in again for q in self)

    def rejected_by(self) -> Mapping[str, int]:
        """How many unschedulable and gated pods each plugin rejects or holds."""
        return self._parked.by_plugin()

    # ---- inside: the end of an attempt -----------------------------------------------------

    def _land(self, queued: QueuedPod) -> bool:
        """An attempt ends: takes over the newest object; False if the pod was deleted."""
        if queued not in self._in_flight:
            raise ValueError(f"pod {queued.pod.key} is not in flight")
        if queued.gone:
            self.done(queued.pod.uid)
            return False
        self._catch_up(queued)
        return True

    def _catch_up(self, queued: QueuedPod) -> None:
        if queued.newer is not None:
            self._is_now(queued, queued.newer)
            queued.newer = None

    def _fly(self, queued: QueuedPod) -> QueuedPod:
        queued.attempts += 1
        queued.where, queued.was_dry_run = _IN_FLIGHT, False
        queued.tried_at = self._clock.monotonic()
        if queued.first_attempt_at is None:
            queued.first_attempt_at = self._clock.time()
        self._in_flight.start(queued)
        if self.on_change is not None:
            self.on_change(queued)
        return queued

    def _is_now(self, queued: QueuedPod, pod: PodInfo) -> None:
        queued.pod = pod
        self._kin.put(queued)
        if self._coming is not None:
            self._coming.changed(queued)

    def _wait_again(self, queued: QueuedPod, failures: int) -> None:
        queued.queued_at = self._clock.time()
        queued.backs_off_until = self._backoff.until(failures, self._clock.monotonic())

    def _woken_meanwhile(self, queued: QueuedPod) -> Wake:
        """What the events during the attempt do to the pod, by the plugins that rejected it."""
        happenings = self._in_flight.meanwhile(queued)
        if happenings is None or not self._known(queued.unschedulable_plugins):
            return Wake.AFTER_BACKOFF
        verdict = queued.unschedulable_plugins, queued.pending_plugins
        best, snapshot = Wake.NOT, self._snapshot()
        for happening in happenings:
            best = max(best, self._wake_by(happening, queued.pod, verdict, snapshot))
            if best is Wake.AT_ONCE or (best and not queued.pending_plugins):
                break
        return best

    def _wake_by(self, happening: LoggedEvent, pod: PodInfo, by: Verdict, now: Snapshot) -> Wake:
        """What an event does to a pod that these plugins reject or hold."""
        if not happening.concerns(pod):
            return Wake.NOT
        if happening.changed is not None:
            touched = by[0] & happening.changed or not self._known(by[0])
            return Wake.AFTER_BACKOFF if touched else Wake.NOT
        asked = pod, happening.old, happening.new, now
        return self._registrations.wake(by, happening.event, asked)

    def _known(self, plugins: Iterable[str]) -> bool:
        return all(plugin in self._registrations for plugin in plugins)

    # ---- inside: ways in -------------------------------------------------------------------

    def _enter(self, queued: QueuedPod, wake: Wake, why: str, *, tested: bool = False) -> None:
        """Puts a pod into active, or backoff, unless a gate holds it; `tested`: none does."""
        if not tested and not self._admitted(queued, why):
            return
        waits = wake is Wake.AFTER_BACKOFF and self._clock.monotonic() < queued.backoff_over_at
        if not waits and queued.first_attempt_at is None:
            queued.first_attempt_at = self._clock.time()
        self._arrive(queued, SubQueue.BACKOFF if waits else SubQueue.ACTIVE, why)
        self._heap_of(queued).push(self._active_key(queued), queued)

    def _heap_of(self, queued: QueuedPod) -> PodHeap:
        """That of a pod which is active or backs off."""
        if queued.where is SubQueue.ACTIVE:
            return self._active_q
        return self._error_backoff_q if queued.errors else self._backoff_q

    def _admitted(self, queued: QueuedPod, why: str) -> bool:
        """Asks the gates; a pod that one holds is gated afterwards."""
        status = self._hooks.gate(queued.pod)
        if status.ok:
            queued.hooks_version = self._version
            queued.gating_plugin, queued.gating_reasons = "", ()
            return True
        plugin, reasons = queued.gating_plugin, queued.gating_reasons
        queued.gating_plugin, queued.gating_reasons = status.plugin, status.reasons
        self._arrive(queued, SubQueue.GATED, why)
        held_by = frozenset({status.plugin})
        recheck_at = self._hooks.recheck_at(queued.pod, held_by)
        self._parked.park(queued, (held_by, NO_PLUGINS), queued.pod.uid, (), recheck_at)
        # Reasons with numbers may change with every event, and each report costs a write.
        now = self._clock.monotonic()
        is_told = reasons == status.reasons or now - queued.gated_told_at < _TELL_GATED_AGAIN
        if self.on_gated is not None and not (plugin == status.plugin and is_told):
            queued.gated_told_at = now
            self.on_gated(queued)
        self._next_of(queued)
        return False

    def _arrive(self, queued: QueuedPod, where: SubQueue, why: str) -> None:
        queued.where = where
        self.incoming[where, why] += 1
        if self.on_change is not None:
            self.on_change(queued)

    def _active_key(self, queued: QueuedPod) -> SortKey:
        if self._coming is not None:  # another time may have brought it here
            self._coming.changed(queued)
        queued.sort_key = self._hooks.sort_key(queued.pod, queued.queued_at)
        return queued.sort_key

    # ---- inside: ways out and moves --------------------------------------------------------

    def _forget(self, uid: str) -> None:
        queued = self._pods.pop(uid)
        self._kin.drop(queued)
        if self._coming is not None:
            self._coming.gone(queued)
        if self.on_gone is not None:
            self.on_gone(uid)

    def _leave(self, queued: QueuedPod) -> None:
        match queued.where:
            case SubQueue.ACTIVE | SubQueue.BACKOFF:
                self._heap_of(queued).remove(queued)
            case SubQueue.UNSCHEDULABLE | SubQueue.GATED:
                self._parked.take(queued)
            case SubQueue.IN_FLIGHT | SubQueue.WAITING:
                raise ValueError(f"pod {queued.pod.key} is in flight")
            case _:
                assert_never(queued.where)

    def _move(self, queued: QueuedPod, wake: Wake, why: str) -> None:
        self._leave(queued)
        self._enter(queued, wake, why)

    # ---- inside: one for all of its class --------------------------------------------------

    def _wake_group(self, group: Group, wake: Wake, why: str, only: Only | None = None) -> int:
        """An event may help the pods of a group: one of them goes out, if none is."""
        out = group.out
        if out is None:
            queued = group.first(only)
            return 0 if queued is None else self._send(group, queued, wake, why)
        if wake is Wake.AT_ONCE and out.where is SubQueue.BACKOFF:
            self._move(out, wake, why)
        elif out.where is SubQueue.IN_FLIGHT and only is not None and not only(out.pod):
            group.again = True
        return 0

    def _send(self, group: Group, queued: QueuedPod | None, wake: Wake, why: str) -> int:
        """The pod goes out for its group; if a gate holds it, the next one does."""
        group.again, moved = False, 0
        while queued is not None:
            self._move(queued, wake, why)
            moved += 1
            if queued.where is not SubQueue.GATED:
                if len(group.parked):
                    group.out = queued
                    self._out[queued] = group
                break
            queued = group.first()
        return moved

    def _next_of(self, queued: QueuedPod) -> None:
        """If the pod stood for a group, it no longer does: the next pod of the group goes out."""
        group = self._out.pop(queued, None)
        if group is not None:
            group.out = None
            self._send(group, group.first(), Wake.AFTER_BACKOFF, _CLASS_MOVES)

    def _ask_about(self, happening: LoggedEvent, waiting: list[Group]) -> int:
        """Lists the groups to be asked, and asks them, if no others are first."""
        behind = bool(self._asking)
        self._asking.append((happening, waiting[::-1]))
        if behind:
            self._listed.update(dict.fromkeys(waiting))
        else:
            self._listed = dict.fromkeys(waiting)
        if len(self._asking) > MOST_ASKING:
            # Too much to ask: all that are listed wake.
            self._asking = deque([(LoggedEvent(EVERYTHING), list(self._listed))])
        return 0 if behind else self._ask()

    def _ask(self) -> int:
        """Asks the hints of those listed, `ASKING_SECONDS` at most; returns how many pods woke."""
        moved, snapshot = 0, self._snapshot()
        until = self._clock.monotonic() + ASKING_SECONDS
        while self._asking:
            happening, left = self._asking[0]
            while left:
                self.answers += 1
                moved += self._ask_group(left.pop(), happening, snapshot)
                if self.on_change is not None:  # which may have changed the cluster
                    snapshot = self._snapshot()
                if self._clock.monotonic() >= until:
                    return moved
            self._asking.popleft()
        return moved

    def _ask_group(self, group: Group, happening: LoggedEvent, snapshot: Snapshot) -> int:
        if group.out is not None and group.out.where is SubQueue.ACTIVE:
            return 0
        only = happening.only
        queued = group.first(only)
        if queued is None:
            return 0
        if queued.where is SubQueue.GATED and happening.changed is not None:
            wake = Wake.AFTER_BACKOFF  # a gate of others may come first now
        else:
            wake = self._wake_by(happening, queued.pod, (group.plugins, group.pending), snapshot)
        return 0 if wake is Wake.NOT else self._wake_group(group, wake, happening.event.label, only)

    def _wake_by_own(self, queued: QueuedPod, events: Sequence[ClusterEvent], old: Seen) -> None:
        """Wakes an unschedulable pod if a change of itself may help it."""
        # Its class may have been rejected by other plugins since.
        group = self._parked.pods[queued]
        verdict = queued.unschedulable_plugins | group.plugins, queued.pending_plugins
        asked = queued.pod, old, queued.pod.pod, self._snapshot()
        for event in events:
            wake = self._registrations.wake(verdict, event, asked)
            if wake is not Wake.NOT:
                self._move(queued, wake, event.label)
                return
        if events:  # it may no longer be of its class
            self.part(queued.pod.uid, events[0].label)

    def _reorder(self, queued: QueuedPod) -> None:
        """Takes the sort key again and moves the pod within its heap if it changed."""
        before = queued.sort_key
        if self._active_key(queued) != before:
            heap = self._heap_of(queued)
            heap.remove(queued)
            heap.push(queued.sort_key, queued)


def _backs_off_until(queued: QueuedPod) -> SortKey:
    return (queued.backs_off_until,)
