"""Domains: nodes grouped by the value of a label, and counts of pods by domain.

A *pod set* is the pods that a selector finds in some namespaces; a *term* is what existing pods
demand of others in their domains. Both are counted by node row, and on demand by *domain*: the
nodes that share the value of a label. Readers get live views, which follow the cluster.

Everything is built when first asked for, then updated from logs of changes: of nodes
whose labels, taints or cordon changed, and of each tally. Does not know what counts are for.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, Protocol
from weakref import WeakSet, WeakValueDictionary

import numpy as np

from engine.cache.columns import BoolColumn, Rows
from engine.cache.nodes import NodeColumns
from engine.cache.pods import PodTable
from engine.cache.podsets import PodSetIndex, Tally, TermIndex, add
from engine.changelog import ChangeLog
from engine.objects import Namespace, Node
from engine.pods.podinfo import PodInfo
from engine.pods.podterms import Spaces, terms_of
from engine.pods.selectors import NOTHING, Selector

GROUPING_BYTES: Final = 16 << 20
_LEAST_GROUPINGS: Final = 16
_MOST_TABLES: Final = 16
_FEW_DOMAINS: Final = 64
_NODE_LOG: Final = 4096
_BYTES_A_ROW: Final = 4
_BYTES_OF_ONE: Final = 2 << 10
"""Of a grouping without nodes."""
EMPTY: Final = 0
"""The domain of the empty value."""


class Eligibility(Protocol):
    """Which nodes make up the domains; equal ones are hashed and compared as equal."""

    def __hash__(self) -> int: ...

    def mask(self, nodes: NodeColumns, rows: Rows) -> BoolColumn:
        """Of the rows, those that count. Depends on labels, taints and cordons alone."""
        ...


_Key = tuple[str, Eligibility | None, bool]


class _Column:
    """The domain of each node by one label; -1 without it."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.ids: dict[str, int] = {}
        self.domain = np.empty(0, np.int32)
        self.moves = 0
        """Changes when any node's domain does."""
        self._seen = -1

    def sync(self, nodes: NodeColumns, log: ChangeLog) -> None:
        """Catches up with the nodes."""
        if self._seen == log.end:
            return
        rows: Sequence[int] | None = log.since(self._seen)
        size = nodes.size
        if rows is None or len(self.ids) > 2 * size + _FEW_DOMAINS:
            self.ids = {"": EMPTY}
            self.moves += 1
            rows, self.domain = range(size), np.empty(0, np.int32)
        grown = np.full(size, -1, np.int32)
        grown[: len(self.domain)] = self.domain
        self.domain = grown
        present = nodes.present
        for row in rows:
            labels = nodes.node(row).metadata.labels if present[row] else None
            value = (labels or {}).get(self.key)
            domain = -1 if value is None else self.ids.setdefault(value, len(self.ids))
            # Of Python's numbers, which never overflow in a sum of versions.
            self.moves += domain != self.domain.item(row)
            self.domain[row] = domain
        self._seen = log.end


class Domains:
    """The nodes by their domain of one label; some may not count (`Eligibility`)."""

    def __init__(self, column: _Column, key: _Key, log: ChangeLog) -> None:
        self._column = column
        _, self._eligible, self._fold = key
        self.log = log
        self.seen = -1
        """Its position in the log; it is current at the end of that."""
        self.version = 0
        """Changes with any node's domain, also of one that does not count."""
        self.moved = np.empty(0, np.intp)
        """The rows whose `group` that changed."""
        self.domain = column.domain
        """(N,) number of the node's domain, -1 without the label."""
        self.group = np.empty(0, np.int32)
        """(N,) the same, -1 also where the node does not count."""
        self.sizes: dict[int, int] = {}
        """Domain -> nodes that count; domains without any are left out."""
        self.memo: dict[Hashable, Any] = {}
        """For what others derive from it; they check the version themselves."""
        self.tallies: WeakSet[Tally] = WeakSet()
        """Those that have a table by it."""
        self._moves = -1

    @property
    def most(self) -> int:
        """One above the highest number of a domain."""
        return len(self._column.ids)

    def rows_of(self, domain: int, one: int) -> Sequence[int]:
        """The rows of a domain, those that do not count as well; `one` is a row that counts."""
        if self._eligible is None and not self._fold and self.sizes[domain] == 1:
            return (one,)
        rows: list[int] = np.flatnonzero(self.domain == domain).tolist()
        return rows

    def sync(self, nodes: NodeColumns) -> None:
        """Catches up with the nodes."""
        log = self.log
        if self.seen == log.end:
            return
        column = self._column
        column.sync(nodes, log)
        self.seen = log.end
        self.domain = column.domain
        there = nodes.present
        if self._eligible is not None:
            there = there & self._eligible.mask(nodes, slice(None))
        folded = np.maximum(self.domain, EMPTY) if self._fold else self.domain
        group = np.where(there, folded, np.int32(-1))
        before = np.full(len(group), -1, np.int32)
        before[: len(self.group)] = self.group
        rows = np.flatnonzero(before != group)
        if self._moves == column.moves and not len(rows) and len(group) == len(self.group):
            return
        self.version += 1
        self._moves, self.group, self.moved = column.moves, group, rows
        for sign, side in ((-1, before[rows]), (1, group[rows])):
            domains, counts = np.unique(side[side >= 0], return_counts=True)
            for domain, count in zip(domains.tolist(), counts.tolist(), strict=True):
                add(self.sizes, domain, sign * count)


class DomainTable:
    """A tally by domain. `sync` brings it up to the nodes, then all else may be asked.

    The tally alone calls `count`: it needs no `sync` while `Topology.moves` stays.
    """

    __slots__ = ("_often", "_version", "counts", "domains", "kept", "tally")

    def __init__(self, tally: Tally, domains: Domains) -> None:
        self.tally = tally
        """What is counted."""
        self.domains = domains
        self.counts: dict[int, int] = {}
        """Domain -> how many; domains without any are left out."""
        self._often: Counter[int] | None = None
        """Count above 0 -> domains that have it, once somebody asks for the least."""
        self.kept = True
        """False once the tally has too many tables, or there are too many groupings."""
        self._version = -1
        """Of the domains by which it counts; -1: has to count anew."""

    @property
    def live(self) -> bool:
        """See `Tally.live`."""
        return self.kept and self.tally.live

    def sync(self, nodes: NodeColumns) -> None:
        """Catches up. Linear in the tally's rows if the domain of one of them changed."""
        domains, rows = self.domains, self.tally.counts.keys()
        domains.sync(nodes)
        if self._version == domains.version - 1 and rows.isdisjoint(domains.moved.tolist()):
            self._version = domains.version  # nodes without any, such as those that joined
        if self._version != domains.version:
            self._rebuild()

    def minimum(self, otherwise: Mapping[int, int]) -> int | None:
        """The least count of a domain, if some were counted otherwise by that much; None: none."""
        sizes = self.domains.sizes
        if self._often is None:
            self._often = Counter(self.counts.values())
        if not otherwise:
            if len(self.counts) < len(sizes):
                return 0
            return min(self._often, default=None)
        often = dict(self._often)
        found = []
        known = len(self.counts)
        for domain, amount in otherwise.items():
            count = self.counts.get(domain, 0)
            if count:
                add(often, count, -1)
            else:
                known += 1
            found.append(count + amount)
        if known < len(sizes):
            found.append(0)
        return min([*found, *often])

    def _rebuild(self) -> None:
        self.counts.clear()
        self._often = None
        group = self.domains.group
        for row, count in self.tally.counts.items():
            domain = int(group[row])
            if domain >= 0:
                self.counts[domain] = self.counts.get(domain, 0) + count
        self._version = self.domains.version

    def count(self, row: int, sign: int) -> None:
        """One more or one less of the tally on a row."""
        domains, counts, often = self.domains, self.counts, self._often
        if domains.seen != domains.log.end:
            self._version = -1
            return
        domain = domains.group.item(row)
        if domain < 0:
            return
        before = counts.get(domain, 0)
        after = before + sign
        if after:
            counts[domain] = after
        else:
            del counts[domain]
        if often is not None:
            if before:
                add(often, before, -1)
            if after:
                add(often, after, 1)


class Topology:
    """How many pods of a kind are where: pod sets, terms and domains of one cache.

    This is what readers may ask; `TopologyCounts` has what writes.
    """

    def __init__(self, pods: PodTable, namespaces: Mapping[str, Namespace]) -> None:
        """Starts empty; for `pods` see `PodSetIndex`, `namespaces` are those known, by name."""
        self._sets = PodSetIndex(pods, namespaces)
        self._terms = TermIndex()
        self.terms_on = self._terms.on
        """The terms of existing pods that find such a pod, in the order in which they came."""
        # As long as one of the groupings is by the label.
        self._columns: WeakValueDictionary[str, _Column] = WeakValueDictionary()
        self._groupings: OrderedDict[_Key, Domains] = OrderedDict()
        self._log = ChangeLog(_NODE_LOG)
        self._none = Tally()
        self._rows = 0
        self.version = 0
        """Changes with `terms`, and when a namespace comes, goes or has other labels."""
        self.terms = 0
        """Changes when a term comes that no pod had, or the last pod that had it goes."""
        self.moves = 0
        """Changes when a node's domain may have, and when a tally or a table lives no longer."""

    def pod_set(
        self, namespaces: frozenset[str] | Spaces | None, selector: Selector, *, terminating: bool
    ) -> Tally:
        """The pods that the selector finds in the namespaces (None: all).

        Counted from then on; `terminating`: pods that are being deleted count too. The first time
        it is linear in the pods that match, and in all pods if the selector names new labels.
        """
        if selector == NOTHING or (namespaces is not None and not namespaces):
            return self._none
        before = self._sets.dropped
        found = self._sets.get(namespaces, selector, terminating=terminating)
        self.moves += self._sets.dropped - before
        return found

    def table(
        self, tally: Tally, key: str, eligible: Eligibility | None = None, *, fold: bool = False
    ) -> DomainTable:
        """The tally by the values of a node label.

        Only nodes that are eligible count. `fold`: nodes without the label are in the domain of the
        empty value.
        """
        grouping = self._grouping((key, eligible, fold))
        table: DomainTable | None = tally.tables.get(grouping)
        if table is None:
            table = tally.tables[grouping] = DomainTable(tally, grouping)
            grouping.tallies.add(tally)
            if len(tally.tables) > _MOST_TABLES:
                tally.tables.popitem(last=False)[1].kept = False
                self.moves += 1
        return table

    def _grouping(self, key: _Key) -> Domains:
        known = self._groupings.get(key)
        if known is None:
            column = self._columns.get(key[0])
            if column is None:
                column = self._columns[key[0]] = _Column(key[0])
            known = self._groupings[key] = Domains(column, key, self._log)
            most = max(
                _LEAST_GROUPINGS, GROUPING_BYTES // (_BYTES_OF_ONE + _BYTES_A_ROW * self._rows)
            )
            if len(self._groupings) > most:
                self._drop(self._groupings.popitem(last=False)[1])
        self._groupings.move_to_end(key)
        return known

    def _drop(self, grouping: Domains) -> None:
        """Its tables would keep it, and with it as much memory as there are nodes."""
        for tally in grouping.tallies:
            table = tally.tables.pop(grouping, None)
            if table is not None:
                table.kept = False
                self.moves += 1


class TopologyCounts(Topology):
    """`Topology` for the cache, which alone writes."""

    def count(self, pod: PodInfo, row: int, sign: int) -> None:
        """A pod came to a row (sign 1) or went from it (sign -1)."""
        known = pod.pod
        if self._sets.sets:
            self._sets.change(known.metadata, row, sign)
        if known.spec.affinity is not None:
            demands = terms_of(known).demands
            if demands:
                changed = self._terms.change(demands, row, sign)
                self.version += changed
                self.terms += changed
                self.moves += changed

    def recount(self, old: PodInfo, new: PodInfo, row: int) -> None:
        """The pod on a row changed."""
        before, after = old.pod.spec.affinity, new.pod.spec.affinity
        if (
            old.pod.metadata.labels != new.pod.metadata.labels
            or old.terminating != new.terminating
            or (before is not after and before != after)
        ):
            self.count(old, row, -1)
            self.count(new, row, 1)

    def node_changed(self, row: int, old: Node | None, new: Node | None) -> None:
        """A node came to a row, changed, or went from it."""
        if (
            old is None
            or new is None
            or old.metadata.labels != new.metadata.labels
            or old.spec.taints != new.spec.taints
            or old.metadata.name != new.metadata.name
        ):
            self._rows = max(self._rows, row + 1)
            self._log.append(row)
            self.moves += 1

    def namespace_changed(self, name: str, before: Namespace | None, now: Namespace | None) -> None:
        """A namespace came, went or changed."""
        if before is None or now is None or before.metadata.labels != now.metadata.labels:
            self.version += 1
            dropped = self._sets.dropped
            self._sets.namespace_changed(name, before)
            self.moves += self._sets.dropped - dropped
