"""Expressions as written become typed ones: names, kinds, units, levels.

One `Typer` serves one file. `check` gives a typed tree or raises `Refused` with the finding
recorded; constants keep their unit open until a neighbour settles it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Final, cast

from msgspec.structs import replace

from dsl import ir
from dsl import syntax as s
from dsl.checker import aggregates, calls, comparisons, elsewhere, fields, hints
from dsl.checker.literals import constant, fold, read_literal, settle
from dsl.checker.mixtures import compared, condition_hint, number_hint, unit_hint
from dsl.checker.scope import (
    Flex,
    LetEntry,
    MetricEntry,
    Refused,
    Scope,
    Typed,
    closest,
    describe,
)
from dsl.checker.texts import as_test, quoted_rule
from dsl.diagnostics import Fix, Label, Severity
from dsl.plan import OF_NODES
from dsl.schema import CATALOGUE, FIELDS
from dsl.source import Span
from dsl.types import (
    BOOL,
    BYTES,
    CORES,
    DURATION,
    NUMBER,
    PLAIN,
    SECONDS,
    TEXT,
    TEXTS,
    TIME,
    Kind,
    Level,
    Type,
    number_of,
)

_MAX_TOTAL_DEPTH: Final = 128
_METRIC_LEVELS: Final = {
    **dict.fromkeys(OF_NODES, Level.NODE),
    "cluster": Level.CYCLE,
    "namespace": Level.POD,
    "workload": Level.POD,
    "pod": Level.POD,
}


def level_of(nodes: Sequence[ir.Expr]) -> Level:
    """Returns the highest level of the parts."""
    return max(one.level for one in nodes)


class Typer:
    """Checks the expressions of one file."""

    def __init__(
        self, scope: Scope, find_metric: Callable[[str, Span], MetricEntry | None]
    ) -> None:
        self.scope = scope
        self.find_metric = find_metric
        #: The expression whose subject a bare `max` means.
        self.root: s.Expr | None = None
        #: What a bare aggregate may mean in it; None before one was met.
        self.subjects: aggregates.Subjects | None = None
        #: Whether `it` means a pod of a set here, whether those pods are on nodes, and whether it
        #: means a container.
        self.in_pods = False
        self.placed = True
        self.in_containers = False
        #: What `it` alone means: the item of a list that an aggregate runs over.
        self.item: ir.Expr | None = None
        #: How many parts such aggregates of the file have come to.
        self.written_out = 0
        #: Aggregates over lists that are read, and what holds where a list is too long.
        self.bounded: dict[int, tuple[ir.Expr, ir.Compare]] = {}
        #: Fields that only some statements know: `score.total`, `victims.count`.
        self.results: frozenset[str] = frozenset()
        #: Lets that are numbers and were told of where one stood as a condition.
        self._no_conditions: set[str] = set()
        #: How deep each expression is, by its id; held here, so that no other one gets that id.
        self._depths: dict[int, tuple[int, ir.Expr]] = {}
        #: How many expressions are being checked, one within the other.
        self._nested = 0

    # ---- entries for statements

    def expression(self, node: s.Expr) -> Typed:
        """Checks a whole expression; a bare aggregate in it means its subject."""
        before = self.root, self.subjects
        self.root, self.subjects = node, None
        try:
            typed = self.check(node)
        finally:
            self.root, self.subjects = before
        if not isinstance(typed, Flex):
            self._limit_depth(typed, node.span)
        return typed

    def condition(self, node: s.Expr, what: str) -> ir.Expr:
        """Checks an expression that must be a condition."""
        typed = self.expression(node)
        if isinstance(typed, Flex) or typed.type.kind is not Kind.BOOL:
            text = self.scope.text(node)
            hints = []
            if not isinstance(typed, Flex) and typed.type.kind is Kind.TEXT:
                hints.append(quoted_rule(node) or f"write  {as_test(text, typed)}")
            elif isinstance(typed, Flex) or typed.type.is_number:
                self._once(typed)
                hints.append(compared(text, typed))
            raise self.scope.refuse(
                "P208", f"{what} is a condition, and this is {describe(typed)}", node.span, *hints
            )
        return typed

    def _once(self, typed: Typed) -> None:
        """Stops where a let that is a number was told of as a condition before."""
        if isinstance(typed, ir.Named) and typed.type.is_number:
            if typed.name in self._no_conditions:
                raise Refused
            self._no_conditions.add(typed.name)

    def plain(self, typed: Typed) -> ir.Expr:
        """Settles a constant as a plain number."""
        return settle(self.scope, typed, PLAIN)

    @contextmanager
    def inside(
        self, *, pods: bool = False, placed: bool = True, containers: bool = False
    ) -> Iterator[None]:
        """Says what `it` means while an expression is checked."""
        before = self.in_pods, self.placed, self.in_containers
        self.in_pods, self.placed, self.in_containers = pods, placed, containers
        try:
            yield
        finally:
            self.in_pods, self.placed, self.in_containers = before

    def _limit_depth(self, root: ir.Expr, span: Span) -> None:
        stack: list[ir.Expr] = [root]
        while stack:
            node = stack[-1]
            if id(node) in self._depths:
                stack.pop()
                continue
            parts = ir.children(node)
            todo = [one for one in parts if id(one) not in self._depths]
            if todo:
                stack.extend(todo)
                continue
            below = max((self._depths[id(one)][0] for one in parts), default=0)
            self._depths[id(node)] = 1 + below, node
        if self._depths[id(root)][0] > _MAX_TOTAL_DEPTH:
            raise self._too_deep(span)

    def _too_deep(self, span: Span) -> Refused:
        return self.scope.refuse(
            "P006",
            f"through its lets this is nested more than {_MAX_TOTAL_DEPTH} deep",
            span,
            "compute less in one value, or shorten the row of lets that need each other",
        )

    # ---- the walk

    def check(self, node: s.Expr) -> Typed:
        """Returns the typed tree of an expression. Raises `Refused`."""
        if self._nested == _MAX_TOTAL_DEPTH:
            raise self._too_deep((self.root or node).span)
        self._nested += 1
        try:
            match node:
                case s.Number() | s.Percent():
                    return read_literal(self.scope, node)
                case s.Text() | s.Word():
                    return constant(node.span, node.value, TEXT)
                case s.Bool():
                    return constant(node.span, node.value, BOOL)
                case s.Param():
                    return self.param(node)
                case s.Name():
                    return self._name(node)
                case s.Field():
                    return fields.read_field(self, node)
                case s.LabelTest():
                    return fields.label_test(self, node)
                case s.Words():
                    return self._list(node)
                case _:
                    return self._compound(node)
        finally:
            self._nested -= 1

    def _list(self, node: s.Words) -> ir.Expr:
        """Returns a list of fixed words; what they are is decided where they are tested."""
        texts = []
        fields.no_fields(self.scope, node)
        for item in node.items:
            value = fields.label_value(self, item)
            if not isinstance(value, ir.Const) or not isinstance(value.value, str):
                raise self.scope.refuse("P201", "a list holds fixed words here", item.span)
            texts.append(value.value)
        return constant(node.span, tuple(texts), TEXTS)

    def _compound(self, node: s.Expr) -> Typed:
        match node:
            case s.Chain():
                return self._sum(node) if node.operators[0] in "+-" else self._product(node)
            case s.Negative():
                return self._negative(node)
            case s.PercentOf():
                return self._percent_of(node)
            case s.Logical() | s.Not():
                return self._logic(node)
            case s.If():
                return self._if(node)
            case s.Fallback():
                return self._fallback(node)
            case s.Call():
                return calls.call(self, node)
            case s.Aggregate():
                return aggregates.aggregate(self, node)
            case s.BareAggregate():
                return aggregates.bare(self, node)
            case _:
                return comparisons.check_test(self, node)

    def each(self, nodes: Sequence[s.Expr]) -> list[Typed]:
        """Checks several parts; reports what is wrong with each before giving up."""
        out: list[Typed] = []
        refused: Refused | None = None
        for node in nodes:
            try:
                out.append(self.check(node))
            except Refused as stop:
                refused = stop
        if refused is not None:
            raise refused
        return out

    def unify(self, parts: Sequence[Typed], joined: str) -> tuple[tuple[ir.Expr, ...], Type]:
        """Brings values to one type; constants take the unit of the others."""
        firm = next((one for one in parts if not isinstance(one, Flex)), None)
        if firm is None:
            return tuple(self.plain(one) for one in parts), NUMBER
        unit = firm.type.unit or PLAIN
        out = []
        for one in parts:
            if isinstance(one, Flex) and firm.type.is_number:
                out.append(settle(self.scope, one, unit, firm))
            elif isinstance(one, Flex) or one.type.kind is not firm.type.kind:
                raise self.mixed("P201", f"{joined} two values of one kind", firm, one)
            elif one.type.unit != firm.type.unit:
                raise self.mixed("P203", f"{joined} equal units", firm, one)
            else:
                out.append(one)
        return tuple(out), firm.type

    def mixed(self, code: str, wants: str, left: Typed, right: Typed, *helps: str) -> Refused:
        """Refuses two values that do not go together."""
        first, second = sorted((left, right), key=lambda one: one.span.start)
        return self.scope.refuse(
            code,
            f"{wants}, not {describe(left)} and {describe(right)}",
            first.span,
            *helps,
            label=describe(first),
            labels=(Label(second.span, describe(second)),),
        )

    # ---- names

    def param(self, node: s.Param) -> Typed:
        """Returns the value of a parameter."""
        entry = self.scope.params.get(node.name)
        if entry is None:
            if node.name in self.scope.broken:
                raise Refused
            near = closest(node.name, self.scope.params)
            help_, fix = elsewhere.no_param(self.scope, node)
            if near and fix is None:
                help_, fix = f"did you mean `${near}`?", f"${near}"
            raise self.scope.refuse(
                "P105",
                f"there is no parameter `${node.name}`",
                node.span,
                help_,
                fix=fix,
            )
        if entry.value is None:
            raise Refused
        if isinstance(entry.value, Flex):
            flex = entry.value
            return Flex(node.span, flex.exact, flex.sort, flex.text)
        known = cast("ir.Const", entry.value)
        return constant(node.span, known.value, known.type)

    def _name(self, node: s.Name) -> Typed:
        entry = self.scope.lets.get(node.name)
        if entry is not None:
            return self._let(entry, node.span)
        if node.name == "it" and self.item is not None:
            return replace(self.item, span=node.span)
        if node.name == "now":
            return ir.Read(span=node.span, type=TIME, level=Level.CYCLE, field="now")
        if node.name in self.scope.broken:
            raise Refused
        metric = self.metric(node.name, node.span)
        if metric is None:
            raise self._unknown_name(node)
        return metric

    def metric(self, name: str, span: Span, *, age: bool = False) -> ir.Expr | None:
        """Returns a read of a metric with its default put in; None if there is none."""
        entry = self.find_metric(name, span)
        if entry is None:
            return None
        if entry.spec is None:
            raise Refused
        if entry.spec.of == "pair":
            raise self.scope.refuse(
                "P209", f"`{name}` is a metric of pairs", span, f"write  {name}(node.name, it.node)"
            )
        kind = DURATION if age else number_of(entry.unit)
        level = _METRIC_LEVELS[entry.spec.of]
        if level is Level.POD and entry.spec.of == "pod" and self.in_pods:
            level = Level.IT
        read = ir.Metric(
            span=span,
            type=kind,
            level=level,
            name=name,
            id=entry.spec.id,
            age=age,
            of=entry.spec.of,
            source=entry.spec.source,
        )
        if entry.spec.default is None or age:
            return read
        default = constant(span, entry.spec.default, kind)
        return ir.Coalesce(span=span, type=kind, level=level, operands=(read, default))

    def _let(self, entry: LetEntry, span: Span) -> Typed:
        value = self.let_value(entry)
        if isinstance(value, Flex):
            return Flex(span, value.exact, value.sort, value.text)
        return ir.Named(
            span=span, type=value.type, level=value.level, name=entry.written.name, body=value
        )

    def _circle(self, entry: LetEntry) -> str:
        """Returns how to break the circle that a let is a part of."""
        name = entry.written.name
        others = [f"`{one}`" for one, let in self.scope.lets.items() if let.open and one != name]
        if not others:
            return f"write its value without `{name}`"
        return f"it needs {' and '.join(others)}: write one of them without the other"

    def let_value(self, entry: LetEntry) -> Typed:
        """Checks a `let` once, whenever it is first needed."""
        if entry.open:
            raise self.scope.refuse(
                "P110",
                f"`{entry.written.name}` is defined by way of itself",
                entry.written.name_span,
                self._circle(entry),
            )
        if not entry.done:
            entry.open = True
            results, self.results = self.results, frozenset()
            item, self.item = self.item, None
            try:
                with self.inside():
                    entry.value = self.expression(entry.written.value)
            finally:
                entry.open, entry.done = False, True
                self.results, self.item = results, item
        if entry.value is None:
            raise Refused
        return entry.value

    def _unknown_name(self, node: s.Name) -> Refused:
        name = node.name
        near = closest(name, self.scope.names()) if name not in self.scope.params else None
        if near is not None:
            doc = CATALOGUE[near].doc if near in CATALOGUE else ""
            more = f" (bundled metric: {doc})" if doc and near not in self.scope.metrics else ""
            return self.scope.refuse(
                "P102",
                f"no metric, let or field is called `{name}`",
                node.span,
                f"did you mean `{near}`?{more}",
                fix=near,
            )
        return hints.no_name(self.scope, node, in_pods=self.in_pods)

    # ---- arithmetic

    def _tight_fallbacks(self, node: s.Chain) -> None:
        """Warns of `a ?? b * c`, where `??` binds tighter than it looks."""
        for one in node.operands:
            if isinstance(one, s.Fallback) and self.scope.source.beside(one.span) != ("(", ")"):
                written = self.scope.text(one)
                self.scope.warn(
                    "P221",
                    "`??` binds tighter than arithmetic",
                    one.span,
                    f"if that is what you mean, write  ({written})",
                )

    def _sum(self, node: s.Chain) -> Typed:
        self._tight_fallbacks(node)
        parts = self.each(node.operands)
        if all(isinstance(one, Flex) for one in parts):
            return fold(self.scope, node.operators, cast("list[Flex]", parts), node.span)
        firm = next(one for one in parts if not isinstance(one, Flex))
        has_time = any(not isinstance(one, Flex) and one.type.kind is Kind.TIME for one in parts)
        unit = SECONDS if has_time else firm.type.unit or PLAIN
        solid = [settle(self.scope, one, unit, firm) for one in parts]
        self._joined(node, solid)
        kind = solid[0].type
        for operator, left, right in zip(node.operators, solid, solid[1:], strict=False):
            kind = self._sum_type(operator, kind, left, right)
        return ir.Arith(
            span=node.span,
            type=kind,
            level=level_of(solid),
            operators=node.operators,
            operands=tuple(solid),
        )

    def _sum_type(self, operator: str, kind: Type, left: ir.Expr, right: ir.Expr) -> Type:
        other = right.type
        if kind.kind is Kind.TIME and other.kind is Kind.TIME and operator == "-":
            return DURATION
        if kind.kind is Kind.TIME and other == DURATION:
            return TIME
        if kind == DURATION and other.kind is Kind.TIME and operator == "+":
            return TIME
        word = "add" if operator == "+" else "subtract"
        if kind.is_number and other.is_number:
            if kind.unit == other.unit:
                return kind
            hint = unit_hint(kind, right) or unit_hint(other, left)
            if {kind.unit, other.unit} == {CORES, BYTES}:
                hint = "add shares:  node.cpu.free/node.cpu.allocatable"
                hint += f" {operator} node.memory.free/node.memory.allocatable"
            raise self.scope.refuse(
                "P203",
                f"cannot {word} {describe(left)} and {describe(right)}",
                left.span,
                *([hint] if hint else []),
                label=describe(left),
                labels=(Label(right.span, describe(right)),),
            )
        texts = operator == "+" and Kind.TEXT in (kind.kind, other.kind)
        joined = f"write  join({self.scope.text(left)}, {self.scope.text(right)})"
        wants = f"`{operator}` wants two numbers"
        helps = [joined] if texts else []
        if not texts and other.kind is Kind.TEXT and kind.is_number:
            helps = list(number_hint(self.scope, right))
        raise self.mixed("P201", wants, left, right, *helps)

    def _joined(self, node: s.Chain, parts: list[ir.Expr]) -> None:
        """Refuses `pod.name + "-x"`."""
        if any(one.type.kind is not Kind.TEXT for one in parts) or {*node.operators} != {"+"}:
            return
        better = f"join({', '.join(self.scope.text(one) for one in node.operands)})"
        raise self.scope.refuse(
            "P201",
            "`+` wants numbers: texts are put together by `join`",
            node.span,
            f"write  {better}",
            fix=better,
        )

    def _product(self, node: s.Chain) -> Typed:
        hints.slashed_key(self.scope, node)
        self._tight_fallbacks(node)
        parts = self.each(node.operands)
        if all(isinstance(one, Flex) for one in parts):
            return fold(self.scope, node.operators, cast("list[Flex]", parts), node.span)
        solid = [self.plain(one) for one in parts]
        unit = PLAIN
        for operator, one in zip(("*", *node.operators), solid, strict=True):
            if not one.type.is_number:
                raise self.scope.refuse(
                    "P201",
                    f"`{operator}` wants numbers, and this is {describe(one)}",
                    one.span,
                    *number_hint(self.scope, one),
                )
            unit = unit.times(one.type.unit or PLAIN, 1 if operator == "*" else -1)
        return ir.Arith(
            span=node.span,
            type=number_of(unit),
            level=level_of(solid),
            operators=node.operators,
            operands=tuple(solid),
        )

    def number(self, node: s.Expr, what: str) -> Typed:
        """Checks an expression that must be a number."""
        typed = self.check(node)
        if not isinstance(typed, Flex) and not typed.type.is_number:
            raise self.scope.refuse(
                "P201",
                f"{what} wants a number, and this is {describe(typed)}",
                node.span,
                *number_hint(self.scope, typed),
            )
        return typed

    def _negative(self, node: s.Negative) -> Typed:
        typed = self.number(node.operand, "`-`")
        if isinstance(typed, Flex):
            exact = None if typed.exact is None else -typed.exact
            return Flex(node.span, exact, typed.sort, f"-{typed.text}")
        return ir.Negate(span=node.span, type=typed.type, level=typed.level, operand=typed)

    def _percent_of(self, node: s.PercentOf) -> Typed:
        share = cast("Flex", read_literal(self.scope, node.percent))
        typed = self.number(node.operand, "`of`")
        exact = cast("Fraction", share.exact)
        if isinstance(typed, Flex):
            return fold(self.scope, ("*",), [Flex(share.span, exact), typed], node.span)
        # Times N, then over 100: exact wherever the result is a whole number.
        number = settle(self.scope, Flex(share.span, exact * 100), PLAIN)
        return ir.Arith(
            span=node.span,
            type=typed.type,
            level=typed.level,
            operators=("*", "/"),
            operands=(typed, number, constant(share.span, 100.0, NUMBER)),
        )

    # ---- logic and choice

    def _logic(self, node: s.Logical | s.Not) -> ir.Expr:
        written = (node.operand,) if isinstance(node, s.Not) else node.operands
        word = "not" if isinstance(node, s.Not) else node.operator
        if isinstance(node, s.Logical):
            hints.alternatives(self.scope, node)
        solid = []
        for one in self.each(written):
            if isinstance(one, Flex) or one.type.kind is not Kind.BOOL:
                self._once(one)
                raise self.scope.refuse(
                    "P201",
                    f"`{word}` wants conditions, and this is {describe(one)}",
                    one.span,
                    *(self._values_apart(node) or self._as_condition(one, negated=word == "not")),
                )
            solid.append(one)
        if isinstance(node, s.Not):
            return ir.Not(span=node.span, type=BOOL, level=solid[0].level, operand=solid[0])
        return ir.Logical(
            span=node.span,
            type=BOOL,
            level=level_of(solid),
            operator=node.operator,
            operands=tuple(solid),
        )

    def _as_condition(self, typed: Typed, *, negated: bool) -> tuple[str, ...]:
        return condition_hint(self.scope, typed, negated=negated)

    def _values_apart(self, node: s.Logical | s.Not) -> tuple[str, ...]:
        """Returns what to write for `score: load and cpu_usage` and for `score: load or 50`."""
        if self.root is not node or not isinstance(node, s.Logical):
            return ()
        head = elsewhere.head_of_value(self.scope, node.span)
        values = [self.scope.text(one) for one in node.operands]
        if not head or any(
            isinstance(one, s.Compare | s.Is | s.LabelTest) for one in node.operands
        ):
            return ()
        if node.operator == "or":
            return (f"for what holds without data write  {' ?? '.join(values)}",)
        lines = "   and   ".join(f"{head} {one}" for one in values)
        return (f"write a line for each:  {lines}",)

    def _if(self, node: s.If) -> ir.Expr:
        conditions = [one for one, _ in node.branches]
        checked = self.each([*conditions, *(then for _, then in node.branches), node.otherwise])
        count = len(conditions)
        tests = []
        for one in checked[:count]:
            if isinstance(one, Flex) or one.type.kind is not Kind.BOOL:
                self._once(one)
                raise self.scope.refuse(
                    "P201",
                    f"`if` wants a condition, and this is {describe(one)}",
                    one.span,
                    *condition_hint(self.scope, one, negated=False),
                )
            tests.append(one)
        values, kind = self.unify(checked[count:], "`then` and `else` want")
        if kind.kind is Kind.LIST and level_of((*values, *tests)) > Level.POD:
            raise self.scope.refuse(
                "P201", "a list may not differ from node to node here", node.span
            )
        result = values[-1]
        for condition, then in zip(reversed(tests), reversed(values[:-1]), strict=True):
            result = ir.If(
                span=node.span,
                type=kind,
                level=level_of((condition, then, result)),
                condition=condition,
                then=then,
                other=result,
            )
        return result

    def _never_needed(self, node: s.Fallback, parts: Sequence[Typed]) -> None:
        """Warns of `pod.priority ?? 5` and `load ?? 0 ?? 5`."""
        for written, one, behind in zip(node.operands, parts, node.operands[1:], strict=False):
            if isinstance(written, s.Param) or not always_there(one):
                continue
            text = self.scope.text(written)
            kept = self.scope.source.slice(Span(node.span.start, written.span.end))
            self.scope.report(
                "P229",
                f"`{text}` always has a value, so `{self.scope.text(behind)}` is never taken",
                behind.span,
                f"write  {' '.join(kept.split())}",
                fix=Fix(node.span, kept),
                severity=Severity.WARNING,
            )
            return

    def _is_number(self, typed: Typed) -> bool:
        return isinstance(typed, Flex) or typed.type.is_number

    def _fallback(self, node: s.Fallback) -> ir.Expr:
        parts = self.each(node.operands)
        for one in parts[:-1]:
            if not isinstance(one, Flex) and one.type.kind in (Kind.BOOL, Kind.LIST):
                raise self.scope.refuse(
                    "P201",
                    f"`??` is for values that may be missing; {describe(one)} never is",
                    one.span,
                    f"write  {self.scope.text(one)}",
                    fix=Fix(node.span, self.scope.text(one)) if one is parts[0] else None,
                )
        first = parts[0]
        numbers = not isinstance(first, Flex) and first.type.is_number
        other = next((one for one in parts if not self._is_number(one)), None)
        if numbers and other is not None:
            better = f"{self.scope.text(node.operands[0])} ?? 0"
            wants = "`??` wants two values of one kind"
            raise self.mixed("P201", wants, first, other, f"write for example  {better}")
        values, kind = self.unify(parts, "`??` wants")
        self._never_needed(node, parts)
        return ir.Coalesce(span=node.span, type=kind, level=level_of(values), operands=values)


def always_there(typed: Typed) -> bool:
    """Whether a value is surely there: a number as written, and a field that is never missing."""
    if isinstance(typed, Flex):
        return typed.exact is not None
    if not isinstance(typed, ir.Read):
        return False
    elsewhere_read = typed.level is Level.IT and not typed.field.startswith("it.")
    return not FIELDS[typed.field].optional and not elsewhere_read
