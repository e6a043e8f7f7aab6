"""Comparisons and tests: `==`, `is`, `in`, `contains`, `like`, `matches`, `is missing`."""

import re
from typing import TYPE_CHECKING, Final

from dsl import ir
from dsl import syntax as s
from dsl.checker import hints, meant, never, oddtexts
from dsl.checker.fields import either, members_of, no_fields
from dsl.checker.literals import constant, read_word, settle
from dsl.checker.mixtures import kinds_differ, unit_hints
from dsl.checker.scales import many_times, strange_scale
from dsl.checker.scope import Flex, Refused, Scope, Typed, closest, describe
from dsl.checker.texts import beside_number, has_no_order, version_beside_other, version_beside_word
from dsl.diagnostics import Fix, Label, Severity
from dsl.patterns import why_refused
from dsl.schema import FIELDS
from dsl.source import Span
from dsl.spelling import DAYS, days
from dsl.types import BOOL, PLAIN, TEXT, Kind, Level, number_of

if TYPE_CHECKING:
    from dsl.checker.expressions import Typer

#: What `missing` and `present` are written as by mistake, and words that only look like it.
_PRESENCE: Final = ("missing", "present")
_OTHER_WORDS: Final = (
    "mission", "mixing", "messing", "percent", "prevent", "preset", "presets", "president",
    "presented", "presenter",
)  # fmt: skip
_NEAR_NOTHING: Final = ("nul", "nulll", "nill", "undef", "undefind", "undefned")
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
#: Days as others count them, from Sunday on, which is both 0 and 7.
_DAY_NUMBERS: Final = {str(i): one for i, one in enumerate((DAYS[-1], *DAYS))}
_WRAPPING: Final = ("time.hour", "time.minute", "time.day", "time.month")
_SIGNS: Final = {"-": " minus ", "/": " divided by "}


def check_test(typer: "Typer", node: s.Expr) -> ir.Expr:
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


def _negate(node: s.Node, test: ir.Expr, *, negated: bool) -> ir.Expr:
    if not negated:
        return test
    return ir.Not(span=node.span, type=BOOL, level=test.level, operand=test)


# ---- comparisons


def _compare(typer: "Typer", node: s.Compare) -> ir.Expr:
    _bare_word(typer, node)
    hints.quoted_field(typer.scope, node.left)
    left, right = typer.each((node.left, node.right))
    version_beside_other(typer.scope, node.operator, left, right)
    pair = _same_type(typer, node, left, right)
    kind = pair[0].type.kind
    if kind in (Kind.LIST, Kind.PODS) or (
        kind in (Kind.BOOL, Kind.TEXT) and node.operator not in ("==", "!=")
    ):
        raise typer.scope.refuse(
            "P201",
            f"`{node.operator}` does not compare {describe(pair[0])}",
            pair[0].span,
            *(
                [has_no_order(typer.scope, pair[0], node.operator, pair[1])]
                if kind is Kind.TEXT
                else []
            ),
        )
    _closed_set_compare(typer.scope, *pair, negated=node.operator == "!=")
    percent = next(
        (one.span for one in (left, right) if isinstance(one, Flex) and one.sort == "percent"), None
    )
    strange_scale(typer.scope, pair[0], pair[1], percent)
    many_times(typer.scope, *pair)
    never.moments_to_come(typer.scope, node, *pair)
    if node.operator in ("==", "!="):
        negated = node.operator == "!="
        oddtexts.strange_text(typer.scope, pair[0], "is", pair[1], negated=negated)
    level = max(pair[0].level, pair[1].level)
    operator = "==" if node.operator == "!=" else node.operator
    test = ir.Compare(
        span=node.span, type=BOOL, level=level, operator=operator, left=pair[0], right=pair[1]
    )
    return _negate(node, test, negated=node.operator == "!=")


def _same_type(
    typer: "Typer", node: s.Compare, left: Typed, right: Typed
) -> tuple[ir.Expr, ir.Expr]:
    if isinstance(left, Flex) and isinstance(right, Flex):
        return typer.plain(left), typer.plain(right)
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Flex) and not isinstance(other, Flex) and other.type.is_number:
            solid = settle(typer.scope, one, other.type.unit or PLAIN, other)
            return (solid, other) if one is left else (other, solid)
    if isinstance(left, Flex) or isinstance(right, Flex):
        raise _with_constant(typer, node, left, right)
    if left.type.kind is not right.type.kind:
        raise kinds_differ(typer.scope, node, left, right)
    if left.type.is_number and left.type.unit != right.type.unit:
        raise typer.scope.refuse(
            "P203",
            f"cannot compare {describe(left)} with {describe(right)}",
            left.span,
            *unit_hints(typer.scope, node, left, right),
            label=describe(left),
            labels=(Label(right.span, describe(right)),),
        )
    return left, right


def _with_constant(typer: "Typer", node: s.Compare, left: Typed, right: Typed) -> Refused:
    """Refuses a constant number next to a text, a time or a condition."""
    scope = typer.scope
    number, other = (left, right) if isinstance(left, Flex) else (right, left)
    assert isinstance(number, Flex)
    assert not isinstance(other, Flex)
    text = scope.text(other)
    if other.type.kind is Kind.TIME:
        written = scope.text(number)
        if _DATE.fullmatch(written):
            constant_span = number.span
            moment = f'time("{written}T00:00:00Z")'
            return scope.refuse(
                "P201", "a day is written as a text", constant_span, f"write  {moment}", fix=moment
            )
    forms = {
        Kind.TIME: f"now - {text}",
        Kind.BOOL: f"(if {text} then 1 else 0)",
        Kind.LIST: f"len({text})",
    }
    better = forms.get(other.type.kind)
    if isinstance(other, ir.Read) and other.field == "now":
        hint = "an age is that of something:  now - node.created"
        kinds = describe(left), describe(right)
        raise scope.refuse("P201", f"cannot compare {kinds[0]} with {kinds[1]}", left.span, hint)
    place = other.span
    flag = {"==0": f"not {text}", "!=0": text, "==1": text, "!=1": f"not {text}"}.get(
        f"{node.operator}{scope.text(number)}"
    )
    if other.type.kind is Kind.BOOL and flag is not None:
        better, place = flag, node.span
    elif other.type.kind is Kind.BOOL and typer.in_pods:
        count = f"count(... where {text}) {node.operator} {scope.text(number)}"
        raise scope.refuse(
            "P201",
            f"cannot compare {describe(left)} with {describe(right)}",
            left.span,
            f"for the number of such pods compare the whole count:  {count}",
            label=describe(left),
            labels=(Label(right.span, describe(right)),),
        )
    elif other.type.kind is Kind.BOOL and node.operator in (">", ">=", "=="):
        better, place = text, node.span
    hint = f"write  {better}" if better is not None else ""
    if other.type.kind is Kind.TEXT:
        hint, better = beside_number(scope, other, number, node.operator)
        place = node.span if better.startswith((f"{text} ", "version(")) else place
    return scope.refuse(
        "P201",
        f"cannot compare {describe(left)} with {describe(right)}",
        left.span,
        *([hint] if hint else []),
        label=describe(left),
        labels=(Label(right.span, describe(right)),),
        fix=Fix(place, better) if better else None,
    )


def _bare_word(typer: "Typer", node: s.Compare) -> None:
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
    known = {*scope.names(), *scope.broken, "now"}
    if typer.item is not None:
        known.add("it")
    if not names or any(one in known for one in names):
        return
    if len(words) == 1 and closest(names[0], scope.names()) is not None:
        return
    left = typer.check(node.left)
    if sign == _SIGNS["/"] and (isinstance(left, Flex) or left.type.kind is not Kind.TEXT):
        return
    told = hints.bare_word(scope, node, left)
    if told is not None:
        raise told
    reads = "as a name" if len(words) == 1 else f"as {sign.join(map(scope.text, words))}"
    written = scope.text(node.left)
    word = "is not" if node.operator == "!=" else "is"
    forms = f'{written} {node.operator} "{text}"'
    if node.operator in ("==", "!="):
        forms = f"{written} {word} {text}   or   {forms}"
    raise scope.refuse(
        "P011",
        f"`{node.operator}` is followed by an expression, and `{text}` reads {reads}",
        node.right.span,
        f"write  {forms}",
        fix=f'"{text}"',
    )


# ---- is


def word_or_expression(
    typer: "Typer", node: s.Expr, left: Typed, *, negated: bool = False
) -> ir.Expr:
    """Returns the right side of a word operator, a word read in the type of the left."""
    version_beside_word(typer.scope, left, node)
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
    never.parameter_as_word(scope, node)
    if node.value in FIELDS and not FIELDS[node.value].keyed:
        scope.warn(
            "P317",
            f"`{node.value}` is a word here, not the field of that name",
            node.span,
            f'for the field write  ({node.value})   and for the word  "{node.value}"',
        )


def _closed_set_compare(scope: Scope, left: ir.Expr, right: ir.Expr, *, negated: bool) -> None:
    if isinstance(right, ir.Const):
        closed_set(scope, left, right, negated=negated)
    elif isinstance(left, ir.Const):
        closed_set(scope, right, left, negated=negated)


def closed_set(scope: Scope, left: Typed, word: ir.Const, *, negated: bool = False) -> None:
    """Refuses a word that a field with a closed set of words never has."""
    if not isinstance(left, ir.Read) or not FIELDS[left.field].words:
        return
    words = FIELDS[left.field].words
    if word.value not in words:
        near = closest(str(word.value), words)
        if left.field == "time.weekday":
            near = _day(str(word.value)) or near
        several = days(str(word.value)) if left.field == "time.weekday" else ""
        low = str(word.value).lower().rstrip("s")
        if left.field == "time.weekday" and low in ("weekend", "weekday", "workday"):
            several = "[sat, sun]" if low == "weekend" else days("mon-fri")
        if several:
            raise scope.refuse(
                "P210",
                f"`{left.field}` is one day, and `{word.value}` is several",
                word.span,
                f"write  time.weekday {'not in' if negated else 'in'} {several}",
            )
        raise scope.refuse(
            "P210",
            f"`{left.field}` is never `{word.value}`",
            word.span,
            *([f"did you mean `{near}`?"] if near else []),
            f"it is one of {', '.join(words)}",
            fix=Fix(word.span, _as_written(scope, word.span, near)) if near else None,
        )


def _day(text: str) -> str:
    """Returns the day that `monday` and `1` mean; "" for other words."""
    low = text.lower()
    full = next((one for one in DAYS if low.startswith(one) and low.endswith("day")), "")
    return _DAY_NUMBERS.get(text, full)


def _as_written(scope: Scope, span: Span, word: str) -> str:
    """Returns a word, in quotes where the one it replaces is."""
    sign = scope.source.slice(span)[:1]
    return f"{sign}{word}{sign}" if sign in ('"', "'") else word


def _is(typer: "Typer", node: s.Is) -> ir.Expr:
    hints.listed_words(typer.scope, node)
    left = typer.check(node.left)
    if isinstance(node.right, s.Word):
        never.item_as_word(typer, node)
        oddtexts.word_for_nothing(typer.scope, node, node.right)
        _looks_like_presence(typer.scope, node, node.right)
    right = word_or_expression(typer, node.right, left, negated=node.negated)
    solid = typer.plain(left)
    if solid.type.kind in (Kind.LIST, Kind.PODS):
        raise typer.scope.refuse("P201", f"`is` does not test {describe(solid)}", node.left.span)
    if solid.type.kind is not right.type.kind:
        raise kinds_differ(typer.scope, node, solid, right)
    if solid.type.unit != right.type.unit:
        raise typer.mixed("P203", "`is` wants equal units", solid, right)
    oddtexts.strange_text(typer.scope, solid, "is", right, negated=node.negated)
    level = max(solid.level, right.level)
    test = ir.Compare(
        span=node.span, type=BOOL, level=level, operator="==", left=solid, right=right
    )
    return _negate(node, test, negated=node.negated)


def _looks_like_presence(scope: Scope, node: s.Is, word: s.Word) -> None:
    """Warns of `is null`, and of `is mising`, which is a word like any other."""
    low = word.value.lower()
    meant = ""
    if low in _NEAR_NOTHING:
        meant = "missing"
    elif low not in _OTHER_WORDS:
        near = closest(low, _PRESENCE)
        meant = near if near is not None and near[0] == low[0] else ""
    if not meant:
        return
    if node.negated:
        meant = "present" if meant == "missing" else "missing"
    scope.report(
        "P317",
        f"`{word.value}` is an ordinary word here",
        word.span,
        f"write  {scope.text(node.left)} is {meant}",
        fix=Fix(Span(node.left.span.end, word.span.end), f" is {meant}"),
        severity=Severity.WARNING,
    )


def _missing(typer: "Typer", node: s.IsMissing) -> ir.Expr:
    operand = typer.plain(typer.check(node.operand))
    if operand.type.kind in (Kind.BOOL, Kind.LIST):
        text = typer.scope.text(node.operand)
        better = text if operand.type.kind is Kind.BOOL else f"len({text}) > 0"
        if not node.negated:
            better = f"not {text}" if operand.type.kind is Kind.BOOL else f"len({text}) == 0"
        raise typer.scope.refuse(
            "P201",
            f"{describe(operand)} is never missing",
            node.operand.span,
            f"write  {better}",
            fix=Fix(node.span, better),
        )
    test = ir.Missing(span=node.span, type=BOOL, level=operand.level, operand=operand)
    return _negate(node, test, negated=node.negated)


# ---- in


def _in(typer: "Typer", node: s.In) -> ir.Expr:
    hints.membership(typer, node)
    left = typer.check(node.left)
    if isinstance(node.members, s.Range):
        return _range(typer, node, node.members, left)
    item = typer.plain(left)
    if item.type.kind in (Kind.BOOL, Kind.LIST):
        test = typer.scope.source.slice(Span(node.left.span.end, node.span.end)).strip()
        each = f"any({typer.scope.text(node.left)} where it {test})"
        raise typer.scope.refuse(
            "P201",
            f"`in` does not test {describe(item)}",
            node.left.span,
            *([f"write  {each}"] if item.type.kind is Kind.LIST else []),
            fix=Fix(node.span, each) if item.type.kind is Kind.LIST else None,
        )
    if isinstance(node.members, s.Words):
        never.items_as_words(typer, node)
        no_fields(typer.scope, node.members)
        values = [word_or_expression(typer, one, left) for one in node.members.items]
        for one in values:
            if one.type.kind is not item.type.kind or one.type.unit != item.type.unit:
                raise typer.mixed("P201", "`in` wants items of the same kind", item, one)
            oddtexts.strange_text(typer.scope, item, "is", one, negated=node.negated)
        return _negate(node, either(node.span, item, values), negated=node.negated)
    if item.type.is_number:
        return _negate(node, _in_numbers(typer, node, item), negated=node.negated)
    return _negate(node, members_of(typer, node, item, node.members), negated=node.negated)


def _in_numbers(typer: "Typer", node: s.In, item: ir.Expr) -> ir.Expr:
    items = typer.check(node.members)
    if not isinstance(items, ir.Const) or items.type.element is None:
        if isinstance(items, ir.Named) and isinstance(items.body, ir.Const):
            items = items.body
        else:
            raise typer.scope.refuse(
                "P201", f"`in` wants a list, and this is {describe(items)}", node.members.span
            )
    assert isinstance(items.value, tuple)
    unit = items.type.unit or PLAIN
    if unit not in (PLAIN, item.type.unit):
        raise typer.scope.refuse(
            "P203",
            f"cannot look for {describe(item)} in a list of {unit}",
            node.left.span,
            label=describe(item),
            labels=(Label(node.members.span, f"a list of {unit}"),),
        )
    values: list[ir.Expr] = [
        read_word(typer.scope, s.Text(items.span, str(one)), item)
        if unit.is_plain
        else constant(items.span, one, item.type)
        for one in items.value
    ]
    return either(node.span, item, values)


def _range(typer: "Typer", node: s.In, members: s.Range, left: Typed) -> ir.Expr:
    item = typer.plain(left)
    version_beside_word(typer.scope, item, members)
    if not item.type.is_number:
        raise typer.scope.refuse(
            "P201", f"a range holds numbers, and this is {describe(item)}", node.left.span
        )
    unit = item.type.unit or PLAIN
    ends = []
    for one in (members.low, members.high):
        solid = settle(typer.scope, typer.check(one), unit, item)
        if not isinstance(solid, ir.Const) or solid.type.unit != unit:
            raise typer.mixed("P203", "a range wants the unit of its value", item, solid)
        ends.append(float(solid.value))  # type: ignore[arg-type]  # a number by its type
    low, high = ends
    if low > high and isinstance(item, ir.Read) and item.field in _WRAPPING:
        inside = _between(node, item, high, low)
        edges: list[ir.Expr] = [constant(members.span, one, item.type) for one in ends]
        outside = _negate(node, inside, negated=True)
        both = ir.Logical(
            span=node.span,
            type=BOOL,
            level=item.level,
            operator="or",
            operands=(outside, either(node.span, item, edges)),
        )
        return _negate(node, both, negated=node.negated)
    meant.past_the_last(typer.scope, item, members, high)
    if low > high:
        low_text, high_text = members.low.text, members.high.text
        typer.scope.warn(
            "P301",
            f"the range {low_text}..{high_text} is empty, so this is never true",
            members.span,
            f"write  {high_text}..{low_text}",
        )
    return _negate(node, _between(node, item, low, high), negated=node.negated)


def _between(node: s.Node, item: ir.Expr, low: float, high: float) -> ir.Expr:
    return ir.Between(span=node.span, type=BOOL, level=item.level, item=item, low=low, high=high)


# ---- texts


def _text_test(typer: "Typer", node: s.TextTest) -> ir.Expr:
    hints.listed_words(typer.scope, node)
    left = typer.plain(typer.check(node.left))
    if node.operator == "contains" and left.type.kind is Kind.LIST:
        right = word_or_expression(typer, node.right, ir_text(left))
        oddtexts.pattern_of_item(typer.scope, left, right)
        level = max(left.level, right.level)
        return ir.Member(span=node.span, type=BOOL, level=level, item=right, items=left)
    if left.type.kind is not Kind.TEXT:
        raise typer.scope.refuse(
            "P201",
            f"`{node.operator}` tests texts, and this is {describe(left)}",
            node.left.span,
            label=describe(left),
        )
    if node.operator == "matches":
        right = _pattern(typer, node)
        whole = typer.scope.text(node.left)
        meant.begins_only(typer.scope, whole, left, node.right, str(right.value))
    elif isinstance(node.right, s.Word | s.Text | s.Percent):
        if isinstance(node.right, s.Word):
            _looks_like_field(typer.scope, node.right)
            if never.item_as_word(typer, node):
                return _texts(node, left, constant(node.right.span, node.right.value, TEXT))
        text = node.right.text if isinstance(node.right, s.Percent) else node.right.value
        right = constant(node.right.span, text, TEXT)
    else:
        typed = typer.check(node.right)
        if isinstance(typed, Flex) and isinstance(node.right, s.Param):
            typed = constant(node.right.span, typed.text, TEXT)
        right = typer.plain(typed)
        if right.type.kind is not Kind.TEXT:
            raise typer.mixed("P201", f"`{node.operator}` wants two texts", left, right)
    if node.operator != "matches":
        oddtexts.strange_text(typer.scope, left, node.operator, right)
    return _texts(node, left, right)


def _texts(node: s.TextTest, left: ir.Expr, right: ir.Expr) -> ir.TextTest:
    level = max(left.level, right.level)
    return ir.TextTest(
        span=node.span, type=BOOL, level=level, operator=node.operator, left=left, right=right
    )


def ir_text(node: ir.Expr) -> ir.Expr:
    """Returns a stand-in with the type of a list's items."""
    kind = TEXT if node.type.element is Kind.TEXT else number_of(node.type.unit or PLAIN)
    return ir.Read(span=node.span, type=kind, level=Level.CONST, field="pod.name")


def _pattern(typer: "Typer", node: s.TextTest) -> ir.Const:
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
        raise typer.scope.refuse(
            "P112",
            f"this regular expression {reason}",
            node.right.span,
            _advice(reason, typer.scope.text(node.left), text),
        )
    return constant(node.right.span, text, TEXT)


def _advice(reason: str, left: str, pattern: str) -> str:
    """Returns what to write instead of a pattern that is refused."""
    if "(?i)" in pattern:
        return f"write  lower({left}) matches '{pattern.replace('(?i)', '').lower()}'"
    if reason.startswith("uses"):
        return "groups are written ( ) or (?: ); for what must not be there write  not ... matches"
    if reason.startswith("refers"):
        return "compare parts with  before(TEXT, SEPARATOR)   and   after(TEXT, SEPARATOR)"
    if reason.startswith(("is longer", "has more")):
        return "test parts of it in conditions of their own"
    return "every bracket needs its partner; in single quotes a backslash stands for itself"
