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
wakes no pod; node changes that kube-scheduler has no event for are Node/Update.

Source: kubernetes pkg/scheduler/eventhandlers.go and framework/events.go.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Generic, TypeVar

import msgspec

from engine.cache import Cache
from engine.framework.events import EVERYTHING, Action, ClusterEvent, Resource, Seen
from engine.objects import Identity, Namespace, Node, Pod, Quantity, ResourceList, object_key
from engine.pods.podinfo import PodInfo, make_pod_info
from engine.queue import SchedulingQueue
from engine.telemetry import Count, Telemetry
from engine.text.quantity import parse

log = logging.getLogger(__name__)

_T = TypeVar("_T", bound=msgspec.Struct)

POD_ASSIGNED: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)
POD_FREED: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
NOMINATION_ENDED: Final = ClusterEvent(Resource.NOMINATION, Action.DELETE)
_VOLUMES_FREED: Final = ClusterEvent(Resource.PERSISTENT_VOLUME, Action.UPDATE_OTHER)
POD_OTHERWISE: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_OTHER)

_TERMINAL: Final = frozenset({"Succeeded", "Failed"})
_NODE_STATUS_WITH_EVENTS: Final = frozenset({"allocatable", "conditions", "declared_features"})
_NODE_SPEC_WITH_EVENTS: Final = frozenset({"taints"})

_METADATA: Final = frozenset({"metadata"})
_VERSIONS: Final = frozenset({"resource_version", "generation"})
_AMOUNTS: Final = frozenset(
    {"requests", "limits", "overhead", "allocated_resources", "allocatable", "capacity"}
)
"""Names of fields with quantities by resource, anywhere in an object."""

OnRefused = Callable[[Pod, str], None]
"""Called once for a pod of ours that cannot be scheduled because it cannot be read, with why."""


# ---- what a change is called ---------------------------------------------------------------------


class Place(Enum):
    """What a pod is to us."""

    ASSIGNED = "A"
    PENDING = "P"
    NEITHER = "-"


_ASSIGNED, _PENDING, _NEITHER = Place  # CPython 3.11 takes 0.1 us to look up a member


def place_of(pod: Pod, scheduler_names: Container[str]) -> Place:
    """Where a pod belongs, by itself."""
    if pod.status.phase in _TERMINAL:
        return _NEITHER
    if pod.bound_to or pod.spec.node_name:
        return _ASSIGNED
    ours = pod.spec.scheduler_name in scheduler_names
    return _PENDING if ours and pod.metadata.deletion_timestamp is None else _NEITHER


def _event_of(resource: Resource, old: Seen, new: Seen) -> ClusterEvent:
    """The event of a kind whose updates are not told apart."""
    if old is None or new is None:
        return ClusterEvent(resource, Action.DELETE if new is None else Action.ADD)
    return ClusterEvent(resource, Action.UPDATE_OTHER)


def on_node(pod: Pod, node: str) -> Pod:
    """The pod with this node, even if it was only assumed there: hints look at that."""
    if pod.node_name:
        return pod
    return msgspec.structs.replace(pod, bound_to=node)


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


def pod_events(old: Pod, new: Pod) -> tuple[ClusterEvent, ...]:
    """The finer events of a change of a pod; AssignedPod/Update or TargetPod/Update without any."""
    actions: list[Action] = []
    if (old.metadata.labels or {}) != (new.metadata.labels or {}):
        actions.append(Action.UPDATE_POD_LABEL)
    if not _resources_untouched(old, new):
        before, after = as_far_as_legible(old).requests, as_far_as_legible(new).requests
        if any(amount > after.get(name, -1) for name, amount in before.items()):
            actions.append(Action.UPDATE_POD_SCALE_DOWN)
        if any(amount > before.get(name, -1) for name, amount in after.items()):
            actions.append(Action.UPDATE_POD_SCALE_UP)
    if old.spec.scheduling_gates and not new.spec.scheduling_gates:
        actions.append(Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
    if len(old.spec.tolerations or ()) != len(new.spec.tolerations or ()):
        actions.append(Action.UPDATE_POD_TOLERATION)
    resource = Resource.ASSIGNED_POD if new.node_name else Resource.TARGET_POD
    return tuple([ClusterEvent(resource, action) for action in actions or [Action.UPDATE_OTHER]])


def _resources_untouched(old: Pod, new: Pod) -> bool:
    before, after = old.status, new.status
    return (
        old.spec == new.spec
        and before.container_statuses == after.container_statuses
        and before.init_container_statuses == after.init_container_statuses
        and before.allocated_resources == after.allocated_resources
        and before.resources == after.resources
    )


def node_events(old: Node | None, new: Node | None) -> tuple[ClusterEvent, ...]:
    """Node/Add, Node/Delete, or the finer events of a change; none if nobody reads what changed.

    Uncordoning counts as a change of taints, cordoning as none. Of conditions only the status
    counts. Anything else that a policy may read is Node/Update.
    """
    if old is None or new is None:
        return (_event_of(Resource.NODE, old, new),)
    actions: list[Action] = []
    uncordoned = old.spec.unschedulable and not new.spec.unschedulable
    if uncordoned or (old.spec.taints or []) != (new.spec.taints or []):
        actions.append(Action.UPDATE_NODE_TAINT)
    if _amounts(old.status.allocatable) != _amounts(new.status.allocatable):
        actions.append(Action.UPDATE_NODE_ALLOCATABLE)
    if (old.metadata.labels or {}) != (new.metadata.labels or {}):
        actions.append(Action.UPDATE_NODE_LABEL)
    if _condition_statuses(old) != _condition_statuses(new):
        actions.append(Action.UPDATE_NODE_CONDITION)
    if (old.metadata.annotations or {}) != (new.metadata.annotations or {}):
        actions.append(Action.UPDATE_NODE_ANNOTATION)
    if (old.status.declared_features or []) != (new.status.declared_features or []):
        actions.append(Action.UPDATE_NODE_DECLARED_FEATURE)
    if _differs(old.spec, new.spec, _NODE_SPEC_WITH_EVENTS) or _differs(
        old.status, new.status, _NODE_STATUS_WITH_EVENTS
    ):
        actions.append(Action.UPDATE_OTHER)
    return tuple([ClusterEvent(Resource.NODE, action) for action in actions])


def _differs(old: msgspec.Struct, new: msgspec.Struct, but_for: frozenset[str]) -> bool:
    if old == new:
        return False
    fields = old.__struct_fields__
    return any(getattr(old, f) != getattr(new, f) for f in fields if f not in but_for)


def _condition_statuses(node: Node) -> dict[str, str]:
    return {condition.type: condition.status for condition in node.status.conditions or ()}


def _amounts(resources: ResourceList | None) -> dict[str, int | str]:
    """Equal for equal amounts, however they are written."""
    return {name: _amount(quantity) for name, quantity in (resources or {}).items()}


def _amount(quantity: Quantity) -> int | str:
    """In billionths, or the text if it cannot be read."""
    try:
        return parse(quantity).nano
    except ValueError:
        return repr(quantity)


# ---- what cannot be read -------------------------------------------------------------------------


def legible(item: _T) -> _T:
    """The object, or a part of one, without the quantities that cannot be read."""
    changed: dict[str, Any] = {}
    for name in item.__struct_fields__:
        value = getattr(item, name)
        if name in _AMOUNTS and value:
            changed[name] = {key: amount for key, amount in value.items() if _is_legible(amount)}
        elif isinstance(value, msgspec.Struct):
            changed[name] = legible(value)
        elif isinstance(value, list):
            changed[name] = [legible(x) if isinstance(x, msgspec.Struct) else x for x in value]
    return msgspec.structs.replace(item, **changed)


def _is_legible(quantity: Quantity) -> bool:
    return isinstance(_amount(quantity), int)


def as_far_as_legible(pod: Pod) -> PodInfo:
    """The pod without the quantities that cannot be read."""
    try:
        return make_pod_info(pod)
    except ValueError:
        return make_pod_info(legible(pod))


def legible_node(node: Node) -> Node:
    """The node without the quantities that cannot be read; the same one if all can."""
    for resources in (node.status.allocatable, node.status.capacity):
        if not all(map(_is_legible, (resources or {}).values())):
            log.warning("node %s has quantities that cannot be read", node.metadata.name)
            return legible(node)
    return node


# ---- the handlers --------------------------------------------------------------------------------


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

    A waiting pod that cannot be read is not queued, and reported once. A pod on a node counts with
    what of it can be read.
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
            if now is _ASSIGNED:
                self._assigned(new)
            elif now is _PENDING:
                self._pending(None, new)
            return
        before = place_of(old, self.scheduler_names)
        match now:
            case Place.ASSIGNED if before is _ASSIGNED:
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
                self._out(old, gone=new.status.phase in _TERMINAL or bool(new.node_name))

    # ---- on nodes

    def _assigned(self, pod: Pod) -> None:
        self._count(pod)
        self.queue.delete(pod.metadata.uid)
        self.queue.move(POD_ASSIGNED, None, pod)

    def _still_assigned(self, old: Pod, new: Pod) -> None:
        if _changed(old, new):
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
            self.queue.delete(uid)
            if self._is_news(new, str(reason)):
                self.on_refused(new, str(reason))
            return
        unread = self._unread.pop(uid, None) is not None  # and so is its nomination
        news = self._nominate(None if unread else old, pod)
        if old is None:
            self.queue.add(pod)
            return
        self.queue.update(pod, () if _is_echo(old, new) else pod_events(old, new))
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
        for pod in pods:
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


def _is_echo(old: Pod, new: Pod) -> bool:
    """Whether nothing changed but what schedulers write: conditions and nomination."""
    status = msgspec.structs.replace(
        old.status,
        conditions=new.status.conditions,
        nominated_node_name=new.status.nominated_node_name,
    )
    return not _changed(msgspec.structs.replace(old, status=status), new)


def _changed(old: Any, new: Any) -> bool:  # noqa: ANN401 - any struct with metadata, or None
    """Whether anything of an object changed that is read; a heartbeat changes nothing."""
    if old is None or new is None:
        return True
    return _differs(old.metadata, new.metadata, _VERSIONS) or _differs(old, new, _METADATA)


@dataclass(eq=False)
class NodeHandler(_Handler[Node]):
    """Nodes: to the cache, and their events to the queue. An unreadable amount counts as none."""

    on_node: Callable[[Node | None, Node | None], None]
    """Called first, with the node before and after."""

    def _tell(self, old: Node | None, new: Node | None) -> None:
        self.on_node(old, new)
        if not _changed(old, new):
            return
        if new is not None:
            self.cache.add_node(legible_node(new))
        elif old is not None:
            self.cache.remove_node(old.metadata.name)
        for event in node_events(old, new):
            self.queue.move(event, old, new)
        self._wake()


class NamespaceHandler(_Handler[Namespace]):
    """Namespaces, as policies read them: of the pod's own, and of those of pods on nodes.

    Wakes the pods of the namespace, and others if it is read of pods on nodes.
    """

    def _tell(self, old: Namespace | None, new: Namespace | None) -> None:
        one = old if new is None else new
        if one is None or not _changed(old, new):
            return
        name, cache = one.metadata.name, self.cache
        read = cache.remove_namespace(name) if new is None else cache.set_namespace(new)
        event = _event_of(Resource.NAMESPACE, old, new)
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
        if not _changed(old, new):
            return
        self.on_change(kind)
        if self.wakes is not None:
            self.queue.move(_event_of(self.wakes, old, new), old, new)
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
