"""Ports of nodes that pods took: pods come and go, and the rows where a port is taken come out.

A set and no count, as kube-scheduler has it: of two pods with one port on a node, which only others
could have put there, the first to go frees it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from engine.pods.podinfo import ANY_ADDRESS, HostPort, taken

_NONE: Final[frozenset[HostPort]] = frozenset()


class Ports:
    """Ports of nodes that pods took, by row and by port."""

    def __init__(self) -> None:
        self._of: dict[int, set[HostPort]] = {}
        self._rows: dict[tuple[str, int], dict[str, set[int]]] = {}

    def of(self, row: int) -> frozenset[HostPort]:
        """What is in use on a node."""
        return frozenset(self._of.get(row, _NONE))

    def rows(self, wanted: HostPort) -> set[int]:
        """The rows where the port cannot be had; 0.0.0.0 is in the way of every address."""
        address, protocol, number = wanted
        by_address = self._rows.get((protocol, number), {})
        if address == ANY_ADDRESS:
            return set().union(*by_address.values())
        return by_address.get(ANY_ADDRESS, set()) | by_address.get(address, set())


class PortTable(Ports):
    """`Ports` for `cache.nodes`, which alone writes."""

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
