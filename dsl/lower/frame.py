"""One evaluation of one rule: which rows, which pod's parts, what was already computed.

And which values the snapshot alone decides, and when two expressions are equal: such columns need
to be computed once a generation, whoever asks for them.
"""

from collections.abc import Callable
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from dsl import ir
from dsl.plan import Results
from dsl.reads import is_local
from dsl.schema import FIELDS
from dsl.types import Level
from dsl.world import Dictionary, Parts, Rows, Subject, World

#: What an expression gives: a Python scalar below node level, else an array.
Value = Any
Run = Callable[["Frame"], Value]
Pods = slice | NDArray[np.intp]
#: The group of each pod: where its node stands, or its domain.
Group = NDArray[np.integer[Any]]

ALL: Final = slice(None)
NO_ROWS: Final = slice(0)
MOST_BYTES: Final = 64 << 20
#: Up to how many rows are asked about one by one; more are a full pass.
FEW: Final = 16
_NONE: Final = np.empty(0, np.intp)
NO_RESULTS: Final[Results] = MappingProxyType({})


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


class Frame:
    """The rows and values of one evaluation; closures read it and keep results in `cache`."""

    # Made for every rule and every changed row: what is seldom given is not written each time.
    candidates: Rows | None = None
    # Given wherever a rule reads the pod: what is compiled for no pod never asks.
    subject: Subject = cast("Subject", None)
    container: int
    #: What `it` alone means: a text or number, or a column of such; and the frame around.
    item: Value = None
    outer: "Frame | None" = None
    results: Results = NO_RESULTS
    _found: tuple[Pods, Group] | None = None

    def __init__(
        self,
        world: World,
        rows: Rows,
        parts: Parts = (),
        candidates: Rows | None = None,
        subject: Subject | None = None,
        results: Results | None = None,
    ) -> None:
        self.world = world
        self.rows = rows
        self.count = rows.stop if isinstance(rows, slice) else len(rows)
        self.parts = parts
        self.cache: dict[object, Value] = {}
        if candidates is not None:
            self.candidates = candidates
        if subject is not None:
            self.subject = subject
        if results is not None:
            self.results = results

    def ask(self, run: Run) -> Value:
        """Returns what a closure gives here; what is not finite becomes missing, not a warning."""
        with np.errstate(all="ignore"):
            return run(self)

    def take(self, column: NDArray[Value]) -> NDArray[Value]:
        """Returns a column's values on this frame's rows; a full pass borrows the column."""
        rows = self.rows
        if isinstance(rows, slice):
            return column if rows.stop == len(column) else column[rows]
        return column.take(rows)

    def whole(self) -> "Frame":
        """Returns the frame of all rows for what the snapshot alone decides."""
        full = isinstance(self.rows, slice) and self.count == self.world.nodes
        return self if full else Frame(self.world, slice(self.world.nodes))

    def _elsewhere(self, world: World, rows: Rows, key: object) -> "Frame":
        """Returns the same evaluation elsewhere, made once under a key."""
        frame: Frame | None = self.cache.get(key)
        if frame is None:
            frame = self.cache[key] = self._like(world, rows)
        return frame

    def _like(self, world: World, rows: Rows) -> "Frame":
        frame = Frame(world, rows, self.parts, self.candidates, self.subject, self.results)
        frame.item = self.item
        return frame

    def of_item(self, item: Value) -> "Frame":
        """Returns the same evaluation where `it` alone means an item of a list."""
        frame = self._like(self.world, self.rows)
        frame.item, frame.outer = item, self
        return frame

    def of_container(self, place: int) -> "Frame":
        """Returns the evaluation of a container of the pod to place."""
        frame = Frame(self.world, self.rows, subject=self.subject)
        frame.container = place
        return frame

    def over(self, rows: Rows) -> "Frame":
        """Returns the frame of the same evaluation on other rows."""
        if rows is self.rows:
            return self
        return self._elsewhere(self.world, rows, ("over", id(rows)))

    def of_table(self, table: str) -> "Frame":
        """Returns the frame of the same rows with other pods."""
        return self._elsewhere(self.world.pod_table(table), self.rows, ("table", table))

    def all_nodes(self) -> Rows:
        """Returns the rows that hold a node."""
        rows: Rows | None = self.cache.get("nodes")
        if rows is None:
            present = self.world.present
            full = bool(present.all())
            rows = slice(self.world.nodes) if full else np.flatnonzero(present)
            self.cache["nodes"] = rows
        return rows

    def candidate_frame(self, over: str) -> "Frame":
        """Returns the frame of the candidates (or of all nodes)."""
        if over == "nodes" or self.candidates is None:
            return self.over(self.all_nodes())
        return self.over(self.candidates)

    def pods(self) -> tuple[Pods, Group]:
        """Returns the pod rows on this frame's nodes, and where in `rows` their node stands."""
        if self._found is None:
            self._found = self._find_pods()
        return self._found

    @property
    def few(self) -> bool:
        """Whether so few rows are asked about that what differs from row to row is not kept."""
        return not isinstance(self.rows, slice) and self.count <= FEW

    def _find_pods(self) -> tuple[Pods, Group]:
        if self.outer is not None:
            return self.outer.pods()
        pod_node = self.world.pod_node
        rows = self.rows
        if isinstance(rows, slice):
            return running(self.world)
        if self.count == 1:
            here = self.world.pods_on(int(rows[0]))
            return here, np.zeros(len(here), np.intp)
        if self.few:
            each = [self.world.pods_on(row) for row in rows.tolist()]
            sizes = [len(one) for one in each]
            return np.concatenate([_NONE, *each]), np.repeat(np.arange(len(each)), sizes)
        place = np.full(self.world.nodes + 1, -1)
        place[rows] = np.arange(len(rows))
        group = place[pod_node]
        here = np.flatnonzero(group >= 0)
        return here, group[here]


def once(name: object, make: Run) -> Run:
    """Returns what is asked once in an evaluation."""

    def read(frame: Frame) -> Value:
        found = frame.cache.get(name)
        if found is None:
            found = frame.cache[name] = make(frame)
        return found

    return read


def running(world: World) -> tuple[Pods, Group]:
    """Returns all used pod rows and the node row of each."""
    pod_node = world.pod_node
    if int(pod_node.min(initial=0)) >= 0:
        return ALL, pod_node
    here = np.flatnonzero(pod_node >= 0)
    return here, pod_node[here]


_DEAR: Final = 4
_WITHOUT_WORK: Final = (ir.Const, ir.Read, ir.Metric, ir.Named)
#: What never divides by zero, overflows or asks for the root of a negative number.
QUIET: Final = (
    ir.Const, ir.Read, ir.Metric, ir.Named, ir.Compare, ir.TextTest, ir.Member, ir.Between,
    ir.Missing, ir.Coalesce, ir.Logical, ir.Not, ir.If,
)  # fmt: skip


class Facts(NamedTuple):
    """What is known of an expression.

    Attributes:
        shape: the same for equal expressions.
        lasting: whether nodes, pods and samples alone decide it: no pod to place, no clock.
        local: whether the value of a row is a matter of that row.
        heavy: whether it looks at all pods, or at the nodes of each domain.
        chosen: whether it depends on which nodes are candidates.
        samples: whether it reads metrics.
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
        self._facts: dict[int, Facts] = {}

    def of(self, root: ir.Expr) -> Facts:
        """Returns the facts of an expression."""
        for node in ir.parts_first(root, self._facts):
            self._facts[id(node)] = self._look(node)
        return self._facts[id(root)]

    def _look(self, node: ir.Expr) -> Facts:
        parts = [self._facts[id(one)] for one in ir.children(node)]
        if isinstance(node, ir.Named):
            return parts[0]
        # What is known of the parts, fact by fact.
        each: list[tuple[Any, ...]] = list(zip(*parts, strict=True)) or [()] * len(Facts._fields)
        _, lasting, local, heavy, chosen, samples, work = each
        lasts = _lasts(node) and all(lasting)
        of_candidates = isinstance(node, ir.Rank) or getattr(node, "over", "") == "candidates"
        # A domain takes a pass over all nodes, which is dear as well.
        of_domains = isinstance(node, ir.NodeAggregate) and node.level is Level.NODE
        return Facts(
            # Nobody asks for the shape of what does not last.
            shape=self._shape(node) if lasts else b"",
            lasting=lasts,
            local=is_local(node) and all(local),
            heavy=isinstance(node, ir.PodAggregate) or of_domains or any(heavy),
            chosen=of_candidates or any(chosen),
            samples=isinstance(node, ir.Metric | ir.Pair) or any(samples),
            work=(type(node) not in _WITHOUT_WORK) + sum(work),
        )

    def _shape(self, node: ir.Expr) -> bytes:
        # The type follows from the rest, and a metric's name is the file's own business.
        hidden = "name" if isinstance(node, ir.Metric | ir.Pair) else ""
        names = type(node).__annotations__
        own = [self._part(getattr(node, name)) for name in names if name != hidden]
        text = f"{type(node).__name__} {int(node.level)} {own!r}"
        return blake2b(text.encode(), digest_size=16).digest()

    def _part(self, value: object) -> object:
        if isinstance(value, tuple):
            return tuple(self._part(one) for one in value)
        return self._facts[id(value)].shape if isinstance(value, ir.Core) else value


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
