"""Typed expressions put together and taken apart: the level of a whole is that of its parts."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final, TypeVar

from dsl import ir
from dsl.schema import AMOUNTS, FIELDS, request_unit
from dsl.source import Span
from dsl.types import BOOL, PLAIN, TEXT, Kind, Level, Type, number_of

#: What stands nowhere in a text.
NOWHERE: Final = Span(0, 0)
_E = TypeVar("_E", bound=ir.Core)


def level_of(nodes: Iterable[ir.Core]) -> Level:
    """Returns the highest level of some parts."""
    return max((one.level for one in nodes), default=Level.CONST)


def made(
    of: type[_E], span: Span, kind: Type, level: Level | None = None, /, **parts: object
) -> _E:
    """Returns an expression; where no level is given, at that of its parts."""
    if level is None:
        level = Level.CONST
        for part in parts.values():
            for one in part if isinstance(part, tuple) else (part,):
                if isinstance(one, ir.Core) and one.level > level:
                    level = one.level
    return of(span=span, type=kind, level=level, **parts)


def constant(
    span: Span, value: float | str | tuple[float, ...] | tuple[str, ...], kind: Type
) -> ir.Const:
    """Returns a constant."""
    return ir.Const(span=span, type=kind, level=Level.CONST, value=value)


def nothing(span: Span, kind: Type) -> ir.Const:
    """Returns the constant that is missing."""
    return ir.Const(span=span, type=kind, level=Level.CONST, value=kind.missing)


def item_type(items: ir.Expr) -> Type:
    """Returns the type of the items of a list."""
    kind = items.type
    return TEXT if kind.element is Kind.TEXT else number_of(kind.unit or PLAIN)


def type_of(field: str, key: str | None = None) -> Type:
    """Returns the type of a field, of an amount that of the resource."""
    amount = key is not None and field in AMOUNTS
    return number_of(request_unit(key)) if key is not None and amount else FIELDS[field].type


def read(span: Span, field: str, key: str | None = None) -> ir.Read:
    """Returns the read of a field."""
    return made(ir.Read, span, type_of(field, key), FIELDS[field].level, field=field, key=key)


def compare(span: Span, left: ir.Expr, operator: str, right: ir.Expr) -> ir.Compare:
    """Returns a comparison."""
    return made(ir.Compare, span, BOOL, operator=operator, left=left, right=right)


def inverted(span: Span, test: ir.Expr) -> ir.Not:
    """Returns the opposite of a condition."""
    return made(ir.Not, span, BOOL, operand=test)


def turned(span: Span, test: ir.Expr, *, negated: bool) -> ir.Expr:
    """Returns a condition, or its opposite."""
    return inverted(span, test) if negated else test


def logical(span: Span, operator: str, parts: Iterable[ir.Expr]) -> ir.Expr:
    """Returns conditions joined by `and` or `or`; a single one stays as it is."""
    operands = tuple(parts)
    if len(operands) == 1:
        return operands[0]
    return made(ir.Logical, span, BOOL, operator=operator, operands=operands)


def missing(span: Span, operand: ir.Expr) -> ir.Missing:
    """Returns whether a value is missing."""
    return made(ir.Missing, span, BOOL, operand=operand)


def choice(span: Span, condition: ir.Expr, then: ir.Expr, other: ir.Expr) -> ir.If:
    """Returns one of two values of one type, by a condition."""
    return made(ir.If, span, then.type, condition=condition, then=then, other=other)


def first_of(span: Span, operands: tuple[ir.Expr, ...]) -> ir.Coalesce:
    """Returns the first of some values that is there."""
    return made(ir.Coalesce, span, operands[0].type, operands=operands)


def arith(
    span: Span, kind: Type, operators: tuple[str, ...], operands: tuple[ir.Expr, ...]
) -> ir.Arith:
    """Returns a chain of sums or of products."""
    return made(ir.Arith, span, kind, operators=operators, operands=operands)


def func(span: Span, kind: Type, name: str, args: tuple[ir.Expr, ...]) -> ir.Func:
    """Returns a call."""
    return made(ir.Func, span, kind, name=name, args=args)


def member(span: Span, item: ir.Expr, items: ir.Expr) -> ir.Member:
    """Returns whether a list holds an item."""
    return made(ir.Member, span, BOOL, item=item, items=items)


def mapped(node: ir.Core, of: Callable[[Any], Any]) -> dict[str, Any]:
    """Returns what a node has besides span, type and level, each part as `of` makes it."""
    return {name: _mapped(getattr(node, name), of) for name in _own_fields(type(node))}


@cache
def _own_fields(kind: type[ir.Core]) -> tuple[str, ...]:
    return tuple(one for one in kind.__struct_fields__ if one not in ir.Core.__struct_fields__)


def _mapped(value: Any, of: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - whatever a field holds
    if isinstance(value, tuple):
        return tuple([_mapped(one, of) for one in value])
    return of(value) if isinstance(value, ir.Core) else value
