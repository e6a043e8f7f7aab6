"""What a condition leaves of a value: tests that it passes; whether any value can pass them all.

`is_empty` errs on one side only: what it calls empty is empty.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from math import inf, nextafter
from typing import Any, Final

from msgspec import Struct

from dsl.functions import TEXT_TESTS

_TESTS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    **TEXT_TESTS,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, items: value in items,
    "..": lambda value, ends: ends[0] <= value <= ends[1],
}
#: Tests of which two are one, by their operators and whether they must hold.
_JOINED: Final[dict[tuple[object, ...], Callable[[Any, Any], Any]]] = {
    ("in", True): frozenset.intersection,
    ("in", False): frozenset.union,
    ("..", True): lambda a, b: (max(a[0], b[0]), min(a[1], b[1])),
    **{(sign, wanted): min if ("<" in sign) == wanted else max
       for sign in ("<", "<=", ">", ">=") for wanted in (True, False)},
}  # fmt: skip
#: What tests are against (of `in` a set, of `..` two ends), by operator and whether they must
#: hold; where two are not one, also by what they are against.
Tests = Mapping[tuple[Any, ...], Any]


def only_test(sign: str, against: object, *, wanted: bool = True) -> Tests:
    """Returns one test, by an operator of the language, `in` or `..`."""
    key = sign, wanted
    return {key if key in _JOINED else (*key, against): against}


class Limit(Struct, frozen=True, gc=False):
    """What a value may be: missing, one that passes all tests (None: none does), or both."""

    missing: bool
    tests: Tests | None = {}

    def meet(self, other: "Limit") -> "Limit":
        """Returns what both allow."""
        missing = self.missing and other.missing
        if self.tests is None or other.tests is None:
            return Limit(missing, None)
        tests = {**self.tests, **other.tests}
        for key in self.tests.keys() & other.tests.keys() & _JOINED.keys():
            tests[key] = _JOINED[key](self.tests[key], other.tests[key])
        fewer = min(self.tests, other.tests, key=len)
        opposed = any((sign, not yes, *rest) in tests for sign, yes, *rest in fewer if rest)
        return Limit(missing, tests if not opposed and _possible(tests) else None)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left."""
        return not self.missing and self.tests is None


def _possible(tests: Tests) -> bool:
    """Whether there may be a value that passes all; of numbers an end does, or one beside it."""
    values = tests.get(("in", True))
    if values is None:
        ends = [*tests.get(("in", False), ())]
        for (sign, *_), against in tests.items():
            if sign == "..":
                ends += against
            elif sign[0] in "<>":
                ends.append(against)
        if not ends or isinstance(ends[0], str) or any(key[0] in TEXT_TESTS for key in tests):
            return True
        values = _tried(ends)
    return any(
        all(_TESTS[sign](value, against) == yes for (sign, yes, *_), against in tests.items())
        for value in values
    )


def _tried(ends: list[float]) -> Iterator[float]:
    """Yields a number of each stretch between ends."""
    for end in ends:
        yield from (end, nextafter(end, -inf), nextafter(end, inf))
