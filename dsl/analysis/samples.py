"""Metrics that Prometheus has no series for, or refuses to compute (P402, P403).

Compares the metrics that rules read with what the server said when the inventory was taken.
"""

from collections.abc import Iterator
from typing import Final

from dsl import ir
from dsl import syntax as s
from dsl.analysis.facts import FileFacts, Inventory, MetricStock, roots, warning
from dsl.diagnostics import Diagnostic
from dsl.plan import OF_NODES, MetricSpec
from dsl.source import Span

_ENOUGH: Final = 0.9


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
        said = None if answer is None else _said(spec, answer)
        if answer is not None and said is not None:
            notes = (f"it says: {answer.error}",) * bool(answer.error)
            query = f"the query: {spec.query}"
            code = "P403" if answer.error else "P402"
            yield warning(code, said[0], facts.source, place, said[1], notes=(*notes, query))


def _read(facts: FileFacts) -> dict[str, Span]:
    """Returns the metrics that rules read, and where each is declared, else read first."""
    found: dict[str, Span] = {}
    for rule in facts.rules:
        for node in ir.walk(*roots(rule.core)):
            if isinstance(node, ir.Metric | ir.Pair):
                found.setdefault(node.name, node.span)
    for one in facts.statements:
        if isinstance(one, s.MetricDecl) and one.name in found:
            found[one.name] = one.name_span
    return found


def _said(spec: MetricSpec, answer: MetricStock) -> tuple[str, str] | None:
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
    if of == "cluster" or answer.nodes is None or (of in OF_NODES and not answer.of):
        return None
    if answer.nodes == 0:
        within = () if of in (*OF_NODES, "pair") else ("namespace",)
        labels = ", ".join(dict.fromkeys((*within, *(spec.keys or ("instance",)))))
        help_ = f"let the query keep the labels, as in  sum by ({labels}) (...)"
        return f"none of the {series} series of `{name}` names a {of}", help_
    if of in OF_NODES and answer.nodes < _ENOUGH * answer.of and spec.default is None:
        help_ = "look why the others have none, or say what holds for them:  default VALUE"
        return f"{answer.nodes:,} of {answer.of:,} nodes have a series of `{name}`", help_
    return None
