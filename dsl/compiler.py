"""Files of policies become plans, or diagnostics. Never raises; no I/O.

`Compiler.steps` is the same work as a generator, one statement a step, for a caller that may not
stop for long.
"""

import hashlib
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from typing import Final, TypedDict, Unpack

from msgspec import Struct
from msgspec.structs import replace

from dsl import tenants
from dsl.analysis import FileFacts, Inventory, RuleFacts, Size, analyse
from dsl.assembly import assembled
from dsl.checker import CheckedPolicy, FileChecker, ParamValue, policy_name
from dsl.diagnostics import Diagnostic, sort_key
from dsl.files import read_source
from dsl.lower import Memo
from dsl.parser import Parser
from dsl.plan import Plan, UseLine
from dsl.schema import MetricDefinition
from dsl.syntax import Statement
from dsl.tenants import Tenant
from dsl.usage import Instance, Library, Parsed

Params = Mapping[str, Mapping[str, ParamValue]]
Files = Mapping[str, str | bytes]
_Whose = tuple[Params, Mapping[str, MetricDefinition], Tenant | None]

_LANGUAGE: Final = "1"


class Options(TypedDict, total=False):
    """What a compile may be told.

    Attributes:
        params: values of parameters by policy name, from the configuration.
        metrics: metrics of the configuration, beside or instead of the bundled ones.
        size: the cluster that the cost of the policies is bounded for.
        stock: what the cluster has, to compare with what the policies ask for.
        bundled: texts of the policies that `use` may name besides those of the files.
        tenant: whose namespace the files are about, if not about all.
    """

    params: Params | None
    metrics: Mapping[str, MetricDefinition] | None
    size: Size | None
    stock: Inventory | None
    bundled: Mapping[str, str] | None
    tenant: Tenant | None


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
        self._parser = Parser()
        self._plugins = plugins
        self._memo = memo or Memo()

    def warm(self) -> None:
        """Makes all that the parser may need of the grammar now."""
        self._parser.warm()

    def compile(self, files: Files, **options: Unpack[Options]) -> CompileResult:
        """Compiles all files of a source, texts by name."""
        steps = self.steps(files, **options)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                result: CompileResult = done.value
                return result

    def steps(
        self, files: Files, **options: Unpack[Options]
    ) -> Generator[None, None, CompileResult]:
        """Does the same step by step; the generator's return value is the result."""
        params, metrics = options.get("params") or {}, options.get("metrics") or {}
        size, tenant = options.get("size") or Size(), options.get("tenant")
        found: list[Diagnostic] = []
        plans: list[Plan] = []
        facts: list[FileFacts] = []
        given = _own(params, tenant)
        parsed: list[Parsed] = []
        whose = given, metrics, tenant
        for name in sorted(files):
            plan = yield from self._file(name, files[name], whose, found, (facts, parsed))
            if plan is not None:
                plans.append(plan)

        def read(name: str, text: str) -> Parsed | None:
            return self._parsed(name, text, found)

        bundled = options.get("bundled") or {}
        library = Library(tuple(parsed), bundled, read, self._plugins, given, found)
        for instance in library.instances():
            plan = yield from self._instance(instance, whose, found, facts)
            if plan is not None:
                plans.append(plan)
        if tenant is not None:
            found.extend(tenants.too_many(tenant, plans))
            found.extend(tenants.too_dear(tenant, facts, size))
            plans = [replace(plan, name=tenant.own(plan.name)) for plan in plans]
        found.extend(_same_names(plans))
        found.extend(_two_sorts(plans))
        for one in analyse(facts, size, options.get("stock")):
            if one is not None and one not in found:
                found.append(one)
            yield
        diagnostics = tuple(sorted(found, key=sort_key))
        refused = any(one.is_error for one in diagnostics)
        ordered = tuple(sorted(plans, key=lambda one: (one.order, one.name, one.source.name)))
        digest = _digest(files, params, metrics)
        return CompileResult(() if refused else ordered, diagnostics, digest, ordered)

    def _file(
        self,
        name: str,
        data: str | bytes,
        whose: _Whose,
        found: list[Diagnostic],
        out: tuple[list[FileFacts], list[Parsed]],
    ) -> Generator[None, None, Plan | None]:
        facts, parsed = out
        source, problems = read_source(name, data)
        if problems:
            found.extend(problems)
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
        params, metrics, tenant = whose
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
        return (yield from assembled(policy, self._memo))

    def _parsed(self, name: str, text: str, found: list[Diagnostic]) -> Parsed | None:
        """Returns a bundled policy; None, and why in `found`, if it cannot be read."""
        source, problems = read_source(name, text)
        found.extend(problems)
        statements: list[Statement] = []
        for statement, findings in self._parser.statements(source):
            found.extend(findings)
            if statement is not None:
                statements.append(statement)
        return None if problems else (source, tuple(statements))

    def _instance(
        self,
        instance: Instance,
        whose: _Whose,
        found: list[Diagnostic],
        facts: list[FileFacts],
    ) -> Generator[None, None, Plan | None]:
        """Compiles what a `use` asks for."""
        _, metrics, tenant = whose
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
        plan = yield from assembled(policy, self._memo)
        variant = repr(sorted(instance.params.items()))
        return replace(plan, variant=variant, used=instance.used)


def _own(params: Params, tenant: Tenant | None) -> dict[str, Mapping[str, ParamValue]]:
    """Returns the parameters of a tenant's policies by the names that it calls them."""
    if tenant is None:
        return dict(params)
    own = tenant.own("")
    return {name.removeprefix(own): one for name, one in params.items() if name.startswith(own)}


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
            hint = "give one of them another name:  policy: NAME"
            if plan.used is not None:
                hint = f"give it another name:  use {plan.used.name} ... as NAME"
            where = other.source.name if other.used is None else f"`use {other.used.name}`"
            message = f"`{plan.name}` is also the name of the policy in {where}"
            yield Diagnostic("P502", message, *plan.place, helps=(hint,))


def _two_sorts(plans: Sequence[Plan]) -> Iterator[Diagnostic]:
    sorts = [(plan, rule) for plan in plans for rule in plan.sorts if plan.mode == "enforce"]
    for plan, rule in sorts[1:]:
        first = sorts[0][0]
        name = first.source.name if first.used is None else f"`{first.used.name}`"
        at = (plan.source, rule.span) if plan.used is None else plan.used.place
        message = f"{name} sorts the queue already, and a queue has one order"
        help_ = f"keep one of the two:  {sorts[0][1].text}"
        yield Diagnostic("P501", message, *at, helps=(help_,))


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
