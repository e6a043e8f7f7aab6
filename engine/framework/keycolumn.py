"""A sort key for every node, for one or several classes of pods, and the key of a single row.

The key of a node is its total score in steps of 1/65,536, followed by the node's place in the order
of ties; `NOWHERE` if it is not feasible. Choosing a node is finding the highest key. Points that
every node gets (`base`) are in no key.

The keys hold what plugins answer by row. Masks and raw scores that depend on the pod only through a
plugin's `shared` key are kept once for all classes (`derived`). What depends on more than the row
and the set of feasible nodes is asked in every cycle; classes that differ in that alone share their
column of keys.

Made by `classes`, filled and kept up to date by `classupdater`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.changelog import ChangeLog
from engine.framework.decision import Rejections
from engine.framework.derived import LogPosition
from engine.framework.interface import MAX_SCORE, Joint, Scores
from engine.framework.runner import Dependency, Scoring
from engine.framework.snapshot import IntColumn, Snapshot
from engine.framework.trials import Filtering

TIE_BITS: Final = 20
TIE_MASK: Final = (1 << TIE_BITS) - 1
_HASH_BITS: Final = 64
_PLAIN = frozenset((str, int, type(None), bool, float, bytes))
"""Types whose `repr` is the same in every process."""


class Ties:
    """The order of nodes with equal scores: (N,) the place of each row, by a hash of its name.

    Equal in every process, whatever the order in which nodes came. Each class of pods turns it in
    its own way, by an exclusive or. `version` counts changes of the places of existing rows.
    """

    def __init__(self) -> None:
        self._places: IntColumn = np.empty(0, dtype=np.int64)
        self.version = 0
        self._stamp = (-1, -1)

    def of(self, snapshot: Snapshot) -> IntColumn:
        """The places as of the snapshot."""
        stamp = snapshot.layout, snapshot.nodes.size
        if stamp != self._stamp:
            before, self._places, self._stamp = self._places, _places(snapshot), stamp
            self.version += not np.array_equal(before, self._places[: len(before)])
        return self._places


def _places(snapshot: Snapshot) -> IntColumn:
    """The first bits of the hash, or the next free place: a node that comes moves few others.

    Nodes beyond 2^20 share places. Rows without a node have any.
    """
    rows = np.flatnonzero(snapshot.nodes.present)
    keys = snapshot.nodes.tie_keys[rows]
    order = keys.argsort(kind="stable")
    number = np.arange(len(rows))
    first = keys[order] >> np.uint64(_HASH_BITS - TIE_BITS)
    placed = np.maximum.accumulate(first.astype(np.int64) - number) + number
    placed = np.minimum(placed, TIE_MASK - number[::-1])
    places = np.zeros(snapshot.nodes.size, dtype=np.int64)
    places[rows[order]] = np.maximum(placed, 0)
    return places


def turn_of(seed: int, key: Hashable) -> int:
    """The number by which a class turns the order."""
    parts = key if isinstance(key, tuple) else (key,)
    text = "\0".join([str(seed), *[repr(p) if type(p) in _PLAIN else _stable(p) for p in parts]])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest()) & TIE_MASK


@lru_cache(maxsize=1024)  # classes share most parts of their keys
def _stable(key: Hashable) -> str:
    """The key as text, equal in every process: sets are sorted."""
    if isinstance(key, tuple):
        return f"({','.join([repr(p) if type(p) in _PLAIN else _stable(p) for p in key])})"
    if isinstance(key, frozenset):
        return f"{{{','.join(sorted(map(_stable, key)))}}}"
    return repr(key)


FRACTION: Final = 1 << 16
UNIT: Final = FRACTION << TIE_BITS
"""One point of score in a key."""
NOWHERE: Final = -(1 << 62)
"""The key of a node where the pod cannot go; negative whatever scores are added."""


class OutOfRange(Exception):  # noqa: N818 - ends an update, and is no fault of ours
    """A score of a feasible node is outside 0..100."""


class Lookup(NamedTuple):
    """A column of scores that hold for this set of feasible nodes; 0 on all others."""

    scoring: Scoring
    column: Scores
    weight: float


AskRow = Callable[[Filtering | Scoring, int], float]
"""Asks a plugin of one row: whether it may pass, or its raw score."""


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class KeyColumn:
    """The sort keys of all nodes, for one or several classes; see the module."""

    offset: int
    """How it turns the order of ties."""
    ties: int = 0
    """The version of the order of ties that is in the keys."""
    fills: int = 0
    """How often plugins were asked about all rows."""
    place: LogPosition = field(default_factory=LogPosition)
    versions: list[Dependency] = field(default_factory=list)
    """What the answers depend on besides rows."""
    by_row: list[Filtering] = field(default_factory=list)
    allowed: NDArray[np.intp] | None = None
    """The only candidate rows; None: all."""
    joint: Joint | None = None
    """Answers for some of the filters and scores by row."""
    joint_name: str = ""
    """The plugin of that filter."""
    joint_scorers: list[Scoring] = field(default_factory=list)
    filters: list[Filtering] = field(default_factory=list)
    """The other filters by row."""
    scorers: list[Scoring] = field(default_factory=list)
    lookups: list[Lookup] = field(default_factory=list)
    uniform: list[Scoring] = field(default_factory=list)
    """Scores that are equal on all nodes; they are in `base`."""
    late: frozenset[str] = frozenset()
    """Plugins that score in every cycle, once a wide filter has said which nodes are feasible."""
    base: float = 0.0
    causes: int = 0
    """Changes of a row that can change its key."""
    touched: int = 0
    """Changes of any row that change scores of others, so that all are asked again."""
    column: IntColumn = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    cells: memoryview[Any] = field(default_factory=lambda: memoryview(b""))
    log: ChangeLog | None = None
    """Rows whose key changed, as ~row if feasibility did, too; None: nobody reads it."""
    shared_causes: int = 0
    """Changes of a row that can change what is shared with other columns."""
    feasible: int = 0
    unfit: Rejections | None = None
    """Why no node is feasible, until something changes that matters to it."""
    told: Sequence[Hashable] = ()
    """The `Points.reason_key`s with which that was worded."""
    bad: Exception | None = None
    """To be raised once scores are needed."""
    row: Callable[[int, AskRow], int | None] | None = None
    """See `row_of`; None: to be made."""

    def put(self, column: IntColumn) -> None:
        """All keys may be others now."""
        self.column, self.cells = column, column.data
        if self.log is not None:
            self.log.forget()

    def arrange_as(self, like: KeyColumn) -> None:
        """Looks at filters and scores in the same places, those of the joint aside."""
        self.by_row, self.scorers, self.uniform = like.by_row, like.scorers, like.uniform
        self.base, self.causes, self.late = like.base, like.causes, like.late
        self.touched, self.lookups = like.touched, []
        self.shared_causes = like.shared_causes

    def asked(self) -> list[Filtering | Scoring]:
        """All filters and scores that are in the keys."""
        lookups = [lookup.scoring for lookup in self.lookups]
        return [*self.by_row, *self.joint_scorers, *self.scorers, *self.uniform, *lookups]


def row_of(
    keys: KeyColumn, joint: Joint, snapshot: Snapshot, ties: IntColumn
) -> Callable[[int, AskRow], int | None]:
    """A function from a row to its key; None where only all plugins together can tell.

    Valid while `layout`, what is shared and the look-ups stay.
    """
    masks = _masks(keys, snapshot)
    checks = [one for one in keys.filters if one.shared is None]
    scores = [(_weight(one), one) for one in keys.scorers]
    lookups, turn, places = keys.lookups, keys.offset, ties.data
    at_once = joint.row(snapshot)

    def row(r: int, ask: AskRow) -> int | None:
        for mask in masks:
            if not mask[r]:
                return NOWHERE
        total = at_once(r)
        if total is None or total < 0:
            return None if total is None else NOWHERE
        for one in checks:
            if not ask(one, r):
                return NOWHERE
        for weight, of in scores:
            score = ask(of, r) if of.shared is None else of.shared.column.item(r)
            if not 0 <= score <= MAX_SCORE:
                return None
            total += weight * score
        for _, column, weight in lookups:
            total += weight * column.item(r)
        return (int(total * FRACTION) << TIE_BITS) | (places[r] ^ turn)

    return row


def _weight(scoring: Scoring) -> float:
    """An int if it can be one: sums of those are faster."""
    weight = scoring.weight
    return int(weight) if weight == int(weight) else weight


def _masks(keys: KeyColumn, snapshot: Snapshot) -> list[memoryview[Any]]:
    """Masks that are all True for a feasible row."""
    masks = [snapshot.nodes.present.data]
    masks += [f.shared.column.data for f in keys.filters if f.shared and not f.shared.uniform]
    if keys.allowed is not None:
        allowed = np.zeros(snapshot.nodes.size, np.bool_)
        allowed[keys.allowed] = True
        masks.append(allowed.data)
    return masks


def steps_of(totals: Scores) -> IntColumn:
    """Total scores as in keys, without the place among ties. Overwrites them."""
    totals *= FRACTION
    steps: IntColumn = totals.astype(np.int64)
    steps <<= TIE_BITS
    return steps
