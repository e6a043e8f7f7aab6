"""Files of policies become plans, or diagnostics. Never raises; no I/O.

`Compiler.steps` is the same work as a generator, one statement a step, for a caller that may not
stop for long.
"""

import hashlib
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from dsl import ir, reference, tenants, words
from dsl.analysis import FileFacts, Inventory, RuleFacts, Size, analyse
from dsl.checker import (
    CheckedPolicy,
    Draft,
    FileChecker,
    FilterDraft,
    ParamValue,
    ScoreDraft,
    StatementDraft,
    policy_name,
)
from dsl.diagnostics import Diagnostic, sort_key
from dsl.lower import Memo, combine, lower_filter, lower_score
from dsl.lower.statements import (
    Values,
    lower_actions,
    lower_alike,
    lower_condition,
    lower_key,
    lower_tier,
    lower_turns,
)
from dsl.parser import Parser, problem_diagnostic
from dsl.plan import (
    ActionRule,
    BindRule,
    ConditionRule,
    FilterRule,
    Parts,
    PermitRule,
    Plan,
    RuleBase,
    ScoreRule,
    SortRule,
    Subject,
    TierRule,
    UseLine,
    World,
)
from dsl.schema import MetricDefinition
from dsl.several import gang_rule, preempt_rule, quota_rule
from dsl.source import SourceFile, read_source
from dsl.syntax import Statement
from dsl.tenants import Tenant
from dsl.turns import turns
from dsl.types import Kind
from dsl.usage import Instance, Library, Parsed, instances

Params = Mapping[str, Mapping[str, ParamValue]]
Files = Mapping[str, str | bytes]
_Options = tuple[Params, Mapping[str, MetricDefinition], Tenant | None]

_LANGUAGE: Final = "1"
#: Where the rules of a point stand in a plan, filters and scores apart.
_SLOTS: Final = {
    "gate": "gates",
    "sort": "sorts",
    "prefilter": "prefilters",
    "first": "tiers",
    "reserve": "reserves",
    "permit": "permits",
    "prebind": "prebinds",
    "bind": "binds",
    "postbind": "postbinds",
    "preempt": "preempts",
    "gang": "gangs",
    "quota": "quotas",
}


def _meant(name: str, args: Sequence[str]) -> tuple[str, bool, str]:
    """Says how a call of another language is written here."""
    # Loaded when something is wrong, not before.
    from dsl.foreign_calls import call_for  # noqa: PLC0415 - see above

    return call_for(name, args) or ("", False, "")


class CompileResult(Struct, frozen=True):
    """What a compile gives: plans only when nothing is wrong.

    Attributes:
        plans: the policies, by (order, name, file).
        diagnostics: all findings, by file and place.
        hash: a digest of files, parameters and metrics.
        understood: the policies without an error of their own, whatever the others have.
    """

    plans: tuple[Plan, ...]
    diagnostics: tuple[Diagnostic, ...]
    hash: str
    understood: tuple[Plan, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is no error among the findings."""
        return not any(one.is_error for one in self.diagnostics)


class Compiler:
    """Compiles policies; holds the parser, which learns of the grammar what it is asked for.

    `plugins` are the names of those that `use` may name besides policies.
    """

    def __init__(self, memo: Memo | None = None, plugins: Collection[str] = ()) -> None:
        self._parser = Parser(_meant)
        self._plugins = plugins
        self._memo = memo or Memo()

    def warm(self) -> None:
        """Makes all that the parser may need of the grammar now."""
        self._parser.warm()

    def compile(
        self,
        files: Files,
        *,
        params: Params | None = None,
        metrics: Mapping[str, MetricDefinition] | None = None,
        size: Size | None = None,
        stock: Inventory | None = None,
        bundled: Mapping[str, str] | None = None,
        tenant: Tenant | None = None,
    ) -> CompileResult:
        """Compiles all files of a source.

        Args:
            files: text by file name; the file name is the policy's name unless it has a header.
            params: values of parameters by policy name, from the configuration.
            metrics: metrics of the configuration, beside or instead of the bundled ones.
            size: the cluster that the cost of the policies is bounded for.
            stock: what the cluster has, to compare with what the policies ask for.
            bundled: texts of the policies that `use` may name besides those of the files.
            tenant: whose namespace the files are about, if not about all.
        """
        steps = self.steps(
            files,
            params=params,
            metrics=metrics,
            size=size,
            stock=stock,
            bundled=bundled,
            tenant=tenant,
        )
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
        bundled: Mapping[str, str] | None = None,
        tenant: Tenant | None = None,
    ) -> Generator[None, None, CompileResult]:
        """Does the same step by step; the generator's return value is the result."""
        found: list[Diagnostic] = []
        plans: list[Plan] = []
        facts: list[FileFacts] = []
        given = _own(params or {}, tenant)
        parsed: list[Parsed] = []
        options = given, metrics or {}, tenant
        for name in sorted(files):
            plan = yield from self._file(name, files[name], options, found, (facts, parsed))
            if plan is not None:
                plans.append(plan)

        def read(name: str, text: str) -> Parsed | None:
            return self._parsed(name, text, found)

        library = Library(parsed, bundled or {}, read, self._plugins)
        for instance in instances(tuple(parsed), library, given, found):
            plan = yield from self._instance(instance, options, found, facts)
            if plan is not None:
                plans.append(plan)
        if tenant is not None:
            found.extend(tenants.too_many(tenant, plans))
            found.extend(tenants.too_dear(tenant, facts, size or Size()))
            plans = [replace(plan, name=tenant.own(plan.name)) for plan in plans]
        found.extend(_same_names(plans))
        found.extend(_two_sorts(plans))
        for one in analyse(facts, size or Size(), stock):
            if one is not None and one not in found:
                found.append(one)
            yield
        diagnostics = tuple(sorted(found, key=sort_key))
        refused = any(one.is_error for one in diagnostics)
        ordered = tuple(sorted(plans, key=lambda one: (one.order, one.name, one.source.name)))
        digest = _digest(files, params or {}, metrics or {})
        return CompileResult(() if refused else ordered, diagnostics, digest, ordered)

    def _file(
        self,
        name: str,
        data: str | bytes,
        options: _Options,
        found: list[Diagnostic],
        out: tuple[list[FileFacts], list[Parsed]],
    ) -> Generator[None, None, Plan | None]:
        facts, parsed = out
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
        parsed.append((source, tuple(statements)))
        params, metrics, tenant = options
        found.extend(() if tenant is None else tenants.refused(source, statements))
        checker = FileChecker(
            source,
            statements,
            params=params.get(policy_name(source, statements)),
            metrics=metrics,
            namespace=None if tenant is None else tenant.namespace,
        )
        yield from checker.steps()
        policy, findings = checker.result()
        found.extend(findings)
        wrong = broken or any(one.is_error for one in findings)
        facts.append(_facts(policy, statements, sound=not wrong))
        if wrong:
            return None
        return (yield from _lower(policy, self._memo))

    def _parsed(self, name: str, text: str, found: list[Diagnostic]) -> Parsed | None:
        """Returns a bundled policy; None, and why in `found`, if it cannot be read."""
        source, problems = read_source(name, text)
        found.extend(problem_diagnostic(source, one) for one in problems)
        statements: list[Statement] = []
        for statement, findings in self._parser.statements(source):
            found.extend(findings)
            if statement is not None:
                statements.append(statement)
        return None if problems else (source, tuple(statements))

    def _instance(
        self,
        instance: Instance,
        options: _Options,
        found: list[Diagnostic],
        facts: list[FileFacts],
    ) -> Generator[None, None, Plan | None]:
        """Compiles what a `use` asks for."""
        _, metrics, tenant = options
        if tenant is not None:
            found.extend(tenants.refused(instance.source, instance.statements, instance.used))
        checker = FileChecker(
            instance.source,
            instance.statements,
            params=instance.params,
            metrics=metrics,
            namespace=None if tenant is None else tenant.namespace,
        )
        yield from checker.steps()
        policy, findings = checker.result()
        found.extend(one for one in findings if one not in found)
        if any(one.is_error for one in findings):
            return None
        weight = policy.weight if instance.weight is None else instance.weight
        policy = replace(policy, name=instance.name, weight=weight)
        facts.append(_facts(policy, instance.statements, sound=True, used=instance.used))
        plan = yield from _lower(policy, self._memo)
        variant = repr(sorted(instance.params.items()))
        return replace(plan, variant=variant, used=instance.used)


def _own(params: Params, tenant: Tenant | None) -> dict[str, Mapping[str, ParamValue]]:
    """Returns the parameters of a tenant's policies by the names that it calls them."""
    if tenant is None:
        return dict(params)
    own = tenant.own("")
    return {name.removeprefix(own): one for name, one in params.items() if name.startswith(own)}


def compile_policies(
    files: Files,
    *,
    params: Params | None = None,
    metrics: Mapping[str, MetricDefinition] | None = None,
) -> CompileResult:
    """Compiles files with a compiler of its own; see `Compiler.compile`."""
    return Compiler().compile(files, params=params, metrics=metrics)


def _facts(
    policy: CheckedPolicy,
    statements: Sequence[Statement],
    *,
    sound: bool,
    used: UseLine | None = None,
) -> FileFacts:
    source = policy.source
    return FileFacts(
        source,
        statements,
        [RuleFacts(source, one.written, one.core, one.reads.changes, used) for one in policy.rules],
        {one.name: one for one in policy.metrics},
        sound=sound,
        rank=(policy.order, policy.name, source.name),
        active=policy.mode != "off",
        used=used,
    )


def _same_names(plans: Sequence[Plan]) -> Iterator[Diagnostic]:
    first: dict[str, Plan] = {}
    for plan in plans:
        other = first.setdefault(plan.name, plan)
        if other is not plan:
            if plan.used is None:
                source, span = plan.source, plan.name_span
                hint = "give one of them another name:  policy: NAME"
            else:
                source, span = plan.used.place
                hint = f"give it another name:  use {plan.used.name} ... as NAME"
            where = other.source.name if other.used is None else f"`use {other.used.name}`"
            yield Diagnostic(
                "P502",
                f"`{plan.name}` is also the name of the policy in {where}",
                source,
                span,
                helps=(hint,),
            )


def _two_sorts(plans: Sequence[Plan]) -> Iterator[Diagnostic]:
    sorts = [(plan, rule) for plan in plans for rule in plan.sorts if plan.mode == "enforce"]
    for plan, rule in sorts[1:]:
        first = sorts[0][0]
        name = first.source.name if first.used is None else f"`{first.used.name}`"
        source, span = (plan.source, rule.span) if plan.used is None else plan.used.place
        yield Diagnostic(
            "P501",
            f"{name} sorts the queue already, and a queue has one order",
            source,
            span,
            helps=(f"keep one of the two:  {sorts[0][1].text}",),
        )


def _digest(files: Files, params: Params, metrics: Mapping[str, MetricDefinition]) -> str:
    state = hashlib.sha256(_LANGUAGE.encode())
    for name in sorted(files):
        data = files[name]
        raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        state.update(f"\0{name}\0{len(raw)}\0".encode("utf-8", "surrogatepass"))
        state.update(raw)
    given = sorted((name, sorted(values.items())) for name, values in params.items())
    state.update(repr(given).encode())
    for name in sorted(metrics):
        state.update(f"\0{name}={metrics[name]!r}".encode())
    return state.hexdigest()


# ---- plans


def _lower(policy: CheckedPolicy, memo: Memo) -> Generator[None, None, Plan]:
    filters: list[FilterRule] = []
    scores: list[ScoreRule] = []
    others: dict[str, list[Any]] = {name: [] for name in _SLOTS.values()}
    rules: list[RuleBase] = []
    for draft in policy.rules:
        if isinstance(draft, ScoreDraft):
            scores.append(_score(policy, draft, memo))
            rules.append(scores[-1])
        elif isinstance(draft, FilterDraft) and draft.written.point not in _SLOTS:
            filters.append(_filter(policy, draft, memo))
            rules.append(filters[-1])
        else:
            rules.append(_statement(policy.source, draft, memo))
            others[_SLOTS[draft.written.point]].append(rules[-1])
        yield
    reads = frozenset(one for rule in rules for one in rule.reads)
    slots: dict[str, Any] = {name: tuple(found) for name, found in others.items()}
    return Plan(
        name=policy.name,
        name_span=policy.name_span,
        source=policy.source,
        description=policy.description,
        version=policy.version,
        variant="",
        mode=policy.mode,
        order=policy.order,
        weight=policy.weight,
        metrics=policy.metrics,
        reads=reads,
        filters=tuple(filters),
        scores=tuple(scores),
        combine=combine,
        **slots,
    )


def _turns(
    reads: frozenset[str], memo: Memo, *roots: ir.Expr | None
) -> Callable[[Subject, World], float] | None:
    left = turns(*roots) if "now" in reads else None
    return None if left is None else lower_turns(left, memo)


def _values(memo: Memo) -> Callable[[Subject, World, int], words.Ask]:
    """Returns what gives the values that are told of a pod on a node: of columns, but for lists."""
    of_columns = Values(memo)

    def values(subject: Subject, world: World, row: int) -> words.Ask:
        value = of_columns.of(subject, world, row)
        of_list = reference.asked(reference.View(world, subject, row))
        return lambda node: (of_list if node.type.kind is Kind.LIST else value)(node)

    return values


def _filter(policy: CheckedPolicy, draft: FilterDraft, memo: Memo) -> FilterRule:
    core, source = draft.core, policy.source
    lowered = lower_filter(core, memo)

    values = _values(memo)

    def message(subject: Subject, world: World, row: int) -> str:
        return words.message(core, source.text, values(subject, world, row))

    # By what decides the words: another part of the rule may be what rejects other nodes.
    known: dict[tuple[int, ...], Callable[[Subject, World, NDArray[np.intp]], bool]] = {}

    def alike(subject: Subject, world: World, rows: NDArray[np.intp]) -> bool:
        if len(rows) == 1:
            return True
        parts = words.told_by(core, values(subject, world, int(rows[0])))
        key = tuple(map(id, parts))
        if key not in known:
            known[key] = lower_alike(parts, memo)
        return known[key](subject, world, rows)

    return FilterRule(
        **_base(source, draft),
        prepare=lowered.prepare,
        turns=_turns(draft.reads.fields, memo, core.guard, core.test),
        core=core,
        status=draft.status,
        verdict=lowered.verdict,
        message=message,
        alike=alike,
    )


def _score(policy: CheckedPolicy, draft: ScoreDraft, memo: Memo) -> ScoreRule:
    core = draft.core
    lowered = lower_score(core, memo)
    return ScoreRule(
        **_base(policy.source, draft),
        prepare=lowered.prepare,
        core=core,
        weight=core.weight,
        column=lowered.column,
        finish=lowered.finish,
    )


def _base(source: SourceFile, draft: Draft) -> dict[str, Any]:
    """Returns what all rules have, but for `prepare`."""
    reads = draft.reads
    return {
        "id": f"{source.name}#{draft.number}",
        "line": source.position(draft.written.span.start)[0],
        "text": " ".join(source.slice(draft.written.span).split()),
        "span": draft.written.span,
        "source": source,
        "reads": reads.fields,
        "row_local": reads.row_local,
        "reads_pods": reads.pods,
        "reads_metrics": reads.metrics,
        "reads_time": reads.time,
    }


def _statement(source: SourceFile, draft: FilterDraft | StatementDraft, memo: Memo) -> RuleBase:
    """Returns the rule of any statement but filters and scores."""
    core = draft.core
    base = _base(source, draft)
    if isinstance(core, ir.FilterCore):
        return _condition(base, core, draft.status, memo)
    if isinstance(core, ir.TierCore):
        prepare, mask = lower_tier(core, memo)
        return TierRule(**base, prepare=prepare, core=core, mask=mask)
    if isinstance(core, ir.SortCore):
        key = lower_key(core, memo)
        return SortRule(**base, prepare=_always, core=core, key=key)
    base["prepare"] = _guarded(core.guard, memo)
    match core:
        case ir.PermitCore():
            return _permit(base, core, draft.status, memo)
        case ir.ActionCore():
            return ActionRule(**base, core=core, effects=lower_actions(core, memo))
        case ir.BindCore():
            return BindRule(**base, core=core)
        case ir.PreemptCore():
            return preempt_rule(base, core, memo)
        case ir.GangCore():
            return gang_rule(base, core, memo)
        case ir.QuotaCore():
            return quota_rule(base, core, draft.status, memo)


def _always(_subject: Subject, _world: World) -> Parts:
    return ()


def _guarded(guard: ir.Expr | None, memo: Memo) -> Callable[[Subject, World], Parts | None]:
    if guard is None:
        return _always
    holds = lower_condition((guard,), memo)
    return lambda subject, world: () if holds(subject, world, -1) else None


def _condition(base: dict[str, Any], core: ir.FilterCore, status: str, memo: Memo) -> ConditionRule:
    prepare = _guarded(core.guard, memo)
    test = lower_condition((core.test,), memo)
    text = base["source"].text

    def holds(subject: Subject, world: World, row: int) -> bool:
        return prepare(subject, world) is None or test(subject, world, row)

    values = _values(memo)

    def message(subject: Subject, world: World, row: int) -> str:
        return words.message(core, text, values(subject, world, row))

    return ConditionRule(
        **base,
        prepare=prepare,
        turns=_turns(base["reads"], memo, core.guard, core.test),
        core=core,
        status=status,
        holds=holds,
        message=message,
    )


def _permit(base: dict[str, Any], core: ir.PermitCore, status: str, memo: Memo) -> PermitRule:
    until = lower_condition((core.until,), memo)
    rule, text, values = base["text"], base["source"].text, _values(memo)

    def message(subject: Subject, world: World, row: int) -> str:
        ask = values(subject, world, row)
        for one in core.longer:
            if ask(one):
                return words.beyond(one, text, ask)
        return str(rule) if core.message is None else words.filled(core.message, ask)

    return PermitRule(
        **base,
        turns=_turns(base["reads"], memo, core.guard, core.left, core.until),
        core=core,
        status=status,
        applies=lower_condition((core.guard, core.left), memo),
        until=until,
        message=message,
    )
