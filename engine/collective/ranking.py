"""The pods of every node, the most important first, as a matrix that follows the cluster.

Says only who comes before whom; what for is said by whoever asks. Of one cluster: all snapshots
must be of the same cache, and what-if snapshots are not for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.framework.snapshot import PodColumns, Snapshot

Numbers = NDArray[Any]
Columns = Callable[[PodColumns], Sequence[Numbers]]
"""(P,) columns, the first the most important; smaller values come first."""
Reads = Callable[[PodColumns, NDArray[np.intp]], Numbers]
"""A number of each of some pods, by their rows."""
_MANY = 64
_FEW_NODES = 1 << 15


class Ranking:
    """(K, N) rows of pods by node, -1 beyond the last, and numbers of these pods.

    Brought up to a snapshot by the nodes that changed. A pod's row is another one once one of
    another node went; that shows, as its old row is of another node then, or of none.
    """

    def __init__(self, order: Columns) -> None:
        self._order = order
        self._layout = self._generation = -1
        self.table: NDArray[np.intp] = np.empty((0, 0), dtype=np.intp)
        self._values: dict[str, Numbers] = {}
        self._of: dict[str, Reads] = {}

    @classmethod
    def given(cls, snapshot: Snapshot, rows: NDArray[np.intp]) -> Ranking:
        """Some pods, the most important first, for one question: it does not follow the cluster."""
        place = np.zeros(snapshot.pods.size, np.intp)
        place[rows] = np.arange(len(rows))
        made = cls(lambda _: (place,))
        made.table = np.full((0, snapshot.nodes.size), -1, dtype=np.intp)
        made._fill(snapshot, np.arange(snapshot.nodes.size), rows[snapshot.pods.node[rows] >= 0])
        return made

    def sync(self, snapshot: Snapshot) -> None:
        """Catches up."""
        pods = snapshot.pods
        changed = None
        if self._layout == snapshot.layout:
            changed = snapshot.changes_since(self._generation)
        self._layout, self._generation = snapshot.layout, snapshot.generation
        if changed is None or self.table.shape[1] != snapshot.nodes.size:
            self._rebuild(snapshot)
            return
        rows = np.zeros(snapshot.nodes.size, dtype=np.bool_)
        rows[changed[0]] = True
        if pods.size:
            place = np.minimum(self.table, pods.size - 1)
            wrong = (pods.node[place] != np.arange(len(rows))) | (place != self.table)
            rows |= (wrong & (self.table >= 0)).any(axis=0)
        few = np.flatnonzero(rows)
        if len(few) > _MANY:
            self._fill(snapshot, few, np.flatnonzero(rows[pods.node] & (pods.node >= 0)))
        elif len(few):
            there = np.concatenate([pods.on(row) for row in few.tolist()])
            self._fill(snapshot, few, there)

    def values(self, name: str, of: Reads, pods: PodColumns) -> Numbers:
        """(K, N) a number of each pod, 0 beyond the last. A name always has the same function."""
        found = self._values.get(name)
        if found is None:
            self._of[name] = of
            found = self._values[name] = _read(of, pods, self.table)
        return found

    def keys(self, pods: PodColumns, rows: NDArray[np.intp]) -> list[NDArray[Any]]:
        """What some pods are ranked by, the first first."""
        return [one[rows] for one in self._order(pods)]

    def forget(self, name: str) -> None:
        """Drops these numbers."""
        self._values.pop(name, None)
        self._of.pop(name, None)

    def _rebuild(self, snapshot: Snapshot) -> None:
        self.table = np.full((0, snapshot.nodes.size), -1, dtype=np.intp)
        self._values = {
            name: np.zeros_like(self.table, dtype=one.dtype) for name, one in self._values.items()
        }
        there = np.flatnonzero(snapshot.pods.node >= 0)
        self._fill(snapshot, np.arange(snapshot.nodes.size), there)

    def _fill(self, snapshot: Snapshot, rows: NDArray[np.intp], there: NDArray[np.intp]) -> None:
        pods = snapshot.pods
        node = pods.node[there]
        keys = self.keys(pods, there)
        # 16 bits are sorted by counting.
        code = node.astype(np.int16) if snapshot.nodes.size <= _FEW_NODES else node
        sort = np.lexsort((*reversed(keys), code))
        there, node = there[sort], node[sort]
        first = np.zeros(snapshot.nodes.size, np.intp)
        first[rows] = np.searchsorted(node, rows)
        rank = np.arange(len(there)) - first[node]
        self._grow(int(rank.max(initial=-1)) + 1)
        self.table[:, rows] = -1
        self.table[rank, node] = there
        for name, matrix in self._values.items():
            matrix[:, rows] = _read(self._of[name], pods, self.table[:, rows])

    def _grow(self, height: int) -> None:
        more = height - len(self.table)
        if more > 0:
            self.table = np.pad(self.table, ((0, more), (0, 0)), constant_values=-1)
            self._values = {
                name: np.pad(one, ((0, more), (0, 0))) for name, one in self._values.items()
            }


def _read(of: Reads, pods: PodColumns, table: NDArray[np.intp]) -> Numbers:
    there = table >= 0
    read = of(pods, table[there])
    found = np.zeros(table.shape, dtype=read.dtype)
    found[there] = read
    return found
