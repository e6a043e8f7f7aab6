"""How full a node would be, as a score: the strategies of NodeResourcesFit, over columns.

Exactness: `floor(x * 100.0 / capacity)` in float64 equals the integer division while capacities and
x stay below 2^45 (a quotient that is no integer is at least 1/capacity away from one, further than
rounding reaches). Beyond, and for capacities below zero, 64-bit integers compute, and wrap.

Source: kubernetes plugins/noderesources: resource_allocation.go, least_allocated.go,
most_allocated.go, requested_to_capacity_ratio.go; plugins/helper/shape_score.go;
apis/config/validation/validation_pluginargs.go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.framework.interface import Scores
from engine.framework.podinfo import CPU, MEMORY
from engine.framework.snapshot import BoolColumn, IntColumn

MAX_SCORE: Final = 100
_MAX_SHAPE_SCORE: Final = 10
_MAX_WEIGHT: Final = 100
_EXACT: Final = 1 << 45


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


Usage = tuple[int, IntColumn, IntColumn, int]
"""Number of the resource, allocatable and used amounts a row, what the pod adds."""

Scorer = Callable[[Sequence[Usage]], Scores]
_OfOne = Callable[[IntColumn, IntColumn, int], Scores]


def scorer(strategy: ScoringStrategy) -> Scorer:
    """The function of a strategy: usages of the resources that count -> raw scores.

    Raises:
        ValueError: the strategy is not one, or its arguments are out of range.
    """
    resources = strategy.effective_resources()
    for resource in resources:
        if not 1 <= resource.weight <= _MAX_WEIGHT:
            raise ValueError(f"weight of {resource.name}: {resource.weight} is not in 1..100")
    weights = [float(resource.weight) for resource in resources]
    ratio = strategy.requested_to_capacity_ratio
    if strategy.type == "RequestedToCapacityRatio":
        if ratio is None:
            raise ValueError("requestedToCapacityRatio: needed by the strategy of that name")
        table = _broken_line(ratio.shape)
        return lambda usages: _weighted_ratio(usages, weights, table)
    if ratio is not None:
        raise ValueError("requestedToCapacityRatio: only for the strategy of that name")
    if strategy.type == "LeastAllocated":
        return lambda usages: _weighted(usages, weights, _least)
    if strategy.type == "MostAllocated":
        return lambda usages: _weighted(usages, weights, _most)
    raise ValueError(f"scoring strategy {strategy.type!r} is not supported")


# ---- averages of resources -------------------------------------------------------------------


def _weighted(usages: Sequence[Usage], weights: Sequence[float], of_one: _OfOne) -> Scores:
    """Average by weight over the resources that a node has, truncated."""
    total: Scores | None = None
    weight_sum: Scores | float = 0.0
    for number, allocatable, used, request in usages:
        score = of_one(allocatable, used, request)
        weight = weights[number]
        if weight != 1.0:
            score *= weight
        if total is None:
            total = score
        else:
            total += score
        weight_sum = weight_sum + _weight(allocatable, weight)
    if total is None:
        raise ValueError("no resource to score by")
    if isinstance(weight_sum, float):
        if weight_sum != 1.0:
            total /= weight_sum
        return np.trunc(total, out=total)
    mean: Scores = np.divide(total, weight_sum, out=np.zeros_like(total), where=weight_sum > 0)
    np.trunc(mean, out=mean)
    return mean


def _weighted_ratio(
    usages: Sequence[Usage], weights: Sequence[float], table: NDArray[np.float64]
) -> Scores:
    """Average by weight over the resources with a score above 0, rounded half up."""
    total: Scores | None = None
    weight_sum: Scores | None = None
    for number, allocatable, used, request in usages:
        score = _of_utilization(allocatable, used, request, table)
        weight = np.where(score > 0, weights[number], 0.0)
        score *= weight
        total = score if total is None else total + score
        weight_sum = weight if weight_sum is None else weight_sum + weight
    if total is None or weight_sum is None:
        raise ValueError("no resource to score by")
    mean: Scores = np.divide(total, weight_sum, out=np.zeros_like(total), where=weight_sum > 0)
    mean += 0.5
    np.floor(mean, out=mean)
    return mean


def _weight(allocatable: IntColumn, weight: float) -> Scores | float:
    """The weight of a resource a row: none where the node does not have it."""
    if np.count_nonzero(allocatable) == len(allocatable):
        return weight
    return np.where(allocatable != 0, weight, 0.0)


# ---- one resource ----------------------------------------------------------------------------


def _least(allocatable: IntColumn, used: IntColumn, request: int) -> Scores:
    free = allocatable - used
    free -= request
    if not _in_range(allocatable, free):
        requested = used + np.int64(request)
        wrapped = _divide((allocatable - requested) * np.int64(MAX_SCORE), allocatable)
        wrapped[requested > allocatable] = 0
        return wrapped.astype(np.float64)
    score: Scores = np.multiply(free, 100.0)
    _divide_in_place(score, allocatable)
    np.floor(score, out=score)
    np.maximum(score, 0.0, out=score)
    return score


def _most(allocatable: IntColumn, used: IntColumn, request: int) -> Scores:
    requested = used + np.int64(request)
    capped = np.minimum(requested, allocatable)
    if not _in_range(allocatable, capped) or capped.min() < 0:
        return _divide(capped * np.int64(MAX_SCORE), allocatable).astype(np.float64)
    score: Scores = np.multiply(capped, 100.0)
    _divide_in_place(score, allocatable)
    np.floor(score, out=score)
    return score


def _of_utilization(
    allocatable: IntColumn, used: IntColumn, request: int, table: NDArray[np.float64]
) -> Scores:
    requested = used + np.int64(request)
    utilization = _divide(requested * np.int64(MAX_SCORE), allocatable)
    utilization[requested > allocatable] = MAX_SCORE
    np.clip(utilization, 0, MAX_SCORE, out=utilization)
    score = table[utilization]
    score[allocatable == 0] = 0.0
    return score


def _in_range(allocatable: IntColumn, amounts: IntColumn) -> bool:
    """True if float64 computes the shares exactly."""
    return bool(
        allocatable.max(initial=0) < _EXACT
        and allocatable.min(initial=0) >= 0
        and amounts.max(initial=0) < _EXACT
    )


def _divide_in_place(score: Scores, allocatable: IntColumn) -> None:
    """The score over the amount, 0 where there is none."""
    if np.count_nonzero(allocatable) == len(allocatable):
        score /= allocatable
        return
    has: BoolColumn = allocatable > 0
    np.divide(score, allocatable, out=score, where=has)
    score[~has] = 0.0


def _divide(amounts: IntColumn, by: IntColumn) -> IntColumn:
    """Integer division that truncates, as Go's; 0 where there is nothing to divide by."""
    divisor = np.where(by == 0, 1, by)
    quotient = amounts // divisor
    quotient += (quotient * divisor != amounts) & ((amounts < 0) != (divisor < 0))
    quotient[by == 0] = 0
    return quotient


# ---- shapes ----------------------------------------------------------------------------------


def _broken_line(shape: Sequence[ShapePoint]) -> NDArray[np.float64]:
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
    return np.array([_on_line(shape, x) for x in range(MAX_SCORE + 1)], dtype=np.float64)


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
