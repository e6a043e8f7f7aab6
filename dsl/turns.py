"""When the clock alone changes what a rule says: comparisons with `now` turn by themselves.

`now - pod.created >= 90s` turns 90 seconds after the pod was created. Each such comparison becomes
an expression for the seconds that are left until then. A rule may say the same after a turn, but
never anything else before the first.
"""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct, structs

from dsl import ir
from dsl.making import arith, compare, constant
from dsl.types import DURATION

_NOW: Final = "now"


class _UnsteadyError(Exception):
    """A value that moves with the clock in another way than along a straight line."""


class _Moved(Struct, frozen=True):
    """What is known of an expression that reads the clock.

    Attributes:
        slope: what it gains in a second, as long as no comparison below it turns.
        left: the seconds left of the comparisons at or below it, by their ids.
    """

    slope: float
    left: dict[int, ir.Expr]


def turns(*roots: ir.Expr | None) -> tuple[ir.Expr, ...] | None:
    """Returns expressions of the seconds until something below the roots may say something else.

    Of a value that is missing or below zero nothing is to be expected; zero says at once. One at
    the level of nodes has a value for each.

    Returns:
        None where no such expressions exist: `now` is read in another way than in comparisons of
        sums, as in `round(now - node.created) > 5`.
    """
    known: dict[ir.Expr, _Moved | None] = {}
    left: dict[int, ir.Expr] = {}
    try:
        for root in roots:
            if root is not None:
                for node in ir.parts_first(root, known):
                    known[node] = _look(node, known.__getitem__)
                found = known[root]
                left |= {} if found is None else found.left
    except _UnsteadyError:
        return None
    return tuple(left.values())


def _look(node: ir.Expr, known: Callable[[ir.Expr], _Moved | None]) -> _Moved | None:
    """What is known of an expression whose parts are known; None if no clock is read in it.

    Raises:
        _UnsteadyError: it moves in a way that no expression is made for.
    """
    if isinstance(node, ir.Read) and node.field == _NOW:
        return _Moved(1.0, {})
    moved = [part for one in ir.children(node) if (part := known(one)) is not None]
    if not moved:
        return None

    def slope(one: ir.Expr) -> float:
        part = known(one)
        return 0.0 if part is None else part.slope

    left = {at: one for part in moved for at, one in part.left.items()}
    if isinstance(node, ir.Aggregate):
        soonest = [_soonest(node, one) for one in left.values()]
        left = {id(one): one for one in soonest}
    if isinstance(node, ir.Compare) and (gain := slope(node.left) - slope(node.right)):
        if node.operator == "==":
            raise _UnsteadyError
        own = _left(node, gain)
        left[id(own)] = own
    return _Moved(_slope(node, slope), left)


def _slope(node: ir.Expr, slope: Callable[[ir.Expr], float]) -> float:
    """What a value gains in a second; a condition nothing, until it turns."""
    match node:
        case ir.Compare() | ir.Missing():
            gain = 0.0
        case ir.Named():
            gain = slope(node.body)
        case ir.Arith() if node.operators[0] in "+-":
            first, *rest = map(slope, node.operands)
            signed = zip(node.operators, rest, strict=True)
            gain = first + sum(one if sign == "+" else -one for sign, one in signed)
        case ir.Arith() if slope(node.operands[0]):
            gain = _scaled(node, slope(node.operands[0]))
        case ir.Coalesce():
            gain = _common(list(map(slope, node.operands)))
        case ir.If():
            gain = _common([slope(node.then), slope(node.other)])
        case _:
            gain = _common([0.0, *map(slope, ir.children(node))])
    return gain


def _scaled(node: ir.Arith, gain: float) -> float:
    for sign, one in zip(node.operators, node.operands[1:], strict=True):
        if not isinstance(one, ir.Const) or not isinstance(one.value, float) or not one.value:
            raise _UnsteadyError
        gain = gain * one.value if sign == "*" else gain / one.value
    return gain


def _common(slopes: Sequence[float]) -> float:
    if len(set(slopes)) > 1:
        raise _UnsteadyError
    return slopes[0]


def _left(of: ir.Compare, gain: float) -> ir.Expr:
    """The seconds until the left side, which gains on the right one, is where the right one is."""
    operands = (of.right, of.left) if gain > 0 else (of.left, of.right)
    gap = arith(of.span, DURATION, ("-",), operands)
    if abs(gain) == 1.0:
        return gap
    return arith(of.span, DURATION, ("/",), (gap, constant(of.span, abs(gain), DURATION)))


def _soonest(aggregate: ir.Aggregate, left: ir.Expr) -> ir.Expr:
    """The least of the seconds that are left over a set."""
    ahead = compare(left.span, left, ">=", constant(left.span, 0.0, DURATION))
    return structs.replace(aggregate, function="min", type=DURATION, value=left, where=ahead)
