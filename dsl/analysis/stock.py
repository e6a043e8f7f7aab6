"""Labels and namespaces that a policy asks for and a saved cluster does not have (P401).

Looks only at what must be there for a test to hold, never at what must not.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal

from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace

from dsl import ir
from dsl.analysis.facts import (
    FileFacts,
    Inventory,
    MetricStock,
    RuleFacts,
    guard_of,
    parts,
    warning,
)
from dsl.analysis.keys import bare
from dsl.diagnostics import Diagnostic
from dsl.foreign import closest
from dsl.plan import UseLine
from dsl.schema import WELL_KNOWN_LABELS
from dsl.types import Level

_MAX_SHOWN: Final = 5


class _Labelled(Struct):
    """A node or a namespace of a file."""

    name: str = ""
    labels: dict[str, str] = {}


class _Asked(Struct):
    """The answer to a query."""

    query: str
    by: str | None = None
    series: int = 0
    nodes: int | None = None
    error: str | None = None


class _Saved(Struct):
    """What an inventory file holds."""

    inventory: Literal[1]
    nodes: list[_Labelled] = []
    namespaces: list[_Labelled] = []
    pods: int = 0
    metrics: list[_Asked] = []


def read_inventory(data: object) -> Inventory:
    """Reads the plain values of an inventory file.

    Raises:
        ValueError: it is none; the text says why.
    """
    try:
        saved = convert(data, _Saved)
    except ValidationError as error:
        raise ValueError(str(error)) from None
    labels: dict[str, Counter[str]] = {}
    for node in saved.nodes:
        for key, value in node.labels.items():
            labels.setdefault(key, Counter())[value] += 1
    many = len(saved.nodes)
    return Inventory(
        node_labels=labels,
        namespaces={one.name: one.labels for one in saved.namespaces},
        nodes=many,
        pods=saved.pods,
        metrics={
            (one.query, one.by or ""): MetricStock(one.series, one.nodes, many, one.error or "")
            for one in saved.metrics
        },
    )


def not_in_stock(facts: FileFacts, stock: Inventory) -> Iterator[Diagnostic]:
    """Yields tests for things that the cluster does not have."""
    if not stock.nodes:
        # Nothing is known, as when only metrics were asked for.
        return
    seen: set[int] = set()
    for rule in facts.rules:
        core = rule.core
        asked: list[tuple[ir.Expr | None, bool]] = [(guard_of(core), True)]
        if isinstance(core, ir.FilterCore):
            asked += [(core.left, True), (core.right, not core.forbids)]
        else:
            asked += [(one, True) for one in parts(core)]
        for root, wanted in asked:
            for node in _wanted(root, wanted=wanted):
                if id(node) not in seen:
                    seen.add(id(node))
                    yield from _look(rule, node, stock)


def at_use(used: UseLine, findings: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    """Yields them where the policy is used: it is told other values there, its text is given."""
    source, span = used.place
    for one in findings:
        message = f"`use {used.name}`: {one.message}"
        yield replace(one, message=message, source=source, span=span, labels=())


def _wanted(root: ir.Expr | None, *, wanted: bool) -> Iterator[ir.Expr]:
    """Yields the tests that must hold, not those that must not."""
    stack = [] if root is None else [(root, wanted)]
    while stack:
        node, good = stack.pop()
        match node:
            case ir.Not():
                stack.append((node.operand, not good))
            case ir.Logical():
                stack.extend((one, good) for one in node.operands)
            case ir.Compare() | ir.Member() if good:
                yield node
            case ir.Missing() if not good:
                yield node
            case ir.If(then=ir.Const(value=float() as a), other=ir.Const(value=float() as b)) if (
                a > b
            ):
                stack.append((node.condition, good))
            case ir.Named():
                stack.append((node.body, good))
            case _:
                pass


def _look(rule: RuleFacts, node: ir.Expr, stock: Inventory) -> Iterator[Diagnostic]:
    match node:
        case ir.Missing():
            yield from _test(rule, node, node.operand, None, stock)
        case ir.Compare(operator="==") if isinstance(node.right, ir.Const):
            yield from _test(rule, node, node.left, (node.right.value,), stock)
        case ir.Member():
            items = bare(node.items)
            if isinstance(items, ir.Const) and isinstance(items.value, tuple):
                yield from _test(rule, node, node.item, items.value, stock)
        case _:
            return


def _test(
    rule: RuleFacts,
    node: ir.Expr,
    operand: ir.Expr,
    values: tuple[object, ...] | None,
    stock: Inventory,
) -> Iterator[Diagnostic]:
    read = bare(operand)
    if not isinstance(read, ir.Read) or read.level > Level.NODE:
        return
    name = read.field
    if name == "node.label" and read.key is not None:
        yield from _label(rule, node, "node", read.key, values, stock.node_labels, stock.nodes)
    elif name in WELL_KNOWN_LABELS:
        key = WELL_KNOWN_LABELS[name]
        yield from _label(rule, node, "node", key, values, stock.node_labels, stock.nodes)
    elif name == "namespace.label" and read.key is not None:
        found: dict[str, Counter[str]] = {}
        for labels in stock.namespaces.values():
            for key, value in labels.items():
                found.setdefault(key, Counter())[value] += 1
        many = len(stock.namespaces)
        yield from _label(rule, node, "namespace", read.key, values, found, many)
    elif name in ("pod.namespace", "namespace.name") and values is not None:
        missing = [str(one) for one in values if one not in stock.namespaces]
        if len(missing) == len(values) and values:
            yield _finding(
                rule, node, f"there is no namespace {_listed(missing)}", missing[0],
                stock.namespaces,
            )  # fmt: skip


def _label(
    rule: RuleFacts,
    node: ir.Expr,
    owner: str,
    key: str,
    values: tuple[object, ...] | None,
    known: Mapping[str, Mapping[str, int]],
    many: int,
) -> Iterator[Diagnostic]:
    if key not in known:
        # What others write with a slash between them is a key and its value.
        label, _, value = key.partition("/")
        pairs = [f"{label}={value}"] if value in known.get(label, ()) else []
        word = pairs[0] if pairs else key
        yield _finding(rule, node, f"no {owner} has the label {key}", word, pairs or known)
        return
    there = known[key]
    if not values or any(one in there for one in values):
        return
    wanted = _listed([f"{key}={one}" for one in values])
    most = sorted(there.items(), key=lambda one: (-one[1], one[0]))
    near = closest(str(values[0]), there)
    shown = near if near is not None else most[0][0]
    count = there[shown]
    yield warning(
        "P401",
        f"no {owner} has the label {wanted} ({count} of {many} have {key}={shown})",
        rule.source,
        node.span,
        *([f"did you mean `{near}`?"] if near is not None else []),
    )


def _finding(
    rule: RuleFacts, node: ir.Expr, message: str, word: str, known: Iterable[str]
) -> Diagnostic:
    near = closest(word, known)
    hints = [f"did you mean `{near}`?"] if near is not None else []
    return warning("P401", message, rule.source, node.span, *hints)


def _listed(words: list[str]) -> str:
    shown = words[:_MAX_SHOWN]
    return " or ".join(shown) + (" ..." if len(words) > len(shown) else "")
