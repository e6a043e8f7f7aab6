"""Aggregates over the items of a list: `any(split(pod.annotation[x], ",") where it == node.zone)`.

What is asked of each item is understood once; `it` alone is the item there.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from dsl import ir
from dsl import syntax as s
from dsl.checker.calls import is_split
from dsl.checker.convert import help_for
from dsl.checker.making import (
    choice,
    compare,
    constant,
    func,
    inverted,
    level_of,
    logical,
    missing,
)
from dsl.checker.scope import Flex, Typed, describe
from dsl.checker.typer import Typer
from dsl.schema import FIELDS
from dsl.source import Span
from dsl.types import BOOL, MISSING, NUMBER, PLAIN, TEXT, Kind, Level, Type, number_of

#: So many items are looked at of a list of the pod; where each is asked of all nodes, so many; and
#: of a list that each node has, or where each item is looked for among pods or nodes.
MOST_OF_POD: Final = 1024
MOST_OVER_NODES: Final = 64
MOST_OF_NODE: Final = 16
_ORDERED: Final = ("max", "min", "median")
_NUMBERS: Final = ("sum", "avg", *_ORDERED)


def list_of(typer: Typer, node: s.Aggregate) -> ir.Expr | None:
    """Returns the list that an aggregate runs over, None if it runs over something else."""
    written = node.over
    alone = node.where is not None or node.function == "distinct"
    if written is None and alone and len(node.args) == 1:
        written = node.args[0]
    if not _may_be_list(typer, written):
        return None
    assert written is not None
    typed = typer.check(written)
    return typed if not isinstance(typed, Flex) and typed.type.kind is Kind.LIST else None


def _may_be_list(typer: Typer, node: s.Expr | None) -> bool:
    match node:
        case s.Param():
            return True
        case s.Name():
            return node.name in typer.scope.lets
        case s.Call():
            return node.name == "split"
        case s.Field():
            spec = FIELDS.get(node.path)
            return spec is not None and spec.type.kind is Kind.LIST
        case _:
            return False


def over_list(typer: Typer, node: s.Aggregate, items: ir.Expr) -> ir.Expr:
    """Returns an aggregate over the items of a list."""
    text, split = typer.scope.text(items), is_split(items)
    if items.level > (Level.NODE if split else Level.POD):
        message = f"`{text}` is not gone through item by item"
        help_ = "lists of the pod to place are, and what `split` makes of texts of the node"
        raise typer.scope.refuse("P209", message, items.span, help_, "test it with `in`")
    if typer.item is not None:
        help_ = "give the inner one a name with `let`, if it does not read the item"
        raise typer.scope.refuse("P209", "a list within a list", node.span, help_)
    written = node.args[0] if node.over is not None else None
    is_text = items.type.element is Kind.TEXT
    item = ir.Item(
        span=node.span,
        type=TEXT if is_text else number_of(items.type.unit or PLAIN),
        level=max(items.level, Level.POD),
    )
    where, value = _asked(typer, node, item, written)
    level = level_of((items, item, where, value))
    fixed = _fixed(items)
    most = MOST_OVER_NODES if level > Level.POD else MOST_OF_POD
    if items.level > Level.POD or _is_dear(where, value):
        most = MOST_OF_NODE
    whole = ir.ItemAggregate(
        span=node.span,
        type=_type_of(node.function, value),
        level=level,
        function=node.function,
        items=items,
        value=value,
        where=where,
        most=most if fixed is None else len(fixed),
    )
    if fixed is not None:
        return whole
    longer = _longer(node, items, most)
    bounded = _bounded(node, longer, whole)
    typer.bounded[id(bounded)] = bounded, longer
    return bounded


def too_long(typer: Typer, *roots: ir.Expr | None) -> tuple[ir.Compare, ...]:
    """Returns what holds where a list in these parts has more items than are looked at."""
    met = ir.walk(*(one for one in roots if one is not None)) if typer.bounded else ()
    found = [typer.bounded[id(one)][1] for one in met if id(one) in typer.bounded]
    # An equal text is an equal list.
    known = {(typer.scope.text(*ir.children(one.left)), _number_in(one)): one for one in found}
    return tuple(known.values())


def _number_in(longer: ir.Compare) -> object:
    return longer.right.value if isinstance(longer.right, ir.Const) else None


# ---- the items


def _is_dear(*asked: ir.Expr) -> bool:
    """Whether each item costs as much as there are pods or nodes."""
    return any(isinstance(one, ir.PodAggregate | ir.NodeAggregate) for one in ir.walk(*asked))


def _fixed(items: ir.Expr) -> tuple[object, ...] | None:
    """Returns the items that are known, None for a list that is read."""
    while isinstance(items, ir.Named):
        items = items.body
    known = items.value if isinstance(items, ir.Const) else None
    return known if isinstance(known, tuple) else None


def _type_of(function: str, value: ir.Expr) -> Type:
    if function in ("any", "all"):
        return BOOL
    return NUMBER if function in ("count", "distinct") else value.type


@contextmanager
def _meaning(typer: Typer, item: ir.Expr) -> Iterator[None]:
    """Says what `it` alone means."""
    before, typer.item = typer.item, item
    try:
        yield
    finally:
        typer.item = before


def _asked(
    typer: Typer, node: s.Aggregate, item: ir.Expr, written: s.Expr | None
) -> tuple[ir.Expr, ir.Expr]:
    """Returns the condition under which an item counts, and its value."""
    function = node.function
    holds: list[ir.Expr] = [inverted(node.span, missing(node.span, item))]
    value: ir.Expr = constant(node.span, 1.0, NUMBER)
    with _meaning(typer, item):
        if node.where is not None:
            holds.append(_condition(typer, node.where))
        if written is not None and function in (*_NUMBERS, "distinct"):
            value = _value(typer, function, written)
        elif written is not None:
            value = _condition(typer, written)
    if written is None and function == "distinct":
        value = item
    elif written is None and function in _NUMBERS:
        # Without a condition and a value it is no list that is run over.
        assert node.where is not None
        message = f"`{function}` needs a number of each item"
        value_of = "it" if item.type.is_number else "number(it)"
        where = f"{typer.scope.text(node.args[0])} where {typer.scope.text(node.where)}"
        help_ = f"write  {function}({value_of} over {where})"
        raise typer.scope.refuse("P209", message, node.span, help_)
    elif written is None and function in ("any", "all"):
        value = holds.pop()
    return logical(node.span, "and", holds), value


def comparable(typer: Typer, value: ir.Expr) -> None:
    """Refuses what `distinct` cannot tell apart: lists, and conditions, which have two values."""
    if value.type.kind in (Kind.TEXT, Kind.NUMBER, Kind.TIME):
        return
    message = f"`distinct` takes a text or a number, and this is {describe(value)}"
    raise typer.scope.refuse("P209", message, value.span)


def _condition(typer: Typer, written: s.Expr) -> ir.Expr:
    what = "what is asked of each item is"
    return typer.as_condition(typer.check(written), written.span, what, "P208")


def _value(typer: Typer, function: str, written: s.Expr) -> ir.Expr:
    typed: Typed = typer.plain(typer.check(written))
    assert not isinstance(typed, Flex)
    if function == "distinct":
        comparable(typer, typed)
        return typed
    if typed.type.is_number or (typed.type.kind is Kind.TIME and function in _ORDERED):
        return typed
    message = f"`{function}` takes a number, and this is {describe(typed)}"
    raise typer.scope.refuse("P209", message, written.span, *help_for(typer.scope, typed, "number"))


# ---- what they come to


def _longer(node: s.Aggregate, items: ir.Expr, most: int) -> ir.Compare:
    """Returns whether a list has more items than that. No text says so."""
    nobody = Span(node.span.start, node.span.start)
    return compare(
        nobody, func(nobody, NUMBER, "len", (items,)), ">", constant(nobody, float(most), NUMBER)
    )


def _bounded(node: s.Aggregate, longer: ir.Expr, whole: ir.Expr) -> ir.Expr:
    """Returns what a list with more items than are looked at comes to: false, or missing.

    The rules of filters reject besides, see `too_long`.
    """
    span = node.span
    if whole.type.kind is Kind.BOOL:
        return logical(span, "and", (inverted(span, longer), whole))
    return choice(span, longer, constant(span, MISSING, whole.type), whole)
