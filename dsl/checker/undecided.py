"""P231: a metric may be missing and decides, and the rule has no word on that.

Reads the tree as understood and the text as written; changes neither.
"""

from typing import Final

from msgspec import Struct

from dsl import ir
from dsl import syntax as s
from dsl.checker.scope import Refused, Scope
from dsl.diagnostics import Label
from dsl.source import Span
from dsl.types import DURATION, show

_LONGEST: Final = 100
_MISSING_OF_NOTHING: Final = ("max", "min", "avg", "median")
_SetAggregate = ir.NodeAggregate | ir.PodAggregate | ir.ContainerAggregate


class Side(Struct, frozen=True):
    """A condition of a statement: where it stands, and what its truth decides.

    `point` is that of the rule, `left` for the side before the arrow, or `wait`.
    """

    statement: s.Rule | s.Special
    node: s.Expr
    point: str


def decided(scope: Scope, side: Side, root: ir.Expr, *beside: ir.Expr | None) -> None:
    """Refuses metrics that may be missing and decide without a word on that.

    Words on them in the parts `beside` count, too. Raises `Refused`.
    """
    guarded: set[str] = set()
    for one in ir.walk(root, *(part for part in beside if part is not None)):
        if isinstance(one, ir.Missing):
            guarded |= _metrics_in(one.operand)
        elif isinstance(one, ir.Coalesce):
            guarded |= {name for operand in one.operands[:-1] for name in _metrics_in(operand)}
    earlier = scope.demanded if side.point != "wait" else set()
    for read in ir.walk(root):
        if isinstance(read, ir.Metric | ir.Pair) and read.name not in guarded:
            there = read.name in earlier and isinstance(read, ir.Metric)
            if not there or _set_around(root, read) is not None:
                raise _refuse(scope, side, root, read)


def demanded(core: ir.FilterCore) -> set[str]:
    """Returns the metrics without which a rule rejects every pod of its file."""
    if core.left is not None:
        return set()
    right, joint = core.right, "or" if core.forbids else "and"
    joined = isinstance(right, ir.Logical) and right.operator == joint
    parts = right.operands if isinstance(right, ir.Logical) and joined else (right,)
    if not core.forbids:
        parts = tuple(one.operand for one in parts if isinstance(one, ir.Not))
    tests = (one.operand for one in parts if isinstance(one, ir.Missing))
    return {one.name for one in tests if isinstance(one, ir.Metric)}


def _metrics_in(root: ir.Expr) -> set[str]:
    return {one.name for one in ir.walk(root) if isinstance(one, ir.Metric | ir.Pair)}


def _refuse(scope: Scope, side: Side, root: ir.Expr, read: ir.Metric | ir.Pair) -> Refused:
    name = scope.text(read) if isinstance(read, ir.Pair) else read.name
    of_set = _set_around(root, read)
    if of_set is not None:
        label, helps = _in_a_set(scope, side, of_set, read, name)
    else:
        label, helps = _of_the_rule(scope, side, root, read, name)
    what = "filter" if side.point in ("filter", "forbid") else f"`{side.statement.keyword}`"
    return scope.refuse(
        "P231",
        f"`{name}` may have no fresh sample, and this {what} does not say what happens then",
        read.span,
        *helps,
        label=label,
        labels=_when_stale(scope, read.name),
    )


def _when_stale(scope: Scope, name: str) -> tuple[Label, ...]:
    entry = scope.metrics[name]
    if entry.written is None or entry.spec is None:
        return ()
    stale = next((one for one in entry.written.clauses if one.name == "metric_stale"), None)
    where = stale.span if stale is not None else entry.written.name_span
    text = show(entry.spec.stale_seconds, DURATION)
    return (Label(where, f"after {text} without a new value it is missing"),)


# ---- a condition of the rule itself


def _of_the_rule(
    scope: Scope, side: Side, root: ir.Expr, read: ir.Metric | ir.Pair, name: str
) -> tuple[str, tuple[str, str]]:
    text = scope.text(side.node)
    forbids = side.point == "forbid"
    inner = f"({text})" if isinstance(side.node, s.Logical | s.If) else text
    false = _statement(scope, side, f"{name} is present and {inner}")
    zero = _with_fallback(scope, side.node, read, (">", ">=") if forbids else ("<", "<="))
    if forbids:
        true = _statement(scope, side, f"{name} is missing or {inner}")
        false = _statement(scope, side, zero) if zero else false
    else:
        true = _statement(scope, side, zero or f"{name} is missing or {inner}")
    if side.point in ("filter", "forbid"):
        kept, rejected = (false, true) if forbids else (true, false)
        helps = _choice(("reject such nodes", rejected), ("keep such nodes", kept))
        outcomes = ("the node would be rejected", "the node would be kept")
    elif side.point == "left":
        helps = _choice(("without data it does not apply", false), ("it applies", true))
        outcomes = ("the rule would not apply", "the rule would apply")
    else:
        helps = _choice(("without data it is false", false), ("it holds", true))
        outcomes = ("", "")
    return _label(_without(root, read.name), outcomes[::-1] if forbids else outcomes), helps


def _choice(one: tuple[str, str], other: tuple[str, str]) -> tuple[str, str]:
    width = max(len(one[0]), len(other[0])) + 3
    first, second = (f"{what + ':':<{width}}{text}" for what, text in (one, other))
    return first, second


def _label(holds: object, outcomes: tuple[str, str]) -> str:
    if holds is None:
        return "without data it is left to the rest of the condition"
    outcome = outcomes[1 if holds else 0]
    said = f"without data this {'holds' if holds else 'is false'}"
    return f"{said}: {outcome}" if outcome else said


def _with_fallback(
    scope: Scope, node: s.Expr, read: ir.Metric | ir.Pair, lower: tuple[str, ...]
) -> str:
    """Returns `(metric ?? 0) < limit` where 0 is on the good side of it, else nothing."""
    if not isinstance(node, s.Compare) or node.operator not in lower:
        return ""
    if read.span != node.left.span:
        return ""
    text = scope.text(node)
    left = scope.text(node.left)
    return f"({left} ?? 0){text[len(left) :]}"


def _statement(scope: Scope, side: Side, instead: str) -> str:
    """Returns the statement with another condition; without its clauses where it gets long."""
    source, whole, own = scope.source, side.statement.span, side.node.span
    start = source.text[whole.start : own.start] + instead
    line = " ".join((start + source.text[own.end : whole.end]).split())
    if len(line) > _LONGEST and isinstance(side.statement, s.Rule) and side.point != "left":
        rule = source.text[own.end : side.statement.right.span.end]
        return " ".join((start + rule).split())
    return line


# ---- a condition or a value of each of a set


def _in_a_set(
    scope: Scope, side: Side, of_set: ir.Expr, read: ir.Metric | ir.Pair, name: str
) -> tuple[str, tuple[str, ...]]:
    things = {ir.NodeAggregate: "nodes", ir.PodAggregate: "pods"}.get(type(of_set), "containers")
    written, at = scope.source.text, of_set.span
    own = side.node.span
    aggregate = _aggregate_at(side.node, at)
    if aggregate is None or not own.start <= read.span.start < own.end:
        # It stands in a `let`, whose line is another.
        return f"{things} without data are left out here", (
            f"write  {name} ?? 0   there, or test  {name} is present",
        )

    def with_text(start: int, end: int, text: str) -> str:
        whole = f"{written[own.start : start]}{text}{written[end : own.end]}"
        return _statement(scope, side, " ".join(whole.split()))

    where = aggregate.where
    if where is not None and where.span.start <= read.span.start < where.span.end:
        text = written[where.span.start : where.span.end]
        text = f"({text})" if isinstance(where, s.Logical | s.If) else text
        left_out, counted = (
            with_text(where.span.start, where.span.end, f"{name} is {word} {text}")
            for word in ("present and", "missing or")
        )
        return f"without data this is false of a {things[:-1]}", _choice(
            ("without data it is false", left_out), ("it holds", counted)
        )
    alone = any(one.span == read.span for one in aggregate.args)
    zero = with_text(read.span.start, read.span.end, f"{name} ?? 0" if alone else f"({name} ?? 0)")
    if where is None:
        left_out = with_text(at.end - 1, at.end, f" where {name} is present)")
    else:
        text = written[where.span.start : where.span.end]
        text = f"({text})" if isinstance(where, s.Logical | s.If) else text
        left_out = with_text(where.span.start, where.span.end, f"{name} is present and {text}")
    return f"{things} without data are left out here", _choice(
        (f"leave such {things} out", left_out), ("take them for 0", zero)
    )


def _set_around(root: ir.Expr, read: ir.Expr) -> ir.Expr | None:
    """Returns the innermost aggregate around the first use of a node."""
    stack: list[tuple[ir.Expr, ir.Expr | None]] = [(root, None)]
    seen: set[int] = set()
    while stack:
        node, around = stack.pop()
        if node is read:
            return around
        if id(node) in seen:
            continue
        seen.add(id(node))
        inner = node if isinstance(node, _SetAggregate) else around
        stack.extend((one, inner) for one in ir.children(node)[::-1])
    return None


def _aggregate_at(node: s.Node, span: Span) -> s.Aggregate | None:
    """Returns the aggregate that is written there."""
    stack: list[object] = [node]
    while stack:
        one = stack.pop()
        if isinstance(one, s.Aggregate) and one.span == span:
            return one
        if isinstance(one, s.Node):
            stack.extend(getattr(one, name) for name in one.__struct_fields__)
        elif isinstance(one, tuple):
            stack.extend(one)
    return None


# ---- what holds without data


def _without(root: ir.Expr, name: str) -> bool | None:
    """Says whether a condition holds while a metric is missing; None where others decide."""
    match root:
        case ir.Named():
            return _without(root.body, name)
        case ir.Not():
            inner = _without(root.operand, name)
            return None if inner is None else not inner
        case ir.Logical():
            return _together(root.operator, [_without(one, name) for one in root.operands])
        case ir.Compare() | ir.TextTest():
            return False if _gone(root.left, name) or _gone(root.right, name) else None
        case ir.Member() | ir.Between():
            return False if _gone(root.item, name) else None
        case _:
            return None


def _together(operator: str, parts: list[bool | None]) -> bool | None:
    either = operator == "or"
    if either in parts:
        return either
    return None if None in parts else not either


def _gone(root: ir.Expr, name: str) -> bool:
    match root:
        case ir.Metric() | ir.Pair():
            return root.name == name
        case ir.Named():
            return _gone(root.body, name)
        case ir.Arith() | ir.Negate() | ir.Func() | ir.Rank():
            return any(_gone(one, name) for one in ir.children(root))
        case ir.NodeAggregate() | ir.PodAggregate():
            found = root.value is not None and _gone(root.value, name)
            return found and root.function in _MISSING_OF_NOTHING
        case _:
            return False
