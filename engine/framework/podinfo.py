"""A pod with what every cycle asks of it worked out once: its effective requests and its identity.

Source: kubernetes pkg/scheduler/framework/types.go (PodInfo, calculateResource) and
k8s.io/component-helpers/resource/helpers.go (PodRequests).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.objects import Pod

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"


@dataclass(frozen=True, slots=True, eq=False)
class PodInfo:
    """A pod and what was worked out of it; equal only to itself, so it can be a key.

    `requests` holds effective requests (cpu in milli-cores, everything else in whole units),
    `nonzero_cpu` and `nonzero_memory` the same with kube-scheduler's defaults of 100m and 200 MiB
    for containers that ask for nothing.
    """

    pod: Pod
    key: str
    uid: str
    requests: Mapping[str, int]
    nonzero_cpu: int
    nonzero_memory: int
    priority: int
    keys: dict[str, object] = field(default_factory=dict)
    """What plugins worked out of this pod, by plugin name; a memo, not state."""

    @property
    def name(self) -> str:
        """metadata.name."""
        return self.pod.metadata.name

    @property
    def namespace(self) -> str:
        """metadata.namespace."""
        return self.pod.metadata.namespace

    @property
    def terminating(self) -> bool:
        """True once deletion was asked for."""
        return self.pod.metadata.deletion_timestamp is not None
