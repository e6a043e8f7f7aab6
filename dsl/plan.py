"""What a compiled policy is, and what it asks of the world; data and protocols only.

The engine implements `World` and `Subject`; nothing else crosses between the two.

A `Plan` has a tuple of rules for each extension point (`gates`, `sorts`, `prefilters`, `filters`,
`scores`, `tiers`, `reserves`, `permits`, `prebinds`, `binds`, `postbinds`, `preempts`, `gangs`,
`quotas`), and answers what they say together, about one pod, on one snapshot:

    gated(subject, world)                       Stop | None: why the pod waits before the queue
    sort_key(subject, world)                    tuple | None: smaller comes first; None = no `sort:`
    stopped(subject, world)                     Stop | None: the first prefilter that refuses
    score(parts, world, rows)                   column | None, as before
    preferred(subject, world, rows)             mask: the candidates of the best tiers (`first:`)
    reserved(subject, world, row)               Stop | None: the first `reserve:` that refuses
    permitted(subject, world, row, waited)      Permission(verdict, ...): allow, wait or reject
    prebind(subject, world, row, results)       tuple[Effect, ...]: kind, key and text
    postbind(subject, world, row, results)      the same
    annotations(subject, world, row, results)   dict of what prebind and postbind annotate
    binder(subject, world)                      BindRule | None: the first that applies
    preemption(subject, world)                  PreemptRule | None: the first that applies; then
        rule.victims(subject, world, row, fits, protected)   pod rows | None for one node
        rule.best(subject, world, victims, violations)       the node row to choose
    gang(subject, world)                        Gang | None: key, member rows, minimum
    over_quota(subject, world)                  Stop | None: the first quota the pod would exceed

From `reserve` on, `world` holds the pod itself on the chosen node. `results` are the scores of the
chosen node: `{"score.total": 93.5}`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dsl.ir import FilterCore, ScoreCore
from dsl.source import SourceFile, Span

#: `slice(0, n)` is a full pass; an index array names changed rows or candidates.
Rows = slice | NDArray[np.intp]
#: A pod's values that a rule needs: the pod's class key for that rule.
Parts = tuple[float | str | bool | tuple[str, ...] | None, ...]
Column = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Dictionary(Protocol):
    """Texts and their codes; it only grows and all columns share it."""

    def code(self, text: str) -> int:
        """Returns the code of a text, a new one if need be."""

    def find(self, text: str) -> int:
        """Returns the code of a text, -1 if it has none."""

    @property
    def texts(self) -> Sequence[str]:
        """The texts by code."""


class World(Protocol):
    """One snapshot as columns.

    Arrays are borrowed and read-only, of full length N (rows of nodes) or P (rows of pods).
    Cores are milli-cores; bytes, seconds and counts are plain.
    """

    # INVARIANT: two worlds that differ in any node or pod column never share a generation,
    # unless they also have different dictionaries.
    @property
    def generation(self) -> int:
        """Changes whenever any node or pod column may have changed."""

    @property
    def nodes(self) -> int:
        """N, the number of node rows."""

    @property
    def present(self) -> Mask:
        """(N,) rows that hold a node."""

    @property
    def now(self) -> float:
        """Epoch seconds of the cycle."""

    @property
    def dictionary(self) -> Dictionary:
        """The texts behind all codes."""

    @property
    def pod_node(self) -> NDArray[np.int32]:
        """(P,) node row of each pod row; -1 for a row without a pod."""

    def node_number(self, field: str, key: str | None) -> Column:
        """(N,) numbers of a node field; NaN = missing."""

    def node_text(self, field: str, key: str | None) -> NDArray[np.int32]:
        """(N,) codes of a node field; -1 = missing."""

    def node_flag(self, field: str, key: str | None) -> Mask:
        """(N,) flags of a node field."""

    def metric(self, name: str) -> Column:
        """(N,) last samples in the base unit; NaN = missing or stale. `name`: `MetricSpec.id`."""

    def metric_age(self, name: str) -> Column:
        """(N,) seconds since the last sample; NaN = none."""

    def pod_number(self, field: str, key: str | None) -> Column:
        """(P,) numbers of a field of running pods (`it.memory`)."""

    def pod_text(self, field: str, key: str | None) -> NDArray[np.int32]:
        """(P,) codes of a field of running pods."""

    def pod_flag(self, field: str, key: str | None) -> Mask:
        """(P,) flags of running pods."""

    def cycle_number(self, field: str) -> float:
        """A number of the whole cluster or of the clock."""

    def cycle_text(self, field: str) -> str | None:
        """A text of the clock: `time.weekday`."""


class Subject(Protocol):
    """The pod to be placed; fields are named as in the schema."""

    def number(self, field: str, key: str | None) -> float:
        """A number; NaN = missing."""

    def text(self, field: str, key: str | None) -> str | None:
        """A text; None = missing."""

    def texts(self, field: str) -> tuple[str, ...]:
        """A list of texts."""

    def flag(self, field: str, key: str | None) -> bool:
        """A flag."""


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """A metric a policy reads, ready to be asked for.

    Attributes:
        id: the same for equal source and options, whatever the file; what `World.metric` takes.
        unit: `bytes`, `cores/s`, ... or empty for a plain number.
        scale: what a raw sample is multiplied by to get the base unit (0.01 for percent).
    """

    id: str
    name: str
    query: str
    by: str | None
    every_seconds: float
    stale_seconds: float
    default: float | None
    unit: str
    scale: float = 1.0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RuleBase:
    """What all compiled rules have.

    Attributes:
        id: `file#n`, counted from 1 over the statements with an extension point.
        reads: schema names of the fields, `metric:NAME` and `metric_age:NAME` for metrics.
        row_local: whether a node's value depends on that node and the pod only.
        prepare: gives the pod's parts, or None when the left side is false.
    """

    id: str
    line: int
    text: str
    span: Span
    source: SourceFile
    reads: frozenset[str]
    row_local: bool
    reads_pods: bool
    reads_metrics: bool
    reads_time: bool
    prepare: Callable[[Subject, World], Parts | None]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FilterRule(RuleBase):
    """A compiled `filter:`, `require:` or `forbid:`.

    `verdict(parts, world, rows)` gives a mask of the length of `rows`: True = the node passes.
    `message(subject, world, row)` says why it did not.
    """

    core: FilterCore
    status: str
    verdict: Callable[[Parts, World, Rows], Mask]
    message: Callable[[Subject, World, int], str]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ScoreRule(RuleBase):
    """A compiled `score:`, `prefer:` or `avoid:`.

    `column(parts, world, rows, candidates)` gives raw values on `rows`, NaN = missing.
    `finish(raw)` takes the raw values of all candidates, in their order, and gives scores in
    0..100; None when the statement abstains.
    """

    core: ScoreCore
    weight: float
    column: Callable[[Parts, World, Rows, NDArray[np.intp]], Column]
    finish: Callable[[Column], Column | None]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Plan:
    """A compiled policy. `weight` may be changed by configuration, everything else is text."""

    name: str
    name_span: Span
    source: SourceFile
    description: str = ""
    version: str = ""
    mode: str = "enforce"
    order: int = 100
    weight: float = 1.0
    metrics: tuple[MetricSpec, ...] = ()
    reads: frozenset[str] = frozenset()
    filters: tuple[FilterRule, ...] = ()
    scores: tuple[ScoreRule, ...] = ()
    combine: Callable[[Sequence[tuple[float, Column | None]]], Column | None]

    def score(
        self, parts: Sequence[Parts | None], world: World, rows: NDArray[np.intp]
    ) -> Column | None:
        """Returns the policy's score of the candidates, None when every statement abstains.

        Args:
            parts: what `prepare` gave for each of `scores`, None where it does not apply.
            world: the snapshot.
            rows: the candidates, the nodes that passed all filters.
        """
        columns: list[tuple[float, Column | None]] = []
        for rule, own in zip(self.scores, parts, strict=True):
            if own is not None:
                raw = rule.column(own, world, rows, rows)
                columns.append((rule.weight, rule.finish(raw)))
        return self.combine(columns)
