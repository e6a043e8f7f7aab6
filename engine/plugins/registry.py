"""The in-tree plugins by name, and the default profile's list of them.

An explicit table: importing a plugin registers nothing.

Source: kubernetes pkg/scheduler: apis/config/v1/default_plugins.go, framework/plugins/registry.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from engine.framework.interface import Plugin
from engine.framework.profile import Weighted
from engine.plugins import out_of_tree
from engine.plugins.balanced_allocation import BalancedAllocation, BalancedAllocationArgs
from engine.plugins.default_binder import DefaultBinder
from engine.plugins.default_preemption import DefaultPreemption, DefaultPreemptionArgs
from engine.plugins.dynamic_resources import DynamicResources
from engine.plugins.image_locality import ImageLocality
from engine.plugins.inter_pod_affinity import InterPodAffinity, InterPodAffinityArgs
from engine.plugins.node_affinity import NodeAffinityArgs, NodeAffinityPlugin
from engine.plugins.node_declared_features import NodeDeclaredFeatures
from engine.plugins.node_name import NodeName
from engine.plugins.node_ports import NodePorts
from engine.plugins.node_resources_fit import NodeResourcesFit, NodeResourcesFitArgs
from engine.plugins.node_unschedulable import NodeUnschedulable
from engine.plugins.pod_topology_spread import PodTopologySpread, PodTopologySpreadArgs
from engine.plugins.priority_sort import PrioritySort
from engine.plugins.scheduling_gates import SchedulingGates
from engine.plugins.taint_toleration import TaintToleration
from engine.plugins.volumes.binding import VolumeBinding, VolumeBindingArgs
from engine.plugins.volumes.limits import NodeVolumeLimits
from engine.plugins.volumes.restrictions import VolumeRestrictions
from engine.plugins.volumes.zone import VolumeZone
from engine.spelling import nearest

Arguments = Mapping[str, Any]
"""`pluginConfig[].args` as parsed from the configuration file."""

_T = TypeVar("_T")

DEFAULT_WEIGHTS: Final[Mapping[str, int]] = {
    "SchedulingGates": 1,
    "PrioritySort": 1,
    "NodeName": 1,
    "NodeUnschedulable": 1,
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodePorts": 1,
    "NodeResourcesFit": 1,
    "VolumeRestrictions": 1,
    "NodeVolumeLimits": 1,
    "VolumeBinding": 1,
    "VolumeZone": 1,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "DynamicResources": 2,
    "DefaultPreemption": 1,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
    "DefaultBinder": 1,
    "NodeDeclaredFeatures": 1,
}
"""The plugins of the default profile in the order in which they are asked, and their weights."""


def make_plugin(name: str, args: Arguments | None = None) -> Plugin:
    """A new plugin: ours, or of another package if we have none of that name.

    Raises:
        ValueError: there is no plugin of that name, or the arguments are not valid for it.
    """
    make = _FACTORIES.get(name)
    try:
        plugin = out_of_tree.load(name, args or {}) if make is None else make(args or {})
    except ValueError as wrong:
        raise ValueError(f"plugin {name!r}: {wrong}") from wrong
    if plugin is None:
        like = nearest(name, {*_FACTORIES, *out_of_tree.names()})
        raise ValueError(f"no plugin is named {name!r}{like}")
    return plugin


def is_in_tree(name: str) -> bool:
    """Whether the plugin of that name is one of ours."""
    return name in _FACTORIES


def default_plugins(args: Mapping[str, Arguments] | None = None) -> tuple[Weighted, ...]:
    """The default profile's plugins, new ones; `args` by plugin name.

    Raises:
        ValueError: the arguments of a plugin are not valid.
    """
    given = args or {}
    return tuple(
        Weighted(make_plugin(name, given.get(name)), weight)
        for name, weight in DEFAULT_WEIGHTS.items()
    )


def _no_arguments(make: Callable[[], Plugin]) -> Callable[[Arguments], Plugin]:
    def build(args: Arguments) -> Plugin:
        unknown = sorted(set(args) - {"apiVersion", "kind"})
        if unknown:
            raise ValueError(f"the plugin takes no arguments, got {', '.join(unknown)}")
        return make()

    return build


def _read(kind: type[_T], args: Arguments) -> _T:
    try:
        return msgspec.convert(dict(args), kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


_FACTORIES: Final[Mapping[str, Callable[[Arguments], Plugin]]] = {
    "SchedulingGates": _no_arguments(SchedulingGates),
    "PrioritySort": _no_arguments(PrioritySort),
    "NodeName": _no_arguments(NodeName),
    "NodeUnschedulable": _no_arguments(NodeUnschedulable),
    "TaintToleration": _no_arguments(TaintToleration),
    "NodeAffinity": lambda args: NodeAffinityPlugin(_read(NodeAffinityArgs, args)),
    "NodePorts": _no_arguments(NodePorts),
    "DynamicResources": lambda _: DynamicResources(),
    "NodeResourcesBalancedAllocation": lambda args: BalancedAllocation(
        _read(BalancedAllocationArgs, args)
    ),
    "ImageLocality": _no_arguments(ImageLocality),
    "DefaultBinder": _no_arguments(DefaultBinder),
    "NodeDeclaredFeatures": _no_arguments(NodeDeclaredFeatures),
    "NodeResourcesFit": lambda args: NodeResourcesFit(_read(NodeResourcesFitArgs, args)),
    "PodTopologySpread": lambda args: PodTopologySpread(_read(PodTopologySpreadArgs, args)),
    "InterPodAffinity": lambda args: InterPodAffinity(_read(InterPodAffinityArgs, args)),
    "VolumeRestrictions": _no_arguments(VolumeRestrictions),
    "NodeVolumeLimits": _no_arguments(NodeVolumeLimits),
    "VolumeBinding": lambda args: VolumeBinding(_read(VolumeBindingArgs, args)),
    "VolumeZone": _no_arguments(VolumeZone),
    "DefaultPreemption": lambda args: DefaultPreemption(_read(DefaultPreemptionArgs, args)),
}
