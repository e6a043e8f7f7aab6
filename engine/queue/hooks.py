"""What the queue calls: how pods are ordered, who may come in, and what may change an answer.

A hook that raises is reported, and harms no pod but the one that it was called for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from engine.framework.events import ClusterEventWithHint
from engine.framework.status import Code, Status
from engine.pods.podinfo import PodInfo
from engine.queue.heap import comparable
from engine.queue.queued import SortKey

T = TypeVar("T")
OnFault = Callable[[PodInfo, Exception], None]
Hints = Mapping[str, Sequence[ClusterEventWithHint]]


def _alone(_pod: PodInfo) -> Hashable:
    return None


def _never(_pod: PodInfo, _plugins: frozenset[str]) -> float:
    return math.inf


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
    """

    sort_key: Callable[[PodInfo, float], SortKey]
    pre_enqueue: Callable[[PodInfo], Status]
    hints: Hints
    recheck_at: Callable[[PodInfo, frozenset[str]], float] = _never
    gates_volatile: bool = False
    order: object = None
    class_key: Callable[[PodInfo], Hashable] = _alone
    kin: Callable[[PodInfo], Hashable] | None = None

    @property
    def ordered_by(self) -> object:
        """Sort keys of hooks for which this is equal compare with each other."""
        return self.sort_key if self.order is None else self.order


class GuardedHooks:
    """`QueueHooks` that never raise; `own` are the hooks themselves."""

    def __init__(self, hooks: QueueHooks, on_fault: OnFault) -> None:
        self.own = hooks
        self._on_fault = on_fault

    @property
    def kin(self) -> Callable[[PodInfo], Hashable] | None:
        """As `QueueHooks.kin`; a pod is in no gang if the hook raises."""
        # Not kept: in a reference cycle the hooks, and the memo behind them, would live on.
        return None if self.own.kin is None else self._kin

    def gate(self, pod: PodInfo) -> Status:
        """A gate that raises holds the pod; its words are the reason."""
        try:
            return self.own.pre_enqueue(pod)
        except Exception as fault:  # noqa: BLE001 - reported; one pod may not stop all
            self._on_fault(pod, fault)
            told = getattr(fault, "status", None)  # a fault of the framework names its plugin
            words = f"{type(fault).__name__}: {fault}"
            return told if isinstance(told, Status) else Status(Code.ERROR, (words,), "PreEnqueue")

    def sort_key(self, pod: PodInfo, queued_at: float) -> SortKey:
        """Comparable with all others; last if the hook raises or gives what has no order."""
        try:
            return 0, comparable(self.own.sort_key(pod, queued_at))
        except Exception as fault:  # noqa: BLE001 - as above
            self._on_fault(pod, fault)
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
        """As `QueueHooks.recheck_at`; infinite if it raises."""
        return self._or(math.inf, pod, self.own.recheck_at, pod, plugins)

    def _kin(self, pod: PodInfo) -> Hashable:
        assert self.own.kin is not None
        return self._or(None, pod, self.own.kin, pod)

    def _or(self, otherwise: T, pod: PodInfo, ask: Callable[..., T], *asked: object) -> T:
        try:
            return ask(*asked)
        except Exception as fault:  # noqa: BLE001 - as above
            self._on_fault(pod, fault)
            return otherwise
