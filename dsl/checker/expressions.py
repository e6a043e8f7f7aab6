"""Expressions as written become typed ones: names, arithmetic, logic, choice and calls.

What each other kind of expression means is told by the module of that name.
"""

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final, cast

from msgspec.structs import replace

from dsl import ir, making
from dsl import syntax as s
from dsl import types as t
from dsl.checker import aggregates, comparisons, names, peers
from dsl.checker.declarations import find_metric
from dsl.checker.literals import fold, read_literal, settle
from dsl.checker.scope import Flex, Refused, Typed, describe
from dsl.checker.typer import Typer, help_for, sort_of
from dsl.diagnostics import Fix, Severity
from dsl.functions import FUNCTIONS, TEXT_FUNCTIONS, FunctionSpec
from dsl.making import arith, constant, func, item_type, made
from dsl.plan import OF_NODES
from dsl.schema import FIELDS, TYPES
from dsl.source import Span

#: What sums of times come to.
_SUMS: Final = {
    (t.TIME, "-", t.TIME): t.DURATION,
    (t.TIME, "-", t.DURATION): t.TIME,
    (t.TIME, "+", t.DURATION): t.TIME,
    (t.DURATION, "+", t.TIME): t.TIME,
}


def walk(typer: Typer, node: s.Expr) -> Typed:
    """Returns what an expression means."""
    return _CHECKS[type(node)](typer, node)


def _list(typer: Typer, node: s.Words) -> ir.Expr:
    """Returns a list of fixed words; what they are is decided where they are tested."""
    for one in node.items:
        comparisons.field_as_word(typer, one, Severity.ERROR)
    texts = [names.fixed_text(typer, one, "an item of a list") for one in node.items]
    return making.constant(node.span, tuple(texts), t.TEXTS)


def _name(typer: Typer, node: s.Name) -> Typed:
    entry = typer.lets.get(node.name)
    if entry is not None:
        value = typer.let_value(entry)
        if isinstance(value, Flex):
            if entry.given:
                typer.given.append(node.span)
            return replace(value, span=node.span)
        return making.made(ir.Named, node.span, value.type, name=node.name, body=value)
    if node.name == "it" and typer.place.item is not None:
        return replace(typer.place.item, span=node.span)
    if node.name == "now":
        return making.read(node.span, "now")
    if node.name in typer.broken:
        raise Refused
    metric = find_metric(typer, node.name)
    if metric is None:
        raise names.no_name(typer, node)
    return typer.sample(metric, node.span)


# ---- arithmetic


def _chain(typer: Typer, node: s.Chain) -> Typed:
    parts = typer.each(node.operands)
    if all(isinstance(one, Flex) for one in parts):
        return fold(typer, node.operators, cast("list[Flex]", parts), node.span)
    return (_sum if node.operators[0] in "+-" else _product)(typer, node, parts)


def _sum(typer: Typer, node: s.Chain, parts: list[Typed]) -> Typed:
    firm = next(one for one in parts if not isinstance(one, Flex))
    has_time = any(one.type.kind is t.Kind.TIME for one in parts)
    unit = t.SECONDS if has_time else firm.type.unit or t.PLAIN
    solid = tuple(settle(typer, one, unit, firm) for one in parts)
    kind = solid[0].type
    for operator, left, right in zip(node.operators, solid, solid[1:], strict=False):
        kind = _sum_type(typer, operator, kind, left, right)
    return making.arith(node.span, kind, node.operators, solid)


def _sum_type(typer: Typer, operator: str, kind: t.Type, left: ir.Expr, right: ir.Expr) -> t.Type:
    other = right.type
    if (kind, operator, other) in _SUMS:
        return _SUMS[kind, operator, other]
    if not kind.is_number or not other.is_number:
        odd, beside = (
            (right, kind) if other.kind is t.Kind.TEXT or kind.is_number else (left, other)
        )
        at_time = odd.type.kind is t.Kind.TEXT and beside.kind is t.Kind.TIME
        want = {"+": "seconds", "-": "time"}[operator] if at_time else "number"
        helps = help_for(typer, odd, want)
        raise typer.clash("P201", f"`{operator}` wants two numbers", left, right, *helps)
    if kind.unit != other.unit:
        helps = help_for(typer, right, sort_of(kind)) or help_for(typer, left, sort_of(other))
        raise typer.clash("P203", f"`{operator}` wants equal units", left, right, *helps)
    return kind


def _product(typer: Typer, node: s.Chain, parts: list[Typed]) -> Typed:
    solid = tuple(typer.plain(one) for one in parts)
    unit = t.PLAIN
    for operator, one in zip(("*", *node.operators), solid, strict=True):
        typer.want(one, "number", f"`{operator}`")
        unit = unit.times(one.type.unit or t.PLAIN, 1 if operator == "*" else -1)
    return making.arith(node.span, t.number_of(unit), node.operators, solid)


def _negative(typer: Typer, node: s.Negative) -> Typed:
    typed = typer.open_number(node.operand, "`-`")
    if isinstance(typed, Flex):
        exact = None if typed.exact is None else -typed.exact
        return replace(typed, span=node.span, exact=exact, text=f"-{typed.text}")
    turned = making.constant(node.span, -1.0, t.NUMBER)
    return making.arith(node.span, typed.type, ("*",), (typed, turned))


def _percent_of(typer: Typer, node: s.PercentOf) -> Typed:
    share = cast("Flex", read_literal(typer, node.percent))
    typed = typer.open_number(node.operand, "`of`")
    exact = cast("Fraction", share.exact)
    if isinstance(typed, Flex):
        return fold(typer, ("*",), [Flex(share.span, exact), typed], node.span)
    # Times N, then over 100: exact wherever the result is a whole number.
    number = settle(typer, Flex(share.span, exact * 100), t.PLAIN)
    hundred = making.constant(share.span, 100.0, t.NUMBER)
    return making.arith(node.span, typed.type, ("*", "/"), (typed, number, hundred))


# ---- logic and choice


def _logic(typer: Typer, node: s.Logical | s.Not) -> ir.Expr:
    written = (node.operand,) if isinstance(node, s.Not) else node.operands
    word = "not" if isinstance(node, s.Not) else node.operator
    if isinstance(node, s.Logical):
        comparisons.alternatives(typer, node)
        _binds_closer(typer, node)
    parts = typer.each(written)
    solid = [typer.want(one, "condition", f"`{word}`") for one in parts]
    if isinstance(node, s.Not):
        return making.inverted(node.span, solid[0])
    return making.logical(node.span, node.operator, solid)


def _binds_closer(typer: Typer, node: s.Logical) -> None:
    """Warns of `a or b and c`, which many read from left to right."""
    text = typer.source.text
    for before, one in itertools.pairwise(node.operands):
        start, end = one.span.start, one.span.end
        bare = text[:start].rstrip()[-1:] != "(" or text[end:].lstrip()[:1] != ")"
        if isinstance(one, s.Logical) and bare and not isinstance(before, s.Logical):
            message, better = "`and` binds closer than `or`", f"({typer.text(one)})"
            typer.warn("P317", message, one, f"it is read as  {better}", fix=Fix(one.span, better))


def _if(typer: Typer, node: s.If) -> ir.Expr:
    conditions = [one for one, _ in node.branches]
    checked = typer.each([*conditions, *(then for _, then in node.branches), node.otherwise])
    count = len(conditions)
    tests = [typer.want(one, "condition", "`if`") for one in checked[:count]]
    values, kind = typer.unify(checked[count:], "`then` and `else` want")
    if kind.kind is t.Kind.LIST and making.level_of((*values, *tests)) > t.Level.POD:
        message = "a list may not differ from node to node here"
        raise typer.refuse("P201", message, node)
    result = values[-1]
    for condition, then in zip(reversed(tests), reversed(values[:-1]), strict=True):
        result = replace(making.choice(node.span, condition, then, result), type=kind)
    return result


def _fallback(typer: Typer, node: s.Fallback) -> ir.Expr:
    parts = typer.each(node.operands)
    for one in parts[:-1]:
        if one.type.kind in (t.Kind.BOOL, t.Kind.LIST):
            message = f"`??` is for values that may be missing; {describe(one)} never is"
            fix = Fix(node.span, typer.text(one)) if one is parts[0] else None
            raise typer.refuse("P201", message, one, fix=fix)
    values, kind = typer.unify(parts, "`??` wants")
    first = ir.unnamed(values[0])
    # What nobody asks for is 0, as with `?? 0`.
    if isinstance(first, ir.Read) and kind.is_number and getattr(values[-1], "value", None):
        spec, text, other = FIELDS[first.field], typer.text(parts[0]), typer.text(parts[-1])
        if spec.level is first.level and not spec.optional:
            message = f"`{text}` is never missing: where nothing is said it is 0"
            typer.warn("P317", message, node, f"write  if {text} == 0 then {other} else {text}")
    return replace(making.first_of(node.span, values), type=kind)


# ---- calls

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
    spec = FUNCTIONS.get(node.name)
    if spec is None:
        return _pair(typer, node)
    few = len(node.args) < len(spec.takes)
    if few or (len(node.args) > len(spec.takes) and not spec.variadic):
        count = len(spec.takes)
        wants = f"{'at least ' * spec.variadic}{count} argument{'s' * (count > 1)}"
        message = f"`{node.name}` takes {wants}, not {len(node.args)}"
        raise typer.refuse("P209", message, node, spec.doc)
    if spec.gives in ("pods", "nodes"):
        text = typer.text(node)
        message = f"`{text}` is a set of {spec.gives}, not a value"
        raise typer.refuse("P201", message, node, f"write  count({text})")
    if node.name == "peers":
        return peers.count(peers.domain(typer, node.args[0]), None, node.span)
    if spec.takes == "m":
        return _metric_age(typer, node)
    return _apply(typer, node, spec, typer.each(node.args))


def _pair(typer: Typer, node: s.Call) -> Typed:
    """Returns the value of a metric of pairs: `rtt(node.name, it.node)`."""
    entry = find_metric(typer, node.name) if node.name not in typer.lets else None
    if node.name in typer.broken:
        raise Refused
    if entry is None:
        raise names.no_function(typer, node)
    of = entry.spec.of if entry.spec is not None else "pair"
    pair = of == "pair"
    if not pair or len(node.args) != _PAIR:
        message = f"the metric `{node.name}` has one value {'of two texts' if pair else f'a {of}'}"
        help_ = f"write  {node.name}{'(node.name, it.node)' if pair else '   without brackets'}"
        raise typer.refuse("P209", message, node, help_)
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
    kind = first if spec.gives == "same" else TYPES[spec.gives]
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
    form = FIELDS[value.field].form if isinstance(value, ir.Read) else None
    if name == "time" and form is not None:
        message = f"`{typer.text(read)}` is never a time: no `:` stands in it"
        typer.warn("P317", message, read, "times stand in annotations:  time(node.annotation[KEY])")
    text = value.value if isinstance(value, ir.Const) else None
    if name in _EXAMPLES and isinstance(text, str) and t.is_missing(TEXT_FUNCTIONS[name](text)):
        help_ = f'write for example  {name}("{_EXAMPLES[name]}")'
        raise typer.refuse("P111", f"`{text}` is no {name}", read, help_)


def _rank(typer: Typer, node: s.Call, value: ir.Expr) -> ir.Expr:
    if value.level is not t.Level.NODE:
        what = f"`{typer.text(value)}` is a value of {value.level.noun}"
        raise typer.refuse("P202", f"`rank` compares nodes, and {what}", value)
    return made(ir.Rank, node.span, t.NUMBER, value=value)


#: How an expression of each kind is understood.
_CHECKS: Final[dict[type, Callable[[Typer, Any], Typed]]] = {
    **dict.fromkeys((s.Number, s.Percent), lambda typer, one: read_literal(typer, one)),
    **dict.fromkeys((s.Text, s.Word), lambda _, one: making.constant(one.span, one.value, t.TEXT)),
    **dict.fromkeys((s.Logical, s.Not), _logic),
    s.Bool: lambda _, one: making.constant(one.span, one.value, t.BOOL),
    s.Param: names.param,
    s.Name: _name,
    s.Field: names.read_field,
    s.Words: _list,
    s.Chain: _chain,
    s.Negative: _negative,
    s.PercentOf: _percent_of,
    s.If: _if,
    s.Fallback: _fallback,
    s.Call: call,
    s.Aggregate: aggregates.aggregate,
    s.Compare: comparisons.compared,
    s.Is: comparisons.is_word,
    s.IsMissing: comparisons.is_missing_value,
    s.In: comparisons.in_list,
    s.TextTest: comparisons.text_test,
    s.LabelTest: comparisons.label_test,
}
