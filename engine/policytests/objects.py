"""Fixtures of a policy test become API objects, as a cluster would have them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address
from typing import Any, Final

import msgspec
import yaml

from dsl.policytest import Cluster, Thing, pod_names
from dsl.quantities import parse_quantity, parse_time
from dsl.schema import FIELDS
from dsl.types import is_missing
from engine.framework.podinfo import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    PodInfo,
    UnreadablePod,
    make_pod_info,
)
from engine.framework.workloads import TEMPLATES, pod_of_manifest, top_owner
from engine.objects import (
    CSINode,
    ElasticQuota,
    GangFailure,
    Identity,
    Namespace,
    Node,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    from_builtins,
)
from engine.ondemand import WORKLOADS, FinishedPod, Lease, Workload, scale_kind
from engine.policy.elsewhere import LEASES

Tree = dict[str, Any]
ReadText = Callable[[str], str]
"""Path of a manifest, relative to the test file -> its text; raises `FixtureError`."""

GPU: Final = "nvidia.com/gpu"
_RESOURCES: Final = (("cpu", CPU), ("memory", MEMORY), ("storage", EPHEMERAL_STORAGE), ("gpu", GPU))
_SLOTS: Final = "110"
_FINISHED: Final = ("Succeeded", "Failed")
#: The label that tells the ReplicaSets of a Deployment apart.
_TEMPLATE_HASH: Final = "pod-template-hash"
_DELETED: Final = "2025-03-01T10:00:00Z"


class FixtureError(Exception):
    """A fixture cannot be made into an object; the message says why, in the user's words."""


class _Loader(yaml.SafeLoader):
    """Leaves times the texts that they are in JSON."""


_Loader.yaml_implicit_resolvers = {
    first: [one for one in tags if not one[0].endswith(":timestamp")]
    for first, tags in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


# ---- manifests -------------------------------------------------------------------------------


def _manifest(thing: Thing, kinds: Sequence[str], read: ReadText) -> Tree:
    """The first object of one of the kinds in the file of `from`; nothing without `from`."""
    path = thing.text("from")
    if not path:
        return {}
    try:
        documents = list(yaml.load_all(read(path), Loader=_Loader))
    except (yaml.YAMLError, ValueError) as failed:
        raise FixtureError(f"{path} is not YAML: {' '.join(str(failed).split())}") from failed
    objects = [
        one
        for document in documents
        if isinstance(document, dict)
        for one in (document.get("items") or [] if _is_list(document) else [document])
    ]
    for one in objects:
        if isinstance(one, dict) and one.get("kind") in kinds:
            return one
    found = ", ".join(sorted({str(one.get("kind")) for one in objects if isinstance(one, dict)}))
    raise FixtureError(f"{path} holds no {' or '.join(kinds[:2])}, but {found or 'nothing'}")


def _is_list(document: Tree) -> bool:
    return str(document.get("kind", "")).endswith("List") and "items" in document


def _part(tree: Tree, name: str) -> Tree:
    """A mapping in a tree, as a copy; empty where it is null or absent."""
    there = tree.get(name)
    return dict(there) if isinstance(there, dict) else {}


def _items(tree: Tree, name: str) -> list[Tree]:
    there = tree.get(name)
    return [dict(one) for one in there if isinstance(one, dict)] if isinstance(there, list) else []


def _made(kind: type[msgspec.Struct], tree: Tree, thing: Thing) -> Any:  # noqa: ANN401 - a struct of that kind
    try:
        return from_builtins(kind, tree)
    except msgspec.ValidationError as failed:
        raise FixtureError(f"{thing.text('from') or thing.name}: {failed}") from failed


def _wired(thing: Thing, owner: str, part: str) -> Tree:
    """What a fixture says of fields that stand in a part of the object as they are."""
    return {
        spec.wire.rpartition(".")[2]: thing.plain[name]
        for spec in FIELDS.values()
        if spec.name.startswith(f"{owner}.") and spec.wire.rpartition(".")[0] == part
        if (name := spec.name.removeprefix(f"{owner}.")) in thing.plain
    }


# ---- nodes and namespaces --------------------------------------------------------------------


def node_of(thing: Thing, read: ReadText) -> Node:
    """The node of a fixture.

    Raises:
        FixtureError: its manifest cannot be used.
    """
    tree = _manifest(thing, ("Node",), read)
    meta, spec, status = _part(tree, "metadata"), _part(tree, "spec"), _part(tree, "status")
    labels = {"kubernetes.io/hostname": thing.name} | _part(meta, "labels")
    meta |= {
        "name": thing.name,
        "uid": meta.get("uid") or f"node-{thing.name}",
        "labels": labels | dict(thing.maps.get("label", {})),
        "annotations": _part(meta, "annotations") | dict(thing.maps.get("annotation", {})),
    }
    meta |= _wired(thing, "node", "metadata")
    given = thing.maps.get("taint", {})
    spec["taints"] = [one for one in _items(spec, "taints") if one.get("key") not in given] + [
        {"key": key, "value": value, "effect": "NoSchedule"} for key, value in given.items()
    ]
    if "unschedulable" in thing.plain:
        spec["unschedulable"] = thing.plain["unschedulable"]
    if "ips" in thing.plain:
        spec["podCIDRs"] = _ranges(thing.number("ips", 0))
    amounts = _amounts(thing)
    capacity = _part(status, "capacity")
    least = {CPU: "0", MEMORY: "0", PODS: _SLOTS}
    status |= {
        "capacity": least | capacity | amounts,
        "allocatable": least | (_part(status, "allocatable") or capacity) | amounts,
        "conditions": _conditions(thing, _items(status, "conditions")),
    }
    info = _wired(thing, "node", "status.nodeInfo")
    if info:
        status["nodeInfo"] = _part(status, "nodeInfo") | info
    sizes = thing.maps.get("image_size", {})
    images = [
        {"names": [name], "sizeBytes": int(parse_quantity(size))} for name, size in sizes.items()
    ]
    status["images"] = [*_items(status, "images"), *images]
    made: Node = _made(Node, {"metadata": meta, "spec": spec, "status": status}, thing)
    return made


def _ranges(addresses: int) -> list[str]:
    """Ranges that have so many addresses together, as a node's pod CIDRs."""
    if not addresses:
        raise FixtureError("`ips` is at least 1; a node without a free one has pods on all")
    sizes = [2**bit for bit in range(31, -1, -1) if addresses >> bit & 1]
    starts = itertools.accumulate(sizes, initial=0)
    return [
        f"{IPv4Address(start)}/{32 - size.bit_length() + 1}"
        for start, size in zip(starts, sizes, strict=False)
    ]


def _amounts(thing: Thing) -> dict[str, str]:
    amounts = {of: thing.text(name) for name, of in _RESOURCES if name in thing.plain}
    amounts |= thing.maps.get("resource", {})
    if "pods" in thing.plain:
        amounts[PODS] = str(thing.plain["pods"])
    return amounts


def _conditions(thing: Thing, there: list[Tree]) -> list[Tree]:
    given = dict(thing.maps.get("condition", {}))
    if "ready" in thing.plain or all(one.get("type") != "Ready" for one in there):
        given.setdefault("Ready", str(thing.flag("ready", default=True)))
    kept = [one for one in there if one.get("type") not in given]
    return kept + [{"type": kind, "status": status} for kind, status in given.items()]


def namespace_of(thing: Thing) -> Namespace:
    """The namespace of a fixture."""
    labels = {"kubernetes.io/metadata.name": thing.name} | dict(thing.maps.get("label", {}))
    meta = {
        "name": thing.name,
        "labels": labels,
        "annotations": dict(thing.maps.get("annotation", {})),
    }
    made: Namespace = _made(Namespace, {"metadata": meta}, thing)
    return made


def budget_of(thing: Thing) -> PodDisruptionBudget:
    """The disruption budget of a fixture."""
    meta = {"name": thing.name, "namespace": thing.text("namespace") or "default"}
    spec = {"selector": {"matchLabels": dict(thing.maps.get("label", {}))}}
    status = {"disruptionsAllowed": int(thing.number("allowed", 0))}
    made: PodDisruptionBudget = _made(
        PodDisruptionBudget, {"metadata": meta, "spec": spec, "status": status}, thing
    )
    return made


def quota_of(thing: Thing) -> ElasticQuota:
    """The ElasticQuota of a fixture, which is named after its namespace."""
    spec = {part: dict(thing.maps.get(part, {})) for part in ("min", "max")}
    meta = {"name": thing.name, "namespace": thing.name}
    made: ElasticQuota = _made(ElasticQuota, {"metadata": meta, "spec": spec}, thing)
    return made


def objects_of(cluster: Cluster, pods: Sequence[PodInfo]) -> Iterator[Any]:
    """The objects beside nodes, pods and namespaces; `pods` are all there are."""
    yield from map(budget_of, cluster.of("pdb"))
    yield from map(quota_of, cluster.of("quota"))
    for thing in cluster.of("group"):
        yield from _group(thing)
    for thing in cluster.of("node"):
        yield from _of_node(thing)
    for thing in cluster.of("workload"):
        yield from _workloads(thing, pods)


def _group(thing: Thing) -> Iterator[Any]:
    namespace = thing.text("namespace") or "default"
    meta = {"name": thing.name, "namespace": namespace}
    seconds = thing.plain.get("schedule_timeout")
    spec = {"minMember": thing.plain.get("min_member")}
    if isinstance(seconds, float):
        spec["scheduleTimeoutSeconds"] = int(seconds)
    created = {"creationTimestamp": thing.text("created")} if thing.text("created") else {}
    yield _made(PodGroup, {"metadata": meta | created, "spec": spec}, thing)
    failed = parse_time(thing.text("last_failure"))
    if not is_missing(failed):
        yield GangFailure(Identity(name=thing.name, namespace=namespace), failed)


def _of_node(thing: Thing) -> Iterator[Any]:
    if thing.text("heartbeat"):
        meta = {"name": thing.name, "namespace": LEASES}
        yield _made(
            Lease, {"metadata": meta, "spec": {"renewTime": thing.text("heartbeat")}}, thing
        )
    if "volumes_limit" in thing.plain:
        driver = {"name": "csi", "allocatable": {"count": thing.plain["volumes_limit"]}}
        tree = {"metadata": {"name": thing.name}, "spec": {"drivers": [driver]}}
        yield _made(CSINode, tree, thing)


def _workloads(thing: Thing, pods: Sequence[PodInfo]) -> Iterator[Any]:
    """A workload is of the kind and in the namespace that its pods say."""
    owners = {(owner[0], pod.namespace) for pod in pods if (owner := top_owner(pod)) is not None
              and owner[1] == thing.name}  # fmt: skip
    for kind, namespace in sorted(owners):
        parts = {f"{one}s": dict(thing.maps.get(one, {})) for one in ("label", "annotation")}
        meta = {"name": thing.name, "namespace": namespace, **parts}
        struct = WORKLOADS.get(kind) or msgspec.defstruct(
            scale_kind(kind), (), bases=(Workload,), frozen=True
        )
        yield _made(
            struct, {"metadata": meta, "spec": {"replicas": thing.plain.get("replicas")}}, thing
        )


# ---- pods ------------------------------------------------------------------------------------


def is_finished(thing: Thing) -> bool:
    """Whether its pods hold nothing on their node any more."""
    return thing.kind == "finished" or thing.text("phase") in _FINISHED


def pods_of(thing: Thing, default: str, read: ReadText) -> list[PodInfo]:
    """The pods of a fixture; `default` is the name of one without a name.

    Raises:
        FixtureError: its manifest cannot be used.
    """
    tree = _manifest(thing, ("Pod", *TEMPLATES), read)
    tree = pod_of_manifest(tree) if tree else tree
    name = thing.name or str(_part(tree, "metadata").get("name") or default)
    count = thing.number("count", 1)
    names = pod_names(thing, name)
    uid = thing.text("uid")
    uids = (
        [uid] if uid and count == 1 else [f"{uid}-{n}" if uid else "" for n in range(1, count + 1)]
    )
    return [_pod(thing, dict(tree), one, id_) for one, id_ in zip(names, uids, strict=True)]


def _pod(thing: Thing, tree: Tree, name: str, uid: str) -> PodInfo:
    meta = _metadata(thing, _part(tree, "metadata"), name, uid)
    pod: Pod = _made(
        FinishedPod if is_finished(thing) else Pod,
        {
            "metadata": meta,
            "spec": _spec(thing, _part(tree, "spec"), from_file=bool(tree)),
            "status": _status(thing, _part(tree, "status")),
        },
        thing,
    )
    try:
        return make_pod_info(pod)
    except UnreadablePod as failed:
        raise FixtureError(str(failed)) from failed


def _metadata(thing: Thing, meta: Tree, name: str, uid: str) -> Tree:
    namespace = thing.text("namespace") or meta.get("namespace") or "default"
    meta |= {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"{namespace}/{name}",
        "labels": _part(meta, "labels") | dict(thing.maps.get("label", {})),
        "annotations": _part(meta, "annotations") | dict(thing.maps.get("annotation", {})),
    }
    meta |= _wired(thing, "it", "metadata")
    if thing.flag("terminating", default=False):
        meta["deletionTimestamp"] = _DELETED
    _own(thing, meta)
    return meta


def _own(thing: Thing, meta: Tree) -> None:
    """Gives a pod the owner of its kind and name, or one that makes it of its workload."""
    kind, owner = thing.text("owner_kind"), thing.text("owner_name")
    workload = thing.text("workload")
    if not (kind or owner or workload):
        return
    name = owner or workload
    if workload and owner != workload and (kind == "ReplicaSet" or not (kind or owner)):
        # A Deployment's pods are those of a ReplicaSet, which it names so.
        kind, name = "ReplicaSet", owner or f"{workload}-0"
        start, _, made = name.rpartition("-")
        if start == workload:
            meta["labels"].setdefault(_TEMPLATE_HASH, made)
    elif workload and name != workload:
        raise FixtureError(f"the workload of the {kind or 'owner'} {owner} is not {workload}")
    meta["ownerReferences"] = [{"kind": kind, "name": name, "controller": True}]


def _spec(thing: Thing, spec: Tree, *, from_file: bool) -> Tree:
    containers = _with_images(thing, _items(spec, "containers")) or [{"name": "main"}]
    inits = _items(spec, "initContainers")
    spec.setdefault("schedulerName", "berth")
    if from_file:
        spec.setdefault("serviceAccountName", "default")
        for one in (*containers, *inits):
            _limits_are_requests(one)
    _ask(containers, inits, _asked(thing), thing.maps.get("limit", {}))
    spec |= _wired(thing, "it", "spec")
    if thing.node and thing.flag("bound", default=True):
        spec["nodeName"] = thing.node
    if "volumes" in thing.plain:
        spec["volumes"] = [
            {"name": f"volume-{at}", "persistentVolumeClaim": {"claimName": f"claim-{at}"}}
            for at in range(1, thing.number("volumes", 0) + 1)
        ]
    return spec | {
        "nodeSelector": _part(spec, "nodeSelector") | dict(thing.maps.get("node_selector", {})),
        "tolerations": _tolerations(thing, _items(spec, "tolerations")),
        "containers": containers,
        "initContainers": inits,
    }


def _tolerations(thing: Thing, there: list[Tree]) -> list[Tree]:
    given = thing.maps.get("toleration", {}).items()
    everything = [{"operator": "Exists"}] if thing.flag("tolerates_all", default=False) else []
    equal = [{"key": key, "operator": "Equal", "value": value} for key, value in given]
    return [*there, *equal, *everything]


def _with_images(thing: Thing, containers: list[Tree]) -> list[Tree]:
    listed = thing.plain.get("images")
    images = list(listed) if isinstance(listed, tuple) else []
    if thing.text("image"):
        images = [thing.text("image"), *images[1:]]
    for place, image in enumerate(images):
        if place == len(containers):
            containers.append({"name": "main" if not place else f"main-{place + 1}"})
        containers[place]["image"] = image
    return containers


def _limits_are_requests(container: Tree) -> None:
    """What the API server fills in when a container comes with limits only."""
    resources = _part(container, "resources")
    limits = _part(resources, "limits")
    if limits:
        container["resources"] = resources | {"requests": limits | _part(resources, "requests")}


def _asked(thing: Thing) -> dict[str, str]:
    asked = {of: thing.text(name) for name, of in _RESOURCES if name in thing.plain}
    return asked | dict(thing.maps.get("request", {}))


def _ask(
    containers: list[Tree], inits: list[Tree], asked: Mapping[str, str], limits: Mapping[str, str]
) -> None:
    """Makes the pod's effective requests what is asked: the first container has them all."""
    for container in (*containers, *inits) if asked else ():
        resources = _part(container, "resources")
        requests = _part(resources, "requests")
        kept = {name: amount for name, amount in requests.items() if name not in asked}
        container["resources"] = resources | {"requests": kept}
    first = containers[0]
    resources = _part(first, "resources")
    first["resources"] = resources | {
        "requests": _part(resources, "requests") | dict(asked),
        "limits": _part(resources, "limits") | dict(limits),
    }


def _status(thing: Thing, status: Tree) -> Tree:
    running = thing.kind == "running"
    phase = thing.text("phase") or ("Succeeded" if thing.kind == "finished" else "")
    if phase or running:
        status["phase"] = phase or "Running"
    status |= _wired(thing, "it", "status")
    if "restarts" in thing.plain:
        status["containerStatuses"] = [{"name": "main", "restartCount": thing.plain["restarts"]}]
    if thing.text("finished_at"):
        ended = {"terminated": {"finishedAt": thing.text("finished_at")}}
        statuses = _items(status, "containerStatuses") or [{"name": "main"}]
        status["containerStatuses"] = [one | {"state": ended} for one in statuses]
    if running or thing.kind == "finished":
        ready = str(thing.flag("ready", default=running))
        conditions: list[Tree] = [{"type": "Ready", "status": ready}]
        if "scheduled_at" in thing.plain:
            at = thing.text("scheduled_at")
            conditions.append({"type": "PodScheduled", "status": "True", "lastTransitionTime": at})
        given = [one["type"] for one in conditions]
        kept = [one for one in _items(status, "conditions") if one.get("type") not in given]
        status["conditions"] = kept + conditions
    return status
