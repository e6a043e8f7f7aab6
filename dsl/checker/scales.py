"""Numbers on another scale than what they meet: shares of 1 and of 100, and scores made of them.

A share is a metric of that kind, `x/max(x)`, or an amount over what a node has of it. Warns only.
"""

import re
from typing import Final

from dsl import ir
from dsl.checker import meant
from dsl.checker.scope import Scope
from dsl.diagnostics import Fix, Severity
from dsl.functions import number_text
from dsl.source import Span

_WARNING: Final = Severity.WARNING
_NUMBER: Final = re.compile(r"\d+(\.\d+)?")
_HUNDRED: Final = 100.0
_ABOVE_ONE: Final = 1.0
#: Above which a share of what a node has is meant to be out of 100: nodes may be overcommitted.
_OVERCOMMITTED: Final = 4.0

Ends = tuple[float, float]


# ---- comparisons


def strange_scale(scope: Scope, left: ir.Expr, right: ir.Expr, percent: Span | None) -> None:
    """Warns of a share compared with 80, one times 100 with 80%, and a count with 80%."""
    for one, other in ((left, right), (right, left)):
        if not isinstance(other, ir.Const) or not isinstance(other.value, float):
            continue
        if percent is not None and other.value != int(other.value) and _is_counted(one):
            text = scope.source.slice(percent)
            scope.warn(
                "P222",
                f"`{scope.text(one)}` is a whole number, and `{text}` is {other.value:g}",
                percent,
                f"write  {text} of X for a share of something",
            )
            return
        _of_hundred(scope, one, other, other.value, is_percent=percent is not None)
        limit = _share_limit(one) or _percent_limit(scope, one)
        if limit and limit < other.value <= _HUNDRED:
            text = scope.source.slice(other.span)
            scope.report(
                "P222",
                f"`{scope.text(one)}` is a share from 0 to 1, and `{text}` is far above",
                other.span,
                f"did you mean {text}%?",
                fix=f"{text}%" if _NUMBER.fullmatch(text) else None,
                severity=_WARNING,
            )
            return


def _of_hundred(
    scope: Scope, node: ir.Expr, other: ir.Const, value: float, *, is_percent: bool
) -> None:
    """Warns of `requested/allocatable*100 < 80%`."""
    ends = _ends(_inner(node))
    if ends != (0.0, _HUNDRED) or not 0 < value <= _ABOVE_ONE:
        return
    if value == _ABOVE_ONE and not is_percent:
        return
    text = scope.source.slice(other.span)
    better = number_text(value * _HUNDRED)
    same = f", which is {value:g}" if is_percent else ""
    scope.report(
        "P222",
        f"`{scope.text(node)}` goes from 0 to 100, and it is compared with `{text}`{same}",
        other.span,
        f"write  {better}   or leave out the `*100`",
        fix=Fix(other.span, better) if re.fullmatch(r"[\d.]+%?", text) else None,
        severity=_WARNING,
    )


def _is_counted(node: ir.Expr) -> bool:
    if isinstance(node, ir.Read):
        return not node.field.startswith("score")
    if isinstance(node, ir.PodAggregate | ir.NodeAggregate | ir.ItemAggregate):
        return node.function in ("count", "distinct")
    return False


def _share_limit(node: ir.Expr) -> float:
    """Returns above which value a share cannot be; 0 for what is no share."""
    node = _inner(node)
    if isinstance(node, ir.Rank) or (isinstance(node, ir.Func) and node.name == "hash"):
        return _ABOVE_ONE
    if isinstance(node, ir.Metric) and node.name in ("cpu_usage", "memory_usage") and not node.age:
        return _ABOVE_ONE
    if not isinstance(node, ir.Arith) or node.operators != ("/",):
        return 0.0
    return _ratio_limit(*node.operands)


def _inner(node: ir.Expr) -> ir.Expr:
    """Returns what is meant where there is data: behind lets and before `??`."""
    while isinstance(node, ir.Named | ir.Coalesce):
        node = node.body if isinstance(node, ir.Named) else node.operands[0]
    return node


def _percent_limit(scope: Scope, node: ir.Expr) -> float:
    """Returns above which value a metric in percent is meant to be out of 100."""
    node = _inner(node)
    share = isinstance(node, ir.Metric) and not node.age and meant.is_share(scope, node)
    return _OVERCOMMITTED if share else 0.0


def _ratio_limit(part: ir.Expr, whole: ir.Expr) -> float:
    """Returns above which value a ratio of the same resource, or to the highest, cannot be."""
    part, whole = _inner(part), _inner(whole)
    if _is_highest(part, whole):
        return _ABOVE_ONE
    if not isinstance(whole, ir.Read):
        return 0.0
    of, _, which = whole.field.rpartition(".")
    if which not in ("allocatable", "capacity") or not _is_amount(part, of, whole.key):
        return 0.0
    free = isinstance(part, ir.Read) and part.field.endswith(".free")
    return _ABOVE_ONE if free else _OVERCOMMITTED


def _is_amount(node: ir.Expr, of: str, key: str | None) -> bool:
    """Whether this is an amount of what `of` counts, or a sum of such: `requested + pod.cpu`."""
    node = _inner(node)
    if isinstance(node, ir.Arith):
        return set(node.operators) <= {"+", "-"} and all(
            _is_amount(one, of, key) for one in node.operands
        )
    if not isinstance(node, ir.Read):
        return False
    parent = node.field.rpartition(".")[0]
    own = node.field == f"pod.{of.rpartition('.')[2]}"
    return own or (parent == of and node.key == key)


def _is_highest(part: ir.Expr, whole: ir.Expr) -> bool:
    """Whether this is `x/max(x)` of a metric."""
    return (
        isinstance(part, ir.Metric)
        and not part.age
        and isinstance(whole, ir.NodeAggregate)
        and whole.function == "max"
        and isinstance(whole.value, ir.Metric)
        and whole.value.name == part.name
    )


# ---- scores


def flat_score(scope: Scope, value: ir.Expr, span: Span, *, weighted: bool = False) -> None:
    """Warns of a score made of a share that nobody multiplied by 100."""
    ends = _ends(value)
    if ends is None or not 0 < ends[1] - ends[0] <= _ABOVE_ONE:
        return
    if isinstance(_inner(value), ir.If) and (weighted or ends[1] > _ABOVE_ONE):
        return  # Small on purpose, beside others.
    scope.warn(
        "P225",
        f"this score goes from {ends[0]:g} to {ends[1]:g} only, of 100",
        span,
        f"write  {_times_hundred(scope, value, ends)}",
    )


def _times_hundred(scope: Scope, value: ir.Expr, ends: Ends) -> str:
    """Writes a score of shares so that it goes to 100."""
    text = scope.text(value)
    whole = re.sub(r"(?<![\w.])100%", "100", text)
    if whole != text:
        return whole
    if isinstance(value, ir.If):
        yes = isinstance(value.then, ir.Const) and value.then.value == 1 and ends == (0.0, 1.0)
        chosen = not isinstance(value.other, ir.If) and yes
        condition = scope.text(value.condition)
        return f"if {condition} then 100 else 0" if chosen else f"({text})*100"
    if ends[0] >= 0 and ends[1] <= _ABOVE_ONE:
        return f"({text})*100" if re.search(r" [-+] ", text) else f"{text}*100"
    if isinstance(value, ir.Arith) and value.operators[0] in "+-":
        out = ""
        for sign, one in zip(("", *value.operators), value.operands, strict=True):
            part = scope.text(one)
            scaled = part if isinstance(one, ir.Const) else f"{part}*100"
            out += f" {sign} {scaled}" if sign else scaled
        return out
    return f"({text})*100"


def _ends(node: ir.Expr, known: dict[int, Ends | None] | None = None) -> Ends | None:
    """Returns between what a sum of shares and constants lies, None for anything else.

    A ratio to what a node has counts as at most 1, whatever was promised beyond. `known` are the
    nodes that were asked: a let may stand in a sum twice, and in its let again.
    """
    known = {} if known is None else known
    node = _inner(node)
    if id(node) not in known:
        known[id(node)] = _ends_of(node, known)
    return known[id(node)]


def _ends_of(node: ir.Expr, known: dict[int, Ends | None]) -> Ends | None:
    if isinstance(node, ir.Const):
        return (node.value, node.value) if isinstance(node.value, float) else None
    if _share_limit(node):
        return 0.0, 1.0
    if isinstance(node, ir.Func):
        return _ends_of_all(node, known)
    if isinstance(node, ir.If):
        either = [_ends(one, known) for one in (node.then, node.other)]
        both = [one for one in either if one is not None]
        if len(both) < len(either):
            return None
        return min(one[0] for one in both), max(one[1] for one in both)
    if not isinstance(node, ir.Arith):
        return None
    first, second = node.operands[:2]
    ratio = node.operators[0] == "/" and _ratio_limit(first, second) > 0
    ends, at = ((0.0, 1.0), 1) if ratio else (_ends(first, known), 0)
    if node.operators[:2] == ("*", "/") and _ratio_limit(*node.operands[1:3]):
        # `100*x/y` reads from the left, and means the same.
        ends, at = _joined("*", ends, (0.0, 1.0)) if ends is not None else None, 2
    for operator, one in zip(node.operators[at:], node.operands[at + 1 :], strict=True):
        part = _ends(one, known)
        ends = _joined(operator, ends, part) if ends is not None and part is not None else None
    return ends


def _ends_of_all(node: ir.Func, known: dict[int, Ends | None]) -> Ends | None:
    """Returns the ends of `min(a, b)`, `median(a, b)` and the like of shares."""
    if node.name not in ("min", "max", "median"):
        return None
    parts = [_ends(one, known) for one in node.args]
    ends = [one for one in parts if one is not None]
    if len(ends) < len(parts):
        return None
    return min(one[0] for one in ends), max(one[1] for one in ends)


def _joined(operator: str, left: Ends, right: Ends) -> Ends | None:
    if operator == "+":
        return left[0] + right[0], left[1] + right[1]
    if operator == "-":
        return left[0] - right[1], left[1] - right[0]
    for (factor, same), other in ((left, right), (right, left)):
        if operator == "*" and factor == same and factor >= 0:
            return factor * other[0], factor * other[1]
    divisor, same = right
    if operator == "/" and divisor == same and divisor > 0:
        return left[0] / divisor, left[1] / divisor
    return None
