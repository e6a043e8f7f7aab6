"""Aggregates: pods reduced to their node, zone, region or cluster, and nodes to one value."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from dsl import functions
from dsl.lower import numbers
from dsl.lower.frame import Frame, Pods, Run, Value, running
from dsl.plan import World

_LABEL: Final = "label:"


def all_pods(frame: Frame) -> tuple[Pods, NDArray[np.intp]]:
    """Returns all used pod rows and their node rows."""
    found: tuple[Pods, NDArray[np.intp]] | None = frame.cache.get("all pods")
    if found is None:
        found = frame.cache["all pods"] = running(frame.world)
    return found


def count_all(frame: Frame) -> int:
    """Returns how many pods there are."""
    return len(all_pods(frame)[1])


def domain_codes(world: World, over: str) -> NDArray[np.int32]:
    """Returns the code of each node's domain; -1 for a node without one."""
    if over.startswith(_LABEL):
        return world.node_text("node.label", over.removeprefix(_LABEL))
    return world.node_text(f"node.{over}", None)


def reduce_nodes(function: str, frame: Frame, value: Run | None, where: Run | None) -> Value:
    """Reduces a node value over the rows of a frame."""
    count = frame.count
    column = None if value is None else _spread(value(frame), count)
    if where is not None:
        chosen = _spread(where(frame), count)
        if column is None:
            column = chosen
        elif function == "all":
            column = column | ~chosen
        elif function in ("count", "any"):
            column = column & chosen
        else:
            column = column[chosen]
    if function == "count":
        return float(count) if column is None else float(np.count_nonzero(column))
    if function == "any":
        return bool(column.any()) if column is not None else count > 0
    if function == "all":
        return bool(column.all()) if column is not None else True
    return numbers.reduce(function, np.asarray(column))


def _spread(value: Value, count: int) -> NDArray[Value]:
    return value if isinstance(value, np.ndarray) else np.full(count, value)


def pod_aggregate(function: str, over: str, value: Run | None, where: Run | None) -> Run:
    """Returns the closure that reduces pods to the rows of a frame."""
    if over == "node":

        def per_node(frame: Frame) -> Value:
            group = frame.pods()[1]
            return _reduce(function, (group, frame.count), frame, value, where)

        return per_node
    if over == "cluster":

        def whole(frame: Frame) -> Value:
            group = np.zeros(count_all(frame), np.intp)
            column = _reduce(function, (group, 1), frame, value, where)
            return column[0].item()

        return whole

    def per_domain(frame: Frame) -> Value:
        codes = domain_codes(frame.world, over)
        size = int(codes.max(initial=-1)) + 2
        # Nodes without a domain share the last group, which stays empty.
        group = codes[all_pods(frame)[1]].astype(np.intp)
        column = _reduce(function, (group, size), frame, value, where)
        return column[codes[frame.rows]]

    return per_domain


def _reduce(
    function: str,
    groups: tuple[NDArray[np.intp], int],
    frame: Frame,
    value: Run | None,
    where: Run | None,
) -> NDArray[Value]:
    group, count = groups
    keep = group >= 0
    column = None if value is None else _spread(value(frame), len(group))
    chosen = None if where is None else _spread(where(frame), len(group))
    if function == "all":
        # Of a condition alone, all pods must fulfil it; with a value, those that it selects.
        wrong = ~chosen if column is None and chosen is not None else np.zeros(len(group), np.bool_)
        if column is not None:
            wrong = ~column if chosen is None else chosen & ~column
        return np.equal(np.bincount(group[wrong & keep], minlength=count), 0)
    if function in ("count", "any"):
        for mask in (column, chosen):
            keep = keep if mask is None else keep & mask
        sizes = np.bincount(group[keep], minlength=count)
        return sizes > 0 if function == "any" else sizes.astype(np.float64)
    if chosen is not None:
        keep = keep & chosen
    assert column is not None
    return numbers.grouped(function, group[keep], column[keep], count)


def container_aggregate(function: str, value: Run | None, where: Run | None) -> Run:
    """Returns the closure that reduces the containers of the pod to place."""

    def aggregate(frame: Frame) -> Value:
        subject = frame.subject
        assert subject is not None
        inner = [
            Frame(frame.world, frame.rows, subject=subject, container=place)
            for place in range(subject.containers)
        ]
        if function == "all" and value is None:
            return all(where is None or where(one) for one in inner)
        chosen = [one for one in inner if where is None or where(one)]
        values = [True if value is None else value(one) for one in chosen]
        if function == "count":
            return float(sum(1 for one in values if one))
        if function in ("any", "all"):
            return any(values) if function == "any" else all(values)
        return functions.REDUCERS[function](values)

    return aggregate
