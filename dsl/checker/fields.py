"""Fields and label tests: which column or which value of the pod is meant."""

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from dsl import ir
from dsl import syntax as s
from dsl.checker import elsewhere, hints, meant, never, oddtexts
from dsl.checker.literals import constant
from dsl.checker.resources import name_resource
from dsl.checker.scope import Flex, Refused, Scope, Typed, describe
from dsl.diagnostics import Fix, Label
from dsl.functions import parse_number
from dsl.schema import (
    AMOUNTS,
    FIELDS,
    PLURALS,
    RESULTS,
    FieldSpec,
    request_unit,
)
from dsl.source import Span
from dsl.types import BOOL, NUMBER, TEXT, Kind, Level, Type, is_missing, number_of

if TYPE_CHECKING:
    from dsl.checker.expressions import Typer

_TEST: Final = re.compile(r"(.*?)(!=|==?)(.*)", re.DOTALL)
_OF_CONTAINER: Final = ("it.name", "it.image", "it.request", "it.limit")


def canonical(path: str) -> str:
    """Returns a path with its plurals turned into singulars."""
    if path in FIELDS:
        return path
    return ".".join(PLURALS.get(part, part) for part in path.split("."))


def read_field(typer: "Typer", node: s.Field) -> ir.Expr:
    """Returns the read of a field."""
    name = canonical(node.path) + node.tail
    has_key = node.key is not None or node.computed is not None
    of_its_node = name.startswith("it.node.")
    spec = FIELDS.get(name.removeprefix("it.") if of_its_node else name)
    if spec is None:
        raise hints.no_field(typer.scope, node, name, has_key=has_key)
    if spec.keyed and not has_key:
        raise typer.scope.refuse(
            "P101", f"`{name}` needs a key", node.span, f"write  {_keyed(name, 'KEY')}"
        )
    if has_key and not spec.keyed:
        raise typer.scope.refuse("P101", f"`{name}` takes no key", node.span, f"write  {name}")
    if of_its_node:
        return _of_its_node(typer, node, spec)
    if node.computed is not None:
        return _computed(typer, node, spec)
    key = key_text(typer, node.key) if node.key is not None else None
    if isinstance(node.key, s.Word | s.Text) and spec.name == "node.condition":
        never.odd_condition(typer.scope, node.key.value, node.key.span)
    if node.key is not None and key is not None and spec.name in AMOUNTS:
        of_node = spec.name.startswith("node.")
        name_resource(typer.scope, key, node.key.span, of_node=of_node)
    return make_read(typer, spec, key, node.span)


def make_read(typer: "Typer", spec: FieldSpec, key: str | None, span: Span) -> ir.Expr:
    """Returns the read of a field whose key is known."""
    if spec.level is Level.IT and typer.in_containers:
        return _of_container(typer, spec, key, span)
    _may_be_read(typer, spec, span)
    kind = _amount_type(spec, key)
    return ir.Read(span=span, type=kind, level=spec.level, field=spec.name, key=key)


def _amount_type(spec: FieldSpec, key: str | None) -> Type:
    if key is not None and spec.name in AMOUNTS:
        return number_of(request_unit(key))
    return spec.type


#: What is known of all victims of a node, by the field of one of them.
_VICTIMS: Final = MappingProxyType(
    {
        "it.priority": "pick victims.max_priority   or   pick victims.sum_priority",
        "it.started_at": "pick victims.latest_start desc",
    }
)


def _all_victims(spec: FieldSpec) -> str:
    better = _VICTIMS.get(spec.name, "pick victims.max_priority, victims.count")
    return f"`pick` chooses a node by all of its victims:  {better}"


#: What `pick` knows, written as an aggregate.
_OF_VICTIMS: Final = MappingProxyType(
    {
        ("max", "it.priority"): "victims.max_priority",
        ("sum", "it.priority"): "victims.sum_priority",
    }
)


def over_victims(typer: "Typer", node: s.Aggregate) -> Refused:
    """Refuses `sum(it.priority over victims)`: of all victims there are some fields."""
    known = [name for name in FIELDS if name.startswith("victims.")]
    written = typer.scope.text(node.args[0])
    better = _OF_VICTIMS.get((node.function, written)) if node.where is None else None
    assert node.over is not None
    if not typer.results:
        help_ = (
            "a node is chosen by its victims in  pick:  pick victims.max_priority, victims.count"
        )
    elif better is not None:
        help_ = f"write  {better}"
    else:
        help_ = f"what `pick` can ask of them is  {', '.join(known)}"
    message = "`victims` is no set that an aggregate goes through"
    fix = Fix(node.span, better) if better is not None and typer.results else None
    return typer.scope.refuse("P209", message, node.over.span, help_, fix=fix)


def _may_be_read(typer: "Typer", spec: FieldSpec, span: Span) -> None:
    of_pod = spec.level is Level.IT and not typer.in_pods
    of_node = elsewhere.of_node(typer.scope, spec.name, span) if of_pod else ""
    if of_node:
        if elsewhere.compared(typer.scope, of_node, span):
            raise typer.scope.refuse(
                "P202",
                f"`{spec.name}` means a pod, and this is asked of nodes",
                span,
                "in a set of nodes `node` is each of them, and the node in question has no name:"
                " count all and subtract it, or ask for  zone.nodes  and the like",
            )
        raise typer.scope.refuse(
            "P202",
            f"`{spec.name}` means a pod, and this is asked of nodes",
            span,
            f"write  {of_node}",
            fix=of_node,
        )
    if of_pod:
        of_victims = any(one.startswith("victims.") for one in typer.results)
        help_ = elsewhere.without_set(typer.scope, spec, span)
        raise typer.scope.refuse(
            "P202",
            f"`{spec.name}` means a pod of a set, and there is no set here",
            span,
            _all_victims(spec) if of_victims else help_,
        )
    if spec.type.kind is Kind.NODES:
        raise typer.scope.refuse(
            "P201",
            f"`{spec.name}` is a set of nodes, not a value",
            span,
            f"write  count({spec.name})   or   sum(node.cpu.free over {spec.name})",
        )
    if spec.type.kind is Kind.PODS:
        of_set = elsewhere.of_set(typer.scope, spec.name, span)
        raise typer.scope.refuse(
            "P201",
            f"`{spec.name}` is a set of pods, not a value",
            span,
            f"write  {of_set}"
            if of_set
            else f"write  count({spec.name})   or   sum(it.cpu over {spec.name})",
        )
    root = spec.name.split(".", 1)[0]
    if root in RESULTS and not {root, spec.name} & typer.results:
        raise typer.scope.refuse("P202", f"`{spec.name}` is known only {RESULTS[root]}", span)


def _of_container(typer: "Typer", spec: FieldSpec, key: str | None, span: Span) -> ir.Expr:
    if spec.name not in _OF_CONTAINER:
        raise typer.scope.refuse(
            "P202",
            f"`{spec.name}` is a field of a pod, and `it` is a container here",
            span,
            f"a container has {', '.join(_OF_CONTAINER)}",
        )
    return ir.ContainerRead(
        span=span,
        type=_amount_type(spec, key),
        level=Level.POD,
        field=spec.name.removeprefix("it."),
        key=key,
    )


def _of_its_node(typer: "Typer", node: s.Field, spec: FieldSpec) -> ir.Expr:
    """Returns the read of a field of the node that a pod of a set is on."""
    if not typer.in_pods:
        raise typer.scope.refuse(
            "P202", "`it` means a pod of a set, and there is no set here", node.span
        )
    if spec.of_pod or spec.type.kind in (Kind.PODS, Kind.LIST) or not typer.placed:
        raise typer.scope.refuse(
            "P202",
            f"`{spec.name}` cannot be read of the node of another pod"
            if typer.placed
            else "the pods of this set are on no node yet",
            node.span,
        )
    if node.computed is not None:
        raise typer.scope.refuse(
            "P201", "the key of a field of `it.node` is a fixed word", node.computed.span
        )
    key = key_text(typer, node.key) if node.key is not None else None
    kind = _amount_type(spec, key)
    return ir.Read(span=node.span, type=kind, level=Level.IT, field=spec.name, key=key)


def _computed(typer: "Typer", node: s.Field, spec: FieldSpec) -> ir.Expr:
    """Returns the read of a field whose key is an expression."""
    assert node.computed is not None
    typed = typer.check(node.computed)
    if isinstance(typed, Flex):
        return make_read(typer, spec, typed.text, node.span)
    if typed.type.kind is not Kind.TEXT:
        raise _no_text(typer, "a key", typed)
    if isinstance(typed, ir.Const) and isinstance(typed.value, str):
        return make_read(typer, spec, typed.value, node.span)
    if typer.in_containers and spec.level is Level.IT:
        raise typer.scope.refuse(
            "P201", "the key of a field of a container is a fixed word", node.computed.span
        )
    _may_be_read(typer, spec, node.span)
    level = max(spec.level, typed.level)
    return ir.KeyedRead(span=node.span, type=spec.type, level=level, field=spec.name, key=typed)


def key_text(typer: "Typer", key: s.Expr) -> str:
    """Returns the text of a key, which may be a parameter."""
    if isinstance(key, s.Param):
        value = typer.param(key)
        if isinstance(value, Flex):
            return value.text
        if isinstance(value, ir.Const) and isinstance(value.value, str):
            return value.value
        raise typer.scope.refuse("P201", f"a key is a text, not {describe(value)}", key.span)
    assert isinstance(key, s.Word | s.Text)
    return key.value


def _keyed(name: str, key: str) -> str:
    if name.startswith("node.resource."):
        return f"node.resource[{key}].{name.rsplit('.', 1)[1]}"
    return f"{name}[{key}]"


# ---- label tests


def label_test(typer: "Typer", node: s.LabelTest) -> ir.Expr:
    """Returns the condition of `node.label k`, `node.label k=v`, `node.taint k` ..."""
    name = canonical(node.path)
    spec = FIELDS.get(name)
    if spec is None:
        field = s.Field(node.path_span, node.path)
        raise hints.no_field(typer.scope, field, name, has_key=True)
    key = key_text(typer, node.key)
    operator, value = node.operator, node.value
    if not operator and not isinstance(node.key, s.Word):
        # A parameter or quoted text alone may hold `key`, `key=value` or `key!=value`.
        test = _TEST.fullmatch(key)
        if test is not None:
            key, operator, text = test.groups()
            value = s.Text(node.key.span, text)
    if spec.type is BOOL:
        return _taint(typer, node, spec, key, (operator, value))
    read = make_read(typer, spec, key, node.span)
    meant.nothing_of_label(typer.scope, node)
    if value is None:
        missing = ir.Missing(span=node.span, type=BOOL, level=read.level, operand=read)
        return ir.Not(span=node.span, type=BOOL, level=read.level, operand=missing)
    if operator in ("in", "not in"):
        return _label_in(typer, node, read, negated=operator == "not in")
    return _label_compare(typer, node, read, (operator, value))


def _label_compare(
    typer: "Typer", node: s.LabelTest, read: ir.Expr, test: tuple[str, s.Expr]
) -> ir.Expr:
    operator, value = test
    right = label_value(typer, value)
    level = max(read.level, right.level)
    if operator in ("=", "==", "!="):
        if right.type.kind is not Kind.TEXT:
            raise _no_text(typer, "a label", right)
        oddtexts.strange_text(typer.scope, read, "is", right, negated=operator == "!=")
        equal = ir.Compare(
            span=node.span, type=BOOL, level=level, operator="==", left=read, right=right
        )
        if operator == "!=":
            return ir.Not(span=node.span, type=BOOL, level=level, operand=equal)
        return equal
    return ir.Compare(
        span=node.span,
        type=BOOL,
        level=level,
        operator=operator,
        left=_as_number(typer, read),
        right=_as_number(typer, right),
    )


def _no_text(typer: "Typer", what: str, value: ir.Expr) -> Refused:
    text = typer.scope.text(value)
    hint = f'write  (if {text} then "true" else "false")' if value.type.kind is Kind.BOOL else ""
    if value.type.is_number:
        hint = f"write  string({text})"
    return typer.scope.refuse(
        "P201",
        f"{what} is a text, and this is {describe(value)}",
        value.span,
        *([hint] if hint else []),
    )


def _as_number(typer: "Typer", value: ir.Expr) -> ir.Expr:
    if value.type.is_number:
        return value
    if isinstance(value, ir.Const) and isinstance(value.value, str):
        number = parse_number(value.value)
        if not is_missing(number):
            return constant(value.span, number, NUMBER)
        raise typer.scope.refuse(
            "P201", f"`{value.value}` is not a number", value.span, "compare texts with `=`"
        )
    if value.type.kind is not Kind.TEXT:
        raise typer.scope.refuse(
            "P201", f"numbers are compared here, and this is {describe(value)}", value.span
        )
    return ir.Func(span=value.span, type=NUMBER, level=value.level, name="number", args=(value,))


def label_value(typer: "Typer", value: s.Expr) -> ir.Expr:
    """Returns the right side of a label test, words read as texts."""
    if isinstance(value, s.Percent):
        return constant(value.span, value.text, TEXT)
    if isinstance(value, s.Word):
        never.parameter_as_word(typer.scope, value)
    typed = typer.check(value)
    if isinstance(typed, Flex) and isinstance(value, s.Param):
        return constant(value.span, typed.text, TEXT)
    return typer.plain(typed)


def _label_in(typer: "Typer", node: s.LabelTest, read: ir.Expr, *, negated: bool) -> ir.Expr:
    assert node.value is not None
    result = members_of(typer, node, read, node.value)
    if negated:
        return ir.Not(span=node.span, type=BOOL, level=result.level, operand=result)
    return result


def members_of(typer: "Typer", node: s.Node, item: ir.Expr, members: s.Expr) -> ir.Expr:
    """Returns whether a text is one of some words, each a constant or an expression."""
    if not isinstance(members, s.Words):
        items = typer.check(members)
        if isinstance(items, Flex) or items.type.kind is not Kind.LIST:
            raise typer.scope.refuse(
                "P201",
                f"`in` wants a list, and this is {describe(items)}",
                members.span,
                *elsewhere.as_list(typer.scope, members.span),
            )
        if items.type.element is not Kind.TEXT:
            raise typer.mixed("P201", "`in` wants items of the same kind", item, items)
        level = max(item.level, items.level)
        return ir.Member(span=node.span, type=BOOL, level=level, item=item, items=items)
    no_fields(typer.scope, members)
    values = [label_value(typer, one) for one in members.items]
    for one in values:
        if one.type.kind is not Kind.TEXT:
            raise typer.mixed("P201", "`in` wants items of the same kind", item, one)
    return either(node.span, item, values)


def no_fields(scope: Scope, words: s.Words) -> None:
    """Refuses `in [pod.namespace]`, where the name of a field would be a word."""
    for one in words.items:
        if isinstance(one, s.Word) and "." in one.value and one.value in FIELDS:
            raise scope.refuse(
                "P317",
                f"`{one.value}` is a word in a list, not the field of that name",
                one.span,
                f'for the field write  ({one.value})   and for the word  "{one.value}"',
            )


def either(span: Span, item: ir.Expr, values: list[ir.Expr]) -> ir.Expr:
    """Returns whether an item equals one of the values; constants become one list."""
    # What is missing equals nothing, so it need not be in the list.
    fixed = tuple(
        one.value for one in values if isinstance(one, ir.Const) and not is_missing(one.value)
    )
    parts: list[ir.Expr] = []
    if fixed or not values:
        kind = TEXT if item.type.kind is Kind.TEXT else item.type
        element = Kind.TEXT if kind is TEXT else Kind.NUMBER
        listed = ir.Const(
            span=span,
            type=Type(Kind.LIST, kind.unit, element),
            level=Level.CONST,
            value=fixed,  # type: ignore[arg-type]  # all of one kind: `values` were read alike
        )
        parts.append(ir.Member(span=span, type=BOOL, level=item.level, item=item, items=listed))
    for one in values:
        if not isinstance(one, ir.Const):
            level = max(item.level, one.level)
            parts.append(
                ir.Compare(span=span, type=BOOL, level=level, operator="==", left=item, right=one)
            )
    if len(parts) == 1:
        return parts[0]
    level = max(one.level for one in parts)
    return ir.Logical(span=span, type=BOOL, level=level, operator="or", operands=tuple(parts))


def _taint(
    typer: "Typer",
    node: s.LabelTest,
    spec: FieldSpec,
    key: str,
    test: tuple[str, s.Expr | None],
) -> ir.Expr:
    operator, value = test
    if value is None:
        return make_read(typer, spec, key, node.span)
    if operator in ("in", "not in") and isinstance(value, s.Words):
        no_fields(typer.scope, value)
        texts = [_fixed_text(typer, one) for one in value.items]
    elif operator in ("=", "==", "!="):
        texts = [_fixed_text(typer, value)]
    else:
        raise typer.scope.refuse(
            "P201",
            f"a taint cannot be tested with `{operator}`",
            node.span,
            "write  node.taint KEY   or   node.taint KEY=VALUE",
            labels=(Label(node.path_span, "a taint"),),
        )
    reads = tuple(make_read(typer, spec, f"{key}={text}", node.span) for text in texts)
    result = (
        reads[0]
        if len(reads) == 1
        else ir.Logical(span=node.span, type=BOOL, level=Level.NODE, operator="or", operands=reads)
    )
    if operator in ("!=", "not in"):
        return ir.Not(span=node.span, type=BOOL, level=Level.NODE, operand=result)
    return result


def _fixed_text(typer: "Typer", value: s.Expr) -> str:
    typed: Typed = label_value(typer, value)
    if isinstance(typed, ir.Const) and isinstance(typed.value, str):
        return typed.value
    raise typer.scope.refuse("P201", "the value of a taint is a fixed text here", value.span)
