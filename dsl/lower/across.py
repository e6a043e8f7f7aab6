"""A metric of pairs of a node and a pod, reduced over pods that are on other nodes.

Pods are counted by the distinct texts at their end first, so that a node costs one look a text,
not one a pod.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dsl.lower import numbers, pods
from dsl.lower.frame import Frame, Run, Value
from dsl.lower.texts import code_of
from dsl.types import MISSING


@dataclass(frozen=True, slots=True)
class Across:
    """The parts of such an aggregate; `default` is put in where there is no value."""

    function: str
    over: str
    metric: str
    of_node: Run
    of_pod: Run
    where: Run | None
    default: float
    node_first: bool


def across(plan: Across) -> Run:
    """Returns the closure that reduces the values of pairs to the rows of a frame."""

    def reduce(frame: Frame) -> Value:
        ends, counts, groups = _counted(plan, frame)
        known: dict[tuple[int, int], float] = {}
        column = np.asarray(plan.of_node(frame))
        nodes = np.broadcast_to(column, frame.count).tolist()
        out = np.empty(frame.count)
        for place, (node, group) in enumerate(zip(nodes, groups.tolist(), strict=True)):
            key = node, group
            if key not in known:
                values = _values(plan, frame, node, ends)
                known[key] = numbers.reduce(plan.function, np.repeat(values, counts[group]))
            out[place] = known[key]
        return out

    return reduce


def _counted(
    plan: Across, frame: Frame
) -> tuple[NDArray[np.int32], NDArray[np.intp], NDArray[np.intp]]:
    """Returns the distinct texts of the pods, their number in each domain, each row's domain.

    The last domain is that of nodes without one; no pod counts there.
    """
    rows = pods.all_pods(frame)[1]
    codes = np.broadcast_to(code_of(plan.of_pod(frame), frame.world.dictionary), len(rows))
    if plan.over == "cluster":
        last = 1
        domain, here = np.zeros(len(rows), np.intp), np.zeros(frame.count, np.intp)
    else:
        of_nodes = pods.domain_codes(frame.world, plan.over)
        known, index = np.unique(of_nodes, return_inverse=True)
        last = len(known)
        index[of_nodes < 0] = last
        domain, here = index[rows], index[frame.rows]
    keep = domain < last
    if plan.where is not None:
        keep &= plan.where(frame)
    ends, back = np.unique(codes[keep], return_inverse=True)
    size = (last + 1) * len(ends)
    flat = np.bincount(domain[keep] * len(ends) + back, minlength=size)
    return ends, flat.reshape(last + 1, len(ends)), here


def _values(plan: Across, frame: Frame, node: int, ends: NDArray[np.int32]) -> NDArray[np.float64]:
    world = frame.world
    texts = world.dictionary.texts
    values = np.full(len(ends), MISSING)
    for place, end in enumerate(ends.tolist()):
        if node >= 0 and end >= 0:
            pair = (texts[node], texts[end]) if plan.node_first else (texts[end], texts[node])
            values[place] = world.pair(plan.metric, *pair)
    return np.where(np.isnan(values), plan.default, values)
