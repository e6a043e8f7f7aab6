"""One expression on its own becomes a typed one, or diagnostics: for `berth eval` and `repl`.

Never raises. An expression is read as in a policy that has the given declarations.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

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
from dsl.schema import FIELDS, NODE_SETS, POD_SETS
from dsl.source import SourceFile, Span
from dsl.types import Level

__all__ = ["BUDGET", "SIZE", "Understood", "check_declarations", "declaration_name", "understand"]

SIZE: Final = Size()
_Findings = tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True)
class Understood:
    """An expression with its meaning.

    Attributes:
        expr: the typed tree; `expr.type` and `expr.level` are its own.
        reads: the fields and metrics that it reads, each once, in the order of the text.
        metrics: the metrics among them, by `MetricSpec.id`.
        of_pod: whether it reads the pod to place.
        fields: the fields of the table among them.
        units: what it costs at most per pod, in a cluster of `SIZE`.
    """

    expr: ir.Expr
    reads: tuple[str, ...]
    metrics: Mapping[str, MetricSpec]
    of_pod: bool
    fields: tuple[str, ...]
    units: float


def understand(
    parser: Parser,
    text: str,
    *,
    declarations: str = "",
    name: str = "expression",
) -> tuple[Understood | None, _Findings]:
    """Reads an expression; `declarations` are lines that it may use, each ends with a line end."""
    source, problems = read_source(name, declarations + text.rstrip())
    if problems:
        return None, problems
    before, _ = read_source(name, declarations)
    span = Span(len(before.text), len(source.text))
    written, refused = parser.expression(source, span)
    if written is None:
        return None, () if refused is None else (_of_expression(refused),)
    checker = _checked(parser, source, before)
    scope = checker.typer.scope
    try:
        tree = checker.typer.plain(checker.typer.expression(written))
    except Refused:
        return None, tuple(scope.found)
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
    there = [one for one, _ in parser.statements(source)]
    one = there[0] if len(there) == 1 else None
    return one.name if isinstance(one, s.LetDecl | s.ParamDecl | s.MetricDecl) else None


def _checked(parser: Parser, source: SourceFile, declarations: SourceFile) -> FileChecker:
    """Returns what has checked the declarations of `source`, which is how its text begins."""
    found: list[Diagnostic] = []
    statements: list[s.Statement] = []
    for statement, findings in parser.statements(declarations):
        found.extend(findings)
        statements.extend([] if statement is None else [statement])
    checker = FileChecker(source, statements)
    checker.typer.scope.found.extend(found)
    for _ in checker.steps():
        pass
    return checker


def _of_expression(refused: Diagnostic) -> Diagnostic:
    """Findings about the start of a statement, said of an expression."""
    if refused.code != "P004":
        return refused
    there = refused.source.slice(refused.span)
    message = "this cannot be read as an expression" if there else "there is no expression"
    return replace(refused, code="P001", message=message, helps=())


def _understood(tree: ir.Expr, used: Mapping[str, MetricSpec]) -> Understood:
    fields: dict[str, None] = {}
    reads: dict[str, None] = {}
    for node in ir.walk(tree):
        for field, shown in _reads(node):
            reads.setdefault(shown)
            if field in FIELDS:
                fields.setdefault(field)
    of_pod = any(one.startswith(("pod.", "namespace.", "workload.")) for one in fields)
    return Understood(
        expr=tree,
        reads=tuple(reads),
        metrics=dict(used),
        of_pod=of_pod or any(FIELDS[one].of_pod for one in fields),
        fields=tuple(fields),
        units=units_of(tree, SIZE),
    )


def _reads(node: ir.Expr) -> Iterator[tuple[str, str]]:
    """The field that a node reads itself, and how it is shown."""
    match node:
        case ir.Read(field=field, key=key):
            yield field, field if key is None else _keyed(field, key)
        case ir.ContainerRead(field=field, key=key):
            shown = f"it.{field}"
            yield "", shown if key is None else _keyed(shown, key)
        case ir.KeyedRead(field=field):
            yield field, _keyed(field, "...")
        case ir.Metric(name=name):
            yield "", name
        case ir.Pair(name=name):
            yield "", f"{name}(...)"
        case ir.PodAggregate(over=over, table=table):
            named = (one for one, place in POD_SETS.items() if place == (over, table))
            field = next(named, "cluster.pods")
            yield field, field
        case ir.NodeAggregate(level=Level.NODE, over=over):
            field = next((one for one, place in NODE_SETS.items() if place == over), "node.label")
            yield field, field if field in NODE_SETS else _keyed(field, over.partition(":")[2])
        case ir.ContainerAggregate():
            yield "pod.containers", "pod.containers"
        case _:
            return


def _keyed(field: str, key: str) -> str:
    """A field and its key as they are written: `node.resource[cpu].free`."""
    before, resource, part = field.partition(".resource.")
    return f"{before}{resource.rstrip('.')}[{key}]{'.' if part else ''}{part}"
