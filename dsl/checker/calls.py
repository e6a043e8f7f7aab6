"""Calls: functions of the table, metrics of pairs, `rank`, `item`."""

import re
from typing import TYPE_CHECKING, Final

from dsl import ir
from dsl import syntax as s
from dsl.checker import hints, never, peers
from dsl.checker.literals import constant
from dsl.checker.readings import require_readable
from dsl.checker.scales import share_in_call, turned_clamp
from dsl.checker.scope import MetricEntry, Refused, Typed, describe
from dsl.functions import FUNCTIONS, FunctionSpec
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
    number_of,
)

if TYPE_CHECKING:
    from dsl.checker.expressions import Typer

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
_PAIR: Final = 2


def call(typer: "Typer", node: s.Call) -> Typed:
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
        wants = f"{count} argument{'s' if count > 1 else ''}"
        wants = f"at least {wants}" if spec.variadic else wants
        raise scope.refuse(
            "P209", f"`{node.name}` takes {wants}, not {len(node.args)}", node.span, spec.doc
        )
    if spec.takes == "m":
        return _metric_age(typer, node)
    return _apply(typer, node, spec, typer.each(node.args))


def _pair(typer: "Typer", node: s.Call) -> Typed:
    """Returns the value of a metric of pairs: `rtt(node.name, it.node)`."""
    scope = typer.scope
    entry: MetricEntry | None = None
    if node.name not in scope.lets:
        entry = typer.find_metric(node.name, node.name_span)
    if node.name in scope.broken or (entry is not None and entry.spec is None):
        raise Refused
    if entry is None or entry.spec is None:
        raise hints.no_function(scope, node)
    if entry.spec.of != "pair":
        raise scope.refuse(
            "P209",
            f"the metric `{node.name}` has one value a {entry.spec.of}",
            node.span,
            f"write  {node.name}   without brackets",
        )
    if len(node.args) != _PAIR:
        raise scope.refuse("P209", f"`{node.name}` is a metric of two texts", node.span)
    left, right = (_argument_of(typer, node.name, "s", one) for one in typer.each(node.args))
    kind = number_of(entry.unit)
    level = max(left.level, right.level, Level.CYCLE)
    pair = ir.Pair(
        span=node.span,
        type=kind,
        level=level,
        name=node.name,
        id=entry.spec.id,
        left=left,
        right=right,
    )
    if entry.spec.default is None:
        return pair
    default = constant(node.span, entry.spec.default, kind)
    return ir.Coalesce(span=node.span, type=kind, level=level, operands=(pair, default))


def _metric_age(typer: "Typer", node: s.Call) -> ir.Expr:
    name = node.args[0]
    found = typer.metric(name.name, node.span, age=True) if isinstance(name, s.Name) else None
    if found is None:
        raise typer.scope.refuse("P209", "`metric_age` takes the name of a metric", name.span)
    assert isinstance(found, ir.Metric)
    if found.of not in OF_NODES:
        raise typer.scope.refuse(
            "P209",
            f"only samples of nodes have an age, and `{found.name}` is a metric of the {found.of}",
            name.span,
            f"a sample older than its `stale` is missing:  {found.name} is present",
        )
    return found


def _apply(typer: "Typer", node: s.Call, spec: FunctionSpec, args: list[Typed]) -> ir.Expr:
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


def _argument_of(typer: "Typer", name: str, letter: str, typed: Typed) -> ir.Expr:
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


def _argument(typer: "Typer", name: str, typed: ir.Expr, wants: str) -> Refused:
    unit = typed.type.is_number and wants == "a plain number"
    text = typer.scope.text(typed)
    hint = (f"write  number({text})",) if unit else ()
    if wants == "a plain number" and typed.type.kind is Kind.TEXT:
        read = {"bytes": "quantity", "cores": "quantity"}.get(name, "number")
        hint = (f"write  {name}({read}({text}))",)
        if isinstance(typed, ir.Const) and re.fullmatch(
            r"\d+(\.\d+)?[A-Za-z]{1,2}", str(typed.value)
        ):
            hint = (f"write in place of the call  {typed.value}",)
    if name == "time" and typed.type.kind is Kind.TIME:
        hint = (f"it is a time already: write  {text}",)
    return typer.scope.refuse(
        "P209", f"`{name}` takes {wants}, and this is {describe(typed)}", typed.span, *hint
    )


def _item(typer: "Typer", node: s.Call, args: tuple[ir.Expr, ...]) -> ir.Expr:
    items, place = args
    if items.level > Level.POD and not is_split(items):
        raise typer.scope.refuse(
            "P209",
            f"`{typer.scope.text(items)}` has no order",
            items.span,
            "test its items with `in` or `contains`",
        )
    return _item_at(items, place, node.span)


def item_of(items: ir.Expr, place: int, span: Span) -> ir.Expr:
    """Returns the item of a list at a place."""
    return _item_at(items, constant(span, float(place), NUMBER), span)


def _item_at(items: ir.Expr, place: ir.Expr, span: Span) -> ir.Expr:
    element = items.type.element
    kind = TEXT if element is Kind.TEXT else number_of(items.type.unit or PLAIN)
    if is_split(items):
        place = _as_text(place)
    level = max(items.level, place.level)
    return ir.Func(span=span, type=kind, level=level, name="item", args=(items, place))


def is_split(node: ir.Expr) -> bool:
    """Whether a list is made of a text."""
    while isinstance(node, ir.Named):
        node = node.body
    return isinstance(node, ir.Func) and node.name == "split"


def _as_text(solid: ir.Expr) -> ir.Expr:
    plain = _without_unit(solid, solid.span)
    return ir.Func(span=solid.span, type=TEXT, level=solid.level, name="string", args=(plain,))


def _without_unit(solid: ir.Expr, span: Span) -> ir.Expr:
    power = (solid.type.unit or PLAIN).core
    if power == 0:
        return ir.Func(span=span, type=NUMBER, level=solid.level, name="plain", args=(solid,))
    factor = constant(span, float(MILLI) ** abs(power), NUMBER)
    sign = "/" if power > 0 else "*"
    return ir.Arith(
        span=span, type=NUMBER, level=solid.level, operators=(sign,), operands=(solid, factor)
    )


def _make_call(typer: "Typer", node: s.Call, kind: Type, args: tuple[ir.Expr, ...]) -> ir.Expr:
    first = args[0]
    level = max(one.level for one in args)
    name = node.name
    if name == "rank":
        return _rank(typer, node, first)
    require_readable(typer.scope, name, first)
    if name == "number":
        never.no_number(typer.scope, node, first)
    share_in_call(typer.scope, node, args)
    if name in ("number", "string") and first.type.is_number:
        plain = _without_unit(first, node.span)
        return plain if name == "number" else _as_text(first)
    if name == "string":
        return first
    if name == "cores":
        factor = constant(node.span, float(MILLI), NUMBER)
        return ir.Arith(
            span=node.span, type=kind, level=level, operators=("*",), operands=(first, factor)
        )
    if name in ("bytes", "seconds"):
        return ir.Func(span=node.span, type=kind, level=level, name="plain", args=args)
    if name == "clamp":
        turned_clamp(typer.scope, node, args)
        low = ir.Func(span=node.span, type=kind, level=level, name="max", args=args[:2])
        args = (low, args[2])
        name = "min"
    return ir.Func(span=node.span, type=kind, level=level, name=name, args=args)


def _rank(typer: "Typer", node: s.Call, value: ir.Expr) -> ir.Expr:
    if value.level is not Level.NODE:
        raise typer.scope.refuse(
            "P202",
            f"`rank` compares nodes, and `{typer.scope.text(value)}` is a value of "
            + value.level.noun,
            value.span,
        )
    return ir.Rank(span=node.span, type=NUMBER, level=Level.NODE, value=value)
