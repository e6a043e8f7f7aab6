"""Nominated pods, by node; written by `Cache` alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from engine.cache.nodes import NodeColumns
from engine.pods.podinfo import PodInfo

NOBODY: Mapping[str, PodInfo] = {}


class Nominations:
    """Waiting pods that are nominated to a node, where preemption makes room for them.

    Also whose victims are being evicted. For readers; `NominationTable` writes.
    """

    def __init__(self) -> None:
        self.version = 0
        """Changes with every nomination."""
        self._on: dict[str, dict[str, PodInfo]] = {}
        self._ranks: dict[str, int] = {}
        self.ranks: Mapping[str, int] = self._ranks
        """The priority with which each nomination counts, by UID: at least that of the pod."""
        self.some_above = False
        """Whether a nomination ever counted with more than the priority of its pod."""
        self._nodes: dict[str, str] = {}
        self.nodes: Mapping[str, str] = self._nodes
        """The nominated nodes of pods, by UID."""
        self._evicting: dict[str, Collection[str]] = {}
        self._leaving: dict[str, str] = {}
        self.leaving: Mapping[str, str] = self._leaving
        """UIDs of pods whose deletion is being written, and their nodes."""
        self._about: tuple[int, int, int, str] | None = None
        self._before: Sequence[tuple[int, list[PodInfo]]] = ()

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[PodInfo]:
        return (pod for promised in self._on.values() for pod in promised.values())

    def on(self, node: str) -> Collection[PodInfo]:
        """The pods nominated to the node."""
        return self._on.get(node, NOBODY).values()

    def each(self) -> Iterator[tuple[str, Collection[PodInfo]]]:
        """The nodes with nominated pods, each with these pods."""
        return ((node, promised.values()) for node, promised in self._on.items())

    def node_of(self, uid: str) -> str:
        """The nominated node of the pod, empty if none; newer than the pod's status."""
        return self.nodes.get(uid, "")

    def is_evicting(self, uid: str) -> bool:
        """True while the pod's victims are being deleted."""
        return uid in self._evicting

    def before(self, pod: PodInfo, nodes: NodeColumns) -> Sequence[tuple[int, list[PodInfo]]]:
        """Rows of nodes to which pods are nominated that come before it, and those pods."""
        about = self.version, nodes.layout, pod.priority, self.node_of(pod.uid) and pod.uid
        if about != self._about:  # a cycle asks three times
            self._about, self._before = about, list(self._ahead(pod, nodes))
        return self._before

    def ahead(self, pod: PodInfo, node: str) -> list[PodInfo]:
        """The pods nominated to the node that come before this one."""
        least, own = self._least(pod, node), pod.uid
        return [one for one in self.on(node) if self.ranks[one.uid] >= least and one.uid != own]

    def behind(self, pod: PodInfo, node: str) -> list[PodInfo]:
        """The pods nominated to the node that come after this one."""
        least = self._least(pod, node)
        return [one for one in self.on(node) if self.ranks[one.uid] < least]

    def _least(self, pod: PodInfo, node: str) -> int:
        return self.ranks[pod.uid] if self.nodes.get(pod.uid) == node else pod.priority

    def _ahead(self, pod: PodInfo, nodes: NodeColumns) -> Iterator[tuple[int, list[PodInfo]]]:
        least, row_of = pod.priority, nodes.row
        # Where pods of one priority preempt, which is usual, none is left out.
        every = pod.uid not in self.nodes and least <= min(self.ranks.values(), default=least)
        for node, promised in self._on.items():
            ahead = list(promised.values()) if every else self.ahead(pod, node)
            row = row_of(node) if ahead else -1
            if row >= 0:
                yield row, ahead


class NominationTable(Nominations):
    """`Nominations` for the cache, which alone writes."""

    def put(self, pod: PodInfo, node: str, left_by: int) -> None:
        """The pod is nominated to this node and no other; to none if it is empty.

        It comes before all pods that are no more important than its victims: otherwise a victim's
        replacement (of a ReplicaSet) would take the room again, each time.
        """
        uid, rank = pod.uid, max(self._least(pod, node), left_by)
        self.drop(uid)
        if node:
            self._nodes[uid], self._ranks[uid] = node, rank
            self.some_above |= rank > pod.priority
            self._on.setdefault(node, {})[uid] = pod
            self.version += 1

    def drop(self, uid: str) -> bool:
        """Takes the nomination back; False if there was none."""
        node = self._nodes.pop(uid, None)
        if node is None:
            return False
        del self._ranks[uid], self._on[node][uid]
        if not self._on[node]:
            del self._on[node]
        self.version += 1
        return True

    def evicts(self, uid: str, victims: Mapping[str, str]) -> None:
        """The pod's victims, by UID with their nodes, are being deleted; none: no longer."""
        for victim in self._evicting.pop(uid, ()):
            del self._leaving[victim]
        if victims:
            self._evicting[uid] = tuple(victims)
            self._leaving.update(victims)
