"""What a rule means, one pod and one node at a time: test oracle and voice of `explain`.

Scalars only. Reads the same world as the columns do; knows nothing of how they are computed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from dsl import functions, ir
from dsl.schema import AMOUNTS, FIELDS, request_unit
from dsl.types import MISSING, TEXT, Kind, Level, is_missing, scale_of
from dsl.world import Subject, World

#: A float, text, flag or tuple; NaN or None where it is missing.
Value = Any


@dataclass(frozen=True, slots=True)
class View:
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


def evaluate(node: ir.Expr, view: View) -> Value:  # noqa: C901 - one case a kind
    """Returns the value of an expression: float, text, flag or tuple; None or NaN = missing."""
    match node:
        case ir.Const():
            return node.value
        case ir.Read() if node.field.startswith(("score", "victims.")):
            known = node.field if node.key is None else f"{node.field}[{node.key}]"
            return view.results.get(known, MISSING)
        case ir.Read():
            return _read(node, view)
        case ir.KeyedRead():
            return _keyed(node, view)
        case ir.ContainerRead():
            return _container(node, view)
        case ir.Metric():
            return _metric(node, view)
        case ir.Pair():
            left, right = evaluate(node.left, view), evaluate(node.right, view)
            missing = left is None or right is None
            return MISSING if missing else float(view.world.pair(node.id, left, right))
        case ir.Named():
            key = (id(node.body), view.row, view.pod)
            if key not in view.known:
                view.known[key] = evaluate(node.body, view)
            return view.known[key]
        case ir.Arith():
            return _arith(node, view)
        case ir.Negate():
            return -evaluate(node.operand, view)
        case ir.Func():
            return _call(node, [evaluate(one, view) for one in node.args])
        case ir.NodeAggregate():
            return _reduce(node, _nodes(node.over, view))
        case ir.PodAggregate():
            return _pod_aggregate(node, view)
        case ir.ContainerAggregate():
            places = range(view.subject.containers)
            return _reduce(node, (replace(view, container=place) for place in places))
        case ir.Item():
            return view.item
        case ir.ItemAggregate():
            items = (evaluate(node.items, view) or ())[: node.most]
            return _reduce(node, (replace(view, item=one) for one in items))
        case ir.Rank():
            others = (evaluate(node.value, one) for one in _nodes("candidates", view))
            return functions.share_of_smaller(evaluate(node.value, view), others)
        case ir.Coalesce():
            values = (evaluate(one, view) for one in node.operands)
            return next((one for one in values if not is_missing(one)), _missing(node))
        case ir.If():
            chosen = node.then if evaluate(node.condition, view) else node.other
            return evaluate(chosen, view)
        case _:
            return _holds(node, view)


def _holds(node: ir.Expr, view: View) -> bool:
    match node:
        case ir.Compare():
            return _compare(node.operator, evaluate(node.left, view), evaluate(node.right, view))
        case ir.TextTest():
            left, right = evaluate(node.left, view), evaluate(node.right, view)
            if left is None or right is None:
                return False
            return functions.TEXT_TESTS[node.operator](left, right)
        case ir.Member():
            return evaluate(node.item, view) in (evaluate(node.items, view) or ())
        case ir.Between():
            return bool(node.low <= evaluate(node.item, view) <= node.high)
        case ir.Missing():
            return is_missing(evaluate(node.operand, view))
        case ir.Logical():
            values = (evaluate(one, view) for one in node.operands)
            return all(values) if node.operator == "and" else any(values)
        case ir.Not():
            return not evaluate(node.operand, view)
        case _:
            raise AssertionError(node)


def _missing(node: ir.Expr) -> float | None:
    return None if node.type.kind in (Kind.TEXT, Kind.LIST) else MISSING


def _compare(operator: str, left: Value, right: Value) -> bool:
    if is_missing(left) or is_missing(right):
        return False
    return bool(functions.COMPARISONS[operator](left, right))


def _arith(node: ir.Arith, view: View) -> float:
    value = cast("float", evaluate(node.operands[0], view))
    for operator, operand in zip(node.operators, node.operands[1:], strict=True):
        value = functions.ARITHMETIC[operator](value, evaluate(operand, view))
    return value


def _call(node: ir.Func, args: list[Value]) -> Value:
    if any(is_missing(one) for one in args):
        return _missing(node)
    name = node.name
    if name == "plain":
        return args[0]
    if name in functions.REDUCERS:
        return functions.REDUCERS[name](args)
    if name == "string":
        return functions.number_text(args[0])
    if name == "item":
        found = functions.item(*args)
        return _missing(node) if found is None else found
    if name in functions.TEXT_FUNCTIONS:
        return functions.TEXT_FUNCTIONS[name](*args)
    return functions.NUMBER_FUNCTIONS[name](*args)


# ---- reads


def _read(node: ir.Read, view: View) -> Value:
    world, field_name, key = view.world, node.field, node.key
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
    column = getattr(world, f"{owner}_{_READERS.get(node.type.kind, 'number')}")(field_name, key)
    value = column[place].item()
    if node.type.kind is not Kind.TEXT:
        return value
    return None if value < 0 else world.dictionary.texts[value]


_READERS: Final = {Kind.TEXT: "text", Kind.BOOL: "flag"}


def _read_subject(node: ir.Read, subject: Subject) -> Value:
    if node.type.kind is Kind.LIST:
        return subject.texts(node.field)
    return getattr(subject, _READERS.get(node.type.kind, "number"))(node.field, node.key)


def _keyed(node: ir.KeyedRead, view: View) -> Value:
    key = evaluate(node.key, view)
    if key is None:
        return False if node.type.kind is Kind.BOOL else _missing(node)
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


def _pod_aggregate(node: ir.PodAggregate, view: View) -> Value:
    if node.table != "pods":
        view = replace(view, world=view.world.pod_table(node.table), known={})
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
    value, where, function = node.value, node.where, node.function
    if function == "all" and value is None:
        # Of a condition alone, all must fulfil it; with a value, those that it selects.
        return all(where is None or evaluate(where, one) for one in views)
    chosen = (one for one in views if where is None or evaluate(where, one))
    values = (True if value is None else evaluate(value, one) for one in chosen)
    match function:
        case "count":
            return float(sum(1 for one in values if one))
        case "any":
            return any(values)
        case "all":
            return all(values)
        case _:
            return functions.REDUCERS[function](values)


def asked(view: View) -> Callable[[ir.Expr], Value]:
    """Returns what gives the values of expressions in a view, for `dsl.words`."""
    return lambda node: evaluate(node, view)
