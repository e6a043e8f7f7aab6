"""One expression on its own becomes a typed one, or diagnostics: for `berth eval` and `repl`.

Never raises. An expression is read as in a policy that has the given declarations.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from dsl import ir
from dsl import syntax as s
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
from dsl.source import SourceFile, Span

__all__ = ["BUDGET", "SIZE", "Understood", "check_declarations", "declaration_name", "understand"]

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
    parser: Parser, text: str, *, declarations: str = "", name: str = "expression"
) -> tuple[Understood | None, _Findings]:
    """Reads an expression; `declarations` are lines that it may use, each ends with a line end."""
    source, problems = read_source(name, declarations + text.rstrip())
    if problems:
        return None, problems
    before, _ = read_source(name, declarations)
    span = Span(len(before.text), len(source.text))
    written, refused = parser.expression(source, span)
    if written is None:
        return None, tuple(map(_of_expression, refused[:1]))
    checker = _checked(parser, source, before)
    try:
        tree = checker.rules.plain(checker.rules.expression(written))
    except Refused:
        return None, tuple(checker.rules.found)
    policy, found = checker.result()
    if any(one.is_error for one in found):
        return None, found
    return _understood(tree, {one.id: one for one in policy.metrics}), found


def check_declarations(parser: Parser, text: str, *, declarations: str = "") -> _Findings:
    """Returns what is wrong with a line of `let`, `param` or `metric` after others."""
    source, problems = read_source("line", declarations + text.rstrip() + "\n")
    if problems:
        return problems
    return _checked(parser, source, source).result()[1]


def declaration_name(parser: Parser, text: str) -> str | None:
    """Returns the name that a single `let`, `param` or `metric` line declares, else None."""
    source, problems = read_source("declaration", text)
    if problems:
        return None
    there, _ = parser.whole(source)
    one = there[0] if len(there) == 1 else None
    return one.name if isinstance(one, s.LetDecl | s.ParamDecl | s.MetricDecl) else None


def _checked(parser: Parser, source: SourceFile, declarations: SourceFile) -> FileChecker:
    """Returns what has checked the declarations of `source`, which is how its text begins."""
    statements, found = parser.whole(declarations)
    checker = FileChecker(source, statements)
    checker.rules.found.extend(found)
    for _ in checker.steps():
        pass
    return checker


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
