"""Filters by one fact of the node: NodeName, NodePorts and NodeDeclaredFeatures.

A pod that names its node can go nowhere else; a port of a node goes to one pod only; a pod that
needs a feature of the kubelet goes where it is declared.

Source: kubernetes plugins/nodename/node_name.go, nodeports/node_ports.go,
nodedeclaredfeatures/nodedeclaredfeatures.go; k8s.io/component-helpers
nodedeclaredfeatures/features.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.framework.events import Action, Resource
from engine.framework.interface import PASS, SKIP_FILTER, Points, PreFilterResult, State, Verdicts
from engine.framework.snapshot import Cause, Rows, Snapshot
from engine.framework.status import unresolvable, unschedulable
from engine.objects import Node, Pod
from engine.plugins.hints import differs, gone, on, placed
from engine.pods.podinfo import PodInfo, host_ports, taken

WRONG_NODE: Final = unresolvable("node(s) didn't match the requested node name")


class NodeName:
    """Filters by `spec.nodeName`."""

    name: Final = "NodeName"

    def points(self) -> Points:
        """A node of that name may come."""
        return Points(
            events=(on(Resource.NODE, Action.ADD),),
            class_key=lambda pod, _: pod.pod.node_name,
            pre_filter=_named_alone,
            filter=_is_named,
        )


def _named_alone(pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
    """Only the named node, if one is named."""
    name = pod.pod.node_name
    if not name:
        return PASS
    row = snapshot.nodes.row(name)
    rows = np.array([row] if row >= 0 else [], dtype=np.intp)
    return PreFilterResult(rows=rows, names=frozenset((name,)), causes=Cause(0))


def _is_named(state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
    name = pod.pod.node_name
    passed = snapshot.nodes.name_codes()[rows] == snapshot.dictionary.find(name)
    return Verdicts.uniform(passed, WRONG_NODE)


NO_FREE_PORTS: Final = unschedulable("node(s) didn't have free ports for the requested pod ports")
_BY_PORTS: Final = PreFilterResult(causes=Cause.POD)


class NodePorts:
    """Filters by the host ports of the pod's containers and sidecars."""

    name: Final = "NodePorts"

    def points(self) -> Points:
        """A pod that has the port goes; a node comes."""
        return Points(
            events=(
                on(Resource.ASSIGNED_POD, Action.DELETE, gone(Pod, _frees)),
                on(Resource.NODE, Action.ADD),
            ),
            class_key=lambda pod, _: host_ports(pod.pod),
            pre_filter=lambda pod, _: _BY_PORTS if host_ports(pod.pod) else SKIP_FILTER,
            filter=_has_ports,
            concerns=lambda _state, _pod, other, _: bool(host_ports(other.pod)),
        )


def _has_ports(state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
    """Rejects nodes where one of the ports is taken."""
    passed = np.ones(snapshot.nodes.size, dtype=np.bool_)
    for port in host_ports(pod.pod):
        taken = snapshot.nodes.ports.rows(port)
        passed[np.fromiter(taken, dtype=np.intp, count=len(taken))] = False
    return Verdicts.uniform(passed[rows], NO_FREE_PORTS)


def _frees(pod: PodInfo, other: Pod) -> bool:
    """Whether the other pod had a port that the waiting one wants."""
    theirs = host_ports(other) if placed(other) else ()
    return any(taken(one, theirs) for one in host_ports(pod.pod))


UNMET: Final = unresolvable("node(s) didn't match Pod's required features")
_NO_FEATURES: Final[frozenset[str]] = frozenset()


class NodeDeclaredFeatures:
    """Filters by `status.declaredFeatures`."""

    name: Final = "NodeDeclaredFeatures"

    def points(self) -> Points:
        """A node comes or declares something else; the pod needs something else."""
        node = Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE
        return Points(
            events=(
                on(Resource.NODE, node, differs(Node, _declared)),
                on(Resource.TARGET_POD, Action.UPDATE, differs(Pod, needed_features)),
            ),
            class_key=lambda pod, _: needed_features(pod.pod),
            pre_filter=_needs,
            filter=_declares_all,
        )


def needed_features(pod: Pod) -> frozenset[str]:
    """What the kubelet of the pod's node must be able to do, of what is declared at all."""
    spec = pod.spec
    found: set[str] = set()
    if spec.host_network and spec.host_users is False:
        found.add("UserNamespacesHostNetworkSupport")
    for container in (*(spec.containers or ()), *(spec.init_containers or ())):
        for rule in container.restart_policy_rules or ():
            if rule.action == "RestartAllContainers":
                found.add("RestartAllContainersOnContainerExits")
        if any(mount.bind_mount_options for mount in container.volume_mounts or ()):
            found.add("VolumeBindMountOptions")
    return frozenset(found) if found else _NO_FEATURES


def _needs(pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
    needed = needed_features(pod.pod)
    if not needed:
        return SKIP_FILTER
    return PreFilterResult(state=needed, causes=Cause.OTHER, shared=needed)


def _declares_all(state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
    """Rejects nodes that do not declare all that is needed."""
    needed: frozenset[str] = state

    def declares(node: Node) -> bool:
        return needed.issubset(_declared(node))

    column = snapshot.nodes.flag(f"features:{','.join(sorted(needed))}", declares)
    return Verdicts.uniform(column[rows].copy(), UNMET)


def _declared(node: Node) -> list[str]:
    return node.status.declared_features or []
