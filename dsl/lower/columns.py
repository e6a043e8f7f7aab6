"""Which closure over columns an expression becomes, and what of it is computed once per pod.

An expression below node level runs as a Python scalar; at node level as an array over the rows of
the frame; at `it` level as an array over pods. Parts that only the pod decides are hoisted: they
are computed once per pod and become its class key.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from dsl import functions, ir
from dsl.lower import conditions, numbers, pods, reads, texts
from dsl.lower.conditions import text_function
from dsl.lower.frame import Frame, Run, Value, once
from dsl.lower.kept import Known, Memo, is_dear, keeping, works
from dsl.lower.pods import Across, Asked, across, asked, of_group, pair_of_group
from dsl.schema import FIELDS
from dsl.types import MISSING, Kind, Level

_FUNCTIONS: Final = {**functions.TEXT_FUNCTIONS, **functions.NUMBER_FUNCTIONS}
_OVER_SETS: Final = ir.NodeAggregate | ir.PodAggregate


class Builder:
    """Builds the closures of one rule.

    With `hoist`, parts that only the pod decides become `slots`; without, they are read from the
    frame's subject.
    """

    # INVARIANT: expressions are known by their ids, so the tree outlives its builder.

    def __init__(self, memo: Memo, *, hoist: bool = False) -> None:
        self.memo = memo
        self.hoist = hoist
        self.slots: list[Run] = []
        self._slot_of: dict[object, int] = {}
        self._built: dict[tuple[int, str], Run] = {}
        self._known = Known()
        self._within = False
        #: Whether what is asked of the items of a list is built, and what reads the item.
        self._in_items = False
        self._of_item: dict[int, bool] = {}

    # ---- hoisting

    def build(self, node: ir.Expr, domain: str = reads.ROWS) -> Run:
        """Returns the closure of an expression in a domain."""
        of_item = self._reads_item(node)
        if self.hoist and node.level is Level.POD and not of_item and not ir.has(_OVER_SETS, node):
            body = node.body if isinstance(node, ir.Named) else node
            return self._slot(id(body), lambda: Builder(self.memo).build(body))
        if domain != reads.ROWS and node.level <= Level.NODE:
            run = self.build(node)
            if node.level < Level.NODE:
                return run
            return lambda frame: run(frame)[frame.pods()[1]]
        key = (id(node), domain)
        found = self._built.get(key)
        if found is None:
            last = domain == reads.ROWS and not of_item
            found = self._lasting(node) if last else self._build(node, domain)
            if self._in_items and not of_item and node.level > Level.POD:
                found = _outside(found, key)
            self._built[key] = found
        return found

    def _reads_item(self, node: ir.Expr) -> bool:
        """Whether a value differs from item to item of the list that is gone through."""
        if not self._in_items:
            return False
        found = self._of_item.get(id(node))
        if found is None:
            inner = () if isinstance(node, ir.ItemAggregate) else ir.children(node)
            found = isinstance(node, ir.Item) or any(map(self._reads_item, inner))
            self._of_item[id(node)] = found
        return found

    # ---- what is computed once a generation

    def _lasting(self, node: ir.Expr) -> Run:
        """Builds a value of rows or of the cycle; what the snapshot alone decides is kept."""
        aggregate = isinstance(node, ir.NodeAggregate | ir.PodAggregate)
        of_rows = node.level is Level.NODE or (node.level is Level.CYCLE and aggregate)
        facts = self._known.of(node) if of_rows and works(node) else None
        if facts is None or not facts.lasting:
            return self._build(node, reads.ROWS)
        # A part of what is kept is kept by itself only if somebody else has it, too.
        whole, self._within = not self._within, True
        try:
            run = self._build(node, reads.ROWS)
        finally:
            self._within = not whole
        dear, scalar = whole and is_dear(facts), node.level is Level.CYCLE
        return keeping(self.memo, run, facts, dear=dear, scalar=scalar)

    def _slot(self, key: object, make: Callable[[], Run]) -> Run:
        """Returns the read of what is computed once per pod; `make` makes that, once a key."""
        place = self._slot_of.setdefault(key, len(self.slots))
        if place == len(self.slots):
            self.slots.append(make())
        return lambda frame: frame.parts[place]

    def _of_subject(self, field: str, what: str) -> Run:
        """Returns what the pod has for a field (`pairs`, `asks`), hoisted if need be."""

        def read(frame: Frame) -> Value:
            return getattr(frame.subject, what)(field)

        return self._slot((field, what), lambda: read) if self.hoist else read

    # ---- the nodes

    def _build(self, node: ir.Expr, domain: str) -> Run:  # noqa: C901 - one case a kind
        match node:
            case ir.Const():
                value = node.value
                return lambda _: value
            case ir.Read():
                return self._read(node, domain)
            case ir.KeyedRead():
                key = self.build(node.key, domain)
                return reads.keyed_read(node, key, domain, self._of_subject)
            case ir.ContainerRead():
                return reads.container_read(node)
            case ir.Metric():
                return reads.metric_read(node, domain)
            case ir.Pair():
                ends = self.build(node.left, domain), self.build(node.right, domain)
                return reads.pair_read(node, *ends)
            case ir.Named():
                # No let is about a pod of a set.
                return once(id(node.body), self.build(node.body))
            case ir.Arith():
                raw = self._arith(node, domain)
                return lambda frame: numbers.settle(raw(frame))
            case ir.Func():
                return self._func(node, domain)
            case ir.NodeAggregate():
                return self._node_aggregate(node)
            case ir.PodAggregate():
                return self._pod_aggregate(node)
            case ir.ContainerAggregate():
                return pods.one_by_one(node, self.build, pods.containers)
            case ir.Item():
                return lambda frame: frame.item
            case ir.ItemAggregate():
                return self._item_aggregate(node, domain)
            case ir.Rank():
                return self._rank(node)
            case _:
                return conditions.CONDITIONS[type(node)](self, node, domain)

    # ---- leaves

    def _read(self, node: ir.Read, domain: str) -> Run:
        field, key, kind = node.field, node.key, node.type.kind
        if node.level is Level.NODE:
            if FIELDS[field].of_outcome:
                known = field if key is None else f"{field}[{key}]"
                return lambda frame: np.full(frame.count, frame.results.get(known, MISSING))
            if not FIELDS[field].of_pod:
                return reads.node_read(field, key, kind)
            asked = self._of_subject(field, "asks")
            return lambda frame: frame.take(frame.world.node_column(field, asked(frame)))
        if node.level is Level.IT:
            return reads.it_read(field, key, kind, domain)
        if node.level is Level.POD:
            return reads.pod_read(field, key, kind)
        if field == "now":
            return lambda frame: frame.world.now
        if kind is Kind.TEXT:
            return lambda frame: frame.world.cycle_text(field)
        return lambda frame: float(frame.world.cycle_number(field))

    # ---- numbers

    def _arith(self, node: ir.Arith, domain: str) -> Run:
        """Returns the chain before infinities become missing."""
        operators = node.operators
        if node.level <= Level.POD:
            runs = [self.build(one) for one in node.operands]
            steps = [functions.ARITHMETIC[one] for one in operators]

            def scalar(frame: Frame) -> float:
                value: float = runs[0](frame)
                for step, run in zip(steps, runs[1:], strict=True):
                    value = step(value, run(frame))
                return value

            return scalar
        runs = [
            self._operand(one, domain, divisor=sign == "/")
            for sign, one in zip(("", *operators), node.operands, strict=True)
        ]
        if len(runs) == 2:  # noqa: PLR2004 - the usual case, without a list
            left, right = runs
            binary = numbers.ARITHMETIC[operators[0]]
            return lambda frame: binary(left(frame), right(frame))
        return lambda frame: numbers.chain(operators, [run(frame) for run in runs])

    def _operand(self, node: ir.Expr, domain: str, *, divisor: bool) -> Run:
        # INVARIANT: what is not finite stays so under + - * and as a dividend, so a chain may
        # settle once at its end; a divisor must be settled, since 1 / infinity would be 0.
        # What is asked of a group of pods is there already.
        apart = divisor or (id(node), domain) in self._built
        if isinstance(node, ir.Arith) and node.level > Level.POD and not apart:
            return self._arith(node, domain)
        return self.build(node, domain)

    def _func(self, node: ir.Func, domain: str) -> Run:
        name = node.name
        if node.args[0].type.kind is Kind.LIST:
            return conditions.list_function(self, node, domain)
        runs = [self.build(one, domain) for one in node.args]
        if name == "plain":
            return runs[0]
        if name in numbers.NUMBER_FUNCTIONS and node.level > Level.POD:
            columns = numbers.NUMBER_FUNCTIONS[name]
            return lambda frame: columns(*(run(frame) for run in runs))
        kind = texts.CODE if node.type.kind in (Kind.TEXT, Kind.LIST) else texts.FLOAT
        return text_function(self, _FUNCTIONS[name], node.args, domain, kind)

    # ---- aggregates

    def coded(self, node: ir.Expr, domain: str = reads.ROWS) -> Run:
        """Builds a value; texts as codes, also where one text is that of all."""
        run = self.build(node, domain)
        if node.type.kind is not Kind.TEXT:
            return run
        return lambda frame: texts.code_of(run(frame), frame.world.dictionary)

    def _each(self, node: ir.Aggregate, domain: str = reads.ROWS) -> tuple[Run | None, Run | None]:
        value, where = node.value, node.where
        return (
            None if value is None else self.coded(value, domain),
            None if where is None else self.build(where, domain),
        )

    def _node_aggregate(self, node: ir.NodeAggregate) -> Run:
        plan, over = pods.PodSum(node.function, node.over, *self._each(node), self.memo), node.over
        if node.level is Level.NODE:
            return pods.nodes_of_domains(plan)
        return lambda frame: pods.reduce_all(plan, one := frame.candidate_frame(over), one.count)

    def _pod_aggregate(self, node: ir.PodAggregate) -> Run:
        parts = asked(node)
        if parts is not None:
            run = self._across(node, parts)
        else:
            domain = reads.ITS if node.over == "node" else reads.ALL
            each = self._each(node, domain)
            run = pods.pod_aggregate(pods.PodSum(node.function, node.over, *each, self.memo))
        if node.table != "pods":
            table = node.table
            return lambda frame: run(frame.of_table(table))
        return run

    def _across(self, node: ir.PodAggregate, parts: Asked) -> Run:
        """Returns an aggregate over pods of other nodes of what differs with the node, too."""
        of_pods = tuple(self.build(one, reads.ALL) for one in parts.of_pods)
        of_node = []
        for place, one in enumerate(parts.of_pods):
            self._built[id(one), reads.GROUPS] = of_group(place)
        for place, pair in enumerate(parts.pairs):
            node_first = pair.left.level is Level.NODE
            here, there = (pair.left, pair.right) if node_first else (pair.right, pair.left)
            of_node.append(self.build(here))
            end = self.build(there, reads.GROUPS)
            found = pair_of_group(pair.id, place, end, node_first=node_first)
            self._built[id(pair), reads.GROUPS] = found
        value = None if node.value is None else self.coded(node.value, reads.GROUPS)
        first: list[Run] = []
        where: list[Run] = []
        # What asks the pods alone leaves some of them out before there are pairs; but of `all`.
        for one in ir.joined(node.where, "" if node.function == "all" else "and"):
            with_pairs = any(map(ir.is_across, ir.walk(one)))
            (where if with_pairs else first).append(self.build(one, reads.GROUPS))
        return across(
            Across(
                node.function, node.over, of_pods, tuple(of_node), parts.each, value,
                tuple(where), tuple(first),
            )
        )  # fmt: skip

    def _item_aggregate(self, node: ir.ItemAggregate, domain: str) -> Run:
        items = conditions.items_of(self, node)

        def each(frame: Frame) -> list[Frame]:
            return [frame.of_item(one) for one in items(frame)]

        self._in_items = True  # no list stands within another
        try:
            if node.level <= Level.POD:
                return pods.one_by_one(node, self.build, each)
            parts = self._each(node, domain)
        finally:
            self._in_items = False
        return pods.of_items(node, parts, each, reads.frame_count(domain))

    def _rank(self, node: ir.Rank) -> Run:
        value = self.build(node.value)

        def rank(frame: Frame) -> Value:
            there = value(frame.candidate_frame("candidates"))
            ordered = np.sort(there[~np.isnan(there)])
            raw = value(frame)
            below = np.searchsorted(ordered, raw)
            return np.where(np.isnan(raw), MISSING, below / max(len(ordered) - 1, 1))

        return rank


def _outside(run: Run, key: tuple[int, str]) -> Run:
    """Returns what is asked once for all items of a list."""
    kept = once(("outside", key), run)
    return lambda frame: run(frame) if frame.outer is None else kept(frame.outer)
