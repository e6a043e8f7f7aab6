"""A bound on what a policy costs per pod, before it runs (P320, P321).

A unit is one operation on one row. Equal parts of one policy count once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import log2
from typing import Final

from dsl import ir
from dsl.analysis.facts import FileFacts, Size, warning
from dsl.analysis.keys import Keys, bare
from dsl.diagnostics import Diagnostic, Label, Severity
from dsl.source import Span
from dsl.types import Level

BUDGET: Final = 2_500_000
_WARN: Final = 0.5
#: Characters of a text that a test looks at, on average.
_LENGTH: Final = 16.0


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a policy and what it costs with all that is in it."""

    span: Span
    units: float
    rows: str


def cost(facts: FileFacts, size: Size) -> tuple[float, Part | None]:
    """Returns the units of a file's rules and its dearest aggregate, else its dearest rule."""
    keys = Keys()
    counted: set[int] = set()
    total, dearest = 0.0, None
    parts: list[Part] = []
    for rule in facts.rules:
        core = rule.core
        value = core.test if isinstance(core, ir.FilterCore) else core.value
        roots = [one for one in (core.guard, value) if one is not None]
        own = 0.0
        for node in ir.walk(*roots):
            if isinstance(node, ir.NodeAggregate | ir.PodAggregate):
                units = sum(_units(one, size) for one in _distinct(keys, node))
                rows = "P" if isinstance(node, ir.PodAggregate) else "N"
                parts.append(Part(node.span, units, rows))
            key = keys.key(bare(node))
            if key not in counted:
                counted.add(key)
                own += _units(node, size)
        parts.append(Part(rule.written.span, own, "N"))
        total += own
    aggregates = [one for one in parts if one.rows == "P"]
    if parts:
        dearest = max(aggregates or parts, key=lambda one: one.units)
    return total, dearest


def units_of(root: ir.Expr, size: Size) -> float:
    """Returns the units of one expression."""
    return sum(_units(one, size) for one in _distinct(Keys(), root))


def _distinct(keys: Keys, root: ir.Expr) -> list[ir.Expr]:
    found: dict[int, ir.Expr] = {}
    for node in ir.walk(root):
        found.setdefault(keys.key(bare(node)), node)
    return list(found.values())


def _units(node: ir.Expr, size: Size) -> float:
    nodes, pods = float(size.nodes), float(size.pods)
    rows = {Level.NODE: nodes, Level.IT: pods}.get(node.level, 1.0)
    match node:
        case ir.Const() | ir.Read() | ir.Metric() | ir.Named():
            return 0.0
        case ir.PodAggregate(function="median"):
            return pods * max(log2(max(pods, 2)), 1.0) + nodes
        case ir.PodAggregate():
            return pods + nodes
        case ir.NodeAggregate(function="median"):
            return nodes * max(log2(max(nodes, 2)), 1.0)
        case ir.NodeAggregate():
            return nodes
        case ir.TextTest():
            return rows * _LENGTH
        case ir.Arith() | ir.Logical() | ir.Coalesce():
            return rows * max(len(ir.children(node)) - 1, 1)
        case _:
            return rows


def over_budget(facts: FileFacts, size: Size) -> Iterator[Diagnostic]:
    """Yields a finding where a policy needs more than half of its budget."""
    total, dearest = cost(facts, size)
    share = total / BUDGET
    if share <= _WARN or dearest is None:
        return
    rows, name = (size.pods, "pods") if dearest.rows == "P" else (size.nodes, "nodes")
    labels = (
        Label(
            dearest.span,
            f"{dearest.units:,.0f} of them, {dearest.units / max(rows, 1):.0f} for each of the"
            f" {rows:,} {name}",
        ),
    )
    refused = share > 1
    place = facts.rules[0].written
    for rule in facts.rules:
        if rule.written.span.start <= dearest.span.start < rule.written.span.end:
            place = rule.written
    line = facts.source.position(place.span.start)[0]
    start = facts.source.line_starts[line - 1]
    yield warning(
        "P321" if refused else "P320",
        f"this policy may take {total:,.0f} units for one pod, {share:.0%} of its budget",
        facts.source,
        Span(start, start + len(place.keyword)),
        "look at fewer pods (node.pods instead of cluster.pods), or at fewer things of each",
        labels=labels,
        notes=(
            f"with {size.nodes:,} nodes and {size.pods:,} pods; the budget is {BUDGET:,} units,"
            " about 5 ms",
        ),
        severity=Severity.ERROR if refused else Severity.WARNING,
    )
