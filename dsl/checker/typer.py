"""What a place wants of a value, and how a value of another kind is to be written there.

One table of conversions says how a value is written where another kind is wanted. How an expression
of each kind is understood is told by `expressions`.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from dsl import ir
from dsl import syntax as s
from dsl.checker.literals import read_value, settle
from dsl.checker.scope import Flex, LetEntry, MetricEntry, Refused, Scope, Typed, attempt, describe
from dsl.diagnostics import Fix
from dsl.foreign.fields import quoted_key
from dsl.making import constant, first_of, made
from dsl.plan import OF_NODES
from dsl.schema import FIELDS
from dsl.source import Span
from dsl.types import BYTES, CORES, DURATION, NUMBER, PLAIN, SECONDS, Kind, Level, Type, number_of

_AMOUNTS: Final = {PLAIN: "number", CORES: "cores", BYTES: "bytes", SECONDS: "seconds"}
_KINDS: Final = {
    Kind.TEXT: "text", Kind.BOOL: "condition", Kind.TIME: "time", Kind.LIST: "list",
    Kind.PODS: "set", Kind.NODES: "set",
}  # fmt: skip
#: (what it is, what is wanted) -> how it is written.
_FORMS: Final = {
    ("text", "number"): "number({})",
    ("text", "cores"): "cores(quantity({}))",
    ("text", "bytes"): "bytes(quantity({}))",
    ("text", "seconds"): "duration({})",
    ("text", "time"): "time({})",
    ("text", "condition"): "{0} is present   or   {0} is VALUE",
    ("condition", "number"): "(if {} then 1 else 0)",
    ("condition", "text"): '(if {} then "true" else "false")',
    ("list", "number"): "len({})",
    ("list", "condition"): "len({}) > 0",
    ("set", "number"): "count({})",
    ("set", "condition"): "count({}) > 0",
    ("time", "number"): "now - {}",
    ("version", "number"): "version({})",
    ("time", "seconds"): "now - {}",
    **{("number", unit): f"{unit}({{}})" for unit in ("cores", "bytes", "seconds")},
    **{(unit, "number"): "number({})" for unit in ("cores", "bytes", "seconds")},
    **{(unit, "condition"): "{} > 0" for unit in _AMOUNTS.values()},
    **{(unit, "text"): "string({})" for unit in _AMOUNTS.values()},
}
#: Fields whose values begin with the numbers of a version.
_VERSIONS: Final = ("node.kernel", "node.kubelet_version")
#: A day, which is no sum.
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_NUMERAL: Final = re.compile(r"\d+(\.\d+)?([a-zA-Z]{1,3}|%)?", re.ASCII)


def sort_of(kind: Type) -> str:
    """Returns what a value is, as the table calls it; "" where it calls it nothing."""
    return _AMOUNTS.get(kind.unit or PLAIN, "") if kind.is_number else _KINDS[kind.kind]


def converted(scope: Scope, typed: Typed, want: str) -> str:
    """Returns how a value is written where something else is wanted; "" where nobody knows."""
    have = sort_of(typed.type)
    if isinstance(typed, Flex | ir.Const):
        return ""  # What is written out is another thing, not the same in another form.
    if isinstance(typed, ir.Read) and typed.field == "node.condition" and want == "condition":
        return f"{scope.text(typed)} is True"
    if isinstance(typed, ir.Read) and have in ("text", "time"):
        if typed.field in _VERSIONS:
            have = "version"
        elif want != "condition" and not _may_hold(typed, want):
            return ""
    return _FORMS.get((have, want), "").format(scope.text(typed))


def _may_hold(read: ir.Read, want: str) -> bool:
    """Whether a field may hold the text of a number: one that has no key holds names."""
    if read.type.kind is Kind.TIME:
        return read.field != "now"
    return want == "time" or (FIELDS[read.field].keyed and read.field != "node.condition")


def help_for(scope: Scope, typed: Typed, want: str) -> tuple[str, ...]:
    """Returns the same as the helps of a finding."""
    if isinstance(typed, ir.Read) and typed.field == "node.taint" and want == "text":
        tested = f"node.taint {quoted_key(str(typed.key))}=VALUE"
        return (f"the value of a taint is tested, not read:  {tested}",)
    better = converted(scope, typed, want)
    if isinstance(typed, ir.Const) and want == "condition" and " " in str(typed.value):
        better = str(typed.value)  # A rule in quotes.
    return (f"write  {better}",) if better else ()


def apart(scope: Scope, wants: str, one: Typed, other: Typed) -> Refused:
    """Refuses two values that do not go together, and says how one is written beside the other."""
    left, right = sorted((one, other), key=lambda each: each.span.start)
    pairs = ((left, right), (right, left))
    fixes = ((each, _beside(scope, each, beside)) for each, beside in pairs)
    fix = next((Fix(each.span, better) for each, better in fixes if better), None)
    helps = () if fix is not None else hint_beside(scope, left, right)
    if left.type.kind is right.type.kind:
        return scope.clash("P203", f"{wants} equal units", left, right, *helps, fix=fix)
    return scope.clash("P201", f"{wants} two values of one kind", left, right, *helps, fix=fix)


def hint_beside(scope: Scope, left: Typed, right: Typed) -> tuple[str, ...]:
    """Returns how one of two values may be written beside the other: what has a unit keeps it."""
    for one, other in ((left, right), (right, left)):
        have, want = sort_of(one.type), sort_of(other.type)
        numbers = want == "number" and have in _AMOUNTS.values()
        # A text that is written out and is no number is that of none.
        never = want == "text" and isinstance(other, ir.Const)
        helps = () if numbers or never or have == "text" else help_for(scope, one, want)
        if helps:
            return helps
    return ()


def _beside(scope: Scope, one: Typed, other: Typed) -> str:
    """Returns how a value is written beside another kind; "" where that is not sure."""
    want, text, kind = sort_of(other.type), scope.text(one), one.type.kind
    if isinstance(one, Flex):
        return f'time("{text}T00:00:00Z")' if want == "time" and _DATE.fullmatch(text) else ""
    if isinstance(one, ir.Const) and kind is Kind.BOOL and want == "text":
        return f'"{text}"'
    if kind is Kind.TIME:
        age = want == "seconds" or (isinstance(other, Flex) and other.sort == "milli")
        return f"now - {text}" if age and text != "now" else ""
    if kind is not Kind.TEXT:
        return ""
    if not isinstance(one, ir.Const):
        return converted(scope, one, want) if want != "condition" else ""
    inner = str(one.value)
    if text[:1] not in ('"', "'"):
        return ""
    if want == "condition":
        return inner.lower() if inner.lower() in ("true", "false") else ""
    if want == "time":
        inner += "T00:00:00Z" * (_DATE.fullmatch(inner) is not None)
        return f'time("{inner}")' * (read_value("time", inner, one.span) is not None)
    return inner if _NUMERAL.fullmatch(inner) else ""


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
        groups: whether what is asked tells groups of pods apart.
        item: what `it` alone means: the item of a list that an aggregate runs over.
        results: fields that only some statements know: `score.total`, `victims.count`.
        root: the whole expression, whose subject a bare `max` means.
    """

    pods: bool = False
    placed: bool = True
    containers: bool = False
    groups: bool = False
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
    subjects: dict[int, dict[str, ir.Expr | None]] = field(default_factory=dict)
    #: Aggregates over lists that are read, and what holds where a list is too long.
    bounded: dict[ir.Expr, ir.Compare] = field(default_factory=dict)
    #: How deep each expression is.
    _depths: dict[ir.Expr, int] = field(default_factory=dict)
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
            below = max([depths[one] for one in ir.children(node)], default=0)
            depths[node] = 1 + below
        if depths[root] > _MAX_TOTAL_DEPTH:
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
                raise apart(self, wants, firm, one)
            else:
                out.append(one)
        return tuple(out), firm.type

    # ---- names

    def sample(
        self, entry: MetricEntry, span: Span, *, age: bool = False, pair: tuple[ir.Expr, ...] = ()
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
        parts: dict[str, Any] = {"age": age, "of": spec.of, "source": spec.source}
        if pair:
            level, parts = max(level, Level.CYCLE), {"left": pair[0], "right": pair[1]}
        of: type[ir.Pair | ir.Metric] = ir.Pair if pair else ir.Metric
        read = made(of, span, kind, level, name=name, id=spec.id, **parts)
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
