"""The in-tree plugins by name. An explicit table: importing one registers nothing.

Source: kubernetes pkg/scheduler: framework/plugins/registry.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from engine.configuration.conversions import KNOWN
from engine.framework.interface import Plugin
from engine.plugins import out_of_tree
from engine.plugins.allocation import BalancedAllocation, BalancedAllocationArgs
from engine.plugins.default_preemption import DefaultPreemption, DefaultPreemptionArgs
from engine.plugins.image_locality import ImageLocality
from engine.plugins.inter_pod_affinity import InterPodAffinity, InterPodAffinityArgs
from engine.plugins.no_nodes import (
    DefaultBinder,
    DynamicResources,
    DynamicResourcesArgs,
    PrioritySort,
    SchedulingGates,
)
from engine.plugins.node_affinity import NodeAffinityArgs, NodeAffinityPlugin
from engine.plugins.node_facts import NodeDeclaredFeatures, NodeName, NodePorts
from engine.plugins.node_resources_fit import NodeResourcesFit, NodeResourcesFitArgs
from engine.plugins.pod_topology_spread import PodTopologySpread, PodTopologySpreadArgs
from engine.plugins.taint_toleration import NodeUnschedulable, TaintToleration
from engine.plugins.volumes.binding import VolumeBinding, VolumeBindingArgs
from engine.plugins.volumes.filters import NodeVolumeLimits, VolumeRestrictions, VolumeZone
from engine.text.display import nearest

#: As in `configuration.scheduler`, which needs what commands without a configuration do not load.
_API: Final = "kubescheduler.config.k8s.io/v1"
Arguments = Mapping[str, Any]
"""`pluginConfig[].args` as parsed from the configuration file."""

IN_TREE: Final[Mapping[str, tuple[Callable[..., Plugin], type[Any] | None]]] = {
    "SchedulingGates": (SchedulingGates, None),
    "PrioritySort": (PrioritySort, None),
    "NodeName": (NodeName, None),
    "NodeUnschedulable": (NodeUnschedulable, None),
    "TaintToleration": (TaintToleration, None),
    "NodeAffinity": (NodeAffinityPlugin, NodeAffinityArgs),
    "NodePorts": (NodePorts, None),
    "NodeResourcesFit": (NodeResourcesFit, NodeResourcesFitArgs),
    "VolumeRestrictions": (VolumeRestrictions, None),
    "NodeVolumeLimits": (NodeVolumeLimits, None),
    "VolumeBinding": (VolumeBinding, VolumeBindingArgs),
    "VolumeZone": (VolumeZone, None),
    "PodTopologySpread": (PodTopologySpread, PodTopologySpreadArgs),
    "InterPodAffinity": (InterPodAffinity, InterPodAffinityArgs),
    "DynamicResources": (DynamicResources, DynamicResourcesArgs),
    "DefaultPreemption": (DefaultPreemption, DefaultPreemptionArgs),
    "NodeResourcesBalancedAllocation": (BalancedAllocation, BalancedAllocationArgs),
    "ImageLocality": (ImageLocality, None),
    "DefaultBinder": (DefaultBinder, None),
    "NodeDeclaredFeatures": (NodeDeclaredFeatures, None),
}
"""What makes each, and the type of the arguments that this is given, if it takes any."""


def make_plugin(name: str, args: Arguments | None = None) -> Plugin:
    """A new plugin: ours, or of another package if we have none of that name.

    Raises:
        ValueError: there is no plugin of that name, or the arguments are not valid for it.
    """
    try:
        make = _in_tree if name in IN_TREE else out_of_tree.load
        made = make(name, args or {})
    except ValueError as wrong:
        raise ValueError(f"plugin {name!r}: {wrong}") from wrong
    if made is None:
        cure = nearest(name, {*IN_TREE, *out_of_tree.names()})
        if name in KNOWN:
            cure = "; `berth convert` writes policies in its place, and says what they leave out"
        raise ValueError(f"no plugin is named {name!r}{cure}")
    return made


def _in_tree(name: str, args: Arguments) -> Plugin:
    make, kind = IN_TREE[name]
    if kind is not None:
        for key, wanted in (("apiVersion", _API), ("kind", f"{name}Args")):
            if (args.get(key) or wanted) != wanted:
                raise ValueError(f"its arguments have {key} {args[key]} instead of {wanted}")
        # A ValidationError is a ValueError.
        read = msgspec.convert(dict(args), kind)
        _all_read(args, read)
        return make(read)
    unknown = sorted(set(args) - {"apiVersion", "kind"})
    if unknown:
        raise ValueError(f"the plugin takes no arguments, got {', '.join(unknown)}")
    return make()


def _all_read(given: Any, read: Any) -> None:  # noqa: ANN401 - a document, and what was made of it
    """Checks that structs of API objects, which ignore unknown fields, have ignored none.

    Raises:
        ValueError: a field is unknown.
    """
    if isinstance(read, msgspec.Struct):
        names = dict(zip(read.__struct_encode_fields__, read.__struct_fields__, strict=True))
        for key, value in given.items():
            if key not in names:
                raise ValueError(f"unknown field `{key}`{nearest(key, names)}")
            _all_read(value, getattr(read, names[key]))
    elif isinstance(read, list | tuple):
        for pair in zip(given, read, strict=True):
            _all_read(*pair)
