"""Typed expressions become closures over columns.

An expression below node level runs as a Python scalar; at node level as an array over the rows of
the frame; at `it` level as an array over pods. Parts that only the pod decides are hoisted: they
are computed once per pod and become its class key.
"""

import math
import operator
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from dsl import functions, ir
from dsl.lower import numbers, pods, texts
from dsl.lower.frame import Frame, Memo, Run, Value
from dsl.types import MISSING, Kind, Level, Type

_COMPARE: Final[dict[str, Callable[[Value, Value], Value]]] = {
    "==": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
#: Domains of an expression: rows of nodes, pods on those rows, all pods.
ROWS, ITS, ALL = "rows", "its", "all"
_MEMO_ROWS: Final = 16


def missing_of(kind: Type) -> float | None:
    """Returns the missing value of a scalar."""
    return None if kind.kind is Kind.TEXT else MISSING


class Builder:
    """Builds the closures of one rule.

    With `hoist`, parts that only the pod decides become `slots`; without, they are read from the
    frame's subject.
    """

    def __init__(self, memo: Memo, *, hoist: bool) -> None:
        self.memo = memo
        self.hoist = hoist
        self.slots: list[Run] = []
        self._slot_of: dict[int, int] = {}
        self._built: dict[tuple[int, str], Run] = {}
        self._plain: dict[int, bool] = {}
        self._kept: list[ir.Expr] = []

    # ---- hoisting

    def build(self, node: ir.Expr, domain: str = ROWS) -> Run:
        """Returns the closure of an expression in a domain."""
        if self.hoist and node.level is Level.POD and self._without_aggregates(node):
            return self._slot(node)
        if domain != ROWS and node.level <= Level.NODE:
            run = self.build(node, ROWS)
            return self._gathered(run) if node.level is Level.NODE else run
        key = (id(node), domain)
        found = self._built.get(key)
        if found is None:
            self._kept.append(node)
            found = self._build(node, domain)
            self._built[key] = found
        return found

    def _without_aggregates(self, node: ir.Expr) -> bool:
        found = self._plain.get(id(node))
        if found is None:
            found = not any(
                isinstance(one, ir.NodeAggregate | ir.PodAggregate) for one in ir.walk(node)
            )
            self._plain[id(node)] = found
            self._kept.append(node)
        return found

    def _slot(self, node: ir.Expr) -> Run:
        body = node.body if isinstance(node, ir.Named) else node
        place = self._slot_of.get(id(body))
        if place is None:
            place = len(self.slots)
            self.slots.append(Builder(self.memo, hoist=False).build(body))
            self._slot_of[id(body)] = place
            self._kept.append(body)

        def slot(frame: Frame, place: int = place) -> Value:
            return frame.parts[place]

        return slot

    def _gathered(self, run: Run) -> Run:
        def gathered(frame: Frame) -> Value:
            return run(frame)[frame.pods()[1]]

        return gathered

    # ---- the nodes

    def _build(self, node: ir.Expr, domain: str) -> Run:
        match node:
            case ir.Const():
                value = node.value
                return lambda _: value
            case ir.Read():
                return self._read(node, domain)
            case ir.Metric():
                return self._metric(node)
            case ir.Named():
                return self._named(node, domain)
            case ir.Arith():
                raw = self._arith(node, domain)
                return lambda frame: numbers.settle(raw(frame))
            case ir.Negate():
                operand = self.build(node.operand, domain)
                return lambda frame: -operand(frame)
            case ir.Func():
                return self._func(node, domain)
            case ir.NodeAggregate():
                return self._node_aggregate(node)
            case ir.PodAggregate():
                return self._pod_aggregate(node)
            case _:
                return self._test(node, domain)

    def _test(self, node: ir.Expr, domain: str) -> Run:  # noqa: C901 - one case a kind
        match node:
            case ir.Compare():
                return self._compare(node, domain)
            case ir.TextTest():
                function = functions.TEXT_TESTS[node.operator]
                return self._text_function(function, (node.left, node.right), domain, BOOLEAN)
            case ir.Member():
                return self._member(node, domain)
            case ir.Between():
                return self._between(node, domain)
            case ir.Missing():
                return self._missing(node, domain)
            case ir.Coalesce():
                return self._coalesce(node, domain)
            case ir.Logical():
                return self._logical(node, domain)
            case ir.Not():
                operand = self.build(node.operand, domain)
                if node.level <= Level.POD:
                    return lambda frame: not operand(frame)
                return lambda frame: ~operand(frame)
            case ir.If():
                return self._if(node, domain)
            case _:
                raise AssertionError(node)

    # ---- leaves

    def _read(self, node: ir.Read, domain: str) -> Run:
        field, key, kind = node.field, node.key, node.type.kind
        if node.level is Level.NODE:
            return _node_read(field, key, kind)
        if node.level is Level.IT:
            return _it_read(field, key, kind, everywhere=domain == ALL)
        if node.level is Level.POD:
            return _pod_read(field, key, kind)
        if field == "now":
            return lambda frame: frame.world.now
        if kind is Kind.TEXT:
            return lambda frame: frame.world.cycle_text(field)
        return lambda frame: float(frame.world.cycle_number(field))

    def _metric(self, node: ir.Metric) -> Run:
        name, age = node.id, node.age
        key = ("metric", name, age)

        def metric(frame: Frame) -> Value:
            found = frame.cache.get(key)
            if found is None:
                world = frame.world
                column = world.metric_age(name) if age else world.metric(name)
                found = frame.cache[key] = frame.take(column)
            return found

        return metric

    def _named(self, node: ir.Named, domain: str) -> Run:
        body = self.build(node.body, domain)
        key = (id(node.body), domain)

        def named(frame: Frame) -> Value:
            cache = frame.cache
            if key not in cache:
                cache[key] = body(frame)
            return cache[key]

        return named

    # ---- numbers

    def _arith(self, node: ir.Arith, domain: str) -> Run:
        """Returns the chain before infinities become missing."""
        operators = node.operators
        if node.level <= Level.POD:
            runs = [self.build(one, domain) for one in node.operands]
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
            sign = operators[0]
            binary = numbers.divide if sign == "/" else _SIGNS[sign]
            return lambda frame: binary(left(frame), right(frame))
        return lambda frame: numbers.chain(operators, [run(frame) for run in runs])

    def _operand(self, node: ir.Expr, domain: str, *, divisor: bool) -> Run:
        # INVARIANT: what is not finite stays so under + - * and as a dividend, so a chain may
        # settle once at its end; a divisor must be settled, since 1 / infinity would be 0.
        here = domain == ROWS or node.level is Level.IT
        if isinstance(node, ir.Arith) and not divisor and node.level > Level.POD and here:
            return self._arith(node, domain)
        return self.build(node, domain)

    def _func(self, node: ir.Func, domain: str) -> Run:
        name = node.name
        runs = [self.build(one, domain) for one in node.args]
        scalar = node.level <= Level.POD
        if name == "plain":
            return runs[0]
        if name in ("min", "max", "median"):
            return _element_wise(name, runs, scalar=scalar)
        if name == "string":
            return _string(runs[0], scalar=scalar)
        if name == "len" and node.args[0].type.kind is Kind.LIST:
            return lambda frame: float(len(runs[0](frame)))
        if name in functions.TEXT_FUNCTIONS:
            kind = {Kind.TEXT: CODE}.get(node.type.kind, FLOAT)
            return self._text_function(functions.TEXT_FUNCTIONS[name], node.args, domain, kind)
        if scalar:
            function = functions.NUMBER_FUNCTIONS[name]
            return lambda frame: function(*(run(frame) for run in runs))
        columns = numbers.NUMBER_FUNCTIONS[name]
        return lambda frame: columns(*(run(frame) for run in runs))

    # ---- texts

    def _text_function(
        self,
        function: Callable[..., Value],
        args: tuple[ir.Expr, ...],
        domain: str,
        kind: "_Result",
    ) -> Run:
        runs = [self.build(one, domain) for one in args]
        columns = [place for place, one in enumerate(args) if one.level > Level.POD]
        if not columns:
            return _scalar_text(function, runs, kind)
        if len(columns) > 1:
            return _several_columns(function, runs, kind)
        place = columns[0]
        tables = texts.Tables(function, kind.missing, kind.dtype)
        interns = kind is CODE

        def one_column(frame: Frame) -> Value:
            values = [run(frame) for run in runs]
            codes = values.pop(place)
            if None in values:
                return np.full(len(codes), kind.missing, kind.dtype)
            dictionary = frame.world.dictionary
            if interns:
                return _map_codes(function, place, codes, values, dictionary)
            return tables.of(place, tuple(values)).take(codes, dictionary)

        return one_column

    def _compare(self, node: ir.Compare, domain: str) -> Run:
        left, right = self.build(node.left, domain), self.build(node.right, domain)
        scalar = node.level <= Level.POD
        if node.left.type.kind is Kind.TEXT:
            if scalar:

                def same(frame: Frame) -> bool:
                    value = left(frame)
                    return value is not None and value == right(frame)

                return same
            return lambda frame: texts.equal(left(frame), right(frame), frame.world.dictionary)
        test = _COMPARE[node.operator]
        return lambda frame: test(left(frame), right(frame))

    def _member(self, node: ir.Member, domain: str) -> Run:
        item, items = self.build(node.item, domain), self.build(node.items, domain)
        is_text = node.item.type.kind is Kind.TEXT
        if node.level <= Level.POD:
            return lambda frame: item(frame) in items(frame)
        if node.item.level <= Level.POD:
            raise AssertionError(node)
        if is_text:
            return lambda frame: texts.member(item(frame), items(frame), frame.world.dictionary)
        return lambda frame: np.isin(item(frame), np.array(items(frame), np.float64))

    # ---- logic

    def _between(self, node: ir.Between, domain: str) -> Run:
        item, low, high = self.build(node.item, domain), node.low, node.high
        if node.level <= Level.POD:
            return lambda frame: low <= item(frame) <= high

        def between(frame: Frame) -> Value:
            column = item(frame)
            return (column >= low) & (column <= high)

        return between

    def _missing(self, node: ir.Missing, domain: str) -> Run:
        operand = self.build(node.operand, domain)
        is_text = node.operand.type.kind is Kind.TEXT
        if node.level <= Level.POD:
            if is_text:
                return lambda frame: operand(frame) is None
            return lambda frame: math.isnan(operand(frame))
        if is_text:
            return lambda frame: operand(frame) < 0
        return lambda frame: np.isnan(operand(frame))

    def _coalesce(self, node: ir.Coalesce, domain: str) -> Run:
        runs = [self.build(one, domain) for one in node.operands]
        is_text = node.type.kind is Kind.TEXT
        if node.level <= Level.POD:

            def first(frame: Frame) -> Value:
                for run in runs:
                    value = run(frame)
                    if value is not None and value == value:
                        return value
                return missing_of(node.type)

            return first

        def columns(frame: Frame) -> Value:
            dictionary = frame.world.dictionary
            result: Value = None
            for run in reversed(runs):
                value = texts.code_of(run(frame), dictionary) if is_text else run(frame)
                if result is None:
                    result = value
                    continue
                gone = value < 0 if is_text else np.isnan(value)
                result = np.where(gone, result, value)
            return result

        return _array_of(columns, frame_count(domain))

    def _logical(self, node: ir.Logical, domain: str) -> Run:
        runs = [self.build(one, domain) for one in node.operands]
        if node.level <= Level.POD:
            if node.operator == "and":
                return lambda frame: all(run(frame) for run in runs)
            return lambda frame: any(run(frame) for run in runs)
        join = operator.and_ if node.operator == "and" else operator.or_

        def logical(frame: Frame) -> Value:
            result = runs[0](frame)
            for run in runs[1:]:
                result = join(result, run(frame))
            return result

        return logical

    def _if(self, node: ir.If, domain: str) -> Run:
        condition = self.build(node.condition, domain)
        then, other = self.build(node.then, domain), self.build(node.other, domain)
        if node.level <= Level.POD:
            return lambda frame: then(frame) if condition(frame) else other(frame)
        is_text = node.type.kind is Kind.TEXT

        def choose(frame: Frame) -> Value:
            yes, no = then(frame), other(frame)
            if is_text:
                dictionary = frame.world.dictionary
                yes, no = texts.code_of(yes, dictionary), texts.code_of(no, dictionary)
            return np.where(condition(frame), yes, no)

        return _array_of(choose, frame_count(domain))

    # ---- aggregates

    def _node_aggregate(self, node: ir.NodeAggregate) -> Run:
        value = self.build(node.value) if node.value is not None else None
        where = self.build(node.where) if node.where is not None else None
        function, over = node.function, node.over
        key = ("aggregate", id(node))

        def aggregate(frame: Frame) -> Value:
            if key in frame.cache:
                return frame.cache[key]
            inner = frame.candidate_frame(over)
            result = pods.reduce_nodes(function, inner, value, where)
            frame.cache[key] = result
            return result

        return aggregate

    def _pod_aggregate(self, node: ir.PodAggregate) -> Run:
        domain = ITS if node.over == "node" else ALL
        value = self.build(node.value, domain) if node.value is not None else None
        where = self.build(node.where, domain) if node.where is not None else None
        run = pods.pod_aggregate(node.function, node.over, value, where)
        if not _snapshot_only(node):
            return run
        return self._remembered(run, id(node), scalar=node.over == "cluster")

    def _remembered(self, run: Run, key: int, *, scalar: bool) -> Run:
        """Keeps a column that the snapshot alone decides; single rows are computed anew."""
        memo = self.memo

        def remembered(frame: Frame) -> Value:
            kept = memo.of(frame.world)
            column = kept.get(key)
            if column is None:
                few = not isinstance(frame.rows, slice) and frame.count <= _MEMO_ROWS
                if few and not scalar:
                    return run(frame)
                full = Frame(frame.world, slice(0, frame.world.nodes))
                column = kept[key] = run(full)
            return column if scalar else frame.take(column)

        return remembered


_SIGNS: Final[dict[str, Callable[[Value, Value], Value]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


def _snapshot_only(node: ir.Expr) -> bool:
    """Whether a value depends on nothing but the rows of the snapshot: no pod, no time."""
    return not any(
        isinstance(one, ir.NodeAggregate | ir.Metric)
        or one.level is Level.POD
        or (isinstance(one, ir.Read) and one.level is Level.CYCLE)
        for one in ir.walk(node)
    )


def frame_count(domain: str) -> Callable[[Frame], int]:
    """Returns how many values an array of a domain has."""
    if domain == ROWS:
        return lambda frame: frame.count
    if domain == ITS:
        return lambda frame: len(frame.pods()[1])
    return pods.count_all


def _array_of(run: Run, count: Callable[[Frame], int]) -> Run:
    """Makes sure that a column is an array, also where all its parts are scalars."""

    def array(frame: Frame) -> Value:
        value = run(frame)
        if isinstance(value, np.ndarray) and value.ndim:
            return value
        return np.full(count(frame), value)

    return array


# ---- reads


def _node_read(field: str, key: str | None, kind: Kind) -> Run:
    name = (field, key)

    def read(frame: Frame) -> Value:
        found = frame.cache.get(name)
        if found is None:
            world = frame.world
            if kind is Kind.TEXT:
                column: Value = world.node_text(field, key)
            elif kind is Kind.BOOL:
                column = world.node_flag(field, key)
            else:
                column = world.node_number(field, key)
            found = frame.cache[name] = frame.take(column)
        return found

    return read


def _it_read(field: str, key: str | None, kind: Kind, *, everywhere: bool) -> Run:
    name = (field, key, everywhere)

    def read(frame: Frame) -> Value:
        found = frame.cache.get(name)
        if found is None:
            world = frame.world
            if kind is Kind.TEXT:
                column: Value = world.pod_text(field, key)
            elif kind is Kind.BOOL:
                column = world.pod_flag(field, key)
            else:
                column = world.pod_number(field, key)
            chosen = pods.all_pods(frame)[0] if everywhere else frame.pods()[0]
            found = frame.cache[name] = column[chosen]
        return found

    return read


def _pod_read(field: str, key: str | None, kind: Kind) -> Run:
    if kind is Kind.TEXT:
        return lambda frame: frame.subject.text(field, key)  # type: ignore[union-attr]
    if kind is Kind.LIST:
        return lambda frame: frame.subject.texts(field)  # type: ignore[union-attr]
    if kind is Kind.BOOL:
        return lambda frame: frame.subject.flag(field, key)  # type: ignore[union-attr]
    return lambda frame: frame.subject.number(field, key)  # type: ignore[union-attr]


# ---- functions of texts and numbers


class _Result(NamedTuple):
    """What a function of texts gives, as a column."""

    missing: float | bool
    dtype: type[np.generic]


BOOLEAN: Final = _Result(missing=False, dtype=np.bool_)
FLOAT: Final = _Result(MISSING, np.float64)
CODE: Final = _Result(-1, np.int32)


def _scalar_text(function: Callable[..., Value], runs: list[Run], kind: _Result) -> Run:
    missing = None if kind is CODE else kind.missing

    def scalar(frame: Frame) -> Value:
        values = [run(frame) for run in runs]
        return missing if None in values else function(*values)

    return scalar


def _map_codes(
    function: Callable[..., Value], place: int, codes: Value, others: list[Value], dictionary: Value
) -> Value:
    distinct, back = np.unique(codes, return_inverse=True)
    known = dictionary.texts
    out = []
    for code in distinct.tolist():
        text = None if code < 0 else function(*others[:place], known[code], *others[place:])
        out.append(-1 if text is None else dictionary.code(text))
    return np.array(out, np.int32)[back]


def _several_columns(function: Callable[..., Value], runs: list[Run], kind: _Result) -> Run:
    def several(frame: Frame) -> Value:
        dictionary = frame.world.dictionary
        values = texts.pairwise(function, tuple(run(frame) for run in runs), dictionary)
        if kind is CODE:
            values = [-1 if one is None else dictionary.code(one) for one in values]
        else:
            values = [kind.missing if one is None else one for one in values]
        return np.array(values, kind.dtype)

    return several


def _string(run: Run, *, scalar: bool) -> Run:
    def text_of(value: float) -> str | None:
        return None if math.isnan(value) else functions.number_text(value)

    if scalar:
        return lambda frame: text_of(run(frame))

    def column(frame: Frame) -> Value:
        dictionary = frame.world.dictionary
        distinct, back = np.unique(run(frame), return_inverse=True)
        shown = [text_of(one) for one in distinct.tolist()]
        codes = [-1 if one is None else dictionary.code(one) for one in shown]
        return np.array(codes, np.int32)[back]

    return column


def _element_wise(name: str, runs: list[Run], *, scalar: bool) -> Run:
    if scalar:
        pick = functions.REDUCERS[name]

        def one(frame: Frame) -> float:
            values = [run(frame) for run in runs]
            return MISSING if any(math.isnan(value) for value in values) else pick(values)

        return one
    if name == "median":
        return lambda frame: numbers.median_of([run(frame) for run in runs])
    join = np.minimum if name == "min" else np.maximum

    def columns(frame: Frame) -> Value:
        result = runs[0](frame)
        for run in runs[1:]:
            result = join(result, run(frame))
        return result

    return columns
