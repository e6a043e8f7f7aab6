"""A bound on what a policy costs per pod, before it runs (P320, P321).

A unit is one operation on one row. Equal parts of one policy count once.
"""

from collections.abc import Iterable, Iterator
from math import log2
from typing import Any, Final, NamedTuple

from dsl import ir
from dsl.analysis.cubes import Keys
from dsl.analysis.facts import FileFacts, RuleFacts, Size, warning
from dsl.diagnostics import Diagnostic, Label, Severity
from dsl.source import Span
from dsl.types import Level

BUDGET: Final = 2_500_000
_WARN: Final = 0.5
#: Characters of a text that a test looks at, on average.
_LENGTH: Final = 16.0
_SETS: Final = (ir.NodeAggregate, ir.PodAggregate, ir.Rank)
_FREE: Final = (ir.Const, ir.Read, ir.Metric, ir.Named)
#: Points that ask about one node, the chosen one.
_CHOSEN: Final = ("reserve", "permit", "prebind", "postbind")


class Part(NamedTuple):
    """A part of a policy and what it costs with all that is in it."""

    rule: RuleFacts
    span: Span
    units: float
    rows: str


def cost(facts: FileFacts, size: Size, keys: Keys | None = None) -> tuple[float, Part | None]:
    """Returns the units of a file's rules and its dearest aggregate, else its dearest rule."""
    keys = keys or Keys()
    counted: set[int] = set()
    total = 0.0
    parts: list[Part] = []
    for rule in facts.rules:
        here = Size(1, size.pods) if rule.point in _CHOSEN else size
        own = _engine(rule, size)
        for node in _asked(*_roots(rule)):
            if isinstance(node, _SETS):
                units = sum(_units(one, size) for one in _distinct(keys, node))
                rows = "P" if isinstance(node, ir.PodAggregate) else "N"
                parts.append(Part(rule, node.span, units, rows))
            key = keys.key(node)
            if key not in counted:
                counted.add(key)
                sets = isinstance(node, _SETS) and not isinstance(node, ir.Rank)
                own += _units(node, size if sets else here)
        of_pods = isinstance(rule.core, ir.PreemptCore | ir.QuotaCore | ir.GangCore)
        parts.append(Part(rule, rule.written.span, own, "P" if of_pods else "N"))
        total += own
    if not parts:
        return total, None
    whole = max(parts, key=lambda one: one.units)
    aggregates = [one for one in parts if one.rows == "P"]
    part = max(aggregates, key=lambda one: one.units, default=whole)
    # An aggregate is named where it is most of what its rule costs.
    return total, part if 2 * part.units >= whole.units else whole


def _roots(rule: RuleFacts) -> list[ir.Expr]:
    """Returns what is computed for a rule: its conditions as lowered, not as written."""
    core = rule.core
    if isinstance(core, ir.FilterCore):
        return [core.test] if core.guard is None else [core.guard, core.test]
    of_set = [core.member] if isinstance(core, ir.QuotaCore | ir.GangCore) else []
    within = [test for _, test in core.within] if isinstance(core, ir.QuotaCore) else []
    return [*rule.roots, *of_set, *within]


def _engine(rule: RuleFacts, size: Size) -> float:
    """Returns what a statement costs besides its expressions: scales and orders."""
    nodes, pods = float(size.nodes), float(size.pods)
    match rule.core:
        case ir.ScoreCore(norm="rank"):
            return _sorting(nodes)
        case ir.ScoreCore(norm="minmax" | "default"):
            return nodes
        case ir.PreemptCore(never=False) as core:
            # Without an order of its own: by priority, then by start.
            keys = max(len(core.order), 2)
            return _sorting(pods, pods / nodes) * keys + nodes * max(len(core.pick), 1)
        case ir.QuotaCore(elastic=True) as core:
            return _sorting(pods, pods / nodes) * max(len(core.reclaim), 1) + pods
        case ir.GangCore():
            return pods
        case _:
            return 0.0


def _sorting(rows: float, together: float | None = None) -> float:
    """Returns what orders cost: of all rows, or of groups of so many."""
    return rows * max(log2(max(rows if together is None else together, 2)), 1.0)


def units_of(root: ir.Expr, size: Size) -> float:
    """Returns the units of one expression."""
    return sum(_units(one, size) for one in _distinct(Keys(), root))


def _asked(*roots: ir.Expr) -> list[ir.Expr]:
    return [one for one in ir.walk(*roots) if not isinstance(one, _FREE)]


def _distinct(keys: Keys, root: ir.Expr) -> Iterable[ir.Expr]:
    return {keys.key(one): one for one in _asked(root)}.values()


def _units(node: ir.Expr, size: Size) -> float:
    nodes, pods = float(size.nodes), float(size.pods)
    rows = nodes if node.level is Level.NODE else pods if node.level is Level.IT else 1.0
    match node:
        case ir.PodAggregate(function="median" | "distinct"):
            return _sorting(pods) + nodes
        case ir.PodAggregate():
            return pods + nodes
        case ir.NodeAggregate(function="median" | "distinct") | ir.Rank():
            return _sorting(nodes)
        case ir.NodeAggregate(level=Level.NODE):
            return 2 * nodes
        case ir.NodeAggregate():
            return nodes
        case ir.ItemAggregate():
            # What does not differ from item to item is asked once, and counted by itself.
            asked = (one for one in _asked(*ir.children(node)[1:]) if ir.has(ir.Item, one))
            return node.most * sum(_units(one, size) for one in asked)
        case ir.TextTest():
            return rows * _LENGTH
        case ir.Arith() | ir.Logical() | ir.Coalesce():
            return rows * max(len(ir.children(node)) - 1, 1)
        case _:
            return rows


def over_budget(facts: FileFacts, size: Size, keys: Keys | None = None) -> Iterator[Diagnostic]:
    """Yields a finding where a policy needs more than half of its budget."""
    total, dearest = cost(facts, size, keys)
    share = total / BUDGET
    if share <= _WARN or dearest is None:
        return
    rows, name = (size.pods, "pods") if dearest.rows == "P" else (size.nodes, "nodes")
    rule, used = dearest.rule, facts.used
    share_of = f"{dearest.units / max(rows, 1):.0f} for each of the {rows:,} {name}"
    each = f"{dearest.units:,.0f} of them, {share_of}"
    code, severity = ("P321", Severity.ERROR) if share > 1 else ("P320", Severity.WARNING)
    with_ = f"with {size.nodes:,} nodes and {size.pods:,} pods"
    notes = (f"{with_}; the budget is {BUDGET:,} units, about 5 ms",)
    message = f"may take {total:,.0f} units for one pod, {share:.0%} of its budget"
    help_ = "look at fewer pods or nodes, and at fewer things of each"
    more: dict[str, Any] = {"severity": severity, "notes": notes}
    if used is None:
        labels = (Label(dearest.span, each),)
        yield warning(code, f"this policy {message}", rule.word, help_, labels=labels, **more)
    else:
        more["notes"] = (f"the dearest part is  {rule.text(dearest.span)}  with {each}", *notes)
        yield warning(code, f"`{used.name}` {message}", used.place, help_, **more)
