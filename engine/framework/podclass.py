"""What is known of one class of pods: a sort key for every node, kept up to date by changed rows.

The key of a node is its total score, in steps of 1/65,536, and behind it the node's place in the
class's order of ties; `NOWHERE` where the pod cannot go. Choosing a node is finding the highest
key. What every node is given alike (`base`) is in no key.

What plugins answer by row is baked into the keys. Masks and raw scores that do not depend on the
pod but through a plugin's `shared` key are kept once for all classes (`derived`). What looks
further than a row and the set of feasible nodes is not in the keys: it is asked in every cycle.
Classes that differ in that alone have one column of keys together.

A class asks plugins and decides nothing; it is made by `classes`, filled by `classupdater`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.framework.decision import Rejections
from engine.framework.derived import Place
from engine.framework.interface import MAX_SCORE, Joint, Scores
from engine.framework.runner import Dependency, Filtering, Scoring
from engine.framework.snapshot import IntColumn, Snapshot
from engine.log import Log
from engine.pods.podinfo import PodInfo

if TYPE_CHECKING:
    from engine.framework.classes import ClassName
    from engine.framework.groupedchoice import GroupedChoice

TIE_BITS: Final = 20
TIE_MASK: Final = (1 << TIE_BITS) - 1
FRACTION: Final = 1 << 16
UNIT: Final = FRACTION << TIE_BITS
"""One point of score in a key."""
NOWHERE: Final = -(1 << 62)
"""The key of a node where the pod cannot go; negative whatever scores are added."""
_NO_CELLS: Final = memoryview(b"")


class OutOfRange(Exception):  # noqa: N818 - an answer that ends an update, not a fault of ours
    """A score of a feasible node is outside 0..100."""


@dataclass(slots=True, eq=False)
class Lookup:
    """Scores that are looked up by row: normalised over the feasible nodes, or made of them."""

    scoring: Scoring
    column: Scores
    weight: float
    raw: Scores | None = None
    """What was normalised; None: the scores are made of the feasible nodes."""
    top: float = 0.0
    """The highest raw score of a feasible node, by which it was normalised."""
    many: int = 0
    """How many feasible nodes have it."""
    cells: memoryview[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.cells = self.column.data

    def stands(self, came: Iterable[int], went: Iterable[int]) -> bool:
        """Whether it is as it was after these rows became feasible, or ceased to be."""
        raw, top = self.raw, self.top
        if raw is None:
            return False
        for row in came:
            if raw[row] > top:
                return False
            self.many += bool(raw[row] == top)
        for row in went:
            self.many -= bool(raw[row] == top)
        return self.many > 0 or top == 0.0


At = Callable[[], Snapshot]
"""The snapshot of the cycle that asks."""


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class KeyColumn:
    """What plugins answer by row for some classes, as a sort key for every node; see the module."""

    offset: int
    """How it turns the order of ties."""
    ties: int = 0
    """Which order of ties the keys have."""
    fills: int = 0
    """How often plugins were asked about all rows."""
    place: Place = field(default_factory=Place)
    versions: list[Dependency] = field(default_factory=list)
    """What the answers depend on besides rows."""
    by_row: list[Filtering] = field(default_factory=list)
    allowed: NDArray[np.intp] | None = None
    """The only rows worth asking about."""
    joint: Joint | None = None
    """What stands for some of the filters and scores by row."""
    joint_name: str = ""
    """Whose filter that is."""
    joint_scorers: list[Scoring] = field(default_factory=list)
    filters: list[Filtering] = field(default_factory=list)
    """The other filters by row."""
    scorers: list[Scoring] = field(default_factory=list)
    lookups: list[Lookup] = field(default_factory=list)
    uniform: list[Scoring] = field(default_factory=list)
    """Scores that are the same on all nodes; they are in `base`."""
    late: frozenset[str] = frozenset()
    """Whose scores are asked in every cycle, as a wide filter says then who is feasible."""
    base: float = 0.0
    causes: int = 0
    """Changes of a row that can change its key."""
    touched: int = 0
    """Changes of any row after which the scores of all have to be asked again."""
    column: IntColumn = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    cells: memoryview[Any] = _NO_CELLS
    log: Log | None = None
    """The rows whose key changed, as ~row if they became feasible or ceased to be; None: nobody
    reads it."""
    shared_causes: int = 0
    """Changes of a row that can change what it shares with other columns."""
    shared_stamp: int = 0
    """The `stamp` with which the keys were made."""
    feasible: int = 0
    whole: bool = True
    """Whether all scores are whole numbers, so that a key says the total exactly."""
    unfit: Rejections | None = None
    """Why it fits nowhere, until something moves that could change that."""
    told: Sequence[Hashable] = ()
    """What that says of the pod; see `Points.told_key`."""
    bad: Exception | None = None
    """What is to be raised if it comes to scoring."""
    row: Callable[[int], int | None] | None = None
    """See `row_of`; None: to be made."""
    at: Snapshot | None = None
    """What plugins are asked about then: never one of before."""

    def now(self) -> Snapshot:
        """The snapshot to which it is brought up."""
        assert self.at is not None
        return self.at

    def baked(self) -> list[Scoring]:
        """The scores that are in the keys."""
        scorers = [*self.joint_scorers, *self.scorers]
        return [*scorers, *self.uniform, *(lookup.scoring for lookup in self.lookups)]

    def asked(self) -> list[Filtering | Scoring]:
        """Who answers by row."""
        return [*self.by_row, *self.baked()]

    def stamp(self) -> int:
        """Changes when all keys have to be made anew for what it shares with other classes."""
        shared = [lookup.scoring.shared for lookup in self.lookups]
        odd = [one for one in self.uniform if one.shared is not None and not one.shared.uniform]
        return sum([one.answers for one in shared if one is not None]) + len(odd)


_NO_KEYS: Final = KeyColumn(0)
"""Those of a class that was not asked about yet."""


@dataclass(slots=True, eq=False, repr=False)
class PodClass:
    """Pods that no plugin can tell apart: their keys, and who looks further than a row."""

    name: ClassName | None
    """What tells it from others; None: it is kept for nobody."""
    used: int = 0
    keys: KeyColumn = _NO_KEYS
    fills: int = -1
    """Those of the keys when it was asked; others: it has to be asked again."""
    versions: list[Dependency] = field(default_factory=list)
    """What answers depend on of those who tell the class from others with the same keys.

    INVARIANT: whichever class asks anew because of the versions of the keys, `fills` moves, and
    the others ask, too.
    """
    filters: list[Filtering] = field(default_factory=list)
    scorers: list[Scoring] = field(default_factory=list)
    wide: bool = False
    """Whether there are any: who looks further than a row in every cycle."""
    grouped: GroupedChoice | None = None
    """How to choose, if all that is wide is answered by groups."""
    unfit: Rejections | None = None
    """As of `KeyColumn`, where groups or promises say so; `told` begins with when that was."""
    told: Sequence[Hashable] = ()

    def forget(self) -> None:
        """Everything is asked again."""
        self.fills = -1
        self.keys.place.forget()


def row_of(
    keys: KeyColumn, joint: Joint, pod: PodInfo, snapshot: Snapshot, ties: IntColumn
) -> Callable[[int], int | None]:
    """Makes what gives the key of a single row, as the full pass does; None where it has to.

    It is good while `layout`, what is shared and the look-ups stay.
    """
    masks = _masks(keys, snapshot)
    checks = [_check(f, pod, keys.now) for f in keys.filters if f.shared is None]
    scores = [_weighed(s, pod, keys.now) for s in keys.scorers]
    lookups = [(one.weight, one.cells) for one in keys.lookups]
    turn, places = keys.offset, ties.data
    at_once = joint.row(snapshot)

    def row(r: int) -> int | None:
        for mask in masks:
            if not mask[r]:
                return NOWHERE
        total = at_once(r)
        if total is None:
            return None
        if total < 0:
            return NOWHERE
        for check in checks:
            if not check(r):
                return NOWHERE
        for weight, score in scores:
            total += weight * _inside(score(r))
        for weight, cells in lookups:
            total += weight * cells[r]
        return (int(total * FRACTION) << TIE_BITS) | (places[r] ^ turn)

    return row


def total_of(keys: KeyColumn, pod: PodInfo, snapshot: Snapshot, row: int) -> float:
    """The exact total score of a feasible row."""
    at_once = None if keys.joint is None else keys.joint.row(snapshot)(row)
    apart = [*keys.joint_scorers, *keys.scorers] if at_once is None else keys.scorers
    total = keys.base + (at_once or 0.0)
    for scoring in apart:
        total += scoring.weight * _score(scoring, pod, lambda: snapshot)(row)
    for lookup in keys.lookups:
        total += lookup.weight * lookup.cells[row]
    return total


def _masks(keys: KeyColumn, snapshot: Snapshot) -> list[memoryview[Any]]:
    """What a row must have True in."""
    masks = [snapshot.nodes.present.data]
    masks += [f.shared.cells for f in keys.filters if f.shared and not f.shared.uniform]
    if keys.allowed is not None:
        allowed = np.zeros(snapshot.nodes.size, np.bool_)
        allowed[keys.allowed] = True
        masks.append(allowed.data)
    return masks


def _weighed(scoring: Scoring, pod: PodInfo, at: At) -> tuple[float, Callable[[int], float]]:
    """The weight, as a whole number if it is one: sums of these are quicker."""
    weight = scoring.weight
    return int(weight) if weight == int(weight) else weight, _score(scoring, pod, at)


def _inside(score: float) -> float:
    if not 0 <= score <= MAX_SCORE:
        raise OutOfRange
    return score


def _check(filtering: Filtering, pod: PodInfo, at: At) -> Callable[[int], bool]:
    ask, state = filtering.points.filter, filtering.result.state
    assert ask is not None

    def check(r: int) -> bool:
        passed = ask(state, pod, at(), np.array([r], dtype=np.intp)).passed
        return passed is None or bool(passed[0])

    return check


def _score(scoring: Scoring, pod: PodInfo, at: At) -> Callable[[int], float]:
    if scoring.shared is not None:
        return scoring.shared.cells.__getitem__
    ask, state = scoring.points.score, scoring.result.state
    assert ask is not None

    def score(r: int) -> float:
        scores = ask(state, pod, at(), np.array([r], dtype=np.intp))
        return 0.0 if scores is None else float(scores[0])

    return score


def steps_of(totals: Scores) -> IntColumn:
    """Total scores as they stand in keys, without ties."""
    steps: IntColumn = (totals * FRACTION).astype(np.int64) << TIE_BITS
    return steps
