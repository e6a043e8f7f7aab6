"""`param` lines and names that a file declares: values of parameters."""

from fractions import Fraction
from typing import Any

from dsl import ir
from dsl import syntax as s
from dsl.checker.literals import read_value, settle
from dsl.checker.scope import RESERVED, Flex, ParamEntry, ParamValue, Scope, Typed
from dsl.making import constant
from dsl.source import Span
from dsl.types import PLAIN, TEXTS, Kind, Type


def declare_name(scope: Scope, name: str, span: Span) -> None:
    """Refuses a name that is reserved or already taken in this file."""
    if name in RESERVED:
        scope.broken.add(name)
        message = f"`{name}` is a word of the language"
        raise scope.refuse("P103", message, span, f"call it for example {name}_value")
    if name in scope.lets or name in scope.params or name in scope.metrics:
        scope.broken.add(name)
        help_ = "params, lets and metrics share their names"
        raise scope.refuse("P109", f"`{name}` is declared twice", span, help_)


def declare_param(scope: Scope, node: s.ParamDecl, given: ParamValue | None) -> None:
    """Declares a parameter; its value is the configured one, else the default."""
    declare_name(scope, node.name, node.name_span)
    scope.params[node.name] = entry = ParamEntry(node, None)
    if node.default is None and given is None:
        message = f"the parameter `{node.name}` has no value"
        help_ = f"give it a default:  param {node.name}: {node.kind or 'string'} = VALUE"
        raise scope.refuse("P104", message, node.name_span, help_)
    written = node.default if given is None else _given(node, given)
    assert written is not None
    entry.value = value = _param_value(scope, node, written)
    span = node.default.span if node.default is not None else node.name_span
    if node.bounds is not None:
        kind = node.kind or "number"
        sizes = [_worth(_typed_value(scope, kind, one)) for one in node.bounds]
        floor, size, ceiling = sizes[0], _worth(value), sizes[1]
        if not all(isinstance(one, float | Fraction) for one in (floor, size, ceiling)):
            raise scope.refuse("P111", "`from ... to` is for numbers and durations", node)
        if not floor <= size <= ceiling:
            low, high = (scope.text(one) for one in node.bounds)
            message = f"the value of `{node.name}` is not from {low} to {high}"
            raise scope.refuse("P111", message, span)
    if node.choices is not None:
        allowed = [_worth(_param_value(scope, node, one)) for one in node.choices.items]
        texts = [text_of(scope, one) for one in node.choices.items]
        if _worth(value) not in allowed and not (isinstance(value, Flex) and value.text in texts):
            message = f"the value of `{node.name}` is none of its choices"
            raise scope.refuse("P111", message, span, f"it is one of {', '.join(texts)}")


def _given(node: s.ParamDecl, given: ParamValue) -> s.Text | s.Word | s.Words:
    span = node.name_span
    if isinstance(given, tuple | list):
        return s.Words(span, tuple(s.Text(span, str(one)) for one in given))
    if isinstance(given, bool):
        return s.Text(span, "true" if given else "false")
    # Without a type it is read as the default is: bare, unless that is in quotes.
    bare = isinstance(given, int | float) or not isinstance(node.default, s.Text)
    return s.Word(span, str(given)) if bare else s.Text(span, str(given))


def text_of(scope: Scope, node: s.Expr) -> str:
    """Returns a value as it is written, without quotes."""
    match node:
        case s.Word() | s.Text():
            return node.value
        case s.Percent():
            return node.text
        case _:
            message = "the value of a parameter is a plain word, number or text"
            raise scope.refuse("P111", message, node)


def _param_value(scope: Scope, node: s.ParamDecl, written: s.Expr) -> Typed:
    span = written.span
    if not isinstance(written, s.Words):
        if node.is_list:
            raise scope.refuse("P111", f"`{node.name}` is a list", span, "write [a, b]")
        kind = node.kind or ("string" if isinstance(written, s.Text) else "")
        return _typed_value(scope, kind, written)
    if node.kind and not node.is_list:
        raise scope.refuse("P111", f"`{node.name}` is a {node.kind}, not a list", span)
    if node.kind in ("", "string"):
        return constant(span, tuple(text_of(scope, one) for one in written.items), TEXTS)
    numbers: list[float] = []
    units = set()
    for item in written.items:
        solid = settle(scope, _typed_value(scope, node.kind, item), PLAIN)
        if not isinstance(solid, ir.Const) or not isinstance(solid.value, float):
            help_ = "a list is of string, number, quantity, duration or time"
            raise scope.refuse("P111", f"there is no list of {node.kind}", item, help_)
        numbers.append(solid.value)
        units.add(solid.type.unit)
    unit = units.pop() if len(units) == 1 else None
    return constant(span, tuple(numbers), Type(Kind.LIST, unit, Kind.NUMBER))


def _typed_value(scope: Scope, kind: str, written: s.Expr) -> Typed:
    text, span = text_of(scope, written), written.span
    value = read_value(kind, text, span)
    if value is None:
        examples = {"duration": "30s, 5m or 1h", "time": '"2025-03-01T10:00:00Z"', "bool": "true"}
        helps = (f"write for example {examples[kind]}",) if kind in examples else ()
        raise scope.refuse("P111", f"`{text}` is not a {kind}", span, *helps)
    return value


def _worth(value: Typed) -> Any:  # noqa: ANN401 - whatever a parameter may be
    """Returns what makes two values equal, however they are written: `60s` is `1m`."""
    return value.exact if isinstance(value, Flex) else getattr(value, "value", None)
