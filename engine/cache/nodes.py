"""Nodes as columns: API objects and sums over their pods in, `framework.snapshot.NodeColumns` out.

Knows nothing of who is scheduled or why; `cache.Cache` is its only writer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.cache.columns import Column, RowAllocator, TextDictionary
from engine.framework.podinfo import CPU, MEMORY, PodInfo
from engine.framework.snapshot import BoolColumn, CodeColumn, FloatColumn, IntColumn
from engine.objects import Node, Taint
from engine.quantity import resource_amount, wrap_int64

_NO_TAINTS: tuple[Taint, ...] = ()


class _Resource:
    """The columns of one resource."""

    __slots__ = ("allocatable", "capacity", "named", "requested")

    def __init__(self, capacity: int) -> None:
        self.allocatable = Column(np.int64, capacity)
        self.capacity = Column(np.int64, capacity)
        self.named = Column(np.bool_, capacity)
        self.requested = Column(np.int64, capacity)

    def columns(self) -> tuple[Column, ...]:
        return self.allocatable, self.capacity, self.named, self.requested


class NodeTable:
    """One row a node; see `NodeColumns` for what readers may ask."""

    def __init__(self, dictionary: TextDictionary) -> None:
        self._dictionary = dictionary
        self._rows = RowAllocator()
        self._row_of: dict[str, int] = {}
        self._nodes: list[Node | None] = []
        capacity = self._rows.capacity
        self._present = Column(np.bool_, capacity)
        self._unschedulable = Column(np.bool_, capacity)
        self._pod_count = Column(np.int64, capacity)
        self._nonzero_cpu = Column(np.int64, capacity)
        self._nonzero_memory = Column(np.int64, capacity)
        self._taint_set = Column(np.int32, capacity)
        self._tie_keys = Column(np.uint64, capacity)
        self._names = Column(np.int32, capacity, -1)
        self._resources = {CPU: _Resource(capacity), MEMORY: _Resource(capacity)}
        self._taint_sets: list[tuple[Taint, ...]] = [_NO_TAINTS]
        self._taint_set_of: dict[tuple[Taint, ...], int] = {_NO_TAINTS: 0}
        self._derived: dict[str, tuple[Column, Callable[[Node], object]]] = {}

    # ---- readers (NodeColumns) -------------------------------------------------------------

    @property
    def size(self) -> int:
        """See `NodeColumns.size`."""
        return self._rows.size

    @property
    def count(self) -> int:
        """How many nodes there are."""
        return len(self._row_of)

    @property
    def present(self) -> BoolColumn:
        """See `NodeColumns.present`."""
        return self._present.view(self._rows.size)

    @property
    def pod_count(self) -> IntColumn:
        """See `NodeColumns.pod_count`."""
        return self._pod_count.view(self._rows.size)

    @property
    def nonzero_cpu(self) -> IntColumn:
        """See `NodeColumns.nonzero_cpu`."""
        return self._nonzero_cpu.view(self._rows.size)

    @property
    def nonzero_memory(self) -> IntColumn:
        """See `NodeColumns.nonzero_memory`."""
        return self._nonzero_memory.view(self._rows.size)

    @property
    def unschedulable(self) -> BoolColumn:
        """See `NodeColumns.unschedulable`."""
        return self._unschedulable.view(self._rows.size)

    @property
    def taint_set(self) -> CodeColumn:
        """See `NodeColumns.taint_set`."""
        return self._taint_set.view(self._rows.size)

    @property
    def taint_sets(self) -> Sequence[tuple[Taint, ...]]:
        """See `NodeColumns.taint_sets`."""
        return self._taint_sets

    @property
    def tie_keys(self) -> NDArray[np.uint64]:
        """See `NodeColumns.tie_keys`."""
        return self._tie_keys.view(self._rows.size)

    def name_codes(self) -> CodeColumn:
        """See `NodeColumns.name_codes`."""
        return self._names.view(self._rows.size)

    def allocatable(self, resource: str) -> IntColumn:
        """See `NodeColumns.allocatable`."""
        return self._resource(resource).allocatable.view(self._rows.size)

    def capacity(self, resource: str) -> IntColumn:
        """See `NodeColumns.capacity`."""
        return self._resource(resource).capacity.view(self._rows.size)

    def requested(self, resource: str) -> IntColumn:
        """See `NodeColumns.requested`."""
        return self._resource(resource).requested.view(self._rows.size)

    def has_resource(self, resource: str) -> BoolColumn:
        """See `NodeColumns.has_resource`."""
        return self._resource(resource).named.view(self._rows.size)

    def text(self, column: str, of: Callable[[Node], str | None]) -> CodeColumn:
        """See `NodeColumns.text`."""

        def code(node: Node) -> int:
            text = of(node)
            return -1 if text is None else self._dictionary.code(text)

        return self._derive(f"text {column}", np.int32, -1, code)

    def number(self, column: str, of: Callable[[Node], float]) -> FloatColumn:
        """See `NodeColumns.number`."""
        return self._derive(f"number {column}", np.float64, np.nan, of)

    def flag(self, column: str, of: Callable[[Node], bool]) -> BoolColumn:
        """See `NodeColumns.flag`."""
        return self._derive(f"flag {column}", np.bool_, 0, of)

    def row(self, name: str) -> int:
        """See `NodeColumns.row`."""
        return self._row_of.get(name, -1)

    def name(self, row: int) -> str:
        """See `NodeColumns.name`."""
        return self.node(row).metadata.name

    def node(self, row: int) -> Node:
        """See `NodeColumns.node`.

        Raises:
            LookupError: the row holds no node.
        """
        node = self._nodes[row]
        if node is None:
            raise LookupError(f"row {row} holds no node")
        return node

    def names(self) -> list[str]:
        """The names of all nodes, in the order in which they came."""
        return list(self._row_of)

    # ---- writers (Cache) -------------------------------------------------------------------

    def add(self, node: Node) -> int:
        """Gives the node a row and fills it; its pods are added by the caller."""
        row, grow = self._rows.take()
        if grow:
            for column in self._columns():
                column.grow(self._rows.capacity)
        if row == len(self._nodes):
            self._nodes.append(None)
        name = node.metadata.name
        self._row_of[name] = row
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        self._tie_keys.cell[row] = int.from_bytes(digest, "little")
        self._names.cell[row] = self._dictionary.code(name)
        self._present.cell[row] = True
        self.fill(row, node)
        return row

    def fill(self, row: int, node: Node) -> None:
        """Writes what the API object says into its row."""
        self._nodes[row] = node
        self._unschedulable.cell[row] = node.spec.unschedulable
        self._taint_set.cell[row] = self._intern_taints(node.spec.taints or ())
        status = node.status
        # A node without allocatable has its capacity there: API defaulting, which files lack.
        allocatable = status.allocatable if status.allocatable is not None else status.capacity
        for column in self._resources.values():
            column.allocatable.cell[row] = 0
            column.capacity.cell[row] = 0
            column.named.cell[row] = False
        for name, quantity in (allocatable or {}).items():
            column = self._resource(name)
            column.allocatable.cell[row] = resource_amount(name, quantity)
            column.named.cell[row] = True
        for name, quantity in (status.capacity or allocatable or {}).items():
            self._resource(name).capacity.cell[row] = resource_amount(name, quantity)
        for derived, of in self._derived.values():
            derived.cell[row] = of(node)

    def remove(self, name: str) -> int:
        """Frees the node's row; its pods have been taken off before."""
        row = self._row_of.pop(name)
        self._nodes[row] = None
        for column in self._columns():
            column.clear(row)
        self._rows.give_back(row)
        return row

    def add_pod(self, row: int, pod: PodInfo, sign: int) -> None:
        """Adds (sign 1) or takes off (sign -1) a pod's requests."""
        for resource, amount in pod.requests.items():
            cell = self._resource(resource).requested.cell
            cell[row] = wrap_int64(cell[row] + sign * amount)
        for cell, amount in (
            (self._nonzero_cpu.cell, pod.nonzero_cpu),
            (self._nonzero_memory.cell, pod.nonzero_memory),
        ):
            cell[row] = wrap_int64(cell[row] + sign * amount)
        self._pod_count.cell[row] += sign

    # ---- inside ----------------------------------------------------------------------------

    def _columns(self) -> list[Column]:
        columns = [
            self._present,
            self._unschedulable,
            self._pod_count,
            self._nonzero_cpu,
            self._nonzero_memory,
            self._taint_set,
            self._tie_keys,
            self._names,
        ]
        for resource in self._resources.values():
            columns.extend(resource.columns())
        columns.extend(column for column, _ in self._derived.values())
        return columns

    def _resource(self, name: str) -> _Resource:
        resource = self._resources.get(name)
        if resource is None:
            resource = self._resources[name] = _Resource(self._rows.capacity)
        return resource

    def _intern_taints(self, taints: Sequence[Taint]) -> int:
        key = tuple(taints)
        number = self._taint_set_of.get(key)
        if number is None:
            number = self._taint_set_of[key] = len(self._taint_sets)
            self._taint_sets.append(key)
        return number

    def _derive(
        self, name: str, dtype: type, default: object, of: Callable[[Node], object]
    ) -> NDArray[Any]:
        known = self._derived.get(name)
        if known is None:
            column = Column(dtype, self._rows.capacity, default)
            for row in self._row_of.values():
                column.cell[row] = of(self.node(row))
            known = self._derived[name] = column, of
        return known[0].view(self._rows.size)
