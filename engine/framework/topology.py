"""How many pods of a kind are where: protocols of what the cache counts, and the words for it.

A *pod set* is the pods that a selector finds in some namespaces; a *term* is what existing pods
demand of others in their domains. Both are counted by node row, and on demand by *domain*: the
nodes that share the value of a label. Everything here is borrowed and follows the cluster.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.pods.podterms import PodTerm
from engine.pods.selectors import Labels, Selector

if TYPE_CHECKING:
    from engine.framework.snapshot import BoolColumn, Rows, Snapshot


class Tally(Protocol):
    """Counts by node row."""

    @property
    def counts(self) -> Mapping[int, int]:
        """Node row -> how many; rows without any are left out."""
        ...

    @property
    def live(self) -> bool:
        """False once it is no longer kept up to date: ask for another."""
        ...

    def since(self, position: int) -> Sequence[int] | None:
        """The rows whose count changed after a position of the log; None: it is too short."""
        ...

    @property
    def end(self) -> int:
        """The position after the last change."""
        ...


class Eligibility(Protocol):
    """Which nodes make up the domains; equal ones are hashed and compared as equal."""

    def __hash__(self) -> int: ...

    def mask(self, snapshot: Snapshot, rows: Rows) -> BoolColumn:
        """Of the rows, those that count. Depends on labels, taints and cordons alone."""
        ...


class Domains(Protocol):
    """What the nodes make of the values of one label."""

    @property
    def domain(self) -> NDArray[np.int32]:
        """(at least N,) number of the node's domain, -1 without the label."""
        ...

    @property
    def group(self) -> NDArray[np.int32]:
        """(at least N,) the same, -1 also where the node does not count."""
        ...

    @property
    def sizes(self) -> Mapping[int, int]:
        """Domain -> nodes that count; domains without any are left out."""
        ...

    @property
    def most(self) -> int:
        """One above the highest number of a domain."""
        ...

    @property
    def version(self) -> int:
        """Changes with any node's domain."""
        ...

    @property
    def memo(self) -> dict[Hashable, Any]:
        """What others made of it at a version, which they keep and forget themselves."""
        ...

    def sync(self, snapshot: Snapshot) -> None:
        """Catches up with the nodes; `DomainTable.sync` does it, too."""
        ...


class DomainTable(Protocol):
    """A tally by domain. `sync` brings it up to the nodes, then all else may be asked.

    It follows the tally by itself, and needs no `sync` while `Topology.moves` stays.
    """

    @property
    def tally(self) -> Tally:
        """What is counted."""
        ...

    @property
    def domains(self) -> Domains:
        """The nodes' domains."""
        ...

    @property
    def counts(self) -> Mapping[int, int]:
        """Domain -> how many; domains without any are left out."""
        ...

    @property
    def live(self) -> bool:
        """See `Tally.live`."""
        ...

    def sync(self, snapshot: Snapshot) -> None:
        """Catches up. Linear in the tally's rows when the domains of nodes changed."""
        ...

    def minimum(self, otherwise: Mapping[int, int]) -> int | None:
        """The least count of a domain, if some were counted otherwise by that much; None: none."""
        ...

    def dense(self) -> NDArray[np.float64]:
        """(most + 1,) counts by domain, made anew; the last is 0, for rows without a domain."""
        ...


class CountedTerm(Tally, Protocol):
    """A term, and how many pods on each row have it."""

    @property
    def term(self) -> PodTerm:
        """The term."""
        ...

    @property
    def identity(self) -> bytes:
        """Equal for equal terms in every process."""
        ...


class Topology(Protocol):
    """What the cache counts."""

    @property
    def version(self) -> int:
        """Changes when a term comes that no pod had, or the last pod that had it goes.

        And when a namespace comes, goes or changes.
        """
        ...

    @property
    def moves(self) -> int:
        """Changes when a node's domain may have, and when a tally or a table lives no longer."""
        ...

    def pod_set(
        self, namespaces: frozenset[str] | None, selector: Selector, *, terminating: bool
    ) -> Tally:
        """The pods that the selector finds in the namespaces (None: all).

        Counted from then on; `terminating`: pods that are being deleted count too. The first time
        it is linear in the pods that match, and in all pods if the selector names new labels.
        """
        ...

    def terms_on(
        self, namespace: str, namespace_labels: Labels, labels: Labels
    ) -> Sequence[CountedTerm]:
        """The terms of existing pods that find such a pod, in the order in which they came."""
        ...

    def table(
        self, tally: Tally, key: str, eligible: Eligibility | None = None, *, fold: bool = False
    ) -> DomainTable:
        """The tally by the values of a node label.

        Only nodes that are eligible count. `fold`: nodes without the label are in the domain of the
        empty value.
        """
        ...
