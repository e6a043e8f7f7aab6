"""Rules as understood become closures over NumPy columns; no code is generated.

Knows columns and the meaning of each node; not how rules are written or explained.
"""

from collections.abc import Callable, Sequence

import numpy as np

from dsl import ir
from dsl.lower import numbers
from dsl.lower.columns import Builder
from dsl.lower.frame import NO_ROWS, Frame, Memo, Run, is_quiet
from dsl.types import MISSING
from dsl.world import Column, Mask, Parts, Rows, Subject, World

__all__ = ["Memo", "combine", "finished", "lower_column", "lower_filter"]

Prepare = Callable[[Subject, World], Parts | None]


def lower_filter(
    core: ir.FilterCore, memo: Memo
) -> tuple[Prepare, Callable[[Parts, World, Rows], Mask]]:
    """Compiles a filter: what it asks of the pod, and its verdict. Linear in its tree."""
    builder = Builder(memo, hoist=True)
    test = builder.build(core.test)
    quiet = is_quiet(core.test)

    def verdict(parts: Parts, world: World, rows: Rows) -> Mask:
        frame = Frame(world, rows, parts)
        passed = test(frame) if quiet else frame.ask(test)
        if not isinstance(passed, np.ndarray):
            return np.full(frame.count, passed)
        # Whoever asked may write to the mask; columns of the world and what is kept are read-only.
        return passed if passed.flags.writeable else passed.copy()

    return _prepare(core.guard, builder.slots, memo), verdict


def lower_column(
    guard: ir.Expr | None, node: ir.Expr, memo: Memo
) -> tuple[Prepare, Callable[[Parts, World, Rows, Rows], Column]]:
    """Compiles what is computed of the candidates: what it asks of the pod, and its column."""
    builder = Builder(memo, hoist=True)
    value = builder.build(node)

    def column(parts: Parts, world: World, rows: Rows, candidates: Rows) -> Column:
        frame = Frame(world, rows, parts, candidates)
        raw = frame.ask(value)
        return raw if isinstance(raw, np.ndarray) else np.full(frame.count, raw)

    return _prepare(guard, builder.slots, memo), column


def finished(core: ir.ScoreCore) -> Callable[[Column], Column | None]:
    """Returns what makes scores of the raw values of all candidates."""
    norm, reverse, missing = core.norm, core.reverse, core.missing

    def finish(raw: Column) -> Column | None:
        with np.errstate(all="ignore"):
            return numbers.finish(raw, norm, missing, reverse=reverse)

    return finish


def _prepare(guard: ir.Expr | None, slots: list[Run], memo: Memo) -> Prepare:
    applies = Builder(memo).build(guard) if guard is not None else None
    if applies is None and not slots:
        return lambda _subject, _world: ()

    def prepare(subject: Subject, world: World) -> Parts | None:
        frame = Frame(world, NO_ROWS, subject=subject)
        if applies is not None and not frame.ask(applies):
            return None
        return tuple(_canonical(slot(frame)) for slot in slots)

    return prepare


def _canonical(
    value: float | str | tuple[str, ...] | None,
) -> float | str | bool | tuple[str, ...] | None:
    """Returns the one missing number for every NaN, so that equal parts compare equal."""
    return MISSING if isinstance(value, float) and value != value else value


def combine(columns: Sequence[tuple[float, Column | None]]) -> Column | None:
    """Returns the weighted mean of the columns that did not abstain, None without any."""
    there = [(weight, column) for weight, column in columns if column is not None and weight > 0]
    if len(there) <= 1:
        return there[0][1] if there else None
    total = there[0][1] * there[0][0]
    weights = there[0][0]
    for weight, column in there[1:]:
        total += column * weight
        weights += weight
    total /= weights
    return numbers.rounded(total)
