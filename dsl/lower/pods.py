"""Aggregates: pods reduced to their node, zone, region or cluster, and nodes to one value."""

from collections.abc import Callable
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from dsl import functions, ir
from dsl.lower import numbers
from dsl.lower.frame import Frame, Group, Memo, Pods, Run, Value, once, running
from dsl.types import MISSING, Kind
from dsl.world import World

_LABEL: Final = "label:"
_MANY: Final = 2048
#: What an aggregate of no pods gives.
_NOTHING: Final = {
    "any": False,
    "all": True,
    **dict.fromkeys(("count", "sum", "distinct"), 0.0),
    **dict.fromkeys(("max", "min", "avg", "median"), MISSING),
}


_ALL_PODS: Final = once("all pods", lambda frame: running(frame.world))


def all_pods(frame: Frame) -> tuple[Pods, Group]:
    """Returns all used pod rows and their node rows."""
    found: tuple[Pods, Group] = _ALL_PODS(frame)
    return found


def count_all(frame: Frame) -> int:
    """Returns how many pods there are."""
    return len(all_pods(frame)[1])


def domain_codes(world: World, over: str) -> NDArray[np.int32]:
    """Returns the code of each node's domain; -1 for a node without one."""
    if over.startswith(_LABEL):
        return world.node_text("node.label", over.removeprefix(_LABEL))
    return world.node_text(f"node.{over}", None)


def _spread(value: Value, count: int) -> NDArray[Value]:
    return value if isinstance(value, np.ndarray) else np.full(count, value)


class PodSum(Struct, frozen=True):
    """An aggregate over pods or nodes: what of them, over which, and where it finds its buffers."""

    function: str
    over: str
    value: Run | None
    where: Run | None
    memo: Memo


def pod_aggregate(plan: PodSum) -> Run:
    """Returns the closure that reduces pods to the rows of a frame."""
    if plan.over == "node":
        return lambda frame: _reduce(plan, frame, frame.pods()[1], frame.count)
    if plan.over == "cluster":
        return lambda frame: reduce_all(plan, frame, count_all(frame))
    return lambda frame: _per_domain(plan, frame, frame, all_pods(frame)[1])


def nodes_of_domains(plan: PodSum) -> Run:
    """Returns the closure that reduces the nodes of each domain to the rows of a frame."""

    def per_domain(frame: Frame) -> Value:
        everyone = frame.over(frame.all_nodes())
        return _per_domain(plan, frame, everyone, everyone.rows)

    return per_domain


def _per_domain(plan: PodSum, frame: Frame, everyone: Frame, nodes: Group | slice) -> Value:
    codes, size = _domains(frame.world, plan.over)
    column = _reduce(plan, everyone, codes[nodes], size + 1)
    column[size] = _NOTHING[plan.function]
    return column[codes[frame.rows]]


def _domains(world: World, over: str) -> tuple[NDArray[np.int32], int]:
    """Returns the number of each node's domain; nodes without one share the last."""
    codes = domain_codes(world, over)
    size = int(codes.max(initial=-1)) + 1
    return np.where(codes < 0, np.int32(size), codes), size


def _asked(run: Run | None, frame: Frame, count: int) -> Value:
    """Returns the value or the condition of each pod, None where there is none."""
    return None if run is None else _spread(run(frame), count)


def told(function: str, found: Value) -> Value:
    """Returns what `count`, `any` and `all` say; of `all`, those are found that break it."""
    return found if function == "count" else found > 0 if function == "any" else found == 0


def _reduce(plan: PodSum, frame: Frame, group: Group, count: int) -> NDArray[Value]:
    function = plan.function
    chosen = _asked(plan.where, frame, len(group))
    column = _asked(plan.value, frame, len(group))
    if column is None:
        there = ~chosen if function == "all" else chosen
        return np.asarray(told(function, _counted(plan.memo, group, there, count)))
    if chosen is not None:
        group, column = group[chosen], column[chosen]
    return numbers.grouped(function, group, column, count)


def reduce_all(plan: PodSum, frame: Frame, count: int) -> Value:
    """Reduces all pods or nodes to one value."""
    function = plan.function
    chosen, column = (_asked(one, frame, count) for one in (plan.where, plan.value))
    if column is None:
        there = ~chosen if function == "all" else chosen
        return told(function, float(count if there is None else np.count_nonzero(there)))
    return numbers.reduce(function, column if chosen is None else column[chosen])


def _counted(memo: Memo, group: Group, there: Value, count: int) -> NDArray[np.float64]:
    """Returns how many pods of each group are there."""
    if there is None:
        return np.bincount(group, minlength=count).astype(np.float64)
    if len(group) < _MANY:
        return np.bincount(group[there], minlength=count).astype(np.float64)
    # Adding up ones and zeros is exact, and in buffers that are there it makes no large array.
    size = len(group)
    ones, rows = memo.scratch("ones", size, np.float64), memo.scratch("rows", size, np.intp)
    np.copyto(ones, there)
    np.copyto(rows, group)
    return np.bincount(rows, ones, count).astype(np.float64, copy=False)


def containers(frame: Frame) -> list[Frame]:
    """Returns the evaluations of each container of the pod to place."""
    return [frame.of_container(place) for place in range(frame.subject.containers)]


def one_by_one(
    node: ir.Aggregate, build: Callable[[ir.Expr], Run], each: Callable[[Frame], list[Frame]]
) -> Run:
    """Returns the closure that reduces what the pod has several of, one after the other."""
    value = None if node.value is None else build(node.value)
    where = None if node.where is None else build(node.where)
    reducer = functions.REDUCERS[node.function]

    def aggregate(frame: Frame) -> Value:
        inner = each(frame)
        if value is None:
            found = [where is None or where(one) for one in inner]
        else:
            found = [value(one) for one in inner if where is None or where(one)]
        return reducer(found)

    return aggregate


def of_items(
    node: ir.ItemAggregate,
    parts: tuple[Run | None, Run | None],
    each: Callable[[Frame], list[Frame]],
    count: Callable[[Frame], int],
) -> Run:
    """Returns what reduces the items of lists on each row; those that do not count are left out."""
    value, where = parts
    gone = np.int32(-1) if node.value is not None and node.value.type.kind is Kind.TEXT else MISSING

    def of_item(frame: Frame) -> Value:
        holds = where is None or where(frame)
        return holds if value is None else np.where(holds, value(frame), gone)

    def reduce(frame: Frame) -> Value:
        size = count(frame)
        found = [np.broadcast_to(of_item(one), size) for one in each(frame)]
        if not found:
            return np.full(size, _NOTHING[node.function])
        return numbers.of_items(node.function, np.stack(found))

    return reduce
