"""Which columns are kept from one decision to the next, and which rows of them are computed anew.

A column that the snapshot alone decides is computed once a generation, for all expressions that are
equal; of one that looks at all pods only the rows that changed are asked again.
"""

from hashlib import blake2b
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from dsl import ir
from dsl.lower.frame import Frame, Run, Value
from dsl.making import mapped
from dsl.reads import is_local
from dsl.schema import FIELDS
from dsl.types import Level
from dsl.world import Dictionary, World

MOST_BYTES: Final = 64 << 20
#: A row that is asked about by itself costs about so many rows of a full pass.
_WORTH: Final = 8
_DEAR: Final = 4
_WITHOUT_WORK: Final = (ir.Const, ir.Read, ir.Metric, ir.Named)


class Kept:
    """A column that the snapshot alone decides, as it was at one generation.

    All places of all policies that have an equal expression share one; `places` counts them.
    """

    __slots__ = ("__weakref__", "column", "dictionary", "generation", "places")

    def __init__(self) -> None:
        self.places = 0
        self.column: Value = None
        self.dictionary: Dictionary | None = None
        self.generation = -1


class Memo:
    """What is kept from one evaluation to the next, for all policies of a compiler.

    `computed` counts how many columns were made from nothing, `patched` how many were brought up
    to date row by row; `bytes` is their size, at most.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.computed = 0
        self.patched = 0
        self._most_bytes = most_bytes
        self.bytes = 0
        self._kept: WeakValueDictionary[bytes, Kept] = WeakValueDictionary()
        self._scratch: dict[str, NDArray[Value]] = {}

    def kept(self, shape: bytes) -> Kept:
        """Returns what equal expressions share; it lives as long as one of them."""
        found = self._kept.get(shape)
        if found is None:
            found = self._kept[shape] = Kept()
        found.places += 1
        return found

    def keep(self, kept: Kept, world: World, column: Value) -> Value:
        """Keeps a column for its generation; nobody may write to it from now on."""
        # INVARIANT: nothing that reads the time is kept; it may move within a generation.
        if isinstance(column, np.ndarray):
            before = kept.column.nbytes if isinstance(kept.column, np.ndarray) else 0
            self.bytes += column.nbytes - before
            if self.bytes > self._most_bytes:
                for one in self._kept.values():
                    one.column, one.dictionary = None, None
                self.bytes = column.nbytes
            column.setflags(write=False)
        kept.dictionary, kept.generation = world.dictionary, world.generation
        kept.column = column
        return column

    def scratch(self, name: str, size: int, kind: type[np.generic]) -> NDArray[Value]:
        """Returns a buffer of one kind that is free until the next call with this name.

        Large arrays that NumPy makes anew cost more in page faults than in arithmetic.
        """
        found = self._scratch.get(name)
        if found is None or len(found) < size:
            found = self._scratch[name] = np.empty(size + size // 4, kind)
        return found[:size]


class Facts(NamedTuple):
    """What is known of an expression.

    Attributes:
        shape: the same for equal expressions.
        lasting: whether nodes, pods and samples alone decide it: no pod to place, no clock.
        local: whether the value of a row is a matter of that row.
        heavy: whether it looks at all pods, or at the nodes of each domain.
        chosen: whether it depends on which nodes are candidates.
        work: how many operations it takes.
    """

    shape: bytes
    lasting: bool
    local: bool
    heavy: bool
    chosen: bool
    samples: bool
    work: int


class Known:
    """The facts of the expressions of one rule; each is looked at once."""

    def __init__(self) -> None:
        self._facts: dict[ir.Expr, Facts] = {}

    def of(self, root: ir.Expr) -> Facts:
        """Returns the facts of an expression."""
        for node in ir.parts_first(root, self._facts):
            self._facts[node] = self._look(node)
        return self._facts[root]

    def _look(self, node: ir.Expr) -> Facts:
        parts = [self._facts[one] for one in ir.children(node)]
        if isinstance(node, ir.Named):
            return parts[0]
        lasts, local, heavy = _lasts(node), is_local(node), isinstance(node, ir.PodAggregate)
        # A domain takes a pass over all nodes, which is dear as well.
        heavy = heavy or (isinstance(node, ir.NodeAggregate) and node.level is Level.NODE)
        chosen = isinstance(node, ir.Rank) or getattr(node, "over", "") == "candidates"
        samples, work = isinstance(node, ir.Metric | ir.Pair), int(type(node) not in _WITHOUT_WORK)
        for one in parts:
            lasts, local = lasts and one.lasting, local and one.local
            heavy, chosen = heavy or one.heavy, chosen or one.chosen
            samples, work = samples or one.samples, work + one.work
        shape = self._shape(node) if lasts else b""  # nobody asks for another
        return Facts(shape, lasts, local, heavy, chosen, samples, work)

    def _shape(self, node: ir.Expr) -> bytes:
        # The type follows from the rest, and a metric's name is the file's own business.
        hidden = "name" if isinstance(node, ir.Metric | ir.Pair) else ""
        parts = mapped(node, lambda one: self._facts[one].shape)
        own = [value for name, value in parts.items() if name != hidden]
        text = f"{type(node).__name__} {int(node.level)} {own!r}"
        return blake2b(text.encode(), digest_size=16).digest()


def _lasts(node: ir.Expr) -> bool:
    """Whether a node reads nothing itself that is neither a row nor a sample."""
    match node:
        case ir.Read() | ir.KeyedRead():
            spec = FIELDS[node.field]
            otherwise = spec.of_clock or spec.of_pod or spec.unsteady or spec.of_outcome
            return spec.level is not Level.POD and not otherwise
        case ir.Metric():
            # The value of an annotation turns stale by the clock.
            steady = node.level is not Level.POD and not node.age
            return steady and node.source != "annotation"
        case ir.PodAggregate():
            return node.table == "pods"
        case ir.ContainerRead() | ir.ContainerAggregate():
            return False
        case _:
            return True


def works(node: ir.Expr) -> bool:
    """Whether a value takes any computing, and is not only another one's column."""
    if isinstance(node, ir.Func):
        return node.name != "plain"
    return not isinstance(node, _WITHOUT_WORK)


def is_dear(facts: Facts) -> bool:
    """Whether a column is worth keeping although nobody else has it.

    A comparison of 5,000 numbers takes less than finding out that it is known.
    """
    return facts.heavy or facts.work >= _DEAR


def keeping(memo: Memo, run: Run, facts: Facts, *, dear: bool, scalar: bool) -> Run:
    """Returns what gives a column as it is kept, and brings it up to date by the rows that changed.

    One that is not `dear` is kept only where several places have it.
    """
    kept, chosen, patches = memo.kept(facts.shape), facts.chosen, facts.heavy and facts.local

    def lasting(frame: Frame) -> Value:
        if (not dear and kept.places == 1) or (chosen and frame.candidates is not None):
            return run(frame)
        world = frame.world
        if kept.generation == world.generation and kept.dictionary is world.dictionary:
            return kept.column if scalar else frame.take(kept.column)
        if scalar:
            memo.computed += 1
            return memo.keep(kept, world, run(frame))
        if frame.few:
            return run(frame)
        column = _patched(run, kept, facts, frame) if patches else None
        if column is None:
            memo.computed += 1
            column = run(frame.whole())
        else:
            memo.patched += 1
        return frame.take(memo.keep(kept, world, column))

    return lasting


def _patched(run: Run, kept: Kept, facts: Facts, frame: Frame) -> Value:
    """Returns a kept column with the rows that changed since asked again; None: not worth it."""
    world, column = frame.world, kept.column
    if kept.dictionary is not world.dictionary or len(column) != world.nodes:
        return None
    rows = world.changed_since(kept.generation, samples=facts.samples)
    if rows is None or len(rows) * _WORTH > world.nodes:
        return None
    if len(rows):
        column = column.copy()
        column[rows] = run(Frame(world, rows))
    return column
