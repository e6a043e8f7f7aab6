"""One evaluation of one rule: which rows, which pod's parts, what was already computed."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dsl.plan import Dictionary, Parts, Results, Rows, Subject, World

#: What an expression gives: a Python scalar below node level, else an array.
Value = Any
Run = Callable[["Frame"], Value]
Pods = slice | NDArray[np.intp]

ALL: Final = slice(None)
NO_RESULTS: Final[Results] = MappingProxyType({})


class Memo:
    """Columns that depend on the snapshot alone, kept while it does not change."""

    def __init__(self) -> None:
        self._dictionary: Dictionary | None = None
        self._generation = -1
        self._kept: dict[int, Value] = {}

    def of(self, world: World) -> dict[int, Value]:
        """Returns what is kept for this snapshot."""
        # INVARIANT: nothing that reads the time is kept; it may move within a generation.
        dictionary, generation = world.dictionary, world.generation
        if dictionary is not self._dictionary or generation != self._generation:
            self._dictionary, self._generation = dictionary, generation
            self._kept = {}
        return self._kept


class Frame:
    """The rows and values of one evaluation; closures read it and keep results in `cache`."""

    __slots__ = (
        "_group",
        "_pods",
        "cache",
        "candidates",
        "container",
        "count",
        "parts",
        "results",
        "rows",
        "subject",
        "world",
    )

    def __init__(
        self,
        world: World,
        rows: Rows,
        parts: Parts = (),
        candidates: Rows | None = None,
        subject: Subject | None = None,
        container: int = -1,
        results: Results = NO_RESULTS,
    ) -> None:
        self.world = world
        self.rows = rows
        self.count = rows.stop if isinstance(rows, slice) else len(rows)
        self.parts = parts
        self.candidates = candidates
        self.subject = subject
        self.container = container
        self.results = results
        self.cache: dict[object, Value] = {}
        self._pods: Pods | None = None
        self._group: NDArray[np.intp] | None = None

    def take(self, column: NDArray[Value]) -> NDArray[Value]:
        """Returns a column's values on this frame's rows; a full pass borrows the column."""
        rows = self.rows
        if isinstance(rows, slice):
            return column if rows.stop == len(column) else column[rows]
        return column.take(rows)

    def over(self, rows: Rows) -> "Frame":
        """Returns the frame of the same evaluation on other rows."""
        if rows is self.rows:
            return self
        key = ("over", id(rows))
        found: Frame | None = self.cache.get(key)
        if found is None:
            found = Frame(self.world, rows, self.parts, self.candidates, self.subject)
            self.cache[key] = found
        return found

    def of_table(self, table: str) -> "Frame":
        """Returns the frame of the same rows with other pods."""
        key = ("table", table)
        found: Frame | None = self.cache.get(key)
        if found is None:
            world = self.world.pod_table(table)
            found = Frame(world, self.rows, self.parts, self.candidates, self.subject)
            self.cache[key] = found
        return found

    def all_nodes(self) -> Rows:
        """Returns the rows that hold a node."""
        rows: Rows | None = self.cache.get("nodes")
        if rows is None:
            present = self.world.present
            full = bool(present.all())
            rows = slice(0, self.world.nodes) if full else np.flatnonzero(present)
            self.cache["nodes"] = rows
        return rows

    def candidate_frame(self, over: str) -> "Frame":
        """Returns the frame of the candidates (or of all nodes)."""
        if over == "nodes" or self.candidates is None:
            return self.over(self.all_nodes())
        return self.over(self.candidates)

    def pods(self) -> tuple[Pods, NDArray[np.intp]]:
        """Returns the pod rows on this frame's nodes, and where in `rows` their node stands."""
        if self._pods is None or self._group is None:
            self._pods, self._group = self._find_pods()
        return self._pods, self._group

    def _find_pods(self) -> tuple[Pods, NDArray[np.intp]]:
        pod_node = self.world.pod_node
        rows = self.rows
        if isinstance(rows, slice):
            return running(self.world)
        if len(rows) == 1:
            here = np.flatnonzero(pod_node == rows[0])
            return here, np.zeros(len(here), np.intp)
        place = np.full(self.world.nodes + 1, -1, np.intp)
        place[rows] = np.arange(len(rows))
        group = place[pod_node]
        here = np.flatnonzero(group >= 0)
        return here, group[here]


def running(world: World) -> tuple[Pods, NDArray[np.intp]]:
    """Returns all used pod rows and the node row of each."""
    pod_node = world.pod_node
    used = pod_node >= 0
    if bool(used.all()):
        return ALL, pod_node.astype(np.intp)
    here = np.flatnonzero(used)
    return here, pod_node[here].astype(np.intp)
