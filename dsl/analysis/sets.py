"""Sets of values that a condition leaves: numbers, texts, a few outcomes; empty or not.

`is_empty` errs on one side only: what it calls empty is empty.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from math import inf
from typing import Final, NamedTuple

from msgspec import Struct

from dsl.functions import TEXT_TESTS

#: A place beside a number: (x, 0) just before x, (x, 1) just after it.
Cut = tuple[float, int]
Span = tuple[Cut, Cut]
_START: Final[Cut] = (-inf, 0)
_END: Final[Cut] = (inf, 1)
#: Tests of one text that are compared with each other; of more nothing is sure.
_MAX_TESTS: Final = 64
_WILD: Final = re.compile(r"[*?]+")


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

    @property
    def low(self) -> Cut:
        """The lower end."""
        return self.spans[0][0]

    @property
    def high(self) -> Cut:
        """The upper end."""
        return self.spans[-1][1]


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
        if len(self.tests) > _MAX_TESTS:
            return False
        wanted = [one for one in self.tests if one.wanted]
        refused = [one for one in self.tests if not one.wanted]
        if any(_everything(one) for one in refused):
            return True
        if any(_implies(one, other) for one in wanted for other in refused):
            return True
        return any(_clash(one, other) for one in wanted for other in wanted)


class _Shape(NamedTuple):
    """Literal parts that every text of a test has."""

    prefix: str
    suffix: str
    parts: tuple[str, ...]


@lru_cache(maxsize=1024)
def _shape(operator: str, pattern: str) -> _Shape:
    match operator:
        case "contains":
            return _Shape("", "", (pattern,))
        case "starts with":
            return _Shape(pattern, "", (pattern,))
        case "ends with":
            return _Shape("", pattern, (pattern,))
        case "like":
            parts = _WILD.split(pattern)
            return _Shape(parts[0], parts[-1], tuple(parts))
        case _:
            return _Shape("", "", ())


def _everything(test: Test) -> bool:
    if test.operator == "like":
        return bool(test.pattern) and set(test.pattern) == {"*"}
    return test.pattern == "" and test.operator != "matches"


def _implies(test: Test, other: Test) -> bool:
    """Whether every text that passes one surely passes the other."""
    if (test.operator, test.pattern) == (other.operator, other.pattern):
        return True
    shape = _shape(test.operator, test.pattern)
    word = other.pattern
    match other.operator:
        case "contains":
            return any(word in one for one in shape.parts)
        case "starts with":
            return shape.prefix.startswith(word)
        case "ends with":
            return shape.suffix.endswith(word)
        case _:
            return False


def _clash(test: Test, other: Test) -> bool:
    """Whether surely no text passes both."""
    a, b = _shape(test.operator, test.pattern), _shape(other.operator, other.pattern)
    starts = a.prefix.startswith(b.prefix) or b.prefix.startswith(a.prefix)
    ends = a.suffix.endswith(b.suffix) or b.suffix.endswith(a.suffix)
    return not (starts and ends)


class Outcomes(Struct, frozen=True, gc=False):
    """Some of a few outcomes: true or false; less, equal, more or not comparable."""

    left: frozenset[str]

    def meet(self, other: "Outcomes") -> "Outcomes":
        """Returns the outcomes in both."""
        return Outcomes(self.left & other.left)

    @property
    def is_empty(self) -> bool:
        """Whether none is left."""
        return not self.left


Values = Numbers | Texts | Outcomes


class Limit(Struct, frozen=True, gc=False):
    """What a value may be: missing, one of some values, both, or nothing at all."""

    missing: bool
    values: Values | None = None

    def meet(self, other: "Limit") -> "Limit":
        """Returns what both allow."""
        values: Values | None = None
        match self.values, other.values:
            case Numbers() as a, Numbers() as b:
                values = a.meet(b)
            case Texts() as c, Texts() as d:
                values = c.meet(d)
            case Outcomes() as e, Outcomes() as f:
                values = e.meet(f)
            case _:
                pass
        if values is not None and values.is_empty:
            values = None
        return Limit(self.missing and other.missing, values)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left."""
        return not self.missing and self.values is None
