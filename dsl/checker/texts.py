"""Texts where a condition or a number is wanted: what is to be written instead."""

import re
from typing import Final

from dsl import ir
from dsl import syntax as s
from dsl.checker.scope import Flex, Scope, Typed
from dsl.functions import version
from dsl.schema import FIELDS
from dsl.types import BYTES, CORES, PLAIN, SECONDS, Kind, Type, Unit, is_missing

#: Its values are the words True, False and Unknown.
CONDITION: Final = "node.condition"
_WEEKDAY: Final = "time.weekday"
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat", "sun")
#: Fields whose values begin with the numbers of a version, and texts that do.
_VERSIONS: Final = frozenset({"node.kernel", "node.kubelet_version"})
_VERSION: Final = re.compile(r"(v\d+|\d+\.\d+)\.\d[\w.+-]*", re.ASCII)
_NAMED_UNITS: Final = {CORES: "cores", BYTES: "bytes", SECONDS: "seconds"}
#: How a rule in quotes begins.
_RULE: Final = re.compile(r"(not |any\(|count\()*(pod|node|namespace|cluster|time)\.\w", re.ASCII)


def as_test(text: str, typed: Typed, *, negated: bool = False) -> str:
    """Writes a text as a condition, in the forms that may be meant."""
    word = "is not" if negated else "is"
    if isinstance(typed, ir.Read) and typed.field == CONDITION:
        return f'{text} {word} "True"'
    return f"{text} is {'missing' if negated else 'present'}   or   {text} {word} VALUE"


def quoted_rule(node: s.Expr) -> str:
    """Returns what to do with a rule in quotes, which is a text; "" for other texts."""
    if not isinstance(node, s.Text) or _RULE.match(node.value) is None:
        return ""
    return f"a rule has no quotes around it; write  {node.value}"


def _as_number(node: ir.Expr, text: str) -> str:
    """Writes a text so that it may be compared with a number; "" where it never holds one."""
    if not isinstance(node, ir.Read):
        return f"number({text})"
    return f"number({text})" if FIELDS[node.field].keyed and node.field != CONDITION else ""


def of_text(value: Typed, text: str) -> str:
    """Returns what to do with a text as a score: the number that it holds, or a preference."""
    if isinstance(value, ir.Read) and value.key is None:
        return f"say which are better:  prefer: {text} in [a, b]"
    return f"write  score: number({text})"


def beside_number(scope: Scope, node: ir.Expr, number: Flex, operator: str) -> tuple[str, str]:
    """Returns a help about a text that is compared with a number, and what to write instead.

    The second is a test in place of the whole comparison, `number(...)` in place of the text, or
    "" where only the help can say it.
    """
    text = scope.text(node)
    field = node.field if isinstance(node, ir.Read) else ""
    value = number.exact
    if field == _WEEKDAY:
        whole = value is not None and value.denominator == 1 and 0 <= value < len(_DAYS)
        if not whole or value is None or operator not in ("==", "!="):
            return "days have names:  time.weekday in [sat, sun]", ""
        word = "is" if operator == "==" else "is not"
        test = f"{text} {word} {_DAYS[int(value)]}"
        return f"days have names:  {test}", test
    if field in _VERSIONS:
        sides = [f"version({text})", f'version("{scope.text(number)}")']
        if number.span.start < node.span.start:
            sides.reverse()
        better = f" {operator} ".join(sides)
        return f"versions are compared as numbers:  {better}", better
    if field.endswith(".priority_class"):
        value_of = text.removesuffix("_class")
        return f"the number is that of the priority:  {value_of}", value_of
    better = _as_number(node, text)
    if better:
        return f"write  {better}", better
    return f"`{text}` is a text that holds no number", ""


def beside_flag(operator: str, *, holds: bool) -> str:
    """Returns what a number is compared with where `true` or `false` was written; "" for `<`."""
    if operator not in ("==", "!="):
        return ""
    return "> 0" if holds == (operator == "==") else "== 0"


def in_unit(text: str, kind: Type, unit: Unit) -> str:
    """Writes a text or a plain number as an amount of a unit; "" where no function makes one."""
    named = _NAMED_UNITS.get(unit)
    if kind.kind is Kind.TEXT:
        if unit.is_plain:
            return f"number({text})"
        return (
            f"duration({text})" if unit == SECONDS else f"{named}(quantity({text}))" * bool(named)
        )
    return f"{named}({text})" if named is not None and kind.unit == PLAIN else ""


def has_no_order(scope: Scope, node: ir.Expr, operator: str, other: ir.Expr | None = None) -> str:
    """Returns what to do where two texts are compared by their size."""
    text = scope.text(node)
    if other is not None and (_is_version(node) or _is_version(other)):
        better = f"version({text}) {operator} version({scope.text(other)})"
        return f"versions are compared as numbers:  {better}"
    if isinstance(node, ir.Read) and node.field == _WEEKDAY:
        return f"name the days:  {text} in [mon, tue]"
    number = _as_number(node, text)
    return f"compare numbers:  {number} {operator} ..." if number else "texts have no order"


def version_beside_other(scope: Scope, operator: str, left: Typed, right: Typed) -> None:
    """Refuses `version(node.kernel) >= 5.10`, which would hold for all: 5.10 is no version.

    Raises:
        Refused: one side is a version, and the other a number or text that is written out.
    """
    for one, other in ((left, right), (right, left)):
        read = not isinstance(one, Flex) and _reads_version(one)
        if not read or not isinstance(other, Flex | ir.Const):
            continue
        written = scope.text(other)
        made = f"version({written})" if written[:1] in "'\"$" else f'version("{written}")'
        sides = [scope.text(left), made] if other is right else [made, scope.text(right)]
        # A let holds what is no version, and its name is none either.
        is_let = written.isidentifier()
        better = f'let {written} = version("5.10")' if is_let else f" {operator} ".join(sides)
        raise scope.refuse(
            "P201",
            f"a version is compared with a version, not with `{written}`",
            other.span,
            f"write for example  {better}" if is_let else f"write  {better}",
            fix=None if is_let else made,
        )


def version_beside_word(scope: Scope, left: Typed, written: s.Expr | s.Range) -> None:
    """Refuses `version(node.kernel) is 5.10` and `in 5..6`, as `version_beside_other` does.

    Raises:
        Refused: the left side is a version, and the other a word, text or range.
    """
    if isinstance(left, Flex) or not _reads_version(left):
        return
    if isinstance(written, s.Range):
        made, text = "", scope.text(left)
        low, high = (f'version("{scope.text(one)}")' for one in (written.low, written.high))
        better = f"write  {text} >= {low} and {text} <= {high}"
    elif isinstance(written, s.Word | s.Text | s.Percent):
        word = scope.text(written)
        made = f"(version({word}))" if word[:1] in "'\"" else f'(version("{word}"))'
        made = "" if is_missing(version(word.strip("'\""))) else made
        better = f"write  {made}" if made else 'write for example  (version("5.10"))'
    else:
        return
    raise scope.refuse(
        "P201",
        f"a version is compared with a version, not with `{scope.source.slice(written.span)}`",
        written.span,
        better,
        fix=made or None,
    )


def _reads_version(node: ir.Expr) -> bool:
    while isinstance(node, ir.Named | ir.Coalesce):
        node = node.body if isinstance(node, ir.Named) else node.operands[0]
    return isinstance(node, ir.Func) and node.name == "version"


def _is_version(node: ir.Expr) -> bool:
    if isinstance(node, ir.Const):
        return isinstance(node.value, str) and _VERSION.fullmatch(node.value) is not None
    return isinstance(node, ir.Read) and node.field in _VERSIONS
