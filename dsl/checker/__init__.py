"""The tree as written becomes the tree as understood, or diagnostics. Never raises.

Checks one file: names, kinds, units, levels, missing values. Sugar ends here. Knows neither the
parser's tables nor columns.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from dsl import ir
from dsl import syntax as s
from dsl.checker.declarations import declare_name, declare_param
from dsl.checker.engines import EngineChecker
from dsl.checker.expressions import typer_of
from dsl.checker.making import compare, constant, read
from dsl.checker.metrics import declare_metric, find_metric
from dsl.checker.rules import Draft, FilterDraft, RuleChecker, ScoreDraft, StatementDraft
from dsl.checker.scope import (
    LetEntry,
    MetricEntry,
    ParamValue,
    Refused,
    Scope,
)
from dsl.checker.statements import StatementChecker
from dsl.diagnostics import Diagnostic
from dsl.plan import MetricSpec
from dsl.quantities import exact_decimal
from dsl.schema import CATALOGUE, MetricDefinition
from dsl.source import SourceFile, Span
from dsl.types import TEXT, Level

__all__ = [
    "CheckedPolicy",
    "Draft",
    "FileChecker",
    "FilterDraft",
    "ParamValue",
    "ScoreDraft",
    "StatementDraft",
    "policy_name",
]

LANGUAGE: Final = 1
MAX_WEIGHT: Final = 1_000_000.0
_ALL: Final = 100
_EXTENSIONS: Final = (".policy",)


class CheckedPolicy(Struct, frozen=True):
    """A file that was understood."""

    name: str
    name_span: Span
    source: SourceFile
    description: str
    version: str
    mode: str
    order: int
    weight: float
    metrics: tuple[MetricSpec, ...]
    rules: tuple[Draft, ...]


class _Header(Struct):
    """The properties of a file, with their defaults."""

    name: str
    description: str = ""
    version: str = ""
    mode: str = "enforce"
    order: int = 100
    weight: float = 1.0
    seen: dict[str, Span] = field(default_factory=dict)


def policy_name(source: SourceFile, statements: Sequence[s.Statement]) -> str:
    """Returns what a file calls itself, else its file name without folder and ending."""
    for node in statements:
        if isinstance(node, s.Header) and node.name == "policy" and isinstance(node.value, s.Word):
            return node.value.value
    name = source.name.rsplit("/", 1)[-1]
    for ending in _EXTENSIONS:
        name = name.removesuffix(ending)
    return name


class FileChecker:
    """Checks the statements of one file, one step each."""

    def __init__(
        self,
        source: SourceFile,
        statements: Sequence[s.Statement],
        *,
        params: Mapping[str, ParamValue] | None = None,
        metrics: Mapping[str, MetricDefinition] | None = None,
        namespace: str | None = None,
    ) -> None:
        """Starts; with a namespace the rules are for its pods alone."""
        self._statements = tuple(statements)
        self._given = dict(params or {})
        self._scope = Scope(source, {**CATALOGUE, **(metrics or {})})
        self.typer = typer_of(self._scope, self._find_metric)
        self._header = _Header(policy_name(source, statements))
        self._rules: list[Draft] = []
        self._prescores: list[ir.Expr] = []
        self._sorts = False
        # Each by itself: what holds for one of them must not loosen another.
        self._guards: tuple[ir.Expr, ...] = () if namespace is None else (_only_in(namespace),)
        self._norm: s.Clause | None = None
        self._used_metrics: dict[str, MetricSpec] = {}

    def steps(self) -> Iterator[None]:
        """Does the work; stops after each statement."""
        for kind in (s.Broken, s.ParamDecl, s.MetricDecl, s.LetDecl, s.Header, s.NormalizeDecl):
            for node in self._statements:
                if isinstance(node, kind):
                    self._attempt(node)
                    yield
        self._unknown_params()
        for node in self._statements:
            if isinstance(node, s.Rule) and node.point == "prescore":
                self._prescore(node)
                yield
        number = 0
        for node in self._statements:
            match node:
                case s.LetDecl():
                    self._finish_let(node)
                case s.Rule() | s.Special():
                    number += 1
                    self._rule(node, number)
                case _:
                    continue
            yield

    def result(self) -> tuple[CheckedPolicy, tuple[Diagnostic, ...]]:
        """Returns what was understood, and all findings."""
        head = self._header
        policy = CheckedPolicy(
            head.name,
            head.seen.get("policy", Span(0, 0)),
            self._scope.source,
            head.description,
            head.version,
            head.mode,
            head.order,
            head.weight,
            tuple(self._used_metrics.values()),
            tuple(self._rules),
        )
        return policy, tuple(self._scope.found)

    # ---- declarations and header

    def _attempt(self, node: s.Statement) -> None:
        try:
            self._declare(node)
        except Refused:
            return

    def _declare(self, node: s.Statement) -> None:
        scope = self._scope
        match node:
            case s.Broken():
                scope.broken.update(node.declares)
            case s.ParamDecl():
                declare_param(scope, node, self._given.pop(node.name, None))
            case s.MetricDecl():
                declare_metric(scope, node)
            case s.LetDecl():
                declare_name(scope, node.name, node.name_span)
                scope.lets[node.name] = LetEntry(node)
            case s.Header():
                self._head(node)
            case s.NormalizeDecl():
                if self._norm is not None:
                    scope.refuse("P109", "`normalize:` stands twice in this file", node.span)
                self._norm = node.norm
            case _:
                return

    def _unknown_params(self) -> None:
        for name in self._given:
            known = ", ".join(self._scope.params) or "no parameters"
            message = f"the configuration sets `{name}`, and this policy has no such parameter"
            self._scope.report("P105", message, Span(0, 0), f"it has {known}")

    def _head(self, node: s.Header) -> None:
        scope, head = self._scope, self._header
        word = node.name.replace("policy_weight", "weight").replace("_", " ")
        if node.name in head.seen:
            raise scope.refuse("P109", f"`{word}:` stands twice in this file", node.span)
        head.seen[node.name] = node.span
        value = node.value
        text = value.value if isinstance(value, s.Word | s.Text) else ""
        match node.name:
            case "policy":
                head.name = text
            case "description":
                head.description = text.strip()
            case "version":
                head.version = text
            case "language":
                self._language(text, value.span)
            case "mode":
                self._mode(text, value.span)
            case "order":
                head.order = self._whole(text, value.span)
            case "policy_weight":
                head.weight = self._rule_checker().weight(value)
            case _:
                self._guards = (*self._guards, self._applies_to(value))

    def _language(self, text: str, span: Span) -> None:
        if text != str(LANGUAGE):
            message = f"this compiler reads language {LANGUAGE}, not `{text}`"
            raise self._scope.refuse("P901", message, span, f"write  language: {LANGUAGE}")

    def _mode(self, text: str, span: Span) -> None:
        word, _, share = text.partition(" ")
        if share and not 0 < float(share.strip().removesuffix("%")) <= _ALL:
            message = "a canary is more than 0% and at most 100% of the pods"
            raise self._scope.refuse("P111", message, span)
        self._header.mode = f"{word} {share.strip()}".strip()

    def _whole(self, text: str, span: Span) -> int:
        exact = exact_decimal(text)
        if exact is None or exact.denominator != 1 or abs(exact) > MAX_WEIGHT:
            message = f"`order` is a whole number up to {MAX_WEIGHT:,.0f}"
            raise self._scope.refuse("P111", message, span, "the lowest comes first: order: 1")
        return int(exact)

    def _applies_to(self, node: s.Expr) -> ir.Expr:
        guard = self.typer.condition(node, "`applies to`")
        self._rule_checker().pod_only(guard, "`applies to` looks at the pod")
        return guard

    # ---- names

    def _find_metric(self, name: str) -> MetricEntry | None:
        entry = find_metric(self._scope, name)
        if entry is not None and entry.spec is not None:
            self._used_metrics[name] = entry.spec
        return entry

    def _finish_let(self, node: s.LetDecl) -> None:
        entry = self._scope.lets.get(node.name)
        if entry is None or entry.written is not node:
            return
        try:
            self.typer.let_value(entry)
        except Refused:
            return

    # ---- rules

    def _rule_checker(self) -> RuleChecker:
        scores = tuple(self._prescores)
        return RuleChecker(self._scope, self.typer, self._guards, self._norm, scores)

    def _prescore(self, node: s.Rule) -> None:
        try:
            self._prescores.append(self._rule_checker().prescore(node))
        except Refused:
            return

    def _rule(self, node: s.Rule | s.Special, number: int) -> None:
        try:
            draft = self._draft(node, number)
        except Refused:
            return
        if draft is not None:
            self._rules.append(draft)

    def _draft(self, node: s.Rule | s.Special, number: int) -> Draft | None:
        rules = self._rule_checker()
        if isinstance(node, s.Rule):
            return None if node.point == "prescore" else rules.check(node, number)
        if node.point == "sort":
            if self._sorts:
                message = "`sort:` stands twice in this file"
                help_ = "give all keys in one line:  sort: pod.priority desc, pod.queued_at"
                raise self._scope.refuse("P501", message, node.span, help_)
            self._sorts = True
        kind = EngineChecker if node.point in ("preempt", "gang", "quota") else StatementChecker
        return kind(self._scope, self.typer, rules).check(node, number)


def _only_in(namespace: str) -> ir.Expr:
    """Returns `pod.namespace is NAMESPACE`, which nobody wrote."""
    nobody = Span(0, 0)
    own = read(nobody, TEXT, Level.POD, "pod.namespace")
    return compare(nobody, own, "==", constant(nobody, namespace, TEXT))
