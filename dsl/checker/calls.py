"""Calls: functions of the table, metrics of pairs, `rank`, `item`."""

from typing import Final

from dsl import ir
from dsl import syntax as s
from dsl import types as t
from dsl.checker import names, peers
from dsl.checker.metrics import find_metric
from dsl.checker.scope import Refused, Typed
from dsl.checker.typer import Typer
from dsl.functions import FUNCTIONS, TEXT_FUNCTIONS, FunctionSpec
from dsl.making import arith, constant, func, item_type, made
from dsl.plan import OF_NODES
from dsl.source import Span

_GIVES: Final = {
    "n": t.NUMBER,
    "s": t.TEXT,
    "time": t.TIME,
    "seconds": t.DURATION,
    "cores": t.number_of(t.CORES),
    "bytes": t.number_of(t.BYTES),
    "texts": t.TEXTS,
}
_WANTS: Final = {
    "n": "plain number",
    "s": "text",
    "l": "text or list",
    "i": "list",
    "a": "text or number",
}
#: Texts that functions can read.
_EXAMPLES: Final = {
    "time": "2025-03-01T10:00:00Z",
    "duration": "1h30min",
    "quantity": "500m",
    "number": "0.5",
    "version": "1.31.4",
}
_PAIR: Final = 2


def call(typer: Typer, node: s.Call) -> Typed:
    """Returns the value of a call."""
    scope = typer
    spec = FUNCTIONS.get(node.name)
    if spec is None:
        return _pair(typer, node)
    if node.name == "peers":
        return peers.call(typer, node)
    if spec.gives in ("pods", "nodes"):
        text = scope.text(node)
        message = f"`{text}` is a set of {spec.gives}, not a value"
        raise scope.refuse("P201", message, node, f"write  count({text})")
    few = len(node.args) < len(spec.takes)
    if few or (len(node.args) > len(spec.takes) and not spec.variadic):
        count = len(spec.takes)
        wants = f"{'at least ' * spec.variadic}{count} argument{'s' * (count > 1)}"
        message = f"`{node.name}` takes {wants}, not {len(node.args)}"
        raise scope.refuse("P209", message, node, spec.doc)
    if spec.takes == "m":
        return _metric_age(typer, node)
    return _apply(typer, node, spec, typer.each(node.args))


def _pair(typer: Typer, node: s.Call) -> Typed:
    """Returns the value of a metric of pairs: `rtt(node.name, it.node)`."""
    scope = typer
    entry = find_metric(typer, node.name) if node.name not in scope.lets else None
    if node.name in scope.broken:
        raise Refused
    if entry is None:
        raise names.no_function(scope, node)
    of = entry.spec.of if entry.spec is not None else "pair"
    pair = of == "pair"
    if not pair or len(node.args) != _PAIR:
        message = f"the metric `{node.name}` has one value {'of two texts' if pair else f'a {of}'}"
        help_ = f"write  {node.name}{'(node.name, it.node)' if pair else '   without brackets'}"
        raise scope.refuse("P209", message, node, help_)
    each = (typer.want(one, "text", f"`{node.name}`", "P209") for one in typer.each(node.args))
    return typer.sample(entry, node.span, pair=tuple(each))


def _metric_age(typer: Typer, node: s.Call) -> ir.Expr:
    name = node.args[0]
    entry = find_metric(typer, name.name) if isinstance(name, s.Name) else None
    if entry is None:
        raise typer.refuse("P209", "`metric_age` takes the name of a metric", name)
    found = typer.sample(entry, node.span, age=True)
    assert isinstance(found, ir.Metric)
    if found.of not in OF_NODES:
        message = "only samples of nodes have an age"
        help_ = f"a sample older than its `stale` is missing:  {found.name} is present"
        raise typer.refuse("P209", message, name, help_)
    return found


def _apply(typer: Typer, node: s.Call, spec: FunctionSpec, args: list[Typed]) -> ir.Expr:
    takes = spec.takes + spec.takes[-1] * (len(args) - len(spec.takes))
    what, span = f"`{node.name}`", node.span
    if "u" in takes:
        solid, first = typer.unify(args, f"{what} wants")
        typer.want(solid[0], "number", what, "P209")
    else:
        each = zip(takes, args, strict=True)
        solid = tuple(typer.want(one, _WANTS[letter], what, "P209") for letter, one in each)
        first = solid[0].type
    if spec.gives == "item":
        return _item(typer, node, *solid)
    kind = first if spec.gives == "same" else _GIVES[spec.gives]
    value = solid[0]
    _readable(typer, node.name, value)
    match node.name:
        case "rank":
            return _rank(typer, node, value)
        case "number" if first.is_number:
            return _without_unit(value, span)
        case "string":
            return _as_text(value)
        case "join" | "hash":
            return func(span, kind, node.name, tuple(_as_text(one) for one in solid))
        case "cores":
            return arith(span, kind, ("*",), (value, constant(span, float(t.MILLI), t.NUMBER)))
        case "bytes" | "seconds":
            return func(span, kind, "plain", solid)
        case "clamp":
            return func(span, kind, "min", (func(span, kind, "max", solid[:2]), solid[2]))
        case _:
            return func(span, kind, node.name, solid)


def _item(typer: Typer, node: s.Call, items: ir.Expr, place: ir.Expr) -> ir.Expr:
    if items.level > t.Level.POD and ir.split_of(items) is None:
        message, help_ = f"`{typer.text(items)}` has no order", "test its items with `in`"
        raise typer.refuse("P209", message, items, help_)
    return func(node.span, item_type(items), "item", (items, place))


def _as_text(solid: ir.Expr) -> ir.Expr:
    if not solid.type.is_number:
        return solid
    return func(solid.span, t.TEXT, "string", (_without_unit(solid, solid.span),))


def _without_unit(solid: ir.Expr, span: Span) -> ir.Expr:
    power = (solid.type.unit or t.PLAIN).core
    if power == 0:
        return func(span, t.NUMBER, "plain", (solid,))
    factor = constant(span, float(t.MILLI) ** abs(power), t.NUMBER)
    return arith(span, t.NUMBER, ("/" if power > 0 else "*",), (solid, factor))


def _readable(typer: Typer, name: str, read: ir.Expr) -> None:
    """Refuses a fixed text that a function cannot read: the rule would reject every node."""
    value = ir.unnamed(read)
    text = value.value if isinstance(value, ir.Const) else None
    if name in _EXAMPLES and isinstance(text, str) and t.is_missing(TEXT_FUNCTIONS[name](text)):
        help_ = f'write for example  {name}("{_EXAMPLES[name]}")'
        raise typer.refuse("P111", f"`{text}` is no {name}", read, help_)


def _rank(typer: Typer, node: s.Call, value: ir.Expr) -> ir.Expr:
    if value.level is not t.Level.NODE:
        what = f"`{typer.text(value)}` is a value of {value.level.noun}"
        raise typer.refuse("P202", f"`rank` compares nodes, and {what}", value)
    return made(ir.Rank, node.span, t.NUMBER, value=value)
