"""Calls: functions of the table, metrics of pairs, `rank`, `item`."""

from typing import Final

from dsl import ir
from dsl import syntax as s
from dsl.checker import names, peers
from dsl.checker.convert import help_for
from dsl.checker.making import arith, constant, first_of, func
from dsl.checker.scope import MetricEntry, Refused, Typed, describe
from dsl.checker.typer import Typer
from dsl.functions import FUNCTIONS, TEXT_FUNCTIONS, FunctionSpec
from dsl.plan import OF_NODES
from dsl.source import Span
from dsl.types import (
    BYTES,
    CORES,
    DURATION,
    MILLI,
    NUMBER,
    PLAIN,
    TEXT,
    TEXTS,
    TIME,
    Kind,
    Level,
    Type,
    is_missing,
    number_of,
)

_GIVES: Final = {
    "n": NUMBER,
    "s": TEXT,
    "time": TIME,
    "seconds": DURATION,
    "cores": number_of(CORES),
    "bytes": number_of(BYTES),
    "texts": TEXTS,
}
_WANTS: Final = {
    "n": "a plain number",
    "s": "a text",
    "l": "a text or a list",
    "i": "a list",
    "a": "a text or a number",
}
#: What a function reads a text as, and a text that it can read.
_READS: Final = {
    "time": ("time", "2025-03-01T10:00:00Z"),
    "duration": ("duration", "1h30min"),
    "quantity": ("quantity", "500m"),
    "number": ("number", "0.5"),
    "version": ("version", "1.31.4"),
}
_PAIR: Final = 2


def call(typer: Typer, node: s.Call) -> Typed:
    """Returns the value of a call."""
    scope = typer.scope
    spec = FUNCTIONS.get(node.name)
    if spec is None:
        return _pair(typer, node)
    if node.name == "peers":
        return peers.call(typer, node)
    if spec.gives in ("pods", "nodes"):
        text = scope.text(node)
        message = f"`{text}` is a set of {spec.gives}, not a value"
        raise scope.refuse("P201", message, node.span, f"write  count({text})")
    few = len(node.args) < len(spec.takes)
    if few or (len(node.args) > len(spec.takes) and not spec.variadic):
        count = len(spec.takes)
        wants = f"{'at least ' * spec.variadic}{count} argument{'s' * (count > 1)}"
        message = f"`{node.name}` takes {wants}, not {len(node.args)}"
        raise scope.refuse("P209", message, node.span, spec.doc)
    if spec.takes == "m":
        return _metric_age(typer, node)
    return _apply(typer, node, spec, typer.each(node.args))


def _pair(typer: Typer, node: s.Call) -> Typed:
    """Returns the value of a metric of pairs: `rtt(node.name, it.node)`."""
    scope = typer.scope
    entry: MetricEntry | None = None
    if node.name not in scope.lets:
        entry = typer.find_metric(node.name, node.name_span)
    if node.name in scope.broken or (entry is not None and entry.spec is None):
        raise Refused
    if entry is None or entry.spec is None:
        raise names.no_function(scope, node)
    if entry.spec.of != "pair":
        message = f"the metric `{node.name}` has one value a {entry.spec.of}"
        raise scope.refuse("P209", message, node.span, f"write  {node.name}   without brackets")
    if len(node.args) != _PAIR:
        message = f"`{node.name}` is a metric of two texts"
        raise scope.refuse("P209", message, node.span)
    left, right = (_argument_of(typer, node.name, "s", one) for one in typer.each(node.args))
    kind = number_of(entry.unit)
    level = max(left.level, right.level, Level.CYCLE)
    pair = ir.Pair(
        span=node.span, type=kind, level=level, name=node.name, id=entry.spec.id, left=left,
        right=right,
    )  # fmt: skip
    if entry.spec.default is None:
        return pair
    return first_of(node.span, (pair, constant(node.span, entry.spec.default, kind)))


def _metric_age(typer: Typer, node: s.Call) -> ir.Expr:
    name = node.args[0]
    found = typer.metric(name.name, node.span, age=True) if isinstance(name, s.Name) else None
    if found is None:
        raise typer.scope.refuse("P209", "`metric_age` takes the name of a metric", name.span)
    assert isinstance(found, ir.Metric)
    if found.of not in OF_NODES:
        message = "only samples of nodes have an age"
        help_ = f"a sample older than its `stale` is missing:  {found.name} is present"
        raise typer.scope.refuse("P209", message, name.span, help_)
    return found


def _apply(typer: Typer, node: s.Call, spec: FunctionSpec, args: list[Typed]) -> ir.Expr:
    takes = spec.takes + spec.takes[-1] * (len(args) - len(spec.takes))
    if "u" in takes:
        solid, first = typer.unify(args, f"`{node.name}` wants")
        if not first.is_number:
            raise _argument(typer, node.name, solid[0], "a number")
    else:
        solid = tuple(
            _argument_of(typer, node.name, letter, one)
            for letter, one in zip(takes, args, strict=True)
        )
        first = solid[0].type
    if spec.gives == "item":
        return _item(typer, node, solid)
    kind = first if spec.gives == "same" else _GIVES[spec.gives]
    return _make_call(typer, node, kind, solid)


def _argument_of(typer: Typer, name: str, letter: str, typed: Typed) -> ir.Expr:
    solid = typer.plain(typed)
    kind = solid.type
    fits = {
        "n": kind.is_number and (kind.unit or PLAIN).is_plain,
        "s": kind.kind is Kind.TEXT,
        "l": kind.kind in (Kind.TEXT, Kind.LIST),
        "i": kind.kind is Kind.LIST,
        "a": kind.kind in (Kind.TEXT, Kind.NUMBER),
    }[letter]
    if fits:
        if letter == "a" and name in ("join", "hash") and kind.is_number:
            return _as_text(solid)
        return solid
    raise _argument(typer, name, solid, _WANTS[letter])


def _argument(typer: Typer, name: str, typed: ir.Expr, wants: str) -> Refused:
    message = f"`{name}` takes {wants}, and this is {describe(typed)}"
    want = {"a plain number": "number", "a text": "text"}.get(wants, "")
    return typer.scope.refuse("P209", message, typed.span, *help_for(typer.scope, typed, want))


def _item(typer: Typer, node: s.Call, args: tuple[ir.Expr, ...]) -> ir.Expr:
    items, place = args
    if items.level > Level.POD and not is_split(items):
        message, help_ = f"`{typer.scope.text(items)}` has no order", "test its items with `in`"
        raise typer.scope.refuse("P209", message, items.span, help_)
    element = items.type.element
    kind = TEXT if element is Kind.TEXT else number_of(items.type.unit or PLAIN)
    return func(node.span, kind, "item", (items, _as_text(place) if is_split(items) else place))


def is_split(node: ir.Expr) -> bool:
    """Whether a list is made of a text."""
    while isinstance(node, ir.Named):
        node = node.body
    return isinstance(node, ir.Func) and node.name == "split"


def _as_text(solid: ir.Expr) -> ir.Expr:
    return func(solid.span, TEXT, "string", (_without_unit(solid, solid.span),))


def _without_unit(solid: ir.Expr, span: Span) -> ir.Expr:
    power = (solid.type.unit or PLAIN).core
    if power == 0:
        return func(span, NUMBER, "plain", (solid,))
    factor = constant(span, float(MILLI) ** abs(power), NUMBER)
    return arith(span, NUMBER, ("/" if power > 0 else "*",), (solid, factor))


def _make_call(typer: Typer, node: s.Call, kind: Type, args: tuple[ir.Expr, ...]) -> ir.Expr:
    first, name, span = args[0], node.name, node.span
    if name == "rank":
        return _rank(typer, node, first)
    _readable(typer, name, first)
    if name in ("number", "string") and first.type.is_number:
        return _without_unit(first, span) if name == "number" else _as_text(first)
    if name == "string":
        return first
    if name == "cores":
        return arith(span, kind, ("*",), (first, constant(span, float(MILLI), NUMBER)))
    if name in ("bytes", "seconds"):
        return func(span, kind, "plain", args)
    if name == "clamp":
        return func(span, kind, "min", (func(span, kind, "max", args[:2]), args[2]))
    return func(span, kind, name, args)


def _readable(typer: Typer, name: str, read: ir.Expr) -> None:
    """Refuses a fixed text that a function cannot read: the rule would reject every node."""
    value = read
    while isinstance(value, ir.Named):
        value = value.body
    text = value.value if isinstance(value, ir.Const) else None
    if name in _READS and isinstance(text, str) and is_missing(TEXT_FUNCTIONS[name](text)):
        what, example = _READS[name]
        help_ = f'write for example  {name}("{example}")'
        raise typer.scope.refuse("P111", f"`{text}` is no {what}", read.span, help_)


def _rank(typer: Typer, node: s.Call, value: ir.Expr) -> ir.Expr:
    if value.level is not Level.NODE:
        what = f"`{typer.scope.text(value)}` is a value of {value.level.noun}"
        raise typer.scope.refuse("P202", f"`rank` compares nodes, and {what}", value.span)
    return ir.Rank(span=node.span, type=NUMBER, level=Level.NODE, value=value)
