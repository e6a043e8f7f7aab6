"""What is known while the expressions of one file are checked, and what all checks share.

How an expression of each kind is understood is told by `expressions`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from dsl import ir
from dsl import syntax as s
from dsl.checker import names
from dsl.checker.convert import clash, help_for
from dsl.checker.literals import settle
from dsl.checker.scope import Flex, LetEntry, MetricEntry, Refused, Scope, Typed, attempt, describe
from dsl.making import constant, first_of, made
from dsl.plan import OF_NODES
from dsl.source import Span
from dsl.types import DURATION, NUMBER, PLAIN, Kind, Level, Type, number_of

_MAX_TOTAL_DEPTH: Final = 128
_METRIC_LEVELS: Final = {
    **dict.fromkeys(OF_NODES, Level.NODE),
    "cluster": Level.CYCLE,
    "namespace": Level.POD,
    "workload": Level.POD,
    "pod": Level.POD,
}

#: What a place may want, and how the table of conversions calls it.
_IS: Final[dict[str, Callable[[Type], bool]]] = {
    "number": lambda kind: kind.kind is Kind.NUMBER,
    "plain number": lambda kind: kind.is_number and (kind.unit or PLAIN).is_plain,
    "duration": lambda kind: kind == DURATION,
    "condition": lambda kind: kind.kind is Kind.BOOL,
    "text": lambda kind: kind.kind is Kind.TEXT,
    "time": lambda kind: kind.kind is Kind.TIME,
    "list": lambda kind: kind.kind is Kind.LIST,
    "single value": lambda kind: kind.kind is not Kind.LIST,
}
_SORTS: Final = {"plain number": "number", "duration": "seconds"}


#: Understands an expression.
Walk = Callable[["Typer", s.Expr], Typed]


class Place(Struct, frozen=True):
    """Where an expression stands.

    Attributes:
        pods: whether `it` means a pod of a set.
        placed: whether those pods are on nodes.
        containers: whether `it` means a container.
        item: what `it` alone means: the item of a list that an aggregate runs over.
        results: fields that only some statements know: `score.total`, `victims.count`.
        root: the whole expression, whose subject a bare `max` means.
    """

    pods: bool = False
    placed: bool = True
    containers: bool = False
    item: ir.Expr | None = None
    results: frozenset[str] = frozenset()
    root: s.Expr | None = None


class Typer(Scope, kw_only=True):
    """Checks the expressions of one file.

    `check` gives a typed tree or raises `Refused` with the finding recorded; constants keep their
    unit open until a neighbour settles it.
    """

    walk: Walk
    place: Place = Place()
    #: What a bare `max` may mean, by the expression that it stands in.
    subjects: dict[int, dict[str, ir.Expr]] = field(default_factory=dict)
    #: Aggregates over lists that are read, and what holds where a list is too long.
    bounded: dict[int, tuple[ir.Expr, ir.Compare]] = field(default_factory=dict)
    #: How deep each expression is, by its id; held here, so that no other one gets that id.
    _depths: dict[int, tuple[int, ir.Expr]] = field(default_factory=dict)
    #: How many expressions are being checked, one within the other.
    _nested: int = 0

    # ---- entries for statements

    def expression(self, node: s.Expr) -> Typed:
        """Checks a whole expression; a bare aggregate in it means its subject."""
        with self.inside(replace(self.place, root=node)):
            typed = self.check(node)
        if not isinstance(typed, Flex):
            self._limit_depth(typed, node.span)
        return typed

    def condition(self, node: s.Expr, what: str) -> ir.Expr:
        """Checks an expression that must be a condition."""
        return self.want(self.expression(node), "condition", what, "P208")

    def want(
        self, typed: Typed, wants: str, what: str, code: str = "P201", helps: tuple[str, ...] = ()
    ) -> ir.Expr:
        """Returns a value of a kind that its place wants: `number`, or `text or list`."""
        if any(_IS[one](typed.type) for one in wants.split(" or ")):
            return self.plain(typed)
        message = f"{what} wants a {wants}, and this is {describe(typed)}"
        word = wants.partition(" or ")[0]
        if isinstance(typed, Flex) and word == "text":
            helps = helps or (f'write  "{self.text(typed)}"',)
        helps = helps or help_for(self, typed, _SORTS.get(word, word))
        raise self.refuse(code, message, typed, *helps)

    def plain(self, typed: Typed) -> ir.Expr:
        """Settles a constant as a plain number."""
        return settle(self, typed, PLAIN)

    @contextmanager
    def inside(self, place: Place) -> Iterator[None]:
        """Says where expressions stand while they are checked."""
        before, self.place = self.place, place
        try:
            yield
        finally:
            self.place = before

    def _limit_depth(self, root: ir.Expr, span: Span) -> None:
        depths = self._depths
        for node in ir.parts_first(root, depths):
            below = max((depths[id(one)][0] for one in ir.children(node)), default=0)
            depths[id(node)] = 1 + below, node
        if depths[id(root)][0] > _MAX_TOTAL_DEPTH:
            raise self._too_deep(span)

    def _too_deep(self, span: Span) -> Refused:
        message = f"through its lets this is nested more than {_MAX_TOTAL_DEPTH} deep"
        return self.refuse("P006", message, span, "compute less in one value")

    # ---- parts

    def check(self, node: s.Expr) -> Typed:
        """Returns the typed tree of an expression. Raises `Refused`."""
        if self._nested == _MAX_TOTAL_DEPTH:
            raise self._too_deep((self.place.root or node).span)
        self._nested += 1
        try:
            return self.walk(self, node)
        finally:
            self._nested -= 1

    def each(self, nodes: Sequence[s.Expr]) -> list[Typed]:
        """Checks several parts; reports what is wrong with each before giving up."""
        out = [attempt(self.check, node) for node in nodes]
        there = [one for one in out if one is not None]
        if len(there) < len(out):
            raise Refused
        return there

    def open_number(self, node: s.Expr, what: str) -> Typed:
        """Checks an expression that must be a number; a constant keeps its unit open."""
        typed = self.check(node)
        return typed if isinstance(typed, Flex) else self.want(typed, "number", what)

    def unify(self, parts: Sequence[Typed], wants: str) -> tuple[tuple[ir.Expr, ...], Type]:
        """Brings values to one type; constants take the unit of the others."""
        firm = next((one for one in parts if not isinstance(one, Flex)), None)
        if firm is None:
            return tuple(self.plain(one) for one in parts), NUMBER
        known, out = (firm.type.kind, firm.type.unit), []
        for one in parts:
            if isinstance(one, Flex) and firm.type.is_number:
                out.append(settle(self, one, firm.type.unit or PLAIN, firm))
            elif isinstance(one, Flex) or (one.type.kind, one.type.unit) != known:
                raise clash(self, wants, firm, one)
            else:
                out.append(one)
        return tuple(out), firm.type

    # ---- names

    def param(self, node: s.Param) -> Typed:
        """Returns the value of a parameter."""
        entry = self.params.get(node.name)
        if entry is None:
            if node.name in self.broken:
                raise Refused
            raise names.no_param(self, node)
        if entry.value is None:
            raise Refused
        self.given.append(node.span)
        return replace(entry.value, span=node.span)

    def sample(
        self,
        entry: MetricEntry,
        span: Span,
        *,
        age: bool = False,
        pair: tuple[ir.Expr, ...] = (),
    ) -> ir.Expr:
        """Returns a read of a metric with its default put in."""
        spec, name = entry.spec, entry.name
        if spec is None:
            raise Refused
        if spec.of == "pair" and not pair:
            message = f"`{name}` is a metric of pairs"
            raise self.refuse("P209", message, span, f"write  {name}(node.name, it.node)")
        kind = DURATION if age else number_of(entry.unit)
        level = max((one.level for one in pair), default=_METRIC_LEVELS.get(spec.of, Level.CYCLE))
        if spec.of == "pod" and self.place.pods:
            level = Level.IT
        known: dict[str, Any] = {"name": name, "id": spec.id}
        read: ir.Expr
        if pair:
            known |= {"left": pair[0], "right": pair[1]}
            read = made(ir.Pair, span, kind, max(level, Level.CYCLE), **known)
        else:
            known |= {"age": age, "of": spec.of, "source": spec.source}
            read = made(ir.Metric, span, kind, level, **known)
        if spec.default is None or age:
            return read
        return first_of(span, (read, constant(span, spec.default, kind)))

    def let_value(self, entry: LetEntry) -> Typed:
        """Checks a `let` once, whenever it is first needed."""
        if entry.open:
            name = entry.written.name
            others = [one for one, let in self.lets.items() if let.open and one != name]
            without = " or ".join(f"`{one}`" for one in (name, *others))
            message = f"`{name}` is defined by way of itself"
            help_ = f"write its value without {without}"
            raise self.refuse("P110", message, entry.written.name_span, help_)
        if not entry.done:
            entry.open, given = True, len(self.given)
            try:
                with self.inside(Place()):
                    entry.value = self.expression(entry.written.value)
                entry.given = len(self.given) > given
            finally:
                entry.open, entry.done = False, True
        if entry.value is None:
            raise Refused
        return entry.value
