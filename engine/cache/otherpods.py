"""Pods other than those on nodes: in the queue, nominated, finished or gone.

Nominations are always kept, the others only while a policy reads them (`attend`). What is read of a
node this way is in no column of the node: a change is reported as a change of the node's row.

    queue      waiting or being tried, and on no node             set_queued, remove_queued
               (`times`: others want to know how often and since when)
    nominated  waiting, and promised a node                       `Nominations`
    finished   on a node until within the last hour               set_finished, remove_finished
    left       the last pod of a name or a workload that went, by the node that it left
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from engine.cache.columns import Column, Dictionary
from engine.cache.nodes import NodeColumns
from engine.cache.pods import PodColumns, PodTable
from engine.pods.podinfo import PodInfo
from engine.pods.workloads import top_owner

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


QUEUE: Final = "queue"
TIMES: Final = "times"
NOMINATED: Final = "nominated"
FINISHED: Final = "finished"
PREVIOUS: Final = "previous"
HEARTBEATS: Final = "heartbeats"
VOLUMES: Final = "volumes"

FINISHED_SECONDS: Final = 3600.0
MOST_LEFT: Final = 1 << 16
_NOWHERE: Final = -1
#: Objects that are of the node of their name -> who attends to them.
_OF_NODES: Final = {"Lease": HEARTBEATS, "CSINode": VOLUMES}
_OWN: Final = ""


class QueueTimes(NamedTuple):
    """What only the queue knows of a pod; times are seconds since the epoch, None: not yet."""

    queued_at: float
    first_attempt_at: float | None
    attempts: int


class OtherPods:
    """Pods other than those on nodes, as far as anybody attends to them; see the module.

    For readers; `OtherPodsTable` writes.
    """

    def __init__(
        self,
        nodes: NodeColumns,
        dictionary: Dictionary,
        nominations: Nominations,
        *,
        on_node: Container[str],
        changed: Callable[[int], None],
    ) -> None:
        """Nothing is kept so far.

        Args:
            nodes: the table of nodes.
            dictionary: of all text columns.
            nominations: the nominated pods.
            on_node: the UIDs of pods that have a node.
            changed: called with the row of a node of which something else is read now.
        """
        self.attends: frozenset[str] = frozenset()
        self.touched: set[str] = set()
        """UIDs of queued pods that have changed since `take_touched`."""
        self.on_news: Callable[[], None] = lambda: None
        """Called when the queue or a nomination has changed, which no event of the server says."""
        self._nodes = nodes
        self._dictionary = dictionary
        self._nominations = nominations
        self._on_node = on_node
        self._changed = changed
        self._layout = nodes.layout
        self._times: dict[str, QueueTimes] = {}
        self._queued = PodTable(dictionary)
        self._finished = PodTable(dictionary)
        # Finished pods, the next to be forgotten first; some may be gone already.
        self._ending: list[tuple[float, str]] = []
        self._promised: tuple[tuple[int, int], PodTable] | None = None
        self._left: OrderedDict[tuple[str, str, str], str] = OrderedDict()

    def pods(self, table: str) -> PodColumns:
        """Other pods: of the `queue`, `nominated` to a node, or `finished` in the last hour.

        Those of the queue are on no node: their `node` is a row all the same, but for pods that
        got a node meanwhile.
        """
        if table == QUEUE:
            return self._queued
        if table == NOMINATED:
            return self._nominated()
        self._align()
        return self._finished

    def times(self, uid: str) -> QueueTimes | None:
        """What the queue knows of a pod; None if it has no such pod."""
        return self._times.get(uid)

    def previous_node(self, pod: PodInfo) -> str | None:
        """The node that the pod of its name, or else the last one of its workload, left."""
        return next((self._left[key] for key in _names(pod) if key in self._left), None)

    def _align(self) -> None:
        """Rows of nodes may be others now."""
        if self._layout != self._nodes.layout:
            self._layout = self._nodes.layout
            for row in range(self._finished.size):
                node = self._finished.pod(row).pod.node_name
                self._finished.move(row, self._nodes.row(node))

    def _nominated(self) -> PodTable:
        """Nominations are few and rare: the table is made anew when one comes or goes."""
        seen = self._nominations.version, self._nodes.layout
        if self._promised is None or self._promised[0] != seen:
            table = PodTable(self._dictionary)
            for node, pods in self._nominations.each():
                for pod in pods:
                    table.add(pod, self._nodes.row(node))
            self._promised = seen, table
        return self._promised[1]


class OtherPodsTable(OtherPods):
    """`OtherPods` for the cache, which alone writes."""

    def attend(self, to: frozenset[str]) -> None:
        """Says what is kept from now on."""
        gone = self.attends - to
        self.attends = to
        if QUEUE in gone:
            self._times.clear()
            self.touched.clear()
            self._queued = PodTable(self._dictionary)
        if FINISHED in gone:
            self._finished = PodTable(self._dictionary)
            self._ending.clear()
        if PREVIOUS in gone:
            self._left.clear()

    def set_queued(self, pod: PodInfo, times: QueueTimes) -> None:
        """The pod is in the queue, or is being tried."""
        row, before = self._queued.row(pod.uid), self._times.get(pod.uid)
        news = row == _NOWHERE or self._queued.pod(row) is not pod
        if news or (TIMES in self.attends and times != before):
            self._touch(pod.uid)
        self._times[pod.uid] = times
        # Waiting pods are on no node; row 0 stands for any, so that they are counted.
        _put(self._queued, pod, _NOWHERE if pod.uid in self._on_node else 0)

    def remove_queued(self, uid: str) -> None:
        """The pod waits no longer."""
        if self._times.pop(uid, None) is not None:
            self._queued.remove(self._queued.row(uid))
            self._touch(uid)

    def placed(self, uid: str, *, placed: bool) -> None:
        """A pod got a node, or has it no longer."""
        row = self._queued.row(uid)
        if row != _NOWHERE:
            self._queued.move(row, _NOWHERE if placed else 0)
            self._touch(uid)

    def take_touched(self) -> set[str]:
        """`touched`, which is empty from now on."""
        touched = self.touched
        if touched:
            self.touched = set()
        return touched

    def promised(self, *nodes: str) -> None:
        """A nomination to one of these nodes came or went."""
        if NOMINATED in self.attends:
            self._tell(*nodes)
            self.on_news()

    def set_finished(self, pod: PodInfo, at: float) -> None:
        """The pod finished at that time; it is forgotten an hour later."""
        node = pod.pod.node_name
        if not _put(self._finished, pod, self._nodes.row(node)):
            heapq.heappush(self._ending, (at, pod.uid))
        self._tell(node)

    def remove_finished(self, uid: str) -> None:
        """The pod is gone."""
        row = self._finished.row(uid)
        if row != _NOWHERE:
            node = self._finished.pod(row).pod.node_name
            self._finished.remove(row)
            self._tell(node)

    def expire(self, now: float) -> None:
        """Forgets those that finished more than an hour ago."""
        while self._ending and self._ending[0][0] < now - FINISHED_SECONDS:
            self.remove_finished(heapq.heappop(self._ending)[1])

    def leaves(self, pod: PodInfo, node: str) -> None:
        """The pod leaves its node, or is going to."""
        if PREVIOUS not in self.attends:
            return
        for key in _names(pod):
            self._left[key] = node
            self._left.move_to_end(key)
        while len(self._left) > MOST_LEFT:
            self._left.popitem(last=False)

    def object_changed(self, kind: str, name: str) -> None:
        """An object came, went or changed."""
        if _OF_NODES.get(kind) in self.attends:
            self._tell(name)

    def namespace_changed(self, name: str) -> None:
        """Another namespace has this name, or says something else."""
        self._queued.namespace_changed(name)
        self._align()
        for row in self._finished.namespace_changed(name).tolist():
            self._changed(row)
        self._promised = None

    def texts(self) -> list[Column]:
        """The columns that hold codes of the dictionary, but for nominated pods."""
        return [*self._queued.texts(), *self._finished.texts()]

    def recode(self, dictionary: Dictionary) -> None:
        """The codes of `texts` are of another dictionary now."""
        self._dictionary = dictionary
        for table in (self._queued, self._finished):
            table.recode(dictionary)
        self._promised = None

    # ---- inside ----------------------------------------------------------------------------

    def _touch(self, uid: str) -> None:
        self.touched.add(uid)
        self.on_news()

    def _tell(self, *nodes: str) -> None:
        for node in filter(None, nodes):
            row = self._nodes.row(node)
            if row != _NOWHERE:
                self._changed(row)


def _put(table: PodTable, pod: PodInfo, node_row: int) -> bool:
    """Puts the pod in, or what it is now; True if it was there."""
    row = table.row(pod.uid)
    if row == _NOWHERE:
        table.add(pod, node_row)
    else:
        table.fill(row, pod, node_row)
    return row != _NOWHERE


def _names(pod: PodInfo) -> list[tuple[str, str, str]]:
    """By what a predecessor is known: the pod's own name first, then its workload."""
    owner = top_owner(pod)
    own = (pod.namespace, _OWN, pod.name)
    return [own] if owner is None else [own, (pod.namespace, *owner)]
