"""One expression on its own becomes a typed one, or diagnostics: for `berth eval` and `repl`.

Never raises. An expression is read as in a policy without declarations.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from dsl import ir
from dsl.analysis import Size
from dsl.analysis.cost import BUDGET, units_of
from dsl.checker import FileChecker
from dsl.checker.scope import Refused
from dsl.diagnostics import Diagnostic
from dsl.files import read_source
from dsl.parser import Parser
from dsl.plan import MetricSpec
from dsl.reads import fields_of
from dsl.schema import FIELDS
from dsl.source import Span

__all__ = ["BUDGET", "SIZE", "Understood", "understand"]

SIZE: Final = Size()
_Findings = tuple[Diagnostic, ...]


class Understood(Struct, frozen=True):
    """An expression with its meaning.

    Attributes:
        expr: the typed tree; `expr.type` and `expr.level` are its own.
        reads: the fields and metrics that it reads, each once, in the order of the text.
        metrics: the metrics among them, by `MetricSpec.id`.
        of_pod: whether it reads the pod to place.
        units: what it costs at most per pod, in a cluster of `SIZE`.
    """

    expr: ir.Expr
    reads: tuple[str, ...]
    metrics: Mapping[str, MetricSpec]
    of_pod: bool
    fields: tuple[str, ...]
    units: float


def understand(
    parser: Parser, text: str, *, name: str = "expression"
) -> tuple[Understood | None, _Findings]:
    """Reads an expression; diagnostics call its text `name`."""
    source, problems = read_source(name, text.rstrip())
    if problems:
        return None, problems
    written, refused = parser.expression(source, Span(0, len(source.text)))
    if written is None:
        return None, tuple(map(_of_expression, refused[:1]))
    checker = FileChecker(source, ())
    try:
        tree = checker.rules.plain(checker.rules.expression(written))
    except Refused:
        return None, tuple(checker.rules.found)
    policy, found = checker.result()
    if any(one.is_error for one in found):
        return None, found
    return _understood(tree, {one.id: one for one in policy.metrics}), found


def _of_expression(refused: Diagnostic) -> Diagnostic:
    if refused.code != "P004":
        return refused
    there = refused.source.slice(refused.span)
    message = "this cannot be read as an expression" if there else "there is no expression"
    return replace(refused, code="P001", message=message, helps=())


def _understood(tree: ir.Expr, used: Mapping[str, MetricSpec]) -> Understood:
    met = ir.walk(tree)
    read = dict.fromkeys(one for node in met for one in fields_of(node))
    fields = tuple(one for one in read if one in FIELDS)
    of_pod = any(one.startswith(("pod.", "namespace.", "workload.")) for one in fields)
    return Understood(
        expr=tree,
        reads=tuple(dict.fromkeys(one.rpartition(":")[2] for one in read)),
        metrics=dict(used),
        of_pod=of_pod or any(FIELDS[one].of_pod for one in fields),
        fields=fields,
        units=units_of(tree, SIZE),
    )
