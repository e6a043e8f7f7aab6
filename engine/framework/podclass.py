"""What is known of one class of pods: a sort key for every node, kept up to date by changed rows.

The key of a node is its total score, in steps of 1/65,536, and behind it the node's place in the
class's order of ties; negative where the pod cannot go. Choosing a node is finding the highest key.

What plugins answer by row is baked into the keys. Masks and raw scores that do not depend on the
pod but through a plugin's `shared` key are kept once for all classes (`Shared`). What looks further
than a row and the set of feasible nodes is not in the keys: it is asked in every cycle (`wide`).

A class asks plugins and decides nothing; `Framework` does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.framework.decision import Rejections
from engine.framework.interface import (
    MAX_SCORE,
    Normalization,
    Points,
    PreFilterResult,
    PreScoreResult,
    Scores,
    Version,
)
from engine.framework.podinfo import PodInfo
from engine.framework.snapshot import BoolColumn, Cause, IntColumn, Rows, Snapshot

if TYPE_CHECKING:
    from engine.framework.grouped import GroupedChoice

TIE_BITS: Final = 20
"""Nodes beyond 2^20 share places in the order of ties."""
TIE_MASK: Final = (1 << TIE_BITS) - 1
FRACTION: Final = 1 << 16
UNIT: Final = FRACTION << TIE_BITS
"""One point of score in a key."""
NOWHERE: Final = -(1 << 62)
"""The key of a node where the pod cannot go; stays negative whatever scores are added."""


class OutOfRange(Exception):  # noqa: N818 - an answer that ends an update, not a fault of ours
    """A score of a feasible node is outside 0..100."""


class Shared:
    """A mask or raw scores of all rows, for all classes with the plugin's `shared` key."""

    __slots__ = (
        "answers",
        "causes",
        "cells",
        "column",
        "generation",
        "layout",
        "normal",
        "shape",
        "uniform",
    )

    def __init__(self, causes: Cause) -> None:
        self.causes = int(causes)
        self.layout = self.generation = -1
        self.column: NDArray[Any] = np.empty(0)
        self.cells: memoryview[Any] = memoryview(b"")
        self.uniform = False
        """All True, or all 0: there is nothing to look up."""
        self.answers = 0
        """Counts changes of any answer."""
        self.shape = 0
        """Counts what makes `cells` or `uniform` another."""
        self.normal: dict[float, NDArray[np.float64]] = {}
        """Normalised by an extremum."""

    def refresh(self, snapshot: Snapshot, ask: Callable[[Rows], NDArray[Any]]) -> None:
        """Brings it up to the snapshot."""
        if self.generation == snapshot.generation and self.layout == snapshot.layout:
            return
        size = snapshot.nodes.size
        changes = None
        if self.layout == snapshot.layout:
            changes = snapshot.changes_since(self.generation)
        self.generation, self.layout = snapshot.generation, snapshot.layout
        if changes is None:
            self.column = np.array(ask(slice(0, size)))
            self.cells = self.column.data
            self.shape += 1
            self._settled()
            return
        rows, causes = changes
        rows = rows[(causes & self.causes) != 0]
        if not len(rows):
            return
        fresh = ask(rows)
        if self.column[rows].tobytes() != fresh.tobytes():
            self.column[rows] = fresh
            self._settled()

    def _settled(self) -> None:
        self.answers += 1
        self.normal.clear()
        is_mask = self.column.dtype == np.bool_
        uniform = bool(self.column.all()) if is_mask else not self.column.any()
        if uniform != self.uniform:
            self.uniform = uniform
            self.shape += 1


@dataclass(frozen=True, slots=True)
class Filtering:
    """One plugin's filter for a class."""

    name: str
    points: Points
    result: PreFilterResult
    shared: Shared | None = None


@dataclass(frozen=True, slots=True)
class Scoring:
    """One plugin's score for a class."""

    name: str
    points: Points
    weight: float
    result: PreScoreResult
    shared: Shared | None = None


class Lookup:
    """Scores that are looked up by row: normalised over the feasible nodes, or made of them."""

    __slots__ = ("cells", "column", "raw", "scoring", "top", "weight")

    def __init__(
        self,
        scoring: Scoring,
        column: Scores,
        raw: Scores | None,
        top: float,
        weight: float | None = None,
    ) -> None:
        self.scoring = scoring
        self.weight = scoring.weight if weight is None else weight
        self.column = column
        self.cells: memoryview[Any] = column.data
        self.raw = raw
        """What was normalised; None: the scores are made of the feasible nodes."""
        self.top = top
        """The highest raw score of a feasible node, by which it was normalised."""


class PodClass:
    """See the module. Made, filled and brought up to date by `framework.runtime`."""

    __slots__ = (
        "allowed",
        "allowed_by",
        "bad",
        "base",
        "causes",
        "cells",
        "column",
        "feasible",
        "filters",
        "generation",
        "grouped",
        "key",
        "layout",
        "lookups",
        "offset",
        "owner",
        "row",
        "scorers",
        "shared_stamp",
        "total",
        "touched",
        "unfit",
        "uniform",
        "used",
        "versions",
        "whole",
        "wide_filters",
        "wide_scorers",
    )

    def __init__(self, key: tuple[Hashable, ...] | None, owner: object, offset: int) -> None:
        self.key = key
        self.owner: object = owner
        """The framework that keeps it; None once it does not."""
        self.offset = offset
        """Where the class begins in the order of ties."""
        self.used = 0
        self.layout = self.generation = -1
        self.filters: list[Filtering] = []
        self.wide_filters: list[Filtering] = []
        self.scorers: list[Scoring] = []
        self.wide_scorers: list[Scoring] = []
        self.grouped: GroupedChoice | None = None
        """How to choose, if all that is wide is answered by groups."""
        self.lookups: list[Lookup] = []
        self.uniform: list[Scoring] = []
        """Scores that are the same on all nodes; they are in `base`."""
        self.base = 0.0
        self.allowed: BoolColumn | None = None
        self.allowed_by: tuple[str, ...] = ()
        self.versions: list[tuple[str, Version, Hashable]] = []
        self.causes = 0
        """Changes of a row that can change its key."""
        self.touched = 0
        """Changes of any row after which the scores of all have to be asked again."""
        self.column: IntColumn = np.empty(0, dtype=np.int64)
        self.cells: memoryview[Any] = self.column.data
        self.shared_stamp = 0
        """The `stamp` with which the keys were made."""
        self.feasible = 0
        self.whole = True
        """Whether all scores are whole numbers, so that a key says the total exactly."""
        self.unfit: Rejections | None = None
        """Why it fits nowhere, until something moves that could change that."""
        self.bad: Exception | None = None
        """What is to be raised if it comes to scoring."""
        self.row: Callable[[int], int] = _unknown
        self.total: Callable[[int], float] = _unknown

    def stamp(self) -> int:
        """Changes when its keys have to be made anew for what it shares with other classes."""
        stamp = 0
        for filtering in self.filters:
            if filtering.shared is not None:
                stamp += filtering.shared.shape
        for scoring in self.baked():
            if scoring.shared is not None:
                stamp += scoring.shared.shape + scoring.shared.answers
        return stamp

    def shared(self) -> Iterator[Shared]:
        """What it keeps together with other classes."""
        for filtering in self.filters:
            if filtering.shared is not None:
                yield filtering.shared
        for scoring in self.baked():
            if scoring.shared is not None:
                yield scoring.shared

    def baked(self) -> Iterator[Scoring]:
        """The scores that are in the keys."""
        yield from self.scorers
        yield from self.uniform
        for lookup in self.lookups:
            yield lookup.scoring


def _unknown(row: int) -> int:
    raise LookupError(f"row {row} of a class that was never filled")


def bind_rows(known: PodClass, pod: PodInfo, snapshot: Snapshot, ties: IntColumn) -> None:
    """Makes `row`, the key of a single row, and `total`, the total score behind it.

    Both give what the full pass gives, and are valid while `layout` and the lookups stay.
    """
    passes, total = _passes(known, pod, snapshot), _total(known, pod, snapshot)
    offset, places = known.offset, ties.data

    def row(r: int) -> int:
        if not passes(r):
            return NOWHERE
        return (int(total(r) * FRACTION) << TIE_BITS) + ((places[r] + offset) & TIE_MASK)

    known.row, known.total = row, total


def _passes(known: PodClass, pod: PodInfo, snapshot: Snapshot) -> Callable[[int], bool]:
    masks = [snapshot.nodes.present.data]
    masks += [f.shared.cells for f in known.filters if f.shared and not f.shared.uniform]
    if known.allowed is not None:
        masks.append(known.allowed.data)
    checks = [_check(f, pod, snapshot) for f in known.filters if f.shared is None]

    def passes(r: int) -> bool:
        for mask in masks:
            if not mask[r]:
                return False
        for check in checks:  # noqa: SIM110 - a generator would cost as much as the checks
            if not check(r):
                return False
        return True

    return passes


def _total(known: PodClass, pod: PodInfo, snapshot: Snapshot) -> Callable[[int], float]:
    scores = [
        (s.weight, _score(s, pod, snapshot))
        for s in known.scorers
        if s.shared is None or not s.shared.uniform
    ]
    lookups = [(one.weight, one.cells) for one in known.lookups]
    base = known.base

    def total(r: int) -> float:
        total = base
        for weight, score in scores:
            one = score(r)
            if not 0 <= one <= MAX_SCORE:
                raise OutOfRange
            total += weight * one
        for weight, cells in lookups:
            total += weight * cells[r]
        return total

    return total


def _check(filtering: Filtering, pod: PodInfo, snapshot: Snapshot) -> Callable[[int], bool]:
    points, state = filtering.points, filtering.result.state
    if points.filter_row is not None:
        return points.filter_row(state, pod, snapshot)
    ask = points.filter
    assert ask is not None

    def check(r: int) -> bool:
        passed = ask(state, pod, snapshot, np.array([r], dtype=np.intp)).passed
        return passed is None or bool(passed[0])

    return check


def _score(scoring: Scoring, pod: PodInfo, snapshot: Snapshot) -> Callable[[int], float]:
    points, state = scoring.points, scoring.result.state
    if scoring.shared is not None:
        return scoring.shared.cells.__getitem__
    if points.score_row is not None:
        return points.score_row(state, pod, snapshot)
    ask = points.score
    assert ask is not None

    def score(r: int) -> float:
        scores = ask(state, pod, snapshot, np.array([r], dtype=np.intp))
        return 0.0 if scores is None else float(scores[0])

    return score


def keys_of(totals: Scores, ties: IntColumn, offset: int, *, whole: bool) -> IntColumn:
    """(n,) keys of totals; `ties` are the places of the same rows."""
    if whole:
        keys = (totals * UNIT).astype(np.int64)
    else:
        keys = (totals * FRACTION).astype(np.int64)
        keys <<= TIE_BITS
    keys += (ties + offset) & TIE_MASK
    return keys


def normalized(how: Normalization, raw: Scores, top: float) -> Scores:
    """Raw scores -> 0..100, by the highest of the feasible nodes; see `Normalization`.

    Source: kubernetes plugins/helper/normalize_score.go.
    """
    if top == 0.0:
        return raw if how is Normalization.BY_MAX else np.full(len(raw), float(MAX_SCORE))
    share: Scores = np.trunc(raw * MAX_SCORE / top)
    return share if how is Normalization.BY_MAX else MAX_SCORE - share
