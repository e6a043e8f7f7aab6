"""Statements of which one decides: lines never reached.

`permit:` decides by its first line that applies, `bind:` and `preempt:` by the first of all
policies.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from dsl import ir
from dsl.analysis.cubes import Cube, Unknown
from dsl.analysis.facts import FileFacts, RuleFacts, guard_of, roots, warning
from dsl.analysis.logic import Logic, by_parameter, name_of, of_two
from dsl.diagnostics import Diagnostic, Severity

_MAX_RULES: Final = 100


def decided(files: Sequence[FileFacts], logic: Logic) -> Iterator[Diagnostic]:
    """Yields findings about the statements of a chain of which only the first decides."""
    active = [one for one in sorted(files, key=lambda one: one.rank) if one.active]
    for one in active:
        if one.used is None:
            yield from _unreached(logic, [rule for rule in one.rules if rule.point == "permit"])
    for point in ("preempt", "bind"):
        rules = [rule for one in active for rule in one.rules if rule.point == point]
        yield from _unreached(logic, rules)
    yield from _elastic(rule for one in active for rule in one.rules)


def _unreached(logic: Logic, rules: Sequence[RuleFacts]) -> Iterator[Diagnostic]:
    """Yields statements whose pods are all taken by one before."""
    known: list[RuleFacts] = []
    for later in rules[:_MAX_RULES]:
        if by_parameter(later, roots(later.core)):
            continue
        with suppress(Unknown):
            takes = logic.applies(later)
            before = (one for one in known if takes and not _beyond(logic, takes, one))
            earlier = next(before, None)
            known.append(later)
            if earlier is not None:
                yield _never(earlier, later)


def _beyond(logic: Logic, takes: tuple[Cube, ...], other: RuleFacts) -> bool:
    """Whether some of these pods may not be those of the other rule."""
    parts = ir.joined(guard_of(other.core)), ir.joined(getattr(other.core, "left", None))
    with suppress(Unknown):
        fails = (logic.cubes.of(one, wanted=False) for part in parts for one in part)
        return any(logic.cubes.both(takes, one) for one in fails)
    return True


def _never(earlier: RuleFacts, later: RuleFacts) -> Diagnostic:
    one, other = earlier.core, later.core
    places = earlier.place(earlier.written.span), later.place(later.written.span)
    name, label = name_of(earlier), "decides first"
    kinds = [(each.kind, each.name) for each in (one, other) if isinstance(each, ir.BindCore)]
    if len(set(kinds)) > 1:
        message = f"{name} binds all of these pods in another way"
        help_ = "say which pods each of them is for:  bind: pod.namespace is NAME -> ..."
        return of_two("P504", message, places, help_, label=label, severity=Severity.ERROR)
    message = f"this line never decides: {name} does for all of its pods"
    help_ = "remove one of them, or put the narrower line first"
    return of_two("P304", message, places, help_, label=label)


def _elastic(rules: Iterator[RuleFacts]) -> Iterator[Diagnostic]:
    of_quota = [one for one in rules if isinstance(one.core, ir.QuotaCore) and one.core.elastic]
    for rule in of_quota[1:]:
        place = rule.place(rule.written.span)
        message = (
            f"{name_of(of_quota[0])} is an elastic quota already, and both would lend the same"
        )
        help_ = "keep one of the two; quotas with `max` alone may be several"
        yield warning("P505", message, place, help_, severity=Severity.ERROR)
