"""Files of policies become plans, or diagnostics. Never raises; no I/O.

`Compiler.steps` is the same work as a generator, one statement a step, for a caller that may not
stop for long.
"""

import hashlib
import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dsl import reference
from dsl.analysis import FileFacts, Inventory, RuleFacts, Size, analyse
from dsl.checker import CheckedPolicy, FileChecker, FilterDraft, ParamValue, ScoreDraft
from dsl.diagnostics import Diagnostic, sort_key
from dsl.lower import Memo, combine, lower_filter, lower_score
from dsl.parser import Parser, problem_diagnostic
from dsl.plan import FilterRule, Plan, ScoreRule, Subject, World
from dsl.schema import MetricDefinition
from dsl.source import SourceFile, read_source
from dsl.syntax import Header, Statement, Word

Params = Mapping[str, Mapping[str, ParamValue]]
Files = Mapping[str, str | bytes]

_LANGUAGE: Final = "1"


@dataclass(frozen=True, slots=True)
class CompileResult:
    """What a compile gives: plans only when nothing is wrong.

    Attributes:
        plans: the policies, by (order, name, file).
        diagnostics: all findings, by file and place.
        hash: a digest of files, parameters and metrics.
    """

    plans: tuple[Plan, ...]
    diagnostics: tuple[Diagnostic, ...]
    hash: str

    @property
    def ok(self) -> bool:
        """Whether there is no error among the findings."""
        return not any(one.is_error for one in self.diagnostics)


class Compiler:
    """Compiles policies; holds the parser, whose tables take half a second to build."""

    def __init__(self) -> None:
        self._parser = Parser()

    def warm(self) -> None:
        """Builds the tables of the grammar now."""
        self._parser.warm()

    def compile(
        self,
        files: Files,
        *,
        params: Params | None = None,
        metrics: Mapping[str, MetricDefinition] | None = None,
        size: Size | None = None,
        stock: Inventory | None = None,
    ) -> CompileResult:
        """Compiles all files of a source.

        Args:
            files: text by file name; the file name is the policy's name unless it has a header.
            params: values of parameters by policy name, from the configuration.
            metrics: metrics of the configuration, beside or instead of the bundled ones.
            size: the cluster that the cost of the policies is bounded for.
            stock: what the cluster has, to compare with what the policies ask for.
        """
        steps = self.steps(files, params=params, metrics=metrics, size=size, stock=stock)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                result: CompileResult = done.value
                return result

    def steps(
        self,
        files: Files,
        *,
        params: Params | None = None,
        metrics: Mapping[str, MetricDefinition] | None = None,
        size: Size | None = None,
        stock: Inventory | None = None,
    ) -> Generator[None, None, CompileResult]:
        """Does the same step by step; the generator's return value is the result."""
        self.warm()
        found: list[Diagnostic] = []
        plans: list[Plan] = []
        facts: list[FileFacts] = []
        given = dict(params or {})
        for name in sorted(files):
            plan = yield from self._file(name, files[name], (given, metrics or {}), found, facts)
            if plan is not None:
                plans.append(plan)
        found.extend(_same_names(plans))
        for one in analyse(facts, size or Size(), stock):
            if one is not None and one not in found:
                found.append(one)
            yield
        diagnostics = tuple(sorted(found, key=sort_key))
        refused = any(one.is_error for one in diagnostics)
        ordered = sorted(plans, key=lambda one: (one.order, one.name, one.source.name))
        digest = _digest(files, params or {}, metrics or {})
        return CompileResult(() if refused else tuple(ordered), diagnostics, digest)

    def _file(
        self,
        name: str,
        data: str | bytes,
        options: tuple[Mapping[str, Mapping[str, ParamValue]], Mapping[str, MetricDefinition]],
        found: list[Diagnostic],
        facts: list[FileFacts],
    ) -> Generator[None, None, Plan | None]:
        source, problems = read_source(name, data)
        if problems:
            found.extend(problem_diagnostic(source, one) for one in problems)
            return None
        statements: list[Statement] = []
        broken = False
        for statement, findings in self._parser.statements(source):
            found.extend(findings)
            broken = broken or any(one.is_error for one in findings)
            if statement is not None:
                statements.append(statement)
            yield
        params, metrics = options
        checker = FileChecker(
            source, statements, params=params.get(_name_of(source, statements)), metrics=metrics
        )
        yield from checker.steps()
        policy, findings = checker.result()
        found.extend(findings)
        wrong = broken or any(one.is_error for one in findings)
        facts.append(_facts(policy, statements, sound=not wrong))
        if wrong:
            return None
        return (yield from _lower(policy))


def compile_policies(
    files: Files,
    *,
    params: Params | None = None,
    metrics: Mapping[str, MetricDefinition] | None = None,
) -> CompileResult:
    """Compiles files with a compiler of its own; see `Compiler.compile`."""
    return Compiler().compile(files, params=params, metrics=metrics)


def _name_of(source: SourceFile, statements: Sequence[Statement]) -> str:
    for one in statements:
        if isinstance(one, Header) and one.name == "policy" and isinstance(one.value, Word):
            return one.value.value
    return source.name.rsplit("/", 1)[-1].removesuffix(".policy")


def _facts(policy: CheckedPolicy, statements: Sequence[Statement], *, sound: bool) -> FileFacts:
    source = policy.source
    return FileFacts(
        source,
        statements,
        [RuleFacts(source, one.written, one.core, one.reads.changes) for one in policy.rules],
        {one.name: one for one in policy.metrics},
        sound=sound,
        rank=(policy.order, policy.name, source.name),
        active=policy.mode != "off",
    )


def _same_names(plans: Sequence[Plan]) -> Iterator[Diagnostic]:
    first: dict[str, Plan] = {}
    for plan in plans:
        other = first.setdefault(plan.name, plan)
        if other is not plan:
            span = plan.name_span
            yield Diagnostic(
                "P502",
                f"`{plan.name}` is also the name of the policy in {other.source.name}",
                plan.source,
                span,
                helps=("give one of them another name:  policy: NAME",),
            )


def _digest(files: Files, params: Params, metrics: Mapping[str, MetricDefinition]) -> str:
    state = hashlib.sha256(_LANGUAGE.encode())
    for name in sorted(files):
        data = files[name]
        raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        state.update(f"\0{name}\0{len(raw)}\0".encode("utf-8", "surrogatepass"))
        state.update(raw)
    state.update(json.dumps(params, sort_keys=True, default=list).encode())
    for name in sorted(metrics):
        state.update(f"\0{name}={metrics[name]!r}".encode())
    return state.hexdigest()


# ---- plans


def _lower(policy: CheckedPolicy) -> Generator[None, None, Plan]:
    memo = Memo()
    filters: list[FilterRule] = []
    scores: list[ScoreRule] = []
    for draft in policy.rules:
        if isinstance(draft, FilterDraft):
            filters.append(_filter(policy, draft, memo))
        else:
            scores.append(_score(policy, draft, memo))
        yield
    reads = frozenset(one for rule in (*filters, *scores) for one in rule.reads)
    return Plan(
        name=policy.name,
        name_span=policy.name_span,
        source=policy.source,
        description=policy.description,
        version=policy.version,
        mode=policy.mode,
        order=policy.order,
        weight=policy.weight,
        metrics=policy.metrics,
        reads=reads,
        filters=tuple(filters),
        scores=tuple(scores),
        combine=combine,
    )


def _filter(policy: CheckedPolicy, draft: FilterDraft, memo: Memo) -> FilterRule:
    core, source, reads = draft.core, policy.source, draft.reads
    lowered = lower_filter(core, memo)

    def message(subject: Subject, world: World, row: int) -> str:
        return reference.message(core, source.text, reference.View(world, subject, row))

    return FilterRule(
        id=f"{source.name}#{draft.number}",
        line=source.position(draft.written.span.start)[0],
        text=" ".join(source.slice(draft.written.span).split()),
        span=draft.written.span,
        source=source,
        reads=reads.fields,
        row_local=reads.row_local,
        reads_pods=reads.pods,
        reads_metrics=reads.metrics,
        reads_time=reads.time,
        prepare=lowered.prepare,
        core=core,
        status=draft.status,
        verdict=lowered.verdict,
        message=message,
    )


def _score(policy: CheckedPolicy, draft: ScoreDraft, memo: Memo) -> ScoreRule:
    core, source, reads = draft.core, policy.source, draft.reads
    lowered = lower_score(core, memo)
    return ScoreRule(
        id=f"{source.name}#{draft.number}",
        line=source.position(draft.written.span.start)[0],
        text=" ".join(source.slice(draft.written.span).split()),
        span=draft.written.span,
        source=source,
        reads=reads.fields,
        row_local=reads.row_local,
        reads_pods=reads.pods,
        reads_metrics=reads.metrics,
        reads_time=reads.time,
        prepare=lowered.prepare,
        core=core,
        weight=core.weight,
        column=lowered.column,
        finish=lowered.finish,
    )
