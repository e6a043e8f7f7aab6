"""Assigned pods as columns, written by `cache.Cache` alone."""

from __future__ import annotations

from array import array
from bisect import insort
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.cache.columns import (
    FIRST_CAPACITY,
    TEXT,
    CodeColumn,
    Column,
    ColumnTable,
    Derived,
    Dictionary,
    IntColumn,
)
from engine.cache.podkinds import Kinds
from engine.pods.podinfo import PodInfo
from engine.pods.selectors import EVERYTHING, Selector

_DERIVED_BYTES: Final = 128 << 20
_MOST_BEHIND: Final = 256
_PODS_A_STEP: Final = 2048
_COUNTED_A_STEP: Final = 128
_OF_NAMESPACES: Final = "of its namespace: "


class Ledger(Protocol):
    """Sums over the pods that have a node (known or not), from assumed to deleted."""

    @property
    def of_namespaces(self) -> bool:
        """Whether it depends on pods' namespaces; then their pods are counted again with them."""
        ...

    def count(self, pod: PodInfo, sign: int) -> None:
        """A pod was added (1) or removed (-1)."""
        ...


class _Partly:
    """A ledger of which not all pods are counted yet; those that are not may go uncounted."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.of_namespaces = ledger.of_namespaces
        self.counted: set[str] = set()

    def count(self, pod: PodInfo, sign: int) -> None:
        if sign > 0:
            self.counted.add(pod.uid)
        elif pod.uid in self.counted:
            self.counted.discard(pod.uid)
        else:
            return
        self.ledger.count(pod, sign)


class PodColumns(ColumnTable[PodInfo]):
    """A row for each pod that is bound or assumed and not finished.

    The reading half; `PodTable` writes.

    Rows stay dense: the last one moves to where one was removed, so that a pass over all pods skips
    none.
    """

    def __init__(self, dictionary: Dictionary) -> None:
        self.dictionary = dictionary
        self._capacity = FIRST_CAPACITY
        self._pods: list[PodInfo] = []
        self._by_uid: dict[str, int] = {}
        self.row_of: Mapping[str, int] = self._by_uid
        """UID -> row; see `row`."""
        self._node = Column(np.int32, self._capacity, -1)
        self._kinds = Kinds()
        self._kind = Column(np.int32, self._capacity, -1)
        self._on: dict[int, array[int]] = {}
        """Node row -> the rows of its pods, ascending."""
        self._derived: Derived[PodInfo] = Derived(_DERIVED_BYTES)
        self._unmade: dict[str, tuple[Column, Callable[[PodInfo], object]]] | None = None
        """While `prepare` asks: the columns that are not there."""
        self._settled = 0
        """How many rows are written, but for their node: of pods that came since, many at once."""
        self._ledgers: dict[str, Ledger] = {}
        self._asked: set[str] = set()
        """The ledgers that were asked for since the rules last changed."""

    @property
    def size(self) -> int:
        """P: the length of every column."""
        return len(self._pods)

    @property
    def node(self) -> CodeColumn:
        """(P,) row of the pod's node, -1 where the row is unused."""
        return self._node.view(len(self._pods))

    @property
    def priority(self) -> IntColumn:
        """(P,) spec.priority."""
        return self.derived("priority", np.int64, 0, lambda pod: pod.pod.spec.priority or 0)

    def row(self, uid: str) -> int:
        """The row of a pod, -1 if there is none; of a what-if snapshot as things are."""
        return self._by_uid.get(uid, -1)

    def pod(self, row: int) -> PodInfo:
        """The pod of a used row.

        Raises:
            LookupError: there is no such row.
        """
        return self._pods[row]

    def on(self, node_row: int) -> NDArray[np.intp]:
        """The rows of the pods on a node, ascending. Linear in their number."""
        self._settle()
        return np.array(self._on.get(node_row, ()), np.intp)

    def request(self, resource: str) -> IntColumn:
        """(P,) the pod's effective request of the resource."""
        return self.derived(
            f"request {resource}", np.int64, 0, lambda pod: pod.readings.requests.get(resource, 0)
        )

    def namespace_text(self, column: str, of: Callable[[PodInfo], str | None]) -> CodeColumn:
        """(P,) like `text`, of a text that depends on the pod's namespace; follows its changes."""
        return self.text(f"{_OF_NAMESPACES}{column}", of)

    def ledger(self, name: str, make: Callable[[], Ledger]) -> Ledger:
        """Sums over pods, made on first use and kept up to date; one name is for one ledger.

        A what-if snapshot returns the sums of the cluster.
        """
        self._asked.add(name)
        found = self._ledgers.get(name)
        if found is None:
            found = self._ledgers[name] = make()
            for pod in self._pods:
                found.count(pod, 1)
        return found

    def prepare_ledger(self, name: str, make: Callable[[], Ledger]) -> Iterator[None]:
        """`ledger` in steps, between which pods may come, change and go, and rules, too."""
        self._asked.add(name)
        if name in self._ledgers:
            return
        partly, own_name = _Partly(make()), f"{name}, not all of it"
        self._ledgers[own_name] = partly
        try:
            # From the end: the last pod takes the place of one that goes, and must be known.
            for first in reversed(range(0, len(self._pods), _COUNTED_A_STEP)):
                for pod in self._pods[first : first + _COUNTED_A_STEP]:
                    if pod.uid not in partly.counted:
                        partly.count(pod, 1)
                yield
        finally:
            is_kept = self._ledgers.get(own_name) is partly
            if is_kept:
                del self._ledgers[own_name]
        if is_kept:
            self._ledgers.setdefault(name, partly.ledger)
            self._asked.add(name)

    def prepare(self, ask: Callable[[], object]) -> Iterator[None]:
        """Makes the columns that `ask` reads in steps, between which pods may come, change and go.

        `ask` itself may find no more in them than their defaults.
        """
        unmade: dict[str, tuple[Column, Callable[[PodInfo], object]]] = {}
        self._unmade = unmade
        try:
            ask()
        finally:
            self._unmade = None
        for name, (column, of) in unmade.items():
            yield from self._make(name, column, of)

    def _make(self, name: str, column: Column, of: Callable[[PodInfo], object]) -> Iterator[None]:
        if self._derived.get(name) is not None:
            return
        partly = f"{name}, not all of it"
        column.grow(self._capacity)
        self._settle()
        self._derived.put(partly, column, of)  # follows changes from now on
        try:
            # From the end: the last pod takes the place of one that goes, and must be known.
            for first in reversed(range(0, len(self._pods), _PODS_A_STEP)):
                some = self._pods[first : first + _PODS_A_STEP]
                column.fill(map(of, some), len(some), first)
                yield
        finally:
            there = self._derived.drop(partly, column)
        if there:
            self._derived.put(name, column, of)

    def _settle(self) -> None:
        first, size = self._settled, len(self._pods)
        if first == size:
            return
        self._settled, came = size, self._pods[first:]
        self._kind.fill(map(self._kinds.take, came), len(came), first)
        self._place(first, self._node.cell[first:size].tolist())
        self._derived.write(lambda column, of: column.fill(map(of, came), len(came), first))

    def _place(self, first: int, node_rows: Sequence[int]) -> None:
        on = self._on
        for row, node_row in enumerate(node_rows, first):
            if node_row >= 0:
                there = on.get(node_row)
                if there is None:
                    on[node_row] = array("q", (row,))
                elif there[-1] < row:
                    there.append(row)
                else:
                    insort(there, row)


class PodTable(PodColumns):
    """`PodColumns` for the cache, which alone writes, with what only the cache asks."""

    def node_row(self, row: int) -> int:
        """The row of the node of one pod, -1 if its node is not known."""
        found: int = self._node.cell[row]
        return found

    def counted(
        self, namespaces: Collection[str] | None, selector: Selector, *, terminating: bool
    ) -> dict[int, int]:
        """How many of these pods are on each node row; see `Topology.pod_set`."""
        rows = self.node[self._rows_of(namespaces, selector, terminating=terminating)]
        there, counts = np.unique(rows[rows >= 0], return_counts=True)
        return dict(zip(there.tolist(), counts.tolist(), strict=True))

    def _rows_of(
        self, namespaces: Collection[str] | None, selector: Selector, *, terminating: bool
    ) -> NDArray[np.intp]:
        self._settle()
        kinds = self._kinds.matching(namespaces, selector, terminating=terminating)
        if kinds is None:
            return np.empty(0, np.intp)
        return np.flatnonzero(kinds[self._kind.view(self.size)])

    def forget_ledgers(self) -> None:
        """Rules have changed: drops the sums that nobody asked for since they last did."""
        for name in self._ledgers.keys() - self._asked:
            if not isinstance(self._ledgers[name], _Partly):  # it ends with its steps
                del self._ledgers[name]
        self._asked.clear()

    def add(self, pod: PodInfo, node_row: int) -> None:
        """Gives the pod a row."""
        row = len(self._pods)
        if row == self._capacity:
            self._capacity += self._capacity // 4
            for column in self._columns():
                column.grow(self._capacity)
        self._pods.append(pod)
        self._by_uid[pod.uid] = row
        self._node.cell[row] = node_row
        if row - self._settled >= _MOST_BEHIND:
            self._settle()
        for ledger in self._ledgers.values():
            ledger.count(pod, 1)

    def fill(self, row: int, pod: PodInfo, node_row: int) -> bool:
        """Writes what the pod is now into its row; a node row of -1 hides it from every count.

        True if something else is read of it now than of what was there.
        """
        before, self._pods[row] = self._pods[row], pod
        if before is not pod:
            for ledger in self._ledgers.values():
                ledger.count(before, -1)
                ledger.count(pod, 1)
        self.move(row, node_row)
        if row >= self._settled:
            return False
        if before is not pod:
            kind: int = self._kind.cell[row]
            self._kind.cell[row] = self._kinds.take(pod)
            self._kinds.give_back(kind)
        differs = False

        def write(column: Column, of: Callable[[PodInfo], object]) -> None:
            nonlocal differs
            held = column.cell[row]
            column.cell[row] = of(pod)
            after = column.cell[row]
            # Of two missing numbers neither equals itself.
            differs |= held != after and (held == held or after == after)

        return self._derived.write(write) or differs

    def move(self, row: int, node_row: int) -> None:
        """The pod's node got this row, or -1: it went away."""
        before: int = self._node.cell[row]
        if before == node_row:
            return
        self._node.cell[row] = node_row
        if row >= self._settled:
            return
        if before >= 0:
            there = self._on[before]
            there.remove(row)
            if not there:
                del self._on[before]
        self._place(row, (node_row,))

    def remove(self, row: int) -> None:
        """Frees the row, which the last pod has from now on."""
        self._settle()
        last = len(self._pods) - 1
        gone = self._pods[row]
        del self._by_uid[gone.uid]
        for ledger in self._ledgers.values():
            ledger.count(gone, -1)
        self._kinds.give_back(self._kind.cell[row])
        self.move(row, -1)
        if row != last:
            moved = self._pods[row] = self._pods[last]
            self._by_uid[moved.uid] = row
            node_row: int = self._node.cell[last]
            self.move(last, -1)
            for column in self._columns():
                column.cell[row] = column.cell[last]
            self.move(row, node_row)
        for column in self._columns():
            column.clear(last)
        self._pods.pop()
        self._settled = last

    def count_namespace(self, name: str, sign: int) -> None:
        """Counts the pods of a namespace out (-1) before it changes, and in (1) afterwards.

        Linear in these pods, where a ledger looks at namespaces.
        """
        ledgers = [one for one in self._ledgers.values() if one.of_namespaces]
        if ledgers:
            for row in self._rows_of((name,), EVERYTHING, terminating=True).tolist():
                for ledger in ledgers:
                    ledger.count(self._pods[row], sign)

    def namespace_changed(self, name: str) -> NDArray[np.intp]:
        """Asks again what the pods of a namespace have of it.

        Returns:
            The rows of the nodes with pods for which that is something else now.
        """
        if not self._derived.named(f"{TEXT}{_OF_NAMESPACES}"):
            return np.empty(0, np.intp)
        own = self.text("namespace None", lambda pod: pod.namespace)
        there = np.flatnonzero(own == self.dictionary.find(name))
        otherwise = np.zeros(len(there), np.bool_)

        def write(column: Column, of: Callable[[PodInfo], object]) -> None:
            nonlocal otherwise
            before = column.array[there]
            column.array[there] = [of(self._pods[row]) for row in there.tolist()]
            otherwise |= column.array[there] != before

        if self._derived.write(write, f"{TEXT}{_OF_NAMESPACES}"):
            otherwise[:] = True
        rows = self.node[there[otherwise]]
        return np.unique(rows[rows >= 0]).astype(np.intp)

    def _columns(self) -> list[Column]:
        return [self._node, self._kind, *(column for column, _ in self._derived)]

    def derived(
        self, name: str, dtype: type, default: object, of: Callable[[PodInfo], object]
    ) -> NDArray[Any]:
        """See `ColumnTable.derived`."""
        self._settle()
        known = self._derived.get(name)
        if known is None:
            known = Column(dtype, self._capacity, default)
            if self._unmade is None:
                known.fill(map(of, self._pods), self.size)
                self._derived.put(name, known, of)
            else:
                self._unmade[name] = known, of
        return known.view(len(self._pods))
