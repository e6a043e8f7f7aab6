"""What happens in a cluster, as far as it can make a waiting pod schedulable.

A plugin registers the events that could change its answer, each with a hint function that checks
the object. Nothing else wakes a pod that the plugin rejected.

Source: kube-scheduler framework/types.go and events.go; the finer events of
kubernetes pkg/scheduler/framework/events.go.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, Flag, auto
from functools import lru_cache

import msgspec

from engine.framework.snapshot import Snapshot
from engine.pods.podinfo import PodInfo


class Resource(Enum):
    """What changed. A pod is ASSIGNED (on a node), UNSCHEDULED, or the waiting pod itself (TARGET).

    OBJECT is of any kind in `Points.objects`, SIGNAL a sample of a metric.
    """

    ASSIGNED_POD = "AssignedPod"
    UNSCHEDULED_POD = "UnscheduledPod"
    TARGET_POD = "TargetPod"
    NODE = "Node"
    NAMESPACE = "Namespace"
    PERSISTENT_VOLUME = "PersistentVolume"
    PERSISTENT_VOLUME_CLAIM = "PersistentVolumeClaim"
    STORAGE_CLASS = "StorageClass"
    CSI_NODE = "CSINode"
    CSI_DRIVER = "CSIDriver"
    CSI_STORAGE_CAPACITY = "CSIStorageCapacity"
    VOLUME_ATTACHMENT = "VolumeAttachment"
    FINISHED_POD = "FinishedPod"
    NOMINATION = "Nomination"
    LEASE = "Lease"
    WORKLOAD = "Workload"
    ELASTIC_QUOTA = "ElasticQuota"
    POD_GROUP = "PodGroup"
    SCHEDULING_POD_GROUP = "SchedulingPodGroup"
    OBJECT = "Object"
    SIGNAL = "Signal"
    TIME = "Time"
    POLICY = "Policy"
    WILDCARD = "*"


class Action(Flag):
    """How it changed; a registration may name several. `UPDATE_OTHER` has to be the last member."""

    ADD = auto()
    DELETE = auto()
    UPDATE_NODE_ALLOCATABLE = auto()
    UPDATE_NODE_LABEL = auto()
    UPDATE_NODE_TAINT = auto()
    UPDATE_NODE_CONDITION = auto()
    UPDATE_NODE_ANNOTATION = auto()
    UPDATE_NODE_DECLARED_FEATURE = auto()
    UPDATE_POD_LABEL = auto()
    UPDATE_POD_SCALE_DOWN = auto()
    UPDATE_POD_SCALE_UP = auto()
    UPDATE_POD_TOLERATION = auto()
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED = auto()
    UPDATE_OTHER = auto()
    ALL = 2 * UPDATE_OTHER - 1  # type: ignore[operator] # in here members are numbers
    UPDATE = ALL & ~(ADD | DELETE)  # type: ignore[operator] # as above


_ACTION_WORDS = {one: str(one.name).title().replace("_", "") for one in Action}
_ACTION_WORDS[Action.UPDATE_OTHER] = "Update"


_OF_STORAGE = frozenset(
    {
        Resource.STORAGE_CLASS,
        Resource.CSI_NODE,
        Resource.CSI_DRIVER,
        Resource.CSI_STORAGE_CAPACITY,
        Resource.VOLUME_ATTACHMENT,
    }
)


class ClusterEvent(msgspec.Struct, frozen=True, cache_hash=True):
    """A resource and what was done to it."""

    resource: Resource
    action: Action

    def matches(self, happened: ClusterEvent) -> bool:
        """True if `happened` is among what this registration covers."""
        if self.resource is Resource.WILDCARD or happened.resource is Resource.WILDCARD:
            return True
        return self.resource is happened.resource and bool(self.action & happened.action)

    def __str__(self) -> str:
        words = [word for action, word in _ACTION_WORDS.items() if action & self.action]
        return f"{self.resource.value}/{'|'.join(words)}"

    @property
    def label(self) -> str:
        """As metrics of kube-scheduler have it: `NodeAdd`, `storage.k8s.io/CSINodeAdd`."""
        return _label(self)


@lru_cache(maxsize=1024)
def _label(event: ClusterEvent) -> str:
    group = "storage.k8s.io/" if event.resource in _OF_STORAGE else ""
    return group + str(event).replace("/", "")


EVERYTHING = ClusterEvent(Resource.WILDCARD, Action.ALL)


class QueueingHint(Enum):
    """Would the event let the pod pass this plugin? When in doubt: QUEUE."""

    QUEUE = "Queue"
    SKIP = "Skip"


Seen = object
"""The object of an event, before or after: None before it was added, and after it was deleted."""

HintFn = Callable[[PodInfo, Seen, Seen, Snapshot], QueueingHint]
"""(waiting pod, object before, object after, cluster after the event) -> hint. Pure."""


def never(pod: PodInfo, before: Seen, after: Seen, snapshot: Snapshot) -> QueueingHint:  # noqa: ARG001 - a hint
    """The hint of events that are registered, as in kube-scheduler, but wake no pod; not called."""
    return QueueingHint.SKIP


@dataclass(frozen=True, slots=True)
class ClusterEventWithHint:
    """A registration: the event, and the function that checks the object (None: always QUEUE).

    `finer` is a second hint, which kube-scheduler does not have: both have to return QUEUE. Whole
    registrations that kube-scheduler does not have are `ours`.
    """

    event: ClusterEvent
    hint: HintFn | None = None
    finer: HintFn | None = None
    ours: bool = False
