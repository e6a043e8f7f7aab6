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
from dsl.plan import Plan, RuleBase
from dsl.schema import FIELDS
from dsl.source import SourceFile, Span
from engine.framework.acting import DEFAULT_BINDER
from engine.framework.profile import Profile
from engine.plugins import out_of_tree
from engine.plugins.registry import DEFAULT_WEIGHTS
from engine.policy.shares import about_many

_LEAVE_OUT: Final = (
    "until a version runs it, leave the line out, or the whole policy with  mode: off"
)
_SHOWN: Final = 8


class Acting(Struct, frozen=True):
    """What of the language this scheduler acts on; the rest is understood and refused.

    Attributes:
        plugins: those that every scheduler runs, as `use` names them.
        fields: what has a value.
    """

    plugins: frozenset[str]
    fields: frozenset[str]


#: Owners of fields, and fields, that no object or table of this scheduler holds.
_LATER: Final = (
    "it.quota.",
)  # fmt: skip
ACTS_ON: Final = Acting(
    plugins=frozenset(
        "".join(f"-{sign.lower()}" if sign.isupper() else sign for sign in name).removeprefix("-")
        for name in DEFAULT_WEIGHTS
    ),
    fields=frozenset(name for name in FIELDS if not name.startswith(_LATER)),
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

    for rule in rules_of(plan):
        unknown = sorted(read for read in rule.reads if read in FIELDS.keys() - ACTS_ON.fields)
        if unknown:
            names = [f"`{read}`" for read in unknown]
            listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
            add(rule.span, f"this scheduler does not know {listed} yet", _LEAVE_OUT)
    return [found[key] for key in sorted(found)]


def binders_of(profiles: Iterable[Profile]) -> frozenset[str]:
    """The plugins that bind pods which `bind: with` hands to them."""
    plugins = (one.plugin for profile in profiles for one in profile.plugins)
    return frozenset(plugin.name for plugin in plugins if plugin.points().binder)


def installed() -> frozenset[str]:
    """The plugins that a profile could name: who does not know the profiles believes them all."""
    return frozenset(out_of_tree.names())


def at_load(plan: Plan, binders: Set[str]) -> Iterator[Diagnostic]:
    """What a scheduler says of a policy that is right; `binders` are those of `without_binder`."""
    yield from unsupported(plan)
    yield from without_binder(plan, binders)
    yield from about_many(plan)


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


def rules_of(plan: Plan) -> Iterator[RuleBase]:
    """All rules of a plan."""
    for attribute in fields(plan):
        value = getattr(plan, attribute.name)
        rules = value if isinstance(value, tuple) else (value,)
        yield from (one for one in rules if isinstance(one, RuleBase))
