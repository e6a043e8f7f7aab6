"""NodeResourcesBalancedAllocation: better where the pod evens out how full a node's resources are.

Go's order of float operations, and its truncation of the balance with and without the pod apart.

Source: kubernetes plugins/noderesources/balanced_allocation.go, resource_allocation.go.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

import numpy as np

from engine.framework.interface import (
    MAX_SCORE,
    SKIP_SCORE,
    PluginArgs,
    Points,
    PreScoreResult,
    Scores,
    State,
)
from engine.framework.snapshot import Cause, IntColumn, Rows, Snapshot
from engine.plugins.allocation import ResourceSpec, ScoringStrategy, counting
from engine.plugins.shares import HALF, Role
from engine.pods.podinfo import CPU, MEMORY, PodInfo

NAME: Final = "NodeResourcesBalancedAllocation"
_TWO: Final = 2
_Usage = tuple[IntColumn, IntColumn, int]
"""What there is, what is requested and what the pod adds."""


class BalancedAllocationArgs(PluginArgs, frozen=True):
    """`pluginConfig` of NodeResourcesBalancedAllocation."""

    resources: tuple[ResourceSpec, ...] = ()


class BalancedAllocation:
    """Scores by how the spread of the shares of resources changes."""

    name: Final = NAME

    def __init__(self, args: BalancedAllocationArgs | None = None) -> None:
        """Reads the profile's resources.

        Raises:
            ValueError: a resource has another weight than 1, or is named twice.
        """
        resources = ScoringStrategy(resources=args.resources if args else ()).effective_resources()
        for number, resource in enumerate(resources):
            if resource.weight != 1:
                raise ValueError(f"resources[{number}].weight: {resource.weight} is not 1")
        self._resources = tuple([resource.name for resource in resources])
        if len(set(self._resources)) != len(self._resources):
            raise ValueError("resources: a name is listed twice")
        both = sorted(self._resources) == [CPU, MEMORY]
        self._said = PreScoreResult(
            state=Role.EVEN if both else None, causes=Cause.POD | Cause.ALLOCATABLE
        )

    def points(self) -> Points:
        """Real requests count, those of the pod level included."""
        return Points(class_key=_key, pre_score=self._pre_score, score=self._score)

    def _pre_score(self, pod: PodInfo, snapshot: Snapshot) -> PreScoreResult:
        """Skips pods that request none of the resources."""
        return self._said if any(map(pod.requests.get, self._resources)) else SKIP_SCORE

    def _score(self, state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Scores:
        """50..100; 75 where the pod changes nothing."""
        nodes = snapshot.nodes
        usages = [
            (nodes.allocatable(resource)[rows], nodes.requested(resource)[rows], request)
            for _, resource, request in counting(self._resources, pod.requests)
        ]
        count = len(nodes.present[rows])
        scores = _balance(usages, count, with_pod=True)
        scores -= _balance(usages, count, with_pod=False)
        scores += HALF
        scores /= _TWO
        np.trunc(scores, out=scores)
        scores += HALF
        return scores


def _key(pod: PodInfo, snapshot: Snapshot) -> Hashable:
    """What the pod holds; the key of NodeResourcesFit says it unless a resize is in flight."""
    same = pod.requests is pod.filter_requests
    return pod.requests_key if same else tuple(sorted(pod.requests.items()))


def _balance(usages: Sequence[_Usage], count: int, *, with_pod: bool) -> Scores:
    """(n,) 100 less the deviation of the shares in hundredths, truncated.

    A resource that a node lacks has no share there.
    """
    shares = np.zeros((len(usages), count))
    has = np.array([there != 0 for there, _, _ in usages], np.bool_).reshape(shares.shape)
    for share, where, (there, used, add) in zip(shares, has, usages, strict=True):
        np.divide(used + np.int64(add) if with_pod else used, there, out=share, where=where)
    np.minimum(shares, 1.0, out=shares)
    numbers = np.count_nonzero(has, axis=0)
    # INVARIANT: `sum` adds one resource after the other, as Go does.
    mean = sum(shares) / np.maximum(numbers, 1)
    squares = sum(np.where(has, (shares - mean) ** 2, 0.0))
    deviation = np.sqrt(squares / np.maximum(numbers, 1))
    # Of two, half the difference; of one, none.
    between = shares.max(axis=0, where=has, initial=-np.inf) - shares.min(
        axis=0, where=has, initial=np.inf
    )
    deviation = np.where(numbers > _TWO, deviation, np.maximum(between, 0.0) / _TWO)
    scores: Scores = np.trunc((1 - deviation) * MAX_SCORE)
    return scores
