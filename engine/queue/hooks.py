"""What the queue calls: how pods are ordered, who may come in, and what may change an answer.

A hook that raises is reported, and harms no pod but the one that it was called for. A queueing hint
that raises counts as QUEUE, as does any answer but SKIP, so that no pod gets stuck.

Source: kubernetes pkg/scheduler/backend/queue/scheduling_queue.go, isPodWorthRequeuing.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeVar

from engine.framework.events import (
    ClusterEvent,
    ClusterEventWithHint,
    QueueingHint,
    Resource,
    Seen,
    never,
)
from engine.framework.snapshot import Snapshot
from engine.framework.status import Code, Status
from engine.pods.podinfo import PodInfo
from engine.queue.heap import comparable
from engine.queue.queued import QueuedPod, SortKey

log = logging.getLogger(__name__)

T = TypeVar("T")
Hints = Mapping[str, Sequence[ClusterEventWithHint]]
_SKIP: Final = QueueingHint.SKIP  # CPython 3.11 takes 0.15 us to look up a member
_ANYTHING: Final = Resource.WILDCARD

Only = Callable[[PodInfo], bool]
"""Whether an event concerns a waiting pod at all."""
Asked = tuple[PodInfo, Seen, Seen, Snapshot]
"""The arguments of a hint."""
Verdict = tuple[frozenset[str], frozenset[str]]
"""The plugins that rejected a pod, and those of them that answered Pending."""


@dataclass(frozen=True, slots=True)
class QueueHooks:
    """Functions of the profiles in force.

    Attributes:
        sort_key: of a pod and when it was queued (seconds since the epoch); smaller comes first.
        pre_enqueue: lets a pod in, or says which plugin holds it.
        hints: an entry for every plugin that can reject a pod; a pod rejected by any other is tried
            again after its backoff.
        recheck_at: when the clock alone may change what these plugins said of a pod that they have
            just rejected or held (seconds since the epoch).
        order: what the sort keys are made by, which compare with each other; None: `sort_key`.
        gates_volatile: whether `pre_enqueue` looks at more than the pod. Then pods are tested again
            when they are popped: those popped before may have used up what there was.
        class_key: pods of one priority and preemption policy with equal keys are rejected by the
            same plugins, and their hints agree. None: no other pod is like it.
        kin: the key of the pod's gang, None if it is in none; None: there are no gangs.
        kin_by: the plugins that `kin` asks.
    """

    sort_key: Callable[[PodInfo, float], SortKey]
    pre_enqueue: Callable[[PodInfo], Status]
    hints: Hints
    recheck_at: Callable[[PodInfo, frozenset[str]], float] = lambda *_: math.inf
    gates_volatile: bool = False
    order: object = None
    class_key: Callable[[PodInfo], Hashable] = lambda _: None
    kin: Callable[[PodInfo], Hashable] | None = None
    kin_by: frozenset[str] = frozenset()

    @property
    def ordered_by(self) -> object:
        """Sort keys of hooks for which this is equal compare with each other."""
        return self.sort_key if self.order is None else self.order


class GuardedHooks:
    """`QueueHooks` that never raise; `own` are the hooks themselves."""

    def __init__(self, hooks: QueueHooks) -> None:
        self.own = hooks

    def gate(self, pod: PodInfo) -> Status:
        """A gate that raises holds the pod; its words are the reason."""
        try:
            return self.own.pre_enqueue(pod)
        except Exception as fault:  # noqa: BLE001 - reported; one pod may not stop all
            _failed(pod, fault)
            told = getattr(fault, "status", None)  # a fault of the framework names its plugin
            words = f"{type(fault).__name__}: {fault}"
            return told if isinstance(told, Status) else Status(Code.ERROR, (words,), "PreEnqueue")

    def sort_key(self, pod: PodInfo, queued_at: float) -> SortKey:
        """Comparable with all others; last if the hook raises or gives what has no order."""
        try:
            return 0, *comparable(self.own.sort_key(pod, queued_at))
        except Exception as fault:  # noqa: BLE001 - as above
            _failed(pod, fault)
            return 1, queued_at

    def class_key(self, pod: PodInfo) -> Hashable:
        """What pods share that nothing tells apart; the UID if no other is like it."""
        key = self._or(None, pod, self._hashable_key, pod)
        return pod.uid if key is None else (pod.priority, pod.pod.spec.preemption_policy, key)

    def _hashable_key(self, pod: PodInfo) -> Hashable:
        key = self.own.class_key(pod)
        hash(key)
        return key

    def recheck_at(self, pod: PodInfo, plugins: frozenset[str]) -> float:
        """As `QueueHooks.recheck_at`; one that raises does not turn."""
        return self._or(math.inf, pod, self.own.recheck_at, pod, plugins)

    def kin(self, pod: PodInfo) -> Hashable:
        """As `QueueHooks.kin`; a pod is in no gang if the hook raises."""
        return None if self.own.kin is None else self._or(None, pod, self.own.kin, pod)

    def _or(self, otherwise: T, pod: PodInfo, ask: Callable[..., T], *asked: object) -> T:
        try:
            return ask(*asked)
        except Exception as fault:  # noqa: BLE001 - as above
            _failed(pod, fault)
            return otherwise


def _failed(pod: PodInfo, fault: Exception) -> None:
    log.error("a rule of the queue failed for pod %s: %r", pod.key, fault, exc_info=fault)


class Wake(IntEnum):
    """What an event does to a waiting pod; of several the greatest counts."""

    NOT = 0
    AFTER_BACKOFF = 1
    AT_ONCE = 2


class Registrations:
    """The events that the plugins of the profiles in force registered."""

    def __init__(self, hints: Hints) -> None:
        self._hints = hints
        self._of: dict[ClusterEvent, dict[str, Sequence[ClusterEventWithHint]]] = {}
        self.faults: Counter[str] = Counter()
        """How often a plugin's hint raised."""

    def __contains__(self, plugin: str) -> bool:
        return plugin in self._hints

    def of(self, event: ClusterEvent) -> Mapping[str, Sequence[ClusterEventWithHint]]:
        """The plugins that registered the event, each with how. O(1) after the first time."""
        known = self._of.get(event)
        if known is None:
            known = self._of[event] = {}
            for plugin, each in self._hints.items():
                of = [one for one in each if one.hint is not never and one.event.matches(event)]
                if of:
                    known[plugin] = of
        return known

    def _says_queue(self, plugin: str, each: Sequence[ClusterEventWithHint], asked: Asked) -> bool:
        """True if any of the plugin's hints says QUEUE; no hint counts as QUEUE."""
        try:
            for one in each:
                says, finer = one.hint, one.finer
                if (says is None or says(*asked) is not _SKIP) and (
                    finer is None or finer(*asked) is not _SKIP
                ):
                    return True
        except Exception:
            self.faults[plugin] += 1
            if self.faults[plugin] == 1:
                log.warning("queueing hint of %s failed: queueing", plugin, exc_info=True)
            return True
        return False

    def wake(self, verdict: Verdict, event: ClusterEvent, asked: Asked) -> Wake:
        """What the event does to a pod that plugins rejected."""
        if event.resource is _ANYTHING:
            return Wake.AFTER_BACKOFF
        best = Wake.NOT
        plugins, waiting = verdict
        for plugin, registered in self.of(event).items():
            pending = plugin in waiting
            if plugin not in plugins or (best and not pending):
                continue
            if self._says_queue(plugin, registered, asked):
                if pending:
                    return Wake.AT_ONCE
                best = Wake.AFTER_BACKOFF
        return best


class Kin:
    """The queue's pods by the key of their gang, in order of arrival: an index, nothing else."""

    def __init__(self, kin_of: Callable[[PodInfo], Hashable]) -> None:
        self.kin_of = kin_of
        """Gives the key of a pod, None if it has none."""
        self._pods: dict[Hashable, dict[QueuedPod, None]] = {}
        self._keys: dict[QueuedPod, Hashable] = {}

    def put(self, queued: QueuedPod) -> None:
        """The pod came or changed."""
        key = self.kin_of(queued.pod)
        if key != self._keys.get(queued):
            self.drop(queued)
            if key is not None:
                self._keys[queued] = key
                self._pods.setdefault(key, {})[queued] = None

    def drop(self, queued: QueuedPod) -> None:
        """The pod went."""
        key = self._keys.pop(queued, None)
        if key is not None:
            pods = self._pods[key]
            del pods[queued]
            if not pods:
                del self._pods[key]

    def of(self, key: Hashable) -> Collection[QueuedPod]:
        """The pods with this key."""
        return self._pods.get(key, {}).keys()


class ComingHooks:
    """What hooks that are to be in force say of the pods of a queue, asked in steps."""

    def __init__(
        self, hooks: GuardedHooks, pods: Iterable[QueuedPod], *, reorders: bool, regroups: bool
    ) -> None:
        """Asks for sort keys only if it `reorders`, for gangs only if it `regroups`."""
        self.hooks = hooks
        self.keys: dict[QueuedPod, SortKey] | None = {} if reorders else None
        self.kin = Kin(hooks.kin) if regroups else None
        self._asks = reorders or regroups
        # The next one last: gangs have their pods in order of arrival.
        self._unasked = dict.fromkeys([*pods][::-1] if self._asks else ())

    def changed(self, queued: QueuedPod) -> None:
        """The pod came or changed, or is queued at another time."""
        if self._asks:
            self._unasked[queued] = None

    def gone(self, queued: QueuedPod) -> None:
        """The pod went."""
        self._unasked.pop(queued, None)
        if self.keys is not None:
            self.keys.pop(queued, None)
        if self.kin is not None:
            self.kin.drop(queued)

    def ask(self, most: int) -> bool:
        """Asks about so many pods; True if there are others."""
        for _ in range(min(most, len(self._unasked))):
            queued, _ = self._unasked.popitem()
            if self.keys is not None:
                self.keys[queued] = self.hooks.sort_key(queued.pod, queued.queued_at)
            if self.kin is not None:
                self.kin.put(queued)
        return bool(self._unasked)
