"""Compiled policies in, diagnostics out: what a scheduler refuses at load though it is right.

`berth check` foretells it, as such policies are right and a later version may run them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Final

from msgspec import Struct
from msgspec.structs import fields

from dsl.checker.scope import closest
from dsl.compiler import Compiler
from dsl.diagnostics import Diagnostic, Severity
from dsl.plan import MetricSpec, Plan, RuleBase
from dsl.schema import FIELDS, OF_THE_QUEUE
from dsl.source import SourceFile, Span
from engine.framework.acting import DEFAULT_BINDER
from engine.framework.profile import Profile
from engine.plugins import out_of_tree
from engine.plugins.registry import DEFAULT_WEIGHTS

_QUEUE_FIELDS: Final = ("pod.queued_at", "pod.first_attempt_at", "pod.attempts")
_QUEUE_RULES: Final = ("sorts",)
_SOURCES: Final = ("promql", "annotation")
_LEAVE_OUT: Final = (
    "until a version runs it, leave the line out, or the whole policy with  mode: off"
)
#: Stands for "this scheduler has no value for the field".
_UNKNOWN: Final = "?"
_SHOWN: Final = 8


class Acting(Struct, frozen=True):
    """What of the language this scheduler acts on; the rest is understood and refused.

    Attributes:
        plugins: those that every scheduler runs, as `use` names them.
        fields: what has a value.
        statements: those that do something, where only a form of them does with that form.
    """

    plugins: frozenset[str]
    fields: frozenset[str]
    statements: frozenset[str]


#: Owners of fields, and fields, that no object or table of this scheduler holds.
_LATER: Final = (
    "queue.pods", "pod.previous_node", "workload.", "group.size", "group.assigned",
    "group.reserved", "group.waiting", "quota.", "node.nominated",
    "node.finished", "node.heartbeat", "node.volumes.", "it.finished_at", "it.quota.", "victims.",
    *OF_THE_QUEUE,
)  # fmt: skip
_STATEMENTS: Final = frozenset(
    {"gate", "sort", "prefilter", "filter", "forbid", "score", "prefer", "avoid", "spread", "first",
     "reserve", "permit", "bind", "prebind", "postbind"}
)  # fmt: skip
ACTS_ON: Final = Acting(
    plugins=frozenset(
        "".join(f"-{sign.lower()}" if sign.isupper() else sign for sign in name).removeprefix("-")
        for name in DEFAULT_WEIGHTS
    ),
    fields=frozenset(name for name in FIELDS if not name.startswith(_LATER)),
    statements=_STATEMENTS,
)
#: A name of the configuration -> the text it stands in, and where.
Places = Callable[[str], tuple[SourceFile, Span]]


def new_compiler() -> Compiler:
    """A compiler that knows the scheduler's plugins."""
    return Compiler(plugins=ACTS_ON.plugins)


def unsupported(plan: Plan) -> list[Diagnostic]:
    """What the scheduler has no values for, by place; empty where it can run the policy."""
    found: dict[tuple[int, str], Diagnostic] = {}

    def add(span: Span, reason: str, help_: str) -> None:
        if plan.used is None:
            one = Diagnostic("P118", reason, plan.source, span, helps=(help_,))
            found.setdefault((span.start, reason), one)
            return
        # The text of the other policy is not the user's to change: its `use` line is.
        source, place = plan.used.place
        reason = f"`use {plan.used.name}`: {reason}"
        help_ = "leave the line out until a version of the scheduler runs it"
        one = Diagnostic("P118", reason, source, place, helps=(help_,))
        found.setdefault((place.start, reason), one)

    told: set[int] = set()
    for rule, reason in _beyond(plan):
        told.add(rule.span.start)
        add(rule.span, reason, _LEAVE_OUT)
    if plan.mode not in ("enforce", "off"):
        add(plan.name_span, _later(f"mode: {plan.mode}"), "write  mode: enforce   or   mode: off")
    metrics = {spec.name: spec for spec in plan.metrics}
    for point, rule in _rules(plan):
        # Where a whole statement waits for another version, what it reads is no second cause.
        for reason in _reasons(point, rule, metrics) if rule.span.start not in told else ():
            add(rule.span, reason, _LEAVE_OUT)
    return [found[key] for key in sorted(found)]


def binders_of(profiles: Iterable[Profile]) -> frozenset[str]:
    """The plugins that bind pods which `bind: with` hands to them."""
    plugins = (one.plugin for profile in profiles for one in profile.plugins)
    return frozenset(plugin.name for plugin in plugins if plugin.points().binder)


def installed() -> frozenset[str]:
    """The plugins that a profile could name: who does not know the profiles believes them all."""
    return frozenset(out_of_tree.names())


def names_of_plugins(plans: Sequence[Plan]) -> Iterator[Diagnostic]:
    """Decisions, hints and memos go by the name of a plugin, and a policy is one."""
    for plan in plans:
        if plan.name in DEFAULT_WEIGHTS:
            yield Diagnostic(
                "P502",
                f"`{plan.name}` is the name of a built-in plugin",
                *((plan.source, plan.name_span) if plan.used is None else plan.used.place),
                helps=("give the policy another name:  policy: NAME",),
            )


def without_binder(plan: Plan, binders: Set[str]) -> Iterator[Diagnostic]:
    """Lines `bind: with NAME` that hand pods to nobody.

    Args:
        plan: the policy.
        binders: the plugins that bind pods handed to them, beside the scheduler's own.
    """
    known = sorted({*binders, DEFAULT_BINDER})
    for rule in plan.binds:
        name = rule.core.name
        if name and name not in known:
            near = closest(name, known)
            by = "" if plan.used is None else f"`use {plan.used.name}`: "
            yield Diagnostic(
                "P119",
                f"{by}no plugin binds pods as `{name}`",
                *((plan.source, rule.span) if plan.used is None else plan.used.place),
                helps=(
                    f"did you mean `{near}`?" if near else f"there is {', '.join(known)}",
                    "a profile has to name the plugin of the package that binds",
                ),
            )


def without_policy(
    names: Iterable[str], plans: Sequence[Plan], place: Places
) -> Iterator[Diagnostic]:
    """What a configuration says of policies that are not there.

    Args:
        names: the policies that the configuration speaks of.
        plans: all policies of the chain.
        place: where a name stands in the configuration.
    """
    there = sorted({plan.name for plan in plans})
    for name in names:
        if name in there:
            continue
        near = closest(name, there)
        yield Diagnostic(
            "P107",
            f"the configuration speaks of a policy `{name}`, and there is none",
            *place(name),
            Severity.WARNING,
            helps=(
                (f"did you mean `{near}`?",)
                if near
                else ("there is " + (", ".join(there[:_SHOWN]) or "no policy"),)
            ),
        )


def _later(what: str) -> str:
    return f"`{what}` is understood, but this scheduler cannot run it yet"


def _beyond(plan: Plan) -> Iterator[tuple[RuleBase, str]]:
    """Statements that need what this scheduler does not have."""
    for rule, form, written in _forms(plan):
        if form not in ACTS_ON.statements:
            yield rule, _later(written)


def _forms(plan: Plan) -> Iterator[tuple[RuleBase, str, str]]:
    """The statements of which this scheduler may not act on all forms, and how each is written."""
    for rule in (*plan.preempts, *plan.quotas):
        point = rule.text.partition(":")[0]
        yield rule, point, f"{point}:"


def _rules(plan: Plan) -> Iterator[tuple[str, RuleBase]]:
    """All rules of a plan with the attribute that holds them."""
    for attribute in fields(plan):
        value = getattr(plan, attribute.name)
        rules = value if isinstance(value, tuple) else (value,)
        yield from ((attribute.name, one) for one in rules if isinstance(one, RuleBase))


def _reasons(point: str, rule: RuleBase, metrics: dict[str, MetricSpec]) -> Iterator[str]:
    """Why a rule cannot be run: a reason for each kind of thing that it reads."""
    unknown: list[str] = []
    for read in sorted(rule.reads):
        reason = _reason(point, read, metrics)
        if reason == _UNKNOWN:
            unknown.append(f"`{read}`")
        elif reason:
            yield reason
    if unknown:
        names = " and ".join(filter(None, (", ".join(unknown[:-1]), unknown[-1])))
        yield f"this scheduler does not know {names} yet"


def _reason(point: str, read: str, metrics: dict[str, MetricSpec]) -> str:
    kind, _, name = read.partition(":")
    if kind in ("metric", "metric_age") and name in metrics:
        spec = metrics[name]
        if spec.source not in _SOURCES:
            return f"this scheduler does not read metrics from `{spec.source}` yet"
    if read in FIELDS and read not in ACTS_ON.fields:
        return _UNKNOWN
    if read in _QUEUE_FIELDS and (point not in _QUEUE_RULES or read != "pod.queued_at"):
        return f"this scheduler knows `pod.queued_at` in `sort` only, and not `{read}` here"
    return ""
