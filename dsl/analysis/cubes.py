"""Conditions as a few cubes: each a conjunction of limits on values; no cube means never true.

Gives up (`Unknown`) above `MAX_CUBES`; what it calls impossible is impossible in every world, and a
limit that it calls empty is empty. Values are known by structure: equal trees get equal numbers,
lets are looked through.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf, isfinite, isnan, nextafter
from typing import Any, Final

from msgspec import Struct

from dsl import ir
from dsl.functions import COMPARISONS, TEXT_TESTS
from dsl.making import mapped
from dsl.schema import FIELDS
from dsl.types import Kind, Level, is_missing

_TESTS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    **TEXT_TESTS, **COMPARISONS, "in": lambda value, items: value in items
}  # fmt: skip
#: Tests of which two are one, by their operators and whether they must hold.
_JOINED: Final[dict[tuple[object, ...], Callable[[Any, Any], Any]]] = {
    ("in", True): frozenset.intersection,
    ("in", False): frozenset.union,
    **{(sign, wanted): min if ("<" in sign) == wanted else max
       for sign in ("<", "<=", ">", ">=") for wanted in (True, False)},
}  # fmt: skip
#: What tests are against (of `in` a set), by operator and whether they must hold; where two are
#: not one, also by what they are against.
Tests = Mapping[tuple[Any, ...], Any]


def only_test(sign: str, against: object, *, wanted: bool = True) -> Tests:
    """Returns one test, by an operator of the language or `in`."""
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
            if sign[0] in "<>":
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


class Keys:
    """Numbers for expressions; equal expressions have equal numbers."""

    def __init__(self) -> None:
        self._known: dict[ir.Expr, int] = {}
        self._by_shape: dict[tuple[object, ...], int] = {}

    def key(self, root: ir.Expr) -> int:
        """Returns the number of an expression."""
        for node in () if root in self._known else ir.parts_first(root, self._known):
            if isinstance(node, ir.Named):
                self._known[node] = self._known[node.body]
                continue
            self._known[node] = self.intern(self._shape(node))
        return self._known[root]

    def intern(self, shape: tuple[object, ...]) -> int:
        """Returns the number of a made-up shape."""
        return self._by_shape.setdefault(shape, len(self._by_shape))

    def _shape(self, node: ir.Expr) -> tuple[object, ...]:
        match node:
            case ir.Const():
                value = node.value
                if isinstance(value, bool):
                    # The value of a parameter may be another one tomorrow.
                    return ("bool", node)
                if is_missing(value):
                    return ("missing", node.type)
                return ("const", node.type, value)
            case ir.Read():
                return ("read", _SAME.get(node.field, node.field), node.key, node.level)
            case _:
                parts = mapped(node, lambda one: ("node", self._known[one]))
                return (type(node), node.type, node.level, *parts.values())


def never_missing(node: ir.Expr) -> bool:
    """Whether a value is surely there."""
    match node:
        case ir.Read():
            elsewhere = node.level is Level.IT and not node.field.startswith("it.")
            return not FIELDS[node.field].optional and not elsewhere
        case ir.ContainerRead():
            return not FIELDS[f"it.{node.field}"].optional
        case ir.Const():
            return not is_missing(node.value)
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
    ends = zip((">=", "<="), natural_bounds(node), strict=True)
    return Limit(missing, {(sign, True): end for sign, end in ends if isfinite(end)})


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


MAX_CUBES: Final = 64
MAX_DEPTH: Final = 96
_MAX_PAIRS: Final = 4096
#: Values that one cube speaks of, at most.
_MAX_VALUES: Final = 256

Cube = Mapping[int, Limit]
#: True in every world.
ALWAYS: Final[tuple[Cube, ...]] = ({},)
NEVER: Final[tuple[Cube, ...]] = ()

_FLIPPED: Final = {"==": "==", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Unknown(Exception):  # noqa: N818 - "no answer", not an error
    """The condition is too large to be understood."""


class Cubes:
    """Turns conditions of one set of files into cubes."""

    def __init__(self) -> None:
        self.keys = Keys()
        self._known: dict[tuple[int, bool], tuple[Cube, ...] | None] = {}
        self._depth = 0

    def of(self, node: ir.Expr, *, wanted: bool = True) -> tuple[Cube, ...]:
        """Returns when a condition is true (or, not `wanted`, false). Raises `Unknown`."""
        node = ir.unnamed(node)
        if node.level is Level.CONST and not isinstance(node, ir.Logical | ir.Not):
            # Over parameters alone: their values may be others tomorrow.
            self.keys.key(node)
            return ({self.keys.intern(("fixed", node)): settled(wanted=wanted)},)
        known = (self.keys.key(node), wanted)
        if known not in self._known:
            self._known[known] = None
            self._depth += 1
            try:
                if self._depth > MAX_DEPTH:
                    raise Unknown
                self._known[known] = self._of(node, wanted=wanted)
            finally:
                self._depth -= 1
        found = self._known[known]
        if found is None:
            raise Unknown
        return found

    def both(self, left: Sequence[Cube], right: Sequence[Cube]) -> tuple[Cube, ...]:
        """Returns when both hold. Raises `Unknown`."""
        if len(left) * len(right) > _MAX_PAIRS:
            raise Unknown
        out: list[Cube] = []
        for one in left:
            for other in right:
                met = self.meet(one, other)
                if met is not None and met not in out:
                    out.append(met)
                    if len(out) > MAX_CUBES:
                        raise Unknown
        return tuple(out)

    def meets(self, left: Sequence[Cube], right: Sequence[Cube]) -> bool:
        """Whether both may hold at once; looks no further than the first cubes that do."""
        return any(self.meet(one, other) is not None for one in left for other in right)

    def either(self, left: Sequence[Cube], right: Sequence[Cube]) -> tuple[Cube, ...]:
        """Returns when one or the other holds. Raises `Unknown`."""
        out = [*left, *(one for one in right if one not in left)]
        if {} in out:
            return ALWAYS
        if len(out) > MAX_CUBES:
            raise Unknown
        return tuple(out)

    def all_of(
        self, nodes: Sequence[ir.Expr | None], *, start: Sequence[Cube] = ALWAYS
    ) -> tuple[Cube, ...]:
        """Returns when all conditions hold; None holds always. Raises `Unknown`."""
        out = tuple(start)
        for node in nodes:
            if node is not None:
                out = self.both(out, self.of(node))
        return out

    # ---- kinds of conditions

    def _of(self, node: ir.Expr, *, wanted: bool) -> tuple[Cube, ...]:
        match node:
            case ir.Logical():
                return self._logical(node, wanted=wanted)
            case ir.Not():
                return self.of(node.operand, wanted=not wanted)
            case ir.Compare():
                return self._compare(node, wanted=wanted)
            case ir.Missing():
                limit = Limit(missing=True, tests=None) if wanted else Limit(missing=False)
                return self._limited(node.operand, limit)
            case ir.Member(items=items):
                fixed = ir.unnamed(items)
                if isinstance(fixed, ir.Const) and isinstance(fixed.value, tuple):
                    return self._tested(node.item, "in", frozenset(fixed.value), wanted=wanted)
            case ir.TextTest(right=right):
                fixed = ir.unnamed(right)
                if isinstance(fixed, ir.Const) and isinstance(fixed.value, str):
                    return self._tested(node.left, node.operator, fixed.value, wanted=wanted)
            case _:
                pass
        return self._opaque(node, wanted=wanted)

    def _opaque(self, node: ir.Expr, *, wanted: bool) -> tuple[Cube, ...]:
        return ({self.keys.key(node): settled(wanted=wanted)},)

    def _logical(self, node: ir.Logical, *, wanted: bool) -> tuple[Cube, ...]:
        joined = (node.operator == "and") == wanted
        out = ALWAYS if joined else NEVER
        for one in node.operands:
            part = self.of(one, wanted=wanted)
            out = self.both(out, part) if joined else self.either(out, part)
        return out

    def _compare(self, node: ir.Compare, *, wanted: bool) -> tuple[Cube, ...]:
        left, right, operator = ir.unnamed(node.left), ir.unnamed(node.right), node.operator
        if left.type.kind is Kind.BOOL:
            same = self.both(self.of(left), self.of(right, wanted=wanted))
            apart = self.both(self.of(left, wanted=False), self.of(right, wanted=not wanted))
            return self.either(same, apart)
        if isinstance(left, ir.Const):
            left, right, operator = right, left, _FLIPPED[operator]
        if isinstance(right, ir.Const):
            if is_missing(right.value):
                return NEVER if wanted else ALWAYS
            if operator == "==":
                return self._tested(left, "in", frozenset({right.value}), wanted=wanted)
            return self._tested(left, operator, right.value, wanted=wanted)
        return self._opaque(node, wanted=wanted)

    def _tested(
        self, node: ir.Expr, sign: str, against: object, *, wanted: bool
    ) -> tuple[Cube, ...]:
        """Returns when a value passes a test; what is missing passes only what is not wanted."""
        return self._limited(node, Limit(not wanted, only_test(sign, against, wanted=wanted)))

    def _limited(self, node: ir.Expr, limit: Limit) -> tuple[Cube, ...]:
        """Returns when the value of an expression is within a limit."""
        node = ir.unnamed(node)
        limit = limit.meet(at_first(node))
        return NEVER if limit.is_empty else ({self.keys.key(node): limit},)

    # ---- cubes

    def meet(self, left: Cube, right: Cube) -> Cube | None:
        """Returns both as one cube; None where they contradict each other. Raises `Unknown`."""
        if not left or not right:
            return left or right
        both = {}
        for key in left.keys() & right.keys():
            both[key] = left[key].meet(right[key])
            if both[key].is_empty:
                return None
        out = {**left, **right, **both}
        if len(out) > _MAX_VALUES:
            raise Unknown
        return out
