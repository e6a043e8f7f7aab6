"""The pod to be placed as the language sees it: `dsl.plan.Subject` over a pod and its snapshot."""

# ruff: noqa: D102 - what is public in its classes is told in `dsl.world`

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from dsl.schema import AMOUNTS
from dsl.types import MISSING
from dsl.world import Part
from engine.framework.snapshot import QueueTimes, Snapshot
from engine.objects import ObjectMeta
from engine.plugins.node_selector import eligibility_key
from engine.pods.podinfo import PodInfo
from engine.pods.workloads import workload_of
from engine.policy import podreads
from engine.policy.accounts import quota_amounts, quota_flag, quota_name
from engine.policy.gangs import group_number
from engine.policy.objectreads import workload_object, workload_texts


class PodSubject(Struct, frozen=True, eq=False):
    """`dsl.plan.Subject` over the pod to be placed and its namespace.

    `queued` is what the queue knows of the pod, where it is not what `Snapshot.other_pods` has.
    """

    _pod: PodInfo
    _snapshot: Snapshot
    _gpus: Sequence[str]
    _queued: QueueTimes | None = None

    def number(self, field: str, key: str | None) -> float:
        name = field.removeprefix("pod.")
        if field.startswith("quota."):
            amounts = quota_amounts(field.removeprefix("quota."), self._pod, self._snapshot)
            return dict(amounts).get(key or "", MISSING)
        if field.startswith("group."):
            return group_number(self._pod, self._snapshot, field.removeprefix("group."))
        if name in QueueTimes._fields:
            known = self._queued or self._snapshot.other_pods.times(self._pod.uid)
            return podreads.time_of(known, name)
        if field == "workload.replicas":
            found = workload_object(self._pod, self._snapshot)
            return MISSING if found is None else podreads.number_of(found.replicas)
        return float(podreads.pod_reader(name, key, self._gpus)(self._pod))

    def text(self, field: str, key: str | None) -> str | None:
        if field.startswith("namespace."):
            known, part = self._snapshot.namespaces, field.removeprefix("namespace.")
            return podreads.namespace_text(known, self._pod.namespace, part, key)
        if field.startswith("workload."):
            part = field.removeprefix("workload.")
            return workload_texts(self._pod, self._snapshot, part).get(key or "")
        if field == "pod.previous_node":
            return self._snapshot.other_pods.previous_node(self._pod)
        if field == "quota.name":
            return quota_name(self._pod, self._snapshot)
        if field == "group.name":
            return podreads.group_of(self._pod)
        text: str | None = podreads.pod_reader(field.removeprefix("pod."), key)(self._pod)
        return text

    def texts(self, field: str) -> tuple[str, ...]:
        if field == "pod.images":
            return tuple([c.image for c in podreads.all_containers_of(self._pod) if c.image])
        if field == "pod.containers":
            return tuple([c.name for c in podreads.containers_of(self._pod)])
        raise podreads.UnreadFieldError(field)

    def flag(self, field: str, key: str | None) -> bool:  # noqa: ARG002 - none is keyed
        if field.startswith("quota."):
            return quota_flag(field.removeprefix("quota."), self._pod, self._snapshot)
        return bool(podreads.pod_reader(field.removeprefix("pod."), None)(self._pod))

    def pairs(self, field: str) -> tuple[tuple[str, str | float], ...]:
        owner, _, name = field.partition(".")
        if owner == "quota":
            return quota_amounts(name, self._pod, self._snapshot)
        if field in AMOUNTS:
            return self._amounts(name)
        if owner == "workload":
            return tuple(sorted(workload_texts(self._pod, self._snapshot, name).items()))
        if owner == "namespace":
            namespace = self._snapshot.namespaces.get(self._pod.namespace)
            meta = namespace.metadata if namespace else ObjectMeta()
        else:
            meta = self._pod.pod.metadata
        spec = self._pod.pod.spec
        if name == "toleration":
            # The first of a key counts.
            values = {one.key: one.value for one in reversed(spec.tolerations or ())}
        elif name == "node_selector":
            values = spec.node_selector or {}
        else:
            values = (meta.labels if name == "label" else meta.annotations) or {}
        return tuple(sorted(values.items()))

    def _amounts(self, name: str) -> tuple[tuple[str, float], ...]:
        pod = self._pod
        limits = [(c.resources and c.resources.limits) or {} for c in podreads.containers_of(pod)]
        named = pod.requests if name == "request" else {key for one in limits for key in one}
        found = ((key, self.number(f"pod.{name}", key)) for key in sorted(named))
        return tuple((key, MISSING if one != one else one) for key, one in found)

    def asks(self, field: str) -> Part:
        return eligibility_key(self._pod) if field == "node.eligible" else self.texts("pod.images")

    def metric(self, name: str) -> float:
        """See `Subject.metric`; the second part of the name says whose it is."""
        pod = self._pod
        of = name.split(":")[1]
        signals = self._snapshot.signals
        if of == "namespace":
            return signals.value(name, (pod.namespace,))
        owner = workload_of(pod) if of == "workload" else pod.name
        return MISSING if owner is None else signals.value(name, (pod.namespace, owner))

    @property
    def containers(self) -> int:
        return len(podreads.containers_of(self._pod))

    def container_number(self, place: int, field: str, key: str | None) -> float:
        return podreads.container_number(podreads.containers_of(self._pod)[place], field, key or "")

    def container_text(self, place: int, field: str) -> str | None:
        container = podreads.containers_of(self._pod)[place]
        return (container.name if field == "name" else container.image) or None
