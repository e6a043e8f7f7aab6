"""API objects that are watched only while a policy reads them; as `engine.objects` otherwise."""

from __future__ import annotations

from typing import Final

import msgspec

from engine.objects import ContainerStatus, Identity, Known, Part, Pod, PodStatus


class Metadata(Identity, frozen=True):
    """Who it is, and what it is labelled and annotated with."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Scale(Part, frozen=True):
    """How many pods a workload asks for, where it says so in its `spec`."""

    replicas: int | None = None
    parallelism: int | None = None
    completions: int | None = None
    job_template: JobTemplate | None = None


class JobTemplate(Part, frozen=True):
    """What the Jobs of a CronJob are made from; the server fills in a number in Jobs alone."""

    spec: Scale = Scale()


class Scheduled(Part, frozen=True):
    """How many pods a workload asks for, or needs no longer, where only its `status` says so."""

    desired_number_scheduled: int | None = None
    succeeded: int | None = None


class Workload(Part, frozen=True):
    """What pods are made from: a Deployment, a Job and their like."""

    metadata: Metadata = Metadata()
    spec: Scale = Scale()
    status: Scheduled = Scheduled()

    @property
    def replicas(self) -> int | None:
        """How many pods it asks for at a time, or in a run; None where that has no number."""
        run = self.spec.job_template
        if run is not None:
            return 1 if run.spec.parallelism is None else run.spec.parallelism
        wanted, every = self.spec.parallelism, self.spec.completions
        if wanted is not None and every is not None:
            return min(wanted, max(0, every - (self.status.succeeded or 0)))
        said = (self.spec.replicas, wanted, self.status.desired_number_scheduled)
        return next((one for one in said if one is not None), None)


def scale_kind(kind: str) -> str:
    """What the objects of a kind of workloads (`Deployment`) are called where they are kept."""
    return f"{kind}Scale"


_KINDS: Final = "Deployment ReplicaSet StatefulSet DaemonSet ReplicationController Job CronJob"
WORKLOADS: Final = {
    kind: msgspec.defstruct(scale_kind(kind), (), bases=(Workload,), frozen=True)
    for kind in _KINDS.split()
}
"""Kinds of workloads -> the struct of each: what is kept of a kind goes by the struct's name."""


class LeaseSpec(Part, frozen=True):
    """`spec` of a lease."""

    renew_time: str | None = None


class Lease(Known, frozen=True):
    """The heartbeat of the node of that name."""

    spec: LeaseSpec = LeaseSpec()


class Ended(Part, frozen=True):
    """How a container ended."""

    finished_at: str | None = None


class ContainerState(Part, frozen=True):
    """What a container is about."""

    terminated: Ended | None = None


class EndedContainer(ContainerStatus, frozen=True):
    """The status of a container of a pod that has finished."""

    state: ContainerState = ContainerState()


class FinishedStatus(PodStatus, frozen=True):
    """`status` of a pod that has finished."""

    container_statuses: list[EndedContainer] | None = None  # type: ignore[assignment]  # a list of more than it asks for


class FinishedPod(Pod, frozen=True):
    """A pod that has finished."""

    status: FinishedStatus = FinishedStatus()
