"""Sets of values that a condition leaves: numbers or texts; empty or not.

`is_empty` errs on one side only: what it calls empty is empty.
"""

from collections.abc import Iterable
from math import inf
from typing import Any, Final, NamedTuple

from msgspec import Struct

from dsl.functions import TEXT_TESTS

#: A place beside a number: (x, 0) just before x, (x, 1) just after it.
Cut = tuple[float, int]
Span = tuple[Cut, Cut]
_START: Final[Cut] = (-inf, 0)
_END: Final[Cut] = (inf, 1)


class Numbers(Struct, frozen=True, gc=False):
    """Some numbers: stretches in order that do not touch."""

    spans: tuple[Span, ...] = ((_START, _END),)

    def meet(self, other: "Numbers") -> "Numbers":
        """Returns the numbers in both."""
        found = [
            (max(a[0], b[0]), min(a[1], b[1]))
            for a in self.spans
            for b in other.spans
            if max(a[0], b[0]) < min(a[1], b[1])
        ]
        return Numbers(tuple(sorted(found)))

    def others(self) -> "Numbers":
        """Returns all other numbers."""
        cuts = [_START, *(cut for span in self.spans for cut in span), _END]
        pairs = zip(cuts[::2], cuts[1::2], strict=True)
        return Numbers(tuple((low, high) for low, high in pairs if low < high))

    @property
    def is_empty(self) -> bool:
        """Whether no number is left."""
        return not self.spans


def numbers_where(operator: str, value: float) -> Numbers:
    """Returns the numbers for which `number operator value` holds."""
    ends: dict[str, Span] = {
        "==": ((value, 0), (value, 1)),
        "<": (_START, (value, 0)),
        "<=": (_START, (value, 1)),
        ">": ((value, 1), _END),
        ">=": ((value, 0), _END),
    }
    low, high = ends[operator]
    return Numbers(((low, high),) if low < high else ())


def numbers_between(low: float, high: float) -> Numbers:
    """Returns the numbers of a range, ends included."""
    return Numbers((((low, 0), (high, 1)),))


def numbers_of(values: Iterable[float]) -> Numbers:
    """Returns a set of single numbers."""
    return Numbers(tuple(((one, 0), (one, 1)) for one in sorted(set(values))))


class Test(NamedTuple):
    """A test of a text by a fixed pattern, and whether it must hold."""

    operator: str
    pattern: str
    wanted: bool


class Texts(Struct, frozen=True, gc=False):
    """Some texts: those of `only` (None: all), but none of `never`, that pass the tests."""

    only: frozenset[str] | None = None
    never: frozenset[str] = frozenset()
    tests: frozenset[Test] = frozenset()

    def meet(self, other: "Texts") -> "Texts":
        """Returns the texts in both."""
        only = self.only if other.only is None else other.only
        if self.only is not None and other.only is not None:
            only = self.only & other.only
        return Texts(only, self.never | other.never, self.tests | other.tests)

    def holds(self, text: str) -> bool:
        """Whether a text is one of them."""
        return (
            (self.only is None or text in self.only)
            and text not in self.never
            and all(TEXT_TESTS[one.operator](text, one.pattern) == one.wanted for one in self.tests)
        )

    @property
    def is_empty(self) -> bool:
        """Whether surely no text is left."""
        if self.only is not None:
            return not any(self.holds(one) for one in self.only)
        return any(one.wanted and one._replace(wanted=False) in self.tests for one in self.tests)


Values = Numbers | Texts


class Limit(Struct, frozen=True, gc=False):
    """What a value may be: missing, one of some values, both, or nothing at all."""

    missing: bool
    values: Values | None = None

    def meet(self, other: "Limit") -> "Limit":
        """Returns what both allow."""
        # Values of one expression are of one kind.
        one: Any = self.values
        values = None if one is None or other.values is None else one.meet(other.values)
        if values is not None and values.is_empty:
            values = None
        return Limit(self.missing and other.missing, values)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left."""
        return not self.missing and self.values is None
