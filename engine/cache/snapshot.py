"""The cluster as one cycle sees it: a borrowed, read-only view of columns, not a copy.

Arrays are borrowed: nobody writes to them, and they are valid until the cycle ends. A row number
names a node as long as `layout` stays the same. What writes are subclasses that the cache alone has
(`NodeTable` of `NodeColumns`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec
import numpy as np

from engine.cache.changes import NO_CHANGES, NOWHERE, Cause, Changes, NodeChanges, each_once
from engine.cache.columns import CodeColumn, Dictionary, FloatColumn
from engine.cache.domains import Topology
from engine.cache.nodes import NodeColumns
from engine.cache.objects import Objects, ObjectStores, TextOf
from engine.cache.otherpods import Nominations, OtherPods
from engine.cache.overlay import Moves, NodesOver, PodsOver
from engine.cache.pods import PodColumns
from engine.objects import Namespace
from engine.pods.podinfo import PodInfo

# A plain number: one of `Cause` costs more to combine than the change it is about.
_MOVED: Final = int(Cause.POD | Cause.OTHER)


class Signals(Protocol):
    """Metrics: the newest samples; reading them never waits."""

    @property
    def version(self) -> int:
        """Changes whenever any column or value may have changed."""
        ...

    def column(self, metric: str) -> FloatColumn:
        """(N,) the newest value of each node, NaN where there is none or it is stale."""
        ...

    def age(self, metric: str) -> FloatColumn:
        """(N,) seconds since the sample was taken, NaN without one."""
        ...

    def value(self, metric: str, key: tuple[str, ...]) -> float:
        """The newest value of a metric that is not by node, NaN if there is none or it is stale.

        The key is empty for the cluster, a namespace's name, a workload's or pod's namespace and
        name, a pair's two ends.
        """
        ...

    def values(self, metric: str) -> Mapping[tuple[str, ...], float]:
        """All values of `value` by key; the namespace is empty where it is not known."""
        ...

    def of_pods(self, metric: str, pods: PodColumns) -> FloatColumn:
        """(P,) the newest value of each pod; see `value`."""
        ...

    def pairs(
        self, metric: str, ends: tuple[CodeColumn, CodeColumn], dictionary: Dictionary
    ) -> FloatColumn:
        """(n,) the newest value of each pair of texts, given by codes of equal shape."""
        ...


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pod that is assumed and waits in permit.

    `since` is when it got its node, in epoch seconds; `plugins` are those that still hold it.
    """

    pod: PodInfo
    node: str
    since: float
    plugins: frozenset[str]


class Snapshot(msgspec.Struct, eq=False):
    """Everything that a cycle may look at: a view of the cache, which makes it.

    INVARIANT: the cache does not change while a snapshot of it is used; the core is synchronous.
    """

    _log: NodeChanges
    _stores: ObjectStores
    now: float
    """Epoch seconds, frozen for the cycle."""
    signals: Signals
    """The metric columns."""
    generation: int
    """The number of changes of rows so far; equal generations mean equal node and pod columns.

    Below zero: a what-if snapshot, see `overlay`.
    """
    last: tuple[int, int, int]
    """The generation before the last change, its row, and why (`Cause`)."""
    nodes_generation: int
    """The generation of the last change of more than a node's pods."""
    layout: int
    """Changes when rows are added, freed or reused, or a column moves in memory.

    Row numbers and cells of columns are valid while it stays.
    """
    dictionary: Dictionary
    """The dictionary of all text columns."""
    nodes: NodeColumns
    """The node table."""
    pods: PodColumns
    """The pod table."""
    namespaces: Mapping[str, Namespace]
    """The known namespaces by name."""
    topology: Topology
    """Counts of pods by node and by domain."""
    nominations: Nominations
    """The nominated pods."""
    other_pods: OtherPods
    """Pods that wait or have finished, and the last nodes of deleted pods."""
    waiting: Mapping[str, Waiting]
    """The pods that wait in permit, by UID, in the order in which they came.

    All are assumed on their node.
    """

    def changes_since(self, generation: int) -> Changes | None:
        """The rows changed after `generation`, ascending, and for each all its causes (`Cause`).

        None if the log is too short.
        """
        return self._log.since(generation)

    def objects(self, kind: str) -> Objects:
        """The objects of a kind (`Service`) by `namespace/name`, or by name without namespaces.

        Structs of `engine.objects` or of `Points.objects`. Empty for a kind that nothing watches,
        that the server lacks or that may not be listed.
        """
        return self._stores.of(kind).objects

    def objects_version(self, *kinds: str) -> int:
        """The number of changes of objects of these kinds so far."""
        known = self._stores.versions.get(kinds)
        return self._stores.version(kinds) if known is None else known

    def objects_changed(self, kind: str, version: int) -> Sequence[str] | None:
        """The keys of the objects that changed after `version`; None if the log ends before it."""
        return self._stores.of(kind).changed_since(version)

    def objects_by(self, kind: str, index: str, of: TextOf) -> Mapping[str, Objects]:
        """An index: `objects` by a text of each object, then by key.

        Built with `of` on first use under the name `index` and kept up to date; one name must
        always be used with the same function.
        """
        return self._stores.of(kind).by(index, of)

    def overlay(
        self, row: int, remove: Sequence[PodInfo] = (), add: Sequence[PodInfo] = ()
    ) -> Overlay:
        """A what-if snapshot: `remove` are not on the node of the row, then `add` are.

        Takes time by the number of pods, and copies a column when it is read. Added pods have rows
        after all others, removed ones -1 in `pods.node`. No other snapshot has its generation, so
        nothing should be cached for it. A pod that is replaced on its node counts as added.

        Raises:
            LookupError: one of `remove` is not on the node.
        """
        return _over(self, [(row, remove, add)])

    def overlay_each(self, promises: Sequence[tuple[int, Sequence[PodInfo]]]) -> Overlay:
        """`overlay` of several rows at once, to which pods are added."""
        return _over(self, [(row, (), pods) for row, pods in promises])


class Overlay(Snapshot, eq=False, kw_only=True):
    """A snapshot over another; see `Snapshot.overlay`."""

    _over: Snapshot
    _rows: list[int]

    def changes_since(self, generation: int) -> Changes | None:
        """See `Snapshot.changes_since`."""
        if generation == self.generation:
            return NO_CHANGES
        before = self._over.changes_since(generation)
        if before is None:
            return None
        rows = np.append(before[0], np.array(self._rows, np.intp))
        return each_once(rows, np.append(before[1], [_MOVED] * len(self._rows)))


def _over(over: Snapshot, moves: Moves) -> Overlay:
    rows = [row for row, _, _ in moves]
    kept = [getattr(over, name) for name in Snapshot.__struct_fields__]
    found = Overlay(*kept, _over=over, _rows=rows)
    found.generation = found.nodes_generation = next(found._log.what_ifs)  # noqa: SLF001 - ours
    found.last = (over.generation, rows[0], _MOVED) if len(moves) == 1 else (-1, NOWHERE, 0)
    pods = over.pods
    if not isinstance(pods, PodsOver):
        pods = PodsOver(pods, {}, ())
    nodes = over.nodes if isinstance(over.nodes, NodesOver) else NodesOver(over.nodes, {})
    found.pods, found.nodes = pods.with_moves(moves), nodes.with_moves(moves)
    return found
