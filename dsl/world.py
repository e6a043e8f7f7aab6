"""What a compiled policy asks of the world; protocols only.

The engine implements `World` and `Subject`; nothing else crosses between the two.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

#: Numbers of rows.
Indices = NDArray[np.intp]
#: `slice(0, n)` is a full pass; an index array names changed rows or candidates.
Rows = slice | Indices
#: A pod's values that a rule needs: the pod's class key for that rule.
Part = float | str | bytes | bool | tuple[str, ...] | tuple[tuple[str, str | float], ...] | None
Parts = tuple[Part, ...]
Column = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Dictionary(Protocol):
    """Texts and their codes; it only grows and all columns share it."""

    def code(self, text: str) -> int:
        """Returns the code of a text, a new one if need be."""

    def find(self, text: str) -> int:
        """Returns the code of a text, -1 if it has none."""

    @property
    def texts(self) -> Sequence[str]:
        """The texts by code."""


class World(Protocol):
    """One snapshot as columns.

    Arrays are borrowed and read-only, of full length N (rows of nodes) or P (rows of pods).
    Cores are milli-cores; bytes, seconds and counts are plain.
    """

    # INVARIANT: two worlds that differ in any node or pod column never share a generation,
    # unless they also have different dictionaries.
    @property
    def generation(self) -> int:
        """Changes whenever any node or pod column may have changed."""

    @property
    def nodes(self) -> int:
        """N, the number of node rows."""

    @property
    def present(self) -> Mask:
        """(N,) rows that hold a node."""

    @property
    def now(self) -> float:
        """Epoch seconds of the cycle."""

    @property
    def dictionary(self) -> Dictionary:
        """The texts behind all codes."""

    @property
    def pod_node(self) -> NDArray[np.int32]:
        """(P,) node row of each pod row; -1 for a row without a pod."""

    def pods_on(self, row: int) -> Indices:
        """The pod rows of a node row. Linear in their number."""

    def changed_since(self, generation: int, *, samples: bool) -> Indices | None:
        """Node rows of which a column or a pod differs from the world of a generation before.

        None: any may. With `samples` metrics count, too.
        """

    def node_number(self, field: str, key: str | None) -> Column:
        """(N,) numbers of a node field; NaN = missing."""

    def node_text(self, field: str, key: str | None) -> NDArray[np.int32]:
        """(N,) codes of a node field; -1 = missing."""

    def node_flag(self, field: str, key: str | None) -> Mask:
        """(N,) flags of a node field."""

    def node_texts(self, field: str) -> tuple[Indices, NDArray[np.int32]]:
        """Lists of all nodes: (N + 1,) where each starts, and the codes of their items."""

    def node_column(self, field: str, asked: Part) -> Column | Mask:
        """(N,) a field that depends on the pod, too; `asked` is what `Subject.asks` gave."""

    def pod_table(self, table: str) -> "World":
        """The same nodes with other pods: `queue`, `nominated` or `finished`.

        Pods of the queue are on no node; their `pod_node` is 0 or any other row.
        """

    def metric(self, name: str) -> Column:
        """(N,) last samples in the base unit; NaN = missing or stale. `name`: `MetricSpec.id`."""

    def metric_age(self, name: str) -> Column:
        """(N,) seconds since the last sample; NaN = none."""

    def cluster_metric(self, name: str) -> float:
        """The last sample of a metric of the cluster; NaN = missing."""

    def pod_metric(self, name: str) -> Column:
        """(P,) last samples of a metric of pods."""

    def pair(self, name: str, left: str, right: str) -> float:
        """The last sample of a metric of pairs; NaN = missing."""

    def pair_column(self, name: str, left: NDArray[np.int32], right: NDArray[np.int32]) -> Column:
        """(n,) what `pair` gives for texts by their codes, of equal shape; NaN for -1."""

    def pod_number(self, field: str, key: str | None) -> Column:
        """(P,) numbers of a field of running pods (`it.memory`)."""

    def pod_text(self, field: str, key: str | None) -> NDArray[np.int32]:
        """(P,) codes of a field of running pods."""

    def pod_flag(self, field: str, key: str | None) -> Mask:
        """(P,) flags of running pods."""

    def cycle_number(self, field: str) -> float:
        """A number of the whole cluster or of the clock."""

    def cycle_text(self, field: str) -> str | None:
        """A text of the clock: `time.weekday`."""


class Subject(Protocol):
    """The pod to be placed; fields are named as in the schema."""

    def number(self, field: str, key: str | None) -> float:
        """A number; NaN = missing."""

    def text(self, field: str, key: str | None) -> str | None:
        """A text; None = missing."""

    def texts(self, field: str) -> tuple[str, ...]:
        """A list of texts."""

    def flag(self, field: str, key: str | None) -> bool:
        """A flag."""

    def pairs(self, field: str) -> tuple[tuple[str, str | float], ...]:
        """All keys and values of a field with a key, in order; amounts of 0 may be left out."""

    def asks(self, field: str) -> Part:
        """What a field of the node that depends on the pod depends on."""

    def metric(self, name: str) -> float:
        """The last sample of a metric of the pod, its workload or its namespace."""

    @property
    def containers(self) -> int:
        """How many containers the pod has."""

    def container_number(self, place: int, field: str, key: str | None) -> float:
        """A number of a container (`limit`); NaN = missing."""

    def container_text(self, place: int, field: str) -> str | None:
        """A text of a container (`name`, `image`)."""
