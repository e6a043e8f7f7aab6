"""What a rule means, one pod and one node at a time: test oracle and voice of `explain`.

Scalars only. Reads the same world as the columns do; knows nothing of how they are computed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from msgspec import Struct, field
from msgspec.structs import replace

from dsl import functions, ir
from dsl.schema import AMOUNTS, FIELDS, request_unit
from dsl.types import MISSING, READERS, TEXT, Kind, Level, is_missing, scale_of
from dsl.world import Subject, World

#: A float, text, flag or tuple; NaN or None where it is missing.
Value = Any


class View(Struct, frozen=True):
    """Where an expression is looked at: a pod to place, a node, a pod of a set.

    `candidates` are the rows that aggregates of nodes run over; None means all nodes.
    """

    world: World
    subject: Subject
    row: int
    candidates: tuple[int, ...] | None = None
    pod: int = -1
    container: int = -1
    item: Value = None
    known: dict[tuple[int, int, int], Value] = field(default_factory=dict)
    results: Mapping[str, float] = field(default_factory=dict)


def evaluate(node: ir.Expr, view: View) -> Value:
    """Returns the value of an expression: float, text, flag or tuple; None or NaN = missing."""
    return _MEANINGS[type(node)](node, view)


def asked(view: View) -> Callable[[ir.Expr], Value]:
    """Returns what gives the values of expressions in a view, for `dsl.reasons`."""
    return lambda node: evaluate(node, view)


def _each(nodes: Iterable[ir.Expr], view: View) -> Iterator[Value]:
    return (evaluate(one, view) for one in nodes)


def _named(node: ir.Named, view: View) -> Value:
    key = (id(node.body), view.row, view.pod)
    if key not in view.known:
        view.known[key] = evaluate(node.body, view)
    return view.known[key]


def _test(tests: Mapping[str, Callable[[Any, Any], Any]]) -> Callable[[Any, View], bool]:
    """Returns the meaning of tests of two values, false where one is missing."""

    def test(node: ir.Compare | ir.TextTest, view: View) -> bool:
        sides = tuple(_each((node.left, node.right), view))
        return not any(map(is_missing, sides)) and bool(tests[node.operator](*sides))

    return test


def _pair(node: ir.Pair, view: View) -> float:
    ends = tuple(_each((node.left, node.right), view))
    return MISSING if None in ends else float(view.world.pair(node.id, *ends))


def _first(node: ir.Coalesce, view: View) -> Value:
    there = (one for one in _each(node.operands, view) if not is_missing(one))
    return next(there, node.type.missing)


def _arith(node: ir.Arith, view: View) -> float:
    value = cast("float", evaluate(node.operands[0], view))
    for operator, operand in zip(node.operators, node.operands[1:], strict=True):
        value = functions.ARITHMETIC[operator](value, evaluate(operand, view))
    return value


def _call(node: ir.Func, view: View) -> Value:
    args = list(_each(node.args, view))
    if any(is_missing(one) for one in args):
        return node.type.missing
    name = node.name
    if name == "plain":
        return args[0]
    if name == "item":
        found = functions.item(*args)
        return node.type.missing if found is None else found
    if name in functions.TEXT_FUNCTIONS:
        return functions.TEXT_FUNCTIONS[name](*args)
    return functions.NUMBER_FUNCTIONS[name](*args)


# ---- reads


def _read(node: ir.Read, view: View) -> Value:
    world, field_name, key = view.world, node.field, node.key
    if FIELDS[field_name].of_outcome:
        return view.results.get(field_name if key is None else f"{field_name}[{key}]", MISSING)
    if node.level is Level.POD:
        return _read_subject(node, view.subject)
    if node.level is Level.CYCLE:
        if field_name == "now":
            return world.now
        if node.type == TEXT:
            return world.cycle_text(field_name)
        return float(world.cycle_number(field_name))
    of_node = field_name.startswith("node.")
    place = view.row if node.level is Level.NODE else view.pod
    if of_node and node.level is Level.IT:
        place = int(world.pod_node[place])
    if FIELDS[field_name].of_pod:
        return world.node_column(field_name, view.subject.asks(field_name))[place].item()
    if node.type.kind is Kind.LIST:
        starts, items = world.node_texts(field_name)
        texts = world.dictionary.texts
        return tuple(texts[code] for code in items[starts[place] : starts[place + 1]].tolist())
    owner = "node" if of_node else "pod"
    column = getattr(world, f"{owner}_{READERS.get(node.type.kind, 'number')}")(field_name, key)
    value = column[place].item()
    if node.type.kind is not Kind.TEXT:
        return value
    return None if value < 0 else world.dictionary.texts[value]


def _read_subject(node: ir.Read, subject: Subject) -> Value:
    if node.type.kind is Kind.LIST:
        return subject.texts(node.field)
    return getattr(subject, READERS.get(node.type.kind, "number"))(node.field, node.key)


def _keyed(node: ir.KeyedRead, view: View) -> Value:
    key = evaluate(node.key, view)
    if key is None:
        return False if node.type.kind is Kind.BOOL else node.type.missing
    level = FIELDS[node.field].level
    read = ir.Read(span=node.span, type=node.type, level=level, field=node.field, key=key)
    value = _read(read, view)
    return value / scale_of(request_unit(key)) if node.field in AMOUNTS else value


def _container(node: ir.ContainerRead, view: View) -> Value:
    if node.type.kind is Kind.TEXT:
        return view.subject.container_text(view.container, node.field)
    return float(view.subject.container_number(view.container, node.field, node.key))


def _metric(node: ir.Metric, view: View) -> float:
    world = view.world
    if node.of == "cluster":
        return float(world.cluster_metric(node.id))
    if node.level is Level.IT:
        return float(world.pod_metric(node.id)[view.pod])
    if node.level is Level.POD:
        return float(view.subject.metric(node.id))
    column = world.metric_age(node.id) if node.age else world.metric(node.id)
    return float(column[view.row])


# ---- aggregates


def _nodes(over: str, view: View) -> Iterator[View]:
    rows: Sequence[int]
    if over != "candidates" or view.candidates is None:
        rows = [row for row, there in enumerate(view.world.present.tolist()) if there]
    else:
        rows = view.candidates
    if over not in ("nodes", "candidates"):
        codes = _domain(over, view.world)
        rows = [row for row in rows if codes[row] >= 0 and codes[row] == codes[view.row]]
    return (replace(view, row=row, pod=-1) for row in rows)


def _rank(node: ir.Rank, view: View) -> float:
    others = (evaluate(node.value, one) for one in _nodes("candidates", view))
    return functions.share_of_smaller(evaluate(node.value, view), others)


def _pod_aggregate(node: ir.PodAggregate, view: View) -> Value:
    if node.table != "pods":
        view = replace(view, world=view.world.pod_table(node.table))
    if node.over == "node":
        # Not all pods: a message about one node may be due while 100,000 run.
        pods: list[int] = view.world.pods_on(view.row).tolist() if view.row >= 0 else []
        return _reduce(node, (replace(view, pod=pod) for pod in pods))
    places = view.world.pod_node.tolist()
    codes = _domain(node.over, view.world)

    def belongs(place: int) -> bool:
        if place < 0 or node.over == "cluster":
            return place >= 0
        return bool(codes[place] >= 0 and codes[place] == codes[view.row])

    return _reduce(
        node, (replace(view, pod=pod) for pod, place in enumerate(places) if belongs(place))
    )


def _domain(over: str, world: World) -> list[int]:
    """Returns the domain of each node, below 0 where it has none."""
    if over == "cluster":
        return []
    field_name, _, key = over.partition(":")
    codes: list[int] = world.node_text(f"node.{field_name}", key or None).tolist()
    return codes


def _reduce(node: ir.Aggregate, views: Iterator[View]) -> Value:
    value, where = node.value, node.where
    if value is None:
        found = (where is None or evaluate(where, one) for one in views)
    else:
        found = (evaluate(value, one) for one in views if where is None or evaluate(where, one))
    return functions.REDUCERS[node.function](found)


_MEANINGS: Final[Mapping[type, Callable[[Any, View], Value]]] = {
    ir.Const: lambda node, _: node.value,
    ir.Read: _read,
    ir.KeyedRead: _keyed,
    ir.ContainerRead: _container,
    ir.Metric: _metric,
    ir.Pair: _pair,
    ir.Named: _named,
    ir.Arith: _arith,
    ir.Func: _call,
    ir.NodeAggregate: lambda node, view: _reduce(node, _nodes(node.over, view)),
    ir.PodAggregate: _pod_aggregate,
    ir.ContainerAggregate: lambda node, view: _reduce(
        node, (replace(view, container=place) for place in range(view.subject.containers))
    ),
    ir.Item: lambda _, view: view.item,
    ir.ItemAggregate: lambda node, view: _reduce(
        node, (replace(view, item=one) for one in (evaluate(node.items, view) or ())[: node.most])
    ),
    ir.Rank: _rank,
    ir.Coalesce: _first,
    ir.If: lambda node, view: evaluate(
        node.then if evaluate(node.condition, view) else node.other, view
    ),
    ir.Compare: _test(functions.COMPARISONS),
    ir.TextTest: _test(functions.TEXT_TESTS),
    ir.Member: lambda node, view: evaluate(node.item, view) in (evaluate(node.items, view) or ()),
    ir.Missing: lambda node, view: is_missing(evaluate(node.operand, view)),
    ir.Logical: lambda node, view: (all if node.operator == "and" else any)(
        _each(node.operands, view)
    ),
    ir.Not: lambda node, view: not evaluate(node.operand, view),
}
