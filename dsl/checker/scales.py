"""Numbers on another scale than what they meet: shares of 1 and of 100, and scores made of them.

A share is a metric of that kind, `x/max(x)`, or an amount over what a node has of it. Warns only.
"""

import re
from typing import Final

from dsl import ir
from dsl import syntax as s
from dsl.checker import meant
from dsl.checker.scope import Scope
from dsl.diagnostics import Fix, Severity
from dsl.functions import exact_decimal, number_text
from dsl.schema import FIELDS
from dsl.source import Span
from dsl.types import Level

_WARNING: Final = Severity.WARNING
_NUMBER: Final = re.compile(r"\d+(\.\d+)?")
_HUNDRED: Final = 100.0
_ABOVE_ONE: Final = 1.0
#: Above which a share of what a node has is meant to be out of 100: nodes may be overcommitted.
_OVERCOMMITTED: Final = 4.0
#: How many times of all that a node has nobody promises: it is meant in percent.
_MANY_TIMES: Final = 20.0
_HALF: Final = 0.5
_PAIR: Final = 2
#: Below which a percentage of less than one is meant.
_TINY: Final = 0.001
#: All that `peers` counts a part of.
_MINE: Final = "count(cluster.pods where it.workload == pod.workload)"

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
                f"for a share of all of them write  {text} of {_MINE}"
                if scope.text(one).startswith("peers")
                else f"write  {text} of X for a share of something",
            )
            return
        if percent is not None and _tiny_percent(scope, one, other.value, percent):
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


def _tiny_percent(scope: Scope, node: ir.Expr, value: float, percent: Span) -> bool:
    """Warns of `cpu_usage < 0.8%`, which is 0.008; False for other shares."""
    text = scope.source.slice(percent)
    written = re.fullmatch(r"0?(\.\d+)%", text)
    inner = _inner(node)
    hashed = isinstance(inner, ir.Func | ir.Rank)
    if written is None or hashed or not _share_limit(inner) or value < _TINY:
        return False
    better = f"{number_text(value * _HUNDRED * _HUNDRED)}%"
    scope.report(
        "P222",
        f"`{text}` is {value:g}, and `{scope.text(node)}` is a share from 0 to 1",
        percent,
        f"did you mean {better}?",
        f"for the small share itself write  {value:g}",
        fix=better,
        severity=_WARNING,
    )
    return True


def many_times(scope: Scope, left: ir.Expr, right: ir.Expr) -> None:
    """Warns of `requested < allocatable * 90`, and of `requested + pod.cpu <= 0.8`."""
    for one, other in ((left, right), (right, left)):
        if isinstance(other, ir.Arith) and other.operators == ("*",):
            _times_whole(scope, one, other)
        elif isinstance(other, ir.Const) and isinstance(one, ir.Arith):
            _below_one(scope, one, other)


def _times_whole(scope: Scope, part: ir.Expr, product: ir.Arith) -> None:
    factors = [one for one in product.operands if isinstance(one, ir.Const)]
    wholes = [one for one in product.operands if isinstance(one, ir.Read)]
    if len(factors) != 1 or len(wholes) != 1 or not _ratio_limit(part, wholes[0]):
        return
    value = factors[0].value
    if not isinstance(value, float) or not _MANY_TIMES <= value <= _HUNDRED:
        return
    whole = scope.text(wholes[0])
    better = f"{number_text(value)}% of {whole}"
    scope.report(
        "P222",
        f"this is {number_text(value)} times `{whole}`",
        product.span,
        f"did you mean  {better}",
        fix=better,
        severity=_WARNING,
    )


def _below_one(scope: Scope, total: ir.Arith, limit: ir.Const) -> None:
    """Warns of `node.cpu.requested + pod.cpu <= 0.8`, which is less than one core."""
    read = next((one for one in total.operands if isinstance(one, ir.Read)), None)
    own = any(isinstance(one, ir.Read) and one.level is Level.POD for one in total.operands)
    text = scope.source.slice(limit.span)
    if read is None or not own or not read.field.endswith(".requested"):
        return
    share = exact_decimal(text)
    whole = f"{read.field.removesuffix('.requested')}.allocatable"
    if share is None or not _HALF <= share < 1 or read.key is not None or whole not in FIELDS:
        return
    better = f"{number_text(float(share * 100))}% of {whole}"
    scope.report(
        "P222",
        f"`{text}` is compared with an amount here, not with a share",
        limit.span,
        f"did you mean  {better}",
        fix=better,
        severity=_WARNING,
    )


def share_in_call(scope: Scope, node: s.Call, args: tuple[ir.Expr, ...]) -> None:
    """Warns of `mod(hash(x), 10)` and `floor(hash(x))`: a share has no remainder."""
    first, text = args[0], scope.text(args[0])
    if _share_limit(first) != _ABOVE_ONE or not isinstance(_inner(first), ir.Func | ir.Rank):
        return
    of = args[1].value if len(args) == _PAIR and isinstance(args[1], ir.Const) else None
    if node.name == "mod" and isinstance(of, float) and of >= 1:
        help_ = f"one of {number_text(of)} is  {text} < {number_text(_HUNDRED / of)}%"
    elif node.name == "floor":
        help_ = f"a number from 0 to 9 is  floor({text} * 10)"
    else:
        return
    what = "leaves as it is" if node.name == "mod" else "makes 0 of"
    message = f"`{text}` is a share from 0 to 1, which `{node.name}` {what}"
    scope.warn("P222", message, node.span, help_)


def _is_counted(node: ir.Expr) -> bool:
    if isinstance(node, ir.If) and node.span == node.other.span:
        # What `peers` makes of a node that is in no domain is missing.
        node = node.other
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
    if _is_all(part, whole):
        return _ABOVE_ONE
    if not isinstance(whole, ir.Read):
        return 0.0
    counted = isinstance(part, ir.PodAggregate) and _is_counted(part)
    if whole.field == "node.pods.capacity" and counted:
        return _OVERCOMMITTED
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


def _is_all(part: ir.Expr, whole: ir.Expr) -> bool:
    """Whether this is `count(node.pods where it.ready)/count(node.pods)`."""
    if isinstance(part, ir.PodAggregate) and isinstance(whole, ir.PodAggregate):
        same = part.table == whole.table
    else:
        same = isinstance(part, ir.NodeAggregate) and isinstance(whole, ir.NodeAggregate)
    if not same or not isinstance(part, ir.PodAggregate | ir.NodeAggregate):
        return False
    assert isinstance(whole, ir.PodAggregate | ir.NodeAggregate)
    counts = part.function == whole.function == "count" and part.over == whole.over
    return counts and whole.where is None and whole.value is None


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


def odd_score(scope: Scope, value: ir.Expr, written: s.Expr) -> None:
    """Warns of `score: max(100, load)`, which is the same for all nodes."""
    if isinstance(written, s.Aggregate):
        _past_the_end(scope, value, written.span)


def _past_the_end(scope: Scope, value: ir.Expr, span: Span) -> None:
    """Warns of a score that a constant holds at its end: `max(100, load)`, `min(0, load)`."""
    if not isinstance(value, ir.Func) or value.name not in ("max", "min"):
        return
    ends = [one.value for one in value.args if isinstance(one, ir.Const)]
    high = value.name == "max"
    limit = next((one for one in ends if isinstance(one, float) and _at_end(one, high=high)), None)
    if limit is None or len(value.args) != _PAIR:
        return
    other = "min" if high else "max"
    way = "below" if high else "above"
    text = scope.text(value)
    better = text.replace(f"{value.name}(", f"{other}(", 1)
    known = text.startswith(f"{value.name}(")
    scope.report(
        "P225",
        f"this score is never {way} {number_text(limit)}, so all nodes are alike",
        span,
        *([f"write  {better}"] if known else []),
        fix=better if known else None,
        severity=_WARNING,
    )


def _at_end(limit: float, *, high: bool) -> bool:
    return limit >= _HUNDRED if high else limit <= 0


def turned_clamp(scope: Scope, node: s.Call, args: tuple[ir.Expr, ...]) -> None:
    """Warns of `clamp(load, 100, 0)`, which is 0 for all."""
    low, high = args[1:]
    if not isinstance(low, ir.Const) or not isinstance(high, ir.Const):
        return
    if not isinstance(low.value, float) or not isinstance(high.value, float):
        return
    if low.value > high.value:
        value, first, second = (scope.text(one) for one in args)
        better = f"clamp({value}, {second}, {first})"
        scope.report(
            "P225",
            f"`clamp` takes the lower end first, so this is always {second}",
            node.span,
            f"write  {better}",
            fix=better,
            severity=_WARNING,
        )


def flat_score(scope: Scope, value: ir.Expr, span: Span, *, weighted: bool) -> None:
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
    # Another hundred times as much would be more than 100, or less than nothing, for all.
    return f"({text} {'-' if ends[0] > 0 else '+'} {number_text(abs(ends[0]))})*100"


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
