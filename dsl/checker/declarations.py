"""`param` lines and names that a file declares: values of parameters."""

from dsl import ir
from dsl import syntax as s
from dsl.checker.literals import read_number, settle
from dsl.checker.making import constant
from dsl.checker.scope import (
    RESERVED,
    Flex,
    ParamEntry,
    ParamValue,
    Scope,
    Typed,
)
from dsl.quantities import exact_duration, parse_time, to_float
from dsl.source import Span
from dsl.types import (
    BOOL,
    DURATION,
    PLAIN,
    TEXT,
    TEXTS,
    TIME,
    Kind,
    Type,
)


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
    entry = ParamEntry(node, None)
    scope.params[node.name] = entry
    if node.default is None and given is None:
        message = f"the parameter `{node.name}` has no value"
        help_ = f"give it a default:  param {node.name}: {node.kind or 'string'} = VALUE"
        raise scope.refuse("P104", message, node.name_span, help_)
    if given is not None:
        written = _given(node, given)
        entry.value = _param_value(scope, node, written)
    elif node.default is not None:
        entry.value = _param_value(scope, node, node.default)
    _check_bounds(scope, node, entry)


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
            raise scope.refuse("P111", message, node.span)


def _param_value(scope: Scope, node: s.ParamDecl, written: s.Expr) -> Typed:
    if node.is_list or isinstance(written, s.Words):
        return _param_list(scope, node, written)
    text = text_of(scope, written)
    kind = node.kind
    if not kind:
        quoted = isinstance(written, s.Text)
        number = None if quoted else read_number(text, written.span)
        return number if number is not None else constant(written.span, text, TEXT)
    return _typed_value(scope, kind, text, written)


def _typed_value(scope: Scope, kind: str, text: str, written: s.Expr) -> Typed:
    span = written.span
    if kind == "string":
        return constant(span, text, TEXT)
    if kind in ("number", "quantity"):
        number = read_number(text, span)
        # A number keeps no unit; a quantity may bring one.
        if isinstance(number, Flex) or (number is not None and kind == "quantity"):
            return number
    elif kind == "duration":
        seconds = exact_duration(text)
        if seconds is not None:
            return constant(span, to_float(seconds), DURATION)
    elif kind == "bool" and text in ("true", "false"):
        return constant(span, text == "true", BOOL)
    elif kind == "time":
        moment = parse_time(text)
        if moment == moment:
            return constant(span, moment, TIME)
    examples = {"duration": "30s, 5m or 1h", "time": '"2025-03-01T10:00:00Z"', "bool": "true"}
    helps = (f"write for example {examples[kind]}",) if kind in examples else ()
    raise scope.refuse("P111", f"`{text}` is not a {kind}", span, *helps)


def _param_list(scope: Scope, node: s.ParamDecl, written: s.Expr) -> Typed:
    if not isinstance(written, s.Words):
        raise scope.refuse("P111", f"`{node.name}` is a list", written.span, "write [a, b]")
    if node.kind and not node.is_list:
        raise scope.refuse("P111", f"`{node.name}` is a {node.kind}, not a list", written.span)
    texts = [text_of(scope, one) for one in written.items]
    if node.kind in ("", "string"):
        return constant(written.span, tuple(texts), TEXTS)
    numbers: list[float] = []
    units = set()
    for text, item in zip(texts, written.items, strict=True):
        value = _typed_value(scope, node.kind, text, item)
        solid = settle(scope, value, PLAIN)
        if not isinstance(solid, ir.Const) or not isinstance(solid.value, float):
            what = f"there is no list of {node.kind}"
            help_ = "a list is of string, number, quantity, duration or time"
            raise scope.refuse("P111", what, item.span, help_)
        numbers.append(solid.value)
        units.add(solid.type.unit)
    unit = units.pop() if len(units) == 1 else None
    return constant(written.span, tuple(numbers), Type(Kind.LIST, unit, Kind.NUMBER))


def _check_bounds(scope: Scope, node: s.ParamDecl, entry: ParamEntry) -> None:
    value = entry.value
    if value is None:
        return
    span = node.default.span if node.default is not None else node.name_span
    if node.bounds is not None:
        low, high = (
            _typed_value(scope, node.kind or "number", text_of(scope, one), one)
            for one in node.bounds
        )
        sizes = [_size(one) for one in (low, value, high)]
        if any(one is None for one in sizes):
            raise scope.refuse("P111", "`from ... to` is for numbers and durations", node.span)
        floor, size, ceiling = (one or 0.0 for one in sizes)
        if not floor <= size <= ceiling:
            low_text, high_text = (scope.text(one) for one in node.bounds)
            message = f"the value of `{node.name}` is not from {low_text} to {high_text}"
            raise scope.refuse("P111", message, span)
    if node.choices is not None:
        allowed = [_worth(_param_value(scope, node, one)) for one in node.choices.items]
        texts = [text_of(scope, one) for one in node.choices.items]
        if _worth(value) not in allowed and not (isinstance(value, Flex) and value.text in texts):
            message = f"the value of `{node.name}` is none of its choices"
            raise scope.refuse("P111", message, span, f"it is one of {', '.join(texts)}")


def _worth(value: Typed) -> object:
    """Returns what makes two values equal, however they are written: `60s` is `1m`."""
    if isinstance(value, Flex):
        return value.exact
    return value.value if isinstance(value, ir.Const) else None


def _size(value: Typed) -> float | None:
    if isinstance(value, Flex):
        return None if value.exact is None else to_float(value.exact)
    if isinstance(value, ir.Const) and isinstance(value.value, float):
        return value.value
    return None
