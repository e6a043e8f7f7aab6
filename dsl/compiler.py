"""Files of policies become plans, or diagnostics. Never raises; no I/O.

`Compiler.steps` is the same work as a generator, one statement a step, for a caller that may not
stop for long.
"""

import hashlib
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from typing import TypedDict, Unpack

from msgspec import Struct
from msgspec.structs import replace

from dsl import tenants
from dsl.analysis import FileFacts, Inventory, RuleFacts, Size, analyse
from dsl.assembly import assembled
from dsl.checker import LANGUAGE, CheckedPolicy, Draft, FileChecker, ParamValue, policy_name
from dsl.diagnostics import Diagnostic, sort_key
from dsl.files import read_source
from dsl.lower import Memo
from dsl.parser import Parser
from dsl.plan import Plan, UseLine
from dsl.schema import MetricDefinition
from dsl.source import SourceFile
from dsl.syntax import Statement
from dsl.tenants import Tenant
from dsl.usage import Instance, Library, Parsed

Params = Mapping[str, Mapping[str, ParamValue]]
Files = Mapping[str, str | bytes]


class Options(TypedDict, total=False):
    """What a compile may be told.

    Attributes:
        params: values of parameters by policy name.
        metrics: metrics of the configuration, beside or instead of the bundled ones.
        size: the cluster that the cost of the policies is bounded for.
        stock: what the cluster has, to compare with what the policies ask for.
        bundled: texts of the policies that `use` may name besides those of the files.
        tenant: whose namespace the files are about, if not about all.
        chains: names of files asked about one pod, if not all are.
    """

    params: Params | None
    metrics: Mapping[str, MetricDefinition] | None
    size: Size | None
    stock: Inventory | None
    bundled: Mapping[str, str] | None
    tenant: Tenant | None
    chains: Sequence[Collection[str]]


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
        load = _Load(self._parser, self._memo, options)
        found, plans = load.found, load.plans
        parsed: list[Parsed] = []
        for name in sorted(files):
            yield from load.file(name, files[name], parsed)
        bundled = options.get("bundled") or {}
        library = Library(tuple(parsed), bundled, load.read, self._plugins, load.params, found)
        for instance in library.instances():
            yield from load.instance(instance)
        tenant, size = load.tenant, options.get("size") or Size()
        if tenant is not None:
            found.extend(tenants.too_many(tenant, plans))
            found.extend(tenants.too_dear(tenant, load.facts, size))
            plans = [replace(plan, name=tenant.own(plan.name)) for plan in plans]
        found.extend(_same_names(plans))
        found.extend(_two_sorts(plans))
        for names in options.get("chains") or [files]:
            chain = [one for one in load.facts if (one.used or one).source.name in names]
            for one in analyse(chain, size, options.get("stock")):
                found.extend([] if one is None or one in found else [one])
                yield
        diagnostics = tuple(sorted(found, key=sort_key))
        refused = any(one.is_error for one in diagnostics)
        ordered = tuple(sorted(plans, key=lambda one: (one.order, one.name, one.source.name)))
        digest = _digest(files, options.get("params") or {}, load.metrics)
        return CompileResult(() if refused else ordered, diagnostics, digest, ordered)


class _Load:
    """One compile, file by file: what was found, the plans, and what the analysis looks at."""

    def __init__(self, parser: Parser, memo: Memo, options: Options) -> None:
        self.tenant = options.get("tenant")
        self.params = _own(options.get("params") or {}, self.tenant)
        self.metrics = options.get("metrics") or {}
        self.found: list[Diagnostic] = []
        self.plans: list[Plan] = []
        self.facts: list[FileFacts] = []
        self._parser, self._memo = parser, memo

    def read(self, name: str, text: str) -> Parsed | None:
        """Returns a bundled policy; None, and why among what is found, if it cannot be read."""
        source, problems = read_source(name, text)
        statements, findings = self._parser.whole(source)
        self.found.extend((*problems, *findings))
        return None if problems else (source, statements)

    def file(
        self, name: str, data: str | bytes, parsed: list[Parsed]
    ) -> Generator[None, None, None]:
        """Compiles a file; `parsed` gets its statements."""
        source, problems = read_source(name, data)
        self.found.extend(problems)
        if problems:
            return
        statements: list[Statement] = []
        broken = False
        for statement, findings in self._parser.statements(source):
            self.found.extend(findings)
            broken = broken or any(one.is_error for one in findings)
            statements.extend([] if statement is None else [statement])
            yield
        parsed.append((source, tuple(statements)))
        params = self.params.get(policy_name(source, statements))
        policy, findings = yield from self._checked(source, statements, params)
        self.found.extend(findings)
        wrong = broken or any(one.is_error for one in findings)
        self.facts.append(_facts(policy, statements, sound=not wrong))
        if not wrong:
            self.plans.append((yield from assembled(policy, self._memo)))

    def instance(self, instance: Instance) -> Generator[None, None, None]:
        """Compiles what a `use` asks for."""
        source, statements, used = instance.source, instance.statements, instance.used
        policy, findings = yield from self._checked(source, statements, instance.params, used)
        self.found.extend(one for one in findings if one not in self.found)
        if any(one.is_error for one in findings):
            return
        weight = policy.weight if instance.weight is None else instance.weight
        policy = replace(policy, name=instance.name, weight=weight)
        self.facts.append(_facts(policy, statements, sound=True, used=used))
        plan = yield from assembled(policy, self._memo)
        variant = repr(sorted(instance.params.items()))
        self.plans.append(replace(plan, variant=variant, used=used))

    def _checked(
        self,
        source: SourceFile,
        statements: Sequence[Statement],
        params: Mapping[str, ParamValue] | None,
        used: UseLine | None = None,
    ) -> Generator[None, None, tuple[CheckedPolicy, tuple[Diagnostic, ...]]]:
        """Checks the statements of a file, those that a tenant may not say first."""
        tenant = self.tenant
        if tenant is not None:
            self.found.extend(tenants.refused(source, statements, used))
        namespace = None if tenant is None else tenant.namespace
        checker = FileChecker(
            source, statements, params=params, metrics=self.metrics, namespace=namespace
        )
        yield from checker.steps()
        return checker.result()


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

    def of_rule(one: Draft) -> RuleFacts:
        point, changes = one.slot.removesuffix("s"), one.reads.changes
        return RuleFacts(source, one.written, one.core, point, changes, policy.given, used)

    return FileFacts(
        source,
        statements,
        [of_rule(one) for one in policy.rules],
        {one.name: one for one in policy.metrics},
        sound=sound,
        rank=(policy.order, policy.name, source.name),
        mode=policy.mode,
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
    state = hashlib.sha256(b"%d" % LANGUAGE)
    for name in sorted(files):
        data = files[name]
        raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        state.update(f"\0{name}\0{len(raw)}\0".encode("utf-8", "surrogatepass"))
        state.update(raw)
    given = sorted((name, sorted(values.items())) for name, values in params.items())
    state.update(repr((given, sorted(metrics.items()))).encode())
    return state.hexdigest()
