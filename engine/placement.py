"""From the decision about a pod to its binding: assumed, reserved, permitted, or refused.

    choose ─┬─ a node ─▶ assume, reserve ─▶ hold, if a plugin says wait ─▶ act ─▶ bind
            └─ none ───▶ refuse, and maybe evict others

Waiting in permit is `waitingpods`, requeuing `failures`, preemption `evictions`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

from engine.basis import Basis
from engine.binding import Bindings
from engine.choice import Chosen, Refused
from engine.clusterevents import POD_ASSIGNED
from engine.cycle import conclude, decide
from engine.evictions import Evictions
from engine.failures import Failures
from engine.framework.acting import Acted, Point
from engine.framework.decision import Decision, Placed
from engine.framework.interface import PermitResult
from engine.framework.opinion import Opinion
from engine.framework.searchprogress import SearchProgress, UnfinishedError
from engine.framework.snapshot import Snapshot
from engine.framework.status import Code, Status, unschedulable
from engine.measures import Measures
from engine.notices import Notices
from engine.pods.podinfo import PodInfo
from engine.queue import NO_PLUGINS, QueuedPod, SchedulingQueue
from engine.waitingpods import WaitingPod, WaitingPods

Observer = Callable[[Placed], None]
ActsObserver = Callable[[Acted], None]
SlicesObserver = Callable[[PodInfo, Snapshot, Opinion | None, int], None]


@dataclass(eq=False)
class Placement:
    """See the module."""

    basis: Basis
    queue: SchedulingQueue
    measures: Measures
    notices: Notices
    failures: Failures
    evictions: Evictions
    bindings: Bindings

    def __post_init__(self) -> None:
        self._cache = self.basis.cache
        self.observers: list[Observer] = []
        """Told of every decision."""
        self.acts_observers: list[ActsObserver] = []
        """Told of what the acting tier answers."""
        self.slices_observers: list[SlicesObserver] = []
        """Told of every cycle that decides nothing yet, with the number of its slice."""
        self.waiting_pods = WaitingPods(
            self.basis, self.queue, self.acted, self._released, self._refused
        )
        """The pods that wait in permit."""

    # ---- from a cycle to a node

    def revalidate(self, queued: QueuedPod) -> bool:
        """Whether a pod that has been in flight for long is still to be decided, by these rules.

        If not, it is done, or back in the queue.
        """
        uid = queued.pod.uid
        still = self.queue.revalidate(queued)
        if still and not queued.pod.terminating and self._cache.node_of(uid) is None:
            if self.notices.leads():
                return True
            self.queue.restart(queued)
        self.queue.done(uid)
        return False

    def decide(
        self,
        queued: QueuedPod,
        *,
        opinion: Opinion | None = None,
        progress: SearchProgress | None = None,
    ) -> None:
        """One cycle for a pod and what follows from it.

        Raises:
            UnfinishedError: a slice of `progress` is used up; nothing follows yet.
        """
        found = self.choose(queued, opinion=opinion, progress=progress)
        if isinstance(found, Refused):
            self.refuse(found)
        else:
            self.go(found)

    def choose(
        self,
        queued: QueuedPod,
        *,
        as_member: bool = False,
        opinion: Opinion | None = None,
        progress: SearchProgress | None = None,
    ) -> Chosen | Refused:
        """Decides, assumes the pod on its node and reserves what it needs there.

        Raises:
            UnfinishedError: see `conclude`.
        """
        pod, framework = queued.pod, self.basis.framework_of(queued.pod)
        progress = progress or SearchProgress()
        began = queued.tried_at = self.basis.clock.monotonic() - progress.seconds
        snapshot = self.basis.snapshot()
        try:
            if as_member:
                decision = decide(pod, snapshot, framework)
            else:
                decision = conclude(pod, snapshot, framework, opinion, progress)
        except UnfinishedError:
            for told in self.slices_observers:
                told(pod, snapshot, opinion, progress.slices)
            raise
        finally:
            progress.seconds = self.basis.clock.monotonic() - began
        placed = Placed(decision, snapshot, progress.seconds, progress.slices, as_member=as_member)
        self.measures.decided(placed)
        for observer in self.observers:
            observer(placed)
        return self.place(queued, decision, snapshot)

    def place(self, queued: QueuedPod, decision: Decision, snapshot: Snapshot) -> Chosen | Refused:
        """Assumes the pod on the node of a decision and reserves what it needs there."""
        pod, now, framework = queued.pod, snapshot.now, self.basis.framework_of(queued.pod)
        if decision.node is None:
            return Refused(queued, decision)
        was_nominated = self._cache.nominations.nodes.get(pod.uid) == decision.node
        self._cache.assume(pod, decision.node, now)
        if len(self.waiting_pods):
            self.waiting_pods.happened(POD_ASSIGNED)
        chosen = Chosen(queued, decision, decision.node, was_nominated=was_nominated)
        if framework.acts(pod):
            chosen.there = there = self._cache.snapshot(now, snapshot.signals)
            chosen.clearance = clearance = framework.reserve(pod, there, decision.node)
            self.acted(decision, Acted(Point.RESERVE, pod, decision.node, there, clearance.words))
            status, chosen.pre_bind = clearance.status, clearance.pre_bind
            if status.ok and clearance.reserved:
                chosen.executor = self.bindings.executor()
                status = chosen.executor.reserve(clearance.reserved)
            if not status.ok:
                self.waiting_pods.tell(clearance)
                return Refused(queued, decision, status)
        return chosen

    def choose_member(self, queued: QueuedPod) -> Chosen | Refused:
        """The same for a member of a gang; nothing is written, requeued or evicted."""
        found = self.choose(queued, as_member=True)
        if isinstance(found, Refused):
            self._cache.forget(queued.pod.uid)
        else:
            found.there = None  # other members follow before it is bound
        return found

    def give_back(self, chosen: Chosen, *, tell_beside: Container[str] | None) -> None:
        """The pod loses its node; pods that were rejected for lack of room may wake.

        Not those of `tell_beside`; None: none does, as none was tried while the room was taken.
        """
        chosen.undo()
        if tell_beside is not None:
            self.failures.forget(chosen.queued.pod, chosen.node, tell_beside)
        else:
            self._cache.forget(chosen.queued.pod.uid)

    def acted(self, decision: Decision, acted: Acted) -> None:
        """Records what the acting tier answered about the pod of a decision."""
        decision.said += acted.words
        for observer in self.acts_observers:
            observer(acted)

    # ---- from a node to the binding

    def go(self, chosen: Chosen, also: Mapping[str, PermitResult] | None = None) -> None:
        """Binds the pod, or holds it in permit for the plugins that say wait, and for `also`."""
        by = {**chosen.clearance.held, **(also or {})}
        if by:
            chosen.there = None  # the cluster changes while it waits
            held = WaitingPod(chosen, by)
            status = self.waiting_pods.hold(held)
            if status.ok:
                self.measures.held()
                self.notices.waits(
                    held.pod,
                    held.node,
                    f"waits on node {held.node}, {held.seconds:g} s at most: {held.why}",
                )
            else:
                chosen.undo()
                self.failures.refused(chosen.queued, status, chosen.node, seen=False)
        elif self.basis.framework_of(chosen.queued.pod).acts(chosen.queued.pod):
            self._may_go(chosen, chosen.there or self.basis.snapshot(), seen=False)
        else:
            self.bindings.begin(chosen)
        self.waiting_pods.tell(chosen.clearance)

    def _released(self, held: WaitingPod) -> None:
        self.measures.waited(held.since, Code.SUCCESS.value)
        self._may_go(held.chosen, self.basis.snapshot(), seen=True)

    def _refused(self, held: WaitingPod, status: Status) -> None:
        self.measures.waited(held.since, status.code.value)
        self.failures.refused(held.chosen.queued, status, held.node, seen=True)

    def _may_go(self, chosen: Chosen, snapshot: Snapshot, *, seen: bool) -> None:
        """Asks PreBind, Bind and PostBind what is to be done with the pod, and begins it.

        Without `seen` no pod but members of its gang was decided since it has its node.
        """
        pod = chosen.queued.pod
        chosen.acts = acts = self.basis.framework_of(pod).act(pod, snapshot, chosen.decision)
        chosen.pre_bind = (*chosen.pre_bind, *acts.pre_bind)
        self.acted(chosen.decision, Acted(Point.ACT, pod, chosen.node, snapshot, acts.words))
        if not acts.status.ok:
            chosen.undo()
            self.failures.refused(chosen.queued, acts.status, chosen.node, seen=seen)
            return
        for note in acts.before:
            self.notices.events.emit(note)
        if acts.how.dry_run:
            chosen.undo()
            self.failures.dry_run(chosen.queued, acts.said_by, chosen.node, seen=seen)
        else:
            self.bindings.begin(chosen)

    def stop(self, uid: str, why: str) -> bool:
        """Takes back a pod that is not being bound yet; False: it is not on its way to a node."""
        if self.waiting_pods.reject(uid, unschedulable(why)):
            return True
        return self.bindings.cancel(uid, why)

    # ---- without a node

    def refuse(self, refused: Refused) -> None:
        """Requeues the pod and reports why."""
        queued, decision = refused.queued, refused.decision
        if refused.status is not None:
            self.failures.refused(queued, refused.status, decision.node or "", seen=False)
            return
        if decision.error is not None:
            self.failures.error(queued, decision.message)
            return
        fit_error, rescue = decision.fit_error, decision.rescue
        plugins = NO_PLUGINS if fit_error is None else fit_error.plugins
        pending = NO_PLUGINS if fit_error is None else fit_error.pending
        nominated = "" if rescue is None else rescue.nominated  # PostFilter was not asked
        if rescue is not None:
            plugins |= rescue.plugins
            self.evictions.evict(queued.pod, rescue)
        # What extenders say of a pod does not hold for others of its class.
        alone = decision.opinion is not None
        self.failures.reject(
            queued, decision.message, plugins, nominated, pending=pending, alone=alone
        )
        # Others of its class are not tried, so the reasons they were told may be outdated.
        for pod in () if nominated else self.queue.alike(queued, decision.message):
            self.notices.report(pod, "Unschedulable", decision.message)
