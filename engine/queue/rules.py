"""What the queue asks: how pods are ordered, who may come in, and what may change an answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

from engine.framework.events import ClusterEventWithHint
from engine.framework.status import Status
from engine.pods.podinfo import PodInfo
from engine.queue.queued import SortKey

Hints = Mapping[str, Sequence[ClusterEventWithHint]]


def _alone(_pod: PodInfo) -> Hashable:
    return None


def _never(_pod: PodInfo, _plugins: frozenset[str]) -> float:
    return math.inf


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules in force.

    Attributes:
        sort_key: of a pod and when it was queued (seconds since the epoch); smaller comes first.
        pre_enqueue: lets a pod in, or says which plugin holds it.
        hints: an entry for every plugin that can reject a pod; a pod rejected by any other is tried
            again after its backoff.
        turns_at: when the clock alone may change what these plugins said of a pod that they have
            just rejected or held (seconds since the epoch).
        order: what the sort keys are made by, which compare with each other; None: `sort_key`.
        gates_move: whether `pre_enqueue` looks at more than the pod. Then pods are asked about
            once more when they are popped: those popped before them may have taken what there was.
        class_key: pods of one priority and preemption policy with equal keys are alike: where one
            is rejected, so would the others be, by the same plugins, and their hints agree.
            None: no other pod is like it.
        kin: keys by which pods belong together; None: no pod belongs to any other.
    """

    sort_key: Callable[[PodInfo, float], SortKey]
    pre_enqueue: Callable[[PodInfo], Status]
    hints: Hints
    turns_at: Callable[[PodInfo, frozenset[str]], float] = _never
    gates_move: bool = False
    order: object = None
    class_key: Callable[[PodInfo], Hashable] = _alone
    kin: Callable[[PodInfo], Collection[Hashable]] | None = None

    @property
    def ordered_by(self) -> object:
        """Keys of rules with equal ones compare with each other."""
        return self.sort_key if self.order is None else self.order
