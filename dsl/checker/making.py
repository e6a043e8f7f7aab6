"""Typed expressions put together: the level of a whole is the highest of its parts."""

from collections.abc import Iterable

from dsl import ir
from dsl.source import Span
from dsl.types import BOOL, PLAIN, TEXT, Kind, Level, Type, number_of


def level_of(nodes: Iterable[ir.Expr]) -> Level:
    """Returns the highest level of some parts."""
    return max((one.level for one in nodes), default=Level.CONST)


def constant(
    span: Span, value: float | str | tuple[float, ...] | tuple[str, ...], kind: Type
) -> ir.Const:
    """Returns a constant."""
    return ir.Const(span=span, type=kind, level=Level.CONST, value=value)


def item_type(items: ir.Expr) -> Type:
    """Returns the type of the items of a list."""
    kind = items.type
    return TEXT if kind.element is Kind.TEXT else number_of(kind.unit or PLAIN)


def read(span: Span, kind: Type, level: Level, field: str, key: str | None = None) -> ir.Read:
    """Returns the read of a field."""
    return ir.Read(span=span, type=kind, level=level, field=field, key=key)


def compare(span: Span, left: ir.Expr, operator: str, right: ir.Expr) -> ir.Compare:
    """Returns a comparison."""
    level = max(left.level, right.level)
    return ir.Compare(span=span, type=BOOL, level=level, operator=operator, left=left, right=right)


def inverted(span: Span, test: ir.Expr) -> ir.Not:
    """Returns the opposite of a condition."""
    return ir.Not(span=span, type=BOOL, level=test.level, operand=test)


def turned(span: Span, test: ir.Expr, *, negated: bool) -> ir.Expr:
    """Returns a condition, or its opposite."""
    return inverted(span, test) if negated else test


def logical(span: Span, operator: str, parts: Iterable[ir.Expr]) -> ir.Expr:
    """Returns conditions joined by `and` or `or`; a single one stays as it is."""
    operands = tuple(parts)
    if len(operands) == 1:
        return operands[0]
    level = level_of(operands)
    return ir.Logical(span=span, type=BOOL, level=level, operator=operator, operands=operands)


def missing(span: Span, operand: ir.Expr) -> ir.Missing:
    """Returns whether a value is missing."""
    return ir.Missing(span=span, type=BOOL, level=operand.level, operand=operand)


def choice(span: Span, condition: ir.Expr, then: ir.Expr, other: ir.Expr) -> ir.If:
    """Returns one of two values of one type, by a condition."""
    level = level_of((condition, then, other))
    kind = then.type
    return ir.If(span=span, type=kind, level=level, condition=condition, then=then, other=other)


def first_of(span: Span, operands: tuple[ir.Expr, ...]) -> ir.Coalesce:
    """Returns the first of some values that is there."""
    kind, level = operands[0].type, level_of(operands)
    return ir.Coalesce(span=span, type=kind, level=level, operands=operands)


def arith(
    span: Span, kind: Type, operators: tuple[str, ...], operands: tuple[ir.Expr, ...]
) -> ir.Arith:
    """Returns a chain of sums or of products."""
    level = level_of(operands)
    return ir.Arith(span=span, type=kind, level=level, operators=operators, operands=operands)


def func(span: Span, kind: Type, name: str, args: tuple[ir.Expr, ...]) -> ir.Func:
    """Returns a call."""
    return ir.Func(span=span, type=kind, level=level_of(args), name=name, args=args)


def member(span: Span, item: ir.Expr, items: ir.Expr) -> ir.Member:
    """Returns whether a list holds an item."""
    level = max(item.level, items.level)
    return ir.Member(span=span, type=BOOL, level=level, item=item, items=items)
