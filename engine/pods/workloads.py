"""Whose a pod is: its controlling owner, and the workload above that, by the names they give."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from engine.pods.podinfo import PodInfo

#: Of which kinds the objects have a template of pods.
TEMPLATES: Final = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob")
_TEMPLATE_HASH: Final = "pod-template-hash"
#: A Job of a CronJob ends with the minutes from 1970 to its time, and there were no CronJobs
#: before 2015; who numbers Jobs by the day (20261121) is below that.
_RUN: Final = re.compile(r"(.+)-(\d{8})")
_FIRST_RUN: Final = 23_667_840


def controller_of(pod: PodInfo) -> tuple[str, str] | None:
    """Kind and name of the controlling owner."""
    for owner in pod.pod.metadata.owner_references or ():
        if owner.controller:
            return owner.kind, owner.name
    return None


def top_owner(pod: PodInfo) -> tuple[str, str] | None:
    """Kind and name of the top owner.

    Of a ReplicaSet that a Deployment made, the Deployment; of a Job that a CronJob made, that one.
    Both are read off the names that the controllers give.

    Source: kubernetes pkg/controller/deployment/sync.go, pkg/controller/cronjob/utils.go.
    """
    owner = controller_of(pod)
    if owner is None:
        return None
    kind, name = owner
    suffix = (pod.pod.metadata.labels or {}).get(_TEMPLATE_HASH)
    if kind == "ReplicaSet" and suffix and name.endswith(f"-{suffix}"):
        return "Deployment", name[: -len(suffix) - 1]
    run = _RUN.fullmatch(name) if kind == "Job" else None
    if run is not None and int(run[2]) > _FIRST_RUN:
        return "CronJob", run[1]
    return owner


def workload_of(pod: PodInfo) -> str | None:
    """The top owner's name."""
    owner = top_owner(pod)
    return None if owner is None else owner[1]


def pod_of_manifest(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The pod that a manifest describes: its own, or of a workload the one of its template."""
    meta, spec = _mapping(tree.get("metadata")), _mapping(tree.get("spec"))
    if tree.get("kind") == "Pod":
        return {**tree, "metadata": meta}
    kind, name = str(tree.get("kind")), str(meta.get("name") or "")
    if kind == "CronJob":
        spec = _mapping(_mapping(spec.get("jobTemplate")).get("spec"))
    template = _mapping(spec.get("template"))
    own = _mapping(template.get("metadata"))
    reference, labels = owned_by(kind, name)
    own |= {"name": name, "ownerReferences": [reference]}
    own["namespace"] = own.get("namespace") or meta.get("namespace")
    own["labels"] = _mapping(own.get("labels")) | labels
    return {"metadata": own, "spec": _mapping(template.get("spec"))}


def _mapping(there: object) -> dict[str, Any]:
    return dict(there) if isinstance(there, dict) else {}


def owned_by(kind: str, name: str) -> tuple[dict[str, object], dict[str, str]]:
    """Reference and labels by which a pod made from a workload's template says whose it is."""
    labels = {}
    if kind == "Deployment":
        kind, name, labels = "ReplicaSet", f"{name}-template", {_TEMPLATE_HASH: "template"}
    elif kind == "CronJob":
        kind, name = "Job", f"{name}-{_FIRST_RUN + 1}"
    return {"kind": kind, "name": name, "controller": True}, labels
