"""How full a node would be, as a score: the strategies of NodeResourcesFit, over columns.

Exactness: `floor(x * 100.0 / capacity)` in float64 equals the integer division while capacities and
x stay below 2^45 (a quotient that is no integer is at least 1/capacity away from one, further than
rounding reaches). Beyond, and for capacities below zero, 64-bit integers compute, and wrap.

Source: kubernetes plugins/noderesources: resource_allocation.go, least_allocated.go,
most_allocated.go, requested_to_capacity_ratio.go; plugins/helper/shape_score.go;
apis/config/validation/validation_pluginargs.go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.framework.interface import Scores
from engine.framework.podinfo import CPU, MEMORY
from engine.framework.snapshot import BoolColumn, IntColumn, NodeColumns
from engine.plugins.shares import EXACT
from engine.quantity import wrap_int64

MAX_SCORE: Final = 100
_MAX_SHAPE_SCORE: Final = 10
_MAX_WEIGHT: Final = 100
_UNWRAPPED: Final = 1 << 62


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
    """`scoringStrategy`."""

    type: str = "LeastAllocated"
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
UsageOfOne = tuple[int, int, int, int]
"""The same for a single node."""


def used_of(nodes: NodeColumns, resource: str) -> IntColumn:
    """What of a resource is used as scores count it."""
    if resource == CPU:
        return nodes.nonzero_cpu
    if resource == MEMORY:
        return nodes.nonzero_memory
    return nodes.requested(resource)


_Share = tuple[Scores, BoolColumn | None]
"""Score a row, and which rows have the resource at all (None: all)."""
_OfColumn = Callable[[IntColumn, IntColumn, int], _Share]
_OfNode = Callable[[int, int, int], int]


class Scorer:
    """A strategy: usages of the resources that count -> raw scores, over columns or for one node.

    Both compute the same; one node at a time is quicker for a handful.
    """

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
        self._line: NDArray[np.int64] | None = None
        self._of_column: _OfColumn = _least
        self._of_node: _OfNode = _least_of
        ratio = strategy.requested_to_capacity_ratio
        match strategy.type:
            case "LeastAllocated":
                pass
            case "MostAllocated":
                self._of_column, self._of_node = _most, _most_of
            case "RequestedToCapacityRatio":
                if ratio is None:
                    raise ValueError("requestedToCapacityRatio: needed by the strategy so named")
                self._line = broken_line(ratio.shape)
            case _:
                raise ValueError(f"scoring strategy {strategy.type!r} is not supported")
        if ratio is not None and self._line is None:
            raise ValueError("requestedToCapacityRatio: only for the strategy so named")

    def scores(self, usages: Sequence[Usage]) -> Scores:
        """One score a row; `usages` names at least one resource."""
        if self._line is not None:
            return _weighted_ratio(usages, self._weights, self._line)
        return _weighted(usages, self._weights, self._of_column)

    def row(self, usages: Sequence[Usage]) -> Callable[[int], float]:
        """What gives the score of one node, while the columns stay where they are."""
        cells = [(i, a.data, used.data, add) for i, a, used, add in usages]
        return lambda row: self._score([(i, a[row], used[row], add) for i, a, used, add in cells])

    def _score(self, usages: Sequence[UsageOfOne]) -> float:
        """The score of one node, whatever the amounts."""
        total = weight_sum = 0
        for number, allocatable, used, request in usages:
            if allocatable == 0:
                continue
            if self._line is None:
                score = self._of_node(allocatable, used, request)
            else:
                score = int(self._line[_utilization_of(allocatable, used, request)])
                if score <= 0:
                    continue
            total += score * self._weights[number]
            weight_sum += self._weights[number]
        if not weight_sum:
            return 0.0
        if self._line is None:
            return float(_quotient(total, weight_sum))
        return float(math.floor(total / weight_sum + 0.5))


# ---- averages of resources -------------------------------------------------------------------


def _weighted(usages: Sequence[Usage], weights: Sequence[int], of_column: _OfColumn) -> Scores:
    """Average by weight over the resources that a node has, truncated."""
    total: Scores | None = None
    common = 0
    partial: Scores | None = None
    score: Scores
    for number, allocatable, used, request in usages:
        score, has = of_column(allocatable, used, request)
        weight = weights[number]
        if weight != 1:
            score *= weight
        if total is None:
            total = score
        else:
            total += score
        if has is None:
            common += weight
        else:
            share: Scores = np.where(has, float(weight), 0.0)
            partial = share if partial is None else np.add(partial, share, out=share)
    if total is None:
        raise ValueError("no resource to score by")
    if partial is not None:
        partial += common
        np.divide(total, partial, out=total, where=partial > 0)
    elif common != 1:
        np.divide(total, common, out=total)
    np.trunc(total, out=total)
    return total


def _weighted_ratio(
    usages: Sequence[Usage], weights: Sequence[int], table: NDArray[np.int64]
) -> Scores:
    """Average by weight over the resources with a score above 0, rounded half up."""
    total: Scores | None = None
    weight_sum: Scores | None = None
    for number, allocatable, used, request in usages:
        score = _of_utilization(allocatable, used, request, table)
        weight = np.where(score > 0, float(weights[number]), 0.0)
        score *= weight
        total = score if total is None else total + score
        weight_sum = weight if weight_sum is None else weight_sum + weight
    if total is None or weight_sum is None:
        raise ValueError("no resource to score by")
    mean: Scores = np.divide(total, weight_sum, out=np.zeros_like(total), where=weight_sum > 0)
    mean += 0.5
    np.floor(mean, out=mean)
    return mean


# ---- one resource ----------------------------------------------------------------------------


def _least(allocatable: IntColumn, used: IntColumn, request: int) -> _Share:
    free = allocatable - used
    free -= request
    share = _share(free, allocatable, -_UNWRAPPED)
    if share is not None:
        np.maximum(share[0], 0.0, out=share[0])
        return share
    requested = used + np.int64(request)
    wrapped = _divide((allocatable - requested) * np.int64(MAX_SCORE), allocatable)
    wrapped[requested > allocatable] = 0
    return wrapped.astype(np.float64), allocatable != 0


def _most(allocatable: IntColumn, used: IntColumn, request: int) -> _Share:
    requested = used + np.int64(request)
    np.minimum(requested, allocatable, out=requested)
    share = _share(requested, allocatable, 0)
    if share is not None:
        return share
    wrapped = _divide(requested * np.int64(MAX_SCORE), allocatable)
    return wrapped.astype(np.float64), allocatable != 0


def _of_utilization(
    allocatable: IntColumn, used: IntColumn, request: int, table: NDArray[np.int64]
) -> Scores:
    requested = used + np.int64(request)
    utilization = _divide(requested * np.int64(MAX_SCORE), allocatable)
    utilization[requested > allocatable] = MAX_SCORE
    np.clip(utilization, 0, MAX_SCORE, out=utilization)
    score = table[utilization].astype(np.float64)
    score[allocatable == 0] = 0.0
    return score


def _share(amounts: IntColumn, allocatable: IntColumn, least_amount: int) -> _Share | None:
    """Hundredths of what there is, rounded down; None where float64 would not be exact.

    Nor may an amount be below `least_amount`: it may have wrapped, or is to be truncated upwards.
    """
    share = amounts.astype(np.float64)
    capacity = allocatable.astype(np.float64)
    if not len(share):
        return share, None
    least = np.minimum.reduce(capacity)
    if (
        np.maximum.reduce(capacity) >= EXACT
        or np.maximum.reduce(share) >= EXACT
        or np.minimum.reduce(share) < least_amount
        or least < 0
    ):
        return None
    share *= MAX_SCORE
    if least > 0:
        share /= capacity
        np.floor(share, out=share)
        return share, None
    has: BoolColumn = capacity > 0
    np.divide(share, capacity, out=share, where=has)
    share[~has] = 0.0
    np.floor(share, out=share)
    return share, has


def _divide(amounts: IntColumn, by: IntColumn) -> IntColumn:
    """Integer division that truncates, as Go's; 0 where there is nothing to divide by."""
    divisor = np.where(by == 0, 1, by)
    quotient = amounts // divisor
    quotient += (quotient * divisor != amounts) & ((amounts < 0) != (divisor < 0))
    quotient[by == 0] = 0
    return quotient


# ---- one resource of one node ----------------------------------------------------------------


def _least_of(allocatable: int, used: int, request: int) -> int:
    requested = wrap_int64(used + request)
    if requested > allocatable:
        return 0
    return _quotient(wrap_int64((allocatable - requested) * MAX_SCORE), allocatable)


def _most_of(allocatable: int, used: int, request: int) -> int:
    requested = min(wrap_int64(used + request), allocatable)
    return _quotient(wrap_int64(requested * MAX_SCORE), allocatable)


def _utilization_of(allocatable: int, used: int, request: int) -> int:
    requested = wrap_int64(used + request)
    if requested > allocatable:
        return MAX_SCORE
    utilization = _quotient(wrap_int64(requested * MAX_SCORE), allocatable)
    return max(0, min(utilization, MAX_SCORE))


def _quotient(amount: int, by: int) -> int:
    """Integer division that truncates, as Go's."""
    if amount >= 0 and by > 0:
        return amount // by
    quotient = abs(amount) // abs(by)
    return quotient if (amount < 0) == (by < 0) else -quotient


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
