"""Conditions as a few cubes: each a conjunction of limits on values; no cube means never true.

Gives up (`Unknown`) above `MAX_CUBES`; what it calls impossible is impossible in every world.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from dsl import ir
from dsl.analysis.keys import Keys, Limit, at_first, only_test, settled
from dsl.types import Kind, Level, is_missing

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
            return self._fixed(node, wanted=wanted)
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
            case ir.Between() if node.low <= node.high:
                return self._tested(node.item, "..", (node.low, node.high), wanted=wanted)
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

    def _fixed(self, node: ir.Expr, *, wanted: bool) -> tuple[Cube, ...]:
        """A condition over parameters alone: their values may be others tomorrow."""
        self.keys.key(node)
        return ({self.keys.intern(("fixed", id(node))): settled(wanted=wanted)},)

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
