"""Comparisons and tests: `==`, `is`, `in`, `contains`, `like`, `matches`, `is missing`, labels."""

import re
from collections.abc import Callable
from functools import partial
from typing import Final, TypeGuard

from dsl import ir, making
from dsl import syntax as s
from dsl.checker import names
from dsl.checker.literals import read_word, settle
from dsl.checker.scope import Flex, Refused, Scope, Typed, describe
from dsl.checker.typer import Typer, converted, help_for
from dsl.diagnostics import Fix, Severity
from dsl.foreign.fields import NOTHING, field_for, presence, quoted_key
from dsl.nearest import closest
from dsl.patterns import why_refused
from dsl.quantities import parse_number
from dsl.reads import reads_of
from dsl.schema import FIELDS, ROOTS, WEEKDAYS, canonical
from dsl.source import Span
from dsl.types import BOOL, NUMBER, PLAIN, TEXT, Kind, Type, is_missing

#: What compares something with a value.
_Test = s.Is | s.TextTest | s.Compare | s.LabelTest
#: Days as others count them, from Sunday on, which is both 0 and 7.
_DAY_NUMBERS: Final = {str(i): one for i, one in enumerate((WEEKDAYS[-1], *WEEKDAYS))}
#: What may be missing, and may be one of several.
_ORDERED: Final = "number or text or time"
_EQUAL: Final = ("==", "!=")
_KEY_TEST: Final = re.compile(r"(.*?)(!=|==?)(.*)", re.DOTALL)


# ---- two values


def compared(typer: Typer, node: s.Compare) -> ir.Expr:
    """Returns the condition of a comparison with a symbol."""
    _bare_word(typer, node)
    field_as_text(typer, node.left)
    sides = typer.each((node.left, node.right))
    for typed, other, written in zip(sides, sides[::-1], (node.right, node.left), strict=True):
        if isinstance(other, Flex | ir.Const):
            _no_version(typer, typed, written, word=False)
    left, right = _same_type(typer, node.operator, *sides)
    negated = node.operator == "!="
    if left.type.kind in (Kind.BOOL, Kind.TEXT) and node.operator not in _EQUAL:
        message = f"`{node.operator}` does not compare {describe(left)}"
        number = converted(typer, left, "number") if left.type == TEXT else ""
        helps = (f"compare numbers:  {number} {node.operator} ...",) if number else ()
        raise typer.refuse("P201", message, left, *helps)
    for one, other in ((left, right), (right, left)):
        if isinstance(other, ir.Const):
            closed_set(typer, one, other)
    test = making.compare(node.span, left, "==" if negated else node.operator, right)
    return making.turned(node.span, test, negated=negated)


def is_word(typer: Typer, node: s.Is) -> ir.Expr:
    """Returns the condition of `x is word`."""
    field_as_text(typer, node.left)
    left = typer.check(node.left)
    _word_for_nothing(typer, node, typer.text(node.left), node.right, negated=node.negated)
    field_as_word(typer, node.right)
    right = _word_or_expression(typer, node.right, left)
    one, other = _same_type(typer, "is", left, right)
    return making.turned(
        node.span, making.compare(node.span, one, "==", other), negated=node.negated
    )


def _same_type(typer: Typer, operator: str, left: Typed, right: Typed) -> tuple[ir.Expr, ...]:
    if left.type.kind is right.type.kind is Kind.LIST:
        typer.want(left, "single value", f"`{operator}`")
    return typer.unify((left, right), f"`{operator}` wants")[0]


def _no_version(scope: Scope, typed: Typed, other: s.Expr | s.Range, *, word: bool) -> None:
    """Refuses `version(node.kernel) >= 5.10`: 5.10 is no version, and would hold for all."""
    value = None if isinstance(typed, Flex) else ir.with_data(typed)
    if not isinstance(value, ir.Func) or value.name != "version":
        return
    written = scope.text(other)
    better = f"version({written})" if written[:1] in "'\"$" else f'version("{written}")'
    # What a let or a range holds is a number, and so is its name.
    plain = isinstance(other, s.Number | s.Text | s.Word | s.Percent | s.Param)
    fix = (f"({better})" if word else better) if plain else None
    message = f"a version is compared with a version, not with `{written}`"
    helps = () if plain else ('write for example  >= version("5.10")',)
    raise scope.refuse("P201", message, other, *helps, fix=fix)


def is_missing_value(typer: Typer, node: s.IsMissing) -> ir.Expr:
    """Returns the condition of `x is missing`."""
    typed = typer.check(node.operand)
    if typed.type == BOOL:
        of_taint = isinstance(typed, ir.Read) and typed.field == "node.taint"
        better = f"{'' if node.negated else 'not '}{typer.text(node.operand)}"
        fix = Fix(node.span, better) if of_taint else None
        raise typer.refuse("P201", "a condition holds or not: it is never missing", typed, fix=fix)
    operand = typer.want(typed, _ORDERED, "`is missing`")
    return making.turned(node.span, making.missing(node.span, operand), negated=node.negated)


# ---- words


def field_as_text(scope: Scope, node: s.Expr) -> None:
    """Warns of `"pod.name" contains nginx`, which tests the text and not the field."""
    if isinstance(node, s.Text) and node.value in FIELDS:
        message = f"this is the text `{node.value}`, not the field of that name"
        scope.warn("P317", message, node, fix=node.value)


def field_as_word(scope: Scope, node: s.Expr, severity: Severity = Severity.WARNING) -> None:
    """Tells of `x is pod.namespace` and `x in [pod.label.team]`, where that is a word."""
    word, what, field = node.value if isinstance(node, s.Word) else "", "field", ""
    let = scope.lets.get(word)
    if let is not None and isinstance(let.value, ir.Core) and let.value.type.kind is Kind.TEXT:
        what, field, severity = "let", word, Severity.WARNING
    elif "." in word:
        better = field_for(word) if word.partition(".")[0] in ROOTS else None
        field = word if word in FIELDS else better.text if better and better.sure else ""
    if field:
        message = f"`{word}` is a word here, not the {what} of that name"
        help_ = f'for the {what} write  ({field})   and for the word  "{word}"'
        scope.report("P317", message, node, help_, severity=severity)


def _word_for_nothing(
    scope: Scope, node: s.Expr, left: str, word: s.Expr, *, negated: bool
) -> None:
    """Warns of `x is null`, `x is empty`, `x is set`: ordinary words here."""
    asked = presence(word.value, negated=negated) if isinstance(word, s.Word) else ""
    if asked:
        message = f"`{scope.text(word)}` is an ordinary word here"
        scope.warn("P317", message, word, fix=Fix(node.span, f"{left} {asked}"))


def _bare_word(typer: Typer, node: s.Compare) -> None:
    """Refuses `x == word` and `x == kube-system`: after a symbol stands an expression."""
    right, equal, text = node.right, node.operator in _EQUAL, typer.text(node.right)
    if not _bare_words(typer, right):
        return
    left = typer.check(node.left)
    kind = left.type.kind
    if kind is not Kind.TEXT and "/" in text:
        return
    if kind is Kind.TEXT and not equal:
        message = f"`{node.operator}` does not compare text"
        raise typer.refuse("P201", message, node.left, *help_for(typer, left, "number"))
    written, place, better = typer.text(node.left), right.span, ""
    helps: tuple[str, ...] = ()
    asked = presence(text, negated=node.operator == "!=")
    if equal and asked:
        better = asked
        place = Span(node.operator_span.start, right.span.end)
    elif text.lower() in ("true", "false") and kind is Kind.BOOL:
        better = text.lower()
    elif written == f"it.{text}":
        better = f"pod.{text}"
    elif kind is Kind.TEXT:
        better, sign = f'"{text}"', "is not" if node.operator == "!=" else "is"
        helps = (f"write  {written} {sign} {text}   or   {written} {node.operator} {better}",)
    else:
        helps = (f"`{written}` is {describe(left)}, so it is compared with one",)
    message = f"`{node.operator}` is followed by an expression, and `{text}` is a bare word"
    # `zone` may mean the pod's.
    sure = better and (better[0] != '"' or f"pod.{text}" not in FIELDS)
    raise typer.refuse("P011", message, right, *helps, fix=Fix(place, better) if sure else None)


def _bare_words(typer: Typer, node: s.Expr) -> bool:
    """Whether an expression is a word that means nothing, or several: `kube-system`."""
    joined = isinstance(node, s.Chain) and {*node.operators} <= {"-", "/"}
    words = node.operands if isinstance(node, s.Chain) and joined else (node,)
    text = typer.source.slice(node.span)
    met = [one.name for one in words if isinstance(one, s.Name)]
    if " " in text or not met or not all(isinstance(one, s.Name | s.Number) for one in words):
        return False
    known = {*typer.names(), *typer.params, *typer.broken, "now"}
    known |= {"it"} if typer.place.item else set()
    near = node is words[0] and closest(text, typer.names()) is not None
    return not near and not known.intersection(met)


def _word_or_expression(typer: Typer, node: s.Expr, left: Typed) -> ir.Expr:
    """Returns the right side of a word operator, a word read in the type of the left."""
    if isinstance(node, s.Word | s.Text | s.Percent):
        _no_version(typer, left, node, word=True)
        word = node
    else:
        typed = typer.check(node)
        if isinstance(node, s.Param) and isinstance(typed, Flex) and isinstance(left, ir.Core):
            word = s.Text(node.span, typed.text)
        elif isinstance(typed, ir.Const) and isinstance(typed.value, str):
            word = s.Text(node.span, typed.value)
        else:
            return settle(typer, typed, left.type.unit or PLAIN, left)
    found = read_word(typer, word, left)
    closed_set(typer, left, found)
    return found


def closed_set(scope: Scope, left: Typed, word: ir.Const) -> None:
    """Refuses a word that a field with a closed set of words never has."""
    words = FIELDS[left.field].words if isinstance(left, ir.Read) else ()
    text = str(word.value)
    if not words or text in words or not isinstance(left, ir.Read):
        return
    near = closest(text, words)
    if left.field == "time.weekday":
        low = text.lower()
        full = (one for one in WEEKDAYS if low.startswith(one) and low.endswith("day"))
        near = _DAY_NUMBERS.get(text) or next(full, near)
    sign = scope.source.slice(word.span)[:1]
    quote = sign if sign in ('"', "'") else ""
    helps = ([f"did you mean `{near}`?"] if near else []) + [f"it is one of {', '.join(words)}"]
    fix = Fix(word.span, f"{quote}{near}{quote}") if near else None
    raise scope.refuse("P210", f"`{left.field}` is never `{text}`", word, *helps, fix=fix)


def alternatives(scope: Scope, node: s.Logical) -> None:
    """Refuses `x is a or b`, where `b` alone is no condition."""
    test: _Test | None = None
    known = {*scope.names(), *scope.broken, "it", "now"}
    refused: Refused | None = None
    for one in node.operands:
        inner = one.operand if isinstance(one, s.Not) else one
        if isinstance(inner, _Test):
            test = inner
        elif test is not None and (
            isinstance(inner, s.Text | s.Number | s.Percent)
            or (isinstance(inner, s.Name) and inner.name not in known)
        ):
            refused = _alternative(scope, node, test, inner)
    if refused is not None:
        raise refused


def _alternative(scope: Scope, node: s.Logical, test: _Test, value: s.Expr) -> Refused:
    right = (test.value or test.key) if isinstance(test, s.LabelTest) else test.right
    text = scope.text(value)
    message = f"`{text}` alone is no condition: each side of `{node.operator}` is a test of its own"
    asked = presence(text)
    if asked:
        left = "" if isinstance(test, s.LabelTest) else scope.text(test.left)
        # `x < 5 and missing` never holds.
        sure = left and (asked == "is missing") == (node.operator == "or")
        return scope.refuse("P201", message, value, fix=f"{left} {asked}" if sure else None)
    # After a symbol a bare word would be a name.
    word = isinstance(value, s.Name) and isinstance(test, s.Compare)
    better = scope.source.slice(Span(test.span.start, right.span.start)) + f'"{text}"' * word
    better += text * (not word)
    operator = "" if isinstance(test, s.Is) else test.operator
    negated = test.negated if isinstance(test, s.Is) else operator in ("!=", "not in")
    # `x is not a or x is not b` holds always, `x is a and x is b` never; `not` turns one of them.
    equal = isinstance(test, s.Is) or operator in (*_EQUAL, "=", "in", "not in")
    sure = not isinstance(right, s.Words) and (not equal or negated != (node.operator == "or"))
    sure = sure and test in node.operands and not (negated and value not in node.operands)
    helps = () if sure else ("a list of values is tested with  in [a, b]",)
    return scope.refuse("P201", message, value, *helps, fix=better if sure else None)


# ---- in


def _is_bare(node: s.Expr) -> TypeGuard[s.Field]:
    return isinstance(node, s.Field) and node.key is None and node.computed is None


def in_list(typer: Typer, node: s.In) -> ir.Expr:
    """Returns the condition of `x in [a, b]` and `x in 1..5`."""
    members = node.members
    spec = names.spec_of(canonical(members.path))[0] if _is_bare(members) else None
    if spec is not None and spec.keyed and isinstance(node.left, s.Text):
        there = "missing" if node.negated else "present"
        better = f"{spec.name}[{quoted_key(node.left.value)}] is {there}"
        raise typer.refuse("P101", f"`{spec.name}` is asked by its key", node, fix=better)
    left = typer.check(node.left)
    if isinstance(members, s.Range):
        return _range(typer, node, members, left)
    item = typer.want(left, _ORDERED, "`in`")
    return making.turned(node.span, _member(typer, node.span, item, members), negated=node.negated)


def _listed(typer: Typer, item: ir.Expr, members: s.Expr) -> tuple[str, ...]:
    """Returns what helps where the right side of `in` is no list; refuses what surely is none."""
    text = typer.text(members)
    if isinstance(members, s.Param):
        return (f"declare it  param {text[1:]}: list of string = [...]",)
    one = isinstance(members, s.Text) and "," not in members.value
    if item.type.kind is Kind.TEXT and (one or _bare_words(typer, members)):
        raise typer.refuse("P020", "a list stands in brackets", members, fix=f"[{text}]")
    if isinstance(members, s.Field):
        parts = () if _is_bare(members) else (f'split({text}, ",")',)
        within = (f"{text} contains {typer.text(item)}",) if isinstance(item, ir.Const) else ()
        return (f"write  {'   or   '.join((*parts, *within))}",) if parts or within else ()
    return ("a list stands in brackets: [a, b]",)


def _member(typer: Typer, span: Span, item: ir.Expr, members: s.Expr) -> ir.Expr:
    """Returns whether a value is one of a list, each a constant or an expression."""
    mixed = "`in` wants items of the same kind"
    if isinstance(members, s.Words):
        for one in members.items:
            field_as_word(typer, one, Severity.ERROR)
        values = [_word_or_expression(typer, one, item) for one in members.items]
        for value in values:
            if value.type.kind is not item.type.kind or value.type.unit != item.type.unit:
                raise typer.clash("P201", mixed, item, value)
            _in_bounds(typer, item, value.span, value)
        return _either(span, item, values)
    helps = _listed(typer, item, members)
    items = typer.want(typer.check(members), "list", "`in`", helps=helps)
    known = ir.unnamed(items)
    listed = known.value if isinstance(known, ir.Const) else None
    if not item.type.is_number or not isinstance(listed, tuple):
        if items.type.element is not item.type.kind or item.type.is_number:
            raise typer.clash("P201", mixed, item, items)
        return making.member(span, item, items)
    kind = making.item_type(items)
    if kind != item.type and kind.unit not in (PLAIN, None):
        raise typer.clash("P203", mixed, item, items, f"the items are in {kind.unit}")
    if kind.unit == PLAIN or kind == TEXT:
        texts = (s.Text(items.span, str(one)) for one in listed)
        return _either(span, item, [read_word(typer, text, item) for text in texts])
    return _either(
        span, item, [making.constant(items.span, float(one), item.type) for one in listed]
    )


def _either(span: Span, item: ir.Expr, values: list[ir.Expr]) -> ir.Expr:
    """Returns whether an item equals one of the values; constants become one list."""
    # What is missing equals nothing, so it need not be in the list.
    fixed = tuple(
        one.value for one in values if isinstance(one, ir.Const) and not is_missing(one.value)
    )
    parts: list[ir.Expr] = []
    if fixed or not values:
        kind = TEXT if item.type.kind is Kind.TEXT else item.type
        element = Kind.TEXT if kind is TEXT else Kind.NUMBER
        listed = making.made(ir.Const, span, Type(Kind.LIST, kind.unit, element), value=fixed)
        parts.append(making.member(span, item, listed))
    parts += [
        making.compare(span, item, "==", one) for one in values if not isinstance(one, ir.Const)
    ]
    return making.logical(span, "or", parts)


def _range(typer: Typer, node: s.In, members: s.Range, left: Typed) -> ir.Expr:
    _no_version(typer, left, members, word=False)
    item = typer.want(left, "number", "a range")
    unit = item.type.unit or PLAIN
    ends: list[ir.Const] = []
    for one in (members.low, members.high):
        solid = settle(typer, typer.check(one), unit, item)
        if not isinstance(solid, ir.Const) or solid.type.unit != unit:
            raise typer.clash("P203", "a range wants the unit of its value", item, solid)
        ends.append(solid)
    low, high = (float(one.value) for one in ends)  # type: ignore[arg-type]  # numbers by type
    _in_bounds(typer, item, members.span, *ends)
    # Hours and days begin anew after their last one.
    of_clock = reads_of(item).time
    wraps = low > high and of_clock and isinstance(item, ir.Read)
    signs = zip((">=", "<="), ends, strict=True)
    tests: list[ir.Expr] = [making.compare(node.span, item, sign, end) for sign, end in signs]
    if low > high and not wraps:
        low_text, high_text = members.low.text, members.high.text
        message = f"the range {low_text}..{high_text} is empty, so this is never true"
        text = typer.text(node.left)
        night = f"over midnight it is  {text} >= {low_text} or {text} <= {high_text}"
        help_ = night if of_clock else f"write  {high_text}..{low_text}"
        typer.warn("P301", message, members, help_)
        tests[1] = making.constant(node.span, value=False, kind=BOOL)  # It has been told.
    within = making.logical(node.span, "or" if wraps else "and", tests)
    return making.turned(node.span, within, negated=node.negated)


def _in_bounds(scope: Scope, item: ir.Expr, place: Span, *values: ir.Expr) -> None:
    """Warns of numbers that a field never is: `time.hour in [23, 24]`."""
    spec = FIELDS[item.field] if isinstance(item, ir.Read) else None
    fixed = [one.value for one in values if isinstance(one, ir.Const)]
    numbers = (one for one in fixed if isinstance(one, float))
    if spec is not None and not all(spec.low <= one <= spec.high for one in numbers):
        bounds = f"from {spec.low:g} to {spec.high:g}".removesuffix(" to inf")
        message = f"`{spec.name}` is a number {bounds}"
        scope.warn("P210", message, place, "what is beyond it never occurs")


# ---- texts


def text_test(typer: Typer, node: s.TextTest) -> ir.Expr:
    """Returns the condition of `x contains y` and its like."""
    field_as_text(typer, node.left)
    field_as_word(typer, node.right)
    left = typer.plain(typer.check(node.left))
    if node.operator == "contains" and left.type.kind is Kind.LIST:
        kind = making.item_type(left)
        like = making.made(ir.Read, left.span, kind, field="pod.name")
        item = _word_or_expression(typer, node.right, like)
        name, value = typer.text(left), item.value if isinstance(item, ir.Const) else ":"
        if name.endswith(".images") and not re.search("[:@]", str(value)):
            message = f"this asks for an image that is exactly `{value}`, without a tag"
            help_ = f"write  any({name} where it contains {typer.text(node.right)})"
            typer.warn("P317", message, node.right, help_)
        return making.member(node.span, item, left)
    left = typer.want(left, "text", f"`{node.operator}`")
    matches = node.operator == "matches"
    right = (_pattern if matches else names.label_value)(typer, node.right)
    if right.type != TEXT:
        raise typer.clash("P201", f"`{node.operator}` wants two texts", left, right)
    return making.made(ir.TextTest, node.span, BOOL, operator=node.operator, left=left, right=right)


def _pattern(typer: Typer, node: s.Expr) -> ir.Const:
    text = names.fixed_text(typer, node, "a pattern")
    reason = why_refused(text)
    if reason is not None:
        around = re.search(r"\(\?<?[=!]", text)
        helps = ("for what must not be there write  not ... matches",) if around else ()
        message = f"this regular expression {reason}"
        raise typer.refuse("P112", message, node, *helps)
    return making.constant(node.span, text, TEXT)


# ---- label tests


def label_test(typer: Typer, node: s.LabelTest) -> ir.Expr:
    """Returns the condition of `node.label k`, `node.label k=v`, `node.taint k` ..."""
    name = canonical(node.path)
    spec, of_its_node = names.spec_of(name)
    if spec is None:
        field = s.Field(node.path_span, node.path)
        raise names.no_field(typer, field, name, has_key=True)
    key = names.fixed_text(typer, node.key)
    operator, value = node.operator, node.value
    if value is not None:
        field_as_word(typer, value)
    inner = _KEY_TEST.fullmatch(key)
    if not operator and not isinstance(node.key, s.Word) and inner is not None:
        # A parameter or quoted text alone may hold `key`, `key=value` or `key!=value`.
        key, operator, text = inner.groups()
        value = s.Text(node.key.span, text)
    make = partial(names.make_read, typer, spec, span=node.span, of_its_node=of_its_node)
    if spec.type is BOOL:
        return _taint(typer, node, key, (operator, value), make)
    read = make(key)
    if value is None:
        return making.inverted(node.span, making.missing(node.span, read))
    negated = operator in ("!=", "not in")
    if operator in ("in", "not in"):
        return making.turned(node.span, _member(typer, node.span, read, value), negated=negated)
    right = names.label_value(typer, value)
    if operator not in ("=", "==", "!="):
        return making.compare(
            node.span, _as_number(typer, read), operator, _as_number(typer, right)
        )
    right = typer.want(right, "text", f"`{operator}`")
    if isinstance(value, s.Word) and value.value.lower() in NOTHING:
        left = f"{node.path}[{typer.text(node.key)}]"
        _word_for_nothing(typer, node, left, value, negated=negated)
    return making.turned(node.span, making.compare(node.span, read, "==", right), negated=negated)


def _as_number(typer: Typer, value: ir.Expr) -> ir.Expr:
    if isinstance(value, ir.Const) and isinstance(value.value, str):
        number = parse_number(value.value)
        if is_missing(number):
            message = f"`{value.value}` is not a number"
            help_ = (
                f'texts are tested with `=`, versions so:  version(...) > version("{value.value}")'
            )
            raise typer.refuse("P201", message, value, help_)
        return making.constant(value.span, number, NUMBER)
    value = typer.want(value, "number or text", "this test")
    return value if value.type.is_number else making.func(value.span, NUMBER, "number", (value,))


def _taint(
    typer: Typer,
    node: s.LabelTest,
    key: str,
    test: tuple[str, s.Expr | None],
    make: Callable[[str], ir.Expr],
) -> ir.Expr:
    operator, value = test
    if value is None:
        return make(key)
    listed = operator in ("in", "not in") and isinstance(value, s.Words)
    if not listed and operator not in ("=", "==", "!="):
        message = f"a taint cannot be tested with `{operator}`"
        help_ = "write  node.taint KEY   or   node.taint KEY=VALUE"
        raise typer.refuse("P201", message, node, help_)
    values = value.items if isinstance(value, s.Words) else (value,)
    for one in values if listed else ():
        field_as_word(typer, one, Severity.ERROR)
    texts = [names.fixed_text(typer, one, "the value of a taint") for one in values]
    reads = [make(f"{key}={text}") for text in texts]
    test_ = making.logical(node.span, "or", reads)
    return making.turned(node.span, test_, negated=operator in ("!=", "not in"))
