"""Aggregates over the items of a list: `any(split(pod.annotation[x], ",") where it == node.zone)`.

What is asked of each item is understood once; `it` alone is the item there.
"""

from typing import Final

from msgspec.structs import replace

from dsl import ir, making
from dsl import syntax as s
from dsl.checker.typer import Typer
from dsl.schema import FIELDS
from dsl.source import Span
from dsl.types import BOOL, MISSING, NUMBER, Kind, Level, Type

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
    return typer.want(typer.check(written), wants, f"`{function}`", "P209")


def condition(typer: Typer, written: s.Expr) -> ir.Expr:
    """Checks the condition behind `where`."""
    return typer.want(typer.check(written), "condition", "`where`", "P208")


def type_of(function: str, value: ir.Expr | None) -> Type:
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
    nobody = Span(value.span.start, value.span.start)
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
        value, where = _asked(typer, node, item)
    read = [one for one in (value, where) if one is not None]
    level = making.level_of((items, item, *read))
    kind = type_of(node.function, value)
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


def _asked(typer: Typer, node: s.Aggregate, item: ir.Expr) -> tuple[ir.Expr | None, ir.Expr]:
    """Returns the value of an item, and the condition under which it counts."""
    function = node.function
    nobody = Span(node.span.start, node.span.start)
    holds: list[ir.Expr] = [making.inverted(nobody, making.missing(nobody, item))]
    if node.where is not None:
        holds.append(condition(typer, node.where))
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
    # No text says that a list has more items.
    span, nobody = whole.span, Span(whole.span.start, whole.span.start)
    most = making.constant(nobody, float(whole.most), NUMBER)
    longer = making.compare(nobody, making.func(nobody, NUMBER, "len", (whole.items,)), ">", most)
    if whole.type == BOOL:
        bounded: ir.Expr = making.logical(span, "and", (making.inverted(span, longer), whole))
    else:
        bounded = making.choice(span, longer, making.constant(span, MISSING, whole.type), whole)
    typer.bounded[id(bounded)] = bounded, longer
    return bounded


def too_long(typer: Typer, *roots: ir.Expr | None) -> tuple[ir.Compare, ...]:
    """Returns what holds where a list in these parts has more items than are looked at."""
    met = ir.walk(*roots) if typer.bounded else ()
    found = [typer.bounded[id(one)][1] for one in met if id(one) in typer.bounded]
    # An equal text is an equal list.
    text = typer.text
    known = {(text(*ir.children(one.left)), getattr(one.right, "value", 0)): one for one in found}
    return tuple(known.values())
