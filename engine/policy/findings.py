"""Compiled policies in, diagnostics out: what a right policy lacks in this scheduler.

A plugin that binds, a policy that the configuration names. `berth check` foretells it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec.structs import astuple

from dsl.compiler import Compiler
from dsl.diagnostics import Diagnostic, Severity
from dsl.nearest import closest
from dsl.plan import Plan, RuleBase
from dsl.source import SourceFile, Span, blanked
from engine.framework.defaults import DEFAULT_BINDER, DEFAULT_WEIGHTS

if TYPE_CHECKING:
    from engine.framework.profile import Profile

CANARY: Final = "canary"
SHADOW: Final = "shadow"
_SHOWN: Final = 8
_HEADER: Final = re.compile(r"policy[ \t]*:")


#: The plugins that every scheduler runs, as `use` names them.
PLUGINS: Final = frozenset(
    "".join(f"-{sign.lower()}" if sign.isupper() else sign for sign in name).removeprefix("-")
    for name in DEFAULT_WEIGHTS
)
#: Statements that are about several pods at once, by the attribute of a plan that holds them.
_OF_MANY: Final[Mapping[str, str]] = MappingProxyType(
    {"sorts": "sort:", "preempts": "preempt:", "gangs": "gang:", "quotas": "quota:"}
)
#: A name of the configuration -> the text it stands in, and where.
Places = Callable[[str], tuple[SourceFile, Span]]


def new_compiler() -> Compiler:
    """A compiler that knows the scheduler's plugins."""
    return Compiler(plugins=PLUGINS)


def binders_of(profiles: Iterable[Profile]) -> frozenset[str]:
    """The plugins that bind pods which `bind: with` hands to them."""
    plugins = (one.plugin for profile in profiles for one in profile.plugins)
    return frozenset(plugin.name for plugin in plugins if plugin.points().binder)


def at_load(
    plans: Sequence[Plan], binders: Set[str], profiles: Mapping[str, frozenset[str]]
) -> Iterator[Diagnostic]:
    """What a scheduler says of policies that are right, with what its configuration says of them.

    Args:
        plans: all policies of the chain.
        binders: the plugins that bind pods handed to them, beside the scheduler's own.
        profiles: see `Bundle.profiles`.
    """
    yield from _of_all(plans)
    for plan in plans:
        if plan.mode != "off":
            yield from _without_binder(plan, binders)
            yield from _about_many(plan)
            yield from _sorts_of_some(plan, profiles)


def _without_binder(plan: Plan, binders: Set[str]) -> Iterator[Diagnostic]:
    known = sorted({*binders, DEFAULT_BINDER})
    for rule in plan.binds:
        name = rule.core.name
        if name and name not in known:
            by = "" if plan.used is None else f"`use {plan.used.name}`: "
            yield Diagnostic(
                "P119",
                f"{by}no plugin binds pods as `{name}`",
                *place_in(plan, rule.span),
                helps=(
                    _rather(name, known),
                    "a profile has to enable the plugin that binds",
                ),
            )


def place_in(plan: Plan, span: Span) -> tuple[SourceFile, Span]:
    """Where a finding about a part of a policy is shown: there, or in the line that uses it."""
    return (plan.source, span) if plan.used is None else plan.used.place


def _about_many(plan: Plan) -> Iterator[Diagnostic]:
    """Statements that cannot be for a share of the pods, or tried beside those in force."""
    word = plan.mode.partition(" ")[0]
    if word not in (CANARY, SHADOW):
        return
    for attribute, statement in _OF_MANY.items():
        for rule in getattr(plan, attribute):
            if word == CANARY:
                what = f"`{statement}` is about all pods, and `mode: {plan.mode}` about some"
                severity, help_ = Severity.ERROR, "put the line into a policy of its own"
            else:
                what = f"`{statement}` is not tried in shadow"
                severity, help_ = Severity.WARNING, "the other lines of the policy are"
            yield Diagnostic("P120", what, *place_in(plan, rule.span), severity, helps=(help_,))


def _of_all(plans: Sequence[Plan]) -> Iterator[Diagnostic]:
    """What is said of policies as a whole.

    Decisions, hints and memos go by the name of a plugin, and a policy is one. A text without a
    statement is allowed, and mostly what a template or an editor left of one.
    """
    for plan in plans:
        lines = blanked(plan.source.text).splitlines()
        if plan.used is None and all(not one.strip() or _HEADER.match(one) for one in lines):
            yield Diagnostic(
                "P316",
                f"the policy `{plan.name}` has no statement, and changes nothing",
                *plan.place,
                Severity.WARNING,
                helps=("write its rules, or remove it",),
            )
        if plan.name in DEFAULT_WEIGHTS:
            yield Diagnostic(
                "P502",
                f"`{plan.name}` is the name of a built-in plugin",
                *plan.place,
                helps=("give the policy another name:  policy: NAME",),
            )


def _sorts_of_some(plan: Plan, profiles: Mapping[str, frozenset[str]]) -> Iterator[Diagnostic]:
    """All profiles share the queue, and with it its order."""
    for rule in plan.sorts if plan.name in profiles else ():
        names = ", ".join(sorted(profiles[plan.name]))
        yield Diagnostic(
            "P501",
            f"`sort:` is for all profiles, and the policies of this source are for {names} only",
            plan.source,
            rule.span,
            helps=("put the line into a source that is for all profiles",),
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
        yield Diagnostic(
            "P107",
            f"the configuration names a policy `{name}`, which does not exist",
            *place(name),
            Severity.WARNING,
            helps=(_rather(name, there),),
        )


def _rather(name: str, known: Sequence[str]) -> str:
    near, there = closest(name, known), ", ".join(known[:_SHOWN])
    return f"did you mean `{near}`?" if near else f"there is {there or 'no policy'}"


def rules_of(plan: Plan) -> Iterator[RuleBase]:
    """All rules of a plan."""
    for value in astuple(plan):
        rules = value if isinstance(value, tuple) else (value,)
        yield from (one for one in rules if isinstance(one, RuleBase))
