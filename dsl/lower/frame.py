"""One evaluation of one rule: which rows, which pod's parts, what was already computed."""

from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from dsl.plan import Results
from dsl.world import Parts, Rows, Subject, World

#: What an expression gives: a Python scalar below node level, else an array.
Value = Any
Run = Callable[["Frame"], Value]
Pods = slice | NDArray[np.intp]
#: The group of each pod: where its node stands, or its domain.
Group = NDArray[np.integer[Any]]

ALL: Final = slice(None)
NO_ROWS: Final = slice(0)
#: Up to how many rows are asked about one by one; more are a full pass.
FEW: Final = 16
_NONE: Final = np.empty(0, np.intp)
NO_RESULTS: Final[Results] = {}


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
        group = place[self.world.pod_node]
        here = np.flatnonzero(group >= 0)
        return here, group[here]


def once(name: object, make: Run) -> Run:
    """Returns what is asked once in an evaluation."""

    def read(frame: Frame) -> Value:
        found = frame.cache.get(name, frame)  # which is no value
        if found is frame:
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
