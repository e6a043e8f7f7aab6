"""One table of conversions: what a value is, what is wanted there, and how it is written then."""

import re
from typing import Final

from dsl import ir
from dsl.checker.scope import Flex, Refused, Scope, Typed
from dsl.diagnostics import Fix
from dsl.schema import FIELDS
from dsl.types import BYTES, CORES, PLAIN, SECONDS, Kind, Type

_AMOUNTS: Final = {PLAIN: "number", CORES: "cores", BYTES: "bytes", SECONDS: "seconds"}
_KINDS: Final = {
    Kind.TEXT: "text", Kind.BOOL: "condition", Kind.TIME: "time", Kind.LIST: "list",
    Kind.PODS: "set", Kind.NODES: "set",
}  # fmt: skip
#: (what it is, what is wanted) -> how it is written.
_FORMS: Final = {
    ("text", "number"): "number({})",
    ("text", "cores"): "cores(quantity({}))",
    ("text", "bytes"): "bytes(quantity({}))",
    ("text", "seconds"): "duration({})",
    ("text", "time"): "time({})",
    ("text", "condition"): "{} is present",
    ("condition", "number"): "(if {} then 1 else 0)",
    ("condition", "text"): '(if {} then "true" else "false")',
    ("list", "number"): "len({})",
    ("list", "condition"): "len({}) > 0",
    ("set", "number"): "count({})",
    ("set", "condition"): "count({}) > 0",
    ("time", "number"): "now - {}",
    ("version", "number"): "version({})",
    ("time", "seconds"): "now - {}",
    **{("number", unit): f"{unit}({{}})" for unit in ("cores", "bytes", "seconds")},
    **{(unit, "number"): "number({})" for unit in ("cores", "bytes", "seconds")},
    **{(unit, "condition"): "{} > 0" for unit in _AMOUNTS.values()},
    **{(unit, "text"): "string({})" for unit in _AMOUNTS.values()},
}
#: Fields whose values begin with the numbers of a version.
_VERSIONS: Final = ("node.kernel", "node.kubelet_version")
#: A day, which is no sum.
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_NUMBER: Final = re.compile(r"\d+(\.\d+)?([a-zA-Z]{1,3}|%)?", re.ASCII)


def sort_of(kind: Type) -> str:
    """Returns what a value is, as the table calls it; "" where it calls it nothing."""
    return _AMOUNTS.get(kind.unit or PLAIN, "") if kind.is_number else _KINDS[kind.kind]


def converted(scope: Scope, typed: Typed, want: str) -> str:
    """Returns how a value is written where something else is wanted; "" where nobody knows."""
    have = sort_of(typed.type)
    if isinstance(typed, Flex | ir.Const):
        return ""  # What is written out is another thing, not the same in another form.
    if isinstance(typed, ir.Read) and typed.field == "node.condition" and want == "condition":
        return f"{scope.text(typed)} is True"
    if isinstance(typed, ir.Read) and have in ("text", "time"):
        if typed.field in _VERSIONS:
            have = "version"
        elif want != "condition" and not _may_hold(typed, want):
            return ""
    return _FORMS.get((have, want), "").format(scope.text(typed))


def _may_hold(read: ir.Read, want: str) -> bool:
    """Whether a field may hold the text of a number: one that has no key holds names."""
    if read.type.kind is Kind.TIME:
        return read.field != "now"
    return want == "time" or (FIELDS[read.field].keyed and read.field != "node.condition")


def help_for(scope: Scope, typed: Typed, want: str) -> tuple[str, ...]:
    """Returns the same as the helps of a finding."""
    better = converted(scope, typed, want)
    return (f"write  {better}",) if better else ()


def clash(scope: Scope, wants: str, one: Typed, other: Typed) -> Refused:
    """Refuses two values that do not go together, and says how one is written beside the other."""
    left, right = sorted((one, other), key=lambda each: each.span.start)
    pairs = ((left, right), (right, left))
    fixes = ((each, _beside(scope, each, beside)) for each, beside in pairs)
    fix = next((Fix(each.span, better) for each, better in fixes if better), None)
    helps = () if fix is not None else hint_beside(scope, left, right)
    if left.type.kind is right.type.kind:
        return scope.clash("P203", f"{wants} equal units", left, right, *helps, fix=fix)
    return scope.clash("P201", f"{wants} two values of one kind", left, right, *helps, fix=fix)


def hint_beside(scope: Scope, left: Typed, right: Typed) -> tuple[str, ...]:
    """Returns how one of two values may be written beside the other: what has a unit keeps it."""
    for one, other in ((left, right), (right, left)):
        have, want = sort_of(one.type), sort_of(other.type)
        numbers = want == "number" and have in _AMOUNTS.values()
        helps = () if numbers or have == "text" else help_for(scope, one, want)
        if helps:
            return helps
    return ()


def _beside(scope: Scope, one: Typed, other: Typed) -> str:
    """Returns how a value is written beside another kind; "" where that is not sure."""
    want, text, kind = sort_of(other.type), scope.text(one), one.type.kind
    if isinstance(one, Flex):
        return f'time("{text}T00:00:00Z")' if want == "time" and _DATE.fullmatch(text) else ""
    if isinstance(one, ir.Const) and kind is Kind.BOOL and want == "text":
        return f'"{text}"'
    if kind is Kind.TIME:
        age = want == "seconds" or (isinstance(other, Flex) and other.sort == "milli")
        return f"now - {text}" if age and text != "now" else ""
    if kind is not Kind.TEXT:
        return ""
    if not isinstance(one, ir.Const):
        return converted(scope, one, want) if want != "condition" else ""
    inner = str(one.value)
    if text[:1] not in ('"', "'"):
        return ""
    if want == "condition":
        return inner.lower() if inner.lower() in ("true", "false") else ""
    if want == "time":
        midnight = "T00:00:00Z" * (_DATE.fullmatch(inner) is not None)
        return f'time("{inner}{midnight}")'
    return inner if _NUMBER.fullmatch(inner) else ""
