"""Nodes as columns: API objects and sums over their pods in, what plugins read of them out.

Knows nothing of who is scheduled or why; `cache.Cache` is its only writer.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.cache.columns import (
    FIRST_CAPACITY,
    BoolColumn,
    CodeColumn,
    Column,
    ColumnTable,
    Derived,
    Dictionary,
    IntColumn,
)
from engine.objects import ContainerImage, Node, ResourceList, Taint
from engine.pods.podinfo import (
    ANY_ADDRESS,
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    NONZERO_CPU,
    NONZERO_MEMORY,
    PODS,
    PODS_THERE,
    HostPort,
    PodInfo,
    host_ports,
    taken,
)
from engine.text.quantity import resource_amount, wrap_int64

_NO_PORTS: Final[frozenset[HostPort]] = frozenset()


class Ports:
    """Ports of nodes that pods took, by row and by port.

    A set and no count, as kube-scheduler has it: of two pods with one port on a node, which only
    others could have put there, the first to go frees it.
    """

    def __init__(self) -> None:
        self._of: dict[int, set[HostPort]] = {}
        self._rows: dict[tuple[str, int], dict[str, set[int]]] = {}

    def of(self, row: int) -> frozenset[HostPort]:
        """What is in use on a node."""
        return frozenset(self._of.get(row, _NO_PORTS))

    def rows(self, wanted: HostPort) -> set[int]:
        """The rows where the port cannot be had; 0.0.0.0 is in the way of every address."""
        address, protocol, number = wanted
        by_address = self._rows.get((protocol, number), {})
        if address == ANY_ADDRESS:
            return set().union(*by_address.values())
        return by_address.get(ANY_ADDRESS, set()) | by_address.get(address, set())


class PortTable(Ports):
    """`Ports` for `NodeTable`, which alone writes."""

    def add(self, row: int, ports: Iterable[HostPort]) -> None:
        """A pod came that takes them."""
        for address, protocol, number in ports:
            self._of.setdefault(row, set()).add((address, protocol, number))
            by_address = self._rows.setdefault((protocol, number), {})
            by_address.setdefault(address, set()).add(row)

    def remove(self, row: int, ports: Iterable[HostPort]) -> None:
        """A pod went that took them."""
        for port in ports:
            here = self._of.get(row)
            if here is None or port not in here:
                continue
            here.discard(port)
            if not here:
                del self._of[row]
            address, protocol, number = port
            by_address = self._rows[protocol, number]
            by_address[address].discard(row)
            if not by_address[address]:
                del by_address[address]
            if not by_address:
                del self._rows[protocol, number]

    def clear(self, row: int) -> None:
        """The node is gone."""
        self.remove(row, self.of(row))


class PortsOver(Ports):
    """The same with other ports in use on a few nodes."""

    def __init__(self, base: Ports, differing: Mapping[int, frozenset[HostPort]]) -> None:
        self._base = base
        self._differing = differing

    def of(self, row: int) -> frozenset[HostPort]:
        """See `Ports.of`."""
        found = self._differing.get(row)
        return self._base.of(row) if found is None else found

    def rows(self, wanted: HostPort) -> set[int]:
        """See `Ports.rows`."""
        rows = self._base.rows(wanted) - self._differing.keys()
        return rows | {row for row, used in self._differing.items() if taken(wanted, used)}

    def with_pods(self, row: int, pods: Iterable[tuple[frozenset[HostPort], int]]) -> PortsOver:
        """The same with ports taken (1) or given back (-1) on a node."""
        used = self.of(row)
        for ports, sign in pods:
            used = used | ports if sign > 0 else used - ports
        return PortsOver(self._base, {**self._differing, row: used})


class Image:
    """One name: its size, where it is, and a number that changes with either."""

    __slots__ = ("_array", "_rows", "size", "version")

    def __init__(self, size: int) -> None:
        self.size = size
        self.version = 0
        self._rows: set[int] = set()
        self._array: NDArray[np.intp] | None = None

    @property
    def count(self) -> int:
        """How many nodes have it."""
        return len(self._rows)

    @property
    def rows(self) -> NDArray[np.intp]:
        """The rows of the nodes that have it, ascending."""
        if self._array is None:
            self._array = np.array(sorted(self._rows), dtype=np.intp)
        return self._array

    def change(self, row: int, version: int, *, there: bool) -> None:
        """It is there from now on, or is no longer; for `ImageTable` alone."""
        (self._rows.add if there else self._rows.discard)(row)
        self._array, self.version = None, version


class Images:
    """The images of all nodes by name; the size seen first stands for all, as in the original."""

    def __init__(self) -> None:
        self._images: dict[str, Image] = {}
        self._version = 0
        self.find: Callable[[str], Image | None] = self._images.get
        """The image of a full name; None if no node has it."""


class ImageTable(Images):
    """`Images` for `NodeTable`, which alone writes."""

    def replace(
        self, row: int, before: Sequence[ContainerImage], after: Sequence[ContainerImage]
    ) -> None:
        """The node of the row has these images instead of those."""
        if before == after:
            return
        self._version += 1
        for images, there in ((before, False), (after, True)):
            for image in images:
                for name in image.names or ():
                    known = self._images.setdefault(name, Image(image.size_bytes))
                    known.change(row, self._version, there=there)
                    if not known.count:
                        del self._images[name]


_NO_TAINTS: Final[tuple[Taint, ...]] = ()
_Amounts = tuple[ResourceList, ResourceList]
_ALWAYS: Final = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
_MORE_SUMS: Final = (PODS_THERE, NONZERO_CPU, NONZERO_MEMORY)
_NONE: Final[_Amounts] = {}, {}
_ALLOCATABLE: Final = 0
_REQUESTED: Final = 1
_NO_ROWS: Final[tuple[dict[int, int], dict[int, int]]] = {}, {}

_DERIVED_BYTES: Final = 64 << 20
_FEW_SETS: Final = 64
MOST_RESOURCES: Final = 64
"""How many resources have columns; the others are counted in dictionaries."""


class NodeColumns(ColumnTable[Node]):
    """A row for each node. Amounts are milli-cores for cpu, bytes for memory, counts otherwise.

    The reading half; `NodeTable` writes. A resource has columns while a node names it. Resources
    that only pods on nodes request, and those beyond MOST_RESOURCES, are kept by row; those that
    only waiting pods request are not kept.
    """

    def __init__(self, dictionary: Dictionary) -> None:
        self.dictionary = dictionary
        self._row_of: dict[str, int] = {}
        self._nodes: list[Node | None] = []
        self.layout = 0
        """See `Snapshot.layout`."""
        self._capacity = capacity = FIRST_CAPACITY
        self._free: list[int] = []
        """Rows whose node is gone: they are used again first."""
        self._ports = PortTable()
        self.ports: Ports = self._ports
        """Ports of the nodes that are taken."""
        self._images = ImageTable()
        self.images: Images = self._images
        """The images that nodes have."""
        self._present = Column(np.bool_, capacity)
        self._unschedulable = Column(np.bool_, capacity)
        self._taint_set = Column(np.int32, capacity)
        self._tie_keys = Column(np.uint64, capacity)
        self._names = Column(np.int32, capacity, -1)
        self._allocatable = {name: Column(np.int64, capacity) for name in _ALWAYS}
        # Sums over the pods of a node: of each resource with columns, and more.
        self._sums = {name: Column(np.int64, capacity) for name in (*_MORE_SUMS, *_ALWAYS)}
        self._dense = self._allocatable, self._sums
        # Of a resource without columns the same two, by row, where there is any.
        self._sparse: dict[str, tuple[dict[int, int], dict[int, int]]] = {}
        # How many nodes name a resource; one more for those that always have columns.
        self._naming = Counter(_ALWAYS)
        self._taint_sets = [_NO_TAINTS]
        self.taint_sets: Sequence[tuple[Taint, ...]] = self._taint_sets
        """Every distinct list of taints seen; index 0 is the empty one."""
        self._taint_set_of: dict[tuple[Taint, ...], int] = {_NO_TAINTS: 0}
        self._derived: Derived[Node] = Derived(_DERIVED_BYTES)

    @property
    def size(self) -> int:
        """N: the length of every column. Rows without a node have `present` False."""
        return len(self._nodes)

    @property
    def count(self) -> int:
        """How many nodes there are."""
        return len(self._row_of)

    @property
    def present(self) -> BoolColumn:
        """(N,) the row holds a node."""
        return self._present.view(len(self._nodes))

    @property
    def pod_count(self) -> IntColumn:
        """(N,) pods bound or assumed, not finished."""
        return self.requested(PODS_THERE)

    @property
    def unschedulable(self) -> BoolColumn:
        """(N,) cordoned."""
        return self._unschedulable.view(len(self._nodes))

    @property
    def taint_set(self) -> CodeColumn:
        """(N,) index into `taint_sets`."""
        return self._taint_set.view(len(self._nodes))

    @property
    def tie_keys(self) -> NDArray[np.uint64]:
        """(N,) a hash of the node's name, the raw material of seeded ties."""
        return self._tie_keys.view(len(self._nodes))

    def name_codes(self) -> CodeColumn:
        """(N,) dictionary code of the node's name."""
        return self._names.view(len(self._nodes))

    def allocatable(self, resource: str) -> IntColumn:
        """(N,) amount of the resource, 0 where the node does not have it."""
        known = self._allocatable.get(resource)
        if known is None:
            return self._of_rows(_ALLOCATABLE, resource)
        return known.view(len(self._nodes))

    def capacity(self, resource: str) -> IntColumn:
        """(N,) status.capacity of the resource."""
        if resource not in self._naming:
            return np.zeros(self.size, np.int64)
        name = f"capacity {resource}"
        return self.derived(name, np.int64, 0, lambda node: _amount(resource, _amounts(node)[1]))

    def requested(self, resource: str) -> IntColumn:
        """(N,) sum of the requests of the node's pods; also of `NONZERO_CPU` and the like."""
        known = self._sums.get(resource)
        if known is None:
            return self._of_rows(_REQUESTED, resource)
        return known.view(len(self._nodes))

    def has_resource(self, resource: str) -> BoolColumn:
        """(N,) the node's allocatable names the resource."""
        if resource not in self._naming:
            return np.zeros(self.size, np.bool_)
        return self.flag(f"has {resource}", lambda node: resource in _amounts(node)[0])

    def names_resource(self, resource: str) -> bool:
        """Whether any node names the resource, even with an amount of 0."""
        return resource in self._naming

    def row(self, name: str) -> int:
        """The row of the node, -1 if there is none."""
        return self._row_of.get(name, -1)

    def name(self, row: int) -> str:
        """The name of the node in a row that holds one."""
        node = self._nodes[row]
        return node.metadata.name if node is not None else self.node(row).metadata.name

    def node(self, row: int) -> Node:
        """The API object of a row that holds one.

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

    def _of_rows(self, part: int, resource: str) -> IntColumn:
        column = np.zeros(len(self._nodes), np.int64)
        for row, amount in self._sparse.get(resource, _NO_ROWS)[part].items():
            column[row] = amount
        column.flags.writeable = False
        return column


class NodeTable(NodeColumns):
    """`NodeColumns` for the cache, which alone writes."""

    def add(self, node: Node) -> int:
        """Gives the node a row and fills it; its pods are added by the caller."""
        row = self._free.pop() if self._free else len(self._nodes)
        if row == self._capacity:
            self._capacity *= 2
            for column in self._columns():
                column.grow(self._capacity)
        if row == len(self._nodes):
            self._nodes.append(None)
        name = node.metadata.name
        self._row_of[name] = row
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        self._tie_keys.cell[row] = int.from_bytes(digest, "little")
        self._names.cell[row] = self.dictionary.code(name)
        self._present.cell[row] = True
        self.fill(row, node)
        self.layout += 1
        return row

    def fill(self, row: int, node: Node) -> None:
        """Writes what the API object says into its row."""
        before, self._nodes[row] = self._nodes[row], node
        self._unschedulable.cell[row] = node.spec.unschedulable
        self._set_taints(row, tuple(node.spec.taints or ()))
        if before is None or _amounts(before) != _amounts(node):
            self._set_amounts(row, _NONE if before is None else _amounts(before), _amounts(node))
        self._images.replace(row, _images(before), _images(node))
        if self._derived.write(lambda column, of: column.fill((of(node),), 1, row)):
            self.layout += 1

    def remove(self, name: str) -> None:
        """Frees the node's row; its pods have been taken off before."""
        row = self._row_of.pop(name)
        self._set_taints(row, _NO_TAINTS)
        self._set_amounts(row, _amounts(self.node(row)), _NONE)
        self._images.replace(row, _images(self._nodes[row]), ())
        self._ports.clear(row)
        for resource in list(self._sparse):
            self._put(_REQUESTED, resource, row, 0)
        self._nodes[row] = None
        for column in self._columns():
            column.clear(row)
        self._free.append(row)
        self.layout += 1

    def add_pod(self, row: int, pod: PodInfo, sign: int) -> None:
        """Adds (sign 1) or takes off (sign -1) a pod's requests."""
        sums = self._sums
        for name, amount in pod.readings.sums.items():
            try:
                sums[name].cell[row] += sign * amount
            except KeyError:
                held = self._sparse.get(name, _NO_ROWS)[_REQUESTED].get(row, 0)
                self._put(_REQUESTED, name, row, wrap_int64(held + sign * amount))
            except ValueError:  # no 64 bits: Go's wrap
                cell = sums[name].cell
                cell[row] = wrap_int64(cell[row] + sign * amount)
        ports = host_ports(pod.pod)
        if ports:
            change = self._ports.add if sign > 0 else self._ports.remove
            change(row, ports)

    def texts(self) -> list[Column]:
        """See `ColumnTable.texts`."""
        return [self._names, *super().texts()]

    def recode(self, dictionary: Dictionary) -> None:
        """See `ColumnTable.recode`."""
        super().recode(dictionary)
        self.layout += 1

    # ---- inside ----------------------------------------------------------------------------

    def _columns(self) -> list[Column]:
        return [
            self._present,
            self._unschedulable,
            self._taint_set,
            self._tie_keys,
            self._names,
            *self._sums.values(),
            *self._allocatable.values(),
            *(column for column, _ in self._derived),
        ]

    # ---- inside: resources -----------------------------------------------------------------

    def _set_amounts(self, row: int, before: _Amounts, after: _Amounts) -> None:
        """Writes what a node has into its row, which has what is `before`."""
        for resource in after[0] | after[1]:
            self._naming[resource] += 1
            if resource not in self._allocatable and len(self._allocatable) < MOST_RESOURCES:
                self._give_columns(resource)
        for resource in before[0] | after[0]:
            self._put(_ALLOCATABLE, resource, row, _amount(resource, after[0]))
        for resource in before[0] | before[1]:
            self._naming[resource] -= 1
            if not self._naming[resource]:
                self._take_columns(resource)

    def _put(self, part: int, resource: str, row: int, amount: int) -> None:
        known = self._dense[part].get(resource)
        if known is not None:
            known.cell[row] = amount
            return
        sparse = self._sparse.setdefault(resource, ({}, {}))
        sparse[part].pop(row, None)
        if amount:
            sparse[part][row] = amount
        elif not any(sparse):
            del self._sparse[resource]
        if resource in self._naming:
            self.layout += 1  # who keeps the column keeps a copy

    def _give_columns(self, resource: str) -> None:
        sparse = self._sparse.pop(resource, ({}, {}))
        for columns, rows in zip(self._dense, sparse, strict=True):
            column = columns[resource] = Column(np.int64, self._capacity)
            for row, amount in rows.items():
                column.cell[row] = amount
        self.layout += 1

    def _take_columns(self, resource: str) -> None:
        del self._naming[resource]
        if self._allocatable.pop(resource, None) is not None:
            requested = self._sums.pop(resource).view(len(self._nodes))
            for row in np.flatnonzero(requested).tolist():
                self._put(_REQUESTED, resource, row, int(requested[row]))
            self.layout += 1

    # ---- inside: taints --------------------------------------------------------------------

    def _set_taints(self, row: int, taints: tuple[Taint, ...]) -> None:
        """Numbers are given once; when most have no node, all are given anew in another list."""
        number = self._taint_set_of.get(taints)
        if number is None:
            number = self._taint_set_of[taints] = len(self.taint_sets)
            self._taint_sets.append(taints)
        self._taint_set.cell[row] = number
        if len(self.taint_sets) > _FEW_SETS + 2 * len(self._row_of):
            self.taint_sets = self._taint_sets = [_NO_TAINTS]
            self._taint_set_of = {_NO_TAINTS: 0}
            for each in self._row_of.values():
                self._set_taints(each, tuple(self.node(each).spec.taints or ()))
            self.layout += 1

    def derived(
        self, name: str, dtype: type, default: object, of: Callable[[Node], object]
    ) -> NDArray[Any]:
        """See `ColumnTable.derived`."""
        known = self._derived.get(name)
        if known is None:
            known = Column(dtype, self._capacity, default)
            for row in self._row_of.values():
                known.cell[row] = of(self.node(row))
            if self._derived.put(name, known, of):
                self.layout += 1
        return known.view(len(self._nodes))


def _amounts(node: Node) -> _Amounts:
    """Allocatable and capacity; either stands in for the other."""
    status = node.status
    # A node without allocatable has its capacity there: API defaulting, which files lack.
    allocatable = status.allocatable if status.allocatable is not None else status.capacity
    return allocatable or {}, status.capacity or allocatable or {}


def _amount(resource: str, has: ResourceList) -> int:
    quantity = has.get(resource)
    return 0 if quantity is None else resource_amount(resource, quantity)


def _images(node: Node | None) -> Sequence[ContainerImage]:
    return () if node is None else node.status.images or ()


def label_column(key: str) -> tuple[str, Callable[[Node], str | None]]:
    """Name and reader of the column of a node label, for `NodeColumns.text`."""
    return f"label:{key}", lambda node: (node.metadata.labels or {}).get(key)


def annotation_column(key: str) -> tuple[str, Callable[[Node], str | None]]:
    """Name and reader of the column of a node annotation, for `NodeColumns.text`."""
    return f"annotation:{key}", lambda node: (node.metadata.annotations or {}).get(key)
