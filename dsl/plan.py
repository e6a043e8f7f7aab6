"""What a compiled policy is, rule by rule, and what its rules say together of one pod.

The engine asks it with a `World` and a `Subject`, see `dsl.world`.

A `Plan` has a tuple of rules for each extension point, and answers what they say together, about
one pod, on one snapshot. What a preemption, a gang and a quota come to is told by `dsl.collective`;
the engine searches for victims, places gangs and keeps accounts.

From `reserve` on, `world` holds the pod itself on the chosen node. `results` are the scores of the
chosen node: `{"score.total": 93.5}`.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, TypeVar

from msgspec import Struct

from dsl import ir
from dsl.collective import Amounts, Claims, Evictions, GangTerms, Key, Limits, QuotaUse
from dsl.ir import FilterCore, ScoreCore
from dsl.source import SourceFile, Span
from dsl.world import Column, Indices, Mask, Parts, Rows, Subject, World

_T = TypeVar("_T")
#: What a rule says of a pod, and of a pod on the node of a row.
OfPod = Callable[[Subject, World], _T]
OnNode = Callable[[Subject, World, int], _T]
#: Quotas that are objects of the cluster, by what they are the quota of: their namespace.
Quotas = Mapping[Key, Limits]


#: Domains of nodes with metrics of their own, and all whose metrics each node has a value of.
DOMAINS: Final = ("zone", "region", "rack")
OF_NODES: Final = ("node", *DOMAINS)


class MetricSpec(Struct, frozen=True):
    """A metric a policy reads, ready to be asked for.

    Attributes:
        source: `promql`, `annotation`, `usage` or `object`.
        of: whose values they are: `node`, `zone`, `region`, `rack`, `cluster`, `namespace`,
            `workload`, `pod` or `pair`.
        keys: result labels by which samples find them; of a pair both.
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
    source: str = "promql"
    of: str = "node"
    keys: tuple[str, ...] = ()

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The labels that say whose a series is; None: those that are usual for such values."""
        if self.of == "node":
            return None if self.by is None else (self.by,)
        return None if self.keys in ((self.of,), ("namespace", self.of)) else self.keys


class RuleBase(Struct, frozen=True, eq=False, kw_only=True):
    """What all compiled rules have.

    Attributes:
        id: `file#n`, counted from 1 over the statements with an extension point.
        reads: schema names of the fields, `metric:NAME` and `metric_age:NAME` for metrics.
        row_local: whether a node's value depends on that node and the pod only.
        prepare: gives the pod's parts, or None when the left side is false.
        turns: of a rule that compares something with `now`, the seconds until the clock alone may
            change what it says of the pod on some node, infinite for never; None if it does not,
            or cannot be told.
    """

    id: str
    line: int
    text: str
    span: Span
    source: SourceFile
    reads: frozenset[str]
    row_local: bool
    reads_metrics: bool
    reads_time: bool
    prepare: OfPod[Parts | None]
    turns: OfPod[float] | None = None


class FilterRule(RuleBase, frozen=True, kw_only=True):
    """A compiled `filter:`, `require:` or `forbid:`.

    `verdict(parts, world, rows)` gives a mask of the length of `rows`: True = the node passes.
    `message(subject, world, row)` says why it did not; `alike(subject, world, rows)` whether it
    says the same of all these rows, none of which passes; at times that is no where it does.
    `told(subject, world)` is what the words of `message` say of the pod; None: they are the same
    for all pods with equal parts.
    """

    core: FilterCore
    status: str
    verdict: Callable[[Parts, World, Rows], Mask]
    message: OnNode[str]
    alike: Callable[[Subject, World, Indices], bool]
    told: OfPod[Hashable] | None


class ScoreRule(RuleBase, frozen=True, kw_only=True):
    """A compiled `score:`, `prefer:` or `avoid:`.

    `column(parts, world, rows, candidates)` gives raw values on `rows`, NaN = missing.
    `finish(raw)` takes the raw values of all candidates, in their order, and gives scores in
    0..100; None when the statement abstains.
    """

    core: ScoreCore
    weight: float
    column: Callable[[Parts, World, Rows, Rows], Column]
    finish: Callable[[Column], Column | None]


class ConditionRule(RuleBase, frozen=True, kw_only=True):
    """A compiled `gate:`, `prefilter:` or `reserve:`.

    `holds(subject, world, row)` and `message` take -1 for the row before a node is chosen.
    """

    core: FilterCore
    status: str
    holds: OnNode[bool]
    message: OnNode[str]


class TierRule(RuleBase, frozen=True, kw_only=True):
    """A compiled `first:`; `mask(parts, world, candidates)` says which candidates it prefers."""

    core: ir.TierCore
    mask: Callable[[Parts, World, Indices], Mask]


class SortRule(RuleBase, frozen=True, kw_only=True):
    """A compiled `sort:`; keys compare with those of other pods, smaller comes first."""

    core: ir.SortCore
    key: OfPod[tuple[Any, ...]]


class PermitRule(RuleBase, frozen=True, kw_only=True):
    """A compiled `permit:`; `applies` and `until` look at the chosen node."""

    core: ir.PermitCore
    status: str
    applies: OnNode[bool]
    until: OnNode[bool]
    message: OnNode[str]


class Effect(Struct, frozen=True):
    """What an action comes to: `annotate` and `label` have a key, `event` has its text."""

    kind: str
    key: str
    text: str


#: Scores and other outcomes by their field: `score.total`.
Results = Mapping[str, float]


class ActionRule(RuleBase, frozen=True, kw_only=True):
    """A compiled `prebind:` or `postbind:`."""

    core: ir.ActionCore
    effects: Callable[[Subject, World, int, Results], tuple[Effect, ...]]


class BindRule(RuleBase, frozen=True, kw_only=True):
    """A compiled `bind:`; it applies where `prepare` does not give None."""

    core: ir.BindCore


class PreemptRule(RuleBase, frozen=True, kw_only=True):
    """A compiled `preempt:`; `evictions` says who may go, None for `never`."""

    core: ir.PreemptCore
    evictions: OfPod[Evictions | None]


class GangRule(RuleBase, frozen=True, kw_only=True):
    """A compiled `gang:`.

    `key` is what the members of the pod's gang have in common, None for a pod that is in none;
    `terms` what the gang asks for; `mates` the rows of its other members among the pods on nodes.
    """

    core: ir.GangCore
    key: OfPod[Key | None]
    terms: OfPod[GangTerms | None]
    mates: OfPod[tuple[int, ...]]


class QuotaRule(RuleBase, frozen=True, kw_only=True):
    """A compiled `quota:`.

    `use` takes the quotas that are objects of the cluster, by key; `message` is what the policy
    says of a pod that does not fit; `claims` whom an elastic one may look at to make room. `owner`
    says whose quota a pod is of by what it reads of the pod (`owner_reads`, None if more than that
    and its namespace), `used` what pods with a node use of some resources, by owner.
    """

    core: ir.QuotaCore
    status: str
    use: Callable[[Subject, World, Quotas], QuotaUse]
    message: OfPod[str | None]
    claims: Callable[[Subject, World, QuotaUse], Claims]
    owner: OfPod[Key | None]
    used: Callable[[Subject, World, Sequence[str]], Mapping[Key, Amounts]]
    owner_reads: frozenset[str] | None


class Stop(Struct, frozen=True):
    """A pod goes no further: which rule says so, with which status and why."""

    rule: RuleBase
    status: str
    message: str


class Permission(Struct, frozen=True):
    """What `permit:` says of a pod on its node: `verdict` is `allow`, `wait` or `reject`.

    `seconds` is how long it may wait in all.
    """

    verdict: str
    rule: PermitRule | None = None
    seconds: float = 0.0
    status: str = ""
    message: str = ""


#: The row before a node is chosen.
NOWHERE: Final = -1


class UseLine(Struct, frozen=True, eq=False):
    """The line `use NAME ...` in a file of the user's that a policy came by."""

    source: SourceFile
    span: Span
    name: str

    @property
    def place(self) -> tuple[SourceFile, Span]:
        """Where findings about the policy are shown."""
        return self.source, self.span


class Head(Struct, frozen=True, kw_only=True):
    """What a policy says of itself, and the metrics that it reads."""

    name: str
    name_span: Span = Span(0, 0)
    source: SourceFile
    version: str = ""
    mode: str = "enforce"
    order: int = 100
    weight: float = 1.0
    metrics: tuple[MetricSpec, ...]


class Plan(Head, frozen=True, eq=False, kw_only=True):
    """A compiled policy. `weight` may be changed by configuration, everything else is text.

    `variant` tells instances of one text apart: the parameters that a `use` gave, in line `used`.
    """

    variant: str = ""
    used: UseLine | None = None
    reads: frozenset[str]
    filters: tuple[FilterRule, ...] = ()
    scores: tuple[ScoreRule, ...] = ()
    gates: tuple[ConditionRule, ...] = ()
    sorts: tuple[SortRule, ...] = ()
    prefilters: tuple[ConditionRule, ...] = ()
    tiers: tuple[TierRule, ...] = ()
    reserves: tuple[ConditionRule, ...] = ()
    permits: tuple[PermitRule, ...] = ()
    prebinds: tuple[ActionRule, ...] = ()
    binds: tuple[BindRule, ...] = ()
    postbinds: tuple[ActionRule, ...] = ()
    preempts: tuple[PreemptRule, ...] = ()
    gangs: tuple[GangRule, ...] = ()
    quotas: tuple[QuotaRule, ...] = ()
    combine: Callable[[Sequence[tuple[float, Column | None]]], Column | None]

    @property
    def place(self) -> tuple[SourceFile, Span]:
        """Where findings about the whole policy are shown."""
        return (self.source, self.name_span) if self.used is None else self.used.place

    def score(self, parts: Sequence[Parts | None], world: World, rows: Rows) -> Column | None:
        """Returns the policy's score of the candidates, None when every statement abstains.

        `parts` is what `prepare` gave for each of `scores`.
        """
        columns: list[tuple[float, Column | None]] = []
        for rule, own in zip(self.scores, parts, strict=True):
            if own is not None:
                raw = rule.column(own, world, rows, rows)
                columns.append((rule.weight, rule.finish(raw)))
        return self.combine(columns)

    def sort_key(self, subject: Subject, world: World) -> tuple[Any, ...] | None:
        """Returns the pod's place in the queue, smaller first; None without a `sort:`."""
        return self.sorts[0].key(subject, world) if self.sorts else None

    def preferred(self, subject: Subject, world: World, rows: Indices) -> Mask | None:
        """Returns which candidates are in the best tier; None: no `first:` tells them apart."""
        best: Mask | None = None
        for rule in self.tiers:
            parts = rule.prepare(subject, world)
            if parts is None:
                continue
            mask = rule.mask(parts, world, rows)
            mask = mask if best is None else best & mask
            if mask.any():
                best = mask
        return best

    def preemption(self, subject: Subject, world: World) -> PreemptRule | None:
        """Returns the `preempt:` that applies to the pod."""
        return next((one for one in self.preempts if one.prepare(subject, world) is not None), None)

    def permitted(
        self, subject: Subject, world: World, row: int, waited: float = 0.0
    ) -> Permission:
        """Returns what the first `permit:` that applies says; without one the pod is allowed."""
        rule = next((one for one in self.permits if one.applies(subject, world, row)), None)
        if rule is None:
            return Permission("allow")
        verdict, core = rule.core.decision, rule.core
        if verdict == "wait":
            if rule.until(subject, world, row):
                verdict = "allow"
            elif waited >= core.seconds:
                verdict = core.then
        message = rule.message(subject, world, row) if verdict != "allow" else ""
        return Permission(verdict, rule, core.seconds, rule.status, message)

    def binder(self, subject: Subject, world: World) -> BindRule | None:
        """Returns the `bind:` that applies to the pod."""
        return next((one for one in self.binds if one.prepare(subject, world) is not None), None)


def stop_by(
    rules: Sequence[ConditionRule], subject: Subject, world: World, row: int = NOWHERE
) -> Stop | None:
    """Returns which gate, prefilter or reserve keeps a pod from going on, the first that does."""
    for rule in rules:
        if not rule.holds(subject, world, row):
            return Stop(rule, rule.status, rule.message(subject, world, row))
    return None


def effects_of(
    rules: Sequence[ActionRule], subject: Subject, world: World, row: int, results: Results
) -> tuple[Effect, ...]:
    """Returns what is to be done before or after the pod is bound to a node, in order."""
    return tuple(one for rule in rules for one in rule.effects(subject, world, row, results))
