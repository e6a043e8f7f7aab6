"""What a cycle returns: a record from which the decision can be told, checked and replayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.framework.podinfo import PodInfo
from engine.framework.snapshot import Snapshot
from engine.framework.status import Status


@dataclass(frozen=True, slots=True)
class FitError:
    """No node fits: how many were there, and how often each reason was given.

    A node counts once for each reason of the first plugin that rejected it. Nodes that a PreFilter
    left out count for its message.

    Source: kubernetes pkg/scheduler/framework/types.go, FitError.Error.
    """

    nodes: int
    reasons: Mapping[str, int]
    pre_filter_message: str = ""
    plugins: frozenset[str] = frozenset()

    def message(self) -> str:
        """The text of the FailedScheduling event, as kube-scheduler words it."""
        head = f"0/{self.nodes} nodes are available"
        if self.pre_filter_message:
            return f"{head}: {self.pre_filter_message}."
        if not self.reasons:
            return f"{head}."
        return f"{head}: {', '.join(sorted(_counted(n, r) for r, n in self.reasons.items()))}."


def _counted(nodes: int, reason: str) -> str:
    if reason[:1].isdigit():  # a rule's own words; two numbers would read as one
        return f"{nodes} node{'s' if nodes != 1 else ''}: {reason}"
    return f"{nodes} {reason}"


@dataclass(frozen=True, slots=True)
class PluginScore:
    """What one plugin gave the chosen node: before and after normalisation, and its weight."""

    plugin: str
    raw: float
    normalized: float
    weight: float


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of one cycle.

    Exactly one of `node`, `fit_error` and `error` is set. `generation` and `bundle` name the state
    and the rules it was made from.
    """

    pod: PodInfo
    node: str | None
    row: int
    generation: int
    bundle: str
    evaluated: int
    feasible: int
    total: float = 0.0
    ties: int = 0
    scores: tuple[PluginScore, ...] = ()
    rejected: Mapping[str, int] = field(default_factory=Counter)
    """plugin -> nodes it was the first to reject; empty while every node passed."""
    fit_error: FitError | None = None
    error: Status | None = None

    @property
    def placed(self) -> bool:
        """True if a node was found."""
        return self.node is not None


@dataclass(frozen=True, slots=True)
class Placed:
    """A decision as it was made, for whoever watches: the demo, a recorder, an explanation.

    `seconds` is what the cycle took. The snapshot is borrowed: good only while the observer runs.
    """

    decision: Decision
    snapshot: Snapshot
    seconds: float
