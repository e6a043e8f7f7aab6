"""What-if snapshots: the cluster as it would be with a few pods elsewhere.

Never writes to the snapshot below: what is equal is shared, the rest is copied when it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.cache.columns import CodeColumn, IntColumn
from engine.cache.nodes import NodeColumns, PortsOver
from engine.cache.pods import PodColumns
from engine.objects import Node
from engine.pods.podinfo import PodInfo, host_ports
from engine.text.quantity import wrap_int64

Differences = dict[str, dict[int, int]]
"""By what is summed: row -> what is added."""

Moves = Sequence[tuple[int, Sequence[PodInfo], Sequence[PodInfo]]]
"""Rows of nodes, each with the pods that leave it and those that come then."""


class NodesOver(NodeColumns):
    """The nodes, with sums that differ in a few rows."""

    def __init__(
        self, base: NodeColumns, differences: Differences, ports: PortsOver | None = None
    ) -> None:
        # Shares every column of the base.
        self.__dict__.update(base.__dict__)
        self._ports_over = ports
        self._base = base
        self.ports = ports or base.ports
        self._differences = differences
        self._copies: dict[str, IntColumn] = {}

    def with_moves(self, moves: Moves) -> NodesOver:
        """The same with pods taken off rows and added to them."""
        differences = dict(self._differences)
        # Equal pods share their readings: they are added up once a row.
        alike: dict[int, tuple[PodInfo, dict[int, int]]] = {}
        ports = self._ports_over
        for row, remove, add in moves:
            taken = []
            for sign, pods in ((-1, remove), (1, add)):
                for pod in pods:
                    if own := host_ports(pod.pod):
                        taken.append((own, sign))
                    shape = id(pod.readings)
                    _, rows = alike.get(shape) or alike.setdefault(shape, (pod, {}))
                    rows[row] = rows.get(row, 0) + sign
            if taken:
                ports = (ports or PortsOver(self._base.ports, {})).with_pods(row, taken)
        for pod, rows in alike.values():
            once = set(rows.values()) == {1}
            for name, amount in pod.readings.sums.items():
                before = differences.get(name)
                if before is None and once:
                    differences[name] = dict.fromkeys(rows, amount)
                    continue
                before = before or {}
                more = {row: before.get(row, 0) + amount * n for row, n in rows.items()}
                differences[name] = before | more
        return NodesOver(self._base, differences, ports)

    def requested(self, resource: str) -> IntColumn:
        """See `NodeColumns.requested`."""
        column = self._base.requested(resource)
        rows = self._differences.get(resource)
        if not rows:
            return column
        found = self._copies.get(resource)
        if found is None:
            found = self._copies[resource] = column.copy()
            # Sums of 64 bits wrap, as Go's do.
            found[np.fromiter(rows, np.intp, len(rows))] += _wrapped(rows.values())
            found.flags.writeable = False
        return found

    def derived(
        self, name: str, dtype: type, default: object, of: Callable[[Node], object]
    ) -> NDArray[Any]:
        """See `ColumnTable.derived`."""
        return self._base.derived(name, dtype, default, of)


def _wrapped(amounts: Collection[int]) -> IntColumn:
    try:
        return np.fromiter(amounts, np.int64, len(amounts))
    except OverflowError:
        return np.array([*map(wrap_int64, amounts)], dtype=np.int64)


class PodsOver(PodColumns):
    """The pods, some of them hidden and some more behind them."""

    def __init__(
        self,
        base: PodColumns,
        hidden: Collection[int],
        more: Sequence[tuple[PodInfo, int]],
    ) -> None:
        """Lies on `base`, the pods of the cache, whatever was there.

        `hidden` are rows that are taken away, `more` pods behind those of the cache with the rows
        of their nodes.
        """
        self.__dict__.update(base.__dict__)
        self._base = base
        self._hidden = hidden
        self._more = more
        self._copies: dict[str, NDArray[Any]] = {}

    def with_moves(self, moves: Moves) -> PodsOver:
        """The same with pods taken off nodes, and others on them."""
        hidden, more = set(self._hidden), list(self._more)
        for node_row, remove, add in moves:
            for pod in remove:
                row = self._row_of(pod.uid)
                if row in hidden or row < 0 or self._node_of(row) != node_row:
                    raise LookupError(f"pod {pod.key} is not on the node of row {node_row}")
                hidden.add(row)
            more += [(pod, node_row) for pod in add]
        return PodsOver(self._base, hidden, more)

    def _row_of(self, uid: str) -> int:
        for row, (one, _) in enumerate(self._more, self._base.size):
            if one.uid == uid and row not in self._hidden:
                return row
        return self.row(uid)

    def _node_of(self, row: int) -> int:
        first = self._base.size  # `node` would be a copy for each move
        return int(self._base.node[row]) if row < first else self._more[row - first][1]

    @property
    def size(self) -> int:
        """See `PodColumns.size`."""
        return self._base.size + len(self._more)

    @property
    def node(self) -> CodeColumn:
        """See `PodColumns.node`."""
        found = self._copies.get("")
        if found is None:
            of_more = np.array([node_row for _, node_row in self._more], np.int32)
            found = self._copies[""] = np.concatenate((self._base.node, of_more))
            found[list(self._hidden)] = -1
            found.flags.writeable = False
        return found

    def pod(self, row: int) -> PodInfo:
        """See `PodColumns.pod`."""
        first = self._base.size
        return self._base.pod(row) if row < first else self._more[row - first][0]

    def on(self, node_row: int) -> NDArray[np.intp]:
        """See `PodColumns.on`."""
        rows = self._base.on(node_row).tolist()
        first = self._base.size
        rows += [first + i for i, (_, there) in enumerate(self._more) if there == node_row]
        return np.array([row for row in rows if row not in self._hidden], np.intp)

    def derived(
        self, name: str, dtype: type, default: object, of: Callable[[PodInfo], object]
    ) -> NDArray[Any]:
        """See `ColumnTable.derived`."""
        column = self._base.derived(name, dtype, default, of)
        if not self._more:
            return column
        found = self._copies.get(name)
        if found is None:
            of_more = np.array([of(pod) for pod, _ in self._more], column.dtype)
            found = self._copies[name] = np.concatenate((column, of_more))
            found.flags.writeable = False
        return found
