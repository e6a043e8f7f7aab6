"""Expressions by structure: equal trees get equal numbers, and what is known of their values.

Lets are looked through. Linear in the graph.
"""

from collections.abc import Callable
from math import inf, isnan
from operator import attrgetter
from typing import Any, Final, get_args

from dsl import ir
from dsl.analysis.sets import Limit, only_test
from dsl.schema import FIELDS
from dsl.types import Kind, Level

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
