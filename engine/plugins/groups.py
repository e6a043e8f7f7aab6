"""Groups of nodes that counts of pods cannot tell apart: tables by domain in, a column out.

What depends on pods elsewhere is computed once a group, of which there are few, and
looked up by node. Where nearly every node is a domain of its own, as by host name, nodes are
grouped by how many were counted there instead of by domain.

Does not know what counts are for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from operator import add
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.framework.interface import GroupColumn, Moved
from engine.framework.snapshot import CodeColumn, Domains, DomainTable, Rows, Snapshot, Tally
from engine.pods.selectors import NOTHING

FEW_DOMAINS: Final = 64
NODES_A_DOMAIN: Final = 16
_FEW_CHANGES: Final = 64
_FEW_ROWS: Final = 8
_MEMOS: Final = 4
_SPARSE: Final = 4
_MOST_GROUPS: Final = 4096
_GONE: Final = -(1 << 62)
"""Instead of a version, so low that the sum with other versions stays negative."""

Ints = NDArray[np.int64]
Counts = NDArray[np.float64]


class Part:
    """Counts by one label: the sum of tables, or (`by_row`) of the rows alone.

    `apart`: answers depend on the domains themselves, not on their counts alone.
    """

    def __init__(
        self,
        tables: Sequence[tuple[int, DomainTable]],
        *,
        by_row: Tally | None = None,
        otherwise: Mapping[int, int] | None = None,
        apart: bool = False,
    ) -> None:
        self._tables = tables if by_row is None else ()
        self._apart = apart
        self.domains: Domains = tables[0][1].domains
        self.by_row = by_row
        self._tallies = [table.tally for _, table in tables] if by_row is None else [by_row]
        self._seen: list[int] = []
        self.otherwise = otherwise or {}
        """Domain -> how many are added to its count."""

    def sync(self, snapshot: Snapshot) -> int:
        """Catches up; the version of the domains, or `_GONE` if a tally is no longer kept."""
        if self.by_row is not None:
            self.domains.sync(snapshot.nodes)
            return self.domains.version if self.by_row.live else _GONE
        live = True
        for _, table in self._tables:
            table.sync(snapshot.nodes)
            live &= table.live
        return self.domains.version if live else _GONE

    @property
    def any(self) -> bool:
        """Whether anything was counted in any domain."""
        if any(self.otherwise.values()):
            return bool(self.dense().any())
        return any(table.counts for _, table in self._tables)

    @property
    def sparse(self) -> bool:
        """Whether domains are too many for each to be a group."""
        if self.by_row is not None:
            return True
        most = self.domains.most
        many = most > FEW_DOMAINS and most * NODES_A_DOMAIN > len(self.domains.domain)
        return many and not self._apart

    def dense(self) -> Counts:
        """By domain; the last is for rows without one."""
        total = np.zeros(self.domains.most + 1)
        for weight, table in self._tables:
            counts = table.counts
            total[[*counts]] += weight * np.fromiter(counts.values(), np.int64, len(counts))
        for domain, amount in self.otherwise.items():
            total[domain] += amount
        return total

    def column(self, size: int) -> Counts:
        """By row."""
        if self.by_row is None:
            by_row: Counts = self.dense()[self.domains.domain[:size]]
            return by_row
        total, counts = np.zeros(size), self.by_row.counts
        rows = np.fromiter(counts, np.intp, len(counts))
        total[rows] = np.fromiter(counts.values(), np.int64, len(counts))
        return total

    def of(self, snapshot: Snapshot, rows: Rows) -> tuple[CodeColumn, Counts]:
        """The domain of each of some rows, -1 without the label, and the count, undefined there."""
        size = snapshot.nodes.size
        domains = self.domains.domain[:size][rows]
        if self.by_row is not None:
            return domains, self.column(size)[rows]
        if len(domains) > _FEW_ROWS:
            return domains, self.dense()[domains]
        each = domains.tolist()
        besides = [self.otherwise.get(domain, 0) for domain in each]
        return domains, np.array([*map(add, self.totals(each), besides)], np.float64)

    def value(self, row: int) -> int:
        """Of one row."""
        if self.by_row is not None:
            return self.by_row.counts.get(row, 0)
        return self.totals((int(self.domains.domain[row]),))[0]

    def totals(self, domains: Sequence[int]) -> list[int]:
        """Of some domains, without `otherwise`."""
        found: list[int] = []
        for weight, table in self._tables:
            each: Iterable[int] = map(table.counts.get, domains, repeat(0))
            if weight != 1:
                each = [weight * n for n in each]
            found = [*map(add, found, each)] if found else [*each]
        return found

    def minimum(self) -> int | None:
        """The least count of a domain, None without domains. Of one table alone."""
        return self._tables[0][1].minimum(self.otherwise)

    def counted(self) -> list[int] | None:
        """The rows where something was counted; None if they may be many."""
        if self.by_row is not None:
            return list(self.by_row.counts) if len(self.by_row.counts) <= _FEW_CHANGES else None
        domains = {domain for _, table in self._tables for domain in table.counts}
        if len(domains) > _FEW_ROWS:
            return None
        of = self.domains.domain
        return [row for domain in domains for row in np.flatnonzero(of == domain).tolist()]

    def catch_up(self) -> None:
        """Marks all changes until now as seen."""
        self._seen = [tally.end for tally in self._tallies]

    def changed(self) -> Sequence[int] | None:
        """The rows whose value may have changed since `catch_up`; None if they are many."""
        found: Sequence[int] = ()
        for at, tally in enumerate(self._tallies):
            since = self._seen[at]
            if tally.end == since:
                continue
            self._seen[at] = tally.end
            rows = tally.since(since)
            if rows is None or len(rows) > _FEW_CHANGES:
                return None
            if self.by_row is None:
                group, rows_of = self.domains.group, self.domains.rows_of
                counted = {group.item(row): row for row in rows}
                rows = [row for one, at in counted.items() if one >= 0 for row in rows_of(one, at)]
            found = [*found, *rows] if found else rows
        return found


def no_pods(snapshot: Snapshot, key: str) -> DomainTable:
    """A table without pods, for its domains."""
    none = snapshot.topology.pod_set(None, NOTHING, terminating=True)
    return snapshot.topology.table(none, key)


class Groups(ABC):
    """All rows, in groups of those with equal domains and values; `column` is each row's group.

    Answers of a subclass follow from what was counted: see `framework.interface.Grouped`.
    """

    def __init__(self) -> None:
        self._parts: Sequence[Part] = ()
        self._version = self._made_at = 0
        """Of all domains together, of which none ever falls: now, and when the groups were made."""
        self._caught_up = -1
        """Those of the topology with which the parts caught up."""
        self._sparse: dict[int, Part] = {}
        self._dense: dict[int, Part] = {}
        """Parts by number: those whose counts are in the keys of groups, and the others."""
        self._group_of: dict[tuple[int, ...], int] = {}
        self._numbers: list[tuple[int, ...]] = []
        self._domains: list[list[int]] = []
        self._counts: list[list[int]] = []
        """For each part, of all groups; see `by_part`."""
        self.column: GroupColumn = np.empty(0, np.int16)
        self.cells: memoryview[Any] = self.column.data
        """The column, for single rows."""

    def __len__(self) -> int:
        return len(self._numbers)

    @abstractmethod
    def _recount(self, snapshot: Snapshot) -> Sequence[Part]:
        """All parts anew."""

    def parts(self, snapshot: Snapshot) -> Sequence[Part]:
        """What was counted. Catches up."""
        moves = snapshot.topology.moves
        if moves != self._caught_up:
            version = sum([part.sync(snapshot) for part in self._parts])
            if version <= 0:
                self._parts, self._made_at = self._recount(snapshot), 0
                version = sum([part.sync(snapshot) for part in self._parts])
            self._version, self._caught_up = version, moves
        return self._parts

    def sync(self, snapshot: Snapshot) -> Moved:
        """See `Grouped.sync`."""
        self.parts(snapshot)
        cells, size = self.cells, snapshot.nodes.size
        if self._version != self._made_at or len(cells) != size:
            self._rebuild(size)
            return None
        moved: dict[int, int] = {}
        for part in self._sparse.values():
            rows = part.changed()
            if rows is None or len(rows) > _FEW_CHANGES or len(self._numbers) > _MOST_GROUPS:
                self._rebuild(size)
                return None
            for row in rows:
                moved[row] = cells[row]
        for row, group in moved.items():
            cells[row] = self._regrouped(row, group)
        return moved

    def by_part(self) -> tuple[Sequence[list[int]], Sequence[list[int]]]:
        """For each part the domains of all groups, and what was counted there."""
        domains, counts = self._domains, self._counts
        for number, part in self._dense.items():
            counts[number] = part.totals(domains[number])
        return domains, counts

    def _regrouped(self, row: int, group: int) -> int:
        """The new group of a row whose count changed, by its former group."""
        values = [*self._numbers[group]]
        for at, part in self._sparse.items():
            values[2 * at + 1] = part.value(row)
        key = tuple(values)
        number = self._group_of.get(key)
        if number is None:
            number = self._group_of[key] = len(self._numbers)
            self._numbers.append(key)
            for domains, domain in zip(self._domains, key[::2], strict=True):
                domains.append(domain)
            for counts, count in zip(self._counts, key[1::2], strict=True):
                counts.append(count)
        return number

    def _rebuild(self, size: int) -> None:
        parts, self._made_at = self._parts, self._version
        self._sparse = sparse = {i: part for i, part in enumerate(parts) if part.sparse}
        self._dense = {i: part for i, part in enumerate(parts) if i not in sparse}
        counted: set[int] | None = set()
        for part in sparse.values():
            part.catch_up()
            rows = part.counted()
            counted = None if counted is None or rows is None else counted.union(rows)
        if counted is None or len(counted) > _FEW_CHANGES:
            self._take(_grouped(parts, sparse, size, counted=True))
            return
        # With few counts, start from the groups without counts, which are shared.
        memo = parts[0].domains.memo
        key = (self._version, size, *sparse, *[part.domains for part in parts])
        if key not in memo:
            if len(memo) >= _MEMOS:
                memo.clear()
            memo[key] = _grouped(parts, sparse, size, counted=False)
        self._take(memo[key])
        for row in counted:
            self.cells[row] = self._regrouped(row, self.cells[row])

    def _take(self, made: tuple[GroupColumn, NDArray[np.int64]]) -> None:
        column, table = made
        self.column = column.copy()
        self.cells = self.column.data
        self._numbers = [tuple(key) for key in table.tolist()]
        each = table.T.tolist()
        self._domains, self._counts = each[::2], each[1::2]
        self._group_of = {key: number for number, key in enumerate(self._numbers)}


def _grouped(
    parts: Sequence[Part], sparse: Mapping[int, Part], size: int, *, counted: bool
) -> tuple[GroupColumn, NDArray[np.int64]]:
    """The group of each row, and the key of each group; not `counted`: as if nothing was."""
    columns: list[NDArray[np.int64]] = []
    for i, part in enumerate(parts):
        domain = part.domains.domain[:size].astype(np.int64)
        columns.append(np.minimum(domain, 0) if i in sparse else domain)
        by_row = part.column(size) if i in sparse and counted else np.zeros(size)
        columns.append(by_row.astype(np.int64))
    number, first = np.zeros(size, np.int64), np.zeros(min(size, 1), np.int64)
    for column in columns:
        low = int(column.min(initial=0))
        span = int(column.max(initial=0)) - low + 1
        if span > 1:
            number, first = _renumbered(number * span + (column - low))
    few = len(first) <= _MOST_GROUPS
    table = np.stack([column[first] for column in columns], axis=1)
    return number.astype(np.int16) if few else number.astype(np.int32), table


def _renumbered(codes: Ints) -> tuple[Ints, Ints]:
    """Codes from 0 on without gaps, in order; and where each comes first."""
    most = int(codes.max()) + 1
    if most > _SPARSE * len(codes):
        _, first, number = np.unique(codes, return_index=True, return_inverse=True)
        return number, first
    there = np.zeros(most, np.bool_)
    there[codes] = True
    number = (np.cumsum(there) - 1)[codes]
    first = np.empty(int(np.count_nonzero(there)), np.int64)
    first[number[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return number, first
