"""The default profile's plugins by name. What speaks of them need not import them.

Source: kubernetes pkg/scheduler: apis/config/v1/default_plugins.go.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

DEFAULT_BINDER: Final = "DefaultBinder"
DEFAULT_WEIGHTS: Final[Mapping[str, int]] = MappingProxyType(
    {
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
        DEFAULT_BINDER: 1,
        "NodeDeclaredFeatures": 1,
    }
)
"""In the order in which they are asked, with their weights."""
