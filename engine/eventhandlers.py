"""API objects as they come and go -> the cache and the queue.

Decides nothing about placement and keeps no cluster state of its own: what a change means follows
from the object before and after, and from what the cache and the queue hold. The cache is told
first, then the queue, so that a pod that wakes sees what woke it.

What a pod is to us, and what each change does (`A` in the cache, `P` in the queue, `-` neither):

    - ─▶ A   cache.add_pod, AssignedPod/Add        A ─▶ A   cache.add_pod, AssignedPod/Update...
    P ─▶ A   the same, and out of the queue        A ─▶ -   cache.remove_pod, AssignedPod/Delete
    - ─▶ P   queue.add                             P ─▶ P   queue.update with TargetPod/...
    P ─▶ -   out of the queue; if it was assumed: cache.forget, AssignedPod/Delete

    A: has a node and is not finished.    P: has none, is ours, neither finished nor being deleted.

Finer than kube-scheduler: the echo of our own writes (conditions and nomination of a waiting pod)
wakes no pod.

Source: kubernetes pkg/scheduler/eventhandlers.go.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import msgspec

from engine.cache import Cache
from engine.clusterevents import (
    ASSIGNED,
    NOMINATION_ENDED,
    PENDING,
    POD_ASSIGNED,
    POD_FREED,
    POD_OTHERWISE,
    TERMINAL,
    Place,
    event_of,
    has_changed,
    is_echo,
    node_events,
    on_node,
    place_of,
    pod_events,
)
from engine.framework.events import EVERYTHING, Action, ClusterEvent, Resource
from engine.objects import Identity, Namespace, Node, Pod, object_key
from engine.pods.legible import legible, legible_node
from engine.pods.podinfo import PodInfo, make_pod_info
from engine.queue import SchedulingQueue
from engine.telemetry import Count, Telemetry

log = logging.getLogger(__name__)

_T = TypeVar("_T", bound=msgspec.Struct)

_VOLUMES_FREED: Final = ClusterEvent(Resource.PERSISTENT_VOLUME, Action.UPDATE_OTHER)

OnRefused = Callable[[Pod, str], None]
"""Called once for a pod of ours that cannot be scheduled because it cannot be read, with why."""


def freed(
    queue: SchedulingQueue, pod: Pod, node: str, only: Callable[[PodInfo], bool] | None = None
) -> None:
    """An assumed pod lost its node, and the volumes that were assumed for its claims.

    No volume has changed on the server, so no watch reports these.
    """
    queue.move(POD_FREED, on_node(pod, node), None, only=only)
    if any(one.persistent_volume_claim or one.ephemeral for one in pod.spec.volumes or ()):
        queue.move(_VOLUMES_FREED, only=only)


def withdrawn(cache: Cache, queue: SchedulingQueue, pod: Pod) -> bool:
    """Takes the nomination back; others may have the room. False: there was none."""
    uid = pod.metadata.uid
    node, rank = cache.nominations.node_of(uid), cache.nominations.ranks.get(uid, 0)
    if cache.withdraw(uid):
        _lost(queue, on_node(pod, node), rank)
    return bool(node)


def _lost(queue: SchedulingQueue, pod: Pod, rank: int) -> None:
    """Pods that came after the nominated one may have the room; quotas counted it for others."""
    queue.move(POD_FREED, pod, only=lambda one: one.priority <= rank)
    queue.move(NOMINATION_ENDED, pod)


@dataclass(eq=False)
class _Handler(ABC, Generic[_T]):
    """What all handlers have in common; another UID under a name is another object."""

    cache: Cache
    queue: SchedulingQueue
    on_work: Callable[[], None]
    """Called whenever the queue may have something to pop."""

    def on_add(self, item: _T) -> None:
        """The object is new, or new to us."""
        self._tell(None, item)

    def on_update(self, old: _T, new: _T) -> None:
        """The object changed."""
        self._tell(old, new)

    def on_delete(self, item: _T) -> None:
        """The object is gone."""
        self._tell(item, None)

    @abstractmethod
    def _tell(self, old: _T | None, new: _T | None) -> None:
        """The object before (None: added) and after (None: deleted)."""

    def on_synced(self) -> None:
        """The first list is complete, which rules may have waited for."""
        self.on_work()

    def on_unreadable(self, meta: Identity, reason: str) -> None:
        """Only the name of the object can be read: what was known of it stays."""

    def _wake(self) -> None:
        if self.queue.ready:
            self.on_work()


@dataclass(eq=False)
class PodHandler(_Handler[Pod]):
    """Pods: those on nodes to the cache, those that wait for us to the queue.

    A waiting pod that cannot be read is not queued, and reported once. One that was given a node
    goes on as it was. A pod on a node counts with what of it can be read.
    """

    scheduler_names: Container[str]
    on_refused: OnRefused
    telemetry: Telemetry
    _unread: dict[str, str] = field(default_factory=dict, init=False)

    def _tell(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None:
            self._is_now(old, new)
        elif old is not None:
            self._out(old)  # what the cache and the queue hold counts, not the last object
        self._wake()

    def _is_now(self, old: Pod | None, new: Pod) -> None:
        now = place_of(new, self.scheduler_names)
        if old is None:
            if now is ASSIGNED:
                self._assigned(new)
            elif now is PENDING:
                self._pending(None, new)
            return
        before = place_of(old, self.scheduler_names)
        match now:
            case Place.ASSIGNED if before is ASSIGNED:
                self._still_assigned(old, new)
            case Place.ASSIGNED:
                if self.cache.node_of(new.metadata.uid) not in (None, new.node_name):
                    self._out(old)  # somebody else has bound it, and not where we were about to
                self._assigned(new)
                self._renominated(old, new.node_name)
            case Place.PENDING if before is Place.PENDING:
                self._pending(old, new)
            case Place.PENDING:
                self._out(old)
                self._pending(None, new)
            case Place.NEITHER:
                # Being deleted: it keeps its nomination until it is gone.
                self._out(old, gone=new.status.phase in TERMINAL or bool(new.node_name))

    # ---- on nodes

    def _assigned(self, pod: Pod) -> None:
        self._count(pod)
        self.queue.delete(pod.metadata.uid)
        self.queue.move(POD_ASSIGNED, None, pod)

    def _still_assigned(self, old: Pod, new: Pod) -> None:
        if has_changed(old, new):
            self._count(new)
        for event in pod_events(old, new):
            self.queue.move(event, old, new)

    def _count(self, pod: Pod) -> None:
        """Puts it into the cache. Our own request for its deletion may be newer than the object."""
        row = self.cache.pods.row(pod.metadata.uid)
        known = self.cache.pods.pod(row) if row >= 0 else None
        try:
            found = make_pod_info(pod)
        except ValueError as reason:
            if self._is_news(pod, str(reason)):
                log.warning("%s: the pod is counted without that field", reason)
            found = make_pod_info(legible(pod))
        if known is not None and known.terminating and not found.terminating:
            found = known
        self.cache.add_pod(found, pod.node_name)

    # ---- waiting

    def _pending(self, old: Pod | None, new: Pod) -> None:
        """The pod waits; `old` is how it waited before."""
        uid = new.metadata.uid
        if self.cache.node_of(uid) is not None and uid not in self.queue:
            return  # bound by us, and the watch has not told us yet
        try:
            pod = make_pod_info(new)
        except ValueError as reason:
            if self.cache.node_of(uid) is not None:
                log.warning("%s: the pod keeps the node that it was given", reason)
                return
            self.queue.delete(uid)
            if self._is_news(new, str(reason)):
                self.on_refused(new, str(reason))
            return
        unread = self._unread.pop(uid, None) is not None  # and so is its nomination
        news = self._nominate(None if unread else old, pod)
        if old is None:
            self.queue.add(pod)
            return
        self.queue.update(pod, () if is_echo(old, new) else pod_events(old, new))
        if news:
            self.queue.part(uid)
        self._renominated(old, new.status.nominated_node_name)

    def _nominate(self, old: Pod | None, pod: PodInfo) -> bool:
        """Takes over a nomination from the status if it changed: ours are known before.

        True: it is somebody else's, and what holds for others of its class may not for this pod.
        """
        before = "" if old is None else old.status.nominated_node_name
        node = pod.pod.status.nominated_node_name
        promised = self.cache.nominations.node_of(pod.uid)
        heard = node != before and self.queue.is_nomination_news(pod.uid, node, promised)
        if heard or promised:
            self.cache.nominate(pod, node if heard else promised)
        return heard and node != promised

    def _renominated(self, old: Pod, node: str) -> None:
        """A nominated pod is now on another node, nominated to another one, or to none."""
        if old.status.nominated_node_name not in ("", node):
            # Ranks of nominations that we withdrew ourselves are not known any more.
            above = self.cache.nominations.some_above
            _lost(self.queue, old, 1 << 31 if above else old.spec.priority or 0)

    # ---- neither

    def _out(self, pod: Pod, *, gone: bool = True) -> None:
        uid = pod.metadata.uid
        self._unread.pop(uid, None)
        self.queue.delete(uid)
        node = self.cache.node_of(uid)
        if node is not None:
            if self.cache.forget(uid):
                freed(self.queue, pod, node)
                self.on_work()  # what is done for it ends
            else:
                self.cache.remove_pod(uid)
                self.queue.move(POD_FREED, on_node(pod, node), None)
            promised = {one.uid for one in self.cache.nominations.on(node)}
            if promised:  # they may wait for this, whichever plugin rejected them
                self.queue.move(EVERYTHING, uids=promised)
        elif gone:
            withdrawn(self.cache, self.queue, pod)

    def report_again(self, pods: Iterable[Pod]) -> None:
        """Reports again which waiting pods cannot be read: another replica led before."""
        for pod in pods if self._unread else ():
            reason = self._unread.get(pod.metadata.uid)
            if reason is not None and place_of(pod, self.scheduler_names) is Place.PENDING:
                self.on_refused(pod, reason)

    def _is_news(self, pod: Pod, reason: str) -> bool:
        uid = pod.metadata.uid
        if self._unread.get(uid) == reason:
            return False
        self._unread[uid] = reason
        self.telemetry.add(Count.OBJECTS_UNREADABLE)
        return True


@dataclass(eq=False)
class NodeHandler(_Handler[Node]):
    """Nodes: to the cache, and their events to the queue. An unreadable amount counts as none."""

    on_node: Callable[[Node | None, Node | None], None]
    """Called first, with the node before and after."""

    def _tell(self, old: Node | None, new: Node | None) -> None:
        self.on_node(old, new)
        if not has_changed(old, new):
            return
        if new is not None:
            self.cache.add_node(legible_node(new))
        elif old is not None:
            self.cache.remove_node(old.metadata.name)
            self.on_work()  # what is done for pods that were to come there ends
        for event in node_events(old, new):
            self.queue.move(event, old, new)
        self._wake()


class NamespaceHandler(_Handler[Namespace]):
    """Namespaces, as policies read them: of the pod's own, and of those of pods on nodes.

    Wakes the pods of the namespace, and others if it is read of pods on nodes.
    """

    def _tell(self, old: Namespace | None, new: Namespace | None) -> None:
        one = old if new is None else new
        if one is None or not has_changed(old, new):
            return
        name, cache = one.metadata.name, self.cache
        read = cache.remove_namespace(name) if new is None else cache.set_namespace(new)
        event = event_of(Resource.NAMESPACE, old, new)
        self.queue.move(event, only=lambda pod: pod.namespace == name)
        if read:
            self.queue.move(POD_OTHERWISE, old, new)
        self._wake()


@dataclass(eq=False)
class ObjectHandler(_Handler[Any]):
    """Objects that plugins look up: to the cache, and their events to the queue.

    An update of nothing that is read wakes no pod.
    """

    wakes: Resource | None
    """The resource of the events; None: there are none."""
    on_change: Callable[[str], None] = lambda _: None
    """Called with the kind at each change."""

    def _tell(self, old: Any, new: Any) -> None:  # noqa: ANN401 - any struct with metadata
        kind = type(old if new is None else new).__name__
        if new is None:
            self.cache.remove_object(kind, object_key(old.metadata))
        else:
            self.cache.set_object(new)
        if not has_changed(old, new):
            return
        self.on_change(kind)
        if self.wakes is not None:
            self.queue.move(event_of(self.wakes, old, new), old, new)
            self._wake()


class EventHandlers:
    """The handlers of one scheduler, one for each kind that it watches.

    `scheduler_names` are those of our pods; `on_work` is called whenever the queue may have
    something to pop, `on_node` first of all with each node before and after.
    """

    def __init__(
        self,
        cache: Cache,
        queue: SchedulingQueue,
        *,
        scheduler_names: Container[str],
        on_refused: OnRefused,
        on_work: Callable[[], None] = lambda: None,
        on_node: Callable[[Node | None, Node | None], None] = lambda *_: None,
        telemetry: Telemetry | None = None,
    ) -> None:
        telemetry = Telemetry() if telemetry is None else telemetry
        self.pods = PodHandler(cache, queue, on_work, scheduler_names, on_refused, telemetry)
        self.nodes = NodeHandler(cache, queue, on_work, on_node)
        self.namespaces = NamespaceHandler(cache, queue, on_work)
        self._of = cache, queue, on_work

    def of(
        self, wakes: Resource | None, on_change: Callable[[str], None] = lambda _: None
    ) -> ObjectHandler:
        """A handler of one more kind; see `ObjectHandler`."""
        return ObjectHandler(*self._of, wakes, on_change)
