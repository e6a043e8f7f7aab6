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
from dsl.schema import WELL_KNOWN_LABELS
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
        if answer is not None:
            yield from _look(facts, spec, answer, place)


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


def _look(
    facts: FileFacts, spec: MetricSpec, answer: MetricStock, place: Span
) -> Iterator[Diagnostic]:
    name = spec.name
    if answer.error:
        yield warning(
            "P403",
            f"Prometheus refuses the query of `{name}`",
            facts.source,
            place,
            "try the query in Prometheus' own page, and mend it here",
            notes=(f"it says: {answer.error}", f"the query: {spec.query}"),
        )
    elif not answer.series:
        yield warning(
            "P402",
            f"`{name}` has no series in Prometheus",
            facts.source,
            place,
            "look for the name of the series in Prometheus, and whether the exporter runs",
            notes=(f"the query: {spec.query}",),
        )
    elif spec.of not in OF_NODES:
        yield from _of_others(facts, spec, answer, place)
    elif answer.nodes is not None and answer.of:
        yield from _few(facts, spec, answer, place)


def _of_others(
    facts: FileFacts, spec: MetricSpec, answer: MetricStock, place: Span
) -> Iterator[Diagnostic]:
    """Yields what is wrong with series that are not of nodes: too many, or of nobody."""
    query = f"the query: {spec.query}"
    if spec.of == "cluster" and answer.series > 1:
        yield warning(
            "P402",
            f"`{spec.name}` is by cluster, and has {answer.series:,} series in Prometheus",
            facts.source,
            place,
            "let the query give one, as with sum(...) or avg(...); with several it is missing",
            notes=(query,),
        )
    elif spec.of != "cluster" and answer.nodes == 0:
        pair = spec.of == "pair"
        whose = "both ends of a pair" if pair else f"a {spec.of}"
        labels = spec.keys if pair else tuple(dict.fromkeys(("namespace", *spec.keys)))
        yield warning(
            "P402",
            f"none of the {answer.series:,} series of `{spec.name}` names {whose}",
            facts.source,
            place,
            f"let the query keep the labels, as in  sum by ({', '.join(labels)}) (...)",
            notes=(query,),
        )


def _few(
    facts: FileFacts, spec: MetricSpec, answer: MetricStock, place: Span
) -> Iterator[Diagnostic]:
    if not answer.nodes:
        yield warning(
            "P402",
            f"none of the {answer.series:,} series of `{spec.name}` names a {_owner(spec)}",
            facts.source,
            place,
            _which(spec),
            notes=(f"the query: {spec.query}",),
        )
    elif answer.nodes < _ENOUGH * answer.of and spec.default is None:
        yield warning(
            "P402",
            f"{answer.nodes:,} of {answer.of:,} nodes have a series of `{spec.name}`",
            facts.source,
            place,
            "look why the others have none, or say what holds for them:  default VALUE",
            notes=(f"the query: {spec.query}",),
        )


def _owner(spec: MetricSpec) -> str:
    return spec.of if spec.of == "node" else f"{spec.of} of a node"


def _which(spec: MetricSpec) -> str:
    if spec.of == "node":
        return 'say which label does:  metric NAME = promql "..." by LABEL'
    key = WELL_KNOWN_LABELS[f"node.{spec.of}"]
    return f"the label {spec.keys[0]} of a series has the value that {key} has on the nodes"
