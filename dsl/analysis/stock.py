"""What a policy asks for and a saved cluster does not have: labels, namespaces, series (P401-P403).

Looks only at what must be there for a test to hold, never at what must not; and of metrics at what
the server said when the inventory was taken.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace

from dsl import ir
from dsl import syntax as s
from dsl.analysis.facts import FileFacts, Inventory, MetricStock, RuleFacts, warning
from dsl.diagnostics import Diagnostic
from dsl.nearest import closest
from dsl.plan import OF_NODES, MetricSpec, UseLine
from dsl.schema import WELL_KNOWN_LABELS
from dsl.source import Span
from dsl.types import Level

_MAX_SHOWN: Final = 5
#: Of so many nodes a metric has a series.
_ENOUGH: Final = 0.9


class _Labelled(Struct):
    """A node or a namespace of a file."""

    name: str = ""
    labels: dict[str, str] = {}


class _Saved(Struct):
    """What an inventory file holds."""

    inventory: Literal[1]
    nodes: list[_Labelled] = []
    namespaces: list[_Labelled] = []
    pods: int = 0
    metrics: list[MetricStock] = []


def read_inventory(data: object) -> Inventory:
    """Reads the plain values of an inventory file.

    Raises:
        ValueError: it is none; the text says why.
    """
    try:
        saved = convert(data, _Saved)
    except ValidationError as error:
        raise ValueError(str(error)) from None
    return Inventory(
        node_labels=_counted(one.labels for one in saved.nodes),
        namespaces={one.name: one.labels for one in saved.namespaces},
        nodes=len(saved.nodes),
        pods=saved.pods,
        metrics={(one.query, one.by or ""): one for one in saved.metrics},
    )


def _counted(things: Iterable[Mapping[str, str]]) -> dict[str, Counter[str]]:
    """Returns how many things have a label, by key and value."""
    found: dict[str, Counter[str]] = {}
    for labels in things:
        for key, value in labels.items():
            found.setdefault(key, Counter())[value] += 1
    return found


def not_in_stock(facts: FileFacts, stock: Inventory) -> Iterator[Diagnostic]:
    """Yields tests for things that the cluster does not have."""
    if not stock.nodes:
        # Nothing is known, as when only metrics were asked for.
        return
    seen: set[ir.Expr] = set()
    for rule in facts.rules:
        core = rule.core
        for root in rule.roots:
            forbidden = isinstance(core, ir.FilterCore) and core.forbids and root is core.right
            for node in _wanted(root, wanted=not forbidden):
                if node not in seen:
                    seen.add(node)
                    yield from _look(rule, node, stock)


def at_use(used: UseLine, findings: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    """Yields them where the policy is used: it is told other values there, its text is given."""
    source, span = used.place
    for one in findings:
        message = f"`use {used.name}`: {one.message}"
        yield replace(one, message=message, source=source, span=span, labels=())


def _wanted(root: ir.Expr, *, wanted: bool) -> Iterator[ir.Expr]:
    """Yields the tests that must hold, not those that must not."""
    stack = [(root, wanted)]
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
    """Yields what a test that must hold asks for in vain."""
    values: tuple[object, ...] = ()
    operand, *items = ir.children(node)
    if items:
        fixed = ir.unnamed(items[0])
        if not isinstance(fixed, ir.Const) or getattr(node, "operator", "==") != "==":
            return
        values = fixed.value if isinstance(fixed.value, tuple) else (fixed.value,)
    read = ir.unnamed(operand)
    if not isinstance(read, ir.Read) or read.level > Level.NODE or (items and not values):
        return
    if read.field in ("pod.namespace", "namespace.name"):
        if values and not any(one in stock.namespaces for one in values):
            message = f"there is no namespace {_listed(values)}"
            yield _missed(rule, node, message, str(values[0]), stock.namespaces)
        return
    of_node = read.field != "namespace.label"
    owner, many = ("node", stock.nodes) if of_node else ("namespace", len(stock.namespaces))
    known = stock.node_labels if of_node else _counted(stock.namespaces.values())
    labelled = read.field in ("node.label", "namespace.label")
    key = read.key if labelled else WELL_KNOWN_LABELS.get(read.field)
    if key is None:
        return
    there = known.get(key)
    if there is None:
        # Others write a key and its value with a slash.
        label, _, value = key.partition("/")
        near = {f"{label}={value}"} if value in known.get(label, ()) else known
        yield _missed(rule, node, f"no {owner} has the label {key}", key, near)
    elif values and not any(one in there for one in values):
        wanted = _listed([f"{key}={one}" for one in values])
        shown = closest(str(values[0]), there) or max(sorted(there), key=there.__getitem__)
        some = f"{there[shown]} of {many} have {key}={shown}"
        message = f"no {owner} has the label {wanted} ({some})"
        yield _missed(rule, node, message, str(values[0]), there)


def _missed(
    rule: RuleFacts, node: ir.Expr, message: str, word: str, known: Iterable[str]
) -> Diagnostic:
    near = closest(word, known)
    helps = () if near is None else (f"did you mean `{near}`?",)
    return rule.warning("P401", message, node.span, *helps)


def _listed(words: Sequence[object]) -> str:
    shown = " or ".join(str(one) for one in words[:_MAX_SHOWN])
    return shown + " ..." * (len(words) > _MAX_SHOWN)


# ---- metrics


def question_of(spec: MetricSpec) -> tuple[str, str]:
    """Returns how the inventory calls what is asked for a metric: its query and its labels."""
    return spec.query, ", ".join(spec.keys) or spec.by or ""


def not_sampled(facts: FileFacts, stock: Inventory) -> Iterator[Diagnostic]:
    """Yields metrics of a file that the server has not, or has for few nodes."""
    for name, place in _read(facts).items():
        spec = facts.metrics.get(name)
        if spec is None or spec.source != "promql":
            continue
        answer = stock.metrics.get(question_of(spec))
        said = None if answer is None else _said(spec, answer, stock.nodes)
        if answer is not None and said is not None:
            notes = (f"it says: {answer.error}",) * bool(answer.error)
            query = f"the query: {spec.query}"
            code = "P403" if answer.error else "P402"
            yield warning(code, said[0], (facts.source, place), said[1], notes=(*notes, query))


def _read(facts: FileFacts) -> dict[str, Span]:
    """Returns the metrics that rules read, and where each is declared, else read first."""
    found: dict[str, Span] = {}
    for rule in facts.rules:
        for node in ir.walk(*rule.roots):
            if isinstance(node, ir.Metric | ir.Pair):
                found.setdefault(node.name, node.span)
    for one in facts.statements:
        if isinstance(one, s.MetricDecl) and one.name in found:
            found[one.name] = one.name_span
    return found


def _said(spec: MetricSpec, answer: MetricStock, nodes: int) -> tuple[str, str] | None:
    """Returns what is wrong with the answer to the query of a metric, and what helps."""
    name, of, series = spec.name, spec.of, f"{answer.series:,}"
    if answer.error:
        help_ = "try the query in Prometheus' own page, and mend it here"
        return f"Prometheus refuses the query of `{name}`", help_
    if not answer.series:
        help_ = "look for the name of the series in Prometheus, and whether the exporter runs"
        return f"`{name}` has no series in Prometheus", help_
    if of == "cluster" and answer.series > 1:
        help_ = "let the query give one, as with sum(...) or avg(...); with several it is missing"
        return f"`{name}` is by cluster, and has {series} series in Prometheus", help_
    if of == "cluster" or answer.nodes is None or (of in OF_NODES and not nodes):
        return None
    if answer.nodes == 0:
        within = () if of in (*OF_NODES, "pair") else ("namespace",)
        labels = ", ".join(dict.fromkeys((*within, *(spec.keys or ("instance",)))))
        help_ = f"let the query keep the labels, as in  sum by ({labels}) (...)"
        return f"none of the {series} series of `{name}` names a {of}", help_
    if of in OF_NODES and answer.nodes < _ENOUGH * nodes and spec.default is None:
        help_ = "look why the others have none, or say what holds for them:  default VALUE"
        return f"{answer.nodes:,} of {nodes:,} nodes have a series of `{name}`", help_
    return None
