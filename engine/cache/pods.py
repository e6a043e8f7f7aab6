"""Assigned pods as columns: `framework.snapshot.PodColumns`, written by `cache.Cache` alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.cache.columns import Column, RowAllocator, TextDictionary
from engine.framework.podinfo import PodInfo
from engine.framework.snapshot import BoolColumn, CodeColumn, FloatColumn, IntColumn


class PodTable:
    """One row a pod that is bound or assumed and not finished; see `PodColumns`."""

    def __init__(self, dictionary: TextDictionary) -> None:
        self._dictionary = dictionary
        self._rows = RowAllocator()
        self._pods: list[PodInfo | None] = []
        self._node = Column(np.int32, self._rows.capacity, -1)
        self._priority = Column(np.int64, self._rows.capacity)
        self._on: dict[int, set[int]] = {}
        self._derived: dict[str, tuple[Column, Callable[[PodInfo], object]]] = {}

    @property
    def size(self) -> int:
        """See `PodColumns.size`."""
        return self._rows.size

    @property
    def node(self) -> CodeColumn:
        """See `PodColumns.node`."""
        return self._node.view(self._rows.size)

    @property
    def watched(self) -> bool:
        """True if a rule reads more of the pods than their requests and priority."""
        return bool(self._derived)

    @property
    def priority(self) -> IntColumn:
        """See `PodColumns.priority`."""
        return self._priority.view(self._rows.size)

    def pod(self, row: int) -> PodInfo:
        """See `PodColumns.pod`.

        Raises:
            LookupError: the row is unused.
        """
        pod = self._pods[row]
        if pod is None:
            raise LookupError(f"row {row} holds no pod")
        return pod

    def on(self, node_row: int) -> NDArray[np.intp]:
        """See `PodColumns.on`."""
        return np.array(sorted(self._on.get(node_row, ())), np.intp)

    def request(self, resource: str) -> IntColumn:
        """See `PodColumns.request`."""
        return self._derive(
            f"request {resource}", np.int64, 0, lambda pod: pod.requests.get(resource, 0)
        )

    def number(self, column: str, of: Callable[[PodInfo], float]) -> FloatColumn:
        """See `PodColumns.number`."""
        return self._derive(f"number {column}", np.float64, np.nan, of)

    def text(self, column: str, of: Callable[[PodInfo], str | None]) -> CodeColumn:
        """See `PodColumns.text`."""

        def code(pod: PodInfo) -> int:
            text = of(pod)
            return -1 if text is None else self._dictionary.code(text)

        return self._derive(f"text {column}", np.int32, -1, code)

    def flag(self, column: str, of: Callable[[PodInfo], bool]) -> BoolColumn:
        """See `PodColumns.flag`."""
        return self._derive(f"flag {column}", np.bool_, 0, of)

    def add(self, pod: PodInfo, node_row: int) -> int:
        """Gives the pod a row."""
        row, grow = self._rows.take()
        if grow:
            for column in self._columns():
                column.grow(self._rows.capacity)
        if row == len(self._pods):
            self._pods.append(None)
        self.fill(row, pod, node_row)
        return row

    def fill(self, row: int, pod: PodInfo, node_row: int) -> None:
        """Writes the pod into its row; a node row of -1 hides it from every count."""
        self._pods[row] = pod
        self.move(row, node_row)
        self._priority.cell[row] = pod.priority
        for column, of in self._derived.values():
            column.cell[row] = of(pod)

    def move(self, row: int, node_row: int) -> None:
        """The pod's node got this row, or -1: it went away."""
        before: int = self._node.cell[row]
        if before == node_row:
            return
        self._node.cell[row] = node_row
        if before >= 0:
            self._on[before].discard(row)
        if node_row >= 0:
            self._on.setdefault(node_row, set()).add(row)

    def remove(self, row: int) -> None:
        """Frees the row."""
        self.move(row, -1)
        self._pods[row] = None
        for column in self._columns():
            column.clear(row)
        self._rows.give_back(row)

    def _columns(self) -> list[Column]:
        return [self._node, self._priority, *(column for column, _ in self._derived.values())]

    def _derive(
        self, name: str, dtype: type, default: object, of: Callable[[PodInfo], object]
    ) -> NDArray[Any]:
        known = self._derived.get(name)
        if known is None:
            column = Column(dtype, self._rows.capacity, default)
            for row, pod in enumerate(self._pods):
                if pod is not None:
                    column.cell[row] = of(pod)
            known = self._derived[name] = column, of
        return known[0].view(self._rows.size)
