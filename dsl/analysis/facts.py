"""What the analysis is told of a file: its statements and what the checker made of them.

Data only.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final, TypedDict, Unpack

from msgspec import Struct, field

from dsl import ir
from dsl import syntax as s
from dsl.diagnostics import Diagnostic, Fix, Label, Severity
from dsl.plan import MetricSpec, UseLine
from dsl.source import SourceFile, Span

DEFAULT_NODES: Final = 1_000
DEFAULT_PODS: Final = 20_000


class Size(Struct, frozen=True):
    """How large a cluster costs are bounded for."""

    nodes: int = DEFAULT_NODES
    pods: int = DEFAULT_PODS

    @classmethod
    def for_cluster(cls, nodes: int, pods: int) -> "Size":
        """Returns the size for a cluster that has so many: it may double before it is outgrown."""
        return cls(max(2 * nodes, DEFAULT_NODES), max(2 * pods, DEFAULT_PODS))


class MetricStock(Struct, frozen=True):
    """What Prometheus said to the query of a metric.

    Attributes:
        by: the labels that name what its values are of; None or empty: any.
        series: how many series it gave.
        nodes: how many nodes have one; None where no nodes were known.
        error: why the server refused the query, empty or None if it did not.
    """

    query: str
    by: str | None = None
    series: int = 0
    nodes: int | None = None
    error: str | None = None


class Inventory(Struct, frozen=True):
    """What a cluster has, as `berth inventory` writes it.

    Attributes:
        node_labels: how many nodes have a label, by key and value.
        namespaces: labels by name of the namespace.
        nodes: number of nodes.
        pods: number of pods.
        metrics: answers of Prometheus, by query and the label that names the node (empty: any).
    """

    node_labels: Mapping[str, Mapping[str, int]]
    namespaces: Mapping[str, Mapping[str, str]]
    nodes: int
    pods: int
    metrics: Mapping[tuple[str, str], MetricStock] = field(default_factory=dict)


class _More(TypedDict, total=False):
    label: str
    labels: tuple[Label, ...]
    notes: tuple[str, ...]
    severity: Severity
    fix: Fix | None


class RuleFacts(Struct, frozen=True, eq=False, dict=True):
    """A rule without errors.

    Attributes:
        written: the rule as written.
        core: the rule as understood.
        point: where it is asked; what one point rejects the next one never sees.
        changes: whether it reads anything that evicting pods could change.
        given: where values of parameters stand in the file, in order.
        used: the `use` line that it came by, None for a rule of the file itself.
    """

    source: SourceFile
    written: s.Rule | s.Special
    core: ir.AnyCore
    point: str
    changes: bool
    given: tuple[Span, ...] = ()
    used: UseLine | None = None

    @cached_property
    def roots(self) -> list[ir.Expr]:
        """All its expressions, as written."""
        return roots(self.core)

    @property
    def right(self) -> Span:
        """Where the right side stands; the whole statement where it is several clauses."""
        return self.written.right.span if isinstance(self.written, s.Rule) else self.written.span

    def clause(self, name: str) -> s.Clause | None:
        """Returns the clause of a name."""
        return next((one for one in self.written.clauses if one.name == name), None)

    @property
    def word(self) -> tuple[SourceFile, Span]:
        """Where the word of its statement stands."""
        line = self.source.position(self.written.span.start)[0]
        start = self.source.line_starts[line - 1]
        return self.source, Span(start, start + len(self.written.keyword))

    def text(self, span: Span) -> str:
        """Returns what is written somewhere, on one line."""
        return self.source.words(span)

    def warning(
        self, code: str, message: str, span: Span, *helps: str, **more: Unpack[_More]
    ) -> Diagnostic:
        """Returns a finding about a part of the rule."""
        return warning(code, message, (self.source, span), *helps, **more)

    def place(self, span: Span) -> tuple[SourceFile, Span]:
        """Where a finding about a part of the rule is shown: in a file of the user's."""
        return (self.source, span) if self.used is None else (self.used.source, self.used.span)


#: What statements ask and compute, but for their guards; and their orders.
_ASKED: Final = ("left", "right", "value", "until", "where", "by", "minimum", "wait")
_ORDERS: Final = ("keys", "order", "pick", "reclaim")


def parts(core: ir.AnyCore) -> tuple[ir.Expr, ...]:
    """Returns what a statement asks and computes as it is written, but for its guard."""
    asked: list[ir.Expr | str | None] = [getattr(core, one, None) for one in _ASKED]
    asked += [core.test] if isinstance(core, ir.TierCore) else []
    asked += [key.value for name in _ORDERS for key in getattr(core, name, ())]
    for one in getattr(core, "actions", ()):
        asked += [one.value, *(one.text.parts if one.text else ())]
    return tuple(one for one in asked if isinstance(one, ir.Core))


def roots(core: ir.AnyCore) -> list[ir.Expr]:
    """Returns all expressions of a statement as it is written."""
    return [*([] if core.guard is None else [core.guard]), *parts(core)]


def fields_of(*nodes: ir.Expr | None) -> set[tuple[str, str | None]]:
    """Returns the fields that are read, with their keys."""
    return {(one.field, one.key) for one in ir.walk(*nodes) if isinstance(one, ir.Read)}


class FileFacts(Struct, frozen=True, eq=False):
    """A file: all its statements, and the rules that were understood.

    Attributes:
        sound: whether nothing of the file is wrong, so that what is not there is not used.
        rank: the place of its rules among those of other files.
        used: the `use` line that it came by; then its text was looked at elsewhere.
    """

    source: SourceFile
    statements: Sequence[s.Statement]
    rules: Sequence[RuleFacts]
    metrics: Mapping[str, MetricSpec] = field(default_factory=dict)
    sound: bool = True
    rank: tuple[int, str, str] = (100, "", "")
    mode: str = "enforce"
    used: UseLine | None = None


def warning(
    code: str, message: str, place: tuple[SourceFile, Span], *helps: str, **more: Unpack[_More]
) -> Diagnostic:
    """Returns a finding of the analysis."""
    more.setdefault("severity", Severity.WARNING)
    return Diagnostic(code, message, *place, helps=helps, **more)
