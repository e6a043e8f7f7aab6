"""Which unit a number as written gets: `5`, `10k`, `500m`, `80%` take that of their neighbour."""

import re
from fractions import Fraction
from operator import add, mul, sub
from typing import Final

from dsl import ir
from dsl import syntax as s
from dsl import types as t
from dsl.checker.scope import Flex, Refused, Scope, Typed, describe
from dsl.diagnostics import Fix, Label
from dsl.foreign.fields import quoted_key
from dsl.making import constant
from dsl.quantities import exact_decimal, exact_duration, exact_quantity, parse_time, to_float
from dsl.schema import FIELDS
from dsl.source import Span

_SMALL_BYTES: Final = 1024
#: Of a node or pod nobody asks for less than that.
_FEW_BYTES: Final = 1024 * 1024
#: More than a machine has, more than a pod asks for: whoever writes that means thousandths.
_MANY_CORES: Final = 500
_MANY_CORES_OF_A_POD: Final = 200
_MAX_BITS: Final = 4096
_FOLDS: Final = {"+": add, "-": sub, "*": mul}


def read_number(text: str, span: Span) -> Typed | None:
    """Returns the constant a number, quantity, duration or percentage stands for.

    None when the text is no number at all, or an absurdly long one.
    """
    if text.endswith("%"):
        share = exact_decimal(text[:-1])
        return None if share is None else Flex(span, share / 100, "percent", text)
    plain = exact_decimal(text)
    if plain is not None:
        return Flex(span, plain, "plain", text)
    if text.endswith("m") and exact_decimal(text[:-1]) is not None:
        return Flex(span, exact_quantity(text), "milli", text)
    if text.endswith("i"):
        size = exact_quantity(text)
        return None if size is None else constant(span, to_float(size), t.number_of(t.BYTES))
    seconds = exact_duration(text)
    if seconds is not None:
        return constant(span, to_float(seconds), t.number_of(t.SECONDS))
    factor = exact_quantity(text)
    return None if factor is None else Flex(span, factor, "factor", text)


def read_literal(scope: Scope, node: s.Number | s.Percent) -> Typed:
    """Returns the constant of a number in an expression."""
    found = read_number(node.text, node.span)
    if found is None:
        raise scope.refuse("P007", f"`{node.text}` is too long or too large a number", node)
    return found


def settle(scope: Scope, typed: Typed, unit: t.Unit, neighbour: Typed | None = None) -> ir.Expr:
    """Gives a constant the unit of its neighbour; other expressions stay as they are."""
    if not isinstance(typed, Flex):
        return typed
    if typed.sort == "milli" and (unit.core != 1 or unit.byte):
        return _settle_minutes(scope, typed, unit, neighbour)
    if typed.sort == "percent" and not unit.is_plain:
        what = scope.text(neighbour) if neighbour is not None else str(unit)
        message = f"`{typed.text}` of what? `{what}` is in {unit}"
        help_ = f"write for example  {typed.text} of {_whole(unit, neighbour)}"
        raise scope.refuse("P204", message, typed, help_)
    if typed.exact is None:
        return constant(typed.span, t.MISSING, t.number_of(unit))
    _odd_size(scope, typed, unit, neighbour)
    value = typed.exact * Fraction(t.scale_of(unit))
    return constant(typed.span, to_float(value), t.number_of(unit))


def _odd_size(scope: Scope, typed: Flex, unit: t.Unit, neighbour: Typed | None) -> None:
    """Warns of a bare number next to bytes or cores that reads as another unit."""
    size = abs(typed.exact or Fraction(0))
    if typed.sort != "plain" or not size or not re.fullmatch(r"-?\d+(\.\d+)?", typed.text):
        return
    met = tuple(ir.walk(neighbour)) if isinstance(neighbour, ir.Core) else ()
    reads = bool(met) and all(isinstance(one, ir.Read | ir.Named | ir.Arith) for one in met)
    if unit.byte == 1 and unit.core == 0 and size < (_FEW_BYTES if reads else _SMALL_BYTES):
        rate = "/1s" if unit.second else ""
        help_ = f"did you mean {typed.text}Gi{rate} or {typed.text}Mi{rate}?"
        scope.warn("P220", f"`{typed.text}` next to {unit} is very small", typed, help_)
    written = scope.text(typed) == typed.text
    if unit == t.SECONDS and neighbour is not None and written and size.denominator == 1:
        message = f"`{typed.text}` next to a duration is {typed.text} seconds"
        scope.warn("P220", message, typed, f"write  {typed.text}s   or   {typed.text}min")
    of_pod = isinstance(neighbour, ir.Core) and neighbour.level is not t.Level.NODE
    if unit == t.CORES and reads and size >= (_MANY_CORES_OF_A_POD if of_pod else _MANY_CORES):
        scope.warn(
            "P220",
            f"`{typed.text}` next to cores is {typed.text} whole cores",
            typed,
            f"did you mean {typed.text}m? if not, write  cores({scope.text(typed)})",
            fix=f"{typed.text}m" if written else None,
        )


def _whole(unit: t.Unit, neighbour: Typed | None) -> str:
    """Returns of what a share may be meant: of all that a node has of the same."""
    of = neighbour.field.rpartition(".")[0] if isinstance(neighbour, ir.Read) else ""
    if f"{of}.allocatable" in FIELDS:
        return f"{of}.allocatable"
    return "1h" if unit == t.SECONDS else f"node.{'memory' if unit.byte else 'cpu'}.allocatable"


def _settle_minutes(scope: Scope, typed: Flex, unit: t.Unit, neighbour: Typed | None) -> ir.Expr:
    assert typed.exact is not None
    if unit == t.SECONDS:
        return constant(typed.span, to_float(typed.exact * 60_000), t.number_of(unit))
    if unit.byte:
        wants, help_ = "equal units are wanted", f"did you mean {typed.text[:-1]}Mi?"
        raise scope.clash("P203", wants, neighbour or typed, typed, help_)
    message = f"`{typed.text}` is minutes or thousandths, and nothing here says which"
    help_ = f"write {typed.text}in, or {to_float(typed.exact)!r}"
    raise scope.refuse("P206", message, typed, help_)


def fold(scope: Scope, operators: tuple[str, ...], operands: list[Flex], span: Span) -> Flex:
    """Computes a chain of constants exactly."""
    for one in operands:
        if one.sort == "milli":
            settle(scope, one, t.PLAIN)
    value = operands[0].exact
    for operator, operand in zip(operators, operands[1:], strict=True):
        value = _fold_one(operator, value, operand.exact)
    text = scope.source.slice(span)
    percent = all(one.sort == "percent" for one in operands) and set(operators) <= {"+", "-"}
    return Flex(span, value, "percent" if percent else "plain", text)


def _fold_one(operator: str, left: Fraction | None, right: Fraction | None) -> Fraction | None:
    if left is None or right is None:
        return None
    if operator == "/":
        if right == 0:
            return Fraction(0) if left == 0 else None
        value = left / right
    else:
        value = _FOLDS[operator](left, right)
    if value.numerator.bit_length() + value.denominator.bit_length() > _MAX_BITS:
        rounded = to_float(value)
        return None if rounded != rounded else Fraction(rounded)
    return value


def read_value(kind: str, text: str, span: Span) -> Typed | None:
    """Returns what a text is as a value of a kind, None if it is none."""
    match kind:
        case "string":
            return constant(span, text, t.TEXT)
        case "duration":
            seconds = exact_duration(text)
            return None if seconds is None else constant(span, to_float(seconds), t.DURATION)
        case "time":
            moment = parse_time(text)
            return None if t.is_missing(moment) else constant(span, moment, t.TIME)
        case "bool":
            known = text in ("true", "false")
            return constant(span, text == "true", t.BOOL) if known else None
        case _:
            pass
    number = read_number(text, span)
    if kind == "number":
        # It keeps no unit.
        return number if isinstance(number, Flex) else None
    return number if number is not None or kind else constant(span, text, t.TEXT)


def read_word(scope: Scope, node: s.Word | s.Text | s.Percent | s.Bool, like: Typed) -> ir.Const:
    """Reads a word in the type of the value it is tested against."""
    text = node.text if isinstance(node, s.Percent) else str(node.value)
    kind = like.type
    if kind.is_number:
        number = read_number(text, node.span)
        if number is None:
            raise _wrong_word(scope, node.span, text, like)
        settled = settle(scope, number, kind.unit or t.PLAIN, like)
        if isinstance(settled, ir.Const) and settled.type.unit == (kind.unit or t.PLAIN):
            return settled
        raise scope.clash("P203", "a comparison wants equal units", like, settled)
    names = {t.Kind.TEXT: "string", t.Kind.BOOL: "bool", t.Kind.TIME: "time"}
    found = read_value(names[kind.kind], text, node.span) if kind.kind in names else None
    if isinstance(found, ir.Const):
        return found
    raise _wrong_word(scope, node.span, text, like)


def _wrong_word(scope: Scope, span: Span, text: str, like: Typed) -> Refused:
    message = f"`{scope.text(like)}` is {describe(like)}, and `{text}` is not"
    fix: Fix | None = None
    helps: tuple[str, ...] = ()
    if isinstance(like, ir.Read) and like.field == "node.taint":
        better = f"node.taint {quoted_key(str(like.key))}={quoted_key(text)}"
        fix = Fix(Span(like.span.start, span.end), better)
    elif describe(like) == "a condition" and text.lower() in ("true", "false"):
        fix = Fix(span, text.lower())
    elif like.type.is_number and ".." in text:
        helps = (f"a range stands without brackets:  {scope.text(like)} in {text}",)
    elif like.type.kind is t.Kind.LIST:
        helps = (f"write  {scope.text(like)} contains {quoted_key(text)}",)
    labels = (Label(span, "a word"),)
    return scope.refuse("P201", message, like, *helps, fix=fix, label=describe(like), labels=labels)


def read_seconds(scope: Scope, node: s.Expr, what: str) -> float:
    """Reads the duration of a clause; a bare number is refused."""
    text = node.value if isinstance(node, s.Text) else scope.text(node)
    seconds = exact_duration(text)
    if seconds is not None:
        return to_float(seconds)
    if exact_decimal(text) is not None:
        raise scope.refuse("P206", f"`{what}` wants a duration", node, fix=f"{text}s")
    message = f"`{text}` is not a duration"
    raise scope.refuse("P111", message, node, "write for example 15s, 5m or 1h")
