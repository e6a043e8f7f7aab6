"""Objects that pods are of: workloads, budgets, quotas and groups that start together."""

from __future__ import annotations

from engine.objects import Described, Known, LabelSelector, Part, ResourceList


class ServiceSpec(Part, frozen=True):
    """`spec` of a service."""

    selector: dict[str, str] | None = None


class Service(Known, frozen=True):
    """A service, read for the pods that it selects."""

    spec: ServiceSpec = ServiceSpec()


class ReplicationController(Known, frozen=True):
    """A replication controller, read for the pods that it selects."""

    spec: ServiceSpec = ServiceSpec()


class WorkloadSpec(Part, frozen=True):
    """`spec` of a workload, as far as it is read."""

    selector: LabelSelector | None = None


class ReplicaSet(Known, frozen=True):
    """A replica set, read for the pods that it selects."""

    spec: WorkloadSpec = WorkloadSpec()


class StatefulSet(Known, frozen=True):
    """A stateful set, read for the pods that it selects."""

    spec: WorkloadSpec = WorkloadSpec()


class PodDisruptionBudgetStatus(Part, frozen=True):
    """`status` of a budget; `disrupted_pods` are those whose eviction was allowed already."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str | None] | None = None


class PodDisruptionBudget(Known, frozen=True):
    """How many of the pods that it selects may be evicted."""

    spec: WorkloadSpec = WorkloadSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class ElasticQuotaSpec(Part, frozen=True):
    """`spec` of a quota: what the pods of its namespace are guaranteed, and may use at most."""

    min: ResourceList | None = None
    max: ResourceList | None = None


class ElasticQuota(Known, frozen=True):
    """scheduling.x-k8s.io/v1alpha1: a namespace's quota that others may borrow from."""

    spec: ElasticQuotaSpec = ElasticQuotaSpec()


class PodGroupSpec(Part, frozen=True):
    """`spec` of a PodGroup of scheduling.x-k8s.io."""

    min_member: int | None = None
    min_resources: ResourceList | None = None
    schedule_timeout_seconds: int | None = None


class PodGroup(Described, frozen=True):
    """A group of pods, of the CRD that the scheduler-plugins project has."""

    spec: PodGroupSpec = PodGroupSpec()

    @property
    def minimum(self) -> int | None:
        """How many of its pods start together."""
        return self.spec.min_member

    @property
    def timeout_seconds(self) -> int | None:
        """How long they wait for each other; 0 says no more than nothing, as in the original."""
        return self.spec.schedule_timeout_seconds or None


class GangSchedulingPolicy(Part, frozen=True):
    """How many pods of a group start together."""

    min_count: int | None = None


class PodGroupSchedulingPolicy(Part, frozen=True):
    """`spec.schedulingPolicy` of a group: without `gang` its pods start one by one."""

    gang: GangSchedulingPolicy | None = None


class TopologyConstraint(Part, frozen=True):
    """A label of nodes: the pods of a group have all one value of it."""

    key: str = ""


class PodGroupSchedulingConstraints(Part, frozen=True):
    """`spec.schedulingConstraints` of a group; the API takes one of topology at most."""

    topology: list[TopologyConstraint] | None = None


class SchedulingPodGroupSpec(Part, frozen=True):
    """`spec` of a PodGroup of scheduling.k8s.io."""

    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    scheduling_constraints: PodGroupSchedulingConstraints = PodGroupSchedulingConstraints()


class SchedulingPodGroup(Described, frozen=True):
    """A PodGroup of Kubernetes itself (scheduling.k8s.io), which a Workload may have made."""

    spec: SchedulingPodGroupSpec = SchedulingPodGroupSpec()

    @property
    def topology_key(self) -> str | None:
        """The label by which its pods are together; None: they need not be."""
        topology = self.spec.scheduling_constraints.topology
        return topology[0].key if topology else None

    @property
    def minimum(self) -> int | None:
        """How many of its pods start together: one, where they need not."""
        gang = self.spec.scheduling_policy.gang
        return 1 if gang is None else gang.min_count

    @property
    def timeout_seconds(self) -> int | None:
        """It has none."""
        return None


class GangFailure(Known, frozen=True):
    """Our own word, of no API: when a gang, named as it is told by, failed last (epoch seconds)."""

    at: float = 0.0
