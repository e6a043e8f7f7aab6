"""Conditions that are never or always true, rules that shadow or contradict each other (P301-P304).

Silent where it does not know.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct

from dsl import ir
from dsl.analysis.cubes import NEVER, Cube, Cubes, Unknown
from dsl.analysis.facts import FileFacts, RuleFacts, guard_of, parts, roots, warning
from dsl.diagnostics import Diagnostic, Label
from dsl.source import SourceFile, Span
from dsl.types import Kind, Level

#: Pairs of rules that are compared; beyond that the analysis is silent.
_MAX_PAIRS: Final = 4_000
_PAIRS_A_STEP: Final = 16
#: Where a pod must pass all rules at once.
_REJECTING: Final = ("filter", "gate", "prefilter")


class _Known(Struct):
    """What was found out about one rule."""

    facts: RuleFacts
    name: str
    by_parameter: bool = False
    dead: bool = False
    #: When it rejects a node; None where that is not known.
    rejects: tuple[Cube, ...] | None = None
    passes: tuple[Cube, ...] | None = None


class Logic:
    """Looks at the conditions of one or several files."""

    def __init__(self) -> None:
        #: What was understood of conditions so far.
        self.cubes = Cubes()
        self._seen: set[tuple[str, Span]] = set()

    def file(self, facts: FileFacts) -> Iterator[Diagnostic | None]:
        """Yields findings about single rules; None between two."""
        for rule in facts.rules:
            yield from self._rule(rule)
            yield None

    def chain(self, files: Sequence[FileFacts]) -> Iterator[Diagnostic | None]:
        """Yields findings about pairs of filters, in the order in which they are asked."""
        known = [
            _Known(rule, name_of(rule), by_parameter(rule.source, roots(rule.core)))
            for one in sorted(files, key=lambda one: one.rank)
            if one.active
            for rule in one.rules
            if isinstance(rule.core, ir.FilterCore)
        ]
        for one in known:
            self._understand(one)
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
        core = rule.core
        looked = [*ir.joined(guard_of(core)), *parts(core)]
        found: list[Diagnostic] = []
        odd = self._parts(rule.source, looked, found)
        yield from found
        if not odd:
            one = self._whole(rule)
            if one is not None:
                yield one

    def _whole(self, rule: RuleFacts) -> Diagnostic | None:
        """Looks at a rule for the pods that it is for."""
        if by_parameter(rule.source, roots(rule.core)):
            return None
        with suppress(Unknown):
            if not self.applies(rule):
                left = rule.written.left
                place = rule.right if left is None else left.span
                label = "" if left is None else "never true together with `applies to`"
                message = "this rule never applies"
                return warning("P301", message, rule.source, place, label=label)
        return _rejects_all(rule)

    def applies(self, rule: RuleFacts) -> tuple[Cube, ...]:
        """Returns when the left side of a rule holds, `applies to` included. Raises `Unknown`."""
        core = rule.core
        left = (
            core.left if isinstance(core, ir.FilterCore | ir.PermitCore | ir.ActionCore) else None
        )
        return self.cubes.all_of([guard_of(core), left])

    def _parts(self, source: SourceFile, roots: Sequence[ir.Expr], found: list[Diagnostic]) -> bool:
        """Finds the smallest conditions that are never or always true; whether there are any."""
        asks = by_parameter(source, roots)
        # A part of the same text is no part of its own: `x != a` is no `x == a`.
        same = {
            id(one)
            for node in ir.walk(*roots)
            for one in ir.children(node)
            if one.span == node.span and one.type == node.type and not isinstance(node, ir.Named)
        }
        done: set[int] = set()
        bad: set[int] = set()
        for node in (node for root in roots for node in ir.parts_first(root, done)):
            done.add(id(node))
            if any(id(one) in bad for one in ir.children(node)):
                bad.add(id(node))
            # Only where a parameter takes part at all, each part is looked through for it.
            elif id(node) not in same and not (asks and by_parameter(source, [node])):
                one = self._constant(source, node)
                if one is not None:
                    bad.add(id(node))
                    if (source.name, one.span) not in self._seen:
                        self._seen.add((source.name, one.span))
                        found.append(one)
        return bool(bad)

    def _constant(self, source: SourceFile, node: ir.Expr) -> Diagnostic | None:
        if node.type.kind is not Kind.BOOL or node.level is Level.CONST:
            return None
        if isinstance(node, ir.Named):
            return None
        verdict = self._verdict(node)
        if verdict is None:
            return None
        code, what = ("P303", "always") if verdict else ("P301", "never")
        return warning(code, f"this is {what} true", source, node.span)

    def _verdict(self, node: ir.Expr) -> bool | None:
        for verdict in (False, True):
            with suppress(Unknown):
                if self.cubes.of(node, wanted=not verdict) == NEVER:
                    return verdict
        return None

    # ---- two rules

    def _understand(self, known: _Known) -> None:
        core = known.facts.core
        assert isinstance(core, ir.FilterCore)
        cubes = self.cubes
        try:
            fails = cubes.of(core.test, wanted=False)
            known.rejects = cubes.all_of([core.guard], start=fails)
            known.dead = not known.rejects or not cubes.all_of([core.guard, core.test])
            passes = cubes.of(core.test)
            if core.guard is not None:
                passes = cubes.either(cubes.of(core.guard, wanted=False), passes)
            known.passes = passes
        except Unknown:
            return

    def _pair(self, earlier: _Known, later: _Known) -> Diagnostic | None:
        point = later.facts.point
        if earlier.dead or later.dead or earlier.facts.point != point:
            return None
        if earlier.facts.used is not None and earlier.facts.used is later.facts.used:
            return None
        try:
            found = self._implied(earlier, later)
            if found is not None or point not in _REJECTING:
                return found
            return self._contradiction(earlier, later)
        except Unknown:
            return None

    def _implied(self, earlier: _Known, later: _Known) -> Diagnostic | None:
        if earlier.by_parameter or later.by_parameter:
            return None
        if later.rejects is None or earlier.passes is None:
            return None
        try:
            if self.cubes.meets(later.rejects, earlier.passes):
                return None
        except Unknown:
            return None
        rule, label = later.facts, self._label(earlier, later)
        return warning(
            "P304",
            f"what {_this(rule)} rejects is already rejected by {earlier.name}",
            *rule.place(rule.written.span),
            "remove it, or the stricter rule before it",
            labels=label,
        )

    def _contradiction(self, earlier: _Known, later: _Known) -> Diagnostic | None:
        a, b = earlier.facts.core, later.facts.core
        assert isinstance(a, ir.FilterCore)
        assert isinstance(b, ir.FilterCore)
        cubes = self.cubes
        guards = {cubes.keys.key(one) for one in (a.guard, b.guard) if one is not None}
        if len(guards) > 1:
            # There may be no pod that both are about.
            return None
        pods = cubes.all_of([a.guard or b.guard])
        first, second = cubes.of(a.test), cubes.of(b.test)
        passed = cubes.both(pods, first)
        if not passed or not cubes.meets(pods, second) or cubes.meets(passed, second):
            return None
        return self._rejects_all(earlier, later)

    def _rejects_all(self, earlier: _Known, later: _Known) -> Diagnostic:
        rule = later.facts
        guards = [guard_of(one.facts.core) for one in (earlier, later)]
        pods = "every pod" if guards == [None, None] else "the pods that both are about"
        what = f"rejects every node for {pods}" if rule.point == "filter" else f"rejects {pods}"
        return warning(
            "P302",
            f"together with {earlier.name} {_this(rule)} {what}",
            *rule.place(rule.right),
            labels=self._label(earlier, later, right=True),
        )

    def _label(self, earlier: _Known, later: _Known, *, right: bool = False) -> tuple[Label, ...]:
        one, other = earlier.facts, later.facts
        source, span = one.place(one.right if right else one.written.span)
        if source is not other.place(other.right)[0] or other.used is not None:
            return ()
        return (Label(span, "the other rule"),)


def _rejects_all(rule: RuleFacts) -> Diagnostic | None:
    """Warns of `filter: false` for all pods; for some of them it is a way to say so."""
    core = rule.core
    if not isinstance(core, ir.FilterCore) or core.left is not None or core.guard is not None:
        return None
    if not isinstance(core.right, ir.Const) or bool(core.right.value) != core.forbids:
        return None
    what = "no node passes this rule" if rule.point == "filter" else "no pod passes this rule"
    return warning("P301", f"{what}, whatever the pod", rule.source, rule.right)


def name_of(rule: RuleFacts) -> str:
    """Returns how a rule is called in a message about another one."""
    if rule.used is not None:
        return f"a rule of `{rule.used.name}`"
    line, _ = rule.source.position(rule.written.span.start)
    return f"the rule of {rule.source.name}:{line}"


def _this(rule: RuleFacts) -> str:
    return "this rule" if rule.used is None else f"a rule of `{rule.used.name}`"


def by_parameter(source: SourceFile, parts: Sequence[ir.Expr]) -> bool:
    """Whether a parameter takes part: with another value a finding may not hold."""
    return "$" in source.text and any(
        isinstance(one, ir.Const) and "$" in source.slice(one.span) for one in ir.walk(*parts)
    )
