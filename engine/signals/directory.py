"""Which node a label of a series means: names, host names and addresses in, slots out.

Knows nothing of metrics. A slot is a node's place in the arrays of this room; unlike rows of the
node table it stays when the table changes. Reading (`find`) is safe from another thread.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.objects import Node
from engine.signals.spec import DOMAIN_LABELS

_HOSTNAME_LABEL = "kubernetes.io/hostname"
_ADDRESSES = frozenset({"InternalIP", "Hostname", "InternalDNS"})


class NodeDirectory:
    """Slots of nodes by any of their names; `version` counts changes."""

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}
        self._others: dict[str, int] = {}
        self._aliases: dict[str, tuple[str, ...]] = {}
        self._domains: dict[str, tuple[str | None, ...]] = {}
        self._free: list[int] = []
        self.version = 0
        self.capacity = 0
        """Slots ever used: what arrays must hold."""

    def __len__(self) -> int:
        return len(self._slots)

    def names(self) -> Iterable[str]:
        """The names of all nodes."""
        return self._slots.keys()

    def slot(self, name: str) -> int:
        """The slot of the node of that name, -1 if there is none."""
        return self._slots.get(name, -1)

    def domains(self, of: str) -> Iterable[str | None]:
        """In which zone, region or rack each node is."""
        place = tuple(DOMAIN_LABELS).index(of)
        return (one[place] for one in self._domains.values())

    def put(self, node: Node) -> None:
        """A node is there, or its names or domains may have changed."""
        name = node.metadata.name
        aliases = tuple(_aliases(node))
        labels = node.metadata.labels or {}
        domains = tuple(map(labels.get, DOMAIN_LABELS.values()))
        slot = self._slots.get(name)
        if slot is not None and (self._aliases[name], self._domains[name]) == (aliases, domains):
            return
        self._domains[name] = domains
        if slot is None:
            slot = self._free.pop() if self._free else self.capacity
            self.capacity = max(self.capacity, slot + 1)
            self._slots[name] = slot
        else:
            self._drop_aliases(name, slot)
        self._aliases[name] = aliases
        for alias in aliases:
            self._others.setdefault(alias, slot)
        self.version += 1

    def remove(self, name: str) -> int:
        """A node is gone; returns the slot it had, which may be used again, or -1."""
        slot = self._slots.pop(name, -1)
        if slot >= 0:
            self._drop_aliases(name, slot)
            del self._aliases[name], self._domains[name]
            self._free.append(slot)
            self.version += 1
        return slot

    def find(self, text: str) -> int:
        """The slot of the node that `text` means, a port at its end left aside; -1 if none."""
        slot = self._exact(text)
        if slot >= 0:
            return slot
        host = without_port(text)
        return self._exact(host) if host != text else -1

    def _exact(self, text: str) -> int:
        slot = self._slots.get(text)
        return slot if slot is not None else self._others.get(text, -1)

    def _drop_aliases(self, name: str, slot: int) -> None:
        for alias in self._aliases[name]:
            if self._others.get(alias) == slot:
                del self._others[alias]


def _aliases(node: Node) -> Iterable[str]:
    hostname = (node.metadata.labels or {}).get(_HOSTNAME_LABEL)
    if hostname:
        yield hostname
    for address in node.status.addresses or ():
        if address.type in _ADDRESSES and address.address:
            yield address.address


def without_port(text: str) -> str:
    """`10.0.0.1:9100`, `[fd00::1]:9100`, `host:9100` without the port; the rest unchanged."""
    if text.startswith("["):
        host, bracket, _ = text[1:].partition("]")
        return host if bracket else text
    host, colon, port = text.rpartition(":")
    return host if colon and port.isdecimal() and ":" not in host else text
