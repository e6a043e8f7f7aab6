"""Expressions by structure: equal trees get equal numbers, and limits: what their values may be.

Lets are looked through. Linear in the graph. That a limit `is_empty` errs on one side only: what it
calls empty is empty.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from math import inf, isnan, nextafter
from operator import attrgetter
from typing import Any, Final, get_args

from msgspec import Struct

from dsl import ir
from dsl.functions import TEXT_TESTS
from dsl.schema import FIELDS
from dsl.types import Kind, Level

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


#: Aggregates that are a number of things, and 0 of nothing.
_COUNTING: Final = ("count", "distinct")
#: Fields that are another name of the same thing.
_SAME: Final = {"namespace.name": "pod.namespace"}
#: What of a node tells its shape: where it stands does not.
_PARTS: Final[dict[type, Callable[[Any], tuple[object, ...]]]] = {
    kind: attrgetter(*(one for one in kind.__struct_fields__ if one != "span"))
    for kind in get_args(ir.Expr)
}


def same_field(name: str) -> str:
    """Returns the one name of a field that has two."""
    return _SAME.get(name, name)


class Keys:
    """Numbers for expressions; equal expressions have equal numbers."""

    def __init__(self) -> None:
        self._by_id: dict[int, int] = {}
        self._by_shape: dict[tuple[object, ...], int] = {}
        self._alive: list[ir.Expr] = []

    def key(self, root: ir.Expr) -> int:
        """Returns the number of an expression."""
        for node in () if id(root) in self._by_id else ir.parts_first(root, self._by_id):
            self._alive.append(node)
            if isinstance(node, ir.Named):
                self._by_id[id(node)] = self._by_id[id(node.body)]
                continue
            self._by_id[id(node)] = self.intern(self._shape(node))
        return self._by_id[id(root)]

    def intern(self, shape: tuple[object, ...]) -> int:
        """Returns the number of a made-up shape."""
        return self._by_shape.setdefault(shape, len(self._by_shape))

    def _shape(self, node: ir.Expr) -> tuple[object, ...]:
        match node:
            case ir.Const():
                value = node.value
                if isinstance(value, bool):
                    # The value of a parameter may be another one tomorrow.
                    return ("bool", id(node))
                if isinstance(value, float) and isnan(value):
                    return ("missing", node.type)
                return ("const", node.type, value)
            case ir.Read():
                return ("read", same_field(node.field), node.key, node.level)
            case _:
                return (type(node), *map(self._part, _PARTS[type(node)](node)))

    def _part(self, value: object) -> object:
        """Returns what a part of a node adds to its shape."""
        if isinstance(value, tuple):
            return tuple([self._part(one) for one in value])
        return ("node", self._by_id[id(value)]) if isinstance(value, ir.Core) else value


def never_missing(node: ir.Expr) -> bool:
    """Whether a value is surely there."""
    match node:
        case ir.Read():
            elsewhere = node.level is Level.IT and not node.field.startswith("it.")
            return not FIELDS[node.field].optional and not elsewhere
        case ir.Const():
            return not (isinstance(node.value, float) and isnan(node.value))
        case ir.PodAggregate():
            return node.function in _COUNTING and node.over in ("node", "cluster")
        case ir.NodeAggregate() | ir.ItemAggregate():
            return node.function in _COUNTING
        case _:
            return node.type.kind in (Kind.BOOL, Kind.LIST)


def at_first(node: ir.Expr) -> Limit:
    """Returns what a value may be before any condition."""
    missing = not never_missing(node)
    if node.type.kind is Kind.BOOL:
        return Limit(missing=False, tests=only_test("in", frozenset({"yes", "no"})))
    if node.type.kind is Kind.TEXT:
        words = FIELDS[node.field].words if isinstance(node, ir.Read) else ()
        return Limit(missing, only_test("in", frozenset(words)) if words else {})
    ends = natural_bounds(node)
    return Limit(missing, {} if ends == (-inf, inf) else only_test("..", ends))


def settled(*, wanted: bool) -> Limit:
    """Returns the limit of a condition that comes to this."""
    return Limit(missing=False, tests=only_test("in", frozenset({"yes" if wanted else "no"})))


def natural_bounds(node: ir.Expr) -> tuple[float, float]:
    """Returns the least and the greatest value that a number can have, as far as known."""
    match node:
        case ir.Const(value=float() as value):
            return (-inf, inf) if isnan(value) else (value, value)
        case ir.Read():
            return FIELDS[node.field].low, FIELDS[node.field].high
        case ir.Func(name="hash"):
            return 0.0, 1.0
        case ir.Func(name="len" | "version"):
            return 0.0, inf
        case ir.PodAggregate() | ir.NodeAggregate() if node.function in _COUNTING:
            return 0.0, inf
        case _:
            return -inf, inf
