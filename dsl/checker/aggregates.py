"""Aggregates over pods and over nodes, and what a bare `max` means."""

import re
from typing import Final, NamedTuple

from dsl import ir
from dsl import syntax as s
from dsl.checker import lists
from dsl.checker.convert import help_for
from dsl.checker.fields import canonical, key_text
from dsl.checker.making import arith, constant, func
from dsl.checker.scope import RESERVED, Flex, Refused, Typed, describe
from dsl.checker.typer import Typer
from dsl.diagnostics import Fix, Severity
from dsl.functions import FUNCTIONS
from dsl.schema import FIELDS, NODE_SETS, POD_SETS
from dsl.source import Span
from dsl.types import BOOL, NUMBER, Kind, Level, Type

_TESTS: Final = ("count", "any", "all")
_ALL_NODES: Final = ("nodes", "candidates")
_NODE_CALLS: Final = ("peers", "metric_age")
_MAX_SHOWN: Final = 3
_CONTAINERS: Final = "pod.containers"
_KEY: Final = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
#: A number, and a condition, of each of what is gone through, for examples.
_EXAMPLES: Final = {
    "pods": ("it.cpu over {}", "{} where it.priority > 0"),
    "nodes": ("node.cpu.free over {}", "{} where node.ready"),
    "containers": ("it.limit[memory] over {}", "{} where it.request[cpu] > 0"),
}
#: What has a value of its own for each node.
OF_NODE: Final = (ir.Read, ir.KeyedRead, ir.Metric, ir.Pair, ir.PodAggregate, ir.Item)
_READS: Final = (ir.Read, ir.KeyedRead, ir.Metric, ir.ContainerAggregate, ir.Item)


class PodSet(NamedTuple):
    """A set of pods: over which domain, which pods, as written."""

    over: str
    table: str
    text: str


class NodeSet(NamedTuple):
    """A set of nodes: all, the candidates or those of a domain; as written."""

    over: str
    text: str


def aggregate(typer: Typer, node: s.Aggregate) -> ir.Expr:
    """Returns an aggregate with parentheses."""
    if _is_containers(node.over):
        return _over_containers(typer, node, node.args)
    if node.over is None and len(node.args) == 1 and _is_containers(node.args[0]):
        return _over_containers(typer, node, ())
    pods = _pod_set(typer, node.over) if node.over is not None else None
    if pods is None and node.over is None and len(node.args) == 1:
        pods = _pod_set(typer, node.args[0])
        if pods is not None:
            return _over_pods(typer, node, pods, None)
    if pods is not None:
        if len(node.args) != 1:
            raise typer.scope.refuse("P209", "an aggregate over pods takes one value", node.span)
        return _over_pods(typer, node, pods, node.args[0])
    if len(node.args) > 1:
        return _element_wise(typer, node)
    items = lists.list_of(typer, node)
    if items is not None:
        return lists.over_list(typer, node, items)
    return _over_nodes(typer, node)


def _of_what(typer: Typer, node: s.Aggregate, things: str, name: str) -> Refused:
    """Refuses an aggregate that is told of what, and not what of it."""
    tests = node.function in _TESTS
    example = _EXAMPLES[things][tests].format(name)
    message = (
        f"`{node.function}` needs a {'condition' if tests else f'value of each of the {things}'}"
    )
    return typer.scope.refuse("P209", message, node.span, f"write  {node.function}({example})")


def _pod_set(typer: Typer, node: s.Expr) -> PodSet | None:
    """Returns which set of pods is meant, None if none is."""
    if isinstance(node, s.Call) and node.name == "pods_in":
        return PodSet(_label_of(typer, node), "pods", typer.scope.text(node))
    if not isinstance(node, s.Field) or node.key is not None:
        return None
    name = canonical(node.path)
    if name not in POD_SETS:
        return None
    over, table = POD_SETS[name]
    return PodSet(over, table, name)


def _node_set(typer: Typer, node: s.Expr) -> NodeSet | None:
    """Returns which set of nodes is meant, None if none is."""
    if isinstance(node, s.Name):
        return NodeSet(node.name, node.name) if node.name in _ALL_NODES else None
    if isinstance(node, s.Call) and node.name == "nodes_in":
        return NodeSet(_label_of(typer, node), typer.scope.text(node))
    if not isinstance(node, s.Field) or node.key is not None:
        return None
    name = canonical(node.path)
    return NodeSet(NODE_SETS[name], name) if name in NODE_SETS else None


def _label_of(typer: Typer, node: s.Call) -> str:
    """Returns the domain of `pods_in("KEY")` and `nodes_in("KEY")`."""
    (key,) = node.args if len(node.args) == 1 else (None,)
    if not isinstance(key, s.Text | s.Param):
        written = typer.scope.text(key) if key is not None else ""
        named = f"{written.removeprefix('node.')}.{node.name.removesuffix('_in')}"
        quoted = f'{node.name}("{written}")' if _KEY.fullmatch(written) else None
        better = named if named in POD_SETS or named in NODE_SETS else quoted
        message = f"`{node.name}` takes the key of a label in quotes"
        helps = () if better else (f'write for example  {node.name}("example.com/row")',)
        raise typer.scope.refuse("P209", message, node.span, *helps, fix=better)
    return f"label:{key_text(typer, key)}"


def sets_read(node: ir.PodAggregate | ir.NodeAggregate | ir.Rank) -> tuple[str, ...]:
    """Returns the schema names of what an aggregate runs over, and of what makes its domains."""
    if not isinstance(node, ir.PodAggregate):
        if isinstance(node, ir.Rank) or node.level is not Level.NODE:
            # All nodes and the candidates have no field.
            return ()
        domain = node.over.partition(":")[0]
        names = tuple(name for name, one in NODE_SETS.items() if one == node.over)
        return (*names, f"node.{domain}")
    place = (node.over, node.table)
    named = tuple(name for name, one in POD_SETS.items() if one == place)
    return named or ("cluster.pods", f"node.{node.over.partition(':')[0]}")


def _result_type(function: str, value: Typed | None) -> Type:
    if function in ("count", "distinct"):
        return NUMBER
    if function in _TESTS or value is None or isinstance(value, Flex):
        return BOOL if function in _TESTS else NUMBER
    return value.type


# ---- over pods


def _over_pods(typer: Typer, node: s.Aggregate, of: PodSet, written: s.Expr | None) -> ir.Expr:
    if (
        written is None
        and node.function != "count"
        and (node.function not in _TESTS or node.where is None)
    ):
        raise _of_what(typer, node, "pods", of.text)
    with typer.inside(pods=True, placed=of.table != "queue"):
        value = _pod_value(typer, node, written) if written is not None else None
        where = _condition(typer, node.where) if node.where is not None else None
    nothing_of_it(typer, "condition", where)
    nothing_of_it(typer, "value", value)
    if of.table != "pods":
        _no_sets_within(typer, of.text, value, where)
    over = of.over
    parts = [one for one in (value, where) if one is not None]
    if over != "node":
        _no_node_fields(typer, of.text, *parts)
    pod_or_cycle = over == "cluster" and not any(map(_is_across, ir.walk(*parts)))
    level = _outer_level(value, where) if pod_or_cycle else Level.NODE
    return ir.PodAggregate(
        span=node.span,
        type=_result_type(node.function, value),
        level=level,
        function=node.function,
        over=over,
        value=value,
        where=where,
        table=of.table,
    )


def _no_sets_within(typer: Typer, name: str, *parts: ir.Expr | None) -> None:
    for one in ir.walk(*(part for part in parts if part is not None)):
        if isinstance(one, ir.PodAggregate):
            message = f"an aggregate over `{name}` may not hold one over other pods"
            raise typer.scope.refuse("P202", message, one.span)


def nothing_of_it(typer: Typer, what: str, node: ir.Expr | None) -> None:
    """Warns of a condition or value in an aggregate over pods that asks nothing of them."""
    if node is None or isinstance(node, ir.Const) or node.level is Level.IT:
        return
    reads = [one for one in ir.walk(node) if isinstance(one, ir.Read | ir.KeyedRead)]
    mine = next((one for one in reads if one.level is Level.POD), None)
    if mine is None or any(one.level is Level.IT for one in reads):
        return
    scope, written = typer.scope, typer.scope.text(mine)
    # What a let reads is written in the let.
    here = mine.span.start in range(node.span.start, node.span.end)
    fix = f"it.{written.removeprefix('pod.')}"
    known = here and f"it.{mine.field.removeprefix('pod.')}" in FIELDS
    scope.report(
        "P223",
        f"this {what} asks nothing of the pods that are gone through: they are `it`",
        mine.span if here else node.span,
        *(() if known else ("fields of those pods start with `it.`",)),
        fix=fix if known else None,
        severity=Severity.WARNING,
    )


def _pod_value(typer: Typer, node: s.Aggregate, written: s.Expr) -> ir.Expr:
    value = typer.plain(typer.check(written))
    wanted = Kind.BOOL if node.function in _TESTS else Kind.NUMBER
    _fits(typer, node.function, value, wanted)
    return value


def _fits(typer: Typer, function: str, value: ir.Expr, wanted: Kind) -> None:
    if function == "distinct":
        lists.comparable(typer, value)
        return
    of_time = value.type.kind is Kind.TIME and function in ("max", "min", "median")
    if value.type.kind is wanted or of_time:
        return
    what, want = ("a condition", "condition") if wanted is Kind.BOOL else ("a number", "number")
    message = f"`{function}` takes {what}, and this is {describe(value)}"
    raise typer.scope.refuse("P209", message, value.span, *help_for(typer.scope, value, want))


def _condition(typer: Typer, written: s.Expr) -> ir.Expr:
    return typer.as_condition(typer.check(written), written.span, "`where` is", "P208")


def _is_across(node: ir.Expr) -> bool:
    """Whether a value is that of a pair of the node and a pod of a set.

    Such a pair may stand over pods of other nodes: it is looked up for each node and each distinct
    text of the pods.
    """
    return isinstance(node, ir.Pair) and {node.left.level, node.right.level} == {
        Level.NODE,
        Level.IT,
    }


def _no_node_fields(typer: Typer, over: str, *parts: ir.Expr) -> None:
    stack = [*parts]
    while stack:
        node = stack.pop()
        if node.level <= Level.POD:
            continue
        ends = [one for one in ir.children(node) if one.level is not Level.NODE]
        stack.extend(ends if _is_across(node) else ir.children(node))
        # An aggregate below node level has its own nodes; only what is left is in question.
        if node.level is Level.NODE and isinstance(node, (*OF_NODE, ir.NodeAggregate)):
            message = f"a condition on `{over}` may not read a field of the node"
            help_ = "use `node.pods`, or compare outside of the aggregate"
            raise typer.scope.refuse("P202", message, node.span, help_)


def _outer_level(*parts: ir.Expr | None) -> Level:
    """Returns the level of what an aggregate gives: the pod if its parts read the pod."""
    reads = [
        one.level
        for one in ir.walk(*(part for part in parts if part is not None))
        if isinstance(one, _READS) and one.level <= Level.POD
    ]
    return max([Level.CYCLE, *reads])


# ---- over containers


def _is_containers(node: s.Expr | None) -> bool:
    return isinstance(node, s.Field) and node.path == _CONTAINERS and not node.tail


def _over_containers(typer: Typer, node: s.Aggregate, args: tuple[s.Expr, ...]) -> ir.Expr:
    """Returns an aggregate over the containers of the pod to place."""
    if len(args) > 1:
        message = f"`{node.function}` over containers takes one value"
        raise typer.scope.refuse("P209", message, node.span)
    if (
        not args
        and node.function != "count"
        and (node.function not in _TESTS or node.where is None)
    ):
        raise _of_what(typer, node, "containers", _CONTAINERS)
    with typer.inside(containers=True):
        value = _pod_value(typer, node, args[0]) if args else None
        where = _condition(typer, node.where) if node.where is not None else None
    for one in ir.walk(*(part for part in (value, where) if part is not None)):
        if one.level > Level.POD or isinstance(one, ir.NodeAggregate | ir.PodAggregate):
            message = "an aggregate over containers looks at the pod alone"
            raise typer.scope.refuse("P202", message, one.span, "compare outside of the aggregate")
    return ir.ContainerAggregate(
        span=node.span,
        type=_result_type(node.function, value),
        level=Level.POD,
        function=node.function,
        value=value,
        where=where,
    )


# ---- over nodes


def _over_nodes(typer: Typer, node: s.Aggregate) -> ir.Expr:
    over, written = "candidates", node.args[0]
    of = _node_set(typer, written) if node.over is None else None
    if of is not None:
        if node.function not in _TESTS or (node.where is None and node.function != "count"):
            raise _of_what(typer, node, "nodes", of.text)
        where = _condition(typer, node.where) if node.where is not None else None
        return _node_aggregate(typer, node, of.over, (None, where))
    if node.over is not None:
        named = _node_set(typer, node.over)
        if named is None:
            raise _no_set(typer, node, node.over)
        over = named.over
    value = typer.plain(typer.check(written))
    _fits(typer, node.function, value, Kind.BOOL if node.function in _TESTS else Kind.NUMBER)
    where = _condition(typer, node.where) if node.where is not None else None
    return _node_aggregate(typer, node, over, (value, where))


def _no_set(typer: Typer, node: s.Aggregate, over: s.Expr) -> Refused:
    """Refuses `over zone` and `sum(node.pods over it.cpu)`."""
    first, second = node.args[0], typer.scope.text(over)
    swapped = typer.scope.text(first)
    if isinstance(over, s.Field) and (swapped in POD_SETS or swapped in NODE_SETS):
        message = "`over` stands between a value and what it is taken of"
        place = Span(first.span.start, over.span.end)
        fix = Fix(place, f"{second} over {swapped}")
        return typer.scope.refuse("P209", message, over.span, fix=fix)
    last = second.removeprefix("node.")
    known = (last, f"node.{last}", f"{last}.nodes")
    better = next((one for one in known if one in POD_SETS or one in NODE_SETS), "")
    help_ = f"write  over {better or 'node.pods, over nodes   or   over candidates'}"
    return typer.scope.refuse("P209", "`over` wants a set of pods or nodes", over.span, help_)


def _node_aggregate(
    typer: Typer,
    node: s.Aggregate | s.BareAggregate,
    over: str,
    parts: tuple[ir.Expr | None, ir.Expr | None],
) -> ir.Expr:
    value, where = parts
    for one in parts:
        if one is not None and one.level is Level.IT:
            message = "an aggregate over nodes may not read the pods of another set"
            raise typer.scope.refuse("P202", message, one.span, "say which pods:  over node.pods")
    return ir.NodeAggregate(
        span=node.span,
        type=_result_type(node.function, value),
        level=_outer_level(value, where) if over in _ALL_NODES else Level.NODE,
        function=node.function,
        over=over,
        value=value,
        where=where,
    )


# ---- element-wise


def _element_wise(typer: Typer, node: s.Aggregate) -> ir.Expr:
    if node.function in (*_TESTS, "distinct") or node.over is not None or node.where is not None:
        message = f"`{node.function}` takes one value or condition of each of a set"
        raise typer.scope.refuse("P209", message, node.span)
    values, kind = typer.unify(typer.each(node.args), f"`{node.function}` wants")
    if not (kind.is_number or (kind.kind is Kind.TIME and node.function in ("min", "max"))):
        message = f"`{node.function}` takes numbers, and this is {describe(values[0])}"
        raise typer.scope.refuse("P209", message, values[0].span)
    if node.function not in ("sum", "avg"):
        return func(node.span, kind, node.function, values)
    total = arith(node.span, kind, ("+",) * (len(values) - 1), values)
    if node.function == "sum":
        return total
    count = constant(node.span, float(len(values)), NUMBER)
    return arith(node.span, kind, ("/",), (total, count))


# ---- bare


def bare(typer: Typer, node: s.BareAggregate) -> ir.Expr:
    """Returns what `max` without parentheses means: the aggregate of the only node-level name."""
    function = node.function
    if typer.subjects is None:
        root = typer.root
        typer.subjects = _subjects(typer, root) if root is not None else {}
        typer.unnamed = not typer.subjects and root is not None and _has_unknown(typer, root)
    names = list(typer.subjects)
    if typer.unnamed:
        # The unknown name is told where it stands; it may well be the subject.
        raise Refused
    if function in (*_TESTS, "distinct") or len(names) != 1:
        message = f"`{function}` needs to be told of what"
        spelled = [f"{function}({one})" for one in names[:_MAX_SHOWN]]
        if function in (*_TESTS, "distinct") or not names:
            spelled = [f"{function}({_EXAMPLES['pods'][function in _TESTS].format('node.pods')})"]
        help_ = f"write  {'   or   '.join(spelled)}"
        raise typer.scope.refuse("P207", message, node.span, help_)
    value = typer.plain(typer.check(typer.subjects[names[0]]))
    return _node_aggregate(typer, node, "candidates", (value, None))


def _subjects(typer: Typer, root: s.Expr) -> dict[str, s.Expr]:
    """Returns the numbers of the node that stand outside of aggregates, by their text."""
    out: dict[str, s.Expr] = {}
    stack: list[s.Node] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, s.Aggregate):
            # With several arguments it is no aggregate but a function of them.
            stack.extend(reversed(node.args) if len(node.args) > 1 else ())
        elif isinstance(node, s.Name | s.Field):
            if _is_node_number(typer, node):
                out.setdefault(typer.scope.text(node), node)
        elif isinstance(node, s.Call) and _is_node_call(typer, node):
            out.setdefault(typer.scope.text(node), node)
        else:
            stack.extend(reversed(_parts(node)))
    return out


def _is_node_call(typer: Typer, node: s.Call) -> bool:
    """Whether a call is a number of the node as a name is: `peers`, an age, a metric of pairs."""
    if node.name in _NODE_CALLS:
        return True
    entry = typer.scope.metrics.get(node.name)
    return entry is not None and entry.spec is not None and entry.spec.of == "pair"


def _parts(node: s.Node) -> list[s.Node]:
    parts: list[s.Node] = []
    for name in node.__struct_fields__:
        value = getattr(node, name)
        items = value if isinstance(value, tuple) else (value,)
        for item in items:
            if isinstance(item, tuple):
                parts.extend(one for one in item if isinstance(one, s.Node))
            elif isinstance(item, s.Node):
                parts.append(item)
    return parts


def _is_node_number(typer: Typer, node: s.Name | s.Field) -> bool:
    if isinstance(node, s.Field):
        spec = FIELDS.get(canonical(node.path) + node.tail)
        return spec is not None and spec.level is Level.NODE and spec.type.is_number
    scope = typer.scope
    entry = scope.lets.get(node.name)
    if entry is not None:
        value = typer.let_value(entry)
        return not isinstance(value, Flex) and value.level is Level.NODE and value.type.is_number
    return node.name in scope.metrics or node.name in scope.catalogue


def _has_unknown(typer: Typer, root: s.Expr) -> bool:
    stack: list[s.Node] = [root]
    known = {*typer.scope.names(), *FUNCTIONS, "now"}
    while stack:
        node = stack.pop()
        if isinstance(node, s.Name | s.Call) and node.name not in known:
            return True
        if isinstance(node, s.Field):
            name = canonical(node.path) + node.tail
            if not {name, name.removeprefix("it.")} & FIELDS.keys():
                return True
        if isinstance(node, s.Aggregate | s.Call):
            # Words such as `zone` and `nodes` say where and over what there; they are no values.
            known |= RESERVED
        stack.extend(_parts(node))
    return False
