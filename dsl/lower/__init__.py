"""Rules as understood become closures over NumPy columns.

Knows columns and the meaning of each node; not how rules are written or explained. Filters, scores
and tiers are asked of rows of nodes; gates, orders, permits and actions of a pod, or it on a node.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from dsl import functions, ir
from dsl.lower import numbers
from dsl.lower.columns import Builder
from dsl.lower.frame import NO_RESULTS, NO_ROWS, Frame, Run, Value
from dsl.lower.kept import Memo as Memo
from dsl.plan import Effect, OfPod, OnNode, Results
from dsl.reasons import filled
from dsl.types import MISSING, Kind, Level, is_missing, show
from dsl.world import Column, Indices, Mask, Parts, Rows, Subject, World

#: What never divides by zero, overflows or asks for the root of a negative number.
_QUIET: Final = (
    ir.Const, ir.Read, ir.Metric, ir.Named, ir.Compare, ir.TextTest, ir.Member,
    ir.Missing, ir.Coalesce, ir.Logical, ir.Not, ir.If,
)  # fmt: skip
Prepare = OfPod[Parts | None]


def lower_filter(
    core: ir.FilterCore, memo: Memo
) -> tuple[Prepare, Callable[[Parts, World, Rows], Mask]]:
    """Compiles a filter: what it asks of the pod, and its verdict. Linear in its tree."""
    builder = Builder(memo, hoist=True)
    test = builder.build(core.test)
    # NumPy can have nothing to warn of.
    quiet = all(isinstance(one, _QUIET) for one in ir.walk(core.test))

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
        # The one missing number for every NaN, so that equal parts compare equal.
        values = (slot(frame) for slot in slots)
        return tuple(MISSING if value != value else value for value in values)

    return prepare


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


def lower_condition(parts: tuple[ir.Expr | None, ...], memo: Memo) -> OnNode[bool]:
    """Compiles conditions that must all hold, of the pod or of the pod on one node."""
    built = _built([one for one in parts if one is not None], memo)

    def holds(subject: Subject, world: World, row: int) -> bool:
        frame = _at(subject, world, row)
        return all(frame.ask(run) for run in built)

    return holds


def lower_values(memo: Memo) -> Callable[..., Callable[[ir.Expr], Value]]:
    """Compiles parts of a rule, each when first asked for, of the pod or of the pod on one node.

    They give floats, texts and flags, as in `reference`; lists of nodes are no columns.
    """
    builder = Builder(memo)

    def values(
        subject: Subject, world: World, row: int, results: Results = NO_RESULTS
    ) -> Callable[[ir.Expr], Value]:
        frame = _at(subject, world, row, results)
        return lambda node: _scalar(frame.ask(builder.build(node)), node, world)

    return values


def _at(subject: Subject, world: World, row: int, results: Results | None = None) -> Frame:
    """Returns the evaluation of a pod on one node, -1 for none."""
    rows = np.array([row]) if row >= 0 else NO_ROWS
    return Frame(world, rows, subject=subject, results=results)


def _built(parts: Iterable[ir.Expr], memo: Memo) -> list[Run]:
    return [Builder(memo).build(one) for one in parts]


def _scalar(found: Value, node: ir.Expr, world: World) -> Value:
    if not isinstance(found, np.ndarray):
        return found
    one = found.item()
    if node.type.kind is not Kind.TEXT:
        return one
    return None if one < 0 else world.dictionary.texts[one]


def lower_turns(left: tuple[ir.Expr, ...], memo: Memo) -> OfPod[float]:
    """Compiles the seconds that are left, of `dsl.turns`, into the least that is to come."""
    built = _built(left, memo)

    def turns(subject: Subject, world: World) -> float:
        frame = Frame(world, slice(world.nodes), subject=subject)
        soonest = math.inf
        for run in built:
            seconds = np.asarray(frame.ask(run))
            soonest = min(soonest, float(seconds.min(initial=math.inf, where=seconds >= 0)))
        return soonest

    return turns


def lower_alike(
    parts: tuple[ir.Expr, ...], memo: Memo
) -> Callable[[Subject, World, Indices], bool]:
    """Compiles whether each of some values is the same on all of some rows."""
    of_nodes = [one for one in parts if one.level is Level.NODE]
    built = _built([one for one in of_nodes if one.type.kind is not Kind.LIST], memo)
    # Lists are no columns: who shows them is taken to say something else of each node.
    whole = len(built) == len(of_nodes)

    def alike(subject: Subject, world: World, rows: Indices) -> bool:
        values = map(Frame(world, rows, subject=subject).ask, built)
        return whole and all((one == one[0]).all() or np.isnan(one).all() for one in values)

    return alike


def lower_actions(
    core: ir.ActionCore, memo: Memo
) -> Callable[[Subject, World, int, Results], tuple[Effect, ...]]:
    """Compiles a `prebind:` or `postbind:`; what has no value is not set."""
    applies = lower_condition((core.guard, core.left), memo)
    actions = [_action(one, memo) for one in core.actions]

    def effects(subject: Subject, world: World, row: int, results: Results) -> tuple[Effect, ...]:
        if not applies(subject, world, row):
            return ()
        found = (one(subject, world, row, results) for one in actions)
        return tuple(one for one in found if one is not None)

    return effects


def _action(core: ir.Action, memo: Memo) -> Callable[[Subject, World, int, Results], Effect | None]:
    values, text, written = lower_values(memo), core.text, core.value

    def effect(subject: Subject, world: World, row: int, results: Results) -> Effect | None:
        ask = values(subject, world, row, results)
        if text is not None:
            return Effect(core.kind, core.key, filled(text, ask))
        assert written is not None
        value = ask(written)
        if is_missing(value):
            return None
        return Effect(core.kind, core.key, show(value, written.type))

    return effect


def lower_key(core: ir.SortCore, memo: Memo) -> OfPod[tuple[Any, ...]]:
    """Compiles the keys of the queue, with the hidden last ones."""
    built = [(Builder(memo).build(one.value), one.direction, one.items) for one in core.keys]

    def key(subject: Subject, world: World) -> tuple[Any, ...]:
        frame = Frame(world, NO_ROWS, subject=subject)
        own = [functions.place(run(frame), order, items) for run, order, items in built]
        queued_at = subject.number("pod.queued_at", None)
        last = functions.place(queued_at, "asc", ())
        return (*own, last, subject.text("pod.uid", None) or "")

    return key
