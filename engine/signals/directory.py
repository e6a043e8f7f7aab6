"""Which node a label of a series means: names, host names and addresses in, a node's name out.

Knows nothing of metrics. Reading (`find`) is safe from another thread.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.objects import Node
from engine.signals.spec import DOMAIN_LABELS

_HOSTNAME_LABEL = "kubernetes.io/hostname"
_ADDRESSES = frozenset({"InternalIP", "Hostname", "InternalDNS"})
_Known = tuple[tuple[str, ...], tuple[str | None, ...]]
"""Other names of a node, and in which zone, region and rack it is."""


class NodeDirectory:
    """Nodes by any of their names; `version` counts changes."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Known] = {}
        self._aliases: dict[str, str] = {}
        self.version = 0

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def names(self) -> Iterable[str]:
        """The names of all nodes."""
        return self._nodes.keys()

    def domains(self, of: str) -> Iterable[str | None]:
        """In which zone, region or rack each node is."""
        place = tuple(DOMAIN_LABELS).index(of)
        return (domains[place] for _, domains in self._nodes.values())

    def put(self, node: Node) -> None:
        """A node is there, or its names or domains may have changed."""
        name, labels = node.metadata.name, node.metadata.labels or {}
        known = tuple(_aliases(node)), tuple(map(labels.get, DOMAIN_LABELS.values()))
        if self._nodes.get(name) == known:
            return
        self.remove(name)
        self._nodes[name] = known
        for alias in known[0]:
            self._aliases.setdefault(alias, name)
        self.version += 1

    def remove(self, name: str) -> None:
        """A node is gone; nothing happens if it was not there."""
        if name not in self._nodes:
            return
        for alias in self._nodes.pop(name)[0]:
            if self._aliases.get(alias) == name:
                del self._aliases[alias]
        self.version += 1

    def find(self, text: str) -> str | None:
        """The name of the node that `text` means, a port at its end left aside."""
        for one in (text, without_port(text)):
            name = one if one in self._nodes else self._aliases.get(one)
            if name is not None:
                return name
        return None


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
