"""Fields and label tests: which column or which value of the pod is meant."""

import re
from typing import Final

from dsl import ir
from dsl import syntax as s
from dsl.checker import names
from dsl.checker.making import compare, constant, func, inverted, logical, member, missing, turned
from dsl.checker.resources import name_resource
from dsl.checker.scope import Flex, Scope, Typed, describe
from dsl.checker.typer import Typer
from dsl.diagnostics import Fix, Severity
from dsl.quantities import parse_number
from dsl.schema import AMOUNTS, FIELDS, PLURALS, RESULTS, FieldSpec, request_unit
from dsl.source import Span
from dsl.spelling import ABSENT, NOTHING, THERE
from dsl.types import BOOL, NUMBER, TEXT, Kind, Level, Type, is_missing, number_of

_TEST: Final = re.compile(r"(.*?)(!=|==?)(.*)", re.DOTALL)
_OF_CONTAINER: Final = ("it.name", "it.image", "it.request", "it.limit")


def canonical(path: str) -> str:
    """Returns a path with its plurals turned into singulars."""
    if path in FIELDS:
        return path
    return ".".join(PLURALS.get(part, part) for part in path.split("."))


def read_field(typer: Typer, node: s.Field) -> ir.Expr:
    """Returns the read of a field."""
    name = canonical(node.path) + node.tail
    has_key = node.key is not None or node.computed is not None
    of_its_node = name.startswith("it.node.")
    spec = FIELDS.get(name.removeprefix("it.") if of_its_node else name)
    if spec is None:
        raise names.no_field(typer.scope, node, name, has_key=has_key)
    if spec.keyed and not has_key:
        before, dot, part = name.partition(".resource.")
        keyed = f"{before}.resource[KEY].{part}" if dot else f"{name}[KEY]"
        raise typer.scope.refuse("P101", f"`{name}` needs a key", node.span, f"write  {keyed}")
    if has_key and not spec.keyed:
        raise typer.scope.refuse("P101", f"`{name}` takes no key", node.span, f"write  {name}")
    if of_its_node:
        return _of_its_node(typer, node, spec)
    if node.computed is not None:
        return _computed(typer, node, spec)
    key = key_text(typer, node.key) if node.key is not None else None
    if node.key is not None and key is not None and spec.name in AMOUNTS:
        of_node = spec.name.startswith("node.")
        name_resource(typer.scope, key, node.key.span, of_node=of_node)
    return make_read(typer, spec, key, node.span)


def make_read(typer: Typer, spec: FieldSpec, key: str | None, span: Span) -> ir.Expr:
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


def _may_be_read(typer: Typer, spec: FieldSpec, span: Span) -> None:
    if spec.level is Level.IT and not typer.in_pods:
        message = f"`{spec.name}` means a pod of a set, and there is no set here"
        text = " ".join(typer.scope.source.slice(span).split())
        own = spec.name.replace("it.", "pod.", 1)
        of_pod = f"of the pod to place it is  {own},  " * (own in FIELDS)
        raise typer.scope.refuse(
            "P202", message, span, f"{of_pod}of pods of a set  any(node.pods where {text} ...)"
        )
    if spec.type.kind in (Kind.NODES, Kind.PODS):
        things = "nodes" if spec.type.kind is Kind.NODES else "pods"
        message = f"`{spec.name}` is a set of {things}, not a value"
        raise typer.scope.refuse("P201", message, span, f"write  count({spec.name})")
    root = spec.name.split(".", 1)[0]
    if root in RESULTS and not {root, spec.name} & typer.results:
        raise typer.scope.refuse("P202", f"`{spec.name}` is known only {RESULTS[root]}", span)


def _of_container(typer: Typer, spec: FieldSpec, key: str | None, span: Span) -> ir.Expr:
    if spec.name not in _OF_CONTAINER:
        message = f"`{spec.name}` is a field of a pod, and `it` is a container here"
        help_ = f"a container has {', '.join(_OF_CONTAINER)}"
        raise typer.scope.refuse("P202", message, span, help_)
    return ir.ContainerRead(
        span=span,
        type=_amount_type(spec, key),
        level=Level.POD,
        field=spec.name.removeprefix("it."),
        key=key,
    )


def _of_its_node(typer: Typer, node: s.Field, spec: FieldSpec) -> ir.Expr:
    """Returns the read of a field of the node that a pod of a set is on."""
    message = ""
    if not typer.in_pods:
        message = "`it` means a pod of a set, and there is no set here"
    elif not typer.placed:
        message = "the pods of this set are on no node yet"
    elif spec.of_pod or spec.type.kind in (Kind.PODS, Kind.LIST):
        message = f"`{spec.name}` cannot be read of the node of another pod"
    if message:
        raise typer.scope.refuse("P202", message, node.span)
    if node.computed is not None:
        message = "the key of a field of `it.node` is a fixed word"
        raise typer.scope.refuse("P201", message, node.computed.span)
    key = key_text(typer, node.key) if node.key is not None else None
    kind = _amount_type(spec, key)
    return ir.Read(span=node.span, type=kind, level=Level.IT, field=spec.name, key=key)


def _computed(typer: Typer, node: s.Field, spec: FieldSpec) -> ir.Expr:
    """Returns the read of a field whose key is an expression."""
    assert node.computed is not None
    typed = typer.check(node.computed)
    if isinstance(typed, Flex):
        return make_read(typer, spec, typed.text, node.span)
    if typed.type.kind is not Kind.TEXT:
        typer.want(typed, "text", "a key")
    if isinstance(typed, ir.Const) and isinstance(typed.value, str):
        return make_read(typer, spec, typed.value, node.span)
    if typer.in_containers and spec.level is Level.IT:
        message = "the key of a field of a container is a fixed word"
        raise typer.scope.refuse("P201", message, node.computed.span)
    _may_be_read(typer, spec, node.span)
    level = max(spec.level, typed.level)
    return ir.KeyedRead(span=node.span, type=spec.type, level=level, field=spec.name, key=typed)


def key_text(typer: Typer, key: s.Expr) -> str:
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


# ---- label tests


def label_test(typer: Typer, node: s.LabelTest) -> ir.Expr:
    """Returns the condition of `node.label k`, `node.label k=v`, `node.taint k` ..."""
    name = canonical(node.path)
    spec = FIELDS.get(name)
    if spec is None:
        field = s.Field(node.path_span, node.path)
        raise names.no_field(typer.scope, field, name, has_key=True)
    key = key_text(typer, node.key)
    operator, value = node.operator, node.value
    if not operator and not isinstance(node.key, s.Word):
        # A parameter or quoted text alone may hold `key`, `key=value` or `key!=value`.
        found = _TEST.fullmatch(key)
        if found is not None:
            key, operator, text = found.groups()
            value = s.Text(node.key.span, text)
    if spec.type is BOOL:
        return _taint(typer, node, spec, key, (operator, value))
    read = make_read(typer, spec, key, node.span)
    if value is None:
        return inverted(node.span, missing(node.span, read))
    if operator in ("in", "not in"):
        test = members_of(typer, node, read, value)
        return turned(node.span, test, negated=operator == "not in")
    return _label_compare(typer, node, read, (operator, value))


def _label_compare(
    typer: Typer, node: s.LabelTest, read: ir.Expr, test: tuple[str, s.Expr]
) -> ir.Expr:
    operator, value = test
    right = label_value(typer, value)
    if operator not in ("=", "==", "!="):
        sides = _as_number(typer, read), _as_number(typer, right)
        return compare(node.span, sides[0], operator, sides[1])
    if right.type.kind is not Kind.TEXT:
        typer.want(right, "text", "a label")
    if isinstance(value, s.Word) and value.value.lower() in NOTHING:
        text = f"{node.path}[{typer.scope.text(node.key)}]"
        word_for_nothing(typer.scope, node.span, text, value, negated=operator == "!=")
    return turned(node.span, compare(node.span, read, "==", right), negated=operator == "!=")


def _as_number(typer: Typer, value: ir.Expr) -> ir.Expr:
    if value.type.is_number:
        return value
    if isinstance(value, ir.Const) and isinstance(value.value, str):
        number = parse_number(value.value)
        if not is_missing(number):
            return constant(value.span, number, NUMBER)
        message, help_ = f"`{value.value}` is not a number", "compare texts with `=`"
        raise typer.scope.refuse("P201", message, value.span, help_)
    if value.type.kind is not Kind.TEXT:
        typer.want(value, "number", "this test")
    return func(value.span, NUMBER, "number", (value,))


def word_for_nothing(scope: Scope, place: Span, left: str, word: s.Word, *, negated: bool) -> None:
    """Warns of `x is null`, `x is empty`, `x is set`: ordinary words here."""
    low = word.value.lower()
    if low not in NOTHING | ABSENT | THERE:
        return
    there = (low in THERE) != negated
    scope.report(
        "P317",
        f"`{word.value}` is an ordinary word here",
        word.span,
        fix=Fix(place, f"{left} is {'present' if there else 'missing'}"),
        severity=Severity.WARNING,
    )


def label_value(typer: Typer, value: s.Expr) -> ir.Expr:
    """Returns the right side of a label test, words read as texts."""
    if isinstance(value, s.Percent):
        return constant(value.span, value.text, TEXT)
    typed = typer.check(value)
    if isinstance(typed, Flex) and isinstance(value, s.Param):
        return constant(value.span, typed.text, TEXT)
    return typer.plain(typed)


def members_of(typer: Typer, node: s.Node, item: ir.Expr, members: s.Expr) -> ir.Expr:
    """Returns whether a text is one of some words, each a constant or an expression."""
    if not isinstance(members, s.Words):
        items = typer.check(members)
        if isinstance(items, Flex) or items.type.kind is not Kind.LIST:
            message = f"`in` wants a list, and this is {describe(items)}"
            helps: tuple[str, ...] = ()
            if isinstance(members, s.Param):
                helps = (f"declare it  param {members.name}: list of string = [...]",)
            raise typer.scope.refuse("P201", message, members.span, *helps)
        if items.type.element is not Kind.TEXT:
            raise typer.mixed("P201", "`in` wants items of the same kind", item, items)
        return member(node.span, item, items)
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
            message = f"`{one.value}` is a word in a list, not the field of that name"
            help_ = f'for the field write  ({one.value})   and for the word  "{one.value}"'
            raise scope.refuse("P317", message, one.span, help_)


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
        parts.append(member(span, item, listed))
    parts += [compare(span, item, "==", one) for one in values if not isinstance(one, ir.Const)]
    return logical(span, "or", parts)


def _taint(
    typer: Typer,
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
        message = f"a taint cannot be tested with `{operator}`"
        help_ = "write  node.taint KEY   or   node.taint KEY=VALUE"
        raise typer.scope.refuse("P201", message, node.span, help_)
    reads = [make_read(typer, spec, f"{key}={text}", node.span) for text in texts]
    test_ = logical(node.span, "or", reads)
    return turned(node.span, test_, negated=operator in ("!=", "not in"))


def _fixed_text(typer: Typer, value: s.Expr) -> str:
    typed: Typed = label_value(typer, value)
    if isinstance(typed, ir.Const) and isinstance(typed.value, str):
        return typed.value
    raise typer.scope.refuse("P201", "the value of a taint is a fixed text here", value.span)
