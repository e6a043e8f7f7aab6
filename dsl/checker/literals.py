"""Numbers and words as written become constants of the unit their place asks for."""

import re
from fractions import Fraction
from typing import Final

from dsl import ir
from dsl import syntax as s
from dsl.checker.scope import Flex, Scope, Typed, describe
from dsl.diagnostics import Fix, Label, Severity
from dsl.functions import (
    exact_decimal,
    exact_duration,
    exact_quantity,
    parse_time,
    to_float,
)
from dsl.schema import FIELDS, WEEKDAYS
from dsl.source import Span
from dsl.spelling import quoted_key
from dsl.types import (
    BYTES,
    CORES,
    MISSING,
    NUMBER,
    PLAIN,
    SECONDS,
    TEXT,
    TIME,
    Kind,
    Level,
    Type,
    Unit,
    number_of,
    scale_of,
)

_SMALL_BYTES: Final = 1024
#: Of a node or pod nobody asks for less than that.
_FEW_BYTES: Final = 1024 * 1024
_MANY_MEBIBYTES: Final = 100_000
_FEW_SECONDS: Final = 10
_MINUTE_IN_MS: Final = 60_000
_DAY: Final = 86_400
#: More than a machine has, more than a pod asks for: whoever writes that means thousandths.
_MANY_CORES: Final = 500
_MANY_CORES_OF_A_POD: Final = 200
_MAX_BITS: Final = 4096


def constant(
    span: Span, value: float | str | tuple[float, ...] | tuple[str, ...], kind: Type
) -> ir.Const:
    """Returns a constant."""
    return ir.Const(span=span, type=kind, level=Level.CONST, value=value)


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
        return None if size is None else constant(span, to_float(size), number_of(BYTES))
    seconds = exact_duration(text)
    if seconds is not None:
        return constant(span, to_float(seconds), number_of(SECONDS))
    factor = exact_quantity(text)
    return None if factor is None else Flex(span, factor, "factor", text)


def read_literal(scope: Scope, node: s.Number | s.Percent) -> Typed:
    """Returns the constant of a number in an expression."""
    found = read_number(node.text, node.span)
    if found is None:
        raise scope.refuse("P007", f"`{node.text}` is too long or too large a number", node.span)
    return found


def settle(scope: Scope, typed: Typed, unit: Unit, neighbour: Typed | None = None) -> ir.Expr:
    """Gives a constant the unit of its neighbour; other expressions stay as they are."""
    if not isinstance(typed, Flex):
        return typed
    if typed.sort == "milli":
        return _settle_milli(scope, typed, unit, neighbour)
    if typed.sort == "percent" and not unit.is_plain:
        what = scope.text(neighbour) if neighbour is not None else str(unit)
        raise scope.refuse(
            "P204",
            f"`{typed.text}` of what? `{what}` is in {unit}",
            typed.span,
            f"write for example  {typed.text} of {_whole(unit, neighbour)}",
        )
    if typed.exact is None:
        return constant(typed.span, MISSING, number_of(unit))
    _odd_size(scope, typed, unit, neighbour)
    value = typed.exact * Fraction(scale_of(unit))
    return constant(typed.span, to_float(value), number_of(unit))


def _odd_size(scope: Scope, typed: Flex, unit: Unit, neighbour: Typed | None) -> None:
    """Warns of a bare number next to bytes or cores that reads as another unit."""
    size = abs(typed.exact or Fraction(0))
    if unit == SECONDS and size and _is_age(neighbour):
        _odd_age(scope, typed, size)
    if typed.sort == "factor" and unit == CORES:
        _many_cores(scope, typed, size)
    if typed.sort != "plain" or not size or not re.fullmatch(r"-?\d+(\.\d+)?", typed.text):
        return
    few = _FEW_BYTES if isinstance(neighbour, ir.Read) else _SMALL_BYTES
    if unit.byte == 1 and unit.core == 0 and size < few:
        per, rate = (" a second", "/1s") if unit.second else ("", "")
        scope.warn(
            "P220",
            f"`{typed.text}` next to bytes{per} is very small",
            typed.span,
            f"did you mean {typed.text}Gi{rate} or {typed.text}Mi{rate}?"
            if size < _SMALL_BYTES
            else f"did you mean {typed.text}{'Mi' if size < _MANY_MEBIBYTES else 'Ki'}{rate}?",
        )
    if unit != CORES or not isinstance(neighbour, ir.Read) or neighbour.level < Level.POD:
        return
    if size >= (_MANY_CORES if neighbour.level is Level.NODE else _MANY_CORES_OF_A_POD):
        written = scope.text(typed)
        scope.report(
            "P220",
            f"`{typed.text}` next to cores is {typed.text} whole cores",
            typed.span,
            f"did you mean {typed.text}m? if not, write  cores({written})",
            fix=f"{typed.text}m" if written == typed.text else None,
            severity=Severity.WARNING,
        )


def _many_cores(scope: Scope, typed: Flex, size: Fraction) -> None:
    """Warns of `pod.cpu < 500M` and `node.cpu.free > 1.5k`."""
    if size < _MANY_CORES or scope.source.slice(typed.span) != typed.text:
        return
    milli = f"{typed.text[:-1]}m" if typed.text.endswith("M") else ""
    scope.report(
        "P220",
        f"`{typed.text}` next to cores is {to_float(size):,.0f} whole cores",
        typed.span,
        f"did you mean {milli}?" if milli else f"did you mean {typed.text[:-1]}?",
        fix=milli or None,
        severity=Severity.WARNING,
    )


def _whole(unit: Unit, neighbour: Typed | None) -> str:
    """Returns of what a share may be meant: of all that a node has, of the highest, of the same."""
    while isinstance(neighbour, ir.Named | ir.Coalesce):
        neighbour = neighbour.body if isinstance(neighbour, ir.Named) else neighbour.operands[0]
    if isinstance(neighbour, ir.Metric):
        return f"max({neighbour.name})"
    if isinstance(neighbour, ir.Read):
        of, _, part = neighbour.field.rpartition(".")
        whole = f"{of}.{'capacity' if part == 'allocatable' else 'allocatable'}"
        if whole in FIELDS and not FIELDS[whole].keyed:
            return whole
        whole = f"node.{part}.allocatable"
        if whole in FIELDS:
            return whole
    return "1h" if unit == SECONDS else f"node.{'memory' if unit.byte else 'cpu'}.allocatable"


def _is_age(node: Typed | None) -> bool:
    """Whether this is `now - node.created` or another distance of two moments."""
    while isinstance(node, ir.Named):
        node = node.body
    if not isinstance(node, ir.Arith) or node.operators != ("-",):
        return False
    return all(one.type.kind is Kind.TIME for one in node.operands)


def _odd_age(scope: Scope, typed: Flex, size: Fraction) -> None:
    """Warns of an age compared with 5, with 300000 and with 30M."""
    number = re.fullmatch(r"(\d+)([kMG]?)", typed.text)
    if number is None or scope.source.slice(typed.span) != typed.text:
        return  # A parameter has its value elsewhere.
    digits, factor = number.groups()
    milliseconds = size >= _MINUTE_IN_MS and not size % _MINUTE_IN_MS and bool(size % _DAY)
    if factor:
        what, better = (
            f"is {to_float(size):,.0f} seconds",
            f"{digits}{'min' if factor == 'M' else 's'}",
        )
    elif size < _FEW_SECONDS:
        what, better = "is seconds here, and that few are rarely meant", f"{digits}min"
    elif milliseconds:
        what, better = "is seconds here, and not milliseconds", f"{digits}ms"
    else:
        return
    scope.warn(
        "P220",
        f"`{typed.text}` beside an age {what}",
        typed.span,
        f"did you mean {better}? if not, write  {to_float(size):.0f}s",
    )


def _settle_milli(scope: Scope, typed: Flex, unit: Unit, neighbour: Typed | None) -> ir.Expr:
    assert typed.exact is not None
    digits = typed.text[:-1]
    if unit.core == 1 and unit.byte == 0:
        return constant(
            typed.span, to_float(typed.exact * Fraction(scale_of(unit))), number_of(unit)
        )
    if unit == SECONDS:
        return constant(typed.span, to_float(typed.exact * 60_000), number_of(unit))
    if unit.byte:
        span = neighbour.span if neighbour is not None else typed.span
        left_first = span.start < typed.span.start
        raise scope.refuse(
            "P203",
            f"cannot compare {unit} with cores",
            span if left_first else typed.span,
            f"did you mean {digits}Mi?",
            label=str(unit) if left_first else "`m` is milli-cores here",
            labels=(
                Label(typed.span, "`m` is milli-cores here")
                if left_first
                else Label(span, str(unit)),
            ),
        )
    raise scope.refuse(
        "P206",
        f"`{typed.text}` is minutes or thousandths, and nothing here says which",
        typed.span,
        f"write {digits}min, or {to_float(typed.exact)!r}",
    )


def fold(scope: Scope, operators: tuple[str, ...], operands: list[Flex], span: Span) -> Flex:
    """Computes a chain of constants exactly."""
    for one in operands:
        if one.sort == "milli":
            settle(scope, one, PLAIN)
    value = operands[0].exact
    for operator, operand in zip(operators, operands[1:], strict=True):
        value = _fold_one(operator, value, operand.exact)
    text = scope.source.slice(span)
    percent = all(one.sort == "percent" for one in operands) and set(operators) <= {"+", "-"}
    return Flex(span, value, "percent" if percent else "plain", text)


def _fold_one(operator: str, left: Fraction | None, right: Fraction | None) -> Fraction | None:
    if left is None or right is None:
        return None
    if operator == "+":
        value = left + right
    elif operator == "-":
        value = left - right
    elif operator == "*":
        value = left * right
    elif right == 0:
        return Fraction(0) if left == 0 else None
    else:
        value = left / right
    if value.numerator.bit_length() + value.denominator.bit_length() > _MAX_BITS:
        rounded = to_float(value)
        return None if rounded != rounded else Fraction(rounded)
    return value


def read_word(scope: Scope, node: s.Word | s.Text | s.Percent | s.Bool, like: Typed) -> ir.Const:
    """Reads a word in the type of the value it is tested against."""
    text = node.text if isinstance(node, s.Percent) else str(node.value)
    kind = NUMBER if isinstance(like, Flex) else like.type
    if kind.kind is Kind.TEXT:
        return constant(node.span, text, TEXT)
    if kind.is_number:
        number = read_number(text, node.span)
        if number is None:
            raise _wrong_word(scope, node.span, text, like)
        settled = settle(scope, number, kind.unit or PLAIN, like)
        if isinstance(settled, ir.Const) and settled.type.unit == (kind.unit or PLAIN):
            return settled
        raise scope.refuse(
            "P203",
            f"cannot compare {describe(like)} with {describe(settled)}",
            like.span,
            label=describe(like),
            labels=(Label(node.span, describe(settled)),),
        )
    if kind.kind is Kind.BOOL and text in ("true", "false"):
        return constant(node.span, text == "true", kind)
    if kind.kind is Kind.TIME:
        moment = parse_time(text)
        if moment == moment:
            return constant(node.span, moment, TIME)
    raise _wrong_word(scope, node.span, text, like)


def _wrong_word(scope: Scope, span: Span, text: str, like: Typed) -> Exception:
    lower = not isinstance(like, Flex) and like.type.kind is Kind.BOOL
    lower = lower and text.lower() in ("true", "false")
    value = scope.text(like)
    kind = None if isinstance(like, Flex) else like.type.kind
    if isinstance(like, ir.Read) and like.field == "node.taint" and not lower:
        value = f"node.taint {quoted_key(str(like.key))}={quoted_key(text)}"
        return scope.refuse(
            "P201",
            f"`{scope.text(like)}` is {describe(like)}, and `{text}` is not",
            like.span,
            f"write  {value}",
            fix=Fix(Span(like.span.start, span.end), value),
            label=describe(like),
            labels=(Label(span, "a word"),),
        )
    better = text.lower() if lower else ""
    if kind is Kind.LIST and re.fullmatch(r"[\w.-]+", text):
        better = f"{value} contains {text}"
    elif kind is Kind.NUMBER and text in ("true", "false"):
        better = f"{value} > 0" if text == "true" else f"{value} == 0"
    elif kind is Kind.NUMBER and re.fullmatch(r"\d+\.\.\d+", text):
        better = f"{value} in {text}"
    elif isinstance(like, ir.Read) and like.field == "time.day" and text[:3].lower() in WEEKDAYS:
        better = f"time.weekday is {text[:3].lower()}"
    return scope.refuse(
        "P201",
        f"`{scope.text(like)}` is {describe(like)}, and `{text}` is not",
        like.span,
        *([f"write  {better}"] if better else []),
        fix=Fix(span, text.lower()) if lower else None,
        label=describe(like),
        labels=(Label(span, "a word"),),
    )


def read_seconds(scope: Scope, node: s.Expr | s.Template, what: str) -> float:
    """Reads the duration of a clause; a bare number is refused."""
    text = node.value if isinstance(node, s.Text) else scope.text(node)
    seconds = exact_duration(text)
    if seconds is not None:
        return to_float(seconds)
    if exact_decimal(text) is not None:
        raise scope.refuse(
            "P206", f"`{what}` wants a duration", node.span, f"write {text}s", fix=f"{text}s"
        )
    raise scope.refuse(
        "P111", f"`{text}` is not a duration", node.span, "write for example 15s, 5m or 1h"
    )
