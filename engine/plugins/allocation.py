"""How full a node would be, as a score, over columns.

The strategies of NodeResourcesFit, and NodeResourcesBalancedAllocation, which is better where the
pod evens out how full a node's resources are.

Shares are whole numbers of 64 bits, as in Go. The balance has Go's order of float operations, and
its truncation with and without the pod apart.

Source: kubernetes plugins/noderesources: resource_allocation.go, least_allocated.go,
most_allocated.go, requested_to_capacity_ratio.go, balanced_allocation.go;
plugins/helper/shape_score.go; apis/config/validation/validation_pluginargs.go.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.framework.interface import (
    MAX_SCORE,
    SKIP_SCORE,
    PluginArgs,
    Points,
    PreScoreResult,
    Scores,
    State,
)
from engine.framework.snapshot import BoolColumn, Cause, IntColumn, NodeColumns, Rows, Snapshot
from engine.plugins.shares import COUNTED, HALF, Role
from engine.pods.podinfo import CPU, MEMORY, PodInfo, is_counted, is_scalar_resource

_MAX_SHAPE_SCORE: Final = 10
_MAX_WEIGHT: Final = 100


class ResourceSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A resource and its weight."""

    name: str
    weight: int = 1


class ShapePoint(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A point of the function from utilization (0..100) to score (0..10)."""

    utilization: int
    score: int


class RatioParameters(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """`requestedToCapacityRatio`."""

    shape: tuple[ShapePoint, ...] = ()


class ScoringStrategy(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """`scoringStrategy`; without a type it is refused, as kube-scheduler refuses it."""

    type: str = ""
    resources: tuple[ResourceSpec, ...] = ()
    requested_to_capacity_ratio: RatioParameters | None = None

    def effective_resources(self) -> tuple[ResourceSpec, ...]:
        """The resources, cpu and memory by default; a weight of 0 is 1, as the API defaults it."""
        if not self.resources:
            return ResourceSpec(CPU), ResourceSpec(MEMORY)
        return tuple(ResourceSpec(r.name, r.weight or 1) for r in self.resources)

    @property
    def is_default(self) -> bool:
        """Whether it is what kube-scheduler does without arguments."""
        weights = sorted((one.name, one.weight) for one in self.effective_resources())
        return self.type == "LeastAllocated" and weights == [(CPU, 1), (MEMORY, 1)]


Usage = tuple[int, IntColumn, IntColumn, int]
"""Number of the resource, allocatable and used amounts a row, what the pod adds."""


def counting(
    resources: Sequence[str], requests: Mapping[str, int]
) -> Iterator[tuple[int, str, int]]:
    """The resources that count for a pod: the number of each, its name, what the pod requests."""
    for number, resource in enumerate(resources):
        request = requests.get(resource, 0)
        if is_counted(resource) and (request or not is_scalar_resource(resource)):
            yield number, resource, request


def used_of(nodes: NodeColumns, resource: str) -> IntColumn:
    """What of a resource is used as scores count it."""
    return nodes.requested(COUNTED.get(resource, resource))


_Share = tuple[Scores, BoolColumn]
"""Score a row, and in which rows it counts."""


class Scorer:
    """A strategy: usages of the resources that count -> raw scores."""

    def __init__(self, strategy: ScoringStrategy) -> None:
        """Reads the strategy.

        Raises:
            ValueError: the strategy is not one, or its arguments are out of range.
        """
        resources = strategy.effective_resources()
        for resource in resources:
            if not 1 <= resource.weight <= _MAX_WEIGHT:
                raise ValueError(f"weight of {resource.name}: {resource.weight} is not in 1..100")
        self.resources = tuple([resource.name for resource in resources])
        self._weights = [resource.weight for resource in resources]
        self._of_column: Callable[[IntColumn, IntColumn, int], _Share] = _least
        self._by_ratio = strategy.type == "RequestedToCapacityRatio"
        ratio = strategy.requested_to_capacity_ratio
        if ratio is not None and not self._by_ratio:
            raise ValueError("requestedToCapacityRatio: only for the strategy of that name")
        match strategy.type:
            case "LeastAllocated":
                pass
            case "MostAllocated":
                self._of_column = _most
            case "RequestedToCapacityRatio":
                if ratio is None:
                    raise ValueError("requestedToCapacityRatio: the strategy of that name needs it")
                self._of_column = partial(_on_line_of, broken_line(ratio.shape))
            case _:
                raise ValueError(
                    f"scoringStrategy.type: {strategy.type!r} is not LeastAllocated, MostAllocated"
                    " or RequestedToCapacityRatio"
                )

    def scores(self, usages: Sequence[Usage]) -> Scores:
        """One score a row; `usages` names at least one resource.

        The average by weight over the resources that a node has, truncated; of ratios over those
        with a score above 0, rounded half up.
        """
        total, weights = np.zeros((2, len(usages[0][1])))
        for number, allocatable, used, request in usages:
            score, counts = self._of_column(allocatable, used, request)
            total += score * self._weights[number]
            weights += counts * float(self._weights[number])
        np.divide(total, weights, out=total, where=weights > 0)
        if self._by_ratio:
            return np.floor(total + 0.5, out=total)
        return np.trunc(total, out=total)


# ---- one resource ----------------------------------------------------------------------------


def _least(allocatable: IntColumn, used: IntColumn, request: int) -> _Share:
    requested = used + np.int64(request)
    score = _hundredths(allocatable - requested, allocatable)
    score[requested > allocatable] = 0.0
    return score, allocatable != 0


def _most(allocatable: IntColumn, used: IntColumn, request: int) -> _Share:
    requested = used + np.int64(request)
    return _hundredths(np.minimum(requested, allocatable), allocatable), allocatable != 0


def _on_line_of(
    line: NDArray[np.int64], allocatable: IntColumn, used: IntColumn, request: int
) -> _Share:
    requested = used + np.int64(request)
    utilization = np.clip(_hundredths(requested, allocatable), 0, MAX_SCORE)
    utilization[requested > allocatable] = MAX_SCORE
    score = np.where(allocatable == 0, 0.0, line[utilization.astype(np.intp)])
    return score, score > 0


def _hundredths(amounts: IntColumn, of: IntColumn) -> Scores:
    """How many hundredths of what there is, truncated; 0 where there is nothing."""
    hundredfold, divisor = amounts * np.int64(MAX_SCORE), np.where(of == 0, 1, of)
    quotient = hundredfold // divisor
    # Go's division truncates; what is too large wraps, as there.
    quotient += (quotient * divisor != hundredfold) & ((hundredfold < 0) != (divisor < 0))
    quotient[of == 0] = 0
    return quotient.astype(np.float64)


# ---- shapes ----------------------------------------------------------------------------------


def broken_line(shape: Sequence[ShapePoint]) -> NDArray[np.int64]:
    """Score for each utilization from 0 to 100, between the points by integer interpolation."""
    if not shape:
        raise ValueError("shape: at least one point must be specified")
    for before, point in zip((None, *shape), shape, strict=False):
        if not 0 <= point.utilization <= MAX_SCORE:
            raise ValueError(f"shape: utilization {point.utilization} is not in 0..100")
        if not 0 <= point.score <= _MAX_SHAPE_SCORE:
            raise ValueError(f"shape: score {point.score} is not in 0..10")
        if before is not None and point.utilization <= before.utilization:
            raise ValueError("shape: utilization values must be sorted in increasing order")
    return np.array([_on_line(shape, x) for x in range(MAX_SCORE + 1)], dtype=np.int64)


def _on_line(shape: Sequence[ShapePoint], x: int) -> int:
    scale = MAX_SCORE // _MAX_SHAPE_SCORE
    before = shape[0]
    for point in shape:
        if x <= point.utilization:
            if point is shape[0]:
                return point.score * scale
            rise = (point.score - before.score) * scale * (x - before.utilization)
            run = point.utilization - before.utilization
            part = abs(rise) // run
            return before.score * scale + (part if rise >= 0 else -part)
        before = point
    return shape[-1].score * scale


# ---- NodeResourcesBalancedAllocation ------------------------------------------------------------


_TWO: Final = 2
_Usage = tuple[IntColumn, IntColumn, int]
"""What there is, what is requested and what the pod adds."""


class BalancedAllocationArgs(PluginArgs, frozen=True):
    """`pluginConfig` of NodeResourcesBalancedAllocation."""

    resources: tuple[ResourceSpec, ...] = ()


class BalancedAllocation:
    """Scores by how the spread of the shares of resources changes."""

    name: Final = "NodeResourcesBalancedAllocation"

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
