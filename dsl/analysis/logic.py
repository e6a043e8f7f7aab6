"""Conditions that are never or always true, rules that shadow or contradict each other (P301-P304).

Of statements of which the first decides, lines never reached (P304, P504, P505). What can
hold at all is decided by `cubes`. Silent where it does not know.
"""

from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Final

from msgspec import Struct

from dsl import ir
from dsl.analysis.cubes import NEVER, Cube, Cubes, Unknown
from dsl.analysis.facts import FileFacts, RuleFacts, fields_of, parts, warning
from dsl.diagnostics import Diagnostic, Label, Severity
from dsl.source import SourceFile, Span
from dsl.types import Kind, Level

#: Pairs of rules that are compared; beyond that the analysis is silent.
_MAX_PAIRS: Final = 4_000
_PAIRS_A_STEP: Final = 16


class _Known(Struct):
    """What was found out about one filter: when it rejects a node, and when it does not."""

    rule: RuleFacts
    core: ir.FilterCore
    rejects: tuple[Cube, ...]
    passes: tuple[Cube, ...]
    by_parameter: bool


class Logic:
    """Looks at the conditions of one or several files."""

    def __init__(self) -> None:
        #: What was understood of conditions so far.
        self.cubes = Cubes()

    def file(self, facts: FileFacts) -> Iterator[Diagnostic | None]:
        """Yields findings about single rules; None between two."""
        for rule in facts.rules:
            yield from self._rule(rule)
            yield None

    def chain(self, files: Sequence[FileFacts]) -> Iterator[Diagnostic | None]:
        """Yields findings about pairs of filters, in the order in which they are asked."""
        known: list[_Known] = []
        for rule in (rule for one in files for rule in one.rules):
            if isinstance(rule.core, ir.FilterCore):
                with suppress(Unknown):
                    known.extend(self._understood(rule, rule.core))
                yield None
        left = _MAX_PAIRS
        for index, later in enumerate(known):
            for earlier in known[:index]:
                left -= 1
                if left < 0:
                    return
                if left % _PAIRS_A_STEP == 0:
                    yield None
                found = self._pair(earlier, later)
                if found is not None:
                    yield found
                    break
            yield None

    # ---- one rule

    def _rule(self, rule: RuleFacts) -> Iterator[Diagnostic]:
        """Yields what is odd about parts of a rule, else about the whole of it."""
        odd = yield from self._parts(rule, [*ir.joined(rule.core.guard), *parts(rule.core)])
        if odd or by_parameter(rule, rule.roots):
            return
        core, left = rule.core, rule.written.left
        with suppress(Unknown):
            if not self.applies(rule):
                place = rule.right if left is None else left.span
                label = "" if left is None else "never true of the pods that the file is for"
                yield rule.warning("P301", "this rule never applies", place, label=label)
                return
        if not isinstance(core, ir.FilterCore) or core.left is not None or core.guard is not None:
            return
        # `filter: false` for all pods; for some of them it is a way to say so.
        if isinstance(core.right, ir.Const) and bool(core.right.value) == core.forbids:
            what = "node" if rule.point == "filter" else "pod"
            message = f"no {what} passes this rule, whatever the pod"
            yield rule.warning("P301", message, rule.right)

    def applies(self, rule: RuleFacts) -> tuple[Cube, ...]:
        """Returns when the left side of a rule holds, `applies to` included. Raises `Unknown`."""
        return self.cubes.all_of([rule.core.guard, getattr(rule.core, "left", None)])

    def _parts(
        self, rule: RuleFacts, roots: Sequence[ir.Expr]
    ) -> Generator[Diagnostic, None, bool]:
        """Yields the smallest conditions that are never or always true; whether there are any."""
        asks = by_parameter(rule, roots)
        # A part of the same text is no part of its own: `x != a` is no `x == a`.
        same = {
            one
            for node in ir.walk(*roots)
            for one in ir.children(node)
            if one.span == node.span and one.type == node.type and not isinstance(node, ir.Named)
        }
        done: set[ir.Expr] = set()
        bad: set[ir.Expr] = set()
        for node in (node for root in roots for node in ir.parts_first(root, done)):
            done.add(node)
            if not bad.isdisjoint(ir.children(node)):
                bad.add(node)
            # Only where a parameter takes part at all, each part is looked through for it.
            elif node not in same and not (asks and by_parameter(rule, [node])):
                verdict = self._verdict(node)
                if verdict is not None:
                    bad.add(node)
                    code, what = ("P303", "always") if verdict else ("P301", "never")
                    night = isinstance(node, ir.Logical) and ("time.hour", None) in fields_of(node)
                    helps = ("over midnight it is  time.hour in 22..5",) * night
                    yield rule.warning(code, f"this is {what} true", node.span, *helps)
        return bool(bad)

    def _verdict(self, node: ir.Expr) -> bool | None:
        """Whether a condition is always or never true; None: neither, or nobody knows."""
        is_test = node.type.kind is Kind.BOOL and node.level is not Level.CONST
        for verdict in (False, True) if is_test and not isinstance(node, ir.Named) else ():
            with suppress(Unknown):
                if self.cubes.of(node, wanted=not verdict) == NEVER:
                    return verdict
        return None

    # ---- two rules

    def _understood(self, rule: RuleFacts, core: ir.FilterCore) -> Iterator[_Known]:
        """Yields a filter that rejects some nodes and passes others. Raises `Unknown`."""
        cubes, guard = self.cubes, core.guard
        fails, holds = cubes.of(core.test, wanted=False), cubes.of(core.test)
        rejects = cubes.all_of([guard], start=fails)
        if not rejects or not cubes.all_of([guard], start=holds):
            return
        passes = holds if guard is None else cubes.either(cubes.of(guard, wanted=False), holds)
        yield _Known(rule, core, rejects, passes, by_parameter(rule, rule.roots))

    def _pair(self, earlier: _Known, later: _Known) -> Diagnostic | None:
        one, other = earlier.rule, later.rule
        if one.point != other.point or (one.used is not None and one.used is other.used):
            return None
        name, this = name_of(one), "this rule" if other.used is None else name_of(other)
        with suppress(Unknown):
            asks = earlier.by_parameter or later.by_parameter
            if not asks and not self.cubes.meets(later.rejects, earlier.passes):
                message = f"what {this} rejects is already rejected by {name}"
                help_ = "remove it, or the stricter rule before it"
                places = one.place(one.written.span), other.place(other.written.span)
                return of_two("P304", message, places, help_)
            if one.point != "reserve" and self._contradict(earlier.core, later.core):
                every = earlier.core.guard is None and later.core.guard is None
                pods = "every pod" if every else "the pods that both are about"
                nodes = "every node for " * (one.point == "filter")
                message = f"together with {name} {this} rejects {nodes}{pods}"
                places = one.place(one.right), other.place(other.right)
                return of_two("P302", message, places)
        return None

    def _contradict(self, one: ir.FilterCore, other: ir.FilterCore) -> bool:
        """Whether nothing passes both, though each passes something. Raises `Unknown`."""
        cubes = self.cubes
        if len({cubes.keys.key(each.guard) for each in (one, other) if each.guard is not None}) > 1:
            # There may be no pod that both are about.
            return False
        pods = cubes.all_of([one.guard or other.guard])
        first, second = cubes.of(one.test), cubes.of(other.test)
        passed = cubes.both(pods, first)
        return bool(passed) and cubes.meets(pods, second) and not cubes.meets(passed, second)


def of_two(
    code: str,
    message: str,
    places: tuple[tuple[SourceFile, Span], tuple[SourceFile, Span]],
    *helps: str,
    label: str = "the other rule",
    severity: Severity = Severity.WARNING,
) -> Diagnostic:
    """Returns a finding about a later rule; the earlier one is shown where its file is."""
    (source, span), here = places
    labels = (Label(span, label),) if source is here[0] and span != here[1] else ()
    return warning(code, message, here, *helps, labels=labels, severity=severity)


def name_of(rule: RuleFacts) -> str:
    """Returns how a rule is called in a message about another one."""
    if rule.used is not None:
        return f"a rule of `{rule.used.name}`"
    line, _ = rule.source.position(rule.written.span.start)
    return f"the rule of {rule.source.name}:{line}"


def by_parameter(rule: RuleFacts, parts: Sequence[ir.Expr]) -> bool:
    """Whether a parameter takes part: with another value a finding may not hold."""
    for one in ir.walk(*parts) if rule.given else ():
        if isinstance(one, ir.Const):
            # They stand in order: only the first behind its start can be within it.
            first = bisect_left(rule.given, one.span.start, key=attrgetter("start"))
            if first < len(rule.given) and rule.given[first].end <= one.span.end:
                return True
    return False


_MAX_RULES: Final = 100


def decided(files: Sequence[FileFacts], logic: Logic) -> Iterator[Diagnostic]:
    """Yields findings about the statements of a chain of which only the first decides."""
    for one in files:
        if one.used is None:
            yield from _unreached(logic, [rule for rule in one.rules if rule.point == "permit"])
    for point in ("preempt", "bind"):
        rules = [rule for one in files for rule in one.rules if rule.point == point]
        yield from _unreached(logic, rules)
    yield from _elastic(rule for one in files for rule in one.rules)


def _unreached(logic: Logic, rules: Sequence[RuleFacts]) -> Iterator[Diagnostic]:
    """Yields statements whose pods are all taken by one before."""
    known: list[RuleFacts] = []
    for later in rules[:_MAX_RULES]:
        if by_parameter(later, later.roots):
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
    parts = ir.joined(other.core.guard), ir.joined(getattr(other.core, "left", None))
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
