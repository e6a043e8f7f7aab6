"""Two values of different kinds or units in one comparison: what is to be written instead.

Words only: which kinds go together is decided where the comparison is checked.
"""

import re
from typing import Final

from dsl import ir
from dsl import syntax as s
from dsl.checker.scope import Flex, Refused, Scope, Typed, describe
from dsl.checker.texts import CONDITION, as_test, beside_flag, in_unit
from dsl.diagnostics import Fix, Label
from dsl.schema import FIELDS
from dsl.source import Span
from dsl.spelling import quoted_key
from dsl.types import BOOL, BYTES, NUMBER, PLAIN, SECONDS, Kind, Type, Unit

_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_AMOUNT: Final = re.compile(r"\d+(\.\d+)?[KMGT]i")
_RATE: Final = Unit(byte=1, second=-1)
_Test = s.Compare | s.Is
#: A help, and what it puts in place of what.
_Advice = tuple[str, Fix | None]


def kinds_differ(scope: Scope, node: _Test, left: ir.Expr, right: ir.Expr) -> Refused:
    """Refuses two values of which one is text, a time, a list or a condition, and one is not."""
    help_, fix = _advice(scope, node, left, right)
    return scope.refuse(
        "P201",
        f"cannot compare {describe(left)} with {describe(right)}",
        left.span,
        *([help_] if help_ else []),
        label=describe(left),
        labels=(Label(right.span, describe(right)),),
        fix=fix,
    )


def _advice(scope: Scope, node: _Test, left: ir.Expr, right: ir.Expr) -> _Advice:
    text, other = (left, right) if left.type.kind is Kind.TEXT else (right, left)
    if text.type.kind is Kind.TEXT:
        return _beside_text(scope, node, text, other)
    if right.type == BOOL and left.type.is_number and isinstance(right, ir.Const):
        test = beside_flag(_operator(node), holds=bool(right.value))
        return _instead(node.span, f"{scope.text(left)} {test}") if test else ("", None)
    moment, number = (left, right) if left.type.kind is Kind.TIME else (right, left)
    if moment.type.kind is Kind.TIME and number.type.unit == SECONDS:
        if isinstance(moment, ir.Read) and moment.field == "now":
            return "an age is that of something:  now - node.created", None
        age = f"now - {scope.text(moment)}"
        return f"for an age write  {age}", Fix(moment.span, age)
    return "", None


def _beside_text(scope: Scope, node: _Test, text: ir.Expr, other: ir.Expr) -> _Advice:
    if isinstance(other, ir.Const) and other.type == BOOL:
        word = str(other.value)
        word = word if isinstance(text, ir.Read) and text.field == CONDITION else word.lower()
        return _instead(other.span, f'"{word}"')
    better = _plain_value(scope, text, other)
    if better and word_of_param(scope, text):
        name = word_of_param(scope, text)
        return f"declare it as a number:  param {name}: number = {better}", None
    if better:
        return _instead(text.span, better)
    operator = _operator(node)
    if operator not in ("==", "!="):
        return "", None
    word, value = scope.text(text), scope.text(other)
    negated = operator == "!="
    if other.type.kind is Kind.LIST and other.type.element is Kind.TEXT:
        if isinstance(other, ir.Const | ir.Named):
            return _instead(node.span, f"{word} {'not ' * negated}in {value}")
        word = word if isinstance(text, ir.Const) else f"({word})"
        return _instead(node.span, f"{'not ' * negated}{value} contains {word}")
    if isinstance(other, ir.Read) and other.field == "node.taint" and isinstance(text, ir.Const):
        return _instead(node.span, f"{'not ' * negated}{taint_of(other, str(text.value))}")
    if isinstance(other, ir.Read) and other.field.endswith(".priority"):
        test = f"{value}_class {operator} {word}"
        return f"names are those of its class:  {test}", Fix(node.span, test)
    return "", None


def word_of_param(scope: Scope, node: ir.Expr) -> str:
    """Returns the name of the parameter that a value is, "" for other values."""
    found = re.fullmatch(r"\$(\w+)", scope.source.slice(node.span))
    return found[1] if found is not None else ""


def taint_of(node: ir.Read, value: str) -> str:
    """Returns `node.taint dedicated=gpu` for a taint that was compared with a text."""
    key = str(node.key)
    return f"node.taint {quoted_key(key)}={quoted_key(value) or chr(34) * 2}"


def _operator(node: _Test) -> str:
    if isinstance(node, s.Compare):
        return node.operator
    return "!=" if node.negated else "=="


def _instead(span: Span, text: str) -> _Advice:
    return f"write  {text}", Fix(span, text)


def _plain_value(scope: Scope, text: ir.Expr, other: ir.Expr) -> str:
    """Returns a text as the value that it is compared with: without quotes, or read as one."""
    written = scope.text(text)
    quoted = isinstance(text, ir.Const) and isinstance(text.value, str)
    inner = str(text.value) if isinstance(text, ir.Const) else ""
    if other.type.kind is Kind.TIME:
        return f'time("{inner}T00:00:00Z")' if _DATE.fullmatch(inner) else f"time({written})"
    if other.type.kind is Kind.BOOL:
        return inner.lower() if quoted and inner.lower() in ("true", "false") else ""
    if not other.type.is_number:
        return ""
    if quoted and re.fullmatch(r"\d+(\.\d+)?([a-zA-Z]{1,3}|%)?", inner):
        return inner
    return in_unit(written, text.type, other.type.unit or PLAIN) if not quoted else ""


# ---- units


def unit_hints(scope: Scope, node: s.Compare, left: ir.Expr, right: ir.Expr) -> list[str]:
    """Returns what may be meant by a comparison of two numbers of different units."""
    helps = _other_forms(scope, node, left, right) or _other_field(left, right)
    if helps:
        return helps
    for other in (right, left):
        if isinstance(other, ir.Func) and other.name == "quantity":
            amount = other.args[0]
            if isinstance(amount, ir.Const) and _AMOUNT.fullmatch(str(amount.value)):
                return [f"write in place of the call  {amount.value}"]
    for one, other in ((left, right), (right, left)):
        better = in_unit(scope.text(other), other.type, one.type.unit or PLAIN)
        computed = isinstance(other, ir.Func | ir.Metric | ir.Coalesce)
        if better and (other is right or computed):
            return [f"give the number a unit:  {better}"]
    return []


def _other_field(left: ir.Expr, right: ir.Expr) -> list[str]:
    """`node.cpu.free >= pod.memory`."""
    if not isinstance(right, ir.Read) or not isinstance(left, ir.Read):
        return []
    units = {"cpu": Unit(core=1), "memory": Unit(byte=1)}
    helps = []
    for name, unit in units.items():
        parts = right.field.split(".")
        swapped = ".".join(name if part in (*units, "storage") else part for part in parts)
        if unit == left.type.unit and swapped in FIELDS and swapped != right.field:
            helps.append(f"did you mean `{swapped}`?")
    return helps


def _other_forms(scope: Scope, node: s.Compare, left: ir.Expr, right: ir.Expr) -> list[str]:
    """Returns what to write for a share beside a share of an amount, and for a rate."""
    if isinstance(left, ir.Arith) and "/" in left.operators and left.type == NUMBER:
        # One of the two is enough.
        share = scope.text(node.right.percent) if isinstance(node.right, s.PercentOf) else ""
        return [f"write  {scope.text(left)} {node.operator} {share}"] if share else []
    for one, other in ((left, right), (right, left)):
        if one.type.unit == _RATE and other.type.unit == BYTES and isinstance(other, ir.Const):
            return [f"write  {scope.text(other)}/1s"]
    return []


def unit_hint(kind: Type, other: ir.Expr) -> str | None:
    """Proposes a unit for a computed plain number."""
    names = {Unit(core=1): "cores", Unit(byte=1): "bytes", SECONDS: "seconds"}
    name = names.get(kind.unit or PLAIN)
    if name is not None and other.type.unit == PLAIN:
        return f"give the number a unit:  {name}(...)"
    return None


def number_hint(scope: Scope, typed: Typed) -> tuple[str, ...]:
    """Returns how a text or a condition becomes a number."""
    if not isinstance(typed, Flex) and typed.type.kind is Kind.TEXT:
        return (f"write  number({scope.text(typed)})",)
    if not isinstance(typed, Flex) and typed.type.kind is Kind.BOOL:
        return (f"write  if {scope.text(typed)} then 1 else 0",)
    return ()


def compared(text: str, typed: Typed) -> str:
    """Returns how a number becomes a condition."""
    if isinstance(typed, Flex):
        return f"a condition compares two values:  node.cpu.free >= {text}"
    return f"compare it:  {text} > 0{in_its_let(typed)}"


def in_its_let(typed: Typed) -> str:
    """Returns how a let becomes a condition itself, behind the other form; "" for others."""
    return f"   or in its line  let {typed.name} = ... > 0" if isinstance(typed, ir.Named) else ""


def condition_hint(scope: Scope, typed: Typed, *, negated: bool) -> tuple[str, ...]:
    """Returns how a number or a text becomes a condition."""
    text = scope.text(typed)
    if isinstance(typed, Flex):
        return ()
    if typed.type.is_number:
        return (compared(text, typed),)
    if typed.type.kind is not Kind.TEXT:
        return ()
    test = as_test(text, typed, negated=negated)
    return (f"for `not {text}` write  {test}" if negated else f"write  {test}",)
