"""Aggregates over the items of a list: `any(split(pod.annotation[x], ",") where it == node.zone)`.

Written out item by item, so that a list costs what its items cost and no loop is needed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from dsl import ir
from dsl import syntax as s
from dsl.checker.calls import is_split, item_of
from dsl.checker.convert import help_for
from dsl.checker.making import (
    arith,
    choice,
    compare,
    constant,
    first_of,
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

#: So many items are looked at of a list of the pod; of one that each node has, or where each item
#: is looked for among pods or nodes, so many.
MOST_OF_POD: Final = 64
MOST_OF_NODE: Final = 16
#: What lies beyond these first items is asked only where there are more.
_AT_ONCE: Final = 16
#: Items times parts that are asked of each, in a file.
MOST_PARTS: Final = 16_000
#: What takes a value of each item and is not put together from pieces of the list.
_PICKS: Final = ("max", "min", "avg", "median", "distinct")
_ORDERED: Final = ("max", "min", "median")


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
    value = node.args[0] if node.over is not None else None
    fixed = _fixed(items)
    if fixed is not None:
        assert isinstance(fixed.value, tuple)
        _bound(typer, node, len(fixed.value))
        kind = _kind_of_item(items)
        known: list[ir.Expr] = [constant(node.span, one, kind) for one in fixed.value]
        parts = [_one(typer, node, one, value) for one in known]
        if not parts:
            # Of an empty list a missing item is asked: it tells the unit, and what is wrong.
            asked = _one(typer, node, item_of(items, 0, node.span), value)
            parts = [] if node.function in ("any", "all") else [asked]
        return _joined(node, parts)
    first = _one(typer, node, item_of(items, 0, node.span), value)
    most = _most(items, first)
    _bound(typer, node, most)
    read = [item_of(items, place, node.span) for place in range(1, most)]
    parts = [first, *(_one(typer, node, one, value) for one in read)]
    longer = _longer(node, items, most)
    whole = _bounded(node, longer, _by_length(node, items, parts))
    typer.bounded[id(whole)] = whole, longer
    return whole


def too_long(typer: Typer, *roots: ir.Expr | None) -> tuple[ir.Compare, ...]:
    """Returns what holds where a list in these parts has more items than are looked at."""
    met = ir.walk(*(one for one in roots if one is not None)) if typer.bounded else ()
    found = [typer.bounded[id(one)][1] for one in met if id(one) in typer.bounded]
    # An equal text is an equal list.
    known = {(typer.scope.text(*ir.children(one.left)), _number_in(one)): one for one in found}
    return tuple(known.values())


def _number_in(longer: ir.Compare) -> object:
    return longer.right.value if isinstance(longer.right, ir.Const) else None


def _bound(typer: Typer, node: s.Aggregate, count: int) -> None:
    """Refuses what would be written out too long."""
    typer.written_out += count * _size(node)
    if typer.written_out > MOST_PARTS:
        raise typer.scope.refuse(
            "P006",
            f"lists that are gone through come to more than {MOST_PARTS:,} parts in this file",
            node.span,
            "ask less of each item, or test the list with `in`",
        )


def _size(root: s.Node) -> int:
    """Returns of how many parts an expression is made."""
    count, stack = 0, [root]
    while stack:
        node = stack.pop()
        count += 1
        for name in node.__struct_fields__:
            value = getattr(node, name)
            inner = value if isinstance(value, tuple) else (value,)
            stack.extend(one for one in inner if isinstance(one, s.Node))
    return count


# ---- the items


def _most(items: ir.Expr, asked: tuple[ir.Expr, ir.Expr]) -> int:
    """Returns how many items are looked at: fewer where each costs as much as there are nodes."""
    dear = any(isinstance(one, ir.PodAggregate | ir.NodeAggregate) for one in ir.walk(*asked))
    return MOST_OF_NODE if dear or items.level > Level.POD else MOST_OF_POD


def _fixed(items: ir.Expr) -> ir.Const | None:
    """Returns the list whose items are known, None for one that is read."""
    while isinstance(items, ir.Named):
        items = items.body
    return items if isinstance(items, ir.Const) else None


def _kind_of_item(items: ir.Expr) -> Type:
    return TEXT if items.type.element is Kind.TEXT else number_of(items.type.unit or PLAIN)


@contextmanager
def _meaning(typer: Typer, item: ir.Expr) -> Iterator[None]:
    """Says what `it` alone means."""
    before, typer.item = typer.item, item
    try:
        yield
    finally:
        typer.item = before


def _one(
    typer: Typer, node: s.Aggregate, item: ir.Expr, written: s.Expr | None
) -> tuple[ir.Expr, ir.Expr]:
    """Returns the condition under which an item counts, and its value."""
    holds: list[ir.Expr] = [inverted(node.span, missing(node.span, item))]
    value: ir.Expr = constant(node.span, 1.0, NUMBER)
    with _meaning(typer, item):
        if node.where is not None:
            holds.append(_condition(typer, node.where))
        if written is not None and node.function in ("sum", *_PICKS):
            value = _value(typer, node.function, written)
        elif written is not None:
            value = _condition(typer, written)
    if written is None and node.function == "distinct":
        value = item
    elif written is None and node.function in ("sum", *_PICKS):
        # Without a condition and a value it is no list that is run over.
        assert node.where is not None
        message = f"`{node.function}` needs a number of each item"
        value_of = "it" if item.type.is_number else "number(it)"
        where = f"{typer.scope.text(node.args[0])} where {typer.scope.text(node.where)}"
        help_ = f"write  {node.function}({value_of} over {where})"
        raise typer.scope.refuse("P209", message, node.span, help_)
    if written is None and node.function in ("any", "all"):
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


def _joined(node: s.Aggregate, parts: list[tuple[ir.Expr, ir.Expr]]) -> ir.Expr:
    span, function = node.span, node.function
    if function in ("any", "all"):
        if not parts:
            return constant(span, function == "all", BOOL)
        if function == "any":
            return logical(span, "or", [logical(span, "and", pair) for pair in parts])
        each = [(inverted(span, counts), holds) for counts, holds in parts]
        return logical(span, "and", [logical(span, "or", pair) for pair in each])
    if function in _PICKS:
        wheres, values = zip(*parts, strict=True)
        return ir.ItemAggregate(
            span=span,
            type=NUMBER if function == "distinct" else values[0].type,
            level=level_of((*wheres, *values)),
            function=function,
            wheres=wheres,
            values=values,
        )
    return _sum([_term(node, *pair) for pair in parts], span)


def _sum(terms: list[ir.Expr], span: Span) -> ir.Expr:
    if len(terms) == 1:
        return terms[0]
    return arith(span, terms[0].type, ("+",) * (len(terms) - 1), tuple(terms))


def _term(node: s.Aggregate, counts: ir.Expr, value: ir.Expr) -> ir.Expr:
    """Returns what an item adds: nothing where it does not count or has no value."""
    span = node.span
    if node.function == "count":
        counts = counts if value.type.is_number else logical(span, "and", (counts, value))
        value = constant(span, 1.0, NUMBER)
    zero = constant(span, 0.0, value.type)
    there = first_of(span, (value, zero)) if node.function == "sum" else value
    return choice(span, counts, there, zero)


def _longer(node: s.Aggregate, items: ir.Expr, most: int) -> ir.Compare:
    """Returns whether a list has more items than that. No text says so."""
    nobody = Span(node.span.start, node.span.start)
    return compare(
        nobody, func(nobody, NUMBER, "len", (items,)), ">", constant(nobody, float(most), NUMBER)
    )


def _by_length(node: s.Aggregate, items: ir.Expr, parts: list[tuple[ir.Expr, ir.Expr]]) -> ir.Expr:
    """Returns the aggregate in pieces: short lists, nearly all, pay for the first alone."""
    span, function = node.span, node.function
    if function in _PICKS:
        return _as_long_as_needed(node, items, parts)
    pieces = []
    for start in range(0, len(parts), _AT_ONCE):
        piece = _joined(node, parts[start : start + _AT_ONCE])
        if start:
            more = _longer(node, items, start)
            if function == "any":
                piece = logical(span, "and", (more, piece))
            elif function == "all":
                piece = logical(span, "or", (inverted(span, more), piece))
            else:
                piece = choice(span, more, piece, constant(span, 0.0, piece.type))
        pieces.append(piece)
    if function in ("any", "all"):
        return logical(span, "or" if function == "any" else "and", pieces)
    return _sum(pieces, span)


def _as_long_as_needed(
    node: s.Aggregate, items: ir.Expr, parts: list[tuple[ir.Expr, ir.Expr]]
) -> ir.Expr:
    """Returns an aggregate that cannot be put together from pieces: of the first items, or more."""
    whole = _joined(node, parts)
    for end in range((len(parts) - 1) // _AT_ONCE * _AT_ONCE, 0, -_AT_ONCE):
        more, fewer = _longer(node, items, end), _joined(node, parts[:end])
        whole = choice(node.span, more, whole, fewer)
    return whole


def _bounded(node: s.Aggregate, longer: ir.Expr, whole: ir.Expr) -> ir.Expr:
    """Returns what a list with more items than are looked at comes to: false, or missing.

    The rules of filters reject besides, see `too_long`.
    """
    span = node.span
    if whole.type.kind is Kind.BOOL:
        return logical(span, "and", (inverted(span, longer), whole))
    return choice(span, longer, constant(span, MISSING, whole.type), whole)
