"""Aggregates: pods reduced to their node, zone, region or cluster, and nodes to one value.

Of what differs with each pair of a node and a pod of another node, pods are grouped first by all
that the value and the condition ask of them, so that a node costs one look a group, not one a pod.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from dsl import functions, ir
from dsl.lower import numbers
from dsl.lower.frame import Frame, Group, Pods, Run, Value, once, running
from dsl.lower.kept import Memo
from dsl.types import MISSING, Kind, Level
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


#: All used pod rows and their node rows.
all_pods: Final[Callable[[Frame], tuple[Pods, Group]]] = once(
    "all pods", lambda frame: running(frame.world)
)


def count_all(frame: Frame) -> int:
    """Returns how many pods there are."""
    return len(all_pods(frame)[1])


def domain_codes(world: World, over: str) -> NDArray[np.int32]:
    """Returns the code of each node's domain; -1 for a node without one."""
    if over.startswith(_LABEL):
        return world.node_text("node.label", over.removeprefix(_LABEL))
    return world.node_text(f"node.{over}", None)


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
    return lambda frame: _per_domain(plan, frame, all_ := frame.over(frame.all_nodes()), all_.rows)


def _per_domain(plan: PodSum, frame: Frame, everyone: Frame, nodes: Group | slice) -> Value:
    codes = domain_codes(frame.world, plan.over)
    # Nodes without a domain share the last.
    size = int(codes.max(initial=-1)) + 1
    codes = np.where(codes < 0, np.int32(size), codes)
    column = _reduce(plan, everyone, codes[nodes], size + 1)
    column[size] = _NOTHING[plan.function]
    return column[codes[frame.rows]]


def _asked(run: Run | None, frame: Frame, count: int) -> Value:
    """Returns the value or the condition of each pod, None where there is none."""
    value = None if run is None else run(frame)
    return value if run is None or isinstance(value, np.ndarray) else np.full(count, value)


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
    chosen, column = _asked(plan.where, frame, count), _asked(plan.value, frame, count)
    if column is None:
        there = ~chosen if function == "all" else chosen
        return told(function, float(count if there is None else np.count_nonzero(there)))
    return numbers.reduce(function, column if chosen is None else column[chosen])


def _counted(memo: Memo, group: Group, there: Value, count: int) -> NDArray[np.float64]:
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


#: How many pairs, and pods in them, are looked at together: more would not stay in the caches.
_BLOCK: Final = 1 << 18
Groups = NDArray[np.intp]
Codes = NDArray[np.int32]


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
        if not any(map(ir.is_across, ir.walk(one))):
            of_pods[id(one)] = one
            return
        if ir.is_across(one):
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
    """An evaluation on groups of pods: what is asked of them, and the texts of the nodes.

    `first` is one pod of each group, by its place among all pods.
    """

    of_node: Sequence[Codes] = ()

    def __init__(self, frame: Frame, of_pods: Sequence[Value], first: Groups) -> None:
        super().__init__(frame.world, frame.rows, frame.parts, frame.candidates, frame.subject)
        self.of_pods = of_pods
        self.size = len(first)
        self._frame = frame
        self._first = first
        there, nodes = all_pods(frame)
        self._found = (first if isinstance(there, slice) else there[first]), nodes[first]

    def only(self, mask: NDArray[np.bool_]) -> "GroupFrame":
        """Returns some of the groups."""
        return GroupFrame(self._frame, [one[mask] for one in self.of_pods], self._first[mask])

    def for_nodes(self, codes: Sequence[Codes], count: int) -> "GroupFrame":
        """Returns all groups for each of `count` nodes, one node after the other."""
        of_pods = [np.tile(one, count) for one in self.of_pods]
        frame = GroupFrame(self._frame, of_pods, np.tile(self._first, count))
        frame.of_node = [np.repeat(one, self.size) for one in codes]
        return frame


def of_group(place: int) -> Run:
    """Returns the read of what is asked of each group."""

    def read(frame: Frame) -> Value:
        assert isinstance(frame, GroupFrame)
        return frame.of_pods[place]

    return read


def pair_of_group(metric: str, place: int, end: Run, *, node_first: bool) -> Run:
    """Returns the value of a metric for the text of each node and that of each group."""

    def look_up(frame: Frame) -> Value:
        assert isinstance(frame, GroupFrame)
        here, there = frame.of_node[place], end(frame)
        ends = (here, there) if node_first else (there, here)
        return frame.world.pair_column(metric, *ends)

    return look_up


class Across(Struct, frozen=True):
    """The closures of such an aggregate: of pods and of nodes each by itself, then of both.

    `first` are conditions that ask the pods alone: what they leave out is in no pair.
    """

    function: str
    over: str
    of_pods: tuple[Run, ...]
    of_node: tuple[Run, ...]
    each: bool
    value: Run | None
    where: tuple[Run, ...]
    first: tuple[Run, ...]


def across(plan: Across) -> Run:
    """Returns the closure that reduces the values of pairs to the rows of a frame."""

    def reduce(frame: Frame) -> Value:
        groups, counts, domains = _grouped(plan, frame)
        for one in plan.first:
            chosen = _of_groups(one, groups)
            groups, counts = groups.only(chosen), counts[:, chosen]
        codes = [one(frame) for one in plan.of_node]
        # Nodes with equal texts in the same domain are one.
        number, first = numbers.combinations([domains, *codes], len(domains))
        codes, domains = [one[first] for one in codes], domains[first]
        most = int(counts.sum(1).max())
        step = max(1, _BLOCK // max(1, groups.size, most))
        kind = np.bool_ if plan.function in ("any", "all") else np.float64
        out: NDArray[Value] = np.empty(len(first), kind)
        for start in range(0, len(first), step):
            block = slice(start, start + step)
            of_nodes = [one[block] for one in codes]
            pairs = groups.for_nodes(of_nodes, len(domains[block]))
            out[block] = _reduced(plan, pairs, counts[domains[block]])
        return out[number]

    return reduce


def _grouped(plan: Across, frame: Frame) -> tuple[GroupFrame, Groups, Groups]:
    """Returns the groups, the pods of each in each domain, and each row's domain.

    The last domain is that of nodes without one; no pod counts there.
    """
    rows = all_pods(frame)[1]
    columns = [one(frame) for one in plan.of_pods]
    everyone = np.arange(len(rows))
    group, first = (everyone, everyone) if plan.each else numbers.combinations(columns, len(rows))
    if plan.over == "cluster":
        last = 1
        domain, here = np.zeros(len(rows), np.intp), np.zeros(frame.count, np.intp)
    else:
        of_nodes = domain_codes(frame.world, plan.over)
        known, index = np.unique(of_nodes, return_inverse=True)
        last = len(known)
        index[of_nodes < 0] = last
        domain, here = index[rows], index[frame.rows]
    keep = domain < last
    size = len(first)
    flat = np.bincount(domain[keep] * size + group[keep], minlength=(last + 1) * size)
    groups = GroupFrame(frame, [one[first] for one in columns], first)
    return groups, flat.reshape(last + 1, size), here


def _reduced(plan: Across, pairs: GroupFrame, counts: Groups) -> Value:
    """Returns the value of each node, from what its groups give and how many pods they have."""
    there, function = counts > 0, plan.function
    for one in plan.where:
        holds = _of_groups(one, pairs).reshape(counts.shape)
        there = there & (~holds if function == "all" else holds)
    if plan.value is None:
        return told(function, np.where(there, counts, 0).sum(1))
    column = _of_groups(plan.value, pairs).reshape(counts.shape)
    nodes, times = np.nonzero(there)[0], counts[there]
    return numbers.grouped(
        function, np.repeat(nodes, times), np.repeat(column[there], times), len(counts)
    )


def _of_groups(run: Callable[[Frame], Value], groups: GroupFrame) -> NDArray[Value]:
    return np.broadcast_to(run(groups), groups.size)
