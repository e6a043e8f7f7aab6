"""What the analysis is told of a file: its statements and what the checker made of them.

Data only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dsl import ir
from dsl import syntax as s
from dsl.diagnostics import Diagnostic, Label, Severity
from dsl.plan import MetricSpec
from dsl.source import SourceFile, Span

DEFAULT_NODES: Final = 1_000
DEFAULT_PODS: Final = 20_000


@dataclass(frozen=True, slots=True)
class Size:
    """How large a cluster costs are bounded for."""

    nodes: int = DEFAULT_NODES
    pods: int = DEFAULT_PODS


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a cluster has, as `berth inventory` writes it.

    Attributes:
        node_labels: how many nodes have a label, by key and value.
        namespaces: labels by name of the namespace.
        images: images of running pods.
        nodes: number of nodes.
        pods: number of pods.
    """

    node_labels: Mapping[str, Mapping[str, int]]
    namespaces: Mapping[str, Mapping[str, str]]
    images: frozenset[str]
    nodes: int
    pods: int


@dataclass(frozen=True, slots=True, eq=False)
class RuleFacts:
    """A rule without errors.

    Attributes:
        written: the rule as written.
        core: the rule as understood.
        changes: whether it reads anything that evicting pods could change.
    """

    source: SourceFile
    written: s.Rule
    core: ir.FilterCore | ir.ScoreCore
    changes: bool


@dataclass(frozen=True, slots=True, eq=False)
class FileFacts:
    """A file: all its statements, and the rules that were understood.

    Attributes:
        sound: whether nothing of the file is wrong, so that what is not there is not used.
        rank: the place of its rules among those of other files.
        active: whether its rules have any effect (`mode: off` has none).
    """

    source: SourceFile
    statements: Sequence[s.Statement]
    rules: Sequence[RuleFacts]
    metrics: Mapping[str, MetricSpec] = field(default_factory=dict)
    sound: bool = True
    rank: tuple[int, str, str] = (100, "", "")
    active: bool = True


def warning(  # noqa: PLR0913 - the parts of a finding, all but four by name
    code: str,
    message: str,
    source: SourceFile,
    span: Span,
    *helps: str,
    label: str = "",
    labels: tuple[Label, ...] = (),
    notes: tuple[str, ...] = (),
    severity: Severity = Severity.WARNING,
) -> Diagnostic:
    """Returns a finding of the analysis."""
    return Diagnostic(code, message, source, span, severity, label, labels, tuple(helps), notes)
