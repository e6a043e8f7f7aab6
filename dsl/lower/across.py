"""Aggregates over pods of other nodes of what differs with each pair of a node and a pod.

Pods are grouped first by all that the value and the condition ask of them, so that a node costs one
look a group, not one a pod.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeGuard

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from dsl import ir
from dsl.lower import numbers, pods
from dsl.lower.frame import Frame, Run, Value
from dsl.types import MISSING, Level

_MOST_GROUPS: Final = 2**40
Groups = NDArray[np.intp]


def is_across(node: ir.Expr) -> TypeGuard[ir.Pair]:
    """Whether a value is that of a pair of a node and of a pod that may be elsewhere."""
    return isinstance(node, ir.Pair) and {node.left.level, node.right.level} == {
        Level.NODE,
        Level.IT,
    }


class Asked(Struct, frozen=True):
    """What is asked of the pods, and of the node where there are pairs.

    `each`: what a pod has under a key is asked that differs with the node, so no two are alike.
    """

    of_pods: tuple[ir.Expr, ...]
    pairs: tuple[ir.Pair, ...]
    each: bool


def asked(node: ir.PodAggregate) -> Asked | None:
    """Returns what an aggregate over other nodes asks of both sides; None without pairs."""
    of_pods: dict[int, ir.Expr] = {}
    pairs: dict[int, ir.Pair] = {}
    keyed: list[ir.Expr] = []

    def look(one: ir.Expr) -> None:
        if one.level is not Level.IT:
            return
        if not any(is_across(part) for part in ir.walk(one)):
            of_pods[id(one)] = one
            return
        if is_across(one):
            pairs[id(one)] = one
        if isinstance(one, ir.KeyedRead):
            keyed.append(one)
        for part in ir.children(one):
            look(part)

    for part in (node.value, node.where):
        if part is not None:
            look(part)
    if node.over == "node" or not pairs:
        return None
    return Asked(tuple(of_pods.values()), tuple(pairs.values()), bool(keyed))


class GroupFrame(Frame):
    """An evaluation for one node on groups of pods: what is asked of them, and the node's texts.

    `first` is one pod of each group, by its place among all pods.
    """

    of_node: tuple[int, ...]

    def __init__(self, frame: Frame, of_pods: Sequence[Value], first: Groups) -> None:
        super().__init__(frame.world, frame.rows, frame.parts, frame.candidates, frame.subject)
        self.of_pods = of_pods
        self.size = len(first)
        there, nodes = pods.all_pods(frame)
        self._found = (first if isinstance(there, slice) else there[first]), nodes[first]


def of_group(place: int) -> Run:
    """Returns the read of what is asked of each group."""

    def read(frame: Frame) -> Value:
        assert isinstance(frame, GroupFrame)
        return frame.of_pods[place]

    return read


def pair_of_group(metric: str, place: int, end: Run, *, node_first: bool) -> Run:
    """Returns the value of a metric for the node's text and that of each group."""

    def look_up(frame: Frame) -> Value:
        assert isinstance(frame, GroupFrame)
        world, code = frame.world, frame.of_node[place]
        codes = end(frame)
        texts = world.dictionary.texts
        known: dict[int, float] = {}
        for other in np.unique(codes).tolist():
            if code < 0 or other < 0:
                known[other] = MISSING
                continue
            ends = (texts[code], texts[other]) if node_first else (texts[other], texts[code])
            known[other] = float(world.pair(metric, *ends))
        return np.array([known[one] for one in codes.tolist()])

    return look_up


class Across(Struct, frozen=True):
    """The closures of such an aggregate: of pods and of nodes each by itself, then of both."""

    function: str
    over: str
    of_pods: tuple[Run, ...]
    of_node: tuple[Run, ...]
    each: bool
    value: Run | None
    where: Run | None


def across(plan: Across) -> Run:
    """Returns the closure that reduces the values of pairs to the rows of a frame."""

    def reduce(frame: Frame) -> Value:
        groups, counts, domains = _grouped(plan, frame)
        codes = [one(frame).tolist() for one in plan.of_node]
        known: dict[tuple[int, ...], Value] = {}
        out = []
        for domain, *node in zip(domains.tolist(), *codes, strict=True):
            key = (domain, *node)
            if key not in known:
                groups.of_node = tuple(node)
                known[key] = _reduced(plan, groups, counts[domain])
            out.append(known[key])
        return np.array(out, np.bool_ if plan.function in ("any", "all") else np.float64)

    return reduce


def _grouped(plan: Across, frame: Frame) -> tuple[GroupFrame, Groups, Groups]:
    """Returns the groups, the pods of each in each domain, and each row's domain.

    The last domain is that of nodes without one; no pod counts there.
    """
    rows = pods.all_pods(frame)[1]
    columns = [one(frame) for one in plan.of_pods]
    everyone = np.arange(len(rows))
    group, first = (everyone, everyone) if plan.each else _numbered(columns, len(rows))
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
    size = len(first)
    flat = np.bincount(domain[keep] * size + group[keep], minlength=(last + 1) * size)
    groups = GroupFrame(frame, [one[first] for one in columns], first)
    return groups, flat.reshape(last + 1, size), here


def _numbered(columns: Sequence[NDArray[Value]], count: int) -> tuple[Groups, Groups]:
    """Returns the number of each pod's group, and one pod of each group."""
    number, size = np.zeros(count, np.intp), 1
    for column in columns:
        distinct, index = np.unique(column, return_inverse=True)
        number = number * len(distinct) + index
        size *= len(distinct)
        if size > _MOST_GROUPS:
            distinct, number = np.unique(number, return_inverse=True)
            size = len(distinct)
    _, first, number = np.unique(number, return_index=True, return_inverse=True)
    return number, first


def _reduced(plan: Across, groups: GroupFrame, counts: Groups) -> Value:
    there = counts > 0
    column = None if plan.value is None else _spread(plan.value, groups)
    chosen = None if plan.where is None else _spread(plan.where, groups)
    function = plan.function
    if function == "all":
        return not bool((there & pods.wrong(column, chosen)).any())
    for mask in (column, chosen) if function in ("count", "any") else (chosen,):
        there = there if mask is None else there & mask
    if function == "any":
        return bool(there.any())
    if function == "count":
        return float(counts[there].sum())
    assert column is not None
    return numbers.reduce(function, np.repeat(column[there], counts[there]))


def _spread(run: Callable[[Frame], Value], groups: GroupFrame) -> NDArray[Value]:
    return np.broadcast_to(run(groups), groups.size)
