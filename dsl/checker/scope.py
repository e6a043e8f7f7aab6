"""What names mean in one file, and where findings are collected."""

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, ClassVar, Final, ParamSpec, TypedDict, TypeVar, Unpack

from msgspec import Struct, field

from dsl import ir
from dsl import syntax as s
from dsl.diagnostics import Diagnostic, Fix, Label, Severity
from dsl.plan import MetricSpec
from dsl.schema import MetricDefinition
from dsl.source import SourceFile, Span
from dsl.types import NUMBER, Kind, Level, Type, Unit

_RESERVED: Final = """
    if then else and or not in is like matches contains true false max min sum avg count median any
    all distinct over where least most now zone region node rack pod it group quota score nodes
    candidates
"""
RESERVED: Final = frozenset(_RESERVED.split())


class Refused(Exception):  # noqa: N818 - a jump to the end of a rule, not an error of ours
    """The expression cannot be understood; the finding is already recorded."""


_T = TypeVar("_T")
_P = ParamSpec("_P")


def attempt(check: Callable[_P, _T], *args: _P.args, **more: _P.kwargs) -> _T | None:
    """Checks a part, None where it is refused: others are looked at before the whole is."""
    try:
        return check(*args, **more)
    except Refused:
        return None


class Flex(Struct, frozen=True):
    """A constant number that takes the unit of its neighbour.

    Attributes:
        exact: its plain value; None when a constant division had no result.
        sort: `plain`, `percent`, `factor` (`10G`) or `milli` (`5m`: minutes or thousandths).
    """

    #: What it is before anything settles its unit.
    type: ClassVar[Type] = NUMBER
    level: ClassVar[Level] = Level.CONST

    span: Span
    exact: Fraction | None
    sort: str = "plain"
    text: str = ""


Typed = ir.Expr | Flex
#: What a finding may be about.
Placed = s.Node | ir.Core | Flex | Span
ParamValue = str | float | int | bool | tuple[str, ...] | list[str]


class LetEntry(Struct):
    """A `let`: its text, and its meaning once it is known.

    Attributes:
        open: it is being checked; whoever needs it now goes round in a circle.
        done: it was checked; without a value, it is wrong.
        given: a parameter takes part in it.
    """

    written: s.LetDecl
    open: bool = False
    done: bool = False
    given: bool = False
    value: Typed | None = None


class MetricEntry(Struct):
    """A metric of the file, the configuration or the catalogue."""

    name: str
    spec: MetricSpec | None
    unit: Unit


class _More(TypedDict, total=False):
    label: str
    labels: tuple[Label, ...]
    fix: str | Fix | None


class Scope(Struct):
    """All that is known while one file is checked."""

    source: SourceFile
    catalogue: Mapping[str, MetricDefinition]
    lets: dict[str, LetEntry] = field(default_factory=dict)
    metrics: dict[str, MetricEntry] = field(default_factory=dict)
    #: Values of parameters; None of one that is wrong.
    params: dict[str, Typed | None] = field(default_factory=dict)
    #: Metrics that are read.
    used: dict[str, MetricSpec] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    found: list[Diagnostic] = field(default_factory=list)
    #: Where parameters stand, and names of what is made of one: other values may be given there.
    given: list[Span] = field(default_factory=list)
    #: Metrics without which a rule of the file, before the one at hand, rejects any pod.
    demanded: set[str] = field(default_factory=set)
    _told: set[Diagnostic] = field(default_factory=set)

    def report(
        self,
        code: str,
        message: str,
        place: Placed,
        *helps: str,
        label: str = "",
        labels: tuple[Label, ...] = (),
        fix: str | Fix | None = None,
        severity: Severity = Severity.ERROR,
    ) -> None:
        """Records a finding about what stands somewhere; without other helps a fix is the help."""
        span = place if isinstance(place, Span) else place.span
        repair = Fix(span, fix) if isinstance(fix, str) else fix
        if repair is not None and not helps:
            helps = (f"write  {repair.text.strip()}",)
        one = Diagnostic(
            code, message, self.source, span, severity, label, labels, helps, fix=repair
        )
        if one not in self._told:
            self._told.add(one)
            self.found.append(one)

    def refuse(
        self, code: str, message: str, place: Placed, *helps: str, **more: Unpack[_More]
    ) -> Refused:
        """Records an error and returns what to raise."""
        self.report(code, message, place, *helps, **more)
        return Refused()

    def clash(
        self, code: str, wants: str, left: Typed, right: Typed, *helps: str, fix: Fix | None = None
    ) -> Refused:
        """Refuses two values that do not go together, and names both where they stand."""
        first, second = sorted((left, right), key=lambda one: one.span.start)
        message = f"{wants}, not {describe(left)} and {describe(right)}"
        label, labels = describe(first), (Label(second.span, describe(second)),)
        return self.refuse(code, message, first, *helps, label=label, labels=labels, fix=fix)

    def warn(
        self, code: str, message: str, place: Placed, *helps: str, fix: str | Fix | None = None
    ) -> None:
        """Records a warning."""
        self.report(code, message, place, *helps, fix=fix, severity=Severity.WARNING)

    def clauses(self, parts: Iterable[Any], several: tuple[str, ...] = ()) -> dict[str, Any]:
        """Returns the parts of a statement by their names; one that stands twice is refused."""
        out: dict[str, Any] = {}
        for part in parts:
            if part.name in out and part.name not in several:
                word = self.text(part).split()[0]
                raise self.refuse("P109", f"`{word}` is given twice", part)
            out[part.name] = part
        return out

    def text(self, node: s.Node | ir.Core | Flex) -> str:
        """Returns the text of a node on one line."""
        return self.source.words(node.span)

    def names(self) -> list[str]:
        """Returns the names an expression may use."""
        return [*self.lets, *self.metrics, *self.catalogue]


def describe(typed: Typed) -> str:
    """Names the type of an expression in a message."""
    if isinstance(typed, Flex):
        words = {"percent": "a percentage", "milli": "a number with `m`"}
        return words.get(typed.sort, "a plain number")
    return "a condition" if typed.type.kind is Kind.BOOL else str(typed.type)
