"""Statements about one pod, or one pod on one node, as closures: gates, orders, permits, tiers."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsl import functions, ir
from dsl.lower.columns import Builder
from dsl.lower.frame import Frame, Memo
from dsl.plan import Mask, Parts, Subject, World
from dsl.types import MISSING, Level

_NO_ROWS = slice(0, 0)
Condition = Callable[[Subject, World, int], bool]


def lower_condition(parts: tuple[ir.Expr | None, ...], memo: Memo) -> Condition:
    """Compiles conditions that must all hold, of the pod or of the pod on one node."""
    built = [(one.level, _builder(memo).build(one)) for one in parts if one is not None]

    def holds(subject: Subject, world: World, row: int) -> bool:
        frame = Frame(world, np.array([row], np.intp) if row >= 0 else _NO_ROWS, subject=subject)
        with np.errstate(all="ignore"):
            for level, run in built:
                value = run(frame)
                if not (value[0] if level >= Level.NODE else value):
                    return False
        return True

    return holds


def _builder(memo: Memo) -> Builder:
    return Builder(memo, hoist=False)


def lower_key(core: ir.SortCore, memo: Memo) -> Callable[[Subject, World], tuple[Any, ...]]:
    """Compiles the keys of the queue, with the hidden last ones."""
    built = [(_builder(memo).build(one.value), one.direction, one.items) for one in core.keys]

    def key(subject: Subject, world: World) -> tuple[Any, ...]:
        frame = Frame(world, _NO_ROWS, subject=subject)
        with np.errstate(all="ignore"):
            own = [functions.place(run(frame), order, items) for run, order, items in built]
        queued_at = subject.number("pod.queued_at", None)
        last = functions.place(queued_at, "asc", ())
        return (*own, last, subject.text("pod.uid", None) or "")

    return key


def lower_tier(
    core: ir.TierCore, memo: Memo
) -> tuple[
    Callable[[Subject, World], Parts | None],
    Callable[[Parts, World, NDArray[np.intp]], Mask],
]:
    """Compiles a `first:`."""
    builder = Builder(memo, hoist=True)
    test = builder.build(core.test)
    guard = lower_condition((core.guard,), memo)
    slots = builder.slots

    def prepare(subject: Subject, world: World) -> Parts | None:
        if not guard(subject, world, -1):
            return None
        frame = Frame(world, _NO_ROWS, subject=subject)
        with np.errstate(all="ignore"):
            values = [slot(frame) for slot in slots]
        return tuple(MISSING if one != one else one for one in values)

    def mask(parts: Parts, world: World, candidates: NDArray[np.intp]) -> Mask:
        frame = Frame(world, candidates, parts, candidates)
        with np.errstate(all="ignore"):
            found = test(frame)
        if isinstance(found, np.ndarray):
            return found
        return np.full(len(candidates), found, np.bool_)

    return prepare, mask
