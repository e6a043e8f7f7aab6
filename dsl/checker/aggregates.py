"""Aggregates over pods and over nodes, and what a bare `max` means."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from dsl import ir
from dsl import syntax as s
from dsl.checker import hints, lists, never
from dsl.checker.fields import canonical, key_text, over_victims
from dsl.checker.scope import RESERVED, Flex, Refused, Typed, describe
from dsl.diagnostics import Fix
from dsl.functions import FUNCTIONS
from dsl.schema import FIELDS, NODE_SETS, POD_SETS
from dsl.source import Span
from dsl.types import BOOL, NUMBER, Kind, Level, Type

if TYPE_CHECKING:
    from dsl.checker.expressions import Typer

_TESTS: Final = ("count", "any", "all")
_ALL_NODES: Final = ("nodes", "candidates")
_NODE_CALLS: Final = ("peers", "metric_age")
_MAX_SHOWN: Final = 3
_CONTAINERS: Final = "pod.containers"
#: A number, and a text, of each pod, container and node, for examples.
_OF_PODS: Final = ("it.cpu", "it.workload")
_OF_CONTAINERS: Final = ("it.limit[memory]", "it.image")
_OF_NODES: Final = ("node.cpu.free", "node.zone")
_KEY: Final = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
#: What has a value of its own for each node.
OF_NODE: Final = (ir.Read, ir.KeyedRead, ir.Metric, ir.Pair, ir.PodAggregate)
_READS: Final = (ir.Read, ir.KeyedRead, ir.Metric, ir.ContainerAggregate)


class PodSet(NamedTuple):
    """A set of pods: over which domain, which pods, as written."""

    over: str
    table: str
    text: str


class NodeSet(NamedTuple):
    """A set of nodes: all, the candidates or those of a domain; as written."""

    over: str
    text: str


def aggregate(typer: "Typer", node: s.Aggregate) -> ir.Expr:
    """Returns an aggregate with parentheses."""
    _no_containers_of_others(typer, node)
    _not_counted_twice(typer, node)
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


def _not_counted_twice(typer: "Typer", node: s.Aggregate) -> None:
    """Refuses `count(distinct(x) over ..)`, as `distinct` counts already."""
    inner = node.args[0]
    if node.function != "count" or not isinstance(inner, s.Aggregate):
        return
    if inner.function != "distinct" or len(inner.args) != 1:
        return
    over, where = inner.over or node.over, inner.where or node.where
    better = f"distinct({typer.scope.text(inner.args[0])}"
    better += f" over {typer.scope.text(over)}" if over is not None else ""
    better += f" where {typer.scope.text(where)})" if where is not None else ")"
    raise typer.scope.refuse(
        "P209", "`distinct` counts already", node.span, f"write  {better}", fix=better
    )


def _pod_set(typer: "Typer", node: s.Expr) -> PodSet | None:
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


def _node_set(typer: "Typer", node: s.Expr) -> NodeSet | None:
    """Returns which set of nodes is meant, None if none is."""
    if isinstance(node, s.Name):
        return NodeSet(node.name, node.name) if node.name in _ALL_NODES else None
    if isinstance(node, s.Call) and node.name == "nodes_in":
        return NodeSet(_label_of(typer, node), typer.scope.text(node))
    if not isinstance(node, s.Field) or node.key is not None:
        return None
    name = canonical(node.path)
    return NodeSet(NODE_SETS[name], name) if name in NODE_SETS else None


def _label_of(typer: "Typer", node: s.Call) -> str:
    """Returns the domain of `pods_in("KEY")` and `nodes_in("KEY")`."""
    (key,) = node.args if len(node.args) == 1 else (None,)
    if not isinstance(key, s.Text | s.Param):
        better = _set_meant(node.name, typer.scope.text(key) if key is not None else "")
        raise typer.scope.refuse(
            "P209",
            f"`{node.name}` takes the key of a label in quotes",
            node.span,
            f"write  {better}" if better else f'write for example  {node.name}("example.com/row")',
            fix=better or None,
        )
    return f"label:{key_text(typer, key)}"


def _set_meant(function: str, written: str) -> str:
    """Returns the set that `pods_in(zone)` or `pods_in(a.b/c)` means; "" for anything else."""
    named = f"{written.removeprefix('node.')}.{function.removesuffix('_in')}"
    if named in POD_SETS or named in NODE_SETS:
        return named
    return f'{function}("{written}")' if _KEY.fullmatch(written) else ""


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


def _over_pods(typer: "Typer", node: s.Aggregate, of: PodSet, written: s.Expr | None) -> ir.Expr:
    if written is None and (node.function not in _TESTS):
        raise typer.scope.refuse(
            "P209",
            f"`{node.function}` needs a value of each pod",
            node.span,
            f"write  {node.function}({_OF_PODS[node.function == 'distinct']} over {of.text})",
        )
    if written is None and node.function != "count" and node.where is None:
        raise typer.scope.refuse(
            "P209",
            f"`{node.function}` needs a condition",
            node.span,
            f"write  {node.function}({of.text} where it.priority > 0)",
        )
    with typer.inside(pods=True, placed=of.table != "queue"):
        value = _pod_value(typer, node, written) if written is not None else None
        where = _condition(typer, node.where) if node.where is not None else None
    hints.nothing_of_it(typer.scope, "condition", where)
    hints.nothing_of_it(typer.scope, "value", value)
    never.finished_pods(typer.scope, of.table, where, value)
    never.pod_with_itself(typer.scope, where, value)
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


def _no_sets_within(typer: "Typer", name: str, *parts: ir.Expr | None) -> None:
    for one in ir.walk(*(part for part in parts if part is not None)):
        if isinstance(one, ir.PodAggregate):
            raise typer.scope.refuse(
                "P202", f"an aggregate over `{name}` may not hold one over other pods", one.span
            )


def _pod_value(typer: "Typer", node: s.Aggregate, written: s.Expr) -> ir.Expr:
    value = typer.plain(typer.check(written))
    wanted = Kind.BOOL if node.function in _TESTS else Kind.NUMBER
    _fits(typer, node.function, value, wanted)
    return value


def _fits(typer: "Typer", function: str, value: ir.Expr, wanted: Kind) -> None:
    if function == "distinct":
        lists.comparable(typer, value)
        return
    if value.type.kind is wanted or (
        value.type.kind is Kind.TIME and function in ("max", "min", "median")
    ):
        return
    what = "a condition" if wanted is Kind.BOOL else "a number"
    help_: tuple[str, ...] = ()
    if value.type.kind is Kind.LIST:
        text, of_texts = typer.scope.text(value), value.type.element is Kind.TEXT
        better = f"{'number(it)' if of_texts else 'it'} over {text}"
        if wanted is Kind.BOOL:
            better = f"{text} where {'it is web' if of_texts else 'it > 0'}"
        if function == "count":
            # A list is counted by its length; `count` asks each of its items.
            raise typer.scope.refuse(
                "P209",
                f"`count` takes {what}, and this is {describe(value)}",
                value.span,
                f"for all of its items write  len({text})",
                f"for some of them write  count({better})",
            )
        help_ = (f"write  {function}({better})",)
    raise typer.scope.refuse(
        "P209", f"`{function}` takes {what}, and this is {describe(value)}", value.span, *help_
    )


def _condition(typer: "Typer", written: s.Expr) -> ir.Expr:
    where = typer.check(written)
    if isinstance(where, Flex) or where.type.kind is not Kind.BOOL:
        raise typer.scope.refuse(
            "P208", f"`where` is a condition, and this is {describe(where)}", written.span
        )
    return where


def _is_across(node: ir.Expr) -> bool:
    """Whether a value is that of a pair of the node and a pod of a set.

    Such a pair may stand over pods of other nodes: it is looked up for each node and each distinct
    text of the pods.
    """
    return isinstance(node, ir.Pair) and {node.left.level, node.right.level} == {
        Level.NODE,
        Level.IT,
    }


def _no_node_fields(typer: "Typer", over: str, *parts: ir.Expr) -> None:
    stack = [*parts]
    while stack:
        node = stack.pop()
        if node.level <= Level.POD:
            continue
        ends = [one for one in ir.children(node) if one.level is not Level.NODE]
        stack.extend(ends if _is_across(node) else ir.children(node))
        # An aggregate below node level has its own nodes; only what is left is in question.
        if node.level is Level.NODE and isinstance(node, (*OF_NODE, ir.NodeAggregate)):
            raise typer.scope.refuse(
                "P202",
                f"a condition on `{over}` may not read a field of the node",
                node.span,
                "use `node.pods`, or compare outside of the aggregate",
            )


def _outer_level(*parts: ir.Expr | None) -> Level:
    """Returns the level of what an aggregate gives: the pod if its parts read the pod."""
    reads = [
        one.level
        for one in ir.walk(*(part for part in parts if part is not None))
        if isinstance(one, _READS) and one.level <= Level.POD
    ]
    return max([Level.CYCLE, *reads])


# ---- over containers


def _no_containers_of_others(typer: "Typer", node: s.Aggregate) -> None:
    for one in (node.over, *node.args):
        if isinstance(one, s.Field) and one.path == "it.containers":
            raise typer.scope.refuse(
                "P209",
                "only the containers of the pod to place can be gone through",
                one.span,
                "write  over pod.containers",
                "pods of a set have  it.image, it.request[cpu], it.limit[cpu]",
            )


def _is_containers(node: s.Expr | None) -> bool:
    return isinstance(node, s.Field) and node.path == _CONTAINERS and not node.tail


def _over_containers(typer: "Typer", node: s.Aggregate, args: tuple[s.Expr, ...]) -> ir.Expr:
    """Returns an aggregate over the containers of the pod to place."""
    counts = node.function == "count" and not args
    if len(args) > 1 or (not args and node.function not in _TESTS):
        raise typer.scope.refuse(
            "P209",
            f"`{node.function}` over containers takes one value",
            node.span,
            f"write  {node.function}({_OF_CONTAINERS[node.function == 'distinct']}"
            " over pod.containers)",
        )
    if not args and node.where is None and not counts:
        raise typer.scope.refuse(
            "P209",
            f"`{node.function}` needs a condition",
            node.span,
            f"write  {node.function}(pod.containers where it.request[cpu] > 0)",
        )
    with typer.inside(containers=True):
        value = _pod_value(typer, node, args[0]) if args else None
        where = _condition(typer, node.where) if node.where is not None else None
    for one in ir.walk(*(part for part in (value, where) if part is not None)):
        if one.level > Level.POD or isinstance(one, ir.NodeAggregate | ir.PodAggregate):
            raise typer.scope.refuse(
                "P202",
                "an aggregate over containers looks at the pod alone",
                one.span,
                _of_images(node, typer.scope.text(one)) or "compare outside of the aggregate",
            )
    return ir.ContainerAggregate(
        span=node.span,
        type=_result_type(node.function, value),
        level=Level.POD,
        function=node.function,
        value=value,
        where=where,
    )


def _of_images(node: s.Aggregate, guilty: str) -> str:
    """Returns how the images of the pod are looked for among those of a node, "" for all else."""
    if node.function not in ("any", "all", "count") or node.over is not None:
        return ""
    found = re.fullmatch(r"it\.image[ \t]+(not[ \t]+)?in[ \t]+node\.images", guilty)
    if found is None:
        return ""
    return f"write  {node.function}(pod.images where it {found[1] or ''}in node.images)"


# ---- over nodes


def _over_nodes(typer: "Typer", node: s.Aggregate) -> ir.Expr:
    over, written = "candidates", node.args[0]
    value: ir.Expr | None = None
    of = _node_set(typer, written) if node.over is None else None
    if node.over is not None:
        swapped = typer.scope.text(written)
        things = "pods" if swapped in POD_SETS else "nodes"
        if (swapped in POD_SETS or swapped in NODE_SETS) and isinstance(node.over, s.Field):
            value_of = typer.scope.text(node.over)
            better = f"{value_of} over {swapped}"
            raise typer.scope.refuse(
                "P209",
                f"`over` stands between a value and the {things} it is taken of",
                node.over.span,
                f"write  {node.function}({better})",
                fix=Fix(Span(written.span.start, node.over.span.end), better),
            )
        named = _node_set(typer, node.over)
        if named is None:
            better = _nodes_meant(typer.scope.text(node.over))
            pods = typer.scope.text(node.over).removeprefix("node.")
            if pods == "victims":
                raise over_victims(typer, node)
            better = pods if pods in POD_SETS else better
            raise typer.scope.refuse(
                "P209",
                "`over` wants a set of pods or nodes",
                node.over.span,
                f"write  over {better or 'node.pods, over nodes   or   over candidates'}",
            )
        over = named.over
    elif of is not None:
        if node.function not in _TESTS or (node.where is None and node.function != "count"):
            example = f"{of.text} where node.ready"
            if node.function not in _TESTS:
                example = f"{_OF_NODES[node.function == 'distinct']} over {of.text}"
            raise typer.scope.refuse(
                "P209",
                f"`{node.function}` needs a value or a condition",
                node.span,
                f"write  {node.function}({example})",
            )
        where = _condition(typer, node.where) if node.where is not None else None
        return _node_aggregate(typer, node, of.over, (None, where))
    value = typer.plain(typer.check(written))
    _fits(typer, node.function, value, Kind.BOOL if node.function in _TESTS else Kind.NUMBER)
    where = _condition(typer, node.where) if node.where is not None else None
    return _node_aggregate(typer, node, over, (value, where))


def _nodes_meant(written: str) -> str:
    """Returns the set that `over zone`, `over node.rack` or `over cluster.nodes` means, else ""."""
    if written in ("cluster", "cluster.nodes"):
        return "nodes"
    named = written.removeprefix("node.")
    named = named if named in NODE_SETS else f"{named}.nodes"
    return named if named in NODE_SETS else ""


def _node_aggregate(
    typer: "Typer",
    node: s.Aggregate | s.BareAggregate,
    over: str,
    parts: tuple[ir.Expr | None, ir.Expr | None],
) -> ir.Expr:
    value, where = parts
    if over in _ALL_NODES and where is not None:
        _compared_with_itself(typer, where)
    for one in parts:
        if one is not None and one.level is Level.IT:
            raise typer.scope.refuse(
                "P202",
                "an aggregate over nodes may not read the pods of another set",
                one.span,
                "say which pods:  over node.pods",
            )
    return ir.NodeAggregate(
        span=node.span,
        type=_result_type(node.function, value),
        level=_outer_level(value, where) if over in _ALL_NODES else Level.NODE,
        function=node.function,
        over=over,
        value=value,
        where=where,
    )


def _compared_with_itself(typer: "Typer", where: ir.Expr) -> None:
    """Warns of `count(nodes where node.zone == node.zone)`: there is no other node to compare."""
    for one in ir.walk(where):
        if not isinstance(one, ir.Compare) or one.operator != "==":
            continue
        left, right = one.left, one.right
        if not isinstance(left, ir.Read) or not isinstance(right, ir.Read):
            continue
        if left.level is Level.NODE and (left.field, left.key) == (right.field, right.key):
            named = f"{left.field.removeprefix('node.')}.nodes"
            better = f'nodes_in("{left.key}")' if left.field == "node.label" else named
            known = better in NODE_SETS or left.field == "node.label"
            typer.scope.warn(
                "P223",
                "here each node is compared with itself",
                one.span,
                *([f"the nodes with the same value as the node in question are  {better}"] * known),
            )


# ---- element-wise


def _element_wise(typer: "Typer", node: s.Aggregate) -> ir.Expr:
    if node.function == "distinct":
        each = typer.scope.text(node.args[0])
        raise typer.scope.refuse(
            "P209",
            "`distinct` takes one value of each of a set",
            node.span,
            f"write for example  distinct({each} over {'node.pods' if 'it.' in each else 'nodes'})",
            'several together are  join(A, "/", B)',
        )
    if node.function in _TESTS or node.over is not None or node.where is not None:
        text = typer.scope.text
        better = f"{node.function}({text(node.args[0])} where {text(node.args[1])})"
        tests = node.function in _TESTS and node.over is None and node.where is None
        raise typer.scope.refuse(
            "P209",
            f"`{node.function}` with several values takes nothing else",
            node.span,
            *([f"write  {better}"] if tests else []),
            fix=better if tests else None,
        )
    values, kind = typer.unify(typer.each(node.args), f"`{node.function}` wants")
    if not (kind.is_number or (kind.kind is Kind.TIME and node.function in ("min", "max"))):
        raise typer.scope.refuse(
            "P209",
            f"`{node.function}` takes numbers, and this is {describe(values[0])}",
            values[0].span,
        )
    level = max(one.level for one in values)
    if node.function not in ("sum", "avg"):
        return ir.Func(span=node.span, type=kind, level=level, name=node.function, args=values)
    plus = ("+",) * (len(values) - 1)
    total = ir.Arith(span=node.span, type=kind, level=level, operators=plus, operands=values)
    if node.function == "sum":
        return total
    count = ir.Const(span=node.span, type=NUMBER, level=Level.CONST, value=float(len(values)))
    return ir.Arith(
        span=node.span, type=kind, level=level, operators=("/",), operands=(total, count)
    )


# ---- bare


@dataclass(frozen=True, slots=True)
class Subjects:
    """What a bare aggregate may mean in a whole expression.

    Attributes:
        names: the numbers of the node that stand outside of aggregates, by their text.
        unknown: whether there are none, and a name that nobody knows may well be the subject.
        inside: an aggregate over pods, where that is all there is.
    """

    names: dict[str, s.Expr]
    unknown: bool
    inside: s.Aggregate | None

    @classmethod
    def of(cls, typer: "Typer") -> "Subjects":
        """Returns what the root of an expression offers."""
        if typer.root is None:
            return cls({}, unknown=False, inside=None)
        names = _subjects(typer, typer.root)
        unknown = not names and _has_unknown_name(typer, typer.root)
        inside = None if names else _aggregate_inside(typer.root)
        return cls(names, unknown=unknown, inside=inside)


def bare(typer: "Typer", node: s.BareAggregate) -> ir.Expr:
    """Returns what `max` without parentheses means: the aggregate of the only node-level name."""
    if typer.subjects is None:
        typer.subjects = Subjects.of(typer)
    subjects = typer.subjects.names
    if typer.subjects.unknown:
        # The unknown name is reported where it stands; it may well be the subject.
        raise Refused
    if node.function in (*_TESTS, "distinct") or len(subjects) != 1:
        raise _ambiguous(typer, node, list(subjects))
    subject = next(iter(subjects.values()))
    value = typer.plain(typer.check(subject))
    return _node_aggregate(typer, node, "candidates", (value, None))


def _ambiguous(typer: "Typer", node: s.BareAggregate, names: list[str]) -> Refused:
    function = node.function
    if function in (*_TESTS, "distinct") and "victims.count" in typer.results:
        better = "victims.count" if function == "count" else None
        help_ = f"write  {better}" if better else "write for example  victims.max_priority"
        message = f"`{function}` needs to be told of what"
        return typer.scope.refuse("P207", message, node.span, help_, fix=better)
    if function in (*_TESTS, "distinct"):
        of = "node.pods where it.priority > 0"
        return typer.scope.refuse(
            "P207",
            f"`{function}` needs to be told of what",
            node.span,
            f"write  {function}({of if function in _TESTS else 'it.workload over node.pods'})",
        )
    if not names and typer.subjects is not None and typer.subjects.inside is not None:
        inside = typer.subjects.inside
        text = typer.scope.text(inside)
        return typer.scope.refuse(
            "P207",
            f"`{function}` of what? it does not look into `{text}`",
            node.span,
            f"write  {function}({text})",
        )
    if not names:
        return typer.scope.refuse(
            "P207",
            f"`{function}` of what? nothing here differs from node to node",
            node.span,
            f"write for example  {function}(node.cpu.free)"
            f"   or, of two values,  {function}(pod.cpu, 1)",
        )
    spelled = "   or   ".join(f"{function}({one})" for one in names[:_MAX_SHOWN])
    return typer.scope.refuse(
        "P207",
        f"`{function}` of what? there is more than one value of the node here",
        node.span,
        f"write  {spelled}",
    )


def _aggregate_inside(root: s.Expr | None) -> s.Aggregate | None:
    """Returns the aggregate over pods in an expression, if there is one and no more."""
    found: list[s.Aggregate] = []
    stack: list[s.Node] = [root] if root is not None else []
    while stack:
        one = stack.pop()
        if isinstance(one, s.Aggregate) and len(one.args) == 1:
            found.append(one)
        else:
            stack.extend(_parts(one))
    return found[0] if len(found) == 1 and _of_pods(found[0]) else None


def _of_pods(node: s.Aggregate) -> bool:
    there = node.over if node.over is not None else node.args[0]
    if isinstance(there, s.Call):
        return there.name == "pods_in"
    return isinstance(there, s.Field) and canonical(there.path) in POD_SETS


def _subjects(typer: "Typer", root: s.Expr) -> dict[str, s.Expr]:
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


def _is_node_call(typer: "Typer", node: s.Call) -> bool:
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


def _is_node_number(typer: "Typer", node: s.Name | s.Field) -> bool:
    if isinstance(node, s.Field):
        spec = FIELDS.get(canonical(node.path) + node.tail)
        return spec is not None and spec.level is Level.NODE and spec.type.is_number
    scope = typer.scope
    entry = scope.lets.get(node.name)
    if entry is not None:
        value = typer.let_value(entry)
        return not isinstance(value, Flex) and value.level is Level.NODE and value.type.is_number
    return node.name in scope.metrics or node.name in scope.catalogue


def _field_name(node: s.Field) -> str:
    """Returns the field that is read, be it of another pod's node."""
    name = canonical(node.path) + node.tail
    return name.removeprefix("it.") if name.startswith("it.node.") else name


def _has_unknown_name(typer: "Typer", root: s.Expr) -> bool:
    stack: list[s.Node] = [root]
    known = {*typer.scope.names(), "now"}
    while stack:
        node = stack.pop()
        if isinstance(node, s.Name) and node.name not in known:
            return True
        if isinstance(node, s.Call) and node.name not in known | FUNCTIONS.keys():
            return True
        if isinstance(node, s.Field) and _field_name(node) not in FIELDS:
            return True
        parts = _parts(node)
        if isinstance(node, s.Aggregate):
            known.add("it")
        if isinstance(node, s.Aggregate | s.Call):
            # Words such as `zone` and `nodes` say where and over what there; they are no values.
            parts = [
                one for one in parts if not isinstance(one, s.Name) or one.name not in RESERVED
            ]
        stack.extend(parts)
    return False
