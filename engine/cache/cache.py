"""The cluster in memory: changes in, snapshots out. One owner, no locks.

A pod goes through these states; whatever the order of events, sums over pods are exact:

    (unknown) ── assume ──▶ assumed ── add_pod (the watch confirms) ───────────────▶ bound
        ▲  ▲                   │                                                      │  ▲
        │  └───── forget ──────┘                              add_pod (other node) ────┘──┘
        └──────────────────────────── remove_pod ─────────────────────────────────────┘

    `add_pod` of an unknown pod makes it bound at once. An assumed pod never expires by itself: only
    the watch or a failed binding ends it. A pod whose node is not known counts nowhere until the
    node comes.

Source: kubernetes pkg/scheduler/backend/cache/interface.go.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from engine.cache.changes import NOWHERE, Cause, NodeChanges
from engine.cache.columns import Dictionary
from engine.cache.domains import TopologyCounts
from engine.cache.nodes import NodeTable
from engine.cache.objects import ObjectStores
from engine.cache.otherpods import NominationTable, OtherPodsTable, QueueTimes
from engine.cache.pods import PodTable
from engine.cache.snapshot import Signals, Snapshot, Waiting
from engine.objects import Namespace, Node, Pod
from engine.pods.podinfo import PodInfo

MOST_TEXTS: Final = 1 << 17

# Plain numbers: one of `Cause` costs more to combine than the change it is about.
_POD: Final = int(Cause.POD)
_OTHER: Final = int(Cause.OTHER)
_ANY: Final = int(Cause.ANY)
_OF_METADATA: Final = {"labels": int(Cause.LABELS), "resource_version": 0, "generation": 0}
_OF_SPEC: Final = {"taints": int(Cause.TAINTS), "unschedulable": int(Cause.TAINTS)}
_OF_STATUS: Final = {
    "allocatable": int(Cause.ALLOCATABLE),
    "capacity": int(Cause.ALLOCATABLE),
    "images": int(Cause.IMAGES),
    "conditions": int(Cause.CONDITIONS),
}


class Cache:
    """Node table, pod table and the log of changed rows."""

    def __init__(self) -> None:
        self.dictionary = Dictionary()
        self._most_texts = MOST_TEXTS
        self.nodes = NodeTable(self.dictionary)
        self.pods = PodTable(self.dictionary)
        self.namespaces: dict[str, Namespace] = {}
        self.nominations = NominationTable()
        self.waiting: dict[str, Waiting] = {}
        self.stores = ObjectStores()
        self.store = self.stores.of
        """The objects of a kind, to read; methods write."""
        self.topology = TopologyCounts(self.pods, self.namespaces)
        self.log = NodeChanges(self.nodes)
        self._rows = self.pods.row_of
        self._assumed: set[str] = set()
        self.other_pods = OtherPodsTable(
            self.nodes,
            self.dictionary,
            self.nominations,
            on_node=self._rows,
            changed=lambda row: self.log.add(row, _OTHER),
        )
        seen = self.nodes, self.pods, self.namespaces, self.topology, self.nominations
        self._tables = *seen, self.other_pods, self.waiting
        # Pods whose node is not known: the name of the node by UID, and the UIDs by name.
        self._strays: dict[str, str] = {}
        self._strays_on: dict[str, set[str]] = {}

    # ---- reading ---------------------------------------------------------------------------

    def snapshot(self, now: float, signals: Signals) -> Snapshot:
        """The cluster as of now, for one cycle. Costs nothing: it is a view."""
        log, stores, texts, layout = self.log, self.stores, self.dictionary, self.nodes.layout
        at, last, nodes_at = log.generation, log.last, log.nodes_generation
        return Snapshot(log, stores, now, signals, at, last, nodes_at, layout, texts, *self._tables)

    def is_assumed(self, uid: str) -> bool:
        """True between `assume` and the watch's confirmation (or `forget`)."""
        return uid in self._assumed

    @property
    def assumed_pods(self) -> int:
        """How many pods are assumed and not confirmed."""
        return len(self._assumed)

    def node_of(self, uid: str) -> str | None:
        """The node that the pod is bound to or assumed on, None if there is none."""
        row = self._rows.get(uid)
        if row is None:
            return None
        return self._name_of(uid, row)

    def assigned(self) -> dict[str, tuple[str, bool]]:
        """All pods: uid -> (node name, assumed); to compare with the server's state."""
        return {uid: (self.node_of(uid) or "", uid in self._assumed) for uid in self._rows}

    # ---- nodes -----------------------------------------------------------------------------

    def add_node(self, node: Node) -> None:
        """A node came, or its API object changed; no row changes with what nobody reads."""
        name = node.metadata.name
        row = self.nodes.row(name)
        if row != NOWHERE:
            before = self.nodes.node(row)
            self.topology.node_changed(row, before, node)
            self.nodes.fill(row, node)
            causes = _causes(before, node)
            if causes:
                self.log.add(row, causes)
            return
        row = self.nodes.add(node)
        self.topology.node_changed(row, None, node)
        for uid in self._strays_on.pop(name, ()):
            del self._strays[uid]
            place = self._rows[uid]
            self.nodes.add_pod(row, self.pods.pod(place), 1)
            self.topology.count(self.pods.pod(place), row, 1)
            self.pods.move(place, row)
        self.log.add(row, _ANY)

    def remove_node(self, name: str) -> None:
        """The node is gone; its pods count nowhere until they go or the node comes back."""
        row = self.nodes.row(name)
        if row == NOWHERE:
            return
        for place in self.pods.on(row).tolist():
            self._stray(self.pods.pod(place).uid, name)
            self.topology.count(self.pods.pod(place), row, -1)
            self.pods.move(place, NOWHERE)
        self.topology.node_changed(row, self.nodes.node(row), None)
        self.nodes.remove(name)
        self.log.add(row, _ANY)

    # ---- objects of other kinds ------------------------------------------------------------

    def set_object(self, item: Any) -> None:  # noqa: ANN401 - any struct with metadata
        """An object came or changed; its kind is the name of its struct."""
        kind = type(item).__name__
        self.store(kind).put(item)
        self.other_pods.object_changed(kind, item.metadata.name)

    def remove_object(self, kind: str, key: str) -> None:
        """The object is gone."""
        self.store(kind).remove(key)
        self.other_pods.object_changed(kind, key.rpartition("/")[2])

    def assume_object(self, item: Any) -> bool:  # noqa: ANN401 - any struct with metadata
        """Assumes a new version of the object; False if the server has changed it meanwhile."""
        return self.store(type(item).__name__).assume(item)

    def restore_object(self, kind: str, key: str, resource_version: str) -> None:
        """Takes back the assumption made on that version of the object."""
        self.store(kind).restore(key, resource_version)

    # ---- namespaces ------------------------------------------------------------------------

    def set_namespace(self, namespace: Namespace) -> bool:
        """A namespace came or changed. True if that changes what is read of pods on nodes."""
        return self._namespace_changed(namespace.metadata.name, namespace)

    def remove_namespace(self, name: str) -> bool:
        """The namespace is gone. True if that changes what is read of pods on nodes."""
        return self._namespace_changed(name, None)

    # ---- pods ------------------------------------------------------------------------------

    def assume(self, pod: PodInfo, node_name: str, at: float = math.nan) -> None:
        """Counts the pod on the node before the server knows.

        `at` is the time that policies read as when it was scheduled, until the server says one.

        Raises:
            ValueError: the pod is already assumed or bound.
        """
        uid = pod.pod.metadata.uid
        if uid in self._rows:
            raise ValueError(f"pod {pod.key} is already on {self.node_of(uid)}")
        self._put(uid, PodInfo(pod.pod, pod.readings, at), node_name)
        self._assumed.add(uid)

    def forget(self, uid: str) -> bool:
        """Takes back an assumption; False if the pod was not assumed (the watch was faster)."""
        if uid not in self._assumed:
            return False
        self._drop(uid)
        return True

    def add_pod(self, pod: PodInfo, node_name: str) -> None:
        """The server says that the pod is bound to the node; it may have said so before."""
        uid = pod.pod.metadata.uid
        row = self._rows.get(uid)
        if row is not None:
            if self._name_of(uid, row) == node_name:
                self._replace(row, pod)
                return
            self._drop(uid)
        self._put(uid, pod, node_name)

    def remove_pod(self, uid: str) -> None:
        """The pod is gone or finished."""
        if uid in self._rows:
            self._drop(uid)

    def carry(self, pod: Pod) -> None:
        """Changes a pod on a node before the server does; ignored if it is on none.

        An assumed pod stays so, with the time at which it got its node.
        """
        uid = pod.metadata.uid
        row = self._rows.get(uid)
        if row is not None:
            assumed, known = uid in self._assumed, self.pods.pod(row)
            self._replace(row, PodInfo(pod, known.readings, known.assumed_at))
            if assumed:
                self._assumed.add(uid)

    def wait(self, waiting: Waiting) -> None:
        """The assumed pod waits in permit, or goes on doing so for other plugins."""
        self.waiting[waiting.pod.uid] = waiting

    def wait_no_more(self, uid: str) -> None:
        """The pod waits no longer; nor does one that leaves its node."""
        self.waiting.pop(uid, None)

    # ---- nominations -----------------------------------------------------------------------

    def nominate(self, pod: PodInfo, node_name: str, left_by: int = -(1 << 31)) -> None:
        """The waiting pod is nominated to the node; an empty name takes that back.

        `left_by` is the priority of the most important victim that makes room for it, if any.
        """
        if pod.uid not in self._rows:
            before = self.nominations.node_of(pod.uid)
            self.nominations.put(pod, node_name, left_by)
            self.other_pods.promised(before, node_name)

    def withdraw(self, uid: str) -> bool:
        """Takes the pod's nomination back; False if it had none."""
        before = self.nominations.node_of(uid)
        there = self.nominations.drop(uid)
        self.other_pods.promised(before)
        return there

    def evicts(self, uid: str, victims: Mapping[str, str]) -> None:
        """A waiting pod's victims, by UID with their nodes, are being deleted; none: done."""
        self.nominations.evicts(uid, victims)

    # ---- other pods than those on nodes ------------------------------------------------------

    def attend(self, to: frozenset[str]) -> None:
        """Says what of `other_pods` is kept from now on."""
        self.other_pods.attend(to)

    def set_queued(self, pod: PodInfo, times: QueueTimes) -> None:
        """The pod waits, or is being tried."""
        self.other_pods.set_queued(pod, times)

    def remove_queued(self, uid: str) -> None:
        """The pod waits no longer."""
        self.other_pods.remove_queued(uid)

    def set_finished(self, pod: PodInfo, at: float) -> None:
        """The pod finished at that time."""
        self.other_pods.set_finished(pod, at)

    def remove_finished(self, uid: str) -> None:
        """A pod that had finished is gone."""
        self.other_pods.remove_finished(uid)

    def expire(self, now: float) -> None:
        """Forgets pods that finished long ago."""
        self.other_pods.expire(now)

    # ---- inside ----------------------------------------------------------------------------

    def _put(self, uid: str, pod: PodInfo, node_name: str) -> None:
        node_row = self.nodes.row(node_name)
        if len(self.dictionary.texts) > self._most_texts:
            self._renew_dictionary()
        self.pods.add(pod, node_row)
        if self.nominations.nodes:
            self.withdraw(uid)
        if self.other_pods.attends:
            self.other_pods.placed(uid, placed=True)
        if node_row == NOWHERE:
            self._stray(uid, node_name)
        else:
            self.nodes.add_pod(node_row, pod, 1)
            self.topology.count(pod, node_row, 1)
            self.log.add(node_row, _POD)

    def _drop(self, uid: str) -> None:
        row = self._rows[uid]
        if self.other_pods.attends and uid not in self._assumed:
            self.other_pods.leaves(self.pods.pod(row), self._name_of(uid, row))
        self._assumed.discard(uid)
        self.other_pods.placed(uid, placed=False)
        self.waiting.pop(uid, None)
        node_row = self.pods.node_row(row)
        if node_row == NOWHERE:
            name = self._strays.pop(uid)
            self._strays_on[name].remove(uid)
            if not self._strays_on[name]:
                del self._strays_on[name]
        else:
            self.nodes.add_pod(node_row, self.pods.pod(row), -1)
            self.topology.count(self.pods.pod(row), node_row, -1)
            self.log.add(node_row, _POD)
        self.pods.remove(row)

    def _replace(self, row: int, pod: PodInfo) -> None:
        before, node_row = self.pods.pod(row), self.pods.node_row(row)
        causes = _OTHER if self.pods.fill(row, pod, node_row) else 0
        if self.other_pods.attends and pod.terminating and not before.terminating:
            self.other_pods.leaves(pod, self._name_of(pod.uid, row))
        if node_row != NOWHERE:
            if before.readings is not pod.readings and before.readings.sums != pod.readings.sums:
                self.nodes.add_pod(node_row, before, -1)
                self.nodes.add_pod(node_row, pod, 1)
                causes |= _POD
            self.topology.recount(before, pod, node_row)
            if causes:
                self.log.add(node_row, causes)
        self._assumed.discard(pod.pod.metadata.uid)

    def _name_of(self, uid: str, row: int) -> str:
        node_row = self.pods.node_row(row)
        return self._strays[uid] if node_row == NOWHERE else self.nodes.name(node_row)

    def _stray(self, uid: str, node_name: str) -> None:
        """The pod's node is not known, or no longer."""
        self._strays[uid] = node_name
        self._strays_on.setdefault(node_name, set()).add(uid)

    def _renew_dictionary(self) -> None:
        """Forgets texts that no cell holds any more."""
        tables = self.nodes, self.pods, self.other_pods
        self.dictionary = self.dictionary.renewed([one for each in tables for one in each.texts()])
        for table in tables:
            table.recode(self.dictionary)
        self._most_texts = max(MOST_TEXTS, 2 * len(self.dictionary.texts))

    def _namespace_changed(self, name: str, now: Namespace | None) -> bool:
        before = self.namespaces.get(name)
        self.pods.count_namespace(name, -1)  # by what is read of it until now
        if now is not None:
            self.namespaces[name] = now
        elif before is not None:
            del self.namespaces[name]
        self.pods.count_namespace(name, 1)
        self.topology.namespace_changed(name, before, now)
        rows = self.pods.namespace_changed(name).tolist()
        for row in rows:
            self.log.add(row, _OTHER)
        self.other_pods.namespace_changed(name)
        return bool(rows)


def _causes(old: Node, new: Node) -> int:
    """What changed of a node, 0 if nothing that is read."""
    causes = 0
    for before, after, of_field in (
        (old.metadata, new.metadata, _OF_METADATA),
        (old.spec, new.spec, _OF_SPEC),
        (old.status, new.status, _OF_STATUS),
    ):
        for field in before.__struct_fields__:
            if getattr(before, field) != getattr(after, field):
                causes |= of_field.get(field, _OTHER)
    return causes
