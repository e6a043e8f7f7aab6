"""P231: a metric may be missing and decides, and the rule has no word on that.

Reads the tree as understood and the text as written; changes neither.
"""

from msgspec import Struct

from dsl import ir
from dsl import syntax as s
from dsl.checker.scope import Refused, Scope
from dsl.diagnostics import Label
from dsl.types import DURATION, show

_SetAggregate = ir.NodeAggregate | ir.PodAggregate | ir.ContainerAggregate


class Side(Struct, frozen=True):
    """A condition of a statement: where it stands, and what its truth decides.

    `point` is that of the rule, `left` for the side before the arrow, or `wait`.
    """

    statement: s.Rule | s.Special
    node: s.Expr
    point: str


def refuse_unsaid(scope: Scope, side: Side, root: ir.Expr, *beside: ir.Expr | None) -> None:
    """Refuses metrics that may be missing and decide without a word on that.

    Words on them in the parts `beside` count, too. Raises `Refused`.
    """
    guarded: set[str] = set()
    for one in ir.walk(root, *beside):
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
    parts = ir.joined(core.right, "or" if core.forbids else "and")
    if not core.forbids:
        parts = tuple(one.operand for one in parts if isinstance(one, ir.Not))
    tests = (one.operand for one in parts if isinstance(one, ir.Missing))
    return {one.name for one in tests if isinstance(one, ir.Metric)}


def _metrics_in(root: ir.Expr) -> set[str]:
    return {one.name for one in ir.walk(root) if isinstance(one, ir.Metric | ir.Pair)}


def _refuse(scope: Scope, side: Side, root: ir.Expr, read: ir.Metric | ir.Pair) -> Refused:
    name = scope.text(read) if isinstance(read, ir.Pair) else read.name
    text, keyword = scope.text(side.node), side.statement.keyword
    inner = f"({text})" if isinstance(side.node, s.Logical | s.If) else text
    head = f"{keyword}: " * (isinstance(side.statement, s.Rule) and side.statement.left is None)
    false, true = {
        "filter": ("reject such nodes", "keep such nodes"),
        "forbid": ("keep such nodes", "reject such nodes"),
        "left": ("without data it does not apply", "it applies"),
    }.get(side.point, ("without data it is false", "it holds"))
    helps = [
        f"{false}:  {head}{name} is present and {inner}",
        f"{true}:  {head}{name} is missing or {inner}",
    ]
    if _set_around(root, read) is not None:
        helps = [f"write  {name} ?? 0   there, or  where {name} is present"]
    outcome = {"filter": ": the node would be rejected", "forbid": ": the node would be kept"}
    plain = isinstance(root, ir.Compare | ir.Between | ir.TextTest)
    where = "filter" if side.point in outcome else f"`{keyword}`"
    return scope.refuse(
        "P231",
        f"`{name}` may have no fresh sample, and this {where} does not say what happens then",
        read,
        *helps,
        label=f"without data this is false{outcome.get(side.point, '')}" * plain,
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
