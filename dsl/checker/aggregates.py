"""Aggregates over pods, nodes, containers and lists, and what a bare `max` means.

What is asked of each item of a list is understood once; `it` alone is the item there:
`any(split(pod.annotation[x], ",") where it == node.zone)`.
"""

from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from dsl import ir, making
from dsl import syntax as s
from dsl.checker.declarations import find_metric
from dsl.checker.names import fixed_text
from dsl.checker.scope import Refused
from dsl.checker.typer import Typer
from dsl.making import arith, constant, func, made
from dsl.schema import FIELDS, NODE_SETS, POD_SETS, canonical
from dsl.types import BOOL, NUMBER, Kind, Level, Type

_ALL_NODES: Final = ("nodes", "candidates")
_NODE_CALLS: Final = ("peers", "metric_age")
_MAX_SHOWN: Final = 3
_CONTAINERS: Final = "pod.containers"
#: How many there are; what is gone through, all of them.
_CLUSTER: Final = "cluster.nodes"
#: A number, and a condition, of each of what is gone through, for examples.
_EXAMPLES: Final = {
    "pods": ("it.cpu over {}", "{} where it.priority > 0"),
    "nodes": ("node.cpu.free over {}", "{} where node.ready"),
    "containers": ("it.limit[memory] over {}", "{} where it.request[cpu] > 0"),
}
#: What asks of a value and is no number, and what is the same for all nodes.
_ASKED: Final = (s.Compare, s.TextTest, s.Is, s.IsMissing, s.In)
_FIXED: Final = (s.Number, s.Percent, s.Param)
#: What has a value of its own for each node.
OF_NODE: Final = (ir.Read, ir.KeyedRead, ir.Metric, ir.Pair, ir.PodAggregate, ir.Item)
_READS: Final = (ir.Read, ir.KeyedRead, ir.Metric, ir.ContainerAggregate, ir.Item)


class Set(NamedTuple):
    """What an aggregate runs over: pods, nodes or containers, of which domain; as written."""

    things: str
    over: str
    text: str
    table: str = "pods"


def aggregate(typer: Typer, node: s.Aggregate) -> ir.Expr:
    """Returns the meaning of an aggregate."""
    if not node.args:
        return _bare(typer, node)
    if len(node.args) > 1:
        return _element_wise(typer, node)
    of = _set(typer, node.over or node.args[0])
    written = node.args[0] if node.over is not None else None
    if of is None:
        items = list_of(typer, node)
        if items is not None:
            return over_list(typer, node, items)
        if node.over is not None:
            raise _no_set(typer, node.over)
        of, written = Set("nodes", "candidates", ""), node.args[0]
    if written is None and (
        node.function not in ir.TESTS or (node.where is None and node.function != "count")
    ):
        tests = node.function in ir.TESTS
        example = _EXAMPLES[of.things][tests].format(of.text)
        wants = "condition" if tests else f"value of each of the {of.things}"
        message, help_ = f"`{node.function}` needs a {wants}", f"write  {node.function}({example})"
        raise typer.refuse("P209", message, node, help_)
    pods, containers = of.things == "pods", of.things == "containers"
    placed = of.table != "queue"
    each = replace(typer.place, pods=pods, placed=placed, containers=containers)
    with typer.inside(each if pods or containers else typer.place):
        value = None if written is None else value_of(typer, node.function, written)
        where = None if node.where is None else where_of(typer, node.where)
        if pods:
            asks_each(typer, value, where)
    return _over(typer, node, of, (value, where))


def _set(typer: Typer, node: s.Expr) -> Set | None:
    if isinstance(node, s.Name) and node.name in _ALL_NODES:
        return Set("nodes", node.name, node.name)
    if isinstance(node, s.Call) and node.name in ("pods_in", "nodes_in"):
        return Set(node.name.removesuffix("_in"), _label_of(typer, node), typer.text(node))
    if not isinstance(node, s.Field) or node.key is not None or node.tail:
        return None
    name = canonical(node.path)
    if name == _CONTAINERS:
        return Set("containers", "", name)
    if name == _CLUSTER:
        return Set("nodes", "nodes", name)
    if name in NODE_SETS:
        return Set("nodes", NODE_SETS[name], name)
    if name not in POD_SETS:
        return None
    over, table = POD_SETS[name]
    return Set("pods", over, name, table)


def _label_of(typer: Typer, node: s.Call) -> str:
    """Returns the domain of `pods_in("KEY")` and `nodes_in("KEY")`."""
    (key,) = node.args if len(node.args) == 1 else (None,)
    if isinstance(key, s.Text | s.Param):
        return f"label:{fixed_text(typer, key)}"
    message = f"`{node.name}` takes the key of a label in quotes"
    help_ = f'write  {node.name}("example.com/row")   or  zone.{node.name.removesuffix("_in")}'
    raise typer.refuse("P209", message, node, help_)


def _no_set(typer: Typer, over: s.Expr) -> Refused:
    """Refuses `over zone`."""
    last = typer.text(over).removeprefix("node.")
    known = (last, f"node.{last}", f"{last}.nodes")
    better = next((one for one in known if one in POD_SETS or one in NODE_SETS), "")
    help_ = f"write  over {better or 'node.pods, over nodes   or   over candidates'}"
    return typer.refuse("P209", "`over` wants a set of pods or nodes", over, help_)


def _over(
    typer: Typer, node: s.Aggregate, of: Set, parts: tuple[ir.Expr | None, ir.Expr | None]
) -> ir.Expr:
    """Returns the aggregate of a value and a condition, each of which may be left out."""
    read = [one for one in parts if one is not None]
    _fits_within(typer, of, read)
    span, function = node.span, node.function
    value, where = tested(function, *parts)
    kind = kind_of(function, value)
    shared: dict[str, Any] = {"function": function, "value": value, "where": where}
    if of.things == "containers":
        return made(ir.ContainerAggregate, span, kind, Level.POD, **shared)
    shared["over"] = of.over
    if of.things == "nodes":
        level = _outer_level(read) if of.over in _ALL_NODES else Level.NODE
        return made(ir.NodeAggregate, span, kind, level, **shared)
    pod_or_cycle = of.over == "cluster" and not any(map(ir.is_across, ir.walk(*read)))
    level = _outer_level(read) if pod_or_cycle else Level.NODE
    return made(ir.PodAggregate, span, kind, level, table=of.table, **shared)


def _fits_within(typer: Typer, of: Set, parts: list[ir.Expr]) -> None:
    """Refuses what cannot be asked of each thing of a set."""
    sets = (ir.NodeAggregate, ir.PodAggregate)
    guilty, message, help_ = None, "", "compare outside of the aggregate"
    if of.things == "nodes":
        guilty = next((one for one in parts if one.level is Level.IT), None)
        message = "an aggregate over nodes may not read the pods of another set"
        help_ = "say which pods:  over node.pods"
    elif of.things == "containers":
        met = (one for one in ir.walk(*parts) if one.level > Level.POD or isinstance(one, sets))
        guilty, message = next(met, None), "an aggregate over containers looks at the pod alone"
    elif of.table != "pods":
        met = (one for one in ir.walk(*parts) if isinstance(one, ir.PodAggregate))
        guilty = next(met, None)
        message = f"an aggregate over `{of.text}` may not hold one over other pods"
    if guilty is None and of.things == "pods" and of.over != "node":
        guilty = _of_the_node(parts)
        message = f"a condition on `{of.text}` may not read a field of the node"
        help_ = "use `node.pods`, or compare outside of the aggregate"
    if guilty is not None:
        raise typer.refuse("P202", message, guilty, help_)


def _of_the_node(parts: list[ir.Expr]) -> ir.Expr | None:
    """Returns a value of the node at hand that is read outside of a pair with it."""
    stack = [*parts]
    while stack:
        node = stack.pop()
        if node.level <= Level.POD:
            continue
        ends = [one for one in ir.children(node) if one.level is not Level.NODE]
        stack.extend(ends if ir.is_across(node) else ir.children(node))
        # An aggregate below node level has its own nodes; only what is left is in question.
        if node.level is Level.NODE and isinstance(node, (*OF_NODE, ir.NodeAggregate)):
            return node
    return None


def _outer_level(parts: list[ir.Expr]) -> Level:
    """Returns the level of what an aggregate gives: the pod if its parts read the pod."""
    reads = (one.level for one in ir.walk(*parts) if isinstance(one, _READS))
    return max((one for one in reads if one <= Level.POD), default=Level.CYCLE)


# ---- element-wise


def _element_wise(typer: Typer, node: s.Aggregate) -> ir.Expr:
    first, *others = node.args
    of = _set(typer, first) if node.over is None and len(others) == 1 else None
    if of is not None and of.text != _CLUSTER:
        each, tests = typer.text(others[0]), node.function in ir.TESTS
        better = f"{of.text} where {each}" if tests else f"{each} over {of.text}"
        message = f"`{node.function}` goes through a set by `{'where' if tests else 'over'}`"
        raise typer.refuse("P209", message, node, fix=f"{node.function}({better})")
    if node.function in (*ir.TESTS, "distinct") or node.over is not None or node.where is not None:
        message = f"`{node.function}` takes one value or condition of each of a set"
        raise typer.refuse("P209", message, node)
    values, kind = typer.unify(typer.each(node.args), f"`{node.function}` wants")
    wants = "number or time" if node.function in ("min", "max") else "number"
    typer.want(values[0], wants, f"`{node.function}`", "P209")
    if node.function not in ("sum", "avg"):
        return func(node.span, kind, node.function, values)
    total = arith(node.span, kind, ("+",) * (len(values) - 1), values)
    if node.function == "sum":
        return total
    count = constant(node.span, float(len(values)), NUMBER)
    return arith(node.span, kind, ("/",), (total, count))


# ---- bare


def _bare(typer: Typer, node: s.Aggregate) -> ir.Expr:
    """Returns what `max` without parentheses means: the aggregate of the only value of the node."""
    function, of_set = node.function, node.function in (*ir.TESTS, "distinct")
    root = typer.place.root
    assert root is not None
    if id(root) not in typer.subjects:
        subjects = typer.subjects[id(root)] = {}
        # What nobody knows there is told, and may well be the subject.
        _gather(typer, root, subjects)
    subjects = typer.subjects[id(root)]
    of, *others = subjects.values() or (None,)
    if of_set or others or of is None:
        message = f"`{function}` needs to be told of what"
        spelled = [f"{function}({one})" for one in [*subjects][:_MAX_SHOWN]]
        if of_set or not subjects:
            spelled = [f"{function}({_EXAMPLES['pods'][function in ir.TESTS].format('node.pods')})"]
        help_ = f"write  {'   or   '.join(spelled)}"
        raise typer.refuse("P207", message, node, help_)
    return _over(typer, node, Set("nodes", "candidates", ""), (of, None))


def _gather(typer: Typer, node: s.Node, out: dict[str, ir.Expr | None]) -> bool:
    """Gathers the numbers of the node by their text: None for those that have no name.

    Returns whether there is a text or a time of the node of which no number is made yet.
    """
    match node:
        case s.Name() | s.Field():
            return _put(typer, node, out, named=True)
        case s.Call() if node.name in _NODE_CALLS or find_metric(typer, node.name) is not None:
            return _put(typer, node, out, named=True)
        case s.Aggregate() if len(node.args) <= 1:
            # With several arguments it is no aggregate but a function of them.
            return bool(node.args) and _put(typer, node, out, named=False)
    inner: dict[str, ir.Expr | None] = {}
    loose = sum(_gather(typer, one, inner) for one in s.parts(node)) > 0
    if loose and isinstance(node, s.Call | s.Chain):
        loose = _put(typer, node, inner, named=False)
    if isinstance(node, s.Fallback) and len(inner) == 1 and isinstance(node.operands[-1], _FIXED):
        # A default is part of its value, or a node without it would be beyond the maximum.
        named = None not in inner.values()
        inner.clear()
        _put(typer, node, inner, named=named)
    for text, value in inner.items():
        out.setdefault(text, value)
    return loose and not isinstance(node, _ASKED)


def _put(typer: Typer, node: s.Node, out: dict[str, ir.Expr | None], *, named: bool) -> bool:
    """Puts a number of the node among the others; returns whether it is a text or a time of it."""
    typed = typer.check(node)  # type: ignore[arg-type]  # a part of an expression is one
    if not isinstance(typed, ir.Core) or typed.level is not Level.NODE:
        return False
    if typed.type.is_number:
        out.setdefault(typer.text(node), typed if named else None)
    return not typed.type.is_number and typed.type != BOOL


#: So many items are looked at of a list of the pod; where each is asked of all nodes, so many; and
#: of a list that each node has, or where each item is looked for among pods or nodes.
MOST_OF_POD: Final = 1024
MOST_OVER_NODES: Final = 64
MOST_OF_NODE: Final = 16
#: What an aggregate is told of each thing: a number where nothing stands here.
_WANTS: Final = {
    **dict.fromkeys(("count", "any", "all"), "condition"),
    **dict.fromkeys(("max", "min", "median"), "number or time"),
    "distinct": "text or number or time",
}


def value_of(typer: Typer, function: str, written: s.Expr) -> ir.Expr:
    """Checks what an aggregate is told of each thing that it runs over."""
    wants = _WANTS.get(function, "number")
    counted = function == "count" and isinstance(written, s.Aggregate)
    helps = (f"write  {typer.text(written)}",) * counted
    return typer.want(typer.check(written), wants, f"`{function}`", "P209", helps)


def where_of(typer: Typer, written: s.Expr) -> ir.Expr:
    """Checks the condition behind `where`."""
    return typer.want(typer.check(written), "condition", "`where`", "P208")


def asks_each(typer: Typer, *parts: ir.Expr | None) -> None:
    """Warns of what is the same for all pods of a set, as `victims where pod.priority < 5` is."""
    for part in parts:
        met = ir.walk(part)
        own = [one for one in met if isinstance(one, ir.Read) and one.field.startswith("pod.")]
        if part is not None and own and all(one.level is not Level.IT for one in met):
            text = typer.text(own[0])
            message = f"`{text}` is that of the pod to place, whichever pod of the set"
            # A let may be meant for other rules.
            better = None if ir.has(ir.Named, part) else f"it{text.removeprefix('pod')}"
            typer.warn("P223", message, own[0], fix=better)


def kind_of(function: str, value: ir.Expr | None) -> Type:
    """Returns the type of an aggregate of values; of a condition alone there is none."""
    if value is None or function == "distinct":
        return NUMBER if function in ("count", "distinct") else BOOL
    return value.type


def tested(
    function: str, value: ir.Expr | None, where: ir.Expr | None
) -> tuple[ir.Expr | None, ir.Expr | None]:
    """Returns the value and the condition of an aggregate: `count`, `any`, `all` have one of both.

    With a value `all` is about those that the condition selects.
    """
    if function not in ir.TESTS or value is None or where is None:
        return (None, where or value) if function in ir.TESTS else (value, where)
    nobody = value.span.nobody
    if function == "all":
        return None, making.logical(nobody, "or", (making.inverted(nobody, where), value))
    return None, making.logical(nobody, "and", (where, value))


def list_of(typer: Typer, node: s.Aggregate) -> ir.Expr | None:
    """Returns the list that an aggregate runs over, None if it runs over something else."""
    written = node.over
    if written is None and (node.where is not None or node.function == "distinct"):
        written = node.args[0]
    match written:
        case s.Param():
            may_be = True
        case s.Name():
            may_be = written.name in typer.lets
        case s.Call():
            may_be = written.name == "split"
        case s.Field():
            may_be = written.path in FIELDS and FIELDS[written.path].type.kind is Kind.LIST
        case _:
            may_be = False
    typed = typer.check(written) if may_be and written is not None else None
    return typed if isinstance(typed, ir.Core) and typed.type.kind is Kind.LIST else None


def over_list(typer: Typer, node: s.Aggregate, items: ir.Expr) -> ir.Expr:
    """Returns an aggregate over the items of a list."""
    if items.level > (Level.POD if ir.split_of(items) is None else Level.NODE):
        message = f"`{typer.text(items)}` is not gone through item by item"
        help_ = "lists of the pod to place are, and what `split` makes of texts of the node"
        raise typer.refuse("P209", message, items, help_, "test it with `in`")
    if typer.place.item is not None:
        help_ = "give the inner one a name with `let`, if it does not read the item"
        raise typer.refuse("P209", "a list within a list", node, help_)
    above = max(items.level, Level.POD)
    item = making.made(ir.Item, node.span, making.item_type(items), above)
    with typer.inside(replace(typer.place, item=item)):
        value, where = _asked_of_item(typer, node, item)
    read = [one for one in (value, where) if one is not None]
    level = making.level_of((items, item, *read))
    kind = kind_of(node.function, value)
    known = ir.unnamed(items)
    fixed = known.value if isinstance(known, ir.Const) else None
    most = MOST_OVER_NODES if level > Level.POD else MOST_OF_POD
    # Each item may cost as much as there are pods or nodes.
    if items.level > Level.POD or ir.has(ir.PodAggregate | ir.NodeAggregate, value, where):
        most = MOST_OF_NODE
    most = len(fixed) if isinstance(fixed, tuple) else most
    parts = {"items": items, "value": value, "where": where, "most": most}
    whole = making.made(ir.ItemAggregate, node.span, kind, level, function=node.function, **parts)
    return whole if isinstance(fixed, tuple) else _bounded(typer, whole)


def _asked_of_item(
    typer: Typer, node: s.Aggregate, item: ir.Expr
) -> tuple[ir.Expr | None, ir.Expr]:
    """Returns the value of an item, and the condition under which it counts."""
    function = node.function
    nobody = node.span.nobody
    holds: list[ir.Expr] = [making.inverted(nobody, making.missing(nobody, item))]
    if node.where is not None:
        holds.append(where_of(typer, node.where))
    value: ir.Expr | None = None
    if node.over is not None:
        value = value_of(typer, function, node.args[0])
    elif function == "distinct":
        value = item
    elif function in ("any", "all"):
        value = holds.pop()
    elif function != "count":
        # Without a condition and a value it is no list that is run over.
        assert node.where is not None
        message = f"`{function}` needs a number of each item"
        number = "it" if item.type.is_number else "number(it)"
        where = f"{typer.text(node.args[0])} where {typer.text(node.where)}"
        help_ = f"write  {function}({number} over {where})"
        raise typer.refuse("P209", message, node, help_)
    value, holding = tested(function, value, making.logical(nobody, "and", holds))
    assert holding is not None
    return value, holding


def _bounded(typer: Typer, whole: ir.ItemAggregate) -> ir.Expr:
    """Returns what a list with more items than are looked at comes to: false, or missing.

    The rules of filters reject besides, see `too_long`.
    """
    span, nobody = whole.span, whole.span.nobody
    most = making.constant(nobody, float(whole.most), NUMBER)
    longer = making.compare(nobody, making.func(nobody, NUMBER, "len", (whole.items,)), ">", most)
    if whole.type == BOOL:
        bounded: ir.Expr = making.logical(span, "and", (making.inverted(span, longer), whole))
    else:
        bounded = making.choice(span, longer, making.nothing(span, whole.type), whole)
    typer.bounded[bounded] = longer
    return bounded


def too_long(typer: Typer, *roots: ir.Expr | None) -> tuple[ir.Compare, ...]:
    """Returns what holds where a list in these parts has more items than are looked at."""
    met = ir.walk(*roots) if typer.bounded else ()
    found = {one: typer.bounded[one] for one in met if one in typer.bounded}
    within: dict[str, list[ir.Expr]] = {}
    for one in met:
        if isinstance(one, ir.NodeAggregate):
            within.setdefault(one.over, []).extend(ir.children(one))
    for over, parts in within.items():
        for one in ir.walk(*parts):
            longer = found.get(one)
            if longer is not None and longer.left.level is Level.NODE:
                # Of all nodes of the set, not of the one at hand.
                level = _outer_level([longer]) if over in _ALL_NODES else Level.NODE
                most = made(
                    ir.NodeAggregate, longer.left.span, NUMBER, level,
                    function="max", value=longer.left, where=None, over=over,
                )  # fmt: skip
                found[one] = making.compare(longer.span, most, ">", longer.right)
    # An equal text is an equal list.
    known: dict[object, ir.Compare] = {}
    for one in found.values():
        key = getattr(one.right, "value", 0), getattr(one.left, "over", "")
        known[typer.text(ir.list_below(one)), key] = one
    return tuple(known.values())
