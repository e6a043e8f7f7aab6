"""Expressions as written become typed ones: names, arithmetic, logic and choice.

What each other kind of expression means is told by the module of that name.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import cast

from msgspec.structs import replace

from dsl import ir
from dsl import syntax as s
from dsl.checker import aggregates, calls, comparisons, fields, names
from dsl.checker.convert import converted, help_for, sort_of
from dsl.checker.literals import fold, read_literal, settle
from dsl.checker.making import arith, choice, constant, first_of, inverted, level_of, logical
from dsl.checker.scope import Flex, MetricEntry, Refused, Scope, Typed, describe
from dsl.checker.typer import Typer
from dsl.diagnostics import Fix, Label, Severity
from dsl.types import (
    BOOL,
    DURATION,
    NUMBER,
    PLAIN,
    SECONDS,
    TEXT,
    TEXTS,
    TIME,
    Kind,
    Level,
    Type,
    number_of,
)


def typer_of(scope: Scope, find_metric: Callable[[str], MetricEntry | None]) -> Typer:
    """Returns what checks the expressions of one file."""
    return Typer(scope, find_metric, _walk)


def _walk(typer: Typer, node: s.Expr) -> Typed:
    match node:
        case s.Number() | s.Percent():
            return read_literal(typer.scope, node)
        case s.Text() | s.Word():
            return constant(node.span, node.value, TEXT)
        case s.Bool():
            return constant(node.span, node.value, BOOL)
        case s.Param():
            return typer.param(node)
        case s.Name():
            return _name(typer, node)
        case s.Field():
            return fields.read_field(typer, node)
        case s.Words():
            return _list(typer, node)
        case _:
            return _compound(typer, node)


def _compound(typer: Typer, node: s.Expr) -> Typed:
    match node:
        case s.Chain():
            whole = _sum if node.operators[0] in "+-" else _product
            return whole(typer, node)
        case s.Negative():
            return _negative(typer, node)
        case s.PercentOf():
            return _percent_of(typer, node)
        case s.Logical() | s.Not():
            return _logic(typer, node)
        case s.If():
            return _if(typer, node)
        case s.Fallback():
            return _fallback(typer, node)
        case s.Call():
            return calls.call(typer, node)
        case s.Aggregate():
            return aggregates.aggregate(typer, node)
        case s.BareAggregate():
            return aggregates.bare(typer, node)
        case _:
            return comparisons.check_test(typer, node)


def _list(typer: Typer, node: s.Words) -> ir.Expr:
    """Returns a list of fixed words; what they are is decided where they are tested."""
    for one in node.items:
        comparisons.field_as_word(typer.scope, one, Severity.ERROR)
    texts = [fields.fixed_text(typer, one, "an item of a list") for one in node.items]
    return constant(node.span, tuple(texts), TEXTS)


def _name(typer: Typer, node: s.Name) -> Typed:
    entry = typer.scope.lets.get(node.name)
    if entry is not None:
        value = typer.let_value(entry)
        if isinstance(value, Flex):
            return Flex(node.span, value.exact, value.sort, value.text)
        kind, level = value.type, value.level
        return ir.Named(span=node.span, type=kind, level=level, name=node.name, body=value)
    if node.name == "it" and typer.place.item is not None:
        return replace(typer.place.item, span=node.span)
    if node.name == "now":
        return ir.Read(span=node.span, type=TIME, level=Level.CYCLE, field="now")
    if node.name in typer.scope.broken:
        raise Refused
    metric = typer.metric(node.name, node.span)
    if metric is None:
        raise names.no_name(typer.scope, node, in_pods=typer.place.pods)
    return metric


# ---- arithmetic


def _sum(typer: Typer, node: s.Chain) -> Typed:
    parts = typer.each(node.operands)
    if all(isinstance(one, Flex) for one in parts):
        return fold(typer.scope, node.operators, cast("list[Flex]", parts), node.span)
    firm = next(one for one in parts if not isinstance(one, Flex))
    has_time = any(not isinstance(one, Flex) and one.type.kind is Kind.TIME for one in parts)
    unit = SECONDS if has_time else firm.type.unit or PLAIN
    solid = tuple(settle(typer.scope, one, unit, firm) for one in parts)
    kind = solid[0].type
    if {*node.operators} == {"+"} and all(one.type.kind is Kind.TEXT for one in solid):
        message = "`+` wants numbers: texts are put together by `join`"
        better = f"join({', '.join(typer.scope.text(one) for one in node.operands)})"
        raise typer.scope.refuse("P201", message, node.span, fix=better)
    for operator, left, right in zip(node.operators, solid, solid[1:], strict=False):
        kind = _sum_type(typer, operator, kind, left, right)
    return arith(node.span, kind, node.operators, solid)


def _sum_type(typer: Typer, operator: str, kind: Type, left: ir.Expr, right: ir.Expr) -> Type:
    other, scope = right.type, typer.scope
    if kind.kind is Kind.TIME and other.kind is Kind.TIME and operator == "-":
        return DURATION
    if kind.kind is Kind.TIME and other == DURATION:
        return TIME
    if kind == DURATION and other.kind is Kind.TIME and operator == "+":
        return TIME
    if not kind.is_number or not other.is_number:
        guilty = left if not kind.is_number else right
        helps = help_for(scope, guilty, "number")
        raise typer.mixed("P201", f"`{operator}` wants two numbers", left, right, *helps)
    if kind.unit == other.unit:
        return kind
    better = converted(scope, right, sort_of(kind)) or converted(scope, left, sort_of(other))
    raise scope.refuse(
        "P203",
        f"cannot {'add' if operator == '+' else 'subtract'} {describe(left)} and {describe(right)}",
        left.span,
        *([f"write  {better}"] if better else []),
        label=describe(left),
        labels=(Label(right.span, describe(right)),),
    )


def _product(typer: Typer, node: s.Chain) -> Typed:
    parts = typer.each(node.operands)
    if all(isinstance(one, Flex) for one in parts):
        return fold(typer.scope, node.operators, cast("list[Flex]", parts), node.span)
    solid = tuple(typer.plain(one) for one in parts)
    unit = PLAIN
    for operator, one in zip(("*", *node.operators), solid, strict=True):
        if not one.type.is_number:
            typer.want(one, "number", f"`{operator}`")
        unit = unit.times(one.type.unit or PLAIN, 1 if operator == "*" else -1)
    return arith(node.span, number_of(unit), node.operators, solid)


def _negative(typer: Typer, node: s.Negative) -> Typed:
    typed = typer.number(node.operand, "`-`")
    if isinstance(typed, Flex):
        exact = None if typed.exact is None else -typed.exact
        return Flex(node.span, exact, typed.sort, f"-{typed.text}")
    return ir.Negate(span=node.span, type=typed.type, level=typed.level, operand=typed)


def _percent_of(typer: Typer, node: s.PercentOf) -> Typed:
    share = cast("Flex", read_literal(typer.scope, node.percent))
    typed = typer.number(node.operand, "`of`")
    exact = cast("Fraction", share.exact)
    if isinstance(typed, Flex):
        return fold(typer.scope, ("*",), [Flex(share.span, exact), typed], node.span)
    # Times N, then over 100: exact wherever the result is a whole number.
    number = settle(typer.scope, Flex(share.span, exact * 100), PLAIN)
    hundred = constant(share.span, 100.0, NUMBER)
    return arith(node.span, typed.type, ("*", "/"), (typed, number, hundred))


# ---- logic and choice


def _logic(typer: Typer, node: s.Logical | s.Not) -> ir.Expr:
    written = (node.operand,) if isinstance(node, s.Not) else node.operands
    word = "not" if isinstance(node, s.Not) else node.operator
    if isinstance(node, s.Logical):
        comparisons.alternatives(typer.scope, node)
    parts = typer.each(written)
    solid = [typer.want(one, "condition", f"`{word}`") for one in parts]
    if isinstance(node, s.Not):
        return inverted(node.span, solid[0])
    return logical(node.span, node.operator, solid)


def _if(typer: Typer, node: s.If) -> ir.Expr:
    conditions = [one for one, _ in node.branches]
    checked = typer.each([*conditions, *(then for _, then in node.branches), node.otherwise])
    count = len(conditions)
    tests = [typer.want(one, "condition", "`if`") for one in checked[:count]]
    values, kind = typer.unify(checked[count:], "`then` and `else` want")
    if kind.kind is Kind.LIST and level_of((*values, *tests)) > Level.POD:
        message = "a list may not differ from node to node here"
        raise typer.scope.refuse("P201", message, node.span)
    result = values[-1]
    for condition, then in zip(reversed(tests), reversed(values[:-1]), strict=True):
        result = replace(choice(node.span, condition, then, result), type=kind)
    return result


def _fallback(typer: Typer, node: s.Fallback) -> ir.Expr:
    parts = typer.each(node.operands)
    for one in parts[:-1]:
        if not isinstance(one, Flex) and one.type.kind in (Kind.BOOL, Kind.LIST):
            message = f"`??` is for values that may be missing; {describe(one)} never is"
            fix = Fix(node.span, typer.scope.text(one)) if one is parts[0] else None
            raise typer.scope.refuse("P201", message, one.span, fix=fix)
    values, kind = typer.unify(parts, "`??` wants")
    return replace(first_of(node.span, values), type=kind)
