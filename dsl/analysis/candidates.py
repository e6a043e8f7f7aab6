"""Aggregates that do not say which nodes they mean, where that matters (P313, P315).

In a filter they are over all nodes, in a score over those that passed the filters.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from dsl import ir
from dsl.analysis.facts import FileFacts, RuleFacts, roots, warning
from dsl.analysis.keys import Keys, bare
from dsl.diagnostics import Diagnostic
from dsl.source import SourceFile

_SAYS: Final = re.compile(r"\bcandidates\b")


def unsaid_sets(facts: FileFacts) -> Iterator[Diagnostic]:
    """Yields aggregates over candidates that most likely mean all nodes, or both."""
    keys = Keys()
    lets: dict[int, tuple[RuleFacts, ir.Named, set[str]]] = {}
    for rule in facts.rules:
        nodes = ir.walk(*roots(rule.core))
        scores = isinstance(rule.core, ir.ScoreCore | ir.TierCore)
        for node in nodes:
            if isinstance(node, ir.Named):
                known = lets.setdefault(id(node.body), (rule, node, set()))
                known[2].add("score" if scores else "other")
        if scores:
            yield from _counted(rule, nodes, keys)
    for rule, node, points in lets.values():
        if len(points) > 1:
            yield from _both(rule, node)


def _unsaid(rule: RuleFacts, nodes: Sequence[ir.Expr]) -> list[ir.NodeAggregate]:
    return [
        one
        for one in nodes
        if isinstance(one, ir.NodeAggregate)
        and one.over == "candidates"
        and not _SAYS.search(rule.source.slice(one.span))
    ]


def _counted(rule: RuleFacts, nodes: Sequence[ir.Expr], keys: Keys) -> Iterator[Diagnostic]:
    shares = _shares(nodes, keys)
    for one in _unsaid(rule, nodes):
        if one.function != "sum" or one.value is None or keys.key(one) in shares:
            continue
        if not any(isinstance(part, ir.PodAggregate) for part in ir.walk(one.value)):
            continue
        yield warning(
            "P313",
            "this counts the pods of candidate nodes only, and others run on nodes that were"
            " filtered out",
            rule.source,
            one.span,
            f"write  {_with_set(rule.source, one, 'nodes')}   or, if that is meant,"
            f"  {_with_set(rule.source, one, 'candidates')}",
        )


def _shares(nodes: Sequence[ir.Expr], keys: Keys) -> set[int]:
    """Returns the totals in `x / sum(x)`: shares among the candidates, whatever they are of."""
    found: set[int] = set()
    for node in nodes:
        if not isinstance(node, ir.Arith) or "/" not in node.operators:
            continue
        above = [node.operands[0]]
        below: list[ir.Expr] = []
        for operator, operand in zip(node.operators, node.operands[1:], strict=True):
            (below if operator == "/" else above).append(operand)
        tops = {keys.key(one) for one in above}
        for one in map(bare, below):
            if not isinstance(one, ir.NodeAggregate) or one.where is not None:
                continue
            if one.value is not None and keys.key(one.value) in tops:
                found.add(keys.key(one))
    return found


def _with_set(source: SourceFile, one: ir.NodeAggregate, name: str) -> str:
    """Returns `sum(x where y)` with its set named."""
    text = source.slice(one.span)
    if "(" not in text:
        # A bare aggregate names no value of its own.
        inner = source.slice(one.value.span) if one.value is not None else "..."
        return " ".join(f"{text}({inner} over {name})".split())
    end = len(text) - 1
    if one.where is not None:
        end = text.rindex("where", 0, one.where.span.start - one.span.start)
    return " ".join(f"{text[:end].rstrip()} over {name} {text[end:]}".replace(" )", ")").split())


def _both(rule: RuleFacts, node: ir.Named) -> Iterator[Diagnostic]:
    for one in _unsaid(rule, ir.walk(node.body)):
        text = " ".join(rule.source.slice(one.span).split())
        yield warning(
            "P315",
            f"a score and another rule use `{node.name}`, and `{text}` is over all nodes in the"
            " one and over the candidates in the other",
            rule.source,
            one.span,
            f"say which:  {_with_set(rule.source, one, 'nodes')}   or"
            f"   {_with_set(rule.source, one, 'candidates')}",
        )
