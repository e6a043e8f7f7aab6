"""The cluster as one cycle sees it: a borrowed, read-only view of columns, not a copy.

The cache implements these protocols. Arrays are borrowed: nobody writes to them, and they are valid
until the cycle ends. A row number names a node as long as `layout` stays the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntFlag, auto
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.framework.podinfo import HostPort, PodInfo
from engine.framework.topology import Topology
from engine.objects import Namespace, Node, Taint

Rows = slice | NDArray[np.intp]
"""Which rows a plugin is asked about: a slice for the full pass, an index array otherwise."""

BoolColumn = NDArray[np.bool_]
IntColumn = NDArray[np.int64]
FloatColumn = NDArray[np.float64]
CodeColumn = NDArray[np.int32]


class Cause(IntFlag):
    """What of a row changed."""

    POD = auto()
    """Pods came to the node, left it, or hold something else."""
    LABELS = auto()
    TAINTS = auto()
    """Taints or the cordon."""
    ALLOCATABLE = auto()
    IMAGES = auto()
    CONDITIONS = auto()
    OTHER = auto()
    """Anything else of the API object; what of pods is read by derived columns."""
    ANY = POD | LABELS | TAINTS | ALLOCATABLE | IMAGES | CONDITIONS | OTHER
    """A node that came or went, too."""


class Dictionary(Protocol):
    """Texts as int32 codes; it only grows, and every column of texts shares it."""

    def code(self, text: str) -> int:
        """The code of `text`, made if new."""
        ...

    def find(self, text: str) -> int:
        """The code of `text`, -1 if no column has ever held it."""
        ...

    @property
    def texts(self) -> Sequence[str]:
        """Code -> text."""
        ...


class Ports(Protocol):
    """Ports of nodes that pods took."""

    def of(self, row: int) -> frozenset[HostPort]:
        """What is in use on a node."""
        ...

    def rows(self, wanted: HostPort) -> set[int]:
        """The rows where the port cannot be had; 0.0.0.0 is in the way of every address."""
        ...


class Image(Protocol):
    """An image that a node has; `version` changes with anything of it."""

    size: int
    version: int

    @property
    def count(self) -> int:
        """How many nodes have it."""
        ...

    @property
    def rows(self) -> NDArray[np.intp]:
        """The rows of these nodes, ascending."""
        ...


class Images(Protocol):
    """The images of all nodes."""

    def find(self, name: str) -> Image | None:
        """The image of that full name; None if no node has it."""
        ...


class NodeColumns(Protocol):
    """One row a node. Amounts are milli-cores for cpu, bytes for memory, counts otherwise."""

    @property
    def size(self) -> int:
        """N: the length of every column. Rows without a node have `present` False."""
        ...

    @property
    def count(self) -> int:
        """How many rows hold a node."""
        ...

    @property
    def ports(self) -> Ports:
        """Ports of the nodes that are taken."""
        ...

    @property
    def images(self) -> Images:
        """The images that nodes have."""
        ...

    @property
    def present(self) -> BoolColumn:
        """(N,) the row holds a node."""
        ...

    @property
    def pod_count(self) -> IntColumn:
        """(N,) pods bound or assumed, not finished."""
        ...

    @property
    def nonzero_cpu(self) -> IntColumn:
        """(N,) requested milli-cores, containers without a request counted as 100m."""
        ...

    @property
    def nonzero_memory(self) -> IntColumn:
        """(N,) requested bytes, containers without a request counted as 200 MiB."""
        ...

    @property
    def unschedulable(self) -> BoolColumn:
        """(N,) cordoned."""
        ...

    @property
    def taint_set(self) -> CodeColumn:
        """(N,) index into `taint_sets`."""
        ...

    @property
    def taint_sets(self) -> Sequence[tuple[Taint, ...]]:
        """Every distinct list of taints seen; index 0 is the empty one."""
        ...

    @property
    def tie_keys(self) -> NDArray[np.uint64]:
        """(N,) a hash of the node's name, the raw material of seeded ties."""
        ...

    def allocatable(self, resource: str) -> IntColumn:
        """(N,) amount of the resource, 0 where the node does not have it."""
        ...

    def requested(self, resource: str) -> IntColumn:
        """(N,) sum of the requests of the node's pods."""
        ...

    def has_resource(self, resource: str) -> BoolColumn:
        """(N,) the node's allocatable names the resource."""
        ...

    def capacity(self, resource: str) -> IntColumn:
        """(N,) status.capacity of the resource."""
        ...

    def text(self, column: str, of: Callable[[Node], str | None]) -> CodeColumn:
        """(N,) dictionary codes of a text of each node, -1 = missing.

        Built with `of` on first use under the name `column` and kept up to date; whoever uses a
        name must always give the same function. `label_column` and `annotation_column` make such
        pairs.
        """
        ...

    def number(self, column: str, of: Callable[[Node], float]) -> FloatColumn:
        """(N,) like `text`, for numbers; NaN = missing."""
        ...

    def flag(self, column: str, of: Callable[[Node], bool]) -> BoolColumn:
        """(N,) like `text`, for booleans."""
        ...

    def name_codes(self) -> CodeColumn:
        """(N,) dictionary code of the node's name."""
        ...

    def row(self, name: str) -> int:
        """The row of the node, -1 if there is none."""
        ...

    def name(self, row: int) -> str:
        """The name of the node in a row that holds one."""
        ...

    def node(self, row: int) -> Node:
        """The API object of a row that holds one."""
        ...


class Ledger(Protocol):
    """Sums over the pods that have a node, known or not, from being assumed to being gone."""

    @property
    def of_namespaces(self) -> bool:
        """Whether what it counts depends on pods' namespaces too; then it is made anew for them."""
        ...

    def count(self, pod: PodInfo, sign: int) -> None:
        """A pod came (1) or went (-1)."""
        ...


class PodColumns(Protocol):
    """One row a pod that is bound or assumed and not finished."""

    @property
    def size(self) -> int:
        """P: the length of every column."""
        ...

    @property
    def node(self) -> CodeColumn:
        """(P,) row of the pod's node, -1 where the row is unused."""
        ...

    def on(self, node_row: int) -> NDArray[np.intp]:
        """The rows of the pods on a node, ascending. Linear in their number."""
        ...

    @property
    def priority(self) -> IntColumn:
        """(P,) spec.priority."""
        ...

    def pod(self, row: int) -> PodInfo:
        """The pod of a used row."""
        ...

    def request(self, resource: str) -> IntColumn:
        """(P,) the pod's effective request of the resource."""
        ...

    def number(self, column: str, of: Callable[[PodInfo], float]) -> FloatColumn:
        """(P,) a number of each pod, NaN = missing. Built on first use, kept up to date."""
        ...

    def text(self, column: str, of: Callable[[PodInfo], str | None]) -> CodeColumn:
        """(P,) a text of each pod as dictionary codes, -1 = missing."""
        ...

    def namespace_text(self, column: str, of: Callable[[PodInfo], str | None]) -> CodeColumn:
        """(P,) like `text`, of what a pod's namespace says; follows changes of namespaces, too."""
        ...

    def flag(self, column: str, of: Callable[[PodInfo], bool]) -> BoolColumn:
        """(P,) a boolean of each pod."""
        ...

    def ledger(self, name: str, make: Callable[[], Ledger]) -> Ledger:
        """Sums over pods, made on first use and kept up to date; a name always has the same.

        A what-if snapshot has those of the cluster.
        """
        ...


class Signals(Protocol):
    """Metrics: the last samples that came in, never a reason to wait."""

    @property
    def version(self) -> int:
        """Changes whenever any column or value may have changed."""
        ...

    def column(self, metric: str) -> FloatColumn:
        """(N,) the newest value a node, NaN where there is none or it is stale."""
        ...

    def age(self, metric: str) -> FloatColumn:
        """(N,) seconds since the sample was taken, NaN without one."""
        ...

    def value(self, metric: str, key: tuple[str, ...]) -> float:
        """The newest value of a metric that nodes have not, NaN if there is none or it is stale.

        The key of the cluster is empty; a namespace's has its name, a workload's and a pod's the
        namespace and the name, a pair's both ends.
        """
        ...

    def values(self, metric: str) -> Mapping[tuple[str, ...], float]:
        """All that `value` gives, by key; names whose namespace is not known have an empty one."""
        ...

    def of_pods(self, metric: str, pods: PodColumns) -> FloatColumn:
        """(P,) the newest value of each pod; see `value`."""
        ...

    def pairs(
        self, metric: str, ends: tuple[CodeColumn, CodeColumn], dictionary: Dictionary
    ) -> FloatColumn:
        """(n,) the newest value of each pair of texts, given by codes of equal shape."""
        ...


def value_of_each(signals: Signals, metric: str, pods: PodColumns) -> FloatColumn:
    """(P,) what `Signals.of_pods` gives, one by one: for few pods."""
    found = (pods.pod(row) for row in range(pods.size))
    values = [signals.value(metric, (one.namespace, one.name)) for one in found]
    return np.array(values, np.float64)


def value_of_each_pair(
    signals: Signals, metric: str, ends: tuple[CodeColumn, CodeColumn], dictionary: Dictionary
) -> FloatColumn:
    """(n,) what `Signals.pairs` gives, one by one: for few pairs."""
    texts = dictionary.texts
    codes = zip(*(each.tolist() for each in ends), strict=True)
    values = [
        np.nan if min(pair) < 0 else signals.value(metric, (texts[pair[0]], texts[pair[1]]))
        for pair in codes
    ]
    return np.array(values, np.float64)


class Nominations(Protocol):
    """Waiting pods that are promised a node: preemption makes room for them there."""

    @property
    def version(self) -> int:
        """Changes with every promise."""
        ...

    def __len__(self) -> int:
        """How many pods are promised a node."""
        ...

    def __iter__(self) -> Iterator[PodInfo]:
        """The pods that are promised a node."""
        ...

    def on(self, node: str) -> Collection[PodInfo]:
        """The pods that are promised the node."""
        ...

    def node_of(self, uid: str) -> str:
        """The node that the pod is promised, empty if none."""
        ...

    def is_evicting(self, uid: str) -> bool:
        """True while the pod's victims are being deleted."""
        ...

    @property
    def leaving(self) -> Mapping[str, str]:
        """UIDs of pods whose deletion is being written, and their nodes."""
        ...

    def before(self, pod: PodInfo, snapshot: Snapshot) -> Sequence[tuple[int, list[PodInfo]]]:
        """Rows of nodes that are promised to pods of its priority or a higher one, and those."""
        ...


class QueueTimes(NamedTuple):
    """What only the queue knows of a pod; times are seconds since the epoch, None: not yet."""

    queued_at: float
    first_attempt_at: float | None
    attempts: int


class Beside(Protocol):
    """What stands beside nodes and the pods on them, as far as anybody attends to it."""

    @property
    def version(self) -> int:
        """Changes with anything of it."""
        ...

    def pods(self, table: str) -> PodColumns:
        """Other pods: of the `queue`, `nominated` to a node, or `finished` in the last hour.

        Those of the queue are on no node: their `node` is a row all the same, but for pods that
        got a node meanwhile.
        """
        ...

    def row(self, table: str, uid: str) -> int:
        """The row of a pod in such a table, -1 if it is not there."""
        ...

    def times(self, uid: str) -> QueueTimes | None:
        """What the queue knows of a pod; None if it has no such pod."""
        ...

    def previous_node(self, pod: PodInfo) -> str | None:
        """The node that the pod of its name, or else the last one of its workload, left."""
        ...


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pod that keeps its node and waits for leave to be bound.

    `since` is when it got its node, in epoch seconds; `plugins` are those that hold it still.
    """

    pod: PodInfo
    node: str
    since: float
    plugins: frozenset[str]


class Snapshot(Protocol):
    """Everything a cycle may look at."""

    @property
    def now(self) -> float:
        """Epoch seconds, frozen for the cycle."""
        ...

    @property
    def generation(self) -> int:
        """Counts changes of rows; equal generations mean equal node and pod columns.

        Below zero: a what-if snapshot, see `overlay`.
        """
        ...

    @property
    def nodes_generation(self) -> int:
        """The generation of the last change that was of more than a node's pods."""
        ...

    @property
    def layout(self) -> int:
        """Changes when rows are added, freed or reused, or a column moves.

        Row numbers, and cells of columns, hold within one.
        """
        ...

    @property
    def nodes(self) -> NodeColumns:
        """The node table."""
        ...

    @property
    def pods(self) -> PodColumns:
        """The pod table."""
        ...

    @property
    def signals(self) -> Signals:
        """The metric columns."""
        ...

    @property
    def namespaces(self) -> Mapping[str, Namespace]:
        """Namespaces by name, as far as they are known."""
        ...

    @property
    def dictionary(self) -> Dictionary:
        """The dictionary of all text columns."""
        ...

    @property
    def nominations(self) -> Nominations:
        """The pods that are promised a node and are not on it yet."""
        ...

    @property
    def beside(self) -> Beside:
        """Pods that wait or have finished, and what they left behind."""
        ...

    @property
    def waiting(self) -> Mapping[str, Waiting]:
        """The pods that wait in permit, by UID, in the order in which they came.

        All are assumed on their node.
        """
        ...

    def objects(self, kind: str) -> Mapping[str, Any]:
        """The objects of a kind (`Service`) by `namespace/name`, or name where there is none.

        Structs of `engine.objects`. Of a kind that the server lacks, or does not let us see, none.
        """
        ...

    def objects_version(self, *kinds: str) -> int:
        """Counts changes of the objects of these kinds."""
        ...

    def objects_changed(self, kind: str, version: int) -> Sequence[str] | None:
        """The keys of the objects that changed after `version`; None if the log ends before it."""
        ...

    def objects_by(
        self, kind: str, index: str, of: Callable[[Any], str]
    ) -> Mapping[str, Mapping[str, Any]]:
        """`objects` by a text of each object, then by key.

        Built with `of` on first use under the name `index` and kept up to date; whoever uses a name
        must always give the same function.
        """
        ...

    @property
    def topology(self) -> Topology:
        """How many pods of a kind are where."""
        ...

    @property
    def last(self) -> tuple[int, int, int]:
        """The generation before the last change, its row, and why (`Cause`)."""
        ...

    def changes_since(self, generation: int) -> tuple[NDArray[np.intp], NDArray[np.int64]] | None:
        """The rows changed after `generation`, ascending, and for each all its causes (`Cause`).

        None if the log does not reach back.
        """
        ...

    def overlay(
        self, row: int, remove: Sequence[PodInfo] = (), add: Sequence[PodInfo] = ()
    ) -> Snapshot:
        """What if these pods were not on the node of the row, and those were? In that order.

        Takes time by the pods named, and copies a column when it is read. Pods that it adds have
        rows behind all others; of those it takes away `pods.node` is -1. No other snapshot has its
        generation, so nothing that is kept should be kept at it. A pod that stays on its node and
        comes as another object counts as added.

        Raises:
            LookupError: one of `remove` is not on the node.
        """
        ...

    def overlay_each(self, promises: Sequence[tuple[int, Sequence[PodInfo]]]) -> Snapshot:
        """`overlay` of several rows at once, to each of which pods come."""
        ...


def label_column(key: str) -> tuple[str, Callable[[Node], str | None]]:
    """Name and reader of the column of a node label, for `NodeColumns.text`."""
    return f"label:{key}", lambda node: (node.metadata.labels or {}).get(key)


def annotation_column(key: str) -> tuple[str, Callable[[Node], str | None]]:
    """Name and reader of the column of a node annotation, for `NodeColumns.text`."""
    return f"annotation:{key}", lambda node: (node.metadata.annotations or {}).get(key)
