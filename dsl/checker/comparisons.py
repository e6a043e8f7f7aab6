"""Comparisons and tests: `==`, `is`, `in`, `contains`, `like`, `matches`, `is missing`."""

from typing import Final

from dsl import ir
from dsl import syntax as s
from dsl.checker.alternatives import listed_words, membership
from dsl.checker.convert import DATE, beside, converted, help_for, sort_of
from dsl.checker.fields import either, members_of, no_fields, word_for_nothing
from dsl.checker.literals import read_word, settle
from dsl.checker.making import compare, constant, inverted, logical, member, missing, turned
from dsl.checker.scope import Flex, Refused, Scope, Typed, closest, describe
from dsl.checker.typer import Typer
from dsl.diagnostics import Fix, Label, Severity
from dsl.patterns import why_refused
from dsl.schema import FIELDS
from dsl.source import Span
from dsl.spelling import ABSENT, DAYS, NOTHING, THERE, days
from dsl.types import BOOL, PLAIN, TEXT, Kind, Level, number_of

#: Days as others count them, from Sunday on, which is both 0 and 7.
_DAY_NUMBERS: Final = {str(i): one for i, one in enumerate((DAYS[-1], *DAYS))}
_WRAPPING: Final = ("time.hour", "time.minute", "time.day", "time.month")
_SIGNS: Final = {"-": " minus ", "/": " divided by "}
#: A flag beside a number: the condition itself, or its opposite.
_FLAGS: Final = {"==0": "not {}", "!=0": "{}", "==1": "{}", "!=1": "not {}"}


def check_test(typer: Typer, node: s.Expr) -> ir.Expr:
    """Returns the condition of a comparison or test."""
    match node:
        case s.Compare():
            return _compare(typer, node)
        case s.Is():
            return _is(typer, node)
        case s.IsMissing():
            return _missing(typer, node)
        case s.In():
            return _in(typer, node)
        case s.TextTest():
            return _text_test(typer, node)
        case _:
            raise AssertionError(f"no expression stands here: {node}")


# ---- comparisons


def _compare(typer: Typer, node: s.Compare) -> ir.Expr:
    _bare_word(typer, node)
    quoted_field(typer.scope, node.left)
    sides = typer.each((node.left, node.right))
    for typed, other, written in zip(sides, sides[::-1], (node.right, node.left), strict=True):
        if isinstance(other, Flex | ir.Const):
            _no_version(typer.scope, typed, written, word=False)
    left, right = _same_type(typer, node, *sides)
    kind, negated = left.type.kind, node.operator == "!="
    ordered = node.operator not in ("==", "!=")
    if kind in (Kind.LIST, Kind.PODS) or (kind in (Kind.BOOL, Kind.TEXT) and ordered):
        message = f"`{node.operator}` does not compare {describe(left)}"
        number = converted(typer.scope, left, "number") if kind is Kind.TEXT else ""
        helps = (f"compare numbers:  {number} {node.operator} ...",) if number else ()
        raise typer.scope.refuse("P201", message, left.span, *helps)
    for one, other in ((left, right), (right, left)):
        if isinstance(other, ir.Const):
            closed_set(typer.scope, one, other, negated=negated)
    test = compare(node.span, left, "==" if negated else node.operator, right)
    return turned(node.span, test, negated=negated)


def _same_type(typer: Typer, node: s.Compare, left: Typed, right: Typed) -> tuple[ir.Expr, ir.Expr]:
    if isinstance(left, Flex) and isinstance(right, Flex):
        return typer.plain(left), typer.plain(right)
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Flex) and not isinstance(other, Flex) and other.type.is_number:
            solid = settle(typer.scope, one, other.type.unit or PLAIN, other)
            return (solid, other) if one is left else (other, solid)
    if isinstance(left, Flex) or isinstance(right, Flex) or left.type.kind is not right.type.kind:
        raise _differ(typer, node, left, right)
    if left.type.is_number and left.type.unit != right.type.unit:
        raise _differ(typer, node, left, right, "P203")
    return left, right


def _differ(
    typer: Typer, node: s.Compare | s.Is, left: Typed, right: Typed, code: str = "P201"
) -> Refused:
    """Refuses two values of different kinds or units."""
    for one, other in ((left, right), (right, left)):
        day = isinstance(one, Flex) and DATE.fullmatch(one.text) is not None
        if day and not isinstance(other, Flex) and other.type.kind is Kind.TIME:
            moment = f'time("{typer.scope.text(one)}T00:00:00Z")'
            raise typer.scope.refuse("P201", "a day is written as a text", one.span, fix=moment)
    help_, fix = _together(typer, node, left, right)
    return typer.scope.refuse(
        code,
        f"cannot compare {describe(left)} with {describe(right)}",
        left.span,
        *([help_] if help_ else []),
        label=describe(left),
        labels=(Label(right.span, describe(right)),),
        fix=fix,
    )


def _together(
    typer: Typer, node: s.Compare | s.Is, left: Typed, right: Typed
) -> tuple[str, Fix | None]:
    """Returns how one of two values goes with the other; without a fix where that is not sure."""
    scope, operator = typer.scope, node.operator if isinstance(node, s.Compare) else "=="
    pairs = ((left, right), (right, left))
    for one, other in pairs:
        better = beside(scope, one, other)
        if better:
            return "", Fix(one.span, better)
    for one, other in pairs:
        if isinstance(one, Flex) or (isinstance(one, ir.Const) and one.type == BOOL):
            continue
        if isinstance(other, ir.Const) and other.type == BOOL and one.type.kind is Kind.TEXT:
            condition = isinstance(one, ir.Read) and one.field == "node.condition"
            word = str(other.value) if condition else str(other.value).lower()
            return "", Fix(other.span, f'"{word}"')
        if isinstance(other, Flex) and one.type.kind is Kind.BOOL:
            flag = _FLAGS.get(f"{operator}{scope.text(other)}", "").format(scope.text(one))
            if flag:
                return "", Fix(node.span, flag)
        want = "number" if isinstance(other, Flex) else sort_of(other.type)
        # What has a unit keeps it: the plain number gets one.
        hint = converted(scope, one, want) if want != "number" or not one.type.is_number else ""
        if hint and one.type.kind is not Kind.TEXT:
            return f"write  {hint}", None
    return "", None


def _no_version(scope: Scope, typed: Typed, other: s.Expr | s.Range, *, word: bool) -> None:
    """Refuses `version(node.kernel) >= 5.10`: 5.10 is no version, and would hold for all."""
    while isinstance(typed, ir.Named | ir.Coalesce):
        typed = typed.body if isinstance(typed, ir.Named) else typed.operands[0]
    if not isinstance(typed, ir.Func) or typed.name != "version":
        return
    written = scope.text(other)
    if isinstance(other, s.Number | s.Text | s.Word | s.Percent | s.Param):
        quoted = written[:1] in "'\"$"
        made = f"version({written})" if quoted else f'version("{written}")'
        fix: str | None = f"({made})" if word else made
        helps: tuple[str, ...] = ()
    else:
        # What a let or a range holds is a number, and so is its name.
        fix, helps = None, ('write for example  >= version("5.10")',)
    message = f"a version is compared with a version, not with `{written}`"
    raise scope.refuse("P201", message, other.span, *helps, fix=fix)


def quoted_field(scope: Scope, node: s.Expr) -> None:
    """Warns of `"pod.name" contains nginx`, which tests the text and not the field."""
    if isinstance(node, s.Text) and node.value in FIELDS:
        message = f"this is the text `{node.value}`, not the field of that name"
        scope.report("P317", message, node.span, fix=node.value, severity=Severity.WARNING)


def _bare_word(typer: Typer, node: s.Compare) -> None:
    """Refuses `x == word` and `x == kube-system`: after a symbol stands an expression."""
    scope = typer.scope
    words: list[s.Expr] = [node.right]
    sign = ""
    if isinstance(node.right, s.Chain) and set(node.right.operators) in ({"-"}, {"/"}):
        words, sign = list(node.right.operands), _SIGNS[node.right.operators[0]]
    text = scope.source.slice(node.right.span)
    if " " in text or not all(isinstance(one, s.Name | s.Number) for one in words):
        return
    names = [one.name for one in words if isinstance(one, s.Name)]
    known = {*scope.names(), *scope.broken, "now", *(["it"] if typer.item is not None else [])}
    if not names or any(one in known for one in names):
        return
    if len(words) == 1 and closest(names[0], scope.names()) is not None:
        return
    left = typer.check(node.left)
    of_text = not isinstance(left, Flex) and left.type.kind is Kind.TEXT
    if sign == _SIGNS["/"] and not of_text:
        return
    if of_text and node.operator not in ("==", "!="):
        message = f"`{node.operator}` does not compare text"
        raise scope.refuse("P201", message, node.left.span, *help_for(scope, left, "number"))
    _meant_by_word(scope, node, left, text)
    reads = "as a name" if len(words) == 1 else f"as {sign.join(map(scope.text, words))}"
    message = f"`{node.operator}` is followed by an expression, and `{text}` reads {reads}"
    if not of_text:
        help_ = f"`{scope.text(node.left)}` is {describe(left)}, so it is compared with one"
        raise scope.refuse("P011", message, node.right.span, help_)
    written, word = scope.text(node.left), "is not" if node.operator == "!=" else "is"
    forms = f'{written} {word} {text}   or   {written} {node.operator} "{text}"'
    raise scope.refuse("P011", message, node.right.span, f"write  {forms}", fix=f'"{text}"')


def _meant_by_word(scope: Scope, node: s.Compare, left: Typed, text: str) -> None:
    """Refuses `== null`, `== True` and the name of a parameter."""
    low, equal = text.lower(), node.operator in ("==", "!=")
    message = f"`{node.operator}` is followed by an expression, and `{text}` is none"
    if text in scope.params:
        raise scope.refuse("P011", message, node.right.span, fix=f"${text}")
    there = low in THERE | {"present"}
    if equal and (there or low in NOTHING | ABSENT | {"missing"}):
        better = "is present" if there == (node.operator == "==") else "is missing"
        what = f"there is no value `{text}`: what is missing equals nothing"
        fix = Fix(Span(node.operator_span.start, node.right.span.end), better)
        help_ = f"write  {scope.text(node.left)} {better}"
        raise scope.refuse("P011", what, node.right.span, help_, fix=fix)
    if low in ("true", "false"):
        kind = Kind.NUMBER if isinstance(left, Flex) else left.type.kind
        if kind is Kind.NUMBER:
            what = f"cannot compare {describe(left)} with a condition"
            raise scope.refuse("P201", what, node.left.span, label=describe(left))
        condition = isinstance(left, ir.Read) and left.field == "node.condition"
        word = low.capitalize() if condition else low
        fix_text = f'"{word}"' if kind is Kind.TEXT else low
        raise scope.refuse("P011", message, node.right.span, fix=fix_text)


# ---- is


def word_or_expression(
    typer: Typer, node: s.Expr, left: Typed, *, negated: bool = False
) -> ir.Expr:
    """Returns the right side of a word operator, a word read in the type of the left."""
    if isinstance(node, s.Word | s.Text | s.Percent):
        _no_version(typer.scope, left, node, word=True)
    if isinstance(node, s.Word | s.Percent):
        if isinstance(node, s.Word):
            _looks_like_field(typer.scope, node)
        word = read_word(typer.scope, node, left)
        closed_set(typer.scope, left, word, negated=negated)
        return word
    typed = typer.check(node)
    if isinstance(typed, Flex):
        unit = PLAIN if isinstance(left, Flex) else left.type.unit or PLAIN
        if isinstance(node, s.Param) and not isinstance(left, Flex):
            word = read_word(typer.scope, s.Text(node.span, typed.text), left)
            closed_set(typer.scope, left, word)  # A number means no several days.
            return word
        return settle(typer.scope, typed, unit, left)
    if isinstance(typed, ir.Const) and isinstance(typed.value, str):
        word = read_word(typer.scope, s.Text(node.span, typed.value), left)
        closed_set(typer.scope, left, word, negated=negated)
        return word
    return typed


def _looks_like_field(scope: Scope, node: s.Word) -> None:
    if node.value in FIELDS and not FIELDS[node.value].keyed:
        message = f"`{node.value}` is a word here, not the field of that name"
        help_ = f'for the field write  ({node.value})   and for the word  "{node.value}"'
        scope.warn("P317", message, node.span, help_)


def closed_set(scope: Scope, left: Typed, word: ir.Const, *, negated: bool = False) -> None:
    """Refuses a word that a field with a closed set of words never has."""
    if not isinstance(left, ir.Read) or not FIELDS[left.field].words:
        return
    words, text = FIELDS[left.field].words, str(word.value)
    if text in words:
        return
    near = closest(text, words)
    if left.field == "time.weekday":
        near = _day(text) or near
        several = days(text)
        if several:
            message = f"`{left.field}` is one day, and `{text}` is several"
            help_ = f"write  time.weekday {'not in' if negated else 'in'} {several}"
            raise scope.refuse("P210", message, word.span, help_)
    sign = scope.source.slice(word.span)[:1]
    quote = sign if sign in ('"', "'") else ""
    raise scope.refuse(
        "P210",
        f"`{left.field}` is never `{text}`",
        word.span,
        *([f"did you mean `{near}`?"] if near else []),
        f"it is one of {', '.join(words)}",
        fix=Fix(word.span, f"{quote}{near}{quote}") if near else None,
    )


def _day(text: str) -> str:
    """Returns the day that `monday` and `1` mean; "" for other words."""
    low = text.lower()
    full = next((one for one in DAYS if low.startswith(one) and low.endswith("day")), "")
    return _DAY_NUMBERS.get(text, full)


def _is(typer: Typer, node: s.Is) -> ir.Expr:
    listed_words(typer.scope, node)
    quoted_field(typer.scope, node.left)
    left = typer.check(node.left)
    if isinstance(node.right, s.Word):
        text = typer.scope.text(node.left)
        word_for_nothing(typer.scope, node.span, text, node.right, negated=node.negated)
    right = word_or_expression(typer, node.right, left, negated=node.negated)
    solid = typer.plain(left)
    if solid.type.kind in (Kind.LIST, Kind.PODS):
        message = f"`is` does not test {describe(solid)}"
        raise typer.scope.refuse("P201", message, node.left.span)
    if solid.type.kind is not right.type.kind:
        raise _differ(typer, node, solid, right)
    if solid.type.unit != right.type.unit:
        raise typer.mixed("P203", "`is` wants equal units", solid, right)
    return turned(node.span, compare(node.span, solid, "==", right), negated=node.negated)


def _missing(typer: Typer, node: s.IsMissing) -> ir.Expr:
    operand = typer.plain(typer.check(node.operand))
    if operand.type.kind in (Kind.BOOL, Kind.LIST):
        text = typer.scope.text(node.operand)
        if operand.type.kind is Kind.BOOL:
            better = text if node.negated else f"not {text}"
        else:
            better = f"len({text}) {'>' if node.negated else '=='} 0"
        message = f"{describe(operand)} is never missing"
        raise typer.scope.refuse("P201", message, node.operand.span, fix=Fix(node.span, better))
    return turned(node.span, missing(node.span, operand), negated=node.negated)


# ---- in


def _in(typer: Typer, node: s.In) -> ir.Expr:
    membership(typer.scope, node)
    left = typer.check(node.left)
    if isinstance(node.members, s.Range):
        return _range(typer, node, node.members, left)
    item = typer.plain(left)
    if item.type.kind in (Kind.BOOL, Kind.LIST):
        message = f"`in` does not test {describe(item)}"
        text, test = typer.scope.text(node), typer.scope.text(node.left)
        each = f"any({test} where it {text.removeprefix(test).strip()})"
        fix = Fix(node.span, each) if item.type.kind is Kind.LIST else None
        raise typer.scope.refuse("P201", message, node.left.span, fix=fix)
    if isinstance(node.members, s.Words):
        no_fields(typer.scope, node.members)
        values = [word_or_expression(typer, one, left) for one in node.members.items]
        for one in values:
            if one.type.kind is not item.type.kind or one.type.unit != item.type.unit:
                raise typer.mixed("P201", "`in` wants items of the same kind", item, one)
        test_: ir.Expr = either(node.span, item, values)
    elif item.type.is_number:
        test_ = _in_numbers(typer, node, item)
    else:
        test_ = members_of(typer, node, item, node.members)
    return turned(node.span, test_, negated=node.negated)


def _in_numbers(typer: Typer, node: s.In, item: ir.Expr) -> ir.Expr:
    items = typer.check(node.members)
    if isinstance(items, ir.Named):
        items = items.body
    if not isinstance(items, ir.Const) or items.type.element is None:
        message = f"`in` wants a list, and this is {describe(items)}"
        raise typer.scope.refuse("P201", message, node.members.span)
    assert isinstance(items.value, tuple)
    unit = items.type.unit or PLAIN
    if unit not in (PLAIN, item.type.unit):
        message = f"cannot look for {describe(item)} in a list of {unit}"
        labels = (Label(node.members.span, f"a list of {unit}"),)
        raise typer.scope.refuse(
            "P203", message, node.left.span, label=describe(item), labels=labels
        )
    values: list[ir.Expr] = [
        read_word(typer.scope, s.Text(items.span, str(one)), item)
        if unit.is_plain
        else constant(items.span, one, item.type)
        for one in items.value
    ]
    return either(node.span, item, values)


def _range(typer: Typer, node: s.In, members: s.Range, left: Typed) -> ir.Expr:
    _no_version(typer.scope, left, members, word=False)
    item = typer.plain(left)
    if not item.type.is_number:
        message = f"a range holds numbers, and this is {describe(item)}"
        raise typer.scope.refuse("P201", message, node.left.span)
    unit = item.type.unit or PLAIN
    ends = []
    for one in (members.low, members.high):
        solid = settle(typer.scope, typer.check(one), unit, item)
        if not isinstance(solid, ir.Const) or solid.type.unit != unit:
            raise typer.mixed("P203", "a range wants the unit of its value", item, solid)
        ends.append(float(solid.value))  # type: ignore[arg-type]  # a number by its type
    low, high = ends
    if low > high and isinstance(item, ir.Read) and item.field in _WRAPPING:
        outside = inverted(node.span, _between(node, item, high, low))
        edges: list[ir.Expr] = [constant(members.span, one, item.type) for one in ends]
        both = logical(node.span, "or", (outside, either(node.span, item, edges)))
        return turned(node.span, both, negated=node.negated)
    if low > high:
        low_text, high_text = members.low.text, members.high.text
        message = f"the range {low_text}..{high_text} is empty, so this is never true"
        typer.scope.warn("P301", message, members.span, f"write  {high_text}..{low_text}")
    return turned(node.span, _between(node, item, low, high), negated=node.negated)


def _between(node: s.Node, item: ir.Expr, low: float, high: float) -> ir.Expr:
    return ir.Between(span=node.span, type=BOOL, level=item.level, item=item, low=low, high=high)


# ---- texts


def _text_test(typer: Typer, node: s.TextTest) -> ir.Expr:
    listed_words(typer.scope, node)
    quoted_field(typer.scope, node.left)
    left = typer.plain(typer.check(node.left))
    if node.operator == "contains" and left.type.kind is Kind.LIST:
        return member(node.span, word_or_expression(typer, node.right, ir_text(left)), left)
    if left.type.kind is not Kind.TEXT:
        message = f"`{node.operator}` tests texts, and this is {describe(left)}"
        raise typer.scope.refuse("P201", message, node.left.span, label=describe(left))
    if node.operator == "matches":
        right: ir.Expr = _pattern(typer, node)
    elif isinstance(node.right, s.Word | s.Text | s.Percent):
        if isinstance(node.right, s.Word):
            _looks_like_field(typer.scope, node.right)
        text = node.right.text if isinstance(node.right, s.Percent) else node.right.value
        right = constant(node.right.span, text, TEXT)
    else:
        typed = typer.check(node.right)
        if isinstance(typed, Flex) and isinstance(node.right, s.Param):
            typed = constant(node.right.span, typed.text, TEXT)
        right = typer.plain(typed)
        if right.type.kind is not Kind.TEXT:
            raise typer.mixed("P201", f"`{node.operator}` wants two texts", left, right)
    level = max(left.level, right.level)
    return ir.TextTest(
        span=node.span, type=BOOL, level=level, operator=node.operator, left=left, right=right
    )


def ir_text(node: ir.Expr) -> ir.Expr:
    """Returns a stand-in with the type of a list's items."""
    kind = TEXT if node.type.element is Kind.TEXT else number_of(node.type.unit or PLAIN)
    return ir.Read(span=node.span, type=kind, level=Level.CONST, field="pod.name")


def _pattern(typer: Typer, node: s.TextTest) -> ir.Const:
    if isinstance(node.right, s.Param):
        value = typer.param(node.right)
        text = value.text if isinstance(value, Flex) else None
        if isinstance(value, ir.Const) and isinstance(value.value, str):
            text = value.value
    else:
        assert isinstance(node.right, s.Word | s.Text)
        text = node.right.value
    if text is None:
        raise typer.scope.refuse("P201", "a pattern is a text", node.right.span)
    reason = why_refused(text)
    if reason is not None:
        message = f"this regular expression {reason}"
        raise typer.scope.refuse("P112", message, node.right.span, *_advice(reason, text))
    return constant(node.right.span, text, TEXT)


def _advice(reason: str, pattern: str) -> tuple[str, ...]:
    """Returns what to write instead of a pattern that is refused."""
    if "(?i)" in pattern:
        return (f"write  lower(...) matches '{pattern.replace('(?i)', '').lower()}'",)
    if reason.startswith("uses"):
        return ("for what must not be there write  not ... matches",)
    return ()
