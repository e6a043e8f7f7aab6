"""NodeDeclaredFeatures: a pod that needs a feature of the kubelet goes where it is declared.

Source: kubernetes plugins/nodedeclaredfeatures/nodedeclaredfeatures.go;
k8s.io/component-helpers nodedeclaredfeatures/features.
"""

from __future__ import annotations

from typing import Final

from engine.framework.events import Action, Resource
from engine.framework.interface import SKIP_FILTER, Points, PreFilterResult, State, Verdicts
from engine.framework.snapshot import Cause, Rows, Snapshot
from engine.framework.status import unresolvable
from engine.objects import Node, Pod
from engine.plugins.hints import differs, on
from engine.pods.podinfo import PodInfo

NAME: Final = "NodeDeclaredFeatures"
UNMET: Final = unresolvable("node(s) didn't match Pod's required features")
_NONE: Final[frozenset[str]] = frozenset()


class NodeDeclaredFeatures:
    """Filters by `status.declaredFeatures`."""

    name: Final = NAME

    def points(self) -> Points:
        """A node comes or declares something else; the pod needs something else."""
        node = Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE
        return Points(
            events=(
                on(Resource.NODE, node, differs(Node, _declared)),
                on(Resource.TARGET_POD, Action.UPDATE, differs(Pod, needed_features)),
            ),
            class_key=lambda pod, _: needed_features(pod.pod),
            pre_filter=_pre_filter,
            filter=_filter,
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
    return frozenset(found) if found else _NONE


def _pre_filter(pod: PodInfo, snapshot: Snapshot) -> PreFilterResult:
    needed = needed_features(pod.pod)
    if not needed:
        return SKIP_FILTER
    return PreFilterResult(state=needed, causes=Cause.OTHER, shared=needed)


def _filter(state: State, pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Verdicts:
    """Rejects nodes that do not declare all that is needed."""
    needed: frozenset[str] = state

    def declares(node: Node) -> bool:
        return needed.issubset(_declared(node))

    column = snapshot.nodes.flag(f"features:{','.join(sorted(needed))}", declares)
    return Verdicts.uniform(column[rows].copy(), UNMET)


def _declared(node: Node) -> list[str]:
    return node.status.declared_features or []
