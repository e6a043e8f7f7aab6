"""What the storage drivers of each node say, as columns: limits, presence, who has migrated.

Kept beside the snapshot's columns and brought up to date by what changed; asks about no pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import numpy as np

from engine.framework.snapshot import BoolColumn, CodeColumn, IntColumn, Snapshot
from engine.objects.storage import CSINode
from engine.plugins.volumes.migration import MIGRATED

CSI_NODES: Final = "CSINode"
NO_LIMIT: Final = -1
MOST_DRIVERS: Final = 256
"""Columns that are kept of drivers; whatever is beyond is made anew."""

_NumberOf = Callable[[CSINode | None], int]


class CsiNodes:
    """The CSINode of each row, and columns of what is read of it."""

    def __init__(self) -> None:
        self._of: object = None
        self._layout = -1
        self._version = -1
        self._names: CodeColumn = np.empty(0, dtype=np.int32)
        self._rows: list[CSINode | None] = []
        self._columns: dict[str, tuple[_NumberOf, IntColumn]] = {}

    def of_row(self, snapshot: Snapshot, row: int) -> CSINode | None:
        """The CSINode of the node in a row."""
        self._renew(snapshot)
        return self._rows[row]

    def known(self, snapshot: Snapshot) -> BoolColumn:
        """(N,) the node has a CSINode."""
        return self._column(snapshot, "", lambda node: node is not None) > 0

    def limits(self, snapshot: Snapshot, driver: str) -> IntColumn:
        """(N,) how many volumes of the driver the node can have, NO_LIMIT if it does not say."""
        return self._column(snapshot, f"limit {driver}", lambda node: _limit(node, driver))

    def limited(self, snapshot: Snapshot) -> BoolColumn:
        """(N,) the node has a limit for any driver."""
        return self._column(snapshot, "limited", _is_limited) > 0

    def installed(self, snapshot: Snapshot, driver: str) -> BoolColumn:
        """(N,) the driver is on the node."""
        return self._column(snapshot, f"has {driver}", lambda node: driver in limits_of(node)) > 0

    def migrated(self, snapshot: Snapshot, plugin: str) -> BoolColumn:
        """(N,) the node says that a CSI driver has taken over from the in-tree plugin."""
        return self._column(snapshot, f"moved {plugin}", lambda node: _has_moved(node, plugin)) > 0

    def _column(self, snapshot: Snapshot, name: str, of: _NumberOf) -> IntColumn:
        self._renew(snapshot)
        known = self._columns.get(name)
        if known is None:
            if len(self._columns) >= MOST_DRIVERS:
                self._columns.clear()
            column = np.fromiter(map(of, self._rows), np.int64, len(self._rows))
            known = self._columns[name] = of, column
        return known[1]

    def _renew(self, snapshot: Snapshot) -> None:
        nodes, version = snapshot.nodes, snapshot.objects_version(CSI_NODES)
        if snapshot.dictionary is self._of and (snapshot.layout, version) == (
            self._layout,
            self._version,
        ):
            return
        keys = snapshot.objects_changed(CSI_NODES, self._version)
        if snapshot.dictionary is not self._of or nodes.size < len(self._rows) or keys is None:
            self._of, self._columns, self._rows = snapshot.dictionary, {}, []
            self._names = np.empty(0, dtype=np.int32)
            keys = ()
        rows = {nodes.row(key) for key in keys} - {-1}
        if snapshot.layout != self._layout or not self._rows:
            self._grow(nodes.size - len(self._rows))
            names = nodes.name_codes()
            rows.update(np.flatnonzero(names != self._names).tolist())
            self._names = names.copy()
        self._layout, self._version = snapshot.layout, version
        self._fill(snapshot, rows)

    def _grow(self, more: int) -> None:
        self._rows += [None] * more
        self._names = np.concatenate((self._names, np.full(more, -1, dtype=np.int32)))
        for name, (of, column) in self._columns.items():
            nothing = np.full(more, of(None), dtype=np.int64)
            self._columns[name] = of, np.concatenate((column, nothing))

    def _fill(self, snapshot: Snapshot, rows: Iterable[int]) -> None:
        nodes, objects = snapshot.nodes, snapshot.objects(CSI_NODES)
        present = nodes.present
        for row in rows:
            node = objects.get(nodes.name(row)) if present[row] else None
            self._rows[row] = node
            for of, column in self._columns.values():
                column[row] = of(node)


def limits_of(node: CSINode | None) -> Mapping[str, int | None]:
    """Its drivers, and how many volumes of each it can have; None where it does not say."""
    drivers = () if node is None else node.spec.drivers or ()
    return {one.name: one.allocatable.count if one.allocatable else None for one in drivers}


def _limit(node: CSINode | None, driver: str) -> int:
    count = limits_of(node).get(driver)
    return NO_LIMIT if count is None else count


def _is_limited(node: CSINode | None) -> bool:
    return any(count is not None for count in limits_of(node).values())


def migrated_plugins(node: CSINode) -> str:
    """What it says of them, in a row."""
    return (node.metadata.annotations or {}).get(MIGRATED, "")


def _has_moved(node: CSINode | None, plugin: str) -> bool:
    return node is not None and plugin in migrated_plugins(node).split(",")
