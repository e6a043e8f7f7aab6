"""Why a test always goes one way: what values its left side may have at all."""

from math import isinf

from dsl import ir
from dsl.analysis.keys import bare, natural_bounds, never_missing
from dsl.source import SourceFile
from dsl.types import show


def reason(source: SourceFile, node: ir.Expr) -> tuple[str, ...]:
    """Returns a note for a test of one value, nothing where no single value is to blame."""
    node = bare(node.operand) if isinstance(node, ir.Not) else node
    match node:
        case ir.Missing() if never_missing(node.operand):
            return (f"{_text(source, node.operand)} always has a value",)
        case ir.Compare(right=ir.Const()):
            value = node.left
        case ir.Compare(left=ir.Const()):
            value = node.right
        case ir.Between():
            value = node.item
        case _:
            return ()
    if not value.type.is_number:
        return ()
    low, high = natural_bounds(bare(value))
    if isinf(low):
        return ()
    ends = show(low, value.type), show(high, value.type) if not isinf(high) else ""
    text = _text(source, value)
    return (f"{text} is from {ends[0]} to {ends[1]}" if ends[1] else f"{text} is never below 0",)


def _text(source: SourceFile, node: ir.Expr) -> str:
    return f"`{' '.join(source.slice(node.span).split())}`"


def past_midnight(node: ir.Logical) -> str:
    """Returns the range of `time.hour > 22 and time.hour < 6`; "" for anything else."""
    limits: dict[str, float] = {}
    for one in node.operands:
        if not isinstance(one, ir.Compare) or not isinstance(one.right, ir.Const):
            return ""
        value = one.right.value
        if not isinstance(one.left, ir.Read) or one.left.field != "time.hour":
            return ""
        if not isinstance(value, float) or value != int(value) or one.operator == "==":
            return ""
        limits[one.operator[0]] = value + {">": 1, "<": -1}.get(one.operator, 0)
    if len(node.operands) != len(limits):
        return ""
    return f"time.hour in {limits['>']:.0f}..{limits['<']:.0f}"
